//! Our own AES, one row for each mode and back end.

use std::sync::Arc;

use casemate_primitives::Cpu;
use casemate_primitives::aes::{Aes, AesBackend, AesCbc, AesXts, KeyError, Units};
use casemate_primitives::aes::{Ivs as UnitIvs, UnitError};

use crate::driver::{Direction, Driver, DriverError, Ivs};
use crate::flags::{Flags, Origin};
use crate::row::{BadKey, CipherSpec, Row};

use super::boxed;

/// The kernel's habit for AES-NI is 400 and for AVX-512 800; the order is what counts, and it is the primitives'.
const HIGHEST_PRIORITY: u32 = 800;

/// A mode of AES over many data units.
#[derive(Clone, Copy)]
enum Mode {
    Xts,
    Cbc,
    Cts,
}

struct Keyed<C> {
    cipher: C,
    run: fn(&C, Direction, &Units<'_>, &mut [u8]) -> Result<(), UnitError>,
}

impl<C: Send + Sync> Driver for Keyed<C> {
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        self.many(direction, unit.len(), &Ivs::List(iv), 16, unit)
    }

    fn many(
        &self,
        direction: Direction,
        size: usize,
        ivs: &Ivs<'_>,
        _iv_len: usize,
        data: &mut [u8],
    ) -> Result<(), DriverError> {
        let ivs = match *ivs {
            Ivs::Little { first, step } => UnitIvs::Little { first, step },
            Ivs::Big { first, step } => UnitIvs::Big { first, step },
            Ivs::List(list) => UnitIvs::List(list.as_chunks().0),
        };
        (self.run)(&self.cipher, direction, &Units { size, ivs }, data)
            .map_err(|error| DriverError(error.to_string()))
    }
}

/// AES without chaining, whole blocks.
struct Ecb(Aes);

impl Driver for Ecb {
    fn one(&self, direction: Direction, _iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        let blocks = unit.as_chunks_mut().0;
        match direction {
            Direction::Encrypt => self.0.encrypt_blocks(blocks),
            Direction::Decrypt => self.0.decrypt_blocks(blocks),
        }
        Ok(())
    }
}

/// AES as a stream: the IV is the first counter block, big-endian.
struct Ctr(Aes);

impl Driver for Ctr {
    fn one(&self, _direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        // OK to unwrap: the registry hands over IVs of 16 bytes.
        self.0.ctr(iv.try_into().unwrap(), unit);
        Ok(())
    }
}

pub(super) fn rows(cpu: Cpu) -> Vec<Row> {
    let mut rows = Vec::new();
    for (place, backend) in (0..).zip(AesBackend::available(cpu)) {
        let name = backend.name();
        let priority = HIGHEST_PRIORITY.saturating_sub(100 * place);
        let mut add = |algorithm: &str, mode: &str, flags, spec| {
            rows.push(Row::new(algorithm, format!("{mode}-aes-{name}"), priority, flags, Origin::Own, spec));
        };
        for (mode, algorithm, short) in [
            (Mode::Xts, "xts(aes)", "xts"),
            (Mode::Cbc, "cbc(aes)", "cbc"),
            (Mode::Cts, "cts(cbc(aes))", "cts-cbc"),
        ] {
            add(algorithm, short, Flags::MULTI_DATA_UNIT, many_units(backend, mode));
        }
        let single = |iv_len, block_len, make| CipherSpec {
            iv_len,
            block_len,
            whole_blocks: true,
            key_lens: vec![32, 16, 24],
            make,
        };
        let aes = move |key: &[u8]| Aes::with_backend(backend, key).map_err(bad);
        let ecb = move |key: &[u8]| boxed(Ecb(aes(key)?));
        add("ecb(aes)", "ecb", Flags::NONE, single(0, 16, Arc::new(ecb)));
        let ctr = move |key: &[u8]| boxed(Ctr(aes(key)?));
        add("ctr(aes)", "ctr", Flags::NONE, single(16, 1, Arc::new(ctr)));
    }
    rows
}

fn bad(error: KeyError) -> BadKey {
    BadKey(error.to_string())
}

fn many_units(backend: AesBackend, mode: Mode) -> CipherSpec {
    let cbc = move |key: &[u8]| AesCbc::with_backend(backend, key).map_err(bad);
    let make = move |key: &[u8]| -> Result<Box<dyn Driver>, BadKey> {
        Ok(match mode {
            Mode::Xts => {
                let cipher = AesXts::with_backend(backend, key).map_err(bad)?;
                Box::new(Keyed { cipher, run: run_xts })
            }
            Mode::Cbc => Box::new(Keyed { cipher: cbc(key)?, run: run_cbc }),
            Mode::Cts => Box::new(Keyed { cipher: cbc(key)?, run: run_cts }),
        })
    };
    CipherSpec {
        iv_len: 16,
        block_len: 16,
        whole_blocks: matches!(mode, Mode::Cbc),
        key_lens: if matches!(mode, Mode::Xts) { vec![64, 32, 48] } else { vec![32, 16, 24] },
        make: Arc::new(make),
    }
}

fn run_xts(xts: &AesXts, direction: Direction, units: &Units<'_>, data: &mut [u8]) -> Result<(), UnitError> {
    match direction {
        Direction::Encrypt => xts.encrypt(units, data),
        Direction::Decrypt => xts.decrypt(units, data),
    }
}

fn run_cbc(cbc: &AesCbc, direction: Direction, units: &Units<'_>, data: &mut [u8]) -> Result<(), UnitError> {
    match direction {
        Direction::Encrypt => cbc.encrypt(units, data),
        Direction::Decrypt => cbc.decrypt(units, data),
    }
}

fn run_cts(cbc: &AesCbc, direction: Direction, units: &Units<'_>, data: &mut [u8]) -> Result<(), UnitError> {
    match direction {
        Direction::Encrypt => cbc.encrypt_cts(units, data),
        Direction::Decrypt => cbc.decrypt_cts(units, data),
    }
}
