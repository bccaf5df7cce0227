//! Transactions of file systems without a journal, in a file beside the image.
//!
//! The file holds the new contents of all blocks that a transaction changes. It gets its name once it is whole
//! and on stable storage, and loses it once the image is. Whoever finds it writes its blocks to the image
//! again, any number of times.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use casemate_blockdev::{BlockDevice, OutputFile};
use casemate_primitives::Cpu;
use casemate_primitives::crc32c::Crc32c;

use crate::bytes::{array, le32, le64};
use crate::error::{Error, Result};
use crate::fs::read_superblock;
use crate::superblock::SUPERBLOCK_OFFSET;
use crate::write::cache::Blocks;

/// Magic number, then UUID (16 bytes), block size, count (64 bits), CRC-32C of all that follows; then block
/// numbers, then blocks.
const MAGIC: &[u8; 16] = b"casemate redo 1\n";
const HEADER: usize = 48;

/// Where a transaction is kept until the image has it.
#[derive(Clone, Debug)]
pub struct RecoveryFile {
    path: PathBuf,
}

impl RecoveryFile {
    /// The file of this name, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> RecoveryFile {
        RecoveryFile { path: path.into() }
    }

    /// Where it is, or will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what the file holds to the image, if there is one, and removes it. Whether there was one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when it belongs to another image or is damaged.
    pub fn replay(&self, device: &dyn BlockDevice) -> Result<bool> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let refuse = |what: &str| {
            let text = format!("{}: {what}; move it away if you know better", self.path.display());
            Err(Error::Unsupported(text))
        };
        if bytes.len() < HEADER || &bytes[..16] != MAGIC {
            return refuse("not a file of an interrupted change");
        }
        let uuid: [u8; 16] = array(&bytes, 16);
        let (size, count) = (u64::from(le32(&bytes, 32)), le64(&bytes, 36));
        let body = &bytes[HEADER..];
        if Crc32c::new(Cpu::detect()).update(!0, body) != le32(&bytes, 44) {
            return refuse("its checksum does not fit");
        }
        if count.checked_mul(size + 8) != Some(body.len() as u64) {
            return refuse("its sizes do not fit");
        }
        if read_superblock(device, SUPERBLOCK_OFFSET)?.uuid != uuid {
            return refuse("it belongs to another image");
        }
        // OK to cast: the body has so many bytes.
        let (numbers, blocks) = body.split_at(8 * count as usize);
        for (number, block) in numbers.chunks_exact(8).zip(blocks.chunks_exact(size as usize)) {
            let Some(offset) = le64(number, 0).checked_mul(size) else {
                return refuse("its numbers make no sense");
            };
            device.write_at(block, offset)?;
        }
        device.flush()?;
        self.remove()?;
        Ok(true)
    }

    /// Keeps the blocks of a transaction.
    pub(crate) fn store(&self, uuid: &[u8; 16], size: usize, blocks: &Blocks<'_>) -> Result<()> {
        let mut body = Vec::with_capacity(blocks.len() * (size + 8));
        blocks.keys().for_each(|number| body.extend(number.to_le_bytes()));
        blocks.values().for_each(|block| body.extend_from_slice(block));
        let mut header = MAGIC.to_vec();
        header.extend(uuid);
        // OK to truncate: at most 64 KiB.
        header.extend((size as u32).to_le_bytes());
        header.extend((blocks.len() as u64).to_le_bytes());
        header.extend(Crc32c::new(Cpu::detect()).update(!0, &body).to_le_bytes());
        let output = OutputFile::create(&self.path)?;
        output.device().write_at(&header, 0)?;
        output.device().write_at(&body, header.len() as u64)?;
        output.commit(true)?;
        self.sync_folder()?;
        Ok(())
    }

    /// Forgets the transaction, which the image has now.
    pub(crate) fn remove(&self) -> Result<()> {
        std::fs::remove_file(&self.path)?;
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}
