//! Files and names as a disk may have them when the power is back.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{Hash, Hasher};

use super::Files;
use crate::Rng;

/// Bytes that a disk writes completely or not at all.
const SECTOR: u64 = 512;

/// The changes of a command in a folder, and its flushes.
#[derive(Debug)]
pub struct Recording {
    /// Names and contents before; files are known by their places in the list.
    names: BTreeMap<String, usize>,
    files: Vec<Vec<u8>>,
    /// In the order in which they began.
    steps: Vec<Step>,
    /// How often each call came that did any of it.
    calls: BTreeMap<String, usize>,
}

/// Files as a loss of power has left them.
#[derive(Clone, Debug)]
pub struct State {
    /// The files by their names.
    pub files: Files,
    /// Whether the command had come to its end, so that its user may rely on what it said.
    pub ended: bool,
    /// When the power failed, and what is there of that which was not flushed.
    pub what: String,
}

#[derive(Debug)]
pub(super) struct Step {
    /// The moments between which it happened.
    pub begun: usize,
    pub ended: usize,
    pub what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Change(Change),
    /// A flush of a file, or of the folder.
    Sync {
        file: Option<usize>,
        done: bool,
    },
}

#[derive(Debug)]
pub(super) enum Change {
    Write {
        file: usize,
        offset: u64,
        bytes: Vec<u8>,
    },
    Size {
        file: usize,
        size: u64,
    },
    /// Names that come, go or lead to another file, all at once.
    Names(Vec<(String, Option<usize>)>),
}

impl Change {
    /// The file whose flush makes it stable; `None` for the folder.
    fn file(&self) -> Option<usize> {
        match self {
            Change::Write { file, .. } | Change::Size { file, .. } => Some(*file),
            Change::Names(_) => None,
        }
    }
}

/// How certain it is that a change is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certainty {
    Stable,
    /// The next flush makes it stable.
    Waiting,
    /// A flush failed: nobody knows, and nobody will write it again.
    Doubtful,
}

/// Bytes of a write, and where they belong.
type Part<'a> = (u64, &'a [u8]);

/// How much is there of what was not flushed.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Everything,
    Nothing,
    /// Of a hundred changes so many, some of them torn.
    Some(u64),
}

impl Recording {
    pub(super) fn new(names: BTreeMap<String, usize>, files: Vec<Vec<u8>>) -> Recording {
        Recording { names, files, steps: Vec::new(), calls: BTreeMap::new() }
    }

    pub(super) fn add_file(&mut self) {
        self.files.push(Vec::new());
    }

    pub(super) fn note(&mut self, call: &str, step: Step) {
        *self.calls.entry(call.to_owned()).or_default() += 1;
        self.steps.push(step);
    }

    /// Everything as it is if the power does not fail.
    pub fn end(&self) -> State {
        let mut disk = Disk::new(self);
        disk.run_to(usize::MAX);
        disk.state(Kept::Everything, &mut Rng::new(0)).1
    }

    /// The system calls that changed or flushed something, and how often each came.
    pub fn calls(&self) -> &BTreeMap<String, usize> {
        &self.calls
    }

    /// Gives `look` so many different states that a loss of power can leave, or as many as are found. Moments take
    /// turns; what is there of that which was not flushed is drawn.
    pub fn states(&self, rng: &mut Rng, wanted: usize, mut look: impl FnMut(&mut Rng, State)) {
        let mut moments: Vec<usize> = self.steps.iter().flat_map(|step| [step.begun, step.ended]).collect();
        // Before the first and behind the last.
        moments.extend([0, usize::MAX]);
        moments.sort_unstable();
        moments.dedup();
        // Where more is uncertain there is more to look at.
        let mut disk = Disk::new(self);
        let weights: Vec<usize> = moments
            .iter()
            .map(|moment| {
                disk.run_to(*moment);
                1 + disk.open.len() + if *moment == usize::MAX { moments.len() / 20 } else { 0 }
            })
            .collect();
        let all: usize = weights.iter().sum();
        // Parts of states add up until they are whole ones, so that few states come from all moments.
        let mut sum = rng.below(all as u64) as usize;
        let counts = weights.into_iter().map(|weight| {
            sum += weight * wanted;
            let count = sum / all;
            sum %= all;
            count
        });
        let mut disk = Disk::new(self);
        let mut seen = HashSet::new();
        for (moment, count) in moments.into_iter().zip(counts) {
            disk.run_to(moment);
            let mut found = 0;
            // Where little is uncertain there are few different states.
            for number in 0..4 * count {
                if found == count {
                    break;
                }
                let kept = match (number, rng.below(8)) {
                    (0, 0..4) | (1.., 0) => Kept::Everything,
                    (0, 4..) | (1.., 1) => Kept::Nothing,
                    (1.., 2..4) => Kept::Some(90),
                    (1.., 4..6) => Kept::Some(50),
                    (1.., 6..) => Kept::Some(10),
                };
                let (choices, state) = disk.state(kept, rng);
                // Behind the end something else is asked than before it.
                if seen.insert((choices, state.ended)) {
                    found += 1;
                    look(rng, state);
                }
            }
        }
    }
}

/// A disk at one moment: what is stable, and what is not.
struct Disk<'a> {
    recording: &'a Recording,
    /// The stable state, up to the first change that is not.
    names: BTreeMap<String, usize>,
    files: Vec<Vec<u8>>,
    /// Changes behind that, in their order.
    open: Vec<(&'a Change, Certainty, usize)>,
    /// How many steps have begun, and flushes that have begun and not ended.
    begun: usize,
    flushes: Vec<&'a Step>,
    moment: usize,
    applied: usize,
}

impl<'a> Disk<'a> {
    fn new(recording: &'a Recording) -> Disk<'a> {
        let (names, files) = (recording.names.clone(), recording.files.clone());
        let (open, flushes) = (Vec::new(), Vec::new());
        Disk { recording, names, files, open, begun: 0, flushes, moment: 0, applied: 0 }
    }

    /// Goes on to a moment.
    fn run_to(&mut self, moment: usize) {
        self.moment = moment;
        while let Some(step) = self.recording.steps.get(self.begun).filter(|step| step.begun <= moment) {
            self.end_flushes(step.begun);
            match &step.what {
                What::Change(change) => self.open.push((change, Certainty::Waiting, step.ended)),
                What::Sync { .. } => self.flushes.push(step),
            }
            self.begun += 1;
        }
        self.end_flushes(moment);
        let stable = self.open.iter().take_while(|(_, certainty, _)| *certainty == Certainty::Stable).count();
        self.applied += stable;
        for (change, ..) in self.open.drain(..stable) {
            match change {
                Change::Write { file, offset, bytes } => put(&mut self.files[*file], *offset, bytes),
                Change::Size { file, size } => self.files[*file].resize(*size as usize, 0),
                Change::Names(set) => rename(&mut self.names, set),
            }
        }
    }

    fn end_flushes(&mut self, moment: usize) {
        let (ended, running): (Vec<_>, Vec<_>) =
            self.flushes.drain(..).partition(|step| step.ended <= moment);
        self.flushes = running;
        for step in ended {
            let What::Sync { file, done } = step.what else { continue };
            for (change, certainty, ended) in &mut self.open {
                if change.file() != file || *certainty != Certainty::Waiting {
                    continue;
                }
                if !done {
                    *certainty = Certainty::Doubtful;
                } else if *ended < step.begun {
                    *certainty = Certainty::Stable;
                }
            }
        }
    }

    /// A state that the disk may be in, and a number for what was drawn.
    fn state(&self, kept: Kept, rng: &mut Rng) -> (u64, State) {
        let mut choices = DefaultHasher::new();
        self.applied.hash(&mut choices);
        let mut files = self.files.clone();
        let mut sizes: Vec<(u64, u64)> =
            files.iter().map(|bytes| (bytes.len() as u64, bytes.len() as u64)).collect();
        // Parts of writes that are not on the disk by themselves, but are if a later one of the same sector is.
        let mut missing: HashMap<(usize, u64), Vec<Part<'_>>> = HashMap::new();
        let mut lost = Vec::new();
        let mut draw = |percent: u64| rng.below(100) < percent;
        let (mut drawn, mut there) = (0, 0);
        for (number, (change, certainty, _)) in self.open.iter().enumerate() {
            let (whole, torn) = match (certainty, kept) {
                (Certainty::Stable, _) | (_, Kept::Everything) => (true, false),
                (_, Kept::Nothing) => (false, false),
                (_, Kept::Some(percent)) => (draw(percent), draw(10)),
            };
            drawn += usize::from(*certainty != Certainty::Stable);
            there += usize::from(*certainty != Certainty::Stable && whole && !torn);
            (whole, torn).hash(&mut choices);
            match change {
                Change::Write { file, offset, bytes } => {
                    let end = offset + bytes.len() as u64;
                    let mut at = *offset;
                    let mut any = false;
                    while at < end {
                        let next = end.min((at / SECTOR + 1) * SECTOR);
                        let part = &bytes[(at - offset) as usize..(next - offset) as usize];
                        let is_there = if torn { draw(50) } else { whole };
                        torn.then_some(is_there).hash(&mut choices);
                        let place = (*file, at / SECTOR);
                        if is_there {
                            for (at, part) in missing.remove(&place).unwrap_or_default() {
                                put(&mut files[*file], at, part);
                            }
                            put(&mut files[*file], at, part);
                        } else {
                            missing.entry(place).or_default().push((at, part));
                        }
                        any |= is_there;
                        at = next;
                    }
                    let (live, found) = &mut sizes[*file];
                    if end > *live {
                        *live = end;
                        // A write that makes a file longer may be there without the new size.
                        if any && (!torn || draw(50)) {
                            *found = end;
                        }
                    }
                }
                Change::Size { file, size } => {
                    let (live, found) = &mut sizes[*file];
                    *live = *size;
                    if whole {
                        *found = *size;
                    }
                }
                Change::Names(_) if !whole => lost.push(number),
                Change::Names(_) => {}
            }
        }
        // Most file systems keep the order of names, some do not.
        let in_order = draw(70);
        in_order.hash(&mut choices);
        let first_lost = lost.first().copied().unwrap_or(usize::MAX);
        let mut names = self.names.clone();
        for (number, (change, certainty, _)) in self.open.iter().enumerate() {
            let Change::Names(set) = change else { continue };
            let is_there = *certainty == Certainty::Stable
                || !lost.contains(&number) && (!in_order || number < first_lost);
            if is_there {
                rename(&mut names, set);
            }
        }
        for (bytes, (_, size)) in files.iter_mut().zip(sizes) {
            bytes.resize(size as usize, 0);
        }
        let ended = self.moment == usize::MAX;
        let when = if ended { "behind the end".to_owned() } else { format!("at line {}", self.moment) };
        let what =
            format!("{when}, with {there} of {drawn} changes that were not flushed, and parts of others");
        let take = |id: usize| files[id].clone();
        let files = names.into_iter().map(|(name, id)| (name, take(id))).collect();
        (choices.finish(), State { files, ended, what })
    }
}

fn put(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let range = offset as usize..offset as usize + bytes.len();
    if file.len() < range.end {
        file.resize(range.end, 0);
    }
    file[range].copy_from_slice(bytes);
}

fn rename(names: &mut BTreeMap<String, usize>, set: &[(String, Option<usize>)]) {
    for (name, file) in set {
        match file {
            Some(file) => names.insert(name.clone(), *file),
            None => names.remove(name),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(moment: usize, offset: u64, byte: u8) -> Step {
        let change = Change::Write { file: 0, offset, bytes: vec![byte; 512] };
        Step { begun: moment, ended: moment, what: What::Change(change) }
    }

    fn sync(moment: usize, file: Option<usize>, done: bool) -> Step {
        Step { begun: moment, ended: moment, what: What::Sync { file, done } }
    }

    fn names(moment: usize, set: &[(&str, Option<usize>)]) -> Step {
        let set = set.iter().map(|(name, file)| ((*name).to_owned(), *file)).collect();
        Step { begun: moment, ended: moment, what: What::Change(Change::Names(set)) }
    }

    /// The different states behind all steps: the first bytes of a file's sectors, or nothing where there is no file.
    fn ends(start: usize, steps: Vec<Step>, name: &str) -> Vec<Option<Vec<u8>>> {
        let mut recording = Recording::new([("file".to_owned(), 0)].into(), vec![vec![0; start]]);
        steps.into_iter().for_each(|step| recording.note("", step));
        let mut found = Vec::new();
        recording.states(&mut Rng::new(1), 2000, |_, state| {
            let file = state.files.get(name);
            let sectors = file.map(|bytes| bytes.chunks(512).map(|sector| sector[0]).collect());
            found.extend(state.ended.then_some(sectors));
        });
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn what_was_flushed_is_there_and_the_rest_in_any_part() {
        let found = ends(
            1024,
            vec![write(1, 0, 1), sync(2, Some(0), true), write(3, 0, 2), write(4, 512, 3)],
            "file",
        );
        assert_eq!(found, [[1, 0], [1, 3], [2, 0], [2, 3]].map(|bytes| Some(bytes.to_vec())));
        // Another file's flush, or one that began before the write had ended, makes nothing stable.
        for mut other in [sync(2, Some(1), true), sync(2, None, true), sync(0, Some(0), true)] {
            other.ended = 5;
            let steps = match other.begun {
                0 => vec![other, write(1, 0, 1)],
                _ => vec![write(1, 0, 1), other],
            };
            assert_eq!(ends(512, steps, "file"), [Some(vec![0]), Some(vec![1])]);
        }
    }

    #[test]
    fn a_sector_is_as_it_was_once() {
        let half = |moment, offset, byte| {
            let change = Change::Write { file: 0, offset, bytes: vec![byte; 256] };
            Step { begun: moment, ended: moment, what: What::Change(change) }
        };
        let mut recording = Recording::new([("file".to_owned(), 0)].into(), vec![vec![0; 512]]);
        recording.note("", half(1, 0, 1));
        recording.note("", half(2, 256, 2));
        recording.states(&mut Rng::new(1), 500, |_, state| {
            let file = &state.files["file"];
            assert!([(0, 0), (1, 0), (1, 2)].contains(&(file[0], file[256])), "{}", state.what);
        });
    }

    #[test]
    fn a_flush_that_failed_leaves_doubts_for_ever() {
        let steps = vec![write(1, 0, 1), sync(2, Some(0), false), write(3, 512, 2), sync(4, Some(0), true)];
        assert_eq!(ends(1024, steps, "file"), [Some(vec![0, 2]), Some(vec![1, 2])]);
    }

    #[test]
    fn names_wait_for_the_folder() {
        let make = |sync_at: Option<usize>| {
            let mut steps = vec![
                names(1, &[("new", Some(0)), ("file", None)]),
                sync(2, Some(0), true),
                names(4, &[("new", None), ("last", Some(0))]),
            ];
            steps.extend(sync_at.map(|moment| sync(moment, None, true)));
            steps.sort_by_key(|step| step.begun);
            steps
        };
        let there = Some(vec![0]);
        assert_eq!(ends(512, make(None), "file"), [None, there.clone()]);
        assert_eq!(ends(512, make(Some(3)), "file"), [None]);
        assert_eq!(ends(512, make(Some(3)), "last"), [None, there.clone()]);
        assert_eq!(ends(512, make(Some(5)), "last"), [there]);
    }

    #[test]
    fn a_longer_file_may_lack_its_size_or_its_bytes() {
        let found = ends(512, vec![write(1, 512, 1), write(2, 1024, 2)], "file");
        assert!(found.contains(&Some(vec![0])) && found.contains(&Some(vec![0, 0, 2])), "{found:?}");
        let steps = vec![write(1, 512, 1), write(2, 1024, 2), sync(3, Some(0), true)];
        assert_eq!(ends(512, steps, "file"), [Some(vec![0, 1, 2])]);
    }
}
