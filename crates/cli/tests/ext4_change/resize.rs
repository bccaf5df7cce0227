//! File systems that grow, shrink and become as small as they can be, beside e2fsck and resize2fs.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use casemate_testkit::{Rng, run, run_any, slow_tests, tool};

use super::Place;
use super::tune::fill;

/// Kinds of file systems: by room for descriptors, maps, checksums, journals and where tables lie.
const KINDS: [&str; 12] = [
    "-b 1024",
    "-b 4096",
    "-b 1024 -O ^metadata_csum,uninit_bg",
    "-b 1024 -O ^extent,^64bit,^flex_bg,^metadata_csum -I 128",
    "-b 1024 -O ^resize_inode",
    "-b 1024 -O sparse_super2",
    "-b 1024 -O meta_bg,^resize_inode",
    "-b 1024 -O quota,inline_data",
    "-b 1024 -O orphan_file",
    "-b 1024 -O ^has_journal,metadata_csum_seed -E resize=20000",
    "-b 1024 -g 1024 -O ^resize_inode,^metadata_csum,^64bit",
    "-b 1024 -g 512 -O ^resize_inode,64bit,^has_journal -N 900",
];

fn size(place: &Place) -> u64 {
    fs::metadata(place.path("image")).unwrap().len()
}

/// Bytes of the file system.
fn bytes(place: &Place) -> u64 {
    let info: serde_json::Value = serde_json::from_str(&place.yes("info --json image")).unwrap();
    info["blocks"].as_u64().unwrap() * info["block_size"].as_u64().unwrap()
}

#[test]
fn files_stay_as_they_are_whatever_the_size() {
    for (number, kind) in KINDS.iter().enumerate() {
        let Some(place) = Place::new(kind) else { return };
        fill(&place);
        let before = place.yes("digest image");
        let mut rng = Rng::new(number as u64);
        for step in 0..if slow_tests() { 60 } else { 6 } {
            let wanted = (9 << 20) + rng.below(60 << 20) / 512 * 512;
            let output = place.ext4(&format!("resize image {wanted}"));
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            // Groups have room for so many inodes only, and structures of fixed place.
            let is_small = said.contains("no free") || said.contains("can't move");
            assert!(output.status.success() || is_small, "{kind}: {step}: {wanted}: {said}");
            if output.status.success() {
                let now = bytes(&place);
                assert!(now <= wanted && now + (9 << 20) > wanted, "{kind}: {now} for {wanted}");
            }
            assert!(!place.path("image.casemate-redo").exists());
            assert_eq!(place.yes("digest image"), before, "{kind}: {step}: {wanted}");
            place.assert_clean();
            place.yes("mkdir image /between");
            place.yes("rm -r image /between");
            place.assert_clean();
        }
    }
}

/// Descriptors for which there was no room lie near what they describe. Groups with a copy of the superblock have no copies of the
/// others behind that: something else lies there.
#[test]
fn what_grows_over_its_room_for_descriptors_is_sound() {
    for kind in [
        "-b 1024 -g 1024 -O ^extent,^64bit,^flex_bg,^metadata_csum,^resize_inode",
        "-b 1024 -g 1024 -G 1 -O metadata_csum,^resize_inode,64bit,^has_journal -N 900",
        "-b 1024 -g 512 -O metadata_csum -E resize=26000",
    ] {
        let Some(place) = Place::new(kind) else { return };
        place.tree();
        place.yes("put -r image tree /tree");
        place.yes("resize image 77M");
        place.assert_clean();
        let before = fs::read(place.path("image")).unwrap();
        place.yes("check image --strict");
        for repair in ["--repair", "--repair=all", "--fix-checksums"] {
            place.yes(&format!("check image --batch-mode {repair}"));
            assert!(fs::read(place.path("image")).unwrap() == before, "{kind}: {repair}");
        }
        // Group 49 has a superblock, and none of the first descriptors.
        let output = run_any(Command::new(tool("dumpe2fs").unwrap()).arg(place.path("image")));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().skip_while(|line| !line.starts_with("Group 49:")).nth(1).unwrap_or_default();
        let block =
            line.trim_start().strip_prefix("Backup superblock at ").and_then(|rest| rest.split(',').next());
        let block = block.unwrap_or_else(|| panic!("{kind}: {line}"));
        let listed = place.yes("ls image /tree");
        assert_eq!(place.yes(&format!("ls image --superblock {block} /tree")), listed, "{kind}");
    }
}

#[test]
fn the_least_size_is_near_that_of_resize2fs() {
    let Some(resize2fs) = tool("resize2fs") else { return };
    for kind in KINDS {
        let Some(place) = Place::new(kind) else { return };
        fill(&place);
        let before = place.yes("digest image");
        let estimated: u64 = place.yes("minimize --print-size image").trim().parse().unwrap();
        place.yes("minimize image");
        assert_eq!(bytes(&place), size(&place), "{kind}: the file ends with the file system");
        assert!(estimated <= size(&place), "{kind}: {estimated}");
        assert_eq!(place.yes("digest image"), before, "{kind}");
        place.assert_clean();
        let least = size(&place);
        place.yes("minimize image");
        assert!(size(&place) <= least);
        let output = run_any(Command::new(&resize2fs).arg("-P").arg(place.path("image")));
        let said = String::from_utf8_lossy(&output.stdout);
        if let Some(blocks) = said.rsplit(' ').next().and_then(|word| word.trim().parse::<u64>().ok()) {
            let block: u64 = if kind.contains("4096") { 4096 } else { 1024 };
            let theirs = blocks * block;
            assert!(size(&place) <= theirs + theirs / 20 + (1 << 16), "{kind}: {least}, and {theirs}");
        }
        place.yes("resize image 24M");
        assert_eq!(place.yes("digest image"), before, "{kind}");
        place.assert_clean();
    }
}

#[test]
fn what_is_behind_a_file_system_is_not_lost() {
    let Some(place) = Place::new("-b 1024") else { return };
    let mut bytes = fs::read(place.path("image")).unwrap();
    bytes.extend([7; 8192]);
    fs::write(place.path("image"), &bytes).unwrap();
    place.no("resize image", 2, "something is behind the file system, which would be lost if it grew");
    place.no("resize image 8M --truncate", 2, "would be lost if the file were cut");
    place.yes("minimize image");
    assert_eq!(size(&place), bytes.len() as u64);
    assert_eq!(fs::read(place.path("image")).unwrap()[16 << 20..], [7; 8192]);
    // Zeros of what was the file system's are before it now.
    place.no("resize image 24M", 2, "something is behind the file system, which would be lost if it grew");
    assert_eq!(fs::read(place.path("image")).unwrap()[16 << 20..], [7; 8192]);
    place.yes("resize image 24M --overwrite");
    place.assert_clean();
}

/// A file system in a partition, given by the partition's offset: what is behind is another partition's.
#[test]
fn a_file_system_does_not_grow_over_the_next_partition() {
    let Some(place) = Place::new("-b 1024") else { return };
    let mut disk = vec![0; 1 << 20];
    disk.extend(fs::read(place.path("image")).unwrap());
    let second = disk.len();
    disk.extend(vec![7; 4 << 20]);
    for (number, (start, end)) in [(1 << 20, second), (second, disk.len())].into_iter().enumerate() {
        let entry = &mut disk[446 + 16 * number..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&(start as u32 / 512).to_le_bytes());
        entry[12..16].copy_from_slice(&((end - start) as u32 / 512).to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(place.path("disk"), &disk).unwrap();
    for line in ["disk", "--overwrite disk", "--overwrite disk 18M"] {
        place.no(&format!("resize --offset 1M {line}"), 2, "partition 1 begins at offset 1048576");
    }
    assert!(fs::read(place.path("disk")).unwrap() == disk);
    place.yes("resize --offset 1M disk 8M");
    place.yes("resize --offset 1M --overwrite disk 16M");
    assert!(fs::read(place.path("disk")).unwrap()[second..] == disk[second..]);
}

#[test]
fn sizes_that_can_not_be_are_refused_and_change_nothing() {
    let Some(place) = Place::new("-b 1024") else { return };
    fill(&place);
    let before = fs::read(place.path("image")).unwrap();
    for (line, text) in [("resize image 100K", ""), ("resize image 0", "too few"), ("resize -n image 1M", "")]
    {
        let output = place.ext4(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(text), "{line}: {said}");
        assert!(fs::read(place.path("image")).unwrap() == before, "{line}");
    }
    place.yes("resize -n image 15M");
    assert!(fs::read(place.path("image")).unwrap() == before, "a dry run");
    place.yes("resize image 12M --truncate");
    assert_eq!(size(&place), 12 << 20);
    place.assert_clean();
    let Some(other) = Place::new("-b 4096 -C 16384 -O bigalloc") else { return };
    other.no("resize image 32M", 2, "the feature bigalloc can't change their size");
    assert_eq!(size(&other), 16 << 20, "a file that was extended for nothing is cut again");
}

/// An image that resize2fs made larger. Where no room is kept for descriptors, it moves structures of the first groups behind others.
fn grown(options: &str, before: &str, after: &str) -> Option<Place> {
    let (mke2fs, resize2fs) = (tool("mke2fs")?, tool("resize2fs")?);
    let place = Place::new("")?;
    let image = place.path("image");
    fs::remove_file(&image).unwrap();
    let mut command = Command::new(mke2fs);
    command.args(["-q", "-F", "-t", "ext4"]).args(options.split_whitespace());
    run(command.arg(&image).arg(before));
    run_any(Command::new(resize2fs).arg("-f").arg(&image).arg(after));
    place.assert_clean();
    Some(place)
}

#[test]
fn structures_of_groups_that_stay_are_kept_wherever_they_lie() {
    for (options, before, after) in [
        (
            "-b 1024 -g 256 -O ^resize_inode,64bit,^has_journal,^sparse_super -N 200 -G 64 -E lazy_itable_init=1",
            "457K",
            "22785K",
        ),
        (
            "-b 4096 -g 256 -O ^resize_inode,64bit,^sparse_super,^has_journal -N 16 -I 256 -G 64 -E lazy_itable_init=1",
            "10676K",
            "85524K",
        ),
    ] {
        let Some(place) = grown(options, before, after) else { return };
        fs::write(place.path("file"), vec![b'x'; 5000]).unwrap();
        place.yes("put image file /file");
        place.assert_clean();
        // A structure of the first group lies in another one.
        let output = run_any(Command::new(tool("dumpe2fs").unwrap()).arg(place.path("image")));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let first = text.lines().skip_while(|line| !line.starts_with("Group 0:"));
        let first: Vec<_> = first.take_while(|line| !line.starts_with("Group 1:")).collect();
        assert!(first.iter().any(|line| line.contains("(bg #")), "{options}: {first:#?}");
        let before = place.yes("digest image");
        let estimated: u64 = place.yes("minimize --print-size image").trim().parse().unwrap();
        place.no("resize image 1M", 2, "structures that can't move");
        place.yes("minimize image");
        // Fewer groups may have one block of descriptors less.
        assert!(size(&place) + 4096 >= estimated, "{options}: {estimated}");
        place.assert_clean();
        assert_eq!(place.yes("digest image"), before, "{options}");
        let least = size(&place);
        place.yes("minimize image");
        assert_eq!(size(&place), least, "{options}");
        place.yes("resize image 90M");
        place.assert_clean();
        assert_eq!(place.yes("digest image"), before, "{options}");
    }
}

/// Blocks that are listed as bad.
fn listed(place: &Place) -> Vec<u64> {
    let output = run_any(Command::new(tool("dumpe2fs").unwrap()).arg("-b").arg(place.path("image")));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().map(|block| block.parse().unwrap()).collect()
}

/// Blocks that are listed as bad: those behind a new end leave the list, as with resize2fs, and the others stay in it.
#[test]
fn bad_blocks_behind_the_new_end_leave_the_list() {
    let (Some(mke2fs), Some(_)) = (tool("mke2fs"), tool("dumpe2fs")) else { return };
    for features in ["", "-O ^has_journal,^metadata_csum,^64bit", "-O ^extent,^flex_bg,^64bit,quota"] {
        let Some(place) = Place::new("") else { return };
        // Its map has a block of its own, which lies behind some of the new ends.
        let bad: Vec<u64> = (3000..3030).chain((9000..9400).step_by(2)).collect();
        let text: String = bad.iter().map(|block| format!("{block}\n")).collect();
        fs::write(place.path("bad"), text).unwrap();
        fs::remove_file(place.path("image")).unwrap();
        let mut command = Command::new(&mke2fs);
        command.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-l"]).arg(place.path("bad"));
        run(command.args(features.split_whitespace()).arg(place.path("image")).arg("16M"));
        fill(&place);
        assert_eq!(listed(&place), bad, "{features}");
        let before = place.yes("digest image");
        for (line, blocks) in [
            ("resize image 12000K", 12_000),
            ("resize image 9101K", 9101),
            ("resize image 9040K", 9040),
            ("minimize image", 0),
        ] {
            place.yes(line);
            let end = bytes(&place) / 1024;
            assert!(blocks == 0 || end == blocks, "{features}: {line}: {end}");
            let expected: Vec<_> = bad.iter().copied().filter(|block| *block < end).collect();
            assert_eq!(listed(&place), expected, "{features}: {line}");
            place.assert_clean();
            assert_eq!(place.yes("digest image"), before, "{features}: {line}");
        }
    }
}

/// A list whose map lies behind the new end, and one that is in no order.
#[test]
fn a_list_of_bad_blocks_is_cut_wherever_and_however_it_lies() {
    let (Some(e2fsck), Some(debugfs), Some(_)) = (tool("e2fsck"), tool("debugfs"), tool("dumpe2fs")) else {
        return;
    };
    let low: Vec<u64> = (1400..1424).step_by(2).collect();
    let high: Vec<u64> = (15_000..15_100).step_by(2).collect();
    let few = [1410, 15_001, 1420, 15_002];
    for bad in [[&low[..], &high].concat(), high.clone(), few.to_vec()] {
        let is_sorted = bad.is_sorted();
        let Some(place) = Place::new("-b 1024 -O ^has_journal") else { return };
        let text: String = bad.iter().map(|block| format!("{block}\n")).collect();
        fs::write(place.path("bad"), text).unwrap();
        run_any(Command::new(&e2fsck).args(["-fy", "-L"]).arg(place.path("bad")).arg(place.path("image")));
        let set = |field: &str, block: u64| {
            let request = format!("sif <1> block[{field}] {block}");
            run(Command::new(&debugfs).args(["-w", "-R", &request]).arg(place.path("image")));
        };
        match is_sorted {
            // The map's block is copied to behind the new end.
            true => {
                let stat = run(Command::new(&debugfs).args(["-R", "stat <1>"]).arg(place.path("image")));
                let map = stat.split("(IND):").nth(1).and_then(|rest| rest.split(',').next());
                let map: u64 = map.unwrap().parse().unwrap();
                let mut bytes = vec![0; 1024];
                let image = fs::File::options().read(true).write(true).open(place.path("image")).unwrap();
                image.read_exact_at(&mut bytes, map * 1024).unwrap();
                image.write_all_at(&bytes, 15_500 * 1024).unwrap();
                set("IND", 15_500);
            }
            false => few.iter().enumerate().for_each(|(at, block)| set(&at.to_string(), *block)),
        }
        run_any(Command::new(&e2fsck).arg("-fy").arg(place.path("image")));
        fs::write(place.path("low"), vec![b'l'; 1_200_000]).unwrap();
        place.yes("put image low /low");
        place.assert_clean();
        let before = place.yes("digest image");
        let stat = run(Command::new(&debugfs).args(["-R", "stat <1>"]).arg(place.path("image")));
        assert!(stat.contains(if is_sorted { "(IND):15500" } else { "(1):15001, (2):1420" }), "{stat}");
        place.yes("minimize image");
        place.assert_clean();
        let end = bytes(&place) / 1024;
        let mut expected: Vec<u64> = bad.into_iter().filter(|block| *block < end).collect();
        expected.sort_unstable();
        assert!((1424..3000).contains(&end), "{end}: {expected:?}");
        assert_eq!(listed(&place), expected);
        assert_eq!(place.yes("digest image"), before);
        let fields = run(Command::new(tool("dumpe2fs").unwrap()).arg("-h").arg(place.path("image")));
        let number = |key: &str| {
            let line = fields.lines().find(|line| line.starts_with(key)).unwrap();
            line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        };
        assert!(number("Free blocks:") < number("Block count:"), "{fields}");
        assert!(number("Free inodes:") < number("Inode count:"), "{fields}");
    }
}
