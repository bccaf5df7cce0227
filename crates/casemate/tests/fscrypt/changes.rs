//! Random changes inside encrypted directories, compared with a model in memory, by e2fsck and by this machine's kernel.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use casemate::blockdev::BlockDevice;
use casemate::ext4::{
    Ext4, FileType, InodeNo, NewNode, NewPolicy, PutOptions, ReadOptions, WriteOptions, Writer, set_policy,
};
use casemate::fscrypt::Mode;
use casemate::{Access, Image, Keys, Providers, SecretSource, SecretVec, Work};
use casemate_testkit::{Rng, TempDir, fixture, run, run_any, skip, slow_tests, tempdir, tool};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::manifest::{bytes, hex};

/// Options of mke2fs.
const SYSTEMS: [&str; 5] = [
    "-b 4096",
    "-b 1024",
    "-b 1024 -O ^has_journal,inline_data -I 512",
    "-b 1024 -O casefold",
    "-b 4096 -O casefold,^metadata_csum",
];

/// A directory, its modes and the padding of its names.
const POLICIES: [(&str, Mode, Mode, usize); 6] = [
    ("/xts4", Mode::Aes256Xts, Mode::Aes256Cts, 4),
    ("/xts8", Mode::Aes256Xts, Mode::Aes256Cts, 8),
    ("/xts32", Mode::Aes256Xts, Mode::Aes256Cts, 32),
    ("/cbc", Mode::Aes128Cbc, Mode::Aes128Cts, 16),
    ("/adiantum", Mode::Adiantum, Mode::Adiantum, 16),
    ("/hctr2", Mode::Aes256Xts, Mode::Aes256Hctr2, 32),
];

fn keys(key: Vec<u8>) -> Keys {
    Keys::default().with_raw(&SecretSource::memory(SecretVec::new(key))).unwrap()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Directory,
    File { contents: Vec<u8>, id: u64 },
    Symlink(Vec<u8>),
}

struct World {
    folder: TempDir,
    what: String,
    options: WriteOptions,
    model: BTreeMap<Vec<u8>, Node>,
    /// Names of one file share an id.
    next_id: u64,
    rng: Rng,
}

impl World {
    fn new(features: &str, seed: u64) -> Option<World> {
        let mke2fs = tool("mke2fs")?;
        let folder = tempdir().unwrap();
        let mut command = Command::new(mke2fs);
        command.args(["-q", "-F", "-t", "ext4", "-O", "encrypt", "-N", "2000"]).args(features.split(' '));
        run(command.arg(folder.path().join("image")).arg("48M"));
        std::fs::write(folder.path().join("key"), [0x3c; 64]).unwrap();
        let mut options = WriteOptions::default();
        options.keys = keys(vec![0x3c; 64]);
        options.seed = Some(seed);
        let mut world = World {
            folder,
            what: format!("{features}, seed {seed}"),
            options,
            model: BTreeMap::new(),
            next_id: 0,
            rng: Rng::new(seed),
        };
        let mut writer = world.writer();
        for (dir, ..) in POLICIES {
            writer.make_directory(dir.as_bytes(), &node(0o755), false).unwrap();
        }
        writer.commit().unwrap();
        drop(writer);
        if features.contains("casefold") {
            // EXT4_CASEFOLD_FL beside EXT4_EXTENTS_FL.
            let requests = POLICIES.map(|(dir, ..)| format!("sif {dir} flags 0x40080000\n"));
            let script = world.folder.path().join("script");
            std::fs::write(&script, requests.concat()).unwrap();
            run(Command::new(tool("debugfs")?).arg("-w").arg("-f").arg(script).arg(world.image()));
        }
        let mut writer = world.writer();
        for (dir, contents, names, padding) in POLICIES {
            let key = SecretVec::new(vec![0x3c; 64]);
            let mut policy = NewPolicy::default();
            (policy.contents, policy.names, policy.padding) = (contents, names, padding);
            set_policy(&mut writer, "image", dir.as_bytes(), key, &policy, &Providers::default()).unwrap();
            world.model.insert(dir.into(), Node::Directory);
        }
        writer.commit().unwrap();
        Some(world)
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn writer(&self) -> Writer {
        // Tools that other tests start hold our locks for a moment, between fork and exec.
        let open = || {
            Image::open(self.image(), Access::Change)
                .and_then(|image| image.ext4_writer(&self.options, &Work::default()))
        };
        let mut writer = open();
        for _ in 0..30_000 {
            match &writer {
                Err(error) if error.io_kind() == Some(std::io::ErrorKind::ResourceBusy) => {}
                _ => break,
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            writer = open();
        }
        writer.unwrap()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    /// A path that is there, of the kind that `f` takes, and not one of the top directories.
    fn existing(&mut self, f: impl Fn(&Node) -> bool) -> Option<Vec<u8>> {
        let deep = |path: &[u8]| path[1..].contains(&b'/');
        let all = self.model.iter().filter(|(path, node)| deep(path) && f(node));
        let all: Vec<_> = all.map(|(path, _)| path.clone()).collect();
        let at = self.below(all.len().max(1));
        all.get(at).cloned()
    }

    /// A name that is not there, in a directory that is.
    fn fresh(&mut self) -> Vec<u8> {
        let dir = match self.below(2) {
            0 => None,
            _ => self.existing(|node| *node == Node::Directory),
        };
        let dir = dir.unwrap_or_else(|| POLICIES[self.below(POLICIES.len())].0.into());
        let len = [1, 5, 15, 16, 17, 33, 120, 239, 255][self.below(9)];
        let name: Vec<u8> = (0..len).map(|_| b'a' + self.below(26) as u8).collect();
        let path = [&dir[..], b"/", &name].concat();
        if self.model.keys().any(|other| other.eq_ignore_ascii_case(&path)) { self.fresh() } else { path }
    }

    /// A name in the other case is the same one.
    fn change_case(&mut self, writer: &mut Writer) {
        let Some(path) = self.existing(|_| true) else { return };
        let (dir, name) = path.split_at(path.iter().rposition(|byte| *byte == b'/').unwrap());
        let mut other = [dir, &name.to_ascii_uppercase()].concat();
        if other == path {
            other = [dir, &name.to_ascii_lowercase()].concat();
        }
        let number = |path| writer.fs().resolve(path, false).unwrap().number();
        assert_eq!(number(&path), number(&other), "{}", self.what);
        let again = writer.make_directory(&other, &node(0o755), false);
        let refused =
            again.as_ref().is_err_and(|error| error.io_kind() == Some(std::io::ErrorKind::AlreadyExists));
        assert!(refused, "{}: {again:?}", self.what);
        self.done(writer.rename(&path, &other));
        self.moved(&path, &other);
    }

    fn moved(&mut self, from: &[u8], to: &[u8]) {
        let prefix = [from, b"/"].concat();
        let all = self.model.keys().filter(|path| **path == from || path.starts_with(&prefix));
        for path in all.cloned().collect::<Vec<_>>() {
            let node = self.model.remove(&path).unwrap();
            self.model.insert([to, &path[from.len()..]].concat(), node);
        }
    }

    fn step(&mut self, writer: &mut Writer) {
        if self.what.contains("casefold") && self.below(8) == 0 {
            return self.change_case(writer);
        }
        match self.below(10) {
            0 | 1 => {
                let path = self.fresh();
                self.done(writer.make_directory(&path, &node(0o755), false));
                self.model.insert(path, Node::Directory);
            }
            2..=4 => {
                let len = [0, 1, 15, 59, 700, 4096, 5000, 70_000][self.below(8)];
                let salt = self.below(251);
                let contents: Vec<u8> = (0..len).map(|i| (i % 251 + salt) as u8).collect();
                let source = self.folder.path().join("source");
                std::fs::write(&source, &contents).unwrap();
                let old = match self.below(4) {
                    0 => self.existing(|node| matches!(node, Node::File { .. })),
                    _ => None,
                };
                let path = old.unwrap_or_else(|| self.fresh());
                let (recursive, xattrs) = (false, false);
                let mut options = PutOptions::default();
                options.recursive = recursive;
                options.owner = Some((0, 0));
                options.xattrs = xattrs;
                self.done(writer.put(&source, &path, &options, &Work::default()));
                self.next_id += 1;
                self.model.insert(path, Node::File { contents, id: self.next_id });
            }
            5 => {
                let path = self.fresh();
                let target = vec![b't'; [1, 15, 16, 40, 59, 60, 300][self.below(7)]];
                self.done(writer.make_symlink(&path, &target, &node(0o777)));
                self.model.insert(path, Node::Symlink(target));
            }
            6 => {
                let Some(from) = self.existing(|node| !matches!(node, Node::Directory)) else { return };
                let to = self.fresh();
                if self.crosses(&from, &to, writer.link(&from, &to)) {
                    self.model.insert(to, self.model[&from].clone());
                }
            }
            7 => {
                let Some(path) = self.existing(|_| true) else { return };
                self.done(writer.remove_tree(&path));
                let prefix = [&path[..], b"/"].concat();
                self.model.retain(|other, _| *other != path && !other.starts_with(&prefix));
            }
            8 => {
                let Some(from) = self.existing(|_| true) else { return };
                let to = self.fresh();
                let prefix = [&from[..], b"/"].concat();
                if to.starts_with(&prefix) {
                    assert!(writer.rename(&from, &to).is_err());
                } else if self.crosses(&from, &to, writer.rename(&from, &to)) {
                    self.moved(&from, &to);
                }
            }
            _ => {
                let Some(path) = self.existing(|node| matches!(node, Node::File { .. })) else { return };
                let size = [0, 3, 100, 5000, 123_456][self.below(5)];
                self.done(writer.truncate(&path, size as u64));
                let Node::File { id: changed, .. } = self.model[&path] else { return };
                for node in self.model.values_mut() {
                    if let Node::File { contents, id } = node
                        && *id == changed
                    {
                        contents.resize(size, 0);
                    }
                }
            }
        }
    }

    fn done<T>(&self, result: Result<T, casemate::Error>) {
        result.unwrap_or_else(|error| panic!("{}: {error}", self.what));
    }

    /// Whether a name was given in the same top directory: nothing goes from one policy to another.
    fn crosses(&self, from: &[u8], to: &[u8], result: Result<(), casemate::Error>) -> bool {
        let top = |path: &[u8]| path[1..].split(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
        if top(from) == top(to) {
            self.done(result);
            return true;
        }
        let refused =
            result.as_ref().is_err_and(|error| error.io_kind() == Some(std::io::ErrorKind::CrossesDevices));
        assert!(refused, "{}: {result:?}", self.what);
        false
    }

    fn assert_clean(&self) {
        let Some(e2fsck) = tool("e2fsck") else { return };
        let output = run_any(Command::new(e2fsck).arg("-fn").arg(self.image()));
        assert!(output.status.success(), "{}: {}", self.what, String::from_utf8_lossy(&output.stdout));
        let image = Image::open(self.image(), Access::Read).unwrap();
        let report = image.ext4_check(&ReadOptions::default(), &Work::default()).unwrap();
        assert!(report.is_clean(), "{}: {:?}", self.what, report.faults);
    }

    /// Expected line of each path, as the kernel's reader prints it.
    fn expected(&self) -> BTreeMap<String, Option<String>> {
        let value = |node: &Node| match node {
            Node::Directory => String::new(),
            Node::File { contents, .. } => hex(&Sha256::digest(contents)),
            Node::Symlink(target) => format!("-> {}", hex(target)),
        };
        self.model.iter().map(|(path, node)| (hex(path), Some(value(node)))).collect()
    }

    /// The image holds what the model says, and nothing else.
    fn assert_same(&self) {
        let mut options = ReadOptions::default();
        options.keys = self.options.keys.clone();
        let image = Image::open(self.image(), Access::Read).unwrap();
        let fs = image.ext4(&options, &Work::default()).unwrap();
        let fs = fs.inodes();
        let mut found = BTreeMap::new();
        let mut dirs = vec![Vec::new()];
        while let Some(dir) = dirs.pop() {
            for entry in fs.read_dir(&fs.resolve(&dir, false).unwrap()).unwrap() {
                let path = [&dir[..], b"/", &entry.name].concat();
                if path == b"/lost+found" {
                    continue;
                }
                // Found by its hash, too.
                assert_eq!(fs.resolve(&path, false).unwrap().number(), entry.inode, "{}", self.what);
                let value = value(fs, entry.inode);
                if value.is_empty() {
                    dirs.push(path.clone());
                }
                found.insert(hex(&path), Some(value));
            }
        }
        assert!(found == self.expected(), "{}", self.what);
    }

    /// The kernel reads the same, but for ciphers that it lacks. False after a skip.
    fn assert_kernel(&self, python: &Path) -> bool {
        let top = self.folder.path().join("top");
        std::fs::create_dir_all(&top).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fscrypt/read.py");
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "slave"]).arg(python).arg(script);
        let output = run_any(command.arg(self.image()).arg(&top).arg(self.folder.path().join("key")));
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {}
            Some(77 | 1) if !said.contains("Traceback") => {
                skip(&format!("fscrypt mount: {}", said.trim()));
                return false;
            }
            _ => panic!("{}: {said}", self.what),
        }
        let found: BTreeMap<String, Option<String>> = serde_json::from_slice(&output.stdout).unwrap();
        let mut expected = self.expected();
        for (path, _) in found.iter().filter(|(_, value)| value.is_none()) {
            let below = format!("{path}2f");
            expected.retain(|other, _| !other.starts_with(&below));
            expected.insert(path.clone(), None);
        }
        let seen = found.values().filter(|value| value.is_some()).count();
        assert!(seen >= 3 && found == expected, "{}: {seen} seen", self.what);
        true
    }
}

fn node(mode: u16) -> NewNode {
    NewNode::new(mode)
}

/// A directory is "", a link "-> TARGET", a file the SHA-256 of its contents.
fn value(fs: &Ext4, number: InodeNo) -> String {
    let inode = fs.inode(number).unwrap();
    match inode.kind() {
        FileType::Directory => String::new(),
        FileType::Symlink => format!("-> {}", hex(&fs.symlink_target(&inode).unwrap())),
        _ => {
            let file = fs.open_file(&inode).unwrap();
            let mut bytes = vec![0; file.size() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            hex(&Sha256::digest(&bytes))
        }
    }
}

#[test]
fn random_changes_in_encrypted_directories() {
    let steps = if slow_tests() { 3000 } else { 300 };
    let Some(python) = tool("python3") else { return };
    for (number, options) in SYSTEMS.into_iter().enumerate() {
        let Some(mut world) = World::new(options, number as u64) else { return };
        let mut writer = world.writer();
        for step in 0..steps {
            world.step(&mut writer);
            if step % 150 == 149 {
                writer.commit().unwrap();
                drop(writer);
                world.assert_clean();
                world.assert_same();
                writer = world.writer();
            }
        }
        drop(writer);
        world.assert_clean();
        world.assert_same();
        // Few kernels know names without regard to case.
        if !options.contains("casefold") {
            world.assert_kernel(&python);
        }
        // What nobody can read can be removed.
        world.options.keys = Keys::default();
        let mut writer = world.writer();
        for (dir, ..) in POLICIES {
            writer.remove_tree(dir.as_bytes()).unwrap();
        }
        writer.commit().unwrap();
        drop(writer);
        world.assert_clean();
    }
}

/// A directory with a tree that a kernel ordered by keyed hashes: names are found by ours, and new ones go between.
#[test]
fn a_tree_without_regard_to_case_goes_on() {
    let Some(e2fsck) = tool("e2fsck") else { return };
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fscrypt/fixtures");
    let name = "v2-casefold-hctr2-4k";
    let manifest: Value = serde_json::from_slice(&fixture(fixtures.join(format!("{name}.json.xz")))).unwrap();
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::write(&image, fixture(fixtures.join(format!("{name}.img.xz")))).unwrap();
    let mut options = WriteOptions::default();
    options.keys = keys(bytes(manifest["keys"][0]["key_hex"].as_str().unwrap()));
    let open = || {
        let image = Image::open(&image, Access::Change).unwrap();
        image.ext4_writer(&options, &Work::default()).unwrap()
    };
    let mut writer = open();
    let dir = writer.fs().resolve(b"/cf/many", true).unwrap();
    let names = writer.fs().read_dir(&dir).unwrap();
    assert!(writer.fs().is_indexed(&dir) && names.len() > 100);
    for (number, entry) in names.iter().enumerate() {
        let upper = [b"/cf/MANY/", &entry.name.to_ascii_uppercase()[..]].concat();
        let again = writer.make_file(&upper, &node(0o644)).unwrap_err();
        assert!(again.to_string().contains("exists already"), "{again}");
        match number % 3 {
            0 => writer.remove(&upper).unwrap(),
            1 => writer.rename(&[b"/cf/many/", &entry.name[..]].concat(), &upper).unwrap(),
            _ => {}
        }
        let new = format!("/cf/many/new-{number}-{}", "n".repeat(number % 200));
        writer.make_file(new.as_bytes(), &node(0o644)).unwrap();
    }
    writer.commit().unwrap();
    drop(writer);
    let output = run_any(Command::new(&e2fsck).arg("-fn").arg(&image));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let writer = open();
    let found = writer.fs().read_dir(&writer.fs().resolve(b"/cf/many", true).unwrap()).unwrap();
    assert_eq!(found.len(), 2 * names.len() - names.len().div_ceil(3));
}
