//! The directory `lost+found`, and what gets a name in it.

use crate::check::{Doubts, Finding, FindingKind};
use crate::edit::dir::name::Name;
use crate::edit::inode::write;
use crate::edit::{Body, NewNode};
use crate::error::{Problem, Result};
use crate::format::inode::{FileType, InodeFlags};
use crate::repair::{Depth, Repair};
use crate::units::InodeNo;

const LOST_AND_FOUND: &[u8] = b"lost+found";

impl Repair {
    /// Gives an inode that is in no directory a name in lost+found: its number.
    pub(super) fn attach(&mut self, finding: &Finding) -> Result<bool> {
        let Some(number) = finding.place().inode else { return Ok(false) };
        let mut inode = self.files.inodes().get_unlinked(number)?;
        let is_lost = match finding.kind() {
            FindingKind::Unconnected => inode.is_dir() && *finding.problem() != Problem::Loop,
            _ => match inode.kind() {
                FileType::Directory => false,
                FileType::Regular => !inode.has(InodeFlags::EA_INODE),
                _ => true,
            },
        };
        if !is_lost {
            return Ok(false);
        }
        let home = self.lost_and_found()?;
        if self.obstacles.is_unsound(home) {
            return Ok(false);
        }
        // A new name would take the place of one of these.
        let mut directory = self.files.inodes().get_unlinked(home)?;
        for name in [&b"."[..], b".."] {
            if self.files.directory(&mut directory).find(name)?.is_none() {
                return Ok(false);
            }
        }
        self.renamed.extend([number, home]);
        if inode.is_dir() {
            let before = self.set_parent(number, home)?;
            if let Some(before) = before.filter(|before| *before != number && *before != home) {
                self.drop_parent(before)?;
            }
            let mut home = self.files.inodes().get_unlinked(home)?;
            self.files.add_subdirectory(&mut home)?;
            write(self.space(), &home)?;
        } else if inode.links() == 0 || !self.obstacles.doubts.has(Doubts::LINKS) {
            // Else names that lead elsewhere may be its own.
            inode.set_links(1);
            write(self.space(), &inode)?;
        }
        let mut home = self.files.inodes().get_unlinked(home)?;
        let name = format!("#{number}");
        self.files.directory(&mut home).insert(name.as_bytes(), number, inode.kind())?;
        self.files.inodes().store(&home)?;
        Ok(true)
    }

    /// The directory for what has no name, which is made if there is none. Where all is mended it takes the place of what is no
    /// directory, or is one that needs a key.
    fn lost_and_found(&mut self) -> Result<InodeNo> {
        let mut root = self.files.fs().root()?;
        let name = Name::exact(LOST_AND_FOUND, None);
        let found = self.files.directory(&mut root).find_stored(&name)?;
        if let Some(found) = found {
            let is_usable = self.depth == Depth::Safe
                || (self.files.inodes().get_unlinked(found.inode))
                    .is_ok_and(|home| home.is_dir() && !home.has(InodeFlags::ENCRYPT));
            if is_usable {
                return Ok(found.inode);
            }
            self.files.directory(&mut root).remove(&found)?;
            write(self.space(), &root)?;
            self.renamed.insert(found.inode);
        }
        self.renamed.insert(InodeNo::ROOT);
        let node = NewNode::new(0o700);
        Ok(self.files.create_in(InodeNo::ROOT, LOST_AND_FOUND, &node, Body::Directory)?.number())
    }

    /// Sets the parent of a directory. Returns the one that it had before.
    pub(super) fn set_parent(&mut self, number: InodeNo, parent: InodeNo) -> Result<Option<InodeNo>> {
        let mut dir = self.files.inodes().get_unlinked(number)?;
        let before = self.files.directory(&mut dir).find(b"..")?.map(|up| up.inode);
        self.files.directory(&mut dir).set_parent(parent)?;
        write(self.space(), &dir)?;
        // Both were counted before: this name was one of the former's.
        self.renamed.extend(before.into_iter().chain([parent]));
        Ok(before)
    }

    /// Takes the name away that a directory lent another one by saying that it is in that, if it was counted there.
    fn drop_parent(&mut self, number: InodeNo) -> Result<()> {
        if self.mislinked.contains(&number) || self.obstacles.is_unsound(number) {
            return Ok(());
        }
        // What leads nowhere is a fault of its own.
        let Ok(mut dir) = self.files.inodes().get_unlinked(number) else { return Ok(()) };
        if dir.is_dir() {
            self.files.drop_subdirectory(&mut dir);
            write(self.space(), &dir)?;
        }
        Ok(())
    }
}
