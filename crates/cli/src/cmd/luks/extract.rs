//! `casemate luks extract`.

use std::path::{Path, PathBuf};

use serde_json::json;

use casemate::{Access, Error, Image};

use super::manners::Wanted;
use super::options::VolumeArgs;
use crate::answer::Answer;
use crate::cmd::ends::check_output;
use crate::cmd::overwrite::OverwriteArgs;
use crate::cmd::place::VolumeKind;
use crate::cmd::rescue::KeepGoingArgs;
use crate::context::Context;

/// Decrypt the data of a LUKS volume to a file, or to standard output.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate luks extract vault.img plain.img --key-file pass.key\n\
    \x20 casemate luks extract vault.img - --key-file pass.key | tar -xf -")]
pub struct Args {
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

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        check_output(&self.target, &self.volume.files())?;
        if self.keep_going.keep_going {
            return self.rescue(context);
        }
        let volume = self.volume.volume(Access::Read, context)?;
        let key = self.volume.key(&volume, Wanted::Open, context)?;
        let options = self.volume.unlock.options()?;
        let size = volume.data_size();
        let progress = context.progress(&self.volume.place.file().display().to_string(), size);
        let work = context.work(context.providers().clone(), &progress);
        if self.target == Path::new("-") {
            let mut output = context.output_of_data()?;
            volume.extract_stream(&key, ("standard output", &mut output), &options, &work)?;
            return Ok(Answer::Yes);
        }
        volume.extract(&key, &self.target, &|loss| self.overwrite.consent(loss), &options, &work)?;
        drop(progress);
        if context.json() {
            context.print_json(&json!({ "bytes": size }))?;
        }
        context.done(format_args!("{}: decrypted", self.target.display()));
        Ok(Answer::Yes)
    }

    /// Decrypts what can be read.
    fn rescue(self, context: &Context) -> Result<Answer, Error> {
        let (files, maps) = (self.volume.files(), &self.keep_going.maps);
        maps.check(&self.target, &files)?;
        let header = self.volume.unlock.luks_header.as_ref();
        let header = header.map(|path| Image::open(path, Access::Read)).transpose()?;
        let under = |image| maps.under(image, context);
        let image = self.volume.place.open_under(Access::Read, VolumeKind::Luks, context, under)?;
        let volume = image.luks_volume(header.as_ref(), context.providers())?;
        let key = self.volume.key(&volume, Wanted::Open, context)?;
        let plain = volume.open(&key, &self.volume.unlock.options()?, &context.opening())?;
        maps.copy(&plain, &self.target, &files, self.overwrite, context)
    }
}
