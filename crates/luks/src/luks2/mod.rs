//! LUKS2: two copies of a binary header, each followed by metadata in JSON.
//!
//! In this order: `binary` (the bytes before the JSON), `validate` (what metadata must be, rule by rule), `metadata`
//! (validated JSON as keyslots, segments, digests, tokens), `reencrypt` (a
//! reencryption that goes on), `header` (the better one of the two copies, and how both
//! are written).

mod binary;
mod header;
pub(crate) mod metadata;
pub mod reencrypt;
mod validate;

pub use binary::{BINARY_LEN, BinaryHeader, LARGEST_HEADER, Place, SALT_LEN, SMALLEST_HEADER};
pub use header::{CopyState, Header};
pub use metadata::{
    Area, DIGESTS, Digest, Kdf, Keyslot, Metadata, Priority, Segment, SegmentSize, TOKENS, Token, decode,
    encode,
};
pub use validate::KEYSLOTS;
