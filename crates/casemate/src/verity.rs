//! dm-verity over images: making hash areas and parity, checking data against them, repairing, and bringing them up
//! to date.
//!
//! [`Image::verity_format`] makes a hash area for the device on top of an image, [`Image::verity_volume`] opens both for
//! everything else, and [`Image::verity`] lays a device on the image whose every block is checked when it is read. Hash
//! area and parity are images too: partitions, what dm-crypt decrypts, or the data's image itself (a clone of it).

mod parity;
mod place;

use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Medium, Overlay, signatures};
use casemate_providers::{Providers, Work};
use casemate_verity::dm::{self, fec};
use casemate_verity::tree::{Finding, Ranges, Summary, VerifiedDevice};

pub use casemate_blockdev::Uuid;
pub use casemate_providers::Seed;
pub use casemate_verity::dm::fec::{FecDevices, FecLayout, Repaired};
pub use casemate_verity::dm::{
    BlockSize, HashType, Layout, OnFault, Parameters, PartitionUuids, SUPERBLOCK_SIZE, Salt, Superblock,
    Table, TableFec, partition_uuids,
};
pub use casemate_verity::hex;

pub use self::parity::Fec;

use self::parity::Parity;
use self::place::Place;
use crate::part::Part;
use crate::target::{self, Consent, Loss, Made};
use crate::{Advice, Code, Error, ErrorKind, Image};

/// How a hash area is made, or where an existing one is found and what is expected of it.
///
/// A parameter that is `None` has its usual value when a hash area is made, and is taken from the superblock when there is one.
/// Any other must agree with the superblock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerityOptions {
    /// The hash algorithm's name; sha256 if `None`.
    pub algorithm: Option<String>,
    /// The format: the normal one if `None`, or Chrome OS's.
    pub hash_type: Option<HashType>,
    /// Bytes of a data block; 4096 if `None`.
    pub data_block_size: Option<BlockSize>,
    /// Bytes of a hash block; 4096 if `None`.
    pub hash_block_size: Option<BlockSize>,
    /// Bytes hashed with every block. If `None`, 32 random ones when a hash area is made, and none where there is no
    /// superblock.
    pub salt: Option<Salt>,
    /// Data blocks that are protected; all whole ones if `None`.
    pub data_blocks: Option<u64>,
    /// The byte of the hash device that the hash area begins at: a multiple of 512.
    pub hash_offset: u64,
    /// Whether the hash area has a superblock. On by default.
    pub superblock: bool,
    /// Parity for error correction.
    pub fec: Option<Fec>,
    /// The driver that must do the hashing; whichever is chosen if `None`.
    pub driver: Option<String>,
}

impl Default for VerityOptions {
    fn default() -> VerityOptions {
        VerityOptions {
            algorithm: None,
            hash_type: None,
            data_block_size: None,
            hash_block_size: None,
            salt: None,
            data_blocks: None,
            hash_offset: 0,
            superblock: true,
            fec: None,
            driver: None,
        }
    }
}

/// Hash area that [`Image::verity_format`] is to make.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FormatOptions {
    /// The hash area.
    pub area: VerityOptions,
    /// The UUID in the superblock; a random one if `None`, or one of the seed.
    pub uuid: Option<Uuid>,
    /// The seed of salt and UUID where they are not said, so that they are the same each time.
    pub seed: Option<Seed>,
    /// Whether what lies where hash area and parity go may be lost. A hash area that is there may, always.
    pub overwrite: bool,
}

/// Hash area that [`Image::verity_format`] has made.
#[derive(Clone, Debug)]
pub struct Formatted {
    /// The layout of data and hash area.
    pub layout: Layout,
    /// The root hash.
    pub root_hash: Vec<u8>,
    /// The layout of the parity, if there is one.
    pub fec: Option<FecLayout>,
    /// Whether the parity lies on the hash device.
    pub fec_on_hash_device: bool,
}

/// Data with its hash area.
#[derive(Debug)]
pub struct Volume {
    data: Image,
    hash: Image,
    parity: Option<Parity>,
    layout: Layout,
    driver: Option<String>,
}

impl VerityOptions {
    /// The parameters of hashing, with `salt` if none was said.
    fn parameters(&self, salt: impl FnOnce() -> Result<Salt, Error>) -> Result<Parameters, Error> {
        let mut parameters = Parameters::new(self.algorithm.as_deref().unwrap_or("sha256"))?;
        parameters.hash_type = self.hash_type.unwrap_or_default();
        parameters.data_block_size = self.data_block_size.unwrap_or_default();
        parameters.hash_block_size = self.hash_block_size.unwrap_or_default();
        parameters.salt = match &self.salt {
            Some(salt) => salt.clone(),
            None => salt()?,
        };
        Ok(parameters)
    }

    fn layout_over(&self, data: &Image, parameters: Parameters, uuid: Option<Uuid>) -> Result<Layout, Error> {
        let block_size = u64::from(parameters.data_block_size.bytes());
        let data_blocks = self.data_blocks.unwrap_or(data.top().size() / block_size);
        Layout::new(parameters, data_blocks, self.hash_offset, uuid).map_err(|error| error.at(data.name()))
    }

    /// Where everything lies that exists.
    pub(crate) fn found(&self, data: &Image, hash: &Image) -> Result<Layout, Error> {
        if !self.superblock {
            return self.layout_over(data, self.parameters(|| Ok(Salt::default()))?, None);
        }
        let layout = hash.verity_superblock(self.hash_offset)?;
        self.check(&layout).map_err(|error| error.within(hash.name()))?;
        Ok(layout)
    }

    /// Checks that a superblock says what was expected.
    fn check(&self, layout: &Layout) -> Result<(), Error> {
        let found = layout.parameters();
        let salt = |salt: &Salt| match salt.bytes() {
            [] => "-".to_owned(),
            bytes => hex::encode(bytes),
        };
        // Names that mean the same are the same.
        let algorithm = self.algorithm.as_deref().map(Parameters::new).transpose()?;
        let size = |size: BlockSize| size.bytes().to_string();
        let blocks = layout.geometry().data_blocks();
        for (what, expected, found) in [
            (
                "hash algorithm",
                algorithm.map(|parameters| parameters.algorithm().to_owned()),
                found.algorithm().to_owned(),
            ),
            (
                "format",
                self.hash_type.map(|kind| kind.number().to_string()),
                found.hash_type.number().to_string(),
            ),
            ("data block size", self.data_block_size.map(size), size(found.data_block_size)),
            ("hash block size", self.hash_block_size.map(size), size(found.hash_block_size)),
            ("number of data blocks", self.data_blocks.map(|blocks| blocks.to_string()), blocks.to_string()),
            ("salt", self.salt.as_ref().map(salt), salt(&found.salt)),
        ] {
            if let Some(expected) = expected.filter(|expected| *expected != found) {
                return Err(Error::argument(format!(
                    "the {what} in the superblock is {found}, not {expected}; leave that option out, or say that there is no \
                     superblock"
                )));
            }
        }
        Ok(())
    }
}

impl FormatOptions {
    /// Bytes that [`Image::verity_format`] will work on.
    pub fn work_size(&self, data: &Image) -> u64 {
        let block_size = u64::from(self.area.data_block_size.unwrap_or_default().bytes());
        let blocks = self.area.data_blocks.map(|blocks| blocks.saturating_mul(block_size));
        let size = blocks.unwrap_or(data.top().size());
        if self.area.fec.is_some() { size.saturating_mul(2) } else { size }
    }

    /// Asks for consent if hash area or parity would take the place of something else than those that are made again.
    ///
    /// # Errors
    /// `Io`; whatever the consent says.
    fn look(
        &self,
        area: &Place<'_>,
        parity: Option<&Place<'_>>,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        area.look(consent, work)?;
        let (Some(place), Some(fec)) = (parity, &self.area.fec) else { return Ok(()) };
        match self.made_again(fec, area, work)? {
            None => place.look(consent, work),
            Some(end) => place.look_behind(end, consent),
        }
    }

    /// Where the parity of the hash area that is there ends, if it begins where the new one will.
    fn made_again(&self, fec: &Fec, area: &Place<'_>, work: &Work<'_>) -> Result<Option<u64>, Error> {
        let (data, hash) = (area.data, area.image);
        if !self.area.superblock || hash.is_new() || fec.image.is_new() {
            return Ok(None);
        }
        let Some(layout) = place::hash_area(hash, self.area.hash_offset, work)? else { return Ok(None) };
        let on_hash_device = fec.image.is_same(hash);
        let hash_end = layout.hash_device_size().max(if on_hash_device { fec.offset } else { 0 });
        let is_whole = layout.geometry().data_size() <= data.top().size() && hash_end <= hash.top().size();
        let Ok(parity) = fec.found(&layout, data, hash) else { return Ok(None) };
        // Behind its hash area, parity is known by its size as well.
        let fits = on_hash_device && parity.fitting.is_some();
        let is_there = is_whole && (fits || parity.is_there(&layout, data, hash, &Ranges::new(), work)?);
        Ok(is_there.then_some(parity.place(data)?.bytes.end))
    }

    /// Where everything will lie.
    pub(crate) fn layout(&self, data: &Image, providers: &Providers) -> Result<Layout, Error> {
        let parameters = self.area.parameters(|| match &self.seed {
            Some(seed) => Salt::from_seed(seed, providers),
            None => Salt::random(),
        })?;
        let uuid = match (self.area.superblock, self.uuid, &self.seed) {
            (false, ..) => None,
            (true, Some(uuid), _) => Some(uuid),
            (true, None, Some(seed)) => Some(seed.uuid(providers)?),
            (true, None, None) => Some(Uuid::random()?),
        };
        self.area.layout_over(data, parameters, uuid)
    }
}

impl Image {
    /// A dm-verity device, which can't be written: every block is checked when it is read. `hash` may be a clone of this
    /// image, for a hash area that lies behind the data.
    ///
    /// # Errors
    /// Errors of [`Image::verity_volume`]; `Argument` for a root hash of a wrong length, data that are too short, or a driver
    /// that does not make the hash; `Mismatch` for the root hash of another tree.
    pub fn verity(
        self,
        hash: &Image,
        root_hash: &[u8],
        options: &VerityOptions,
        providers: &Providers,
    ) -> Result<Image, Error> {
        let layout = options.found(&self, hash)?;
        let algorithm = layout.parameters().algorithm();
        let providers = naming(providers, algorithm, options.driver.as_deref())?;
        let geometry = layout.geometry();
        if root_hash.len() != geometry.shape().digest_len() {
            let (found, right) = (root_hash.len(), geometry.shape().digest_len());
            let text = format!("the root hash has {found} bytes; digests have {right}");
            return Err(Error::argument(text));
        }
        if geometry.data_size() > self.top().size() {
            let (needed, size) = (geometry.data_size(), self.top().size());
            let text = format!("the hash tree is over {needed} bytes, and there are {size}");
            return Err(Error::argument(text).at(self.name()));
        }
        let device = Arc::new(VerifiedDevice::new(
            geometry.clone(),
            layout.parameters().salted_hash(&providers)?,
            self.device(),
            hash.device(),
            layout.tree_offset(),
            root_hash,
        ));
        device.check_root().map_err(|error| error.at(hash.name()))?;
        let block = layout.parameters().data_block_size.bytes();
        Ok(self.with_verity(device, block).with_root_hash(root_hash))
    }

    /// Makes a hash area for the device on top, and parity if it is wanted.
    ///
    /// A new file ([`Image::create`]) gets its name at the end, so it is there whole or not at all. A file that exists, or a
    /// device, is written in place, the superblock last. `hash` may be a clone of the image itself, for a hash area behind
    /// the data.
    ///
    /// # Errors
    /// `Argument` for what can't be, and if something would be lost; `Io` says which file; if an existing file was left with half a hash area, it
    /// says this too.
    pub fn verity_format(
        &self,
        hash: &Image,
        options: &FormatOptions,
        work: &Work<'_>,
    ) -> Result<Formatted, Error> {
        self.verity_format_with(hash, options, &target::refuse, work)
    }

    /// Makes a hash area as [`Image::verity_format`] does. `consent` is asked if something would be lost, unless the options
    /// give it.
    ///
    /// # Errors
    /// Errors of [`Image::verity_format`] and of the consent.
    pub fn verity_format_with(
        &self,
        hash: &Image,
        options: &FormatOptions,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<Formatted, Error> {
        let layout = options.layout(self, &work.providers)?;
        let work = &driven(work, layout.parameters().algorithm(), options.area.driver.as_deref())?;
        let area = options.area.hash_offset..layout.hash_device_size();
        if self.is_same(hash) {
            layout.check_one_device()?;
        } else if self.is_changed_by(layout.geometry().data_size(), hash, area.clone()) {
            let text =
                "data area overlaps with hash area: both are in one file; give the partition of the data";
            let error = Error::coded(Code::Overlap, text).advise(Advice::DataBlocks);
            return Err(error.at(hash.name()));
        }
        let parity = options.area.fec.as_ref().map(|fec| &fec.image);
        let _lease = Medium::lease_all(&[hash].into_iter().chain(parity).collect::<Vec<_>>())?;
        let mut fec_layout = None;
        let mut on_hash_device = false;
        let made = if options.area.superblock { Made::Known(signatures::VERITY) } else { Made::Data };
        let area = Place { image: hash, bytes: area, data: self, made };
        area.check_room("a hash area")?;
        let mut parity = None;
        if let Some(fec) = &options.area.fec {
            on_hash_device = fec.check_place(&layout, self, hash)?;
            // With a parity that can't be, nothing should be written at all.
            let hash_end = layout.hash_device_size().max(hash.top().size());
            let made = fec.new_layout(&layout, on_hash_device, hash_end)?;
            let place = parity::place(&fec.image, fec.offset, &made, self)?;
            place.check_room("parity")?;
            parity = Some(place);
        }
        if !options.overwrite {
            options.look(&area, parity.as_ref(), consent, work)?;
        }
        // Of a hash area that has its device for itself: what lies before it, or is protected, stays.
        let is_alone = options.area.hash_offset == 0
            && hash.is_in_block_device()
            && !self.is_changed_by(self.top().size(), hash, 0..hash.top().size());
        if is_alone {
            hash.erase_signatures(0, work.events)?;
        }
        let (named_data, named_hash) = (self.named(), hash.named());
        let root_hash = dm::format(&layout, &named_data, &named_hash, work);
        let root_hash = root_hash.map_err(|error| left_behind(error, hash))?;
        if let Some(fec) = &options.area.fec {
            if on_hash_device && hash.top().size() < fec.offset {
                // What lies between hash area and parity is covered, so it must be there.
                named_hash.write_at(&[0], fec.offset - 1).map_err(|error| left_behind(error, hash))?;
            }
            let made = fec.new_layout(&layout, on_hash_device, hash.top().size())?;
            let parity = fec.image.named();
            let devices = FecDevices {
                data: &named_data,
                hash: &named_hash,
                parity: &parity,
                parity_offset: fec.offset,
            };
            let encoded = fec::encode(&made, &devices, work).and_then(|()| parity.flush());
            encoded.map_err(|error| left_behind(error, &fec.image))?;
            [self, hash, &fec.image].into_iter().try_for_each(|image| image.check_name())?;
            fec.image.commit()?;
            fec_layout = Some(made);
        }
        [self, hash].into_iter().try_for_each(|image| image.check_name())?;
        hash.commit()?;
        Ok(Formatted { layout, root_hash, fec: fec_layout, fec_on_hash_device: on_hash_device })
    }

    /// Completes a hash area, of which the hash blocks of all parts are there ([`Image::tree_part`]; the tree begins at
    /// [`Layout::tree_offset`]), by the levels above them and the superblock. Returns the root hash.
    ///
    /// # Errors
    /// Errors of [`Part::join`](crate::part::Part::join); `Argument` if the image was opened for reading; `Io`.
    pub fn verity_join(&self, parts: &[Part<Layout>], work: &Work<'_>) -> Result<Vec<u8>, Error> {
        let _lease = self.lease()?;
        if let Some(part) = parts.first() {
            self.grow_to(part.whole().hash_device_size())?;
        }
        let root_hash = dm::join(parts, &self.named(), work)?;
        self.commit()?;
        Ok(root_hash)
    }

    /// Opens the image's data with its hash area, and its parity.
    ///
    /// # Errors
    /// Errors of [`Image::verity_superblock`]; `Argument` for options that can't be, or that the superblock contradicts.
    pub fn verity_volume(&self, hash: &Image, options: &VerityOptions) -> Result<Volume, Error> {
        let layout = options.found(self, hash)?;
        let parity = options.fec.as_ref().map(|fec| fec.found(&layout, self, hash)).transpose()?;
        let driver = options.driver.clone();
        Ok(Volume { data: self.clone(), hash: hash.clone(), parity, layout, driver })
    }

    /// Reads the superblock of the hash area that begins at byte `hash_offset` of the device on top.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` if there is none that makes sense, `Io`.
    pub fn verity_superblock(&self, hash_offset: u64) -> Result<Layout, Error> {
        if !hash_offset.is_multiple_of(512) {
            return Err(Error::argument(format!("hash offset {hash_offset} is not a multiple of 512")));
        }
        let mut bytes = [0; SUPERBLOCK_SIZE];
        self.top().read_at(&mut bytes, hash_offset).map_err(|error| match error.code() {
            Code::CutOff => {
                let (name, size) = (self.name(), self.top().size());
                let text =
                    format!("{name}: no verity superblock at {hash_offset}: the file has {size} bytes");
                Error::coded(Code::NotThisFormat, text)
            }
            _ => error.at(self.name()),
        })?;
        let superblock = Superblock::from_bytes(&bytes);
        let layout = superblock.and_then(|found| Layout::from_superblock(found, hash_offset));
        layout.map_err(|error| error.at(self.name()))
    }
}

/// A repair that was tried, and of which nothing was written.
#[derive(Debug)]
#[non_exhaustive]
pub struct TriedRepair {
    /// The blocks that it would restore, and those that it can't.
    pub repaired: Repaired,
    /// Bytes that it would change.
    pub changed_bytes: u64,
}

impl Volume {
    /// Checks everything below `root_hash`; `report` hears of each wrong block.
    ///
    /// # Errors
    /// `Argument` if the root hash has a wrong length, `Corrupt` if a file is cut off, `Io`.
    pub fn verify(
        &self,
        root_hash: &[u8],
        work: &Work<'_>,
        report: &mut (dyn FnMut(Finding) -> Result<(), Error> + Send),
    ) -> Result<Summary, Error> {
        let work = &self.driven(work)?;
        dm::verify(&self.layout, &self.data.named(), &self.hash.named(), root_hash, work, report)
    }

    /// Bytes of the data's file or device behind the protected blocks that the root hash says nothing of. Hash area and parity are
    /// not counted where they lie there.
    pub fn unprotected_bytes(&self) -> u64 {
        let (device, layout) = (self.data.device(), &self.layout);
        let mut behind = device.size().saturating_sub(layout.geometry().data_size());
        if self.data.is_same(&self.hash) {
            behind = behind.saturating_sub(layout.hash_device_size().saturating_sub(layout.hash_offset()));
        }
        if let Some(parity) = self.parity.as_ref().filter(|parity| self.data.is_same(&parity.image)) {
            behind = behind.saturating_sub(parity.layout.parity_size());
        }
        behind
    }

    /// Compares the parity with data and hash device; returns the numbers of the rounds that differ.
    ///
    /// # Errors
    /// `Argument` if the volume was opened without parity, `Corrupt` if it is cut off, `Io`.
    pub fn check_parity(&self, work: &Work<'_>) -> Result<Ranges, Error> {
        let (data, hash) = (self.data.named(), self.hash.named());
        self.with_parity(&data, &hash, |layout, devices| fec::check(layout, devices, work))
    }

    /// Restores damaged data and hash blocks in place.
    ///
    /// # Errors
    /// `Argument` if the volume was opened without parity, data or hash device were opened for reading, or the root hash
    /// has a wrong length; `Corrupt` if something is cut off; `Io`.
    pub fn repair(&self, root_hash: &[u8], work: &Work<'_>) -> Result<Repaired, Error> {
        let _lease = Medium::lease_all(&[&self.data, &self.hash])?;
        let work = &self.driven(work)?;
        let (data, hash) = (self.data.named(), self.hash.named());
        self.with_parity(&data, &hash, |layout, devices| {
            fec::repair(&self.layout, layout, devices, root_hash, work)
        })
    }

    /// The changes that [`Volume::repair`] would make; nothing is written.
    ///
    /// # Errors
    /// Errors of [`Volume::repair`], but for how the image was opened.
    pub fn try_repair(&self, root_hash: &[u8], work: &Work<'_>) -> Result<TriedRepair, Error> {
        let work = &self.driven(work)?;
        let (data, hash) = (Overlay::new(self.data.named()), Overlay::new(self.hash.named()));
        let repaired = self.with_parity(&data, &hash, |layout, devices| {
            fec::repair(&self.layout, layout, devices, root_hash, work)
        })?;
        let changed = data.changed_bytes().and_then(|bytes| Ok(bytes + hash.changed_bytes()?));
        Ok(TriedRepair { repaired, changed_bytes: changed.map_err(|error| Error::io("input", error))? })
    }

    /// Brings the hash area up to date after the data blocks in `changed` have changed, and all of the parity;
    /// returns the new root hash. With `old_root` the hash blocks that will change are checked against it first; with parity all
    /// blocks that have not changed are checked against the tree.
    ///
    /// # Errors
    /// `Mismatch` if they do not belong to `old_root`, or others are damaged, or without `old_root` they contradict the blocks above
    /// them, as after an update that was cut off; nothing is changed then. `Argument` without blocks that
    /// have changed; if something would be lost: the place of the parity has something else, or neither a superblock nor `old_root`
    /// tells of a hash tree. `Corrupt`, `Io`.
    pub fn update(
        &self,
        changed: &Ranges,
        old_root: Option<&[u8]>,
        work: &Work<'_>,
    ) -> Result<Vec<u8>, Error> {
        self.update_with(changed, old_root, &target::refuse, work)
    }

    /// Brings the hash area up to date as [`Volume::update`] does. `consent` is asked if something would be lost.
    ///
    /// # Errors
    /// Errors of [`Volume::update`]; whatever the consent says.
    pub fn update_with(
        &self,
        changed: &Ranges,
        old_root: Option<&[u8]>,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<Vec<u8>, Error> {
        if changed.is_empty() {
            return Err(Error::argument("no block is said to have changed"));
        }
        let parity = self.parity.as_ref().map(|parity| &parity.image);
        let _lease = Medium::lease_all(&[&self.hash].into_iter().chain(parity).collect::<Vec<_>>())?;
        let work = &self.driven(work)?;
        let (data, hash) = (self.data.named(), self.hash.named());
        let is_told = self.layout.superblock().is_some() || old_root.is_some();
        if !is_told && self.layout.geometry().tree_blocks() > 0 {
            consent(&Loss::new(self.hash.name(), "data that nothing shows to be a hash tree")).map_err(
                |error| {
                    error.map_text(|text| format!("{text}; or give the root hash of the data as they were"))
                },
            )?;
        }
        if old_root.is_none() {
            self.ask_about_contradiction(changed, consent, work)?;
        }
        if let Some(parity) = &self.parity {
            dm::check_unchanged(&self.layout, &data, &hash, changed, work)
                .map_err(|error| error.at(self.data.name()))?;
            parity.place(&self.data)?.check_room("parity")?;
            parity.look((&self.layout, &self.data, &self.hash), changed, consent, work)?;
        }
        let root_hash = dm::update(&self.layout, &data, &hash, changed, old_root, work);
        let path = self.hash.name();
        let remains = || match self.layout.superblock() {
            Some(_) => {
                format!(
                    "{path} may be changed in part, do the update again without the old root hash, and consent to what it finds"
                )
            }
            None => format!("{path} may be changed in part, format it again"),
        };
        let root_hash = root_hash.map_err(|error| with_remains(error, &self.hash, remains))?;
        if self.parity.is_some() {
            self.with_parity(&data, &hash, |layout, devices| {
                fec::encode(layout, devices, work)?;
                devices.parity.flush().map_err(|error| Error::io("parity", error))
            })?;
        }
        Ok(root_hash)
    }

    /// Asks for consent if the hash blocks that an update changes are not those that the blocks above them have digests of: what it
    /// makes of them would make damage good.
    fn ask_about_contradiction(
        &self,
        changed: &Ranges,
        consent: Consent<'_>,
        work: &Work<'_>,
    ) -> Result<(), Error> {
        let (data, hash) = (self.data.named(), self.hash.named());
        let found = match dm::check_above(&self.layout, &data, &hash, changed, work) {
            Err(error) if error.code() == Code::BadDigest => error,
            checked => return checked.map_err(|error| error.at(self.hash.name())),
        };
        let loss = Loss::new(self.hash.name(), "a hash tree that contradicts itself");
        consent(&loss).map_err(|error| match error.kind() {
            ErrorKind::Argument => Error::coded(
                Code::BadDigest,
                format!("{}; it is damaged, or an update was cut off: {}", found.text(), error.text()),
            ),
            _ => error,
        })
    }

    /// Bytes that [`Volume::update`] will work on.
    pub fn update_size(&self, changed: &Ranges) -> u64 {
        let block_size = u64::from(self.layout.parameters().data_block_size.bytes());
        // With parity all of the data are checked first.
        let checked = self.parity.as_ref().map_or(0, |_| self.layout.geometry().data_size());
        let changed = changed.count().saturating_mul(block_size);
        changed.saturating_add(checked).saturating_add(self.parity_size())
    }

    /// Bytes that [`Volume::check_parity`] reads: all that the parity covers.
    pub fn parity_size(&self) -> u64 {
        self.fec_layout().map_or(0, |fec| fec.blocks().saturating_mul(fec.block_size()))
    }

    /// The data blocks that these bytes are part of.
    pub fn blocks_of(&self, bytes: &Ranges) -> Ranges {
        let block_size = u64::from(self.layout.parameters().data_block_size.bytes());
        bytes.iter().map(|range| range.start / block_size..range.end.div_ceil(block_size)).collect()
    }

    /// The table line that opens the device in the kernel; data, hash device and parity have these names there.
    ///
    /// # Errors
    /// `Argument` if the root hash has a wrong length.
    pub fn table<'a>(
        &'a self,
        root_hash: &'a [u8],
        data: String,
        hash: String,
        fec: String,
    ) -> Result<Table<'a>, Error> {
        let mut table = Table::new(&self.layout, root_hash, data, hash)?;
        table.fec = self.parity.as_ref().map(|Parity { layout, offset, .. }| TableFec {
            device: fec,
            roots: layout.roots(),
            blocks: layout.blocks(),
            start: offset / layout.block_size(),
        });
        Ok(table)
    }

    /// True if data and hash area lie in one file or device.
    pub fn is_in_one_device(&self) -> bool {
        self.data.is_same(&self.hash)
    }

    /// The layout of data and hash area.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The layout of the parity, if the volume was opened with one.
    pub fn fec_layout(&self) -> Option<&FecLayout> {
        self.parity.as_ref().map(|parity| &parity.layout)
    }

    /// The number of roots that the parity seems to have been made with, if the volume was opened with another one.
    pub fn other_fec_roots(&self) -> Option<u32> {
        let parity = self.parity.as_ref()?;
        parity.fitting.filter(|roots| *roots != parity.layout.roots())
    }

    /// Work with the driver that was named.
    fn driven<'a>(&self, work: &Work<'a>) -> Result<Work<'a>, Error> {
        driven(work, self.layout.parameters().algorithm(), self.driver.as_deref())
    }

    fn with_parity<T>(
        &self,
        data: &dyn BlockDevice,
        hash: &dyn BlockDevice,
        work: impl FnOnce(&FecLayout, &FecDevices<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Some(Parity { image, layout, offset, .. }) = &self.parity else {
            return Err(Error::argument("there is no device with parity"));
        };
        let parity = image.named();
        work(layout, &FecDevices { data, hash, parity: &parity, parity_offset: *offset })
    }
}

/// Work with the driver that was named for the hash `algorithm`.
///
/// # Errors
/// `Argument` if the driver does not make that hash.
fn driven<'a>(work: &Work<'a>, algorithm: &str, driver: Option<&str>) -> Result<Work<'a>, Error> {
    Ok(Work { providers: naming(&work.providers, algorithm, driver)?, ..work.clone() })
}

/// Providers in which the driver that was named makes the hash `algorithm`.
///
/// # Errors
/// `Argument` if the driver does not make that hash.
pub(crate) fn naming(
    providers: &Providers,
    algorithm: &str,
    driver: Option<&str>,
) -> Result<Providers, Error> {
    let Some(driver) = driver else { return Ok(providers.clone()) };
    let providers = providers.naming(&[driver]);
    match providers.hash(algorithm)?.driver() == driver {
        true => Ok(providers),
        false => Err(Error::argument(format!("{driver} does not make {algorithm}"))),
    }
}

/// Adds to an error what it has left of a file that was there before.
fn left_behind(error: Error, image: &Image) -> Error {
    with_remains(error, image, || format!("{} was begun and is not whole, format it again", image.name()))
}

/// Adds to an I/O error, or an interruption, what it has left on disk.
fn with_remains(error: Error, image: &Image, remains: impl FnOnce() -> String) -> Error {
    match error.io_kind() {
        Some(_) if !image.leaves_nothing() => error.map_text(|text| format!("{text}; {}", remains())),
        _ => error,
    }
}
