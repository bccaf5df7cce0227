//! The `casemate` command; its library says what it does.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    casemate_cli::main()
}
