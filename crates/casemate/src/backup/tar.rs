//! Reading tar streams in the pax format, member by member: as much of it as backups have.

use std::io::{self, Read};
use std::ops::Range;

use casemate_ext4::Record;

use crate::Error;

/// Bytes of a record: headers are one, contents fill whole ones.
const RECORD: usize = 512;

/// Bytes of extended headers that are taken: attributes have at most 64 MiB in ext4.
const MOST_HEADER: u64 = 80 << 20;

/// Ranges of a sparse member that are taken.
const MOST_RANGES: u64 = 1 << 22;

/// Reads members one after the other.
pub(super) struct TarReader<'a> {
    input: &'a mut dyn Read,
    name: &'a str,
    /// Bytes of this member's contents that were not read yet, and what fills its last record.
    left: u64,
    fill: u64,
}

/// One member's header.
#[derive(Debug, Default)]
pub(super) struct Member {
    pub path: Vec<u8>,
    pub kind: u8,
    pub link: Vec<u8>,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified: Time,
    pub accessed: Option<Time>,
    pub device: (u32, u32),
    /// The file's size, holes included.
    pub size: u64,
    sparse: bool,
    /// All records, last ones first.
    records: Vec<Record>,
}

/// Seconds since 1970, and nanoseconds after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Time {
    pub seconds: i64,
    pub nanoseconds: u32,
}

impl Member {
    /// The value of a record.
    pub fn record(&self, key: &[u8]) -> Option<&[u8]> {
        self.records.iter().find(|(other, _)| other == key).map(|(_, value)| &value[..])
    }

    /// The records whose key begins with `prefix`, without it.
    pub fn records<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.records.iter().filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, &value[..])))
    }

    /// What is restored of it when its contents are there, and no kind.
    pub fn attributes(&self) -> Member {
        let xattrs = self.records.iter().filter(|(key, _)| key.starts_with(super::XATTR));
        Member {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            modified: self.modified,
            accessed: self.accessed,
            records: xattrs.cloned().collect(),
            ..Member::default()
        }
    }
}

impl<'a> TarReader<'a> {
    pub fn new(input: &'a mut dyn Read, name: &'a str) -> TarReader<'a> {
        TarReader { input, name, left: 0, fill: 0 }
    }

    /// The next member; `None` at the end. What was not read of the one before is skipped.
    pub fn next(&mut self) -> Result<Option<Member>, Error> {
        let mut member = Member::default();
        loop {
            let rest = self.left + self.fill;
            let skipped = io::copy(&mut (&mut *self.input).take(rest), &mut io::sink());
            if skipped.map_err(|error| self.io(error))? != rest {
                return Err(self.corrupt("it ends within a member"));
            }
            (self.left, self.fill) = (0, 0);
            let mut header = [0; RECORD];
            self.exact(&mut header)?;
            if header == [0; RECORD] {
                return Ok(None);
            }
            self.check_sum(&header)?;
            let size = self.number(&header[124..136])?;
            self.begin(size)?;
            match header[156] {
                b'x' => {
                    if size > MOST_HEADER {
                        return Err(self.corrupt("an extended header of more than 80 MiB"));
                    }
                    let mut body = Vec::new();
                    let read = (&mut *self.input).take(size).read_to_end(&mut body);
                    read.map_err(|error| self.io(error))?;
                    self.left -= body.len() as u64;
                    member.records = self.parse_records(&body)?;
                    member.records.reverse();
                }
                b'g' => {}
                b'L' | b'K' => {
                    let text = format!(
                        "{}: a tar stream in GNU's old format; write it with --format=pax",
                        self.name
                    );
                    return Err(Error::unsupported(text));
                }
                kind => {
                    member.kind = if kind == 0 { b'0' } else { kind };
                    self.finish(&header, &mut member)?;
                    return Ok(Some(member));
                }
            }
        }
    }

    /// Where the member's contents lie in the file: all of it, unless it is sparse. What is read from here on are these
    /// ranges, one after the other.
    pub fn ranges(&mut self, member: &Member) -> Result<Vec<Range<u64>>, Error> {
        if !member.sparse {
            let whole = 0..member.size;
            return Ok(Some(whole).filter(|whole| !whole.is_empty()).into_iter().collect());
        }
        let mut numbers = Vec::new();
        let mut number = 0u64;
        let mut wanted = 1;
        'map: loop {
            let mut record = [0; RECORD];
            self.read(&mut record)?;
            for byte in record {
                match byte {
                    b'0'..=b'9' => {
                        let next = number.checked_mul(10).and_then(|n| n.checked_add(u64::from(byte - b'0')));
                        number = next.ok_or_else(|| self.corrupt("a number in a map passes 2^64"))?;
                    }
                    b'\n' => {
                        if numbers.is_empty() && number > MOST_RANGES {
                            return Err(self.corrupt("a map of more than 2^22 ranges"));
                        }
                        if numbers.is_empty() {
                            wanted = 1 + 2 * number;
                        }
                        numbers.push(number);
                        number = 0;
                        if numbers.len() as u64 == wanted {
                            break 'map;
                        }
                    }
                    _ => return Err(self.corrupt("a map that is no list of numbers")),
                }
            }
        }
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut sum = 0u64;
        for pair in numbers[1..].as_chunks::<2>().0 {
            let [start, len] = *pair;
            let end = start.checked_add(len).filter(|end| *end <= member.size);
            let after = ranges.last().is_none_or(|last| last.end <= start);
            let Some(end) = end.filter(|_| after) else {
                return Err(self.corrupt("a map whose ranges overlap or pass the end"));
            };
            if len > 0 {
                ranges.push(start..end);
                sum += len;
            }
        }
        if sum != self.left {
            return Err(self.corrupt("a map that does not fit the contents"));
        }
        Ok(ranges)
    }

    /// Reads contents.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<(), Error> {
        self.left = self
            .left
            .checked_sub(buf.len() as u64)
            .ok_or_else(|| self.corrupt("a member's contents end early"))?;
        self.exact(buf)
    }

    fn begin(&mut self, size: u64) -> Result<(), Error> {
        let padded = size.checked_next_multiple_of(RECORD as u64);
        self.fill = padded.ok_or_else(|| self.corrupt("a size that passes 2^64"))? - size;
        self.left = size;
        Ok(())
    }

    /// Fills a member from its header; what its records say counts more.
    fn finish(&mut self, header: &[u8; RECORD], member: &mut Member) -> Result<(), Error> {
        let until_nul = |field: &[u8]| field.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        member.path = until_nul(&header[..100]);
        if &header[257..263] == b"ustar\0" && header[345] != 0 {
            member.path = [&until_nul(&header[345..500]), &b"/"[..], &member.path].concat();
        }
        member.link = until_nul(&header[157..257]);
        let small = |reader: &Self, field: &[u8]| -> Result<u32, Error> {
            u32::try_from(reader.number(field)?).map_err(|_| reader.corrupt("a number passes 2^32"))
        };
        member.mode = small(self, &header[100..108])?;
        member.uid = small(self, &header[108..116])?;
        member.gid = small(self, &header[116..124])?;
        let seconds = i64::try_from(self.number(&header[136..148])?).unwrap_or(0);
        member.modified = Time { seconds, nanoseconds: 0 };
        if matches!(member.kind, b'3' | b'4') {
            member.device = (small(self, &header[329..337])?, small(self, &header[337..345])?);
        }
        let text = |key: &str| {
            member.record(key.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let wrong = || self.corrupt("a record that is no number");
        let parse = |key: &str| text(key).map(|text| text.parse::<u64>().map_err(|_| wrong())).transpose();
        let stored = parse("size")?.unwrap_or(self.left);
        let (uid, gid) = (parse("uid")?, parse("gid")?);
        let time = |key: &str| text(key).map(|text| Time::parse(&text).ok_or_else(wrong)).transpose();
        let (modified, accessed) = (time("mtime")?, time("atime")?);
        let sparse = text("GNU.sparse.major").is_some_and(|major| major == "1");
        let real_size = parse("GNU.sparse.realsize")?;
        let path = member.record(b"GNU.sparse.name").or(member.record(b"path")).map(<[u8]>::to_vec);
        let link = member.record(b"linkpath").map(<[u8]>::to_vec);
        self.begin(if matches!(member.kind, b'0' | b'7') { stored } else { 0 })?;
        member.path = path.unwrap_or_else(|| std::mem::take(&mut member.path));
        member.link = link.unwrap_or_else(|| std::mem::take(&mut member.link));
        for (field, value) in [(&mut member.uid, uid), (&mut member.gid, gid)] {
            if let Some(value) = value {
                *field = u32::try_from(value).map_err(|_| self.corrupt("an owner passes 2^32"))?;
            }
        }
        member.modified = modified.unwrap_or(member.modified);
        member.accessed = accessed;
        member.sparse = sparse && member.kind == b'0';
        member.size = if member.sparse { real_size.unwrap_or(0) } else { self.left };
        Ok(())
    }

    /// "LENGTH KEY=VALUE\n", where the length counts itself, and keys have "=" as "%3D" and "%" as "%25".
    fn parse_records(&self, mut body: &[u8]) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        while !body.is_empty() {
            let record = (|| {
                let space = body.iter().take(20).position(|byte| *byte == b' ')?;
                let len: usize = str::from_utf8(&body[..space]).ok()?.parse().ok()?;
                let (record, rest) = body.split_at_checked(len)?;
                let text = record.get(space + 1..)?.strip_suffix(b"\n")?;
                let equals = text.iter().position(|byte| *byte == b'=')?;
                Some((text[..equals].to_vec(), text[equals + 1..].to_vec(), rest))
            })();
            let (key, value, rest) =
                record.ok_or_else(|| self.corrupt("an extended header of another form"))?;
            records.push((decoded(&key), value));
            body = rest;
        }
        Ok(records)
    }

    fn check_sum(&self, header: &[u8; RECORD]) -> Result<(), Error> {
        let sum = |range: Range<usize>| header[range].iter().map(|byte| u64::from(*byte)).sum::<u64>();
        // The field itself counts as spaces.
        let expected = sum(0..148) + 8 * u64::from(b' ') + sum(156..RECORD);
        match self.number(&header[148..156]) {
            Ok(found) if found == expected => Ok(()),
            _ => Err(self.corrupt("no tar header where one should be")),
        }
    }

    /// A field of octal digits, or of big-endian bytes after a set bit, as GNU tar writes large ones.
    fn number(&self, field: &[u8]) -> Result<u64, Error> {
        let wrong = || self.corrupt("a field of a header is no number");
        if field[0] == 0x80 {
            let (zeros, bytes) = field[1..].split_at(field.len() - 9.min(field.len()));
            if zeros.iter().any(|byte| *byte != 0) {
                return Err(wrong());
            }
            return Ok(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)));
        }
        let text = field.split(|byte| matches!(byte, 0 | b' ')).find(|part| !part.is_empty()).unwrap_or(b"0");
        str::from_utf8(text).ok().and_then(|text| u64::from_str_radix(text, 8).ok()).ok_or_else(wrong)
    }

    fn exact(&mut self, buf: &mut [u8]) -> Result<(), Error> {
        self.input.read_exact(buf).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.corrupt("it ends within a member"),
            _ => self.io(error),
        })
    }

    pub fn corrupt(&self, what: &str) -> Error {
        Error::corrupt(format!("{}: backup: {what}", self.name))
    }

    fn io(&self, error: io::Error) -> Error {
        Error::io(self.name, error)
    }
}

/// A key as it was before it was written.
fn decoded(mut key: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while let [first, rest @ ..] = key {
        let (byte, rest) = match key {
            [b'%', b'3', b'D', rest @ ..] => (b'=', rest),
            [b'%', b'2', b'5', rest @ ..] => (b'%', rest),
            _ => (*first, rest),
        };
        plain.push(byte);
        key = rest;
    }
    plain
}

impl Time {
    /// From decimal seconds; a fraction counts away from zero before 1970.
    fn parse(text: &str) -> Option<Time> {
        let (sign, text) = match text.strip_prefix('-') {
            Some(text) => (-1, text),
            None => (1, text),
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
        let seconds: i64 = whole.parse().ok().filter(|seconds| *seconds >= 0)?;
        let nanoseconds: u32 =
            digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())??;
        Some(match (sign, nanoseconds) {
            (1, _) => Time { seconds, nanoseconds },
            (_, 0) => Time { seconds: -seconds, nanoseconds },
            _ => Time { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_gnu_tar_writes_them() {
        for (written, key) in [
            ("SCHILY.xattr.user.a%3Db", "SCHILY.xattr.user.a=b"),
            ("user.100%25", "user.100%"),
            ("%253D%2525", "%3D%25"),
            ("100%", "100%"),
            ("%3", "%3"),
            ("%41", "%41"),
        ] {
            assert_eq!(decoded(written.as_bytes()), key.as_bytes(), "{written}");
        }
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        let parse = |text| Time::parse(text).map(|time| (time.seconds, time.nanoseconds));
        assert_eq!(parse("5.25"), Some((5, 250_000_000)));
        assert_eq!(parse("-0.25"), Some((-1, 750_000_000)));
        assert_eq!(parse("-3"), Some((-3, 0)));
        assert_eq!(parse("7.1234567899"), Some((7, 123_456_789)));
        for wrong in ["", "x", "--1", "1.x", "99999999999999999999"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
