//! Files in folders of the host, made by the descriptor of a folder and never by a path: what others put there meanwhile,
//! links above all, leads nowhere.

use std::ffi::{CStr, CString};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::path::Path;

use casemate_blockdev::os::DirBuilderExt;

use crate::system::{
    self, AtFlags, Errno, Gid, HostType, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmodat,
    chownat, fchmod, fchown, fsetxattr, fstat, futimens, linkat, mkdirat, mknodat, openat, set_xattr_of,
    statat, symlinkat, unlinkat, utimensat,
};
pub use crate::system::{AsFd, BorrowedFd, OwnedFd};
use crate::{ACCESS_ACL, Error, FileType, NO_ID, Node, Result, Time, mode_without_acl};
use casemate_blockdev::FileId;

/// Opens the folder that a tree is copied to, and makes it if it is not there: one that only we can enter until its
/// attributes are set. It is named by the user, who may name a link.
///
/// # Errors
/// Errors of the host.
pub fn make_top(folder: &Path) -> Result<OwnedFd> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(system::open(folder, flags, Mode::empty())?)
}

/// Gives the permissions of a directory to a folder that the user named, or that lies in one that nobody else enters.
///
/// # Errors
/// Errors of the host.
pub fn set_folder_mode(folder: &Path, mode: u16) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = system::open(folder, flags, Mode::empty())?;
    Ok(fchmod(&opened, Mode::from_raw_mode((mode & 0o777).into()))?)
}

/// Opens the folder at a path below `root`, following no link.
///
/// # Errors
/// Errors of the host.
pub fn open_folder(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd> {
    let mut folder = open(root, c".")?;
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        folder = open(folder.as_fd(), &c_name(part)?)?;
    }
    Ok(folder)
}

fn open(folder: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOTDIR | Errno::LOOP => {
            let text =
                "what has this name on the host is not a folder; a symbolic link to one is not followed";
            Error::path(ErrorKind::NotADirectory, text)
        }
        error => error.into(),
    })
}

/// Makes a folder that only we can enter until its attributes are set.
///
/// # Errors
/// Errors of the host.
pub fn make_folder(parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    match mkdirat(parent, c_name(name)?, Mode::RWXU) {
        // One that is there already is used, as tar does; a link to one is not.
        Err(Errno::EXIST) => open_folder(parent, name).map(|_| ()),
        result => Ok(result?),
    }
}

/// Makes a regular file that was not there before.
///
/// # Errors
/// Errors of the host.
pub fn make_file(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, c_name(name)?, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Identity of a file in a folder, if it is there; of a link itself.
///
/// # Errors
/// Errors of the host.
pub fn identity(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<FileId>> {
    match statat(parent, c_name(name)?, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(stat) if HostType::from_raw_mode(stat.st_mode) == HostType::BlockDevice => {
            Ok(Some(FileId::BlockDevice(system::device(&stat))))
        }
        Ok(stat) => {
            let (device, inode) = system::inode(&stat);
            Ok(Some(FileId::Inode(device, inode)))
        }
    }
}

/// Removes a file whose contents were not to be had.
///
/// # Errors
/// Errors of the host.
pub fn remove(parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    Ok(unlinkat(parent, c_name(name)?, AtFlags::empty())?)
}

/// Makes another name for a file.
///
/// # Errors
/// Errors of the host.
pub fn make_link(from: BorrowedFd<'_>, old: &[u8], parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    Ok(linkat(from, c_name(old)?, parent, c_name(name)?, AtFlags::empty())?)
}

/// Makes a symbolic link.
///
/// # Errors
/// Errors of the host.
pub fn make_symlink(target: &[u8], parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    Ok(symlinkat(c_name(target)?, parent, c_name(name)?)?)
}

/// Makes a device node, fifo or socket.
///
/// # Errors
/// Errors of the host.
pub fn make_special(node: &Node, parent: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let device = system::makedev(node.device.0, node.device.1);
    Ok(mknodat(parent, c_name(name)?, host_type(node.kind), Mode::RUSR | Mode::WUSR, device)?)
}

fn host_type(kind: FileType) -> HostType {
    match kind {
        FileType::Regular => HostType::RegularFile,
        FileType::Directory => HostType::Directory,
        FileType::Symlink => HostType::Symlink,
        FileType::CharacterDevice => HostType::CharacterDevice,
        FileType::BlockDevice => HostType::BlockDevice,
        FileType::Fifo => HostType::Fifo,
        FileType::Socket => HostType::Socket,
    }
}

/// Restores owner (if `owners`), attributes, mode and times of an open file or folder, in this order: a new owner clears
/// bits of the mode, and everything changes the times. A file that has another owner than the node, or another group, does not
/// get the bit that would run it with the rights of that one. If its ACL can't be restored, the group gets no more than the ACL
/// gave it.
///
/// Returns what could not be restored, and restores the rest.
pub fn restore<'a>(
    file: BorrowedFd<'_>,
    node: &Node,
    xattrs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    owners: bool,
) -> Vec<Error> {
    let (mut missing, mut bits) = (Missing::default(), node.mode);
    if owners {
        let (uid, gid) = missing.owner(node);
        missing.note("owner", fchown(file, uid, gid));
    }
    for (name, value) in xattrs {
        if let Ok(c_name) = CString::new(name) {
            let set = fsetxattr(file, c_name, value, XattrFlags::empty());
            missing.attribute(name, value, &mut bits, set);
        }
    }
    missing.note("mode", fchmod(file, mode(bits).difference(foreign(file, node))));
    missing.note("times", futimens(file, &times(node)));
    missing.0
}

/// The bits of the mode that would lend the rights of somebody else than the node says. Folders lend none.
fn foreign(file: BorrowedFd<'_>, node: &Node) -> Mode {
    let mut bits = Mode::empty();
    if node.kind != FileType::Directory {
        let found = fstat(file).ok();
        bits.set(Mode::SUID, found.as_ref().is_none_or(|stat| stat.st_uid != node.uid));
        bits.set(Mode::SGID, found.as_ref().is_none_or(|stat| stat.st_gid != node.gid));
    }
    bits
}

/// Restores owner, attributes, mode and times of a file that cannot be opened and was made a moment ago: links (whose
/// mode nobody has) and special files.
///
/// # Errors
/// For a name that no file can have.
pub fn restore_at<'a>(
    parent: BorrowedFd<'_>,
    name: &[u8],
    node: &Node,
    xattrs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    owners: bool,
) -> Result<Vec<Error>> {
    let name = c_name(name)?;
    let (mut missing, mut bits) = (Missing::default(), node.mode);
    if owners {
        let (uid, gid) = missing.owner(node);
        missing.note("owner", chownat(parent, &name, uid, gid, AtFlags::SYMLINK_NOFOLLOW));
    }
    let mut xattrs = xattrs.into_iter().peekable();
    if xattrs.peek().is_some() {
        let opened = open_new(parent, &name, node.kind);
        for (name, value) in xattrs {
            if let Ok(c_name) = CString::new(name) {
                let set = opened.as_ref().map_err(|error| *error);
                let set = set.and_then(|file| set_xattr_of(file.as_fd(), &c_name, value));
                missing.attribute(name, value, &mut bits, set);
            }
        }
    }
    if node.kind != FileType::Symlink {
        // We made this node a moment ago in a folder of ours: it is not a link.
        missing.note("mode", chmodat(parent, &name, mode(bits), AtFlags::empty()));
    }
    missing.note("times", utimensat(parent, &name, &times(node), AtFlags::SYMLINK_NOFOLLOW));
    Ok(missing.0)
}

/// A file that was made a moment ago, without its contents: a link itself. What others put there meanwhile is another kind of
/// file, or has another name.
fn open_new(parent: BorrowedFd<'_>, name: &CStr, kind: FileType) -> system::Result<OwnedFd> {
    let flags = system::WAY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(parent, name, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    let is_new = HostType::from_raw_mode(stat.st_mode) == host_type(kind) && stat.st_nlink == 1;
    is_new.then_some(file).ok_or(Errno::EXIST)
}

/// Properties that could not be restored.
#[derive(Default)]
struct Missing(Vec<Error>);

impl Missing {
    /// The owner and group of a node; without those that no file can have, which are noted.
    fn owner(&mut self, node: &Node) -> (Option<Uid>, Option<Gid>) {
        let mut known = |id: u32, what: &str| {
            if id == NO_ID {
                let text = format!("owner not restored: {id} is not the number of a {what}");
                self.0.push(Error::path(ErrorKind::InvalidInput, text));
            }
            (id != NO_ID).then_some(id)
        };
        (known(node.uid, "user").map(Uid::from_raw), known(node.gid, "group").map(Gid::from_raw))
    }

    /// Notes an attribute that could not be set. Without its ACL a file gets other permission bits.
    fn attribute(&mut self, name: &[u8], value: &[u8], bits: &mut u16, set: system::Result<()>) {
        if set.is_err() && name == ACCESS_ACL {
            *bits = mode_without_acl(*bits, value);
        }
        self.note(&String::from_utf8_lossy(name), set);
    }

    fn note(&mut self, what: &str, result: system::Result<()>) {
        if let Err(error) = result {
            self.0.push(Error::from(error).map_text(|text| format!("{what} not restored: {text}")));
        }
    }
}

/// A name as system calls take it; names from directories hold no NUL.
fn c_name(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| Error::corrupt("a name contains a NUL"))
}

fn mode(bits: u16) -> Mode {
    Mode::from_raw_mode((bits & 0o7777).into())
}

/// Access and modification; the second stands for the first where that is not told.
fn times(node: &Node) -> Timestamps {
    let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps {
        last_access: time(node.accessed.unwrap_or(node.modified)),
        last_modification: time(node.modified),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn attributes_go_to_no_file_that_was_put_in_the_place_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let (elsewhere, inside) = (folder.path().join("elsewhere"), folder.path().join("in"));
        fs::create_dir(&inside).unwrap();
        fs::write(&elsewhere, "x").unwrap();
        fs::hard_link(&elsewhere, inside.join("file")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, inside.join("link")).unwrap();
        std::os::unix::fs::symlink("x", folder.path().join("other")).unwrap();
        fs::hard_link(folder.path().join("other"), inside.join("named twice")).unwrap();
        let parent = make_top(&inside).unwrap();
        let open =
            |name: &str, kind: FileType| open_new(parent.as_fd(), &c_name(name.as_bytes()).unwrap(), kind);
        assert_eq!(open("file", FileType::Fifo).unwrap_err(), Errno::EXIST);
        assert_eq!(open("link", FileType::Fifo).unwrap_err(), Errno::EXIST);
        assert_eq!(open("named twice", FileType::Symlink).unwrap_err(), Errno::EXIST);
        let link = open("link", FileType::Symlink).unwrap();
        // The kernel refuses this to links; it would not to the file behind it.
        assert!(set_xattr_of(link.as_fd(), c"user.x", b"1").is_err());
        assert!(system::fgetxattr(fs::File::open(&elsewhere).unwrap(), c"user.x", &mut [0; 1]).is_err());
    }

    #[test]
    fn a_group_gets_no_more_where_the_acl_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        // The kernel takes no named user without a mask.
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, rights, id) in [(1u16, 6u16, NO_ID), (2, 6, 7), (4, 4, NO_ID), (0x20, 0, NO_ID)] {
            acl.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
            acl.extend(id.to_le_bytes());
        }
        let folder = tempfile::tempdir().unwrap();
        let top = make_top(folder.path()).unwrap();
        let node = Node { mode: 0o660, ..Node::new(FileType::Regular) };
        let xattrs = || [(ACCESS_ACL, &acl[..])];
        let file = make_file(top.as_fd(), b"file").unwrap();
        let missing = restore(file.as_fd(), &node, xattrs(), false);
        make_special(&Node::new(FileType::Fifo), top.as_fd(), b"pipe").unwrap();
        let node = Node { kind: FileType::Fifo, ..node };
        let of_pipe = restore_at(top.as_fd(), b"pipe", &node, xattrs(), false).unwrap();
        for (name, missing) in [("file", missing), ("pipe", of_pipe)] {
            assert_eq!(missing.len(), 1, "{missing:?}");
            let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o640, "{name}");
        }
    }
}
