//! Tar streams as the source of a tree: those of whole file systems, and layers of OCI images.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, ErrorKind, Read};
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Events, u64_of, usize_of};
use casemate_trees::tar::{Attributes, Member, TarReader};
use casemate_trees::{Link, Node, below, split};

use crate::build::contents::{Contents, FirstReading, Source};
use crate::build::tree::{Body, TOP, Tree, TreeOptions};
use crate::edit::{LeftOut, attributes, tell_open};
use crate::error::{Error, Result, invalid};
use crate::format::inode::FileType;

/// Prefix of names that remove a file of an earlier layer, and the name that removes all that a directory had.
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Prefix of the names that AUFS has for itself: no files of the image.
const AUFS: &[u8] = b".wh..wh.";

/// Names that a path of a layer may lead through, and links, as in Linux.
const MOST_STEPS: usize = 4096;
const MOST_LINKS: u32 = 40;

/// Reason why a path of a layer is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// A new file: directories are made that are not there.
    File,
    /// A link to a file that is there.
    Link,
    /// A whiteout, which is about earlier layers alone.
    Whiteout,
}

/// Names of a layer in one directory: its whiteouts do not remove these.
#[derive(Default)]
struct Own {
    names: BTreeSet<Vec<u8>>,
    /// Whether the layer hides all that earlier ones have there.
    is_opaque: bool,
}

/// Bytes that are read ahead.
const AHEAD: usize = 1 << 18;

/// Bytes that are read behind contents that were passed over: most likely one header. Copying so many takes as long as a
/// call of the system.
const HEADER: usize = 4096;

/// Where the bytes of a stream lie by the time that contents are read.
struct Place<'a> {
    device: &'a Arc<dyn BlockDevice>,
    /// Name of the stream in errors.
    name: &'a str,
    /// The byte of the stream that comes next.
    at: &'a Cell<u64>,
    /// Where bytes end that are there already, which need not be read to be passed over.
    end: u64,
}

/// Bytes of a stream, and how many were read.
struct Counting<'a> {
    input: BufReader<&'a mut dyn Read>,
    at: &'a Cell<u64>,
}

/// The bytes of a device, parts of which may be passed over.
struct Bytes<'a> {
    device: &'a dyn BlockDevice,
    size: u64,
    at: &'a Cell<u64>,
    /// Bytes that were read ahead, and where they begin.
    ahead: Vec<u8>,
    start: u64,
}

/// A stream whose bytes are written to a device, zeros as holes where there was nothing yet.
struct Kept<'a> {
    input: &'a mut dyn Read,
    device: &'a dyn BlockDevice,
    at: u64,
}

impl Tree {
    /// Adds what a tar stream has that lies on a device, which errors call `name`. Contents stay there until the plan is
    /// written.
    ///
    /// A path from the root is taken from the tree's top, one with `..` is refused, and no link is followed. Of what is
    /// there twice the last one counts; a directory is added to. In layers, paths lead through links within the tree, and
    /// `..` may go as far up as the path went down; whiteouts are about earlier layers, wherever they stand.
    ///
    /// # Errors
    /// `Corrupt` when it is no tar stream, or ends early; `InvalidInput`, `NotADirectory`, `NotFound` for paths.
    pub fn add_tar(
        &mut self,
        device: Arc<dyn BlockDevice>,
        name: &str,
        options: &TreeOptions,
        events: &dyn Events,
    ) -> Result<()> {
        let (at, size) = (Cell::new(0), device.size());
        let mut input = Bytes { device: &*device, size, at: &at, ahead: Vec::new(), start: 0 };
        let place = Place { device: &device, name, at: &at, end: size };
        self.add_members(&mut input, &place, options, events)
    }

    /// Adds the files of a tar stream that cannot be read again. Contents are written to `kept`, an empty device that
    /// grows, as many bytes as the members have, and stay there until the plan is written.
    ///
    /// # Errors
    /// As [`Tree::add_tar`], and what reading and writing say.
    pub fn add_tar_stream(
        &mut self,
        stream: &mut dyn Read,
        kept: Arc<dyn BlockDevice>,
        name: &str,
        options: &TreeOptions,
        events: &dyn Events,
    ) -> Result<()> {
        let at = Cell::new(0);
        let mut input = Kept { input: stream, device: &*kept, at: 0 };
        let mut counting = Counting { input: BufReader::with_capacity(AHEAD, &mut input), at: &at };
        self.add_members(&mut counting, &Place { device: &kept, name, at: &at, end: 0 }, options, events)?;
        let end = input.at;
        if end > kept.size() {
            kept.write_at(&[0], end - 1)?;
        }
        Ok(())
    }

    /// Adds the members of a stream.
    fn add_members(
        &mut self,
        input: &mut dyn Read,
        place: &Place<'_>,
        options: &TreeOptions,
        events: &dyn Events,
    ) -> Result<()> {
        let Place { device, name, at, end } = *place;
        let mut tar = TarReader::new(input, name).or_open();
        let mut own = BTreeMap::new();
        let mut left_out = LeftOut::default();
        while let Some(member) = tar.next()? {
            events.advance(0)?;
            let ranges = match member.link.is_none() && member.node.kind == FileType::Regular {
                true => Some(tar.ranges(&member)?),
                false => None,
            };
            let contents = ranges.map(|ranges| {
                let is_whole = ranges.iter().map(|range| range.end - range.start).sum::<u64>() == member.size;
                Contents {
                    size: member.size,
                    ranges: (!is_whole).then_some(ranges),
                    from: Source::Within(Arc::clone(device), at.get()),
                    reading: FirstReading::default(),
                }
            });
            tar.pass(|len| {
                let to = at.get().checked_add(len).filter(|to| *to <= end);
                to.inspect(|to| at.set(*to)).is_some()
            });
            let shown = member.shown();
            attributes(&member, options.xattrs)
                .and_then(|mut attributes| {
                    left_out.note(&member, &mut attributes.xattrs, events);
                    self.add_member(member, attributes, contents, options, &mut own)
                })
                .map_err(|error| error.within(shown).at(name))?;
        }
        tell_open(&tar, name, events);
        left_out.tell(name, events);
        Ok(())
    }

    fn add_member(
        &mut self,
        member: Member,
        attributes: Attributes,
        contents: Option<Contents>,
        options: &TreeOptions,
        own: &mut BTreeMap<u32, Own>,
    ) -> Result<()> {
        let is_layer = options.whiteouts;
        let path = if is_layer { cleaned(&member.path)? } else { below(&member.path)? };
        if is_layer && path.split(|byte| *byte == b'/').any(|name| name.starts_with(AUFS) && name != OPAQUE) {
            return Ok(());
        }
        let (uid, gid) = options.owners.map(member.node.uid, member.node.gid)?;
        let Attributes { mut xattrs, mode } = attributes;
        options.owners.map_xattrs(&mut xattrs)?;
        let node = Node { uid, gid, mode: mode & 0o7777, ..member.node };
        let (above, name) = split(&path);
        let is_folder = member.link.is_none() && member.node.kind == FileType::Directory;
        if name.is_empty() {
            if !is_folder {
                return Err(invalid(ErrorKind::InvalidInput, "a file without a name"));
            }
            return self.describe_directory(TOP, node, xattrs);
        }
        if is_layer && name.starts_with(WHITEOUT) {
            // Where there is nothing, nothing is removed.
            let parent = self.follow(above, For::Whiteout, own)?;
            return parent.map_or(Ok(()), |parent| self.whiteout(parent, name, own));
        }
        let parent = match is_layer {
            true => self.follow(above, For::File, own)?.ok_or(ErrorKind::NotFound)?,
            false => self.directory(above)?,
        };
        if is_layer {
            own.entry(parent).or_default().names.insert(name.to_vec());
        }
        let body = match (member.link, contents) {
            (Some(Link::Hard(first)), _) => {
                let first = if is_layer { cleaned(&first)? } else { below(&first)? };
                let found = match is_layer {
                    true => {
                        let (above, name) = split(&first);
                        let parent = self.follow(above, For::Link, own)?;
                        parent.and_then(|parent| self.find(parent, name))
                    }
                    false => self.lookup(&first),
                };
                let found = found.filter(|found| !self.is_directory(*found));
                let found = found.ok_or_else(|| {
                    let text = format!("{}: not there to be linked to", String::from_utf8_lossy(&first));
                    invalid(ErrorKind::NotFound, text)
                })?;
                // As any other file of a layer, it takes the place of what an earlier one has.
                if !is_layer {
                    self.refuse_directory(parent, name)?;
                }
                return self.link(parent, name, found);
            }
            (Some(Link::Symbolic(target)), _) => Body::Symlink(target),
            (None, Some(contents)) => Body::File(contents),
            (None, None) if is_folder => Body::Directory(BTreeMap::new()),
            (None, None) => Body::Node,
        };
        if !is_folder && !options.whiteouts {
            self.refuse_directory(parent, name)?;
        }
        self.put(parent, name, node, xattrs, body).map(drop)
    }

    /// The directory that a path of a layer leads to, through links, none of which leads out of the tree; `None` if it is not
    /// there. The layer has the directories that the path of a file leads through.
    fn follow(&mut self, path: &[u8], wanted: For, own: &mut BTreeMap<u32, Own>) -> Result<Option<u32>> {
        let parts =
            |path: &[u8]| path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec).collect::<Vec<_>>();
        let (mut rest, mut above, mut at) = (parts(path), Vec::new(), TOP);
        let (mut steps, mut links) = (0, 0);
        while let Some(part) = rest.pop() {
            steps += 1;
            if steps > MOST_STEPS || links > MOST_LINKS {
                let text = format!("{}: too many links on the way", String::from_utf8_lossy(path));
                return Err(invalid(ErrorKind::InvalidInput, text));
            }
            match &part[..] {
                b"" | b"." => continue,
                b".." => {
                    at = above.pop().unwrap_or(TOP);
                    continue;
                }
                _ => {}
            }
            let is_own = own.get(&at).is_some_and(|own| own.names.contains(&part));
            let next = match self.find(at, &part) {
                Some(found) if self.is_directory(found) => found,
                // What the layer itself has put there is nothing of an earlier one.
                Some(_) if wanted == For::Whiteout && is_own => return Ok(None),
                Some(found) => match &self.entry(found).body {
                    Body::Symlink(target) => {
                        links += 1;
                        if target.starts_with(b"/") {
                            (at, above) = (TOP, Vec::new());
                        }
                        rest.extend(parts(target));
                        continue;
                    }
                    _ if wanted == For::File => {
                        let text = format!("{}: is not a directory", String::from_utf8_lossy(path));
                        return Err(invalid(ErrorKind::NotADirectory, text));
                    }
                    _ => return Ok(None),
                },
                None if wanted == For::File => self.make_directory(at, &part)?,
                None => return Ok(None),
            };
            if wanted == For::File && !is_own {
                own.entry(at).or_default().names.insert(part);
            }
            above.push(std::mem::replace(&mut at, next));
        }
        Ok(Some(at))
    }

    /// Removes what earlier layers have of a directory, or of a name in it, whatever the layer has put there before.
    fn whiteout(&mut self, parent: u32, name: &[u8], own: &mut BTreeMap<u32, Own>) -> Result<()> {
        if name == OPAQUE {
            return self.hide(parent, own);
        }
        let hidden = name.strip_prefix(WHITEOUT).unwrap_or(name);
        if !own.get(&parent).is_some_and(|own| own.names.contains(hidden)) {
            return self.remove(parent, hidden);
        }
        match self.find(parent, hidden).filter(|found| self.is_directory(*found)) {
            Some(found) => self.hide(found, own),
            None => Ok(()),
        }
    }

    /// Removes what a directory, and those below it, have of earlier layers.
    fn hide(&mut self, directory: u32, own: &mut BTreeMap<u32, Own>) -> Result<()> {
        let mut open = vec![directory];
        while let Some(directory) = open.pop() {
            let own = own.entry(directory).or_default();
            // There is nothing left of them the second time.
            if std::mem::replace(&mut own.is_opaque, true) {
                continue;
            }
            let Body::Directory(names) = &self.entry(directory).body else { continue };
            let kept = own.names.iter().filter_map(|name| Some((name.clone(), *names.get(&name[..])?)));
            let kept: Vec<(Vec<u8>, u32)> = kept.collect();
            self.clear(directory)?;
            for (name, number) in kept {
                self.link(directory, &name, number)?;
                open.push(number);
            }
        }
        Ok(())
    }

    /// Refuses to replace a directory, with all that is in it, by a file.
    fn refuse_directory(&self, parent: u32, name: &[u8]) -> Result<()> {
        let Body::Directory(names) = &self.entry(parent).body else { return Ok(()) };
        match names.get(name) {
            Some(found) if self.is_directory(*found) => {
                let text = "a directory has the name of a file";
                Err(invalid(ErrorKind::IsADirectory, text))
            }
            _ => Ok(()),
        }
    }
}

/// A path of a layer with as few names as possible: `a/../b` is `b`.
///
/// # Errors
/// Errors of [`below`], as for a path that leads out of the tree.
fn cleaned(path: &[u8]) -> Result<Vec<u8>> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            // One that leads out is refused.
            b".." if kept.pop().is_none() => return below(path),
            b".." => {}
            _ => kept.push(part),
        }
    }
    below(&kept.join(&b'/'))
}

impl Read for Counting<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = self.input.read(buf)?;
        self.at.set(self.at.get() + u64_of(len));
        Ok(len)
    }
}

impl Read for Bytes<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let at = self.at.get();
        let end = self.start + u64_of(self.ahead.len());
        if !(self.start..end).contains(&at) {
            let most = if at.abs_diff(end) < u64_of(HEADER) { AHEAD } else { HEADER };
            // At most what is read ahead.
            self.ahead.resize(usize_of(self.size.saturating_sub(at)).min(most), 0);
            let read = self.device.read_at(&mut self.ahead, at);
            read.map_err(|error: Error| std::io::Error::other(error.to_string()))?;
            self.start = at;
        }
        let ahead = &self.ahead[usize_of(at - self.start)..];
        let len = ahead.len().min(buf.len());
        buf[..len].copy_from_slice(&ahead[..len]);
        self.at.set(at + u64_of(len));
        Ok(len)
    }
}

impl Read for Kept<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = self.input.read(buf)?;
        if buf[..len].iter().any(|byte| *byte != 0) {
            let written = self.device.write_at(&buf[..len], self.at);
            written.map_err(|error: Error| std::io::Error::other(format!("a temporary copy: {error}")))?;
        }
        self.at += u64_of(len);
        Ok(len)
    }
}
