//! Files of quotas, made anew with the limits of those entries that can be found.

use casemate_blockdev::{BlockDevice, u64_of};

use crate::check::Finding;
use crate::edit::inode::{read_raw, write_new};
use crate::edit::quota_file::QuotaFile;
use crate::error::{Place, Problem, Result, Structure};
use crate::format::inode::InodeFlags;
use crate::format::quota::{self, BLOCK, BLOCKS, ENTRY, ID, Kind, LEVELS, ROOT, entries, is_free, slot};
use crate::format::raw_inode::RawInode;
use crate::read::mapping::Mapping;
use crate::repair::Repair;
use crate::units::InodeNo;

/// Entries of a damaged file that are kept.
const MOST_KEPT: usize = 1 << 16;

impl Repair {
    /// Makes a quota file anew. What owners have is counted in it by the next look at the file system.
    pub(super) fn renew_quota(&mut self, number: InodeNo) -> Result<bool> {
        let fs = self.files.fs().clone();
        let named = Kind::ALL.into_iter().zip(fs.superblock().quota_inodes);
        let Some((kind, _)) = { named }.find(|(_, inode)| *inode == Some(number)) else { return Ok(false) };
        let raw = read_raw(self.files.space(), number)?;
        let old = RawInode { number, raw: &raw };
        if self.flag_tree(old)? {
            return Ok(true);
        }
        let runs = self.walk(old)?.runs;
        let file = File { repair: self, runs: &runs };
        let is_one = file.has_header(kind, number)?;
        let is_reserved = number == InodeNo::USER_QUOTA || number == InodeNo::GROUP_QUOTA;
        if !is_one && !is_reserved && old.kind().is_some() && old.links() > 0 {
            // It may be a file of somebody.
            return self.forget_quota(kind);
        }
        let kept = file.entries()?;
        let mut inode = self.own_inode(number);
        inode.set_flags(inode.flags().0 | InodeFlags::IMMUTABLE.0);
        self.files.inodes().map(&mut inode).start();
        let size = self.space().block_size();
        let blocks = (2 * BLOCK).div_ceil(size);
        let mut bytes = vec![0; blocks * size];
        kind.begin(&mut bytes);
        BLOCKS.set(&mut bytes, ROOT + 1);
        let mut places = Vec::new();
        self.files.inodes().map(&mut inode).fill(0, u64_of(blocks), false, |run| {
            places.extend(run.physical.run(run.len));
        })?;
        for (block, bytes) in places.into_iter().zip(bytes.chunks_exact(size)) {
            self.files.inodes().transaction().create(block, bytes.to_vec());
        }
        inode.set_size(quota::range(ROOT).end);
        write_new(self.space(), &inode)?;
        let now = self.files.now();
        for entry in kept {
            QuotaFile::new(self.space(), number, now).put(kind, &entry)?;
        }
        Ok(true)
    }

    /// Takes away the name of a quota file that is none.
    pub(super) fn drop_quota(&mut self, finding: &Finding) -> Result<bool> {
        let Problem::Number { found, .. } = finding.problem() else { return Ok(false) };
        let inodes = self.files.fs().superblock().quota_inodes;
        for (kind, inode) in Kind::ALL.into_iter().zip(inodes) {
            if inode.is_some_and(|inode| u64::from(inode.get()) == *found) {
                self.forget_quota(kind)?;
            }
        }
        Ok(true)
    }

    fn forget_quota(&mut self, kind: Kind) -> Result<bool> {
        self.files.inodes().transaction().edit_superblock(|superblock| {
            superblock.clear_quota_inode(kind);
            Ok(())
        })?;
        Ok(true)
    }
}

/// A damaged quota file.
struct File<'a> {
    repair: &'a Repair,
    runs: &'a [Mapping],
}

impl File<'_> {
    /// A block of the file, if it has a place.
    fn block(&self, number: u32) -> Result<Option<[u8; BLOCK]>> {
        let fs = self.repair.files.fs();
        let size = u64::from(fs.layout().block_size);
        let start = quota::range(number).start;
        let at = self.runs.partition_point(|run| run.end() <= start / size);
        let run = self.runs.get(at).filter(|run| run.logical <= start / size && !run.unwritten);
        let Some(run) = run else { return Ok(None) };
        let block = run.physical + (start / size - run.logical);
        if !fs.is_present(block, 1) {
            return Ok(None);
        }
        let mut bytes = [0; BLOCK];
        fs.device().read_at(&mut bytes, fs.layout().offset(block) + start % size)?;
        Ok(Some(bytes))
    }

    /// Whether the first of the blocks that are left, wherever the map has it by now, is that of a quota file.
    fn has_header(&self, kind: Kind, number: InodeNo) -> Result<bool> {
        let place = Place::inode(Structure::QuotaFile, number);
        let blocks = u64::from(self.repair.files.fs().layout().block_size) / u64_of(BLOCK);
        let first = self.runs.first().and_then(|run| u32::try_from(run.logical.checked_mul(blocks)?).ok());
        let header = first.map_or(Ok(None), |first| self.block(first))?;
        Ok(header.is_some_and(|header| kind.check(&header, place).is_ok()))
    }

    /// Entries to which the tree leads, each of the id that its way there tells.
    fn entries(&self) -> Result<Vec<[u8; ENTRY]>> {
        let mut found = Vec::new();
        let mut blocks = 0;
        self.follow(ROOT, 0, 0, &mut blocks, &mut found)?;
        Ok(found)
    }

    fn follow(
        &self,
        number: u32,
        level: usize,
        id: u32,
        blocks: &mut usize,
        found: &mut Vec<[u8; ENTRY]>,
    ) -> Result<()> {
        *blocks += 1;
        if *blocks > 4 * MOST_KEPT {
            return Ok(());
        }
        let Some(bytes) = self.block(number)? else { return Ok(()) };
        if level == LEVELS {
            let mut all = entries().map(|at| &bytes[at..at + ENTRY]);
            let own = all.find(|entry| ID.get(entry) == id && !is_free(entry));
            if let Some(entry) = own.and_then(|entry| entry.try_into().ok())
                && found.len() < MOST_KEPT
            {
                found.push(entry);
            }
            return Ok(());
        }
        for byte in 0..=255u8 {
            let next = slot(u32::from_be_bytes([byte; 4]), level).get(&bytes);
            if next > ROOT {
                let id = id | u32::from(byte) << (8 * (LEVELS - 1 - level));
                self.follow(next, level + 1, id, blocks, found)?;
            }
        }
        Ok(())
    }
}
