//! Runs of sectors to ciphertext and back.

use std::cell::RefCell;
use std::fmt;

use casemate_blockdev::{u64_of, usize_of};
use casemate_primitives::aes::AesXts;
use casemate_providers::{Cipher, Direction, Providers};

use crate::elephant::Elephant;
use crate::iv::IvRun;
use crate::lmk::Lmk;
use crate::spec::{IvMode, Spec};
use crate::tcw::Tcw;
use crate::{Advice, Error, lmk, tcw};

/// The parameters of a mapping: everything but its key and its device.
#[derive(Clone, Debug)]
pub struct Params {
    /// The specification of cipher and IVs.
    pub spec: Spec,
    /// Bytes of a data unit: 512, 1024, 2048 or 4096.
    pub sector_size: usize,
    /// Whether IVs count units of `sector_size`. Otherwise a unit's number is that of its first 512 bytes.
    pub iv_large_sectors: bool,
    /// Sectors of 512 bytes added to a sector's number before its IV is made; dm-crypt's `iv_offset`, cryptsetup's
    /// `--skip`.
    pub iv_offset: u64,
    /// Whether XTS keys with equal halves are taken, as by the kernel outside FIPS mode. They make XTS weaker.
    pub allow_equal_halves: bool,
}

impl Params {
    /// The usual parameters: sectors of 512 bytes, counted from 0.
    pub fn new(spec: Spec) -> Params {
        Params { spec, sector_size: 512, iv_large_sectors: false, iv_offset: 0, allow_equal_halves: false }
    }
}

/// A mapping's cipher under its key: what dm-crypt does to data, without the device.
///
/// Whether many sectors become one cipher call is decided when this is made: one key, IVs that are counters (also
/// those that are encrypted counters), no work on single sectors. The rest runs sector by sector through the same
/// functions. What comes out is the same either way.
pub struct SectorCipher {
    ciphers: Vec<Cipher>,
    /// The names of all drivers that take part, those that make IVs too.
    drivers: Vec<String>,
    kind: Kind,
    sector_size: usize,
    iv_shift: u32,
    iv_offset: u64,
    /// Consecutive units' sector numbers are this far apart.
    step: u64,
}

enum Kind {
    /// One call for a run of sectors.
    Batch(IvRun),
    /// One call for each sector, because keys take turns.
    EachSector(IvRun),
    Lmk(Lmk),
    Tcw(Tcw),
    Elephant(IvRun, Elephant),
}

impl SectorCipher {
    /// Keys a mapping, taking every cipher from `providers`.
    ///
    /// # Errors
    /// `Argument` for a key of a wrong length, sector sizes that dm-crypt does not have, or combinations that it
    /// refuses; `Unsupported` if no implementation may be used.
    pub fn new(params: &Params, key: &[u8], providers: &Providers) -> Result<SectorCipher, Error> {
        let Params { spec, sector_size, iv_large_sectors, iv_offset, allow_equal_halves } = params;
        let (sector_size, iv_offset) = (*sector_size, *iv_offset);
        if !sector_size.is_power_of_two() || !(512..=4096).contains(&sector_size) {
            return Err(Error::argument(format!(
                "sector size {sector_size}: it must be 512, 1024, 2048 or 4096"
            )));
        }
        let per_sector = u64_of(sector_size) / 512;
        if !iv_offset.is_multiple_of(per_sector) {
            let text = format!(
                "an IV offset of {iv_offset} sectors is not a multiple of the sector size {sector_size}"
            );
            return Err(Error::argument(text));
        }
        if matches!(spec.iv, IvMode::Lmk | IvMode::Tcw) && sector_size != 512 {
            return Err(Error::argument(format!("{spec} has sectors of 512 bytes only")));
        }
        let extra = match spec.iv {
            IvMode::Lmk => lmk::seed_len(key.len(), spec.key_count),
            IvMode::Tcw => tcw::EXTRA_KEY,
            IvMode::Elephant => key.len() / 2,
            _ => 0,
        };
        let shared = key.len().checked_sub(extra).filter(|len| len.is_multiple_of(spec.key_count));
        let Some(shared) = shared else {
            let text = format!(
                "{spec}: a key of {} bytes can't be split among its {} parts",
                key.len(),
                spec.key_count
            );
            return Err(Error::argument(text));
        };
        let (cipher_keys, extra_key) = key.split_at(shared);
        let algorithm = match &spec.iv {
            IvMode::Essiv(hash) => format!("essiv({},{hash})", spec.algorithm),
            _ => spec.algorithm.clone(),
        };
        let one_len = shared / spec.key_count;
        let equal = cipher_keys.chunks(one_len.max(1)).any(AesXts::halves_equal);
        if equal && spec.algorithm.starts_with("xts(") && !allow_equal_halves {
            let text = format!("{spec}: the key's two halves are equal, which makes XTS weaker");
            return Err(Error::argument(text).advise(Advice::EqualHalves));
        }
        let drivers = RefCell::new(Vec::new());
        let choose = |algorithm: &str, key: &[u8]| {
            let cipher = providers.cipher(algorithm, key)?;
            drivers.borrow_mut().push(cipher.driver_name().to_owned());
            Ok::<_, Error>(cipher)
        };
        let keyed = |k: usize| choose(&algorithm, &cipher_keys[k * one_len..][..one_len]);
        let ciphers = (0..spec.key_count)
            .map(|k| Ok(keyed(k)?.with_data_unit_size(sector_size)?))
            .collect::<Result<Vec<_>, Error>>()?;
        let block = ciphers[0].iv_len();
        let eboiv = || choose(&block_algorithm(&spec.algorithm), &cipher_keys[..one_len]);
        let run = |eboiv| IvRun::new(&spec.iv, block, sector_size, eboiv);
        let kind = match spec.iv {
            IvMode::Lmk => Kind::Lmk(Lmk::new(extra_key)),
            IvMode::Tcw => Kind::Tcw(Tcw::new(extra_key)?),
            IvMode::Elephant => {
                let second = choose(&block_algorithm(&spec.algorithm), extra_key)?;
                Kind::Elephant(run(Some(eboiv()?))?, Elephant::new(second, sector_size))
            }
            IvMode::Eboiv => Kind::Batch(run(Some(eboiv()?))?),
            _ if spec.key_count == 1 => Kind::Batch(run(None)?),
            _ => Kind::EachSector(run(None)?),
        };
        let iv_shift = if *iv_large_sectors { per_sector.trailing_zeros() } else { 0 };
        let step = if *iv_large_sectors { 1 } else { per_sector };
        let drivers = drivers.into_inner();
        Ok(SectorCipher { ciphers, drivers, kind, sector_size, iv_shift, iv_offset, step })
    }

    /// Encrypts whole sectors in place. `sector` is the number of the first one's first 512 bytes within the mapping.
    ///
    /// # Errors
    /// `Argument` if `data` is not whole sectors, `sector` lies within one, or numbers pass 2^64; `Io` if a driver
    /// fails.
    pub fn encrypt(&self, sector: u64, data: &mut [u8]) -> Result<(), Error> {
        self.run(Direction::Encrypt, sector, data)
    }

    /// Decrypts whole sectors in place. `sector` is as for [`SectorCipher::encrypt`].
    ///
    /// # Errors
    /// As [`SectorCipher::encrypt`].
    pub fn decrypt(&self, sector: u64, data: &mut [u8]) -> Result<(), Error> {
        self.run(Direction::Decrypt, sector, data)
    }

    /// The number, in units of 512 bytes, that IVs of `len` bytes from `sector` on are counted from.
    ///
    /// # Errors
    /// `Argument` if those of the last ones pass 2^64.
    pub(crate) fn first_iv(&self, sector: u64, len: u64) -> Result<u64, Error> {
        let first = sector.checked_add(self.iv_offset);
        first.filter(|first| first.checked_add(len / 512).is_some()).ok_or_else(|| {
            Error::argument(format!(
                "{len} bytes at sector {sector} with an IV offset of {} pass 2^64",
                self.iv_offset
            ))
        })
    }

    /// Encrypts or decrypts whole sectors in place, as `direction` says.
    ///
    /// # Errors
    /// As [`SectorCipher::encrypt`].
    pub fn run(&self, direction: Direction, sector: u64, data: &mut [u8]) -> Result<(), Error> {
        let size = self.sector_size;
        if !data.len().is_multiple_of(size) || !sector.is_multiple_of(u64_of(size) / 512) {
            let text =
                format!("{} bytes at sector {sector} are not whole sectors of {size} bytes", data.len());
            return Err(Error::argument(text));
        }
        let number = self.first_iv(sector, u64_of(data.len()))? >> self.iv_shift;
        let mut scratch = Vec::new();
        match &self.kind {
            Kind::Batch(ivs) => self.batches(ivs, direction, number, data, &mut scratch),
            Kind::EachSector(ivs) => self.each(data, number, |cipher, number, data| {
                ivs.with(number, self.step, 1, &mut scratch, |ivs| Ok(cipher.run(direction, ivs, data)?))
            }),
            Kind::Lmk(lmk) => {
                self.each(data, number, |cipher, number, data| lmk.run(cipher, direction, number, data))
            }
            Kind::Tcw(tcw) => {
                self.each(data, number, |cipher, number, data| tcw.run(cipher, direction, number, data))
            }
            Kind::Elephant(ivs, elephant) => self.each(data, number, |cipher, number, data| {
                elephant.before(direction, number, data)?;
                ivs.with(number, self.step, 1, &mut scratch, |ivs| Ok(cipher.run(direction, ivs, data)?))?;
                elephant.after(direction, number, data)
            }),
        }
    }

    /// Bytes of a sector.
    pub fn sector_size(&self) -> usize {
        self.sector_size
    }

    /// Whether a run of sectors is one cipher call.
    pub fn batches_sectors(&self) -> bool {
        matches!(self.kind, Kind::Batch(_)) && self.ciphers[0].batches()
    }

    /// The name of the driver of the cipher.
    pub fn driver_name(&self) -> &str {
        self.ciphers[0].driver_name()
    }

    /// The names of all drivers that take part, those that make IVs too.
    pub fn driver_names(&self) -> &[String] {
        &self.drivers
    }

    /// A driver's failure that was mended, in words, if there was one.
    pub fn trouble(&self) -> Option<&str> {
        self.ciphers.iter().find_map(Cipher::trouble)
    }

    fn batches(
        &self,
        ivs: &IvRun,
        direction: Direction,
        mut number: u64,
        mut data: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), Error> {
        while !data.is_empty() {
            let units = ivs.run_len(number, self.step, data.len() / self.sector_size);
            let (now, later) = data.split_at_mut(units * self.sector_size);
            ivs.with(number, self.step, units, scratch, |ivs| Ok(self.ciphers[0].run(direction, ivs, now)?))?;
            number += u64_of(units) * self.step;
            data = later;
        }
        Ok(())
    }

    /// Each sector with the cipher whose turn it is.
    fn each(
        &self,
        data: &mut [u8],
        first: u64,
        mut work: impl FnMut(&Cipher, u64, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for (k, data) in data.chunks_exact_mut(self.sector_size).enumerate() {
            let number = first + u64_of(k) * self.step;
            // Turns count 512 bytes, whatever the IVs count.
            let turn = usize_of((number << self.iv_shift) % u64_of(self.ciphers.len()));
            work(&self.ciphers[turn], number, data)?;
        }
        Ok(())
    }
}

impl fmt::Debug for SectorCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SectorCipher({:?}, sectors of {} bytes)", self.ciphers[0], self.sector_size)
    }
}

/// The mode without chaining of the same block cipher: `ecb(aes)` for `cbc(aes)`.
fn block_algorithm(algorithm: &str) -> String {
    let inner = algorithm.split_once('(').map_or(algorithm, |(_, rest)| rest.trim_end_matches(')'));
    format!("ecb({inner})")
}
