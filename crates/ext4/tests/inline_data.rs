//! Contents, names and targets that lie in the inode.

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice};
use casemate_ext4::{Ext4, InodeFlags, NewNode, OpenOptions, PutOptions, RecoveryFile, WriteOptions, Writer};
use casemate_providers::Work;
use casemate_testkit::uml::Uml;
use casemate_testkit::{TempDir, run, tempdir, tool};
use common::assert_sound;

const PUT: PutOptions = {
    let mut put = PutOptions::new();
    put.owner = Some((0, 0));
    put.xattrs = false;
    put
};

struct Image {
    folder: TempDir,
}

impl Image {
    fn new(options: &str) -> Option<Image> {
        let mke2fs = tool("mke2fs")?;
        let image = Image { folder: tempdir().unwrap() };
        let mut command = Command::new(mke2fs);
        command.args(["-q", "-F", "-t", "ext4", "-O", "inline_data"]).args(options.split(' '));
        run(command.arg(image.path()).arg("16M"));
        Some(image)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn writer(&self) -> Writer {
        let device = Arc::new(FileDevice::open_writable(self.path()).unwrap());
        let recovery = Some(RecoveryFile::new(self.folder.path().join("image.redo")));
        Writer::open(device, WriteOptions { recovery, seed: Some(2), ..WriteOptions::default() }).unwrap()
    }

    fn put(&self, writer: &mut Writer, path: &str, bytes: &[u8]) {
        let source = self.folder.path().join("source");
        std::fs::write(&source, bytes).unwrap();
        writer.put(&source, path.as_bytes(), &PUT, &Work::default()).unwrap();
    }

    fn assert_clean(&self) {
        assert_sound(&self.path(), "");
    }
}

fn is_inline(fs: &Ext4, path: &str) -> bool {
    fs.resolve(path.as_bytes(), false).unwrap().has(InodeFlags::INLINE_DATA)
}

fn contents(fs: &Ext4, path: &str) -> Vec<u8> {
    let file = fs.open_file(&fs.resolve(path.as_bytes(), true).unwrap()).unwrap();
    let mut bytes = vec![0; file.size() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn what_fits_lies_in_the_inode_until_it_grows() {
    for options in ["-b 1024 -I 256", "-b 4096 -I 512 -O ^has_journal", "-b 1024 -I 256 -O ^extent,^64bit"] {
        let Some(image) = Image::new(options) else { return };
        let mut writer = image.writer();
        let node = NewNode::new(0o755);
        let before = writer.fs().superblock().blocks_free;
        for (name, len) in
            [("empty", 0), ("one", 1), ("sixty", 60), ("more", 61), ("most", 128), ("big", 4000)]
        {
            image.put(&mut writer, &format!("/{name}"), &vec![b'c'; len]);
            let expected = name != "empty" && name != "big";
            assert_eq!(is_inline(writer.fs(), &format!("/{name}")), expected, "{options}: {name}");
        }
        writer.make_symlink(b"/link", &[b't'; 100], &node).unwrap();
        // As the kernel stores them: in the place of the map, or in a block.
        assert!(!is_inline(writer.fs(), "/link"));
        writer.make_directory(b"/dir", &node, false).unwrap();
        for number in 0..4 {
            writer.make_file(format!("/dir/{number}-name").as_bytes(), &node).unwrap();
        }
        assert!(is_inline(writer.fs(), "/dir"), "{options}");
        writer.rename(b"/dir/1-name", b"/dir/other").unwrap();
        writer.remove(b"/dir/2-name").unwrap();
        writer.set_xattr(b"/more", b"user.some", Some(&[b'v'; 200]), true).unwrap();
        writer.truncate(b"/sixty", 90).unwrap();
        writer.truncate(b"/more", 10).unwrap();
        writer.commit().unwrap();
        image.assert_clean();
        let fs = writer.fs();
        assert!(is_inline(fs, "/sixty") && is_inline(fs, "/more") && is_inline(fs, "/dir"));
        assert_eq!(contents(fs, "/sixty"), [&[b'c'; 60][..], &[0; 30]].concat());
        let names = fs.read_dir(&fs.resolve(b"/dir", true).unwrap()).unwrap();
        let mut names: Vec<_> = names.into_iter().map(|entry| entry.name).collect();
        names.sort();
        assert_eq!(names, [&b"0-name"[..], b"3-name", b"other"], "{options}");
        // What grows too large goes to blocks, and what is emptied has no data any more.
        writer.truncate(b"/sixty", 900).unwrap();
        writer.allocate_file(b"/one", 10).unwrap();
        writer.truncate(b"/most", 0).unwrap();
        for number in 0..40 {
            writer.make_directory(format!("/dir/{number:030}").as_bytes(), &node, false).unwrap();
        }
        writer.commit().unwrap();
        image.assert_clean();
        let fs = writer.fs();
        assert!(["/sixty", "/one", "/most", "/dir"].iter().all(|path| !is_inline(fs, path)), "{options}");
        assert_eq!(contents(fs, "/sixty"), [&[b'c'; 60][..], &[0; 840]].concat());
        assert_eq!(contents(fs, "/one"), [&b"c"[..], &[0; 9]].concat());
        assert_eq!(fs.symlink_target(&fs.resolve(b"/link", false).unwrap()).unwrap(), [b't'; 100]);
        let names: Vec<_> = fs.read_dir(&fs.root().unwrap()).unwrap();
        for entry in names.iter().filter(|entry| entry.name != b"lost+found") {
            writer.remove_tree(&[b"/", &entry.name[..]].concat()).unwrap();
        }
        writer.commit().unwrap();
        image.assert_clean();
        let device = Arc::new(FileDevice::open(image.path()).unwrap());
        let fs = Ext4::open(device, &OpenOptions::default()).unwrap();
        assert_eq!(fs.superblock().blocks_free, before, "{options}");
    }
}

#[test]
fn a_kernel_reads_and_changes_inline_data_made_here() {
    let Some(image) = Image::new("-b 1024 -I 512") else { return };
    let mut writer = image.writer();
    let node = NewNode::new(0o755);
    writer.make_directory(b"/dir", &node, false).unwrap();
    for len in [1, 60, 61, 200, 300] {
        image.put(&mut writer, &format!("/dir/{len}"), &vec![b'a'; len]);
    }
    writer.make_symlink(b"/link", &[b't'; 100], &node).unwrap();
    for name in ["small", "grown", "shrunk"] {
        writer.make_directory(format!("/{name}").as_bytes(), &node, false).unwrap();
        for number in 0..6 {
            writer.make_file(format!("/{name}/file-{number}").as_bytes(), &node).unwrap();
        }
    }
    writer.commit().unwrap();
    drop(writer);
    image.assert_clean();
    let script = "set -e; mount -t ext4 /dev/ubda /mnt; cd /mnt; wc -c dir/*; readlink link; ls small; \
                  echo more >> dir/60; echo more >> dir/300; rm shrunk/file-[1-4]; \
                  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do touch grown/new-$i; done; \
                  touch small/new; mkdir shrunk/dir; ls small grown shrunk | wc -l; cd /; umount /mnt";
    let Some(output) = Uml::new(script).disk(image.path(), false).run() else { return };
    let output = output.expect_success().stdout;
    let expected = "1 dir/1\n 200 dir/200\n 300 dir/300\n  60 dir/60\n  61 dir/61\n 622 total\n";
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = format!("{expected} {} ", "t".repeat(100));
    assert!(squeeze(&output).starts_with(&squeeze(&expected)), "{output}");
    assert!(output.contains("file-0\nfile-1\nfile-2\nfile-3\nfile-4\nfile-5\n"), "{output}");
    image.assert_clean();
    let writer = image.writer();
    let fs = writer.fs();
    assert_eq!(contents(fs, "/dir/60"), [&[b'a'; 60][..], b"more\n"].concat());
    assert_eq!(contents(fs, "/dir/300"), [&[b'a'; 300][..], b"more\n"].concat());
    let count = |path: &str| fs.read_dir(&fs.resolve(path.as_bytes(), true).unwrap()).unwrap().len();
    assert_eq!((count("/small"), count("/grown"), count("/shrunk")), (7, 26, 3));
}
