//! Key files that the real fscrypt 0.3.3 wrote; see fixtures/make.sh.

use casemate_blockdev::ErrorKind;
use std::path::Path;

use casemate_fscrypt::metadata::{PolicyFile, Protector, ProtectorKey, Source};
use casemate_fscrypt::{KeyId, MasterKey};
use casemate_providers::{KdfLimits, Providers};
use casemate_testkit::Rng;

/// KDF limits of these tests.
const LIMITS: KdfLimits = KdfLimits { memory: 1 << 20, work: 1 << 26, iterations: 0 };

fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tool").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A protector's file, its policy's, and what opens it.
const PAIRS: [(&str, &str, &[u8]); 5] = [
    ("82f952d951205f02", "2ed55afff2336e58c808228e5ba95f11", b"hunter2"),
    ("a08de91ab9e20c0a", "ef94d6a960898c3d1334a8bbe086923e", b"raw.key"),
    ("53d0d48042e59a17", "0861a08a341de34ee9fb426a418b9d3b", b"login-secret"),
    ("1ec0e42ac99a85e2", "54d7fd47ccc125739b40fff42acd1e20", b"other-words"),
    ("aeeb3f2d6f4b0e83", "be9bcaf6851e4a2f", b"old-words"),
];

fn secret(text: &[u8]) -> Vec<u8> {
    if text == b"raw.key" { file("raw.key") } else { text.to_vec() }
}

fn unlocked(protector: &str, text: &[u8]) -> ProtectorKey {
    Protector::from_bytes(&file(protector))
        .unwrap()
        .unlock(&Providers::default(), &secret(text), &LIMITS)
        .unwrap()
}

#[test]
fn every_kind_of_protector_opens_its_policy() {
    let providers = Providers::default();
    for (protector, policy, text) in PAIRS {
        let read = Protector::from_bytes(&file(protector)).unwrap();
        assert_eq!(read.id().to_string(), protector);
        let policy_file = PolicyFile::from_bytes(&file(policy)).unwrap();
        assert_eq!(policy_file.key().to_string(), policy);
        assert_eq!(policy_file.protectors().collect::<Vec<_>>(), [read.id()]);
        let key = policy_file.unlock(&providers, &unlocked(protector, text)).unwrap();
        let key = MasterKey::new(&providers, key).unwrap();
        match policy_file.key() {
            KeyId::Identifier(id) => assert_eq!(key.identifier(), id),
            KeyId::Descriptor(id) => assert_eq!(key.descriptor(), id),
        }
    }
    let source = |name| Protector::from_bytes(&file(name)).unwrap().source();
    assert!(matches!(source("53d0d48042e59a17"), Source::Login { uid: 0, .. }));
    assert_eq!(source("a08de91ab9e20c0a"), Source::RawKey);
    let Source::Passphrase(hashing) = source("1ec0e42ac99a85e2") else { panic!("a passphrase") };
    assert_eq!((hashing.costs.passes, hashing.costs.memory, hashing.costs.lanes), (2, 4096, 3));
}

#[test]
fn wrong_secrets_and_wrong_protectors_are_told() {
    let providers = Providers::default();
    for (protector, _, text) in PAIRS {
        let read = Protector::from_bytes(&file(protector)).unwrap();
        let mut wrong = secret(text);
        wrong[0] ^= 1;
        let error = read.unlock(&providers, &wrong, &LIMITS).unwrap_err();
        assert!(error.kind() == ErrorKind::Mismatch && error.text().contains(protector), "{error}");
    }
    let raw = Protector::from_bytes(&file("a08de91ab9e20c0a")).unwrap();
    let error = raw.unlock(&providers, &[0; 31], &LIMITS).unwrap_err().to_string();
    assert_eq!(error, "protector a08de91ab9e20c0a (raw key \"file\"): its key has 32 bytes, not 31");
    let other = PolicyFile::from_bytes(&file(PAIRS[0].1)).unwrap();
    let error = other.unlock(&providers, &unlocked(PAIRS[4].0, PAIRS[4].2)).unwrap_err();
    assert!(error.kind() == ErrorKind::Argument, "{error}");
}

/// A changed bit anywhere is an error, or changes nothing but what is only shown.
#[test]
fn damage_never_gives_another_key() {
    let providers = Providers::default();
    let (protector, policy, text) = PAIRS[1];
    let (protector, policy) = (file(protector), file(policy));
    let secret = secret(text);
    let key = |protector: &[u8], policy: &[u8]| {
        let key = Protector::from_bytes(protector)?.unlock(&providers, &secret, &LIMITS)?;
        PolicyFile::from_bytes(policy)?.unlock(&providers, &key)
    };
    let right = key(&protector, &policy).unwrap();
    let mut refused = 0;
    for (which, whole) in [&protector, &policy].into_iter().enumerate() {
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = if which == 0 { key(&bytes, &policy) } else { key(&protector, &bytes) };
            match found {
                Ok(found) => assert!(found == right, "file {which}, bit {bit}"),
                Err(_) => refused += 1,
            }
        }
        for len in 0..whole.len() {
            let cut = &whole[..len];
            let found = if which == 0 { key(cut, &policy) } else { key(&protector, cut) };
            assert!(found.is_err(), "file {which}, {len} bytes");
        }
    }
    // Ciphertexts, tags and descriptors alone are 248 bytes.
    assert!(refused > 248 * 8, "{refused}");
}

#[test]
fn random_files_do_not_panic() {
    let mut rng = Rng::new(7);
    let valid: Vec<Vec<u8>> = PAIRS.iter().flat_map(|(a, b, _)| [file(a), file(b)]).collect();
    for _ in 0..20_000 {
        let mut bytes = valid[rng.below(valid.len() as u64) as usize].clone();
        for _ in 0..=rng.below(8) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.below(256) as u8;
        }
        let _ = Protector::from_bytes(&bytes);
        let _ = PolicyFile::from_bytes(&bytes);
    }
    assert!(Protector::from_bytes(&[0; 20_000]).unwrap_err().to_string().contains("at most 16384"));
}

/// Costs are fields 2, 3 and 4 of a message in field 4: varints that this test puts in place of the tool's.
#[test]
fn absurd_costs_are_refused() {
    let whole = file("82f952d951205f02");
    let costs = [0x10, 2, 0x18, 0x80, 0x20, 0x20, 1];
    let at = whole.windows(7).position(|bytes| bytes == costs).expect("the costs of make.sh");
    let with = |time: u64, memory: u64, lanes: u64, fixed: bool| {
        let mut message = Vec::new();
        for (tag, value) in [(0x10, time), (0x18, memory), (0x20, lanes), (0x28, fixed.into())] {
            message.push(tag);
            let mut value = value;
            while value >= 0x80 {
                message.push(value as u8 | 0x80);
                value >>= 7;
            }
            message.push(value as u8);
        }
        [&whole[..at - 1], &[message.len() as u8], &message, &whole[at + 7..]].concat()
    };
    let error = |bytes: Vec<u8>| {
        Protector::from_bytes(&bytes)
            .and_then(|read| read.unlock(&Providers::default(), b"hunter2", &LIMITS).map(|_| ()))
            .unwrap_err()
    };
    assert!(
        Protector::from_bytes(&with(2, 4096, 1, true))
            .unwrap()
            .unlock(&Providers::default(), b"hunter2", &LIMITS)
            .is_ok()
    );
    for (time, memory) in [(1, 1 << 21), (1, u64::from(u32::MAX)), (1 << 20, 4096), ((1 << 32) - 1, 4096)] {
        let error = error(with(time, memory, 1, true));
        assert!(error.kind() == ErrorKind::Unsupported && error.text().contains("are granted"), "{error}");
    }
    for (time, memory, lanes) in
        [(0, 64, 1), (1, 64, 0), (1, 1 << 32, 1), (1 << 40, 64, 1), (u64::MAX, 64, 1), (1, 7, 1)]
    {
        let error = error(with(time, memory, lanes, true));
        assert!(error.kind() == ErrorKind::Corrupt, "{time} {memory} {lanes}: {error}");
    }
    // Before "truncation_fixed" the tool took the low 8 bits of the lanes.
    assert!(
        Protector::from_bytes(&with(2, 4096, 257, false))
            .unwrap()
            .unlock(&Providers::default(), b"hunter2", &LIMITS)
            .is_ok()
    );
    assert!(Protector::from_bytes(&with(2, 4096, 257, true)).is_err());
}
