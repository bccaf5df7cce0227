//! Options for the journal of a dm-integrity volume, of commands and of layers.

use std::path::PathBuf;

use casemate::integrity::{IntegrityOptions, Keyed, read_key};
use casemate::{Error, SecretSource};

/// Options for the protection of a volume's journal, which its superblock does not record.
#[derive(clap::Args, Debug)]
pub struct JournalArgs {
    /// Journal MAC algorithm: hmac-sha256, ...
    #[arg(long, value_name = "NAME")]
    journal_integrity: Option<String>,
    /// Read the key of the journal MAC from this file, all of it.
    #[arg(long, value_name = "FILE")]
    journal_integrity_key_file: Option<PathBuf>,
    /// Journal encryption: ctr-aes or cbc-aes.
    #[arg(long, value_name = "NAME")]
    journal_crypt: Option<String>,
    /// Read the key of the journal encryption from this file, all of it.
    #[arg(long, value_name = "FILE")]
    journal_crypt_key_file: Option<PathBuf>,
}

/// An algorithm, and the file of its key.
type Sealed = Option<(String, PathBuf)>;

impl JournalArgs {
    /// The algorithms of the journal's codes and of its encryption, each with the file of its key.
    pub fn spec(&self) -> Result<(Sealed, Sealed), Error> {
        let both = |name: &Option<String>, path: &Option<PathBuf>, option: &str| match (name, path) {
            (None, None) => Ok(None),
            (Some(name), Some(path)) => Ok(Some((name.clone(), path.clone()))),
            _ => Err(Error::argument(format!("--{option} and --{option}-key-file go together"))),
        };
        Ok((
            both(&self.journal_integrity, &self.journal_integrity_key_file, "journal-integrity")?,
            both(&self.journal_crypt, &self.journal_crypt_key_file, "journal-crypt")?,
        ))
    }

    /// Sets what is said of the journal.
    pub fn set(&self, options: &mut IntegrityOptions) -> Result<(), Error> {
        let read = |sealed: Sealed| match sealed {
            Some((name, path)) => {
                Ok::<_, Error>(Some(Keyed { algorithm: name, key: read_key(&SecretSource::file(path))? }))
            }
            None => Ok(None),
        };
        let (code, cipher) = self.spec()?;
        (options.journal_code, options.journal_cipher) = (read(code)?, read(cipher)?);
        Ok(())
    }
}
