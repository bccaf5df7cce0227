//! Trees that casemate made, opened by a real kernel's dm-verity.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use casemate_blockdev::{FileDevice, MemoryDevice, Uuid};
use casemate_providers::Work;
use casemate_testkit::{Rng, tempdir, tool, uml::Uml};
use casemate_verity::dm::{self, HashType, Layout, Parameters, Salt, Table};

const BLOCK: usize = 4096;

/// Opens a device by its table line and copies what can be read of it; other blocks become zeros.
///
/// The arguments: data file, hash file, table line, and the file to copy to.
const SCRIPT: &str = r#"
open_and_read() {
    losetup -r /dev/loop0 "$1"
    losetup -r /dev/loop1 "$2"
    dmsetup create v -r --table "$3"
    [ -b /dev/mapper/v ] || dmsetup mknodes v
    dd if=/dev/mapper/v of="$4" bs=4096 conv=noerror,sync 2>/dev/null || true
    dmsetup remove v
    losetup -d /dev/loop0 /dev/loop1
}
"#;

#[test]
fn a_kernel_reads_our_trees_and_refuses_the_same_blocks() {
    for needed in ["dmsetup", "losetup", "blockdev"] {
        if tool(needed).is_none() {
            return;
        }
    }
    let folder = tempdir().unwrap();
    let mut script = String::from(SCRIPT);
    let mut expected = Vec::new();
    let mut rng = Rng::new(7);
    let work = Work::default();
    for (name, algorithm, hash_type, blocks, superblock) in [
        ("one", "sha256", 1, 1u64, true),
        ("level", "sha256", 1, 128, true),
        ("levels", "sha256", 1, 300, false),
        ("old", "sha1", 0, 300, true),
        ("long", "sha512", 1, 200, true),
    ] {
        let mut parameters = Parameters::new(algorithm).unwrap();
        parameters.hash_type = HashType::numbered(hash_type).unwrap();
        parameters.salt = Salt::new(rng.bytes(32)).unwrap();
        let layout = Layout::new(parameters, blocks, 0, superblock.then(|| Uuid::random().unwrap())).unwrap();
        let mut data = rng.bytes(blocks as usize * BLOCK);
        let (data_path, hash_path) =
            (folder.path().join(format!("{name}.data")), folder.path().join(format!("{name}.hash")));
        fs::write(&data_path, &data).unwrap();
        fs::File::create(&hash_path).unwrap();
        let hash_device = FileDevice::open_writable(&hash_path).unwrap();
        let root_hash =
            dm::format(&layout, &FileDevice::open(&data_path).unwrap(), &hash_device, &work).unwrap();
        let table =
            Table::new(&layout, &root_hash, "/dev/loop0".to_owned(), "/dev/loop1".to_owned()).unwrap();
        let mut call = |copy: &str, data: &Path, hash: &Path| {
            let copy = folder.path().join(copy);
            let (data, hash) = (data.display(), hash.display());
            script += &format!("open_and_read {data} {hash} '{table}' {}\n", copy.display());
            copy
        };
        let copy = call(name, &data_path, &hash_path);
        expected.push((copy, BTreeSet::new(), data.clone()));

        // The same with a few bits flipped: in data, and in a hash block if there are levels.
        let mut hash = fs::read(&hash_path).unwrap();
        for block in [0, blocks / 2, blocks - 1] {
            data[block as usize * BLOCK + rng.below(BLOCK as u64) as usize] ^= 1;
        }
        if layout.geometry().levels().len() > 1 {
            let offset = layout.tree_offset() + layout.geometry().offset(0, 1) + 8;
            hash[offset as usize] ^= 0x80;
        }
        let bad_paths = [folder.path().join(format!("{name}.d")), folder.path().join(format!("{name}.h"))];
        fs::write(&bad_paths[0], &data).unwrap();
        fs::write(&bad_paths[1], &hash).unwrap();
        let copy = call(&format!("{name}-bad"), &bad_paths[0], &bad_paths[1]);
        let (data_device, hash_device) = (MemoryDevice::new(data.clone()), MemoryDevice::new(hash));
        let summary =
            dm::verify(&layout, &data_device, &hash_device, &root_hash, &work, &mut |_| Ok(())).unwrap();
        let bad: BTreeSet<u64> = summary.bad_data.iter().chain(summary.unverified.iter()).flatten().collect();
        assert!(!bad.is_empty());
        expected.push((copy, bad, data));
    }

    let Some(output) = Uml::new(script).run() else { return };
    let output = output.expect_success();
    for (path, bad, data) in expected {
        let what = path.display();
        let copy = fs::read(&path).unwrap_or_else(|error| panic!("{what}: {error}\n{output:?}"));
        assert_eq!(copy.len(), data.len(), "{what}\n{output:?}");
        // The data is random: a block of zeros is one that could not be read.
        let blocks = copy.chunks(BLOCK).enumerate();
        let found: BTreeSet<u64> = blocks
            .clone()
            .filter(|(_, block)| **block == [0; BLOCK])
            .map(|(index, _)| index as u64)
            .collect();
        assert_eq!(found, bad, "{what}\n{output:?}");
        for (index, block) in blocks.filter(|(index, _)| !bad.contains(&(*index as u64))) {
            assert!(block == &data[index * BLOCK..][..BLOCK], "{what}: block {index}");
        }
    }
}
