//! Images with fs-verity and fscrypt inside, dm-verity and LUKS around.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use casemate_testkit::kernel::loop_mounts_work;
use casemate_testkit::{Place, run, run_any, skip, stdout, tool};
use serde_json::{Value, json};

use crate::{CASEMATE, check, place};

/// Shows names, kinds, modes, links, targets and contents, but no sizes of directories.
const SHOW: &str = "find . -mindepth 1 -name lost+found -prune -o -printf '%P %y %m %n %l\\n' | LC_ALL=C sort
    find . -type f -print0 | LC_ALL=C sort -z | xargs -0 cksum";

#[test]
fn files_get_fs_verity() {
    let place = place();
    place.sh("touch tree/empty; head -c 65536 /dev/zero >tree/aligned; head -c 2000000 /dev/urandom >tree/a/random");
    let digest = |path: &str, options: &str| {
        let mut command = Command::new(CASEMATE);
        command
            .args(["fsverity", "digest", "--compact"])
            .args(options.split_whitespace())
            .arg(place.path(path));
        run(&mut command).trim().to_owned()
    };
    for options in ["", "--salt 0011 --hash-alg sha512", "-b 1024"] {
        place.yes(&format!("build image --from tree --verity {options} --manifest digests"));
        check(&place, "image");
        let options = options.replace("-b 1024", "--block-size 1024");
        let manifest = String::from_utf8(place.read("digests")).unwrap();
        for path in ["one", "a/two", "a/b/large", "empty", "aligned", "a/random"] {
            let digest = digest(&format!("tree/{path}"), &options);
            assert!(
                manifest
                    .lines()
                    .any(|line| line.contains(&digest) && (line.ends_with(path) || path == "one")),
                "{path} {options}: {manifest}"
            );
            let contents = place.read(format!("tree/{path}"));
            let mut command = Command::new(CASEMATE);
            command
                .args(["ext4", "cat", "--fsverity", "require"])
                .arg(place.path("image"))
                .arg(format!("/{path}"));
            let output = run_any(&mut command);
            assert!(output.status.success(), "{path} {options}: {}", String::from_utf8_lossy(&output.stderr));
            assert!(output.stdout == contents, "{path} {options}");
        }
    }
    place.yes("build image --from tree --verity=large --verity=*/two");
    let flags = |path: &str| place.yes(&format!("stat image {path}")).contains("verity");
    assert_eq!(["/a/b/large", "/a/two", "/one"].map(flags), [true, true, false]);
    // A file with several names is chosen by any of them.
    for name in ["one", "a/hard"] {
        place.yes(&format!("build image --from tree --verity={name}"));
        assert_eq!(["/one", "/a/hard", "/a/two"].map(flags), [true, true, false], "{name}");
    }
    if tool("openssl").is_some() {
        place.sh("openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=test -keyout key.pem -out cert.pem 2>openssl.log");
        place.yes("build image --from tree --verity --signing-key key.pem --cert cert.pem");
        check(&place, "image");
        assert_eq!(place.yes("cat --fsverity require image /one"), "1\n");
    }
}

/// An image from which fs-verity was taken passes no check that demands it.
#[test]
fn a_check_of_fs_verity_without_such_files_is_not_passed() {
    let place = place();
    if tool("openssl").is_none() {
        return;
    }
    place.sh("openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=test -keyout key.pem -out cert.pem 2>openssl.log");
    place.yes("build signed --from tree --verity --signing-key key.pem --cert cert.pem");
    place.yes("build stripped --from tree");
    place.yes("build some --from tree --verity=large --signing-key key.pem --cert cert.pem");
    let files = place.sh(
        "find tree -type f -links 1 | wc -l; find tree -type f -links +1 -printf '%i\\n' | sort -u | wc -l",
    );
    let files: u64 = files.lines().map(|line| line.trim().parse::<u64>().unwrap()).sum();
    for (image, demand, status, counts, finding) in [
        ("signed", "", 0, [files, files, 0], ""),
        ("signed", "--cert cert.pem", 0, [files, files, 0], ""),
        ("signed", "--cert cert.pem --fsverity require", 0, [files, files, 0], ""),
        ("some", "--cert cert.pem", 0, [1, 1, files - 1], ""),
        ("some", "--fsverity require", 1, [1, 1, files - 1], "verity-missing"),
        ("stripped", "", 0, [0, 0, files], "verity-none"),
        ("stripped", "--cert cert.pem", 1, [0, 0, files], "verity-missing"),
        ("stripped", "--fsverity require", 1, [0, 0, files], "verity-missing"),
    ] {
        let line = format!("check {image} --verity {demand}");
        let output = place.is(&line, status, "");
        let text = stdout(&output);
        let said = format!("{} verified by fs-verity, {} without it\n", plural(counts[1]), counts[2]);
        assert!(text.contains(&said) && text.contains(finding), "{line}: {text}");
        let value: Value = serde_json::from_slice(&place.is(&(line + " --json"), status, "").stdout).unwrap();
        let [with, verified, without] = counts;
        assert_eq!(value["fs_verity"], json!({"files": with, "verified": verified, "without": without}));
    }
    place.yes("build empty --size 2M");
    place.is("check empty --verity --fsverity require", 1, "");
}

fn plural(files: u64) -> String {
    format!("{files} file{}", if files == 1 { "" } else { "s" })
}

/// Mounts an image, adds keys and runs a command in its top folder; nothing where this kernel or user can't.
fn mounted(place: &Place, image: &str, keys: &[&str], command: &str) -> Option<String> {
    if !loop_mounts_work() {
        skip("no loop mounts");
        return None;
    }
    tool("xfs_io")?;
    let at = place.path("at");
    let _ = fs::create_dir(&at);
    let add =
        keys.iter().map(|key| format!("xfs_io -r -c add_enckey at <{key} >/dev/null; ")).collect::<String>();
    let script = format!("set -e; mount -o loop,ro {image} at; {add}cd at; {command}; cd ..; umount at");
    Some(run(Command::new("unshare")
        .args(["-m", "--propagation", "slave", "sh", "-c", &script])
        .current_dir(place.folder())))
}

#[test]
fn directories_are_encrypted() {
    let place = place();
    place.sh("mkdir -p tree/a/deep tree/c; seq 9 >tree/c/file; mkfifo tree/a/pipe; ln tree/a/two tree/a/b/again
              ln -s /a/target/that/has/no/room/in/an/inode/because/it/is/longer tree/a/long; touch tree/a/empty
              for i in $(seq 200); do echo $i >tree/a/deep/$i; done; truncate -s 3000000 tree/a/sparse; echo end >>tree/a/sparse
              rm tree/a/hard; printf %064d 1 >key; printf %064d 2 >other");
    let show = |folder: &str| run(Command::new("sh").args(["-c", SHOW]).current_dir(place.path(folder)));
    for options in [
        "",
        "-b 1024 --verity",
        "--flag iv-ino-lblk64 -I 128",
        "--flag iv-ino-lblk32 -t ext3",
        "--policy-version 1",
        "--contents adiantum --filenames adiantum --flag direct-key --padding 4",
        "--filenames aes-256-hctr2 --data-unit-size 512 -O bigalloc",
        "-b 16K --verity",
    ] {
        place.yes(&format!("build image --from tree --encrypt a=key --encrypt /c/=other {options}"));
        check(&place, "image");
        place.sh("rm -rf out");
        place.yes("extract image out --fscrypt-key key --fscrypt-key other");
        assert_eq!(show("out"), show("tree"), "{options}");
        let names = place.yes("ls image /a");
        // Whole names: letters of an encoded name are random and may spell a word.
        assert!(names.lines().all(|name| name != "two") && names.lines().count() == 8, "{options}: {names}");
        assert!(!place.yes("ls image / --fscrypt-key key").contains('_'));
        // What this kernel has: others lack a cipher, or fs-verity.
        if ["", "--flag iv-ino-lblk64 -I 128"].contains(&options) {
            let Some(theirs) = mounted(&place, "image", &[], "ls -U a") else { continue };
            let set = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
            assert_eq!(set(&theirs), set(&names), "{options}");
            let opened = mounted(&place, "image", &["key", "other"], SHOW).unwrap();
            assert_eq!(opened, show("tree"), "{options}");
        }
    }
    // Nonces are random, but for a seed.
    let again = |options: &str| {
        let build = |image: &str| place.yes(&format!("build {image} --from tree --encrypt a=key {options}"));
        build("one.img");
        build("two.img");
        place.read("one.img") == place.read("two.img")
    };
    assert!(!again("") && again("--seed text"));
    // Those of a seed follow from contents, too: equal parts of other contents show nowhere.
    let random_blocks = |image: &str| -> BTreeSet<Vec<u8>> {
        let is_random = |block: &[u8]| block.iter().collect::<BTreeSet<_>>().len() > 240;
        place.read(image).chunks(4096).filter(|block| is_random(block)).map(<[u8]>::to_vec).collect()
    };
    place.sh("cp -a tree kept; seq 30000 >tree/a/deep/numbers; touch -d @1000000000 tree/a/deep/numbers tree/a/deep");
    let policies = [
        "",
        "--flag iv-ino-lblk64",
        "--flag iv-ino-lblk32",
        "--flag direct-key --contents adiantum --filenames adiantum",
    ];
    let blocks = |image: &str| {
        policies.map(|policy| {
            place.yes(&format!("build {image} --from tree --encrypt a=key --seed text {policy}"));
            random_blocks(image)
        })
    };
    let one = blocks("one.img");
    place.sh("sed 's/29999/39999/' tree/a/deep/numbers >new; cat new >tree/a/deep/numbers; touch -d @1000000000 tree/a/deep/numbers");
    for ((one, two), policy) in one.iter().zip(blocks("two.img")).zip(policies) {
        assert!(one.len() > 40 && one.is_disjoint(&two), "{policy}: {} blocks", one.len());
    }
    place.sh("rm -r tree; mv kept tree");
    for (options, text) in [
        ("--encrypt none=key", "none"),
        ("--encrypt one=key", "only directories"),
        ("--encrypt /=key", "root directory"),
        ("--encrypt a=key --encrypt a=other", "twice"),
        ("--encrypt a=key --encrypt a/b=other", "lies in another"),
        ("--encrypt a/b=key", "hard link"),
        ("--encrypt c=tree/one", "16 to 64 bytes"),
        ("--encrypt c=key --contents aes-128-cbc", "can't be combined"),
        ("--encrypt c=key --data-unit-size 8192", "data units of 8192"),
        ("--encrypt c", "DIR=KEYFILE"),
    ] {
        place.is(&format!("build new.img --from tree {options}"), 2, text);
    }
}

/// google/fscrypt opens directories on a mounted image, by its own files that were put there.
#[test]
fn directories_have_protectors() {
    let place = place();
    place.sh("mkdir tree/vault tree/raw; seq 9999 >tree/vault/numbers; echo kept >tree/raw/note
              printf 'hunter2\\nmore' >words; printf %032d 7 >raw.key");
    let passphrase = "build image --from tree --protect vault=words --size +4M";
    place.yes(passphrase);
    check(&place, "image");
    place.yes("extract image out --fscrypt-passphrase-file words");
    assert_eq!(place.read("out/vault/numbers"), place.read("tree/vault/numbers"));
    place.yes("build raw.img --from tree --protect raw=raw.key --protector-source raw_key --policy-version 1 --padding 16");
    place.yes("extract raw.img raw --fscrypt-passphrase-file raw.key");
    assert_eq!(place.read("raw/raw/note"), place.read("tree/raw/note"));
    for (options, text) in [
        ("--protect vault=/dev/null", "nothing to read"),
        ("--protect vault=raw.key --flag iv-ino-lblk64", "no policies with flags"),
        ("--protect raw=words --protector-source raw_key", "32 bytes"),
        ("--protect nothing=words", "nothing"),
    ] {
        place.is(&format!("build new.img --from tree {options}"), 2, text);
    }
    if tool("fscrypt").is_none() {
        return;
    }
    let conf = r#"{"source": "custom_passphrase", "hash_costs": {"time": "2", "memory": "4096", "parallelism": "1",
        "truncation_fixed": true}, "options": {"padding": "32", "contents": "AES_256_XTS", "filenames": "AES_256_CTS",
        "policy_version": "2"}, "use_fs_keyring_for_v1_policies": true, "allow_cross_user_metadata": false}"#;
    fs::write(place.path("fscrypt.conf"), conf).unwrap();
    for (image, unlock) in [
        ("image", "echo hunter2 | fscrypt unlock vault --quiet"),
        ("raw.img", "fscrypt unlock raw --quiet --key=../raw.key"),
    ] {
        let shown = "fscrypt status . | grep -c 'custom protector\\|raw key protector'; cat */numbers */note 2>/dev/null | cksum";
        let script = format!("export FSCRYPT_CONF=$PWD/../fscrypt.conf; {unlock}; {shown}");
        let Some(found) = mounted(&place, image, &[], &script) else { return };
        let expected = place.sh("cat tree/vault/numbers tree/raw/note | cksum");
        assert_eq!(found, format!("1\n{expected}"), "{image}");
    }
}

#[test]
fn images_lie_in_luks_volumes_and_partitions() {
    let place = place();
    place.file("pass", "secret");
    place.file("key", (0..64).collect::<Vec<u8>>());
    let cheap = "--key-file pass --pbkdf-memory 1M --pbkdf-force-iterations 4 --pbkdf-parallel 1";
    let volume = format!("--from tree --luks --volume-key-file key --seed one {cheap}");
    place.yes(&format!("build one.luks {volume}"));
    place.yes(&format!("build two.luks {volume} --sector-size 512"));
    assert!(place.read("one.luks") == place.read("two.luks"));
    assert_eq!(place.yes("cat one.luks --luks --key-file pass /a/hard"), "1\n");
    run(Command::new(CASEMATE)
        .args(["luks", "extract", "one.luks", "plain", "--key-file", "pass"])
        .current_dir(place.folder()));
    check(&place, "plain");
    if let Some(cryptsetup) = tool("cryptsetup") {
        let mut command = Command::new(cryptsetup);
        run(command
            .args(["open", "--test-passphrase", "--key-file", "pass", "one.luks"])
            .current_dir(place.folder()));
    }
    // A random key and salts, on what is there.
    place.file("disk", vec![7; 27 << 20]);
    place.yes(&format!(
        "build disk --overwrite --offset 1M --size 8M --sector-size 4096 --from tree --luks {cheap}"
    ));
    assert_eq!(place.yes("cat disk --offset 1M --luks --key-file pass /one"), "1\n");
    let disk = place.read("disk");
    assert!(disk[..1 << 20].iter().chain(&disk[25 << 20..]).all(|byte| *byte == 7));
    place.is(
        &format!("build disk --overwrite --offset 9M --size 8M --from tree --luks {cheap}"),
        2,
        "header and data have",
    );
    place.is("build other --from tree --key-file pass", 2, "go with --luks");
    // To a stream, and with dm-verity within the volume, or beside it.
    let streamed = place.own(&format!("build - {volume}"));
    assert!(streamed.status.success() && streamed.stdout == place.read("one.luks"));
    let hashed = "--dm-verity append --root-hash-file root.txt";
    let told = place.yes(&format!("build inner.luks {volume} {hashed}"));
    let command = told.lines().find_map(|line| line.strip_prefix("$ casemate ")).unwrap();
    assert_eq!(command, "verity verify inner.luks,luks,key-file=pass --root-hash-file=root.txt");
    run(Command::new(CASEMATE).args(command.split(' ')).current_dir(place.folder()));
    run(Command::new(CASEMATE)
        .args(["luks", "extract", "inner.luks", "inner", "--key-file", "pass"])
        .current_dir(place.folder()));
    // The file system is as long as without.
    let offset = place.read("plain").len();
    assert!(place.read("inner")[..offset] == place.read("plain"));
    let verity = format!("--dm-verity inner.luks @root.txt --verity-hash-offset {offset}");
    assert_eq!(place.yes(&format!("cat inner.luks --luks --key-file pass {verity} /a/hard")), "1\n");
    place.yes(&format!("build outer.luks {volume} --dm-verity tree.hash --root-hash-file outer.txt"));
    assert_eq!(
        place.yes("cat outer.luks --luks --key-file pass --dm-verity tree.hash @outer.txt /one"),
        "1\n"
    );
    if let Some(veritysetup) = tool("veritysetup") {
        let root = String::from_utf8(place.read("root.txt")).unwrap();
        let offset = format!("--hash-offset={offset}");
        let mut command = Command::new(veritysetup);
        run(command.args(["verify", "inner", "inner", root.trim(), &offset]).current_dir(place.folder()));
    }
    place.is(&format!("build fec.luks {volume} {hashed} --fec-device fec"), 2, "parity of dm-verity within");
    assert!(!place.path("other").exists());
    if tool("sfdisk").is_none() {
        return;
    }
    place.file("disk", vec![7; 40 << 20]);
    place.sh("printf 'label: gpt\nstart=2048, size=20480\nstart=22528, size=40960\n' | sfdisk -q disk");
    place.is("build disk -P 2 --from tree", 2, "data of no known kind");
    place.yes("build disk -P 2 --from tree --overwrite");
    place.yes("check disk -P 2");
    assert!(place.yes("info disk -P 2").contains("5120"));
    assert_eq!(place.yes("cat disk -P 2 /one"), "1\n");
    assert!(place.read("disk")[1 << 20..11 << 20].iter().all(|byte| *byte == 7));
    place.is("build disk -P 1 --from tree --size 20M", 2, "has 10485760 bytes");
    let text = "disk: 10485760 bytes: the LUKS header before the file system has 16777216";
    for size in ["", "--size 4M", "--size +1M"] {
        place.is(&format!("build disk -P 1 --overwrite --from tree --luks {cheap} {size}"), 2, text);
    }
    place.is("build disk -P 3 --from tree", 2, "there is no partition 3");
    // A specification is the same place, and is looked at in the same way.
    let expected = place.read("disk");
    for image in ["disk,partition=2", "disk,offset=22528s"] {
        place.file("disk", &expected);
        let size = if image.contains("offset") { " --size 20M" } else { "" };
        place.is(
            &format!("build {image} --from tree{size}"),
            2,
            "contains an ext2, ext3 or ext4 file system; use --overwrite",
        );
        place.yes(&format!("build {image} --from tree --overwrite{size}"));
        assert!(place.read("disk") == expected, "{image}");
    }
    for (line, said) in [
        // The offset alone reaches to the end of the disk.
        ("build disk,offset=22528s", "give partition 2 alone"),
        ("build disk,partition=2 -P 2", "give all of them in one place"),
        ("build disk,partition=2,luks,key-file=pass -P 2", "give all of them in one place"),
        ("build disk,partition=2,luks,key-file=pass", "no valid LUKS header"),
        ("build disk,partition=2,offset=1M", "goes to one place"),
        ("build disk,offset=1M,size=9M", "with --size, not with size="),
        ("build disk,partition=2 --dm-verity append", "can't be appended inside a partition"),
        ("build new,one", "a comma in the name of a file is written twice"),
    ] {
        place.is(&format!("{line} --from tree --overwrite"), 2, said);
    }
    assert!(place.read("disk") == expected);
    place.yes("build new,,one --from tree");
    assert!(place.path("new,one").exists());
}

#[test]
fn images_get_dm_verity() {
    let place = place();
    let hash_of =
        |text: &str| text.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap().trim().to_owned();
    let verify = |arguments: &str| {
        let mut command = Command::new(CASEMATE);
        command.args(["verity", "verify"]).args(arguments.split(' ')).current_dir(place.folder());
        let ours = run_any(&mut command).status.success();
        if let Some(veritysetup) = tool("veritysetup") {
            let mut command = Command::new(veritysetup);
            command.arg("verify").args(arguments.split(' ')).current_dir(place.folder());
            assert_eq!(run_any(&mut command).status.success(), ours, "{arguments}");
        }
        ours
    };
    let told = place.yes("build image --from tree --verity -b 1024 --dm-verity append --root-hash-file hash");
    let hash = hash_of(&told);
    assert_eq!(place.read("hash"), hash.as_bytes());
    check(&place, "image");
    let size = place.yes("info image --json");
    let size: serde_json::Value = serde_json::from_str(&size).unwrap();
    let end = size["blocks"].as_u64().unwrap() * 1024;
    let end = end.next_multiple_of(4096);
    let place_of = format!("image image {hash} --hash-offset={end}");
    assert!(verify(&place_of));
    // The same again, and another byte is noticed.
    let once = place.read("image");
    assert_eq!(hash_of(&place.yes("build image --from tree --verity -b 1024 --dm-verity append")), hash);
    assert!(place.read("image") == once);
    let mut damaged = once;
    damaged[5000] ^= 1;
    place.file("image", damaged);
    assert!(!verify(&place_of));
    // Everything in files of its own.
    let told =
        place.yes("build image --from tree --dm-verity hashes --fec-device parity --fec-roots 4 --seed x");
    let hash = hash_of(&told);
    assert!(verify(&format!("image hashes {hash} --fec-device=parity --fec-roots=4")));
    // systemd's partitions: the first and the last half of the root hash.
    let uuid_of = |part: &str| {
        let starts = [0, 8, 12, 16, 20].map(|at| &part[at..]);
        starts.iter().zip([8, 4, 4, 4, 12]).map(|(text, len)| &text[..len]).collect::<Vec<_>>().join("-")
    };
    let uuids = [uuid_of(&hash[..32]), uuid_of(&hash[32..])];
    let [data, tree] = &uuids;
    assert!(
        told.ends_with(&format!("\nData partition UUID:\t{data}\nHash partition UUID:\t{tree}\n")),
        "{told}"
    );
    let told = place.yes("build image --from tree --dm-verity hashes --seed x --json");
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let names = ["data_partition_uuid", "hash_partition_uuid"];
    assert_eq!(names.map(|name| told["dm_verity"][name].as_str().unwrap().to_owned()), uuids);
    if tool("openssl").is_some() {
        place.sh("openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=test -keyout key.pem -out cert.pem 2>openssl.log");
        let told = place.yes(
            "build image --from tree --dm-verity append --root-hash-signature sig --signing-key key.pem --cert cert.pem",
        );
        let mut command = Command::new(CASEMATE);
        command.args(["verity", "verify-signature", &hash_of(&told), "sig", "--cert", "cert.pem"]);
        run(command.current_dir(place.folder()));
    }
    place.file("image", "old");
    for (arguments, text) in [
        ("image --from tree --dm-verity append --size 5001K", "whole data blocks"),
        ("image --from tree --dm-verity appendd", "for this file ./appendd"),
        ("- --from tree --dm-verity append", "standard output"),
        ("image --from tree --dm-verity image", "would replace"),
        ("image --tar tree.tar --dm-verity tree.tar", "would replace"),
        ("image --from tree --encrypt c=image", "would replace"),
        ("image --tar tree.tar --dm-verity append --fec-device tree.tar", "would replace"),
        ("image --from tree --fec-device parity", "--dm-verity"),
        ("image --from tree --signing-key key.pem --cert cert.pem", "--verity"),
    ] {
        place.is(&format!("build {arguments}"), 2, text);
        assert_eq!(place.read("image"), b"old", "{arguments}");
    }
}

/// Half of a build is worse than none: an image without the signature that its device asks for, or with a root hash that nobody knows.
#[test]
fn no_output_of_a_build_has_its_name_before_all_are_complete() {
    let place = place();
    let keys = concat!(env!("CARGO_MANIFEST_DIR"), "/../verity/tests/fixtures/fs-verity/keys");
    let signer = format!("--signing-key {keys}/rsa2048.key.pem --cert {keys}/rsa2048.cert.pem");
    let mismatched = format!("--signing-key {keys}/rsa2048.key.pem --cert {keys}/rsa4096.cert.pem");
    place.yes("build image --from tree --label old");
    place.file("pass", "secret");
    let image = place.read("image");
    let beside = ["hash", "parity", "root", "signature", "list"];
    let luks = "--luks --key-file pass --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    let lines = [
        format!("image --verity {mismatched}"),
        format!("image --dm-verity hash --root-hash-signature signature {mismatched}"),
        format!("image --dm-verity hash --root-hash-file root --root-hash-signature /dev/full {signer}"),
        "image --dm-verity append --root-hash-file /dev/full".to_owned(),
        "image --dm-verity hash --fec-device parity --root-hash-file /dev/full".to_owned(),
        "image --dm-verity hash --verity --root-hash-file root --manifest /dev/full".to_owned(),
        format!("image --dm-verity hash --root-hash-file /dev/full {luks}"),
        format!("image --dm-verity append --root-hash-file /dev/full {luks}"),
        format!("image --verity --manifest /dev/full {luks}"),
        "image --verity --manifest /dev/full".to_owned(),
        "image --android-sparse --verity --manifest /dev/full".to_owned(),
        "- --verity --manifest /dev/full".to_owned(),
        format!("- --verity --manifest /dev/full {luks}"),
        "- --android-sparse --verity --manifest /dev/full".to_owned(),
        "image --dm-verity hash --root-hash-file root --verity --manifest root".to_owned(),
    ];
    for is_there in [true, false] {
        for line in &lines {
            for name in beside {
                place.sh(&format!("rm -f {name}"));
                if is_there && !(name == "hash" && line.contains("append")) {
                    place.file(name, "old");
                }
            }
            if !is_there {
                place.sh("rm -f image");
            }
            let before = place.names();
            let output = place.own(&format!("build {line} --from tree --label new --overwrite"));
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{line}: {said}");
            assert!(
                ["/dev/full: ", "does not belong", "would replace"].iter().any(|text| said.contains(text)),
                "{line}: {said}"
            );
            assert_eq!((place.names(), output.stdout.len()), (before, 0), "{line}: {said}");
            if is_there {
                assert!(place.read("image") == image, "{line}");
            }
            for name in beside.iter().filter(|name| place.path(name).exists()) {
                assert_eq!(place.read(name), b"old", "{line}: {name}");
            }
        }
    }
    // A key is compared before a device, say, is written.
    place.sh("truncate -s 64M part");
    let line = format!("build part,offset=1M --from tree --verity {mismatched}");
    place.is(&line, 2, "does not belong");
    assert!(place.read("part").iter().all(|byte| *byte == 0));
}

#[test]
fn a_file_system_goes_into_a_volume_that_is_there() {
    let place = place();
    place.file("other", "another passphrase");
    place.file("pass", "a passphrase");
    let cheap = "--key-file pass --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    place.file("volume", vec![0; 40 << 20]);
    let format = format!("luks format volume {cheap}");
    run(Command::new(CASEMATE).args(format.split_whitespace()).current_dir(place.folder()));
    let header = place.read("volume")[..16 << 20].to_vec();
    let inside = "volume,luks,key-file=pass";
    place.is("build volume,luks,key-file=other --from tree", 2, "does not open with this passphrase");
    place.yes(&format!("build -n {inside} --from tree"));
    assert!(place.read("volume")[16 << 20..].iter().all(|byte| *byte == 0));
    // Nobody wrote what an unused volume decrypts to.
    place.yes(&format!("build {inside} --from tree"));
    place.yes(&format!("check {inside}"));
    assert!(place.yes(&format!("info {inside}")).contains("6144"));
    assert_eq!(place.yes(&format!("cat {inside} /one")), "1\n");
    assert_eq!(place.read("volume")[..16 << 20], header);
    // Now it holds something, also where that is not known.
    place.is(&format!("build {inside} --from tree"), 2, "contains an ext2, ext3 or ext4 file system");
    let again = "volume,luks,key-file=pass,offset=1M";
    place.is(&format!("build {again} --from tree"), 2, "contains an ext2, ext3 or ext4 file system");
    place.yes(&format!("build {inside} --from tree --overwrite --size 12M"));
    assert!(place.yes(&format!("info {inside}")).contains("3072"));
    place.is(&format!("build {inside} --overwrite --size 25M"), 2, "has 25165824 bytes");
    place.is(
        &format!("build {inside} --overwrite --android-sparse"),
        2,
        "a sparse image is a file of its own",
    );
    // Blocks with tags, whose first bytes are those of the data, and not of the header before them.
    let format = format!("luks format tagged --size 40M --integrity hmac-sha256 {cheap}");
    run(Command::new(CASEMATE).args(format.split_whitespace()).current_dir(place.folder()));
    place.yes("build tagged,luks,key-file=pass --from tree");
    place.yes("check tagged,luks,key-file=pass");
    place.is("build tagged,luks,key-file=pass --from tree", 2, "contains an ext2, ext3 or ext4 file system");
    // Data under dm-verity never change.
    place.yes("build sealed --from tree --dm-verity sealed.hash --root-hash-file root.txt");
    place.is(
        "build sealed,verity,hash-device=sealed.hash,root-hash=@root.txt --from tree --overwrite",
        2,
        "can't be changed",
    );
}

/// A hole is read before it is passed over: its zeros have digests as other bytes have.
#[test]
fn holes_of_files_with_fs_verity_stay_holes() {
    let place = place();
    place.sh("truncate -s 40M tree/hole && printf end >> tree/hole && printf middle | dd of=tree/hole bs=1 seek=20000000 conv=notrunc");
    place.yes("build image --from tree --verity");
    place.yes("extract image out --fsverity require");
    place.yes("extract image --tar out.tar --fsverity require");
    assert!(place.read("out/hole") == place.read("tree/hole"));
    let stored = |name: &str| place.sh(&format!("du -k {name} | cut -f1")).trim().parse::<u64>().unwrap();
    assert!(
        stored("out/hole") < 1024 && stored("out.tar") < 4096,
        "{} {}",
        stored("out/hole"),
        stored("out.tar")
    );
    if tool("debugfs").is_none() {
        return;
    }
    // Data that became a hole are no zeros by their tree.
    place.sh("debugfs -w -R 'punch /hole 4882 4882' image");
    place.is("extract image again --fsverity require", 2, "/hole");
    assert!(!place.path("again/hole").exists());
}
