//! Checksums that are rewritten where they lie.

use std::fs;
use std::sync::Arc;

use casemate::Work;
use casemate::blockdev::{BlockDevice, MemoryDevice};
use casemate_ext4::{CheckOptions, fix_checksums};
use casemate_testkit::mke2fs;
use casemate_testkit::power::{Files, State};
use casemate_testkit::tool;

use crate::{Judge, Outcome, Session};

const BLOCK: usize = 1024;

/// Judges that the command, run again, gives what it would have given; until then nothing but checksums differs.
fn judge<'a>(before: &Files, after: &Files) -> Judge<'a> {
    let (before, after) = (before["image"].clone(), after["image"].clone());
    Box::new(move |_, State { files, .. }| {
        let image = &files["image"];
        let is_known = |at: usize| image[at] == before[at] || image[at] == after[at];
        // Blocks first: nearly all are as they were.
        let is_known = |at: usize| {
            let block = at..at + BLOCK;
            image[block.clone()] == before[block.clone()] || block.into_iter().all(is_known)
        };
        if image.len() != after.len() || !(0..image.len()).step_by(BLOCK).all(is_known) {
            return Err("there is something that was never written".to_owned());
        }
        let device = Arc::new(MemoryDevice::new(image.clone()));
        let fixed = fix_checksums(device.clone(), &CheckOptions::default(), &Work::default());
        let (_, report) = fixed.map_err(|error| error.to_string())?;
        let mut found = vec![0; image.len()];
        device.read_at(&mut found, 0).unwrap();
        if !report.is_clean() || found != after {
            return Err(format!("the same again gives something else: {:?}", report.faults));
        }
        Ok(match image {
            image if *image == after => Outcome::After,
            image if *image == before => Outcome::Before,
            _ => Outcome::Between,
        })
    })
}

#[test]
fn checksums_are_rewritten_at_any_moment() {
    let Some(make) = tool("mke2fs") else { return };
    let mut session = Session::new("checksums");
    let image = session.path().join("image");
    mke2fs::make(&make, "-t ext4 -b 1024 -N 128 -J size=1", &image, "12M");
    for number in 0..6 {
        session.run(&format!("ext4 mkdir image /{number}"));
    }
    let sound = fs::read(&image).unwrap();
    let mut bytes = sound.clone();
    let field = |at: usize| u32::from_le_bytes(sound[at..at + 4].try_into().unwrap()) as usize;
    // The superblock, its copy, a descriptor and its copy.
    let mut places = vec![1024 + 0x3fc, 8193 * BLOCK + 0x3fc, 2 * BLOCK + 0x1e, 8194 * BLOCK + 0x1e];
    // Inodes of directories, and the only block of each: structures that are found one through the other.
    let table = field(2 * BLOCK + 8) * BLOCK;
    for number in [2, 12, 13, 14, 15, 16] {
        let inode = table + (number - 1) * 256;
        places.extend([inode + 0x7c, field(inode + 0x28 + 12 + 8) * BLOCK + BLOCK - 4]);
    }
    places.into_iter().for_each(|place| bytes[place] ^= 0x5a);
    fs::write(&image, bytes).unwrap();
    let line = "ext4 check --fix-checksums image";
    if !session.cut(80, line, line, judge) {
        return;
    }
    assert!(fs::read(&image).unwrap() == sound, "other checksums than mke2fs made");
    session.end(60);
}
