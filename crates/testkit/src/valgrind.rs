//! Tests that run again under valgrind, which sees what depends on secrets
//! ([`conceal`](casemate_primitives::testing::conceal)).

use std::process::Command;

/// Set in the run under valgrind.
const WATCHED: &str = "CASEMATE_WATCHED";

/// Whether this process is the one that valgrind watches.
pub fn is_watched() -> bool {
    std::env::var_os(WATCHED).is_some()
}

/// Runs the test `name` of this binary under valgrind's memcheck; whether that found nothing, or `None` without valgrind.
///
/// # Panics
/// If the test itself fails there.
pub fn finds_nothing(name: &str) -> Option<bool> {
    let this = std::env::current_exe().expect("the path of this program");
    let run = Command::new("valgrind")
        .args(["--quiet", "--error-exitcode=9", "--track-origins=no"])
        .arg(this)
        .args(["--exact", name, "--test-threads=1"])
        .env(WATCHED, "1")
        .output();
    match run {
        Ok(output) => {
            if output.status.code() != Some(0) {
                println!("{}", String::from_utf8_lossy(&output.stderr));
            }
            assert!([Some(0), Some(9)].contains(&output.status.code()), "{:?}", output.status);
            Some(output.status.success())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            crate::skip("no valgrind");
            None
        }
        Err(error) => panic!("valgrind can't be run: {error}"),
    }
}
