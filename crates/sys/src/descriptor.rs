//! Descriptors that whoever began the process has left open in it.

use std::io;

use rustix::fd::{BorrowedFd, RawFd};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// Closes a descriptor of this process in the programs that it starts from now on. Standard streams stay open there.
///
/// # Errors
/// Errors of fcntl(2): nothing is open under the number.
pub fn close_on_exec(number: u32) -> io::Result<()> {
    let number = RawFd::try_from(number).map_err(|_| io::Error::from(rustix::io::Errno::BADF))?;
    if number <= 2 {
        return Ok(());
    }
    // SAFETY: the number is used for these two calls, which take any number and say so if it is not open. They change a flag of
    // the number alone, on which no memory depends.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = fcntl_getfd(descriptor)?;
    Ok(fcntl_setfd(descriptor, flags | FdFlags::CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_descriptor_is_closed_in_programs_and_no_other() {
        let files = [(); 2].map(|()| File::open("/proc/self/exe").unwrap());
        for file in &files {
            fcntl_setfd(file, FdFlags::empty()).unwrap();
        }
        close_on_exec(files[0].as_raw_fd().try_into().unwrap()).unwrap();
        assert_eq!(files.map(|file| fcntl_getfd(&file).unwrap()), [FdFlags::CLOEXEC, FdFlags::empty()]);
        assert!(close_on_exec(u32::MAX).is_err());
    }
}
