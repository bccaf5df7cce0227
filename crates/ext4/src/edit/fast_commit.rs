//! Fast commits done again: what happened since the last transaction, from the records that the journal has of it.
//!
//! Records tell of runs of blocks, inodes and names in the order in which a commit wrote them. First all is gathered for
//! each inode: the last fields that were told, which runs have which place in the end, how its names changed. Then
//! blocks and inodes are taken, before anything else could be put there; inodes and their maps are written; then names
//! are put and removed in their order; and last what has no name left is freed.
//!
//! A directory's blocks are never told, for its names are: of an inode's fields those that say where its contents lie
//! stay as they are, or begin empty. Neither are blocks of block numbers, nor those of extents: maps get new ones. So a file
//! without extents, or one whose contents were moved out of its inode, is as it was when the record was written. (Linux
//! writes such records and can't replay them: it takes block numbers for extents.)

use std::collections::BTreeMap;
use std::sync::Arc;

use casemate_blockdev::BlockDevice;

use crate::alloc::Allocator;
use crate::edit::dir::name::require_name;
use crate::edit::files::Files;
use crate::edit::inode::count_clusters;
use crate::edit::inodes::Inodes;
use crate::edit::random::Random;
use crate::edit::ranges::{Ranges, Said};
use crate::error::{Error, Place, Result, Structure};
use crate::format::extent;
use crate::format::fast_commit::Event;
use crate::format::features::RoCompat;
use crate::format::inode::{FileType, GENERATION, Inode, InodeFlags, LINKS, MODE};
use crate::read::fs::OpenOptions;
use crate::read::journal::FastCommits;
use crate::read::map::is_fast_symlink;
use crate::read::mapping::Mapping;
use crate::transaction::{LogOptions, Transaction};
use crate::units::{Block, Cluster, InodeNo};

/// The device as the fast commits make it, in memory: that of a file system whose journal is replayed otherwise.
pub(crate) fn over(
    device: Arc<dyn BlockDevice>,
    options: &OpenOptions,
    commits: &FastCommits,
) -> Result<Arc<dyn BlockDevice>> {
    if commits.is_empty() {
        return Ok(device);
    }
    let log = LogOptions { is_direct: true, ..LogOptions::default() };
    Ok(Arc::clone(replayed(device, options, log, commits)?.fs().device()))
}

/// Makes the fast commits the state of the file system on the device, whose journal says that it has nothing but those to
/// replay: as one transaction, which takes their place.
pub(crate) fn fold_in(
    device: &Arc<dyn BlockDevice>,
    options: &OpenOptions,
    commits: &FastCommits,
) -> Result<()> {
    replayed(Arc::clone(device), options, LogOptions::default(), commits)?.commit()
}

fn replayed(
    device: Arc<dyn BlockDevice>,
    options: &OpenOptions,
    log: LogOptions,
    commits: &FastCommits,
) -> Result<Files> {
    let options = OpenOptions { replay_journal: false, ..options.clone() };
    let (fs, transaction) = Transaction::on_top(device, &options, log)?;
    let mut files = Files::new(Inodes::new(Allocator::new(fs, transaction), Random::new(Some(0)), None));
    Replay::default().run(&mut files, commits)?;
    files.end()?;
    Ok(files)
}

/// Where a run of a file's blocks lies; `None` for one that has no place any more.
#[derive(Clone, Copy, Debug)]
struct Target(Option<(Block, bool)>);

impl Said for Target {
    fn behind(self, skipped: u64) -> Target {
        Target(self.0.map(|(physical, unwritten)| (physical + skipped, unwritten)))
    }
}

/// Changes of one inode.
#[derive(Default)]
struct Change<'a> {
    /// The fields that were told last.
    raw: Option<&'a [u8]>,
    /// Whether the inode that has this number on the disk went first, and another one has it now.
    replaces: bool,
    ranges: Ranges<Target>,
    /// How its count of links changed since its fields were told.
    links: i32,
    /// True for a directory that was removed.
    is_removed: bool,
    /// The directory that it was made in.
    parent: Option<InodeNo>,
}

/// A name that comes or goes.
struct Renamed<'a> {
    comes: bool,
    parent: InodeNo,
    inode: InodeNo,
    name: &'a [u8],
}

#[derive(Default)]
struct Replay<'a> {
    changes: BTreeMap<InodeNo, Change<'a>>,
    names: Vec<Renamed<'a>>,
}

/// An inode on its way back, without those of its blocks that changed.
struct Prepared {
    inode: Inode,
    is_new: bool,
    parent: Option<InodeNo>,
    /// Where these blocks are in the end.
    runs: Vec<Mapping>,
    /// Clusters that it has no more: the first one, and how many.
    freed: Vec<(Cluster, u64)>,
    /// Whether its contents were in the inode, and are no more.
    was_inline: bool,
}

impl<'a> Replay<'a> {
    fn run(mut self, files: &mut Files, commits: &'a FastCommits) -> Result<()> {
        for event in commits.events()? {
            self.gather(files, event)?;
        }
        let mut prepared = Vec::new();
        for (number, change) in &self.changes {
            prepared.extend(prepare(files, *number, change)?);
        }
        let ratio = files.space().ratio();
        for (first, count) in prepared.iter().flat_map(|prepared| &prepared.freed) {
            files.inodes().space_mut().free_blocks(first.first_block(ratio), count * ratio)?;
        }
        for run in prepared.iter().flat_map(|prepared| &prepared.runs) {
            files.inodes().space_mut().take_blocks(run.physical, run.len)?;
        }
        for prepared in prepared {
            write(files, prepared)?;
        }
        for name in &self.names {
            rename(files, name)?;
        }
        for (number, change) in &self.changes {
            count_links(files, *number, change)?;
        }
        Ok(())
    }

    fn gather(&mut self, files: &mut Files, event: Event<'a>) -> Result<()> {
        match event {
            Event::Add { inode, extent } => {
                let target = Target(Some((extent.physical, extent.unwritten)));
                let ranges = &mut self.changes.entry(inode).or_default().ranges;
                ranges.set(extent.logical.into(), extent.len.into(), target);
            }
            Event::Delete { inode, logical, len } => {
                let ranges = &mut self.changes.entry(inode).or_default().ranges;
                ranges.set(logical.into(), len.into(), Target(None));
            }
            Event::Inode { inode, raw } => {
                let change = self.changes.entry(inode).or_default();
                let known = match change.raw {
                    Some(raw) => Some(GENERATION.get(raw)),
                    None => in_use(files, inode)?.map(|old| old.generation()),
                };
                if known.is_some_and(|known| known != GENERATION.get(raw)) {
                    let replaces = change.raw.is_none() || change.replaces;
                    *change = Change { replaces, ..Change::default() };
                }
                (change.raw, change.links, change.is_removed) = (Some(raw), 0, false);
            }
            Event::Create { parent, inode, name } => {
                self.changes.entry(inode).or_default().parent.get_or_insert(parent);
                let is_dir = self.is_directory(files, inode)?;
                self.changes.entry(parent).or_default().links += i32::from(is_dir);
                self.names.push(Renamed { comes: true, parent, inode, name });
            }
            Event::Link { parent, inode, name } => {
                self.changes.entry(inode).or_default().links += 1;
                self.names.push(Renamed { comes: true, parent, inode, name });
            }
            Event::Unlink { parent, inode, name } => {
                let is_dir = self.is_directory(files, inode)?;
                let change = self.changes.entry(inode).or_default();
                if is_dir {
                    change.is_removed = true;
                    self.changes.entry(parent).or_default().links -= 1;
                } else {
                    change.links -= 1;
                }
                self.names.push(Renamed { comes: false, parent, inode, name });
            }
        }
        Ok(())
    }

    /// Whether an inode is a directory, by what was told of it last.
    fn is_directory(&self, files: &mut Files, number: InodeNo) -> Result<bool> {
        match self.changes.get(&number).and_then(|change| change.raw) {
            Some(raw) => Ok(FileType::from_mode(MODE.get(raw)) == Some(FileType::Directory)),
            None => Ok(in_use(files, number)?.is_some_and(|inode| inode.is_dir())),
        }
    }
}

/// The inode with this number, if the file system says that it is in use.
fn in_use(files: &mut Files, number: InodeNo) -> Result<Option<Inode>> {
    let place = Place::inode(Structure::Inode, number);
    let position = files.fs().layout().inode_position(number);
    let (group, index) =
        position.ok_or_else(|| place.malformed("is in a fast commit, and does not exist"))?;
    if files.fs().superblock().is_internal(number) {
        return Err(place.malformed("is in a fast commit, and reserved"));
    }
    match files.inodes().space_mut().is_inode_used(group, index)? {
        true => files.inodes().get_unlinked(number).map(Some),
        false => Ok(None),
    }
}

/// The inode as it was told of, its blocks that changed taken out of its map. `None` for one that goes whatever happened
/// to it.
fn prepare(files: &mut Files, number: InodeNo, change: &Change<'_>) -> Result<Option<Prepared>> {
    let place = Place::inode(Structure::Inode, number);
    let mut old = in_use(files, number)?;
    if let Some(old) = old.take_if(|_| change.replaces) {
        files.inodes().release(&mut { old })?;
    }
    if old.as_ref().is_some_and(|old| old.links() == 0) {
        return Ok(None);
    }
    let is_new = old.is_none();
    let was_inline = old.as_ref().is_some_and(|old| old.has(InodeFlags::INLINE_DATA));
    let mut inode = match (change.raw, old) {
        (Some(raw), old) => told(files, number, raw, old.as_ref())?,
        (None, Some(old)) => old,
        (None, None) => return Err(place.malformed("is in a fast commit, and not in use")),
    };
    let was_inline = was_inline && !inode.has(InodeFlags::INLINE_DATA);
    if is_new {
        files.inodes().space_mut().take_inode(number, inode.is_dir())?;
    }
    let mut prepared = Prepared {
        inode: inode.clone(),
        is_new,
        parent: change.parent,
        runs: Vec::new(),
        freed: Vec::new(),
        was_inline,
    };
    let Some((first, ..)) = change.ranges.iter().next().filter(|_| !inode.is_dir()) else {
        return Ok(Some(prepared));
    };
    let ratio = files.space().ratio();
    let most_blocks = files.inodes().view(&inode).most_blocks();
    let (mut runs, mut clusters) = (Ranges::default(), Ranges::default());
    while let Some(run) = files.inodes().map(&mut inode).take_last(first - first % ratio)? {
        runs.set(run.logical, run.len, Target(Some((run.physical, run.unwritten))));
        let len = (run.physical.within_cluster(ratio) + run.len).div_ceil(ratio);
        clusters.set(run.physical.cluster(ratio).get(), len, false);
    }
    let had = clusters.iter().map(|(_, len, _)| len).sum::<u64>();
    for (at, len, target) in change.ranges.iter() {
        runs.set(at, len, target);
    }
    for (logical, len, target) in runs.iter() {
        let Some((physical, unwritten)) = target.0 else { continue };
        files.fs().check_blocks(physical, len, place)?;
        let has_place = (!unwritten || inode.has(InodeFlags::EXTENTS)) && logical + len <= most_blocks;
        if !has_place || physical.within_cluster(ratio) != logical % ratio {
            return Err(place.malformed("has a run of blocks in a fast commit that no file can have"));
        }
        clusters.set(
            physical.cluster(ratio).get(),
            (physical.within_cluster(ratio) + len).div_ceil(ratio),
            true,
        );
        prepared.runs.push(Mapping { logical, physical, len, unwritten });
    }
    prepared.freed =
        clusters.iter().filter(|(.., kept)| !kept).map(|(at, len, _)| (Cluster::new(at), len)).collect();
    let has = clusters.iter().filter(|(.., kept)| *kept).map(|(_, len, _)| len).sum::<u64>();
    count_clusters(files.fs(), &mut inode, has.cast_signed() - had.cast_signed())?;
    Ok(Some(Prepared { inode, ..prepared }))
}

/// An inode with the fields that were told of it, and what says where its contents lie as it was, or empty.
fn told(files: &mut Files, number: InodeNo, raw: &[u8], old: Option<&Inode>) -> Result<Inode> {
    const CONTENTS: u32 = InodeFlags::EXTENTS.0 | InodeFlags::INLINE_DATA.0;
    let place = Place::inode(Structure::Inode, number);
    let size = files.fs().layout().inode_len();
    let mut bytes = old.map_or_else(|| vec![0; size], |old| old.as_bytes().to_vec());
    let len = raw.len().min(size);
    bytes[..len].copy_from_slice(&raw[..len]);
    let mut inode = Inode::from_bytes(number, &bytes)?;
    if old.is_some_and(|old| old.kind() != inode.kind()) {
        return Err(place.malformed("is of another kind in a fast commit"));
    }
    if inode.xattr_block() != old.and_then(Inode::xattr_block) {
        let text = "the journal ends in fast commits of attributes in blocks, which the kernel does not make";
        return Err(Error::unsupported(text));
    }
    inode.set_deleted(old.map_or(0, Inode::deleted));
    let block_size = files.fs().layout().block_size;
    let sectors = old.map_or(0, |old| old.sectors(block_size));
    let huge_file = files.fs().superblock().ro_compat.has(RoCompat::HUGE_FILE);
    if !inode.set_sectors(sectors, block_size, huge_file) {
        return Err(place.malformed("its count of blocks is too high"));
    }
    let is_inline = inode.has(InodeFlags::INLINE_DATA);
    let has_map =
        inode.kind() == FileType::Regular || inode.kind() == FileType::Symlink && !is_fast_symlink(&inode);
    match old {
        Some(old) if inode.is_dir() => {
            // Its names are told one by one.
            let layout = CONTENTS | InodeFlags::INDEX.0;
            inode.set_flags(inode.flags().0 & !layout | old.flags().0 & layout);
            inode.set_size(old.size());
            *inode.block_area_mut() = *old.block_area();
            if old.xattr_area().len() == inode.xattr_area().len() {
                inode.xattr_area_mut().copy_from_slice(old.xattr_area());
            }
        }
        Some(old) if old.has(InodeFlags::INLINE_DATA) && !is_inline && has_map => start_map(&mut inode),
        Some(old) if (inode.flags().0 ^ old.flags().0) & CONTENTS != 0 => {
            let text = format!("the journal ends in fast commits that move the contents of inode {number}");
            return Err(Error::unsupported(text));
        }
        Some(old) if !is_inline => *inode.block_area_mut() = *old.block_area(),
        None if inode.is_dir() && !is_inline => {
            inode.set_flags(inode.flags().0 & !InodeFlags::INDEX.0);
            inode.set_size(0);
            files.inodes().map(&mut inode).start();
        }
        None if has_map && !is_inline || inode.has(InodeFlags::EXTENTS) => start_map(&mut inode),
        _ => {}
    }
    Ok(inode)
}

/// Gives an inode an empty map of the kind that its flags name.
fn start_map(inode: &mut Inode) {
    if inode.has(InodeFlags::EXTENTS) {
        inode.block_area_mut().copy_from_slice(&extent::root_bytes(0, &[]));
    } else {
        inode.block_area_mut().fill(0);
    }
}

/// Stores an inode, with its blocks in its map.
fn write(files: &mut Files, prepared: Prepared) -> Result<()> {
    let Prepared { mut inode, is_new, parent, runs, was_inline, .. } = prepared;
    if was_inline && !inode.is_dir() {
        // The record ends before the attribute that inline data continued in.
        files.inodes().attributes(&mut inode).remove_inline()?;
    }
    for run in runs {
        files.inodes().map(&mut inode).insert(run)?;
    }
    if is_new && inode.is_dir() && inode.size() == 0 {
        let place = Place::inode(Structure::Inode, inode.number());
        let parent = parent.ok_or_else(|| place.malformed("is a directory that no fast commit makes"))?;
        files.directory(&mut inode).first_leaf(parent)?;
    }
    if is_new { files.inodes().create(&inode) } else { files.inodes().store(&inode) }
}

/// Puts a name into a directory, or removes it.
fn rename(files: &mut Files, renamed: &Renamed<'_>) -> Result<()> {
    let Renamed { comes, parent, inode, name } = *renamed;
    let place = Place::inode(Structure::Directory, parent);
    let mut dir = files.inodes().get_unlinked(parent)?;
    if !dir.is_dir() || require_name(name).is_err() {
        return Err(place.malformed("has a name in a fast commit that no directory can have"));
    }
    if dir.has(InodeFlags::ENCRYPT) {
        let text = "the journal ends in fast commits of encrypted names, which the kernel does not make";
        return Err(Error::unsupported(text));
    }
    match files.directory(&mut dir).find(name)? {
        None if comes => {
            let kind = files.inodes().get_unlinked(inode)?.kind();
            files.directory(&mut dir).insert(name, inode, kind)?;
        }
        Some(found) if !comes && found.inode == inode => files.directory(&mut dir).remove(&found)?,
        _ => return Ok(()),
    }
    files.inodes().store(&dir)
}

/// Sets the links of an inode to those that it is left with; without any, it is freed.
fn count_links(files: &mut Files, number: InodeNo, change: &Change<'_>) -> Result<()> {
    let mut inode = files.inodes().get_unlinked(number)?;
    if inode.links() == 0 && change.raw.is_none_or(|raw| LINKS.get(raw) != 0) {
        // It waited to be deleted before.
        return Ok(());
    }
    let links = match inode.is_dir() {
        true if change.is_removed => 0,
        // More than can be counted (feature dir_nlink).
        true if inode.links() == 1 => 1,
        _ => i64::from(inode.links()) + i64::from(change.links),
    };
    let place = Place::inode(Structure::Inode, number);
    let links = u16::try_from(links).map_err(|_| place.malformed("has no such count of links"))?;
    if links == 0 {
        if inode.is_dir() {
            files.forget_directory(number);
        }
        return files.inodes().release(&mut inode);
    }
    if links == inode.links() {
        return Ok(());
    }
    inode.set_links(links);
    files.inodes().store(&inode)
}
