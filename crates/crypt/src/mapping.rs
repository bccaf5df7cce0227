//! dm-crypt mappings over files: whole images encrypted and decrypted.

use std::fs;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::signatures::{self, HEAD, Held};
use casemate_blockdev::target::{self, Consent, Made, Target};
use casemate_blockdev::{
    Access, AtFile, BlockDevice, Contents, Medium, NamedStream, Sequential, Used, Window, u64_of, usize_of,
};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Direction, Hash, Providers, Work};

use crate::image::{Holes, transform, transform_stream};
use crate::{Advice, CryptDevice, Error, Params, SectorCipher, Table};

pub use in_place::InPlaceOptions;

mod in_place;

/// Signatures of LUKS volumes.
const LUKS: [&str; 3] = [signatures::LUKS, signatures::LUKS_REENCRYPTED, signatures::LUKS_SECOND];

/// A mapping with its key, ready to transform images.
#[derive(Debug)]
pub struct Mapping {
    /// Cipher, sector size and IV offset.
    pub params: Params,
    /// The key.
    pub key: SecretVec,
    /// Sectors of 512 bytes before the data, on the encrypted side.
    pub offset: u64,
    /// Whether discards pass down as dm-crypt lets them with this option: who sees the image then sees which sectors are in
    /// use. Off unless it is set.
    pub allow_discards: bool,
    /// Bytes of the mapped device; `None` if it is everything behind the offset.
    size: Option<u64>,
    /// Whether something has told the key from a wrong one.
    is_key_verified: bool,
    cipher: SectorCipher,
    /// For the journal of work in place.
    sha256: Hash,
}

/// Refuses a target that is the source.
fn refuse_same(source: &Medium, target: &Path) -> Result<(), Error> {
    if source.is_stored_at(target) {
        let text = format!("{}: source and target are the same file", target.display());
        return Err(Error::argument(text).advise(Advice::InPlace));
    }
    Ok(())
}

impl Mapping {
    /// Keys a mapping.
    ///
    /// # Errors
    /// `Argument` for what dm-crypt would refuse; `Unsupported` where no implementation may be used.
    pub fn new(params: Params, key: SecretVec, offset: u64, providers: &Providers) -> Result<Mapping, Error> {
        let cipher = SectorCipher::new(&params, key.expose(), providers)?;
        let sha256 = providers.hash("sha256")?;
        if offset.checked_mul(512).is_none() {
            return Err(Error::argument(format!("an offset of {offset} sectors passes 2^64 bytes")));
        }
        Ok(Mapping {
            params,
            key,
            offset,
            allow_discards: false,
            size: None,
            is_key_verified: false,
            cipher,
            sha256,
        })
    }

    /// Keys the mapping of a table line, which has the line's number of sectors and no more.
    ///
    /// # Errors
    /// As [`Mapping::new`], and `Argument` for a line that is not a device of its own: one that begins behind sector 0, or
    /// has none.
    pub fn of_table(table: Table, providers: &Providers) -> Result<Mapping, Error> {
        let Table { start, sectors, params, key, offset, .. } = table;
        if start != 0 {
            let text = format!(
                "table line: it begins at sector {start} of its device, and nothing lies before it; for this part alone \
                 write 0 there, which changes no IV"
            );
            return Err(Error::argument(text));
        }
        // OK to multiply: a line's sectors are below 2^64 bytes.
        let size = sectors * 512;
        if size == 0 || !size.is_multiple_of(u64_of(params.sector_size.max(1))) {
            let text = format!(
                "table line: a size of {sectors} sectors of 512 bytes: it must be whole sectors of {} bytes, at least one",
                params.sector_size
            );
            return Err(Error::argument(text));
        }
        Ok(Mapping { size: Some(size), ..Mapping::new(params, key, offset, providers)? })
    }

    /// Mapping of so many bytes, with a key that is known to be right.
    #[must_use]
    pub fn verified(mut self, size: u64) -> Mapping {
        (self.size, self.is_key_verified) = (Some(size), true);
        self
    }

    /// Mapping with the same key, at the same place.
    ///
    /// # Errors
    /// Errors of [`Mapping::new`].
    pub fn again(&self, providers: &Providers) -> Result<Mapping, Error> {
        let key = self.key.clone();
        let mapping = Mapping::new(self.params.clone(), key, self.offset, providers)?;
        let (allow_discards, is_key_verified) = (self.allow_discards, self.is_key_verified);
        Ok(Mapping { size: self.size, allow_discards, is_key_verified, ..mapping })
    }

    /// The bytes of an encrypted side of `size` bytes that hold data.
    ///
    /// # Errors
    /// `Argument` if the side is too short.
    pub fn data_range(&self, size: u64) -> Result<Range<u64>, Error> {
        let start = self.offset * 512;
        Ok(start..start.saturating_add(self.data_size(size)?))
    }

    /// Whether something has told the key from a wrong one.
    pub fn is_key_verified(&self) -> bool {
        self.is_key_verified
    }

    /// The cipher, for its name and its state.
    pub fn cipher(&self) -> &SectorCipher {
        &self.cipher
    }

    /// The mapping as a device over what follows the offset on `below`.
    ///
    /// # Errors
    /// `Argument` for sizes that do not fit.
    pub fn over<D: BlockDevice>(self, below: D) -> Result<CryptDevice<Window<D>>, Error> {
        let len = self.data_size(below.size())?;
        let window =
            Window::new(below, self.offset * 512, len).map_err(|error| error.within("the mapping"))?;
        CryptDevice::new(window, self.cipher)
    }

    /// device-mapper's line for the mapping over `size` bytes of `device`.
    ///
    /// # Errors
    /// `Argument` if the mapping does not fit there, or is not a multiple of the sector size.
    pub fn table(&self, device: &str, size: u64) -> Result<Table, Error> {
        let size = self.data_size(size).map_err(|error| error.at(device))?;
        if !size.is_multiple_of(u64_of(self.params.sector_size)) {
            let text = format!(
                "{device}: {size} bytes are not a multiple of the sector size {}",
                self.params.sector_size
            );
            return Err(Error::argument(text));
        }
        Ok(Table {
            start: 0,
            sectors: size / 512,
            params: self.params.clone(),
            key: self.key.clone(),
            device: device.to_owned(),
            offset: self.offset,
            other_options: Vec::new(),
        })
    }

    /// The target that [`Mapping::transform`] writes to, at a path: a new file, or one that replaces a regular file, and has
    /// its name when it is whole; a block device, and a file where there is an offset to keep, is written in place. `consent` is
    /// asked if something would be lost.
    ///
    /// # Errors
    /// `Argument` if both are one file; `Io`, [`Error::is_busy`] if the target is in use; whatever the consent says.
    pub fn target(
        &self,
        direction: Direction,
        source: &Medium,
        path: &Path,
        consent: Consent<'_>,
    ) -> Result<Target, Error> {
        refuse_same(source, path)?;
        let is_kept = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
        if !(is_kept && direction == Direction::Encrypt && self.offset > 0) {
            return Target::anew(path, self.made(direction, source)?, consent);
        }
        self.target_on(direction, source, path, || Medium::open(path, Access::Change), consent)
    }

    /// The target that [`Mapping::transform`] writes to, in the image that `open` opens in the file `path`: a partition, a part of
    /// it, a layer on it.
    ///
    /// # Errors
    /// `Argument` if both lie in one file; those of [`Medium::check_partitions`]; `Io`; whatever `open` and the consent say.
    pub fn target_on<M: AsRef<Medium>>(
        &self,
        direction: Direction,
        source: &Medium,
        path: &Path,
        open: impl FnOnce() -> Result<M, Error>,
        consent: Consent<'_>,
    ) -> Result<Target<M>, Error> {
        refuse_same(source, path)?;
        let image = open()?;
        self.target_in(direction, image, self.made(direction, source)?, consent)
    }

    /// The target that [`Mapping::transform_from_stream`] writes to, in an image that is there.
    ///
    /// # Errors
    /// Errors of [`Medium::check_partitions`] and of the consent; `Io`.
    pub fn target_of_stream<M: AsRef<Medium>>(
        &self,
        direction: Direction,
        image: M,
        consent: Consent<'_>,
    ) -> Result<Target<M>, Error> {
        self.target_in(direction, image, Made::Data, consent)
    }

    fn target_in<M: AsRef<Medium>>(
        &self,
        direction: Direction,
        image: M,
        made: Made,
        consent: Consent<'_>,
    ) -> Result<Target<M>, Error> {
        image.as_ref().check_partitions()?;
        if direction == Direction::Decrypt {
            return Target::on(image, made, consent);
        }
        // What lies before the data stays.
        let medium = image.as_ref();
        let behind = medium.clone().window((self.offset * 512).min(medium.top().size()), None)?;
        Target::on(behind, Made::Data, consent)?;
        Target::on(image, Made::Data, &target::overwrite)
    }

    /// Kind of what is made of a source.
    fn made(&self, direction: Direction, source: &Medium) -> Result<Made, Error> {
        if direction == Direction::Encrypt {
            return Ok(Made::Data);
        }
        let (unit, size) = (self.params.sector_size, self.data_size(source.top().size()).at(source.name())?);
        let len = usize_of(u64_of(HEAD.next_multiple_of(unit)).min(size)) / unit * unit;
        let mut head = vec![0; len];
        source.top().read_at(&mut head, self.offset * 512).at(source.name())?;
        self.cipher.decrypt(0, &mut head).at(source.name())?;
        Ok(signatures::known(&head).map_or(Made::Data, Made::Known))
    }

    /// Transforms the device on top of `source` to that of `target`, on all threads; a new file gets its name then. The
    /// encrypted side's first `offset` sectors are not data. A new file of plaintext can be read by nobody who could not read the
    /// source. The listener hears if a key may be wrong.
    ///
    /// # Errors
    /// `Argument` for sizes that do not fit, or if both are the same file; `Io`.
    pub fn transform<M: AsRef<Medium>>(
        &self,
        direction: Direction,
        source: &Medium,
        target: &Target<M>,
        holes: Holes,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let target: &Medium = target.as_ref();
        let _lease = target.lease()?;
        if direction == Direction::Decrypt {
            target.narrow_to(source);
        }
        self.fill(direction, source, target, holes, work)?;
        if !target.is_new() {
            target.top().flush().at(target.name())?;
        }
        target.commit_unsynced()
    }

    /// Transforms as [`Mapping::transform`] does, and gives a new file no name.
    ///
    /// # Errors
    /// Errors of [`Mapping::transform`].
    pub fn fill(
        &self,
        direction: Direction,
        source: &Medium,
        target: &Medium,
        holes: Holes,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        target.path().map_or(Ok(()), |path| refuse_same(source, path))?;
        let skipped = self.offset * 512;
        let size = source.top().size();
        let (data_size, read_from, write_to) = match direction {
            Direction::Encrypt => (self.check_fits(size).map(|()| size), 0, skipped),
            Direction::Decrypt => (self.data_size(size), skipped, 0),
        };
        let data_size = data_size.at(source.name())?;
        let (input, output) = (source.named(), target.named());
        let input = Window::<&dyn BlockDevice>::new(&input, read_from, data_size).at(source.name())?;
        let end = write_to.checked_add(data_size).ok_or(io::ErrorKind::FileTooLarge).at(target.name())?;
        // So that a hole at the end is there, and a window can be had.
        target.grow_to(end)?;
        if !target.is_new() {
            // What is left behind the data would be found by other tools: a backup GPT, the superblock of an array.
            target.erase_signatures(write_to, work.events)?;
        }
        let output = Window::<&dyn BlockDevice>::new(&output, write_to, data_size).at(target.name())?;
        transform(&self.cipher, direction, &input, &output, holes, work)?;
        self.note_noise(direction, &output, target, work);
        Ok(())
    }

    /// Transforms the device on top of `source` to a stream, which comes with its name for errors. The encrypted side's first
    /// `offset` sectors are not data.
    ///
    /// # Errors
    /// Errors of [`Mapping::transform_stream`]; `Argument` for sizes that do not fit.
    pub fn transform_to_stream(
        &self,
        direction: Direction,
        source: &Medium,
        output: (&str, &mut (dyn Write + Send)),
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let bytes = match direction {
            Direction::Encrypt => 0..source.top().size(),
            Direction::Decrypt => self.data_range(source.top().size()).at(source.name())?,
        };
        let mut input = Sequential::new(source.top(), bytes);
        let input: (&str, &mut (dyn Read + Send)) = (source.name(), &mut input);
        self.transform_stream(direction, input, output, work).map(drop)
    }

    /// Transforms a stream, which comes with its name for errors, to the device on top of `target`, which is there. The encrypted
    /// side's first `offset` sectors stay as they are. The listener hears if a key may be wrong.
    ///
    /// # Errors
    /// Errors of [`Mapping::transform_stream`]; `Io` if the target has no room for the data, after it was filled.
    pub fn transform_from_stream<M: AsRef<Medium>>(
        &self,
        direction: Direction,
        input: (&str, &mut (dyn Read + Send)),
        target: &Target<M>,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let target: &Medium = target.as_ref();
        let _lease = target.lease()?;
        let (bytes, size) = (target.top(), target.top().size());
        let room = match direction {
            Direction::Encrypt => self.data_range(size).at(target.name())?,
            Direction::Decrypt => 0..size,
        };
        target.erase_signatures(room.start, work.events)?;
        let mut output = Sequential::new(bytes, room);
        let output: (&str, &mut (dyn Write + Send)) = (target.name(), &mut output);
        self.transform_stream(direction, input, output, work)?;
        bytes.flush().at(target.name())?;
        self.note_noise(direction, bytes, target, work);
        Ok(())
    }

    /// Transforms a stream; each end comes with its name for errors. The offset is left to the caller: nothing is
    /// skipped.
    ///
    /// # Errors
    /// `Argument` if the input ends within a sector; `Io`.
    pub fn transform_stream(
        &self,
        direction: Direction,
        (input_name, input): (&str, &mut (dyn Read + Send)),
        (output_name, output): (&str, &mut (dyn Write + Send)),
        work: &Work<'_>,
    ) -> Result<u64, Error> {
        let limit = self.size.unwrap_or(u64::MAX);
        let mut part = input.take(limit);
        let mut input = NamedStream { name: input_name, stream: &mut part };
        let mut output = NamedStream { name: output_name, stream: output };
        let size = transform_stream(&self.cipher, direction, &mut input, &mut output, work)?;
        match direction {
            // Behind the encrypted side of a mapping there may be anything. The stream begins where that begins.
            Direction::Decrypt if self.size.is_some_and(|mapped| mapped > size) => {
                Err(Error::argument(format!(
                    "the mapping has {} sectors of 512 bytes, and the stream ends after {size} bytes",
                    limit / 512
                )))
            }
            Direction::Encrypt if size == limit => {
                let more = NamedStream { name: input_name, stream: part.into_inner() }.read(&mut [0])?;
                self.check_fits(size + u64_of(more))
            }
            _ => Ok(()),
        }
        .at(input_name)?;
        Ok(size)
    }

    /// Text that names what a transformation in place would cut, or make noise of: a file system or partition that reaches behind the
    /// data, whose end is that of a window or of the mapping; what the data are only a part of; before an encryption a LUKS volume, before
    /// a decryption anything known that is not encrypted. `None` if nothing known is there.
    ///
    /// # Errors
    /// `Unsupported` without knowledge of contents, for data that end before what they lie in does; `Argument` for sizes that do not
    /// fit; `Io`.
    pub fn cut(
        &self,
        direction: Direction,
        image: &Medium,
        contents: Option<Contents>,
        providers: &Providers,
    ) -> Result<Option<String>, Error> {
        let Range { start, end } = self.data_range(image.top().size()).at(image.name())?;
        let cut = self.cut_end(direction, image, start..end, contents, providers)?;
        if cut.is_some() {
            return Ok(cut);
        }
        if let Some(contents) = image.divided(start..end)? {
            return Ok(Some(contents.to_string()));
        }
        let data = image.clone().window(start, None)?;
        Ok(match (direction, signatures::held(data.top()).at(image.name())?) {
            (Direction::Encrypt, Held::Known(what)) if LUKS.contains(&what) => Some(format!(
                "contains {what}, which will be encrypted: the volume can't be opened until all is decrypted again"
            )),
            (Direction::Decrypt, Held::Known(what)) => {
                Some(format!("contains {what}, so it is not encrypted: decryption makes noise of it"))
            }
            _ => None,
        })
    }

    /// Text that names what a transformation of these bytes of an image would cut at their end.
    fn cut_end(
        &self,
        direction: Direction,
        image: &Medium,
        Range { start, end }: Range<u64>,
        contents: Option<Contents>,
        providers: &Providers,
    ) -> Result<Option<String>, Error> {
        if image.left_out() == 0 && end == image.top().size() {
            return Ok(None);
        }
        let contents = contents.ok_or_else(|| {
            let text = "a part of the data is transformed only where their contents are known, and no function was given that \
                        finds these";
            Error::unsupported(text).at(image.name())
        })?;
        let (found, end, done) = match direction {
            Direction::Encrypt => (Used::reaching_behind(image, start, end, contents)?, end, "encrypted"),
            Direction::Decrypt => {
                let plain = Arc::new(self.again(providers)?.over(image.device()).at(image.name())?);
                let plain = image.clone().laid_reading(plain);
                (Used::reaching_behind(&plain, 0, end - start, contents)?, end - start, "decrypted")
            }
        };
        Ok(found.map(|Used { what, end: behind, .. }| {
            format!(
                "{what} ends at byte {behind}, and only what lies before byte {end} would be {done}; the other {} bytes of it stay as \
                 they are, and nothing reads both parts as one",
                behind - end
            )
        }))
    }

    /// Tells the listener that the key may be wrong, if what was decrypted begins as nothing that is known.
    fn note_noise(&self, direction: Direction, decrypted: &dyn BlockDevice, image: &Medium, work: &Work<'_>) {
        if direction == Direction::Decrypt && !self.is_key_verified {
            signatures::note_noise(decrypted, image.name(), work.events);
        }
    }

    /// Bytes of data on an encrypted side of `size` bytes.
    fn data_size(&self, size: u64) -> Result<u64, Error> {
        let rest = size.checked_sub(self.offset * 512).ok_or_else(|| {
            Error::argument(format!("{size} bytes end before the offset of {} sectors", self.offset))
        })?;
        match self.size {
            Some(mapped) if mapped > rest => Err(Error::argument(format!(
                "the mapping has {} sectors of 512 bytes from sector {} on, and {size} bytes end before that",
                mapped / 512,
                self.offset
            ))),
            mapped => Ok(mapped.unwrap_or(rest)),
        }
    }

    /// Refuses data that the mapping has no room for.
    fn check_fits(&self, size: u64) -> Result<(), Error> {
        match self.size {
            Some(mapped) if mapped < size => Err(Error::argument(format!(
                "it has more data than the mapping's {} sectors of 512 bytes, {mapped} bytes",
                mapped / 512
            ))),
            _ => Ok(()),
        }
    }
}
