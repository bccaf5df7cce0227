//! Reading backups into a folder, decrypted.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::os::{self, FileExt};
use casemate_blockdev::{set_len, u64_of, usize_of};
use casemate_primitives::base64::Base64;
use casemate_providers::Work;
use casemate_trees::folder::{self, AsFd, BorrowedFd, OwnedFd, open_folder};
use casemate_trees::tar::{Member, TarReader};
use casemate_trees::{FileType, Link, Node, join, split, trim};

use super::codec;
use super::member::{inode_info, number, xattrs};
use crate::{ContentCipher, Error, InodeInfo, Keyring, Keys, MasterKey, NameCipher};

/// Options of restoring a backup into a folder.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RestoreOptions {
    /// Whether owners are restored. Only root can; for others this changes nothing.
    pub owners: bool,
    /// Whether extended attributes are restored.
    pub xattrs: bool,
}

impl Default for RestoreOptions {
    /// Everything.
    fn default() -> RestoreOptions {
        RestoreOptions { owners: true, xattrs: true }
    }
}

/// Counts of the files that were restored, and what was not.
#[derive(Debug, Default)]
pub struct Report {
    /// Regular files.
    pub files: u64,
    /// Directories, the top one among them.
    pub directories: u64,
    /// Everything else.
    pub others: u64,
    /// Bytes of contents, holes not counted.
    pub bytes: u64,
    /// Errors of the members that could not be restored, in the order of the backup.
    pub failures: Vec<Error>,
}

/// Bytes that are decrypted at once: a multiple of every data unit.
const PIECE: u64 = 1 << 20;

/// Restores a backup below `folder`, which is made if it is not there. Secrets that open protectors need
/// [`Keys::with_metadata`], or [`Keys::with_metadata_of_backup`]: a stream can be read only once.
///
/// Nothing is made by a path that could lead through a link, and every file is new.
///
/// # Errors
/// `Mismatch` for a secret that opens nothing; `Corrupt` if the stream is not a backup, `Io` if it can't be read or the folder not be used. What single members lack,
/// their key above all, is in the report; what is below a directory without a key is left out with it.
pub fn extract(
    input: &mut dyn Read,
    name: &str,
    folder: &Path,
    keys: &Keys,
    options: &RestoreOptions,
    work: &Work<'_>,
) -> Result<Report, Error> {
    let root = folder::make_top(folder).map_err(|error| error.at(folder.display()))?;
    let owners = options.owners && os::is_root();
    let mut extract = Extract {
        root: root.as_fd(),
        keyring: keys.opened(&work.providers)?,
        options: RestoreOptions { owners, ..*options },
        codec: codec(work.providers.cpu()),
        folders: HashMap::new(),
        finish: Vec::new(),
        report: Report::default(),
    };
    let mut tar = TarReader::new(input, name);
    while let Some(member) = tar.next()? {
        match extract.member(&mut tar, &member) {
            Ok(()) => {}
            Err(Failed::Member(error)) => {
                extract.report.failures.push(error.within(member.shown()));
            }
            Err(Failed::Stream(error)) => return Err(error),
        }
    }
    if extract.folders.is_empty() {
        return Err(tar.corrupt("the backup holds no directory"));
    }
    // From the last one back, so that nothing changes a folder's times, or needs to enter it, afterwards.
    for (path, member) in std::mem::take(&mut extract.finish).into_iter().rev() {
        match open_folder(extract.root, &path) {
            Ok(file) => extract.restore(&path, file.as_fd(), &member),
            Err(error) => extract.report.failures.push(error.at(shown(&path))),
        }
    }
    Ok(extract.report)
}

struct Extract<'a> {
    root: BorrowedFd<'a>,
    keyring: Keyring,
    options: RestoreOptions,
    codec: Base64<'static>,
    /// Directories by their path in the backup.
    folders: HashMap<Vec<u8>, Folder>,
    /// Directories that still need their attributes, in the order of the backup.
    finish: Vec<(Vec<u8>, Member)>,
    report: Report,
}

/// A directory that was made, or the reason why it was not.
struct Folder {
    /// Its path below the root.
    path: Vec<u8>,
    names: Names,
}

/// A folder's path below the root, and a name in it.
type Location = (Vec<u8>, Vec<u8>);

enum Names {
    Plain,
    Encrypted(Arc<NameCipher>),
    /// It was not made, which the report says once.
    Missing,
}

/// Whether only this member failed, or nothing more can be read.
enum Failed {
    Member(Error),
    Stream(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Member(error)
    }
}

impl Extract<'_> {
    fn member(&mut self, tar: &mut TarReader<'_>, member: &Member) -> Result<(), Failed> {
        let stored = trim(&member.path);
        if member.link.is_none() && member.node.kind == FileType::Directory {
            return Ok(self.directory(stored, member)?);
        }
        let Some((parent, name)) = self.plain(stored)? else { return Ok(()) };
        let folder = self.open(&parent)?;
        let folder = folder.as_fd();
        let path = join(&parent, &name);
        let at = |error: Error| error.at(shown(&path));
        match &member.link {
            Some(Link::Hard(first)) => {
                let Some((from, old)) = self.plain(trim(first))? else { return Ok(()) };
                let from = self.open(&from)?;
                folder::make_link(from.as_fd(), &old, folder, &name).map_err(at)?;
            }
            Some(Link::Symbolic(target)) => {
                let plain;
                let target = match inode_info(member)? {
                    None => target,
                    Some(inode) => {
                        let stored = self.decode(target)?;
                        let names = self.key(&inode)?.names(&inode)?;
                        plain = names.decrypt_symlink(&stored)?;
                        &plain
                    }
                };
                folder::make_symlink(target, folder, &name).map_err(at)?;
                self.restore_at(&path, folder, &name, member)?;
            }
            None if member.node.kind == FileType::Regular => self.file(tar, member, folder, &name, &path)?,
            None => {
                folder::make_special(&member.node, folder, &name).map_err(at)?;
                self.restore_at(&path, folder, &name, member)?;
            }
        }
        Ok(())
    }

    fn open(&self, path: &[u8]) -> Result<OwnedFd, Error> {
        open_folder(self.root, path).map_err(|error| error.at(shown(path)))
    }

    fn directory(&mut self, stored: &[u8], member: &Member) -> Result<(), Error> {
        let made = self.make_directory(stored, member);
        let (folder, result) = match made {
            Ok(Some(folder)) => (folder, Ok(())),
            Ok(None) => (Folder { path: Vec::new(), names: Names::Missing }, Ok(())),
            Err(error) => (Folder { path: Vec::new(), names: Names::Missing }, Err(error)),
        };
        if !matches!(folder.names, Names::Missing) {
            self.finish.push((folder.path.clone(), member.clone()));
        }
        self.folders.insert(stored.to_vec(), folder);
        result
    }

    fn make_directory(&mut self, stored: &[u8], member: &Member) -> Result<Option<Folder>, Error> {
        // Its own key first: a folder whose names can't be read is not made.
        let inode = inode_info(member)?;
        let path = if stored.is_empty() {
            Vec::new()
        } else {
            let Some((parent, name)) = self.plain(stored)? else { return Ok(None) };
            join(&parent, &name)
        };
        let names = match inode {
            None => Names::Plain,
            Some(inode) => Names::Encrypted(Arc::new(self.key(&inode)?.names(&inode)?)),
        };
        if !path.is_empty() {
            let (parent, name) = split(&path);
            let parent = self.open(parent)?;
            folder::make_folder(parent.as_fd(), name).map_err(|error| error.at(shown(&path)))?;
        }
        Ok(Some(Folder { path, names }))
    }

    fn file(
        &mut self,
        tar: &mut TarReader<'_>,
        member: &Member,
        folder: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
    ) -> Result<(), Failed> {
        let inode = inode_info(member)?;
        let (size, cipher) = match inode {
            None => (member.size, None),
            Some(inode) => {
                let size = number(member, "size")?;
                if size > member.size {
                    return Err(Error::corrupt(format!("{size} bytes of {}", member.size)).into());
                }
                (size, Some(self.key(&inode)?.contents(&inode)?))
            }
        };
        let file = folder::make_file(folder, name).map_err(|error| error.at(shown(path)))?;
        let file = File::from(file);
        match fill(tar, member, &file, cipher.as_ref(), size) {
            Ok(bytes) => self.report.bytes += bytes,
            Err(failed) => {
                let _ = folder::remove(folder, name);
                return Err(failed);
            }
        }
        self.restore(path, file.as_fd(), member);
        Ok(())
    }

    /// The path of a folder and a name in it, decrypted, for a path in the backup; `None` below what was not made.
    fn plain(&self, stored: &[u8]) -> Result<Option<Location>, Error> {
        let (parent, name) = split(stored);
        let Some(folder) = self.folders.get(parent) else {
            return Err(Error::corrupt("its directory does not come before it"));
        };
        let name = match &folder.names {
            Names::Missing => return Ok(None),
            Names::Plain => name.to_vec(),
            Names::Encrypted(names) => names.decrypt(&self.decode(name)?)?,
        };
        if matches!(&name[..], b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(Error::corrupt(format!("'{}' is not a valid name", name.escape_ascii())));
        }
        Ok(Some((folder.path.clone(), name)))
    }

    fn decode(&self, text: &[u8]) -> Result<Vec<u8>, Error> {
        self.codec.decode_to_vec(text).map_err(|error| Error::corrupt(error.to_string()))
    }

    fn key(&self, inode: &InodeInfo) -> Result<&MasterKey, Error> {
        let id = &inode.context.policy.key;
        self.keyring.get(id).map(Arc::as_ref).ok_or_else(|| {
            Error::unsupported(format!("it needs the key with {} {id}, which was not given", id.kind()))
        })
    }

    /// Restores what an open file or folder has beside its contents.
    fn restore(&mut self, path: &[u8], file: BorrowedFd<'_>, member: &Member) {
        let xattrs = xattrs(member).filter(|_| self.options.xattrs);
        let missing = folder::restore(file, &self.node(member), xattrs, self.options.owners);
        self.report.failures.extend(missing.into_iter().map(|error| error.at(shown(path))));
        match member.node.kind {
            FileType::Directory => self.report.directories += 1,
            _ => self.report.files += 1,
        }
    }

    /// A member beside its attributes. Without its ACL the group has no bits that the ACL did not give it.
    fn node(&self, member: &Member) -> Node {
        match self.options.xattrs {
            true => member.node,
            false => Node { mode: member.mode_without_acl(), ..member.node },
        }
    }

    /// Restores a file that can't be opened, such as a device or a link, with what it has beside its contents.
    fn restore_at(
        &mut self,
        path: &[u8],
        folder: BorrowedFd<'_>,
        name: &[u8],
        member: &Member,
    ) -> Result<(), Error> {
        let xattrs = xattrs(member).filter(|_| self.options.xattrs);
        let missing = folder::restore_at(folder, name, &self.node(member), xattrs, self.options.owners)?;
        self.report.failures.extend(missing.into_iter().map(|error| error.at(shown(path))));
        self.report.others += 1;
        Ok(())
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Writes a file's contents, decrypted. Returns the bytes of data.
fn fill(
    tar: &mut TarReader<'_>,
    member: &Member,
    file: &File,
    cipher: Option<&ContentCipher>,
    size: u64,
) -> Result<u64, Failed> {
    let local = |error| Failed::Member(Error::io("contents", error));
    let unit = cipher.map_or(1, |cipher| u64_of(cipher.data_unit_size()));
    let mut buffer = Vec::new();
    let mut bytes = 0;
    for range in tar.ranges(member).map_err(Failed::Stream)? {
        if range.start % unit != 0 || range.end % unit != 0 {
            return Err(
                Error::corrupt(format!("a range does not consist of data units of {unit} bytes")).into()
            );
        }
        let mut at = range.start;
        while at < range.end {
            // At most PIECE bytes.
            buffer.resize(usize_of((range.end - at).min(PIECE)), 0);
            tar.read(&mut buffer).map_err(Failed::Stream)?;
            if let Some(cipher) = cipher {
                cipher.decrypt(at / unit, &mut buffer)?;
            }
            let len = size.saturating_sub(at).min(u64_of(buffer.len()));
            file.write_all_at(&buffer[..usize_of(len)], at).map_err(local)?;
            bytes += len;
            at += u64_of(buffer.len());
        }
    }
    set_len(file, size).map_err(local)?;
    Ok(bytes)
}
