//! Trees of files on their way in and out of file systems: metadata of files, tar streams in both directions (also
//! compressed), the layers of OCI images, and folders of the host, made and read.
//!
//! ```
//! use casemate_trees::{FileType, Link, Node};
//! use casemate_trees::tar::{Member, TarReader, TarWriter};
//!
//! let mut stream = Vec::new();
//! let mut tar = TarWriter::new(&mut stream);
//! let node = Node { mode: 0o777, ..Node::new(FileType::Symlink) };
//! tar.add(&Member::new("bin", node, Some(Link::Symbolic(b"usr/bin".to_vec()))))?;
//! tar.finish()?;
//!
//! let mut from = &stream[..];
//! let mut tar = TarReader::new(&mut from, "stream");
//! let member = tar.next()?.expect("one member");
//! assert_eq!((&member.path[..], member.node.mode), (&b"bin"[..], 0o777));
//! assert!(tar.next()?.is_none());
//! # Ok::<(), casemate_blockdev::Error>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod acl;
pub mod folder;
pub mod host;
pub mod labels;
pub mod manifest;
mod mode;
mod node;
pub mod oci;
mod packed;
mod path;
mod pattern;
mod rescue;
mod system;
pub mod tar;
mod time;
mod trail;

pub use acl::{ACCESS_ACL, mode_without_acl};
pub use casemate_blockdev::{Error, Result};
pub use mode::ModeChange;
pub use node::{FileType, Link, NO_ID, Node};
pub use packed::{Packing, unpacked};
pub use path::{below, join, split, trim};
pub use pattern::{Choice, Glob, Pattern, Selection};
pub use rescue::{RescueFolder, copy_new, place_below};
pub use time::Time;
pub use trail::Trail;
