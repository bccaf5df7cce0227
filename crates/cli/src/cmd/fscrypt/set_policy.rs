//! `casemate fscrypt set-policy`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use casemate::ext4::{self, NewPolicy};
use casemate::fscrypt::{Mode, read_raw_key};
use casemate::{Error, SecretSource};

use crate::answer::Answer;
use crate::cmd::ext4::change::ChangeArgs;
use crate::context::Context;
use crate::size::bytes;

/// Make an empty directory of an ext4 image an encrypted one.
///
/// What is made in it from now on is encrypted, by casemate ext4 with --fscrypt-key or by a kernel that has the key
/// (fscryptctl add_key). The policy is one of version 2 with a key for each file.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  casemate ext4 mkdir root.img /secret\n  \
    casemate fscrypt set-policy root.img /secret --fscrypt-key master.key\n  \
    casemate ext4 put -r root.img private/. /secret --fscrypt-key master.key",
    // A directory that is reached through an encrypted one gets no policy of its own.
    mut_arg("files", |arg| arg.long("other-fscrypt-key").hide(true)))]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    /// The directory.
    #[arg(value_name = "PATH")]
    path: OsString,
    /// The file with the raw master key (16 to 64 bytes); "-" is standard input.
    #[arg(short, long = "fscrypt-key", alias = "key", value_name = "FILE")]
    key: PathBuf,
    /// How contents are encrypted.
    #[arg(long, value_name = "MODE", default_value = "aes-256-xts")]
    contents: Mode,
    /// How names and links are encrypted.
    #[arg(long, value_name = "MODE", default_value = "aes-256-cts")]
    filenames: Mode,
    /// Names are padded to a multiple of so many bytes: 4, 8, 16 or 32.
    #[arg(long, value_name = "BYTES", default_value = "32", value_parser = bytes::<usize>)]
    padding: usize,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let key = read_raw_key(&SecretSource::file(&self.key))?;
        let mut policy = NewPolicy::default();
        (policy.contents, policy.names, policy.padding) = (self.contents, self.filenames, self.padding);
        self.change.change(context, |writer| {
            ext4::set_policy(
                writer,
                self.change.image.display(),
                self.path.as_bytes(),
                key,
                &policy,
                context.providers(),
            )
        })
    }
}
