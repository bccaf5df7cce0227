//! Remains of secrets on the stacks of threads.

use std::hint::black_box;

/// Bytes of a worker's stack that are overwritten: more than ciphers and what calls them use.
const WORKER: usize = 64 << 10;

/// Bytes of the stack of a thread that has done all kinds of work.
const ALL: usize = 256 << 10;

/// Overwrites what functions that have returned left on this thread's stack, as far as 256 KiB.
///
/// Keys wipe themselves, but compilers put copies into functions' frames: when a value moves, or a register is needed. Call it
/// where work with keys is done, from a function that is no deeper than that work began at.
#[inline(never)]
pub fn wipe_stack() {
    black_box(&mut [0u8; ALL]);
}

/// Overwrites what a worker's pieces left on this thread's stack, as far as 64 KiB.
#[inline(never)]
pub(crate) fn wipe_worker() {
    black_box(&mut [0u8; WORKER]);
}
