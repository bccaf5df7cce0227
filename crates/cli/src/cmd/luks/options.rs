//! Options that say where a LUKS header lies, and what opens it.

use std::path::{Path, PathBuf};

use clap::ArgAction;

use casemate::blockdev::os::FileTypeExt;
use casemate::blockdev::target::is_block_device;
use casemate::blockdev::u64_of;
use casemate::image_spec::{KeyPlace, LuksSpec, read_policy};
use casemate::luks::{AreaCipher, LuksKey, LuksOptions, Policy, Volume};
use casemate::target::{Consent, Made};
use casemate::{Access, Code, Error, Image, Medium, SecretSource, SecretVec, Target, probe};

use super::manners::Wanted;
use crate::cmd::explained::explained;
use crate::cmd::place::{PlaceArgs, VolumeKind};
use crate::context::Context;
use crate::passphrase::{self, Part, descriptor};
use crate::size::{bytes, place_with_unit};

/// Options that open a LUKS volume, except for where its passphrase is read.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "LUKS", mut_arg("mac_key_file", |arg| arg.requires("luks_policy")))]
pub struct UnlockArgs {
    /// Read the LUKS header from this file: a detached header.
    #[arg(long, value_name = "FILE", alias = "header")]
    pub luks_header: Option<PathBuf>,
    /// Try this key slot only [default: all slots of the data, preferred ones first].
    #[arg(long, value_name = "N")]
    pub key_slot: Option<u32>,
    /// Open the data with the volume key in this file, without a key slot; "-" is standard input.
    #[arg(long, value_name = "FILE")]
    pub volume_key_file: Option<PathBuf>,
    /// Multiply the KDF cost limits by TIMES. The limits for all key slots that are tried: 1 GiB of memory at once,
    /// 64 GiB filled in all passes, 2^30 iterations, 8 slots.
    #[arg(long, value_name = "TIMES", default_value = "1", hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub kdf_limit: u32,
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// Whether data of a detached header may be something else.
#[derive(clap::Args, Clone, Copy, Debug)]
#[command(next_help_heading = "LUKS")]
pub struct OtherDataArgs {
    /// With a detached header: write to the image even if a file system or another volume is seen where the encrypted
    /// data of this header should be, and destroy it [default: refuse].
    #[arg(long, requires = "luks_header")]
    pub luks_overwrite: bool,
}

/// Options for the policy that a header must keep.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "LUKS")]
pub struct PolicyArgs {
    /// Refuse a LUKS header that breaks a rule of the policy in this file (see casemate luks check).
    #[arg(long, value_name = "FILE")]
    pub luks_policy: Option<PathBuf>,
    /// The key of the policy's mac, an HMAC of the header: all of this file.
    #[arg(long, value_name = "FILE")]
    pub mac_key_file: Option<PathBuf>,
}

/// Where a passphrase is read.
#[derive(clap::Args, Clone, Debug)]
pub struct PassphraseArgs {
    /// Read the passphrase from this file, including line ends; "-" is standard input [default: ask at a terminal,
    /// otherwise the first line of standard input].
    // Once, but for commands that take several passphrases.
    #[arg(short = 'd', long, value_name = "FILE", action = ArgAction::Set)]
    pub key_file: Vec<PathBuf>,
    /// Read the passphrase from this open file descriptor, until its end.
    #[arg(long, value_name = "NUMBER", conflicts_with = "key_file", value_parser = descriptor())]
    pub key_fd: Option<u32>,
    /// Skip N bytes of the key file, or of standard input.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::<u64>)]
    pub keyfile_offset: u64,
    /// Use N bytes of the key file, or of the line of standard input [default: all].
    #[arg(long, value_name = "BYTES", value_parser = bytes::<usize>)]
    pub keyfile_size: Option<usize>,
}

/// Whether a new passphrase may be empty.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct EmptyArgs {
    /// Accept an empty key file as the new passphrase: then anybody can open the volume.
    #[arg(long)]
    pub allow_empty_key: bool,
}

impl EmptyArgs {
    /// Checks a new passphrase. Returns true if an empty one is allowed.
    ///
    /// # Errors
    /// `Argument` if the new passphrase is empty and that is not allowed.
    pub fn check(self, passphrase: &SecretVec) -> Result<bool, Error> {
        match passphrase.is_empty() && !self.allow_empty_key {
            true => Err(Error::argument(
                "the new key file is empty, so anybody could open the volume; use --allow-empty-key to confirm",
            )),
            false => Ok(self.allow_empty_key),
        }
    }
}

/// The cipher of a key slot.
#[derive(clap::Args, Clone, Debug)]
pub struct AreaArgs {
    /// The dm-crypt specification of the key slot (LUKS2) [default: that of the data if it is AES, or aes-xts-plain64].
    #[arg(long, value_name = "SPEC")]
    pub keyslot_cipher: Option<String>,
    /// Key size of the key slot in bits [default: 512].
    #[arg(long, value_name = "BITS", requires = "keyslot_cipher")]
    pub keyslot_key_size: Option<usize>,
}

/// The place of the header in a command that writes a volume there: cryptsetup's option of this name is the place of the data, in
/// sectors.
pub fn place_of_header(arg: clap::Arg) -> clap::Arg {
    let help = "The byte of the image that the header begins at, with its unit: s (sectors), K, M, G or B";
    arg.value_parser(place_with_unit).help(help)
}

/// A header, which may lie apart from its data.
#[derive(clap::Args, Clone, Debug)]
pub struct HeaderArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Use the LUKS header in this file: a detached header.
    #[arg(long, value_name = "FILE")]
    pub luks_header: Option<PathBuf>,
}

/// An image with a volume, and what opens it. A volume key opens it without a passphrase or key slot.
#[derive(clap::Args, Clone, Debug)]
#[command(mut_arg("volume_key_file", |arg| arg.conflicts_with_all(["key_file", "key_fd", "key_slot"])))]
pub struct VolumeArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub passphrase: PassphraseArgs,
    #[command(flatten)]
    pub unlock: UnlockArgs,
}

impl UnlockArgs {
    /// A volume that is opened so, with the passphrase of a place.
    pub fn spec(&self, key: KeyPlace) -> LuksSpec {
        let mut spec = LuksSpec::default();
        spec.key = key;
        spec.volume_key_file.clone_from(&self.volume_key_file);
        spec.header.clone_from(&self.luks_header);
        (spec.key_slot, spec.kdf_limit) = (self.key_slot, self.kdf_limit);
        spec.policy.clone_from(&self.policy.luks_policy);
        spec.mac_key_file.clone_from(&self.policy.mac_key_file);
        spec
    }

    /// The volume key of so many bytes in the file that was named.
    pub fn volume_key(&self, len: Option<usize>, context: &Context) -> Result<Option<SecretVec>, Error> {
        self.volume_key_file.as_ref().map(|path| volume_key(path, len, context)).transpose()
    }

    /// The file with the volume key.
    pub fn volume_key_file(&self) -> Option<&Path> {
        self.volume_key_file.as_deref()
    }

    /// How key slots are tried, and what the header must be.
    pub fn options(&self) -> Result<LuksOptions, Error> {
        let mut options = LuksOptions::default().raised(self.kdf_limit);
        options.keyslot = self.key_slot;
        options.policy = self.policy.policy()?;
        Ok(options)
    }

    /// Refuses what says how a volume is opened, where one is made.
    pub fn refuse_for_new(&self) -> Result<(), Error> {
        let given = [
            ("--key-slot", self.key_slot.is_some()),
            ("--volume-key-file", self.volume_key_file.is_some()),
            ("--kdf-limit", self.kdf_limit != 1),
            ("--luks-policy", self.policy.luks_policy.is_some()),
            ("--mac-key-file", self.policy.mac_key_file.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => {
                Err(Error::argument(format!("{name}: there is no volume yet that it could be of")))
            }
            None => Ok(()),
        }
    }
}

impl PolicyArgs {
    /// The policy with its key, if there is one.
    pub fn policy(&self) -> Result<Option<Policy>, Error> {
        let Some(path) = &self.luks_policy else { return Ok(None) };
        let mut policy = read_policy(path)?;
        policy.mac_key = self.mac_key()?;
        Ok(Some(policy))
    }

    /// The key of the HMAC.
    pub fn mac_key(&self) -> Result<Option<SecretVec>, Error> {
        self.mac_key_file.as_ref().map(|path| Policy::mac_key(&SecretSource::file(path))).transpose()
    }
}

impl PassphraseArgs {
    /// The places of the keys in files.
    pub fn places(&self) -> impl Iterator<Item = KeyBytes<'_>> {
        let (offset, size) = (self.keyfile_offset, self.keyfile_size);
        self.key_file.iter().map(move |path| KeyBytes { path, offset, size })
    }

    /// Where the passphrase is, if that was said.
    pub fn source(&self) -> Option<SecretSource> {
        let source = match (self.key_file.first(), self.key_fd) {
            (Some(path), _) => SecretSource::file(path),
            (None, Some(number)) => SecretSource::descriptor(number),
            (None, None) => return None,
        };
        Some(source.from_byte(self.keyfile_offset))
    }

    /// The passphrases of several files, in the order of the command line; empty where there is one place at most.
    ///
    /// # Errors
    /// `Io`.
    pub fn read_several(&self) -> Result<Vec<LuksKey>, Error> {
        let read = |path: &PathBuf| {
            LuksKey::file(&SecretSource::file(path).from_byte(self.keyfile_offset), self.keyfile_size)
        };
        match &self.key_file[..] {
            [] | [_] => Ok(Vec::new()),
            files => files.iter().map(read).collect(),
        }
    }

    /// The passphrase: of the place that was named, or of a person who is asked for it.
    ///
    /// # Errors
    /// `Argument` for several files; `Io`; those of a person who is asked.
    pub fn read(&self, wanted: Wanted, of: &Path, context: &Context) -> Result<SecretVec, Error> {
        if self.key_file.len() > 1 {
            return Err(Error::argument("one passphrase is wanted here; give --key-file once"));
        }
        let key = match self.source() {
            Some(source) => LuksKey::file(&source, self.keyfile_size)?,
            None => {
                let part = Part { offset: self.keyfile_offset, size: self.keyfile_size };
                return passphrase(wanted, part, of, context);
            }
        };
        let (LuksKey::Passphrase(passphrase) | LuksKey::VolumeKey(passphrase)) = key;
        Ok(passphrase)
    }

    /// The file that the passphrase is read from.
    pub fn file(&self) -> Option<&Path> {
        self.key_file.first().map(PathBuf::as_path)
    }

    /// Whether the passphrase is read from standard input, which then has no data.
    pub fn reads_standard_input(&self) -> bool {
        let from_file = self.key_file.first().is_some_and(|path| path.as_os_str() != "-");
        !(from_file || self.key_fd.is_some())
    }
}

/// A passphrase of a person who is asked for it, or of standard input.
pub fn passphrase(wanted: Wanted, part: Part, of: &Path, context: &Context) -> Result<SecretVec, Error> {
    let of = of.display().to_string();
    asking(wanted, part, &of, context).passphrase(&of)
}

/// Where a passphrase comes from that is in no file.
pub fn asking(wanted: Wanted, part: Part, of: &str, context: &Context) -> SecretSource {
    let prompt = wanted.prompt(of, context);
    let timeout = context.manners().and_then(|manners| manners.timeout);
    let source = passphrase::prompting(wanted.asked(context), timeout, move |_| prompt.clone());
    source.from_byte(part.offset).line_of(part.size)
}

/// Bytes of a key of so many bits.
pub fn whole_bytes(bits: usize) -> Result<usize, Error> {
    match bits.is_multiple_of(8) && (8..=8192).contains(&bits) {
        true => Ok(bits / 8),
        false => Err(Error::argument(format!("a key of {bits} bits: keys have 8 to 8192, in whole bytes"))),
    }
}

/// The volume key in a file: all of it; of an input without an end, and for cryptsetup's command line, as many bytes as the
/// key has.
pub fn volume_key(path: &Path, len: Option<usize>, context: &Context) -> Result<SecretVec, Error> {
    let source = SecretSource::file(path);
    let is_endless = || std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device());
    match len {
        Some(len) if context.is_other_tool() || is_endless() => source.read_exact(len),
        _ => {
            let (LuksKey::VolumeKey(key) | LuksKey::Passphrase(key)) = LuksKey::volume_key(&source)?;
            Ok(key)
        }
    }
}

impl AreaArgs {
    /// The cipher, if it was said.
    pub fn get(&self) -> Result<Option<AreaCipher>, Error> {
        match (&self.keyslot_cipher, self.keyslot_key_size.unwrap_or(512)) {
            (None, _) => Ok(None),
            (Some(cipher), bits) if bits.is_multiple_of(8) => {
                Ok(Some(AreaCipher { cipher: cipher.clone(), key_len: bits / 8 }))
            }
            (Some(_), bits) => Err(Error::argument(format!("--keyslot-key-size {bits}: no whole bytes"))),
        }
    }
}

impl PlaceArgs {
    /// Opens what a volume is made on; with a size, which no part has, a file that is made or grows to it. Consent is asked before
    /// it grows.
    ///
    /// # Errors
    /// `Argument` for a size of a part; those of [`PlaceArgs::open`] and [`Target`]; whatever the consent says.
    pub fn open_or_grow(
        &self,
        size: Option<u64>,
        volume: VolumeKind,
        consent: Consent<'_>,
        context: &Context,
    ) -> Result<Target, Error> {
        let made = Made::Known(match volume {
            VolumeKind::Integrity => probe::INTEGRITY,
            VolumeKind::Luks => probe::LUKS,
        });
        let image = match size {
            Some(_) if self.is_part() => {
                let text = "--size makes or extends a whole file: it does not go with a part of an image or with layers";
                return Err(Error::argument(text).at(self.file().display()));
            }
            Some(_) => Target::create(self.file(), made, consent)?,
            None => Target::on(self.open(Access::Change, volume, context)?, made, consent)?,
        };
        if let Some(size) = size {
            image.grow_to(size)?;
        }
        Ok(image)
    }

    /// The volume, to be changed; a header that lies apart is what changes then.
    fn changeable(&self, header: Option<&Path>, context: &Context) -> Result<Volume, Error> {
        let header = header.map(|path| Image::open(path, Access::Change)).transpose()?;
        // Who uses the data meanwhile is not disturbed.
        let access = if header.is_some() { Access::ReadUnlocked } else { Access::Change };
        self.volume(access, header.as_ref(), context)
    }

    /// The header and its data; where there is none, what is there instead is said.
    pub fn volume(&self, access: Access, header: Option<&Image>, context: &Context) -> Result<Volume, Error> {
        let image = self.open(access, VolumeKind::Luks, context)?;
        let found = image.luks_volume(header, context.providers());
        found.map_err(|error| explained(error, header.unwrap_or(&image), probe::LUKS))
    }
}

impl HeaderArgs {
    /// The file that the header lies in.
    pub fn path(&self) -> &Path {
        self.luks_header.as_deref().unwrap_or(self.place.file())
    }

    /// The header and its data, of which the header alone is read. It may be in use.
    pub fn volume(&self, context: &Context) -> Result<Volume, Error> {
        let header =
            self.luks_header.as_ref().map(|path| Image::open(path, Access::ReadUnlocked)).transpose()?;
        self.place.volume(Access::ReadUnlocked, header.as_ref(), context)
    }

    /// Volume with a header that can be changed.
    pub fn changeable(&self, context: &Context) -> Result<Volume, Error> {
        self.place.changeable(self.luks_header.as_deref(), context)
    }

    /// The header and its data, both to be changed.
    pub fn all_changeable(&self, context: &Context) -> Result<Volume, Error> {
        let header = self.luks_header.as_ref().map(|path| Image::open(path, Access::Change)).transpose()?;
        self.place.volume(Access::Change, header.as_ref(), context)
    }

    /// The image that the header lies in.
    pub fn image(&self, access: Access, context: &Context) -> Result<Image, Error> {
        match &self.luks_header {
            Some(path) => Image::open(path, access),
            None => self.place.open(access, VolumeKind::Luks, context),
        }
    }

    /// Reports to people what was done.
    pub fn done(&self, context: &Context, what: &str) {
        context.done(format_args!("{}: {what}", self.path().display()));
    }
}

/// Bytes of a file that are a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyBytes<'a> {
    pub path: &'a Path,
    pub offset: u64,
    /// All of the rest, if `None`.
    pub size: Option<usize>,
}

impl VolumeArgs {
    /// The header and its data, to be changed.
    pub fn changeable(&self, context: &Context) -> Result<Volume, Error> {
        self.place.changeable(self.unlock.luks_header.as_deref(), context)
    }

    /// Refuses keys in bytes that the command changes, under whatever name: nothing would open the volume afterwards. Other parts of the
    /// disk may have some.
    ///
    /// # Errors
    /// `Argument`; errors of opening.
    pub fn refuse_changed_keys<'a>(&self, keys: impl IntoIterator<Item = KeyBytes<'a>>) -> Result<(), Error> {
        let is_kept = |key: &KeyBytes<'_>| key.path.is_file() || is_block_device(key.path);
        let keys: Vec<KeyBytes<'_>> = keys.into_iter().filter(is_kept).collect();
        if keys.is_empty() {
            return Ok(());
        }
        // Layers are opened once, where the command works: each may ask for its own key.
        let image = self.place.spec()?.open_part(Access::ReadUnlocked, false)?;
        let mut changed = vec![Medium::clone(&image)];
        if let Some(path) = self.unlock.luks_header.as_deref().filter(|path| path.exists()) {
            changed.push(Medium::open(path, Access::ReadUnlocked)?);
        }
        for key in keys {
            let medium = Medium::open(key.path, Access::ReadUnlocked)?;
            let end = key.size.map_or(u64::MAX, |size| key.offset.saturating_add(u64_of(size)));
            let bytes = key.offset..end.min(medium.top().size());
            if changed.iter().any(|image| image.may_be_changed_by(image.top().size(), &medium, bytes.clone()))
            {
                let text = "this key file is what the command changes, and nothing would open the volume afterwards; copy the key to \
                            another file";
                return Err(Error::coded(Code::Overlap, text).at(key.path.display()));
            }
        }
        Ok(())
    }

    /// The key that opens a volume.
    pub fn key(&self, volume: &Volume, wanted: Wanted, context: &Context) -> Result<LuksKey, Error> {
        self.key_of(volume.volume_key_len(), wanted, context)
    }

    /// Bytes of the volume key, if its header or the user says how many there are. Cryptsetup must know that of a file.
    pub fn volume_key_len(
        &self,
        volume: &Volume,
        bits: Option<usize>,
        context: &Context,
    ) -> Result<Option<usize>, Error> {
        let said = bits.map(whole_bytes).transpose()?;
        let len = volume.volume_key_len().or(said);
        match len.is_none() && self.unlock.volume_key_file.is_some() && context.is_other_tool() {
            true => Err(Error::argument(
                "Cannot determine volume key size for LUKS without keyslots, please use --key-size option.",
            )),
            false => Ok(len),
        }
    }

    /// The key that opens a volume whose volume key has so many bytes.
    pub fn key_of(&self, len: Option<usize>, wanted: Wanted, context: &Context) -> Result<LuksKey, Error> {
        match &self.unlock.volume_key_file {
            Some(path) => volume_key(path, len, context).map(LuksKey::VolumeKey),
            None => self.passphrase.read(wanted, self.place.file(), context).map(LuksKey::Passphrase),
        }
    }

    /// The files that header and key are read from.
    pub fn files(&self) -> Vec<&Path> {
        let UnlockArgs { luks_header, volume_key_file, .. } = &self.unlock;
        let files = [luks_header.as_deref(), volume_key_file.as_deref(), self.passphrase.file()];
        self.place.files().into_iter().chain(files.into_iter().flatten()).collect()
    }

    /// The header and its data.
    pub fn volume(&self, access: Access, context: &Context) -> Result<Volume, Error> {
        let path = self.unlock.luks_header.as_ref();
        let header = path.map(|path| Image::open(path, access)).transpose()?;
        self.place.volume(access, header.as_ref(), context)
    }
}
