//! Files whose contents a repair changed, or took from what others may have written.

use crate::repair::Repair;
use crate::units::InodeNo;

/// A change of a file's contents or attributes, or a reason why they may not be what was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Alteration {
    /// Blocks behind the file's end were taken from it, because others have them.
    Cut,
    /// Others claimed blocks of the file: what lies there may be theirs.
    Shared,
    /// Parts of the file's map could not be followed, and are left out.
    Map,
    /// The size was set to that of the contents that are there.
    Size,
    /// The inode was emptied: nothing of what it was could be known.
    Cleared,
    /// Extended attributes that made no sense, or lay nowhere, are left out.
    Attributes,
}

impl Alteration {
    /// The name, which stays.
    pub fn name(self) -> &'static str {
        match self {
            Alteration::Cut => "cut",
            Alteration::Shared => "shared",
            Alteration::Map => "map",
            Alteration::Size => "size",
            Alteration::Cleared => "cleared",
            Alteration::Attributes => "attributes",
        }
    }

    /// The meaning, to follow an inode's number.
    pub fn description(self) -> &'static str {
        match self {
            Alteration::Cut => "lost blocks behind its end that others have",
            Alteration::Shared => "had blocks that others claimed, too: contents may be theirs",
            Alteration::Map => "lost those parts of its map that could not be followed",
            Alteration::Size => "has another size",
            Alteration::Cleared => "was emptied",
            Alteration::Attributes => "lost extended attributes",
        }
    }
}

/// A file whose contents a repair changed, or may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Altered {
    /// Its inode.
    pub inode: InodeNo,
    /// The change.
    pub how: Alteration,
}

impl Repair {
    /// Notes what happens to the contents of a file.
    pub(super) fn note(&mut self, inode: InodeNo, how: Alteration) {
        self.altered.push(Altered { inode, how });
    }
}
