//! Changing ext4 images: what patching checksums saves, and trees of files put into images.
//!
//! `ext4_write patch` allocates extents of 64 KiB one after the other on an image in memory, with checksums computed
//! again, bitmaps flipped, and everything spliced. `ext4_write put [FOLDER]` races `mke2fs -d` with `mke2fs` and
//! `casemate ext4 put -r`, and `casemate ext4 build` from the folder and from a tar stream of it, on a tree of 60,000 files, 1 GiB; build the command first (`cargo build --release -p
//! casemate-cli` in the project's root).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use casemate_benches::{Probe, median};
use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice};
use casemate_ext4::{NewNode, Patching, WriteOptions, Writer};
use casemate_primitives::testing::Rng;

/// The image in memory; its blocks are never written, so that only metadata takes room.
const IMAGE: u64 = 2 << 30;
const EXTENT: u64 = 64 << 10;
const EXTENTS: u64 = 16_000;

const FILES: usize = 60_000;
const FILES_IN_FOLDER: usize = 400;

fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    let folder = std::env::args_os().nth(2).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("casemate-bench-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder for the images");
    let result = std::panic::catch_unwind(|| {
        if "patch".contains(&what) {
            patch(&folder);
        }
        if "put".contains(&what) {
            put(&folder);
        }
    });
    fs::remove_dir_all(&folder).expect("the folder can be removed");
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn patch(folder: &Path) {
    println!("64 KiB extents one after the other, image in memory, GB/s  [probe {}]", Probe::measure());
    println!(
        "  {:>6}  {:>10} {:>10} {:>14}  {:>6} {:>12}",
        "block", "recompute", "flip", "flip and splice", "flip", "and splice"
    );
    for shift in 10..=16 {
        let block = 1u64 << shift;
        let device = image_in_memory(folder, block);
        let ways = [Patching::Recompute, Patching::Flip, Patching::Splice];
        let mut times = vec![Vec::new(); ways.len()];
        for _ in 0..9 {
            for (way, times) in ways.iter().zip(&mut times) {
                times.push(allocate(&device, *way));
            }
        }
        let ratio =
            |way: usize| median(times[0].iter().zip(&times[way]).map(|(base, own)| base / own).collect());
        let speed = |way: usize| (EXTENT * EXTENTS) as f64 / median(times[way].clone()) / 1e9;
        println!(
            "  {block:>6}  {:>10.2} {:>10.2} {:>14.2}  x{:>5.2} x{:>11.2}",
            speed(0),
            speed(1),
            speed(2),
            ratio(1),
            ratio(2)
        );
    }
}

/// Allocates all extents, for two files in turn so that each stays an extent of its own; the seconds it took.
fn allocate(device: &Arc<dyn BlockDevice>, patching: Patching) -> f64 {
    let options = WriteOptions { patching, ..WriteOptions::default() };
    let mut writer = Writer::open(device.clone(), options).expect("a sound image");
    let numbers = [&b"/a"[..], b"/b"].map(|path| {
        writer.make_file(path, &NewNode::new(0o644)).expect("room for a file");
        writer.fs().resolve(path, true).expect("the file").number()
    });
    let start = Instant::now();
    for extent in 0..EXTENTS {
        let at = extent / 2 * EXTENT;
        writer
            .allocate_range(numbers[(extent % 2) as usize], at, at + EXTENT, false)
            .expect("room for an extent");
    }
    // Nothing is committed: the next one begins with the same image.
    start.elapsed().as_secs_f64()
}

fn image_in_memory(folder: &Path, block: u64) -> Arc<dyn BlockDevice> {
    let path = folder.join("image");
    let _ = fs::remove_file(&path);
    let mut command = Command::new("mke2fs");
    command
        .args(["-q", "-F", "-t", "ext4", "-b", &block.to_string()])
        .arg(&path)
        .arg(format!("{}K", IMAGE >> 10));
    assert!(command.status().expect("mke2fs").success());
    let file = FileDevice::open(&path).expect("the image");
    let mut bytes = vec![0; IMAGE as usize];
    let mut at = 0;
    while let Some(data) = file.next_data(at).expect("holes") {
        file.read_at(&mut bytes[data.start as usize..data.end as usize], data.start).expect("the image");
        at = data.end;
    }
    Arc::new(MemoryDevice::new(bytes))
}

fn put(folder: &Path) {
    let casemate = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the project's root")
        .join("target/release/casemate");
    let tree = folder.join("tree");
    let mut rng = Rng::new(3);
    let mut total = 0;
    for number in 0..FILES {
        let below = tree.join(format!("{:03}", number / FILES_IN_FOLDER));
        if number % FILES_IN_FOLDER == 0 {
            fs::create_dir_all(&below).expect("room for the tree");
        }
        // Many small files and few large ones, up to 160 KiB; 1 GiB together.
        let limit = 1 << (9 + rng.below(9));
        let len = (1 + rng.below(limit)) as usize * 124 / 100;
        total += len;
        fs::write(below.join(format!("file-{number}")), rng.bytes(len)).expect("room for the tree");
    }
    let mke2fs = |image: &Path, tree: Option<&Path>| {
        let _ = fs::remove_file(image);
        let mut command = Command::new("mke2fs");
        command.args(["-q", "-F", "-t", "ext4"]);
        if let Some(tree) = tree {
            command.arg("-d").arg(tree);
        }
        let start = Instant::now();
        assert!(command.arg(image).arg("2G").status().expect("mke2fs").success());
        start.elapsed().as_secs_f64()
    };
    let image = folder.join("image");
    let ours = |threads: &[&str]| {
        let made = mke2fs(&image, None);
        let start = Instant::now();
        let mut command = Command::new(&casemate);
        command.args(["ext4", "put", "-r", "--no-progress"]).args(threads);
        assert!(command.arg(&image).arg(tree.join(".")).arg("/").status().expect("casemate").success());
        made + start.elapsed().as_secs_f64()
    };
    let tar = folder.join("tree.tar");
    assert!(
        Command::new("tar")
            .arg("-cf")
            .arg(&tar)
            .arg("-C")
            .args([&tree, Path::new(".")])
            .status()
            .expect("tar")
            .success()
    );
    let build = |source: [&std::ffi::OsStr; 2], threads: &[&str]| {
        let _ = fs::remove_file(&image);
        let start = Instant::now();
        let mut command = Command::new(&casemate);
        command.args(["ext4", "build", "--no-progress", "--size", "2G"]).args(threads).args(source);
        assert!(command.arg(&image).status().expect("casemate").success());
        start.elapsed().as_secs_f64()
    };
    let (from, from_tar) = (["--from".as_ref(), tree.as_os_str()], ["--tar".as_ref(), tar.as_os_str()]);
    let check = || {
        let clean = Command::new("e2fsck").arg("-fn").arg(&image).output().expect("e2fsck");
        assert!(clean.status.success(), "{}", String::from_utf8_lossy(&clean.stdout));
        same_files(&casemate, &tree, &image);
    };
    ours(&[]);
    check();
    for source in [from, from_tar] {
        build(source, &[]);
        check();
    }
    let mut times = vec![Vec::new(); 6];
    for _ in 0..3 {
        times[0].push(mke2fs(&image, Some(&tree)));
        times[1].push(ours(&[]));
        times[2].push(ours(&["--threads", "1"]));
        times[3].push(build(from, &[]));
        times[4].push(build(from, &["--threads", "1"]));
        times[5].push(build(from_tar, &[]));
    }
    println!(
        "{FILES} files, {total} bytes, into an image of 2 GiB in {}  [probe {}]",
        folder.display(),
        Probe::measure()
    );
    let names = [
        "mke2fs -d",
        "mke2fs and casemate ext4 put -r",
        "the same with one thread",
        "casemate ext4 build --from",
        "the same with one thread",
        "casemate ext4 build --tar",
    ];
    for (name, own) in names.iter().zip(&times) {
        let ratio = median(times[0].iter().zip(own).map(|(theirs, own)| theirs / own).collect());
        println!("  {name:<32} {:>7.2} s  x{ratio:.2}  {own:.2?}", median(own.clone()));
    }
}

/// The image holds the files of the tree, byte for byte.
fn same_files(casemate: &Path, tree: &Path, image: &Path) {
    let copy = image.with_file_name("copy");
    let mut command = Command::new(casemate);
    command.args(["ext4", "extract", "--no-progress"]).arg(image).arg(&copy);
    assert!(command.status().expect("casemate").success());
    for number in 0..FILES {
        let name = format!("{:03}/file-{number}", number / FILES_IN_FOLDER);
        let (expected, found) = (fs::read(tree.join(&name)), fs::read(copy.join(&name)));
        assert!(expected.expect("the tree") == found.expect("the copy"), "{name}");
    }
    fs::remove_dir_all(&copy).expect("the copy can be removed");
}
