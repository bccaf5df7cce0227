//! The image that a command reads or changes: a file, or a specification with the layers on it, which options may give, too.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;

use casemate::image_spec::{FileSystemSpec, ImageSpec, LayerOpener};
use casemate::{Advice, Error, Image, SecretVec, Work, probe};

use crate::cmd::explained::{explained, without_hash_area};
use crate::context::Context;
use crate::passphrase::{self, Asked};

/// Parser of an image specification on a command line. Errors do not repeat the text, which may have a secret in it.
#[derive(Clone, Copy, Debug)]
pub struct SpecParser;

/// See [`SpecParser`].
pub const fn spec_parser() -> SpecParser {
    SpecParser
}

impl TypedValueParser for SpecParser {
    type Value = ImageSpec;

    fn parse_ref(
        &self,
        _: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<ImageSpec, clap::Error> {
        let wrong = |error: Error| clap::Error::raw(ErrorKind::ValueValidation, format!("{error}\n"));
        ImageSpec::of_argument(value).map_err(wrong)
    }
}

/// How the file system of an image is read: as the specification says, or the options.
///
/// # Errors
/// `Argument` if both say something.
pub fn file_system(image: &ImageSpec, given: FileSystemSpec) -> Result<FileSystemSpec, Error> {
    let said = image.file_system();
    match (said.is_default(), given.is_default()) {
        (true, _) => Ok(given),
        (false, true) => Ok(said.clone()),
        (false, false) => {
            let text = "the image specification says how the file system is read, and so do options: give all of it in one place";
            Err(Error::argument(text).at(image.file().display()))
        }
    }
}

/// The command as it opens layers: it asks a person for passphrases.
pub struct Asking<'a> {
    context: &'a Context,
    asked: Asked,
    allow_discards: bool,
}

impl<'a> Asking<'a> {
    pub fn of(context: &'a Context) -> Asking<'a> {
        Asking { context, asked: Asked::Once, allow_discards: false }
    }

    /// Asks for a passphrase as often.
    pub fn asking(self, asked: Asked) -> Asking<'a> {
        Asking { asked, ..self }
    }

    /// Passes discards down through decryption, or not.
    pub fn allowing_discards(self, allow_discards: bool) -> Asking<'a> {
        Asking { allow_discards, ..self }
    }
}

impl LayerOpener for Asking<'_> {
    fn work(&self, drivers: &[String]) -> Work<'_> {
        self.context.work(self.context.naming(drivers), self.context)
    }

    fn passphrase(&self, of: &str) -> Result<SecretVec, Error> {
        passphrase::source(self.asked).passphrase(of)
    }

    fn explained(&self, error: Error, image: &Image, wanted: &'static str) -> Error {
        match wanted {
            probe::VERITY => without_hash_area(error, image, Advice::LayerHashOffset),
            _ => explained(error, image, wanted),
        }
    }

    fn allows_discards(&self) -> bool {
        self.allow_discards
    }
}
