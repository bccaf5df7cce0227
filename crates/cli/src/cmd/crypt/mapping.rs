//! The options that say what a mapping is, under cryptsetup's names, and where its key comes from.

use std::fs;
use std::path::{Path, PathBuf};

use casemate::blockdev::Events;
use casemate::crypt::{Mapping, Params, Table, plain_key};
use casemate::{Error, Providers, SecretSource, SecretVec};

use crate::context::Context;
use crate::passphrase::{self, Asked};

/// What a mapping is.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Mapping")]
pub struct MappingArgs {
    /// The cipher specification, as cryptsetup and dm-crypt take it.
    #[arg(short, long, value_name = "SPEC", default_value = "aes-xts-plain64")]
    pub cipher: String,
    /// The key's size in bits [default: 256].
    #[arg(short = 's', long, value_name = "BITS")]
    pub key_size: Option<usize>,
    /// Read the key from this file; "-" is standard input. It is used as it is, cut to the key's size.
    #[arg(short = 'd', long, value_name = "FILE", conflicts_with = "table_file")]
    pub key_file: Option<PathBuf>,
    /// Read the key from this open file descriptor.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["key_file", "table_file"])]
    pub key_fd: Option<u32>,
    /// Pass over this many bytes of the key file.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub keyfile_offset: u64,
    /// The hash that makes the key of a passphrase: a name, "name:bytes", or "plain" for none. Used when there is no key
    /// file: the passphrase is then asked for, or is the first line of standard input if that is no terminal.
    #[arg(long, value_name = "HASH", default_value = "sha256", conflicts_with_all = ["key_file", "key_fd"])]
    pub hash: String,
    /// Sectors of 512 bytes before the data, on the encrypted side.
    #[arg(short, long, value_name = "SECTORS", default_value_t = 0)]
    pub offset: u64,
    /// Sectors of 512 bytes that are added to a sector's number before its IV is made.
    #[arg(short = 'p', long, value_name = "SECTORS", default_value_t = 0)]
    pub skip: u64,
    /// Bytes of an encryption sector: 512, 1024, 2048 or 4096.
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    pub sector_size: usize,
    /// Count IVs in encryption sectors, not in 512 bytes.
    #[arg(long)]
    pub iv_large_sectors: bool,
    /// Take everything about the mapping, the key too, from a file with a device-mapper table line, so that no key is on
    /// a command line. The mapping is as long as the line says.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cipher", "key_size", "offset", "skip", "sector_size", "iv_large_sectors", "hash", "keyfile_offset"])]
    pub table_file: Option<PathBuf>,
    /// Take an XTS key whose halves are equal. FIPS forbids it, the kernel outside FIPS mode takes it.
    #[arg(long)]
    pub allow_equal_halves: bool,
    /// Use this driver for the cipher or for the passphrase's hash, even if the policy would not choose it ("casemate
    /// providers" lists them).
    #[arg(long, value_name = "DRIVER")]
    pub provider: Vec<String>,
}

impl MappingArgs {
    /// No options but a cipher: every other one has the value that it has when it is not given.
    pub fn of_cipher(cipher: String) -> MappingArgs {
        MappingArgs {
            cipher,
            key_size: None,
            key_file: None,
            key_fd: None,
            keyfile_offset: 0,
            hash: "sha256".to_owned(),
            offset: 0,
            skip: 0,
            sector_size: 512,
            iv_large_sectors: false,
            table_file: None,
            allow_equal_halves: false,
            provider: Vec::new(),
        }
    }

    /// The mapping of an image, keyed. Where there is a passphrase, it is asked for so often.
    pub fn mapping(&self, image: &Path, asked: Asked, context: &Context) -> Result<Mapping, Error> {
        let providers = context.naming(&self.provider);
        let mut hash_driver = None;
        let mapping = match &self.table_file {
            Some(path) => {
                let line = fs::read(path).map_err(|error| Error::io(path.display(), error))?;
                let line = SecretVec::new(line);
                let text = str::from_utf8(line.expose());
                let text =
                    text.map_err(|_| Error::argument(format!("{}: not a table line", path.display())))?;
                let parsed = text.trim().parse::<Table>().and_then(|mut table| {
                    table.params.allow_equal_halves = self.allow_equal_halves;
                    Mapping::of_table(table, &providers)
                });
                parsed.map_err(|error| error.at(path.display()))?
            }
            None => {
                let params = self.params(self.cipher.parse()?);
                let key = self.key(image, asked, &providers, &mut hash_driver)?;
                Mapping::new(params, key, self.offset, &providers)?
            }
        };
        let used = mapping.cipher().driver_names().iter().chain(&hash_driver);
        let used: Vec<&String> = used.collect();
        if let Some(driver) = self.provider.iter().find(|named| !used.contains(named)) {
            let text =
                format!("the driver {driver} was named, and {} has no use for it", mapping.params.spec);
            return Err(Error::argument(text));
        }
        if let (Some(path), None) = (&self.key_file, self.key_size) {
            mention_rest(path, self.keyfile_offset, mapping.key.len(), context);
        }
        Ok(mapping)
    }

    /// Whether the key comes from standard input, which then has no data.
    pub fn reads_standard_input(&self) -> bool {
        let from_file = self.key_file.as_ref().is_some_and(|path| path.as_os_str() != "-");
        !(from_file || self.key_fd.is_some() || self.table_file.is_some())
    }

    fn params(&self, spec: casemate::crypt::Spec) -> Params {
        Params {
            sector_size: self.sector_size,
            iv_large_sectors: self.iv_large_sectors,
            iv_offset: self.skip,
            allow_equal_halves: self.allow_equal_halves,
            ..Params::new(spec)
        }
    }

    /// The key. Where a hash makes it, its driver's name goes to `driver`.
    fn key(
        &self,
        image: &Path,
        asked: Asked,
        providers: &Providers,
        driver: &mut Option<String>,
    ) -> Result<SecretVec, Error> {
        let bits = self.key_size.unwrap_or(256);
        if !bits.is_multiple_of(8) || bits > 1 << 20 {
            return Err(Error::argument(format!("--key-size {bits}: it must be a multiple of 8 bits")));
        }
        let len = bits / 8;
        let file = match (&self.key_file, self.key_fd) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(number)) => Some(PathBuf::from(format!("/dev/fd/{number}"))),
            (None, None) => None,
        };
        match file {
            Some(path) => SecretSource::file(path).from_byte(self.keyfile_offset).read_exact(len),
            None => {
                let passphrase = passphrase::source(asked).passphrase(&image.display().to_string())?;
                let name = self.hash.split(':').next().unwrap_or_default();
                *driver = providers.hash(name).ok().map(|hash| hash.driver().to_owned());
                Ok(plain_key(passphrase.expose(), &self.hash, len, providers)?)
            }
        }
    }
}

/// Says that only the beginning of a key file is used, where nobody has said how much of it.
fn mention_rest(path: &Path, skipped: u64, used: usize, context: &Context) {
    let size = fs::metadata(path).ok().filter(fs::Metadata::is_file).map_or(0, |data| data.len());
    let available = size.saturating_sub(skipped);
    if available <= used as u64 {
        return;
    }
    let most = if available <= LONGEST_KEY {
        format!("; --key-size {} takes all", available * 8)
    } else {
        String::new()
    };
    context.note(&format!("{} has {available} bytes, {used} are used{most}", path.display()));
}

/// Bytes of what may be a key as a whole; a longer file is random data that some of is meant.
const LONGEST_KEY: u64 = 128;
