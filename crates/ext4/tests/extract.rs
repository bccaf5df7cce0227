//! Trees copied out of images: into folders and through tar, compared with what the images were made of.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice};
use casemate_ext4::{
    Contents, Error, Ext4, ExtractOptions, Inode, OpenOptions, PlainContents, extract_to_folder,
    extract_to_tar,
};
use casemate_providers::Work;
use casemate_testkit::{TempDir, run, tempdir, tool};
use common::{fixtures, tree};

fn options(contents: &dyn Contents) -> ExtractOptions<'_> {
    let owners = rustix::process::geteuid().is_root();
    ExtractOptions { owners, xattrs: true, overwrite: false, kept: &[], selection: None, contents }
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
    let report = extract_to_folder(&fs, &top, &target, &options(&PlainContents), &Work::default()).unwrap();
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
    let report = extract_to_tar(&fs, &top, &mut stream, &options(&PlainContents), &Work::default()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures[0]);
    assert_eq!((report.files, report.bytes), (files, bytes));
    let mut again = Vec::new();
    extract_to_tar(&fs, &top, &mut again, &options(&PlainContents), &Work::default()).unwrap();
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
                return Err(Error::unsupported("not this one"));
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
    let at = table + number.index() as usize * 256;
    assert_eq!(&image[at..at + 2], &[0xa4, 0x81], "the inode table is not where it was");
    image[at + 0x10] ^= 1;
    let fs = Ext4::open(Arc::new(MemoryDevice::new(image)), &OpenOptions::default()).unwrap();
    let top = fs.resolve(b"dir", false).unwrap();
    let target = folder.path().join("target");
    let report = extract_to_folder(&fs, &top, &target, &options(&Picky), &Work::default()).unwrap();
    let mut failures: Vec<_> = report.failures.iter().map(ToString::to_string).collect();
    failures.sort();
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert_eq!(failures[0], "/size4096: not this one");
    assert!(failures[1].starts_with(&format!("/size4097: inode {number}: wrong checksum")), "{failures:?}");
    assert!(target.join("size4095").exists() && !target.join("size4096").exists());
    let mut stream = Vec::new();
    let report = extract_to_tar(&fs, &top, &mut stream, &options(&Picky), &Work::default()).unwrap();
    assert_eq!(report.failures.len(), 2);
}

#[test]
fn names_that_are_there_twice_are_left_out_and_said() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir_all(source.join("b")).unwrap();
    std::fs::write(source.join("b/passwd"), "new").unwrap();
    std::fs::write(source.join("other"), "new").unwrap();
    std::os::unix::fs::symlink("../victim", source.join("a")).unwrap();
    let image = folder.path().join("image");
    let mut command = Command::new(mke2fs);
    command.args(["-q", "-F", "-t", "ext4", "-O", "^metadata_csum,^dir_index", "-d"]).arg(&source);
    run(command.arg(&image).arg("4M"));
    // The folder gets the link's name: whoever unpacks both could be led out by one of them.
    let mut bytes = std::fs::read(&image).unwrap();
    let records: Vec<usize> =
        bytes.windows(5).enumerate().filter(|(_, w)| *w == [1, 2, b'b', 0, 0]).map(|(at, _)| at).collect();
    let [record] = records[..] else { panic!("{records:?}") };
    bytes[record + 2] = b'a';
    let fs = Ext4::open(Arc::new(MemoryDevice::new(bytes)), &OpenOptions::default()).unwrap();
    let root = fs.root().unwrap();
    let target = folder.path().join("target");
    let copied = extract_to_folder(&fs, &root, &target, &options(&PlainContents), &Work::default()).unwrap();
    let mut stream = Vec::new();
    let streamed =
        extract_to_tar(&fs, &root, &mut stream, &options(&PlainContents), &Work::default()).unwrap();
    for report in [copied, streamed] {
        let failures: Vec<_> = report.failures.iter().map(ToString::to_string).collect();
        assert_eq!(failures, ["/a: inode 2: directory: has this name 2 times"]);
    }
    let mut names: Vec<_> =
        std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["lost+found", "other"]);
    let Some(tar) = tool("tar") else { return };
    std::fs::write(folder.path().join("tar"), &stream).unwrap();
    let list = run(Command::new(tar).arg("-tf").arg(folder.path().join("tar")));
    assert_eq!(list, "./\nlost+found/\nother\n");
}

#[test]
fn a_second_dot_dot_is_left_out_and_said() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir_all(source.join("kept")).unwrap();
    std::fs::write(source.join("xy"), "contents").unwrap();
    let image = folder.path().join("image");
    let mut command = Command::new(mke2fs);
    command.args(["-q", "-F", "-t", "ext4", "-O", "^metadata_csum,^dir_index", "-d"]).arg(&source);
    run(command.arg(&image).arg("4M"));
    let mut bytes = std::fs::read(&image).unwrap();
    let record = bytes.windows(4).position(|window| window == [2, 1, b'x', b'y']).unwrap();
    bytes[record + 2..record + 4].copy_from_slice(b"..");
    let fs = Ext4::open(Arc::new(MemoryDevice::new(bytes)), &OpenOptions::default()).unwrap();
    let root = fs.root().unwrap();
    let target = folder.path().join("target");
    let copied = extract_to_folder(&fs, &root, &target, &options(&PlainContents), &Work::default()).unwrap();
    let streamed =
        extract_to_tar(&fs, &root, &mut Vec::new(), &options(&PlainContents), &Work::default()).unwrap();
    for report in [copied, streamed] {
        let failures: Vec<_> = report.failures.iter().map(ToString::to_string).collect();
        assert_eq!(failures, ["/..: inode 2: directory: has this name 2 times"]);
    }
    assert!(fs.names(&root).unwrap().check_dots(&root).is_err());
}

#[test]
fn names_of_attributes_are_what_tar_takes_them_for() {
    let (Some(mke2fs), Some(tar)) = (tool("mke2fs"), tool("tar")) else { return };
    let Some(debugfs) = tool("debugfs") else { return };
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    run(Command::new(mke2fs).args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("4M"));
    let commands = folder.path().join("commands");
    let names = ["user.a=b", "user.100%", "user.%3D%25", "user.="];
    let sets = names.map(|name| format!("ea_set /lost+found {name} v={name}\n"));
    std::fs::write(&commands, sets.concat()).unwrap();
    run(Command::new(debugfs).args(["-w", "-f"]).arg(&commands).arg(&image));
    let fs = Ext4::open(Arc::new(FileDevice::open(&image).unwrap()), &OpenOptions::default()).unwrap();
    let stream = folder.path().join("tar");
    let mut out = std::fs::File::create(&stream).unwrap();
    let report =
        extract_to_tar(&fs, &fs.root().unwrap(), &mut out, &options(&PlainContents), &Work::default())
            .unwrap();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    let at = folder.path().join("at");
    std::fs::create_dir(&at).unwrap();
    if rustix::fs::setxattr(&at, "user.a", b"", rustix::fs::XattrFlags::empty()).is_err() {
        return casemate_testkit::skip("the host's file system has no attributes");
    }
    run(Command::new(tar).args(["--xattrs", "-xf"]).arg(&stream).arg("-C").arg(&at));
    for name in names {
        let mut value = [0; 64];
        let len = rustix::fs::getxattr(at.join("lost+found"), name, &mut value[..]).unwrap();
        assert_eq!(value[..len], *format!("v={name}").as_bytes());
    }
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
    let report =
        extract_to_folder(&fs, &fs.root().unwrap(), &target, &options(&PlainContents), &Work::default())
            .unwrap();
    assert!(report.failures.len() >= 2, "{:?}", report.failures);
    assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

/// Contents that note which permissions a folder has while files are copied into it.
struct Looking<'a> {
    folder: &'a Path,
    modes: std::sync::Mutex<std::collections::BTreeSet<u32>>,
}

impl Contents for Looking<'_> {
    fn open(&self, fs: &Ext4, inode: &Inode) -> casemate_ext4::Result<Box<dyn BlockDevice>> {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(self.folder).unwrap().permissions().mode() & 0o777;
        self.modes.lock().unwrap().insert(mode);
        PlainContents.open(fs, inode)
    }
}

/// A new folder gets its permissions last: until then nobody else reads what has no restrictions of its own.
#[test]
fn nobody_else_enters_a_new_folder_while_it_is_filled() {
    use std::os::unix::fs::PermissionsExt;
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let (fs, _) = made(&mke2fs, &folder);
    let target = folder.path().join("target");
    let contents = Looking { folder: &target, modes: std::sync::Mutex::default() };
    let top = fs.root().unwrap();
    extract_to_folder(&fs, &top, &target, &options(&contents), &Work::default()).unwrap();
    assert_eq!(contents.modes.into_inner().unwrap().into_iter().collect::<Vec<_>>(), [0o700]);
    let mode = std::fs::metadata(&target).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, u32::from(top.mode()) & 0o7777);
}
