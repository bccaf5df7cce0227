//! A search through all of a device: file systems, headers and tables whose beginning, or whose partition table, is lost.
//!
//! Every sector of 512 bytes is looked at, wherever partitions were. The look at a sector is a few comparisons, so a scan is as
//! fast as the device is read. What passes is read as the structure that it seems to be, and counts only if its checksum is right,
//! or its numbers fit each other where the format has no checksum. Copies of one structure say where their volume begins: those
//! that say the same belong together.
//!
//! A device can be made of forged headers. What is read for one sector, and how many structures are kept, is bounded.

mod forms;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use casemate_blockdev::{BlockDevice, Medium, type_name, u64_of, usize_of};
use casemate_providers::Work;

use self::forms::{Form, Table, candidate, read_form};
use super::{EXT, Found, GPT, LUKS, MOST_PLACES, clean, look_at};
use crate::Error;

/// All that a search came to.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Bytes of the device.
    pub bytes: u64,
    /// Bytes that can't be read, merged.
    pub unreadable: Vec<Range<u64>>,
    /// Volumes and tables in the order of their places.
    pub volumes: Vec<Volume>,
    /// Structures that were not kept, as there are too many.
    pub left_out: u64,
}

/// A file system, an encrypted volume, a table: something that one or several structures tell of.
#[derive(Clone, Debug)]
pub struct Volume {
    /// The volume as `probe` describes it, with commands' places; its start is 0 if it begins before the device.
    pub found: Found,
    /// Bytes of it that lie before the device's first one.
    pub missing_before: u64,
    /// The structures that tell of it.
    pub copies: Vec<Copy>,
    /// Copies of its superblock that lie elsewhere inside it, such as in its journal.
    pub inner_copies: u64,
    /// The first byte of the volume that this one lies inside.
    pub inside: Option<u64>,
    /// Whether something else begins at the place now, so that nothing reads this one.
    pub is_stale: bool,
}

/// A structure that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Its first byte.
    pub start: u64,
    /// Its role: `primary`, `secondary` or `backup`.
    pub role: &'static str,
    /// The file system's block that it lies in; of ext4's superblock backups.
    pub block: Option<u64>,
    /// State of its checksum: whether it is right; `None` if it has none.
    pub checksum: Option<bool>,
}

/// Looks through all of a device.
///
/// # Errors
/// `Interrupted`; what can't be read is passed over, and is said in [`Scan::unreadable`].
pub fn scan(medium: &Medium, work: &Work<'_>) -> Result<Scan, Error> {
    let device = medium.device();
    let search = Search {
        device: &device,
        forms: Mutex::default(),
        unreadable: Mutex::default(),
        left_out: AtomicU64::new(0),
        costs: [const { AtomicU64::new(0) }; 2],
    };
    let bytes = device.size();
    let look = |buffer: &mut Vec<u8>, piece: u64| {
        let start = piece * PIECE;
        let end = bytes.min(start.saturating_add(PIECE));
        search.piece(buffer, start..end)?;
        work.events.advance(end - start)
    };
    work.pool.run(bytes.div_ceil(PIECE), || vec![0; READ], look).map_err(|error| error.at(medium.name()))?;
    let unreadable = merged(search.unreadable.into_inner().unwrap_or_else(PoisonError::into_inner));
    let forms = search.forms.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut left_out = search.left_out.into_inner();
    let volumes = volumes(&device, forms, &mut left_out);
    Ok(Scan { bytes, unreadable, volumes, left_out })
}

/// Bytes that a worker takes at a time.
const PIECE: u64 = 4 << 20;
/// Bytes that are read at a time: they stay in the CPU's cache while they are looked at.
const READ: usize = 256 << 10;
/// Bytes that are read at a time where larger reads fail.
const GRANULE: usize = 4096;
/// Structures that are kept.
const MOST_FORMS: usize = 100_000;
/// Volumes that are told.
const MOST_VOLUMES: usize = 1000;
/// Ranges that can't be read which are kept apart.
const MOST_RANGES: usize = 100_000;
/// Headers that are read for a checksum over more than a sector, of each kind: 4 MiB of LUKS2, 1 MiB of a GPT.
const MOST_COSTLY: u64 = 2000;

struct Search<'a> {
    device: &'a Arc<dyn BlockDevice>,
    forms: Mutex<Vec<Form>>,
    unreadable: Mutex<Vec<Range<u64>>>,
    left_out: AtomicU64,
    /// Headers of LUKS2, and tables, that were read.
    costs: [AtomicU64; 2],
}

impl Search<'_> {
    /// Looks at the sectors of a piece.
    fn piece(&self, buffer: &mut [u8], piece: Range<u64>) -> Result<(), Error> {
        let mut at = piece.start;
        while at < piece.end {
            // Holes hold nothing. Where the device doesn't tell, or can't, all is read.
            match self.device.next_data(at) {
                Ok(Some(data)) if data.start > at => at = data.start / 512 * 512,
                Ok(None) => break,
                _ => {}
            }
            if at >= piece.end {
                break;
            }
            let len = usize_of((piece.end - at).min(u64_of(buffer.len())));
            let part = &mut buffer[..len];
            match self.device.read_at(part, at) {
                Ok(()) => self.sectors(part, at),
                Err(_) => self.granules(part, at),
            }
            at += u64_of(len);
        }
        Ok(())
    }

    /// Looks at what can be read of a part that can't be read as a whole.
    fn granules(&self, part: &mut [u8], start: u64) {
        let mut at = start;
        for granule in part.chunks_mut(GRANULE) {
            let end = at + u64_of(granule.len());
            match self.device.read_at(granule, at) {
                Ok(()) => self.sectors(granule, at),
                Err(_) => {
                    let mut ranges = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
                    let is_full = ranges.len() >= MOST_RANGES;
                    match ranges.last_mut() {
                        // Other workers look elsewhere meanwhile.
                        Some(last) if last.end == at || is_full => {
                            *last = last.start.min(at)..last.end.max(end);
                        }
                        _ => ranges.push(at..end),
                    }
                }
            }
            at = end;
        }
    }

    fn sectors(&self, part: &[u8], start: u64) {
        let (sectors, _) = part.as_chunks::<512>();
        for (sector, at) in sectors.iter().zip((start..).step_by(512)) {
            if let Some(kind) = candidate(sector) {
                self.keep(kind, sector, at);
            }
        }
    }

    #[cold]
    fn keep(&self, kind: forms::Kind, sector: &[u8; 512], at: u64) {
        if let Some(cost) = kind.cost()
            && self.costs[cost].fetch_add(1, Ordering::Relaxed) >= MOST_COSTLY
        {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Some(form) = read_form(self.device, kind, sector, at) else { return };
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        if forms.len() < MOST_FORMS {
            forms.push(form);
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Ranges in order, those that touch as one.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// The bytes of a volume, and how many structures tell of it.
type Told = (Range<i128>, usize);

/// Volumes that the structures tell of together.
fn volumes(device: &Arc<dyn BlockDevice>, forms: Vec<Form>, left_out: &mut u64) -> Vec<Volume> {
    let mut groups: BTreeMap<(i128, &'static str, String), Vec<Form>> = BTreeMap::new();
    for form in forms {
        groups.entry((form.begins, form.what, form.uuid.clone())).or_default().push(form);
    }
    // Structures that are copied into a journal, or behind each other, tell of a place that is none. What several tell counts
    // before what one does, and what begins earlier before what lies inside it.
    let mut groups: Vec<_> = groups.into_iter().collect();
    let end = |begins: i128, forms: &[Form]| {
        forms.iter().filter_map(|form| form.len).max().map_or(begins, |len| begins + i128::from(len))
    };
    let mut whole: BTreeMap<(&'static str, String), Vec<Told>> = BTreeMap::new();
    for ((begins, what, uuid), forms) in &groups {
        let range = *begins..end(*begins, forms);
        whole.entry((what, uuid.clone())).or_default().push((range, forms.len()));
    }
    let mut inner: BTreeMap<(&'static str, String), u64> = BTreeMap::new();
    groups.retain(|((begins, what, uuid), forms)| {
        let key = (*what, uuid.clone());
        // A handful is looked at: forged ones would make this long.
        let others = whole.get(&key).into_iter().flatten().take(MOST_VOLUMES);
        let is_inner = forms.len() == 1
            && others.clone().any(|(range, copies)| {
                range.start != *begins && range.contains(begins) && *copies >= forms.len()
            });
        if is_inner {
            *inner.entry(key).or_default() += 1;
        }
        !is_inner
    });
    if groups.len() > MOST_VOLUMES {
        *left_out += u64_of(groups.len() - MOST_VOLUMES);
        groups.truncate(MOST_VOLUMES);
    }
    let starts: Vec<i128> = groups.iter().map(|((begins, ..), _)| *begins).collect();
    let mut left = MOST_PLACES;
    let mut around: Vec<(i128, u64)> = Vec::new();
    let mut volumes = Vec::new();
    for (number, ((begins, what, uuid), mut forms)) in groups.into_iter().enumerate() {
        forms.sort_by_key(|form| form.at);
        let next = starts[number + 1..].iter().find(|start| **start > begins).copied();
        let told = end(begins, &forms);
        while around.last().is_some_and(|(end, _)| *end <= begins) {
            around.pop();
        }
        let inside = around.last().map(|(_, start)| *start);
        let inner_copies = inner.remove(&(what, uuid)).unwrap_or_default();
        let volume = volume(device, begins, what, &forms, next, &mut left);
        let volume = Volume { inside, inner_copies, ..volume };
        // A table is around everything.
        if told > begins && what != GPT && !volume.is_stale {
            around.push((told, volume.found.start));
        }
        volumes.push(volume);
    }
    volumes
}

fn volume(
    device: &Arc<dyn BlockDevice>,
    begins: i128,
    what: &'static str,
    forms: &[Form],
    next: Option<i128>,
    left: &mut u32,
) -> Volume {
    let size = device.size();
    let missing_before = u64::try_from(-begins).unwrap_or(0);
    let start = u64::try_from(begins).unwrap_or(0).min(size);
    let len = forms.iter().filter_map(|form| form.len).max();
    let next = next.and_then(|next| u64::try_from(next).ok()).unwrap_or(size);
    let there = match len {
        Some(len) => len.saturating_sub(missing_before).min(size - start),
        None => next.min(size).saturating_sub(start),
    };
    let look = |left: &mut u32| look_at(device, start, there, None, 0, left).ok();
    let found = match missing_before == 0 && *left > 0 && what != GPT {
        true => look(left),
        false => None,
    };
    let is_other = |found: &Found| found.what.is_some_and(|other| other != what);
    let is_stale = found.as_ref().is_some_and(is_other);
    let mut found = found.filter(|found| found.what == Some(what)).unwrap_or_else(|| {
        let mut found = Found::new(start, there, None, Some(what));
        let form = &forms[0];
        found.say("version", &form.version);
        found.say("label", &form.label);
        found.say("uuid", if what == GPT { "" } else { &form.uuid });
        found.say("bytes", len.map(|len| len.to_string()).unwrap_or_default());
        found
    });
    found.start = start;
    if let Some(table) = forms.iter().find_map(|form| form.table.as_ref()) {
        describe_table(&mut found, table, size);
    }
    let copies = forms.iter().map(|form| Copy {
        start: form.at,
        role: form.role,
        block: form.block,
        checksum: form.checksum,
    });
    let copies: Vec<Copy> = copies.collect();
    if !copies.iter().any(|copy| copy.role == "primary") && found.damage.is_empty() && !is_stale {
        let what = match what {
            EXT => "superblock",
            LUKS => "header",
            _ => "copy",
        };
        found.damage.push(format!("the primary {what} was not found"));
    }
    Volume { found, missing_before, copies, inner_copies: 0, inside: None, is_stale }
}

/// Puts the partitions of a table into what was found.
fn describe_table(found: &mut Found, Table { table, base }: &Table, size: u64) {
    found.say("table id", &table.id);
    for entry in &table.partitions {
        let start = base.saturating_add(i128::from(entry.start));
        let start = u64::try_from(start).unwrap_or(0);
        let there = size.saturating_sub(start).min(entry.len);
        let mut part = Found::new(start, there, Some(entry.number), None);
        part.say("name", clean(&entry.name));
        part.say("type", &entry.kind);
        part.say("type name", type_name(&entry.kind).unwrap_or_default());
        part.say("partition uuid", table.partition_id(entry));
        found.inside.push(part);
    }
}
