//! Old block maps that say what no file system would: images of a few KiB that stand for much more.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use casemate_blockdev::os::FileExt;

use crate::run;

/// Bytes of a block.
pub const SIZE: u64 = 4096;

/// Numbers in a block, and those before the second level: in the inode, and in the block of the first.
const PER_BLOCK: u32 = 1024;
const BEFORE_SECOND: u32 = 12 + PER_BLOCK;

/// Gives files of an image with blocks of 4096 bytes `blocks` blocks; the first one stays what it is, and the others are
/// `at` of their number in the file. Files are paths or `<inode>`; they share blocks of numbers, which lie from block
/// `levels` on. Returns the block behind those.
pub fn give(
    debugfs: &Path,
    image: &Path,
    files: &[String],
    blocks: u32,
    at: impl Fn(u32) -> u32,
    levels: u32,
) -> u32 {
    let file = File::options().write(true).open(image).unwrap();
    let write = |block: u32, numbers: Vec<u32>| {
        let bytes: Vec<u8> = numbers.into_iter().flat_map(u32::to_le_bytes).collect();
        file.write_all_at(&bytes, u64::from(block) * SIZE).unwrap();
    };
    let full = |first: u32| (first..first + PER_BLOCK).map(&at).collect();
    write(levels, full(12));
    let more = blocks.saturating_sub(BEFORE_SECOND).div_ceil(PER_BLOCK);
    (0..more).for_each(|number| write(levels + 2 + number, full(BEFORE_SECOND + PER_BLOCK * number)));
    write(levels + 1, (0..more).map(|number| levels + 2 + number).collect());
    let mut script = String::new();
    for name in files {
        (1..12).for_each(|number| script += &format!("sif {name} block[{number}] {}\n", at(number)));
        script += &format!("sif {name} block[IND] {levels}\nsif {name} block[DIND] {}\n", levels + 1);
        script += &format!("sif {name} size {}\n", u64::from(blocks) * SIZE);
    }
    let commands = image.with_extension("commands");
    std::fs::write(&commands, script).unwrap();
    run(Command::new(debugfs).arg("-w").arg("-f").arg(&commands).arg(image));
    levels + 2 + more
}

/// Makes the journal of an image one of `blocks` blocks, of which all but the first are still to be replayed.
pub fn journal(debugfs: &Path, image: &Path, blocks: u32, at: impl Fn(u32) -> u32, levels: u32) {
    give(debugfs, image, &["<8>".to_owned()], blocks, at, levels);
    let first = run(Command::new(debugfs).args(["-R", "bmap <8> 0"]).arg(image));
    let start = first.trim().parse::<u64>().unwrap() * SIZE;
    let file = File::options().write(true).open(image).unwrap();
    for (field, value) in [(0x10, blocks), (0x14, 1), (0x18, 1), (0x1c, 1), (0x28, 1)] {
        file.write_all_at(&value.to_be_bytes(), start + field).unwrap();
    }
    // needs_recovery
    file.write_all_at(&[6], 1024 + 0x60).unwrap();
}
