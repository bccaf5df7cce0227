//! `casemate integrity`: dm-integrity volumes.

use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;

use casemate::blockdev::os::FileTypeExt;
use casemate::blockdev::{Events, Sequential, Stream, data_mode, is_same_storage};
use casemate::integrity::{FormatOptions, IntegrityOptions, Superblock, Volume, random_salt};
use casemate::target::Loss;
use casemate::{Access, Error, Image, SecretSource, hex, probe};

use crate::answer::Answer;
use crate::cmd::explained::explained;
use crate::cmd::journal::JournalArgs;
use crate::cmd::overwrite::OverwriteArgs;
use crate::cmd::place::{PlaceArgs, VolumeKind};
use crate::cmd::rescue::KeepGoingArgs;
use crate::context::Context;
use crate::size::bytes;

/// Make, show, check and copy dm-integrity volumes, which have a tag for each block.
///
/// Blocks in the journal are read as if they had been written to their places. Other commands read and change data in a
/// volume with --dm-integrity.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Dump(DumpArgs),
    Extract(ExtractArgs),
    Format(FormatArgs),
    Verify(VerifyArgs),
}

/// Print a dm-integrity superblock, as integritysetup dump does.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  casemate integrity dump volume.img")]
pub struct DumpArgs {
    #[command(flatten)]
    place: PlaceArgs,
}

/// Check every block of a volume. The exit status is 1 if a tag does not match its data, or was not computed yet.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate integrity verify volume.img\n\
    \x20 casemate integrity verify keyed.img --integrity hmac-sha256 --integrity-key-file integrity.key")]
pub struct VerifyArgs {
    #[command(flatten)]
    volume: VolumeArgs,
}

/// Check the data of a volume, and copy them to a file or to standard output. The exit status is 2 if some copied
/// blocks could not be checked, because their tags were not computed yet.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate integrity extract volume.img plain.img\n\
    \x20 casemate integrity extract volume.img - | sha256sum")]
pub struct ExtractArgs {
    #[command(flatten)]
    volume: VolumeArgs,
    /// The file to write; "-" is standard output. A new file gets its name when it is whole.
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    #[command(flatten)]
    overwrite: OverwriteArgs,
    #[command(flatten)]
    keep_going: KeepGoingArgs,
}

/// Make a volume, with data or zeros, and all tags. Existing data are overwritten.
///
/// The tags of zeros are computed, too: no device needs to be wiped. The superblock is written last.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate integrity format new.img --size 64M\n\
    \x20 casemate integrity format copy.img --size 70M --from root.img -I sha256 --sector-size 4096")]
pub struct FormatArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    tags: TagArgs,
    /// Create a file of N bytes, or extend an existing one to that size.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>, conflicts_with_all = ["offset", "partition"])]
    size: Option<u64>,
    /// Copy the contents of this file into the volume; "-" is standard input.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    #[command(flatten)]
    overwrite: OverwriteArgs,
    /// The size of a block in bytes: 512, 1024, 2048 or 4096.
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = bytes::<u32>)]
    sector_size: u32,
    /// The length of a tag in bytes [default: all of the checksum or hash].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u16>)]
    tag_size: Option<u16>,
    /// The size of the journal in bytes [default: a 128th of the image, at most 64 MiB].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    journal_size: Option<u64>,
    /// Sectors of 512 bytes between two runs of tags: a power of two from 8 to 2^31.
    #[arg(long, value_name = "SECTORS", default_value_t = 32768)]
    interleave_sectors: u32,
    /// The salt, 16 bytes in hex [default: random].
    #[arg(long, value_name = "HEX")]
    salt: Option<String>,
}

/// How tags are made.
#[derive(clap::Args, Debug)]
struct TagArgs {
    /// Integrity algorithm, which the superblock does not record: crc32c, crc32, sha1, sha256, ..., or with a key
    /// hmac-sha256, ...
    #[arg(short = 'I', long, value_name = "NAME", default_value = "crc32c")]
    integrity: String,
    /// Read the key of the tags from this file, all of it; "-" is standard input.
    #[arg(long, value_name = "FILE")]
    integrity_key_file: Option<PathBuf>,
    #[command(flatten)]
    journal: JournalArgs,
}

/// A volume, and how its tags are made.
#[derive(clap::Args, Debug)]
struct VolumeArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    tags: TagArgs,
    /// The file or block device with the data; IMAGE then has only the tags.
    #[arg(long, value_name = "PATH")]
    data_device: Option<PathBuf>,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        match self.action {
            Action::Dump(args) => args.run(context),
            Action::Extract(args) => args.run(context),
            Action::Format(args) => args.run(context),
            Action::Verify(args) => args.run(context),
        }
    }
}

impl DumpArgs {
    fn run(self, context: &Context) -> Result<Answer, Error> {
        let superblock = superblock(&self.place, context)?;
        match context.json() {
            true => context.print_json(&value(&superblock))?,
            false => {
                let name = self.place.file().display();
                context.print(format!("Info for integrity device {name}.\n{}", superblock.to_text()))?;
            }
        }
        Ok(Answer::Yes)
    }
}

impl VerifyArgs {
    fn run(self, context: &Context) -> Result<Answer, Error> {
        let volume = self.volume.open(context)?;
        let name = self.volume.place.file().display().to_string();
        let progress = context.progress(&name, volume.size());
        let report = volume.verify(&context.work(context.providers().clone(), &progress))?;
        drop(progress);
        if context.json() {
            context.print_json(&json!({
                "blocks": report.blocks,
                "wrong": report.wrong,
                "wrong_blocks": report.wrong_blocks.iter().map(|range| [range.start, range.end]).collect::<Vec<_>>(),
                "unknown": report.unknown,
                "from_journal": report.journalled,
            }))?;
        } else {
            for range in &report.wrong_blocks {
                let blocks = match range.end - range.start {
                    1 => format!("block {}", range.start),
                    _ => format!("blocks {} to {}", range.start, range.end - 1),
                };
                context.print(format!("{name}: {blocks}: wrong tag\n"))?;
            }
            let kept: u64 = report.wrong_blocks.iter().map(|range| range.end - range.start).sum();
            if kept < report.wrong {
                context.print(format!("{name}: {} more blocks: wrong tag\n", report.wrong - kept))?;
            }
            if report.unknown > 0 {
                context.print(format!(
                    "{name}: {} blocks can't be verified: by the superblock their tags were still to be computed\n",
                    report.unknown
                ))?;
            }
        }
        context.done(format_args!("{name}: {} of {} blocks are wrong", report.wrong, report.blocks));
        // Nothing authenticates the mark that says so: whoever changes blocks can set it.
        Ok(if report.wrong + report.unknown == 0 { Answer::Yes } else { Answer::No })
    }
}

impl ExtractArgs {
    fn run(self, context: &Context) -> Result<Answer, Error> {
        if self.keep_going.keep_going {
            return self.rescue(context);
        }
        let volume = self.volume.open(context)?;
        let image = self.volume.place.file();
        let progress = context.progress(&image.display().to_string(), volume.size());
        let work = context.work(context.providers().clone(), &progress);
        if self.target == Path::new("-") {
            let unknown =
                volume.extract_stream(("standard output", &mut context.output_of_data()?), &work)?;
            drop(progress);
            return Ok(unchecked(unknown, image, context));
        }
        let others: Vec<&Path> =
            self.volume.place.files().into_iter().chain(self.volume.data_device.as_deref()).collect();
        let unknown = volume.extract(&self.target, &others, &|loss| self.overwrite.consent(loss), &work)?;
        drop(progress);
        if context.json() {
            context.print_json(&json!({ "bytes": volume.size(), "unknown": unknown }))?;
        }
        context.done(format_args!("{}: copied", self.target.display()));
        Ok(unchecked(unknown, image, context))
    }

    /// Copies the blocks whose tags are right.
    fn rescue(self, context: &Context) -> Result<Answer, Error> {
        let VolumeArgs { place, tags, data_device } = &self.volume;
        let inputs: Vec<&Path> = place.files().into_iter().chain(data_device.as_deref()).collect();
        let maps = &self.keep_going.maps;
        maps.check(&self.target, &inputs)?;
        // The map is of what has the data.
        let data = data_device.as_ref().map(|path| maps.under(Image::open(path, Access::Read)?, context));
        let data = data.transpose()?;
        let under = |image| if data.is_some() { Ok(image) } else { maps.under(image, context) };
        let image = place.open_under(Access::Read, VolumeKind::Integrity, context, under)?;
        let mut options = tags.options()?;
        options.goes_without_journal = true;
        let volume = image.clone().integrity(data.as_ref(), &options, context.providers());
        let volume = volume.map_err(|error| explained(error, &image, probe::INTEGRITY))?;
        if volume.has_unknown_blocks() {
            context.note(&format!(
                "{}: by its superblock tags were still to be computed; blocks without one are copied and not checked",
                image.name()
            ));
        }
        maps.copy(&volume, &self.target, &inputs, self.overwrite, context)
    }
}

/// The answer of a copy with so many blocks of which nothing is known. Nothing authenticates the mark that says so.
fn unchecked(unknown: u64, image: &Path, context: &Context) -> Answer {
    if unknown == 0 {
        return Answer::Yes;
    }
    let text = format!(
        "{unknown} blocks were copied and can't be verified: by the superblock their tags were still to be computed"
    );
    context.complain(&Error::mismatch(text).at(image.display()));
    Answer::Failed
}

impl FormatArgs {
    fn run(self, context: &Context) -> Result<Answer, Error> {
        self.place.refuse_partition()?;
        let options = self.tags.options()?;
        let tag_size = self.tag_size.map_or_else(|| options.tag_size(context.providers()), Ok)?;
        let salt = match &self.salt {
            None => random_salt()?,
            Some(text) => hex::decode_array(text)
                .ok_or_else(|| Error::argument(format!("{text}: not 16 bytes in hex")))?,
        };
        let mut format = FormatOptions::new(tag_size, salt);
        (format.block_size, format.journal_size) = (self.sector_size, self.journal_size);
        format.interleave_sectors = self.interleave_sectors;
        let mut from = self.from.as_deref().map(|path| Source::open(path, self.place.file())).transpose()?;
        let name = self.place.file().display().to_string();
        self.place.refuse_partition()?;
        let consent = |loss: &Loss| self.overwrite.consent(loss);
        let image = self.place.open_or_grow(self.size, VolumeKind::Integrity, &consent, context)?;
        let progress = context.progress(&name, image.device().size());
        let work = context.work(context.providers().clone(), &progress);
        if let Some(path) = self.from.as_deref().filter(|path| *path != Path::new("-")) {
            image.narrow(data_mode(path));
        }
        let mut from = from.as_mut().map(Source::reader);
        let from: Option<&mut dyn Read> = match &mut from {
            Some(from) => Some(from),
            None => None,
        };
        let superblock = options.format(&image, &format, from, &work)?;
        image.commit()?;
        drop(progress);
        if context.json() {
            context.print_json(&value(&superblock))?;
        }
        context.done(format_args!("{name}: formatted"));
        Ok(Answer::Yes)
    }
}

/// The data that a volume is made with.
enum Source {
    /// A file or block device, to which nobody writes meanwhile.
    Image(Box<Image>),
    /// Standard input, a pipe or a device such as /dev/zero.
    Stream(Stream),
}

impl Source {
    fn open(path: &Path, image: &Path) -> Result<Source, Error> {
        if path == Path::new("-") {
            return Stream::input().map(Source::Stream).map_err(|error| Error::io("standard input", error));
        }
        if is_same_storage(path, image) {
            return Err(Error::argument(format!(
                "{}: a volume can't be made of itself, or of what lies on the same bytes",
                path.display()
            )));
        }
        let is_image = |metadata: fs::Metadata| metadata.is_file() || metadata.file_type().is_block_device();
        if fs::metadata(path).is_ok_and(is_image) {
            return Ok(Source::Image(Box::new(Image::open(path, Access::Read)?)));
        }
        Stream::open(path).map(Source::Stream).map_err(|error| Error::io(path.display(), error))
    }

    fn reader(&mut self) -> BufReader<Box<dyn Read + '_>> {
        let from: Box<dyn Read + '_> = match self {
            Source::Image(image) => Box::new(Sequential::new(image.top(), 0..u64::MAX)),
            Source::Stream(stream) => Box::new(stream),
        };
        BufReader::with_capacity(1 << 20, from)
    }
}

impl TagArgs {
    fn options(&self) -> Result<IntegrityOptions, Error> {
        let mut options = IntegrityOptions::default();
        options.algorithm.clone_from(&self.integrity);
        self.journal.set(&mut options)?;
        match &self.integrity_key_file {
            Some(path) => options.with_key(&SecretSource::file(path)),
            None => Ok(options),
        }
    }
}

impl VolumeArgs {
    fn open(&self, context: &Context) -> Result<Volume, Error> {
        let options = self.tags.options()?;
        // What changes meanwhile would be copied as it never was, and blamed on its tags.
        let open = |path| Image::open(path, Access::Read);
        let data = self.data_device.as_ref().map(open).transpose()?;
        let image = self.place.open(Access::Read, VolumeKind::Integrity, context)?;
        let volume = image.integrity_volume(data.as_ref(), &options, context.providers());
        volume.map_err(|error| explained(error, &image, probe::INTEGRITY))
    }
}

fn superblock(place: &PlaceArgs, context: &Context) -> Result<Superblock, Error> {
    let image = place.open(Access::ReadUnlocked, VolumeKind::Integrity, context)?;
    image.integrity_superblock().map_err(|error| explained(error, &image, probe::INTEGRITY))
}

fn value(superblock: &Superblock) -> serde_json::Value {
    json!({
        "version": superblock.version,
        "interleave_sectors": 1u64 << superblock.log2_interleave_sectors,
        "tag_size": superblock.tag_size,
        "journal_sections": superblock.journal_sections,
        "provided_data_sectors": superblock.provided_data_sectors,
        "block_size": superblock.block_size(),
        "blocks_per_bitmap_bit": 1u64.checked_shl(superblock.log2_blocks_per_bitmap_bit.into()),
        "recalc_sector": superblock.recalc_sector,
        "flags": superblock.flags.names().collect::<Vec<_>>(),
        "salt": hex::encode(&superblock.salt),
    })
}
