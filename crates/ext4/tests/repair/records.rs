//! One wrong length in a record of a directory: that record's name may be lost, and none behind it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::FileDevice;
use casemate_ext4::{Ext4, OpenOptions, RepairDepth, RepairOptions, repair};
use casemate_providers::Work;
use casemate_testkit::{run, tempdir, tool};

use super::{e2fsck, options};

/// Where in a record its length and the length of its name are, and where the name begins.
const LENGTH: usize = 4;
const NAME_LENGTH: usize = 6;
const NAME: usize = 8;

fn names(image: &Path, checksums: bool) -> casemate_blockdev::Result<BTreeSet<Vec<u8>>> {
    let options = OpenOptions { verify_checksums: checksums, ..OpenOptions::default() };
    let fs = Ext4::open(Arc::new(FileDevice::open(image)?), &options)?;
    let directory = fs.resolve(b"directory", false)?;
    Ok(fs.read_dir(&directory)?.into_iter().map(|entry| entry.name).collect())
}

/// Where the records of a directory's first block begin, from its start on.
fn records(block: &[u8]) -> Vec<usize> {
    let length = |at: usize| usize::from(u16::from_le_bytes([block[at + LENGTH], block[at + LENGTH + 1]]));
    let is_used = |at: usize| block[at..at + LENGTH] != [0; LENGTH];
    std::iter::successors(Some(0), |at| Some(at + length(*at)).filter(|at| *at + 12 < block.len()))
        .filter(|at| is_used(*at))
        .collect()
}

#[test]
fn a_wrong_length_costs_one_name() {
    let (Some(mke2fs), Some(fsck)) = (tool("mke2fs"), tool("e2fsck")) else { return };
    let folder = tempdir().unwrap();
    let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
    std::fs::create_dir_all(tree.join("directory")).unwrap();
    for name in ["bin", "a", "usr", "four", "a-longer-name-of-some-file", "z", "etc", "x1"] {
        std::fs::write(tree.join("directory").join(name), name).unwrap();
    }
    for name in ["home", "lib", "opt"] {
        std::fs::create_dir(tree.join("directory").join(name)).unwrap();
        std::fs::write(tree.join("directory").join(name).join("inner"), name).unwrap();
    }
    for (features, block) in [("^metadata_csum", 1024), ("^metadata_csum", 4096), ("metadata_csum", 1024)] {
        let _ = std::fs::remove_file(&image);
        let mut command = Command::new(&mke2fs);
        command.args(["-q", "-F", "-t", "ext4", "-O", features, "-b", &block.to_string()]);
        run(command.arg("-d").arg(&tree).arg(&image).arg("8M"));
        let sound = std::fs::read(&image).unwrap();
        let before = names(&image, true).unwrap();
        let lib = sound.windows(3).position(|bytes| bytes == b"bin").unwrap();
        let start = lib / block * block;
        let records = records(&sound[start..start + block]);
        assert_eq!(records.len(), before.len() + 2, "{records:?}");
        let whole = u16::try_from(block).unwrap();
        let lengths = [0, 8, 10, 0xfffc, whole].map(|length| (LENGTH, length.to_le_bytes().to_vec()));
        let of_names = [0, 9, 40, 255].map(|length| (NAME_LENGTH, vec![length]));
        for (number, at) in records.iter().enumerate() {
            let dots = [24, 40, whole - 12].map(|length: u16| (LENGTH, length.to_le_bytes().to_vec()));
            let dots = dots.iter().filter(|_| number == 0);
            for (field, bytes) in lengths.iter().chain(&of_names).chain(dots) {
                let mut damaged = sound.clone();
                damaged[start + at + field..][..bytes.len()].copy_from_slice(bytes);
                if damaged == sound {
                    continue;
                }
                std::fs::write(&image, &damaged).unwrap();
                let name = &sound[start + at + NAME..][..usize::from(sound[start + at + NAME_LENGTH])];
                let what = format!("{features} {block}: \"{}\": {bytes:?} at {field}", name.escape_ascii());
                let device = Arc::new(FileDevice::open_writable(&image).unwrap());
                let options = RepairOptions { depth: RepairDepth::All, ..options(&image) };
                let report = repair(device, options, &mut |_, _| Ok(true), &Work::default()).unwrap();
                assert!(report.report.is_clean(), "{what}: {report:?}");
                let (code, text) = e2fsck(&fsck, &image);
                assert_eq!(code, Some(0), "{what}: {text}");
                let after = names(&image, true).unwrap();
                let lost: Vec<_> = before.difference(&after).collect();
                // A shorter name may be another one of the same record.
                let may_lose = number > 1 && (*field == NAME_LENGTH || lost.is_empty());
                assert!(lost.len() <= usize::from(may_lose), "{what}: {lost:?} {after:?}");
                assert!(lost.iter().all(|lost| **lost == name), "{what}: {lost:?}");
            }
        }
    }
}

#[test]
fn a_dot_that_hides_names_is_an_error_of_reading() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
    std::fs::create_dir_all(tree.join("directory")).unwrap();
    std::fs::write(tree.join("directory/bin"), "bin").unwrap();
    let mut command = Command::new(&mke2fs);
    command.args(["-q", "-F", "-t", "ext4", "-O", "^metadata_csum", "-b", "1024"]);
    run(command.arg("-d").arg(&tree).arg(&image).arg("8M"));
    let mut bytes = std::fs::read(&image).unwrap();
    let start = bytes.windows(3).position(|bytes| bytes == b"bin").unwrap() / 1024 * 1024;
    bytes[start + LENGTH..][..2].copy_from_slice(&1024u16.to_le_bytes());
    std::fs::write(&image, &bytes).unwrap();
    let error = names(&image, true).unwrap_err();
    assert!(error.to_string().contains("hides"), "{error}");
    let fs = Ext4::open(Arc::new(FileDevice::open(&image).unwrap()), &OpenOptions::default()).unwrap();
    assert!(fs.resolve(b"directory/bin", false).unwrap_err().to_string().contains("hides"));
}
