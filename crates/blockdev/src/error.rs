//! The one error of all crates.

use std::borrow::Cow;
use std::{fmt, io};

use crate::advice::{Advice, ending};
use crate::code::{Code, ErrorKind};

/// The result of whatever can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done, or what was found to be wrong: a kind, a code, a place, a text, and advice.
///
/// The text is complete without context, but for the name of the file or device, which [`fmt::Display`] puts before
/// it, and the advice, which it puts behind it. What is known more exactly stays as data: the [`Code`], the [`Place`], the
/// [`Advice`], and a cause ([`Error::cause`]).
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    /// Code that says more than the kind, if there is one.
    code: Option<Code>,
    place: Place,
    advice: Vec<Advice>,
    text: Cow<'static, str>,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Results that can be told the file or device that they are about.
pub trait AtFile<T> {
    /// Adds the file's name to an error, unless a nearer one is known ([`Error::at`]).
    ///
    /// # Errors
    /// The error that there was.
    fn at(self, file: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<Error>> AtFile<T> for Result<T, E> {
    fn at(self, file: impl fmt::Display) -> Result<T> {
        self.map_err(|error| error.into().at(file))
    }
}

/// Where an error happened: what is known of file, structure, block, group and inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The name of the file or device.
    pub file: Option<String>,
    /// The name of the structure.
    pub structure: Option<&'static str>,
    /// The number of a block, in the units of the format that the structure belongs to.
    pub block: Option<u64>,
    /// The number of a block group.
    pub group: Option<u32>,
    /// The number of an inode.
    pub inode: Option<u32>,
}

impl Error {
    /// An error of a kind, with a text that is complete but for the file's name.
    pub fn new(kind: ErrorKind, text: impl Into<Cow<'static, str>>) -> Error {
        let (place, advice, text) = (Place::default(), Vec::new(), text.into());
        Error(Box::new(Inner { kind, code: None, place, advice, text, cause: None }))
    }

    /// An error with a code, and of its kind.
    pub fn coded(code: Code, text: impl Into<Cow<'static, str>>) -> Error {
        match (code.kind(), code.io_kind()) {
            (ErrorKind::Io, Some(kind)) => Error::path(kind, text),
            (kind, _) => Error::new(kind, text),
        }
        .with_code(code)
    }

    /// A structure that contradicts its format; the text says which structure and where.
    pub fn corrupt(text: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::Corrupt, text)
    }

    /// A feature that this project does not have; the text names it.
    pub fn unsupported(text: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::Unsupported, text)
    }

    /// A check that failed: a root hash, a tag, a signature, a secret.
    pub fn mismatch(text: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::Mismatch, text)
    }

    /// A key that is missing; the text says which.
    pub fn locked(text: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::Locked, text)
    }

    /// A file or device that somebody else uses; the text says who, as far as is known.
    pub fn busy(text: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::Busy, text)
    }

    /// A demand that can't be met: a value outside its range, a combination.
    pub fn argument(text: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::Argument, text)
    }

    /// An I/O error with the name of the file or device that it happened on.
    pub fn io(file: impl fmt::Display, error: impl Into<Error>) -> Error {
        error.into().at(file)
    }

    /// A path that leads nowhere, or to the wrong kind of file.
    pub fn path(kind: io::ErrorKind, text: impl Into<Cow<'static, str>>) -> Error {
        Error::from(io::Error::new(kind, text.into().into_owned()))
    }

    /// A path whose symbolic links are too many, as those of a circle are: the standard library has no stable kind for it, so the
    /// kind is `InvalidInput`.
    pub fn link_loop(text: impl Into<Cow<'static, str>>) -> Error {
        Error::path(io::ErrorKind::InvalidInput, text).with_code(Code::LinkLoop)
    }

    /// Adds a code that says more than the kind.
    pub fn with_code(mut self, code: Code) -> Error {
        self.0.code = Some(code);
        self
    }

    /// Adds advice behind what the error carries already.
    pub fn advise(mut self, advice: Advice) -> Error {
        self.0.advice.push(advice);
        self
    }

    /// Another error that says the same: kind, code, place, text and advice. Its cause is of the system's kind, or none.
    pub fn again(&self) -> Error {
        let text = self.text().into_owned();
        let error = match (self.kind(), self.io_kind()) {
            (ErrorKind::Io, Some(kind)) => Error::path(kind, text),
            (kind, _) => Error::new(kind, text),
        };
        let mut error = error.with_code(self.code());
        (error.0.place, error.0.advice) = (self.0.place.clone(), self.0.advice.clone());
        error
    }

    /// Adds a place; the file's name stays as it was.
    pub fn with_place(mut self, place: Place) -> Error {
        let file = self.0.place.file.take().or(place.file);
        self.0.place = Place { file, ..place };
        self
    }

    /// Adds the cause.
    pub fn with_cause(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.0.cause = Some(cause.into());
        self
    }

    /// Adds the name of the file or device, unless a nearer one is known already.
    pub fn at(mut self, file: impl fmt::Display) -> Error {
        self.0.place.file.get_or_insert_with(|| file.to_string());
        self
    }

    /// Puts a name before those that are known: an image's before that of a file in it.
    pub fn within(mut self, outer: impl fmt::Display) -> Error {
        let file = match self.0.place.file.take() {
            Some(inner) => format!("{outer}: {inner}"),
            None => outer.to_string(),
        };
        self.0.place.file = Some(file);
        self
    }

    /// Replaces the text by one that says more.
    pub fn map_text(mut self, f: impl FnOnce(&str) -> String) -> Error {
        self.0.text = f(&self.text()).into();
        self
    }

    /// The family.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The code: what programs branch on.
    pub fn code(&self) -> Code {
        self.0.code.unwrap_or_else(|| self.code_of_cause())
    }

    fn code_of_cause(&self) -> Code {
        #[cfg(unix)]
        if self.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
            return Code::LinkLoop;
        }
        let of_io = match self.0.kind {
            ErrorKind::Io => self.io_kind().and_then(Code::of_io),
            _ => None,
        };
        of_io.unwrap_or_else(|| Code::of_kind(self.0.kind))
    }

    /// Advice: what helps, in the order in which it is to be tried.
    pub fn advice(&self) -> &[Advice] {
        &self.0.advice
    }

    /// Text of the error and its advice, with the file's name, for a front. `word` translates an advice into the
    /// front's language, such as the command's option.
    pub fn worded(&self, word: &dyn Fn(&Advice) -> Option<String>) -> String {
        let file = self.0.place.file.as_ref().map_or_else(String::new, |file| format!("{file}: "));
        file + &self.text_worded(word)
    }

    /// Text of [`Error::worded`] without the file's name.
    pub fn text_worded(&self, word: &dyn Fn(&Advice) -> Option<String>) -> String {
        self.text().into_owned() + &ending(&self.0.advice, word)
    }

    /// Where it happened.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Text of the error, without the file's name and the advice.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.0.cause {
            Some(cause) if self.0.text.is_empty() => match cause.downcast_ref::<io::Error>() {
                Some(error) => without_number(error).into(),
                None => cause.to_string().into(),
            },
            _ => self.0.text.as_ref().into(),
        }
    }

    /// The cause, if it is of this type.
    pub fn cause<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.0.cause.as_ref()?.downcast_ref()
    }

    /// The kind of an I/O error; none for other families.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self.0.kind {
            ErrorKind::Io => Some(self.cause::<io::Error>().map_or(io::ErrorKind::Other, io::Error::kind)),
            ErrorKind::Interrupted => Some(io::ErrorKind::Interrupted),
            ErrorKind::Busy => Some(io::ErrorKind::ResourceBusy),
            _ => None,
        }
    }

    /// The system's number of an I/O error, if it has one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.cause::<io::Error>()?.raw_os_error()
    }

    /// Whether some bytes of a medium can't be had, while others may: a damaged sector. Any other error stops all reading.
    pub fn is_of_medium(&self) -> bool {
        self.raw_os_error().is_some_and(|number| DAMAGE.contains(&number))
    }

    /// Whether the reader of our output has closed it.
    pub fn is_broken_pipe(&self) -> bool {
        self.io_kind() == Some(io::ErrorKind::BrokenPipe)
    }

    /// Whether a path leads through too many symbolic links.
    pub fn is_link_loop(&self) -> bool {
        self.code() == Code::LinkLoop
    }

    /// Whether a file is missing.
    pub fn is_not_found(&self) -> bool {
        self.code() == Code::NotFound
    }

    /// Whether somebody else is using a file or device: another process, the kernel or another machine.
    pub fn is_busy(&self) -> bool {
        self.0.kind == ErrorKind::Busy
    }

    /// Whether the user asked to stop.
    pub fn is_interrupt(&self) -> bool {
        self.0.kind == ErrorKind::Interrupted
    }
}

impl ErrorKind {
    /// The family's name for programs.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Io => "io",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Mismatch => "mismatch",
            ErrorKind::Locked => "locked",
            ErrorKind::Busy => "busy",
            ErrorKind::Argument => "argument",
            ErrorKind::Interrupted => "interrupted",
        }
    }
}

/// The system's numbers of errors of damaged sectors: EIO, and of Linux' block layer EREMOTEIO, ENODATA and EILSEQ.
#[cfg(unix)]
const DAMAGE: &[i32] = &[
    rustix::io::Errno::IO.raw_os_error(),
    #[cfg(target_os = "linux")]
    rustix::io::Errno::REMOTEIO.raw_os_error(),
    #[cfg(target_os = "linux")]
    rustix::io::Errno::NODATA.raw_os_error(),
    rustix::io::Errno::ILSEQ.raw_os_error(),
];

/// The system's numbers of errors of damaged sectors: ERROR_CRC, ERROR_SECTOR_NOT_FOUND, ERROR_READ_FAULT, ERROR_IO_DEVICE.
#[cfg(not(unix))]
const DAMAGE: &[i32] = &[23, 27, 30, 1117];

/// Text of a system's error, without the number that the standard library adds.
fn without_number(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(end) = error.raw_os_error().and_then(|_| text.rfind(" (os error ")) {
        text.truncate(end);
    }
    text
}

impl From<io::Error> for Error {
    /// An error that went up as an [`io::Error`] comes out again as what it was.
    fn from(error: io::Error) -> Error {
        let error = match error.downcast::<Error>() {
            Ok(error) => return error,
            Err(error) => error,
        };
        let kind = match error.kind() {
            io::ErrorKind::Interrupted => ErrorKind::Interrupted,
            io::ErrorKind::ResourceBusy => ErrorKind::Busy,
            io::ErrorKind::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Io,
        };
        Error::new(kind, "").with_cause(error)
    }
}

impl From<io::ErrorKind> for Error {
    fn from(kind: io::ErrorKind) -> Error {
        Error::from(io::Error::from(kind))
    }
}

#[cfg(unix)]
impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Error {
        Error::from(io::Error::from(error))
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match error.0.kind {
            ErrorKind::Corrupt | ErrorKind::Mismatch => io::ErrorKind::InvalidData,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::Locked => io::ErrorKind::PermissionDenied,
            ErrorKind::Argument => io::ErrorKind::InvalidInput,
            ErrorKind::Io | ErrorKind::Busy => error.io_kind().unwrap_or(io::ErrorKind::Other),
            // The standard library's kind of this name means "once more" to all who read and write.
            ErrorKind::Interrupted => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.worded(&|_| None))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({self})", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // A cause that is the text would be told twice.
        let cause: &(dyn std::error::Error + 'static) = &**self.0.cause.as_ref()?;
        if self.0.text.is_empty() { cause.source() } else { Some(cause) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_up_as_an_io_error_comes_out_as_it_was() {
        let place = Place { block: Some(7), ..Place::default() };
        let error = Error::mismatch("block 7: no").with_place(place.clone()).at("disk");
        let through = Error::from(io::Error::from(error)).at("other");
        assert_eq!(through.kind(), ErrorKind::Mismatch);
        assert_eq!(through.place(), &Place { file: Some("disk".to_owned()), ..place });
        assert_eq!(through.to_string(), "disk: block 7: no");
        assert_eq!(through.within("image").to_string(), "image: disk: block 7: no");
    }

    #[test]
    fn an_error_carries_code_and_advice_wherever_it_goes() {
        let error = Error::mismatch("no key slot fits").with_code(Code::WrongKey).advise(Advice::KeySlot);
        assert_eq!(error.to_string(), "no key slot fits; name one key slot");
        let through = Error::from(io::Error::from(error)).map_text(|text| format!("{text}!")).at("disk");
        for error in [&through, &through.again()] {
            assert_eq!((error.kind(), error.code()), (ErrorKind::Mismatch, Code::WrongKey));
            assert_eq!(error.advice(), [Advice::KeySlot]);
            let worded = error.worded(&|advice| Some(format!("--{}", advice.name())));
            assert_eq!(worded, "disk: no key slot fits!; name one key slot (--key-slot)");
        }
        let both = Error::argument("no").advise(Advice::KeySlot).advise(Advice::KdfLimit);
        assert_eq!(both.to_string(), "no; name one key slot, or allow more work");
    }

    #[test]
    fn a_code_comes_from_the_cause_and_the_kind_where_nobody_gave_one() {
        let full = Error::path(io::ErrorKind::StorageFull, "no free blocks left");
        assert_eq!((full.code(), full.kind()), (Code::NoRoom, ErrorKind::Io));
        assert_eq!(Error::link_loop("a circle").again().code(), Code::LinkLoop);
        for code in Code::ALL {
            let error = Error::coded(*code, "text");
            assert_eq!((error.code(), error.kind(), &*error.to_string()), (*code, code.kind(), "text"));
            assert!(code.kind() != ErrorKind::Io || error.io_kind().is_some(), "{code}");
        }
        for (kind, code) in [
            (ErrorKind::Io, Code::Failed),
            (ErrorKind::Locked, Code::KeyNeeded),
            (ErrorKind::Busy, Code::InUse),
            (ErrorKind::Mismatch, Code::Mismatch),
        ] {
            assert_eq!(Error::new(kind, "text").code(), code);
        }
    }

    #[test]
    #[cfg(unix)]
    fn the_system_s_errors_keep_kind_number_and_text() {
        let system = || io::Error::from_raw_os_error(28);
        let error = Error::io("disk", system());
        assert_eq!(error.io_kind(), Some(io::ErrorKind::StorageFull));
        assert_eq!(error.raw_os_error(), Some(28));
        assert_eq!(error.to_string(), "disk: No space left on device");
        let again = Error::from(io::Error::from(error));
        assert_eq!(again.raw_os_error(), Some(28));
        for (kind, expected) in [
            (io::ErrorKind::Interrupted, ErrorKind::Interrupted),
            (io::ErrorKind::ResourceBusy, ErrorKind::Busy),
            (io::ErrorKind::NotFound, ErrorKind::Io),
        ] {
            assert_eq!(Error::from(kind).kind(), expected);
            assert_eq!(Error::from(kind).io_kind(), Some(kind));
        }
    }
}
