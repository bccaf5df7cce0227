//! SHA-512 of many equal-length messages, beside what hashes them today.
//!
//! `sha512 [peers|backends|counts|memory] [name part]`: against other crates, back end against back end, batch sizes
//! around the crossovers, and buffers larger than the caches. Without an argument: `peers`.

use std::hint::black_box;

use casemate_benches::Race;
use casemate_primitives::sha512::{DIGEST_LEN, Sha512};
use casemate_primitives::testing::Rng;
use casemate_primitives::{Cpu, Feature, Messages};
use sha2::Digest;

/// Bytes of messages in the cache-sized races: what a worker holds at a time, well inside L2.
const BATCH: usize = 256 * 1024;

fn main() {
    let mut args = std::env::args().skip(1);
    let mode = args.next().unwrap_or_else(|| "peers".into());
    let filter = args.next().unwrap_or_default();
    let shapes = [(4096, 0), (4096, 32), (1024, 0), (1024, 32), (64, 0)];
    match mode.as_str() {
        "peers" => shapes.iter().for_each(|(len, salt)| peers(*len, *salt)),
        "backends" => shapes.iter().for_each(|(len, salt)| backends(*len, *salt, &filter)),
        "counts" => (1..=17).for_each(|count| counts(count, &filter)),
        "memory" => memory(&filter),
        other => panic!("{other} is none of peers, backends, counts, memory"),
    };
}

/// What the contestants write, for comparison.
fn expected(prefix: &[u8], messages: Messages<'_>) -> Vec<u8> {
    let digest = |k| sha2::Sha512::new().chain_update(prefix).chain_update(messages.get(k)).finalize();
    (0..messages.count()).flat_map(digest).collect()
}

fn peers(len: usize, salt: usize) {
    let data = Rng::new(1).bytes(BATCH);
    let prefix = Rng::new(2).bytes(salt);
    let messages = Messages::contiguous(&data, len);
    let expected = expected(&prefix, messages);
    let check = |name: &str, out: &[u8]| assert!(out == expected, "{name}: wrong digests");
    let title = format!("{} messages of {len} bytes, salt of {salt}", messages.count());
    let mut race = Race::new(title, BATCH).items(messages.count());

    for (name, cpu) in [("casemate", Cpu::detect()), ("casemate", Cpu::detect().without(Feature::Avx512))] {
        let sha = Sha512::new(cpu);
        let midstate = sha.midstate(&prefix);
        let mut out = vec![0; expected.len()];
        sha.hash_many(&midstate, messages, &[], &mut out);
        check(sha.name(), &out);
        race.add(format!("{name} {}", sha.name()), move || {
            sha.hash_many(&midstate, black_box(messages), &[], black_box(&mut out));
        });
    }

    one_by_one(&mut race, "openssl", &data, len, &prefix, &expected, |prefix, message, out| {
        let mut hash = openssl::sha::Sha512::new();
        hash.update(prefix);
        hash.update(message);
        out.copy_from_slice(&hash.finish());
    });
    one_by_one(&mut race, "sha2", &data, len, &prefix, &expected, |prefix, message, out| {
        let digest = sha2::Sha512::new().chain_update(prefix).chain_update(message).finalize();
        out.copy_from_slice(&digest);
    });
    one_by_one(&mut race, "ring", &data, len, &prefix, &expected, |prefix, message, out| {
        let mut hash = ring::digest::Context::new(&ring::digest::SHA512);
        hash.update(prefix);
        hash.update(message);
        out.copy_from_slice(hash.finish().as_ref());
    });
    one_by_one(&mut race, "aws-lc-rs", &data, len, &prefix, &expected, |prefix, message, out| {
        let mut hash = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA512);
        hash.update(prefix);
        hash.update(message);
        out.copy_from_slice(hash.finish().as_ref());
    });
    race.run();
}

/// Enters a contestant that knows single messages only.
fn one_by_one<'a>(
    race: &mut Race<'a>,
    name: &str,
    data: &'a [u8],
    len: usize,
    prefix: &'a [u8],
    expected: &[u8],
    hash: impl Fn(&[u8], &[u8], &mut [u8]) + 'a,
) {
    let mut out = vec![0; expected.len()];
    let all = move |out: &mut [u8]| {
        for (message, out) in data.chunks(len).zip(out.chunks_mut(DIGEST_LEN)) {
            hash(black_box(prefix), black_box(message), out);
        }
    };
    all(&mut out);
    assert!(out == expected, "{name}: wrong digests");
    race.add(name, move || all(black_box(&mut out)));
}

fn backends(len: usize, salt: usize, filter: &str) {
    let data = Rng::new(1).bytes(BATCH / 4096 * 4160);
    let prefix = Rng::new(2).bytes(salt);
    let messages = Messages::contiguous(&data[..BATCH], len);
    // Messages with a cache line between them, as a vectored read can place them.
    let spread = Messages::strided(&data, len, len + 64, data.len() / (len + 64));
    race_backends(
        format!("{} messages of {len} bytes, salt of {salt}", BATCH / len),
        &prefix,
        messages,
        filter,
    );
    if len == 4096 {
        let title = format!("{} messages of {len} bytes at stride 4160, salt of {salt}", BATCH / len);
        race_backends(title, &prefix, spread, filter);
    }
}

/// Batches of few messages: where a back end changes from one way of working to another.
fn counts(count: usize, filter: &str) {
    let data = Rng::new(1).bytes(count * 4096);
    let messages = Messages::contiguous(&data, 4096);
    race_backends(format!("{count} messages of 4096 bytes"), &[], messages, filter);
}

/// Messages that come from memory, not from a cache.
fn memory(filter: &str) {
    let data = Rng::new(1).bytes(256 << 20);
    let title = "64 Ki messages of 4096 bytes in memory".to_owned();
    race_backends(title, &[], Messages::contiguous(&data, 4096), filter);
}

fn race_backends(title: String, prefix: &[u8], messages: Messages<'_>, filter: &str) {
    let expected = expected(prefix, messages);
    let mut race = Race::new(title, messages.message_len() * messages.count()).items(messages.count());
    for sha in Sha512::available(Cpu::detect()).filter(|sha| sha.name().contains(filter)) {
        let midstate = sha.midstate(prefix);
        let mut out = vec![0; expected.len()];
        sha.hash_many(&midstate, messages, &[], &mut out);
        assert!(out == expected, "{}: wrong digests", sha.name());
        race.add(sha.name(), move || {
            sha.hash_many(&midstate, black_box(messages), &[], black_box(&mut out));
        });
    }
    race.run();
}
