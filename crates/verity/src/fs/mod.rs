//! fs-verity: the digest of a file, the structures around it, and checking.
//!
//! A file is cut into blocks; the hashes of the blocks are packed into blocks again, level by level, until one
//! hash is left, the root hash. It goes into a [`Descriptor`] of 256 bytes, and the hash of the descriptor is the
//! file's digest: not the root hash, and not the hash of the file's bytes. [`Describer`] does all of this, [`FileHasher`] where
//! somebody hands the bytes over, [`WholeFile`] names one whose tree many machines make [parts](crate::Part) of.
//!
//! Source: Documentation/filesystems/fsverity.rst and `struct fsverity_descriptor` of the kernel.

mod describe;
mod descriptor;
mod digest;
mod hasher;
mod manifest;
mod parameters;
mod part;

pub use describe::Describer;
pub use descriptor::Descriptor;
pub use digest::FileDigest;
pub use hasher::FileHasher;
pub use manifest::{Entry, Manifest, escape_name};
pub use parameters::{Algorithm, Parameters};
pub use part::WholeFile;
