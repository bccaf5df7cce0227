//! Standard streams that were closed when the process began.
//!
//! The standard library opens `/dev/null` in the place of such a stream before `main`, so that no other file gets its number. What
//! is written there is lost, and nobody is told; so this looks before it does.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::{BorrowedFd, RawFd};

/// A standard stream of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// Standard input.
    Input,
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Whether each of the streams was closed, by their numbers.
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Whether a standard stream was closed when the process began (or, for a library, when it was loaded).
pub fn was_closed(stream: Standard) -> bool {
    let [input, output, error] = &CLOSED;
    let closed = match stream {
        Standard::Input => input,
        Standard::Output => output,
        Standard::Error => error,
    };
    closed.load(Ordering::Relaxed)
}

// SAFETY: the loader calls each pointer in this section once, before `main`, as a C function; it passes arguments, which such a
// function may leave alone. The function needs nothing of the standard library that its runtime prepares: it makes system calls,
// and writes to atomics.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for (number, closed) in (0..).zip(&CLOSED) {
        closed.store(is_closed(number), Ordering::Relaxed);
    }
}

/// Whether nothing is open under a number.
fn is_closed(number: RawFd) -> bool {
    // SAFETY: the number is used for this one call, which changes nothing and takes any number: of one that is not open it says
    // so, and that is the question.
    let stream = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_getfd(stream).is_err()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_is_open_is_told_from_what_is_not() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(!is_closed(file.as_raw_fd()));
        assert!(is_closed(RawFd::MAX));
    }
}
