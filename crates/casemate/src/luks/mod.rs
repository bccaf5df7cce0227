//! LUKS over images: headers read, keys found in their slots, and the data as the dm-crypt mapping that they are.
//!
//! [`Image::luks`] opens the data behind a header with a passphrase, as a device that nests like any other.
//! [`Image::luks_volume`] reads the header, once: what is shown, tried and opened afterwards is that copy of it.
//!
//! A wrong passphrase costs as much as a right one: as the header says, within [`LuksOptions::limits`].

use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;

use casemate_blockdev::{AtFile, BlockDevice};
use casemate_luks::luks2::{Segment, SegmentSize};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{KdfLimits, Providers, Work};

pub use casemate_luks::{Header, json, luks1, luks2};

use crate::SecretSource;
use crate::crypt::{Direction, Holes, Mapping, Params};
use crate::target::Consent;
use crate::{Error, ErrorKind, Image, probe};

mod areas;
mod authenticated;
mod backup;
mod calibrate;
mod change;
mod convert;
mod digest;
mod format;
mod locks;
mod new_volume;
mod policy;
mod random;
mod reason;
mod reencrypt;
mod repair;
mod settings;
mod slot;
mod tokens;
mod unlock;

pub use backup::{HeaderBackup, Replaced};
pub use calibrate::{Measured, PbkdfTarget};
pub use casemate_blockdev::Uuid;
pub use casemate_providers::{Argon2, Argon2Variant, Seed};
pub use change::{NewKeyOptions, random_key};
pub use format::{LuksFormatOptions, LuksVersion};
pub use new_volume::NewVolume;
pub use policy::{Broken, PbkdfRule, Policy};
pub use reason::Reason;
pub use reencrypt::{Protection, ReencryptOptions, Reencrypting, ReencryptionState};
pub use settings::{MAPPING_FLAGS, Settings};
pub use slot::Pbkdf;
pub use tokens::{NewTokenOptions, keyring_token, token_from_json};
pub use unlock::Unlocked;

/// Key that opens a LUKS volume.
#[derive(Clone, Debug)]
pub enum LuksKey {
    /// A passphrase, or all of a key file: what a key slot takes.
    Passphrase(SecretVec),
    /// The volume key itself, without any key slot.
    VolumeKey(SecretVec),
}

/// Bytes of a key file at most.
const LONGEST_KEY_FILE: usize = 8 << 20;

impl LuksKey {
    /// A passphrase that a person says, or the first line of an input; `of` says what it is of.
    ///
    /// # Errors
    /// `Io`; `Argument` for an empty one; whatever asking says.
    pub fn passphrase(source: &SecretSource, of: &str) -> Result<LuksKey, Error> {
        source.passphrase(of).map(LuksKey::Passphrase)
    }

    /// The passphrase that is all of a key file, its line ends too, or its first `size` bytes.
    ///
    /// # Errors
    /// `Io`; `Argument` if it has more than 8 MiB, or fewer than `size` bytes; for a size of 0; if it is a stream that brings
    /// nothing.
    pub fn file(source: &SecretSource, size: Option<usize>) -> Result<LuksKey, Error> {
        read_file(source, size).map(LuksKey::Passphrase)
    }

    /// The passphrase that is all of what comes, or `None` if nothing comes.
    ///
    /// # Errors
    /// `Io`; `Argument` if it has more than 8 MiB.
    pub fn if_any(source: &SecretSource) -> Result<Option<LuksKey>, Error> {
        let too_long = || Error::argument(format!("{}: a key file has at most 8 MiB", source.name()));
        let key = source.read_any(LONGEST_KEY_FILE)?.ok_or_else(too_long)?;
        Ok(Some(key).filter(|key| !key.is_empty()).map(LuksKey::Passphrase))
    }

    /// The volume key that is all of a file.
    ///
    /// # Errors
    /// `Io`; `Argument` if it has more than 8 MiB.
    pub fn volume_key(source: &SecretSource) -> Result<LuksKey, Error> {
        read_file(source, None).map(LuksKey::VolumeKey)
    }
}

fn read_file(source: &SecretSource, size: Option<usize>) -> Result<SecretVec, Error> {
    let too_long = || Error::argument(format!("{}: a key file has at most 8 MiB", source.name()));
    match size {
        Some(0) => {
            Err(Error::argument(format!("{}: a key of 0 bytes; a key file's size is more", source.name())))
        }
        Some(size) if size > LONGEST_KEY_FILE => Err(too_long()),
        Some(size) => source.read_exact(size),
        None => source.read_file(LONGEST_KEY_FILE)?.ok_or_else(too_long),
    }
}

/// The header at the beginning of an image. Where the first copy of a LUKS2 header is not there and something else is, the second
/// copy is a remnant of what was there before, and no header of this image.
fn read_header(image: &Image, providers: &Providers) -> Result<Header, Error> {
    let header = Header::read(image.top(), providers).at(image.name())?;
    if !image.begins_with_luks()?
        && let Some(what) = probe::beginning(image.top()).at(image.name())?
    {
        let text = format!(
            "no LUKS header: the primary one is missing, and {what} is there; the secondary LUKS2 header behind it is one of \
             earlier contents, and only a repair takes it"
        );
        return Err(Error::corrupt(text).at(image.name()));
    }
    Ok(header)
}

/// Refuses a new passphrase that anybody knows, unless that is allowed.
fn refuse_empty(passphrase: &SecretVec, is_allowed: bool) -> Result<(), Error> {
    match passphrase.is_empty() && !is_allowed {
        true => Err(Error::argument("the new passphrase is empty: anybody could open the volume")),
        false => Ok(()),
    }
}

/// How a volume is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LuksOptions {
    /// The key slot that is tried alone. Without, all are that are for the data, preferred ones first.
    pub keyslot: Option<u32>,
    /// The most that an opening may cost, with all key slots that are tried and the digests that their keys are held against: a
    /// slot that demands more than is left is not tried.
    pub limits: KdfLimits,
    /// How many key slots are tried at most.
    pub tries: u32,
    /// What the header must be, or no key slot is tried.
    pub policy: Option<Policy>,
    /// Whether key slots of LUKS2 are tried, too, whose keys are for no data, where none is named.
    pub unbound: bool,
    /// Whether an XTS key is taken whose halves are equal.
    pub allow_equal_halves: bool,
    /// Whether discards pass down.
    pub allow_discards: bool,
}

impl Default for LuksOptions {
    /// Every slot of LUKS1, as many of LUKS2, at costs that a desktop grants.
    fn default() -> LuksOptions {
        LuksOptions {
            keyslot: None,
            limits: KdfLimits::default(),
            tries: 8,
            policy: None,
            unbound: false,
            allow_equal_halves: false,
            allow_discards: false,
        }
    }
}

impl LuksOptions {
    /// The same options, which let a header cost so many times as much.
    #[must_use]
    pub fn raised(mut self, times: u32) -> LuksOptions {
        self.limits = self.limits.times(times);
        self.tries = self.tries.saturating_mul(times);
        self
    }
}

/// A LUKS header with the data that it is of.
#[derive(Clone)]
pub struct Volume {
    header: Header,
    /// The image that the header was read from.
    header_image: Image,
    /// Whether that is the data's image, too.
    is_attached: bool,
    data: Image,
}

impl Image {
    /// The header at the beginning of the image, or of `header` if it lies apart from the data.
    ///
    /// # Errors
    /// `Corrupt` if there is none that makes sense, `Unsupported` for an unknown version, `Io`.
    pub fn luks_volume(&self, header: Option<&Image>, providers: &Providers) -> Result<Volume, Error> {
        let header_image = header.unwrap_or(self).clone();
        let found = read_header(&header_image, providers).map_err(|error| match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Unsupported => Reason::NoHeader.of(error),
            _ => error,
        })?;
        Ok(Volume { header: found, header_image, is_attached: header.is_none(), data: self.clone() })
    }

    /// The data behind the header at the image's beginning, or in `header` if that lies apart, opened with a key.
    ///
    /// ```
    /// use casemate::luks::{LuksKey, LuksOptions};
    /// use casemate::{Access, Image, SecretSource, Work};
    ///
    /// # let Some(cryptsetup) = casemate_testkit::tool("cryptsetup") else { return Ok(()) };
    /// # let folder = tempfile::tempdir()?;
    /// # let path = |name: &str| folder.path().join(name);
    /// # std::fs::write(path("disk.img"), vec![0; 20 << 20])?;
    /// # std::fs::write(path("disk.key"), "secret")?;
    /// # casemate_testkit::run(std::process::Command::new(cryptsetup).current_dir(&folder).args(
    /// #     "luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk.img disk.key".split(' ')));
    /// let work = Work::default();
    /// let key = LuksKey::file(&SecretSource::file(path("disk.key")), None)?;
    /// let disk = Image::open(path("disk.img"), Access::Read)?.luks(None, &key, &LuksOptions::default(), &work)?;
    /// assert_eq!(disk.device().size(), 4 << 20);
    /// # Ok::<(), casemate::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Image::luks_volume`], [`Volume::unlock`] and [`Volume::mapping`].
    pub fn luks(
        self,
        header: Option<&Image>,
        key: &LuksKey,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<Image, Error> {
        self.luks_volume(header, &work.providers)?.open(key, options, work)
    }
}

impl Volume {
    /// The header, as it was read.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The data as the device that dm-crypt makes of them; in the middle of a reencryption as they are, to be read.
    ///
    /// Nobody else changes header or data as long as the image, or a clone of it, is there.
    ///
    /// # Errors
    /// Those of [`Volume::unlock`] and [`Volume::mapping`]; [`Error::is_busy`] if somebody else is changing the volume, or
    /// has changed its header since that was read.
    pub fn open(self, key: &LuksKey, options: &LuksOptions, work: &Work<'_>) -> Result<Image, Error> {
        let volume = self.locked()?;
        if let Some(course) = volume.reencryption().at(volume.header_image.name())? {
            return volume.view(&course, key, options, work);
        }
        if let Some(segment) = volume.protected_segment() {
            return volume.open_protected(&segment, key, options, work);
        }
        // What can't be opened with any key costs none.
        volume.check_openable().at(volume.header_image.name())?;
        let unlocked = volume.unlock(key, options, work)?;
        let mapping = volume.mapping(unlocked, options, &work.providers)?;
        volume.data.crypt(mapping)
    }

    /// Finds the volume key: in a key slot that the passphrase opens, or that it is the one that was given.
    ///
    /// # Errors
    /// `Mismatch` for a wrong key, and for a header that breaks the policy; `Unsupported` if no slot could be tried, because
    /// it costs more than is granted or needs what is not there; `Corrupt`, `Io`.
    pub fn unlock(&self, key: &LuksKey, options: &LuksOptions, work: &Work<'_>) -> Result<Unlocked, Error> {
        self.check_policy(options.policy.as_ref(), &work.providers)?;
        unlock::unlock(&self.header, self.header_image.top(), key, options, work).at(self.header_image.name())
    }

    /// The mapping of the data.
    ///
    /// # Errors
    /// `Unsupported` for what is no plain mapping of one segment: a reencryption that is not finished, integrity, OPAL, and
    /// requirements that are not known, each by its name; those of [`Mapping::new`].
    pub fn mapping(
        &self,
        unlocked: Unlocked,
        options: &LuksOptions,
        providers: &Providers,
    ) -> Result<Mapping, Error> {
        self.check_openable().at(self.header_image.name())?;
        let (encryption, sector_size, offset, size) = self.geometry();
        let key = unlocked.key_of(&encryption).at(self.header_image.name())?.clone();
        let mut params = Params::new(encryption.parse().at(self.header_image.name())?);
        params.sector_size = sector_size;
        params.allow_equal_halves = options.allow_equal_halves;
        let mapping = Mapping::new(params, key, offset / 512, providers);
        let mut mapping = mapping.at(self.header_image.name())?;
        mapping.allow_discards = options.allow_discards;
        // A part of a sector at the end belongs to no device.
        let rest = self.data.top().size().saturating_sub(offset);
        Ok(mapping.verified(size.unwrap_or(rest - rest % 512)))
    }

    /// Decrypts the data to a file or block device; a new file gets its name when it is whole.
    ///
    /// # Errors
    /// Those of [`Volume::open`] and [`Mapping::transform`]; whatever the consent says if the target holds something.
    pub fn extract(
        &self,
        key: &LuksKey,
        target: &Path,
        consent: Consent<'_>,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let (source, mapping) = self.source(key, options, work)?;
        let target = mapping.target(Direction::Decrypt, &source, target, None, consent)?;
        mapping.transform(Direction::Decrypt, &source, &target, Holes::Data, work)
    }

    /// Decrypts the data to a stream, which comes with its name for errors.
    ///
    /// # Errors
    /// Those of [`Volume::open`] and [`Mapping::transform_stream`].
    pub fn extract_stream(
        &self,
        key: &LuksKey,
        output: (&str, &mut (dyn Write + Send)),
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let (source, mapping) = self.source(key, options, work)?;
        let offset = mapping.offset * 512;
        let mut input = Reader { device: source.top(), offset };
        let input: (&str, &mut (dyn Read + Send)) = (source.name(), &mut input);
        mapping.transform_stream(Direction::Decrypt, input, output, work).map(drop)
    }

    /// What is decrypted, and how: in the middle of a reencryption, and of what has tags, that is done in reading.
    fn source(
        &self,
        key: &LuksKey,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<(Image, Mapping), Error> {
        let volume = self.locked()?;
        let course = volume.reencryption().at(volume.header_image.name())?;
        let view = match (course, volume.protected_segment()) {
            (Some(course), _) => volume.view(&course, key, options, work)?,
            (None, Some(segment)) => volume.open_protected(&segment, key, options, work)?,
            (None, None) => {
                let unlocked = volume.unlock(key, options, work)?;
                let mapping = volume.mapping(unlocked, options, &work.providers)?;
                return Ok((volume.data, mapping));
            }
        };
        let nothing = Params::new("cipher_null-ecb".parse()?);
        let mapping = Mapping::new(nothing, SecretVec::zeroed(0), 0, &work.providers)?;
        Ok((view.clone(), mapping.verified(view.top().size())))
    }

    /// Bytes of the volume key; `None` for LUKS2 without a key slot that says it.
    pub fn volume_key_len(&self) -> Option<usize> {
        let len = match &self.header {
            Header::Luks1(header) => Some(header.key_bytes),
            Header::Luks2(header) => {
                let slots = self.slots_of_data();
                let keyslots = header.metadata.keyslots();
                keyslots.iter().find(|slot| slots.contains(&slot.id)).map(|slot| slot.key_size)
            }
        };
        // OK to cast: 32 bits.
        len.map(|len| len as usize)
    }

    /// Bytes of the data.
    pub fn data_size(&self) -> u64 {
        if let Ok(Some(course)) = self.reencryption() {
            return course.len(self.data.top().size()).unwrap_or(0);
        }
        let (_, _, offset, size) = self.geometry();
        let size = size.unwrap_or(self.data.top().size().saturating_sub(offset));
        // With tags and a journal the data are less than there is room for.
        let inside = self.protected_segment().map(|_| self.data.clone().window(offset, Some(size)));
        let superblock = inside.and_then(|inside| inside.ok()?.integrity_superblock().ok());
        superblock.map_or(size, |superblock| superblock.provided_data_sectors * 512)
    }

    /// What the data are: the cipher, bytes of a sector, the first byte, and how many there are.
    fn geometry(&self) -> (String, usize, u64, Option<u64>) {
        match &self.header {
            Header::Luks1(header) => (header.encryption(), 512, u64::from(header.payload_offset) * 512, None),
            Header::Luks2(header) => {
                // OK to unwrap: there is a segment 0.
                let segment = header.metadata.segments().into_iter().next().unwrap();
                let size = match segment.size {
                    SegmentSize::Dynamic => None,
                    SegmentSize::Fixed(size) => Some(size),
                };
                // OK to cast: 32 bits.
                (segment.encryption, segment.sector_size as usize, segment.offset, size)
            }
        }
    }

    /// Whether the data are a mapping, and nothing else.
    fn check_openable(&self) -> Result<(), Error> {
        self.check_readable()?;
        match self.protected_segment().and_then(|segment| segment.integrity) {
            Some(kind) => Err(Error::unsupported(format!(
                "the data have integrity protection ({kind}), and are no mapping alone"
            ))),
            None => Ok(()),
        }
    }

    /// Whether the data can be read, with integrity protection too.
    fn check_readable(&self) -> Result<(), Error> {
        self.check_segments()?;
        if self.is_attached && self.geometry().2 < self.header.metadata_end() {
            let text = "this is the header of data that lie elsewhere: give these, and the header with --luks-header";
            return Err(Error::argument(text));
        }
        Ok(())
    }

    fn check_segments(&self) -> Result<(), Error> {
        let Header::Luks2(header) = &self.header else { return Ok(()) };
        let metadata = &header.metadata;
        if let Some(name) = metadata.requirements().into_iter().next() {
            let why = match &*name {
                "offline-reencrypt" | "online-reencrypt" | "online-reencrypt-v2" | "online-reencrypt-v3" => {
                    "it is being reencrypted; casemate luks reencrypt --resume-only finishes this"
                }
                "opal" | "opal-v2" => "it needs a disk that encrypts by itself (OPAL)",
                "inline-hw-tags" => "it needs a disk with room for tags",
                _ => "whatever that is, casemate does not have it",
            };
            return Err(Error::unsupported(format!("the LUKS2 header requires {name}: {why}")));
        }
        let segments = metadata.segments();
        let [Segment { kind, iv_tweak, .. }] = &segments[..] else {
            let text = format!("the LUKS2 header has {} segments; one is supported", segments.len());
            return Err(Error::unsupported(text));
        };
        if kind != "crypt" {
            return Err(Error::unsupported(format!("segment 0 is of type '{kind}'; 'crypt' is supported")));
        }
        if *iv_tweak != 0 {
            return Err(Error::unsupported(format!(
                "segment 0 has iv_tweak {iv_tweak}, which cryptsetup ignores: what its data are encrypted with can't be known"
            )));
        }
        Ok(())
    }
}

/// The bytes of a device, one after the other.
struct Reader<'a> {
    device: &'a dyn BlockDevice,
    offset: u64,
}

impl Read for Reader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let rest = self.device.size().saturating_sub(self.offset);
        // OK to cast: no more than the buffer has.
        let len = rest.min(buf.len() as u64) as usize;
        self.device.read_at(&mut buf[..len], self.offset)?;
        self.offset += len as u64;
        Ok(len)
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volume(LUKS{} of {:?})", self.header.version(), self.data)
    }
}
