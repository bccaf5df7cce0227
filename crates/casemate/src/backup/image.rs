//! Restoring backups into an image, ciphertext as it is.

use std::collections::HashMap;

use casemate_blockdev::Progress;
use casemate_ext4::{Body, FileType, InodeFlags, RawAttributes};
use casemate_fscrypt::symlink_ciphertext;
use casemate_primitives::Cpu;
use casemate_primitives::base64::Base64;

use super::member::{context, inode_info, number, split, trim, value};
use super::tar::{Member, TarReader, Time};
use super::{CONTEXT, INODE, XATTR, codec};
use crate::Error;
use crate::ext4::{NewNode, PutReport, ReadError, Writer};

/// Bytes that are written at once: a multiple of every block.
const PIECE: u64 = 1 << 20;

/// Restores a backup as directory `path` of an image, without any key. The directory is made, unless it is there and
/// neither it nor the backup's is encrypted; the same holds for the directories below. No other file may be there.
///
/// Nothing is committed: the caller does that if there is no error, and drops the writer if there is one.
///
/// # Errors
/// `Unsupported` for policies whose IVs have inode numbers in them, for other block sizes than the backup's, for
/// casefolded encrypted directories, and without the feature encrypt; `Corrupt` if the stream is no backup; `Io` with
/// `AlreadyExists`, `StorageFull`.
pub fn restore(
    input: &mut dyn std::io::Read,
    name: &str,
    writer: &mut Writer,
    path: &[u8],
    cpu: Cpu,
    progress: &dyn Progress,
) -> Result<PutReport, Error> {
    let mut restore = Restore {
        writer,
        path,
        progress,
        codec: codec(cpu),
        folders: HashMap::new(),
        files: HashMap::new(),
        finish: Vec::new(),
        report: PutReport::default(),
    };
    let mut tar = TarReader::new(input, name);
    while let Some(member) = tar.next()? {
        let result = restore.member(&mut tar, &member);
        result.map_err(|error| error.within(String::from_utf8_lossy(&member.path)))?;
    }
    if restore.folders.is_empty() {
        return Err(tar.corrupt("no directory in it"));
    }
    // By now all names are in them, which changed their times.
    for (number, member) in std::mem::take(&mut restore.finish) {
        restore.attributes(number, &member, None)?;
    }
    Ok(restore.report)
}

struct Restore<'a> {
    writer: &'a mut Writer,
    /// Where the backup's top goes.
    path: &'a [u8],
    progress: &'a dyn Progress,
    codec: Base64<'static>,
    /// Directories by their path in the backup.
    folders: HashMap<Vec<u8>, Folder>,
    /// Inodes of everything else.
    files: HashMap<Vec<u8>, u32>,
    /// Directories that still need their attributes.
    finish: Vec<(u32, Member)>,
    report: PutReport,
}

#[derive(Clone, Copy)]
struct Folder {
    inode: u32,
    encrypted: bool,
}

impl Restore<'_> {
    fn member(&mut self, tar: &mut TarReader<'_>, member: &Member) -> Result<(), Error> {
        let stored = trim(&member.path);
        let context = self.context(member)?;
        if member.kind == b'5' {
            return self.directory(stored, member, context);
        }
        let (folder, name) = self.place(stored)?;
        let target;
        let body = match member.kind {
            b'0' | b'7' => Body::File,
            b'1' => {
                let Some(inode) = self.files.get(trim(&member.link)).copied() else {
                    return Err(Error::corrupt("a link to a file that did not come before it"));
                };
                self.writer.link_raw(folder.inode, &name, inode).map_err(inner)?;
                self.files.insert(stored.to_vec(), inode);
                self.report.others += 1;
                return Ok(());
            }
            b'2' if context.is_some() => {
                target = self.decode(&member.link)?;
                symlink_ciphertext(&target)?;
                // A NUL follows it in the block.
                if target.len() >= self.block_size() as usize {
                    return Err(Error::corrupt("a link's target of more than a block"));
                }
                Body::Symlink(&target)
            }
            b'2' => Body::Symlink(&member.link),
            b'3' => Body::Node(FileType::CharacterDevice, member.device.0, member.device.1),
            b'4' => Body::Node(FileType::BlockDevice, member.device.0, member.device.1),
            b'6' => Body::Node(FileType::Fifo, 0, 0),
            other => {
                return Err(Error::unsupported(format!("a member of type {:?}", char::from(other))));
            }
        };
        if context.is_some() && matches!(body, Body::Node(..)) {
            return Err(Error::corrupt("an encryption context of a file that has none"));
        }
        let inode = self.writer.create_raw(folder.inode, &name, body, context).map_err(inner)?;
        self.files.insert(stored.to_vec(), inode);
        if !matches!(body, Body::File) {
            self.report.others += 1;
            return self.attributes(inode, member, None);
        }
        let size = match context {
            None => member.size,
            Some(_) => {
                let size = number(member, "size")?;
                if size.checked_next_multiple_of(self.block_size()) != Some(member.size) {
                    return Err(Error::corrupt(format!("{size} bytes in {}", member.size)));
                }
                size
            }
        };
        self.contents(tar, member, inode, context.is_some())?;
        self.report.files += 1;
        self.attributes(inode, member, Some(size))
    }

    fn directory(&mut self, stored: &[u8], member: &Member, context: Option<&[u8]>) -> Result<(), Error> {
        let (parent, name, existing) = if stored.is_empty() {
            match self.writer.fs().resolve(self.path, true) {
                Ok(inode) => (0, Vec::new(), Some(inode.number())),
                Err(error) if error.is_not_found() => {
                    let (parent, name) = self.writer.parent_of(self.path).map_err(inner)?;
                    if self.writer.fs().inode(parent).map_err(inner)?.flags().has(InodeFlags::ENCRYPT) {
                        let text = "restoring into a directory that is encrypted itself";
                        return Err(Error::unsupported(text.to_owned()));
                    }
                    (parent, name, None)
                }
                Err(error) => return Err(inner(error)),
            }
        } else {
            let (folder, name) = self.place(stored)?;
            let found = match folder.encrypted {
                true => None,
                false => {
                    let dir = self.writer.fs().inode(folder.inode).map_err(inner)?;
                    self.writer.fs().lookup(&dir, &name).map_err(inner)?
                }
            };
            (folder.inode, name, found)
        };
        let inode = match existing {
            Some(number) => {
                let inode = self.writer.fs().inode(number).map_err(inner)?;
                if !inode.is_dir() || inode.flags().has(InodeFlags::ENCRYPT) || context.is_some() {
                    let shown = if stored.is_empty() { self.path } else { &name[..] };
                    let error = std::io::ErrorKind::AlreadyExists;
                    return Err(Error::io(String::from_utf8_lossy(shown), error));
                }
                number
            }
            None => {
                self.report.directories += 1;
                self.writer.create_raw(parent, &name, Body::Directory, context).map_err(inner)?
            }
        };
        self.folders.insert(stored.to_vec(), Folder { inode, encrypted: context.is_some() });
        self.finish.push((inode, member.attributes()));
        Ok(())
    }

    /// Copies contents in whole blocks, holes as holes.
    fn contents(
        &mut self,
        tar: &mut TarReader<'_>,
        member: &Member,
        inode: u32,
        encrypted: bool,
    ) -> Result<(), Error> {
        let block = self.block_size();
        // What was read and not written yet, from the block at `start` on.
        let (mut start, mut piece) = (0, Vec::new());
        for range in tar.ranges(member)? {
            if encrypted && (range.start % block != 0 || range.end % block != 0) {
                return Err(Error::corrupt(format!("a range that is not made of blocks of {block} bytes")));
            }
            let mut at = range.start;
            while at < range.end {
                let end: u64 = start + piece.len() as u64;
                if at / block > end.div_ceil(block) || at - start >= PIECE {
                    self.write(inode, start, &mut piece)?;
                    start = at - at % block;
                }
                // OK to cast: at most PIECE bytes.
                let len = (range.end - at).min(start.saturating_add(PIECE) - at) as usize;
                let from = (at - start) as usize;
                piece.resize(from + len, 0);
                tar.read(&mut piece[from..])?;
                at += len as u64;
                self.report.bytes += len as u64;
                self.progress.advance(len as u64).map_err(|error| Error::io("contents", error))?;
            }
        }
        self.write(inode, start, &mut piece)
    }

    fn write(&mut self, inode: u32, start: u64, piece: &mut Vec<u8>) -> Result<(), Error> {
        // OK to cast: a block is at most 64 KiB.
        piece.resize(piece.len().next_multiple_of(self.block_size() as usize), 0);
        if !piece.is_empty() {
            self.writer.write_raw(inode, start, piece).map_err(inner)?;
        }
        piece.clear();
        Ok(())
    }

    fn attributes(&mut self, inode: u32, member: &Member, size: Option<u64>) -> Result<(), Error> {
        let xattrs: Vec<_> = member
            .records(XATTR)
            .filter(|(name, _)| ![CONTEXT, INODE].map(str::as_bytes).contains(name))
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect();
        let time = |time: Time| crate::ext4::Time { seconds: time.seconds, nanoseconds: time.nanoseconds };
        let node = NewNode {
            // OK to truncate: permission bits.
            mode: (member.mode & 0o7777) as u16,
            uid: member.uid,
            gid: member.gid,
            modified: Some(time(member.modified)),
            ..NewNode::default()
        };
        let attributes = RawAttributes { node, accessed: member.accessed.map(time), size, xattrs: &xattrs };
        self.writer.finish_raw(inode, &attributes).map_err(inner)
    }

    /// The folder of a path in the backup, and the name as the image stores it.
    fn place(&self, stored: &[u8]) -> Result<(Folder, Vec<u8>), Error> {
        let (parent, name) = split(stored);
        let folder = self.folders.get(parent).copied();
        let folder = folder.ok_or_else(|| Error::corrupt("its directory did not come before it"))?;
        if folder.encrypted {
            return Ok((folder, self.decode(name)?));
        }
        if matches!(name, b"" | b"." | b"..") {
            return Err(Error::corrupt(format!("'{}' is no name", name.escape_ascii())));
        }
        Ok((folder, name.to_vec()))
    }

    fn decode(&self, text: &[u8]) -> Result<Vec<u8>, Error> {
        self.codec.decode_to_vec(text).map_err(|error| Error::corrupt(error.to_string()))
    }

    /// A member's context, if it is encrypted and can be so in another inode of this image.
    fn context<'m>(&self, member: &'m Member) -> Result<Option<&'m [u8]>, Error> {
        let Some(inode) = inode_info(member)? else { return Ok(None) };
        let policy = inode.context.policy;
        if matches!(policy.ivs, casemate_fscrypt::Ivs::InodeBlock64 | casemate_fscrypt::Ivs::InodeBlock32) {
            let name = policy.ivs.flag_name().unwrap_or_default();
            return Err(Error::unsupported(format!(
                "its policy has {name}: what is encrypted with its inode's number can't be read from another inode"
            )));
        }
        let (block, have) = (u64::from(inode.block_size), self.block_size());
        if block != have {
            return Err(Error::unsupported(format!(
                "encrypted in blocks of {block} bytes, and the image has blocks of {have} bytes"
            )));
        }
        policy.data_unit_size(inode.block_size)?;
        if value(member, "casefold").is_some() {
            let text = "restoring encrypted directories without regard to case";
            return Err(Error::unsupported(text.to_owned()));
        }
        Ok(context(member))
    }

    fn block_size(&self) -> u64 {
        self.writer.fs().layout().block_size.into()
    }
}

/// An error of the image. Whose, the caller says.
fn inner(error: ReadError) -> Error {
    error.at("image")
}
