//! Map files of GNU ddrescue: which parts of a medium were read.
//!
//! Source: GNU ddrescue's manual, chapter "Mapfile structure". Lines that begin with `#` are comments. The first other line has the
//! current position and status; each further line is a block: position, size and status. Status `+` is read, and `?`, `*`, `/`
//! and `-` are not, for one reason or another. Numbers are decimal, or hexadecimal with `0x`, or octal with `0`. Blocks follow each
//! other without gaps. What no block covers was never asked for.

use std::fmt::Write as _;
use std::ops::Range;

use crate::error::{Error, Result};

/// Parts of a medium that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RescueMap {
    /// In order, and apart.
    read: Vec<Range<u64>>,
    /// Where the last area ends, read or not.
    end: u64,
}

/// Bytes of a map file at most.
pub const LARGEST_MAP: u64 = 64 << 20;

impl RescueMap {
    /// The map of a medium of `size` bytes of which all was read but these ranges, which are in order.
    pub fn of_lost(size: u64, lost: &[Range<u64>]) -> RescueMap {
        let mut read = Vec::new();
        let mut at = 0;
        for range in lost {
            if range.start > at {
                read.push(at..range.start.min(size));
            }
            at = at.max(range.end);
        }
        if at < size {
            read.push(at..size);
        }
        RescueMap { read, end: size }
    }

    /// Reads a map file.
    ///
    /// # Errors
    /// `Corrupt` for a text that is no map: which line, and why.
    pub fn from_text(text: &str) -> Result<RescueMap> {
        let wrong = |line: usize, what: &str| Err(Error::corrupt(format!("rescue map: line {line}: {what}")));
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let Some((first, status)) = lines.next() else { return wrong(1, "there is no status line") };
        let mut words = status.split_whitespace();
        let position = words.next().and_then(number);
        // Words are phases of ddrescue's work: copying, trimming, scraping, ..., finished.
        let is_phase = words.next().is_some_and(|word| word.len() == 1 && "?*/-FG+".contains(word));
        if position.is_none() || !is_phase {
            return wrong(first, "a position and a status were expected");
        }
        let mut read: Vec<Range<u64>> = Vec::new();
        let mut end: Option<u64> = None;
        for (at, line) in lines {
            let mut words = line.split_whitespace();
            let mut next = || words.next().and_then(number);
            let (Some(start), Some(size)) = (next(), next()) else {
                return wrong(at, "a position and a size were expected");
            };
            let Some(status) = words.next().filter(|word| word.len() == 1 && "?*/-+".contains(*word)) else {
                return wrong(at, "a status of ? * / - or + was expected");
            };
            if end.is_some_and(|end| end != start) {
                return wrong(at, "the block does not begin where the one before ends");
            }
            // No file and no device ends behind that.
            let Some(now) = start.checked_add(size).filter(|end| i64::try_from(*end).is_ok()) else {
                return wrong(at, "the block is too long");
            };
            end = Some(now);
            if status == "+" && size > 0 {
                match read.last_mut() {
                    Some(last) if last.end == start => last.end = now,
                    _ => read.push(start..now),
                }
            }
        }
        Ok(RescueMap { read, end: end.unwrap_or(0) })
    }

    /// The map as a file of a medium of `size` bytes, which ddrescue reads: what was not read is called bad.
    pub fn to_text(&self, size: u64) -> String {
        let mut text = format!(
            "# Mapfile. Created by casemate {}\n# current_pos  current_status  current_pass\n0x{size:08X}     +               1\n\
             #      pos        size  status\n",
            env!("CARGO_PKG_VERSION")
        );
        let mut line = |range: Range<u64>, status| {
            if range.start < range.end {
                let len = range.end - range.start;
                writeln!(text, "0x{:08X}  0x{len:08X}  {status}", range.start).expect("writing to a string");
            }
        };
        let mut at = 0;
        for range in &self.read {
            line(at..range.start.min(size), '-');
            line(range.start..range.end.min(size), '+');
            at = range.end;
        }
        line(at..size, '-');
        text
    }

    /// The byte at which the last area of the map ends, read or not.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Ranges of the first `size` bytes that were not read.
    pub fn unread(&self, size: u64) -> Vec<Range<u64>> {
        let mut unread = Vec::new();
        let mut at = 0;
        for range in &self.read {
            if range.start > at {
                unread.push(at..range.start.min(size));
            }
            at = range.end;
        }
        unread.push(at..size);
        unread.retain(|range| range.start < range.end);
        unread
    }
}

/// A number as C writes it.
fn number(word: &str) -> Option<u64> {
    let (digits, radix) = match (word.strip_prefix("0x").or(word.strip_prefix("0X")), word.strip_prefix('0'))
    {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (word, 10),
    };
    // A sign is no digit.
    let is_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, radix).ok().filter(|_| is_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of ddrescue's manual, with what it means.
    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "lists of ranges that have one")]
    fn a_map_of_ddrescue_is_read() {
        let text = "# Mapfile. Created by GNU ddrescue version 1.25\n# Command line: ddrescue /dev/sda out out.map\n\
             # current_pos  current_status  current_pass\n0x00120000     ?               1\n#      pos        size  status\n\
             0x00000000  0x00117000  +\n0x00117000  0x00000200  -\n0x00117200  0x00001000  /\n\
             0x00118200  0x00007E00  *\n0x00120000  0x00048000  ?\n";
        let map = RescueMap::from_text(text).unwrap();
        assert_eq!(map.unread(0x168000), [0x117000..0x168000]);
        // Behind the last block nothing was asked for.
        assert_eq!(map.unread(0x200000), [0x117000..0x200000]);
        assert_eq!((map.unread(0x1000), map.end()), (vec![], 0x168000));
        let small = RescueMap::from_text("5 F\n0 010 +\n8 0x8 ?\n16 4 +\n").unwrap();
        assert_eq!(small.unread(20), [8..16]);
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a list of ranges that has one")]
    fn text_and_back() {
        for (size, lost) in [
            (100, vec![]),
            (100, vec![0..10, 20..30, 90..100]),
            (1 << 40, vec![512..1024, (1 << 40) - 512..1 << 40]),
            (0, vec![]),
            (10, vec![0..10]),
        ] {
            let map = RescueMap::of_lost(size, &lost);
            assert_eq!(map.unread(size), lost);
            let back = RescueMap::from_text(&map.to_text(size)).unwrap();
            assert_eq!((back.unread(size), &back), (lost, &map));
        }
    }

    #[test]
    fn what_is_no_map_is_refused_with_its_line() {
        for (text, said) in [
            ("", "no status line"),
            ("hello", "line 1: a position and a status"),
            ("0 + 1\n0 10", "line 2: a status"),
            ("0 + 1\n\n0 x +", "line 3: a position and a size"),
            ("0 + 1\n0 10 +\n11 5 +", "line 3: the block does not begin"),
            ("0 + 1\n0 -5 +", "line 2: a position and a size"),
            ("0 + 1\n1 0xffffffffffffffff +", "line 2: the block is too long"),
            ("0 + 1\n0 0xffffffffffffffff +", "line 2: the block is too long"),
            ("0 + 1\n0 09 +", "line 2: a position and a size"),
        ] {
            let error = RescueMap::from_text(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
        let mut rng = xorshift(7);
        for _ in 0..2000 {
            let text: String = (0..40).map(|_| b"0 1x+-?#\nF9"[(rng() % 11) as usize] as char).collect();
            if let Ok(map) = RescueMap::from_text(&text) {
                map.unread(1000);
            }
        }
    }

    /// Numbers without a dependency: xorshift.
    fn xorshift(mut state: u64) -> impl FnMut() -> u64 {
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        }
    }
}
