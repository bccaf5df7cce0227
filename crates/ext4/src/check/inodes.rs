//! The first pass: every inode of every table by itself, and the blocks that it leads to.

use std::sync::atomic::Ordering;

use casemate_blockdev::{BlockDevice, u32_of, u64_of, usize_of};
use casemate_providers::Work;

use crate::check::blocks::Walked;
use crate::check::facts::Fact;
use crate::check::findings::{Doubts, FindingKind};
use crate::check::places::Group;
use crate::check::worker::{Check, Directory, Named, Purpose, Worker};
use crate::check::xattrs::Attributes;
use crate::error::{Corrupt, Place, Result, Structure};
use crate::format::block_map;
use crate::format::csum::Subject;
use crate::format::dir::byte_of;
use crate::format::extent;
use crate::format::features::{Compat, Incompat};
use crate::format::inode::{FileType, InodeFlags};
use crate::format::raw_inode::RawInode;
use crate::units::{GroupNo, InodeNo, Run};

/// Bytes of inode tables that are a piece of work.
const PIECE_BYTES: u32 = 1 << 18;

/// Inodes of quotas and the journal, which are empty where there are none.
const SPARE: [InodeNo; 3] = [InodeNo::USER_QUOTA, InodeNo::GROUP_QUOTA, InodeNo::JOURNAL];

/// A file from here on needs the feature `large_file`.
const LARGE: u64 = 1 << 31;

/// Goes through all inodes. The listener hears of bytes of inode tables.
pub(crate) fn tables(
    check: &Check<'_>,
    groups: &[Group],
    work: &Work<'_>,
    purpose: Purpose,
    sought: &[Run],
) -> Result<()> {
    let layout = check.fs.layout();
    let per_piece = PIECE_BYTES / layout.inode_size;
    let pieces: Vec<(GroupNo, u32)> = layout
        .all_groups()
        .zip(groups)
        .filter(|(_, group)| group.table.is_some())
        .flat_map(|(number, group)| {
            (0..group.used).step_by(usize_of(per_piece)).map(move |first| (number, first))
        })
        .collect();
    let worker = || {
        let mut worker = Worker::new(check, groups, purpose);
        worker.sought = sought;
        worker
    };
    let (workers, result) = work.pool.gather(u64_of(pieces.len()), worker, |worker, piece| {
        let (group, first) = pieces[usize_of(piece)];
        let bytes = worker.piece(group, first, per_piece)?;
        if purpose == Purpose::Check { work.events.advance(bytes) } else { Ok(()) }
    });
    // Also after an error, which may be the end of a truncated image.
    workers.into_iter().for_each(Worker::finish);
    result
}

/// Role of an inode in the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Usual,
    Root,
    BadBlocks,
    Resize,
    Named(Named),
    Reserved,
}

impl Worker<'_, '_> {
    fn piece(&mut self, group_number: GroupNo, first: u32, per_piece: u32) -> Result<u64> {
        let check = self.check;
        let layout = check.fs.layout();
        let group = &self.groups[group_number.index()];
        let Some(start) = group.table else { return Ok(0) };
        let size = layout.inode_len();
        let count = (group.used - first).min(per_piece);
        let offset = layout.offset(start) + u64::from(first) * u64::from(layout.inode_size);
        let mut table = std::mem::take(&mut self.table);
        table.resize(usize_of(count) * size);
        check.fs.device().read_at(&mut table, offset)?;
        for (index, raw) in (first..).zip(table.chunks_exact(size)) {
            let Some(number) = layout.inode_at(group_number, index) else { break };
            if !check.fs.superblock().is_reserved(number) && is_zero(raw) {
                continue;
            }
            self.inode(RawInode { number, raw }, offset + u64::from(index - first) * u64_of(size))?;
        }
        self.table = table;
        Ok(u64::from(count) * u64_of(size))
    }

    fn role(&self, number: InodeNo) -> Role {
        let check = self.check;
        if let Some(named) = check.named.get(&number) {
            return Role::Named(*named);
        }
        match number {
            _ if !check.fs.superblock().is_reserved(number) => Role::Usual,
            InodeNo::ROOT => Role::Root,
            InodeNo::BAD_BLOCKS => Role::BadBlocks,
            InodeNo::RESIZE => Role::Resize,
            _ => Role::Reserved,
        }
    }

    fn inode(&mut self, inode: RawInode<'_>, offset: u64) -> Result<()> {
        let place = Place::inode(Structure::Inode, inode.number);
        if !is_zero(inode.raw) {
            self.verify(place, offset, inode.raw, Subject::Inode, inode.context());
        }
        if self.check.lost_orphans.contains(&inode.deleted()) && !self.check.orphans.contains(&inode.number) {
            self.say(FindingKind::LostOrphan, place, "was in a list of orphans, and is in none");
        }
        match self.role(inode.number) {
            role @ (Role::Usual | Role::Root) => self.file(inode, role, place),
            role => self.internal(inode, role, place),
        }
    }

    /// An inode that belongs to the file system itself.
    fn internal(&mut self, inode: RawInode<'_>, role: Role, place: Place) -> Result<()> {
        let (mode, mut kind) = (inode.mode(), inode.kind());
        let check_has = self.check.has;
        if self.purpose == Purpose::Check {
            let fact = Fact::new(kind.map_or(0, byte_of), Fact::USED | Fact::INTERNAL, inode.links());
            self.check.facts.set(inode.number, fact);
        }
        let is_spare = role == Role::Reserved && SPARE.contains(&inode.number);
        let index = if is_spare || role == Role::BadBlocks { 0 } else { InodeFlags::INDEX.0 };
        let of_directories = index | InodeFlags::CASEFOLD.0;
        if inode.flags().0 & of_directories != 0 && kind != Some(FileType::Directory) {
            self.say(FindingKind::InodeFlag, place, "has flags of directories, and is none");
        }
        let (in_inode, has_tree) = (inode.has(InodeFlags::INLINE_DATA), inode.has(InodeFlags::EXTENTS));
        if check_has.extents && in_inode && has_tree {
            self.say(FindingKind::InodeFlag, place, "has inline data and extents at once");
        } else if !check_has.extents && has_tree && inode.links() > 0 {
            self.say(FindingKind::InodeFlag, place, "has extents without the feature");
        }
        let has_contents = matches!(role, Role::Named(Named::Quota(_) | Named::Orphans))
            || role == Role::Reserved && inode.number == InodeNo::BOOT_LOADER;
        let is_file = kind == Some(FileType::Regular);
        if has_contents && is_file && !in_inode && !has_tree && self.has_tree(inode) {
            self.say(FindingKind::InodeFlag, place, "has an extent tree and not its flag");
        }
        let wrong = |text: String| self.say(FindingKind::ReservedInode, place, text);
        match role {
            _ if is_spare => {
                if inode.links() != 0 || inode.blocks(false) != 0 || inode.block_area()[..4] != [0; 4] {
                    wrong("belongs to no file, and is not empty".to_owned());
                }
                return Ok(());
            }
            Role::Named(_) if kind != Some(FileType::Regular) => {
                wrong(format!("mode {mode:#o} is not that of a file"));
            }
            // Kernels open no inode without a link but a reserved one.
            Role::Named(Named::Orphans) if inode.links() == 0 => {
                wrong("is the file of orphans, and has no link".to_owned());
            }
            Role::BadBlocks => {
                // Of what has two halves, the upper ones are nobody's business.
                let has_more = mode != 0 || inode.links() != 0 || inode.xattr_block(false).is_some();
                let has_owner = inode.owners()[..2].iter().any(|id| id & 0xffff != 0);
                if has_more || has_owner || in_inode {
                    self.say(FindingKind::BadBlocks, place, "has more than a list of blocks");
                }
                // It has a map, and no mode. A tree that was never begun is empty.
                let is_empty = has_tree && check_has.extents && is_zero_area(inode.block_area());
                kind = Some(FileType::Regular).filter(|_| !is_empty);
            }
            Role::Resize if mode != 0 && kind != Some(FileType::Regular) => {
                wrong(format!("is reserved, and has mode {mode:#o}"));
            }
            Role::Reserved
                if mode != 0
                    && (inode.number != InodeNo::BOOT_LOADER || kind == Some(FileType::Directory)) =>
            {
                wrong(format!("is reserved, and has mode {mode:#o}"));
            }
            _ => {}
        }
        let attributes = self.attributes(inode, place)?;
        let mut walked = Walked::none();
        if in_inode && (mode != 0 || role == Role::BadBlocks) {
            self.say(
                FindingKind::InodeFlag,
                place,
                "belongs to the file system, and has its contents in the inode",
            );
        } else if let Some(kind @ (FileType::Regular | FileType::Directory)) = kind {
            self.map(inode, kind, &mut walked)?;
        } else if matches!(role, Role::Named(_)) && self.has_map(inode) {
            self.map(inode, FileType::Regular, &mut walked)?;
        }
        // Nobody counts bad blocks.
        if role == Role::BadBlocks {
            return Ok(());
        }
        self.sizes(inode, FileType::Regular, &attributes, &walked, place)
    }

    /// The root, or an inode that belongs to a name.
    fn file(&mut self, inode: RawInode<'_>, role: Role, place: Place) -> Result<()> {
        let check = self.check;
        let kind = inode.kind();
        let is_orphan = !check.orphans.is_empty() && check.orphans.contains(&inode.number);
        if role == Role::Root {
            if kind != Some(FileType::Directory) {
                self.say(
                    FindingKind::RootInode,
                    place,
                    format!("mode {:#o} is not that of a directory", inode.mode()),
                );
            }
            if inode.deleted() != 0 {
                self.say(FindingKind::RootInode, place, "the root has a time of deletion");
            }
        } else if inode.links() == 0 && !is_orphan {
            if inode.deleted() == 0 && inode.mode() != 0 {
                self.say(FindingKind::DeletionTime, place, "is deleted, and has no time of deletion");
                // Until it is known to be: its blocks may be its own.
                check.findings.doubt(Doubts::BLOCKS | Doubts::INODES);
            }
            return Ok(());
        } else if inode.deleted() != 0 && !is_orphan {
            self.say(FindingKind::DeletionTime, place, "is in use, and has a time of deletion");
        }
        let flags = inode.flags();
        if self.purpose == Purpose::Check {
            let mut facts = Fact::USED;
            let marks = [
                (InodeFlags::ENCRYPT, Fact::ENCRYPTED),
                (InodeFlags::INDEX, Fact::INDEXED),
                (InodeFlags::VERITY, Fact::VERITY),
            ];
            for (flag, fact) in marks {
                facts |= if flags.has(flag) { fact } else { 0 };
            }
            // Other kinds hold no values, whatever their flags say.
            let is_value = flags.has(InodeFlags::EA_INODE) && kind == Some(FileType::Regular);
            facts |= if is_value { Fact::VALUE } else { 0 };
            facts |= if is_orphan && inode.links() == 0 { Fact::ORPHAN } else { 0 };
            check.facts.set(inode.number, Fact::new(kind.map_or(0, byte_of), facts, inode.links()));
        }
        self.fields(inode, kind, place);
        let attributes = self.attributes(inode, place)?;
        let mut walked = Walked::none();
        let Some(kind) = kind else {
            let text = format!("mode {:#o} is that of no kind of file", inode.mode());
            self.say(FindingKind::InodeMode, place, text);
            // Of what is in it nothing is known; its blocks are its own.
            let has_map = self.has_map(inode);
            if has_map {
                self.map(inode, FileType::Regular, &mut walked)?;
            }
            let kind = if has_map { FileType::Regular } else { FileType::Fifo };
            return self.sizes(inode, kind, &attributes, &walked, place);
        };
        self.flags(inode, kind, place);
        // Where both are said at once, there are blocks that may be its own.
        let has_both = flags.has(InodeFlags::EXTENTS) || !check.has.inline_data;
        let in_inode = flags.has(InodeFlags::INLINE_DATA) && !(has_both && self.has_map(inode));
        match kind {
            FileType::Regular | FileType::Directory if in_inode => {
                self.inline(inode, kind, &attributes, place);
            }
            FileType::Regular | FileType::Directory => self.map(inode, kind, &mut walked)?,
            FileType::Symlink => self.symlink(inode, &attributes, &mut walked, place)?,
            // Whatever made a file a special one may have left its blocks.
            _ if inode.blocks(check.has.huge_file) > 0 && self.has_tree(inode) => {
                self.map(inode, FileType::Regular, &mut walked)?;
            }
            _ => {}
        }
        if kind == FileType::Regular && inode.size() >= LARGE {
            check.has_large_file.store(true, Ordering::Relaxed);
        }
        self.sizes(inode, kind, &attributes, &walked, place)?;
        if self.purpose != Purpose::Check {
            return Ok(());
        }
        if flags.has(InodeFlags::EA_INODE) && kind == FileType::Regular {
            self.value(inode, &walked)?;
        }
        if flags.has(InodeFlags::ENCRYPT) {
            self.policy(inode, &attributes, place);
        }
        if check.has.quota && !flags.has(InodeFlags::EA_INODE) {
            self.charge(inode, &attributes, &walked);
        }
        if kind == FileType::Directory {
            self.lists.directories.push(Directory {
                number: inode.number,
                generation: inode.generation(),
                flags: flags.0,
                blocks: u32_of(walked.blocks()),
                first: walked.first.filter(|_| walked.in_one_run),
            });
        }
        Ok(())
    }

    /// Whether an inode has an extent tree, whatever its mode and flags say.
    fn has_tree(&self, inode: RawInode<'_>) -> bool {
        self.check.has.extents && extent::is_root(inode.block_area())
    }

    /// Whether an inode has something like a map, whatever its mode says: an extent tree, or numbers of blocks that there are.
    /// Devices and targets of links have numbers, too.
    fn has_map(&self, inode: RawInode<'_>) -> bool {
        let (has, layout) = (self.check.has, self.check.fs.layout());
        if self.has_tree(inode) {
            return true;
        }
        let has_numbers = !inode.has(InodeFlags::EXTENTS) && inode.blocks(has.huge_file) > 0;
        let blocks = u64::from(layout.first_data_block).max(1)..layout.blocks;
        has_numbers
            && block_map::numbers(inode.block_area())
                .all(|number| number == 0 || blocks.contains(&u64::from(number)))
    }

    /// Fields that have room for one thing, or must be zero.
    fn fields(&mut self, inode: RawInode<'_>, kind: Option<FileType>, place: Place) {
        let has = self.check.has;
        let wrong_if = |is: bool, what: &str| {
            if is {
                self.say(FindingKind::InodeField, place, format!("has {what}"));
            }
        };
        wrong_if(inode.has_fragment(has.hurd), "something of fragments");
        wrong_if(!has.huge_file && !has.hurd && inode.blocks_high() != 0, "a count of blocks above 32 bits");
        wrong_if(
            !has.bits64 && !has.hurd && inode.xattr_block_high() != 0,
            "a block of attributes above 32 bits",
        );
        let is_dir = kind == Some(FileType::Directory);
        wrong_if(is_dir && !has.large_dir && inode.size() >> 32 != 0, "a size above 32 bits");
        let size = usize::from(inode.extra_size());
        let room = inode.raw.len() - crate::format::inode::OLD_INODE_SIZE;
        if size != 0 && (size < 4 || size > room || size % 4 != 0) {
            self.number(FindingKind::ExtraSize, place, "bytes of extra fields", u64_of(size), 32);
        }
    }

    /// Flags that go with the kind of file and the features.
    fn flags(&mut self, inode: RawInode<'_>, kind: FileType, place: Place) {
        let (has, flags) = (self.check.has, inode.flags());
        let is_file = matches!(kind, FileType::Regular | FileType::Directory);
        let superblock = self.check.fs.superblock();
        let in_inode = flags.has(InodeFlags::INLINE_DATA);
        let wrong_if = |is: bool, what: &str| {
            if is {
                self.say(FindingKind::InodeFlag, place, format!("has {what}"));
            }
        };
        let (has_tree, has_index) = (flags.has(InodeFlags::EXTENTS), flags.has(InodeFlags::INDEX));
        wrong_if(in_inode && has_tree, "inline data and extents at once");
        wrong_if(in_inode && !has.inline_data, "inline data without the feature");
        wrong_if(has_tree && !has.extents, "extents without the feature");
        wrong_if(
            flags.has(InodeFlags::IMAGIC) && !superblock.compat.has(Compat::IMAGIC_INODES),
            "the flag imagic without the feature",
        );
        wrong_if(has_index && kind != FileType::Directory, "a hash tree and is not a directory");
        wrong_if(has_index && kind == FileType::Directory && !has.index, "a hash tree without the feature");
        wrong_if(
            flags.has(InodeFlags::CASEFOLD)
                && (kind != FileType::Directory || !superblock.incompat.has(Incompat::CASEFOLD)),
            "the flag casefold and is not a directory, or the feature is missing",
        );
        wrong_if(
            has.extents
                && (is_file || kind == FileType::Symlink && !is_fast(inode))
                && !in_inode
                && !has_tree
                && extent::is_root(inode.block_area()),
            "an extent tree and not its flag",
        );
        if is_file || kind == FileType::Symlink {
            if kind == FileType::Symlink && flags.has(InodeFlags::EXTENTS) && is_fast(inode) {
                self.say(FindingKind::InodeFlag, place, "is a symbolic link in its inode, and has extents");
            }
            return;
        }
        let what = kind.name();
        if flags.0 & (InodeFlags::EXTENTS.0 | InodeFlags::INLINE_DATA.0) != 0 {
            self.say(FindingKind::SpecialFile, place, format!("is a {what}, and has extents or inline data"));
        }
        if inode.size() != 0 {
            self.say(FindingKind::SpecialFile, place, format!("is a {what}, and has {} bytes", inode.size()));
        }
        let locked = InodeFlags::IMMUTABLE.0 | InodeFlags::APPEND.0;
        if flags.0 & locked != 0 && inode.block_area()[16..] != [0; 44] {
            self.say(
                FindingKind::SpecialFile,
                place,
                format!("is a {what} that can't be changed, and has blocks"),
            );
        }
    }

    /// Size and count of blocks, against what was found.
    fn sizes(
        &mut self,
        inode: RawInode<'_>,
        kind: FileType,
        attributes: &Attributes,
        walked: &Walked,
        place: Place,
    ) -> Result<()> {
        if self.purpose != Purpose::Check {
            return Ok(());
        }
        let (check, flags) = (self.check, inode.flags());
        let (has, layout) = (check.has, check.fs.layout());
        let block_size = u64::from(layout.block_size);
        let in_inode = flags.has(InodeFlags::INLINE_DATA);
        let is_dir = kind == FileType::Directory;
        let wrong = |text: String| self.say(FindingKind::InodeSize, place, text);
        let size = if is_dir && !has.large_dir { inode.size() & 0xffff_ffff } else { inode.size() };
        if is_dir && !in_inode {
            let (stored, found) = (size / block_size, walked.blocks());
            if !walked.is_sound {
            } else if found == 0 {
                self.say(FindingKind::DirectorySize, place, "is a directory without blocks");
            } else if size % block_size != 0 {
                let expected = found.saturating_mul(block_size);
                self.number(FindingKind::DirectorySize, place, "bytes of the directory", size, expected);
            } else if stored > found
                || found - stored > u64::from(check.fs.superblock().spare_directory_blocks())
            {
                self.number(FindingKind::DirectorySize, place, "blocks of the directory", stored, found);
            }
        } else if !in_inode && kind != FileType::Symlink {
            let has_extents = has.extents && flags.has(InodeFlags::EXTENTS);
            let most = match has_extents {
                true => (block_size << 32) - 1,
                false => largest_mapped(block_size),
            };
            if let Some(last) = walked.last_written
                && size < last.saturating_mul(block_size)
                && !flags.has(InodeFlags::VERITY)
                && !check.orphans.contains(&inode.number)
            {
                wrong(format!("{size} bytes, and there is block {last}"));
            } else if size > most {
                wrong(format!("{size} bytes are more than its map has room for"));
            }
        }
        // What could not be followed has blocks, too.
        if !walked.is_sound {
            return Ok(());
        }
        let is_huge = has.huge_file && flags.has(InodeFlags::HUGE_FILE);
        let unit = if is_huge { 1 } else { block_size / 512 };
        // What attributes have in inodes of their own is counted where it belongs.
        let clusters = walked.count + u64::from(attributes.has_block) + attributes.values.0;
        let counted = clusters.saturating_mul(unit * u64::from(layout.cluster_blocks));
        let stored = inode.blocks(has.huge_file);
        // Copies of the blocks reserved for descriptors lie in no place of a cluster, and are counted in no known way.
        let is_countable =
            inode.number != InodeNo::RESIZE || layout.cluster_blocks == 1 || layout.groups == 1;
        if stored != counted && is_countable && !has.hurd {
            self.number(FindingKind::InodeBlocks, place, "blocks in use", stored, counted);
        }
        let is_mapped =
            matches!(kind, FileType::Regular | FileType::Directory) && !in_inode && walked.count > 0;
        let is_own = check.fs.superblock().is_internal(inode.number);
        if layout.cluster_blocks > 1 && is_mapped && !flags.has(InodeFlags::EXTENTS) && !is_own {
            self.say(FindingKind::InodeFlag, place, "has a block map, which bigalloc does not allow");
        }
        Ok(())
    }

    /// Contents that lie in the inode.
    fn inline(&mut self, inode: RawInode<'_>, kind: FileType, attributes: &Attributes, place: Place) {
        let size = inode.size();
        let Some(rest) = attributes.inline_data else {
            self.say(FindingKind::InlineData, place, "has inline data, and no attribute for the rest of it");
            return;
        };
        let room = 60 + u64::from(rest);
        let fits = match kind {
            FileType::Regular => size <= room,
            _ => size == room,
        };
        if !fits {
            self.number(FindingKind::InlineData, place, "bytes of inline data", size, room);
        }
        if kind == FileType::Directory && !size.is_multiple_of(4) {
            self.say(FindingKind::InlineData, place, format!("a directory of {size} bytes in the inode"));
        }
    }

    /// The target of a symbolic link.
    fn symlink(
        &mut self,
        inode: RawInode<'_>,
        attributes: &Attributes,
        walked: &mut Walked,
        place: Place,
    ) -> Result<()> {
        let (size, flags) = (inode.size(), inode.flags());
        if size == 0 || size >> 32 != 0 {
            self.say(FindingKind::Symlink, place, format!("a target of {size} bytes"));
        }
        if flags.has(InodeFlags::INLINE_DATA) {
            if attributes.inline_data.is_none_or(|rest| size != 60 + u64::from(rest)) {
                self.say(FindingKind::Symlink, place, format!("{size} bytes of target are not in the inode"));
            }
            return Ok(());
        }
        if is_fast(inode) {
            self.target(inode, inode.block_area(), place);
            // No target that is one looks like this.
            return if self.has_tree(inode) { self.map(inode, FileType::Regular, walked) } else { Ok(()) };
        }
        self.map(inode, FileType::Symlink, walked)?;
        if self.purpose != Purpose::Check || !walked.is_sound || size == 0 || size >> 32 != 0 {
            return Ok(());
        }
        let fs = self.check.fs;
        let most = u64::from(fs.layout().block_size);
        match walked.first {
            Some(block) if walked.blocks() == 1 && !fs.is_present(block, 1) => {}
            Some(block) if walked.blocks() == 1 && size <= most => {
                let bytes = fs.read_block(block)?;
                self.target(inode, &bytes, place);
            }
            _ => {
                let text = format!("{size} bytes of target in {} blocks", walked.blocks());
                self.say(FindingKind::Symlink, place, text);
            }
        }
        Ok(())
    }

    fn target(&self, inode: RawInode<'_>, bytes: &[u8], place: Place) {
        let len = match inode.has(InodeFlags::ENCRYPT) {
            // OK to index: at least 60 bytes.
            true => usize::from(u16::from_le_bytes([bytes[0], bytes[1]])) + 2,
            false => bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()),
        };
        if u64_of(len) != inode.size() {
            self.number(FindingKind::Symlink, place, "bytes of the target", inode.size(), u64_of(len));
        } else if inode.has(InodeFlags::ENCRYPT)
            && self.purpose == Purpose::Check
            && let Some(stored) = bytes.get(..len)
        {
            self.encrypted_target(inode, stored, place);
        }
    }

    /// The target of an encrypted symbolic link, if its key is there: as whoever encrypts it would store it.
    fn encrypted_target(&self, inode: RawInode<'_>, stored: &[u8], place: Place) {
        let Ok(owned) = inode.to_inode() else { return };
        let Some((encrypted, encryption)) = self.check.fs.unlocked(&owned) else { return };
        let place = Place { structure: Structure::Symlink, ..place };
        let text = match encryption.symlink(&encrypted, stored) {
            Ok(target) => match encryption.store_symlink(&encrypted, &target) {
                Ok(again) if again == stored => return,
                _ => "is not padded as its policy says, with the key that was given".to_owned(),
            },
            Err(error) => match Corrupt::of(&error) {
                Some(corrupt) => corrupt.problem().to_string(),
                None => return,
            },
        };
        self.say(FindingKind::EncryptedLink, place, text);
    }

    /// Counts for the quotas of an inode's owners.
    fn charge(&mut self, inode: RawInode<'_>, attributes: &Attributes, walked: &Walked) {
        let layout = self.check.fs.layout();
        let cluster = u64::from(layout.block_size) * u64::from(layout.cluster_blocks);
        let clusters = walked.count + u64::from(attributes.has_block) + attributes.values.0;
        for (usage, id) in self.lists.usage.iter_mut().zip(inode.owners()) {
            let sum = usage.entry(id).or_default();
            sum.0 = sum.0.saturating_add(clusters.saturating_mul(cluster));
            sum.1 = sum.1.saturating_add(1 + attributes.values.1);
        }
        self.settle_usage();
    }
}

/// Whether a symbolic link's target lies in the place of its map.
fn is_fast(inode: RawInode<'_>) -> bool {
    (1..60).contains(&inode.size()) && !inode.has(InodeFlags::INLINE_DATA)
}

/// Bytes of a file that old maps have room for.
fn largest_mapped(block_size: u64) -> u64 {
    let numbers = block_size / 4;
    (12 + numbers + numbers * numbers + numbers * numbers * numbers) * block_size
}

fn is_zero_area(area: &[u8; 60]) -> bool {
    *area == [0; 60]
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks_exact(16).all(|chunk| chunk == [0; 16])
}
