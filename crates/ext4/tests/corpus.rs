//! Images made by a real kernel, read and compared with what that kernel said of them.

mod common;

use std::collections::BTreeMap;

use casemate_blockdev::BlockDevice;
use casemate_ext4::{Ext4, FileType, Inode, OpenOptions};
use common::{Fixture, fixtures, hex, verity_fixtures};
use sha2::{Digest, Sha256};

#[test]
fn every_file_is_as_the_kernel_showed_it() {
    for fixture in fixtures() {
        let fs = fixture.open().unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
        let mut found = BTreeMap::new();
        walk(&fs, &fs.root().unwrap(), String::new(), &mut found);
        for entry in fixture.manifest["entries"].as_array().unwrap() {
            compare(&fixture, &fs, entry, &mut found);
        }
        found.remove("lost+found");
        assert!(found.is_empty(), "{}: {:?} are not in the manifest", fixture.name, found.keys());
    }
}

#[test]
fn names_are_found_by_their_paths() {
    for fixture in fixtures() {
        let fs = fixture.open().unwrap();
        for entry in fixture.manifest["entries"].as_array().unwrap() {
            let path = entry["path"].as_str().unwrap();
            let inode = fs.resolve(path.as_bytes(), false);
            let inode = inode.unwrap_or_else(|error| panic!("{}: {path}: {error}", fixture.name));
            assert_eq!(u64::from(inode.number().get()), entry["inode"].as_u64().unwrap(), "{}", fixture.name);
            let other = format!("{path}-not");
            let error = fs.resolve(other.as_bytes(), false).unwrap_err();
            // As the kernel says of a name that no file can have (ENAMETOOLONG).
            let is_too_long = other.rsplit('/').next().unwrap().len() > 255;
            let expected = if is_too_long { ": a name has 1 to 255 bytes" } else { ": no such file" };
            assert!(error.to_string().ends_with(expected), "{error}");
        }
    }
}

#[test]
fn the_dirty_journal_is_replayed_in_memory() {
    let fixture = fixtures().find(|fixture| fixture.name == "1k-dirty-journal").unwrap();
    let fs = fixture.open().unwrap();
    let recovery = fs.recovery();
    assert!(recovery.transactions > 5 && recovery.blocks > 20, "{recovery:?}");
    assert!(recovery.cut.is_none(), "{recovery:?}");
    let options = OpenOptions { replay_journal: false, ..OpenOptions::default() };
    let stale = Ext4::open(fixture.device(), &options).unwrap();
    let missing = fixture.manifest["entries"]
        .as_array()
        .unwrap()
        .iter()
        .any(|entry| stale.resolve(entry["path"].as_str().unwrap().as_bytes(), false).is_err());
    assert!(missing, "the journal holds nothing that the image does not");
}

#[test]
fn verity_metadata_is_where_the_kernel_put_it() {
    for fixture in verity_fixtures() {
        let fs = fixture.open().unwrap();
        for file in fixture.manifest["files"].as_array().unwrap() {
            let text = |key: &str| file[key].as_str().unwrap();
            let place = format!("{}: {}", fixture.name, text("path"));
            let inode = fs.resolve(text("path").as_bytes(), false).unwrap();
            let verity = fs.verity(&inode).unwrap().unwrap_or_else(|| panic!("{place}: no fs-verity"));
            // The kernel shows the descriptor without its signature, and with the size of it as zero.
            let mut descriptor = verity.descriptor[..256].to_vec();
            descriptor[4..8].fill(0);
            assert_eq!(hex(&descriptor), text("dump_descriptor_hex"), "{place}");
            let mut tree = vec![0; file["dump_merkle_tree_size"].as_u64().unwrap() as usize];
            assert!(tree.len() as u64 <= verity.tree_room, "{place}");
            verity.whole.read_at(&mut tree, verity.tree_offset).unwrap();
            assert_eq!(hex(&Sha256::digest(&tree)), text("dump_merkle_tree_sha256"), "{place}");
        }
        let root = fs.root().unwrap();
        assert!(fs.verity(&root).unwrap().is_none());
    }
}

fn walk(fs: &Ext4, dir: &Inode, path: String, found: &mut BTreeMap<String, Inode>) {
    for entry in fs.read_dir(dir).unwrap_or_else(|error| panic!("/{path}: {error}")) {
        let path = format!("{path}{}", String::from_utf8_lossy(&entry.name));
        let inode = fs.inode(entry.inode).unwrap_or_else(|error| panic!("/{path}: {error}"));
        assert_eq!(entry.kind, Some(inode.kind()), "/{path}");
        if inode.is_dir() {
            walk(fs, &inode, format!("{path}/"), found);
        }
        found.insert(path, inode);
    }
}

fn compare(fixture: &Fixture, fs: &Ext4, entry: &serde_json::Value, found: &mut BTreeMap<String, Inode>) {
    let path = entry["path"].as_str().unwrap();
    let place = format!("{}: /{path}", fixture.name);
    let inode = found.remove(path).unwrap_or_else(|| panic!("{place} is missing"));
    let number = |key: &str, value: u64| {
        if let Some(expected) = entry[key].as_u64() {
            assert_eq!(value, expected, "{place}: {key}");
        }
    };
    number("inode", u64::from(inode.number().get()));
    number("nlink", u64::from(inode.links()));
    number("uid", u64::from(inode.uid()));
    number("gid", u64::from(inode.gid()));
    number("size", inode.size());
    if let Some(mode) = entry["mode"].as_str() {
        assert_eq!(format!("{:o}", inode.mode()), mode, "{place}: mode");
    }
    // debugfs shows no flags for these; the manifest of the image that no kernel mounted is wrong there.
    let unsure = fixture.name == "64k-mke2fs" && inode.kind() == FileType::Symlink && inode.size() < 60;
    if let Some(flags) = entry["i_flags"].as_str().filter(|_| !unsure) {
        assert_eq!(format!("{:#x}", inode.flags().0), flags, "{place}: flags");
    }
    if let Some(target) = entry["target"].as_str() {
        assert_eq!(fs.symlink_target(&inode).unwrap(), target.as_bytes(), "{place}: target");
    }
    if let Some(sha256) = entry["sha256"].as_str().filter(|_| inode.kind() == FileType::Regular) {
        let file = fs.open_file(&inode).unwrap();
        let mut contents = vec![0; file.size() as usize];
        file.read_at(&mut contents, 0).unwrap();
        assert_eq!(hex(&Sha256::digest(&contents)), sha256, "{place}: contents");
        // What is no data is zero.
        let mut at = 0;
        while let Some(data) = file.next_data(at).unwrap() {
            contents[data.start as usize..data.end as usize].fill(0);
            at = data.end;
        }
        assert!(contents.iter().all(|byte| *byte == 0), "{place}: data outside of next_data()");
    }
    let mut expected: Vec<(String, String)> = match entry["xattrs_hex"].as_object() {
        Some(map) => map.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned())).collect(),
        None => Vec::new(),
    };
    expected.sort();
    let mut xattrs: Vec<_> = fs
        .xattrs(&inode)
        .unwrap()
        .into_iter()
        .map(|xattr| (String::from_utf8(xattr.name).unwrap(), hex(&xattr.value)))
        .collect();
    xattrs.sort();
    assert_eq!(xattrs, expected, "{place}: xattrs");
}
