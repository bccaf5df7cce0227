//! Reading what is left of damaged images.

mod copies;
mod cut;
mod deleted;

use std::fs;
use std::process::{Command, Output};

use casemate_testkit::{Place, Rng, mke2fs, run, status, stderr, stdout, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

#[track_caller]
fn own(place: &Place, line: &str) -> String {
    let output = place.own(line);
    assert_eq!(status(&output), 0, "{line}: {}", stderr(&output));
    stdout(&output)
}

#[track_caller]
fn says(output: &Output, rc: i32, said: &str) {
    assert!(status(output) == rc && stderr(output).contains(said), "{}: {}", status(output), stderr(output));
}

/// An image of 32 MiB with 12 files of different sizes in it, some with metadata at its end; `None` after a skip.
fn place(options: &str, size: &str) -> Option<Place> {
    let mke2fs = tool("mke2fs")?;
    tool("debugfs")?;
    let place = Place::new(CASEMATE);
    mke2fs::make(&mke2fs, options, &place.path("image"), size);
    let mut rng = Rng::new(4);
    fs::create_dir(place.path("tree")).unwrap();
    for number in 0..12 {
        place.file(
            format!("tree/f{number}"),
            rng.bytes(if number % 3 == 1 { 5 << 20 } else { 70_000 * (number % 3) }),
        );
    }
    own(&place, "ext4 put -r image tree/. /");
    own(&place, "ext4 rm -r image /lost+found");
    Some(place)
}

fn debugfs(place: &Place, request: &str) -> String {
    run(Command::new(tool("debugfs").unwrap()).args(["-R", request]).arg(place.path("image")))
}
