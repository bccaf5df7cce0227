//! LUKS2 volumes reencrypted, encrypted and decrypted where they lie, in the format's own metadata: what is cut off is gone
//! on with here or by cryptsetup, and is read meanwhile.

use std::sync::Arc;

use crate::Header;
use crate::luks2::reencrypt::{Direction, Mode, Part, Reencryption, State};
use crate::luks2::{self, Segment, SegmentSize};
use casemate_blockdev::{AtFile, BlockDevice, Contents, Medium, usize_of};
use casemate_crypt::{Params, SectorCipher};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Providers, Work};

use super::locks::HeaderLock;
use super::random::Source;
use super::volume::header_alone;
use super::{LuksKey, LuksOptions, Volume};
use crate::pbkdf::Pbkdf;
use crate::{Advice, Error};

mod begun;
mod claims;
mod decrypt;
mod encrypt;
mod end;
mod evidence;
mod fits;
mod hot;
mod length;
mod online;
mod repair;
mod samples;
mod sides;
mod start;
mod view;
mod zones;

pub use encrypt::encrypt_in_place;
pub use online::Reencrypting;
pub use repair::ReencryptionState;
use sides::{Keys, Sides};
use view::View;

/// Protection of data that are rewritten in place, against a crash in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Checksums of the old bytes.
    Checksum,
    /// A copy of the old bytes.
    Journal,
    /// Nothing: what is being rewritten when the power fails is lost.
    None,
}

/// How a volume is reencrypted. What is not said stays as it was.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReencryptOptions {
    /// Transformation of the data. If a work was begun, it goes on only if it is this one; any goes on if `None`.
    pub mode: Option<Mode>,
    /// dm-crypt's specification.
    pub cipher: Option<String>,
    /// Bits of the new volume key.
    pub key_bits: Option<usize>,
    /// Bytes of an encryption sector.
    pub sector_size: Option<u32>,
    /// The hash of new key slots and digests; SHA-256 if `None`.
    pub hash: Option<String>,
    /// KDF that makes a key of a passphrase; if `None`, each slot keeps its own.
    pub pbkdf: Option<Pbkdf>,
    /// Protection of data that are rewritten in place. If `None`: checksums, or a journal where a torn sector can't be
    /// told from its parts, with ciphers whose data units are one block. Data that move are protected by their old
    /// place.
    pub protection: Option<Protection>,
    /// The hash of checksums; SHA-256 if `None`.
    pub resilience_hash: Option<String>,
    /// Bytes that are rewritten between two writes of the header, at most.
    pub hotzone_size: Option<u64>,
    /// The bytes of the data that are reencrypted, from the first one on; all if `None`. Work that was begun goes on with
    /// fewer than all only if it was begun for as many.
    pub device_size: Option<u64>,
    /// Whether data are transformed that are a window, and end before the file, device or partition under it does: those behind
    /// it lose their key, or stay in plain text. Work that was begun so goes on without this. Also whether a header in a file of its
    /// own is believed that its data begin where a window does.
    pub allow_window: bool,
    /// Bytes at the device's end that are given up, so that the header can grow.
    pub reduce_device_size: Option<u64>,
    /// Whether data there are given up, too, where the file system that is known ends before them.
    pub give_up_data: bool,
    /// Where the data of a new volume begin. With a header in a file of its own what lies before that stays as it is: 0 if
    /// `None`; with one before the data it is the room that this has: half of what they give up if `None`.
    pub offset: Option<u64>,
    /// Knowledge of what the plain data hold, for work in which they give up their end, and for an encryption of a window. Without
    /// it none is begun.
    pub contents: Option<Contents>,
    /// Whether the work is noted in the header, and not begun.
    pub init_only: bool,
    /// Whether work that was begun goes on, and none is begun.
    pub resume_only: bool,
}

impl ReencryptOptions {
    fn hash(&self) -> &str {
        self.hash.as_deref().unwrap_or("sha256")
    }
}

/// Bytes of a volume key for a cipher.
fn key_len(cipher: &str, bits: Option<usize>) -> Result<usize, Error> {
    let is_xts = cipher.contains("-xts-") || cipher.contains("xts(");
    match bits.unwrap_or(if is_xts { 512 } else { 256 }) {
        bits if bits.is_multiple_of(8) && (8..=8192).contains(&bits) => Ok(bits / 8),
        bits => Err(Error::argument(format!(
            "a key of {bits} bits: it must have a multiple of 8 bits, at most 8192"
        ))),
    }
}

/// Whether all places of data are behind a header that ends there.
fn is_behind(course: &Reencryption, end: u64) -> bool {
    // The first positions that were moved have no other old place.
    let moved = course.moved_len();
    let is_all_moved = course.backups.previous.size == SegmentSize::Fixed(moved);
    let places = [
        Some(course.new_place(0)),
        (moved > 0).then(|| course.old_place(0)),
        (!is_all_moved).then(|| course.old_place(moved)),
    ];
    places.into_iter().flatten().all(|place| place >= end)
}

/// The position that the work ends at.
fn limit(course: &Reencryption, len: u64, options: &ReencryptOptions) -> Result<u64, Error> {
    let unit = course.sector_unit();
    match options.device_size {
        None => Ok(len),
        Some(limit) if !limit.is_multiple_of(unit) || limit == 0 || limit > len => Err(Error::argument(
            format!("the first {limit} bytes alone: the data have {len} bytes, in sectors of {unit}"),
        )),
        Some(_) if course.shift.is_some() || course.direction != Direction::Forward => {
            Err(Error::argument("data that move are reencrypted as a whole, not their first bytes alone"))
        }
        Some(limit) => Ok(limit),
    }
}

/// A random volume key that a segment's cipher takes.
fn new_key(segment: &Segment, len: usize, providers: &Providers) -> Result<SecretVec, Error> {
    let mut key = SecretVec::zeroed(len);
    Source::System.fill(key.expose_mut())?;
    if super::slot::is_null(&segment.encryption) {
        return Err(Error::argument(format!("{} encrypts nothing", segment.encryption)));
    }
    let mut params = Params::new(segment.encryption.parse()?);
    params.sector_size = usize_of(segment.sector_size);
    SectorCipher::new(&params, key.expose(), providers)?;
    Ok(key)
}

impl Volume {
    /// Transformation that was begun with the data and is not finished; `None` if there is none.
    ///
    /// # Errors
    /// `Unsupported` for work that only cryptsetup can go on with; `Corrupt` for metadata that contradict themselves.
    pub fn begun(&self) -> Result<Option<Mode>, Error> {
        let course = self.noted_reencryption().at(self.header_image.name())?;
        Ok(course.or_else(|| self.ending().map(|ending| ending.course)).map(|course| course.mode))
    }

    /// The reencryption that goes on, if one does.
    pub(super) fn reencryption(&self) -> Result<Option<Reencryption>, Error> {
        match &self.header {
            Header::Luks1(_) => Ok(None),
            Header::Luks2(header) => {
                let course = header.metadata.reencryption()?;
                match course {
                    Some(_) if self.is_header_alone() => Err(header_alone()),
                    course => Ok(course),
                }
            }
        }
    }

    /// The reencryption that the header tells of, wherever its data lie.
    pub(super) fn noted_reencryption(&self) -> Result<Option<Reencryption>, Error> {
        match &self.header {
            Header::Luks1(_) => Ok(None),
            Header::Luks2(header) => header.metadata.reencryption(),
        }
    }

    /// Whether the header tells of a reencryption of data that can't lie behind it.
    pub(super) fn is_header_alone(&self) -> bool {
        let course = self.noted_reencryption().ok().flatten();
        self.is_attached && course.is_some_and(|course| !is_behind(&course, self.header.metadata_end()))
    }

    /// Whether the data may be a mixture that nothing tells apart: of a reencryption that nothing protects the header says that
    /// it was not begun, and cryptsetup notes nothing more until all is done.
    pub fn may_be_mixed(&self) -> bool {
        let Ok(Some(course)) = self.reencryption() else { return false };
        let parts = course.parts(self.data.top().size()).unwrap_or_default();
        view::may_be_mixed(&course, &parts)
    }

    /// The plain data in the middle of a reencryption, as they are: nothing is written.
    pub(super) fn view(
        &self,
        course: &Reencryption,
        key: &LuksKey,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<Arc<dyn BlockDevice>, Error> {
        let Header::Luks2(header) = &self.header else { return Err(Error::unsupported("LUKS1")) };
        self.check_policy(options.policy.as_ref(), &work.providers)?;
        let view = || {
            let parts = course.parts(self.data.top().size())?;
            let keys = self.keys(header, course, &parts, key, options, work)?;
            let sides = Sides::new(course, &keys, options, &work.providers)?;
            let devices = (self.header_image.device(), self.data.device());
            View::new(course, sides, &parts, devices, self.data.name(), work)
        };
        Ok(Arc::new(view().at(self.header_image.name())?))
    }

    fn keys(
        &self,
        header: &luks2::Header,
        course: &Reencryption,
        parts: &[Part],
        key: &LuksKey,
        options: &LuksOptions,
        work: &Work<'_>,
    ) -> Result<Keys, Error> {
        let is_done = parts.iter().all(|part| part.state == State::New);
        let device = self.header_image.top();
        let keys = sides::unlock(header, device, course, is_done, key, options, work)?;
        // Before anything is written; it is refused again wherever ciphers are made.
        sides::refuse_null(course, &keys)?;
        Ok(keys)
    }

    /// Reencrypts the data with a new volume key, or goes on with a reencryption, encryption or decryption that was cut
    /// off. Every key slot of the data needs its passphrase, unless `unlocking` names the one that stays; to go on, one
    /// passphrase is enough, and `options` must ask for nothing else than what was begun. Returns whether all is done.
    ///
    /// # Errors
    /// `Mismatch` for a wrong passphrase, `Argument` for what can't be, `Unsupported`, `Corrupt`, `Busy` if another program
    /// is at it or has changed the header since it was read: nothing is changed then. `Io`, `Interrupted`: it can go on.
    pub fn reencrypt(
        &mut self,
        keys: &[LuksKey],
        unlocking: &LuksOptions,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        let _lease = Medium::lease_all(&[&self.header_image, &self.data])?;
        let moving = self.forget_move()?;
        self.check_policy(unlocking.policy.as_ref(), &work.providers)?;
        self.data.check_partitions()?;
        let name = self.header_image.name().to_owned();
        if let Some(code) = moving {
            let key = keys.first().ok_or_else(|| Error::argument("no passphrase was given"))?;
            return self.decrypt_here(Some(&code), key, None, unlocking, options, work).at(name);
        }
        self.reencrypt_here(keys, unlocking, options, work).at(name)
    }

    fn reencrypt_here(
        &mut self,
        keys: &[LuksKey],
        unlocking: &LuksOptions,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        let _lock = self.claim_reencryption()?;
        self.refuse_other_data(true, unlocking, &work.providers)?;
        self.refuse_late_beginning(options.allow_window)?;
        let course = self.reencryption()?;
        let size = self.data.top().size();
        if course.is_none()
            && let Some(ending) = self.ending()
        {
            return self.go_on_ending(ending, keys, unlocking, options, work);
        }
        let (course, found) = match course {
            Some(_) if options.init_only => {
                let error = Error::argument("the work was begun already");
                return Err(error.advise(Advice::FinishReencryption));
            }
            Some(course) => {
                let Header::Luks2(header) = &self.header else { return Err(Error::unsupported("LUKS1")) };
                begun::check(&course, &header.metadata, &self.data, options)?;
                let parts = course.parts(size)?;
                let key = keys.first().ok_or_else(|| Error::argument("no passphrase was given"))?;
                let found = self.keys(header, &course, &parts, key, unlocking, work)?;
                (course, found)
            }
            None if options.resume_only => {
                return Err(Error::argument(
                    "no reencryption was begun, or it is done: there is nothing to go on with",
                ));
            }
            None => {
                self.check_openable()?;
                if let Some(mode) = options.mode.filter(|mode| *mode != Mode::Reencrypt) {
                    let text = format!("{} is not begun by this, which reencrypts", mode.noun());
                    return Err(Error::argument(text));
                }
                let lock = HeaderLock::of(&self.header_image);
                let Header::Luks2(header) = &mut self.header else {
                    let error = Error::unsupported("LUKS1 has no reencryption here; LUKS2 has");
                    return Err(error.advise(Advice::ConvertToLuks2));
                };
                let images = (&self.header_image, &self.data);
                let found = start::reencrypt(header, images, &lock, keys, unlocking, options, work)?;
                // What is gone on with is what was written.
                let course = header.metadata.reencryption()?;
                (course.ok_or_else(|| Error::corrupt("no reencryption was begun"))?, found)
            }
        };
        match options.init_only {
            true => Ok(false),
            false => self.go_on(course, &found, unlocking, options, work),
        }
    }

    fn go_on(
        &mut self,
        course: Reencryption,
        keys: &Keys,
        unlocking: &LuksOptions,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        let data = self.data.clone();
        let (size, named) = (data.top().size(), data.named());
        let (limit, parts) = (limit(&course, course.len(size)?, options)?, course.parts(size)?);
        let mut zones = self.zones(&named, course, parts, keys, unlocking, work)?;
        (zones.limit, zones.zone) = (limit, options.hotzone_size);
        zones.run(work)?;
        zones.finish(work)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::luks2::reencrypt::{Backups, Direction, Mode, Resilience};

    use super::*;

    const HEADER: u64 = 65536;

    /// An encryption to the place behind a header, of data whose first 64 KiB were moved to a place.
    fn encryption(moved: u64) -> Reencryption {
        let segment = |kind: &str, offset, size| Segment {
            id: 0,
            kind: kind.to_owned(),
            offset,
            size,
            iv_tweak: 0,
            encryption: "aes-xts-plain64".to_owned(),
            sector_size: 512,
            integrity: None,
            flags: Vec::new(),
        };
        let backups = Backups {
            previous: segment("linear", 0, SegmentSize::Dynamic),
            last: segment("crypt", HEADER, SegmentSize::Dynamic),
            moved: Some(segment("linear", moved, SegmentSize::Fixed(HEADER))),
        };
        let area = 40960..45056;
        let backward = Direction::Backward;
        Reencryption::new(Mode::Encrypt, backward, Resilience::None, (2, area), backups, [None, Some(0)])
            .unwrap()
    }

    #[test]
    fn what_was_moved_lies_apart_from_header_and_data() {
        let size = 1 << 20;
        // Behind the data, before them, and where they will be, which is wiped at the end.
        let (behind, before, within) = (encryption(size - HEADER), encryption(0), encryption(HEADER));
        assert!(is_behind(&behind, HEADER) && is_behind(&within, HEADER));
        assert!(!is_behind(&before, HEADER));
        assert!(within.len(size).is_err());
    }
}
