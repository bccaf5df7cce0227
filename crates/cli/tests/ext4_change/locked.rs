//! Immutable and append-only files stay as they are.

use std::process::Command;

use casemate_testkit::{run, tool};

use crate::Place;

#[test]
fn what_is_locked_stays_as_it_is() {
    let (Some(place), Some(debugfs)) = (Place::new(""), tool("debugfs")) else { return };
    place.tree();
    place.yes("mkdir image /imd /apd /imd/s /apd/s");
    place.yes("touch image /im /ap /imd/x /apd/x /plain");
    let inodes = [("/im", "0x80010"), ("/ap", "0x80020"), ("/imd", "0x80010"), ("/apd", "0x80020")];
    for (path, flags) in inodes {
        let request = format!("set_inode_field {path} flags {flags}");
        run(Command::new(&debugfs).args(["-w", "-R", &request]).arg(place.path("image")));
    }
    // Each was tried with a kernel (6.18) and chattr +i or +a.
    let refused = [
        "rm image /im",
        "rm image /ap",
        "rm image /imd/x",
        "rm image /apd/x",
        "rm -d image /imd/s",
        "rm -d image /apd/s",
        "rm -r image /imd",
        "rm -r image /apd",
        "touch image /imd/y",
        "mkdir image /imd/z",
        "ln image /plain /imd/l",
        "ln -s image q /imd/q",
        "ln image /im /h",
        "ln image /ap /h",
        "mv image /im /im2",
        "mv image /ap /ap2",
        "mv image /imd/x /y2",
        "mv image /apd/x /y2",
        "mv image /imd /imd2",
        "mv image /apd /apd2",
        "mv image /plain /imd/p",
        "mv image /plain /im",
        "mv image /plain /ap",
        "mv image /plain /apd/x",
        "chmod image 700 /im",
        "chmod image 700 /ap",
        "chmod image 700 /imd",
        "chmod image 700 /apd",
        "chown image 1 /im",
        "chown image 1 /ap",
        "touch image /im",
        "touch image /imd",
        "touch image -a /ap",
        "touch image -d @5 /ap",
        "truncate image /im 5",
        "truncate image /ap 5",
        "fallocate image /im 5",
        "fallocate image /ap 5",
        "setfattr image -n user.a -v b /im",
        "setfattr image -n user.a -v b /ap",
        "setfattr image -n user.a -v b /imd",
        "setfattr image -n user.a -v b /apd",
        "put image tree/a/file /imd/new",
        "put image tree/a/file /im",
        "put image tree/a/file /ap",
        "put -r image tree /imd",
    ];
    for line in refused {
        let what = if line.contains("/im") { "is immutable (chattr -i" } else { "is append-only (chattr -a" };
        place.no(line, 2, what);
    }
    let allowed = [
        "touch image /apd/y",
        "mkdir image /apd/z",
        "ln image /plain /apd/l",
        "mv image /plain /apd/p",
        "ln -s image q /apd/q",
        "touch image /ap",
        "touch image /apd",
        "chmod image 755 /imd/x",
        "touch image -d @5 /imd/x",
        "put -r image tree /apd",
    ];
    for line in allowed {
        place.yes(line);
    }
    place.assert_clean();
}

/// Counts of links that no file system comes to are not a reason to end, or to count from zero.
#[test]
fn links_are_counted_as_far_as_they_go() {
    for (features, refused) in [("-O ^dir_nlink", true), ("-O dir_nlink", false)] {
        let (Some(place), Some(debugfs)) = (Place::new(features), tool("debugfs")) else { return };
        place.yes("mkdir image /d");
        for links in [64999, 65535] {
            let request = format!("set_inode_field /d links_count {links}");
            run(Command::new(&debugfs).args(["-w", "-R", &request]).arg(place.path("image")));
            match refused {
                true => place.no("mkdir image /d/new", 2, "is full"),
                false => {
                    place.yes("mkdir image /d/new");
                    let json = place.yes("stat --json image /d");
                    assert!(json.contains("\"links\":1,"), "{json}");
                    place.yes("rm -r image /d/new");
                }
            }
        }
    }
}
