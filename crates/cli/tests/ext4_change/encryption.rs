//! Changes in encrypted directories.

use std::fs;
use std::os::unix::fs::symlink;

use crate::Place;

#[test]
fn encrypted_directories_are_filled() {
    let Some(place) = Place::new("-O encrypt -b 4096") else { return };
    place.tree();
    fs::write(place.path("key"), [7; 64]).unwrap();
    fs::write(place.path("other"), [8; 64]).unwrap();
    symlink("t".repeat(300), place.path("tree/long")).unwrap();
    for number in 0..300 {
        fs::write(place.path(&format!("tree/a/{number}-{}", "n".repeat(number % 200))), "x").unwrap();
    }
    place.yes("mkdir image /secret");
    place.yes("fscrypt: set-policy image /secret --key key");
    place.no("mkdir image /secret/x", 2, "needs the key");
    place.no("mkdir image /secret/x --fscrypt-key other", 2, "needs the key");
    place.yes("put -r image tree/. /secret --fscrypt-key key");
    place.assert_clean();
    assert_eq!(place.yes("cat image /secret/a/file --fscrypt-key key"), "contents\n");
    let deep = format!("cat image /secret/a/299-{} --fscrypt-key key", "n".repeat(99));
    assert_eq!(place.yes(&deep), "x");
    place.yes("mv image /secret/a/file /secret/moved --fscrypt-key key");
    place.yes("ln image /secret/moved /secret/a/again --fscrypt-key key");
    place.yes("truncate image /secret/moved 4 --fscrypt-key key");
    place.yes("truncate image /secret/moved 9 --fscrypt-key key");
    assert_eq!(place.yes("cat image /secret/a/again --fscrypt-key key"), "cont\0\0\0\0\0");
    place.yes("mkdir image /plain");
    place.yes("touch image /plain/file");
    place.no("mv image /plain/file /secret --fscrypt-key key", 2, "encrypts in another way");
    place.yes("mv image /secret/moved /plain --fscrypt-key key");
    place.assert_clean();
    place.yes("extract image out --path /secret --fscrypt-key key");
    assert_eq!(fs::read_link(place.path("out/long")).unwrap().as_os_str().len(), 300);
    assert_eq!(fs::read_link(place.path("out/a/b/link")).unwrap().to_str(), Some("../file"));
    assert_eq!(fs::read(place.path("out/sparse")).unwrap(), fs::read(place.path("tree/sparse")).unwrap());
    place.yes("rm -r image /secret");
    place.assert_clean();
}

#[test]
fn policies_of_every_kind_are_set() {
    let Some(place) = Place::new("-O encrypt,stable_inodes -b 4096") else { return };
    place.tree();
    fs::write(place.path("key"), [7; 64]).unwrap();
    let policies = [
        "--policy-version 1",
        "--policy-version 1 --contents adiantum --filenames adiantum --flag direct-key",
        "--contents adiantum --filenames adiantum --flag direct-key --padding 4",
        "--flag iv-ino-lblk64 --filenames aes-256-hctr2",
        "--flag iv-ino-lblk32",
        "--data-unit-size 512",
    ];
    for (number, policy) in policies.into_iter().enumerate() {
        place.yes(&format!("mkdir image /{number}"));
        place.yes(&format!("fscrypt: set-policy image /{number} --key key {policy}"));
        place.yes(&format!("put -r image tree/. /{number} --fscrypt-key key"));
        assert_eq!(place.yes(&format!("cat image /{number}/a/file --fscrypt-key key")), "contents\n");
    }
    place.yes("mkdir image /last");
    place.no("fscrypt: set-policy image /last --key key --flag direct-key", 2, "");
    let mixed = "fscrypt: set-policy image /last --key key --flag iv-ino-lblk32 --data-unit-size 512";
    place.no(mixed, 2, "data units of 512 bytes in blocks of 4096 bytes");
    place.assert_clean();
}
