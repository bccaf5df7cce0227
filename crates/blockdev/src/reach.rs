//! Parts of disks that are about to change as a whole, and partitions that they would go over.
//!
//! An offset without a size reaches to the end of the disk. Who gives a partition's first byte as the offset means that
//! partition, and not those behind it: work that changes all of a medium asks [`Medium::check_partitions`] first.
//!
//! An offset may also lie in the middle of something: work that makes noise of plain data asks [`Medium::divided`], and what is
//! made anew asks [`Medium::enclosing`].

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use crate::medium::InWindow;
use crate::{
    Advice, AtFile, BlockDevice, Code, Error, Events, Medium, Partition, Result, Window, partitions,
    signatures, table_to_read, target,
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

    /// Something known that begins before some bytes of the medium, there or around its windows, and reaches into them: a file system, a
    /// volume, a partition; also a partition that begins among them, where none begins with them. Around a window that a partition
    /// begins nothing is looked for.
    ///
    /// # Errors
    /// `Io`.
    pub fn enclosing(&self, bytes: Range<u64>) -> Result<Option<Enclosing>> {
        let find = || match begun_before(self.top(), &bytes)? {
            None => begun_around(self.windows_outwards(), bytes),
            found => Ok(found),
        };
        find().at(self.name())
    }

    /// Something known that begins before the place of a layer that was laid on windows, such as a cipher, and reaches into it. `None` for a
    /// medium without layers.
    ///
    /// # Errors
    /// `Io`.
    pub fn enclosing_layer(&self) -> Result<Option<Enclosing>> {
        let windows = self.windows_below();
        let len = windows.last().map_or(0, |(_, window)| window.end - window.start);
        begun_around(windows.iter().rev().cloned(), 0..len).at(self.name())
    }

    /// Overwrites all signatures of the medium from byte `start` on, as [`signatures::erase`] does. Those that are counted from the
    /// end stay where the medium is a part of something larger: the backup of the disk's GPT, the superblock of an array.
    ///
    /// # Errors
    /// Errors of [`Medium::check_no_layer`]; `Io`.
    pub fn erase_signatures(&self, start: u64, events: &dyn Events) -> Result<()> {
        self.check_no_layer_in(start..self.top().size())?;
        let (named, len) = (self.named(), self.top().size().saturating_sub(start));
        let rest = Window::<&dyn BlockDevice>::new(&named, start, len).at(self.name())?;
        let ends_here = !self.ends_with_table() && self.enclosing(0..self.top().size())?.is_none();
        // As the name is the file's, places are counted from its beginning, or from that of what its layers show.
        let above = self.windows_above().iter().map(|(_, window)| window.start);
        let first = above.fold(start, u64::saturating_add);
        let of = if self.has_layer() { " of its layers" } else { "" };
        signatures::erase_own(&rest, ends_here, (self.name(), first, of), events).at(self.name())
    }

    /// Refuses work in place on all bytes from `start` on that would overwrite the backup of a GPT that lies before them. Where that
    /// was overwritten before, nothing is left of it to be kept.
    ///
    /// # Errors
    /// `Argument` ([`Code::Overlap`]), which says how many bytes there are.
    pub fn check_table_at_end(&self, start: u64) -> Result<()> {
        if !ends_with_backup(self.top()) {
            return Ok(());
        }
        let own = if start > 0 { last_usable(self.top()).map(|end| end.saturating_sub(start)) } else { None };
        let room = own.or_else(|| Some(self.room_before_table()?.saturating_sub(start)));
        match room {
            None => Ok(()),
            Some(room) => {
                let text = format!(
                    "the disk has a GPT, whose backup lies at the end of the disk and would be overwritten: give the part of the disk a \
                     size of at most {room} bytes"
                );
                Err(Error::coded(Code::Overlap, text).at(self.name()))
            }
        }
    }

    /// Whether the medium's end is that of a disk that has a GPT before the medium, and its backup there.
    fn ends_with_table(&self) -> bool {
        self.room_before_table().is_some()
    }

    /// Bytes of the medium up to the backup of a GPT that lies before it, if it reaches into that.
    fn room_before_table(&self) -> Option<u64> {
        let mut first = 0_u64;
        for (below, window) in self.windows_outwards() {
            first = first.saturating_add(window.start);
            if window.end < below.size() {
                return None;
            }
            if window.start > 0
                && let Some(end) = last_usable(&*below)
            {
                return Some(end.saturating_sub(first));
            }
        }
        None
    }

    /// Something known that some bytes of the medium are a part of, and not all: what [`Medium::enclosing`] finds, and what reaches
    /// behind their end. Bytes that begin with a partition table are a part of all partitions. Bytes in a partition may begin anywhere
    /// in it, but have to reach to its end.
    ///
    /// # Errors
    /// `Io`.
    pub fn divided(&self, bytes: Range<u64>) -> Result<Option<Enclosing>> {
        let find = || -> Result<Option<Enclosing>> {
            let mut range = bytes;
            let mut found = divided(self.top(), &range)?;
            for (below, window) in self.windows_outwards() {
                let is_whole = range.end >= window.end - window.start;
                range = range.start.saturating_add(window.start)..range.end.saturating_add(window.start);
                if let (None, Some(partition)) = (&found, partition_of(&*below, &window)) {
                    return Ok((!is_whole).then(|| Enclosing::partition(&partition)));
                }
                if found.is_some() {
                    break;
                }
                found = divided(&*below, &range)?;
            }
            Ok(found)
        };
        find().at(self.name())
    }
}

/// Contents around windows, the innermost first, that begin before some bytes of the first one and reach into them.
fn begun_around(
    mut windows: impl Iterator<Item = InWindow>,
    mut bytes: Range<u64>,
) -> Result<Option<Enclosing>> {
    let mut found = None;
    while let (None, Some((below, window))) = (&found, windows.next()) {
        if partitions_of(&*below).iter().any(|one| one.start == window.start) {
            break;
        }
        bytes = bytes.start.saturating_add(window.start)..bytes.end.saturating_add(window.start);
        found = begun_before(&*below, &bytes)?;
    }
    Ok(found)
}

/// The partition that a window is.
fn partition_of(disk: &dyn BlockDevice, window: &Range<u64>) -> Option<Partition> {
    let end = |one: &Partition| one.start.saturating_add(one.len).min(disk.size());
    partitions_of(disk).into_iter().find(|one| one.start == window.start && end(one) == window.end)
}

/// Whether the last sector of a device is the backup header of a GPT.
fn ends_with_backup(device: &dyn BlockDevice) -> bool {
    let mut magic = [0; 8];
    let mut places = [512, 4096].into_iter().filter_map(|sector| device.size().checked_sub(sector));
    places.any(|at| device.read_at(&mut magic, at).is_ok() && &magic == b"EFI PART")
}

/// The byte behind the last one that partitions may have, of a device with a GPT at its beginning, which may be damaged.
fn last_usable(device: &dyn BlockDevice) -> Option<u64> {
    let mut header = [0; 56];
    let sector = [512_u64, 4096]
        .into_iter()
        .find(|at| device.read_at(&mut header, *at).is_ok() && header.starts_with(b"EFI PART"))?;
    // OK to unwrap: eight bytes.
    let last = u64::from_le_bytes(header[48..].try_into().unwrap());
    let end = last.checked_add(1).and_then(|sectors| sectors.checked_mul(sector));
    Some(end.unwrap_or(u64::MAX).min(device.size().saturating_sub(sector)))
}

/// Partitions of a device; none where there is no table that can be read.
fn partitions_of(device: &dyn BlockDevice) -> Vec<Partition> {
    table_to_read(device).map_or_else(|_| Vec::new(), |table| table.partitions)
}

/// Known contents of which some bytes are a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enclosing {
    /// Their name, such as "a LUKS volume" or "partition 2".
    pub what: Cow<'static, str>,
    /// Whether they say where they end. Others may reach anywhere.
    pub says_end: bool,
}

/// Text of what becomes of contents of which a part is changed.
impl fmt::Display for Enclosing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.says_end { "are" } else { "may be" };
        // Whatever is said of the header, the volume is what it is a part of.
        let what = if self.what == signatures::LUKS { "a LUKS volume" } else { &self.what };
        write!(f, "the data {verb} only a part of {what}: nothing reads that as a whole afterwards")
    }
}

impl Enclosing {
    fn partition(one: &Partition) -> Enclosing {
        Enclosing { what: format!("partition {}", one.number).into(), says_end: true }
    }
}

/// Contents that begin before some bytes and reach into them.
fn begun_before(device: &dyn BlockDevice, bytes: &Range<u64>) -> Result<Option<Enclosing>> {
    if bytes.start == 0 {
        return Ok(None);
    }
    let partitions = partitions_of(device);
    if !partitions.is_empty() {
        let is_in =
            |one: &&Partition| one.start < bytes.end && bytes.start < one.start.saturating_add(one.len);
        let is_one = partitions.iter().any(|one| one.start == bytes.start);
        return Ok(partitions.iter().find(is_in).filter(|_| !is_one).map(Enclosing::partition));
    }
    contents_to(device, bytes.start)
}

/// Contents that begin before some bytes, or with them, and end elsewhere.
fn divided(device: &dyn BlockDevice, bytes: &Range<u64>) -> Result<Option<Enclosing>> {
    let before = begun_before(device, bytes)?;
    if before.is_some() || bytes.end >= device.size() {
        return Ok(before);
    }
    let partitions = partitions_of(device);
    let reaches = |one: &&Partition| {
        // The table goes with the first bytes.
        (bytes.start == 0 || one.start == bytes.start) && one.start.saturating_add(one.len) > bytes.end
    };
    match partitions.is_empty() {
        true if bytes.start == 0 => contents_to(device, bytes.end),
        true => Ok(None),
        false => Ok(partitions.iter().find(reaches).map(Enclosing::partition)),
    }
}

/// Contents from the device's first byte on that hold another one.
fn contents_to(device: &dyn BlockDevice, byte: u64) -> Result<Option<Enclosing>> {
    let contents = target::beginning(device)?;
    let contents = contents.filter(|contents| ![signatures::GPT, signatures::MBR].contains(&contents.what));
    let contents = contents.filter(|contents| contents.reaches(byte));
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
    use crate::MemoryDevice;

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
        let around = |medium: Medium, from| {
            let end = medium.top().size();
            medium.divided(from..end).unwrap().map(|found| found.what.into_owned())
        };
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
            (window(MIB, Some(512)), one()),
            (window(MIB, Some(MIB)), None),
            (window(MIB, Some(MIB + 512)), None),
            (window(2 * MIB, Some(512)), Some("partition 2".to_owned())),
            (window(0, Some(512)), one()),
            (window(0, Some(2 * MIB)), Some("partition 2".to_owned())),
            (window(0, Some(3 * MIB - 512)), Some("partition 2".to_owned())),
            (window(0, Some(3 * MIB)), None),
            (part(1).window(0, Some(512)).unwrap(), one()),
            (part(1).window(512, None).unwrap(), None),
        ] {
            assert_eq!(around(medium, 0), found);
        }
        assert_eq!((around(disk(), MIB + 512), around(disk(), 2 * MIB)), (one(), None));
        // What is written over may be less than the partition that it begins with.
        assert!(window(MIB, Some(512)).enclosing(0..512).unwrap().is_none());
        assert!(disk().enclosing(0..512).unwrap().is_none());
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
        let first = |len: u64| around(file().window(0, Some(len)).unwrap(), 0);
        assert_eq!((first(3 * MIB), first(3 * MIB - 1)), (None, Some(signatures::EXT.into())));
    }

    #[test]
    fn what_is_erased_is_told_by_its_place_in_the_disk() {
        #[derive(Default)]
        struct Notes(std::sync::Mutex<Vec<String>>);

        impl Events for Notes {
            fn note(&self, text: &str) {
                self.0.lock().unwrap().push(text.to_owned());
            }
        }

        const MIB: u64 = 1 << 20;
        // The superblock of an array, of metadata 0.90, at its place before the end.
        let at = 4 * MIB - (64 << 10);
        let told = |part: Medium, start, place: u64| {
            let top = part.top();
            top.write_at(b"\xfc\x4e\x2b\xa9", place).unwrap();
            let notes = Notes::default();
            part.erase_signatures(start, &notes).unwrap();
            let mut magic = [0; 4];
            part.top().read_at(&mut magic, place).unwrap();
            assert_eq!(magic, [0; 4]);
            notes.0.into_inner().unwrap()
        };
        let expected = |place: u64, of: &str| {
            vec![format!("disk: erased the signature of a member of an MD array at byte {place}{of}")]
        };
        let bare = || Medium::over("disk", Arc::new(MemoryDevice::new(vec![0; 4 << 20])));
        assert_eq!(told(bare(), 0, at), expected(at, ""));
        assert_eq!(told(bare().window(MIB, None).unwrap(), 0, at - MIB), expected(at, ""));
        assert_eq!(told(bare().window(MIB, None).unwrap(), MIB, at - MIB), expected(at, ""));
        let inner = bare().window(MIB, None).unwrap().window(512, None).unwrap();
        let place = 46 * (64 << 10);
        assert_eq!(told(inner, 512, 512 + place), expected(MIB + 1024 + place, ""));
        // Bytes of a layer are none of the disk.
        let laid = bare().laid_reading(Arc::new(MemoryDevice::new(vec![0; 4 << 20])));
        assert_eq!(told(laid.window(MIB, None).unwrap(), 0, at - MIB), expected(at, " of its layers"));
    }

    #[test]
    fn a_table_at_the_end_stays_where_its_beginning_does() {
        const MIB: u64 = 1 << 20;
        let last = 4 * MIB - 512;
        let erased = |part: &dyn Fn(Medium) -> Medium| {
            let disk = disk();
            for at in [512, last] {
                disk.write_at(b"EFI PART", at).unwrap();
            }
            let part = part(disk.clone());
            let goes_over = part.windows().any(|window| window.start > 0 && window.end == 4 * MIB);
            assert_eq!(part.check_table_at_end(0).is_err(), goes_over);
            part.erase_signatures(0, &crate::NoEvents).unwrap();
            let mut magic = [0; 8];
            disk.top().read_at(&mut magic, last).unwrap();
            &magic != b"EFI PART"
        };
        assert!(erased(&|disk| disk));
        for (start, len) in
            [(3 * MIB, None), (3 * MIB, Some(MIB)), (2 * MIB + 512, None), (last, None), (0, Some(last))]
        {
            assert!(!erased(&|disk| disk.window(start, len).unwrap()), "{start}");
        }
    }
}
