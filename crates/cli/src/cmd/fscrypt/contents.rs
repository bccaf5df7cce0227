//! `casemate fscrypt encrypt` and `casemate fscrypt decrypt`.

use casemate::Error;
use casemate::crypt::Direction;
use casemate::fscrypt::transform;

use super::inode::InodeArgs;
use crate::answer::Answer;
use crate::cmd::ends::Ends;
use crate::context::Context;
use crate::size::bytes;

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate fscrypt encrypt --fscrypt-key master.key \\\n\
    \x20     --nonce 00112233445566778899aabbccddeeff motd --output motd.enc\n\
    \x20 casemate fscrypt decrypt --fscrypt-key master.key \\\n\
    \x20     --nonce 00112233445566778899aabbccddeeff motd.enc --size 6")]
pub struct Args {
    #[command(flatten)]
    inode: InodeArgs,
    #[command(flatten)]
    ends: Ends,
    /// The number of the first data unit in its file.
    #[arg(long, value_name = "UNIT", default_value_t = 0)]
    first: u64,
    /// Write only this many bytes, the file's size.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    size: Option<u64>,
}

impl Args {
    pub fn run(self, direction: Direction, context: &Context) -> Result<Answer, Error> {
        let (key, inode) = self.inode.keyed(context)?;
        let cipher = key.contents(&inode)?;
        let size = self.size.unwrap_or(u64::MAX);
        self.ends
            .open(context, |input, output| transform(&cipher, direction, self.first, input, output, size))
    }
}
