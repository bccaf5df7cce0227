//! Another seed of all checksums.

use std::collections::HashSet;

use casemate_blockdev::{u64_of, usize_of};

use crate::alloc::{Allocator, in_use};
use crate::check::require_unused;
use crate::edit::reseal::{seal, seal_block, seal_blocks_of};
use crate::error::{Error, Place, Result, Structure};
use crate::format::bitmap;
use crate::format::csum::{Checksums, Context, Kind, Subject};
use crate::format::features::Incompat;
use crate::format::group::{Bitmap, GroupDescriptor};
use crate::format::inode::{GENERATION, MODE};
use crate::format::superblock::Superblock;
use crate::format::xattr;
use crate::transaction::patch::Part;
use crate::units::{Block, GroupNo, InodeNo};

/// Refuses a file system with structures whose checksums are not computed anew here.
pub(super) fn check(superblock: &Superblock) -> Result<()> {
    for (feature, what) in [
        (Incompat::EA_INODE, "values of attributes in inodes of their own"),
        (Incompat::MMP, "multi-mount protection"),
    ] {
        if superblock.incompat.has(feature) {
            let text = format!(
                "the seed of checksums can't change with the feature {feature} ({what}); add metadata_csum_seed first"
            );
            return Err(Error::unsupported(text));
        }
    }
    Ok(())
}

/// Computes all checksums of the file system anew.
pub(super) fn reseal(space: &mut Allocator, sums: &Checksums) -> Result<()> {
    let layout = *space.fs().layout();
    let mut attributes = HashSet::new();
    for group in layout.all_groups() {
        if sums.kind() == Kind::Metadata {
            reseal_group(space, sums, group, &mut attributes)?;
        }
        let (index, at) = layout.descriptor_position(group);
        let len = layout.descriptor_len();
        let part = Part {
            subject: sums.descriptor_subject(),
            context: Context { group, ..Context::default() },
            base: usize_of(at) * len,
            len,
        };
        seal(space, sums, layout.descriptor_block(index), &part)?;
    }
    for index in 0..layout.descriptor_blocks() {
        space.copy_descriptors(layout.first_described(index))?;
    }
    Ok(())
}

/// Bitmaps and inodes of a group, with the blocks of these.
fn reseal_group(
    space: &mut Allocator,
    sums: &Checksums,
    group: GroupNo,
    attributes: &mut HashSet<Block>,
) -> Result<()> {
    let fs = space.fs().clone();
    let layout = *fs.layout();
    let raw = fs.with_descriptor(group, |descriptor| descriptor.as_bytes().to_vec())?;
    let descriptor = GroupDescriptor::from_bytes(&raw)?;
    let mut used = Vec::new();
    for (which, bits) in
        [(Bitmap::Blocks, layout.clusters_per_group), (Bitmap::Inodes, layout.inodes_per_group)]
    {
        if descriptor.flags() & which.uninit() != 0 {
            continue;
        }
        let block = which.block(descriptor);
        fs.check_blocks(block, 1, Place::group(Structure::GroupDescriptor, group))?;
        let bytes = space.transaction().with(block, <[u8]>::to_vec)?;
        let covered = &bytes[..usize_of(bits / 8)];
        fs.checksums().verify_bitmap(
            which.subject(),
            covered,
            &raw,
            Place::group(which.structure(), group),
        )?;
        let sum = sums.update(None, covered);
        space.edit_descriptor(group, |descriptor| descriptor.set_bitmap_sum(sums, which, sum))?;
        used = bytes;
    }
    if descriptor.flags() & Bitmap::Inodes.uninit() != 0 {
        return require_unused(&layout, group, descriptor);
    }
    let first_unused = layout.inodes_per_group.saturating_sub(descriptor.unused_inodes());
    let lost = bitmap::next(&used, first_unused.into(), layout.inodes_per_group.into(), true);
    if let Some(index) = lost {
        return Err(in_use(group, index));
    }
    let (len, size) = (layout.inode_len(), space.block_size());
    for index in 0..first_unused {
        let at = usize_of(index) * len;
        let block = descriptor.inode_table() + u64_of(at / size);
        let base = at % size;
        fs.check_blocks(block, 1, Place::group(Structure::GroupDescriptor, group))?;
        let Some(number) = layout.inode_at(group, index) else { break };
        let is_used = bitmap::all(&used, index.into(), 1, true);
        let is_blank =
            space.transaction().with(block, |bytes| bytes[base..base + len].iter().all(|byte| *byte == 0))?;
        if is_blank {
            continue;
        }
        // The first ones of the file system's own, such as that of bad blocks, are of no kind.
        let has_kind = space.transaction().with(block, |bytes| MODE.get(&bytes[base..]) != 0)?;
        let context = if is_used && has_kind {
            let inode = fs.any_inode(number)?;
            seal_blocks_of(space, sums, &inode, inode.context())?;
            if let Some(block) = inode.xattr_block().filter(|block| attributes.insert(*block)) {
                let place = Place::inode(Structure::Xattr, number);
                fs.check_blocks(block, 1, place)?;
                let context = Context { block, ..Context::default() };
                let place = Place::of(Structure::XattrBlock).at(block);
                space.transaction().with(block, |bytes| {
                    if !xattr::block_header(bytes).0 {
                        return Err(place.malformed("is not a block of attributes"));
                    }
                    fs.checksums().verify(Subject::XattrBlock, &context, bytes, place)
                })??;
                seal_block(space, sums, Subject::XattrBlock, context, block)?;
            }
            inode.context()
        } else {
            space.transaction().with(block, |bytes| freed(number, &bytes[base..base + len]))?
        };
        seal(space, sums, block, &Part { subject: Subject::Inode, context, base, len })?;
    }
    Ok(())
}

/// The context of an inode that is in use by nothing, and may be anything.
fn freed(number: InodeNo, raw: &[u8]) -> Context {
    let generation = GENERATION.get(raw);
    Context { inode: Some(number), generation, ..Context::default() }
}
