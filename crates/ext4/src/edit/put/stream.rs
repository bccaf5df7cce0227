//! Contents that come one after the other, of which nobody may know how many there are.

use std::io::{ErrorKind, Read};
use std::path::Path;

use casemate_blockdev::{Events, u64_of, usize_of};

use crate::edit::Writer;
use crate::edit::encrypted::cipher;
use crate::edit::files::Files;
use crate::edit::inherit::{Inherited, inherit};
use crate::edit::node::{Body, NewNode};
use crate::edit::put::pipeline::CHUNK;
use crate::edit::too_large::TooLarge;
use crate::edit::writer::Behind;
use crate::error::{Error, Result};
use crate::format::inode::{FileType, Inode};
use crate::units::InodeNo;

/// A stream, and the listener to its progress.
pub(super) struct Stream<'a> {
    pub from: &'a mut dyn Chunks,
    pub events: &'a dyn Events,
}

/// Contents in the order in which they lie in a file.
pub(super) trait Chunks {
    /// Fills a buffer with what comes next: where in the file it begins, which is at a block, and how many bytes it
    /// has; fewer than there is room only before a hole or the end. None at the end.
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<(u64, usize)>>;

    /// The file's size, where it is known.
    fn size(&self) -> Option<u64>;
}

/// An error of the host at a path.
pub(super) fn told(path: &Path, error: std::io::Error) -> Error {
    match Error::from(error) {
        error if error.is_interrupt() => error,
        error => error.at(path.display()),
    }
}

/// All that comes out of a reader.
pub(super) struct Ahead<'a> {
    from: &'a mut dyn Read,
    /// Path of the stream in errors.
    path: &'a Path,
    at: u64,
}

impl<'a> Ahead<'a> {
    pub fn new(from: &'a mut dyn Read, path: &'a Path) -> Ahead<'a> {
        Ahead { from, path, at: 0 }
    }
}

impl Chunks for Ahead<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<(u64, usize)>> {
        let len = read_all(self.from, buffer).map_err(|error| told(self.path, error))?;
        let start = self.at;
        self.at += u64_of(len);
        Ok((len > 0).then_some((start, len)))
    }

    fn size(&self) -> Option<u64> {
        None
    }
}

/// A new file beside its contents.
pub(super) struct NewFile<'a> {
    pub parent: InodeNo,
    pub name: &'a [u8],
    pub node: &'a NewNode,
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
    /// Further attributes by their prefix index, as they are stored.
    pub acls: Vec<(u8, Vec<u8>)>,
}

impl Writer {
    /// Copies a stream to a name in a directory, for an owner if one is given. Returns how many bytes came.
    pub(super) fn put_unowned(
        &mut self,
        parent: InodeNo,
        name: &[u8],
        stream: Stream<'_>,
        owner: Option<(u32, u32)>,
    ) -> Result<u64> {
        let dir = self.files().get(parent)?;
        let found = self.fs().lookup(&dir, name)?.map(|found| self.fs().inode(found)).transpose()?;
        let mut xattrs = Vec::new();
        let Inherited { node, acls } = match found.filter(|found| found.kind() == FileType::Regular) {
            Some(found) => {
                let all = self.fs().xattrs(&found)?.into_iter().map(|xattr| (xattr.name, xattr.value));
                // As the kernel has it: contents that others may have made run with nobody's capabilities.
                xattrs.extend(all.filter(|(name, _)| name != b"security.capability"));
                Inherited { node: like(&found, owner), acls: Vec::new() }
            }
            None => {
                let (uid, gid) = owner.unwrap_or((0, 0));
                let node = NewNode { mode: 0o666, umask: 0o022, uid, gid, modified: None };
                inherit(self.fs(), &dir, FileType::Regular, &node)?
            }
        };
        let file = NewFile { parent, name, node: &node, xattrs: &xattrs, acls };
        Ok(self.put_stream(&mut (), &file, stream)?.1)
    }

    /// Makes a file of what comes out of a stream: its inode's number, and how many bytes came. In one transaction if
    /// that is little, else as [`Writer::in_steps`].
    pub(super) fn put_stream(
        &mut self,
        behind: &mut impl Behind,
        file: &NewFile<'_>,
        stream: Stream<'_>,
    ) -> Result<(InodeNo, u64)> {
        let Stream { from, events } = stream;
        let known = from.size();
        let mut bytes = 0;
        let mut read = |buffer: &mut [u8], end: u64| {
            let (start, len) = from.next(buffer)?.unwrap_or((end, 0));
            bytes += u64_of(len);
            events.advance(u64_of(len))?;
            Ok::<_, Error>((start, len))
        };
        // 1 MiB.
        let mut buffer = vec![0; usize_of(CHUNK)];
        let (mut start, mut len) = read(&mut buffer, 0)?;
        if start == 0 && len < buffer.len() && known.is_none_or(|size| size == u64_of(len)) {
            let number = self.operation_with(behind, |files, _| {
                files.make_way(file.parent, file.name)?;
                let mut inode = files.create_in(file.parent, file.name, file.node, Body::File)?;
                if files.inodes().contents(&mut inode).fits_inline(u64_of(len))? {
                    files.inodes().contents(&mut inode).store_inline(&buffer[..len])?;
                } else {
                    let block = files.space().block_bytes();
                    if append_bytes(files, &mut inode, 0, &mut buffer, len)? * block < u64_of(len) {
                        return Err(TooLarge::error());
                    }
                    files.inodes().map(&mut inode).set_size(u64_of(len))?;
                }
                finish_streamed(files, &mut inode, file)
            })?;
            return Ok((number, u64_of(len)));
        }
        let number = self
            .operation_with(behind, |files, _| Ok(files.create_unnamed(file.parent, file.node)?.number()))?;
        self.in_steps(behind, number, true, |files, _| {
            let mut inode = files.inodes().get_unlinked(number)?;
            files.inodes().view(&inode).check_size(known.unwrap_or(0))?;
            while len > 0 {
                if files.space().transaction().is_full() {
                    files.inodes().store(&inode)?;
                    return Ok(false);
                }
                let block = files.space().block_bytes();
                let reached = append_bytes(files, &mut inode, start / block, &mut buffer, len)? * block;
                let done = usize_of(reached - start).min(len);
                start += u64_of(done);
                buffer.copy_within(done..len, 0);
                len -= done;
                if len == 0 {
                    (start, len) = read(&mut buffer, start)?;
                }
            }
            files.inodes().map(&mut inode).set_size(known.unwrap_or(start))?;
            files.inodes().unlist_orphan(&mut inode)?;
            files.make_way(file.parent, file.name)?;
            files.give_name(file.parent, file.name, &mut inode)?;
            finish_streamed(files, &mut inode, file)?;
            Ok(true)
        })?;
        Ok((number, bytes))
    }
}

/// A file in place of another one. A new owner takes the bits that lend the old one's rights, as in chown(2).
fn like(old: &Inode, owner: Option<(u32, u32)>) -> NewNode {
    let (uid, gid) = owner.unwrap_or((old.uid(), old.gid()));
    let lent = match old.mode() & 0o010 {
        _ if (uid, gid) == (old.uid(), old.gid()) => 0,
        0 => 0o4000,
        _ => 0o6000,
    };
    NewNode { mode: old.mode() & 0o7777 & !lent, umask: 0, uid, gid, modified: None }
}

/// Gives the first `len` bytes of a buffer of whole blocks their place behind a file's end, as far as the transaction
/// has room: the block that it came to.
fn append_bytes(
    files: &mut Files,
    inode: &mut Inode,
    first: u64,
    buffer: &mut [u8],
    len: usize,
) -> Result<u64> {
    let block = files.space().block_size();
    files.inodes().view(inode).check_size(first * u64_of(block) + u64_of(len))?;
    let end = len.next_multiple_of(block);
    buffer[len..end].fill(0);
    let cipher = cipher(files.fs(), inode)?;
    let mut runs = Vec::new();
    let last = first + u64_of(end / block);
    let reached = files.inodes().map(inode).fill_some(first, last, false, |run| runs.push(run))?;
    for run in runs {
        let bytes = &mut buffer[run.bytes_from(first, block)];
        if let Some(cipher) = &cipher {
            cipher.encrypt(run.logical, bytes)?;
        }
        files.inodes().transaction().write_data(run.physical, bytes)?;
    }
    Ok(reached)
}

fn finish_streamed(files: &mut Files, inode: &mut Inode, file: &NewFile<'_>) -> Result<InodeNo> {
    files.put_xattrs(inode, file.xattrs)?;
    files.inodes().attributes(inode).set_stored(file.acls.clone())?;
    files.finish(inode, file.node)?;
    Ok(inode.number())
}

/// Fills a buffer as far as there is something.
fn read_all(from: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match from.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
