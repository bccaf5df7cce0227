//! A real Linux kernel as a process: Debian's User-Mode-Linux with this machine's files as its root.
//!
//! It boots in a few seconds, as any user, and has device-mapper's crypt, integrity and verity targets, loop devices and
//! AF_ALG. What the guest writes below the working folder is there afterwards: its root is the host's file
//! tree.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{GuestOutput, find_program, skip};

/// Program that lets the kernel run where the processor has more registers than it knows of.
const WHOLE_XSTATE: &str = include_str!("whole_xstate.c");

/// A script to run in a fresh kernel.
#[derive(Debug)]
pub struct Uml {
    script: String,
    disks: Vec<(PathBuf, bool)>,
    memory_mib: u32,
}

impl Uml {
    /// A POSIX shell script, run as root in the guest with `set -e`.
    pub fn new(script: impl Into<String>) -> Uml {
        Uml { script: script.into(), disks: Vec::new(), memory_mib: 512 }
    }

    /// Gives the guest `image` as its next block device: `/dev/ubda`, `/dev/ubdb`, ...
    pub fn disk(mut self, image: impl Into<PathBuf>, read_only: bool) -> Uml {
        self.disks.push((image.into(), read_only));
        self
    }

    /// How much memory the guest has; 512 MiB if not said.
    pub fn memory_mib(mut self, mib: u32) -> Uml {
        self.memory_mib = mib;
        self
    }

    /// Boots, runs the script and waits for the end, for half an hour at most.
    ///
    /// `None`, after a skip, where no User-Mode-Linux kernel is installed, or none can run programs.
    ///
    /// # Panics
    /// If the kernel died or did not end by itself: the console's last lines are in the message.
    pub fn run(self) -> Option<GuestOutput> {
        for needed in ["linux.uml", "busybox", "modprobe", "timeout"] {
            if find_program(needed).is_none() {
                skip(&format!("uml: no {needed}"));
                return None;
            }
        }
        let Some(modules) = newest_folder(Path::new("/usr/lib/uml/modules")) else {
            skip("uml: no kernel modules");
            return None;
        };
        let job = tempfile::Builder::new().prefix("uml").tempdir().expect("a temporary folder");
        let dir = job.path();
        // modprobe wants its modules at lib/modules/VERSION below some root.
        let modroot = dir.join("modroot");
        let version = modules.file_name().expect("a folder's name");
        fs::create_dir_all(modroot.join("lib/modules")).expect("a folder for modules");
        std::os::unix::fs::symlink(&modules, modroot.join("lib/modules").join(version)).expect("a link");
        fs::create_dir(dir.join("uml")).expect("a folder for the kernel's own files");
        fs::write(dir.join("script"), &self.script).expect("the script");
        let init = dir.join("init");
        fs::write(&init, init_script(dir, &modroot)).expect("the init script");
        make_executable(&init);

        let mut command = Command::new("timeout");
        command.args(["-k", "5", "1800"]).stdin(Stdio::null());
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        if processor.contains("amx_tile") {
            let Some(cc) = find_program("cc") else {
                skip("uml: no cc, for what lets the kernel run beside AMX");
                return None;
            };
            let (source, shim) = (dir.join("xstate.c"), dir.join("xstate.so"));
            fs::write(&source, WHOLE_XSTATE).expect("a C program");
            crate::run(Command::new(cc).args(["-shared", "-fPIC", "-O1", "-o"]).args([&shim, &source]));
            command.env("LD_PRELOAD", shim);
        }
        command.arg("linux.uml");
        command.args([
            "rootfstype=hostfs",
            "rootflags=/",
            "rw",
            "quiet",
            "panic=-1",
            "con=null",
            "con0=fd:0,fd:1",
        ]);
        command.arg(format!("mem={}M", self.memory_mib));
        command.arg(format!("init={}", init.display())).arg(format!("uml_dir={}/uml", dir.display()));
        for (number, (image, read_only)) in self.disks.iter().enumerate() {
            let image = image.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", image.display()));
            command.arg(format!("ubd{number}{}={}", if *read_only { "r" } else { "" }, image.display()));
        }
        let output = crate::run_any(&mut command);
        let console = String::from_utf8_lossy(&output.stdout).into_owned();
        let read =
            |name: &str| fs::read(dir.join(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let status = read("status").ok().and_then(|status| status.trim().parse().ok());
        let Some(status) = status else {
            panic!("the kernel did not end by itself ({}):\n{console}", output.status);
        };
        let text = |name| read(name).unwrap_or_default();
        Some(GuestOutput { status, stdout: text("stdout"), stderr: text("stderr"), console })
    }
}

fn init_script(dir: &Path, modroot: &Path) -> String {
    let mut init = String::from(
        "#!/bin/sh\n\
         export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DM_DISABLE_UDEV=1\n\
         mount -t proc proc /proc\n\
         mount -t sysfs sysfs /sys\n\
         mount -t tmpfs tmpfs /dev && busybox mdev -s\n\
         mkdir -p /dev/shm /dev/pts /dev/mapper\n\
         mount -t tmpfs tmpfs /dev/shm\n\
         mount -t tmpfs tmpfs /run\n\
         mkdir -p /run/cryptsetup /run/lock\n",
    );
    let (dir, modroot) = (dir.display(), modroot.display());
    // The kernel asks for modules by itself; they lie where this helper finds them.
    write!(
        init,
        "printf '#!/bin/sh\\nexec modprobe -d {modroot} \"$@\"\\n' >{dir}/modprobe\n\
         chmod +x {dir}/modprobe\n\
         echo {dir}/modprobe >/proc/sys/kernel/modprobe\n\
         for m in loop dm-mod dm-crypt dm-integrity dm-verity algif_hash algif_skcipher; do\n\
             modprobe -d {modroot} $m 2>/dev/null\n\
         done\n\
         busybox mdev -s\n\
         [ -e /dev/loop-control ] || mknod /dev/loop-control c 10 237\n\
         for i in 0 1 2 3 4 5 6 7; do [ -e /dev/loop$i ] || mknod /dev/loop$i b 7 $i; done\n\
         [ -e /dev/mapper/control ] || mknod /dev/mapper/control c 10 236\n\
         cd {dir}\n\
         sh -e {dir}/script >{dir}/stdout 2>{dir}/stderr </dev/null\n\
         echo $? >{dir}/status\n\
         sync\n\
         busybox poweroff -f\n"
    )
    .expect("writing to a string");
    init
}

fn newest_folder(parent: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(parent).ok()?;
    entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()).max()
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_runs_a_script() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("disk");
        fs::write(&image, vec![0x5a; 1 << 20]).unwrap();
        let script =
            "uname -s; head -c 3 /dev/ubda; dmsetup targets | grep -c -e crypt -e verity >&2; exit 7";
        let Some(output) = Uml::new(script).disk(&image, true).run() else { return };
        assert_eq!(
            (output.status, &*output.stdout, output.stderr.trim()),
            (7, "Linux\nZZZ", "2"),
            "{output:?}"
        );
    }
}
