//! Questions that a person answers at the terminal, whatever standard input and output are.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

#[cfg(target_os = "linux")]
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;

use casemate::{Error, ErrorKind};

use crate::signals;

/// The line that answers a question, without its end.
///
/// # Errors
/// `Interrupted` if a signal comes first; `Io`.
pub fn answer(question: &str) -> Result<String, Error> {
    let asked = || -> io::Result<String> {
        let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
        write!(terminal, "{question}")?;
        wait(&terminal)?;
        let mut line = String::new();
        BufReader::new(terminal).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    };
    asked().map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => Error::new(ErrorKind::Interrupted, "interrupted"),
        _ => Error::io("the terminal", error),
    })
}

/// Waits until somebody has typed a line. A signal that was only noted, because work has begun, ends that: reading would go on.
fn wait(terminal: &File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    loop {
        let typed = poll(&mut [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)], PollTimeout::from(100_u8));
        if signals::is_interrupted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match typed {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = terminal;
        match signals::is_interrupted() {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }
}
