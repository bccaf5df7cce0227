//! What systems do in their own ways, under names that all of them have here.
//!
//! The traits are those of [`std::os::unix`]; where the standard library has none, there is one of the same name and methods.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod plain;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::fs;
use std::io;
use std::path::Path;

#[cfg(unix)]
use self::unix as family;
#[cfg(windows)]
use self::windows as family;

#[cfg(target_os = "linux")]
pub(crate) use self::linux::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use self::plain::*;

pub use self::family::{
    DirBuilderExt, FileExt, FileTypeExt, OpenOptionsExt, OsStrExt, OsStringExt, host_name, inode, input,
    is_root, mode, path, read_input, set_mode,
};
pub(crate) use self::family::{has_no_locks, id_at, id_of, next_data, sync_folder};

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
