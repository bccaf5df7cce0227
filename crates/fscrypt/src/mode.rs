//! Encryption modes: what a policy's numbers stand for.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// An encryption mode of contents or names (`FSCRYPT_MODE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the format's own")]
pub enum Mode {
    Aes256Xts = 1,
    Aes256Cts = 4,
    Aes128Cbc = 5,
    Aes128Cts = 6,
    Sm4Xts = 7,
    Sm4Cts = 8,
    Adiantum = 9,
    Aes256Hctr2 = 10,
}

/// A mode's name, the kernel's name of its algorithm, bytes of its key, the security strength that a master key
/// must have in bytes, bytes of its IV.
struct Row(Mode, &'static str, &'static str, usize, usize, usize);

#[rustfmt::skip]
const ROWS: [Row; 8] = [
    Row(Mode::Aes256Xts, "aes-256-xts", "xts(aes)", 64, 32, 16),
    Row(Mode::Aes256Cts, "aes-256-cts", "cts(cbc(aes))", 32, 32, 16),
    Row(Mode::Aes128Cbc, "aes-128-cbc", "essiv(cbc(aes),sha256)", 16, 16, 16),
    Row(Mode::Aes128Cts, "aes-128-cts", "cts(cbc(aes))", 16, 16, 16),
    Row(Mode::Sm4Xts, "sm4-xts", "xts(sm4)", 32, 16, 16),
    Row(Mode::Sm4Cts, "sm4-cts", "cts(cbc(sm4))", 16, 16, 16),
    Row(Mode::Adiantum, "adiantum", "adiantum(xchacha12,aes)", 32, 32, 32),
    Row(Mode::Aes256Hctr2, "aes-256-hctr2", "hctr2(aes)", 32, 32, 32),
];

impl Mode {
    /// The mode with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Mode> {
        ROWS.iter().map(|row| row.0).find(|mode| mode.number() == number)
    }

    /// All encryption modes.
    pub fn all() -> impl Iterator<Item = Mode> {
        ROWS.iter().map(|row| row.0)
    }

    /// The mode's number in policies.
    #[expect(clippy::as_conversions, reason = "a discriminant of `repr(u8)`")]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The mode's name as fscryptctl writes it, in lower case: `aes-256-xts`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The kernel's name of the algorithm, as the registry knows it.
    pub fn algorithm(self) -> &'static str {
        self.row().2
    }

    /// Bytes of a file's key in this mode.
    pub fn key_len(self) -> usize {
        self.row().3
    }

    /// Bytes that a version 2 master key must have at least.
    pub fn security_strength(self) -> usize {
        self.row().4
    }

    /// Bytes of an IV in this mode.
    pub fn iv_len(self) -> usize {
        self.row().5
    }

    fn row(self) -> &'static Row {
        ROWS.iter().find(|row| row.0 == self).expect("a row for every mode")
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = Error;

    /// A mode's name in lower or upper case, with hyphens or underscores.
    fn from_str(text: &str) -> Result<Mode, Error> {
        let name = text.to_ascii_lowercase().replace('_', "-");
        Mode::all().find(|mode| mode.name() == name).ok_or_else(|| {
            let known: Vec<_> = Mode::all().map(Mode::name).collect();
            Error::argument(format!("unknown encryption mode '{text}'; known are {}", known.join(", ")))
        })
    }
}
