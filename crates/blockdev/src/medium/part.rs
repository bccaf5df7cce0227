//! Parts of media: windows, and partitions.

use std::ops::Range;
use std::sync::Arc;

use super::{File, InWindow, Medium};
use crate::lease::Extent;
use crate::{
    AtFile, BlockDevice, Error, FileDevice, Partition, PartitionId, PartitionTable, Result, Uuid, Window,
    journal, mark, os, table_to_read,
};

/// Bytes of a loop device's sector, at most.
const LARGEST_SECTOR: u64 = 4096;

impl Medium {
    /// The bytes from `offset` on: `len` of them, or all.
    ///
    /// # Errors
    /// `Argument` if they pass the end, or if in-place work on the part of a file that begins there is unfinished, by the journal
    /// beside it.
    pub fn window(mut self, offset: u64, len: Option<u64>) -> Result<Medium> {
        let size = self.top.size();
        let len = len.unwrap_or(size.saturating_sub(offset));
        if (offset, len) == (0, size) {
            return Ok(self);
        }
        let below = Arc::clone(&self.top);
        self.top = Arc::new(Window::new(self.top, offset, len).at(&self.name)?);
        if offset + len < size {
            self.missing = Some(0);
        }
        // OK to add: both lie within the device.
        let range = offset..offset + len;
        self.extent = self.extent.part(range.clone());
        self.windows.push((below, range));
        if let Some(file) = &mut self.file {
            // Both lie within the file.
            file.start = file.start.saturating_add(offset);
            if let Some(id) = file.id.filter(|_| file.is_finished && offset > 0 && self.laid.is_none()) {
                journal::check(mark::journals(id, &file.path, file.start)).at(&self.name)?;
            }
        }
        Ok(self)
    }

    /// Bytes behind the medium's end that a [`window`](Medium::window) with a length leaves out of the file, device or partition that
    /// it lies in. A partition table gives an end of its own: a partition leaves out nothing, nor does a window that ends with one. A
    /// loop device is a window of its file.
    pub fn left_out(&self) -> u64 {
        let ends_with = |one: &Partition, range: &Range<u64>| {
            one.start <= range.start && one.start.checked_add(one.len) == Some(range.end)
        };
        let free = self.free_windows(ends_with);
        free.fold(0, |bytes, (below, range)| bytes.saturating_add(below.size().saturating_sub(range.end)))
    }

    /// Bytes before the medium's beginning that a [`window`](Medium::window) leaves out of the file, device or partition that it lies
    /// in. A partition table gives a beginning of its own, as [`Medium::left_out`] says of the end.
    pub fn left_out_before(&self) -> u64 {
        self.windows_without_partition().fold(0, |bytes, (_, range)| bytes.saturating_add(range.start))
    }

    /// The windows that the medium lies in, the innermost first, down to one that begins where a partition does.
    fn windows_without_partition(&self) -> impl Iterator<Item = InWindow> {
        self.free_windows(|one, range| one.start == range.start)
    }

    /// The windows that the medium lies in, the innermost first, as far as nothing was laid on them.
    pub(crate) fn windows_outwards(&self) -> impl Iterator<Item = InWindow> {
        let outermost = if self.laid.is_none() { self.loop_window() } else { None };
        self.windows_above().to_vec().into_iter().rev().chain(outermost)
    }

    /// The windows that the medium lies in, the innermost first, down to one that a partition gives: what lies around that is left out
    /// by none of them.
    fn free_windows(
        &self,
        is_given: impl Fn(&Partition, &Range<u64>) -> bool,
    ) -> impl Iterator<Item = InWindow> {
        let is_free = move |(below, range): &InWindow| {
            // Where there is no table, no partition is named.
            let all = table_to_read(&**below).map(|table| table.partitions).unwrap_or_default();
            !all.iter().any(|one| is_given(one, range))
        };
        self.windows.iter().rev().cloned().chain(self.loop_window()).take_while(is_free)
    }

    /// The window of a file that a loop device is, on which the medium lies.
    fn loop_window(&self) -> Option<InWindow> {
        let file = self.file.as_ref().filter(|file| file.is_block_device)?;
        let below = os::below(file.id?).into_iter().find(|below| below.backing.is_some())?;
        let backing = FileDevice::open(&below.backing?).ok()?;
        let end = below.range.start.checked_add(file.whole.size())?;
        let rest = backing.size().checked_sub(end).filter(|_| backing.id().is_ok_and(|id| id == below.id))?;
        // A part of a sector at the end belongs to no device.
        let end = if rest < LARGEST_SECTOR { backing.size() } else { end };
        let backing: Arc<dyn BlockDevice> = Arc::new(backing);
        Some((backing, below.range.start..end))
    }

    /// The windows that the medium lies in, as far down as something was laid on them.
    pub(crate) fn windows_above(&self) -> &[InWindow] {
        &self.windows[self.laid.unwrap_or(0)..]
    }

    /// Whether something was laid on the medium, such as a cipher.
    pub fn has_layer(&self) -> bool {
        self.laid.is_some()
    }

    /// The windows that the medium's uppermost layer lies in, the outermost first; none without a layer.
    pub(crate) fn windows_below(&self) -> &[InWindow] {
        &self.windows[..self.laid.unwrap_or(0)]
    }

    /// The windows that the medium lies in, the outermost first, also those below what was laid on it.
    pub fn windows(&self) -> impl Iterator<Item = Range<u64>> {
        self.windows.iter().map(|(_, range)| range.clone())
    }

    /// Bytes of the medium that are missing behind its end: of a partition that its table has there
    /// ([`Medium::partition_so_far`]); `None` where nothing but the end of the file says where the medium ends.
    pub fn missing(&self) -> Option<u64> {
        self.missing
    }

    /// The whole file or block device that the medium lies in, to be read: not its window alone, and without what was laid on
    /// it.
    ///
    /// # Errors
    /// `Argument` for a medium that lies in none.
    pub fn disk(&self) -> Result<Medium> {
        let Some(file) = &self.file else {
            return Err(Error::argument("it does not lie in a file or block device").at(&self.name));
        };
        let file = File { start: 0, ..file.clone() };
        let (top, extent) = (Arc::clone(&file.whole), Extent::medium(Some(&file.path)));
        let disk = Medium {
            file: Some(file),
            top,
            extent,
            laid: None,
            windows: Vec::new(),
            missing: None,
            ..self.clone()
        };
        Ok(disk.make_read_only())
    }

    /// A partition of GPT or MBR, counted from 1.
    ///
    /// # Errors
    /// `Argument` if there is none of this number; `Corrupt` for a damaged table, or a partition that passes the image's end.
    pub fn partition(self, number: u32) -> Result<Medium> {
        let (medium, found) = self.find_partition(number)?;
        medium.part(&found)
    }

    /// The partition of a GPT that has this UUID.
    ///
    /// # Errors
    /// `Argument` if there is none; `Corrupt` as [`Medium::partition`].
    pub fn partition_of_uuid(self, uuid: Uuid) -> Result<Medium> {
        let table = self.table()?;
        match table.partitions.iter().find(|partition| partition.uuid == Some(uuid)) {
            Some(found) => self.by(&table).part(found),
            None => Err(Error::argument(format!("no partition has the UUID {uuid}")).at(&self.name)),
        }
    }

    /// A partition of GPT or MBR by number, UUID or name; with `so_far` as far as it is there, for an image that may be
    /// truncated.
    ///
    /// # Errors
    /// `Argument` if there is none, or if several partitions have the name; `Corrupt` as [`Medium::partition`].
    pub fn partition_named(self, id: &PartitionId, so_far: bool) -> Result<Medium> {
        let number = match id {
            PartitionId::Number(number) => *number,
            PartitionId::Uuid(uuid) => {
                let wanted = |partition: &Partition| partition.uuid == Some(*uuid);
                self.only_partition(wanted, || format!("no partition has the UUID {uuid}"))?
            }
            PartitionId::Name(name) => {
                let wanted = |partition: &Partition| partition.name == *name;
                self.only_partition(wanted, || format!("no partition has the name '{name}'"))?
            }
        };
        if so_far { self.partition_so_far(number) } else { self.partition(number) }
    }

    /// The number of the one partition that is wanted.
    fn only_partition(&self, wanted: impl Fn(&Partition) -> bool, none: impl Fn() -> String) -> Result<u32> {
        let found = self.table()?.partitions;
        let numbers: Vec<u32> =
            found.iter().filter(|partition| wanted(partition)).map(|partition| partition.number).collect();
        let text = match numbers[..] {
            [number] => return Ok(number),
            [] => none(),
            _ => {
                let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
                format!("partitions {} have this name or UUID; give the number", numbers.join(", "))
            }
        };
        Err(Error::argument(text).at(&self.name))
    }

    /// A partition of an image that may be truncated: as far as the partition is there.
    ///
    /// # Errors
    /// Errors of [`Medium::partition`], where nothing of the partition is there.
    pub fn partition_so_far(self, number: u32) -> Result<Medium> {
        let (medium, found) = self.find_partition(number)?;
        match medium.top.size().checked_sub(found.start) {
            None | Some(0) => medium.part(&found),
            Some(there) => {
                let len = found.len.min(there);
                let mut part = medium.window(found.start, Some(len))?;
                part.missing = Some(found.len - len);
                Ok(part)
            }
        }
    }

    fn part(self, found: &Partition) -> Result<Medium> {
        if found.start.checked_add(found.len).is_none_or(|end| end > self.top.size()) {
            let number = found.number;
            let text = format!("partition {number} passes the end of the image, which is cut off");
            return Err(Error::corrupt(text).at(self.name()));
        }
        let mut part = self.window(found.start, Some(found.len))?;
        part.missing = Some(0);
        Ok(part)
    }

    /// The partition table. One that is only the backup is not written by.
    fn table(&self) -> Result<PartitionTable> {
        let table = table_to_read(self.top()).at(&self.name)?;
        if table.is_backup && !self.is_read_only() {
            let text = "the primary partition table is lost; by the backup GPT at the end partitions are only read; restore the table \
                        before anything is written: gdisk reads the backup, and its command w writes both";
            return Err(Error::argument(text).at(&self.name));
        }
        Ok(table)
    }

    /// The medium, which notes that its parts are those of a backup GPT.
    fn by(mut self, table: &PartitionTable) -> Medium {
        self.is_by_backup_table |= table.is_backup;
        self
    }

    fn find_partition(self, number: u32) -> Result<(Medium, Partition)> {
        let mut table = self.table()?;
        if let Some(at) = table.partitions.iter().position(|partition| partition.number == number) {
            let found = table.partitions.swap_remove(at);
            return Ok((self.by(&table), found));
        }
        let all: Vec<_> = table.partitions.iter().map(|partition| partition.number.to_string()).collect();
        let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        let damage = table.damage.map_or_else(String::new, |damage| format!("; {damage}"));
        Err(Error::argument(format!("there is no partition {number}; there are: {all}{damage}"))
            .at(self.name()))
    }
}

#[cfg(test)]
mod tests {
    use crate::MemoryDevice;

    use super::*;

    /// A disk of 64 KiB with a partition from byte 8192 to byte 24576.
    fn disk() -> Medium {
        let mut bytes = vec![0; 65536];
        bytes[450] = 0x83;
        bytes[454] = 16;
        bytes[458] = 32;
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        Medium::over("disk", Arc::new(MemoryDevice::new(bytes)))
    }

    #[test]
    fn a_window_leaves_out_bytes_unless_a_table_ends_it() {
        let left_out = |offset, len| disk().window(offset, len).unwrap().left_out();
        assert_eq!((disk().left_out(), disk().partition(1).unwrap().left_out()), (0, 0));
        assert_eq!((left_out(8192, None), left_out(8192, Some(57344)), left_out(0, Some(65536))), (0, 0, 0));
        assert_eq!((left_out(0, Some(60000)), left_out(8192, Some(8192))), (5536, 49152));
        // The partition, and its end.
        assert_eq!((left_out(8192, Some(16384)), left_out(12288, Some(12288))), (0, 0));
        let within = |offset, len| disk().partition(1).unwrap().window(offset, len).unwrap();
        assert_eq!((within(4096, None).left_out(), within(0, Some(4096)).left_out()), (0, 12288));
        let so_far = |len| {
            let bytes: Vec<u8> = {
                let mut bytes = vec![0; len];
                disk().top().read_at(&mut bytes, 0).unwrap();
                bytes
            };
            Medium::over("disk", Arc::new(MemoryDevice::new(bytes))).partition_so_far(1).unwrap()
        };
        for (len, missing) in [(65536, 0), (24576, 0), (20000, 4576)] {
            let part = so_far(len);
            assert_eq!((part.top().size(), part.missing()), (16384 - missing, Some(missing)));
        }
        assert_eq!(so_far(20000).window(512, None).unwrap().missing(), Some(4576));
        assert_eq!(so_far(20000).window(512, Some(512)).unwrap().missing(), Some(0));
        assert_eq!((disk().missing(), disk().window(512, None).unwrap().missing()), (None, None));
        let twice = disk().window(0, Some(32768)).unwrap().window(512, Some(512)).unwrap();
        assert_eq!(twice.left_out(), 64512);
    }

    #[test]
    fn a_window_leaves_out_bytes_before_it_unless_a_table_begins_it() {
        let window = |offset, len| disk().window(offset, len).unwrap();
        let before = |offset, len| window(offset, len).left_out_before();
        assert_eq!((disk().left_out_before(), before(0, Some(512)), before(512, None)), (0, 0, 512));
        // The partition, and its beginning.
        assert_eq!(
            (before(8192, Some(16384)), before(8192, Some(512)), before(12288, Some(512))),
            (0, 0, 12288)
        );
        let part = || disk().partition(1).unwrap();
        let within = |offset| part().window(offset, None).unwrap().left_out_before();
        assert_eq!((part().left_out_before(), within(4096)), (0, 4096));
        assert_eq!(window(512, None).window(1024, None).unwrap().left_out_before(), 1536);
    }
}
