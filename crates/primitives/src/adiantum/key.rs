//! The key of NH.

use zeroize::{Zeroize, ZeroizeOnDrop};

/// The most message bytes under one key.
pub(super) const MESSAGE: usize = 1024;

/// Bytes of key: those of the message and three strides of 16 for the second to fourth sum.
pub(super) const KEY: usize = MESSAGE + 3 * 16;

/// The key of NH: little-endian 32-bit words.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(64))]
pub(super) struct NhKey(pub [u8; KEY]);
