//! Volumes: a header with the data that it is of, read once, locked, and opened with a key.
//!
//! A wrong passphrase costs as much as a right one: as the header says, within [`LuksOptions::limits`].

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::target::Consent;
use casemate_blockdev::{Advice, AtFile, BlockDevice, Medium, Target, signatures, u64_of, usize_of};
use casemate_crypt::image::Holes;
use casemate_crypt::{Mapping, Params};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Direction, KdfLimits, Providers, SecretSource, Work};

use crate::authenticated::Protected;
use crate::luks2::reencrypt::MOVING;
use crate::luks2::{Segment, SegmentSize};
use crate::policy::Policy;
use crate::reason::Reason;
use crate::unlock::{self, Unlocked};
use crate::{Code, Error, ErrorKind, Header, MAGIC};

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
pub(crate) fn read_header(image: &Medium, providers: &Providers) -> Result<Header, Error> {
    let header = Header::read(image.top(), providers).at(image.name())?;
    if !begins_with_luks(image)?
        && let Some(what) = signatures::beginning(image.top()).at(image.name())?
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
pub(crate) fn refuse_empty(passphrase: &SecretVec, is_allowed: bool) -> Result<(), Error> {
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
    /// Rules that the header must keep before a key slot is tried.
    pub policy: Option<Policy>,
    /// Whether key slots of LUKS2 are tried, too, whose keys are for no data, where none is named.
    pub unbound: bool,
    /// Whether an XTS key is taken whose halves are equal.
    pub allow_equal_halves: bool,
    /// Whether discards pass down.
    pub allow_discards: bool,
    /// Whether data are written, too, of which their device shows that they are not of the detached header.
    pub allow_other_data: bool,
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
            allow_other_data: false,
        }
    }
}

impl LuksOptions {
    /// Options that let a header cost `times` as much.
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
    pub(crate) header: Header,
    /// The medium that the header was read from.
    pub(crate) header_image: Medium,
    /// Whether that is the data's medium, too.
    pub(crate) is_attached: bool,
    pub(crate) data: Medium,
}

/// Plain data of a volume that was opened.
///
/// Nobody else changes header or data as long as the medium, or a clone of it, is there.
pub struct Opened {
    /// Medium that the plain data lie on, with the locks of the volume.
    pub data: Medium,
    /// Way in which they become plain.
    pub plain: Plain,
}

/// Way in which the data of a volume become plain.
pub enum Plain {
    /// By a dm-crypt mapping.
    Mapping(Box<Mapping>),
    /// By a mapping whose blocks have tags, in a dm-integrity volume.
    Protected(Arc<Protected>),
    /// By the ciphers of both sides of a reencryption that is not finished: the data can only be read.
    Reencryption(Arc<dyn BlockDevice>),
    /// By the same ciphers while the reencryption goes on: the data can be written, too.
    Reencrypting(Arc<dyn BlockDevice>),
}

impl Opened {
    /// The plain data as a medium, which holds the locks of the volume.
    ///
    /// # Errors
    /// Errors of [`Mapping::over`].
    pub fn medium(self) -> Result<Medium, Error> {
        let Opened { data, plain } = self;
        Ok(match plain {
            Plain::Mapping(mapping) => {
                // OK to multiply: a mapping's offset is below 2^64 bytes.
                let (from, is_discarding) = (mapping.offset * 512, mapping.allow_discards);
                let device = mapping.over(data.device()).at(data.name())?;
                let device = if is_discarding { device.allowing_discards() } else { device };
                data.laid_writing(Arc::new(device), from)
            }
            Plain::Protected(device) => data.laid_remembering(device, None),
            Plain::Reencrypting(device) => data.laid_writing(device, 0),
            Plain::Reencryption(device) => {
                data.laid_writing(device, 0).refusing_writes(REENCRYPTED, Some(Advice::FinishReencryption))
            }
        })
    }
}

/// Reason why data in the middle of a reencryption take no writes.
const REENCRYPTED: &str = "the volume is being reencrypted, and can only be read until that is finished";

impl Volume {
    /// The header that `data` begin with, or `header` if it lies apart from them.
    ///
    /// # Errors
    /// `Corrupt` if there is none that makes sense, `Unsupported` for an unknown version, `Io`.
    pub fn read(data: &Medium, header: Option<&Medium>, providers: &Providers) -> Result<Volume, Error> {
        let header_image = header.unwrap_or(data).clone();
        let found = read_header(&header_image, providers).map_err(|error| match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Unsupported => Reason::NoHeader.of(error),
            _ => error,
        })?;
        Ok(Volume { header: found, header_image, is_attached: header.is_none(), data: data.clone() })
    }

    /// The header, as it was read.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The data as they become plain with a key; in the middle of a reencryption as they are, to be read.
    ///
    /// # Errors
    /// Errors of [`Volume::unlock`] and [`Volume::mapping`]; [`Error::is_busy`] if somebody else is changing the volume, or
    /// has changed its header since that was read.
    pub fn open(self, key: &LuksKey, options: &LuksOptions, work: &Work<'_>) -> Result<Opened, Error> {
        let mut volume = self.locked()?;
        if volume.forget_move()?.is_some() {
            volume.data = volume.data.refusing_writes(REENCRYPTED, Some(Advice::FinishReencryption));
        }
        if volume.data.check_writable().is_ok() {
            volume.refuse_other_data(false, options, &work.providers)?;
            if volume.is_end_to_be_wiped() {
                volume.data = volume.data.refusing_writes(REENCRYPTED, Some(Advice::FinishReencryption));
            }
        }
        if let Some(course) = volume.reencryption().at(volume.header_image.name())? {
            let view = volume.view(&course, key, options, work)?;
            return Ok(Opened { data: volume.data, plain: Plain::Reencryption(view) });
        }
        if let Some(segment) = volume.protected_segment() {
            let (data, device) = volume.open_protected(&segment, key, options, work)?;
            return Ok(Opened { data, plain: Plain::Protected(device) });
        }
        // What can't be opened with any key costs none.
        volume.check_openable().at(volume.header_image.name())?;
        let unlocked = volume.unlock(key, options, work)?;
        let mapping = volume.mapping(unlocked, options, &work.providers)?;
        Ok(Opened { data: volume.data, plain: Plain::Mapping(Box::new(mapping)) })
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
    /// `Unsupported` for what is not a plain mapping of one segment: a reencryption that is not finished, integrity, OPAL, and
    /// requirements that are not known, each by its name; `Corrupt` for a volume without data; those of [`Mapping::new`].
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
        let device = self.data.top().size();
        let rest = device.saturating_sub(offset);
        let len = size.unwrap_or(rest - rest % 512);
        if len == 0 {
            let text = format!(
                "the volume has no data: they begin at byte {offset} by the header, and the device ends at byte {device}. \
                 It may have been cut off"
            );
            return Err(Error::corrupt(text)).at(self.data.name());
        }
        Ok(mapping.verified(len))
    }

    /// Decrypts the data to a file or block device; a new file gets its name when it is whole.
    ///
    /// # Errors
    /// Errors of [`Volume::open`] and [`Mapping::transform`]; errors of the consent if the target holds something.
    pub fn extract(
        &self,
        key: &LuksKey,
        target: &Path,
        consent: Consent<'_>,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let (source, mapping) = self.source(key, options, work)?;
        let target: Target = mapping.target(Direction::Decrypt, &source, target, consent)?;
        mapping.transform(Direction::Decrypt, &source, &target, Holes::Data, work)
    }

    /// Decrypts the data to a stream, which comes with its name for errors.
    ///
    /// # Errors
    /// Errors of [`Volume::open`] and [`Mapping::transform_stream`].
    pub fn extract_stream(
        &self,
        key: &LuksKey,
        output: (&str, &mut (dyn Write + Send)),
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let (source, mapping) = self.source(key, options, work)?;
        mapping.transform_to_stream(Direction::Decrypt, &source, output, work)
    }

    /// Data to decrypt, with their mapping. In the middle of a reencryption, and with integrity tags, reading decrypts
    /// already: the mapping is then the null cipher.
    fn source(
        &self,
        key: &LuksKey,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<(Medium, Mapping), Error> {
        let volume = self.locked()?;
        let course = volume.reencryption().at(volume.header_image.name())?;
        if course.is_none() && volume.protected_segment().is_none() {
            let unlocked = volume.unlock(key, options, work)?;
            let mapping = volume.mapping(unlocked, options, &work.providers)?;
            return Ok((volume.data, mapping));
        }
        let view = volume.open(key, options, work)?.medium()?;
        let nothing = Params::new("cipher_null-ecb".parse()?);
        let mapping = Mapping::new(nothing, SecretVec::zeroed(0), 0, &work.providers)?;
        let size = view.top().size();
        Ok((view, mapping.verified(size)))
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
        len.map(usize_of)
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
        let superblock =
            inside.and_then(|inside| casemate_integrity::read_superblock(inside.ok()?.top()).ok());
        superblock.map_or(size, |superblock| superblock.provided_data_sectors * 512)
    }

    /// Checks that the header leads to data: their first byte lies on the device, and their cipher is known. A reencryption is
    /// not looked at.
    ///
    /// # Errors
    /// `Corrupt` for data behind the device's end; `Unsupported` for a cipher that is not known or whose key has another size.
    pub fn check_usable(&self, providers: &Providers) -> Result<(), Error> {
        if self.check_segments().is_err() || self.protected_segment().is_some() {
            return Ok(());
        }
        let ((encryption, sector_size, offset, _), size) = (self.geometry(), self.data.top().size());
        let check = || {
            if offset > size {
                let text = format!(
                    "the data begin at byte {offset} by the header, behind the device's end at {size}"
                );
                return Err(Error::corrupt(text));
            }
            let Some(len) = self.volume_key_len() else { return Ok(()) };
            let mut params = Params::new(encryption.parse()?);
            (params.sector_size, params.allow_equal_halves) = (sector_size, true);
            Mapping::new(params, SecretVec::zeroed(len), offset / 512, providers).map(drop)
        };
        check().at(self.header_image.name())
    }

    /// Geometry of the data: the cipher, bytes of a sector, the first byte, and the number of bytes if it is fixed.
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
                (segment.encryption, usize_of(segment.sector_size), segment.offset, size)
            }
        }
    }

    /// Whether the data are a mapping, and nothing else.
    pub(crate) fn check_openable(&self) -> Result<(), Error> {
        self.check_readable()?;
        match self.protected_segment().and_then(|segment| segment.integrity) {
            Some(kind) => Err(Error::unsupported(format!(
                "the data have integrity protection ({kind}); a mapping alone does not open them"
            ))),
            None => Ok(()),
        }
    }

    /// Whether the data can be read, with integrity protection too.
    pub(crate) fn check_readable(&self) -> Result<(), Error> {
        self.check_segments()?;
        if self.is_attached && self.geometry().2 < self.header.metadata_end() {
            return Err(header_alone());
        }
        if !self.is_attached && self.data.check_writable().is_ok() {
            let (len, offset) = (self.header.metadata_end(), self.geometry().2);
            refuse_header_in_data(&self.header_image, len, &self.data, offset)?;
        }
        Ok(())
    }

    fn check_segments(&self) -> Result<(), Error> {
        let Header::Luks2(header) = &self.header else { return Ok(()) };
        let metadata = &header.metadata;
        // Data that are being moved are still whole where they were.
        let is_readable = self.is_moving() && self.data.check_writable().is_err();
        if let Some(name) = metadata.requirements().into_iter().next().filter(|_| !is_readable) {
            if ["offline-reencrypt", "online-reencrypt", "online-reencrypt-v2", "online-reencrypt-v3"]
                .contains(&&*name)
            {
                let text = format!("the LUKS2 header requires {name}: the volume is being reencrypted");
                return Err(Error::unsupported(text).advise(Advice::FinishReencryption));
            }
            if self.is_moving() {
                let text = format!(
                    "the LUKS2 header requires {name}: a decryption was cut off while it moved the first data"
                );
                return Err(Error::unsupported(text).advise(Advice::FinishReencryption));
            }
            let why = match &*name {
                MOVING => {
                    "it is of a decryption that was cut off, and is not the header of the data behind it"
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
        if kind == "linear" {
            return Err(Error::unsupported(
                "segment 0 is of type 'linear': by the header, which nothing proves, the data are not encrypted. A decryption that is \
                 complete leaves such a header, and nobody needs it: look at the data, then remove it",
            ));
        }
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

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volume(LUKS{} of {:?})", self.header.version(), self.data)
    }
}

/// The error for a header whose data are needed and lie elsewhere.
pub(crate) fn header_alone() -> Error {
    let text = "this is the header of data that lie elsewhere, which are opened with it beside them";
    Error::argument(text).advise(Advice::LuksHeader)
}

/// Refuses a header of `len` bytes that lies in the data that it is of, which begin at byte `offset` of theirs: what is written
/// to the data would destroy it.
pub(crate) fn refuse_header_in_data(
    header: &Medium,
    len: u64,
    data: &Medium,
    offset: u64,
) -> Result<(), Error> {
    if header.may_be_changed_by(len, data, offset..u64::MAX) {
        let text = format!(
            "the detached header would lie in the data that begin at byte {offset} of {}: it needs another file or device",
            data.name()
        );
        return Err(Error::coded(Code::Overlap, text).at(header.name()));
    }
    Ok(())
}

/// Whether a medium begins with a header of LUKS, sound or not: otherwise a second copy of one may be what something
/// else has left.
///
/// # Errors
/// `Io`.
pub fn begins_with_luks(medium: &Medium) -> Result<bool, Error> {
    let mut bytes = [0; MAGIC.len()];
    if medium.top().size() >= u64_of(bytes.len()) {
        medium.top().read_at(&mut bytes, 0).at(medium.name())?;
    }
    Ok(bytes == *MAGIC)
}
