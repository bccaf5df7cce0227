//! Files that other tools make are known by their beginning.

use std::fs::{self, File};
use std::ops::Range;
use std::process::Command;
use std::sync::Arc;

use casemate::blockdev::{BlockDevice, FileDevice, MemoryDevice};
use casemate::{Error, Image, Work, probe};
use casemate_testkit::{Rng, run, tempdir, tool};

#[test]
fn what_other_tools_make_is_known() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("file"), "hello\n".repeat(1000)).unwrap();
    for (program, script, what) in [
        ("mke2fs", "mke2fs -q -F -t ext4 image", "an ext2, ext3 or ext4 file system"),
        (
            "mke2fs",
            "mke2fs -q -F -t ext2 -r 0 -b 4096 image 2>/dev/null",
            "an ext2, ext3 or ext4 file system",
        ),
        ("mkswap", "mkswap image", "swap space"),
        ("mkfs.vfat", "mkfs.vfat image", "a FAT file system"),
        ("mkfs.xfs", "truncate -s 400M image; mkfs.xfs -q image", "an XFS file system"),
        ("mkfs.btrfs", "truncate -s 200M image; mkfs.btrfs -q image", "a btrfs file system"),
        ("mkfs.erofs", "rm image; mkfs.erofs image . >&2", "an EROFS file system"),
        ("mksquashfs", "rm image; mksquashfs file image -quiet", "a squashfs file system"),
        ("sfdisk", "echo 'label: gpt' | sfdisk -q image", "a GPT partition table"),
        (
            "sfdisk",
            "printf 'label: dos\nstart=2048, size=2048, bootable\n' | sfdisk -q image",
            "an MBR partition table",
        ),
        (
            "cryptsetup",
            "echo x | cryptsetup luksFormat -q --pbkdf-force-iterations 1000 --pbkdf pbkdf2 image",
            "a LUKS header",
        ),
        ("veritysetup", "veritysetup format file image --data-block-size 512", "a dm-verity superblock"),
        ("qemu-img", "qemu-img create -q -f qcow2 image 1M", "a qcow2 image"),
        ("tar", "tar cf image file", "a tar archive"),
        ("gzip", "gzip <file >image", "gzip data"),
        ("xz", "xz <file >image", "xz data"),
        ("zstd", "zstd -q <file >image", "zstd data"),
    ] {
        if tool(program).is_none() {
            continue;
        }
        File::create(folder.path().join("image")).unwrap().set_len(16 << 20).unwrap();
        run(Command::new("sh").arg("-ec").arg(script).current_dir(folder.path()));
        let device = FileDevice::open(folder.path().join("image")).unwrap();
        assert_eq!(probe::device(&device).unwrap(), Some(what), "{script}");
        let mut head = vec![0; device.size().min(1 << 20) as usize];
        device.read_at(&mut head, 0).unwrap();
        look_at_damaged(&head, what);
    }
    let plain = FileDevice::open(folder.path().join("file")).unwrap();
    assert_eq!(probe::device(&plain).unwrap(), None);
}

/// Probes answer to every superblock, header and table, and never panic.
fn look_at_damaged(whole: &[u8], what: &str) {
    let look = |bytes: Vec<u8>| {
        let len = bytes.len() as u64;
        let device = Arc::new(MemoryDevice::new(bytes));
        let found = probe::look(&Image::over("image", device.clone())).unwrap();
        assert_eq!((found.start, found.len), (0, len), "{what}");
        let image = Image::over("image", device);
        let scan = probe::scan(&image, &Work::default()).unwrap();
        assert!(scan.bytes == len && scan.volumes.iter().all(|volume| volume.found.start <= len), "{what}");
        found
    };
    assert_eq!(look(whole.to_vec()).what, Some(what));
    let mut rng = Rng::new(whole.len() as u64);
    for round in 0..40 {
        let mut bytes = whole.to_vec();
        for _ in 0..1 + round % 8 {
            let at = rng.below(bytes.len().min(probe::HEAD) as u64) as usize;
            bytes[at] = if round % 3 == 0 { 0xff } else { rng.below(256) as u8 };
        }
        bytes.truncate(rng.below(bytes.len() as u64) as usize + 1);
        look(bytes);
    }
}

/// A disk of which some bytes can't be read.
struct Failing {
    disk: MemoryDevice,
    bad: Range<u64>,
}

impl BlockDevice for Failing {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }

    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let end = offset + buf.len() as u64;
        match offset < self.bad.end && self.bad.start < end {
            true => Err(std::io::Error::other("bad sector").into()),
            false => self.disk.read_at(buf, offset),
        }
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<(), Error> {
        unreachable!("nothing is written")
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A disk that fails in places is what one wants to know of: what can be read of it is told.
#[test]
fn bad_sectors_keep_nothing_else_from_being_told() {
    let look = |disk: Vec<u8>, bad: Range<u64>| {
        probe::look(&Image::over("disk", Arc::new(Failing { disk: MemoryDevice::new(disk), bad }))).unwrap()
    };
    let mut disk = vec![0; 8 << 20];
    for (slot, start) in [(0, 2048u32), (1, 8192)] {
        let entry = &mut disk[446 + 16 * slot..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&4096u32.to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[8192 * 512..][..3].copy_from_slice(b"\x1f\x8b\x08");
    let found = look(disk.clone(), 1 << 20..(1 << 20) + 512);
    let parts: Vec<_> = found.inside.iter().map(|part| (part.what, part.damage.len())).collect();
    assert_eq!(parts, [(None, 1), (Some("gzip data"), 0)], "{found:?}");
    // Nothing known, and neither the end nor a sample can be read.
    disk[..512].fill(1);
    for bad in [(8 << 20) - 512..8 << 20, 4 << 20..5 << 20] {
        let found = look(disk.clone(), bad);
        assert!(found.content.unwrap().read > 1 << 20 && !found.damage.is_empty(), "{found:?}");
    }
}
