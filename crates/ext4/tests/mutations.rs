//! Verdicts of a check on images with some changed metadata, beside those of e2fsck: damaged or not.
//!
//! A case is an image and a seed. `CASEMATE_MUTATION="IMAGE SEED" cargo test --workspace --test mutations` shows one,
//! `CASEMATE_SLOW_TESTS=1` goes through many more, and prints a table of agreement.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use casemate_blockdev::{BlockDevice, MemoryDevice, Pool};
use casemate_ext4::{CheckOptions, Corrupt, OpenOptions, RecoveryFile, RepairDepth, RepairOptions, check};
use casemate_providers::Work;
use casemate_testkit::{Rng, TempDir, fixture, mke2fs, run_any, slow_tests, tempdir, tool};
use common::collection::{self, Maker};
use common::mutation::Image;

const VARIABLE: &str = "CASEMATE_MUTATION";

/// Seconds that e2fsck has for an image: of some it never comes to an end.
const PATIENCE: &str = "10";

#[test]
fn faults_are_those_that_e2fsck_finds() {
    let Some(World { folder, maker, e2fsck, sources }) = World::new() else { return };
    if let Ok(case) = std::env::var(VARIABLE) {
        let (name, seed) = case.rsplit_once(' ').expect(VARIABLE);
        let source = sources.iter().find(|source| source.name() == name).expect("no such image");
        let mut bench = Bench::new(&e2fsck, source.image(&maker, 0), folder.path(), 0);
        let case = bench.case(name, seed.parse().unwrap());
        let kept = std::env::temp_dir().join("casemate-mutation");
        std::fs::copy(&bench.path, &kept).unwrap();
        return println!("{}\n{case}", kept.display());
    }
    let cases = if slow_tests() { 100_000 } else { 2_000 } / sources.len() as u64;
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for worker in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let (sources, next, found, maker) = (&sources, &next, &found, &maker);
            let (e2fsck, folder) = (&e2fsck, folder.path());
            scope.spawn(move || {
                while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut bench = Bench::new(e2fsck, source.image(maker, worker), folder, worker);
                    let cases = (0..cases).map(|seed| bench.case(&source.name(), seed)).collect::<Vec<_>>();
                    found.lock().unwrap().extend(cases);
                }
            });
        }
    });
    let cases = found.into_inner().unwrap();
    println!("{}\n{}", table(&cases), of_reasons(&cases));
    let disagreements: Vec<&Case> = cases.iter().filter(|case| !case.agrees()).collect();
    let list = grouped(&disagreements);
    println!("{list}");
    assert!(disagreements.is_empty(), "{} disagreements", disagreements.len());
}

#[test]
fn each_reason_for_a_difference_has_a_case() {
    let Some(World { folder, maker, e2fsck, sources }) = World::new() else { return };
    for (words, case, allows) in REASONS {
        let (name, seed) = case.rsplit_once(' ').unwrap();
        let source = sources.iter().find(|source| source.name() == name).expect(case);
        let case =
            Bench::new(&e2fsck, source.image(&maker, 0), folder.path(), 0).case(name, seed.parse().unwrap());
        assert!(case.differs() && allows(&case), "{words}:\n{case}");
    }
}

/// A repair of everything beside `e2fsck -fy` on a twin: at least as many images are clean afterwards, and a second one changes
/// nothing in those. `CASEMATE_MUTATION="IMAGE SEED"` shows one.
#[test]
#[ignore = "takes minutes; it prints a table"]
fn as_much_is_repaired_as_by_e2fsck() {
    let Some(World { folder, maker, e2fsck, sources }) = World::new() else { return };
    let only = std::env::var(VARIABLE).ok();
    let only = only.as_deref().and_then(|case| case.rsplit_once(' '));
    let cases = if slow_tests() { 20_000 } else { 600 } / sources.len() as u64;
    let (mut damaged, mut ours, mut theirs) = (0, 0, 0);
    let twin = folder.path().join("twin");
    let run_e2fsck = |option: &str, path: &Path| {
        let mut command = Command::new("timeout");
        run_any(command.args(["-s", "KILL", PATIENCE]).arg(&e2fsck).arg(option).arg(path)).status.code()
    };
    for source in &sources {
        if only.is_some_and(|(name, _)| name != source.name()) {
            continue;
        }
        let bench = Bench::new(&e2fsck, source.image(&maker, 0), folder.path(), 0);
        let name = source.name();
        for seed in 1..=cases {
            let seed = only.map_or(seed, |(_, seed)| seed.parse().unwrap());
            let of_name =
                name.bytes().fold(seed, |sum, byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
            let mutation = bench.image.mutation_with(&mut Rng::new(of_name), |rng| rng.below(8) > 0);
            let mut bytes = bench.image.bytes.clone();
            for (offset, new) in &mutation.writes {
                bytes[*offset..*offset + new.len()].copy_from_slice(new);
            }
            std::fs::write(&twin, &bytes).unwrap();
            if !matches!(run_e2fsck("-fn", &twin), Some(4 | 12)) {
                continue;
            }
            damaged += 1;
            for _ in 0..2 {
                run_e2fsck("-fy", &twin);
            }
            let is_theirs = run_e2fsck("-fn", &twin) == Some(0);
            let device = Arc::new(MemoryDevice::new(bytes));
            let repair = || {
                let recovery = Some(RecoveryFile::new(folder.path().join("recovery")));
                let options =
                    RepairOptions { depth: RepairDepth::All, recovery, seed: Some(1), ..Default::default() };
                casemate_ext4::repair(device.clone(), options, &mut |_, _| Ok(true), &bench.work)
            };
            let report = repair();
            let mut after = vec![0; device.size() as usize];
            device.read_at(&mut after, 0).unwrap();
            std::fs::write(&twin, &after).unwrap();
            let is_ours = run_e2fsck("-fn", &twin) == Some(0);
            (ours, theirs) = (ours + u32::from(is_ours), theirs + u32::from(is_theirs));
            if is_theirs && !is_ours || only.is_some() {
                println!("{name} {seed}: {:?}", mutation.what);
                match report {
                    Ok(report) => {
                        report.report.faults.iter().take(4).for_each(|fault| println!("    {fault}"))
                    }
                    Err(error) => println!("    {error}"),
                }
            }
            if only.is_some() {
                break;
            }
        }
    }
    println!("{damaged} damaged images: {ours} are clean after a repair, {theirs} after e2fsck -fy");
    assert!(only.is_some() || ours * 100 >= theirs * 95, "{ours} of {theirs}");
}

/// Tools that make and check images, and the images.
struct World {
    folder: TempDir,
    maker: Maker,
    e2fsck: PathBuf,
    sources: Vec<Source>,
}

impl World {
    fn new() -> Option<World> {
        let (mke2fs, debugfs, e2fsck) = (tool("mke2fs")?, tool("debugfs")?, tool("e2fsck")?);
        let folder = memory_folder();
        let maker = Maker::new(mke2fs, debugfs, folder.path());
        let mut sources: Vec<Source> = collection::fixtures(true).into_iter().map(Source::Fixture).collect();
        sources.extend(mke2fs::all().map(|row| Source::Made(row.options)));
        // The log of this one is to be replayed, which e2fsck -n does not.
        sources.retain(|source| source.name() != "1k-dirty-journal");
        Some(World { folder, maker, e2fsck, sources })
    }
}

/// A folder in memory, where there is such a thing: images are written to it again and again.
fn memory_folder() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap_or_else(|_| tempdir().unwrap())
}

/// Where an image comes from.
enum Source {
    Fixture(PathBuf),
    /// Options of mke2fs.
    Made(&'static str),
}

impl Source {
    fn name(&self) -> String {
        match self {
            Source::Fixture(path) => path.file_name().unwrap().to_string_lossy().replace(".img.xz", ""),
            Source::Made(options) => (*options).to_owned(),
        }
    }

    fn image(&self, maker: &Maker, worker: usize) -> Image {
        match self {
            Source::Fixture(path) => Image::new(fixture(path)),
            Source::Made(options) => {
                Image::new(std::fs::read(maker.make(options, &format!("made{worker}"))).unwrap())
            }
        }
    }
}

/// Verdict on an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Clean,
    Fault,
    /// It could not be checked: features that nobody here knows, or nothing that looks like a file system.
    CouldNot,
    /// It came to no end.
    Hung,
}

/// One mutation, and what both say of it.
struct Case {
    image: String,
    seed: u64,
    what: Vec<String>,
    theirs: (Verdict, Vec<String>),
    ours: (Verdict, Vec<String>),
}

impl Case {
    /// Whether only this check finds a fault.
    fn is_ours_alone(&self) -> bool {
        (self.theirs.0, self.ours.0) == (Verdict::Clean, Verdict::Fault)
    }

    /// True if only this check finds a fault, and every finding contains the text.
    fn is_ours_alone_of(&self, text: &str) -> bool {
        self.is_ours_alone() && self.ours.1.iter().all(|line| line.contains(text))
    }

    /// Whether both say something, and not the same.
    fn differs(&self) -> bool {
        match (self.theirs.0, self.ours.0) {
            // Nothing is known of what made e2fsck hang.
            (Verdict::Hung, _) => false,
            // Whether it was a fault that made it give up, its status does not say.
            (Verdict::CouldNot, Verdict::Fault) => false,
            (theirs, ours) => theirs != ours,
        }
    }

    fn agrees(&self) -> bool {
        !self.differs() || REASONS.iter().any(|(.., allows)| allows(self))
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} {}", self.image, self.seed)?;
        for line in &self.what {
            writeln!(f, "    {line}")?;
        }
        for (who, (verdict, lines)) in [("e2fsck", &self.theirs), ("ours", &self.ours)] {
            writeln!(f, "  {who}: {verdict:?}")?;
            for line in lines.iter().take(6) {
                writeln!(f, "    {line}")?;
            }
        }
        Ok(())
    }
}

/// Why a difference is none of ours, in words; a case that shows it; and which differences that explains.
type Reason = (&'static str, &'static str, fn(&Case) -> bool);

const REASONS: &[Reason] = &[
    ("e2fsck finds it before its first pass, and forgets that", "v1-xts-cts-1k 67", |case| {
        case.is_ours_alone() && case.theirs.1.iter().any(|line| line.ends_with("? no"))
    }),
    ("the kernel refuses such a journal, and e2fsck does not look", "v2-adiantum-1k 231", |case| {
        case.is_ours_alone() && case.ours.1.iter().all(|line| line.starts_with("journal superblock: "))
    }),
    (
        "the kernel refuses an inode that holds a value and has a name",
        "-t ext4 -b 4096 -O ^metadata_csum,^uninit_bg 790",
        |case| {
            case.is_ours_alone()
                && case.ours.1.iter().any(|line| line.ends_with("holds a value, and is in a directory"))
        },
    ),
    ("the kernel refuses a reserved inode with such extra fields", "1k-64bit 430", |case| {
        case.is_ours_alone() && case.ours.1.iter().any(|line| line.ends_with("bytes of extra fields"))
    }),
    ("the kernel refuses a deeper tree than five levels", "v1-xts-cts-1k 179", |case| {
        case.is_ours_alone() && case.ours.1.iter().any(|line| line.contains("an extent tree of"))
    }),
    (
        "e2fsck looks at a quarter of the blocks that are reserved for descriptors",
        "v1-xts-cts-1k 458",
        |case| {
            case.is_ours_alone()
                && case
                    .ours
                    .1
                    .iter()
                    .all(|line| line.starts_with("inode 7: ") && line.ends_with("is reserved"))
        },
    ),
    (
        "e2fsck -n does not look at the list of orphans, at which the kernel complains",
        "1k-inline-512 245",
        |case| case.is_ours_alone_of("the list of orphans leads to"),
    ),
    (
        "of a journal's map e2fsck looks at the last block, and of its size at 32 bits",
        "-t ext4 -I 128 242",
        |case| case.is_ours_alone_of("inode 8: the journal "),
    ),
    ("e2fsck misses no attribute that has another name than it should", "v1-cbc-essiv-4k 626", |case| {
        case.is_ours_alone_of("encryption context: is missing")
            || case.is_ours_alone_of("no attribute for the rest of it")
            || case.is_ours_alone_of("bytes of target are not in the inode")
    }),
    ("the size of contents in an inode is nothing to e2fsck", "1k-inline-512 682", |case| {
        case.is_ours_alone_of("bytes of inline data: ")
    }),
    ("of a directory's size e2fsck looks at 32 bits", "-t ext4 -b 1024 -O large_dir 269", |case| {
        case.is_ours_alone_of("blocks of the directory: ")
    }),
    (
        "the kernel refuses an extent block on another level than its parent says",
        "-t ext4 -b 65536 766",
        |case| case.is_ours_alone_of(": is on level "),
    ),
    (
        "e2fsck takes the inode that is named for projects' quotas as one in use, without the feature",
        "-t ext2 -b 65536 741",
        |case| {
            case.ours.0 == Verdict::Clean
                && case.what.iter().any(|line| line.starts_with("superblock +0x26"))
                && case.theirs.1.iter().any(|line| line.starts_with("Inode bitmap differences: "))
        },
    ),
    ("e2fsck skips a list of bad blocks that is no extent tree", "-t ext4 -O ^dir_index 247", |case| {
        case.is_ours_alone_of("inode 1: no magic number")
    }),
    (
        "of one bitmap with a wrong checksum and missing bits e2fsck says nothing",
        "-t ext4 -b 1024 -g 1024 -O ^resize_inode,sparse_super2 297",
        |case| {
            case.is_ours_alone()
                && case
                    .ours
                    .1
                    .iter()
                    .any(|line| line.contains(" block bitmap ") && line.contains(": wrong checksum"))
        },
    ),
    (
        "of one quota file without a magic number e2fsck says nothing",
        "-t ext4 -b 4096 -I 512 -C 16384 -O bigalloc,ea_inode,orphan_file,quota 591",
        |case| case.is_ours_alone_of("quota file: has no magic number of its kind"),
    ),
    ("e2fsck reads quota files past their ends", "-t ext4 -O project,quota 133", |case| {
        case.is_ours_alone_of("quota file: ends before block")
    }),
    (
        "e2fsck refuses features that change nothing for whoever does not know them",
        "4k-bigalloc 582",
        |case| {
            case.ours.0 == Verdict::Clean
                && case.theirs.1.iter().any(|line| line.contains("Get a newer version of e2fsck!"))
        },
    ),
    (
        "a list of bad blocks that has metadata in it, e2fsck calls an error of its own",
        "-t ext4 -C 16384 -O bigalloc 686",
        |case| {
            case.is_ours_alone() && case.theirs.1.iter().any(|line| line.starts_with("Programming error?"))
        },
    ),
];

/// An image on which cases are tried.
struct Bench<'a> {
    e2fsck: &'a Path,
    image: Image,
    path: PathBuf,
    file: File,
    device: Arc<MemoryDevice>,
    work: Work<'static>,
}

impl<'a> Bench<'a> {
    fn new(e2fsck: &'a Path, mut image: Image, folder: &Path, worker: usize) -> Bench<'a> {
        // At all but the usual contents e2fsck waits to see whether another machine changes them.
        image.leave("MMP block");
        let path = folder.join(format!("image{worker}"));
        std::fs::write(&path, &image.bytes).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let device = Arc::new(MemoryDevice::new(image.bytes.clone()));
        let work = Work { pool: Pool::new(NonZeroUsize::new(1)), ..Work::default() };
        Bench { e2fsck, image, path, file, device, work }
    }

    fn case(&mut self, name: &str, seed: u64) -> Case {
        // The same seed is another case of every image.
        let of_name =
            name.bytes().fold(seed, |sum, byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
        let mut rng = Rng::new(of_name);
        let mutation = match seed {
            // The image itself must be sound to begin with.
            0 => Default::default(),
            _ => self.image.mutation_with(&mut rng, |rng| rng.below(8) > 0),
        };
        self.write(mutation.writes.iter().map(|(offset, bytes)| (*offset, &bytes[..])));
        let (theirs, ours) = (self.theirs(), self.ours());
        if std::env::var(VARIABLE).is_err() {
            let old = |(offset, bytes): (&usize, &Vec<u8>)| {
                (*offset, &self.image.bytes[*offset..*offset + bytes.len()])
            };
            self.write(mutation.writes.iter().map(old));
        }
        if seed == 0 {
            assert_eq!((theirs.0, ours.0), (Verdict::Clean, Verdict::Clean), "{name}: {theirs:?} {ours:?}");
        }
        Case { image: name.to_owned(), seed, what: mutation.what, theirs, ours }
    }

    fn write<'b>(&self, writes: impl Iterator<Item = (usize, &'b [u8])>) {
        for (offset, bytes) in writes {
            self.file.write_all_at(bytes, offset as u64).unwrap();
            self.device.write_at(bytes, offset as u64).unwrap();
        }
    }

    fn theirs(&self) -> (Verdict, Vec<String>) {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", PATIENCE]).arg(self.e2fsck).arg("-fn").arg(&self.path);
        let output = run_any(&mut command);
        let text = [&output.stdout[..], &output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let is_told = |line: &&str| {
            !line.trim().is_empty() && !line.starts_with("Pass ") && !line.starts_with("e2fsck 1.")
        };
        let lines = text.lines().filter(is_told).map(str::to_owned).collect();
        let verdict = match output.status.code() {
            Some(0) => Verdict::Clean,
            Some(4 | 12) => Verdict::Fault,
            Some(8) => Verdict::CouldNot,
            _ => Verdict::Hung,
        };
        (verdict, lines)
    }

    fn ours(&self) -> (Verdict, Vec<String>) {
        // As e2fsck does where it may not write.
        let open = OpenOptions { replay_journal: false, ..OpenOptions::default() };
        let options = CheckOptions { open, ..CheckOptions::default() };
        match check(self.device.clone(), &options, &self.work) {
            Ok(report) => {
                let verdict = if report.is_clean() { Verdict::Clean } else { Verdict::Fault };
                (verdict, report.faults.iter().map(ToString::to_string).collect())
            }
            Err(error) if Corrupt::of(&error).is_some() => (Verdict::Fault, vec![error.to_string()]),
            Err(error) => (Verdict::CouldNot, vec![error.to_string()]),
        }
    }
}

/// How often both said what.
fn table(cases: &[Case]) -> String {
    let mut counts: BTreeMap<(Verdict, Verdict), u32> = BTreeMap::new();
    for case in cases {
        *counts.entry((case.theirs.0, case.ours.0)).or_default() += 1;
    }
    let mut text = format!("{} cases\n{:>9} {:>9} {:>7}\n", cases.len(), "e2fsck", "ours", "cases");
    for ((theirs, ours), count) in counts {
        writeln!(text, "{:>9} {:>9} {count:>7}", format!("{theirs:?}"), format!("{ours:?}")).unwrap();
    }
    let agreed = cases.iter().filter(|case| case.agrees()).count();
    write!(text, "agreement {:.2} %", 100.0 * agreed as f64 / cases.len() as f64).unwrap();
    text
}

/// The differences of each reason: how many, and the first ones.
fn of_reasons(cases: &[Case]) -> String {
    let mut text = String::new();
    for (words, _, allows) in REASONS {
        let found: Vec<&Case> = cases.iter().filter(|case| case.differs() && allows(case)).collect();
        writeln!(text, "{} x {words}", found.len()).unwrap();
        for case in found.iter().take(3) {
            writeln!(text, "    {} {}", case.image, case.seed).unwrap();
        }
    }
    text
}

/// Cases by what e2fsck says first, without its numbers, the most frequent first; of each the first few in full.
fn grouped(cases: &[&Case]) -> String {
    let mut groups: BTreeMap<String, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        let lines = if case.theirs.0 == Verdict::Clean { &case.ours.1 } else { &case.theirs.1 };
        let first: String =
            lines.first().map_or("", |line| line).chars().filter(|c| !c.is_ascii_digit()).collect();
        let kind = format!("{:?} here, {:?} there: {first}", case.ours.0, case.theirs.0);
        groups.entry(kind).or_default().push(case);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, cases)| std::cmp::Reverse(cases.len()));
    let mut text = String::new();
    for (kind, cases) in groups {
        writeln!(text, "== {} x {kind}", cases.len()).unwrap();
        for case in cases.iter().take(3) {
            write!(text, "{case}").unwrap();
        }
        for case in cases.iter().skip(3).take(20) {
            writeln!(text, "{} {}", case.image, case.seed).unwrap();
        }
    }
    text
}
