//! How fast a row is: one message at a time, and batched.
//!
//! The first is the table of the kernel's proposal about accelerators: synchronous messages of 4096 bytes. The second
//! is one request of 128 KiB in units of 4096 bytes, where the row can take it.

use std::time::{Duration, Instant};

use crate::cipher::{Direction, Ivs, RequestError};
use crate::registry::{CipherError, key_row};
use crate::row::{Flags, Row};

/// Bytes of a message.
pub const MESSAGE: usize = 4096;

/// Bytes of a batch.
pub const BATCH: usize = 128 * 1024;

/// Samples of which the median is taken.
const SAMPLES: usize = 7;

/// Megabytes (10^6 bytes) a second.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Messages of 4096 bytes, one at a time.
    pub single: f64,
    /// Batches of 128 KiB, for rows with the multi-data-unit flag.
    pub batched: Option<f64>,
}

/// Measures encryption by `row`, for about `time` in all.
///
/// # Errors
/// The row's reason for not being available, or a driver's failure.
pub fn measure(row: &Row, time: Duration) -> Result<Speed, String> {
    let spec = row.spec.as_ref().map_err(Clone::clone)?;
    let key: Vec<u8> = (0..spec.key_lens[0]).map(|i| (i * 7 + 1) as u8).collect();
    let cipher = || {
        let cipher = key_row(row, spec, &key).map_err(|error: CipherError| error.to_string())?;
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

fn median_speed(
    bytes: usize,
    time: Duration,
    work: &mut dyn FnMut() -> Result<(), RequestError>,
) -> Result<f64, RequestError> {
    work()?;
    let slice = time / SAMPLES as u32;
    let mut speeds = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let (start, mut calls) = (Instant::now(), 0u32);
        while calls == 0 || start.elapsed() < slice {
            // Several calls between two looks at the clock: the fastest take 100 ns.
            for _ in 0..16 {
                work()?;
            }
            calls += 16;
        }
        speeds.push(f64::from(calls) * bytes as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
    speeds.sort_by(f64::total_cmp);
    Ok(speeds[SAMPLES / 2])
}
