//! LUKS2 volumes that are reencrypted where they lie.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use casemate::luks::luks2::reencrypt::State;
use casemate::luks::{Header, LuksFormatOptions, LuksKey, LuksOptions, Pbkdf, ReencryptOptions, Volume};
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
        // The end is given up only where it is free.
        plain[if name == "luks shift" { 64 << 10 } else { 96 << 10 }..].fill(0);
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

/// The options of both sides of a judge, with small zones.
fn small(change: impl Fn(&mut ReencryptOptions)) -> ReencryptOptions {
    let mut options = ReencryptOptions::default();
    options.hotzone_size = Some(16 << 10);
    change(&mut options);
    options
}

fn resume(folder: &Path) -> Result<(), String> {
    let mut volume = open(folder, Access::Change)?;
    let options = small(|options| options.resume_only = true);
    let resumed = volume.reencrypt(&[key()], &LuksOptions::default(), &options, &Work::default());
    resumed.map(drop).map_err(|error| error.to_string())
}

/// Puts a state into a folder, without what another one has left there.
fn place_state(folder: &Path, files: &power::Files) {
    let _ = fs::remove_file(folder.join("header"));
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

fn is_plain(folder: &Path, plain: &[u8]) -> bool {
    fs::read(folder.join("vault")).unwrap().starts_with(plain)
}

/// How far a volume is whose data were, or become, plain.
fn state(folder: &Path) -> Result<Option<(Outcome, bool)>, String> {
    let Ok(volume) = open(folder, Access::Read) else { return Ok(None) };
    let Header::Luks2(header) = volume.header() else { return Err("LUKS1".to_owned()) };
    let is_linear = header.metadata.segments()[0].kind == "linear";
    let is_begun = !header.metadata.requirements().is_empty();
    Ok(Some((if is_begun { Outcome::Between } else { Outcome::After }, is_linear)))
}

#[test]
fn plain_data_are_encrypted_at_any_moment() {
    const FORMAT: &str = "-c aes-cbc-essiv:sha256 -s 128";
    for (name, options) in [
        ("luks encryption", "--reduce-device-size 208K"),
        ("luks encryption, header apart", "--luks-header header"),
    ] {
        let mut session = Session::new(name);
        let keys = scratch();
        let file = keys.path().join("key");
        fs::write(&file, "pass").unwrap();
        let is_apart = name.ends_with("apart");
        let plain = Rng::new(11).bytes(160 << 10);
        let end = vec![0; if is_apart { 0 } else { 208 << 10 }];
        fs::write(session.path().join("vault"), [&plain[..], &end].concat()).unwrap();
        let line = format!(
            "luks reencrypt vault --encrypt {options} --key-file {} {FORMAT} {CHEAP}",
            file.display()
        );
        let place = scratch();
        let folder = place.path().to_owned();
        let judge = move |_: &_, _: &_| -> Judge<'_> {
            Box::new(move |_: &mut Rng, power::State { files, .. }| {
                place_state(&folder, files);
                let mut format = LuksFormatOptions::default();
                (format.cipher, format.key_bits) = ("aes-cbc-essiv:sha256".to_owned(), Some(128));
                format.pbkdf = Some(Pbkdf::Pbkdf2 { hash: "sha256".to_owned(), iterations: 1000 });
                match state(&folder)? {
                    None if is_plain(&folder, &plain) => return Ok(Outcome::Before),
                    // Cut off while the header was written over the first data.
                    None => {
                        let options = small(|options| options.reduce_device_size = Some(208 << 10));
                        let image = retry(|| Image::open(folder.join("vault"), Access::Change))?;
                        let pass = SecretVec::from(&b"pass"[..]);
                        let done = image.luks_encrypt(None, &pass, &format, &options, &Work::default());
                        done.map_err(|error| error.to_string())?;
                    }
                    Some((Outcome::Between, _)) => {
                        if !read(&folder)?.starts_with(&plain) {
                            return Err("as it was left it reads as something else".to_owned());
                        }
                        resume(&folder)?;
                    }
                    Some(_) => {}
                }
                match read(&folder)?.starts_with(&plain) {
                    true => Ok(Outcome::After),
                    false => Err("it reads as something else".to_owned()),
                }
            })
        };
        if !session.cut(if is_apart { 60 } else { 120 }, &format!("{line} --hotzone-size 16K"), &line, judge)
        {
            return;
        }
        session.end(50);
    }
}

#[test]
fn volumes_are_decrypted_at_any_moment() {
    for (name, options) in [("luks decryption", ""), ("luks decryption, journal", "--resilience journal")] {
        let mut session = Session::new(name);
        let keys = scratch();
        let (file, from) = (keys.path().join("key"), keys.path().join("plain"));
        let plain = Rng::new(12).bytes(200 << 10);
        fs::write(&file, "pass").unwrap();
        fs::write(&from, &plain).unwrap();
        session.run(&format!(
            "luks format --from {} vault --key-file {} -c aes-cbc-essiv:sha256 -s 128 --crypt-offset 128K {CHEAP}",
            from.display(),
            file.display()
        ));
        let line = format!(
            "luks reencrypt vault --decrypt {options} --luks-header header --key-file {}",
            file.display()
        );
        let place = scratch();
        let folder = place.path().to_owned();
        let judge = move |_: &_, _: &_| -> Judge<'_> {
            Box::new(move |_: &mut Rng, power::State { files, .. }| {
                place_state(&folder, files);
                let is_right = || match read(&folder)?.starts_with(&plain) {
                    true => Ok(()),
                    false => Err("as it was left it reads as something else".to_owned()),
                };
                match state(&folder)? {
                    None => return Err("there is no header".to_owned()),
                    Some((Outcome::After, true)) => {}
                    Some((Outcome::Between, _)) => {
                        is_right()?;
                        resume(&folder)?;
                    }
                    // Not begun, or cut off before the header's file said that the data move.
                    Some(_) => {
                        is_right()?;
                        if !folder.join("header").exists() {
                            return Ok(Outcome::Before);
                        }
                        let done = open(&folder, Access::Change)?.decrypt(
                            &key(),
                            None,
                            &LuksOptions::default(),
                            &small(|_| ()),
                            &Work::default(),
                        );
                        done.map_err(|error| error.to_string())?;
                    }
                }
                match is_plain(&folder, &plain) {
                    true => Ok(Outcome::After),
                    false => Err("the plain data are something else".to_owned()),
                }
            })
        };
        if !session.cut(60, &format!("{line} --hotzone-size 16K"), &line, judge) {
            return;
        }
        session.end(50);
    }
}
