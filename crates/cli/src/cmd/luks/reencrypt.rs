//! `casemate luks reencrypt`.

use clap::ValueEnum;
use serde_json::json;

use casemate::luks::{Header, LuksKey, Protection, ReencryptOptions, Volume};
use casemate::{Access, Error, Image};

use super::options::VolumeArgs;
use super::pbkdf::PbkdfArgs;
use crate::answer::Answer;
use crate::context::Context;
use crate::passphrase::{self, Asked};
use crate::size::bytes;

/// Give the data of a LUKS2 volume a new volume key, or another cipher, where they lie.
///
/// Whenever this is cut off, the volume can be read, and the same command, or cryptsetup's, goes on. The passphrases stay.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate luks reencrypt vault.img --key-file pass.key\n\
    \x20 casemate luks reencrypt disk.luks --key-file pass.key --key-size 256 --sector-size 4096\n\
    \x20 casemate luks reencrypt vault.img --key-file pass.key --init-only\n\
    \x20 casemate luks reencrypt vault.img --key-file pass.key --resume-only")]
pub struct Args {
    #[command(flatten)]
    volume: VolumeArgs,
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
        let header = unlock.luks_header.as_ref().map(|path| Image::open(path, Access::Change)).transpose()?;
        let mut volume = place.volume(Access::Change, header.as_ref(), context)?;
        let keys = self.keys(&volume)?;
        let name = place.image.display().to_string();
        let progress = context.progress(&name, self.device_size.unwrap_or(volume.data_size()));
        let work = context.work(context.providers().clone(), &progress);
        let done = volume.reencrypt(&keys, &unlock.options()?, &self.options(context)?, &work)?;
        drop(progress);
        if context.json() {
            context.print_json(&json!({ "done": done }))?;
        }
        context.done(format_args!(
            "{name}: {}",
            if done { "reencrypted" } else { "begun; --resume-only goes on" }
        ));
        Ok(Answer::Yes)
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
