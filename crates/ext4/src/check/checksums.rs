//! The visitor that checks every checksum, and what stands behind the bits in use of bitmaps.

use casemate_blockdev::BlockDevice;

use crate::check::findings::{Counts, Finding, FindingKind, Findings, Fix};
use crate::check::visit::{BitmapItem, Item, Visitor};
use crate::error::{Error, Place, Problem, Result, Structure};
use crate::format::csum::{Kind, Subject};
use crate::format::inode::{Inode, InodeFlags};
use crate::format::journal_superblock::JournalSuperblock;
use crate::format::orphan;
use crate::format::superblock::Superblock;
use crate::read::dir::BlockRole;
use crate::read::file::FileReader;
use crate::read::fs::Ext4;

/// One thread's checks. What it counted is added to the findings at its end.
pub(crate) struct Checker<'a> {
    fs: &'a Ext4,
    findings: &'a Findings,
    counts: Counts,
}

impl<'a> Checker<'a> {
    pub fn new(fs: &'a Ext4, findings: &'a Findings) -> Checker<'a> {
        Checker { fs, findings, counts: Counts::default() }
    }

    /// Checks a structure's checksum, and counts that.
    fn verify(&mut self, item: &Item<'_>, subject: Subject) -> bool {
        let Item { place, offset, bytes, context } = *item;
        self.counts.add(place.structure, 1);
        let result = match subject {
            Subject::OrphanBlock => orphan::check(bytes, place)
                .and_then(|()| self.fs.checksums().verify(subject, &context, bytes, place)),
            Subject::DirectoryBlock => {
                self.fs.verify_directory_block(BlockRole::Leaf, &context, bytes, place)
            }
            _ => self.fs.checksums().verify(subject, &context, bytes, place),
        };
        self.findings.note(result, Some(Fix::in_place(offset, bytes.len(), subject, context)))
    }

    /// Whether the inode is a value of the old kind, which points back to its owner and has no hash.
    fn has_lustre_owner(&self, inode: &Inode) -> bool {
        u32::try_from(inode.modified().seconds)
            .ok()
            .and_then(|owner| self.fs.inode(owner).ok())
            .is_some_and(|owner| owner.generation() == inode.generation() && !owner.has(InodeFlags::EA_INODE))
    }
}

impl Visitor for Checker<'_> {
    fn wants(&self, structure: Structure) -> bool {
        match structure {
            Structure::BackupSuperblock | Structure::BackupGroupDescriptor => {
                self.fs.checksums().kind() != Kind::None
            }
            Structure::IndirectBlock | Structure::QuotaFile => false,
            _ => self.fs.checksums().kind() == Kind::Metadata,
        }
    }

    fn structure(&mut self, item: &Item<'_>) -> Result<bool> {
        let sums = self.fs.checksums();
        let subject = match item.place.structure {
            Structure::BackupSuperblock => {
                // A copy that says that it has no checksum has none.
                let has_one = Superblock::from_bytes(item.bytes)?.has_metadata_csum();
                return Ok(!has_one || self.verify(item, Subject::Superblock));
            }
            Structure::JournalSuperblock => match JournalSuperblock::from_bytes(item.bytes) {
                Ok(superblock) if superblock.has_checksums() => Subject::JournalSuperblock,
                Ok(_) => return Ok(true),
                Err(error) => return self.findings.damage(error).map(|()| false),
            },
            Structure::GroupDescriptor | Structure::BackupGroupDescriptor => sums.descriptor_subject(),
            Structure::Inode => Subject::Inode,
            Structure::ExtentBlock => Subject::ExtentBlock,
            Structure::DirectoryBlock => Subject::DirectoryBlock,
            Structure::HtreeNode => Subject::HtreeNode,
            Structure::XattrBlock => Subject::XattrBlock,
            Structure::MmpBlock => Subject::MmpBlock,
            Structure::OrphanBlock => Subject::OrphanBlock,
            _ => return Ok(true),
        };
        Ok(!sums.covers(subject) || self.verify(item, subject))
    }

    fn bitmap(&mut self, item: &BitmapItem<'_>) -> Result<bool> {
        let BitmapItem { which, group, descriptor, place, bytes, covered, used } = *item;
        let (subject, sums) = (which.subject(), self.fs.checksums());
        let has_sum = sums.covers(subject);
        if has_sum {
            self.counts.add(place.structure, 1);
            let summed = &bytes[..covered as usize / 8];
            let result = sums.verify_bitmap(subject, summed, descriptor.as_bytes(), place);
            let value = sums.update(None, summed);
            if !self.findings.note(result, Some(Fix::Bitmap { subject, group, value })) {
                return Ok(false);
            }
        }
        // All behind the bits in use must be set, so that nobody takes what is not there: within the byte where that
        // begins, then byte by byte.
        let padding = used as usize;
        let is_set = match bytes[padding / 8..].split_first() {
            Some((first, rest)) => !first >> (padding % 8) == 0 && rest.iter().all(|byte| *byte == 0xff),
            None => true,
        };
        if !is_set {
            let text = format!("not all bits behind the group's {used} are set");
            self.findings.say(FindingKind::BitmapPadding, place, text);
        }
        Ok(has_sum)
    }

    /// Checks the hash of an attribute's value.
    fn value(&mut self, inode: &Inode, contents: &FileReader) -> Result<()> {
        let place = Place::inode(Structure::XattrInode, inode.number());
        self.counts.add(Structure::XattrInode, 1);
        let mut crc = None;
        let mut buffer = vec![0; 1 << 16];
        let mut at = 0;
        while at < contents.size() {
            let len = (contents.size() - at).min(buffer.len() as u64) as usize;
            contents.read_at(&mut buffer[..len], at)?;
            crc = Some(self.fs.checksums().update(crc, &buffer[..len]));
            at += len as u64;
        }
        let (expected, found) = (self.fs.checksums().update(crc, &[]), inode.value_hash());
        if expected != found && !self.has_lustre_owner(inode) {
            let problem = Problem::Checksum { expected, found };
            self.findings.add(Finding::new(FindingKind::Checksum, place, problem), None);
        }
        Ok(())
    }

    fn damage(&mut self, error: Error) -> Result<()> {
        self.findings.damage(error)
    }
}

impl Drop for Checker<'_> {
    fn drop(&mut self) {
        self.findings.add_counts(std::mem::take(&mut self.counts));
    }
}
