//! fscrypt: keys from files, and the names and contents of encrypted files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use casemate_primitives::secret::SecretVec;

pub use casemate_fscrypt::{
    ContentCipher, Context, Crypto, DirHashKey, Error as FscryptError, InodeInfo, Ivs, KeyDescriptor, KeyId,
    KeyIdentifier, Keyring, LONGEST_NAME, MasterKey, Mode, NameCipher, NoKeyName, Nonce, Policy, Purpose,
    symlink_ciphertext,
};

use crate::Error;

/// No master key is longer.
const LONGEST_KEY: usize = 64;

/// A raw master key from a file with just its bytes, as fscryptctl takes it; "-" is standard input.
///
/// # Errors
/// `Io`; `Argument` for a file that is longer than any key.
pub fn read_raw_key(path: &Path) -> Result<SecretVec, Error> {
    let at = |error| Error::io(path.display(), error);
    let mut file: Box<dyn Read> =
        if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path).map_err(at)?) };
    let mut buffer = SecretVec::zeroed(LONGEST_KEY + 1);
    let mut len = 0;
    loop {
        match file.read(&mut buffer.expose_mut()[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(at(error)),
        }
    }
    if len > LONGEST_KEY {
        let text = format!("{}: no raw key: it has more than {LONGEST_KEY} bytes", path.display());
        return Err(Error::Argument(text));
    }
    Ok(buffer.expose()[..len].into())
}

impl From<FscryptError> for Error {
    fn from(error: FscryptError) -> Error {
        match error {
            FscryptError::Corrupt(text) => Error::Corrupt(text),
            FscryptError::Unsupported(text) => Error::Unsupported(text),
            FscryptError::Argument(text) => Error::Argument(text),
            FscryptError::Driver(text) => Error::io("cipher", io::Error::other(text)),
            other => Error::Unsupported(other.to_string()),
        }
    }
}
