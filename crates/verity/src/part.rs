//! Parts of a tree, made on many machines, and the root hash from them.

use std::fmt::Debug;
use std::ops::Range;

use casemate_blockdev::{BlockDevice, Medium, u64_of};
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::{Providers, SaltedHash, Work};

use crate::tree::{
    Geometry, Job, Kept, TreeBlocks, TreeDevice, TreeSink, build_part, check_part, check_tree, join, unit,
};
use crate::{Code, Error};

/// The data that a tree covers, in parts: a file for fs-verity, the data of a dm-verity device.
pub trait Whole: Clone + Debug + PartialEq {
    /// Magic of a stored part.
    const MAGIC: [u8; 16];
    /// Bytes of [`Whole::to_bytes`].
    const LEN: usize;
    /// The result of joining all parts.
    type Joined;

    /// The tree's geometry.
    ///
    /// # Errors
    /// `Argument` for a size that can't be.
    fn geometry(&self) -> Result<Geometry, Error>;

    /// The hash with its salt.
    ///
    /// # Errors
    /// `Unsupported` if no implementation of the hash may be used.
    fn hash(&self, providers: &Providers) -> Result<SaltedHash, Error>;

    /// Parameters and size as they are stored with a part.
    fn to_bytes(&self) -> Vec<u8>;

    /// Reads what was stored: `bytes` are [`Whole::LEN`].
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` for what it can't be.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Error>;

    /// The whole with its root hash.
    fn joined(&self, root_hash: Vec<u8>) -> Self::Joined;
}

/// The digests of a part of a tree's data: 32 bytes for every 64 MiB, with SHA-256 and blocks of 4096 bytes.
///
/// Stored, it has the parameters, the size of the whole and its range, and a CRC-32C over all of it.
///
/// ```
/// use casemate_blockdev::MemoryDevice;
/// use casemate_providers::Work;
/// use casemate_verity::Part;
/// use casemate_verity::fs::{WholeFile, Parameters};
///
/// let (file, work) = (WholeFile { parameters: Parameters::default(), size: 3 }, Work::default());
/// let part = Part::build(file, 0, &MemoryDevice::new(b"abc".to_vec()), &(), &work)?;
/// let stored = Part::<WholeFile>::from_bytes(&part.to_bytes(&work.providers), &work.providers)?;
/// let digest = Part::join(&[stored], &(), &work)?.digest(&work.providers)?;
/// assert!(digest.to_string().starts_with("sha256:"));
/// # Ok::<(), casemate_verity::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<W> {
    whole: W,
    range: Range<u64>,
    digests: Vec<u8>,
}

impl<W: Whole> Part<W> {
    /// Bytes before the digests: magic, the whole, and the range.
    const HEAD: usize = W::MAGIC.len() + W::LEN + 16;

    /// Builds the tree over a part of the data: `data` has the bytes from byte `start` on. Hash blocks go to `sink`, numbered as
    /// in the whole tree.
    ///
    /// # Errors
    /// `Argument` for bytes that are not a part; `Io` when reading or writing fails; `Unsupported` if no implementation of the
    /// hash may be used.
    pub fn build(
        whole: W,
        start: u64,
        data: &dyn BlockDevice,
        sink: &dyn TreeSink,
        work: &Work<'_>,
    ) -> Result<Part<W>, Error> {
        let (geometry, hash) = (whole.geometry()?, whole.hash(&work.providers)?);
        let job = Job { shape: *geometry.shape(), hash: &hash, work };
        let digests = build_part(&job, &geometry, start, data, sink)?;
        // OK to add: checked where it is built.
        Ok(Part { whole, range: start..start + data.size(), digests })
    }

    /// Builds the tree over the part that a medium's bytes are, from byte `start` of the whole on: as [`Part::build`] does, with the
    /// hash blocks of it, in order, if they are wanted.
    ///
    /// # Errors
    /// Errors of [`Part::build`].
    pub fn of_medium(
        whole: W,
        start: u64,
        data: &Medium,
        with_tree: bool,
        work: &Work<'_>,
    ) -> Result<(Part<W>, Vec<TreeBlocks>), Error> {
        let geometry = whole.geometry()?;
        let kept = Kept::new(&geometry);
        let sink: &dyn TreeSink = if with_tree { &kept } else { &() };
        let part = Part::build(whole, start, &data.named(), sink, work);
        let part = part.map_err(|error| error.at(data.name()))?;
        Ok((part, kept.into_blocks()))
    }

    /// The bytes of the data that it is of.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Parameters and size of what it is a part of.
    pub fn whole(&self) -> &W {
        &self.whole
    }

    /// The part as it is stored or sent.
    pub fn to_bytes(&self, providers: &Providers) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::HEAD + self.digests.len() + 4);
        bytes.extend(W::MAGIC);
        bytes.extend(self.whole.to_bytes());
        bytes.extend(self.range.start.to_le_bytes());
        bytes.extend(self.range.end.to_le_bytes());
        bytes.extend(&self.digests);
        let sum = checksum(&bytes, providers);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Reads a part.
    ///
    /// # Errors
    /// `Corrupt` for what is none, or damaged; `Unsupported` for one of other parameters than there are.
    pub fn from_bytes(bytes: &[u8], providers: &Providers) -> Result<Part<W>, Error> {
        let wrong = |text: &str| Error::corrupt(format!("part of a tree: {text}"));
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(|| wrong("it ends early"))?;
        let (head, digests) = body.split_at_checked(Self::HEAD).ok_or_else(|| wrong("it ends early"))?;
        let head = head.strip_prefix(&W::MAGIC).ok_or_else(|| wrong("its magic number is wrong"))?;
        if checksum(body, providers) != u32::from_le_bytes(*sum) {
            return Err(wrong("its checksum does not fit"));
        }
        let (whole, range) = head.split_at(W::LEN);
        let whole = W::from_bytes(whole)?;
        let (words, _) = range.as_chunks::<8>();
        let [start, end] = [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])];
        let geometry = whole.geometry()?;
        check_part(&geometry, &(start..end)).map_err(|error| wrong(&error.text()))?;
        let (len, shape) = ((end - start).div_ceil(unit(geometry.shape())), geometry.shape());
        if len.checked_mul(u64_of(shape.digest_len())) != Some(u64_of(digests.len())) {
            return Err(wrong(&format!("{} bytes of digests", digests.len())));
        }
        Ok(Part { whole, range: start..end, digests: digests.to_vec() })
    }

    /// Joins all parts, in any order, to the whole's digest; the same part may come twice. The hash blocks above the
    /// parts go to `sink`.
    ///
    /// # Errors
    /// `Argument` for no part, parts of different data or parameters, and for what is missing, by its bytes; `Mismatch` for
    /// two parts that tell of the same bytes differently.
    pub fn join(parts: &[Part<W>], sink: &dyn TreeSink, work: &Work<'_>) -> Result<W::Joined, Error> {
        let mut parts: Vec<&Part<W>> = parts.iter().collect();
        parts.sort_by_key(|part| (part.range.start, part.range.end));
        parts.dedup();
        let whole = &parts.first().ok_or_else(|| Error::argument("no parts were given"))?.whole;
        let (mut digests, mut end) = (Vec::new(), 0);
        for part in &parts {
            if part.whole != *whole {
                let text =
                    format!("parts that do not belong together: one of {whole:?}, one of {:?}", part.whole);
                return Err(Error::argument(text));
            }
            if part.range.start < end {
                let text = format!("bytes {} to {end} are in two parts that differ", part.range.start);
                return Err(Error::coded(Code::BadDigest, text));
            }
            missing(end, part.range.start)?;
            digests.extend(&part.digests);
            end = part.range.end;
        }
        let geometry = whole.geometry()?;
        missing(end, geometry.data_size())?;
        let hash = whole.hash(&work.providers)?;
        let job = Job { shape: *geometry.shape(), hash: &hash, work };
        Ok(whole.joined(join(&job, &geometry, &digests, sink)?))
    }
}

/// Whether a device has the whole tree below `root_hash`, from byte `tree_offset` to its end: no block of it is damaged or missing, and
/// nothing is behind it. The data are not read.
///
/// # Errors
/// `Argument` for a size that can't be; `Unsupported` if no implementation of the hash may be used; `Io`.
pub fn is_whole_tree<W: Whole>(
    whole: &W,
    device: &dyn BlockDevice,
    tree_offset: u64,
    root_hash: &[u8],
    work: &Work<'_>,
) -> Result<bool, Error> {
    let geometry = whole.geometry()?;
    let end = tree_offset.checked_add(geometry.tree_size());
    if end != Some(device.size()) || root_hash.len() != geometry.shape().digest_len() {
        return Ok(false);
    }
    let hash = whole.hash(&work.providers)?;
    let job = Job { shape: *geometry.shape(), hash: &hash, work };
    let mut is_whole = true;
    let mut report = |_| {
        is_whole = false;
        // One is enough.
        Err(Error::mismatch("a block is not the one that the block above has the digest of"))
    };
    match check_tree(&job, &TreeDevice::new(&geometry, device, tree_offset), root_hash, &mut report) {
        Err(_) if !is_whole => Ok(false),
        done => done.map(|_| true),
    }
}

fn checksum(bytes: &[u8], providers: &Providers) -> u32 {
    !Crc32c::new(providers.cpu()).update(!0, bytes)
}

fn missing(end: u64, start: u64) -> Result<(), Error> {
    match end == start {
        true => Ok(()),
        false => Err(Error::argument(format!("bytes {end} to {start} are in no part"))),
    }
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::{MemoryDevice, Uuid};
    use casemate_testkit::Rng;

    use super::*;
    use crate::dm::{self, Layout, Salt};
    use crate::fs::{Algorithm, Describer, Parameters, WholeFile};

    fn parts(data: &[u8], parameters: &Parameters, work: &Work<'_>) -> Vec<Part<WholeFile>> {
        let unit = unit(&parameters.shape()) as usize;
        let build = |start: usize| {
            let piece = MemoryDevice::new(data[start..data.len().min(start + unit)].to_vec());
            let file = WholeFile { parameters: parameters.clone(), size: data.len() as u64 };
            Part::build(file, start as u64, &piece, &(), work).unwrap()
        };
        (0..data.len().max(1)).step_by(unit).map(build).collect()
    }

    #[test]
    fn joined_parts_have_the_digest_of_the_file() {
        let work = Work::default();
        let parameters = Parameters::new(Algorithm::Sha512, 4096, b"salt").unwrap();
        let unit = unit(&parameters.shape()) as usize;
        let mut data = vec![0; 2 * unit + 5000];
        Rng::new(3).fill(&mut data);
        for len in [0, 1, 4096, 4097, unit - 1, unit, unit + 1, data.len()] {
            let whole = Describer::new(parameters.clone(), &work).unwrap();
            let whole = whole.describe(&MemoryDevice::new(data[..len].to_vec()), &()).unwrap();
            let mut parts = parts(&data[..len], &parameters, &work);
            parts.reverse();
            parts.push(parts[0].clone());
            let stored: Vec<Part<WholeFile>> = parts
                .iter()
                .map(|part| {
                    Part::<WholeFile>::from_bytes(&part.to_bytes(&work.providers), &work.providers).unwrap()
                })
                .collect();
            assert_eq!(stored, parts);
            assert_eq!(Part::join(&stored, &(), &work).unwrap(), whole, "{len}");
        }
    }

    #[test]
    fn joined_parts_are_the_hash_area() {
        let work = Work::default();
        let mut parameters = dm::Parameters::new("sha512").unwrap();
        parameters.salt = Salt::new(b"salt".to_vec()).unwrap();
        let shape = parameters.shape().unwrap();
        let unit = unit(&shape);
        let mut data = vec![0; 2 * unit as usize + 8192];
        Rng::new(4).fill(&mut data);
        for (len, uuid) in [
            (4096, None),
            (unit, Some(Uuid::from_bytes([7; 16]))),
            (data.len() as u64, Some(Uuid::from_bytes([7; 16]))),
        ] {
            let layout = Layout::new(parameters.clone(), len / 4096, 512, uuid).unwrap();
            let areas =
                [0, 1].map(|_| MemoryDevice::new(vec![0; layout.hash_device_size().max(4096) as usize]));
            let device = MemoryDevice::new(data[..len as usize].to_vec());
            let root_hash = dm::format(&layout, &device, &areas[0], &work).unwrap();
            let sink = crate::tree::TreeDevice::new(layout.geometry(), &areas[1], layout.tree_offset());
            let build = |start: u64| {
                let piece = MemoryDevice::new(data[start as usize..len.min(start + unit) as usize].to_vec());
                let part = Part::build(layout.clone(), start, &piece, &sink, &work).unwrap();
                Part::<Layout>::from_bytes(&part.to_bytes(&work.providers), &work.providers).unwrap()
            };
            let parts: Vec<_> = (0..len).step_by(unit as usize).map(build).collect();
            assert_eq!(dm::join(&parts, &areas[1], &work).unwrap(), root_hash, "{len}");
            let [whole, joined] = areas.map(MemoryDevice::into_bytes);
            assert!(whole == joined, "{len}: the hash areas differ");
        }
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let work = Work::default();
        let parameters = Parameters::new(Algorithm::Sha512, 4096, b"").unwrap();
        let unit = unit(&parameters.shape()) as usize;
        let mut data = vec![7; 2 * unit + 1];
        let good = parts(&data, &parameters, &work);
        let says = |parts: &[Part<WholeFile>], what: &str| {
            let error = Part::join(parts, &(), &work).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        says(&[], "no parts were given");
        says(&good[1..], &format!("bytes 0 to {unit} are in no part"));
        says(&good[..2], &format!("bytes {} to {} are in no part", 2 * unit, data.len()));
        data[unit + 5] = 8;
        let other = parts(&data, &parameters, &work);
        says(&[good[0].clone(), good[1].clone(), other[1].clone(), good[2].clone()], "differ");
        let shorter = parts(&data[..2 * unit], &parameters, &work);
        says(&[good[0].clone(), shorter[1].clone()], "do not belong together");
        let bytes = good[0].to_bytes(&work.providers);
        for (at, what) in [(0, "magic"), (30, "checksum"), (bytes.len() - 1, "checksum")] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let error = Part::<WholeFile>::from_bytes(&damaged, &work.providers).unwrap_err().to_string();
            assert!(error.contains(what), "{at}: {error}");
        }
        for len in 0..bytes.len() {
            assert!(Part::<WholeFile>::from_bytes(&bytes[..len], &work.providers).is_err());
        }
    }
}
