//! The table line that tells device-mapper of a mapping.
//!
//! `<start> <sectors> crypt <cipher> <key> <iv_offset> <device> <offset> [<#opts> <opt>...]`

use std::fmt;
use std::str::FromStr;

use casemate_blockdev::u64_of;
use casemate_primitives::secret::SecretVec;

use crate::spec::Spec;
use crate::{Error, ErrorKind, Params};

/// A table line of the crypt target. Its `Debug` and [`Table::without_key`] show no key.
#[derive(Debug)]
pub struct Table {
    /// First sector of the mapped device, in 512 bytes; 0 nearly always.
    pub start: u64,
    /// Length of the mapped device in sectors of 512 bytes.
    pub sectors: u64,
    /// The mapping's parameters: cipher, sector size and IV offset.
    pub params: Params,
    /// The key; empty for the null cipher.
    pub key: SecretVec,
    /// The device below, as the line names it.
    pub device: String,
    /// Sectors of 512 bytes before the data on the device below.
    pub offset: u64,
    /// Options that say how the kernel works, not what is on the disk: `allow_discards`, ...
    pub other_options: Vec<String>,
}

/// Options of the kernel that change no byte on the disk.
const WITHOUT_EFFECT_HERE: &[&str] = &[
    "allow_discards",
    "same_cpu_crypt",
    "submit_from_crypt_cpus",
    "high_priority",
    "no_read_workqueue",
    "no_write_workqueue",
];

impl Table {
    /// The table line with the key in hexadecimal, as `dmsetup` takes it.
    pub fn with_key(&self) -> SecretVec {
        let (before, after) = self.around();
        let key = self.key.expose();
        let digits = if key.is_empty() { 1 } else { 2 * key.len() };
        // All room at once: what grows leaves copies behind.
        let mut line = SecretVec::zeroed(before.len() + digits + after.len());
        let (first, rest) = line.expose_mut().split_at_mut(before.len());
        let (hex, last) = rest.split_at_mut(digits);
        first.copy_from_slice(before.as_bytes());
        last.copy_from_slice(after.as_bytes());
        hex[0] = b'-';
        for (digits, byte) in hex.chunks_exact_mut(2).zip(key) {
            digits.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        line
    }

    /// The table line with the key as zeros, as `dmsetup table` prints it without `--showkeys`.
    pub fn without_key(&self) -> String {
        let (before, after) = self.around();
        let key = if self.key.is_empty() { "-".to_owned() } else { "00".repeat(self.key.len()) };
        before + &key + &after
    }

    /// The line before the key and after it.
    fn around(&self) -> (String, String) {
        let Params { spec, sector_size, iv_large_sectors, iv_offset, .. } = &self.params;
        let mut options = self.other_options.clone();
        if *sector_size != 512 {
            options.push(format!("sector_size:{sector_size}"));
        }
        if *iv_large_sectors {
            options.push("iv_large_sectors".to_owned());
        }
        let (start, sectors, device, offset) = (self.start, self.sectors, &self.device, self.offset);
        let mut after = format!(" {iv_offset} {device} {offset}");
        if !options.is_empty() {
            after += &format!(" {} {}", options.len(), options.join(" "));
        }
        (format!("{start} {sectors} crypt {spec} "), after)
    }
}

impl FromStr for Table {
    type Err = Error;

    fn from_str(line: &str) -> Result<Table, Error> {
        if line.trim().lines().nth(1).is_some() {
            let text = "table line: there are several; give the line of one mapping";
            return Err(Error::unsupported(text));
        }
        let mut words = Words::of(line);
        let start = words.number("the start")?;
        let sectors = words.number("the size")?;
        words.parse("the target", "crypt, for a dm-crypt mapping", |word| (word == "crypt").then_some(()))?;
        // A key in the cipher's place would be taken for a cipher's name, and shown as such later.
        let is_key = |word: &str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let cipher = words.parse("the cipher", "such as aes-xts-plain64", |word| {
            Some(word.parse::<Spec>()).filter(|_| !is_key(word)).filter(|parsed| !is_argument(parsed))
        });
        let spec = cipher?
            .map_err(|_| Error::unsupported("table line: the cipher's specification needs dm-integrity"))?;
        let key = key(words.next("the key")?)?;
        let iv_offset = words.number("the IV offset")?;
        let device = words.next("the device")?.to_owned();
        let offset = words.number("the offset")?;
        let mut params = Params { iv_offset, ..Params::new(spec) };
        let mut other_options = Vec::new();
        if words.left() > 0 {
            let count = words.number("the number of options")?;
            if count != u64_of(words.left()) {
                return Err(bad(format!("{count} options are announced, {} follow", words.left())));
            }
        }
        while words.left() > 0 {
            let set = words.parse(
                "an option",
                "one that this program knows, with a number where it takes one",
                |word| {
                    match word.split_once(':') {
                        None if word == "iv_large_sectors" => params.iv_large_sectors = true,
                        None if WITHOUT_EFFECT_HERE.contains(&word) => other_options.push(word.to_owned()),
                        Some(("sector_size", size)) => params.sector_size = size.parse().ok()?,
                        Some(("integrity" | "integrity_key_size", _)) => return Some(Err(())),
                        _ => return None,
                    }
                    Some(Ok(()))
                },
            );
            let needs_more = || Error::unsupported("table line: the option 'integrity' needs dm-integrity");
            set?.map_err(|()| needs_more())?;
        }
        if start.checked_add(sectors).is_none_or(|end| end > u64::MAX / 512) || offset > u64::MAX / 512 {
            return Err(bad("sector numbers beyond 2^64 bytes".to_owned()));
        }
        Ok(Table { start, sectors, params, key, device, offset, other_options })
    }
}

/// The words of a line. No error shows one of them: in a line that is not as it should be, any may be the key.
struct Words<'a> {
    words: Vec<&'a str>,
    taken: usize,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Words<'a> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        // "name: 0 8 crypt ..." is what `dmsetup table` prints.
        let taken = words.first().is_some_and(|word| word.ends_with(':')).into();
        Words { words, taken }
    }

    fn left(&self) -> usize {
        self.words.len() - self.taken
    }

    fn next(&mut self, what: &str) -> Result<&'a str, Error> {
        let word = self.words.get(self.taken).ok_or_else(|| bad(format!("{what} is missing")))?;
        self.taken += 1;
        Ok(word)
    }

    /// The next word, made into something; `right` says what it has to be.
    fn parse<T>(
        &mut self,
        what: &str,
        right: &str,
        parse: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<T, Error> {
        let word = self.next(what)?;
        parse(word).ok_or_else(|| {
            bad(format!("word {}, of {} bytes, is not {what}, {right}", self.taken, word.len()))
        })
    }

    fn number(&mut self, what: &str) -> Result<u64, Error> {
        self.parse(what, "a number", |word| word.parse().ok())
    }
}

fn is_argument(parsed: &Result<Spec, Error>) -> bool {
    parsed.as_ref().is_err_and(|error| error.kind() == ErrorKind::Argument)
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_key())
    }
}

fn bad(why: String) -> Error {
    Error::argument(format!("table line: {why}"))
}

fn key(word: &str) -> Result<SecretVec, Error> {
    if word == "-" {
        return Ok(SecretVec::zeroed(0));
    }
    if word.starts_with(':') {
        let text = "table line: the key is in the kernel's keyring, where this program can't read it; give it as a file";
        return Err(Error::unsupported(text.to_owned()));
    }
    let digits = word.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return Err(bad(format!("the key has {} hexadecimal digits, an odd number", digits.len())));
    }
    let mut key = SecretVec::zeroed(digits.len() / 2);
    for (byte, pair) in key.expose_mut().iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| {
            let digit = char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            digit.ok_or_else(|| bad("the key is not hexadecimal".to_owned()))
        };
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(key)
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_written_alike() {
        let lines = [
            "0 64 crypt aes-xts-plain64 0011aaff 7 /dev/ubda 24",
            "0 64 crypt aes-xts-plain64 0011aaff 8 7:0 0 2 sector_size:4096 iv_large_sectors",
            "0 64 crypt cipher_null-ecb - 0 /dev/ubda 0 1 allow_discards",
        ];
        for line in lines {
            let table: Table = line.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(table.with_key().expose(), line.as_bytes());
            assert!(!format!("{table} {table:?}").contains("11aaff"));
        }
        let table: Table = "disk: 0 64 crypt aes-xts-plain64 0011aaff 7 /dev/ubda 24\n".parse().unwrap();
        assert_eq!(table.to_string(), "0 64 crypt aes-xts-plain64 00000000 7 /dev/ubda 24");
    }

    #[test]
    fn nonsense_is_refused_without_showing_the_key() {
        let cases = [
            ("0 64 linear /dev/a 0", "word 3, of 6 bytes, is not the target, crypt"),
            ("abcdef0123", "word 1, of 10 bytes, is not the start, a number"),
            ("0 abcdef0123 crypt aes-xts-plain64 0 /dev/a 0", "word 2, of 10 bytes, is not the size"),
            ("0 64 abcdef0123 0 /dev/a 0", "word 3, of 10 bytes"),
            ("disk: 0 64 abcdef0123 0 /dev/a 0", "word 4, of 10 bytes"),
            ("0 64 crypt abcdef0123 0 /dev/a 0", "word 4, of 10 bytes, is not the cipher"),
            ("0 64 crypt abcdef-01-23 0 /dev/a 0", "word 4, of 12 bytes, is not the cipher"),
            ("0 64 crypt abcdef-xts-random 00 0 /dev/a 0", "needs dm-integrity"),
            (
                "0 64 crypt aes-xts-plain64 00 abcdef0123 /dev/a 0",
                "word 6, of 10 bytes, is not the IV offset",
            ),
            ("0 64 crypt aes-xts-plain64 00 0 /dev/a abcdef", "word 8, of 6 bytes, is not the offset"),
            (
                "0 64 crypt aes-xts-plain64 00 0 /dev/a 0 abcdef",
                "word 9, of 6 bytes, is not the number of options",
            ),
            ("0 64 crypt aes-xts-plain64 00 0 /dev/a 0 1 abcdef", "word 10, of 6 bytes, is not an option"),
            ("0 64 crypt aes-xts-plain64 00 0 /dev/a 0 1 abc:def", "word 10, of 7 bytes, is not an option"),
            ("0 64 crypt aes-xts-plain64 abcx 0 /dev/a 0", "not hexadecimal"),
            ("0 64 crypt aes-xts-plain64 abc 0 /dev/a 0", "odd number"),
            ("0 64 crypt aes-xts-plain64 :64:logon:k 0 /dev/a 0", "keyring"),
            ("0 64 crypt aes-xts-plain64 abcd 0 /dev/a", "offset is missing"),
            ("0 64 crypt aes-xts-plain64 abcd 0 /dev/a 0 2 allow_discards", "2 options are announced"),
            ("0 64 crypt aes-xts-plain64 abcd 0 /dev/a 0 1 sector_size:x", "word 10, of 13 bytes"),
            ("0 64 crypt aes-xts-plain64 abcd 0 /dev/a 0 1 integrity:16:aead", "dm-integrity"),
            ("0 99999999999999999999 crypt aes-xts-plain64 abcd 0 /dev/a 0", "is not the size, a number"),
            (
                "0 64 crypt aes-xts-plain64 abcd 0 /dev/a 0\n64 64 crypt aes-xts-plain64 abcd 0 /dev/b 0",
                "several",
            ),
            ("18446744073709551615 64 crypt aes-xts-plain64 abcd 0 /dev/a 0", "beyond"),
        ];
        for (line, why) in cases {
            let error = line.parse::<Table>().unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("abc"), "{line}: {error}");
        }
    }
}
