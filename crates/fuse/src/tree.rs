//! A file system as the kernel sees it: its nodes, names, attributes and contents.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use fuser::{FileAttr, Generation, INodeNo};

use casemate::Error;
use casemate::blockdev::{BlockDevice, Buffer, Events, u64_of, usize_of};
use casemate::ext4::{
    Ext4, FileSystem, FileType, Incompat, Inode, InodeFlags, InodeNo, LiveKeys, Names, Usage, Xattr,
};
use casemate::fscrypt::KeyId;
use casemate::fsverity::FileDigest;

use crate::attributes::attributes;
use crate::changes::{Changes, Steady};
use crate::ending::{ENDING, Ending, PROCESS};
use crate::errno::is_fault;
use crate::kernel::Kernel;
use crate::known::Known;
use crate::listings::Listings;
use crate::node::{inode_number, is_nameable};
use crate::open_files::OpenFiles;
use crate::open_folders::OpenFolders;
use crate::options::MountOptions;
use crate::owner::Owner;

/// Prefix of the names of attributes of the root that are this program's.
pub const OWN: &[u8] = b"casemate.";

/// The attribute of the root that tells where keys are added and removed. No list has it.
pub const CONTROL: &str = "casemate.control";

/// The attributes that only root is shown, as by the kernel.
const TRUSTED: &[u8] = b"trusted.";

/// Bytes that the kernel reads of a file at once, at most.
const MOST_READ: u32 = 1 << 24;

/// A file system as the kernel sees it, and what of it is in use.
pub struct Tree {
    fs: FileSystem,
    owner: Owner,
    events: Option<Arc<dyn Events + Send + Sync>>,
    listings: Listings,
    folders: OpenFolders,
    files: OpenFiles,
    usage: OnceLock<Usage>,
    /// The writer, if the file system may be changed.
    changes: Option<Changes>,
    /// The inodes that the kernel knows, where that has to be known: if it may be changed, or keys may come and go.
    known: Option<Arc<Known>>,
    /// Value of the root's attribute `CONTROL`, if keys may come and go.
    control: Option<PathBuf>,
    ending: Ending,
}

/// Where in a file data or a hole is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    Data,
    Hole,
}

impl Tree {
    pub fn new(
        fs: FileSystem,
        changes: Option<Changes>,
        known: Arc<Known>,
        owner: Owner,
        options: &MountOptions,
    ) -> Result<Tree, Error> {
        let (control, events) = (options.control.clone(), options.events.clone());
        Ok(Tree {
            fs,
            owner,
            events,
            listings: Listings::default(),
            folders: OpenFolders::default(),
            files: OpenFiles::default(),
            usage: OnceLock::new(),
            known: (changes.is_some() || control.is_some()).then_some(known),
            changes,
            control,
            ending: Ending::new()?,
        })
    }

    /// The owner that files are shown with.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Where it is said how the last commit went.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// The writer, if the file system may be changed.
    pub fn changes(&self) -> Option<&Changes> {
        self.changes.as_ref()
    }

    /// Keeps the file system as it is: the thread that answers a request takes this once, before it looks at anything.
    pub fn steady(&self) -> Option<Steady<'_>> {
        self.changes.as_ref().map(Changes::steady)
    }

    /// Counts that the kernel is told of an inode.
    pub fn tells_of(&self, number: InodeNo) {
        self.known.iter().for_each(|known| known.add(number));
    }

    /// Whether what the kernel is told of a name holds until it changes the name itself. Names without regard to case change
    /// each other, and those that are shown without a key may be shown with it.
    pub fn names_stay(&self, dir: &Inode) -> bool {
        let (may_change, keys_come) = (self.changes.is_some(), self.control.is_some());
        !(may_change && dir.has(InodeFlags::CASEFOLD) || keys_come && dir.has(InodeFlags::ENCRYPT))
    }

    /// Whether the kernel may keep that a name does not exist: a directory without any may become one without regard
    /// to case.
    pub fn absence_stays(&self, dir: &Inode) -> bool {
        let may_fold = self.changes.is_some() && self.ext4().superblock().incompat.has(Incompat::CASEFOLD);
        !may_fold && self.names_stay(dir)
    }

    /// Whether keys may come and go.
    pub fn has_control(&self) -> bool {
        self.control.is_some()
    }

    /// The inodes that the kernel knows, where that has to be known.
    pub fn known(&self) -> Option<&Known> {
        self.known.as_deref()
    }

    /// The keys of encrypted files.
    pub fn keys(&self) -> &LiveKeys {
        self.fs.keys()
    }

    /// Forgets everything that was read with keys, or without them: files that are open are opened again when they
    /// are read, and `kernel` forgets contents, targets and lists.
    pub fn forget_encrypted(&self, kernel: &Kernel) {
        let encrypted: Vec<INodeNo> = {
            let _steady = self.steady();
            self.listings.forget_all();
            self.files.all_changed();
            let known = self.known.iter().flat_map(|known| known.all());
            let is_encrypted = |number: &InodeNo| {
                self.fs.inode_in_use(*number).is_ok_and(|inode| inode.has(InodeFlags::ENCRYPT))
            };
            known.filter(is_encrypted).map(|number| INodeNo(number.get().into())).collect()
        };
        // The kernel may wait for answers to what it has asked already: nothing is held here.
        encrypted.into_iter().for_each(|node| kernel.forget_contents(node));
    }

    /// Removes a key, and lets nothing stay of what was read with it; whether it was there.
    pub fn remove_key(&self, id: &KeyId, kernel: &Kernel) -> bool {
        // Maps of memory that were written are written back with the key.
        self.forget_encrypted(kernel);
        let was_there = self.keys().remove(id);
        self.forget_encrypted(kernel);
        was_there
    }

    /// Contents of a file, or its size, have changed.
    pub fn changed(&self, number: InodeNo) {
        self.files.changed(number);
    }

    /// Tells the listener of an error that is not an answer.
    pub fn tell(&self, error: &Error) {
        if let Some(events) = self.events.as_ref().filter(|_| is_fault(error)) {
            events.note(&error.to_string());
        }
    }

    /// The inode of a node.
    pub fn inode(&self, node: INodeNo) -> Result<Inode, Error> {
        let number = inode_number(node)
            .ok_or_else(|| self.error(Error::corrupt(format!("node {node} is not an inode number"))))?;
        match self.changes {
            Some(_) if is_nameable(number, self.ext4().superblock()) => self.fs.inode_in_use(number),
            _ => self.numbered(number),
        }
    }

    /// The inode that a name stands for.
    pub fn numbered(&self, number: InodeNo) -> Result<Inode, Error> {
        if !is_nameable(number, self.ext4().superblock()) {
            let text = format!("inode {number} is the file system's own, and has a name");
            return Err(self.error(Error::corrupt(text)));
        }
        self.fs.inode(number)
    }

    /// The inode of a name in a directory; `None` if there is no such name.
    pub fn lookup(&self, dir: &Inode, name: &OsStr) -> Result<Option<Inode>, Error> {
        let number = self.ext4().lookup(dir, name.as_bytes()).map_err(|error| self.error(error))?;
        number.map(|number| self.numbered(number)).transpose()
    }

    /// The attributes of an inode, and the generation that tells it from others that had its number.
    pub fn attributes(&self, inode: &Inode) -> Result<(FileAttr, Generation), Error> {
        let size = match inode.kind() {
            // The inode of an encrypted one tells how long its ciphertext is.
            FileType::Symlink => u64_of(self.target(inode)?.len()),
            _ => inode.size(),
        };
        let attributes = attributes(inode, size, self.ext4().layout().block_size, self.owner);
        Ok((attributes, Generation(inode.generation().into())))
    }

    /// The target of a symbolic link.
    pub fn target(&self, inode: &Inode) -> Result<Vec<u8>, Error> {
        self.ext4().symlink_target(inode).map_err(|error| self.error(error))
    }

    /// The names in a directory.
    pub fn names(&self, dir: &Inode) -> Result<Arc<Names>, Error> {
        self.listings.names(self.ext4(), dir).map_err(|error| self.error(error))
    }

    /// Forgets the names of a directory that were all told.
    pub fn listed(&self, dir: &Inode) {
        self.listings.forget(dir.number());
    }

    /// The digest of a file with fs-verity.
    pub fn digest(&self, inode: &Inode) -> Result<Option<FileDigest>, Error> {
        self.fs.digest_of(inode)
    }

    /// Directories that are open, where they may change.
    pub fn open_folders(&self) -> &OpenFolders {
        &self.folders
    }

    /// The number of the directory above.
    pub fn parent(&self, dir: &Inode) -> InodeNo {
        match self.ext4().lookup(dir, b"..") {
            Ok(Some(parent)) if dir.number() != InodeNo::ROOT => parent,
            _ => dir.number(),
        }
    }

    /// Opens a file for reading.
    pub fn open(&self, node: INodeNo) -> Result<(), Error> {
        let inode = self.inode(node)?;
        self.files.open(inode.number(), || self.fs.open_inode(&inode))
    }

    /// Closes a file that was opened.
    pub fn close(&self, node: INodeNo) {
        inode_number(node).iter().for_each(|number| self.files.close(*number));
    }

    /// Bytes of an open file: fewer than are wanted at its end.
    pub fn read(&self, node: INodeNo, offset: u64, size: u32) -> Result<Buffer, Error> {
        let file = self.file(node)?;
        let left = file.size().saturating_sub(offset);
        let mut bytes = Buffer::new(usize_of(u64::from(size.min(MOST_READ)).min(left)));
        file.read_at(&mut bytes, offset).map_err(|error| self.error(error))?;
        Ok(bytes)
    }

    /// The next byte of an open file from `offset` on that is data, or that lies in a hole, as the end does; `None` if there
    /// is none.
    pub fn seek(&self, node: INodeNo, offset: u64, wanted: Seek) -> Result<Option<u64>, Error> {
        let file = self.file(node)?;
        if offset >= file.size() {
            return Ok(None);
        }
        let data = file.next_data(offset).map_err(|error| self.error(error))?;
        Ok(match (wanted, data) {
            (Seek::Data, data) => data.map(|data| data.start),
            (Seek::Hole, Some(data)) if data.start <= offset => Some(data.end),
            (Seek::Hole, _) => Some(offset),
        })
    }

    /// The extended attributes of an inode that a user may see.
    pub fn xattrs(&self, node: INodeNo, uid: u32) -> Result<Vec<Xattr>, Error> {
        let mut all = self.ext4().xattrs(&self.inode(node)?).map_err(|error| self.error(error))?;
        all.retain(|xattr| uid == 0 || !xattr.name.starts_with(TRUSTED));
        Ok(all)
    }

    /// The value of an extended attribute; `None` if there is no such attribute.
    pub fn xattr(&self, node: INodeNo, name: &OsStr, uid: u32) -> Result<Option<Vec<u8>>, Error> {
        if node == INodeNo::ROOT && name == PROCESS {
            return Ok(Some(std::process::id().to_string().into_bytes()));
        }
        if node == INodeNo::ROOT && name == ENDING {
            return Ok(Some(self.ending.number().to_string().into_bytes()));
        }
        if node == INodeNo::ROOT && name == CONTROL {
            return Ok(self.control.as_ref().map(|path| path.as_os_str().as_bytes().to_vec()));
        }
        let all = self.xattrs(node, uid)?;
        Ok(all.into_iter().find(|xattr| xattr.name == name.as_bytes()).map(|xattr| xattr.value))
    }

    /// Room of the file system.
    pub fn usage(&self) -> Result<Usage, Error> {
        if let Some(steady) = self.steady() {
            return steady.writer()?.usage().map_err(|error| self.error(error));
        }
        if let Some(usage) = self.usage.get() {
            return Ok(*usage);
        }
        let usage = self.ext4().usage().map_err(|error| self.error(error))?;
        Ok(*self.usage.get_or_init(|| usage))
    }

    /// The file system by its inodes.
    pub fn ext4(&self) -> &Ext4 {
        self.fs.inodes()
    }

    fn file(&self, node: INodeNo) -> Result<Arc<dyn BlockDevice>, Error> {
        let not_open = || self.error(Error::argument(format!("node {node}: is not open")));
        let number = inode_number(node).ok_or_else(not_open)?;
        match self.files.get(number) {
            Some(Some(contents)) => Ok(contents),
            // They have changed since.
            Some(None) => {
                let contents: Arc<dyn BlockDevice> = self.fs.open_inode(&self.inode(node)?)?.into();
                self.files.keep(number, &contents);
                Ok(contents)
            }
            None => Err(not_open()),
        }
    }

    /// An error with the image's name.
    pub fn error(&self, error: Error) -> Error {
        error.at(self.fs.name())
    }
}
