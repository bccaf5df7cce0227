//! Files of the host for contents whose way in a file system is lost.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};

use casemate_blockdev::os::{DirBuilderExt, FileExt, OpenOptionsExt, OsStrExt, set_mode};
use casemate_blockdev::{BlockDevice, Error, copy_data, set_len, usize_of};

use crate::folder;

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// The folder that files are copied to whose way in the image is not known, or not for sure. As lost+found, it is its owner's
/// alone: a file that all may read may have lain where nobody else could go. Folders below it have the permissions of their
/// directories, when all is copied.
#[derive(Debug)]
pub struct RescueFolder {
    folder: PathBuf,
    /// Folders that were made, and their permissions.
    made: BTreeMap<PathBuf, u16>,
    open: Option<Error>,
}

impl RescueFolder {
    /// Makes the folder, with those above it; one that is there is made its owner's alone.
    ///
    /// # Errors
    /// `Io`.
    pub fn make(folder: &Path) -> Result<RescueFolder, Error> {
        let at = |error: Error| error.at(folder.display());
        if let Some(above) = folder.parent() {
            fs::create_dir_all(above).map_err(|error| Error::io(above.display(), error))?;
        }
        folder::make_top(folder).map_err(at)?;
        let open = folder::set_folder_mode(folder, 0o700).map_err(at).err();
        Ok(RescueFolder { folder: folder.to_owned(), made: BTreeMap::new(), open })
    }

    /// Makes a folder for a directory that was deleted, unless something is there.
    ///
    /// # Errors
    /// `Io`.
    pub fn make_folder(&mut self, place: &Path, way: &[u16], mode: u16) -> Result<(), Error> {
        let way: Vec<u16> = way.iter().copied().chain([mode & 0o777]).collect();
        self.make_all(place, &way)
    }

    /// Why the folder could not be made its owner's alone: others may read what comes into it.
    pub fn open_to_others(&self) -> Option<&Error> {
        self.open.as_ref()
    }

    /// Makes the folders between this one and `place`, which get the permissions of `way` at the end.
    ///
    /// # Errors
    /// `Io`.
    pub fn make_way(&mut self, place: &Path, way: &[u16]) -> Result<(), Error> {
        place.parent().map_or(Ok(()), |folder| self.make_all(folder, way))
    }

    fn make_all(&mut self, folder: &Path, way: &[u16]) -> Result<(), Error> {
        let mut missing: Vec<&Path> =
            folder.ancestors().take_while(|folder| *folder != self.folder).collect();
        missing.reverse();
        let is_known = missing.len() == way.len();
        for (number, folder) in missing.into_iter().enumerate() {
            let mode = way.get(number).copied().filter(|_| is_known).unwrap_or(0o700);
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(_) if folder.is_dir() => {}
                made => made.map_err(|error| Error::io(folder.display(), error))?,
            }
            // Several directories may have had the path.
            self.made.entry(folder.to_owned()).and_modify(|known| *known &= mode).or_insert(mode);
        }
        Ok(())
    }

    /// Gives the folders below their permissions.
    ///
    /// # Errors
    /// `Io`, of the first that could not get them; the others have them.
    pub fn finish(self) -> Result<(), Error> {
        // A folder comes before those that lie in it.
        let set = |(folder, mode): (&PathBuf, &u16)| {
            folder::set_folder_mode(folder, *mode).map_err(|error| error.at(folder.display()))
        };
        self.made.iter().rev().map(set).fold(Ok(()), Result::and)
    }
}

/// Writes a device to a new file, which is its owner's alone until it has all contents and `mode`.
///
/// # Errors
/// `Io`, also if there is a file of that name; errors of reading, as `about` words them.
pub fn copy_new(
    contents: &dyn BlockDevice,
    target: &Path,
    mode: u32,
    about: impl Fn(Error) -> Error,
) -> Result<u64, Error> {
    let at = |error: io::Error| Error::io(target.display(), error);
    let mut options = File::options();
    let output = options.write(true).create_new(true).mode(0o600).open(target).map_err(at)?;
    let copy = || -> Result<u64, Error> {
        let size = contents.size();
        set_len(&output, size).map_err(at)?;
        // At most a MiB.
        let mut buffer = vec![0; usize_of(PIECE.min(size))];
        copy_data(contents, 0..size, &mut buffer, &about, |data, place| {
            output.write_all_at(data, place).map_err(at)
        })?;
        set_mode(&output, mode).map_err(at)?;
        Ok(size)
    };
    let copied = copy();
    if copied.is_err() {
        // Half of a file is none.
        let _ = fs::remove_file(target);
    }
    copied
}

/// Where a file of this path is written below a folder: no part of the path leads out of it. `None` if the path is none that a
/// file of the host could have.
pub fn place_below(folder: &Path, path: &[u8]) -> Option<PathBuf> {
    let mut place = folder.to_owned();
    let mut is_empty = true;
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        if matches!(part, b"." | b"..") || part.contains(&0) || part.len() > 255 {
            return None;
        }
        place.push(std::ffi::OsStr::from_bytes(part));
        is_empty = false;
    }
    (!is_empty && path.len() < 4096).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_never_leads_out_of_its_folder() {
        let folder = Path::new("out");
        assert_eq!(place_below(folder, b"/a//b"), Some("out/a/b".into()));
        for path in [&b""[..], b"/", b"/../x", b"a/../../x", b"./x", b"a\0b", &[b'x'; 256]] {
            assert_eq!(place_below(folder, path), None, "{path:?}");
        }
    }
}
