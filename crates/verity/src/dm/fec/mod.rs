//! Forward error correction: parity over data and hash device, and repair with it.
//!
//! [`FecLayout`] says what the parity covers. [`encode`] makes it as `veritysetup format --fec-device` does,
//! [`check`] compares it, [`look`] tells whether a place has it, [`repair`] restores damaged data and hash blocks.
//!
//! Source: Documentation/admin-guide/device-mapper/verity.rst of the kernel, and the behaviour of `veritysetup`.

mod encode;
mod existing;
mod layout;
mod message;
mod panel;
mod repair;

pub use encode::{Differences, check, encode, unreadable};
pub use existing::{Seen, begins_with, is_in_part_there, layout_of_rounds, look};
pub use layout::FecLayout;
pub use message::FecDevices;
pub use repair::{Repaired, repair};
