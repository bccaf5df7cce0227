//! The undo file at every moment: whatever the power leaves of it and of the image, e2undo gives the image back.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use casemate_blockdev::{BlockDevice, MemoryDevice, Result};
use casemate_ext4::{RepairDepth, RepairOptions, repair};
use casemate_providers::Work;
use casemate_testkit::{Rng, run, run_any, slow_tests, tempdir, tool};

use super::common::collection::Maker;
use super::{KINDS, options};

const SECTOR: usize = 512;

/// Place of `s_checksum_type` in the superblock.
const CHECKSUM_TYPE: usize = 0x175;

/// A write to the image, or a flush; and the undo file as it was by then.
struct Step {
    write: Option<(usize, Vec<u8>)>,
    undo: Vec<u8>,
}

/// Notes all writes.
struct Noting {
    below: MemoryDevice,
    undo: PathBuf,
    steps: Mutex<Vec<Step>>,
}

impl Noting {
    fn note(&self, write: Option<(usize, Vec<u8>)>) {
        let undo = std::fs::read(&self.undo).unwrap();
        self.steps.lock().unwrap().push(Step { write, undo });
    }
}

impl BlockDevice for Noting {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.below)
    }

    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.below.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.note(Some((offset as usize, buf.to_vec())));
        self.below.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.note(None);
        self.below.flush()
    }
}

/// Bytes as the power leaves them, sector by sector the old or the new ones.
fn torn(old: &[u8], new: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = old.to_vec();
    bytes.resize(old.len().max(new.len()), 0);
    for at in (0..new.len()).step_by(SECTOR) {
        let end = new.len().min(at + SECTOR);
        if rng.below(2) == 0 {
            bytes[at..end].copy_from_slice(&new[at..end]);
        }
    }
    bytes
}

#[test]
fn every_moment_of_a_repair_can_be_undone() {
    let (Some(make), Some(debugfs), Some(e2undo)) = (tool("mke2fs"), tool("debugfs"), tool("e2undo")) else {
        return;
    };
    let folder = tempdir().unwrap();
    let maker = Maker::new(make, debugfs, folder.path());
    let (undo, image) = (folder.path().join("undo"), folder.path().join("cut"));
    for features in KINDS {
        let path = maker.make(features, "image");
        maker.debugfs(
            &path,
            "set_bg 0 free_blocks_count 9\nsetb 5000 20\nseti <40>\nsif / links_count 9\nsif /many links_count 7\n\
             unlink /lost+found\nunlink /fifo\nsif /file mode 0\nclri /a",
        );
        let bytes = std::fs::read(&path).unwrap();
        let _ = std::fs::remove_file(&undo);
        let device = Arc::new(Noting {
            below: MemoryDevice::new(bytes.clone()),
            undo: undo.clone(),
            steps: Mutex::default(),
        });
        let options =
            RepairOptions { depth: RepairDepth::All, undo: Some(undo.clone().into()), ..options(&path) };
        repair(device.clone(), options, &mut |_, _| Ok(true), &Work::default()).unwrap();
        let whole = std::fs::read(&undo).unwrap();
        let mut steps = std::mem::take(&mut *device.steps.lock().unwrap());
        assert!(steps.len() > 20, "{features}: {} steps", steps.len());
        steps.push(Step { write: None, undo: whole });
        let mut rng = Rng::new(3);
        for round in 0..if slow_tests() { 400 } else { 40 } {
            let cut = 1 + rng.below(steps.len() as u64 - 1) as usize;
            let mut state = bytes.clone();
            let flushed = steps[..cut].iter().rposition(|step| step.write.is_none()).unwrap_or(0);
            for (at, step) in steps[..cut].iter().enumerate() {
                let Some((offset, new)) = &step.write else { continue };
                let old = state[*offset..*offset + new.len()].to_vec();
                let left = if at < flushed { new.clone() } else { torn(&old, new, &mut rng) };
                state[*offset..*offset + new.len()].copy_from_slice(&left);
            }
            // What the undo file is given before the next write of the image may be torn, too. Its first sector comes last.
            let (old, new) = (&steps[cut - 1].undo, &steps[cut].undo);
            let mut kept = torn(old, new, &mut rng);
            if rng.below(4) == 0 {
                kept.clone_from(new);
            } else {
                kept[..SECTOR].copy_from_slice(&old[..SECTOR]);
            }
            if state == bytes {
                continue;
            }
            std::fs::write(&image, &state).unwrap();
            std::fs::write(&undo, &kept).unwrap();
            let output = run_any(Command::new(&e2undo).arg("-f").arg(&undo).arg(&image));
            let mut back = std::fs::read(&image).unwrap();
            // It marks the superblock as one that must be checked.
            back[1024..2048].copy_from_slice(&bytes[1024..2048]);
            let differs = back.iter().zip(&bytes).position(|(is, was)| is != was);
            assert!(differs.is_none(), "{features}, round {round}, step {cut}: {differs:?}: {output:?}");
        }
    }
}

#[test]
fn a_repair_that_stops_leaves_a_whole_undo_file() {
    let (Some(make), Some(e2undo)) = (tool("mke2fs"), tool("e2undo")) else { return };
    let folder = tempdir().unwrap();
    let (path, undo) = (folder.path().join("image"), folder.path().join("undo"));
    run(Command::new(make).args(["-q", "-F", "-t", "ext4", "-b", "1024"]).arg(&path).arg("24M"));
    let mut bytes = std::fs::read(&path).unwrap();
    let journal =
        bytes.chunks(1024).position(|block| block.starts_with(b"\xc0\x3b\x39\x98\0\0\0\x04")).unwrap();
    // A feature of the journal that stops all, and before that a superblock that is made again of a copy.
    bytes[journal * 1024 + 0x28 + 2] |= 0x40;
    bytes[1024 + CHECKSUM_TYPE] = 0x2e;
    std::fs::write(&path, &bytes).unwrap();
    let device = Arc::new(casemate_blockdev::FileDevice::open_writable(&path).unwrap());
    let how = RepairOptions { depth: RepairDepth::All, undo: Some(undo.clone().into()), ..options(&path) };
    let error = repair(device, how, &mut |_, _| Ok(true), &Work::default()).unwrap_err();
    assert!(std::fs::read(&path).unwrap() != bytes, "{error}");
    assert!(error.to_string().contains("the image was changed before that"), "{error}");
    let output = run_any(Command::new(&e2undo).arg(&undo).arg(&path));
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read(&path).unwrap() == bytes, "{output:?}");
}
