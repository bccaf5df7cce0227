//! Images that this machine's kernel, or one in User-Mode-Linux, has written to: what it shows of them is what
//! is read here.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::FileDevice;
use casemate_ext4::{CheckOptions, Ext4, OpenOptions, check};
use casemate_providers::Work;
use casemate_testkit::{TempDir, mke2fs, run, tempdir, tool};
use common::assert_sound;
use common::hex;
use common::kernel::{SHOW, compare, on_mounted};

/// Makes what only the kernel makes: trees of extents and hashes of some depth, grown and shrunk directories,
/// preallocation, attributes that move out of the inode.
const WORK: &str = r#"
mkdir many
seq -f 'many/name-%.0f-of-a-length-that-fills-blocks-soon-enough' 3000 | xargs touch
seq -f 'many/name-%.0f-of-a-length-that-fills-blocks-soon-enough' 1 7 3000 | xargs rm
cp --sparse=always PIECES pieces
truncate -s 20M tail-hole; printf x | dd of=tail-hole bs=1 seek=5000 conv=notrunc status=none
fallocate -l 300000 unwritten 2>/dev/null || : > unwritten
printf start | dd of=unwritten conv=notrunc status=none
seq 1 20000 > text
mkdir -p a/b/c; ln text a/hard; ln -s ../text a/soft; mkfifo a/fifo
mknod a/device c 300 66000 2>/dev/null || :
echo small > small; chmod 4755 small; chown 70000:80000 small
touch -d '2077-05-05 05:05:05.123456789' late; touch -d '1905-01-01 00:00:00.5' early
mkdir tiny; echo x > tiny/x; ln -s "$(printf '%0200d' 7)" long-link
"#;

#[test]
fn what_the_kernel_wrote() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    // With a journal, Linux 6.18 can hang for good in writing back inline data (its commit thread waits for itself).
    for features in mke2fs::all().filter(|kind| kind.kernel).map(|kind| kind.options) {
        let image = make(&mke2fs, &folder, features);
        if on_mounted(&image, "rw", &work(&folder)).is_none() {
            return;
        }
        let Some(shown) = on_mounted(&image, "ro", SHOW) else { return };
        compare(&open(&image), &shown, 2500, features);
        assert_sound(&image, features);
    }
}

#[test]
fn attributes_that_the_kernel_wrote() {
    let (Some(mke2fs), Some(python)) = (tool("mke2fs"), tool("python3")) else { return };
    let folder = tempdir().unwrap();
    for features in [
        "-t ext4 -b 4096",
        "-t ext4 -b 1024",
        "-t ext4 -b 4096 -O ea_inode",
        "-t ext4 -b 1024 -O ea_inode -I 512",
        "-t ext4 -b 4096 -I 128",
    ] {
        let image = make(&mke2fs, &folder, features);
        let large = if features.contains("ea_inode") { 40_000 } else { 600 };
        let work = format!(
            "cat >set.py <<'END'\n\
             import os\n\
             def value(n, k): return bytes((i * k + n) % 256 for i in range(n))\n\
             for i in range(40):\n\
             \x20   open(f'f{{i}}', 'w').close()\n\
             \x20   os.setxattr(f'f{{i}}', 'user.a', value(i, 3))\n\
             \x20   os.setxattr(f'f{{i}}', 'user.shared', value(300, 5))\n\
             \x20   os.setxattr(f'f{{i}}', 'trusted.t', b'')\n\
             os.setxattr('f7', 'user.large', value({large}, 7))\n\
             os.setxattr('f8', 'user.large', value({large}, 7))\n\
             os.setxattr('f9', 'security.capability', bytes.fromhex('0100000200040000000000000000000000000000'))\n\
             acl = bytes.fromhex('02000000' '01000600ffffffff' '02000400e8030000' '04000400ffffffff'\n\
             \x20                   '10000400ffffffff' '20000000ffffffff')\n\
             os.setxattr('f10', 'system.posix_acl_access', acl)\n\
             END\n\
             {} set.py; rm set.py",
            python.display()
        );
        let show = format!(
            "{} -c \"import os\nfor f in sorted(os.listdir('.')):\n  \
             for n in sorted(os.listxattr(f)): print(f, n, os.getxattr(f, n).hex())\"",
            python.display()
        );
        if on_mounted(&image, "rw", &work).is_none() {
            return;
        }
        let Some(shown) = on_mounted(&image, "ro", &show) else { return };
        let fs = open(&image);
        let mut lines = Vec::new();
        for entry in fs.read_dir(&fs.root().unwrap()).unwrap() {
            let inode = fs.inode(entry.inode).unwrap();
            for xattr in fs.xattrs(&inode).unwrap() {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                lines.push(format!("{} {} {}", text(&entry.name), text(&xattr.name), hex(&xattr.value)));
            }
        }
        lines.sort();
        let mut expected: Vec<_> = shown.lines().collect();
        expected.sort();
        assert!(expected.len() > 120, "{features}: {shown}");
        assert_eq!(lines, expected, "{features}");
        assert_sound(&image, features);
    }
}

#[test]
fn a_mounted_image_with_a_dirty_journal() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    for features in
        ["-t ext4 -b 4096", "-t ext4 -b 1024 -O ^metadata_csum", "-t ext4 -b 4096 -O ^64bit,^metadata_csum"]
    {
        let image = make(&mke2fs, &folder, features);
        let crashed = folder.path().join("crashed");
        // A copy of the image while it is mounted is what a crash would leave.
        let work = format!(
            "{}\n sync -f .; rm -r many/*5*; rm pieces; mkdir after; echo after > after/file; sync -f .\n\
             cp --sparse=always '{}' '{}'; {SHOW}",
            work(&folder),
            image.display(),
            crashed.display()
        );
        let Some(shown) = on_mounted(&image, "rw,commit=1000", &work) else { return };
        let fs = open(&crashed);
        if fs.superblock().needs_recovery() {
            assert!(fs.recovery().transactions > 0, "{features}: {:?}", fs.recovery());
        } else {
            return casemate_testkit::skip("the image's copy is not that of a mounted file system");
        }
        compare(&fs, &shown, 2500, features);
        let device = Arc::new(FileDevice::open(&crashed).unwrap());
        let report = check(device, &CheckOptions::default(), &Work::default()).unwrap();
        assert!(report.is_clean(), "{features}: {:?}", report.faults);
        // Counts are right once the journal is replayed, which e2fsck does not do without writing.
        let Some(e2fsck) = tool("e2fsck") else { return };
        run(Command::new(&e2fsck).args(["-y", "-E", "journal_only"]).arg(&crashed));
        assert_sound(&crashed, features);
    }
}

/// The script, with a file of 700 pieces for it to copy.
fn work(folder: &TempDir) -> String {
    let pieces = folder.path().join("pieces");
    let file = std::fs::File::create(&pieces).unwrap();
    for i in 0..700 {
        let block = vec![b'0' + (i % 10) as u8; 4096];
        std::os::unix::fs::FileExt::write_all_at(&file, &block, 8192 * i).unwrap();
    }
    WORK.replace("PIECES", &pieces.display().to_string())
}

fn make(mke2fs: &Path, folder: &TempDir, features: &str) -> PathBuf {
    let image = folder.path().join("image");
    mke2fs::make(mke2fs, &format!("-N 5000 {features}"), &image, "48M");
    image
}

fn open(image: &Path) -> Ext4 {
    let options = OpenOptions::default();
    Ext4::open(Arc::new(FileDevice::open(image).unwrap()), &options).unwrap()
}
