//! Parts of disks that are about to change as a whole, and partitions that they would go over.
//!
//! An offset without a size reaches to the end of the disk. Who gives a partition's first byte as the offset means that
//! partition, and not those behind it: work that changes all of a medium asks [`Medium::check_partitions`] first.
//!
//! An offset may also lie in the middle of something: work that makes noise of plain data asks [`Medium::enclosing`].

use std::borrow::Cow;
use std::ops::Range;

use crate::medium::InWindow;
use crate::{
    Advice, AtFile, BlockDevice, Code, Error, Medium, Partition, Result, partitions, table_to_read, target,
};

impl Medium {
    /// Refuses a window that begins where a partition of its disk does and goes over the end of that partition.
    ///
    /// # Errors
    /// `Argument` ([`Code::Overlap`]), which names the partition.
    pub fn check_partitions(&self) -> Result<()> {
        let windows = self.windows_above();
        let each =
            |(nth, (below, range)): (usize, &InWindow)| check_down(&windows[..nth], &**below, range.clone());
        windows.iter().enumerate().try_for_each(each).at(self.name())
    }

    /// Refuses bytes of the medium that begin where a partition does and go over the end of that partition.
    ///
    /// # Errors
    /// `Argument` ([`Code::Overlap`]), which names the partition.
    pub fn check_partitions_in(&self, range: Range<u64>) -> Result<()> {
        check_down(self.windows_above(), self.top(), range).at(self.name())
    }

    /// Something known that begins before a byte of the medium, there or around its windows, and reaches behind it: a file system, a
    /// volume, a partition; also a partition that begins behind the byte, where no partition begins at it. Around a window that a
    /// partition begins nothing is looked for.
    ///
    /// # Errors
    /// `Io`.
    pub fn enclosing(&self, byte: u64) -> Result<Option<Enclosing>> {
        let find = || -> Result<Option<Enclosing>> {
            let mut range = byte..self.top().size();
            let mut found = enclosing(self.top(), &range)?;
            for (below, window) in self.windows_without_partition() {
                if found.is_some() {
                    break;
                }
                range = range.start.saturating_add(window.start)..range.end.saturating_add(window.start);
                found = enclosing(&*below, &range)?;
            }
            Ok(found)
        };
        find().at(self.name())
    }
}

/// Contents that begin before some bytes and reach into them, or a partition among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enclosing {
    /// Their name, such as "a LUKS volume" or "partition 2".
    pub what: Cow<'static, str>,
    /// Whether they say where they end. Others may reach anywhere.
    pub says_end: bool,
}

fn enclosing(device: &dyn BlockDevice, range: &Range<u64>) -> Result<Option<Enclosing>> {
    if range.start == 0 {
        return Ok(None);
    }
    if let Ok(table) = table_to_read(device) {
        let is_in = |one: &&Partition| {
            let end = one.start.saturating_add(one.len);
            one.start != range.start && one.start < range.end && range.start < end
        };
        let all = table.partitions;
        let is_one = all.iter().any(|one| one.start == range.start);
        let found = all.iter().find(is_in).filter(|_| !is_one);
        return Ok(
            found.map(|one| Enclosing { what: format!("partition {}", one.number).into(), says_end: true })
        );
    }
    let contents = target::beginning(device)?.filter(|contents| contents.reaches(range.start));
    Ok(contents.map(|contents| Enclosing { what: contents.what.into(), says_end: contents.end.is_some() }))
}

/// Checks a range of a device, and of all devices that it is a window of.
fn check_down(windows: &[InWindow], device: &dyn BlockDevice, mut range: Range<u64>) -> Result<()> {
    check(device, &range)?;
    for (below, window) in windows.iter().rev() {
        range = range.start.saturating_add(window.start)..range.end.saturating_add(window.start);
        check(&**below, &range)?;
    }
    Ok(())
}

fn check(disk: &dyn BlockDevice, range: &Range<u64>) -> Result<()> {
    // At byte 0 a table lies, and no partition.
    if range.start == 0 {
        return Ok(());
    }
    let size = range.end.saturating_sub(range.start);
    // Where there is no table that can be read, nobody means a partition.
    let mut all = partitions(disk).unwrap_or_default();
    all.retain(|partition| partition.start == range.start);
    if all.iter().any(|partition| partition.len == size) {
        return Ok(());
    }
    let Some(Partition { number, start, len, .. }) = all.iter().find(|partition| partition.len < size) else {
        return Ok(());
    };
    let text = format!(
        "partition {number} begins at offset {start} and has {len} bytes; {size} bytes from there on would change, other \
         partitions too"
    );
    Err(Error::coded(Code::Overlap, text).advise(Advice::OnePartition(*number)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{MemoryDevice, signatures};

    /// A disk of 4 MiB with an MBR: partitions of 1 MiB at 1 MiB and at 2 MiB.
    fn disk() -> Medium {
        let mut bytes = vec![0; 4 << 20];
        for (number, start) in [2048u32, 4096].into_iter().enumerate() {
            let entry = &mut bytes[446 + 16 * number..][..16];
            entry[4] = 0x83;
            entry[8..12].copy_from_slice(&start.to_le_bytes());
            entry[12..16].copy_from_slice(&2048u32.to_le_bytes());
        }
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        Medium::over("disk", Arc::new(MemoryDevice::new(bytes)))
    }

    #[test]
    fn a_partition_s_start_is_no_place_for_more_than_the_partition() {
        const MIB: u64 = 1 << 20;
        let window = |offset, len| disk().window(offset, len).unwrap();
        for (medium, number) in [
            (window(MIB, None), 1),
            (window(2 * MIB, None), 2),
            (window(MIB, Some(MIB + 512)), 1),
            (window(MIB, None).window(512, None).unwrap(), 1),
        ] {
            let error = medium.check_partitions().unwrap_err();
            assert_eq!(error.code(), Code::Overlap, "{error}");
            assert_eq!(error.advice(), [Advice::OnePartition(number)], "{error}");
            assert!(error.to_string().starts_with(&format!("disk: partition {number} begins at")), "{error}");
        }
        for medium in [
            disk(),
            disk().partition(1).unwrap(),
            window(MIB, Some(MIB)),
            window(MIB, Some(512)),
            window(MIB + 512, None),
            window(0, Some(3 * MIB)),
            // What is laid on a window is a device of its own.
            window(MIB, None).laid_reading(Arc::new(MemoryDevice::new(vec![0; 512]))),
        ] {
            medium.check_partitions().unwrap();
        }
        assert!(disk().check_partitions_in(MIB..4 * MIB).is_err());
        disk().check_partitions_in(MIB..2 * MIB).unwrap();
        disk().check_partitions_in(0..4 * MIB).unwrap();
        // Places in a window are places on the disk.
        let behind = window(512, None);
        behind.check_partitions_in(MIB..2 * MIB).unwrap();
        assert!(behind.check_partitions_in(MIB - 512..3 * MIB).is_err());
    }

    #[test]
    fn what_a_window_lies_in_is_found() {
        const MIB: u64 = 1 << 20;
        let around =
            |medium: Medium, byte| medium.enclosing(byte).unwrap().map(|found| found.what.into_owned());
        let window = |offset, len| disk().window(offset, len).unwrap();
        let part = |number: u32| disk().partition(number).unwrap();
        let one = || Some("partition 1".to_owned());
        for (medium, found) in [
            (window(MIB + 512, None), one()),
            (window(MIB + 512, Some(512)), one()),
            // Before it, and over it.
            (window(512, Some(2 * MIB)), one()),
            (window(512, Some(512)), None),
            (disk(), None),
            (part(1), None),
            (window(MIB, Some(512)), None),
            (part(1).window(512, None).unwrap(), None),
        ] {
            assert_eq!(around(medium, 0), found);
        }
        assert_eq!((around(disk(), MIB + 512), around(disk(), MIB)), (one(), None));
        let mut bytes = vec![0; 4 << 20];
        // An ext4 file system of 3 MiB.
        bytes[1028..1032].copy_from_slice(&3072u32.to_le_bytes());
        bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
        let file = || Medium::over("file", Arc::new(MemoryDevice::new(bytes.clone())));
        let from = |offset: u64| around(file().window(offset, None).unwrap(), 0);
        assert_eq!(
            (from(512), from(3 * MIB - 512)),
            (Some(signatures::EXT.into()), Some(signatures::EXT.into()))
        );
        assert_eq!((from(3 * MIB), around(file(), MIB)), (None, Some(signatures::EXT.into())));
    }
}
