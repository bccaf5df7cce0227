//! Headers with their key slots, saved to a file and brought back.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::Header;
use crate::luks1;
use crate::luks2::Digest;
use casemate_blockdev::os::{OpenOptionsExt, rename_new};
use casemate_blockdev::{Access, AtFile, BlockDevice, ErrorKind, Medium, sync_name, u64_of, usize_of};
use casemate_providers::Providers;

use super::locks::{HeaderLock, claim_new};
use crate::Error;
use crate::volume::{Volume, read_header};

/// A header with its key slots, as a file keeps it.
#[derive(Debug)]
pub struct HeaderBackup {
    header: Header,
    image: Medium,
}

/// Header that is lost, or may be lost, when a backup is restored over the beginning of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replaced {
    /// The UUID of the header that is there; `None` if there is none.
    pub uuid: Option<String>,
    /// Requirements of the header that is there, such as a reencryption that is not finished.
    pub requirements: Vec<String>,
    /// Whether the data there are under another volume key than that of the backup, as after a reencryption.
    pub has_other_key: bool,
}

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// Where key slots of LUKS1 begin; bytes between the header and them mean nothing.
const FIRST_SLOT: u64 = 4096;

/// Whether two headers of one version have no digest of the data's key in common.
fn has_other_key(one: &Header, other: &Header) -> bool {
    match (one, other) {
        (Header::Luks1(one), Header::Luks1(other)) => {
            (one.digest, one.digest_salt) != (other.digest, other.digest_salt)
        }
        (Header::Luks2(one), Header::Luks2(other)) => {
            let digests = [one, other].map(|header| header.metadata.digests_of_data());
            let is_of = |digest: &Digest| {
                digests[1].iter().any(|known| (&known.salt, &known.digest) == (&digest.salt, &digest.digest))
            };
            !digests[0].is_empty() && !digests[0].iter().any(is_of)
        }
        _ => false,
    }
}

/// Bytes of a header with its key slots, from the image's beginning on.
pub(super) fn len(header: &Header) -> u64 {
    match header {
        Header::Luks1(header) => header.metadata_end().next_multiple_of(4096),
        Header::Luks2(header) => header.metadata.keyslots_area().end,
    }
}

/// The first byte of the data.
fn data_offset(header: &Header) -> u64 {
    match header {
        Header::Luks1(header) => u64::from(header.payload_offset) * 512,
        Header::Luks2(header) => {
            header.metadata.segments().iter().map(|segment| segment.offset).min().unwrap_or(0)
        }
    }
}

/// Makes a file that is its owner's alone, which is there whole or not at all.
///
/// # Errors
/// `Io`; `Argument` if there is a file of this name.
pub(super) fn write_private(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut File) -> Result<(), Error>,
) -> Result<(), Error> {
    let exists = || Error::argument(format!("{}: file exists, and is not replaced", path.display()));
    if fs::symlink_metadata(path).is_ok() {
        return Err(exists());
    }
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = Path::new(&part);
    let mut file = File::options().write(true).create_new(true).mode(mode).open(part).at(path.display())?;
    let made = write(&mut file).and_then(|()| Ok(file.sync_all()?)).at(path.display());
    let named = made.and_then(|()| match rename_new(part, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists()),
        named => named.map_err(Error::from).and_then(|()| sync_name(path)).at(path.display()),
    });
    if named.is_err() {
        // What went wrong before matters more.
        let _ = fs::remove_file(part);
    }
    named
}

impl Volume {
    /// Saves the header and its key slots to a new file, which only its owner can read. Anybody with it and a passphrase of
    /// today opens the volume, also when that passphrase was changed. Returns the file's size.
    ///
    /// # Errors
    /// `Argument` if there is such a file; `Corrupt` if the image ends within the key slots; [`Error::is_busy`] if somebody
    /// is changing the header, or has changed it since it was read; `Io`.
    pub fn backup(&self, path: &Path) -> Result<u64, Error> {
        let _image = self.header_image.clone().locked()?;
        let _claim = self.claim_header()?;
        let (device, len) = (self.header_image.top(), len(&self.header));
        if device.size() < len {
            let text = format!(
                "cut off: the header with its key slots has {len} bytes, the image {}",
                device.size()
            );
            return Err(Error::corrupt(text).at(self.header_image.name()));
        }
        write_private(path, 0o400, |file| {
            copy(device, 0..len, |at, piece| {
                if matches!(self.header, Header::Luks1(_)) {
                    zero_unused(at, piece);
                }
                Ok(file.write_all(piece)?)
            })
        })?;
        Ok(len)
    }
}

/// Calls `put` with pieces of a device, and where they lie.
fn copy(
    device: &dyn BlockDevice,
    range: std::ops::Range<u64>,
    mut put: impl FnMut(u64, &mut [u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut piece = vec![0; PIECE];
    let mut at = range.start;
    while at < range.end {
        let now = usize_of((range.end - at).min(u64_of(PIECE)));
        device.read_at(&mut piece[..now], at)?;
        put(at, &mut piece[..now])?;
        at += u64_of(now);
    }
    Ok(())
}

fn zero_unused(at: u64, piece: &mut [u8]) {
    let unused = u64_of(luks1::HEADER_LEN)..FIRST_SLOT;
    for (at, byte) in (at..).zip(piece).take_while(|(at, _)| *at < FIRST_SLOT) {
        *byte = if unused.contains(&at) { 0 } else { *byte };
    }
}

impl HeaderBackup {
    /// Reads the header in a file that [`Volume::backup`] or cryptsetup made.
    ///
    /// # Errors
    /// `Corrupt` for an image that is not a backup, or a part of one; `Unsupported` if the header requires something; `Io`.
    pub fn open(path: &Path, providers: &Providers) -> Result<HeaderBackup, Error> {
        let image = Medium::open(path, Access::Read)?;
        let header = read_header(&image, providers)?;
        let (len, size) = (len(&header), image.top().size());
        if size < len {
            let text = format!("cut off: a backup of this header has {len} bytes, this file {size}");
            return Err(Error::corrupt(text).at(image.name()));
        }
        let backup = HeaderBackup { header, image };
        let unknown = backup.requirements().into_iter().find(|name| !is_reencryption(name));
        match unknown {
            Some(name) => {
                let text = format!("the LUKS2 header in it requires {name}, which a backup can't have");
                Err(Error::unsupported(text).at(backup.image.name()))
            }
            None => Ok(backup),
        }
    }

    /// Requirements of the backup's header, such as a reencryption that was not finished then, be it in its last step; empty if it
    /// has none.
    pub fn requirements(&self) -> Vec<String> {
        match &self.header {
            Header::Luks1(_) => Vec::new(),
            Header::Luks2(header) => match header.superseded().filter(|_| header.is_ending()) {
                Some(under_way) => under_way.requirements(),
                None => header.metadata.requirements(),
            },
        }
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Looks at what an image begins with, and whether the backup may take its place.
    ///
    /// # Errors
    /// `Argument` if the image is too small, or a header is there whose data begin elsewhere, or one of this version whose keys or
    /// key slots have another size; `Unsupported` if the header there alone tells what a reencryption has still to wipe; `Io`.
    pub fn compare(&self, image: &Medium, providers: &Providers) -> Result<Replaced, Error> {
        let device = image.top();
        let refuse = |text: String| Err(Error::argument(text).at(image.name()));
        if device.size() < len(&self.header).max(data_offset(&self.header)) {
            return refuse(format!("{} bytes have no room for the header in the backup", device.size()));
        }
        let found = match read_header(image, providers) {
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(_) => return Ok(Replaced::default()),
            Ok(found) => found,
        };
        let has_other_key = has_other_key(&found, &self.header);
        let uuid = Some(found.uuid().to_owned());
        let mut replaced = Replaced { uuid, requirements: Vec::new(), has_other_key };
        if let Header::Luks2(header) = &found {
            header.refuse_ending().at(image.name())?;
            replaced.requirements = header.metadata.requirements();
        }
        // During a reencryption the areas are not those of before.
        if replaced.requirements.iter().any(|name| is_reencryption(name)) {
            return Ok(replaced);
        }
        let same = [
            ("data begin at byte", data_offset(&found), data_offset(&self.header)),
            ("key slots end at byte", len(&found), len(&self.header)),
            ("volume key has bytes:", key_len(&found), key_len(&self.header)),
        ];
        // A volume that was converted has its key slots elsewhere, and its data where they were.
        let alike = if found.version() == self.header.version() { same.len() } else { 1 };
        match same.into_iter().take(alike).find(|(_, here, there)| here != there) {
            Some((what, here, there)) => {
                refuse(format!("its {what} {here}, and in the backup {there}: it is of another volume"))
            }
            None => Ok(replaced),
        }
    }

    /// Puts the backup in the place of what an image begins with: the key slots first, then the second copy of the header,
    /// and the first one last. If that is cut, the same again completes it.
    ///
    /// # Errors
    /// Errors of [`HeaderBackup::compare`]; `Argument` if the image was opened for reading; `Io`.
    pub fn restore(&self, image: &Medium, providers: &Providers) -> Result<(), Error> {
        let _lease = image.lease()?;
        let _claim = HeaderLock::of(image).take().at(image.name())?;
        let replaced = self.compare(image, providers)?;
        let is_reencrypting = replaced.requirements.iter().any(|name| is_reencryption(name));
        let uuid = replaced.uuid.filter(|_| is_reencrypting);
        let _reencryption = uuid.map(|uuid| claim_new(image, &uuid)).transpose()?;
        let copies = match &self.header {
            Header::Luks1(_) => vec![512..4096, 0..512],
            Header::Luks2(header) => {
                let size = header.metadata.hdr_size();
                vec![size..2 * size, 0..size]
            }
        };
        let behind = copies.iter().map(|range| range.end).max().unwrap_or(0)..len(&self.header);
        for range in std::iter::once(behind).chain(copies) {
            copy(self.image.top(), range, |at, piece| image.top().write_at(piece, at)).at(image.name())?;
            image.top().flush().at(image.name())?;
        }
        Ok(())
    }
}

fn is_reencryption(requirement: &str) -> bool {
    requirement.contains("reencrypt")
}

/// Bytes of the volume key of LUKS1; LUKS2 has one for each key slot.
fn key_len(header: &Header) -> u64 {
    match header {
        Header::Luks1(header) => header.key_bytes.into(),
        Header::Luks2(_) => 0,
    }
}
