//! What a row must pass before it is used.
//!
//! First known answers, where the algorithm has one here. Then random data: what is encrypted decrypts again,
//! and comes out as the portable code has it. Then, for rows with the multi-data-unit flag, one request of many
//! units against as many requests of one unit with derived IVs, in both directions, with counters that carry
//! across 32 and 64 bits. Any difference rejects the row.

use casemate_primitives::Cpu;

use crate::cipher::{Direction, Driver, DriverError, Ivs, walk};
use crate::drivers;
use crate::row::{CipherSpec, Flags, Origin, Row, Spec};

mod answers;
mod digests;
mod hash;

/// First IVs of the batches: an ordinary one, and such that a carry crosses 32, 64 and 128 bits.
const FIRST_IVS: [u128; 4] = [40, (1 << 32) - 3, (1 << 64) - 3, u128::MAX - 2];

/// Sizes of data units; those that a cipher can't take are left out.
const UNIT_SIZES: [usize; 5] = [16, 48, 512, 520, 4096];

/// About how many bytes a batch has: small units fill every back end's lanes more than once.
const BATCH: usize = 8192;

/// The sentence that says what was wrong.
pub(crate) fn run(row: &Row) -> Result<(), String> {
    let spec = match row.spec.as_ref().map_err(Clone::clone)? {
        Spec::Cipher(spec) => spec,
        Spec::Hash(spec) => return hash::run(row, spec),
    };
    known_answers(row, spec)?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
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
    random: &mut Random,
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

fn batches(own: &dyn Driver, size: usize, random: &mut Random) -> Result<(), String> {
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
                        "{BATCH} units of {size} bytes in one request differ from single ones"
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

/// Random enough for tests, the same at each run (SplitMix64).
struct Random(u64);

impl Random {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..chunk.len()]);
        }
    }
}
