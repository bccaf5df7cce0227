//! Names of folders as the kernel asks for them, and what it is told with each.

use std::sync::Arc;
use std::time::Duration;

use fuser::{FileAttr, FileHandle, Generation, INodeNo};

use casemate::Error;
use casemate::ext4::{Inode, InodeNo, Name};

use crate::attributes::{kind, unknown};
use crate::node::{beyond, is_nameable};
use crate::tree::Tree;

/// How long the kernel may keep what it was told: the image does not change while it is mounted.
pub const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Tells `add` the names in a directory from a place on, "." and ".." first, each with the place behind it, until it says
/// that there is no more room.
pub fn each_name(
    tree: &Tree,
    node: INodeNo,
    handle: FileHandle,
    offset: u64,
    mut add: impl FnMut(&Inode, Name<'_>, u64) -> bool,
) -> Result<(), Error> {
    let dir = tree.inode(node)?;
    if tree.changes().is_some() {
        return each_name_changing(tree, &dir, handle, offset, add);
    }
    let names = tree.names(&dir)?;
    let mut at = offset;
    while let Some(name) = name_at(tree, &dir, at, |at| names.get(usize::try_from(at).ok()?)) {
        at += 1;
        if add(&dir, name, at) {
            return Ok(());
        }
    }
    if at == offset {
        tree.listed(&dir);
    }
    Ok(())
}

/// Lists a directory whose names may come and go while they are listed.
fn each_name_changing(
    tree: &Tree,
    dir: &Inode,
    handle: FileHandle,
    offset: u64,
    mut add: impl FnMut(&Inode, Name<'_>, u64) -> bool,
) -> Result<(), Error> {
    let read = || Ok(Arc::new(tree.ext4().names(dir).map_err(|error| tree.error(error))?));
    let mut list = tree.open_folders().list(handle.0, offset.saturating_sub(2), read)?;
    let (mut at, mut last) = (offset, Vec::new());
    while let Some(name) = name_at(tree, dir, at, |at| list.get(at)) {
        if add(dir, name, at + 1) {
            break;
        }
        at += 1;
        last.clear();
        last.extend_from_slice(name.bytes);
    }
    if at > offset.max(2) {
        list.tell(&last, at - 2);
    }
    tree.open_folders().keep(handle.0, list);
    Ok(())
}

/// The name at a place of a directory; `get` has those behind the first two.
fn name_at<'a>(
    tree: &Tree,
    dir: &Inode,
    at: u64,
    get: impl FnOnce(u64) -> Option<Name<'a>>,
) -> Option<Name<'a>> {
    let kind = Some(casemate::ext4::FileType::Directory);
    match at {
        0 => Some(Name { inode: dir.number(), kind, bytes: b"." }),
        1 => Some(Name { inode: tree.parent(dir), kind, bytes: b".." }),
        _ => get(at - 2),
    }
}

/// How long the kernel may keep a name of a directory.
pub fn lifetime(tree: &Tree, dir: &Inode) -> Duration {
    if tree.names_stay(dir) { FOR_EVER } else { Duration::ZERO }
}

/// How long the kernel may keep that a name does not exist.
pub fn absence(tree: &Tree, dir: &Inode) -> Duration {
    if tree.absence_stays(dir) { FOR_EVER } else { Duration::ZERO }
}

/// The node of an inode that a name stands for. One that is none is not told apart from others that are damaged before
/// somebody looks at it.
pub fn node_of(tree: &Tree, number: InodeNo) -> u64 {
    match is_nameable(number, tree.ext4().superblock()) {
        true => number.get().into(),
        false => beyond(number),
    }
}

/// The attributes that a name is listed with, and how long they hold. A name whose inode is damaged is there all the same,
/// and what is said of the inode is asked for again at once: then there is an error.
pub fn described(tree: &Tree, dir: &Inode, name: Name<'_>) -> (FileAttr, Generation, Duration) {
    // The kernel takes nothing but the names of these.
    if matches!(name.bytes, b"." | b"..") {
        let number =
            if name.inode == InodeNo::ROOT { InodeNo::ROOT.get().into() } else { node_of(tree, name.inode) };
        return (unknown(number, fuser::FileType::Directory), Generation(0), Duration::ZERO);
    }
    match tree.numbered(name.inode).and_then(|inode| tree.attributes(&inode)) {
        Ok((attributes, generation)) => (attributes, generation, lifetime(tree, dir)),
        Err(_) => {
            let kind = name.kind.map_or(fuser::FileType::RegularFile, kind);
            (unknown(node_of(tree, name.inode), kind), Generation(0), Duration::ZERO)
        }
    }
}
