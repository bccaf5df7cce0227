//! Differences as lines, for people and as JSON.

use serde_json::{Value, json};

use casemate::ext4::{Difference, FieldValue, FileType};
use casemate::{Error, hex};

use super::error_value;
use crate::cmd::ext4::entry::{long_time, path_value, shown, time_value};
use crate::streams::visible;

/// Bytes of a value that are shown to a person.
const SHOWN: usize = 16;

/// A line with its end.
pub fn text(difference: &Difference) -> Vec<u8> {
    let (path, rest) = match difference {
        Difference::Superblock { field, values } => (None, format!("superblock: {field}: {}", both(values))),
        Difference::Only { side, path, kind, below } => {
            let below = match (kind, below) {
                (FileType::Directory, 0) => ", empty".to_owned(),
                (FileType::Directory, 1) => ", with 1 name below".to_owned(),
                (FileType::Directory, below) => format!(", with {below} names below"),
                _ => String::new(),
            };
            let name = side.name().to_uppercase();
            (Some(path), format!("only in {name} ({}{below})", kind.name()))
        }
        Difference::File { path, field, values } => {
            let shown = match values {
                [Some(FieldValue::Bytes(a)), Some(FieldValue::Bytes(b))] => both_bytes(a, b),
                [a, b] => {
                    let [a, b] = [a, b].map(|value| value.as_ref().map_or_else(none, word));
                    format!("{a} -> {b}")
                }
            };
            (Some(path), format!("{field}: {shown}"))
        }
        Difference::Xattr { path, name, values } => {
            let shown = match values {
                [Some(a), Some(b)] => both_bytes(a, b),
                [a, b] => {
                    let [a, b] = [a, b].map(|value| value.as_deref().map_or_else(none, bytes));
                    format!("{a} -> {b}")
                }
            };
            (Some(path), format!("attribute {}: {shown}", visible(&String::from_utf8_lossy(name))))
        }
        Difference::Contents { path, first, blocks } => {
            (Some(path), format!("contents: {} from byte {first} on", count(*blocks, "block")))
        }
        Difference::Group { group, field, values: [a, b] } => {
            (None, format!("group {group}: {field}: {a} -> {b}"))
        }
        Difference::Storage { path, field, values } => {
            (Some(path), format!("stored: {field}: {}", both(values)))
        }
        Difference::Unread { side, path, error } => {
            let name = side.name().to_uppercase();
            (path.as_ref(), format!("could not be read in {name}: {}", said(error)))
        }
        Difference::Bytes { area, blocks, bytes, first } => {
            let (bytes, blocks) = (count(*bytes, "byte"), count(*blocks, "block"));
            (None, format!("{}: {bytes} in {blocks}, the first at byte {first}", area.name()))
        }
        _ => (None, difference.kind().to_owned()),
    };
    let mut line = Vec::new();
    if let Some(path) = path {
        line.extend(shown(path));
        line.extend(b": ");
    }
    line.extend(rest.into_bytes());
    line.push(b'\n');
    line
}

fn said(error: &Error) -> String {
    visible(&error.to_string())
}

fn none() -> String {
    "none".to_owned()
}

fn both(values: &[FieldValue; 2]) -> String {
    match values {
        [FieldValue::Bytes(a), FieldValue::Bytes(b)] => both_bytes(a, b),
        [a, b] => format!("{} -> {}", word(a), word(b)),
    }
}

/// Two values, from their first difference on if they begin alike for longer than is shown.
fn both_bytes(a: &[u8], b: &[u8]) -> String {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    match same < SHOWN {
        true => format!("{} -> {}", bytes(a), bytes(b)),
        false => format!("from byte {same} on: {} -> {}", bytes(&a[same..]), bytes(&b[same..])),
    }
}

/// A value as a person reads it, in one line.
fn word(value: &FieldValue) -> String {
    match value {
        FieldValue::Number(number) => number.to_string(),
        FieldValue::Mode(mode) => format!("{mode:04o}"),
        FieldValue::Time(time) => long_time(*time),
        FieldValue::Text(text) if text.is_empty() => "none".to_owned(),
        FieldValue::Text(text) => visible(text),
        FieldValue::Device(major, minor) => format!("{major}, {minor}"),
        FieldValue::Bytes(value) => bytes(value),
        _ => String::new(),
    }
}

/// The first bytes of a value, and how many it has.
fn bytes(value: &[u8]) -> String {
    let len = count(casemate::blockdev::u64_of(value.len()), "byte");
    let is_text =
        !value.is_empty() && value.len() <= 2 * SHOWN && value.iter().all(|byte| matches!(byte, b' '..=b'~'));
    match is_text {
        true => format!("\"{}\" ({len})", String::from_utf8_lossy(value)),
        false if value.is_empty() => len,
        false => {
            let more = if value.len() > SHOWN { "..." } else { "" };
            format!("{}{more} ({len})", hex::encode(&value[..value.len().min(SHOWN)]))
        }
    }
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A difference as an object.
pub fn value(difference: &Difference) -> Value {
    let mut object = match difference {
        Difference::Only { path, .. }
        | Difference::File { path, .. }
        | Difference::Xattr { path, .. }
        | Difference::Contents { path, .. }
        | Difference::Storage { path, .. }
        | Difference::Unread { path: Some(path), .. } => path_value(path),
        _ => json!({}),
    };
    object["kind"] = difference.kind().into();
    match difference {
        Difference::Superblock { field, values } | Difference::Storage { field, values, .. } => {
            object["field"] = (*field).into();
            (object["a"], object["b"]) = (exact(&values[0]), exact(&values[1]));
        }
        Difference::File { field, values, .. } => {
            let value = |value: &Option<FieldValue>| value.as_ref().map_or(Value::Null, exact);
            object["field"] = (*field).into();
            (object["a"], object["b"]) = (value(&values[0]), value(&values[1]));
        }
        Difference::Xattr { name, values, .. } => {
            let value = |value: &Option<Vec<u8>>| {
                value.as_ref().map_or(Value::Null, |value| hex::encode(value).into())
            };
            object["name"] = String::from_utf8_lossy(name).into();
            (object["a"], object["b"]) = (value(&values[0]), value(&values[1]));
        }
        Difference::Only { side, kind, below, .. } => {
            object["side"] = side.name().into();
            object["type"] = kind.name().into();
            object["below"] = (*below).into();
        }
        Difference::Contents { first, blocks, .. } => {
            object["first"] = (*first).into();
            object["blocks"] = (*blocks).into();
        }
        Difference::Group { group, field, values: [a, b] } => {
            object["group"] = group.get().into();
            object["field"] = (*field).into();
            (object["a"], object["b"]) = ((*a).into(), (*b).into());
        }
        Difference::Unread { side, error, .. } => {
            object["side"] = side.name().into();
            object["error"] = error_value(error);
        }
        Difference::Bytes { area, blocks, bytes, first } => {
            object["area"] = area.name().into();
            object["blocks"] = (*blocks).into();
            object["bytes"] = (*bytes).into();
            object["first"] = (*first).into();
        }
        _ => {}
    }
    object
}

/// A value for programs: bytes in hexadecimal.
fn exact(value: &FieldValue) -> Value {
    match value {
        FieldValue::Number(number) => (*number).into(),
        FieldValue::Mode(mode) => format!("{mode:04o}").into(),
        FieldValue::Time(time) => time_value(*time),
        FieldValue::Text(text) => text.clone().into(),
        FieldValue::Device(major, minor) => json!([major, minor]),
        FieldValue::Bytes(bytes) => hex::encode(bytes).into(),
        _ => Value::Null,
    }
}
