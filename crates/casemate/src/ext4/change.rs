//! Changing file systems by path.

use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice};
use casemate_ext4::{OpenOptions, RecoveryFile, WriteOptions};
use casemate_primitives::Cpu;

pub use casemate_ext4::{NewNode, PutOptions, PutReport, Writer};

use super::{Source, Time, within};
use crate::Error;

/// How to change a file system.
#[derive(Clone, Debug)]
pub struct Changing {
    /// Whose instructions to use.
    pub cpu: Cpu,
    /// What generations of new inodes are made from; random if `None`.
    pub seed: Option<u64>,
    /// The time to note changes with; the clock's if `None`.
    pub time: Option<Time>,
    /// Where transactions of a file system without a journal are kept; beside the image if `None`.
    pub recovery_file: Option<PathBuf>,
}

/// Opens a file system for changes, alone, and recovers it first if an earlier change was interrupted.
///
/// # Errors
/// `Io` with `ResourceBusy` if it is mounted or somebody else changes it; `Unsupported` for features that can't
/// be kept right; `Corrupt` when e2fsck should repair it first.
pub fn open_for_change(source: &Source, changing: &Changing) -> Result<Writer, Error> {
    let name = source.path.display();
    let file = FileDevice::open_exclusive(&source.path).map_err(|error| Error::io(&name, error))?;
    let is_block_device =
        file.file().metadata().map_err(|error| Error::io(&name, error))?.file_type().is_block_device();
    let (device, start): (Arc<dyn BlockDevice>, u64) = within(source, file)?;
    let beside = || {
        let mut path = OsString::from(&source.path);
        path.push(".casemate-redo");
        if start > 0 {
            path.push(format!(".{start}"));
        }
        PathBuf::from(path)
    };
    // Beside a block device is no place for files.
    let path = changing.recovery_file.clone().or_else(|| (!is_block_device).then(beside));
    let options = WriteOptions {
        open: OpenOptions { cpu: changing.cpu, ..OpenOptions::default() },
        seed: changing.seed,
        time: changing.time,
        recovery: path.map(RecoveryFile::new),
        ..WriteOptions::default()
    };
    Writer::open(device, options).map_err(|error| Error::ext4(&name, error))
}
