//! Mounts an image in a folder of the host, over FUSE. Any program reads its files, through all layers, and the image never
//! reaches the kernel's own file systems.
//!
//! [`Mount::new`] mounts a [`FileSystem`](casemate::ext4::FileSystem) for reading and answers the kernel from then on;
//! [`unmount`] takes a folder back from any process:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use casemate::blockdev::NoEvents;
//! use casemate::ext4::ReadOptions;
//! use casemate::{Access, Image, Work};
//! use casemate_fuse::{Mount, MountOptions, Unmount, unmount};
//!
//! let image = Image::open("root.img", Access::Read)?;
//! let fs = image.ext4(&ReadOptions::default(), &Work::default())?;
//! let mount = Mount::new(fs, Path::new("folder"), &MountOptions::default(), |_| println!("unmounted"))?;
//! std::fs::copy("folder/etc/os-release", "os-release").map_err(|error| casemate::Error::io("os-release", error))?;
//! unmount(mount.folder(), Unmount::WhenUnused, &NoEvents)?;
//! # Ok::<(), casemate::Error>(())
//! ```
//!
//! # How
//!
//! Only the kernel's requests change the image while it is mounted, so the kernel may cache names, attributes, links, lists of
//! folders and contents as long as it likes. A node's number is the inode's, but for the root: for reading nothing is
//! remembered of what the kernel knows. A few threads read requests, and each answers its own. One of them stays free of long work,
//! such as reading contents or lists of names, so that slow decryption never delays the lookup of a name.
//!
//! [`Mount::writing`] lets programs change files, too. One writer ([`Writer`](casemate::ext4::Writer)) makes one change after
//! the other, while nobody reads, and reading goes through what it has not committed. It commits every five seconds, when it
//! has much to commit, at fsync and at the end. Files without names stay as long as the kernel knows them. Where a commit
//! fails because something can't be written, changes stay in memory, and the next one tries again; who unmounts the folder
//! is told before it is gone.
//!
//! # Errors
//!
//! Programs see the kernel's: ENOKEY where a key is missing, EIO for what is damaged or does not match its fs-verity tree.
//! [`MountOptions::events`] hears of the errors themselves.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod attributes;
mod caller;
mod changes;
mod control;
mod crew;
mod edits;
mod ending;
mod errno;
mod folder_keys;
mod ioctls;
mod kernel;
mod known;
mod listings;
mod mount;
mod mounts;
mod names;
mod node;
mod open_files;
mod open_folders;
mod options;
mod owner;
mod requests;
mod tree;
mod unmount;

pub use folder_keys::FolderKeys;
pub use mount::Mount;
pub use options::{Flag, MountOptions};
pub use unmount::{Unmount, unmount};
