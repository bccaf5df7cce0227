//! SHA-256 and SHA-512 under one template: every back end that this CPU can run, and what narrower CPUs choose,
//! against published vectors, vectors from Python's hashlib, and the `sha2` crate.

use casemate_primitives::testing::{Guarded, Rng};
use casemate_primitives::{Cpu, Feature, Messages, sha256, sha512};
use sha2::Digest;

/// The two hashes seen through one interface.
trait Hash: Copy {
    const NAME: &str;
    const DIGEST_LEN: usize;
    const BLOCK_LEN: usize;
    const VECTORS: &str;

    fn available(cpu: Cpu) -> Vec<Self>;
    fn best(cpu: Cpu) -> Self;
    fn name(&self) -> &'static str;
    fn hash_many(&self, prefix: &[u8], messages: Messages<'_>, suffix: &[u8], out: &mut [u8]);
    fn hash(&self, data: &[u8]) -> Vec<u8>;
    fn hash_pieces(&self, pieces: &[&[u8]]) -> Vec<u8>;
    /// The digest of all parts in a row, by somebody else.
    fn oracle(parts: &[&[u8]]) -> Vec<u8>;
}

macro_rules! hash {
    ($module:ident, $handle:ident) => {
        impl Hash for $module::$handle {
            const NAME: &str = stringify!($handle);
            const DIGEST_LEN: usize = $module::DIGEST_LEN;
            const BLOCK_LEN: usize = $module::BLOCK_LEN;
            const VECTORS: &str = include_str!(concat!("../../../vectors/", stringify!($module), ".json"));

            fn available(cpu: Cpu) -> Vec<Self> {
                Self::available(cpu).collect()
            }
            fn best(cpu: Cpu) -> Self {
                Self::new(cpu)
            }
            fn name(&self) -> &'static str {
                self.name()
            }
            fn hash_many(&self, prefix: &[u8], messages: Messages<'_>, suffix: &[u8], out: &mut [u8]) {
                self.hash_many(&self.midstate(prefix), messages, suffix, out);
            }
            fn hash(&self, data: &[u8]) -> Vec<u8> {
                self.hash(data).to_vec()
            }
            fn hash_pieces(&self, pieces: &[&[u8]]) -> Vec<u8> {
                let mut hasher = self.hasher();
                pieces.iter().for_each(|piece| hasher.update(piece));
                hasher.finalize().to_vec()
            }
            fn oracle(parts: &[&[u8]]) -> Vec<u8> {
                let mut oracle = sha2::$handle::new();
                parts.iter().for_each(|part| oracle.update(part));
                oracle.finalize().to_vec()
            }
        }
    };
}

hash!(sha256, Sha256);
hash!(sha512, Sha512);

/// A test for both hashes.
macro_rules! for_both {
    ($($test:ident),+ $(,)?) => {
        mod sha256_ {
            $(#[test] fn $test() { super::$test::<super::sha256::Sha256>(); })+
        }
        mod sha512_ {
            $(#[test] fn $test() { super::$test::<super::sha512::Sha512>(); })+
        }
    };
}

for_both!(
    published_vectors,
    vectors_of_an_independent_generator,
    every_length,
    every_batch_size,
    prefixes_and_suffixes,
    no_byte_outside_the_messages_is_touched,
    any_alignment_and_stride,
    pieces_of_any_length,
    output_of_another_length_is_refused,
    narrower_cpus,
);

/// The bytes that the vector files describe.
fn fill(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (seed + 31 * i + ((i * i) >> 7)) as u8).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks one batch on one back end; `case` tells the batch when it fails.
fn check<H: Hash>(sha: H, prefix: &[u8], messages: Messages<'_>, suffix: &[u8], expected: &[u8], case: &str) {
    let mut out = Guarded::at_end(messages.count() * H::DIGEST_LEN);
    out.fill(0xa5);
    sha.hash_many(prefix, messages, suffix, &mut out);
    let wrong = out.chunks(H::DIGEST_LEN).zip(expected.chunks(H::DIGEST_LEN)).position(|(a, b)| a != b);
    assert_eq!(
        wrong,
        None,
        "{}: this message of {} is wrong: prefix {}, length {}, suffix {}, {case}",
        sha.name(),
        messages.count(),
        prefix.len(),
        messages.message_len(),
        suffix.len()
    );
}

/// Checks one batch on every back end.
fn check_all<H: Hash>(prefix: &[u8], messages: Messages<'_>, suffix: &[u8], case: &str) {
    let expected: Vec<u8> =
        (0..messages.count()).flat_map(|k| H::oracle(&[prefix, messages.get(k), suffix])).collect();
    for sha in H::available(Cpu::detect()) {
        check(sha, prefix, messages, suffix, &expected, case);
    }
}

/// FIPS 180-4's examples, and the hash of nothing.
fn published_vectors<H: Hash>() {
    let million = vec![b'a'; 1_000_000];
    let two_blocks_256 = &b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"[..];
    let two_blocks_512 = &b"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn\
        hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"[..];
    let cases: [(&str, &[u8], &str); 8] = [
        ("Sha256", b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ("Sha256", two_blocks_256, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"),
        ("Sha256", &million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
        ("Sha256", b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (
            "Sha512",
            b"abc",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
        (
            "Sha512",
            two_blocks_512,
            "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018\
             501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909",
        ),
        (
            "Sha512",
            &million,
            "e718483d0ce769644e2e42c7bc15b4638e1f98b13b2044285632a803afa973eb\
             de0ff244877ea60a4cb0432ce577c31beb009c5c2c49aa2e4eadb217ad8cc09b",
        ),
        (
            "Sha512",
            b"",
            "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce\
             47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
        ),
    ];
    for sha in H::available(Cpu::detect()) {
        println!("{}: {}", H::NAME, sha.name());
        for (name, message, expected) in cases {
            if name == H::NAME {
                assert_eq!(hex(&sha.hash(message)), expected, "{}, {} bytes", sha.name(), message.len());
            }
        }
    }
}

fn vectors_of_an_independent_generator<H: Hash>() {
    let vectors: serde_json::Value = serde_json::from_str(H::VECTORS).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert!(cases.len() > 100);
    for case in cases {
        let number = |key: &str| case[key].as_u64().unwrap() as usize;
        let (message_len, count) = (number("message_len"), number("count"));
        let (prefix, suffix) = (fill(1, number("prefix_len")), fill(2, number("suffix_len")));
        let data = fill(3, message_len * count);
        for sha in H::available(Cpu::detect()) {
            let mut out = vec![0; count * H::DIGEST_LEN];
            sha.hash_many(
                &prefix,
                Messages::strided(&data, message_len, message_len, count),
                &suffix,
                &mut out,
            );
            let digest = hex(&sha.hash(&out));
            assert_eq!(digest, case["digest_of_digests"].as_str().unwrap(), "{}, {case}", sha.name());
        }
    }
}

/// Every message length to 4096, with prefix, suffix and count changing from length to length.
fn every_length<H: Hash>() {
    // 33 is one group of 32 lanes and one more; 17 and 9 the same for 16 and 8.
    let counts = [1, 2, 3, 9, 33, 4, 17];
    let prefix_lens = [0, 32, 0, 7, H::BLOCK_LEN];
    let suffix_lens = [0, 0, 32];
    let data = Rng::new(1).bytes(33 * 4096);
    let (prefix, suffix) = (fill(1, H::BLOCK_LEN), fill(2, 32));
    for len in 0..=4096 {
        let messages = Messages::strided(&data, len, len, counts[len % counts.len()]);
        let prefix = &prefix[..prefix_lens[len % prefix_lens.len()]];
        let suffix = &suffix[..suffix_lens[len % suffix_lens.len()]];
        check_all::<H>(prefix, messages, suffix, "seed 1");
    }
}

/// Every count from none to twice the widest back end and one more.
fn every_batch_size<H: Hash>() {
    let data = Rng::new(2).bytes(65 * 1024);
    for count in 0..=65 {
        for (len, prefix) in [(0, 0), (64, 0), (100, 32), (1024, 0), (1024, 32)] {
            let messages = Messages::strided(&data, len, len, count);
            check_all::<H>(&fill(1, prefix), messages, &[], "seed 2");
        }
    }
}

/// Every prefix length around two blocks against message lengths that fill no, one or two blocks with it, and
/// suffixes from none to more than the largest salt.
fn prefixes_and_suffixes<H: Hash>() {
    let data = Rng::new(3).bytes(33 * 300);
    for prefix in 0..=2 * H::BLOCK_LEN {
        for len in [0, 1, 63, 64, 130, 300] {
            let suffix = [0, 32, 1, 256, 3, 300][(prefix + len) % 6];
            let count = [1, 3, 17, 33][(prefix + len / 2) % 4];
            let messages = Messages::strided(&data, len, len, count);
            check_all::<H>(&fill(1, prefix), messages, &fill(2, suffix), "seed 3");
        }
    }
}

/// Messages that begin or end at a page without access; [`check`] puts the output before another one.
fn no_byte_outside_the_messages_is_touched<H: Hash>() {
    for len in [0, 1, 31, 55, 64, 111, 128, 160, 1024, 4096] {
        for count in [1, 2, 3, 8, 15, 16, 31, 32, 33] {
            let seed = (len * 100 + count) as u64;
            let data = Rng::new(seed).bytes(len * count);
            for prefix in [0, 20, 32] {
                let case = format!("seed {seed}");
                let at_end = Guarded::copy_at_end(&data);
                check_all::<H>(&fill(1, prefix), Messages::strided(&at_end, len, len, count), &[], &case);
                let at_start = Guarded::copy_at_start(&data);
                check_all::<H>(&fill(1, prefix), Messages::strided(&at_start, len, len, count), &[], &case);
            }
        }
    }
}

fn any_alignment_and_stride<H: Hash>() {
    let data = Rng::new(4).bytes(64 + 40 * 700);
    for offset in 0..64 {
        // Windows that overlap, lie side by side, have gaps, or are all the same one.
        for stride in [1, 500, 501, 564, 700, 0] {
            let messages = Messages::strided(&data[offset..], 500, stride, 40);
            check_all::<H>(&[], messages, &[], &format!("seed 4, offset {offset}, stride {stride}"));
        }
    }
}

fn pieces_of_any_length<H: Hash>() {
    let mut rng = Rng::new(5);
    let data = rng.bytes(2000);
    for round in 0..200 {
        let mut pieces = Vec::new();
        let mut rest = &data[..rng.below(2001) as usize];
        while !rest.is_empty() {
            let (piece, others) = rest.split_at(rng.below(rest.len().min(300) as u64 + 1) as usize);
            pieces.push(piece);
            rest = others;
        }
        let expected = H::oracle(&pieces);
        for sha in H::available(Cpu::detect()) {
            assert_eq!(sha.hash_pieces(&pieces), expected, "{}, seed 5, round {round}", sha.name());
        }
    }
}

fn output_of_another_length_is_refused<H: Hash>() {
    for sha in H::available(Cpu::detect()) {
        for len in [0, H::DIGEST_LEN, 3 * H::DIGEST_LEN - 1, 3 * H::DIGEST_LEN + 1, 4 * H::DIGEST_LEN] {
            let call = || sha.hash_many(&[], Messages::contiguous(&[0; 300], 100), &[], &mut vec![0; len]);
            let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err();
            assert!(refused, "{}: {len} bytes", sha.name());
        }
    }
}

/// Fewer features never give a back end that more features would not, and always give one.
fn narrower_cpus<H: Hash>() {
    let cpu = Cpu::detect();
    let names = |cpu| H::available(cpu).iter().map(H::name).collect::<Vec<_>>();
    assert_eq!(names(Cpu::portable()), ["portable"]);
    assert!(names(cpu).contains(&H::best(cpu).name()));
    assert_eq!(names(cpu).last(), Some(&"portable"));
    let features = [Feature::Avx512, Feature::ShaNi, Feature::Avx2, Feature::ArmSha2, Feature::ArmSha512];
    let mut narrow = cpu;
    for feature in features {
        let before = names(narrow);
        narrow = narrow.without(feature);
        println!("{}: {narrow:?} runs {:?}", H::NAME, names(narrow));
        assert!(names(narrow).iter().all(|name| before.contains(name)), "{feature:?}");
    }
    assert_eq!(names(narrow), ["portable"]);
}
