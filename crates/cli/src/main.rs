//! The `casemate` command; its library says what it does.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

fn main() -> std::process::ExitCode {
    casemate_cli::main()
}
