//! The kernel's numbers of errors.

use std::io;

use fuser::Errno;
use rustix::io::Errno as System;

use casemate::{Error, ErrorKind};

/// What a program is told of an error.
pub fn errno(error: &Error) -> Errno {
    let number = match error.kind() {
        ErrorKind::Locked => System::NOKEY,
        ErrorKind::Unsupported => System::OPNOTSUPP,
        ErrorKind::Io => match error.io_kind() {
            Some(io::ErrorKind::NotFound) => System::NOENT,
            Some(io::ErrorKind::NotADirectory) => System::NOTDIR,
            Some(io::ErrorKind::IsADirectory) => System::ISDIR,
            Some(io::ErrorKind::InvalidFilename) => System::NAMETOOLONG,
            Some(io::ErrorKind::InvalidInput) => System::INVAL,
            Some(io::ErrorKind::AlreadyExists) => System::EXIST,
            Some(io::ErrorKind::DirectoryNotEmpty) => System::NOTEMPTY,
            Some(io::ErrorKind::StorageFull) => System::NOSPC,
            Some(io::ErrorKind::TooManyLinks) => System::MLINK,
            Some(io::ErrorKind::CrossesDevices) => System::XDEV,
            Some(io::ErrorKind::PermissionDenied) => System::PERM,
            Some(io::ErrorKind::FileTooLarge) => System::FBIG,
            _ => System::IO,
        },
        _ => System::IO,
    };
    Errno::from_i32(number.raw_os_error())
}

/// Whether an error is a fault of the image or of what it lies on, and no answer to what a program asked.
pub fn is_fault(error: &Error) -> bool {
    errno(error).code() == System::IO.raw_os_error() || error.kind() == ErrorKind::Unsupported
}
