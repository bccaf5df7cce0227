//! The third and fourth pass: every directory is where it says, and every inode has as many names as it says.

use crate::check::directories::Parents;
use crate::check::facts::Fact;
use crate::check::findings::{Doubts, Finding, FindingKind};
use crate::check::worker::Check;
use crate::error::{Place, Problem, Structure};
use crate::format::dir::byte_of;
use crate::format::features::RoCompat;
use crate::format::inode::FileType;
use crate::units::InodeNo;

/// Names that a directory counts; one with more counts one.
const MOST_LINKS: u32 = 65000;

/// Compares what directories say of their parents with where they are, and follows each to the root.
pub(crate) fn directories(check: &Check<'_>, mut parents: Parents) {
    parents.sort_unstable();
    let facts = &check.facts;
    let lacks_names = check.findings.doubts().has(Doubts::NAMES);
    let mut path = Vec::new();
    for (number, up) in &parents {
        let place = Place::inode(Structure::Directory, *number);
        let parent = if *number == InodeNo::ROOT { Some(InodeNo::ROOT) } else { facts.parent(*number) };
        if let Some(parent) = parent.filter(|parent| Some(*parent) != *up) {
            let (found, expected) = (InodeNo::stored(*up).into(), parent.get().into());
            check.findings.number(FindingKind::Parent, place, "inode of \"..\"", found, expected);
        }
    }
    for (number, _) in &parents {
        if facts.get(*number).has(Fact::ORPHAN) {
            continue;
        }
        let mut at = *number;
        let is_reached = loop {
            let fact = facts.get(at);
            if at == InodeNo::ROOT || fact.has(Fact::REACHED) {
                break true;
            }
            if fact.has(Fact::PASSED) {
                // Known not to lead to the root, or a circle just found.
                if path.contains(&at) {
                    let place = Place::inode(Structure::Directory, at);
                    check.findings.add(Finding::new(FindingKind::Unconnected, place, Problem::Loop), None);
                }
                break false;
            }
            facts.add_flag(at, Fact::PASSED);
            path.push(at);
            match facts.parent(at) {
                None => {
                    if !lacks_names {
                        let place = Place::inode(Structure::Directory, at);
                        check.findings.say(FindingKind::Unconnected, place, "is in no directory");
                    }
                    break false;
                }
                Some(parent) => at = parent,
            }
        };
        let reached = path.drain(..).filter(|_| is_reached);
        reached.for_each(|number| facts.add_flag(number, Fact::REACHED));
    }
}

/// Compares what inodes say of their names with how many were found.
pub(crate) fn links(check: &Check<'_>) {
    let (findings, facts) = (check.findings, &check.facts);
    let doubts = check.findings.doubts();
    let (lacks_names, unsure) = (doubts.has(Doubts::NAMES), doubts.has(Doubts::LINKS));
    let has_overflow = check.fs.superblock().ro_compat.has(RoCompat::DIR_NLINK);
    let directory = byte_of(FileType::Directory);
    facts.each(InodeNo::FIRST, check.fs.layout().inodes, |number, fact, names| {
        if fact.has(Fact::INTERNAL | Fact::ORPHAN | Fact::VALUE) {
            return;
        }
        let place = Place::inode(Structure::Inode, number);
        let is_dir = fact.kind() == directory;
        if is_dir && facts.parent(number).is_none() && number != InodeNo::ROOT {
            // Found without its names already.
            return;
        }
        if names == 0 {
            if !lacks_names {
                findings.say(FindingKind::Unattached, place, "is in use, and in no directory");
            }
            return;
        }
        let links = fact.links();
        if is_dir && links == 1 && fact.has(Fact::INDEXED) {
            return;
        }
        let expected = if is_dir && names > MOST_LINKS && has_overflow { 1 } else { names };
        if links != expected && !(unsure && links > expected) {
            findings.number(FindingKind::LinkCount, place, "names", links.into(), expected.into());
        }
    });
    values(check);
}

/// Compares what inodes that hold attributes' values say of their users with how many there are.
fn values(check: &Check<'_>) {
    let facts = &check.facts;
    let (values, blocks) = {
        let mut lists = check.lists();
        (std::mem::take(&mut lists.values), std::mem::take(&mut lists.xattr_blocks))
    };
    for (number, users) in values {
        let place = Place::inode(Structure::XattrInode, number);
        if facts.names(number) > 0 {
            check.findings.say(FindingKind::XattrInode, place, "holds a value, and is in a directory");
            continue;
        }
        let found = u64::from(facts.references(number));
        match users {
            _ if found == 0 => {
                check.findings.say(FindingKind::Unattached, place, "holds a value that no attribute has");
                continue;
            }
            Some(users) if users != found => {
                check.findings.number(
                    FindingKind::XattrInode,
                    place,
                    "attributes with the value",
                    users,
                    found,
                );
            }
            _ => {}
        }
        // It has one name, so to speak, however many attributes have its value.
        let links = facts.get(number).links();
        if links != 1 {
            check.findings.number(FindingKind::LinkCount, place, "links", links.into(), 1);
        }
    }
    for (block, of) in blocks {
        let place = Place::of(Structure::XattrBlock).at(block);
        if let Some(finding) = crate::check::xattrs::users(place, &of) {
            check.findings.add(finding, None);
        }
    }
}
