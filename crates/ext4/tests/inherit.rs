//! Attributes that new files get from their directory, beside those that the kernel gives them.

mod common;

use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::FileDevice;
use casemate_ext4::{Ext4, NewNode, OpenOptions, WriteOptions, Writer};
use casemate_testkit::{run, run_any, tempdir, tool};
use common::kernel::on_mounted;

/// Tag, permissions and id.
type Entry = (u16, u16, u32);

/// An ACL as programs see it.
fn acl(entries: &[Entry]) -> Vec<u8> {
    let entry =
        |(tag, bits, id): &Entry| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat();
    [2u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
}

/// All of a file that its directory has a say in.
fn describe(fs: &Ext4, path: &str) -> String {
    let inode = fs.resolve(path.as_bytes(), false).unwrap();
    let xattrs: Vec<_> = fs.xattrs(&inode).unwrap().into_iter().map(|x| (x.name, x.value)).collect();
    let (mode, flags) = (inode.mode(), inode.flags().0);
    let project = inode.project();
    format!("mode {mode:o} gid {} flags {flags:#x} project {project} {xattrs:?}", inode.gid())
}

#[test]
fn new_files_get_what_the_kernel_gives_them() {
    let (Some(mke2fs), Some(e2fsck)) = (tool("mke2fs"), tool("e2fsck")) else { return };
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    run(Command::new(mke2fs).args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("16M"));
    let writer = || {
        let device = Arc::new(FileDevice::open_writable(&image).unwrap());
        Writer::open(device, WriteOptions::default()).unwrap()
    };
    const NO_ID: u32 = !0;
    let acls: [(&str, &[Entry]); 4] = [
        ("plain", &[]),
        ("short", &[(1, 7, NO_ID), (4, 1, NO_ID), (0x20, 4, NO_ID)]),
        ("named", &[(1, 7, NO_ID), (2, 6, 1000), (4, 5, NO_ID), (0x10, 6, NO_ID), (0x20, 0, NO_ID)]),
        (
            "groups",
            &[(1, 3, NO_ID), (4, 7, NO_ID), (8, 7, 5), (8, 1, 70_000), (0x10, 7, NO_ID), (0x20, 5, NO_ID)],
        ),
    ];
    let mut first = writer();
    for (name, entries) in acls {
        let path = format!("/{name}");
        first.make_directory(path.as_bytes(), &NewNode::new(0o755), false).unwrap();
        if !entries.is_empty() {
            let value = acl(entries);
            first.set_xattr(path.as_bytes(), b"system.posix_acl_default", Some(&value), true).unwrap();
        }
    }
    first.make_directory(b"/group", &NewNode::new(0o2775), false).unwrap();
    first.set_owner(b"/group", None, Some(70_042), true).unwrap();
    first.make_directory(b"/flags", &NewNode::new(0o755), false).unwrap();
    first.commit().unwrap();
    drop(first);
    let script = "set -e; chattr +ASDd flags; umask 022; \
                  for dir in plain short named groups group flags; do \
                      mkdir $dir/dir-kernel; touch $dir/file-kernel; touch $dir/mode-kernel; chmod 2751 $dir/mode-kernel; ln -s x $dir/link-kernel; \
                      mkfifo $dir/pipe-kernel; (umask 0; mkdir $dir/open-kernel); \
                  done";
    if on_mounted(&image, "rw", script).is_none() {
        return;
    }
    let mut second = writer();
    let dirs = ["plain", "short", "named", "groups", "group", "flags"];
    for dir in dirs {
        let path = |name: &str| format!("/{dir}/{name}-casemate").into_bytes();
        let node = |mode, umask| {
            let mut node = NewNode::new(mode);
            node.umask = umask;
            node
        };
        second.make_directory(&path("dir"), &node(0o777, 0o022), false).unwrap();
        second.make_directory(&path("open"), &node(0o777, 0), false).unwrap();
        second.make_file(&path("file"), &node(0o666, 0o022)).unwrap();
        second.make_file(&path("mode"), &node(0o666, 0o022)).unwrap();
        second.set_mode(&path("mode"), 0o2751).unwrap();
        second.make_symlink(&path("link"), b"x", &node(0o777, 0)).unwrap();
    }
    second.commit().unwrap();
    drop(second);
    let output = run_any(Command::new(e2fsck).arg("-fn").arg(&image));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let fs = Ext4::open(Arc::new(FileDevice::open(&image).unwrap()), &OpenOptions::default()).unwrap();
    for dir in dirs {
        for name in ["dir", "open", "file", "mode", "link"] {
            let (kernel, ours) = (format!("/{dir}/{name}-kernel"), format!("/{dir}/{name}-casemate"));
            assert_eq!(describe(&fs, &ours), describe(&fs, &kernel), "{ours}");
        }
    }
}

#[test]
fn projects_go_on() {
    let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    run(Command::new(mke2fs).args(["-q", "-F", "-t", "ext4", "-O", "project"]).arg(&image).arg("4M"));
    let open = || Arc::new(FileDevice::open_writable(&image).unwrap());
    let node = NewNode::new(0o755);
    let mut writer = Writer::open(open(), WriteOptions::default()).unwrap();
    writer.make_directory(b"/dir", &node, false).unwrap();
    writer.commit().unwrap();
    drop(writer);
    // EXT4_PROJINHERIT_FL, beside that of extents.
    for field in ["flags 0x20080000", "projid 77"] {
        let request = format!("set_inode_field /dir {field}");
        run(Command::new(&debugfs).args(["-w", "-R", &request]).arg(&image));
    }
    let mut writer = Writer::open(open(), WriteOptions::default()).unwrap();
    writer.make_directory(b"/dir/below", &node, false).unwrap();
    writer.make_file(b"/dir/below/file", &node).unwrap();
    writer.commit().unwrap();
    for (path, flags) in [("/dir/below", 0x2008_0000), ("/dir/below/file", 0x8_0000)] {
        let inode = writer.fs().resolve(path.as_bytes(), true).unwrap();
        assert_eq!((inode.project(), inode.flags().0), (77, flags), "{path}");
    }
}
