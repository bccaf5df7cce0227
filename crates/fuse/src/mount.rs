//! A folder that shows a file system.

use std::fmt;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};

use casemate::ext4::{FileSystem, Writer};
use casemate::{Advice, Error};
use casemate_sys::fuse::can_clone;

use crate::changes::Changes;
use crate::control::{Bound, Control};
use crate::kernel::Kernel;
use crate::known::Known;
use crate::mounts::{Mounted, full_path, source_name};
use crate::options::{Flag, MountOptions};
use crate::owner::Owner;
use crate::requests::Requests;
use crate::tree::Tree;
use crate::unmount::{Unmount, unmount_if};

/// The kernel's side of FUSE.
const DEVICE: &str = "/dev/fuse";

/// Threads that read contents at a time, at least: some of them wait for a disk.
const FEWEST_READERS: usize = 8;

/// A folder that shows a file system, until it is unmounted. Dropped without that, it goes on to the end of the process.
pub struct Mount {
    folder: PathBuf,
    id: u64,
    tree: Arc<Tree>,
    // What it does when it is dropped is to unmount the folder by its name, whatever is mounted there by then.
    _session: ManuallyDrop<BackgroundSession>,
    /// Removes its socket when it is dropped.
    _control: Option<Bound>,
}

impl Mount {
    /// Mounts a file system on a folder, and answers the kernel on threads of its own. `ended` is called when the folder is
    /// unmounted and nobody uses it any more.
    ///
    /// # Errors
    /// `Busy` if something of this program is mounted there; `Unsupported` without FUSE; `Io` for what the system says, as
    /// where this user may not mount.
    pub fn new(
        fs: FileSystem,
        folder: &Path,
        options: &MountOptions,
        ended: impl FnOnce(Result<(), Error>) + Send + Sync + 'static,
    ) -> Result<Mount, Error> {
        Mount::start(fs, None, Arc::default(), folder, options, ended)
    }

    /// Mounts a file system that programs may change: a writer, and what it shows
    /// ([`Image::ext4_changing`](casemate::Image::ext4_changing)). Changes are committed every five seconds, when a
    /// program asks for that (fsync), and at the end; `ended` hears whether the last commit went well.
    ///
    /// # Errors
    /// Errors of [`Mount::new`].
    pub fn writing(
        (writer, fs): (Writer, FileSystem),
        folder: &Path,
        options: &MountOptions,
        ended: impl FnOnce(Result<(), Error>) + Send + Sync + 'static,
    ) -> Result<Mount, Error> {
        let events = options.events.clone();
        let failed = move |error: &Error| events.iter().for_each(|events| events.note(&error.to_string()));
        let known = Arc::default();
        let changes = Changes::new(writer, Arc::clone(&known), failed)?;
        Mount::start(fs, Some(changes), known, folder, options, ended)
    }

    fn start(
        fs: FileSystem,
        changes: Option<Changes>,
        known: Arc<Known>,
        folder: &Path,
        options: &MountOptions,
        ended: impl FnOnce(Result<(), Error>) + Send + Sync + 'static,
    ) -> Result<Mount, Error> {
        let at = |error| Error::io(folder.display(), error);
        let path = full_path(folder)?;
        if let Some(mounted) = Mounted::on(&path)?.filter(Mounted::is_ours) {
            return Err(taken(folder, &path, &mounted));
        }
        if !std::fs::metadata(folder).map_err(at)?.is_dir() {
            return Err(at(std::io::ErrorKind::NotADirectory.into()));
        }
        let control = options.control.as_deref().map(std::path::absolute).transpose().map_err(at)?;
        refuse_hiding(folder, &path, options.files.iter().chain(&control))?;
        if !Path::new(DEVICE).exists() {
            let text = "there is no /dev/fuse: the module fuse is not loaded (modprobe fuse), or this container has not been \
                        given the device";
            return Err(Error::unsupported(text));
        }
        let mut config = Config::default();
        config.mount_options = vec![
            if changes.is_some() { MountOption::RW } else { MountOption::RO },
            MountOption::DefaultPermissions,
            MountOption::FSName(source_name(fs.name())),
            // Not Subtype, which is for fusermount alone.
            MountOption::CUSTOM("subtype=casemate".into()),
        ];
        config.mount_options.extend(options.flags.iter().map(|flag| match flag {
            Flag::Dev => MountOption::Dev,
            Flag::Suid => MountOption::Suid,
            Flag::NoExec => MountOption::NoExec,
        }));
        config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get).max(FEWEST_READERS);
        let readers = options.readers.map_or_else(cores, NonZeroUsize::get);
        config.n_threads = Some(readers + 1);
        config.clone_fd = takes_clones();
        let owner = Owner { uid: options.uid, gid: options.gid };
        let kernel = Kernel::default();
        let options = MountOptions { control, ..options.clone() };
        let tree = Arc::new(Tree::new(fs, changes, known, owner, &options)?);
        let control = options.control.as_deref().map(Control::bind).transpose()?;
        let requests = Requests::new(Arc::clone(&tree), kernel.clone(), readers, ended);
        let session = Session::new(requests, &path, &config).and_then(|session| {
            kernel.is_reached_by(session.notifier());
            session.spawn()
        });
        let session = ManuallyDrop::new(session.map_err(|error| refused(folder, error))?);
        let mounted = Mounted::on(&path)?.filter(Mounted::is_ours);
        let mounted = mounted.ok_or_else(|| at(std::io::ErrorKind::NotFound.into()))?;
        mounted.read_ahead();
        let id = mounted.id;
        let control = control.map(|control| control.serve(Arc::clone(&tree), kernel)).transpose()?;
        Ok(Mount { folder: path, id, tree, _session: session, _control: control })
    }

    /// The folder, by its full name.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Unmounts the folder, if this is what is mounted there, once all changes so far are permanent. Lazily it is unmounted
    /// whether they are or not.
    ///
    /// # Errors
    /// `Busy` if somebody uses it; those of the commit, after which it stays mounted.
    pub fn unmount(&self, when: Unmount) -> Result<(), Error> {
        if when == Unmount::WhenUnused && self.tree.changes().is_some() {
            self.tree.commit()?;
        }
        unmount_if(&self.folder, when, |mounted| mounted.id == self.id)
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Refuses a folder that would hide files which the mount itself uses: to look for one, it would have to answer itself.
fn refuse_hiding<'a>(
    folder: &Path,
    path: &Path,
    mut files: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), Error> {
    // Links on the way are in the folder, too.
    let ways = |file: &Path| {
        let whole = std::path::absolute(file).ok();
        let parent = whole.as_deref().and_then(Path::parent).and_then(|parent| parent.canonicalize().ok());
        let named =
            parent.zip(whole.as_deref().and_then(Path::file_name)).map(|(parent, name)| parent.join(name));
        let linked = std::fs::read_link(file).ok();
        let linked = linked.and_then(|target| full_path(&file.parent()?.join(target)).ok());
        [whole, named, linked, file.canonicalize().ok()]
    };
    let places = [std::path::absolute(folder).ok(), Some(path.to_owned())];
    let is_hidden = |file: &&PathBuf| {
        ways(file).iter().flatten().any(|file| places.iter().flatten().any(|place| file.starts_with(place)))
    };
    match files.find(is_hidden) {
        None => Ok(()),
        Some(file) => {
            let text = format!(
                "this folder contains {}, which the mount needs and would hide: mount on another folder",
                file.display()
            );
            Err(Error::argument(text).at(folder.display()))
        }
    }
}

/// The error for a folder that shows an image already, or that nobody answers for any more.
fn taken(folder: &Path, path: &Path, mounted: &Mounted) -> Error {
    let (folder, source) = (folder.display(), mounted.source.display());
    match std::fs::metadata(path).map_err(|error| error.raw_os_error()) {
        Err(number) if number == Some(rustix::io::Errno::NOTCONN.raw_os_error()) => Error::busy(format!(
            "{folder}: the process that showed {source} here has ended without unmounting it"
        )),
        _ => Error::busy(format!("{folder}: {source} is mounted here already")),
    }
    .advise(Advice::Unmount)
}

/// Whether each thread can have a file of its own for requests; else they share one, which is slower.
fn takes_clones() -> bool {
    let open = || std::fs::File::options().read(true).write(true).open(DEVICE);
    // Mounting says what is wrong with a device that can't be opened.
    open().and_then(|device| Ok(can_clone(&device, &open()?))).unwrap_or(true)
}

/// Error of mounting, with what to do about it.
fn refused(folder: &Path, error: std::io::Error) -> Error {
    let text = error.to_string();
    let folder = folder.display();
    if error.kind() == std::io::ErrorKind::NotFound {
        let text = "only root mounts without fusermount3 (Debian's package fuse3), and it is not there";
        return Error::unsupported(format!("{folder}: {text}"));
    }
    match text.contains("user_allow_other") {
        true => Error::argument(format!(
            "{folder}: only root may mount a folder that other users see, unless /etc/fuse.conf has a line user_allow_other"
        )),
        false => Error::io(folder, std::io::Error::new(error.kind(), text.trim().to_owned())),
    }
}
