//! Which implementation does the work.
//!
//! Formats name an algorithm; this crate says what runs it: the hot back ends of `casemate-primitives` where
//! they exist, vetted crates where they don't. [`Hash`] is the entry point for hashing.
#![forbid(unsafe_code)]

pub mod hash;

pub use hash::{Hash, SaltedHash, UnknownHash};
