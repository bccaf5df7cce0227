//! LUKS2 with integrity protection: data that dm-crypt encrypts with tags, which lie in a dm-integrity volume.

use casemate_blockdev::AtFile;
use casemate_crypt::AuthenticatedSectors;
use casemate_integrity::BlockGuard;
use casemate_luks::luks2::{Segment, SegmentSize};
use casemate_providers::{Providers, Work};

use super::{LuksKey, LuksOptions, Volume};
use crate::{Error, Image};

/// What decrypts blocks that are read and encrypts those that are written.
#[derive(Debug)]
struct Sealed {
    sectors: AuthenticatedSectors,
}

impl Sealed {
    fn sector(&self, block: u64) -> u64 {
        block * (self.sectors.sector_size() as u64 / 512)
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

    fn seal(&self, block: u64, data: &mut [u8], tag: &mut [u8]) -> Result<(), Error> {
        let random = |bytes: &mut [u8]| {
            getrandom::fill(bytes).map_err(|error| Error::io("random numbers", std::io::Error::from(error)))
        };
        self.sectors.seal(self.sector(block), data, tag, &random)
    }
}

impl Volume {
    /// The segment of the data, if they have integrity protection.
    pub(super) fn protected_segment(&self) -> Option<Segment> {
        let casemate_luks::Header::Luks2(header) = &self.header else { return None };
        header.metadata.segments().into_iter().next().filter(|segment| segment.integrity.is_some())
    }

    /// The data that have integrity protection, decrypted and checked.
    ///
    /// # Errors
    /// Those of [`Volume::unlock`] and [`Image::integrity_superblock`]; `Unsupported` for other ciphers.
    pub(super) fn open_protected(
        &self,
        segment: &Segment,
        key: &LuksKey,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<Image, Error> {
        self.check_readable().at(self.header_image.name())?;
        let unlocked = self.unlock(key, options, work)?;
        let len = match segment.size {
            SegmentSize::Dynamic => None,
            SegmentSize::Fixed(size) => Some(size),
        };
        let below = self.data.clone().window(segment.offset, len)?;
        let sealed = self.sealed(segment, unlocked.volume_key().expose(), &work.providers)?;
        let superblock = below.integrity_superblock()?;
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
        below.guarded(sealed)
    }

    fn sealed(&self, segment: &Segment, key: &[u8], providers: &Providers) -> Result<Sealed, Error> {
        let integrity = segment.integrity.as_deref().unwrap_or_default();
        let size = segment.sector_size as usize;
        AuthenticatedSectors::new(&segment.encryption, integrity, key, size, providers)
            .map(|sectors| Sealed { sectors })
    }
}
