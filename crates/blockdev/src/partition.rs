//! Partition tables: GPT, and the older one of the master boot record.
//!
//! Sources: UEFI specification 2.10, chapter 5 (GPT and the protective MBR); the MBR as everybody has it.

use std::fmt;
use std::str::FromStr;

use crate::code::ErrorKind;
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::signatures::{self, ZEROS};
use crate::usize_of;
use crate::uuid::Uuid;

/// A partition: where it lies, and what the table says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The partition's number, as the kernel counts: 1 for `sda1`.
    pub number: u32,
    /// The partition's first byte on the disk.
    pub start: u64,
    /// The partition's length in bytes.
    pub len: u64,
    /// The partition's type: a GUID, or the two hex digits of an MBR type.
    pub kind: String,
    /// The partition's name, which only GPT has.
    pub name: String,
    /// The partition's own UUID, which only GPT has.
    pub uuid: Option<Uuid>,
}

/// A partition table that was read.
#[derive(Clone, Debug)]
pub struct PartitionTable {
    /// The partitions in the order of their numbers.
    pub partitions: Vec<Partition>,
    /// Whether the table is a GPT.
    pub is_gpt: bool,
    /// Whether the primary GPT is damaged or lost, and the partitions are those of the backup GPT at the device's end.
    pub is_backup: bool,
    /// The table's own identifier: the disk's GUID of a GPT, the eight hex digits of an MBR's disk signature; empty if it has none.
    pub id: String,
    /// Bytes of the disk, by the place that a GPT has for its other copy, if it has one.
    pub disk_size: Option<u64>,
    /// Damage that hides further partitions: a record of the chain of logical ones.
    pub damage: Option<String>,
}

impl PartitionTable {
    /// The identifier that Linux has for a partition of this table (`PARTUUID`): the GUID of a GPT's entry, or the MBR's disk
    /// signature and the number in hex; empty if the table has none.
    pub fn partition_id(&self, partition: &Partition) -> String {
        match (partition.uuid, self.is_gpt || self.id.is_empty()) {
            (Some(uuid), _) => uuid.to_string(),
            (None, true) => String::new(),
            (None, false) => format!("{}-{:02x}", self.id, partition.number),
        }
    }
}

/// A partition, as people name it: by its number, its own UUID, or the name that the table has for it.
///
/// ```
/// use casemate_blockdev::PartitionId;
///
/// assert_eq!("2".parse(), Ok(PartitionId::Number(2)));
/// assert_eq!("root".parse(), Ok(PartitionId::Name("root".to_owned())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionId {
    /// The number, counted from 1.
    Number(u32),
    /// The UUID of the partition, which only GPT has.
    Uuid(Uuid),
    /// The name (PARTLABEL), which only GPT has.
    Name(String),
}

impl FromStr for PartitionId {
    type Err = String;

    /// Digits are a number; a name that looks like a number or a UUID is not reached by its name.
    fn from_str(text: &str) -> std::result::Result<PartitionId, String> {
        let number = || text.parse().ok().filter(|number| *number > 0).map(PartitionId::Number);
        match text {
            "" => Err("give a partition's number, UUID or name".to_owned()),
            _ if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                number().ok_or_else(|| format!("'{text}': partitions are counted from 1"))
            }
            _ if text.len() == 36 && Uuid::from_text(text).is_ok() => {
                Uuid::from_text(text).map(PartitionId::Uuid).map_err(|error| error.to_string())
            }
            _ => Ok(PartitionId::Name(text.to_owned())),
        }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartitionId::Number(number) => number.fmt(f),
            PartitionId::Uuid(uuid) => uuid.fmt(f),
            PartitionId::Name(name) => f.write_str(name),
        }
    }
}

/// The partitions of `device`, in the order of their numbers.
///
/// # Errors
/// Errors of [`partition_table`].
pub fn partitions(device: &dyn BlockDevice) -> Result<Vec<Partition>> {
    partition_table(device).map(|table| table.partitions)
}

/// The partition table of `device`.
///
/// # Errors
/// `Argument` when there is no table at the beginning; `Corrupt` when the GPT and its backup are damaged, or the device is
/// shorter than a table. That it is shorter than a partition is not an error: it may be cut off.
pub fn partition_table(device: &dyn BlockDevice) -> Result<PartitionTable> {
    let mut sector = [0; 512];
    if device.size() < 512 {
        return Err(invalid("the device is too short for a partition table"));
    }
    device.read_at(&mut sector, 0)?;
    if sector[510..] != [0x55, 0xaa] {
        return Err(Error::argument(match backup_gpt(device) {
            Ok(Some(table)) => without_beginning(&table),
            _ => "there is no partition table".to_owned(),
        }));
    }
    let is_gpt = entries(&sector).any(|entry| entry.kind == 0xee);
    match is_gpt {
        true => gpt(device),
        // The code of a boot sector may lie where the entries would be. The kernel goes by the same bytes.
        false if !signatures::is_mbr(&sector) => {
            Err(Error::argument("the device begins with a boot sector, and not with a partition table"))
        }
        false => {
            let id = le32(&sector, 440);
            let id = if id == 0 { String::new() } else { format!("{id:08x}") };
            let (partitions, damage) = mbr(device, &sector);
            Ok(PartitionTable { partitions, is_gpt: false, is_backup: false, id, disk_size: None, damage })
        }
    }
}

/// The partition table by which `device` is read: that at its beginning, or the backup GPT at its end where the beginning holds
/// nothing known. [`PartitionTable::is_backup`] says so: who only reads may go by it, who writes may not.
///
/// # Errors
/// Errors of [`partition_table`]. Where another format is at the beginning, the backup GPT may be left over from before.
pub fn table_to_read(device: &dyn BlockDevice) -> Result<PartitionTable> {
    let refused = match partition_table(device) {
        Err(error) if error.kind() == ErrorKind::Argument => error,
        read => return read,
    };
    let is_unknown = || signatures::device(device).is_ok_and(|what| matches!(what, None | Some(ZEROS)));
    match backup_gpt(device) {
        Ok(Some(table)) if is_unknown() => Ok(table),
        _ => Err(refused),
    }
}

/// Text on a device whose beginning is lost: where its partitions were. Who reads one there decides that the table still holds,
/// as the device may have been used for something else since.
fn without_beginning(table: &PartitionTable) -> String {
    let part = |part: &Partition| format!("partition {} at {} ({} bytes)", part.number, part.start, part.len);
    let mut places: Vec<String> = table.partitions.iter().take(8).map(part).collect();
    if table.partitions.len() > places.len() {
        places.push(format!("{} more", table.partitions.len() - places.len()));
    }
    let places = if places.is_empty() { "no partition".to_owned() } else { places.join(", ") };
    format!(
        "there is no partition table at the beginning; a backup GPT is at the end, by which there is {places}: read a partition by its \
         offset, or restore the table with gdisk"
    )
}

/// The partitions of the backup GPT at the end of `device`, if there is a sound one, whatever the beginning holds. The device may
/// have been used for something else since.
///
/// # Errors
/// `Io`; `Corrupt` for a partition that ends before it begins.
pub fn backup_gpt(device: &dyn BlockDevice) -> Result<Option<PartitionTable>> {
    for sector in [512, 4096] {
        if let Some(place) = device.size().checked_sub(sector)
            && let Some(table) = gpt_at(device, 0, place, sector)?
        {
            return Ok(Some(PartitionTable { is_backup: true, ..table }));
        }
    }
    Ok(None)
}

/// Fault of the backup of a GPT that was read at the beginning of `device`, where that says that it lies; `None` for one that has the
/// same partitions.
///
/// # Errors
/// Errors of [`gpt_at`].
pub fn backup_fault(device: &dyn BlockDevice, table: &PartitionTable) -> Result<Option<&'static str>> {
    for sector in [512, 4096] {
        if let Some(place) = table.disk_size.and_then(|size| size.checked_sub(sector))
            && let Some(backup) = gpt_at(device, 0, place, sector)?
        {
            let is_same = (&backup.id, &backup.partitions) == (&table.id, &table.partitions);
            return Ok((!is_same).then_some("has other partitions, or is of another disk"));
        }
    }
    Ok(Some("is damaged or missing"))
}

/// Sectors of an MBR have this size, whatever the device's.
const SECTOR: u64 = 512;

/// Logical partitions that are followed: a chain may be a circle.
const MOST_LOGICAL: u32 = 128;

/// Bytes of a GPT's entries: the usual table has 16 KiB.
const MOST_GPT_BYTES: u32 = 1 << 20;

struct MbrEntry {
    kind: u8,
    start: u64,
    sectors: u64,
}

impl MbrEntry {
    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    fn partition(&self, number: u32, base: u64) -> Partition {
        Partition {
            number,
            start: (base + self.start) * SECTOR,
            len: self.sectors * SECTOR,
            kind: format!("{:02x}", self.kind),
            name: String::new(),
            uuid: None,
        }
    }
}

/// The four entries of a boot record; unused ones have kind 0.
fn entries(sector: &[u8; 512]) -> impl Iterator<Item = MbrEntry> + use<'_> {
    sector[446..510].chunks_exact(16).map(|entry| MbrEntry {
        kind: entry[4],
        start: le32(entry, 8).into(),
        sectors: le32(entry, 12).into(),
    })
}

/// The partitions of an MBR, and the damage that ends the chain of logical ones before its end.
fn mbr(device: &dyn BlockDevice, sector: &[u8; 512]) -> (Vec<Partition>, Option<String>) {
    let mut list = Vec::new();
    let mut extended = None;
    for (number, entry) in (1..).zip(entries(sector)) {
        if entry.kind == 0 || entry.sectors == 0 {
            continue;
        }
        if entry.is_extended() {
            extended = Some(entry.start);
        }
        list.push(entry.partition(number, 0));
    }
    let Some(base) = extended else { return (list, None) };
    // Logical partitions: a chain of boot records, each with one partition and the place of the next record.
    let mut at = base;
    for number in 5..5 + MOST_LOGICAL {
        let mut sector = [0; 512];
        let read = device.read_at(&mut sector, at * SECTOR);
        if read.is_err() || sector[510..] != [0x55, 0xaa] {
            let why =
                read.map_or_else(|error| error.text().into_owned(), |()| "it has no signature".to_owned());
            let place = at * SECTOR;
            let text =
                format!("the record of logical partition {number}, at byte {place}, can't be read: {why}");
            return (list, Some(text));
        }
        let mut records = entries(&sector);
        if let Some(entry) = records.next().filter(|entry| entry.kind != 0 && entry.sectors != 0) {
            list.push(entry.partition(number, at));
        }
        match records.next().filter(|entry| entry.is_extended()) {
            Some(next) => at = base + next.start,
            None => return (list, None),
        }
    }
    (
        list,
        Some(format!(
            "there are more than {MOST_LOGICAL} logical partitions, or their records lead in a circle"
        )),
    )
}

fn gpt(device: &dyn BlockDevice) -> Result<PartitionTable> {
    for sector in [512, 4096] {
        if let Some(table) = gpt_at(device, 0, sector, sector)? {
            return Ok(table);
        }
    }
    backup_gpt(device)?.ok_or_else(|| invalid("the GPT and its copy are damaged"))
}

/// The GPT whose header lies at byte `place` of a device, of a disk that begins at byte `base` of it and has sectors of `sector`
/// bytes; `None` if there is none, or its checksums are wrong. Partitions are counted from the disk's first byte.
///
/// # Errors
/// `Io`; `Corrupt` for a partition that ends before it begins.
pub fn gpt_at(
    device: &dyn BlockDevice,
    base: u64,
    place: u64,
    sector: u64,
) -> Result<Option<PartitionTable>> {
    let mut header = [0; 512];
    if place.checked_add(512).is_none_or(|end| end > device.size()) {
        return Ok(None);
    }
    device.read_at(&mut header, place)?;
    let header_size = usize_of(le32(&header, 12));
    if &header[..8] != b"EFI PART" || !(92..=512).contains(&header_size) {
        return Ok(None);
    }
    let expected = le32(&header, 16);
    header[16..20].fill(0);
    if crc32(&header[..header_size]) != expected {
        return Ok(None);
    }
    let (count, entry_size) = (le32(&header, 80), le32(&header, 84));
    let bytes = count.checked_mul(entry_size).filter(|bytes| *bytes <= MOST_GPT_BYTES);
    let (Some(bytes), 128..) = (bytes, entry_size) else { return Ok(None) };
    let start = le64(&header, 72).checked_mul(sector).and_then(|start| start.checked_add(base));
    let Some(start) = start else { return Ok(None) };
    let mut table = vec![0; usize_of(bytes)];
    if start.checked_add(bytes.into()).is_none_or(|end| end > device.size()) {
        return Ok(None);
    }
    device.read_at(&mut table, start)?;
    if crc32(&table) != le32(&header, 88) {
        return Ok(None);
    }
    let mut list = Vec::new();
    for (number, entry) in (1..).zip(table.chunks_exact(usize_of(entry_size))) {
        let (first, last) = (le64(entry, 32), le64(entry, 40));
        if entry[..16] == [0; 16] {
            continue;
        }
        let guid = |at: usize| entry[at..].first_chunk().map(|bytes| Uuid::from_guid(*bytes));
        let kind = guid(0).map(|kind| kind.to_string()).unwrap_or_default();
        let start = first.checked_mul(sector);
        let len = last.checked_sub(first).and_then(|len| len.checked_add(1)?.checked_mul(sector));
        let (Some(start), Some(len)) = (start, len) else {
            return Err(invalid(&format!("partition {number} ends before it begins")));
        };
        let name: Vec<u16> =
            entry[56..128].chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
        let end = name.iter().position(|unit| *unit == 0).unwrap_or(name.len());
        let name = String::from_utf16_lossy(&name[..end]);
        list.push(Partition { number, start, len, kind, name, uuid: guid(16) });
    }
    let id = header[56..].first_chunk().map(|bytes| Uuid::from_guid(*bytes).to_string());
    let id = id.unwrap_or_default();
    let last = le64(&header, 24).max(le64(&header, 32));
    let disk_size = last.checked_add(1).and_then(|sectors| sectors.checked_mul(sector));
    Ok(Some(PartitionTable { partitions: list, is_gpt: true, is_backup: false, id, disk_size, damage: None }))
}

/// The CRC-32 of zip files, GPT and our overlays.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

fn invalid(text: &str) -> Error {
    Error::corrupt(text.to_owned())
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    /// Linux names partitions of an MBR after the disk signature.
    #[test]
    fn partitions_have_the_ids_that_linux_gives_them() {
        let mut disk = vec![0; 64 * 512];
        disk[..512].copy_from_slice(&record(&[(0x83, 1, 9), (0x82, 12, 9)]));
        let id = |disk: &[u8]| {
            let table = partition_table(&MemoryDevice::new(disk.to_vec())).unwrap();
            table.partition_id(&table.partitions[1])
        };
        assert_eq!(id(&disk), "");
        disk[440..444].copy_from_slice(&[0xef, 0xcd, 0xab, 0x89]);
        assert_eq!(id(&disk), "89abcdef-02");
    }

    fn record(entries: &[(u8, u32, u32)]) -> [u8; 512] {
        let mut sector = [0; 512];
        for (slot, (kind, start, sectors)) in entries.iter().enumerate() {
            let at = 446 + 16 * slot;
            sector[at + 4] = *kind;
            sector[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
            sector[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
        }
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        sector
    }

    #[test]
    fn primary_and_logical_partitions() {
        let mut disk = vec![0; 100 * 512];
        disk[..512].copy_from_slice(&record(&[(0x83, 1, 9), (0, 0, 0), (0x05, 20, 80)]));
        disk[20 * 512..21 * 512].copy_from_slice(&record(&[(0x83, 1, 9), (0x05, 10, 20)]));
        disk[30 * 512..31 * 512].copy_from_slice(&record(&[(0x82, 2, 8)]));
        let list = partitions(&MemoryDevice::new(disk.clone())).unwrap();
        let found: Vec<_> = list.iter().map(|p| (p.number, p.start / 512, p.len / 512, &*p.kind)).collect();
        assert_eq!(found, [(1, 1, 9, "83"), (3, 20, 80, "05"), (5, 21, 9, "83"), (6, 32, 8, "82")]);
        // A chain that leads back to itself ends.
        disk[30 * 512..31 * 512].copy_from_slice(&record(&[(0x82, 2, 8), (0x05, 0, 20)]));
        assert!(partitions(&MemoryDevice::new(disk.clone())).unwrap().len() < 200);
        disk[..512].copy_from_slice(&record(&[(0x83, 50, 60)]));
        // One that passes the end is there all the same: the disk may be cut off.
        let list = partitions(&MemoryDevice::new(disk)).unwrap();
        assert_eq!((list.len(), list[0].start, list[0].len), (1, 50 * 512, 60 * 512));
    }

    /// A disk with one partition, its table and the copy of it.
    fn gpt_disk(sector: usize) -> Vec<u8> {
        let sectors = 64;
        let mut disk = vec![0; sectors * sector];
        disk[..512].copy_from_slice(&record(&[(0xee, 1, 63)]));
        let mut table = vec![0; 128 * 128];
        let entry = &mut table[128..256];
        entry[..4].copy_from_slice(&[0xaf, 0x3d, 0xc6, 0x0f]);
        entry[32..40].copy_from_slice(&40u64.to_le_bytes());
        entry[40..48].copy_from_slice(&49u64.to_le_bytes());
        entry[56..58].copy_from_slice(b"r\0");
        let table_sectors = table.len() / sector;
        for (place, table_at) in [(1, 2), (sectors - 1, sectors - 1 - table_sectors)] {
            let mut header = [0; 92];
            header[..8].copy_from_slice(b"EFI PART");
            header[12] = 92;
            header[72..80].copy_from_slice(&(table_at as u64).to_le_bytes());
            header[80..84].copy_from_slice(&128u32.to_le_bytes());
            header[84..88].copy_from_slice(&128u32.to_le_bytes());
            header[88..92].copy_from_slice(&crc32(&table).to_le_bytes());
            let crc = crc32(&header);
            header[16..20].copy_from_slice(&crc.to_le_bytes());
            disk[place * sector..place * sector + 92].copy_from_slice(&header);
            disk[table_at * sector..][..table.len()].copy_from_slice(&table);
        }
        disk
    }

    #[test]
    fn gpt_with_its_copy() {
        for sector in [512, 4096] {
            let mut disk = gpt_disk(sector);
            let expected = Partition {
                number: 2,
                start: 40 * sector as u64,
                len: 10 * sector as u64,
                kind: "0fc63daf-0000-0000-0000-000000000000".to_owned(),
                name: "r".to_owned(),
                uuid: Some(Uuid::from_bytes([0; 16])),
            };
            assert_eq!(
                partitions(&MemoryDevice::new(disk.clone())).unwrap(),
                std::slice::from_ref(&expected)
            );
            // The header, or an entry.
            for at in [sector + 80, 2 * sector + 128 + 32] {
                disk[at] ^= 1;
                assert_eq!(
                    partitions(&MemoryDevice::new(disk.clone())).unwrap(),
                    std::slice::from_ref(&expected)
                );
            }
            let table = partition_table(&MemoryDevice::new(disk.clone())).unwrap();
            assert!(table.is_gpt && table.is_backup);
            // Without the first sectors nothing leads to the backup but its place.
            let mut headless = disk.clone();
            headless[..2 * sector].fill(0);
            let headless = MemoryDevice::new(headless);
            assert_eq!(backup_gpt(&headless).unwrap().unwrap().partitions, std::slice::from_ref(&expected));
            let table = table_to_read(&headless).unwrap();
            assert!(table.is_backup && table.partitions == std::slice::from_ref(&expected));
            // What has begun there since is not read by what is left of the table.
            let mut reused = disk.clone();
            reused[..2 * sector].fill(0);
            reused[..6].copy_from_slice(b"LUKS\xba\xbe");
            assert!(table_to_read(&MemoryDevice::new(reused)).is_err());
            let error = partitions(&headless).unwrap_err().to_string();
            let place = format!("partition 2 at {} ({} bytes)", expected.start, expected.len);
            assert!(error.contains("a backup GPT is at the end") && error.contains(&place), "{error}");
            let last = disk.len() - sector;
            disk[last + 80] ^= 1;
            let error = partitions(&MemoryDevice::new(disk)).unwrap_err();
            assert_eq!(error.to_string(), "the GPT and its copy are damaged");
        }
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
