//! Headers that are damaged, mended.

use crate::luks2::CopyState;
use crate::luks2::reencrypt::MOVING;
use crate::{MAGIC, luks1, luks2};
use casemate_blockdev::{AtFile, Medium, u64_of};
use casemate_providers::Work;

use super::locks::HeaderLock;
use super::random::Source;
use crate::{Error, ErrorKind};

/// Requirements that say nothing of the header itself, but for those of a reencryption.
const KNOWN: &[&str] = &[
    "offline-reencrypt",
    "online-reencrypt",
    "online-reencrypt-v2",
    "online-reencrypt-v3",
    "opal",
    "opal-v2",
    "inline-hw-tags",
    MOVING,
];

/// Mends the header at the beginning of a medium: of LUKS2 a copy that is damaged, or older, from the other one; of LUKS1
/// what [`luks1::Header::repaired`] says. Returns what was mended: nothing of a sound header is.
///
/// # Errors
/// `Corrupt` if it can't be; `Argument` if the medium was opened for reading; `Unsupported` if the header requires what is
/// not known, or the last step of a reencryption was cut off; `Io`.
pub fn repair(medium: &Medium, work: &Work<'_>) -> Result<Vec<String>, Error> {
    let _lease = medium.lease()?;
    let _claim = HeaderLock::of(medium).take().at(medium.name())?;
    let device = medium.top();
    let mut bytes = [0; luks1::HEADER_LEN];
    if device.size() >= u64_of(bytes.len()) {
        device.read_at(&mut bytes, 0).at(medium.name())?;
    }
    if bytes[..6] == *MAGIC && bytes[6..8] == [0, 1] {
        let (mut header, mended) = luks1::Header::repaired(&bytes, &work.providers).at(medium.name())?;
        if !mended.is_empty() {
            header.write(device).at(medium.name())?;
        }
        return Ok(mended);
    }
    let mut header = luks2::Header::read(device, &work.providers).at(medium.name())?;
    // What an unknown requirement says of the rest nobody here knows.
    let requirements = header.metadata.requirements();
    if let Some(name) = requirements.iter().find(|name| !KNOWN.contains(&&***name)) {
        let text = format!("the LUKS2 header requires {name}, which is unknown, and was not changed");
        return Err(Error::unsupported(text).at(medium.name()));
    }
    // A state of an old version is nobody's to judge, and its copies may be mended.
    if let Err(error) = header.metadata.reencryption()
        && error.kind() == ErrorKind::Corrupt
    {
        return Err(error.at(medium.name()));
    }
    header.refuse_ending().at(medium.name())?;
    let copies = header.copies().iter().zip(["primary", "secondary"]);
    let mended = copies.filter_map(|(copy, which)| match copy {
        CopyState::Valid(seqid) if *seqid == header.seqid => None,
        CopyState::Valid(seqid) => {
            Some(format!("the {which} header was older: sequence number {seqid}, not {}", header.seqid))
        }
        copy => Some(format!("the {which} header was invalid: {}", copy.reason())),
    });
    let mended: Vec<String> = mended.collect();
    header.repair(device, &work.providers, &mut |bytes| Source::System.fill(bytes)).at(medium.name())?;
    Ok(mended)
}
