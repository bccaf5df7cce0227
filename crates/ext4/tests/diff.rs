//! Two file systems compared: whatever they hold, each byte that differs is counted in a line once, and no damage makes the
//! comparison panic.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, Error, MemoryDevice, Result};
use casemate_ext4::{
    Area, DiffOptions, DiffReport, DiffSide, Difference, Ext4, OpenOptions, diff, diff_size,
};
use casemate_providers::Work;
use casemate_testkit::{Rng, fixture, slow_tests, tempdir, tool};
use common::collection::{self, Maker};
use common::mutation::Image;

/// Images made here, for what the fixtures lack.
const MADE: [(&str, &str); 5] = [
    ("ext2", "-t ext2 -b 1024"),
    ("plain", "-t ext4 -b 1024 -O ^metadata_csum,^64bit,^has_journal"),
    ("meta-bg", "-t ext4 -b 1024 -g 1024 -O ^resize_inode,meta_bg,orphan_file"),
    ("large-inodes", "-t ext4 -b 4096 -I 4096 -O inline_data,^has_journal"),
    ("quota", "-t ext4 -b 2048 -O quota,project,bigalloc -C 8192"),
];

fn side(bytes: &[u8], verify_checksums: bool) -> Option<DiffSide> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(bytes.to_vec()));
    let options = OpenOptions { verify_checksums, cut_short: true, ..OpenOptions::default() };
    let fs = Ext4::open(Arc::clone(&device), &options).ok()?;
    Some(DiffSide::new(fs, device))
}

/// Bytes of an image that its file system has.
fn of_file_system<'a>(side: &DiffSide, bytes: &'a [u8]) -> &'a [u8] {
    let layout = side.fs.layout();
    let end = layout.blocks.saturating_mul(layout.block_size.into());
    &bytes[..bytes.len().min(end.try_into().unwrap_or(usize::MAX))]
}

/// Whether the device ends before the file system.
fn is_cut(side: &DiffSide) -> bool {
    let layout = side.fs.layout();
    side.device.size() < layout.blocks * u64::from(layout.block_size)
}

/// Compares two images, and checks the lines against a plain loop. `None` if one can't be opened.
fn compared(a: &[u8], b: &[u8], verify: bool, what: &str) -> Option<(DiffReport, Vec<Difference>)> {
    let (side_a, side_b) = (side(a, verify)?, side(b, verify)?);
    let mut lines = Vec::new();
    let mut told = 0;
    let report = diff([&side_a, &side_b], DiffOptions::new(), &Work::default(), &mut |line| {
        told += 1;
        lines.push(copy(line));
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{what}: {error}"));
    let (a, b) = (of_file_system(&side_a, a), of_file_system(&side_b, b));
    let common = a.iter().zip(b).filter(|(a, b)| a != b).count();
    let expected = (common + a.len().abs_diff(b.len())) as u64;
    let counted: u64 = lines
        .iter()
        .filter_map(|line| match line {
            Difference::Bytes { bytes, .. } => Some(*bytes),
            _ => None,
        })
        .sum();
    assert_eq!((counted, report.bytes), (expected, expected), "{what}: {lines:?}");
    // What is cut off can't be read.
    let is_cut = [&side_a, &side_b].into_iter().any(is_cut);
    assert_eq!(report.is_equal, expected == 0 && !is_cut, "{what}");
    assert_eq!(told, report.differences + report.unread.min(told), "{what}");
    assert_eq!(diff_size([&side_a, &side_b]), a.len().min(b.len()) as u64);
    // A structure that differs has a line that says what.
    let areas: BTreeSet<Area> = lines
        .iter()
        .filter_map(|line| match line {
            Difference::Bytes { area, .. } => Some(*area),
            _ => None,
        })
        .collect();
    let has = |kinds: &[&str]| lines.iter().any(|line| kinds.contains(&line.kind()));
    // With a journal replayed, bytes that differ may show the same structure.
    let is_replayed = [&side_a, &side_b].iter().any(|side| side.fs.recovery().transactions > 0);
    if is_replayed {
        return Some((report, lines));
    }
    if areas.contains(&Area::Superblock) {
        assert!(has(&["superblock"]), "{what}: {lines:?}");
    }
    if areas.contains(&Area::Inodes) {
        assert!(has(&["file", "xattr", "storage", "only", "unread"]), "{what}: {lines:?}");
    }
    Some((report, lines))
}

/// A line without the values that can't be copied.
fn copy(line: &Difference) -> Difference {
    match line {
        Difference::Superblock { field, values } => Difference::Superblock { field, values: values.clone() },
        Difference::Only { side, path, kind, below } => {
            Difference::Only { side: *side, path: path.clone(), kind: *kind, below: *below }
        }
        Difference::File { path, field, values } => {
            Difference::File { path: path.clone(), field, values: values.clone() }
        }
        Difference::Xattr { path, name, values } => {
            Difference::Xattr { path: path.clone(), name: name.clone(), values: values.clone() }
        }
        Difference::Contents { path, first, blocks } => {
            Difference::Contents { path: path.clone(), first: *first, blocks: *blocks }
        }
        Difference::Group { group, field, values } => {
            Difference::Group { group: *group, field, values: *values }
        }
        Difference::Storage { path, field, values } => {
            Difference::Storage { path: path.clone(), field, values: values.clone() }
        }
        Difference::Unread { side, path, error } => {
            Difference::Unread { side: *side, path: path.clone(), error: error.again() }
        }
        Difference::Bytes { area, blocks, bytes, first } => {
            Difference::Bytes { area: *area, blocks: *blocks, bytes: *bytes, first: *first }
        }
        other => panic!("{other:?}"),
    }
}

fn images() -> Vec<(String, Vec<u8>)> {
    let folder = tempdir().unwrap();
    let mut paths = collection::fixtures(false);
    if let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) {
        let maker = Maker::new(mke2fs, debugfs, folder.path());
        paths.extend(MADE.map(|(name, options)| maker.make(options, name)));
    }
    let load = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_packed = name.ends_with(".xz");
        (name, if is_packed { fixture(path) } else { std::fs::read(path).unwrap() })
    };
    paths.iter().map(load).collect()
}

#[test]
fn equal_images_have_no_line() {
    for (name, image) in images() {
        let (report, lines) = compared(&image, &image, true, &name).unwrap();
        assert!(report.is_equal && lines.is_empty() && report.advice.is_empty(), "{name}: {lines:?}");
    }
}

#[test]
fn each_byte_that_differs_has_a_line() {
    let cases = if slow_tests() { 600 } else { 10 };
    for (name, bytes) in images() {
        let image = Image::new(bytes);
        for case in 0..cases {
            let mut rng = Rng::new(case);
            // Metadata that is wrong, with and without right checksums.
            let mut changed = image.bytes.clone();
            let mutation = image.mutation_with(&mut rng, |rng| rng.below(3) > 0);
            for (at, part) in &mutation.writes {
                changed[*at..at + part.len()].copy_from_slice(part);
            }
            let what = format!("{name} {case}: {:?}", mutation.what);
            for verify in [true, false] {
                compared(&image.bytes, &changed, verify, &what);
                compared(&changed, &image.bytes, verify, &what);
            }
            // Bytes anywhere.
            let mut changed = image.bytes.clone();
            for _ in 0..=rng.below(20) {
                let at = rng.below(changed.len() as u64) as usize;
                let len = (1 + rng.below(5000) as usize).min(changed.len() - at);
                let with = rng.below(255) as u8 + 1;
                changed[at..at + len].iter_mut().for_each(|byte| *byte ^= with);
            }
            compared(&image.bytes, &changed, false, &format!("{name} {case}: bytes"));
        }
    }
}

/// File systems that have nothing to do with each other: other sizes, blocks, groups and features.
#[test]
fn any_two_images_are_compared() {
    let images = images();
    for (name_a, a) in &images {
        for (name_b, b) in &images {
            compared(a, b, true, &format!("{name_a} {name_b}"));
        }
    }
}

/// A map that leads nowhere is told by its bytes.
#[test]
fn a_damaged_map_of_a_hidden_inode_has_a_line() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let image = Image::new(fixture(folder.join("1k-inline-512.img.xz")));
    // One of the seeds of the test above.
    let mutation = image.mutation_with(&mut Rng::new(252), |rng| rng.below(3) > 0);
    let mut changed = image.bytes.clone();
    for (at, part) in &mutation.writes {
        changed[*at..at + part.len()].copy_from_slice(part);
    }
    let (_, lines) = compared(&image.bytes, &changed, false, "the resize inode").unwrap();
    assert_eq!(lines[0].kind(), "storage", "{lines:?}");
}

/// A device of which the last block can't be read.
struct Torn(MemoryDevice);

impl BlockDevice for Torn {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.0)
    }

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match offset + buf.len() as u64 > self.size() - 1024 {
            true => Err(Error::from(std::io::ErrorKind::TimedOut)),
            false => self.0.read_at(buf, offset),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.0.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_compared() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let image = fixture(folder.join("1k-64bit.img.xz"));
    let torn = |bytes: Vec<u8>| {
        let device: Arc<dyn BlockDevice> = Arc::new(Torn(MemoryDevice::new(bytes)));
        DiffSide::new(Ext4::open(Arc::clone(&device), &OpenOptions::default()).unwrap(), device)
    };
    let whole = side(&image, true).unwrap();
    let mut other = image.clone();
    let at = other.len() - 3000;
    other[at] ^= 1;
    for (bytes, expected) in [(image, vec!["unread"]), (other, vec!["unread", "bytes"])] {
        let mut kinds = Vec::new();
        let sides = [&whole, &torn(bytes)];
        let report = diff(sides, DiffOptions::new(), &Work::default(), &mut |line| {
            kinds.push(line.kind());
            Ok(())
        });
        let report = report.unwrap();
        assert_eq!((kinds, report.is_equal, report.unread), (expected.clone(), false, 1));
        assert_eq!(report.differences, expected.len() as u64 - 1);
    }
}

/// Images that end at the same byte, before what differs: what is behind may be equal or not.
#[test]
fn what_both_have_lost_is_not_equal() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut image = fixture(folder.join("1k-64bit.img.xz"));
    image.truncate(image.len() - 3000);
    let (report, lines) = compared(&image, &image, true, "one byte less").unwrap();
    assert_eq!((report.unread, report.differences), (2, 0), "{lines:?}");
    let places: Vec<_> =
        lines.iter().map(|line| matches!(line, Difference::Unread { path: None, .. })).collect();
    assert_eq!(places, [true; 2], "{lines:?}");
    // No file has blocks there.
    let sides = [&side(&image, true).unwrap(), &side(&image, true).unwrap()];
    let options = DiffOptions::new().files_only(true);
    let report = diff(sides, options, &Work::default(), &mut |line| panic!("{line:?}")).unwrap();
    assert!(report.is_equal, "{report:?}");
}
