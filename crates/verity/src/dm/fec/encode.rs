//! Making the parity, and comparing it with the parity that is stored.
//!
//! In the simplest words: for each column, divide its message by the code's generator and keep the remainder.
//! In practice workers claim panels, runs of neighbouring columns. A row of a panel is one read. Rows go
//! some at a time through the encoder, which keeps the registers of the panel's columns meanwhile, so each
//! byte is read once and what is in memory does not grow with the device.

use std::sync::{Mutex, PoisonError};

use casemate_blockdev::usize_of;
use casemate_providers::Work;

use super::message::Message;
use super::panel::each_panel;
use super::{FecDevices, FecLayout};
use crate::Error;
use crate::tree::Ranges;

/// Writes the parity of data and hash device to `devices.parity`.
///
/// The listener hears the bytes of the message.
///
/// # Errors
/// `Argument` if a device is shorter than the layout says; `Io` when reading, writing or progress fails.
pub fn encode(layout: &FecLayout, devices: &FecDevices<'_>, work: &Work<'_>) -> Result<(), Error> {
    let message = Message::new(layout, devices)?;
    each_panel(message, work, |first, _, parity| message.write_parity(parity, first))
}

/// Compares the stored parity with data and hash device; returns the numbers of the rounds that differ.
///
/// Round n holds the message blocks n, n + rounds, n + 2 * rounds and so on. Where one differs, one of these
/// blocks is wrong, or the parity is; the hash tree tells which.
///
/// # Errors
/// `Argument` if data or hash device is shorter than the layout says, `Corrupt` if the parity is, `Io` when
/// reading or progress fails.
pub fn check(layout: &FecLayout, devices: &FecDevices<'_>, work: &Work<'_>) -> Result<Ranges, Error> {
    let message = Message::new(layout, devices)?;
    message.check_parity_size()?;
    let wrong = Mutex::new(Ranges::new());
    each_panel(message, work, |first, stored, parity| {
        stored.resize(parity.len(), 0);
        message.read_parity(stored, first)?;
        if stored != parity {
            let roots = usize_of(layout.roots());
            let mut wrong = wrong.lock().unwrap_or_else(PoisonError::into_inner);
            let columns = stored.chunks_exact(roots).zip(parity.chunks_exact(roots));
            for ((stored, parity), column) in columns.zip(first..) {
                if stored != parity {
                    let round = column / layout.block_size();
                    wrong.insert(round..round + 1);
                }
            }
        }
        Ok(())
    })?;
    Ok(wrong.into_inner().unwrap_or_else(PoisonError::into_inner))
}
