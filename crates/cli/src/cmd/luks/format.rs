//! `casemate luks format`.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use casemate::blockdev::{Stream, name_all};
use casemate::luks::{LuksFormatOptions, LuksVersion, NewVolume, Seed, Uuid};
use casemate::target::{Loss, Made};
use casemate::{Access, Error, Image, Output, SecretVec, Target, probe};

use super::manners::{Did, Wanted};
use super::options::{AreaArgs, EmptyArgs, PassphraseArgs, place_of_header, volume_key};
use super::pbkdf::{PbkdfArgs, note_limit};
use crate::answer::Answer;
use crate::cmd::ends::check_output;
use crate::cmd::overwrite::OverwriteArgs;
use crate::cmd::place::{PlaceArgs, VolumeKind};
use crate::context::Context;
use crate::size::{bytes, place_with_unit};

/// Kind of what is made.
const LUKS: Made = Made::Known(probe::LUKS);

/// Make a LUKS volume on an image, whose existing data are overwritten, or encrypt a file with --from.
///
/// With --from a new file appears only when it is complete, and streams go through in one pass. With --integrity the
/// target must be a file or a block device, not a stream.
#[derive(clap::Args, Debug)]
#[command(
    mut_arg("offset", place_of_header),
    after_help = "Examples:\n\
    \x20 casemate luks format --from root.img root.luks --key-file pass.key\n\
    \x20 tar -cf - rootfs | casemate luks format --from - rootfs.luks --key-file pass.key\n\
    \x20 casemate luks format new.luks --size 64M --key-file pass.key\n\
    \x20 casemate luks format --from root.img sealed.luks --integrity hmac-sha256 --key-file pass.key\n\
    \x20 casemate luks format --from root.img root.enc --luks-header root.header --key-file pass.key"
)]
pub struct Args {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Encrypt the contents of this file; "-" is standard input. IMAGE is created, or replaced; as "-" it is standard
    /// output.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Create a file of N bytes, or extend an existing one to that size.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>, conflicts_with_all = ["from", "offset", "partition"])]
    pub size: Option<u64>,
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
    /// Create a detached LUKS header in this file. The data do not change.
    #[arg(long, value_name = "FILE")]
    pub luks_header: Option<PathBuf>,
    /// The version: luks1 or luks2.
    #[arg(long = "type", value_name = "TYPE", value_parser = ["luks1", "luks2"], default_value = "luks2")]
    pub kind: String,
    /// The dm-crypt specification.
    #[arg(short = 'c', long, value_name = "SPEC", alias = "cipher", default_value = "aes-xts-plain64")]
    pub crypt: String,
    /// The size of the cipher's key in bits [default: 512 for XTS, 256 for other modes].
    #[arg(short = 's', long, value_name = "BITS")]
    pub key_size: Option<usize>,
    /// Protect the data against changes: hmac-sha256 and the like, aead with -c aes-gcm-random, aes-ccm-random or
    /// aegis128-random, or poly1305 with -c chacha20-random (LUKS2).
    #[arg(long, value_name = "NAME")]
    pub integrity: Option<String>,
    /// The hash of key slots and digest.
    #[arg(long, value_name = "NAME", default_value = "sha256")]
    pub hash: String,
    /// The size of an encryption sector: 512, 1024, 2048 or 4096 bytes.
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = bytes::<u32>)]
    pub sector_size: u32,
    /// Where the encrypted data begins, with its unit: s (sectors), K, M, G or B [default: 16M; for LUKS1 as near as there can be;
    /// with --luks-header 0].
    #[arg(long, value_name = "BYTES", value_parser = place_with_unit)]
    pub crypt_offset: Option<u64>,
    /// Align the data to N sectors of 512 bytes [default: 2048]. With --luks-header: begin the data at sector N.
    #[arg(long, value_name = "SECTORS", conflicts_with = "crypt_offset")]
    pub align_payload: Option<u64>,
    /// The size of each copy of the header: a power of two from 16K to 4M (LUKS2) [default: 16K].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    pub luks2_metadata_size: Option<u64>,
    /// The size of the area for key slots (LUKS2) [default: all that is before the data].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    pub luks2_keyslots_size: Option<u64>,
    /// The label (LUKS2).
    #[arg(long, value_name = "LABEL", default_value = "", hide_default_value = true)]
    pub label: String,
    /// The subsystem (LUKS2).
    #[arg(long, value_name = "LABEL", default_value = "", hide_default_value = true)]
    pub subsystem: String,
    /// The UUID [default: a random one].
    #[arg(long, value_name = "UUID")]
    pub uuid: Option<String>,
    /// Derive UUID, salts and stripes from this UUID or text and the volume key, so that they are the same each time.
    #[arg(long, value_name = "SEED", requires = "volume_key_file")]
    pub seed: Option<String>,
    /// Read the volume key from this file, all of it; from a device such as /dev/urandom as many bytes as the key has
    /// [default: a random one].
    #[arg(long, value_name = "FILE")]
    pub volume_key_file: Option<PathBuf>,
    /// The number of the key slot.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub key_slot: u32,
    #[command(flatten)]
    pub area: AreaArgs,
    #[command(flatten)]
    pub pbkdf: PbkdfArgs,
    #[command(flatten)]
    pub passphrase: PassphraseArgs,
    #[command(flatten)]
    pub empty: EmptyArgs,
}

/// Parts that a new volume is made of.
struct New {
    /// Costs of the key slot are what was said, or defaults.
    options: LuksFormatOptions,
    passphrase: SecretVec,
    /// Where the header goes, if it lies apart.
    header: Option<Target>,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let standard = Path::new("-");
        if self.from.as_deref() == Some(standard) && self.passphrase.reads_standard_input() {
            let text = "standard input can't be both the passphrase and the data; give the passphrase as a file or a descriptor";
            return Err(Error::argument(text));
        }
        if let Some(folder) = self.from.as_deref().filter(|from| from.is_dir()) {
            let text = "a volume is made of a file or a device; casemate ext4 build --luks makes one of the files of a folder";
            return Err(Error::argument(text).at(folder.display()));
        }
        self.place.refuse_partition()?;
        if self.from.is_none() && self.size.is_none() {
            // Nobody types a passphrase for what is not there.
            let file = self.place.file();
            std::fs::metadata(file).map_err(|error| Error::io(file.display(), error))?;
        }
        let inputs = [self.passphrase.file(), self.volume_key_file.as_deref(), self.from.as_deref()];
        let inputs: Vec<&Path> = inputs.into_iter().flatten().collect();
        check_output(self.place.file(), &inputs)?;
        if let Some(header) = &self.luks_header {
            check_output(header, &[&inputs[..], &[self.place.file()]].concat())?;
        }
        let mut new = New { options: self.options(context)?, passphrase: SecretVec::zeroed(0), header: None };
        new.options.check(&context.opening())?;
        new.passphrase = self.passphrase.read(Wanted::New, self.place.file(), context)?;
        new.options.allow_empty_passphrase = self.empty.check(&new.passphrase)?;
        new.header = self.luks_header.as_deref().map(|path| self.anew_header(path)).transpose()?;
        let is_standard = |path: &Path| path == standard;
        match self.from.as_deref() {
            None => self.on_image(new, context),
            // Tags lie before the data that they are of, so what has some goes to no stream.
            Some(from)
                if is_standard(from) && self.integrity.is_some() && !is_standard(self.place.file()) =>
            {
                self.of_file(None, new, context)
            }
            Some(from) if self.place.is_part() || ![from, self.place.file()].into_iter().any(is_standard) => {
                self.of_file(Some(from), new, context)
            }
            Some(from) => self.streamed(from, new, context),
        }
    }

    /// Makes the volume where an image is, whose data become noise.
    fn on_image(&self, new: New, context: &Context) -> Result<Answer, Error> {
        let is_apart = new.header.is_some();
        // With a header apart the data stay as they are.
        let consent = |loss: &Loss| if is_apart { Ok(()) } else { self.overwrite.consent(loss) };
        let image = self.place.open_or_grow(self.size, VolumeKind::Luks, &consent, context)?;
        let header = new.header.as_deref();
        new.options.check_image(&*image, header, true, &context.opening())?;
        let made = self.prepare(&new, context)?;
        let progress = context.progress(image.name(), 0);
        let work = context.work(context.providers().clone(), &progress);
        made.format(&*image, header, true, &work)?;
        image.commit()?;
        drop(progress);
        if image.device().size() <= made.offset() {
            let name = image.name();
            match context.is_other_tool() {
                true => context.print(format!(
                    "Device {name} is too small for activation, there is no remaining space for data.\n"
                ))?,
                false => context.opening().events.note(&format!(
                    "{name}: there is no room for data, which begin at byte {}",
                    made.offset()
                )),
            }
        }
        self.answer(context, &made)
    }

    /// Encrypts a file, or standard input if there is none, to a file or device.
    fn of_file(&self, from: Option<&Path>, new: New, context: &Context) -> Result<Answer, Error> {
        let source = from.map(|from| Image::open(from, Access::Read)).transpose()?;
        if let Some(source) = &source {
            source.check_settled(context.providers())?;
        }
        let target = match self.place.is_part() {
            // A part of a disk is written where it lies.
            true => Target::on(self.place.open(Access::Change, VolumeKind::Luks, context)?, LUKS, &|loss| {
                self.overwrite.consent(loss)
            })?,
            false => self.anew(self.place.file())?,
        };
        let made = self.prepare(&new, context)?;
        let (name, len) =
            source.as_ref().map_or(("standard input", 0), |source| (source.name(), source.device().size()));
        let progress = context.progress(name, len);
        let work = context.work(context.providers().clone(), &progress);
        match &source {
            Some(source) => made.encrypt(source, &target, new.header.as_ref(), &work)?,
            None => made.protect_stream(&mut Stream::input()?, &target, new.header.as_ref(), &work)?,
        }
        drop(progress);
        self.answer(context, &made)
    }

    /// Encrypts what comes as it comes.
    fn streamed(&self, from: &Path, new: New, context: &Context) -> Result<Answer, Error> {
        let (standard, target) = (Path::new("-"), self.place.file());
        if from.is_file() {
            Image::open(from, Access::ReadUnlocked)?.check_settled(context.providers())?;
        }
        let input = if from == standard { Stream::input() } else { Stream::open(from) };
        let mut input = input.map_err(|error| Error::io(from.display(), error))?;
        let name = from.display().to_string();
        let input: (&str, &mut (dyn Read + Send)) = (&name, &mut input);
        let progress = context.progress(input.0, 0);
        let work = context.work(context.providers().clone(), &progress);
        let header = new.header.as_ref();
        if target == standard {
            let mut output = context.output_of_data()?;
            let output: (&str, &mut (dyn Write + Send)) = ("standard output", &mut output);
            self.prepare(&new, context)?.encrypt_stream(input, output, header, &work)?;
            header.map_or(Ok(()), |header| header.commit())?;
            return Ok(Answer::Yes);
        }
        let consent = |loss: &Loss| self.overwrite.consent(loss);
        let mut output = Output::create_anew(target, &[], Some(LUKS), &consent)?;
        let made = self.prepare(&new, context)?;
        let name = target.display().to_string();
        made.encrypt_stream(input, (&name, &mut output), header, &work)?;
        name_all(vec![output], &header.map(AsRef::as_ref).into_iter().collect::<Vec<_>>())?;
        drop(progress);
        self.answer(context, &made)
    }

    /// The volume, when nothing else can be refused: what its key slot costs is measured only now.
    fn prepare(&self, new: &New, context: &Context) -> Result<NewVolume, Error> {
        let mut options = new.options.clone();
        if self.seed.is_none() {
            let key_len =
                options.volume_key.as_ref().map_or(options.key_bits.unwrap_or(512) / 8, SecretVec::len);
            let is_luks1 = options.version == LuksVersion::One;
            options.pbkdf = Some(self.pbkdf.get(is_luks1, &self.hash, key_len, context)?);
        } else if let Some(pbkdf) = &options.pbkdf {
            note_limit(pbkdf, options.key_len(context.providers())?, context)?;
        }
        options.prepare(&new.passphrase, &context.opening())
    }

    /// A new file, or a block device, unless something is there.
    fn anew(&self, path: &Path) -> Result<Target, Error> {
        Target::anew(path, LUKS, &|loss| self.overwrite.consent(loss))
    }

    /// A new file for the header, or a block device, unless something is there.
    fn anew_header(&self, path: &Path) -> Result<Target, Error> {
        Target::anew_private(path, LUKS, &|loss| self.overwrite.consent(loss))
    }

    fn options(&self, context: &Context) -> Result<LuksFormatOptions, Error> {
        let is_luks1 = self.kind == "luks1";
        let mut options = LuksFormatOptions::default();
        options.version = if is_luks1 { LuksVersion::One } else { LuksVersion::Two };
        options.cipher = self.crypt.clone();
        options.key_bits = self.key_size;
        options.integrity = self.integrity.clone();
        options.hash = self.hash.clone();
        options.sector_size = self.sector_size;
        options.offset = self.crypt_offset;
        // What does not fit is refused where it is used.
        match self.align_payload.map(|sectors| sectors.saturating_mul(512)) {
            // Data that lie apart from their header begin at that byte itself.
            Some(byte) if self.luks_header.is_some() => options.offset = Some(byte).filter(|byte| *byte > 0),
            Some(bytes) => options.align = bytes,
            None => {}
        }
        options.metadata_size = self.luks2_metadata_size.unwrap_or(options.metadata_size);
        options.keyslots_size = self.luks2_keyslots_size;
        options.detached = self.luks_header.is_some();
        (options.label, options.subsystem) = (self.label.clone(), self.subsystem.clone());
        options.uuid = self.uuid.as_deref().map(Uuid::from_text).transpose()?;
        options.keyslot = self.key_slot;
        options.area = self.area.get()?;
        options.seed = self.seed.as_deref().map(Seed::from_text);
        if let Some(path) = &self.volume_key_file {
            let len = options.key_len(context.providers())?;
            options.volume_key = Some(volume_key(path, Some(len), context)?);
        }
        options.pbkdf = Some(self.pbkdf.fixed(is_luks1, &self.hash)?);
        Ok(options)
    }

    fn answer(&self, context: &Context, made: &NewVolume) -> Result<Answer, Error> {
        let header = made.header();
        context.did(Did::CreateSlot(self.key_slot))?;
        if context.json() {
            context.print_json(&json!({
                "version": header.version(),
                "uuid": header.uuid(),
                "data_offset": made.offset(),
            }))?;
        }
        context.done(format_args!(
            "{}: LUKS{} volume {}",
            self.place.file().display(),
            header.version(),
            header.uuid()
        ));
        Ok(Answer::Yes)
    }
}
