//! The modes of operation, written once for every [`Engine`](super::engine::Engine).

mod cbc;
mod counter;
mod ecb;
mod xts;

pub(super) use cbc::{cbc_decrypt, cbc_encrypt, cts};
pub(super) use counter::{Counter, counter};
pub(super) use ecb::ecb;
pub(super) use xts::xts;
#[cfg(target_arch = "x86_64")]
pub(super) use xts::{encrypt_tweaks, unit as xts_unit};
