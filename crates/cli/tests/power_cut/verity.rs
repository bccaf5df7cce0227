//! Hash areas and parity that are made, brought up to date, or used to repair; and new files of all commands.

use std::fs;
use std::process::Command;

use casemate_testkit::power::{Files, State, read_folder, write_folder};
use casemate_testkit::{Rng, run_any};

use crate::{CASEMATE, Judge, Outcome, Session, scratch};

const FORMAT: &str =
    "verity format data hash --fec-device parity --salt 11 --uuid 6b5e1d5c-8f4e-4b0e-9d53-0d7c3c1f2a10";

/// Whether the files that a command changes are as before or as after; the same command again may help.
fn judge<'a>(line: &'a str, before: &Files, after: &Files) -> Judge<'a> {
    let (before, after) = (before.clone(), after.clone());
    let place = scratch();
    Box::new(move |_, state: &State| {
        let is =
            |files: &Files, known: &Files| known.iter().all(|(name, bytes)| files.get(name) == Some(bytes));
        if is(&state.files, &after) {
            return Ok(Outcome::After);
        }
        if state.ended {
            return Ok(Outcome::Between);
        }
        write_folder(place.path(), &state.files);
        let output = run_any(Command::new(CASEMATE).args(line.split_whitespace()).current_dir(place.path()));
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("`{line}` again ends with {}: {said}", output.status));
        }
        match is(&read_folder(place.path()), &after) {
            true if is(&state.files, &before) => Ok(Outcome::Before),
            true => Ok(Outcome::Between),
            false => Err(format!("`{line}` again does not make it as after")),
        }
    })
}

/// A file that exists is whole, or can't be mistaken for a whole one: it has no superblock.
fn superblock_last<'a>(line: &'a str, before: &Files, after: &Files) -> Judge<'a> {
    let (old, whole) = (before.get("hash").cloned(), after["hash"].clone());
    let mut again = judge(line, before, after);
    Box::new(move |rng, state: &State| {
        let hash = state.files.get("hash");
        if hash.is_some()
            && hash != old.as_ref()
            && hash.is_some_and(|hash| hash.starts_with(b"verity"))
            && hash != Some(&whole)
        {
            return Err("there is a superblock before what lies behind it".to_owned());
        }
        again(rng, state)
    })
}

fn session(name: &str) -> Session {
    let session = Session::new(name);
    fs::write(session.path().join("data"), Rng::new(3).bytes(40 * 4096)).unwrap();
    session
}

fn change(session: &Session, at: usize, byte: u8) {
    let path = session.path().join("data");
    let mut data = fs::read(&path).unwrap();
    data[at] ^= byte;
    fs::write(path, data).unwrap();
}

#[test]
fn hash_areas_are_made_at_any_moment() {
    let mut session = session("verity format");
    // New files, then the same ones in place.
    if !session.cut(120, FORMAT, FORMAT, |before, after| superblock_last(FORMAT, before, after)) {
        return;
    }
    change(&session, 5000, 1);
    session.cut(120, FORMAT, FORMAT, |before, after| superblock_last(FORMAT, before, after));
    session.end(60);
}

#[test]
fn hash_areas_are_brought_up_to_date_and_repaired_at_any_moment() {
    let mut session = session("verity update and repair");
    session.run(FORMAT);
    change(&session, 5000, 1);
    let update = "verity update data hash --fec-device parity --changed 5000+1";
    if !session.cut(120, update, update, |before, after| judge(update, before, after)) {
        return;
    }
    let dump = session.run("verity verify data hash --help");
    assert!(!dump.is_empty());
    let root = session.run("verity format data other --salt 11");
    let root = root.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap().trim().to_owned();
    fs::remove_file(session.path().join("other")).unwrap();
    for at in [70_000, 4096 * 39] {
        change(&session, at, 0x55);
    }
    let repair = format!("verity repair data hash {root} --fec-device parity");
    session.cut(120, &repair, &repair, |before, after| judge(&repair, before, after));
    session.end(100);
}
