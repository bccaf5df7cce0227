//! Data that visibly are something else than the ciphertext of a detached header: the header is of another device, or its
//! data are decrypted already. They are looked at before they are written.

use casemate_blockdev::target::holds_data;
use casemate_blockdev::{AtFile, Medium, signatures};

use crate::luks2::reencrypt::{Mode, Reencryption, State};
use crate::slot::is_null;
use crate::volume::read_header;
use crate::{Advice, Error, Header, LuksOptions, Volume};
use casemate_providers::Providers;

/// Signatures of volumes, which are not encrypted in place.
const LUKS: [&str; 2] = [signatures::LUKS, signatures::LUKS_REENCRYPTED];

/// Place on the data's device whose contents say something about the header.
struct Beginning {
    /// First byte of the data.
    start: u64,
    /// Whether ciphertext lies there; plain data may be anything but a LUKS volume, which is not encrypted in place.
    is_ciphertext: bool,
}

impl Volume {
    /// Refuses to write to the data of a detached header if their device shows that they are not of this header: a file
    /// system or a LUKS header where ciphertext must be, or a LUKS header before the data. `is_rekeyed`: the data get
    /// another key, and no header of before opens them afterwards.
    ///
    /// # Errors
    /// `Argument`, which names what was found; `Io`.
    pub(super) fn refuse_other_data(
        &self,
        is_rekeyed: bool,
        options: &LuksOptions,
        providers: &Providers,
    ) -> Result<(), Error> {
        if self.is_attached || options.allow_other_data || self.header_image.is_same(&self.data) {
            return Ok(());
        }
        let name = self.data.name();
        let beginning = self.beginning().at(self.header_image.name())?;
        let Some(Beginning { start, is_ciphertext }) = beginning else { return Ok(()) };
        if start > 0 {
            self.refuse_other_header(is_rekeyed, providers)?;
        }
        if is_rekeyed {
            self.refuse_whole_volume(start)?;
        }
        let data = self.data.clone().window(start, None)?;
        let is_superblock =
            |what: &&str| *what == signatures::INTEGRITY && self.protected_segment().is_some();
        let found = signatures::beginning(data.top()).at(name)?.filter(|what| !is_superblock(what));
        match found.filter(|what| is_ciphertext || LUKS.contains(what)) {
            None => Ok(()),
            Some(what) => Err(Error::argument(format!(
                "at byte {start}, where the encrypted data of the detached header should be, lies {what}: the header is of \
                 another device, or the data are decrypted already"
            ))
            .advise(Advice::OtherData)
            .at(name)),
        }
    }

    /// Refuses data that lie behind another header than this one: another volume's, or one that opens the data now and
    /// would not afterwards.
    fn refuse_other_header(&self, is_rekeyed: bool, providers: &Providers) -> Result<(), Error> {
        let Ok(own) = read_header(&self.data, providers) else { return Ok(()) };
        let is_same_volume = own.uuid() == self.header.uuid();
        if is_same_volume && !is_rekeyed && key_digests(&own) == key_digests(&self.header) {
            return Ok(());
        }
        let text = match is_same_volume {
            true => {
                "the device begins with a LUKS header of the same UUID, of which the detached header is a backup, and which \
                 would not open the data afterwards: use the header on the device, or restore the backup first"
            }
            false => {
                "the device begins with a LUKS header of another volume, whose data would be lost: the detached header is of \
                 another device"
            }
        };
        Err(Error::argument(text).advise(Advice::OtherData).at(self.data.name()))
    }

    /// Refuses a header in a file of its own that has data behind it, as far into the file as the device has its own: it is their header,
    /// too, and they would lose their key. `start`: the first byte of the data.
    fn refuse_whole_volume(&self, start: u64) -> Result<(), Error> {
        let (header, end) = (self.header_image.top(), self.header.metadata_end());
        let has_room = start >= end && start < header.size();
        let is_volume = has_room && holds_data(header, start..header.size()).at(self.header_image.name())?;
        match is_volume {
            false => Ok(()),
            true => Err(Error::argument(
                "this is a whole volume, with data behind its header, and not a header alone: those data would lose their key; give a \
                 backup of the header",
            )
            .advise(Advice::OtherData)
            .at(self.header_image.name())),
        }
    }

    /// The beginning of the data as the header has them; `None` where it says nothing.
    fn beginning(&self) -> Result<Option<Beginning>, Error> {
        let of_plain = |kind: &str, encryption: &str| kind != "crypt" || is_null(encryption);
        match &self.header {
            Header::Luks1(header) => Ok(Some(Beginning {
                start: u64::from(header.payload_offset) * 512,
                is_ciphertext: !is_null(&header.encryption()),
            })),
            Header::Luks2(header) => match self.reencryption()? {
                Some(course) => Ok(beginning_of(&course, &self.data)),
                None => {
                    // What is plain is of no header any more, and may be anything.
                    let first = header.metadata.segments().into_iter().next();
                    let crypt = first.filter(|first| !of_plain(&first.kind, &first.encryption));
                    Ok(crypt.map(|first| Beginning { start: first.offset, is_ciphertext: true }))
                }
            },
        }
    }
}

/// The beginning of data that are being reencrypted.
fn beginning_of(course: &Reencryption, data: &Medium) -> Option<Beginning> {
    let parts = course.parts(data.top().size()).ok()?;
    let (before, after) = (&course.backups.previous, &course.backups.last);
    let is_ciphertext =
        |segment: &crate::luks2::Segment| segment.kind == "crypt" && !is_null(&segment.encryption);
    let (start, is_ciphertext) = match parts.first()?.state {
        State::Old => (course.old_place(0), is_ciphertext(before)),
        State::New => (course.new_place(0), is_ciphertext(after)),
        // Some of it is old, and some is new.
        State::Hot => (course.old_place(0), is_ciphertext(before) && is_ciphertext(after)),
    };
    // Decrypted data may be a volume themselves.
    (is_ciphertext || course.mode != Mode::Decrypt).then_some(Beginning { start, is_ciphertext })
}

/// The digests of a header's keys for the data, with their salts: the same where the keys are.
fn key_digests(header: &Header) -> Vec<(Vec<u8>, Vec<u8>)> {
    match header {
        Header::Luks1(header) => vec![(header.digest_salt.to_vec(), header.digest.to_vec())],
        Header::Luks2(header) => {
            let digests = header.metadata.digests_of_data();
            digests.into_iter().map(|digest| (digest.salt.into(), digest.digest.into())).collect()
        }
    }
}
