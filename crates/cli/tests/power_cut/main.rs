//! Power that fails while a command changes something, at any moment, and again while what it left is recovered.
//!
//! Each command runs once under strace. From what it did come states that a loss of power can leave
//! ([`casemate_testkit::power`]); each is recovered, and must then be as before the command or as after it, and as after
//! it once the command has said that it is done. Some are recovered under strace too, and cut again; and the command is
//! run with an error at one of its calls, and cut after that.
//!
//! To add a format, write a driver: it sets up files, says which command changes them and which one recovers, and
//! judges a state.
#![allow(clippy::disallowed_macros)] // Tests say what they skip and measure.

mod blocks;
mod checksums;
mod ext4;
mod in_place;
mod luks;
mod overlay;
mod reencrypt;
mod repair;
mod verity;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use casemate_testkit::power::{Fault, Files, Recording, State, read_folder, record, write_folder};
use casemate_testkit::{Rng, TempDir, slow_tests, tempdir};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// How many times as many states the slow tests look at.
const SLOW: usize = 40;

/// Outcome of the recovery of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Before,
    After,
    /// Part of what is done in steps, each of them whole.
    Between,
}

/// Recovers a state and says what it is then, or what is wrong.
type Judge<'a> = Box<dyn FnMut(&mut Rng, &State) -> Result<Outcome, String> + 'a>;

/// Commands that work on the files of one folder, one after the other.
struct Session {
    name: String,
    seed: u64,
    rng: Rng,
    /// Folder with the files whose writes are cut off.
    folder: TempDir,
    outcomes: BTreeMap<Outcome, usize>,
}

impl Session {
    fn new(name: &str) -> Session {
        let seed = std::env::var("CASEMATE_POWER_SEED").map_or(1, |seed| seed.parse().expect("a number"));
        let mut rng = Rng::new(seed);
        // Other sessions draw other numbers.
        name.bytes().for_each(|byte| rng = Rng::new(rng.below(1 << 32) << 8 | u64::from(byte)));
        Session { name: name.to_owned(), seed, rng, folder: scratch(), outcomes: BTreeMap::new() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a command that must succeed, without cutting anything.
    fn run(&self, line: &str) -> String {
        casemate_testkit::run(&mut self.command(line))
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(CASEMATE);
        command.args(line.split_whitespace()).current_dir(self.path()).env("SOURCE_DATE_EPOCH", "1700000000");
        command
    }

    /// Looks at so many states of what a command does (forty times as many in slow tests), and goes on with what it has
    /// done. `recover` is the command that a user runs afterwards. `false` after a skip.
    fn cut<'a>(
        &mut self,
        states: usize,
        line: &str,
        recover: &str,
        judge: impl FnOnce(&Files, &Files) -> Judge<'a>,
    ) -> bool {
        let wanted = if slow_tests() { states * SLOW } else { states };
        let before = read_folder(self.path());
        let Some((recording, output)) = record(&self.command(line), self.path(), None) else { return false };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {line}: {said}", self.name);
        let after = recording.end().files;
        let mut judge = judge(&before, &after);
        let (first, rest) = (wanted * 3 / 5, wanted / 5);
        let mut again = Vec::new();
        self.look(&recording, first, true, &format!("`{line}`"), &mut judge, &mut again);
        // Each run of strace is good for some states.
        let runs = rest.div_ceil(if slow_tests() { 100 } else { 12 });
        for _ in 0..runs {
            let state = &again[self.rng.below(again.len() as u64) as usize];
            write_folder(self.path(), &state.files);
            let Some((recording, _)) = record(&self.command(recover), self.path(), None) else {
                return false;
            };
            let what = format!("`{line}` cut {}, then `{recover}`", state.what);
            // What was cut off may have been dropped.
            self.look(&recording, rest / runs, false, &what, &mut judge, &mut Vec::new());
        }
        for _ in 0..runs {
            let fault = self.fault(recording.calls());
            write_folder(self.path(), &before);
            let Some((recording, output)) = record(&self.command(line), self.path(), Some(fault)) else {
                return false;
            };
            let what = format!("`{line}` with {fault:?}");
            self.look(&recording, rest / runs, output.status.success(), &what, &mut judge, &mut Vec::new());
        }
        drop(judge);
        write_folder(self.path(), &after);
        true
    }

    /// One of the calls fails.
    fn fault(&mut self, calls: &BTreeMap<String, usize>) -> Fault {
        const FAULTS: [(&str, &str); 9] = [
            ("pwrite64", "EIO"),
            ("pwrite64", "ENOSPC"),
            ("fdatasync", "EIO"),
            ("fsync", "EIO"),
            ("openat", "ENOSPC"),
            ("ftruncate", "ENOSPC"),
            ("rename", "EIO"),
            ("unlink", "EIO"),
            ("fallocate", "ENOSPC"),
        ];
        let possible: Vec<_> = FAULTS.iter().filter(|(call, _)| calls.contains_key(*call)).collect();
        let (call, error) = possible[self.rng.below(possible.len() as u64) as usize];
        let number = match *call {
            // Most open nothing that is changed.
            "openat" => 1 + self.rng.below(40) as usize,
            _ => 1 + self.rng.below(calls[*call] as u64) as usize,
        };
        Fault { call, error, number }
    }

    /// Judges states of one run; some of them are kept in `again`.
    fn look(
        &mut self,
        recording: &Recording,
        wanted: usize,
        succeeded: bool,
        what: &str,
        judge: &mut Judge<'_>,
        again: &mut Vec<State>,
    ) {
        let (name, seed, outcomes) = (&self.name, self.seed, &mut self.outcomes);
        recording.states(&mut self.rng, wanted, |rng, mut state| {
            state.ended &= succeeded;
            let fail = |why: &str| {
                let kept = tempdir().unwrap().keep();
                write_folder(&kept, &state.files);
                let place = kept.display();
                panic!("{name}, seed {seed}: {what} cut {}: {why}; the state is in {place}", state.what);
            };
            let outcome = judge(rng, &state).unwrap_or_else(|why| fail(&why));
            if state.ended && outcome != Outcome::After {
                fail(&format!("it had said that it was done, and what is there is {outcome:?}"));
            }
            *outcomes.entry(outcome).or_default() += 1;
            let place = rng.below(20) as usize;
            if again.len() < 20 {
                again.push(state);
            } else if rng.below(10) == 0 {
                again[place] = state;
            }
        });
    }

    /// Prints how many states were looked at; fewer than `least` are a mistake of the test.
    fn end(self, least: usize) {
        // So many more are wanted than a command has: no state is looked at twice.
        let least = if slow_tests() { least * SLOW / 4 } else { least };
        let count: usize = self.outcomes.values().sum();
        println!("power cut: {}: {count} states: {:?}", self.name, self.outcomes);
        let Session { name, outcomes, .. } = self;
        assert!(count >= least, "{name}: {count} states, and {least} were wanted");
        assert!(outcomes.len() > 1 && outcomes.contains_key(&Outcome::After), "{name}: {outcomes:?}");
    }
}

/// A folder in memory, where there is one: nothing here needs a disk.
fn scratch() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| tempdir()).unwrap()
}

/// Opens what tools that other tests start may hold locks of for a moment, between fork and exec.
fn retry<T>(open: impl Fn() -> casemate::Result<T>) -> Result<T, String> {
    loop {
        match open() {
            Err(error) if error.is_busy() => {}
            result => return result.map_err(|error| error.to_string()),
        }
    }
}
