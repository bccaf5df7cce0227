//! Random operations on an image and, by a kernel, on a twin of it: which succeed, why others fail, and the files
//! afterwards are equal.
//!
//! Paths are drawn from few names, so that all kinds of collisions come: with files, directories, links in the way. Both
//! sides do the same list, one line each; the kernel's side is this test's own program, run where images can be mounted.

mod common;

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::fs::{self, File, OpenOptions as Open, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::FileDevice;
use casemate_ext4::{CheckOptions, NewNode, PutOptions, RecoveryFile, Time, WriteOptions, Writer, check};
use casemate_providers::Work;
use casemate_testkit::kernel::with_mounts;
use casemate_testkit::{Rng, TempDir, mke2fs, run_any, slow_tests, tempdir, tool};
use common::tree::{compare, describe_host};
use rustix::fs::{FallocateFlags, XattrFlags, fallocate, lremovexattr, lsetxattr};

/// Kinds of images that every kernel mounts: without quotas, with blocks of a page at most.
fn kinds() -> impl Iterator<Item = mke2fs::Features> {
    let in_use = |kind: &mke2fs::Features| kind.change.is_some() || kind.kernel;
    let mountable = |kind: &mke2fs::Features| {
        kind.block_size() <= 4096
            && ["quota", "mmp", "casefold"].iter().all(|word| !kind.options.contains(word))
    };
    mke2fs::all().filter(move |kind| in_use(kind) && mountable(kind))
}

const SIZE: &str = "24M";
const SIDE: &str = "CASEMATE_KERNEL_SIDE";

/// An operation, as both sides read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    MakeDirectory,
    MakeFile,
    Put,
    Symlink,
    Link,
    Rename,
    Remove,
    SetMode,
    SetOwner,
    Truncate,
    Allocate,
    SetAttribute,
    RemoveAttribute,
    SetTime,
}

/// A line of the list: the operation, two paths and a number.
#[derive(Clone, Debug)]
struct Line {
    operation: Operation,
    path: String,
    other: String,
    number: u64,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { operation, path, other, number } = self;
        let short = |path: &str| path.replace(&"n".repeat(255), "(255)");
        write!(f, "{operation:?} {} {} {number}", short(path), short(other))
    }
}

fn draw(rng: &mut Rng) -> Line {
    use Operation::*;
    const OPERATIONS: [Operation; 20] = [
        MakeDirectory,
        MakeDirectory,
        MakeFile,
        Put,
        Put,
        Put,
        Symlink,
        Link,
        Link,
        Rename,
        Rename,
        Remove,
        Remove,
        SetMode,
        SetOwner,
        Truncate,
        Allocate,
        SetAttribute,
        SetAttribute,
        RemoveAttribute,
    ];
    let operation = OPERATIONS[rng.below(20) as usize];
    let operation = if rng.below(20) == 0 { SetTime } else { operation };
    let path = path(rng);
    let other = match operation {
        // Links that lead up, down, round in circles and nowhere.
        Symlink => match rng.below(6) {
            0 => "t".repeat([59, 60, 61, 200, 900][rng.below(5) as usize]),
            1 => "../a".to_owned(),
            2 => ".".to_owned(),
            _ => self::path(rng),
        },
        SetAttribute | RemoveAttribute => {
            let space = ["user", "trusted", "security", "user"][rng.below(4) as usize];
            format!("{space}.{}", &"abcdefgh"[rng.below(6) as usize..])
        }
        _ => self::path(rng),
    };
    let number = match operation {
        MakeDirectory | MakeFile | SetMode => rng.below(0o10000),
        Put => [0, 1, 59, 60, 61, 150, 900, 1024, 5000, 20_000, 70_000][rng.below(11) as usize],
        Truncate => [0, 1, 59, 61, 5000, 4096, 100_000][rng.below(7) as usize],
        Allocate => [1, 61, 5000, 4096, 50_000][rng.below(5) as usize],
        SetOwner => [0, 7, 1000, 70_000, (1 << 32) - 2][rng.below(5) as usize],
        SetAttribute => [0, 1, 40, 200, 700][rng.below(5) as usize],
        _ => rng.below(1 << 31),
    };
    Line { operation, path, other, number }
}

fn path(rng: &mut Rng) -> String {
    let depth = 1 + rng.below(3);
    let mut path = String::new();
    for _ in 0..depth {
        path.push('/');
        match rng.below(40) {
            0 => path += &"n".repeat(255),
            1 => path += &"n".repeat(256),
            _ => path.push(char::from(b'a' + rng.below(7) as u8)),
        }
    }
    path
}

fn contents(len: u64) -> Vec<u8> {
    (0..len).map(|at| (at % 251 + len % 7) as u8 | 1).collect()
}

/// The outcome of an operation: "done", or the kind of the error.
fn said<T>(result: Result<T, Option<io::ErrorKind>>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(kind) => kind.map_or("another error".to_owned(), |kind| format!("{kind:?}")),
    }
}

/// Does a line with casemate.
fn ours(writer: &mut Writer, line: &Line, folder: &Path) -> String {
    let Line { operation, path, other, number } = line;
    let (path, other, number) = (path.as_bytes(), other.as_bytes(), *number);
    let node = |mode| NewNode::new(mode);
    let mode = number as u16 & 0o7777;
    let result = match operation {
        Operation::MakeDirectory => writer.make_directory(path, &node(mode & 0o1777), false),
        Operation::MakeFile => writer.make_file(path, &node(mode)),
        Operation::Put => {
            // What is there is no matter of this operation; replacing it is tested elsewhere.
            if writer.fs().resolve(path, false).is_ok() {
                return "AlreadyExists".to_owned();
            }
            let source = folder.join("source");
            fs::write(&source, contents(number)).unwrap();
            fs::set_permissions(&source, Permissions::from_mode(0o640)).unwrap();
            let mut options = PutOptions::default();
            options.owner = Some((0, 0));
            options.xattrs = false;
            writer.put(&source, path, &options, &Work::default()).map(drop)
        }
        Operation::Symlink => writer.make_symlink(path, other, &node(0o777)),
        Operation::Link => writer.link(path, other),
        Operation::Rename => writer.rename(path, other),
        Operation::Remove => writer.remove(path),
        Operation::SetMode => writer.set_mode(path, mode),
        Operation::SetOwner => {
            let follow = number % 2 == 0;
            writer.set_owner(path, Some(number as u32), Some(number as u32 / 3), follow)
        }
        Operation::Truncate => writer.truncate(path, number),
        Operation::Allocate => writer.allocate_file(path, number),
        Operation::SetAttribute => writer.set_xattr(path, other, Some(&contents(number)), false),
        Operation::RemoveAttribute => writer.set_xattr(path, other, None, false),
        Operation::SetTime => {
            let time = Some(Time { seconds: number as i64, nanoseconds: 0 });
            writer.set_times(path, time, time)
        }
    };
    said(result.map_err(|error| error.io_kind()))
}

/// Does a line with the kernel, below `/`.
fn theirs(line: &Line) -> String {
    let Line { operation, path, other, number } = line;
    let (path, number) = (Path::new(path), *number);
    let mode = number as u32 & 0o7777;
    let write = || Open::new().write(true).open(path);
    let result: io::Result<()> = (|| match operation {
        Operation::MakeDirectory => fs::DirBuilder::new().mode(mode & 0o1777).create(path),
        Operation::MakeFile => {
            let file = Open::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.set_permissions(Permissions::from_mode(mode))
        }
        Operation::Put => {
            let file = Open::new().write(true).create_new(true).mode(0o640).open(path)?;
            // The other side gives the owner, so that the directory's group does not count.
            std::os::unix::fs::fchown(&file, Some(0), Some(0))?;
            file.write_all_at(&contents(number), 0)
        }
        Operation::Symlink => symlink(other, path),
        Operation::Link => fs::hard_link(path, other),
        Operation::Rename => fs::rename(path, other),
        Operation::Remove => match fs::symlink_metadata(path)?.is_dir() {
            true => fs::remove_dir(path),
            false => fs::remove_file(path),
        },
        Operation::SetMode => fs::set_permissions(path, Permissions::from_mode(mode)),
        Operation::SetOwner => {
            let (uid, gid) = (Some(number as u32), Some(number as u32 / 3));
            match number % 2 {
                0 => std::os::unix::fs::chown(path, uid, gid),
                _ => std::os::unix::fs::lchown(path, uid, gid),
            }
        }
        Operation::Truncate => write()?.set_len(number),
        Operation::Allocate => {
            let file = write()?;
            match fallocate(&file, FallocateFlags::empty(), 0, number) {
                // Without extents the kernel leaves it to the C library, which writes zeros.
                Err(rustix::io::Errno::OPNOTSUPP) => {
                    let size = file.metadata()?.len();
                    if size < number { file.set_len(number) } else { Ok(()) }
                }
                result => Ok(result?),
            }
        }
        Operation::SetAttribute => {
            Ok(lsetxattr(path, other.as_str(), &contents(number), XattrFlags::empty())?)
        }
        Operation::RemoveAttribute => Ok(lremovexattr(path, other.as_str())?),
        Operation::SetTime => {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(number);
            let times = fs::FileTimes::new().set_accessed(time).set_modified(time);
            File::open(path)?.set_times(times)
        }
    })();
    said(result.map_err(|error| Some(error.kind())))
}

/// The kernel's side, in a process of its own: "LINES SAID SEED COUNT FOLDER".
#[test]
fn kernel_side() {
    let Ok(order) = std::env::var(SIDE) else { return };
    let [said, seed, count, folder] = order.split(' ').collect::<Vec<_>>()[..] else { panic!("{order}") };
    let out = File::create(said).unwrap();
    rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::chroot(folder).unwrap();
    std::env::set_current_dir("/").unwrap();
    let mut rng = Rng::new(seed.parse().unwrap());
    let count: usize = count.parse().unwrap();
    let lines: Vec<String> = (0..count).map(|_| theirs(&draw(&mut rng))).collect();
    io::Write::write_all(&mut &out, lines.join("\n").as_bytes()).unwrap();
}

/// Where the two may differ: there is no better word for the same reason, or two reasons are looked at in another order.
fn may_differ(line: &Line, ours: &str, theirs: &str) -> bool {
    match (line.operation, ours, theirs) {
        (Operation::RemoveAttribute, "NotFound", "Uncategorized")
        | (Operation::Link, "IsADirectory", "PermissionDenied")
        | (Operation::Rename, "InvalidFilename", _)
        | (_, "InvalidInput", "FilesystemLoop") => true,
        // A directory in the way that the file lies in itself, perhaps through a link.
        (Operation::Rename, "IsADirectory" | "InvalidInput", "DirectoryNotEmpty") => true,
        (Operation::Rename, "InvalidInput", _) => line.other.starts_with(&line.path),
        _ => false,
    }
}

struct Pair {
    features: &'static str,
    seed: u64,
    folder: TempDir,
    said: Vec<String>,
}

impl Pair {
    fn new(features: &'static str, seed: u64, count: usize) -> Option<Pair> {
        let program = tool("mke2fs")?;
        let folder = tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        mke2fs::make(&program, &format!("{features} -N 1200"), &at("ours"), SIZE);
        fs::copy(at("ours"), at("theirs")).unwrap();
        for name in ["a", "b"] {
            fs::create_dir(at(name)).unwrap();
        }
        let device = Arc::new(FileDevice::open_writable(at("ours")).unwrap());
        let recovery = Some(RecoveryFile::new(at("redo")));
        let options = WriteOptions { recovery, seed: Some(seed), ..WriteOptions::default() };
        let mut writer = Writer::open(device, options).unwrap();
        let mut rng = Rng::new(seed);
        let mut said = Vec::new();
        for number in 0..count {
            said.push(ours(&mut writer, &draw(&mut rng), folder.path()));
            if number % 16 == 0 {
                writer.commit().unwrap();
            }
        }
        writer.commit().unwrap();
        Some(Pair { features, seed, folder, said })
    }

    /// Mounts the twin, does the same there, and mounts the image beside it. Both stay mounted for `describe`.
    fn script(&self, count: usize) -> String {
        let myself = std::env::current_exe().unwrap();
        let (folder, seed) = (self.folder.path().display(), self.seed);
        let mut script = String::new();
        // The last steps compare what is mounted, in the same process.
        writeln!(
            script,
            "mount -t ext4 -o loop {folder}/theirs {folder}/a\n\
             {SIDE}='{folder}/said {seed} {count} {folder}/a' {0} kernel_side --exact >&2\n\
             mount -t ext4 -o loop,ro,noload {folder}/ours {folder}/b\n\
             CASEMATE_KERNEL_TREES='{folder}/a {folder}/b' {0} kernel_trees --exact >{folder}/trees 2>&1 || true\n\
             umount {folder}/a {folder}/b",
            myself.display()
        )
        .unwrap();
        script
    }

    /// Outcomes in which the two sides differ.
    fn differences(&self) -> String {
        let what = format!("{} seed {}", self.features, self.seed);
        let theirs = fs::read_to_string(self.folder.path().join("said")).unwrap();
        let mut rng = Rng::new(self.seed);
        let mut differences = String::new();
        for (number, (ours, theirs)) in self.said.iter().zip(theirs.lines()).enumerate() {
            let line = draw(&mut rng);
            if ours != theirs && !may_differ(&line, ours, theirs) {
                writeln!(differences, "{what}, {number}: {line}: {ours}, and the kernel: {theirs}").unwrap();
            }
        }
        differences
    }

    /// Fails if the files of the two sides differ afterwards, or an image is damaged.
    fn compare(&self) {
        let what = format!("{} seed {}", self.features, self.seed);
        let trees = fs::read_to_string(self.folder.path().join("trees")).unwrap();
        assert!(trees.contains("test result: ok"), "{what}: {trees}");
        let image = self.folder.path().join("ours");
        let device = Arc::new(FileDevice::open(&image).unwrap());
        let report = check(device, &CheckOptions::default(), &Work::default()).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.faults);
        if let Some(e2fsck) = tool("e2fsck") {
            let output = run_any(Command::new(e2fsck).arg("-fn").arg(image));
            assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stdout));
        }
    }
}

/// Both trees as the kernel shows them, in a process of its own.
#[test]
fn kernel_trees() {
    let Ok(order) = std::env::var("CASEMATE_KERNEL_TREES") else { return };
    let (theirs, ours) = order.split_once(' ').unwrap();
    let describe = |folder: &str| {
        let mut tree = describe_host(Path::new(folder));
        tree.remove(&b"lost+found"[..]);
        // Times are the clock's.
        tree.values_mut().for_each(|node| node.modified = 0);
        let links: BTreeMap<_, _> = tree
            .keys()
            .map(|path| {
                let path = Path::new(folder).join(std::str::from_utf8(path).unwrap());
                (path.strip_prefix(folder).unwrap().to_owned(), fs::symlink_metadata(path).unwrap().nlink())
            })
            .collect();
        (tree, links)
    };
    let ((theirs, their_links), (ours, our_links)) = (describe(theirs), describe(ours));
    compare(&ours, &theirs, "the image, and the kernel's");
    assert_eq!(our_links, their_links);
}

#[test]
fn operations_do_what_the_kernel_does() {
    let seed = std::env::var("CASEMATE_KERNEL_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let (rounds, count) = if slow_tests() { (20, 200) } else { (1, 40) };
    assert!(kinds().count() >= 25, "1000 operations, 100 000 in slow tests");
    for round in 0..rounds {
        let mut pairs = Vec::new();
        for (number, kind) in kinds().enumerate() {
            let Some(pair) = Pair::new(kind.options, seed + 1000 * round + number as u64, count) else {
                return;
            };
            pairs.push(pair);
        }
        let script: String = pairs.iter().map(|pair| pair.script(count)).collect();
        if with_mounts(&script).is_none() {
            return;
        }
        let differences: String = pairs.iter().map(Pair::differences).collect();
        assert!(differences.is_empty(), "\n{differences}");
        pairs.iter().for_each(Pair::compare);
    }
}
