//! Every mode on every back end against the definition, written plainly over another implementation's block.

use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

use crate::Cpu;
use crate::testing::{Guarded, Rng};

use super::{Aes, AesCbc, AesXts, Ivs, Units};

/// One block under `key`.
fn block(key: &[u8], decrypt: bool, bytes: &[u8]) -> [u8; 16] {
    let mut block = Array::try_from(bytes).expect("a block");
    macro_rules! with {
        ($cipher:ty) => {{
            let cipher = <$cipher>::new_from_slice(key).expect("a key of the cipher's length");
            if decrypt { cipher.decrypt_block(&mut block) } else { cipher.encrypt_block(&mut block) }
        }};
    }
    match key.len() {
        16 => with!(aes::Aes128),
        24 => with!(aes::Aes192),
        _ => with!(aes::Aes256),
    }
    block.into()
}

fn xor(a: &[u8], b: &[u8]) -> [u8; 16] {
    std::array::from_fn(|i| a[i] ^ b[i])
}

/// IEEE 1619, section 5: one unit.
fn naive_xts(key: &[u8], decrypt: bool, iv: [u8; 16], data: &mut [u8]) {
    let (data_key, tweak_key) = key.split_at(key.len() / 2);
    let mut tweak = u128::from_le_bytes(block(tweak_key, false, &iv));
    let mut tweaks = Vec::new();
    for _ in 0..data.len().div_ceil(16) {
        tweaks.push(tweak.to_le_bytes());
        tweak = (tweak << 1) ^ if tweak >> 127 == 1 { 0x87 } else { 0 };
    }
    let (whole, short) = (data.len() / 16, data.len() % 16);
    if decrypt && short != 0 {
        tweaks.swap(whole - 1, whole);
    }
    let crypt = |data: &mut [u8], tweak: &[u8]| {
        let out = xor(&block(data_key, decrypt, &xor(data, tweak)), tweak);
        data.copy_from_slice(&out);
    };
    for j in 0..whole {
        crypt(&mut data[16 * j..][..16], &tweaks[j]);
    }
    if short != 0 {
        for i in 0..short {
            data.swap(16 * (whole - 1) + i, 16 * whole + i);
        }
        crypt(&mut data[16 * (whole - 1)..][..16], &tweaks[whole]);
    }
}

fn naive_cbc(key: &[u8], decrypt: bool, iv: [u8; 16], data: &mut [u8]) {
    let mut chain = iv;
    for chunk in data.chunks_exact_mut(16) {
        let out = if decrypt {
            let out = xor(&block(key, true, chunk), &chain);
            chain.copy_from_slice(chunk);
            out
        } else {
            chain = block(key, false, &xor(chunk, &chain));
            chain
        };
        chunk.copy_from_slice(&out);
    }
}

/// Encryption only: plain CBC over the zero-padded unit, its last two blocks swapped, cut to length.
fn naive_cts(key: &[u8], _: bool, iv: [u8; 16], data: &mut [u8]) {
    let mut padded = data.to_vec();
    padded.resize(data.len().next_multiple_of(16), 0);
    naive_cbc(key, false, iv, &mut padded);
    if padded.len() > 16 {
        let end = padded.len();
        padded[end - 32..].rotate_left(16);
    }
    data.copy_from_slice(&padded[..data.len()]);
}

/// A naive mode on each unit.
fn each_unit(
    naive: fn(&[u8], bool, [u8; 16], &mut [u8]),
    key: &[u8],
    decrypt: bool,
    units: &Units<'_>,
    data: &mut [u8],
) {
    for (k, unit) in data.chunks_exact_mut(units.size).enumerate() {
        let iv = match units.ivs {
            Ivs::Little { first, step } => first.wrapping_add(k as u128 * u128::from(step)).to_le_bytes(),
            Ivs::Big { first, step } => first.wrapping_add(k as u128 * u128::from(step)).to_be_bytes(),
            Ivs::List(ivs) => ivs[k],
        };
        naive(key, decrypt, iv, unit);
    }
}

/// IVs that carry out of every width, with the steps that occur.
const COUNTERS: [(u128, u64); 6] = [
    (0, 1),
    (0xffff_fffe, 1),                    // out of 32 bits
    (0xffff_ffff_ffff_fffd, 1),          // out of 64
    (0xffff_ffff_ffff_fff0, 8),          // with 4096-byte sectors counted in 512 bytes
    (u128::MAX - 2, 1),                  // around
    (0x0123_4567_89ab_cdef << 64, 1000), // an IV that uses its high half
];

/// Differences of the modes that work on units.
struct Mode {
    name: &'static str,
    naive: fn(&[u8], bool, [u8; 16], &mut [u8]),
    /// Encrypts in place, decrypts in place.
    run: fn(&Handle, bool, &Units<'_>, &mut [u8]),
}

enum Handle {
    Xts(AesXts),
    Cbc(AesCbc),
}

const XTS: Mode = Mode {
    name: "xts",
    naive: naive_xts,
    run: |handle, decrypt, units, data| {
        let Handle::Xts(xts) = handle else { unreachable!("an XTS handle") };
        if decrypt { xts.decrypt(units, data) } else { xts.encrypt(units, data) }.expect("whole units");
    },
};

const CBC: Mode = Mode {
    name: "cbc",
    naive: naive_cbc,
    run: |handle, decrypt, units, data| {
        let Handle::Cbc(cbc) = handle else { unreachable!("a CBC handle") };
        if decrypt { cbc.decrypt(units, data) } else { cbc.encrypt(units, data) }.expect("whole units");
    },
};

const CTS: Mode = Mode {
    name: "cts",
    naive: naive_cts,
    run: |handle, decrypt, units, data| {
        let Handle::Cbc(cbc) = handle else { unreachable!("a CBC handle") };
        if decrypt { cbc.decrypt_cts(units, data) } else { cbc.encrypt_cts(units, data) }
            .expect("whole units");
    },
};

impl Mode {
    /// A handle of every back end for one key.
    fn handles(&self, key: &[u8]) -> Vec<(&'static str, Handle)> {
        let cpu = Cpu::detect();
        if self.name == "xts" {
            let handles = AesXts::available(cpu, key).expect("a key of a right length");
            handles.into_iter().map(|xts| (xts.name(), Handle::Xts(xts))).collect()
        } else {
            let handles = AesCbc::available(cpu, key).expect("a key of a right length");
            handles.into_iter().map(|cbc| (cbc.name(), Handle::Cbc(cbc))).collect()
        }
    }

    fn key_lengths(&self) -> &'static [usize] {
        if self.name == "xts" { AesXts::KEY_LENGTHS } else { AesCbc::KEY_LENGTHS }
    }

    /// Encrypts and decrypts `count` units between guard pages with every back end.
    fn check(&self, key: &[u8], handles: &[(&str, Handle)], units: &Units<'_>, count: usize, seed: u64) {
        let plain = Rng::new(seed).bytes(units.size * count);
        let mut cipher = plain.clone();
        each_unit(self.naive, key, false, units, &mut cipher);
        for (name, handle) in handles {
            let context = || {
                format!(
                    "{} on {name}: {count} units of {} bytes, {:?}, {}-byte key, seed {seed}",
                    self.name,
                    units.size,
                    units.ivs,
                    key.len()
                )
            };
            for guard in [Guarded::copy_at_end, Guarded::copy_at_start] {
                let mut data = guard(&plain);
                (self.run)(handle, false, units, &mut data);
                assert!(*data == *cipher, "encryption, {}", context());
                (self.run)(handle, true, units, &mut data);
                assert!(*data == *plain, "decryption, {}", context());
            }
        }
    }

    /// Unit sizes by counts by counters.
    fn sweep(&self, sizes: impl Iterator<Item = usize>, counts: &[usize]) {
        let mut seed = 1;
        for size in sizes {
            for &count in counts {
                seed += 1;
                let lengths = self.key_lengths();
                let key = Rng::new(seed << 32).bytes(lengths[seed as usize % lengths.len()]);
                let (first, step) = COUNTERS[seed as usize % COUNTERS.len()];
                let units = match seed % 3 {
                    0 => Units { size, ivs: Ivs::Big { first, step } },
                    _ => Units::counted(size, first, step),
                };
                self.check(&key, &self.handles(&key), &units, count, seed);
            }
        }
    }

    /// All that every mode on units must withstand; `block` is what a unit's size is a multiple of.
    fn template(&self, block: usize) {
        let sizes = || (16..=600).filter(|size| size % block == 0);
        self.sweep(sizes(), &[1, 2]);
        self.sweep(sizes().filter(|size| size % 48 == 0 || size % 67 == 0), &[3, 7, 33, 65]);
        let larger = [640, 992, 1008, 1024, 1040, 1055, 1536, 2048, 3072, 4095, 4096, 4097, 4112, 8192];
        self.sweep(larger.into_iter().filter(|size| size % block == 0), &[1, 2, 3, 5, 9]);
        // Batches: 0 is refused elsewhere; 65 is twice the widest batch of 32 units and one more.
        let counts: Vec<usize> = (1..=65).collect();
        self.sweep([16, 512].into_iter(), &counts);
        self.sweep([1024, 4096].into_iter(), &[31, 32, 33, 64, 65]);
        self.listed();
        self.every_counter();
    }

    fn every_counter(&self) {
        let key = Rng::new(7).bytes(self.key_lengths()[2]);
        let handles = self.handles(&key);
        for (first, step) in COUNTERS {
            for size in [512, 1024] {
                self.check(&key, &handles, &Units::counted(size, first, step), 37, 7);
                self.check(&key, &handles, &Units { size, ivs: Ivs::Big { first, step } }, 37, 7);
            }
        }
    }

    fn listed(&self) {
        let mut rng = Rng::new(8);
        for count in [1, 2, 31, 32, 33, 67] {
            let key = rng.bytes(self.key_lengths()[count % 3]);
            let ivs: Vec<[u8; 16]> =
                (0..count).map(|_| std::array::from_fn(|_| rng.next_u64() as u8)).collect();
            for size in [16, 80, 512, 1024] {
                self.check(&key, &self.handles(&key), &Units::listed(size, &ivs), count, 8);
            }
        }
    }
}

#[test]
fn xts_follows_its_definition() {
    XTS.template(1);
}

#[test]
fn cbc_follows_its_definition() {
    CBC.template(16);
}

#[test]
fn cts_follows_its_definition() {
    CTS.template(1);
}

#[test]
fn out_of_place_is_in_place_at_every_alignment() {
    let mut rng = Rng::new(9);
    let key = rng.bytes(64);
    for (size, count) in [(512, 9), (1024, 5), (4096, 3), (100, 7), (16, 40)] {
        let len = size * count;
        let (plain, units) = (rng.bytes(len), Units::counted(size, 77, 1));
        for xts in AesXts::available(Cpu::detect(), &key).expect("a key of 64 bytes") {
            let mut expected = plain.clone();
            xts.encrypt(&units, &mut expected).expect("whole units");
            let mut source = vec![0; len + 64];
            let mut target = vec![0; len + 64];
            for shift in 0..64 {
                let (from, to) = (shift, (shift * 7) % 64);
                source[from..][..len].copy_from_slice(&plain);
                target.fill(0xee);
                xts.encrypt_to(&units, &source[from..][..len], &mut target[to..][..len])
                    .expect("whole units");
                let context = format!("{} with {count} units of {size} from {from} to {to}", xts.name());
                assert!(target[to..][..len] == expected, "encryption, {context}");
                assert!(source[from..][..len] == plain, "the source stays, {context}");
                assert!(
                    target[..to].iter().chain(&target[to + len..]).all(|b| *b == 0xee),
                    "outside, {context}"
                );
                xts.decrypt_to(&units, &target[to..][..len], &mut source[from..][..len])
                    .expect("whole units");
                assert!(source[from..][..len] == plain, "decryption, {context}");
            }
        }
        for cbc in AesCbc::available(Cpu::detect(), &key[..32]).expect("a key of 32 bytes") {
            if size % 16 != 0 {
                continue;
            }
            let (mut expected, mut there, mut back) = (plain.clone(), vec![0; len], vec![0; len]);
            cbc.encrypt(&units, &mut expected).expect("whole units");
            cbc.encrypt_to(&units, &plain, &mut there).expect("whole units");
            assert!(there == expected, "{} with {count} units of {size}", cbc.name());
            cbc.decrypt_to(&units, &there, &mut back).expect("whole units");
            assert!(back == plain, "{} with {count} units of {size}", cbc.name());
        }
    }
}

#[test]
fn blocks_and_counters_follow_their_definitions() {
    let mut rng = Rng::new(10);
    let starts = [0, 1, u128::from(u64::MAX) - 2, u128::MAX - 20, 0x1234_5678 << 96];
    for len in (0..=700).chain([1024, 1040, 4095, 4096]) {
        let key = rng.bytes(Aes::KEY_LENGTHS[len % 3]);
        let start = starts[len % starts.len()];
        let plain = rng.bytes(len);
        let stream = |number: &dyn Fn(u128) -> [u8; 16]| -> Vec<u8> {
            let blocks = (0..len.div_ceil(16) as u128).flat_map(|i| block(&key, false, &number(i)));
            blocks.zip(&plain).map(|(key, byte)| key ^ byte).collect()
        };
        let ctr = stream(&|i| start.wrapping_add(i).to_be_bytes());
        let xctr = stream(&|i| (start ^ (i + 1)).to_le_bytes());
        for aes in Aes::available(Cpu::detect(), &key).expect("a key of a right length") {
            let context = format!("{} with {len} bytes from {start:#x}", aes.name());
            let mut data = Guarded::copy_at_end(&plain);
            aes.ctr(&start.to_be_bytes(), &mut data);
            assert!(*data == *ctr, "ctr, {context}");
            let mut apart = vec![0; len];
            aes.ctr_to(&start.to_be_bytes(), &plain, &mut apart).expect("equal lengths");
            assert!(apart == ctr, "ctr out of place, {context}");
            let mut data = Guarded::copy_at_start(&plain);
            aes.xctr(&start.to_le_bytes(), &mut data);
            assert!(*data == *xctr, "xctr, {context}");

            let mut blocks = plain.as_chunks().0.to_vec();
            aes.encrypt_blocks(&mut blocks);
            for (out, input) in blocks.iter().zip(plain.as_chunks::<16>().0) {
                assert_eq!(*out, block(&key, false, input), "encryption, {context}");
            }
            aes.decrypt_blocks(&mut blocks);
            assert!(blocks == plain.as_chunks().0, "decryption, {context}");
        }
    }
}

#[test]
fn every_length_of_key_is_checked() {
    for len in 0..=80 {
        let key = vec![1; len];
        assert_eq!(Aes::new(Cpu::detect(), &key).is_ok(), [16, 24, 32].contains(&len), "{len}");
        assert_eq!(AesCbc::new(Cpu::detect(), &key).is_ok(), [16, 24, 32].contains(&len), "{len}");
        assert_eq!(AesXts::new(Cpu::detect(), &key).is_ok(), [32, 48, 64].contains(&len), "{len}");
    }
    assert!(AesXts::halves_equal(&[3; 64]));
    assert!(!AesXts::halves_equal(&[[3; 32], [4; 32]].concat()));
}

#[test]
fn a_refused_buffer_is_left_alone() {
    let xts = AesXts::new(Cpu::detect(), &[5; 32]).expect("a key of 32 bytes");
    let mut data = [9; 48];
    for (size, len) in [(15, 45), (0, 16), (32, 48), (16, 0)] {
        assert!(xts.encrypt(&Units::counted(size, 0, 1), &mut data[..len]).is_err(), "{size} {len}");
    }
    assert!(xts.encrypt_to(&Units::counted(16, 0, 1), &[0; 32], &mut data).is_err());
    assert_eq!(data, [9; 48]);
}
