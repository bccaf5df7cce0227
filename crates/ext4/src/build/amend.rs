//! Descriptions beside a tree: attributes of its files, and files that only the description names.

use std::io::ErrorKind;
use std::sync::Arc;

use casemate_blockdev::{MemoryDevice, u64_of};
use casemate_trees::host::Xattrs;
use casemate_trees::manifest::Entry as Described;
use casemate_trees::{Link, Node, join, split};

use crate::build::contents::{Contents, FirstReading, Source};
use crate::build::tree::{Body, TOP, Tree};
use crate::error::{Result, invalid};
use crate::format::inode::FileType;

impl Tree {
    /// Gives a file what is told of it. A file that is not there is made, if what is told suffices; its directories, too.
    /// `false` if nothing was done, since the file is not there and need not be.
    ///
    /// # Errors
    /// `NotFound` for a file that is not there and can't be made, `InvalidInput` for one of another kind or size, and for
    /// attributes that ext4 does not store.
    pub fn amend(&mut self, described: &Described) -> Result<bool> {
        let shown = format!("/{}", String::from_utf8_lossy(&described.path));
        self.amend_shown(described).map_err(|error| error.within(shown))
    }

    fn amend_shown(&mut self, described: &Described) -> Result<bool> {
        let (above, name) = split(&described.path);
        if let Some(Link::Hard(first)) = &described.link {
            let found = self.lookup(first).filter(|found| !self.is_directory(*found));
            let found = found.ok_or_else(|| {
                let text = format!("/{}: not there to be linked to", String::from_utf8_lossy(first));
                invalid(ErrorKind::NotFound, text)
            })?;
            let parent = self.directory(above)?;
            return self.link(parent, name, found).map(|()| true);
        }
        let number = match self.lookup(&described.path) {
            Some(found) => {
                self.compare(found, described)?;
                found
            }
            None if described.is_optional => return Ok(false),
            None => self.make(above, name, described)?,
        };
        let entry = self.entry_mut(number);
        if let (Some(Link::Symbolic(target)), Body::Symlink(old)) = (&described.link, &mut entry.body) {
            old.clone_from(target);
        }
        if described.has_all_xattrs {
            entry.xattrs.clear();
        }
        for (name, value) in &described.xattrs {
            entry.set_xattr(name, value)?;
        }
        entry.node.modified = described.modified.unwrap_or(entry.node.modified);
        entry.set_device(described.device.unwrap_or(entry.node.device))?;
        let mut open = vec![number];
        while let Some(number) = open.pop() {
            let entry = self.entry_mut(number);
            // Links have no permissions of their own.
            if !matches!(entry.body, Body::Symlink(_)) || !described.is_recursive {
                entry.set_mode(described.mode.unwrap_or(entry.node.mode))?;
            }
            entry.node.uid = described.uid.unwrap_or(entry.node.uid);
            entry.node.gid = described.gid.unwrap_or(entry.node.gid);
            if let (Body::Directory(names), true) = (&entry.body, described.is_recursive) {
                open.extend(names.values());
            }
        }
        Ok(true)
    }

    /// Refuses a file of another kind or size than is told.
    fn compare(&self, number: u32, described: &Described) -> Result<()> {
        let entry = self.entry(number);
        if let Some(kind) = described.kind.filter(|kind| *kind != entry.node.kind) {
            let text =
                format!("a {} in the tree, and described as a {}", entry.node.kind.name(), kind.name());
            return Err(invalid(ErrorKind::InvalidInput, text));
        }
        match (&entry.body, described.size) {
            (Body::File(contents), Some(size)) if contents.size != size => {
                let text = format!("{} bytes in the tree, and described with {size}", contents.size);
                Err(invalid(ErrorKind::InvalidInput, text))
            }
            _ => Ok(()),
        }
    }

    fn make(&mut self, above: &[u8], name: &[u8], described: &Described) -> Result<u32> {
        let missing = |what: &str| {
            invalid(ErrorKind::NotFound, format!("not in the tree, and its description has no {what}"))
        };
        let kind = described.kind.ok_or_else(|| missing("type"))?;
        let body = match kind {
            FileType::Directory => return self.directory(&described.path),
            FileType::Regular => {
                let contents = match (&described.contents, described.size) {
                    (Some(bytes), _) => bytes.clone(),
                    (None, Some(0)) => Vec::new(),
                    _ => return Err(missing("contents")),
                };
                let (size, device) = (u64_of(contents.len()), Arc::new(MemoryDevice::new(contents)));
                Body::File(Contents {
                    size,
                    ranges: None,
                    from: Source::Within(device, 0),
                    reading: FirstReading::default(),
                })
            }
            FileType::Symlink => match &described.link {
                Some(Link::Symbolic(target)) => Body::Symlink(target.clone()),
                _ => return Err(missing("target")),
            },
            FileType::CharacterDevice | FileType::BlockDevice if described.device.is_none() => {
                return Err(missing("device numbers"));
            }
            _ => Body::Node,
        };
        let parent = self.directory(above)?;
        let mode = if kind == FileType::Symlink { 0o777 } else { 0o644 };
        self.put(parent, name, Node { mode, ..Node::new(kind) }, Vec::new(), body)
    }

    /// Changes what files are beside their contents, by each of their paths, from the top on; attributes that are handed back
    /// are set. An access ACL follows the permission bits, and they follow one that is set.
    ///
    /// # Errors
    /// Errors of `change`; `InvalidInput` for attributes that ext4 does not store.
    pub fn adjust(&mut self, change: &mut dyn FnMut(&[u8], &mut Node) -> Result<Xattrs>) -> Result<()> {
        let mut open = vec![(Vec::new(), TOP)];
        while let Some((path, number)) = open.pop() {
            let entry = self.entry_mut(number);
            let mode = entry.node.mode;
            let new = change(&path, &mut entry.node)?;
            // An ACL that was right stays so.
            let changed = if entry.node.mode == mode { Ok(()) } else { entry.set_mode(entry.node.mode) };
            let set = |()| new.iter().try_for_each(|(name, value)| entry.set_xattr(name, value));
            changed
                .and_then(set)
                .map_err(|error| error.within(format!("/{}", String::from_utf8_lossy(&path))))?;
            if let Body::Directory(names) = &entry.body {
                open.extend(names.iter().rev().map(|(name, number)| (join(&path, name), *number)));
            }
        }
        Ok(())
    }

    /// Makes the directory that each file system has for files without names, as mke2fs does, if the tree has none.
    ///
    /// # Errors
    /// `NotADirectory` for a file with its name.
    pub fn add_lost_and_found(&mut self) -> Result<()> {
        if self.lookup(LOST_AND_FOUND).is_none() {
            let found = self.directory(LOST_AND_FOUND)?;
            self.entry_mut(found).node.mode = 0o700;
        }
        Ok(())
    }

    /// The first path of the file that each of these paths is one of; `None` for what is no regular file.
    pub fn first_paths<'a>(&self, paths: impl IntoIterator<Item = &'a [u8]>) -> Vec<Option<Vec<u8>>> {
        let first = self.paths();
        let is_file = |number: &u32| matches!(self.entry(*number).body, Body::File(_));
        let find = |path: &[u8]| first.get(&self.lookup(path).filter(is_file)?).cloned();
        paths.into_iter().map(find).collect()
    }
}

/// The name of the directory that each file system has for files without names.
pub(crate) const LOST_AND_FOUND: &[u8] = b"lost+found";
