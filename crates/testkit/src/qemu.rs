//! Debian's stock kernel in QEMU, for what User-Mode-Linux lacks: fs-verity, and error correction in dm-verity.
//!
//! The processor is emulated in software, so a boot takes 10 to 20 seconds on a free core. `cargo xtask install`
//! fetches the kernel into `target/kernel`. The guest sees nothing of this machine but the programs that it is given,
//! with their libraries, in a file system in memory, and disk images.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cpio::Archive;
use crate::{GuestOutput, find_program, run_any, skip};

/// A script to run under Debian's kernel.
#[derive(Debug)]
pub struct Qemu {
    script: String,
    programs: Vec<PathBuf>,
    disks: Vec<PathBuf>,
    modules: Vec<&'static str>,
}

/// Modules that each guest loads, where they are not built in.
const MODULES: [&str; 6] =
    ["virtio_pci", "virtio_blk", "dm_mod", "dm_verity", "sha256_generic", "sha512_generic"];

/// The guest's first program: it runs the script with its three results on serial lines of their own.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/ DM_DISABLE_UDEV=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
mkdir -p /run/cryptsetup /run/lock /dev/shm
for module in $(cat /modules/order); do insmod /modules/$module; done
for line in 1 2 3; do stty -F /dev/ttyS$line raw -echo; done
sh -e /script >/dev/ttyS1 2>/dev/ttyS2 </dev/null
echo $? >/dev/ttyS3
poweroff -f
"#;

impl Qemu {
    /// A POSIX shell script, run as root in the guest with `set -e`.
    pub fn new(script: impl Into<String>) -> Qemu {
        Qemu { script: script.into(), programs: Vec::new(), disks: Vec::new(), modules: MODULES.to_vec() }
    }

    /// Puts this script in the place of the one that there was.
    pub fn script(mut self, script: impl Into<String>) -> Qemu {
        self.script = script.into();
        self
    }

    /// Loads further modules of the kernel, with those that they need.
    pub fn modules(mut self, names: &[&'static str]) -> Qemu {
        self.modules.extend_from_slice(names);
        self
    }

    /// Gives the guest a program of this machine, found in `PATH` if it is a mere name.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Qemu {
        self.programs.push(program.into());
        self
    }

    /// Gives the guest `image` as its next block device: `/dev/vda`, `/dev/vdb`, ...
    pub fn disk(mut self, image: impl Into<PathBuf>) -> Qemu {
        self.disks.push(image.into());
        self
    }

    /// Boots, runs the script and waits for the end, for half an hour at most.
    ///
    /// `None`, after a skip, where QEMU, the kernel or a program is missing.
    ///
    /// # Panics
    /// If the kernel died or did not end by itself: the console is in the message.
    pub fn run(self) -> Option<GuestOutput> {
        let Some(kernel) = kernel() else {
            skip("qemu: no kernel in target/kernel (cargo xtask install)");
            return None;
        };
        let mut programs = Vec::new();
        for needed in ["qemu-system-x86_64", "timeout", "modprobe", "busybox"] {
            if find_program(needed).is_none() {
                skip(&format!("qemu: no {needed}"));
                return None;
            }
        }
        for program in &self.programs {
            let named = program.components().count() == 1;
            let found = if named { find_program(&program.to_string_lossy()) } else { Some(program.clone()) };
            let Some(found) = found else {
                skip(&format!("qemu: no {}", program.display()));
                return None;
            };
            programs.push(found);
        }
        let job = tempfile::Builder::new().prefix("qemu").tempdir().expect("a temporary folder");
        let initrd = job.path().join("initrd");
        fs::write(&initrd, self.initrd(&kernel, &programs)).expect("the initial file system");

        let mut command = Command::new("timeout");
        command.args([
            "-k",
            "5",
            "1800",
            "qemu-system-x86_64",
            "-accel",
            "tcg",
            "-cpu",
            "max,cx16=off",
            "-m",
            "768",
        ]);
        command.args(["-nodefaults", "-nographic", "-no-reboot", "-append"]);
        command.arg("console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable random.trust_cpu=on");
        command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&initrd).stdin(Stdio::null());
        let outputs = ["console", "stdout", "stderr", "status"];
        for name in outputs {
            command.arg("-serial").arg(format!("file:{}", job.path().join(name).display()));
        }
        for image in &self.disks {
            command.arg("-drive").arg(format!("file={},format=raw,if=virtio,cache=unsafe", image.display()));
        }
        let output = run_any(&mut command);
        let read = |name| fs::read(job.path().join(name)).unwrap_or_default();
        let [console, stdout, stderr, status] =
            outputs.map(|name| String::from_utf8_lossy(&read(name)).into_owned());
        let Ok(status) = status.trim().parse() else {
            let said = String::from_utf8_lossy(&output.stderr);
            panic!(
                "the kernel did not end by itself ({}): {said}\n{console}\n{stdout}\n{stderr}",
                output.status
            );
        };
        Some(GuestOutput { status, stdout, stderr, console })
    }

    fn initrd(&self, kernel: &Kernel, programs: &[PathBuf]) -> Vec<u8> {
        let mut archive = Archive::default();
        for folder in ["bin", "sbin", "proc", "sys", "dev", "run", "tmp", "mnt"] {
            archive.folder(folder);
        }
        let busybox = find_program("busybox").expect("looked for above");
        archive.file("bin/busybox", &fs::read(busybox).expect("a program can be read"));
        archive.file("init", INIT.as_bytes());
        archive.file("script", self.script.as_bytes());
        let mut order = String::new();
        for module in kernel.modules(&self.modules) {
            let name = module.file_stem().expect("a module's name").to_string_lossy().into_owned();
            let name = name.trim_end_matches(".ko").to_owned();
            order += &format!("{name} ");
            archive.file(&format!("modules/{name}"), &crate::fixture(&module));
        }
        archive.file("modules/order", order.as_bytes());
        let mut files: Vec<PathBuf> = programs.iter().flat_map(|program| libraries(program)).collect();
        files.sort();
        files.dedup();
        for path in files {
            let inside = path.to_str().expect("a library's path").trim_start_matches('/');
            archive.file(inside, &fs::read(&path).expect("a library can be read"));
        }
        for program in programs {
            let name = program.file_name().expect("a program's name").to_string_lossy();
            archive.file(&format!("sbin/{name}"), &fs::read(program).expect("a program can be read"));
        }
        archive.finish()
    }
}

/// An unpacked package of Debian's.
struct Kernel {
    root: PathBuf,
    version: String,
    image: PathBuf,
}

/// The kernel in the folder that `CASEMATE_TEST_KERNEL` names, or in `target/kernel`.
fn kernel() -> Option<Kernel> {
    let root = std::env::var_os("CASEMATE_TEST_KERNEL").map(PathBuf::from);
    let root = root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kernel"));
    let names = fs::read_dir(root.join("lib/modules")).ok()?.filter_map(Result::ok);
    let version = names.filter_map(|entry| entry.file_name().into_string().ok()).max()?;
    let image = root.join(format!("boot/vmlinuz-{version}"));
    image.is_file().then_some(Kernel { root, version, image })
}

impl Kernel {
    /// The files of these modules and of those that they need, in the order of loading.
    fn modules(&self, names: &[&str]) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = Vec::new();
        for module in names {
            let mut command = Command::new(find_program("modprobe").expect("looked for before"));
            command.arg("-d").arg(&self.root).args(["-S", &self.version, "--show-depends", module]);
            // Newer kernels have some of them as parts of others, and no module of the name: the script fails if something lacks.
            for line in String::from_utf8_lossy(&run_any(&mut command).stdout).lines() {
                // What is built in has a line of another kind.
                let file = line.strip_prefix("insmod ").map(|file| PathBuf::from(file.trim()));
                files.extend(file.filter(|file| !files.contains(file)));
            }
        }
        files
    }
}

/// The shared libraries that a program loads, with the loader itself.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = run_any(Command::new("ldd").arg(program));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.map(PathBuf::from).collect()
}
