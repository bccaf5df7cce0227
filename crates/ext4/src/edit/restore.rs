//! Files put back as they were stored: names, contents and targets that are ciphertext stay so, without any key.

use std::io::ErrorKind;

use casemate_blockdev::u64_of;

use crate::edit::Writer;
use crate::edit::dir::name::Name;
use crate::edit::dir::name_too_long;
use crate::edit::encrypted::casefolded;
use crate::edit::files::Files;
use crate::edit::locked::refuse_immutable;
use crate::edit::node::{Body, Encrypted, NewNode};
use crate::error::{Result, invalid};
use crate::format::inode::{Inode, InodeFlags, Stamp, Time};
use crate::units::InodeNo;

/// The shortest name in an encrypted directory: a block of the cipher.
const SHORTEST_NAME: usize = 16;

/// Attributes that [`Writer::finish_raw`] gives a file when all else is in place.
#[derive(Clone, Copy, Debug)]
pub struct RawAttributes<'a> {
    /// Permission bits, owner and time of modification.
    pub node: NewNode,
    /// Last access.
    pub accessed: Option<Time>,
    /// The size of a regular file.
    pub size: Option<u64>,
    /// Extended attributes by their whole names, as programs see them.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

impl Files {
    /// A directory that is to get a stored name which it does not have.
    fn raw_parent(&mut self, parent: InodeNo, name: &[u8]) -> Result<Inode> {
        let mut dir = self.get(parent)?;
        if !dir.has(InodeFlags::ENCRYPT) {
            return self.parent_mut(parent, name);
        }
        refuse_immutable(&dir, b"the encrypted name")?;
        if dir.has(InodeFlags::CASEFOLD) {
            return Err(casefolded());
        }
        if name.len() < SHORTEST_NAME {
            return Err(invalid(ErrorKind::InvalidFilename, "an encrypted name has 16 bytes or more"));
        }
        if name.len() > 255 {
            return Err(name_too_long());
        }
        if self.directory(&mut dir).find_stored(&Name::exact(name, None))?.is_some() {
            return Err(invalid(ErrorKind::AlreadyExists, "the encrypted name exists already"));
        }
        Ok(dir)
    }
}

impl Writer {
    /// Makes a file in directory `parent`, an inode's number, under a name as it is stored there. With a `context`
    /// it is encrypted, and a link's target is given as it is stored. Returns its inode's number.
    ///
    /// # Errors
    /// `AlreadyExists`, `StorageFull`, `InvalidFilename`; `CrossesDevices` in a directory that encrypts in another
    /// way; `Unsupported` without the feature encrypt.
    pub fn create_raw(
        &mut self,
        parent: InodeNo,
        name: &[u8],
        body: Body<'_>,
        context: Option<&[u8]>,
    ) -> Result<InodeNo> {
        self.operation(|files| {
            let dir = files.raw_parent(parent, name)?;
            let encrypted = Encrypted::As(context);
            let inode =
                files.create_stored(dir, &Name::exact(name, None), &NewNode::default(), body, encrypted)?;
            files.inodes().store(&inode)?;
            Ok(inode.number())
        })
    }

    /// Gives a file a further name as it is stored in directory `parent`.
    ///
    /// # Errors
    /// As [`create_raw`](Writer::create_raw); `TooManyLinks`.
    pub fn link_raw(&mut self, parent: InodeNo, name: &[u8], number: InodeNo) -> Result<()> {
        self.operation(|files| {
            let dir = files.raw_parent(parent, name)?;
            files.link_stored(dir, &Name::exact(name, None), number)
        })
    }

    /// Writes whole blocks of a new regular file as they are to be stored, from byte `at` on, where it had none.
    ///
    /// # Errors
    /// `StorageFull`, `FileTooLarge`.
    pub fn write_raw(&mut self, number: InodeNo, at: u64, bytes: &[u8]) -> Result<()> {
        let size = self.files().space().block_size();
        if !at.is_multiple_of(u64_of(size)) || !bytes.len().is_multiple_of(size) {
            return Err(invalid(ErrorKind::InvalidInput, "contents that are not whole blocks"));
        }
        self.operation(|files| {
            let mut inode = files.get(number)?;
            files.inodes().view(&inode).check_size(at.saturating_add(u64_of(bytes.len())))?;
            let first = at / u64_of(size);
            let mut runs = Vec::new();
            let end = first + u64_of(bytes.len() / size);
            files.inodes().map(&mut inode).fill(first, end, false, |run| runs.push(run))?;
            for run in runs {
                let part = &bytes[run.bytes_from(first, size)];
                files.inodes().transaction().write_data(run.physical, part)?;
            }
            files.inodes().store(&inode)
        })
    }

    /// Gives a file its attributes and its size.
    ///
    /// # Errors
    /// `StorageFull`, `FileTooLarge`; `InvalidInput` for attributes that ext4 does not store.
    pub fn finish_raw(&mut self, number: InodeNo, attributes: &RawAttributes<'_>) -> Result<()> {
        let RawAttributes { node, accessed, size, xattrs } = *attributes;
        self.operation(|files| {
            let mut inode = files.get(number)?;
            inode.set_permissions(node.mode);
            inode.set_owner(Some(node.uid), Some(node.gid));
            if let Some(size) = size {
                files.inodes().view(&inode).check_size(size)?;
                files.inodes().map(&mut inode).set_size(size)?;
            }
            files.put_xattrs(&mut inode, xattrs)?;
            for (stamp, time) in
                [(Stamp::Modified, node.modified), (Stamp::Accessed, accessed.or(node.modified))]
            {
                if let Some(time) = time {
                    inode.set_time(stamp, time);
                }
            }
            inode.set_time(Stamp::Changed, files.now());
            files.inodes().store(&inode)
        })
    }
}
