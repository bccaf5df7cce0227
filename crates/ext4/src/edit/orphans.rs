//! Inodes that wait to be deleted or cut: what a file system that was in use until it stopped still has to do.
//!
//! Their list is the one of [`Inodes`](super::inodes::Inodes); with the feature orphan_file they are numbers in a file
//! of their own. The kernel does what they wait for when it mounts, e2fsck before it checks, and a writer when it
//! opens.
//!
//! Source: Documentation/filesystems/ext4/orphan.rst.

use std::collections::HashSet;

use casemate_blockdev::u64_of;

use crate::edit::Writer;
use crate::edit::file_map::Cut;
use crate::edit::files::Files;
use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::{Context, Subject};
use crate::format::features::RoCompat;
use crate::format::inode::{FileType, Inode, InodeFlags};
use crate::format::orphan;
use crate::units::InodeNo;

impl Files {
    /// An inode that waits, which must be one in use.
    fn orphan(&mut self, number: InodeNo) -> Result<Inode> {
        let position = self.fs().layout().inode_position(number);
        let (group, index) =
            position.ok_or_else(|| wrong(number, "is an orphan, and there is no such inode"))?;
        if self.fs().superblock().is_reserved(number) {
            return Err(wrong(number, "is reserved, and an orphan"));
        }
        if !self.inodes().space_mut().is_inode_used(group, index)? {
            return Err(wrong(number, "is an orphan, and free"));
        }
        self.inodes().count_unlinked(number);
        self.inodes().get_unlinked(number)
    }

    /// Does what an orphan waits for: without names it goes, else what lies behind its end. Part of an operation.
    fn release_orphan(&mut self, mut inode: Inode) -> Result<()> {
        if inode.links() == 0 {
            return self.inodes().release(&mut inode);
        }
        // Behind the end of a file with fs-verity is its tree.
        let kept = InodeFlags::VERITY.0 | InodeFlags::INLINE_DATA.0;
        if inode.flags().0 & kept == 0 && inode.kind() == FileType::Regular {
            let size = inode.size();
            let block = self.space().block_bytes();
            let cut = self.inodes().map(&mut inode).cut(size.div_ceil(block))?;
            // Without the key what lies behind the end in the last block can't be zeroed; the kernel does not, too.
            if !size.is_multiple_of(block) && self.fs().require_key(&inode).is_ok() {
                self.inodes().contents(&mut inode).zero_from(size)?;
            }
            if cut == Cut::Begun {
                return self.inodes().finish_later(&mut inode);
            }
        }
        inode.set_deleted(0);
        self.inodes().store(&inode)
    }
}

impl Writer {
    /// Deletes and cuts all that waits for it.
    pub(crate) fn release_orphans(&mut self) -> Result<()> {
        let mut done = HashSet::new();
        loop {
            let Some(number) = self.files().last_orphan()? else { break };
            if !done.insert(number) {
                return Err(wrong(number, "is twice in the list of orphans"));
            }
            self.operation(|files| {
                let inode = files.orphan(number)?;
                let next = inode.next_orphan();
                files.inodes().set_last_orphan(next)?;
                files.release_orphan(inode)
            })?;
        }
        if self.fs().superblock().ro_compat.has(RoCompat::ORPHAN_PRESENT) {
            if let Some(file) = self.fs().superblock().orphan_file {
                self.release_from_file(file)?;
            }
            self.operation(|files| {
                files.inodes().transaction().edit_superblock(|superblock| {
                    superblock.remove_ro_compat(RoCompat::ORPHAN_PRESENT);
                    Ok(())
                })
            })?;
        }
        self.commit()
    }

    fn release_from_file(&mut self, file: InodeNo) -> Result<()> {
        let file = self.files().get(file)?;
        let size = self.files().space().block_size();
        let blocks = file.size() / u64_of(size);
        for logical in 0..blocks {
            let mapping = self.fs().mapping_at(&file, logical)?;
            let Some(run) = mapping.filter(|run| !run.unwritten) else {
                return Err(wrong(file.number(), "is an orphan file with a hole"));
            };
            let block = run.physical + (logical - run.logical);
            let context = Context { block, ..file.context() };
            let place = Place::inode(Structure::OrphanBlock, file.number()).at(block);
            self.files().space().load(block, place, |bytes| {
                orphan::check(bytes, place)?;
                self.fs().verify(Subject::OrphanBlock, &context, bytes, place)
            })?;
            for field in orphan::numbers(size) {
                let number = self.files().space().transaction().with(block, |bytes| field.get(bytes))?;
                let Some(number) = InodeNo::new(number) else { continue };
                self.operation(|files| {
                    let inode = files.orphan(number)?;
                    files.inodes().transaction().patch(
                        Subject::OrphanBlock,
                        context,
                        block,
                        field.at(),
                        &[0; 4],
                    )?;
                    files.release_orphan(inode)
                })?;
            }
        }
        Ok(())
    }
}

fn wrong(number: InodeNo, what: &'static str) -> Error {
    Place::inode(Structure::Inode, number).malformed(what)
}
