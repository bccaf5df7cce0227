//! Changed metadata blocks, their checksums, and the ways in which all of them become the image's at once.

pub(crate) mod cache;
pub(crate) mod log;
pub(crate) mod mmp;
pub(crate) mod patch;
pub(crate) mod recovery_file;
