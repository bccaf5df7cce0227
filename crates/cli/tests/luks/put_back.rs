//! Devices that are not as the work left them: put back from a copy, made plain, or others.

use std::path::{Path, PathBuf};
use std::process::Command;

use casemate_testkit::{Place, Rng, run_any, status, stderr, tool};

use crate::{CASEMATE, says, yes};

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";
const MIB: usize = 1 << 20;

/// Runs a line in one thread, which is killed at one of its writes, or counts them.
fn killed(place: &Place, strace: &Path, line: &str, at: Option<usize>) -> usize {
    let mut traced = Command::new(strace);
    traced.args(["-f", "-qq", "-o", "log", "-e", "trace=pwrite64"]);
    traced.args(at.map(|at| format!("-einject=pwrite64:signal=KILL:when={at}")));
    traced.arg(CASEMATE).args(line.split(' ')).args(["--threads", "1"]);
    run_any(traced.current_dir(place.folder()));
    place.read("log").iter().filter(|byte| **byte == b'\n').count()
}

/// 6 MiB of noise in `plain`, and encrypted in `cipher` behind a header in a file of its own, `sealed`.
fn place() -> Option<(Place, PathBuf)> {
    let strace = tool("strace")?;
    let place = Place::new(CASEMATE);
    place.file("key", "pass");
    place.file("wrong", "no pass");
    place.file("plain", Rng::new(31).bytes(6 * MIB));
    place.file("other", Rng::new(32).bytes(6 * MIB));
    yes(place.own(&format!("luks format --from plain cipher --luks-header sealed --key-file key {CHEAP}")));
    Some((place, strace))
}

/// Refused: nothing of device or header changes.
fn is_refused(place: &Place, line: &str, device: &str, header: &[u8], why: &str) {
    place.file("header", header);
    place.file("disk", place.read(device));
    says(place.own(line), 2, why);
    assert!(place.read("disk") == place.read(device) && place.read("header") == header, "{line}: {device}");
}

#[test]
fn the_rest_of_a_decryption_wants_its_key_and_its_device() {
    let Some((place, strace)) = place() else { return };
    let resume = "luks reencrypt disk --resume-only --luks-header header --key-file";
    let decrypt = "luks reencrypt disk --decrypt --luks-header header --key-file key --hotzone-size 1M";
    let begin = |at| {
        place.file("disk", place.read("cipher"));
        place.file("header", place.read("sealed"));
        killed(&place, &strace, decrypt, at)
    };
    let writes = begin(None);
    let (mut ends, mut without_key) = (0, 0);
    for at in (1..writes).rev() {
        begin(Some(at));
        if place.read("disk") != place.read("plain") {
            break;
        }
        let header = place.read("header");
        let first_slot = 0x8000..0x9000;
        if header[first_slot.clone()] == place.read("sealed")[first_slot.clone()] {
            ends += 1;
            place.file("disk", place.read("plain"));
            assert_ne!(status(&place.own(&format!("{resume} wrong"))), 0, "write {at}");
            assert!(place.read("header") == header, "write {at}");
            is_refused(&place, &format!("{resume} key"), "other", &header, "this is another device");
            is_refused(&place, &format!("{resume} key"), "cipher", &header, "are as before again");
        } else if header[first_slot].iter().all(|byte| *byte == 0) {
            // Nothing is left to be lost, and that nothing is proven is said.
            without_key += 1;
        }
        place.file("header", &header);
        place.file("disk", place.read("plain"));
        let output = place.own(&format!("{resume} key"));
        // Behind its last write nothing is to be done.
        let is_over = stderr(&output).contains("there is nothing to go on with");
        assert!(status(&output) == 0 || is_over, "write {at}: {}", stderr(&output));
        assert!(place.read("disk") == place.read("plain"));
    }
    assert!(ends > 2 && without_key > 0, "{ends} {without_key}");
}

#[test]
fn what_is_plain_already_is_not_decrypted_further() {
    let Some((place, strace)) = place() else { return };
    // The one half of the device that was given is that of the work, and the other half never was.
    let (plain, other) = (place.read("plain"), place.read("other"));
    place.file("clone", [&plain[..3 * MIB], &other[3 * MIB..]].concat());
    let decrypt = "luks reencrypt disk --decrypt --luks-header header --key-file key --hotzone-size 512K";
    let begin = |at| {
        place.file("disk", place.read("cipher"));
        place.file("header", place.read("sealed"));
        killed(&place, &strace, decrypt, at)
    };
    let half = begin(None) / 2;
    begin(Some(half));
    let (disk, header) = (place.read("disk"), place.read("header"));
    assert!(disk != place.read("cipher") && disk[5 * MIB..] != plain[5 * MIB..]);
    let resume = "luks reencrypt disk --resume-only --luks-header header --key-file key";
    for device in ["plain", "clone"] {
        is_refused(&place, resume, device, &header, "of those that are still to be rewritten");
    }
    place.file("disk", disk);
    yes(place.own(resume));
    assert!(place.read("disk") == plain);
}

#[test]
fn data_that_move_keep_their_length() {
    let Some((place, strace)) = place() else { return };
    // More than what is moved, of which there is a code.
    place.file("plain", Rng::new(33).bytes(22 * MIB));
    let vol = format!("luks format --from plain vol --crypt-offset 2M --key-file key {CHEAP}");
    yes(place.own(&vol));
    let decrypt = "luks reencrypt disk --decrypt --luks-header header --key-file key";
    let mut moves = 0;
    place.file("disk", place.read("vol"));
    for at in 1..killed(&place, &strace, decrypt, None) {
        place.file("disk", place.read("vol"));
        let _ = std::fs::remove_file(place.path("header"));
        killed(&place, &strace, decrypt, Some(at));
        let is_moving = place.path("header").exists() && {
            let dump = yes(place.own("luks dump header"));
            dump.contains("casemate-move")
        };
        if !is_moving {
            continue;
        }
        moves += 1;
        let (disk, header) = (place.read("disk"), place.read("header"));
        place.file("short", &disk[..disk.len() - MIB]);
        place.file("long", [&disk[..], &[7; MIB]].concat());
        for device in ["short", "long"] {
            is_refused(&place, decrypt, device, &header, "or it has another length");
        }
        break;
    }
    assert_eq!(moves, 1);
}

#[test]
fn a_whole_volume_lends_its_header_to_no_other_device() {
    let Some((place, _)) = place() else { return };
    yes(place.own(&format!("luks format --from plain vol --crypt-offset 2M --key-file key {CHEAP}")));
    let vol = place.read("vol");
    place.file("headless", [&[0; 2 * MIB], &vol[2 * MIB..]].concat());
    let why = "this is a whole volume, with data behind its header";
    for line in ["--decrypt", CHEAP] {
        let line = format!("luks reencrypt disk --luks-header header --key-file key {line}");
        is_refused(&place, &line, "headless", &vol, why);
        // Its own header says no less.
        is_refused(&place, &line, "vol", &vol, "begins with a LUKS header of the same UUID");
    }
}
