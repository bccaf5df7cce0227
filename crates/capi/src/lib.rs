//! casemate as a C library: `libcasemate.so.0` and `include/casemate.h`, which is generated from the functions here.
//!
//! Each function converts C's pointers in [`boundary`], calls the facade, and returns the command's exit
//! status. No panic leaves it, and only handles keep state between calls. Only the boundary needs `unsafe`: it relies on the
//! rules of the header, which callers keep.
#![allow(unsafe_code, reason = "C's pointers, at the boundary")]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod boundary;
mod build;
mod cipher;
mod device;
mod error;
mod ext4;
mod fsverity;
mod keys;
mod primitives;
mod progress;
mod repair;
mod resize;
mod server;
mod tune;
mod verity;
mod writer;
