//! Letting a real kernel work on an image: this machine's, through a loop device where that is allowed, else
//! one in User-Mode-Linux.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use casemate_blockdev::BlockDevice;
use casemate_ext4::{Ext4, FileType, Inode};
use casemate_testkit::kernel::loop_mounts_work;
use casemate_testkit::run_any;
use casemate_testkit::uml::Uml;
use sha2::{Digest, Sha256};

use super::hex;

/// Prints every file: kind and mode, owner, size, links, time, name; then hashes of contents.
pub const SHOW: &str = r#"
find . -mindepth 1 -name lost+found -prune -o -printf '%y %m %U %G %s %n %T@ %i %l|%P\n'
find . -type f -exec sha256sum {} +
"#;

/// Mounts `image` and runs `script` in its top folder, as root. What it prints, or `None` after a skip.
///
/// # Panics
/// If the script fails.
pub fn on_mounted(image: &Path, mount_options: &str, script: &str) -> Option<String> {
    if loop_mounts_work() {
        let folder = casemate_testkit::tempdir().unwrap();
        let at = folder.path().display();
        let options = format!("loop,{mount_options}");
        let whole = format!(
            "set -e; mount -t ext4 -o {options} '{}' {at}; cd {at}\n{script}\ncd /; umount {at}",
            image.display()
        );
        let output =
            run_any(Command::new("unshare").args(["-m", "--propagation", "slave", "sh", "-c", &whole]));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
        return Some(text(&output.stdout));
    }
    in_uml(image, mount_options, script)
}

/// Mounts an image in User-Mode-Linux, for features that this machine's kernel may lack, and runs a script there.
///
/// # Panics
/// If the script fails.
pub fn in_uml(image: &Path, mount_options: &str, script: &str) -> Option<String> {
    let folder = casemate_testkit::tempdir().unwrap();
    let at = folder.path().display();
    let mount = format!("mount -t ext4 -o {mount_options} /dev/ubda {at}");
    let whole = format!("set -e; {mount}; cd {at}\n{script}\ncd /; umount {at}");
    let output = Uml::new(whole).disk(image, mount_options.starts_with("ro")).run()?;
    Some(output.expect_success().stdout)
}

/// Compares what [`SHOW`] printed, of so many lines at least, with the file system.
pub fn compare(fs: &Ext4, shown: &str, least: u32, what: &str) {
    compare_with(fs, shown, least, what, |facts| facts.to_owned());
}

/// Compares the part of each path's facts that `part` takes.
pub fn compare_with(fs: &Ext4, shown: &str, least: u32, what: &str, part: impl Fn(&str) -> String) {
    let mut lines = BTreeMap::new();
    walk(fs, &fs.root().unwrap(), "", &mut lines);
    let mut count = 0;
    for line in shown.lines() {
        let (key, value) = if let Some((facts, path)) = line.split_once('|') {
            (path.to_owned(), facts.to_owned())
        } else {
            let (hash, path) = line.split_once("  ./").unwrap_or_else(|| panic!("{what}: {line}"));
            (format!("{path} contents"), hash.to_owned())
        };
        assert_eq!(lines.remove(&key).map(|it| part(&it)), Some(part(&value)), "{what}: {key}");
        count += 1;
    }
    assert!(count >= least, "{what}: {count} lines");
    assert!(lines.is_empty(), "{what}: {:?}", lines.first_key_value());
}

fn walk(fs: &Ext4, dir: &Inode, prefix: &str, lines: &mut BTreeMap<String, String>) {
    for entry in fs.read_dir(dir).unwrap() {
        let path = format!("{prefix}{}", String::from_utf8_lossy(&entry.name));
        if path == "lost+found" {
            continue;
        }
        let inode = fs.inode(entry.inode).unwrap();
        let letter = match inode.kind() {
            FileType::Regular => 'f',
            other => other.letter(),
        };
        let target = match inode.kind() {
            FileType::Symlink => String::from_utf8(fs.symlink_target(&inode).unwrap()).unwrap(),
            _ => String::new(),
        };
        let time = inode.modified();
        let facts = format!(
            "{letter} {:o} {} {} {} {} {}.{:09}0 {} {target}",
            inode.mode() & 0o7777,
            inode.uid(),
            inode.gid(),
            inode.size(),
            inode.links(),
            time.seconds,
            time.nanoseconds,
            inode.number(),
        );
        lines.insert(path.clone(), facts);
        if inode.is_dir() {
            walk(fs, &inode, &format!("{path}/"), lines);
        }
        if inode.kind() == FileType::Regular {
            let file = fs.open_file(&inode).unwrap();
            let mut contents = vec![0; file.size() as usize];
            file.read_at(&mut contents, 0).unwrap();
            lines.insert(format!("{path} contents"), hex(&Sha256::digest(&contents)));
        }
        if inode.is_dir() && fs.is_indexed(&inode) {
            for entry in fs.read_dir(&inode).unwrap() {
                assert_eq!(fs.lookup_indexed(&inode, &entry.name).unwrap(), Some(entry.inode));
            }
        }
    }
}
