//! Which implementations there are, and what is thought of them.

use std::time::Duration;

use casemate_providers::bench::measure;

pub use casemate_providers::bench::Speed;
pub use casemate_providers::{Flags, Origin, Policy, Providers, Registry, Row, Spec};

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

/// What is thought of `row`, which is one of `providers`'.
pub fn standing(providers: &Providers, row: &Row) -> Standing {
    let (registry, policy) = (providers.registry(), providers.policy());
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
