//! Damaged images: an error of what is damaged, and of nothing else.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use casemate_testkit::{mke2fs, run, tool};

use super::{Folders, images, listed};

/// Where `verity-4k-qemu` has the contents of the file `size528384`.
const VERITY_DATA: usize = 1012 * 4096;

/// The number behind a word of what debugfs says, perhaps in hex.
fn number(text: &str, behind: &str) -> u64 {
    let rest = text.split(behind).nth(1).unwrap_or_else(|| panic!("{behind}: {text}"));
    let word = rest.split([' ', ',', '\n', '\t']).find(|word| !word.is_empty()).unwrap();
    match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => word.parse().unwrap(),
    }
}

#[test]
fn damage_is_an_error_of_what_is_damaged_alone() {
    let (Some(mke2fs), Some(debugfs), Some(_)) = (tool("mke2fs"), tool("debugfs"), tool("python3")) else {
        return;
    };
    let Some(folders) = Folders::new() else { return };
    folders.sh("mkdir -p tree/a tree/b tree/c; for d in a b c; do for i in 1 2 3; do echo $i > tree/$d/f$i; done; done");
    let options = format!("-t ext4 -b 1024 -d {}", folders.path("tree").display());
    mke2fs::make(&mke2fs, &options, &folders.path("image"), "8M");
    let ask = |line: &str| {
        run(std::process::Command::new(&debugfs).args(["-w", "-R", line]).arg(folders.path("image")))
    };
    folders.mount("image", "own");
    let before = listed(&folders.path("own"));
    folders.yes("umount own");

    // An inode, the block of a directory, and names of the file system's own inodes and of one that there is not.
    let imap = ask("imap /a/f2");
    let inode = number(&imap, "at block ") * 1024 + number(&imap, "offset ");
    let block = ask("blocks /b").split_whitespace().next().unwrap().parse::<usize>().unwrap();
    ask("ln <8> /c/journal");
    ask("ln <1> /c/first");
    folders.flip("image", inode as usize + 0x10, 1);
    folders.flip("image", block * 1024 + 40, 1);
    folders.mount("image", "own");
    let after = listed(&folders.path("own"));
    let changed: Vec<&str> =
        after.lines().filter(|line| !before.lines().any(|known| known == *line)).collect();
    let expected = [
        "b'/a/f2' EIO",
        "b'/b' list EIO",
        "b'/c' b'first' 4294967297",
        "b'/c/first' EIO",
        "b'/c' b'journal' 4294967304",
        "b'/c/journal' EIO",
    ];
    assert_eq!(changed, expected);
    let lost = before.lines().filter(|line| !after.lines().any(|known| known == *line)).count();
    // Of the directory's names each has a line below it, and one of its own.
    assert_eq!(lost, 1 + 6, "{after}");
    // It goes on, and names are found one by one where the block is not needed.
    assert_eq!(fs::read(folders.path("own/a/f1")).unwrap(), b"1\n");
    folders.yes("umount own");
}

#[test]
fn files_are_checked_against_their_fsverity_trees() {
    let Some(folders) = Folders::new() else { return };
    let (_, image) =
        images("ext4/tests/fixtures/verity").into_iter().find(|(name, _)| name == "verity-4k-qemu").unwrap();
    folders.file("image", image);
    let file = "own/size528384";
    folders.file("plain", "it has no tree");
    folders.yes("ext4 put --no-progress image plain /");
    folders.mount("image --fsverity require", "own");
    let whole = fs::read(folders.path(file)).unwrap();
    assert_eq!(whole.len(), 528_384);
    assert_eq!(fs::read(folders.path("own/plain")).unwrap_err().raw_os_error(), Some(5));
    folders.yes("umount own");
    let at = 8192;
    assert!(folders.read("image")[VERITY_DATA + at..][..4096] == whole[at..at + 4096]);
    folders.flip("image", VERITY_DATA + at + 7, 1);
    folders.mount("image", "own");
    let open = fs::File::open(folders.path(file)).unwrap();
    let mut block = [0; 4096];
    open.read_exact_at(&mut block, 400_000).unwrap();
    assert!(block == whole[400_000..404_096]);
    let error = open.read_exact_at(&mut block, 8192).unwrap_err();
    assert!(error.raw_os_error() == Some(5) && error.kind() != ErrorKind::UnexpectedEof, "{error}");
    open.read_exact_at(&mut block, 4096).unwrap();
    assert!(block == whole[4096..8192]);
    drop(open);
    folders.yes("umount own");
    folders.mount("image --fsverity ignore", "own");
    assert!(fs::read(folders.path(file)).unwrap() != whole);
}
