//! Messages of cryptsetup for errors, chosen by an error's kind and reason, never by its text.

use std::path::PathBuf;

use casemate::luks::Reason;
use casemate::{Error, ErrorKind, SecretMissing};

use super::options::Tool;
use crate::cmd::luks::confirm::Declined;
use crate::cmd::luks::manners::WRONG_PASSPHRASE;
use crate::passphrase::NotTheSame;

/// The status that an error is told by.
pub(super) fn status(error: &Error, tool: &Tool) -> u8 {
    let action = tool.action();
    match (error.cause::<Reason>(), error.kind()) {
        _ if error.cause::<NotTheSame>().is_some() => 2,
        // A volume that was not made is not an error of permission.
        _ if error.cause::<Declined>().is_some() => {
            if matches!(action.as_deref(), Some("luksFormat" | "repair" | "reencrypt")) { 1 } else { 2 }
        }
        (Some(Reason::ReencryptionNotProven), _) => 2,
        // Of the slots that it tries the last one is that of the reencryption, which holds no key.
        (Some(Reason::WrongPassphrase), _) if action.as_deref() == Some("repair") => 1,
        (_, ErrorKind::Mismatch) => 2,
        (_, ErrorKind::Busy) => 5,
        _ => 1,
    }
}

/// The tool's own words for an error that it knows.
pub(super) fn of(error: &Error, tool: &Tool, devices: &[PathBuf]) -> Option<String> {
    let action = tool.action().unwrap_or_default();
    if error.cause::<NotTheSame>().is_some() {
        return Some("Passphrases do not match.".to_owned());
    }
    if error.cause::<Declined>().is_some() {
        let aborted = match &*action {
            "luksFormat" | "luksUUID" | "reencrypt" | "repair" => "Operation aborted.",
            "erase" => "Operation aborted, keyslots were NOT wiped.",
            "luksKillSlot" | "luksRemoveKey" => "Operation aborted, the keyslot was NOT wiped.",
            "convert" => "Operation aborted, device was NOT converted.",
            _ => return None,
        };
        return Some(aborted.to_owned());
    }
    // Where a slot is only named to be opened, one that is not there is as good as none.
    let is_opening = matches!(&*action, "open" | "luksAddKey" | "luksChangeKey" | "reencrypt" | "repair");
    if let Some(missing) = error.cause::<SecretMissing>() {
        return Some(match (missing, &tool.volume_key_file) {
            (SecretMissing::Empty, _) => "Nothing to read on input.".to_owned(),
            (SecretMissing::Short { wanted }, Some(file)) => {
                format!("Cannot read {wanted} bytes from keyfile {}.", file.display())
            }
            _ => "Cannot read requested amount of data.".to_owned(),
        });
    }
    Some(match error.cause::<Reason>()? {
        Reason::NoHeader => {
            let device = devices.last()?.display();
            let is_luks2 = matches!(&*action, "luksConvertKey" | "config" | "token");
            let kind = if is_luks2 { "LUKS2" } else { "LUKS" };
            format!("Device {device} is not a valid {kind} device.")
        }
        Reason::WrongPassphrase => WRONG_PASSPHRASE.to_owned(),
        Reason::NoUsableSlot => "No usable keyslot is available.".to_owned(),
        Reason::SlotNotActive(_) if is_opening => "No usable keyslot is available.".to_owned(),
        Reason::SlotNotActive(slot) => format!("Keyslot {slot} is not active."),
        Reason::SlotInUse(slot) => format!("Key slot {slot} is full, please select another one."),
        Reason::SlotsFull => "All key slots full.".to_owned(),
        Reason::NoSuchSlot { slot, slots } => {
            format!("Key slot {slot} is invalid, please select between 0 and {}.", slots - 1)
        }
        Reason::SlotNotUnbound(slot) => format!("Keyslot {slot} does not contain unbound key."),
        Reason::SameVersion(version) => format!("Device is already LUKS{version} type."),
        Reason::WrongVolumeKey => "Volume key does not match the volume.".to_owned(),
        Reason::TokenNotThere(token) if action == "token" => match tool.words.get(1) {
            Some(word) if word == "export" => format!("Failed to get token {token} for export."),
            _ => format!("Token {token} is not in use."),
        },
        Reason::TokenInUse(token) => format!("Token {token} in use."),
        Reason::NoSuchToken(token) => format!("Token {token} is invalid."),
        Reason::NotAssigned { token, slot } => format!("Token {token} is not assigned to keyslot {slot}."),
        Reason::ReencryptionNotProven => "Reencryption metadata is invalid.".to_owned(),
        _ => return None,
    })
}
