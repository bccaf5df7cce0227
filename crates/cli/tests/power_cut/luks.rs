//! Headers of LUKS: passphrases, tokens and settings changed, key slots wiped, headers mended and restored.

use std::fs;
use std::path::Path;
use std::process::Command;

use casemate::luks::{Header, LuksKey, LuksOptions};
use casemate::{Access, Image, Providers, SecretVec, Work};
use casemate_testkit::power::{Files, State, read_folder, write_folder};
use casemate_testkit::run_any;

use crate::{CASEMATE, Judge, Outcome, Session, retry, scratch};

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

/// Files with the passphrases that open a volume at some time.
const KEYS: [&str; 3] = ["one", "two", "three"];

/// A session with a volume in `image`, which `one` and `two` open.
fn session(name: &str, version: u32) -> Session {
    let session = Session::new(&format!("luks {name}, LUKS{version}"));
    for key in KEYS {
        fs::write(session.path().join(key), key).unwrap();
    }
    fs::write(session.path().join("image"), vec![9; 5 << 18]).unwrap();
    let options = match version {
        1 => "--type luks1 -c aes-cbc-plain64 -s 128 --crypt-offset 1M",
        _ => "-s 256 --crypt-offset 512K",
    };
    session.run(&format!("luks format image --overwrite --key-file one {options} {CHEAP}"));
    session.run(&format!("luks add-key image --key-file one --new-key-file two {CHEAP}"));
    session
}

/// Contents of a header, and the keys that open it. The number of writes does not count, nor do salts, which are new
/// each time.
fn look(folder: &Path) -> Result<(String, Vec<&'static str>), String> {
    let image = retry(|| Image::open(folder.join("image"), Access::Read))?;
    let volume = image.luks_volume(None, &Providers::default()).map_err(|error| error.to_string())?;
    let header = match volume.header() {
        Header::Luks1(header) => {
            let slots = header.slots.map(|slot| (slot.state, slot.iterations, slot.offset));
            format!("LUKS1 {} {} {slots:?}", header.uuid, header.encryption())
        }
        Header::Luks2(header) => {
            let json = String::from_utf8_lossy(&header.metadata.to_plain()).into_owned();
            let mut parts = json.split("\"salt\":\"");
            let first = parts.next().unwrap().to_owned();
            let rest = parts.map(|part| part.split_once('"').unwrap().1);
            let json = rest.fold(first, |json, part| json + part);
            format!("LUKS2 {} {} {} {json}", header.uuid, header.label, header.subsystem)
        }
    };
    let opens = |key: &&str| {
        let key = LuksKey::Passphrase(SecretVec::from(key.as_bytes()));
        volume.unlock(&key, &LuksOptions::default(), &Work::default()).is_ok()
    };
    Ok((header, KEYS.into_iter().filter(opens).collect()))
}

/// The header is the old one or the new one, a new one opens as it will, and some keys always open it. Nothing that `repair`
/// does changes what it says.
fn judge<'a>(always: &'a [&'a str], before: &Files, after: &Files) -> Judge<'a> {
    judge_steps(always, &[], before, after)
}

/// Judges a change that is done in steps: between them the header may be another one, which one of some keys opens too.
fn judge_steps<'a>(always: &'a [&'a str], either: &'a [&'a str], before: &Files, after: &Files) -> Judge<'a> {
    let place = scratch();
    let mut known = [before, after].map(|files| {
        write_folder(place.path(), files);
        look(place.path()).unwrap()
    });
    for (_, keys) in &mut known {
        keys.sort_unstable();
    }
    let [before, after] = known;
    Box::new(move |_, state: &State| {
        write_folder(place.path(), &state.files);
        let (header, mut keys) = look(place.path())?;
        keys.sort_unstable();
        if let Some(key) = always.iter().find(|key| !keys.contains(key)) {
            return Err(format!("'{key}' does not open it"));
        }
        let repair =
            run_any(Command::new(CASEMATE).args(["luks", "repair", "image"]).current_dir(place.path()));
        if !repair.status.success() || look(place.path())?.0 != header {
            return Err(format!("repair: {}", String::from_utf8_lossy(&repair.stderr)));
        }
        if header == after.0 {
            return if keys == after.1 {
                Ok(Outcome::After)
            } else {
                Err(format!("{keys:?} open the new one"))
            };
        }
        match header == before.0 {
            true if keys == before.1 => Ok(Outcome::Before),
            true => Ok(Outcome::Between),
            false if either.iter().any(|key| keys.contains(key)) => Ok(Outcome::Between),
            false => Err(format!("it is neither the old header nor the new one: {header}")),
        }
    })
}

/// Judges that the command, run again, completes the change.
fn again<'a>(line: &'a str, before: &Files, after: &Files) -> Judge<'a> {
    let (before, after) = (before.clone(), after.clone());
    let place = scratch();
    Box::new(move |_, state: &State| {
        if state.files["image"] == after["image"] {
            return Ok(Outcome::After);
        }
        let outcome =
            if state.files["image"] == before["image"] { Outcome::Before } else { Outcome::Between };
        write_folder(place.path(), &state.files);
        let output = run_any(Command::new(CASEMATE).args(line.split_whitespace()).current_dir(place.path()));
        match read_folder(place.path())["image"] == after["image"] {
            true => Ok(outcome),
            false => Err(format!("`{line}` again: {}", String::from_utf8_lossy(&output.stderr))),
        }
    })
}

const REPAIR: &str = "luks repair image";

#[test]
fn keys_change_at_any_moment() {
    for version in [1, 2] {
        let mut session = session("keys", version);
        for (line, always) in [
            (format!("luks add-key image --key-file one --new-key-file three {CHEAP}"), &["one", "two"][..]),
            ("luks kill-slot image 0".to_owned(), &["two", "three"]),
            ("luks erase image --batch-mode".to_owned(), &[]),
        ] {
            if !session.cut(60, &line, REPAIR, |before, after| judge(always, before, after)) {
                return;
            }
        }
        session.end(90);
    }
}

#[test]
fn passphrases_and_costs_change_at_any_moment() {
    for version in [1, 2] {
        let mut session = session("change-key", version);
        let change = format!("luks change-key image --key-file one --new-key-file three {CHEAP}");
        let convert = "luks convert-key image --key-file two --pbkdf pbkdf2 --pbkdf-force-iterations 1001";
        let either = &["one", "three"][..];
        if !session.cut(90, &change, REPAIR, |before, after| judge_steps(&["two"], either, before, after)) {
            return;
        }
        if version == 1 {
            // A slot that is named keeps its number. Other costs tell the new header from the old one.
            let costs = "--pbkdf pbkdf2 --pbkdf-force-iterations 1001";
            let named = "--key-slot 1 --new-key-file one";
            let change = format!("luks change-key image --key-file two {named} {costs}");
            let (always, either) = (&["three"][..], &["one", "two"][..]);
            session.cut(90, &change, REPAIR, |before, after| judge_steps(always, either, before, after));
        }
        if version == 2 {
            let always = &["two", "three"][..];
            session.cut(60, convert, REPAIR, |before, after| judge_steps(always, always, before, after));
        }
        session.end(60);
    }
}

#[test]
fn headers_are_converted_at_any_moment() {
    let keys = &["one", "two"][..];
    // The last one has keys in the first six slots, and no room behind the slots.
    for (version, other, more) in [(1, "luks2", 0), (2, "luks1", 0), (1, "luks2", 4)] {
        let mut session = session("convert", version);
        if version == 2 {
            // LUKS1 has eight slots of this size.
            session.run(&format!(
                "luks format image --overwrite --key-file one -s 256 --crypt-offset 1088K {CHEAP}"
            ));
            session.run(&format!("luks add-key image --key-file one --new-key-file two {CHEAP}"));
        }
        if more > 0 {
            session.run(&format!(
                "luks format image --overwrite --key-file one --type luks1 -c aes-cbc-plain64 -s 128 --crypt-offset 516K \
                 {CHEAP}"
            ));
            session.run(&format!("luks add-key image --key-file one --new-key-file two {CHEAP}"));
        }
        for _ in 0..more {
            session.run(&format!("luks add-key image --key-file one --new-key-file two {CHEAP}"));
        }
        let line = format!("luks convert image --type {other} --batch-mode");
        if !session.cut(60, &line, REPAIR, |before, after| judge_steps(keys, keys, before, after)) {
            return;
        }
        let back = format!("luks convert image --type luks{version} --batch-mode");
        session.cut(60, &back, REPAIR, |before, after| judge_steps(keys, keys, before, after));
        session.end(60);
    }
}

#[test]
fn settings_and_tokens_change_at_any_moment() {
    for version in [1, 2] {
        let mut session = session("settings", version);
        let uuid = "luks uuid image --uuid 0c4fdcf6-3db0-4d0c-9b4c-7f8ad6b1f2a0";
        let mut lines = vec![uuid];
        if version == 2 {
            lines.push(
                "luks config image --label label --key-slot 1 --priority prefer --persistent no-journal",
            );
            lines.push("luks token add image --key-description name");
            lines.push("luks token remove image 0");
        }
        for line in lines {
            if !session.cut(60, line, REPAIR, |before, after| judge(&["one", "two"], before, after)) {
                return;
            }
        }
        session.end(30);
    }
}

#[test]
fn headers_are_restored_and_mended_at_any_moment() {
    for version in [1, 2] {
        let mut session = session("header-restore", version);
        session.run("luks header-backup image backup");
        session.run("luks kill-slot image 0");
        session.run(&format!("luks add-key image --key-file two --new-key-file three {CHEAP}"));
        let restore = "luks header-restore image backup --batch-mode";
        if !session.cut(90, restore, restore, |before, after| again(restore, before, after)) {
            return;
        }
        let path = session.path().join("image");
        let mut bytes = fs::read(&path).unwrap();
        match version {
            // The stripes of slot 7.
            1 => bytes[208 + 7 * 48 + 47] ^= 1,
            _ => bytes[5000] ^= 1,
        }
        fs::write(&path, bytes).unwrap();
        session.cut(60, REPAIR, REPAIR, |_, after| {
            let place = scratch();
            write_folder(place.path(), after);
            let sound = look(place.path()).unwrap();
            Box::new(move |_, state: &State| {
                write_folder(place.path(), &state.files);
                let is_before = look(place.path()).is_err();
                let output = run_any(
                    Command::new(CASEMATE).args(["luks", "repair", "image"]).current_dir(place.path()),
                );
                match look(place.path()) {
                    Ok(found) if found == sound && output.stdout.is_empty() => Ok(Outcome::After),
                    Ok(found) if found == sound && is_before => Ok(Outcome::Before),
                    Ok(found) if found == sound => Ok(Outcome::Between),
                    found => Err(format!("{found:?}")),
                }
            })
        });
        session.end(60);
    }
}
