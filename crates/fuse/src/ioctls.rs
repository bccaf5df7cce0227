//! Requests of ioctl(2) on files: flags and projects (chattr, lsattr), fs-verity digests, and keys of encrypted
//! files.
//!
//! FUSE passes as many bytes as the request's number says, and no pointers in them (`fuse_do_ioctl` in fs/fuse/ioctl.c): so
//! neither a key or a policy, whose length the number leaves open, nor the blocks of a Merkle tree. Digests are an exception
//! that Linux makes from 6.11 on. Whether the caller owns the file, and has the capability for what is immutable, Linux asks.

use fuser::{Errno, INodeNo, Request};

use casemate::Error;
use casemate::blockdev::usize_of;
use casemate::ext4::{Inode, InodeFlags};
use casemate::fscrypt::KeyId;

use crate::errno::errno;
use crate::tree::Tree;

/// FS_IOC_GETFLAGS and FS_IOC_SETFLAGS, which Linux passes with 4 bytes; FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_XATTR: u32 = 0x801c_581f;
const SET_XATTR: u32 = 0x401c_5820;
/// FS_IOC_GETVERSION: the generation.
const GET_VERSION: u32 = 0x8008_7601;
/// FS_IOC_MEASURE_VERITY.
const MEASURE_VERITY: u32 = 0xc004_6686;
/// FS_IOC_GET_ENCRYPTION_NONCE, FS_IOC_GET_ENCRYPTION_KEY_STATUS, and FS_IOC_REMOVE_ENCRYPTION_KEY with its form for all
/// users, of whom there is one here.
const GET_NONCE: u32 = 0x8010_661b;
const KEY_STATUS: u32 = 0xc080_661a;
const REMOVE_KEY: u32 = 0xc040_6618;
const REMOVE_KEY_OF_ALL: u32 = 0xc040_6619;

/// `struct fsxattr`: its length, and the places of flags and project.
const FSXATTR: usize = 28;
const XFLAGS: usize = 0;
const PROJECT: usize = 12;

/// Flags of an inode, and what they are called there (`FS_XFLAG_*`). Others FS_IOC_FSSETXATTR leaves as they are.
const XFLAG_OF: [(u32, u32); 7] = [
    (0x8, 0x20),
    (InodeFlags::IMMUTABLE.0, 0x8),
    (InodeFlags::APPEND.0, 0x10),
    (0x40, 0x80),
    (0x80, 0x40),
    (0x200_0000, 0x8000),
    (0x2000_0000, 0x200),
];

/// Flags that FS_IOC_FSGETXATTR tells and FS_IOC_FSSETXATTR leaves as they are: fs-verity (Linux 7.0) and casefolded names.
const READ_ONLY_XFLAG_OF: [(u32, u32); 2] =
    [(InodeFlags::VERITY.0, 0x2_0000), (InodeFlags::CASEFOLD.0, 0x4_0000)];

/// `struct fscrypt_key_specifier`: its types, its length, and where the name lies in it.
const DESCRIPTOR: u32 = 1;
const IDENTIFIER: u32 = 2;
const SPECIFIER: usize = 40;
const KEY_NAME: usize = 8;

/// `struct fscrypt_get_key_status_arg`: where the status lies, and what it may be.
const STATUS: usize = 64;
const ABSENT: u32 = 1;
const PRESENT: u32 = 2;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Ioctl<'a> {
    pub command: u32,
    pub input: &'a [u8],
    /// Bytes that the answer may have.
    pub room: u32,
}

/// The answer to a request.
pub enum Answer {
    Bytes(Vec<u8>),
    /// A key is removed: by a thread that answers nobody else.
    Remove(KeyId, Vec<u8>),
}

impl Tree {
    /// Answers a request about a file; what it changes is changed then.
    ///
    /// # Errors
    /// ENOTTY for those that are none here; what the kernel's ext4 says otherwise.
    pub fn ioctl(&self, request: &Request, node: INodeNo, ioctl: Ioctl<'_>) -> Result<Answer, Errno> {
        let Ioctl { command, input, room } = ioctl;
        let told = |error: Error| {
            self.tell(&error);
            errno(&error)
        };
        // Held no longer than the inode is looked at: what changes takes it itself.
        let inode = {
            let _steady = self.steady();
            self.inode(node).map_err(told)?
        };
        let bytes = match command {
            GET_FLAGS => inode.visible_flags().to_ne_bytes().to_vec(),
            GET_VERSION => inode.generation().to_ne_bytes().to_vec(),
            GET_XATTR => fsxattr(&inode),
            SET_FLAGS | SET_XATTR => {
                let (flags, project) = match command {
                    SET_FLAGS => (word(input, 0)?, None),
                    _ => (with_xflags(&inode, word(input, XFLAGS)?), Some(word(input, PROJECT)?)),
                };
                let journals = |flags: u32| flags & InodeFlags::JOURNAL_DATA.0;
                // Linux asks for CAP_SYS_RESOURCE, and does not tell who has it.
                if journals(flags) != journals(inode.flags().0) && request.uid() != 0 {
                    return Err(Errno::EPERM);
                }
                self.set_flags(node, flags, project).map_err(told)?;
                Vec::new()
            }
            MEASURE_VERITY => {
                let _steady = self.steady();
                digest(self, &inode, room)?
            }
            GET_NONCE => {
                let _steady = self.steady();
                let encrypted = self.ext4().encrypted(&inode).map_err(told)?.ok_or(Errno::ENODATA)?;
                // The last field of the context, in both versions.
                encrypted.context.last_chunk::<16>().ok_or(Errno::EIO)?.to_vec()
            }
            KEY_STATUS => {
                let id = key_id(request, input)?;
                let mut bytes = input.to_vec();
                let is_there = self.keys().ids().contains(&id);
                bytes.get_mut(STATUS..).ok_or(Errno::EINVAL)?.fill(0);
                let status = if is_there { PRESENT } else { ABSENT };
                bytes[STATUS..STATUS + 4].copy_from_slice(&status.to_ne_bytes());
                bytes
            }
            REMOVE_KEY | REMOVE_KEY_OF_ALL => {
                let id = key_id(request, input)?;
                // What was told of files without --control is told for ever.
                if !self.has_control() {
                    return Err(Errno::EACCES);
                }
                let mut bytes = input.to_vec();
                bytes.get_mut(SPECIFIER..).ok_or(Errno::EINVAL)?.fill(0);
                return Ok(Answer::Remove(id, bytes));
            }
            _ => return Err(Errno::ENOTTY),
        };
        Ok(Answer::Bytes(bytes))
    }
}

fn word(input: &[u8], at: usize) -> Result<u32, Errno> {
    let bytes = input.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.copied().map(u32::from_ne_bytes).ok_or(Errno::EINVAL)
}

fn fsxattr(inode: &Inode) -> Vec<u8> {
    let xflags = xflags(inode.visible_flags());
    let mut bytes = vec![0; FSXATTR];
    bytes[XFLAGS..XFLAGS + 4].copy_from_slice(&u32::to_ne_bytes(xflags));
    bytes[PROJECT..PROJECT + 4].copy_from_slice(&inode.project().to_ne_bytes());
    bytes
}

/// Flags of an inode as `struct fsxattr` names them.
fn xflags(flags: u32) -> u32 {
    let named = XFLAG_OF.iter().chain(&READ_ONLY_XFLAG_OF).filter(|(flag, _)| flags & flag != 0);
    named.fold(0, |all, (_, name)| all | name)
}

/// The flags of an inode, with those that `struct fsxattr` can name as it says.
fn with_xflags(inode: &Inode, xflags: u32) -> u32 {
    XFLAG_OF.iter().fold(inode.visible_flags(), |flags, (flag, name)| match xflags & name {
        0 => flags & !flag,
        _ => flags | flag,
    })
}

/// `struct fsverity_digest`.
fn digest(tree: &Tree, inode: &Inode, room: u32) -> Result<Vec<u8>, Errno> {
    let told = |error: Error| {
        tree.tell(&error);
        errno(&error)
    };
    let digest = tree.digest(inode).map_err(told)?.ok_or(Errno::ENODATA)?;
    let len = u16::try_from(digest.bytes().len()).map_err(|_| Errno::EIO)?;
    let mut answer = u16::from(digest.algorithm().number()).to_ne_bytes().to_vec();
    answer.extend(len.to_ne_bytes());
    answer.extend_from_slice(digest.bytes());
    match answer.len() > usize_of(room) {
        true => Err(Errno::EOVERFLOW),
        false => Ok(answer),
    }
}

/// The key that `struct fscrypt_key_specifier` names; for who may look at keys.
fn key_id(request: &Request, input: &[u8]) -> Result<KeyId, Errno> {
    let name = input.get(KEY_NAME..).ok_or(Errno::EINVAL)?;
    let id = match word(input, 0)? {
        DESCRIPTOR => name.first_chunk::<8>().copied().map(KeyId::from),
        IDENTIFIER => name.first_chunk::<16>().copied().map(KeyId::from),
        _ => None,
    };
    let own = rustix::process::geteuid().as_raw();
    match request.uid() == 0 || request.uid() == own {
        true => id.ok_or(Errno::EINVAL),
        false => Err(Errno::EACCES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_the_names_of_linux_7() {
        // linux/fs.h: FS_XFLAG_VERITY, FS_XFLAG_CASEFOLD, FS_XFLAG_IMMUTABLE.
        assert_eq!(xflags(InodeFlags::VERITY.0), 0x2_0000);
        assert_eq!(xflags(InodeFlags::CASEFOLD.0 | InodeFlags::IMMUTABLE.0), 0x4_0008);
        assert_eq!(xflags(0), 0);
    }
}
