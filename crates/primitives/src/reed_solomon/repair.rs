//! Many damaged codewords side by side.
//!
//! Damage comes in blocks: where one codeword is wrong its neighbours are wrong in the same rows. So one
//! codeword is solved the slow way, and what it says about *where* the errors are is tried on all the others
//! at once, as erasures: their values are then linear in the remainders, and the parity that the erasures
//! leave over says for each codeword whether that was the whole truth.

use super::decode::{Errors, erasure_matrices, solve, syndromes};
use super::{CODEWORD, ReedSolomon, RsError, transpose};

/// Message rows given to the encoder at once.
const BATCH: usize = 32;

/// Below this many damaged codewords the slow way is the faster one.
const FEW: usize = 16;

/// The result of [`ReedSolomon::repair`]: symbols that were changed, codewords that were not repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// The rows in which symbols were changed, ascending; rows from `message_symbols` on are parity.
    pub rows: Vec<usize>,
    /// The number of symbols that were changed.
    pub symbols: usize,
    /// The codewords (columns) with more damage than the code can repair, ascending. They are unchanged.
    pub unrepaired: Vec<usize>,
}

impl ReedSolomon {
    /// Puts message rows and stored parity together, as [`ReedSolomon::repair`] takes them: 255 rows.
    ///
    /// `parity` holds the codewords' parity one after the other; its length gives the width. `message` holds
    /// the rows one after the other; missing ones are zeros.
    ///
    /// # Panics
    /// When `parity` is not `roots` bytes a codeword or `message` is longer than `message_symbols` rows.
    pub fn join(&self, message: &[u8], parity: &[u8]) -> Vec<u8> {
        assert!(parity.len().is_multiple_of(self.roots()), "parity is roots bytes a codeword");
        let width = parity.len() / self.roots();
        let mut codewords = vec![0; CODEWORD * width];
        let (rows, parity_rows) = codewords.split_at_mut(self.message_symbols() * width);
        assert!(message.len() <= rows.len(), "more rows than the message has");
        rows[..message.len()].copy_from_slice(message);
        transpose::to_rows(self.roots(), parity, parity_rows);
        codewords
    }

    /// Repairs codewords side by side: 255 rows of `width` symbols each, the parity rows last.
    ///
    /// `erasures` are rows known to be wrong. A codeword with t wrong symbols beside e erasures is repaired
    /// when 2*t + e <= roots. With more damage it is reported, or, as with every Reed-Solomon code, taken
    /// for another codeword (of random damage about one in (roots/2)! is; with `roots` erasures all of it is,
    /// as no parity is left to see it): compare the outcome with a digest.
    ///
    /// # Errors
    /// [`RsError::Erasure`] and [`RsError::TooManyErasures`]; nothing is changed then.
    ///
    /// # Panics
    /// When `codewords` has not 255 times `width` bytes.
    pub fn repair(&self, codewords: &mut [u8], width: usize, erasures: &[usize]) -> Result<Repair, RsError> {
        assert_eq!(codewords.len(), CODEWORD * width, "a codeword has 255 rows");
        for (i, row) in erasures.iter().enumerate() {
            if *row >= CODEWORD || erasures[..i].contains(row) {
                return Err(RsError::Erasure(*row));
            }
        }
        if erasures.len() > self.roots() {
            return Err(RsError::TooManyErasures(erasures.len()));
        }
        if width == 0 {
            return Ok(Repair::default());
        }
        let erasures: Vec<usize> = erasures.iter().map(|row| exponent(*row)).collect();
        let remainders = self.remainders(codewords, width);
        let mut work = Work { code: self, codewords, width, remainders, changed: [0; CODEWORD] };
        let unrepaired = work.run(&erasures);
        let rows = (0..CODEWORD).filter(|row| work.changed[*row] != 0).collect();
        Ok(Repair { rows, symbols: work.changed.iter().sum(), unrepaired })
    }

    /// Each codeword's remainder modulo the generator, row by row, highest coefficient first.
    fn remainders(&self, codewords: &[u8], width: usize) -> Vec<u8> {
        let (message, stored) = codewords.split_at(self.message_symbols() * width);
        let rows: Vec<&[u8]> = message.chunks_exact(width).collect();
        let mut encoder = self.encoder(width);
        rows.chunks(BATCH).for_each(|rows| encoder.feed(rows));
        let mut parity = vec![0; stored.len()];
        encoder.finish(&mut parity);
        let mut remainders = vec![0; stored.len()];
        transpose::to_rows(self.roots(), &parity, &mut remainders);
        add(&mut remainders, stored);
        remainders
    }
}

/// A repair under way.
struct Work<'a> {
    code: &'a ReedSolomon,
    codewords: &'a mut [u8],
    width: usize,
    /// `roots` rows; a column of zeros is a codeword without (further) errors.
    remainders: Vec<u8>,
    /// How many symbols of each row were changed.
    changed: [usize; CODEWORD],
}

impl Work<'_> {
    /// Repairs what can be and gives the columns that can't.
    fn run(&mut self, erasures: &[usize]) -> Vec<usize> {
        if !erasures.is_empty() {
            self.apply_everywhere(erasures);
        }
        let mut unrepaired = Vec::new();
        let mut damaged = self.damaged(0);
        // How many codewords to solve one by one before the next attempt at all of them: grows while the
        // attempts repair little, as with errors strewn at random.
        let (mut wait, mut pause) = (0, 1);
        let mut next = 0;
        while let Some(column) = damaged.get(next).copied() {
            next += 1;
            let Some(errors) = solve(&syndromes(&self.remainder(column)), self.code.roots(), erasures) else {
                unrepaired.push(column);
                continue;
            };
            self.apply(column, &errors);
            let left = damaged.len() - next;
            if wait > 0 || left < FEW {
                wait -= wait.min(1);
                continue;
            }
            self.apply_everywhere(&errors.exponents);
            damaged = self.damaged(column + 1);
            next = 0;
            pause = if left - damaged.len() < FEW { usize::min(2 * pause, 1024) } else { 1 };
            wait = if pause == 1 { 0 } else { pause };
        }
        unrepaired
    }

    /// The columns from `first` on whose remainder is not zero.
    fn damaged(&self, first: usize) -> Vec<usize> {
        let mut any = vec![0; self.width];
        for row in self.remainders.chunks_exact(self.width) {
            any.iter_mut().zip(row).for_each(|(any, symbol)| *any |= symbol);
        }
        (first..self.width).filter(|column| any[*column] != 0).collect()
    }

    /// The remainder of one codeword.
    fn remainder(&self, column: usize) -> Vec<u8> {
        self.remainders[column..].iter().step_by(self.width).copied().collect()
    }

    /// Repairs one codeword.
    fn apply(&mut self, column: usize, errors: &Errors) {
        for (e, value) in errors.exponents.iter().zip(&errors.values) {
            let row = row(*e);
            self.codewords[row * self.width + column] ^= value;
            self.changed[row] += usize::from(*value != 0);
        }
        self.remainders[column..].iter_mut().step_by(self.width).for_each(|symbol| *symbol = 0);
    }

    /// Repairs every codeword all of whose errors are at `exponents`.
    fn apply_everywhere(&mut self, exponents: &[usize]) {
        let (values, checks) = erasure_matrices(self.code.roots(), exponents);
        // 0xff for a codeword whose damage is all at `exponents`, 0 for another one.
        let mut explained = vec![0xff; self.width];
        let mut line_sum = vec![0; self.width];
        for line in &checks {
            self.times_remainders(line, &mut line_sum);
            explained.iter_mut().zip(&line_sum).for_each(|(e, sum)| *e &= if *sum == 0 { 0xff } else { 0 });
        }
        for (e, line) in exponents.iter().zip(&values) {
            self.times_remainders(line, &mut line_sum);
            line_sum.iter_mut().zip(&explained).for_each(|(value, e)| *value &= e);
            let row = row(*e);
            add(&mut self.codewords[row * self.width..][..self.width], &line_sum);
            self.changed[row] += line_sum.iter().filter(|value| **value != 0).count();
        }
        for row in self.remainders.chunks_exact_mut(self.width) {
            row.iter_mut().zip(&explained).for_each(|(symbol, e)| *symbol &= !e);
        }
    }

    /// `sum` = the remainders' rows, each times its factor in `line`.
    fn times_remainders(&self, line: &[u8], sum: &mut [u8]) {
        sum.fill(0);
        for (factor, row) in line.iter().zip(self.remainders.chunks_exact(self.width)) {
            self.code.multiply_add(*factor, row, sum);
        }
    }
}

/// The power of x that belongs to a row.
fn exponent(row: usize) -> usize {
    CODEWORD - 1 - row
}

/// The row that belongs to a power of x.
fn row(exponent: usize) -> usize {
    CODEWORD - 1 - exponent
}

fn add(dst: &mut [u8], src: &[u8]) {
    dst.iter_mut().zip(src).for_each(|(dst, src)| *dst ^= src);
}
