//! fscrypt: keys from files, and the names and contents of encrypted files.

use std::io::{Read, Write};

use casemate_blockdev::{u64_of, usize_of};
use casemate_primitives::secret::SecretVec;
use casemate_providers::Direction;

pub use casemate_fscrypt::{
    ContentCipher, Context, DirHashKey, InodeInfo, Ivs, KeyDescriptor, KeyId, KeyIdentifier, Keyring,
    LONGEST_NAME, MasterKey, Mode, NameCipher, NoKeyName, Nonce, Policy, Purpose, symlink_ciphertext,
};

use crate::Error;
use casemate_providers::{SecretSource, fill};

/// No master key is longer.
const LONGEST_KEY: usize = 64;

/// Bytes of a master key at least: the kernel takes none that is shorter.
const SHORTEST_KEY: usize = 16;

/// Bytes that are encrypted at once.
const PIECE: usize = 1 << 20;

/// A raw master key, as fscryptctl takes it: all that is there.
///
/// # Errors
/// `Io`; `Argument` for what is longer or shorter than any key.
pub fn read_raw_key(source: &SecretSource) -> Result<SecretVec, Error> {
    let wrong = |what: String| Error::argument(format!("{}: {what}", source.name()));
    let key = source.read_all(LONGEST_KEY)?;
    let key = key
        .ok_or_else(|| wrong(format!("a raw key has at most {LONGEST_KEY} bytes, and this one is longer")))?;
    match key.len() {
        len @ ..SHORTEST_KEY => {
            Err(wrong(format!("a master key has {SHORTEST_KEY} to {LONGEST_KEY} bytes, not {len}")))
        }
        _ => Ok(key),
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
