//! Tar streams: written in the pax format (POSIX.1-2008, `pax` utility) with GNU tar's sparse files, and read in every
//! format that GNU tar writes.

mod attributes;
mod contents;
mod header;
mod map;
mod reader;
mod records;
mod writer;

pub use attributes::{Attributes, Xattr};
pub use contents::Pieces;
pub use reader::TarReader;
pub use records::Record;
pub use writer::TarWriter;

use std::ops::Range;

use crate::{Link, Node};

/// The prefix before an extended attribute's name in the key of its record.
pub const XATTR: &[u8] = b"SCHILY.xattr.";

/// Bytes of a record: headers are one, contents fill whole ones.
const RECORD: usize = 512;

/// A file of a stream, without its contents.
#[derive(Clone, Debug)]
pub struct Member {
    /// The member's path; those of directories end in a slash.
    pub path: Vec<u8>,
    /// The file's kind, mode, owners and times. Of a hard link that was read, the kind tells nothing.
    pub node: Node,
    /// A symbolic link's target, or the path of the member that this one is another name of.
    pub link: Option<Link>,
    /// The length of the contents in bytes, holes included.
    pub size: u64,
    /// Records of the member's extended header, attributes among them; of those that were read, the last ones first.
    pub records: Vec<Record>,
    /// Where the contents lie, if they have holes.
    sparse: Option<Sparse>,
}

/// How a sparse member says where its contents lie.
#[derive(Clone, Debug)]
enum Sparse {
    /// Before the member's contents.
    Listed(Vec<Range<u64>>),
    /// In the member's contents, at their beginning.
    Inside,
}

impl Member {
    /// A member of a tar stream without contents and records.
    pub fn new(path: impl Into<Vec<u8>>, node: Node, link: Option<Link>) -> Member {
        Member { path: path.into(), node, link, size: 0, records: Vec::new(), sparse: None }
    }

    /// The value of the record with a key.
    pub fn record(&self, key: &[u8]) -> Option<&[u8]> {
        self.records.iter().find(|(other, _)| other == key).map(|(_, value)| &value[..])
    }

    /// Extended attributes: their names and values.
    pub fn xattrs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.records.iter().filter_map(|(key, value)| Some((key.strip_prefix(XATTR)?, &value[..])))
    }

    /// The path as text, for messages.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}
