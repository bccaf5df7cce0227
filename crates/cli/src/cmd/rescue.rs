//! `casemate rescue`, and the options of other commands that go on behind what can't be read.

use std::fs::{File, Metadata, metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use serde_json::{Value, json};

use casemate::blockdev::os::FileTypeExt as _;
use casemate::blockdev::{Advice, Events, u64_of};
use casemate::image_spec::ImageSpec;
use casemate::rescue::{LARGEST_MAP, RescueMap, Rescued};
use casemate::target::Loss;
use casemate::{Access, Code, Error, ErrorKind, Image, Output};

use crate::answer::Answer;
use crate::cmd::ends::check_output;
use crate::cmd::layers::{Asking, LayerArgs, spec_parser};
use crate::cmd::overwrite::OverwriteArgs;
use crate::cmd::place::PartArgs;
use crate::context::Context;

/// Copy what can be read of a damaged device and its layers.
///
/// The copy is what the topmost layer shows: decrypted, and verified. Reading goes on behind what can't be read: sectors that give
/// errors, blocks whose tag or digest is wrong. They are zeros in the copy, are listed on standard error, and are bad in the map
/// of --map. The exit status is 1 then.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate rescue disk.img copy.img --map copy.map\n\
    \x20 casemate rescue disk.luks plain.img --luks --key-file pass.key --image-map ddrescue.map\n\
    \x20 casemate rescue --dm-verity root.verity @root.hash.txt root.img root.copy")]
pub struct Args {
    /// The image: a file or block device, or with the layers on it, such as disk.img,partition=2,luks,key-file=pw.
    #[arg(value_name = "IMAGE", value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    image: ImageSpec,
    /// The file or block device to write; "-" is standard output. A new file gets its name at the end.
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    #[command(flatten)]
    part: PartArgs,
    #[command(flatten)]
    maps: MapArgs,
    #[command(flatten)]
    overwrite: OverwriteArgs,
    #[command(flatten)]
    layers: LayerArgs,
}

/// Maps of what was read.
#[derive(clap::Args, Clone, Debug)]
pub struct MapArgs {
    /// Write a GNU ddrescue map of the copy to this file: what could not be read is bad.
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Read the GNU ddrescue map of the image from this file: parts that it does not call finished can't be read, and are not
    /// taken for zeros.
    #[arg(long, value_name = "FILE")]
    image_map: Option<PathBuf>,
}

/// Whether a command goes on behind what can't be read.
#[derive(clap::Args, Clone, Debug)]
#[command(
    mut_arg("map", |arg| arg.requires("keep_going")),
    mut_arg("image_map", |arg| arg.requires("keep_going")))]
pub struct KeepGoingArgs {
    /// Go on behind what can't be read, or has a wrong tag: it is zeros in the copy, and is listed. The exit status is 1 then.
    #[arg(long)]
    pub keep_going: bool,
    #[command(flatten)]
    pub maps: MapArgs,
}

/// Ranges that are listed one by one.
const MOST_RANGES: usize = 100;

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        self.image.check_device()?;
        let spec = self.part.under(&self.image, self.layers.specs()?)?;
        let mut inputs = spec.files_beside();
        inputs.push(spec.file());
        check_output(&self.target, &inputs)?;
        self.maps.check(&self.target, &inputs)?;
        let image = self.maps.under(spec.open_part(Access::Read, true)?, context)?;
        let image = spec.lay(image, &Asking::of(context))?;
        self.maps.copy(&image, &self.target, &inputs, self.overwrite, context)
    }
}

impl MapArgs {
    /// The image, without what its map says was not read, and what is missing at its end.
    pub fn under(&self, image: Image, context: &Context) -> Result<Image, Error> {
        let map = self.image_map.as_deref().map(read_map).transpose()?;
        let there = image.device().size();
        let image = image.without_unread(map.as_ref());
        let missing = image.device().size() - there;
        if missing > 0 {
            let by = if image.as_ref().missing().is_some() { "the partition table" } else { "the map" };
            context.note(&format!(
                "{}: {missing} bytes are missing at the end: {by} has them behind byte {there}; they count as not read",
                image.name()
            ));
        }
        Ok(image)
    }

    /// Refuses a map that would replace what is read or written, or a file that is not a map.
    pub fn check(&self, target: &Path, inputs: &[&Path]) -> Result<(), Error> {
        let Some(map) = &self.map else { return Ok(()) };
        let inputs: Vec<&Path> =
            inputs.iter().copied().chain(self.image_map.as_deref()).chain([target]).collect();
        check_output(map, &inputs)?;
        check_old_map(map)
    }

    /// Copies what can be read, and says what can't. `inputs` are not written.
    pub fn copy(
        &self,
        image: &Image,
        target: &Path,
        inputs: &[&Path],
        overwrite: OverwriteArgs,
        context: &Context,
    ) -> Result<Answer, Error> {
        let inputs: Vec<&Path> = inputs.iter().copied().chain(self.image_map.as_deref()).collect();
        let progress = context.progress(image.name(), image.device().size());
        let work = context.work(context.providers().clone(), &progress);
        let is_stream = target == Path::new("-");
        let begin = |path: &PathBuf| {
            let others: Vec<&Path> = inputs.iter().copied().chain([target]).collect();
            // One may have come while a passphrase was asked for.
            check_old_map(path)?;
            Output::begin(path, &others)
        };
        let map = self.map.as_ref().map(begin).transpose()?;
        let map_of = |rescued: &Rescued| {
            map.map(|map| map.with(rescued.map().to_text(rescued.bytes).as_bytes())).transpose()
        };
        let rescued = match is_stream {
            true => {
                let mut output = context.output_of_data()?;
                let rescued = image.rescue_stream(("standard output", &mut output), &work)?;
                map_of(&rescued)?.map(Output::commit).transpose()?;
                rescued
            }
            false => {
                let consent = |loss: &Loss| overwrite.consent(loss);
                image.rescue(target, &inputs, &consent, &work, map_of)?
            }
        };
        drop(progress);
        complain(image.name(), &rescued, context);
        if context.json() && !is_stream {
            context.print_json(&value(&rescued))?;
        }
        let lost = rescued.lost_bytes();
        context.done(format_args!(
            "{}: {} bytes, {lost} of them could not be read",
            target.display(),
            rescued.bytes
        ));
        Ok(if rescued.is_whole() { Answer::Yes } else { Answer::Incomplete })
    }
}

/// Lists what could not be read.
fn complain(name: &str, rescued: &Rescued, context: &Context) {
    if rescued.has_unread_journal {
        let text = format!(
            "{name}: the journal can't be read: blocks in it may be newer than those that were copied"
        );
        context.complain(&Error::corrupt(text).advise(Advice::JournalCrypt));
    }
    for (ranges, what, more) in [
        (&rescued.lost, "can't be read; zeros in the copy", "can't be read"),
        (
            &rescued.unchecked,
            "copied and not checked: the tags are wrong, and were still to be computed by the superblock",
            "are not checked",
        ),
    ] {
        for range in ranges.iter().take(MOST_RANGES) {
            let (first, last) = (range.start / 512, (range.end - 1) / 512);
            let sectors = match first == last {
                true => format!("sector {first}"),
                false => format!("sectors {first} to {last}"),
            };
            context.complain(&Error::corrupt(format!("{name}: {sectors}: {what}")));
        }
        if let Some(rest) = ranges.get(MOST_RANGES..).filter(|rest| !rest.is_empty()) {
            let text = format!("{name}: {} more ranges {more}; --map lists all", rest.len());
            context.complain(&Error::corrupt(text));
        }
    }
}

fn value(rescued: &Rescued) -> Value {
    json!({
        "bytes": rescued.bytes,
        "lost_bytes": rescued.lost_bytes(),
        "lost": rescued.lost.iter().map(|range| [range.start, range.end]).collect::<Vec<_>>(),
        "unchecked": rescued.unchecked.iter().map(|range| [range.start, range.end]).collect::<Vec<_>>(),
        "unread_journal": rescued.has_unread_journal,
    })
}

/// Refuses to replace a file that is not a map: nobody can have meant it. One without contents loses nothing.
fn check_old_map(path: &Path) -> Result<(), Error> {
    let holds_data =
        |found: Metadata| found.file_type().is_block_device() || found.is_file() && found.len() > 0;
    if !metadata(path).is_ok_and(holds_data) {
        return Ok(());
    }
    read_map(path).map(drop).map_err(|error| match error.kind() {
        ErrorKind::Corrupt => {
            let text = format!("{}; a map replaces only another map: name another file", error.text());
            Error::coded(Code::Exists, text)
        }
        _ => error,
    })
}

fn read_map(path: &Path) -> Result<RescueMap, Error> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(LARGEST_MAP + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| Error::io(path.display(), error))?;
    if u64_of(bytes.len()) > LARGEST_MAP {
        return Err(Error::corrupt(format!("{}: larger than any map of a disk", path.display())));
    }
    let text = str::from_utf8(&bytes).map_err(|_| Error::corrupt("rescue map: not a text"));
    text.and_then(RescueMap::from_text).map_err(|error| error.at(path.display()))
}
