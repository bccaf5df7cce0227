//! Features that this writer does not keep right, refused by name before anything is changed.

use crate::error::{Error, Place, Result, Structure};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::read::fs::Ext4;
use crate::read::journal::Journal;

const COMPAT: &[Compat] = &[Compat::IMAGIC_INODES, Compat::LAZY_BG, Compat::SNAPSHOT_BITMAP];
const RO_COMPAT: &[RoCompat] = &[RoCompat::SHARED_BLOCKS];

/// Refuses file systems that can't be changed.
pub(crate) fn unsupported(fs: &Ext4) -> Result<()> {
    let superblock = fs.superblock();
    superblock.ro_compat.check_writable()?;
    let compat = COMPAT.iter().find(|flag| superblock.compat.has(**flag)).map(ToString::to_string);
    let ro_compat = RO_COMPAT.iter().find(|flag| superblock.ro_compat.has(**flag)).map(ToString::to_string);
    if let Some(name) = compat.or(ro_compat) {
        return Err(Error::unsupported(format!("file systems with the feature {name} can't be changed")));
    }
    if superblock.ro_compat.has(RoCompat::BIGALLOC) && !superblock.incompat.has(Incompat::EXTENTS) {
        let text = "file systems with clusters and without the feature extent can't be changed";
        return Err(Error::unsupported(text.to_owned()));
    }
    let place = Place::of(Structure::Superblock);
    if superblock.has_errors() || !superblock.is_clean() {
        return Err(place.malformed("the file system was not left clean; run e2fsck first"));
    }
    if superblock.compat.has(Compat::HAS_JOURNAL) && superblock.journal_inode.is_none() {
        return Err(Error::unsupported("file systems with a journal on another device can't be changed"));
    }
    if Journal::open(fs)?.is_some_and(|journal| journal.superblock().error != 0) {
        let place = Place::of(Structure::JournalSuperblock);
        return Err(place.malformed("the journal was aborted; run e2fsck first"));
    }
    Ok(())
}
