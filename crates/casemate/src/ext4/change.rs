//! Changing file systems by path.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use casemate_blockdev::{BlockDevice, Pool};
use casemate_ext4::{RecoveryFile, Superblock, WriteOptions};
use casemate_fscrypt::{Context, Crypto, InodeInfo, MasterKey, Mode, Policy};
use casemate_primitives::secret::SecretVec;

pub use casemate_ext4::{Interrupted, NewNode, PutOptions, PutReport, Writer};

use super::{Reading, Source, Time, beside, is_image, within};
use crate::Error;
use crate::image::{self, Access};

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
    /// Who reads and writes contents that are copied.
    pub pool: Pool,
}

/// An image that nobody else changes as long as this is there.
pub struct Locked {
    name: String,
    device: Arc<dyn BlockDevice>,
    /// Where transactions can be kept beside it.
    beside: Option<PathBuf>,
    is_decrypted: bool,
}

/// Opens and locks an image.
///
/// # Errors
/// `Io`, [`Error::is_busy`] if it is mounted or somebody else uses it; as [`device`](super::device).
pub fn lock_for_change(source: &Source) -> Result<Locked, Error> {
    let name = source.path.display().to_string();
    let file = image::open(&source.path, Access::Change)?;
    let is_image = is_image(&file).map_err(|error| Error::io(&name, error))?;
    let (device, start): (Arc<dyn BlockDevice>, u64) = within(source, file)?;
    let beside = is_image.then(|| beside(&source.path, start));
    Ok(Locked { name, device, beside, is_decrypted: false })
}

impl Locked {
    /// What the file system lies on.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.device)
    }

    /// The same image through a device that decrypts it and encrypts what is written.
    #[must_use]
    pub fn decrypted(self, device: Arc<dyn BlockDevice>) -> Locked {
        Locked { device, is_decrypted: true, ..self }
    }

    /// Opens the file system for changes, and recovers it first if an earlier change was interrupted.
    ///
    /// # Errors
    /// `Unsupported` for features that can't be kept right; `Corrupt` when e2fsck should repair it first.
    pub fn open(self, changing: &Changing) -> Result<Writer, Error> {
        let fail = |error: Error| error.at(&self.name);
        let mut recovery = changing.recovery_file.clone().or(self.beside);
        if self.is_decrypted {
            let mut raw = [0; 1024];
            self.device.read_at(&mut raw, 1024).map_err(|error| Error::io(&self.name, error))?;
            if Superblock::from_bytes(&raw).map_err(fail)?.journal_inode == 0 {
                return Err(Error::unsupported(format!(
                    "{}: an encrypted file system without a journal can't be changed: what is kept until a change is \
                     whole would lie beside it in plain text; tune2fs -j gives it a journal",
                    self.name
                )));
            }
            recovery = None;
        }
        let options = WriteOptions {
            open: changing.reading.options(),
            seed: changing.seed,
            time: changing.time,
            recovery: recovery.map(RecoveryFile::new),
            waiting: changing.waiting,
            pool: changing.pool,
            ..WriteOptions::default()
        };
        Writer::open(self.device, options).map_err(fail)
    }
}

/// Opens a file system for changes, alone, and recovers it first if an earlier change was interrupted.
///
/// # Errors
/// As [`lock_for_change`] and [`Locked::open`].
pub fn open_for_change(source: &Source, changing: &Changing) -> Result<Writer, Error> {
    lock_for_change(source)?.open(changing)
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
    cpu: casemate_primitives::Cpu,
) -> Result<(), Error> {
    let master = MasterKey::new(&Crypto::new(cpu), key)?;
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
