//! casemate as a C library: `libcasemate.so.0` and `include/casemate.h`, which is made of the functions here.
//!
//! Each function takes C's pointers apart in [`boundary`], calls the facade, and gives back a status that is the command's exit
//! status. No panic leaves it, and nothing is kept between calls but what handles hold. `unsafe` is here for the boundary
//! alone: callers keep what the header asks of them.
#![allow(unsafe_code, reason = "C's pointers, at the boundary")]

mod boundary;
mod build;
mod cipher;
mod device;
mod error;
mod ext4;
mod fsverity;
mod keys;
mod primitives;
mod server;
mod verity;
mod writer;
