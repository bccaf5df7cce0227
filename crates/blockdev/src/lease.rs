//! Leases: the right to change bytes of a medium, which one writer at a time has.
//!
//! A process opens a medium once, and lays many things on clones of it. Two writers of one file system would each write what they
//! remember over what the other has written, so each takes a lease of the bytes that it changes, for as long as it remembers
//! anything of them. What is written through a layer is written below it, too: a lease of a layer's bytes is one of all that the
//! layer lies on, which the layer has for all who write through it. A layer that keeps its changes elsewhere fits what lies below it
//! as that was: it relies on those bytes, and any number of layers do so at a time, but no writer changes them meanwhile.

use std::fmt;
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::{BlockDevice, Error, Result, is_same_file};

/// The bytes of a medium, or those of a layer that lies on others.
#[derive(Default)]
struct Space {
    id: u64,
    /// The file that a medium is, if it is one.
    path: Option<PathBuf>,
    /// The bytes that are read when these are, and whether they are written when these are.
    below: Vec<Extent>,
    is_written_below: bool,
    /// Layers that write to these bytes, each with those that it lies on.
    above: Mutex<Vec<(Range<u64>, Weak<Space>)>>,
    held: Mutex<Vec<Held>>,
    /// Whether the layer remembers what was written through it; and then its lease of what lies below, from the first one that
    /// was needed until the layer is gone.
    remembers: bool,
    kept: Mutex<Option<Lease>>,
}

/// A range of bytes of a medium or of a layer. Clones of a medium share it.
#[derive(Clone)]
pub(crate) struct Extent {
    space: Arc<Space>,
    range: Range<u64>,
}

/// Bytes that are being changed, by a writer or by all who write through a layer.
#[derive(PartialEq)]
struct Held {
    writer: u64,
    range: Range<u64>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Bytes that a writer remembers something of: nobody else changes them meanwhile.
    Kept,
    /// Bytes that are written by one call, which others may do at the same time.
    Written,
    /// Bytes that must stay as they are: others may rely on them, too, and nobody changes them.
    Relied,
}

impl Kind {
    /// Whether two may have the same bytes at a time.
    fn goes_with(self, other: Kind) -> bool {
        self == other && self != Kind::Kept
    }
}

/// The right to change bytes of a medium, which nobody else has until it is dropped. The process that took it has it: a child
/// that `fork` made of that process has not.
pub struct Lease {
    taken: Vec<(Arc<Space>, Held)>,
    process: u32,
}

impl Extent {
    /// All bytes of a medium: a file, if it has a path.
    pub fn medium(path: Option<&Path>) -> Extent {
        Extent::of(Space { path: path.map(Path::to_owned), ..Space::default() })
    }

    /// All bytes of a layer that writes to these.
    pub fn over(below: &[&Extent]) -> Extent {
        let below = below.iter().map(|extent| (*extent).clone()).collect();
        Extent::of(Space { below, is_written_below: true, ..Space::default() })
    }

    /// All bytes of a layer that writes to these, and remembers something of what it has written, such as a journal.
    pub fn over_remembering(below: &[&Extent]) -> Extent {
        let below = below.iter().map(|extent| (*extent).clone()).collect();
        Extent::of(Space { below, is_written_below: true, remembers: true, ..Space::default() })
    }

    /// All bytes of a layer that reads these, and writes elsewhere.
    pub fn apart_from(&self) -> Extent {
        Extent::of(Space { below: vec![self.clone()], ..Space::default() })
    }

    fn of(space: Space) -> Extent {
        let space = Arc::new(Space { id: new_id(), ..space });
        for below in space.below.iter().filter(|_| space.is_written_below) {
            let mut above = below.space.above.lock().unwrap_or_else(PoisonError::into_inner);
            above.retain(|(_, layer)| layer.strong_count() > 0);
            above.push((below.range.clone(), Arc::downgrade(&space)));
        }
        Extent { space, range: 0..u64::MAX }
    }

    /// Whether a layer that writes to some of these bytes is still there: somebody may write through it at any time.
    pub fn has_layer(&self) -> bool {
        let above = self.space.above.lock().unwrap_or_else(PoisonError::into_inner);
        above.iter().any(|(range, layer)| {
            layer.strong_count() > 0 && range.start < self.range.end && self.range.start < range.end
        })
    }

    /// Some of the bytes; `range` counts from the first one.
    pub fn part(&self, range: Range<u64>) -> Extent {
        let place = |at: u64| self.range.start.saturating_add(at).min(self.range.end);
        Extent { space: Arc::clone(&self.space), range: place(range.start)..place(range.end) }
    }

    /// Whether what is written here changes what is read from `source`, as far as both are of one file or device.
    pub fn changes(&self, source: &Extent) -> bool {
        let (own, other) = (&self.space, &source.space);
        let is_here = match (&own.path, &other.path) {
            _ if Arc::ptr_eq(own, other) => self.crosses(source),
            (Some(one), Some(two)) => is_same_file(one, two) && self.crosses(source),
            _ => false,
        };
        is_here
            || other.below.iter().any(|below| self.changes(below))
            || (own.is_written_below && own.below.iter().any(|below| below.changes(source)))
    }

    fn crosses(&self, other: &Extent) -> bool {
        self.range.start < other.range.end && other.range.start < self.range.end
    }
}

impl Lease {
    /// The right to change some bytes for a writer that remembers something of them.
    pub(crate) fn keep(extents: &[Extent]) -> Result<Lease> {
        Lease::take(extents, Kind::Kept)
    }

    /// The right to write some bytes at once.
    pub(crate) fn write(extent: &Extent) -> Result<Lease> {
        Lease::take(std::slice::from_ref(extent), Kind::Written)
    }

    fn empty() -> Lease {
        Lease { taken: Vec::new(), process: std::process::id() }
    }

    /// The right to find some bytes as they are for as long as the lease is there.
    pub(crate) fn rely(extent: &Extent) -> Result<Lease> {
        Lease::take(std::slice::from_ref(extent), Kind::Relied)
    }

    /// Refuses a process that got the lease by `fork`: what it remembers of the bytes and what its parent does are two writers.
    fn check_process(&self) -> Result<()> {
        check_process(self.process)
    }

    fn take(extents: &[Extent], kind: Kind) -> Result<Lease> {
        let (writer, mut lease) = (new_id(), Lease::empty());
        // What was taken goes back with the lease.
        extents.iter().try_for_each(|extent| lease.add(writer, extent, kind)).map(|()| lease)
    }

    fn add(&mut self, writer: u64, Extent { space, range }: &Extent, kind: Kind) -> Result<()> {
        let mut held = space.held.lock().unwrap_or_else(PoisonError::into_inner);
        let is_in_the_way = |other: &Held| {
            other.writer != writer
                && !kind.goes_with(other.kind)
                && other.range.start < range.end
                && range.start < other.range.end
        };
        if let Some(other) = held.iter().find(|other| is_in_the_way(other)) {
            return Err(Error::busy(match other.kind {
                Kind::Kept | Kind::Written => {
                    "another writer of this process is changing it, and must be closed first"
                }
                Kind::Relied => {
                    "an overlay is open on it, whose changes fit it as it is; close the overlay first"
                }
            }));
        }
        let new = || Held { writer, range: range.clone(), kind };
        held.push(new());
        drop(held);
        self.taken.push((Arc::clone(space), new()));
        if kind == Kind::Relied {
            // A layer that keeps its changes elsewhere shows what lies below, too.
            return space.below.iter().try_for_each(|below| self.add(space.id, below, kind));
        }
        if !space.is_written_below {
            return Ok(());
        }
        if !space.remembers {
            return space.below.iter().try_for_each(|below| self.add(space.id, below, kind));
        }
        let mut kept = space.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = &*kept {
            kept.check_process()?;
        } else {
            let mut lease = Lease::empty();
            space.below.iter().try_for_each(|below| lease.add(space.id, below, Kind::Kept))?;
            *kept = Some(lease);
        }
        Ok(())
    }
}

/// Refuses every process but the one of this number: what was opened for changes belongs to the process that has opened it, and
/// a `fork` makes a second one of it.
///
/// # Errors
/// [`Error::is_busy`].
pub fn check_process(process: u32) -> Result<()> {
    match std::process::id() == process {
        true => Ok(()),
        false => {
            let text = format!(
                "it was opened for changes by process {process}, before a fork; only that process changes it"
            );
            Err(Error::busy(text))
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        for (space, mine) in mem::take(&mut self.taken) {
            let mut held = space.held.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = held.iter().position(|other| *other == mine) {
                held.swap_remove(at);
            }
        }
    }
}

/// A device that a lease goes with: the lease ends when nobody has the device any more.
pub(crate) struct Leased {
    pub device: Arc<dyn BlockDevice>,
    pub lease: Lease,
}

impl BlockDevice for Leased {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&*self.device)
    }

    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.device.read_at(buf, offset)
    }

    fn is_unwritten(&self) -> Result<bool> {
        self.device.is_unwritten()
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.lease.check_process()?;
        self.device.write_at(buf, offset)
    }

    fn write_from(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.lease.check_process()?;
        self.device.write_from(buf, offset)
    }

    fn write_zeroes(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
        self.lease.check_process()?;
        self.device.write_zeroes(offset, len, may_punch)
    }

    fn zero_fast(&self, offset: u64, len: u64, may_punch: bool) -> Result<()> {
        self.lease.check_process()?;
        self.device.zero_fast(offset, len, may_punch)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.lease.check_process()?;
        self.device.discard(offset, len)
    }

    fn can_discard(&self) -> bool {
        self.device.can_discard()
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn forget_cached(&self, offset: u64, len: u64) -> Result<()> {
        self.device.forget_cached(offset, len)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        self.device.next_data(offset)
    }
}

/// A number that nothing else has.
fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_one_writer_at_a_time() {
        let disk = Extent::medium(None);
        let (one, two) = (disk.part(0..100), disk.part(100..200));
        let first = Lease::keep(std::slice::from_ref(&one)).unwrap();
        let second = Lease::keep(std::slice::from_ref(&two)).unwrap();
        for refused in [
            Lease::keep(std::slice::from_ref(&one)),
            Lease::keep(std::slice::from_ref(&disk)),
            Lease::write(&one.part(99..100)),
        ] {
            assert!(refused.err().unwrap().is_busy());
        }
        drop(first);
        let writes = [Lease::write(&one).unwrap(), Lease::write(&one).unwrap()];
        // What could not be had as a whole leaves nothing.
        for _ in 0..2 {
            assert!(Lease::keep(&[disk.part(300..400), one.clone()]).is_err());
        }
        drop((writes, second));
        Lease::keep(&[disk, one, two]).unwrap();
    }

    #[test]
    fn who_writes_through_a_layer_writes_below_it() {
        let disk = Extent::medium(None);
        let part = disk.part(1000..2000);
        let (layer, twin) = (Extent::over(&[&part]), Extent::over(&[&part]));
        let first = Lease::keep(&[layer.part(0..10)]).unwrap();
        let second = Lease::keep(&[layer.part(10..20)]).unwrap();
        drop(first);
        for refused in [&twin, &part, &disk.part(1999..3000), &layer] {
            assert!(Lease::keep(std::slice::from_ref(refused)).is_err());
        }
        let beside = Lease::keep(&[disk.part(0..1000), disk.part(2000..3000)]).unwrap();
        drop(second);
        Lease::keep(std::slice::from_ref(&twin)).unwrap();
        drop(beside);
        Lease::keep(&[disk]).unwrap();
    }

    #[test]
    fn what_is_written_is_known_to_change_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["file", "hard", "other"].map(|name| folder.path().join(name));
        std::fs::write(&paths[0], "").unwrap();
        std::fs::write(&paths[2], "").unwrap();
        std::fs::hard_link(&paths[0], &paths[1]).unwrap();
        let [file, hard, other] = paths.each_ref().map(|path| Extent::medium(Some(path)));
        assert!(file.changes(&file) && file.changes(&hard) && !file.changes(&other));
        assert!(file.part(0..10).changes(&hard.part(9..20)) && !file.part(0..10).changes(&hard.part(10..20)));
        let (layer, trial) = (Extent::over(&[&hard]), hard.apart_from());
        assert!(layer.changes(&file) && file.changes(&layer) && file.changes(&trial));
        assert!(!trial.changes(&file) && !layer.changes(&other));
        assert!(!Extent::medium(None).changes(&Extent::medium(None)));
    }

    #[test]
    fn bytes_that_are_relied_on_have_no_writer() {
        let disk = Extent::medium(None);
        let (part, layer, remembering) =
            (disk.part(100..200), Extent::over(&[&disk]), Extent::over_remembering(&[&disk]));
        let relied = [Lease::rely(&part).unwrap(), Lease::rely(&layer.part(150..160)).unwrap()];
        let all = [&disk, &layer, &remembering];
        for refused in all
            .into_iter()
            .flat_map(|extent| [Lease::write(extent), Lease::keep(std::slice::from_ref(extent))])
        {
            let error = refused.err().unwrap();
            assert!(error.is_busy() && error.to_string().contains("overlay"), "{error}");
        }
        drop(relied);
        // Those who write come first.
        for writer in [&disk, &layer, &remembering] {
            let lease = Lease::keep(std::slice::from_ref(writer)).unwrap();
            assert!(Lease::rely(&part).err().unwrap().is_busy());
            drop(lease);
        }
        // What was written through a layer that remembers it may not have come to the disk yet; it is seen through the layer.
        assert!(Lease::rely(&part).is_err());
        let relied = Lease::rely(&remembering).unwrap();
        assert!(Lease::write(&remembering).is_err());
        // An overlay of an overlay: changes go to the lower one, which shows the disk.
        drop((relied, remembering));
        let overlay = disk.apart_from();
        let relied = Lease::rely(&overlay).unwrap();
        assert!(Lease::write(&overlay).is_err() && Lease::write(&disk).is_err());
        drop(relied);
        Lease::write(&disk).unwrap();
    }

    #[test]
    fn a_layer_that_remembers_keeps_what_it_lies_on() {
        let disk = Extent::medium(None);
        let (layer, twin) = (Extent::over_remembering(&[&disk]), Extent::over_remembering(&[&disk]));
        drop(Lease::write(&layer.part(0..1)).unwrap());
        assert!(Lease::write(&twin.part(5..6)).is_err() && Lease::write(&disk).is_err());
        drop(Lease::write(&layer.part(1..2)).unwrap());
        drop(layer);
        Lease::write(&twin).unwrap();
    }
}
