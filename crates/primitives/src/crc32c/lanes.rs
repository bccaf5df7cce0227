//! Constants that multiply 16-byte lanes of data, for back ends with carry-less multiplication.
//!
//! Data is a sum of lanes, each followed by some number j of lanes. The first and the last eight bytes of a
//! lane, times x^(128j + 63) and x^(128j - 1) with the 1 that the product adds, sum up to a lane that has the
//! same register after it as the whole data: no chain of foldings is needed for up to [`LANES`] lanes.

use super::poly::power_of_x;

/// How many lanes the table covers: 512 bytes of data.
pub(super) const LANES: usize = 32;

/// Factors for the two halves of a lane, as 64-bit words.
pub(super) type Factors = [u64; 2];

/// The factors of lanes by how many lanes follow, the most first: n lanes of data use the last n (512 bytes).
#[repr(C, align(64))]
pub(super) struct Positions(pub(super) [Factors; LANES]);

/// The one copy of the positions.
pub(super) static POSITIONS: Positions = Positions(positions());

/// The factors that move a lane over `bits` bits: those of the folding loops.
pub(super) const fn factors(bits: i64) -> Factors {
    [(power_of_x(bits + 63) as u64) << 32, (power_of_x(bits - 1) as u64) << 32]
}

const fn positions() -> [Factors; LANES] {
    let mut all = [[0; 2]; LANES];
    let mut i = 0;
    while i < LANES {
        all[i] = factors(128 * (LANES - 1 - i) as i64);
        i += 1;
    }
    all
}
