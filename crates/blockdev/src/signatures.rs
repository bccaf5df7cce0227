//! Signatures: bytes at places that file systems, partition tables, encryption and archives are known by.
//!
//! A signature says what something claims to be. Nothing here is a check.

use std::{fmt, io};

use crate::{BlockDevice, Events};

/// How many bytes of a beginning are enough for every signature: whole sectors, so that none is decrypted twice.
pub const HEAD: usize = (64 << 10) + 512;

/// Nothing but zeros: no format begins so.
pub const ZEROS: &str = "zeros";
/// A file system of the ext family.
pub const EXT: &str = "an ext2, ext3 or ext4 file system";
/// A table of partitions.
pub const GPT: &str = "a GPT partition table";
/// A table of partitions, of the older kind.
pub const MBR: &str = "an MBR partition table";
/// A header of LUKS 1 or 2.
pub const LUKS: &str = "a LUKS header";
/// The second copy of a header of LUKS2, without the first.
pub const LUKS_SECOND: &str = "a LUKS2 header without its primary copy";
/// The beginning of a dm-integrity volume.
pub const INTEGRITY: &str = "a dm-integrity superblock";
/// The beginning of a hash area of dm-verity.
pub const VERITY: &str = "a dm-verity superblock";
/// An image that must be unpacked first.
pub const QCOW2: &str = "a qcow2 image";
/// An image that must be unpacked first.
pub const SPARSE: &str = "an Android sparse image";
/// An XFS file system.
pub const XFS: &str = "an XFS file system";
/// A btrfs file system.
pub const BTRFS: &str = "a btrfs file system";
/// An EROFS file system.
pub const EROFS: &str = "an EROFS file system";
/// A squashfs file system.
pub const SQUASHFS: &str = "a squashfs file system";
/// Swap space.
pub const SWAP: &str = "swap space";
const LVM: &str = "an LVM physical volume";
const MD: &str = "a member of an MD array";
const BCACHE: &str = "a bcache device";
const ZFS: &str = "a member of a ZFS pool";
const BITLOCKER: &str = "a BitLocker header";
/// Kinds of ordinary files, which programs replace as a whole.
const ARCHIVES: &[&str] =
    &["gzip data", "xz data", "zstd data", "a zip archive", "a cpio archive", "a tar archive"];

/// Bytes at a place, and what they are a sign of.
type Signature = (usize, &'static [u8], &'static str);

const SIGNATURES: &[Signature] = &[
    (0, b"LUKS\xba\xbe", LUKS),
    (0, b"verity\0\0", VERITY),
    (0, b"integrt\0", INTEGRITY),
    (3, b"-FVE-FS-", BITLOCKER),
    (0, b"XFSB", XFS),
    (0, b"hsqs", SQUASHFS),
    (1024, b"\xe2\xe1\xf5\xe0", EROFS),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (65_600, b"_BHRfS_M", BTRFS),
    (32_769, b"CD001", "an ISO 9660 file system"),
    (0, b"\x45\x3d\xcd\x28", "a cramfs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT12   ", "a FAT file system"),
    (54, b"FAT16   ", "a FAT file system"),
    (82, b"FAT32   ", "a FAT file system"),
    // Swap's signature ends the first page, whatever the size of pages is.
    (4086, b"SWAPSPACE2", SWAP),
    (16_374, b"SWAPSPACE2", SWAP),
    (65_526, b"SWAPSPACE2", SWAP),
    (0, b"LABELONE", LVM),
    (512, b"LABELONE", LVM),
    (1024, b"LABELONE", LVM),
    (1536, b"LABELONE", LVM),
    // Version 1.1 and 1.2 of its superblock; 0.90 and 1.0 lie at the end.
    (0, b"\xfc\x4e\x2b\xa9\x01\0\0\0", MD),
    (4096, b"\xfc\x4e\x2b\xa9", MD),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", BCACHE),
    (4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "a bcachefs file system"),
    (0, b"bluestore block device", "a Ceph BlueStore device"),
    (516, b"!Stra0tis\x86\xff\x02^\x41rh", "a Stratis pool member"),
    (0, b"dmvdo001", "a VDO volume"),
    (0, b"SnAp\x01\0\0\0", "a device-mapper snapshot store"),
    (32, b"NXSB", "an APFS container"),
    (32_768, b"JFS1", "a JFS file system"),
    (65_588, b"ReIsEr", "a ReiserFS file system"),
    (65_536, b"\x01\x16\x19\x70\0\0\0\x01", "a GFS2 file system"),
    (32_769, b"BEA01", "a UDF file system"),
    (4086, b"S1SUSPEND", SWAP),
    (4086, b"ULSUSPEND", SWAP),
    (4086, b"SWAP-SPACE", SWAP),
    (512, b"EFI PART", GPT),
    (4096, b"EFI PART", GPT),
    (0, b"QFI\xfb", QCOW2),
    (0, b"\x3a\xff\x26\xed", SPARSE),
    (0, b"\x1f\x8b\x08", "gzip data"),
    (0, b"\xfd7zXZ\0", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"070701", "a cpio archive"),
    (257, b"ustar", "a tar archive"),
];

/// The name of the format that a device begins with; `None` if nothing known does.
///
/// # Errors
/// Errors of reading.
pub fn device(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    // OK to cast: at most HEAD.
    let mut head = vec![0; device.size().min(HEAD as u64) as usize];
    device.read_at(&mut head, 0)?;
    Ok(known(&head))
}

/// Contents of a device, as far as a program must know that is going to overwrite it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nothing: what was looked at is zeros.
    Nothing,
    /// Data that are not known, such as those of an encrypted device without a header.
    Unknown,
    /// Contents of this name.
    Known(&'static str),
}

/// Contents of a device by signatures in all their places: at the beginning, as of most; behind it, as of the second LUKS2
/// header and ZFS; at the end, as of older MD members and the backup of a GPT. Without one it is free if its first MiB is zeros.
///
/// # Errors
/// Errors of reading.
pub fn held(device: &dyn BlockDevice) -> io::Result<Held> {
    // OK to cast: at most a MiB.
    let mut head = vec![0; device.size().min(1 << 20) as usize];
    device.read_at(&mut head, 0)?;
    let found = match of_first_mib(&head) {
        Some(what) => Some(what),
        None => elsewhere(device)?,
    };
    Ok(match found {
        Some(what) => Held::Known(what),
        None if head.iter().all(|byte| *byte == 0) => Held::Nothing,
        None => Held::Unknown,
    })
}

/// The name of the format that has a signature in the first MiB of a device, where zeros are none.
///
/// # Errors
/// Errors of reading.
pub fn beginning(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    // OK to cast: at most a MiB.
    let mut head = vec![0; device.size().min(1 << 20) as usize];
    device.read_at(&mut head, 0)?;
    Ok(of_first_mib(&head))
}

fn of_first_mib(head: &[u8]) -> Option<&'static str> {
    let begins = known(&head[..head.len().min(HEAD)]).filter(|what| *what != ZEROS);
    begins.or_else(|| is_zfs(head).then_some(ZFS))
}

/// Whether contents can be made again by the command that made them: a file system that lies in a file alone, an archive, a hash
/// area. What holds keys, or belongs to something larger, can't.
pub fn is_made_again(what: &str) -> bool {
    ![LUKS, LUKS_SECOND, INTEGRITY, BITLOCKER, GPT, MBR, LVM, MD, ZFS, BCACHE, SWAP].contains(&what)
}

/// Whether contents are those of an ordinary file, which programs replace by others of any kind.
pub fn is_archive(what: &str) -> bool {
    ARCHIVES.contains(&what)
}

/// Finds signatures that lie neither in the first bytes nor in the first MiB.
fn elsewhere(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    let size = device.size();
    // Bytes of a place; none if it is not on the device.
    let bytes = |at: Option<u64>, len: usize| -> io::Result<Vec<u8>> {
        let Some(at) = at.filter(|at| at.checked_add(len as u64).is_some_and(|end| end <= size)) else {
            return Ok(Vec::new());
        };
        let mut bytes = vec![0; len];
        device.read_at(&mut bytes, at)?;
        Ok(bytes)
    };
    // The second copy of a LUKS2 header lies where the first one ends, and says where that is.
    for at in (14..=22).map(|power| 1u64 << power) {
        let copy = bytes(Some(at), 264)?;
        if copy.starts_with(b"SKUL\xba\xbe\0\x02") && copy[256..] == at.to_be_bytes() {
            return Ok(Some(LUKS_SECOND));
        }
    }
    // MD 0.90: the last whole 64 KiB but one, in the byte order of the machine; 1.0: 8 to 12 KiB before the end.
    let old = bytes((size & !0xffff).checked_sub(0x1_0000), 8)?;
    let new = bytes((size / 512).checked_sub(16).map(|sector| (sector & !7) * 512), 8)?;
    let is_old = [b"\xfc\x4e\x2b\xa9\0\0\0\0", b"\xa9\x2b\x4e\xfc\0\0\0\0"].iter().any(|magic| old == *magic);
    if is_old || new == b"\xfc\x4e\x2b\xa9\x01\0\0\0" {
        return Ok(Some(MD));
    }
    // The last two of four labels.
    const LABEL: u64 = 256 << 10;
    for back in [1, 2] {
        let label = (size / LABEL).checked_sub(back).map(|label| label * LABEL);
        if is_zfs(&bytes(label, LABEL as usize)?) {
            return Ok(Some(ZFS));
        }
    }
    // The backup of a GPT, in the last sector.
    for sector in [512, 4096] {
        if bytes(size.checked_sub(sector), 8)? == b"EFI PART" {
            return Ok(Some(GPT));
        }
    }
    Ok(None)
}

/// Whether a label of ZFS has an uberblock: they lie from 128 KiB on, at multiples of a KiB, in the byte order of the machine.
fn is_zfs(label: &[u8]) -> bool {
    const MAGIC: u64 = 0x00ba_b10c;
    (128 << 10..256 << 10).step_by(1 << 10).any(|at| {
        let magic = label.get(at..).and_then(|rest| rest.first_chunk());
        magic.is_some_and(|magic| [u64::from_le_bytes(*magic), u64::from_be_bytes(*magic)].contains(&MAGIC))
    })
}

/// Tells the listener that a key may be wrong, if what was decrypted begins as nothing that is known.
pub fn note_noise(decrypted: &dyn BlockDevice, place: impl fmt::Display, events: &dyn Events) {
    // What can't be read says so elsewhere.
    if let Ok(None) = device(decrypted) {
        events.note(&format!(
            "{place}: the decrypted data have no known signature: the key or its options may be wrong"
        ));
    }
}

/// The name of the format of these bytes, the first [`HEAD`] of a device or all of it; `None` if no known format begins so.
pub fn known(head: &[u8]) -> Option<&'static str> {
    let begins = |(at, bytes, _): &&Signature| head.get(*at..).is_some_and(|rest| rest.starts_with(bytes));
    match SIGNATURES.iter().find(begins) {
        Some((.., what)) => Some(what),
        None if is_ext(head) => Some(EXT),
        None if is_mbr(head) => Some(MBR),
        None if !head.is_empty() && head.iter().all(|byte| *byte == 0) => Some(ZEROS),
        None => None,
    }
}

/// Two bytes of magic number are found in noise too, so more is looked at: `s_log_block_size` and `s_rev_level`.
fn is_ext(head: &[u8]) -> bool {
    let le32 =
        |at: usize| head.get(at..at + 4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four")));
    head.get(1080..1082) == Some(&[0x53, 0xef])
        && le32(1048).is_some_and(|size| size <= 6)
        && le32(1100).is_some_and(|revision| revision <= 1)
}

/// The signature of a boot sector, and four entries that are active or not.
fn is_mbr(head: &[u8]) -> bool {
    head.get(510..512) == Some(&[0x55, 0xaa]) && (446..510).step_by(16).all(|at| head[at] & 0x7f == 0)
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;

    #[test]
    fn signatures_are_found_in_their_place_alone() {
        let mut rng = Rng::new(3);
        for (at, bytes, what) in SIGNATURES {
            let mut head = rng.bytes(HEAD);
            assert_eq!(known(&head), None);
            head[*at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(known(&head), Some(*what), "{at}");
            assert_eq!(known(&head[..at + bytes.len()]), Some(*what), "{at}");
            assert_eq!(known(&head[..at + bytes.len() - 1]), None, "{at}");
            head.rotate_right(1);
            assert_eq!(known(&head), None, "{at}");
        }
    }

    #[test]
    fn noise_is_nothing_and_zeros_are_something() {
        let mut rng = Rng::new(4);
        for _ in 0..200 {
            let mut head = rng.bytes(2048);
            assert_eq!(known(&head), None);
            // The short magic numbers alone do not do.
            head[510..512].copy_from_slice(&[0x55, 0xaa]);
            head[1080..1082].copy_from_slice(&[0x53, 0xef]);
            head[446] |= 1;
            head[1051] |= 1;
            assert_eq!(known(&head), None);
        }
        assert_eq!(known(&[0; 4096]), Some(ZEROS));
        assert_eq!(known(b"hello"), None);
    }
}
