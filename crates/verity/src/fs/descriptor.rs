//! `struct fsverity_descriptor`: the 256 bytes whose hash is the file's digest.

use casemate_blockdev::{BlockDevice, Medium, u32_of, usize_of};
use casemate_providers::Providers;

use crate::fs::{Algorithm, FileDigest, Parameters};
use crate::tree::VerifiedDevice;
use crate::{Code, Error};

/// The first byte of the tree in a file with a descriptor before it.
pub(crate) const TREE_OFFSET: u64 = 4096;

const ROOT_HASH: usize = 16;
const SALT: usize = 80;
const RESERVED: usize = 112;

/// A file's fs-verity descriptor: the parameters, size and root hash of its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    parameters: Parameters,
    data_size: u64,
    root_hash: Vec<u8>,
}

impl Descriptor {
    /// Bytes of a descriptor without a signature.
    pub const LEN: usize = 256;
    /// The most bytes of a descriptor and its signature together (`FS_VERITY_MAX_DESCRIPTOR_SIZE`).
    pub const MAX_LEN_ON_DISK: usize = 16384;

    /// The descriptor of a file of `data_size` bytes.
    ///
    /// # Panics
    /// If `root_hash` does not have the length of a digest.
    pub fn new(parameters: Parameters, data_size: u64, root_hash: &[u8]) -> Descriptor {
        assert_eq!(root_hash.len(), parameters.algorithm().digest_len(), "a root hash is a digest");
        Descriptor { parameters, data_size, root_hash: root_hash.to_vec() }
    }

    /// Whether a medium begins with a descriptor, and zeros up to the tree behind it.
    pub(crate) fn leads_tree(medium: &Medium) -> Result<bool, Error> {
        let mut begin = vec![0; usize_of(TREE_OFFSET)];
        if medium.top().size() < TREE_OFFSET {
            return Ok(false);
        }
        medium.named().read_at(&mut begin, 0)?;
        let (descriptor, rest) = begin.split_at(Descriptor::LEN);
        Ok(Descriptor::from_bytes(descriptor).is_ok() && rest.iter().all(|byte| *byte == 0))
    }

    /// Reads a descriptor of exactly 256 bytes, as `fsverity digest --out-descriptor` writes it and
    /// `fsverity dump_metadata descriptor` shows it: without a signature.
    ///
    /// # Errors
    /// `Corrupt` for what no tool writes; `Unsupported` for versions and algorithms that are not known.
    pub fn from_bytes(bytes: &[u8]) -> Result<Descriptor, Error> {
        if bytes.len() != Descriptor::LEN {
            return Err(corrupt(format!("has {} bytes instead of {}", bytes.len(), Descriptor::LEN)));
        }
        match Descriptor::from_disk(bytes)? {
            (descriptor, []) => Ok(descriptor),
            _ => Err(corrupt("says that a signature follows".to_owned())),
        }
    }

    /// Reads a descriptor and the signature after it, as file systems keep them; the signature is empty if
    /// there is none.
    ///
    /// # Errors
    /// As [`Descriptor::from_bytes`]; `Corrupt` too if the signature's length is not that of the rest.
    pub fn from_disk(bytes: &[u8]) -> Result<(Descriptor, &[u8]), Error> {
        if bytes.len() < Descriptor::LEN || bytes.len() > Descriptor::MAX_LEN_ON_DISK {
            let (least, most) = (Descriptor::LEN, Descriptor::MAX_LEN_ON_DISK);
            return Err(corrupt(format!("has {} bytes instead of {least} to {most}", bytes.len())));
        }
        let (bytes, signature) = bytes.split_at(Descriptor::LEN);
        let (version, hash_algorithm, log_blocksize, salt_size) = (bytes[0], bytes[1], bytes[2], bytes[3]);
        // OK to unwrap, here and below: the ranges have these lengths.
        let sig_size = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
        let data_size = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
        if version != 1 {
            return Err(Error::unsupported(format!("fs-verity descriptor: version {version}")));
        }
        let Some(algorithm) = Algorithm::numbered(hash_algorithm.into()) else {
            let text = format!("fs-verity descriptor: hash algorithm number {hash_algorithm}");
            return Err(Error::unsupported(text));
        };
        if usize_of(sig_size) != signature.len() {
            let rest = signature.len();
            return Err(corrupt(format!(
                "says that a signature of {sig_size} bytes follows; there are {rest}"
            )));
        }
        let salt_len = usize::from(salt_size);
        if salt_len > Parameters::MAX_SALT {
            return Err(corrupt(format!("has a salt of {salt_size} bytes; at most 32 are allowed")));
        }
        let (root_hash, root_padding) = bytes[ROOT_HASH..SALT].split_at(algorithm.digest_len());
        let (salt, salt_padding) = bytes[SALT..RESERVED].split_at(salt_len);
        let zero = |part: &[u8]| part.iter().all(|byte| *byte == 0);
        if !zero(root_padding) || !zero(salt_padding) || !zero(&bytes[RESERVED..]) {
            return Err(corrupt("has something in fields that must be zero".to_owned()));
        }
        let block_size = 1u32.checked_shl(log_blocksize.into()).unwrap_or(0);
        let parameters = Parameters::new(algorithm, block_size, salt).map_err(|_| {
            Error::unsupported(format!("fs-verity descriptor: blocks of 2^{log_blocksize} bytes"))
        })?;
        Ok((Descriptor::new(parameters, data_size, root_hash), signature))
    }

    /// The data under this descriptor as a device whose reads are checked; its tree begins at byte
    /// `tree_offset` of `tree`.
    ///
    /// # Errors
    /// `Mismatch` if the data has another size than the descriptor says, or is empty and the root hash is not
    /// zero; `Unsupported` if no implementation of the hash may be used.
    pub fn verified<D: BlockDevice, T: BlockDevice>(
        &self,
        providers: &Providers,
        data: D,
        tree: T,
        tree_offset: u64,
    ) -> Result<VerifiedDevice<D, T>, Error> {
        if data.size() != self.data_size {
            let (found, right) = (data.size(), self.data_size);
            return Err(Error::coded(
                Code::BadDigest,
                format!("{found} bytes; the descriptor is of a file of {right}"),
            ));
        }
        if self.data_size == 0 && self.root_hash.iter().any(|byte| *byte != 0) {
            return Err(Error::coded(Code::BadDigest, "the root hash of an empty file must be zero"));
        }
        let geometry = self.parameters.geometry(self.data_size)?;
        let hash = self.parameters.block_hash(providers)?;
        Ok(VerifiedDevice::new(geometry, hash, data, tree, tree_offset, &self.root_hash))
    }

    /// The descriptor's 256 bytes without a signature: what is hashed, and what `--out-descriptor` writes.
    pub fn to_bytes(&self) -> [u8; Descriptor::LEN] {
        let mut bytes = [0; Descriptor::LEN];
        let salt = self.parameters.salt();
        bytes[0] = 1;
        bytes[1] = self.parameters.algorithm().number();
        bytes[2] = self.parameters.log_block_size();
        // Parameters have checked that there are at most 32.
        bytes[3] = u8::try_from(salt.len()).unwrap_or(u8::MAX);
        bytes[8..16].copy_from_slice(&self.data_size.to_le_bytes());
        bytes[ROOT_HASH..][..self.root_hash.len()].copy_from_slice(&self.root_hash);
        bytes[SALT..][..salt.len()].copy_from_slice(salt);
        bytes
    }

    /// The descriptor and `signature` as file systems keep them.
    ///
    /// # Errors
    /// `Unsupported` if both together are longer than the kernel reads.
    pub fn to_disk(&self, signature: &[u8]) -> Result<Vec<u8>, Error> {
        let mut bytes = self.to_bytes().to_vec();
        bytes.extend_from_slice(signature);
        if bytes.len() > Descriptor::MAX_LEN_ON_DISK {
            let most = Descriptor::MAX_LEN_ON_DISK - Descriptor::LEN;
            let text =
                format!("the signature has {} bytes, and the kernel takes at most {most}", signature.len());
            return Err(Error::unsupported(text));
        }
        bytes[4..8].copy_from_slice(&u32_of(signature.len()).to_le_bytes());
        Ok(bytes)
    }

    /// The file digest: the hash of the descriptor's 256 bytes.
    ///
    /// # Errors
    /// `Unsupported` with the reasons, if no implementation of the hash may be used.
    pub fn digest(&self, providers: &Providers) -> Result<FileDigest, Error> {
        let algorithm = self.parameters.algorithm();
        let digest = providers.hash(algorithm.name())?.digest(&self.to_bytes());
        Ok(FileDigest::new(algorithm, digest))
    }

    /// The tree's parameters: algorithm, block size and salt.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The file's size in bytes.
    pub fn data_size(&self) -> u64 {
        self.data_size
    }

    /// The root hash of the tree; all zero for an empty file.
    pub fn root_hash(&self) -> &[u8] {
        &self.root_hash
    }
}

fn corrupt(what: String) -> Error {
    Error::corrupt(format!("fs-verity descriptor: {what}"))
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;

    fn example() -> Descriptor {
        let parameters = Parameters::new(Algorithm::Sha256, 1024, b"salt").unwrap();
        Descriptor::new(parameters, 123_456_789_012, &[0xab; 32])
    }

    #[test]
    fn bytes_round_trip() {
        let descriptor = example();
        assert_eq!(Descriptor::from_bytes(&descriptor.to_bytes()).unwrap(), descriptor);
        let disk = descriptor.to_disk(b"signed").unwrap();
        assert_eq!(Descriptor::from_disk(&disk).unwrap(), (descriptor.clone(), &b"signed"[..]));
        assert!(Descriptor::from_bytes(&disk[..256]).is_err(), "the signature is missing");
        assert!(Descriptor::from_disk(&disk[..260]).is_err(), "the signature is cut");
        assert!(descriptor.to_disk(&[0; 16384 - 255]).is_err());
    }

    /// Every byte of an accepted descriptor is understood: it is written back as it was.
    #[test]
    fn hostile_bytes_are_refused_or_understood() {
        let mut rng = Rng::new(0xde5c);
        for round in 0..20_000 {
            let mut bytes = example().to_bytes().to_vec();
            for _ in 0..rng.below(4) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            if rng.below(8) == 0 {
                bytes.truncate(rng.below(257) as usize);
            }
            if rng.below(50) == 0 {
                rng.fill(&mut bytes);
            }
            if let Ok(descriptor) = Descriptor::from_bytes(&bytes) {
                assert_eq!(descriptor.to_bytes()[..], bytes, "round {round}");
            }
        }
    }
}
