//! Inodes whose fields contradict each other: what goes with their kind is kept, and the rest is made to agree.

use std::collections::BTreeMap;

use casemate_blockdev::{BlockDevice, u32_of, u64_of, usize_of};

use crate::check::{Finding, FindingKind};
use crate::edit::inode::{read_raw, write, write_new, write_raw};
use crate::error::{Problem, Result, Structure};
use crate::format::block_map;
use crate::format::csum::{Context, Subject};
use crate::format::extent;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{EXTRA_SIZE, FileType, Inode, InodeFlags, MODE, OLD_INODE_SIZE};
use crate::format::raw_inode::RawInode;
use crate::format::xattr::{self, Attribute, Value};
use crate::read::mapping::Mapping;
use crate::repair::Repair;
use crate::repair::altered::Alteration;
use crate::repair::map::Walk;
use crate::units::{Block, GroupNo, InodeNo};

/// Bytes of the extra fields that every kernel since these are there has.
const EXTRA_FIELDS: u16 = 32;

/// Bytes of an inode's place for a map, a short target or inline data.
const AREA: u64 = 60;

/// Kinds of findings about a map.
const OF_MAP: [FindingKind; 6] = [
    FindingKind::ExtentNode,
    FindingKind::ExtentOrder,
    FindingKind::ExtentRange,
    FindingKind::ExtentIndex,
    FindingKind::BlockNumber,
    FindingKind::ClusterAlignment,
];

impl Repair {
    /// Makes an inode's fields agree.
    pub(super) fn renew_inode(&mut self, finding: &Finding) -> Result<bool> {
        let place = finding.place();
        let Some(number) = place.inode else {
            return match place.block {
                Some(block) => self.renew_attribute_block(finding, Block::new(block)),
                None => Ok(false),
            };
        };
        if place.structure == Structure::XattrInode {
            return self.renew_value(finding, number);
        }
        let superblock = self.files.fs().superblock();
        let is_quota =
            superblock.ro_compat.has(RoCompat::QUOTA) && superblock.quota_inodes.contains(&Some(number));
        let is_named =
            is_quota || superblock.orphan_file == Some(number) || superblock.journal_inode == Some(number);
        if superblock.is_internal(number) || is_named {
            return self.renew_own(finding);
        }
        let bits64 = superblock.incompat.has(Incompat::BITS64);
        let huge_file = superblock.ro_compat.has(RoCompat::HUGE_FILE);
        let is_hurd = superblock.is_hurd();
        let raw = read_raw(self.files.space(), number)?;
        if self.has_only_inline_data(RawInode { number, raw: &raw }) {
            return self.restore_inline_data();
        }
        if self.has_only_attributes(RawInode { number, raw: &raw })? {
            return self.restore_attributes();
        }
        let mut new = raw.clone();
        if new.len() > OLD_INODE_SIZE {
            let room = new.len() - OLD_INODE_SIZE;
            let extra = usize::from(EXTRA_SIZE.get(&new));
            if extra != 0 && (extra < 4 || extra > room || extra % 4 != 0) {
                EXTRA_SIZE.set(&mut new, EXTRA_FIELDS);
            }
        }
        let Some(kind) = self.kind_of(RawInode { number, raw: &new })? else {
            return self.clear_inode(number);
        };
        let mode = RawInode { number, raw: &new }.mode();
        let permissions = if FileType::from_mode(mode).is_some() { mode & 0o7777 } else { mode & 0o777 };
        MODE.set(&mut new, kind.mode_bits() | permissions);
        let mut inode = (RawInode { number, raw: &new }).to_inode()?;
        inode.clear_unknown(huge_file, bits64, is_hurd);
        if finding.kind() == FindingKind::Encryption || self.unsound.has(number, FindingKind::Encryption) {
            inode.set_flags(inode.flags().0 & !InodeFlags::ENCRYPT.0);
        }
        self.renew_flags(&mut inode);
        self.renew_attributes(&mut inode)?;
        let is_kept = match kind {
            FileType::Regular | FileType::Directory => self.renew_contents(&mut inode)?,
            FileType::Symlink => self.renew_symlink(&mut inode)?,
            _ => {
                inode.set_flags(inode.flags().0 & !(InodeFlags::EXTENTS.0 | InodeFlags::INLINE_DATA.0));
                inode.set_size(0);
                inode.block_area_mut()[16..].fill(0);
                true
            }
        };
        if !is_kept {
            return self.clear_inode(number);
        }
        if inode.as_bytes() == raw {
            return Ok(false);
        }
        if inode.size() != (RawInode { number, raw: &raw }).size() && kind != FileType::Directory {
            self.note(number, Alteration::Size);
        }
        self.files.forget_directory(number);
        write_new(self.space(), &inode)?;
        Ok(true)
    }

    /// The kind of an inode: the one that its mode says, unless it has what only others have.
    fn kind_of(&self, inode: RawInode<'_>) -> Result<Option<FileType>> {
        let superblock = self.files.fs().superblock();
        let huge_file = superblock.ro_compat.has(RoCompat::HUGE_FILE);
        let with_extents = superblock.incompat.has(Incompat::EXTENTS);
        let kind = inode.kind();
        let has_tree = with_extents && extent::is_root(inode.block_area());
        let is_mapped = matches!(kind, Some(FileType::Regular | FileType::Directory | FileType::Symlink));
        if is_mapped || kind.is_some() && inode.blocks(huge_file) == 0 {
            return Ok(kind);
        }
        if self.is_like_directory(inode)? {
            return Ok(Some(FileType::Directory));
        }
        if kind.is_some() && !has_tree {
            return Ok(kind);
        }
        if inode.has(InodeFlags::INLINE_DATA) && superblock.incompat.has(Incompat::INLINE_DATA) && !has_tree {
            return Ok(Some(kind.unwrap_or(FileType::Regular)));
        }
        let layout = self.files.fs().layout();
        let blocks = u64::from(layout.first_data_block).max(1)..layout.blocks;
        let has_numbers = inode.blocks(huge_file) > 0
            && !inode.has(InodeFlags::EXTENTS)
            && block_map::numbers(inode.block_area())
                .all(|number| number == 0 || blocks.contains(&u64::from(number)));
        if !has_tree && !has_numbers {
            return Ok(kind);
        }
        let has_runs = !self.walk(inode)?.runs.is_empty();
        Ok(if has_runs { Some(FileType::Regular) } else { kind })
    }

    /// Takes away flags that the kind or the features don't allow.
    fn renew_flags(&self, inode: &mut Inode) {
        let superblock = self.files.fs().superblock();
        let is_dir = inode.is_dir();
        let mut flags = inode.flags().0;
        let mut clear_if = |is: bool, flag: InodeFlags| flags &= if is { !flag.0 } else { u32::MAX };
        clear_if(!superblock.compat.has(Compat::IMAGIC_INODES), InodeFlags::IMAGIC);
        clear_if(!is_dir || !superblock.compat.has(Compat::DIR_INDEX), InodeFlags::INDEX);
        clear_if(!is_dir || !superblock.incompat.has(Incompat::CASEFOLD), InodeFlags::CASEFOLD);
        clear_if(!superblock.incompat.has(Incompat::INLINE_DATA), InodeFlags::INLINE_DATA);
        clear_if(!superblock.incompat.has(Incompat::EXTENTS), InodeFlags::EXTENTS);
        inode.set_flags(flags);
    }

    /// Bytes of contents in an inode's attribute; `None` if there is no such attribute.
    fn inline_rest(&self, inode: &Inode) -> Option<u64> {
        let mut rest = None;
        let base = xattr::in_inode(inode.xattr_area())?;
        xattr::raw_entries(base, 0, |entry| {
            if (entry.index, entry.name) == (xattr::SYSTEM, xattr::INLINE_DATA) {
                rest = Some(u64::from(entry.value_size));
            }
        });
        rest
    }

    /// Makes contents and size of a file or directory agree. False if nothing is left of it.
    fn renew_contents(&mut self, inode: &mut Inode) -> Result<bool> {
        let number = inode.number();
        let has_tree = self.has_tree(inode);
        if inode.has(InodeFlags::INLINE_DATA) {
            match self.inline_rest(inode) {
                Some(rest) if !has_tree => {
                    inode.set_flags(inode.flags().0 & !InodeFlags::EXTENTS.0);
                    let room = AREA + rest;
                    let size = if inode.is_dir() { room } else { inode.size().min(room) };
                    inode.set_size(size);
                    return Ok(true);
                }
                None if !has_tree => return self.contents_to_block(inode),
                _ => inode.set_flags(inode.flags().0 & !InodeFlags::INLINE_DATA.0),
            }
        }
        if has_tree {
            inode.set_flags(inode.flags().0 | InodeFlags::EXTENTS.0);
        }
        let bytes = inode.as_bytes().to_vec();
        let Walk { mut runs, is_sound, .. } = self.walk(RawInode { number, raw: &bytes })?;
        let layout = *self.files.fs().layout();
        let block_size = u64::from(layout.block_size);
        let mut is_other = !is_sound || OF_MAP.iter().any(|kind| self.unsound.has(number, *kind));
        is_other |= layout.cluster_blocks > 1 && !inode.has(InodeFlags::EXTENTS) && !runs.is_empty();
        if inode.is_dir() {
            let most = (1u64 << 31) / block_size;
            let mut next = 0;
            for run in &mut runs {
                is_other |= run.logical != next || run.unwritten;
                if run.logical != next {
                    // Without its index it is a list of blocks, and one that is missing is not missed.
                    if inode.has(InodeFlags::INDEX) {
                        self.unindexed.insert(number);
                    }
                    inode.set_flags(inode.flags().0 & !InodeFlags::INDEX.0);
                }
                run.logical = next;
                run.unwritten = false;
                next = run.end();
            }
            if next > most && !self.files.fs().superblock().incompat.has(Incompat::LARGEDIR) {
                is_other = true;
                runs.retain_mut(|run| {
                    run.len = run.len.min(most.saturating_sub(run.logical));
                    run.len > 0
                });
            }
            let blocks = runs.last().map_or(0, Mapping::end);
            let spare = u64::from(self.files.fs().superblock().spare_directory_blocks());
            let stored = inode.size() / block_size;
            if !inode.size().is_multiple_of(block_size) || stored > blocks || blocks - stored > spare {
                inode.set_size(blocks * block_size);
            }
        } else {
            let last = runs.iter().filter(|run| !run.unwritten).map(Mapping::end).max();
            let has_tree = inode.has(InodeFlags::EXTENTS);
            let most = if has_tree { (block_size << 32) - 1 } else { largest_mapped(block_size) };
            if let Some(end) = last
                && inode.size() < (end - 1) * block_size
                && !inode.has(InodeFlags::VERITY)
            {
                inode.set_size(end * block_size);
            } else if inode.size() > most {
                inode.set_size(last.unwrap_or(0) * block_size);
            }
        }
        let end = inode.size().div_ceil(block_size);
        let has_tail = inode.has(InodeFlags::EXTENTS) && runs.last().is_some_and(|last| last.end() > end);
        if !inode.is_dir() && inode.has(InodeFlags::VERITY) && !has_tail {
            // The tree and its root hash, without which nobody reads the file, lay there.
            inode.set_flags(inode.flags().0 & !InodeFlags::VERITY.0);
        }
        if !is_sound {
            self.note(number, Alteration::Map);
        }
        if is_other {
            self.align(inode, &mut runs)?;
            self.make_map(inode, &runs)?;
        }
        if inode.is_dir() && runs.is_empty() {
            inode.set_size(0);
            self.files.inodes().map(inode).start();
            self.files.directory(inode).make_first_leaf(InodeNo::ROOT, Vec::new())?;
        }
        Ok(true)
    }

    /// Leaves out runs that lie in clusters other than they must.
    fn align(&mut self, inode: &Inode, runs: &mut Vec<Mapping>) -> Result<()> {
        let ratio = self.files.space().ratio();
        if ratio == 1 {
            return Ok(());
        }
        let mut aligned: Vec<Mapping> = Vec::new();
        for run in std::mem::take(runs) {
            let fits = run.logical % ratio == run.physical.get() % ratio;
            let shares = aligned.last().is_none_or(|last: &Mapping| {
                last.end().div_ceil(ratio) <= run.logical / ratio
                    || (last.physical + last.len).before().cluster(ratio) == run.physical.cluster(ratio)
            });
            if fits && shares {
                aligned.push(run);
                continue;
            }
            self.copy_aligned(inode.number(), run, &mut aligned)?;
        }
        *runs = aligned;
        Ok(())
    }

    /// Gives a file of the file system's own with an extent tree the flag of that, if nothing but that is missing. Whether it was.
    pub(super) fn flag_tree(&mut self, old: RawInode<'_>) -> Result<bool> {
        let is_whole = old.kind() == Some(FileType::Regular)
            && !old.has(InodeFlags::EXTENTS)
            && !old.has(InodeFlags::INLINE_DATA);
        let Ok(mut inode) = old.to_inode() else { return Ok(false) };
        if !is_whole || !self.has_tree(&inode) {
            return Ok(false);
        }
        inode.set_flags(inode.flags().0 | InodeFlags::EXTENTS.0);
        write_new(self.space(), &inode)?;
        Ok(true)
    }

    pub(super) fn has_tree(&self, inode: &Inode) -> bool {
        self.files.fs().superblock().incompat.has(Incompat::EXTENTS) && extent::is_root(inode.block_area())
    }

    /// Puts contents that lie in an inode, and can't go on in an attribute, into a block.
    fn contents_to_block(&mut self, inode: &mut Inode) -> Result<bool> {
        if inode.is_dir() {
            // Its names are read from the inode by the rule for directories.
            xattr::write_area(inode.xattr_area_mut(), &[]);
            inode.set_size(AREA);
            self.files.inodes().attributes(inode).set_inline(&[])?;
            return Ok(true);
        }
        let size = inode.size().min(AREA);
        let area = *inode.block_area();
        inode.set_flags(inode.flags().0 & !InodeFlags::INLINE_DATA.0);
        inode.set_size(size);
        self.files.inodes().map(inode).start();
        if size > 0 {
            let mut first = None;
            self.files.inodes().map(inode).fill(0, 1, false, |run| first = Some(run.physical))?;
            let mut bytes = vec![0; self.space().block_size()];
            bytes[..usize_of(size)].copy_from_slice(&area[..usize_of(size)]);
            if let Some(block) = first {
                self.files.inodes().transaction().write_data(block, &bytes)?;
            }
        }
        Ok(true)
    }

    /// Makes size and place of a symbolic link's target agree. False if there is none.
    fn renew_symlink(&mut self, inode: &mut Inode) -> Result<bool> {
        let number = inode.number();
        if inode.has(InodeFlags::INLINE_DATA) {
            match self.inline_rest(inode) {
                Some(rest) => {
                    inode.set_size(AREA + rest);
                    inode.set_flags(inode.flags().0 & !InodeFlags::EXTENTS.0);
                    return Ok(true);
                }
                None => inode.set_flags(inode.flags().0 & !InodeFlags::INLINE_DATA.0),
            }
        }
        let is_encrypted = inode.has(InodeFlags::ENCRYPT);
        let length = |bytes: &[u8]| match is_encrypted {
            true => u64::from(u16::from_le_bytes([bytes[0], bytes[1]])) + 2,
            false => u64_of(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())),
        };
        let bytes = inode.as_bytes().to_vec();
        let has_tree = self.has_tree(inode);
        let found = self.walk(RawInode { number, raw: &bytes })?;
        let is_text = !has_tree && {
            let len = length(inode.block_area());
            // Numbers of blocks have zeros among them.
            len > 0 && len < AREA && (len == inode.size() || !inode.has(InodeFlags::EXTENTS))
        };
        if is_text && ((1..AREA).contains(&inode.size()) || found.runs.is_empty()) {
            let len = length(inode.block_area());
            inode.set_flags(inode.flags().0 & !InodeFlags::EXTENTS.0);
            inode.set_size(len);
            return Ok(true);
        }
        let first = found.runs.first().filter(|run| run.logical == 0 && !run.unwritten);
        let Some(first) = first.copied() else { return Ok(false) };
        let target = self.files.fs().read_block(first.physical)?;
        let len = length(&target);
        if len < AREA || len >= u64_of(target.len()) {
            return Ok(false);
        }
        if has_tree {
            inode.set_flags(inode.flags().0 | InodeFlags::EXTENTS.0);
        }
        inode.set_size(len);
        if !found.is_sound || found.runs.len() > 1 || first.len > 1 {
            self.make_map(inode, &[Mapping { len: 1, ..first }])?;
        }
        Ok(true)
    }

    /// Empties an inode: nothing of what it was can be known.
    pub(super) fn clear_inode(&mut self, number: InodeNo) -> Result<bool> {
        let raw = vec![0; self.files.fs().layout().inode_len()];
        self.note(number, Alteration::Cleared);
        self.files.forget_directory(number);
        write_raw(self.space(), number, &raw)?;
        Ok(true)
    }

    /// Makes the attributes of an inode those that make sense.
    fn renew_attributes(&mut self, inode: &mut Inode) -> Result<()> {
        use FindingKind as K;
        let number = inode.number();
        if let Some(block) = inode.xattr_block() {
            let superblock = self.files.fs().superblock();
            let layout = self.files.fs().layout();
            let is_there = superblock.compat.has(Compat::EXT_ATTR)
                && block >= layout.group_start(GroupNo::PRIMARY)
                && layout.contains(block, 1);
            if !is_there {
                inode.set_xattr_block(None);
                self.note(number, Alteration::Attributes);
            }
        }
        let kinds = [K::Xattr, K::XattrHash, K::XattrInode];
        if !kinds.iter().any(|kind| self.unsound.has(number, *kind)) {
            return Ok(());
        }
        let (list, mut is_less) = match xattr::in_inode(inode.xattr_area()) {
            Some(base) => self.sound_attributes(base, 0)?,
            None => (Vec::new(), false),
        };
        let area = inode.xattr_area_mut();
        let room: usize = list.iter().map(Attribute::size).sum();
        match room <= xattr::room_in_inode(area) {
            true => xattr::write_area(area, &list),
            false => {
                is_less = true;
                xattr::write_area(area, &[]);
            }
        }
        if is_less {
            self.note(number, Alteration::Attributes);
        }
        Ok(())
    }

    /// The attributes that make sense among those from `at` on, and whether there are others.
    fn sound_attributes(&mut self, base: &[u8], at: usize) -> Result<(Vec<Attribute>, bool)> {
        let mut found = Vec::new();
        let end = xattr::raw_entries(base, at, |entry| found.push(entry));
        // Values lie behind the entries.
        let least = end.map_or(0, |end| end + 4);
        let all = found.len();
        let mut taken: Vec<(usize, usize)> = Vec::new();
        let mut list: Vec<Attribute> = Vec::new();
        for entry in found {
            if entry.index == 0 || list.iter().any(|old| old.index == entry.index && old.name == entry.name) {
                continue;
            }
            let value = match entry.value_inode {
                Some(number) => {
                    let Some(hash) = self.value_in(number, entry.value_size)? else { continue };
                    Value::Inode(number, entry.value_size, hash)
                }
                None => {
                    let size = usize_of(entry.value_size);
                    let stop = entry.value_offset.saturating_add(size.next_multiple_of(4));
                    let is_free = taken.iter().all(|(from, to)| stop <= *from || *to <= entry.value_offset);
                    let bytes = base.get(entry.value_offset..entry.value_offset.saturating_add(size));
                    match bytes {
                        _ if size == 0 => Value::Here(Vec::new()),
                        Some(bytes) if is_free && stop <= base.len() && entry.value_offset >= least => {
                            taken.push((entry.value_offset, stop));
                            Value::Here(bytes.to_vec())
                        }
                        _ => continue,
                    }
                }
            };
            list.push(Attribute { index: entry.index, name: entry.name.to_vec(), value });
        }
        let is_less = list.len() < all || end.is_none();
        Ok((list, is_less))
    }

    /// The hash of a value in an inode of its own, if the inode holds one of this size.
    fn value_in(&mut self, number: InodeNo, size: u32) -> Result<Option<u32>> {
        let superblock = self.files.fs().superblock();
        if superblock.is_reserved(number) || number.get() > self.files.fs().layout().inodes {
            return Ok(None);
        }
        let raw = read_raw(self.files.space(), number)?;
        let holder = RawInode { number, raw: &raw };
        let holds = holder.has(InodeFlags::EA_INODE)
            && holder.kind() == Some(FileType::Regular)
            && holder.links() > 0
            && holder.size() == u64::from(size);
        Ok(holds.then(|| holder.value().0))
    }

    /// Makes a block of attributes one of those that make sense; if it is none, its inodes lose it.
    fn renew_attribute_block(&mut self, finding: &Finding, block: Block) -> Result<bool> {
        if !self.files.fs().layout().contains(block, 1) {
            return Ok(false);
        }
        let bytes = self.files.fs().read_block(block)?;
        let (is_one, users, blocks) = xattr::block_header(&bytes);
        if !is_one || blocks != 1 {
            for number in self.inodes_with(block)? {
                let Ok(mut inode) = self.files.inodes().get_unlinked(number) else { continue };
                if inode.xattr_block() != Some(block) {
                    continue;
                }
                inode.set_xattr_block(None);
                write(self.space(), &inode)?;
                self.note(number, Alteration::Attributes);
            }
            return Ok(true);
        }
        let list = match finding.kind() {
            FindingKind::XattrReferences => None,
            _ => Some(self.sound_attributes(&bytes, xattr::IN_BLOCK)?),
        };
        let mut new = match list {
            Some((list, is_less)) => {
                let losers = if is_less { self.inodes_with(block)? } else { Vec::new() };
                losers.into_iter().for_each(|number| self.note(number, Alteration::Attributes));
                xattr::block_bytes(bytes.len(), list)
            }
            None => bytes,
        };
        let expected = match finding.problem() {
            Problem::Number { expected, .. } if finding.kind() == FindingKind::XattrReferences => {
                u32::try_from(*expected).unwrap_or(users)
            }
            _ => users,
        };
        xattr::set_users(&mut new, expected);
        let context = Context { block, ..Context::default() };
        self.files.inodes().transaction().create_structure(Subject::XattrBlock, context, block, new);
        Ok(true)
    }

    /// The inodes in use that have this block of attributes. All blocks with findings are looked for at once.
    fn inodes_with(&mut self, block: Block) -> Result<Vec<InodeNo>> {
        if self.unsound.users.is_none() {
            self.unsound.users = Some(self.users_of_attributes()?);
        }
        Ok(self.unsound.users.as_mut().and_then(|users| users.remove(&block)).unwrap_or_default())
    }

    fn users_of_attributes(&mut self) -> Result<BTreeMap<Block, Vec<InodeNo>>> {
        let fs = self.files.fs().clone();
        let layout = fs.layout();
        let bits64 = fs.superblock().incompat.has(Incompat::BITS64);
        let size = layout.inode_len();
        let mut found: BTreeMap<Block, Vec<InodeNo>> = BTreeMap::new();
        let mut bytes = vec![0; layout.block_len()];
        for group in layout.all_groups() {
            let table = self.files.space().inode_table(group)?;
            if !layout.contains(table, layout.inode_table_blocks()) {
                continue;
            }
            for at in 0..layout.inode_table_blocks() {
                fs.device().read_at(&mut bytes, layout.offset(table + at))?;
                for (raw, index) in bytes.chunks_exact(size).zip(0u32..) {
                    let index = u32_of(at) * (layout.block_size / layout.inode_size) + index;
                    let Some(number) = layout.inode_at(group, index) else { break };
                    let inode = RawInode { number, raw };
                    let block = inode.xattr_block(bits64).filter(|_| inode.links() > 0);
                    if let Some(block) = block.filter(|block| self.unsound.blocks.contains(block)) {
                        found.entry(block).or_default().push(number);
                    }
                }
            }
        }
        Ok(found)
    }

    /// Makes an inode that holds a value say so.
    fn renew_value(&mut self, finding: &Finding, number: InodeNo) -> Result<bool> {
        let mut inode = self.files.inodes().get_unlinked(number)?;
        let (hash, users) = (inode.value_hash(), inode.value_users());
        match (finding.kind(), finding.problem()) {
            (FindingKind::Checksum, Problem::Checksum { expected, .. }) => inode.set_value(*expected, users),
            (FindingKind::XattrInode, Problem::Number { expected, .. }) => inode.set_value(hash, *expected),
            (FindingKind::XattrInode, _) => {
                inode.set_flags(inode.flags().0 & !InodeFlags::EA_INODE.0);
            }
            _ => return Ok(false),
        }
        write(self.space(), &inode)?;
        Ok(true)
    }
}

/// Bytes of a file that old maps have room for.
fn largest_mapped(block_size: u64) -> u64 {
    let numbers = block_size / 4;
    (12 + numbers + numbers * numbers + numbers * numbers * numbers) * block_size
}
