//! What a disk or file begins with: signatures of file systems, partition tables, encryption and archives.
//!
//! [`device`] reads the beginning, [`known`] looks at bytes. Nothing here is a check: a signature says what something
//! claims to be, and no signature is a hint that the key was wrong that it was decrypted with.

use std::io;

use casemate_blockdev::BlockDevice;

/// How many bytes of a beginning are enough for every signature: whole sectors, so that none is decrypted twice.
pub const HEAD: usize = (64 << 10) + 512;

/// Bytes at a place, and what they are a sign of.
type Signature = (usize, &'static [u8], &'static str);

const SIGNATURES: &[Signature] = &[
    (0, b"LUKS\xba\xbe", "a LUKS header"),
    (0, b"verity\0\0", "a dm-verity superblock"),
    (3, b"-FVE-FS-", "a BitLocker header"),
    (0, b"XFSB", "an XFS file system"),
    (0, b"hsqs", "a squashfs file system"),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (65_600, b"_BHRfS_M", "a btrfs file system"),
    (32_769, b"CD001", "an ISO 9660 file system"),
    (0, b"\x45\x3d\xcd\x28", "a cramfs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT12   ", "a FAT file system"),
    (54, b"FAT16   ", "a FAT file system"),
    (82, b"FAT32   ", "a FAT file system"),
    // Swap's signature ends the first page, whatever the size of pages is.
    (4086, b"SWAPSPACE2", "swap space"),
    (16_374, b"SWAPSPACE2", "swap space"),
    (65_526, b"SWAPSPACE2", "swap space"),
    (0, b"LABELONE", "an LVM physical volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (1024, b"LABELONE", "an LVM physical volume"),
    (1536, b"LABELONE", "an LVM physical volume"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of an MD array"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"\x3a\xff\x26\xed", "an Android sparse image"),
    (0, b"\x1f\x8b\x08", "gzip data"),
    (0, b"\xfd7zXZ\0", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"070701", "a cpio archive"),
    (257, b"ustar", "a tar archive"),
];

/// What a device begins with; `None` if nothing known does.
///
/// # Errors
/// What reading says.
pub fn device(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    // OK to cast: at most HEAD.
    let mut head = vec![0; device.size().min(HEAD as u64) as usize];
    device.read_at(&mut head, 0)?;
    Ok(known(&head))
}

/// What these bytes, the first [`HEAD`] of something or all of it, begin with; `None` if nothing known does.
pub fn known(head: &[u8]) -> Option<&'static str> {
    let begins = |(at, bytes, _): &&Signature| head.get(*at..).is_some_and(|rest| rest.starts_with(bytes));
    match SIGNATURES.iter().find(begins) {
        Some((.., what)) => Some(what),
        None if is_ext(head) => Some("an ext2, ext3 or ext4 file system"),
        None if is_mbr(head) => Some("an MBR partition table"),
        None if head.iter().all(|byte| *byte == 0) => Some("zeros"),
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
        assert_eq!(known(&[0; 4096]), Some("zeros"));
        assert_eq!(known(b"hello"), None);
    }
}
