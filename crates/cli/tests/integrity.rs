//! dm-integrity volumes that a kernel made: described, checked and copied, with a journal that was not replayed, too.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use casemate::blockdev::BlockDevice;
use casemate::integrity::{Flags, IntegrityOptions, Keyed, read_key};
use casemate::{Access, Image, Providers, SecretSource};
use casemate_testkit::uml::Uml;
use casemate_testkit::{Place, Rng, mke2fs, run_any, status, stderr, stdout, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Options of integritysetup, and what the key file has.
const VOLUMES: &[(&str, &str)] = &[
    ("--integrity crc32c", ""),
    ("--integrity crc32 --sector-size 4096", ""),
    ("--integrity sha1 --tag-size 20 --interleave-sectors 64", ""),
    ("--integrity sha256 --tag-size 32 --sector-size 4096", ""),
    ("--integrity sha256 --tag-size 8 --sector-size 1024 --integrity-legacy-padding", ""),
    ("--integrity hmac-sha256 --tag-size 32 --sector-size 2048", "a key of twenty bytes"),
    ("--integrity hmac-sha1 --tag-size 32 --integrity-legacy-hmac", "another"),
    ("--integrity crc32c --integrity-bitmap-mode", ""),
    ("--integrity crc32c --data-device data", ""),
    ("--integrity sha256 --tag-size 32 --data-device data", ""),
    (
        "--integrity crc32c --journal-integrity hmac-sha256 --journal-integrity-key-file ../code \
         --journal-integrity-key-size 20",
        "",
    ),
    (
        "--integrity sha256 --tag-size 32 --journal-integrity hmac-sha1 --journal-integrity-key-file ../code \
         --journal-integrity-key-size 20 --journal-crypt ctr-aes --journal-crypt-key-file ../cipher \
         --journal-crypt-key-size 32 --sector-size 4096",
        "",
    ),
    (
        "--integrity crc32c --journal-crypt cbc-aes --journal-crypt-key-file ../cipher --journal-crypt-key-size 32 \
         --sector-size 1024",
        "",
    ),
];

/// Options of `casemate integrity format`, and those with which the kernel opens what it made.
const MADE: &[(&str, &str)] = &[
    ("", "--integrity crc32c"),
    ("--integrity crc32 --sector-size 4096 --interleave-sectors 64", "--integrity crc32"),
    ("--integrity sha256 --sector-size 4096 --journal-size 64K", "--integrity sha256"),
    ("--integrity sha1 --tag-size 16", "--integrity sha1"),
    (
        "--integrity hmac-sha256 --integrity-key-file key5",
        "--integrity hmac-sha256 --integrity-key-file key5 --integrity-key-size 21",
    ),
    (
        "--integrity crc32c --journal-integrity hmac-sha256 --journal-integrity-key-file code --journal-crypt ctr-aes \
         --journal-crypt-key-file cipher",
        "--integrity crc32c --journal-integrity hmac-sha256 --journal-integrity-key-file code \
         --journal-integrity-key-size 20 --journal-crypt ctr-aes --journal-crypt-key-file cipher \
         --journal-crypt-key-size 32",
    ),
    (
        "--integrity sha256 --journal-crypt cbc-aes --journal-crypt-key-file cipher --sector-size 4096",
        "--integrity sha256 --journal-crypt cbc-aes --journal-crypt-key-file cipher --journal-crypt-key-size 32",
    ),
    ("--sector-size 1024", "--integrity crc32c --integrity-bitmap-mode"),
];

/// Formats, opens and writes volumes; keeps one copy of each while the journal holds what was written, and one from after.
const SCRIPT: &str = r#"
make() {
    name=$1 open=$2 format=$3
    mkdir "$name.d"
    cd "$name.d"
    truncate -s 2M image data
    integritysetup format -q --no-wipe --journal-size 262144 $format image
    integritysetup open $open image "$name"
    [ -b "/dev/mapper/$name" ] || dmsetup mknodes "$name"
    dd if=/dev/zero of="/dev/mapper/$name" bs=65536 2>/dev/null || true
    dd if=../payload of="/dev/mapper/$name" bs=65536 conv=fsync 2>/dev/null
    cp image pending
    cp data pending.data
    integritysetup close "$name"
    integritysetup dump image >dump
    cd ..
}
take() {
    integritysetup open $2 "$1" "$1"
    [ -b "/dev/mapper/$1" ] || dmsetup mknodes "$1"
    cat "/dev/mapper/$1" >"$1.plain"
    dd if=payload of="/dev/mapper/$1" bs=4096 count=1 seek=5 conv=fsync 2>/dev/null
    integritysetup close "$1"
    integritysetup dump "$1" >"$1.dump"
}
"#;

/// A copy into a volume or out of it is for nobody who may not read its source.
#[cfg(unix)]
#[test]
fn copies_are_for_no_more_people_than_their_source() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new(CASEMATE);
    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777;
    place.file("plain", Rng::new(4).bytes(1 << 20));
    for wanted in [0o600, 0o640, 0o644] {
        fs::set_permissions(place.path("plain"), fs::Permissions::from_mode(wanted)).unwrap();
        for name in ["volume", "out"] {
            let _ = fs::remove_file(place.path(name));
        }
        place.sh(&format!("umask 022; {CASEMATE} integrity format volume --size 4M --from plain"));
        assert_eq!(mode("volume"), wanted);
        place.sh(&format!("umask 022; {CASEMATE} integrity extract volume out"));
        assert_eq!(mode("out"), wanted);
    }
}

#[test]
fn volumes_of_a_kernel_are_checked_and_copied() {
    for needed in ["integritysetup", "dmsetup", "losetup"] {
        if tool(needed).is_none() {
            return;
        }
    }
    let place = Place::under(CASEMATE, "integrity");
    let payload = Rng::new(9).bytes(1 << 19);
    place.file("payload", &payload);
    place.file("code", "a code of 20 letters");
    place.file("cipher", "a cipher's key of 32 characters.");
    let patch = Rng::new(10).bytes(20_000);
    let mut script = format!("cd {}\n{SCRIPT}", place.folder().display());
    for (number, (options, key)) in VOLUMES.iter().enumerate() {
        let mut open = format!("{options} --journal-watermark 100 --journal-commit-time 1");
        if !key.is_empty() {
            place.file(format!("key{number}"), key);
            write!(open, " --integrity-key-file ../key{number} --integrity-key-size {}", key.len()).unwrap();
        }
        // What integritysetup takes only when it opens, and only when it formats.
        let format = open.replace("--integrity-bitmap-mode", "");
        let format = format.split(" --journal-watermark").next().unwrap().to_owned()
            + open.split("--journal-commit-time 1").nth(1).unwrap();
        for only in ["--tag-size", "--sector-size", "--interleave-sectors"] {
            let words: Vec<_> = open.split(' ').map(str::to_owned).collect();
            if let Some(at) = words.iter().position(|word| word == only) {
                open = [&words[..at], &words[at + 2..]].concat().join(" ");
            }
        }
        open = open.replace(" --integrity-legacy-padding", "").replace(" --integrity-legacy-hmac", "");
        if open.contains("bitmap") {
            open = open.replace(" --journal-watermark 100 --journal-commit-time 1", "");
        }
        writeln!(script, "make v{number} '{open}' '{format}'").unwrap();
    }
    for (number, (options, open)) in MADE.iter().enumerate() {
        let made = place.yes(&format!("format made{number} --size 2M --from payload {options}"));
        assert_eq!(made, "");
        match open.contains("bitmap") {
            true => leave_in_bitmap(&place, number, &patch),
            false => leave_in_journal(&place, number, options, &patch),
        }
        writeln!(script, "take made{number} '{open}'").unwrap();
    }
    let Some(output) = Uml::new(script).run() else { return };
    output.expect_success();
    let mut from_journal = 0;
    for (number, (options, key)) in VOLUMES.iter().enumerate() {
        let name = options.split(' ').nth(1).unwrap();
        let (image, pending) = (format!("v{number}.d/image"), format!("v{number}.d/pending"));
        let mut how = format!("--integrity {name}");
        if !key.is_empty() {
            write!(how, " --integrity-key-file key{number}").unwrap();
        }
        for words in options.split(' ').collect::<Vec<_>>().windows(2) {
            if words[0].starts_with("--journal") && !words[0].ends_with("size") {
                write!(how, " {} {}", words[0], words[1].trim_start_matches("../")).unwrap();
            }
        }
        let apart = options.contains("--data-device");
        for (image, data) in [(&image, "data"), (&pending, "pending.data")] {
            let data = if apart { format!(" --data-device v{number}.d/{data}") } else { String::new() };
            let report: serde_json::Value = serde_json::from_slice(
                &place.is(&format!("verify --json {how}{data} {image}"), 0, "").stdout,
            )
            .unwrap();
            assert_eq!(report["wrong"], 0, "{options}: {image}: {report}");
            from_journal += report["from_journal"].as_u64().unwrap();
            place.yes(&format!("extract {how}{data} {image} plain"));
            let plain = place.read("plain");
            assert!(plain[..payload.len()] == payload, "{options}: {image}");
            let piped = place.is(&format!("extract {how}{data} {image} -"), 0, "").stdout;
            assert!(piped == plain, "{options}: {image}");
            if image.contains("pending") && options.contains("bitmap") {
                let image = Image::open(place.path(image), Access::Change).unwrap();
                let superblock = image.integrity_superblock().unwrap();
                assert!(superblock.flags.contains(Flags::DIRTY_BITMAP));
                let volume =
                    image.integrity(None, &IntegrityOptions::default(), &Providers::default()).unwrap();
                volume.device().write_at(&patch, PATCHED as u64).unwrap();
                drop(volume);
                let report: serde_json::Value = serde_json::from_slice(
                    &place.is(&format!("verify --json {how}{data} v{number}.d/pending"), 0, "").stdout,
                )
                .unwrap();
                assert_eq!((&report["wrong"], &report["unknown"]), (&0.into(), &0.into()), "{report}");
            }
            // What a block in use holds may lie in two places, or in a region whose tags are not known.
            if image.contains("pending") {
                continue;
            }
            let file = if apart { data.split(' ').nth(2).unwrap().to_owned() } else { image.clone() };
            let bytes = place.read(&file);
            place.flip(&file, find(&bytes, &payload), 1);
            let damaged = place.is(&format!("verify --json {how}{data} {image}"), 1, "");
            let damaged: serde_json::Value = serde_json::from_slice(&damaged.stdout).unwrap();
            assert_eq!(damaged["wrong"], 1, "{options}: {image}: {damaged}");
            place.is(&format!("extract {how}{data} {image} other"), 2, "is not that of its data");
            assert!(!place.path("other").exists());
            place.file(&file, bytes);
        }
        // As the tool prints it, but for the image's name.
        let lines = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        let theirs = fs::read_to_string(place.path(format!("v{number}.d/dump"))).unwrap();
        assert_eq!(lines(&place.yes(&format!("dump {image}"))), lines(&theirs), "{options}");
    }
    for (number, (options, _)) in MADE.iter().enumerate() {
        // The kernel read all of it, and what it wrote since is read here.
        let plain = place.read(format!("made{number}.plain"));
        let mut payload = payload.clone();
        payload[PATCHED..PATCHED + patch.len()].copy_from_slice(&patch);
        assert!(plain[..payload.len()] == payload, "{options}");
        assert!(plain[payload.len()..].iter().all(|byte| *byte == 0), "{options}");
        let how: Vec<_> = options.split(' ').collect();
        let how: Vec<_> = how
            .chunks(2)
            .filter(|pair| pair[0].starts_with("--integrity") || pair[0].starts_with("--journal-"))
            .filter(|pair| pair[0] != "--journal-size")
            .flatten()
            .copied()
            .collect();
        let how = how.join(" ");
        place.yes(&format!("verify {how} made{number}"));
        place.yes(&format!("extract {how} made{number} again{number}"));
        let again = place.read(format!("again{number}"));
        assert!(again[20480..24576] == payload[..4096] && again[..20480] == plain[..20480], "{options}");
        let lines = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        let theirs = fs::read_to_string(place.path(format!("made{number}.dump"))).unwrap();
        assert_eq!(lines(&place.yes(&format!("dump made{number}"))), lines(&theirs), "{options}");
    }
    assert!(from_journal > 100, "{from_journal} blocks were read from journals");
}

/// Where a volume is written to before the kernel opens it.
const PATCHED: usize = 30_000;

/// Writes to a volume, and takes everything back but what its journal has: as if power had failed before the blocks came to
/// their places. A reader must replay the journal.
fn leave_in_journal(place: &Place, number: usize, options: &str, patch: &[u8]) {
    let (name, words) = (format!("made{number}"), options.split(' ').collect::<Vec<_>>());
    let value = |option: &str| Some(words[words.iter().position(|word| *word == option)? + 1]);
    let mut how = IntegrityOptions::default();
    how.algorithm = value("--integrity").unwrap_or("crc32c").to_owned();
    if let Some(key) = value("--integrity-key-file") {
        how = how.with_key(&SecretSource::file(place.path(key))).unwrap();
    }
    let named = |option: &str| {
        let key = read_key(&SecretSource::file(place.path(value(&format!("{option}-key-file"))?)));
        Some(Keyed { algorithm: value(option)?.to_owned(), key: key.unwrap() })
    };
    how.journal_code = named("--journal-integrity");
    how.journal_cipher = named("--journal-crypt");
    let before = place.read(&name);
    let image = Image::open(place.path(&name), Access::Change).unwrap();
    let journal = image.integrity_superblock().unwrap().layout(false).unwrap().tag(0) as usize;
    let open = |image: &Image| image.clone().integrity(None, &how, &Providers::default()).unwrap().device();
    let volume = open(&image);
    volume.write_at(patch, PATCHED as u64).unwrap();
    volume.flush().unwrap();
    drop((volume, image));
    let mut cut = before.clone();
    cut[4096..journal].copy_from_slice(&place.read(&name)[4096..journal]);
    assert!(cut != before && cut != place.read(&name), "{options}");
    place.file(&name, cut);
    let mut found = vec![0; patch.len()];
    open(&Image::open(place.path(&name), Access::Read).unwrap()).read_at(&mut found, PATCHED as u64).unwrap();
    assert!(found == patch, "{options}");
}

/// Without its key, or with another one, nobody knows whether an encrypted journal has blocks that are newer than those in their
/// places: they were acknowledged, and what is there without them is not the volume's data.
#[test]
fn a_journal_that_cant_be_read_is_not_an_empty_one() {
    let place = Place::under(CASEMATE, "integrity");
    let (payload, patch) = (Rng::new(9).bytes(1 << 19), Rng::new(10).bytes(20_000));
    place.file("payload", &payload);
    place.file("code", "a code of 20 letters");
    place.file("cipher", "a cipher's key of 32 characters.");
    place.file("other", "a cipher's key of 32 characters!");
    let code = "--journal-integrity hmac-sha256 --journal-integrity-key-file code";
    for (number, cipher) in (90..).zip(["ctr-aes", "cbc-aes"]) {
        let crypt = |key: &str| format!("--journal-crypt {cipher} --journal-crypt-key-file {key}");
        let (options, name) = (format!("--integrity sha256 {}", crypt("cipher")), format!("made{number}"));
        place.yes(&format!("format {name} --size 2M --from payload {options}"));
        let is_new = place.read(&name);
        leave_in_journal(&place, number, &options, &patch);
        place.yes(&format!("extract {options} {name} right"));
        assert!(place.read("right")[PATCHED..].starts_with(&patch));
        let wrong =
            ["", &crypt("other"), &format!("--journal-crypt {} --journal-crypt-key-file cipher", "cbc-aes")];
        for how in wrong.into_iter().filter(|how| !options.contains(how.trim()) || how.is_empty()) {
            let is_said = "the journal can't be read";
            for line in ["verify", "extract", "extract --keep-going"] {
                let target = if line == "verify" { "" } else { "out" };
                let output = place.own(&format!("{line} -I sha256 {how} {name} {target}"));
                let goes_on = line.contains("keep");
                assert_eq!(status(&output), if goes_on { 1 } else { 2 }, "{line} {how}: {}", stderr(&output));
                assert!(stderr(&output).contains(is_said), "{line} {how}: {}", stderr(&output));
                assert_eq!(place.path("out").exists(), goes_on);
            }
            // As the blocks are in their places, and the message says that some may be older.
            assert!(place.read("out")[..payload.len()] == payload);
            fs::remove_file(place.path("out")).unwrap();
            let output = place.is(
                &format!("extract --keep-going -I sha256 {how} {name} out --quiet --json"),
                1,
                is_said,
            );
            let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(told["unread_journal"], true, "{told}");
            fs::remove_file(place.path("out")).unwrap();
            let layer = how
                .replace("--journal-crypt ", "journal-crypt=")
                .replace(" --journal-crypt-key-file ", ",journal-crypt-key-file=");
            let layer = if layer.is_empty() { layer } else { format!(",{layer}") };
            for line in
                ["serve -r IMAGE --exec true", "serve -w IMAGE --exec true", "rescue IMAGE out", "info IMAGE"]
            {
                let line = line.replace("IMAGE", &format!("{name},integrity=sha256{layer}"));
                let output =
                    run_any(Command::new(CASEMATE).args(line.split(' ')).current_dir(place.folder()));
                assert_eq!(status(&output), 2, "{line}: {}", stderr(&output));
                assert!(stderr(&output).contains(is_said), "{line}: {}", stderr(&output));
                assert!(stderr(&output).contains("journal-crypt="), "{line}: {}", stderr(&output));
            }
        }
        // An empty journal can't be told from one with blocks either.
        place.file(&name, is_new);
        place.yes(&format!("verify {options} {name}"));
        place.is(&format!("verify -I sha256 {name}"), 2, "the journal can't be read");
    }
    // One with codes is asked for its key by its superblock.
    place.yes(&format!("format coded --size 2M --from payload {code}"));
    place.yes(&format!("verify {code} coded"));
    place.is("verify coded", 2, "--journal-integrity");
    place.is(&format!("verify {} coded", code.replace("file code", "file other")), 2, "journal");
}

/// A sector of the journal that can't be read says no more of the blocks than one of noise.
#[test]
fn a_copy_goes_on_behind_a_bad_sector_in_the_journal() {
    let place = Place::under(CASEMATE, "integrity");
    let payload = Rng::new(9).bytes(700_000);
    place.file("payload", &payload);
    place.yes("format volume --size 2M --from payload");
    place.file("map", "0x0 0x8000 +\n0x8000 0x1000 -\n0x9000 0x1F7000 +\n");
    place.file("map", [&b"0x0 + 1\n"[..], &place.read("map")].concat());
    let lost = "the journal can't be read: blocks in it may be newer";
    place.is("extract --keep-going --image-map map volume out", 1, lost);
    assert!(place.read("out")[..payload.len()] == payload);
    let output = place.is("extract --keep-going --image-map map volume again --json", 1, lost);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["unread_journal"], &told["lost_bytes"]), (&true.into(), &0.into()), "{told}");
}

/// Writes to a volume in bitmap mode, and leaves it as if power had failed then, with a block whose tag came not to its place.
/// A reader must make the tag again.
fn leave_in_bitmap(place: &Place, number: usize, patch: &[u8]) {
    let name = format!("made{number}");
    let image = Image::open(place.path(&name), Access::Change).unwrap();
    let layout = image.integrity_superblock().unwrap().layout(false).unwrap();
    let mut how = IntegrityOptions::default();
    how.bitmap = true;
    let volume = image.integrity(None, &how, &Providers::default()).unwrap();
    volume.device().write_at(patch, PATCHED as u64).unwrap();
    volume.device().flush().unwrap();
    let mut cut = place.read(&name);
    drop(volume);
    let tag = layout.tag(PATCHED as u64 / layout.block_size() + 1) as usize;
    cut[tag] ^= 1;
    place.file(&name, cut);
    // A block that nothing is known of is not verified.
    let said = stdout(&place.is(&format!("verify {name}"), 1, ""));
    assert!(said.contains("1 blocks can't be verified"), "{said}");
    // Nor is a copy of it a checked one.
    let unchecked = "1 blocks were copied and can't be verified";
    let copied = place.is(&format!("extract {name} unchecked{number} --json"), 2, unchecked).stdout;
    let copied: serde_json::Value = serde_json::from_slice(&copied).unwrap();
    assert_eq!(copied["unknown"], 1, "{copied}");
    assert!(place.read(format!("unchecked{number}"))[PATCHED..].starts_with(patch));
    place.is(&format!("extract {name} -"), 2, unchecked);
    // Whoever reads through the layer is told; of a volume whose tags are all there, nothing.
    let through = |name: &str| {
        let line = format!("serve -r --dm-integrity crc32c {name} --exec true");
        stderr(&run_any(Command::new(CASEMATE).args(line.split_whitespace()).current_dir(place.folder())))
    };
    let told = "blocks without one are read and not checked";
    assert!(through(&name).contains(told), "{}", through(&name));
    place.is(&format!("format whole{number} --size 2M --from payload -I crc32c"), 0, "");
    assert!(!through(&format!("whole{number}")).contains(told));
}

/// Contents of a volume are read and changed like anything else, alone and with other layers.
#[test]
fn commands_read_and_write_what_is_in_a_volume() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = Place::under(CASEMATE, "");
    mke2fs::make(&mke2fs, "-t ext4", &place.path("plain"), "8M");
    place.file("key", (0..64).collect::<Vec<u8>>());
    place.file("file", Rng::new(3).bytes(100_000));
    let hmac = "--integrity-key-file key";
    place.yes(&format!(
        "integrity format volume --size 9M --from plain -I hmac-sha256 {hmac} --sector-size 4096"
    ));
    let layer = format!("--dm-integrity hmac-sha256 {hmac}");
    for image in ["plain".to_owned(), format!("{layer} volume")] {
        place.yes(&format!("ext4 mkdir {image} /new"));
        place.yes(&format!("ext4 put {image} file /new/file"));
    }
    assert_eq!(place.yes(&format!("ext4 check {layer} volume")), place.yes("ext4 check plain"));
    assert_eq!(place.yes(&format!("integrity verify volume -I hmac-sha256 {hmac}")), "");
    place.yes(&format!("ext4 mkdir {layer} --integrity-bitmap-mode volume /quick"));
    assert_eq!(place.yes(&format!("integrity verify volume -I hmac-sha256 {hmac}")), "");
    let dump = place.yes("integrity dump volume");
    assert!(dump.contains("flags fix_padding fix_hmac \n"), "{dump}");
    let file = place.is(&format!("ext4 cat {layer} volume /new/file"), 0, "").stdout;
    assert!(file == place.read("file"));
    // A volume on a mapping, and tags under what is decrypted.
    place.yes("crypt encrypt volume outside --key-file key --key-size 512");
    place.yes("crypt encrypt plain inside --key-file key --key-size 512");
    place.yes("integrity format around --size 9M --from inside -I crc32c");
    let crypt = "--crypt aes-xts-plain64 --key-file key --key-size 512";
    for image in [format!("{crypt} {layer} outside"), format!("--dm-integrity crc32c {crypt} around")] {
        let file = place.is(&format!("ext4 cat {image} /new/file"), 0, "").stdout;
        assert!(file == place.read("file"), "{image}");
    }
    // The blocks around a wrong one are read, and wrong ones are counted.
    let bytes = place.read("volume");
    let at = bytes.windows(50).position(|window| window == &file[50_000..50_050]).unwrap();
    place.flip("volume", at, 1);
    place.is(&format!("ext4 cat {layer} volume /new/file"), 2, "is not that of its data");
    place.yes(&format!("ext4 ls {layer} volume /new"));
    place.is(
        "ext4 ls --journal-crypt ctr-aes --journal-crypt-key-file key volume /",
        2,
        "--dm-integrity <NAME>",
    );
    place.is(&format!("ext4 ls --dm-integrity crc32c {hmac} volume /"), 2, "takes no key");
    place.is("ext4 ls --dm-integrity hmac-sha256 volume /", 2, "the key of the tags was not given");
    place.is("ext4 ls --dm-integrity crc32c plain /", 2, "this is an ext4 file system");
    if tool("nbdcopy").is_some() {
        let script = "! nbdcopy \"$uri\" copy 2>/dev/null";
        let mut command = place.command();
        command.args([
            "serve",
            "-r",
            "--json",
            "--dm-integrity",
            "hmac-sha256",
            "--integrity-key-file",
            "key",
        ]);
        let output = command.args(["volume", "--exec", script]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("\"kind\":\"integrity\"") && !said.contains("\"wrong_blocks\":0"), "{said}");
    }
}

/// A byte of the payload's last sector in its place, which is behind the journal.
fn find(image: &[u8], payload: &[u8]) -> usize {
    let piece = &payload[payload.len() - 500..payload.len() - 100];
    image.windows(piece.len()).rposition(|window| window == piece).unwrap()
}

/// The place of a volume is said by options or a specification; layers below it by a specification alone.
#[test]
fn every_command_takes_the_place_of_its_volume_in_a_specification() {
    if tool("sfdisk").is_none() {
        return;
    }
    let place = Place::under(CASEMATE, "");
    place.file("key", (0..64).collect::<Vec<u8>>());
    place.file("blank", vec![7; 12 << 20]);
    place.sh(
        "printf 'label: gpt\nfirst-lba: 34\nstart=2048,size=2048\nstart=4096,size=8192\n' > table && sfdisk -q blank < table",
    );
    let blank = place.read("blank");
    let (start, end) = (4096 * 512, 12288 * 512);
    let salt = "--salt 000102030405060708090a0b0c0d0e0f";
    let made = |image: &str| {
        place.file("disk", &blank);
        let line = format!("integrity format {image} -I sha256 {salt}");
        place.is(&line, 2, "disk contains data of no known kind; use --overwrite to destroy it");
        assert!(place.read("disk") == blank);
        place.yes(&format!("{line} --overwrite"));
        let printed = place.yes(&format!("integrity dump {image}"))
            + &place.yes(&format!("integrity verify {image} -I sha256"));
        place.yes(&format!("integrity extract {image} copy -I sha256 --overwrite"));
        (place.read("disk"), place.read("copy"), printed)
    };
    let expected = made("-P 2 disk");
    assert!(expected.0[..start] == blank[..start] && expected.0[end..] == blank[end..]);
    for image in ["disk,partition=2", "disk,offset=2M,size=4M"] {
        assert!(made(image) == expected, "{image}");
    }
    for (line, said) in [
        ("integrity format disk,offset=2M --overwrite", "partition 2 begins at offset 2097152"),
        ("integrity format disk --offset 2M --overwrite", "partition 2 begins at offset 2097152"),
        ("integrity format disk,partition=2 --size 9M", "--size makes or extends a whole file"),
        ("integrity dump disk,partition=2,integrity=sha256", "leave out the last 'integrity'"),
        ("integrity verify -P 2 disk,partition=2", "give all of them in one place"),
        ("integrity dump disk,partition=2,ext4,superblock=1", "leave ext4 out"),
    ] {
        place.is(line, 2, said);
    }
    assert!(place.read("disk") == expected.0);
    // A volume on a mapping.
    place.yes("crypt encrypt disk outside --key-file key --key-size 512");
    let outside = "outside,crypt=aes-xts-plain64,key-file=key,key-size=512,partition=2";
    assert!(place.yes(&format!("integrity dump {outside}")).contains("tag_size 32"));
    place.yes(&format!("integrity extract {outside} again -I sha256"));
    assert!(place.read("again") == expected.1);
    // The key of a layer is none of the files that may be replaced.
    place.is(&format!("integrity extract {outside} key -I sha256 --overwrite"), 2, "key");
    assert_eq!(place.read("key").len(), 64);
}

#[test]
fn slips_are_refused_before_anything_is_written() {
    let place = Place::under(CASEMATE, "integrity");
    place.file("file", vec![7; 1 << 20]);
    place.file("zeros", vec![0; 1 << 20]);
    place.yes("format volume --size 1M");
    place.file("key", "a key");
    place.yes("format coded --size 1M --journal-integrity hmac-sha256 --journal-integrity-key-file key");
    for (line, said) in [
        ("format volume", "volume contains a dm-integrity superblock; use --overwrite to destroy it"),
        ("format zeros --overwrite --from zeros", "can't be made of itself"),
        ("format zeros --overwrite --from file", "more data than the"),
        ("format zeros --overwrite --integrity md9", "md9"),
        (
            "format zeros --overwrite --sector-size 4096 --integrity hmac-sha256",
            "the key of the tags was not given",
        ),
        ("format zeros --overwrite --salt 00", "not 16 bytes in hex"),
        ("format small --size 4K", "too few for a volume"),
        ("verify file", "dm-integrity superblock: not found"),
        ("verify volume --integrity-key-file file", "a key has at most 4096 bytes"),
        (
            "verify volume --journal-integrity hmac-sha256 --journal-integrity-key-file file",
            "has at most 4096 bytes",
        ),
        ("verify volume --journal-integrity hmac-sha256 --journal-integrity-key-file key", "has no codes"),
        ("verify volume --journal-crypt xts-aes --journal-crypt-key-file key", "ctr-aes and cbc-aes can be"),
        (
            "verify volume --journal-crypt chacha20 --journal-crypt-key-file key",
            "chacha20 for the dm-integrity journal: of stream ciphers ctr-aes and the like can be",
        ),
        (
            "format zeros --overwrite --journal-crypt xchacha20 --journal-crypt-key-file key --integrity crc32c",
            "xchacha20 for the dm-integrity journal: of stream ciphers ctr-aes and the like can be",
        ),
        ("verify volume --journal-crypt ctr-aes", "--journal-crypt and --journal-crypt-key-file go together"),
        ("verify coded", "the journal has codes, whose key is needed"),
        (
            "verify coded --journal-integrity hmac-sha1 --journal-integrity-key-file key",
            "its code is not that",
        ),
        ("extract volume volume", "this would replace volume"),
    ] {
        let before = (place.read("file"), place.read("volume"));
        place.is(line, 2, said);
        assert!((place.read("file"), place.read("volume")) == before, "{line}");
    }
    assert!(!place.path("small").exists());
    // With another algorithm than it was made with nothing fits.
    place.is("verify volume --integrity crc32", 1, "");
    place.yes("format volume --overwrite --integrity sha256 --tag-size 8");
    assert_eq!(place.yes("verify volume --integrity sha256"), "");
}

/// Called as integritysetup, beside the tool: what it prints of a volume, and volumes that both understand.
#[test]
fn the_tools_command_line() {
    let Some(theirs) = tool("integritysetup") else { return };
    let place = Place::under(CASEMATE, "");
    let ours = place.link("integritysetup");
    place.file("volume", vec![0; 2 << 20]);
    let format = "format volume --integrity sha256 -t 32 -s 4096 --no-wipe -q";
    let output = place.run(&ours, format);
    assert_eq!(
        stdout(&output),
        "Formatted with tag size 32, internal integrity sha256.\n",
        "{}",
        stderr(&output)
    );
    assert_eq!(place.yes("integrity verify volume -I sha256"), "");
    let (one, other) = (place.run(&ours, "dump volume"), place.run(&theirs, "dump volume"));
    assert_eq!((status(&one), stdout(&one)), (status(&other), stdout(&other)));
    for (line, expected) in
        [("format volume", 1), ("dump", 1), ("open volume x", 1), ("--bad", 1), ("--version", 0)]
    {
        let before = place.read("volume");
        let output = place.run(&ours, line);
        assert_eq!(status(&output), expected, "{line}: {}", stderr(&output));
        assert!(place.read("volume") == before, "{line}");
    }
    place.file("none", vec![0; 8192]);
    place.file("empty", "");
    place.sh("mkdir folder");
    for name in ["none", "empty", "folder", "/dev/null", "missing"] {
        let line = format!("dump {name}");
        let (one, other) = (place.run(&ours, &line), place.run(&theirs, &line));
        assert_eq!((status(&one), stderr(&one)), (status(&other), stderr(&other)), "{line}");
    }
}
