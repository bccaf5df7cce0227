//! A fault that is put in on purpose, and the tests that have to notice it.

use std::fmt;

/// A fault that is put in on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// Name of the mutation, which begins with that of its crate or command.
    pub name: &'static str,
    /// Path of the changed file in the tree.
    pub file: &'static str,
    /// Text that is replaced; it is there once.
    pub text: &'static str,
    /// Text that takes its place.
    pub by: &'static str,
    /// Suites that have to notice the fault; one that does is enough.
    pub suites: &'static [Suite],
}

impl Mutation {
    /// The text of the mutation's file with the fault in it.
    ///
    /// # Errors
    /// If what is to be replaced is not found, or found twice.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(self.text).count() {
            1 => Ok(text.replacen(self.text, self.by, 1)),
            count => Err(format!(
                "{}: {} has its text {count} times: the code has changed, so change the mutation (xtask/src/mutants/list.rs)",
                self.name, self.file
            )),
        }
    }
}

/// Tests of one binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suite {
    /// Name of the crate, without the prefix that all have.
    pub krate: &'static str,
    /// `lib`, or the name of a test binary.
    pub target: &'static str,
    /// Part of the names of the tests that are run; empty for all.
    pub filter: &'static str,
}

impl Suite {
    /// Arguments that name the suite's binary to cargo.
    pub fn args(&self) -> Vec<String> {
        let package = match self.krate {
            "casemate" => "casemate".to_owned(),
            krate => format!("casemate-{krate}"),
        };
        let target = match self.target {
            "lib" => vec!["--lib".to_owned()],
            name => vec!["--test".to_owned(), name.to_owned()],
        };
        [vec!["--package".to_owned(), package], target].concat()
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}", self.krate, self.target, self.filter)
    }
}
