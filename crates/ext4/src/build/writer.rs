//! Writing a plan: each block once, contents by all threads, the superblock last.

use std::sync::{Arc, OnceLock};

use casemate_blockdev::{BlockDevice, Buffer, u32_of, u64_of, usize_of};
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;

use crate::build::contents::Opened;
use crate::build::directory::{Name, store};
use crate::build::identity::Sums;
use crate::build::plan::Plan;
use crate::build::quota;
use crate::build::seal::Part;
use crate::build::space::FileRun;
use crate::build::tree::Body;
use crate::error::{Error, Result};
use crate::format::bitmap;
use crate::format::block_map;
use crate::format::csum::{Checksums, Context, Kind, Subject, recipe};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::group::{BLOCK_UNINIT, Bitmap, Descriptor, INODE_UNINIT, INODE_ZEROED};
use crate::format::inode::{OLD_INODE_SIZE, cut_times, seconds};
use crate::format::mmp::{self, MmpBlock};
use crate::format::superblock::{SUPERBLOCK_SIZE, Superblock, SuperblockMut};
use crate::format::{journal_superblock, orphan};
use crate::read::encryption::EncryptedContents;
use crate::units::{Block, GroupNo, InodeNo, Run};

/// Bytes that are written at once, and that a thread takes on at a time.
const CHUNK: usize = 1 << 20;

/// Bytes that are read at once where they are summed up: they are still in the cache then.
const SUMMED: usize = 128 << 10;

/// Directories that a thread takes on at a time.
const DIRECTORIES: usize = 64;

/// Counts and sizes of a new file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildReport {
    /// Regular files.
    pub files: u64,
    /// Directories, the top and lost+found among them.
    pub directories: u64,
    /// Everything else: links, devices, pipes, sockets.
    pub others: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// The UUID of the file system.
    pub uuid: [u8; 16],
}

/// A plan that is being written.
pub(super) struct Writing<'a> {
    pub plan: &'a Plan,
    pub device: &'a dyn BlockDevice,
    pub sums: Checksums,
    work: &'a Work<'a>,
    pub block: usize,
    /// Sums of contents, if the UUID follows from them and is not known yet, or some were read before.
    contents_sums: Option<Sums>,
}

/// Blocks of a file that are copied at once.
#[derive(Clone, Copy)]
struct Unit {
    index: u32,
    run: FileRun,
}

/// Contents that a thread reads, piece by piece.
struct Open {
    /// The file's place in the order.
    index: u32,
    file: Opened,
    cipher: Option<Arc<dyn EncryptedContents>>,
}

/// Bytes that are written together if they lie together.
struct Gather<'a> {
    device: &'a dyn BlockDevice,
    buffer: Buffer,
    /// Bytes of the buffer that were filled, and where the first one goes.
    filled: usize,
    at: u64,
}

impl Plan {
    /// Writes the file system to a device, which is long enough, and may read as zeros already. There is no superblock before
    /// everything else is there.
    ///
    /// # Errors
    /// Errors of the source about contents, also of contents that changed since they were read; errors of the device.
    pub fn write(&self, device: &dyn BlockDevice, is_zeroed: bool, work: &Work<'_>) -> Result<BuildReport> {
        let uuid = self.uuid_before(work)?;
        let mut superblock = *self.superblock.as_bytes();
        SuperblockMut { raw: &mut superblock }.set_uuid(&uuid.unwrap_or_default());
        let sums = Checksums::new(Crc32c::new(work.providers.cpu()), &Superblock::from_bytes(&superblock)?)?;
        let block = usize_of(self.geometry.block_size);
        let needs_sums = uuid.is_none() || self.read_before().next().is_some();
        let contents_sums = needs_sums.then(|| self.no_sums(work));
        let writing = Writing { plan: self, device, sums, work, block, contents_sums };
        if !is_zeroed {
            writing.zero()?;
        }
        writing.journal()?;
        writing.resize_inode()?;
        writing.quotas()?;
        writing.mmp()?;
        writing.attribute_blocks()?;
        writing.directories()?;
        writing.contents()?;
        writing.compare()?;
        let uuid = match (&writing.contents_sums, uuid) {
            (Some(sums), None) => self.uuid_after(sums, work)?,
            (_, known) => known.unwrap_or_default(),
        };
        writing.seal()?;
        let descriptors = writing.groups()?;
        device.flush()?;
        writing.descriptors(&descriptors)?;
        writing.superblocks(&uuid, &descriptors)?;
        device.flush()?;
        self.tell_cut_times(work);
        Ok(self.report(uuid))
    }

    /// Tells of times that inodes of this size can't hold.
    fn tell_cut_times(&self, work: &Work<'_>) {
        let has_extra = usize_of(self.geometry.inode_size) > OLD_INODE_SIZE;
        let range = seconds(has_extra);
        let time = |number: &u32| {
            let modified = self.tree.entry(*number).node.modified;
            self.options.time.map_or(modified, |latest| modified.min(latest))
        };
        let cut = self.order.iter().filter(|number| !range.contains(&time(number).seconds)).count();
        if cut > 0 {
            work.events.note(&cut_times(u64_of(cut), has_extra));
        }
    }

    fn report(&self, uuid: [u8; 16]) -> BuildReport {
        let mut report = BuildReport { uuid, ..BuildReport::default() };
        for number in &self.order {
            match &self.tree.entry(*number).body {
                Body::Directory(_) => report.directories += 1,
                Body::File(contents) => {
                    report.files += 1;
                    report.bytes += contents.size;
                }
                Body::Symlink(_) | Body::Node => report.others += 1,
            }
        }
        report
    }
}

impl Writing<'_> {
    pub fn offset(&self, block: Block) -> u64 {
        self.plan.layout.offset(block)
    }

    /// Bytes of so many blocks.
    pub fn bytes(&self, blocks: impl Into<u64>) -> u64 {
        blocks.into() * u64_of(self.block)
    }

    pub fn context(inode: InodeNo) -> Context {
        Context { inode: Some(inode), ..Context::default() }
    }

    /// Makes everything read as zeros that is read without having been written, on a target that may hold anything.
    fn zero(&self) -> Result<()> {
        let journal =
            self.plan.space.journal.iter().map(|run| Run { first: run.physical, len: run.len.into() });
        let start = std::iter::once(Run { first: Block::new(0), len: 1 });
        for run in start.chain(self.plan.groups.taken.ranges()).chain(journal) {
            self.device.write_zeroes(self.offset(run.first), self.bytes(run.len), true)?;
        }
        Ok(())
    }

    /// The first block of the journal, and the file that lists orphans.
    fn journal(&self) -> Result<()> {
        let Plan { geometry, space, shapes, .. } = self.plan;
        if let Some(run) = space.journal.first() {
            let (blocks, fast) = (geometry.journal_blocks, geometry.fast_commit_blocks);
            let bytes = journal_superblock::new_bytes(self.block, blocks, fast);
            self.device.write_at(&bytes, self.offset(run.physical))?;
        }
        let Some(inode) = shapes.orphan_file else { return Ok(()) };
        let mut gather = Gather::new(self.device);
        for block in space.orphan_file.iter().flat_map(|run| run.physical.run(run.len.into())) {
            let mut bytes = orphan::new_bytes(self.block);
            store(&self.sums, Subject::OrphanBlock, &Context { block, ..Self::context(inode) }, &mut bytes);
            gather.add(self.offset(block), self.block)?.copy_from_slice(&bytes);
        }
        gather.flush()
    }

    /// Blocks of numbers of the inode that keeps room for descriptors, which are those blocks themselves.
    fn resize_inode(&self) -> Result<()> {
        let Plan { geometry, layout, space, .. } = self.plan;
        let Some(double) = space.resize else { return Ok(()) };
        let per_block = usize_of(block_map::per_block(u64_of(self.block)));
        let mut first = vec![0; self.block];
        for index in
            geometry.descriptor_blocks..geometry.descriptor_blocks + geometry.reserved_descriptor_blocks
        {
            let block = layout.superblock_block() + 1 + u64::from(index);
            // Here and below: checked to be less than 2^32, with the superblock.
            block_map::number(usize_of(index) % per_block).set(&mut first, u32_of(block.get()));
            let mut copies = vec![0; self.block];
            for (at, group) in layout.copy_groups().enumerate().take(per_block) {
                let copy = block + u64::from(group.get()) * u64::from(layout.blocks_per_group);
                block_map::number(at).set(&mut copies, u32_of(copy.get()));
            }
            self.device.write_at(&copies, self.offset(block))?;
        }
        self.device.write_at(&first, self.offset(double))
    }

    /// Quota files, which count what files have; those of the file system itself do not count.
    fn quotas(&self) -> Result<()> {
        let Plan { tree, order, shapes, space, .. } = self.plan;
        for (quota, (runs, _)) in shapes.quotas.iter().zip(&space.quotas) {
            let mut usage = quota::Usage::new();
            for (index, number) in order.iter().enumerate() {
                let owner = tree.entry(*number).owner(quota.kind);
                let (space, inodes) = usage.entry(owner).or_default();
                *space += self.charged(index);
                *inodes += 1;
            }
            let mut bytes = quota::bytes(quota.kind, &usage);
            bytes.resize(bytes.len().next_multiple_of(self.block), 0);
            for run in runs {
                self.device.write_at(&bytes[run.bytes(self.block)], self.offset(run.physical))?;
            }
        }
        Ok(())
    }

    /// The block of multi-mount protection: nobody uses the file system.
    fn mmp(&self) -> Result<()> {
        let Some(block) = self.plan.space.mmp else { return Ok(()) };
        let mut mmp = MmpBlock::new();
        mmp.set_number(mmp::CLEAN);
        mmp.set_user(b"", b"", self.plan.options.mmp_interval);
        if self.sums.covers(Subject::MmpBlock) {
            self.sums.store(recipe(Subject::MmpBlock), &Context::default(), mmp.as_bytes_mut());
        }
        let mut bytes = mmp.as_bytes().to_vec();
        bytes.resize(self.block, 0);
        self.device.write_at(&bytes, self.offset(block))
    }

    fn attribute_blocks(&self) -> Result<()> {
        let mut gather = Gather::new(self.device);
        let blocks = self.plan.shapes.attributes.blocks.iter().zip(&self.plan.space.attribute_blocks);
        for ((bytes, _), block) in blocks {
            let buffer = gather.add(self.offset(*block), self.block)?;
            buffer.copy_from_slice(bytes);
            let context = Context { block: *block, ..Context::default() };
            store(&self.sums, Subject::XattrBlock, &context, buffer);
        }
        gather.flush()
    }

    fn directories(&self) -> Result<()> {
        let files = self.plan.shapes.files.iter();
        let all: Vec<usize> =
            files.enumerate().filter(|(_, shape)| shape.arranged.is_some()).map(|(index, _)| index).collect();
        let pieces: Vec<&[usize]> = all.chunks(DIRECTORIES).collect();
        self.work.pool.run(
            u64_of(pieces.len()),
            || (),
            |(), piece| {
                let mut gather = Gather::new(self.device);
                for index in pieces[usize_of(piece)] {
                    self.directory(*index, &mut gather)?;
                }
                gather.flush()
            },
        )
    }

    fn directory(&self, index: usize, gather: &mut Gather<'_>) -> Result<()> {
        let Plan { tree, order, inodes, shapes, .. } = self.plan;
        let shape = &shapes.files[index];
        let (Body::Directory(below), Some(arranged)) = (&tree.entry(order[index]).body, &shape.arranged)
        else {
            return Ok(());
        };
        let name = |name, number: u32| {
            let kind = tree.entry(number).node.kind;
            Name { name, inode: inodes[usize_of(number)], kind }
        };
        let names: Vec<Name<'_>> = match &shape.encrypted {
            Some(stored) => stored.names.iter().map(|(stored, number)| name(&stored[..], *number)).collect(),
            None => below.iter().map(|(stored, number)| name(&stored[..], *number)).collect(),
        };
        let own = self.plan.inode(index);
        let parent = inodes[usize_of(shape.parent)];
        let blocks = usize_of(shape.data.blocks());
        let bytes =
            shapes.directory.write(arranged, [own, parent], &names, &self.sums, &Self::context(own), blocks);
        for run in self.plan.place(index).0 {
            let part = &bytes[run.bytes(self.block)];
            gather.add(self.offset(run.physical), part.len())?.copy_from_slice(part);
        }
        Ok(())
    }

    /// Contents of files and targets of links, in the order in which they lie.
    fn contents(&self) -> Result<()> {
        let in_chunk = u32_of(CHUNK / self.block);
        let (mut units, mut ends, mut filled) = (Vec::new(), Vec::new(), 0);
        for (index, shape) in self.plan.shapes.files.iter().enumerate() {
            if shape.arranged.is_some() {
                continue;
            }
            // What is behind the contents is written when they are known.
            let end = shape.sealed.as_ref().map_or(u32::MAX, |sealed| sealed.first);
            for run in self.plan.place(index).0 {
                let in_contents = end.saturating_sub(run.logical).min(run.len);
                let mut done = 0;
                while done < in_contents {
                    let len = (in_contents - done).min(in_chunk);
                    let (logical, physical) = (run.logical + done, run.physical + u64::from(done));
                    // No more than there are inodes.
                    units.push(Unit { index: u32_of(index), run: FileRun { logical, physical, len } });
                    done += len;
                    filled += len;
                    if filled >= in_chunk {
                        ends.push(units.len());
                        filled = 0;
                    }
                }
            }
        }
        ends.push(units.len());
        let chunk = |piece: usize| {
            let start = piece.checked_sub(1).map_or(0, |before| ends[before]);
            &units[start..ends[piece]]
        };
        let state = || (Gather::new(self.device), None);
        self.work.pool.run(u64_of(ends.len()), state, |(gather, opened), piece| {
            for unit in chunk(usize_of(piece)) {
                self.unit(unit, gather, opened)?;
            }
            gather.flush()
        })
    }

    fn unit(&self, unit: &Unit, gather: &mut Gather<'_>, opened: &mut Option<Open>) -> Result<()> {
        let Unit { index, run } = unit;
        let shape = &self.plan.shapes.files[usize_of(*index)];
        let len = usize_of(run.len) * self.block;
        let buffer = gather.add(self.offset(run.physical), len)?;
        match &self.plan.tree.entry(self.plan.order[usize_of(*index)]).body {
            Body::Symlink(target) => {
                let target = shape.target(target);
                let (own, rest) = buffer.split_at_mut(target.len());
                own.copy_from_slice(target);
                rest.fill(0);
            }
            Body::File(contents) => {
                let open = match opened {
                    Some(open) if open.index == *index => open,
                    _ => opened.insert(Open {
                        index: *index,
                        file: contents.open()?,
                        cipher: self.cipher(usize_of(*index))?,
                    }),
                };
                let from = self.bytes(run.logical);
                let len = usize_of(contents.size - from).min(len);
                let (own, rest) = buffer.split_at_mut(len);
                match &self.contents_sums {
                    None => open.file.read_at(own, from)?,
                    Some(sums) => {
                        let mut sum = sums.begin(usize_of(*index), contents.size, from);
                        for piece in own.chunks_mut(SUMMED) {
                            open.file.read_at(piece, sum.at())?;
                            sum.update(piece);
                        }
                        sum.end();
                    }
                }
                rest.fill(0);
                if let Some(cipher) = &open.cipher {
                    cipher.encrypt(run.logical.into(), buffer)?;
                }
                self.work.events.advance(u64_of(len))?;
            }
            Body::Directory(_) | Body::Node => {}
        }
        Ok(())
    }

    /// Compares what was copied with what was read before. What must not be there is overwritten with zeros first: ciphertext
    /// under a nonce that is other contents' own.
    fn compare(&self) -> Result<()> {
        let Some(sums) = &self.contents_sums else { return Ok(()) };
        for (index, contents) in self.plan.read_before() {
            let Err(error) = sums.compare(index, contents) else { continue };
            for run in self.plan.place(index).0 {
                self.device.write_zeroes(self.offset(run.physical), self.bytes(run.len), true)?;
            }
            return Err(error);
        }
        Ok(())
    }

    /// Encryption of the contents of the file with this place in the order; `None` if they are not encrypted.
    fn cipher(&self, index: usize) -> Result<Option<Arc<dyn EncryptedContents>>> {
        let encrypted = self.plan.shapes.files[index].encrypted.as_ref();
        encrypted.map_or(Ok(None), |encrypted| encrypted.contents(&self.plan.encrypter))
    }

    /// Trees and descriptors of files that get fs-verity.
    fn seal(&self) -> Result<()> {
        let Plan { tree, order, shapes, .. } = self.plan;
        let Some(sealer) = &self.plan.sealer else { return Ok(()) };
        let files = shapes.files.iter().enumerate();
        let all: Vec<_> = files.filter_map(|(index, shape)| Some((index, shape.sealed.as_ref()?))).collect();
        self.work.pool.run(
            u64_of(all.len()),
            || (),
            |(), piece| {
                let (index, sealed) = all[usize_of(piece)];
                let Body::File(contents) = &tree.entry(order[index]).body else { return Ok(()) };
                let block = u64_of(self.block);
                let size = self.bytes(sealed.blocks);
                let (device, runs, first) = (self.device, self.plan.place(index).0, sealed.first);
                let part = Part { device, runs, first, block, size, cipher: self.cipher(index)? };
                // What was written is sealed, whatever has become of the source.
                let stored = Part { first: 0, size: contents.size, cipher: part.cipher.clone(), ..part };
                let descriptor = sealer.seal(&sealed.path, &stored, &part)?;
                // Where readers look for it: from the end back.
                let len = u64_of(descriptor.len());
                let at = size.checked_sub(4 + len).map(|end| end / block * block);
                let at = at.ok_or_else(|| Error::unsupported("a descriptor that is longer than was said"))?;
                // A descriptor and what fills its blocks.
                let mut bytes = vec![0; usize_of(size - at)];
                bytes[..descriptor.len()].copy_from_slice(&descriptor);
                let end = bytes.len() - 4;
                bytes[end..].copy_from_slice(&u32_of(descriptor.len()).to_le_bytes());
                part.write_at(&bytes, at)
            },
        )
    }

    /// Inodes and bitmaps; and the descriptors that say where they are.
    fn groups(&self) -> Result<Vec<Descriptor>> {
        let groups = self.plan.geometry.groups;
        let mut directories = vec![0; usize_of(groups)];
        for (index, shape) in self.plan.shapes.files.iter().enumerate() {
            if shape.arranged.is_some() {
                directories
                    [usize_of(self.plan.inode(index).index() / self.plan.geometry.inodes_per_group)] += 1;
            }
        }
        let descriptors: Vec<OnceLock<Descriptor>> = (0..groups).map(|_| OnceLock::new()).collect();
        self.work.pool.run(
            groups.into(),
            || (),
            |(), group| {
                let descriptor = self.group(GroupNo::new(u32_of(group)), directories[usize_of(group)])?;
                let _ = descriptors[usize_of(group)].set(descriptor);
                Ok::<_, Error>(())
            },
        )?;
        // OK to unwrap: all groups were done.
        Ok(descriptors.into_iter().map(|slot| slot.into_inner().unwrap()).collect())
    }

    fn group(&self, group: GroupNo, directories: u32) -> Result<Descriptor> {
        let Plan { geometry, groups, shapes, .. } = self.plan;
        let places = groups.places[group.index()];
        let has_sums = self.sums.kind() != Kind::None;
        let mut descriptor = Descriptor::from_bytes(&[0; 64], usize_of(geometry.descriptor_size));
        descriptor.set_places(places.block_bitmap, places.inode_bitmap, places.inode_table);
        let mut flags = if has_sums { INODE_ZEROED } else { 0 };

        let (clusters, used) = self.block_bitmap(group);
        let in_group = self.plan.layout.clusters_in(group);
        descriptor.set_free_clusters(in_group - used);
        if has_sums && self.has_nothing(group, used) {
            flags |= BLOCK_UNINIT;
        } else {
            self.device.write_at(&clusters, self.offset(places.block_bitmap))?;
            let covered = usize_of(self.plan.layout.clusters_per_group) / 8;
            self.sum_bitmap(&mut descriptor, Bitmap::Blocks, &clusters[..covered]);
        }

        let per_group = geometry.inodes_per_group;
        let inodes = shapes.last_inode.get().saturating_sub(group.get() * per_group).min(per_group);
        descriptor.set_free_inodes(per_group - inodes);
        descriptor.set_used_directories(directories);
        if has_sums {
            descriptor.set_unused_inodes(per_group - inodes);
        }
        if has_sums && inodes == 0 {
            flags |= INODE_UNINIT;
        } else {
            let mut bits = vec![0; self.block];
            bitmap::flip(&mut bits, 0, inodes.into());
            bitmap::flip_from(&mut bits, per_group.into());
            self.device.write_at(&bits, self.offset(places.inode_bitmap))?;
            self.sum_bitmap(&mut descriptor, Bitmap::Inodes, &bits[..usize_of(per_group) / 8]);
            self.inode_table(group, inodes)?;
        }
        descriptor.set_flags(flags);
        let context = Context { group, ..Context::default() };
        store(&self.sums, self.sums.descriptor_subject(), &context, descriptor.as_bytes_mut());
        Ok(descriptor)
    }

    fn sum_bitmap(&self, descriptor: &mut Descriptor, which: Bitmap, bytes: &[u8]) {
        if self.sums.covers(which.subject()) {
            descriptor.set_bitmap_sum(&self.sums, which, self.sums.update(None, bytes));
        }
    }

    /// Clusters in use of a group, and how many; what is behind the group's end counts as used and is not counted.
    fn block_bitmap(&self, group: GroupNo) -> (Vec<u8>, u32) {
        let Plan { layout, space, .. } = self.plan;
        let start = layout.group_start(group);
        let end = start + layout.blocks_in(group);
        let cluster = u64::from(layout.cluster_blocks);
        let mut bits = vec![0; self.block];
        let own = Run::between(start, end);
        let first = space.used.partition_point(|run| run.end() <= start);
        let (mut used, mut done) = (0, 0);
        for run in space.used[first..].iter().map_while(|run| run.shared(own)) {
            let from = ((run.first - start) / cluster).max(done);
            let to = (run.end() - start).div_ceil(cluster);
            if from < to {
                bitmap::flip(&mut bits, from, to - from);
                used += to - from;
                done = to;
            }
        }
        bitmap::flip_from(&mut bits, layout.clusters_in(group).into());
        (bits, u32_of(used))
    }

    /// Whether a group has nothing but copies of superblock and descriptors, as the kernel would find out for itself.
    fn has_nothing(&self, group: GroupNo, used: u32) -> bool {
        let Plan { geometry, layout, .. } = self.plan;
        let features = geometry.features;
        let is_first_or_last = group == GroupNo::PRIMARY || group.get() + 1 == geometry.groups;
        if is_first_or_last || features.incompat.has(Incompat::META_BG) {
            return false;
        }
        if features.ro_compat.has(RoCompat::BIGALLOC) || !features.incompat.has(Incompat::FLEX_BG) {
            return false;
        }
        let copies = match layout.has_superblock(group) {
            true => 1 + geometry.descriptor_blocks + geometry.reserved_descriptor_blocks,
            false => 0,
        };
        let places = self.plan.groups.places[group.index()];
        let own = layout.group_start(group)..layout.group_start(group) + layout.blocks_in(group);
        let is_apart = [places.block_bitmap, places.inode_bitmap, places.inode_table]
            .iter()
            .all(|block| !own.contains(block));
        used == copies && is_apart
    }

    /// Writes all descriptors, and their copies.
    fn descriptors(&self, descriptors: &[Descriptor]) -> Result<()> {
        let layout = &self.plan.layout;
        for (index, group) in (0..).zip(descriptors.chunks(usize_of(layout.descriptors_per_block()))) {
            let mut bytes: Vec<u8> =
                group.iter().flat_map(|descriptor| descriptor.as_bytes().iter().copied()).collect();
            bytes.resize(self.block, 0);
            let copies = layout.descriptor_copies(index).map(|(_, block)| block);
            for block in std::iter::once(layout.descriptor_block(index)).chain(copies) {
                self.device.write_at(&bytes, self.offset(block))?;
            }
        }
        Ok(())
    }

    /// Writes the copies of the superblock, and then the superblock itself.
    fn superblocks(&self, uuid: &[u8; 16], descriptors: &[Descriptor]) -> Result<()> {
        let Plan { geometry, layout, groups, shapes, space, .. } = self.plan;
        let mut raw = *self.plan.superblock.as_bytes();
        let free: u64 = descriptors.iter().map(|one| u64::from(one.fields().free_clusters())).sum();
        let cluster = u64::from(geometry.cluster_blocks);
        let fixed: u64 = groups.taken.ranges().map(|run| run.len.div_ceil(cluster)).sum();
        let overhead =
            u64::from(geometry.first_data_block) + fixed + u64::from(geometry.journal_blocks) / cluster;
        let mut fields = SuperblockMut { raw: &mut raw };
        fields.set_uuid(uuid);
        fields.set_counts(free * cluster, geometry.inodes() - shapes.last_inode.get(), overhead);
        if geometry.features.compat.has(Compat::HAS_JOURNAL)
            && let Some(inode) = self.inode(InodeNo::JOURNAL)?
        {
            fields.set_journal(InodeNo::JOURNAL, inode.block_area(), inode.size());
        }
        if let Some(inode) = shapes.orphan_file {
            fields.set_orphan_file(Some(inode));
        }
        for quota in &shapes.quotas {
            fields.set_quota_inode(quota.kind, quota.inode);
        }
        if let Some(block) = space.mmp {
            fields.set_mmp(block, self.plan.options.mmp_interval);
        }
        for group in layout.copy_groups() {
            let mut copy = raw;
            SuperblockMut { raw: &mut copy }.set_group(group);
            self.superblock(group, &mut copy)?;
        }
        self.device.flush()?;
        self.superblock(GroupNo::PRIMARY, &mut raw)
    }

    fn superblock(&self, group: GroupNo, raw: &mut [u8; SUPERBLOCK_SIZE]) -> Result<()> {
        if self.sums.covers(Subject::Superblock) {
            self.sums.store(recipe(Subject::Superblock), &Context::default(), raw);
        }
        match self.plan.layout.superblock_offset(group) {
            Some(offset) => self.device.write_at(raw, offset),
            None => Ok(()),
        }
    }
}

impl<'a> Gather<'a> {
    fn new(device: &'a dyn BlockDevice) -> Gather<'a> {
        Gather { device, buffer: Buffer::default(), filled: 0, at: 0 }
    }

    /// Room for what goes to this byte of the device: `len` bytes, whatever is in them.
    fn add(&mut self, offset: u64, len: usize) -> Result<&mut [u8]> {
        let goes_on = self.at + u64_of(self.filled) == offset;
        if !goes_on || self.filled + len > self.buffer.len() {
            self.flush()?;
            self.at = offset;
            self.buffer.resize(len.max(2 * CHUNK));
        }
        let from = self.filled;
        self.filled += len;
        Ok(&mut self.buffer[from..self.filled])
    }

    fn flush(&mut self) -> Result<()> {
        if self.filled > 0 {
            self.device.write_from(&mut self.buffer[..self.filled], self.at)?;
            self.filled = 0;
        }
        Ok(())
    }
}
