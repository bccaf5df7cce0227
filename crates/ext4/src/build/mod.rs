//! New file systems, made of a tree of files in one pass.
//!
//! A [`Tree`] has names, attributes and where contents come from. A [`Plan`] decides from it and the [`BuildOptions`]
//! where everything goes: sizes are known exactly before a byte is written. [`Plan::write`] then writes each block once,
//! with its final checksum; contents are read and written by all threads.
//!
//! Each of these builds on those before it: `options`, `geometry` (the numbers that mke2fs would compute), `groups` (where
//! each group's metadata lie), `space` (what is free then, given out in order), `directory`, `map` and `attributes` (what
//! an inode needs), `plan`, `identity` (the UUID), `writer`, `target` (where it goes). `tree` with `host`, `tar`, `sources`, `amend` and `amendments` is beside them; `seal` and `encrypt` are what others know
//! of fs-verity and fscrypt.

mod amend;
mod amendments;
mod attributes;
mod contents;
mod directory;
mod encrypt;
mod geometry;
mod groups;
mod host;
mod identity;
mod inline;
mod inodes;
mod map;
mod options;
mod plan;
mod quota;
mod seal;
mod shapes;
mod sources;
mod space;
mod tar;
mod target;
mod tree;
mod words;
mod writer;

pub use amendments::{Amendments, Description, ModeRule, NewMode, NewXattr};
pub use encrypt::Encrypt;
pub use geometry::Geometry;
pub(crate) use geometry::journal_blocks;
pub use identity::TreeFile;
pub use options::{BuildOptions, BuildSize, Features, Identify, NewUuid};
pub use plan::Plan;
pub use seal::Seal;
pub use sources::Source;
pub use target::{BuildTarget, Complete};
pub use tree::{Owners, Tree, TreeOptions};
pub use words::uuid;
pub use writer::BuildReport;
