//! The implementations that run on the CPU.

mod aes;
mod block;
mod essiv;
pub(crate) mod hash;
mod modes;
mod wide;

use casemate_primitives::Cpu;

use crate::driver::Driver;
use crate::row::{BadKey, Row};

/// Driver of any kind, as a cipher's maker gives it.
pub(crate) fn boxed(driver: impl Driver + 'static) -> Result<Box<dyn Driver>, BadKey> {
    Ok(Box::new(driver))
}

/// One row for each cipher's implementation that `cpu` can run.
pub(crate) fn rows(cpu: Cpu) -> Vec<Row> {
    let mut rows = aes::rows(cpu);
    rows.extend(wide::rows(cpu));
    rows.extend(block::rows(cpu));
    let templates = essiv::rows(cpu, &rows);
    rows.extend(templates);
    rows
}
