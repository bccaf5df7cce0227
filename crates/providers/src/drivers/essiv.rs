//! The template `essiv(MODE(CIPHER),HASH)`: the IV is the unit's number, encrypted under the hash of the key.

use std::sync::Arc;

use casemate_primitives::Cpu;
use casemate_primitives::secret::SecretVec;

use crate::driver::{Direction, Driver, DriverError, Ivs, MAX_IV_LEN};
use crate::engine::Algorithm;
use crate::flags::Flags;
use crate::hash::SaltedHash;
use crate::row::{CipherSpec, Row};

use super::boxed;

/// Hashes that dm-crypt mappings name in practice, with the digest's length, which must be a key's of the cipher.
const HASHES: &[(&str, usize)] = &[("sha256", 32), ("md5", 16), ("sm3", 32), ("blake2s-256", 32)];

/// The inner mode with the cipher that makes IVs.
struct Essiv {
    inner: Box<dyn Driver>,
    salt: Box<dyn Driver>,
}

impl Driver for Essiv {
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        let mut encrypted = [0; MAX_IV_LEN];
        let encrypted = &mut encrypted[..iv.len()];
        encrypted.copy_from_slice(iv);
        self.salt.one(Direction::Encrypt, &[], encrypted)?;
        self.inner.one(direction, encrypted, unit)
    }

    fn many(
        &self,
        direction: Direction,
        size: usize,
        ivs: &Ivs<'_>,
        iv_len: usize,
        data: &mut [u8],
    ) -> Result<(), DriverError> {
        let mut list = vec![0; data.len() / size * iv_len];
        for (k, iv) in list.chunks_exact_mut(iv_len).enumerate() {
            ivs.write(k, iv);
        }
        // The IVs' blocks are independent: one call for all of them.
        self.salt.one(Direction::Encrypt, &[], &mut list)?;
        self.inner.many(direction, size, &Ivs::List(&list), iv_len, data)
    }
}

/// The modes that mappings name with it: CBC, and now and then XTS, whose IVs it was not made for.
const MODES: &[&str] = &["cbc", "xts"];

/// A row for each row of these modes and each hash whose digest can be its cipher's key. The template hands on what the
/// inner row's flags say.
pub(super) fn rows(cpu: Cpu, inner_rows: &[Row]) -> Vec<Row> {
    let mut rows = Vec::new();
    for inner in inner_rows {
        let name = inner.algorithm.strip_suffix(')').and_then(|name| name.split_once('('));
        let (Some((mode, name)), Ok(spec)) = (name, inner.cipher()) else { continue };
        if !MODES.contains(&mode) {
            continue;
        }
        let ecb = format!("ecb({name})");
        let same =
            |row: &&Row| row.algorithm == ecb && (row.origin, row.priority) == (inner.origin, inner.priority);
        let Some(Ok(ecb)) = inner_rows.iter().find(same).map(Row::cipher) else { continue };
        for (hash_name, digest_len) in HASHES {
            if !ecb.key_lens.contains(digest_len) {
                continue;
            }
            let (inner_make, salt_make) = (Arc::clone(&spec.make), Arc::clone(&ecb.make));
            let make = move |key: &[u8]| {
                // OK to unwrap: the names above are in the table of hashes.
                let engine = Algorithm::named(hash_name).unwrap().best(cpu);
                let mut salt = SecretVec::zeroed(*digest_len);
                SaltedHash::new(&engine, *digest_len, &[], &[]).hash(key, salt.expose_mut());
                boxed(Essiv { inner: inner_make(key)?, salt: salt_make(salt.expose())? })
            };
            let spec = CipherSpec { key_lens: spec.key_lens.clone(), make: Arc::new(make), ..*spec };
            rows.push(Row::new(
                format!("essiv({},{hash_name})", inner.algorithm),
                format!("essiv({},{hash_name})", inner.driver),
                inner.priority,
                inner.flags.common(Flags::MULTI_DATA_UNIT),
                inner.origin,
                spec,
            ));
        }
    }
    rows
}
