//! The fsverity commands, run as a user runs them, beside the real tool where it is installed.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};

use casemate_testkit::{Place, Rng, slow_tests, status, stderr, stdout, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// A folder for `casemate fsverity`.
fn place() -> Place {
    Place::under(CASEMATE, "fsverity")
}

fn random(seed: u64, len: usize) -> Vec<u8> {
    Rng::new(seed).bytes(len)
}

const EMPTY: &str = "sha256:3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95";

/// A file that gets a descriptor's name while the digest is made stays. None replaces the tree of the same run.
#[test]
fn a_descriptor_replaces_nothing_that_came_meanwhile() {
    let place = place();
    place.sh("mkfifo data");
    place.file("tree", "of another file");
    let mut digest = Command::new(CASEMATE);
    let outputs = ["--out-descriptor", "out", "--out-merkle-tree", "tree"];
    digest.args(["fsverity", "digest", "data"]).args(outputs).current_dir(place.folder());
    let digest = digest.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = fs::OpenOptions::new().write(true).open(place.path("data")).unwrap();
    // More than the pipe takes: all before is done.
    pipe.write_all(&random(5, 1 << 20)).unwrap();
    place.file("out", "PRECIOUS");
    drop(pipe);
    let output = digest.wait_with_output().unwrap();
    assert_eq!(status(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("out: a file of this name was made meanwhile"), "{}", stderr(&output));
    assert!(place.read("out") == b"PRECIOUS" && place.names() == ["data", "out", "tree"]);
    assert_eq!(place.read("tree"), b"of another file");
    place.file("plain", random(6, 9000));
    let both = place.own("digest plain --out-merkle-tree tree --out-descriptor ./tree");
    assert_eq!(status(&both), 2, "{}", stderr(&both));
    assert!(stderr(&both).contains("would replace"), "{}", stderr(&both));
    // A link to the tree that is not there yet is the tree, too.
    std::os::unix::fs::symlink("new", place.path("link")).unwrap();
    for (tree, descriptor) in [("new", "link"), ("link", "new")] {
        let both = place.own(&format!("digest plain --out-merkle-tree {tree} --out-descriptor {descriptor}"));
        assert_eq!(status(&both), 2, "{}", stderr(&both));
        assert!(stderr(&both).contains("would replace"), "{}", stderr(&both));
        assert!(!place.path("new").exists(), "{tree} {descriptor}");
    }
}

/// Sizes around every boundary of a tree, and salts and algorithms of all lengths: output lines, trees and
/// descriptors are those of the tool.
#[test]
fn digests_trees_and_descriptors_equal_the_tools() {
    let Some(tool) = tool("fsverity") else { return };
    let place = place();
    let mut rng = Rng::new(0xf5);
    let rounds = if slow_tests() { 600 } else { 60 };
    let data = random(1, 3 << 20);
    for round in 0..rounds {
        let (algorithm, digest_len) = [("sha256", 32u64), ("sha512", 64)][rng.below(2) as usize];
        let block_size = (2 * digest_len) << rng.below(10);
        let fan_out = block_size / digest_len;
        let limit = (3 << 20) / block_size;
        let blocks = match rng.below(4) {
            0 => rng.below(4),
            1 => fan_out,
            2 => (fan_out * fan_out).min(limit),
            _ => rng.below(limit + 1),
        };
        let near = (blocks * block_size + rng.below(3)).saturating_sub(rng.below(3));
        let size = if rng.below(4) == 0 { rng.below(1 << 16) } else { near.min(3 << 20) };
        place.file("data", &data[..size as usize]);
        let salt_len = rng.below(33) as usize;
        let salt: String = rng.bytes(salt_len).iter().map(|b| format!("{b:02x}")).collect();
        let options = format!("--hash-alg={algorithm} --block-size={block_size} --salt={salt}");
        let what = format!("round {round}: {size} bytes, {options}");
        let extra =
            ["", "--compact", "--for-builtin-sig", "--compact --for-builtin-sig"][rng.below(4) as usize];
        let theirs = place
            .run(&tool, &format!("digest data {options} {extra} --out-merkle-tree=t1 --out-descriptor=d1"));
        let ours =
            place.own(&format!("digest data {options} {extra} --out-merkle-tree=t2 --out-descriptor=d2"));
        assert_eq!((status(&theirs), status(&ours)), (0, 0), "{what}: {}", stderr(&ours));
        assert_eq!(stdout(&ours), stdout(&theirs), "{what}");
        assert!(place.read("t1") == place.read("t2"), "{what}: tree");
        assert!(place.read("d1") == place.read("d2"), "{what}: descriptor");
        let mut piped = Command::new(CASEMATE)
            .args(["fsverity", "digest", "-", "--out-merkle-tree=t3"])
            .args(options.split(' '))
            .current_dir(place.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        piped.stdin.take().unwrap().write_all(&data[..size as usize]).unwrap();
        let piped = piped.wait_with_output().unwrap();
        let digest = stdout(&place.own(&format!("digest data {options}")));
        assert_eq!(stdout(&piped), digest.replace(" data", " -"), "{what}");
        assert!(place.read("t3") == place.read("t1"), "{what}: tree of a stream");
    }
}

/// Command lines of the tool give the same output and exit status under the link's name.
#[test]
fn the_link_behaves_as_the_tool() {
    let Some(tool) = tool("fsverity") else { return };
    let place = place();
    let link = place.link("fsverity");
    place.file("big", random(2, 300_000));
    place.file("small", b"x");
    place.file("back\\slash", b"y");
    for line in [
        "digest big small back\\slash",
        "digest small --compact --hash-alg=sha512 big",
        "digest --hash-alg 2 --block-size 1024 --salt A1b2 -- big",
        "digest --comp small",
        "digest --for-builtin-sig small",
        "digest --version",
        "digest --help",
        "measure --help",
        "enable --help",
        "dump_metadata --help",
        "--version",
        "digest",
        "digest --hash-alg=md5 small",
        "digest --hash-alg=3 small",
        "digest --block-size=100 small",
        "digest --block-size=32 small",
        "digest --salt=abc small",
        "digest --salt=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20 small",
        "digest --salt=00 --salt=00 small",
        "digest --nonsense small",
        "digest missing",
        "digest .",
        "measure",
        "enable small big",
        "sign small",
        "sign small out",
        "sign small out --key=missing",
        "dump_metadata nonsense small",
        "dump_metadata descriptor small --offset=0",
        "nonsense",
        "",
    ] {
        let (theirs, ours) = (place.run(&tool, line), place.run(&link, line));
        // The number 3 is not an algorithm: the tool finds out late, and so with another status.
        let equal = status(&ours) == status(&theirs) || line.contains("--hash-alg=3");
        assert!(equal, "{line}: {} {}", status(&theirs), stderr(&ours));
        assert_eq!(stdout(&ours), stdout(&theirs), "{line}");
        let said = |output: &Output| stderr(output).lines().any(|line| line.starts_with("ERROR: "));
        if said(&theirs) {
            assert!(said(&ours), "{line}: {}", stderr(&ours));
        }
    }
    // Whatever this file system can do, both are told the same.
    for line in ["measure small", "enable small", "dump_metadata descriptor small"] {
        let (theirs, ours) = (place.run(&tool, line), place.run(&link, line));
        if status(&theirs) != 0 {
            assert_eq!((status(&ours), stderr(&ours)), (status(&theirs), stderr(&theirs)), "{line}");
        }
    }
}

#[test]
fn one_bad_file_does_not_stop_the_others() {
    let place = place();
    place.file("a", b"");
    place.file("b", b"");
    fs::create_dir(place.folder().join("folder")).unwrap();
    let lines = format!("{EMPTY} a\n{EMPTY} b\n");
    let ours = place.own("digest a missing folder b");
    assert_eq!((status(&ours), stdout(&ours)), (2, lines.clone()));
    assert_eq!(stderr(&ours).lines().count(), 2, "{}", stderr(&ours));
    assert!(stderr(&ours).contains("missing: ") && stderr(&ours).contains("folder: "));
    assert!(stderr(&ours).contains("--recursive (-r) digests its files"), "{}", stderr(&ours));
    place.is("digest folder", 2, "--recursive (-r) digests its files");
    let linked = place.run(place.link("fsverity"), "digest a missing folder b");
    assert_eq!((status(&linked), stdout(&linked)), (1, lines));
}

/// A folder stands for its regular files, in the order of their names; links are not followed.
#[test]
fn folders_are_digested_with_all_below() {
    let place = place();
    fs::create_dir_all(place.folder().join("folder/b/c")).unwrap();
    for name in ["folder/z", "folder/a", "folder/b/c/d", "folder/b/a", "alone"] {
        place.file(name, name.as_bytes());
    }
    symlink("..", place.folder().join("folder/loop")).unwrap();
    let files = "folder/a folder/b/a folder/b/c/d folder/z alone";
    let each = place.yes(&format!("digest {files}"));
    assert_eq!(place.yes("digest -r folder alone"), each);
    assert_eq!(place.yes("digest --recursive --compact folder").lines().count(), 4);
    place.file("list", &each);
    place.yes("check list");
    fs::create_dir(place.folder().join("elsewhere")).unwrap();
    let elsewhere = Command::new(CASEMATE)
        .args(["fsverity", "check", "../list"])
        .current_dir(place.folder().join("elsewhere"))
        .output()
        .unwrap();
    assert!(stderr(&elsewhere).contains("none of its files is here"), "{}", stderr(&elsewhere));
    assert_eq!(status(&elsewhere), 1);
}

/// Not even root can open these.
#[test]
fn unreadable_files_are_named() {
    let place = place();
    symlink("loop", place.folder().join("loop")).unwrap();
    let _socket = UnixListener::bind(place.folder().join("socket")).unwrap();
    for name in ["loop", "socket"] {
        let ours = place.own(&format!("digest {name}"));
        assert_eq!(status(&ours), 2);
        assert!(stderr(&ours).starts_with(&format!("casemate: {name}: ")), "{}", stderr(&ours));
    }
}

/// Names are bytes: they come out as they went in, and a list with them can be checked.
#[test]
fn strange_names_survive() {
    let place = place();
    let names: [&[u8]; 5] = [b"\xff\xfe", b" two  spaces ", b"line\nend", b"back\\slash", b"-dash"];
    let mut command = Command::new(CASEMATE);
    command.args(["fsverity", "digest", "--"]).current_dir(place.folder());
    for (i, name) in names.iter().enumerate() {
        let name = OsString::from_vec(name.to_vec());
        place.file(&name, random(i as u64, 5000 * i));
        command.arg(name);
    }
    let list = command.output().unwrap();
    assert_eq!(status(&list), 0, "{}", stderr(&list));
    place.file("list", &list.stdout);
    let checked = place.own("check list");
    assert_eq!(status(&checked), 0, "{}", stderr(&checked));
    let mut expected = Vec::new();
    for name in names {
        let line = [name, b": OK\n"].concat();
        expected.extend(if name.contains(&b'\n') { b"\\line\\nend: OK\n".to_vec() } else { line });
    }
    assert_eq!(checked.stdout, expected);
}

#[test]
fn lists_are_checked_as_sha256sum_does() {
    let place = place();
    place.file("right", b"");
    place.file("wrong", b"x");
    let list = format!("{EMPTY} right\n{EMPTY} wrong\nnonsense\n{EMPTY} missing\n");
    place.file("list", list.as_bytes());
    place.file("good", format!("{EMPTY} right\n").as_bytes());
    place.file("gone", format!("{EMPTY} missing\n").as_bytes());
    place.file("empty", b"\n# nothing\n");
    let run = |line: &str| {
        let ours = place.own(line);
        (status(&ours), stdout(&ours), stderr(&ours))
    };
    let (code, out, err) = run("check list");
    assert_eq!((code, &*out), (1, "right: OK\nwrong: FAILED\nmissing: FAILED open or read\n"));
    for text in ["1 line is improperly formatted", "1 listed file could not", "1 computed digest did NOT"] {
        assert!(err.contains(text), "{err}");
    }
    assert_eq!(run("check --quiet list").1, "wrong: FAILED\nmissing: FAILED open or read\n");
    assert_eq!(run("check --status list"), (1, String::new(), String::new()));
    assert_eq!(run("check good"), (0, "right: OK\n".to_owned(), String::new()));
    assert_eq!(run("check --quiet good"), (0, String::new(), String::new()));
    assert_eq!(run("check gone").0, 1, "a listed file is not there");
    fs::create_dir(place.path("folder")).unwrap();
    place.file("odd", format!("{EMPTY} folder\n").as_bytes());
    assert_eq!(run("check odd").0, 2, "could not be read is not a mismatch");
    assert_eq!(run("check odd gone").0, 1);
    assert_eq!(run("check --ignore-missing gone").0, 1);
    assert_eq!(run("check --ignore-missing good gone").0, 1);
    assert_eq!(run("check empty").0, 2);
    assert_eq!(run("check none").0, 2);
    assert!(run("check --warn list").2.contains("list: 3: improperly"), "{err}");
    place.file("strict", format!("{EMPTY} right\nnonsense\n").as_bytes());
    assert_eq!((run("check strict").0, run("check --strict strict").0), (0, 1));
    let (_, json, _) = run("--json check good");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let expected = serde_json::json!({"file": "right", "result": "OK", "expected": EMPTY, "found": EMPTY});
    assert_eq!(json, expected);
    // Block size and salt are not in the list; the algorithm is.
    place.file("data", random(3, 10_000));
    let options = "--block-size=1024 --salt=beef";
    place.file("salted", &place.own(&format!("digest --hash-alg=sha512 {options} data")).stdout);
    assert_eq!((run("check salted").0, run(&format!("check {options} salted")).0), (1, 0));
    assert_eq!(run(&format!("check --hash-alg=sha512 {options} salted")).0, 0);
    for (line, said) in [
        (
            format!("check --hash-alg=sha256 {options} salted"),
            "salted: its digests are of sha512, not sha256",
        ),
        ("check --hash-alg=sha512 good".to_owned(), "good: its digests are of sha256, not sha512"),
    ] {
        let (code, out, err) = run(&line);
        assert!((code, out.as_str()) == (2, "") && err.contains(said), "{line}: {code} {out}{err}");
    }
}

/// Every damaged block is named, and no other.
#[test]
fn a_dumped_tree_names_the_bad_blocks() {
    let place = place();
    let data = random(4, 2_000_001);
    place.file("data", &data);
    let made = place.own("digest data --block-size=1024 --out-merkle-tree=tree --out-descriptor=desc");
    let digest = stdout(&made).split(' ').next().unwrap().to_owned();
    let check = "check --merkle-tree=tree --descriptor=desc data";
    let run = |line: &str| {
        let ours = place.own(line);
        (status(&ours), stdout(&ours), stderr(&ours))
    };
    assert_eq!(run(check), (0, "data: OK\n".to_owned(), String::new()));
    assert_eq!(run(&format!("check --merkle-tree=tree --block-size=1024 --digest={digest} data")).0, 0);
    assert_eq!(run(&format!("check --merkle-tree=tree --block-size=1024 --digest={EMPTY} data")).0, 1);
    // An empty tree is that of one block, and of no file of many.
    place.file("empty", "");
    let (code, _, said) = run("check --merkle-tree=empty --block-size=1024 data");
    let text =
        "data: empty is empty, as a tree of 1954 blocks of 1024 bytes is not: it is that of another file";
    assert_eq!((code, said.contains(text)), (2, true), "{said}");
    place.file("block", &data[..1024]);
    let (code, _, said) = run("check --merkle-tree=empty --block-size=1024 block");
    assert_eq!((code, said.contains("as that of every file of one block")), (2, true), "{said}");

    // The tree does not tell a file with zeros at its end, as far as its last block goes.
    let length = "does not tell the file's length";
    place.file("zeros", [&data[..], &[0; 100]].concat());
    for name in ["data", "zeros"] {
        let (code, out, said) = run(&format!("check --merkle-tree=tree --block-size=1024 {name}"));
        assert_eq!((code, out), (0, format!("{name}: OK\n")));
        assert!(said.contains(length), "{said}");
        let (_, out, _) = run(&format!("check --merkle-tree=tree --block-size=1024 --json {name}"));
        assert!(out.contains("\"length_checked\":false"), "{out}");
    }
    for told in [&format!("--block-size=1024 --digest={digest}"), "--descriptor=desc"] {
        let (code, _, said) = run(&format!("check --merkle-tree=tree {told} zeros"));
        assert!(code == 1 && !said.contains(length), "{said}");
    }
    // One of one block says nothing at all.
    place.file("small", "small");
    place.file("empty", "");
    let (code, out, said) = run("check --merkle-tree=empty small");
    assert!((code, out.as_str()) == (2, "") && said.contains("tells nothing of it"), "{said}");
    // The size of the tree does not fit these blocks.
    assert_eq!(run("check --merkle-tree=tree data").0, 2);
    let mut rng = Rng::new(5);
    let mut bad: Vec<u64> = (0..20).map(|_| rng.below(1954)).chain([0, 1953]).collect();
    bad.sort_unstable();
    bad.dedup();
    let mut damaged = data.clone();
    for block in &bad {
        damaged[(*block * 1024) as usize] ^= 1;
    }
    place.file("data", &damaged);
    let (code, out, _) = run(check);
    let named: Vec<u64> = out
        .lines()
        .filter_map(|line| line.strip_prefix("data: data block ")?.split(':').next()?.parse().ok())
        .collect();
    assert_eq!((code, &named), (1, &bad));
    assert!(out.ends_with("data: FAILED\n"));
    // 1954 blocks: 62 leaf blocks, 2 above, 1 at the top. Damage leaf block 7: 32 data blocks hang below.
    place.file("data", &data);
    let mut tree = place.read("tree");
    tree[(3 + 7) * 1024 + 5] ^= 1;
    place.file("tree", &tree);
    let (code, out, _) = run(check);
    assert_eq!(code, 1);
    assert!(out.starts_with("data: tree block 7 of level 0: expected "), "{out}");
    assert_eq!(out.lines().count(), 3, "{out}");
    assert!(out.contains("data: 32 data blocks lie below bad tree blocks"), "{out}");
    place.file("data", &data[1..]);
    assert!(run(check).2.contains("2000000 bytes"), "{}", run(check).2);
}

#[test]
fn printing_to_a_closed_pipe_is_silent_and_not_done() {
    let place = place();
    let names: Vec<String> = (0..3000).map(|i| format!("file-with-a-long-name-{i}")).collect();
    for name in &names {
        place.file(name, b"");
    }
    let mut child = Command::new(CASEMATE)
        .args(["fsverity", "digest"])
        .args(&names)
        .current_dir(place.folder())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((status(&output), stderr(&output)), (141, String::new()));
}

#[test]
fn many_files_come_in_order() {
    let place = place();
    let mut list = String::new();
    for i in 0..60usize {
        place.file(i.to_string(), random(i as u64, if i == 30 { 9 << 20 } else { i * 1000 }));
        list.push_str(&format!("{i} "));
    }
    let together = stdout(&place.own(&format!("digest {list}")));
    let alone: String = (0..60).map(|i| stdout(&place.own(&format!("digest {i}")))).collect();
    assert_eq!(together, alone);
    assert_eq!(stdout(&place.own(&format!("--threads=1 digest {list}"))), alone);
}

#[test]
fn output_files_are_whole_or_not_there() {
    let place = place();
    place.file("data", random(6, 100_000));
    assert_eq!(status(&place.own("digest data --out-merkle-tree=none/tree")), 2);
    assert_eq!(status(&place.own("digest data --out-merkle-tree=/dev/null --out-descriptor=/dev/null")), 0);
    assert_eq!(status(&place.own("digest data data --out-merkle-tree=tree")), 2);
    assert_eq!(status(&place.own("digest missing --out-merkle-tree=tree")), 2);
    assert!(!place.folder().join("tree").exists());
    let full = place.own("digest data --out-merkle-tree=/dev/full");
    assert_eq!(status(&full), 2);
    assert!(stderr(&full).contains("/dev/full: "), "{}", stderr(&full));
    // Tree and descriptor are of one file, or as they were.
    place.file("tree", "of another file");
    let full = place.own("digest data --out-merkle-tree=tree --out-descriptor=/dev/full");
    assert_eq!(status(&full), 2);
    assert!(stderr(&full).contains("/dev/full: "), "{}", stderr(&full));
    assert_eq!(place.read("tree"), b"of another file");
    // And so are those of a signature, which a key of another certificate does not make.
    let keys = concat!(env!("CARGO_MANIFEST_DIR"), "/../verity/tests/fixtures/fs-verity/keys");
    let files = ["tree", "descriptor", "signature"];
    let signing = |name: &str, cert: &str| {
        format!(
            "--out-merkle-tree=tree --out-descriptor=descriptor --signing-key={keys}/rsa2048.key.pem --cert={keys}/{cert} {name}"
        )
    };
    for (out, cert) in [("signature", "rsa4096.cert.pem"), ("/dev/full", "rsa2048.cert.pem")] {
        files.iter().for_each(|name| drop(place.file(name, "of another file")));
        assert_eq!(status(&place.own(&format!("sign data {}", signing(out, cert)))), 2);
        files.iter().for_each(|name| assert!(place.read(name) == b"of another file", "{name} {cert}"));
    }
    assert_eq!(status(&place.own(&format!("sign data {}", signing("signature", "rsa2048.cert.pem")))), 0);
    assert_eq!(place.read("descriptor").len(), 256);
    assert!(files.iter().all(|name| place.read(name) != b"of another file"));
    for stream in ["", "-"] {
        let line = format!("digest {stream} --out-merkle-tree=t{stream} --out-descriptor=d{stream}");
        let line = line.replace("digest  ", "digest data ");
        place.sh(&format!("{CASEMATE} fsverity {line} <data >said"));
        place.sh("cp said said.txt");
    }
    assert!(place.read("t") == place.read("t-") && place.read("d") == place.read("d-"));
    assert_eq!(place.read("d").len(), 256);
}
