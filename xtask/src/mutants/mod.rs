//! `cargo xtask mutants`: faults that are put in on purpose, and the tests that have to notice them.
//!
//! Two kinds. The list of [`list::MUTATIONS`] has faults that a tool does not think of: a flush that is dropped, two writes
//! in the wrong order, a secret that is not wiped. `--crate` has cargo-mutants change expressions and functions of a crate.
//! Both work in a clone under `target/mutants`, with a folder of builds of its own: the tree is never changed, and what is
//! tested is what is committed. How they are used, and what they found: docs/mutants.md.

mod list;
mod mutation;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::step::{Outcome, root};
use list::MUTATIONS;
use mutation::{Mutation, Suite};

/// The time that a suite may take with a mutation: one that makes a test hang is noticed, too.
const PATIENCE: Duration = Duration::from_secs(900);

/// How often a running suite is looked at.
const LOOK: Duration = Duration::from_millis(100);

const USAGE: &str = "cargo xtask mutants [NAME...]                    the mutations of the list, or those whose name has NAME in it
cargo xtask mutants --list                      their names
cargo xtask mutants --crate CRATE [--shard K/N] those that cargo-mutants makes of crates/CRATE, or a sample of them
    --folder FOLDER    where the clone and its builds lie (target/mutants)";

/// The test binaries that cargo-mutants runs for a crate: its own, and those of other crates that cover it.
const CRATES: &[(&str, &[&str])] = &[
    ("blockdev", &["--lib"]),
    ("crypt", &["--lib", "--test=corpus"]),
    ("ext4", &["--lib"]),
    ("fscrypt", &["--lib", "--test=both_ways", "--test=metadata"]),
    ("integrity", &["--lib", "--test=media"]),
    ("luks", &["--lib", "--test=headers"]),
    ("nbd", &["--lib", "--test=server", "--test=mutated"]),
    (
        "verity",
        &["--lib", "--test=media", "--test=dm_corpus", "--test=fs_corpus", "--test=fec", "--test=signature"],
    ),
];

/// Result of a mutation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Caught,
    Missed,
}

pub fn main(args: &[&str]) -> ExitCode {
    match run(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("xtask mutants: {text}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[&str]) -> Result<bool, String> {
    let (mut folder, mut krate, mut shard, mut names) =
        (root().join("target/mutants"), None, None, Vec::new());
    let mut args = args.iter().copied();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
        match arg {
            "--list" => {
                MUTATIONS.iter().for_each(|mutation| println!("{}", mutation.name));
                return Ok(true);
            }
            "--folder" => folder = PathBuf::from(value()?),
            "--crate" => krate = Some(value()?),
            "--shard" => shard = Some(value()?),
            option if option.starts_with('-') => return Err(format!("no option {option}\n{USAGE}")),
            name => names.push(name),
        }
    }
    let scratch = Scratch::new(&folder)?;
    match krate {
        Some(krate) => scratch.cargo_mutants(krate, shard).map(|()| true),
        None => scratch.mutate(&names),
    }
}

/// A clone of the tree that may be changed, and its builds.
struct Scratch {
    tree: PathBuf,
    build: PathBuf,
    output: PathBuf,
}

impl Scratch {
    /// The clone in `folder`, as the tree's last commit is.
    fn new(folder: &Path) -> Result<Scratch, String> {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
        let (tree, build, output) = (folder.join("tree"), folder.join("build"), folder.join("output"));
        let (root, text) = (root(), tree.to_string_lossy().into_owned());
        let source = root.to_string_lossy();
        if !tree.join(".git").exists() {
            git(&["clone", "--quiet", "--shared", "--no-checkout", &source, &text])?;
        }
        git(&["-C", &text, "fetch", "--quiet", &source, "HEAD"])?;
        // Files that did not change keep their times, so that they are not built again.
        git(&["-C", &text, "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"])?;
        Ok(Scratch { tree, build, output })
    }

    fn cargo(&self, args: &[&str]) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        // The variables that cargo gives this program are of another package.
        command
            .args(args)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.build)
            .env_remove("CARGO_MANIFEST_DIR");
        command
    }

    /// Applies mutations one after the other. Returns whether tests noticed all of them.
    fn mutate(&self, names: &[&str]) -> Result<bool, String> {
        let is_asked =
            |mutation: &&Mutation| names.is_empty() || names.iter().any(|name| mutation.name.contains(name));
        let chosen: Vec<&Mutation> = MUTATIONS.iter().filter(is_asked).collect();
        if chosen.is_empty() {
            return Err("no mutation has such a name (cargo xtask mutants --list)".to_owned());
        }
        let mut sound: Vec<Suite> = Vec::new();
        let mut missed = Vec::new();
        for mutation in &chosen {
            for suite in mutation.suites {
                if !sound.contains(suite) {
                    self.check_sound(suite)?;
                    sound.push(*suite);
                }
            }
            let start = Instant::now();
            let path = self.tree.join(mutation.file);
            let original =
                fs::read_to_string(&path).map_err(|error| format!("{}: {error}", mutation.file))?;
            let mutated = mutation.apply(&original)?;
            let write =
                |text: &str| fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()));
            write(&mutated)?;
            let verdict = self.verdict(mutation);
            write(&original)?;
            let verdict = verdict?;
            let word = if verdict == Verdict::Caught { "caught" } else { "MISSED" };
            println!("{word}  {} ({:.0} s)", mutation.name, start.elapsed().as_secs_f64());
            if verdict == Verdict::Missed {
                missed.push(mutation.name);
            }
        }
        println!(
            "{} mutations, {} caught, {} missed",
            chosen.len(),
            chosen.len() - missed.len(),
            missed.len()
        );
        missed.iter().for_each(|name| println!("missed: {name}"));
        Ok(missed.is_empty())
    }

    /// Runs a suite without a mutation: one that fails, or has no tests, proves nothing.
    fn check_sound(&self, suite: &Suite) -> Outcome {
        self.build(suite).map_err(|()| format!("{suite} can't be built"))?;
        match self.passes(suite)? {
            Some(tests) if tests > 0 => Ok(()),
            Some(_) => Err(format!("{suite} has no tests")),
            None => Err(format!("{suite} fails without a mutation")),
        }
    }

    fn verdict(&self, mutation: &Mutation) -> Result<Verdict, String> {
        for suite in mutation.suites {
            self.build(suite).map_err(|()| format!("{}: the mutated code can't be built", mutation.name))?;
            if self.passes(suite)?.is_none() {
                return Ok(Verdict::Caught);
            }
        }
        Ok(Verdict::Missed)
    }

    fn build(&self, suite: &Suite) -> Result<(), ()> {
        let mut command = self.cargo(&["test", "--quiet", "--no-run"]);
        // A mutation may leave something unused.
        let status = command.args(suite.args()).env("RUSTFLAGS", RUSTFLAGS).status();
        if status.is_ok_and(|status| status.success()) { Ok(()) } else { Err(()) }
    }

    /// The number of tests of a suite that passed; `None` if one failed, or the suite did not end.
    fn passes(&self, suite: &Suite) -> Result<Option<u64>, String> {
        let failed = |error| format!("{suite}: {error}");
        let output = self.output.with_extension("log");
        let log = fs::File::create(&output).map_err(failed)?;
        let mut command = self.cargo(&["test"]);
        command.args(suite.args()).args(["--", suite.filter]).env("RUSTFLAGS", RUSTFLAGS);
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log);
        let (mut child, start) = (command.spawn().map_err(failed)?, Instant::now());
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            if start.elapsed() > PATIENCE {
                // Cargo ends, and the test that hangs ends with its own time.
                child.kill().and_then(|()| child.wait()).map_err(failed)?;
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        };
        if !status.success() {
            return Ok(None);
        }
        let text = fs::read_to_string(&output).map_err(failed)?;
        let passed = text.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
        Ok(Some(passed.filter_map(|line| line.split(' ').next()?.parse::<u64>().ok()).sum()))
    }

    /// Has cargo-mutants change a crate in the clone.
    fn cargo_mutants(&self, krate: &str, shard: Option<&str>) -> Outcome {
        let Some((_, tests)) = CRATES.iter().find(|(known, _)| *known == krate) else {
            let known: Vec<&str> = CRATES.iter().map(|(known, _)| *known).collect();
            return Err(format!("crate {krate}: known are {}", known.join(", ")));
        };
        let package = format!("casemate-{krate}");
        let output = self.output.join(krate);
        fs::create_dir_all(&output).map_err(|error| format!("{}: {error}", output.display()))?;
        // In place: the clone is there for that, and its builds are used again.
        let mut command =
            self.cargo(&["mutants", "--in-place", "--no-shuffle", "--colors=never", "--package", &package]);
        command.arg("--output").arg(&output);
        if let Some(shard) = shard {
            command.args(["--shard", shard]);
        }
        command.arg("--").args(*tests);
        let status = command.status().map_err(|error| format!("cargo mutants: {error}"))?;
        println!("lists of what was caught and missed: {}/mutants.out", output.display());
        // 2: some were missed; 3: some did not end.
        match status.code() {
            Some(0 | 2 | 3) => Ok(()),
            _ => Err(format!("cargo mutants: {status} (cargo install cargo-mutants --locked)")),
        }
    }
}

/// Warnings of mutated code say nothing.
const RUSTFLAGS: &str = "--cap-lints=warn";

fn git(args: &[&str]) -> Outcome {
    let status = Command::new("git").args(args).status().map_err(|error| format!("git: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("git {}: {status}", args.join(" "))) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_mutation_finds_its_text_once() {
        let mut names = BTreeSet::new();
        for mutation in MUTATIONS {
            assert!(names.insert(mutation.name), "{} is there twice", mutation.name);
            assert!(mutation.text != mutation.by && !mutation.suites.is_empty(), "{}", mutation.name);
            let text = fs::read_to_string(root().join(mutation.file)).expect(mutation.file);
            mutation.apply(&text).unwrap();
        }
        assert!(names.len() >= 40, "{} mutations", names.len());
    }

    #[test]
    fn every_suite_is_one_that_there_is() {
        for suite in MUTATIONS.iter().flat_map(|mutation| mutation.suites) {
            let folder = root().join("crates").join(suite.krate);
            let tests = folder.join("tests");
            let is_there = match suite.target {
                "lib" => folder.join("src/lib.rs").exists(),
                name => {
                    tests.join(format!("{name}.rs")).exists() || tests.join(name).join("main.rs").exists()
                }
            };
            assert!(is_there, "{suite}");
        }
    }

    #[test]
    fn a_text_that_is_gone_or_there_twice_is_an_error() {
        let mutation = Mutation { name: "name", file: "file", text: "a", by: "b", suites: &[] };
        assert_eq!(mutation.apply("xay").unwrap(), "xby");
        assert!(mutation.apply("xy").is_err() && mutation.apply("aa").is_err());
    }
}
