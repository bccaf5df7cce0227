//! What a check collects, from any thread.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::check::CheckReport;
use crate::error::{Corrupt, Error, Result, Structure};
use crate::format::csum::{Context, Subject};
use crate::read::fs::Ext4;

/// Faults that are kept; damage beyond that is only counted.
pub(crate) const MOST_FAULTS: usize = 25_000;

/// How to make a wrong checksum right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fix {
    /// The structure's bytes hold the checksum themselves.
    InPlace {
        /// Where it begins on the device.
        offset: u64,
        /// Its size.
        len: usize,
        /// Its recipe.
        subject: Subject,
        /// What the recipe takes from around it.
        context: Context,
    },
    /// The checksum stands in the group's descriptor, which has one itself.
    Bitmap {
        /// Which of the two.
        subject: Subject,
        /// The group.
        group: u32,
        /// The new checksum.
        value: u32,
    },
}

impl Fix {
    pub fn in_place(offset: u64, len: usize, subject: Subject, context: Context) -> Fix {
        Fix::InPlace { offset, len, subject, context }
    }
}

/// Faults and counts.
#[derive(Debug, Default)]
pub(crate) struct Findings(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    faults: BTreeMap<Corrupt, Option<Fix>>,
    left_out: u64,
    checked: BTreeMap<Structure, u64>,
}

/// Counts of one worker, added to the findings now and then.
#[derive(Debug, Default)]
pub(crate) struct Counts(BTreeMap<Structure, u64>);

impl Counts {
    pub fn add(&mut self, structure: Structure, count: u64) {
        *self.0.entry(structure).or_default() += count;
    }
}

impl Findings {
    /// Notes a fault. The same one twice, as of a block that two inodes share, is one.
    pub fn fault(&self, corrupt: Corrupt, fix: Option<Fix>) {
        let mut lists = self.lists();
        if lists.faults.len() < MOST_FAULTS {
            lists.faults.insert(corrupt, fix);
        } else if !lists.faults.contains_key(&corrupt) {
            lists.left_out += 1;
        }
    }

    /// Notes damage and lets other errors pass.
    pub fn damage(&self, error: Error) -> Result<()> {
        let Some(corrupt) = Corrupt::of(&error) else { return Err(error) };
        self.fault(corrupt.clone(), None);
        Ok(())
    }

    /// Notes what a verification said. Whether it was satisfied.
    pub fn note(&self, result: Result<()>, fix: Option<Fix>) -> bool {
        let Err(error) = result else { return true };
        // Verifications do no I/O.
        if let Some(corrupt) = Corrupt::of(&error) {
            let is_checksum = matches!(corrupt.problem(), crate::Problem::Checksum { .. });
            self.fault(corrupt.clone(), fix.filter(|_| is_checksum));
        }
        false
    }

    /// Counts one structure as checked.
    pub fn count(&self, structure: Structure) {
        *self.lists().checked.entry(structure).or_default() += 1;
    }

    /// Adds a worker's counts.
    pub fn add(&self, counts: Counts) {
        let mut lists = self.lists();
        for (structure, count) in counts.0 {
            *lists.checked.entry(structure).or_default() += count;
        }
    }

    pub fn into_report(self, fs: Ext4, replayed: u32) -> CheckReport {
        let lists = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        CheckReport {
            faults: lists.faults.keys().cloned().collect(),
            faults_left_out: lists.left_out,
            checked: lists.checked,
            kind: fs.checksums().kind(),
            replayed,
            fixes: lists.faults.into_iter().collect(),
            fs,
        }
    }

    fn lists(&self) -> std::sync::MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
