//! The hashes that order names in a directory's tree.
//!
//! Each maps a name to 64 bits, of which the upper 32 order the tree. Bytes are taken as signed or as
//! unsigned numbers, as `char` was on the machine that made the file system. Sources:
//! Documentation/filesystems/ext4/directory.rst; the kernel's fs/ext4/hash.c, for facts.

use crate::format::superblock::HashDefaults;
use crate::number::{high32, low32, u8_of};

/// A name's place in the order of a directory's hash tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirHash {
    /// The hash that orders the tree. Its lowest bit is clear.
    pub major: u32,
    /// The hash that orders names of the same `major` while a directory is read.
    pub minor: u32,
}

impl DirHash {
    /// The place that a keyed hash of 64 bits gives: [`SIPHASH`] of a casefolded name.
    pub fn from_keyed(hash: u64) -> DirHash {
        DirHash::clear_marks(high32(hash), low32(hash))
    }

    /// The lowest bit marks a hash that goes on in the next leaf; the last value marks the end.
    fn clear_marks(major: u32, minor: u32) -> DirHash {
        let major = match major & !1 {
            0xffff_fffe => 0xffff_fffc,
            other => other,
        };
        DirHash { major, minor }
    }
}

/// Hashes the names of one directory.
#[derive(Clone, Copy, Debug)]
pub struct NameHasher {
    function: Function,
    unsigned: bool,
    seed: [u32; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Legacy,
    HalfMd4,
    Tea,
}

/// The version that takes the hash from a key: SipHash of casefolded names in encrypted directories.
pub const SIPHASH: u8 = 6;

impl NameHasher {
    /// The hash with this number, as a tree's root or the superblock gives it; `None` for [`SIPHASH`], which
    /// needs a key, and numbers without meaning.
    pub fn new(version: u8, defaults: &HashDefaults) -> Option<NameHasher> {
        let function = match version % 3 {
            _ if version > 5 => return None,
            0 => Function::Legacy,
            1 => Function::HalfMd4,
            _ => Function::Tea,
        };
        Some(NameHasher { function, unsigned: version >= 3 || defaults.unsigned, seed: defaults.seed })
    }

    /// The hash of a name as the tree sees it (ciphertext in encrypted directories).
    pub fn hash(&self, name: &[u8]) -> DirHash {
        let (major, minor) = match self.function {
            Function::Legacy => (self.legacy(name), 0),
            Function::HalfMd4 => self.half_md4(name),
            Function::Tea => self.tea(name),
        };
        DirHash::clear_marks(major, minor)
    }

    /// A byte as the number it was where the file system was made.
    fn number(&self, byte: u8) -> u32 {
        if self.unsigned { u32::from(byte) } else { i32::from(byte.cast_signed()).cast_unsigned() }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12a3_fe2du32, 0x37ab_e8f9u32);
        for byte in name {
            let mut next = before.wrapping_add(last ^ self.number(*byte).wrapping_mul(7_152_373));
            if next & 0x8000_0000 != 0 {
                next = next.wrapping_sub(0x7fff_ffff);
            }
            (before, last) = (last, next);
        }
        last << 1
    }

    /// The registers to start from: the file system's seed, unless it is zero.
    fn start(&self) -> [u32; 4] {
        if self.seed == [0; 4] { [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476] } else { self.seed }
    }

    /// The first `4 * N` bytes of `rest` as words, padded with the number of bytes that are left.
    fn words<const N: usize>(&self, rest: &[u8]) -> [u32; N] {
        // Names have at most 255 bytes.
        let pad = u32::from_ne_bytes([u8_of(rest.len()); 4]);
        let mut words = [pad; N];
        for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
            *word = bytes.iter().fold(pad, |word, byte| (word << 8).wrapping_add(self.number(*byte)));
        }
        words
    }

    /// MD4 cut to half of its steps, over blocks of 32 bytes.
    fn half_md4(&self, name: &[u8]) -> (u32, u32) {
        let mut state = self.start();
        let mut rest = name;
        loop {
            let words: [u32; 8] = self.words(rest);
            half_md4_block(&mut state, &words);
            match rest.get(32..) {
                Some(more) if !more.is_empty() => rest = more,
                _ => return (state[1], state[2]),
            }
        }
    }

    /// TEA in 16 rounds, over blocks of 16 bytes as keys.
    fn tea(&self, name: &[u8]) -> (u32, u32) {
        let mut state = self.start();
        let mut rest = name;
        loop {
            let words: [u32; 4] = self.words(rest);
            tea_block(&mut state, &words);
            match rest.get(16..) {
                Some(more) if !more.is_empty() => rest = more,
                _ => return (state[0], state[1]),
            }
        }
    }
}

fn half_md4_block(state: &mut [u32; 4], words: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    /// Per pass: how three registers are mixed, what is added, the words' order, the rotations.
    const PASSES: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (|x, y, z| (x & y).wrapping_add((x ^ y) & z), 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (|x, y, z| x ^ y ^ z, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, add, order, rotations) in PASSES {
        for (step, word) in order.into_iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(words[word]).wrapping_add(add);
            (a, b, c, d) = (d, sum.rotate_left(rotations[step % 4]), b, c);
        }
    }
    for (register, add) in state.iter_mut().zip([a, b, c, d]) {
        *register = register.wrapping_add(add);
    }
}

fn tea_block(state: &mut [u32; 4], words: &[u32; 4]) {
    let [mut x, mut y] = [state[0], state[1]];
    let mut sum = 0u32;
    let round = |other: u32, sum: u32, low: u32, high: u32| {
        (other << 4).wrapping_add(low) ^ other.wrapping_add(sum) ^ (other >> 5).wrapping_add(high)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        x = x.wrapping_add(round(y, sum, words[0], words[1]));
        y = y.wrapping_add(round(x, sum, words[2], words[3]));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seed is that of debugfs's `dx_hash -s 01020304-0506-0708-090a-0b0c0d0e0f10`.
    const SEED: [u32; 4] = [0x0403_0201, 0x0807_0605, 0x0c0b_0a09, 0x100f_0e0d];

    /// Hashes that debugfs prints for each name with legacy, half_md4 and tea. The last name has high bytes.
    const ANSWERS: [(&str, [(u32, u32); 3]); 4] = [
        ("a", [(0xe74b53e2, 0), (0x8d08ec4c, 0x2fbccd78), (0xf53528f0, 0xea54fb01)]),
        ("hello", [(0x32252546, 0), (0xe2ddf968, 0xc8bc0924), (0x1a5692b6, 0x2fd9857d)]),
        (
            "a name of forty-five bytes, more than one block",
            [(0x9d97a230, 0), (0x9970ecfc, 0x4f36c93a), (0xdc67fb7c, 0x5afc6ade)],
        ),
        (
            "\u{fc}n\u{ef}code-\u{f1}ame-\u{3a9}-with-high-bytes-\u{fc}ber-32",
            [(0x1b92720a, 0), (0x92e9f6f0, 0x388c1a76), (0x3e6983d8, 0x3de882af)],
        ),
    ];

    fn hash(version: u8, seed: [u32; 4], name: &[u8]) -> (u32, u32) {
        let defaults = HashDefaults { version, seed, unsigned: false };
        let hash = NameHasher::new(version, &defaults).unwrap().hash(name);
        (hash.major, hash.minor)
    }

    #[test]
    fn hashes_are_those_of_debugfs() {
        for (name, answers) in ANSWERS {
            for (version, answer) in (0..).zip(answers) {
                assert_eq!(hash(version, SEED, name.as_bytes()), answer, "version {version}: {name}");
                let unsigned = hash(version + 3, SEED, name.as_bytes());
                assert_eq!(unsigned == answer, name.is_ascii(), "version {version}, unsigned: {name}");
            }
        }
        assert_eq!(hash(1, [0; 4], b"hello"), (0x1746da32, 0x420013b5));
    }

    #[test]
    fn hashes_that_need_a_key_have_no_hasher() {
        let defaults = HashDefaults { version: 1, seed: SEED, unsigned: true };
        assert!(NameHasher::new(SIPHASH, &defaults).is_none() && NameHasher::new(200, &defaults).is_none());
    }
}
