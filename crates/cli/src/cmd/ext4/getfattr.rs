//! `casemate ext4 getfattr`.

use std::ffi::OsString;
use std::io::ErrorKind;

use clap::ValueEnum;
use serde_json::json;

use casemate::base64::{Alphabet, Base64, Padding};
use casemate::blockdev::os::OsStrExt;
use casemate::ext4::Xattr;
use casemate::{Error, hex};

use super::entry::shown;
use super::image::ImageArgs;
use crate::answer::Answer;
use crate::context::{Context, Failures};

/// Show extended attributes of files in all name spaces, as getfattr does.
///
/// With --json, one object a file, a line.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate ext4 getfattr -d root.img /bin/su\n\
    \x20 casemate ext4 setfattr root.img --name user.origin --value build-7 /etc/motd\n\
    \x20 casemate ext4 getfattr -n user.origin --only-values root.img /etc/motd")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
    /// The files; symbolic links are followed.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Show values, too.
    #[arg(short, long)]
    dump: bool,
    /// Show only this attribute, with its value.
    #[arg(short, long, value_name = "NAME")]
    name: Option<OsString>,
    /// Format of values [default: text, or base64 if more than an eighth is not text].
    #[arg(short, long, value_name = "ENCODING", value_enum)]
    encoding: Option<Encoding>,
    /// Write values as they are, and nothing else.
    #[arg(long)]
    only_values: bool,
    /// Read symbolic links themselves.
    #[arg(long)]
    no_dereference: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Encoding {
    Text,
    Hex,
    Base64,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let fs = self.image.open(context)?;
        let mut failures = Failures::default();
        for path in &self.paths {
            let inode = if self.no_dereference { fs.symlink_metadata(path) } else { fs.metadata(path) };
            let list =
                inode.and_then(|inode| fs.inodes().xattrs(&inode).map_err(|error| self.image.error(error)));
            let list = list.and_then(|list| self.wanted(list, path));
            match list {
                Ok(list) => context.print(self.lines(path, &list, context)?)?,
                Err(error) => failures.add(context, error),
            }
        }
        failures.finish()
    }

    fn wanted(&self, mut list: Vec<Xattr>, path: &OsString) -> Result<Vec<Xattr>, Error> {
        if let Some(name) = &self.name {
            list.retain(|xattr| xattr.name == name.as_bytes());
            if list.is_empty() {
                let text = format!("{}: no attribute {}", path.to_string_lossy(), name.to_string_lossy());
                return Err(self.image.error(Error::path(ErrorKind::NotFound, text)));
            }
        }
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(list)
    }

    fn lines(&self, path: &OsString, list: &[Xattr], context: &Context) -> Result<Vec<u8>, Error> {
        if context.json() {
            let one = |xattr: &Xattr| json!({"name": String::from_utf8_lossy(&xattr.name), "value_hex": hex::encode(&xattr.value)});
            let xattrs: Vec<_> = list.iter().map(one).collect();
            return context.json_line(&json!({"path": path.to_string_lossy(), "xattrs": xattrs}));
        }
        if self.only_values {
            return Ok(list.iter().flat_map(|xattr| xattr.value.clone()).collect());
        }
        if list.is_empty() {
            return Ok(Vec::new());
        }
        // As getfattr does it, so that its output is for a copy of the tree.
        let path = path.as_bytes();
        let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
        let path = if start == path.len() { &b"."[..] } else { &path[start..] };
        let mut out = [b"# file: ", &shown(path)[..], b"\n"].concat();
        for xattr in list {
            out.extend(shown(&xattr.name));
            if self.dump || self.name.is_some() {
                out.push(b'=');
                out.extend(self.value(&xattr.value, context));
            }
            out.push(b'\n');
        }
        out.push(b'\n');
        Ok(out)
    }

    /// A value as setfattr takes it.
    fn value(&self, value: &[u8], context: &Context) -> Vec<u8> {
        // The byte that ends a string is not shown.
        let text = value.strip_suffix(b"\0").unwrap_or(value);
        let other = text.iter().filter(|byte| !(b' '..=b'~').contains(byte)).count();
        // As getfattr has it: an eighth may be something else.
        let usual = if other * 8 <= text.len() { Encoding::Text } else { Encoding::Base64 };
        match self.encoding.unwrap_or(usual) {
            Encoding::Hex => format!("0x{}", hex::encode(value)).into_bytes(),
            Encoding::Base64 => {
                let codec = Base64::new(context.cpu(), &Alphabet::STANDARD, Padding::Padded);
                format!("0s{}", codec.encode_to_string(value)).into_bytes()
            }
            Encoding::Text => {
                let mut out = vec![b'"'];
                for byte in text {
                    match byte {
                        b'"' | b'\\' => out.extend([b'\\', *byte]),
                        b'\n' | b'\r' | 0 => out.extend(format!("\\{byte:03o}").bytes()),
                        byte => out.push(*byte),
                    }
                }
                out.push(b'"');
                out
            }
        }
    }
}
