//! The tables behind flip, toggle, splice and combine: powers of x by windows of the exponent.
//!
//! 2056 bytes for every length. Lengths up to [`SHORT_BITS`] (a buffer of 64 KiB) touch two windows only, 1028
//! bytes: flips one pair, everything else another.

use super::poly::{INVERSE_OF_X_PLUS_1, ORDER, multiply, power_of_x};

/// The largest exponent that the first two windows cover: the bits of 64 KiB.
pub(super) const SHORT_BITS: u64 = 1 << 19;

/// Powers of x by parts of the exponent. Its lowest five bits have no window: they are a shift of a word.
///
/// The first window exists twice: bare, and with the factor I = 1/(x+1), which is what a run of ones needs.
#[repr(C, align(64))]
pub(super) struct Windows {
    /// I * x^(32i - 33): bits 5 to 11. The 33 undoes a product (1) and its reduction (32).
    run5: [u32; 128],
    /// x^(32i - 33): the same without I.
    bits5: [u32; 128],
    /// x^(4096i): bits 12 to 19; bit 19 alone for the exponent 2^19 itself.
    bits12: [u32; 129],
    /// x^(i * 2^19 - 1): bits 19 to 24. This 1 and the next undo the two products that long powers need more.
    bits19: [u32; 64],
    /// x^(i * 2^25 - 1): bits 25 to 31; bit 31 alone for the exponent 2^31 itself, see [`fold`].
    bits25: [u32; 65],
}

/// The one copy of the windows.
pub(super) static WINDOWS: Windows = Windows {
    run5: progression(multiply(INVERSE_OF_X_PLUS_1, power_of_x(-33)), 1 << 5),
    bits5: progression(power_of_x(-33), 1 << 5),
    bits12: progression(power_of_x(0), 1 << 12),
    bits19: progression(power_of_x(-1), 1 << 19),
    bits25: progression(power_of_x(-1), 1 << 25),
};

impl Windows {
    /// The two factors of x^(`exponent` - 33), and with `RUN` of I times that, without the exponent's lowest five
    /// bits.
    #[inline(always)]
    pub(super) fn short<const RUN: bool>(&self, exponent: u64) -> (u32, u32) {
        debug_assert!(exponent <= SHORT_BITS);
        (self.first::<RUN>(exponent), self.bits12[(exponent >> 12) as usize & 0xff])
    }

    /// The four factors of x^(`exponent` - 35), and with `RUN` of I times that, without the exponent's lowest five
    /// bits.
    #[inline(always)]
    pub(super) fn long<const RUN: bool>(&self, exponent: u64) -> [u32; 4] {
        debug_assert!(exponent <= 1 << 31);
        [
            self.first::<RUN>(exponent),
            self.bits12[(exponent >> 12 & 127) as usize],
            self.bits19[(exponent >> 19 & 63) as usize],
            self.bits25[(exponent >> 25) as usize & 0x7f],
        ]
    }

    #[inline(always)]
    fn first<const RUN: bool>(&self, exponent: u64) -> u32 {
        let window = if RUN { &self.run5 } else { &self.bits5 };
        window[(exponent >> 5 & 127) as usize]
    }
}

/// `exponent` modulo the order of x, as a number up to and including 2^31.
///
/// 2^31 is the order plus 1: letting it through saves a step, at the price of one more table entry.
#[inline(always)]
pub(super) const fn fold(exponent: u64) -> u64 {
    // At most 2 * (2^31 - 1) + 3.
    let sum = (exponent & ORDER) + (exponent >> 31 & ORDER) + (exponent >> 62);
    (sum & ORDER) + (sum >> 31)
}

/// 8 * `bytes` - `less` modulo the order of x, as a number up to and including 2^31; any number of bytes.
#[inline(always)]
pub(super) const fn fold_bytes(bytes: u64, less: u64) -> u64 {
    fold(8 * fold(bytes) + ORDER - less)
}

/// `first`, then each entry the one before times x^`step`.
const fn progression<const N: usize>(first: u32, step: i64) -> [u32; N] {
    let factor = power_of_x(step);
    let mut entries = [first; N];
    let mut i = 1;
    while i < N {
        entries[i] = multiply(entries[i - 1], factor);
        i += 1;
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values around every place where the folding could slip.
    const EDGES: [u64; 12] = [
        0,
        1,
        ORDER - 1,
        ORDER,
        ORDER + 1,
        1 << 32,
        (1 << 61) - 1,
        1 << 61,
        (1 << 62) + ORDER, // two plain folding steps leave 2^31 here
        1 << 62,
        1 << 63,
        u64::MAX,
    ];

    #[test]
    fn folding_keeps_the_residue_and_ends_within_the_last_window() {
        for edge in EDGES {
            for value in edge.saturating_sub(3)..=edge.saturating_add(3) {
                assert!(fold(value) <= 1 << 31, "{value}");
                assert_eq!(fold(value) % ORDER, value % ORDER, "{value}");
                let bits = (u128::from(value) * 8 + u128::from(ORDER) - 33) % u128::from(ORDER);
                assert_eq!(u128::from(fold_bytes(value, 33) % ORDER), bits, "{value}");
            }
        }
    }

    #[test]
    fn the_tables_stay_small() {
        assert_eq!(4 * (128 + 129), 1028);
        assert_eq!(size_of::<Windows>(), 2056usize.next_multiple_of(64));
    }

    #[test]
    fn windows_multiply_to_the_power() {
        for exponent in [0u64, 32, 4096, SHORT_BITS, SHORT_BITS - 32, 1 << 31, ORDER & !31, 0x1234_5660] {
            let power = power_of_x(exponent as i64 - 33);
            let run = multiply(INVERSE_OF_X_PLUS_1, power);
            let product =
                |long: [u32; 4]| long.iter().fold(power_of_x(2), |all, factor| multiply(all, *factor));
            assert_eq!(product(WINDOWS.long::<false>(exponent)), power, "long {exponent}");
            assert_eq!(product(WINDOWS.long::<true>(exponent)), run, "long run {exponent}");
            if exponent <= SHORT_BITS {
                let product = |(low, high)| multiply(low, high);
                assert_eq!(product(WINDOWS.short::<false>(exponent)), power, "short {exponent}");
                assert_eq!(product(WINDOWS.short::<true>(exponent)), run, "short run {exponent}");
            }
        }
    }
}
