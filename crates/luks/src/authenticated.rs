//! LUKS2 with integrity protection: data that dm-crypt encrypts with tags, which lie in a dm-integrity volume.

use std::io::Read;
use std::sync::Arc;

use crate::luks2::{Segment, SegmentSize};
use casemate_blockdev::{AtFile, BlockDevice, Medium, u32_of, u64_of, usize_of};
use casemate_crypt::AuthenticatedSectors;
use casemate_integrity::{BlockGuard, Flags, FormatOptions, IntegrityDevice, Superblock};
use casemate_providers::{Providers, Work};

use super::random::Source;
use super::{LuksKey, LuksOptions, Volume};
use crate::Error;

/// Guard of blocks: decrypts those that are read and checks them, encrypts those that are written.
#[derive(Debug)]
pub(crate) struct Sealed {
    sectors: AuthenticatedSectors,
}

/// The name of integrity protection in a header, for that which cryptsetup's option has: `hmac(sha256)` for `hmac-sha256`.
pub(super) fn integrity_kind(name: &str) -> String {
    name.strip_prefix("hmac-").map_or_else(|| name.to_owned(), |hash| format!("hmac({hash})"))
}

/// Bytes of the HMAC's key, which is a part of the volume key.
pub(super) fn mac_key_len(kind: &str, providers: &Providers) -> Result<usize, Error> {
    match kind.strip_prefix("hmac(").and_then(|hash| hash.strip_suffix(')')) {
        Some(hash) => Ok(providers.hash(hash)?.digest_len()),
        None => Ok(0),
    }
}

impl Sealed {
    pub fn new(
        encryption: &str,
        kind: &str,
        key: &[u8],
        sector_size: u32,
        providers: &Providers,
    ) -> Result<Sealed, Error> {
        let sectors = AuthenticatedSectors::new(encryption, kind, key, usize_of(sector_size), providers)?;
        Ok(Sealed { sectors })
    }

    /// The superblock of a volume that fills `size` bytes, as the kernel makes it for LUKS; of one that a stream fills if
    /// `None`.
    fn superblock(&self, size: Option<u64>) -> Result<Superblock, Error> {
        let kept = u16::try_from(self.sectors.kept_len()).unwrap_or(u16::MAX);
        let mut options = FormatOptions::new(kept, [0; 16]);
        options.block_size = u32_of(self.sectors.sector_size());
        let mut superblock =
            size.map_or_else(|| Superblock::for_stream(&options), |size| Superblock::new(size, &options))?;
        (superblock.version, superblock.flags) = (4, Flags::FIX_PADDING);
        Ok(superblock)
    }

    /// Bytes that a volume takes whose data are so many.
    pub fn room(&self, len: u64) -> Result<u64, Error> {
        let mut size = len;
        loop {
            let found =
                self.superblock(Some(size)).map_or(0, |superblock| superblock.provided_data_sectors * 512);
            match len.checked_sub(found) {
                None | Some(0) => return Ok(size),
                Some(more) => {
                    let next = size.checked_add(more.next_multiple_of(64 << 10));
                    size = next.ok_or_else(|| Error::argument(format!("{len} bytes of data")))?;
                }
            }
        }
    }

    /// Makes the volume that fills `place`, with all that `from` gives and zeros behind it.
    pub fn fill(&self, place: &Medium, from: Option<&mut dyn Read>, work: &Work<'_>) -> Result<(), Error> {
        let superblock = self.superblock(Some(place.top().size())).at(place.name())?;
        casemate_integrity::format(place.top(), &superblock, self, from, work).at(place.name())
    }

    /// Makes a volume of all that `from` gives, from a byte of a new file on, which grows with it.
    pub fn fill_new(
        &self,
        file: &Medium,
        offset: u64,
        from: &mut dyn Read,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let superblock = self.superblock(None).at(file.name())?;
        let device = Growing { file: file.top(), offset };
        casemate_integrity::format_stream(&device, &superblock, self, from, work).at(file.name()).map(drop)
    }

    fn sector(&self, block: u64) -> u64 {
        block * (u64_of(self.sectors.sector_size()) / 512)
    }
}

/// Device that checks and decrypts blocks with tags.
pub type Protected = IntegrityDevice<Arc<dyn BlockDevice>, Arc<dyn BlockDevice>>;

/// A file from one of its bytes on, which has room for whatever is written.
struct Growing<'a> {
    file: &'a dyn BlockDevice,
    offset: u64,
}

impl BlockDevice for Growing<'_> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(self.file)
    }

    fn size(&self) -> u64 {
        u64::MAX - self.offset
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        self.file.read_at(buf, self.offset.saturating_add(offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), Error> {
        self.file.write_at(buf, self.offset.saturating_add(offset))
    }

    fn flush(&self) -> Result<(), Error> {
        self.file.flush()
    }
}

impl BlockGuard for Sealed {
    fn open(
        &self,
        first: u64,
        data: &mut [u8],
        tags: &[u8],
        wrong: &mut dyn FnMut(u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let blocks = data.chunks_exact_mut(self.sectors.sector_size());
        for (number, (data, kept)) in (first..).zip(blocks.zip(tags.chunks_exact(self.sectors.kept_len()))) {
            if !self.sectors.open(self.sector(number), data, kept)? {
                wrong(number)?;
            }
        }
        Ok(())
    }

    fn seal(&self, first: u64, data: &mut [u8], tags: &mut [u8]) -> Result<(), Error> {
        let random = |bytes: &mut [u8]| Source::System.fill(bytes);
        let blocks = data.chunks_exact_mut(self.sectors.sector_size());
        for (number, (data, kept)) in
            (first..).zip(blocks.zip(tags.chunks_exact_mut(self.sectors.kept_len())))
        {
            self.sectors.seal(self.sector(number), data, kept, &random)?;
        }
        Ok(())
    }
}

impl Volume {
    /// The segment of the data, if they have integrity protection.
    pub(super) fn protected_segment(&self) -> Option<Segment> {
        let crate::Header::Luks2(header) = &self.header else { return None };
        header.metadata.segments().into_iter().next().filter(|segment| segment.integrity.is_some())
    }

    /// The data that have integrity protection, decrypted and checked.
    ///
    /// # Errors
    /// Errors of [`Volume::unlock`]; `Corrupt` for a superblock that does not fit; `Unsupported` for other ciphers.
    pub(super) fn open_protected(
        &self,
        segment: &Segment,
        key: &LuksKey,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<(Medium, Arc<Protected>), Error> {
        self.check_readable().at(self.header_image.name())?;
        let unlocked = self.unlock(key, options, work)?;
        let len = match segment.size {
            SegmentSize::Dynamic => None,
            SegmentSize::Fixed(size) => Some(size),
        };
        let below = self.data.clone().window(segment.offset, len)?;
        let key = unlocked.key_of(&segment.encryption).at(self.header_image.name())?;
        let sealed = self.sealed(segment, key.expose(), &work.providers)?;
        let superblock = casemate_integrity::read_superblock(below.top()).at(below.name())?;
        for flag in [Flags::RECALCULATING, Flags::DIRTY_BITMAP] {
            if superblock.flags.contains(flag) {
                let names: Vec<&str> = flag.names().collect();
                return Err(Error::corrupt(format!(
                    "dm-integrity superblock: it has the flag {}, which accepts wrong tags and never occurs under LUKS2: \
                     the superblock was tampered with",
                    names.concat()
                ))
                .at(self.data.name()));
            }
        }
        let kept = sealed.sectors.kept_len();
        if usize::from(superblock.tag_size) != kept || superblock.block_size() != segment.sector_size {
            return Err(Error::corrupt(format!(
                "dm-integrity superblock: tags of {} bytes for blocks of {}; the LUKS header says {kept} and {}",
                superblock.tag_size,
                superblock.block_size(),
                segment.sector_size
            ))
            .at(self.data.name()));
        }
        let device = IntegrityDevice::open(below.device(), None, sealed).at(below.name())?;
        Ok((below, Arc::new(device)))
    }

    fn sealed(&self, segment: &Segment, key: &[u8], providers: &Providers) -> Result<Sealed, Error> {
        let integrity = segment.integrity.as_deref().unwrap_or_default();
        Sealed::new(&segment.encryption, integrity, key, segment.sector_size, providers)
    }
}
