//! Functions of Unix, on Windows.
//!
//! Positions: a read moves the file's pointer, which nobody here uses. Names: Unicode is UTF-8 in images, so bytes that are
//! no UTF-8 are shown with replacement characters.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::os::windows::fs::FileExt as _;
use std::os::windows::io::AsHandle;
use std::path::{Path, PathBuf};

use crate::identity::FileId;
use crate::u64_of;

/// Files read and written at positions.
pub trait FileExt {
    /// Reads at most as much as the buffer holds.
    ///
    /// # Errors
    /// Errors of the system.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at most the whole buffer.
    ///
    /// # Errors
    /// Errors of the system.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;

    /// Fills the buffer.
    ///
    /// # Errors
    /// `UnexpectedEof`; what the system says.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read_at(buf, offset) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => (buf, offset) = (&mut buf[len..], offset + u64_of(len)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the whole buffer.
    ///
    /// # Errors
    /// `WriteZero`; what the system says.
    fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            match self.write_at(buf, offset) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => (buf, offset) = (&buf[len..], offset + u64_of(len)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.seek_read(buf, offset) {
            // ERROR_HANDLE_EOF: a read that begins behind the end.
            Err(error) if error.raw_os_error() == Some(38) => Ok(0),
            read => read,
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.seek_write(buf, offset)
    }
}

/// Kinds of files that are none here.
pub trait FileTypeExt {
    /// False: files are not block devices here.
    fn is_block_device(&self) -> bool {
        false
    }

    /// False: files are not character devices here.
    fn is_char_device(&self) -> bool {
        false
    }

    /// False: files are not pipes here.
    fn is_fifo(&self) -> bool {
        false
    }
}

impl FileTypeExt for FileType {}

/// Modes of new files, which have none here.
pub trait OpenOptionsExt {
    /// Changes nothing.
    fn mode(&mut self, mode: u32) -> &mut Self;
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, _: u32) -> &mut Self {
        self
    }
}

/// Modes of new folders, which have none here.
pub trait DirBuilderExt {
    /// Changes nothing.
    fn mode(&mut self, mode: u32) -> &mut Self;
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, _: u32) -> &mut Self {
        self
    }
}

/// Names as bytes.
pub trait OsStrExt {
    /// UTF-8; surrogates without a partner are three bytes each, which nobody else takes for a character.
    fn as_bytes(&self) -> &[u8];
}

impl OsStrExt for OsStr {
    fn as_bytes(&self) -> &[u8] {
        self.as_encoded_bytes()
    }
}

/// Bytes as names.
pub trait OsStringExt {
    /// The name that has these bytes.
    fn from_vec(bytes: Vec<u8>) -> Self;

    /// The name's bytes.
    fn into_vec(self) -> Vec<u8>;
}

impl OsStringExt for OsString {
    fn from_vec(bytes: Vec<u8>) -> OsString {
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
            .into()
    }

    fn into_vec(self) -> Vec<u8> {
        self.into_encoded_bytes()
    }
}

/// The path that has these bytes.
pub fn path(bytes: &[u8]) -> Cow<'_, Path> {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(path) => Path::new(path).into(),
        Cow::Owned(path) => PathBuf::from(path).into(),
    }
}

/// Files have no modes.
///
/// # Errors
/// None.
pub fn mode(_: &File) -> io::Result<u32> {
    Ok(0o666)
}

/// As on Unix.
///
/// # Errors
/// Errors of the system; `InvalidInput` for a file of another kind.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// As on Unix.
///
/// # Errors
/// None.
pub fn set_mode(_: &File, _: u32) -> io::Result<()> {
    Ok(())
}

/// The permissions of a file that replaces another one: there are none.
pub fn permissions_after(_: &File, _: &Metadata) -> u32 {
    0o666
}

/// The permissions that metadata of a file have: there are none.
pub fn permissions(_: &Metadata) -> u32 {
    0o666
}

/// The permissions that new files do not get: there are none.
pub fn umask() -> u32 {
    0
}

/// The device and the inode of a file: its metadata does not tell them.
pub fn inode(_: &Metadata) -> Option<(u64, u64)> {
    None
}

/// The name of this machine.
pub fn host_name() -> Vec<u8> {
    std::env::var_os("COMPUTERNAME").unwrap_or_default().into_vec()
}

/// Whether files may be given to others: owners of images mean nothing here.
pub fn is_root() -> bool {
    false
}

/// Standard input as a file.
///
/// # Errors
/// Errors of the system.
pub fn input() -> io::Result<File> {
    Ok(io::stdin().as_handle().try_clone_to_owned()?.into())
}

/// Reads standard input.
///
/// # Errors
/// Errors of the system.
pub fn read_input(buffer: &mut [u8]) -> io::Result<usize> {
    io::stdin().read(buffer)
}

/// The standard library does not tell the number of names.
pub(crate) fn is_removed(_: &Metadata) -> bool {
    false
}

pub(crate) fn id_of(file: &File) -> io::Result<FileId> {
    identity(file)
}

/// Streams have no identity here.
pub(crate) fn standard_input() -> Option<FileId> {
    None
}

pub(crate) fn standard_output() -> Option<(FileId, bool)> {
    None
}

fn identity(file: impl winapi_util::AsHandleRef) -> io::Result<FileId> {
    let information = winapi_util::file::information(file)?;
    Ok(FileId::Inode(information.volume_serial_number(), information.file_index()))
}

pub(crate) fn id_at(path: &Path) -> io::Result<FileId> {
    identity(winapi_util::Handle::from_path_any(path)?)
}

pub(crate) fn has_no_locks(error: &io::Error) -> bool {
    // ERROR_INVALID_FUNCTION.
    error.raw_os_error() == Some(1)
}

/// Names of folders are written with the files.
pub(crate) fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

pub(crate) fn next_data(_: &File, offset: u64, size: u64) -> Option<Range<u64>> {
    Some(offset..size)
}
