//! Multi-mount protection: who may change the file system, and what others see meanwhile.

mod common;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use casemate_blockdev::{Events, FileDevice};
use casemate_ext4::{CheckOptions, NewNode, Result, WriteOptions, Writer, fix_checksums};
use casemate_providers::Work;
use casemate_testkit::{run, run_any, tempdir, tool};

/// Seconds of waits that were told of.
#[derive(Default)]
struct Waits(AtomicU64);

impl Events for Waits {
    fn waiting(&self, time: Duration, reason: &str) {
        assert!(reason.contains("another machine"), "{reason}");
        self.0.fetch_add(time.as_secs(), Ordering::Relaxed);
    }
}

fn open(image: &Path, waits: &Waits) -> Result<Writer> {
    let device = Arc::new(FileDevice::open_writable(image).unwrap());
    Writer::open(device, WriteOptions { events: waits, ..WriteOptions::default() })
}

/// Fields that debugfs prints of the block.
fn shown(image: &Path) -> String {
    run(Command::new(tool("debugfs").unwrap()).args(["-R", "dump_mmp"]).arg(image))
}

#[test]
fn one_machine_at_a_time() {
    let (Some(mke2fs), Some(e2fsck), Some(debugfs)) = (tool("mke2fs"), tool("e2fsck"), tool("debugfs"))
    else {
        return;
    };
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    let waits = Waits::default();
    for features in ["mmp", "mmp,^metadata_csum"] {
        let mut command = Command::new(&mke2fs);
        command.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-O", features, "-E", "mmp_update_interval=1"]);
        run(command.arg(&image).arg("8M"));
        let node = NewNode::new(0o755);
        let mut writer = open(&image, &waits).unwrap();
        assert_eq!(waits.0.load(Ordering::Relaxed), 0);
        writer.make_directory(b"/one", &node, false).unwrap();
        writer.commit().unwrap();
        let number = |text: &str| {
            let line = text.lines().find(|line| line.starts_with("sequence:")).unwrap().to_owned();
            line.split_once(':').unwrap().1.trim().to_owned()
        };
        let text = shown(&image);
        let (used, host) = (number(&text), rustix::system::uname().nodename().to_string_lossy().into_owned());
        assert!(used != "ff4d4d50" && text.contains(&host) && text.contains("casemate"), "{text}");
        if features == "mmp" {
            // A second one waits, sees that the number changes, and gives up.
            let begun = Instant::now();
            let error = open(&image, &waits).unwrap_err().to_string();
            assert!(error.contains("uses the file system, as casemate"), "{error}");
            assert!(begun.elapsed() >= Duration::from_secs(11) && waits.0.swap(0, Ordering::Relaxed) == 22);
            assert!(number(&shown(&image)) != used);
        }
        // Nor are checksums rewritten meanwhile, of which one is wrong: the root directory's.
        if features == "mmp" {
            let blocks = run(Command::new(&debugfs).args(["-R", "blocks /"]).arg(&image));
            let end = (blocks.trim().parse::<u64>().unwrap() + 1) * 1024;
            let file = std::fs::File::options().read(true).write(true).open(&image).unwrap();
            let mut sum = [0; 4];
            file.read_exact_at(&mut sum, end - 4).unwrap();
            file.write_all_at(&[0; 4], end - 4).unwrap();
            let fix = || {
                let work = Work { events: &waits, ..Work::default() };
                let device = Arc::new(FileDevice::open_writable(&image).unwrap());
                fix_checksums(device, &CheckOptions::default(), &work)
            };
            let error = fix().unwrap_err().to_string();
            assert!(error.contains("uses the file system, as casemate"), "{error}");
            waits.0.store(0, Ordering::Relaxed);
            file.write_all_at(&sum, end - 4).unwrap();
        }
        writer.make_directory(b"/two", &node, false).unwrap();
        writer.commit().unwrap();
        drop(writer);
        assert_eq!(number(&shown(&image)), "ff4d4d50");
        if features == "mmp" {
            // The block's own checksum is one of those that can be rewritten.
            let superblock = std::fs::read(&image).unwrap()[1024 + 0x168..1024 + 0x170].try_into().unwrap();
            let file = std::fs::File::options().write(true).open(&image).unwrap();
            file.write_all_at(&[1, 2, 3, 4], u64::from_le_bytes(superblock) * 1024 + 1020).unwrap();
            let device = Arc::new(FileDevice::open_writable(&image).unwrap());
            let (_, report) = fix_checksums(device, &CheckOptions::default(), &Work::default()).unwrap();
            assert!(report.is_clean(), "{:?}", report.faults);
            assert_eq!(number(&shown(&image)), "ff4d4d50");
        }
        let output = run_any(Command::new(&e2fsck).arg("-fn").arg(&image));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let list = run(Command::new(&debugfs).args(["-R", "ls /"]).arg(&image));
        assert!(list.contains("one") && list.contains("two"), "{list}");
    }
}

#[test]
fn numbers_that_stand_still_and_others() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    let waits = Waits::default();
    let mut command = Command::new(&mke2fs);
    command.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-O", "mmp,^metadata_csum"]);
    run(command.arg(&image).arg("8M"));
    let mut bytes = std::fs::read(&image).unwrap();
    // s_mmp_block, 1 KiB each.
    let block = u64::from_le_bytes(bytes[1024 + 0x168..1024 + 0x170].try_into().unwrap()) as usize * 1024;
    for (number, what) in [(0xe24d_4d50u32, "e2fsck is at work"), (0xe24d_4d51, "0xe24d4d51")] {
        bytes[block + 4..block + 8].copy_from_slice(&number.to_le_bytes());
        std::fs::write(&image, &bytes).unwrap();
        let error = open(&image, &waits).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(std::fs::read(&image).unwrap() == bytes);
    }
    bytes[block] = 0;
    std::fs::write(&image, &bytes).unwrap();
    assert!(open(&image, &waits).unwrap_err().to_string().contains("magic"));
    // Whoever died there does not count any more; this takes the time that it takes.
    bytes[block] = 0x50;
    bytes[block + 4..block + 8].copy_from_slice(&77u32.to_le_bytes());
    std::fs::write(&image, &bytes).unwrap();
    let begun = Instant::now();
    drop(open(&image, &waits).unwrap());
    assert!(begun.elapsed() >= Duration::from_secs(22));
    assert!(shown(&image).contains("ff4d4d50"));
}
