//! Places that hash areas and parity of dm-verity are written to: what lies there is not lost without a word.

use casemate_testkit::{Place, Rng, status, stderr, stdout, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");
const CHEAP: &str = "--pbkdf pbkdf2 --pbkdf-force-iterations 1000";

/// Data of 4 MiB, and images of several kinds with contents in all of their parts.
fn place() -> Place {
    let place = Place::new(CASEMATE);
    let mut rng = Rng::new(31);
    place.file("data", rng.bytes(4 << 20));
    place.file("files/big", rng_file(&place, &mut rng));
    place.yes("ext4 build ext4 --from files --size 16M");
    place.file("key", "k");
    place.file("plain", rng.bytes(12 << 20));
    place.yes(&format!("luks format luks --from plain --key-file key {CHEAP} --crypt-offset 2M"));
    place.file("noise", rng.bytes(16 << 20));
    place
}

fn rng_file(place: &Place, rng: &mut Rng) -> Vec<u8> {
    std::fs::create_dir(place.path("files")).unwrap();
    rng.bytes(10 << 20)
}

fn root_hash(printed: &str) -> String {
    let line = printed.lines().find_map(|line| line.strip_prefix("Root hash:"));
    line.unwrap_or_else(|| panic!("no root hash in {printed}")).trim().to_owned()
}

/// Runs lines that must be refused for what lies in the image, and leave it as it was.
#[track_caller]
fn refuses(place: &Place, image: &str, lines: &[(String, &str)]) {
    let before = place.read(image);
    for (line, said) in lines {
        let output = place.own(line);
        let error = stderr(&output);
        assert!(status(&output) == 2 && error.contains(said), "{line}: {} {error}", status(&output));
        assert!(place.read(image) == before, "{line} has changed {image}");
        assert!(!place.path("new").exists(), "{line}");
    }
}

#[test]
fn what_lies_at_any_offset_is_asked_for() {
    let place = place();
    let (unknown, fs) = ("contains data of no known kind", "contains an ext2, ext3 or ext4 file system");
    for (image, said) in [("ext4", fs), ("luks", "contains a LUKS"), ("noise", unknown)] {
        let mut lines = Vec::new();
        for offset in ["4M", "8M"] {
            lines.push((format!("verity format data new --fec-device {image} --fec-offset {offset}"), said));
            lines.push((format!("verity format data {image} --hash-offset {offset}"), said));
            lines.push((format!("verity format data {image},offset={offset}"), said));
            lines.push((format!("integrity format {image},offset={offset}"), said));
            let verity = format!("--dm-verity append --fec-device {image} --fec-offset {offset}");
            lines.push((format!("ext4 build new --from files {verity}"), said));
        }
        if image != "noise" {
            lines.push((format!("verity format data new --fec-device {image}"), said));
            lines.push((format!("verity format data {image}"), said));
        }
        refuses(&place, image, &lines);
    }
    // A file system that is the data as far as its first blocks, and has more of them.
    let lines = [
        ("verity format ext4 new --data-blocks 1024 --fec-device ext4 --fec-offset 4M".to_owned(), fs),
        ("verity format ext4 ext4 --data-blocks 1024 --hash-offset 4M".to_owned(), fs),
    ];
    refuses(&place, "ext4", &lines);
    // Zeros of a file system are its own, too.
    let lines = [
        ("verity format data new --fec-device ext4 --fec-offset 15M".to_owned(), fs),
        ("verity format data ext4 --hash-offset 15M".to_owned(), fs),
    ];
    refuses(&place, "ext4", &lines);
    // All that would be written is looked at, not the first MiB alone.
    let mut late = vec![0; 8 << 20];
    late[3 << 20..].copy_from_slice(&place.read("noise")[..5 << 20]);
    place.file("late", late);
    place.file("large", vec![7; 300 << 20]);
    let lines = [
        ("verity format large late --hash-offset 1M".to_owned(), unknown),
        ("verity format large new --fec-device late --fec-offset 1M".to_owned(), unknown),
        ("integrity format late".to_owned(), unknown),
        (format!("luks format late --key-file key {CHEAP}"), unknown),
        ("integrity format late,offset=1M".to_owned(), unknown),
    ];
    refuses(&place, "late", &lines);

    // A forged superblock calls all that lies behind it a tree, or parity.
    place.file("few", vec![7; 64 << 20]);
    place.yes("verity format few area --hash-offset 1M --fec-device area --fec-offset 2M");
    let noise = place.read("noise");
    for (name, blocks) in [("claims", 10_u64 << 20), ("fits", 64 << 20 >> 12)] {
        let mut forged = place.read("area");
        forged[(1 << 20) + 72..][..8].copy_from_slice(&blocks.to_le_bytes());
        let behind = &mut forged[(1 << 20) + 4096..];
        behind.copy_from_slice(&noise[..behind.len()]);
        place.file(name, forged);
        let lines = [
            (format!("verity format few {name} --hash-offset 1M"), unknown),
            (
                format!("verity format few {name} --hash-offset 1M --fec-device {name} --fec-offset 2M"),
                unknown,
            ),
        ];
        refuses(&place, name, &lines);
    }

    // Whoever agrees gets it; zeros, holes and room behind a file system are free; so is an area that is made again.
    place.yes("verity format data new --fec-device noise --fec-offset 4M --overwrite");
    std::fs::remove_file(place.path("new")).unwrap();
    place.file("zeros", vec![0; 8 << 20]);
    for _ in 0..2 {
        place.yes("verity format data zeros --hash-offset 1M --fec-device zeros --fec-offset 2M");
        place.yes(
            "verity format ext4 ext4 --data-blocks 4096 --hash-offset 16M --fec-device ext4 --fec-offset 20M",
        );
        place.yes("verity format data tree --fec-device parity --fec-roots 3");
        place.yes("verity format data both --fec-device both --fec-offset 1M");
    }
    assert_eq!(place.read("ext4").len() % 4096, 0);
    place.yes("ext4 check ext4");
}

#[test]
fn an_update_writes_parity_where_it_is_alone() {
    let place = place();
    let old = root_hash(&place.yes("verity format data tree --fec-device parity"));
    place.flip("data", 5, 1);
    let update = format!("verity update data tree --changed 0+4K --old-root-hash {old}");
    let tree = place.read("tree");
    for image in ["ext4", "luks", "noise"] {
        let at = if image == "noise" { " --fec-offset 4M" } else { "" };
        refuses(&place, image, &[(format!("{update} --fec-device {image}{at}"), "contains ")]);
        refuses(&place, image, &[(format!("{update} --fec-device {image} --fec-offset 8M"), "contains ")]);
        assert!(place.read("tree") == tree, "{image}");
    }
    // Parity of the image is found in a part of another file, and by what it restores where every round has changed blocks.
    let mut disk = place.read("noise");
    let parity = place.read("parity");
    disk[1 << 20..][..parity.len()].copy_from_slice(&parity);
    place.file("disk", disk.clone());
    let new = root_hash(&place.yes(&format!("{update} --fec-device disk --fec-offset 1M")));
    place.yes(&format!("verity verify data tree {new} --fec-device disk --fec-offset 1M"));
    let after = place.read("disk");
    assert!(
        after[..1 << 20] == disk[..1 << 20]
            && after[(1 << 20) + parity.len()..] == disk[(1 << 20) + parity.len()..]
    );

    place.file("small", &place.read("data")[..100 * 4096]);
    let old = root_hash(&place.yes("verity format small tree2 --fec-device parity2"));
    disk[2 << 20..][..8192].copy_from_slice(&place.read("parity2"));
    place.file("disk", &disk);
    place.flip("small", 5000, 1);
    let line = format!(
        "verity update small tree2 --changed 5000+1 --old-root-hash {old} --fec-device disk --fec-offset 2M"
    );
    refuses(&place, "disk", &[(line.replace("2M", "3M"), "contains data that are not parity of these data")]);
    let new = root_hash(&place.yes(&line));
    place.yes(&format!("verity verify small tree2 {new} --fec-device disk --fec-offset 2M"));
    // Whoever agrees gets it.
    place.yes(&line.replace(&old, &new).replace("2M", "3M --overwrite"));
}

/// A file that has nothing but parity is as long as that: its length tells the number of roots to whoever says none.
#[test]
fn parity_of_its_own_is_as_long_as_its_number_of_roots_says() {
    let place = place();
    let (data, noise) = (place.read("data"), place.read("noise"));
    place.file("small", &data[..1 << 20]);
    let parity_size = |blocks: usize, roots: usize| {
        let all = blocks + (place.read("tree").len() - 4096) / 4096;
        all.div_ceil(255 - roots) * roots * 4096
    };
    let verifies = |data: &str, root: &str| {
        let output = place.own(&format!("verity verify {data} tree {root} --fec-device fec"));
        assert_eq!(status(&output), 0, "{}", stderr(&output));
        stderr(&output)
    };
    // Parity of smaller data, and of fewer roots.
    place.yes("verity format data tree --fec-device fec");
    let root = root_hash(&place.yes("verity format small tree --fec-device fec"));
    assert_eq!(place.read("fec").len(), parity_size(256, 2));
    assert_eq!(verifies("small", &root), "");
    place.yes("verity format data tree --fec-device fec --fec-roots 4");
    let of_four = place.read("fec");
    place.flip("data", 5000, 1);
    let yes = |line: &str| {
        let output = place.own(line);
        assert_eq!(status(&output), 0, "{line}: {}", stderr(&output));
        stdout(&output)
    };
    let update = "verity update data tree --changed 5000+1 --fec-device fec";
    let root = root_hash(&yes(&format!("{update} --fec-roots 2")));
    assert_eq!(place.read("fec").len(), parity_size(1024, 2));
    assert_eq!(verifies("data", &root), "");

    // The end of longer parity, as earlier versions have left it: the rounds tell the number.
    let mut tailed = place.read("fec");
    tailed.extend(&of_four[tailed.len()..]);
    place.file("fec", &tailed);
    let note = "casemate: note: fec has 2 roots by its contents, and not by its size: --fec-roots 2\n";
    assert_eq!(verifies("data", &root), note);
    let whole = place.read("data");
    place.flip("data", 300_000, 1);
    let output = place.own(&format!("verity verify data tree {root} --fec-device fec"));
    assert!(stdout(&output).contains("can restore 1 data blocks and 0 hash blocks: that is all"));
    yes(&format!("verity repair data tree {root} --fec-device fec"));
    assert!(place.read("data") == whole);
    place.flip("data", 5000, 1);
    let root = root_hash(&place.yes(update));
    assert_eq!(place.read("fec").len(), tailed.len());
    assert_eq!(verifies("data", &root), note);

    // What is longer keeps its number of roots, and what lies behind it: zeros may be somebody's.
    std::fs::remove_file(place.path("fec")).unwrap();
    let root = root_hash(&place.yes("verity format data tree --fec-device fec --fec-roots 4"));
    let len = place.read("fec").len();
    for tail in [&noise[..5000], &[0; 5000][..]] {
        let mut longer = place.read("fec");
        longer.extend(tail);
        place.file("fec", &longer);
        let note = "fec has not the size of parity of these data; by its contents it has 4 roots";
        assert!(verifies("data", &root).contains(note));
        let table = yes(&format!("verity table data tree {root} --fec-device fec --print=table"));
        assert!(table.trim_end().ends_with(" fec_roots 4"), "{table}");
        place.flip("data", 5000, 1);
        place.yes(update);
        place.flip("data", 5000, 1);
        assert!(root_hash(&place.yes(update)) == root);
        let behind = place.read("fec").split_off(len);
        assert!(behind == tail);
        longer.truncate(len);
        place.file("fec", &longer);
    }
    // What is cut off says nothing, and is no parity of another number.
    let tree = place.read("tree");
    let whole = place.read("fec");
    for len in [0, 1000, len - 4096] {
        place.file("fec", &whole[..len]);
        let said = "is cut off, or is something else; give the parity's number of roots (--fec-roots N)";
        refuses(&place, "fec", &[(update.to_owned(), said)]);
        assert!(place.read("tree") == tree, "{len}");
    }
    yes(&format!("{update} --fec-roots 4"));

    // Parity of two images in one file, and parity behind a hash area: nothing of them is cut.
    place.yes("verity format data tree --fec-device two");
    place.yes("verity format small tree2 --fec-device two --fec-offset 1M");
    let two = place.read("two");
    place.yes("verity format data tree --fec-device two");
    place.flip("data", 5000, 1);
    let fec = "--fec-device two --fec-roots 2";
    place.yes(&format!("verity update data tree --changed 5000+1 {fec}"));
    assert!(place.read("two")[1 << 20..] == two[1 << 20..]);
    place.yes("verity format data both --fec-device both --fec-offset 1M --fec-roots 4");
    let len = place.read("both").len();
    place.yes("verity format data both --fec-device both --fec-offset 1M --fec-roots 2");
    assert_eq!(place.read("both").len(), len);
}

/// So many blocks have changed that no round shows what the parity was: its size does, behind the hash area.
#[test]
fn an_update_knows_its_own_parity_behind_the_hash_area() {
    let place = place();
    let fec = "--fec-device both --fec-offset 1M";
    place.yes(&format!("verity format data both {fec}"));
    let mut data = place.read("data");
    let noise = place.read("noise");
    data[..400_000].copy_from_slice(&noise[..400_000]);
    place.file("data", &data);
    let root = root_hash(&place.yes(&format!("verity update data both --changed 0+400000 {fec}")));
    place.yes(&format!("verity verify data both {root} {fec}"));

    // Elsewhere nothing tells it; the error says what it may be.
    let mut disk = noise.clone();
    disk[1 << 20..].fill(0);
    place.file("disk", &disk);
    let fec = "--fec-device disk --fec-offset 2M";
    place.yes(&format!("verity format data tree {fec}"));
    data[..400_000].copy_from_slice(&noise[500_000..900_000]);
    place.file("data", &data);
    let line = format!("verity update data tree --changed 0+400000 {fec}");
    let said = "disk contains data of no known kind, perhaps the parity of the data as they were (too many blocks have changed to tell)";
    refuses(&place, "disk", &[(line.clone(), said)]);
    let root = root_hash(&place.yes(&format!("{line} --overwrite")));
    place.yes(&format!("verity verify data tree {root} {fec}"));
}

/// Zeros of something else are no lost parity.
#[test]
fn a_repair_makes_parity_where_it_is_alone() {
    let place = place();
    let root = root_hash(&place.yes("verity format data tree --fec-device parity"));
    let mut archive = place.read("noise");
    archive[1 << 20..(1 << 20) + 49_152].fill(0);
    place.file("archive", &archive);
    let repair = format!("verity repair data tree {root} --fec-roots 2");
    for (image, offset, said) in [
        ("archive", "1M", "archive contains data that are not parity of these data"),
        ("ext4", "15M", "ext4 contains an ext2, ext3 or ext4 file system"),
        ("archive", "6M", "archive contains data that are not parity of these data"),
    ] {
        let before = place.read(image);
        place.is(&format!("{repair} --fec-device {image} --fec-offset {offset}"), 1, said);
        assert!(place.read(image) == before, "{image} at {offset}");
    }
    // In a file of zeros it was lost.
    place.file("zeros", vec![0; 4 << 20]);
    for fec in [
        "--fec-device zeros --fec-offset 2M",
        "--fec-device zeros",
        "--fec-device archive --fec-offset 1M --overwrite",
    ] {
        place.yes(&format!("{repair} {fec}"));
        place.yes(&format!(
            "verity verify data tree {root} --fec-roots 2 {}",
            fec.replace(" --overwrite", "")
        ));
    }
}

#[test]
fn an_update_makes_no_parity_of_damage() {
    let place = place();
    let whole = place.read("data");
    let old = root_hash(&place.yes("verity format data tree --fec-device parity"));
    place.flip("data", 500_000, 1);
    place.flip("data", 3_000_000, 1);
    place.flip("data", 100, 1);
    let update = "verity update data tree --changed 0+4K --fec-device parity".to_owned();
    let said =
        "data block 122 and 1 more do not match the hash tree, and are not among those that have changed";
    for line in [update.clone(), format!("{update} --old-root-hash {old}")] {
        let before = (place.read("tree"), place.read("parity"));
        place.is(&line, 2, said);
        assert!((place.read("tree"), place.read("parity")) == before, "{line}");
    }
    place.yes(&format!("verity repair data tree {old} --fec-device parity"));
    assert!(place.read("data") == whole);
    place.flip("data", 100, 1);
    let new = root_hash(&place.yes(&update));
    place.yes(&format!("verity verify data tree {new} --fec-device parity"));
    // A hash block is covered, too.
    place.flip("tree", 3 * 4096 + 100, 1);
    place.is(
        "verity update data tree --changed 4M-4K --fec-device parity".replace("4M-4K", "4190208+1").as_str(),
        2,
        "hash block",
    );
}

/// Somebody may have changed a block and its digest, or they have rotted: whoever updates the block beside it does not sign that.
#[test]
fn an_update_makes_no_root_hash_of_a_tree_that_contradicts_itself() {
    let place = place();
    let old = root_hash(&place.yes("verity format data tree"));
    // A digest of the first hash block of the lowest level, which lies behind the superblock and the block above.
    place.flip("tree", 8192 + 160, 1);
    let before = place.read("tree");
    let update = "verity update data tree --changed 28672+4096";
    let said = "hash block 0 of level 0 does not match the hash block above it";
    place.is(update, 2, said);
    place.is(&format!("{update} --dry-run"), 2, said);
    place.is(&format!("{update} --old-root-hash {old}"), 2, "does not belong to the given root hash");
    assert!(place.read("tree") == before);
    // Of other blocks nothing is read.
    place.flip("data", 4000 * 1024, 1);
    place.yes("verity update data tree --changed 4095999+2");
    // An update that was cut off leaves that, too: it is done again where that is meant.
    let new = root_hash(&place.yes("verity update data tree --changed 0+512K --overwrite"));
    place.yes(&format!("verity verify data tree {new}"));
}

#[test]
fn an_update_without_a_superblock_wants_the_old_root_hash() {
    let place = place();
    let parameters = "--no-superblock --data-blocks 1024 --salt 00";
    let said = "give the root hash of the data as they were";
    for image in ["ext4", "luks", "noise"] {
        refuses(
            &place,
            image,
            &[(format!("verity update data {image} {parameters} --changed 0+4096"), said)],
        );
    }
    let old = root_hash(&place.yes(&format!("verity format data tree {parameters}")));
    place.flip("data", 5, 1);
    refuses(&place, "tree", &[(format!("verity update data tree {parameters} --changed 0+4096"), said)]);
    let line = format!("verity update data tree {parameters} --changed 0+4096");
    let new = root_hash(&place.yes(&format!("{line} --old-root-hash {old}")));
    place.flip("data", 6, 1);
    let newer = root_hash(&place.yes(&format!("{line} --overwrite")));
    assert!(new != newer);
    place.yes(&format!("verity verify data tree {newer} {parameters}"));
}

#[test]
fn places_without_room_are_refused_before_anything_is_written() {
    let place = place();
    place.file("zeros", vec![0; 8 << 20]);
    let lines = [
        (
            "verity format data zeros,offset=4M,size=16K",
            "zeros: a hash area of 40960 bytes has no room at 0: there are 16384 bytes",
        ),
        (
            "verity format data zeros,offset=4M,size=48K --fec-device zeros --fec-offset 40960",
            "zeros: parity of 40960 bytes has no room at 40960: there are 49152 bytes",
        ),
        (
            "verity format data zeros,offset=4M,size=48K --fec-device zeros",
            "zeros; there is no room for it behind them",
        ),
        (
            "verity format data,offset=0,size=2M data,offset=0,size=2M --data-blocks 512 --hash-offset 2M",
            "data: a hash area of",
        ),
    ];
    let lines: Vec<_> = lines.iter().map(|(line, said)| ((*line).to_owned(), *said)).collect();
    refuses(&place, "zeros", &lines[..3]);
    refuses(&place, "data", &lines[3..]);
    // An existing parity that would grow beyond its place.
    let line = "zeros,offset=4M,size=64K --fec-device zeros --fec-offset 40960";
    refuses(&place, "zeros", &[(format!("verity format data {line} --fec-roots 9"), "has no room")]);
    place.is("verity format data new --fec-device new", 2, "it can begin at 40960");
}

#[test]
fn an_empty_range_has_not_changed() {
    let place = place();
    place.yes("verity format data tree");
    let output = place.own("verity update data tree --changed 0+0");
    assert!(status(&output) == 2 && stderr(&output).contains("OFFSET+LENGTH"), "{}", stderr(&output));
    let output = place.own("verity update data tree --changed 1M+4K --changed 8+0");
    assert!(status(&output) == 2, "{}", stderr(&output));
}

/// veritysetup asks nothing: at no offset, and whatever is there.
#[test]
fn the_link_replaces_what_the_tool_replaces() {
    let place = place();
    place.link("veritysetup");
    let known = [place.read("ext4"), place.read("luks")];
    let lines = [
        "format data IMAGE",
        "format data tree --fec-device=IMAGE",
        "format data IMAGE --hash-offset=4194304",
    ];
    for line in lines.iter().chain(&["format data tree --fec-device=IMAGE --fec-offset=4194304"]) {
        for (image, before) in ["ext4", "luks"].iter().zip(&known) {
            let line =
                line.replace("IMAGE", image) + " --salt=00 --uuid=5e34f531-3859-825c-fad6-33289ccfcb92";
            let run = |program: &std::path::Path| {
                place.file(image, before);
                let output = place.run(program, &line);
                assert_eq!(status(&output), 0, "{line}: {}", stderr(&output));
                place.read(image)
            };
            let ours = run(&place.path("veritysetup"));
            assert!(&ours != before, "{line}");
            if let Some(tool) = tool("veritysetup") {
                assert!(run(&tool) == ours, "{line}");
            }
        }
    }
}

/// A hash area or parity that grows is not written over what lies behind the old one, in a file of its own either.
#[test]
fn a_hash_area_that_grows_asks_for_what_lies_behind() {
    let place = place();
    let noise = place.read("noise");
    place.file("small", &place.read("data")[..1 << 20]);
    place.yes("verity format small tree");
    place.yes("verity format small fec-tree --fec-device fec");
    let (tree, fec) = (place.read("tree"), place.read("fec"));
    place.yes("verity format data other");
    let fs = &place.read("ext4")[..1 << 20];
    let luks = &place.read("luks")[..1 << 20];
    let behinds =
        [("fs", fs), ("luks", luks), ("tree", &place.read("other")[..]), ("noise", &noise[..1 << 20])];
    for (name, behind) in behinds {
        place.file("h", [&tree[..], behind].concat());
        place.file("f", [&fec[..], behind].concat());
        let unknown = "contains data of no known kind";
        refuses(
            &place,
            "h",
            &[
                ("verity format data h".into(), unknown),
                ("verity format small h --hash sha512".into(), unknown),
            ],
        );
        // The hash area says where its parity ends, or that this is none; without it, signatures tell.
        let unknown = if name == "tree" { "contains a dm-verity superblock at byte" } else { unknown };
        refuses(
            &place,
            "f",
            &[("verity format small fec-tree --fec-device f --fec-roots 24".into(), unknown)],
        );
        let whole = place.read("data");
        place.yes("verity format data fec-tree --overwrite");
        if name != "noise" {
            place.file("f", [&fec[..], &behind[..8192]].concat());
            refuses(
                &place,
                "f",
                &[("verity format data new --fec-device f --fec-roots 24".into(), "at byte ")],
            );
        }
        place.yes("verity format small fec-tree --overwrite");
        assert!(place.read("data") == whole);
    }
}

/// Zeros behind a tree or parity may be somebody's, and veritysetup's parity covers them.
#[test]
fn nothing_is_cut_behind_a_tree() {
    let place = place();
    place.file("small", &place.read("data")[..1 << 20]);
    let (salt, fec) =
        ("--salt 0102 --uuid 11111111-2222-4333-8444-555555555555", "--fec-device fec --fec-roots 2");
    let zeros = 1 << 20;
    place.file("tree", vec![0; zeros]);
    place.yes(&format!("verity format data tree {salt} {fec}"));
    let (tree, parity) = (place.read("tree"), place.read("fec"));
    // As it is, and without its parity.
    for fec in [fec, ""] {
        place.yes(&format!("verity format data tree {salt} {fec}"));
        assert!(place.read("tree") == tree && place.read("fec") == parity);
    }
    // What is left of a longer tree is no data that nothing knows.
    place.yes(&format!("verity format small tree {salt}"));
    let shorter = place.read("tree");
    assert_eq!(shorter.len(), zeros);
    place.file("fresh", vec![0; zeros]);
    place.yes(&format!("verity format small fresh {salt}"));
    assert!(place.read("fresh") == shorter);
    place.yes(&format!("verity format data tree {salt}"));
    assert!(place.read("tree") == tree);
    // An image that becomes shorter, and longer again, has parity of the length that tells its roots.
    std::fs::remove_file(place.path("tree")).unwrap();
    std::fs::remove_file(place.path("fec")).unwrap();
    for data in ["data", "small", "data"] {
        place.yes(&format!("verity format {data} tree --fec-device fec"));
        let blocks = (place.read(data).len() + place.read("tree").len() - 4096) / 4096;
        assert_eq!(place.read("fec").len(), blocks.div_ceil(253) * 2 * 4096, "{data}");
    }
}

/// Anything can be the lowest level of a forged tree.
#[test]
fn what_is_known_is_asked_for_also_where_it_is_called_a_tree() {
    let place = place();
    place.file("small", &place.read("data")[..1 << 20]);
    place.file("middle", &place.read("data")[..2 << 20]);
    place.yes("verity format middle tree --salt -");
    let fs = place.read("ext4")[..4 * 4096].to_vec();
    place.file("fs", &fs);
    place.sh("split -b 4096 fs block; for b in blocka?; do sha256sum $b | cut -c1-64; done >digests");
    let text = place.read("digests");
    let digests = String::from_utf8(text).unwrap();
    let mut top: Vec<u8> = digests
        .lines()
        .flat_map(|line| (0..32).map(|at| u8::from_str_radix(&line[2 * at..2 * at + 2], 16).unwrap()))
        .collect();
    top.resize(4096, 0);
    let superblock = &place.read("tree")[..4096];
    for (name, at) in [("h", 0), ("disk", 1 << 20)] {
        place.file(name, [&vec![0; at][..], superblock, &top, &fs, &place.read("noise")[..8192]].concat());
        let line = format!("verity format small {name} --hash-offset {at}");
        let said = format!("{name} contains an ext2, ext3 or ext4 file system at byte {}", at + 8192);
        refuses(&place, name, &[(line, &said)]);
    }
}

/// The length of parities of two images is that of one with more roots, and a file of the right length may be anything.
#[test]
fn an_update_knows_its_own_parity_by_more_than_its_length() {
    let place = place();
    let noise = place.read("noise");
    let data = place.read("data");
    let parity = {
        place.yes("verity format data tree --salt 0102 --fec-device fec");
        place.read("fec")
    };
    for behind in [&parity[..], &noise[..parity.len()]] {
        for (changed, more) in [(4096, ""), (4096, " --fec-roots 4"), (1 << 20, ""), (4 << 20, "")] {
            place.file("data", &data);
            let old = root_hash(&place.yes("verity format data tree --salt 0102 --overwrite"));
            place.file("two", [&parity[..], behind].concat());
            place.file("data", [&noise[..changed], &data[changed..]].concat());
            let before = place.read("two");
            let line = format!(
                "verity update data tree --changed 0+{changed} --old-root-hash {old} --fec-device two{more}"
            );
            let output = place.own(&line);
            let kept = place.read("two")[parity.len()..] == before[parity.len()..];
            assert!(kept, "{line}: {} {}", status(&output), stderr(&output));
        }
    }
    // What the kernel is told is what the contents say.
    place.file("data", &data);
    let root = root_hash(&place.yes("verity format data tree --salt 0102 --overwrite"));
    place.file("two", [&parity[..], &parity[..]].concat());
    let table = place.own(&format!("verity table data tree {root} --fec-device two --print=table"));
    assert!(stdout(&table).trim_end().ends_with(" fec_roots 2"), "{}", stdout(&table));
    assert!(stderr(&table).contains("two has 2 roots by its contents"), "{}", stderr(&table));
    // Files of the length of its own.
    for (changed, other) in [(4096, &noise[..parity.len()]), (4096, &vec![b'\n'; parity.len()][..])] {
        place.file("data", &data);
        let old = root_hash(&place.yes("verity format data tree --salt 0102 --overwrite"));
        place.file("other", other);
        place.file("data", [&noise[..changed], &data[changed..]].concat());
        let line =
            format!("verity update data tree --changed 0+{changed} --old-root-hash {old} --fec-device other");
        refuses(&place, "other", &[(line, "other contains data that are not parity of these data")]);
    }
}

/// A build replaces its earlier outputs, and not what somebody has put behind them.
#[test]
fn a_build_replaces_its_own_hash_area_and_parity_alone() {
    let place = place();
    std::fs::create_dir(place.path("few")).unwrap();
    place.file("few/file", "contents");
    let build = "ext4 build image --from few --dm-verity h --fec-device f";
    place.yes(build);
    place.yes(build);
    for file in ["h", "f"] {
        let mut longer = place.read(file);
        longer.extend([7; 4096]);
        let whole = place.read(file);
        place.file(file, longer);
        let image = place.read("image");
        refuses(&place, file, &[(build.into(), "contains data of no known kind")]);
        assert!(place.read("image") == image);
        place.file(file, whole);
    }
    place.yes(build);
}
