//! Effects of the options, and errors for wrong ones.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use casemate_testkit::nbd::TRIM;
use casemate_testkit::{Rng, run, run_any, tool, wait_until};

use crate::{CASEMATE, CRYPT, Folder, SIZE};

/// The key is the server's, not the command's.
#[test]
fn the_command_gets_no_descriptor_of_a_key() {
    let folder = Folder::new();
    for key in ["--key-fd 7", "--key-file /dev/fd/7", "--key-file /proc/self/fd/7"] {
        let line = format!(
            "{CASEMATE} serve enc -r --crypt aes-xts-plain64 --key-size 512 {key} \
             --exec 'test ! -e /proc/self/fd/7 && test -e /proc/self/fd/8' 7<key 8<image"
        );
        run(Command::new("sh").args(["-c", &line]).current_dir(folder.path()));
    }
}

#[test]
fn a_pid_file_replaces_nothing_but_a_pid_file() {
    let folder = Folder::new();
    let at = |name: &str| folder.path().join(name);
    for (text, expected) in
        [("", 0), ("123\n", 0), ("my notes\n", 2), ("1 2\n", 2), ("123456789012345678901", 2)]
    {
        fs::write(at("pid"), text).unwrap();
        let (status, _, stderr) = folder.with("image --pid-file pid", "true");
        assert_eq!(status, expected, "{text}: {stderr}");
        match expected {
            0 => assert!(!at("pid").exists(), "{text}"),
            _ => assert_eq!(fs::read(at("pid")).unwrap(), text.as_bytes()),
        }
    }
    fs::remove_file(at("pid")).unwrap();
    run(Command::new("mkfifo").arg(at("pid")));
    let (status, _, stderr) = folder.with("image --pid-file pid", "true");
    assert_eq!(status, 2, "{stderr}");
    assert!(stderr.contains("not a regular file"), "{stderr}");
}

#[test]
fn the_command_and_signals_end_it() {
    let folder = Folder::new();
    assert_eq!(folder.with("image", "exit 7").0, 7);
    assert_eq!(folder.with("image", "kill -9 $$").0, 137);
    let (status, stdout, _) = folder.with("image --json", "test -S \"$unixsocket\"");
    assert_eq!((status, stdout.matches("\"connections\":0").count()), (0, 1), "{stdout}");

    let mut running = folder.start(&format!("{CRYPT} enc --json"));
    let mut client = running.client();
    client.write(0, &[1; 64 << 10], 0).unwrap();
    client.read(100, 10).unwrap();
    let mode = fs::metadata(folder.path().join("sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let key = folder.read("key");
    let arguments = fs::read(format!("/proc/{}/cmdline", running.child.id())).unwrap();
    assert!(!arguments.windows(8).any(|window| window == &key[..8]));
    running.signal("USR1");
    let mut lines = BufReader::new(running.child.stdout.take().unwrap()).lines();
    let first: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&first["size"], &first["read_only"]), (&SIZE.into(), &false.into()), "{first}");
    let now: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&now["writes"], &now["clients"]), (&1.into(), &1.into()), "{now}");
    let layer = &now["layers"][0];
    // The server itself has looked at the beginning, 132 sectors, in one call.
    let units = (&layer["batched_units"], &layer["single_units"]);
    assert_eq!(units, (&(132 + 128).into(), &1.into()), "{now}");
    assert_eq!(layer["calls"], 1 + 2, "one call a request");
    running.signal("TERM");
    assert!(running.child.wait().unwrap().success());
    assert!(client.stream.read(&mut [0]).is_ok_and(|len| len == 0));
    assert!(!folder.path().join("sock").exists());
    assert_eq!(folder.log(), "");
}

#[test]
fn other_machines_are_let_in_only_when_asked() {
    let folder = Folder::new();
    let (status, _, stderr) = folder.with("--tcp 0.0.0.0:0 image", "true");
    assert_eq!((status, stderr.contains("--allow-remote")), (2, true), "{stderr}");
    let (status, _, stderr) = folder.with("--tcp 0.0.0.0:0 --allow-remote image", "true");
    assert_eq!((status, stderr.contains("nothing sent is protected")), (0, true), "{stderr}");
    let (status, _, stderr) = folder.with("--tcp 127.0.0.1:0 image", "test -n \"$port\"");
    assert_eq!((status, &*stderr), (0, ""));
}

#[test]
fn a_part_of_an_image() {
    let folder = Folder::new();
    for name in ["sfdisk", "nbdcopy"] {
        if tool(name).is_none() {
            return;
        }
    }
    let new = Rng::new(11).bytes(1 << 20);
    fs::write(folder.path().join("new"), &new).unwrap();
    let start = 8192 * 512;
    for label in ["gpt", "dos"] {
        let script = format!(
            "for i in image enc; do\n\
                 truncate -s 0 disk-$i; truncate -s 16M disk-$i\n\
                 printf 'label: {label}\nstart=2048, size=2048\nstart=8192, size=8192\n' | sfdisk -q disk-$i\n\
                 dd if=$i of=disk-$i bs=512 seek=8192 conv=notrunc status=none\n\
             done"
        );
        run(Command::new("sh").arg("-ec").arg(script).current_dir(folder.path()));
        for options in [
            "disk-image --partition 2".to_owned(),
            "disk-image -P2".to_owned(),
            format!("disk-image --offset {start} --size {SIZE}"),
            format!("{CRYPT} disk-enc --partition 2"),
            format!("--verity tree {} disk-image -P 2", folder.root),
        ] {
            folder.expect(&options, "nbdcopy \"$uri\" copy; cmp image copy");
        }
        // What is written stays in the partition, and what would pass its end is refused.
        let mut model = folder.read("disk-image");
        let script = "nbdcopy new \"$uri\"; ! nbdcopy image \"$uri\" 2>/dev/null; nbdinfo --size \"$uri\"";
        assert_eq!(folder.expect("disk-image -P 1", script), "1048576\n");
        model[1 << 20..2 << 20].copy_from_slice(&new);
        assert!(folder.read("disk-image") == model, "{label}");
        let (status, _, stderr) = folder.with("disk-image --partition 3", "true");
        assert_eq!((status, stderr.contains("there is no partition 3")), (2, true), "{stderr}");
    }
}

/// Each option of the mapping against what the crypt command makes of the same.
#[test]
fn options_of_the_mapping() {
    let folder = Folder::new();
    if tool("nbdcopy").is_none() {
        return;
    }
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    let key = folder.read("key");
    write("padded", &[&[0; 100][..], &key].concat());
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let extra = "1 sector_size:4096";
    write("table", format!("0 8192 crypt aes-xts-plain64 {hex} 8 /dev/sda 8 {extra}\n").as_bytes());
    write("secret", b"open sesame");
    let same = "--key-file key --key-size 512";
    for (made_with, options) in [
        (same, "--crypt aes-xts-plain64 --key-file padded --keyfile-offset 100 --key-size 512"),
        (same, "--crypt aes-xts-plain64 --key-size 512 --key-fd 7"),
        ("--key-file key", "--crypt aes-xts-plain64 --key-file key"),
        (
            "--key-file key --key-size 512 --skip 8 --sector-size 4096 --iv-large-sectors",
            "--crypt aes-xts-plain64 --key-file key --key-size 512 --skip 8 --sector-size 4096 --iv-large-sectors",
        ),
        ("--key-file key --key-size 512 --skip 8 --sector-size 4096", "--crypt-table table"),
        (
            "--cipher aes-cbc-essiv:sha256 --hash ripemd160",
            "--crypt aes-cbc-essiv:sha256 --passphrase-hash ripemd160",
        ),
        ("--cipher aes-cbc-essiv:sha256", "--crypt aes-cbc-essiv:sha256"),
    ] {
        // The passphrase is that of standard input where no key file is named.
        let make = format!("rm -f made; {CASEMATE} crypt encrypt image made {made_with} <secret");
        run(Command::new("sh").arg("-ec").arg(make).current_dir(folder.path()));
        let mut bytes = folder.read("made");
        let mut options = format!("{options} made");
        if options.contains("table") {
            bytes.splice(..0, [0; 8 * 512]);
        } else {
            options += " --crypt-offset 3s";
            bytes.splice(..0, [0; 3 * 512]);
        }
        write("made", &bytes);
        let serve = format!(
            "{CASEMATE} serve {options} --exec 'nbdcopy \"$uri\" copy && cmp image copy' <secret 7<key"
        );
        run(Command::new("sh").arg("-ec").arg(serve).current_dir(folder.path()));
    }
    let report = folder.expect(&format!("{CRYPT} --crypt-provider xts-aes-portable enc --json"), "true");
    assert!(report.contains("\"driver\":\"xts-aes-portable\""), "{report}");
}

#[test]
fn discards_reach_the_image_when_asked() {
    let folder = Folder::new();
    for (options, trimmed) in [("--allow-discards", Ok(Vec::new())), ("", Err(95))] {
        let before = fs::metadata(folder.path().join("enc")).unwrap().blocks();
        let running = folder.start(&format!("{CRYPT} {options} enc"));
        assert_eq!(running.client().ask(TRIM, 0, 1 << 20, 2 << 20, &[]), trimmed);
        assert_eq!(running.end(), 0);
        let after = fs::metadata(folder.path().join("enc")).unwrap().blocks();
        assert_eq!(before - after, if trimmed.is_ok() { 4096 } else { 0 });
    }
}

/// Zeros that nobody has to read, and an export with a name.
#[test]
fn clients_are_told_what_there_is() {
    let folder = Folder::new();
    if tool("nbdinfo").is_none() {
        return;
    }
    let sparse = fs::File::create(folder.path().join("sparse")).unwrap();
    sparse.set_len(SIZE as u64).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[1; 1 << 20], 1 << 20).unwrap();
    let map = "nbdinfo --map \"$uri\" | awk '{ print $1, $2, $3 }'";
    let holes = "0 1048576 3\n1048576 1048576 0\n2097152 2097152 3\n";
    assert_eq!(folder.expect("sparse", map), holes);
    assert_eq!(folder.expect("sparse --overlay changes", map), holes);
    assert_eq!(folder.expect("sparse --offset 1048576", map), "0 1048576 0\n1048576 2097152 3\n");
    // Decryption does not turn a hole into zeros; and in verified data even zeros have digests.
    let all = format!("0 {SIZE} 0\n");
    assert_eq!(folder.expect(&format!("{CRYPT} sparse"), map), all);
    assert_eq!(folder.expect(&format!("--verity tree {} image", folder.root), map), all);
    folder.expect(
        "sparse",
        "nbdinfo --can cache \"$uri\"; nbdinfo --can fast-zero \"$uri\"; nbdinfo --can fua \"$uri\"",
    );
    folder
        .expect("sparse --read-only", "nbdinfo --is read-only \"$uri\"; ! nbdinfo --can fast-zero \"$uri\"");

    let script = "nbdinfo --list \"nbd+unix:///?socket=$unixsocket\" | grep '^export='\n\
        nbdinfo --size \"$uri\"\n\
        ! nbdinfo --size \"nbd+unix:///?socket=$unixsocket\" 2>&1\n\
        ! nbdinfo --size \"nbd+unix:///other?socket=$unixsocket\" 2>/dev/null";
    let said = folder.expect("image --export-name my/disk", script);
    assert!(said.starts_with(&format!("export=\"my/disk\":\n{SIZE}\n")), "{said}");
    assert!(said.contains("has no export named ''"), "{said}");
}

/// Nobody's image is written to because it was looked at.
#[test]
fn clients_can_only_read_unless_they_may_write() {
    let folder = Folder::new();
    let before = folder.read("image");
    let write = "qemu-io -f raw -c 'write -P 7 0 4k' \"$uri\"";
    if tool("qemu-io").is_none() {
        return;
    }
    for (options, said) in [
        ("image --verbose", "casemate: note: clients can only read; use --write to let them write"),
        // Nobody is at the terminal of a service.
        ("image", ""),
        ("image --read-only", ""),
    ] {
        let output = run_any(folder.command(&format!("serve {options}")).arg("--exec").arg(write));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(said), "{options}: {stderr}");
        assert_eq!(stderr.contains("note:"), !said.is_empty(), "{options}: {stderr}");
        assert!(folder.read("image") == before, "{options}");
    }
    folder.expect("image", write);
    assert!(folder.read("image")[..4096] == [7; 4096]);
    // What an overlay has is seen without changing it.
    folder.expect("image --overlay changes", "qemu-io -f raw -c 'write -P 9 0 4k' \"$uri\"");
    let kept = folder.read("changes");
    let look = "qemu-io -r -f raw -c 'read -P 9 0 4k' \"$uri\"; nbdinfo --is read-only \"$uri\"";
    folder.expect("image --overlay changes --read-only", look);
    assert!(folder.read("changes") == kept);
    assert_eq!(folder.with("image --overlay none --read-only", "true").0, 2);
    for options in ["image --write --read-only", "image --write --overlay o"] {
        let output = run_any(&mut folder.command(&format!("serve {options} --exec true")));
        assert_eq!(output.status.code(), Some(2), "{options}");
    }
}

#[test]
fn a_server_ends_with_its_last_client_and_says_who_it_is() {
    if tool("nbdinfo").is_none() {
        return;
    }
    let folder = Folder::new();
    let running = folder.start("image --read-only --exit-with-last --pid-file pid");
    let client = running.client();
    // A socket takes clients as soon as it is there, which is before that file is.
    wait_until(|| folder.path().join("pid").exists());
    let pid = String::from_utf8(folder.read("pid")).unwrap();
    assert_eq!(pid.trim(), running.child.id().to_string());
    drop(client);
    let mut running = running;
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    assert!(!folder.path().join("pid").exists());
}

/// Noise is served, but not without a word.
#[test]
fn a_wrong_key_is_mentioned() {
    let folder = Folder::new();
    let note = "casemate: note: enc: the decrypted data have no known signature: the key or its options may be wrong\n";
    let crypt = "--crypt aes-xts-plain64 --key-file key";
    for (options, said) in [
        (format!("{crypt} -s 512 enc"), String::new()),
        (format!("{crypt} -s 256 enc"), note.to_owned()),
        (
            format!("{crypt} enc"),
            format!(
                "casemate: note: key has 64 bytes, 32 are used; use all of it as a key of 512 bits (--key-size 512)\n{note}"
            ),
        ),
        (format!("{crypt} -s 512 --skip 1 enc"), note.to_owned()),
        ("enc".to_owned(), String::new()),
    ] {
        let (status, _, stderr) = folder.with(&options, "true");
        assert_eq!((status, stderr), (0, said), "{options}");
    }
}

/// Wrong options are reported before anything is served, with what to do.
#[test]
fn wrong_options_are_refused() {
    let folder = Folder::new();
    fs::write(folder.path().join("odd"), vec![0; 1000]).unwrap();
    let long = "x".repeat(4097);
    for (options, text) in [
        ("image", "--socket <PATH>|--tcp <[ADDRESS:]PORT>|--exec <COMMAND>"),
        ("--exec true", "<IMAGE>"),
        ("none --exec true", "none: No such file"),
        (". --exec true", "neither a regular file nor a block device"),
        ("image --socket image", "image: there is something else of this name"),
        ("image --socket none/s", "none/s: No such file"),
        ("image --socket s --tcp 0", "cannot be used with"),
        ("image --tcp x", "give a port, or a numeric address and a port"),
        ("image --tcp 127.0.0.1", "give a port, or a numeric address and a port"),
        ("image --partition 1 --offset 512 --exec true", "cannot be used with"),
        ("image --offset 4194305 --exec true", "pass the end"),
        ("image --offset 512 --size 4194304 --exec true", "pass the end"),
        ("image --overlay image --exec true", "can't be kept in the image itself"),
        ("image --max-clients 0 --exec true", "--max-clients"),
        ("image --handshake-timeout 0 --exec true", "--handshake-timeout"),
        (&format!("image --export-name {long} --exec true"), "4096 is the most"),
        // What would protect nothing.
        ("image --tls require --exec true", "--tls-certificates"),
        ("image --tls-certificates . --exec true", "--tls "),
        ("image --tls on --tls-verify-peer --exec true", "--tls-certificates"),
        ("image --tls on --tls-certificates . --tls-verify-peer --exec true", "needs --tls=require"),
        (
            "image --tls off --tls-certificates . --tls-verify-peer --exec true",
            "--tls=off uses no certificates",
        ),
        ("image --tls off --tls-certificates . --exec true", "--tls=off uses no certificates"),
        ("image --tcp 0 --allow-remote --exec true", "no other machine reaches this address"),
        ("image --crypt aes-xts-plain64 --read-only --allow-discards --exec true", "cannot be used with"),
        (
            "image --write --allow-discards --exec true",
            "is for an image that is decrypted: --crypt or --luks",
        ),
        ("image --crypt-provider x --exec true", "--crypt <SPEC>|--crypt-table <FILE>"),
        ("image --sector-size 4096 --exec true", "--crypt <SPEC>"),
        ("image --key-file key --exec true", "--crypt <SPEC>"),
        ("image --hash-offset 4096 --exec true", "--dm-verity <HASH> <ROOT>"),
        // -s is the key's size here, and what belongs to dm-verity does nothing without it.
        ("image -s 512 --exec true", "--crypt <SPEC>"),
        ("image --crypt aes-xts-plain64 --key-file key -s 100 --exec true", "a key size of 100 bits"),
        ("image --crypt aes-cbc-essiv:sha256 --hash ripemd160 --exec true", "--dm-verity <HASH> <ROOT>"),
        ("image --verity-hash sha512 --exec true", "--dm-verity <HASH> <ROOT>"),
        ("image --salt 00 --exec true", "--dm-verity <HASH> <ROOT>"),
        ("image --format 1 --exec true", "--dm-verity <HASH> <ROOT>"),
        ("image --data-blocks 4 --exec true", "--dm-verity <HASH> <ROOT>"),
        ("image --data-block-size 512 --exec true", "--dm-verity <HASH> <ROOT>"),
        ("image --hash-block-size 512 --exec true", "--dm-verity <HASH> <ROOT>"),
        ("image --provider sha256-portable --exec true", "--dm-verity <HASH> <ROOT>"),
        ("image --no-superblock --exec true", "--dm-verity <HASH> <ROOT>"),
        (
            "image --crypt aes-xts-plain64 --keyfile-offset 4 --exec true",
            "--key-file <FILE>|--key-fd <NUMBER>",
        ),
        (
            "image --crypt aes-xts-plain64 --key-file key --passphrase-hash sha512 --exec true",
            "cannot be used with",
        ),
        (
            "image --verity tree ROOT --allow-discards --crypt aes-xts-plain64 --exec true",
            "cannot be used with",
        ),
        (
            "image --verity tree ROOT --verity-hash sha512 --exec true",
            "tree: the hash algorithm in the superblock is sha256, not sha512",
        ),
        ("image --verity tree ROOT --verity-salt 00 --exec true", "tree: the salt in the superblock is "),
        (
            "image --verity tree ROOT --data-blocks 4 --exec true",
            "data blocks in the superblock is 1024, not 4",
        ),
        ("odd --crypt aes-xts-plain64 --key-file key --exec true", "odd: 1000 bytes are not a multiple"),
        ("image --crypt foo-bar --key-file key --exec true", "bar"),
        ("image --crypt aes-xts-plain64 --key-file none --exec true", "none: No such file"),
        ("image --crypt aes-xts-plain64 --exec true", "no passphrase was given"),
        (
            "image --crypt aes-xts-plain64 --key-file key --key-size 1024 --exec true",
            "fewer than the 128 bytes",
        ),
        ("image --crypt aes-xts-plain64 --key-fd 77 --exec true", "77"),
        ("image --crypt-table key --exec true", "key: "),
        ("image --crypt-table none --crypt aes-xts-plain64 --exec true", "none: No such file"),
        (
            "image --crypt aes-xts-plain64 --key-file key --crypt-offset 18446744073709551615 --exec true",
            "multiple of 512 bytes",
        ),
        ("image --crypt aes-xts-plain64 --key-file key --crypt-provider none --exec true", "none"),
        (
            "image --crypt aes-xts-plain64 --key-file key --crypt-provider sha256-crate --exec true",
            "the driver sha256-crate was named, but aes-xts-plain64 does not use it",
        ),
        ("image --verity tree 00 --exec true", "the root hash has 1 bytes; digests have 32"),
        ("image --verity tree zz --exec true", "must be hex"),
        ("image --verity none 00 --exec true", "none: No such file"),
        (
            "odd --verity tree ROOT --exec true",
            "odd: the hash tree is over 4194304 bytes, and there are 1000",
        ),
        ("image --verity image ROOT --exec true", "image"),
    ] {
        let output =
            run_any(&mut folder.command(&format!("serve {}", options.replace("ROOT", &folder.root))));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(text), "{options}: {stderr}");
        assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]), "{options}: {stderr}");
    }
    assert!(!folder.path().join("o").exists());
}

/// Several images on one socket: found by their names, and decrypted alike.
#[test]
fn several_exports() {
    let folder = Folder::new();
    for name in ["nbdinfo", "nbdcopy", "qemu-img", "nbd-client"] {
        if tool(name).is_none() {
            return;
        }
    }
    let half = &folder.read("enc")[..SIZE / 2];
    fs::write(folder.path().join("half"), half).unwrap();
    let at = "nbd+unix:///$name?socket=$unixsocket";
    let script = format!(
        "nbdinfo --list \"$uri\" | grep -E '^export=|export-size'\n\
         nbd-client -l -unix \"$unixsocket\" | sort\n\
         echo $uris | tr ' ' '\\n' | sed 's/?.*//'\n\
         for name in my/root data; do nbdcopy \"{at}\" copy.$(basename $name); done\n\
         name=data; qemu-img info \"{at}\" | grep -c '2 MiB'\n\
         name=none; ! nbdinfo \"{at}\" 2>/dev/null\n\
         printf both | nbdcopy - \"nbd+unix:///my/root?socket=$unixsocket\""
    );
    let said = folder.expect(&format!("{CRYPT} --export my/root=enc --export data=half"), &script);
    assert!(said.contains("export=\"my/root\":\n\texport-size: 4194304"), "{said}");
    assert!(said.contains("export=\"data\":\n\texport-size: 2097152"), "{said}");
    assert!(said.contains("data\nmy/root\n"), "{said}");
    assert!(said.contains("nbd+unix:///my/root\nnbd+unix:///data\n1\n"), "{said}");
    let plain = folder.read("image");
    assert!(folder.read("copy.root") == plain);
    assert!(folder.read("copy.data") == plain[..SIZE / 2]);
    folder.casemate("crypt decrypt enc plain --key-file key --key-size 512");
    assert_eq!(folder.read("plain")[..4], *b"both");

    // The image that is named alone is the default export, and each export counts for itself.
    let said = folder.expect("image --read-only --json --export other=half", "nbdcopy \"$uri\" copy");
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = lines.iter().map(|line| line["export_name"].as_str().unwrap()).collect();
    assert_eq!(names, ["", "other"]);
    assert!(lines[0]["reads"].as_u64() > Some(0) && lines[1]["reads"] == 0, "{said}");
    for (options, what) in [
        ("image --export =half", "each with a name of its own"),
        ("--export a=image --export a=half", "each with a name of its own"),
        ("--export image", "give a name and an image"),
        ("image --export a=half --overlay changes", "cannot be used with"),
        ("image --export a=missing", "missing"),
        ("--read-only", "required"),
    ] {
        let (status, _, stderr) = folder.with(options, "true");
        assert_eq!((status, stderr.contains(what)), (2, true), "{options}: {stderr}");
    }
    assert!(!folder.path().join("changes").exists());
    let forked =
        folder.casemate("serve -r --fork --socket sock --export a=image --export b=half --pid-file pid");
    assert_eq!(forked.lines().count(), 2, "{forked}");
    run(Command::new("sh").args(["-c", "kill $(cat pid)"]).current_dir(folder.path()));
}
