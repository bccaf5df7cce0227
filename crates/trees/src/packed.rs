//! Compressed streams: gzip and zstd, known by their first bytes.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use casemate_blockdev::u64_of;

use crate::{Error, Result};

/// Bytes that tell how a stream is compressed.
const TELLING: usize = 10;

/// Bytes that are read ahead of a decoder.
const AHEAD: usize = 1 << 17;

/// Formats that are known and not read, and the programs that do.
const OTHERS: [(&[u8], &str, &str); 3] = [
    (b"\xfd7zXZ\0", "xz", "xzcat"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4cat"),
    // The first block's begin, too: names in tar streams may begin with three letters.
    (b"1AY&SY", "bzip2", "bzcat"),
];

/// A way in which a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// RFC 1952, several of them behind each other too.
    Gzip,
    /// RFC 8878, several frames and such as are skipped among them. A window has at most 128 MiB.
    Zstd,
}

impl Packing {
    /// How a stream with this beginning is compressed; `None` for one that is not.
    ///
    /// # Errors
    /// `Unsupported` for other formats.
    pub fn of(begin: &[u8]) -> Result<Option<Packing>> {
        for (magic, name, program) in OTHERS {
            let begin = if name == "bzip2" { begin.get(4..).unwrap_or_default() } else { begin };
            if begin.starts_with(magic) {
                return Err(Error::unsupported(format!(
                    "the stream is compressed with {name}; unpack it with {program} first"
                )));
            }
        }
        Ok(match begin {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Packing::Zstd),
            _ => None,
        })
    }

    /// The uncompressed stream.
    pub fn reader<'a>(self, input: impl Read + 'a) -> Box<dyn Read + 'a> {
        let input = BufReader::with_capacity(AHEAD, input);
        match self {
            Packing::Gzip => Box::new(Gzip(MultiGzDecoder::new(input))),
            Packing::Zstd => Box::new(Zstd { input, decoder: FrameDecoder::new(), in_frame: false }),
        }
    }
}

/// The bytes of a stream, before it was compressed if it is.
///
/// # Errors
/// `Unsupported` for other formats than gzip and zstd; what reading says.
pub fn unpacked<'a>(mut input: impl Read + 'a) -> Result<Box<dyn Read + 'a>> {
    let mut begin = Vec::new();
    (&mut input).take(u64_of(TELLING)).read_to_end(&mut begin)?;
    let packing = Packing::of(&begin)?;
    let whole = io::Cursor::new(begin).chain(input);
    Ok(match packing {
        Some(packing) => packing.reader(whole),
        None => Box::new(whole),
    })
}

struct Gzip<R>(MultiGzDecoder<R>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::InvalidData => damaged("gzip", error),
            ErrorKind::UnexpectedEof => damaged("gzip", "it ends early"),
            _ => error,
        })
    }
}

struct Zstd<R> {
    input: R,
    decoder: FrameDecoder,
    /// Whether a frame was begun and is not read to its end.
    in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame, unless the stream ends here.
    fn begin(&mut self) -> io::Result<()> {
        while !self.in_frame && !self.input.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.input) {
                Ok(()) => self.in_frame = true,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.input).take(length), &mut io::sink())? != length {
                        return Err(damaged("zstd", "it ends within a frame that is skipped"));
                    }
                }
                Err(error) => return Err(damaged("zstd", error)),
            }
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            self.begin()?;
            if !self.in_frame || buf.is_empty() {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let decoded =
                    self.decoder.decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1));
                decoded.map_err(|error| damaged("zstd", error))?;
            }
            let len = self.decoder.read(buf)?;
            if len > 0 {
                return Ok(len);
            }
            let stored = self.decoder.get_checksum_from_data();
            if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
                return Err(damaged("zstd", "the checksum of a frame is not that of its contents"));
            }
            self.in_frame = false;
        }
    }
}

fn damaged(format: &str, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{format} stream: {what}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// The output of a program for these bytes.
    fn through(program: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let program = casemate_testkit::tool(program)?;
        let mut child =
            Command::new(program).arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            scope.spawn(move || input.write_all(bytes));
            child.wait_with_output().unwrap()
        });
        Some(output.stdout)
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        let mut reader = unpacked(bytes).map_err(|error| io::Error::other(error.to_string()))?;
        reader.read_to_end(&mut read).map(|_| read)
    }

    #[test]
    fn streams_are_what_they_were() {
        let text: Vec<u8> = (0..300_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        assert_eq!(read(&text).unwrap(), text);
        assert_eq!(read(b"").unwrap(), b"");
        for program in ["gzip", "zstd"] {
            let Some(packed) = through(program, &text) else { continue };
            assert!(packed.len() < text.len());
            assert_eq!(read(&packed).unwrap(), text, "{program}");
            let twice = [&packed[..], &packed].concat();
            assert_eq!(read(&twice).unwrap().len(), 2 * text.len(), "{program}");
            // A bit that is wrong, and an end that is missing, are told.
            for at in [packed.len() / 2, packed.len() - 6, packed.len() - 2] {
                let mut damaged = packed.clone();
                damaged[at] ^= 4;
                assert!(read(&damaged).unwrap_err().to_string().starts_with(program), "{program} {at}");
                assert!(read(&packed[..at]).unwrap_err().to_string().starts_with(program), "{program} {at}");
            }
            if program == "zstd" {
                let skipped = [b"\x5a\x2a\x4d\x18\x03\0\0\0abc", &packed[..]].concat();
                assert_eq!(read(&skipped).unwrap(), text);
                assert!(read(&skipped[..9]).is_err());
            }
        }
        for begin in [&b"\xfd7zXZ\0..."[..], b"BZh91AY&SY", b"\x04\x22\x4d\x18"] {
            assert!(read(begin).unwrap_err().to_string().contains("compressed with"), "{begin:?}");
        }
        assert_eq!(read(b"BZh9 is a name").unwrap(), b"BZh9 is a name");
    }
}
