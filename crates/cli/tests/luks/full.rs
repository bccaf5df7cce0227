//! File systems that are full in the middle of something: nothing half is left under a new name, and a volume can be read and
//! gone on with.

use std::process::Command;

use casemate_testkit::{Place, Rng, run_any};

use crate::twins::CHEAP;
use crate::{CASEMATE, yes};

/// Runs a script in the folder, where `small` is a file system of 24 MiB, and `try` tells of a command line its status, what
/// it says, and the files that are there then. `None` where nobody may mount.
fn in_small(place: &Place, script: &str) -> Option<Vec<String>> {
    let script = format!(
        "mount -t tmpfs -o size=24M none small 2>/dev/null || exit 77\n\
         try() {{ \"$CASEMATE\" -q \"$@\" 2>said; echo \"$? $(cat said) [$(ls small | tr '\\n' ' ')]\"; }}\n\
         {script}"
    );
    std::fs::create_dir(place.path("small")).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "--propagation", "slave", "sh", "-c", &script])
        .env("CASEMATE", CASEMATE)
        .current_dir(place.folder());
    let output = run_any(&mut command);
    if !output.status.success() {
        println!("skipped: no tmpfs can be mounted here: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

fn place() -> Place {
    let place = Place::new(CASEMATE);
    place.file("key", "one");
    let mut data = vec![0; 32 << 20];
    Rng::new(1).fill(&mut data);
    place.file("data", data);
    place
}

#[test]
fn what_is_made_is_there_whole_or_not_at_all() {
    let place = place();
    yes(place.own(&format!("luks format --from data volume --key-file key {CHEAP}")));
    let Some(said) = in_small(
        &place,
        &format!(
            "try luks format --from data small/new --key-file key {CHEAP}\n\
             try luks format --from - small/new --key-file key {CHEAP} <data\n\
             try luks format --from data small/new --integrity hmac-sha256 --key-file key {CHEAP}\n\
             try luks format --from data small/new --luks-header small/header --key-file key {CHEAP}\n\
             try luks extract volume small/new --key-file key\n\
             head -c 14M data >small/other\n\
             try luks header-backup volume small/new\n"
        ),
    ) else {
        return;
    };
    assert_eq!(said.len(), 6);
    for line in &said[..5] {
        assert_eq!(line, "2 casemate: small/new: No space left on device []");
    }
    assert_eq!(said[5], "2 casemate: small/new: No space left on device [other ]");
}

#[test]
fn a_reencryption_goes_on_when_there_is_room_again() {
    let place = place();
    // What holds data already needs no room but where nothing was written yet.
    let Some(said) = in_small(
        &place,
        &format!(
            "truncate -s 40M small/v && try luks format small/v --key-file key {CHEAP} && head -c 4M data >small/other\n\
             \"$CASEMATE\" luks extract small/v before --key-file key\n\
             try luks reencrypt small/v --key-file key\n\
             rm small/other\n\
             \"$CASEMATE\" luks extract small/v between --key-file key && cmp before between && echo as before\n\
             try luks reencrypt small/v --key-file key\n\
             mount -o remount,size=48M small\n\
             try luks reencrypt small/v --key-file key --resume-only\n\
             \"$CASEMATE\" luks extract small/v after --key-file key && cmp before after && echo as before\n"
        ),
    ) else {
        return;
    };
    let full = "2 casemate: small/v: No space left on device";
    assert_eq!(
        said,
        [
            "0  [v ]",
            &format!("{full} [other v ]"),
            "as before",
            &format!("{full} [v ]"),
            "0  [v ]",
            "as before"
        ]
    );
}
