#![no_main]
//! Descriptions beside a tree, and labels: read, and given to a tree.

use casemate_ext4::Tree;
use casemate_trees::FileType;
use casemate_trees::labels::Labels;
use casemate_trees::manifest::{Format, parse};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [kind, text @ ..] = bytes else { return };
    let format = match kind % 5 {
        0 => Format::FsConfig,
        1 => Format::DeviceTable,
        2 => Format::Mtree,
        3 => Format::Composefs,
        _ => {
            let Ok(labels) = Labels::parse(text, "input") else { return };
            for path in [&b"/"[..], b"/usr/bin/su", b"/a"] {
                _ = labels.of(path, FileType::Regular);
            }
            return;
        }
    };
    let Ok(entries) = parse(format, text, "input") else { return };
    let mut tree = Tree::new();
    for entry in &entries {
        _ = tree.amend(entry);
    }
    tree.describe(&mut |_| ());
});
