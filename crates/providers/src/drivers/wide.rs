//! Our own wide-block ciphers, Adiantum and HCTR2: a data unit is one block.

use std::sync::Arc;

use casemate_primitives::Cpu;
use casemate_primitives::adiantum::{Adiantum, Rounds};
use casemate_primitives::hctr2::Hctr2;

use crate::driver::{Direction, Driver, DriverError};
use crate::flags::{Flags, Origin};
use crate::row::{BadKey, CipherSpec, MakeCipher, Row};

use super::boxed;

/// Below the rows of AES's own modes only in the list: nothing else has these names.
const PRIORITY: u32 = 400;

impl Driver for Adiantum {
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        // OK to unwrap: the registry hands over IVs of 32 bytes.
        let tweak = iv.try_into().unwrap();
        let done = match direction {
            Direction::Encrypt => self.encrypt(tweak, unit),
            Direction::Decrypt => self.decrypt(tweak, unit),
        };
        done.map_err(|error| DriverError(error.to_string()))
    }
}

impl Driver for Hctr2 {
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        // OK to unwrap: the registry hands over IVs of 32 bytes.
        let tweak = iv.try_into().unwrap();
        let done = match direction {
            Direction::Encrypt => self.encrypt(tweak, unit),
            Direction::Decrypt => self.decrypt(tweak, unit),
        };
        done.map_err(|error| DriverError(error.to_string()))
    }
}

pub(super) fn rows(cpu: Cpu) -> Vec<Row> {
    let bad = |error: casemate_primitives::aes::KeyError| BadKey(error.to_string());
    let adiantum = |rounds: Rounds| -> Arc<MakeCipher> {
        Arc::new(move |key: &[u8]| boxed(Adiantum::new(cpu, rounds, key).map_err(bad)?))
    };
    let hctr2: Arc<MakeCipher> = Arc::new(move |key: &[u8]| boxed(Hctr2::new(cpu, key).map_err(bad)?));
    let row = |algorithm: &str, driver: &str, key_lens, make| {
        let spec = CipherSpec { iv_len: 32, block_len: 16, whole_blocks: false, key_lens, make };
        Row::new(algorithm, driver, PRIORITY, Flags::NONE, Origin::Own, spec)
    };
    vec![
        row("adiantum(xchacha12,aes)", "adiantum-xchacha12-aes", vec![32], adiantum(Rounds::Twelve)),
        row("adiantum(xchacha20,aes)", "adiantum-xchacha20-aes", vec![32], adiantum(Rounds::Twenty)),
        row("hctr2(aes)", "hctr2-aes", vec![32, 16, 24], hctr2),
    ]
}
