//! Volumes decrypted where they lie: with a header in a file of its own the data stay at their place; with one before the
//! data it goes to a new file, and the data move to the device's beginning.
//!
//! The file first gets the header, with a requirement that lets nobody write to the data. Then the first data, encrypted as they
//! are, are copied over the header before them; then the file says so. What is cut off in between is begun again by the same
//! command: the data behind the header are still whole, and nobody could change them.

use crate::Header;
use crate::luks2::reencrypt::{Backups, Direction, Mode, Part, Reencryption, Resilience, State};
use crate::luks2::{self, Segment, SegmentSize};
use casemate_blockdev::{AtFile, Medium, u64_of, usize_of};
use casemate_primitives::hex;
use casemate_providers::{Hmac, Work};

use super::encrypt::{copy_within, linear};
use super::sides::Keys;
use super::{ReencryptOptions, start};
use crate::areas::free_slot;
use crate::locks::HeaderLock;
use crate::random::Source;
use crate::unlock::{self, Budget};
use crate::volume::refuse_header_in_data;
use crate::{Advice, Error};
use crate::{LuksKey, LuksOptions, Volume};

/// Bytes of the first data that are moved, at most, as cryptsetup has it.
const MOST_MOVED: u64 = 20 << 20;

/// Text before the data that their code is of.
const MOVE_CONTEXT: &[u8] = b"first data of a decryption";

impl Volume {
    /// Decrypts the data where they lie. A header before the data goes to `export`, a new file, and the data move to the
    /// device's beginning; afterwards their last bytes are of no use, as many as the header had. Returns whether all is done;
    /// [`Volume::reencrypt`], with the header in the file, goes on with what was cut off.
    ///
    /// # Errors
    /// `Mismatch` for a wrong key, `Argument` for what can't be: nothing is changed then. `Io`, `Interrupted`: it can go on.
    pub fn decrypt(
        mut self,
        key: &LuksKey,
        export: Option<&Medium>,
        unlocking: &LuksOptions,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        let _lease = self.data.lease()?;
        let moving = self.forget_move()?;
        self.check_policy(unlocking.policy.as_ref(), &work.providers)?;
        self.data.check_partitions()?;
        let name = self.header_image.name().to_owned();
        self.decrypt_here(moving.as_deref(), key, export, unlocking, options, work).at(name)
    }

    pub(super) fn decrypt_here(
        &mut self,
        moving: Option<&[u8]>,
        key: &LuksKey,
        export: Option<&Medium>,
        unlocking: &LuksOptions,
        options: &ReencryptOptions,
        work: &Work<'_>,
    ) -> Result<bool, Error> {
        self.check_openable()?;
        refuse_unused(options)?;
        let _lock = self.claim_reencryption()?;
        let claim = HeaderLock::of(&self.header_image).take()?;
        let Header::Luks2(header) = &self.header else {
            let error = Error::unsupported("LUKS1 has no decryption in place here; LUKS2 has");
            return Err(error.advise(Advice::ConvertToLuks2));
        };
        let mut header = header.clone();
        let previous = header.metadata.segments().remove(0);
        if previous.size != SegmentSize::Dynamic {
            return Err(Error::unsupported(
                "the data have a fixed size; only data up to the device's end are decrypted",
            ));
        }
        super::length::refuse_window(Mode::Decrypt, &self.data, options)?;
        let digests = header.metadata.digests();
        let digest = digests.iter().find(|digest| digest.segments.contains(&0));
        let digest = digest.ok_or_else(|| Error::corrupt("no digest is of the data"))?.id;
        let device = self.header_image.top();
        let mut budget = Budget::new(unlocking.limits);
        let found = unlock::key_of_digest(&header, device, digest, key, unlocking, &mut budget, work)?;
        let keys = Keys::of_new_work([Some(found.volume_key), None], found.is_empty_passphrase);
        let size = self.data.top().size();
        let len = size.saturating_sub(previous.offset);
        let unit = u64::from(previous.sector_size);
        if len == 0 || !len.is_multiple_of(unit) {
            return Err(Error::argument(format!(
                "{len} bytes of data are not a multiple of the sector size {unit}"
            )));
        }
        let is_moving = match (self.is_attached, export) {
            (true, None) => {
                let text = "the header lies where the data will be, and needs a new file";
                return Err(Error::argument(text).advise(Advice::LuksHeader));
            }
            (true, Some(export)) => {
                refuse_header_in_data(export, header.metadata.keyslots_area().end, &self.data, 0)?;
                copy_header(&header, &self.header_image, export)?;
                header.metadata = header.metadata.with_moving(&self.first_code(&previous, &keys, work)?)?;
                header.write(export.top(), &work.providers, &mut |bytes| Source::System.fill(bytes))?;
                (self.header_image, self.is_attached) = (export.clone(), false);
                true
            }
            (false, Some(_)) => return Err(Error::argument("the header lies in a file of its own already")),
            (false, None) => match moving {
                Some(code) if code == self.first_code(&previous, &keys, work)?.as_bytes() => true,
                Some(_) => {
                    let text = format!(
                        "the device is not as it was when the header's file was made: its first data, which are encrypted at byte {}, \
                         have changed, or it has another length. Keep the header's file: the header before the data may be overwritten \
                         already",
                        previous.offset
                    );
                    return Err(Error::argument(text).at(self.data.name()));
                }
                None => {
                    self.refuse_late_beginning(options.allow_window)?;
                    self.refuse_other_data(true, unlocking, &work.providers)?;
                    false
                }
            },
        };
        let area = start::largest_gap(&header.metadata)?;
        let last = linear(if is_moving { 0 } else { previous.offset }, SegmentSize::Dynamic);
        let resilience = start::resilience(options, [&previous, &last], len, &work.providers)?;
        if resilience == Resilience::None && is_moving {
            return Err(Error::argument("data that move are protected, and can't be without protection"));
        }
        let moved = is_moving.then(|| {
            let room = room(&resilience, area.end - area.start, work)?;
            let wanted =
                options.hotzone_size.unwrap_or(MOST_MOVED).min(MOST_MOVED).min(previous.offset).min(len);
            match wanted.min(room) / 4096 * 4096 {
                0 => Err(Error::argument("the header or the data are too small for a decryption in place")),
                moved => Ok(Segment { offset: 0, size: SegmentSize::Fixed(moved), ..previous.clone() }),
            }
        });
        let moved = moved.transpose()?;
        let mut course = Reencryption::new(
            Mode::Decrypt,
            Direction::Forward,
            resilience,
            (free_slot(&header.metadata, None)?, area),
            Backups { previous: previous.clone(), last, moved },
            [Some(digest), None],
        )?;
        course.device_size = options.device_size;
        super::sides::refuse_null(&course, &keys)?;
        course.samples = start::sample(&course, &self.data, &keys, &work.providers)?;
        let begun = start::begin(&course, &header.metadata, &keys, size, options, &work.providers)?;
        if is_moving {
            let moved = course.moved_len();
            self.header_image.commit()?;
            copy_within(&self.data, previous.offset, 0, moved, work)?;
            let copies = 2 * header.metadata.hdr_size();
            // Else the second copy of the header would be found.
            if moved < copies {
                self.data.top().write_zeroes(moved, copies - moved, false)?;
            }
            self.data.top().flush()?;
        }
        header.metadata = begun;
        header.write(self.header_image.top(), &work.providers, &mut |bytes| Source::System.fill(bytes))?;
        let course =
            header.metadata.reencryption()?.ok_or_else(|| Error::corrupt("no decryption was begun"))?;
        self.header = Header::Luks2(header);
        drop(claim);
        match options.init_only {
            true => Ok(false),
            false => self.go_on(course, &keys, unlocking, options, work),
        }
    }

    /// Whether a decryption was cut off while the first data were copied over the header before them. [`Volume::decrypt`] goes
    /// on with it.
    pub fn is_moving(&self) -> bool {
        self.moving().is_some()
    }

    fn moving(&self) -> Option<&[u8]> {
        match &self.header {
            Header::Luks2(header) if !self.is_attached => header.metadata.moving(),
            _ => None,
        }
    }

    /// Takes the header as it was before the first data began to be copied over it. Returns the code that they had, in
    /// hexadecimal, if they did.
    pub(crate) fn forget_move(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let code = self.moving().map(<[u8]>::to_vec);
        if let Header::Luks2(header) = &mut self.header
            && code.is_some()
        {
            header.metadata = header.metadata.without_moving()?;
        }
        Ok(code)
    }

    /// Code, in hexadecimal, of the data's length and of all data that may be moved, encrypted as they are. It is made under the key of the data: whoever
    /// forges a header can't have a decryption go on that its user has not begun.
    fn first_code(&self, previous: &Segment, keys: &Keys, work: &Work<'_>) -> Result<String, Error> {
        let [Some(key), _] = keys.refs() else { return Err(Error::corrupt("no key is that of the data")) };
        let len = self.data.top().size().saturating_sub(previous.offset);
        let mut message = [MOVE_CONTEXT, &len.to_le_bytes()].concat();
        let head = message.len();
        message.resize(head + usize_of(len.min(MOST_MOVED)), 0);
        self.data.top().read_at(&mut message[head..], previous.offset)?;
        let hmac = Hmac::new(work.providers.hash("sha256")?, key.expose());
        Ok(hex::encode(hmac.tag(&message).expose()))
    }

    /// Whether the header says that a decryption is done, so that nothing but the header is left to be removed. Nothing proves
    /// that without the key of the data, and nothing is read on the strength of it.
    pub fn says_decrypted(&self) -> bool {
        let Ok(Some(course)) = self.reencryption() else { return false };
        let parts = course.parts(self.data.top().size()).unwrap_or_default();
        let is_new = |part: &Part| part.state == State::New;
        course.mode == Mode::Decrypt && !parts.is_empty() && parts.iter().all(is_new)
    }

    /// Ends a decryption that is done by what the header says, without a key: the header then says that the data are plain.
    /// Nothing else is written. The header may be forged: the caller must have asked for confirmation.
    ///
    /// # Errors
    /// `Argument` if the header does not say so, or was opened for reading; `Busy` if another program is at it; `Io`.
    pub fn end_decryption(&mut self, work: &Work<'_>) -> Result<(), Error> {
        self.header_image.check_writable()?;
        let name = self.header_image.name().to_owned();
        let _lock = self.claim_reencryption()?;
        let lock = HeaderLock::of(&self.header_image);
        let mut end = || {
            let course = if self.says_decrypted() { self.reencryption()? } else { None };
            let course = course.ok_or_else(|| Error::argument("no decryption is done but for its header"))?;
            let Header::Luks2(header) = &mut self.header else { return Err(Error::unsupported("LUKS1")) };
            header.metadata = course.ended(&header.metadata, self.is_attached)?;
            let _claim = lock.take()?;
            header.write(self.header_image.top(), &work.providers, &mut |bytes| Source::System.fill(bytes))
        };
        end().at(name)
    }
}

/// Refuses what a decryption has no use for.
fn refuse_unused(options: &ReencryptOptions) -> Result<(), Error> {
    if let Some(mode) = options.mode.filter(|mode| *mode != Mode::Decrypt) {
        return Err(Error::argument(format!("{} is not begun by this, which decrypts", mode.noun())));
    }
    let given = [
        ("a cipher", options.cipher.is_some()),
        ("a size of the key", options.key_bits.is_some()),
        ("a size of sectors", options.sector_size.is_some()),
        ("a KDF", options.pbkdf.is_some()),
        ("bytes that are given up", options.reduce_device_size.is_some()),
        ("a place of the data", options.offset.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((what, _)) => Err(Error::argument(format!("a decryption has no use for {what}"))),
        None => Ok(()),
    }
}

/// Copies a header with its key slots to a new file.
fn copy_header(header: &luks2::Header, from: &Medium, to: &Medium) -> Result<(), Error> {
    let end = header.metadata.keyslots_area().end.min(from.top().size());
    let mut buf = vec![0; 1 << 20];
    let mut at = 0;
    while at < end {
        let now = usize_of((end - at).min(u64_of(buf.len())));
        from.top().read_at(&mut buf[..now], at)?;
        to.top().write_at(&buf[..now], at)?;
        at += u64_of(now);
    }
    to.top().flush()
}

/// How much an area protects at once.
fn room(resilience: &Resilience, area: u64, work: &Work<'_>) -> Result<u64, Error> {
    Ok(match resilience {
        Resilience::None => 0,
        Resilience::Journal => area,
        Resilience::Checksum { hash, block } => {
            let digest_len = u64_of(work.providers.hash(hash)?.digest_len());
            (area / digest_len).saturating_mul(u64::from(*block))
        }
    })
}
