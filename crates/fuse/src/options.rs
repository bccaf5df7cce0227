//! Options of mounting.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use casemate::blockdev::Events;

/// Options of mounting.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct MountOptions {
    /// Whether other users may look into the folder too, as far as the modes of files let them.
    pub allow_other: bool,
    /// The owner that all files are shown with, and that new ones get; their own if `None`. Files of another owner are given no
    /// set-user-ID and set-group-ID bits, and lose them when they are written.
    pub uid: Option<u32>,
    /// The group that all files are shown with, in the same way.
    pub gid: Option<u32>,
    /// Mount flags that differ from the defaults.
    pub flags: Vec<Flag>,
    /// The number of threads that may read contents at a time; one for each core, and eight at least, if `None`.
    pub readers: Option<NonZeroUsize>,
    /// Where keys of encrypted files are added and removed while the folder is mounted: a socket that is made, for the user
    /// alone who mounts, and root ([`FolderKeys`](crate::FolderKeys)).
    pub control: Option<PathBuf>,
    /// Files that are used by their names while the folder is mounted: the image, a recovery file. None may lie in the folder, which
    /// would hide it.
    pub files: Vec<PathBuf>,
    /// The listener, told of each fault in a note, from any thread.
    pub events: Option<Arc<dyn Events + Send + Sync>>,
}

impl fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MountOptions { allow_other, uid, gid, flags, readers, control, files, events: _ } = self;
        let mut text = f.debug_struct("MountOptions");
        text.field("allow_other", allow_other).field("uid", uid).field("gid", gid).field("flags", flags);
        text.field("readers", readers).field("control", control).field("files", files).finish_non_exhaustive()
    }
}

/// A mount flag, as mount(8) names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flag {
    /// Device files are devices. Only root can say so.
    Dev,
    /// Set-user-ID bits and file capabilities hold. Only root can say so.
    Suid,
    /// Programs can't be run.
    NoExec,
}
