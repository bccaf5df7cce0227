//! Both ciphers of a reencryption, and the proof that its metadata come from somebody who has their keys.

use casemate_blockdev::BlockDevice;
use casemate_crypt::{Params, SectorCipher};
use casemate_luks::luks2::reencrypt::{Reencryption, State};
use casemate_luks::luks2::{self, Segment};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Direction, Providers, Work};

use super::super::unlock::{self, Check};
use super::super::{LuksKey, LuksOptions};
use crate::{Error, ErrorKind};

/// The ciphers before and after; none where the data are plain.
pub(super) struct Sides {
    ciphers: [Option<SectorCipher>; 2],
}

/// Which of two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Old,
    New,
}

impl Sides {
    pub fn new(
        course: &Reencryption,
        keys: [Option<&SecretVec>; 2],
        options: &LuksOptions,
        providers: &Providers,
    ) -> Result<Sides, Error> {
        let cipher = |segment: &Segment, key: Option<&SecretVec>| match key {
            Some(key) if segment.kind == "crypt" => {
                let mut params = Params::new(segment.encryption.parse()?);
                // OK to cast: 32 bits.
                params.sector_size = segment.sector_size as usize;
                params.iv_offset = segment.iv_tweak;
                params.allow_equal_halves = options.allow_equal_halves;
                SectorCipher::new(&params, key.expose(), providers).map(Some)
            }
            _ => Ok(None),
        };
        let backups = &course.backups;
        Ok(Sides { ciphers: [cipher(&backups.previous, keys[0])?, cipher(&backups.last, keys[1])?] })
    }

    /// Decrypts what is in one state, or encrypts it; `position` is that of the first byte.
    pub fn run(&self, side: Side, direction: Direction, position: u64, data: &mut [u8]) -> Result<(), Error> {
        match &self.ciphers[side as usize] {
            Some(cipher) => cipher.run(direction, position / 512, data),
            None => Ok(()),
        }
    }

    /// Makes what one side has into what the other has.
    pub fn convert(&self, from: Side, position: u64, data: &mut [u8]) -> Result<(), Error> {
        let to = if from == Side::Old { Side::New } else { Side::Old };
        self.run(from, Direction::Decrypt, position, data)?;
        self.run(to, Direction::Encrypt, position, data)
    }
}

/// The keys of before and after, where there are such keys and they could be had.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub keys: [Option<SecretVec>; 2],
    pub is_empty_passphrase: bool,
}

impl Keys {
    pub fn refs(&self) -> [Option<&SecretVec>; 2] {
        [self.keys[0].as_ref(), self.keys[1].as_ref()]
    }
}

/// Finds the keys that a reencryption needs, and checks that who had them has written what the metadata say of it.
///
/// # Errors
/// `Mismatch` for a wrong key; `Corrupt` if the metadata are not proven.
pub(super) fn unlock(
    header: &luks2::Header,
    device: &dyn BlockDevice,
    course: &Reencryption,
    is_done: bool,
    key: &LuksKey,
    options: &LuksOptions,
    work: &Work<'_>,
) -> Result<Keys, Error> {
    let mut found = Keys::default();
    let mut refused = None;
    for which in 0..2 {
        let Some(digest) = course.digests[which] else { continue };
        if which == 1 && course.digests[0] == course.digests[1] {
            found.keys[1] = found.keys[0].clone();
            continue;
        }
        match unlock::key_of_digest(header, device, digest, key, options, work) {
            Ok(unlocked) => {
                found.is_empty_passphrase |= unlocked.is_empty_passphrase;
                found.keys[which] = Some(unlocked.volume_key);
            }
            // What is done needs the old key no more, whose slots may be gone.
            Err(error) if is_done && which == 0 && error.kind() == ErrorKind::Mismatch => {
                refused = Some(error)
            }
            Err(error) => {
                return Err(error.map_text(|text| match (course.digests, which) {
                    ([Some(_), Some(_)], 0) => {
                        format!("{text}: the key of the data that are not reencrypted yet")
                    }
                    ([Some(_), Some(_)], _) => format!("{text}: the key of the data that are reencrypted"),
                    _ => text.to_owned(),
                }));
            }
        }
    }
    let has_all = (0..2).all(|which| course.digests[which].is_none() || found.keys[which].is_some());
    // Plain data that are all there can't be lost, and their last key slot may be wiped.
    if !has_all && is_done {
        return Ok(found);
    }
    if let Some(refused) = refused {
        return Err(refused);
    }
    let digests = header.metadata.digests();
    let digest = digests.iter().find(|digest| digest.keyslots.contains(&course.keyslot));
    let unproven = "the metadata of the reencryption are not as somebody who has the keys has written them";
    let digest = digest.ok_or_else(|| Error::corrupt(unproven))?;
    let [old, new] = found.refs();
    match Check::of_luks2(digest)?.fits(&course.message(old, new), &options.limits, &work.providers)? {
        true => Ok(found),
        false => Err(Error::corrupt(unproven)),
    }
}

/// Refuses data that a key does not protect, unless they are meant to be open to all.
pub(super) fn refuse_null(course: &Reencryption, keys: &Keys) -> Result<(), Error> {
    let null = [&course.backups.previous, &course.backups.last]
        .into_iter()
        .find(|one| unlock::is_null(&one.encryption));
    match null {
        Some(segment) if !keys.is_empty_passphrase => Err(Error::unsupported(format!(
            "a cipher of the data is {}, which encrypts nothing; only an empty passphrase opens it",
            segment.encryption
        ))),
        _ => Ok(()),
    }
}

impl From<State> for Side {
    /// The side of a part that is in one state; what is hot is read as old.
    fn from(state: State) -> Side {
        if state == State::New { Side::New } else { Side::Old }
    }
}
