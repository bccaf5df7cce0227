//! Reading tar streams: pax, ustar, GNU tar's own format and what was before them.

use std::io::{self, Read};
use std::ops::Range;

use casemate_blockdev::u64_of;

use super::{Member, RECORD, Record, Sparse, map, records};
use crate::{Error, FileType, Link, Node, Result, Time};

/// Bytes of extended headers that are taken: attributes have at most 64 MiB in ext4.
const MOST_HEADER: u64 = 80 << 20;

/// Limit of headers for all members behind them, and of names.
const MOST_COMMON: u64 = 1 << 16;

/// Bytes behind the end that are read, so that a writer does not find its pipe broken: what GNU tar fills up.
const MOST_BEHIND: u64 = 1 << 20;

/// A tar stream that is read, one member after the other.
pub struct TarReader<'a> {
    input: &'a mut dyn Read,
    name: &'a str,
    /// Bytes of this member's contents that were not read yet, and what fills its last record.
    left: u64,
    fill: u64,
    /// Records for all members from here on.
    common: Vec<Record>,
    has_members: bool,
    end: End,
}

/// End of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Zeros.
    Zeros,
    /// Zeros, or nothing behind a member.
    Nothing,
    /// There was nothing.
    Found,
}

/// Headers before a member's own.
#[derive(Default)]
struct Before {
    records: Vec<Record>,
    /// Starts and lengths of the oldest sparse format of pax.
    numbers: Vec<u64>,
    /// GNU tar's long path, and the same of a link.
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

impl Before {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.path.is_none() && self.link.is_none()
    }
}

impl<'a> TarReader<'a> {
    /// The tar stream of `input`, which errors call `name`.
    pub fn new(input: &'a mut dyn Read, name: &'a str) -> TarReader<'a> {
        TarReader { input, name, left: 0, fill: 0, common: Vec::new(), has_members: false, end: End::Zeros }
    }

    /// Takes streams, too, that end behind a member without the zeros that end a tar stream, as some programs leave them out.
    /// One that was cut short just there is not told from these: [`is_open`](TarReader::is_open) says that it was so.
    pub fn or_open(self) -> TarReader<'a> {
        TarReader { end: End::Nothing, ..self }
    }

    /// Whether the stream had no end.
    pub fn is_open(&self) -> bool {
        self.end == End::Found
    }

    /// The next member; `None` at the end. What was not read of the one before is skipped.
    ///
    /// # Errors
    /// `Corrupt` if it is not a tar stream, or one that was cut short; `Unsupported` for members that are not files.
    #[allow(clippy::should_implement_trait, reason = "an iterator can't fail so that nothing comes after it")]
    pub fn next(&mut self) -> Result<Option<Member>> {
        let mut before = Before::default();
        loop {
            self.skip()?;
            let mut header = [0; RECORD];
            let len = self.some(&mut header)?;
            if len == 0 && before.is_empty() && self.has_members && self.end == End::Nothing {
                self.end = End::Found;
                return Ok(None);
            }
            if len < RECORD {
                return Err(self.corrupt("it ends within a member"));
            }
            if header == [0; RECORD] {
                return self.pass_end().map(|()| None);
            }
            self.check_sum(&header)?;
            let size = self.number(&header[124..136])?;
            self.begin(size)?;
            match header[156] {
                b'x' => {
                    let body = self.body(MOST_HEADER)?;
                    let parsed = records::parse(&body, &mut before.numbers);
                    before.records = parsed.map_err(|what| self.corrupt(what))?;
                    before.records.reverse();
                }
                b'g' => {
                    let body = self.body(MOST_COMMON)?;
                    let mut records =
                        records::parse(&body, &mut Vec::new()).map_err(|what| self.corrupt(what))?;
                    records.reverse();
                    let old = std::mem::take(&mut self.common);
                    let other = |record: &Record| !records.iter().any(|(key, _)| *key == record.0);
                    let kept: Vec<_> = old.into_iter().filter(other).collect();
                    records.extend(kept);
                    if u64_of(records.len()) > MOST_COMMON / 8 {
                        return Err(self.corrupt("too many records for all members"));
                    }
                    self.common = records;
                }
                b'L' => before.path = Some(until_nul(&self.body(MOST_COMMON)?).to_vec()),
                b'K' => before.link = Some(until_nul(&self.body(MOST_COMMON)?).to_vec()),
                // The name of the whole stream.
                b'V' => {}
                _ => {
                    self.has_members = true;
                    return self.member(&header, before).map(Some);
                }
            }
        }
    }

    /// Where the contents of the member that was just read lie in the file: all of it, unless it is sparse. What is
    /// read from here on are these ranges, one after the other.
    ///
    /// # Errors
    /// `Corrupt` for a map that contradicts itself or the member.
    pub fn ranges(&mut self, member: &Member) -> Result<Vec<Range<u64>>> {
        let ranges = match &member.sparse {
            None => {
                let whole = 0..member.size;
                return Ok(Some(whole).filter(|whole| !whole.is_empty()).into_iter().collect());
            }
            Some(Sparse::Listed(ranges)) => ranges.clone(),
            Some(Sparse::Inside) => {
                let mut numbers = map::Numbers::default();
                loop {
                    let mut record = [0; RECORD];
                    self.read(&mut record)?;
                    if let Some(all) = numbers.take(&record).map_err(|what| self.corrupt(what))? {
                        break map::ranges(all, member.size).map_err(|what| self.corrupt(what))?;
                    }
                }
            }
        };
        // No two overlap, and all are within the file.
        if ranges.iter().map(|range| range.end - range.start).sum::<u64>() != self.left {
            return Err(self.corrupt("the map does not fit the contents"));
        }
        Ok(ranges)
    }

    /// Reads contents of the member that was just read.
    ///
    /// # Errors
    /// `Corrupt` when there are fewer.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<()> {
        self.left = self
            .left
            .checked_sub(u64_of(buf.len()))
            .ok_or_else(|| self.corrupt("a member's contents end early"))?;
        self.exact(buf)
    }

    /// Tells the input how many bytes of the member that was just read are left, with what fills its last record. An input
    /// that passes over them says so; else they are read.
    pub fn pass(&mut self, by: impl FnOnce(u64) -> bool) {
        // No overflow: their sum was checked.
        if by(self.left + self.fill) {
            (self.left, self.fill) = (0, 0);
        }
    }

    /// The error of a damaged stream, with its name.
    pub fn corrupt(&self, what: &str) -> Error {
        Error::corrupt(format!("tar stream: {what}")).at(self.name)
    }

    fn skip(&mut self) -> Result<()> {
        for part in [self.left, self.fill] {
            let skipped = io::copy(&mut (&mut *self.input).take(part), &mut io::sink());
            if skipped.map_err(|error| self.io(error))? != part {
                return Err(self.corrupt("it ends within a member"));
            }
        }
        (self.left, self.fill) = (0, 0);
        Ok(())
    }

    fn begin(&mut self, size: u64) -> Result<()> {
        let padded = size.checked_next_multiple_of(u64_of(RECORD));
        self.fill = padded.ok_or_else(|| self.corrupt("the size passes 2^64"))? - size;
        self.left = size;
        Ok(())
    }

    /// All contents of a header that stands before others.
    fn body(&mut self, most: u64) -> Result<Vec<u8>> {
        if self.left > most {
            return Err(self.corrupt(&format!("an extended header is larger than {} KiB", most >> 10)));
        }
        let mut body = Vec::new();
        let read = (&mut *self.input).take(self.left).read_to_end(&mut body);
        read.map_err(|error| self.io(error))?;
        self.left -= u64_of(body.len());
        Ok(body)
    }

    /// A member of its header and what came before it, which counts more.
    fn member(&mut self, header: &[u8; RECORD], before: Before) -> Result<Member> {
        let Before { mut records, numbers, path, link } = before;
        records.extend(self.common.iter().cloned());
        let node = Node {
            mode: u16::try_from(self.number(&header[100..108])? & 0o7777).unwrap_or(0),
            uid: self.id(&header[108..116])?,
            gid: self.id(&header[116..124])?,
            modified: Time { seconds: self.signed(&header[136..148])?, nanoseconds: 0 },
            ..Node::new(FileType::Regular)
        };
        let mut member = Member::new(path.unwrap_or_else(|| plain_path(header)), node, None);
        let mut target = link.unwrap_or_else(|| until_nul(&header[157..257]).to_vec());
        member.records = records;

        // A value that is empty says that the header's counts.
        let text = |key: &str| {
            let value = member.record(key.as_bytes()).filter(|value| !value.is_empty())?;
            Some(String::from_utf8_lossy(value).into_owned())
        };
        let wrong = || self.corrupt("a record is not a number");
        let parse = |key: &str| text(key).map(|text| text.parse::<u64>().map_err(|_| wrong())).transpose();
        let time = |key: &str| text(key).map(|text| Time::from_decimal(&text).ok_or_else(wrong)).transpose();
        let stored = parse("size")?.unwrap_or(self.left);
        let (uid, gid) = (parse("uid")?, parse("gid")?);
        let (modified, accessed) = (time("mtime")?, time("atime")?);
        let is_inside = text("GNU.sparse.major").is_some_and(|major| major == "1");
        let real_size = parse("GNU.sparse.realsize")?.or(parse("GNU.sparse.size")?);
        let list = member.record(b"GNU.sparse.map").map(<[u8]>::to_vec);
        let bytes = |key: &[u8]| member.record(key).filter(|value| !value.is_empty()).map(<[u8]>::to_vec);
        let path = bytes(b"GNU.sparse.name").or_else(|| bytes(b"path"));
        if let Some(link) = bytes(b"linkpath") {
            target = link;
        }

        if let Some(path) = path {
            member.path = path;
        }
        for (field, value) in [(&mut member.node.uid, uid), (&mut member.node.gid, gid)] {
            if let Some(value) = value {
                *field = u32::try_from(value).map_err(|_| self.corrupt("an owner passes 2^32"))?;
            }
        }
        member.node.modified = modified.unwrap_or(member.node.modified);
        member.node.accessed = accessed;
        let mut is_sparse = false;
        match header[156] {
            // What ends in a slash is a directory to programs from before there was a letter for them.
            0 | b'0' if member.path.ends_with(b"/") => member.node.kind = FileType::Directory,
            0 | b'0' | b'7' => is_sparse = is_inside || real_size.is_some(),
            b'S' => is_sparse = true,
            b'1' => member.link = Some(Link::Hard(target)),
            b'2' => {
                member.node.kind = FileType::Symlink;
                member.link = Some(Link::Symbolic(target));
            }
            kind @ (b'3' | b'4') => {
                member.node.kind =
                    if kind == b'3' { FileType::CharacterDevice } else { FileType::BlockDevice };
                member.node.device = (self.id(&header[329..337])?, self.id(&header[337..345])?);
            }
            // GNU tar lists names in the contents of its own kind, for incremental backups.
            b'5' | b'D' => member.node.kind = FileType::Directory,
            b'6' => member.node.kind = FileType::Fifo,
            kind => {
                let text = format!("tar stream: a member of type '{}'", kind.escape_ascii());
                return Err(Error::unsupported(text).at(self.name).within(member.shown()));
            }
        }
        let has_contents = matches!(header[156], 0 | b'0' | b'7' | b'S' | b'D');
        self.begin(if has_contents { stored } else { 0 })?;
        if member.node.kind != FileType::Regular || member.link.is_some() {
            return Ok(member);
        }
        member.size = self.left;
        if is_sparse {
            let (size, sparse) = match header[156] {
                b'S' => {
                    let size = self.number(&header[483..495])?;
                    (size, Sparse::Listed(self.old_map(header, size)?))
                }
                _ if is_inside => (real_size.unwrap_or(0), Sparse::Inside),
                _ => {
                    let size = real_size.unwrap_or(0);
                    let numbers = match list {
                        Some(list) => self.list(&list)?,
                        None => numbers,
                    };
                    (size, Sparse::Listed(map::ranges(&numbers, size).map_err(|what| self.corrupt(what))?))
                }
            };
            member.size = size;
            member.sparse = Some(sparse);
        }
        Ok(member)
    }

    /// Numbers of a record, with commas between them.
    fn list(&self, text: &[u8]) -> Result<Vec<u64>> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let numbers = text.split(|byte| *byte == b',');
        numbers
            .map(|part| {
                let number = str::from_utf8(part).ok().and_then(|text| text.parse().ok());
                number.ok_or_else(|| self.corrupt("the map is not a list of numbers"))
            })
            .collect()
    }

    /// The map of GNU tar's own format: four ranges in the header, and more in records that follow it.
    fn old_map(&mut self, header: &[u8; RECORD], size: u64) -> Result<Vec<Range<u64>>> {
        let mut numbers = Vec::new();
        let mut record = *header;
        let (mut fields, mut more) = (386..482, 482);
        loop {
            for pair in record[fields.clone()].as_chunks::<24>().0 {
                // Unused ones are empty.
                if pair[12] != 0 {
                    numbers.extend([self.number(&pair[..12])?, self.number(&pair[12..])?]);
                }
            }
            if u64_of(numbers.len()) > 2 * map::MOST_RANGES {
                return Err(self.corrupt(map::TOO_MANY));
            }
            if record[more] == 0 {
                return map::ranges(&numbers, size).map_err(|what| self.corrupt(what));
            }
            self.exact(&mut record)?;
            (fields, more) = (0..504, 504);
        }
    }

    fn check_sum(&self, header: &[u8; RECORD]) -> Result<()> {
        // The field itself counts as spaces.
        let sum = |range: Range<usize>| header[range].iter().map(|byte| u64::from(*byte)).sum::<u64>();
        let expected = sum(0..148) + 8 * u64::from(b' ') + sum(156..RECORD);
        match self.number(&header[148..156]) {
            Ok(found) if found == expected => Ok(()),
            _ => Err(self.corrupt("a tar header is missing")),
        }
    }

    fn id(&self, field: &[u8]) -> Result<u32> {
        u32::try_from(self.number(field)?).map_err(|_| self.corrupt("a number passes 2^32"))
    }

    fn number(&self, field: &[u8]) -> Result<u64> {
        u64::try_from(self.signed(field)?).map_err(|_| self.corrupt("a number below 0"))
    }

    /// A field of octal digits, or of big-endian bytes whose first bit is set, as GNU tar writes what is too large for
    /// them, or negative.
    fn signed(&self, field: &[u8]) -> Result<i64> {
        let wrong = || self.corrupt("a field of a header is not a number");
        if field[0] & 0x80 != 0 {
            // OK to shift: 12 bytes at most. The second bit is the sign.
            let first = i128::from(field[0] & 0x7f) - i128::from(field[0] & 0x40) * 2;
            let value = field[1..].iter().fold(first, |value, byte| value << 8 | i128::from(*byte));
            return i64::try_from(value).map_err(|_| wrong());
        }
        let text = field.split(|byte| matches!(byte, 0 | b' ')).find(|part| !part.is_empty()).unwrap_or(b"0");
        str::from_utf8(text).ok().and_then(|text| i64::from_str_radix(text, 8).ok()).ok_or_else(wrong)
    }

    /// Reads what fills a stream up behind its end. A file of another kind may begin with zeros, as an image of ext4 does: what has
    /// no member before the zeros has only zeros behind them.
    fn pass_end(&mut self) -> Result<()> {
        let mut piece = [0; 16 * RECORD];
        let mut left = MOST_BEHIND;
        while left > 0 {
            let len = match self.input.read(&mut piece) {
                Ok(0) => break,
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.io(error)),
            };
            if !self.has_members && piece[..len].iter().any(|byte| *byte != 0) {
                return Err(self.corrupt("zeros, and something behind them: not a tar stream"));
            }
            left = left.saturating_sub(u64_of(len));
        }
        Ok(())
    }

    /// Fills a header as far as there are bytes: how many.
    fn some(&mut self, header: &mut [u8; RECORD]) -> Result<usize> {
        let mut len = 0;
        while len < RECORD {
            match self.input.read(&mut header[len..]) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io(error)),
            }
        }
        Ok(len)
    }

    fn exact(&mut self, buf: &mut [u8]) -> Result<()> {
        self.input.read_exact(buf).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.corrupt("it ends within a member"),
            _ => self.io(error),
        })
    }

    fn io(&self, error: io::Error) -> Error {
        Error::io(self.name, error)
    }
}

fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The path in a header, whose first part has a field of its own in ustar.
fn plain_path(header: &[u8; RECORD]) -> Vec<u8> {
    let name = until_nul(&header[..100]);
    if &header[257..263] == b"ustar\0" && header[345] != 0 {
        [until_nul(&header[345..500]), b"/", name].concat()
    } else {
        name.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::ErrorKind;

    use super::*;

    #[test]
    fn an_image_that_begins_with_zeros_is_no_empty_stream() {
        let next =
            |bytes: &[u8]| TarReader::new(&mut &bytes[..], "stream").next().map(|member| member.is_some());
        assert!(!next(&[0; 1024]).unwrap() && !next(&[0; 1 << 16]).unwrap());
        for behind in [512, 1024, 1080, 9000] {
            let mut image = vec![0; 1 << 16];
            image[behind] = 0x53;
            assert_eq!(next(&image).unwrap_err().kind(), ErrorKind::Corrupt, "{behind}");
        }
    }
}
