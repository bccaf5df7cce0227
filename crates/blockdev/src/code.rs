//! Kinds and codes of errors: stable names and numbers of what programs branch on.

use std::{fmt, io};

/// The family of an error. The numbers stay as they are for ever: other languages get them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Reading or writing failed, or a path leads nowhere; [`Error::io_kind`](crate::Error::io_kind) tells more.
    Io = 1,
    /// A structure contradicts its format, or its checksum does not fit.
    Corrupt = 2,
    /// The format allows it, this project does not have it (yet).
    Unsupported = 3,
    /// Everything could be read and does not match: a root hash, a tag, a signature, a secret.
    Mismatch = 4,
    /// A key is missing.
    Locked = 5,
    /// Somebody else uses it: another program, a mount, a device.
    Busy = 6,
    /// The caller asked for what can't be: a value outside its range, a combination.
    Argument = 7,
    /// A signal or a callback stopped the work.
    Interrupted = 8,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $code:ident = $number:literal $name:literal $kind:ident;)*) => {
        /// The code of an error: what happened, for programs that branch on it. Names and numbers stay as they are for ever.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])* $code = $number,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$code),*];

            /// The code's name for programs, such as `no-room`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Code::$code => $name,)*
                }
            }

            /// The kind of an error that is made with this code ([`Error::coded`](crate::Error::coded)).
            pub fn kind(self) -> ErrorKind {
                match self {
                    $(Code::$code => ErrorKind::$kind,)*
                }
            }
        }
    };
}

codes! {
    /// A file, directory, attribute or device is not there.
    NotFound = 1 "not-found" Io;
    /// The name is taken.
    Exists = 2 "exists" Io;
    /// The device, file system or area has no room left.
    NoRoom = 3 "no-room" Io;
    /// A directory, where something else is wanted.
    IsDirectory = 4 "is-directory" Io;
    /// Something else, where a directory is wanted.
    NotDirectory = 5 "not-directory" Io;
    /// A directory that is not empty.
    NotEmpty = 6 "not-empty" Io;
    /// A name that is too long, or that can't be one.
    BadName = 7 "bad-name" Io;
    /// A path leads through too many symbolic links.
    LinkLoop = 8 "link-loop" Io;
    /// A file has as many names as it can have.
    TooManyLinks = 9 "too-many-links" Io;
    /// More bytes than the format can record.
    TooLarge = 10 "too-large" Io;
    /// Two places that have different keys or devices, where one is wanted.
    CrossesDevices = 11 "crosses-devices" Io;
    /// The system, or a flag of the file, does not permit it.
    NotPermitted = 12 "not-permitted" Io;
    /// A device, image or file that takes no writes.
    ReadOnly = 13 "read-only" Io;
    /// Data end too early.
    CutOff = 14 "cut-off" Io;
    /// The reader has closed the pipe.
    BrokenPipe = 15 "broken-pipe" Io;
    /// An invalid value or combination.
    Invalid = 16 "invalid" Argument;
    /// A key, passphrase or certificate is missing.
    KeyNeeded = 17 "key-needed" Locked;
    /// A key or passphrase is wrong.
    WrongKey = 18 "wrong-key" Mismatch;
    /// A signature does not match its data, or its signer is not trusted.
    BadSignature = 19 "bad-signature" Mismatch;
    /// Data do not match their digest, root hash, tag or checksum.
    BadDigest = 20 "bad-digest" Mismatch;
    /// Another process, mount or device uses it.
    InUse = 21 "in-use" Busy;
    /// Another process changed it since it was read.
    Changed = 22 "changed" Busy;
    /// The format allows it, casemate does not support it.
    Unsupported = 23 "unsupported" Unsupported;
    /// The structure that was looked for is not there: the data are of another format, or begin elsewhere.
    NotThisFormat = 24 "not-this-format" Corrupt;
    /// A structure contradicts its format.
    Damaged = 25 "damaged" Corrupt;
    /// Data areas overlap.
    Overlap = 26 "overlap" Argument;
    /// It was begun before, and was stopped.
    Unfinished = 27 "unfinished" Argument;
    /// A signal or a callback stopped the work.
    Interrupted = 28 "interrupted" Interrupted;
    /// More work, memory or time is demanded than is allowed.
    TooCostly = 29 "too-costly" Unsupported;
    /// Reading or writing failed; no more is known.
    Failed = 30 "failed" Io;
    /// All was read and does not match; no more is known.
    Mismatch = 31 "mismatch" Mismatch;
}

impl Code {
    /// The code of a kind of the standard library's errors; none for kinds that nobody branches on.
    pub fn of_io(kind: io::ErrorKind) -> Option<Code> {
        IO.iter().find(|(other, _)| *other == kind).map(|(_, code)| *code)
    }

    /// The kind of the standard library's errors that is nearest.
    pub fn io_kind(self) -> Option<io::ErrorKind> {
        IO.iter().find(|(_, other)| *other == self).map(|(kind, _)| *kind)
    }

    /// The code of an error of which no more is known than the kind.
    pub(crate) fn of_kind(kind: ErrorKind) -> Code {
        match kind {
            ErrorKind::Io => Code::Failed,
            ErrorKind::Corrupt => Code::Damaged,
            ErrorKind::Unsupported => Code::Unsupported,
            ErrorKind::Mismatch => Code::Mismatch,
            ErrorKind::Locked => Code::KeyNeeded,
            ErrorKind::Busy => Code::InUse,
            ErrorKind::Argument => Code::Invalid,
            ErrorKind::Interrupted => Code::Interrupted,
        }
    }
}

/// The standard library's kinds, and their codes.
const IO: &[(io::ErrorKind, Code)] = &[
    (io::ErrorKind::NotFound, Code::NotFound),
    (io::ErrorKind::AlreadyExists, Code::Exists),
    (io::ErrorKind::StorageFull, Code::NoRoom),
    (io::ErrorKind::QuotaExceeded, Code::NoRoom),
    (io::ErrorKind::IsADirectory, Code::IsDirectory),
    (io::ErrorKind::NotADirectory, Code::NotDirectory),
    (io::ErrorKind::DirectoryNotEmpty, Code::NotEmpty),
    (io::ErrorKind::InvalidFilename, Code::BadName),
    (io::ErrorKind::TooManyLinks, Code::TooManyLinks),
    (io::ErrorKind::FileTooLarge, Code::TooLarge),
    (io::ErrorKind::CrossesDevices, Code::CrossesDevices),
    (io::ErrorKind::PermissionDenied, Code::NotPermitted),
    (io::ErrorKind::ReadOnlyFilesystem, Code::ReadOnly),
    (io::ErrorKind::UnexpectedEof, Code::CutOff),
    (io::ErrorKind::BrokenPipe, Code::BrokenPipe),
    (io::ErrorKind::InvalidInput, Code::Invalid),
    (io::ErrorKind::ResourceBusy, Code::InUse),
    (io::ErrorKind::Unsupported, Code::Unsupported),
    (io::ErrorKind::Interrupted, Code::Interrupted),
];

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_number_and_a_name_have_one_code() {
        let numbers: BTreeSet<i32> = Code::ALL.iter().map(|code| *code as i32).collect();
        let names: BTreeSet<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!((numbers.len(), names.len()), (Code::ALL.len(), Code::ALL.len()));
        assert!(!numbers.contains(&0), "0 is not a code");
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase())));
    }
}
