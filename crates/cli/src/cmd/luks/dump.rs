//! `casemate luks dump`: as `cryptsetup luksDump` prints it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use casemate::blockdev::Events;
use casemate::luks::json::Json;
use casemate::luks::luks2::{
    CopyState, Digest, Kdf, Keyslot, Metadata, Priority, Segment, SegmentSize, decode,
};
use casemate::luks::{Header, Pbkdf, luks1, luks2};
use casemate::{Cpu, Error, hex};

use super::options::HeaderArgs;
use crate::answer::Answer;
use crate::context::Context;

/// Print a LUKS header. Nothing is written, not even to a damaged copy that could be repaired.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate luks dump vault.img\n\
    \x20 casemate luks dump --dump-json-metadata vault.img")]
pub struct Args {
    #[command(flatten)]
    pub header: HeaderArgs,
    /// Print the metadata of LUKS2 as JSON, as they are.
    #[arg(long)]
    pub dump_json_metadata: bool,
    /// Print only the unbound key slots of LUKS2.
    #[arg(long)]
    pub unbound: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let volume = self.header.volume(context)?;
        match (volume.header(), self.dump_json_metadata) {
            (Header::Luks1(_), true) => {
                return Err(Error::argument("LUKS1 has no JSON metadata; --json prints what it has"));
            }
            (Header::Luks2(header), true) => context.print(header.metadata.json().to_pretty())?,
            (header, false) if context.json() => context.print_json(&value(header))?,
            (Header::Luks1(header), false) => {
                context.print(lines_of_luks1(&self.header.path().display().to_string(), header))?;
            }
            (Header::Luks2(header), false) => {
                let first = header.copies().iter().zip(["primary", "secondary"]);
                for (copy, which) in first.filter(|(copy, _)| !matches!(copy, CopyState::Valid(_))) {
                    let text = format!("the {which} header is invalid: {}", shown(copy.reason()));
                    Events::note(context, &text);
                }
                context.print(lines_of_luks2(header, self.unbound, context.providers().cpu()))?;
            }
        }
        Ok(Answer::Yes)
    }
}

/// A text of an image, for terminals: without control characters.
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Bytes in hex, sixteen a line; further lines begin with `indent`.
pub fn octets(bytes: &[u8], indent: &str) -> String {
    let line = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x} ")).collect::<String>();
    bytes.chunks(16).map(line).collect::<Vec<_>>().join(&format!("\n{indent}")) + "\n"
}

fn lines_of_luks1(name: &str, header: &luks1::Header) -> String {
    let mut text = format!("LUKS header information for {name}\n\n");
    let mut field = |name: &str, value: String| {
        writeln!(text, "{:<15}\t{}", format!("{name}:"), value.trim_end_matches('\n'))
            .expect("writing to a string");
    };
    let indent = "               \t";
    field("Version", "1".to_owned());
    field("Cipher name", shown(&header.cipher_name));
    field("Cipher mode", shown(&header.cipher_mode));
    field("Hash spec", shown(&header.hash));
    field("Payload offset", header.payload_offset.to_string());
    field("MK bits", (u64::from(header.key_bytes) * 8).to_string());
    field("MK digest", octets(&header.digest, indent).replace(&format!("\n{indent}"), ""));
    field("MK salt", octets(&header.digest_salt, indent));
    field("MK iterations", header.digest_iterations.to_string());
    field("UUID", shown(&header.uuid));
    text.push('\n');
    for (k, slot) in header.slots.iter().enumerate() {
        if slot.state != luks1::SlotState::Enabled {
            writeln!(text, "Key Slot {k}: DISABLED").expect("writing to a string");
            continue;
        }
        let salt = octets(&slot.salt, "\t                      \t");
        write!(
            text,
            "Key Slot {k}: ENABLED\n\tIterations:         \t{}\n\tSalt:               \t{salt}\tKey material offset:\t{}\n\
             \tAF stripes:            \t{}\n",
            slot.iterations, slot.offset, slot.stripes
        )
        .expect("writing to a string");
    }
    text
}

/// Text that grows by lines of a name and a value, as the tool aligns them.
struct Lines(String, Cpu);

const OCTETS: &str = "\t            ";

impl Lines {
    fn field(&mut self, name: &str, value: impl std::fmt::Display) {
        writeln!(self.0, "\t{:<12}{}", format!("{name}:"), shown(&value.to_string()))
            .expect("writing to a string");
    }

    /// Bytes that are kept in base64; nothing if they are not.
    fn octets(&mut self, name: &str, base64: &str) {
        let bytes = decode(base64, name, self.1).unwrap_or_default();
        write!(self.0, "\t{:<12}{}", format!("{name}:"), octets(&bytes, OCTETS))
            .expect("writing to a string");
    }
}

fn lines_of_luks2(header: &luks2::Header, unbound: bool, cpu: Cpu) -> String {
    let metadata = &header.metadata;
    let or = |text: &str, none: &str| if text.is_empty() { none.to_owned() } else { shown(text) };
    let mut lines = Lines("LUKS header information\n".to_owned(), cpu);
    let mut head = |name: &str, value: String| {
        writeln!(lines.0, "{name}\t{value}").expect("writing to a string");
    };
    head("Version:       ", "2".to_owned());
    head("Epoch:         ", header.seqid.to_string());
    head("Metadata area: ", format!("{} [bytes]", metadata.hdr_size()));
    head("Keyslots area: ", format!("{} [bytes]", metadata.keyslots_size()));
    head("UUID:          ", or(&header.uuid, "(no UUID)"));
    head("Label:         ", or(&header.label, "(no label)"));
    head("Subsystem:     ", or(&header.subsystem, "(no subsystem)"));
    let words = |words: Vec<String>| words.iter().map(|word| format!("{} ", shown(word))).collect::<String>();
    head("Flags:       ", or(&words(metadata.flags()), "(no flags)"));
    let requirements = metadata.requirements();
    if !requirements.is_empty() {
        head("Requirements:", words(requirements));
    }
    lines.0.push_str("\nData segments:\n");
    let segments = metadata.segments();
    segments.iter().for_each(|segment| segment_lines(&mut lines, segment));
    lines.0.push_str("Keyslots:\n");
    let digests = metadata.digests();
    for keyslot in metadata.keyslots() {
        keyslot_lines(&mut lines, &keyslot, &digests, &segments, metadata, unbound);
    }
    lines.0.push_str("Tokens:\n");
    for token in metadata.tokens() {
        writeln!(lines.0, "  {}: {}", token.id, shown(&token.kind)).expect("writing to a string");
        let description = metadata.token(token.id).and_then(|token| token.get("key_description")?.text());
        if let Some(description) = description.filter(|_| token.kind == "luks2-keyring") {
            writeln!(lines.0, "\tKey description: {}", shown(description)).expect("writing to a string");
        }
        token.keyslots.iter().for_each(|slot| lines.field("Keyslot", slot));
    }
    lines.0.push_str("Digests:\n");
    for digest in &digests {
        writeln!(lines.0, "  {}: {}", digest.id, shown(&digest.kind)).expect("writing to a string");
        if digest.kind == "pbkdf2" {
            lines.field("Hash", &digest.hash);
            lines.field("Iterations", digest.iterations);
            lines.octets("Salt", &digest.salt);
            lines.octets("Digest", &digest.digest);
        }
    }
    lines.0
}

fn segment_lines(lines: &mut Lines, segment: &Segment) {
    let mut line = |text: String| writeln!(lines.0, "{}", shown_line(&text)).expect("writing to a string");
    line(format!("  {}: {}", segment.id, segment.kind));
    line(format!("\toffset: {} [bytes]", segment.offset));
    line(match segment.size {
        SegmentSize::Dynamic => "\tlength: (whole device)".to_owned(),
        SegmentSize::Fixed(size) => format!("\tlength: {size} [bytes]"),
    });
    if segment.kind == "crypt" {
        line(format!("\tcipher: {}", segment.encryption));
        line(format!("\tsector: {} [bytes]", segment.sector_size));
    }
    if let Some(integrity) = &segment.integrity {
        line(format!("\tintegrity: {integrity}"));
    }
    if !segment.flags.is_empty() {
        line(format!("\tflags : {}", segment.flags.join(", ")));
    }
    line(String::new());
}

/// A line that begins with a tab of ours.
fn shown_line(line: &str) -> String {
    let rest = line.trim_start_matches('\t');
    line[..line.len() - rest.len()].to_owned() + &shown(rest)
}

fn keyslot_lines(
    lines: &mut Lines,
    keyslot: &Keyslot,
    digests: &[Digest],
    segments: &[Segment],
    metadata: &Metadata,
    unbound_alone: bool,
) {
    let digest = digests.iter().find(|digest| digest.keyslots.contains(&keyslot.id));
    let is_backup = |segment: &Segment| segment.flags.iter().any(|flag| flag.starts_with("backup-"));
    let in_use = |id: &u32| segments.iter().any(|segment| segment.id == *id && !is_backup(segment));
    let is_bound = digest.is_some_and(|digest| digest.segments.iter().any(in_use));
    if is_bound && unbound_alone {
        return;
    }
    let unbound = if is_bound { "" } else { " (unbound)" };
    writeln!(lines.0, "  {}: {}{unbound}", keyslot.id, shown(&keyslot.kind)).expect("writing to a string");
    lines.field("Key", format!("{} bits", u64::from(keyslot.key_size) * 8));
    lines.field(
        "Priority",
        match keyslot.priority {
            Priority::Prefer => "preferred",
            Priority::Normal => "normal",
            Priority::Ignore => "ignored",
        },
    );
    let area = &keyslot.area;
    match (&*keyslot.kind, &keyslot.kdf) {
        ("luks2", Some(kdf)) => {
            lines.field("Cipher", &area.encryption);
            lines.field("Cipher key", format!("{} bits", u64::from(area.key_size) * 8));
            kdf_lines(lines, kdf, metadata, keyslot.id);
            lines.field("AF stripes", keyslot.af_stripes);
            lines.field("AF hash", &keyslot.af_hash);
        }
        ("reencrypt", _) => {
            let object = metadata.object().get("keyslots").and_then(Json::object);
            let object = object.and_then(|all| all.get(keyslot.id.to_string())?.object());
            let text = |name: &str| object.and_then(|object| object.get(name)?.text()).unwrap_or_default();
            let inner = object.and_then(|object| object.get("area")?.object());
            let of_area = |name: &str| inner.and_then(|area| area.get(name)?.text()).unwrap_or_default();
            lines.field("Mode", text("mode"));
            lines.field("Direction", text("direction"));
            lines.field("Resilience", &area.kind);
            if area.kind == "checksum" {
                let block = inner.and_then(|area| area.get("sector_size")?.number()).unwrap_or(0);
                lines.field("Hash", of_area("hash"));
                lines.field("Hash data", format!("{block} [bytes]"));
            } else if area.kind == "datashift" {
                lines.field("Shift size", format!("{}[bytes]", of_area("shift_size")));
            }
        }
        _ => {}
    }
    lines.field("Area offset", format!("{} [bytes]", area.offset));
    lines.field("Area length", format!("{} [bytes]", area.size));
    if let Some(digest) = digest {
        lines.field("Digest ID", digest.id);
    }
}

fn kdf_lines(lines: &mut Lines, kdf: &Kdf, metadata: &Metadata, slot: u32) {
    let salt = &kdf.salt;
    match &kdf.pbkdf {
        Ok(Pbkdf::Pbkdf2 { hash, iterations }) => {
            lines.field("PBKDF", "pbkdf2");
            lines.field("Hash", hash);
            lines.field("Iterations", iterations);
            lines.octets("Salt", salt);
        }
        Ok(Pbkdf::Argon2(argon2)) => {
            lines.field("PBKDF", argon2.name());
            lines.field("Time cost", argon2.passes);
            lines.field("Memory", argon2.memory);
            lines.field("Threads", argon2.lanes);
            lines.octets("Salt", salt);
        }
        // As there, whatever is not PBKDF2 is shown as Argon2, which some old name stands for.
        Err(name) => {
            let slots = metadata.object().get("keyslots").and_then(Json::object);
            let kdf = slots.and_then(|slots| slots.get(slot.to_string())?.object()?.get("kdf")?.object());
            let number = |name: &str| kdf.and_then(|kdf| kdf.get(name)?.number()).unwrap_or(0);
            let salt = kdf.and_then(|kdf| kdf.get("salt")?.text()).unwrap_or_default();
            lines.field("PBKDF", name);
            lines.field("Time cost", number("time"));
            lines.field("Memory", number("memory"));
            lines.field("Threads", number("cpus"));
            lines.octets("Salt", salt);
        }
    }
}

fn value(header: &Header) -> Value {
    match header {
        Header::Luks1(header) => {
            let slot = |(id, slot): (usize, &luks1::Slot)| {
                let state = match slot.state {
                    luks1::SlotState::Enabled => "enabled",
                    luks1::SlotState::Disabled => "disabled",
                    luks1::SlotState::Invalid(_) => "invalid",
                };
                json!({"id": id, "state": state, "iterations": slot.iterations, "salt": hex::encode(&slot.salt),
                       "offset": u64::from(slot.offset) * 512, "stripes": slot.stripes})
            };
            json!({
                "version": 1,
                "uuid": header.uuid,
                "cipher": header.encryption(),
                "hash": header.hash,
                "data_offset": u64::from(header.payload_offset) * 512,
                "key_bits": u64::from(header.key_bytes) * 8,
                "digest": hex::encode(&header.digest),
                "digest_salt": hex::encode(&header.digest_salt),
                "digest_iterations": header.digest_iterations,
                "key_slots": header.slots.iter().enumerate().map(slot).collect::<Vec<_>>(),
            })
        }
        Header::Luks2(header) => {
            let copy = |copy: &CopyState| match copy {
                CopyState::Valid(seqid) => json!({"state": "valid", "epoch": seqid}),
                CopyState::Damaged(why) => json!({"state": "damaged", "why": why}),
                CopyState::Obsolete(why) => json!({"state": "obsolete", "why": why}),
            };
            json!({
                "version": 2,
                "uuid": header.uuid,
                "epoch": header.seqid,
                "label": header.label,
                "subsystem": header.subsystem,
                "checksum_algorithm": header.checksum_alg,
                "copies": header.copies().iter().map(copy).collect::<Vec<_>>(),
                "metadata": plain(&header.metadata.json()),
            })
        }
    }
}

/// JSON of a header as that of results; bytes that are not UTF-8 are replaced.
fn plain(json: &Json) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => (*value).into(),
        // From -2^63 to 2^64-1.
        Json::Integer(number) => match (u64::try_from(*number), i64::try_from(*number)) {
            (Ok(number), _) => number.into(),
            (_, Ok(number)) => number.into(),
            _ => Value::Null,
        },
        Json::Double(number) => number.parse::<f64>().map_or(Value::Null, Value::from),
        Json::String(bytes) => text(bytes).into(),
        Json::Array(values) => values.iter().map(plain).collect(),
        Json::Object(object) => object.iter().map(|(name, value)| (text(name), plain(value))).collect(),
    }
}
