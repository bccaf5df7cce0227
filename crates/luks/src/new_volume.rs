//! Volumes that are about to be written, and how they are.

use std::io::{Read, Write};

use crate::Header;
use casemate_blockdev::target::{self, Made, Target};
use casemate_blockdev::{AtFile, Medium, Sequential, name_all, signatures, u64_of, usize_of};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Direction, Work};

use super::authenticated::Sealed;
use crate::Error;
use crate::volume::{Opened, Plain, refuse_header_in_data};
use casemate_crypt::Mapping;
use casemate_crypt::image::Holes;

/// A volume that is about to be written.
#[derive(Debug)]
pub struct NewVolume {
    pub(super) header: Header,
    pub(super) stored: Stored,
    pub(super) offset: u64,
    pub(super) volume_key: SecretVec,
    pub(super) data: NewData,
    pub(super) detached: bool,
}

/// A header and its key slot, as they lie on a disk.
#[derive(Debug)]
pub(super) struct Stored {
    /// The header, with its copy, from the first byte on.
    pub(super) header: Vec<u8>,
    /// The stripes of the key slot, encrypted.
    pub(super) material: Vec<u8>,
    /// The first byte of the stripes.
    pub(super) material_at: u64,
}

/// Data of a new volume: one mapping, or one with integrity protection.
#[derive(Debug)]
pub(super) enum NewData {
    Mapping(Box<Mapping>),
    Protected(Box<Sealed>),
}

impl NewVolume {
    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The first byte of the data.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Makes the volume on an image that exists: zeros up to the data, then the key slot, and the header last; all of it in
    /// `header` if that is one that lies apart. The data stay as they are, and read as noise; with integrity protection they
    /// become zeros.
    ///
    /// # Errors
    /// `Argument` if the image is too small or was opened for reading, or holds something, unless `overwrite`; those of
    /// [`Medium::check_partitions`] and [`Medium::check_no_layer`]; `Io`.
    pub fn format<M: AsRef<Medium>>(
        &self,
        image: &M,
        header: Option<&M>,
        overwrite: bool,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let image = image.as_ref();
        let place = self.check_image(image, header.map(AsRef::as_ref), overwrite)?;
        let _lease = match &self.data {
            NewData::Mapping(_) => place.lease()?,
            NewData::Protected(_) => Medium::lease_all(&[image, place])?,
        };
        place.erase_signatures(0, work.events)?;
        self.wipe_header(place).at(place.name())?;
        if let NewData::Protected(sealed) = &self.data {
            sealed.fill(&image.clone().window(self.offset, None)?, None, work)?;
        }
        self.write_header(place).at(place.name())?;
        place.commit()
    }

    /// Refuses an image that the volume can't be made on; the image that the header goes to.
    pub(crate) fn check_image<'a>(
        &self,
        image: &'a Medium,
        header: Option<&'a Medium>,
        overwrite: bool,
    ) -> Result<&'a Medium, Error> {
        let place = self.header_place(image, header)?;
        image.check_partitions()?;
        place.check_partitions()?;
        // What is left of the old volume would be written with its key.
        image.check_no_layer()?;
        place.check_no_layer()?;
        let size = image.top().size();
        // Of a header that lies apart the data's device may yet grow.
        if size <= self.offset && header.is_none() {
            let text =
                format!("{size} bytes have no room for data behind the header, from byte {} on", self.offset);
            return Err(Error::argument(text).at(image.name()));
        }
        if !overwrite {
            Target::on(place.clone(), Made::Known(signatures::LUKS), &target::refuse)?;
        }
        Ok(place)
    }

    /// Makes the volume on `target` with so many bytes of data, which `write` writes through the encryption. The header comes last:
    /// where work was stopped on a block device, there is no volume. A new file gets its name from the caller, with
    /// [`Medium::commit`], when everything else is complete that belongs to it.
    ///
    /// # Errors
    /// `Argument` if the target is too small, `Unsupported` with integrity protection; those of `write`; `Io`.
    pub fn write<M: AsRef<Medium>, R>(
        &self,
        target: &Target<M>,
        len: u64,
        work: &Work<'_>,
        write: impl FnOnce(&Medium) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let NewData::Mapping(mapping) = &self.data else {
            return Err(Error::unsupported("data that are made within a volume with integrity protection"));
        };
        let target: &Medium = target.as_ref();
        let place = self.header_place(target, None)?;
        let sector_size = u64_of(mapping.params.sector_size);
        let end = len.checked_next_multiple_of(sector_size).and_then(|len| self.offset.checked_add(len));
        let end = end.ok_or_else(|| Error::argument(format!("{len} bytes of data pass 2^64")))?;
        let size = target.top().size();
        if size < end && !target.is_new() {
            let text = format!("{size} bytes; header and data have {end}");
            return Err(Error::argument(text).at(target.name()));
        }
        target.grow_to(end)?;
        if !target.is_new() {
            // What lies behind stays.
            let own = target.clone().window(0, Some(end))?;
            own.erase_signatures(0, work.events)?;
        }
        self.wipe_header(place).at(place.name())?;
        let (params, key) = (mapping.params.clone(), self.volume_key.clone());
        let mapping = Mapping::new(params, key, self.offset / 512, &work.providers)?;
        let inner =
            Opened { data: target.clone().window(0, Some(end))?, plain: Plain::Mapping(Box::new(mapping)) };
        let written = write(&inner.medium()?)?;
        target.top().flush().at(target.name())?;
        self.write_header(place).at(place.name())?;
        Ok(written)
    }

    /// The image that the header goes to.
    fn header_place<'a>(&self, image: &'a Medium, header: Option<&'a Medium>) -> Result<&'a Medium, Error> {
        if header.is_some() != self.detached {
            return Err(Error::argument("a header that lies apart has a place of its own, and no other has"));
        }
        let Some(place) = header else {
            image.check_writable()?;
            return Ok(image);
        };
        place.check_writable()?;
        refuse_header_in_data(place, self.header_len(), image, self.offset)?;
        Ok(place)
    }

    /// Bytes before the data, or of a header that lies apart.
    fn header_len(&self) -> u64 {
        match &self.header {
            _ if !self.detached => self.offset,
            Header::Luks1(header) => header.metadata_end().next_multiple_of(4096),
            Header::Luks2(header) => header.metadata.keyslots_area().end,
        }
    }

    fn wipe_header(&self, place: &Medium) -> Result<(), Error> {
        place.grow_to(self.header_len())?;
        place.top().write_zeroes(0, self.header_len(), false)?;
        place.top().flush()
    }

    fn write_header(&self, place: &Medium) -> Result<(), Error> {
        for (piece, offset) in [(&self.stored.material, self.stored.material_at), (&self.stored.header, 0)] {
            place.top().write_at(piece, offset)?;
            place.top().flush()?;
        }
        Ok(())
    }

    /// Makes the volume on `target` with all of `source` encrypted, on all threads; a new file gets its name then. The header
    /// comes last, in `header` if that is one that lies apart: where work was stopped on a block device, there is no volume.
    ///
    /// # Errors
    /// `Argument` if the source is not a multiple of the sector size, or the target is too small; `Io`.
    pub fn encrypt<M: AsRef<Medium>>(
        &self,
        source: &Medium,
        target: &Target<M>,
        header: Option<&Target<M>>,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let target: &Medium = target.as_ref();
        let place = self.header_place(target, header.map(AsRef::as_ref))?;
        let _lease = Medium::lease_all(&[target, place])?;
        let len = match &self.data {
            NewData::Mapping(_) => source.top().size(),
            NewData::Protected(sealed) => sealed.room(source.top().size())?,
        };
        target.grow_to(self.offset.saturating_add(len))?;
        erase_all(&[target, place], work)?;
        self.wipe_header(place).at(place.name())?;
        match &self.data {
            NewData::Mapping(mapping) => {
                mapping.fill(Direction::Encrypt, source, target, Holes::Data, work)?
            }
            NewData::Protected(sealed) => {
                let mut from = Sequential::new(source.top(), 0..u64::MAX);
                sealed.fill(&target.clone().window(self.offset, None)?, Some(&mut from), work)?;
            }
        }
        target.top().flush().at(target.name())?;
        self.write_header(place).at(place.name())?;
        name_all(Vec::new(), &[target, place])
    }

    /// Writes header and encrypted data, one behind the other, as they come; each end has its name for errors. A header that
    /// lies apart goes to `header`, when all data are written. The caller gives a new header file its name together with the data
    /// ([`name_all`]). Returns the bytes of the data.
    ///
    /// # Errors
    /// `Argument` if the input ends within a sector; `Io`.
    pub fn encrypt_stream<M: AsRef<Medium>>(
        &self,
        input: (&str, &mut (dyn Read + Send)),
        output: (&str, &mut (dyn Write + Send)),
        header: Option<&Target<M>>,
        work: &Work<'_>,
    ) -> Result<u64, Error> {
        let header: Option<&Medium> = header.map(AsRef::as_ref);
        let NewData::Mapping(mapping) = &self.data else {
            let text = "integrity protection has tags before the data that they are of, and a journal: it needs a file or a \
                        block device to write to, not a stream";
            return Err(Error::argument(text));
        };
        let mut written = 0;
        let zeros = [0; 4096];
        let mut put = |to: u64, piece: &[u8]| -> Result<(), Error> {
            while written < to {
                let now = usize_of((to - written).min(u64_of(zeros.len())));
                output.1.write_all(&zeros[..now])?;
                written += u64_of(now);
            }
            output.1.write_all(piece)?;
            written += u64_of(piece.len());
            Ok(())
        };
        if !self.detached {
            put(0, &self.stored.header).at(output.0)?;
            put(self.stored.material_at, &self.stored.material).at(output.0)?;
        }
        put(self.offset, &[]).at(output.0)?;
        let len = mapping.transform_stream(Direction::Encrypt, input, output, work)?;
        if let Some(place) = header {
            self.wipe_header(place).and_then(|()| self.write_header(place)).at(place.name())?;
        }
        Ok(len)
    }
}

impl NewVolume {
    /// Makes the volume on `target` with all that a stream gives, which has integrity protection: a new file gets as long as
    /// that needs, and gets its name then; anything else is filled up with zeros. The header comes last, in `header` if that
    /// is one that lies apart.
    ///
    /// # Errors
    /// `Argument` if nothing comes, more than the target has room for, or the volume has no integrity protection; `Io`.
    pub fn protect_stream<M: AsRef<Medium>>(
        &self,
        input: &mut dyn Read,
        target: &Target<M>,
        header: Option<&Target<M>>,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let NewData::Protected(sealed) = &self.data else {
            return Err(Error::argument("a volume without integrity protection goes to any stream"));
        };
        let target: &Medium = target.as_ref();
        let place = self.header_place(target, header.map(AsRef::as_ref))?;
        let _lease = Medium::lease_all(&[target, place])?;
        let is_new = target.is_new();
        erase_all(&[target, place], work)?;
        self.wipe_header(place).at(place.name())?;
        match is_new {
            true => sealed.fill_new(target, self.offset, input, work)?,
            false => {
                let behind = target.clone().window(self.offset, None)?;
                sealed.fill(&behind, Some(input), work)?;
            }
        }
        target.top().flush().at(target.name())?;
        self.write_header(place).at(place.name())?;
        name_all(Vec::new(), &[target, place])
    }
}

/// Erases what is left of what was on targets that are written in place.
fn erase_all(targets: &[&Medium], work: &Work<'_>) -> Result<(), Error> {
    let mut in_place = targets.iter().filter(|target| !target.is_new());
    in_place.try_for_each(|target| target.erase_signatures(0, work.events))
}
