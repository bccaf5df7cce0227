//! File systems: with each kind of journal, and without one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use casemate::blockdev::{BlockDevice, MemoryDevice};
use casemate::{Cpu, Crc32c, Providers, Work};
use casemate_ext4::{
    CheckOptions, EncryptedContents, EncryptedInode, EncryptedNames, Encryption, Ext4, FileType, Inode,
    NewNode, OpenOptions, RecoveryFile, StoredName, WriteOptions, Writer, check,
};
use casemate_testkit::kernel::with_mounts;
use casemate_testkit::power::{Files, State};
use casemate_testkit::{Rng, TempDir, run, run_any, slow_tests, tempdir, tool};

use crate::{Judge, Outcome, Session, scratch};

/// Tree as users see a file system: paths, and a description of each.
type Tree = BTreeMap<String, String>;

/// A file system that commands change, and the tools that know it.
struct Volume {
    e2fsck: PathBuf,
    has_journal: bool,
    mounts: bool,
    /// States that a kernel will mount, and what they may be then.
    for_kernel: Mutex<Vec<Left>>,
}

/// An image that was left somewhere, and the trees before and after.
struct Left {
    image: Vec<u8>,
    trees: Rc<[Tree; 2]>,
    what: String,
}

impl Volume {
    fn make(session: &Session, options: &str, size: &str) -> Option<Volume> {
        let (mke2fs, e2fsck) = (tool("mke2fs")?, tool("e2fsck")?);
        let image = session.path().join("image");
        run(Command::new(mke2fs)
            .args(["-q", "-F", "-N", "128", "-U", "6b5e1d5c-8f4e-4b0e-9d53-0d7c3c1f2a10"])
            .args(options.split(' '))
            .arg(image)
            .arg(size));
        let has_journal = !options.contains("ext2") && !options.contains("^has_journal");
        // Not every kernel keeps quotas.
        let mounts = has_journal && !options.contains("quota");
        Some(Volume { e2fsck, has_journal, mounts, for_kernel: Mutex::default() })
    }

    /// Judges a state once it is recovered. With `steps`, parts of the change may be there.
    fn judge<'a>(&'a self, before: &Files, after: &Files, steps: bool) -> Judge<'a> {
        let trees: Rc<[Tree; 2]> = Rc::new([before, after].map(|files| {
            let image = files["image"].clone();
            describe(&open(Arc::new(MemoryDevice::new(image))).unwrap()).unwrap()
        }));
        let place = scratch();
        Box::new(move |rng, state| self.recover(rng, state, &trees, steps, &place))
    }

    fn recover(
        &self,
        rng: &mut Rng,
        state: &State,
        trees: &Rc<[Tree; 2]>,
        steps: bool,
        place: &TempDir,
    ) -> Result<Outcome, String> {
        let image = &state.files["image"];
        let text = |error: casemate_ext4::Error| error.to_string();
        let redo = place.path().join("redo");
        match state.files.get("image.casemate-redo") {
            Some(kept) => fs::write(&redo, kept).unwrap(),
            None => drop(fs::remove_file(&redo)),
        }
        let device = Arc::new(MemoryDevice::new(image.clone()));
        // Who reads now must see what a writer makes of it.
        let shown = (rng.below(4) == 0).then(|| -> Result<Tree, String> {
            let device: Arc<dyn BlockDevice> = device.clone();
            let over = RecoveryFile::new(&redo).over(&device, &Providers::default()).map_err(text)?;
            describe(&open(over.unwrap_or(device))?)
        });
        let recovery = Some(RecoveryFile::new(&redo));
        let options =
            || WriteOptions { recovery: recovery.clone(), seed: Some(1), ..WriteOptions::default() };
        drop(Writer::open(device.clone(), options()).map_err(|error| format!("recovery: {error}"))?);
        if redo.exists() {
            return Err("the redo file is still there after the recovery".to_owned());
        }
        let tree = self.whole(&device)?;
        if let Some(shown) = shown {
            same(&shown?, &tree).map_err(|why| format!("readers saw something else: {why}"))?;
        }
        let outcome = outcome(&tree, trees, steps)?;
        if rng.below(8) == 0 {
            let mut writer = Writer::open(device.clone(), options()).map_err(text)?;
            let node = NewNode::new(0o755);
            writer.make_directory(b"/next", &node, false).map_err(text)?;
            writer.commit().map_err(text)?;
            drop(writer);
            self.whole(&device).map_err(|why| format!("after another change: {why}"))?;
        }
        if rng.below(if slow_tests() { 200 } else { 25 }) == 0 {
            let recovered = place.path().join("recovered");
            write_device(&recovered, &device);
            self.e2fsck(&recovered, "-fn", 0).map_err(|why| format!("recovered: {why}"))?;
            if self.has_journal && !is_torn(image) {
                // Somebody else may be the one who recovers.
                fs::write(&recovered, image).unwrap();
                self.e2fsck(&recovered, "-fy", 1).map_err(|why| format!("as it was left: {why}"))?;
                let device = Arc::new(MemoryDevice::new(fs::read(&recovered).unwrap()));
                outcome_of_others(&self.whole(&device)?, trees, steps, "e2fsck")?;
            }
        }
        let mut for_kernel = self.for_kernel.lock().unwrap();
        let most = if slow_tests() { 300 } else { 4 };
        if self.mounts && !steps && for_kernel.len() < most && rng.below(20) == 0 && !is_torn(image) {
            for_kernel.push(Left { image: image.clone(), trees: trees.clone(), what: state.what.clone() });
        }
        Ok(outcome)
    }

    /// Judges a state of a change that leaves the tree as it is: the superblock tells what was done of it.
    fn judge_shape<'a>(&'a self, before: &Files, after: &Files) -> Judge<'a> {
        let of = |files: &Files| {
            let device = Arc::new(MemoryDevice::new(files["image"].clone()));
            (describe(&open(device.clone()).unwrap()).unwrap(), shape(&device).unwrap())
        };
        let ((tree, before), (_, after)) = (of(before), of(after));
        let place = scratch();
        Box::new(move |_, State { files, .. }| {
            let redo = place.path().join("redo");
            match files.get("image.casemate-redo") {
                Some(kept) => fs::write(&redo, kept).unwrap(),
                None => drop(fs::remove_file(&redo)),
            }
            let device = Arc::new(MemoryDevice::new(files["image"].clone()));
            let recovery = Some(RecoveryFile::new(&redo));
            let options = WriteOptions { recovery, seed: Some(1), ..WriteOptions::default() };
            drop(Writer::open(device.clone(), options).map_err(|error| format!("recovery: {error}"))?);
            same(&self.whole(&device)?, &tree)?;
            let found = shape(&device)?;
            Ok(match found {
                found if found == after => Outcome::After,
                found if found == before => Outcome::Before,
                _ => Outcome::Between,
            })
        })
    }

    /// The tree of an image whose structures are all right.
    fn whole(&self, device: &Arc<MemoryDevice>) -> Result<Tree, String> {
        let report = check(device.clone(), &CheckOptions::default(), &Work::default());
        let report = report.map_err(|error| error.to_string())?;
        if !report.is_clean() {
            return Err(format!("{:?}", report.faults));
        }
        describe(&open(device.clone())?)
    }

    fn e2fsck(&self, image: &Path, how: &str, most: i32) -> Result<(), String> {
        let output = run_any(Command::new(&self.e2fsck).arg(how).arg(image));
        let said = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(code) if code <= most => Ok(()),
            code => Err(format!("e2fsck {how} ends with {code:?}: {said}")),
        }
    }

    /// Has a kernel mount the kept images, which replays journals and deletes orphans.
    fn end(self) {
        // Memory of this machine is none of another kernel's.
        let place = tempdir().unwrap();
        let mut script = String::new();
        let kept = std::mem::take(&mut *self.for_kernel.lock().unwrap());
        let at = place.path().join("at");
        fs::create_dir(&at).unwrap();
        for (number, Left { image, .. }) in kept.iter().enumerate() {
            let path = place.path().join(number.to_string());
            fs::write(&path, image).unwrap();
            script += &format!("mount -t ext4 -o loop {} {1}; umount {1}\n", path.display(), at.display());
        }
        if kept.is_empty() || with_mounts(&script).is_none() {
            return;
        }
        for (number, Left { trees, what, .. }) in kept.iter().enumerate() {
            let path = place.path().join(number.to_string());
            let found = self.e2fsck(&path, "-fn", 0).and_then(|()| {
                let device = Arc::new(MemoryDevice::new(fs::read(&path).unwrap()));
                outcome_of_others(&self.whole(&device)?, trees, false, "the kernel")
            });
            found.unwrap_or_else(|why| panic!("mounted by a kernel, cut {what}: {why}"));
        }
    }
}

fn open(device: Arc<dyn BlockDevice>) -> Result<Ext4, String> {
    let options = OpenOptions { encryption: Some(Arc::new(AsStored)), ..OpenOptions::default() };
    Ext4::open(device, &options).map_err(|error| error.to_string())
}

/// Encrypted names and contents are compared as they lie on the disk.
struct AsStored;

impl Encryption for AsStored {
    fn require_key(&self, _: &EncryptedInode) -> casemate_ext4::Result<()> {
        Ok(())
    }
    fn names(&self, _: &EncryptedInode) -> casemate_ext4::Result<Arc<dyn EncryptedNames>> {
        Ok(Arc::new(AsStored))
    }
    fn contents(&self, _: &EncryptedInode) -> casemate_ext4::Result<Arc<dyn EncryptedContents>> {
        Ok(Arc::new(AsStored))
    }
    fn symlink(&self, _: &EncryptedInode, stored: &[u8]) -> casemate_ext4::Result<Vec<u8>> {
        Ok(stored.to_vec())
    }
}

impl EncryptedNames for AsStored {
    fn decode(&self, name: StoredName<'_>) -> casemate_ext4::Result<Vec<u8>> {
        Ok(casemate::hex::encode(name.bytes).into_bytes())
    }
}

impl EncryptedContents for AsStored {
    fn decrypt(&self, _: u64, _: &mut [u8]) -> casemate_ext4::Result<()> {
        Ok(())
    }
}

/// UUID, label, blocks and blocks for root of a file system.
fn shape(device: &Arc<MemoryDevice>) -> Result<String, String> {
    let fs = open(device.clone())?;
    let superblock = fs.superblock();
    let (blocks, reserved) = (superblock.blocks, superblock.blocks_reserved);
    Ok(format!("{:x?} {} {blocks} {reserved}", superblock.uuid, superblock.label()))
}

/// Whether the superblock is half of one and half of another, which others call damaged.
fn is_torn(image: &[u8]) -> bool {
    let options = OpenOptions { replay_journal: false, ..OpenOptions::default() };
    let fs = Ext4::open(Arc::new(MemoryDevice::new(image.to_vec())), &options);
    !fs.is_ok_and(|fs| image[1024..2048] == fs.superblock().as_bytes()[..])
}

fn write_device(path: &Path, device: &MemoryDevice) {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).unwrap();
    fs::write(path, bytes).unwrap();
}

fn outcome(tree: &Tree, trees: &[Tree; 2], steps: bool) -> Result<Outcome, String> {
    let [before, after] = trees;
    if tree == after {
        return Ok(Outcome::After);
    }
    let Err(why) = same(tree, before) else { return Ok(Outcome::Before) };
    // Directories have other sizes and times in between.
    let is_known = |(path, facts): (&String, &String)| {
        facts.starts_with('d') || [before, after].iter().any(|tree| tree.get(path) == Some(facts))
    };
    match steps && tree.iter().all(is_known) {
        true => Ok(Outcome::Between),
        false => Err(format!("neither as before ({why}) nor as after ({:?})", same(tree, after))),
    }
}

fn outcome_of_others(tree: &Tree, trees: &[Tree; 2], steps: bool, who: &str) -> Result<(), String> {
    let mut tree = tree.clone();
    // What the kernel does to the top directory when it mounts is its own affair.
    let facts = trees.each_ref().map(|tree| tree[""].clone());
    if !facts.contains(&tree[""]) {
        tree.insert(String::new(), facts[0].clone());
    }
    outcome(&tree, trees, steps).map(drop).map_err(|why| format!("recovered by {who}: {why}"))
}

fn same(found: &Tree, expected: &Tree) -> Result<(), String> {
    for path in found.keys().chain(expected.keys()) {
        let (found, expected) = (found.get(path), expected.get(path));
        if found != expected {
            return Err(format!("/{path}: {found:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

fn describe(fs: &Ext4) -> Result<Tree, String> {
    let mut tree = Tree::new();
    let top = fs.root().map_err(|error| error.to_string())?;
    walk(fs, &top, "", &mut tree).map_err(|error| error.to_string())?;
    Ok(tree)
}

fn walk(fs: &Ext4, inode: &Inode, path: &str, tree: &mut Tree) -> casemate_ext4::Result<()> {
    let kind = inode.kind();
    let (mode, links, time) = (inode.mode() & 0o7777, inode.links(), inode.modified());
    let (uid, gid, size) = (inode.uid(), inode.gid(), inode.size());
    let mut facts = format!("{} {mode:o} {links} {uid}:{gid} {size} {time:?}", kind.letter());
    for xattr in fs.xattrs(inode)? {
        facts += &format!(" {}={:x?}", String::from_utf8_lossy(&xattr.name), xattr.value);
    }
    match kind {
        FileType::Regular => {
            let file = fs.open_file(inode)?;
            let mut contents = vec![0; file.size() as usize];
            file.read_at(&mut contents, 0)?;
            facts += &format!(" {:x}", Crc32c::new(Cpu::detect()).update(!0, &contents));
        }
        FileType::Symlink => facts += &format!(" {:?}", fs.symlink_target(inode)?),
        FileType::Directory => {
            for entry in fs.read_dir(inode)? {
                let name = entry.name.escape_ascii();
                let path = if path.is_empty() { name.to_string() } else { format!("{path}/{name}") };
                walk(fs, &fs.inode(entry.inode)?, &path, tree)?;
            }
        }
        _ => {}
    }
    tree.insert(path.to_owned(), facts);
    Ok(())
}

/// Files that are put into images.
fn sources() -> TempDir {
    let folder = scratch();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("sub/deep")).unwrap();
    let mut rng = Rng::new(5);
    for (number, len) in [0, 30, 700, 1024, 5000, 40_000, 90_000].into_iter().enumerate() {
        fs::write(tree.join(format!("f{number}")), rng.bytes(len)).unwrap();
        fs::write(tree.join(format!("sub/{}-{number}", "n".repeat(60))), rng.bytes(len / 3)).unwrap();
    }
    symlink("f1", tree.join("short")).unwrap();
    symlink("l".repeat(100), tree.join("sub/long")).unwrap();
    fs::hard_link(tree.join("f2"), tree.join("sub/deep/hard")).unwrap();
    fs::write(folder.path().join("other"), rng.bytes(20_000)).unwrap();
    let sparse = fs::File::create(folder.path().join("sparse")).unwrap();
    // Pieces that each need a block of numbers of their own: more than a small journal takes at once.
    for number in 0..700 {
        sparse.write_all_at(&[number as u8 | 1; 1024], number << 18).unwrap();
    }
    fs::write(folder.path().join("key"), rng.bytes(64)).unwrap();
    run(Command::new("tar")
        .arg("-C")
        .arg(folder.path())
        .arg("-cf")
        .arg(folder.path().join("tar"))
        .arg("tree"));
    folder
}

/// Operations of every kind, each all or nothing.
const OPERATIONS: &[&str] = &[
    "ext4 mkdir -p image /a/b",
    "ext4 put -r --seed 1 image SRC/tree /t",
    "ext4 ln image /t/f1 /a/hard",
    "ext4 mv image /t/f2 /a/b/moved",
    "ext4 mv image /t/sub /a/sub",
    "ext4 setfattr -n user.x -v value image /t/f1",
    "ext4 chmod image 4711 /t/f3",
    "ext4 chown image 7:8 /t/f3",
    "ext4 truncate image /t/f6 5001",
    "ext4 fallocate image /t/f6 120000",
    "ext4 put --seed 2 image SRC/other /t/f5",
    "ext4 put --seed 3 --tar SRC/tar image /from-tar",
    "ext4 rm -r image /t /a/sub",
];

fn all_operations(options: &str, size: &str, prepare: impl FnOnce(&Path)) {
    let mut session = Session::new(options);
    let Some(volume) = Volume::make(&session, options, size) else { return };
    prepare(&session.path().join("image"));
    let sources = sources();
    for operation in OPERATIONS {
        let line = operation.replace("SRC", sources.path().to_str().unwrap());
        let judge = |before: &Files, after: &Files| volume.judge(before, after, false);
        if !session.cut(30, &line, "ext4 recover image", judge) {
            return;
        }
    }
    volume.end();
    session.end(13 * 18);
}

#[test]
fn with_checksums_in_the_journal() {
    all_operations("-t ext4 -b 1024", "4M", |_| {});
}

#[test]
fn without_checksums() {
    all_operations("-t ext3 -b 1024", "4M", |_| {});
}

#[test]
fn with_a_journal_of_version_1_whose_commits_are_asynchronous() {
    all_operations("-t ext4 -b 1024 -O ^metadata_csum,^64bit", "4M", |image| {
        let mut bytes = fs::read(image).unwrap();
        let begin = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
        let at = (0..bytes.len()).step_by(1024).find(|at| bytes[*at..].starts_with(&begin)).unwrap();
        // journal_checksum and journal_async_commit.
        (bytes[at + 0x27], bytes[at + 0x2b]) = (1, 4);
        fs::write(image, bytes).unwrap();
    });
}

#[test]
fn with_a_journal_of_version_2() {
    all_operations("-t ext4 -b 1024 -O ^metadata_csum,^64bit", "4M", |image| {
        let debugfs = tool("debugfs").unwrap();
        let script = image.with_file_name("script");
        fs::write(&script, "jo -c -v 2\njw -b 3000 /dev/null\njc\n").unwrap();
        run(Command::new(debugfs).arg("-w").arg("-f").arg(&script).arg(image));
        fs::remove_file(script).unwrap();
    });
}

#[test]
fn with_quota_orphan_file_and_clusters() {
    all_operations("-t ext4 -b 1024 -C 4096 -O bigalloc,quota,orphan_file,ea_inode", "4M", |_| {});
}

#[test]
fn with_blocks_of_4096_bytes_and_inline_data() {
    all_operations("-t ext4 -b 4096 -O inline_data -J size=4", "12M", |_| {});
}

#[test]
fn without_a_journal() {
    all_operations("-t ext2 -b 1024", "4M", |_| {});
}

#[test]
fn without_a_journal_and_with_checksums() {
    all_operations("-t ext4 -b 4096 -O ^has_journal,quota", "4M", |_| {});
}

/// A change that no transaction has room for is done in several.
#[test]
fn changes_in_steps() {
    let mut session = Session::new("steps");
    let Some(volume) = Volume::make(&session, "-t ext3 -b 1024 -J size=1", "6M") else { return };
    let sources = sources();
    for operation in [
        "ext4 put --seed 1 image SRC/sparse /sparse",
        "ext4 truncate image /sparse 90000000",
        "ext4 put -r --seed 1 image SRC/tree /t",
        "ext4 rm -r image /sparse /t",
    ] {
        let line = operation.replace("SRC", sources.path().to_str().unwrap());
        let judge = |before: &Files, after: &Files| volume.judge(before, after, true);
        if !session.cut(25, &line, "ext4 recover image", judge) {
            return;
        }
    }
    volume.end();
    session.end(60);
}

/// Encrypted folders, and their backup on its way back.
#[test]
fn encrypted_files_and_their_backup() {
    for options in ["-t ext4 -b 4096 -O encrypt -J size=4", "-t ext4 -b 4096 -O encrypt,^has_journal"] {
        let mut session = Session::new(options);
        let Some(volume) = Volume::make(&session, options, "12M") else { return };
        let sources = sources();
        session.run("ext4 mkdir image /home");
        for operation in [
            "fscrypt set-policy --key SRC/key --seed 1 image /home",
            "ext4 put -r --fscrypt-key SRC/key --seed 2 image SRC/tree /home/t",
            "ext4 mv --fscrypt-key SRC/key image /home/t/f1 /home/f1",
            "fscrypt restore SRC/backup image /again",
        ] {
            let src = sources.path().to_str().unwrap();
            if operation.contains("restore") {
                session.run(&format!("fscrypt backup image /home {src}/backup"));
            }
            let line = operation.replace("SRC", src);
            let judge = |before: &Files, after: &Files| volume.judge(before, after, false);
            if !session.cut(30, &line, "ext4 recover image", judge) {
                return;
            }
        }
        volume.end();
        session.end(70);
    }
}

/// Another UUID, and so other checksums; other features; another size, for which files are moved one by one. Trees stay
/// as they are: a state is told by the superblock.
#[test]
fn parameters_and_sizes() {
    for options in ["-t ext4 -b 1024", "-t ext4 -b 1024 -O ^has_journal", "-t ext2 -b 1024"] {
        let mut session = Session::new(&format!("parameters {options}"));
        let Some(volume) = Volume::make(&session, options, "24M") else { return };
        let sources = sources();
        session.run("ext4 mkdir image /a");
        session.run(&format!("ext4 put -r --seed 1 image {}/tree /a/t", sources.path().display()));
        session.run(&format!("ext4 put --seed 1 image {}/other /a/o", sources.path().display()));
        for line in [
            "ext4 tune image -U 11111111-2222-4333-8444-555555555555 -L label",
            "ext4 resize image 40M",
            "ext4 minimize image",
            "ext4 tune image -L other -m 3",
        ] {
            let judge = |before: &Files, after: &Files| volume.judge_shape(before, after);
            if !session.cut(14, line, "ext4 recover image", judge) {
                return;
            }
        }
        session.end(28);
    }
}
