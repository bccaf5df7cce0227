//! `casemate luks reencrypt`.

use clap::ValueEnum;
use serde_json::json;

use casemate::luks::{Header, LuksFormatOptions, LuksKey, Protection, ReencryptOptions, Volume};
use casemate::{Access, Error, ErrorKind, Image};

use super::confirm::Confirm;
use super::options::VolumeArgs;
use super::pbkdf::PbkdfArgs;
use crate::answer::Answer;
use crate::cmd::ends::anew_private;
use crate::context::Context;
use crate::passphrase::{self, Asked};
use crate::size::bytes;

/// Give the data of a LUKS2 volume a new volume key, or another cipher, where they lie; or encrypt or decrypt them there.
///
/// Whenever this is cut off, the volume can be read, and the same command, or cryptsetup's, goes on. The passphrases stay.
/// --encrypt makes a volume of plain data: its header goes to --luks-header, or before the data with --reduce-device-size.
/// --decrypt makes plain data of a volume: a header before the data goes to --luks-header.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate luks reencrypt vault.img --key-file pass.key\n\
    \x20 casemate luks reencrypt disk.luks --key-file pass.key --key-size 256 --sector-size 4096\n\
    \x20 casemate luks reencrypt vault.img --key-file pass.key --init-only\n\
    \x20 casemate luks reencrypt vault.img --key-file pass.key --resume-only\n\
    \x20 casemate luks reencrypt root.img --encrypt --luks-header root.header --key-file pass.key \\\n\
    \x20   --pbkdf-memory 64M\n\
    \x20 casemate luks reencrypt root.img --decrypt --luks-header root.header --key-file pass.key")]
pub struct Args {
    #[command(flatten)]
    volume: VolumeArgs,
    /// Encrypt plain data.
    #[arg(long, conflicts_with = "decrypt")]
    encrypt: bool,
    /// Decrypt the data of a volume.
    #[arg(long)]
    decrypt: bool,
    /// The new dm-crypt specification [default: as it is].
    #[arg(short = 'c', long, value_name = "SPEC", alias = "cipher")]
    crypt: Option<String>,
    /// The size of the new volume key in bits [default: as it is, or 512 for XTS and 256 for other modes].
    #[arg(short = 's', long, value_name = "BITS")]
    key_size: Option<usize>,
    /// The new size of an encryption sector: 512, 1024, 2048 or 4096 bytes [default: as it is].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u32>)]
    sector_size: Option<u32>,
    /// The hash of new key slots and digests.
    #[arg(long, value_name = "NAME", default_value = "sha256")]
    hash: String,
    #[command(flatten)]
    pbkdf: PbkdfArgs,
    /// What protects the data that are being rewritten when the power fails [default: checksum; journal for wide ciphers].
    #[arg(long, value_name = "PROTECTION")]
    resilience: Option<Resilience>,
    /// The hash of checksums.
    #[arg(long, value_name = "NAME", default_value = "sha256")]
    resilience_hash: String,
    /// How much is rewritten between two writes of the header, at most [default: 128M].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    hotzone_size: Option<u64>,
    /// Reencrypt so many bytes from the first one on, and let the rest become noise.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    device_size: Option<u64>,
    /// Give up so many bytes at the device's end, which must not be in use, for a header that grows by as much.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    reduce_device_size: Option<u64>,
    /// Note in the header what is to be done, and do none of it.
    #[arg(long, conflicts_with = "resume_only")]
    init_only: bool,
    /// Go on with what was begun, and begin nothing.
    #[arg(long)]
    resume_only: bool,
    #[command(flatten)]
    confirm: Confirm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Resilience {
    /// Checksums of the old bytes.
    Checksum,
    /// A copy of the old bytes.
    Journal,
    /// Nothing.
    None,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let (place, unlock) = (&self.volume.place, &self.volume.unlock);
        let name = place.image.display().to_string();
        let (is_new, what) = match (self.encrypt, self.decrypt) {
            (true, _) => (self.is_unencrypted(context)?, "encrypted"),
            (_, true) => (unlock.luks_header.as_ref().is_some_and(|path| !path.exists()), "decrypted"),
            _ => (false, "reencrypted"),
        };
        let done = match (self.encrypt && is_new, self.decrypt && is_new) {
            (true, _) => self.encrypt(context)?,
            (_, true) => self.decrypt(place.volume(Access::Change, None, context)?, context)?,
            _ => self.go_on(context)?,
        };
        if context.json() {
            context.print_json(&json!({ "done": done }))?;
        }
        context.done(format_args!("{name}: {}", if done { what } else { "begun; --resume-only goes on" }));
        Ok(Answer::Yes)
    }

    /// Whether there is no volume yet; one that is complete is refused.
    fn is_unencrypted(&self, context: &Context) -> Result<bool, Error> {
        let (place, header) = (&self.volume.place, &self.volume.unlock.luks_header);
        let found = match header {
            Some(path) if !path.exists() => return Ok(true),
            Some(path) => Image::open(path, Access::Read)?.luks_volume(None, context.providers())?,
            None => match place.open(Access::Read)?.luks_volume(None, context.providers()) {
                Ok(found) => found,
                Err(_) => return Ok(true),
            },
        };
        match found.header() {
            Header::Luks2(header) if !header.metadata.requirements().is_empty() => Ok(false),
            _ => {
                let path = header.as_ref().unwrap_or(&place.image).display();
                Err(Error::argument(format!(
                    "{path}: holds a LUKS header already, and nothing to go on with"
                )))
            }
        }
    }

    /// Makes a volume of plain data.
    fn encrypt(&self, context: &Context) -> Result<bool, Error> {
        if self.resume_only {
            return Err(Error::argument("no encryption was begun: there is nothing to go on with"));
        }
        let place = &self.volume.place;
        let image = place.open(Access::Change)?;
        let mut format = LuksFormatOptions::default();
        format.cipher = self.crypt.clone().unwrap_or(format.cipher);
        format.key_bits = self.key_size;
        format.sector_size = self.sector_size.unwrap_or(format.sector_size);
        format.hash = self.hash.clone();
        format.pbkdf = Some(self.pbkdf.fixed(false, &self.hash)?);
        format.check(&context.opening())?;
        let header = self.volume.unlock.luks_header.as_deref().map(anew_private).transpose()?;
        let (LuksKey::Passphrase(passphrase) | LuksKey::VolumeKey(passphrase)) =
            match self.volume.passphrase.source() {
                Some(source) => LuksKey::file(&source, self.volume.passphrase.size())?,
                None => LuksKey::passphrase(&passphrase::source(Asked::Twice), image.name())?,
            };
        format.pbkdf = Some(self.pbkdf.get(false, &self.hash, 64, context)?);
        let progress = context.progress(image.name(), image.device().size());
        let work = context.work(context.providers().clone(), &progress);
        image.luks_encrypt(header.as_ref(), &passphrase, &format, &self.options(context)?, &work)
    }

    /// Makes plain data of a volume.
    fn decrypt(&self, volume: Volume, context: &Context) -> Result<bool, Error> {
        if self.resume_only {
            return Err(Error::argument("no decryption was begun: there is nothing to go on with"));
        }
        let export = self.volume.unlock.luks_header.as_ref().filter(|path| !path.exists());
        let key = self.volume.key()?;
        let progress = context.progress(&self.volume.place.image.display().to_string(), volume.data_size());
        let export = export.map(Image::replace_private).transpose()?;
        let work = context.work(context.providers().clone(), &progress);
        volume.decrypt(&key, export.as_ref(), &self.volume.unlock.options()?, &self.options(context)?, &work)
    }

    /// Reencrypts a volume, or goes on with what was begun.
    fn go_on(&self, context: &Context) -> Result<bool, Error> {
        let (place, unlock) = (&self.volume.place, &self.volume.unlock);
        let header = unlock.luks_header.as_ref().map(|path| Image::open(path, Access::Change)).transpose()?;
        let mut volume = place.volume(Access::Change, header.as_ref(), context)?;
        let is_begun = match volume.header() {
            Header::Luks2(header) => !header.metadata.requirements().is_empty(),
            Header::Luks1(_) => false,
        };
        if self.decrypt && !is_begun {
            return self.decrypt(volume, context);
        }
        if volume.says_decrypted() && !self.init_only {
            return self.end_decryption(&mut volume, context);
        }
        if volume.may_be_mixed() && !self.init_only {
            self.confirm.ask(
                "whatever was begun without protection may have been cut off in the middle, and then nearly all data are lost \
                 by going on; the header can't tell",
            )?;
        }
        let keys = self.keys(&volume)?;
        let size = self.device_size.unwrap_or(volume.data_size());
        let progress = context.progress(&place.image.display().to_string(), size);
        let work = context.work(context.providers().clone(), &progress);
        volume.reencrypt(&keys, &unlock.options()?, &self.options(context)?, &work)
    }

    /// Ends a decryption that is done by what its header says: with a key that proves this, or after a question.
    fn end_decryption(&self, volume: &mut Volume, context: &Context) -> Result<bool, Error> {
        let work = context.opening();
        let why = if volume.slots_of_data().is_empty() {
            "no key slot is left that proves it".to_owned()
        } else {
            let proven = self.keys(volume).and_then(|keys| {
                volume.reencrypt(&keys, &self.volume.unlock.options()?, &self.options(context)?, &work)
            });
            match proven {
                Err(error) if matches!(error.kind(), ErrorKind::Mismatch | ErrorKind::Locked) => {
                    error.text().into_owned()
                }
                proven => return proven,
            }
        };
        self.confirm.ask(&format!(
            "the header says that all data are decrypted, and only the header is left: it will know no key any more, and if it \
             lies nothing can be read again ({why})"
        ))?;
        volume.end_decryption(&work).map(|()| true)
    }

    /// The passphrases: of one place, or each slot's from a person.
    fn keys(&self, volume: &Volume) -> Result<Vec<LuksKey>, Error> {
        let args = &self.volume;
        let one = || args.key().map(|key| vec![key]);
        let slots: Vec<u32> = match volume.header() {
            Header::Luks2(header) if header.metadata.requirements().is_empty() => {
                let digests = header.metadata.digests();
                let of_data = digests.iter().find(|digest| digest.segments.contains(&0));
                of_data.map(|digest| digest.keyslots.clone()).unwrap_or_default()
            }
            _ => return one(),
        };
        let is_prompted = args.passphrase.source().is_none();
        if !is_prompted || slots.len() < 2 || args.unlock.options()?.keyslot.is_some() {
            return one();
        }
        let ask = |id: u32| {
            let of = format!("key slot {id} of {}", args.place.image.display());
            LuksKey::passphrase(&passphrase::source(Asked::Once), &of)
        };
        slots.into_iter().map(ask).collect()
    }

    fn options(&self, context: &Context) -> Result<ReencryptOptions, Error> {
        let mut options = ReencryptOptions::default();
        options.cipher = self.crypt.clone();
        options.key_bits = self.key_size;
        options.sector_size = self.sector_size;
        options.hash = self.hash.clone();
        let pbkdf = || self.pbkdf.get(false, &self.hash, 64, context);
        options.pbkdf = self.pbkdf.is_given().then(pbkdf).transpose()?;
        options.protection = self.resilience.map(|resilience| match resilience {
            Resilience::Checksum => Protection::Checksum,
            Resilience::Journal => Protection::Journal,
            Resilience::None => Protection::None,
        });
        options.resilience_hash = self.resilience_hash.clone();
        options.hotzone_size = self.hotzone_size;
        options.device_size = self.device_size;
        options.reduce_device_size = self.reduce_device_size;
        options.init_only = self.init_only;
        options.resume_only = self.resume_only;
        Ok(options)
    }
}
