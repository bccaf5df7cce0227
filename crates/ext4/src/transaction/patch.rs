//! Changing structures together with their checksums.
//!
//! A checksum is patched from what changed: bits of bitmaps by flipping, everything else by splicing. What did
//! not change is not read, and damage in it that was there before is not covered up by a fresh checksum.

use crate::format::csum::{Checksums, Context, Recipe, Subject, recipe};
use crate::transaction::cache::Edit;

/// How checksums are brought up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patching {
    /// All of a structure again. For measurements: this is what patching competes with.
    Recompute,
    /// Bitmaps by flipping, everything else again. For measurements.
    Flip,
    /// Bitmaps by flipping, everything else by splicing.
    #[default]
    Splice,
}

/// A structure inside a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub subject: Subject,
    pub context: Context,
    /// Where in its block it begins.
    pub base: usize,
    pub len: usize,
}

/// Changes structures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patcher {
    pub sums: Checksums,
    pub patching: Patching,
}

impl Patcher {
    /// Replaces the bytes of a structure from `at` on. They hold no part of its checksum.
    pub fn patch(&self, edit: &mut Edit<'_>, part: &Part, at: usize, new: &[u8]) {
        let recipe = recipe(part.subject);
        let sum = self.spliced(edit, part, recipe, None, at, new);
        edit.write(part.base + at, new);
        self.store(edit, part, recipe, sum);
    }

    /// Replaces the first bytes of a structure by `new`, writing only what differs. The checksum's own bytes in
    /// `new` count for nothing.
    pub fn rewrite(&self, edit: &mut Edit<'_>, part: &Part, new: &mut [u8]) {
        let recipe = recipe(part.subject);
        let range = part.base..part.base + part.len;
        if self.sums.covers(part.subject) {
            let old = &edit.bytes()[range.clone()];
            for place in places(recipe, old).into_iter().flatten() {
                if let Some(new) = new.get_mut(place.clone()) {
                    new.copy_from_slice(&old[place]);
                }
            }
        }
        let mut sum = None;
        let mut at = 0;
        while let Some(run) = differing(&edit.bytes()[range.clone()][..new.len()], new, at) {
            at = run.end;
            sum = self.spliced(edit, part, recipe, sum, run.start, &new[run.clone()]);
            edit.write(part.base + run.start, &new[run]);
        }
        if at > 0 {
            self.store(edit, part, recipe, sum);
        }
    }

    /// Computes the checksum of a structure that is new, and stores it.
    pub fn seal(&self, part: &Part, block: &mut [u8]) {
        if self.sums.covers(part.subject) {
            let bytes = &mut block[part.base..part.base + part.len];
            self.sums.store(recipe(part.subject), &part.context, bytes);
        }
    }

    /// The checksum after a change that is about to be made, continuing from `sum` if there was one before.
    fn spliced(
        &self,
        edit: &Edit<'_>,
        part: &Part,
        recipe: &Recipe,
        sum: Option<u32>,
        at: usize,
        new: &[u8],
    ) -> Option<u32> {
        if self.patching != Patching::Splice || !self.sums.covers(part.subject) {
            return None;
        }
        let bytes = &edit.bytes()[part.base..part.base + part.len];
        let old = sum.or_else(|| self.sums.stored(recipe, bytes))?;
        self.sums.splice(recipe, bytes, old, at, new)
    }

    /// Stores a checksum, or what the structure has now if it is not known.
    fn store(&self, edit: &mut Edit<'_>, part: &Part, recipe: &Recipe, sum: Option<u32>) {
        if !self.sums.covers(part.subject) {
            return;
        }
        let bytes = &edit.bytes()[part.base..part.base + part.len];
        let Some(sum) = sum.or_else(|| self.sums.compute(recipe, &part.context, bytes)) else { return };
        self.write_sum(edit, part, sum);
    }

    /// Writes a checksum that is known to where it belongs.
    pub fn write_sum(&self, edit: &mut Edit<'_>, part: &Part, sum: u32) {
        let little = sum.to_le_bytes();
        let bytes = &edit.bytes()[part.base..part.base + part.len];
        let [low, high] = places(recipe(part.subject), bytes);
        if let Some(low) = low {
            edit.write(part.base + low.start, &little[..low.len()]);
        }
        if let Some(high) = high {
            edit.write(part.base + high.start, &little[2..]);
        }
    }
}

/// Where the halves of a checksum lie.
fn places(recipe: &Recipe, bytes: &[u8]) -> [Option<std::ops::Range<usize>>; 2] {
    [recipe.stored.range(bytes), recipe.stored.high_range(bytes)]
}

/// The next run of bytes from `at` on that differ. Runs with a few equal bytes between them are one.
fn differing(old: &[u8], new: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    /// A splice more costs about as much as so many bytes in one.
    const GAP: usize = 8;
    /// Equal bytes are passed over in steps of so many.
    const STEP: usize = 32;
    let mut start = at;
    while new.len() - start >= STEP && old[start..start + STEP] == new[start..start + STEP] {
        start += STEP;
    }
    let start = (start..new.len()).find(|i| old[*i] != new[*i])?;
    let mut end = start + 1;
    let mut i = end;
    while i < new.len() && i < end + GAP {
        if old[i] != new[i] {
            end = i + 1;
        }
        i += 1;
    }
    Some(start..end)
}
