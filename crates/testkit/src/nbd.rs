//! A small NBD client, written from the protocol's description alone.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A connection that is past negotiation, with structured replies and `base:allocation`.
#[derive(Debug)]
pub struct Client {
    /// The socket, for those who want to misbehave.
    pub stream: UnixStream,
    /// Bytes of the export.
    pub size: u64,
    /// Its transmission flags.
    pub flags: u16,
    cookie: u64,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Which request it answers.
    pub cookie: u64,
    /// 0, or what went wrong.
    pub error: u32,
    /// The bytes that were read, or the description of the block status.
    pub data: Vec<u8>,
    /// Where the parts of an answer to a read lie: offsets and lengths.
    pub parts: Vec<(u64, usize)>,
    /// Where it could not be read.
    pub bad: Vec<u64>,
}

/// Commands of requests.
pub const READ: u16 = 0;
/// Its data follows.
pub const WRITE: u16 = 1;
/// No reply comes.
pub const DISCONNECT: u16 = 2;
/// Everything that was answered is made safe.
pub const FLUSH: u16 = 3;
/// Bytes that nobody needs.
pub const TRIM: u16 = 4;
/// Bytes that will be read soon.
pub const CACHE: u16 = 5;
/// Zeros that are not sent.
pub const WRITE_ZEROES: u16 = 6;
/// Holes and data.
pub const BLOCK_STATUS: u16 = 7;
/// The flag that makes a write safe before it is answered.
pub const FUA: u16 = 1;
/// The flag of a read that wants its answer in one piece.
pub const DF: u16 = 4;
/// The flag of zeros that are wanted only if it is quick.
pub const FAST_ZERO: u16 = 16;

impl Client {
    /// Connects to the default export of the server behind a Unix socket.
    ///
    /// # Panics
    /// If the server says something that it must not.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Client> {
        let mut stream = UnixStream::connect(path)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        stream.write_all(&3u32.to_be_bytes())?;
        option(&mut stream, 8, &[])?;
        let context = [&[0; 4][..], &1u32.to_be_bytes(), &15u32.to_be_bytes(), b"base:allocation"].concat();
        option(&mut stream, 10, &context)?;
        let (mut size, mut flags) = (0, 0);
        for info in option(&mut stream, 7, &[0; 6])? {
            if info.len() == 12 && info[..2] == [0, 0] {
                size = u64::from_be_bytes(info[2..10].try_into().expect("eight bytes"));
                flags = u16::from_be_bytes([info[10], info[11]]);
            }
        }
        Ok(Client { stream, size, flags, cookie: 0 })
    }

    /// Connects as soon as there is a server.
    ///
    /// # Panics
    /// If there is none after [`crate::PATIENCE`].
    pub fn connect_when_there(path: impl AsRef<Path>) -> Client {
        let start = Instant::now();
        loop {
            match Client::connect(&path) {
                Ok(client) => return client,
                Err(error) => assert!(start.elapsed() < crate::PATIENCE, "no server: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a request and gives its cookie.
    pub fn send(&mut self, command: u16, flags: u16, offset: u64, len: u32, data: &[u8]) -> io::Result<u64> {
        self.cookie += 1;
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend_from_slice(data);
        self.stream.write_all(&request)?;
        Ok(self.cookie)
    }

    /// The next answer.
    ///
    /// # Panics
    /// If it is none.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let be32 = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
        let be64 = |bytes: &[u8]| u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
        let mut reply = Reply { cookie: 0, error: 0, data: Vec::new(), parts: Vec::new(), bad: Vec::new() };
        for number in 0.. {
            let mut head = [0; 16];
            self.stream.read_exact(&mut head)?;
            let cookie = be64(&head[8..]);
            assert!(number == 0 || cookie == reply.cookie, "chunks of one reply are not mixed with others");
            reply.cookie = cookie;
            if be32(&head) == 0x6744_6698 {
                assert_eq!(number, 0, "a simple reply is whole");
                reply.error = be32(&head[4..]);
                break;
            }
            assert_eq!((be32(&head), head[4]), (0x668e_33ef, 0));
            let mut len = [0; 4];
            self.stream.read_exact(&mut len)?;
            let mut body = vec![0; be32(&len) as usize];
            self.stream.read_exact(&mut body)?;
            match u16::from_be_bytes([head[6], head[7]]) {
                0 => assert!(body.is_empty() && head[5] == 1),
                1 => {
                    reply.parts.push((be64(&body), body.len() - 8));
                    reply.data.extend_from_slice(&body[8..]);
                }
                5 => reply.data = body.split_off(4),
                0x8001 => reply.error = be32(&body),
                0x8002 => {
                    reply.error = be32(&body);
                    reply.bad.push(be64(&body[body.len() - 8..]));
                }
                other => panic!("chunk type {other}"),
            }
            if head[5] & 1 == 1 {
                break;
            }
        }
        Ok(reply)
    }

    /// Sends a request and waits for its answer; the error is the protocol's number.
    ///
    /// # Panics
    /// If the server is gone.
    pub fn ask(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> Result<Vec<u8>, u32> {
        let cookie = self.send(command, flags, offset, len, data).expect("the server is there");
        let reply = self.receive().expect("the server answers");
        assert_eq!(reply.cookie, cookie);
        if reply.error == 0 { Ok(reply.data) } else { Err(reply.error) }
    }

    /// Reads bytes.
    pub fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        self.ask(READ, 0, offset, len, &[])
    }

    /// Writes bytes.
    pub fn write(&mut self, offset: u64, data: &[u8], flags: u16) -> Result<(), u32> {
        self.ask(WRITE, flags, offset, data.len() as u32, data).map(drop)
    }

    /// Makes safe what was written.
    pub fn flush(&mut self) -> Result<(), u32> {
        self.ask(FLUSH, 0, 0, 0, &[]).map(drop)
    }

    /// Lengths and states of a range.
    pub fn status(&mut self, offset: u64, len: u32) -> Result<Vec<(u32, u32)>, u32> {
        let data = self.ask(BLOCK_STATUS, 0, offset, len, &[])?;
        let be32 = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().expect("four bytes"));
        Ok((0..data.len()).step_by(8).map(|at| (be32(at), be32(at + 4))).collect())
    }
}

/// Sends an option and gives the data of its replies before the acknowledgement.
fn option(stream: &mut UnixStream, option: u32, data: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let mut request = b"IHAVEOPT".to_vec();
    request.extend(option.to_be_bytes());
    request.extend((data.len() as u32).to_be_bytes());
    request.extend_from_slice(data);
    stream.write_all(&request)?;
    let mut infos = Vec::new();
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let be32 = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let mut body = vec![0; be32(16) as usize];
        stream.read_exact(&mut body)?;
        match be32(12) {
            1 => return Ok(infos),
            error if error >> 31 == 1 => {
                return Err(io::Error::other(format!("option {option}: error {error:#x}")));
            }
            _ => infos.push(body),
        }
    }
}
