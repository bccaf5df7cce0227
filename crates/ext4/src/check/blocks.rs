//! The blocks that an inode's map leads to, extent tree or block map, followed past every damage.

use casemate_blockdev::u64_of;

use crate::check::findings::{Doubts, FindingKind};
use crate::check::worker::{Purpose, Worker};
use crate::error::{Corrupt, Error, Place, Result, Structure};
use crate::format::block_map::{self, DOUBLE, SLOTS};
use crate::format::csum::Subject;
use crate::format::extent::{self, ExtentNode};
use crate::format::inode::{FileType, InodeFlags};
use crate::format::raw_inode::RawInode;
use crate::read::mapping::Mapping;
use crate::units::{Block, GroupNo, InodeNo};

/// Blocks that a file can have.
const MOST_BLOCKS: u64 = 1 << 32;

/// Facts that were found on the walk through a map.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walked {
    /// Blocks of the file and of its map; clusters with bigalloc.
    pub count: u64,
    /// The last block of the file, and the last one that was ever written.
    pub last: Option<u64>,
    pub last_written: Option<u64>,
    /// Where block 0 lies, and whether all others follow it.
    pub first: Option<Block>,
    pub in_one_run: bool,
    /// Whether everything could be followed.
    pub is_sound: bool,
    /// The block before, on the disk and in the file: neighbours may share a cluster.
    previous: Option<(Block, u64)>,
}

impl Walked {
    /// The facts of an inode without a map.
    pub fn none() -> Walked {
        Walked { is_sound: true, in_one_run: true, ..Walked::default() }
    }

    /// Blocks of the file up to its last, holes among them.
    pub fn blocks(&self) -> u64 {
        self.last.map_or(0, |last| last + 1)
    }
}

/// A file, as its blocks are walked.
#[derive(Clone, Copy)]
struct File<'a> {
    inode: RawInode<'a>,
    kind: FileType,
    /// Runs are collected.
    collect: bool,
    /// Blocks up to the size.
    size: u64,
}

impl Worker<'_, '_> {
    /// Follows an inode's map. Runs of blocks are collected where they are needed later.
    pub fn map(&mut self, inode: RawInode<'_>, kind: FileType, walked: &mut Walked) -> Result<()> {
        *walked = Walked::none();
        let collect = self.purpose == Purpose::Collect;
        self.runs.clear();
        self.bad_clusters.clear();
        let size = inode.size().div_ceil(self.check.fs.layout().block_size.into());
        let file = File { inode, kind, collect, size };
        let has_tree = self.check.has.extents && extent::is_root(inode.block_area());
        match inode.has(InodeFlags::EXTENTS) || has_tree {
            true => self.extents(file, walked)?,
            false => self.pointers(file, walked)?,
        }
        if !walked.is_sound && self.purpose == Purpose::Check {
            let names =
                if kind == FileType::Directory { Doubts::NAMES | Doubts::LINKS } else { Doubts::NONE };
            self.check.findings.doubt(Doubts::BLOCKS | names);
        }
        Ok(())
    }

    fn extents(&mut self, file: File<'_>, walked: &mut Walked) -> Result<()> {
        let place = Place::inode(Structure::Inode, file.inode.number);
        match ExtentNode::from_bytes(file.inode.block_area(), place) {
            Ok(root) => {
                self.room(root, file.inode.block_area(), place);
                self.extent_node(file, root, place, (0, MOST_BLOCKS), walked)
            }
            Err(error) => {
                self.broken(FindingKind::ExtentNode, &error, walked);
                Ok(())
            }
        }
    }

    /// Checks how many extents a node says that it has room for: of what there is, at most two may be kept for something else.
    fn room(&self, node: ExtentNode<'_>, bytes: &[u8], place: Place) {
        let room = extent::capacity(bytes.len());
        if node.max() + 2 < room {
            self.number(FindingKind::ExtentNode, place, "room for extents", u64_of(node.max()), u64_of(room));
        }
    }

    /// Notes that a part of a map can't be followed.
    fn broken(&self, kind: FindingKind, error: &Error, walked: &mut Walked) {
        walked.is_sound = false;
        if let Some(corrupt) = Corrupt::of(error) {
            self.say(kind, corrupt.place(), corrupt.problem().to_string());
        }
    }

    /// Follows a node that stands for the file's blocks `start .. end`.
    fn extent_node(
        &mut self,
        file: File<'_>,
        node: ExtentNode<'_>,
        place: Place,
        (mut start, end): (u64, u64),
        walked: &mut Walked,
    ) -> Result<()> {
        let layout = self.check.fs.layout();
        let (first, blocks) = (layout.group_start(GroupNo::PRIMARY).max(Block::new(1)), layout.end());
        let is_inside = |block: Block, len: u64| {
            block >= first && block.checked_add(len).is_some_and(|end| end <= blocks)
        };
        if node.depth() == 0 {
            let most = self.most_directory_blocks(file.kind);
            for extent in node.extents() {
                let (logical, len) = (u64::from(extent.logical), u64::from(extent.len));
                let outside = len == 0 || !is_inside(extent.physical, len);
                if outside {
                    let text = format!("{len} blocks at {} for block {logical} of the file", extent.physical);
                    self.say(FindingKind::ExtentRange, place, text);
                    walked.is_sound = false;
                    continue;
                }
                let is_behind = extent.unwritten && logical + len > file.size;
                if logical < start || logical + len > end && !is_behind || logical + len > MOST_BLOCKS {
                    self.say(
                        FindingKind::ExtentOrder,
                        place,
                        format!("the extent of block {logical} is out of order"),
                    );
                    // Which part of the file it is, or whether it is one, nobody knows.
                    walked.is_sound = false;
                    continue;
                }
                if file.kind == FileType::Directory {
                    if extent.unwritten {
                        let text = format!("block {logical} of the directory was never written");
                        self.say(FindingKind::ExtentRange, place, text);
                    } else if logical + len > most {
                        self.too_many_blocks(place, walked);
                        continue;
                    }
                }
                start = logical + len;
                self.run(file, logical, extent.physical, len, extent.unwritten, walked);
            }
            return Ok(());
        }
        let mut entries = node.indexes().peekable();
        while let Some(entry) = entries.next() {
            let logical = u64::from(entry.logical);
            let next = entries.peek().map_or(end, |next| u64::from(next.logical));
            if logical < start || next <= logical || next > end.max(start) {
                self.say(FindingKind::ExtentOrder, place, format!("extent index {logical} is out of order"));
                walked.is_sound = false;
            }
            if !is_inside(entry.block, 1) {
                let text = format!("the node of block {logical} of the file lies at block {}", entry.block);
                self.say(FindingKind::ExtentRange, place, text);
                walked.is_sound = false;
                continue;
            }
            start = next.max(start);
            self.extent_block(file, entry.block, node.depth() - 1, (logical, next), place, walked)?;
        }
        Ok(())
    }

    fn extent_block(
        &mut self,
        file: File<'_>,
        block: Block,
        depth: u16,
        (start, end): (u64, u64),
        parent: Place,
        walked: &mut Walked,
    ) -> Result<()> {
        if !self.check.may_read(1) {
            walked.is_sound = false;
            return Ok(());
        }
        self.map_block(file, block, walked);
        if !self.check.fs.is_present(block, 1) {
            walked.is_sound = false;
            return Ok(());
        }
        let place = Place::inode(Structure::ExtentBlock, file.inode.number).at(block);
        let bytes = self.check.fs.read_block(block)?;
        let node = match ExtentNode::from_bytes(&bytes, place) {
            Ok(node) => node,
            Err(error) => {
                self.broken(FindingKind::ExtentNode, &error, walked);
                return Ok(());
            }
        };
        let offset = self.check.fs.layout().offset(block);
        self.verify(place, offset, &bytes, Subject::ExtentBlock, file.inode.context());
        self.room(node, &bytes, place);
        if node.depth() != depth {
            let text = format!("is on level {}, not {depth}", node.depth());
            self.say(FindingKind::ExtentNode, place, text);
            walked.is_sound = false;
            return Ok(());
        }
        if node.len() == 0 {
            self.say(FindingKind::ExtentNode, place, "has no extents");
            return Ok(());
        }
        if u64::from(node.logical(0)) != start {
            self.number(
                FindingKind::ExtentIndex,
                parent,
                "first block below an index",
                start,
                node.logical(0).into(),
            );
        }
        self.extent_node(file, node, place, (start, end), walked)
    }

    /// The twelve numbers and three trees of a block map.
    fn pointers(&mut self, file: File<'_>, walked: &mut Walked) -> Result<()> {
        let place = Place::inode(Structure::Inode, file.inode.number);
        let area = file.inode.block_area();
        let mut logical = 0;
        let mut wrong = 0;
        for slot in 0..SLOTS {
            let number = block_map::number(slot).get(area);
            let level = block_map::level(slot);
            self.pointer(file, number, level, place, &mut logical, &mut wrong, walked)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the state of a walk over numbers")]
    fn pointer(
        &mut self,
        file: File<'_>,
        block: u32,
        level: u32,
        place: Place,
        logical: &mut u64,
        wrong: &mut u32,
        walked: &mut Walked,
    ) -> Result<()> {
        /// Numbers of a map that are told of; a block that is none has nothing but wrong ones.
        const MOST_WRONG: u32 = 12;
        let layout = self.check.fs.layout();
        let covered = block_map::per_block(layout.block_size.into()).pow(level);
        let at = *logical;
        *logical += covered;
        let Some(block) = Block::some(block.into()) else { return Ok(()) };
        if block < layout.group_start(GroupNo::PRIMARY) || block >= layout.end() {
            walked.is_sound = false;
            *wrong += 1;
            if *wrong <= MOST_WRONG {
                let text = format!("block {at} of the file lies at block {block}");
                self.say(FindingKind::BlockNumber, place, text);
            }
            return Ok(());
        }
        if level == 0 {
            if file.kind == FileType::Directory && at >= self.most_directory_blocks(file.kind) {
                self.too_many_blocks(place, walked);
                return Ok(());
            }
            self.run(file, at, block, 1, false, walked);
            return Ok(());
        }
        if !self.check.may_read(1) {
            walked.is_sound = false;
            return Ok(());
        }
        let place = Place::inode(Structure::IndirectBlock, file.inode.number).at(block);
        if self.check.is_metadata(block)
            && file.inode.number != InodeNo::RESIZE
            && self.purpose == Purpose::Check
        {
            self.say(FindingKind::BlockNumber, place, "lies on metadata");
            walked.is_sound = false;
            return Ok(());
        }
        self.map_block(file, block, walked);
        if !self.check.fs.is_present(block, 1) {
            walked.is_sound = false;
            return Ok(());
        }
        let bytes = self.check.fs.read_block(block)?;
        for (number, index) in block_map::numbers(&bytes).zip(0..) {
            let mut below = at + index * (covered / block_map::per_block(layout.block_size.into()));
            if number != 0 {
                self.pointer(file, number, level - 1, place, &mut below, wrong, walked)?;
            }
        }
        Ok(())
    }

    /// Notes blocks beyond those that a directory can have. They are not taken for its own.
    fn too_many_blocks(&self, place: Place, walked: &mut Walked) {
        self.say(FindingKind::DirectorySize, place, "more blocks than a directory can have");
        walked.is_sound = false;
    }

    /// Blocks that a directory can have.
    fn most_directory_blocks(&self, kind: FileType) -> u64 {
        match kind {
            FileType::Directory if !self.check.has.large_dir => {
                (1u64 << 31) / u64::from(self.check.fs.layout().block_size)
            }
            _ => u64::MAX,
        }
    }

    /// A block of the map itself.
    fn map_block(&mut self, file: File<'_>, block: Block, walked: &mut Walked) {
        walked.count += 1;
        let layout = self.check.fs.layout();
        let cluster = u64::from(layout.cluster_blocks);
        // The blocks that the inode reserves for descriptors are claimed with these: all but the top of its tree.
        let top = block_map::number(DOUBLE).get(file.inode.block_area());
        if file.inode.number != InodeNo::RESIZE || block == Block::new(top.into()) {
            self.own(file.inode.number, block.cluster(cluster).first_block(cluster), cluster);
        }
    }

    /// A run of the file's blocks.
    fn run(
        &mut self,
        file: File<'_>,
        logical: u64,
        physical: Block,
        len: u64,
        unwritten: bool,
        walked: &mut Walked,
    ) {
        let cluster = u64::from(self.check.fs.layout().cluster_blocks);
        let end = physical + len;
        if cluster == 1 {
            walked.count += len;
            if file.inode.number != InodeNo::RESIZE {
                self.own(file.inode.number, physical, len);
            }
        } else if file.inode.number == InodeNo::BAD_BLOCKS {
            self.bad_run(physical, end);
        } else {
            let first = physical.cluster(cluster);
            let mut clusters = end.before().cluster(cluster) - first + 1;
            let mut from = first.first_block(cluster);
            let fits = logical % cluster == physical.within_cluster(cluster);
            if let Some((block, before)) = walked.previous {
                let same = block.cluster(cluster) == first;
                if same && fits {
                    // The cluster of the block before goes on.
                    clusters -= 1;
                    from += cluster;
                }
                if before / cluster == logical / cluster && !same && !logical.is_multiple_of(cluster) {
                    self.misaligned(file, logical);
                }
            }
            if !fits {
                self.misaligned(file, logical);
            }
            walked.count += clusters;
            if clusters > 0 && file.inode.number != InodeNo::RESIZE {
                self.own(file.inode.number, from, clusters * cluster);
            }
        }
        if logical == 0 {
            walked.first = Some(physical);
        }
        walked.in_one_run &= match walked.previous {
            None => logical == 0,
            Some((block, before)) => (before + 1, block + 1) == (logical, physical),
        };
        walked.previous = Some((end.before(), logical + len - 1));
        let last = logical + len - 1;
        walked.last = Some(walked.last.map_or(last, |other| other.max(last)));
        if !unwritten {
            walked.last_written = Some(walked.last_written.map_or(last, |other| other.max(last)));
        }
        if file.collect {
            match self.runs.last_mut() {
                Some(run) if run.end() == logical && run.physical + run.len == physical => run.len += len,
                _ => self.runs.push(Mapping { logical, physical, len, unwritten }),
            }
        }
    }

    /// A run of the list of bad blocks, which are where they are: in any clusters, and several in one.
    fn bad_run(&mut self, physical: Block, end: Block) {
        let cluster = u64::from(self.check.fs.layout().cluster_blocks);
        let (first, last) = (physical.cluster(cluster), end.before().cluster(cluster));
        let (mut from, mut to) = (first.first_block(cluster), last.first_block(cluster) + cluster);
        if !self.bad_clusters.insert(first) {
            from += cluster;
        }
        if last != first && !self.bad_clusters.insert(last) {
            to = last.first_block(cluster);
        }
        if let Some(len) = to.checked_since(from).filter(|len| *len > 0) {
            self.own(InodeNo::BAD_BLOCKS, from, len);
        }
    }

    fn misaligned(&self, file: File<'_>, logical: u64) {
        // The blocks that are reserved for descriptors lie where descriptors would.
        if file.inode.number == InodeNo::RESIZE {
            return;
        }
        let place = Place::inode(Structure::Inode, file.inode.number);
        let text = format!("block {logical} of the file is not where its cluster is");
        self.say(FindingKind::ClusterAlignment, place, text);
    }
}
