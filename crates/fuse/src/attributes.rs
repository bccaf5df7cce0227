//! Inodes as stat(2) shows them.

use std::time::{Duration, SystemTime};

use fuser::{FileAttr, INodeNo};

use casemate::ext4::{FileType, Inode, InodeFlags, Time};

use crate::owner::Owner;

/// The attributes of an inode; `size` is that of a link's target, which an encrypted one has not in its inode.
pub fn attributes(inode: &Inode, size: u64, block_size: u32, owner: Owner) -> FileAttr {
    let mut blocks = inode.sectors(block_size);
    // As the kernel counts what has no block.
    if inode.kind() == FileType::Regular && inode.has(InodeFlags::INLINE_DATA) {
        blocks = blocks.saturating_add(inode.size().div_ceil(512));
    }
    FileAttr {
        ino: INodeNo(inode.number().get().into()),
        size,
        blocks,
        atime: system_time(inode.accessed()),
        mtime: system_time(inode.modified()),
        ctime: system_time(inode.changed()),
        // Only macOS is told of these.
        crtime: SystemTime::UNIX_EPOCH,
        flags: 0,
        kind: kind(inode.kind()),
        perm: inode.mode() & 0o7777,
        nlink: inode.links().into(),
        uid: owner.uid.unwrap_or(inode.uid()),
        gid: owner.gid.unwrap_or(inode.gid()),
        rdev: inode.device().map_or(0, device),
        blksize: block_size,
    }
}

/// Stand-in for the attributes of an inode that can't be read, beside its name.
pub fn unknown(number: u64, kind: fuser::FileType) -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        flags: 0,
        kind,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 512,
    }
}

pub fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::Symlink => fuser::FileType::Symlink,
    }
}

/// A device's numbers as the kernel takes them: the minor one around the major one.
fn device((major, minor): (u32, u32)) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & 0xfff00) << 12
}

fn system_time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let second = match time.seconds < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(whole),
        false => SystemTime::UNIX_EPOCH.checked_add(whole),
    };
    let time = second.and_then(|second| second.checked_add(Duration::from_nanos(time.nanoseconds.into())));
    // Seconds of an inode have 34 bits.
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_devices_are_the_kernels() {
        // As stat(1) shows them: 8,1 and 0x102,0xabcde.
        assert_eq!(device((8, 1)), 0x801);
        assert_eq!(device((0x102, 0xabcde)), 0xabc1_02de);
    }

    #[test]
    fn times_before_1970_count_their_nanoseconds_forwards() {
        let time = system_time(Time { seconds: -2, nanoseconds: 800_000_000 });
        let before = SystemTime::UNIX_EPOCH.duration_since(time).unwrap();
        assert_eq!(before, Duration::from_millis(1200));
    }
}
