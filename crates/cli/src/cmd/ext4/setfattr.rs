//! `casemate ext4 setfattr`.

use std::ffi::OsString;

use casemate::base64::{Alphabet, Base64, Padding};
use casemate::blockdev::os::OsStrExt;
use casemate::{Error, hex};

use super::change::ChangeArgs;
use crate::answer::Answer;
use crate::context::Context;

/// Set or remove an extended attribute of files in an image.
#[derive(clap::Args, Debug)]
#[command(
    // -n is the attribute's name, as in setfattr.
    mut_arg("dry_run", |arg| arg.short(None)),
    after_help = "Examples:\n  casemate ext4 setfattr root.img -n user.origin -v build-7 /etc/motd\n  \
    casemate ext4 setfattr root.img -x user.origin /etc/motd"
)]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The attribute to set.
    #[arg(short, long, value_name = "NAME", required_unless_present = "remove", conflicts_with = "remove")]
    name: Option<OsString>,
    /// Its value: text, or bytes in hexadecimal behind 0x, or in base64 behind 0s [default: empty].
    #[arg(short, long, value_name = "VALUE", requires = "name")]
    value: Option<OsString>,
    /// The attribute to remove.
    #[arg(short = 'x', long, value_name = "NAME")]
    remove: Option<OsString>,
    /// The files.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Change symbolic links themselves.
    #[arg(long)]
    no_dereference: bool,
    // Its short form, -v, is the value here.
    #[arg(long, hide = true)]
    verbose: bool,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let value = decode_value(self.value.as_deref().unwrap_or_default().as_bytes(), context)?;
        let (name, value) = match (&self.name, &self.remove) {
            (Some(name), _) => (name, Some(&value[..])),
            (None, Some(name)) => (name, None),
            (None, None) => return Err(Error::argument("no attribute was named")),
        };
        self.change.change(context, |writer| {
            self.paths.iter().try_for_each(|path| {
                let changed = writer.set_xattr(path.as_bytes(), name.as_bytes(), value, !self.no_dereference);
                self.change.place(changed)
            })
        })
    }
}

/// An attribute's value as setfattr takes it: text, or bytes in hexadecimal behind 0x, or in base64 behind 0s.
pub fn decode_value(value: &[u8], context: &Context) -> Result<Vec<u8>, Error> {
    if let Some(digits) = value.strip_prefix(b"0x").or_else(|| value.strip_prefix(b"0X")) {
        return parse_hex(digits);
    }
    match value.strip_prefix(b"0s").or_else(|| value.strip_prefix(b"0S")) {
        Some(text) => Base64::new(context.cpu(), &Alphabet::STANDARD, Padding::Padded)
            .decode_to_vec(text)
            .map_err(|error| Error::argument(format!("not a value in base64: {error}"))),
        None => Ok(value.to_vec()),
    }
}

fn parse_hex(digits: &[u8]) -> Result<Vec<u8>, Error> {
    let bytes = std::str::from_utf8(digits).ok().and_then(hex::decode);
    bytes.ok_or_else(|| Error::argument("not a value in hexadecimal"))
}
