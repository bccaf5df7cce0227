//! How blocks are cut into pieces, which workers claim, and chunks, which they read and hash at once.

use casemate_blockdev::u64_of;

use super::Shape;

/// Bytes that a worker reads and hashes at once: half a core's usual level 2 cache, so that the hash finds
/// there what the read has copied. Larger is slower, smaller means more calls.
const CHUNK: usize = 256 << 10;

/// Blocks that a worker hashes at once at least, where memory allows it: what the widest hash works on in
/// parallel.
const CHUNK_BLOCKS: usize = 32;

/// Bytes of all workers' chunks together.
const ALL_CHUNKS: usize = 64 << 20;

/// The largest piece: its hash blocks, 1/128 of it in the usual case, are enough for the widest hash.
pub(super) const LARGEST_PIECE: u64 = 16 << 20;

/// The smallest piece, and the size of all pieces of a stream.
pub(super) const SMALLEST_PIECE: u64 = 512 << 10;

/// Pieces for each worker, so that all end at about the same time.
const PIECES_PER_WORKER: u64 = 8;

/// How data is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Blocks in a piece.
    pub(super) leaves: u64,
    /// Levels of a tree that a piece fills whole blocks of.
    pub(super) levels: usize,
    /// Blocks that are read and hashed at once.
    pub(super) chunk_blocks: usize,
}

impl Plan {
    /// For building a tree over so many bytes.
    pub(super) fn for_size(shape: &Shape, data_size: u64, threads: usize) -> Plan {
        let share = data_size / (u64_of(threads) * PIECES_PER_WORKER);
        Plan::climbing(shape, share.clamp(SMALLEST_PIECE, LARGEST_PIECE), threads)
    }

    /// Pieces of about so many bytes that fill whole hash blocks, if one fits.
    pub(super) fn climbing(shape: &Shape, piece_size: u64, threads: usize) -> Plan {
        let block_size = shape.data_block_size();
        let chunk_blocks = chunk_blocks(block_size, threads);
        let fan_out = u64_of(shape.digests_per_block());
        let most = piece_size / u64_of(block_size);
        let (mut leaves, mut levels) = (1, 0);
        while leaves * fan_out <= most {
            leaves *= fan_out;
            levels += 1;
        }
        // Without a whole hash block a piece is a chunk: the climber makes all levels.
        leaves = if levels == 0 { u64_of(chunk_blocks) } else { leaves * (most / leaves) };
        Plan { leaves, levels, chunk_blocks }
    }

    /// For hashing blocks that need not fill anything: a piece is a chunk.
    pub(super) fn flat(block_size: usize, threads: usize) -> Plan {
        let chunk_blocks = chunk_blocks(block_size, threads);
        Plan { leaves: u64_of(chunk_blocks), levels: 0, chunk_blocks }
    }
}

fn chunk_blocks(block_size: usize, threads: usize) -> usize {
    let wanted = (CHUNK / block_size).max(CHUNK_BLOCKS);
    wanted.min(ALL_CHUNKS / threads / block_size).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_hash_blocks_and_memory_is_bounded() {
        for threads in [1, 2, 64, 1000] {
            for (data, hash) in [(512, 512), (512, 524_288), (4096, 4096), (524_288, 512), (524_288, 524_288)]
            {
                let shape = Shape::power_of_two(data, hash, 32, true).unwrap();
                let plan = Plan::climbing(&shape, LARGEST_PIECE, threads);
                let whole = (shape.digests_per_block() as u64).pow(plan.levels as u32);
                assert!(plan.leaves.is_multiple_of(whole), "{plan:?}");
                let all = plan.chunk_blocks * threads * shape.data_block_size();
                assert!(all <= ALL_CHUNKS || plan.chunk_blocks == 1, "{plan:?}");
            }
        }
    }
}
