//! Images that are encrypted or decrypted where they lie.

use std::fs;
use std::path::PathBuf;

use casemate::crypt::{Direction, InPlaceOptions, Mapping, Params};
use casemate::{Access, Image, Providers, SecretVec, Work};
use casemate_testkit::Rng;
use casemate_testkit::power::{Files, State};

use crate::{Judge, Outcome, Session, scratch};

const HOT_ZONE: u64 = 4096;

/// Goes on where there is a journal; where there is none the image must be as before or as after.
fn judge<'a>(direction: Direction, key: &[u8], before: &Files, after: &Files) -> Judge<'a> {
    let ends = [before["image"].clone(), after["image"].clone()];
    let mut params = Params::new("aes-xts-plain64".parse().unwrap());
    params.sector_size = 512;
    let mut secret = SecretVec::zeroed(key.len());
    secret.expose_mut().copy_from_slice(key);
    let mapping = Mapping::new(params, secret, 8, &Providers::default()).unwrap();
    let place = scratch();
    let at = move |name: &str| -> PathBuf { place.path().join(name) };
    Box::new(move |_, State { files, .. }| {
        let image = &files["image"];
        let outcome = |image: &Vec<u8>| {
            let found = ends.iter().position(|end| end == image);
            Ok([Outcome::Before, Outcome::After]
                [found.ok_or("the image is neither as before nor as after")?])
        };
        let Some(journal) = files.get("journal") else { return outcome(image) };
        // A file of its own: the mark of the state before would stay.
        let _ = fs::remove_file(at("image"));
        fs::write(at("image"), image).unwrap();
        fs::write(at("journal"), journal).unwrap();
        let resume = || {
            let mut options = InPlaceOptions::default();
            options.journal = Some(at("journal"));
            (options.resume, options.hot_zone) = (true, HOT_ZONE);
            let image = Image::open_unfinished(at("image"), Access::Change)?;
            mapping.transform_in_place(direction, &image, &options, &Work::default())
        };
        let mut result = resume();
        // Tools that other tests start hold our locks for a moment, between fork and exec.
        while result.as_ref().is_err_and(|error| error.is_busy()) {
            result = resume();
        }
        let image = fs::read(at("image")).unwrap();
        match result {
            Ok(()) if at("journal").exists() => Err("the journal is still there".to_owned()),
            Ok(()) => outcome(&image).and_then(|outcome| match outcome {
                Outcome::After => Ok(outcome),
                _ => Err("resumed, and as before".to_owned()),
            }),
            // A journal has its name when it can be resumed.
            Err(error) => Err(format!("{error}: the journal is there")),
        }
    })
}

#[test]
fn work_in_place_can_be_cut_at_any_moment() {
    let mut session = Session::new("in place");
    let mut rng = Rng::new(8);
    let key = rng.bytes(64);
    let keys = scratch();
    let file = keys.path().join("key");
    fs::write(&file, &key).unwrap();
    // A last zone that is not whole.
    fs::write(session.path().join("image"), rng.bytes(4096 + 9 * 4096 + 1536)).unwrap();
    for (name, direction) in [("encrypt", Direction::Encrypt), ("decrypt", Direction::Decrypt)] {
        let line = format!(
            "crypt {name} --in-place image --journal journal --key-file {} --key-size 512 --crypt-offset 8s",
            file.display()
        );
        let recover = format!("{line} --resume");
        let judge = |before: &Files, after: &Files| judge(direction, &key, before, after);
        if !session.cut(200, &format!("{line} --hotzone-size {HOT_ZONE}"), &recover, judge) {
            return;
        }
    }
    session.end(200);
}
