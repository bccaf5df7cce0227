//! device-mapper's line for a mapping.
//!
//! `<start> <sectors> crypt <cipher> <key> <iv_offset> <device> <offset> [<#opts> <opt>...]`

use std::fmt;
use std::str::FromStr;

use casemate_primitives::hex;
use casemate_primitives::secret::SecretVec;

use crate::spec::Spec;
use crate::{Error, Params};

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
    pub fn with_key(&self) -> String {
        let mut hex = hex::encode(self.key.expose());
        if hex.is_empty() {
            hex.push('-');
        }
        self.line(&hex)
    }

    /// The table line with the key as zeros, as `dmsetup table` prints it without `--showkeys`.
    pub fn without_key(&self) -> String {
        let zeros = "00".repeat(self.key.len());
        self.line(if zeros.is_empty() { "-" } else { &zeros })
    }

    fn line(&self, key: &str) -> String {
        let Params { spec, sector_size, iv_large_sectors, iv_offset, .. } = &self.params;
        let mut options = self.other_options.clone();
        if *sector_size != 512 {
            options.push(format!("sector_size:{sector_size}"));
        }
        if *iv_large_sectors {
            options.push("iv_large_sectors".to_owned());
        }
        let (start, sectors, device, offset) = (self.start, self.sectors, &self.device, self.offset);
        let mut line = format!("{start} {sectors} crypt {spec} {key} {iv_offset} {device} {offset}");
        if !options.is_empty() {
            line += &format!(" {} {}", options.len(), options.join(" "));
        }
        line
    }
}

impl FromStr for Table {
    type Err = Error;

    fn from_str(line: &str) -> Result<Table, Error> {
        let mut words = line.split_ascii_whitespace().peekable();
        // "name: 0 8 crypt ..." is what `dmsetup table` prints.
        words.next_if(|word| word.ends_with(':'));
        let mut word = |what: &str| words.next().ok_or_else(|| bad(format!("{what} is missing")));
        let (start, sectors) = (number(word("the start")?, "start")?, number(word("the size")?, "size")?);
        let target = word("the target")?;
        if target != "crypt" {
            return Err(bad(format!("the target is '{target}', not crypt")));
        }
        let spec: Spec = word("the cipher")?.parse()?;
        let key = key(word("the key")?)?;
        let iv_offset = number(word("the IV offset")?, "IV offset")?;
        let device = word("the device")?.to_owned();
        let offset = number(word("the offset")?, "offset")?;
        let mut params = Params { iv_offset, ..Params::new(spec) };
        let mut other_options = Vec::new();
        let options: Vec<&str> = words.collect();
        if let Some((count, options)) = options.split_first() {
            if number(count, "number of options")? != options.len() as u64 {
                return Err(bad(format!("{count} options are announced, {} follow", options.len())));
            }
            for option in options {
                match option.split_once(':') {
                    None if *option == "iv_large_sectors" => params.iv_large_sectors = true,
                    None if WITHOUT_EFFECT_HERE.contains(option) => other_options.push((*option).to_owned()),
                    Some(("sector_size", size)) => {
                        let size = number(size, "sector size")?;
                        params.sector_size =
                            usize::try_from(size).map_err(|_| bad(format!("sector size {size}")))?;
                    }
                    Some(("integrity" | "integrity_key_size", _)) => {
                        return Err(Error::Unsupported(format!(
                            "table line: option '{option}' needs dm-integrity"
                        )));
                    }
                    _ => return Err(bad(format!("unknown option '{option}'"))),
                }
            }
        }
        if start.checked_add(sectors).is_none_or(|end| end > u64::MAX / 512) || offset > u64::MAX / 512 {
            return Err(bad("sector numbers beyond 2^64 bytes".to_owned()));
        }
        Ok(Table { start, sectors, params, key, device, offset, other_options })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_key())
    }
}

fn bad(why: String) -> Error {
    Error::Argument(format!("table line: {why}"))
}

fn number(word: &str, what: &str) -> Result<u64, Error> {
    // The key is the only word that must not be repeated in a message, and it never comes here.
    word.parse().map_err(|_| bad(format!("the {what} '{word}' is no number")))
}

fn key(word: &str) -> Result<SecretVec, Error> {
    if word == "-" {
        return Ok(SecretVec::zeroed(0));
    }
    if word.starts_with(':') {
        let text = "table line: the key is in the kernel's keyring, where this program can't read it; give it as a file";
        return Err(Error::Unsupported(text.to_owned()));
    }
    let digits = word.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return Err(bad(format!("the key has {} hexadecimal digits, an odd number", digits.len())));
    }
    let mut key = SecretVec::zeroed(digits.len() / 2);
    for (byte, pair) in key.expose_mut().iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| {
            char::from(digit).to_digit(16).ok_or_else(|| bad("the key is not hexadecimal".to_owned()))
        };
        // OK to cast: two digits make a byte.
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Ok(key)
}

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
            assert_eq!(table.with_key(), line);
            assert!(!format!("{table} {table:?}").contains("11aaff"));
        }
        let table: Table = "disk: 0 64 crypt aes-xts-plain64 0011aaff 7 /dev/ubda 24\n".parse().unwrap();
        assert_eq!(table.to_string(), "0 64 crypt aes-xts-plain64 00000000 7 /dev/ubda 24");
    }

    #[test]
    fn nonsense_is_refused_without_showing_the_key() {
        let cases = [
            ("0 64 linear /dev/a 0", "not crypt"),
            ("0 64 crypt aes-xts-plain64 abcx 0 /dev/a 0", "not hexadecimal"),
            ("0 64 crypt aes-xts-plain64 abc 0 /dev/a 0", "odd number"),
            ("0 64 crypt aes-xts-plain64 :64:logon:k 0 /dev/a 0", "keyring"),
            ("0 64 crypt aes-xts-plain64 abcd 0 /dev/a", "offset is missing"),
            ("0 64 crypt aes-xts-plain64 abcd 0 /dev/a 0 2 allow_discards", "2 options are announced"),
            ("0 64 crypt aes-xts-plain64 abcd 0 /dev/a 0 1 sector_size:x", "no number"),
            ("0 64 crypt aes-xts-plain64 abcd 0 /dev/a 0 1 integrity:16:aead", "dm-integrity"),
            ("0 99999999999999999999 crypt aes-xts-plain64 abcd 0 /dev/a 0", "no number"),
            ("18446744073709551615 64 crypt aes-xts-plain64 abcd 0 /dev/a 0", "beyond"),
        ];
        for (line, why) in cases {
            let error = line.parse::<Table>().unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("abc"), "{line}: {error}");
        }
    }
}
