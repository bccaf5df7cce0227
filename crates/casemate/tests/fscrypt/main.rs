//! Encrypted ext4 images that kernels made, read and written as those kernels do.

mod built;
mod changes;
mod checks;
mod corpus;
mod kernel;
mod manifest;
mod verity;
