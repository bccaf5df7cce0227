//! Replies, collected until they are sent.

use casemate_blockdev::{u32_of, usize_of};

use crate::protocol::{ALLOCATION_ID, Agreed};

/// Bytes that grow without being cleared, because they are about to be overwritten.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    used: usize,
}

impl Buffer {
    /// The next `len` bytes, with any contents, which become part of what is used.
    pub(crate) fn extend(&mut self, len: usize) -> &mut [u8] {
        let start = self.used;
        self.used += len;
        if self.bytes.len() < self.used {
            self.bytes.resize(self.used, 0);
        }
        &mut self.bytes[start..self.used]
    }

    /// Forgets everything; memory of more than `retained` bytes is given back.
    pub(crate) fn clear(&mut self, retained: usize) {
        self.used = 0;
        if self.bytes.len() > retained {
            self.bytes = Vec::new();
        }
    }

    pub(crate) fn used(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    pub(crate) fn used_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.used]
    }

    /// A simple reply: done, or the number of an error.
    pub(crate) fn simple(&mut self, cookie: u64, error: u32) {
        let to = self.extend(SIMPLE);
        simple_header(to, cookie, error);
    }

    /// A structured reply of one chunk with these parts.
    pub(crate) fn chunk(&mut self, kind: u16, cookie: u64, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let to = self.extend(CHUNK + len);
        // Replies of this kind are a few kilobytes.
        chunk_header(to, DONE, kind, cookie, u32_of(len));
        let mut at = CHUNK;
        for part in parts {
            to[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    }

    /// The answer to a read: `fill` writes the data, or says which error it is.
    ///
    /// # Errors
    /// The error of `fill`; nothing is added then.
    pub(crate) fn data<E>(
        &mut self,
        agreed: Agreed,
        cookie: u64,
        offset: u64,
        len: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if agreed.structured && len == 0 {
            self.chunk(NONE, cookie, &[]);
            return Ok(());
        }
        let before = self.used;
        let header = if agreed.structured { CHUNK + 8 } else { SIMPLE };
        let (header, data) = self.extend(header + usize_of(len)).split_at_mut(header);
        if let Err(error) = fill(data) {
            self.used = before;
            return Err(error);
        }
        if agreed.structured {
            chunk_header(header, DONE, OFFSET_DATA, cookie, len + 8);
            header[CHUNK..].copy_from_slice(&offset.to_be_bytes());
        } else {
            simple_header(header, cookie, 0);
        }
        Ok(())
    }

    /// A part of the answer to a read, in a chunk after which others follow.
    ///
    /// # Errors
    /// The error of `fill`; nothing is added then.
    pub(crate) fn part<E>(
        &mut self,
        cookie: u64,
        offset: u64,
        len: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let before = self.used;
        let (header, data) = self.extend(CHUNK + 8 + usize_of(len)).split_at_mut(CHUNK + 8);
        if let Err(error) = fill(data) {
            self.used = before;
            return Err(error);
        }
        chunk_header(header, MORE, OFFSET_DATA, cookie, len + 8);
        header[CHUNK..].copy_from_slice(&offset.to_be_bytes());
        Ok(())
    }

    /// The end of an answer that consists of parts: what is wrong from each of `bad` on.
    pub(crate) fn end_of_parts(&mut self, cookie: u64, error: u32, bad: &[u64]) {
        let Some((last, before)) = bad.split_last() else { return self.chunk(NONE, cookie, &[]) };
        for (flags, offset) in before.iter().map(|offset| (MORE, offset)).chain([(DONE, last)]) {
            let to = self.extend(CHUNK + 14);
            chunk_header(to, flags, ERROR_OFFSET, cookie, 14);
            to[CHUNK..CHUNK + 4].copy_from_slice(&error.to_be_bytes());
            // No text.
            to[CHUNK + 4..CHUNK + 6].fill(0);
            to[CHUNK + 6..].copy_from_slice(&offset.to_be_bytes());
        }
    }

    /// The answer to a request for the block status: lengths with their states.
    pub(crate) fn extents(&mut self, cookie: u64, extents: &[(u32, u32)]) {
        let mut list = ALLOCATION_ID.to_be_bytes().to_vec();
        for (len, state) in extents {
            list.extend_from_slice(&len.to_be_bytes());
            list.extend_from_slice(&state.to_be_bytes());
        }
        self.chunk(BLOCK_STATUS, cookie, &[&list]);
    }

    /// An error in the form that the client understands after `structured` was agreed on for this kind of request.
    pub(crate) fn error(&mut self, structured: bool, cookie: u64, error: u32) {
        match structured {
            true => self.chunk(ERROR, cookie, &[&error.to_be_bytes(), &[0; 2]]),
            false => self.simple(cookie, error),
        }
    }
}

fn simple_header(to: &mut [u8], cookie: u64, error: u32) {
    to[..4].copy_from_slice(&SIMPLE_MAGIC.to_be_bytes());
    to[4..8].copy_from_slice(&error.to_be_bytes());
    to[8..16].copy_from_slice(&cookie.to_be_bytes());
}

fn chunk_header(to: &mut [u8], flags: u16, kind: u16, cookie: u64, len: u32) {
    to[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    to[4..6].copy_from_slice(&flags.to_be_bytes());
    to[6..8].copy_from_slice(&kind.to_be_bytes());
    to[8..16].copy_from_slice(&cookie.to_be_bytes());
    to[16..20].copy_from_slice(&len.to_be_bytes());
}

const SIMPLE: usize = 16;
const CHUNK: usize = 20;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
const DONE: u16 = 1;
const MORE: u16 = 0;
const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const BLOCK_STATUS: u16 = 5;
const ERROR: u16 = 0x8001;
const ERROR_OFFSET: u16 = 0x8002;
