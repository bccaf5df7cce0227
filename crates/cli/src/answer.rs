//! What a command answers, and the exit status that says so: 0 yes, 1 no, 2 could not, 130 interrupted.

use casemate::{Error, ErrorKind};

/// What a command that came to its end has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
    /// Something could not be done, and was said already; the rest is done.
    Failed,
    /// What a command that was run for the user ended with.
    Status(u8),
}

/// The commands that ask something, and the kind of error that answers with no. Everywhere else, and of every other kind,
/// an error says that the command could not do its work.
const QUESTIONS: &[(&str, ErrorKind)] = &[
    ("ext4 check", ErrorKind::Corrupt),
    ("fsverity check", ErrorKind::Mismatch),
    ("fsverity verify-signature", ErrorKind::Mismatch),
    ("luks test-passphrase", ErrorKind::Mismatch),
    ("verity verify", ErrorKind::Mismatch),
    ("verity verify-signature", ErrorKind::Mismatch),
];

/// The exit status of a command, called by its words.
pub fn exit_status(result: &Result<Answer, Error>, command: &str) -> u8 {
    match result {
        Ok(Answer::Yes) => 0,
        Ok(Answer::No) => 1,
        Ok(Answer::Failed) => 2,
        Ok(Answer::Status(status)) => *status,
        // Whoever read our output has seen enough.
        Err(error) if error.is_broken_pipe() => 0,
        Err(error) if error.is_interrupt() => 130,
        Err(error) if QUESTIONS.contains(&(command, error.kind())) => 1,
        Err(_) => 2,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn questions_are_commands() {
        for (words, _) in QUESTIONS {
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
    }
}
