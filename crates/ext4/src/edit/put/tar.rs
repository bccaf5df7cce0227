//! Copying tar streams into a file system.

use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, Read};

use casemate_blockdev::{Events, os};
use casemate_providers::Work;
use casemate_trees::tar::{Attributes, Member, Pieces, TarReader, Xattr};
use casemate_trees::{Link, below, split, unpacked};

use crate::edit::Writer;
use crate::edit::create::is_not_found;
use crate::edit::node::{Body, NewNode, check_owner};
use crate::edit::put::stream::{Chunks, NewFile, Stream};
use crate::edit::put::{PutOptions, PutReport, from_source};
use crate::edit::restore::RawAttributes;
use crate::edit::xattr::{MOST_NAME, is_storable};
use crate::error::{Error, Result, invalid};
use crate::format::inode::{FileType, Stamp, Time};
use crate::units::InodeNo;

/// A copy that is going on.
struct Put<'a> {
    options: &'a PutOptions,
    work: &'a Work<'a>,
    /// The directory that all goes below.
    top: InodeNo,
    /// Directories by their paths below it.
    folders: HashMap<Vec<u8>, InodeNo>,
    /// Directories that were not there before, and the times that they get in the end.
    made: BTreeMap<InodeNo, Option<Time>>,
    report: PutReport,
}

/// Warns that a stream has no end.
pub(crate) fn tell_open(tar: &TarReader<'_>, name: &str, events: &dyn Events) {
    if tar.is_open() {
        let text =
            "ends behind a member, without the zeros that end a tar stream: it may have been cut short";
        events.note(&format!("{name}: tar stream: it {text}"));
    }
}

/// Attributes and records of a stream's members that are not stored. They are told at the stream's end: all members may have them.
#[derive(Default)]
pub(crate) struct LeftOut {
    /// How many members have each attribute.
    names: BTreeMap<Vec<u8>, u64>,
    /// Members with others.
    more: u64,
    /// How many members have each of [`RECORDS`].
    records: [u64; RECORDS.len()],
}

/// Names of attributes that are told.
const MOST_LEFT_OUT: usize = 16;

/// Records that change what a file is, that are not kept, and what they hold.
const RECORDS: [(&str, &str); 2] = [("SCHILY.fflags", "flags"), ("SCHILY.acl.ace", "ACLs of NFSv4")];

impl LeftOut {
    /// Takes from a member's attributes those with names that no file of ext4 can have, and notes them; too long names are
    /// told at once.
    pub(crate) fn note(&mut self, member: &Member, xattrs: &mut Vec<Xattr>, events: &dyn Events) {
        for ((key, _), members) in RECORDS.iter().zip(&mut self.records) {
            *members += u64::from(member.record(key.as_bytes()).is_some_and(|value| !value.is_empty()));
        }
        for (name, _) in xattrs.extract_if(.., |(name, _)| !is_storable(name)) {
            if name.len() > MOST_NAME {
                let text = format!(
                    "an attribute whose name has {} bytes is left out; ext4 takes {MOST_NAME}",
                    name.len()
                );
                events.note(&format!("{}: {text}", member.shown()));
            } else if self.names.len() < MOST_LEFT_OUT || self.names.contains_key(&name) {
                *self.names.entry(name).or_default() += 1;
            } else {
                self.more += 1;
            }
        }
    }

    /// Reports what was noted of the stream of this name.
    pub(crate) fn tell(self, stream: &str, events: &dyn Events) {
        for (name, members) in self.names {
            let name = name.escape_ascii();
            let text = format!("ext4 has no attributes of this kind; members with it: {members}");
            events.note(&format!("{stream}: tar stream: the attribute '{name}' is left out: {text}"));
        }
        if self.more > 0 {
            let text = format!("{} more attributes of members are left out", self.more);
            events.note(&format!("{stream}: tar stream: {text}"));
        }
        for ((key, what), members) in RECORDS.iter().zip(self.records).filter(|(_, members)| *members > 0) {
            let text = format!("{what} ({key}) are left out; members with them: {members}");
            events.note(&format!("{stream}: tar stream: {text}"));
        }
    }
}

/// Attributes of a member, none if they are not wanted.
pub(crate) fn attributes(member: &Member, are_wanted: bool) -> Result<Attributes> {
    match are_wanted {
        true => member.attributes(),
        false => Ok(Attributes { xattrs: Vec::new(), mode: member.mode_without_acl() }),
    }
}

impl Writer {
    /// Copies what a tar stream has, which errors call `name`, into the directory that the path `to` names, and makes
    /// that if it is not there.
    ///
    /// Modes, owners, times of modification, holes, hard links, attributes and devices are kept; as in
    /// [`put`](Writer::put) a name that is there already gets the new file, a directory stays and is added to. All
    /// stays below `to`: a path from the root is taken from there, one with `..` is refused, and no link is followed.
    ///
    /// # Errors
    /// `Corrupt` when it is no tar stream, or ends early; `InvalidInput`, `IsADirectory`, `NotADirectory` for paths;
    /// `StorageFull`. As with `put`, what was large may be committed by then.
    pub fn put_tar(
        &mut self,
        from: &mut dyn Read,
        name: &str,
        to: &[u8],
        options: &PutOptions,
        work: &Work<'_>,
    ) -> Result<PutReport> {
        let mut put = Put {
            options,
            work,
            top: InodeNo::ROOT,
            folders: HashMap::new(),
            made: BTreeMap::new(),
            report: PutReport::default(),
        };
        match self.fs().resolve(to, true) {
            Ok(inode) if inode.is_dir() => put.top = inode.number(),
            Ok(_) => return Err(no_directory(to)),
            Err(error) if is_not_found(&error) => {
                let (parent, name) = self.parent_of(to)?;
                put.top = self.make_folder(&mut put, parent, &name)?;
            }
            Err(error) => return Err(error),
        }
        let mut from = unpacked(from).map_err(|error| error.at(name))?;
        let mut tar = TarReader::new(&mut from, name).or_open();
        let mut left_out = LeftOut::default();
        while let Some(member) = tar.next()? {
            work.events.advance(0)?;
            let path = os::path(&member.path);
            self.put_member(&mut put, &mut tar, &member, &mut left_out)
                .map_err(|error| from_source(&path, error))?;
        }
        tell_open(&tar, name, work.events);
        left_out.tell(name, work.events);
        // All names are in them by now.
        for (number, time) in put.made {
            let Some(time) = time else { continue };
            self.operation(|files| {
                let mut dir = files.get(number)?;
                dir.set_time(Stamp::Modified, time);
                dir.set_time(Stamp::Accessed, time);
                files.inodes().store(&dir)
            })?;
        }
        self.tell_cut_times(work.events);
        Ok(put.report)
    }

    fn put_member(
        &mut self,
        put: &mut Put<'_>,
        tar: &mut TarReader<'_>,
        member: &Member,
        left_out: &mut LeftOut,
    ) -> Result<()> {
        let path = below(&member.path)?;
        let (uid, gid) = put.options.owner.unwrap_or((member.node.uid, member.node.gid));
        check_owner(uid, gid)?;
        let modified = Some(member.node.modified);
        let Attributes { mut xattrs, mode } =
            attributes(member, put.options.xattrs).map_err(|error| error.within(member.shown()))?;
        left_out.note(member, &mut xattrs, put.work.events);
        let node = NewNode { mode, umask: 0, uid, gid, modified };
        if member.link.is_none() && member.node.kind == FileType::Directory {
            return self.put_folder(put, &path, &node, &xattrs);
        }
        let (parent, name) = split(&path);
        if name.is_empty() {
            return Err(invalid(ErrorKind::InvalidInput, "a file without a name"));
        }
        let parent = self.folder_of(put, parent)?;
        let body = match &member.link {
            Some(Link::Hard(first)) => return self.put_link(put, parent, name, first),
            Some(Link::Symbolic(target)) => Body::Symlink(target),
            None if member.node.kind == FileType::Regular => {
                self.recycle(&mut (), member.size)?;
                let ranges = tar.ranges(member)?;
                let pieces = Pieces::new(ranges, self.files().space().block_bytes());
                let mut chunks = Contents { tar, pieces, size: member.size };
                let stream = Stream { from: &mut chunks, events: put.work.events };
                let new = NewFile { parent, name, node: &node, xattrs: &xattrs, acls: Vec::new() };
                let (_, bytes) = self.put_stream(&mut (), &new, stream)?;
                put.report.files += 1;
                put.report.bytes += bytes;
                return Ok(());
            }
            None => Body::Node(member.node.kind, member.node.device.0, member.node.device.1),
        };
        self.recycle(&mut (), 0)?;
        self.operation(|files| {
            files.make_way(parent, name)?;
            let mut inode = files.create_in(parent, name, &node, body)?;
            files.put_xattrs(&mut inode, &xattrs)?;
            files.finish(&mut inode, &node)
        })?;
        put.report.others += 1;
        Ok(())
    }

    /// Gives a file of the tree a further name.
    fn put_link(&mut self, put: &mut Put<'_>, parent: InodeNo, name: &[u8], first: &[u8]) -> Result<()> {
        let first = below(first)?;
        let mut inode = self.fs().inode(put.top)?;
        for part in first.split(|byte| *byte == b'/') {
            let found = if inode.is_dir() { self.fs().lookup(&inode, part)? } else { None };
            let Some(found) = found else {
                let text = format!("{}: not there to be linked to", String::from_utf8_lossy(&first));
                return Err(invalid(ErrorKind::NotFound, text));
            };
            inode = self.fs().inode(found)?;
        }
        put.report.others += 1;
        let dir = self.fs().inode(parent)?;
        if self.fs().lookup(&dir, name)? == Some(inode.number()) {
            // It has this name; who made way for it first would lose it.
            return Ok(());
        }
        self.operation(|files| {
            files.make_way(parent, name)?;
            files.link_in(parent, name, inode.number())
        })
    }

    fn put_folder(
        &mut self,
        put: &mut Put<'_>,
        path: &[u8],
        node: &NewNode,
        xattrs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<()> {
        let number = self.folder_of(put, path)?;
        // One that was there before stays as it is.
        if let Some(time) = put.made.get_mut(&number) {
            *time = node.modified;
            let attributes = RawAttributes { node: *node, accessed: None, size: None, xattrs };
            self.finish_raw(number, &attributes)?;
        }
        Ok(())
    }

    /// The directory at a path, which is made with those above it if it is not there.
    fn folder_of(&mut self, put: &mut Put<'_>, path: &[u8]) -> Result<InodeNo> {
        if let Some(number) = put.folders.get(path) {
            return Ok(*number);
        }
        let mut number = put.top;
        let mut end = 0;
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            end += usize::from(end > 0) + part.len();
            if let Some(known) = put.folders.get(&path[..end]) {
                number = *known;
                continue;
            }
            let dir = self.fs().inode(number)?;
            number = match self.fs().lookup(&dir, part)? {
                Some(found) if self.fs().inode(found)?.is_dir() => found,
                Some(_) => return Err(no_directory(&path[..end])),
                None => self.make_folder(put, number, part)?,
            };
            put.folders.insert(path[..end].to_vec(), number);
        }
        Ok(number)
    }

    /// Makes a directory that nothing is known of yet.
    fn make_folder(&mut self, put: &mut Put<'_>, parent: InodeNo, name: &[u8]) -> Result<InodeNo> {
        let (uid, gid) = put.options.owner.unwrap_or((0, 0));
        let node = NewNode { mode: 0o755, umask: 0, uid, gid, modified: None };
        self.recycle(&mut (), 0)?;
        let number = self.operation(|files| {
            let mut inode = files.create_in(parent, name, &node, Body::Directory)?;
            files.finish(&mut inode, &node)?;
            Ok(inode.number())
        })?;
        put.made.insert(number, None);
        put.report.directories += 1;
        Ok(number)
    }
}

/// A regular member's contents.
struct Contents<'a, 'b> {
    tar: &'a mut TarReader<'b>,
    pieces: Pieces,
    size: u64,
}

impl Chunks for Contents<'_, '_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<(u64, usize)>> {
        self.pieces.next(self.tar, buffer)
    }

    fn size(&self) -> Option<u64> {
        Some(self.size)
    }
}

fn no_directory(path: &[u8]) -> Error {
    let text =
        format!("{}: is not a directory, and a link to one is not followed", String::from_utf8_lossy(path));
    invalid(ErrorKind::NotADirectory, text)
}
