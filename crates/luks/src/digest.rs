//! Digests of volume keys.

use crate::json::{Json, Object};
use crate::luks1;
use crate::luks2::encode;
use casemate_primitives::cpu::Cpu;
use casemate_primitives::secret::SecretVec;
use casemate_providers::Providers;

use super::random::Source;
use super::slot::DIGEST_LEN;
use super::slot::{check_hash, digest};
use crate::Error;

/// Iterations of the volume key's digest: cryptsetup's least. A volume key is random, and no digest is what it is guessed by.
pub(super) const DIGEST_ITERATIONS: u32 = 1000;

/// The digest of a key, or of what keys prove, with a new salt, for these key slots and no segment yet.
pub(super) fn new_digest(
    key: &SecretVec,
    hash: &str,
    keyslots: &[u32],
    random: &mut Source,
    providers: &Providers,
) -> Result<Object, Error> {
    check_hash(hash, *DIGEST_LEN.start(), providers)?;
    let mut salt = [0; luks1::SALT_LEN];
    random.fill(&mut salt)?;
    let len = providers.hash(hash)?.digest_len().min(64);
    let ids: Vec<String> = keyslots.iter().map(u32::to_string).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let value = digest(key, hash, &salt, DIGEST_ITERATIONS, len, providers)?;
    Ok(digest_json(hash, DIGEST_ITERATIONS, &salt, value.expose(), &ids, &[], providers.cpu()))
}

/// The digest of a key, for key slots and segments by their numbers.
pub(super) fn digest_json(
    hash: &str,
    iterations: u32,
    salt: &[u8],
    digest: &[u8],
    keyslots: &[&str],
    segments: &[&str],
    cpu: Cpu,
) -> Object {
    let names = |names: &[&str]| names.iter().map(|name| Json::from(*name)).collect::<Vec<Json>>();
    Object::default()
        .with("type", "pbkdf2")
        .with("keyslots", names(keyslots))
        .with("segments", names(segments))
        .with("hash", hash)
        .with("iterations", iterations)
        .with("salt", encode(salt, cpu))
        .with("digest", encode(digest, cpu))
}
