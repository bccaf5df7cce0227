//! The tests of a hash: a known digest, then random messages against the vetted crate's code, one by one and many at
//! a time.

use casemate_primitives::rng::Rng;
use casemate_primitives::{Messages, hex};

use super::digests;
use crate::hash::SaltedHash;
use crate::row::{HashSpec, Row};

/// Lengths of random messages: around the blocks and paddings of every algorithm here, and a page.
const LENGTHS: [usize; 14] = [0, 1, 55, 56, 63, 64, 65, 111, 112, 128, 135, 137, 1000, 4096];

/// How many messages a batch has: below, at and above the lanes of every back end.
const COUNTS: [usize; 8] = [2, 3, 8, 9, 16, 17, 32, 35];

pub(super) fn run(row: &Row, spec: &HashSpec) -> Result<(), String> {
    let message: Vec<u8> = (0..=u8::MAX).cycle().take(300).collect();
    if let Some((known, source)) = digests::of(&row.algorithm)
        && hex::encode(&digest_of(spec, &[], &message)?) != known
    {
        return Err(format!("a known digest differs ({source})"));
    }
    let portable = HashSpec::cold(&row.algorithm);
    let mut random = Rng::new(0x2545_f491_4f6c_dd1d);
    for len in LENGTHS {
        let mut data = vec![0; len + len / 3];
        random.fill(&mut data);
        let (salt, message) = data.split_at(len / 3);
        if digest_of(spec, salt, message)? != digest_of(&portable, salt, message)? {
            return Err(format!("{len} random bytes hash differently from the portable code"));
        }
    }
    let Some(own) = spec.salted(b"salt", b"") else { return Ok(()) };
    for (count, len) in COUNTS.into_iter().zip([64, 512, 100, 512, 119, 64, 512, 512]) {
        let mut data = vec![0; count * len];
        random.fill(&mut data);
        let mut batch = vec![0; count * spec.digest_len()];
        own.hash_many(Messages::contiguous(&data, len), &mut batch);
        let singles = data.chunks(len).map(|message| digest_of(&portable, b"salt", message));
        if singles.collect::<Result<Vec<_>, _>>()?.concat() != batch {
            return Err(format!("{count} messages of {len} bytes in one request differ from single ones"));
        }
    }
    Ok(())
}

fn digest_of(spec: &HashSpec, salt: &[u8], message: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = vec![0; spec.digest_len()];
    match spec.salted(salt, b"") {
        Some(own) => SaltedHash::hash(&own, message, &mut out),
        None => spec.ask(&[salt, message], &mut out).map_err(|error| error.0)?,
    }
    Ok(out)
}
