//! Contents that have got their places and are still to be written.

use std::sync::Arc;

use casemate_blockdev::{Buffer, usize_of};

use crate::edit::put::pipeline::{Piece, Pipeline, Write};
use crate::edit::writer::Behind;
use crate::error::Result;

/// Contents that a copy still has to write, when they must be written at the latest: before the commit of what
/// leads to them.
pub(super) struct Placed {
    pipeline: Arc<Pipeline>,
    /// The buffer of the batch that is being placed, and what has its place.
    buffer: Buffer,
    pieces: Vec<Piece>,
}

impl Placed {
    pub(super) fn new(pipeline: Arc<Pipeline>) -> Placed {
        Placed { pipeline, buffer: Buffer::default(), pieces: Vec::new() }
    }

    /// Begins with another batch.
    pub(super) fn begin(&mut self, buffer: Buffer) {
        self.buffer = buffer;
        self.pieces.clear();
    }

    /// The contents of a file of the batch.
    pub(super) fn bytes(&self, at: usize, size: u64) -> &[u8] {
        &self.buffer[at..at + usize_of(size)]
    }

    /// Adds a piece of the batch.
    pub(super) fn add(&mut self, piece: Piece) {
        self.pieces.push(piece);
    }

    /// Has the batch written by whoever has time.
    pub(super) fn submit(&mut self) -> Result<()> {
        let (buffer, pieces) = (std::mem::take(&mut self.buffer), std::mem::take(&mut self.pieces));
        self.pipeline.submit(Write::Batch(buffer, pieces))
    }

    /// Queues a part of a file.
    pub(super) fn copy(&mut self, write: Write) -> Result<()> {
        self.pipeline.submit(write)
    }
}

impl Behind for Placed {
    fn settle(&mut self) -> Result<()> {
        self.pipeline.write_now(&mut self.buffer, &self.pieces)?;
        self.pieces.clear();
        self.pipeline.drain()
    }

    fn mark(&self) -> usize {
        self.pieces.len()
    }

    fn roll_back(&mut self, mark: usize) {
        self.pieces.truncate(mark);
        // Whoever copies hears of an error, too.
        let _ = self.pipeline.drain();
    }
}
