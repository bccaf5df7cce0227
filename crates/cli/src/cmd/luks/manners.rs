//! Manners of cryptsetup: what its command line says on the way, where a command is called by that name.

use casemate::Error;

use crate::context::Context;
use crate::passphrase::Asked;

/// Times the usual costs that an opening may have for cryptsetup's command line: 4 GiB of memory and 32 key slots, as there.
pub const CRYPTSETUP_LIMIT: u32 = 4;

/// Message for a wrong passphrase.
pub const WRONG_PASSPHRASE: &str = "No key available with this passphrase.";

/// Action on a key slot or a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    UnlockSlot(u32),
    CreateSlot(u32),
    SelectSlot(u32),
    RemoveSlot(u32),
    CreateToken(u32),
    RemoveToken(u32),
}

/// Purpose for which a passphrase is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Opening the volume.
    Open,
    /// Adding another one.
    Existing,
    /// Changing it.
    Changed,
    /// Converting its key slot.
    Converted,
    /// Removing its key slot.
    Removed,
    /// Proving that another key slot stays.
    Remaining,
    /// Proving that a reencryption is as it was begun.
    Verified,
    /// Finishing what a reencryption was rewriting when it was cut off.
    Recovered,
    /// Protecting a reencryption that nothing proves.
    Protected,
    /// A new volume.
    New,
    /// A key slot that is added.
    Added,
    /// A key slot whose passphrase is changed.
    Changing,
}

impl Wanted {
    /// Prompt for the passphrase.
    pub fn prompt(self, of: &str, context: &Context) -> String {
        let special = match (context.manners(), self) {
            (None, Wanted::Added | Wanted::Changing) => return format!("Enter new passphrase for {of}: "),
            (_, Wanted::Open | Wanted::New) | (None, _) => None,
            (_, Wanted::Existing) => Some("Enter any existing passphrase: "),
            (_, Wanted::Changed) => Some("Enter passphrase to be changed: "),
            (_, Wanted::Converted) => Some("Enter passphrase for keyslot to be converted: "),
            (_, Wanted::Removed) => Some("Enter passphrase to be deleted: "),
            (_, Wanted::Remaining) => Some("Enter any remaining passphrase: "),
            (_, Wanted::Verified) => Some("Enter passphrase to verify reencryption metadata digest: "),
            (_, Wanted::Recovered) => Some("Enter passphrase for reencryption recovery: "),
            (_, Wanted::Protected) => Some("Enter passphrase to protect and upgrade reencryption metadata: "),
            (_, Wanted::Added) => Some("Enter new passphrase for key slot: "),
            (_, Wanted::Changing) => Some("Enter new passphrase: "),
        };
        special.map_or_else(|| format!("Enter passphrase for {of}: "), str::to_owned)
    }

    /// How often it is asked for.
    pub fn asked(self, context: &Context) -> Asked {
        let is_new = matches!(self, Wanted::New | Wanted::Added | Wanted::Changing);
        match context.manners().and_then(|manners| manners.verify).unwrap_or(is_new) {
            true => Asked::Twice,
            false => Asked::Once,
        }
    }
}

impl Context {
    /// Tells what was done with a key slot or a token, as cryptsetup does if it is told to talk.
    pub fn did(&self, did: Did) -> Result<(), Error> {
        let text = match did {
            Did::UnlockSlot(slot) => format!("Key slot {slot} unlocked."),
            Did::CreateSlot(slot) => format!("Key slot {slot} created."),
            Did::SelectSlot(slot) => format!("Keyslot {slot} is selected for deletion."),
            Did::RemoveSlot(slot) => format!("Key slot {slot} removed."),
            Did::CreateToken(token) => format!("Token {token} created."),
            Did::RemoveToken(token) => format!("Token {token} removed."),
        };
        match self.manners().is_some_and(|manners| manners.verbose) {
            true => self.print(text + "\n"),
            false => Ok(()),
        }
    }
}
