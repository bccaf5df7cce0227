//! Marks on media: of in-place work that is unfinished, and of where a change of a file system is kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use super::Medium;
use crate::{AtFile, FileId, Mark, Result, journal, mark, os};

impl Medium {
    /// The mark that in-place work has left on the file, or on those that a loop device stands on. An image without one has that
    /// of the journal beside it, if work is unfinished by that.
    ///
    /// # Errors
    /// `Io`; `Unsupported` for a mark or a journal that this version does not know; `Argument` for a journal that can't be read.
    pub fn mark(&self) -> Result<Option<Mark>> {
        if let Some(mark) = self.own_mark()? {
            return Ok(Some(mark));
        }
        let file = self.file.as_ref().and_then(|file| Some((file, file.id?)));
        let journals = file.map(|(file, id)| mark::journals(id, &file.path, file.start));
        journal::first_mark(journals.unwrap_or_default()).at(&self.name)
    }

    /// The mark that in-place work has left on the files themselves, whatever lies beside them.
    ///
    /// # Errors
    /// `Io`; `Unsupported` for a mark that this version does not know.
    pub fn own_mark(&self) -> Result<Option<Mark>> {
        for (file, id) in self.all_marked()? {
            if let Some(mark) = mark::read(&file, id).at(&self.name)? {
                return Ok(Some(mark));
            }
        }
        Ok(None)
    }

    /// Marks the files that have the data, or those that a loop device stands on, before in-place work changes their first byte. The
    /// mark is on stable storage then. A disk takes none, nor does a file system without extended attributes: nothing happens.
    ///
    /// # Errors
    /// `Io`; `Argument` if other work has left a mark.
    pub fn set_mark(&self, mark: &Mark) -> Result<()> {
        self.for_marked(|file, id, start| mark::set(file, id, start, mark))
    }

    /// Refuses a mark that [`Medium::set_mark`] would refuse.
    ///
    /// # Errors
    /// Errors of [`Medium::set_mark`].
    pub fn check_mark(&self, mark: &Mark) -> Result<()> {
        self.for_marked(|file, id, start| mark::check_same(file, id, start, mark))
    }

    fn for_marked(&self, f: impl Fn(&fs::File, FileId, u64) -> Result<()>) -> Result<()> {
        let own = self.file.as_ref().and_then(|file| file.id);
        for (file, id) in self.all_marked()? {
            // The other files are whole.
            let start = if Some(id) == own { self.start() } else { 0 };
            f(&file, id, start).at(&self.name)?;
        }
        Ok(())
    }

    /// Removes the mark, on stable storage, once the work is.
    ///
    /// # Errors
    /// `Io`.
    pub fn remove_mark(&self) -> Result<()> {
        // The medium's own file comes last: by its mark the others are opened once more, if this is cut off.
        for (file, id) in self.all_marked()?.into_iter().rev() {
            mark::remove(&file, id).at(&self.name)?;
        }
        Ok(())
    }

    /// The open files with the data, whose marks are one; the medium's own comes first.
    fn all_marked(&self) -> Result<Vec<(Arc<fs::File>, FileId)>> {
        let with_id = |file: Arc<fs::File>| os::id_of(&file).map(|id| (file, id));
        self.files().into_iter().flatten().map(with_id).collect::<io::Result<_>>().at(&self.name)
    }

    /// The path of the file that keeps a change of the file system on the medium until it is complete, by whatever name the medium
    /// was opened: its file, or those that a loop device stands on, have it in an extended attribute. It may have stayed behind:
    /// only a change that is not complete gives it a meaning.
    ///
    /// # Errors
    /// `Io`.
    pub fn recovery_path(&self) -> Result<Option<PathBuf>> {
        self.marked(|file, id| mark::recovery(file, id, self.start())).map(Option::flatten)
    }

    /// The bytes of the file, wherever in it the medium lies, at which file systems begin that have such a path.
    ///
    /// # Errors
    /// `Io`.
    pub fn recovery_starts(&self) -> Result<Vec<u64>> {
        self.marked(mark::recovery_starts).map(Option::unwrap_or_default)
    }

    /// Notes where a change of the file system on the medium is kept. Where there are no extended attributes nothing happens.
    ///
    /// # Errors
    /// `Io`.
    pub fn set_recovery_path(&self, path: &Path) -> Result<()> {
        self.marked(|file, id| mark::set_recovery(file, id, self.start(), path)).map(drop)
    }

    /// Forgets where a change is kept, once it is complete.
    ///
    /// # Errors
    /// `Io`.
    pub fn remove_recovery_path(&self) -> Result<()> {
        self.marked(|file, id| mark::remove_recovery(file, id, self.start())).map(drop)
    }

    fn marked<T>(&self, f: impl FnOnce(&fs::File, FileId) -> Result<T>) -> Result<Option<T>> {
        let file = self.file.as_ref().and_then(|file| Some((file.handle.as_ref()?, file.id?)));
        file.map(|(file, id)| f(file, id)).transpose().at(&self.name)
    }
}
