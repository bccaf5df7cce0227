//! Images that mke2fs makes of a tree, with every feature it has, compared with the tree itself.

mod common;

use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::FileDevice;
use casemate_ext4::{CheckOptions, Ext4, FileType, FindingKind, InodeFlags, OpenOptions, check};
use casemate_providers::Work;
use casemate_testkit::{mke2fs, run, run_any, tempdir, tool};
use common::tree;

#[test]
fn trees_are_read_as_they_were_written() {
    let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let folder = tempdir().unwrap();
    let mut trees = std::collections::BTreeMap::new();
    // Without features there are no attributes, and mke2fs leaves them out.
    for kind in mke2fs::all().filter(|kind| !kind.options.ends_with("-O none")) {
        let (features, block) = (kind.options, kind.block_size());
        let (source, expected) = trees.entry(block).or_insert_with(|| {
            let source = folder.path().join(format!("tree{block}"));
            std::fs::create_dir(&source).unwrap();
            tree::make(&source, block);
            let expected = tree::describe_host(&source);
            (source, expected)
        });
        let image = folder.path().join("image");
        make_image(&mke2fs, features, source, &image, block);
        let fs = open(&image);
        tree::compare(&tree::describe_image(&fs), expected, features);
        assert_clean(&image, features);
        compare_with_debugfs(&debugfs, &fs, &image, features);
    }
}

/// Asks debugfs for all directories in the order of the disk, and where files lie.
fn compare_with_debugfs(debugfs: &Path, fs: &Ext4, image: &Path, what: &str) {
    let (mut script, mut expected) = (String::new(), Vec::new());
    let mut ask = |command: &str, answer: &[u8]| {
        script += &format!("{command}\n");
        expected.extend(format!("debugfs: {command}\n").bytes());
        expected.extend(answer);
    };
    let mut folders = vec![fs.root().unwrap()];
    while let Some(folder) = folders.pop() {
        let mut lines = Vec::new();
        fs.for_each_entry(&folder, |entry| {
            let inode = fs.inode(entry.inode)?;
            let size = if inode.is_dir() { String::new() } else { inode.size().to_string() };
            let (mode, uid, gid) = (inode.mode(), inode.uid(), inode.gid());
            lines.extend(format!("/{}/{mode:06o}/{uid}/{gid}/", entry.inode).bytes());
            lines.extend(entry.name.iter().chain(format!("/{size}/\n").as_bytes()));
            if inode.is_dir() && !matches!(&*entry.name, b"." | b"..") {
                folders.push(inode);
            } else if inode.kind() == FileType::Regular && !inode.has(InodeFlags::INLINE_DATA) {
                let last = inode.size().div_ceil(u64::from(fs.layout().block_size)).max(1) - 1;
                for block in [0, last / 3, last] {
                    let physical = fs.mapping_at(&inode, block)?.map_or(0, |mapping| mapping.physical.get());
                    ask(&format!("bmap <{}> {block}", inode.number()), format!("{physical}\n").as_bytes());
                }
            }
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        lines.push(b'\n');
        ask(&format!("ls -p <{}>", folder.number()), &lines);
    }
    let path = image.with_extension("script");
    std::fs::write(&path, script).unwrap();
    let output = run_any(Command::new(debugfs).arg("-f").arg(&path).arg(image));
    // Blocks without a name are lines of zeros.
    let printed = String::from_utf8_lossy(&output.stdout).replace("/0/000000/0/0//0/\n", "");
    let expected = String::from_utf8_lossy(&expected);
    if let Some((theirs, ours)) = printed.lines().zip(expected.lines()).find(|(theirs, ours)| theirs != ours)
    {
        panic!("{what}: debugfs says {theirs} instead of {ours}");
    }
    assert_eq!(printed.len(), expected.len(), "{what}");
}

#[test]
fn indexed_directories_are_searched_by_every_hash() {
    let (Some(mke2fs), Some(e2fsck), Some(tune2fs)) = (tool("mke2fs"), tool("e2fsck"), tool("tune2fs"))
    else {
        return;
    };
    let folder = tempdir().unwrap();
    let source = folder.path().join("tree");
    let many = source.join("many");
    std::fs::create_dir_all(&many).unwrap();
    let names: Vec<String> = (0..4000).map(|i| format!("{i}-{}-ünïcode", "n".repeat(i * 7 % 101))).collect();
    for name in &names {
        std::fs::write(many.join(name), []).unwrap();
    }
    for (hash, options) in [
        ("legacy", "-t ext4 -b 1024"),
        ("half_md4", "-t ext4 -b 4096"),
        ("tea", "-t ext4 -b 1024 -O large_dir,^metadata_csum"),
        ("half_md4", "-t ext4 -b 65536"),
        ("half_md4", "-t ext2 -b 1024 -O dir_index"),
    ] {
        let image = folder.path().join("image");
        make_image(&mke2fs, options, &source, &image, 65536);
        run(Command::new(&tune2fs).arg("-E").arg(format!("hash_alg={hash}")).arg(&image));
        // Optimising directories gives them their indexes; 1 says that something was changed.
        let output = run_any(Command::new(&e2fsck).args(["-fyD"]).arg(&image));
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let fs = open(&image);
        let dir = fs.resolve(b"many", false).unwrap();
        assert!(fs.is_indexed(&dir), "{hash} {options}");
        for entry in fs.read_dir(&dir).unwrap() {
            let found = fs.lookup_indexed(&dir, &entry.name).unwrap();
            let name = String::from_utf8_lossy(&entry.name);
            assert_eq!(found, Some(entry.inode), "{hash} {options}: {name}");
        }
        assert_eq!(fs.lookup_indexed(&dir, b"not there").unwrap(), None);
        assert_eq!(fs.read_dir(&dir).unwrap().len(), names.len(), "{hash} {options}");
        assert_clean(&image, options);
    }
}

#[test]
fn a_real_tree() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let source = Path::new("/usr/share/doc");
    if !source.is_dir() {
        return casemate_testkit::skip("no /usr/share/doc");
    }
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    run(Command::new(&mke2fs).args(["-q", "-F", "-t", "ext4", "-d"]).arg(source).arg(&image).arg("600M"));
    let expected = tree::describe_host(source);
    tree::compare(&tree::describe_image(&open(&image)), &expected, "/usr/share/doc");
    assert_clean(&image, "/usr/share/doc");
}

fn make_image(mke2fs: &Path, options: &str, source: &Path, image: &Path, block: usize) {
    let _ = std::fs::remove_file(image);
    let mut command = Command::new(mke2fs);
    command.args(["-q", "-F", "-N", "5000"]).args(options.split(' ')).arg("-d").arg(source).arg(image);
    run(command.arg(if block > 4096 { "96M" } else { "28M" }));
}

fn open(image: &Path) -> Ext4 {
    let device = Arc::new(FileDevice::open(image).unwrap());
    Ext4::open(device, &OpenOptions::default()).unwrap()
}

fn assert_clean(image: &Path, what: &str) {
    let device = Arc::new(FileDevice::open(image).unwrap());
    let report = check(device, &CheckOptions::default(), &Work::default()).unwrap();
    // mke2fs counts nothing that it copies from a tree; e2fsck says so, too.
    let has_quota = what.contains("quota");
    let mut faults = report.faults.iter();
    let is_clean = faults.all(|fault| has_quota && fault.kind() == FindingKind::QuotaUsage);
    assert!(is_clean, "{what}: {:?}", report.faults);
}
