//! The kernel's numbers of errors.

use std::io;

use fuser::Errno;
use rustix::io::Errno as System;

use casemate::{Code, Error, ErrorKind};

/// The errno that a program gets for an error.
pub fn errno(error: &Error) -> Errno {
    let number = match error.code() {
        Code::KeyNeeded => System::NOKEY,
        Code::Unsupported | Code::TooCostly => System::OPNOTSUPP,
        Code::NotFound => System::NOENT,
        Code::NotDirectory => System::NOTDIR,
        Code::IsDirectory => System::ISDIR,
        Code::BadName => System::NAMETOOLONG,
        // What the image or the host refuses to a program that asked for nothing wrong is a fault.
        Code::Invalid if error.kind() == ErrorKind::Io => System::INVAL,
        Code::Exists => System::EXIST,
        Code::NotEmpty => System::NOTEMPTY,
        Code::NoRoom => System::NOSPC,
        Code::LinkLoop => System::LOOP,
        Code::TooManyLinks => System::MLINK,
        Code::CrossesDevices => System::XDEV,
        Code::NotPermitted => System::PERM,
        Code::TooLarge => System::FBIG,
        _ if error.io_kind() == Some(io::ErrorKind::StaleNetworkFileHandle) => System::STALE,
        _ => System::IO,
    };
    Errno::from_i32(number.raw_os_error())
}

/// Whether an error is a fault of the image or of what it lies on, and no answer to what a program asked.
pub fn is_fault(error: &Error) -> bool {
    let faults = [System::IO, System::STALE].map(System::raw_os_error);
    faults.contains(&errno(error).code()) || error.kind() == ErrorKind::Unsupported
}
