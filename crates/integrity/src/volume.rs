//! Volumes on media: opened, checked, and copied.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use casemate_blockdev::{AtFile, BlockDevice, Buffer, Medium, u64_of, usize_of};
use casemate_providers::{Providers, Work};

use crate::{Error, IntegrityDevice, IntegrityOptions, Report, Superblock, read_superblock};

/// Medium's device, below the volume.
type Below = Arc<dyn BlockDevice>;

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// A dm-integrity volume.
#[derive(Clone)]
pub struct Volume {
    /// The medium with the superblock.
    own: Medium,
    /// The medium with the data, if they lie apart.
    data: Option<Medium>,
    device: Arc<IntegrityDevice<Below, Below>>,
}

impl Volume {
    /// The dm-integrity volume whose superblock a medium begins with. `data` is the medium with the data, if they lie apart.
    ///
    /// # Errors
    /// Errors of [`read_superblock`]; `Corrupt` if the volume does not fit the medium; `Locked` for a missing key;
    /// `Unsupported` for other algorithms, and for a journal that can't be read; `Mismatch` for one with wrong codes.
    pub fn open(
        own: &Medium,
        data: Option<&Medium>,
        options: &IntegrityOptions,
        providers: &Providers,
    ) -> Result<Volume, Error> {
        let superblock = read_superblock(own.top()).at(own.name())?;
        let tagger = options.tagger(&superblock, providers).at(own.name())?;
        let (below, meta) = match data {
            Some(data) => (data.device(), Some(own.device())),
            None => (own.device(), None),
        };
        let opened = match options.goes_without_journal {
            true => IntegrityDevice::open_damaged(below, meta, tagger),
            false => IntegrityDevice::open(below, meta, tagger),
        };
        let opened = opened.and_then(|device| if options.bitmap { device.with_bitmap() } else { Ok(device) });
        let device = opened.at(own.name()).map(Arc::new)?;
        Ok(Volume { own: own.clone(), data: data.cloned(), device })
    }

    /// The data as a device, each block of which is checked when it is read. What is written goes through the volume's journal once
    /// it is flushed.
    pub fn device(&self) -> &Arc<IntegrityDevice<Below, Below>> {
        &self.device
    }

    /// The data as a medium.
    pub fn medium(&self) -> Medium {
        self.own.clone().laid_remembering(self.device.clone(), self.data.as_ref())
    }

    /// The medium that the data lie on.
    fn data_medium(&self) -> &Medium {
        self.data.as_ref().unwrap_or(&self.own)
    }

    /// The volume's superblock.
    pub fn superblock(&self) -> &Superblock {
        self.device.superblock()
    }

    /// The size of the data in bytes.
    pub fn size(&self) -> u64 {
        self.device.size()
    }

    /// Checks all blocks.
    ///
    /// # Errors
    /// `Io`.
    pub fn verify(&self, work: &Work<'_>) -> Result<Report, Error> {
        crate::verify(&self.device, work).at(self.data_medium().name())
    }

    /// Copies the data, checked, to a device that is as long. The number is that of blocks of which nothing is known, because by the
    /// superblock their tags were still to be computed; they are copied, too.
    ///
    /// # Errors
    /// `Mismatch` for a block whose tag is not that of its data; `Io`.
    pub fn copy_to(&self, to: &dyn BlockDevice, work: &Work<'_>) -> Result<u64, Error> {
        let (size, unknown) = (self.size(), AtomicU64::new(0));
        work.pool.run(size.div_ceil(PIECE), Buffer::default, |buffer: &mut Buffer, piece| {
            let offset = piece * PIECE;
            // At most a MiB.
            buffer.resize(usize_of(PIECE.min(size - offset)));
            unknown.fetch_add(self.read_piece(offset, buffer)?, Ordering::Relaxed);
            to.write_at(buffer, offset)?;
            work.events.advance(u64_of(buffer.len()))
        })?;
        Ok(unknown.into_inner())
    }

    /// Copies the data, checked, to a stream, which comes with its name for errors. The number is that of [`Volume::copy_to`].
    ///
    /// # Errors
    /// Errors of [`Volume::copy_to`]; what was written before a wrong block is right.
    pub fn extract_stream(&self, (name, to): (&str, &mut dyn Write), work: &Work<'_>) -> Result<u64, Error> {
        let (size, unknown) = (self.size(), AtomicU64::new(0));
        // As many pieces at once as there are threads, which are written in their order.
        let together = PIECE * u64_of(work.pool.threads());
        let mut buffers: Vec<Mutex<Buffer>> = Vec::new();
        buffers.resize_with(work.pool.threads(), Mutex::default);
        for start in (0..size).step_by(usize::try_from(together).unwrap_or(usize::MAX)) {
            let len = together.min(size - start);
            let pieces = len.div_ceil(PIECE);
            work.pool.run(
                pieces,
                || (),
                |(), piece| {
                    let offset = start + piece * PIECE;
                    // OK to index: as many as there are threads.
                    let mut buffer = buffers[usize_of(piece)].lock().unwrap_or_else(PoisonError::into_inner);
                    buffer.resize(usize_of(PIECE.min(size - offset)));
                    unknown.fetch_add(self.read_piece(offset, &mut buffer)?, Ordering::Relaxed);
                    Ok::<_, Error>(())
                },
            )?;
            for buffer in buffers.iter_mut().take(usize_of(pieces)) {
                let buffer = buffer.get_mut().unwrap_or_else(PoisonError::into_inner);
                to.write_all(buffer).map_err(|error| Error::io(name, error))?;
                work.events.advance(u64_of(buffer.len()))?;
            }
        }
        Ok(unknown.into_inner())
    }

    /// Reads a piece of the data, which begins and ends with a block, and counts the blocks of which nothing is known.
    fn read_piece(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, Error> {
        let block = offset / u64::from(self.superblock().block_size());
        self.device.read_counting(block, buffer).at(self.data_medium().name())
    }
}
