//! Rows of the registry, and which of them the policy lets do the work.

use crate::{Providers, Row};

/// The policy's answer to one row of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The driver that an algorithm's name gets.
    Chosen,
    /// A driver that could be chosen; another has a higher priority.
    Allowed,
    /// A driver that is not used, for this reason.
    Refused(String),
}

/// The policy's answer to `row`, one of those of `providers`.
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
