//! The results of all configurations of one call.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Why a configuration failed, or nothing.
pub type Outcome = Result<(), String>;

/// Steps, tests and skips, added up.
pub struct Report {
    steps: Vec<(String, Outcome, Duration)>,
    passed: u64,
    failed: u64,
    skip_log: PathBuf,
}

impl Report {
    pub fn new() -> Report {
        let skip_log = std::env::temp_dir().join(format!("casemate-skips-{}", std::process::id()));
        Report { steps: Vec::new(), passed: 0, failed: 0, skip_log }
    }

    /// Notes that a configuration ended.
    pub fn step(&mut self, name: &str, outcome: &Outcome, time: Duration) {
        if let Err(reason) = outcome {
            eprintln!("xtask: {name} failed: {reason}");
        }
        self.steps.push((name.to_owned(), outcome.clone(), time));
    }

    /// Adds the numbers of a line such as `test result: ok. 12 passed; 0 failed; ...`.
    pub fn count(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        let number = |word: &str| {
            let mut parts = rest.split([' ', ';']).filter(|part| !part.is_empty()).peekable();
            let mut last = None;
            parts.find_map(|part| {
                if part == word {
                    last
                } else {
                    last = part.parse::<u64>().ok();
                    None
                }
            })
        };
        self.passed += number("passed").unwrap_or(0);
        self.failed += number("failed").unwrap_or(0);
    }

    /// Notes a configuration that can't run here; a failure where skips are not expected.
    pub fn skip(&mut self, reason: &str) -> Outcome {
        println!("skipped: {reason}");
        self.log(reason)?;
        if std::env::var_os("CI").is_some() {
            Err(format!("a skip that was not expected: {reason}"))
        } else {
            Ok(())
        }
    }

    /// Notes tests that say nothing in a configuration.
    pub fn leave_out(&mut self, tests: &str, reason: &str) -> Outcome {
        self.log(&format!("{tests}: {reason}"))
    }

    fn log(&self, line: &str) -> Outcome {
        let file = OpenOptions::new().create(true).append(true).open(&self.skip_log);
        file.and_then(|mut file| writeln!(file, "{line}")).map_err(|error| error.to_string())
    }

    /// Where tests note why they were skipped.
    pub fn skip_log(&self) -> &Path {
        &self.skip_log
    }

    /// Prints the summary; the exit status says whether all is well.
    pub fn close(self) -> ExitCode {
        let skips = std::fs::read_to_string(&self.skip_log).unwrap_or_default();
        let _ = std::fs::remove_file(&self.skip_log);
        println!("== summary");
        for (name, outcome, time) in &self.steps {
            let verdict =
                outcome.as_ref().map_or_else(|reason| format!("FAILED: {reason}"), |()| "ok".to_owned());
            println!("{name:<11} {:>6.1} s  {verdict}", time.as_secs_f64());
        }
        for skip in skips.lines() {
            println!("skipped: {skip}");
        }
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, skips.lines().count());
        let good = self.failed == 0 && self.steps.iter().all(|(_, outcome, _)| outcome.is_ok());
        if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_summary_lines_are_counted() {
        let mut report = Report::new();
        report.count(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 1s",
        );
        report.count("test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        report.count("test foo ... ok");
        assert_eq!((report.passed, report.failed), (17, 2));
    }
}
