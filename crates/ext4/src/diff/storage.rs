//! How and where two files of one name are stored: numbers, places, and the order of names.

use std::ops::ControlFlow;

use casemate_blockdev::{u64_of, usize_of};

use super::Diff;
use super::difference::{Difference, Side};
use super::runs::Runs;
use crate::error::Result;
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::format::inode_fields::{self, CHECKSUM_FIELD, FieldClass, InodeDifference};
use crate::format::value::FieldValue;
use crate::read::map::is_fast_symlink;

impl Diff<'_> {
    /// Tells how two files are stored in other ways.
    pub fn storage(&mut self, path: &[u8], inodes: [&Inode; 2]) -> Result<()> {
        let numbers = inodes.map(|inode| inode.number().get());
        if numbers[0] != numbers[1] {
            let values = numbers.map(|number| FieldValue::Number(number.into()));
            self.stored(path, "inode", values)?;
        }
        let fields = inode_fields::differences(inodes);
        // A checksum that differs follows from what it is of, and from the UUID.
        let has_others = fields.iter().any(|field| field.name != CHECKSUM_FIELD);
        let is_derived = has_others
            || numbers[0] != numbers[1]
            || inodes[0].block_area() != inodes[1].block_area()
            || inodes[0].xattr_area() != inodes[1].xattr_area()
            || self.has_other_seeds();
        for InodeDifference { name, class, values } in fields {
            if class == FieldClass::Storage && !(name == CHECKSUM_FIELD && is_derived) {
                self.stored(path, name, values)?;
            }
        }
        self.places(path, inodes)?;
        if inodes[0].xattr_area() != inodes[1].xattr_area() {
            self.attribute_area(path, inodes)?;
        }
        if inodes.iter().all(|inode| inode.is_dir()) {
            self.order(path, inodes)?;
        }
        Ok(())
    }

    fn stored(&mut self, path: &[u8], field: &'static str, values: [FieldValue; 2]) -> Result<()> {
        self.tell(Difference::Storage { path: path.to_vec(), field, values })
    }

    /// Whether checksums have other seeds.
    fn has_other_seeds(&self) -> bool {
        let [a, b] = self.sides.map(|side| {
            let superblock = side.fs.superblock();
            (superblock.uuid, superblock.checksum_seed, superblock.has_metadata_csum())
        });
        a != b
    }

    /// Tells where two files lie in other blocks: the first run that does.
    fn places(&mut self, path: &[u8], inodes: [&Inode; 2]) -> Result<()> {
        let has_map = |inode: &Inode| match inode.kind() {
            FileType::Regular | FileType::Directory => !inode.has(InodeFlags::INLINE_DATA),
            FileType::Symlink => !is_fast_symlink(inode) && !inode.has(InodeFlags::INLINE_DATA),
            _ => false,
        };
        if inodes[0].kind() != inodes[1].kind() {
            return Ok(());
        }
        let differs = inodes[0].block_area() != inodes[1].block_area();
        if !inodes.into_iter().all(has_map) {
            // Inline contents and targets are compared as such; bytes behind them are not.
            let is_other = inodes.into_iter().any(has_map);
            if is_other {
                let form = |inode: &Inode| match has_map(inode) {
                    true => "in blocks",
                    false => "in the inode",
                };
                let values = inodes.map(|inode| FieldValue::Text(form(inode).to_owned()));
                return self.stored(path, "contents", values);
            }
            let is_device = matches!(inodes[0].kind(), FileType::CharacterDevice | FileType::BlockDevice);
            if differs && !is_device {
                let values = inodes.map(|inode| FieldValue::Bytes(inode.block_area().to_vec()));
                return self.stored(path, "block area", values);
            }
            return Ok(());
        }
        let sides = self.sides;
        let mut runs = [Runs::new(&sides[0].fs, inodes[0]), Runs::new(&sides[1].fs, inodes[1])];
        let mut at = 0;
        'runs: loop {
            let mut found = [None, None];
            for side in Side::BOTH {
                match runs[side.index()].at_or_after(at) {
                    Ok(run) => found[side.index()] = run,
                    Err(error) if error.is_interrupt() => return Err(error),
                    // Bytes tell of a damaged map what its runs can't.
                    Err(_) => break 'runs,
                }
            }
            let starts = found.map(|run| run.map(|run| (run.start.max(at), run.place(run.start.max(at)))));
            match (starts, found) {
                ([None, None], _) => break,
                ([Some(a), Some(b)], [Some(run_a), Some(run_b)]) if a == b => {
                    at = run_a.end.min(run_b.end);
                }
                _ => {
                    let shown = [0, 1].map(|side| {
                        let block_size = u64::from(sides[side].fs.layout().block_size);
                        let run = found[side].map(|run| {
                            let first = run.place(run.start.max(at)) / block_size;
                            let last = first + (run.end - run.start.max(at)).div_ceil(block_size) - 1;
                            if first == last { format!("{first}") } else { format!("{first}-{last}") }
                        });
                        FieldValue::Text(run.unwrap_or_default())
                    });
                    return self.stored(path, "blocks", shown);
                }
            }
        }
        if differs {
            let values = inodes.map(|inode| FieldValue::Bytes(inode.block_area().to_vec()));
            return self.stored(path, "map", values);
        }
        Ok(())
    }

    /// Tells of attributes in inodes that are the same, and arranged in another way.
    fn attribute_area(&mut self, path: &[u8], inodes: [&Inode; 2]) -> Result<()> {
        let mut xattrs = Vec::new();
        for side in Side::BOTH {
            match self.sides[side.index()].fs.xattrs(inodes[side.index()]) {
                Ok(mut found) => {
                    found.sort();
                    xattrs.push(found);
                }
                Err(error) if error.is_interrupt() => return Err(error),
                Err(_) => return Ok(()),
            }
        }
        if xattrs[0] != xattrs[1] {
            return Ok(());
        }
        let values = inodes.map(|inode| FieldValue::Bytes(inode.xattr_area().to_vec()));
        self.stored(path, "attribute area", values)
    }

    /// Tells of a directory whose names are the same, and have another order on the disk.
    fn order(&mut self, path: &[u8], inodes: [&Inode; 2]) -> Result<()> {
        let mut orders = Vec::new();
        for side in Side::BOTH {
            let mut names: Vec<Vec<u8>> = Vec::new();
            let read = self.sides[side.index()].fs.for_each_entry(inodes[side.index()], |entry| {
                names.push(entry.name);
                Ok(ControlFlow::Continue(()))
            });
            match read {
                Ok(()) => orders.push(names),
                Err(error) if error.is_interrupt() => return Err(error),
                Err(_) => return Ok(()),
            }
        }
        let [a, b] = &orders[..] else { return Ok(()) };
        if a == b {
            return Ok(());
        }
        let mut sorted = [a.clone(), b.clone()];
        sorted.iter_mut().for_each(|names| names.sort_unstable());
        if sorted[0] != sorted[1] {
            // Lines on its names say why.
            return Ok(());
        }
        let first = a.iter().zip(b).position(|(a, b)| a != b).map_or(0, u64_of);
        let values = [a, b].map(|names| {
            let name = names.get(usize_of(first)).cloned().unwrap_or_default();
            FieldValue::Text(String::from_utf8_lossy(&name).into_owned())
        });
        self.stored(path, "order of names", values)
    }
}
