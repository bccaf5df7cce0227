//! Dry runs do everything but write: they say what the real run says, fail where it fails, and leave every file as it was.

use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

use casemate_testkit::{Place, Rng, status, stderr, stdout};

const KEY: &str = "--key-file key --key-size 512";

fn place() -> Place {
    let place = Place::new(env!("CARGO_BIN_EXE_casemate"));
    let mut rng = Rng::new(9);
    place.file("key", rng.bytes(64));
    place.file("wrong", rng.bytes(64));
    // Begins as something known.
    let mut data = rng.bytes(3 << 20);
    data[..4].copy_from_slice(b"hsqs");
    place.file("data", data);
    place
}

/// Every file with its bytes and times, and those of the folder.
fn everything(place: &Place) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let time = |name: &str| fs::metadata(place.path(name)).unwrap().modified().unwrap();
    place.names().into_iter().map(|name| (name.clone(), (place.read(&name), time(&name)))).collect()
}

/// Runs a line with -n. What it prints.
#[track_caller]
fn dry(place: &Place, line: &str) -> String {
    let before = everything(place);
    let output = place.own(&format!("{line} -n -v"));
    assert_eq!(status(&output), 0, "{line}: {}", stderr(&output));
    assert!(
        stderr(&output).contains("nothing was written: this was a dry run"),
        "{line}: {}",
        stderr(&output)
    );
    assert!(everything(place) == before, "{line}: {:?}", place.names());
    stdout(&output)
}

#[track_caller]
fn real(place: &Place, line: &str) -> String {
    let output = place.own(line);
    assert_eq!(status(&output), 0, "{line}: {}", stderr(&output));
    stdout(&output)
}

/// A line that fails, and does so without being done.
#[track_caller]
fn refused(place: &Place, line: &str, said: &str) {
    let before = everything(place);
    let output = place.own(&format!("{line} -n"));
    assert!(status(&output) == 2 && stderr(&output).contains(said), "{line}: {}", stderr(&output));
    assert!(everything(place) == before, "{line}: {:?}", place.names());
}

#[test]
fn verity() {
    let place = place();
    let fec = "--fec-device fec --fec-roots 3";
    for line in [
        "verity format data tree --seed 1 --root-hash-file root".to_owned(),
        // Over the file that is there, with parity in a file of its own, or behind the tree.
        format!("verity format data tree --seed 2 {fec} --root-hash-file root"),
        "verity format data tree --seed 3 --fec-device tree --fec-offset 1M".to_owned(),
        // Behind the data, in a file that grows.
        "verity format data data --seed 4 --data-blocks 768 --hash-offset 3M".to_owned(),
        format!("verity format data tree --seed 5 --data-blocks 768 {fec} --root-hash-file root"),
    ] {
        let tried = dry(&place, &line);
        assert_eq!(tried, real(&place, &line), "{line}");
    }
    refused(&place, "verity format data none/tree", "none/tree");
    refused(&place, "verity format data tree --root-hash-file none/root", "none/root");
    refused(&place, "verity format data data --hash-offset 4K", "overlap");
    refused(&place, "verity update data none --changed 0+1", "none");

    place.flip("data", 5000, 1);
    for line in
        [format!("verity repair data tree @root {fec}"), "verity update data tree --changed 0+8K".into()]
    {
        let tried = dry(&place, &line);
        let done = real(&place, &line);
        match line.contains("repair") {
            true => assert_eq!(
                (&*tried, &*done),
                (
                    "1 data blocks and 0 hash blocks can be restored.\n",
                    "Restored 1 data blocks and 0 hash blocks.\n"
                )
            ),
            false => assert_eq!(tried, done),
        }
        place.flip("data", 5000, 1);
    }
    place.flip("tree", 4096, 1);
    refused(&place, "verity update data tree --changed 0+8K --old-root-hash @root", "does not belong");
}

#[test]
fn crypt_in_place() {
    let place = place();
    let encrypt = format!("crypt encrypt --in-place data {KEY}");
    dry(&place, &encrypt);
    dry(&place, &format!("{encrypt} --journal other --crypt-offset 4K --hotzone-size 512K --overwrite"));
    for option in ["-n", "--resume", "--journal j", "--hotzone-size 1M"] {
        let output = place.own(&format!("crypt encrypt data target {KEY} {option}"));
        assert!(status(&output) == 2 && !place.path("target").exists(), "{option}: {}", stderr(&output));
    }
    refused(&place, &format!("{encrypt} --resume"), "nothing to resume");
    refused(&place, &format!("{encrypt} --hotzone-size 100"), "hot zone");
    refused(&place, &format!("{encrypt} --journal none/journal"), "none/journal");
    place.file("data.casemate-journal", "");
    refused(&place, &encrypt, "has the name of the journal, and is another file");
    refused(&place, &format!("{encrypt} --resume"), "no whole record");
    fs::remove_file(place.path("data.casemate-journal")).unwrap();
    let plain = place.read("data");
    real(&place, &encrypt);
    let decrypt = format!("crypt decrypt --in-place data {KEY}");
    let wrong = place.own(&format!("{} -n", decrypt.replace("key-file key", "key-file wrong")));
    assert!(stderr(&wrong).contains("may be wrong"), "{}", stderr(&wrong));
    let right = place.own(&format!("{decrypt} -n"));
    assert_eq!(stderr(&right), "");
    dry(&place, &decrypt);
    real(&place, &decrypt);
    assert!(place.read("data") == plain);
}
