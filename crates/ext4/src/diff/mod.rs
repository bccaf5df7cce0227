//! Two file systems compared, for those who make images that others must be able to make again, byte for byte.
//!
//! [`diff`] first compares all bytes, on all threads: images that are equal need nothing else. Of those that differ it
//! tells, most useful first: fields of the superblock, files by their paths ([`walk`], [`file`], [`contents`]),
//! descriptors of groups, how and where files are stored ([`storage`]), and at last by areas where each byte lies that
//! differs ([`owners`], [`areas`]), so that none is without a line. Lines come through a function while the work goes
//! on: there may be as many as there are files.
//!
//! Where files have the same blocks in both, and none of these blocks differs, nothing is read again.
//!
//! # Errors
//! Damage is a line ([`Difference::Unread`]), and the rest is compared.

mod advice;
mod areas;
mod bits;
mod bytes;
mod contents;
mod difference;
mod file;
mod groups;
mod hidden;
mod owners;
mod runs;
mod storage;
mod walk;

use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;

use casemate_blockdev::{Advice, BlockDevice};
use casemate_providers::Work;

use crate::error::{Error, Result};
use crate::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, fields};
use crate::read::fs::Ext4;
use crate::units::InodeNo;

use self::advice::Choices;
use self::bits::Bits;
use self::bytes::Compared;
pub use self::difference::{Area, Difference, Side};

/// A file system to compare.
#[derive(Clone)]
pub struct DiffSide {
    /// The file system, its journal replayed.
    pub fs: Ext4,
    /// The device as it is, whose bytes are compared.
    pub device: Arc<dyn BlockDevice>,
}

impl fmt::Debug for DiffSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiffSide").field("fs", &self.fs).finish_non_exhaustive()
    }
}

/// How two file systems are compared.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DiffOptions {
    /// Whether only names, contents and attributes of files count: not where they lie, nor the file systems.
    pub files_only: bool,
}

impl DiffOptions {
    /// A comparison of everything.
    pub fn new() -> DiffOptions {
        DiffOptions::default()
    }

    /// Compares names, contents and attributes of files alone, or everything.
    #[must_use]
    pub fn files_only(mut self, files_only: bool) -> DiffOptions {
        self.files_only = files_only;
        self
    }
}

/// Result of a comparison.
#[derive(Debug)]
#[non_exhaustive]
pub struct DiffReport {
    /// Whether all that counts was read, and nothing differs.
    pub is_equal: bool,
    /// Differences that were told.
    pub differences: u64,
    /// Things that could not be read.
    pub unread: u64,
    /// Bytes that differ, and those that only one of them has.
    pub bytes: u64,
    /// Choices of a build that would make the two more alike.
    pub advice: Vec<Advice>,
}

/// Compares two file systems, and calls `found` with each difference, in an order that is useful to a person.
///
/// The listener hears of bytes that are compared; see [`diff_size`].
///
/// # Errors
/// Errors of `found`, and `Interrupted`.
pub fn diff(
    sides: [&DiffSide; 2],
    options: DiffOptions,
    work: &Work<'_>,
    found: &mut dyn FnMut(&Difference) -> Result<()>,
) -> Result<DiffReport> {
    let devices = sides.map(|side| &side.device);
    let unit = sides.map(|side| side.fs.layout().block_size);
    let mut compared = bytes::compare(devices, sides.map(DiffSide::end), unit[0].min(unit[1]).into(), work)?;
    compared.is_cut = sides.into_iter().any(|side| side.cut_off().is_some());
    let bytes = compared.bytes.saturating_add(compared.tail);
    if compared.is_equal() {
        return Ok(DiffReport { is_equal: true, differences: 0, unread: 0, bytes, advice: Vec::new() });
    }
    let is_direct = sides.iter().all(|side| Arc::ptr_eq(side.fs.device(), &side.device));
    let mut diff = Diff {
        sides,
        compared,
        is_direct,
        options,
        work,
        found,
        reached: Default::default(),
        paired: HashMap::new(),
        choices: Choices::default(),
        differences: 0,
        unread: 0,
    };
    diff.all()?;
    let advice = diff.choices.advice(sides.map(|side| side.fs.superblock()), options.files_only);
    let Diff { differences, unread, .. } = diff;
    let is_equal = differences == 0 && unread == 0;
    Ok(DiffReport { is_equal, differences, unread, bytes, advice })
}

/// How many bytes a comparison will report as progress.
pub fn diff_size(sides: [&DiffSide; 2]) -> u64 {
    let [a, b] = sides.map(DiffSide::end);
    a.min(b)
}

impl DiffSide {
    /// A file system that was opened on a device, and the device as it is, without the file system's journal replayed.
    pub fn new(fs: Ext4, device: Arc<dyn BlockDevice>) -> DiffSide {
        DiffSide { fs, device }
    }

    /// The byte behind the file system.
    fn whole(&self) -> u64 {
        let layout = self.fs.layout();
        layout.blocks.saturating_mul(layout.block_size.into())
    }

    /// The byte behind the file system, as far as the device goes.
    fn end(&self) -> u64 {
        self.whole().min(self.device.size())
    }

    /// An error for what lies behind the end of a device that is shorter than the file system.
    fn cut_off(&self) -> Option<Error> {
        let (end, whole) = (self.device.size(), self.whole());
        let text = || format!("the device ends at byte {end}, and the file system at byte {whole}");
        (end < whole).then(|| Error::path(ErrorKind::UnexpectedEof, text()))
    }
}

/// A comparison that goes on.
struct Diff<'a> {
    sides: [&'a DiffSide; 2],
    compared: Compared,
    /// Whether files are read from the devices whose bytes were compared, with no journal over them.
    is_direct: bool,
    options: DiffOptions,
    work: &'a Work<'a>,
    found: &'a mut dyn FnMut(&Difference) -> Result<()>,
    /// Inodes that a path leads to.
    reached: [Bits; 2],
    /// Inodes of the first file system with several names, and those that have these names in the second one.
    paired: HashMap<InodeNo, InodeNo>,
    choices: Choices,
    differences: u64,
    unread: u64,
}

impl Diff<'_> {
    fn all(&mut self) -> Result<()> {
        let unread: Vec<Difference> = self.compared.unread_lines().collect();
        self.unread += self.compared.unread.saturating_sub(casemate_blockdev::u64_of(unread.len()));
        unread.into_iter().try_for_each(|line| self.tell(line))?;
        if !self.options.files_only {
            self.cut_off()?;
            self.superblock()?;
        }
        self.walk(walk::Pass::Files)?;
        if self.options.files_only {
            return Ok(());
        }
        let owners = self.owners()?;
        let hidden = self.hidden(&owners);
        self.hidden_inodes(&hidden, walk::Pass::Files)?;
        self.groups()?;
        let areas = self.areas(&owners)?;
        // Places are told by inodes and maps, and the order of names by directories.
        let by_storage = [Area::Inodes, Area::Directories, Area::Maps];
        if !self.is_direct || by_storage.into_iter().any(|area| areas.has(area)) {
            self.walk(walk::Pass::Storage)?;
            self.hidden_inodes(&hidden, walk::Pass::Storage)?;
        }
        areas.lines().try_for_each(|line| self.tell(line))
    }

    /// Tells of devices that end before their file systems: what is missing may be equal or not. Of files that lack something,
    /// the walk tells.
    fn cut_off(&mut self) -> Result<()> {
        for side in Side::BOTH {
            if let Some(error) = self.sides[side.index()].cut_off() {
                self.tell(Difference::Unread { side, path: None, error })?;
            }
        }
        Ok(())
    }

    /// Tells a difference.
    fn tell(&mut self, difference: Difference) -> Result<()> {
        self.choices.note(&difference);
        match difference {
            Difference::Unread { .. } => self.unread += 1,
            _ => self.differences += 1,
        }
        (self.found)(&difference)
    }

    /// Tells that something of a file can't be read; other errors end the work.
    fn skip(&mut self, side: Side, path: &[u8], error: Error) -> Result<()> {
        if error.is_interrupt() {
            return Err(error);
        }
        self.tell(Difference::Unread { side, path: Some(path.to_vec()), error })
    }

    /// Fields of the primary superblocks, as they lie on the devices.
    fn superblock(&mut self) -> Result<()> {
        let mut raw = [[0; SUPERBLOCK_SIZE]; 2];
        for (side, raw) in Side::BOTH.into_iter().zip(&mut raw) {
            let read = self.sides[side.index()].device.read_at(raw, SUPERBLOCK_OFFSET);
            if let Err(error) = read {
                return self.skip(side, b"superblock", error);
            }
        }
        for fields::FieldDifference { name, values } in fields::differences([&raw[0], &raw[1]]) {
            self.tell(Difference::Superblock { field: name, values })?;
        }
        Ok(())
    }
}
