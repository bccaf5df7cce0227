//! Changing the file systems of images.

use std::path::PathBuf;
use std::time::Duration;

use casemate_blockdev::{AtFile, BlockDevice};
use casemate_ext4::{RecoveryFile, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, WriteOptions};
use casemate_fscrypt::{Context, InodeInfo, MasterKey, Mode, Policy};
use casemate_primitives::secret::SecretVec;
use casemate_providers::Providers;

pub use casemate_ext4::{Interrupted, NewNode, PutOptions, PutReport, Writer};

use super::{Reading, Time, check_key};
use crate::{Error, Image};

/// How to change a file system.
#[derive(Clone, Debug)]
pub struct Changing {
    /// How it is read, and with which keys of encrypted files.
    pub reading: Reading,
    /// What generations of new inodes are made from; random if `None`.
    pub seed: Option<u64>,
    /// The time to note changes with; the clock's if `None`.
    pub time: Option<Time>,
    /// Where transactions of a file system without a journal are kept; beside the image if `None`.
    pub recovery_file: Option<PathBuf>,
    /// Hears how long it will take to see whether another machine uses the file system, where that must be seen.
    pub waiting: Option<fn(Duration)>,
}

/// Opens the file system on an image for changes, and recovers it first if an earlier change was interrupted.
///
/// # Errors
/// `Argument` if the image was opened for reading; `Unsupported` for features that can't be kept right, and without a
/// journal for what is decrypted; `Corrupt` when e2fsck should repair it first; `Mismatch` if what was decrypted is none.
pub fn open_for_change(image: &Image, changing: &Changing) -> Result<Writer, Error> {
    image.check_writable()?;
    check_key(image)?;
    let mut recovery = changing.recovery_file.clone().or_else(|| image.recovery_file());
    if image.is_decrypted() {
        let mut raw = [0; SUPERBLOCK_SIZE];
        image.device().read_at(&mut raw, SUPERBLOCK_OFFSET).at(image.name())?;
        if Superblock::from_bytes(&raw).at(image.name())?.journal_inode == 0 {
            let text = "an encrypted file system without a journal can't be changed: what is kept until a change is whole \
                        would lie beside it in plain text; tune2fs -j gives it a journal";
            return Err(Error::unsupported(text).at(image.name()));
        }
        recovery = None;
    }
    let options = WriteOptions {
        open: changing.reading.options(),
        seed: changing.seed,
        time: changing.time,
        recovery: recovery.map(RecoveryFile::new),
        waiting: changing.waiting,
        ..WriteOptions::default()
    };
    Writer::open(image.device(), options).at(image.name())
}

/// How a new encrypted directory encrypts.
#[derive(Clone, Copy, Debug)]
pub struct NewPolicy {
    /// The mode of contents.
    pub contents: Mode,
    /// The mode of names and links.
    pub names: Mode,
    /// What names are padded to a multiple of: 4, 8, 16 or 32 bytes.
    pub padding: usize,
}

/// Makes an empty directory of `writer` an encrypted one (policy version 2), with this master key; `place` names the
/// image in errors.
///
/// # Errors
/// `Argument` for a key or modes that do not fit each other; `Unsupported` without the feature encrypt; `Io` when
/// the directory is not there, not empty, or encrypted already.
pub fn set_policy(
    writer: &mut Writer,
    place: impl std::fmt::Display,
    path: &[u8],
    key: SecretVec,
    new: &NewPolicy,
    providers: &Providers,
) -> Result<(), Error> {
    let master = MasterKey::new(providers, key)?;
    let policy =
        Policy { padding: new.padding, ..Policy::new(master.identifier().into(), new.contents, new.names) };
    policy.check().map_err(|error| Error::argument(error.to_string()))?;
    let (uuid, block_size) = (writer.fs().superblock().uuid, writer.fs().layout().block_size);
    // Whether the key is long enough shows when something is keyed.
    let sample = InodeInfo { context: Context { policy, nonce: [0; 16] }, number: 11, uuid, block_size };
    master.names(&sample).and_then(|_| master.contents(&sample))?;
    let made = writer.encrypt_directory(path, |nonce| Context { policy, nonce }.to_bytes());
    made.map_err(|error| error.at(place))
}
