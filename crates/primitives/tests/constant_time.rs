//! The portable ciphers take no branch and no address from a key or from data: valgrind watches.
//!
//! The method is Langley's (ctgrind): secrets are marked as undefined, and memcheck reports every jump and every address
//! that depends on undefined bits. A test runs itself again under valgrind.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::arch::asm;
use std::process::Command;

use casemate_primitives::Cpu;
use casemate_primitives::aes::{Aes, AesCbc, AesXts, Units};
use casemate_primitives::hctr2::Hctr2;
use casemate_primitives::testing::Rng;

/// Set in the run under valgrind.
const WATCHED: &str = "CASEMATE_WATCHED";

/// memcheck's requests, from its header memcheck.h: `'M' << 24 | 'C' << 16`, plus one and two.
const MAKE_UNDEFINED: u64 = 0x4d43_0001;
const MAKE_DEFINED: u64 = 0x4d43_0002;

/// Asks valgrind something about `bytes`; without valgrind nothing happens.
fn request(code: u64, bytes: &[u8]) {
    let arguments = [code, bytes.as_ptr() as u64, bytes.len() as u64, 0, 0, 0];
    // SAFETY: four rotations by 128 bits in all and an exchange of a register with itself change nothing but flags;
    // valgrind takes them for a request, reads the six words at rax and writes its answer to rdx.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") 0_u64 => _,
            options(nostack),
        );
    }
}

/// Runs the test `name` of this file under valgrind; whether it found nothing, or `None` without valgrind.
fn watched(name: &str) -> Option<bool> {
    let this = std::env::current_exe().expect("the path of this program");
    let run = Command::new("valgrind")
        .args(["--quiet", "--error-exitcode=9", "--track-origins=no"])
        .arg(this)
        .args(["--exact", name, "--test-threads=1"])
        .env(WATCHED, "1")
        .output();
    match run {
        Ok(output) => {
            if output.status.code() != Some(0) {
                println!("{}", String::from_utf8_lossy(&output.stderr));
            }
            assert!([Some(0), Some(9)].contains(&output.status.code()), "{:?}", output.status);
            Some(output.status.success())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            casemate_testkit::skip("no valgrind");
            None
        }
        Err(error) => panic!("valgrind can't be run: {error}"),
    }
}

fn is_watched() -> bool {
    std::env::var_os(WATCHED).is_some()
}

#[test]
fn portable_ciphers_do_not_depend_on_secrets() {
    if !is_watched() {
        assert_ne!(watched("portable_ciphers_do_not_depend_on_secrets"), Some(false));
        return;
    }
    let cpu = Cpu::portable();
    let mut rng = Rng::new(1);
    for half in [16, 24, 32] {
        let key = rng.bytes(2 * half);
        // 100 is no multiple of a block: ciphertext stealing is among what is watched.
        let plain = rng.bytes(300);
        let mut data = plain.clone();
        request(MAKE_UNDEFINED, &key);
        request(MAKE_UNDEFINED, &data);
        let units = Units::counted(100, 5, 1);
        let xts = AesXts::new(cpu, &key).expect("a key of a right length");
        xts.encrypt(&units, &mut data).expect("whole units");
        xts.decrypt(&units, &mut data).expect("whole units");
        let cbc = AesCbc::new(cpu, &key[..half]).expect("a key of a right length");
        cbc.encrypt_cts(&units, &mut data).expect("whole units");
        cbc.decrypt_cts(&units, &mut data).expect("whole units");
        let blocks = Units::counted(48, 5, 1);
        cbc.encrypt(&blocks, &mut data[..288]).expect("whole units");
        cbc.decrypt(&blocks, &mut data[..288]).expect("whole units");
        let aes = Aes::new(cpu, &key[..half]).expect("a key of a right length");
        aes.ctr(&[1; 16], &mut data);
        aes.ctr(&[1; 16], &mut data);
        let hctr2 = Hctr2::new(cpu, &key[..half]).expect("a key of a right length");
        hctr2.encrypt(&[2; 32], &mut data).expect("more than a block");
        hctr2.decrypt(&[2; 32], &mut data).expect("more than a block");
        request(MAKE_DEFINED, &key);
        request(MAKE_DEFINED, &data);
        assert!(data == plain, "keys of {half} bytes");
    }
}

/// The method itself: a table indexed by a secret must be found.
#[test]
fn a_secret_index_is_noticed() {
    if !is_watched() {
        assert_ne!(watched("a_secret_index_is_noticed"), Some(true));
        return;
    }
    let table = Rng::new(2).bytes(256);
    let secret = Rng::new(3).bytes(1);
    request(MAKE_UNDEFINED, &secret);
    std::hint::black_box(std::hint::black_box(&table)[usize::from(secret[0])]);
}
