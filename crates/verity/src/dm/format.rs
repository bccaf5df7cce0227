//! Making a hash area, checking data against it, and bringing it up to date.

use casemate_blockdev::{BlockDevice, Events, Window, u64_of, usize_of};
use casemate_providers::{SaltedHash, Work};

use super::{Layout, SUPERBLOCK_SIZE};
use crate::Error;
use crate::tree::{self, Finding, Job, Ranges, Stored, Summary, TreeDevice};

/// Writes the hash area for `data` to `hash_device` and returns the root hash. The listener hears of bytes of data.
///
/// The superblock, if there is one, comes last: before it the tree is on stable storage, and what was in its
/// place is overwritten first. So whatever happens meanwhile, no superblock describes half a tree.
///
/// # Errors
/// `Argument` if `data` is shorter than the layout says, `Io` when reading, writing or progress fails.
pub fn format(
    layout: &Layout,
    data: &dyn BlockDevice,
    hash_device: &dyn BlockDevice,
    work: &Work<'_>,
) -> Result<Vec<u8>, Error> {
    let (needed, size) = (layout.geometry().data_size(), data.size());
    if size < needed {
        let blocks = layout.geometry().data_blocks();
        return Err(Error::argument(format!(
            "the data device has {size} bytes, too few for {blocks} data blocks ({needed} bytes)"
        )));
    }
    let has_superblock = layout.superblock().is_some();
    if has_superblock {
        hash_device.write_at(&[0; SUPERBLOCK_SIZE], layout.hash_offset())?;
    }
    let hash = layout.parameters().salted_hash(&work.providers)?;
    let sink = TreeDevice::new(layout.geometry(), hash_device, layout.tree_offset());
    let built = tree::build(&job(layout, &hash, work), layout.geometry(), data, &sink)?;
    finish(layout, hash_device)?;
    Ok(built.root_hash)
}

/// Completes a hash area by its superblock, after everything else is on stable storage.
pub(super) fn finish(layout: &Layout, hash_device: &dyn BlockDevice) -> Result<(), Error> {
    // One data block has no tree. veritysetup's file ends with the superblock's hash block then, or page if that
    // is smaller, and so does ours.
    let end =
        (layout.hash_offset() + u64_of(SUPERBLOCK_SIZE)).next_multiple_of(4096).min(layout.tree_offset());
    if layout.superblock().is_some() && layout.geometry().tree_blocks() == 0 && hash_device.size() < end {
        hash_device.write_at(&[0], end - 1)?;
    }
    hash_device.flush()?;
    if let Some(superblock) = layout.superblock() {
        hash_device.write_at(&superblock.to_bytes(), layout.hash_offset())?;
        hash_device.flush()?;
    }
    Ok(())
}

/// Checks all data and the whole tree below `root_hash`; `report` hears of each wrong block, and of each that can't be read.
///
/// # Errors
/// `Argument` if the root hash has a wrong length, `Corrupt` if one of the devices is too short, `Io` when
/// reading fails as a whole, or progress or `report` does.
pub fn verify(
    layout: &Layout,
    data: &dyn BlockDevice,
    hash_device: &dyn BlockDevice,
    root_hash: &[u8],
    work: &Work<'_>,
    report: &mut (dyn FnMut(Finding) -> Result<(), Error> + Send),
) -> Result<Summary, Error> {
    layout.check_root_hash(root_hash)?;
    check_sizes(layout, data, hash_device)?;
    let hash = layout.parameters().salted_hash(&work.providers)?;
    let tree = TreeDevice::new(layout.geometry(), hash_device, layout.tree_offset());
    let stored = Stored { geometry: layout.geometry(), data, tree: &tree };
    tree::check_readable(&job(layout, &hash, work), &stored, root_hash, report)
}

/// Whether the blocks on a device are a tree of this layout: each level holds the digests of the level below. A superblock that says so
/// is no tree. Nothing vouches for the topmost block. The listener hears of no bytes, and may stop the work.
///
/// # Errors
/// `Unsupported` for an algorithm that cannot be used; `Io`.
pub fn is_tree(layout: &Layout, hash_device: &dyn BlockDevice, work: &Work<'_>) -> Result<bool, Error> {
    let levels = layout.geometry().levels();
    if layout.hash_device_size() > hash_device.size() {
        return Ok(levels.is_empty());
    }
    let [lowest, _, ..] = levels else { return Ok(true) };
    // The levels above the lowest are a tree over that, and lie before it.
    let block_size = layout.parameters().hash_block_size;
    let mut parameters = layout.parameters().clone();
    parameters.data_block_size = block_size;
    let above = Layout::new(parameters, lowest.blocks, layout.tree_offset(), None)?;
    let len = lowest.blocks * u64::from(block_size.bytes());
    let leaves = Window::new(hash_device, layout.position(0, 0), len)?;
    let mut top = vec![0; usize_of(u64::from(block_size.bytes()))];
    hash_device.read_at(&mut top, above.tree_offset())?;
    let hash = layout.parameters().salted_hash(&work.providers)?;
    let mut root_hash = vec![0; hash.digest_len()];
    hash.hash(&top, &mut root_hash);
    let quiet = Quiet(work.events);
    let work = Work { events: &quiet, ..work.clone() };
    let mut is_tree = true;
    let mut report = |finding: Finding| match finding.unreadable() {
        Some(error) => Err(error),
        None => {
            is_tree = false;
            Err(Error::mismatch("a block is not what the one above says"))
        }
    };
    match verify(&above, &leaves, hash_device, &root_hash, &work, &mut report) {
        Err(_) if !is_tree => Ok(false),
        done => done.map(|_| true),
    }
}

/// A listener that hears of no bytes, and may stop the work.
struct Quiet<'a>(&'a dyn Events);

impl Events for Quiet<'_> {
    fn advance(&self, _: u64) -> Result<(), Error> {
        self.0.advance(0)
    }
}

/// Recomputes the digests of the data blocks in `changed` and what is above them; returns the new root hash.
///
/// With `old_root` the hash blocks that change are checked against it first; see [`tree::update`].
///
/// # Errors
/// Errors of [`tree::update`], and `Corrupt` if one of the devices is too short.
pub fn update(
    layout: &Layout,
    data: &dyn BlockDevice,
    hash_device: &dyn BlockDevice,
    changed: &Ranges,
    old_root: Option<&[u8]>,
    work: &Work<'_>,
) -> Result<Vec<u8>, Error> {
    if let Some(root_hash) = old_root {
        layout.check_root_hash(root_hash)?;
    }
    check_sizes(layout, data, hash_device)?;
    let hash = layout.parameters().salted_hash(&work.providers)?;
    let tree = TreeDevice::new(layout.geometry(), hash_device, layout.tree_offset());
    let stored = Stored { geometry: layout.geometry(), data, tree: &tree };
    let root_hash = tree::update(&job(layout, &hash, work), &stored, changed, old_root)?;
    hash_device.flush()?;
    Ok(root_hash)
}

/// Checks what an [`update`] takes as it is: see [`tree::check_unchanged`].
///
/// # Errors
/// Errors of [`tree::check_unchanged`], and `Corrupt` if one of the devices is too short.
pub fn check_unchanged(
    layout: &Layout,
    data: &dyn BlockDevice,
    hash_device: &dyn BlockDevice,
    changed: &Ranges,
    work: &Work<'_>,
) -> Result<(), Error> {
    check_by(tree::check_unchanged, layout, (data, hash_device), changed, work)
}

/// Checks the hash blocks that an [`update`] changes: see [`tree::check_above`].
///
/// # Errors
/// Errors of [`tree::check_above`], and `Corrupt` if one of the devices is too short.
pub fn check_above(
    layout: &Layout,
    data: &dyn BlockDevice,
    hash_device: &dyn BlockDevice,
    changed: &Ranges,
    work: &Work<'_>,
) -> Result<(), Error> {
    check_by(tree::check_above, layout, (data, hash_device), changed, work)
}

fn check_by(
    check: impl Fn(&Job<'_>, &Stored<'_>, &Ranges) -> Result<(), Error>,
    layout: &Layout,
    (data, hash_device): (&dyn BlockDevice, &dyn BlockDevice),
    changed: &Ranges,
    work: &Work<'_>,
) -> Result<(), Error> {
    check_sizes(layout, data, hash_device)?;
    let hash = layout.parameters().salted_hash(&work.providers)?;
    let tree = TreeDevice::new(layout.geometry(), hash_device, layout.tree_offset());
    let stored = Stored { geometry: layout.geometry(), data, tree: &tree };
    check(&job(layout, &hash, work), &stored, changed)
}

fn job<'a>(layout: &Layout, hash: &'a SaltedHash, work: &'a Work<'a>) -> Job<'a> {
    Job { shape: *layout.geometry().shape(), hash, work }
}

fn check_sizes(layout: &Layout, data: &dyn BlockDevice, hash_device: &dyn BlockDevice) -> Result<(), Error> {
    let has_tree = layout.geometry().tree_blocks() > 0;
    let hash_size = if has_tree { layout.hash_device_size() } else { 0 };
    let parts =
        [("data", data.size(), layout.geometry().data_size()), ("hash", hash_device.size(), hash_size)];
    for (name, size, needed) in parts {
        if size < needed {
            return Err(Error::corrupt(format!(
                "the {name} device is cut off: it has {size} bytes and needs {needed}"
            )));
        }
    }
    Ok(())
}
