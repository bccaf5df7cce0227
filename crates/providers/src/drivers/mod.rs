//! The implementations that run on the CPU.

mod aes;
mod block;
mod essiv;
pub(crate) mod hash;
mod modes;
mod wide;

use casemate_primitives::Cpu;

use crate::row::Row;

/// One row for each cipher's implementation that `cpu` can run.
pub(crate) fn rows(cpu: Cpu) -> Vec<Row> {
    let mut rows = aes::rows(cpu);
    rows.extend(wide::rows(cpu));
    rows.extend(block::rows(cpu));
    let templates = essiv::rows(cpu, &rows);
    rows.extend(templates);
    rows
}
