//! Names that no file has: every operation that makes, moves or removes a name refuses them, and nothing is changed.

use std::io::ErrorKind;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::FileDevice;
use casemate_ext4::{Body, FileType, InodeNo, NewNode, Tuning, WriteOptions, Writer};
use casemate_testkit::{mke2fs, run, tempdir, tool};

const ROOT: InodeNo = InodeNo::ROOT;

#[test]
fn no_operation_makes_a_name_that_no_file_has() {
    let (Some(mke2fs), Some(e2fsck)) = (tool("mke2fs"), tool("e2fsck")) else { return };
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    let long = "n".repeat(256);
    for features in ["-t ext4", "-t ext4 -O ^dir_index", "-t ext4 -O inline_data"] {
        mke2fs::make(&mke2fs, features, &image, "16M");
        let device = Arc::new(FileDevice::open_writable(&image).unwrap());
        let mut writer = Writer::open(device, WriteOptions::default()).unwrap();
        let node = NewNode::new(0o644);
        let dir = writer.create_under(ROOT, b"d", &NewNode::new(0o755), Body::Directory).unwrap();
        let file = writer.create_under(dir, b"f", &node, Body::File).unwrap();
        for name in [&b""[..], b".", b"..", b"a/b", b"f\0", b"\0", long.as_bytes()] {
            let shown = format!("{features} {:?}", String::from_utf8_lossy(name));
            let refused = [
                writer.create_under(dir, name, &node, Body::File).map(drop),
                writer.create_under(dir, name, &node, Body::Directory).map(drop),
                writer.create_under(dir, name, &node, Body::Symlink(b"f")).map(drop),
                writer.create_under(dir, name, &node, Body::Node(FileType::Fifo, 0, 0)).map(drop),
                writer.create_raw(dir, name, Body::File, None).map(drop),
                writer.link_raw(dir, name, file),
                writer.link_inode(file, dir, name),
                writer.rename_name((dir, b"f"), (dir, name), false).map(drop),
                writer.rename_name((dir, name), (ROOT, b"new"), false).map(drop),
                writer.rename_to_whiteout((dir, b"f"), (dir, name), false, &node).map(drop),
                writer.exchange_names((dir, b"f"), (dir, name)),
                writer.exchange_names((dir, name), (dir, b"f")),
                writer.remove_name(dir, name).map(drop),
            ];
            for (number, result) in refused.into_iter().enumerate() {
                let error = result.expect_err(&format!("{shown}: operation {number}"));
                let kinds = [ErrorKind::InvalidInput, ErrorKind::InvalidFilename, ErrorKind::NotFound];
                assert!(
                    error.io_kind().is_some_and(|kind| kinds.contains(&kind)),
                    "{shown}: {number}: {error}"
                );
            }
        }
        for path in [&b"/d/n\0"[..], format!("/d/{long}").as_bytes(), b"/d/..", b"/d/."] {
            let refused = [
                writer.rename(b"/d/f", path),
                writer.link(b"/d/f", path),
                writer.make_file(path, &node),
                writer.make_symlink(path, b"f", &node),
            ];
            assert!(refused.iter().all(Result::is_err), "{features} {path:?}: {refused:?}");
        }
        assert!(writer.set_xattr(b"/d/f", b"user.a\0b", Some(b"v"), false).is_err());
        for text in [b"a\0b".to_vec(), b"\0".to_vec()] {
            let (mut label, mut mounted) = (Tuning::default(), Tuning::default());
            label.label = Some(text.clone());
            mounted.last_mounted = Some(text);
            assert!(writer.tune(&label).is_err() && writer.tune(&mounted).is_err());
        }
        writer.commit().unwrap();
        let names = writer.fs().read_dir(&writer.fs().inode(dir).unwrap()).unwrap();
        assert_eq!(names.iter().filter(|entry| entry.name == b"f" && entry.inode == file).count(), 1);
        drop(writer);
        run(Command::new(&e2fsck).args(["-fn"]).arg(&image));
    }
}
