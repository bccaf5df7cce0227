//! Options of a dm-crypt mapping, and the sources of its key.

use std::fs;

use casemate_blockdev::{AtFile, u64_of};
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Providers, SecretSource, Work};

use crate::{Advice, Error, Mapping, Params, Table, plain_key};

/// The parameters of a dm-crypt mapping, without its key: what cryptsetup's plain mode takes.
///
/// ```
/// use casemate_crypt::{MappingOptions, SecretSource, SecretVec, Work};
///
/// let key = SecretSource::memory(SecretVec::new((0..32).collect()));
/// let mapping = MappingOptions::default().with_key(&key, &Work::default())?;
/// assert_eq!(mapping.params.spec.to_string(), "aes-xts-plain64");
/// # Ok::<(), casemate_crypt::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MappingOptions {
    /// dm-crypt's specification; aes-xts-plain64 by default.
    pub cipher: String,
    /// Bits of the key; 256 if `None`.
    pub key_bits: Option<usize>,
    /// The hash that makes the key of a passphrase: a name, "name:bytes", or "plain" for none; sha256 by default.
    pub passphrase_hash: String,
    /// Sectors of 512 bytes before the data, on the encrypted side.
    pub offset: u64,
    /// Sectors of 512 bytes that are added to a sector's number before its IV is made.
    pub iv_offset: u64,
    /// Bytes of an encryption sector: 512 by default, 1024, 2048 or 4096.
    pub sector_size: usize,
    /// Whether IVs are counted in encryption sectors, not in 512 bytes.
    pub iv_large_sectors: bool,
    /// Whether an XTS key is taken whose halves are equal. FIPS forbids it, the kernel outside FIPS mode takes it.
    pub allow_equal_halves: bool,
    /// Drivers that must do the work, for the cipher or the passphrase's hash, whatever the policy says.
    pub drivers: Vec<String>,
}

impl Default for MappingOptions {
    fn default() -> MappingOptions {
        MappingOptions {
            cipher: "aes-xts-plain64".to_owned(),
            key_bits: None,
            passphrase_hash: "sha256".to_owned(),
            offset: 0,
            iv_offset: 0,
            sector_size: 512,
            iv_large_sectors: false,
            allow_equal_halves: false,
            drivers: Vec::new(),
        }
    }
}

/// Bytes of a table line's file at most: the longest key in hexadecimal has a fraction of that.
const LONGEST_LINE: usize = 1 << 20;

/// Bits of a key at most. No cipher takes so many.
const MOST_BITS: usize = 1 << 20;

/// Bytes of what may be a key as a whole; a longer file is random data that some of is meant.
const LONGEST_KEY: u64 = 128;

impl MappingOptions {
    /// The mapping whose key is read as it is, cut to its size. The listener hears of a file that has more where nobody has
    /// said how much of it is meant.
    ///
    /// # Errors
    /// `Io`; `Argument` for what dm-crypt would refuse, and for fewer bytes than are needed; `Unsupported` where no
    /// implementation may be used.
    pub fn with_key(&self, key: &SecretSource, work: &Work<'_>) -> Result<Mapping, Error> {
        let providers = work.providers.naming(&self.drivers);
        let params = self.params()?;
        let mapping = Mapping::new(params, key.read_exact(self.key_len()?)?, self.offset, &providers)?;
        self.check_drivers(&mapping, None)?;
        if let (Some(path), None) = (key.path(), self.key_bits) {
            let size = fs::metadata(path).ok().filter(fs::Metadata::is_file).map_or(0, |data| data.len());
            let (available, used) = (size.saturating_sub(key.skipped()), mapping.key.len());
            if available > u64_of(used) {
                let text = format!("{} has {available} bytes, {used} are used", path.display());
                match available <= LONGEST_KEY {
                    true => work.events.advise(&text, Advice::KeySize(available * 8)),
                    false => work.events.note(&text),
                }
            }
        }
        Ok(mapping)
    }

    /// The mapping whose key is made of a passphrase, without salt or iterations; `of` says to a person what it is of.
    ///
    /// # Errors
    /// Errors of [`MappingOptions::with_key`]; `Argument` for an empty passphrase.
    pub fn with_passphrase(
        &self,
        passphrase: &SecretSource,
        of: &str,
        work: &Work<'_>,
    ) -> Result<Mapping, Error> {
        let providers = work.providers.naming(&self.drivers);
        let (params, len) = (self.params()?, self.key_len()?);
        let passphrase = passphrase.passphrase(of)?;
        let name = self.passphrase_hash.split(':').next().unwrap_or_default();
        let driver = providers.hash(name).ok().map(|hash| hash.driver().to_owned());
        let key = plain_key(passphrase.expose(), &self.passphrase_hash, len, &providers)?;
        let mapping = Mapping::new(params, key, self.offset, &providers)?;
        self.check_drivers(&mapping, driver.as_ref())?;
        Ok(mapping)
    }

    /// The mapping of a device-mapper table line, which has everything, the key too, and the line's number of sectors. Of
    /// the options only drivers and what is allowed count.
    ///
    /// # Errors
    /// `Io`; `Argument` for a text that is not such a line, or does not describe a whole device.
    pub fn of_table(&self, line: &SecretSource, work: &Work<'_>) -> Result<Mapping, Error> {
        let providers = work.providers.naming(&self.drivers);
        let mapping = self.of_line(line.read_all(LONGEST_LINE)?, &providers).at(line.name())?;
        self.check_drivers(&mapping, None)?;
        Ok(mapping)
    }

    fn of_line(&self, line: Option<SecretVec>, providers: &Providers) -> Result<Mapping, Error> {
        let line = line.as_ref().and_then(|line| str::from_utf8(line.expose()).ok());
        let line = line.ok_or_else(|| Error::argument("not a table line"))?;
        let mut table: Table = line.trim().parse()?;
        table.params.allow_equal_halves = self.allow_equal_halves;
        Mapping::of_table(table, providers)
    }

    fn params(&self) -> Result<Params, Error> {
        Ok(Params {
            sector_size: self.sector_size,
            iv_large_sectors: self.iv_large_sectors,
            iv_offset: self.iv_offset,
            allow_equal_halves: self.allow_equal_halves,
            ..Params::new(self.cipher.parse()?)
        })
    }

    /// Bytes of the key.
    fn key_len(&self) -> Result<usize, Error> {
        match self.key_bits.unwrap_or(256) {
            bits if bits.is_multiple_of(8) && bits <= MOST_BITS => Ok(bits / 8),
            bits => {
                let text = format!("a key size of {bits} bits is not a multiple of 8, or too large");
                Err(Error::argument(text))
            }
        }
    }

    /// Refuses a driver that was named and has nothing to do.
    fn check_drivers(&self, mapping: &Mapping, of_hash: Option<&String>) -> Result<(), Error> {
        let used: Vec<&String> = mapping.cipher().driver_names().iter().chain(of_hash).collect();
        match self.drivers.iter().find(|named| !used.contains(named)) {
            None => Ok(()),
            Some(driver) => {
                let spec = &mapping.params.spec;
                Err(Error::argument(format!("the driver {driver} was named, but {spec} does not use it")))
            }
        }
    }
}
