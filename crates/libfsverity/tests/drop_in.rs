//! The original's own program, linked to this library instead.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use casemate_testkit::{Rng, TempDir, run, run_any, tempdir, tool};

/// The library under the name that programs ask for, in a folder of its own.
fn library() -> TempDir {
    let folder = tempdir().unwrap();
    // Beside the tests, in target/debug/deps.
    let built = std::env::current_exe().unwrap().with_file_name("libfsverity.so");
    std::fs::copy(built, folder.path().join("libfsverity.so.0")).unwrap();
    folder
}

struct Programs {
    fsverity: PathBuf,
    library: TempDir,
    place: TempDir,
}

impl Programs {
    fn new() -> Option<Programs> {
        Some(Programs { fsverity: tool("fsverity")?, library: library(), place: tempdir().unwrap() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Output of the program with its own library, and with this one.
    fn both(&self, words: &[&str]) -> (Output, Output) {
        let command = |library: Option<&Path>| {
            let mut command = Command::new(&self.fsverity);
            command.args(words).current_dir(self.place.path());
            if let Some(library) = library {
                command.env("LD_LIBRARY_PATH", library);
            }
            run_any(&mut command)
        };
        (command(None), command(Some(self.library.path())))
    }

    fn same(&self, words: &[&str]) {
        let (theirs, ours) = self.both(words);
        assert_eq!(theirs.stdout, ours.stdout, "{words:?} {ours:?}");
        assert_eq!(theirs.status.code(), ours.status.code(), "{words:?} {theirs:?} {ours:?}");
    }
}

#[test]
fn this_library_is_what_is_run() {
    let Some(programs) = Programs::new() else { return };
    let Some(ldd) = tool("ldd") else { return };
    let mut command = Command::new(ldd);
    let listed = run(command.arg(&programs.fsverity).env("LD_LIBRARY_PATH", programs.library.path()));
    let line = listed.lines().find(|line| line.contains("libfsverity")).unwrap();
    assert!(line.contains(programs.library.path().to_str().unwrap()), "{line}");
}

#[test]
fn digests_trees_and_descriptors_are_the_originals() {
    let Some(programs) = Programs::new() else { return };
    for size in [0, 1, 4095, 4096, 4097, 600_000, 3 << 20] {
        let mut data = vec![0; size];
        Rng::new(size as u64).fill(&mut data);
        std::fs::write(programs.path("file"), data).unwrap();
        for options in [
            &[][..],
            &["--hash-alg=sha512"],
            &["--block-size=1024", "--salt=0123456789abcdef"],
            &["--compact", "--for-builtin-sig"],
        ] {
            programs.same(&[&["digest", "file"], options].concat());
            let mut made = Vec::new();
            for library in [None, Some(programs.library.path())] {
                let mut command = Command::new(&programs.fsverity);
                command.args(["digest", "file", "--out-merkle-tree=tree", "--out-descriptor=descriptor"]);
                command.args(options).current_dir(programs.place.path());
                run(library
                    .into_iter()
                    .fold(&mut command, |command, path| command.env("LD_LIBRARY_PATH", path)));
                made.push(["tree", "descriptor"].map(|name| std::fs::read(programs.path(name)).unwrap()));
            }
            assert!(made[0] == made[1], "{size} {options:?}");
        }
    }
}

#[test]
fn signatures_and_errors_are_the_originals() {
    let Some(programs) = Programs::new() else { return };
    let Some(openssl) = tool("openssl") else { return };
    std::fs::write(programs.path("file"), "contents").unwrap();
    let words = "req -newkey rsa:2048 -nodes -keyout key.pem -x509 -out cert.pem -subj /CN=test -days 9";
    run_any(Command::new(openssl).args(words.split(' ')).current_dir(programs.place.path()));
    let sign = ["sign", "file", "signature", "--key=key.pem", "--cert=cert.pem"];
    let mut signatures = Vec::new();
    for library in [None, Some(programs.library.path())] {
        let mut command = Command::new(&programs.fsverity);
        command.args(sign).current_dir(programs.place.path());
        run(library.into_iter().fold(&mut command, |command, path| command.env("LD_LIBRARY_PATH", path)));
        signatures.push(std::fs::read(programs.path("signature")).unwrap());
    }
    assert!(signatures[0] == signatures[1], "RSA signs the same bytes the same way");
    for words in [
        &["digest", "none"][..],
        &["digest", "file", "--hash-alg=md4"],
        &["digest", "file", "--block-size=1000"],
        &["digest", "file", "--salt=zz"],
        &["sign", "file", "signature", "--key=cert.pem", "--cert=cert.pem"],
        &["sign", "file", "signature", "--key=none", "--cert=cert.pem"],
        &["enable", "file"],
        &["enable", "none"],
        &["measure", "file"],
    ] {
        programs.same(words);
        let (_, ours) = programs.both(words);
        assert!(!ours.stderr.is_empty(), "{words:?}");
    }
}

/// Functions of the caller, errors and NULL, as a C program sees them.
#[test]
fn a_c_program_gets_numbers_and_no_crash() {
    let Some(compiler) = tool("cc") else { return };
    let programs = (library(), tempdir().unwrap());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = programs.1.path().join("program");
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-g", "-o"]).arg(&program);
    run(command.arg(here.join("tests/numbers.c")).arg(programs.0.path().join("libfsverity.so.0")));
    let output = run_any(Command::new(&program).env("LD_LIBRARY_PATH", programs.0.path()));
    assert!(output.status.success(), "{output:?}");
    let Some(valgrind) = tool("valgrind") else { return };
    let mut command = Command::new(valgrind);
    command.args(["-q", "--leak-check=full", "--error-exitcode=9"]).arg(&program);
    let output = run_any(command.env("LD_LIBRARY_PATH", programs.0.path()));
    assert!(output.status.success(), "{output:?}");
}
