//! Facts about an implementation that are known without running it: its flags, and where it comes from.

use std::fmt;
use std::ops::BitOr;

/// Flags of an implementation, known before it is trusted: the kernel's of the same names.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Finishes later than the call (`CRYPTO_ALG_ASYNC`): an engine outside the CPU, or a queue before one.
    pub const ASYNC: Flags = Flags(1);
    /// Allocates memory for each request (`CRYPTO_ALG_ALLOCATES_MEMORY`), so it can fail when memory is short.
    pub const ALLOCATES_MEMORY: Flags = Flags(2);
    /// Can be reached through a kernel driver only (`CRYPTO_ALG_KERN_DRIVER_ONLY`): not the CPU's instructions.
    pub const KERN_DRIVER_ONLY: Flags = Flags(4);
    /// Takes many data units in one request, unit `k` with the IV plus `k`.
    pub const MULTI_DATA_UNIT: Flags = Flags(8);

    const NAMES: [(Flags, &'static str); 4] = [
        (Flags::ASYNC, "asynchronous"),
        (Flags::ALLOCATES_MEMORY, "allocates-memory"),
        (Flags::KERN_DRIVER_ONLY, "kernel-driver-only"),
        (Flags::MULTI_DATA_UNIT, "multi-data-unit"),
    ];

    /// Whether all flags of `other` are set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags that are set here and in `other`.
    pub fn common(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }

    /// Whether no flag is set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names of the flags that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flags::NAMES.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        write!(f, "Flags({})", names.join("|"))
    }
}

/// The origin of an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This project's primitives, run by the CPU.
    Own,
    /// A vetted crate, run by the CPU.
    Crate,
    /// The running kernel, through an AF_ALG socket.
    AfAlg,
    /// Given by the program that uses this library.
    External,
}

impl Origin {
    /// The origin's name to print.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Own => "casemate",
            Origin::Crate => "crate",
            Origin::AfAlg => "af_alg",
            Origin::External => "external",
        }
    }
}
