//! dm-verity: hash areas made and data checked.

use casemate::Error;
use casemate::part::Part;
use casemate::tree::{self, Block};
use casemate::verity::{
    BlockSize, FormatOptions, Layout, Parameters, Salt, Uuid, VerityOptions, is_whole_area,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::device::Device;
use crate::error::raise;
use crate::input::Data;
use crate::part::{Sent, received, sent};
use crate::work::{Effort, changing, working};

/// Makes a hash area; returns the root hash.
#[pyfunction]
#[pyo3(signature = (
    data, hash, *, algorithm, data_block_size, hash_block_size, salt, uuid, data_blocks, hash_offset, effort
))]
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
    let made = changing(py, effort, |work| {
        data.verity_format(hash, &options, work).map_err(|error| error.at(data.name()))
    })?;
    Ok(PyBytes::new(py, &made.root_hash))
}

/// The layout of a hash area over `size` bytes, as it comes from Python: hash algorithm, sizes of data and hash blocks, salt, UUID,
/// and the byte that the area begins at.
type Area = (String, u64, u64, Data, Option<String>, u64);

fn layout(py: Python<'_>, area: &Area, size: u64) -> PyResult<Layout> {
    let (algorithm, data_block_size, hash_block_size, salt, uuid, hash_offset) = area;
    let salt = salt.get(py)?.into_owned();
    let layout = || {
        let mut parameters = Parameters::new(algorithm)?;
        parameters.data_block_size = BlockSize::new(*data_block_size)?;
        parameters.hash_block_size = BlockSize::new(*hash_block_size)?;
        parameters.salt = Salt::new(salt)?;
        let uuid = uuid.as_deref().map(Uuid::from_text).transpose()?;
        Layout::new(parameters, size / data_block_size, *hash_offset, uuid)
    };
    layout().map_err(raise)
}

/// Bytes of data that parts of a hash area begin at multiples of.
#[pyfunction]
pub fn verity_unit(py: Python<'_>, area: Area) -> PyResult<u64> {
    Ok(tree::unit(layout(py, &area, area.1)?.geometry().shape()))
}

/// The part of a hash area that a device's bytes have, from byte `start` of `size` on; with its hash blocks if they are wanted.
#[pyfunction]
pub fn verity_part<'py>(
    py: Python<'py>,
    data: &Device,
    size: u64,
    start: u64,
    area: Area,
    with_tree: bool,
    effort: Effort,
) -> PyResult<Sent<'py>> {
    let (image, layout) = (data.image(), layout(py, &area, size)?);
    let tree_offset = layout.tree_offset();
    let built = working(py, effort, |work| image.tree_part(layout, start, with_tree, work))?;
    Ok(sent(py, &built.0, &built.1, tree_offset))
}

/// The root hash from all parts; the levels above them and the superblock go to `hash`, if it is given.
#[pyfunction]
pub fn verity_join<'py>(
    py: Python<'py>,
    parts: Vec<Data>,
    hash: Option<PyRef<'py, Device>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let parts = received::<Layout>(py, &parts)?;
    let hash = hash.map(|hash| hash.image().clone());
    let root_hash = working(py, Effort::default(), |work| match &hash {
        Some(hash) => hash.verity_join(&parts, work),
        None => Part::join(&parts, &(), work),
    })?;
    Ok(PyBytes::new(py, &root_hash))
}

/// Whether a device has the whole hash area over `size` bytes with this root hash, and nothing behind it.
#[pyfunction]
pub fn verity_is_whole_area(
    py: Python<'_>,
    hash: &Device,
    size: u64,
    area: Area,
    root_hash: Data,
    effort: Effort,
) -> PyResult<bool> {
    let (layout, root_hash) = (layout(py, &area, size)?, root_hash.get(py)?);
    let device = hash.image().device();
    working(py, effort, |work| is_whole_area(&layout, &*device, &root_hash, work))
}

/// A block that does not match: the level and index of a block of hashes, or no level and the number of one of data.
type BadBlock = (Option<usize>, u64);

/// Every block that does not match: `(None, number)` for one of data, `(level, index)` for one of hashes; and how many bytes behind
/// the data the root hash says nothing of.
#[pyfunction]
pub fn verity_verify(
    py: Python<'_>,
    data: &Device,
    hash: &Device,
    root_hash: Data,
    hash_offset: u64,
    effort: Effort,
) -> PyResult<(Vec<BadBlock>, u64)> {
    let root_hash = root_hash.get(py)?;
    let (data, hash) = (data.image(), hash.image());
    working(py, effort, |work| {
        let mut bad = Vec::new();
        let options = options(hash_offset);
        let volume = data.verity_volume(hash, &options)?;
        volume.verify(&root_hash, work, &mut |finding| {
            if let Some(error) = finding.unreadable() {
                return Err(error);
            }
            bad.push(match finding.block {
                Block::Data(number) => (None, number),
                Block::Hash { level, index } => (Some(level), index),
            });
            Ok(())
        })?;
        Ok((bad, volume.unprotected_bytes()))
    })
}

/// A hash area that begins at this byte of its device.
pub fn options(hash_offset: u64) -> VerityOptions {
    let mut options = VerityOptions::default();
    options.hash_offset = hash_offset;
    options
}
