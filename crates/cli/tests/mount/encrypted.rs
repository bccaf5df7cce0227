//! Encrypted files of mounted images (fscrypt). What is shown without keys is compared in `beside_kernel`.

use std::fs;
use std::path::Path;

use casemate_testkit::{fixture, listing};

use super::{Folders, images};

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn with_their_keys_files_are_as_they_are_extracted() {
    let Some(folders) = Folders::new() else { return };
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../casemate/tests/fscrypt/fixtures");
    for (name, image) in images("casemate/tests/fscrypt/fixtures") {
        let manifest = fixture(manifests.join(format!("{name}.json.xz")));
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        folders.file("image", image);
        let keys = manifest["keys"].as_array().unwrap().iter().enumerate().map(|(number, key)| {
            folders.file(format!("key{number}"), bytes(key["key_hex"].as_str().unwrap()));
            match key["descriptor"].as_str() {
                Some(descriptor) => format!("--fscrypt-key {descriptor}:key{number}"),
                None => format!("--fscrypt-key key{number}"),
            }
        });
        let keys = keys.collect::<Vec<_>>().join(" ");
        folders.yes(&format!("ext4 extract --no-progress image copy {keys}"));
        folders.mount(&format!("image {keys}"), "own");
        let (own, copy) = (listing(&folders.path("own"), false), listing(&folders.path("copy"), false));
        assert!(own == copy, "{name}: {:?}", own.iter().find(|(path, found)| copy.get(*path) != Some(found)));
        folders.unmount("own");
        // With another key nothing is decrypted.
        folders.file("other", [0x5a; 64]);
        folders.is("mount image --fscrypt-key other own", 0, "");
        let errors = walk(&folders.path("own"));
        assert!(errors.iter().any(|error| error.raw_os_error() == Some(126)), "{name}: {errors:?}");
        folders.unmount("own");
        fs::remove_dir_all(folders.path("copy")).unwrap();
    }
}

/// Errors of opening the files below a folder.
fn walk(folder: &Path) -> Vec<std::io::Error> {
    let mut errors = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => errors.extend(walk(&entry.path())),
            kind if kind.is_file() => errors.extend(fs::File::open(entry.path()).err()),
            _ => {}
        }
    }
    errors
}
