//! `casemate luks reencrypt`.

use clap::{ArgAction, ValueEnum};
use serde_json::json;

use casemate::luks::luks2::reencrypt::Mode;
use casemate::luks::{
    Header, LuksFormatOptions, LuksKey, LuksOptions, Pbkdf, Protection, ReencryptOptions, Volume,
};
use casemate::target::{self, Made};
use casemate::{Access, Advice, Error, ErrorKind, Image, Target, probe};

use super::confirm::Confirm;
use super::manners::Wanted;
use super::options::{EmptyArgs, KeyBytes, OtherDataArgs, VolumeArgs, place_of_header};
use super::pbkdf::PbkdfArgs;
use crate::answer::Answer;
use crate::cmd::place::VolumeKind;
use crate::context::Context;
use crate::passphrase::{self, Asked};
use crate::size::{bytes, place_with_unit};

/// Reencrypt the data of a LUKS2 volume in place, with a new volume key or another cipher; or encrypt or decrypt data
/// in place.
///
/// If this is interrupted, the volume can be read, and the same command, or cryptsetup's, continues; different options
/// are refused then. The passphrases stay, and that of every key slot is needed: type them, repeat --key-file, or give
/// one a line on standard input. With --key-slot N the passphrase of that slot is enough, and the other slots are
/// removed. The volume must not be in use meanwhile. --encrypt turns plain data into a
/// volume: its header goes to --luks-header, or before the data with --reduce-device-size. --decrypt turns a volume
/// into plain data: a header before the data goes to --luks-header.
#[derive(clap::Args, Debug)]
#[command(mut_arg("allow_empty_key", |arg| arg.requires("encrypt")))]
#[command(mut_arg("key_file", several))]
#[command(mut_arg("offset", place_of_header))]
#[command(after_help = "Examples:\n\
    \x20 casemate luks reencrypt vault.img --key-file pass.key\n\
    \x20 casemate luks reencrypt disk.luks --key-file pass.key --key-size 256 --sector-size 4096\n\
    \x20 casemate luks reencrypt shared.img --key-file pass.key --key-file new.key   # two key slots\n\
    \x20 casemate luks reencrypt vault.img --key-file pass.key --init-only\n\
    \x20 casemate luks reencrypt vault.img --key-file pass.key --resume-only\n\
    \x20 casemate luks reencrypt root.img --encrypt --luks-header root.header --key-file pass.key \\\n\
    \x20   --pbkdf-memory 64M\n\
    \x20 casemate luks reencrypt root.img --decrypt --luks-header root.header --key-file pass.key")]
pub struct Args {
    #[command(flatten)]
    pub volume: VolumeArgs,
    /// Encrypt plain data.
    #[arg(long, conflicts_with = "decrypt")]
    pub encrypt: bool,
    /// Decrypt the data of a volume.
    #[arg(long)]
    pub decrypt: bool,
    /// The new dm-crypt specification [default: unchanged].
    #[arg(short = 'c', long, value_name = "SPEC", alias = "cipher")]
    pub crypt: Option<String>,
    /// The size of the new volume key in bits [default: unchanged, or 512 for XTS and 256 for other modes].
    #[arg(short = 's', long, value_name = "BITS")]
    pub key_size: Option<usize>,
    /// The new size of an encryption sector: 512, 1024, 2048 or 4096 bytes [default: unchanged].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u32>)]
    pub sector_size: Option<u32>,
    /// The hash of new key slots and digests [default: sha256].
    #[arg(long, value_name = "NAME")]
    pub hash: Option<String>,
    #[command(flatten)]
    pub empty: EmptyArgs,
    #[command(flatten)]
    pub pbkdf: PbkdfArgs,
    /// Protection of the data being rewritten against a power cut [default: checksum; journal for wide ciphers].
    #[arg(long, value_name = "PROTECTION")]
    pub resilience: Option<Resilience>,
    /// The hash of checksums [default: sha256].
    #[arg(long, value_name = "NAME")]
    pub resilience_hash: Option<String>,
    /// Rewrite at most N bytes between two writes of the header [default: 128M].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    pub hotzone_size: Option<u64>,
    /// Reencrypt only the first N bytes; the rest is lost, after a question. To continue with N bytes, the work must have been begun with
    /// as many.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    pub device_size: Option<u64>,
    /// Shrink the data by N bytes at the device's end, which must not be in use, to make room for the header.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    pub reduce_device_size: Option<u64>,
    /// First byte of the encrypted data, with its unit (s, K, M, G or B). With --luks-header, bytes before it stay as they
    /// are [default: 0]. With --reduce-device-size, they are the room for the header [default: half of that size].
    #[arg(long, value_name = "BYTES", value_parser = place_with_unit, requires = "encrypt")]
    pub crypt_offset: Option<u64>,
    /// Record the work in the header only, without doing any of it.
    #[arg(long, conflicts_with = "resume_only")]
    pub init_only: bool,
    /// Continue unfinished work only, and begin nothing.
    #[arg(long)]
    pub resume_only: bool,
    #[command(flatten)]
    pub other_data: OtherDataArgs,
    #[command(flatten)]
    pub confirm: Confirm,
    /// Whether a part of the data is transformed on purpose.
    #[arg(skip)]
    pub is_part_meant: bool,
}

/// The passphrases of several key slots, each in a file.
fn several(arg: clap::Arg) -> clap::Arg {
    let help = "Read a passphrase from this file, including line ends; \"-\" is standard input. May be repeated: a file for \
                each key slot [default: ask at a terminal, otherwise a line of standard input for each]";
    arg.action(ArgAction::Append).help(help)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Resilience {
    /// Checksums of the old bytes.
    Checksum,
    /// A copy of the old bytes.
    Journal,
    /// Nothing.
    None,
}

/// Participle for a transformation, in messages.
fn done(mode: Mode) -> &'static str {
    match mode {
        Mode::Reencrypt => "reencrypted",
        Mode::Encrypt => "encrypted",
        Mode::Decrypt => "decrypted",
    }
}

impl Args {
    pub fn run(mut self, context: &Context) -> Result<Answer, Error> {
        let (place, unlock) = (&self.volume.place, &self.volume.unlock);
        let name = place.file().display().to_string();
        place.refuse_layers("work in place")?;
        place.refuse_partition()?;
        let of_volume = unlock.volume_key_file().map(|path| KeyBytes { path, offset: 0, size: None });
        self.volume.refuse_changed_keys(self.volume.passphrase.places().chain(of_volume))?;
        let is_export = self.decrypt && unlock.luks_header.as_ref().is_some_and(|path| !path.exists());
        let is_new = self.encrypt && self.is_unencrypted(context)?;
        if let (true, Some(offset)) = (is_new, self.crypt_offset) {
            let data = place.open(Access::ReadUnlocked, VolumeKind::Luks, context)?;
            data.check_partitions_in(offset..data.device().size())?;
        }
        let rest = self.fate_of_rest(is_new, is_export, context)?;
        let beginning = self.fate_of_beginning(is_new, is_export, context)?;
        // Of plain data that is one question.
        for fate in rest.iter().chain(beginning.iter().filter(|_| rest.is_none() || !is_new)) {
            self.confirm.ask(&format!("{name}: {fate}"))?;
            self.is_part_meant = true;
        }
        let place = &self.volume.place;
        let (mode, is_done) = match is_new {
            true => (Mode::Encrypt, self.encrypt(context)?),
            false if is_export => {
                let volume = place.volume(Access::Change, None, context)?;
                (Mode::Decrypt, self.decrypt(volume, context)?)
            }
            false => self.go_on(context)?,
        };
        if context.json() {
            context.print_json(&json!({ "done": is_done }))?;
        }
        match rest {
            Some(rest) if is_done => context.done(format_args!("{name}: {} {rest}", done(mode))),
            None if is_done => context.done(format_args!("{name}: {}", done(mode))),
            _ => context.done(format_args!("{name}: begun; --resume-only goes on")),
        }
        Ok(Answer::Yes)
    }

    /// Whether there is no volume yet; one that is complete is refused.
    fn is_unencrypted(&self, context: &Context) -> Result<bool, Error> {
        let (place, header) = (&self.volume.place, &self.volume.unlock.luks_header);
        let found = match header {
            Some(path) if !path.exists() => return Ok(true),
            Some(path) => {
                let data = place.open(Access::ReadUnlocked, VolumeKind::Luks, context)?;
                data.luks_volume(Some(&Image::open(path, Access::ReadUnlocked)?), context.providers())?
            }
            // Whether it is the rest of one is seen where it is encrypted.
            None => match place
                .open(Access::ReadUnlocked, VolumeKind::Luks, context)?
                .luks_volume(None, context.providers())
            {
                Ok(found) => found,
                Err(_) => return Ok(true),
            },
        };
        match found.begun()? {
            Some(_) => Ok(false),
            None => {
                let path = header.as_deref().unwrap_or(place.file()).display();
                Err(Error::argument(format!(
                    "{path}: holds a LUKS header already, and nothing to go on with"
                )))
            }
        }
    }

    /// Text about data that begin in the middle of something, or where nothing proves that they begin.
    fn fate_of_beginning(
        &self,
        is_new: bool,
        is_export: bool,
        context: &Context,
    ) -> Result<Option<String>, Error> {
        let place = &self.volume.place;
        if is_new {
            let image = place.open(Access::ReadUnlocked, VolumeKind::Luks, context)?;
            let bytes = self.start()..image.device().size();
            return Ok(image.divided(bytes)?.map(|contents| contents.to_string()));
        }
        let header = self.volume.unlock.luks_header.as_ref().filter(|_| !is_export);
        let Some(header) = header else { return Ok(None) };
        let header = Image::open(header, Access::ReadUnlocked)?;
        let volume = place.volume(Access::ReadUnlocked, Some(&header), context)?;
        Ok(match volume.bytes_left_out_before() {
            0 => None,
            bytes => Some(format!(
                "the data are taken from byte {bytes} on of the file, device or partition; if they begin elsewhere, all of them are lost, \
                 and a header in a file of its own does not prove where they begin"
            )),
        })
    }

    /// The first byte that is encrypted of plain data.
    fn start(&self) -> u64 {
        // Data that move to make room have no offset yet.
        if self.reduce_device_size.is_some() { 0 } else { self.crypt_offset.unwrap_or(0) }
    }

    /// Text about the data behind the first ones, where only these are transformed: with --device-size, or in a window of the image
    /// that has an end of its own.
    fn fate_of_rest(
        &self,
        is_new: bool,
        is_export: bool,
        context: &Context,
    ) -> Result<Option<String>, Error> {
        let place = &self.volume.place;
        let (mode, len, behind) = if is_new {
            let start = self.start();
            let image = place.open(Access::ReadUnlocked, VolumeKind::Luks, context)?;
            let end = image.device().size();
            let reaches = if image.left_out() > 0 { image.reaching_behind(start, end)? } else { None };
            (Mode::Encrypt, end.saturating_sub(start), reaches.map_or(0, |used| used.end - end))
        } else {
            let header = self.volume.unlock.luks_header.as_ref().filter(|_| !is_export);
            let header = header.map(|path| Image::open(path, Access::ReadUnlocked)).transpose()?;
            let volume = place.volume(Access::ReadUnlocked, header.as_ref(), context)?;
            let asked = if self.decrypt { Mode::Decrypt } else { Mode::Reencrypt };
            (volume.begun()?.unwrap_or(asked), volume.data_size(), volume.bytes_left_out())
        };
        let first = self.device_size.unwrap_or(len);
        let fate = match mode {
            Mode::Reencrypt => {
                "stay as they are, and can never be read again: the key that they have is removed"
            }
            Mode::Encrypt => "stay in plain text, and the volume reads them as noise",
            Mode::Decrypt => "stay encrypted, and can never be read again: their key is removed",
        };
        // What can't be is refused later.
        let others = len.saturating_sub(first).saturating_add(behind);
        Ok((others > 0).then(|| format!("the first {first} bytes alone; the other {others} {fate}")))
    }

    /// Asks before the passphrases of all key slots but the named one are lost. cryptsetup does not ask.
    fn ask_to_lose_slots(
        &self,
        volume: &Volume,
        begun: Option<Mode>,
        context: &Context,
    ) -> Result<(), Error> {
        let named = self.volume.unlock.options()?.keyslot;
        let slots = volume.slots_of_data();
        let Some(named) = named.filter(|named| begun.is_none() && slots.contains(named)) else {
            return Ok(());
        };
        let lost: Vec<String> = slots.iter().filter(|slot| **slot != named).map(u32::to_string).collect();
        if lost.is_empty() || self.resume_only || context.is_other_tool() {
            return Ok(());
        }
        let what = if lost.len() == 1 { "key slot" } else { "key slots" };
        self.confirm.ask(&format!(
            "only the passphrase of key slot {named} stays; {what} {} would be removed",
            lost.join(", ")
        ))
    }

    /// Makes a volume of plain data.
    fn encrypt(&self, context: &Context) -> Result<bool, Error> {
        if self.resume_only {
            return Err(Error::argument(
                "no whole header says that an encryption was begun: there is nothing to go on with; what was cut off while its \
                 header was written is completed by its own command, without --resume-only",
            ));
        }
        self.volume.unlock.refuse_for_new()?;
        let place = &self.volume.place;
        let image = place.open(Access::Change, VolumeKind::Luks, context)?;
        let mut format = LuksFormatOptions::default();
        format.cipher = self.crypt.clone().unwrap_or(format.cipher);
        format.key_bits = self.key_size;
        format.sector_size = self.sector_size.unwrap_or(format.sector_size);
        format.hash = self.hash().to_owned();
        format.pbkdf = Some(self.pbkdf.fixed(false, self.hash())?);
        format.check(&context.opening())?;
        let made = Made::Known(probe::LUKS);
        let header = self.volume.unlock.luks_header.as_deref();
        let header = header.map(|path| Target::anew_private(path, made, &target::refuse)).transpose()?;
        let passphrase = self.volume.passphrase.read(Wanted::New, place.file(), context)?;
        format.allow_empty_passphrase = self.empty.check(&passphrase)?;
        format.pbkdf = Some(self.pbkdf.get(false, self.hash(), 64, context)?);
        let progress = context.progress(image.name(), image.device().size());
        let work = context.work(context.providers().clone(), &progress);
        let mut options = self.options(Some(Mode::Encrypt), None);
        self.giving_up(image.name(), &mut options, |options| {
            image.luks_encrypt(header.as_deref(), &passphrase, &format, options, &work)
        })
    }

    /// Begins work, and asks before data behind a file system are given up.
    fn giving_up(
        &self,
        name: &str,
        options: &mut ReencryptOptions,
        mut begin: impl FnMut(&ReencryptOptions) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        match begin(options) {
            Err(error) if error.advice().contains(&Advice::Overwrite) => {
                self.confirm.ask(&format!("{name}: {}", error.text()))?;
                options.give_up_data = true;
                begin(options)
            }
            done => done,
        }
    }

    /// Makes plain data of a volume.
    fn decrypt(&self, volume: Volume, context: &Context) -> Result<bool, Error> {
        if self.resume_only && !volume.is_moving() {
            volume.check_usable(context.providers())?;
            return Err(Error::argument("no decryption was begun: there is nothing to go on with"));
        }
        let export = self.volume.unlock.luks_header.as_ref().filter(|path| !path.exists());
        let key = self.volume.key(&volume, Wanted::Open, context)?;
        let progress = context.progress(&self.volume.place.file().display().to_string(), volume.data_size());
        let export = export.map(Image::replace_private).transpose()?;
        let work = context.work(context.providers().clone(), &progress);
        let pbkdf = self.pbkdf.is_given().then(|| self.pbkdf.fixed(false, self.hash())).transpose()?;
        let options = self.options(Some(Mode::Decrypt), pbkdf);
        volume.decrypt(&key, export.as_ref(), &self.unlocking()?, &options, &work)
    }

    /// Reencrypts a volume, or goes on with what was begun. Returns what that is, and whether it is done.
    fn go_on(&self, context: &Context) -> Result<(Mode, bool), Error> {
        let (place, unlock) = (&self.volume.place, &self.volume.unlock);
        let header = unlock.luks_header.as_ref().map(|path| Image::open(path, Access::Change)).transpose()?;
        let mut volume = place.volume(Access::Change, header.as_ref(), context)?;
        // For cryptsetup the volume is done then, and a reencryption begins another one.
        let is_ending = context.is_other_tool()
            && volume.is_ending()
            && !(self.encrypt || self.decrypt || self.resume_only);
        let begun = if is_ending { None } else { volume.begun()? };
        if begun.is_none() && (self.decrypt || self.resume_only && volume.is_moving()) {
            return Ok((Mode::Decrypt, self.decrypt(volume, context)?));
        }
        // What was begun goes on whatever it is, where nothing else is asked for.
        let asked = match (self.encrypt, self.decrypt) {
            (true, _) => Some(Mode::Encrypt),
            (_, true) => Some(Mode::Decrypt),
            _ if self.resume_only => None,
            _ => Some(Mode::Reencrypt),
        };
        let pbkdf = match (self.pbkdf.is_given(), begun) {
            (false, _) => None,
            // Key slots are there already, and nothing is measured.
            (true, Some(_)) => Some(self.pbkdf.fixed(false, self.hash())?),
            (true, None) => Some(self.pbkdf.get(false, self.hash(), 64, context)?),
        };
        let may_end = !self.init_only && asked.is_none_or(|asked| asked == Mode::Decrypt);
        if volume.says_decrypted() && may_end {
            let options = self.options(asked, pbkdf);
            return Ok((Mode::Decrypt, self.end_decryption(&mut volume, &options, context)?));
        }
        if volume.may_be_mixed() && !self.init_only {
            self.confirm.ask(
                "whatever was begun without protection may have been cut off in the middle, and then nearly all data are lost \
                 by going on; the header can't tell",
            )?;
        }
        self.ask_to_lose_slots(&volume, begun, context)?;
        let keys = self.keys(&volume, context)?;
        let size = self.device_size.unwrap_or(volume.data_size());
        let progress = context.progress(&place.file().display().to_string(), size);
        let work = context.work(context.providers().clone(), &progress);
        let mut options = self.options(asked, pbkdf);
        if is_ending {
            volume.reencrypt(&keys, &self.unlocking()?, &self.options(None, None), &work)?;
        }
        let (unlocking, name) = (self.unlocking()?, place.file().display().to_string());
        let is_done = self
            .giving_up(&name, &mut options, |options| volume.reencrypt(&keys, &unlocking, options, &work))?;
        Ok((begun.unwrap_or(Mode::Reencrypt), is_done))
    }

    /// Ends a decryption that is done by what its header says: with a key that proves this, or after a question.
    fn end_decryption(
        &self,
        volume: &mut Volume,
        options: &ReencryptOptions,
        context: &Context,
    ) -> Result<bool, Error> {
        let work = context.opening();
        let why = if volume.slots_of_data().is_empty() {
            "no key slot is left that proves it".to_owned()
        } else {
            let proven = self
                .keys(volume, context)
                .and_then(|keys| volume.reencrypt(&keys, &self.unlocking()?, options, &work));
            match proven {
                Err(error) if matches!(error.kind(), ErrorKind::Mismatch | ErrorKind::Locked) => {
                    error.text().into_owned()
                }
                proven => return proven,
            }
        };
        self.confirm.ask(&format!(
            "by the header all data are decrypted, and only the header is left to change: its keys will be removed. If the \
             header is forged, the data can never be read again ({why})"
        ))?;
        volume.end_decryption(&work).map(|()| true)
    }

    /// The passphrases: of one place, or each slot's from a person.
    fn keys(&self, volume: &Volume, context: &Context) -> Result<Vec<LuksKey>, Error> {
        let args = &self.volume;
        let several = args.passphrase.read_several()?;
        if !several.is_empty() {
            return Ok(several);
        }
        let one = || args.key(volume, Wanted::Open, context).map(|key| vec![key]);
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
            let of = format!("key slot {id} of {}", args.place.file().display());
            LuksKey::passphrase(&passphrase::source(Asked::Once), &of)
        };
        slots.into_iter().map(ask).collect()
    }

    /// How the volume is opened.
    fn unlocking(&self) -> Result<LuksOptions, Error> {
        let mut options = self.volume.unlock.options()?;
        options.allow_other_data = self.other_data.luks_overwrite;
        Ok(options)
    }

    fn hash(&self) -> &str {
        self.hash.as_deref().unwrap_or("sha256")
    }

    fn options(&self, mode: Option<Mode>, pbkdf: Option<Pbkdf>) -> ReencryptOptions {
        let mut options = ReencryptOptions::default();
        options.mode = mode;
        options.cipher = self.crypt.clone();
        options.key_bits = self.key_size;
        options.sector_size = self.sector_size;
        options.hash = self.hash.clone();
        options.pbkdf = pbkdf;
        options.protection = self.resilience.map(|resilience| match resilience {
            Resilience::Checksum => Protection::Checksum,
            Resilience::Journal => Protection::Journal,
            Resilience::None => Protection::None,
        });
        options.resilience_hash = self.resilience_hash.clone();
        options.hotzone_size = self.hotzone_size;
        options.device_size = self.device_size;
        options.allow_window = self.is_part_meant;
        options.reduce_device_size = self.reduce_device_size;
        options.offset = self.crypt_offset;
        options.init_only = self.init_only;
        options.resume_only = self.resume_only;
        options
    }
}
