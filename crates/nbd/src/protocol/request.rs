//! Requests of the transmission phase.

use super::errors::{EINVAL, ENOSPC, ENOTSUP, EPERM};
use super::{MAX_PAYLOAD, flags};

/// A client's request, as it came. A write's data follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command; `Err` holds the number of an unknown one.
    pub command: Result<Command, u16>,
    /// The request's flags; see the constants of this type.
    pub flags: u16,
    /// The client's number for the request, which is in the reply.
    pub cookie: u64,
    /// Where the range that is meant begins on the export, in bytes.
    pub offset: u64,
    /// Bytes of the range that is meant.
    pub len: u32,
}

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read bytes of the export.
    Read,
    /// Write bytes of the export.
    Write,
    /// Disconnect when all requests are answered. There is no reply.
    Disconnect,
    /// Put everything that was written on stable storage.
    Flush,
    /// Forget bytes of the export.
    Trim,
    /// Read bytes ahead, so that they can be read quickly later.
    Cache,
    /// Make bytes zero, without sending zeros.
    WriteZeroes,
    /// Tell which bytes are allocated, and which read as zeros.
    BlockStatus,
}

impl Request {
    /// Bytes of a request without a write's data.
    pub const LEN: usize = 28;
    /// Flag: what is written is to be on stable storage before the reply is sent.
    pub const FUA: u16 = 1;
    /// Flag of `WriteZeroes`: the range keeps its space.
    pub const NO_HOLE: u16 = 2;
    /// Flag of `Read`: the answer is to be one piece.
    pub const DF: u16 = 4;
    /// Flag of `WriteZeroes`: to fail if making zeros would take as long as writing them.
    pub const FAST_ZERO: u16 = 16;
    /// Flag of `BlockStatus`: the answer is to have one extent.
    pub const REQ_ONE: u16 = 8;

    /// Reads a request of 28 bytes.
    ///
    /// `None` if its magic number is missing: then it is unknown where the next request begins.
    pub fn from_bytes(bytes: &[u8; Request::LEN]) -> Option<Request> {
        let be32 = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let be64 = |at: usize| u64::from(be32(at)) << 32 | u64::from(be32(at + 4));
        if be32(0) != MAGIC {
            return None;
        }
        let command = match u16::from_be_bytes([bytes[6], bytes[7]]) {
            0 => Ok(Command::Read),
            1 => Ok(Command::Write),
            2 => Ok(Command::Disconnect),
            3 => Ok(Command::Flush),
            4 => Ok(Command::Trim),
            5 => Ok(Command::Cache),
            6 => Ok(Command::WriteZeroes),
            7 => Ok(Command::BlockStatus),
            other => Err(other),
        };
        let flags = u16::from_be_bytes([bytes[4], bytes[5]]);
        Some(Request { command, flags, cookie: be64(8), offset: be64(16), len: be32(24) })
    }

    /// The bytes of a request, as a client sends them.
    pub fn to_bytes(&self) -> [u8; Request::LEN] {
        let command = match self.command {
            Ok(Command::Read) => 0,
            Ok(Command::Write) => 1,
            Ok(Command::Disconnect) => 2,
            Ok(Command::Flush) => 3,
            Ok(Command::Trim) => 4,
            Ok(Command::Cache) => 5,
            Ok(Command::WriteZeroes) => 6,
            Ok(Command::BlockStatus) => 7,
            Err(other) => other,
        };
        let mut bytes = [0; Request::LEN];
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&u16::to_be_bytes(command));
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Bytes of data that follow the request.
    pub fn payload(&self) -> u32 {
        if self.command == Ok(Command::Write) { self.len } else { 0 }
    }

    /// Whether the request can be made of an export of `size` bytes with these transmission flags.
    ///
    /// # Errors
    /// The number for the reply.
    pub fn check(&self, size: u64, export: u16, allocation: bool) -> Result<Command, u32> {
        let command = self.command.map_err(|_| EINVAL)?;
        let has = |flag| export & flag != 0;
        let (known, offered) = match command {
            Command::Read => (Request::DF, true),
            Command::Write => (Request::FUA, true),
            Command::Disconnect => (u16::MAX, true),
            // FUA asks a flush for what it does anyway; some clients set it.
            Command::Flush => (Request::FUA, has(flags::SEND_FLUSH)),
            Command::Trim => (Request::FUA, has(flags::SEND_TRIM) || has(flags::READ_ONLY)),
            Command::Cache => (0, has(flags::SEND_CACHE)),
            Command::WriteZeroes => {
                let fast = if has(flags::SEND_FAST_ZERO) { Request::FAST_ZERO } else { 0 };
                let offered = has(flags::SEND_WRITE_ZEROES) || has(flags::READ_ONLY);
                (Request::FUA | Request::NO_HOLE | fast, offered)
            }
            Command::BlockStatus => (Request::REQ_ONE, allocation),
        };
        if self.flags & !known != 0 || !offered {
            return Err(if offered { EINVAL } else { ENOTSUP });
        }
        let writes = matches!(command, Command::Write | Command::Trim | Command::WriteZeroes);
        if writes && has(flags::READ_ONLY) {
            return Err(EPERM);
        }
        if matches!(command, Command::Disconnect | Command::Flush) {
            return Ok(command);
        }
        let moves = matches!(command, Command::Read | Command::Write);
        if moves && self.len > MAX_PAYLOAD || command == Command::BlockStatus && self.len == 0 {
            return Err(EINVAL);
        }
        match self.offset.checked_add(self.len.into()) {
            Some(end) if end <= size => Ok(command),
            _ if writes => Err(ENOSPC),
            _ => Err(EINVAL),
        }
    }
}

const MAGIC: u32 = 0x2560_9513;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_wire() {
        for command in [Ok(Command::Read), Ok(Command::Cache), Ok(Command::BlockStatus), Err(8), Err(0xffff)]
        {
            let request =
                Request { command, flags: 0x8001, cookie: u64::MAX - 1, offset: 1 << 63, len: 0x0102_0304 };
            assert_eq!(Request::from_bytes(&request.to_bytes()), Some(request));
        }
        assert_eq!(Request::from_bytes(&[0; 28]), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let all = flags::HAS_FLAGS | flags::SEND_FLUSH | flags::SEND_FUA | flags::SEND_WRITE_ZEROES;
        let ask = |command, request_flags, offset, len, export| {
            Request { command: Ok(command), flags: request_flags, cookie: 0, offset, len }
                .check(1000, export, true)
        };
        use Command::*;
        assert_eq!(ask(Read, 0, 0, 1000, all), Ok(Read));
        assert_eq!(ask(Read, 0, 1, 1000, all), Err(EINVAL));
        assert_eq!(ask(Read, 0, u64::MAX, 2, all), Err(EINVAL));
        assert_eq!(ask(Read, Request::FUA, 0, 1, all), Err(EINVAL));
        assert_eq!(ask(Write, Request::FUA, 999, 1, all), Ok(Write));
        assert_eq!(ask(Write, 0, 999, 2, all), Err(ENOSPC));
        assert_eq!(ask(Write, 0, 0, 1, all | flags::READ_ONLY), Err(EPERM));
        assert_eq!(ask(Trim, 0, 0, 1, all), Err(ENOTSUP));
        assert_eq!(ask(Trim, 0, 0, 1, flags::READ_ONLY), Err(EPERM));
        assert_eq!(ask(Cache, 0, 0, 1, all), Err(ENOTSUP));
        assert_eq!(ask(Cache, 0, 999, 2, all | flags::SEND_CACHE), Err(EINVAL));
        assert_eq!(ask(WriteZeroes, Request::FAST_ZERO, 0, 1, all), Err(EINVAL));
        let fast = all | flags::SEND_FAST_ZERO;
        assert_eq!(ask(WriteZeroes, Request::FAST_ZERO, 0, 1, fast), Ok(WriteZeroes));
        assert_eq!(ask(Write, Request::FAST_ZERO, 0, 1, fast), Err(EINVAL));
        assert_eq!(ask(BlockStatus, 0, 0, 0, all), Err(EINVAL));
        assert_eq!(ask(Flush, 0, u64::MAX, 9, all), Ok(Flush));
        let huge = Request { command: Ok(Read), flags: 0, cookie: 0, offset: 0, len: MAX_PAYLOAD + 1 };
        assert_eq!(huge.check(u64::MAX, all, true), Err(EINVAL));
        assert_eq!(Request { command: Err(9), ..huge }.check(u64::MAX, all, true), Err(EINVAL));
    }
}
