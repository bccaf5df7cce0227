//! Options that say what makes a key of a passphrase, and at what cost.

use std::time::Duration;

use clap::ValueEnum;

use casemate::Error;
use casemate::blockdev::Events;
use casemate::luks::{Argon2, Argon2Variant, Pbkdf, PbkdfTarget};

use crate::context::Context;
use crate::size::with_unit;

/// Options for the KDF that makes a key of a passphrase.
#[derive(clap::Args, Clone, Debug)]
pub struct PbkdfArgs {
    /// Key derivation function [default: argon2id; for LUKS1 pbkdf2].
    #[arg(long, value_name = "KDF")]
    pub pbkdf: Option<Kdf>,
    /// Time of the key derivation on this machine [default: 2000].
    #[arg(short = 'i', long, value_name = "MILLISECONDS", conflicts_with = "pbkdf_force_iterations")]
    pub iter_time: Option<u32>,
    /// Time cost: passes of Argon2, iterations of PBKDF2 [default: as many as --iter-time allows].
    #[arg(long, value_name = "COUNT")]
    pub pbkdf_force_iterations: Option<u32>,
    /// Memory cost of Argon2, or its maximum with --iter-time, with a unit: K, M or G [default: half of the memory, at
    /// most 1G].
    #[arg(long, value_name = "BYTES", value_parser = with_unit)]
    pub pbkdf_memory: Option<u64>,
    /// Parallel lanes of Argon2, 1 to 4 [default: one per processor].
    #[arg(long, value_name = "COUNT")]
    pub pbkdf_parallel: Option<u32>,
}

/// Key derivation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kdf {
    Argon2id,
    Argon2i,
    Pbkdf2,
}

/// Tells which option opens a key slot that costs more than is granted without it.
pub fn note_limit(pbkdf: &Pbkdf, key_len: usize, context: &Context) -> Result<(), Error> {
    match pbkdf.limit_times(key_len, context.providers())? {
        times if times > 1 && !context.is_other_tool() => context.note(&format!(
            "the key slot costs more than opening a volume may without an option: --kdf-limit {times} opens it"
        )),
        _ => {}
    }
    Ok(())
}

impl PbkdfArgs {
    /// Whether anything was said.
    pub fn is_given(&self) -> bool {
        let numbers = [self.iter_time, self.pbkdf_force_iterations, self.pbkdf_parallel];
        self.pbkdf.is_some() || self.pbkdf_memory.is_some() || numbers.iter().any(Option::is_some)
    }

    /// KDF with its costs: the iterations that were given, or as many as take the time that was given. `is_luks1` and
    /// the hash choose what no option names.
    pub fn get(&self, is_luks1: bool, hash: &str, key_len: usize, context: &Context) -> Result<Pbkdf, Error> {
        let pbkdf = match self.pbkdf_force_iterations {
            Some(_) => self.fixed(is_luks1, hash)?,
            None => self.target(is_luks1, hash)?.measure(key_len, context.providers())?.pbkdf,
        };
        note_limit(&pbkdf, key_len, context)?;
        Ok(pbkdf)
    }

    /// KDF with the costs that were given; other costs are the same on every machine.
    pub fn fixed(&self, is_luks1: bool, hash: &str) -> Result<Pbkdf, Error> {
        let kind = self.variant(is_luks1)?;
        let mut pbkdf = if kind.is_some() { Pbkdf::argon2id() } else { Pbkdf::pbkdf2(hash) };
        match &mut pbkdf {
            Pbkdf::Pbkdf2 { iterations, .. } => {
                *iterations = self.pbkdf_force_iterations.unwrap_or(*iterations);
            }
            Pbkdf::Argon2(Argon2 { variant, passes, memory, lanes }) => {
                *variant = kind.unwrap_or(*variant);
                *passes = self.pbkdf_force_iterations.unwrap_or(*passes);
                *memory = self.memory().unwrap_or(*memory);
                *lanes = self.pbkdf_parallel.unwrap_or(*lanes);
            }
        }
        Ok(pbkdf)
    }

    /// The time that it shall take, and what it may use.
    pub fn target(&self, is_luks1: bool, hash: &str) -> Result<PbkdfTarget, Error> {
        let mut target = PbkdfTarget::default();
        target.argon2 = self.variant(is_luks1)?;
        target.hash = hash.to_owned();
        target.time = self.iter_time.map_or(target.time, |time| Duration::from_millis(time.into()));
        target.memory = self.memory().unwrap_or(target.memory);
        target.lanes = self.pbkdf_parallel.unwrap_or(target.lanes);
        Ok(target)
    }

    /// The kind of Argon2, if it is one.
    fn variant(&self, is_luks1: bool) -> Result<Option<Argon2Variant>, Error> {
        match self.pbkdf.unwrap_or(if is_luks1 { Kdf::Pbkdf2 } else { Kdf::Argon2id }) {
            Kdf::Argon2id => Ok(Some(Argon2Variant::Id)),
            Kdf::Argon2i => Ok(Some(Argon2Variant::I)),
            Kdf::Pbkdf2 => Pbkdf::check_costs(self.memory(), self.pbkdf_parallel).map(|()| None),
        }
    }

    fn memory(&self) -> Option<u32> {
        self.pbkdf_memory.map(|bytes| u32::try_from(bytes / 1024).unwrap_or(u32::MAX))
    }
}
