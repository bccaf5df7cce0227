//! Debian packages of the command and of the C library, the command in one static file, wheels, and the sources with all
//! crates.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::install::has_packages;
use crate::links::{HELPERS, LINKS};
use crate::report::Report;
use crate::step::{Outcome, cargo, root, step};
use crate::systems::{static_command, static_command_aarch64, try_command};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Dependencies of the packages: the libraries that programs are linked to.
const NEEDS: &str = "libc6 (>= 2.34), libgcc-s1 (>= 4.2)";

/// cargo-c's version for this compiler.
const CARGO_C: &str = "0.10.24";

/// A program in C as users write one, which says its library's version.
const TRIAL: &str = "#include <casemate.h>
#include <stdio.h>
int main(void) { return puts(casemate_version()) < 0; }
";

/// A package as it is unpacked.
struct Package {
    name: &'static str,
    folder: PathBuf,
}

/// Makes everything in `target/packages`, and tries the Debian packages in a root of their own.
pub fn package(report: &mut Report) -> Outcome {
    let out = root().join("target/packages");
    let _ = fs::remove_dir_all(&out);
    cargo([
        "build",
        "--quiet",
        "--profile",
        "symbols",
        "--package",
        "casemate-cli",
        "--package",
        "casemate-libfsverity",
    ])
    .run()?;
    let triplet = step("dpkg-architecture", ["--query", "DEB_HOST_MULTIARCH"]).output()?;
    let libraries = Path::new("usr/lib").join(triplet.trim());
    let installed = c_library(&out, &libraries)?;
    let packages =
        [command(&out)?, library(&out, &installed, &libraries)?, development(&out, &installed, &libraries)?];
    let files = packages.iter().map(Package::build).collect::<Result<Vec<_>, _>>()?;
    let alone = [static_command(report, &out)?, static_command_aarch64(report, &out)?];
    sources(&out)?;
    for file in files.iter().chain(alone.iter().flatten()) {
        println!(
            "{}: {} KiB",
            file.display(),
            fs::metadata(file).map_or(0, |data| data.len().div_ceil(1024))
        );
    }
    try_in_a_root(report, &out, &files)?;
    crate::wheel::wheel(report)
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

impl Package {
    fn new(out: &Path, name: &'static str) -> Package {
        Package { name, folder: out.join("unpacked").join(name) }
    }

    /// A path in the package, whose folder is there.
    fn path(&self, path: impl AsRef<Path>) -> Result<PathBuf, String> {
        let path = self.folder.join(path);
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder).map_err(failed(folder))?;
        Ok(path)
    }

    fn write(&self, path: impl AsRef<Path>, text: &[u8]) -> Outcome {
        let path = self.path(path)?;
        fs::write(&path, text).map_err(failed(&path))
    }

    fn copy(&self, from: &Path, to: impl AsRef<Path>, mode: u32) -> Outcome {
        let to = self.path(to)?;
        fs::copy(from, &to).map_err(failed(from))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).map_err(failed(&to))
    }

    fn link(&self, target: &str, path: impl AsRef<Path>) -> Outcome {
        let path = self.path(path)?;
        symlink(target, &path).map_err(failed(&path))
    }

    /// Files that Debian requires of every package.
    fn describe(&self, section: &str, needs: &str, text: &str) -> Outcome {
        let root = root();
        let read = |name: &str| fs::read_to_string(root.join(name)).map_err(failed(&root.join(name)));
        let copyright = format!(
            "Licensed under either of these, at your choice.\n\n{}\n{}",
            read("LICENSE-MIT")?,
            read("LICENSE-APACHE")?
        );
        self.write(format!("usr/share/doc/{}/copyright", self.name), copyright.as_bytes())?;
        let architecture = step("dpkg", ["--print-architecture"]).output()?;
        let control = format!(
            "Package: {}\nVersion: {VERSION}\nArchitecture: {}\nMaintainer: casemate\nSection: {section}\nPriority: optional\n{needs}\nDescription: {text}\n",
            self.name,
            architecture.trim()
        );
        self.write("DEBIAN/control", control.as_bytes())
    }

    fn build(&self) -> Result<PathBuf, String> {
        let out = self.folder.parent().and_then(Path::parent).unwrap_or(&self.folder);
        let (from, to) = (self.folder.to_string_lossy(), out.to_string_lossy());
        step("dpkg-deb", ["--root-owner-group", "--build", &from, &to]).output()?;
        let files = fs::read_dir(out).map_err(failed(out))?.filter_map(Result::ok).map(|entry| entry.path());
        let is_mine = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&format!("{}_", self.name)))
        };
        files
            .filter(|path| path.extension().is_some_and(|end| end == "deb"))
            .find(is_mine)
            .ok_or_else(|| format!("no package {}", self.name))
    }
}

/// A program that was built, with its line tables.
fn built(name: &str) -> PathBuf {
    root().join("target/symbols").join(name)
}

/// Strips a program or library of a package. Its line tables go to a file beside the packages, which debuggers find by what
/// stays in the program, its name and checksum.
fn strip(program: &Path, out: &Path, options: &[&str]) -> Outcome {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let tables = out.join(format!("{name}.debug"));
    let (program, tables) = (program.to_string_lossy(), tables.to_string_lossy());
    step("objcopy", ["--only-keep-debug", &program, &tables]).run()?;
    step("strip", []).args(options).args(&[&program]).run()?;
    step("objcopy", [&format!("--add-gnu-debuglink={tables}"), &*program]).run()
}

/// The command, its manual pages and completions.
fn command(out: &Path) -> Result<Package, String> {
    let package = Package::new(out, "casemate");
    let program = built("casemate");
    package.copy(&program, "usr/bin/casemate", 0o755)?;
    strip(&package.path("usr/bin/casemate")?, out, &[])?;
    let pages = package.path("usr/share/man/man1/page")?;
    let pages = pages.parent().unwrap_or(&pages);
    step(&program, ["--quiet", "man", &pages.to_string_lossy()]).run()?;
    let names = fs::read_dir(pages).map_err(failed(pages))?.filter_map(Result::ok).map(|entry| entry.path());
    let names: Vec<String> = names.map(|path| path.to_string_lossy().into_owned()).collect();
    step("gzip", ["-9n"]).args(&names.iter().map(String::as_str).collect::<Vec<_>>()).run()?;
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/casemate"),
        ("zsh", "usr/share/zsh/vendor-completions/_casemate"),
        ("fish", "usr/share/fish/vendor_completions.d/casemate.fish"),
    ] {
        package.write(path, step(&program, ["completions", shell]).output()?.as_bytes())?;
    }
    // Helpers of mount(8) and umount(8): without its own, umount(8) does not ask the owner of a mounted folder to commit.
    for helper in HELPERS {
        package.link("../bin/casemate", format!("usr/sbin/{helper}"))?;
    }
    // In a folder of their own: the tools themselves stay what they are for everybody whose PATH does not begin with it.
    for (tool, _) in LINKS {
        package.link("../../../bin/casemate", format!("usr/lib/casemate/bin/{tool}"))?;
    }
    let (install, remove) = alternatives();
    let text = format!(
        "In /usr/lib/casemate/bin the command answers to other tools' names, for a PATH that begins with it.\nTo put \
         these before the tools themselves for everybody, and to end that:\n\n    {install}\n    {remove}\n"
    );
    package.write("usr/share/doc/casemate/README.Debian", text.as_bytes())?;
    package.describe(
        "utils",
        &format!("Depends: {NEEDS}\nRecommends: fuse3"),
        "dm-verity, fs-verity, dm-crypt, LUKS, fscrypt and ext4 in user space\n Makes, reads, checks and changes what the kernel's storage protection reads and writes, without\n root and without a kernel. In /usr/lib/casemate/bin it answers to other tools' names.",
    )?;
    Ok(package)
}

/// Scripts that put the links before the tools whose names they have, as one group of alternatives, and that end that.
/// Debian's tools are not alternatives themselves, so the group is in a folder that comes before theirs.
fn alternatives() -> (String, String) {
    let path = |tool: &str| format!("/usr/lib/casemate/bin/{tool}");
    let [first, others @ ..] = LINKS.map(|(tool, _)| tool);
    let one = |tool: &str| format!("/usr/local/sbin/{tool} casemate-{tool} {}", path(tool));
    let others = others.map(|tool| format!(" --slave {}", one(tool))).concat();
    let install = format!("update-alternatives --install {} 10{others}", one(first));
    (install, format!("update-alternatives --remove casemate-{first} {}", path(first)))
}

/// The C library as cargo-c installs it below a folder.
fn c_library(out: &Path, libraries: &Path) -> Result<PathBuf, String> {
    let tools = root().join("target/cargo-c");
    if !tools.join("bin/cargo-cinstall").exists() {
        let version = ["--quiet", "--locked", "--debug", "cargo-c", "--version", CARGO_C, "--root"];
        cargo(["install"]).args(&version).args(&[&tools.to_string_lossy()]).run()?;
    }
    let place = out.join("c");
    let (to, libraries) = (place.to_string_lossy(), Path::new("/").join(libraries));
    step(tools.join("bin/cargo-cinstall"), ["cinstall", "--locked", "--package", "casemate-capi"])
        .args(&["--prefix", "/usr", "--libdir", &libraries.to_string_lossy(), "--destdir", &to])
        .run()?;
    Ok(place)
}

/// The C library that programs are run with, and the library that can take libfsverity's place.
fn library(out: &Path, installed: &Path, folder: &Path) -> Result<Package, String> {
    let package = Package::new(out, "libcasemate0");
    let file = format!("libcasemate.so.{VERSION}");
    let (program, other) = (folder.join(&file), folder.join("casemate/libfsverity.so.0"));
    package.copy(&installed.join(&program), &program, 0o644)?;
    package.link(&file, folder.join("libcasemate.so.0"))?;
    package.copy(&built("libfsverity.so"), &other, 0o644)?;
    for path in [&program, &other] {
        strip(&package.path(path)?, out, &["--strip-unneeded"])?;
    }
    package.write("DEBIAN/triggers", b"activate-noawait ldconfig\n")?;
    package.describe(
        "libs",
        &format!("Depends: {NEEDS}"),
        "dm-verity, LUKS, ext4 and more in user space, C library",
    )?;
    Ok(package)
}

/// The package that programs are compiled with.
fn development(out: &Path, installed: &Path, folder: &Path) -> Result<Package, String> {
    let package = Package::new(out, "libcasemate-dev");
    let (header, archive) = (Path::new("usr/include/casemate.h"), folder.join("libcasemate.a"));
    for path in [header, &archive, &folder.join("pkgconfig/casemate.pc")] {
        package.copy(&installed.join(path), path, 0o644)?;
    }
    package.link("libcasemate.so.0", folder.join("libcasemate.so"))?;
    step("strip", ["--strip-debug", &package.path(&archive)?.to_string_lossy()]).run()?;
    package.describe(
        "libdevel",
        &format!("Depends: libcasemate0 (= {VERSION}), libc6-dev"),
        "dm-verity, LUKS, ext4 and more in user space, C header",
    )?;
    Ok(package)
}

/// The sources as they are committed, and all crates that they need: a build asks no network.
fn sources(out: &Path) -> Outcome {
    let name = format!("casemate-{VERSION}");
    let folder = out.join(&name);
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    let (to, tar) = (folder.to_string_lossy().into_owned(), out.join(format!("{name}.tar.xz")));
    step("sh", ["-ec", "git archive HEAD | tar -x -C \"$1\"", "sh", &to]).run()?;
    // Quietly it would not say how its crates are found.
    let config = cargo(["vendor", "--locked", "vendor"]).folder(&folder).output()?;
    let place = folder.join(".cargo");
    fs::create_dir_all(&place).map_err(failed(&place))?;
    let config = [fs::read_to_string(place.join("config.toml")).unwrap_or_default(), config].concat();
    fs::write(place.join("config.toml"), config).map_err(failed(&place))?;
    let arguments = ["--create", "--xz", "--sort=name", "--owner=0", "--group=0", "--file"];
    step("tar", arguments)
        .args(&[&tar.to_string_lossy(), "--directory", &out.to_string_lossy(), &name])
        .run()?;
    // A home of cargo without crates: what is missing in the archive is nowhere else.
    let home = out.join("empty-home");
    cargo(["build", "--quiet", "--offline", "--locked", "--package", "casemate-cli"])
        .env("CARGO_HOME", &home)
        .folder(&folder)
        .run()?;
    try_command(&folder.join("target/debug/casemate"), &out.join("trial"))?;
    fs::remove_dir_all(&folder).map_err(failed(&folder))
}

/// Installs the packages into a minimal Debian, and does each one's main job there.
fn try_in_a_root(report: &mut Report, out: &Path, files: &[PathBuf]) -> Outcome {
    if !has_packages(report, "packages in a root of their own", &["debootstrap"])? {
        return Ok(());
    }
    let place = out.join("root");
    let include = "--include=gcc,libc6-dev,pkg-config,fsverity";
    step("debootstrap", ["--variant=minbase", include, "stable", &place.to_string_lossy()]).output()?;
    for file in files {
        let name = file.file_name().unwrap_or_default();
        fs::copy(file, place.join(name)).map_err(failed(file))?;
    }
    fs::write(place.join("trial.c"), TRIAL).map_err(failed(&place))?;
    let (install, remove) = alternatives();
    let (helpers, links) = (HELPERS.join(" "), LINKS.map(|(name, _)| name).join(" "));
    let trial = ["sh", "-ec", include_str!("package.sh"), "sh", &install, &remove, &helpers, &links];
    step("chroot", [&*place.to_string_lossy()]).args(&trial).run()?;
    fs::remove_dir_all(&place).map_err(failed(&place))
}
