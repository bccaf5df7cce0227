//! `casemate info --scan`: what a search through all of an image came to.

use std::fmt::Write as _;

use serde_json::{Value, json};

use casemate::probe::{Copy, Found, Scan, Volume};

use super::{Place, at_offset, commands, value};
use crate::cmd::explained::name;
use crate::size::shown;
use crate::streams::visible;

/// Ranges that can't be read which are shown to a person.
const MOST_RANGES: usize = 20;

/// The commands that read a volume. Nothing reads one whose beginning is not there, or that something else was laid over.
fn readers(volume: &Volume, place: &Place) -> Vec<String> {
    let Some((found, place)) = at_its_place(volume, place) else { return Vec::new() };
    commands(&found, &place)
}

/// The volume as the beginning of what commands are told to look at.
fn at_its_place(volume: &Volume, place: &Place) -> Option<(Found, Place)> {
    if volume.missing_before > 0 || volume.is_stale {
        return None;
    }
    let spec = at_offset(&place.spec, volume.found.start)?;
    let found = Found { start: 0, ..volume.found.clone() };
    let place = Place { spec, by_offset: true };
    Some((found, place))
}

pub fn text(title: &str, scan: &Scan, place: &Place) -> String {
    let mut text = String::new();
    let mut line = |depth: usize, what: String| {
        writeln!(text, "{}{}", "  ".repeat(depth), visible(&what)).expect("writing to a string");
    };
    let number = match scan.volumes.len() {
        0 => "nothing known was found".to_owned(),
        1 => "1 place".to_owned(),
        many => format!("{many} places"),
    };
    line(0, format!("{title}: {number}, {} bytes searched ({})", scan.bytes, shown(scan.bytes)));
    for volume in &scan.volumes {
        let found = &volume.found;
        let head = match volume.missing_before {
            0 => format!("at byte {}: ", found.start),
            bytes => format!("begins {bytes} bytes before the image: "),
        };
        let size = match found.fact("bytes").and_then(|bytes| bytes.parse().ok()) {
            Some(bytes) => format!(", {bytes} bytes ({})", shown(bytes)),
            None => String::new(),
        };
        line(1, format!("{head}{}{size}", name(found)));
        if let Some(uuid) = found.fact("uuid").or(found.fact("table id")) {
            line(2, format!("uuid: {uuid}"));
        }
        for (role, copies) in by_role(&volume.copies) {
            line(2, format!("{role}: {copies}"));
        }
        if volume.inner_copies > 0 {
            line(2, format!("further copies inside it, as in a journal: {}", volume.inner_copies));
        }
        if let Some(inside) = volume.inside {
            line(2, format!("inside what begins at byte {inside}"));
        }
        if volume.is_stale {
            line(2, "left over from earlier: something else begins here now".to_owned());
        }
        for damage in &found.damage {
            line(2, format!("damaged: {damage}"));
        }
        for part in &found.inside {
            let kind = part.fact("type name").or(part.fact("type")).unwrap_or_default();
            let label = part.fact("name").map(|name| format!(" \"{name}\"")).unwrap_or_default();
            line(
                2,
                format!(
                    "partition {}, at byte {}: {kind}{label}, {} bytes ({})",
                    part.partition.unwrap_or_default(),
                    part.start,
                    part.len,
                    shown(part.len)
                ),
            );
        }
        for command in readers(volume, place) {
            line(2, format!("$ {command}"));
        }
    }
    for range in scan.unreadable.iter().take(MOST_RANGES) {
        line(1, format!("can't be read: bytes {} to {}", range.start, range.end - 1));
    }
    if let Some(more) = scan.unreadable.len().checked_sub(MOST_RANGES).filter(|more| *more > 0) {
        line(1, format!("can't be read: {more} more ranges"));
    }
    if scan.left_out > 0 {
        line(1, format!("left out, as there are too many: {} structures", scan.left_out));
    }
    text
}

/// Copies in the order of their places, those of one role in one line.
fn by_role(copies: &[Copy]) -> Vec<(&'static str, String)> {
    let mut roles: Vec<(&'static str, Vec<String>)> = Vec::new();
    for copy in copies {
        let block = copy.block.map(|block| format!(" (block {block})")).unwrap_or_default();
        let wrong = if copy.checksum == Some(false) { ", its checksum is wrong" } else { "" };
        let place = format!("at byte {}{block}{wrong}", copy.start);
        match roles.iter_mut().find(|(role, _)| *role == copy.role) {
            Some((_, places)) => places.push(place),
            None => roles.push((copy.role, vec![place])),
        }
    }
    roles.into_iter().map(|(role, places)| (role, places.join(", "))).collect()
}

pub fn json(scan: &Scan, place: &Place) -> Value {
    let volume = |volume: &Volume| {
        let mut told = match at_its_place(volume, place) {
            Some((found, place)) => value(&found, &place),
            None => value(&volume.found, place),
        };
        told["start"] = volume.found.start.into();
        told["commands"] = readers(volume, place).into();
        told["missing_before"] = volume.missing_before.into();
        told["inside_of"] = volume.inside.into();
        told["is_stale"] = volume.is_stale.into();
        told["inner_copies"] = volume.inner_copies.into();
        let copy = |copy: &Copy| json!({"start": copy.start, "role": copy.role, "block": copy.block, "checksum_is_right": copy.checksum});
        told["copies"] = volume.copies.iter().map(copy).collect();
        told
    };
    json!({
        "bytes": scan.bytes,
        "unreadable": scan.unreadable.iter().map(|range| [range.start, range.end]).collect::<Vec<_>>(),
        "left_out": scan.left_out,
        "found": scan.volumes.iter().map(volume).collect::<Vec<_>>(),
    })
}
