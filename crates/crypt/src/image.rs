//! Whole images: from one device to another, or from stream to stream.

use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};

use casemate_blockdev::{BlockDevice, Buffer, u64_of, usize_of};
use casemate_providers::{Direction, Work};

use crate::{Error, SectorCipher};

/// How much a worker reads, transforms and writes at a time: long enough for one cipher call to count, short enough
/// to stay in a core's cache.
const CHUNK: usize = 256 * 1024;

/// The treatment of ranges that are holes in the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holes {
    /// A hole is zeros, and zeros are data to a cipher: every sector of the target is written. The safe way.
    #[default]
    Data,
    /// Holes stay holes. The target shows which ranges were never written, and reading them through the
    /// mapping gives noise, not zeros.
    Keep,
}

/// Encrypts or decrypts all of `source` to the same positions of `target`, on all threads.
///
/// Memory is bounded: a chunk for each thread.
///
/// # Errors
/// `Argument` if the source is not a multiple of the sector size, or has sectors whose IVs pass 2^64: nothing is written
/// then. `Io` from either device or the listener.
pub fn transform(
    cipher: &SectorCipher,
    direction: Direction,
    source: &dyn BlockDevice,
    target: &dyn BlockDevice,
    holes: Holes,
    work: &Work<'_>,
) -> Result<(), Error> {
    let size = source.size();
    check_size(cipher, size)?;
    work.pool.run(size.div_ceil(u64_of(CHUNK)), Buffer::default, |buf: &mut Buffer, chunk| {
        let offset = chunk * u64_of(CHUNK);
        let len = usize_of((size - offset).min(u64_of(CHUNK)));
        let data = match holes {
            Holes::Data => Some(offset..offset + u64_of(len)),
            Holes::Keep => source.next_data(offset)?.filter(|data| data.start < offset + u64_of(len)),
        };
        if data.is_some() {
            buf.resize(len);
            source.read_at(buf, offset)?;
            cipher.run(direction, offset / 512, buf)?;
            target.write_at(buf, offset)?;
        }
        work.events.advance(u64_of(len))
    })
}

/// Encrypts or decrypts everything that `input` yields, in order, to `output`. Gives the number of bytes.
///
/// Reading, the cipher and writing overlap on all threads; pieces leave in the order in which they came.
///
/// # Errors
/// `Argument` if the input ends within a sector: everything before that sector has been written then.
pub fn transform_stream(
    cipher: &SectorCipher,
    direction: Direction,
    input: &mut (dyn Read + Send),
    output: &mut (dyn Write + Send),
    work: &Work<'_>,
) -> Result<u64, Error> {
    let source = Mutex::new(Source { input, next: 0, bytes: 0, ended: false });
    let sink = Mutex::new(Sink { output, next: 0, failed: false });
    let turn = std::sync::Condvar::new();
    // Workers keep the order by waiting for their turn to write; each holds one piece.
    work.pool.run(
        u64_of(work.pool.threads()),
        || (),
        |(), _| {
            loop {
                let mut buf = Buffer::new(CHUNK);
                let (piece, len) = {
                    let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
                    let len = source.fill(&mut buf);
                    let len = match len {
                        Ok(0) => return Ok::<_, Error>(()),
                        Ok(len) => len,
                        Err(error) => {
                            source.ended = true;
                            stop(&sink, &turn);
                            return Err(error.into());
                        }
                    };
                    source.next += 1;
                    (source.next - 1, len)
                };
                let whole = len - len % cipher.sector_size();
                let result = cipher.run(direction, piece * (u64_of(CHUNK) / 512), &mut buf[..whole]);
                let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                while sink.next != piece && !sink.failed {
                    sink = turn.wait(sink).unwrap_or_else(PoisonError::into_inner);
                }
                if sink.failed {
                    return Ok(());
                }
                let written = result.and_then(|()| {
                    sink.output.write_all(&buf[..whole])?;
                    work.events.advance(u64_of(whole))
                });
                let part = if whole == len { Ok(()) } else { Err(part_sector(cipher, len)) };
                sink.next += 1;
                sink.failed = written.is_err() || part.is_err();
                turn.notify_all();
                written.and(part)?;
            }
        },
    )?;
    // Whoever interrupts a pipeline ends the input too, and that must not pass for its true end.
    work.events.advance(0)?;
    let sink = sink.into_inner().unwrap_or_else(PoisonError::into_inner);
    sink.output.flush()?;
    Ok(source.into_inner().unwrap_or_else(PoisonError::into_inner).bytes)
}

/// Refuses, before anything is written, an image that can't be transformed to its end.
pub(crate) fn check_size(cipher: &SectorCipher, size: u64) -> Result<(), Error> {
    let sector = u64_of(cipher.sector_size());
    if !size.is_multiple_of(sector) {
        return Err(Error::argument(format!(
            "the image has {size} bytes, not a multiple of the sector size {sector}; {} bytes are left over",
            size % sector
        )));
    }
    cipher.first_iv(0, size).map(drop)
}

fn part_sector(cipher: &SectorCipher, len: usize) -> Error {
    let sector = cipher.sector_size();
    Error::argument(format!(
        "the input ended within a sector: {} bytes are left over, and sectors have {sector}; nothing of them was written",
        len % sector
    ))
}

fn stop(sink: &Mutex<Sink<'_>>, turn: &std::sync::Condvar) {
    sink.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
    turn.notify_all();
}

/// Input in order, for the worker that asks next.
struct Source<'a> {
    input: &'a mut (dyn Read + Send),
    next: u64,
    bytes: u64,
    ended: bool,
}

impl Source<'_> {
    fn fill(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut len = 0;
        while len < buf.len() && !self.ended {
            match self.input.read(&mut buf[len..]) {
                Ok(0) => self.ended = true,
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes += u64_of(len);
        Ok(len)
    }
}

/// Output in order.
struct Sink<'a> {
    output: &'a mut (dyn Write + Send),
    next: u64,
    failed: bool,
}
