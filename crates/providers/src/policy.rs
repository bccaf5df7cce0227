//! Which of several implementations may be chosen.
//!
//! Priorities alone pick badly: engines outside the CPU often register with the highest one, and have been slow
//! for small synchronous requests and wrong in ways that destroyed data. So the default policy masks them out
//! whatever their priority, as the kernel's fscrypt does since 6.17, and are used only by name.

use std::fmt;

use crate::flags::Flags;
use crate::row::Row;

/// The policy by which one of an algorithm's implementations is chosen.
#[derive(Clone, Debug)]
pub struct Policy {
    mask: Flags,
    named: Vec<String>,
}

/// Why a row is not used, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Policy {
    /// The policy of only what runs on the CPU at once: rows that are kernel-driver-only, allocate memory for each request or
    /// are asynchronous are masked out.
    pub fn cpu_only() -> Policy {
        Policy { mask: Flags::KERN_DRIVER_ONLY | Flags::ALLOCATES_MEMORY | Flags::ASYNC, named: Vec::new() }
    }

    /// The policy that also allows the row of this driver name, masked or not, and prefers it. It still has to pass its tests.
    pub fn naming(mut self, driver: impl Into<String>) -> Policy {
        self.named.push(driver.into());
        self
    }

    /// Whether `row` was named.
    pub fn names(&self, row: &Row) -> bool {
        self.named.contains(&row.driver)
    }

    /// The driver names that were asked for.
    pub fn named(&self) -> &[String] {
        &self.named
    }

    /// Whether `row` may be used, as far as its flags tell.
    ///
    /// # Errors
    /// The reason, if it may not.
    pub fn allows(&self, row: &Row) -> Result<(), Refusal> {
        if let Err(why) = &row.spec {
            return Err(Refusal(format!("{} is not available: {why}", row.driver)));
        }
        let masked = row.flags.common(self.mask);
        if masked.is_empty() || self.names(row) {
            return Ok(());
        }
        let flags: Vec<_> = masked.names().collect();
        Err(Refusal(format!(
            "{} is {}, and such implementations are used only when they are named",
            row.driver,
            flags.join(" and ")
        )))
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::cpu_only()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
