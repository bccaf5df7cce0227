//! `cargo xtask NAME...`: runs configurations of the project's checks, one named function each.
//!
//! `cargo xtask test` is everything that must hold; it is what continuous integration runs. Tests that need a
//! tool which is missing say so; with `CI` set in the environment such a skip is a failure.
#![forbid(unsafe_code)]

mod binaries;
mod cross;
mod install;
mod kernels;
mod licenses;
#[path = "../../crates/cli/src/tools/links.rs"]
mod links;
mod manual;
mod mutants;
mod narrowed;
mod nightly;
mod package;
mod release;
mod report;
mod spelling;
mod step;
mod systems;
mod wheel;
mod zig;

use std::process::ExitCode;
use std::time::Instant;

use crate::binaries::Tests;
use crate::report::Report;
use crate::step::{Outcome, cargo};

/// A configuration: its name, what it is for, and the function that runs it.
type Configuration = (&'static str, &'static str, fn(&mut Report) -> Outcome);

const CONFIGURATIONS: &[Configuration] = &[
    (
        "install",
        "install the tools that tests need (Debian, as root), or say what is missing",
        install::tools,
    ),
    ("format", "formatting is rustfmt's", format),
    ("licenses", "write what casemate licenses prints anew; not part of `test`", licenses::write),
    ("licenses-check", "what casemate licenses prints is current", licenses::check),
    ("lint", "clippy finds nothing, in any target of the workspace", lint),
    ("native", "all tests, with every back end of this CPU", native),
    ("portable", "tests of what back ends compute, with portable ones alone", narrowed::portable),
    ("no-avx512", "the same without AVX-512", narrowed::no_avx512),
    ("aarch64", "the primitives' tests, cross-compiled and run under qemu-user", cross::aarch64),
    ("docs", "documentation builds without warnings", docs),
    ("spelling", "codespell finds no misspelt word", spelling::spelling),
    ("benches", "benchmarks compile", benches),
    ("miri", "parsers under Miri; not part of `test`", nightly::miri),
    (
        "fuzz-minute",
        "each fuzz target for CASEMATE_FUZZ_SECONDS (60); not part of `test`",
        nightly::fuzz_minute,
    ),
    (
        "kernels",
        "newer kernels of Debian's mount, read and write what is made; not part of `test`",
        kernels::kernels,
    ),
    (
        "package",
        "Debian packages, a static command, and sources with all crates, tried in roots of their own; not part of `test`",
        package::package,
    ),
    (
        "crates",
        "each crate built from its package, and its interface beside the last release's; not part of `test`",
        release::crates,
    ),
    (
        "adapters",
        "the Python module's adapters, beside the packages that they are for; not part of `test`",
        wheel::adapters,
    ),
    (
        "emulated",
        "all tests, cross-compiled to AArch64 and run under qemu-user; not part of `test`",
        cross::emulated,
    ),
    ("manual", "the manual as a book in target/manual, by mdBook; not part of `test`", manual::manual),
    ("i686", "the libraries' units on 32-bit Linux; not part of `test`", cross::i686),
    ("musl", "the libraries' units and the command, linked to musl; not part of `test`", systems::musl),
    (
        "windows",
        "the libraries' units and the command's main jobs on Windows, under Wine; not part of `test`",
        systems::windows,
    ),
    (
        "macos",
        "the command and the Python module compiled and linked for macOS, not run; not part of `test`",
        systems::macos,
    ),
    (
        "engines",
        "fleets on Ray, Dask and Spark and from an S3 server, all started here; not part of `test`",
        wheel::engines,
    ),
    (
        "wheel",
        "the Python module and the command as a wheel, tried in a fresh environment; not part of `test`",
        wheel::wheel,
    ),
    ("wheels", "the same for AArch64, macOS and Windows, not tried; not part of `test`", wheel::wheels),
    ("slow", "all tests with the long sweeps; not part of `test`", slow),
];

/// Configurations of `cargo xtask test`, in this order.
const TEST: &[&str] = &[
    "install",
    "format",
    "licenses-check",
    "lint",
    "native",
    "portable",
    "no-avx512",
    "aarch64",
    "docs",
    "spelling",
];

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["help" | "--help" | "-h"] => return help(),
        ["mutants", ref args @ ..] => return mutants::main(args),
        ["test"] => TEST.to_vec(),
        ref names => names.to_vec(),
    };
    let mut report = Report::new();
    for name in names {
        let Some((_, _, run)) = CONFIGURATIONS.iter().find(|(known, ..)| *known == name) else {
            eprintln!("xtask: no configuration is called '{name}'");
            return ExitCode::from(2);
        };
        println!("== {name}");
        let start = Instant::now();
        let outcome = run(&mut report);
        report.step(name, &outcome, start.elapsed());
    }
    report.close()
}

fn help() -> ExitCode {
    println!("cargo xtask test                everything that must hold: {}", TEST.join(", "));
    println!(
        "cargo xtask mutants ...         faults put in on purpose, which tests have to notice (docs/mutants.md)"
    );
    println!("cargo xtask NAME...             single configurations:");
    for (name, purpose, _) in CONFIGURATIONS {
        println!("    {name:<14}  {purpose}");
    }
    ExitCode::SUCCESS
}

fn format(_: &mut Report) -> Outcome {
    cargo(["fmt", "--all", "--check"]).run()?;
    cargo(["fmt", "--check", "--manifest-path", "benches/Cargo.toml"]).run()
}

fn lint(_: &mut Report) -> Outcome {
    cargo(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]).run()
}

fn native(report: &mut Report) -> Outcome {
    let all = binaries::run(report, &Tests::default());
    let documentation = cargo(["test", "--workspace", "--doc", "--no-fail-fast"]).run_tests(report);
    all.and(documentation)
}

fn slow(report: &mut Report) -> Outcome {
    let skips = report.skip_log();
    let tests = cargo(["test", "--workspace", "--release", "--no-fail-fast"]);
    tests.env("CASEMATE_SKIP_LOG", skips).env("CASEMATE_SLOW_TESTS", "1").run_tests(report)
}

fn docs(_: &mut Report) -> Outcome {
    cargo(["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").run()
}

fn benches(_: &mut Report) -> Outcome {
    cargo(["build", "--quiet", "--release", "--manifest-path", "benches/Cargo.toml"]).run()
}
