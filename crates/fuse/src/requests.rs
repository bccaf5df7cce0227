//! The kernel's requests, answered.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use casemate::Error;
use casemate::blockdev::{u32_of, usize_of};
use casemate::ext4::{Body, Presence};

use crate::attributes::{kind, unknown};
use crate::changes::Changes;
use crate::crew::Crew;
use crate::edits::{Attributes, Wanted};
use crate::errno::errno;
use crate::ioctls::{Answer, Ioctl};
use crate::kernel::Kernel;
use crate::names::{FOR_EVER, absence, described, each_name, lifetime, node_of};
use crate::tree::{OWN, Seek, Tree};

/// Requests for contents that may be under way before anybody waits for an answer.
const READ_AHEAD: u16 = 64;

/// The longest name, in bytes.
const LONGEST_NAME: u32 = 255;

/// SEEK_DATA and SEEK_HOLE of lseek(2).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// How files are opened: what the kernel has of their contents stays true, and nothing is left to do when they are closed.
const OPENED: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_NOFLUSH);

/// O_APPEND, and O_DSYNC, which O_SYNC has in it.
const APPEND: i32 = 0o2000;
const DSYNC: i32 = 0o10000;

/// Flags of setxattr(2).
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// Prefixes of the names of extended attributes that ext4 stores, and the whole names of ACLs.
const STORED: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// A tree, the threads that answer for it, and who is told when it is unmounted.
pub struct Requests {
    tree: Arc<Tree>,
    crew: Crew,
    /// Where the kernel is told what no request asks for.
    kernel: Kernel,
    /// Whether the kernel lists folders without opening them.
    without_opendir: bool,
    ended: Option<Ended>,
}

/// Function to call with the result of the last commit when the folder is unmounted.
type Ended = Box<dyn FnOnce(Result<(), Error>) + Send + Sync>;

impl Requests {
    pub fn new(
        tree: Arc<Tree>,
        kernel: Kernel,
        readers: usize,
        ended: impl FnOnce(Result<(), Error>) + Send + Sync + 'static,
    ) -> Requests {
        Requests {
            tree,
            crew: Crew::new(readers),
            kernel,
            without_opendir: false,
            ended: Some(Box::new(ended)),
        }
    }

    /// Looks at the file system as it stays meanwhile. No longer than that: whoever is answered may go on at once to what
    /// changes it, and would wait.
    fn steadily<T>(&self, look: impl FnOnce() -> T) -> T {
        let _steady = self.tree.steady();
        look()
    }

    /// The errno that a program gets for an error.
    fn errno(&self, error: &Error) -> Errno {
        told(&self.tree, error)
    }
}

fn told(tree: &Tree, error: &Error) -> Errno {
    tree.tell(error);
    errno(error)
}

impl Filesystem for Requests {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What a kernel does not have it does without.
        for wanted in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_POSIX_ACL,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        if self.tree.changes().is_some() {
            // Masks depend on the folder's ACL, and whoever writes knows what rights go with that.
            for wanted in [InitFlags::FUSE_DONT_MASK, InitFlags::FUSE_HANDLE_KILLPRIV_V2] {
                let _ = config.add_capabilities(wanted);
            }
        } else if !self.tree.has_control() {
            self.without_opendir = config.add_capabilities(InitFlags::FUSE_NO_OPENDIR_SUPPORT).is_ok();
        }
        let _ = config.set_max_background(READ_AHEAD);
        Ok(())
    }

    fn destroy(&mut self) {
        let text = |text: &str| format!("the last changes could not be made permanent: {text}");
        let closed = self.tree.changes().map_or(Ok(()), Changes::close);
        let closed = closed.map_err(|error| self.tree.error(error.map_text(text)));
        self.tree.ending().say(&closed);
        if let Some(ended) = self.ended.take() {
            ended(closed);
        }
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name.len() > usize_of(LONGEST_NAME) {
            return reply.error(Errno::ENAMETOOLONG);
        }
        let looked_up = self.steadily(|| -> Result<_, Error> {
            let dir = self.tree.inode(parent)?;
            let found = self.tree.lookup(&dir, name)?;
            let told = found.map(|inode| self.tree.attributes(&inode).map(|told| (inode.number(), told)));
            let Some((number, told)) = told.transpose()? else {
                return Ok((absence(&self.tree, &dir), None));
            };
            // Before anybody can take its last name: it is not freed then.
            self.tree.tells_of(number);
            Ok((lifetime(&self.tree, &dir), Some(told)))
        });
        match looked_up {
            Ok((time, Some((attributes, generation)))) => {
                reply.entry_with_ttls(&FOR_EVER, &time, &attributes, generation);
            }
            // Node 0: a name that the kernel may remember as missing.
            Ok((time, None)) => {
                reply.entry(&time, &unknown(0, fuser::FileType::RegularFile), Generation(0));
            }
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn forget(&self, _request: &Request, node: INodeNo, times: u64) {
        self.tree.forget(node, times);
    }

    fn getattr(&self, _request: &Request, node: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.steadily(|| self.tree.attributes(&self.tree.inode(node)?)) {
            Ok((attributes, _)) => reply.attr(&FOR_EVER, &attributes),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        match self.steadily(|| self.tree.target(&self.tree.inode(node)?)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn open(&self, _request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let tree = Arc::clone(&self.tree);
        self.crew.work(move || {
            let opened = {
                let _steady = tree.steady();
                match flags.acc_mode() {
                    OpenAccMode::O_RDONLY => tree.open(node),
                    _ => tree.require_writable(node, flags.0 & APPEND != 0).and_then(|()| tree.open(node)),
                }
            };
            match opened {
                Ok(()) => reply.opened(FileHandle(0), OPENED),
                Err(error) => reply.error(told(&tree, &error)),
            }
        });
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let tree = Arc::clone(&self.tree);
        self.crew.work(move || {
            let read = {
                let _steady = tree.steady();
                tree.read(node, offset, size)
            };
            match read {
                Ok(bytes) => reply.data(&bytes),
                Err(error) => reply.error(told(&tree, &error)),
            }
        });
    }

    fn release(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.tree.close(node);
        reply.ok();
    }

    fn lseek(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let wanted = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let found = self.steadily(|| self.tree.seek(node, offset, wanted));
        match found.map(|found| found.map(i64::try_from)) {
            Ok(Some(Ok(found))) => reply.offset(found),
            Ok(_) => reply.error(Errno::ENXIO),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn opendir(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        match (self.tree.changes(), self.without_opendir) {
            (Some(_), _) => {
                reply.opened(FileHandle(self.tree.open_folders().open()), FopenFlags::empty());
            }
            // The kernel asks once, and keeps lists from then on.
            (None, true) => reply.error(Errno::ENOSYS),
            (None, false) if self.tree.has_control() => reply.opened(FileHandle(0), FopenFlags::empty()),
            (None, false) => reply.opened(FileHandle(0), flags),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.tree.open_folders().close(handle.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let tree = Arc::clone(&self.tree);
        self.crew.work(move || {
            let _steady = tree.steady();
            let listed = each_name(&tree, node, handle, offset, |_, name, next| {
                // Where names do not tell their kind, the inode does.
                let kind = match name.kind {
                    Some(found) => kind(found),
                    None => tree
                        .numbered(name.inode)
                        .map_or(fuser::FileType::RegularFile, |inode| kind(inode.kind())),
                };
                reply.add(INodeNo(node_of(&tree, name.inode)), next, kind, OsStr::from_bytes(name.bytes))
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(told(&tree, &error)),
            }
        });
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let tree = Arc::clone(&self.tree);
        self.crew.work(move || {
            let _steady = tree.steady();
            let listed = each_name(&tree, node, handle, offset, |dir, name, next| {
                let (attributes, generation, time) = described(&tree, dir, name);
                let bytes = OsStr::from_bytes(name.bytes);
                let is_full = reply.add(attributes.ino, next, bytes, &time, &attributes, generation);
                if !is_full && !matches!(name.bytes, b"." | b"..") {
                    tree.tells_of(name.inode);
                }
                is_full
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(told(&tree, &error)),
            }
        });
    }

    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        let block_size = self.tree.ext4().layout().block_size;
        match self.tree.usage() {
            Ok(usage) => reply.statfs(
                usage.blocks,
                usage.free,
                usage.available,
                usage.inodes,
                usage.inodes_free,
                block_size,
                LONGEST_NAME,
                block_size,
            ),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn getxattr(&self, request: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !name.as_bytes().starts_with(OWN)
            && let Err(error) = require_storable(name)
        {
            return reply.error(error);
        }
        match self.steadily(|| self.tree.xattr(node, name, request.uid())) {
            Ok(Some(value)) => value_of_size(&value, size, reply),
            Ok(None) => reply.error(Errno::ENODATA),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        match self.steadily(|| self.tree.xattrs(node, request.uid())) {
            Ok(all) => {
                let names: Vec<u8> =
                    all.iter().flat_map(|xattr| xattr.name.iter().copied().chain([0])).collect();
                value_of_size(&names, size, reply);
            }
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        input: &[u8],
        room: u32,
        reply: ReplyIoctl,
    ) {
        match self.tree.ioctl(request, node, Ioctl { command, input, room }) {
            Ok(Answer::Bytes(bytes)) => reply.ioctl(0, &bytes),
            Ok(Answer::Remove(id, bytes)) => {
                let (tree, kernel) = (Arc::clone(&self.tree), self.kernel.clone());
                // The kernel may wait for answers before it forgets: no thread that gives some waits for that.
                std::thread::spawn(move || match tree.remove_key(&id, &kernel) {
                    true => reply.ioctl(0, &bytes),
                    false => reply.error(Errno::from_i32(rustix::io::Errno::NOKEY.raw_os_error())),
                });
            }
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = Tree::body(mode, rdev)
            .and_then(|body| self.tree.create(request, (parent, name), Wanted { mode, umask }, body));
        self.entry(parent, made, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.tree.create(request, (parent, name), Wanted { mode, umask }, Body::Directory);
        self.entry(parent, made, reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        if target.len() >= usize_of(self.tree.ext4().layout().block_size) {
            return reply.error(Errno::ENAMETOOLONG);
        }
        let wanted = Wanted { mode: 0o777, umask: 0 };
        let made = self.tree.create(request, (parent, name), wanted, Body::Symlink(target));
        self.entry(parent, made, reply);
    }

    fn link(&self, _request: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.tree.link(node, (parent, name));
        self.entry(parent, linked, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.tree.create(request, (parent, name), Wanted { mode, umask }, Body::File);
        let opened = made.and_then(|(attributes, generation)| {
            self.steadily(|| {
                let time = self.tree.inode(parent).map(|dir| lifetime(&self.tree, &dir))?;
                self.tree.open(attributes.ino)?;
                Ok((time, attributes, generation))
            })
        });
        match opened {
            Ok((time, attributes, generation)) => {
                reply.created(&time, &attributes, generation, FileHandle(0), OPENED);
            }
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(self.tree.remove((parent, name)), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(self.tree.remove((parent, name)), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent, name), (new_parent, new_name));
        let no_replace = flags.contains(RenameFlags::RENAME_NOREPLACE);
        let renamed = match flags - RenameFlags::RENAME_NOREPLACE {
            RenameFlags::RENAME_WHITEOUT => self.tree.rename_to_whiteout(request, from, to, no_replace),
            RenameFlags::RENAME_EXCHANGE if !no_replace => self.tree.exchange(from, to),
            others if others.is_empty() => self.tree.rename(from, to, no_replace),
            _ => return reply.error(Errno::EINVAL),
        };
        self.done(renamed, reply);
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let drop_privileges = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let written = self.tree.write(request, node, offset, data, drop_privileges).and_then(|written| {
            if flags.0 & DSYNC != 0 {
                self.tree.commit()?;
            }
            Ok(written)
        });
        // What a program wrote to mapped memory comes when nobody waits for it, and once.
        if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE)
            && written.as_ref().map_or(true, |(len, _)| *len < data.len())
        {
            self.tree.note_lost(node, written.as_ref().err());
        }
        match written {
            Ok((len, has_dropped)) => {
                if has_dropped {
                    self.kernel.forget_attributes(node);
                }
                reply.written(u32_of(len));
            }
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.tree.allocate(request, node, (offset, length), mode).map(|has_dropped| {
            if has_dropped {
                self.kernel.forget_attributes(node);
            }
        });
        self.done(done, reply);
    }

    fn fsync(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.done(self.tree.commit(), reply);
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.done(self.tree.commit(), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _noted: Option<SystemTime>,
        _backup: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = Attributes { mode, uid, gid, size, accessed, modified };
        match self.tree.set_attributes(request, node, &wanted) {
            Ok(attributes) => reply.attr(&FOR_EVER, &attributes),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let presence = match flags & (XATTR_CREATE | XATTR_REPLACE) {
            0 => Presence::Any,
            XATTR_CREATE => Presence::Absent,
            _ => Presence::Present,
        };
        self.xattr_set(request, (node, name), Some(value), presence, reply);
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        // An ACL that is not there is one that says nothing.
        let is_acl = ACLS.contains(&name.as_bytes());
        let presence = if is_acl { Presence::Any } else { Presence::Present };
        self.xattr_set(request, (node, name), None, presence, reply);
    }
}

impl Requests {
    /// Answers with an inode that has got a name.
    fn entry(&self, parent: INodeNo, made: Result<(FileAttr, Generation), Error>, reply: ReplyEntry) {
        let made = made
            .and_then(|made| self.steadily(|| Ok((lifetime(&self.tree, &self.tree.inode(parent)?), made))));
        match made {
            Ok((time, (attributes, generation))) => {
                reply.entry_with_ttls(&FOR_EVER, &time, &attributes, generation);
            }
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn xattr_set(
        &self,
        request: &Request,
        (node, name): (INodeNo, &OsStr),
        value: Option<&[u8]>,
        presence: Presence,
        reply: ReplyEmpty,
    ) {
        if let Err(error) = require_storable(name) {
            return reply.error(error);
        }
        match self.tree.set_xattr(request, node, name, value, presence) {
            Err(error) if error.is_not_found() => reply.error(Errno::ENODATA),
            done => self.done(done, reply),
        }
    }

    fn done(&self, done: Result<(), Error>, reply: ReplyEmpty) {
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.errno(&error)),
        }
    }
}

/// Refuses names of attributes that ext4 has not.
fn require_storable(name: &OsStr) -> Result<(), Errno> {
    let name = name.as_bytes();
    match STORED.iter().find_map(|prefix| name.strip_prefix(*prefix)) {
        Some(b"") => Err(Errno::EINVAL),
        None if !ACLS.contains(&name) => Err(Errno::EOPNOTSUPP),
        _ => Ok(()),
    }
}

/// A value, or its size if that is what is asked for.
fn value_of_size(value: &[u8], size: u32, reply: ReplyXattr) {
    match (size, u32::try_from(value.len())) {
        (0, Ok(len)) => reply.size(len),
        (_, Ok(len)) if len <= size => reply.data(value),
        (_, Ok(_)) => reply.error(Errno::ERANGE),
        (_, Err(_)) => reply.error(Errno::E2BIG),
    }
}
