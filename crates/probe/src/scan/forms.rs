//! The structures that a search knows: by which bytes of a sector, and what must be right about the rest.

use std::sync::Arc;

use casemate_blockdev::signatures::{BTRFS, EROFS, INTEGRITY, SQUASHFS, SWAP, VERITY, XFS};
use casemate_blockdev::{BlockDevice, PartitionTable, Uuid, Window, gpt_at, usize_of};
use casemate_ext4::csum::{Checksums, Context, Subject, recipe};
use casemate_ext4::{GroupNo, Layout, SUPERBLOCK_SIZE};
use casemate_luks::{Header, luks1, luks2};
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Providers;
use casemate_verity::dm;

use super::super::{EXT, GPT, LUKS};
use crate::Superblock;

/// A structure whose bytes were found right.
#[derive(Clone, Debug)]
pub struct Form {
    /// Its first byte.
    pub at: u64,
    /// The first byte of what it is of, as it says itself; negative if that lies before the device.
    pub begins: i128,
    pub what: &'static str,
    pub role: &'static str,
    pub version: String,
    pub label: String,
    pub uuid: String,
    /// Bytes of what it is of, if it says so.
    pub len: Option<u64>,
    pub block: Option<u64>,
    pub checksum: Option<bool>,
    pub table: Option<Table>,
}

/// A partition table, and the first byte of its disk.
#[derive(Clone, Debug)]
pub struct Table {
    pub table: PartitionTable,
    pub base: i128,
}

/// Formats that a sector may be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ext,
    Luks,
    LuksSecondary,
    Verity,
    Integrity,
    Gpt,
    Lvm,
    Md,
    Xfs,
    Btrfs,
    Swap,
    Squashfs,
    Erofs,
    F2fs,
    Bcache,
    Bcachefs,
    Ntfs,
    Fat,
    ExFat,
    Iso,
    Named(&'static str),
}

impl Kind {
    /// The budget that reading it is charged to.
    pub fn cost(self) -> Option<usize> {
        match self {
            Kind::Luks | Kind::LuksSecondary => Some(0),
            Kind::Gpt => Some(1),
            _ => None,
        }
    }
}

/// Signatures at the beginning of a volume that are long enough to be believed.
const NAMED: &[(usize, &[u8], &str)] = &[
    (0, b"bluestore block device", "a Ceph BlueStore device"),
    (4, b"!Stra0tis\x86\xff\x02^\x41rh", "a Stratis pool member"),
    (0, b"dmvdo001", "a VDO volume"),
    (3, b"-FVE-FS-", "a BitLocker header"),
];

const BCACHE_MAGIC: [u8; 16] = *b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS_MAGIC: [u8; 16] = *b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";

fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from(le16(bytes, at)) | u32::from(le16(bytes, at + 2)) << 16
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    le32(bytes, at).swap_bytes()
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    le64(bytes, at).swap_bytes()
}

/// The format that a sector may be of. Nearly all are of none, and this looks at few of their bytes: at the first 8 and at
/// three other places.
#[inline]
pub fn candidate(sector: &[u8; 512]) -> Option<Kind> {
    const LUKS_MAGIC: u32 = u32::from_le_bytes(*b"LUKS");
    const SKUL: u32 = u32::from_le_bytes(*b"SKUL");
    const VERI: u32 = u32::from_le_bytes(*b"veri");
    const INTE: u32 = u32::from_le_bytes(*b"inte");
    const EFI: u32 = u32::from_le_bytes(*b"EFI ");
    const LABE: u32 = u32::from_le_bytes(*b"LABE");
    const XFSB: u32 = u32::from_le_bytes(*b"XFSB");
    const HSQS: u32 = u32::from_le_bytes(*b"hsqs");
    const CD00: u32 = u32::from_le_bytes(*b"\x01CD0");
    if le16(sector, 56) == 0xef53 && le32(sector, 24) <= 6 && le32(sector, 76) <= 1 {
        return Some(Kind::Ext);
    }
    if le64(sector, 64) == u64::from_le_bytes(*b"_BHRfS_M") {
        return Some(Kind::Btrfs);
    }
    if le64(sector, 502) == u64::from_le_bytes(*b"SWAPSPAC") {
        return Some(Kind::Swap);
    }
    let first = le32(sector, 0);
    match first {
        LUKS_MAGIC if sector[4..6] == *b"\xba\xbe" => return Some(Kind::Luks),
        SKUL if sector[4..6] == *b"\xba\xbe" => return Some(Kind::LuksSecondary),
        VERI if sector[4..8] == *b"ty\0\0" => return Some(Kind::Verity),
        INTE if sector[4..8] == *b"grt\0" => return Some(Kind::Integrity),
        EFI if sector[4..8] == *b"PART" => return Some(Kind::Gpt),
        LABE if sector[4..8] == *b"LONE" => return Some(Kind::Lvm),
        XFSB => return Some(Kind::Xfs),
        HSQS => return Some(Kind::Squashfs),
        CD00 if sector[4..7] == *b"01\x01" => return Some(Kind::Iso),
        0xa92b_4efc if le32(sector, 4) == 1 => return Some(Kind::Md),
        0xe0f5_e1e2 => return Some(Kind::Erofs),
        0xf2f5_2010 => return Some(Kind::F2fs),
        _ => {}
    }
    // A jump begins a boot sector.
    if matches!(sector[0], 0xe9 | 0xeb) && sector[510..] == [0x55, 0xaa] {
        return match &sector[3..11] {
            b"NTFS    " => Some(Kind::Ntfs),
            b"EXFAT   " => Some(Kind::ExFat),
            b"-FVE-FS-" => Some(Kind::Named("a BitLocker header")),
            _ if sector[54..57] == *b"FAT" || sector[82..87] == *b"FAT32" => Some(Kind::Fat),
            _ => None,
        };
    }
    if le32(sector, 24) == 0xf673_85c6 {
        return match &sector[24..40] {
            magic if *magic == BCACHE_MAGIC => Some(Kind::Bcache),
            magic if *magic == BCACHEFS_MAGIC => Some(Kind::Bcachefs),
            _ => None,
        };
    }
    match sector[0] {
        b'b' | b'd' => named(sector),
        _ if sector[4] == b'!' => named(sector),
        _ => None,
    }
}

fn named(sector: &[u8; 512]) -> Option<Kind> {
    let has = |(at, bytes, _): &&(usize, &[u8], &str)| sector[*at..].starts_with(bytes);
    NAMED.iter().find(has).map(|(.., what)| Kind::Named(what))
}

/// Reads the structure that a sector begins; `None` if it is none.
pub fn read_form(device: &Arc<dyn BlockDevice>, kind: Kind, sector: &[u8; 512], at: u64) -> Option<Form> {
    let read = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        device.read_at(&mut bytes, at).ok().map(|()| bytes)
    };
    match kind {
        Kind::Ext => ext(&read(at, SUPERBLOCK_SIZE)?, at),
        Kind::Luks => luks(device, at),
        Kind::LuksSecondary => luks_secondary(device, sector, at),
        Kind::Verity => verity(sector, at),
        Kind::Integrity => {
            casemate_integrity::Superblock::from_bytes(sector).ok()?;
            Some(Form::new(INTEGRITY, at, at))
        }
        Kind::Gpt => gpt(device, sector, at),
        Kind::Lvm => lvm(sector, at),
        Kind::Md => md(&read(at, 4096)?, at),
        Kind::Xfs => xfs(&read, sector, at),
        Kind::Btrfs => btrfs(&read(at, 4096)?, at),
        Kind::Swap => swap(&read, at),
        Kind::Squashfs => squashfs(sector, at),
        Kind::Erofs => erofs(sector, at),
        Kind::F2fs => f2fs(sector, at),
        Kind::Bcache | Kind::Bcachefs => {
            let what = if kind == Kind::Bcache { "a bcache device" } else { "a bcachefs file system" };
            let offset = u128::from(le64(sector, 16)).checked_mul(512).filter(|offset| *offset == 4096)?;
            let begins = i128::from(at) - i128::try_from(offset).ok()?;
            Some(Form { begins, uuid: uuid(sector, 56), ..Form::new(what, at, at) })
        }
        Kind::Ntfs => ntfs(&read, sector, at),
        Kind::Fat => fat(&read, sector, at),
        Kind::ExFat => exfat(&read, sector, at),
        Kind::Iso => {
            let blocks = le32(sector, 80);
            let is_same = blocks == be32(sector, 84) && le16(sector, 128) == 2048;
            let begins = i128::from(at) - 32_768;
            let len = Some(u64::from(blocks) * 2048);
            is_same.then(|| Form { begins, len, ..Form::new("an ISO 9660 file system", at, at) })
        }
        Kind::Named(what) => Some(Form::new(what, at, at)),
    }
}

impl Form {
    fn new(what: &'static str, at: u64, begins: u64) -> Form {
        Form {
            at,
            begins: begins.into(),
            what,
            role: "primary",
            version: String::new(),
            label: String::new(),
            uuid: String::new(),
            len: None,
            block: None,
            checksum: None,
            table: None,
        }
    }
}

fn uuid(bytes: &[u8], at: usize) -> String {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| Uuid::from_bytes(*bytes).to_string()).unwrap_or_default()
}

fn label(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim_end().to_owned()
}

/// A superblock of ext2, ext3 or ext4: its numbers fit each other, and it lies where a copy of its group does. A wrong checksum is
/// told: a primary superblock that is damaged a little says most.
fn ext(bytes: &[u8], at: u64) -> Option<Form> {
    let superblock = Superblock::from_bytes(bytes).ok()?;
    let layout = Layout::new(&superblock).ok()?;
    let offset = layout.superblock_offset(GroupNo::new(superblock.group.into()))?;
    let crc = Crc32c::new(Providers::default().cpu());
    let checksum = match Checksums::new(crc, &superblock) {
        Ok(checksums) if checksums.covers(Subject::Superblock) => {
            let recipe = recipe(Subject::Superblock);
            Some(checksums.compute(recipe, &Context::default(), bytes) == checksums.stored(recipe, bytes))
        }
        _ => None,
    };
    let is_primary = superblock.group == 0;
    // Nothing else vouches for a copy.
    if !is_primary && checksum == Some(false) {
        return None;
    }
    let block_size = u64::from(superblock.block_size);
    Some(Form {
        begins: i128::from(at) - i128::from(offset),
        role: if is_primary { "primary" } else { "backup" },
        version: version(&superblock).to_owned(),
        label: superblock.label(),
        uuid: Uuid::from_bytes(superblock.uuid).to_string(),
        len: superblock.blocks.checked_mul(block_size),
        block: (!is_primary).then_some(offset / block_size),
        checksum,
        ..Form::new(EXT, at, at)
    })
}

fn version(superblock: &Superblock) -> &'static str {
    use casemate_ext4::{Compat, Incompat};
    match (superblock.incompat.has(Incompat::EXTENTS), superblock.compat.has(Compat::HAS_JOURNAL)) {
        (true, _) => "ext4",
        (false, true) => "ext3",
        (false, false) => "ext2",
    }
}

/// A primary header of LUKS1 or LUKS2.
fn luks(device: &Arc<dyn BlockDevice>, at: u64) -> Option<Form> {
    let rest = Window::new(device, at, device.size() - at).ok()?;
    match Header::read(&rest, &Providers::default()).ok()? {
        Header::Luks1(luks1::Header { uuid, .. }) => {
            Some(Form { uuid, version: "1".to_owned(), ..Form::new(LUKS, at, at) })
        }
        Header::Luks2(header) => matches!(header.copies()[0], luks2::CopyState::Valid(_))
            .then(|| luks2_form(&header, at, at.into())),
    }
}

fn luks2_form(header: &luks2::Header, at: u64, begins: i128) -> Form {
    Form {
        begins,
        version: "2".to_owned(),
        label: header.label.clone(),
        uuid: header.uuid.clone(),
        checksum: Some(true),
        ..Form::new(LUKS, at, at)
    }
}

/// A secondary header of LUKS2. It says how far behind the beginning it lies.
fn luks_secondary(device: &Arc<dyn BlockDevice>, sector: &[u8; 512], at: u64) -> Option<Form> {
    let offset = be64(sector, 256);
    if !(16 << 10..=4 << 20).contains(&offset) || !offset.is_power_of_two() {
        return None;
    }
    let begins = i128::from(at) - i128::from(offset);
    let header = match at.checked_sub(offset) {
        Some(start) => {
            let window = Window::new(device, start, device.size() - start).ok()?;
            let header = luks2::Header::read(&window, &Providers::default()).ok()?;
            matches!(header.copies()[1], luks2::CopyState::Valid(_)).then_some(header)?
        }
        None => {
            // The beginning lies before the device: zeros stand for it.
            let len = (offset * 2).min(device.size() - at + offset);
            // At most 8 MiB.
            let mut bytes = vec![0; usize_of(len)];
            device.read_at(&mut bytes[usize_of(offset)..], at).ok()?;
            let memory = casemate_blockdev::MemoryDevice::new(bytes);
            luks2::Header::read(&memory, &Providers::default()).ok()?
        }
    };
    Some(Form { role: "secondary", ..luks2_form(&header, at, begins) })
}

fn verity(sector: &[u8; 512], at: u64) -> Option<Form> {
    let superblock = dm::Superblock::from_bytes(sector).ok()?;
    Some(Form { uuid: superblock.uuid.to_string(), ..Form::new(VERITY, at, at) })
}

/// A header of a GPT, with its table. It says in which sector of the disk it lies.
fn gpt(device: &Arc<dyn BlockDevice>, sector: &[u8; 512], at: u64) -> Option<Form> {
    let own = le64(sector, 24);
    for size in [512, 4096_u64] {
        let Some(offset) = own.checked_mul(size) else { continue };
        let base = i128::from(at) - i128::from(offset);
        // The entries are found from the disk's beginning.
        let Ok(start) = u64::try_from(base) else { continue };
        let Some(table) = gpt_at(&**device, start, at, size).ok().flatten() else { continue };
        let uuid = table.id.clone();
        let role = if own == 1 { "primary" } else { "backup" };
        let table = Some(Table { table, base });
        return Some(Form {
            begins: base,
            role,
            uuid,
            checksum: Some(true),
            table,
            ..Form::new(GPT, at, at)
        });
    }
    None
}

/// The label of an LVM physical volume. It says in which sector it lies.
fn lvm(sector: &[u8; 512], at: u64) -> Option<Form> {
    let offset = le64(sector, 8).checked_mul(512).filter(|offset| *offset < 2048)?;
    let crc = sector[20..].iter().fold(0xf597_a6cf_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    });
    if sector[24..32] != *b"LVM2 001" || crc != le32(sector, 16) {
        return None;
    }
    let start = usize::try_from(le32(sector, 20)).ok().filter(|start| *start <= 512 - 40)?;
    let (text, len) = (label(&sector[start..start + 32]), le64(sector, start + 32));
    let begins = i128::from(at) - i128::from(offset);
    let (uuid, len, checksum) = (text, Some(len), Some(true));
    Some(Form { begins, uuid, len, checksum, ..Form::new("an LVM physical volume", at, at) })
}

/// A superblock of MD, version 1. It says how far behind the beginning it lies.
fn md(bytes: &[u8], at: u64) -> Option<Form> {
    let len = usize_of(le32(bytes, 220)).checked_mul(2)?.checked_add(256).filter(|len| *len <= 4096)?;
    let sum: u64 = (0..len / 4).filter(|word| *word != 54).map(|word| u64::from(le32(bytes, word * 4))).sum();
    let half = if len % 4 == 2 { u64::from(le16(bytes, len - 2)) } else { 0 };
    let sum = sum + half;
    let sum = sum.to_le_bytes();
    if le32(&sum, 0).wrapping_add(le32(&sum, 4)) != le32(bytes, 216) {
        return None;
    }
    let begins = i128::from(at) - i128::from(le64(bytes, 144)) * 512;
    Some(Form {
        begins,
        uuid: uuid(bytes, 16),
        label: label(&bytes[32..64]),
        checksum: Some(true),
        ..Form::new("a member of an MD array", at, at)
    })
}

/// A superblock of XFS. Each allocation group begins with one, and has its number in the sector behind it.
fn xfs(read: &impl Fn(u64, usize) -> Option<Vec<u8>>, sector: &[u8; 512], at: u64) -> Option<Form> {
    let (block, blocks) = (be32(sector, 4), be64(sector, 8));
    let (group_blocks, groups) = (be32(sector, 84), be32(sector, 88));
    let sector_size = u32::from(le16(sector, 102).swap_bytes());
    let is_size = |size: u32, most: u32| (512..=most).contains(&size) && size.is_power_of_two();
    let rooms = u64::from(group_blocks) * u64::from(groups);
    if !is_size(block, 65_536) || !is_size(sector_size, 32_768) || groups == 0 {
        return None;
    }
    if blocks == 0 || blocks > rooms || rooms - blocks >= u64::from(group_blocks) {
        return None;
    }
    let version = le16(sector, 100).swap_bytes() & 15;
    let mut checksum = None;
    if version == 5 {
        let mut bytes = read(at, usize_of(sector_size))?;
        let stored = le32(&bytes, 224);
        bytes[224..228].fill(0);
        checksum = Some(!Crc32c::new(Providers::default().cpu()).update(!0, &bytes) == stored);
    }
    let head = read(at + u64::from(sector_size), 512).filter(|head| head.starts_with(b"XAGF"));
    let group = head.map_or(0, |head| be32(&head, 8));
    if checksum == Some(false) && group != 0 || !(4..=5).contains(&version) || group >= groups {
        return None;
    }
    let offset = i128::from(group) * i128::from(group_blocks) * i128::from(block);
    Some(Form {
        begins: i128::from(at) - offset,
        role: if group == 0 { "primary" } else { "backup" },
        label: label(&sector[108..120]),
        uuid: uuid(sector, 32),
        len: blocks.checked_mul(block.into()),
        checksum,
        ..Form::new(XFS, at, at)
    })
}

/// A superblock of btrfs: at 64 KiB, 64 MiB or 256 GiB, and it says at which of them.
fn btrfs(bytes: &[u8], at: u64) -> Option<Form> {
    let own = le64(bytes, 48);
    let role = match own {
        0x1_0000 => "primary",
        0x400_0000 | 0x40_0000_0000 => "backup",
        _ => return None,
    };
    // Other kinds of checksums are not computed here.
    let checksum = (le16(bytes, 196) == 0)
        .then(|| !Crc32c::new(Providers::default().cpu()).update(!0, &bytes[32..]) == le32(bytes, 0));
    if checksum == Some(false) {
        return None;
    }
    Some(Form {
        begins: i128::from(at) - i128::from(own),
        role,
        label: label(&bytes[0x12b..0x12b + 256]),
        uuid: uuid(bytes, 0x20),
        // Of this device.
        len: Some(le64(bytes, 0xc9 + 8)),
        checksum,
        ..Form::new(BTRFS, at, at)
    })
}

/// The end of the first page of swap space; pages have several sizes.
fn swap(read: &impl Fn(u64, usize) -> Option<Vec<u8>>, at: u64) -> Option<Form> {
    [4096_u64, 16_384, 65_536].into_iter().find_map(|page| {
        let begins = (at + 512).checked_sub(page)?;
        let head = read(begins + 1024, 64)?;
        let pages = u64::from(le32(&head, 4)) + 1;
        let is_head = le32(&head, 0) == 1 && pages > 1;
        let (label, len) = (label(&head[28..44]), pages.checked_mul(page));
        is_head.then(|| Form { uuid: uuid(&head, 12), label, len, ..Form::new(SWAP, at, begins) })
    })
}

fn squashfs(sector: &[u8; 512], at: u64) -> Option<Form> {
    let (block, log, bytes) = (le32(sector, 12), u32::from(le16(sector, 22)), le64(sector, 40));
    let is_form = le16(sector, 28) == 4 && log <= 20 && 1 << log == block && bytes >= 96;
    is_form.then(|| Form { len: Some(bytes), ..Form::new(SQUASHFS, at, at) })
}

fn erofs(sector: &[u8; 512], at: u64) -> Option<Form> {
    let shift = u32::from(sector[12]);
    let len = (9..=16).contains(&shift).then(|| u64::from(le32(sector, 36)) << shift)?;
    let begins = i128::from(at) - 1024;
    let (uuid, label) = (uuid(sector, 48), label(&sector[64..80]));
    (len > 0).then(|| Form { begins, uuid, label, len: Some(len), ..Form::new(EROFS, at, at) })
}

/// A superblock of F2FS: the second one lies a block of 4096 bytes behind the first.
fn f2fs(sector: &[u8; 512], at: u64) -> Option<Form> {
    let (log_sector, log_block, blocks) = (le32(sector, 8), le32(sector, 16), le64(sector, 36));
    let is_form = le16(sector, 4) == 1 && (9..=12).contains(&log_sector) && log_block == 12 && blocks > 0;
    let begins = i128::from(at) - 1024;
    let len = blocks.checked_mul(4096);
    is_form.then(|| Form { begins, uuid: uuid(sector, 108), len, ..Form::new("an F2FS file system", at, at) })
}

/// The boot sector of NTFS, which the last sector is a copy of.
fn ntfs(read: &impl Fn(u64, usize) -> Option<Vec<u8>>, sector: &[u8; 512], at: u64) -> Option<Form> {
    let (size, per_cluster, sectors) = (u64::from(le16(sector, 11)), sector[13], le64(sector, 40));
    if !(512..=4096).contains(&size) || !size.is_power_of_two() || per_cluster == 0 {
        return None;
    }
    let len = sectors.checked_mul(size)?;
    let files = le64(sector, 48).checked_mul(size)?.checked_mul(per_cluster.into())?;
    let has_files = |begins: Option<u64>| {
        let place = begins.and_then(|begins| begins.checked_add(files));
        place.and_then(|place| read(place, 4)).is_some_and(|head| head == b"FILE")
    };
    let uuid = format!("{:016X}", le64(sector, 72));
    let form = Form { uuid, len: len.checked_add(size), ..Form::new("an NTFS file system", at, at) };
    match (has_files(Some(at)), has_files(at.checked_sub(len))) {
        (true, _) => Some(form),
        (_, true) => Some(Form { begins: i128::from(at) - i128::from(len), role: "backup", ..form }),
        _ => None,
    }
}

/// The boot sector of FAT; FAT32 has a copy of it, usually in sector 6.
fn fat(read: &impl Fn(u64, usize) -> Option<Vec<u8>>, sector: &[u8; 512], at: u64) -> Option<Form> {
    let (size, per_cluster, reserved) = (le16(sector, 11), sector[13], le16(sector, 14));
    let is_power = size.is_power_of_two() && per_cluster.is_power_of_two();
    if !(512..=4096).contains(&size) || !is_power || reserved == 0 || !(1..=2).contains(&sector[16]) {
        return None;
    }
    let is_fat32 = sector[82..87] == *b"FAT32";
    let table = u64::from(reserved) * u64::from(size);
    let has_table = |begins: Option<u64>| {
        let head = begins.and_then(|begins| begins.checked_add(table)).and_then(|place| read(place, 3));
        head.is_some_and(|head| head[0] == sector[21] && head[1] == 0xff && head[2] >= 0x0f)
    };
    let sectors = match le16(sector, 19) {
        0 => le32(sector, 32),
        few => few.into(),
    };
    let serial = le32(sector, if is_fat32 { 67 } else { 39 });
    let uuid = format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff);
    let len = Some(u64::from(sectors) * u64::from(size));
    let form = Form { uuid, len, ..Form::new("a FAT file system", at, at) };
    let back = if is_fat32 { at.checked_sub(u64::from(le16(sector, 50)) * u64::from(size)) } else { None };
    match (has_table(Some(at)), back.filter(|begins| *begins < at && has_table(Some(*begins)))) {
        (true, _) => Some(form),
        (_, Some(begins)) => Some(Form { begins: begins.into(), role: "backup", ..form }),
        _ => None,
    }
}

/// The boot sector of exFAT, which is there again 12 sectors behind.
fn exfat(read: &impl Fn(u64, usize) -> Option<Vec<u8>>, sector: &[u8; 512], at: u64) -> Option<Form> {
    let shift = u32::from(sector[108]);
    if !(9..=12).contains(&shift) {
        return None;
    }
    let table = u64::from(le32(sector, 80)) << shift;
    let has_table = |begins: Option<u64>| {
        let place = begins.and_then(|begins| begins.checked_add(table));
        place.and_then(|place| read(place, 4)).is_some_and(|head| head == [0xf8, 0xff, 0xff, 0xff])
    };
    let serial = le32(sector, 100);
    let uuid = format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff);
    let len = le64(sector, 72).checked_mul(1 << shift);
    let form = Form { uuid, len, ..Form::new("an exFAT file system", at, at) };
    let back = at.checked_sub(12 << shift);
    match (has_table(Some(at)), back.filter(|begins| has_table(Some(*begins)))) {
        (true, _) => Some(form),
        (_, Some(begins)) => Some(Form { begins: begins.into(), role: "backup", ..form }),
        _ => None,
    }
}
