//! File systems that are mended, with a journal and without one.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use casemate::Work;
use casemate::blockdev::{BlockDevice, MemoryDevice};
use casemate_ext4::{CheckOptions, RecoveryFile, RepairOptions, check, repair};
use casemate_testkit::power::{Files, State};
use casemate_testkit::{mke2fs, run, tool};

use crate::{Judge, Outcome, Session, scratch};

/// Faults of an image, in words.
fn faults(image: Arc<dyn BlockDevice>) -> Result<Vec<String>, String> {
    let report =
        check(image, &CheckOptions::default(), &Work::default()).map_err(|error| error.to_string())?;
    Ok(report.faults.iter().map(ToString::to_string).collect())
}

/// Once an interrupted change is complete or dropped, either nothing was mended, or all was.
fn judge<'a>(before: &Files, after: &Files) -> Judge<'a> {
    let of = |files: &Files| faults(Arc::new(MemoryDevice::new(files["image"].clone()))).unwrap();
    let (before, after) = (of(before), of(after));
    assert!(before.len() > 5 && after.is_empty(), "{before:?} {after:?}");
    let place = scratch();
    Box::new(move |_, State { files, .. }| {
        let redo = place.path().join("redo");
        match files.get("image.casemate-redo") {
            Some(kept) => fs::write(&redo, kept).unwrap(),
            None => drop(fs::remove_file(&redo)),
        }
        let device = Arc::new(MemoryDevice::new(files["image"].clone()));
        let mend = |all: bool| {
            let options =
                RepairOptions { recovery: Some(RecoveryFile::new(&redo)), ..RepairOptions::default() };
            let repaired = repair(device.clone(), options, &mut |_, _| Ok(all), &Work::default());
            repaired.map_err(|error| error.to_string()).map(|repaired| repaired.report.is_clean())
        };
        mend(false)?;
        let found = faults(device.clone())?;
        if !mend(true)? {
            return Err("the same again leaves faults".to_owned());
        }
        match found {
            found if found == before => Ok(Outcome::Before),
            found if found == after => Ok(Outcome::After),
            found => Err(format!("some was mended, and not all: {found:?}")),
        }
    })
}

#[test]
fn what_is_mended_is_mended_at_once() {
    let (Some(make), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    for options in [
        "-t ext4 -b 1024 -N 128 -J size=1",
        "-t ext4 -b 1024 -N 128 -O ^has_journal",
        "-t ext2 -b 1024 -N 128",
    ] {
        let mut session = Session::new(options);
        let image = session.path().join("image");
        mke2fs::make(&make, options, &image, "12M");
        for number in 0..6 {
            session.run(&format!("ext4 mkdir image /{number}"));
        }
        let damage = session.path().join("damage");
        let script = "set_bg 0 free_blocks_count 9\nset_bg 0 checksum calc\nsetb 5000 20\nseti <40>\nsif /1 links_count 9\n\
                      sif /2 links_count 7\nsif /3 blocks 0\nunlink /4\nsif /0 dtime 7\n";
        fs::write(&damage, script).unwrap();
        run(Command::new(&debugfs).args(["-w", "-f"]).arg(&damage).arg(&image));
        fs::remove_file(&damage).unwrap();
        let line = "ext4 check --repair --yes image";
        if !session.cut(60, line, line, judge) {
            return;
        }
        session.end(30);
    }
}

/// More than the journal has room for: several steps, of which each leaves less to be mended than there was.
#[test]
fn what_is_larger_than_the_journal_is_mended_step_by_step() {
    let (Some(make), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
    let tree = scratch();
    (0..2400).for_each(|number| fs::write(tree.path().join(number.to_string()), "").unwrap());
    let mut session = Session::new("more than the journal has room for");
    let image = session.path().join("image");
    let options = format!("-t ext4 -b 1024 -N 4096 -J size=1 -d {}", tree.path().display());
    mke2fs::make(&make, &options, &image, "12M");
    let damage = session.path().join("damage");
    let script: String = (0..2400).map(|number| format!("sif /{number} blocks 8\n")).collect();
    fs::write(&damage, script).unwrap();
    run(Command::new(&debugfs).args(["-w", "-f"]).arg(&damage).arg(&image));
    fs::remove_file(&damage).unwrap();
    let line = "ext4 check --repair --batch-mode image";
    let judge = |before: &Files, _: &Files| -> Judge<'_> {
        let all = faults(Arc::new(MemoryDevice::new(before["image"].clone()))).unwrap();
        assert_eq!(all.len(), 2400);
        Box::new(move |_, State { files, .. }| {
            let device = Arc::new(MemoryDevice::new(files["image"].clone()));
            let found = faults(device.clone())?;
            if let Some(new) = found.iter().find(|fault| !all.contains(fault)) {
                return Err(format!("was not there before: {new}"));
            }
            let repaired = repair(device, RepairOptions::default(), &mut |_, _| Ok(true), &Work::default());
            match repaired.map(|repaired| repaired.report.is_clean()) {
                Ok(true) => {}
                other => return Err(format!("the same again leaves faults: {other:?}")),
            }
            Ok(match found.len() {
                0 => Outcome::After,
                2400 => Outcome::Before,
                _ => Outcome::Between,
            })
        })
    };
    if session.cut(24, line, line, judge) {
        session.end(12);
    }
}
