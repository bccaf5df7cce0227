//! The IVs of a run of sectors, as few numbers as possible.

use casemate_blockdev::u64_of;
use casemate_providers::{Cipher, Direction, Ivs};

use crate::Error;
use crate::spec::IvMode;

/// The IVs of a run of data units, as they follow from the first one's sector number.
#[derive(Debug)]
pub(crate) enum IvRun {
    /// A counter that wraps at `1 << bits`: `(S << shift) + add`. A run must not pass the wrap.
    Counter { big_endian: bool, bits: u32, shift: u32, add: u64 },
    /// An IV of zeros for all units.
    Zero,
    /// The byte offset `S * scale`, encrypted by this cipher.
    Encrypted { cipher: Cipher, scale: u64 },
}

impl IvRun {
    /// The generator for `mode`. `cipher_block` is the cipher's block in bytes; `eboiv` encrypts IVs.
    pub fn new(
        mode: &IvMode,
        cipher_block: usize,
        sector_size: usize,
        eboiv: Option<Cipher>,
    ) -> Result<IvRun, Error> {
        let counter = |big_endian, bits| IvRun::Counter { big_endian, bits, shift: 0, add: 0 };
        Ok(match mode {
            IvMode::None | IvMode::Null => IvRun::Zero,
            IvMode::Plain => counter(false, 32),
            IvMode::Plain64 | IvMode::Essiv(_) => counter(false, 64),
            IvMode::Plain64Be => counter(true, 64),
            IvMode::Benbi => {
                let log = cipher_block.trailing_zeros();
                if !cipher_block.is_power_of_two() || log > 9 {
                    let text = format!(
                        "benbi IVs need a cipher block that divides a sector, not {cipher_block} bytes"
                    );
                    return Err(Error::argument(text));
                }
                IvRun::Counter { big_endian: true, bits: 64, shift: 9 - log, add: 1 }
            }
            IvMode::Eboiv | IvMode::Elephant => {
                let cipher = eboiv.ok_or_else(|| Error::argument("eboiv IVs need a block cipher"))?;
                IvRun::Encrypted { cipher, scale: u64_of(sector_size) }
            }
            IvMode::Lmk | IvMode::Tcw => unreachable!("these modes make their IVs from more than a number"),
        })
    }

    /// The number of units that one call can take, of `units` units from sector number `first` on, `step`
    /// apart.
    pub fn run_len(&self, first: u64, step: u64, units: usize) -> usize {
        let IvRun::Counter { bits, shift, add, .. } = self else { return units };
        let (first, step) = (self.number(first, *shift, *add), u128::from(step) << shift);
        let left = ((1u128 << bits) - first).div_ceil(step);
        usize::try_from(left).unwrap_or(usize::MAX).min(units)
    }

    /// Runs `work` with the IVs of `units` units; `scratch` is for those that have to be listed.
    pub fn with<R>(
        &self,
        first: u64,
        step: u64,
        units: usize,
        scratch: &mut Vec<u8>,
        work: impl FnOnce(&Ivs<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match self {
            IvRun::Counter { big_endian, shift, add, .. } => {
                let (first, step) = (self.number(first, *shift, *add), step << shift);
                work(&if *big_endian { Ivs::Big { first, step } } else { Ivs::Little { first, step } })
            }
            IvRun::Zero => work(&Ivs::Little { first: 0, step: 0 }),
            IvRun::Encrypted { cipher, scale } => {
                scratch.clear();
                for k in 0..u64_of(units) {
                    let sector = first.wrapping_add(k.wrapping_mul(step));
                    scratch.extend(u128::from(sector.wrapping_mul(*scale)).to_le_bytes());
                }
                cipher.run(Direction::Encrypt, &Ivs::List(&[]), scratch)?;
                work(&Ivs::List(scratch))
            }
        }
    }

    fn number(&self, sector: u64, shift: u32, add: u64) -> u128 {
        let IvRun::Counter { bits, .. } = self else { return 0 };
        u128::from((sector << shift).wrapping_add(add)) & ((1 << bits) - 1)
    }
}

/// Changes one sector under one IV.
pub(crate) fn one_iv(
    cipher: &Cipher,
    direction: Direction,
    iv: &[u8; 16],
    data: &mut [u8],
) -> Result<(), Error> {
    Ok(cipher.run(direction, &Ivs::List(&iv[..cipher.iv_len().min(16)]), data)?)
}
