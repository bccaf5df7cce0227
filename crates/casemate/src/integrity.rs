//! dm-integrity over images: superblocks read, volumes checked, and their data as a device.
//!
//! Data in the journal are shown as if the kernel had written them to their place. [`Image::integrity`] lays the data on an image,
//! to be read and written.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use casemate_blockdev::{AtFile, BlockDevice, Buffer, fill_random, u64_of, usize_of};
use casemate_integrity::{IntegrityDevice, JournalSeal, Tagger};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Providers, Work};

pub use casemate_integrity::{Flags, FormatOptions, Layout, Report, Superblock};

use crate::image::Layer;
use crate::target::{Consent, Made};
use crate::{Error, Image, Output, SecretSource, Target};

type Below = Arc<dyn BlockDevice>;

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// How the tags of a volume are made, which its superblock does not say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IntegrityOptions {
    /// The algorithm: `crc32c`, `crc32`, a hash such as `sha256`, or one under a key, `hmac(sha256)` or `hmac-sha256`.
    pub algorithm: String,
    /// The key, for algorithms with one.
    pub key: Option<SecretVec>,
    /// The codes that the journal has: `hmac(sha256)` or `hmac-sha256`.
    pub journal_code: Option<Keyed>,
    /// The cipher of the journal: `ctr-aes` or `cbc-aes`.
    pub journal_cipher: Option<Keyed>,
    /// Whether data are written in bitmap mode: to their places at once, and not through the journal.
    pub bitmap: bool,
    /// Whether to go on where the journal can't be read, and blocks in it may be newer than what is read: to rescue the rest.
    pub goes_without_journal: bool,
}

/// An algorithm under a key.
#[derive(Clone, Debug)]
pub struct Keyed {
    /// The algorithm's name.
    pub algorithm: String,
    /// The key.
    pub key: SecretVec,
}

impl Default for IntegrityOptions {
    /// CRC-32C, as integritysetup takes it.
    fn default() -> IntegrityOptions {
        IntegrityOptions {
            algorithm: "crc32c".to_owned(),
            key: None,
            journal_code: None,
            journal_cipher: None,
            bitmap: false,
            goes_without_journal: false,
        }
    }
}

/// Bytes of a key at most, as integritysetup takes it.
const LONGEST_KEY: usize = 4096;

impl IntegrityOptions {
    /// The length in bytes that tags have where nothing else is said.
    ///
    /// # Errors
    /// `Unsupported` for other algorithms.
    pub fn tag_size(&self, providers: &Providers) -> Result<u16, Error> {
        Tagger::digest_len(&self.algorithm, providers)
    }

    /// These options, with all of a file as the key.
    ///
    /// # Errors
    /// `Io`; `Argument` for a key of more than 4096 bytes.
    pub fn with_key(mut self, source: &SecretSource) -> Result<IntegrityOptions, Error> {
        self.key = Some(read_key(source)?);
        Ok(self)
    }

    fn tagger(&self, superblock: &Superblock, providers: &Providers) -> Result<Tagger, Error> {
        let key = self.key.as_ref().map(SecretVec::expose);
        let tagger = Tagger::new(&self.algorithm, key, superblock, providers)?;
        if self.journal_code.is_none() && self.journal_cipher.is_none() {
            return Ok(tagger);
        }
        let [code, cipher] = [&self.journal_code, &self.journal_cipher]
            .map(|named| named.as_ref().map(|keyed| (&*keyed.algorithm, keyed.key.expose())));
        Ok(tagger.with_journal(JournalSeal::new(code, cipher, superblock, providers)?))
    }
}

/// The key that is all of a file, of tags or of a journal.
///
/// # Errors
/// `Io`; `Argument` for a key of more than 4096 bytes.
pub fn read_key(source: &SecretSource) -> Result<SecretVec, Error> {
    let too_long = || Error::argument(format!("{}: a key has at most {LONGEST_KEY} bytes", source.name()));
    source.read_all(LONGEST_KEY)?.ok_or_else(too_long)
}

/// A salt from the system's random numbers.
///
/// # Errors
/// `Io`.
pub fn random_salt() -> Result<[u8; 16], Error> {
    let mut salt = [0; 16];
    fill_random(&mut salt)?;
    Ok(salt)
}

/// A dm-integrity volume.
#[derive(Clone)]
pub struct Volume {
    image: Image,
    device: Arc<IntegrityDevice<Below, Below>>,
}

impl Image {
    /// The data of the dm-integrity volume whose superblock the image begins with; `data` has the data, if they lie apart.
    /// Each block is checked when it is read, and what is written goes through the volume's journal once it is flushed.
    ///
    /// # Errors
    /// Errors of [`Image::integrity_volume`].
    pub fn integrity(
        self,
        data: Option<&Image>,
        options: &IntegrityOptions,
        providers: &Providers,
    ) -> Result<Image, Error> {
        let device = self.integrity_device(data, options, providers)?;
        let block = device.superblock().block_size();
        let medium = self.as_ref().clone();
        let medium = medium.laid_remembering(device.clone(), data.map(Image::as_ref));
        Ok(self.with_layer(Layer::Integrity(device), medium, block))
    }

    /// The dm-integrity superblock that the image begins with.
    ///
    /// # Errors
    /// `Corrupt` if there is none that makes sense; `Unsupported` for unknown versions; `Io`.
    pub fn integrity_superblock(&self) -> Result<Superblock, Error> {
        casemate_integrity::read_superblock(self.top()).at(self.name())
    }

    /// The dm-integrity volume whose superblock the image begins with. `data` is the image with the data, if they lie
    /// apart.
    ///
    /// # Errors
    /// Errors of [`Image::integrity_superblock`]; `Corrupt` if the volume does not fit the image; `Locked` for a missing key;
    /// `Unsupported` for other algorithms, and for a journal that can't be read; `Mismatch` for one with wrong codes.
    pub fn integrity_volume(
        &self,
        data: Option<&Image>,
        options: &IntegrityOptions,
        providers: &Providers,
    ) -> Result<Volume, Error> {
        let device = self.integrity_device(data, options, providers)?;
        Ok(Volume { image: data.unwrap_or(self).clone(), device })
    }

    pub(crate) fn integrity_device(
        &self,
        data: Option<&Image>,
        options: &IntegrityOptions,
        providers: &Providers,
    ) -> Result<Arc<IntegrityDevice<Below, Below>>, Error> {
        let superblock = self.integrity_superblock()?;
        let tagger = options.tagger(&superblock, providers).at(self.name())?;
        let own = self.device();
        let (below, own) = match data {
            Some(data) => (data.device(), Some(own)),
            None => (own, None),
        };
        let opened = match options.goes_without_journal {
            true => IntegrityDevice::open_damaged(below, own, tagger),
            false => IntegrityDevice::open(below, own, tagger),
        };
        let opened = opened.and_then(|device| if options.bitmap { device.with_bitmap() } else { Ok(device) });
        opened.at(self.name()).map(Arc::new)
    }
}

impl IntegrityOptions {
    /// Makes a dm-integrity volume that fills a target, with the data that `from` gives, and zeros behind them.
    ///
    /// # Errors
    /// `Argument` for an image without room, or more data than the volume takes; those of [`Image::integrity_volume`] and of
    /// [`Medium::check_partitions`](casemate_blockdev::Medium::check_partitions) and [`Medium::lease`](casemate_blockdev::Medium::lease);
    /// `Io`.
    pub fn format(
        &self,
        target: &Target,
        format: &FormatOptions,
        from: Option<&mut dyn Read>,
        work: &Work<'_>,
    ) -> Result<Superblock, Error> {
        let _lease = target.lease()?;
        target.check_partitions()?;
        let mut format = format.clone();
        format.has_journal_code = self.journal_code.is_some();
        let superblock = Superblock::new(target.top().size(), &format).at(target.name())?;
        let tagger = self.tagger(&superblock, &work.providers).at(target.name())?;
        if !target.is_new() {
            target.erase_signatures(0, work.events)?;
        }
        casemate_integrity::format(target.top(), &superblock, &tagger, from, work).at(target.name())?;
        Ok(superblock)
    }
}

impl Volume {
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
        casemate_integrity::verify(&self.device, work).at(self.image.name())
    }

    /// Copies the data, checked, to a file or block device; a new file gets its name when it is whole, and nobody can read it who
    /// could not read the volume. The number is that of
    /// blocks of which nothing is known, because by the superblock their tags were still to be computed; they are copied, too.
    ///
    /// # Errors
    /// `Mismatch` for a block whose tag is not that of its data; whatever the consent says if the target holds something; `Io`.
    pub fn extract(
        &self,
        target: &Path,
        others: &[&Path],
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<u64, Error> {
        let made = Made::copy_of(&*self.device).at(self.image.name())?;
        let output = Output::create_anew(target, others, Some(made), consent)?;
        output.narrow(self.image.copy_mode());
        let Some(to) = output.device() else {
            let mut output = output;
            let unknown = self.extract_stream((&target.display().to_string(), &mut output), work)?;
            output.commit()?;
            return Ok(unknown);
        };
        let (size, unknown) = (self.size(), AtomicU64::new(0));
        work.pool.run(size.div_ceil(PIECE), Buffer::default, |buffer: &mut Buffer, piece| {
            let offset = piece * PIECE;
            // At most a MiB.
            buffer.resize(usize_of(PIECE.min(size - offset)));
            unknown.fetch_add(self.read(offset, buffer)?, Ordering::Relaxed);
            to.write_at(buffer, offset).at(target.display())?;
            work.events.advance(u64_of(buffer.len()))
        })?;
        output.commit()?;
        Ok(unknown.into_inner())
    }

    /// Copies the data, checked, to a stream, which comes with its name for errors. The number is that of [`Volume::extract`].
    ///
    /// # Errors
    /// As [`Volume::extract`]; what was written before a wrong block is right.
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
                    unknown.fetch_add(self.read(offset, &mut buffer)?, Ordering::Relaxed);
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
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, Error> {
        let block = offset / u64::from(self.superblock().block_size());
        self.device.read_counting(block, buffer).at(self.image.name())
    }
}
