//! Which implementations there are, and what is thought of them.

use std::time::Duration;

use casemate_providers::afalg;
use casemate_providers::bench::measure;

pub use casemate_providers::bench::Speed;
pub use casemate_providers::{Flags, Hash, Origin, Policy, Registry, Row, Spec};

use crate::{Cpu, Error};

/// Everything on this machine: what `cpu` runs, and what the kernel offers through AF_ALG.
pub fn registry(cpu: Cpu) -> Registry {
    let mut registry = Registry::new(cpu);
    for row in afalg::rows() {
        // A row that can't be registered is one that the kernel listed twice.
        let _ = registry.register(row);
    }
    registry
}

/// What to choose from and what may be chosen, for one who names these drivers. Engines outside the CPU are looked for
/// only when somebody wants one.
pub fn naming(drivers: &[String], cpu: Cpu) -> (Registry, Policy) {
    let registry = if drivers.is_empty() { Registry::new(cpu) } else { registry(cpu) };
    (registry, drivers.iter().fold(Policy::default(), Policy::naming))
}

/// The hash `name` by the implementation called `driver`.
///
/// # Errors
/// `Unsupported` with the reason why it can't be used; `Argument` if it makes something else.
pub fn hash_by(name: &str, driver: &str, cpu: Cpu) -> Result<Hash, Error> {
    let (registry, policy) = naming(&[driver.to_owned()], cpu);
    let hash = registry.hash(name, &policy).map_err(casemate_crypt::Error::from)?;
    if hash.driver() != driver {
        return Err(Error::argument(format!("{driver} does not make {name}")));
    }
    Ok(hash)
}

/// What the policy does with one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is what an algorithm's name gets.
    Chosen,
    /// It could be chosen; another has a higher priority.
    Allowed,
    /// It is not used, for this reason.
    Refused(String),
}

/// What `policy` does with `row`, which is one of `registry`'s.
pub fn standing(registry: &Registry, row: &Row, policy: &Policy) -> Standing {
    if let Err(refusal) = policy.allows(row) {
        return Standing::Refused(refusal.to_string());
    }
    if let Err(why) = registry.self_test(row) {
        return Standing::Refused(format!("{} failed its self-test: {why}", row.driver));
    }
    match registry.choose(&row.algorithm, policy) {
        Ok(chosen) if chosen.driver == row.driver => Standing::Chosen,
        _ => Standing::Allowed,
    }
}

/// Measures a row for about `time`.
///
/// # Errors
/// Why it can't be measured.
pub fn speed(row: &Row, time: Duration) -> Result<Speed, String> {
    measure(row, time)
}
