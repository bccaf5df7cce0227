//! LUKS2 volumes that are reencrypted where they lie.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use casemate::luks::luks2::reencrypt::State;
use casemate::luks::{Header, LuksKey, LuksOptions, ReencryptOptions, Volume};
use casemate::{Access, Image, Providers, SecretVec, Work};
use casemate_testkit::power;
use casemate_testkit::{Rng, find_program, run_any, stderr};

use crate::{Judge, Outcome, Session, retry, scratch};

const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

fn key() -> LuksKey {
    LuksKey::Passphrase(SecretVec::from(&b"pass"[..]))
}

/// The volume in a folder, its header apart if there is a file for it.
fn open(folder: &Path, access: Access) -> Result<Volume, String> {
    let header = folder.join("header");
    retry(|| {
        let header = header.exists().then(|| Image::open(&header, access)).transpose()?;
        Image::open(folder.join("vault"), access)?.luks_volume(header.as_ref(), &Providers::default())
    })
}

/// How far a volume is: not begun, in the middle, or done.
fn outcome(volume: &Volume, before: &str) -> Outcome {
    let Header::Luks2(header) = volume.header() else { panic!("LUKS1") };
    let digests = header.metadata.digests();
    match (header.metadata.requirements().is_empty(), digests.iter().any(|digest| digest.digest == before)) {
        (false, _) => Outcome::Between,
        (true, true) => Outcome::Before,
        (true, false) => Outcome::After,
    }
}

/// The digest of the volume key.
fn digest(volume: &Volume) -> String {
    let Header::Luks2(header) = volume.header() else { panic!("LUKS1") };
    header.metadata.digests().remove(0).digest
}

fn read(folder: &Path) -> Result<Vec<u8>, String> {
    let volume = open(folder, Access::Read)?;
    let opened = volume.open(&key(), &LuksOptions::default(), &Work::default());
    let device = opened.map_err(|error| error.to_string())?.device();
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Whether cryptsetup goes on rightly: it destroys the first zone of data that moved, if that was the one cut off.
fn is_right_there(volume: &Volume, size: u64) -> bool {
    let Header::Luks2(header) = volume.header() else { panic!("LUKS1") };
    let course = header.metadata.reencryption().unwrap().unwrap();
    course.shift.is_none() || course.parts(size).unwrap()[0].state != State::Hot
}

/// cryptsetup goes on, if it is there.
fn resume_there(folder: &Path, before: &str) -> Result<bool, String> {
    let size = fs::metadata(folder.join("vault")).unwrap().len();
    if !is_right_there(&open(folder, Access::Read)?, size) {
        return Ok(false);
    }
    let Some(cryptsetup) = find_program("cryptsetup") else { return Ok(false) };
    let run = |line: &str| {
        let output = run_any(Command::new(&cryptsetup).args(line.split(' ')).current_dir(folder));
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("cryptsetup {line}: {}", stderr(&output))),
        }
    };
    run("repair -q --key-file key vault")?;
    // Of the last zone that finishes all.
    if outcome(&open(folder, Access::Read)?, before) == Outcome::Between {
        run("reencrypt -q --force-offline-reencrypt --resume-only --key-file key vault")?;
    }
    Ok(true)
}

/// Reads the volume as it was left, and goes on with it, here or now and then with cryptsetup.
fn judge<'a>(folder: PathBuf, plain: Vec<u8>, before: String) -> Judge<'a> {
    Box::new(move |rng: &mut Rng, power::State { files, .. }| {
        for (name, bytes) in files {
            fs::write(folder.join(name), bytes).unwrap();
        }
        fs::write(folder.join("key"), "pass").unwrap();
        let is_right = |when: &str| match read(&folder)?.starts_with(&plain) {
            true => Ok(()),
            false => Err(format!("{when}: it reads as something else")),
        };
        is_right("as it was left")?;
        let found = outcome(&open(&folder, Access::Read)?, &before);
        if found != Outcome::Between {
            return Ok(found);
        }
        if rng.below(8) > 0 || !resume_there(&folder, &before)? {
            let mut options = ReencryptOptions::default();
            options.resume_only = true;
            let mut volume = open(&folder, Access::Change)?;
            let resumed = volume.reencrypt(&[key()], &LuksOptions::default(), &options, &Work::default());
            resumed.map_err(|error| error.to_string())?;
        }
        is_right("gone on with")?;
        match outcome(&open(&folder, Access::Read)?, &before) {
            Outcome::After => Ok(Outcome::After),
            other => Err(format!("gone on with, and it is {other:?}")),
        }
    })
}

#[test]
fn volumes_are_reencrypted_at_any_moment() {
    for (name, options) in [
        ("luks checksums", "--hotzone-size 16K"),
        ("luks journal", "--hotzone-size 16K --resilience journal"),
        ("luks shift", "--hotzone-size 16K --reduce-device-size 32K"),
    ] {
        let mut session = Session::new(name);
        let keys = scratch();
        let key = keys.path().join("key");
        fs::write(&key, "pass").unwrap();
        let mut plain = Rng::new(9).bytes(96 << 10);
        fs::write(keys.path().join("plain"), &plain).unwrap();
        session.run(&format!(
            "luks format --from {} vault --key-file {} -c aes-cbc-essiv:sha256 -s 128 --crypt-offset 176K {CHEAP}",
            keys.path().join("plain").display(),
            key.display()
        ));
        if name == "luks shift" {
            plain.truncate(64 << 10);
        }
        let before = digest(&open(session.path(), Access::Read).unwrap());
        let line = format!("luks reencrypt vault --key-file {}", key.display());
        let place = scratch();
        let folder = place.path().to_owned();
        let recover = format!("{line} --resume-only");
        if !session.cut(80, &format!("{line} {options}"), &recover, |_, _| judge(folder, plain, before)) {
            return;
        }
        session.end(60);
    }
}
