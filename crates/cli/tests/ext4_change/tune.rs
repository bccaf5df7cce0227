//! Labels and other parameters of file systems, beside tune2fs, dumpe2fs and e2fsck.

use std::process::Command;

use casemate_testkit::{run, run_any, tool};

use super::Place;

/// Kinds of file systems: by checksums, seeds, journals and inode sizes.
const KINDS: [&str; 8] = [
    "-b 1024",
    "-b 4096 -O metadata_csum_seed",
    "-b 1024 -O ^metadata_csum,uninit_bg",
    "-b 1024 -O ^metadata_csum,^has_journal",
    "-b 1024 -O ^extent,^64bit,^flex_bg,^metadata_csum -I 128",
    "-b 1024 -O quota,inline_data -I 256",
    "-b 1024 -O orphan_file,large_dir,casefold",
    "-b 4096 -C 16384 -O bigalloc",
];

const UUID: &str = "11111111-2222-4333-8444-555555555555";

/// Files of several kinds: fragmented, in a large directory, with attributes.
pub fn fill(place: &Place) {
    place.tree();
    for number in 0..3 {
        place.yes(&format!("put -r image tree /copy{number}"));
    }
    place.yes("mkdir image /many");
    let names: Vec<String> = (0..300).map(|number| format!("/many/a-name-of-some-length-{number}")).collect();
    place.yes(&format!("touch image {}", names.join(" ")));
    place.yes(&format!("setfattr -n user.long -v {} image /many", "v".repeat(300)));
    place.yes("rm image /many/a-name-of-some-length-7");
}

/// Text that dumpe2fs prints behind a key.
fn dumped(place: &Place, key: &str) -> Option<String> {
    let text = run(Command::new(tool("dumpe2fs").unwrap()).arg("-h").arg(place.path("image")));
    let line = text.lines().find(|line| line.starts_with(&format!("{key}:")))?;
    Some(line[key.len() + 1..].trim().to_owned())
}

#[test]
fn a_label_is_printed_and_set() {
    let Some(place) = Place::new("-L before") else { return };
    assert_eq!(place.yes("label image"), "before\n");
    place.yes("label image after");
    assert_eq!(place.yes("label image"), "after\n");
    assert_eq!(place.yes("label image --json"), "{\"label\":\"after\"}\n");
    place.yes("label -n image tried");
    assert_eq!(dumped(&place, "Filesystem volume name").unwrap(), "after");
    place.no("label image seventeen-letters", 2, "a label of 17 bytes: at most 16");
    place.no("label -n image", 2, "are for changes");
    place.assert_clean();
}

#[test]
fn parameters_are_those_that_dumpe2fs_prints() {
    if tool("dumpe2fs").is_none() {
        return;
    }
    for kind in KINDS {
        let Some(place) = Place::new(kind) else { return };
        fill(&place);
        let before = place.yes("digest image");
        place.yes(
            "tune image -L system -m 2 -u 7 -g 8 -o acl,discard,journal_data_writeback -e panic -c 20 -C 3 -i 2w \
             -T @1600000000 -M /srv -E stride=4,stripe_width=16,hash_alg=tea,mount_opts=noatime",
        );
        for (key, value) in [
            ("Filesystem volume name", "system"),
            ("Last mounted on", "/srv"),
            ("Reserved blocks uid", "7"),
            ("Reserved blocks gid", "8"),
            ("Errors behavior", "Panic"),
            ("Mount count", "3"),
            ("Maximum mount count", "20"),
            ("Check interval", "1209600 (2 weeks)"),
            ("RAID stride", "4"),
            ("RAID stripe width", "16"),
            ("Default directory hash", "tea"),
            ("Mount options", "noatime"),
        ] {
            let found = dumped(&place, key).unwrap_or_default();
            assert!(found.starts_with(value), "{kind}: {key}: {found}");
        }
        let options = dumped(&place, "Default mount options").unwrap();
        assert!(options.contains("journal_data_writeback") && options.contains("discard"), "{options}");
        let blocks: u64 = dumped(&place, "Block count").unwrap().parse().unwrap();
        assert_eq!(dumped(&place, "Reserved block count").unwrap(), (blocks * 2 / 100).to_string());
        assert_eq!(place.yes("digest image"), before, "{kind}");
        // Times before 1970, and those that 40 bits have no room for, would be stored as others.
        let checked = dumped(&place, "Last checked");
        for time in ["@-1", "1969-12-31", "@1099511627776"] {
            place.no(&format!("tune image --last-check {time}"), 2, "seconds since 1970");
        }
        place.no("tune image -L x -r 5 -m 1", 2, "cannot be used with");
        assert_eq!(dumped(&place, "Last checked"), checked);
        place.assert_clean();
    }
}

#[test]
fn another_uuid_leaves_everything_else_as_it_is() {
    for kind in KINDS {
        let Some(place) = Place::new(kind) else { return };
        fill(&place);
        let before = place.yes("digest image");
        place.yes(&format!("tune image -U {UUID}"));
        assert_eq!(dumped(&place, "Filesystem UUID").unwrap(), UUID);
        assert!(!place.path("image.casemate-redo").exists());
        assert_eq!(place.yes("digest image"), before, "{kind}");
        place.assert_clean();
        place.yes("rm -r image /copy1");
        place.assert_clean();
        for word in ["random", "time", "clear"] {
            place.yes(&format!("tune image -U {word}"));
            place.assert_clean();
        }
        assert_eq!(dumped(&place, "Filesystem UUID").unwrap(), "<none>");
        place.no("tune image -U none", 2, "is not a UUID");
    }
}

/// A block of somebody's file that a wrong map gives to the file of orphans, or to a directory: no checksum is written into it, and
/// it is not freed.
#[test]
fn blocks_that_only_a_wrong_map_leads_to_stay_as_they_are() {
    let (Some(debugfs), Some(place)) = (tool("debugfs"), Place::new("-b 1024 -O orphan_file")) else {
        return;
    };
    let ask = |flags: &[&str], request: &str| {
        let mut command = Command::new(&debugfs);
        String::from_utf8(run_any(command.args(flags).args(["-R", request]).arg(place.path("image"))).stdout)
            .unwrap()
    };
    std::fs::write(place.path("file"), vec![7; 50_000]).unwrap();
    place.yes(&format!("put image {} /file", place.path("file").display()));
    place.yes("mkdir image /directory");
    let orphans = dumped(&place, "Orphan file inode").unwrap();
    let block = ask(&[], "bmap /file 6").trim().to_owned();
    let sound = std::fs::read(place.path("image")).unwrap();
    for (inode, at, changes) in [
        (format!("<{orphans}>"), 5, &["-U random", "-O ^orphan_file"][..]),
        ("/directory".to_owned(), 0, &["-U random"]),
    ] {
        std::fs::write(place.path("image"), &sound).unwrap();
        ask(&["-w"], &format!("sif {inode} bmap[{at}] {block}"));
        let before = std::fs::read(place.path("image")).unwrap();
        for change in changes {
            place.no(&format!("tune image {change}"), 2, &format!("block {block}"));
            assert!(std::fs::read(place.path("image")).unwrap() == before, "{inode} {change}");
        }
    }
}

#[test]
fn features_come_and_go() {
    for kind in KINDS {
        let Some(place) = Place::new(kind) else { return };
        fill(&place);
        let before = place.yes("digest image");
        let has =
            |name: &str| dumped(&place, "Filesystem features").unwrap().split(' ').any(|one| one == name);
        place.yes("tune image -O dir_index,large_dir,dir_nlink,huge_file,large_file,ext_attr,encrypt");
        assert!(has("large_dir") && has("encrypt"), "{kind}");
        place.assert_clean();
        if has("has_journal") {
            if has("orphan_file") {
                place.no("tune image -O ^has_journal", 2, "the feature orphan_file needs has_journal");
                place.yes("tune image -O ^orphan_file,^has_journal");
            } else {
                place.yes("tune image -O ^has_journal");
            }
            assert!(!has("has_journal"));
            place.assert_clean();
            assert_eq!(place.yes("digest image"), before, "{kind}");
        }
        place.yes("tune image -j");
        assert!(has("has_journal"), "{kind}");
        place.assert_clean();
        place.yes("mkdir image /through-the-journal");
        place.assert_clean();
        place.yes("rm -r image /through-the-journal");
        place.no("tune image -J size=2", 2, "there is a journal already");
        if has("metadata_csum") {
            place.yes(&format!("tune image -O metadata_csum_seed -U {UUID}"));
            place.assert_clean();
            place.yes("tune image -U random");
            place.assert_clean();
            place.yes("tune image -O ^metadata_csum_seed");
            place.assert_clean();
        } else {
            place.no("tune image -O metadata_csum_seed", 2, "metadata_csum_seed needs metadata_csum");
        }
        assert_eq!(place.yes("digest image"), before, "{kind}");
        place.yes("tune image -O stable_inodes");
        place.no("tune image -U random", 2, "can't change with the feature stable_inodes");
        place.no("tune image -O ^filetype", 2, "the feature filetype can't be removed from");
        place.no("tune image -O fragments", 2, "'fragments' is not a feature");
        place.assert_clean();
    }
}

/// A link to the command with a tool's name does what the tool does to a copy of the image.
#[test]
fn links_do_what_the_tools_do() {
    for (name, lines) in [
        (
            "tune2fs",
            &[
                "-L label -c 5 -C 2 -i 2d -m 3 -e panic -u 7 -g 8 image",
                "-r 100 -o acl,^user_xattr -O verity,large_dir -M /mnt -T 20200131 image",
                "-c -1 -i 0 -U 11111111-2222-4333-8444-555555555555 -f image",
                "-L a-label-of-more-than-sixteen image",
                "-E stride=4,stripe_width=16,hash_alg=tea,mount_opts=data=ordered,test_fs image",
                "-j image",
                "-O ^has_journal image",
                "-J size=4 image",
                "-O nonsense image",
                "-O bigalloc image",
                "-e nonsense image",
                "-U nonsense image",
                "image",
                "",
                "-L x none",
                "-u daemon -g root image",
                "-u root -g daemon image",
                "-u no-such-user image",
                "-g no-such-group image",
            ][..],
        ),
        ("e2label", &["image", "image new", "image", "", "none"][..]),
        (
            "resize2fs",
            &[
                "image 20480",
                "image 24M",
                "-P none",
                "image 16M",
                "image 0x5000",
                "image 050000",
                "image 0x",
                "-x image",
                "",
            ][..],
        ),
    ] {
        let (Some(place), Some(real)) = (Place::new("-b 1024 -E resize=40000"), tool(name)) else { return };
        std::os::unix::fs::symlink(super::CASEMATE, place.path(name)).unwrap();
        std::fs::create_dir(place.path("theirs")).unwrap();
        std::fs::copy(place.path("image"), place.path("theirs/image")).unwrap();
        for line in lines {
            let run = |program: &std::path::Path, folder: std::path::PathBuf| {
                Command::new(program).args(line.split_whitespace()).current_dir(folder).output().unwrap()
            };
            let (ours, theirs) = (run(&place.path(name), place.path("")), run(&real, place.path("theirs")));
            let printed = |output: &std::process::Output| {
                String::from_utf8_lossy(&output.stdout).replace("1.47.0 (casemate)", "1.47.0 (5-Feb-2023)")
            };
            if ours.status.success() || line.is_empty() {
                assert_eq!(printed(&ours), printed(&theirs), "{name} {line}");
            }
            let size = |path| std::fs::metadata(place.path(path)).unwrap().len();
            assert_eq!(size("image"), size("theirs/image"), "{name} {line}");
            let said = String::from_utf8_lossy(&ours.stderr).into_owned();
            assert_eq!(ours.status.code(), theirs.status.code(), "{name} {line}: {said}");
            assert!(!said.contains('?'), "{name} {line}: {said}");
            let len = |file: &str| std::fs::metadata(place.path(file)).unwrap().len();
            assert_eq!(len("image"), len("theirs/image"), "{name} {line}");
            let theirs = |key: &str| {
                let mut command = Command::new(tool("dumpe2fs").unwrap());
                let text = run_any(command.arg("-h").arg(place.path("theirs/image"))).stdout;
                let text = String::from_utf8_lossy(&text).into_owned();
                let line = text.lines().find(|line| line.starts_with(&format!("{key}:")));
                line.map(|line| line[key.len() + 1..].trim().to_owned())
            };
            for key in [
                "Filesystem volume name",
                "Filesystem features",
                "Last mounted on",
                "Default mount options",
                "Reserved block count",
                "Reserved blocks uid",
                "Reserved blocks gid",
                "Maximum mount count",
                "Mount count",
                "Check interval",
                "Errors behavior",
                "Block count",
                "Inode count",
                "Reserved GDT blocks",
                "Overhead clusters",
            ] {
                assert_eq!(dumped(&place, key), theirs(key), "{name} {line}: {key}");
            }
            place.assert_clean();
        }
    }
}

/// Lines of `tune2fs -l` are those of the tool, for every kind of file system.
#[test]
fn the_tune2fs_link_lists_what_the_tool_lists() {
    let Some(real) = tool("tune2fs") else { return };
    let more = [
        "-O bigalloc,encrypt,verity,project,quota -E quotatype=usrquota:prjquota -L a-label -M /mnt",
        "-O sparse_super2,meta_bg,^resize_inode,metadata_csum_seed -E stride=4,stripe_width=8",
        "-r 0 -O none",
        "-O mmp",
    ];
    for kind in KINDS.iter().chain(&more) {
        let Some(place) = Place::new(kind) else { return };
        let link = place.path("tune2fs");
        std::os::unix::fs::symlink(super::CASEMATE, &link).unwrap();
        let listed = |program: &std::path::Path| {
            let mut command = Command::new(program);
            let text = run(command.arg("-l").arg(place.path("image")).env("TZ", "UTC"));
            text.split_once('\n').unwrap().1.to_owned()
        };
        assert_eq!(listed(&link), listed(&real), "{kind}");
        if kind.contains("mmp") {
            // Programs that write wait for seconds with it.
            continue;
        }
        for line in [
            "-c 7 -i 3d -e panic -u 5 -g 6",
            "-i 2678461s -o ^user_xattr,^acl,journal_data_writeback,discard -u 65000",
            "-E mount_opts=data=ordered,test_fs -T 20200131 -o debug",
        ] {
            run(Command::new(&real).args(line.split(' ')).arg(place.path("image")));
            assert_eq!(listed(&link), listed(&real), "{kind}: {line}");
        }
        let Some(debugfs) = tool("debugfs") else { continue };
        for (field, value) in [
            ("state", "3"),
            ("flags", "0x42"),
            ("error_count", "2"),
            ("first_error_time", "20200101"),
            ("first_error_ino", "12"),
            ("first_error_func", "name"),
            ("last_error_time", "20200102"),
            ("last_error_block", "500"),
            ("last_error_line", "33"),
            ("kbytes_written", "9000"),
            ("kbytes_written", "90000000000"),
            ("default_mount_opts", "0x1fff"),
            ("creator_os", "3"),
            ("errors", "9"),
            ("jnl_backup_type", "2"),
            ("last_orphan", "13"),
        ] {
            let request = format!("ssv {field} {value}");
            run_any(Command::new(&debugfs).args(["-w", "-R", &request]).arg(place.path("image")));
            assert_eq!(listed(&link), listed(&real), "{kind}: {field} {value}");
        }
    }
}

/// Usage has the tool's lines, and the option that is wrong is named.
#[test]
fn usage_of_the_links_has_lines() {
    let Some(place) = Place::new("-b 1024") else { return };
    for name in ["tune2fs", "resize2fs"] {
        std::os::unix::fs::symlink(super::CASEMATE, place.path(name)).unwrap();
        let output = run_any(Command::new(place.path(name)).args(["--nonsense", "image"]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.lines().any(|line| line.starts_with(&format!("{name}: ")) && line.contains("--nonsense")),
            "{said}"
        );
        assert!(said.lines().any(|line| line.starts_with(&format!("Usage: {name} "))), "{said}");
        assert!(said.lines().count() > 3, "{said}");
    }
}

/// A group whose descriptor says that its inodes were never used is passed over: with a right checksum that may still be untrue.
#[test]
fn a_group_that_counts_inodes_in_use_is_not_passed_over() {
    let Some(place) = Place::new("-b 1024 -O metadata_csum,^has_journal -g 2048 -N 768") else { return };
    place.tree();
    let names: Vec<String> = (0..200).map(|number| format!("/file{number}")).collect();
    place.yes(&format!("touch image {}", names.join(" ")));
    let before = place.yes("digest image");
    let mut debugfs = Command::new(tool("debugfs").unwrap());
    std::fs::write(place.path("script"), "set_bg 1 flags 1\nset_bg 1 checksum calc\n").unwrap();
    run(debugfs.args(["-w", "-f"]).arg(place.path("script")).arg(place.path("image")));
    place.no("tune image -U random", 2, "group descriptor 1: is marked as one whose inodes were never used");
    place.no("resize image 3M", 2, "the file system is damaged");
    assert_eq!(place.yes("digest image"), before);
    place.yes("check image --repair --batch-mode");
    place.yes("tune image -U random");
    assert_eq!(place.yes("digest image"), before);
    place.assert_clean();
}

/// e2fsck clears the inode of that number, whatever it has become.
#[test]
fn the_number_of_a_former_orphan_file_is_given_to_no_other() {
    let Some(place) = Place::new("-b 1024 -O orphan_file") else { return };
    let image = place.path("image");
    run(Command::new(tool("tune2fs").unwrap()).args(["-O", "^has_journal"]).arg(&image));
    for _ in 0..3 {
        run_any(Command::new(tool("e2fsck").unwrap()).arg("-fy").arg(&image));
    }
    place.assert_clean();
    place.tree();
    place.yes("put -r image tree /new");
    place.assert_clean();
}
