//! ext4 file systems on images: opening, reading, copying out, checking and changing.

mod change;
mod contents;
mod encrypted;

use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::{AtFile, BlockDevice};
use casemate_ext4::{Compat, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use casemate_fscrypt::Keyring;
use casemate_providers::{Providers, Work};

pub use casemate_ext4::csum::Kind as ChecksumKind;
pub use casemate_ext4::{
    CheckReport, Corrupt, DirEntry, Ext4, ExtractReport, Failure, FileReader, FileType, Inode, InodeFlags,
    Place, Problem, SeenDirectories, Structure, Superblock, Time, Xattr, check_size, uuid_text,
};

use crate::{Error, Image};

pub use change::{
    Changing, Interrupted, NewNode, NewPolicy, PutOptions, PutReport, Writer, open_for_change, set_policy,
};
pub use contents::{VerityInfo, VerityPolicy, open_file, verity_info};
pub use encrypted::{EncryptionInfo, encryption_info};

/// How to read a file system.
#[derive(Clone, Debug)]
pub struct Reading {
    /// What runs checksums, hashes and ciphers.
    pub providers: Providers,
    /// Whether damaged metadata is refused.
    pub verify_checksums: bool,
    /// Whether a journal that must be replayed is, in memory, and a change that was kept beside the image.
    pub replay_journal: bool,
    /// The keys of encrypted files, if there are any. Without a file's key its name is shown as the kernel shows
    /// it then.
    pub keys: Option<Arc<Keyring>>,
}

impl Default for Reading {
    /// Checksums verified and the journal replayed, without keys.
    fn default() -> Reading {
        Reading { providers: Providers::default(), verify_checksums: true, replay_journal: true, keys: None }
    }
}

impl Reading {
    fn options(&self) -> casemate_ext4::OpenOptions {
        let keys = match &self.keys {
            Some(keys) => Arc::clone(keys),
            None => Arc::new(Keyring::new(self.providers.clone())),
        };
        casemate_ext4::OpenOptions {
            providers: self.providers.clone(),
            verify_checksums: self.verify_checksums,
            replay_journal: self.replay_journal,
            encryption: Some(Arc::new(encrypted::Unlocked(keys))),
        }
    }
}

/// What [`extract`] restores, and from where it takes contents.
#[derive(Clone, Copy, Debug)]
pub struct Extracting {
    /// Whether owners are restored. In a folder only root can; for others this changes nothing there.
    pub owners: bool,
    /// Whether extended attributes are restored.
    pub xattrs: bool,
    /// What is demanded of files with and without fs-verity.
    pub verity: VerityPolicy,
}

/// Where [`extract`] copies to.
pub enum Target<'a> {
    /// A folder, made if it is not there.
    Folder(&'a Path),
    /// A tar stream.
    Tar(&'a mut dyn std::io::Write),
}

/// Opens the file system on an image for reading: as it will be once a change that was interrupted is complete, unless the
/// journal is not to be replayed either.
///
/// # Errors
/// `Corrupt` if it is none or damaged, `Unsupported` for features that a reader must know, `Mismatch` if what was decrypted
/// is none.
pub fn open(image: &Image, reading: &Reading) -> Result<Ext4, Error> {
    let device = readable(image, reading)?;
    Ext4::open(device, &reading.options()).at(image.name())
}

/// What is read of an image.
fn readable(image: &Image, reading: &Reading) -> Result<Arc<dyn BlockDevice>, Error> {
    check_key(image)?;
    if !reading.replay_journal {
        return Ok(image.device());
    }
    Ok(image.clone().completed(None, &reading.providers)?.0.device())
}

/// Says that the key may be wrong where what was decrypted is no file system: before anything is said about checksums of
/// what is noise.
fn check_key(image: &Image) -> Result<(), Error> {
    if !image.is_decrypted() {
        return Ok(());
    }
    let mut raw = [0; SUPERBLOCK_SIZE];
    image.device().read_at(&mut raw, SUPERBLOCK_OFFSET).at(image.name())?;
    if Superblock::has_magic(&raw) {
        return Ok(());
    }
    let text = "decrypted, this is no ext2, ext3 or ext4 file system: the key may be wrong, or what --crypt and its options \
                say, or where it begins";
    Err(Error::mismatch(text).at(image.name()))
}

/// Whether a file system without a journal was left in the middle of changes. Damaged ones are for others to tell.
pub fn is_half_changed(image: &Image) -> bool {
    let mut raw = [0; SUPERBLOCK_SIZE];
    let read = image.device().read_at(&mut raw, SUPERBLOCK_OFFSET);
    let superblock = read.ok().and_then(|()| Superblock::from_bytes(&raw).ok());
    superblock.is_some_and(|superblock| !superblock.compat.has(Compat::HAS_JOURNAL) && !superblock.is_clean())
}

/// Copies what is below `top` out of a file system.
///
/// # Errors
/// What ends the whole copy; what keeps single files from being copied is in the report.
pub fn extract(
    fs: &Ext4,
    top: &Inode,
    target: Target<'_>,
    extracting: &Extracting,
    work: &Work<'_>,
) -> Result<ExtractReport, Error> {
    let contents = contents::Checked { policy: extracting.verity, providers: &work.providers };
    let can_give = matches!(target, Target::Tar(_)) || rustix::process::geteuid().is_root();
    let options = casemate_ext4::ExtractOptions {
        owners: extracting.owners && can_give,
        xattrs: extracting.xattrs,
        contents: &contents,
    };
    match target {
        Target::Folder(folder) => casemate_ext4::extract_to_folder(fs, top, folder, &options, work)
            .map_err(|error| error.at(folder.display())),
        Target::Tar(out) => casemate_ext4::extract_to_tar(fs, top, out, &options, work)
            .map_err(|error| error.at("tar stream")),
    }
}

/// Checks every metadata checksum of the file system on an image.
///
/// # Errors
/// Whatever keeps the check from being done; damage is in the report.
pub fn check(image: &Image, reading: &Reading, work: &Work<'_>) -> Result<CheckReport, Error> {
    let device = readable(image, reading)?;
    casemate_ext4::check(device, &reading.options(), work).at(image.name())
}

/// Rewrites all metadata checksums that do not fit, and nothing else. Returns what was rewritten and what is
/// still wrong.
///
/// # Errors
/// `Argument` if the image was opened for reading; `Unsupported` if the journal must be replayed first, or a change
/// completed that is kept beside the image, or for features that a writer must know.
pub fn fix_checksums(
    image: &Image,
    reading: &Reading,
    work: &Work<'_>,
) -> Result<(Vec<Corrupt>, CheckReport), Error> {
    image.check_writable()?;
    check_key(image)?;
    if image.clone().completed(None, &reading.providers)?.1 {
        let text = "a change was interrupted, and must be completed before checksums are rewritten: casemate ext4 recover";
        return Err(Error::unsupported(text).at(image.name()));
    }
    casemate_ext4::fix_checksums(image.device(), &reading.options(), work).at(image.name())
}
