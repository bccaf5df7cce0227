//! ext4 file systems on images: opening, reading, copying out, checking and changing.
//!
//! [`Image::ext4`] opens one for reading, and [`Image::ext4_writer`] for changes, through whatever lies on the image and
//! with the keys of encrypted folders. [`FileSystem`] is read by path, as [`std::fs`] is.

mod build;
mod bulk;
mod change;
mod contents;
mod diff;
mod encrypt;
mod encrypted;
mod file_system;
mod files;
mod identity;
mod plan;
mod protect;
mod rescue;
mod resize;
mod seal;
mod spec;
mod verity;

use std::path::PathBuf;
use std::sync::Arc;

use casemate_blockdev::{AtFile, Events};
use casemate_ext4::{CheckOptions, OpenOptions, copy_to_read_by};
use casemate_fscrypt::Keyring;
use casemate_providers::{Providers, Work};
use casemate_verity::signature::Certificate;

pub use casemate_ext4::csum::Kind as ChecksumKind;
pub use casemate_ext4::{
    Amendments, Block, BuildOptions, BuildReport, BuildSize, BuildTarget, CheckReport, Compat, Corrupt,
    Description, DirEntry, Ext4, ExtractReport, Failure, Features, FileReader, FileType, Finding,
    FindingKind, FoundError, Geometry, GroupNo, Identify, Incompat, Inode, InodeFlags, InodeNo, IntoNames,
    Level, ModeRule, Name, Names, NewMode, NewUuid, NewXattr, Owners, Place, Plan, Preen, Problem, RoCompat,
    SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, SeenDirectories, Source, Structure, Superblock, SuperblockDetails,
    Time, TreeOptions, Tuning, Usage, VerityCount, Xattr, hash_name, mount_option_names, uuid as uuid_of,
    uuid_text,
};
pub use casemate_fscrypt::{LiveKeys, NewPolicy};
pub use casemate_trees::manifest::Format as DescriptionFormat;
pub use casemate_trees::{Glob, ModeChange, Pattern, Selection};

use crate::protectors::OfFileSystem;
use crate::{Advice, Code, Error, ErrorKind, Image, Keys};

pub use bulk::Handful;
pub use change::{
    Alteration, Altered, Approve, Body, Interrupted, NewAttributes, NewNode, Presence, PutOptions, PutReport,
    RepairDepth, RepairHow, RepairReport, SetId, WriteOptions, Writer, set_policy, source_date_epoch,
};
pub use contents::{VerityInfo, VerityPolicy, open_file, sha256, verity_info};
pub use diff::{Area, DiffImage, DiffOptions, DiffReport, Difference, FieldValue, Side};
use encrypted::KeyUse;
pub use encrypted::{EncryptionInfo, encryption_info};
pub use file_system::{ExtractOptions, FileSystem, MOST_READ, Target};
pub use files::{Files, Folder, Found};
pub use identity::{new_uuid, random_uuid};
pub use plan::{Built, Planned};
pub use protect::ProtectorSource;
pub use rescue::{
    Deleted, DeletedBlocks, DeletedFile, DeletedSource, RescueFolder, Unreachable, Unread, place_below,
};
pub use resize::{Resize, ResizeReport, Tail};
pub use spec::{
    BuildSpec, DmVeritySpec, EncryptedFolder, FolderKey, LuksSpec, ParitySpec, SignFn, Signer, VeritySpec,
};

/// Options of reading a file system.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Keys of encrypted files. Without a file's key its name is shown as the kernel shows it then.
    pub keys: Keys,
    /// The demand on files with and without fs-verity, where files are read by path, and of a check that reads contents:
    /// with [`VerityPolicy::Require`] every file must have fs-verity.
    pub verity: VerityPolicy,
    /// Whether damaged metadata is refused. On by default.
    pub verify_checksums: bool,
    /// Whether a journal that must be replayed is, in memory, and a change that was kept beside the image. On by default.
    pub replay_journal: bool,
    /// The file that a change of a file system without a journal was kept in; beside the image if `None`.
    pub recovery_file: Option<PathBuf>,
    /// The block of the copy of the superblock that is read by; the primary one if `None`. A check finds one itself.
    pub superblock: Option<u64>,
    /// Whether a check reads the contents of files that have fs-verity, and compares them with their trees.
    pub check_verity: bool,
    /// Whether a path may begin with the number of an inode, as `<12>` or `<12>/name`: for files that no name leads to.
    pub inode_paths: bool,
    /// The certificate by which such a check wants these files to be signed; one file at least must be.
    pub certificate: Option<Certificate>,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions {
            keys: Keys::default(),
            verity: VerityPolicy::default(),
            verify_checksums: true,
            replay_journal: true,
            recovery_file: None,
            superblock: None,
            check_verity: false,
            inode_paths: false,
            certificate: None,
        }
    }
}

impl ReadOptions {
    /// Reading as usual: checksums verified, the journal replayed in memory.
    pub fn new() -> ReadOptions {
        ReadOptions::default()
    }

    /// Reads encrypted files with keys.
    #[must_use]
    pub fn keys(mut self, keys: Keys) -> ReadOptions {
        self.keys = keys;
        self
    }

    /// Demands something of files with and without fs-verity.
    #[must_use]
    pub fn verity(mut self, policy: VerityPolicy) -> ReadOptions {
        self.verity = policy;
        self
    }

    /// Refuses damaged metadata, or takes them.
    #[must_use]
    pub fn verify_checksums(mut self, verify: bool) -> ReadOptions {
        self.verify_checksums = verify;
        self
    }

    /// Replays a journal in memory, or reads without it.
    #[must_use]
    pub fn replay_journal(mut self, replay: bool) -> ReadOptions {
        self.replay_journal = replay;
        self
    }

    /// Takes the file that a change without a journal was kept in.
    #[must_use]
    pub fn recovery_file(mut self, path: impl Into<PathBuf>) -> ReadOptions {
        self.recovery_file = Some(path.into());
        self
    }

    /// Reads by the copy of the superblock in a block.
    #[must_use]
    pub fn superblock(mut self, block: u64) -> ReadOptions {
        self.superblock = Some(block);
        self
    }

    /// Compares contents with their fs-verity trees in a check.
    #[must_use]
    pub fn check_verity(mut self, check: bool) -> ReadOptions {
        self.check_verity = check;
        self
    }

    /// Takes paths that begin with the number of an inode, as `<12>`.
    #[must_use]
    pub fn inode_paths(mut self, take: bool) -> ReadOptions {
        self.inode_paths = take;
        self
    }

    /// Demands signatures by a certificate in a check.
    #[must_use]
    pub fn certificate(mut self, certificate: Certificate) -> ReadOptions {
        self.certificate = Some(certificate);
        self
    }
}

impl ReadOptions {
    fn open_seen(&self, ring: LiveKeys, uses: Arc<KeyUse>, providers: &Providers) -> OpenOptions {
        OpenOptions {
            providers: providers.clone(),
            verify_checksums: self.verify_checksums,
            replay_journal: self.replay_journal,
            encryption: Some(Arc::new(encrypted::Unlocked { ring, uses })),
            ..OpenOptions::default()
        }
    }

    /// How a file system is opened that may be damaged, or end early.
    fn open_anyhow(&self, ring: LiveKeys, uses: &Arc<KeyUse>, providers: &Providers) -> OpenOptions {
        let options = self.open_seen(ring, Arc::clone(uses), providers);
        OpenOptions { cut_short: true, superblock: self.superblock.map(Block::new), ..options }
    }
}

impl Image {
    /// Opens the file system on the image for reading: as it will be once a change that was interrupted is complete, unless
    /// the journal is not to be replayed either. The listener hears of such a change, and of damage that the state lacks.
    ///
    /// # Errors
    /// `Corrupt` if it is none or damaged; `Unsupported` for features that a reader must know; `Mismatch` if what was
    /// decrypted is none, so that the key may be wrong, and for a secret that opens nothing.
    pub fn ext4(&self, options: &ReadOptions, work: &Work<'_>) -> Result<FileSystem, Error> {
        let image = self.readable(options, work)?;
        let uses = Arc::default();
        let open = |ring| {
            let keys = LiveKeys::new(ring);
            let options = options.open_anyhow(keys.clone(), &uses, &work.providers);
            let fs = Ext4::open(image.device(), &options);
            Ok::<_, Error>((fs.map_err(|error| image.naming_a_copy(error, &options))?, keys))
        };
        let (fs, keys) = match options.keys.open_protectors() {
            false => open(options.keys.keyring(&work.providers)?)?,
            true => open(image.unlocked(options, &work.providers)?)?,
        };
        let name = image.name();
        if fs.missing_bytes() > 0 {
            let size = image.device().size();
            let needed = size + fs.missing_bytes();
            work.events.note(&format!(
                "{name}: the image ends at byte {size}, its file system at {needed}; data behind can't be read"
            ));
        }
        if fs.recovery().missing {
            let text = "files may be from the middle of a change, because the journal lies behind the end";
            work.events.note(&format!("{name}: {text}"));
        } else if let Some(cut) = fs.recovery().cut_text() {
            work.events.note(&format!("{name}: {cut}: files are read as before it; e2fsck -f discards it"));
        }
        Ok(FileSystem::new(fs, image.name(), options, (keys, uses), &work.providers))
    }

    /// An error of opening, with a copy of the superblock that could be read by, if the primary one is damaged.
    fn naming_a_copy(&self, error: Error, options: &OpenOptions) -> Error {
        let copy = match options.superblock {
            None if error.kind() == ErrorKind::Corrupt => copy_to_read_by(self.top(), options),
            _ => None,
        };
        let error = error.at(self.name());
        match copy {
            Some(block) => error.advise(Advice::Superblock(block)),
            None => error,
        }
    }

    /// Checks the file system on the image: all that e2fsck finds; of files with fs-verity their descriptors; and of encrypted
    /// ones whose keys there are names and links. The listener hears of bytes of inode tables
    /// ([`FileSystem::check_size`]), of those of files that are compared with their trees, and of keys that were of no use.
    ///
    /// # Errors
    /// Errors of [`Image::ext4`] and of reading; damage is in the report.
    pub fn ext4_check(&self, options: &ReadOptions, work: &Work<'_>) -> Result<CheckReport, Error> {
        let image = self.readable(options, work)?;
        let uses = Arc::default();
        let checking = image.checking(options, &uses, work)?;
        let mut report = casemate_ext4::check(image.device(), &checking, work).at(image.name())?;
        uses.note_useless(&options.keys, image.name(), &work.providers, work.events);
        uses.demand_use(&options.keys, &mut report);
        Ok(report)
    }

    /// Rewrites all metadata checksums that do not fit, and nothing else. Returns what was rewritten and what is still
    /// wrong.
    ///
    /// # Errors
    /// `Argument` if the image was opened for reading; `Unsupported` if the journal must be replayed first, or a change
    /// completed that is kept beside the image, or for features that a writer must know.
    pub fn ext4_fix_checksums(
        &self,
        options: &ReadOptions,
        work: &Work<'_>,
    ) -> Result<(Vec<Finding>, CheckReport), Error> {
        self.check_writable()?;
        self.check_key()?;
        if self.completed(options.recovery_file.as_deref(), &work.providers)?.is_some() {
            let text = "a change was interrupted, and must be completed before checksums are rewritten";
            return Err(Error::unsupported(text).advise(Advice::Recover).at(self.name()));
        }
        let uses = Arc::default();
        let checking = self.checking(options, &uses, work)?;
        let (rewritten, mut report) =
            casemate_ext4::fix_checksums(self.leased_device()?, &checking, work).at(self.name())?;
        uses.demand_use(&options.keys, &mut report);
        Ok((rewritten, report))
    }

    /// The image as its file system is read; the listener hears what a person should know of its state.
    fn readable(&self, options: &ReadOptions, work: &Work<'_>) -> Result<Image, Error> {
        if options.superblock.is_none() {
            self.check_key()?;
        }
        let mut image = self.clone();
        if options.replay_journal
            && let Some(completed) = image.completed(options.recovery_file.as_deref(), &work.providers)?
        {
            completed.note_interrupted(work.events);
            image = completed;
        }
        image.note_half_changed(work.events);
        Ok(image)
    }

    /// How a check reads, with all keys.
    fn checking(
        &self,
        options: &ReadOptions,
        uses: &Arc<KeyUse>,
        work: &Work<'_>,
    ) -> Result<CheckOptions, Error> {
        let ring = match options.keys.open_protectors() {
            false => options.keys.keyring(&work.providers)?,
            true => self.unlocked(options, &work.providers)?,
        };
        let verity = verity::Checked {
            contents: options.check_verity,
            of_all: options.verity == VerityPolicy::Require,
            certificate: options.certificate.clone(),
        };
        let open = options.open_seen(LiveKeys::new(ring), Arc::clone(uses), &work.providers);
        let open = OpenOptions { superblock: options.superblock.map(Block::new), ..open };
        Ok(CheckOptions { open, verity: Some(Arc::new(verity)) })
    }

    /// All keys: raw ones, and those that secrets open in the file system itself, which is read without keys for that.
    fn unlocked(&self, options: &ReadOptions, providers: &Providers) -> Result<Keyring, Error> {
        let none = LiveKeys::new(Keyring::new(providers.clone()));
        let locked = options.open_anyhow(none, &Arc::default(), providers);
        let fs = Ext4::open(self.device(), &locked).at(self.name())?;
        let mut ring = options.keys.keyring(providers)?;
        options.keys.unlock(&OfFileSystem(&fs), &mut ring).map_err(|error| error.within(self.name()))?;
        Ok(ring)
    }

    pub(crate) fn note_interrupted(&self, events: &dyn Events) {
        let text = format!("{}: a change was interrupted, and is shown as complete", self.name());
        events.advise(&text, Advice::Recover);
    }

    /// Checks that decrypted data are a file system. The error says that the key may be wrong, and comes before any
    /// about checksums, which mean nothing in noise.
    fn check_key(&self) -> Result<(), Error> {
        if !self.is_key_in_doubt() || Superblock::has_magic(&self.ext4_superblock()?) {
            return Ok(());
        }
        let text = "the decrypted data are not an ext2, ext3 or ext4 file system; the key may be wrong";
        Err(Error::coded(Code::WrongKey, text).advise(Advice::CheckLayers).at(self.name()))
    }

    /// Whether a file system without a journal was left in the middle of changes. Damaged ones are for others to tell.
    pub(crate) fn note_half_changed(&self, events: &dyn Events) {
        let superblock = self.ext4_superblock().and_then(|raw| Superblock::from_bytes(&raw));
        let is_half_changed = superblock
            .is_ok_and(|superblock| !superblock.compat.has(Compat::HAS_JOURNAL) && !superblock.is_clean());
        if is_half_changed {
            let name = self.name();
            events.note(&format!(
                "{name}: the file system was not left clean and has no journal: files may be from the middle of a change; run e2fsck on it"
            ));
        }
    }

    fn ext4_superblock(&self) -> Result<[u8; SUPERBLOCK_SIZE], Error> {
        let mut raw = [0; SUPERBLOCK_SIZE];
        self.top().read_at(&mut raw, SUPERBLOCK_OFFSET).at(self.name())?;
        Ok(raw)
    }
}
