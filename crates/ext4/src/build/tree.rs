//! A tree of files that a new file system is made of: everything about them in memory, but no contents.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;

use casemate_blockdev::{u32_of, u64_of, usize_of};
use casemate_trees::Node;
use casemate_trees::host::Xattrs;

use crate::build::contents::Contents;
use crate::edit::{check_owner, is_storable, require_name};
use crate::error::{Error, Result, invalid};
use crate::format::inode::{FileType, require_device};
use crate::format::quota::Kind;
use crate::format::{acl, capability};

/// The root of a tree.
pub(crate) const TOP: u32 = 0;

/// The attributes that ACLs are, and capabilities.
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const CAPABILITY: &[u8] = b"security.capability";

/// A tree of files.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Entry>,
}

/// A file of a tree, of any kind.
#[derive(Debug)]
pub(crate) struct Entry {
    pub node: Node,
    /// Attributes in the order of their names.
    pub xattrs: Xattrs,
    pub body: Body,
}

impl Entry {
    /// Changes permission bits, and the access ACL as they say.
    ///
    /// # Errors
    /// `InvalidInput` for an ACL that the kernel would not take.
    pub fn set_mode(&mut self, mode: u16) -> Result<()> {
        self.node.mode = mode;
        if let Ok(at) = self.xattrs.binary_search_by(|(name, _)| name[..].cmp(ACCESS)) {
            let value = &mut self.xattrs[at].1;
            *value = acl::change_seen_mode(value, mode).ok_or_else(senseless)?;
        }
        Ok(())
    }

    /// Sets the numbers of a device. Those of other files count for nothing.
    ///
    /// # Errors
    /// Errors of [`require_device`].
    pub fn set_device(&mut self, device: (u32, u32)) -> Result<()> {
        if matches!(self.node.kind, FileType::CharacterDevice | FileType::BlockDevice) {
            require_device(device.0, device.1)?;
        }
        self.node.device = device;
        Ok(())
    }

    /// Sets an attribute. With an access ACL, the permission bits become what it says.
    ///
    /// # Errors
    /// `InvalidInput` for attributes that ext4 does not store, for an ACL that the kernel would not take, and for a default ACL of
    /// what is not a directory.
    pub fn set_xattr(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        if !is_storable(name) {
            let text = format!("{}: an attribute that ext4 does not store", String::from_utf8_lossy(name));
            return Err(invalid(ErrorKind::InvalidInput, text));
        }
        if matches!(name, ACCESS | DEFAULT) {
            if name == DEFAULT && self.node.kind != FileType::Directory {
                let text = "a default ACL is for what is made in a directory: only directories have one";
                return Err(invalid(ErrorKind::InvalidInput, text));
            }
            let stored = acl::to_stored(value).ok_or_else(senseless)?;
            if !acl::is_empty(&stored) {
                let (bits, _) = acl::mode(&stored).ok_or_else(senseless)?;
                if name == ACCESS {
                    self.node.mode = self.node.mode & !0o777 | bits;
                }
            }
        }
        match self.xattrs.binary_search_by(|(known, _)| known[..].cmp(name)) {
            Ok(at) => self.xattrs[at].1 = value.to_vec(),
            Err(at) => self.xattrs.insert(at, (name.to_vec(), value.to_vec())),
        }
        Ok(())
    }

    /// The number of whom quotas of a kind count it for.
    pub fn owner(&self, kind: Kind) -> u32 {
        match kind {
            Kind::User => self.node.uid,
            Kind::Group => self.node.gid,
            Kind::Project => 0,
        }
    }
}

/// The part of a file that depends on its kind.
#[derive(Debug)]
pub(crate) enum Body {
    /// Names, and the numbers of their files.
    Directory(BTreeMap<Box<[u8]>, u32>),
    File(Contents),
    Symlink(Vec<u8>),
    Node,
}

/// The owners that files get.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Owners {
    /// Owner and group of everything.
    pub all: Option<(u32, u32)>,
    /// Ranges of users: the first one in the image, the first one of the source, and how many; all as they are without any.
    /// Ids in ACLs and capabilities are mapped, too.
    pub users: Vec<[u32; 3]>,
    /// Ranges of groups, as those of users.
    pub groups: Vec<[u32; 3]>,
}

/// How a source is read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TreeOptions {
    /// The owners that files get.
    pub owners: Owners,
    /// Whether extended attributes are taken.
    pub xattrs: bool,
    /// The device and inode, on the host, of a file that is refused: the image that is made.
    pub image: Option<(u64, u64)>,
    /// Whether names that begin with `.wh.` remove what an earlier layer has, as in OCI images.
    pub whiteouts: bool,
}

impl TreeOptions {
    /// Files as they are, with extended attributes.
    pub fn new() -> TreeOptions {
        TreeOptions::default()
    }

    /// Gives files owners.
    #[must_use]
    pub fn owners(mut self, owners: Owners) -> TreeOptions {
        self.owners = owners;
        self
    }

    /// Takes extended attributes, or does not.
    #[must_use]
    pub fn xattrs(mut self, xattrs: bool) -> TreeOptions {
        self.xattrs = xattrs;
        self
    }
}

impl Owners {
    /// Owners as they are.
    pub fn new() -> Owners {
        Owners::default()
    }

    /// Gives everything an owner and a group.
    #[must_use]
    pub fn all(mut self, uid: u32, gid: u32) -> Owners {
        self.all = Some((uid, gid));
        self
    }
}

impl Default for TreeOptions {
    fn default() -> TreeOptions {
        TreeOptions { owners: Owners::default(), xattrs: true, image: None, whiteouts: false }
    }
}

impl Owners {
    /// Refuses ranges of which it is not clear what they do: with an id of the source in two of them, an id of the image that two
    /// others would become, or ids beyond the last one.
    ///
    /// # Errors
    /// `Argument`.
    pub fn check(&self) -> Result<()> {
        for (ranges, what) in [(&self.users, "users"), (&self.groups, "groups")] {
            for (number, range) in ranges.iter().enumerate() {
                let shown = |[to, from, len]: &[u32; 3]| format!("{to}:{from}:{len}");
                let [to, from, len] = *range;
                if to.checked_add(len).is_none() || from.checked_add(len).is_none() {
                    let text = format!("the range {} of {what} ends behind the last id", shown(range));
                    return Err(Error::argument(text));
                }
                let meet = |a: u32, b: u32, other: u32| {
                    a.max(b) < a.saturating_add(len).min(b.saturating_add(other))
                };
                let clash =
                    |other: &&[u32; 3]| meet(to, other[0], other[2]) || meet(from, other[1], other[2]);
                if let Some(other) = ranges[..number].iter().find(clash) {
                    let both = if meet(from, other[1], other[2]) { "the source" } else { "the image" };
                    let (a, b) = (shown(other), shown(range));
                    let text = format!("the ranges {a} and {b} of {what} share ids of {both}");
                    return Err(Error::argument(text));
                }
            }
        }
        Ok(())
    }

    /// The owner and group that a file gets.
    ///
    /// # Errors
    /// `Argument` for one that no range has; `InvalidInput` for the number of nobody.
    pub(crate) fn map(&self, uid: u32, gid: u32) -> Result<(u32, u32)> {
        let (uid, gid) = match self.all {
            Some(both) => both,
            None => (self.mapped(uid, false, "")?, self.mapped(gid, true, "")?),
        };
        check_owner(uid, gid)?;
        Ok((uid, gid))
    }

    /// Maps the ids that attributes of a file have, also where everything gets one owner: users and groups of ACLs, and the
    /// user who is root where capabilities count.
    ///
    /// # Errors
    /// `Argument` for one that no range has.
    pub(crate) fn map_xattrs(&self, xattrs: &mut Xattrs) -> Result<()> {
        for (name, value) in xattrs {
            if matches!(&name[..], ACCESS | DEFAULT) {
                acl::map_seen_ids(value, |id, is_group| self.mapped(id, is_group, " of its ACL"))?;
            } else if let (CAPABILITY, Some(root)) = (&name[..], capability::root_id(value)) {
                let mapped = self.mapped(root, false, " of its capabilities")?;
                if mapped != root {
                    capability::set_root_id(value, mapped);
                }
            }
        }
        Ok(())
    }

    /// The user or group instead of one of the source; `of` says where that one stands.
    fn mapped(&self, id: u32, is_group: bool, of: &str) -> Result<u32> {
        let (ranges, what) = if is_group { (&self.groups, "group") } else { (&self.users, "user") };
        if ranges.is_empty() {
            return Ok(id);
        }
        let in_range = |[to, from, len]: &[u32; 3]| {
            let at = id.checked_sub(*from).filter(|at| at < len)?;
            to.checked_add(at)
        };
        ranges.iter().find_map(in_range).ok_or_else(|| {
            Error::argument(format!("the {what} {id}{of} is in none of the ranges that are mapped"))
        })
    }
}

impl Tree {
    /// A tree without any files but its top, a directory of root's that everybody may read.
    pub fn new() -> Tree {
        let mut tree = Tree { nodes: Vec::new() };
        tree.add(implied());
        tree
    }

    /// Tells everything about the tree but contents, piece by piece: what its identity is made of.
    pub fn describe(&self, f: &mut dyn FnMut(&[u8])) {
        let mut paths = vec![(&b""[..], TOP)];
        // What order files came in is nothing about the tree; that two names are of one file is.
        let mut places = vec![None; self.nodes.len()];
        let mut next = 0u32;
        while let Some((name, number)) = paths.pop() {
            let place = *places[usize_of(number)].get_or_insert(next);
            next += u32::from(place == next);
            let Entry { node, xattrs, body, .. } = &self.nodes[usize_of(number)];
            f(&u64_of(name.len()).to_le_bytes());
            f(name);
            for value in [node.kind.mode_bits() | node.mode, 0] {
                f(&value.to_le_bytes());
            }
            for value in [place, node.uid, node.gid, node.modified.nanoseconds, node.device.0, node.device.1]
            {
                f(&value.to_le_bytes());
            }
            f(&node.modified.seconds.to_le_bytes());
            for (name, value) in xattrs {
                f(&u64_of(name.len()).to_le_bytes());
                f(name);
                f(&u64_of(value.len()).to_le_bytes());
                f(value);
            }
            match body {
                Body::Directory(names) => {
                    f(&u64_of(names.len()).to_le_bytes());
                    paths.extend(names.iter().rev().map(|(name, number)| (&name[..], *number)));
                }
                Body::File(contents) => f(&contents.size.to_le_bytes()),
                Body::Symlink(target) => {
                    f(&u64_of(target.len()).to_le_bytes());
                    f(target);
                }
                Body::Node => {}
            }
        }
    }

    /// All files in the order in which they get inodes: what is in a directory, then what is in its directories, one after
    /// the other.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let mut seen = vec![false; self.nodes.len()];
        let mut order = vec![TOP];
        seen[usize_of(TOP)] = true;
        let mut open = vec![TOP];
        while let Some(number) = open.pop() {
            let Body::Directory(names) = &self.nodes[usize_of(number)].body else { continue };
            let first = open.len();
            for number in names.values().copied() {
                if !std::mem::replace(&mut seen[usize_of(number)], true) {
                    order.push(number);
                    if matches!(self.nodes[usize_of(number)].body, Body::Directory(_)) {
                        open.push(number);
                    }
                }
            }
            open[first..].reverse();
        }
        order
    }

    /// The first path of each file, from the top on.
    pub(crate) fn paths(&self) -> HashMap<u32, Vec<u8>> {
        let mut found = HashMap::new();
        self.each_path(|number, path| {
            found.entry(number).or_insert(path);
        });
        found
    }

    /// All paths of each file, the first one first.
    pub(crate) fn all_paths(&self) -> HashMap<u32, Vec<Vec<u8>>> {
        let mut found = HashMap::new();
        self.each_path(|number, path| found.entry(number).or_insert_with(Vec::new).push(path));
        found
    }

    fn each_path(&self, mut told: impl FnMut(u32, Vec<u8>)) {
        let mut open = vec![(Vec::new(), TOP)];
        while let Some((path, number)) = open.pop() {
            if let Body::Directory(names) = &self.entry(number).body {
                let below = names.iter().rev();
                open.extend(below.map(|(name, number)| (casemate_trees::join(&path, name), *number)));
            }
            told(number, path);
        }
    }

    pub(crate) fn entry(&self, number: u32) -> &Entry {
        &self.nodes[usize_of(number)]
    }

    pub(crate) fn entry_mut(&mut self, number: u32) -> &mut Entry {
        &mut self.nodes[usize_of(number)]
    }

    /// All files that were ever added.
    pub(crate) fn capacity(&self) -> usize {
        self.nodes.len()
    }

    fn add(&mut self, entry: Entry) -> u32 {
        self.nodes.push(entry);
        // Counted where inodes are.
        u32_of(self.nodes.len() - 1)
    }

    /// The directory at a path, which is made with those above it if it is not there.
    ///
    /// # Errors
    /// `NotADirectory`, `InvalidFilename`.
    pub(crate) fn directory(&mut self, path: &[u8]) -> Result<u32> {
        let mut number = TOP;
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            number = match self.find(number, part) {
                Some(found) if self.is_directory(found) => found,
                Some(_) => {
                    let shown = String::from_utf8_lossy(path);
                    let text = format!("{shown}: is not a directory, and a link to one is not followed");
                    return Err(invalid(ErrorKind::NotADirectory, text));
                }
                None => self.make_directory(number, part)?,
            };
        }
        Ok(number)
    }

    /// Makes a directory that nothing is known of but its name.
    ///
    /// # Errors
    /// `InvalidFilename` for names that no file has.
    pub(crate) fn make_directory(&mut self, parent: u32, name: &[u8]) -> Result<u32> {
        let made = self.add(implied());
        self.link(parent, name, made)?;
        Ok(made)
    }

    /// The file at a path, if there is one; links are not followed.
    pub(crate) fn lookup(&self, path: &[u8]) -> Option<u32> {
        let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        parts.into_iter().try_fold(TOP, |number, part| self.find(number, part))
    }

    pub(crate) fn is_directory(&self, number: u32) -> bool {
        matches!(self.entry(number).body, Body::Directory(_))
    }

    /// Adds a file to a directory. A directory that is there keeps what is in it; everything else is replaced. An access ACL
    /// says what the permission bits do.
    ///
    /// # Errors
    /// `InvalidFilename` for names that no file has, and those of [`Entry::set_mode`] and [`Entry::set_device`].
    pub(crate) fn put(
        &mut self,
        parent: u32,
        name: &[u8],
        node: Node,
        xattrs: Xattrs,
        body: Body,
    ) -> Result<u32> {
        if let (Some(found), Body::Directory(_)) = (self.find(parent, name), &body)
            && self.is_directory(found)
        {
            self.describe_directory(found, node, xattrs)?;
            return Ok(found);
        }
        let mut entry = Entry { node, xattrs, body };
        entry.set_mode(node.mode)?;
        entry.set_device(node.device)?;
        let number = self.add(entry);
        self.link(parent, name, number)?;
        Ok(number)
    }

    /// Describes a directory that may be known by its path alone so far.
    ///
    /// # Errors
    /// Errors of [`Entry::set_mode`].
    pub(crate) fn describe_directory(&mut self, number: u32, node: Node, xattrs: Xattrs) -> Result<()> {
        let entry = self.entry_mut(number);
        (entry.node, entry.xattrs) = (node, xattrs);
        entry.set_mode(node.mode)
    }

    /// Gives a file a name in a directory, which another file may have had.
    ///
    /// # Errors
    /// Errors of [`require_name`].
    pub(crate) fn link(&mut self, parent: u32, name: &[u8], number: u32) -> Result<()> {
        require_name(name)?;
        self.names_mut(parent)?.insert(name.into(), number);
        Ok(())
    }

    /// Takes a name away, if it is there.
    ///
    /// # Errors
    /// `NotADirectory`.
    pub(crate) fn remove(&mut self, parent: u32, name: &[u8]) -> Result<()> {
        self.names_mut(parent)?.remove(name);
        Ok(())
    }

    /// Takes all names of a directory away.
    ///
    /// # Errors
    /// `NotADirectory`.
    pub(crate) fn clear(&mut self, directory: u32) -> Result<()> {
        self.names_mut(directory)?.clear();
        Ok(())
    }

    fn names_mut(&mut self, directory: u32) -> Result<&mut BTreeMap<Box<[u8]>, u32>> {
        match &mut self.entry_mut(directory).body {
            Body::Directory(names) => Ok(names),
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// The file that has a name in a directory.
    pub(crate) fn find(&self, directory: u32, name: &[u8]) -> Option<u32> {
        match &self.entry(directory).body {
            Body::Directory(names) => names.get(name).copied(),
            _ => None,
        }
    }
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

fn senseless() -> Error {
    invalid(ErrorKind::InvalidInput, "an ACL that makes no sense")
}

/// A directory that nothing is known of.
fn implied() -> Entry {
    let node = Node { mode: 0o755, ..Node::new(FileType::Directory) };
    Entry { node, xattrs: Vec::new(), body: Body::Directory(BTreeMap::new()) }
}
