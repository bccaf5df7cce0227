//! How fast a row is: one message at a time, and batched.
//!
//! The first is the table of the kernel's proposal about accelerators: synchronous messages of 4096 bytes. The second
//! is one request of 128 KiB in units or messages of 4096 bytes, where the row can take it.

use std::iter;
use std::time::{Duration, Instant};

use casemate_blockdev::u32_of;
use casemate_primitives::Messages;

use crate::cipher::{Cipher, RequestError};
use crate::driver::{Direction, DriverError, Ivs};
use crate::flags::Flags;
use crate::row::{CipherSpec, HashSpec, Row, Spec};

/// Bytes of a message.
pub const MESSAGE: usize = 4096;

/// Bytes of a batch.
pub const BATCH: usize = 128 * 1024;

/// Samples of which the median is taken.
const SAMPLES: u32 = 7;

/// The speed of a row in megabytes (10^6 bytes) a second.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Messages of 4096 bytes, one at a time.
    pub single: f64,
    /// Batches of 128 KiB, for ciphers with the multi-data-unit flag and hashes with lanes for many messages.
    pub batched: Option<f64>,
}

/// Measures encryption or hashing by `row`, for about `time` in all.
///
/// # Errors
/// The row's reason for not being available, or a driver's failure.
pub fn measure(row: &Row, time: Duration) -> Result<Speed, String> {
    match row.spec.as_ref().map_err(Clone::clone)? {
        Spec::Cipher(spec) => measure_cipher(row, spec, time),
        Spec::Hash(spec) => measure_hash(spec, time).map_err(|error| error.to_string()),
    }
}

fn measure_hash(spec: &HashSpec, time: Duration) -> Result<Speed, RequestError> {
    let data = vec![0x55; BATCH];
    let mut digests = vec![0; BATCH / MESSAGE * spec.digest_len()];
    let Some(own) = spec.salted(b"", b"") else {
        let mut one = || spec.ask(&[&data[..MESSAGE]], &mut digests[..spec.digest_len()]);
        return Ok(Speed { single: median_speed(MESSAGE, time, &mut one)?, batched: None });
    };
    let mut one = || {
        own.hash(&data[..MESSAGE], &mut digests[..spec.digest_len()]);
        Ok::<_, DriverError>(())
    };
    let single = median_speed(MESSAGE, time / 2, &mut one)?;
    if !spec.batches() {
        return Ok(Speed { single, batched: None });
    }
    let mut many = || {
        own.hash_many(Messages::contiguous(&data, MESSAGE), &mut digests);
        Ok::<_, DriverError>(())
    };
    Ok(Speed { single, batched: Some(median_speed(BATCH, time / 2, &mut many)?) })
}

fn measure_cipher(row: &Row, spec: &CipherSpec, time: Duration) -> Result<Speed, String> {
    let key: Vec<u8> =
        iter::successors(Some(1_u8), |byte| Some(byte.wrapping_add(7))).take(spec.key_lens[0]).collect();
    let cipher = || {
        let cipher = Cipher::keyed(row, spec, &key).map_err(|error| error.0)?;
        cipher.with_data_unit_size(MESSAGE).map_err(|error| error.to_string())
    };
    let iv = vec![3; spec.iv_len];
    let single = cipher()?;
    let mut data = vec![0x55; BATCH];
    let mut one = || single.run(Direction::Encrypt, &Ivs::List(&iv), &mut data[..MESSAGE]);
    let single_speed = median_speed(MESSAGE, time / 2, &mut one).map_err(|error| error.to_string())?;
    let batched = if row.flags.contains(Flags::MULTI_DATA_UNIT) {
        let batch = cipher()?;
        let ivs = Ivs::Little { first: 40, step: 1 };
        let mut many = || batch.run(Direction::Encrypt, &ivs, &mut data);
        Some(median_speed(BATCH, time / 2, &mut many).map_err(|error| error.to_string())?)
    } else {
        None
    };
    Ok(Speed { single: single_speed, batched })
}

fn median_speed<E>(bytes: usize, time: Duration, work: &mut dyn FnMut() -> Result<(), E>) -> Result<f64, E> {
    work()?;
    let slice = time / SAMPLES;
    let mut speeds = Vec::new();
    for _ in 0..SAMPLES {
        let (start, mut calls) = (Instant::now(), 0u32);
        while calls == 0 || start.elapsed() < slice {
            // Several calls between two looks at the clock: the fastest take 100 ns.
            for _ in 0..16 {
                work()?;
            }
            calls += 16;
        }
        speeds.push(f64::from(calls) * f64::from(u32_of(bytes)) / start.elapsed().as_secs_f64() / 1e6);
    }
    speeds.sort_by(f64::total_cmp);
    Ok(speeds[speeds.len() / 2])
}
