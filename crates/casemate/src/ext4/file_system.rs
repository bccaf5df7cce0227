//! File systems read by path, as the standard library reads the host's.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::os::{self, OsStrExt, OsStringExt};
use casemate_blockdev::{BlockDevice, Events, FileId, inputs, usize_of};
use casemate_providers::{Providers, Work};
use casemate_trees::Selection;
use casemate_trees::folder::AsFd;
use casemate_verity::fs::FileDigest;

use super::contents::Checked;
use super::encrypted::KeyUse;
use super::{DirEntry, Ext4, ExtractReport, Inode, InodeNo, LiveKeys, ReadOptions, VerityPolicy, open_file};
use crate::{Code, Error, Image, Keys, Output};

/// A file system that is open for reading, by any number of threads. Cheap to clone.
///
/// Methods are those of [`std::fs`]. Paths begin at its root, with a slash or without; links in them are followed as the
/// kernel follows them, and never lead out of it. A file with fs-verity is checked while it is read, as
/// [`ReadOptions::verity`] says. Errors name the image and the path.
///
/// Entries of a directory have the numbers of their files, by which these are read without another search:
///
/// ```
/// use casemate::ext4::{FileType, ReadOptions};
/// use casemate::{Access, Image, Work};
///
/// # let Some(mke2fs) = casemate_testkit::tool("mke2fs") else { return Ok(()) };
/// # let folder = tempfile::tempdir()?;
/// # let path = |name: &str| folder.path().join(name);
/// # std::fs::create_dir_all(path("tree/etc"))?;
/// # std::fs::write(path("tree/etc/hosts"), "::1 localhost\n")?;
/// # let mut mke2fs = std::process::Command::new(mke2fs);
/// # casemate_testkit::run(mke2fs.args(["-q", "-t", "ext4", "-d"]).args([path("tree"), path("root.img")]).arg("8M"));
/// let fs = Image::open(path("root.img"), Access::Read)?.ext4(&ReadOptions::default(), &Work::default())?;
/// let mut bytes = 0;
/// for entry in fs.read_dir("/etc")? {
///     if entry.kind == Some(FileType::Regular) {
///         bytes += fs.read_inode(&fs.inode(entry.inode)?)?.len();
///     }
/// }
/// assert_eq!(bytes, 14);
/// # Ok::<(), casemate::Error>(())
/// ```
#[derive(Clone)]
pub struct FileSystem {
    fs: Ext4,
    name: Arc<str>,
    verity: VerityPolicy,
    keys: Keys,
    live_keys: LiveKeys,
    uses: Arc<KeyUse>,
    providers: Providers,
    inode_paths: bool,
}

/// Options of [`FileSystem::extract`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExtractOptions {
    /// Whether owners are restored. In a folder only root can; for others this changes nothing there.
    pub owners: bool,
    /// Whether extended attributes are restored.
    pub xattrs: bool,
    /// Whether what is there already under the name of a file, a folder aside, gives way to it; without, it stays, and the
    /// file is a failure.
    pub overwrite: bool,
    /// Files of the host that are never replaced, such as keys and hash devices. The image's own file is one of them.
    pub kept: Vec<PathBuf>,
    /// Patterns of what is copied, and of what is not.
    pub selection: Selection,
}

impl Default for ExtractOptions {
    /// Everything, to where nothing is yet.
    fn default() -> ExtractOptions {
        ExtractOptions {
            owners: true,
            xattrs: true,
            overwrite: false,
            kept: Vec::new(),
            selection: Selection::default(),
        }
    }
}

impl ExtractOptions {
    /// Everything, to where nothing is yet.
    pub fn new() -> ExtractOptions {
        ExtractOptions::default()
    }

    /// Restores owners, or does not.
    #[must_use]
    pub fn owners(mut self, owners: bool) -> ExtractOptions {
        self.owners = owners;
        self
    }

    /// Restores extended attributes, or does not.
    #[must_use]
    pub fn xattrs(mut self, xattrs: bool) -> ExtractOptions {
        self.xattrs = xattrs;
        self
    }

    /// Replaces files that are there, or keeps them.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> ExtractOptions {
        self.overwrite = overwrite;
        self
    }

    /// Never replaces these files of the host.
    #[must_use]
    pub fn kept(mut self, files: Vec<PathBuf>) -> ExtractOptions {
        self.kept = files;
        self
    }

    /// Copies what is selected.
    #[must_use]
    pub fn selection(mut self, selection: Selection) -> ExtractOptions {
        self.selection = selection;
        self
    }
}

/// Place on the host that [`FileSystem::extract`] copies to.
pub enum Target<'a> {
    /// A folder, made if it is not there.
    Folder(&'a Path),
    /// A tar stream.
    Tar(&'a mut dyn io::Write),
}

/// Bytes that [`FileSystem::read`] takes into memory at most: what a file says of its size may be a lie.
pub const MOST_READ: u64 = 1 << 30;

impl FileSystem {
    pub(super) fn new(
        fs: Ext4,
        name: &str,
        options: &ReadOptions,
        (live_keys, uses): (LiveKeys, Arc<KeyUse>),
        providers: &Providers,
    ) -> FileSystem {
        let (keys, verity) = (options.keys.clone(), options.verity);
        let (name, inode_paths) = (name.into(), options.inode_paths);
        FileSystem { fs, name, verity, keys, live_keys, uses, providers: providers.clone(), inode_paths }
    }

    /// The contents of a file.
    ///
    /// # Errors
    /// `Io` with `NotFound`, `IsADirectory`, or `FileTooLarge` for more than [`MOST_READ`] bytes, which
    /// [`FileSystem::open`] reads in pieces; `Corrupt`; `Locked` if the file is encrypted and its key missing; `Mismatch`
    /// if it does not match its fs-verity tree.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
        let path = path.as_ref();
        whole(&*self.open(path)?).map_err(|error| self.error(path, error))
    }

    /// The contents of the file that an inode is of: [`FileSystem::read`] for who has its entry.
    ///
    /// # Errors
    /// Errors of [`FileSystem::read`].
    pub fn read_inode(&self, inode: &Inode) -> Result<Vec<u8>, Error> {
        whole(&*self.open_inode(inode)?).map_err(|error| self.about(inode.number(), error))
    }

    /// The digest of the file that an inode is of; `None` without fs-verity.
    ///
    /// # Errors
    /// Errors of [`verity_info`](super::verity_info).
    pub fn digest_of(&self, inode: &Inode) -> Result<Option<FileDigest>, Error> {
        let about = |error| self.about(inode.number(), error);
        let info = super::verity_info(&self.fs, inode).map_err(about)?;
        info.map(|info| info.digest(&self.providers)).transpose().map_err(about)
    }

    /// A file's contents as a device, to be read in pieces and from any place.
    ///
    /// # Errors
    /// Errors of [`FileSystem::read`], but for its size.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Box<dyn BlockDevice>, Error> {
        let path = path.as_ref();
        self.contents(&self.metadata(path)?).map_err(|error| self.error(path, error))
    }

    /// Opens the file of an inode.
    ///
    /// # Errors
    /// Errors of [`FileSystem::open`].
    pub fn open_inode(&self, inode: &Inode) -> Result<Box<dyn BlockDevice>, Error> {
        self.contents(inode).map_err(|error| self.about(inode.number(), error))
    }

    /// A file as an image that takes no writes, on which whatever it holds is nested.
    ///
    /// # Errors
    /// Errors of [`FileSystem::open`].
    pub fn image(&self, path: impl AsRef<Path>) -> Result<Image, Error> {
        let path = path.as_ref();
        let name = format!("{}: {}", self.name, path.display());
        Ok(Image::over(name, self.open(path)?.into()).make_read_only())
    }

    /// The inode with a number, such as a directory entry has.
    ///
    /// # Errors
    /// `Corrupt` for one that is damaged, not in use, or not there.
    pub fn inode(&self, number: InodeNo) -> Result<Inode, Error> {
        self.fs.inode(number).map_err(|error| self.about(number, error))
    }

    /// Reads an inode that may have lost its last name: that of a file which somebody has open.
    ///
    /// # Errors
    /// `Corrupt` for one that is damaged or not there.
    pub fn inode_in_use(&self, number: InodeNo) -> Result<Inode, Error> {
        self.fs.any_inode(number).map_err(|error| self.about(number, error))
    }

    /// The entries of a directory, without "." and "..".
    ///
    /// # Errors
    /// `Io` with `NotFound` or `NotADirectory`; `Corrupt`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>, Error> {
        let path = path.as_ref();
        let inode = self.metadata(path)?;
        if !inode.is_dir() {
            return Err(self.error(path, io::ErrorKind::NotADirectory.into()));
        }
        self.fs.read_dir(&inode).map_err(|error| self.error(path, error))
    }

    /// The inode of a file: kind, size, mode, owner and times. A link at the path's end is followed.
    ///
    /// # Errors
    /// `Io` with `NotFound` or `NotADirectory`, or when links lead in a circle; `Corrupt`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Inode, Error> {
        self.resolve(path.as_ref(), true)
    }

    /// Reads the inode of a path, without following a symbolic link at its end.
    ///
    /// # Errors
    /// Errors of [`FileSystem::metadata`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Inode, Error> {
        self.resolve(path.as_ref(), false)
    }

    /// Whether a path leads to something.
    ///
    /// # Errors
    /// Errors of [`FileSystem::metadata`], but for a path that does not exist.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool, Error> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) => match error.code() {
                Code::NotFound | Code::NotDirectory => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Io` with `NotFound`, or `InvalidInput` for what is no link; `Corrupt`.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let path = path.as_ref();
        let inode = self.symlink_metadata(path)?;
        if inode.kind() != super::FileType::Symlink {
            return Err(self.error(path, Error::path(io::ErrorKind::InvalidInput, "is not a symbolic link")));
        }
        let target = self.fs.symlink_target(&inode).map_err(|error| self.error(path, error))?;
        Ok(OsString::from_vec(target).into())
    }

    /// Copies what is below a directory to the host.
    ///
    /// # Errors
    /// Errors that end the whole copy; those of single files are in the report.
    pub fn extract(
        &self,
        top: impl AsRef<Path>,
        target: Target<'_>,
        options: &ExtractOptions,
        work: &Work<'_>,
    ) -> Result<ExtractReport, Error> {
        let top = top.as_ref();
        let inode = self.metadata(top)?;
        if !inode.is_dir() {
            return Err(self.error(top, io::ErrorKind::NotADirectory.into()));
        }
        let contents = Checked { policy: self.verity, providers: &work.providers };
        let can_give = matches!(target, Target::Tar(_)) || os::is_root();
        let kept = options.kept.iter().map(PathBuf::as_path).chain([Path::new(&*self.name)]);
        let kept = kept.filter_map(FileId::at).chain(inputs::through_descriptors());
        let kept: Vec<FileId> = kept.collect();
        let options = casemate_ext4::ExtractOptions {
            kept: &kept,
            owners: options.owners && can_give,
            xattrs: options.xattrs,
            overwrite: options.overwrite,
            selection: Some(&options.selection).filter(|selection| !selection.is_everything()),
            contents: &contents,
        };
        match target {
            Target::Folder(folder) => {
                casemate_ext4::extract_to_folder(&self.fs, &inode, folder, &options, work)
                    .map_err(|error| error.at(folder.display()))
            }
            Target::Tar(out) => casemate_ext4::extract_to_tar(&self.fs, &inode, out, &options, work)
                .map_err(|error| error.at("tar stream")),
        }
    }

    /// Gives a file of the host, to which the contents of an inode were written, what the inode has beside them: owner, attributes,
    /// mode and times, as [`FileSystem::extract`] does. Returns what could not be restored, and restores the rest. Devices and
    /// streams stay as they are.
    pub fn restore(&self, inode: &Inode, output: &Output, options: &ExtractOptions) -> Vec<Error> {
        let owners = options.owners && os::is_root();
        let restored = output
            .dress(|file| casemate_ext4::restore_file(&self.fs, inode, file.as_fd(), owners, options.xattrs));
        restored.unwrap_or_default()
    }

    /// Tells the listener of raw keys that were of no use so far, where others were needed: without its key a name is shown as
    /// it is without any.
    pub fn note_useless_keys(&self, events: &dyn Events) {
        self.uses.note_useless(&self.keys, &self.name, &self.providers, events);
    }

    /// Bytes of inode tables, which are the work of [`Image::ext4_check`](crate::Image::ext4_check).
    pub fn check_size(&self) -> u64 {
        casemate_ext4::check_size(&self.fs)
    }

    /// Bytes of all blocks that are in use: about the work of copying everything out.
    pub fn used_bytes(&self) -> u64 {
        let superblock = self.fs.superblock();
        let blocks = superblock.blocks.saturating_sub(superblock.blocks_free);
        blocks.saturating_mul(superblock.block_size.into())
    }

    /// The keys of encrypted files, which may come and go while the file system is open.
    pub fn keys(&self) -> &LiveKeys {
        &self.live_keys
    }

    /// The file system by inodes: superblock, attributes, mappings, and whatever else a path does not lead to.
    pub fn inodes(&self) -> &Ext4 {
        &self.fs
    }

    /// The image's name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The demand on files with and without fs-verity.
    pub(super) fn verity(&self) -> VerityPolicy {
        self.verity
    }

    fn contents(&self, inode: &Inode) -> Result<Box<dyn BlockDevice>, Error> {
        if inode.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        open_file(&self.fs, inode, self.verity, &self.providers)
    }

    /// An error that is about an inode, whose number it has or gets.
    pub(super) fn about(&self, number: InodeNo, error: Error) -> Error {
        match (&error.place().inode, &error.place().file) {
            (None, None) => self.error(format!("inode {number}"), error),
            _ => error.within(&self.name),
        }
    }

    fn resolve(&self, path: &Path, follow: bool) -> Result<Inode, Error> {
        let found = match inode_path(path).filter(|_| self.inode_paths) {
            None => self.fs.resolve(path.as_os_str().as_bytes(), follow),
            // An inode without names can be looked at, too.
            Some((number, b"")) => self.fs.any_inode(number),
            Some((number, rest)) => {
                self.fs.inode(number).and_then(|dir| self.fs.resolve_from(dir, rest, follow))
            }
        };
        // The text of an error about the path itself names the path.
        found.map_err(|error| match error.io_kind() {
            Some(_) => error.at(&self.name),
            None => self.error(path, error),
        })
    }

    /// An error that is about the file at a path, which names both: what lies below knows the image alone.
    pub fn error(&self, path: impl AsRef<Path>, error: Error) -> Error {
        let path = path.as_ref().display();
        match error.place().file.as_deref() == Some(&*self.name) {
            true => error.map_text(|text| format!("{path}: {text}")),
            false => error.at(format_args!("{}: {path}", self.name)),
        }
    }
}

/// The inode that a path begins with, as debugfs writes it, and the path from there.
fn inode_path(path: &Path) -> Option<(InodeNo, &[u8])> {
    let rest = path.as_os_str().as_bytes().strip_prefix(b"<")?;
    let end = rest.iter().position(|byte| *byte == b'>')?;
    let digits =
        str::from_utf8(&rest[..end]).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    let rest = &rest[end + 1..];
    (rest.is_empty() || rest[0] == b'/').then_some((InodeNo::new(digits.parse().ok()?)?, rest))
}

/// All that a device holds.
fn whole(file: &dyn BlockDevice) -> Result<Vec<u8>, Error> {
    if file.size() > MOST_READ {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; usize_of(file.size())];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

impl fmt::Debug for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSystem").field("name", &self.name).finish_non_exhaustive()
    }
}
