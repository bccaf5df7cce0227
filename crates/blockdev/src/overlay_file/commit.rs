//! Commit of an overlay: its blocks written into the device below.

use std::sync::Arc;

use super::base::OverlayBase;
use super::layout::{HEADER, Head, NUMBER, OverlayEdition};
use super::{OverlayFile, padded, same_base};
use crate::advice::Advice;
use crate::code::Code;
use crate::device::BlockDevice;
use crate::error::Result;
use crate::events::Events;
use crate::random::fill_random;
use crate::{u64_of, usize_of};

/// Bytes that are copied at once.
const COPIED: u64 = 1 << 20;

impl<D: BlockDevice, S: BlockDevice> OverlayFile<D, S> {
    /// Writes what a store has into the device below, and empties the store, which is one for the device as it is then.
    /// Returns how many blocks were written; the listener hears of their bytes. What was interrupted is completed by the same
    /// again: nothing but that can be done with the store and the device meanwhile.
    ///
    /// # Errors
    /// Errors of [`OverlayFile::open`]; `Argument` if a block below is neither as it was nor as the store has it, before
    /// anything is written; errors of either device, after which a second call may succeed.
    pub fn commit(below: D, store: S, base: Arc<dyn OverlayBase>, events: &dyn Events) -> Result<u64> {
        let (overlay, head) = OverlayFile::read(below, store, base)?;
        let OverlayFile { below, store, base, layout, size, .. } = &overlay;
        let write_header = |head: &Head| -> Result<()> {
            store.write_at(&layout.header(head), 0)?;
            store.flush()
        };
        // A mark with the store's number proves that this is the device, whatever was done to it since.
        let is_marked = head.number.is_some() && base.marked()? == head.number;
        // Of a commit that was interrupted the mark alone is left.
        if overlay.changed_blocks() == 0 && is_marked {
            let identity = padded(&base.identity(below, layout.edition)?)?;
            let done = Head { is_committed: false, identity, state: base.state()?, number: head.number };
            write_header(&done)?;
            base.end_commit()?;
            return write_header(&Head { number: None, ..done }).map(|()| 0);
        }
        // What is seen through the store stays the same from the beginning of the commit to its end: this tells the device
        // meanwhile.
        let view = padded(&base.identity(&overlay, layout.edition)?)?;
        overlay.check_end()?;
        if head.is_committed {
            if !is_marked {
                same_base(&head.identity, &view)?;
            }
            // Nothing tells what was below the blocks.
            if layout.edition == OverlayEdition::First {
                overlay.check_state(&head, base.state()?)?;
            }
        } else {
            overlay.check_identity(&head, below)?;
            overlay.check_state(&head, base.state()?)?;
        }
        match (overlay.check_blocks(), head.is_committed) {
            // Half of the blocks are written: nothing but the other half is a way out.
            (Err(error), true) if error.code() == Code::Changed && base.is_trusted() => {}
            (Err(error), true) => return Err(error.advise(Advice::TrustImage)),
            (checked, _) => checked?,
        }
        store.flush()?;
        // The store has the number before the mark does: nobody but this store can complete what the mark tells of.
        let number = head.number.map_or_else(new_number, Ok)?;
        let head = Head { number: Some(number), ..head };
        write_header(&head)?;
        base.begin_commit(number)?;
        let begun = Head { is_committed: true, identity: view, ..head };
        write_header(&begun)?;
        overlay.copy_down(events)?;
        store.write_zeroes(u64_of(HEADER), layout.bitmap, true)?;
        store.flush()?;
        let done = Head { is_committed: false, state: base.state()?, ..begun };
        write_header(&done)?;
        base.end_commit()?;
        write_header(&Head { number: None, ..done })?;
        store.discard(layout.data_start, *size)?;
        Ok(overlay.changed_blocks())
    }

    /// Copies all blocks of the store to the device below, until they are on stable storage.
    fn copy_down(&self, events: &dyn Events) -> Result<()> {
        let mut buffer = vec![0; usize_of(COPIED.min(self.size))];
        let mut at = 0;
        while at < self.size {
            let (is_stored, run) = self.run(at, self.size);
            at = run.end;
            for start in run.clone().step_by(buffer.len()).filter(|_| is_stored) {
                let piece = &mut buffer[..usize_of((run.end - start).min(COPIED))];
                self.store.read_at(piece, self.layout.data_start + start)?;
                self.below.write_at(piece, start)?;
                events.advance(u64_of(piece.len()))?;
            }
        }
        self.below.flush()
    }
}

fn new_number() -> Result<[u8; NUMBER]> {
    let mut number = [0; NUMBER];
    fill_random(&mut number).map(|()| number)
}
