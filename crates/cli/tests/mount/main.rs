//! Images as folders: what the kernel is told of them, beside what it says of the same images itself; damage; and how folders
//! are given back.

mod beside_kernel;
mod commits;
mod damaged;
mod encrypted;
mod ends;
mod flags;
mod keys;
mod load;
mod rights;
mod users;
mod writing;

use std::ops::Deref;
use std::path::Path;
use std::process::Command;

use casemate_testkit::{Place, fixture, kernel, mke2fs, run, run_any, tool, wait_until};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// A folder of one test. What is mounted in it is given back at the end, however that comes.
pub struct Folders(Place);

impl Folders {
    /// An empty folder, where FUSE works.
    pub fn new() -> Option<Folders> {
        kernel::own_mounts();
        kernel::fuse_works().then(|| Folders(Place::new(CASEMATE)))
    }

    /// Folders with an image `root.img` of mke2fs, with `/file`, `/sub` and three files in that.
    pub fn with_image() -> Option<Folders> {
        Folders::with_image_of("-t ext4")
    }

    /// Folders with an image of mke2fs that is made with the options `kind`.
    pub fn with_image_of(kind: &str) -> Option<Folders> {
        let folders = Folders::new()?;
        let mke2fs = tool("mke2fs")?;
        folders
            .sh("mkdir -p tree/sub; echo hello > tree/file; for i in 1 2 3; do echo $i > tree/sub/f$i; done");
        let options = format!("{kind} -d {}", folders.path("tree").display());
        mke2fs::make(&mke2fs, &options, &folders.path("root.img"), "8M");
        Some(folders)
    }

    /// Mounts with a command line, whose folders are made before.
    #[track_caller]
    pub fn mount(&self, line: &str, folder: &str) {
        std::fs::create_dir_all(self.path(folder)).unwrap();
        assert_eq!(self.yes(&format!("mount {line} {folder}")), "");
    }

    /// Unmounts a folder. Processes that other tests are starting have this one's files open for a moment.
    #[track_caller]
    pub fn unmount(&self, folder: &str) {
        wait_until(|| {
            let output = self.own(&format!("umount {folder}"));
            let is_done = output.status.success();
            assert!(is_done || String::from_utf8_lossy(&output.stderr).contains("is in use"), "{output:?}");
            is_done
        });
    }

    /// Whether anything is mounted on a folder.
    pub fn is_mounted(&self, folder: &str) -> bool {
        let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let path = self.folder().canonicalize().unwrap().join(folder);
        list.lines().any(|line| line.split(' ').nth(4) == path.to_str())
    }

    /// The process that serves a folder.
    pub fn process(&self, folder: &str) -> String {
        let python = tool("python3").unwrap();
        let code = format!("import os; print(os.getxattr('{folder}', 'casemate.pid').decode())");
        run(Command::new(python).args(["-c", &code]).current_dir(self.folder())).trim().to_owned()
    }
}

impl Deref for Folders {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        for name in self.names().iter().filter(|name| self.is_mounted(name)) {
            run_any(self.command().args(["umount", "--lazy", name]));
        }
    }
}

/// Lines of list.py: the results of system calls on a tree.
pub fn listed(top: &Path) -> String {
    let python = tool("python3").unwrap();
    run(Command::new(python).arg(list()).arg(top))
}

/// The program that lists a tree.
pub fn list() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/list.py").to_owned()
}

/// The images that kernels made, by their names: of a folder of fixtures, unpacked.
pub fn images(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let names =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".img.xz")).collect();
    names.sort();
    names.into_iter().map(|name| (name.replace(".img.xz", ""), fixture(folder.join(&name)))).collect()
}

/// Fails at the first line that differs.
#[track_caller]
pub fn assert_same_lines(found: &str, expected: &str, what: &str) {
    for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "{what}, line {number}");
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{what}");
}
