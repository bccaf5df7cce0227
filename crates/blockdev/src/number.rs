//! Numbers on disks as lengths in memory, and back.
//!
//! `as` cuts off what does not fit, and says nothing. Crates that read numbers of strangers deny it
//! (`clippy::as_conversions`), and use these, `From` or `TryFrom`.

/// Length in memory as a number on a disk. Nothing is lost: memory has at most 2^64 bytes.
#[inline]
pub fn u64_of(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Number in 32 bits, for which its caller has made sure that they are enough. Another one becomes the largest, not one that is
/// less by 2^32.
#[inline]
pub fn u32_of(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

/// Number on a disk as a length or index in memory. One that no memory has becomes the largest, which every slice and every
/// allocation refuses.
#[inline]
pub fn usize_of(number: impl Into<u64>) -> usize {
    usize::try_from(number.into()).unwrap_or(usize::MAX)
}
