//! Base64 streams of any length in bounded memory.

use std::fmt;
use std::io::{self, Read, Write};

use super::{Base64, DecodeError, Padding};

/// Failure of a stream.
#[derive(Debug)]
pub enum StreamError {
    /// The input can't be read.
    Input(io::Error),
    /// The output can't be written.
    Output(io::Error),
    /// The first thing that is wrong with the text, with its position in the input.
    Text(DecodeError),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Input(error) | StreamError::Output(error) => error.fmt(f),
            StreamError::Text(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StreamError {}

/// Bytes of data in one step: with its text it stays in the second cache.
const CHUNK: usize = 96 * 1024;

impl Base64<'_> {
    /// Writes the input's text, with a line end after every `wrap` characters and after the last one; without any
    /// line end if `wrap` is 0. This is the form that coreutils' base64 writes.
    ///
    /// # Errors
    /// Errors of input and output.
    pub fn encode_stream(
        &self,
        input: &mut dyn Read,
        output: &mut dyn Write,
        wrap: usize,
    ) -> Result<(), StreamError> {
        let mut data = Vec::with_capacity(CHUNK);
        let mut text = vec![0; self.encoded_len(CHUNK)];
        let mut lines = Vec::new();
        let mut column = 0;
        loop {
            // A whole number of groups, unless it is the end.
            read(input, &mut data)?;
            let len = self.encode(&data, &mut text);
            if wrap == 0 {
                output.write_all(&text[..len]).map_err(StreamError::Output)?;
            } else {
                lines.clear();
                let mut rest = &text[..len];
                while !rest.is_empty() {
                    let (line, next) = rest.split_at(rest.len().min(wrap - column));
                    lines.extend_from_slice(line);
                    column += line.len();
                    rest = next;
                    if column == wrap {
                        lines.push(b'\n');
                        column = 0;
                    }
                }
                output.write_all(&lines).map_err(StreamError::Output)?;
            }
            if data.len() < CHUNK {
                break;
            }
        }
        if column > 0 {
            output.write_all(b"\n").map_err(StreamError::Output)?;
        }
        output.flush().map_err(StreamError::Output)
    }

    /// Writes what the input's text stands for. Line feeds are skipped if `skip_line_feeds`, but for one at
    /// the end, which is always; everything else is decoded as strictly as by [`Base64::decode`], as one text.
    ///
    /// # Errors
    /// Errors of input and output, and the first of the text. What comes before that may have been written.
    pub fn decode_stream(
        &self,
        input: &mut dyn Read,
        output: &mut dyn Write,
        skip_line_feeds: bool,
    ) -> Result<(), StreamError> {
        // Within a text there is no padding, wherever it was cut.
        let inner = self.with_padding(Padding::Unpadded);
        let skipped = |byte: &u8| skip_line_feeds && *byte == b'\n';
        let (mut raw, mut text, mut data) = (Vec::with_capacity(CHUNK), Vec::new(), vec![0; CHUNK + 4]);
        // Where the raw bytes and the characters that were held back lie in the input.
        let mut raw_start = 0;
        let mut held: Vec<usize> = Vec::new();
        loop {
            read(input, &mut raw)?;
            let last = raw.len() < CHUNK;
            if skip_line_feeds {
                raw.split(skipped).for_each(|line| text.extend_from_slice(line));
            } else {
                text.extend_from_slice(&raw);
            }
            if last && text.last() == Some(&b'\n') {
                text.pop();
            }
            // A group is held back until it is known whether it is the text's last one, which may be padded.
            let keep = if last { 0 } else { text.len().min((text.len() + 3) % 4 + 1) };
            let now = text.len() - keep;
            let decoded = if last { self } else { &inner }.decode(&text[..now], &mut data);
            let place = |index: usize| {
                if let Some(position) = held.get(index) {
                    return *position;
                }
                let mut of_raw = raw.iter().enumerate().filter(|(_, byte)| !skipped(byte));
                raw_start + of_raw.nth(index - held.len()).map_or(raw.len(), |(i, _)| i)
            };
            let len = decoded.map_err(|error| {
                StreamError::Text(DecodeError { position: place(error.position), ..error })
            })?;
            output.write_all(&data[..len]).map_err(StreamError::Output)?;
            if last {
                return output.flush().map_err(StreamError::Output);
            }
            let of_raw = raw.iter().enumerate().rev().filter(|(_, byte)| !skipped(byte));
            let positions = of_raw.map(|(i, _)| raw_start + i).chain(held.iter().rev().copied());
            held = positions.take(keep).collect();
            held.reverse();
            text.drain(..now);
            raw_start += raw.len();
        }
    }
}

/// Reads a [`CHUNK`], or less at the end of the input.
fn read(input: &mut dyn Read, bytes: &mut Vec<u8>) -> Result<(), StreamError> {
    bytes.clear();
    // OK to cast: it is small.
    input.take(CHUNK as u64).read_to_end(bytes).map(drop).map_err(StreamError::Input)
}

#[cfg(test)]
mod tests {
    use casemate_testkit::Rng;

    use super::*;
    use crate::Cpu;
    use crate::base64::Alphabet;

    /// Gives a few bytes at a time, as a pipe may.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let len = buf.len().min(10_007);
            self.0.read(&mut buf[..len])
        }
    }

    fn run(
        input: &[u8],
        work: impl FnOnce(&mut dyn Read, &mut dyn Write) -> Result<(), StreamError>,
    ) -> Result<Vec<u8>, StreamError> {
        let mut output = Vec::new();
        work(&mut Trickle(input), &mut output)?;
        Ok(output)
    }

    fn codec(padding: Padding) -> Base64<'static> {
        Base64::new(Cpu::detect(), &Alphabet::STANDARD, padding)
    }

    #[test]
    fn streams_come_back_whatever_their_length_and_lines() {
        let data = Rng::new(3).bytes(3 * CHUNK);
        for padding in [Padding::Padded, Padding::Unpadded] {
            let codec = codec(padding);
            for len in
                [0, 1, 2, 3, 4, 57, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK / 4 * 3 - 2, CHUNK / 4 * 3, 3 * CHUNK]
            {
                let whole = codec.encode_to_string(&data[..len]);
                for wrap in [0, 1, 3, 76, 1 << 20] {
                    let text = run(&data[..len], |from, to| codec.encode_stream(from, to, wrap)).unwrap();
                    let mut lines = Vec::new();
                    for line in whole.as_bytes().chunks(if wrap == 0 { usize::MAX } else { wrap }) {
                        lines.extend_from_slice(line);
                        lines.extend_from_slice(if wrap == 0 { b"" } else { b"\n" });
                    }
                    assert!(text == lines, "{padding:?}, {len} bytes, wrap {wrap}");
                    let back = run(&text, |from, to| codec.decode_stream(from, to, true)).unwrap();
                    assert!(back == data[..len], "{padding:?}, {len} bytes, wrap {wrap}");
                }
            }
        }
    }

    /// One fault anywhere is found where the whole text's decoder finds it.
    #[test]
    fn positions_are_those_in_the_input() {
        let mut rng = Rng::new(4);
        let data = rng.bytes(2 * CHUNK);
        for round in 0..200 {
            let codec = codec(if round % 2 == 0 { Padding::Padded } else { Padding::Unpadded });
            let len = CHUNK + rng.below(CHUNK as u64) as usize;
            let mut text = run(&data[..len], |from, to| codec.encode_stream(from, to, 61)).unwrap();
            let near_cut =
                [CHUNK - 3, CHUNK - 2, CHUNK - 1, CHUNK, CHUNK + 1, text.len() - 2, text.len() - 4];
            let at = match rng.below(3) {
                0 => rng.below(text.len() as u64) as usize,
                _ => near_cut[rng.below(near_cut.len() as u64) as usize],
            };
            match rng.below(4) {
                0 => text.truncate(at),
                1 => text[at] = b'=',
                2 => text.insert(at, b'A'),
                _ => text[at] = b' ',
            }
            let positions: Vec<usize> = (0..text.len()).filter(|i| text[*i] != b'\n').collect();
            let plain: Vec<u8> = positions.iter().map(|i| text[*i]).collect();
            let found =
                run(&text, |from, to| codec.decode_stream(from, to, true)).map_err(|error| error.to_string());
            let expected = codec.decode_to_vec(&plain).map_err(|error| {
                let position = positions.get(error.position).copied().unwrap_or(text.len());
                DecodeError { position, ..error }.to_string()
            });
            assert!(found == expected, "round {round}: {:?} {:?}", found.err(), expected.err());
            if let Ok(strict) = run(&text, |from, to| codec.decode_stream(from, to, false)) {
                assert!(strict.is_empty(), "line feeds were skipped");
            }
        }
    }
}
