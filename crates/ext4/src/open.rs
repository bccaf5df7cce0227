//! The way in to reading a file system: opened as it will be once its journal was replayed, which is done in memory.

use std::io::ErrorKind;
use std::sync::Arc;

use casemate_blockdev::BlockDevice;

use crate::edit::fast_commit;
use crate::error::Result;
use crate::read::fs::{Ext4, OpenOptions};
use crate::read::journal::{self, Recovery};

impl Ext4 {
    /// Opens the file system on `device`, which nobody changes as long as it is open: some MiB of its metadata are kept in
    /// memory once they were read.
    ///
    /// # Errors
    /// `Corrupt` when the superblock is none or damaged, the device is shorter than
    /// the file system, or the journal is damaged; `Unsupported` for features
    /// that a reader must know and this one does not.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Ext4> {
        let fs = Ext4::described(device, options)?;
        // A superblock that was torn while a transaction was written in place is whole in the journal.
        let recovered = recovered(fs.clone(), options);
        if options.verify_checksums {
            recovered.as_ref().unwrap_or(&fs).verify_superblock()?;
        }
        Ok(recovered?.keeping_blocks())
    }

    /// Whether the journal holds transactions, and the superblock does not say that they must be replayed.
    ///
    /// # Errors
    /// Errors of reading the device.
    pub fn has_untold_transactions(&self) -> Result<bool> {
        journal::is_untold(self)
    }
}

/// The file system as it is after its journal was replayed, if it must be.
pub(crate) fn recovered(fs: Ext4, options: &OpenOptions) -> Result<Ext4> {
    if !options.replay_journal {
        return Ok(fs);
    }
    let by_copy = options.superblock.map(|_| fs.superblock().clone());
    // Copies do not tell whether the journal must be replayed; it tells that itself.
    let must = by_copy.is_some() || fs.superblock().needs_recovery();
    let (device, recovery) = match journal::recover(&fs, must) {
        Ok(None) => return Ok(fs),
        Ok(Some(found)) => {
            let device: Arc<dyn BlockDevice> = Arc::new(found.overlay);
            (fast_commit::over(device, options, &found.fast_commits)?, found.recovery)
        }
        Err(error) if fs.missing_bytes() > 0 && error.io_kind() == Some(ErrorKind::UnexpectedEof) => {
            (Arc::clone(fs.device()), Recovery { missing: true, ..Recovery::default() })
        }
        Err(error) => return Err(error),
    };
    let fs = match by_copy {
        Some(copy) => Ext4::with_superblock(device, copy, options)?,
        // The journal may hold a newer superblock.
        None => Ext4::described(device, options)?,
    };
    Ok(fs.with_recovery(recovery))
}
