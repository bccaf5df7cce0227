//! Zig, from Python's packages: a compiler and linker for other systems and for old versions of libc.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::install::environment;
use crate::step::{Step, root, step};

/// Packages to install: Zig, what lets cargo use it, and what makes wheels and looks at them.
const PACKAGES: [&str; 4] =
    ["auditwheel", "cargo-zigbuild>=0.24,<0.25", "maturin>=1.14,<2", "ziglang>=0.17,<0.18"];

/// An environment with these programs.
pub struct Zig {
    programs: PathBuf,
    path: OsString,
}

impl Zig {
    /// Makes the environment, or takes the one that an earlier call has made.
    pub fn install() -> Result<Zig, String> {
        let folder = root().join("target/zig-tools");
        let programs = folder.join("bin");
        if !programs.join("cargo-zigbuild").exists() {
            environment(&folder)?;
            step(programs.join("pip"), ["install", "--quiet"]).args(&PACKAGES).run()?;
        }
        let old = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([programs.clone()].into_iter().chain(std::env::split_paths(&old)));
        Ok(Zig { path: path.map_err(|error| error.to_string())?, programs })
    }

    /// One of the programs.
    pub fn step<const N: usize>(&self, program: &str, args: [&str; N]) -> Step {
        step(self.programs.join(program), args).env("PATH", &self.path)
    }

    /// Builds a package for a target, which may end with a version of glibc, in a folder of the target's own.
    pub fn build(&self, package: &str, target: &str, folder: &str) -> Step {
        self.step("cargo-zigbuild", ["zigbuild", "--quiet", "--package", package, "--target", target])
            .args(&["--target-dir", folder])
    }
}
