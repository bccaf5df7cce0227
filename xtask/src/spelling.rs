//! Spelling of documents, code and comments, by codespell.

use crate::install::has_packages;
use crate::report::Report;
use crate::step::{Outcome, step};

/// Words that codespell takes for others: names of programs and formats, and slips that tests type.
const WORDS: &str =
    "cachable,caf,chek,crate,crates,fo,formt,fromat,hda,inout,keypair,ot,padd,partion,tru,upto";

/// Files that hold no English.
const SKIPPED: &str = "target,*licenses.txt,./fuzz/artifacts,./fuzz/corpus,./fuzz/seeds,./vectors/*.txt,*.bin,*.gz,*.json,*.lock,*.xz";

/// Files and folders with English.
const PLACES: &[&str] = &[
    "ARCHITECTURE.md",
    "BENCHMARKS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "ROADMAP.md",
    "SECURITY.md",
    "benches",
    "crates",
    "docs",
    "fuzz",
    "vectors",
    "xtask",
];

/// Finds misspelt words.
pub fn spelling(report: &mut Report) -> Outcome {
    if !has_packages(report, "spelling", &["codespell"])? {
        return Ok(());
    }
    let options = ["--quiet-level=7", "--ignore-words-list", WORDS, "--skip", SKIPPED];
    step("codespell", options).args(PLACES).run()
}
