//! `casemate mount`.

mod kernel_options;

use std::path::{Path, PathBuf};
use std::sync::mpsc;

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use casemate::blockdev::os::OsStrExt;
use casemate::ext4::{FileSystem, encryption_info};
use casemate::{Access, Error};
use casemate_fuse::{Mount, MountOptions, Unmount};

pub use self::kernel_options::KernelOptions;
use super::ext4::image::{ImageArgs, Verity};
use crate::answer::Answer;
use crate::background::{self, Faults, LogArgs};
use crate::context::Context;
use crate::notify::Manager;
use crate::signals;

/// Mount an ext4 image in a folder through FUSE, read-only unless --write is given.
///
/// Works through all layers, and with the keys of encrypted files; without its key a name is shown as the kernel
/// shows it. Needs FUSE (/dev/fuse, and fusermount3 for users other than root), but no root, loop device or kernel
/// ext4. Other processes cannot change the image while it is mounted. Goes to the background once the folder is
/// mounted; casemate umount, or umount, ends it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 mkdir folder && casemate mount root.img folder\n\
    \x20 casemate umount folder\n\
    \x20 casemate mount --write root.img folder && echo hello > folder/note && casemate umount folder\n\
    \x20 casemate mount disk.luks,luks,key-file=pass.key folder && casemate umount folder\n\
    \x20 casemate mount root.img folder --fscrypt-key master.key --allow-other --uid 1000\n\
    \x20 casemate umount folder\n\
    \n\
    In /etc/fstab, with a link /sbin/mount.casemate to this command and its options without the hyphens before them:\n\
    \x20 /var/root.img  /mnt/root  casemate  ro,noauto,luks,key-file=/etc/root.key,allow-other  0 0")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// The folder to mount on.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Allow writes. They are committed every 5 seconds, at fsync and at unmount. After a power cut or a kill the
    /// file system is as of the last commit.
    #[arg(short = 'w', long, conflicts_with_all = ["ignore_checksums", "superblock", "no_replay", "dm_verity"])]
    write: bool,
    /// Check fs-verity files: require refuses files without it, check verifies files that have it, ignore skips the
    /// check. (--dm-verity verifies the device below.)
    #[arg(long, value_name = "DEMAND", value_enum, default_value_t)]
    fsverity: Verity,
    /// Allow other users, as far as permissions and ACLs allow. Users other than root need user_allow_other in
    /// /etc/fuse.conf.
    #[arg(long)]
    allow_other: bool,
    /// Show this user as the owner of all files. With --write this user may change them all, and new files are stored as
    /// this user's. Files of another owner or group get no set-user-ID and set-group-ID bits (chmod fails), and lose
    /// them when they are written, truncated or given away.
    #[arg(long, value_name = "UID")]
    uid: Option<u32>,
    /// Show this group as the group of all files, with the same effects.
    #[arg(long, value_name = "GID")]
    gid: Option<u32>,
    /// Create this control socket for casemate key, which adds and removes keys while the folder is mounted. Only
    /// this user and root may use it.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Mount options, as for mount(8), separated by commas: dev, suid, noexec, nodev, nosuid, exec, ro [default:
    /// nodev,nosuid,exec].
    #[arg(short = 'o', long, value_name = "LIST", default_value = "", hide_default_value = true)]
    options: KernelOptions,
    /// Stay in the foreground, and report read errors. SIGINT and SIGTERM unmount.
    #[arg(long)]
    foreground: bool,
    #[command(flatten)]
    log: LogArgs,
    /// Option of the process in the background.
    #[arg(long, hide = true, conflicts_with = "foreground")]
    forked: bool,
}

/// Folders that are looked at for their keys.
const MOST_FOLDERS: u32 = 1000;

/// Event that the command waits for.
enum Event {
    Stop,
    Ended(Result<(), Error>),
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        if !self.foreground && !self.forked {
            return background::start("the process in the background", |_| None, context);
        }
        let mut options = MountOptions::default();
        options.allow_other = self.allow_other;
        (options.uid, options.gid) = (self.uid, self.gid);
        options.flags = self.options.flags();
        options.readers = context.threads();
        options.control = self.control.clone();
        options.files = self.image.files_by_name().map(Path::to_owned).collect();
        let faults = Faults::default();
        options.events = Some(faults.events());
        let log = self.log.open(&[self.image.file()])?;
        let manager = if self.forked { Manager::none() } else { Manager::of_environment() };
        let (events, incoming) = mpsc::channel();
        background::send_signals(&[SIGINT, SIGTERM, SIGHUP], &events, |_| Event::Stop)?;
        if self.forked {
            background::end_with_parent()?;
        }
        let ended = move |closed| drop(events.send(Event::Ended(closed)));
        if self.write && self.options.is_read_only {
            return Err(Error::argument("--write and -o ro: one of them"));
        }
        let mount = match self.write {
            true => {
                let changing = self.image.open_changing(self.fsverity, context)?;
                self.try_keys(&changing.1);
                changing.1.note_useless_keys(context);
                Mount::writing(changing, &self.folder, &options, ended)?
            }
            false => {
                // What it says of keys comes while somebody hears it.
                let fs = self.image.open_as(Access::Read, self.fsverity, context)?;
                self.try_keys(&fs);
                Mount::new((*fs).clone(), &self.folder, &options, ended)?
            }
        };
        signals::is_up();
        let told = |event: &str| match context.json() {
            true => context.print_json(&json!({
                "event": event,
                "image": self.image.file().to_string_lossy(),
                "folder": mount.folder().to_string_lossy(),
                "pid": std::process::id(),
            })),
            false => {
                context.done(format_args!("{}: {event}", self.folder.display()));
                Ok(())
            }
        };
        let begin = || {
            told("mounted")?;
            if self.forked {
                background::leave(log)?;
                // No folder is in use because this process was started in it.
                std::env::set_current_dir("/").map_err(|error| Error::io("/", error))?;
            } else {
                log.begin();
            }
            Ok(())
        };
        if let Err(error) = begin() {
            // Nobody would know that it is there, and a folder without its process answers nobody.
            mount.unmount(Unmount::Lazily).unwrap_or_else(|more| context.complain(&more));
            return Err(error);
        }
        let mounted = format!("mounted {} on {}", self.image.file().display(), mount.folder().display());
        self.log.note(&mounted);
        manager.ready(&mounted);
        loop {
            match incoming.recv() {
                Ok(Event::Stop) => {
                    manager.stopping();
                    if let Err(error) = mount.unmount(Unmount::WhenUnused) {
                        let is_busy = error.is_busy();
                        context.complain(&error);
                        // Whoever has files open keeps them, and what can't be made permanent stays; a second signal ends
                        // that.
                        if is_busy {
                            mount.unmount(Unmount::Lazily)?;
                        }
                    }
                }
                Ok(Event::Ended(closed)) => {
                    break closed.map_err(|error| error.within(mount.folder().display()))?;
                }
                Err(_) => break,
            }
        }
        self.log.note(&format!("unmounted {}", mount.folder().display()));
        told("unmounted")?;
        Ok(Answer::Yes)
    }

    /// Looks whether the keys that were given are those of encrypted folders at the top and in these: reading finds a key to be of use,
    /// or missing.
    fn try_keys(&self, fs: &FileSystem) {
        if !self.image.has_keys() {
            return;
        }
        let inodes = fs.inodes();
        let mut left = MOST_FOLDERS;
        let mut folders = vec![(PathBuf::from("/"), 0)];
        while let Some((path, depth)) = folders.pop() {
            for entry in fs.read_dir(&path).unwrap_or_default() {
                let Ok(inode) = inodes.inode(entry.inode) else { continue };
                let is_own = entry.name == b"." || entry.name == b"..";
                if is_own || !inode.is_dir() {
                    continue;
                }
                let Some(rest) = left.checked_sub(1) else { return };
                left = rest;
                let is_plain = matches!(encryption_info(inodes, &inode), Ok(None));
                if is_plain && depth < 1 {
                    folders.push((path.join(std::ffi::OsStr::from_bytes(&entry.name)), depth + 1));
                }
            }
        }
    }
}
