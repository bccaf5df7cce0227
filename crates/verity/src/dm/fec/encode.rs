//! Making the parity, and comparing it with the parity that is stored.
//!
//! In the simplest words: for each column, divide its message by the code's generator and keep the remainder.
//! In practice workers claim panels, runs of neighbouring columns. A row of a panel is one read. Rows go
//! some at a time through the encoder, which keeps the registers of the panel's columns meanwhile, so each
//! byte is read once and what is in memory does not grow with the device.

use std::sync::{Mutex, PoisonError};

use casemate_blockdev::{u64_of, usize_of};
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

/// Rounds whose parity is not that of data and hash device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Differences {
    /// The numbers of the rounds that differ.
    pub wrong: Ranges,
    /// The numbers of the rounds whose parity can't be read, at least in part. In the rest they may differ, too.
    pub unreadable: Ranges,
}

impl Differences {
    /// Whether all of the parity is right.
    pub fn is_empty(&self) -> bool {
        self.wrong.is_empty() && self.unreadable.is_empty()
    }

    /// The rounds whose parity has to be made again.
    pub fn all(&self) -> Ranges {
        self.wrong.iter().chain(self.unreadable.iter()).collect()
    }
}

/// Compares the stored parity with data and hash device; returns the numbers of the rounds that differ, and of those that can't be read.
///
/// Round n holds the message blocks n, n + rounds, n + 2 * rounds and so on. Where one differs, one of these
/// blocks is wrong, or the parity is; the hash tree tells which.
///
/// # Errors
/// `Argument` if data or hash device is shorter than the layout says, `Corrupt` if the parity is, `Io` when
/// reading or progress fails.
pub fn check(layout: &FecLayout, devices: &FecDevices<'_>, work: &Work<'_>) -> Result<Differences, Error> {
    let message = Message::new(layout, devices)?;
    message.check_parity_size()?;
    let found = Mutex::new(Differences::default());
    each_panel(message, work, |first, stored, parity| {
        stored.resize(parity.len(), 0);
        let lost = message.read_parity_in_part(stored, first)?;
        if stored != parity || !lost.is_empty() {
            let roots = usize_of(layout.roots());
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            for columns in lost {
                // What is not known does not differ.
                let bytes = columns.start * roots..columns.end * roots;
                stored[bytes.clone()].copy_from_slice(&parity[bytes]);
                let round = |column: usize| (first + u64_of(column)) / layout.block_size();
                found.unreadable.insert(round(columns.start)..round(columns.end - 1) + 1);
            }
            let columns = stored.chunks_exact(roots).zip(parity.chunks_exact(roots));
            for ((stored, parity), column) in columns.zip(first..) {
                if stored != parity {
                    let round = column / layout.block_size();
                    found.wrong.insert(round..round + 1);
                }
            }
        }
        Ok(())
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The rounds of these whose parity can't be read.
///
/// # Errors
/// `Argument` if data or hash device is shorter than the layout says; `Io` when reading fails as a whole.
pub fn unreadable(layout: &FecLayout, devices: &FecDevices<'_>, rounds: &Ranges) -> Result<Ranges, Error> {
    let message = Message::new(layout, devices)?;
    let mut parity = vec![0; usize_of(layout.block_size() * u64::from(layout.roots()))];
    let mut unreadable = Ranges::new();
    for round in rounds.iter().flatten() {
        match message.read_parity(&mut parity, round * layout.block_size()) {
            Err(error) if error.is_of_medium() => unreadable.insert(round..round + 1),
            read => read?,
        }
    }
    Ok(unreadable)
}
