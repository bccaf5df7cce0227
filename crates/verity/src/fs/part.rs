//! Parts of a file's tree, made on many machines, and the file's descriptor from them.

use std::ops::Range;

use casemate_blockdev::BlockDevice;
use casemate_primitives::Cpu;
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;

use crate::Error;
use crate::fs::{Descriptor, Parameters};
use crate::tree::{Job, TreeSink, build_part, check_part, join, unit};

/// What a part begins with when it is stored.
const MAGIC: [u8; 16] = *b"casemate part 1\0";

/// Bytes before the digests: magic, a descriptor with parameters and size, and the range.
const HEAD: usize = MAGIC.len() + Descriptor::LEN + 16;

/// The digests of a part of a file: 32 bytes for every 64 MiB, with SHA-256 and blocks of 4096 bytes.
///
/// Stored, it has its parameters, the file's size and its range, and a CRC-32C over all of it.
///
/// ```
/// use casemate_blockdev::MemoryDevice;
/// use casemate_providers::Work;
/// use casemate_verity::fs::{FilePart, Parameters};
///
/// let (parameters, work) = (Parameters::default(), Work::default());
/// let whole = FilePart::build(parameters, 3, 0, &MemoryDevice::new(b"abc".to_vec()), &(), &work)?;
/// let stored = FilePart::from_bytes(&whole.to_bytes())?;
/// let digest = FilePart::join(&[stored], &(), &work)?.digest(&work.providers)?;
/// assert!(digest.to_string().starts_with("sha256:"));
/// # Ok::<(), casemate_verity::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    parameters: Parameters,
    size: u64,
    range: Range<u64>,
    digests: Vec<u8>,
}

impl FilePart {
    /// Bytes of a file that parts begin at multiples of; all but the last one end there, too.
    pub fn unit(parameters: &Parameters) -> u64 {
        unit(&parameters.shape())
    }

    /// Builds the tree over a part of a file of `size` bytes: `data` has the bytes from byte `start` on. Hash blocks go to `sink`,
    /// numbered as in the file's whole tree.
    ///
    /// # Errors
    /// `Argument` for bytes that are no part; `Io` when reading or writing fails; `Unsupported` if no implementation of the
    /// hash may be used.
    pub fn build(
        parameters: Parameters,
        size: u64,
        start: u64,
        data: &dyn BlockDevice,
        sink: &dyn TreeSink,
        work: &Work<'_>,
    ) -> Result<FilePart, Error> {
        let geometry = parameters.geometry(size)?;
        let hash = parameters.block_hash(&work.providers)?;
        let job = Job { shape: parameters.shape(), hash: &hash, work };
        let digests = build_part(&job, &geometry, start, data, sink)?;
        // OK to add: checked where it is built.
        Ok(FilePart { parameters, size, range: start..start + data.size(), digests })
    }

    /// The bytes of the file that it is of.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Bytes of the whole file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The parameters of the tree: algorithm, block size and salt.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The part as it is stored or sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.digests.len() + 4);
        bytes.extend(MAGIC);
        // Its root hash is not known yet.
        let root_hash = vec![0; self.parameters.algorithm().digest_len()];
        bytes.extend(Descriptor::new(self.parameters.clone(), self.size, &root_hash).to_bytes());
        bytes.extend(self.range.start.to_le_bytes());
        bytes.extend(self.range.end.to_le_bytes());
        bytes.extend(&self.digests);
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Reads a part.
    ///
    /// # Errors
    /// `Corrupt` for what is none, or damaged; `Unsupported` for one of other parameters than there are.
    pub fn from_bytes(bytes: &[u8]) -> Result<FilePart, Error> {
        let wrong = |text: &str| Error::corrupt(format!("part of a tree: {text}"));
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(|| wrong("it ends early"))?;
        let (head, digests) = body.split_at_checked(HEAD).ok_or_else(|| wrong("it ends early"))?;
        let head = head.strip_prefix(&MAGIC).ok_or_else(|| wrong("no magic number"))?;
        if checksum(body) != u32::from_le_bytes(*sum) {
            return Err(wrong("its checksum does not fit"));
        }
        let (descriptor, range) = head.split_at(Descriptor::LEN);
        let descriptor = Descriptor::from_bytes(descriptor)?;
        let (words, _) = range.as_chunks::<8>();
        let [start, end] = [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])];
        let (parameters, size) = (descriptor.parameters().clone(), descriptor.data_size());
        check_part(&parameters.geometry(size)?, &(start..end)).map_err(|error| wrong(&error.text()))?;
        let len = (end - start).div_ceil(FilePart::unit(&parameters));
        if len.checked_mul(parameters.algorithm().digest_len() as u64) != Some(digests.len() as u64) {
            return Err(wrong(&format!("{} bytes of digests", digests.len())));
        }
        Ok(FilePart { parameters, size, range: start..end, digests: digests.to_vec() })
    }

    /// The file's descriptor from all its parts, in any order; the same part may come twice. The hash blocks above the parts go
    /// to `sink`.
    ///
    /// # Errors
    /// `Argument` for no part, parts of different files or parameters, and for what is missing, by its bytes; `Mismatch` for
    /// two parts that tell of the same bytes differently.
    pub fn join(parts: &[FilePart], sink: &dyn TreeSink, work: &Work<'_>) -> Result<Descriptor, Error> {
        let mut parts: Vec<&FilePart> = parts.iter().collect();
        parts.sort_by_key(|part| (part.range.start, part.range.end));
        parts.dedup();
        let first = parts.first().ok_or_else(|| Error::argument("no part of a file"))?;
        let (parameters, size) = (&first.parameters, first.size);
        let mut digests = Vec::new();
        let mut end = 0;
        for part in &parts {
            if (&part.parameters, part.size) != (parameters, size) {
                let text = format!(
                    "parts of different files: one of {} bytes, with {:?}, and one of {size}, with {parameters:?}",
                    part.size, part.parameters
                );
                return Err(Error::argument(text));
            }
            if part.range.start < end {
                let text =
                    format!("bytes {} to {end} of the file are in two parts that differ", part.range.start);
                return Err(Error::mismatch(text));
            }
            missing(end, part.range.start)?;
            digests.extend(&part.digests);
            end = part.range.end;
        }
        missing(end, size)?;
        let hash = parameters.block_hash(&work.providers)?;
        let job = Job { shape: parameters.shape(), hash: &hash, work };
        let root_hash = join(&job, &parameters.geometry(size)?, &digests, sink)?;
        Ok(Descriptor::new(parameters.clone(), size, &root_hash))
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    !Crc32c::new(Cpu::detect()).update(!0, bytes)
}

fn missing(end: u64, start: u64) -> Result<(), Error> {
    match end == start {
        true => Ok(()),
        false => Err(Error::argument(format!("no part of bytes {end} to {start} of the file"))),
    }
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::MemoryDevice;
    use casemate_testkit::Rng;

    use super::*;
    use crate::fs::{Algorithm, Describer};

    fn parts(data: &[u8], parameters: &Parameters, work: &Work<'_>) -> Vec<FilePart> {
        let unit = FilePart::unit(parameters) as usize;
        let build = |start: usize| {
            let piece = MemoryDevice::new(data[start..data.len().min(start + unit)].to_vec());
            let (size, start) = (data.len() as u64, start as u64);
            FilePart::build(parameters.clone(), size, start, &piece, &(), work).unwrap()
        };
        (0..data.len().max(1)).step_by(unit).map(build).collect()
    }

    #[test]
    fn joined_parts_have_the_digest_of_the_file() {
        let work = Work::default();
        let parameters = Parameters::new(Algorithm::Sha512, 4096, b"salt").unwrap();
        let unit = FilePart::unit(&parameters) as usize;
        let mut data = vec![0; 2 * unit + 5000];
        Rng::new(3).fill(&mut data);
        for len in [0, 1, 4096, 4097, unit - 1, unit, unit + 1, data.len()] {
            let whole = Describer::new(parameters.clone(), &work).unwrap();
            let whole = whole.describe(&MemoryDevice::new(data[..len].to_vec()), &()).unwrap();
            let mut parts = parts(&data[..len], &parameters, &work);
            parts.reverse();
            parts.push(parts[0].clone());
            let stored: Vec<FilePart> =
                parts.iter().map(|part| FilePart::from_bytes(&part.to_bytes()).unwrap()).collect();
            assert_eq!(stored, parts);
            assert_eq!(FilePart::join(&stored, &(), &work).unwrap(), whole, "{len}");
        }
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let work = Work::default();
        let parameters = Parameters::new(Algorithm::Sha512, 4096, b"").unwrap();
        let unit = FilePart::unit(&parameters) as usize;
        let mut data = vec![7; 2 * unit + 1];
        let good = parts(&data, &parameters, &work);
        let says = |parts: &[FilePart], what: &str| {
            let error = FilePart::join(parts, &(), &work).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        says(&[], "no part");
        says(&good[1..], &format!("no part of bytes 0 to {unit}"));
        says(&good[..2], &format!("no part of bytes {} to {}", 2 * unit, data.len()));
        data[unit + 5] = 8;
        let other = parts(&data, &parameters, &work);
        says(&[good[0].clone(), good[1].clone(), other[1].clone(), good[2].clone()], "differ");
        let shorter = parts(&data[..2 * unit], &parameters, &work);
        says(&[good[0].clone(), shorter[1].clone()], "different files");
        let bytes = good[0].to_bytes();
        for (at, what) in [(0, "magic"), (30, "checksum"), (bytes.len() - 1, "checksum")] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let error = FilePart::from_bytes(&damaged).unwrap_err().to_string();
            assert!(error.contains(what), "{at}: {error}");
        }
        for len in 0..bytes.len() {
            assert!(FilePart::from_bytes(&bytes[..len]).is_err());
        }
    }
}
