//! Names that go, and what goes with the last one.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::ops::ControlFlow;

use crate::edit::Writer;
use crate::edit::create::{in_full, refuse_slash};
use crate::edit::dir::name::{Name, require_name};
use crate::edit::encrypted::stored_name;
use crate::edit::files::Files;
use crate::edit::locked::refuse_locked;
use crate::error::{Place, Result, Structure, invalid};
use crate::format::inode::{FileType, Inode, Stamp};
use crate::units::InodeNo;

/// Treatment of an inode with its last name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// It is freed with all that it has.
    Free,
    /// It waits in the list of orphans: somebody may use it.
    Keep,
}

impl Files {
    /// The names in a directory as they are stored, and which of them are directories; the first one last, so that each
    /// is found where the one before was.
    pub fn names_in(&self, number: InodeNo) -> Result<Vec<(Name, InodeNo, bool)>> {
        let dir = self.fs().inode(number)?;
        let mut names = Vec::new();
        self.fs().for_each_raw_entry(&dir, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                let is_dir = match entry.kind {
                    Some(kind) => kind == FileType::Directory,
                    None => self.fs().inode(entry.inode)?.is_dir(),
                };
                names.push((Name::exact(entry.name, entry.hash), entry.inode, is_dir));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        names.reverse();
        Ok(names)
    }

    /// Removes a name of a directory. Part of an operation.
    pub fn remove_in(&mut self, parent: InodeNo, name: &[u8]) -> Result<()> {
        self.unname(parent, name, Last::Free).map(|_| ())
    }

    /// Removes a name. Returns the inode that waits because this was its last name.
    pub fn unname(&mut self, parent: InodeNo, name: &[u8], last: Last) -> Result<Option<InodeNo>> {
        // Names of encrypted directories, as they are stored, may have any byte.
        if matches!(name, b"." | b"..") {
            require_name(name)?;
        }
        let name = stored_name(self.fs(), &self.get(parent)?, name, false)?;
        self.unname_stored(parent, &name, last)
    }

    /// Removes a name as it is stored.
    fn remove_stored(&mut self, parent: InodeNo, name: &Name) -> Result<()> {
        self.unname_stored(parent, name, Last::Free).map(|_| ())
    }

    fn unname_stored(&mut self, parent: InodeNo, name: &Name, last: Last) -> Result<Option<InodeNo>> {
        let mut dir = self.get(parent)?;
        let Some(found) = self.directory(&mut dir).find_stored(name)? else {
            let text = format!("{}: no such file", String::from_utf8_lossy(&name.bytes));
            return Err(invalid(ErrorKind::NotFound, text));
        };
        let mut inode = self.get(found.inode)?;
        refuse_locked(&dir, &name.bytes)?;
        refuse_locked(&inode, &name.bytes)?;
        if inode.is_dir() {
            if inode.number() == InodeNo::ROOT || !self.directory(&mut inode).is_empty()? {
                let text = format!("{}: the directory is not empty", String::from_utf8_lossy(&name.bytes));
                return Err(invalid(ErrorKind::DirectoryNotEmpty, text));
            }
            self.drop_subdirectory(&mut dir);
            self.forget_directory(inode.number());
        }
        self.directory(&mut dir).remove(&found)?;
        self.touch(&mut dir);
        self.inodes().store(&dir)?;
        self.drop_link(&mut inode, last)
    }

    /// Takes a name from an inode that is stored then, or freed with all that it has; its number if it waits for that.
    pub fn drop_link(&mut self, inode: &mut Inode, last: Last) -> Result<Option<InodeNo>> {
        let now = self.now();
        inode.set_time(Stamp::Changed, now);
        if !inode.is_dir() && inode.links() > 1 {
            inode.set_links(inode.links() - 1);
            return self.inodes().store(inode).map(|()| None);
        }
        match last {
            Last::Free => self.inodes().release(inode).map(|()| None),
            Last::Keep => {
                inode.set_links(0);
                self.inodes().list_orphan(inode)?;
                self.inodes().store(inode)?;
                Ok(Some(inode.number()))
            }
        }
    }
}

impl Writer {
    /// Removes a name; with the last one the file goes, and a directory if it is empty.
    ///
    /// # Errors
    /// `NotFound`, `DirectoryNotEmpty`, `PermissionDenied` for immutable and append-only files and directories.
    pub fn remove(&mut self, path: &[u8]) -> Result<()> {
        let (parent, name) = self.parent_of(path)?;
        self.operation(|files| {
            if files.names_file(parent, &name)? {
                refuse_slash(path)?;
            }
            files.remove_in(parent, &name)
        })
        .map_err(|error| in_full(path, &name, error))
    }

    /// Removes a file, or a directory with all that is in it.
    ///
    /// # Errors
    /// As for [`remove`](Writer::remove). What was removed before stays so.
    pub fn remove_tree(&mut self, path: &[u8]) -> Result<()> {
        let (parent, name) = self.parent_of(path)?;
        let inode = self.fs().resolve(path, false)?;
        if self.operation(|files| files.names_file(parent, &name))? {
            return self.remove(path);
        }
        let name = stored_name(self.fs(), &self.files().get(parent)?, &name, false)?;
        // Directories on the way down, each with the names that are still in it, the next one last.
        let mut open = vec![(inode.number(), self.files().names_in(inode.number())?)];
        let mut above = vec![(parent, name)];
        let mut entered = HashSet::from([inode.number()]);
        while let Some((number, names)) = open.last_mut() {
            let number = *number;
            self.commit_if_large(&mut ())?;
            let Some((name, child, is_dir)) = names.pop() else {
                open.pop();
                entered.remove(&number);
                if let Some((parent, name)) = above.pop() {
                    self.operation(|files| files.remove_stored(parent, &name))?;
                }
                continue;
            };
            if is_dir {
                if !entered.insert(child) {
                    let place = Place::inode(Structure::Directory, child);
                    return Err(place.malformed("lies in itself"));
                }
                open.push((child, self.files().names_in(child)?));
                above.push((number, name));
            } else {
                self.operation(|files| files.remove_stored(number, &name))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;
    use std::sync::Arc;

    use casemate_blockdev::FileDevice;
    use casemate_providers::Work;
    use casemate_testkit::{TempDir, run, tempdir, tool};

    use crate::{NewNode, PutOptions, RecoveryFile, WriteOptions, Writer};

    /// A search through all names for each of them looks sixteen times as often for four times as many.
    #[test]
    fn work_grows_with_the_names_not_with_their_square() {
        let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
        for features in ["^dir_index", "casefold"] {
            let folder = tempdir().unwrap();
            let image = folder.path().join("image");
            let mut command = Command::new(&mke2fs);
            command.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-O", features, "-N", "8000"]);
            run(command.arg(&image).arg("32M"));
            if features == "casefold" {
                // What is made below the root is like it: names that differ in case are the same.
                run(Command::new(&debugfs).args(["-w", "-R", "sif / flags 0x40080000"]).arg(&image));
            }
            grows(&folder, &image, features);
        }
    }

    fn grows(folder: &TempDir, image: &Path, features: &str) {
        let device = Arc::new(FileDevice::open_writable(image).unwrap());
        let recovery = Some(RecoveryFile::new(folder.path().join("image.redo")));
        let mut writer = Writer::open(device, WriteOptions { recovery, ..WriteOptions::default() }).unwrap();
        let mut looks = |work: &mut dyn FnMut(&mut Writer)| {
            let before = writer.files().space().transaction().looks();
            work(&mut writer);
            writer.files().space().transaction().looks() - before
        };
        let mut names = |count: usize| {
            let source = folder.path().join(count.to_string());
            std::fs::create_dir(&source).unwrap();
            for number in 0..count {
                std::fs::write(source.join(format!("{number}-{}", "n".repeat(60))), "").unwrap();
            }
            let put = PutOptions { recursive: true, ..PutOptions::new() };
            let made = looks(&mut |writer| {
                assert_eq!(writer.put(&source, b"/many", &put, &Work::default()).unwrap().files, count as u64)
            });
            let removed = looks(&mut |writer| writer.remove_tree(b"/many").unwrap());
            (made, removed)
        };
        let (few, many) = (names(1500), names(6000));
        assert!(
            many.0 < 8 * few.0 && many.1 < 8 * few.1,
            "{features}: made and removed: 1500 in {few:?}, 6000 in {many:?}"
        );
        let mut levels = |count: usize| {
            let path = "/d".repeat(count).into_bytes();
            let node = NewNode { mode: 0o755, ..NewNode::default() };
            let made = looks(&mut |writer| writer.make_directory(&path, &node, true).unwrap());
            let removed = looks(&mut |writer| writer.remove_tree(b"/d").unwrap());
            (made, removed)
        };
        let (few, many) = (levels(400), levels(1600));
        assert!(
            many.0 < 8 * few.0 && many.1 < 8 * few.1,
            "{features}: levels: 400 in {few:?}, 1600 in {many:?}"
        );
    }
}
