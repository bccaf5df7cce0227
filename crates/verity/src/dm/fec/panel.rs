//! Runs of neighbouring columns, through the encoder on all threads.

use casemate_blockdev::{Buffer, u64_of, usize_of};
use casemate_primitives::reed_solomon::{Encoder, ReedSolomon};
use casemate_providers::Work;

use super::FecLayout;
use super::message::Message;
use crate::Error;

/// Rows that go through the encoder together. 16 rows of 64 KiB, one core and 1 GiB in the page cache: 2 roots
/// 8.8 GB/s, 24 roots 5.0; 32 rows of 64 KiB 8.6 and 5.0; 32 rows of 16 KiB 7.6 and 4.7.
const ROWS: usize = 16;

/// The most columns of a panel, which is also the length of a read.
const WIDEST: usize = 64 << 10;

/// A panel's columns are a multiple of this, a page, except at the end.
const GRANULE: usize = 4096;

/// Bytes of all workers' panels together, where that is possible with the narrowest ones.
const ALL_PANELS: usize = 48 << 20;

/// Panels for each work, so that all end at about the same time.
const PANELS_PER_WORKER: u64 = 4;

/// How the matrix is cut.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Columns of a panel.
    width: usize,
    /// Rows that are read before they go through the encoder together.
    rows: usize,
}

impl Plan {
    fn new(layout: &FecLayout, threads: usize) -> Plan {
        // Rows as read; registers, parity and the spare buffer have one row for each root.
        let rows_in_memory = ROWS + 3 * usize_of(layout.roots());
        let widest = u64_of((ALL_PANELS / threads / rows_in_memory).clamp(GRANULE, WIDEST));
        let share = layout.columns() / (u64_of(threads) * PANELS_PER_WORKER);
        let width = usize_of(share.clamp(u64_of(GRANULE), widest));
        Plan { width: width.next_multiple_of(GRANULE), rows: ROWS }
    }
}

/// Calls `take(first column, spare buffer, parity)` for each panel, on all threads.
pub(super) fn each_panel(
    message: Message<'_>,
    work: &Work<'_>,
    take: impl Fn(u64, &mut Vec<u8>, &[u8]) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let layout = message.layout;
    let code = layout.code(work.providers.cpu());
    let plan = Plan::new(layout, work.pool.threads());
    let panels = layout.columns().div_ceil(u64_of(plan.width));
    let new_panel = || Panel::new(&code, plan);
    work.pool.run(panels, new_panel, |panel, number| {
        let first = number * u64_of(plan.width);
        let width = usize_of((layout.columns() - first).min(u64_of(plan.width)));
        let covered = panel.encode(message, first, width)?;
        take(first, &mut panel.spare, &panel.parity)?;
        work.events.advance(covered)
    })?;
    Ok(())
}

/// State of one thread.
struct Panel<'a> {
    code: &'a ReedSolomon,
    encoder: Encoder<'a>,
    /// Rows, one after the other.
    rows: Buffer,
    parity: Vec<u8>,
    spare: Vec<u8>,
    plan: Plan,
}

impl<'a> Panel<'a> {
    fn new(code: &'a ReedSolomon, plan: Plan) -> Panel<'a> {
        let rows = Buffer::new(plan.rows * plan.width);
        Panel { code, encoder: code.encoder(plan.width), rows, parity: Vec::new(), spare: Vec::new(), plan }
    }

    /// Makes the parity of `width` columns from `first` on. Returns how many bytes of the message they hold.
    fn encode(&mut self, message: Message<'_>, first: u64, width: usize) -> Result<u64, Error> {
        if self.encoder.width() != width {
            self.encoder = self.code.encoder(width);
        }
        let layout = message.layout;
        let offset = |row: u64| row * layout.columns() + first;
        let mut covered = 0;
        let mut row = 0;
        while row < layout.rows() {
            let count = (layout.rows() - row).min(u64_of(self.plan.rows));
            let buf = &mut self.rows[..usize_of(count) * width];
            for (bytes, row) in buf.chunks_exact_mut(width).zip(row..) {
                covered += u64_of(message.read(bytes, offset(row))?);
            }
            self.encoder.feed(&buf.chunks_exact(width).collect::<Vec<_>>());
            row += count;
        }
        self.parity.resize(self.code.roots() * width, 0);
        self.encoder.finish(&mut self.parity);
        Ok(covered)
    }
}
