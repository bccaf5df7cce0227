//! Blocks of SHA-256 and SHA-512: how `prefix || message || suffix || padding` falls into them.
//!
//! All messages of a batch have one length, one prefix and one suffix, so their blocks differ in the message's
//! own bytes alone. [`Layout`] sorts the blocks into three kinds:
//!
//! ```text
//!  partial prefix  message                                        suffix   80 00 ... length
//! |-----------:----|----------------|----------------|-------:--------:---|----------------|
//!      edge             direct           direct            edge                edge
//! ```
//!
//! A direct block is read where it lies, at whatever alignment. An edge block comes from a [`Template`] that
//! holds the bytes common to all messages; only the message's bytes are filled in per message.

use std::ops::Range;

use zeroize::Zeroize;

pub(crate) mod frame;
#[cfg(target_arch = "x86_64")]
pub(crate) mod lanes;

/// A hash between two calls: chaining value, bytes since the last block boundary, bytes in all.
#[derive(Clone)]
pub(crate) struct Midstate<Word, const BLOCK: usize> {
    pub state: [Word; 8],
    partial: [u8; BLOCK],
    len: u128,
}

impl<Word: Zeroize, const BLOCK: usize> Zeroize for Midstate<Word, BLOCK> {
    fn zeroize(&mut self) {
        self.state.zeroize();
        self.partial.zeroize();
        self.len.zeroize();
    }
}

impl<Word, const BLOCK: usize> Midstate<Word, BLOCK> {
    /// The midstate of a hash that has taken in nothing.
    pub fn new(state: [Word; 8]) -> Midstate<Word, BLOCK> {
        Midstate { state, partial: [0; BLOCK], len: 0 }
    }

    /// Takes in more bytes. `compress` gets whole blocks, as many as there are in one piece.
    pub fn update(&mut self, mut data: &[u8], compress: impl Fn(&mut [Word; 8], &[u8])) {
        let filled = self.partial().len();
        self.len += data.len() as u128;
        if filled > 0 {
            let (head, rest) = data.split_at(data.len().min(BLOCK - filled));
            self.partial[filled..filled + head.len()].copy_from_slice(head);
            data = rest;
            if filled + head.len() < BLOCK {
                return;
            }
            compress(&mut self.state, &self.partial);
        }
        let (blocks, rest) = data.split_at(data.len() / BLOCK * BLOCK);
        if !blocks.is_empty() {
            compress(&mut self.state, blocks);
        }
        self.partial[..rest.len()].copy_from_slice(rest);
    }

    /// The layout of messages of `message_len` bytes between this prefix and `suffix`.
    pub fn layout<'a>(&'a self, message_len: usize, suffix: &'a [u8]) -> Layout<'a, BLOCK> {
        Layout::new(self.partial(), self.len - self.partial().len() as u128, message_len, suffix)
    }

    fn partial(&self) -> &[u8] {
        &self.partial[..(self.len % BLOCK as u128) as usize]
    }
}

/// Where the bytes of each message of a batch fall, in blocks after the midstate.
pub(crate) struct Layout<'a, const BLOCK: usize> {
    partial: &'a [u8],
    message_len: usize,
    suffix: &'a [u8],
    bits: u128,
    blocks: usize,
    direct: Range<usize>,
    edges: [Template<BLOCK>; CACHED],
}

/// How many templates are made in advance: the edges of a message whose suffix is shorter than a block.
const CACHED: usize = 3;

/// A block's bytes that are the same in every message, and where the message's own bytes belong.
#[derive(Clone)]
pub(crate) struct Template<const BLOCK: usize> {
    /// The block, zero where the message's bytes belong.
    pub bytes: [u8; BLOCK],
    /// The message's bytes within the block.
    pub hole: Range<usize>,
    /// The position in the message of the hole's first byte.
    pub from: usize,
}

impl<'a, const BLOCK: usize> Layout<'a, BLOCK> {
    /// The length field: 8 bytes of a 64-byte block, 16 of a 128-byte one.
    const LENGTH_FIELD: usize = BLOCK / 8;

    /// `before` bytes are in the midstate already, `partial` follows them and is less than a block.
    fn new(partial: &'a [u8], before: u128, message_len: usize, suffix: &'a [u8]) -> Self {
        debug_assert!(partial.len() < BLOCK);
        let content = partial.len() + message_len + suffix.len();
        let first = partial.len().div_ceil(BLOCK);
        let mut layout = Layout {
            partial,
            message_len,
            suffix,
            bits: (before + content as u128) * 8,
            blocks: (content + 1 + Self::LENGTH_FIELD).div_ceil(BLOCK),
            direct: first..first.max((partial.len() + message_len) / BLOCK),
            edges: [const { Template { bytes: [0; BLOCK], hole: 0..0, from: 0 } }; CACHED],
        };
        for edge in 0..CACHED.min(layout.blocks - layout.direct.len()) {
            layout.edges[edge] = layout.make_template(layout.edge_block(edge));
        }
        layout
    }

    /// The number of blocks of each message, after the midstate and with the padding.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// The blocks that consist of the message's bytes alone.
    pub fn direct(&self) -> Range<usize> {
        self.direct.clone()
    }

    /// Where direct block `block` begins in the message.
    pub fn offset(&self, block: usize) -> usize {
        block * BLOCK - self.partial.len()
    }

    /// The template of a block that is not direct.
    pub fn template(&self, block: usize) -> Template<BLOCK> {
        let edge = if block < self.direct.start { block } else { block - self.direct.len() };
        match self.edges.get(edge) {
            Some(template) => template.clone(),
            None => self.make_template(block),
        }
    }

    /// The longest run of blocks from `block` on that lies in one piece: `LANES` slices of equal length, one
    /// for each of `messages`, whose bytes for an edge block are put together in `stage`.
    ///
    /// Lanes without a message repeat the last one; there must be at least one.
    pub fn run<'r, const LANES: usize>(
        &self,
        block: usize,
        messages: [&'r [u8]; LANES],
        stage: &'r mut [[u8; BLOCK]; LANES],
    ) -> [&'r [u8]; LANES] {
        if self.direct().contains(&block) {
            let range = self.offset(block)..self.offset(self.direct.end);
            return messages.map(|message| &message[range.clone()]);
        }
        let template = self.template(block);
        for (bytes, message) in stage.iter_mut().zip(messages) {
            *bytes = template.bytes;
            bytes[template.hole.clone()].copy_from_slice(&message[template.from..][..template.hole.len()]);
        }
        stage.each_ref().map(|bytes| &bytes[..])
    }

    fn edge_block(&self, edge: usize) -> usize {
        if edge < self.direct.start { edge } else { edge + self.direct.len() }
    }

    fn make_template(&self, block: usize) -> Template<BLOCK> {
        let start = block * BLOCK;
        let message = self.partial.len();
        let suffix = message + self.message_len;
        let end = suffix + self.suffix.len();
        let mut bytes = [0; BLOCK];
        // The part of `from..to`, in bytes since the midstate, that falls into this block, relative to it.
        let part = |from: usize, to: usize| {
            let from = from.clamp(start, start + BLOCK);
            from - start..to.clamp(from, start + BLOCK) - start
        };
        let common = part(0, message);
        bytes[common.clone()].copy_from_slice(&self.partial[common]);
        let common = part(suffix, end);
        if !common.is_empty() {
            let from = start + common.start - suffix;
            bytes[common.clone()].copy_from_slice(&self.suffix[from..][..common.len()]);
        }
        for at in part(end, end + 1) {
            bytes[at] = 0x80;
        }
        if block + 1 == self.blocks {
            let bits = self.bits.to_be_bytes();
            bytes[BLOCK - Self::LENGTH_FIELD..].copy_from_slice(&bits[bits.len() - Self::LENGTH_FIELD..]);
        }
        let hole = part(message, suffix);
        let from = if hole.is_empty() { 0 } else { start + hole.start - message };
        Template { bytes, hole, from }
    }
}

/// Expands the body sixteen times, with the number of the expansion as a constant.
macro_rules! sixteen {
    ($i:ident $body:block) => { $crate::sha2::sixteen!($i $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
    ($i:ident $body:block $($n:literal)+) => { $({ const $i: usize = $n; $body })+ };
}

pub(crate) use sixteen;

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts every message together block by block and compares with the bytes that the standard asks for.
    #[test]
    fn blocks_are_prefix_message_suffix_and_padding() {
        for prefix in [0, 1, 16, 32, 55, 63, 64, 65, 100, 128] {
            for message in [0, 1, 31, 32, 33, 55, 56, 63, 64, 65, 127, 128, 200] {
                for suffix in [0, 1, 8, 9, 32, 64, 256] {
                    check::<64>(prefix, message, suffix);
                    check::<128>(prefix, message, suffix);
                }
            }
        }
    }

    /// The length field counts what is in the midstate, beyond 32 and (SHA-512) 64 bits.
    #[test]
    fn length_field_counts_the_whole_input() {
        let layout = Layout::<64>::new(b"ab", 1 << 32, 3, b"cde");
        assert_eq!(layout.template(0).bytes[56..], ((1u64 << 35) + 64).to_be_bytes());
        let layout = Layout::<128>::new(b"ab", 1 << 64, 3, b"cde");
        assert_eq!(layout.template(0).bytes[112..], ((1u128 << 67) + 64).to_be_bytes());
    }

    fn check<const BLOCK: usize>(prefix: usize, message: usize, suffix: usize) {
        let bytes: Vec<u8> = (1..=(prefix + message + suffix) as u32).map(|i| (i % 251) as u8 + 1).collect();
        let mut expected = bytes.clone();
        expected.push(0x80);
        while expected.len() % BLOCK != BLOCK - BLOCK / 8 {
            expected.push(0);
        }
        let bits = (bytes.len() as u128 * 8).to_be_bytes();
        expected.extend_from_slice(&bits[16 - BLOCK / 8..]);

        let mut midstate = Midstate::<u32, BLOCK>::new([0; 8]);
        let hashed = std::cell::RefCell::new(Vec::new());
        midstate.update(&bytes[..prefix / 2], |_, blocks| hashed.borrow_mut().extend_from_slice(blocks));
        midstate
            .update(&bytes[prefix / 2..prefix], |_, blocks| hashed.borrow_mut().extend_from_slice(blocks));
        let mut seen = hashed.into_inner();
        let layout = midstate.layout(message, &bytes[prefix + message..]);
        let mut block = 0;
        while block < layout.blocks() {
            let mut stage = [[0xee; BLOCK]];
            let [run] = layout.run(block, [&bytes[prefix..prefix + message]], &mut stage);
            seen.extend_from_slice(run);
            block += run.len() / BLOCK;
        }
        assert_eq!(block, layout.blocks());
        assert_eq!(seen, expected, "prefix {prefix}, message {message}, suffix {suffix}, block {BLOCK}");
    }
}
