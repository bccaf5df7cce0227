//! Trees copied out of images: into folders and through tar, compared with what the images were made of.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice, NoProgress, Pool};
use casemate_ext4::{
    Contents, Error, Ext4, ExtractOptions, Inode, OpenOptions, PlainContents, extract_to_folder,
    extract_to_tar,
};
use casemate_testkit::{TempDir, run, tempdir, tool};
use common::{fixtures, tree};

fn options(contents: &dyn Contents) -> ExtractOptions<'_> {
    let owners = rustix::process::geteuid().is_root();
    ExtractOptions { owners, xattrs: true, contents, pool: Pool::default(), progress: &NoProgress }
}

/// An image made of a tree, and the tree.
fn made(mke2fs: &Path, folder: &TempDir) -> (Ext4, tree::Tree) {
    let source = folder.path().join("source");
    std::fs::create_dir(&source).unwrap();
    tree::make(&source, 4096);
    // Large enough to be copied by all workers.
    std::fs::write(source.join("large"), vec![0x5a; (33 << 20) + 77]).unwrap();
    let image = folder.path().join("image");
    run(Command::new(mke2fs)
        .args(["-q", "-F", "-t", "ext4", "-N", "5000", "-d"])
        .arg(&source)
        .arg(&image)
        .arg("80M"));
    let fs = Ext4::open(Arc::new(FileDevice::open(&image).unwrap()), &OpenOptions::default()).unwrap();
    (fs, tree::describe_host(&source))
}

#[test]
fn folders_and_tar_streams_are_the_tree() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let (fs, expected) = made(&mke2fs, &folder);
    let top = fs.root().unwrap();

    let target = folder.path().join("target");
    let report = extract_to_folder(&fs, &top, &target, &options(&PlainContents)).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures[0]);
    let mut found = tree::describe_host(&target);
    found.remove(&b"lost+found"[..]);
    tree::compare(&found, &expected, "folder");
    // Holes stay holes.
    use std::os::unix::fs::MetadataExt;
    let sparse = std::fs::metadata(target.join("sparse")).unwrap();
    assert!(sparse.blocks() * 512 < sparse.len() / 2, "{} blocks", sparse.blocks());
    let (files, bytes) = (report.files, report.bytes);

    let mut stream = Vec::new();
    let report = extract_to_tar(&fs, &top, &mut stream, &options(&PlainContents)).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures[0]);
    assert_eq!((report.files, report.bytes), (files, bytes));
    let mut again = Vec::new();
    extract_to_tar(&fs, &top, &mut again, &options(&PlainContents)).unwrap();
    assert!(stream == again, "two streams of one tree differ");
    let Some(tar) = tool("tar") else { return };
    std::fs::write(folder.path().join("tar"), &stream).unwrap();
    let target = folder.path().join("untarred");
    std::fs::create_dir(&target).unwrap();
    run(Command::new(tar)
        .args(["--xattrs", "--xattrs-include=*", "--numeric-owner", "-xpf"])
        .arg(folder.path().join("tar"))
        .arg("-C")
        .arg(&target));
    let mut found = tree::describe_host(&target);
    found.remove(&b"lost+found"[..]);
    tree::compare(&found, &expected, "tar");
}

#[test]
fn what_can_not_be_read_is_left_out_and_said() {
    struct Picky;
    impl Contents for Picky {
        fn open(&self, fs: &Ext4, inode: &Inode) -> casemate_ext4::Result<Box<dyn BlockDevice>> {
            if inode.size() == 4096 {
                return Err(Error::Unsupported("not this one".to_owned()));
            }
            PlainContents.open(fs, inode)
        }
    }
    let folder = tempdir().unwrap();
    let fixture = fixtures().find(|fixture| fixture.name == "4k-default").unwrap();
    // A damaged inode: the checksum of dir/size4097 no longer fits.
    let fs = fixture.open().unwrap();
    let number = fs.resolve(b"dir/size4097", false).unwrap().number();
    let mut image = fixture.image.clone();
    let table = 35 * 4096;
    let at = table + (number as usize - 1) * 256;
    assert_eq!(&image[at..at + 2], &[0xa4, 0x81], "the inode table is not where it was");
    image[at + 0x10] ^= 1;
    let fs = Ext4::open(Arc::new(MemoryDevice::new(image)), &OpenOptions::default()).unwrap();
    let top = fs.resolve(b"dir", false).unwrap();
    let target = folder.path().join("target");
    let report = extract_to_folder(&fs, &top, &target, &options(&Picky)).unwrap();
    let mut failures: Vec<_> = report.failures.iter().map(ToString::to_string).collect();
    failures.sort();
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert_eq!(failures[0], "/size4096: not this one");
    assert!(failures[1].starts_with(&format!("/size4097: inode {number}: wrong checksum")), "{failures:?}");
    assert!(target.join("size4095").exists() && !target.join("size4096").exists());
    let mut stream = Vec::new();
    let report = extract_to_tar(&fs, &top, &mut stream, &options(&Picky)).unwrap();
    assert_eq!(report.failures.len(), 2);
}

#[test]
fn nothing_is_written_through_links() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir_all(source.join("dir")).unwrap();
    std::fs::write(source.join("dir/file"), "new").unwrap();
    std::fs::write(source.join("other"), "new").unwrap();
    let image = folder.path().join("image");
    run(Command::new(mke2fs).args(["-q", "-F", "-t", "ext4", "-d"]).arg(&source).arg(&image).arg("4M"));
    let fs = Ext4::open(Arc::new(FileDevice::open(&image).unwrap()), &OpenOptions::default()).unwrap();
    let (target, outside) = (folder.path().join("target"), folder.path().join("outside"));
    std::fs::create_dir_all(&target).unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("file"), "old").unwrap();
    // Where the image has a folder and a file, somebody has put links.
    std::os::unix::fs::symlink(&outside, target.join("dir")).unwrap();
    std::os::unix::fs::symlink(outside.join("file"), target.join("other")).unwrap();
    let report = extract_to_folder(&fs, &fs.root().unwrap(), &target, &options(&PlainContents)).unwrap();
    assert!(report.failures.len() >= 2, "{:?}", report.failures);
    assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}
