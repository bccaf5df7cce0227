//! Contents of files in images, checked against their fs-verity trees while they are read.

use std::ops::Range;

use casemate_blockdev::{BlockDevice, Window, u64_of, usize_of};
use casemate_ext4::{Contents, Ext4, Inode, InodeFlags};
use casemate_primitives::sha256::Sha256;
use casemate_providers::{Providers, Work};
use casemate_verity::fs::{Descriptor, FileDigest};

use crate::Error;

/// Demand on files with and without fs-verity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerityPolicy {
    /// Every file must have fs-verity, and match it.
    Require,
    /// Files that have fs-verity must match it.
    #[default]
    Check,
    /// Trees are not looked at.
    Ignore,
}

/// The fs-verity descriptor of a file, and its signature.
#[derive(Clone, Debug)]
pub struct VerityInfo {
    /// The descriptor.
    pub descriptor: Descriptor,
    /// The built-in signature, empty if there is none.
    pub signature: Vec<u8>,
}

impl VerityInfo {
    /// The file's digest.
    ///
    /// # Errors
    /// Errors of [`Descriptor::digest`].
    pub fn digest(&self, providers: &Providers) -> Result<FileDigest, Error> {
        self.descriptor.digest(providers)
    }
}

/// Opens a regular file; where it has fs-verity and the policy says so, every read is checked.
///
/// The tree shows damage. Whether it is the right tree, only its digest can tell: see [`verity_info`].
///
/// # Errors
/// `Mismatch` if the policy demands fs-verity and there is none, and if the descriptor is not that of the file.
pub fn open_file(
    fs: &Ext4,
    inode: &Inode,
    policy: VerityPolicy,
    providers: &Providers,
) -> Result<Box<dyn BlockDevice>, Error> {
    let place = || format!("inode {}", inode.number());
    let plain = || fs.open_file(inode).map_err(|error| error.at(place()));
    if policy == VerityPolicy::Ignore {
        return Ok(Box::new(plain()?));
    }
    let metadata = fs.verity(inode).map_err(|error| error.at(place()))?;
    let Some(metadata) = metadata else {
        if policy == VerityPolicy::Require {
            return Err(Error::mismatch(format!("{}: no fs-verity, which is required", place())));
        }
        return Ok(Box::new(plain()?));
    };
    let (descriptor, _) = Descriptor::from_disk(&metadata.descriptor).map_err(|error| error.at(place()))?;
    let tree = Window::new(metadata.whole, metadata.tree_offset, metadata.tree_room)
        .map_err(|error| Error::io(place(), error))?;
    let verified = descriptor.verified(providers, plain()?, tree, 0).map_err(|error| error.at(place()))?;
    Ok(Box::new(ProvenHoles(verified)))
}

/// Bytes of a hole that are read before anybody hears of it.
const MOST_PROVEN: u64 = 64 << 20;

/// A file whose reads are checked. Its holes are read, and so proven to be zeros, before anybody passes over them.
struct ProvenHoles<D>(D);

impl<D: BlockDevice> BlockDevice for ProvenHoles<D> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.0)
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), Error> {
        self.0.write_at(buf, offset)
    }

    fn flush(&self) -> Result<(), Error> {
        self.0.flush()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let size = self.size();
        let Some(plain) = self.0.below() else { return self.0.next_data(offset) };
        let data = plain
            .next_data(offset)?
            .filter(|data| data.start < size)
            .map(|data| data.start..data.end.min(size));
        let hole = offset..data.as_ref().map_or(size, |data| data.start);
        // A hole may be as long as any number: some zeros are called data, so that whoever asks hears of it now and then.
        let proven = hole.start..hole.end.min(hole.start.saturating_add(MOST_PROVEN));
        let mut buffer = Vec::new();
        let mut at = hole.start;
        while at < proven.end {
            buffer.resize(usize_of((proven.end - at).min(1 << 20)), 0);
            // Whoever reads what is no hole by its tree is told.
            if self.0.read_at(&mut buffer, at).is_err() {
                return Ok(Some(at..data.map_or(size, |data| data.end)));
            }
            at += u64_of(buffer.len());
        }
        Ok(if at < hole.end { Some(at..hole.end.min(at.saturating_add(4096))) } else { data })
    }
}

/// The fs-verity descriptor of a file; `None` for files without.
///
/// # Errors
/// `Corrupt` if it is not where it belongs or makes no sense.
pub fn verity_info(fs: &Ext4, inode: &Inode) -> Result<Option<VerityInfo>, Error> {
    if !inode.has(InodeFlags::VERITY) {
        return Ok(None);
    }
    let place = || format!("inode {}", inode.number());
    let metadata = fs.verity(inode).map_err(|error| error.at(place()))?;
    let Some(metadata) = metadata else { return Ok(None) };
    let (descriptor, signature) =
        Descriptor::from_disk(&metadata.descriptor).map_err(|error| error.at(place()))?;
    Ok(Some(VerityInfo { signature: signature.to_vec(), descriptor }))
}

/// The SHA-256 of a file's contents; the listener hears of its bytes.
///
/// # Errors
/// Errors of reading.
pub fn sha256(file: &dyn BlockDevice, work: &Work<'_>) -> Result<[u8; 32], Error> {
    let mut hash = Sha256::new(work.providers.cpu()).hasher();
    // At most a MiB.
    let mut buffer = vec![0; usize_of(file.size().min(1 << 20))];
    let mut at = 0;
    while at < file.size() {
        let len = usize_of((file.size() - at).min(1 << 20));
        file.read_at(&mut buffer[..len], at)?;
        hash.update(&buffer[..len]);
        work.events.advance(u64_of(len))?;
        at += u64_of(len);
    }
    Ok(hash.finalize())
}

/// [`open_file`], for copies of whole trees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked<'a> {
    pub policy: VerityPolicy,
    pub providers: &'a Providers,
}

impl Contents for Checked<'_> {
    fn open(&self, fs: &Ext4, inode: &Inode) -> casemate_ext4::Result<Box<dyn BlockDevice>> {
        open_file(fs, inode, self.policy, self.providers)
    }
}
