//! Listings of trees of the host, for comparing two.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Everything about the files below a folder, and itself, by their paths; other names of a file refer to the first one.
/// With `atimes`, also when regular files with one name were read last.
pub fn listing(top: &Path, atimes: bool) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut first = BTreeMap::new();
    let mut paths = vec![PathBuf::new()];
    while let Some(path) = paths.pop() {
        let whole = if path.as_os_str().is_empty() { top.to_owned() } else { top.join(&path) };
        let data = fs::symlink_metadata(&whole).unwrap();
        let mut contents = Vec::new();
        if data.is_symlink() {
            contents = fs::read_link(&whole).unwrap().into_os_string().into_encoded_bytes();
        } else if data.is_file() {
            contents = fs::read(&whole).unwrap();
        } else if data.is_dir() {
            let names = fs::read_dir(&whole).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| path.join(name)).collect();
            names.sort();
            paths.extend(names.into_iter().rev());
        }
        let link = first.entry(data.ino()).or_insert_with(|| path.clone()).clone();
        let sum =
            contents.iter().fold(7u64, |sum, byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte));
        // Directories and links were read to get here, and so was a file by another name.
        let is_told = atimes && data.is_file() && data.nlink() == 1;
        let text = format!(
            "mode {:o} owner {}:{} size {} mtime {}.{} atime {:?} device {} sum {sum:x} link {}",
            data.mode(),
            data.uid(),
            data.gid(),
            if data.is_dir() { 0 } else { data.len() },
            data.mtime(),
            data.mtime_nsec(),
            is_told.then(|| (data.atime(), data.atime_nsec())),
            data.rdev(),
            link.display(),
        );
        found.insert(path, text);
    }
    found
}
