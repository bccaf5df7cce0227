//! dm-crypt mappings over files: whole images encrypted and decrypted.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use casemate_blockdev::{AtFile, BlockDevice, FileDevice, Named, Window, is_same_file, sync_name};
use casemate_crypt::image::{transform, transform_stream};
use casemate_crypt::in_place::{self, Job};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Hash, Providers, Work};

pub use casemate_crypt::image::Holes;
pub use casemate_crypt::in_place::{DEFAULT_HOT_ZONE, MAX_HOT_ZONE};
pub use casemate_crypt::{
    CryptDevice, CryptStatistics, IvMode, Params, SectorCipher, Spec, Table, plain_key,
};
pub use casemate_providers::Direction;

use crate::image::{self, Access};
use crate::named::NamedStream;
use crate::{Error, Output, probe};

pub use crate::mapping_options::MappingOptions;

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
    cipher: SectorCipher,
    /// For the journal of work in place.
    sha256: Hash,
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
        Ok(Mapping { params, key, offset, allow_discards: false, size: None, cipher, sha256 })
    }

    /// Keys the mapping of a table line, which has the line's number of sectors and no more.
    ///
    /// # Errors
    /// As [`Mapping::new`], and `Argument` for a line that is no device of its own: one that begins behind sector 0, or
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
        if size == 0 || !size.is_multiple_of(params.sector_size.max(1) as u64) {
            let text = format!(
                "table line: a size of {sectors} sectors of 512 bytes: it must be whole sectors of {} bytes, at least one",
                params.sector_size
            );
            return Err(Error::argument(text));
        }
        Ok(Mapping { size: Some(size), ..Mapping::new(params, key, offset, providers)? })
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
    /// `Argument` if the mapping does not fit there, or is no multiple of the sector size.
    pub fn table(&self, device: &str, size: u64) -> Result<Table, Error> {
        let size = self.data_size(size).map_err(|error| error.at(device))?;
        if !size.is_multiple_of(self.params.sector_size as u64) {
            let text = format!(
                "{device}: {size} bytes are no multiple of the sector size {}",
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

    /// Transforms the file or block device `source` to `target`, on all threads.
    ///
    /// The encrypted side's first `offset` sectors are no data. A new or replaced regular target is written aside and
    /// renamed when whole; a block device, and an existing file where there is an offset to keep, is written in place.
    ///
    /// # Errors
    /// `Argument` for sizes that do not fit; `Io`, [`Error::is_busy`] if the target is in use.
    pub fn transform(
        &self,
        direction: Direction,
        source: &Path,
        target: &Path,
        holes: Holes,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let input = FileDevice::open(source).map_err(|error| Error::io(source.display(), error))?;
        let input = Named::new(source.display(), &input);
        let skipped = self.offset * 512;
        let data_size = match direction {
            Direction::Encrypt => self.check_fits(input.size()).map(|()| input.size()),
            Direction::Decrypt => self.data_size(input.size()),
        };
        let data_size = data_size.at(source.display())?;
        let (read_from, write_to) = match direction {
            Direction::Encrypt => (0, skipped),
            Direction::Decrypt => (skipped, 0),
        };
        let window = |device, start| {
            Window::new(device, start, data_size).map_err(|error| Error::io(source.display(), error))
        };
        let input = window(&input as &dyn BlockDevice, read_from)?;
        let metadata = fs::metadata(target).ok();
        let exists = metadata.as_ref().is_some_and(|metadata| !metadata.is_file() || write_to > 0);
        if is_same_file(source, target) {
            let text =
                format!("{}: source and target are the same file; --in-place does that", target.display());
            return Err(Error::argument(text));
        }
        let run = |output: &FileDevice| {
            let end =
                write_to.checked_add(data_size).ok_or(io::ErrorKind::FileTooLarge).at(target.display())?;
            if output.file().metadata().is_ok_and(|metadata| metadata.is_file()) {
                // So that a hole at the end is there, and a window can be had.
                output.file().set_len(end.max(output.size())).at(target.display())?;
            }
            let named = Named::new(target.display(), output);
            let output = Window::new(&named as &dyn BlockDevice, write_to, data_size).at(target.display())?;
            transform(&self.cipher, direction, &input, &output, holes, work)?;
            self.note_noise(direction, &output, target, work);
            Ok(())
        };
        if exists {
            return run(&image::open_file(target, Access::Change)?);
        }
        let output = Output::create(target)?;
        match output.device() {
            Some(device) => run(device)?,
            None => return Err(Error::argument(format!("{}: not a file with positions", target.display()))),
        }
        output.commit()
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
            // Behind the encrypted side of a mapping there may be anything.
            Direction::Decrypt if self.size.is_some() => self.data_size(size).map(drop),
            Direction::Encrypt if size == limit => {
                let more = NamedStream { name: input_name, stream: part.into_inner() }.read(&mut [0])?;
                self.check_fits(size + more as u64)
            }
            _ => Ok(()),
        }
        .at(input_name)?;
        Ok(size)
    }

    /// Transforms `image` where it lies, with a journal beside it; see [`casemate_crypt::in_place`].
    ///
    /// With `resume` the work that `journal` tells of goes on; without, `journal` must not exist. After the work the
    /// journal is removed.
    ///
    /// # Errors
    /// `Argument` for what can't be, another key or image than the journal tells of, or a journal that is there or
    /// missing: nothing is changed then. `Io`, [`Error::is_busy`] if image or journal are in use; otherwise the work can
    /// be resumed, if there is a journal.
    #[allow(clippy::too_many_arguments, reason = "each is one option of the command")]
    pub fn transform_in_place(
        &self,
        direction: Direction,
        image: &Path,
        journal: &Path,
        resume: bool,
        hot_zone: u64,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        if is_same_file(image, journal) {
            let text = format!("{}: the journal can't be the image itself", image.display());
            return Err(Error::argument(text));
        }
        let device = image::open_file(image, Access::Change)?;
        let named = Named::new(image.display(), &device);
        let size = self.data_size(named.size()).at(image.display())?;
        let data = Window::new(&named as &dyn BlockDevice, self.offset * 512, size).at(image.display())?;
        let log = match resume {
            true => FileDevice::open_exclusive(journal),
            // When decrypting the journal holds plaintext.
            false => OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(journal)
                .map_err(Error::from)
                .and_then(FileDevice::exclusive),
        };
        let log = log.map_err(|error| match error.io_kind() {
            Some(io::ErrorKind::AlreadyExists) => Error::argument(format!(
                "{}: there is a journal already: an earlier work was stopped; go on with --resume",
                journal.display()
            )),
            Some(io::ErrorKind::NotFound) if resume => Error::argument(format!(
                "{}: no journal, so there is nothing to resume: the work was never begun, or it is done",
                journal.display()
            )),
            _ => error.at(journal.display()),
        })?;
        let log = Named::new(journal.display(), &log);
        // Key and image aside, this is all that decides what the bytes become.
        let Params { spec, sector_size, iv_large_sectors, iv_offset, .. } = &self.params;
        let mapping = format!("{spec} {sector_size} {iv_large_sectors} {iv_offset} {}", self.offset);
        let key = self.key.expose();
        let job = Job { cipher: &self.cipher, sha256: &self.sha256, direction, key, mapping: &mapping, work };
        if !resume {
            let begin = || {
                let mut salt = [0; 32];
                getrandom::fill(&mut salt)
                    .map_err(|error| Error::io("random numbers", io::Error::from(error)))?;
                in_place::begin(&job, &data, &log, hot_zone, salt)?;
                // The journal's name must be there after a power failure too.
                sync_name(journal).at(journal.display())
            };
            if let Err(error) = begin() {
                // The image is untouched, and there is nothing to resume.
                fs::remove_file(journal).at(journal.display())?;
                return Err(error);
            }
        }
        in_place::resume(&job, &data, &log)?;
        self.note_noise(direction, &data, image, work);
        fs::remove_file(journal).map_err(Error::from).and_then(|()| sync_name(journal)).at(journal.display())
    }

    /// Tells the listener that the key may be wrong, if what was decrypted begins as nothing that is known.
    fn note_noise(&self, direction: Direction, decrypted: &dyn BlockDevice, place: &Path, work: &Work<'_>) {
        if direction == Direction::Decrypt {
            probe::note_noise(decrypted, place.display(), work.events);
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

/// The journal's usual name for an image.
pub fn journal_path(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".casemate-journal");
    PathBuf::from(name)
}
