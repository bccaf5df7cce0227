//! A LUKS volume around a new file system.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use casemate::ext4::LuksSpec;
use casemate::image_spec::{KeyPlace, LayerSpec, LuksSpec as VolumeSpec};
use casemate::luks::{LuksFormatOptions, LuksKey, NewVolume};
use casemate::{Error, SecretSource, SecretVec};

use crate::cmd::luks::manners::Wanted;
use crate::cmd::luks::options::{EmptyArgs, PassphraseArgs};
use crate::cmd::luks::pbkdf::PbkdfArgs;
use crate::context::Context;
use crate::size::bytes;

/// A LUKS2 volume that the file system is made in.
#[derive(clap::Args, Debug)]
pub struct LuksArgs {
    /// Make the file system in a new LUKS2 volume, encrypted as it is written; --size is then that of the file system.
    #[arg(long, help_heading = "LUKS")]
    luks: bool,
    /// The size of an encryption sector: 512, 1024, 2048 or 4096 bytes.
    #[arg(long, value_name = "BYTES", requires = "luks", default_value = "512", value_parser = bytes::<u32>, help_heading = "LUKS")]
    sector_size: u32,
    /// Read the volume key from this file, all of it [default: a random one]; with --seed the volume is the same each
    /// time.
    #[arg(long, value_name = "FILE", requires = "luks", help_heading = "LUKS")]
    volume_key_file: Option<PathBuf>,
    #[command(flatten, next_help_heading = "LUKS")]
    passphrase: PassphraseArgs,
    #[command(flatten, next_help_heading = "LUKS")]
    empty: EmptyArgs,
    #[command(flatten, next_help_heading = "LUKS")]
    pbkdf: PbkdfArgs,
}

impl LuksArgs {
    /// Files that are read.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        self.volume_key_file.as_deref().into_iter().chain(self.passphrase.file())
    }

    /// Whether standard input is the passphrase.
    pub fn reads_standard_input(&self) -> bool {
        self.luks && self.passphrase.reads_standard_input()
    }

    /// The volume, if one is wanted.
    pub fn spec(&self, has_seed: bool, of: &Path, context: &Context) -> Result<Option<LuksSpec>, Error> {
        if !self.luks {
            return match self.passphrase.source().is_some() || self.pbkdf.is_given() {
                true => Err(Error::argument("a passphrase and what makes a key of it go with --luks")),
                false => Ok(None),
            };
        }
        let mut options = LuksFormatOptions::default();
        options.sector_size = self.sector_size;
        if let Some(path) = &self.volume_key_file
            && let LuksKey::VolumeKey(key) = LuksKey::volume_key(&SecretSource::file(path))?
        {
            options.volume_key = Some(key);
        }
        let key_len = options.volume_key.as_ref().map_or(64, SecretVec::len);
        // What follows from a seed is the same on every machine.
        options.pbkdf = Some(match has_seed && options.volume_key.is_some() {
            true => self.pbkdf.fixed(false, &options.hash)?,
            false => self.pbkdf.get(false, &options.hash, key_len, context)?,
        });
        let key = self.passphrase.read(Wanted::New, of, context)?;
        options.allow_empty_passphrase = self.empty.check(&key)?;
        Ok(Some(LuksSpec::new(key).format(options)))
    }

    /// The layer by which the volume is opened again, if there is one.
    pub fn layer(&self) -> Option<LayerSpec> {
        let mut volume = VolumeSpec::default();
        let file = self.passphrase.file().filter(|file| *file != Path::new("-"));
        // A specification has no word for a part of a file from its beginning: a person is asked then.
        if let (Some(file), None) = (file, self.passphrase.keyfile_size) {
            volume.key = KeyPlace::File(file.to_owned(), self.passphrase.keyfile_offset);
        }
        self.luks.then_some(LayerSpec::Luks(volume))
    }
}

/// JSON of a new volume: its UUID, and the data's offset in bytes.
pub fn told(volume: &NewVolume) -> Value {
    json!({ "uuid": volume.header().uuid(), "data_offset": volume.offset() })
}
