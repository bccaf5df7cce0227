//! Changing the file systems of images.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::{Advice, AtFile};
use casemate_ext4::{Compat, Superblock, UndoFile};
use casemate_fscrypt::{Context, InodeInfo, Ivs, MasterKey, NewPolicy};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Providers, Work};

pub use casemate_ext4::{
    Alteration, Altered, Approve, Body, Interrupted, NewAttributes, NewNode, Presence, PutOptions, PutReport,
    RepairDepth, RepairReport, SetId, Writer,
};

use super::encrypted::KeyUse;
use super::{FileSystem, LiveKeys, ReadOptions, Time, VerityPolicy};
use crate::{Error, Image, Keys};

/// Text on a recovery file that was found by its name alone.
const SET_ASIDE: &str = "a recovery file with this image's name keeps a change that was interrupted, and may belong to the image \
    that had the name before: it was renamed, to its name and a number";

/// Options of changing a file system.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Keys of encrypted files.
    pub keys: Keys,
    /// The seed of generations and nonces of new inodes: the same seed and time give the same image. Random if
    /// `None`. Two encrypted files with the same key and nonce show where their contents are equal: a seed is for one
    /// image, and for no other one with the same keys.
    pub seed: Option<u64>,
    /// The time to note changes with; the clock's if `None`. See [`source_date_epoch`].
    pub time: Option<Time>,
    /// The file that transactions of a file system without a journal are kept in; beside the image if `None`.
    pub recovery_file: Option<PathBuf>,
    /// The block of the copy of the superblock that a repair makes the primary one of; where that is damaged, it finds one
    /// itself if `None`.
    pub superblock: Option<u64>,
}

impl WriteOptions {
    /// Changing as usual: without keys, at the time of the clock.
    pub fn new() -> WriteOptions {
        WriteOptions::default()
    }

    /// Changes encrypted files with keys.
    #[must_use]
    pub fn keys(mut self, keys: Keys) -> WriteOptions {
        self.keys = keys;
        self
    }

    /// Makes random numbers follow from a seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> WriteOptions {
        self.seed = Some(seed);
        self
    }

    /// Notes changes with a time.
    #[must_use]
    pub fn time(mut self, time: Time) -> WriteOptions {
        self.time = Some(time);
        self
    }

    /// Keeps transactions without a journal in a file.
    #[must_use]
    pub fn recovery_file(mut self, path: impl Into<PathBuf>) -> WriteOptions {
        self.recovery_file = Some(path.into());
        self
    }

    /// Repairs by the copy of the superblock in a block.
    #[must_use]
    pub fn superblock(mut self, block: u64) -> WriteOptions {
        self.superblock = Some(block);
        self
    }
}

/// The time that a build which can be repeated gives to everything: that of the environment's SOURCE_DATE_EPOCH, in seconds.
///
/// # Errors
/// `Argument` for what is no number.
pub fn source_date_epoch() -> Result<Option<Time>, Error> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let seconds = seconds.ok_or_else(|| Error::argument("SOURCE_DATE_EPOCH is not a number of seconds"))?;
    Ok(Some(Time { seconds, nanoseconds: 0 }))
}

impl Image {
    /// Opens the file system on the image for changes, and recovers it first if an earlier change was interrupted. The
    /// listener hears of that, and of the wait where it must be seen whether another machine uses the file system.
    ///
    /// # Errors
    /// `Argument` if the image was opened for reading; [`Error::is_busy`] while another writer of the image is open; `Unsupported` for features that can't be kept right, and without a
    /// journal for what is decrypted; `Corrupt` when e2fsck should repair it first; `Mismatch` if what was decrypted is
    /// none, so that the key may be wrong, and for a secret that opens nothing.
    pub fn ext4_writer(&self, options: &WriteOptions, work: &Work<'_>) -> Result<Writer, Error> {
        let reading = ReadOptions { keys: options.keys.clone(), ..ReadOptions::default() };
        self.writer(options, &reading, Arc::default(), work).map(|(writer, _)| writer)
    }

    /// A writer, and the file system as it is with all changes that the writer has made, committed or not. Nobody may
    /// read while the writer changes anything: what was read of it before may be another file's by then.
    ///
    /// # Errors
    /// Errors of [`Image::ext4_writer`].
    pub fn ext4_changing(
        &self,
        options: &WriteOptions,
        verity: VerityPolicy,
        work: &Work<'_>,
    ) -> Result<(Writer, FileSystem), Error> {
        let reading = ReadOptions { keys: options.keys.clone(), verity, ..ReadOptions::default() };
        let uses = Arc::<KeyUse>::default();
        let (writer, keys) = self.writer(options, &reading, Arc::clone(&uses), work)?;
        let fs = FileSystem::new(writer.fs().clone(), self.name(), &reading, (keys, uses), &work.providers);
        Ok((writer, fs))
    }

    fn writer(
        &self,
        options: &WriteOptions,
        reading: &ReadOptions,
        uses: Arc<KeyUse>,
        work: &Work<'_>,
    ) -> Result<(Writer, LiveKeys), Error> {
        let (options, keys) = self.writing(options, reading, uses, work)?;
        let writer = Writer::open(self.leased_device()?, options).at(self.name())?;
        let text = match writer.interrupted() {
            Interrupted::Nothing => return Ok((writer, keys)),
            Interrupted::Completed => "completed a change that was interrupted",
            Interrupted::Dropped => {
                "removed the recovery file of an interrupted change: the file system is clean without it"
            }
            Interrupted::SetAside => SET_ASIDE,
        };
        work.events.note(&format!("{}: {text}", self.name()));
        Ok((writer, keys))
    }

    /// How the file system is opened for changes, and with which keys.
    pub(super) fn writing<'a>(
        &self,
        options: &WriteOptions,
        reading: &ReadOptions,
        uses: Arc<KeyUse>,
        work: &Work<'a>,
    ) -> Result<(casemate_ext4::WriteOptions<'a>, LiveKeys), Error> {
        let recovery = self.require_recovery(options, work)?;
        let ring = match options.keys.open_protectors() {
            false => options.keys.keyring(&work.providers)?,
            true => {
                let completed = self.completed(recovery.as_deref(), &work.providers)?;
                let image = completed.as_ref().unwrap_or(self);
                image.unlocked(reading, &work.providers)?
            }
        };
        let keys = LiveKeys::new(ring);
        // The process may go to another folder while the writer is open.
        let recovery = recovery.map(std::path::absolute).transpose();
        let recovery = recovery.map_err(|error| Error::io(self.name(), error))?;
        let options = casemate_ext4::WriteOptions {
            open: reading.open_seen(keys.clone(), uses, &work.providers),
            seed: options.seed,
            time: options.time,
            recovery: recovery.map(|path| self.keeping(path)),
            events: work.events,
            image: self.inode().at(self.name())?,
            ..casemate_ext4::WriteOptions::default()
        };
        Ok((options, keys))
    }

    /// Mends what can be mended without guesses of the file system on the image, all at once where its journal has room for
    /// that. For findings of each kind `approve` is asked.
    ///
    /// # Errors
    /// Errors of [`Image::ext4_writer`] and of `approve`; damage that is left is in the report.
    pub fn ext4_repair(
        &self,
        options: &WriteOptions,
        how: &RepairHow,
        approve: &mut Approve<'_>,
        work: &Work<'_>,
    ) -> Result<RepairReport, Error> {
        let recovery = self.require_recovery(options, work)?;
        let for_changes = [recovery.clone(), self.beside(".casemate-redo")];
        if let Some(undo) = &how.undo
            && for_changes.iter().flatten().any(|path| is_same_name(path, undo))
        {
            let text = "the undo file has the name of the recovery file, from which interrupted changes are completed: \
                        take another name";
            return Err(Error::argument(text).at(self.name()));
        }
        let undo = how.undo.clone().map(|path| {
            if !self.layers().is_empty() {
                work.events.note(&format!(
                    "{}: keeps blocks of the file system as they are behind {}'s layers{}; e2undo puts them back on a device that \
                     shows it so, such as one of dm-crypt or casemate serve, not on {}",
                    path.display(),
                    self.name(),
                    if self.is_decrypted() { ", DECRYPTED" } else { "" },
                    self.name()
                ));
            }
            // Places behind other layers are none of the file.
            let fs_offset = if self.layers().is_empty() { self.start() } else { 0 };
            UndoFile { path, fs_offset }
        });
        let (keys, superblock) = (options.keys.clone(), options.superblock);
        let reading = ReadOptions { keys, superblock, ..ReadOptions::default() };
        let options = casemate_ext4::RepairOptions {
            check: self.checking(&reading, &Arc::default(), work)?,
            depth: how.depth,
            undo,
            seed: options.seed,
            time: options.time,
            recovery: recovery.map(|path| self.keeping(path)),
            events: work.events,
        };
        casemate_ext4::repair(self.leased_device()?, options, approve, work).at(self.name())
    }

    /// The file that changes are kept in until they are whole, if the file system has no journal.
    fn require_recovery(&self, options: &WriteOptions, work: &Work<'_>) -> Result<Option<PathBuf>, Error> {
        self.check_writable()?;
        self.check_key()?;
        if !self.is_decrypted() {
            let path = options.recovery_file.clone().or_else(|| self.recovery_file());
            if let Some(folder) = options.recovery_file.as_deref().and_then(Path::parent)
                && !folder.as_os_str().is_empty()
            {
                // No change could be committed.
                std::fs::metadata(folder).at(folder.display())?;
            }
            if path.is_none()
                && let Some(path) = self.recovery_path()?
                && self.completed(None, &work.providers)?.is_some()
            {
                let path = path.display().to_string();
                let text = format!(
                    "a change of the file system was interrupted, and {} keeps the rest of it: name that as the recovery file",
                    path.escape_debug()
                );
                return Err(Error::unsupported(text).at(self.name()));
            }
            return Ok(path);
        }
        if Superblock::from_bytes(&self.ext4_superblock()?).at(self.name())?.journal_inode.is_none() {
            let text = "an encrypted file system without a journal can't be changed: its recovery file would hold names and structures in plain text; copy its files out, and build it again with a journal";
            return Err(Error::unsupported(text).at(self.name()));
        }
        Ok(None)
    }
}

/// Whether two paths name the same file, which need not be there.
fn is_same_name(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| {
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        (folder.canonicalize().unwrap_or_else(|_| folder.to_owned()), path.file_name().map(ToOwned::to_owned))
    };
    whole(one) == whole(other)
}

/// How much of a file system a repair mends, and where it keeps what was there before.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairHow {
    /// How much is mended.
    pub depth: RepairDepth,
    /// A new file for blocks as they were before the repair, which `e2undo` of e2fsprogs puts back.
    pub undo: Option<PathBuf>,
}

/// Makes an empty directory of `writer` an encrypted one, with this master key; `place` names the
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
    let policy = new.policy(&master)?;
    let is_numbered = matches!(policy.ivs, Ivs::InodeBlock64 | Ivs::InodeBlock32);
    if is_numbered && !writer.fs().superblock().compat.has(Compat::STABLE_INODES) {
        let error = Error::unsupported("IVs of inodes' numbers need the feature stable_inodes");
        return Err(error.advise(Advice::AddFeature("stable_inodes".to_owned())).at(place));
    }
    let (uuid, block_size) = (writer.fs().superblock().uuid, writer.fs().layout().block_size);
    // Whether the key is long enough shows when something is keyed.
    let sample = InodeInfo { context: Context { policy, nonce: [0; 16] }, number: 11, uuid, block_size };
    master.names(&sample).and_then(|_| master.contents(&sample))?;
    let made = writer.encrypt_directory(path, |nonce| Context { policy, nonce }.to_bytes());
    made.map_err(|error| error.at(place))
}
