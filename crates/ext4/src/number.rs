//! Numbers for fields that are narrower than what is computed, beside `blockdev`'s `u64_of`, `u32_of` and `usize_of`.

use std::ops::Range;

use casemate_blockdev::usize_of;

/// Number in 16 bits, for which its caller has made sure that they are enough. Another one becomes the largest.
#[inline]
pub(crate) fn u16_of(number: impl TryInto<u16>) -> u16 {
    number.try_into().unwrap_or(u16::MAX)
}

/// Number in 8 bits, for which its caller has made sure that they are enough. Another one becomes the largest.
#[inline]
pub(crate) fn u8_of(number: impl TryInto<u8>) -> u8 {
    number.try_into().unwrap_or(u8::MAX)
}

/// The low 32 bits of a number; the others are dropped.
#[inline]
pub(crate) const fn low32(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The high 32 bits of a number; the others are dropped.
#[inline]
pub(crate) const fn high32(number: u64) -> u32 {
    low32(number >> 32)
}

/// The low 16 bits of a number; the others are dropped.
#[inline]
pub(crate) const fn low16(number: u32) -> u16 {
    let [a, b, ..] = number.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// A range of a device as one of a buffer that begins at byte `start` of the device.
#[inline]
pub(crate) fn within(range: Range<u64>, start: u64) -> Range<usize> {
    usize_of(range.start - start)..usize_of(range.end - start)
}

/// A share of `blocks`, rounded down: 0 to 100 percent.
pub(crate) fn percent_of(percent: f64, blocks: u64) -> u64 {
    #[expect(
        clippy::as_conversions,
        reason = "OK to cast: no number of blocks has more than 53 bits; nothing else rounds down"
    )]
    let share = (percent * blocks as f64 / 100.0) as u64;
    share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_becomes_the_largest_or_is_dropped() {
        assert_eq!((u16_of(7_u64), u16_of(0x1_0007_u64), u16_of(usize::MAX)), (7, u16::MAX, u16::MAX));
        assert_eq!((u8_of(255_usize), u8_of(256_usize)), (255, 255));
        let number = 0x0123_4567_89ab_cdef;
        assert_eq!((high32(number), low32(number), low16(low32(number))), (0x0123_4567, 0x89ab_cdef, 0xcdef));
    }

    #[test]
    fn percents_are_rounded_down() {
        let all = 1 << 48;
        assert_eq!([0.0, 50.0, 100.0].map(|percent| percent_of(percent, all)), [0, all / 2, all]);
        assert_eq!((percent_of(5.0, 99), percent_of(0.5, 1000)), (4, 5));
    }
}
