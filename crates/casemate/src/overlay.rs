//! Proof that the image below an overlay is the one that it was made over.
//!
//! An image that lies in regular files is proved by their lengths and times of modification, any other one by samples and by
//! checksums of what lies under the overlay's blocks (docs/formats/overlay.md).

use std::ops::Range;
use std::path::PathBuf;
use std::{fmt, fs};

use casemate_blockdev::{
    AtFile, BlockDevice, InPlaceWork, Mark, Medium, OverlayBase, OverlayEdition, partitions, samples, u64_of,
    usize_of,
};
use casemate_primitives::Messages;
use casemate_providers::Hash;

use crate::Error;

/// Image below an overlay, with its layers.
pub(crate) struct Base {
    pub(crate) medium: Medium,
    /// Root hash of the topmost verity device, if there is one.
    pub(crate) root_hash: Option<Vec<u8>>,
    /// Whether samples tell of what is shown: it is more than a window of what a verity device verifies.
    pub(crate) is_sampled: bool,
    /// Whether the caller answers for the image.
    pub(crate) is_trusted: bool,
    /// The overlay's file, which a mark on the image names while a commit writes to the image; `None` where nothing is marked.
    pub(crate) overlay: Option<PathBuf>,
    pub(crate) sha256: Hash,
}

/// Bytes at the beginning of each partition that are samples, too: superblocks lie there.
const BEGINNING: u64 = 128 << 10;
/// The most partitions whose beginnings are samples.
const PARTITIONS: usize = 128;

impl Base {
    fn read(&self, device: &dyn BlockDevice, range: &Range<u64>) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; usize_of(range.end - range.start)];
        device.read_at(&mut bytes, range.start)?;
        Ok(bytes)
    }
}

impl OverlayBase for Base {
    fn identity(&self, device: &dyn BlockDevice, edition: OverlayEdition) -> Result<Vec<u8>, Error> {
        if edition == OverlayEdition::First {
            if let Some(root_hash) = &self.root_hash {
                return Ok(root_hash.get(..64).unwrap_or(root_hash).to_vec());
            }
            let read = samples(device.size()).map(|range| self.read(device, &range));
            let all: Vec<Vec<u8>> = read.collect::<Result<_, _>>()?;
            return Ok(self.sha256.digest(&all.concat()));
        }
        let mut parts = Vec::new();
        let mut add = |bytes: &[u8]| {
            parts.extend_from_slice(&u64_of(bytes.len()).to_le_bytes());
            parts.extend_from_slice(bytes);
        };
        add(self.root_hash.as_deref().unwrap_or_default());
        let places = self.medium.windows().flat_map(|window| [window.start, window.end]);
        add(&places.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
        if self.is_sampled {
            // A device without a table has none.
            let table = partitions(device).unwrap_or_default();
            let size = device.size();
            let beginning = |start: u64| start..start.saturating_add(BEGINNING).min(size);
            let beginnings = table.iter().take(PARTITIONS).map(|partition| beginning(partition.start));
            for range in samples(size).chain(beginnings.filter(|range| range.start < range.end)) {
                add(&self.sha256.digest(&self.read(device, &range)?));
            }
        }
        Ok(self.sha256.digest(&parts))
    }

    fn state(&self) -> Result<Option<[u8; 32]>, Error> {
        let writes = if self.is_constant() { None } else { self.medium.last_writes()? };
        let digest = |writes: Vec<u8>| self.sha256.digest(&writes).try_into().expect("as many bytes");
        Ok(writes.map(digest))
    }

    fn is_constant(&self) -> bool {
        self.root_hash.is_some()
    }

    fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    fn marked(&self) -> Result<Option<[u8; 32]>, Error> {
        let mark = self.medium.mark()?.filter(|mark| mark.work == InPlaceWork::Commit);
        Ok(mark.map(|mark| mark.id))
    }

    fn begin_commit(&self, number: [u8; 32]) -> Result<(), Error> {
        let Some(overlay) = &self.overlay else { return Ok(()) };
        let journal = fs::canonicalize(overlay).at(overlay.display())?;
        self.medium.set_mark(&Mark { work: InPlaceWork::Commit, id: number, journal })
    }

    fn end_commit(&self) -> Result<(), Error> {
        if self.overlay.is_some() { self.medium.remove_mark() } else { Ok(()) }
    }

    fn checksums(&self, sectors: &[u8]) -> Vec<u8> {
        let (whole, last) = sectors.split_at(sectors.len() - sectors.len() % 512);
        let hash = self.sha256.salted(&[], &[]);
        let mut digests = vec![0; whole.len() / 512 * 32];
        hash.hash_many(Messages::contiguous(whole, 512), &mut digests);
        if !last.is_empty() {
            digests.extend(self.sha256.digest(last));
        }
        digests.chunks(32).flat_map(|digest| &digest[..8]).copied().collect()
    }
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Base").field("medium", &self.medium).finish_non_exhaustive()
    }
}
