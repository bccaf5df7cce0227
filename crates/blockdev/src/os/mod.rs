//! Functions that each system does in its own way, under the same names on all.
//!
//! The traits are those of [`std::os::unix`]; where the standard library has none, there is one of the same name and methods.

#[cfg(target_os = "linux")]
mod holder;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod plain;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use self::unix as family;
#[cfg(windows)]
use self::windows as family;

use crate::identity::FileId;

#[cfg(target_os = "linux")]
pub(crate) use self::holder::holder;
#[cfg(target_os = "linux")]
pub(crate) use self::linux::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use self::plain::*;

pub use self::family::{
    DirBuilderExt, FileExt, FileTypeExt, OpenOptionsExt, OsStrExt, OsStringExt, host_name, inode, input,
    is_root, mode, open_regular, path, read_input, set_mode, umask,
};
pub(crate) use self::family::{
    has_no_locks, id_at, id_of, is_removed, next_data, permissions, permissions_after, standard_input,
    standard_output, sync_folder,
};

/// File or device that a block device lies on.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "block devices are not supported on this system")
)]
pub(crate) struct Below {
    pub id: FileId,
    /// The bytes of it that the device has, where they are known.
    pub range: Range<u64>,
    /// The path of the file that a loop device stands on.
    pub backing: Option<PathBuf>,
}

/// Process that keeps a file or a device from others.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "processes are not looked for on this system")
)]
pub(crate) struct Holder {
    pub pid: u32,
    /// The program, and its command.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { pid, name } = self;
        if name.is_empty() { write!(f, "PID {pid}") } else { write!(f, "{name}, PID {pid}") }
    }
}

/// Gives a file a name that no file has.
///
/// # Errors
/// `AlreadyExists`; what the system says.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    if !try_rename_new(from, to)? {
        fs::hard_link(from, to)?;
        fs::remove_file(from)?;
    }
    Ok(())
}
