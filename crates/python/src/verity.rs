//! dm-verity: hash areas made and data checked.

use casemate::Error;
use casemate::tree::Block;
use casemate::verity::{BlockSize, FormatOptions, Salt, Uuid, VerityOptions};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::device::Device;
use crate::error::raise;
use crate::input::Data;
use crate::work::{Effort, working};

/// Makes a hash area; returns the root hash.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub fn verity_format<'py>(
    py: Python<'py>,
    data: &Device,
    hash: &Device,
    algorithm: Option<String>,
    data_block_size: u64,
    hash_block_size: u64,
    salt: Option<Data>,
    uuid: Option<&str>,
    data_blocks: Option<u64>,
    hash_offset: u64,
    effort: Effort,
) -> PyResult<Bound<'py, PyBytes>> {
    let salt = match salt {
        Some(salt) => Some(salt.get(py)?.into_owned()),
        None => None,
    };
    let options = || {
        let mut options = FormatOptions::default();
        options.area.algorithm = algorithm;
        options.area.data_block_size = Some(BlockSize::new(data_block_size)?);
        options.area.hash_block_size = Some(BlockSize::new(hash_block_size)?);
        options.area.salt = salt.map(Salt::new).transpose()?;
        options.area.data_blocks = data_blocks;
        options.area.hash_offset = hash_offset;
        options.uuid = uuid.map(Uuid::from_text).transpose()?;
        Ok::<_, Error>(options)
    };
    let options = options().map_err(raise)?;
    let (data, hash) = (data.image(), hash.image());
    let made = working(py, effort, |work| data.verity_format(hash, &options, work))?;
    Ok(PyBytes::new(py, &made.root_hash))
}

/// Every block that does not match: `(None, number)` for one of data, `(level, index)` for one of hashes.
#[pyfunction]
pub fn verity_verify(
    py: Python<'_>,
    data: &Device,
    hash: &Device,
    root_hash: Data,
    hash_offset: u64,
    effort: Effort,
) -> PyResult<Vec<(Option<usize>, u64)>> {
    let root_hash = root_hash.get(py)?;
    let (data, hash) = (data.image(), hash.image());
    working(py, effort, |work| {
        let mut bad = Vec::new();
        let options = options(hash_offset);
        data.verity_volume(hash, &options)?.verify(&root_hash, work, &mut |finding| {
            bad.push(match finding.block {
                Block::Data(number) => (None, number),
                Block::Hash { level, index } => (Some(level), index),
            });
            Ok(())
        })?;
        Ok(bad)
    })
}

/// A hash area that begins at this byte of its device.
pub fn options(hash_offset: u64) -> VerityOptions {
    let mut options = VerityOptions::default();
    options.hash_offset = hash_offset;
    options
}
