//! Files that commands write: there whole or not at all, where that can be had.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::os::FileTypeExt;
use crate::output_file::WayBack;
use crate::target::{self, Consent, Loss, Made};
use crate::{
    Access, BlockDevice, Error, FileDevice, FileId, Medium, OutputFile, Stream, data_mode, inputs,
    is_same_storage, signatures, u64_of,
};

/// Whether a path leads to a file that is there, in a folder or below it.
fn is_file_below(path: &Path, folder: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    folder.is_dir()
        && path.is_file()
        && real(path).zip(real(folder)).is_some_and(|(path, folder)| path.starts_with(folder))
}

/// A file to be written. A regular file is written aside and gets its name at the end; a block device, a pipe, a
/// terminal or `/dev/null` is written to as it is.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    kind: Kind,
    written: u64,
}

#[derive(Debug)]
enum Kind {
    Aside(Box<OutputFile>),
    BlockDevice(FileDevice),
    Stream(Stream),
    /// A pipe, say, that is opened with its first byte: who reads it may wait for something else until then.
    Later,
}

impl Output {
    /// Whether `path` may be written by a command that reads or writes the files `others`, too, and the files in those that are
    /// folders; and what the process reads through descriptors.
    ///
    /// # Errors
    /// `Argument` if that would replace one of them.
    pub fn check(path: &Path, others: &[&Path]) -> Result<(), Error> {
        // A pipe, or /dev/null, is not replaced.
        let is_kept = |metadata: fs::Metadata| !metadata.is_file() && !metadata.file_type().is_block_device();
        let replaced = others.iter().find(|other| is_same_storage(path, other));
        match replaced.filter(|_| !fs::metadata(path).is_ok_and(is_kept)) {
            Some(other) => {
                let text = format!("{}: this would replace {}", path.display(), other.display());
                Err(Error::argument(text))
            }
            None => match others.iter().find(|other| is_file_below(path, other)) {
                Some(folder) => {
                    let text =
                        format!("{}: this would replace a file of {}", path.display(), folder.display());
                    Err(Error::argument(text))
                }
                None => match FileId::at(path) {
                    Some(id) if !fs::metadata(path).is_ok_and(is_kept) => {
                        inputs::check_output(id).map_err(|error| error.at(path.display()))
                    }
                    _ => Ok(()),
                },
            },
        }
    }

    /// Begins to write `path`, an ordinary file such as a signature, a list or an archive; a symbolic link is followed. `others`
    /// are the files that the same command reads or writes, none of which it may replace. Nor does an ordinary file replace a
    /// file system, a volume or a partition table.
    ///
    /// # Errors
    /// `Io` if it can't be made, [`Error::is_busy`] if what is there is in use; `Argument` if it is one of the others, or holds
    /// what must not be replaced.
    pub fn create(path: &Path, others: &[&Path]) -> Result<Output, Error> {
        let refuse = |loss: &Loss| match signatures::is_archive(loss.what()) {
            true => Ok(()),
            false => Err(Error::argument(format!("{loss}; to replace it, remove it first"))),
        };
        Output::create_anew(path, others, None, &refuse)
    }

    /// Begins an ordinary file as [`Output::create`] does, before the work whose outcome it gets: what can't be written is known at
    /// once, and a file that gets the name meanwhile stays. What is not a file, a pipe, say, is opened with the first byte.
    ///
    /// # Errors
    /// Errors of [`Output::create`].
    pub fn begin(path: &Path, others: &[&Path]) -> Result<Output, Error> {
        let is_stream =
            |found: fs::Metadata| !found.is_file() && !found.is_dir() && !found.file_type().is_block_device();
        if path == Path::new("-") || !fs::metadata(path).is_ok_and(is_stream) {
            return Output::create(path, others);
        }
        Output::check(path, others)?;
        Ok(Output { path: path.to_owned(), kind: Kind::Later, written: 0 })
    }

    /// Begins to write `path` as [`Output::create`] does, with what is `made` there: an image, or an ordinary file if `None`.
    /// `consent` is asked if something would be lost.
    ///
    /// # Errors
    /// `Io` if it can't be made, [`Error::is_busy`] if what is there is in use; `Argument` if it is one of the others; whatever
    /// the consent says.
    pub fn create_anew(
        path: &Path,
        others: &[&Path],
        made: Option<Made>,
        consent: Consent<'_>,
    ) -> Result<Output, Error> {
        if path == Path::new("-") {
            let text = "-: this output can't be a stream; for a file of that name write ./-";
            return Err(Error::argument(text));
        }
        Output::check(path, others)?;
        let aside = |path: PathBuf| OutputFile::create(path).map(|file| Kind::Aside(Box::new(file)));
        let create = || match fs::metadata(path) {
            Ok(metadata) if metadata.file_type().is_block_device() => {
                Access::Change.open(path).map(Kind::BlockDevice)
            }
            Ok(metadata) if !metadata.is_file() => Ok(Kind::Stream(Stream::open_for_writing(path)?)),
            Ok(_) => aside(fs::canonicalize(path)?),
            Err(_) => aside(path.to_owned()),
        };
        let kind = create().map_err(|error| Error::io(path.display(), error))?;
        target::look_at_path(path, made, consent)?;
        Ok(Output { path: path.to_owned(), kind, written: 0 })
    }

    /// Writes `bytes` as the whole of the file `path`.
    ///
    /// # Errors
    /// Errors of [`Output::create`]; nothing half-written is left.
    pub fn write_whole(path: &Path, others: &[&Path], bytes: &[u8]) -> Result<(), Error> {
        Output::create(path, others)?.finish(bytes)
    }

    /// The file with these bytes, which are all that follows. It gets its name later.
    ///
    /// # Errors
    /// `Io`.
    pub fn with(mut self, bytes: &[u8]) -> Result<Output, Error> {
        self.write_all(bytes).map_err(|error| Error::io(self.path.display(), error))?;
        Ok(self)
    }

    /// Writes `bytes`, which are all that follows, and commits.
    ///
    /// # Errors
    /// `Io`; nothing half-written is left.
    pub fn finish(self, bytes: &[u8]) -> Result<(), Error> {
        self.with(bytes)?.commit()
    }

    /// The file as a device, if it has positions.
    pub fn device(&self) -> Option<&FileDevice> {
        match &self.kind {
            Kind::Aside(file) => Some(file.device()),
            Kind::BlockDevice(device) => Some(device),
            Kind::Stream(_) | Kind::Later => None,
        }
    }

    /// The file as a device, if it is a new one: what is not written to it is a hole.
    pub fn new_file(&self) -> Option<&FileDevice> {
        match &self.kind {
            Kind::Aside(file) => Some(file.device()),
            Kind::BlockDevice(_) | Kind::Stream(_) | Kind::Later => None,
        }
    }

    /// Has a regular file get what it has beside its contents, which are complete: owner, attributes, permissions, times. What was
    /// there before keeps none of that. Devices and streams stay as they are; then nothing is done.
    pub fn dress<T>(&self, dress: impl FnOnce(&fs::File) -> T) -> Option<T> {
        let Kind::Aside(file) = &self.kind else { return None };
        file.leave_mode();
        Some(dress(file.device().file()))
    }

    /// Takes permissions from a regular file, so that nobody can read it who could not read the file at `source`, whose data it
    /// gets. "-" is standard input, of which nothing is known.
    pub fn narrow_to(&self, source: &Path) {
        if source != Path::new("-") {
            self.narrow(data_mode(source));
        }
    }

    /// Takes the permissions from a regular file that are not in `mode`. Devices and streams stay as they are.
    pub fn narrow(&self, mode: u32) {
        if let Kind::Aside(file) = &self.kind {
            file.narrow(mode);
        }
    }

    /// Writes zeros to a regular file where so many bytes are going to be written: a full disk is known before the work whose outcome
    /// they are.
    ///
    /// # Errors
    /// `Io`.
    pub fn reserve(&self, len: usize) -> Result<(), Error> {
        let Kind::Aside(file) = &self.kind else { return Ok(()) };
        file.device().write_at(&vec![0; len], self.written).map_err(|error| error.at(self.path.display()))
    }

    /// Looks whether a regular file can get its name: of several outputs none is to replace anything where another one can't.
    ///
    /// # Errors
    /// Errors of [`Output::commit`] that can be known before it.
    pub fn check_name(&self) -> Result<(), Error> {
        let Kind::Aside(file) = &self.kind else { return Ok(()) };
        file.check_name().map_err(|error| error.at(self.path.display()))
    }

    fn way_back(&self) -> Option<WayBack> {
        match &self.kind {
            Kind::Aside(file) => Some(file.way_back()),
            Kind::BlockDevice(_) | Kind::Stream(_) | Kind::Later => None,
        }
    }

    /// Gives the file its name; what was written to a block device is on stable storage then.
    ///
    /// # Errors
    /// `Io`; nothing is left then.
    pub fn commit(self) -> Result<(), Error> {
        let done = match self.kind {
            Kind::Aside(file) => file.commit(false),
            Kind::BlockDevice(device) => device.flush(),
            Kind::Stream(_) | Kind::Later => Ok(()),
        };
        done.map_err(|error| Error::io(self.path.display(), error))
    }
}

/// Gives the outputs of one work their names, when all of them are complete: the files, then the media, each in its order. None
/// replaces anything where another one can't get its name, or can't come to stable storage: the files that had the names before have
/// them again then, where the file system knows second names. What is written in place has no name to get.
///
/// # Errors
/// Errors of [`Output::commit`] and [`Medium::commit`].
pub fn name_all(files: Vec<Output>, media: &[&Medium]) -> Result<(), Error> {
    media.iter().try_for_each(|medium| medium.complete())?;
    files.iter().try_for_each(Output::check_name)?;
    media.iter().try_for_each(|medium| medium.check_name())?;
    let is_aside = |file: &&Output| matches!(file.kind, Kind::Aside(_));
    let number =
        files.iter().filter(is_aside).count() + media.iter().filter(|medium| medium.is_new()).count();
    let ways: Vec<WayBack> = match number {
        0 | 1 => Vec::new(),
        _ => {
            let of_files = files.iter().filter_map(Output::way_back);
            of_files.chain(media.iter().filter_map(|medium| medium.way_back())).collect()
        }
    };
    let named = files.into_iter().try_for_each(Output::commit);
    let named = named.and_then(|()| media.iter().try_for_each(|medium| medium.commit()));
    if named.is_err() {
        ways.iter().rev().for_each(WayBack::take);
    }
    named
}

/// One after the other, for those who need no positions.
impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if let Kind::Later = self.kind {
            self.kind = Kind::Stream(Stream::open_for_writing(&self.path)?);
        }
        if let Kind::Stream(file) = &mut self.kind {
            return file.write(buf);
        }
        if let Some(device) = self.device() {
            device.write_at(buf, self.written)?;
        }
        self.written += u64_of(buf.len());
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn links_and_devices_keep_what_they_are() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old and longer").unwrap();
        symlink(&file, &link).unwrap();
        Output::write_whole(&link, &[], b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        let null = folder.path().join("null");
        symlink("/dev/null", &null).unwrap();
        Output::write_whole(&null, &[], b"gone").unwrap();
        assert!(fs::symlink_metadata(&null).unwrap().is_symlink());
        assert!(Output::write_whole(&folder.path().join("none/file"), &[], b"").is_err());
        assert!(Output::write_whole(folder.path(), &[], b"").is_err());
    }

    #[test]
    fn several_outputs_get_their_names_together_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let names = ["image", "hash", "signature", "list"];
        for taken in names.map(Some).into_iter().chain([None]) {
            names.iter().for_each(|name| fs::write(at(name), "old").unwrap());
            let media = ["hash", "image"].map(|name| Medium::replace(at(name)).unwrap());
            media.iter().for_each(|medium| medium.write_at(b"new", 0).unwrap());
            let mut files = ["signature", "list"].map(|name| Output::create(&at(name), &[]).unwrap());
            files.iter_mut().for_each(|file| file.write_all(b"new").unwrap());
            if let Some(name) = taken {
                fs::write(at(name), "changed").unwrap();
            }
            let named = name_all(files.into(), &media.each_ref());
            assert_eq!(named.is_ok(), taken.is_none(), "{taken:?}");
            drop(media);
            for name in names {
                let expected = match taken {
                    None => "new",
                    Some(taken) if taken == name => "changed",
                    Some(_) => "old",
                };
                assert_eq!(fs::read_to_string(at(name)).unwrap(), expected, "{taken:?}: {name}");
            }
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), names.len());
        }
    }

    /// The name of the last one is taken when the others have theirs: by one of them.
    #[test]
    fn names_go_back_where_a_later_one_can_not_be_given() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for old in [true, false] {
            for name in ["one", "two"] {
                let _ = fs::remove_file(at(name));
                if old {
                    fs::write(at(name), "old").unwrap();
                }
            }
            let medium = Medium::replace(at("three")).unwrap();
            medium.write_at(b"new", 0).unwrap();
            let mut files = ["one", "two", "three"].map(|name| Output::create(&at(name), &[]).unwrap());
            files.iter_mut().for_each(|file| file.write_all(b"new").unwrap());
            name_all(files.into(), &[&medium]).unwrap_err();
            drop(medium);
            let left = ["one", "two", "three"].map(|name| fs::read_to_string(at(name)).ok());
            let before = old.then(|| "old".to_owned());
            assert_eq!(left, [before.clone(), before, None]);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), if old { 2 } else { 0 });
        }
    }

    #[test]
    fn an_ordinary_file_replaces_no_file_system_and_no_volume() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut disk = vec![0; 1 << 20];
        for (at, bytes, is_replaced) in [
            (0, &b"LUKS\xba\xbe"[..], false),
            (16_384, b"hello", true),
            (0, b"\x1f\x8b\x08", true),
            (0, b"hsqs", false),
            ((1 << 20) - 512, b"EFI PART", false),
        ] {
            disk.fill(0);
            disk[at..at + bytes.len()].copy_from_slice(bytes);
            fs::write(&path, &disk).unwrap();
            let written = Output::write_whole(&path, &[], b"signature");
            assert_eq!(written.is_ok(), is_replaced, "{at} {bytes:?}: {written:?}");
            assert_eq!(fs::read(&path).unwrap() == disk, !is_replaced, "{at}");
        }
        assert!(Output::write_whole(Path::new("-"), &[], b"").is_err());
    }

    #[test]
    fn what_is_read_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (file, new) = (folder.path().join("file"), folder.path().join("new"));
        fs::write(&file, "old").unwrap();
        fs::hard_link(&file, folder.path().join("hard")).unwrap();
        for (path, other) in [("file", &file), ("hard", &file), ("new", &new)] {
            let error = Output::create(&folder.path().join(path), &[&file, other]).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Argument, "{path}: {error}");
        }
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert!(!new.exists());
    }
}
