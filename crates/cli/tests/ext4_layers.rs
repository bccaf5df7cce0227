//! The ext4 commands that read, through dm-crypt and dm-verity: what they find is what is in the plain image.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::process::Command;

use casemate_testkit::{Place, Rng, run, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");
const CRYPT: &str = "--crypt aes-xts-plain64 --key-file key --key-size 512";
/// Where the file `data`, which begins with this, can be found in the image.
const MARK: &[u8] = b"the file that is damaged in a test";

/// A folder with the file system `plain` and a key.
fn place() -> Option<Place> {
    let mke2fs = tool("mke2fs")?;
    let place = Place::new(CASEMATE);
    let mut rng = Rng::new(11);
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("etc/many")).unwrap();
    fs::write(tree.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
    let data = [MARK, &rng.bytes(700_000)].concat();
    fs::write(tree.join("data"), data).unwrap();
    symlink("etc/passwd", tree.join("link")).unwrap();
    for number in 0..50 {
        fs::write(tree.join(format!("etc/many/{number}")), rng.bytes(number * 100)).unwrap();
    }
    fs::write(place.path("key"), rng.bytes(64)).unwrap();
    fs::write(place.path("wrong"), rng.bytes(64)).unwrap();
    let mut command = Command::new(mke2fs);
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-d"]).arg(&tree);
    run(command.arg(place.path("plain")).arg("8M"));
    Some(place)
}

/// Makes a hash tree; gives the root hash.
fn format(place: &Place, image: &str, tree: &str) -> String {
    let said = place.yes(&format!("verity format {image} {tree}"));
    said.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap().trim().to_owned()
}

/// Output of a command that succeeds, byte for byte.
#[track_caller]
fn printed(place: &Place, line: &str) -> Vec<u8> {
    place.is(line, 0, "").stdout
}

/// Outputs of every reading command about the file system that `image`, a name with options, is.
fn everything(place: &Place, image: &str) -> Vec<Vec<u8>> {
    let folder = place.path("out");
    printed(place, &format!("ext4 extract {image} out"));
    let same = Command::new("diff").arg("-r").arg(&folder).arg(place.path("tree")).output().unwrap();
    // lost+found is not in the tree.
    let said = String::from_utf8_lossy(&same.stdout).into_owned();
    assert_eq!(said, format!("Only in {}: lost+found\n", folder.display()), "{image}");
    fs::remove_dir_all(folder).unwrap();
    [
        "info #",
        "ls -l # / /etc/many",
        "tree #",
        "stat # /data",
        "cat # /data /link",
        "check #",
        "extract # --tar=-",
    ]
    .iter()
    .map(|line| printed(place, &format!("ext4 {}", line.replace('#', image))))
    .collect()
}

#[test]
fn every_layer_gives_what_is_in_the_plain_image() {
    let Some(place) = place() else { return };
    let expected = everything(&place, "plain");
    let data = fs::read(place.path("tree/data")).unwrap();
    assert!(expected[4].starts_with(&data) && expected[4].ends_with(b"/bin/sh\n"));

    for sector in ["", "--sector-size 4096"] {
        printed(&place, &format!("crypt encrypt plain enc --key-file key --key-size 512 {sector}"));
        assert!(!fs::read(place.path("enc")).unwrap().windows(MARK.len()).any(|bytes| bytes == MARK));
        let crypt = format!("{CRYPT} {sector}");
        let over_cipher = format(&place, "enc", "enctree");
        let over_plain = format(&place, "plain", "tree.hash");
        // In a partition, after 1 MiB.
        let mut disk = vec![0; 1 << 20];
        disk[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x40, 0, 0]);
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        disk.extend(fs::read(place.path("enc")).unwrap());
        fs::write(place.path("disk"), disk).unwrap();
        for image in [
            format!("{crypt} enc"),
            format!("--dm-verity tree.hash {over_plain} plain"),
            format!("--dm-verity enctree {over_cipher} {crypt} enc"),
            format!("{crypt} --dm-verity tree.hash {over_plain} enc"),
            format!("--partition 1 --dm-verity enctree {over_cipher} {crypt} disk"),
            format!("--offset 1048576 {crypt} --dm-verity tree.hash {over_plain} disk"),
        ] {
            assert!(everything(&place, &image) == expected, "{image}");
        }
        // The order is the user's: the other order can't be read.
        place.is(&format!("ext4 ls {crypt} --dm-verity enctree {over_cipher} enc"), 2, "");
        fs::remove_file(place.path("enc")).unwrap();
    }
}

/// Each option is of the layer before it; a single layer has all of them, wherever they stand.
#[test]
fn layers_of_one_kind_are_stacked() {
    let Some(place) = place() else { return };
    let expected = everything(&place, "plain");
    fs::write(place.path("second"), Rng::new(12).bytes(100)).unwrap();
    let inner = "aes-cbc-essiv:sha256 --key-file second --keyfile-offset 7 --key-size 256";
    printed(
        &place,
        &format!("crypt encrypt plain once --crypt {inner} --sector-size 4096 --iv-large-sectors"),
    );
    let outer = "--key-file key --key-size 512 --sector-size 2048 --iv-large-sectors --skip 8";
    printed(&place, &format!("crypt encrypt once twice {outer}"));
    let inner = format!("--crypt {inner} --sector-size 4096");
    let outer = format!("--crypt aes-xts-plain64 {outer}");
    let root = format(&place, "once", "between");
    let over_all = format(&place, "plain", "over");
    for image in [
        format!("{outer} {inner} --iv-large-sectors twice"),
        // What stands before all layers is of the first.
        format!("--skip 8 twice {} {inner} --iv-large-sectors", outer.replace("--skip 8", "")),
        // Verified between the two, and above them once more.
        format!(
            "{outer} --dm-verity between {root} {inner} --iv-large-sectors --dm-verity over {over_all} twice"
        ),
    ] {
        assert!(everything(&place, &image) == expected, "{image}");
    }
    // Both hash trees count: the second one is not that of what it is over.
    let image = format!("--dm-verity over {over_all} --dm-verity between {root} plain");
    place.is(&format!("ext4 ls {image}"), 2, "does not match");
    place.is(&format!("ext4 ls {inner} {outer} twice"), 2, "");
    for (options, said) in [
        ("--crypt aes-xts-plain64 --crypt-table key --key-size 512", "cannot be used with '--key-size"),
        ("--crypt aes-xts-plain64 --key-file key --key-fd 3", "--key-fd"),
        ("--crypt aes-xts-plain64 --key-file key --key-file key", "multiple times"),
        ("--crypt aes-xts-plain64 --key-file key --crypt-table key --skip 8", "--skip"),
        ("--dm-verity over 00 --key-file key", "--crypt"),
        (
            "--crypt a-b-c --iv-large-sectors --crypt a-b-c --crypt a-b-c --iv-large-sectors",
            "--iv-large-sectors is there several times",
        ),
    ] {
        place.is(&format!("ext4 ls {options} twice"), 2, said);
    }
    // What changes an image goes through all of it, too; and a LUKS volume may lie in a mapping.
    place.yes(&format!("ext4 mkdir {outer} {inner} --iv-large-sectors twice /new"));
    // What is there between the two looks like nothing, as it should.
    let outer = outer.replace("--crypt aes-xts-plain64", "crypt decrypt twice a");
    place.is(&outer, 0, "have no known signature");
    place.yes(&format!("crypt decrypt a b {} --iv-large-sectors", inner));
    assert!(place.yes("ext4 ls b /").contains("new\n"));
    place.yes(
        "luks format volume --from plain --key-file second --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
    );
    place.yes("crypt encrypt volume hidden --key-file key --key-size 512");
    let image = format!("{CRYPT} --luks --key-file second hidden");
    assert!(everything(&place, &image) == expected, "{image}");
}

#[test]
fn what_is_wrong_is_said() {
    let Some(place) = place() else { return };
    let root = format(&place, "plain", "tree.hash");
    let image = fs::File::options().read(true).write(true).open(place.path("plain")).unwrap();
    let bytes = fs::read(place.path("plain")).unwrap();
    let at = bytes.windows(MARK.len()).position(|found| found == MARK).unwrap();
    printed(&place, "crypt encrypt plain enc --key-file key --key-size 512");
    image.write_all_at(&[!MARK[3]], at as u64 + 3).unwrap();

    let verity = format!("--dm-verity tree.hash {root} plain");
    let block = format!("data block {} does not match its hash tree", at / 4096);
    place.is(&format!("ext4 cat {verity} /data"), 2, &block);
    assert_eq!(printed(&place, &format!("ext4 cat {verity} /etc/passwd")), b"root:x:0:0::/:/bin/sh\n");
    // Without the layer nobody notices.
    assert!(printed(&place, "ext4 cat plain /data").starts_with(&MARK[..3]));
    place.is(&format!("ext4 extract {verity} out"), 2, &block);
    place.is(&format!("ext4 check --fix-checksums {verity}"), 2, "cannot be used with");
    let other = root.replace(&root[..1], if root.starts_with('0') { "1" } else { "0" });
    place.is(&format!("ext4 ls --dm-verity tree.hash {other} plain"), 2, "does not match");

    let wrong = CRYPT.replace("key-file key", "key-file wrong");
    for command in ["info", "ls", "check"] {
        place.is(&format!("ext4 {command} {wrong} enc"), 2, "the key may be wrong");
    }
    place.is(&format!("ext4 ls {wrong} --dm-verity tree.hash {root} enc"), 2, "does not match its hash tree");
    place.is("ext4 ls --key-file key enc", 2, "--crypt");
    // What cryptsetup means by -s is not taken for a salt, and options of a layer that is not there are refused.
    for (line, what) in [
        ("ls -s 512", "unexpected argument '-s'"),
        ("cat -s 512", "unexpected argument '-s'"),
        ("extract --salt 00", "--dm-verity"),
        ("tree --hash sha512", "--dm-verity"),
        ("cat --verity-provider sha256-portable", "--dm-verity"),
        ("stat --data-blocks 4", "--dm-verity"),
        ("mkdir -s 512", "unexpected argument '-s'"),
    ] {
        place.is(&format!("ext4 {line} {CRYPT} enc /new"), 2, what);
    }
    place.is("fscrypt backup --salt 00 plain backup /etc", 2, "--dm-verity");
    // fs-verity's option is still what it was.
    assert_eq!(
        printed(&place, &format!("ext4 cat --verity check {CRYPT} enc /etc/passwd")),
        b"root:x:0:0::/:/bin/sh\n"
    );
    place.is("ext4 cat --verity require plain /etc/passwd", 2, "no fs-verity");
}

#[test]
fn changes_reach_the_image_encrypted() {
    let (Some(place), Some(e2fsck)) = (place(), tool("e2fsck")) else { return };
    for (number, crypt) in [
        CRYPT.to_owned(),
        format!("{CRYPT} --sector-size 4096 --crypt-offset 8s"),
        "--crypt aes-cbc-essiv:sha256 --key-file key --key-size 256".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        let options = crypt.clone();
        printed(&place, &format!("crypt encrypt {options} plain image --overwrite"));
        fs::write(place.path("new"), MARK.repeat(500)).unwrap();
        printed(&place, &format!("ext4 mkdir image /a-directory-with-a-name {crypt}"));
        printed(&place, &format!("ext4 put image new /a-directory-with-a-name/{number} {crypt}"));
        printed(&place, &format!("ext4 rm -r image /etc/many {crypt}"));
        place.is(
            &format!("ext4 mkdir image /other {}", crypt.replace("file key", "file wrong")),
            2,
            "may be wrong",
        );
        let cat = printed(&place, &format!("ext4 cat image /a-directory-with-a-name/{number} {crypt}"));
        assert!(cat == MARK.repeat(500));
        // Nothing of it can be seen without the key, and decrypted it is a clean file system.
        let raw = fs::read(place.path("image")).unwrap();
        for part in [MARK, b"a-directory-with-a-name"] {
            assert!(!raw.windows(part.len()).any(|window| window == part), "{crypt}");
        }
        printed(&place, &format!("crypt decrypt {options} image decrypted"));
        run(Command::new(&e2fsck).arg("-fn").arg(place.path("decrypted")));
        assert!(!place.path("image.casemate-redo").exists());
    }
    // Checksums alone can be rewritten through it too: the superblock's is the last of its bytes.
    let mut plain = fs::read(place.path("plain")).unwrap();
    plain[1024 + 1020] ^= 1;
    fs::write(place.path("damaged"), &plain).unwrap();
    printed(&place, &format!("crypt encrypt {} damaged image", CRYPT));
    let before = fs::read(place.path("image")).unwrap();
    let fix = format!("ext4 check --fix-checksums image {CRYPT}");
    place.is(&fix.replace("file key", "file wrong"), 2, "may be wrong");
    assert_eq!(place.own(&format!("{fix} --dry-run")).status.code(), Some(1));
    assert!(fs::read(place.path("image")).unwrap() == before);
    printed(&place, &fix);
    printed(&place, &format!("crypt decrypt {} image decrypted", CRYPT));
    plain[1024 + 1020] ^= 1;
    assert!(fs::read(place.path("decrypted")).unwrap() == plain);

    run(Command::new(tool("tune2fs").unwrap()).args(["-O", "^has_journal"]).arg(place.path("plain")));
    printed(&place, &format!("crypt encrypt {} plain image", CRYPT));
    let before = fs::read(place.path("image")).unwrap();
    place.is(&format!("ext4 mkdir image /new {CRYPT}"), 2, "without a journal");
    place.is(&format!("ext4 mkdir image /new --recovery-file redo {CRYPT}"), 2, "--recovery-file");
    assert!(fs::read(place.path("image")).unwrap() == before);
}

/// A disk as systemd-repart makes them: data and hash area are partitions, whose UUIDs are the halves of the root hash.
#[test]
fn a_hash_area_is_found_in_another_partition_of_the_disk() {
    let Some(place) = place() else { return };
    let (Some(sfdisk), Some(veritysetup)) = (tool("sfdisk"), tool("veritysetup")) else { return };
    let data = fs::read(place.path("plain")).unwrap();
    let mut command = Command::new(veritysetup);
    let said = run(command.arg("format").args([place.path("plain"), place.path("area")]));
    let root = said.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap().trim().to_owned();
    let uuid = |half: &str| [&half[..8], &half[8..12], &half[12..16], &half[16..20], &half[20..]].join("-");
    let [first, second] = [uuid(&root[..32]), uuid(&root[32..])];
    // The data are the second partition, so that the number of neither is where it would be by chance.
    let sectors = data.len() / 512;
    let table = format!(
        "label: gpt\nstart=2048,size=2048\nstart=8192,size={sectors},uuid={first}\nstart=4096,size=4096,uuid={second}\n"
    );
    fs::write(place.path("table"), table).unwrap();
    let script = format!("truncate -s 16M disk && {} -q disk <table", sfdisk.display());
    run(Command::new("sh").args(["-ec", &script]).current_dir(place.path(".")));
    let disk = fs::OpenOptions::new().write(true).open(place.path("disk")).unwrap();
    disk.write_all_at(&data, 8192 * 512).unwrap();
    disk.write_all_at(&fs::read(place.path("area")).unwrap(), 4096 * 512).unwrap();

    let expected = everything(&place, "plain");
    for hash in ["--verity-hash-partition auto", "--verity-hash-partition 3", "--hash-partition 3"] {
        let image = format!("-P 2 --dm-verity disk {root} {hash} disk");
        assert!(everything(&place, &image) == expected, "{image}");
    }
    // The hash area of another disk.
    fs::copy(place.path("disk"), place.path("copy")).unwrap();
    printed(&place, &format!("ext4 ls -P 2 --dm-verity copy {root} --verity-hash-partition auto disk"));

    let wrong = root.replace(&root[60..], "0000");
    let line = |root: &str, partition: &str| {
        format!("ext4 ls -P 2 --dm-verity disk {root} --verity-hash-partition {partition} disk")
    };
    place.is(&line(&wrong, "auto"), 2, "no partition has the UUID");
    place.is(&line(&wrong, "3"), 2, "does not match");
    place.is(&line(&root, "7"), 2, "there is no partition 7; there are: 1, 2, 3");
    place.is(&line(&root, "1"), 2, "no hash area of dm-verity begins here");
    place.is(&line(&root, "second"), 2, "no partition has the name 'second'");
    place.is(
        &format!("ext4 ls -P 2 --dm-verity plain {root} --verity-hash-partition 1 disk"),
        2,
        "no partition table",
    );
    place.is("ext4 ls -P 2 --verity-hash-partition 3 disk", 2, "--dm-verity");
    // What was changed is found as everywhere.
    disk.write_all_at(&[0xff; 8192], 8192 * 512).unwrap();
    place.is(&line(&root, "auto"), 2, "does not match its hash tree");
}

/// A disk with the file systems `plain` and `more`, in partitions with names.
fn disk(place: &Place, name: &str, volumes: &[&str]) {
    let mut table = "label: gpt\n".to_owned();
    let mut start = 2048;
    let mut starts = Vec::new();
    for (number, volume) in volumes.iter().enumerate() {
        let sectors = fs::metadata(place.path(volume)).unwrap().len().div_ceil(512);
        table += &format!(
            "start={start},size={sectors},name=\"part-{volume}\",uuid=0FC63DAF-8483-4772-8E79-00000000000{number}\n"
        );
        starts.push(start);
        start += sectors.next_multiple_of(2048);
    }
    fs::write(place.path("table"), table).unwrap();
    place.sh(&format!("truncate -s {} {name} && sfdisk -q {name} <table", (start + 2048) * 512));
    let disk = fs::OpenOptions::new().write(true).open(place.path(name)).unwrap();
    for (volume, start) in volumes.iter().zip(starts) {
        disk.write_all_at(&fs::read(place.path(volume)).unwrap(), start * 512).unwrap();
    }
}

#[test]
fn layers_in_a_specification_are_those_of_the_options() {
    let (Some(place), Some(_)) = (place(), tool("sfdisk")) else { return };
    let expected = everything(&place, "plain");
    place.yes("crypt encrypt plain enc --key-file key --key-size 512 --sector-size 4096 --skip 8");
    place.yes("luks format vol --from plain --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000");
    place.yes("integrity format int --size 12M --from plain -I hmac-sha256 --integrity-key-file key");
    let root = format(&place, "plain", "tree,,hash");
    fs::write(place.path("root.txt"), &root).unwrap();
    disk(&place, "disk", &["enc", "vol", "plain", "tree,hash", "int"]);
    // A partition table within a volume, which options can't say.
    disk(&place, "inner", &["plain"]);
    place.yes("luks format deep --from inner --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000");
    fs::copy(place.path("disk"), place.path("a,b")).unwrap();

    let crypt = "crypt=aes-xts-plain64,key-file=key,key-size=512,sector-size=4K,skip=8";
    let verity = "verity,root-hash=@root.txt";
    for (spec, options) in [
        (format!("enc,{crypt}"), format!("{CRYPT} --sector-size 4096 --skip 8 enc")),
        (format!("disk,partition=1,{crypt}"), format!("-P 1 {CRYPT} --sector-size 4096 --skip 8 disk")),
        (
            "disk,partition=part-vol,luks,key-file=key".to_owned(),
            "-P part-vol --luks --key-file key disk".to_owned(),
        ),
        (
            "disk,partition=0fc63daf-8483-4772-8e79-000000000001,luks,key-file=key,kdf-limit=2".to_owned(),
            "-P 0fc63daf-8483-4772-8e79-000000000001 --luks --key-file key --kdf-limit 2 disk".to_owned(),
        ),
        (
            "disk,partition=5,integrity=hmac-sha256,key-file=key".to_owned(),
            "-P 5 --dm-integrity hmac-sha256 --integrity-key-file key disk".to_owned(),
        ),
        (
            format!("plain,{verity},hash-device=tree,,hash"),
            "--dm-verity tree,hash @root.txt plain".to_owned(),
        ),
        (
            format!("disk,partition=3,{verity},hash-partition=part-tree,,hash"),
            "-P 3 --dm-verity disk @root.txt --verity-hash-partition part-tree,hash disk".to_owned(),
        ),
        ("a,,b,partition=3".to_owned(), "-P 3 a,b".to_owned()),
        ("deep,luks,key-file=key,partition=1".to_owned(), "plain".to_owned()),
    ] {
        assert!(everything(&place, &spec) == expected, "{spec}");
        assert!(everything(&place, &options) == expected, "{options}");
    }
    disk(&place, "twins", &["plain", "plain"]);
    place.is("ext4 ls twins,partition=part-plain", 2, "partitions 1, 2 have this name");
    place.is("ext4 ls disk,partition=7", 2, "there is no partition 7; there are: 1, 2, 3, 4, 5");
    // What reads the file system comes last: a backup, where the superblock is lost.
    place.sh("mke2fs -q -F -t ext4 -b 1024 -d tree small 16M && dd if=/dev/zero of=small bs=1024 seek=1 count=1 conv=notrunc");
    place.is("ext4 ls small", 2, "");
    assert!(place.yes("ext4 ls small,ext4,superblock=8193").contains("data\n"));
    assert!(place.yes("ext4 ls small --superblock 8193").contains("data\n"));
    // What changes an image goes through all of it.
    for spec in ["disk,partition=2,luks,key-file=key", "deep,luks,key-file=key,partition=1"] {
        place.yes(&format!("ext4 mkdir -n {spec} /new"));
        assert!(!place.yes(&format!("ext4 ls {spec}")).contains("new"));
        place.yes(&format!("ext4 mkdir {spec} /new"));
        assert!(place.yes(&format!("ext4 ls {spec}")).contains("new"));
        place.is(&format!("ext4 check --repair -n {spec}"), 0, "");
    }
    place.is(&format!("ext4 mkdir disk,partition=3,{verity},hash-partition=4 /new"), 2, "dm-verity");
    place.is(&format!("serve -w --exec true disk,partition=3,{verity},hash-partition=4"), 2, "dm-verity");
    // Each export has its own layers.
    let served = "serve -r --exec true --export a=disk,partition=2,luks,key-file=key --export b=plain";
    place.is(served, 0, "");
    place.is(&format!("{served} --luks --key-file key"), 2, "give all of them in one place");
    // What was found is read by the commands that are shown.
    let shown = place.yes("info deep,luks,key-file=key");
    let commands: Vec<&str> =
        shown.lines().filter_map(|line| line.trim().strip_prefix("$ casemate ")).collect();
    assert!(commands.contains(&"ext4 ls deep,luks,key-file=key,partition=1 /"), "{shown}");
    commands.iter().for_each(|line| drop(place.yes(line)));
    let shown = place.yes("info a,,b");
    assert!(
        shown.contains("$ casemate ext4 ls -P 3 a,,b /\n") && shown.contains("luks dump -P 2 a,,b\n"),
        "{shown}"
    );
}

#[test]
fn a_specification_that_can_be_misread_opens_nothing() {
    let Some(place) = place() else { return };
    for (line, said) in [
        ("ext4 ls plain,lusk", "unknown layer 'lusk' at character 7; did you mean luks?"),
        ("ext4 ls plain,luks,passphrase=hunter2", "no secret is given on a command line"),
        ("ext4 ls -P 1 plain,luks,key-file=key", "give all of them in one place"),
        ("ext4 ls --superblock 1 plain,ext4,superblock=1", "give all of it in one place"),
        ("serve -r --exec true plain,ext4,superblock=1", "leave ext4 out"),
        ("info plain,ext4,superblock=1", "leave ext4 out"),
        ("serve -w --exec true --reencrypt plain", "a LUKS volume"),
        ("serve -w --exec true --allow-discards plain", "--crypt or --luks"),
        ("ext4 extract plain,luks,key-file=key --tar=key", "key"),
        ("ext4 mkdir plain,crypt=aes-xts-plain64,key-file=key --recovery-file r /new", "plain text"),
    ] {
        let out = place.is(line, 2, said);
        assert!(!String::from_utf8_lossy(&out.stderr).contains("hunter2"), "{line}");
    }
    assert_eq!(place.read("key").len(), 64);
    // The name of a file that could be the layers of another one.
    fs::copy(place.path("plain"), place.path("plain,offset=0")).unwrap();
    place.is("ext4 ls plain,offset=0", 2, "is the name of a file, and says layers of another one");
    place.yes("ext4 ls plain,,offset=0");
    fs::copy(place.path("plain"), place.path("plain,new.img")).unwrap();
    place.yes("ext4 ls plain,new.img");
}
