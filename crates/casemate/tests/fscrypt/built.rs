//! Encrypted directories of new images, whose sources change while they are built.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use casemate::blockdev::Events;
use casemate::ext4::{BuildSpec, EncryptedFolder, ReadOptions, VerityPolicy, VeritySpec};
use casemate::target::refuse;
use casemate::{Access, Image, Keys, Result, SecretSource, SecretVec, Work};
use casemate_testkit::{TempDir, tempdir};

/// Bytes of a file that has a hole in its middle.
const SIZE: usize = 3 << 20;

fn key() -> SecretSource {
    SecretSource::memory(SecretVec::new(vec![0x5a; 64]))
}

/// Writes the begin and the end of a file.
fn write(file: &Path, byte: u8) {
    let mut file = fs::File::options().write(true).create(true).truncate(false).open(file).unwrap();
    file.write_all(&[byte; 1 << 20]).unwrap();
    file.seek(SeekFrom::Start(SIZE as u64 - 5000)).unwrap();
    file.write_all(&[byte; 5000]).unwrap();
}

/// A tree with one file in a directory that is to be encrypted.
fn source() -> (TempDir, PathBuf, PathBuf) {
    let folder = tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("secret")).unwrap();
    let (file, image) = (tree.join("secret/file"), folder.path().join("image"));
    write(&file, 1);
    (folder, file, image)
}

fn spec(image: &Path, tree: &Path) -> BuildSpec {
    let mut spec = BuildSpec::new(image).folder(tree);
    spec.encryption.push(EncryptedFolder::new(*b"secret", key()));
    spec
}

#[test]
fn contents_that_nonces_follow_from_are_those_that_are_written() {
    let (folder, file, image) = source();
    let mut spec = spec(&image, &folder.path().join("tree"));
    spec.seed = Some("text".to_owned());
    let planned = spec.plan(&Work::default()).unwrap();
    write(&file, 2);
    let error = planned.write(&refuse, &Work::default()).unwrap_err().to_string();
    assert!(error.contains("secret/file") && error.contains("changed while it was copied"), "{error}");
    assert!(!image.exists());
}

/// Changes a file when all contents have been copied.
struct ChangeAtEnd<'a> {
    left: AtomicU64,
    file: &'a Path,
}

impl Events for ChangeAtEnd<'_> {
    fn advance(&self, bytes: u64) -> Result<()> {
        if bytes > 0 && self.left.fetch_sub(bytes, Ordering::Relaxed) == bytes {
            write(self.file, 2);
        }
        Ok(())
    }
}

#[test]
fn hash_trees_of_encrypted_files_are_over_what_was_written() {
    let (folder, file, image) = source();
    let mut spec = spec(&image, &folder.path().join("tree"));
    spec.verity = Some(VeritySpec::new());
    let planned = spec.plan(&Work::default()).unwrap();
    let copied = (1 << 20) + 8192;
    let events = ChangeAtEnd { left: AtomicU64::new(copied), file: &file };
    let work = Work { events: &events, ..Work::default() };
    planned.write(&refuse, &work).unwrap();
    assert_eq!(fs::read(&file).unwrap()[0], 2, "{} bytes are left", events.left.into_inner());
    let mut options = ReadOptions::default();
    (options.keys, options.check_verity) = (Keys::default().with_raw(&key()).unwrap(), true);
    options.verity = VerityPolicy::Require;
    let report = Image::open(&image, Access::Read).unwrap().ext4_check(&options, &Work::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
    let fs = Image::open(&image, Access::Read).unwrap().ext4(&options, &Work::default()).unwrap();
    let mut found = [0; 16];
    let file = fs.open("/secret/file").unwrap();
    for (at, byte) in [(0, 1), (2 << 20, 0), (SIZE as u64 - 16, 1)] {
        file.read_at(&mut found, at).unwrap();
        assert_eq!(found, [byte; 16], "at {at}");
    }
}
