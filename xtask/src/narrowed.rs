//! The tests that a back end can make fail, under a CPU with fewer features than this one.
//!
//! They are the binaries that `native` has built: `CASEMATE_CPU` is read when they run.

use crate::binaries::{self, Tests};
use crate::report::Report;
use crate::step::Outcome;

/// Tests that run ciphers, hashes and checksums: units, vectors of other programs, and commands over small images.
const TESTS: &[&str] = &[
    "--lib",
    "--test=ciphers",
    "--test=sha2",
    "--test=wycheproof",
    "--test=dm_corpus",
    "--test=fs_corpus",
    "--test=fec",
    "--test=corpus",
    "--test=both_ways",
    "--test=check",
    "--test=verity",
    "--test=fsverity",
];

/// Units of what computes nothing itself.
const LEFT_OUT: &[&str] =
    &["cli: src/lib.rs", "fuse: src/lib.rs", "sys: src/lib.rs", "testkit: src/lib.rs", "trees: src/lib.rs"];

/// No special instructions at all.
pub fn portable(report: &mut Report) -> Outcome {
    tests(report, "portable")
}

/// Runs the tests without AVX-512, as on most CPUs of the last ten years.
pub fn no_avx512(report: &mut Report) -> Outcome {
    if !has_avx512() {
        println!("this CPU has no AVX-512: `native` is the same");
        return Ok(());
    }
    tests(report, "-avx512")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

fn tests(report: &mut Report, cpu: &str) -> Outcome {
    binaries::run(
        report,
        &Tests { filter: TESTS, left_out: LEFT_OUT, variables: &[("CASEMATE_CPU", cpu)], ..Tests::default() },
    )
}
