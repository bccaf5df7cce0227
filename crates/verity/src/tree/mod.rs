//! The hash tree under dm-verity and fs-verity.
//!
//! Data is cut into blocks, each is hashed, and the digests fill the hash blocks of level 0. These blocks are
//! hashed in their turn for level 1, and so on until one digest is left: the root hash. [`Shape`] holds what
//! differs between the formats, [`Geometry`] says where each level is stored, [`build()`] and
//! [`build_stream`] make a tree, [`TreeHasher`] its root hash from data that somebody hands over,
//! [`build_part`] and [`join`] make one on many machines; [`check()`] finds what does not match one, [`check_tree`] what is damaged
//! in one, [`update()`] brings one up to
//! date.
//!
//! The tree does not know the salt: it is in the [`SaltedHash`](casemate_providers::SaltedHash).

mod build;
mod check;
mod climber;
mod geometry;
mod hasher;
mod in_order;
mod kept;
mod medium;
mod part;
mod plan;
mod ranges;
mod sink;
mod update;
mod verified;

pub use build::{Built, Job, build, build_stream};
pub use check::{Block, Fault, Finding, Stored, Summary, check, check_readable, check_tree};
pub use geometry::{Geometry, Level, MAX_LEVELS, Shape};
pub use hasher::TreeHasher;
pub(crate) use kept::Kept;
pub use kept::TreeBlocks;
pub use medium::Verified;
pub use part::{build_part, check_part, join, unit};
pub use ranges::Ranges;
pub use sink::{SpilledLevels, TreeDevice, TreeSink};
pub use update::{check_above, check_unchanged, update};
pub use verified::{VerifiedDevice, VerifiedStatistics};
