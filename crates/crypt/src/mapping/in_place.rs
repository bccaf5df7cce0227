//! Images that are transformed where they lie, with a journal beside them.

use std::path::{Path, PathBuf};
use std::{fs, io};

use casemate_blockdev::{
    AtFile, BlockDevice, Contents, FileDevice, InPlaceWork, Mark, Medium, MemoryDevice, Named, OutputFile,
    Overlay, Window, fill_random, journal, sync_name, u64_of, usize_of,
};
use casemate_providers::{Direction, Work};

use super::Mapping;
use crate::in_place::{self, DEFAULT_HOT_ZONE, Job, Marks};
use crate::{Advice, Code, Error, Params};

/// How an image is transformed where it lies.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InPlaceOptions {
    /// The journal's path; beside the image if `None`. It holds pieces of what the image becomes.
    pub journal: Option<PathBuf>,
    /// Whether the work that the journal tells of goes on. Without, there must be no journal.
    pub resume: bool,
    /// Bytes that go to the journal at a time: whole sectors, at most [`MAX_HOT_ZONE`](crate::in_place::MAX_HOT_ZONE).
    pub hot_zone: u64,
    /// Whether nothing is written: all is checked, and all of the image that is to be transformed is read.
    pub dry_run: bool,
    /// Whether what [`Mapping::cut`] names may be cut, or become noise: a file system of which one
    /// part is transformed, and the rest is not.
    pub allow_cut: bool,
    /// Knowledge of what the plain data hold, for work on a part of them. Without it none is begun.
    pub contents: Option<Contents>,
}

impl Default for InPlaceOptions {
    fn default() -> InPlaceOptions {
        InPlaceOptions {
            journal: None,
            resume: false,
            hot_zone: DEFAULT_HOT_ZONE,
            dry_run: false,
            allow_cut: false,
            contents: None,
        }
    }
}

/// The journal that the image's mark names, if it is there.
fn marked_journal(image: &Medium) -> Result<Option<PathBuf>, Error> {
    let mark = image.mark()?.filter(|mark| mark.work != InPlaceWork::Commit);
    Ok(mark.map(|mark| mark.journal).filter(|journal| journal.exists()))
}

/// Marks of an image whose work has this journal.
struct ImageMarks<'a> {
    image: &'a Medium,
    direction: Direction,
    journal: &'a Path,
    /// Whether none is set.
    dry_run: bool,
}

impl ImageMarks<'_> {
    fn mark(&self, id: [u8; 32]) -> Mark {
        let work = match self.direction {
            Direction::Encrypt => InPlaceWork::Encryption,
            Direction::Decrypt => InPlaceWork::Decryption,
        };
        Mark { work, id, journal: self.journal.to_owned() }
    }
}

impl Marks for ImageMarks<'_> {
    fn is_marked(&self) -> Result<bool, Error> {
        Ok(self.image.own_mark()?.is_some())
    }

    fn check(&self, id: [u8; 32]) -> Result<(), Error> {
        self.image.check_mark(&self.mark(id))
    }

    fn set(&self, id: [u8; 32]) -> Result<(), Error> {
        if self.dry_run {
            return self.check(id);
        }
        let journal = fs::canonicalize(self.journal).at(self.journal.display())?;
        self.image.set_mark(&Mark { journal, ..self.mark(id) })
    }
}

impl Mapping {
    /// Transforms the device on top of `image` where it lies, with a journal beside it; see [`crate::in_place`].
    /// After the work the journal is removed. The listener hears if work was stopped that can go on, or a key may be wrong.
    ///
    /// # Errors
    /// `Argument` for what can't be, another key or image than the journal tells of, a journal that is there or missing, what would be
    /// [cut](Mapping::cut), and those of [`Medium::check_partitions`]: nothing is changed then. `Io`, [`Error::is_busy`] if the journal
    /// is in use; otherwise the work can be resumed, if there is a journal.
    pub fn transform_in_place(
        &self,
        direction: Direction,
        image: &Medium,
        options: &InPlaceOptions,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        if let Some(mark) = image.own_mark()?.filter(|mark| mark.work == InPlaceWork::Commit) {
            return Err(mark.refusal()).at(image.name());
        }
        // Work that was begun is completed where it was begun.
        if !options.resume {
            image.check_partitions()?;
            image.check_partitions_in(self.offset.saturating_mul(512)..image.top().size())?;
            image.check_table_at_end(self.offset.saturating_mul(512))?;
            let cut = match options.allow_cut {
                true => None,
                false => self.cut(direction, image, options.contents, &work.providers)?,
            };
            if let Some(text) = cut {
                return Err(Error::argument(text).at(image.name()));
            }
        }
        let journal = match &options.journal {
            Some(journal) => journal.clone(),
            None => marked_journal(image)?.or_else(|| image.beside(journal::SUFFIX)).ok_or_else(|| {
                let text = "a journal beside it would not survive a power failure";
                Error::argument(format!("{}: {text}", image.name())).advise(Advice::Journal)
            })?,
        };
        let done = self.in_place(direction, image, &journal, options, work);
        let stopped = done.as_ref().is_err_and(|error| error.io_kind().is_some() && !error.is_busy());
        if stopped && !options.dry_run && journal::is_journal(&journal) {
            work.events.advise(&format!("{}: stopped", image.name()), Advice::Resume);
        }
        done
    }

    fn in_place(
        &self,
        direction: Direction,
        image: &Medium,
        journal: &Path,
        &InPlaceOptions { resume, hot_zone, dry_run, .. }: &InPlaceOptions,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        if image.is_stored_at(journal) {
            let text = format!("{}: the journal can't be the image itself", image.name());
            return Err(Error::argument(text));
        }
        let _lease = if dry_run { None } else { Some(image.lease()?) };
        let named = image.named();
        let size = self.data_size(named.size()).at(image.name())?;
        let data = Window::<&dyn BlockDevice>::new(&named, self.offset * 512, size).at(image.name())?;
        // Key and image aside, this is all that decides what the bytes become.
        let Params { spec, sector_size, iv_large_sectors, iv_offset, .. } = &self.params;
        let mapping = format!("{spec} {sector_size} {iv_large_sectors} {iv_offset} {}", self.offset);
        let key = self.key.expose();
        let job = Job { cipher: &self.cipher, sha256: &self.sha256, direction, key, mapping: &mapping, work };
        let begin = |log: &dyn BlockDevice| {
            let mut salt = [0; 32];
            fill_random(&mut salt)?;
            in_place::begin(&job, &data, log, hot_zone, salt)
        };
        let open =
            || -> Result<Box<dyn BlockDevice>, Error> { Ok(Box::new(FileDevice::open_exclusive(journal)?)) };
        let is_own = image.beside(journal::SUFFIX).is_some_and(|own| own == journal);
        let is_left = is_own && !resume && journal::is_finished(journal);
        if is_left && in_place::is_done(&job, &data, &*open().at(journal.display())?).at(journal.display())? {
            let text = format!(
                "{}: this was done before, and only the journal was left: going on removes that; to do all of it once more, remove \
                 the journal first",
                journal.display()
            );
            return Err(Error::coded(Code::Unfinished, text).advise(Advice::Resume));
        }
        let log = match (resume, dry_run) {
            (true, _) => open(),
            // What finished work has left under the image's own name is replaced.
            (false, _) if journal.exists() && !is_left => {
                Err(io::Error::from(io::ErrorKind::AlreadyExists).into())
            }
            // Whether it could be made.
            (false, true) => OutputFile::create(journal).map(|_| -> Box<dyn BlockDevice> {
                Box::new(MemoryDevice::new(vec![0; usize_of(in_place::RECORDS)]))
            }),
            (false, false) => {
                // It has its name when it can be resumed. When decrypting it holds plaintext.
                let new = OutputFile::create(journal).at(journal.display())?;
                new.narrow(0o600);
                begin(&Named::new(journal.display(), new.device()))?;
                new.commit(true).at(journal.display())?;
                open()
            }
        };
        let log = log.map_err(|error| match error.code() {
            Code::Exists if !journal::is_journal(journal) => {
                let text = "has the name of the journal, and is another file: name a file that is not there";
                Error::coded(Code::Exists, format!("{}: {text}", journal.display()))
            }
            Code::Exists => {
                let text = format!("{}: the journal exists: earlier work was stopped", journal.display());
                Error::coded(Code::Unfinished, text).advise(Advice::Resume)
            }
            Code::NotFound if resume && matches!(image.own_mark(), Ok(Some(_))) => Error::argument(format!(
                "{}: no journal, and the mark of {} says that its work was not completed: give the journal's new name if it was \
                 moved; if work on a copy of the image has completed that and removed it, go on with the copy",
                journal.display(),
                image.name()
            )),
            Code::NotFound if resume && let Ok(Some(mark)) = image.mark() => Error::argument(format!(
                "{}: no journal, and {} beside {} says that work on that was not completed: name that one",
                journal.display(),
                mark.journal.display(),
                image.name()
            )),
            Code::NotFound if resume => Error::argument(format!(
                "{}: no journal, so there is nothing to resume: the work was never begun, or it is done",
                journal.display()
            )),
            _ => error.at(journal.display()),
        })?;
        let log = Named::new(journal.display(), log);
        // What the work reads again of what it wrote lies at the beginning: the journal's records, and what tells a wrong key.
        let (log, changed): (Box<dyn BlockDevice>, Box<dyn BlockDevice + '_>) = match dry_run {
            true => (Box::new(Beginning(Overlay::new(log))), Box::new(Beginning(Overlay::new(&data)))),
            false => (Box::new(log), Box::new(&data)),
        };
        if !resume && dry_run {
            begin(&log)?;
        }
        let was_finished = resume && journal::is_finished(journal);
        let marks = ImageMarks { image, direction, journal, dry_run };
        in_place::resume(&job, &changed, &log, &marks)?;
        if was_finished {
            let text =
                "the work was finished before, and nothing was written to it: only the journal was left";
            work.events.note(&format!("{}: {text}", image.name()));
        }
        self.note_noise(direction, &changed, image, work);
        if dry_run {
            return Ok(());
        }
        // The journal says that the work is finished. While the mark is there the journal is: who finds the one needs the other.
        image.remove_mark()?;
        fs::remove_file(journal).map_err(Error::from).and_then(|()| sync_name(journal)).at(journal.display())
    }
}

/// A device as it seems after writes, of which those to its beginning are kept, in memory, and the others forgotten.
struct Beginning<D>(Overlay<D>);

/// How much that is.
const BEGINNING: u64 = 1 << 20;

impl<D: BlockDevice> BlockDevice for Beginning<D> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.0)
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), Error> {
        let room = BEGINNING.min(self.size()).saturating_sub(offset);
        self.0.write_at(&buf[..usize_of(room.min(u64_of(buf.len())))], offset.min(self.size()))
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }
}
