//! Everyday work with files, in images: trees of owners and modes, dates, several files at once.

use std::fs;
use std::process::Command;

use casemate_testkit::{Place, mke2fs, run, run_any, stdout, tool};

const CASEMATE: &str = env!("CARGO_BIN_EXE_casemate");

/// An image `image` with a tree in /tree, and the same tree in the folder `tree`.
fn place() -> Option<Place> {
    let mke2fs = tool("mke2fs")?;
    let place = Place::under(CASEMATE, "ext4");
    mke2fs::make(&mke2fs, "-t ext4", &place.path("image"), "8M");
    place.sh("mkdir -p tree/a/b; echo 1 >tree/one; echo 2 >tree/a/two; echo 3 >tree/a/b/three
              ln -s ../one tree/a/link; ln -s / tree/root; chmod 644 tree/one tree/a/two tree/a/b/three
              chmod 755 tree tree/a tree/a/b");
    place.yes("put -r image tree /");
    Some(place)
}

/// A field of each file below a directory, in the order of paths.
fn each(place: &Place, top: &str, field: &str) -> Vec<String> {
    let text = place.yes(&format!("tree --json image {top}"));
    let values = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut all: Vec<String> =
        values.map(|value| format!("{} {}", value["path"].as_str().unwrap(), value[field])).collect();
    all.sort();
    all
}

fn check(place: &Place) {
    if let Some(e2fsck) = tool("e2fsck") {
        run(Command::new(e2fsck).arg("-fn").arg(place.path("image")));
    }
}

#[test]
fn modes_and_owners_of_trees_change_as_with_the_real_commands() {
    let Some(place) = place() else { return };
    place.yes("chmod -R image u=rwX,go= /tree");
    run(Command::new("chmod").args(["-R", "u=rwX,go=", "tree"]).current_dir(place.folder()));
    let script = r#"find tree -mindepth 1 ! -type l -printf '/%p "%04m"\n' | sort"#;
    let expected = run(Command::new("bash").args(["-c", script]).current_dir(place.folder()));
    let links = |line: &String| !line.starts_with("/tree/a/link ") && !line.starts_with("/tree/root ");
    let found: Vec<String> = each(&place, "/tree", "mode").into_iter().filter(links).collect();
    assert_eq!(found.join("\n"), expected.trim());
    // What a link in the tree leads to is left alone.
    assert!(place.yes("stat --json image /").contains("\"mode\":\"0755\""));

    place.yes("chown -R image 7:8 /tree");
    let owned = |line: &String| line.ends_with(" 7");
    assert!(each(&place, "/tree", "uid").iter().all(owned), "{:?}", each(&place, "/tree", "uid"));
    assert!(place.yes("stat --json image /").contains("\"uid\":0"));
    check(&place);
}

#[test]
fn directories_are_listed_with_all_below_as_by_ls() {
    let Some(place) = place() else { return };
    let ours = place.yes("ls -R image /tree");
    let script = "cd tree && LC_ALL=C ls -R . | sed 's,^\\.\\(.*\\):$,/tree\\1:,'";
    let theirs = run(Command::new("bash").args(["-c", script]).current_dir(place.folder()));
    assert_eq!(ours, theirs);
    assert_eq!(place.yes("ls -R --json image /tree").lines().count(), 7);
}

#[test]
fn dates_are_dates() {
    let Some(place) = place() else { return };
    for (given, seconds) in
        [("2020-01-31", 1_580_428_800), ("2020-01-31T23:59:59Z", 1_580_515_199), ("@7", 7)]
    {
        place.yes(&format!("touch image --date {given} /tree/one"));
        let stat: serde_json::Value =
            serde_json::from_str(&place.yes("stat --json image /tree/one")).unwrap();
        assert_eq!(stat["mtime"]["seconds"], seconds, "{given}");
    }
    let output = place.own("touch image --date 2020-02-30 /tree/one");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains("a date such as"), "{stderr}");
}

#[test]
fn several_files_are_put_at_once() {
    let Some(place) = place() else { return };
    place.yes("put -p --mode 600 image tree/one tree/a/two /srv/private");
    assert_eq!(each(&place, "/srv", "mode")[1..], ["/srv/private/one \"0600\"", "/srv/private/two \"0600\""]);
    place.yes("put -p image tree/one /deep/er/name");
    assert_eq!(place.yes("cat image /deep/er/name"), "1\n");
    let output = place.own("put image tree/one tree/a/two /new");
    assert!(String::from_utf8_lossy(&output.stderr).contains("-p makes it"));
    // All of it or nothing: what is not here is said before anything is changed.
    let before = fs::read(place.path("image")).unwrap();
    let output = place.own("put image tree/one tree/none /srv/private");
    assert!(output.status.code() == Some(2) && fs::read(place.path("image")).unwrap() == before);
    check(&place);
}

#[test]
fn one_file_is_extracted_to_a_name_or_into_a_folder() {
    let Some(place) = place() else { return };
    place.yes("chmod image 640 /tree/a/two");
    place.yes("touch image --date 2001-02-03 /tree/a/two");
    place.yes("extract image got --path /tree/a/two");
    fs::create_dir(place.path("folder")).unwrap();
    place.yes("extract image folder --path /tree/a/link");
    assert_eq!(fs::read(place.path("got")).unwrap(), b"2\n");
    // A link is followed, and keeps the name that was given.
    assert_eq!(fs::read(place.path("folder/link")).unwrap(), b"1\n");
    let shown = run(Command::new("stat").args(["-c", "%a %Y"]).arg(place.path("got")));
    assert_eq!(shown.trim(), "640 981158400");
    let output = place.own("extract image none/got --path /tree/a/two");
    assert!(output.status.code() == Some(2) && !place.path("none").exists());
}

/// A file by itself takes as little room as one of a tree, and is as long. What goes into a pipe has zeros for holes.
#[test]
fn a_file_that_is_copied_alone_keeps_its_holes() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::under(CASEMATE, "ext4");
    place.sh("mkdir tree; truncate -s 40M tree/sp; echo x >>tree/sp; truncate -s 50M tree/sp; truncate -s 3M tree/empty");
    place.yes("build image --from tree --size 16M");
    place.yes("extract image copy");
    for name in ["sp", "empty"] {
        let original = place.read(format!("tree/{name}"));
        let of_tree = fs::metadata(place.path(format!("copy/{name}"))).unwrap().blocks();
        place.file("old", vec![1; 60 << 20]);
        for (target, options) in [("one", ""), ("old", "--overwrite")] {
            place.yes(&format!("extract image {target} --path /{name} {options}"));
            assert!(place.read(target) == original, "{name}: {target}");
            let blocks = fs::metadata(place.path(target)).unwrap().blocks();
            assert!(blocks <= of_tree, "{name}: {target}: {blocks} sectors, of a tree {of_tree}");
            fs::remove_file(place.path(target)).unwrap();
        }
        place.sh(&format!("{CASEMATE} ext4 extract image /dev/stdout --path /{name} | cmp - tree/{name}"));
    }
}

/// A report of a fault needs more of the build; the version alone stays as scripts know it.
#[test]
fn a_version_says_more_if_asked() {
    let place = Place::new(CASEMATE);
    let version = concat!("casemate ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(place.yes("--version"), version);
    let text = place.yes("--version --verbose");
    assert!(text.starts_with(version), "{text}");
    for line in
        ["commit: ", "target: ", "CPU features: ", "sha256: sha256-", "xts(aes): xts-aes-", "LUKS: 1 and 2"]
    {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line}: {text}");
    }
    let value: serde_json::Value = serde_json::from_str(&place.yes("--version --json")).unwrap();
    assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
    let all = value["links"].as_array().unwrap();
    let told = |tool: &str| all.iter().find_map(|found| found.as_str()?.strip_prefix(tool)).map(str::trim);
    for (tool, _) in casemate_cli::LINKS {
        // A link says the same; mkfs.ext4 and fsck.ext4 are known by other names, and e2label has no version.
        let (known, flag) = match tool.split('.').next() {
            Some("mkfs") => ("mke2fs", "-V"),
            Some("fsck") => ("e2fsck", "-V"),
            Some("e2label") => continue,
            Some("mke2fs" | "e2fsck") => (tool, "-V"),
            // These print the version first, whatever they are asked.
            Some("tune2fs" | "resize2fs") => (tool, ""),
            _ => (tool, "--version"),
        };
        let output = place.run(place.link(tool), flag);
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let version = told(known).unwrap_or_else(|| panic!("{tool}"));
        assert!(said.contains(version), "{tool}: {said}");
    }
}

#[test]
fn licenses_of_all_packages_are_there() {
    let place = Place::new(CASEMATE);
    let text = place.yes("licenses");
    for part in ["clap 4.", "rustix 1.", "serde_json 1.", "Permission is hereby granted", "Apache License"] {
        assert!(text.contains(part), "{part}");
    }
    let lines = place.yes("licenses --json");
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert!(first["package"].is_string() && first["license"].is_string(), "{first}");
    assert!(lines.lines().count() > 100, "{}", lines.lines().count());
}

/// Behind a comma of an image specification shells complete layers, and the options of the last one; without one, files.
#[test]
fn shells_complete_the_words_of_a_specification() {
    let place = Place::new(CASEMATE);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        place.file(shell, place.yes(&format!("completions {shell}")));
    }
    let (Some(_), true) = (tool("bash"), place.path("bash").exists()) else { return };
    // As readline calls the function: the words end at "=", too.
    place.file("complete", "compopt() { :; }
. ./bash
COMP_LINE=$1 COMP_POINT=${#1}
IFS=$' ' read -ra COMP_WORDS <<< \"${1//=/ = }\"
[[ $1 != *= ]] || COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
$(complete -p casemate | sed 's/.*-F \\([^ ]*\\).*/\\1/') casemate \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"
echo \"${COMPREPLY[*]}\"
");
    let complete = |line: &str| {
        let mut command = Command::new("bash");
        stdout(&run_any(command.args(["complete", line]).current_dir(place.folder()))).trim().to_owned()
    };
    for (line, words) in [
        ("casemate ext4 ls disk.img,par", "disk.img,partition="),
        ("casemate luks dump disk.img,partition=2,lu", "2,luks"),
        ("casemate mount disk.img,luks,key-f", "disk.img,luks,key-file= disk.img,luks,key-fd="),
        (
            "casemate mount disk.img,offset=1M,",
            "1M,partition= 1M,offset= 1M,crypt 1M,crypt= 1M,luks 1M,integrity= 1M,verity 1M,ext4 1M,size=",
        ),
        ("casemate info disk.img,luks,key-file=pw,head", "pw,header="),
        ("casemate info disk.img,verity,root", "disk.img,verity,root-hash="),
        // No option of another layer; a value and a name are files.
        ("casemate info disk.img,verity,key-f", ""),
        ("casemate info disk.img,luks,key-file=", ""),
        ("casemate luks dump --luks-head", "--luks-header"),
    ] {
        assert_eq!(complete(line), words, "{line}");
    }
    for (shell, check) in [("zsh", "zsh -n"), ("fish", "fish --no-execute")] {
        if tool(shell).is_some() {
            place.sh(&format!("{check} {shell}"));
        }
    }
    let fish = String::from_utf8(place.read("fish")).unwrap();
    assert!(fish.contains("complete -c casemate -n __casemate_in_layers"), "{fish}");
    let zsh = String::from_utf8(place.read("zsh")).unwrap();
    assert!(zsh.contains(":_casemate_image'") && zsh.contains("luks|luks) options=(key-file="), "{zsh}");
}
