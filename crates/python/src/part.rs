//! Parts of trees as they are sent from machine to machine.

use casemate::Providers;
use casemate::fsverity::WholeFile;
use casemate::part::{Part, TreeBlocks, Whole};
use casemate::verity::Layout;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::raise;
use crate::input::Data;

/// A part as it is sent, and hash blocks with the bytes that they begin at in the tree's file.
pub type Sent<'py> = (Bound<'py, PyBytes>, Vec<(u64, Bound<'py, PyBytes>)>);

/// A part and its blocks, of a tree that begins at byte `tree_offset` of its file.
pub fn sent<'py, W: Whole>(
    py: Python<'py>,
    part: &Part<W>,
    blocks: &[TreeBlocks],
    tree_offset: u64,
) -> Sent<'py> {
    let placed = |blocks: &TreeBlocks| (tree_offset + blocks.offset, PyBytes::new(py, &blocks.bytes));
    (PyBytes::new(py, &part.to_bytes(&Providers::default())), blocks.iter().map(placed).collect())
}

/// Reads the parts that came back.
pub fn received<W: Whole>(py: Python<'_>, parts: &[Data]) -> PyResult<Vec<Part<W>>> {
    parts.iter().map(|part| Part::from_bytes(&part.get(py)?, &Providers::default()).map_err(raise)).collect()
}

/// The bytes that a part is of, of fs-verity or dm-verity: the first one and the end.
#[pyfunction]
pub fn part_range(py: Python<'_>, part: Data) -> PyResult<(u64, u64)> {
    let bytes = part.get(py)?;
    let range = match bytes.starts_with(&Layout::MAGIC) {
        true => Part::<Layout>::from_bytes(&bytes, &Providers::default()).map(|part| part.range()),
        false => Part::<WholeFile>::from_bytes(&bytes, &Providers::default()).map(|part| part.range()),
    };
    range.map(|range| (range.start, range.end)).map_err(raise)
}
