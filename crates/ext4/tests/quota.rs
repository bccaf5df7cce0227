//! Usage in quota files after changes, as e2fsck, debugfs and a kernel count it.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{FileDevice, MemoryDevice};
use casemate_ext4::{InodeNo, NewNode, PutOptions, RecoveryFile, WriteOptions, Writer};
use casemate_providers::Work;
use casemate_testkit::{Rng, TempDir, run, run_any, tempdir, tool};
use common::assert_sound;
use common::kernel::in_uml;

struct Place {
    folder: TempDir,
    e2fsck: PathBuf,
    debugfs: PathBuf,
    what: &'static str,
}

impl Place {
    fn new(features: &'static str, size: &str) -> Option<Place> {
        let (mke2fs, e2fsck, debugfs) = (tool("mke2fs")?, tool("e2fsck")?, tool("debugfs")?);
        let folder = tempdir().unwrap();
        let mut command = Command::new(mke2fs);
        command.args(["-q", "-F", "-t", "ext4", "-N", "1000"]).args(features.split(' '));
        run(command.arg(folder.path().join("image")).arg(size));
        Some(Place { folder, e2fsck, debugfs, what: features })
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn writer(&self) -> Writer {
        let device = FileDevice::open_writable(self.image()).unwrap();
        let recovery = Some(RecoveryFile::new(self.folder.path().join("image.redo")));
        Writer::open(Arc::new(device), WriteOptions { recovery, ..WriteOptions::default() }).unwrap()
    }

    fn assert_clean(&self) {
        assert_sound(&self.image(), self.what);
    }

    fn debugfs(&self, commands: &[&str]) -> String {
        let script = self.folder.path().join("commands");
        std::fs::write(&script, commands.join("\n")).unwrap();
        run(Command::new(&self.debugfs).arg("-w").arg("-f").arg(script).arg(self.image()))
    }

    /// Whose usage is counted: id, bytes, inodes.
    fn usage(&self, kind: &str) -> Vec<(u32, u64, u64)> {
        let list = self.debugfs(&[&format!("list_quota {kind}")]);
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        let mut rows = Vec::new();
        for line in list.lines() {
            // id, blocks in use, quota and limit in bytes, inodes in use, quota and limit.
            let mut words = line.split_whitespace();
            let Some(id) = number(words.next()) else { continue };
            let (space, inodes) = (number(words.next()), number(words.nth(2)));
            if let (Some(space), Some(inodes)) = (space, inodes) {
                rows.push((id as u32, space, inodes));
            }
        }
        rows.sort_unstable();
        rows
    }
}

fn node(uid: u32, gid: u32) -> NewNode {
    let mut node = NewNode::new(0o755);
    (node.uid, node.gid) = (uid, gid);
    node
}

/// Ids that go different ways through the tree.
fn id(number: u32) -> u32 {
    number.wrapping_mul(0x0302_0105) % 0x7fff_ffff
}

#[test]
fn usage_follows_every_change() {
    for (features, size) in [
        ("-b 1024 -O quota,project", "16M"),
        ("-b 4096 -O quota,ea_inode -E quotatype=usrquota", "24M"),
        ("-b 65536 -O quota", "96M"),
        ("-b 1024 -O ^extent,^64bit,quota", "16M"),
        ("-b 4096 -O quota,bigalloc,^has_journal -C 16384", "32M"),
    ] {
        let Some(place) = Place::new(features, size) else { return };
        let first = place.usage("user");
        let mut writer = place.writer();
        writer.make_directory(b"/dir", &node(0, 0), false).unwrap();
        for number in 0..120 {
            let path = format!("/dir/{number}");
            writer.make_file(path.as_bytes(), &node(id(number), id(number % 7))).unwrap();
            writer.allocate_file(path.as_bytes(), u64::from(number) * 100).unwrap();
        }
        writer.commit().unwrap();
        place.assert_clean();
        assert_eq!(place.usage("user").len(), 120, "{features}");
        for number in 0..40 {
            let path = format!("/dir/{number}");
            let value = vec![b'v'; if features.contains("ea_inode") { 9000 } else { 500 }];
            writer.set_xattr(path.as_bytes(), b"user.long", Some(&value), true).unwrap();
            writer.set_owner(path.as_bytes(), Some(id(number + 200)), Some(5), true).unwrap();
            writer.link(path.as_bytes(), format!("/dir/again{number}").as_bytes()).unwrap();
        }
        // What fails leaves nothing behind.
        assert!(writer.make_file(b"/dir/1", &node(99, 99)).is_err());
        assert!(writer.allocate_file(b"/dir/1", 1 << 30).is_err());
        let source = place.folder.path().join("source");
        std::fs::write(&source, vec![1; 20_000]).unwrap();
        let (recursive, xattrs) = (false, false);
        let mut put = PutOptions::default();
        put.recursive = recursive;
        put.owner = Some((6, 7));
        put.xattrs = xattrs;
        writer.put(&source, b"/dir/7", &put, &Work::default()).unwrap();
        writer.truncate(b"/dir/9", 3).unwrap();
        writer.set_xattr(b"/dir/3", b"user.long", None, true).unwrap();
        writer.commit().unwrap();
        place.assert_clean();
        writer.remove_tree(b"/dir").unwrap();
        writer.commit().unwrap();
        place.assert_clean();
        // Who has nothing is not listed any more.
        assert_eq!(place.usage("user"), first, "{features}");
        drop(writer);
        place.assert_clean();
    }
}

#[test]
fn projects_are_inherited_and_counted() {
    let Some(place) = Place::new("-b 1024 -O quota,project", "8M") else { return };
    let mut writer = place.writer();
    writer.make_directory(b"/project", &node(0, 0), false).unwrap();
    writer.commit().unwrap();
    drop(writer);
    // EXT4_PROJINHERIT_FL beside EXT4_EXTENTS_FL.
    place.debugfs(&["sif /project flags 0x20080000", "sif /project projid 77"]);
    run_any(Command::new(&place.e2fsck).arg("-fy").arg(place.image()));
    let mut writer = place.writer();
    writer.make_directory(b"/project/below", &node(0, 0), false).unwrap();
    writer.make_file(b"/project/below/file", &node(0, 0)).unwrap();
    writer.allocate_file(b"/project/below/file", 5000).unwrap();
    writer.commit().unwrap();
    place.assert_clean();
    assert_eq!(place.usage("project").last(), Some(&(77, 1024 + 1024 + 5 * 1024, 3)));
}

/// Asks the kernel: "get KIND ID" prints bytes, inodes and whether a limit has begun to bind; "set ID BYTES" gives a
/// user a soft limit.
const QUOTACTL: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open(".", os.O_RDONLY)
class Dqblk(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in
        ("bhard", "bsoft", "space", "ihard", "isoft", "inodes", "btime", "itime")] + [("valid", ctypes.c_uint32)]
def call(command, kind, who, dqblk):
    # quotactl_fd()
    if libc.syscall(443, fd, command << 8 | kind, who, ctypes.byref(dqblk)):
        sys.exit("quotactl: %s" % os.strerror(ctypes.get_errno()))
for words in filter(None, map(str.split, sys.stdin)):
    if words[0] == "get":
        dqblk = Dqblk()
        call(0x800007, int(words[1]), int(words[2]), dqblk)
        print(words[1], words[2], dqblk.space, dqblk.inodes, int(dqblk.btime != 0))
    else:
        call(0x800008, 0, int(words[1]), Dqblk(bsoft=int(words[2]) // 1024, valid=1))
"#;

#[test]
fn the_kernel_goes_on_where_we_stop() {
    let Some(place) = Place::new("-b 1024 -O quota", "16M") else { return };
    if tool("python3").is_none() {
        return;
    }
    let ctl = place.folder.path().join("quotactl.py");
    std::fs::write(&ctl, QUOTACTL).unwrap();
    let ask = |script: &str| format!("python3 {} <<END\n{script}\nEND\n", Path::new(&ctl).display());
    let mut writer = place.writer();
    for number in 0..60 {
        let path = format!("/{number}");
        writer.make_file(path.as_bytes(), &node(id(number), id(number))).unwrap();
        writer.allocate_file(path.as_bytes(), 3000).unwrap();
    }
    writer.commit().unwrap();
    drop(writer);
    let mut script = String::new();
    for (kind, name) in ["user", "group"].into_iter().enumerate() {
        for (id, ..) in place.usage(name) {
            script += &format!("get {kind} {id}\n");
        }
    }
    let mut expected = String::new();
    for (kind, name) in ["user", "group"].into_iter().enumerate() {
        for (id, space, inodes) in place.usage(name) {
            expected += &format!("{kind} {id} {space} {inodes} 0\n");
        }
    }
    // Then the kernel makes entries and removes some, and sets a limit.
    let (gone, limited) = (id(7), id(8));
    let mut changes = "rm 7; echo text >new; chown 12345:54321 new; chown 23456 9\n".to_owned();
    changes += &ask(&format!("set {limited} 4096"));
    let Some(found) = in_uml(&place.image(), "rw", &(ask(&script) + &changes)) else { return };
    assert_eq!(found, expected);
    place.assert_clean();
    assert!(place.usage("user").iter().all(|(user, ..)| *user != gone));
    // And we go on where the kernel stopped: above the limit, and below it again.
    for (size, over) in [(9000, 1), (1000, 0)] {
        let mut writer = place.writer();
        writer.truncate(b"/8", 0).unwrap();
        writer.allocate_file(b"/8", size).unwrap();
        writer.set_owner(b"/new", Some(id(7)), None, true).unwrap();
        writer.commit().unwrap();
        drop(writer);
        place.assert_clean();
        let found = in_uml(&place.image(), "rw", &ask(&format!("get 0 {limited}"))).unwrap();
        let space = size.div_ceil(1024) * 1024;
        assert_eq!(found, format!("0 {limited} {space} 1 {over}\n"));
        place.assert_clean();
    }
}

#[test]
fn damaged_quota_files_do_no_harm() {
    let Some(place) = Place::new("-b 1024 -O quota", "4M") else { return };
    let mut writer = place.writer();
    for number in 0..40 {
        writer.make_file(format!("/{number}").as_bytes(), &node(id(number), id(number))).unwrap();
    }
    writer.commit().unwrap();
    let fs = writer.fs();
    let mut blocks = Vec::new();
    for file in [3, 4] {
        let inode = fs.inode(InodeNo::new(file).unwrap()).unwrap();
        for block in 0..inode.size() / 1024 {
            let run = fs.mapping_at(&inode, block).unwrap().unwrap();
            blocks.push((run.physical + (block - run.logical)).get() as usize);
        }
    }
    drop(writer);
    let image = std::fs::read(place.image()).unwrap();
    let mut rng = Rng::new(7);
    let mut refused = 0;
    for _ in 0..300 {
        let mut damaged = image.clone();
        for _ in 0..1 + rng.below(4) {
            // The first bytes of blocks hold what matters most.
            let at = if rng.below(2) == 0 { rng.below(40) } else { rng.below(1024) };
            let block = blocks[rng.below(blocks.len() as u64) as usize];
            let value = [0, 1, 0xff, rng.below(256) as u8][rng.below(4) as usize];
            damaged[block * 1024 + at as usize..][..1 + rng.below(4) as usize].fill(value);
        }
        let device = Arc::new(MemoryDevice::new(damaged));
        let mut writer = Writer::open(device, WriteOptions::default()).unwrap();
        for number in 0..10 {
            let made = writer.make_file(format!("/new{number}").as_bytes(), &node(number * 999, id(number)));
            let removed = writer.remove(format!("/{number}").as_bytes());
            refused += usize::from(made.is_err()) + usize::from(removed.is_err());
        }
        let _ = writer.commit();
    }
    assert!(refused > 0);
}
