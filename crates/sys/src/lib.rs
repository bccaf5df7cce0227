//! Calls to the kernel that no other crate offers safely.
//!
//! Everything here is safe to call. Beside the primitives, this is the only crate with `unsafe`: an ioctl takes a pointer,
//! and what it reads and writes there is known from the kernel's header alone; a mapping is memory that no type owns yet.
//!
//! ```
//! # #[cfg(target_os = "linux")] {
//! # let path = std::env::current_exe()?;
//! let file = std::fs::File::open(path)?;
//! match casemate_sys::fsverity::measure(&file) {
//!     Ok((algorithm, digest)) => println!("algorithm {algorithm}: {} bytes", digest.len()),
//!     Err(error) => println!("no fs-verity: {error}"),
//! }
//! # }
//! # Ok::<(), std::io::Error>(())
//! ```
#![cfg_attr(not(test), deny(clippy::as_conversions))]

#[cfg(target_os = "linux")]
pub mod descriptor;
#[cfg(target_os = "linux")]
pub mod fsverity;
#[cfg(target_os = "linux")]
pub mod fuse;
#[cfg(unix)]
pub mod memory;
#[cfg(not(unix))]
#[path = "memory_plain.rs"]
pub mod memory;
#[cfg(target_os = "linux")]
pub mod standard;
