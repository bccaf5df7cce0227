//! The undo file of e2fsprogs: header, and blocks of keys.
//!
//! Source: undo files that `e2fsck -z` writes, and that `e2undo` reads.

use casemate_primitives::crc32c::Crc32c;

use crate::format::field::{Bytes, Le16, Le32, Le64};

/// Bytes of the header.
pub(crate) const HEADER: usize = 512;

/// Bytes of a key, and of the head of a block of them.
pub(crate) const KEY: usize = 16;

/// Keys in a block of 4096 bytes.
pub(crate) const KEYS: usize = 4096 / KEY - 1;

const MAGIC: &[u8; 8] = b"E2UNDO02";
const KEY_MAGIC: u32 = 0xcade_cade;

/// State of a file that is whole.
const FINISHED: u32 = 1;

const MAGIC_AT: Bytes<8> = Bytes(0x0);
const NUMBER_OF_KEYS: Le64 = Le64(0x8);
const SUPERBLOCK_AT: Le64 = Le64(0x10);
const KEYS_AT: Le64 = Le64(0x18);
const BLOCK_SIZE: Le32 = Le32(0x20);
const FS_BLOCK_SIZE: Le32 = Le32(0x24);
const SUPERBLOCK_SUM: Le32 = Le32(0x28);
const STATE: Le32 = Le32(0x2c);
const COMPATIBLE: Le32 = Le32(0x30);
const FS_OFFSET: Le64 = Le64(0x40);
const HEADER_SUM: Le32 = Le32(0x1fc);

/// Compatible feature: the header names the byte of the image that the file system begins at.
const HAS_FS_OFFSET: u32 = 1;

/// The magic number within a superblock.
const MAGIC_OF_SUPERBLOCK: Le16 = Le16(0x38);

const KEY_MAGIC_AT: Le32 = Le32(0x0);
const KEY_BLOCK_SUM: Le32 = Le32(0x4);
const KEY_NUMBER: Le64 = Le64(0x0);
const KEY_SUM: Le32 = Le32(0x8);
const KEY_SIZE: Le32 = Le32(0xc);

/// The header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub keys: u64,
    /// Blocks of the file that hold the superblock and the first keys.
    pub superblock_at: u64,
    pub keys_at: u64,
    pub block_size: u32,
    pub superblock_sum: u32,
    pub is_whole: bool,
    /// Byte of the image that the file system begins at, from which blocks are counted.
    pub fs_offset: u64,
}

impl Header {
    pub fn to_bytes(self, crc: Crc32c) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        *MAGIC_AT.get_mut(&mut bytes) = *MAGIC;
        for (field, value) in
            [(NUMBER_OF_KEYS, self.keys), (SUPERBLOCK_AT, self.superblock_at), (KEYS_AT, self.keys_at)]
        {
            field.set(&mut bytes, value);
        }
        for (field, value) in [
            (BLOCK_SIZE, self.block_size),
            (FS_BLOCK_SIZE, self.block_size),
            (SUPERBLOCK_SUM, self.superblock_sum),
            (STATE, if self.is_whole { FINISHED } else { 0 }),
        ] {
            field.set(&mut bytes, value);
        }
        if self.fs_offset > 0 {
            COMPATIBLE.set(&mut bytes, HAS_FS_OFFSET);
            FS_OFFSET.set(&mut bytes, self.fs_offset);
        }
        let sum = crc.update(!0, &bytes[..HEADER_SUM.at()]);
        HEADER_SUM.set(&mut bytes, sum);
        bytes
    }
}

/// Inverts the magic number of a superblock: nobody takes its copy for that of a file system.
pub(crate) fn hide_superblock(superblock: &mut [u8]) {
    let magic = MAGIC_OF_SUPERBLOCK.get(superblock);
    MAGIC_OF_SUPERBLOCK.set(superblock, !magic);
}

/// A block of `size` bytes with keys: number of the block, checksum of its contents, how many bytes they are.
pub(crate) fn key_block(size: usize, keys: &[(u64, u32, u32)], crc: Crc32c) -> Vec<u8> {
    let mut bytes = vec![0; size];
    KEY_MAGIC_AT.set(&mut bytes, KEY_MAGIC);
    for (slot, (number, sum, len)) in bytes.chunks_exact_mut(KEY).skip(1).zip(keys) {
        KEY_NUMBER.set(slot, *number);
        KEY_SUM.set(slot, *sum);
        KEY_SIZE.set(slot, *len);
    }
    let sum = crc.update(!0, &bytes);
    KEY_BLOCK_SUM.set(&mut bytes, sum);
    bytes
}
