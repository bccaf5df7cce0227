//! Base64 streams of any length in bounded memory.

use std::io::{self, Read, Write};

use crate::Error;
use casemate_blockdev::u64_of;

pub use casemate_primitives::base64::{
    Alphabet, AlphabetError, Base64, DecodeError, DecodeErrorKind, Padding,
};

/// Where a codec reads and writes, with the names that errors show.
pub struct Stream<'a> {
    /// The input, which is read to its end.
    pub input: &'a mut dyn Read,
    /// The input's name.
    pub input_name: &'a str,
    /// The output.
    pub output: &'a mut dyn Write,
    /// The output's name.
    pub output_name: &'a str,
}

/// Bytes of data in one step: with its text it stays in the second cache.
const CHUNK: usize = 96 * 1024;

impl Stream<'_> {
    /// Writes the input's text, with a line end after every `wrap` characters and after the last one; without any
    /// line end if `wrap` is 0. This is the form that coreutils' base64 writes.
    ///
    /// # Errors
    /// `Io`.
    pub fn encode(mut self, codec: &Base64<'_>, wrap: usize) -> Result<(), Error> {
        let mut data = Vec::with_capacity(CHUNK);
        let mut text = vec![0; codec.encoded_len(CHUNK)];
        let mut lines = Vec::new();
        let mut column = 0;
        loop {
            // A whole number of groups, unless it is the end.
            self.read(&mut data, CHUNK)?;
            let len = codec.encode(&data, &mut text);
            if wrap == 0 {
                self.write(&text[..len])?;
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
                self.write(&lines)?;
            }
            if data.len() < CHUNK {
                break;
            }
        }
        if column > 0 {
            self.write(b"\n")?;
        }
        self.flush()
    }

    /// Writes what the input's text stands for. Line feeds are skipped if `skip_line_feeds`, but for one at
    /// the end, which is always; everything else is decoded as strictly as by [`Base64::decode`], as one text.
    ///
    /// # Errors
    /// `Corrupt` for the first thing that is wrong with the text, with its position in the input. What comes before it
    /// may have been written.
    pub fn decode(mut self, codec: &Base64<'_>, skip_line_feeds: bool) -> Result<(), Error> {
        // Within a text there is no padding, wherever it was cut.
        let inner = codec.with_padding(Padding::Unpadded);
        let skipped = |byte: &u8| skip_line_feeds && *byte == b'\n';
        let (mut raw, mut text, mut data) = (Vec::with_capacity(CHUNK), Vec::new(), vec![0; CHUNK + 4]);
        // Where the raw bytes and the characters that were held back lie in the input.
        let mut raw_start = 0;
        let mut held: Vec<usize> = Vec::new();
        loop {
            self.read(&mut raw, CHUNK)?;
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
            let decoded = if last { codec } else { &inner }.decode(&text[..now], &mut data);
            let place = |index: usize| {
                if let Some(position) = held.get(index) {
                    return *position;
                }
                let mut of_raw = raw.iter().enumerate().filter(|(_, byte)| !skipped(byte));
                raw_start + of_raw.nth(index - held.len()).map_or(raw.len(), |(i, _)| i)
            };
            let len = decoded.map_err(|error| {
                let error = DecodeError { position: place(error.position), ..error };
                Error::corrupt(format!("{}: {error}", self.input_name))
            })?;
            self.write(&data[..len])?;
            if last {
                return self.flush();
            }
            let of_raw = raw.iter().enumerate().rev().filter(|(_, byte)| !skipped(byte));
            let positions = of_raw.map(|(i, _)| raw_start + i).chain(held.iter().rev().copied());
            held = positions.take(keep).collect();
            held.reverse();
            text.drain(..now);
            raw_start += raw.len();
        }
    }

    /// Reads `len` bytes, or less at the end of the input.
    fn read(&mut self, bytes: &mut Vec<u8>, len: usize) -> Result<(), Error> {
        bytes.clear();
        let mut part = (&mut *self.input).take(u64_of(len));
        part.read_to_end(bytes).map_err(|error| Error::io(self.input_name, error))?;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.output.write_all(bytes);
        written.map_err(|error| self.failed(error))
    }

    fn flush(&mut self) -> Result<(), Error> {
        let flushed = self.output.flush();
        flushed.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::io(self.output_name, error)
    }
}

#[cfg(test)]
mod tests {
    use casemate_primitives::Cpu;
    use casemate_testkit::Rng;

    use super::*;

    /// Gives a few bytes at a time, as a pipe may.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let len = buf.len().min(10_007);
            self.0.read(&mut buf[..len])
        }
    }

    fn run(input: &[u8], work: impl FnOnce(Stream<'_>) -> Result<(), Error>) -> Result<Vec<u8>, Error> {
        let mut output = Vec::new();
        let input = &mut Trickle(input);
        work(Stream { input, input_name: "in", output: &mut output, output_name: "out" })?;
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
                    let text = run(&data[..len], |stream| stream.encode(&codec, wrap)).unwrap();
                    let mut lines = Vec::new();
                    for line in whole.as_bytes().chunks(if wrap == 0 { usize::MAX } else { wrap }) {
                        lines.extend_from_slice(line);
                        lines.extend_from_slice(if wrap == 0 { b"" } else { b"\n" });
                    }
                    assert!(text == lines, "{padding:?}, {len} bytes, wrap {wrap}");
                    let back = run(&text, |stream| stream.decode(&codec, true)).unwrap();
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
            let mut text = run(&data[..len], |stream| stream.encode(&codec, 61)).unwrap();
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
            let found = run(&text, |stream| stream.decode(&codec, true)).map_err(|error| error.to_string());
            let expected = codec.decode_to_vec(&plain).map_err(|error| {
                let position = positions.get(error.position).copied().unwrap_or(text.len());
                format!("in: {}", DecodeError { position, ..error })
            });
            assert!(found == expected, "round {round}: {:?} {:?}", found.err(), expected.err());
            if let Ok(strict) = run(&text, |stream| stream.decode(&codec, false)) {
                assert!(strict.is_empty(), "line feeds were skipped");
            }
        }
    }
}
