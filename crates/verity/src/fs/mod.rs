//! fs-verity: the digest of a file, the structures around it, and checking.
//!
//! A file is cut into blocks; the hashes of the blocks are packed into blocks again, level by level, until one
//! hash is left, the root hash. It goes into a [`Descriptor`] of 256 bytes, and the hash of the descriptor is the
//! file's digest: not the root hash, and not the hash of the file's bytes. [`Describer`] does all of this, [`FileHasher`] where
//! somebody hands the bytes over, [`WholeFile`] names one whose tree many machines make [parts](crate::Part) of.
//! [`describe()`], [`describe_many`] and [`check_tree`] do it by path; a [`TreeFile`] keeps a tree beside its file, for readers that check
//! what they read.
//!
//! Source: Documentation/filesystems/fsverity.rst and `struct fsverity_descriptor` of the kernel.

mod describe;
mod descriptor;
mod digest;
mod files;
mod hasher;
mod input;
#[cfg(target_os = "linux")]
mod kernel;
mod manifest;
mod parameters;
mod part;
mod tree_file;
mod watched;

pub use describe::Describer;
pub use descriptor::Descriptor;
pub use digest::FileDigest;
pub use files::{check_tree, describe, describe_device, describe_keeping, describe_many, digest};
pub use hasher::FileHasher;
pub use input::Input;
#[cfg(target_os = "linux")]
pub use kernel::{KernelError, Metadata, enable, enable_file, measure, read_metadata};
pub use manifest::{Entry, Manifest, escape_name};
pub use parameters::{Algorithm, Parameters};
pub use part::WholeFile;
pub use tree_file::TreeFile;
