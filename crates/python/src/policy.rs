//! Policies of fscrypt, as Python names them.

use casemate::Error;
use casemate::ext4::NewPolicy;
use pyo3::prelude::*;

/// A policy but for its key, as Python names it: version, modes of contents and names, IVs, padding, and bytes of a data unit.
#[derive(FromPyObject)]
pub struct NamedPolicy(u32, String, String, String, usize, Option<u32>);

impl NamedPolicy {
    /// The policy.
    ///
    /// # Errors
    /// `Argument` for names that are unknown.
    pub fn new_policy(&self) -> Result<NewPolicy, Error> {
        let NamedPolicy(version, contents, names, ivs, padding, data_unit_size) = self;
        let mode = |name: &String| name.parse().map_err(|error| Error::argument(format!("{error}")));
        let mut policy = NewPolicy::default();
        (policy.contents, policy.names, policy.padding) = (mode(contents)?, mode(names)?, *padding);
        policy.ivs = ivs.parse()?;
        policy.set_version(*version)?;
        policy.data_unit_size = *data_unit_size;
        Ok(policy)
    }
}
