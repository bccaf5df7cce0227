//! The options that say how fscrypt encrypts.

use clap::ValueEnum;

use casemate::ext4::NewPolicy;
use casemate::fscrypt::{Ivs, Mode};

use crate::size::bytes;

/// An encryption policy, but for the key.
#[derive(clap::Args, Debug)]
pub struct FscryptPolicyArgs {
    /// Cipher mode of file contents.
    #[arg(long, value_name = "MODE", default_value = "aes-256-xts")]
    contents: Mode,
    /// Cipher mode of names and link targets.
    #[arg(long, value_name = "MODE", default_value = "aes-256-cts")]
    filenames: Mode,
    /// Pad names to a multiple of this many bytes.
    #[arg(long, value_name = "BYTES", default_value = "32", value_parser = bytes::<usize>)]
    padding: usize,
    /// Derive keys and IVs by this policy flag [default: a key for each file].
    #[arg(long, value_enum)]
    flag: Option<Flag>,
    /// The policy's version.
    #[arg(long, value_name = "1|2", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    policy_version: u8,
    /// Size of a data unit in bytes, if smaller than a block.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u32>)]
    data_unit_size: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Flag {
    DirectKey,
    IvInoLblk64,
    IvInoLblk32,
}

impl FscryptPolicyArgs {
    pub fn policy(&self) -> NewPolicy {
        let mut policy = NewPolicy::default();
        (policy.contents, policy.names, policy.padding) = (self.contents, self.filenames, self.padding);
        policy.ivs = match self.flag {
            None => Ivs::PerFileKey,
            Some(Flag::DirectKey) => Ivs::DirectKey,
            Some(Flag::IvInoLblk64) => Ivs::InodeBlock64,
            Some(Flag::IvInoLblk32) => Ivs::InodeBlock32,
        };
        policy.is_version_1 = self.policy_version == 1;
        policy.data_unit_size = self.data_unit_size;
        policy
    }
}
