//! Contents of many files at once: small ones that lie side by side come with one read of the device.
//!
//! First it is found where each file lies. What lies in one piece, and is stored as it is read, goes by its place on the
//! device: runs of such files are read together, and their contents handed out as parts of what was read. All else (files in
//! several pieces or with holes, inline, encrypted or large ones, those with fs-verity, and whatever is damaged) is read by
//! itself, as [`FileSystem::read_inode`] reads it, which also has the error to tell.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::{u64_of, usize_of};
use casemate_ext4::{FileType, Inode, InodeFlags, InodeNo};
use casemate_providers::Work;

use super::{FileSystem, MOST_READ, VerityPolicy};
use crate::{Error, ErrorKind};

/// Contents of files that were read together, each with its place in the list of those that were asked for.
pub type Handful<'a> = Vec<(usize, Result<Cow<'a, [u8]>, Error>)>;

/// Bytes that are read together at most, and so of a file that is. They stay in a core's own cache until they are handed out.
const SPAN: usize = 256 << 10;

/// Bytes between two files that are read with them: half a block at each file's end, and what a block or two of metadata has.
const GAP: u64 = 16 << 10;

/// Bytes for which another thread is worth its start.
const SHARE: u64 = 1 << 20;

/// Parts that were read and wait to be handed out at most: with fewer a thread waits where it could read on, and waking it
/// takes as long as reading some files.
const WAITING: usize = 8;

/// Bytes of a file of which no more than one waits.
const LARGE: u64 = 4 << 20;

/// Inodes that a thread looks at before it asks for more.
const CHUNK: usize = 1024;

/// A file that is to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    /// Its place in the list of files.
    pub index: usize,
    pub number: InodeNo,
    /// Bytes that it says it has; none if it can't be read.
    pub size: u64,
    /// The byte of the device where it begins, if it lies there in one piece.
    pub offset: Option<u64>,
}

impl Planned {
    /// The byte behind the last one, of a file in one piece.
    fn end(&self, offset: u64) -> u64 {
        offset + self.size
    }
}

/// Buffers for spans, which are used again: new memory costs as much as what is read into it.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_else(|| vec![0; SPAN])
    }

    fn put(&self, buffer: Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

/// Result of one read of a thread.
enum Part {
    /// Bytes from the first of these files to the end of the last.
    Span(Range<usize>, Vec<u8>),
    /// One file.
    Alone(usize, Result<Vec<u8>, Error>),
    /// Nothing of these files, which must be read one by one.
    Failed(Range<usize>),
    /// A result without a file.
    Other,
}

impl FileSystem {
    /// The contents of many files by their inodes' numbers, read by all threads. Results come on the thread that called, in
    /// handfuls and in any order, each with its place in `numbers`; one file's error keeps no other from being read. What is held
    /// in memory is bounded: some MiB, or for each thread and besides a file that is larger.
    ///
    /// # Errors
    /// Errors of `results`, or of the listener, which end the work.
    pub fn read_many(
        &self,
        numbers: &[InodeNo],
        work: &Work<'_>,
        results: impl FnMut(Handful<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Inodes beside each other are read together.
        let mut order: Vec<(InodeNo, usize)> = numbers.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let mut files = Vec::with_capacity(order.len());
        let plan = |chunk: u64| {
            let chunk = order.chunks(CHUNK).nth(usize_of(chunk)).unwrap_or_default();
            let plan = |(number, index): &(InodeNo, usize)| self.plan(*index, *number);
            chunk.iter().map(plan).collect::<Result<Vec<_>, _>>()
        };
        work.pool.feed(u64_of(order.len().div_ceil(CHUNK)), WAITING, plan, |planned| {
            files.extend(planned);
            work.events.advance(0)
        })?;
        self.read_planned(files, work, &Buffers::default(), &|| Ok(()), results)
    }

    /// How a file is read best.
    pub(super) fn plan(&self, index: usize, number: InodeNo) -> Result<Planned, Error> {
        let Ok(inode) = of_one(self.inode(number))? else {
            return Ok(Planned { index, number, size: 0, offset: None });
        };
        // What is wrong with its map is told once it is read.
        let offset = of_one(self.offset_of_whole(&inode))?.unwrap_or_default();
        Ok(Planned { index, number, size: inode.size(), offset })
    }

    /// Where on the device a file lies, if it is a small one in one piece that is stored as it is read.
    fn offset_of_whole(&self, inode: &Inode) -> Result<Option<u64>, Error> {
        let fs = self.inodes();
        let as_it_is = inode.kind() == FileType::Regular
            && !inode.has(InodeFlags::INLINE_DATA)
            && !inode.has(InodeFlags::ENCRYPT)
            && match self.verity() {
                VerityPolicy::Require => false,
                VerityPolicy::Check => !inode.has(InodeFlags::VERITY),
                VerityPolicy::Ignore => true,
            };
        if !as_it_is || !(1..=u64_of(SPAN)).contains(&inode.size()) {
            return Ok(None);
        }
        let mut runs = [None; 2];
        let next = |run| {
            let [first, second] = &mut runs;
            let (slot, more) = match first {
                None => (first, ControlFlow::Continue(())),
                Some(_) => (second, ControlFlow::Break(())),
            };
            *slot = Some(run);
            Ok(more)
        };
        fs.mappings(inode, 0, next)?;
        let [Some(run), None] = runs else { return Ok(None) };
        let is_whole = run.logical == 0
            && !run.unwritten
            && run.len.saturating_mul(fs.layout().block_size.into()) >= inode.size();
        Ok(is_whole.then(|| fs.layout().offset(run.physical)))
    }

    /// Reads files, and does something else `meanwhile`.
    pub(super) fn read_planned(
        &self,
        mut files: Vec<Planned>,
        work: &Work<'_>,
        buffers: &Buffers,
        meanwhile: &(dyn Fn() -> Result<(), Error> + Sync),
        mut results: impl FnMut(Handful<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut hand_out = |handful: Handful<'_>| {
            let bytes = handful.iter().filter_map(|(_, contents)| contents.as_ref().ok());
            work.events.advance(bytes.map(|bytes| u64_of(bytes.len())).sum())?;
            results(handful)
        };
        let mut others: &[&(dyn Fn() -> Result<(), Error> + Sync)] = &[meanwhile];
        while !files.is_empty() || !others.is_empty() {
            // Files that are read by themselves, and so take longest, come first.
            files.sort_unstable_by_key(|file| file.offset);
            let spans = spans(&files);
            let bytes: u64 = files.iter().map(|file| file.size.min(MOST_READ)).sum();
            let mut failed = Vec::new();
            let read = |piece: u64| {
                let piece = usize_of(piece);
                if let Some(other) = others.get(piece) {
                    return other().map(|()| Part::Other);
                }
                let span = spans[piece - others.len()].clone();
                let Some(start) = files[span.start].offset else {
                    let Planned { index, number, .. } = files[span.start];
                    let contents = self.inode(number).and_then(|inode| self.read_inode(&inode));
                    return Ok(Part::Alone(index, of_one(contents)?));
                };
                let mut buffer = buffers.take();
                match of_one(self.read_span(&files[span.clone()], start, &mut buffer))? {
                    Ok(()) => Ok(Part::Span(span, buffer)),
                    Err(_) => Ok(Part::Failed(span)),
                }
            };
            let is_large = files.iter().any(|file| (LARGE..=MOST_READ).contains(&file.size));
            let waiting = if is_large { 1 } else { WAITING };
            let pool =
                work.pool.at_most(usize::try_from(bytes / SHARE).map_or(usize::MAX, |threads| threads + 1));
            pool.feed(u64_of(others.len() + spans.len()), waiting, read, |part| match part {
                Part::Span(span, bytes) => {
                    let files = &files[span];
                    let start = files[0].offset.unwrap_or_default();
                    let part = |file: &Planned| {
                        let from = usize_of(file.offset.unwrap_or(start) - start);
                        (file.index, Ok(Cow::Borrowed(&bytes[from..from + usize_of(file.size)])))
                    };
                    hand_out(files.iter().map(part).collect())?;
                    buffers.put(bytes);
                    Ok(())
                }
                Part::Alone(index, contents) => hand_out(vec![(index, contents.map(Cow::Owned))]),
                Part::Failed(span) => {
                    failed.extend(files[span].iter().map(|file| Planned { offset: None, ..*file }));
                    Ok(())
                }
                Part::Other => Ok(()),
            })?;
            (files, others) = (failed, &[]);
        }
        Ok(())
    }

    /// Reads from `start` to the end of the last file.
    fn read_span(&self, files: &[Planned], start: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let ends = files.iter().filter_map(|file| Some(file.end(file.offset?)));
        let end = ends.max().unwrap_or(start);
        self.inodes().device().read_at(&mut buffer[..usize_of(end - start)], start)
    }
}

/// Separates the error of one file from one that ends all work.
pub(super) fn of_one<T>(result: Result<T, Error>) -> Result<Result<T, Error>, Error> {
    match result {
        Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
        result => Ok(result),
    }
}

/// Files in the order of their offsets, as those that are read together.
fn spans(files: &[Planned]) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let mut start = 0;
    while start < files.len() {
        let end = start + span(&files[start..]);
        spans.push(start..end);
        start = end;
    }
    spans
}

/// How many files from the first on are read together.
fn span(files: &[Planned]) -> usize {
    let Some(Planned { offset: Some(start), .. }) = files.first() else { return 1 };
    let mut end = *start;
    let fits = |file: &&Planned| {
        let Some(offset) = file.offset else { return false };
        let next = file.end(offset).max(end);
        let fits = offset <= end + GAP && next - start <= u64_of(SPAN);
        end = if fits { next } else { end };
        fits
    };
    files.iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_an_end() {
        let file =
            |(offset, size): (Option<u64>, u64)| Planned { index: 0, number: InodeNo::ROOT, size, offset };
        let count = |files: &[(Option<u64>, u64)]| span(&files.iter().copied().map(file).collect::<Vec<_>>());
        let most = SPAN as u64;
        for (files, expected) in [
            (&[(None, 5), (None, 5)][..], 1),
            (&[(Some(0), 5), (Some(4096), 5), (Some(8192), 5)], 3),
            (&[(Some(0), 5), (Some(5 + GAP), 5), (Some(11 + 2 * GAP), 5)], 2),
            (&[(Some(0), most), (Some(4096), 5), (Some(most - 5), 5), (Some(most - 4), 5)], 3),
            (&[(Some(4096), most), (Some(4096 + most), 1)], 1),
            (&[(Some(4096), 9), (Some(4096), most), (Some(4096), 7)], 3),
        ] {
            assert_eq!(count(files), expected, "{files:?}");
        }
    }
}
