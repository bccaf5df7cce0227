//! Both ciphers of a reencryption, and the proof that its metadata come from somebody who has their keys.

use crate::luks2::reencrypt::{Reencryption, State};
use crate::luks2::{self, Segment};
use casemate_blockdev::{BlockDevice, usize_of};
use casemate_crypt::{Params, SectorCipher};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Direction, Providers, Work};

use super::super::slot::is_null;
use super::super::unlock::{self, Budget, Check};
use super::super::{LuksKey, LuksOptions, Reason};
use crate::{Error, ErrorKind};

/// The ciphers before and after. They are made of [`Keys`] alone, which are the proof that the metadata may be followed.
pub(super) struct Sides {
    layers: [Layer; 2],
}

/// Layer between the bytes of a device and the data.
enum Layer {
    /// Nothing.
    Plain,
    Cipher(Box<SectorCipher>),
    /// A cipher whose key nobody has, and which no part of the data has any more.
    Missing,
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
        keys: &Keys,
        options: &LuksOptions,
        providers: &Providers,
    ) -> Result<Sides, Error> {
        refuse_null(course, keys)?;
        let layer = |segment: &Segment, key: Option<&SecretVec>| match key {
            _ if segment.kind == "linear" => Ok(Layer::Plain),
            None => Ok(Layer::Missing),
            Some(key) => {
                let mut params = Params::new(segment.encryption.parse()?);
                params.sector_size = usize_of(segment.sector_size);
                params.iv_offset = segment.iv_tweak;
                params.allow_equal_halves = options.allow_equal_halves;
                let cipher = SectorCipher::new(&params, key.expose(), providers)?;
                Ok::<Layer, Error>(Layer::Cipher(Box::new(cipher)))
            }
        };
        let (backups, [old, new]) = (&course.backups, keys.refs());
        Ok(Sides { layers: [layer(&backups.previous, old)?, layer(&backups.last, new)?] })
    }

    /// Decrypts what is in one state, or encrypts it; `position` is that of the first byte.
    pub fn run(&self, side: Side, direction: Direction, position: u64, data: &mut [u8]) -> Result<(), Error> {
        let [old, new] = &self.layers;
        match if side == Side::Old { old } else { new } {
            Layer::Cipher(cipher) => cipher.run(direction, position / 512, data),
            Layer::Plain => Ok(()),
            Layer::Missing => Err(Error::locked("the key of the data before the reencryption is not there")),
        }
    }

    /// Makes what one side has into what the other has.
    pub fn convert(&self, from: Side, position: u64, data: &mut [u8]) -> Result<(), Error> {
        let to = if from == Side::Old { Side::New } else { Side::Old };
        self.run(from, Direction::Decrypt, position, data)?;
        self.run(to, Direction::Encrypt, position, data)
    }
}

/// The keys of before and after, where there are such keys: the proof that the metadata of a reencryption may be followed.
/// [`unlock`] makes it of metadata that were found, [`Keys::of_new_work`] for those that this process writes.
#[derive(Debug)]
pub(super) struct Keys {
    keys: [Option<SecretVec>; 2],
    is_empty_passphrase: bool,
}

impl Keys {
    /// The keys of work that begins here, whose metadata come from nobody else.
    pub fn of_new_work(keys: [Option<SecretVec>; 2], is_empty_passphrase: bool) -> Keys {
        Keys { keys, is_empty_passphrase }
    }

    pub fn refs(&self) -> [Option<&SecretVec>; 2] {
        [self.keys[0].as_ref(), self.keys[1].as_ref()]
    }
}

/// Finds the keys that a reencryption needs, and checks that who had them has written what the metadata say of it. Where all
/// is done and the slots of the old key are gone, the new key is proof enough: by its digest, as of any volume. Of a
/// decryption no key is left then, and nothing proves it.
///
/// # Errors
/// `Mismatch` for a wrong key; `Locked` if no key slot is left; `Corrupt` if the metadata are not proven.
pub(super) fn unlock(
    header: &luks2::Header,
    device: &dyn BlockDevice,
    course: &Reencryption,
    is_done: bool,
    key: &LuksKey,
    options: &LuksOptions,
    work: &Work<'_>,
) -> Result<Keys, Error> {
    let mut budget = Budget::new(options.limits);
    let (found, is_old_gone) = keys_of(header, device, course, is_done, key, options, &mut budget, work)?;
    if is_old_gone {
        return Ok(found);
    }
    let digests = header.metadata.digests();
    let digest = digests.iter().find(|digest| digest.keyslots.contains(&course.keyslot));
    let unproven =
        "the metadata of the reencryption were not written with these keys: the digest does not match";
    let unproven = || Reason::ReencryptionNotProven.of(Error::corrupt(unproven));
    let digest = digest.ok_or_else(unproven)?;
    let [old, new] = found.refs();
    match Check::of_luks2(digest, work.providers.cpu())?.fits_within(
        &course.message(old, new),
        &mut budget,
        &work.providers,
    )? {
        true => Ok(found),
        false => Err(unproven()),
    }
}

/// The keys of before and after, and whether the old one is gone, as it may be where all is done.
///
/// # Errors
/// Errors of [`unlock`], but for those about the metadata.
#[allow(clippy::too_many_arguments, reason = "what a reencryption is unlocked with")]
pub(super) fn keys_of(
    header: &luks2::Header,
    device: &dyn BlockDevice,
    course: &Reencryption,
    is_done: bool,
    key: &LuksKey,
    options: &LuksOptions,
    budget: &mut Budget,
    work: &Work<'_>,
) -> Result<(Keys, bool), Error> {
    let mut found = Keys { keys: [None, None], is_empty_passphrase: false };
    let mut is_old_gone = false;
    for which in 0..2 {
        let Some(digest) = course.digests[which] else { continue };
        if which == 1 && course.digests[0] == course.digests[1] {
            found.keys[1] = found.keys[0].clone();
            continue;
        }
        let may_be_gone = is_done && which == 0 && course.digests[0] != course.digests[1];
        match unlock::key_of_digest(header, device, digest, key, options, budget, work) {
            Ok(unlocked) => {
                found.is_empty_passphrase |= unlocked.is_empty_passphrase;
                found.keys[which] = Some(unlocked.volume_key);
            }
            Err(error) if may_be_gone && matches!(error.kind(), ErrorKind::Mismatch | ErrorKind::Locked) => {
                if course.digests[1].is_none() {
                    return Err(error.map_text(|text| {
                        format!(
                            "{text}; the header says that the data are decrypted already, and without their key nothing \
                             proves that, so they are not read; going on with the decryption only removes the header"
                        )
                    }));
                }
                is_old_gone = true;
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
    Ok((found, is_old_gone))
}

/// Refuses data that a key does not protect, unless they are meant to be open to all.
pub(super) fn refuse_null(course: &Reencryption, keys: &Keys) -> Result<(), Error> {
    let null =
        [&course.backups.previous, &course.backups.last].into_iter().find(|one| is_null(&one.encryption));
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
