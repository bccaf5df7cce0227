//! Images opened by their specifications, layer by layer.

use std::io::Read;
use std::path::{Path, PathBuf};

use casemate_blockdev::{AtFile, Stream, u64_of};
use casemate_verity::dm::partition_uuids;

use super::grammar::wrong;
use super::{
    CryptSpec, FileSystemSpec, HashPartition, ImageSpec, IntegritySpec, KeyFile, KeyPlace, LayerSpec,
    LuksSpec, VeritySpec,
};
use crate::integrity::{IntegrityOptions, Keyed, read_key};
use crate::luks::{LuksKey, LuksOptions, Policy, Volume};
use crate::verity::VerityOptions;
use crate::{
    Access, Error, Image, KdfLimits, Keys, SecretMissing, SecretSource, SecretVec, Work, hex, probe,
};

/// Front end that opens layers: it brings threads and implementations, and knows passphrases.
pub trait LayerOpener {
    /// Threads and implementations for work in which these drivers are named.
    fn work(&self, drivers: &[String]) -> Work<'_>;

    /// The passphrase of what is called `of`, of which no file was named.
    ///
    /// # Errors
    /// `Argument` if nobody knows it.
    fn passphrase(&self, of: &str) -> Result<SecretVec, Error>;

    /// An error, with what an image holds in place of what was looked for.
    fn explained(&self, error: Error, image: &Image, wanted: &'static str) -> Error {
        let _ = (image, wanted);
        error
    }

    /// Whether discards pass decryption.
    fn allows_discards(&self) -> bool {
        false
    }
}

/// A program that opens layers without asking anybody: it may have the passphrase that layers need.
#[derive(Clone, Debug)]
pub struct Opening<'a> {
    /// Threads, implementations and listener.
    pub work: &'a Work<'a>,
    /// The passphrase of each layer that names no place of its key.
    pub passphrase: Option<SecretVec>,
}

impl LayerOpener for Opening<'_> {
    fn work(&self, _drivers: &[String]) -> Work<'_> {
        Work { providers: self.work.providers.clone(), pool: self.work.pool, events: self.work.events }
    }

    fn passphrase(&self, of: &str) -> Result<SecretVec, Error> {
        self.passphrase.clone().ok_or_else(|| SecretMissing::no_passphrase().at(of))
    }
}

/// Bytes of a small file at most: of a root hash or a policy.
const SMALL: u64 = 1 << 20;

fn read_small(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let file = if path == Path::new("-") { Stream::input() } else { Stream::open(path) };
    let read = file.and_then(|file| file.take(SMALL + 1).read_to_end(&mut bytes));
    read.at(path.display())?;
    match u64_of(bytes.len()) > SMALL {
        true => Err(Error::corrupt("larger than any root hash or policy").at(path.display())),
        false => Ok(bytes),
    }
}

/// Reads a root hash in hex, or from the file behind an "@"; "@-" is standard input.
///
/// # Errors
/// `Argument` for other text; `Io`.
pub fn read_root_hash(text: &str) -> Result<Vec<u8>, Error> {
    if let Some(path) = text.strip_prefix('@') {
        let bytes = read_small(Path::new(path))?;
        // It may be any file, also one with a key in it, so nothing of it is shown.
        let wrong = || Error::argument("it has no root hash: that must be hex digits").at(path);
        let text = str::from_utf8(&bytes).map_err(|_| wrong())?;
        return decode(text.trim_end()).ok_or_else(wrong);
    }
    let wrong = || {
        let what = if Path::new(text).is_file() {
            format!("it is a file, which is read as @{text}")
        } else {
            "it must be hex digits, or @ and the name of a file that has them".to_owned()
        };
        Error::argument(format!("'{text}' is not a root hash: {what}"))
    };
    decode(text).ok_or_else(wrong)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    hex::decode(text).filter(|bytes| !bytes.is_empty())
}

/// Reads the policy in a file, without the key of its mac.
///
/// # Errors
/// `Argument` for what is no policy; `Io`.
pub fn read_policy(path: &Path) -> Result<Policy, Error> {
    let text = read_small(path)?;
    let text = str::from_utf8(&text).map_err(|_| Error::argument("a policy is text"));
    text.and_then(str::parse::<Policy>).at(path.display())
}

impl ImageSpec {
    /// Opens the file and lays everything on it.
    ///
    /// ```
    /// use casemate::image_spec::{ImageSpec, Opening};
    /// use casemate::{Access, Work};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("disk.img");
    /// # std::fs::write(&path, vec![7; 1 << 20])?;
    /// let spec: ImageSpec = format!("{},offset=4K,size=1s", path.display()).parse()?;
    /// let image = spec.open(Access::ReadUnlocked, &Opening { work: &Work::default(), passphrase: None })?;
    /// assert_eq!(image.device().size(), 512);
    /// # Ok::<(), casemate::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of each layer; `Argument` if the specification says how a file system is read, which a device is not.
    pub fn open(&self, access: Access, opener: &dyn LayerOpener) -> Result<Image, Error> {
        self.check_device()?;
        self.lay(self.open_part(access, access != Access::Change)?, opener)
    }

    /// Opens the part of the file that the first layers say; with `so_far` of an image that may be truncated as far as it is
    /// there.
    ///
    /// # Errors
    /// Errors of [`Image::open`], [`Image::window`] and [`Image::partition_named`].
    pub fn open_part(&self, access: Access, so_far: bool) -> Result<Image, Error> {
        self.part_of(Image::open(self.file(), access)?, so_far)
    }

    /// The part of the file, which is open already, that the first layers say.
    ///
    /// # Errors
    /// Errors of [`Image::window`] and [`Image::partition_named`].
    pub fn part_of(&self, image: Image, so_far: bool) -> Result<Image, Error> {
        self.parts().0.iter().try_fold(image, |image, layer| part(layer, image, so_far))
    }

    /// Opens the part of the file, also of an image on which in-place work is unfinished: to look at it, or to go on with that
    /// work, never for its data.
    ///
    /// # Errors
    /// Errors of [`ImageSpec::open_part`].
    pub fn open_part_to_look(&self, access: Access) -> Result<Image, Error> {
        self.part_of(Image::open_unfinished(self.file(), access)?, false)
    }

    /// Refuses a passphrase that no layer would be opened with: each one names its key, or there is none.
    ///
    /// # Errors
    /// `Argument`.
    pub fn check_passphrase(&self, passphrase: Option<&SecretVec>) -> Result<(), Error> {
        let is_asked = |layer: &LayerSpec| match layer {
            LayerSpec::Crypt(spec) => spec.table.is_none() && matches!(spec.key, KeyPlace::Asked),
            LayerSpec::Luks(spec) => spec.volume_key_file.is_none() && matches!(spec.key, KeyPlace::Asked),
            _ => false,
        };
        match passphrase.is_none() || self.layers().iter().any(is_asked) {
            true => Ok(()),
            false => Err(Error::argument(
                "a passphrase was given, and no layer of the image specification is opened with one",
            )
            .at(self.file().display())),
        }
    }

    /// Lays the other layers on the part of the file.
    ///
    /// # Errors
    /// Errors of each layer.
    pub fn lay(&self, image: Image, opener: &dyn LayerOpener) -> Result<Image, Error> {
        lay(self.parts().1, image, opener)
    }

    /// Lays all layers on an image that is open already, those that select a part of it, too.
    ///
    /// # Errors
    /// Errors of each layer.
    pub fn lay_all(&self, image: Image, opener: &dyn LayerOpener) -> Result<Image, Error> {
        lay(self.layers(), image, opener)
    }

    /// Refuses what says how a file system is read, where the image is taken as a device.
    ///
    /// # Errors
    /// `Argument`.
    pub fn check_device(&self) -> Result<(), Error> {
        match self.file_system().is_default() {
            true => Ok(()),
            false => {
                Err(wrong("'ext4' says how files are read, and here the image is a device: leave ext4 out"))
            }
        }
    }
}

fn lay(layers: &[LayerSpec], mut image: Image, opener: &dyn LayerOpener) -> Result<Image, Error> {
    for (number, layer) in layers.iter().enumerate() {
        let of = match layers.len() {
            1 => image.name().to_owned(),
            _ => format!("{}, layer {}", image.name(), number + 1),
        };
        image = layer.over(image, &of, opener)?;
    }
    if image.is_by_backup_table() {
        opener.work(&[]).events.note(&format!(
            "{}: the primary partition table is damaged or lost; partitions are read by the backup GPT at the end",
            image.name()
        ));
    }
    Ok(image)
}

fn part(layer: &LayerSpec, image: Image, so_far: bool) -> Result<Image, Error> {
    match layer {
        LayerSpec::Partition(id) => image.partition_named(id, so_far),
        LayerSpec::Window { offset, size } => image.window(*offset, *size),
        _ => Err(wrong("a layer that does not select a part of the file")),
    }
}

impl LayerSpec {
    /// Lays it on an image, whose passphrase is asked for as that of `of`.
    fn over(&self, image: Image, of: &str, opener: &dyn LayerOpener) -> Result<Image, Error> {
        match self {
            LayerSpec::Partition(_) | LayerSpec::Window { .. } => part(self, image, false),
            LayerSpec::Crypt(spec) => spec.over(image, of, opener),
            LayerSpec::Luks(spec) => {
                let (volume, key, mut options) = spec.volume(&image, of, Access::Read, opener)?;
                options.allow_discards = opener.allows_discards();
                volume.open(&key, &options, &opener.work(&[]))
            }
            LayerSpec::Integrity(spec) => spec.over(image, opener),
            LayerSpec::Verity(spec) => spec.over(image, opener),
        }
    }
}

impl KeyPlace {
    /// The place, unless somebody is asked.
    pub fn source(&self) -> Option<SecretSource> {
        match self {
            KeyPlace::Asked => None,
            KeyPlace::File(path, from) => Some(SecretSource::file(path).from_byte(*from)),
            KeyPlace::Descriptor(number, from) => Some(SecretSource::descriptor(*number).from_byte(*from)),
        }
    }
}

impl CryptSpec {
    /// The mapping with its key; the passphrase is asked for as that of `of`.
    ///
    /// # Errors
    /// Errors of [`crate::crypt::MappingOptions`].
    pub fn mapping(&self, of: &str, opener: &dyn LayerOpener) -> Result<crate::crypt::Mapping, Error> {
        let work = opener.work(&self.options.drivers);
        match (&self.table, self.key.source()) {
            (Some(table), _) => self.options.of_table(&SecretSource::file(table), &work),
            (None, Some(key)) => self.options.with_key(&key, &work),
            (None, None) => {
                let passphrase = opener.passphrase(of)?;
                let given = SecretSource::prompt(move |_| Ok(passphrase.clone()));
                self.options.with_passphrase(&given, of, &work)
            }
        }
    }

    fn over(&self, image: Image, of: &str, opener: &dyn LayerOpener) -> Result<Image, Error> {
        let mut mapping = self.mapping(of, opener)?;
        mapping.allow_discards = opener.allows_discards();
        image.crypt(mapping)
    }
}

impl LuksSpec {
    /// The volume on an image, its key, and how it is opened. A header that lies apart is opened for `access`.
    ///
    /// # Errors
    /// Errors of [`Image::luks_volume`], and of reading the key.
    pub fn volume(
        &self,
        image: &Image,
        of: &str,
        access: Access,
        opener: &dyn LayerOpener,
    ) -> Result<(Volume, LuksKey, LuksOptions), Error> {
        let header = self.header.as_ref().filter(|path| !image.is_file(path));
        let header = header.map(|path| Image::open(path, access)).transpose()?;
        let volume = image.luks_volume(header.as_ref(), &opener.work(&[]).providers);
        let volume =
            volume.map_err(|error| opener.explained(error, header.as_ref().unwrap_or(image), probe::LUKS))?;
        let key = match (&self.volume_key_file, self.key.source()) {
            (Some(path), _) => LuksKey::volume_key(&SecretSource::file(path))?,
            (None, Some(source)) => LuksKey::file(&source, None)?,
            (None, None) => LuksKey::Passphrase(opener.passphrase(of)?),
        };
        let mut options = LuksOptions::default().raised(self.kdf_limit);
        options.keyslot = self.key_slot;
        options.policy = self.policy()?;
        options.allow_other_data = self.overwrite;
        Ok((volume, key, options))
    }

    fn policy(&self) -> Result<Option<Policy>, Error> {
        let Some(path) = &self.policy else { return Ok(None) };
        let mut policy = read_policy(path)?;
        let mac_key = self.mac_key_file.as_ref();
        policy.mac_key = mac_key.map(|path| Policy::mac_key(&SecretSource::file(path))).transpose()?;
        Ok(Some(policy))
    }
}

impl IntegritySpec {
    fn over(&self, image: Image, opener: &dyn LayerOpener) -> Result<Image, Error> {
        let read = |path: &Path| read_key(&SecretSource::file(path));
        let sealed = |seal: &Option<(String, PathBuf)>| match seal {
            Some((name, path)) => read(path).map(|key| Some(Keyed { algorithm: name.clone(), key })),
            None => Ok(None),
        };
        let mut options = IntegrityOptions::default();
        options.algorithm.clone_from(&self.algorithm);
        options.key = self.key_file.as_deref().map(read).transpose()?;
        options.journal_code = sealed(&self.journal_code)?;
        options.journal_cipher = sealed(&self.journal_cipher)?;
        options.bitmap = self.bitmap;
        let data = self.data_device.as_ref().map(|path| image.open_alike(path)).transpose()?;
        let work = opener.work(&[]);
        let over = image.clone().integrity(data.as_ref(), &options, &work.providers);
        let over = over.map_err(|error| opener.explained(error, &image, probe::INTEGRITY))?;
        if over.has_unknown_blocks() {
            work.events.note(&format!(
                "{}: by its superblock tags were still to be computed; blocks without one are read and not checked",
                image.name()
            ));
        }
        Ok(over)
    }
}

impl VeritySpec {
    fn over(&self, image: Image, opener: &dyn LayerOpener) -> Result<Image, Error> {
        let mut options = VerityOptions::default();
        options.algorithm.clone_from(&self.algorithm);
        (options.hash_type, options.salt) = (self.hash_type, self.salt.clone());
        options.data_block_size = self.data_block_size;
        options.hash_block_size = self.hash_block_size;
        // 0 says nothing, as in veritysetup.
        options.data_blocks = self.data_blocks.filter(|blocks| *blocks > 0);
        (options.hash_offset, options.superblock) = (self.hash_offset, self.superblock);
        options.driver.clone_from(&self.driver);
        let root_hash = read_root_hash(&self.root_hash)?;
        let drivers: Vec<String> = self.driver.iter().cloned().collect();
        let providers = opener.work(&drivers).providers;
        let other = self.hash_device.as_ref().filter(|path| !image.is_file(path));
        let hash = match (other, &self.hash_partition) {
            (None, None) => image.clone(),
            (None, Some(_)) => image.disk()?.into(),
            (Some(path), _) => Image::open(path, Access::Read)?,
        };
        let hash = match &self.hash_partition {
            None => hash,
            Some(HashPartition::Named(id)) => hash.partition_named(id, false)?,
            Some(HashPartition::Auto) => hash.partition_of_uuid(partition_uuids(&root_hash)?.hash)?,
        };
        let verified = image.verity(&hash, &root_hash, &options, &providers);
        verified.map_err(|error| match self.hash_offset {
            0 => opener.explained(error, &hash, probe::VERITY),
            _ => error,
        })
    }
}

impl FileSystemSpec {
    /// The keys of encrypted files, read.
    ///
    /// # Errors
    /// `Io`; `Argument` for what is no key.
    pub fn keys(&self) -> Result<Keys, Error> {
        let mut keys = Keys::default().with_kdf_limits(KdfLimits::default().times(self.kdf_limit));
        for KeyFile { descriptor, path } in &self.raw_keys {
            let source = SecretSource::file(path);
            keys = match descriptor {
                Some(descriptor) => keys.with_described(*descriptor, &source)?,
                None => keys.with_raw(&source)?,
            };
        }
        for path in &self.passphrase_files {
            keys = keys.with_secret(&SecretSource::file(path))?;
        }
        if let Some(folder) = &self.metadata {
            keys = keys.with_metadata(folder)?;
        }
        Ok(self.protectors.iter().fold(keys, Keys::with_protector))
    }

    /// Whether keys were given.
    pub fn has_keys(&self) -> bool {
        !self.raw_keys.is_empty() || !self.passphrase_files.is_empty()
    }
}
