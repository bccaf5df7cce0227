//! Encryption in place of a part of what a file system lies on.

use std::fs;

use casemate::crypt::{Direction, InPlaceOptions, Mapping, Params};
use casemate::{Access, Code, Image, Providers, SecretVec, Work};
use casemate_testkit::{mke2fs, tempdir, tool};

#[test]
fn a_file_system_is_cut_only_where_that_is_allowed() {
    let Some(tool) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let path = folder.path().join("image");
    mke2fs::make(&tool, "-t ext4 -b 1024", &path, "4M");
    let before = fs::read(&path).unwrap();
    let key: Vec<u8> = (0..64).collect();
    let mapping = |offset| {
        let params = Params::new("aes-xts-plain64".parse().unwrap());
        Mapping::new(params, SecretVec::from(&key[..]), offset, &Providers::default()).unwrap()
    };
    let (whole, behind, work) = (mapping(0), mapping(8), Work::default());
    let open = |len| Image::open(&path, Access::Change).unwrap().window(0, len).unwrap();
    let mut options = InPlaceOptions::default();
    for direction in [Direction::Encrypt, Direction::Decrypt] {
        if direction == Direction::Decrypt {
            open(None).crypt_in_place(Direction::Encrypt, &whole, &options, &work).unwrap();
        }
        let is = fs::read(&path).unwrap();
        let error = open(Some(3 << 20)).crypt_in_place(direction, &whole, &options, &work).unwrap_err();
        assert!(
            error.text().contains("ends at byte 4194304, and only what lies before byte 3145728"),
            "{error}"
        );
        // Without knowledge of contents nothing is begun.
        let error = whole.transform_in_place(direction, &open(Some(3 << 20)), &options, &work).unwrap_err();
        assert_eq!(error.code(), Code::Unsupported);
        assert!(fs::read(&path).unwrap() == is);
    }
    open(None).crypt_in_place(Direction::Decrypt, &whole, &options, &work).unwrap();
    assert!(fs::read(&path).unwrap() == before);
    // What lies before the mapping is not cut off at its end, and the rest of a window stays as it is.
    options.allow_cut = true;
    open(Some(3 << 20)).crypt_in_place(Direction::Encrypt, &behind, &options, &work).unwrap();
    let after = fs::read(&path).unwrap();
    assert!(after[..4096] == before[..4096] && after[3 << 20..] == before[3 << 20..]);
    assert!(after[4096..3 << 20] != before[4096..3 << 20]);
}
