//! `casemate fscrypt encrypt-name`, `decrypt-name` and `nokey-name`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};

use serde_json::json;

use casemate::Error;
use casemate::blockdev::Stream;
use casemate::blockdev::os::{OsStrExt, OsStringExt};
use casemate::fscrypt::{LONGEST_NAME, NoKeyName};
use casemate::hex;

use super::inode::InodeArgs;
use crate::answer::Answer;
use crate::context::Context;

/// Encrypt names of a directory; prints the ciphertext of each in hexadecimal.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate fscrypt encrypt-name --fscrypt-key master.key \\\n\
    \x20     --nonce 00112233445566778899aabbccddeeff --padding 4 \"secret plans\"")]
pub struct EncryptArgs {
    #[command(flatten)]
    inode: InodeArgs,
    /// The names are targets of symbolic links: print their stored form, with its length.
    #[arg(long)]
    symlink: bool,
    /// The names; without any, the lines of standard input.
    #[arg(value_name = "NAME")]
    names: Vec<OsString>,
}

/// Decrypt names of a directory from ciphertext in hexadecimal.
#[derive(clap::Args, Debug)]
pub struct DecryptArgs {
    #[command(flatten)]
    inode: InodeArgs,
    /// The input is the stored form of symbolic links' targets, with its length.
    #[arg(long)]
    symlink: bool,
    /// The names' ciphertext; without any, the lines of standard input.
    #[arg(value_name = "HEX")]
    names: Vec<OsString>,
}

/// Convert ciphertext of names in hexadecimal to the names that are shown without the key, or back.
#[derive(clap::Args, Debug)]
pub struct NoKeyArgs {
    /// Decode shown names: print hash, minor hash, ciphertext and, for long names, SHA-256 of the rest.
    #[arg(short, long)]
    decode: bool,
    /// The name's hash in its directory's tree.
    #[arg(long = "name-hash", alias = "hash", value_name = "NUMBER", default_value = "0", value_parser = number, conflicts_with = "decode")]
    hash: u32,
    /// The name's minor hash.
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = number, conflicts_with = "decode")]
    minor_hash: u32,
    /// The names, behind -- where one begins with a hyphen; without any, the lines of standard input.
    #[arg(value_name = "HEX")]
    names: Vec<OsString>,
}

impl EncryptArgs {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let (key, inode) = self.inode.keyed(context)?;
        let cipher = key.names(&inode)?;
        each(context, self.names, |name| {
            let ciphertext = match self.symlink {
                true => cipher.encrypt_symlink(name, inode.block_size)?,
                false => cipher.encrypt(name, LONGEST_NAME)?,
            };
            Ok((json!({"ciphertext": hex::encode(&ciphertext)}), hex::encode(&ciphertext).into_bytes()))
        })
    }
}

impl DecryptArgs {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let (key, inode) = self.inode.keyed(context)?;
        let cipher = key.names(&inode)?;
        each(context, self.names, |digits| {
            let ciphertext = digits_of(digits)?;
            let name = match self.symlink {
                true => cipher.decrypt_symlink(&ciphertext)?,
                false => cipher.decrypt(&ciphertext)?,
            };
            Ok((json!({"name": String::from_utf8_lossy(&name), "name_hex": hex::encode(&name)}), name))
        })
    }
}

impl NoKeyArgs {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let providers = context.providers();
        each(context, self.names, |text| {
            if !self.decode {
                let name = NoKeyName::new(providers, [self.hash, self.minor_hash], &digits_of(text)?)?
                    .text(providers);
                return Ok((json!({"name": name}), name.into_bytes()));
            }
            let name = NoKeyName::from_text(providers, text)?;
            let [hash, minor] = name.hash;
            let rest = name.rest_sha256.map(|digest| hex::encode(&digest));
            let ciphertext = hex::encode(&name.ciphertext);
            let line =
                format!("{hash:#010x} {minor:#010x} {ciphertext} {}", rest.as_deref().unwrap_or_default());
            let value = json!({
                "hash": hash, "minor_hash": minor, "ciphertext": ciphertext, "rest_sha256": rest,
            });
            Ok((value, line.trim_end().as_bytes().to_vec()))
        })
    }
}

/// Prints a line for each name, or an object with --json.
fn each(
    context: &Context,
    names: Vec<OsString>,
    work: impl Fn(&[u8]) -> Result<(serde_json::Value, Vec<u8>), Error>,
) -> Result<Answer, Error> {
    let print = |name: &[u8]| {
        let (value, mut line) = work(name)?;
        line.push(b'\n');
        if context.json() { context.print_json(&value) } else { context.print(line) }
    };
    if !names.is_empty() {
        names.iter().try_for_each(|name| print(name.as_bytes()))?;
        return Ok(Answer::Yes);
    }
    let input = Stream::input().map_err(|error| Error::io("standard input", error))?;
    for line in BufReader::new(input).split(b'\n') {
        let line = line.map_err(|error| Error::io("standard input", error))?;
        print(OsString::from_vec(line).as_bytes())?;
    }
    Ok(Answer::Yes)
}

fn digits_of(text: &[u8]) -> Result<Vec<u8>, Error> {
    let bytes = str::from_utf8(text).ok().and_then(hex::decode);
    bytes.ok_or_else(|| Error::argument("a name that should be hexadecimal digits is not"))
}

fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| error.to_string())
}
