//! New directories, files, links and nodes.

use std::io::ErrorKind;

use casemate_blockdev::u64_of;

use crate::edit::Writer;
use crate::edit::dir::NewName;
use crate::edit::dir::name::{Name, require_name};
use crate::edit::encrypted::{
    casefolded, encrypted, keys, refuse_foreign, require_feature, stored_name, stored_target,
};
use crate::edit::files::Files;
use crate::edit::inherit::{Inherited, inherit, inherit_flags};
use crate::edit::inodes::Inodes;
use crate::edit::locked::{refuse_immutable, refuse_locked, refuse_project};
use crate::edit::node::{Body, Encrypted, NewNode};
use crate::error::{Error, Result, invalid};
use crate::format::features::RoCompat;
use crate::format::inode::{FileType, Inode, InodeFlags, Stamp};
use crate::read::path::LONGEST_NAME;
use crate::units::{Block, InodeNo};

/// Names that one inode can have (`EXT4_LINK_MAX`).
pub(crate) const MOST_LINKS: u16 = 65000;

impl Files {
    /// Takes an inode and gives it a name. The caller may add contents, and stores it by
    /// [`finish`](Files::finish). Part of an operation.
    pub fn create_in(
        &mut self,
        parent: InodeNo,
        name: &[u8],
        node: &NewNode,
        body: Body<'_>,
    ) -> Result<Inode> {
        let dir = self.parent_mut(parent, name)?;
        self.create_new(dir, name, node, body)
    }

    /// Creates a file with a name that the directory is known not to have.
    pub fn create_new(&mut self, dir: Inode, name: &[u8], node: &NewNode, body: Body<'_>) -> Result<Inode> {
        let stored = stored_name(self.fs(), &dir, name, true)?;
        self.create_stored(dir, &stored, node, body, Encrypted::LikeParent)
    }

    /// Creates a file with a name as it is stored, which the directory does not have.
    pub fn create_stored(
        &mut self,
        mut dir: Inode,
        name: &Name,
        node: &NewNode,
        body: Body<'_>,
        encrypted: Encrypted<'_>,
    ) -> Result<Inode> {
        let inode = self.new_inode(&mut dir, node, body, encrypted)?;
        self.inodes().create(&inode)?;
        self.directory(&mut dir).insert_stored(&NewName {
            name,
            inode: inode.number(),
            kind: body.kind(),
        })?;
        self.touch(&mut dir);
        self.inodes().store(&dir)?;
        Ok(inode)
    }

    /// Takes an inode for an empty file in a directory, and lets it wait in the list of orphans. Part of an operation.
    pub fn create_unnamed(&mut self, parent: InodeNo, node: &NewNode) -> Result<Inode> {
        let mut dir = self.get(parent)?;
        let mut inode = self.new_inode(&mut dir, node, Body::File, Encrypted::LikeParent)?;
        inode.set_links(0);
        self.inodes().list_orphan(&mut inode)?;
        self.inodes().create(&inode)?;
        Ok(inode)
    }

    /// Gives an inode its first name. Part of an operation; the caller stores the inode.
    pub fn give_name(&mut self, parent: InodeNo, name: &[u8], inode: &mut Inode) -> Result<()> {
        inode.set_links(1);
        let mut dir = self.parent_mut(parent, name)?;
        let stored = stored_name(self.fs(), &dir, name, true)?;
        self.directory(&mut dir).insert_stored(&NewName {
            name: &stored,
            inode: inode.number(),
            kind: inode.kind(),
        })?;
        self.touch(&mut dir);
        self.inodes().store(&dir)
    }

    /// An inode of a directory, without a name in it, that nobody has stored yet.
    fn new_inode(
        &mut self,
        dir: &mut Inode,
        node: &NewNode,
        body: Body<'_>,
        encrypted: Encrypted<'_>,
    ) -> Result<Inode> {
        let parent = dir.number();
        let kind = body.kind();
        let is_dir = kind == FileType::Directory;
        let number = self.inodes().space_mut().allocate_inode(parent, is_dir)?;
        let mut inode = self.inodes().blank(number, kind);
        inode.set_permissions(node.mode);
        inode.set_owner(Some(node.uid), Some(node.gid));
        inode.set_links(if is_dir { 2 } else { 1 });
        inherit_flags(self.fs(), dir, &mut inode);
        match encrypted {
            Encrypted::LikeParent => encrypt_child(self.inodes(), dir, &mut inode)?,
            Encrypted::As(context) => encrypt_as(self.inodes(), dir, &mut inode, context)?,
        }
        let target = match body {
            Body::Symlink(target)
                if inode.has(InodeFlags::ENCRYPT) && matches!(encrypted, Encrypted::As(_)) =>
            {
                target.to_vec()
            }
            Body::Symlink(target) => {
                if target.is_empty()
                    || target.len() >= self.space().block_size().min(4096)
                    || target.contains(&0)
                {
                    let text = "a link's target has 1 to 4095 bytes, and fewer than a block";
                    let is_long = !target.is_empty() && !target.contains(&0);
                    let kind = if is_long { ErrorKind::InvalidFilename } else { ErrorKind::InvalidInput };
                    return Err(invalid(kind, text));
                }
                stored_target(self.fs(), &inode, target)?
            }
            _ => Vec::new(),
        };
        let mapped = match body {
            Body::Directory | Body::File => true,
            Body::Symlink(_) => target.len() >= 60,
            Body::Node(..) => false,
        };
        if mapped {
            self.inodes().map(&mut inode).start();
        }
        match body {
            Body::Directory => {
                self.directory(&mut inode).first_leaf(parent)?;
                self.add_subdirectory(dir)?;
            }
            Body::File => {}
            Body::Symlink(_) => self.write_target(&mut inode, &target)?,
            Body::Node(FileType::CharacterDevice | FileType::BlockDevice, major, minor) => {
                inode.set_device(major, minor)?;
            }
            Body::Node(..) => {}
        }
        Ok(inode)
    }

    /// Stores a new inode with the times that it should have.
    pub fn finish(&mut self, inode: &mut Inode, node: &NewNode) -> Result<()> {
        if let Some(modified) = node.modified {
            inode.set_time(Stamp::Modified, modified);
            inode.set_time(Stamp::Accessed, modified);
        }
        self.inodes().store(inode)
    }

    /// Gives an inode a further name. Part of an operation.
    pub fn link_in(&mut self, parent: InodeNo, name: &[u8], number: InodeNo) -> Result<()> {
        let dir = self.parent_mut(parent, name)?;
        let stored = stored_name(self.fs(), &dir, name, true)?;
        self.link_stored(dir, &stored, number)
    }

    /// Links an inode under a name as it is stored, which the directory does not have.
    pub fn link_stored(&mut self, mut dir: Inode, name: &Name, number: InodeNo) -> Result<()> {
        let mut inode = self.get(number)?;
        if inode.is_dir() {
            return Err(invalid(ErrorKind::IsADirectory, "directories have one name"));
        }
        refuse_locked(&inode, &name.bytes)?;
        refuse_project(self.fs(), &dir, &inode)?;
        refuse_foreign(self.fs(), &dir, &inode)?;
        if inode.links() >= MOST_LINKS {
            return Err(invalid(ErrorKind::TooManyLinks, "a file has at most 65000 names"));
        }
        inode.set_links(inode.links() + 1);
        inode.set_time(Stamp::Changed, self.now());
        self.inodes().store(&inode)?;
        self.directory(&mut dir).insert_stored(&NewName { name, inode: number, kind: inode.kind() })?;
        self.touch(&mut dir);
        self.inodes().store(&dir)
    }

    /// Counts one more directory in a directory.
    pub fn add_subdirectory(&self, dir: &mut Inode) -> Result<()> {
        let links = dir.links();
        if links == 1 {
            // Already more than can be counted (feature dir_nlink).
            return Ok(());
        }
        if links >= MOST_LINKS - 1 {
            if !self.fs().superblock().ro_compat.has(RoCompat::DIR_NLINK) {
                return Err(invalid(ErrorKind::TooManyLinks, "a directory with 64998 directories is full"));
            }
            dir.set_links(1);
        } else {
            dir.set_links(links + 1);
        }
        Ok(())
    }

    /// Counts one directory less.
    pub fn drop_subdirectory(&self, dir: &mut Inode) {
        if dir.links() > 2 {
            dir.set_links(dir.links() - 1);
        }
    }

    /// A directory that is to get a name which it does not have.
    pub fn parent_mut(&mut self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        require_name(name)?;
        let mut dir = self.get(parent)?;
        refuse_immutable(&dir, name)?;
        if self.directory(&mut dir).find(name)?.is_some() {
            let text = format!("{}: exists already", String::from_utf8_lossy(name));
            return Err(invalid(ErrorKind::AlreadyExists, text));
        }
        Ok(dir)
    }

    fn write_target(&mut self, inode: &mut Inode, target: &[u8]) -> Result<()> {
        inode.set_size(u64_of(target.len()));
        if target.len() < 60 {
            inode.block_area_mut()[..target.len()].copy_from_slice(target);
            return Ok(());
        }
        // Never inline, as the kernel: e2fsck 1.47.0 miscounts the blocks of such a link once it has a block of attributes.
        let mut block = vec![0; self.space().block_size()];
        block[..target.len()].copy_from_slice(target);
        let mut place = Block::default();
        self.inodes().map(inode).fill(0, 1, false, |run| place = run.physical)?;
        self.inodes().transaction().write_data(place, &block)?;
        Ok(())
    }
}

impl Writer {
    /// Makes a directory, with the group and the ACLs that the one above gives it; with `parents` also those that it
    /// lies in, with the usual permission bits, and none if it is there already.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound`, `StorageFull`.
    pub fn make_directory(&mut self, path: &[u8], node: &NewNode, parents: bool) -> Result<()> {
        if parents {
            return self.make_directories(path, node);
        }
        self.create_at(path, node, Body::Directory).map(|_| ())
    }

    /// Makes the directories of a path that are not there, one in the other: the last one as `node` says, those above
    /// it like those that nobody asks anything of.
    fn make_directories(&mut self, path: &[u8], node: &NewNode) -> Result<()> {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let above = NewNode { mode: 0o777, umask: 0o022, ..*node };
        let mut parent = self.fs().root()?;
        let mut at = 0;
        while at < end {
            let next = path[at..end].iter().position(|byte| *byte == b'/').map_or(end, |slash| at + slash);
            let name = &path[at..next];
            at = next + 1;
            if matches!(name, b"" | b".") {
                continue;
            }
            let there = if parent.is_dir() { self.fs().lookup(&parent, name)? } else { None };
            parent = match there {
                Some(number) => {
                    let inode = self.fs().inode(number)?;
                    if inode.kind() == FileType::Symlink {
                        self.fs().resolve(&path[..next], true)?
                    } else {
                        inode
                    }
                }
                None => {
                    let node = if next == end { node } else { &above };
                    let made = self.create_under(parent.number(), name, node, Body::Directory)?;
                    self.fs().inode(made)?
                }
            };
        }
        if !parent.is_dir() {
            let text = format!("{}: exists, and is not a directory", String::from_utf8_lossy(path));
            return Err(invalid(ErrorKind::AlreadyExists, text));
        }
        Ok(())
    }

    /// Makes an empty file, with the group and the ACL that its directory gives it.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound`, `StorageFull`.
    pub fn make_file(&mut self, path: &[u8], node: &NewNode) -> Result<()> {
        self.create_at(path, node, Body::File).map(|_| ())
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound`, `StorageFull`, and `InvalidInput` for a target that no link can have.
    pub fn make_symlink(&mut self, path: &[u8], target: &[u8], node: &NewNode) -> Result<()> {
        self.create_at(path, node, Body::Symlink(target)).map(|_| ())
    }

    /// Gives a file that is no directory another name.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound`, `StorageFull`; `IsADirectory`; `TooManyLinks`.
    pub fn link(&mut self, existing: &[u8], path: &[u8]) -> Result<()> {
        let number = self.fs().resolve(existing, false)?.number();
        let (parent, name) = self.parent_of(path)?;
        refuse_slash(path)?;
        self.operation(|files| files.link_in(parent, &name, number))
            .map_err(|error| in_full(path, &name, error))
    }

    pub(crate) fn create_at(&mut self, path: &[u8], node: &NewNode, body: Body<'_>) -> Result<InodeNo> {
        let (parent, name) = self.parent_of(path)?;
        if body.kind() != FileType::Directory {
            refuse_slash(path)?;
        }
        self.create_under(parent, &name, node, body).map_err(|error| in_full(path, &name, error))
    }

    /// Makes something in a directory, with the group, the ACLs and the encryption that it gives: its inode's number.
    ///
    /// # Errors
    /// `AlreadyExists`, `StorageFull`; `Locked` in an encrypted directory without its key.
    pub fn create_under(
        &mut self,
        parent: InodeNo,
        name: &[u8],
        node: &NewNode,
        body: Body<'_>,
    ) -> Result<InodeNo> {
        self.operation(|files| {
            let dir = files.get(parent)?;
            let Inherited { node, acls } = inherit(files.fs(), &dir, body.kind(), node)?;
            let mut inode = files.create_in(parent, name, &node, body)?;
            files.inodes().attributes(&mut inode).set_stored(acls)?;
            files.finish(&mut inode, &node)?;
            Ok(inode.number())
        })
    }

    /// The inode of the directory that a path's last name is, or will be, in, and that name.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` for a path that does not end in a name, and `InvalidFilename` for a longer one.
    pub fn parent_of(&self, path: &[u8]) -> Result<(InodeNo, Vec<u8>)> {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let path = &path[..end];
        let at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (above, name) = path.split_at(at);
        if matches!(name, b"" | b"." | b"..") {
            let text = format!("{}: no name of a file", String::from_utf8_lossy(path));
            return Err(invalid(ErrorKind::InvalidInput, text));
        }
        let above = self.fs().resolve(above, true)?.number();
        if name.len() > LONGEST_NAME {
            require_name(name)?;
        }
        Ok((above, name.to_vec()))
    }
}

/// Error about a name as one about the path that ends in it, which is what was asked for.
pub(crate) fn in_full(path: &[u8], name: &[u8], error: Error) -> Error {
    let begins = format!("{}: ", String::from_utf8_lossy(name));
    error.map_text(|text| match text.strip_prefix(&begins) {
        Some(rest) => format!("{}: {rest}", String::from_utf8_lossy(path)),
        None => text.to_owned(),
    })
}

/// Refuses a slash behind the name of what is no directory.
pub(crate) fn refuse_slash(path: &[u8]) -> Result<()> {
    if path.ends_with(b"/") {
        let text = format!("{}: not a directory", String::from_utf8_lossy(path));
        return Err(invalid(ErrorKind::NotADirectory, text));
    }
    Ok(())
}

pub(crate) fn is_not_found(error: &Error) -> bool {
    error.is_not_found()
}

/// Gives a new inode in an encrypted directory its own context, if it is of a kind that has one.
fn encrypt_child(inodes: &mut Inodes, dir: &Inode, inode: &mut Inode) -> Result<()> {
    let has_context = matches!(inode.kind(), FileType::Regular | FileType::Directory | FileType::Symlink);
    if !dir.has(InodeFlags::ENCRYPT) || !has_context {
        return Ok(());
    }
    let nonce = inodes.random().nonce()?;
    let context = keys(inodes.fs(), dir)?.child_context(&encrypted(inodes.fs(), dir)?, nonce)?;
    inode.set_flags(inode.flags().0 | InodeFlags::ENCRYPT.0);
    inodes.attributes(inode).set_context(context)
}

/// Gives a new inode this context, or none, where its directory allows that.
fn encrypt_as(inodes: &mut Inodes, dir: &Inode, inode: &mut Inode, context: Option<&[u8]>) -> Result<()> {
    if let Some(context) = context {
        require_feature(inodes.fs())?;
        if inode.has(InodeFlags::CASEFOLD) {
            return Err(casefolded());
        }
        inode.set_flags(inode.flags().0 | InodeFlags::ENCRYPT.0);
        inodes.attributes(inode).set_context(context.to_vec())?;
    }
    refuse_foreign(inodes.fs(), dir, inode)
}
