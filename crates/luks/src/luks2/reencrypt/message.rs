//! The message that a reencryption's digest is of.

use casemate_primitives::secret::SecretVec;

use super::{Backups, Reencryption, Resilience};
use crate::luks2::metadata::{Segment, SegmentSize};

/// Bytes that a reencryption's digest is made of.
struct Message(SecretVec);

impl Message {
    fn put(&mut self, bytes: &[u8]) {
        let mut longer = SecretVec::zeroed(self.0.len() + bytes.len());
        let (head, tail) = longer.expose_mut().split_at_mut(self.0.len());
        head.copy_from_slice(self.0.expose());
        tail.copy_from_slice(bytes);
        self.0 = longer;
    }

    fn put_segment(&mut self, segment: &Segment) {
        self.put(segment.kind.as_bytes());
        self.put(&segment.offset.to_be_bytes());
        match segment.size {
            SegmentSize::Dynamic => self.put(b"dynamic"),
            SegmentSize::Fixed(size) => self.put(&size.to_be_bytes()),
        }
        if segment.kind == "crypt" {
            self.put(&segment.iv_tweak.to_be_bytes());
            self.put(segment.encryption.as_bytes());
            self.put(&segment.sector_size.to_be_bytes());
        }
    }
}

impl Reencryption {
    /// The message whose digest proves that who has the keys has written this: both keys, each once, and all that decides
    /// what becomes of the data.
    pub fn message(&self, old: Option<&SecretVec>, new: Option<&SecretVec>) -> SecretVec {
        let mut message = Message(SecretVec::zeroed(0));
        message.put(&[b'v', self.version()]);
        let second = if self.digests[0] == self.digests[1] { None } else { new };
        for key in [old, second].into_iter().flatten() {
            message.put(key.expose());
        }
        for text in [self.mode.name(), self.direction.name(), self.area_kind()] {
            message.put(text.as_bytes());
        }
        message.put(&self.area.start.to_be_bytes());
        message.put(&(self.area.end - self.area.start).to_be_bytes());
        if let Resilience::Checksum { hash, block } = &self.resilience {
            message.put(hash.as_bytes());
            message.put(&block.to_be_bytes());
        }
        if let Some(shift) = self.shift {
            message.put(&shift.to_be_bytes());
        }
        let Backups { previous, last, moved } = &self.backups;
        [Some(previous), Some(last), moved.as_ref()]
            .into_iter()
            .flatten()
            .for_each(|one| message.put_segment(one));
        message.0
    }
}
