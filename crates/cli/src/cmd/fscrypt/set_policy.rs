//! `casemate fscrypt set-policy`.

use std::ffi::OsString;
use std::path::PathBuf;

use casemate::blockdev::os::OsStrExt;
use casemate::ext4;
use casemate::fscrypt::read_raw_key;
use casemate::{Error, SecretSource};

use crate::answer::Answer;
use crate::cmd::ext4::change::ChangeArgs;
use crate::context::Context;

use super::policy::FscryptPolicyArgs;

/// Make an empty directory of an ext4 image encrypted.
///
/// New files in it are encrypted by casemate ext4 with --fscrypt-key, or by a kernel that has the key (fscryptctl
/// add_key). The default policy is of version 2, with a key for each file.
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
    #[command(flatten)]
    policy: FscryptPolicyArgs,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let key = read_raw_key(&SecretSource::file(&self.key))?;
        let policy = self.policy.policy();
        self.change.change(context, |writer| {
            ext4::set_policy(
                writer,
                self.change.file().display(),
                self.path.as_bytes(),
                key,
                &policy,
                context.providers(),
            )
        })
    }
}
