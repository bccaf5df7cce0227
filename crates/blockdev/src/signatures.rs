//! Signatures: bytes at places that file systems, partition tables, encryption and archives are known by.
//!
//! A signature says what something claims to be. Nothing here is a check.

use std::ops::Range;
use std::{fmt, io};

use crate::{BlockDevice, Events, u64_of, usize_of};

/// How many bytes of a beginning are enough for every signature: whole sectors, so that none is decrypted twice.
pub const HEAD: usize = (64 << 10) + 2048;

/// Nothing but zeros: no format begins so.
pub const ZEROS: &str = "zeros";
/// A file system of the ext family.
pub const EXT: &str = "an ext2, ext3 or ext4 file system";
/// The journal of such a file system on a device of its own: with its superblock, and without its files.
pub const EXT_JOURNAL: &str = "an external journal of an ext3 or ext4 file system";
/// A table of partitions.
pub const GPT: &str = "a GPT partition table";
/// A table of partitions, of the older kind.
pub const MBR: &str = "an MBR partition table";
/// A header of LUKS 1 or 2.
pub const LUKS: &str = "a LUKS header";
/// A header of LUKS1 while cryptsetup reencrypts the volume: its magic is another one then.
pub const LUKS_REENCRYPTED: &str = "a LUKS1 header that cryptsetup was reencrypting";
/// The second copy of a header of LUKS2, without the first.
pub const LUKS_SECOND: &str = "a LUKS2 header without its primary copy";
/// The beginning of a dm-integrity volume.
pub const INTEGRITY: &str = "a dm-integrity superblock";
/// The beginning of a hash area of dm-verity.
pub const VERITY: &str = "a dm-verity superblock";
/// A file with the changes of an image, which `overlay_file` keeps.
pub const OVERLAY: &str = "a casemate overlay";
/// Name of the journal of an encryption or decryption in place.
pub const IN_PLACE_JOURNAL: &str = "the journal of an encryption in place";
/// Name of the file that keeps a change of a file system until that is complete.
pub const RECOVERY_FILE: &str = "the recovery file of a file system";
/// Name of an undo file of e2fsprogs.
pub const UNDO_FILE: &str = "an undo file of a file system";
/// An image that must be unpacked first.
pub const QCOW2: &str = "a qcow2 image";
/// An image that must be unpacked first.
pub const SPARSE: &str = "an Android sparse image";
/// An XFS file system.
pub const XFS: &str = "an XFS file system";
/// A btrfs file system.
pub const BTRFS: &str = "a btrfs file system";
/// A FAT file system.
pub const FAT: &str = "a FAT file system";
/// An NTFS file system.
pub const NTFS: &str = "an NTFS file system";
/// An exFAT file system.
pub const EXFAT: &str = "an exFAT file system";
/// An ISO 9660 file system.
pub const ISO: &str = "an ISO 9660 file system";
/// An F2FS file system.
pub const F2FS: &str = "an F2FS file system";
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
const RAID: &str = "a member of a firmware RAID";
const DRBD: &str = "a DRBD device";
const VMFS: &str = "a VMFS volume";
const ORACLE: &str = "an Oracle ASM disk";
const UBI: &str = "a UBI device";
const UDF: &str = "a UDF file system";
const LABEL: &str = "a disk label of another system";
const OCFS2: &str = "an OCFS2 file system";
const UFS: &str = "a UFS file system";
/// Kinds of ordinary files, which programs replace as a whole.
const ARCHIVES: &[&str] =
    &["gzip data", "xz data", "zstd data", "a zip archive", "a cpio archive", "a tar archive"];

/// Bytes at a place, and what they are a sign of.
type Signature = (usize, &'static [u8], &'static str);

const SIGNATURES: &[Signature] = &[
    (0, b"LUKS\xba\xbe", LUKS),
    (0, b"LUKS\xde\xad", LUKS_REENCRYPTED),
    (0, b"verity\0\0", VERITY),
    (0, b"integrt\0", INTEGRITY),
    (3, b"-FVE-FS-", BITLOCKER),
    (0, b"XFSB", XFS),
    (0, b"hsqs", SQUASHFS),
    (1024, b"\xe2\xe1\xf5\xe0", EROFS),
    (1024, b"\x10\x20\xf5\xf2", F2FS),
    (65_600, b"_BHRfS_M", BTRFS),
    // Behind the descriptors of an ISO 9660 file system on the same blocks, which is often the smaller one.
    (34_817, b"BEA01", UDF),
    (36_865, b"BEA01", UDF),
    (38_913, b"BEA01", UDF),
    (40_961, b"BEA01", UDF),
    (32_769, b"CD001", ISO),
    (0, b"\x45\x3d\xcd\x28", "a cramfs file system"),
    (3, b"NTFS    ", NTFS),
    (3, b"EXFAT   ", EXFAT),
    (54, b"FAT12   ", FAT),
    (54, b"FAT16   ", FAT),
    (82, b"FAT32   ", FAT),
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
    (32_769, b"BEA01", UDF),
    (4086, b"S1SUSPEND", SWAP),
    (4086, b"ULSUSPEND", SWAP),
    (4086, b"SWAP-SPACE", SWAP),
    (512, b"EFI PART", GPT),
    (4096, b"EFI PART", GPT),
    // Of Apple, BSD and SGI.
    (512, b"PM\0\0", LABEL),
    (512, b"\x57\x45\x56\x82", LABEL),
    (512, b"\x82\x56\x45\x57", LABEL),
    (0, b"\x0b\xe5\xa9\x41", LABEL),
    (0, b"HM\x01\0", LVM),
    (0, b"HM\x02\0", LVM),
    (4612, b"!Stra0tis\x86\xff\x02^\x41rh", "a Stratis pool member"),
    (4640, b"\xf0\x16\x78\x5a", RAID),
    (4640, b"\xfd\x16\x78\x5a", RAID),
    (1024, b"OCFSV2", OCFS2),
    (2048, b"OCFSV2", OCFS2),
    (4096, b"OCFSV2", OCFS2),
    (8192, b"OCFSV2", OCFS2),
    (8, b"OracleCFS", "an OCFS file system"),
    (32, b"ORCLDISK", ORACLE),
    (0, b"UBI#", UBI),
    (0, b"\x31\x18\x10\x06", "a UBIFS file system"),
    (1024, b"\xf5\xfc\x01\xa5", "a VxFS file system"),
    (8192, b"\xa5\x01\xfc\xf5", "a VxFS file system"),
    (0, b"-rom1fs-", "a romfs file system"),
    (1024, b"H+\0\x04", "an HFS+ file system"),
    (1024, b"HX\0\x05", "an HFS+ file system"),
    (8192, b"\x49\xe8\x95\xf9", "an HPFS file system"),
    (8244, b"ReIsEr", "a ReiserFS file system"),
    (65_536, b"ReIsEr4", "a Reiser4 file system"),
    (1024, b"\x02\0\0\0\0\0\x34\x34", "a NILFS2 file system"),
    (0, b"SFOZ", "a zonefs file system"),
    (0, b"\0\0\0ReFS\0", "a ReFS file system"),
    (0, b"sqsh", SQUASHFS),
    (0, b"\x28\xcd\x3d\x45", "a cramfs file system"),
    (0, b"\xfe\xed\xba\xbe", "a journal of XFS"),
    // UFS: four places of the superblock, two versions, two byte orders; the fourth lies behind.
    (1372, b"\x54\x19\x01\0", UFS),
    (1372, b"\0\x01\x19\x54", UFS),
    (1372, b"\x19\x01\x54\x19", UFS),
    (1372, b"\x19\x54\x01\x19", UFS),
    (9564, b"\x54\x19\x01\0", UFS),
    (9564, b"\0\x01\x19\x54", UFS),
    (9564, b"\x19\x01\x54\x19", UFS),
    (9564, b"\x19\x54\x01\x19", UFS),
    (66_908, b"\x54\x19\x01\0", UFS),
    (66_908, b"\0\x01\x19\x54", UFS),
    (66_908, b"\x19\x01\x54\x19", UFS),
    (66_908, b"\x19\x54\x01\x19", UFS),
    (0, b"casemate overlay", OVERLAY),
    (0, b"casemate-inplace", IN_PLACE_JOURNAL),
    // A dump of a journal, too.
    (0, b"\xc0\x3b\x39\x98\0\0\0\x04", RECOVERY_FILE),
    (0, b"E2UNDO02", UNDO_FILE),
    (0, b"QFI\xfb", QCOW2),
    (0, b"\x3a\xff\x26\xed", SPARSE),
    (0, b"\x1f\x8b\x08", "gzip data"),
    (0, b"\xfd7zXZ\0", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"070701", "a cpio archive"),
    (257, b"ustar", "a tar archive"),
];

/// Signatures behind the first bytes.
const BEHIND: &[(u64, &[u8], &str)] = &[
    (263_516, b"\x54\x19\x01\0", UFS),
    (263_516, b"\0\x01\x19\x54", UFS),
    (263_516, b"\x19\x01\x54\x19", UFS),
    (263_516, b"\x19\x54\x01\x19", UFS),
    (1 << 20, b"\x0d\xd0\x01\xc0", VMFS),
    (2 << 20, b"\x5e\xf1\xab\x2f", VMFS),
];

/// Signatures of RAIDs of mainboards and controllers: sectors before the end, bytes into that sector.
const FIRMWARE_RAID: &[(u64, u64, &[u8])] = &[
    // Intel, DDF in both its places, LSI, NVIDIA, Highpoint.
    (2, 0, b"Intel Raid ISM Cfg Sig. "),
    (1, 0, b"\xde\x11\xde\x11"),
    (257, 0, b"\xde\x11\xde\x11"),
    (1, 0, b"$XIDE$"),
    (2, 0, b"NVIDIA"),
    (11, 0, b"\xf3\x16\x78\x5a"),
    (11, 0, b"\xfd\x16\x78\x5a"),
];

/// The name of the format that a device begins with; `None` if nothing known does.
///
/// # Errors
/// Errors of reading.
pub fn device(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    // At most HEAD.
    let mut head = vec![0; usize_of(device.size().min(u64_of(HEAD)))];
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
    let head = first_mib(device)?;
    let mut found = in_head(&head);
    if found.is_empty() {
        elsewhere(device, &mut found)?;
    }
    Ok(match found.first() {
        Some(place) => Held::Known(place.what),
        None if head.iter().all(|byte| *byte == 0) => Held::Nothing,
        None => Held::Unknown,
    })
}

/// Overwrites all signatures of a device with zeros, wherever they lie, before something new is made on it: what is left of what
/// was there would be found by other tools. The listener hears of each kind, but for that by which the contents were known if
/// it lies in the first MiB. Of a part of something larger, [`Medium::erase_signatures`](crate::Medium::erase_signatures) knows what
/// is not its own.
///
/// # Errors
/// Errors of reading and writing.
pub fn erase(device: &dyn BlockDevice, name: impl fmt::Display, events: &dyn Events) -> crate::Result<()> {
    erase_own(device, true, (name, 0, ""), events)
}

/// Overwrites signatures as [`erase`] does; those that are counted from the end only if `ends_here`. The listener hears where they
/// were in what has the name, of which the device begins at byte `first`.
pub(crate) fn erase_own(
    device: &dyn BlockDevice,
    ends_here: bool,
    (name, first, of): (impl fmt::Display, u64, &str),
    events: &dyn Events,
) -> crate::Result<()> {
    let head = first_mib(device)?;
    let mut found = in_head(&head);
    elsewhere(device, &mut found)?;
    found.retain(|place| !is_archive(place.what) && (ends_here || !place.from_end));
    for Place { at, len, .. } in &found {
        device.write_zeroes(*at, *len, false)?;
    }
    if !found.is_empty() {
        device.flush()?;
    }
    let known = found.first().map(|place| place.what);
    found.retain(|place| Some(place.what) != known || place.at >= 1 << 20);
    while let Some(Place { at, what, .. }) = found.first().copied() {
        let all = found.len();
        found.retain(|place| place.what != what);
        let others = match all - found.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more of it"),
        };
        let at = first.saturating_add(at);
        events.note(&format!("{name}: erased the signature of {what} at byte {at}{of}{others}"));
    }
    Ok(())
}

/// A signature that was found: bytes of a device.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    len: u64,
    what: &'static str,
    /// Whether the place is counted from the device's end.
    from_end: bool,
}

fn first_mib(device: &dyn BlockDevice) -> io::Result<Vec<u8>> {
    // At most a MiB.
    let mut head = vec![0; usize_of(device.size().min(1 << 20))];
    device.read_at(&mut head, 0)?;
    Ok(head)
}

/// Signatures in the first bytes of a device.
fn in_head(head: &[u8]) -> Vec<Place> {
    let mut found = Vec::new();
    for (at, bytes, what) in SIGNATURES {
        if head.get(*at..).is_some_and(|rest| rest.starts_with(bytes)) {
            found.push(Place { at: u64_of(*at), len: u64_of(bytes.len()), what, from_end: false });
        }
    }
    if let Some(what) = ext(head) {
        found.push(Place { at: 1080, len: 2, what, from_end: false });
    }
    if is_mbr(head) {
        found.push(Place { at: 510, len: 2, what: MBR, from_end: false });
    }
    found
}

/// The name of the format that has a signature in the first MiB of a device, where zeros are none.
///
/// # Errors
/// Errors of reading.
pub fn beginning(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    Ok(of_first_mib(&first_mib(device)?))
}

fn of_first_mib(head: &[u8]) -> Option<&'static str> {
    let begins = known(&head[..head.len().min(HEAD)]).filter(|what| *what != ZEROS);
    begins.or_else(|| (!uberblocks(head).is_empty()).then_some(ZFS))
}

/// The first byte, at a multiple of 4096 from the beginning of these bytes of a device on, that something known begins at, and its
/// name. Only signatures of four bytes and more count, and ext: shorter ones are found in noise, too.
///
/// # Errors
/// Errors of reading.
pub fn within(device: &dyn BlockDevice, bytes: Range<u64>) -> io::Result<Option<(u64, &'static str)>> {
    const STEP: usize = 4096;
    const CHUNK: usize = 1 << 20;
    let mut buffer = Vec::new();
    let mut from = bytes.start;
    let end = bytes.end.min(device.size());
    while from < end {
        // Signatures of what begins in a chunk may lie behind it.
        let len = (device.size() - from).min(u64_of(CHUNK + HEAD));
        buffer.resize(usize_of(len), 0);
        device.read_at(&mut buffer, from)?;
        let count = usize_of((end - from).min(u64_of(CHUNK)));
        let begins = |at: &usize| {
            let head = &buffer[*at..];
            let is_sure = |(place, magic, what): &&Signature| {
                magic.len() >= 4
                    && !is_archive(what)
                    && head.get(*place..).is_some_and(|rest| rest.starts_with(magic))
            };
            let found = SIGNATURES.iter().find(is_sure).map(|(.., what)| *what);
            Some((from + u64_of(*at), found.or_else(|| ext(head))?))
        };
        if let Some(found) = (0..count).step_by(STEP).find_map(|at| begins(&at)) {
            return Ok(Some(found));
        }
        from += u64_of(count);
    }
    Ok(None)
}

/// Whether contents can be made again by the command that made them: a file system that lies in a file alone, an archive, a hash
/// area. What holds keys, or belongs to something larger, can't.
pub fn is_made_again(what: &str) -> bool {
    let belongs = [LVM, MD, ZFS, BCACHE, SWAP, RAID, DRBD, VMFS, ORACLE, UBI];
    let keys = [LUKS, LUKS_REENCRYPTED, LUKS_SECOND, INTEGRITY, BITLOCKER];
    ![GPT, MBR, LABEL].contains(&what) && !keys.contains(&what) && !belongs.contains(&what)
}

/// Whether contents go by the size of the device that they lie on: they are lost on a smaller one.
pub fn is_as_large_as_its_device(what: &str) -> bool {
    [
        LUKS,
        LUKS_REENCRYPTED,
        LUKS_SECOND,
        INTEGRITY,
        LVM,
        MD,
        ZFS,
        BCACHE,
        RAID,
        DRBD,
        VMFS,
        ORACLE,
        BITLOCKER,
        LABEL,
    ]
    .contains(&what)
}

/// Whether contents are those of an ordinary file, which programs replace by others of any kind.
pub fn is_archive(what: &str) -> bool {
    ARCHIVES.contains(&what)
}

/// Finds signatures that do not lie in the first bytes, many of them counted from the end.
fn elsewhere(device: &dyn BlockDevice, found: &mut Vec<Place>) -> io::Result<()> {
    let size = device.size();
    // Bytes of a place; none if it is not on the device.
    let bytes = |at: u64, len: usize| -> io::Result<Vec<u8>> {
        if at.checked_add(u64_of(len)).is_none_or(|end| end > size) {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; len];
        device.read_at(&mut bytes, at)?;
        Ok(bytes)
    };
    // The second copy of a LUKS2 header lies where the first one ends, and says where that is.
    for at in (14..=22).map(|power| 1u64 << power) {
        let copy = bytes(at, 264)?;
        if copy.starts_with(b"SKUL\xba\xbe\0\x02") && copy[256..] == at.to_be_bytes() {
            let is_alone = !found.iter().any(|place| place.what == LUKS);
            let what = if is_alone { LUKS_SECOND } else { LUKS };
            found.push(Place { at, len: 6, what, from_end: false });
        }
    }
    // The first two labels of four, and the last two.
    const LABEL: u64 = 256 << 10;
    let back = |count| (size / LABEL).checked_sub(count).map(|label| label * LABEL);
    let mut labels: Vec<(u64, bool)> =
        [(Some(0), false), (Some(LABEL), false), (back(1), true), (back(2), true)]
            .into_iter()
            .filter_map(|(label, from_end)| Some((label?, from_end)))
            .collect();
    labels.sort_unstable();
    labels.dedup_by_key(|(label, _)| *label);
    for (label, from_end) in labels {
        let places = uberblocks(&bytes(label, usize_of(LABEL))?);
        found.extend(places.into_iter().map(|at| Place { at: label + at, len: 8, what: ZFS, from_end }));
    }
    let mut look_at = |at: Option<u64>, magic: &[u8], what, from_end| -> io::Result<()> {
        if let Some(at) = at
            && bytes(at, magic.len())? == magic
        {
            found.push(Place { at, len: u64_of(magic.len()), what, from_end });
        }
        Ok(())
    };
    for (at, magic, what) in BEHIND {
        look_at(Some(*at), magic, what, false)?;
    }
    let mut look = |at, magic: &[u8], what| look_at(at, magic, what, true);
    // MD 0.90: the last whole 64 KiB but one, in the byte order of the machine; 1.0: 8 to 12 KiB before the end.
    let old = (size & !0xffff).checked_sub(0x1_0000);
    look(old, b"\xfc\x4e\x2b\xa9\0\0\0\0", MD)?;
    look(old, b"\xa9\x2b\x4e\xfc\0\0\0\0", MD)?;
    let new = (size / 512).checked_sub(16).map(|sector| (sector & !7) * 512);
    look(new, b"\xfc\x4e\x2b\xa9\x01\0\0\0", MD)?;
    // The backup of a GPT, in the last sector.
    for sector in [512, 4096] {
        look(size.checked_sub(sector), b"EFI PART", GPT)?;
    }
    let meta = (size & !4095).checked_sub(4096);
    for magic in [b"\x83\x74\x02\x6b", b"\x83\x74\x02\x6c", b"\x83\x74\x02\x6d"] {
        look(meta.map(|at| at + 60), magic, DRBD)?;
    }
    for (sectors, into, magic) in FIRMWARE_RAID {
        look((size / 512).checked_sub(*sectors).map(|sector| sector * 512 + into), magic, RAID)?;
    }
    let promise = [63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087];
    for sectors in promise {
        let at = (size / 512).checked_sub(sectors).map(|sector| sector * 512);
        look(at, b"Promise Technology, Inc.", RAID)?;
    }
    Ok(())
}

/// Places of uberblocks in a label of ZFS: they lie from 128 KiB on, at multiples of a KiB, in the byte order of the machine.
fn uberblocks(label: &[u8]) -> Vec<u64> {
    const MAGIC: u64 = 0x00ba_b10c;
    let is_one = |at: &u64| {
        let magic = label.get(usize_of(*at)..).and_then(|rest| rest.first_chunk());
        magic.is_some_and(|magic| [u64::from_le_bytes(*magic), u64::from_be_bytes(*magic)].contains(&MAGIC))
    };
    (128 << 10..256 << 10).step_by(1 << 10).filter(is_one).collect()
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
        None if is_ext(head) => ext(head),
        None if is_mbr(head) => Some(MBR),
        None if !head.is_empty() && head.iter().all(|byte| *byte == 0) => Some(ZEROS),
        None => None,
    }
}

/// The name of what begins with a superblock of ext. An external journal says that it is one, and has no inodes.
fn ext(head: &[u8]) -> Option<&'static str> {
    let is_journal = head.get(1024 + 0x60).is_some_and(|feature| feature & 8 != 0)
        && head.get(1024..1028) == Some(&[0; 4])
        && head.get(1024 + 0x28..1024 + 0x2c) == Some(&[0; 4]);
    is_ext(head).then_some(if is_journal { EXT_JOURNAL } else { EXT })
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
pub(crate) fn is_mbr(head: &[u8]) -> bool {
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

    /// Everything that says what a device holds is found at both ends, and erased.
    #[test]
    fn nothing_known_is_left_of_what_is_erased() {
        #[derive(Default)]
        struct Notes(std::sync::Mutex<Vec<String>>);
        impl Events for Notes {
            fn note(&self, text: &str) {
                self.0.lock().unwrap().push(text.to_owned());
            }
        }
        const SIZE: usize = (8 << 20) + 512;
        let end = |sectors: usize| SIZE - 512 * sectors;
        let mut second = b"SKUL\xba\xbe\0\x02".to_vec();
        second.resize(256, 0);
        second.extend(0x8000u64.to_be_bytes());
        let uberblock = 0x00ba_b10cu64.to_le_bytes();
        let mut cases: Vec<(usize, &[u8], &str)> = SIGNATURES.to_vec();
        cases.retain(|(.., what)| !is_archive(what));
        cases.extend(BEHIND.iter().map(|(at, magic, what)| (*at as usize, *magic, *what)));
        let raids = FIRMWARE_RAID.iter();
        cases.extend(
            raids.map(|(sectors, into, magic)| (end(*sectors as usize) + *into as usize, *magic, RAID)),
        );
        cases.extend([
            (end(1), &b"EFI PART"[..], GPT),
            (SIZE - 4096, b"EFI PART", GPT),
            (end(16) / 4096 * 4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0", MD),
            ((8 << 20) - 0x1_0000, b"\xfc\x4e\x2b\xa9\0\0\0\0", MD),
            (0x8000, &second, LUKS_SECOND),
            (135 << 10, &uberblock, ZFS),
            ((8 << 20) - (256 << 10) + (140 << 10), &uberblock, ZFS),
            (end(399), b"Promise Technology, Inc.", RAID),
            ((8 << 20) - 4096 + 60, b"\x83\x74\x02\x6b", DRBD),
        ]);
        for (at, magic, what) in cases {
            let mut bytes = vec![0; SIZE];
            bytes[at..at + magic.len()].copy_from_slice(magic);
            let device = crate::MemoryDevice::new(bytes);
            assert_eq!(held(&device).unwrap(), Held::Known(what), "{at}");
            let notes = Notes::default();
            erase(&device, "disk", &notes).unwrap();
            assert!(!matches!(held(&device).unwrap(), Held::Known(_)), "{at} {what}");
            let notes = notes.0.into_inner().unwrap();
            let said = format!("disk: erased the signature of {what} at byte {at}");
            assert_eq!(notes, if at < 1 << 20 { vec![] } else { vec![said] });
        }
        // Several at once, and a boot sector that is left when the table behind it is gone.
        let mut bytes = vec![0; SIZE];
        bytes[510..520].copy_from_slice(b"\x55\xaaEFI PART");
        bytes[1080..1082].copy_from_slice(b"\x53\xef");
        let device = crate::MemoryDevice::new(bytes);
        erase(&device, "disk", &crate::NoEvents).unwrap();
        assert_eq!(held(&device).unwrap(), Held::Nothing);
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
