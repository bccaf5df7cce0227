//! AES-256-XTS over data units, beside what encrypts sectors today.
//!
//! `xts [peers|backends|single|memory|threshold]`: 256 KiB of units against other libraries, back end against back
//! end, one unit in a call, and buffers larger than the caches. Without an argument: `peers`.

use std::ffi::c_int;
use std::hint::black_box;
use std::ptr;

use casemate_benches::Race;
use casemate_primitives::Cpu;
use casemate_primitives::aes::{AesXts, Units};
use casemate_primitives::testing::Rng;
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;

/// What a worker holds at a time, well inside L2.
const CACHED: usize = 256 * 1024;

/// A buffer that no cache holds.
const LARGE: usize = 64 << 20;

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_else(|| "peers".into());
    let both = [(512, true), (512, false), (4096, true), (4096, false)];
    match mode.as_str() {
        "peers" => both.into_iter().for_each(|(unit, encrypt)| peers(unit, encrypt, CACHED)),
        "single" => both.into_iter().for_each(|(unit, encrypt)| peers(unit, encrypt, unit)),
        "backends" => [16, 512, 520, 1024, 1536, 4096].into_iter().for_each(backends),
        "memory" => [512, 4096].into_iter().for_each(|unit| memory(unit, LARGE)),
        "threshold" => (18..=26).for_each(|bits| memory(4096, 1 << bits)),
        other => panic!("{other} is none of peers, single, backends, memory, threshold"),
    }
}

fn peers(unit: usize, encrypt: bool, len: usize) {
    let key = Rng::new(1).bytes(64);
    let mut data = Rng::new(2).bytes(len);
    let expected = {
        let mut out = data.clone();
        let xts = AesXts::new(Cpu::portable(), &key).expect("a key of 64 bytes");
        run(&xts, encrypt, unit, &mut out);
        out
    };
    let check = |name: &str, out: &[u8]| assert!(out == expected, "{name}: wrong output");
    let title =
        format!("{} {} of {unit} bytes", len / unit, if encrypt { "encryptions" } else { "decryptions" });
    let mut race = Race::new(title, len).items(len / unit);

    let xts = AesXts::new(Cpu::detect(), &key).expect("a key of 64 bytes");
    let mut own = data.clone();
    run(&xts, encrypt, unit, &mut own);
    check(xts.name(), &own);
    race.add(format!("casemate {}, one call", xts.name()), move || {
        run(&xts, encrypt, unit, black_box(&mut own))
    });
    if len != unit {
        let xts = AesXts::new(Cpu::detect(), &key).expect("a key of 64 bytes");
        let mut own = data.clone();
        race.add(format!("casemate {}, a call a unit", xts.name()), move || {
            for (k, unit_data) in black_box(&mut own).chunks_exact_mut(unit).enumerate() {
                let units = Units::counted(unit, k as u128, 1);
                if encrypt { xts.encrypt(&units, unit_data) } else { xts.decrypt(&units, unit_data) }
                    .expect("whole units");
            }
        });
    }

    let mut aws = AwsLc::new(&key, encrypt);
    let (src, mut out) = (data.clone(), vec![0; len]);
    aws.run(unit, &src, &mut out);
    check("aws-lc", &out);
    race.add("aws-lc EVP, a call a unit", move || aws.run(unit, black_box(&src), black_box(&mut out)));

    let mut ssl = OpenSsl::new(&key, encrypt);
    let (src, mut out) = (data.clone(), vec![0; len]);
    ssl.run(unit, &src, &mut out);
    check("openssl", &out);
    let name = format!("{} EVP, a call a unit", openssl::version::version());
    race.add(name, move || ssl.run(unit, black_box(&src), black_box(&mut out)));

    let rust_crypto = xts_mode::Xts128::<aes::Aes256>::new(cipher(&key[..32]), cipher(&key[32..]));
    rust_crypto_run(&rust_crypto, encrypt, unit, &mut data);
    check("xts-mode", &data);
    race.add("RustCrypto xts-mode + aes", move || {
        rust_crypto_run(&rust_crypto, encrypt, unit, black_box(&mut data));
    });
    race.run();
}

fn run(xts: &AesXts, encrypt: bool, unit: usize, data: &mut [u8]) {
    let units = Units::counted(unit, 0, 1);
    if encrypt { xts.encrypt(&units, data) } else { xts.decrypt(&units, data) }.expect("whole units");
}

fn backends(unit: usize) {
    let key = Rng::new(1).bytes(64);
    let len = CACHED / unit * unit;
    for encrypt in [true, false] {
        let title = format!("{} of {unit} bytes", if encrypt { "encryptions" } else { "decryptions" });
        let mut race = Race::new(title, len).items(len / unit).rounds(11);
        for xts in AesXts::available(Cpu::detect(), &key).expect("a key of 64 bytes") {
            let mut data = Rng::new(2).bytes(len);
            race.add(xts.name(), move || run(&xts, encrypt, unit, black_box(&mut data)));
        }
        race.run();
    }
}

fn memory(unit: usize, len: usize) {
    let key = Rng::new(1).bytes(64);
    let xts = AesXts::new(Cpu::detect(), &key).expect("a key of 64 bytes");
    let src = Rng::new(2).bytes(len);
    let mut in_place = src.clone();
    let whole_lines = |buffer: &[u8]| buffer.as_ptr().align_offset(64);
    let (mut copied, mut out) = (vec![1; len + 64], vec![1; len + 64]);
    let (copied_at, out_at) = (whole_lines(&copied), whole_lines(&out));
    let mut race = Race::new(format!("{} KiB in units of {unit} bytes", len >> 10), len).rounds(15);
    race.add("memcpy", || black_box(&mut copied)[copied_at..][..len].copy_from_slice(black_box(&src)));
    race.add(format!("casemate {}, in place", xts.name()), || {
        run(&xts, true, unit, black_box(&mut in_place));
    });
    race.add(format!("casemate {}, out of place", xts.name()), || {
        let units = Units::counted(unit, 0, 1);
        xts.encrypt_to(&units, black_box(&src), &mut black_box(&mut out)[out_at..][..len])
            .expect("whole units");
    });
    race.run();
}

fn cipher(key: &[u8]) -> aes::Aes256 {
    aes::cipher::KeyInit::new_from_slice(key).expect("a key of 32 bytes")
}

fn rust_crypto_run(xts: &xts_mode::Xts128<aes::Aes256>, encrypt: bool, unit: usize, data: &mut [u8]) {
    for (k, unit) in data.chunks_exact_mut(unit).enumerate() {
        let tweak = (k as u128).to_le_bytes().into();
        if encrypt { xts.encrypt_sector(unit, tweak) } else { xts.decrypt_sector(unit, tweak) }
    }
}

/// Debian's OpenSSL, its key set once and the IV for each unit.
struct OpenSsl {
    context: CipherCtx,
    encrypt: bool,
}

impl OpenSsl {
    fn new(key: &[u8], encrypt: bool) -> OpenSsl {
        let mut context = CipherCtx::new().expect("a context");
        let cipher = Some(Cipher::aes_256_xts());
        if encrypt {
            context.encrypt_init(cipher, Some(key), None).expect("a key of 64 bytes");
        } else {
            context.decrypt_init(cipher, Some(key), None).expect("a key of 64 bytes");
        }
        OpenSsl { context, encrypt }
    }

    fn run(&mut self, unit: usize, src: &[u8], out: &mut [u8]) {
        for (k, (src, out)) in src.chunks_exact(unit).zip(out.chunks_exact_mut(unit)).enumerate() {
            let iv = (k as u128).to_le_bytes();
            if self.encrypt {
                self.context.encrypt_init(None, None, Some(&iv)).expect("an IV of 16 bytes");
            } else {
                self.context.decrypt_init(None, None, Some(&iv)).expect("an IV of 16 bytes");
            }
            self.context.cipher_update(src, Some(out)).expect("a unit");
        }
    }
}

/// AWS-LC, its key set once and the IV for each unit.
struct AwsLc {
    context: *mut aws_lc_sys::EVP_CIPHER_CTX,
    encrypt: bool,
}

impl AwsLc {
    fn new(key: &[u8], encrypt: bool) -> AwsLc {
        assert_eq!(key.len(), 64);
        // SAFETY: the context is new, and the key has the 64 bytes that the cipher reads.
        let context = unsafe {
            let context = aws_lc_sys::EVP_CIPHER_CTX_new();
            let cipher = aws_lc_sys::EVP_aes_256_xts();
            let made = aws_lc_sys::EVP_CipherInit_ex(
                context,
                cipher,
                ptr::null_mut(),
                key.as_ptr(),
                ptr::null(),
                encrypt.into(),
            );
            assert_eq!(made, 1);
            context
        };
        AwsLc { context, encrypt }
    }

    fn run(&mut self, unit: usize, src: &[u8], out: &mut [u8]) {
        for (k, (src, out)) in src.chunks_exact(unit).zip(out.chunks_exact_mut(unit)).enumerate() {
            let iv = (k as u128).to_le_bytes();
            let mut written: c_int = 0;
            // SAFETY: the context lives, the IV has 16 bytes, and source and target have `unit` bytes each.
            unsafe {
                let (none, key) = (ptr::null(), ptr::null());
                aws_lc_sys::EVP_CipherInit_ex(
                    self.context,
                    none,
                    ptr::null_mut(),
                    key,
                    iv.as_ptr(),
                    self.encrypt.into(),
                );
                let len = unit as c_int;
                aws_lc_sys::EVP_CipherUpdate(
                    self.context,
                    out.as_mut_ptr(),
                    &raw mut written,
                    src.as_ptr(),
                    len,
                );
            }
        }
    }
}

impl Drop for AwsLc {
    fn drop(&mut self) {
        // SAFETY: the context came from EVP_CIPHER_CTX_new and is freed once.
        unsafe { aws_lc_sys::EVP_CIPHER_CTX_free(self.context) }
    }
}
