//! Journals that debugfs wrote, whole and damaged: what is replayed, and what is refused, as e2fsck and the kernel do.

mod common;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice};
use casemate_ext4::csum::{Context, Subject, recipe};
use casemate_ext4::{CheckOptions, Ext4, NewNode, OpenOptions, WriteOptions, Writer, check};
use casemate_providers::Work;
use casemate_testkit::{TempDir, run, run_any, tempdir, tool};

const BLOCK: usize = 1024;

/// The block that transaction 1 writes; the others write those behind it.
const FIRST: u64 = 9000;

/// Where the log has descriptor, copy and commit of each of three transactions.
const LOG: [[usize; 3]; 3] = [[1, 2, 3], [4, 5, 6], [7, 8, 9]];

/// Fields of the journal's superblock.
const COMPAT: u64 = 0x24;
const INCOMPAT: u64 = 0x28;
const CHECKSUM_V1: u32 = 1;
const ASYNC_COMMIT: u32 = 4;

/// Checksums of a journal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sums {
    None,
    /// Announced, and in no commit block.
    Unused,
    V1,
    V1Async,
    V3,
    V3Async,
}

/// Changes of a sound log.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Nothing,
    /// A bit of the descriptor, where it says nothing.
    Descriptor(usize),
    Copy(usize),
    /// A bit of the checksum in the commit block.
    Commit(usize),
    /// The second half of the commit block, which was never written.
    Torn(usize),
    /// No commit block.
    Gone(usize),
}

/// Expected outcome: the number of transactions that are replayed, and whether more was committed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Whole(usize),
    Cut(usize),
    /// Nothing is read without e2fsck: a copy that was committed is none.
    Refused,
}

struct Tools {
    mke2fs: PathBuf,
    e2fsck: PathBuf,
    debugfs: PathBuf,
    folder: TempDir,
}

impl Tools {
    fn new() -> Option<Tools> {
        let (mke2fs, e2fsck, debugfs) = (tool("mke2fs")?, tool("e2fsck")?, tool("debugfs")?);
        Some(Tools { mke2fs, e2fsck, debugfs, folder: tempdir().unwrap() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An image whose journal holds three transactions of a block each, and where the journal's blocks lie.
    fn make(&self, sums: Sums) -> Journal {
        let path = self.path("image");
        let has_v3 = matches!(sums, Sums::V3 | Sums::V3Async);
        let features = if has_v3 { "metadata_csum,64bit" } else { "^metadata_csum,64bit" };
        let _ = std::fs::remove_file(&path);
        let mut command = Command::new(&self.mke2fs);
        command.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", features]).arg(&path);
        run(command.arg("16M"));
        let mut script = String::new();
        for number in 0..3 {
            let contents = self.path(&format!("contents{number}"));
            std::fs::write(&contents, [contents_of(number); BLOCK]).unwrap();
            let (open, block) = (if has_v3 { "jo -c" } else { "jo" }, FIRST + u64::from(number));
            script += &format!("{open}\njw -b {block} {}\njc\n", contents.display());
        }
        let mut command = Command::new(&self.debugfs);
        command.args(["-w", "-f", "-"]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        let list = run(Command::new(&self.debugfs).args(["-R", "blocks <8>"]).arg(&path));
        let blocks = list.split_whitespace().map(|block| block.parse().unwrap()).collect();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let journal = Journal { path, file, blocks, sums };
        journal.finish();
        journal
    }
}

fn contents_of(number: u8) -> u8 {
    b'A' + number
}

struct Journal {
    path: PathBuf,
    file: File,
    blocks: Vec<u64>,
    sums: Sums,
}

impl Journal {
    /// Gives it the features and checksums that debugfs doesn't write.
    fn finish(&self) {
        if matches!(self.sums, Sums::Unused | Sums::V1 | Sums::V1Async) {
            self.set_feature(COMPAT, CHECKSUM_V1);
        }
        if matches!(self.sums, Sums::V1Async | Sums::V3Async) {
            self.set_feature(INCOMPAT, ASYNC_COMMIT);
        }
        if matches!(self.sums, Sums::V1 | Sums::V1Async) {
            for [descriptor, copy, commit] in LOG {
                let sum = crc32(&[self.read(descriptor), self.read(copy)].concat());
                let mut block = self.read(commit);
                block[12..14].copy_from_slice(&[1, 4]);
                block[16..20].copy_from_slice(&sum.to_be_bytes());
                self.write(commit, &block);
            }
        }
        if self.sums == Sums::V3Async {
            let plain = OpenOptions { replay_journal: false, ..OpenOptions::default() };
            let fs = Ext4::open(Arc::new(FileDevice::open(&self.path).unwrap()), &plain).unwrap();
            let mut raw = self.read(0);
            let uuid = raw[0x30..0x40].try_into().unwrap();
            let sums = fs.checksums().with_journal(&uuid);
            sums.store(recipe(Subject::JournalSuperblock), &Context::default(), &mut raw);
            self.write(0, &raw);
        }
    }

    fn set_feature(&self, field: u64, flag: u32) {
        let at = self.blocks[0] * BLOCK as u64 + field;
        let mut value = [0; 4];
        self.file.read_exact_at(&mut value, at).unwrap();
        let value = u32::from_be_bytes(value) | flag;
        self.file.write_all_at(&value.to_be_bytes(), at).unwrap();
    }

    fn features(&self) -> (u32, u32) {
        let raw = self.read(0);
        let field = |at: u64| u32::from_be_bytes(raw[at as usize..at as usize + 4].try_into().unwrap());
        (field(COMPAT), field(INCOMPAT))
    }

    fn read(&self, block: usize) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        self.file.read_exact_at(&mut bytes, self.blocks[block] * BLOCK as u64).unwrap();
        bytes
    }

    fn write(&self, block: usize, bytes: &[u8]) {
        self.file.write_all_at(bytes, self.blocks[block] * BLOCK as u64).unwrap();
    }

    fn damage(&self, damage: Damage) {
        let (block, f): (usize, fn(&mut [u8])) = match damage {
            Damage::Nothing => return,
            Damage::Descriptor(number) => (LOG[number - 1][0], |bytes| bytes[200] ^= 1),
            Damage::Copy(number) => (LOG[number - 1][1], |bytes| bytes.fill(0xee)),
            Damage::Commit(number) => (LOG[number - 1][2], |bytes| bytes[16] ^= 1),
            Damage::Torn(number) => (LOG[number - 1][2], |bytes| bytes[512..].fill(0xdd)),
            Damage::Gone(number) => (LOG[number - 1][2], |bytes| bytes.fill(0)),
        };
        let mut bytes = self.read(block);
        f(&mut bytes);
        self.write(block, &bytes);
    }

    fn writer(&self) -> casemate_ext4::Result<Writer> {
        Writer::open(
            Arc::new(FileDevice::open_writable(&self.path).unwrap()),
            WriteOptions { seed: Some(7), ..WriteOptions::default() },
        )
    }

    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.path.with_file_name(name);
        std::fs::copy(&self.path, &copy).unwrap();
        copy
    }
}

/// Each bit by itself: the kernel's `crc32_be` from all ones.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0;
    for byte in bytes {
        crc ^= u32::from(*byte) << 24;
        for _ in 0..8 {
            crc = crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 };
        }
    }
    crc
}

/// First bytes of the three blocks.
fn replayed(device: &dyn BlockDevice) -> Vec<u8> {
    (0..3).map(|number| byte_at(device, (FIRST + number) * BLOCK as u64)).collect()
}

fn byte_at(device: &dyn BlockDevice, at: u64) -> u8 {
    let mut byte = [0];
    device.read_at(&mut byte, at).unwrap();
    byte[0]
}

#[test]
fn damaged_journals_end_where_the_kernel_ends_them() {
    use Damage::{Commit, Copy, Descriptor, Gone, Nothing, Torn};
    use Outcome::{Cut, Refused, Whole};
    // Kernel 6.18 mounts what is whole here, and nothing else but what e2fsck is asked about below.
    let cases = [
        (Sums::None, Nothing, Whole(3)),
        (Sums::None, Copy(2), Whole(3)),
        (Sums::None, Gone(3), Whole(2)),
        (Sums::Unused, Nothing, Whole(3)),
        (Sums::Unused, Copy(3), Whole(3)),
        (Sums::Unused, Commit(2), Cut(1)),
        (Sums::V1, Nothing, Whole(3)),
        (Sums::V1, Descriptor(2), Cut(1)),
        (Sums::V1, Copy(1), Cut(0)),
        (Sums::V1, Copy(2), Cut(1)),
        (Sums::V1, Copy(3), Cut(2)),
        (Sums::V1, Commit(2), Cut(1)),
        (Sums::V1, Gone(3), Whole(2)),
        (Sums::V1Async, Nothing, Whole(3)),
        (Sums::V1Async, Descriptor(3), Whole(2)),
        (Sums::V1Async, Copy(2), Cut(1)),
        (Sums::V1Async, Copy(3), Whole(2)),
        (Sums::V1Async, Commit(3), Whole(2)),
        (Sums::V1Async, Gone(2), Whole(1)),
        (Sums::V3, Nothing, Whole(3)),
        (Sums::V3, Descriptor(2), Cut(1)),
        (Sums::V3, Copy(2), Refused),
        (Sums::V3, Commit(1), Cut(0)),
        (Sums::V3, Commit(2), Cut(1)),
        (Sums::V3, Commit(3), Cut(2)),
        (Sums::V3, Torn(2), Whole(3)),
        (Sums::V3, Gone(3), Whole(2)),
        (Sums::V3Async, Nothing, Whole(3)),
        (Sums::V3Async, Commit(2), Cut(1)),
        (Sums::V3Async, Commit(3), Whole(2)),
    ];
    let Some(tools) = Tools::new() else { return };
    for (sums, damage, outcome) in cases {
        let what = format!("{sums:?} {damage:?}");
        let journal = tools.make(sums);
        journal.damage(damage);
        compare_with_e2fsck(&tools, &journal, damage, outcome, &what);
        let before = std::fs::read(&journal.path).unwrap();
        let expected = |count: usize| -> Vec<u8> {
            (0..3).map(|number| if usize::from(number) < count { contents_of(number) } else { 0 }).collect()
        };
        let opened = Ext4::open(Arc::new(FileDevice::open(&journal.path).unwrap()), &OpenOptions::default());
        match (outcome, opened) {
            (Whole(count) | Cut(count), Ok(fs)) => {
                let recovery = fs.recovery();
                assert_eq!(recovery.transactions as usize, count, "{what}");
                assert_eq!(recovery.cut.is_some(), outcome == Cut(count), "{what}: {recovery:?}");
                let is_covered = !matches!(damage, Copy(_)) || !matches!(sums, Sums::None | Sums::Unused);
                if is_covered {
                    assert_eq!(replayed(&**fs.device()), expected(count), "{what}");
                }
                if let Some(text) = recovery.cut_text() {
                    assert!(text.contains(&format!("transaction {} of", count + 1)), "{what}: {text}");
                }
            }
            (Refused, Err(error)) => assert!(error.to_string().contains("e2fsck"), "{what}: {error}"),
            (_, other) => panic!("{what}: {other:?}"),
        }
        match (outcome, journal.writer()) {
            (Whole(_), Ok(_)) => {}
            (Cut(_) | Refused, Err(error)) => {
                assert!(error.to_string().contains("e2fsck"), "{what}: {error}");
                assert!(std::fs::read(&journal.path).unwrap() == before, "{what}: changed although refused");
            }
            (_, other) => panic!("{what}: {:?}", other.map(|_| ())),
        }
    }
}

/// Fails if e2fsck replays other transactions, or throws some away where this crate sees no cut.
fn compare_with_e2fsck(tools: &Tools, journal: &Journal, damage: Damage, outcome: Outcome, what: &str) {
    // It throws away, without a word, what an interrupted commit of a newer transaction proves to be damaged.
    let silent = journal.sums == Sums::V3Async && outcome == Outcome::Cut(1);
    // Newer kernels take a commit block for whole that e2fsck 1.47 does not.
    if silent || matches!(damage, Damage::Torn(_)) {
        return;
    }
    let copy = journal.copy("repaired");
    let output = run_any(Command::new(&tools.e2fsck).arg("-fy").arg(&copy));
    let text = String::from_utf8_lossy(&output.stdout);
    let aborted =
        text.contains("was corrupt, replay was aborted") || text.contains("checksum error found in");
    assert_eq!(aborted, !matches!(outcome, Outcome::Whole(_)), "{what}: {text}");
    let Ok(fs) = Ext4::open(Arc::new(FileDevice::open(&journal.path).unwrap()), &OpenOptions::default())
    else {
        return;
    };
    // Of a damaged descriptor it replays not even what came before.
    if !(matches!(damage, Damage::Descriptor(_)) && journal.sums == Sums::V3) {
        let repaired = FileDevice::open(&copy).unwrap();
        assert_eq!(replayed(&**fs.device()), replayed(&repaired), "{what}");
    }
}

#[test]
fn old_checksums_make_room_for_new_ones() {
    let Some(tools) = Tools::new() else { return };
    let Some(tune2fs) = tool("tune2fs") else { return };
    let journal = tools.make(Sums::V1Async);
    run_any(Command::new(&tools.e2fsck).arg("-fy").arg(&journal.path));
    run(Command::new(tune2fs).args(["-O", "metadata_csum"]).arg(&journal.path));
    assert_eq!(
        journal.features(),
        (CHECKSUM_V1, 0x2 | ASYNC_COMMIT),
        "the journal isn't what a kernel leaves"
    );
    let mut writer = journal.writer().unwrap();
    writer.make_directory(b"/folder", &NewNode::default(), false).unwrap();
    writer.commit().unwrap();
    drop(writer);
    assert_eq!(journal.features(), (0, 0x12));
    let device = Arc::new(FileDevice::open(&journal.path).unwrap());
    let report = check(device, &CheckOptions::default(), &Work::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
    let output = run_any(Command::new(&tools.e2fsck).arg("-fn").arg(&journal.path));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    if let Some(shown) = common::kernel::on_mounted(&journal.path, "rw", "ls -d folder") {
        assert_eq!(shown.trim(), "folder");
    }
}
