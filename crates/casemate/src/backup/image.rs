//! Restoring backups into an image, ciphertext as it is.

use std::collections::HashMap;

use casemate_blockdev::{Events, u64_of, usize_of};
use casemate_ext4::{Body, FileType, InodeFlags, InodeNo, RawAttributes};
use casemate_fscrypt::backup::{codec, context, inode_info, number, value, xattrs};
use casemate_fscrypt::symlink_ciphertext;
use casemate_primitives::base64::Base64;
use casemate_providers::Work;
use casemate_trees::tar::{Member, Pieces, TarReader};
use casemate_trees::{Link, split, trim};

use crate::Error;
use crate::ext4::{NewNode, PutReport, Writer};

/// Bytes that are written at once: a multiple of every block.
const PIECE: usize = 1 << 20;

/// Restores a backup as directory `path` of an image, without any key. The directory is made, unless it is there and
/// neither it nor the backup's is encrypted; the same holds for the directories below. No other file may be there.
///
/// Nothing is committed: the caller does that if there is no error. After one in the middle the writer commits nothing any more.
///
/// # Errors
/// `Unsupported` for policies whose IVs have inode numbers in them, for other block sizes than the backup's, for
/// casefolded encrypted directories, and without the feature encrypt; `Corrupt` if the stream is not a backup; `Io` with
/// `AlreadyExists`, `StorageFull`.
pub fn restore(
    input: &mut dyn std::io::Read,
    name: &str,
    writer: &mut Writer,
    path: &[u8],
    work: &Work<'_>,
) -> Result<PutReport, Error> {
    let mut restore = Restore {
        writer,
        path,
        progress: work.events,
        codec: codec(work.providers.cpu()),
        folders: HashMap::new(),
        files: HashMap::new(),
        finish: Vec::new(),
        report: PutReport::default(),
    };
    let done = restore.all(TarReader::new(input, name));
    if done.is_err() && !restore.folders.is_empty() {
        restore.writer.break_off();
    }
    done.map(|()| restore.report)
}

struct Restore<'a> {
    writer: &'a mut Writer,
    /// Where the backup's top goes.
    path: &'a [u8],
    progress: &'a dyn Events,
    codec: Base64<'static>,
    /// Directories by their path in the backup.
    folders: HashMap<Vec<u8>, Folder>,
    /// Inodes of everything else.
    files: HashMap<Vec<u8>, InodeNo>,
    /// Directories that still need their attributes.
    finish: Vec<(InodeNo, Member)>,
    report: PutReport,
}

#[derive(Clone, Copy)]
struct Folder {
    inode: InodeNo,
    encrypted: bool,
}

impl Restore<'_> {
    /// Puts everything of a backup back.
    fn all(&mut self, mut tar: TarReader<'_>) -> Result<(), Error> {
        while let Some(member) = tar.next()? {
            self.member(&mut tar, &member).map_err(|error| error.within(member.shown()))?;
        }
        if self.folders.is_empty() {
            return Err(tar.corrupt("the backup holds no directory"));
        }
        // By now all names are in them, which changed their times.
        for (number, member) in std::mem::take(&mut self.finish) {
            self.attributes(number, &member, None)?;
        }
        Ok(())
    }

    fn member(&mut self, tar: &mut TarReader<'_>, member: &Member) -> Result<(), Error> {
        let stored = trim(&member.path);
        let context = self.context(member)?;
        if member.link.is_none() && member.node.kind == FileType::Directory {
            return self.directory(stored, member, context);
        }
        let (folder, name) = self.place(stored)?;
        let target;
        let body = match &member.link {
            Some(Link::Hard(first)) => {
                let Some(inode) = self.files.get(trim(first)).copied() else {
                    return Err(Error::corrupt("a hard link names a file that does not come before it"));
                };
                self.writer.link_raw(folder.inode, &name, inode).map_err(inner)?;
                self.files.insert(stored.to_vec(), inode);
                self.report.others += 1;
                return Ok(());
            }
            Some(Link::Symbolic(link)) if context.is_some() => {
                target = self.decode(link)?;
                symlink_ciphertext(&target)?;
                // A NUL follows it in the block.
                if target.len() >= usize_of(self.block_size()) {
                    return Err(Error::corrupt("the target of a link is longer than a block"));
                }
                Body::Symlink(&target)
            }
            Some(Link::Symbolic(link)) => Body::Symlink(link),
            None if member.node.kind == FileType::Regular => Body::File,
            None => Body::Node(member.node.kind, member.node.device.0, member.node.device.1),
        };
        if context.is_some() && matches!(body, Body::Node(..)) {
            return Err(Error::corrupt("a device, pipe or socket has an encryption context"));
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
                Ok(inode) => (inode.number(), Vec::new(), Some(inode.number())),
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
        self.finish.push((inode, member.clone()));
        Ok(())
    }

    /// Copies contents in whole blocks, holes as holes.
    fn contents(
        &mut self,
        tar: &mut TarReader<'_>,
        member: &Member,
        inode: InodeNo,
        encrypted: bool,
    ) -> Result<(), Error> {
        let block = self.block_size();
        let ranges = tar.ranges(member)?;
        if encrypted && ranges.iter().any(|range| range.start % block != 0 || range.end % block != 0) {
            return Err(Error::corrupt(format!("a range does not consist of blocks of {block} bytes")));
        }
        let mut pieces = Pieces::new(ranges, block);
        let mut buffer = vec![0; PIECE];
        while let Some((start, len)) = pieces.next(tar, &mut buffer)? {
            let whole = len.next_multiple_of(usize_of(block));
            buffer[len..whole].fill(0);
            self.writer.write_raw(inode, start, &buffer[..whole]).map_err(inner)?;
            self.report.bytes += u64_of(len);
            self.progress.advance(u64_of(len)).map_err(|error| Error::io("contents", error))?;
        }
        Ok(())
    }

    fn attributes(&mut self, inode: InodeNo, member: &Member, size: Option<u64>) -> Result<(), Error> {
        let xattrs: Vec<_> = xattrs(member).map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let mut node = NewNode::default();
        node.mode = member.node.mode;
        node.uid = member.node.uid;
        node.gid = member.node.gid;
        node.modified = Some(member.node.modified);
        let attributes = RawAttributes { node, accessed: member.node.accessed, size, xattrs: &xattrs };
        self.writer.finish_raw(inode, &attributes).map_err(inner)
    }

    /// The folder of a path in the backup, and the name as the image stores it.
    fn place(&self, stored: &[u8]) -> Result<(Folder, Vec<u8>), Error> {
        let (parent, name) = split(stored);
        let folder = self.folders.get(parent).copied();
        let folder = folder.ok_or_else(|| Error::corrupt("its directory does not come before it"))?;
        if folder.encrypted {
            return Ok((folder, self.decode(name)?));
        }
        if matches!(name, b"" | b"." | b"..") {
            return Err(Error::corrupt(format!("'{}' is not a valid name", name.escape_ascii())));
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
                "its policy has {name}: its IVs depend on the inode's number, so another inode can't have its contents"
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
fn inner(error: Error) -> Error {
    error.at("image")
}
