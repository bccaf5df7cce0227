//! `find`, `du`, `df`, `getfattr` and `readlink` of `casemate ext4` beside the tools of these names on the mounted image, and
//! what `extract` copies of a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use casemate_testkit::kernel::loop_mounts_work;
use casemate_testkit::{Place, mke2fs, run, skip, status, stderr, stdout, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// Script that fills the images: every kind of file, names of all sorts, holes, links.
const TREE: &str = r#"
cd at
mkdir -p etc/conf.d usr/lib usr/bin 'with space' empty
seq 1000 >etc/a.conf; seq 10 >etc/conf.d/B.CONF; seq 5 >'with space/c d.conf'; printf x >"$(printf 'bad\377name')"
seq 30000 >usr/lib/big; truncate -s 3M usr/lib/hole; printf end >>usr/lib/hole
cp etc/a.conf usr/bin/su; chmod 6755 usr/bin/su; chmod 600 etc/a.conf; chown 1000:50 etc/a.conf
ln usr/lib/big usr/lib/big2; ln -s ../usr/lib/big etc/link; mkfifo usr/pipe; mknod usr/null c 1 3
touch -d '2019-05-01 UTC' etc/a.conf; touch -d '2022-05-01 UTC' etc/conf.d/B.CONF; touch -h -d '2001-01-01 UTC' etc/link
touch -d '2001-01-01 UTC' usr usr/lib usr/lib/* usr/bin usr/bin/*
setfattr -n user.text -v 'a "quoted" \\ one' etc/a.conf; setfattr -n user.bytes -v 0x00ff8001 etc/a.conf
setfattr -n user.string -v 0x68656c6c6f00 etc/a.conf; setfattr -n user.line -v 0x6162636465666768690a etc/a.conf
setfattr -n user.nothing etc/a.conf; setfattr -n user.dir -v here usr; setcap cap_net_raw+ep usr/bin/su 2>/dev/null || true
"#;

/// A folder with `image`, made with these options, that has the tree; `None` after a skip.
fn place(options: &str) -> Option<Place> {
    let mke2fs = tool("mke2fs")?;
    tool("setfattr")?;
    if !loop_mounts_work() {
        skip("no loop devices to mount with");
        return None;
    }
    let place = Place::new(CASEMATE);
    mke2fs::make(&mke2fs, options, &place.path("image"), "48M");
    fs::create_dir(place.path("at")).unwrap();
    mounted(&place, TREE);
    Some(place)
}

/// Runs a script beside the image, which is mounted at `at`.
#[track_caller]
fn mounted(place: &Place, script: &str) -> Vec<u8> {
    let script = format!("set -e; mount -o loop image at\n{script}");
    let mut command = Command::new("unshare");
    command
        .args(["-m", "--propagation", "slave", "bash", "-c", &script])
        .current_dir(place.folder())
        .env("TZ", "UTC")
        .env("LC_ALL", "C");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{script}: {}", stderr(&output));
    output.stdout
}

#[track_caller]
fn own(place: &Place, line: &str) -> Vec<u8> {
    let output = place.own(line);
    assert_eq!(status(&output), 0, "{line}: {}", stderr(&output));
    output.stdout
}

fn sorted(bytes: &[u8], end: u8) -> Vec<Vec<u8>> {
    let mut lines: Vec<_> = bytes.split(|byte| *byte == end).map(<[u8]>::to_vec).collect();
    lines.sort();
    lines
}

fn text(lines: &[Vec<u8>]) -> String {
    String::from_utf8_lossy(&lines.join(&b'\n')).into_owned()
}

#[test]
fn files_are_found_as_find_does() {
    let Some(place) = place("-t ext4 -O ^metadata_csum") else { return };
    let number = |path: &str| {
        let line = String::from_utf8(own(&place, &format!("ext4 ls -id image {path}"))).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    let tests = [
        String::new(),
        "-name *.conf".into(),
        "-name *[!a-c]name".into(),
        "-iname *.conf -type f".into(),
        "-type l,p,c".into(),
        "-size +1048576c".into(),
        "-size 10c".into(),
        "-size -100c -type f".into(),
        "-uid 1000 -gid 50".into(),
        "-perm 600".into(),
        "-perm -4000".into(),
        "-perm /6022 -type f".into(),
        "-perm -u+x,g=r -type f".into(),
        "-newermt 2020-01-31 -type f".into(),
        "-maxdepth 0".into(),
        "-maxdepth 1 -type d".into(),
        format!("-inum {}", number("/usr/lib/big")),
    ];
    for test in &tests {
        let quoted: String = test.split(' ').map(|word| format!(" '{word}'")).collect();
        let quoted = if test.is_empty() { "" } else { &quoted };
        let expected = mounted(&place, &format!("cd at; find . {quoted}"));
        assert!(expected.len() > 1, "{test}");
        let found = sorted(&own(&place, &format!("ext4 find image . {test}")), b'\n');
        assert!(found == sorted(&expected, b'\n'), "{test}:\n{}", text(&found));
    }
    let expected = mounted(&place, "cd at; find usr/bin etc -print0");
    assert_eq!(sorted(&own(&place, "ext4 find image usr/bin etc -print0"), 0), sorted(&expected, 0));
    // Units are those of all of casemate, and a plain number is bytes.
    let by_bytes = own(&place, "ext4 find image --size +1048576");
    assert_eq!(own(&place, "ext4 find image -size +1M"), by_bytes);
    assert_eq!(by_bytes, b"/usr/lib/hole\n");
    let output = place.own("ext4 find image /none /etc/link");
    assert_eq!((status(&output), stdout(&output)), (2, "/etc/link\n".into()), "{}", stderr(&output));
}

#[test]
fn room_is_counted_as_du_and_df_do() {
    for (number, options) in [
        "-t ext4 -b 1024",
        "-t ext4 -b 4096 -O ^has_journal",
        "-t ext2",
        "-t ext4 -O bigalloc -C 16384",
        "-t ext4 -O meta_bg,^resize_inode",
    ]
    .into_iter()
    .enumerate()
    {
        let Some(place) = place(options) else { return };
        for options in
            ["-s .", "-d 1 .", ". --max-depth 2", "-a etc", "-h usr etc", "-s usr/lib/big usr/lib/big2"]
        {
            // The order of directories is the tool's own.
            let expected = mounted(&place, &format!("cd at; du {options}"));
            let found = sorted(&own(&place, &format!("ext4 du image {options}")), b'\n');
            assert!(
                found == sorted(&expected, b'\n'),
                "{options}:\n{}\n{}",
                text(&found),
                String::from_utf8_lossy(&expected)
            );
        }
        let expected = mounted(&place, "cd at; du --apparent-size usr/lib/hole etc/a.conf etc/link");
        assert_eq!(own(&place, "ext4 du image --apparent-size usr/lib/hole etc/a.conf etc/link"), expected);
        if number == 0 {
            a_directory_that_cannot_be_read_counts_itself(&place);
        }
        for options in ["", "-i", "-h"] {
            let fields = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(bytes).into_owned();
                let mut lines =
                    text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
                let (heads, row) = (lines.next().unwrap(), lines.next().unwrap());
                (heads, row[1..5].to_vec())
            };
            let expected = fields(&mounted(&place, &format!("df {options} at")));
            assert_eq!(
                fields(&own(&place, &format!("ext4 df {options} image"))),
                expected,
                "{number} {options}"
            );
        }
    }
}

fn a_directory_that_cannot_be_read_counts_itself(place: &Place) {
    let sums = |image: &str| -> BTreeMap<String, u64> {
        let output = place.own(&format!("ext4 du {image}"));
        let split =
            |line: &str| line.split_once('\t').map(|(size, path)| (path.to_owned(), size.parse().unwrap()));
        stdout(&output).lines().filter_map(split).collect()
    };
    let whole = sums("image");
    place.file("damaged", place.read("image"));
    let request = "set_inode_field /usr/lib block[0] 0";
    run(Command::new("debugfs").args(["-w", "-R", request, "damaged"]).current_dir(place.folder()));
    let damaged = sums("damaged");
    assert_eq!(status(&place.own("ext4 du damaged")), 2);
    // What is in it is not counted, and nothing else changes.
    let lost = whole["/usr/lib"] - damaged["/usr/lib"];
    assert!(lost > 100, "{lost}");
    for (path, size) in &whole {
        let lost = if ["/", "/usr", "/usr/lib"].contains(&&**path) { lost } else { 0 };
        assert_eq!(damaged.get(path), Some(&(size - lost)), "{path}");
    }
}

#[test]
fn attributes_and_links_are_shown_as_the_tools_do() {
    let Some(place) = place("-t ext4") else { return };
    tool("getfattr").unwrap();
    for options in ["-d", "", "-e hex -d", "-e base64 -d", "-e text -d", "-n user.text"] {
        let paths = if options.contains("-n") { "etc/a.conf" } else { "etc/a.conf usr usr/bin/su" };
        let expected = mounted(&place, &format!("cd at; getfattr {options} -m - {paths}"));
        let found = sorted(&own(&place, &format!("ext4 getfattr {options} image {paths}")), b'\n');
        assert!(
            found == sorted(&expected, b'\n'),
            "{options}:\n{}\n{}",
            text(&found),
            String::from_utf8_lossy(&expected)
        );
    }
    let value = own(&place, "ext4 getfattr -n user.bytes --only-values image /etc/a.conf");
    assert_eq!(value, [0, 0xff, 0x80, 1]);
    // What is shown can be set.
    own(&place, "ext4 setfattr image -n user.again -v 0sAP+AAQ== /etc/conf.d/B.CONF");
    assert_eq!(own(&place, "ext4 getfattr -n user.again --only-values image /etc/conf.d/B.CONF"), value);
    let output = place.own("ext4 getfattr -n user.none image /etc/a.conf");
    assert!(
        status(&output) == 2 && stderr(&output).contains("no attribute user.none"),
        "{}",
        stderr(&output)
    );
    assert_eq!(own(&place, "ext4 readlink image /etc/link"), mounted(&place, "readlink at/etc/link"));
    place.is("ext4 readlink image /etc /etc/link", 2, "/etc: is not a symbolic link");
}

/// Paths of a folder, or of a tar file.
fn names(place: &Place, script: &str) -> BTreeSet<String> {
    let listed = run(Command::new("bash").args(["-c", script]).current_dir(place.folder()));
    listed.lines().map(|line| line.trim_end_matches('/').trim_start_matches("./").to_owned()).collect()
}

#[test]
fn extract_copies_what_patterns_choose() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = Place::new(CASEMATE);
    mke2fs::make(&mke2fs, "", &place.path("image"), "8M");
    let files = [
        "etc/a.conf",
        "etc/ssl/key",
        "etc/ssl/b.conf",
        "usr/lib/x.so",
        "usr/lib/deep/y.so",
        "usr/a.conf",
        "z.gz",
    ];
    for file in files {
        fs::create_dir_all(place.path("tree").join(file).parent().unwrap()).unwrap();
        fs::write(place.path("tree").join(file), file).unwrap();
    }
    fs::hard_link(place.path("tree/usr/lib/x.so"), place.path("tree/usr/lib/deep/w.so")).unwrap();
    run(Command::new("chmod").args(["-R", "u=rwX,go=rX", "tree"]).current_dir(place.folder()));
    run(Command::new("chmod").args(["750", "tree/usr"]).current_dir(place.folder()));
    own(&place, "ext4 put -r image tree/. /");
    own(&place, "ext4 rm -r image /lost+found");
    let all = "etc etc/a.conf etc/ssl etc/ssl/b.conf etc/ssl/key usr usr/a.conf usr/lib usr/lib/deep \
               usr/lib/deep/w.so usr/lib/deep/y.so usr/lib/x.so z.gz";
    for (number, (patterns, expected)) in [
        ("", all),
        ("--exclude etc --exclude *.gz --exclude /usr/lib", "usr usr/a.conf"),
        ("--include *.conf", "etc etc/a.conf etc/ssl etc/ssl/b.conf usr usr/a.conf"),
        ("--include ssl", "etc etc/ssl etc/ssl/b.conf etc/ssl/key"),
        ("--include /etc/* --exclude ssl/", "etc etc/a.conf"),
        (
            "--include usr/**/*.so --exclude x.so",
            "usr usr/lib usr/lib/deep usr/lib/deep/w.so usr/lib/deep/y.so",
        ),
        ("--include w.so --include x.so", "usr usr/lib usr/lib/deep usr/lib/deep/w.so usr/lib/x.so"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut expected: BTreeSet<String> = expected.split_whitespace().map(str::to_owned).collect();
        expected.insert(".".into());
        own(&place, &format!("ext4 extract image out{number} {patterns}"));
        assert_eq!(names(&place, &format!("cd out{number}; find .")), expected, "{patterns}");
        own(&place, &format!("ext4 extract image --tar out{number}.tar {patterns}"));
        assert_eq!(names(&place, &format!("tar -tf out{number}.tar")), expected, "{patterns}");
        let usr = place.path(format!("out{number}/usr"));
        if usr.exists() {
            assert_eq!(fs::metadata(usr).unwrap().permissions().mode() & 0o777, 0o750, "{patterns}");
        }
    }
    let links = |name: &str| fs::metadata(place.path(name)).unwrap().nlink();
    assert_eq!((links("out6/usr/lib/x.so"), links("out5/usr/lib/deep/w.so")), (2, 1));
    own(&place, "ext4 extract image sub --path /usr --include lib/*.so");
    assert_eq!(names(&place, "cd sub; find . -type f"), BTreeSet::from(["lib/x.so".to_owned()]));
    for (options, said) in [
        ("--include nothing", "nothing there matches"),
        ("--include [[:alpha:]]", "a class of characters"),
        ("--exclude /", "the pattern holds no name"),
        ("--path /z.gz --include z.gz", "for directories"),
    ] {
        let output = place.own(&format!("ext4 extract image other {options}"));
        assert!(status(&output) == 2 && stderr(&output).contains(said), "{options}: {}", stderr(&output));
    }
}

#[test]
fn extract_replaces_only_what_it_may() {
    let Some(mke2fs) = tool("mke2fs") else { return };
    let place = Place::new(CASEMATE);
    mke2fs::make(&mke2fs, "", &place.path("image"), "8M");
    place.file("f", "new");
    for line in
        ["mkdir -p image /d/e", "put image f /d/file", "ln image /d/file /d/hard", "ln -s image gone /d/link"]
    {
        own(&place, &format!("ext4 {line}"));
    }
    place.file("outside", "outside");
    let script = "mkdir -p out/d; echo old >out/d/file; echo old >out/d/keep; ln -s ../../outside out/d/hard
                  echo file >out/d/link; ln -s ../../elsewhere out/d/e; mkdir elsewhere";
    run(Command::new("bash").args(["-c", script]).current_dir(place.folder()));
    // The folder may be one of the host that was named by mistake.
    let output = place.own("ext4 extract image out");
    assert!(status(&output) == 2 && stderr(&output).contains("--merge adds to it"), "{}", stderr(&output));
    assert!(!place.path("out/lost+found").exists());
    let absolute = place.path("out").display().to_string();
    own(&place, &format!("ext4 mkdir -p image {absolute}"));
    let output = place.own(&format!("ext4 extract image {absolute}"));
    assert!(stderr(&output).contains(&format!("--path {absolute}")), "{}", stderr(&output));
    let output = place.own("ext4 extract image out --merge");
    assert!(
        status(&output) == 2 && stderr(&output).contains("taken already: 3; --overwrite"),
        "{}",
        stderr(&output)
    );
    assert_eq!(place.read("out/d/file"), b"old\n");
    own(&place, "ext4 extract image out --overwrite");
    assert_eq!((place.read("out/d/file"), place.read("out/d/hard")), (b"new".to_vec(), b"new".to_vec()));
    assert_eq!((place.read("outside"), place.read("out/d/keep")), (b"outside".to_vec(), b"old\n".to_vec()));
    assert_eq!(fs::read_link(place.path("out/d/link")).unwrap().to_str(), Some("gone"));
    assert!(fs::symlink_metadata(place.path("out/d/e")).unwrap().is_dir());
    let number = |name: &str| fs::metadata(place.path(name)).unwrap().ino();
    assert_eq!(number("out/d/file"), number("out/d/hard"));
    // A folder is not replaced by a file.
    run(Command::new("bash").args(["-c", "rm out/d/file; mkdir out/d/file"]).current_dir(place.folder()));
    let output = place.own("ext4 extract image out --overwrite");
    assert!(status(&output) == 2 && stderr(&output).contains("d/file"), "{}", stderr(&output));
    // One file alone.
    place.file("one", "old");
    let output = place.own("ext4 extract image one --path /d/file");
    assert!(status(&output) == 2 && stderr(&output).contains("--overwrite"), "{}", stderr(&output));
    own(&place, "ext4 extract image one --path /d/file --overwrite");
    assert_eq!(place.read("one"), b"new");
}
