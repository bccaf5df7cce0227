//! Tokens of LUKS2: what somebody has noted for opening slots without a passphrase. They are kept as they are, whoever
//! made them.

use casemate_blockdev::usize_of;

use crate::Header;
use crate::json::{self, Json, Object};
use crate::luks2::TOKENS;
use casemate_providers::Work;

use super::unlock::no_slot;
use super::{Reason, Volume};
use crate::{Advice, Error};

/// Number of JSON values that a header may have after a token was added. Key slots, digests and segments, with those of a
/// reencryption, have fewer than a thousand.
const MOST_VALUES: u32 = json::MOST_VALUES - 4096;

/// Where a new token goes, and what slots it is of.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NewTokenOptions {
    /// The token's number; the first free one if `None`.
    pub id: Option<u32>,
    /// Whether a token of this number is replaced.
    pub overwrite: bool,
    /// The key slots that the token is assigned to, beside those that it names itself.
    pub slots: Vec<u32>,
}

/// A token that says under what name the kernel's keyring has the passphrase.
pub fn keyring_token(key_description: &str) -> Object {
    Object::default()
        .with("type", "luks2-keyring")
        .with("keyslots", Vec::new())
        .with("key_description", key_description)
}

/// Reads a token's JSON, as cryptsetup does.
///
/// # Errors
/// `Corrupt` for anything but a JSON object.
pub fn token_from_json(text: &[u8]) -> Result<Object, Error> {
    match Json::parse(text) {
        Some((Json::Object(token), end)) if end == text.len() => Ok(token),
        _ => Err(Error::corrupt("a token is a JSON object, and this is not one")),
    }
}

impl Volume {
    /// Adds a token. Returns its number.
    ///
    /// # Errors
    /// `Argument` if its number is taken or too high, or a slot is not there; `Corrupt` for JSON that is not a token;
    /// `Unsupported` for LUKS1, or if the header requires something; `Io`.
    pub fn add_token(
        &mut self,
        mut token: Object,
        options: &NewTokenOptions,
        work: &Work<'_>,
    ) -> Result<u32, Error> {
        match token.get("type").and_then(Json::bytes).unwrap_or_default() {
            b"luks2-keyring"
                if token.len() == 3 && token.get("key_description").and_then(Json::bytes).is_some() => {}
            b"luks2-keyring" => {
                let text = "a luks2-keyring token has type, keyslots and key_description, and nothing else";
                return Err(Error::corrupt(text));
            }
            kind if kind.starts_with(b"luks2-") => {
                let text = "of the types that begin with luks2- there is luks2-keyring alone";
                return Err(Error::corrupt(text));
            }
            _ => {}
        }
        let active = self.slots();
        if let Some(slot) = options.slots.iter().find(|slot| !active.contains(slot)) {
            return Err(no_slot(*slot).at(self.header_image.name()));
        }
        self.edit(work, |_, metadata| {
            let tokens = metadata.get("tokens").and_then(Json::object);
            let is_free = |id: &u32| tokens.is_none_or(|tokens| tokens.get(id.to_string()).is_none());
            let id = match options.id {
                None => (0..TOKENS).find(is_free).ok_or_else(|| Error::argument("no token is free"))?,
                Some(id) if id >= TOKENS => {
                    let text = format!("token {id}: tokens have numbers from 0 to {}", TOKENS - 1);
                    return Err(Reason::NoSuchToken(id).of(Error::argument(text)));
                }
                Some(id) if options.overwrite || is_free(&id) => id,
                Some(id) => {
                    let error = Error::argument(format!("token {id} exists")).advise(Advice::Overwrite);
                    return Err(Reason::TokenInUse(id).of(error));
                }
            };
            if let Some(Json::Array(names)) = token.get_mut("keyslots") {
                for slot in &options.slots {
                    let name = Json::from(slot.to_string());
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
            if let Some(tokens) = metadata.get_mut("tokens").and_then(Json::object_mut) {
                tokens.set(id.to_string(), token.into());
            }
            let values: usize = metadata.iter().map(|(_, value)| value.values()).sum();
            if values > usize_of(MOST_VALUES) {
                let text = format!(
                    "with this token the header would have {values} JSON values, and {MOST_VALUES} are supported: the rest is \
                     for key slots and for a reencryption"
                );
                return Err(Error::argument(text));
            }
            Ok(id)
        })
    }

    /// Removes a token.
    ///
    /// # Errors
    /// `Argument` if it is not there; `Unsupported`, `Io`.
    pub fn remove_token(&mut self, id: u32, work: &Work<'_>) -> Result<(), Error> {
        self.edit(work, |_, metadata| {
            let tokens = metadata.get_mut("tokens").and_then(Json::object_mut);
            let tokens =
                tokens.filter(|tokens| tokens.get(id.to_string()).is_some()).ok_or_else(|| no_token(id))?;
            tokens.retain(|name, _| name != id.to_string().as_bytes());
            Ok(())
        })
    }

    /// Takes a key slot from those that a token is of.
    ///
    /// # Errors
    /// `Argument` if the token is not there, or not of this slot; `Unsupported`, `Io`.
    pub fn unassign_token(&mut self, id: u32, slot: u32, work: &Work<'_>) -> Result<(), Error> {
        self.edit(work, |_, metadata| {
            let names =
                super::change::names_of(metadata, "tokens", &id.to_string()).ok_or_else(|| no_token(id))?;
            let before = names.len();
            names.retain(|name| name.bytes() != Some(slot.to_string().as_bytes()));
            match names.len() < before {
                true => Ok(()),
                false => {
                    let error = Error::argument(format!("token {id} is not of key slot {slot}"));
                    Err(Reason::NotAssigned { token: id, slot }.of(error))
                }
            }
        })
    }

    /// The JSON of a token.
    ///
    /// # Errors
    /// `Argument` if it is not there; `Unsupported` for LUKS1.
    pub fn token(&self, id: u32) -> Result<Json, Error> {
        let found = match &self.header {
            Header::Luks1(_) => Err(Error::unsupported("LUKS1 has no tokens; LUKS2 has")),
            Header::Luks2(header) => header.metadata.token(id).ok_or_else(|| no_token(id)),
        };
        found.map(|token| Json::from(token.clone())).map_err(|error| error.at(self.header_image.name()))
    }
}

fn no_token(id: u32) -> Error {
    Reason::TokenNotThere(id).of(Error::argument(format!("token {id} is not there")))
}
