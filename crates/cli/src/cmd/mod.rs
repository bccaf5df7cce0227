//! The table of commands. Each command is a file: its options, and a `run` that calls the facade and prints.

mod base64;
mod completions;
mod crypt;
pub mod ends;
mod explained;
pub mod ext4;
#[cfg(unix)]
mod fleet;
mod fscrypt;
pub mod fsverity;
pub mod info;
pub mod integrity;
pub mod journal;
#[cfg(target_os = "linux")]
mod key;
pub mod layers;
mod licenses;
pub mod luks;
mod man;
#[cfg(target_os = "linux")]
pub mod mount;
mod overlay;
pub mod overwrite;
pub mod place;
mod providers;
pub mod rescue;
#[cfg(target_os = "linux")]
mod serve;
pub mod signer;
mod table;
#[cfg(target_os = "linux")]
mod umount;
pub mod verity;

use casemate::Error;

use self::table::commands;
pub use self::table::described_for;
use crate::answer::Answer;

commands! {
    pub enum Command {
        Base64(base64::Args),
        Completions(completions::Args),
        Crypt(crypt::Args),
        Ext4(ext4::Args),
        #[cfg(unix)]
        Fleet(fleet::Args),
        Fscrypt(fscrypt::Args),
        Fsverity(fsverity::Args),
        Info(info::Args),
        Integrity(integrity::Args),
        #[cfg(target_os = "linux")]
        Key(key::Args),
        Licenses(licenses::Args),
        Luks(luks::Args),
        Man(man::Args),
        #[cfg(target_os = "linux")]
        Mount(mount::Args),
        Overlay(overlay::Args),
        Providers(providers::Args),
        Rescue(rescue::Args),
        #[cfg(target_os = "linux")]
        Serve(serve::Args),
        #[cfg(target_os = "linux")]
        Umount(umount::Args),
        Verity(verity::Args),
    }
}
