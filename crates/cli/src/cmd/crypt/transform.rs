//! `casemate crypt encrypt` and `casemate crypt decrypt`.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use serde_json::json;

use casemate::blockdev::{BlockDevice, FileDevice, PartitionId, Stream};
use casemate::crypt::{DEFAULT_HOT_ZONE, Direction, Holes, InPlaceOptions, Mapping};
use casemate::image_spec::{ImageSpec, LayerSpec};
use casemate::target::{Loss, Made};
use casemate::{Access, Error, Image, Output, probe};

use super::mapping::OwnMappingArgs;
use crate::answer::Answer;
use crate::cmd::ends::check_output;
use crate::cmd::layers::{Asking, spec_parser};
use crate::cmd::overwrite::OverwriteArgs;
use crate::cmd::place::{refuse_layers, with_partition};
use crate::context::Context;
use crate::passphrase::Asked;
use crate::size::bytes;

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    casemate crypt encrypt disk.img disk.enc --key-file disk.key --key-size 512\n  \
    casemate crypt decrypt disk.enc - --key-file disk.key --key-size 512 | cmp - disk.img\n  \
    casemate crypt encrypt --in-place disk.img --key-file disk.key --key-size 512\n\n\
    In place, each hot zone goes to a journal beside the image first, is flushed there, and is then written to the \
    image. Being killed or losing power at any moment loses nothing: the same command with --resume goes on. The \
    journal is removed at the end.")]
pub struct Args {
    /// The image to read: a file or block device, or a part of one, such as disk.img,partition=2, also with layers on it; "-" is
    /// standard input.
    #[arg(value_parser = spec_parser(), value_hint = ValueHint::FilePath)]
    source: ImageSpec,
    /// The image to write, also a part of an existing one; "-" is standard output. A new file gets its name when it is whole.
    #[arg(
        required_unless_present = "in_place",
        conflicts_with = "in_place",
        value_parser = spec_parser(),
        value_hint = ValueHint::FilePath
    )]
    target: Option<ImageSpec>,
    /// Change the image in place. A file system that reaches behind the image's end is asked about; --overwrite cuts it unasked.
    #[arg(long)]
    in_place: bool,
    /// Continue work in place that was stopped.
    #[arg(long, requires = "in_place", conflicts_with = "target")]
    resume: bool,
    /// The journal for work in place [default: the image's name with ".casemate-journal"; a block device has none]. It
    /// holds pieces of the transformed image.
    #[arg(long, value_name = "FILE", requires = "in_place", conflicts_with = "target")]
    journal: Option<PathBuf>,
    /// Do everything except write: read and transform the whole image, so that errors show before anything changes.
    #[arg(short = 'n', long, requires = "in_place", conflicts_with = "target")]
    dry_run: bool,
    /// Bytes that go to the journal at a time; at most 1 GiB.
    #[arg(long, value_name = "BYTES", requires = "in_place", conflicts_with = "target", default_value_t = DEFAULT_HOT_ZONE, value_parser = bytes::<u64>)]
    hotzone_size: u64,
    /// Keep holes of a sparse source as holes. Without this a hole is zeros, and zeros are data to a cipher. With it the
    /// result shows which ranges were never written, and reading them through the mapping gives noise.
    #[arg(long, conflicts_with = "in_place")]
    sparse: bool,
    /// The partition (GPT or MBR) of the encrypted side, counted from 1: of the image that is decrypted, of that to write
    /// when encrypting, or of that which is changed in place.
    #[arg(short = 'P', long, value_name = "N")]
    partition: Option<u32>,
    #[command(flatten)]
    overwrite: OverwriteArgs,
    #[command(flatten)]
    mapping: OwnMappingArgs,
}

impl Args {
    pub fn run(self, direction: Direction, context: &Context) -> Result<Answer, Error> {
        let given = self.mapping.get();
        let is_standard = |path: &Path| path.as_os_str() == "-";
        // The partition is one of the encrypted side.
        let of_source = self.partition.filter(|_| self.in_place || direction == Direction::Decrypt);
        let of_target = self.partition.filter(|_| of_source.is_none());
        let spec = |image: &ImageSpec, number: Option<u32>| {
            with_partition(image, number.map(PartitionId::Number), Vec::new())
        };
        let from = spec(&self.source, of_source)?;
        let to = self.target.as_ref().map(|target| spec(target, of_target)).transpose()?;
        self.refuse_own_layer(direction, &from, to.as_ref())?;
        let source_file = from.file();
        let target = to.as_ref().map(ImageSpec::file);
        if is_standard(source_file) && given.reads_standard_input() {
            let text =
                "standard input can't be both the key and the image; give the key as a file or a descriptor";
            return Err(Error::argument(text.to_owned()));
        }
        let beside = from.files_beside().into_iter().chain(to.iter().flat_map(ImageSpec::files_beside));
        let keys: Vec<&Path> = given.files().chain(beside).collect();
        check_output(target.unwrap_or(source_file), &keys)?;
        // A resumed work knows its key, and decrypting shows a wrong one.
        let asked = match direction {
            Direction::Encrypt if !self.resume => Asked::Twice,
            _ => Asked::Once,
        };
        let mapping = given.mapping(source_file, asked, context)?;
        let open = |spec: &ImageSpec, access| spec.lay(spec.open_part(access, false)?, &Asking::of(context));
        let open_source = |spec: &ImageSpec| {
            let image = open(spec, Access::Read)?;
            if direction == Direction::Encrypt {
                image.check_settled(context.providers())?;
            }
            Ok::<_, Error>(image)
        };
        match (&to, target) {
            (None, _) | (_, None) => {
                refuse_layers(&from, "work in place")?;
                let access = if self.dry_run { Access::Read } else { Access::Change };
                let image = match self.resume {
                    true => from.open_part_to_look(access)?,
                    false => from.open_part(access, false)?,
                };
                if !self.resume
                    && let Some(text) = image.crypt_cut(direction, &mapping, context.providers())?
                {
                    self.overwrite.confirm(&format!("{}: {text}", image.name()))?;
                }
                let mut options = InPlaceOptions::default();
                options.allow_cut = true;
                options.journal = self.journal.clone();
                (options.resume, options.hot_zone) = (self.resume, self.hotzone_size);
                options.dry_run = self.dry_run;
                let progress = context.progress(image.name(), image.device().size());
                let work = context.work(context.providers().clone(), &progress);
                image.crypt_in_place(direction, &mapping, &options, &work)?;
            }
            (Some(to), Some(target)) if is_standard(source_file) || is_standard(target) => {
                if [&from, to].iter().any(|spec| is_standard(spec.file()) && !spec.layers().is_empty()) {
                    let text = "partitions, offsets and layers are of files: a stream has none";
                    return Err(Error::argument(text));
                }
                if !from.layers().is_empty() {
                    let image = open_source(&from)?;
                    let progress = context.progress(image.name(), image.device().size());
                    let work = context.work(context.providers().clone(), &progress);
                    let mut output = context.output_of_data()?;
                    mapping.transform_to_stream(
                        direction,
                        &image,
                        ("standard output", &mut output),
                        &work,
                    )?;
                } else if !to.layers().is_empty() {
                    let consent = |loss: &Loss| self.overwrite.consent(loss);
                    let image = mapping.target_of_stream(direction, open(to, Access::Change)?, &consent)?;
                    let mut input = Stream::input().map_err(|error| Error::io("standard input", error))?;
                    let progress = context.progress("standard input", 0);
                    let work = context.work(context.providers().clone(), &progress);
                    mapping.transform_from_stream(
                        direction,
                        ("standard input", &mut input),
                        &image,
                        &work,
                    )?;
                } else {
                    stream(direction, &mapping, source_file, target, self.overwrite, context)?;
                }
            }
            (Some(to), Some(target)) => {
                let image = open_source(&from)?;
                let progress = context.progress(image.name(), image.device().size());
                let consent = |loss: &Loss| self.overwrite.consent(loss);
                let holes = if self.sparse { Holes::Keep } else { Holes::Data };
                let work = || context.work(context.providers().clone(), &progress);
                if to.layers().is_empty() {
                    let output = mapping.target(direction, &image, target, &consent)?;
                    mapping.transform(direction, &image, &output, holes, &work())?;
                } else {
                    let output = || open(to, Access::Change);
                    let output = mapping.target_on(direction, &image, target, output, &consent)?;
                    mapping.transform(direction, &image, &output, holes, &work())?;
                }
            }
        }
        if context.json() && !target.is_some_and(is_standard) {
            let cipher = mapping.cipher();
            context.print_json(&json!({
                "cipher": mapping.params.spec.to_string(),
                "driver": cipher.driver_name(),
                "batches_sectors": cipher.batches_sectors(),
                "sector_size": cipher.sector_size(),
                "bytes": size_of(target.unwrap_or(source_file)),
                "dry_run": self.dry_run,
            }))?;
        }
        let done = if direction == Direction::Encrypt { "encrypted" } else { "decrypted" };
        context.done_or_tried(self.dry_run, target.unwrap_or(source_file), done);
        Ok(Answer::Yes)
    }

    /// Refuses a specification that decrypts the side which the command itself encrypts or decrypts.
    fn refuse_own_layer(
        &self,
        direction: Direction,
        from: &ImageSpec,
        to: Option<&ImageSpec>,
    ) -> Result<(), Error> {
        let encrypted = if direction == Direction::Encrypt { to.unwrap_or(from) } else { from };
        match encrypted.layers().last() {
            Some(LayerSpec::Crypt(_)) => {
                let text = "image specification: this command works on the mapping itself: leave out the last 'crypt' and its \
                            options, and give its key with the command's own options";
                Err(Error::argument(text).at(encrypted.file().display()))
            }
            _ => Ok(()),
        }
    }
}

fn stream(
    direction: Direction,
    mapping: &Mapping,
    source: &Path,
    target: &Path,
    overwrite: OverwriteArgs,
    context: &Context,
) -> Result<(), Error> {
    if mapping.offset != 0 {
        let text = "--crypt-offset is for files: a stream has no sectors before its data";
        return Err(Error::argument(text.to_owned()));
    }
    if direction == Direction::Encrypt && source.is_file() {
        Image::open(source, Access::ReadUnlocked)?.check_settled(context.providers())?;
    }
    let standard = |path: &Path| path.as_os_str() == "-";
    let input = if standard(source) { Stream::input() } else { Stream::open(source) };
    let mut input = input.map_err(|error| Error::io(source.display(), error))?;
    let name = |path: &Path, standard_name: &str| match standard(path) {
        true => standard_name.to_owned(),
        false => path.display().to_string(),
    };
    let (from, to) = (name(source, "standard input"), name(target, "standard output"));
    let progress = context.progress(&from, size_of(source));
    let work = context.work(context.providers().clone(), &progress);
    if standard(target) {
        let mut output = context.output_of_data()?;
        mapping.transform_stream(direction, (&from, &mut input), (&to, &mut output), &work)?;
        return Ok(());
    }
    let mut output =
        Output::create_anew(target, &[source], Some(Made::Data), &|loss| overwrite.consent(loss))?;
    match direction {
        // Of a pipe it is not known who could read it.
        Direction::Decrypt if standard(source) => output.narrow(0o600),
        Direction::Decrypt => output.narrow_to(source),
        Direction::Encrypt => {}
    }
    mapping.transform_stream(direction, (&from, &mut input), (&to, &mut output), &work)?;
    output.commit()?;
    if let (Direction::Decrypt, Ok(plain)) = (direction, FileDevice::open(target)) {
        probe::note_noise(&plain, target.display(), work.events);
    }
    Ok(())
}

/// For the progress bar alone: a source that has no size will be noticed when it is read.
fn size_of(path: &Path) -> u64 {
    FileDevice::open(path).map_or(0, |device| device.size())
}
