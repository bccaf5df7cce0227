//! Reed-Solomon codes RS(255, 255 - roots) over GF(256), for many codewords side by side.
//!
//! This is the code of dm-verity's forward error correction (kernel `Documentation/admin-guide/
//! device-mapper/verity.rst`, `drivers/md/dm-verity-fec.c`): field polynomial 0x11d, 2 to 24 parity symbols,
//! the first root of the generator is alpha^0, systematic. [`ReedSolomon`] is the handle.
//!
//! Codewords lie side by side, as they do on a disk: a *row* holds one symbol of each, so row j is message
//! block j of a round, and column b of all rows together is one codeword.
//!
//! ```
//! use casemate_primitives::{Cpu, reed_solomon::ReedSolomon};
//!
//! let code = ReedSolomon::new(Cpu::detect(), 2)?;
//! let message: Vec<Vec<u8>> = (0..253).map(|j| vec![j as u8; 4096]).collect();
//! let rows: Vec<&[u8]> = message.iter().map(Vec::as_slice).collect();
//!
//! let mut encoder = code.encoder(4096);
//! encoder.feed(&rows[..100]);
//! encoder.feed(&rows[100..]);
//! let mut parity = vec![0; 2 * 4096];
//! encoder.finish(&mut parity);
//!
//! // One damaged row is found and repaired, wherever it is.
//! let mut codewords = code.join(&message.concat(), &parity);
//! codewords[17 * 4096..][..4096].fill(0);
//! let repair = code.repair(&mut codewords, 4096, &[])?;
//! assert_eq!((repair.rows, repair.unrepaired.len()), (vec![17], 0));
//! assert_eq!(codewords[17 * 4096], 17);
//! # Ok::<(), casemate_primitives::reed_solomon::RsError>(())
//! ```
//!
//! Nothing here is secret, so back ends may use tables.

use std::fmt;

use crate::backend;
use crate::cpu::{Cpu, Feature};

#[cfg(target_arch = "aarch64")]
mod aarch64_neon;
mod code;
mod decode;
mod field;
mod portable;
mod repair;
#[cfg(test)]
mod tests;
mod transpose;
#[cfg(target_arch = "x86_64")]
mod x86_64_avx2;
#[cfg(target_arch = "x86_64")]
mod x86_64_gfni;

pub use repair::Repair;

use code::{Code, MAX_ROOTS};

/// Symbols in a codeword: message and parity together.
pub const CODEWORD: usize = field::ORDER;

/// A Reed-Solomon code, with its constants and the back end that computes it.
pub struct ReedSolomon {
    backend: &'static Backend,
    code: Code,
}

impl ReedSolomon {
    /// The code with `roots` parity symbols, on the fastest back end that `cpu` can run.
    ///
    /// # Errors
    /// [`RsError::Roots`] unless `roots` is 2 to 24.
    pub fn new(cpu: Cpu, roots: usize) -> Result<ReedSolomon, RsError> {
        ReedSolomon::with_backend(backend::best(BACKENDS, cpu), roots)
    }

    /// The code with `roots` parity symbols on every back end that `cpu` can run, fastest first.
    ///
    /// # Errors
    /// [`RsError::Roots`] unless `roots` is 2 to 24.
    pub fn available(cpu: Cpu, roots: usize) -> Result<Vec<ReedSolomon>, RsError> {
        backend::available(BACKENDS, cpu).map(|backend| ReedSolomon::with_backend(backend, roots)).collect()
    }

    fn with_backend(backend: &'static Backend, roots: usize) -> Result<ReedSolomon, RsError> {
        if !(2..=MAX_ROOTS).contains(&roots) {
            return Err(RsError::Roots(roots));
        }
        Ok(ReedSolomon { backend, code: Code::new(roots) })
    }

    /// The back end's name.
    pub fn backend(&self) -> &'static str {
        self.backend.name
    }

    /// How many parity symbols a codeword has.
    pub fn roots(&self) -> usize {
        self.code.roots
    }

    /// How many message symbols a codeword has: 255 - roots.
    pub fn message_symbols(&self) -> usize {
        self.code.message_symbols()
    }

    /// Starts the parity of `width` codewords side by side.
    pub fn encoder(&self, width: usize) -> Encoder<'_> {
        let state = vec![Block([0; 64]); width.div_ceil(64) * self.code.roots];
        Encoder { owner: self, width, fed: 0, state }
    }

    fn absorb(&self, state: &mut [Block], rows: &[&[u8]], first: usize) {
        // SAFETY: a handle is made only for a CPU that has its back end's features.
        unsafe { (self.backend.run.absorb)(&self.code, state, rows, first) }
    }

    fn finish(&self, state: &mut [Block], out: &mut [u8]) {
        // SAFETY: a handle is made only for a CPU that has its back end's features.
        unsafe { (self.backend.run.finish)(&self.code, state, out) }
    }

    /// Adds `factor * src` to `dst`, symbol by symbol.
    fn multiply_add(&self, factor: u8, src: &[u8], dst: &mut [u8]) {
        assert_eq!(src.len(), dst.len(), "rows must have the same width");
        // SAFETY: a handle is made only for a CPU that has its back end's features.
        unsafe { (self.backend.run.multiply_add)(factor, src, dst) }
    }
}

impl fmt::Debug for ReedSolomon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReedSolomon({} roots, {})", self.code.roots, self.backend.name)
    }
}

/// The encoder of codewords side by side: it computes their parity while their message rows arrive.
///
/// The registers of all codewords, `roots` bytes each, are read and written once a call, so feed at least
/// 16 rows at a time where speed matters, and choose a width whose registers and rows stay in the cache.
pub struct Encoder<'a> {
    owner: &'a ReedSolomon,
    width: usize,
    fed: usize,
    /// Strips of 64 codewords; a strip is `roots` blocks, whose layout is the back end's own.
    state: Vec<Block>,
}

impl Encoder<'_> {
    /// How many codewords lie side by side: the length of every row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Takes the next rows of the message, in order.
    ///
    /// # Panics
    /// When a row's length is not the width, or the message would get more than `message_symbols` rows.
    pub fn feed(&mut self, rows: &[&[u8]]) {
        assert!(rows.len() <= self.owner.message_symbols() - self.fed, "more rows than the message has");
        assert!(rows.iter().all(|row| row.len() == self.width), "a row's length is not the width");
        self.owner.absorb(&mut self.state, rows, self.fed);
        self.fed += rows.len();
    }

    /// Writes the parity, codeword after codeword with `roots` bytes each, as dm-verity stores it.
    ///
    /// Rows that were not fed count as zeros. The encoder is then ready for the next codewords.
    ///
    /// # Panics
    /// When `parity` has not `roots` times the width bytes.
    pub fn finish(&mut self, parity: &mut [u8]) {
        assert_eq!(parity.len(), self.width * self.owner.roots(), "parity is roots bytes a codeword");
        let missing = self.owner.message_symbols() - self.fed;
        if missing > 0 {
            let zeros = vec![0; self.width];
            self.feed(&vec![zeros.as_slice(); missing]);
        }
        self.owner.finish(&mut self.state, parity);
        self.reset();
    }

    /// Forgets the message rows that were fed.
    pub fn reset(&mut self) {
        self.state.fill(Block([0; 64]));
        self.fed = 0;
    }
}

impl fmt::Debug for Encoder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoder({:?}, {} of {} rows)", self.owner, self.fed, self.owner.message_symbols())
    }
}

/// An error in a code's parameters or in the erasures of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RsError {
    /// A number of parity symbols that is not supported.
    Roots(usize),
    /// An erasure is named that is not a row of a codeword, or one is named twice.
    Erasure(usize),
    /// More erasures than parity symbols: the named number of them can't be restored.
    TooManyErasures(usize),
}

impl fmt::Display for RsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RsError::Roots(roots) => {
                write!(f, "{roots} parity symbols are not supported; choose 2 to {MAX_ROOTS}")
            }
            RsError::Erasure(row) => {
                write!(f, "erasure {row} is not a row of a codeword, or is named twice")
            }
            RsError::TooManyErasures(count) => {
                write!(f, "{count} erasures are more than the code has parity symbols")
            }
        }
    }
}

impl std::error::Error for RsError {}

/// One cell of the registers of 64 codewords.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Block([u8; 64]);

/// One way to compute the code. The functions need the CPU to have `needs`, nothing else.
struct Functions {
    /// Sends rows, of which the first is message row number `first`, through the registers of all strips.
    absorb: unsafe fn(code: &Code, state: &mut [Block], rows: &[&[u8]], first: usize),
    /// Writes the parity, codeword after codeword, after a whole message; leaves the state undefined.
    finish: unsafe fn(code: &Code, state: &mut [Block], out: &mut [u8]),
    /// Adds `factor * src` to `dst`, which has the same length.
    multiply_add: unsafe fn(factor: u8, src: &[u8], dst: &mut [u8]),
}

type Backend = backend::Row<Functions>;

/// Fastest first, as measured.
static BACKENDS: &[Backend] = &[
    // Intel from Ice Lake on, AMD from Zen 4 on.
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "x86_64-avx512-gfni",
        &[Feature::Avx512, Feature::Gfni],
        Functions {
            absorb: x86_64_gfni::absorb,
            finish: x86_64_gfni::finish,
            multiply_add: x86_64_gfni::multiply_add,
        },
    ),
    // x86-64 without GFNI or AVX-512, Intel from Haswell on, AMD from Excavator on.
    #[cfg(target_arch = "x86_64")]
    Backend::new(
        "x86_64-avx2",
        &[Feature::Avx2],
        Functions {
            absorb: x86_64_avx2::absorb,
            finish: x86_64_avx2::finish,
            multiply_add: x86_64_avx2::multiply_add,
        },
    ),
    // Every AArch64 CPU that runs Linux.
    #[cfg(target_arch = "aarch64")]
    Backend::new(
        "aarch64-neon",
        &[Feature::Neon],
        Functions {
            absorb: aarch64_neon::absorb,
            finish: aarch64_neon::finish,
            multiply_add: aarch64_neon::multiply_add,
        },
    ),
    Backend::new(
        "portable",
        &[],
        Functions {
            absorb: portable::absorb,
            finish: portable::finish,
            multiply_add: portable::multiply_add,
        },
    ),
];

/// Calls `function::<R>(arguments)` for the number of roots, so that the registers get a known size.
macro_rules! with_roots {
    ($roots:expr, $function:ident($($argument:expr),*)) => {
        with_roots!(@ $roots, $function, ($($argument),*),
            2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24)
    };
    (@ $roots:expr, $function:ident, $arguments:tt, $($count:literal)*) => {
        match $roots {
            $($count => with_roots!(! $function, $count, $arguments),)*
            _ => unreachable!("the handle's constructor admits 2 to 24 roots"),
        }
    };
    (! $function:ident, $count:literal, ($($argument:expr),*)) => {
        $function::<$count>($($argument),*)
    };
}
use with_roots;

/// Runs a block with `i` = 1, 2, ... up to half the number of roots.
///
/// Written out, because the compiler leaves a loop of this size rolled up and then keeps the register cells in
/// memory.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! for_halves {
    ($i:ident, $R:ident, $body:block) => {
        for_halves!(@ $i, $R, $body, 1 2 3 4 5 6 7 8 9 10 11 12)
    };
    (@ $i:ident, $R:ident, $body:block, $($number:literal)*) => {
        $({
            let $i: usize = $number;
            if $i <= $R / 2 $body
        })*
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use for_halves;
