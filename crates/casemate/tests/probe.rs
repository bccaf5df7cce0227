//! What other tools make is known by its beginning.

use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;

use casemate::blockdev::{BlockDevice, FileDevice, MemoryDevice};
use casemate::{Image, probe};
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

/// Whatever a superblock, header or table says: something is said of it, and nothing panics.
fn look_at_damaged(whole: &[u8], what: &str) {
    let look = |bytes: Vec<u8>| {
        let len = bytes.len() as u64;
        let found = probe::look(&Image::over("image", Arc::new(MemoryDevice::new(bytes)))).unwrap();
        assert_eq!((found.start, found.len), (0, len), "{what}");
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
