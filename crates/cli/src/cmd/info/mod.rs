//! `casemate info`: what an image holds, as far down as can be seen.

mod page;
mod scan;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueHint;
use serde_json::{Map, Value, json};

use casemate::blockdev::PartitionId;
use casemate::ext4::{sha256, source_date_epoch};
use casemate::image_spec::{ImageSpec, LayerSpec, LuksSpec};
use casemate::probe::{self, Found, Look, Progress, Readable, Stale, Tag};
use casemate::{Access, Error, Image, Output, hex};

use crate::answer::Answer;
use crate::cmd::explained::name;
use crate::cmd::layers::{Asking, LayerArgs, spec_parser};
use crate::cmd::place::PartArgs;
use crate::context::Context;
use crate::size::shown;
use crate::streams::visible;

/// Describe the contents of an image, and name the commands that read them.
///
/// Finds partitions, file systems, encryption headers and hash areas, as deep as they can be read.
///
/// With --scan, searches all of the image: finds partitions, file systems and headers wherever they lie.
///
/// If the beginning is lost, finds backups of superblocks, of LUKS2's header, of a GPT. Nothing is verified:
/// superblocks and headers are believed. Reports parts that are cut off or can't be opened. The exit status is 1 if
/// nothing known was found.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate info root.img\n\
    \x20 casemate info --html root.html root.img\n\
    \x20 casemate info --scan disk.img\n\
    \x20 casemate info --html case.html --sha256 disk.img\n\
    \x20 casemate info disk.enc,crypt=aes-xts-plain64,key-file=disk.key,key-size=512")]
pub struct Args {
    /// The image: a file or block device, or with the layers on it, such as disk.img,partition=2,luks,key-file=pw.
    #[arg(value_name = "IMAGE", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    image: ImageSpec,
    #[command(flatten)]
    part: PartArgs,
    /// Also write an HTML page of the findings to this file; "-" is standard output, without the text.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also compute the SHA-256 of the image, which reads all of it.
    #[arg(long, conflicts_with = "scan")]
    sha256: bool,
    /// Search all of the image, at the speed of reading it. Finds lost partitions, superblocks and their backups, both headers
    /// of LUKS2, both copies of a GPT, dm-verity, dm-integrity, LVM, MD and others. Wrong checksums suppress a find.
    #[arg(long, conflicts_with = "html")]
    scan: bool,
    #[command(flatten)]
    layers: LayerArgs,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.image.check_device()?;
        let spec = self.part.under(&self.image, self.layers.specs()?)?;
        let image = spec.lay(spec.open_part_to_look(Access::ReadUnlocked)?, &Asking::of(context))?;
        if self.scan {
            return self.search(&image, &spec, context);
        }
        let found = probe::look(&image)?;
        let file = spec.file();
        let place = Place { spec: spec.clone(), by_offset: false };
        let answer = if found.what.is_some() { Answer::Yes } else { Answer::No };
        let title = file.display().to_string();
        let digest = if self.sha256 { Some(digest(&image, &title, context)?) } else { None };
        let digest = digest.as_deref();
        if let Some(path) = &self.html {
            let time = time()?;
            let text = page::html(page::Heading { title: &title, time, digest }, &found, &place);
            if path == Path::new("-") {
                context.print_data(text)?;
                return Ok(answer);
            }
            Output::write_whole(path, &[file], text.as_bytes())?;
        }
        match context.json() {
            true => {
                let mut value = value(&found, &place);
                if let Some(digest) = digest {
                    value["sha256"] = digest.into();
                }
                context.print_data(context.json_line(&value)?)?;
            }
            false => {
                let digest = digest.map_or_else(String::new, |digest| format!("sha256: {digest}\n"));
                context.print_data(lines(&title, &found, &place) + &digest)?;
            }
        }
        Ok(answer)
    }

    /// Searches all of the image.
    fn search(&self, image: &Image, spec: &ImageSpec, context: &Context) -> Result<Answer, Error> {
        let name = spec.file().display().to_string();
        let progress = context.progress(&name, image.device().size());
        let work = context.work(context.providers().clone(), &progress);
        let found = probe::scan(image, &work)?;
        drop(progress);
        let spec = match spec.parts().1 {
            // Where it lies in the file, whatever part of that was searched.
            [] => at_offset(&ImageSpec::of_file(spec.file()), image.start()),
            _ => Some(spec.clone()),
        };
        let place = Place { spec: spec.unwrap_or_else(|| ImageSpec::of_file(&name)), by_offset: false };
        match context.json() {
            true => context.print_data(context.json_line(&scan::json(&found, &place))?)?,
            false => context.print_data(scan::text(&name, &found, &place))?,
        }
        if !found.unreadable.is_empty() {
            return Ok(Answer::Failed);
        }
        Ok(if found.volumes.is_empty() { Answer::No } else { Answer::Yes })
    }
}

/// When the page is made, in seconds since 1970: now, or as SOURCE_DATE_EPOCH says.
fn time() -> Result<u64, Error> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(source_date_epoch()?.map_or_else(now, |time| u64::try_from(time.seconds).unwrap_or(0)))
}

/// The SHA-256 of all bytes of an image, in hexadecimal.
fn digest(image: &Image, title: &str, context: &Context) -> Result<String, Error> {
    let device = image.device();
    let progress = context.progress(title, device.size());
    let work = context.work(context.providers().clone(), &progress);
    let digest = sha256(&*device, &work).map_err(|error| error.within(image.name()))?;
    Ok(hex::encode(&digest))
}

/// Place of something found, for the command lines that are suggested.
#[derive(Clone)]
struct Place {
    spec: ImageSpec,
    /// Whether partitions are given by their offsets, as no table that others look at has them.
    by_offset: bool,
}

/// An image from a byte on; `None` for what no device has.
fn at_offset(spec: &ImageSpec, start: u64) -> Option<ImageSpec> {
    let whole = || ImageSpec::of_file(spec.file());
    match spec.layers() {
        _ if start == 0 => Some(spec.clone()),
        [LayerSpec::Window { offset, size: None }] => {
            let offset = offset.checked_add(start)?;
            Some(whole().with_layer(LayerSpec::Window { offset, size: None }))
        }
        _ => Some(spec.clone().with_layer(LayerSpec::Window { offset: start, size: None })),
    }
}

impl Place {
    /// The partition and the offset that options can say, if they can say everything.
    fn options(&self) -> Option<(Option<PartitionId>, u64)> {
        match self.spec.layers() {
            [] => Some((None, 0)),
            [LayerSpec::Partition(id)] => Some((Some(id.clone()), 0)),
            [LayerSpec::Window { offset, size: None }] => Some((None, *offset)),
            _ => None,
        }
    }
}

/// The commands that read something found through layers: those that take an image specification.
fn commands_through_layers(found: &Found, place: &Place) -> Vec<String> {
    let spec = match found.partition {
        Some(_) if place.by_offset => {
            place.spec.clone().with_layer(LayerSpec::Window { offset: found.start, size: Some(found.len) })
        }
        Some(number) => place.spec.clone().with_layer(LayerSpec::Partition(PartitionId::Number(number))),
        None => place.spec.clone(),
    };
    let image = quoted(Path::new(&spec.to_os_string()));
    match found.what {
        Some(probe::EXT) => commands_of_files(found, "", &image),
        Some(probe::LUKS) => {
            let inner = spec.with_layer(LayerSpec::Luks(LuksSpec::default()));
            let inner = quoted(Path::new(&inner.to_os_string()));
            vec![format!("casemate luks dump {image}"), format!("casemate info {inner}")]
        }
        Some(probe::INTEGRITY) => vec![format!("casemate integrity dump {image}")],
        None if may_hold_more(found) => vec![format!("casemate info --scan {image}")],
        Some(probe::VERITY | probe::GPT | probe::MBR | probe::EXT_JOURNAL | probe::OVERLAY) | None => {
            Vec::new()
        }
        Some(probe::IN_PLACE_JOURNAL | probe::RECOVERY_FILE | probe::UNDO_FILE) => Vec::new(),
        Some(probe::ROOT_HASH | probe::VERITY_SIG | probe::SIGNATURE) => Vec::new(),
        Some(_) => vec![format!("casemate serve -r -U - {image}   # for any NBD client")],
    }
}

/// The commands that read the files of a file system, as far as it can be read, and the one that checks it.
fn commands_of_files(found: &Found, at: &str, image: &str) -> Vec<String> {
    let copy = found.superblock.map_or(String::new(), |block| format!(" --superblock {block}"));
    let no_replay = |without_journal| if without_journal { " --no-replay" } else { "" };
    let reading = match found.readable {
        Readable::Names => Some(format!("casemate ext4 ls{at}{copy} {image} /")),
        Readable::WithoutJournal => Some(format!("casemate ext4 ls{at}{copy} --no-replay {image} /")),
        Readable::Inodes { without_journal } => Some(format!(
            "casemate ext4 extract{at}{copy}{} --unreachable {image} FOLDER",
            no_replay(without_journal)
        )),
        _ => None,
    };
    reading.into_iter().chain([format!("casemate ext4 check{at} {image}")]).collect()
}

/// Whether a search may find something in bytes of which nothing is known.
fn may_hold_more(found: &Found) -> bool {
    found.content.is_some_and(|content| match content.look {
        Look::Empty => false,
        Look::Zeros => content.read < found.len,
        Look::Random | Look::Other => true,
    })
}

/// The commands that read something found, or make it readable.
fn commands(found: &Found, place: &Place) -> Vec<String> {
    let Some((partition, offset)) = place.options() else { return commands_through_layers(found, place) };
    let file = place.spec.file();
    // In a specification two commas are one of a name; other tools know none.
    let (image, plain) = (quoted(Path::new(&ImageSpec::of_file(file).to_os_string())), quoted(file));
    let at = match (found.partition.map(PartitionId::Number).or(partition), offset) {
        (Some(_), offset) if place.by_offset => {
            format!(" --offset {}", found.start.saturating_add(offset))
        }
        (Some(id), _) => format!(" -P {}", quoted(Path::new(&id.to_string()))),
        (None, 0) => String::new(),
        (None, offset) => format!(" --offset {offset}"),
    };
    match found.what {
        Some(probe::EXT) => commands_of_files(found, &at, &image),
        Some(probe::VERITY) => {
            let start = found.start.saturating_add(offset);
            let offset = if start == 0 { String::new() } else { format!(" --hash-offset {start}") };
            vec![format!("casemate verity dump{offset} {image}")]
        }
        Some(probe::GPT | probe::MBR | probe::EXT_JOURNAL) => Vec::new(),
        Some(probe::LUKS) if found.fact("under way").is_some() => {
            vec![format!("casemate luks dump{at} {image}"), format!("casemate luks reencrypt{at} {image}")]
        }
        Some(probe::LUKS) => vec![
            format!("casemate luks dump{at} {image}"),
            format!("casemate info{at} --luks {image}   # asks for the passphrase"),
        ],
        Some(probe::INTEGRITY) => vec![format!("casemate integrity dump{at} {image}")],
        Some(probe::QCOW2) => vec![format!("qemu-img convert -O raw {plain} raw.img")],
        Some(probe::SPARSE) => vec![format!("simg2img {plain} raw.img")],
        Some("gzip data") => vec![format!("gzip -dc {plain}")],
        Some("xz data") => vec![format!("xz -dc {plain}")],
        Some("zstd data") => vec![format!("zstd -dc {plain}")],
        Some("a tar archive") => vec![format!("casemate ext4 put --tar={image} root.img /")],
        Some(probe::OVERLAY) => vec![
            format!(
                "casemate serve -r --overlay {plain} -U - IMAGE   # IMAGE is the image that it was made of"
            ),
            format!("casemate overlay commit -n {plain} IMAGE"),
        ],
        Some(probe::IN_PLACE_JOURNAL | probe::RECOVERY_FILE | probe::UNDO_FILE) => Vec::new(),
        // Files of their own; what they belong to is not known here.
        Some(probe::ROOT_HASH | probe::VERITY_SIG | probe::SIGNATURE) if !at.is_empty() => Vec::new(),
        Some(probe::ROOT_HASH) => {
            vec![format!("casemate verity verify IMAGE HASH_AREA --root-hash-file {plain}")]
        }
        Some(probe::VERITY_SIG | probe::SIGNATURE) => {
            let root_hash = found.fact("root hash").unwrap_or("ROOT_HASH");
            vec![format!("casemate verity verify-signature {root_hash} {plain} --cert CERTFILE")]
        }
        Some(_) => vec![format!("casemate serve{at} -r -U - {image}   # for any NBD client")],
        None => {
            let is_random = found.content.is_some_and(|content| content.look == Look::Random);
            let crypt = format!("casemate info{at} --crypt aes-xts-plain64 --key-file KEY {image}");
            let scan = format!("casemate info{at} --scan {image}");
            let scan = may_hold_more(found).then_some(scan);
            scan.into_iter().chain(is_random.then_some(crypt)).collect()
        }
    }
}

/// A path as a shell takes it, without characters that steer a terminal.
pub fn quoted(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(byte);
    let printable = |text: &str| visible(text) == text;
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(plain) && !text.is_empty() && !text.starts_with('-') => text.to_owned(),
        Ok(text) if printable(text) => {
            let dash = if text.starts_with('-') { "./" } else { "" };
            format!("{dash}'{}'", text.replace('\'', "'\\''"))
        }
        _ => {
            let byte = |byte: &u8| match byte {
                b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                _ => format!("\\x{byte:02x}"),
            };
            format!("$'{}'", bytes.iter().map(byte).collect::<String>())
        }
    }
}

fn lines(title: &str, found: &Found, place: &Place) -> String {
    let mut text = String::new();
    let mut stack = vec![(found, 0)];
    while let Some((found, depth)) = stack.pop() {
        let indent = "  ".repeat(depth);
        let head = match (depth, found.partition) {
            (0, _) => format!("{}: ", visible(title)),
            (_, Some(number)) => format!("partition {number}, at byte {}: ", found.start),
            (_, None) => format!("at byte {}: ", found.start),
        };
        // Damage quotes names of the image, and a line is one line.
        let mut line =
            |what: String| writeln!(text, "{indent}{}", visible(&what)).expect("writing to a string");
        line(format!("{head}{}, {} bytes ({})", name(found), found.len, shown(found.len)));
        for (key, value) in &found.facts {
            line(format!("  {key}: {value}"));
        }
        if let Some(used) = found.used {
            line(format!("  in use: {used} bytes ({})", shown(used)));
        }
        for damage in &found.damage {
            line(format!("  damaged: {damage}"));
        }
        for stale in &found.stale {
            line(format!("  {}", self::stale(stale)));
        }
        for command in commands(found, place) {
            line(format!("  $ {command}"));
        }
        stack.extend(found.inside.iter().rev().map(|inner| (inner, depth + 1)));
    }
    text
}

/// A line about what lay here before.
fn stale(stale: &Stale) -> String {
    let uuid = if stale.uuid.is_empty() { String::new() } else { format!(" of {}", stale.uuid) };
    format!("left over from earlier: {}{uuid}, at byte {}; it is not used", stale.what, stale.start)
}

/// A tag for programs.
fn tag(tag: Tag) -> Value {
    match tag {
        Tag::Text(text) => text.into(),
        Tag::Number(number) => number.into(),
    }
}

fn value(found: &Found, place: &Place) -> Value {
    let key = |key: &str| key.replace(' ', "_");
    let facts: Map<String, Value> =
        found.facts.iter().map(|(name, value)| (key(name), value.as_str().into())).collect();
    let values: Map<String, Value> =
        found.values().into_iter().map(|(name, value)| (key(name), tag(value))).collect();
    let stale = |stale: &Stale| json!({"start": stale.start, "what": stale.what, "uuid": stale.uuid});
    let reencryption = |progress: Progress| {
        json!({
            "mode": progress.mode,
            "direction": progress.direction,
            "done_bytes": progress.bytes.map(|(done, _)| done),
            "all_bytes": progress.bytes.map(|(_, all)| all),
        })
    };
    let mut value = json!({
        "start": found.start,
        "bytes": found.len,
        "full_bytes": found.full,
        "partition": found.partition,
        "what": found.what,
        "content": found.content.map(|content| match content.look {
            Look::Empty => "empty",
            Look::Zeros => "zeros",
            Look::Random => "random",
            Look::Other => "other",
        }),
        "read_bytes": found.content.map(|content| content.read),
        "facts": facts,
        "values": values,
        "superblock": found.superblock,
        "stale": found.stale.iter().map(stale).collect::<Vec<_>>(),
        "reencryption": found.reencryption.map(reencryption),
        "used_bytes": found.used,
        "damage": found.damage,
        "commands": commands(found, place),
        "inside": found.inside.iter().map(|inner| self::value(inner, place)).collect::<Vec<_>>(),
    });
    for (name, text) in found.tags() {
        value[name] = tag(text);
    }
    value
}
