//! Work that was begun, beside what is asked for when it goes on: nothing else is done than what was begun.

use crate::luks2::reencrypt::{Mode, Reencryption, Resilience};
use crate::luks2::{Kdf, Metadata};
use casemate_blockdev::{Medium, usize_of};

use super::{Protection, ReencryptOptions};
use crate::{Advice, Error};

/// Checks that work that was begun is what is asked for.
///
/// # Errors
/// `Argument`, which says what was begun.
pub(super) fn check(
    course: &Reencryption,
    metadata: &Metadata,
    data: &Medium,
    options: &ReencryptOptions,
) -> Result<(), Error> {
    let (noun, size) = (course.mode.noun(), data.top().size());
    let refuse = |what: String| {
        let text = format!("{noun} was begun {what}, and goes on as it was begun alone");
        Err(Error::argument(text).advise(Advice::FinishReencryption))
    };
    if let Some(mode) = options.mode.filter(|mode| *mode != course.mode) {
        return refuse(format!("here, not {}", mode.noun()));
    }
    if course.mode == Mode::Decrypt {
        let given = [
            ("a place of the data", options.offset.is_some()),
            ("a size of the key", options.key_bits.is_some()),
            ("a KDF", options.pbkdf.is_some()),
        ];
        if let Some((what, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
            return Err(Error::argument(format!("a decryption has no use for {what}")));
        }
    }
    let last = &course.backups.last;
    let differs = |asked: &str, begun: &str| !asked.eq_ignore_ascii_case(begun);
    match &options.cipher {
        Some(asked) if course.mode == Mode::Decrypt => {
            return refuse(format!("here, which leads to no cipher, not to {asked}"));
        }
        Some(asked) if differs(asked, &last.encryption) => {
            return refuse(format!("with the cipher {}, not {asked}", last.encryption));
        }
        _ => {}
    }
    let digests = metadata.digests();
    let digest = digests.iter().find(|digest| Some(digest.id) == course.digests[1]);
    let slots = metadata.keyslots();
    let slot = slots.iter().find(|slot| digest.is_some_and(|digest| digest.keyslots.contains(&slot.id)));
    if let (Some(bits), Some(slot)) = (options.key_bits, slot)
        && bits != usize_of(slot.key_size) * 8
    {
        return refuse(format!("with a key of {} bits, not {bits}", slot.key_size * 8));
    }
    if let Some(asked) = options.sector_size.filter(|asked| *asked != last.sector_size) {
        return refuse(match course.mode {
            Mode::Decrypt => format!("here, which leads to no sectors, not to sectors of {asked} bytes"),
            _ => format!("with sectors of {} bytes, not {asked}", last.sector_size),
        });
    }
    if let (Some(asked), Some(digest)) = (&options.hash, digest)
        && differs(asked, &digest.hash)
    {
        return refuse(format!("with the hash {}, not {asked}", digest.hash));
    }
    if let (Some(asked), Some(slot)) = (&options.pbkdf, slot)
        && asked.name() != kdf(slot.kdf.as_ref())
    {
        return refuse(format!("with key slots of {}, not {}", kdf(slot.kdf.as_ref()), asked.name()));
    }
    check_protection(course, options)
        .or_else(|(begun, asked)| refuse(format!("with {begun}, not {asked}")))?;
    if let Some(asked) = options.reduce_device_size {
        let given_up = match (course.mode, course.shift) {
            (Mode::Reencrypt, Some(shift)) => shift,
            (Mode::Encrypt, Some(_)) => super::length::given_up(course, size),
            _ => 0,
        };
        if asked != given_up {
            return refuse(format!("for which the data give up {given_up} bytes at the end, not {asked}"));
        }
    }
    super::length::check(course, data, options.allow_window)?;
    let len = course.len(size)?;
    if let Some(asked) =
        options.device_size.filter(|asked| *asked != len && Some(*asked) != course.device_size)
    {
        let begun = match course.device_size.filter(|begun| *begun < len) {
            Some(begun) => format!("for {begun}"),
            None => format!("for all {len}"),
        };
        return refuse(format!("{begun} bytes of the data, not {asked}: the others would be lost"));
    }
    Ok(())
}

/// Compares what protects the data with what is asked for; both in words if they differ.
fn check_protection(course: &Reencryption, options: &ReencryptOptions) -> Result<(), (String, String)> {
    let name = |protection: Protection| match protection {
        Protection::Checksum => "checksums",
        Protection::Journal => "a journal",
        Protection::None => "no protection",
    };
    let (begun, hash) = match &course.resilience {
        Resilience::Checksum { hash, .. } => (Protection::Checksum, Some(hash)),
        Resilience::Journal => (Protection::Journal, None),
        Resilience::None => (Protection::None, None),
    };
    let is_moving = course.shift.is_some() && begun == Protection::None;
    match options.protection {
        Some(asked) if is_moving => return Err(("data that move".to_owned(), name(asked).to_owned())),
        Some(asked) if asked != begun => return Err((name(begun).to_owned(), name(asked).to_owned())),
        _ => {}
    }
    match (&options.resilience_hash, hash) {
        (Some(asked), Some(hash)) if !asked.eq_ignore_ascii_case(hash) => {
            Err((format!("checksums of {hash}"), asked.clone()))
        }
        (Some(asked), None) => Err((name(begun).to_owned(), format!("checksums of {asked}"))),
        _ => Ok(()),
    }
}

/// The name of a slot's KDF.
fn kdf(kdf: Option<&Kdf>) -> &str {
    match kdf.map(|kdf| &kdf.pbkdf) {
        Some(Ok(pbkdf)) => pbkdf.name(),
        Some(Err(name)) => name,
        None => "another kind",
    }
}
