//! Values of fields as a person or program is shown them, whatever structure they are of.

use crate::format::bytes::{text, uuid_text};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::Time;

/// Value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldValue {
    /// A number.
    Number(u64),
    /// Permission bits, shown in octal.
    Mode(u16),
    /// A time.
    Time(Time),
    /// Text, or words with spaces between them.
    Text(String),
    /// Major and minor number of a device.
    Device(u32, u32),
    /// Bytes without a meaning of their own.
    Bytes(Vec<u8>),
}

/// Meaning of a field's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::format) enum Form {
    Number,
    /// A power of two, in units of 1024 bytes.
    Kilobytes,
    /// A power of two.
    Power,
    /// Seconds, with a high byte.
    Seconds,
    Uuid,
    Text,
    Bytes,
    Compat,
    Incompat,
    RoCompat,
}

/// A named part of a structure: bytes and lengths of its pieces, the lowest of a number first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedField {
    pub name: &'static str,
    pub(in crate::format) pieces: &'static [(usize, usize)],
    pub(in crate::format) form: Form,
}

impl NamedField {
    /// Bytes of the field, those that the structure is too short for as zeros.
    pub fn bytes(&self, raw: &[u8]) -> Vec<u8> {
        let piece = |(at, len): &(usize, usize)| {
            let found = raw.get(*at..).unwrap_or_default();
            let mut bytes = found[..found.len().min(*len)].to_vec();
            bytes.resize(*len, 0);
            bytes
        };
        self.pieces.iter().flat_map(piece).collect()
    }

    /// Value of the field.
    pub fn value(&self, raw: &[u8]) -> FieldValue {
        let bytes = self.bytes(raw);
        let number = number(&bytes);
        let low = u32::try_from(number).unwrap_or(u32::MAX);
        match self.form {
            Form::Number => FieldValue::Number(number),
            Form::Kilobytes => {
                FieldValue::Number(u64::from(1024_u32.checked_shl(low).filter(|_| low < 21).unwrap_or(0)))
            }
            Form::Power => FieldValue::Number(u64::from(1_u32.checked_shl(low).unwrap_or(0))),
            Form::Seconds => {
                FieldValue::Time(Time { seconds: i64::try_from(number).unwrap_or(i64::MAX), nanoseconds: 0 })
            }
            Form::Uuid => FieldValue::Text(uuid_text(&bytes.try_into().unwrap_or_default())),
            Form::Text => FieldValue::Text(text(&bytes)),
            Form::Bytes => FieldValue::Bytes(bytes),
            Form::Compat => FieldValue::Text(features(low, &Compat(low).to_string())),
            Form::Incompat => FieldValue::Text(features(low, &Incompat(low).to_string())),
            Form::RoCompat => FieldValue::Text(features(low, &RoCompat(low).to_string())),
        }
    }
}

/// Names of features, or their number where there are no names.
fn features(bits: u32, names: &str) -> String {
    if names.is_empty() && bits != 0 { format!("{bits:#x}") } else { names.to_owned() }
}

/// Number of up to 8 bytes, little-endian.
pub(in crate::format) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Bytes of a structure that none of the fields has.
#[cfg(test)]
pub(in crate::format) fn unnamed(fields: &[NamedField], len: usize) -> Vec<usize> {
    let mut named = vec![false; len];
    for field in fields {
        for (at, count) in field.pieces {
            for slot in &mut named[*at..at + count] {
                assert!(!*slot, "{}: a byte has two names", field.name);
                *slot = true;
            }
        }
    }
    (0..len).filter(|at| !named[*at]).collect()
}

/// Position of the first byte that differs.
pub(crate) fn first_difference(a: &[u8], b: &[u8]) -> Option<u64> {
    let common = a.iter().zip(b).position(|(a, b)| a != b);
    let common = common.or_else(|| (a.len() != b.len()).then(|| a.len().min(b.len())));
    common.map(casemate_blockdev::u64_of)
}
