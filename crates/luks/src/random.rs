//! Where random bytes come from.

use casemate_blockdev::fill_random;
use casemate_providers::Hmac;

use crate::Error;

/// Random bytes, or those that follow from a seed and a volume key.
pub(super) enum Source {
    System,
    Seeded(Box<Hmac>, u64),
}

impl Source {
    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        match self {
            Source::System => fill_random(bytes),
            Source::Seeded(hmac, count) => {
                for piece in bytes.chunks_mut(hmac.tag_len()) {
                    *count += 1;
                    piece.copy_from_slice(&hmac.tag(&count.to_be_bytes()).expose()[..piece.len()]);
                }
                Ok(())
            }
        }
    }
}
