#![no_main]
//! A tar stream, compressed or not, of which a file system is made, which is sound, whatever the stream held.

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice, NoEvents, Pool};
use casemate_ext4::{BuildOptions, CheckOptions, Plan, Tree, TreeOptions, check};
use casemate_providers::Work;
use casemate_trees::unpacked;

/// Larger file systems are planned and not written.
const MOST: u64 = 48 << 20;

const TYPES: [(&str, &str, u32); 8] = [
    ("ext4", "", 4096),
    ("ext4", "", 1024),
    ("ext2", "", 1024),
    ("ext3", "", 4096),
    ("ext4", "bigalloc,^resize_inode", 1024),
    ("ext4", "casefold,verity", 1024),
    ("ext4", "^has_journal,^metadata_csum,^flex_bg", 1024),
    ("ext4", "meta_bg,^resize_inode,^dir_index", 1024),
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [kind, tar @ ..] = bytes else { return };
    let mut tar = tar.to_vec();
    casemate_fuzz::fix_tar_sums(&mut tar);
    let mut tree_options = TreeOptions::default();
    tree_options.whiteouts = kind & 8 != 0;
    let kept = tempfile::tempfile_in("/dev/shm").expect("a file");
    let kept = Arc::new(FileDevice::from_file(kept).expect("a file"));
    let Ok(mut stream) = unpacked(&tar[..]) else { return };
    let mut tree = Tree::new();
    if tree.add_tar_stream(&mut stream, kept, "input", &tree_options, &NoEvents).is_err() {
        return;
    }
    let (name, features, block_size) = TYPES[usize::from(kind & 7)];
    let mut options = BuildOptions::new([1; 16], [2; 16]);
    options.set_type(name).expect("a type");
    options.features.change(features).expect("features");
    options.block_size = block_size;
    options.inode_ratio = 65536;
    let Ok(plan) = Plan::new(tree, &options) else { return };
    if plan.size() > MOST {
        return;
    }
    // OK to cast: below the limit.
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(vec![0; plan.size() as usize]));
    let work = Work { pool: Pool::new(std::num::NonZeroUsize::new(1)), ..Work::default() };
    plan.write(&*device, true, &work).expect("what was planned can be written");
    let report = check(device, &CheckOptions::default(), &work).expect("a file system");
    assert!(report.is_clean(), "{:?}", report.faults);
});
