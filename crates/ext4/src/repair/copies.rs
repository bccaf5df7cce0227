//! Blocks with several owners: the one whose map fits the rest of its inode keeps them, and each other gets a copy.

use std::collections::BTreeMap;

use casemate_blockdev::{u64_of, usize_of};

use crate::alloc::Goal;
use crate::check::{CheckReport, Finding, FindingKind};
use crate::edit::inode::{read_raw, write};
use crate::error::{Problem, Result};
use crate::format::csum::{Context, Subject};
use crate::format::features::RoCompat;
use crate::format::inode::{FileType, InodeFlags};
use crate::format::raw_inode::RawInode;
use crate::format::xattr;
use crate::read::fs::Ext4;
use crate::read::mapping::Mapping;
use crate::read::runs::BlockRuns;
use crate::repair::altered::Alteration;
use crate::repair::map::Walk;
use crate::repair::{Repair, Rule};
use crate::units::{Block, InodeNo, Run, merge};

/// Blocks that are claimed more than once, and those of them that have an owner by now.
#[derive(Debug, Default)]
pub(super) struct Owners {
    shared: Vec<Run>,
    metadata: Vec<Run>,
    /// Blocks of a cluster, which has one owner.
    ratio: u64,
    taken: BlockRuns,
    owned: BlockRuns,
    /// Clusters that the present inode has taken.
    own: BlockRuns,
    /// Claims of each inode.
    claims: BTreeMap<InodeNo, Vec<Run>>,
    /// First and last blocks of all claims, each in order.
    firsts: Vec<Block>,
    lasts: Vec<Block>,
}

impl Owners {
    pub fn of(findings: &[&Finding], fs: &Ext4, metadata: &[Run]) -> Owners {
        let ratio = u64::from(fs.layout().cluster_blocks);
        let mut owners = Owners { ratio, ..Owners::default() };
        for (finding, run) in findings.iter().filter_map(|finding| Some((finding, claim(finding)?))) {
            owners.firsts.push(run.first);
            owners.lasts.push(run.end().before());
            owners.shared.push(run);
            if let Some(inode) = finding.place().inode {
                owners.claims.entry(inode).or_default().push(run);
            }
        }
        owners.firsts.sort_unstable();
        owners.lasts.sort_unstable();
        merge(&mut owners.shared);
        owners.metadata = metadata.iter().map(|run| Owners::whole_clusters(*run, ratio)).collect();
        merge(&mut owners.metadata);
        owners
    }

    fn whole_clusters(run: Run, ratio: u64) -> Run {
        let first = run.first.cluster(ratio).first_block(ratio);
        let end = run.end().before().cluster(ratio).first_block(ratio).saturating_add(ratio);
        Run::between(first, end)
    }

    /// The number of claims of others over those of an inode.
    fn claims_over(&self, inode: InodeNo) -> u64 {
        let claims = self.claims.get(&inode).map_or(&[][..], Vec::as_slice);
        claims.iter().map(|claim| self.others(*claim)).fold(0, u64::saturating_add)
    }

    /// The number of claims of others over a claim.
    fn others(&self, claim: Run) -> u64 {
        let begun = self.firsts.partition_point(|first| *first < claim.end());
        let ended = self.lasts.partition_point(|last| *last < claim.first);
        u64_of(begun.saturating_sub(ended)).saturating_sub(1)
    }

    fn is_in(runs: &[Run], block: Block) -> bool {
        let at = runs.partition_point(|run| run.end() <= block);
        runs.get(at).is_some_and(|run| run.first <= block)
    }

    /// Whether a run has blocks that others claim, too.
    fn touches(&self, run: Run) -> bool {
        let at = self.shared.partition_point(|shared| shared.end() <= run.first);
        self.shared.get(at).is_some_and(|shared| shared.shared(run).is_some())
    }

    /// The parts of a run that nobody else claims.
    fn unshared(&self, run: Mapping) -> Vec<Mapping> {
        let mut parts = Vec::new();
        let mut at = 0;
        let whole = Run { first: run.physical, len: run.len };
        let from = self.shared.partition_point(|shared| shared.end() <= run.physical);
        for shared in self.shared[from..].iter().map_while(|shared| shared.shared(whole)) {
            let start = shared.first - run.physical;
            parts.push((at, start));
            at = start + shared.len;
        }
        parts.push((at, run.len));
        let part = |(from, to): (u64, u64)| Mapping {
            logical: run.logical + from,
            physical: run.physical + from,
            len: to - from,
            ..run
        };
        parts.into_iter().filter(|(from, to)| from < to).map(part).collect()
    }

    /// Whether a block is claimed by others, too.
    fn is_shared(&self, block: Block) -> bool {
        Owners::is_in(&self.shared, block)
    }

    fn is_metadata(&self, block: Block) -> bool {
        Owners::is_in(&self.metadata, block)
    }

    /// Begins with the blocks of the next inode.
    fn next_inode(&mut self) {
        self.own = BlockRuns::default();
    }

    /// Whether the block becomes the one of whoever asks. All of a cluster has one owner.
    fn take(&mut self, block: Block) -> bool {
        if !self.is_shared(block) {
            return true;
        }
        if self.is_metadata(block) || !self.taken.insert(block, 1) {
            return false;
        }
        let first = block.cluster(self.ratio).first_block(self.ratio);
        self.own.has(first, self.ratio)
            || self.owned.insert(first, self.ratio) && self.own.insert(first, self.ratio)
    }
}

/// The blocks that a finding says to be claimed by others, too.
fn claim(finding: &Finding) -> Option<Run> {
    match finding.problem() {
        Problem::Run { first, last, .. } => Some(Run::between(Block::new(*first), Block::new(*last) + 1)),
        _ => None,
    }
}

impl Repair {
    /// Notes which blocks have two owners, and who these are.
    pub(super) fn look_at_claims(&mut self, report: &CheckReport) {
        let twice = |finding: &&Finding| finding.kind() == FindingKind::ClaimedTwice;
        self.claimed = report.faults.iter().filter(twice).filter_map(claim).collect();
        merge(&mut self.claimed);
        self.claimants =
            report.faults.iter().filter(twice).filter_map(|finding| finding.place().inode).collect();
    }

    /// Whether a rule would write to blocks that others claim, too. Until these have an owner they may be anybody's, whatever
    /// rules there are for what should lie there.
    pub(super) fn must_wait(&self, rule: Rule, finding: &Finding) -> bool {
        if self.claimed.is_empty() {
            return false;
        }
        let place = finding.place();
        let is_claimed = place.block.is_some_and(|block| Owners::is_in(&self.claimed, Block::new(block)));
        match rule {
            Rule::Own
                if finding.kind() == FindingKind::ResizeInode || place.inode == Some(InodeNo::RESIZE) =>
            {
                let reserve = self.reserve();
                self.claimed.iter().any(|run| run.shared(reserve).is_some())
            }
            Rule::Inode => place.inode.is_none() && is_claimed,
            Rule::Directory => is_claimed || place.inode.is_some_and(|inode| self.claimants.contains(&inode)),
            // These change directories, and free blocks, wherever names lead.
            Rule::Unloop | Rule::Free => true,
            _ => false,
        }
    }

    /// Gives an inode copies of those blocks that others keep.
    pub(super) fn copy_shared(&mut self, finding: &Finding) -> Result<bool> {
        // What lies on metadata without an owner is told for its owners, too.
        let Some(number) = finding.place().inode else { return Ok(true) };
        let raw = read_raw(self.files.space(), number)?;
        let inode = RawInode { number, raw: &raw };
        if number == InodeNo::RESIZE {
            return Ok(false);
        }
        self.owners.next_inode();
        let mut owned = match inode.to_inode() {
            Ok(owned) => owned,
            Err(_) if number == InodeNo::BAD_BLOCKS => {
                for run in self.walk(inode)?.runs {
                    for block in run.physical.run(run.len) {
                        self.owners.take(block);
                    }
                }
                return self.cut_bad_blocks(inode);
            }
            Err(error) => return Err(error),
        };
        let is_mapped = match owned.kind() {
            FileType::Regular | FileType::Directory => !owned.has(InodeFlags::INLINE_DATA),
            FileType::Symlink => {
                !owned.has(InodeFlags::INLINE_DATA) && !crate::read::map::is_fast_symlink(&owned)
            }
            _ => false,
        };
        let mut is_changed = false;
        if is_mapped {
            let found = self.walk(inode)?;
            let mut is_other = false;
            for node in &found.nodes {
                is_other |= !self.owners.take(*node);
            }
            let mut runs: Vec<Mapping> = Vec::new();
            for run in found.runs {
                is_other |= self.copy_run(number, run, &mut runs)?;
            }
            if is_other {
                self.make_map(&mut owned, &runs)?;
                is_changed = true;
            }
        }
        if let Some(block) = owned.xattr_block().filter(|block| !self.owners.take(*block)) {
            let new = self.copy_attributes(number, block)?;
            owned.set_xattr_block(new);
            is_changed = true;
        }
        self.note(number, Alteration::Shared);
        if is_changed {
            self.files.forget_directory(number);
            write(self.space(), &owned)?;
        }
        Ok(true)
    }

    /// Puts claims in the order in which blocks are taken: first come inodes whose size and count of blocks fit their maps,
    /// and of these the ones with the fewest claims over theirs. A damaged map lies over those of many.
    pub(super) fn sort_claims(&self, findings: &mut [&Finding]) -> Result<()> {
        let mut order = BTreeMap::new();
        for inode in self.owners.claims.keys().copied() {
            let is_own = self.files.fs().superblock().is_internal(inode);
            let others = self.owners.claims_over(inode);
            order.insert(inode, (!is_own && !self.fits(inode)?, !is_own, others));
        }
        findings.sort_by_key(|finding| {
            let inode = finding.place().inode;
            (inode.and_then(|inode| order.get(&inode).copied()), inode)
        });
        Ok(())
    }

    /// Whether an inode's map is the one that its size and its count of blocks tell of.
    fn fits(&self, number: InodeNo) -> Result<bool> {
        let raw = read_raw(self.files.space(), number)?;
        let inode = RawInode { number, raw: &raw };
        if inode.has(InodeFlags::INLINE_DATA) || inode.kind() == Some(FileType::Symlink) {
            return Ok(true);
        }
        let found = self.walk(inode)?;
        let end = inode.size().div_ceil(self.files.fs().layout().block_size.into());
        let is_behind = |run: &Mapping| !run.unwritten && run.end() > end;
        let has_tree = inode.has(InodeFlags::VERITY) || !found.runs.iter().any(is_behind);
        Ok(found.is_sound && has_tree && !self.is_uncounted(inode, &found))
    }

    /// Whether a map has more blocks than the inode counts.
    fn is_uncounted(&self, inode: RawInode<'_>, found: &Walk) -> bool {
        let superblock = self.files.fs().superblock();
        let layout = self.files.fs().layout();
        let ratio = u64::from(layout.cluster_blocks);
        let mut clusters = u64_of(found.nodes.len());
        let mut last = None;
        for run in &found.runs {
            let (first, end) =
                (run.physical.cluster(ratio), (run.physical + run.len).before().cluster(ratio));
            clusters = clusters.saturating_add(end - first + u64::from(last != Some(first)));
            last = Some(end);
        }
        let huge_file = superblock.ro_compat.has(RoCompat::HUGE_FILE);
        let is_huge = huge_file && inode.has(InodeFlags::HUGE_FILE);
        let unit = if is_huge { 1 } else { u64::from(layout.block_size / 512) };
        inode.blocks(huge_file) < clusters.saturating_mul(unit * ratio)
    }

    /// Takes from an inode what it has behind its end and others claim, too: where its size and its count of blocks, or many
    /// others, contradict its map, the map is what is wrong. Blocks that were reserved behind the end and that nobody else
    /// claims stay.
    pub(super) fn give_up(&mut self, finding: &Finding) -> Result<bool> {
        let Some(number) = finding.place().inode else { return Ok(false) };
        let superblock = self.files.fs().superblock();
        let is_named = superblock.orphan_file == Some(number) || superblock.journal_inode == Some(number);
        if superblock.is_internal(number) || is_named {
            return Ok(false);
        }
        let raw = read_raw(self.files.space(), number)?;
        let inode = RawInode { number, raw: &raw };
        let Ok(mut owned) = inode.to_inode() else { return Ok(false) };
        let is_mapped = matches!(owned.kind(), FileType::Regular | FileType::Directory)
            && !owned.has(InodeFlags::INLINE_DATA)
            && !owned.has(InodeFlags::VERITY);
        if !is_mapped || owned.links() == 0 {
            return Ok(false);
        }
        let found = self.walk(inode)?;
        let end = owned.size().div_ceil(self.files.fs().layout().block_size.into());
        let behind = |run: &Mapping| {
            let skip = end.saturating_sub(run.logical).min(run.len);
            Mapping {
                logical: run.logical + skip,
                physical: run.physical + skip,
                len: run.len - skip,
                ..*run
            }
        };
        let owners = &self.owners;
        let is_shared = |run: &Mapping| {
            let tail = behind(run);
            tail.len > 0 && owners.touches(Run { first: tail.physical, len: tail.len })
        };
        if !found.runs.iter().any(is_shared) {
            return Ok(false);
        }
        let others = owners.claims_over(number);
        if !self.is_uncounted(inode, &found) && (others <= 1 || end == 0) {
            return Ok(false);
        }
        let mut runs = Vec::new();
        for run in &found.runs {
            let tail = behind(run);
            if tail.len < run.len {
                runs.push(Mapping { len: run.len - tail.len, ..*run });
            }
            if tail.unwritten {
                runs.extend(self.owners.unshared(tail));
            }
        }
        self.make_map(&mut owned, &runs)?;
        self.note(number, Alteration::Cut);
        self.files.forget_directory(number);
        write(self.space(), &owned)?;
        Ok(true)
    }

    /// Adds a run to those of an inode, with copies of what others keep. Whether there are some.
    fn copy_run(&mut self, inode: InodeNo, run: Mapping, into: &mut Vec<Mapping>) -> Result<bool> {
        if !self.owners.touches(Run { first: run.physical, len: run.len }) {
            into.push(run);
            return Ok(false);
        }
        let is_clustered = self.space().ratio() > 1;
        let mut is_other = false;
        let mut done = 0;
        let mut is_own = self.owners.take(run.physical);
        while done < run.len {
            let mut len = 1;
            let mut is_next = is_own;
            while done + len < run.len {
                is_next = self.owners.take(run.physical + (done + len));
                if is_next != is_own {
                    break;
                }
                len += 1;
            }
            let piece = Mapping { logical: run.logical + done, physical: run.physical + done, len, ..run };
            is_other |= !is_own;
            // Without room for a copy all stays as it is: a file with a hole would have lost what it reads as now.
            match is_own {
                true => into.push(piece),
                false if is_clustered => self.copy_aligned(inode, piece, into)?,
                false => self.copy_blocks(inode, piece, into)?,
            }
            done += len;
            is_own = is_next;
        }
        Ok(is_other)
    }

    /// Copies a run to free clusters, in which each block lies where it must.
    pub(super) fn copy_aligned(
        &mut self,
        inode: InodeNo,
        run: Mapping,
        into: &mut Vec<Mapping>,
    ) -> Result<()> {
        let ratio = self.space().ratio();
        let mut done = 0;
        while done < run.len {
            let logical = run.logical + done;
            let len = (ratio - logical % ratio).min(run.len - done);
            let piece = Mapping { logical, physical: run.physical + done, len, ..run };
            let last = into.last().filter(|last| (last.end() - 1) / ratio == logical / ratio).copied();
            match last {
                Some(last) => {
                    // Its cluster has room for this one.
                    let to = last.physical + (logical - last.logical);
                    self.copy_to(piece, to)?;
                    into.push(Mapping { physical: to, ..piece });
                }
                None => self.copy_blocks(inode, piece, into)?,
            }
            done += len;
        }
        Ok(())
    }

    fn copy_to(&mut self, piece: Mapping, to: Block) -> Result<()> {
        let size = self.space().block_bytes();
        if piece.unwritten {
            return Ok(());
        }
        let mut bytes = vec![0; usize_of(piece.len * size)];
        self.files.fs().device().read_at(&mut bytes, piece.physical.offset(size))?;
        self.files.inodes().transaction().write_data(to, &bytes)
    }

    /// Copies blocks to free ones.
    fn copy_blocks(&mut self, inode: InodeNo, piece: Mapping, into: &mut Vec<Mapping>) -> Result<()> {
        let ratio = self.space().ratio();
        let group = self.files.space().goal_group(inode, FileType::Regular);
        let mut done = 0;
        while done < piece.len {
            let logical = piece.logical + done;
            let within = logical % ratio;
            let want = (piece.len - done + within).div_ceil(ratio).min(256);
            let (first, clusters) = self.space().allocate(Goal::Near(group), want)?;
            let len = (clusters * ratio - within).min(piece.len - done);
            self.copy_to(Mapping { physical: piece.physical + done, len, ..piece }, first + within)?;
            into.push(Mapping { logical, physical: first + within, len, ..piece });
            done += len;
        }
        Ok(())
    }

    /// Copies a block of attributes for one inode; nothing if it is none.
    fn copy_attributes(&mut self, inode: InodeNo, block: Block) -> Result<Option<Block>> {
        let mut bytes = self.files.fs().read_block(block)?;
        let (is_one, _, blocks) = xattr::block_header(&bytes);
        if !is_one || blocks != 1 {
            return Ok(None);
        }
        let group = self.files.space().goal_group(inode, FileType::Directory);
        let (new, _) = self.space().allocate(Goal::Near(group), 1)?;
        xattr::set_users(&mut bytes, 1);
        let context = Context { block: new, ..Context::default() };
        self.files.inodes().transaction().create_structure(Subject::XattrBlock, context, new, bytes);
        Ok(Some(new))
    }
}
