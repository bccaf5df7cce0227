//! A file system that gets more blocks, or fewer.
//!
//! [`resize`] is the way in. A file system grows in one commit: new groups, and descriptors in the room that is reserved
//! for them, or else in the new groups themselves (feature meta_bg). It shrinks in steps: what lies behind the new end is
//! moved, file by file, and the file system is sound after each; one commit then moves the end.
//!
//! The device keeps its size: before it grows, and after it shrinks, that is for the caller.

mod bad_blocks;
mod cut;
mod evacuate;
mod grow;
mod inside;
mod renumber;
mod reserve;
mod shape;

use std::sync::Arc;

use casemate_blockdev::BlockDevice;
use casemate_providers::Work;

use crate::check::{CheckOptions, check, require_sound};
use crate::edit::files::Files;
use crate::edit::{WriteOptions, Writer};
use crate::error::{Error, Result, no_space};
use crate::format::layout::Layout;
use crate::read::fs::OpenOptions;
use crate::resize::shape::Shape;

pub use shape::least_blocks;

/// The new size of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeTo {
    /// So many bytes, or a little less: a last group that is too small for its own structures is left out.
    Bytes(u64),
    /// As few as its files need where they can be put.
    Least,
}

/// Result of a change of size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResizeReport {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks before.
    pub blocks_before: u64,
    /// Blocks now.
    pub blocks: u64,
    /// Blocks of files and their maps that were moved.
    pub blocks_moved: u64,
    /// Inodes that got another number.
    pub inodes_moved: u64,
}

impl ResizeReport {
    /// Bytes of the file system.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }
}

/// Gives the file system on `device` another size. From byte `zeros_from` on the device reads as zeros, if that is known.
///
/// # Errors
/// Errors of [`Writer::open`]; `Argument` for a size that is no file system's, or too small for what is in it; `StorageFull`
/// if files could not be put together closely enough; `Corrupt` for damage of the superblock, and for what a check finds before a file system shrinks;
/// `Unsupported` for features with which its size can't change, by name. What was moved before an error stays moved, and the
/// file system is sound.
pub fn resize(
    device: Arc<dyn BlockDevice>,
    options: WriteOptions<'_>,
    to: ResizeTo,
    zeros_from: Option<u64>,
    work: &Work<'_>,
) -> Result<ResizeReport> {
    let mut report = ResizeReport::default();
    let again = || WriteOptions { open: options.open.clone(), recovery: options.recovery.clone(), ..options };
    loop {
        let mut pass = Pass::open(&device, again())?;
        if report.block_size == 0 {
            report.block_size = pass.layout.block_size;
            report.blocks_before = pass.layout.blocks;
        }
        let before = pass.layout.blocks;
        let wanted = match to {
            ResizeTo::Bytes(bytes) if bytes > device.size() => {
                let size = device.size();
                return Err(Error::argument(format!("{bytes} bytes on a device of {size} bytes")));
            }
            ResizeTo::Bytes(bytes) => {
                Some(Shape::of(pass.writer.fs(), bytes / u64::from(pass.layout.block_size))?)
            }
            ResizeTo::Least => None,
        };
        let shape = match wanted {
            Some(shape) if shape.blocks >= before => {
                pass.grow(shape, zeros_from)?;
                shape
            }
            Some(shape) => {
                pass.require_sound(work)?;
                shape.require_room(pass.writer.fs())?;
                pass.shrink(shape, &mut report)?
            }
            None => {
                pass.require_sound(work)?;
                let least = evacuate::to_least(&mut pass.writer, 0, &mut report)?;
                pass.cut(least)?
            }
        };
        report.blocks = shape.blocks;
        // Groups that are gone leave room where their tables were. Now more can be moved there.
        if wanted == Some(shape) || shape.blocks == before {
            return match wanted {
                Some(wanted) if wanted != shape => Err(no_space("blocks")),
                _ => Ok(report),
            };
        }
    }
}

/// A file system that changes its size once.
struct Pass {
    writer: Writer,
    layout: Layout,
    open: OpenOptions,
}

impl Pass {
    fn open(device: &Arc<dyn BlockDevice>, options: WriteOptions<'_>) -> Result<Pass> {
        let open = OpenOptions { replay_journal: false, ..options.open.clone() };
        let mut writer = Writer::open(Arc::clone(device), options)?;
        shape::check(writer.fs())?;
        require_sound(writer.fs())?;
        if writer.has_recovery() {
            // A journal is found by what changes here.
            writer.leave_journal()?;
        }
        let layout = *writer.fs().layout();
        Ok(Pass { writer, layout, open })
    }

    fn grow(&mut self, shape: Shape, zeros_from: Option<u64>) -> Result<()> {
        if shape.blocks > self.layout.blocks {
            self.set_end(|files| grow::grow(files, shape, zeros_from))?;
        }
        Ok(())
    }

    /// Makes it so small, or as small as it can become now. The size that it has then.
    fn shrink(&mut self, shape: Shape, report: &mut ResizeReport) -> Result<Shape> {
        match evacuate::evacuate(&mut self.writer, shape, report) {
            Ok(()) => self.cut(shape),
            Err(error) if evacuate::is_full(&error) => {
                let least = evacuate::to_least(&mut self.writer, shape.blocks, report)?;
                self.cut(least)
            }
            Err(error) => Err(error),
        }
    }

    fn cut(&mut self, shape: Shape) -> Result<Shape> {
        if shape.blocks < self.layout.blocks {
            self.set_end(|files| cut::cut(files, shape))?;
        }
        Ok(shape)
    }

    /// Moves the end in one commit, or changes nothing if the file system would not be one then.
    fn set_end(&mut self, change: impl FnOnce(&mut Files) -> Result<()>) -> Result<()> {
        self.writer.operation(|files| {
            change(files)?;
            inside::require_inside(files)
        })?;
        self.writer.commit()
    }

    /// Refuses a damaged file system: what bitmaps call free behind the new end is lost.
    fn require_sound(&self, work: &Work<'_>) -> Result<()> {
        let options = CheckOptions { open: self.open.clone(), verity: None };
        let report = check(Arc::clone(self.writer.fs().device()), &options, work)?;
        match report.faults.into_iter().next() {
            Some(finding) => {
                let error = finding.into_error();
                Err(error.map_text(|text| format!("the file system is damaged; repair it first: {text}")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use casemate_blockdev::FileDevice;
    use casemate_testkit::{run, tempdir, tool};

    use super::*;
    use crate::error::Corrupt;
    use crate::read::fs::Ext4;
    use crate::transaction::recovery_file::RecoveryFile;
    use crate::units::GroupNo;

    /// Nothing is written that has a structure of a group that stays behind the end, whatever chose that.
    #[test]
    fn no_end_is_set_before_a_structure() {
        let (Some(mke2fs), Some(e2fsck)) = (tool("mke2fs"), tool("e2fsck")) else { return };
        let folder = tempdir().unwrap();
        let image = folder.path().join("image");
        run(Command::new(mke2fs)
            .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-O", "^has_journal"])
            .arg(&image)
            .arg("16M"));
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open_writable(&image).unwrap());
        let recovery = Some(RecoveryFile::new(folder.path().join("redo")));
        let options = WriteOptions { recovery, ..WriteOptions::default() };
        let mut pass = Pass::open(&device, options).unwrap();
        // The bitmap of the first group lies in the second one.
        let moved = pass.writer.operation(|files| {
            let space = files.inodes().space_mut();
            let (to, _) = space.allocate(crate::alloc::Goal::Near(GroupNo::new(1)), 1)?;
            let descriptor = space.descriptor(GroupNo::PRIMARY)?;
            let (from, others) = (descriptor.fields().block_bitmap(), descriptor);
            let bytes = space.transaction().with(from, <[u8]>::to_vec)?;
            space.transaction_mut().create(to, bytes);
            space.edit_descriptor(GroupNo::PRIMARY, |descriptor| {
                descriptor.set_places(to, others.fields().inode_bitmap(), others.fields().inode_table());
            })?;
            space.free_own(from, 1)?;
            Ok(to)
        });
        let moved = moved.unwrap();
        pass.writer.commit().unwrap();
        run(Command::new(&e2fsck).arg("-fn").arg(&image));
        let shape = Shape { blocks: 8193, groups: 1 };
        assert!(pass.cut(shape).is_err());
        let inodes = pass.layout.inodes_per_group;
        let only_the_end = |files: &mut Files| {
            files.inodes().transaction().edit_superblock(|superblock| {
                superblock.set_size(shape.blocks, inodes);
                Ok(())
            })
        };
        let error = pass.set_end(only_the_end).unwrap_err();
        let text = error.to_string();
        assert!(Corrupt::of(&error).is_some() && text.contains(&moved.to_string()), "{text}");
        drop(pass);
        run(Command::new(&e2fsck).arg("-fn").arg(&image));
        assert_eq!(Ext4::open(device, &OpenOptions::default()).unwrap().layout().blocks, 16384);
    }
}
