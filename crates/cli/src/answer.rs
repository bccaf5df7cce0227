//! Answer of a command, and its exit status: 0 yes, 1 no, 2 could not, 128 + N interrupted by signal N, 141 where the reader of its
//! output closed it early.

use casemate::{Error, ErrorKind};

use crate::signals;

/// Result of a command that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
    /// Something could not be done, and was said already; the rest is done.
    Failed,
    /// All is done that can be: what can't be read is zeros, and was said already.
    Incomplete,
    /// Exit status of a command that was run for the user.
    Status(u8),
}

/// The exit status of a command whose output was cut, as a shell says it of coreutils, which SIGPIPE ends.
pub const CUT: u8 = 141;

/// The commands that ask something, and the kind of error that answers with no. Everywhere else, and of every other kind,
/// an error says that the command could not do its work. No other command may answer with [`Answer::No`].
const QUESTIONS: &[(&str, Option<ErrorKind>)] = &[
    ("ext4 check", Some(ErrorKind::Corrupt)),
    ("ext4 diff", None),
    ("fsverity check", Some(ErrorKind::Mismatch)),
    ("fsverity verify-signature", Some(ErrorKind::Mismatch)),
    ("info", None),
    ("integrity verify", None),
    ("luks check", None),
    ("luks is-luks", None),
    ("luks test-passphrase", Some(ErrorKind::Mismatch)),
    ("providers selftest", None),
    ("verity repair", None),
    ("verity verify", Some(ErrorKind::Mismatch)),
    ("verity verify-signature", Some(ErrorKind::Mismatch)),
];

/// The commands that work for others than those who read their output.
const SERVICES: &[&str] = &["mount", "serve"];

/// Whether a command, called by its words, does its work to the end when nobody reads what it prints: its exit status, or
/// what it does for others, is worth it.
pub fn goes_on(command: &str) -> bool {
    QUESTIONS.iter().any(|(words, _)| *words == command) || SERVICES.contains(&command)
}

/// The exit status of a command, called by its words.
pub fn exit_status(result: &Result<Answer, Error>, command: &str) -> u8 {
    debug_assert!(*result.as_ref().unwrap_or(&Answer::Yes) != Answer::No || goes_on(command), "{command}");
    match result {
        Ok(Answer::Yes) => 0,
        Ok(Answer::No | Answer::Incomplete) => 1,
        Ok(Answer::Failed) => 2,
        Ok(Answer::Status(status)) => *status,
        Err(error) if error.is_broken_pipe() => CUT,
        Err(error) if error.is_interrupt() => signals::exit_status(),
        Err(error) if QUESTIONS.contains(&(command, Some(error.kind()))) => 1,
        Err(_) => 2,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn questions_and_services_are_commands() {
        for words in QUESTIONS.iter().map(|(words, _)| words).chain(SERVICES) {
            let command = Cli::command();
            let found = words.split(' ').try_fold(&command, |command, word| command.find_subcommand(word));
            assert!(found.is_some(), "{words}");
        }
    }

    #[test]
    fn only_questions_are_answered_with_no() {
        let status = |kind, command| exit_status(&Err(Error::new(kind, "text")), command);
        assert_eq!(status(ErrorKind::Corrupt, "ext4 check"), 1);
        assert_eq!(status(ErrorKind::Mismatch, "ext4 check"), 2, "a wrong key");
        assert_eq!(status(ErrorKind::Mismatch, "verity verify"), 1);
        assert_eq!(status(ErrorKind::Corrupt, "verity verify"), 2, "no hash area");
        for kind in [ErrorKind::Corrupt, ErrorKind::Mismatch, ErrorKind::Io, ErrorKind::Argument] {
            assert_eq!(status(kind, "ext4 ls"), 2);
        }
        assert_eq!(status(ErrorKind::Interrupted, "verity verify"), 130);
        let cut = Err(Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(
            ["ext4 ls", "verity verify", "serve"].iter().all(|command| exit_status(&cut, command) == CUT)
        );
    }
}
