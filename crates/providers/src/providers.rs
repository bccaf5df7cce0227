//! The implementations that do the work: one value for everything below the formats.

use std::fmt;
use std::sync::{Arc, OnceLock};

use casemate_primitives::Cpu;

use crate::cipher::Cipher;
use crate::hash::Hash;
use crate::policy::Policy;
use crate::registry::{ChoiceError, Registry};
use crate::row::Row;

/// A CPU, the implementations of ciphers and hashes that are known, and the policy that chooses among them.
///
/// Cheap to clone: all clones share one registry, so an implementation is tested once for all of them.
#[derive(Clone)]
pub struct Providers(Arc<Inner>);

struct Inner {
    cpu: Cpu,
    registry: Arc<Registry>,
    policy: Policy,
}

impl Providers {
    /// The implementations that run on `cpu`, under the default policy.
    pub fn new(cpu: Cpu) -> Providers {
        Providers::with(cpu, Registry::new(cpu), Policy::default())
    }

    /// The implementations that `registry` has, chosen by `policy`; what has no row there, such as CRC-32C, runs on `cpu`.
    pub fn with(cpu: Cpu, registry: Registry, policy: Policy) -> Providers {
        Providers(Arc::new(Inner { cpu, registry: Arc::new(registry), policy }))
    }

    /// The implementations that run on `cpu` and those that the kernel offers through AF_ALG, under the default policy: engines outside the CPU
    /// are there to be named.
    pub fn with_engines(cpu: Cpu) -> Providers {
        let mut registry = Registry::new(cpu);
        for row in engines() {
            // A row that can't be registered is one that the kernel listed twice.
            let _ = registry.register(row);
        }
        Providers::with(cpu, registry, Policy::default())
    }

    /// These implementations, of which these drivers are preferred and allowed whatever the policy says.
    pub fn naming(&self, drivers: &[impl AsRef<str>]) -> Providers {
        let name = |policy: Policy, driver: &_| policy.naming(AsRef::<str>::as_ref(driver));
        let policy = drivers.iter().fold(self.0.policy.clone(), name);
        Providers(Arc::new(Inner { cpu: self.0.cpu, registry: Arc::clone(&self.0.registry), policy }))
    }

    /// The chosen implementation of the hash called `name`, in lower or upper case.
    ///
    /// # Errors
    /// As [`Registry::hash`].
    pub fn hash(&self, name: &str) -> Result<Hash, ChoiceError> {
        self.0.registry.hash(name, &self.0.policy)
    }

    /// The chosen implementation of the cipher called `algorithm`, the kernel's name, under a key.
    ///
    /// # Errors
    /// As [`Registry::cipher`].
    pub fn cipher(&self, algorithm: &str, key: &[u8]) -> Result<Cipher, ChoiceError> {
        self.0.registry.cipher(algorithm, key, &self.0.policy)
    }

    /// The CPU, narrowed or not, for what has no choice of implementations but its own back ends.
    pub fn cpu(&self) -> Cpu {
        self.0.cpu
    }

    /// All implementations, to list and to test them.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// The policy by which implementations are chosen.
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }
}

impl Default for Providers {
    /// Everything that this CPU has: one value for the whole process.
    fn default() -> Providers {
        static ALL: OnceLock<Providers> = OnceLock::new();
        ALL.get_or_init(|| Providers::new(Cpu::detect())).clone()
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Providers({} rows, {:?})", self.0.registry.rows().len(), self.0.cpu)
    }
}

/// A row for each implementation outside the CPU.
fn engines() -> Vec<Row> {
    #[cfg(target_os = "linux")]
    return crate::afalg::rows();
    #[cfg(not(target_os = "linux"))]
    return Vec::new();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_one_registry_and_narrow_the_cpu_alike() {
        let providers = Providers::new(Cpu::portable());
        let clone = providers.clone();
        assert!(std::ptr::eq(providers.registry(), clone.registry()));
        assert_eq!(clone.hash("SHA256").unwrap().driver(), "sha256-portable");
        assert_eq!(clone.cipher("xts(aes)", &[1; 64]).unwrap().driver_name(), "xts-aes-portable");
        assert_eq!(clone.cpu(), Cpu::portable());
        let named = providers.naming(&["sha256-crate"]);
        assert!(std::ptr::eq(providers.registry(), named.registry()));
        assert_eq!(named.hash("sha256").unwrap().driver(), "sha256-crate");
        assert_eq!(
            named.hash("sha257").unwrap_err().to_string().split(';').next().unwrap(),
            "unknown hash algorithm 'sha257'"
        );
    }
}
