//! The verity commands, run as a user runs them, beside the real tool where it is installed.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use casemate_testkit::{Place, Rng, slow_tests, status, stderr, stdout, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Pins what is random otherwise.
const PINNED: &str = "--salt=00112233445566778899aabbccddeeff --uuid=5e34f531-3859-825c-fad6-33289ccfcb92";

/// A folder for `casemate verity`.
fn place() -> Place {
    Place::under(CASEMATE, "verity")
}

fn root_hash(printed: &str) -> String {
    let line = printed.lines().find_map(|line| line.strip_prefix("Root hash:"));
    line.unwrap_or_else(|| panic!("no root hash in {printed}")).trim().to_owned()
}

/// Both tools with the same words: output, status, and the files that are there afterwards.
#[test]
fn under_its_name_it_is_veritysetup() {
    let Some(tool) = tool("veritysetup") else { return };
    let (theirs, ours) = (place(), place());
    let link = ours.link("veritysetup");
    symlink(&tool, theirs.path("veritysetup")).unwrap();
    let data = Rng::new(1).bytes(300 * 4096 + 17);
    let mut other = data.clone();
    other[9] ^= 1;
    for place in [&theirs, &ours] {
        place.file("data", &data);
        place.file("other", &other);
        place.file("short", &data[..100]);
        place.file("same", &data[..40_960]);
        place.file("root", b"97356c550db0ff96971e1a44bd6d242eb58f20d613abe48e885f91528ea6914a\n");
    }
    let mut lines: Vec<String> = [
        "format data h1 --root-hash-file=r1",
        "format data h2 --format=0 --hash sha1 --data-block-size=1024 --hash-block-size=512",
        "--hash-block-size 1024 format data h3 -h sha512 --data-blocks 100 --root-hash-file=r3",
        "format data h4 --no-superblock",
        "format data h5 --hash-offset=5120 --root-hash-file=r5",
        "format same same --data-blocks=10 --hash-offset=40960",
        "-v format data h6 --fec-device=f6",
        "format data h7 --fec-device=f7 --fec-roots=24",
        "format data h8 --hash-offset 0 --fec-device h8 --fec-offset 20480",
        "dump h1",
        "dump -v h2",
        "dump h5 --hash-offset=5120",
        "dump h5",
        "dump data",
        "dump nothing",
        "dump",
        "format data h9 --data-block-size=1000",
        "format data h9 --hash-block-size=0x200",
        "format data h9 --hash-block-size=1e3",
        "format data h11 --hash-block-size=01024",
        "format data h9 --hash-offset=-5",
        "format data h9 --hash=nohash",
        "format data h9 --format=2",
        "format data h9 --hash-offset=100",
        "format data h9 --salt=0",
        "format data h9 --uuid=0",
        "format data h9 --fec-device=f9 --data-block-size=512 --hash-block-size=512 --fec-roots=2",
        "format data h10 --fec-device=f10 --fec-roots=25",
        "format data none/h9",
        "format nothing h9",
        "format short h9",
        "format same same --data-blocks=10 --hash-offset=40448",
        "verify data h1",
        "verify data h1 zz",
        "verify data h1 1234",
        "verify data nothing 1234",
        "verify data data 1234",
        "verify short h1 97356c550db0ff96971e1a44bd6d242eb58f20d613abe48e885f91528ea6914a",
        "-v verify data h1 97356c550db0ff96971e1a44bd6d242eb58f20d613abe48e885f91528ea6914a",
        "verify data h1 --root-hash-file=root",
        // What the superblock says counts, whatever else is said.
        "format data h12 --fec-device=f12 --data-block-size=8192 --hash-block-size=8192 --root-hash-file=r12",
        "verify data h12 --fec-device=f12 --root-hash-file=r12",
        "verify data h12 --fec-device=f12 --root-hash-file=r12 --hash-block-size=8192",
        "verify other h12 --fec-device=f12 --root-hash-file=r12 --hash-block-size=8192",
        "verify data h12 --fec-device=f12 --root-hash-file=root",
        "verify data h1 --fec-device=f6 --root-hash-file=r1 --hash-block-size=8192",
        "verify data h3 --fec-device=f6 --root-hash-file=r3",
        "verify data h1 --fec-device=none --root-hash-file=r1",
        "verify data h1 --fec-device=f6 --fec-roots=40 --root-hash-file=r1",
        "verify data h1 --fec-device=root --root-hash-file=r1",
        "verify other h1 --fec-device=f6 --root-hash-file=r1 --hash-block-size=512",
        "verify other h1 --fec-device=f6 --root-hash-file=r1 --fec-roots=40",
        "verify other h3 --fec-device=f6 --root-hash-file=r3",
        "verify data h1 --root-hash-file=root --hash sha512 --data-block-size=512 --salt=00 --data-blocks=4 --format=0",
    ]
    .map(str::to_owned)
    .to_vec();
    for line in &mut lines {
        if line.contains("format") && !line.contains("--salt") && !line.contains("--uuid") {
            *line += &format!(" {PINNED}");
        }
    }
    for line in lines {
        let (expected, found) = (theirs.run(&tool, &line), ours.run(&link, &line));
        assert_eq!(stdout(&found), stdout(&expected), "{line}: {}", stderr(&found));
        assert_eq!(status(&found), status(&expected), "{line}: {}", stderr(&found));
        // Some messages are given twice there, some are about the machine.
        let said = stderr(&expected);
        let said: Vec<_> = said.lines().collect();
        if status(&expected) != 0 && !said.iter().any(|line| line.contains("Usage")) && !line.contains("none")
        {
            let own = stderr(&found);
            assert_eq!(own.lines().collect::<Vec<_>>(), dedup(said), "{line}");
        }
    }
    // It leaves files behind when it refuses something; we do not.
    let left: Vec<_> = theirs.names().into_iter().filter(|name| !ours.names().contains(name)).collect();
    assert_eq!(left, ["f10", "h10"]);
    for name in ours.names() {
        assert!(ours.read(&name) == theirs.read(&name) || name == "veritysetup", "{name} differs");
    }
}

fn dedup(mut lines: Vec<&str>) -> Vec<&str> {
    lines.dedup();
    lines
}

/// Damage anywhere: both tools say the same and have the same status.
#[test]
fn damage_is_reported_as_veritysetup_does() {
    let Some(tool) = tool("veritysetup") else { return };
    let place = place();
    let link = place.link("veritysetup");
    let mut rng = Rng::new(2);
    let rounds = if slow_tests() { 400 } else { 40 };
    for round in 0..rounds {
        let blocks = 1 + rng.below(200);
        place.file("data", rng.bytes(blocks as usize * 1024));
        let _ = fs::remove_file(place.path("hash"));
        let hash_block = [512, 1024, 4096][rng.below(3) as usize];
        let algorithm = ["sha1", "sha256", "sha384"][rng.below(3) as usize];
        let hash_type = rng.below(2);
        let options = format!(
            "--format={hash_type} --hash={algorithm} --data-block-size=1024 --hash-block-size={hash_block}"
        );
        let root = root_hash(&place.yes(&format!("format data hash {options}")));
        for _ in 0..rng.below(4) {
            let name = ["data", "hash"][rng.below(2) as usize];
            // Not the superblock.
            let first = if name == "hash" { hash_block.max(512) } else { 0 };
            let len = place.read(name).len() as u64;
            if len > first {
                place.flip(name, (first + rng.below(len - first)) as usize, 1 << rng.below(8));
            }
        }
        let line = format!("verify data hash {root}");
        let (expected, found) = (place.run(&tool, &line), place.run(&link, &line));
        assert_eq!(stderr(&found), stderr(&expected), "round {round}: {options}, {blocks} blocks");
        assert_eq!(status(&found), status(&expected), "round {round}: {options}, {blocks} blocks");
        // Ours says no exactly if something is wrong.
        assert_eq!(status(&place.own(&line)) != 0, status(&expected) != 0, "round {round}");
    }
}

/// A yes says of how much, and of how much not.
#[test]
fn verify_tells_how_much_the_root_hash_protects() {
    let place = place();
    let data = Rng::new(5).bytes(10 * 4096 + 1000);
    place.file("data", &data[..10 * 4096]);
    place.file("longer", data);
    let root = root_hash(&place.yes(&format!("format data hash {PINNED}")));
    for (name, behind, said) in [
        ("data", 0, "casemate: data: verified, 10 data blocks\n"),
        (
            "longer",
            1000,
            "casemate: longer: verified, 10 data blocks; the root hash says nothing of the 1000 bytes behind them\n",
        ),
    ] {
        assert_eq!(stderr(&place.own(&format!("verify {name} hash {root} -v"))), said);
        let value: serde_json::Value =
            serde_json::from_str(&place.yes(&format!("verify {name} hash {root} --json"))).unwrap();
        assert_eq!((&value["data_blocks"], &value["unprotected_bytes"]), (&10.into(), &behind.into()));
    }
    // Its hash area and its parity lie behind the data, and nothing else.
    let one = "data data --hash-offset 40960 --fec-device data --fec-offset 65536";
    let root = root_hash(&place.yes(&format!("format {one} {PINNED} --data-blocks 10")));
    let value = place.yes(&format!("verify {one} {root} --json"));
    let value: serde_json::Value = serde_json::from_str(&value).unwrap();
    // The gap between both.
    assert_eq!(value["unprotected_bytes"], 65536 - 40960 - 2 * 4096, "{value}");
}

#[test]
fn verify_names_every_bad_block() {
    let place = place();
    place.file("data", Rng::new(3).bytes(300 * 4096));
    let root = root_hash(&place.yes(&format!("format data hash {PINNED}")));
    assert_eq!(place.yes(&format!("verify data hash {root}")), "");
    let before = place.read("hash");
    place.flip("data", 5 * 4096 + 1, 1);
    place.flip("data", 299 * 4096, 1);
    // Superblock, top block, then level 0: the second block, which is over data blocks 128 to 255.
    place.flip("hash", 3 * 4096 + 7, 1);
    let output = place.own(&format!("verify data hash {root}"));
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    let starts = [
        "hash block 1 of level 0, at byte 12288 of the hash device: digest ",
        "data block 5: digest ",
        "data block 128: digest ",
        "data block 299: digest ",
        "data blocks 128 to 255: can't be verified, a hash block above them is bad",
        "Verification failed: 2 bad data blocks, 1 bad hash block, 128 data blocks that can't be verified",
    ];
    assert_eq!((lines.len(), status(&output), &*stderr(&output)), (starts.len(), 1, ""), "{text}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    assert!(lines[2].contains("expected by a block that is bad itself"), "{text}");

    let output = place.own(&format!("verify --json data hash {root}"));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status(&output), 1);
    assert_eq!(value["verified"], false);
    assert_eq!(value["bad_data_ranges"], serde_json::json!([[5, 6], [299, 300]]));
    assert_eq!(value["unverified_data_ranges"], serde_json::json!([[128, 256]]));
    assert_eq!(value["findings"].as_array().unwrap().len(), 4);
    assert_eq!(value["findings"][0]["hash_device_offset"], 12288);

    // Of many the first ones are shown, and all of them where somebody asks.
    place.file("data", Rng::new(4).bytes(300 * 4096));
    place.file("hash", &before);
    let shown = |options: &str| {
        let output = place.own(&format!("verify data hash {root}{options}"));
        let text = stdout(&output);
        assert_eq!(status(&output), 1, "{text}");
        (text.lines().filter(|line| line.starts_with("data block ")).count(), text)
    };
    let (lines, text) = shown("");
    assert!(lines == 20 && text.contains("\nand 280 more wrong blocks; --verbose shows all\n"), "{text}");
    assert!(text.ends_with("Verification failed: 300 bad data blocks, 0 bad hash blocks\n"), "{text}");
    let (lines, text) = shown(" --verbose");
    assert!(lines == 300 && !text.contains("more wrong blocks"), "{text}");
    let value: serde_json::Value = serde_json::from_str(&shown(" --json").1).unwrap();
    assert_eq!(value["findings"].as_array().unwrap().len(), 300);

    let wrong = place.own(&format!("verify data hash {}", "00".repeat(32)));
    assert_eq!(status(&wrong), 1);
    assert!(stdout(&wrong).contains("300 data blocks that can't be verified"), "{}", stdout(&wrong));
}

#[test]
fn a_seed_makes_the_same_image_each_time() {
    let place = place();
    place.file("data", Rng::new(4).bytes(20 * 4096));
    let seed = "--seed=5e34f531-3859-825c-fad6-33289ccfcb92";
    let first = place.yes(&format!("format data one {seed} --root-hash-file=root"));
    let second = place.yes(&format!("format data two {seed}"));
    assert_eq!(place.read("one"), place.read("two"));
    assert_eq!(root_hash(&first), root_hash(&second));
    assert_eq!(String::from_utf8(place.read("root")).unwrap(), root_hash(&first));
    place.yes("format data three --seed=other");
    assert_ne!(place.read("one"), place.read("three"));
    let json: serde_json::Value =
        serde_json::from_str(&place.yes(&format!("format --json data four {seed}"))).unwrap();
    assert_eq!(json["root_hash"], root_hash(&first));
    assert_eq!((&json["data_blocks"], &json["hash_start_block"]), (&20.into(), &1.into()));
    // HMAC-SHA256 of "verity-salt" under the UUID's bytes, by Python's hmac.
    assert_eq!(json["salt"], "ea2724ce4cf2f72b0001bf2f4eaf2b866dff47bb4e9c7a01346d0c31c9fb41f7");
}

#[test]
fn tables_and_kernel_arguments() {
    let place = place();
    place.file("data", Rng::new(5).bytes(20 * 4096));
    let root = root_hash(&place.yes(&format!("format data hash {PINNED} --fec-device=fec --fec-roots=4")));
    let line = format!(
        "0 160 verity 1 /dev/vda /dev/vdb 4096 4096 20 1 sha256 {root} 00112233445566778899aabbccddeeff"
    );
    let names = "--data-name=/dev/vda --hash-name=/dev/vdb";
    let text = place.yes(&format!("table data hash {root} {names} --name=root"));
    let uuid = |digits: &str| {
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..32]].join("-")
    };
    let expected = format!(
        "Table:              \t{line}\nKernel argument:    \tdm-mod.create=\"root,,,ro,{line}\"\n\
         Root argument:      \troot=/dev/dm-0\nSystemd arguments:  \troothash={root} systemd.verity_root_data=/dev/vda \
         systemd.verity_root_hash=/dev/vdb\nData partition UUID:\t{}\nHash partition UUID:\t{}\n",
        uuid(&root[..32]),
        uuid(&root[32..])
    );
    assert_eq!(text, expected);
    let options =
        "--panic-on-corruption --ignore-zero-blocks --fec-device=fec --fec-roots=4 --fec-name=/dev/vdc";
    let text = place.yes(&format!("table data hash {root} {names} {options} --print=table"));
    let options = "10 panic_on_corruption ignore_zero_blocks use_fec_from_device /dev/vdc fec_start 0 \
        fec_blocks 21 fec_roots 4";
    assert_eq!(text, format!("{line} {options}\n"));
    let wrong = place.own(&format!("table data hash {root} --data-name=/dev/vd,a --print=kernel-argument"));
    assert_eq!(status(&wrong), 2);
    let json: serde_json::Value =
        serde_json::from_str(&place.yes(&format!("table --json data hash {root} {names}"))).unwrap();
    assert_eq!(json["table"], line);
    // A file is no device.
    let own = place.own(&format!("table data hash {root} --data-name=/dev/vda --verbose"));
    assert!(
        stderr(&own).contains("hash is a file") && stderr(&own).contains("--hash-name"),
        "{}",
        stderr(&own)
    );
    assert!(!stderr(&own).contains("--data-name"), "{}", stderr(&own));
}

/// A tree behind the data is in the data's device, also by its name, and what reads finds it.
#[test]
fn a_tree_behind_a_file_system_needs_no_offset_and_no_second_name() {
    let place = place();
    std::fs::create_dir(place.path("tree")).unwrap();
    place.file("tree/f", Rng::new(9).bytes(50_000));
    let line = "ext4 build root.img --from tree --dm-verity append --root-hash-file root.txt";
    let made = Command::new(CASEMATE).args(line.split(' ')).current_dir(place.folder()).output().unwrap();
    assert_eq!(status(&made), 0, "{}", stderr(&made));
    let told = stdout(&made);
    let root = root_hash(&told);
    let offset = told.lines().find_map(|line| line.strip_prefix("Hash offset:")).unwrap().trim();
    let offset = offset.strip_suffix(" [bytes]").unwrap();
    let advice = told.lines().find_map(|line| line.strip_prefix("$ casemate verity ")).unwrap();
    assert_eq!(advice, "verify root.img --root-hash-file=root.txt");
    place.yes(advice);
    place.yes(&format!("{advice} --hash-offset {offset}"));
    // The word behind the data is the root hash, and the hash device if that is told otherwise.
    for line in ["verify root.img @root.txt", "verify root.img root.img @root.txt"] {
        place.yes(line);
    }
    place.yes(&format!("verify root.img {root}"));
    place.yes(&format!("verify root.img root.img --root-hash-file=root.txt --hash-offset {offset}"));
    place.file(&root[..], place.read("root.img"));
    place.yes(&format!("verify root.img {root} --root-hash-file=root.txt --hash-offset {offset}"));
    assert_eq!(status(&place.own(&format!("verify root.img {root}"))), 2, "a file of this name");
    std::fs::remove_file(place.path(&root)).unwrap();
    place.is("verify tree/f @root.txt", 2, "name that behind DATA_DEVICE");
    place.is("verify root.img", 2, "no root hash");
    place.is("verify root.img root.txt", 2, "; @root.txt reads it from that file");
    for line in ["format root.img", "update root.img --changed 5000+1"] {
        place.is(line, 2, "<HASH_DEVICE>");
    }
    // The root hash is still what decides, and must be given.
    let other = place.own(&format!("verify root.img root.img {}", "00".repeat(32)));
    assert_eq!(status(&other), 1, "{}", stderr(&other));
    assert_eq!(status(&place.own("verify root.img root.img")), 2);
    place.flip("root.img", 5000, 1);
    assert_eq!(status(&place.own(advice)), 1);
    // Of two files each has its own area, and what writes is told where.
    let copy = place.read("root.img");
    place.file("copy.img", copy);
    assert_eq!(status(&place.own(&format!("verify root.img copy.img {root}"))), 2);
    let update = place.own("update root.img root.img --changed 5000+1");
    assert!(
        status(&update) == 2 && stderr(&update).contains(&format!("--hash-offset {offset}")),
        "{}",
        stderr(&update)
    );
    let table = place.yes(&format!("table root.img {root} --data-name=PARTUUID=12345678-02"));
    let named = place.yes(&format!("table root.img root.img {root} --data-name=PARTUUID=12345678-02"));
    assert_eq!(table, named);
    assert!(table.contains(" PARTUUID=12345678-02 PARTUUID=12345678-02 4096 4096 "), "{table}");
    assert!(table.contains("systemd.verity_root_hash=PARTUUID=12345678-02"), "{table}");
    assert!(table.contains(&format!("systemd.verity_root_options=hash-offset={offset}\n")), "{table}");
    assert!(!table.contains("partition UUID"), "{table}");
}

#[test]
fn an_update_gives_what_formatting_would() {
    let place = place();
    let data = Rng::new(6).bytes(1000 * 4096);
    place.file("data", &data);
    let fec = "--fec-device=fec";
    let old = root_hash(&place.yes(&format!("format data hash {PINNED} {fec}")));
    place.flip("data", 4096 * 4096 / 10, 1);
    place.flip("data", 999 * 4096 + 5, 1);
    let changed = format!("--changed={}+1 --changed={}+10", 4096 * 4096 / 10, 999 * 4096);
    let wrong = place.own(&format!("update data hash {changed} --old-root-hash={}", "00".repeat(32)));
    assert_eq!(status(&wrong), 2, "{}", stderr(&wrong));
    assert_eq!(status(&place.own(&format!("verify data hash {old}"))), 1);
    let new = root_hash(&place.yes(&format!("update data hash {changed} --old-root-hash={old} {fec}")));
    assert_eq!(root_hash(&place.yes(&format!("format data fresh {PINNED} --fec-device=fresh-fec"))), new);
    assert!(place.read("hash") == place.read("fresh"));
    assert!(place.read("fec") == place.read("fresh-fec"));
    place.yes(&format!("verify data hash {new} {fec}"));
    let beyond = place.own("update data hash --changed=4096000+1");
    assert_eq!(status(&beyond), 2, "{}", stderr(&beyond));
}

#[test]
fn damage_is_repaired() {
    let place = place();
    let data = Rng::new(7).bytes(600 * 4096);
    place.file("data", &data);
    let fec = "--fec-device=fec --fec-roots=8";
    let root = root_hash(&place.yes(&format!("format data hash {PINNED} {fec}")));
    let hash = place.read("hash");
    for block in [3, 100, 400, 401] {
        place.flip("data", block * 4096 + 9, 0x55);
    }
    place.flip("hash", 3 * 4096, 1);
    let damaged = (place.read("data"), place.read("hash"));

    let verified = place.own(&format!("verify data hash {root} {fec}"));
    assert_eq!(status(&verified), 1);
    let offer = "can restore 4 data blocks and 1 hash blocks: that is all";
    assert!(stdout(&verified).contains(offer), "{}", stdout(&verified));
    let dry = place.yes(&format!("repair data hash {root} {fec} --dry-run"));
    assert_eq!(dry, "4 data blocks and 1 hash blocks can be restored.\n");
    assert!((place.read("data"), place.read("hash")) == damaged);
    let done = place.yes(&format!("repair data hash {root} {fec}"));
    assert_eq!(done, "Restored 4 data blocks and 1 hash blocks.\n");
    assert!(place.read("data") == data && place.read("hash") == hash);
    assert_eq!(place.yes(&format!("repair data hash {root} {fec}")), "Nothing is damaged.\n");
    assert_eq!(place.yes(&format!("verify data hash {root} {fec}")), "");

    // The size of the parity tells how it was made; whoever says something else is told.
    place.flip("data", 9 * 4096, 1);
    let dry = place.yes(&format!("repair data hash {root} --fec-device=fec --dry-run"));
    assert_eq!(dry, "1 data blocks and 0 hash blocks can be restored.\n");
    let wrong = place.own(&format!("repair data hash {root} --fec-device=fec --fec-roots=2"));
    let note = "casemate: note: fec has the size of parity with 8 roots; --fec-roots 8?\n";
    assert_eq!((status(&wrong), &*stderr(&wrong)), (1, note));
    let table = place.yes(&format!("table data hash {root} --fec-device=fec --print=table"));
    assert!(table.trim_end().ends_with(" fec_roots 8"), "{table}");
    let done = place.yes(&format!("repair data hash {root} --fec-device=fec"));
    assert_eq!(done, "Restored 1 data blocks and 0 hash blocks.\n");
    assert!(place.read("data") == data && place.read("hash") == hash);
    assert_eq!(status(&place.own(&format!("verify data hash {root} --fec-roots=8"))), 2);

    place.flip("fec", 100, 1);
    let parity = place.own(&format!("verify data hash {root} {fec}"));
    assert_eq!(status(&parity), 1);
    assert!(stdout(&parity).contains("the parity of 1 rounds is wrong"), "{}", stdout(&parity));

    // Far more than the parity can restore.
    let mut bytes = data;
    bytes[..100 * 4096].fill(0);
    place.file("data", &bytes);
    let hopeless = place.own(&format!("repair --json data hash {root} {fec}"));
    let value: serde_json::Value = serde_json::from_slice(&hopeless.stdout).unwrap();
    assert_eq!((status(&hopeless), &value["verified"]), (1, &false.into()));
}

/// Data and tree are what the root hash says: the parity is made of them again, but over nothing that may be something else.
#[test]
fn damaged_parity_is_made_again() {
    let place = place();
    let data = Rng::new(7).bytes(600 * 4096);
    place.file("data", &data);
    let fec = "--fec-device=fec --fec-roots=8";
    let root = root_hash(&place.yes(&format!("format data hash {PINNED} {fec}")));
    let (hash, parity) = (place.read("hash"), place.read("fec"));
    let rounds = parity.len() / 8 / 4096;

    // A part of it, with a block of the data that the rest restores.
    place.flip("fec", 100, 1);
    place.flip("data", 2 * 4096, 1);
    let damaged = (place.read("data"), place.read("fec"));
    let dry = place.yes(&format!("repair data hash {root} {fec} --dry-run"));
    assert_eq!(
        dry,
        "1 data blocks and 0 hash blocks can be restored.\nThe parity of 1 rounds can be made again.\n"
    );
    assert!((place.read("data"), place.read("fec")) == damaged);
    let done = place.yes(&format!("repair data hash {root} {fec}"));
    assert_eq!(done, "Restored 1 data blocks and 0 hash blocks.\nMade the parity of 1 rounds again.\n");
    assert!(place.read("data") == data && place.read("fec") == parity && place.read("hash") == hash);

    // All of it.
    place.file("fec", vec![0; parity.len()]);
    let output = place.is(&format!("repair --json data hash {root} {fec}"), 0, "");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        value["fec"],
        serde_json::json!({"wrong_rounds": 0, "unreadable_rounds": 0, "repaired_rounds": rounds})
    );
    assert!(place.read("fec") == parity);
    assert_eq!(place.yes(&format!("repair data hash {root} {fec}")), "Nothing is damaged.\n");

    // A file of which no part is the parity.
    let other = Rng::new(8).bytes(parity.len());
    place.file("fec", &other);
    let line = format!("repair data hash {root} {fec}");
    for (line, is_json) in
        [(line.clone(), false), (format!("{line} -n"), false), (format!("{line} --json"), true)]
    {
        let output =
            place.is(&line, 1, "fec contains data that are not parity of these data; use --overwrite");
        assert!(place.read("fec") == other, "{line}");
        if is_json {
            let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(
                value["fec"],
                serde_json::json!({"wrong_rounds": rounds, "unreadable_rounds": 0, "repaired_rounds": 0})
            );
        } else {
            let said = format!("Verification failed: the parity of {rounds} rounds is wrong\n");
            assert_eq!(stdout(&output), said, "{line}");
        }
    }
    place.yes(&format!("{line} --overwrite"));
    assert!(place.read("fec") == parity);

    // One bit of each round: all other codewords are right.
    let mut flipped = parity.clone();
    flipped.chunks_mut(8 * 4096).for_each(|round| round[100] ^= 1);
    place.file("fec", &flipped);
    assert_eq!(place.yes(&line), format!("Made the parity of {rounds} rounds again.\n"));
    assert!(place.read("fec") == parity);

    // As before, parity that can't be written restores blocks.
    place.file("data", &damaged.0);
    let mut mode = fs::metadata(place.path("fec")).unwrap().permissions();
    mode.set_readonly(true);
    fs::set_permissions(place.path("fec"), mode).unwrap();
    place.yes(&line);
    assert!(place.read("data") == data);
}

/// One bad sector is what parity is for: it is a damaged block with a number, and the others are looked at.
#[test]
fn sectors_that_can_not_be_read_are_damaged_blocks() {
    let Some(cc) = tool("cc") else { return };
    let place = place();
    let data = Rng::new(7).bytes(600 * 4096);
    place.file("data", &data);
    let root = root_hash(&place.yes(&format!("format data hash {PINNED} --fec-device fec")));
    let (hash, parity) = (place.read("hash"), place.read("fec"));
    // Reads of one file fail where they touch a sector.
    place.file(
        "shim.c",
        r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
ssize_t pread64(int fd, void *b, size_t n, off_t o) {
    static ssize_t (*next)(int, void *, size_t, off_t);
    struct stat here, there;
    long bad = atol(getenv("BAD_AT"));
    if (!next) next = dlsym(RTLD_NEXT, "pread64");
    if (o < bad + 512 && bad < o + (long)n && !stat(getenv("BAD_FILE"), &there) && !fstat(fd, &here)
        && here.st_ino == there.st_ino && here.st_dev == there.st_dev) { errno = EIO; return -1; }
    return next(fd, b, n, o);
}
ssize_t pread(int fd, void *b, size_t n, off_t o) { return pread64(fd, b, n, o); }
"#,
    );
    place.sh(&format!("{} -shared -fPIC -o shim.so shim.c -ldl", cc.display()));
    let failing = |file: &str, at: usize, line: &str| {
        let mut command = place.command();
        command.args(line.split_whitespace()).env("LD_PRELOAD", place.path("shim.so"));
        command.env("BAD_FILE", place.path(file)).env("BAD_AT", at.to_string());
        casemate_testkit::run_any(&mut command)
    };
    let fec = "--fec-device fec";
    let output = failing("data", 10 * 4096 + 512, &format!("verify data hash {root}"));
    let said = "data block 10: can't be read: Input/output error\n\
                Verification failed: 0 bad data blocks, 0 bad hash blocks, 1 data blocks that can't be read\n";
    assert_eq!((status(&output), &*stdout(&output)), (2, said), "{}", stderr(&output));
    let output = failing("data", 10 * 4096 + 512, &format!("verify data hash {root} {fec} --json"));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = serde_json::json!({"kind": "data", "index": 10, "fault": "unreadable", "reason": "Input/output error"});
    assert_eq!((status(&output), &value["findings"][0]), (2, &finding));
    assert_eq!(value["unreadable_data_ranges"], serde_json::json!([[10, 11]]));
    assert_eq!(value["fec"]["repairs_all"], true);
    // Block 599 is damaged, too: that is a no. Block 10 is written, but here it can't be read all the same.
    place.flip("data", 599 * 4096, 1);
    assert_eq!(status(&failing("data", 10 * 4096, &format!("verify data hash {root}"))), 1);
    let output = failing("data", 10 * 4096, &format!("repair data hash {root} {fec}"));
    let said = "Restored 2 data blocks and 0 hash blocks.\n\
                Verification failed: 0 bad data blocks, 0 bad hash blocks, 1 data blocks that can't be read\n";
    assert_eq!((status(&output), &*stdout(&output)), (2, said), "{}", stderr(&output));
    assert!(place.read("data") == data);
    // A hash block, and what is below it.
    let output = failing("hash", 4 * 4096, &format!("verify data hash {root}"));
    let text = stdout(&output);
    assert_eq!(status(&output), 2, "{text}");
    assert!(
        text.contains("hash block 2 of level 0, at byte 16384 of the hash device: can't be read"),
        "{text}"
    );
    assert!(!text.contains("data block "), "{text}");
    place.flip("data", 599 * 4096, 1);
    let output = failing("hash", 4 * 4096, &format!("repair data hash {root} {fec} --dry-run"));
    let said = "1 data blocks and 1 hash blocks can be restored.\n";
    assert_eq!((status(&output), &*stdout(&output)), (0, said), "{}", stderr(&output));
    // A sector of the parity of round 0 does not keep round 2 from being restored.
    let output = failing("fec", 4096, &format!("repair data hash {root} {fec}"));
    let said = "Restored 1 data blocks and 0 hash blocks.\nthe parity of round 0 can't be read\n";
    assert_eq!((status(&output), &*stdout(&output)), (2, said), "{}", stderr(&output));
    assert!(place.read("data") == data && place.read("hash") == hash && place.read("fec") == parity);
    let output = failing("fec", 4096, &format!("verify data hash {root} {fec}"));
    assert_eq!((status(&output), &*stdout(&output)), (2, "the parity of round 0 can't be read\n"));
    // An update takes the block as it is, so it names it and stops.
    let output = failing("data", 20 * 4096, "update data hash --changed 0+1 --fec-device fec");
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("data: data block 20 can't be read: Input/output error"));
}

/// An update tells the new root hash somewhere, or leaves the hash area as it was.
#[test]
fn no_output_of_a_format_has_its_name_before_all_are_complete() {
    let place = place();
    place.file("data", Rng::new(11).bytes(300_000));
    for line in
        ["format data hash", "format data hash --fec-device=parity", "--fec-device=parity format data hash"]
    {
        let line = format!("{line} --root-hash-file=/dev/full");
        let mut command = match line.starts_with("--") {
            false => place.command(),
            true => {
                let link = place.path("veritysetup");
                if !link.exists() {
                    symlink(CASEMATE, &link).unwrap();
                }
                let mut command = Command::new(link);
                command.current_dir(place.folder());
                command
            }
        };
        let output = command.args(line.split_whitespace()).output().unwrap();
        assert_ne!(status(&output), 0, "{line}");
        assert_eq!(stdout(&output), "", "{line}");
        assert!(
            !place.path("hash").exists() && !place.path("parity").exists(),
            "{line}: {:?}",
            place.names()
        );
    }
    // A hash area that was written in place is of no use without its root hash.
    place.yes("format data hash --root-hash-file=root --seed=1");
    place.file("hash", vec![0; 65536]);
    let output = place.is("format data hash --root-hash-file=/dev/full --seed=1", 2, "/dev/full: ");
    let root = String::from_utf8(place.read("root")).unwrap();
    assert!(stderr(&output).contains(&root), "{}", stderr(&output));
    place.yes("verify data hash @root");
}

#[test]
fn a_new_root_hash_is_not_lost() {
    let place = place();
    place.file("data", Rng::new(11).bytes(300_000));
    place.yes("format data hash --root-hash-file=root");
    let hash = place.read("hash");
    place.flip("data", 5, 1);
    let run = |words: &str| {
        let script = format!("exec {CASEMATE} -q verity {words}");
        Command::new("sh").args(["-c", &script]).current_dir(place.folder()).output().unwrap()
    };
    let update = "update --changed 5+1 data hash";
    for words in [format!("{update} >&-"), format!("{update} --root-hash-file new >&-")] {
        let output = run(&words);
        assert_eq!(status(&output), 2, "{words}: {}", stderr(&output));
        assert!(place.read("hash") == hash && !place.path("new").exists(), "{words}");
    }
    assert_eq!(status(&run("format data new >&-")), 2);
    assert!(!place.path("new").exists());
    let whole = run(&format!("{update} --old-root-hash @root"));
    let root = root_hash(&stdout(&whole));
    // The file takes nothing, standard output does; then neither.
    for (to, is_said) in [("", false), (" >/dev/full", true)] {
        place.file("hash", &hash);
        let output = run(&format!("{update} --root-hash-file=/dev/full{to}"));
        assert_eq!(status(&output), 2, "{to}: {}", stderr(&output));
        assert_eq!(stdout(&output).contains(&root), !is_said, "{to}: {}", stderr(&output));
        assert_eq!(stderr(&output).contains(&root), is_said, "{to}: {}", stderr(&output));
    }
    // A reader that is gone.
    place.file("hash", &hash);
    let mut command = Command::new(CASEMATE);
    command.args(["verity", "update", "--changed=5+1", "data", "hash"]).current_dir(place.folder());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 141);
    assert!(stderr(&output).contains(&root), "{}", stderr(&output));
    // What has no room for a root hash is known before anything is changed.
    place.file("hash", &hash);
    let script = format!("trap '' XFSZ; ulimit -f 0; exec {CASEMATE} verity {update} --root-hash-file=new");
    let output = Command::new("bash").args(["-c", &script]).current_dir(place.folder()).output().unwrap();
    assert_eq!(status(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).starts_with("casemate: new: File too large"), "{}", stderr(&output));
    assert!(place.read("hash") == hash && !place.path("new").exists());
}

/// Data, hash area and parity in one file, with room between them.
#[test]
fn one_file_holds_everything() {
    let place = place();
    let data = Rng::new(17).bytes(600 * 4096);
    place.file("all", &data);
    let options =
        "--hash-offset=4096000 --data-blocks=600 --fec-device=all --fec-offset=8192000 --fec-roots=3";
    let root = root_hash(&place.yes(&format!("format all all {options}")));
    let whole = place.read("all");
    assert!(whole[..data.len()] == data);
    assert_eq!(place.yes(&format!("verify all all {root} {options}")), "");
    place.flip("all", 100_000, 1);
    place.flip("all", 4096000 + 4096 * 3, 1);
    let overlap = options.replace("8192000", "4096000");
    assert_eq!(status(&place.own(&format!("verify all all {root} {overlap}"))), 2);
    place.yes(&format!("repair all all {root} {options}"));
    assert!(place.read("all") == whole);
}

/// Commands do in partitions of one disk, and through dm-crypt, what they do with bare files.
#[test]
fn layers_lie_below_every_command() {
    let Some(sfdisk) = tool("sfdisk") else { return };
    const MIB: usize = 1 << 20;
    let place = place();
    let data = Rng::new(5).bytes(2 * MIB);
    place.file("data", &data);
    place.file("key", Rng::new(6).bytes(64));
    let bare = place.own(&format!("format data hash {PINNED} --root-hash-file=root"));
    assert_eq!(status(&bare), 0, "{}", stderr(&bare));
    let root = root_hash(&stdout(&bare));
    let area = place.read("hash");

    let parts = "printf 'label: gpt\nstart=2048,size=4096\nstart=6144,size=4096\nstart=10240,size=4096\n'";
    let script = format!("truncate -s 8M disk && {parts} | {} -q disk", sfdisk.display());
    place.sh(&script);
    let key = "--crypt aes-xts-plain64 --key-file key --key-size 512";
    let encrypted = place.run(CASEMATE, "crypt encrypt data cipher --key-file key --key-size 512");
    assert!(encrypted.status.success(), "{}", stderr(&encrypted));
    // Partition 1 has the data, 2 room for the hash area, 3 the data under dm-crypt.
    let mut disk = place.read("disk");
    disk[MIB..3 * MIB].copy_from_slice(&data);
    disk[5 * MIB..7 * MIB].copy_from_slice(&place.read("cipher"));
    place.file("disk", &disk);
    let crypt = "crypt=aes-xts-plain64,key-file=key,key-size=512";
    let hash = "disk,partition=2";
    for places in [
        "disk disk -P 1 --hash-partition 2".to_owned(),
        format!("disk disk -P 3 {key} --hash-partition 2"),
        format!("disk,partition=1 {hash}"),
        "disk,offset=1M,size=2M disk,offset=3M,size=2M".to_owned(),
        format!("disk {hash} -P 1"),
        "disk,partition=1 disk --hash-partition 2".to_owned(),
        format!("disk,partition=3,{crypt} {hash}"),
    ] {
        let layers = &places;
        let made = place.own(&format!("format {places} {PINNED}"));
        assert_eq!(status(&made), 0, "{layers}: {}", stderr(&made));
        assert_eq!(root_hash(&stdout(&made)), root, "{layers}");
        disk[3 * MIB..3 * MIB + area.len()].copy_from_slice(&area);
        assert!(place.read("disk") == disk, "{layers}: nothing but the hash area was written");
        let verified = place.own(&format!("verify {places} {root}"));
        assert_eq!(status(&verified), 0, "{layers}: {}", stderr(&verified));
        let table =
            place.own(&format!("table {places} {root} --print=table --data-name 8:1 --hash-name 8:2"));
        assert!(stdout(&table).contains(&root), "{layers}: {}", stderr(&table));
    }
    for dump in ["dump disk -P 2", "dump disk,partition=2", "dump disk,offset=3M"] {
        let dumped = place.own(dump);
        assert!(stdout(&dumped).contains("5e34f531-3859-825c-fad6-33289ccfcb92"), "{}", stderr(&dumped));
    }
    for (line, said) in [
        ("dump disk,partition=2 -P 2", "give all of them in one place"),
        ("verify disk,partition=1 disk,partition=2 -P 1 00", "give all of them in one place"),
        ("verify disk,partition=1 disk,partition=2 --hash-partition 2 00", "give all of them in one place"),
        ("verify disk,partition=1,ext4,superblock=1 disk,partition=2 00", "leave ext4 out"),
    ] {
        let refused = place.own(line);
        assert!(status(&refused) == 2 && stderr(&refused).contains(said), "{line}: {}", stderr(&refused));
    }
    // Where both are one place, the hash area lies behind the data there.
    let behind = "disk,partition=3 disk,partition=3 --data-blocks 128 --hash-offset 1M";
    let before = place.read("disk");
    let made = place.own(&format!("format {behind} {PINNED} --overwrite"));
    assert_eq!(status(&made), 0, "{}", stderr(&made));
    let verified = place.own(&format!("verify {behind} {}", root_hash(&stdout(&made))));
    assert_eq!(status(&verified), 0, "{}", stderr(&verified));
    assert!(place.read("disk")[..6 * MIB] == before[..6 * MIB]);
    place.file("disk", before);
    assert_eq!(status(&place.own("dump disk -P 1")), 2);
    let wrong = place.own(&format!("verify disk hash -P 2 {root}"));
    assert_eq!(status(&wrong), 1, "{}", stderr(&wrong));

    // Parity beside, damage below dm-crypt, and a change that moves the root hash.
    let places = format!("disk,partition=3,{crypt} hash --fec-device=fec");
    assert_eq!(status(&place.own(&format!("format {places} {PINNED}"))), 0);
    place.flip("disk", 5 * MIB + 9000, 0x10);
    assert_eq!(status(&place.own(&format!("verify {places} {root}"))), 1);
    let repaired = place.own(&format!("repair {places} {root}"));
    assert_eq!(status(&repaired), 0, "{}", stderr(&repaired));
    assert!(place.read("disk") == disk);
    place.flip("disk", 5 * MIB, 1);
    let updated = place.own(&format!("update {places} --changed=0+512 --old-root-hash={root}"));
    assert_eq!(status(&updated), 0, "{}", stderr(&updated));
    let root = root_hash(&stdout(&updated));
    assert_eq!(status(&place.own(&format!("verify {places} {root}"))), 0);
}

#[test]
fn signatures_are_made_and_verified() {
    let Some(openssl) = tool("openssl") else { return };
    let place = place();
    let root = "4392712ba01368efdf14b05c76f9e4df0d53664630b5d48632ed17a137f39076";
    assert_eq!(place.yes(&format!("sign {root} --print-tbs")), root);
    let made = place.run(
        &openssl,
        "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -subj /CN=test -days 2",
    );
    assert_eq!(status(&made), 0, "{}", stderr(&made));
    place.yes(&format!("sign {root} sig --key=key.pem --cert=cert.pem"));
    let said = place.yes(&format!("verify-signature {root} sig --cert=cert.pem"));
    assert!(said.contains("CN=test"), "{said}");
    let other = root.replace('4', "5");
    assert_eq!(status(&place.own(&format!("verify-signature {other} sig --cert=cert.pem"))), 1);
    place.file("tbs", root.as_bytes());
    let checked = place.run(
        &openssl,
        "smime -verify -binary -inform DER -in sig -content tbs -certfile cert.pem -nointern -noverify -out /dev/null",
    );
    assert_eq!(status(&checked), 0, "{}", stderr(&checked));
    place.yes(&format!("sign {root} sig.json --signature=sig --cert=cert.pem --systemd"));
    let partition = place.read("sig.json");
    assert_eq!(partition.len(), 16384);
    let end = partition.iter().position(|byte| *byte == 0).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&partition[..end]).unwrap();
    assert_eq!(json["rootHash"], root);
}

/// One line on standard error, the right status, and nothing left.
#[test]
fn bad_input_gives_one_clear_line() {
    let place = place();
    place.file("data", Rng::new(8).bytes(20 * 4096));
    place.file("empty", b"");
    place.file("text", b"hello ".repeat(1000));
    fs::create_dir(place.path("folder")).unwrap();
    let root = root_hash(&place.yes(&format!("format data hash {PINNED}")));
    let hash = place.read("hash");
    place.file("cut", &hash[..5000]);
    place.file("header", &hash[..512]);
    place.file("shorter", &place.read("data")[..19 * 4096]);
    let names = place.names();
    for (line, code, text) in [
        ("format nothing new", 2, "nothing: No such file"),
        ("format folder new", 2, "folder: "),
        ("format empty new", 2, "empty: there is not one data block to protect"),
        ("format data none/new", 2, "none/new: No such file"),
        ("format data new --hash=sha257", 2, "unknown hash algorithm 'sha257'; known are sha256, "),
        (
            "format data new --data-blocks=21",
            2,
            "the data device has 81920 bytes, too few for 21 data blocks",
        ),
        (
            "format data new --data-blocks=18446744073709551615",
            2,
            "data: 18446744073709551615 data blocks are too many",
        ),
        ("format data new --hash-offset=7", 2, "data: hash offset 7 is not a multiple of 512"),
        ("format data new --data-block-size=4095", 2, "verity block size 4095; it must be a power of two"),
        ("format data new --salt=abc", 2, "the salt is not an even number of hex digits"),
        ("format data new --uuid=abc", 2, "'abc' is not a UUID"),
        ("format data new --format=7", 2, "verity hash type 7; there are 0 and 1"),
        ("format data data", 2, "data area overlaps with hash area"),
        ("format data new --fec-device=fec --fec-roots=1", 2, "1 parity bytes are not supported"),
        ("format data new --fec-device=fec --fec-offset=7", 2, "parity offset 7 is not a multiple"),
        ("format data new --fec-device=new", 2, "the parity at 0 overlaps the data or the hash area in new"),
        (
            "format data new --fec-device=data",
            2,
            "the parity at 0 overlaps the data or the hash area in data",
        ),
        ("dump empty", 2, "empty: no verity superblock at 0: the file has 0 bytes"),
        ("dump text", 2, "text: verity superblock: bad magic"),
        ("dump hash --hash-offset=512", 2, "hash: verity superblock: bad magic"),
        ("verify data hash", 2, "no root hash: give it in hex, as @FILE or with --root-hash-file"),
        ("verify data hash 12", 2, "the root hash has 1 bytes; one of sha256 has 32"),
        ("verify data hash 1x", 2, "'1x' is not a root hash"),
        ("verify data cut ROOT", 2, "the hash device is cut off: it has 5000 bytes and needs 8192"),
        ("verify data header ROOT", 2, "the hash device is cut off: it has 512 bytes and needs 8192"),
        ("verify shorter hash ROOT", 2, "the data device is cut off: it has 77824 bytes and needs 81920"),
        ("verify data text ROOT", 2, "text: verity superblock: bad magic"),
        ("verify data hash ROOT --fec-device=empty", 2, "the parity is cut off"),
        (
            "verify data hash ROOT --hash=sha512",
            2,
            "hash: the hash algorithm in the superblock is sha256, not sha512; leave that option out",
        ),
        ("verify data hash ROOT --format=0", 2, "hash: the format in the superblock is 1, not 0"),
        ("repair data hash ROOT --fec-device=data", 2, "the parity at 0"),
        (
            "update data hash --changed=0+1 --salt=-",
            2,
            "hash: the salt in the superblock is 00112233445566778899",
        ),
        (
            "table data hash ROOT --data-blocks=4",
            2,
            "hash: the number of data blocks in the superblock is 20, not 4",
        ),
        ("repair data hash ROOT", 2, "give the device with the parity: --fec-device"),
        (
            "format data new -h sha512",
            2,
            "-h stands beside other arguments, so nothing was done: --help shows the help; the hash algorithm, veritysetup's -h, is --hash",
        ),
        ("verify data hash -h", 2, "-h stands beside other arguments"),
        ("sign xyz out --signing-key=none", 2, "'xyz' is not a root hash"),
        (
            "sign abcd out --signing-key=none",
            2,
            "a root hash of 2 bytes: digests have 16, 20, 28, 32, 48, 64, so give all of it",
        ),
        (
            "sign abcd --print-tbs",
            2,
            "a root hash of 2 bytes: digests have 16, 20, 28, 32, 48, 64, so give all of it",
        ),
        (
            "verify-signature abcd text --cert=none",
            2,
            "a root hash of 2 bytes: digests have 16, 20, 28, 32, 48, 64, so give all of it",
        ),
    ] {
        let line = line.replace("ROOT", &root);
        let output = place.own(&line);
        let error = stderr(&output);
        assert_eq!(status(&output), code, "{line}: {error}");
        assert_eq!(error.lines().count(), 1, "{line}: {error}");
        let text = format!("casemate: {text}");
        assert!(error.starts_with(&text), "{line}: {error}instead of {text}");
        assert_eq!(stdout(&output), "", "{line}");
        assert_eq!(place.names(), names, "{line}");
    }
}

/// Neither a new file nor one that looks whole is left when the disk is full.
#[test]
fn a_full_disk_leaves_nothing_that_looks_whole() {
    let place = place();
    place.file("data", Rng::new(9).bytes(2000 * 4096));
    let limited = |line: &str| {
        // No file may grow beyond 16 KiB; the signal for that is ignored, so that the error is seen.
        let script = format!("trap '' XFSZ; ulimit -f 16; exec {CASEMATE} verity {line}");
        Command::new("bash").args(["-c", &script]).current_dir(place.folder()).output().unwrap()
    };
    let output = limited("format data new");
    assert_eq!((status(&output), place.names()), (2, vec!["data".to_owned()]), "{}", stderr(&output));
    assert!(stderr(&output).starts_with("casemate: new: File too large"), "{}", stderr(&output));

    // An existing file is written in place: what is left says so, and has no superblock any more.
    let root = root_hash(&place.yes("format data old"));
    let whole = place.read("old");
    place.file("old", &whole[..8192]);
    let output = limited("format data old");
    let error = stderr(&output);
    assert_eq!(status(&output), 2, "{error}");
    assert!(error.contains("old was begun and is not whole, format it again"), "{error}");
    let output = place.own(&format!("verify data old {root}"));
    assert!(stderr(&output).contains("bad magic"), "{}", stderr(&output));
}

#[test]
fn an_answer_is_no_other_for_a_closed_pipe() {
    let place = place();
    place.file("data", Rng::new(10).bytes(3000 * 4096));
    let root = root_hash(&place.yes("format data hash"));
    place.file("data", vec![0; 3000 * 4096]);
    let line = format!("verity verify data hash {root}");
    let mut command = Command::new(CASEMATE);
    command.args(line.split_whitespace()).current_dir(place.folder());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((status(&output), &*stderr(&output)), (1, ""));
}

/// A disk's partition for the hash area lies in the disk: the whole disk is not the data.
#[test]
fn data_that_holds_the_hash_area_is_refused() {
    let Some(sfdisk) = tool("sfdisk") else { return };
    let place = place();
    place.file("disk", Rng::new(7).bytes(8 << 20));
    let table = "label: gpt\nstart=2048, size=8192\nstart=10240, size=2048\nstart=12288, size=2048\n";
    place.file("table", table);
    place.sh(&format!("{} -q disk <table", sfdisk.display()));
    let before = place.read("disk");
    for (line, said) in [
        ("format disk disk --hash-partition 2", "data area overlaps with hash area"),
        ("format disk disk --hash-partition 2 --data-blocks 1281", "data area overlaps with hash area"),
    ] {
        let output = place.own(line);
        assert!(status(&output) == 2 && stderr(&output).contains(said), "{line}: {}", stderr(&output));
        assert!(place.read("disk") == before, "{line}");
    }
    place.yes("format disk disk --partition 1 --hash-partition 2 --overwrite");
    // A larger hash area goes over data behind the one that is there.
    place.yes("format disk disk --hash-partition 2 --data-blocks 1280 --overwrite");
}
