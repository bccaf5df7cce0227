//! Reading backups into a folder, decrypted.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use casemate_fscrypt::{ContentCipher, InodeInfo, Keyring, MasterKey, NameCipher};
use casemate_primitives::Cpu;
use casemate_primitives::base64::Base64;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags, chmodat, chownat, fchmod, fchown, fsetxattr,
    futimens, linkat, mkdirat, mknodat, openat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::member::{inode_info, number, split, trim};
use super::nodes::{c_name, host, join, mode, open_folder, times};
use super::tar::{Member, TarReader};
use super::{CONTEXT, INODE, XATTR, codec};
use crate::Error;

/// What is restored.
#[derive(Clone, Copy, Debug)]
pub struct Restoring {
    /// Whether owners are; only root can.
    pub owners: bool,
    /// Whether extended attributes are.
    pub xattrs: bool,
    /// Whose instructions to use.
    pub cpu: Cpu,
}

/// What was restored, and what was not.
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
    /// What could not be restored, in the order of the backup.
    pub failures: Vec<Error>,
}

/// Bytes that are decrypted at once: a multiple of every data unit.
const PIECE: u64 = 1 << 20;

/// Restores a backup below `folder`, which is made if it is not there, with the keys of `keyring`.
///
/// Nothing is made by a path that could lead through a link, and every file is new.
///
/// # Errors
/// `Corrupt` if the stream is no backup, `Io` if it can't be read or the folder not be used. What single members lack,
/// their key above all, is in the report; what is below a directory without a key is left out with it.
pub fn extract(
    input: &mut dyn Read,
    name: &str,
    folder: &Path,
    keyring: &Keyring,
    restoring: &Restoring,
) -> Result<Report, Error> {
    let at_folder = |error: Errno| Error::io(folder.display(), error);
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Error::io(folder.display(), error));
        }
        _ => {}
    }
    // The folder itself is named by the user, who may name a link.
    let root =
        rustix::fs::open(folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(at_folder)?;
    let mut extract = Extract {
        root: root.as_fd(),
        keyring,
        restoring,
        codec: codec(restoring.cpu),
        folders: HashMap::new(),
        finish: Vec::new(),
        report: Report::default(),
    };
    let mut tar = TarReader::new(input, name);
    while let Some(member) = tar.next()? {
        match extract.member(&mut tar, &member) {
            Ok(()) => {}
            Err(Failed::Member(error)) => {
                let shown = String::from_utf8_lossy(&member.path).into_owned();
                extract.report.failures.push(error.within(shown));
            }
            Err(Failed::Stream(error)) => return Err(error),
        }
    }
    if extract.folders.is_empty() {
        return Err(tar.corrupt("no directory in it"));
    }
    // From the last one back, so that nothing changes a folder's times, or needs to enter it, afterwards.
    for (path, member) in std::mem::take(&mut extract.finish).into_iter().rev() {
        match open_folder(extract.root, &path) {
            Ok(file) => extract.restore(&path, file.as_fd(), &member),
            Err(error) => extract.report.failures.push(error),
        }
    }
    Ok(extract.report)
}

struct Extract<'a> {
    root: BorrowedFd<'a>,
    keyring: &'a Keyring,
    restoring: &'a Restoring,
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
        if member.kind == b'5' {
            return Ok(self.directory(stored, member)?);
        }
        let Some((parent, name)) = self.plain(stored)? else { return Ok(()) };
        let folder = open_folder(self.root, &parent)?;
        let folder = folder.as_fd();
        let path = join(&parent, &name);
        match member.kind {
            b'0' | b'7' => self.file(tar, member, folder, &name, &path)?,
            b'1' => {
                let Some((from, old)) = self.plain(trim(&member.link))? else { return Ok(()) };
                let from = open_folder(self.root, &from)?;
                linkat(from, c_name(&old)?, folder, c_name(&name)?, AtFlags::empty())
                    .map_err(|e| host(&path, e))?;
            }
            b'2' => {
                let target = match inode_info(member)? {
                    None => member.link.clone(),
                    Some(inode) => {
                        let stored = self.decode(&member.link)?;
                        let names = self.key(&inode)?.names(&inode)?;
                        names.decrypt_symlink(&stored)?
                    }
                };
                symlinkat(c_name(&target)?, folder, c_name(&name)?).map_err(|e| host(&path, e))?;
                self.restore_at(&path, folder, &name, member)?;
            }
            b'3' | b'4' | b'6' => {
                let kind = match member.kind {
                    b'3' => FileType::CharacterDevice,
                    b'4' => FileType::BlockDevice,
                    _ => FileType::Fifo,
                };
                let device = rustix::fs::makedev(member.device.0, member.device.1);
                mknodat(folder, c_name(&name)?, kind, Mode::RUSR | Mode::WUSR, device)
                    .map_err(|e| host(&path, e))?;
                self.restore_at(&path, folder, &name, member)?;
            }
            other => {
                let text = format!("a member of type {:?}", char::from(other));
                return Err(Error::unsupported(text).into());
            }
        }
        Ok(())
    }

    fn directory(&mut self, stored: &[u8], member: &Member) -> Result<(), Error> {
        let made = self.make_directory(stored, member);
        let (folder, result) = match made {
            Ok(Some(folder)) => (folder, Ok(())),
            Ok(None) => (Folder { path: Vec::new(), names: Names::Missing }, Ok(())),
            Err(error) => (Folder { path: Vec::new(), names: Names::Missing }, Err(error)),
        };
        if !matches!(folder.names, Names::Missing) {
            self.finish.push((folder.path.clone(), member.attributes()));
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
            let parent = open_folder(self.root, parent)?;
            match mkdirat(parent.as_fd(), c_name(name)?, Mode::RWXU) {
                // One that is there already is used, as tar does; a link to one is not.
                Err(Errno::EXIST) => drop(open_folder(parent.as_fd(), name)?),
                result => result.map_err(|error| host(&path, error))?,
            }
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
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(folder, c_name(name)?, flags, Mode::RUSR | Mode::WUSR).map_err(|e| host(path, e))?;
        let file = File::from(file);
        match fill(tar, member, &file, cipher.as_ref(), size) {
            Ok(bytes) => self.report.bytes += bytes,
            Err(failed) => {
                let _ = unlinkat(folder, c_name(name)?, AtFlags::empty());
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
            return Err(Error::corrupt("its directory did not come before it"));
        };
        let name = match &folder.names {
            Names::Missing => return Ok(None),
            Names::Plain => name.to_vec(),
            Names::Encrypted(names) => names.decrypt(&self.decode(name)?)?,
        };
        if matches!(&name[..], b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(Error::corrupt(format!("'{}' is no name", name.escape_ascii())));
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

    /// Restores owner, attributes, mode and times of an open file or folder, in this order: a new owner clears bits of
    /// the mode, and everything changes the times.
    fn restore(&mut self, path: &[u8], file: BorrowedFd<'_>, member: &Member) {
        let mut note = |what: &str, result: rustix::io::Result<()>| {
            if let Err(error) = result {
                self.report.failures.push(host(path, error).within(format!("{what} not restored")));
            }
        };
        if self.restoring.owners {
            note("owner", fchown(file, Some(Uid::from_raw(member.uid)), Some(Gid::from_raw(member.gid))));
        }
        if self.restoring.xattrs {
            for (name, value) in
                member.records(XATTR).filter(|(name, _)| ![CONTEXT, INODE].map(str::as_bytes).contains(name))
            {
                if let Ok(c_name) = CString::new(name) {
                    note(&String::from_utf8_lossy(name), fsetxattr(file, c_name, value, XattrFlags::empty()));
                }
            }
        }
        note("mode", fchmod(file, mode(member)));
        note("times", futimens(file, &times(member)));
        // Only directories are restored from what was kept of their member.
        match member.kind {
            0 => self.report.directories += 1,
            _ => self.report.files += 1,
        }
    }

    /// The same for what can't be opened.
    fn restore_at(
        &mut self,
        path: &[u8],
        folder: BorrowedFd<'_>,
        name: &[u8],
        member: &Member,
    ) -> Result<(), Error> {
        let name = c_name(name)?;
        let mut note = |what: &str, result: rustix::io::Result<()>| {
            if let Err(error) = result {
                self.report.failures.push(host(path, error).within(format!("{what} not restored")));
            }
        };
        if self.restoring.owners {
            let (uid, gid) = (Uid::from_raw(member.uid), Gid::from_raw(member.gid));
            note("owner", chownat(folder, &name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW));
        }
        if member.kind != b'2' {
            // We made this node a moment ago in a folder of ours: it is no link.
            note("mode", chmodat(folder, &name, mode(member), AtFlags::empty()));
        }
        note("times", utimensat(folder, &name, &times(member), AtFlags::SYMLINK_NOFOLLOW));
        self.report.others += 1;
        Ok(())
    }
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
    let unit = cipher.map_or(1, |cipher| cipher.data_unit_size() as u64);
    let mut buffer = Vec::new();
    let mut bytes = 0;
    for range in tar.ranges(member).map_err(Failed::Stream)? {
        if range.start % unit != 0 || range.end % unit != 0 {
            return Err(
                Error::corrupt(format!("a range that is not made of data units of {unit} bytes")).into()
            );
        }
        let mut at = range.start;
        while at < range.end {
            // OK to cast: at most PIECE bytes.
            buffer.resize((range.end - at).min(PIECE) as usize, 0);
            tar.read(&mut buffer).map_err(Failed::Stream)?;
            if let Some(cipher) = cipher {
                cipher.decrypt(at / unit, &mut buffer)?;
            }
            let len = size.saturating_sub(at).min(buffer.len() as u64);
            file.write_all_at(&buffer[..len as usize], at).map_err(local)?;
            bytes += len;
            at += buffer.len() as u64;
        }
    }
    file.set_len(size).map_err(local)?;
    Ok(bytes)
}
