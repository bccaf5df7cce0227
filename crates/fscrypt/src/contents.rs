//! File contents: whole data units, as many as there are in one call.

use std::fmt;
use std::io::{Read, Write};

use casemate_blockdev::{u64_of, usize_of};
use casemate_providers::{Cipher, Direction, Ivs, fill};

use crate::context::Nonce;
use crate::{Error, Result};

/// A file's cipher for its contents: encrypts and decrypts whole data units.
pub struct ContentCipher {
    cipher: Cipher,
    unit: usize,
    ivs: UnitIvs,
}

/// How the IVs of a file's data units follow from their numbers.
#[derive(Clone, Copy)]
pub(crate) enum UnitIvs {
    /// le64 number.
    Index,
    /// le64 number, then the nonce.
    IndexAndNonce(Nonce),
    /// le32 number, le32 inode.
    IndexAndInode(u32),
    /// le32 sum of this and the number.
    Hashed(u32),
}

/// Data units that IVs with 32 bits can number.
const UNITS_OF_32_BITS: u64 = 1 << 32;

/// Bytes of a stream that are encrypted at once.
const PIECE: usize = 1 << 20;

impl ContentCipher {
    pub(crate) fn new(cipher: Cipher, unit: usize, ivs: UnitIvs) -> ContentCipher {
        ContentCipher { cipher, unit, ivs }
    }

    /// Encrypts whole data units in place; `first` is the number of the first one in the file. Bytes behind
    /// the file's end, up to the end of its last unit, must be zeros.
    ///
    /// # Errors
    /// `Argument` if `data` is not whole units, or if numbers pass what the policy's IVs can count.
    pub fn encrypt(&self, first: u64, data: &mut [u8]) -> Result<()> {
        self.run(Direction::Encrypt, first, data)
    }

    /// Decrypts whole data units in place. Holes are not ciphertext: they read as zeros and must not come here.
    ///
    /// # Errors
    /// As [`ContentCipher::encrypt`].
    pub fn decrypt(&self, first: u64, data: &mut [u8]) -> Result<()> {
        self.run(Direction::Decrypt, first, data)
    }

    /// Encrypts or decrypts whole data units in place, as `direction` says.
    ///
    /// # Errors
    /// As [`ContentCipher::encrypt`].
    pub fn run(&self, direction: Direction, first: u64, data: &mut [u8]) -> Result<()> {
        if !data.len().is_multiple_of(self.unit) {
            let text = format!("{} bytes are not whole data units of {}", data.len(), self.unit);
            return Err(Error::argument(text));
        }
        let units = u64_of(data.len() / self.unit);
        let last = match self.ivs {
            UnitIvs::Index | UnitIvs::IndexAndNonce(_) => u64::MAX,
            UnitIvs::IndexAndInode(_) | UnitIvs::Hashed(_) => UNITS_OF_32_BITS,
        };
        if first.checked_add(units).is_none_or(|end| end > last) {
            let text = format!("data unit {first} and {units} more pass what the policy's IVs can count");
            return Err(Error::argument(text));
        }
        if data.is_empty() {
            return Ok(());
        }
        let counted = |first: u128| Ivs::Little { first, step: 1 };
        match self.ivs {
            UnitIvs::Index => self.cipher.run(direction, &counted(first.into()), data)?,
            UnitIvs::IndexAndInode(inode) => {
                let first = u128::from(inode) << 32 | u128::from(first);
                self.cipher.run(direction, &counted(first), data)?;
            }
            UnitIvs::Hashed(hash) => {
                let start = (u64::from(hash) + first) % UNITS_OF_32_BITS;
                let before = units.min(UNITS_OF_32_BITS - start);
                let (head, tail) = data.split_at_mut(usize_of(before) * self.unit);
                self.cipher.run(direction, &counted(start.into()), head)?;
                if !tail.is_empty() {
                    self.cipher.run(direction, &counted(0), tail)?;
                }
            }
            UnitIvs::IndexAndNonce(nonce) => {
                let mut list = Vec::with_capacity(usize_of(units) * self.cipher.iv_len());
                for index in first..first + units {
                    list.extend(index.to_le_bytes());
                    list.extend(nonce);
                    list.extend([0; 8]);
                }
                self.cipher.run(direction, &Ivs::List(&list), data)?;
            }
        }
        Ok(())
    }

    /// Bytes of a data unit.
    pub fn data_unit_size(&self) -> usize {
        self.unit
    }
}

impl UnitIvs {
    /// The IV of unit 0, which names have too.
    pub(crate) fn write_first(&self, iv: &mut [u8; 32]) {
        iv.fill(0);
        match self {
            UnitIvs::Index => {}
            UnitIvs::IndexAndNonce(nonce) => iv[8..24].copy_from_slice(nonce),
            UnitIvs::IndexAndInode(inode) => iv[4..8].copy_from_slice(&inode.to_le_bytes()),
            UnitIvs::Hashed(hash) => iv[..4].copy_from_slice(&hash.to_le_bytes()),
        }
    }
}

/// Encrypts or decrypts a stream of whole data units, the first of which is unit `first` of its file; at most `size`
/// bytes are written. Where encryption meets the end within a unit, zeros follow, as in the kernel.
///
/// # Errors
/// `Io`; `Argument` for ciphertext that ends within a unit, or units that the policy's IVs can't count.
pub fn transform(
    cipher: &ContentCipher,
    direction: Direction,
    mut first: u64,
    (input, input_name): (&mut dyn Read, &str),
    (output, output_name): (&mut dyn Write, &str),
    size: u64,
) -> Result<(), Error> {
    let unit = cipher.data_unit_size();
    let mut buffer = vec![0; PIECE.next_multiple_of(unit)];
    let mut left = size;
    loop {
        let len = fill(input, &mut buffer).map_err(|error| Error::io(input_name, error))?;
        let whole = len.next_multiple_of(unit);
        if direction == Direction::Decrypt && whole != len {
            let text = format!("{input_name}: its last data unit has {} bytes of {unit}", len % unit);
            return Err(Error::argument(text));
        }
        buffer[len..whole].fill(0);
        cipher.run(direction, first, &mut buffer[..whole])?;
        let wanted = usize_of(left.min(u64_of(whole)));
        output.write_all(&buffer[..wanted]).map_err(|error| Error::io(output_name, error))?;
        left -= u64_of(wanted);
        first += u64_of(whole / unit);
        if len < buffer.len() {
            return output.flush().map_err(|error| Error::io(output_name, error));
        }
    }
}

impl fmt::Debug for ContentCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentCipher({:?}, units of {} bytes)", self.cipher, self.unit)
    }
}
