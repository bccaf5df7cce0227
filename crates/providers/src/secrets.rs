//! Secrets from wherever they are kept: the one place that reads keys and passphrases.
//!
//! Secrets are read straight into memory that is wiped ([`SecretVec`]), without another buffer in between.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::{Advice, Error, Stream, inputs, u64_of, usize_of};
use casemate_primitives::secret::SecretVec;

/// Place that a key or a passphrase is read from: a file, an open descriptor, standard input, a person, or memory.
///
/// ```
/// use casemate_providers::SecretSource;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("keys");
/// # std::fs::write(&path, [7; 128])?;
/// let key = SecretSource::file(&path).from_byte(64).read_exact(32)?;
/// assert_eq!(key.len(), 32);
/// let asked = SecretSource::prompt(|of| Ok(format!("secret of {of}").into_bytes().as_slice().into()));
/// assert_eq!(asked.passphrase("disk.img")?.expose(), b"secret of disk.img");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SecretSource {
    kind: Kind,
    /// Bytes that are passed over.
    skip: u64,
    /// Bytes of a line that is a passphrase, if it is not all of the line.
    line_len: Option<usize>,
}

/// Cause of an error: a secret is not there, or not all of it ([`Error::cause`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretMissing {
    /// There is nothing.
    Empty,
    /// There are fewer bytes than are wanted.
    Short {
        /// How many bytes are wanted.
        wanted: usize,
    },
}

impl fmt::Display for SecretMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretMissing::Empty => f.write_str("the secret is empty"),
            SecretMissing::Short { wanted } => write!(f, "the secret has fewer than {wanted} bytes"),
        }
    }
}

impl std::error::Error for SecretMissing {}

impl SecretMissing {
    /// Error that there is no passphrase, where nobody can be asked for one.
    pub fn no_passphrase() -> Error {
        Error::argument("no passphrase was given").with_cause(SecretMissing::Empty).advise(Advice::KeyFile)
    }
}

type Ask = dyn Fn(&str) -> Result<SecretVec, Error> + Send + Sync;

#[derive(Clone)]
enum Kind {
    File(PathBuf),
    StandardInput,
    Prompt(Arc<Ask>),
    Memory(Arc<SecretVec>),
}

/// Bytes of the longest passphrase. A terminal's line has at most 4095 bytes; a file's may be longer.
const LONGEST_PASSPHRASE: usize = 1 << 16;

impl SecretSource {
    /// The file at a path; "-" is standard input.
    pub fn file(path: impl AsRef<Path>) -> SecretSource {
        match path.as_ref() {
            path if path.as_os_str() == "-" => SecretSource::standard_input(),
            path => SecretSource::from(Kind::File(path.to_owned())),
        }
    }

    /// A file descriptor that this process has open. Once the secret is read, programs that the process starts don't get the
    /// descriptor. As long as it is open, its file is no output of the process.
    pub fn descriptor(number: u32) -> SecretSource {
        inputs::keep_descriptor(number);
        SecretSource::from(Kind::File(format!("/dev/fd/{number}").into()))
    }

    /// Standard input, of which nothing behind the secret is read.
    pub fn standard_input() -> SecretSource {
        SecretSource::from(Kind::StandardInput)
    }

    /// A person, asked by `ask`, which is told what the passphrase is of.
    pub fn prompt(ask: impl Fn(&str) -> Result<SecretVec, Error> + Send + Sync + 'static) -> SecretSource {
        SecretSource::from(Kind::Prompt(Arc::new(ask)))
    }

    /// A secret that is there already.
    pub fn memory(secret: SecretVec) -> SecretSource {
        SecretSource::from(Kind::Memory(Arc::new(secret)))
    }

    /// This source, without its first `skip` bytes.
    #[must_use]
    pub fn from_byte(mut self, skip: u64) -> SecretSource {
        self.skip = skip;
        self
    }

    /// This place, of whose line the first `len` bytes are the passphrase, and must be there; `None` for the whole line.
    /// A key of bytes is not changed by it.
    #[must_use]
    pub fn line_of(mut self, len: Option<usize>) -> SecretSource {
        self.line_len = len;
        self
    }

    /// The place's name in errors: a file's path, but never the secret.
    pub fn name(&self) -> String {
        match &self.kind {
            Kind::File(path) => path.display().to_string(),
            Kind::StandardInput => "standard input".to_owned(),
            Kind::Prompt(_) => "the passphrase".to_owned(),
            Kind::Memory(_) => "the key".to_owned(),
        }
    }

    /// The path, if the place is a file.
    pub fn path(&self) -> Option<&Path> {
        match &self.kind {
            Kind::File(path) => Some(path),
            _ => None,
        }
    }

    /// Bytes that are passed over.
    pub fn skipped(&self) -> u64 {
        self.skip
    }

    /// Whether standard input is read, which then has nothing else to give.
    pub fn is_standard_input(&self) -> bool {
        matches!(self.kind, Kind::StandardInput)
    }

    /// A key of `len` bytes: the first ones that there are.
    ///
    /// # Errors
    /// `Io`; `Argument` if there are fewer.
    pub fn read_exact(&self, len: usize) -> Result<SecretVec, Error> {
        let mut key = SecretVec::zeroed(len);
        if fill(&mut *self.open()?, key.expose_mut()).map_err(|error| self.error(error))? < len {
            let name = self.name();
            let text = format!("{name}: the key file has fewer than the {len} bytes that are needed");
            return Err(Error::argument(text).with_cause(SecretMissing::Short { wanted: len }));
        }
        Ok(key)
    }

    /// Everything that there is; `None` if it has more than `longest` bytes.
    ///
    /// # Errors
    /// `Io`; `Argument` if there is nothing.
    pub fn read_all(&self, longest: usize) -> Result<Option<SecretVec>, Error> {
        match self.read_any(longest)? {
            Some(secret) if secret.is_empty() => Err(self.nothing()),
            secret => Ok(secret),
        }
    }

    /// Secret of a file; a regular file may be empty, as some keys are. A stream that brings nothing has failed to bring a secret.
    ///
    /// # Errors
    /// `Io`; `Argument` if a stream brings nothing.
    pub fn read_file(&self, longest: usize) -> Result<Option<SecretVec>, Error> {
        match self.read_any(longest)? {
            Some(secret) if secret.is_empty() && self.is_stream() => Err(self.nothing()),
            secret => Ok(secret),
        }
    }

    /// Everything that there is, be it nothing; `None` if it has more than `longest` bytes.
    ///
    /// # Errors
    /// `Io`.
    pub fn read_any(&self, longest: usize) -> Result<Option<SecretVec>, Error> {
        let mut buffer = SecretVec::zeroed(longest + 1);
        let len = fill(&mut *self.open()?, buffer.expose_mut()).map_err(|error| self.error(error))?;
        Ok((len <= longest).then(|| buffer.expose()[..len].into()))
    }

    fn nothing(&self) -> Error {
        let text = format!("{}: nothing to read: whatever should give the secret gave no bytes", self.name());
        Error::argument(text)
    }

    /// Whether what is read ends where its writer ends: a pipe, a socket, a terminal.
    fn is_stream(&self) -> bool {
        match &self.kind {
            Kind::File(path) => !path.is_file(),
            Kind::StandardInput => true,
            Kind::Prompt(_) | Kind::Memory(_) => false,
        }
    }

    /// A passphrase for what is called `of`: what a person says, or the first line without its end.
    ///
    /// # Errors
    /// `Io`; `Argument` for an empty one, for a line that is too short, and where a person is asked for a part of a
    /// passphrase; whatever asking says.
    pub fn passphrase(&self, of: &str) -> Result<SecretVec, Error> {
        let passphrase = match &self.kind {
            Kind::Prompt(_) if self.skip > 0 || self.line_len.is_some() => {
                let text = "a typed passphrase is taken whole: it has no offset or size";
                return Err(Error::argument(text));
            }
            Kind::Prompt(ask) => ask(of)?,
            _ => Self::part_of_line(&mut *self.open()?, self.line_len)?,
        };
        if passphrase.is_empty() {
            return Err(SecretMissing::no_passphrase().at(of));
        }
        Ok(passphrase)
    }

    /// The first line of an input as [`SecretSource::first_line`] reads it, or its first `len` bytes: nothing behind them is
    /// read.
    ///
    /// # Errors
    /// Errors of [`SecretSource::first_line`]; `Argument` if the line is shorter than `len`.
    pub fn part_of_line(input: &mut dyn Read, len: Option<usize>) -> Result<SecretVec, Error> {
        let name = "the passphrase";
        let line = Self::first_line(&mut input.take(len.map_or(u64::MAX, u64_of)));
        let line = line.map_err(|error| Error::io(name, error))?;
        match len {
            Some(len) if line.len() < len => {
                let text = format!("the line has {} bytes, and {len} were asked for", line.len());
                Err(Error::argument(text).at(name).with_cause(SecretMissing::Short { wanted: len }))
            }
            _ => Ok(line),
        }
    }

    /// The first line of an input without its end, for those who ask a person themselves. Nothing behind it is read.
    ///
    /// # Errors
    /// Errors of reading; `InvalidData` for a line that is longer than any passphrase.
    pub fn first_line(input: &mut dyn Read) -> io::Result<SecretVec> {
        let mut line = SecretVec::zeroed(LONGEST_PASSPHRASE);
        let mut len = 0;
        loop {
            let Some(next) = line.expose_mut().get_mut(len..=len) else {
                let text = format!("it is longer than {LONGEST_PASSPHRASE} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            };
            match fill(input, next)? {
                1 if *next != *b"\n" => len += 1,
                _ => return Ok(line.expose()[..len].into()),
            }
        }
    }

    /// The bytes behind those that are passed over.
    fn open(&self) -> Result<Box<dyn Read + '_>, Error> {
        let mut reader: Box<dyn Read> = match &self.kind {
            Kind::File(path) => {
                let stream = Stream::open(path).map_err(|error| self.error(error))?;
                keep_from_programs(path);
                Box::new(stream)
            }
            Kind::StandardInput => Box::new(Unbuffered),
            Kind::Memory(secret) => Box::new(secret.expose()),
            Kind::Prompt(_) => {
                return Err(Error::argument("a raw key can't be typed; give it in a file"));
            }
        };
        let mut passed = SecretVec::zeroed(usize_of(self.skip.min(4096)));
        let mut left = self.skip;
        while left > 0 {
            let now = usize_of(left.min(4096));
            let read = fill(&mut *reader, &mut passed.expose_mut()[..now]);
            if read.map_err(|error| self.error(error))? < now {
                let text = format!("{}: ends before byte {}, where the key begins", self.name(), self.skip);
                return Err(Error::argument(text));
            }
            left -= u64_of(now);
        }
        Ok(reader)
    }

    fn error(&self, error: io::Error) -> Error {
        Error::io(self.name(), error)
    }
}

impl From<Kind> for SecretSource {
    fn from(kind: Kind) -> SecretSource {
        SecretSource { kind, skip: 0, line_len: None }
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretSource({}, from byte {})", self.name(), self.skip)
    }
}

/// Closes a descriptor that a secret was read from in programs that this process starts: `path` names it, or an ordinary file.
fn keep_from_programs(path: &Path) {
    #[cfg(target_os = "linux")]
    for folder in ["/dev/fd", "/proc/self/fd"] {
        let name = path.strip_prefix(folder).ok().and_then(Path::to_str);
        if let Some(number) = name.and_then(|name| name.parse().ok()) {
            // It was just opened, so it is there.
            let _ = casemate_sys::descriptor::close_on_exec(number);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = path;
}

/// Standard input without the standard library's buffer, which nobody wipes.
struct Unbuffered;

impl Read for Unbuffered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        casemate_blockdev::os::read_input(buffer)
    }
}

/// Reads until the buffer is full or the input ends. Returns how much there is.
///
/// # Errors
/// Errors of reading.
pub fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match input.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::ErrorKind;

    use super::*;

    fn memory(bytes: &[u8]) -> SecretSource {
        SecretSource::memory(bytes.into())
    }

    #[test]
    fn keys_are_read_from_their_place_and_no_longer_than_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        std::fs::write(&path, &bytes).unwrap();
        for (source, len) in [(SecretSource::file(&path), 10_000), (memory(&bytes), 10_000)] {
            for skip in [0, 1, 4095, 4096, 4097, 9_999] {
                let from = source.clone().from_byte(skip as u64);
                assert_eq!(from.read_exact(1).unwrap().expose(), &bytes[skip..=skip]);
                assert_eq!(from.read_exact(len - skip).unwrap().expose(), &bytes[skip..]);
                let error = from.read_exact(len - skip + 1).unwrap_err();
                assert!(
                    error.kind() == ErrorKind::Argument && error.text().contains("fewer than"),
                    "{error}"
                );
                assert_eq!(from.read_all(len - skip).unwrap().unwrap().len(), len - skip);
                assert!(from.read_all(len - skip - 1).unwrap().is_none());
            }
            // Where nothing is left, and behind the end, there is no key, not even an empty one.
            let end = source.clone().from_byte(10_000);
            assert!(end.read_file(1).unwrap().unwrap().is_empty());
            assert_eq!(end.read_all(1).unwrap_err().kind(), ErrorKind::Argument);
            let behind = source.from_byte(10_001);
            assert_eq!(behind.read_all(1).unwrap_err().kind(), ErrorKind::Argument);
            assert!(behind.read_exact(1).is_err());
        }
    }

    #[test]
    fn passphrases_end_with_their_line_and_are_not_empty() {
        assert_eq!(memory(b"a b\r\nrest").passphrase("x").unwrap().expose(), b"a b\r");
        assert_eq!(memory(b"alone").passphrase("x").unwrap().expose(), b"alone");
        for empty in [&b""[..], b"\nrest"] {
            assert_eq!(memory(empty).passphrase("x").unwrap_err().text(), "no passphrase was given");
        }
        assert!(memory(&[b'x'; LONGEST_PASSPHRASE]).passphrase("x").is_err());
        let prompt = SecretSource::prompt(|of| Err(Error::argument(format!("unknown passphrase of {of}"))));
        assert_eq!(prompt.passphrase("disk").unwrap_err().text(), "unknown passphrase of disk");
        assert!(prompt.read_exact(1).is_err());
    }

    #[test]
    fn a_stream_that_brings_nothing_is_no_empty_secret() {
        let null = SecretSource::file("/dev/null");
        for read in [null.read_all(9).map(drop), null.read_file(9).map(drop), null.read_exact(1).map(drop)] {
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Argument);
        }
        assert!(null.read_any(9).unwrap().unwrap().is_empty());
    }

    #[test]
    fn no_secret_is_shown() {
        let shown = format!("{:?}", memory(b"hunter2").from_byte(3));
        assert_eq!(shown, "SecretSource(the key, from byte 3)");
    }
}
