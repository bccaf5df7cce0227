//! Names as directories store them.

use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;

use crate::error::{Result, invalid};
use crate::format::dir;
use crate::format::dirhash::DirHash;
use crate::read::casefold::fold;
use crate::read::encryption::{EncryptedNames, StoredName};
use crate::read::path::LONGEST_NAME;

/// Refuses names that no file has: every operation that makes, moves or removes a name asks this.
///
/// # Errors
/// `InvalidFilename` for a name of no byte or of more than 255; `InvalidInput` for "." and "..", and for one with a slash or a NUL.
pub(crate) fn require_name(name: &[u8]) -> Result<()> {
    let shown = String::from_utf8_lossy(name);
    if name.is_empty() || name.len() > LONGEST_NAME {
        let text = format!("'{shown}': a name has 1 to {LONGEST_NAME} bytes");
        return Err(invalid(ErrorKind::InvalidFilename, text));
    }
    if matches!(name, b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
        let text = format!("'{}': not a name of a file", shown.escape_debug());
        return Err(invalid(ErrorKind::InvalidInput, text));
    }
    Ok(())
}

/// A name's bytes in a directory, and what else says which records have the same name.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub bytes: Vec<u8>,
    /// The hash that an encrypted directory without regard to case keeps behind each name.
    pub hash: Option<DirHash>,
    folded: Option<Folded>,
}

/// The form that names share which differ in case alone.
#[derive(Clone)]
struct Folded {
    text: String,
    /// Decryption of the names that are compared with it.
    names: Option<Arc<dyn EncryptedNames>>,
}

impl fmt::Debug for Folded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Folded").field(&self.text).finish_non_exhaustive()
    }
}

impl Name {
    /// A name that only the same bytes are.
    pub fn exact(bytes: &[u8], hash: Option<DirHash>) -> Name {
        Name { bytes: bytes.to_vec(), hash, folded: None }
    }

    /// A name of a directory without regard to case; its names are encrypted if `names` are given.
    pub fn folded(bytes: Vec<u8>, name: &[u8], names: Option<Arc<dyn EncryptedNames>>) -> Name {
        let hash = names.as_ref().and_then(|names| names.hash(name));
        Name { bytes, hash, folded: fold(name).map(|text| Folded { text, names }) }
    }

    /// Whether a record in use has this name.
    pub fn is(&self, bytes: &[u8], hash: Option<DirHash>) -> bool {
        if bytes == self.bytes {
            return true;
        }
        let Some(Folded { text, names }) = &self.folded else { return false };
        match names {
            None => fold(bytes).as_ref() == Some(text),
            Some(names) => {
                let stored = StoredName { bytes, hash };
                let decoded = if hash == self.hash { names.decode(stored).ok() } else { None };
                decoded.and_then(|name| fold(&name)).as_ref() == Some(text)
            }
        }
    }

    /// Bytes of a record with this name.
    pub fn record_len(&self) -> usize {
        dir::record_len(&self.bytes, self.hash)
    }
}
