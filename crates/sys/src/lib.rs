//! Calls to the kernel that no other crate offers safely.
//!
//! Everything here is a safe function on an open file. Beside the primitives, this is the only crate with `unsafe`: an
//! ioctl takes a pointer, and what it reads and writes there is known from the kernel's header alone.

pub mod fsverity;
