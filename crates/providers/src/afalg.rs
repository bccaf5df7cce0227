//! The running kernel's ciphers and hashes through AF_ALG sockets: the one way to an engine outside the CPU.
//!
//! Drivers are found in `/proc/crypto`, with their flags as far as the kernel shows them. Kernels from 7.3 on restrict
//! what a socket can name, and many have no AF_ALG at all; then there is one row that says so. Every row here is
//! kernel-driver-only for our purposes: it is listed and can be tested and measured, and is used only when named.
//!
//! Source: the kernel's Documentation/crypto/userspace-if.rst.

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::sys::socket::{
    self, AddressFamily, AlgAddr, ControlMessage, MsgFlags, SockFlag, SockType, setsockopt, sockopt,
};

use rustix::net::SendFlags;

use casemate_primitives::secret::SecretVec;

use crate::driver::{Direction, Driver, DriverError, HashDriver};
use crate::drivers::boxed;
use crate::engine::Algorithm;
use crate::flags::{Flags, Origin};
use crate::row::{BadKey, CipherSpec, HashSpec, MakeCipher, Row, Spec};

/// Algorithms that storage uses, to be loaded before the kernel's list is read.
const ASKED_FOR: &[&str] = &[
    "xts(aes)",
    "cbc(aes)",
    "cts(cbc(aes))",
    "ecb(aes)",
    "ctr(aes)",
    "lrw(aes)",
    "essiv(cbc(aes),sha256)",
    "adiantum(xchacha12,aes)",
    "adiantum(xchacha20,aes)",
    "hctr2(aes)",
    "xts(sm4)",
    "xts(serpent)",
    "xts(twofish)",
    "xts(camellia)",
];

/// Hashes that the kernel is asked for.
const HASHES_ASKED_FOR: &[&str] = &[
    "sha1",
    "sha256",
    "sha512",
    "sha3-256",
    "sha3-512",
    "blake2b-256",
    "blake2b-512",
    "blake2s-256",
    "rmd160",
    "wp512",
    "sm3",
    "streebog256",
    "md5",
];

/// Bytes that a socket takes in one request.
const REQUEST: usize = 1 << 16;

/// `ALG_OP_DECRYPT` and `ALG_OP_ENCRYPT` of the kernel's `if_alg.h`.
const DECRYPT: u32 = 0;
const ENCRYPT: u32 = 1;

/// A row for each cipher and each hash without a key that the running kernel lists and a socket can name; or one row that says why there is none.
pub fn rows() -> Vec<Row> {
    if let Err(error) = open("skcipher", "ecb(cipher_null)").or_else(|_| open("hash", "sha256")) {
        let why = format!("AF_ALG sockets can't be used on this kernel: {error}");
        return vec![Row::unavailable("any", "af_alg", Origin::AfAlg, why)];
    }
    // The kernel lists what it has loaded; naming an algorithm loads its module.
    for (kind, names) in [("skcipher", ASKED_FOR), ("hash", HASHES_ASKED_FOR)] {
        for name in names {
            let _ = open(kind, name);
        }
    }
    let listed = fs::read_to_string("/proc/crypto").unwrap_or_default();
    let mut rows: Vec<Row> = Vec::new();
    for entry in listed.split("\n\n").filter_map(Entry::parse) {
        let Some((socket, algorithm)) = entry.usable() else { continue };
        if rows.iter().any(|row| row.driver == entry.row_name() && row.algorithm == algorithm) {
            continue;
        }
        rows.push(match open(socket, &entry.driver) {
            Ok(_) => entry.row(&algorithm),
            Err(error) => {
                let why = format!("the kernel does not let a socket use it: {error}");
                Row::unavailable(&algorithm, &entry.row_name(), Origin::AfAlg, why)
            }
        });
    }
    rows
}

/// The entry of `/proc/crypto` for one implementation.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entry {
    name: String,
    driver: String,
    kind: String,
    priority: u32,
    internal: bool,
    asynchronous: bool,
    block_len: usize,
    min_key: usize,
    max_key: usize,
    iv_len: usize,
    digest_len: usize,
}

impl Entry {
    fn parse(text: &str) -> Option<Entry> {
        let mut entry = Entry::default();
        for line in text.lines() {
            let (key, value) = line.split_once(':')?;
            let value = value.trim();
            let number = || value.parse().unwrap_or(0);
            match key.trim() {
                "name" => entry.name = value.to_owned(),
                "driver" => entry.driver = value.to_owned(),
                "type" => entry.kind = value.to_owned(),
                "priority" => entry.priority = value.parse().unwrap_or(0),
                "internal" => entry.internal = value == "yes",
                "async" => entry.asynchronous = value == "yes",
                "blocksize" => entry.block_len = number(),
                "min keysize" => entry.min_key = number(),
                "max keysize" => entry.max_key = number(),
                "ivsize" => entry.iv_len = number(),
                "digestsize" => entry.digest_len = number(),
                _ => {}
            }
        }
        (!entry.driver.is_empty() && !entry.kind.is_empty()).then_some(entry)
    }

    /// Our name for it: the kernel's alone could be taken for one of ours.
    fn row_name(&self) -> String {
        format!("af_alg:{}", self.driver)
    }

    /// The kind of socket that could use it and the algorithm's name here; `None` for what this program can't compare
    /// with anything, such as checksums and hashes with keys.
    fn usable(&self) -> Option<(&'static str, String)> {
        match &*self.kind {
            _ if self.internal => None,
            "skcipher" if self.iv_len <= 32 && self.max_key <= 64 => Some(("skcipher", self.name.clone())),
            "shash" | "ahash" => Some(("hash", Algorithm::named(&self.name)?.name().to_owned())),
            _ => None,
        }
    }

    fn row(&self, algorithm: &str) -> Row {
        let asynchronous = if self.asynchronous { Flags::ASYNC } else { Flags::NONE };
        let spec = if self.kind == "skcipher" { self.cipher().into() } else { self.hash() };
        let flags = Flags::KERN_DRIVER_ONLY | asynchronous;
        Row::new(algorithm, self.row_name(), self.priority, flags, Origin::AfAlg, spec)
    }

    fn hash(&self) -> Spec {
        HashSpec::outside(self.digest_len, Arc::new(HashSocket(self.driver.clone()))).into()
    }

    fn cipher(&self) -> CipherSpec {
        let usual = [32, 64, 16, 24, 48, 8, 0];
        let key_lens: Vec<usize> =
            usual.into_iter().filter(|len| (self.min_key..=self.max_key).contains(len)).collect();
        let key_lens = if self.name.starts_with("xts(") { halves(&key_lens) } else { key_lens };
        let (driver, iv_len) = (self.driver.clone(), self.iv_len);
        let make: Arc<MakeCipher> = Arc::new(move |key: &[u8]| {
            boxed(Socket::new(&driver, key).map_err(|error| BadKey(error.to_string()))?)
        });
        // A unit of whole blocks is right for every mode; some could end within one.
        CipherSpec { iv_len, block_len: self.block_len.max(1), whole_blocks: true, key_lens, make }
    }
}

/// XTS has keys of 32, 48 and 64 bytes only.
fn halves(lens: &[usize]) -> Vec<usize> {
    lens.iter().copied().filter(|len| matches!(len, 32 | 48 | 64)).collect()
}

/// A socket under a key.
struct Socket(OwnedFd);

impl Socket {
    fn new(driver: &str, key: &[u8]) -> io::Result<Socket> {
        let listener = open("skcipher", driver)?;
        // The kernel copies the key; ours is wiped.
        let key = SecretVec::from(key);
        setsockopt(&listener, sockopt::AlgSetKey::<&[u8]>::default(), &key.expose())?;
        Ok(Socket(listener))
    }

    fn request(&self, direction: Direction, iv: &[u8], data: &mut [u8]) -> io::Result<()> {
        let operation = rustix::net::accept(&self.0)?;
        let code = match direction {
            Direction::Encrypt => ENCRYPT,
            Direction::Decrypt => DECRYPT,
        };
        let code = i32::try_from(code).map_err(io::Error::other)?;
        let mut control = vec![ControlMessage::AlgSetOp(&code)];
        if !iv.is_empty() {
            control.push(ControlMessage::AlgSetIv(iv));
        }
        let sent = socket::sendmsg::<()>(
            operation.as_raw_fd(),
            &[IoSlice::new(data)],
            &control,
            MsgFlags::empty(),
            None,
        )?;
        if sent != data.len() {
            return Err(io::Error::other(format!("the kernel took {sent} of {} bytes", data.len())));
        }
        let mut done = 0;
        while done < data.len() {
            match rustix::io::read(&operation, &mut data[done..])? {
                0 => return Err(io::Error::other("the kernel gave less than it took")),
                more => done += more,
            }
        }
        Ok(())
    }
}

impl Driver for Socket {
    fn one(&self, direction: Direction, iv: &[u8], unit: &mut [u8]) -> Result<(), DriverError> {
        if unit.len() > REQUEST {
            return Err(DriverError(format!("AF_ALG takes at most {REQUEST} bytes at a time")));
        }
        self.request(direction, iv, unit).map_err(|error| DriverError(format!("AF_ALG: {error}")))
    }
}

/// The name of a hash's driver; every digest has a socket of its own.
struct HashSocket(String);

impl HashDriver for HashSocket {
    fn digest(&self, parts: &[&[u8]], out: &mut [u8]) -> Result<(), DriverError> {
        let mut digest = || {
            let operation = rustix::net::accept(open("hash", &self.0)?)?;
            for part in parts {
                let mut sent = 0;
                while sent < part.len() {
                    sent += rustix::net::send(&operation, &part[sent..], SendFlags::MORE)?;
                }
            }
            match rustix::io::read(&operation, &mut *out)? {
                len if len == out.len() => Ok(()),
                len => Err(io::Error::other(format!("a digest of {len} bytes"))),
            }
        };
        digest().map_err(|error: io::Error| DriverError(format!("AF_ALG: {error}")))
    }
}

fn open(kind: &str, name: &str) -> io::Result<OwnedFd> {
    let fd = socket::socket(AddressFamily::Alg, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    socket::bind(fd.as_raw_fd(), &AlgAddr::new(kind, name))?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read() {
        let text = "name         : xts(aes)\ndriver       : xts-aes-engine\nmodule       : kernel\npriority     : 4000\n\
                    refcnt       : 1\nselftest     : passed\ninternal     : no\ntype         : skcipher\nasync        : yes\n\
                    blocksize    : 16\nmin keysize  : 32\nmax keysize  : 64\nivsize       : 16\nchunksize    : 16";
        let entry = Entry::parse(text).unwrap();
        assert!(entry.asynchronous && !entry.internal);
        let (socket, algorithm) = entry.usable().unwrap();
        assert_eq!(socket, "skcipher");
        let row = entry.row(&algorithm);
        assert_eq!(
            (&*row.algorithm, &*row.driver, row.priority),
            ("xts(aes)", "af_alg:xts-aes-engine", 4000)
        );
        assert_eq!(row.flags, Flags::KERN_DRIVER_ONLY | Flags::ASYNC);
        assert_eq!(row.cipher().unwrap().key_lens, [32, 64, 48]);
        let text = "name         : rmd160\ndriver       : rmd160-generic\npriority     : 0\ninternal     : no\n\
                    type         : shash\nblocksize    : 64\ndigestsize   : 20";
        let entry = Entry::parse(text).unwrap();
        assert_eq!(entry.usable(), Some(("hash", "ripemd160".to_owned())));
        assert_eq!(entry.row("ripemd160").flags, Flags::KERN_DRIVER_ONLY);
        let keyed = Entry { name: "hmac(sha256)".to_owned(), ..entry };
        assert_eq!(keyed.usable(), None);
        assert_eq!(Entry::parse("name : x"), None);
        assert_eq!(Entry::parse("nonsense"), None);
    }

    #[test]
    fn a_kernel_without_sockets_is_one_row_with_the_reason() {
        let rows = rows();
        assert!(!rows.is_empty(), "a row, or the reason why there is none");
        for row in rows {
            let Err(why) = row.spec else { continue };
            assert!(why.contains("socket"), "{why}");
        }
    }
}
