//! Requests out of what a client sends.

use std::io;

use casemate_blockdev::usize_of;

use crate::link::Link;
use crate::protocol::Request;

/// Bytes that have come from the client and were not looked at.
#[derive(Default)]
pub(crate) struct Reader {
    buf: Vec<u8>,
    start: usize,
    end: usize,
    /// The last request was a large write, so whatever is read ahead is likely to be data that would be copied twice.
    pub(crate) large_writes: bool,
}

impl Reader {
    /// Has at least `len` bytes; `false` if the client is gone before the first of them.
    pub(crate) fn fill(&mut self, link: &Link, len: usize) -> io::Result<bool> {
        if self.buf.is_empty() {
            self.buf = vec![0; READ_AHEAD];
        }
        if self.buf.len() - self.start < len {
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < len {
            let most = if self.large_writes { self.start + len } else { self.buf.len() };
            match link.read(&mut self.buf[self.end..most]) {
                Ok(0) if self.start == self.end => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => self.end += more,
                // Between requests a client may go without a word, TLS's farewell included.
                Err(error) if self.start == self.end && is_end(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The next bytes, which are there.
    pub(crate) fn take<const N: usize>(&mut self) -> &[u8; N] {
        self.start += N;
        self.buf[self.start - N..self.start].try_into().expect("that many")
    }

    pub(crate) fn read_exact(&mut self, link: &Link, data: &mut [u8]) -> io::Result<()> {
        let have = data.len().min(self.end - self.start);
        let (mut now, mut data) = data.split_at_mut(have);
        now.copy_from_slice(&self.buf[self.start..self.start + have]);
        self.start += have;
        while !data.is_empty() {
            // The rest of a large write goes where it belongs; after a small one more requests may follow.
            if data.len() < self.buf.len() {
                if !self.fill(link, data.len())? {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let len = data.len();
                now = data;
                now.copy_from_slice(&self.buf[self.start..self.start + len]);
                self.start += len;
                return Ok(());
            }
            match link.read(data)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => data = &mut data[more..],
            }
        }
        Ok(())
    }

    pub(crate) fn has_some(&self) -> bool {
        self.end > self.start
    }

    /// The next request, if it is there whole.
    pub(crate) fn peek(&self) -> Option<Request> {
        let (request, rest) = self.buf[self.start..self.end].split_first_chunk()?;
        let request = Request::from_bytes(request)?;
        (rest.len() >= usize_of(request.payload())).then_some(request)
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
}

/// Bytes that are read from the socket at once. Large writes' data does not go through this buffer.
const READ_AHEAD: usize = 128 * 1024;
