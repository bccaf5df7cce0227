//! Which file or device it is, whatever name leads to it.

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use crate::error::Result;
use crate::os::{self, Below};

/// How many devices are looked at that lie on each other: few do.
const MOST: usize = 64;

/// A file or a device of this system. Hard links are one file, and all nodes of a block device are one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileId {
    /// A block device, by its number.
    BlockDevice(u64),
    /// Anything else, by the device that it lies on and its inode there.
    Inode(u64, u64),
    /// A file without a name that a loop device stands on: a number made of the name that it had. Other files that had the same
    /// name are taken for it.
    Deleted(u64),
}

impl FileId {
    /// The file or device that has this metadata.
    #[cfg(unix)]
    pub fn of(metadata: &std::fs::Metadata) -> FileId {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        match metadata.file_type().is_block_device() {
            true => FileId::BlockDevice(metadata.rdev()),
            false => FileId::Inode(metadata.dev(), metadata.ino()),
        }
    }

    /// The major and minor number of a block device, where there are such numbers.
    pub fn device_numbers(self) -> Option<(u32, u32)> {
        match self {
            FileId::BlockDevice(number) => os::numbers(number),
            FileId::Inode(..) | FileId::Deleted(_) => None,
        }
    }

    /// The block device that begins at a byte of this one: itself, or a partition that the kernel knows.
    pub fn device_at(self, start: u64) -> Option<FileId> {
        match (self, start) {
            (FileId::Inode(..) | FileId::Deleted(_), _) => None,
            (FileId::BlockDevice(_), 0) => Some(self),
            (FileId::BlockDevice(_), _) => os::partition_at(self, start),
        }
    }

    /// The file or device that a path leads to, if it can be looked at.
    pub fn at(path: &Path) -> Option<FileId> {
        os::id_at(path).ok()
    }
}

/// Whether two paths lead to one file or device. Two that are not there yet are the same if they will be.
///
/// A file that can't be looked at counts as different: opening it will say why.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    match (FileId::at(one), FileId::at(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => new_name(one).is_some_and(|one| new_name(other) == Some(one)),
        _ => false,
    }
}

/// Whether what is written at one path may change what is at the other: they lead to one file, one to what the other
/// lies on, as a loop device lies on a file, and a partition on its disk, or both to what lies on the same bytes of a third, as
/// two loop devices of one file do. Their bytes need not have the same places.
pub fn is_same_storage(one: &Path, other: &Path) -> bool {
    match (FileId::at(one), FileId::at(other)) {
        (Some(one), Some(other)) => share_bytes(one, other),
        _ => is_same_file(one, other),
    }
}

/// Whether what is written to one file or device may change the other, as [`is_same_storage`] sees it.
pub(crate) fn shares(one: FileId, other: FileId) -> bool {
    let is_device = |id| matches!(id, FileId::BlockDevice(_));
    one == other || (is_device(one) || is_device(other)) && share_bytes(one, other)
}

/// Whether two files or devices lie on bytes that both have, over any number of devices.
fn share_bytes(one: FileId, other: FileId) -> bool {
    let others = places(other);
    places(one).iter().any(|(one, part)| {
        others.iter().any(|(other, range)| one == other && part.start < range.end && range.start < part.end)
    })
}

/// A file or device and all that it lies on, each with the bytes of it that it has there.
pub(crate) fn places(id: FileId) -> Vec<(FileId, Range<u64>)> {
    let mut all = vec![(id, 0..u64::MAX)];
    let mut next = 0;
    while next < all.len().min(MOST) {
        let (id, part) = all[next].clone();
        let place = |below: Below| {
            // A mapping of the kernel has its bytes anywhere in what it lies on.
            if below.backing.is_none() && below.range == (0..u64::MAX) {
                return (below.id, below.range);
            }
            let at = |offset| below.range.start.saturating_add(offset);
            (below.id, at(part.start)..at(part.end).min(below.range.end))
        };
        all.extend(os::below(id).into_iter().map(place));
        next += 1;
    }
    all
}

/// A block device and all that it lies on, each with what is directly below it.
pub(crate) fn all_below(id: FileId) -> Vec<(FileId, Below)> {
    let mut all: Vec<(FileId, Below)> = Vec::new();
    let (mut wanted, mut next) = (vec![id], 0);
    while next < wanted.len().min(MOST) {
        let device = wanted[next];
        for below in os::below(device) {
            if !wanted.contains(&below.id) {
                wanted.push(below.id);
            }
            all.push((device, below));
        }
        next += 1;
    }
    all
}

/// The folder that a new file will lie in, and its name there. A link to a file that is not there yet is followed.
fn new_name(path: &Path) -> Option<(FileId, OsString)> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match std::fs::read_link(&path) {
            Ok(target) => path = folder_of(&path).join(target),
            Err(_) => return Some((FileId::at(folder_of(&path))?, path.file_name()?.to_owned())),
        }
    }
    None
}

/// Links that are followed to a file that is not there yet: as many as Linux follows.
const MOST_LINKS: usize = 40;

/// Puts the name of a file on stable storage, or that it is gone: the folder that it lies in.
///
/// # Errors
/// `Io`.
pub fn sync_name(path: &Path) -> Result<()> {
    Ok(os::sync_folder(folder_of(path))?)
}

/// The folder that a file lies in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_of_one_file_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "").unwrap();
        fs::write(at("b"), "").unwrap();
        fs::create_dir(at("folder")).unwrap();
        fs::hard_link(at("a"), at("folder/hard")).unwrap();
        #[cfg(unix)]
        for (target, link) in [("a", "soft"), ("folder", "other"), ("new", "dangling"), ("circle", "circle")]
        {
            std::os::unix::fs::symlink(at(target), at(link)).unwrap();
        }
        for (one, other, same) in [
            ("a", "a", true),
            ("a", "folder/hard", true),
            ("soft", "other/hard", true),
            ("a", "b", false),
            ("a", "new", false),
            ("new", "new", true),
            ("new", "folder/../new", true),
            ("folder/new", "other/new", true),
            ("new", "folder/new", false),
            ("dangling", "folder/../new", true),
            ("dangling", "none", false),
            ("circle", "new", false),
            ("none/new", "none/new", false),
        ] {
            if cfg!(windows)
                && [one, other].iter().any(|name| {
                    ["soft", "other", "dangling", "circle"].iter().any(|link| name.contains(link))
                })
            {
                continue;
            }
            assert_eq!(is_same_file(&at(one), &at(other)), same, "{one} {other}");
        }
    }
}
