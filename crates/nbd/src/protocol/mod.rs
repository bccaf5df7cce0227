//! The protocol without I/O: bytes to requests, answers to bytes.
//!
//! A client first negotiates: [`GREETING`], then options, which [`Negotiation`] answers, until one of them ends in
//! transmission. From then on it sends [`Request`]s. All numbers are big-endian.

mod negotiation;
mod request;

pub use negotiation::{Agreed, ClientHello, Description, Negotiation, OptionHeader, Step, TlsMode};
pub use request::{Command, Request};

/// The server's first bytes: `NBDMAGIC`, `IHAVEOPT`, and flags: the fixed newstyle is spoken, and zeros can
/// be left out.
pub const GREETING: [u8; 18] = *b"NBDMAGICIHAVEOPT\x00\x03";

/// The most bytes of an option's data; more is not read.
pub const MAX_OPTION: u32 = 64 * 1024;

/// The most bytes of an export's name, and of a metadata query.
pub const MAX_NAME: usize = 4096;

/// The most bytes that a read or a write may ask for.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// The number that `base:allocation` has in replies.
pub const ALLOCATION_ID: u32 = 1;

/// Transmission flags, of an export.
pub mod flags {
    /// The flags are valid; always set.
    pub const HAS_FLAGS: u16 = 1;
    /// The export can't be written.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `FLUSH` is known.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Writes may ask to be on stable storage before they are answered.
    pub const SEND_FUA: u16 = 1 << 3;
    /// `TRIM` is known.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES` is known.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// Reads may ask for an answer in one piece.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection is good for what was written on all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `CACHE` is known.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// `WRITE_ZEROES` may be asked to fail rather than be slow.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Numbers of errors in replies; those of Linux, but the same everywhere.
pub mod errors {
    /// The request is not allowed, or the export is read-only.
    pub const EPERM: u32 = 1;
    /// Reading or writing the device failed.
    pub const EIO: u32 = 5;
    /// The server has no memory for the request.
    pub const ENOMEM: u32 = 12;
    /// The request makes no sense: an unknown command or flag, or a range that does not fit.
    pub const EINVAL: u32 = 22;
    /// The device has no room, or a write passes the export's end.
    pub const ENOSPC: u32 = 28;
    /// A command that the export does not offer, or zeros that would take long.
    pub const ENOTSUP: u32 = 95;
    /// The server is about to end.
    pub const ESHUTDOWN: u32 = 108;
}
