//! Fields of structures: where a number lies, how wide it is and in which byte order, under one name for whoever reads
//! it and whoever writes it.
//!
//! All of these index like slices do: the caller has checked the structure's length before. Only what lies in `format`
//! can make a field of an offset.

use crate::format::bytes::array;

macro_rules! numbers {
    ($($field:ident $number:ident $from:ident $to:ident $doc:literal;)*) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $field(pub(in crate::format) usize);

        #[allow(dead_code, reason = "every width has the same functions")]
        impl $field {
            /// The field in a structure that begins at byte `base`.
            pub const fn from(self, base: usize) -> $field {
                $field(base + self.0)
            }

            /// The byte that the field begins at.
            pub const fn at(self) -> usize {
                self.0
            }

            /// The byte behind the field.
            pub const fn end(self) -> usize {
                self.0 + size_of::<$number>()
            }

            #[inline]
            pub fn get(self, bytes: &[u8]) -> $number {
                $number::$from(array(bytes, self.0))
            }

            #[inline]
            pub fn set(self, bytes: &mut [u8], value: $number) {
                bytes[self.0..self.end()].copy_from_slice(&value.$to());
            }
        }
    )*};
}

numbers! {
    Byte u8  from_le_bytes to_le_bytes "A byte at this offset.";
    Le16 u16 from_le_bytes to_le_bytes "16 bits at this offset, little-endian.";
    Le32 u32 from_le_bytes to_le_bytes "32 bits at this offset, little-endian.";
    Le64 u64 from_le_bytes to_le_bytes "64 bits at this offset, little-endian.";
    Be16 u16 from_be_bytes to_be_bytes "16 bits at this offset, big-endian.";
    Be32 u32 from_be_bytes to_be_bytes "32 bits at this offset, big-endian.";
    Be64 u64 from_be_bytes to_be_bytes "64 bits at this offset, big-endian.";
}

/// A number whose low and high part lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split<Low, High>(pub(in crate::format) Low, pub(in crate::format) High);

macro_rules! splits {
    ($($low:ident $low_number:ident + $high:ident $high_number:ident = $number:ident;)*) => {$(
        #[allow(dead_code, reason = "every width has the same functions")]
        impl Split<$low, $high> {
            #[inline]
            pub fn get(self, bytes: &[u8]) -> $number {
                self.get_if(true, bytes)
            }

            /// The number where the structure may end before the high part, or have something else there.
            #[inline]
            pub fn get_if(self, has_high: bool, bytes: &[u8]) -> $number {
                let high = if has_high { $number::from(self.1.get(bytes)) } else { 0 };
                $number::from(self.0.get(bytes)) | high << $low_number::BITS
            }

            #[inline]
            pub fn set(self, bytes: &mut [u8], value: $number) {
                self.set_if(true, bytes, value);
            }

            #[inline]
            pub fn set_if(self, has_high: bool, bytes: &mut [u8], value: $number) {
                // What the parts have no room for, no structure has.
                let (low, high) = (value & $number::from($low_number::MAX), value >> $low_number::BITS);
                self.0.set(bytes, low.try_into().unwrap_or($low_number::MAX));
                if has_high {
                    self.1.set(bytes, high.try_into().unwrap_or($high_number::MAX));
                }
            }
        }
    )*};
}

splits! {
    Le16 u16 + Le16 u16 = u32;
    Le32 u32 + Byte u8  = u64;
    Le32 u32 + Le16 u16 = u64;
    Le32 u32 + Le32 u32 = u64;
    Be32 u32 + Be32 u32 = u64;
}

/// So many bytes at this offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes<const N: usize>(pub(in crate::format) usize);

impl<const N: usize> Bytes<N> {
    pub fn get(self, bytes: &[u8]) -> &[u8; N] {
        // OK to unwrap: the slice is N bytes long.
        bytes[self.0..][..N].try_into().unwrap()
    }

    pub fn get_mut(self, bytes: &mut [u8]) -> &mut [u8; N] {
        // OK to unwrap: the slice is N bytes long.
        (&mut bytes[self.0..][..N]).try_into().unwrap()
    }

    /// Writes text, as much as has room, and zeros behind it.
    pub fn set_whole(self, bytes: &mut [u8], text: &[u8]) {
        let field = self.get_mut(bytes);
        let len = text.len().min(N);
        field.fill(0);
        field[..len].copy_from_slice(&text[..len]);
    }

    /// Writes text, as much as has room before a zero, and zeros behind it.
    pub fn set_text(self, bytes: &mut [u8], text: &[u8]) {
        let field = self.get_mut(bytes);
        let len = text.len().min(N - 1);
        field.fill(0);
        field[..len].copy_from_slice(&text[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read_and_nothing_beside_it() {
        let mut bytes = [0xff; 24];
        Le16(1).set(&mut bytes, 0x0102);
        Be32(4).set(&mut bytes, 0x0304_0506);
        Split(Le32(10), Le16(18)).set(&mut bytes, 0x0708_090a_0b0c);
        Byte(23).set(&mut bytes, 9);
        let expected: [u8; 24] = [
            0xff, 2, 1, 0xff, 3, 4, 5, 6, 0xff, 0xff, 0xc, 0xb, 0xa, 9, 0xff, 0xff, 0xff, 0xff, 8, 7, 0xff,
            0xff, 0xff, 9,
        ];
        assert_eq!(bytes, expected);
        assert_eq!((Le16(1).get(&bytes), Be32(4).get(&bytes)), (0x0102, 0x0304_0506));
        assert_eq!(Split(Le32(10), Le16(18)).get(&bytes), 0x0708_090a_0b0c);
        assert_eq!(Split(Le32(10), Le16(18)).get_if(false, &bytes), 0x090a_0b0c);
        assert_eq!(Le16(0).from(18).get(&bytes), 0x0708);
        Bytes::<3>(0).set_text(&mut bytes, b"abcd");
        assert_eq!(&bytes[..4], b"ab\0\xff");
    }
}
