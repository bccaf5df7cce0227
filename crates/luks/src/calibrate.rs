//! Costs of key derivation that take a given time here, as cryptsetup chooses them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use casemate_blockdev::u32_of;
use casemate_providers::{Argon2, Argon2Variant, Providers};

use super::random::Source;
use crate::Error;
use crate::pbkdf::Pbkdf;
use crate::slot::ALL;

/// KDF to measure: its kind, the time that a derivation shall take on this machine, and the memory and lanes that it
/// may use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PbkdfTarget {
    /// The kind of Argon2; PBKDF2 if `None`.
    pub argon2: Option<Argon2Variant>,
    /// The hash of PBKDF2.
    pub hash: String,
    /// How long it shall take.
    pub time: Duration,
    /// The memory of Argon2 in KiB, at the most.
    pub memory: u32,
    /// The lanes of Argon2.
    pub lanes: u32,
}

/// Costs that were measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The costs.
    pub pbkdf: Pbkdf,
    /// Time that a derivation at these costs took here.
    pub time: Duration,
}

/// The least passes and KiB of Argon2, the KiB that measuring begins with, and the most memory that is asked for unnamed.
const LEAST_PASSES: u32 = 4;
const LEAST_MEMORY: u32 = 32;
const FIRST_MEMORY: u32 = 64 << 10;
const MOST_MEMORY: u32 = 1 << 20;

/// The least iterations of PBKDF2.
const LEAST_ITERATIONS: u32 = 1000;

/// Shortest time of a measurement: shorter ones are too inexact.
const LEAST_TIME: Duration = Duration::from_millis(250);

/// How often costs are brought nearer to the time; one or two do.
const ROUNDS: u32 = 5;

impl Default for PbkdfTarget {
    /// Argon2id for two seconds, in half of the memory but no more than 1 GiB, with a lane for each of four processors.
    fn default() -> PbkdfTarget {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        PbkdfTarget {
            argon2: Some(Argon2Variant::Id),
            hash: "sha256".to_owned(),
            time: Duration::from_secs(2),
            memory: half_of_memory().unwrap_or(MOST_MEMORY).min(MOST_MEMORY),
            lanes: u32_of(processors.min(4)),
        }
    }
}

/// Half of this machine's memory in KiB; without swap and with less than 2 GiB, half of what is free.
fn half_of_memory() -> Option<u32> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let total = kib("MemTotal:")?;
    let usable = match total < 2 << 20 && kib("SwapTotal:") == Some(0) {
        true => kib("MemAvailable:")?,
        false => total,
    };
    Some(u32::try_from(usable / 2).unwrap_or(u32::MAX).max(LEAST_MEMORY))
}

impl PbkdfTarget {
    /// Finds the costs for a key of `key_len` bytes: of Argon2 as much memory as there may be, and more passes than the least
    /// only with all of that. It takes about as long as a few derivations.
    ///
    /// # Errors
    /// `Argument` for an unknown hash, or memory and lanes that no header has; `Unsupported`; `Io` if there are no random
    /// bytes.
    pub fn measure(&self, key_len: usize, providers: &Providers) -> Result<Measured, Error> {
        let mut salt = [0; 32];
        Source::System.fill(&mut salt)?;
        let take = |pbkdf: &Pbkdf| {
            pbkdf.check()?;
            let start = Instant::now();
            pbkdf.derive(&salt, &b"a passphrase".as_slice().into(), key_len, &ALL, providers)?;
            Ok::<_, Error>(start.elapsed().max(Duration::from_nanos(1)))
        };
        // As much as costs that take so long would have to be, to take the time.
        let scaled = |cost: u64, took: Duration, wanted: Duration| {
            u64::try_from(u128::from(cost) * wanted.as_nanos() / took.as_nanos()).unwrap_or(u64::MAX)
        };
        let mut cost = if self.argon2.is_some() {
            u64::from(LEAST_PASSES) * u64::from(FIRST_MEMORY.min(self.memory))
        } else {
            u64::from(LEAST_ITERATIONS)
        };
        let least = LEAST_TIME.min(self.time);
        let mut measured = Measured { pbkdf: self.costing(cost), time: Duration::ZERO };
        measured.time = take(&measured.pbkdf)?;
        // At first larger and larger costs, until what they take says something.
        while measured.time < least {
            cost = scaled(cost, measured.time, least * 5 / 4).clamp(cost + 1, cost.saturating_mul(16));
            measured.pbkdf = self.costing(cost);
            measured.time = take(&measured.pbkdf)?;
        }
        for _ in 0..ROUNDS {
            let (low, high) = (self.time * 95 / 100, self.time * 110 / 100);
            let next = self.costing(scaled(cost_of(&measured.pbkdf), measured.time, self.time));
            if (low..=high).contains(&measured.time) || next == measured.pbkdf {
                break;
            }
            measured = Measured { time: take(&next)?, pbkdf: next };
        }
        Ok(measured)
    }

    /// The parameters of a cost: iterations, or KiB that are filled in all passes.
    fn costing(&self, cost: u64) -> Pbkdf {
        let number = |cost: u64, least: u32| u32::try_from(cost).unwrap_or(u32::MAX).max(least);
        let Some(variant) = self.argon2 else {
            return Pbkdf::Pbkdf2 { hash: self.hash.clone(), iterations: number(cost, LEAST_ITERATIONS) };
        };
        let least = LEAST_MEMORY.min(self.memory);
        let memory = number(cost / u64::from(LEAST_PASSES), least).min(self.memory);
        let passes = number(cost / u64::from(memory.max(1)), LEAST_PASSES);
        Pbkdf::Argon2(Argon2 { variant, passes, memory, lanes: self.lanes })
    }
}

fn cost_of(pbkdf: &Pbkdf) -> u64 {
    match pbkdf {
        Pbkdf::Pbkdf2 { iterations, .. } => (*iterations).into(),
        Pbkdf::Argon2(argon2) => u64::from(argon2.passes) * u64::from(argon2.memory),
    }
}
