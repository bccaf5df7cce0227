//! KDF with its costs, which makes a key of a passphrase.

use casemate_blockdev::u64_of;
use casemate_primitives::secret::SecretVec;
use casemate_providers::{Argon2, Argon2Variant, KdfLimits, Providers, pbkdf2};

use crate::Error;

/// KDF that makes a key of a passphrase, with its costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pbkdf {
    /// PBKDF2.
    Pbkdf2 {
        /// The hash's name.
        hash: String,
        /// The number of iterations: at least 1000.
        iterations: u32,
    },
    /// Argon2i or Argon2id: at least 4 passes, 32 KiB, and at most 4 lanes, as cryptsetup takes them.
    Argon2(Argon2),
}

/// Iterations of PBKDF2 where none are named: about a second of a core with instructions for SHA-256.
const ITERATIONS: u32 = 4_000_000;

/// The costs that cryptsetup chooses at the most.
const USUAL: Argon2 = Argon2 { variant: Argon2Variant::Id, passes: 4, memory: 1 << 20, lanes: 4 };

impl Pbkdf {
    /// PBKDF2 with a hash, at the usual costs.
    pub fn pbkdf2(hash: &str) -> Pbkdf {
        Pbkdf::Pbkdf2 { hash: hash.to_owned(), iterations: ITERATIONS }
    }

    /// Argon2id at the costs that cryptsetup chooses at the most: 4 passes over 1 GiB, in 4 lanes.
    pub fn argon2id() -> Pbkdf {
        Pbkdf::Argon2(USUAL)
    }

    /// KDF of a name in metadata of LUKS2, with a hash for PBKDF2, and with the costs that are given: iterations or passes, KiB of
    /// memory, lanes. Others are the usual ones.
    ///
    /// # Errors
    /// `Argument` for an unknown name; errors of [`Pbkdf::check_costs`].
    pub fn named(
        name: &str,
        hash: &str,
        count: Option<u32>,
        memory: Option<u32>,
        lanes: Option<u32>,
    ) -> Result<Pbkdf, Error> {
        let variant = match name {
            "argon2id" => Argon2Variant::Id,
            "argon2i" => Argon2Variant::I,
            "pbkdf2" => {
                Pbkdf::check_costs(memory, lanes)?;
                return Ok(Pbkdf::Pbkdf2 { hash: hash.to_owned(), iterations: count.unwrap_or(ITERATIONS) });
            }
            _ => {
                let text = format!("no KDF has the name '{name}': there are argon2id, argon2i and pbkdf2");
                return Err(Error::argument(text));
            }
        };
        Ok(Pbkdf::Argon2(Argon2 {
            variant,
            passes: count.unwrap_or(USUAL.passes),
            memory: memory.unwrap_or(USUAL.memory),
            lanes: lanes.unwrap_or(USUAL.lanes),
        }))
    }

    /// Refuses costs of Argon2 for PBKDF2, where they would have no effect.
    ///
    /// # Errors
    /// `Argument`.
    pub fn check_costs(memory: Option<u32>, lanes: Option<u32>) -> Result<(), Error> {
        match (memory, lanes) {
            (None, None) => Ok(()),
            _ => Err(Error::argument("PBKDF2 has neither memory nor lanes")),
        }
    }

    /// The KDF's name in metadata of LUKS2: `pbkdf2`, `argon2i` or `argon2id`.
    pub fn name(&self) -> &'static str {
        match self {
            Pbkdf::Pbkdf2 { .. } => "pbkdf2",
            Pbkdf::Argon2(argon2) => argon2.name(),
        }
    }

    /// The costs, by the names that cryptsetup has for them: `iterations`; `time`, `memory` in KiB and `parallel`.
    pub fn costs(&self) -> Vec<(&'static str, u32)> {
        match self {
            Pbkdf::Pbkdf2 { iterations, .. } => vec![("iterations", *iterations)],
            Pbkdf::Argon2(Argon2 { passes, memory, lanes, .. }) => {
                vec![("time", *passes), ("memory", *memory), ("parallel", *lanes)]
            }
        }
    }

    /// How many times the usual limits an opening must be granted for a key slot with these costs; 1 within them.
    ///
    /// # Errors
    /// `Unsupported` for an unknown hash.
    pub fn limit_times(&self, key_len: usize, providers: &Providers) -> Result<u32, Error> {
        let limits = KdfLimits::default();
        // The digest that the key is compared with costs a little, too.
        let Cost { iterations, work } = self.cost(key_len, providers)?;
        let iterations = iterations.saturating_add(if iterations > 0 { 1 << 16 } else { 0 });
        let memory = if let Pbkdf::Argon2(argon2) = self { argon2.memory } else { 0 };
        let times = [
            iterations.div_ceil(limits.iterations),
            work.div_ceil(limits.work),
            u64::from(memory.div_ceil(limits.memory)),
        ];
        Ok(u32::try_from(times.into_iter().max().unwrap_or(1).max(1)).unwrap_or(u32::MAX))
    }

    /// Refuses what a header of LUKS1 with a hash can't name.
    pub(super) fn check_luks1(&self, hash: &str) -> Result<(), Error> {
        match self {
            Pbkdf::Pbkdf2 { hash: own, .. } if own == hash => Ok(()),
            _ => Err(Error::argument("LUKS1 has PBKDF2 with the header's hash only; LUKS2 has more")),
        }
    }

    /// Makes so many bytes of a key of a passphrase.
    pub(super) fn derive(
        &self,
        salt: &[u8],
        passphrase: &SecretVec,
        len: usize,
        limits: &KdfLimits,
        providers: &Providers,
    ) -> Result<SecretVec, Error> {
        let passphrase = passphrase.expose();
        Ok(match self {
            Pbkdf::Pbkdf2 { hash, iterations } => {
                pbkdf2(providers.hash(hash)?, passphrase, salt, *iterations, len, limits)?
            }
            Pbkdf::Argon2(argon2) => argon2.derive(passphrase, salt, len, limits)?,
        })
    }

    /// Costs of deriving `len` bytes.
    pub(super) fn cost(&self, len: usize, providers: &Providers) -> Result<Cost, Error> {
        match self {
            Pbkdf::Pbkdf2 { hash, iterations } => Cost::of_pbkdf2(hash, *iterations, len, providers),
            Pbkdf::Argon2(Argon2 { passes, memory, .. }) => {
                Ok(Cost { iterations: 0, work: u64::from(*passes) * u64::from(*memory) })
            }
        }
    }

    /// Lanes, KiB at once, and how long it takes: iterations, or KiB in all passes. Two kinds of slots are seldom of one size.
    pub(super) fn size(&self) -> (u32, u32, u64) {
        match self {
            Pbkdf::Pbkdf2 { iterations, .. } => (1, 0, (*iterations).into()),
            Pbkdf::Argon2(Argon2 { passes, memory, lanes, .. }) => {
                (*lanes, *memory, u64::from(*passes) * u64::from(*memory))
            }
        }
    }

    /// Refuses costs that cryptsetup would not take.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self {
            Pbkdf::Pbkdf2 { iterations, .. } if *iterations < 1000 => {
                Err(Error::argument(format!("{iterations} iterations of PBKDF2: at least 1000")))
            }
            Pbkdf::Argon2(Argon2 { passes, memory, lanes, .. })
                if *passes < 4 || !(32..=4 << 20).contains(memory) || !(1..=4).contains(lanes) =>
            {
                Err(Error::argument(format!(
                    "{passes} passes of Argon2 over {memory} KiB in {lanes} lanes: at least 4 passes, 32 KiB to 4 GiB, and \
                     1 to 4 lanes"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Costs of a derivation.
pub(super) struct Cost {
    /// Iterations of PBKDF2, each digest of output counted for itself.
    pub iterations: u64,
    /// KiB that all passes of Argon2 fill.
    pub work: u64,
}

impl Cost {
    pub fn of_pbkdf2(hash: &str, iterations: u32, len: usize, providers: &Providers) -> Result<Cost, Error> {
        let digests = u64_of(len.div_ceil(providers.hash(hash)?.digest_len()));
        let iterations = u64::from(iterations).saturating_mul(digests);
        Ok(Cost { iterations, work: 0 })
    }
}
