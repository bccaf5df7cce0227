//! The volume's device: blocks that are checked when they are read.

use std::io::ErrorKind;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Error, Result};

use crate::journal::Journal;
use crate::superblock::LEN;
use crate::{Flags, Layout, Superblock, Tagger};

/// Bytes that are read and checked at once.
pub(crate) const AT_ONCE: u64 = 256 << 10;

/// A dm-integrity volume. Every block is checked when it is read; what the journal holds is shown as if it had been
/// written to its place. It can't be written.
#[derive(Debug)]
pub struct IntegrityDevice<D, M> {
    data: Arc<D>,
    /// The superblock's device, if that is another one.
    meta: Option<M>,
    superblock: Superblock,
    layout: Layout,
    tagger: Tagger,
    journal: Journal,
}

/// What was found of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The tag is not that of the data.
    Wrong,
    /// The tag is not that of the data, and need not be: it was to be computed when the volume was last used.
    Unknown,
}

impl<D: BlockDevice, M: BlockDevice> IntegrityDevice<D, M> {
    /// Opens the volume whose superblock lies at the beginning of `meta`, or of `data` if `None`.
    ///
    /// # Errors
    /// Those of [`Superblock::from_bytes`]; `Corrupt` if the volume does not fit its device; `Unsupported` for journals
    /// with codes, and for encrypted ones, whose marks can't be read: they count as empty otherwise.
    pub fn open(data: D, meta: Option<M>, tagger: Tagger) -> Result<IntegrityDevice<D, M>> {
        let below: &dyn BlockDevice = meta.as_ref().map_or(&data, |meta| meta);
        let superblock = read_superblock(below)?;
        let layout = superblock.layout(meta.is_some())?;
        layout.check(data.size(), below.size())?;
        let journal = Journal::read(below, &superblock, &layout)?;
        Ok(IntegrityDevice { data: Arc::new(data), meta, superblock, layout, tagger, journal })
    }

    /// The volume's superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The number of blocks that are read from the journal.
    pub fn journalled_blocks(&self) -> u64 {
        self.journal.len()
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    fn meta(&self) -> &dyn BlockDevice {
        self.meta.as_ref().map_or(&*self.data, |meta| meta)
    }

    /// Reads blocks, from the one of this number on, and tells of each whose tag is not right.
    pub(crate) fn read_blocks(
        &self,
        mut block: u64,
        mut buf: &mut [u8],
        tell: &mut dyn FnMut(u64, Verdict) -> Result<()>,
    ) -> Result<()> {
        // OK to cast, here and below: within a buffer.
        let (size, tag_size) = (self.layout.block_size() as usize, self.layout.tag_size() as usize);
        let (mut tags, mut right) = (Vec::new(), Vec::new());
        while !buf.is_empty() {
            let most = (buf.len() / size).min((AT_ONCE as usize / size).max(1));
            let count = self.layout.run(block, most as u64);
            let (now, rest) = buf.split_at_mut(count as usize * size);
            tags.resize(count as usize * tag_size, 0);
            right.resize(tags.len(), 0);
            self.data.read_at(now, self.layout.data(block))?;
            self.meta().read_at(&mut tags, self.layout.tag(block))?;
            if self.journal.has_any(block, count) {
                let blocks = now.chunks_exact_mut(size).zip(tags.chunks_exact_mut(tag_size));
                for (number, (data, tag)) in (block..).zip(blocks) {
                    self.journal.read_block(self.meta(), &self.layout, number, data, tag)?;
                }
            }
            self.tagger.make(block, now, &mut right);
            if tags != right {
                let pairs = tags.chunks_exact(tag_size).zip(right.chunks_exact(tag_size));
                for (number, _) in (block..).zip(pairs).filter(|(_, (tag, right))| tag != right) {
                    let verdict = if self.is_unknown(number)? { Verdict::Unknown } else { Verdict::Wrong };
                    tell(number, verdict)?;
                }
            }
            block += count;
            buf = rest;
        }
        Ok(())
    }

    /// Whether the tag of a block was to be computed when the volume was last used.
    fn is_unknown(&self, block: u64) -> Result<bool> {
        let superblock = &self.superblock;
        // No overflow: a block of the volume.
        let end = (block + 1) << superblock.log2_sectors_per_block;
        if superblock.flags.contains(Flags::RECALCULATING) && end > superblock.recalc_sector {
            return Ok(true);
        }
        if !superblock.flags.contains(Flags::DIRTY_BITMAP) {
            return Ok(false);
        }
        let bit = block.checked_shr(superblock.log2_blocks_per_bitmap_bit.into()).unwrap_or(0);
        let mut byte = [0];
        if bit / 8 >= self.layout.journal_len() {
            return Err(Error::corrupt(
                "dm-integrity superblock: its bitmap is longer than the journal's place",
            ));
        }
        self.meta().read_at(&mut byte, self.layout.bitmap() + bit / 8)?;
        Ok(byte[0] & 1 << (bit % 8) != 0)
    }
}

/// The superblock at the beginning of a device.
///
/// # Errors
/// `Io`; those of [`Superblock::from_bytes`].
pub fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = [0; LEN];
    // OK to cast: at most LEN.
    let len = device.size().min(LEN as u64) as usize;
    device.read_at(&mut bytes[..len], 0)?;
    Superblock::from_bytes(&bytes[..len])
}

impl<D: BlockDevice, M: BlockDevice> BlockDevice for IntegrityDevice<D, M> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.data)
    }

    fn size(&self) -> u64 {
        self.layout.blocks() * self.layout.block_size()
    }

    fn read_at(&self, mut buf: &mut [u8], mut offset: u64) -> Result<()> {
        let size = self.size();
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > size) {
            let text = format!("{} bytes at {offset} pass the end of the device at {size}", buf.len());
            return Err(std::io::Error::new(ErrorKind::UnexpectedEof, text).into());
        }
        let refuse = &mut |block: u64, verdict| match verdict {
            Verdict::Unknown => Ok(()),
            Verdict::Wrong => {
                let at = block * self.layout.block_size();
                Err(Error::mismatch(format!(
                    "dm-integrity: the tag of block {block}, at {at}, is not that of its data"
                )))
            }
        };
        let block_size = self.layout.block_size();
        let mut one = Vec::new();
        while !buf.is_empty() {
            let (block, within) = (offset / block_size, (offset % block_size) as usize);
            let whole = buf.len() - buf.len() % block_size as usize;
            let len = if within == 0 && whole > 0 {
                self.read_blocks(block, &mut buf[..whole], refuse)?;
                whole
            } else {
                one.resize(block_size as usize, 0);
                self.read_blocks(block, &mut one, refuse)?;
                let len = buf.len().min(one.len() - within);
                buf[..len].copy_from_slice(&one[within..within + len]);
                len
            };
            buf = &mut buf[len..];
            offset += len as u64;
        }
        Ok(())
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
