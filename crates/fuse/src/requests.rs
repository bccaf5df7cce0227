//! The kernel's requests, answered.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};

use casemate::Error;
use casemate::ext4::{Inode, Name, Names};

use crate::attributes::{kind, unknown};
use crate::crew::Crew;
use crate::errno::errno;
use crate::node::{ROOT, beyond, is_nameable};
use crate::tree::{Seek, Tree};

/// How long the kernel may keep what it was told: the image does not change while it is mounted.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Requests for contents that may be under way before anybody waits for an answer.
const READ_AHEAD: u16 = 64;

/// The longest name, in bytes.
const LONGEST_NAME: u32 = 255;

/// SEEK_DATA and SEEK_HOLE of lseek(2).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// The request for an inode's flags, and those of ext4 that programs see: FS_IOC_GETFLAGS, as lsattr asks.
const GET_FLAGS: u32 = 0x8008_6601;
const VISIBLE_FLAGS: u32 = 0x725b_dfff;

/// A tree, the threads that answer for it, and who is told when it is unmounted.
pub struct Requests {
    tree: Arc<Tree>,
    crew: Crew,
    /// Whether the kernel lists folders without opening them.
    without_opendir: bool,
    ended: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Requests {
    pub fn new(tree: Tree, readers: usize, ended: impl FnOnce() + Send + Sync + 'static) -> Requests {
        Requests {
            tree: Arc::new(tree),
            crew: Crew::new(readers),
            without_opendir: false,
            ended: Some(Box::new(ended)),
        }
    }

    /// What a program is told of an error.
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
        self.without_opendir = config.add_capabilities(InitFlags::FUSE_NO_OPENDIR_SUPPORT).is_ok();
        let _ = config.set_max_background(READ_AHEAD);
        Ok(())
    }

    fn destroy(&mut self) {
        self.ended.take().into_iter().for_each(|ended| ended());
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.tree.lookup(parent, name);
        match found.and_then(|inode| inode.map(|inode| self.tree.attributes(&inode)).transpose()) {
            Ok(Some((attributes, generation))) => reply.entry(&FOR_EVER, &attributes, generation),
            // Node 0: a name that the kernel may remember as missing.
            Ok(None) => {
                reply.entry(&FOR_EVER, &unknown(0, fuser::FileType::RegularFile), Generation(0));
            }
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn getattr(&self, _request: &Request, node: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree.inode(node).and_then(|inode| self.tree.attributes(&inode)) {
            Ok((attributes, _)) => reply.attr(&FOR_EVER, &attributes),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        match self.tree.inode(node).and_then(|inode| self.tree.target(&inode)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn open(&self, _request: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let tree = Arc::clone(&self.tree);
        self.crew.work(move || match tree.open(node) {
            Ok(()) => {
                reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
            }
            Err(error) => reply.error(told(&tree, &error)),
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
        self.crew.work(move || match tree.read(node, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(told(&tree, &error)),
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
        match self.tree.seek(node, offset, wanted).map(|found| found.map(i64::try_from)) {
            Ok(Some(Ok(found))) => reply.offset(found),
            Ok(_) => reply.error(Errno::ENXIO),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn opendir(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.without_opendir {
            // The kernel asks once, and keeps lists from then on.
            true => reply.error(Errno::ENOSYS),
            false => {
                let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
                reply.opened(FileHandle(0), flags);
            }
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let tree = Arc::clone(&self.tree);
        self.crew.work(move || {
            let listed = each_name(&tree, node, offset, |name, next| {
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
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let tree = Arc::clone(&self.tree);
        self.crew.work(move || {
            let listed = each_name(&tree, node, offset, |name, next| {
                let (attributes, generation, time) = described(&tree, name);
                let bytes = OsStr::from_bytes(name.bytes);
                reply.add(attributes.ino, next, bytes, &time, &attributes, generation)
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
        match self.tree.xattr(node, name, request.uid()) {
            Ok(Some(value)) => value_of_size(&value, size, reply),
            Ok(None) => reply.error(Errno::ENODATA),
            Err(error) => reply.error(self.errno(&error)),
        }
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        match self.tree.xattrs(node, request.uid()) {
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
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        _input: &[u8],
        _output_size: u32,
        reply: ReplyIoctl,
    ) {
        match self.tree.inode(node) {
            Ok(inode) if command == GET_FLAGS => {
                reply.ioctl(0, &(inode.flags().0 & VISIBLE_FLAGS).to_ne_bytes());
            }
            Ok(_) => reply.error(Errno::ENOTTY),
            Err(error) => reply.error(self.errno(&error)),
        }
    }
}

/// Tells `add` the names in a directory from a place on, "." and ".." first, each with the place behind it, until it says
/// that there is no more room.
fn each_name(
    tree: &Tree,
    node: INodeNo,
    offset: u64,
    mut add: impl FnMut(Name<'_>, u64) -> bool,
) -> Result<(), Error> {
    let dir = tree.inode(node)?;
    let names = tree.names(&dir)?;
    let mut at = offset;
    while let Some(name) = name_at(tree, &dir, &names, at) {
        at += 1;
        if add(name, at) {
            return Ok(());
        }
    }
    if at == offset {
        tree.listed(&dir);
    }
    Ok(())
}

/// The name at a place of a directory.
fn name_at<'a>(tree: &Tree, dir: &Inode, names: &'a Names, at: u64) -> Option<Name<'a>> {
    let kind = Some(casemate::ext4::FileType::Directory);
    match at {
        0 => Some(Name { inode: dir.number(), kind, bytes: b"." }),
        1 => Some(Name { inode: tree.parent(dir), kind, bytes: b".." }),
        _ => names.get(usize::try_from(at - 2).ok()?),
    }
}

/// The node of an inode that a name stands for. One that is none is not told apart from others that are damaged before
/// somebody looks at it.
fn node_of(tree: &Tree, number: u32) -> u64 {
    match is_nameable(number, tree.ext4().superblock()) {
        true => number.into(),
        false => beyond(number),
    }
}

/// The attributes that a name is listed with, and how long they hold. A name whose inode is damaged is there all the same,
/// and what is said of the inode is asked for again at once: then there is an error.
fn described(tree: &Tree, name: Name<'_>) -> (FileAttr, Generation, Duration) {
    // The kernel takes nothing but the names of these.
    if matches!(name.bytes, b"." | b"..") {
        let number = if name.inode == ROOT { ROOT.into() } else { node_of(tree, name.inode) };
        return (unknown(number, fuser::FileType::Directory), Generation(0), Duration::ZERO);
    }
    match tree.numbered(name.inode).and_then(|inode| tree.attributes(&inode)) {
        Ok((attributes, generation)) => (attributes, generation, FOR_EVER),
        Err(_) => {
            let kind = name.kind.map_or(fuser::FileType::RegularFile, kind);
            (unknown(node_of(tree, name.inode), kind), Generation(0), Duration::ZERO)
        }
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
