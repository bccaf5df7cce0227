//! dm-verity and fs-verity: hash trees, their on-disk formats, and signatures over them.
//!
//! [`tree`] is the engine that both formats share: where the blocks of a hash tree lie, building one on all
//! cores, and checking data against one.
#![forbid(unsafe_code)]

mod error;
pub mod tree;

pub use error::Error;
