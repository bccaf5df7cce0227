//! Files that no name leads to: deleted ones, and those whose directory is lost.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};

use casemate_blockdev::os::{DirBuilderExt, FileExt, OpenOptionsExt, OsStrExt, set_mode};
use casemate_blockdev::{BlockDevice, ErrorKind, copy_data, set_len, signatures, u64_of, usize_of};
use casemate_ext4::InodeFlags;
use casemate_providers::Work;
use casemate_trees::folder;

pub use casemate_ext4::{Deleted, DeletedBlocks, DeletedFile, DeletedSource, Unreachable, Unread};

use super::{FileSystem, FileType, Inode, VerityPolicy, open_file};
use crate::Error;

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// Magic numbers that formats of files begin with, and the words for a guess.
const KINDS: &[(&[u8], &str)] = &[
    (b"\x7fELF", "an ELF program or library"),
    (b"#!", "a script"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"-----BEGIN ", "a PEM file"),
    (b"\0asm", "a WebAssembly module"),
    (b"OggS", "an Ogg file"),
    (b"ID3", "an MP3 file"),
    (b"BZh", "bzip2 data"),
    (b"<?xml", "an XML document"),
];

impl FileSystem {
    /// Files that were deleted, as far as something of them is left. The listener hears of bytes of inode tables
    /// ([`FileSystem::check_size`]).
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn deleted_files(&self, work: &Work<'_>) -> Result<Deleted, Error> {
        self.inodes().deleted_files(work.events).map_err(|error| error.at(self.name()))
    }

    /// Inodes in use that no name reaches. The listener hears of bytes of inode tables ([`FileSystem::check_size`]).
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn unreachable_inodes(&self, work: &Work<'_>) -> Result<Unreachable, Error> {
        self.inodes().unreachable_inodes(work.events).map_err(|error| error.at(self.name()))
    }

    /// A guess of the kind of file that a regular file's first bytes are of; `None` if they tell nothing.
    pub fn guess(&self, inode: &Inode) -> Option<&'static str> {
        if inode.kind() != FileType::Regular {
            return None;
        }
        guess(&self.inodes().open_file(inode).ok()?)
    }

    /// Reads a deleted file with fs-verity, and returns why its contents are not those of its tree: its blocks may have been
    /// used again. `None` if they are, and for a file without fs-verity.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn contradiction(&self, file: &DeletedFile, work: &Work<'_>) -> Result<Option<Error>, Error> {
        if file.inode.kind() != FileType::Regular || !file.inode.has(InodeFlags::VERITY) {
            return Ok(None);
        }
        let contents = open_file(&file.view(), &file.inode, VerityPolicy::Check, &work.providers);
        match contents.and_then(|contents| super::sha256(&*contents, work)) {
            Err(error) if error.is_interrupt() => Err(error),
            // Whoever copies the file hears of what else keeps it from being read.
            Err(error) if matches!(error.kind(), ErrorKind::Mismatch | ErrorKind::Corrupt) => Ok(Some(error)),
            _ => Ok(None),
        }
    }

    /// Writes the contents of a deleted file to a new file; holes stay holes. A symbolic link becomes a text file that holds
    /// its target.
    ///
    /// # Errors
    /// Errors of [`DeletedFile::open`]; `Io` if there is a file of that name.
    pub fn undelete(&self, file: &DeletedFile, target: &Path) -> Result<u64, Error> {
        let number = file.inode.number();
        let mode = u32::from(file.mode_without_acl());
        let about = |error| self.about(number, error);
        match file.inode.kind() {
            FileType::Regular => {
                let contents = file.open().map_err(about)?;
                copy_new(&contents, target, mode, about)
            }
            // As a text: a link would lead somewhere on the host.
            FileType::Symlink => {
                let bytes = file.symlink_target().map_err(about)?;
                let len = u64_of(bytes.len());
                // Its own mode says nothing.
                copy_new(&casemate_blockdev::MemoryDevice::new(bytes), target, 0o644, about)?;
                Ok(len)
            }
            other => {
                let text = format!("inode {number} is a {}, which has no contents", other.name());
                Err(Error::argument(text).at(self.name()))
            }
        }
    }
}

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
fn copy_new(
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

/// A guess of what a file is.
pub fn guess(file: &dyn BlockDevice) -> Option<&'static str> {
    // At most 64 KiB.
    let mut head = vec![0; usize_of(file.size().min(u64_of(signatures::HEAD)))];
    file.read_at(&mut head, 0).ok()?;
    let kind = KINDS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, what)| *what);
    let known = || signatures::known(&head).filter(|what| *what != signatures::ZEROS);
    let is_text = || {
        let text = &head[..head.len().min(4096)];
        !text.is_empty()
            && text.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..))
    };
    kind.or_else(known)
        .or_else(|| (is_text() && std::str::from_utf8(utf8_part(&head)).is_ok()).then_some("a text"))
}

/// The first bytes of a text, without half a character at their end.
fn utf8_part(head: &[u8]) -> &[u8] {
    let text = &head[..head.len().min(4096)];
    match std::str::from_utf8(text) {
        Err(error) if error.error_len().is_none() => &text[..error.valid_up_to()],
        _ => text,
    }
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
    use casemate_blockdev::MemoryDevice;

    #[test]
    fn a_path_never_leads_out_of_its_folder() {
        let folder = Path::new("out");
        assert_eq!(place_below(folder, b"/a//b"), Some("out/a/b".into()));
        for path in [&b""[..], b"/", b"/../x", b"a/../../x", b"./x", b"a\0b", &[b'x'; 256]] {
            assert_eq!(place_below(folder, path), None, "{path:?}");
        }
    }

    #[test]
    fn guesses() {
        let guess = |bytes: &[u8]| super::guess(&MemoryDevice::new(bytes.to_vec()));
        assert_eq!(guess(b"%PDF-1.7"), Some("a PDF document"));
        assert_eq!(guess(b"hello\n"), Some("a text"));
        assert_eq!(guess(b"\x1f\x8b\x08\0"), Some("gzip data"));
        assert_eq!((guess(b""), guess(&[0; 5000]), guess(b"a\0b")), (None, None, None));
        let text = "\u{e4}".repeat(3000);
        assert_eq!(guess(&text.as_bytes()[..4097]), Some("a text"));
    }
}
