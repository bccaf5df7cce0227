//! Self-tests that a row must pass before it is used.
//!
//! First known answers, where the algorithm has one here. Then random data: what is encrypted decrypts again,
//! and comes out as the portable code has it. Then, for rows with the multi-data-unit flag, one request of many
//! units against as many requests of one unit with derived IVs, in both directions, with counters that carry
//! across 32 and 64 bits. Any difference rejects the row.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use casemate_primitives::Cpu;
use casemate_primitives::rng::Rng;

use crate::driver::{Direction, Driver, DriverError, Ivs, walk};
use crate::drivers;
use crate::flags::{Flags, Origin};
use crate::row::{CipherSpec, Row, Spec};

mod answers;
mod digests;
mod hash;

/// First IVs of the batches: an ordinary one, and such that a carry crosses 32, 64 and 128 bits.
const FIRST_IVS: [u128; 4] = [40, (1 << 32) - 3, (1 << 64) - 3, u128::MAX - 2];

/// Sizes of data units; those that a cipher can't take are left out.
const UNIT_SIZES: [usize; 5] = [16, 48, 512, 520, 4096];

/// About how many bytes a batch has: small units fill every back end's lanes more than once.
const BATCH: usize = 8192;

/// How long an engine outside the CPU may take for its tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// Tests a row; what is outside the CPU on a thread of its own, as it may never answer.
///
/// # Errors
/// The sentence that says what was wrong.
pub(crate) fn run(row: &Row) -> Result<(), String> {
    if !row.is_outside() {
        return test(row);
    }
    let (row, (sender, receiver)) = (row.clone(), mpsc::channel());
    thread::spawn(move || {
        let _ = sender.send(test(&row));
    });
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
}

fn test(row: &Row) -> Result<(), String> {
    let spec = match row.spec.as_ref().map_err(Clone::clone)? {
        Spec::Cipher(spec) => spec,
        Spec::Hash(spec) => return hash::run(row, spec),
    };
    known_answers(row, spec)?;
    let mut random = Rng::new(0x9e37_79b9_7f4a_7c15);
    for len in &spec.key_lens {
        let mut key = vec![0; *len];
        random.fill(&mut key);
        let own = (spec.make)(&key).map_err(|error| error.0)?;
        let portable = portable(row, &key);
        for size in UNIT_SIZES {
            let fits = size >= spec.block_len && (!spec.whole_blocks || size.is_multiple_of(spec.block_len));
            if fits {
                singles(&*own, portable.as_deref(), spec, size, &mut random)?;
                if row.flags.contains(Flags::MULTI_DATA_UNIT) {
                    batches(&*own, size, &mut random)?;
                }
            }
        }
    }
    Ok(())
}

fn known_answers(row: &Row, spec: &CipherSpec) -> Result<(), String> {
    for answer in answers::of(&row.algorithm) {
        let driver = (spec.make)(&answer.key).map_err(|error| error.0)?;
        let mut data = answer.plaintext.clone();
        done(driver.one(Direction::Encrypt, &answer.iv, &mut data))?;
        if data != answer.ciphertext {
            return Err(format!("a known answer differs ({})", answer.source));
        }
        done(driver.one(Direction::Decrypt, &answer.iv, &mut data))?;
        if data != answer.plaintext {
            return Err(format!("a known answer does not decrypt ({})", answer.source));
        }
    }
    Ok(())
}

/// The row of the vetted crates, if there is one and it is not the one under test.
fn portable(row: &Row, key: &[u8]) -> Option<Box<dyn Driver>> {
    let rows = drivers::rows(Cpu::portable());
    let mut others =
        rows.into_iter().filter(|other| other.algorithm == row.algorithm && other.driver != row.driver);
    let other = others.find(|other| other.origin == Origin::Crate)?;
    let spec = other.cipher().ok().filter(|spec| spec.key_lens.contains(&key.len()))?;
    (spec.make)(key).ok()
}

fn singles(
    own: &dyn Driver,
    portable: Option<&dyn Driver>,
    spec: &CipherSpec,
    size: usize,
    random: &mut Rng,
) -> Result<(), String> {
    let mut iv = vec![0; spec.iv_len];
    random.fill(&mut iv);
    let mut plaintext = vec![0; size];
    random.fill(&mut plaintext);
    let mut data = plaintext.clone();
    done(own.one(Direction::Encrypt, &iv, &mut data))?;
    if let Some(portable) = portable {
        let mut expected = plaintext.clone();
        done(portable.one(Direction::Encrypt, &iv, &mut expected))?;
        if data != expected {
            return Err(format!("{size} random bytes come out different from the portable code"));
        }
    }
    done(own.one(Direction::Decrypt, &iv, &mut data))?;
    if data != plaintext {
        return Err(format!("{size} random bytes do not decrypt to what they were"));
    }
    Ok(())
}

fn batches(own: &dyn Driver, size: usize, random: &mut Rng) -> Result<(), String> {
    let units = (BATCH / size).clamp(3, 37);
    let mut data = vec![0; units * size];
    random.fill(&mut data);
    for first in FIRST_IVS {
        for ivs in
            [Ivs::Little { first, step: 1 }, Ivs::Little { first, step: 8 }, Ivs::Big { first, step: 1 }]
        {
            for direction in [Direction::Encrypt, Direction::Decrypt] {
                let (mut batch, mut single) = (data.clone(), data.clone());
                done(own.many(direction, size, &ivs, 16, &mut batch))?;
                done(walk(own, direction, size, &ivs, 16, &mut single))?;
                if batch != single {
                    return Err(format!(
                        "{units} units of {size} bytes in one request differ from single ones"
                    ));
                }
            }
        }
    }
    Ok(())
}

fn done(result: Result<(), DriverError>) -> Result<(), String> {
    result.map_err(|error| error.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::row::BadKey;

    /// Right for single units, and with every IV of a request the same.
    struct Standstill;

    impl Driver for Standstill {
        fn one(&self, _direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
            unit.iter_mut().zip(iv.iter().cycle()).for_each(|(byte, iv)| *byte ^= iv);
            Ok(())
        }

        fn many(
            &self,
            direction: Direction,
            size: usize,
            ivs: &Ivs<'_>,
            iv_len: usize,
            data: &mut [u8],
        ) -> Result<(), DriverError> {
            let mut iv = vec![0; iv_len];
            ivs.write(0, &mut iv);
            data.chunks_mut(size).try_for_each(|unit| self.one(direction, &iv, unit))
        }
    }

    #[test]
    fn a_fault_of_batches_tells_how_many_units_there_were() {
        let make = |_: &[u8]| -> Result<Box<dyn Driver>, BadKey> { Ok(Box::new(Standstill)) };
        let make = Arc::new(make);
        let spec = CipherSpec { iv_len: 16, block_len: 512, whole_blocks: true, key_lens: vec![16], make };
        let row = Row::new("standstill", "standstill", 1, Flags::MULTI_DATA_UNIT, Origin::External, spec);
        assert_eq!(run(&row).unwrap_err(), "16 units of 512 bytes in one request differ from single ones");
    }
}
