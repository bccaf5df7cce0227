//! Permission bits with ACLs, owners in attributes, and numbers that nodes have no room for.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use casemate_testkit::{run_any, tool};

use crate::{CASEMATE, check, place};

/// An ACL that lets user 1001 read and write, as far as its mask of these permissions does.
fn acl(mask: u8) -> String {
    let none = "ffffffff";
    format!("0x0200000001000600{none}02000600e903000004000000{none}10000{mask}00{none}20000000{none}")
}

#[test]
fn the_mask_of_an_acl_follows_the_mode() {
    let place = place();
    let shown = |path: &str| {
        let mode = place.yes(&format!("ls -ld image {path}"))[..10].to_owned();
        let acl = place.yes(&format!("getfattr image -n system.posix_acl_access -e hex {path}"));
        (mode, acl)
    };
    let assert_shown = |path: &str, mode: &str, mask: u8, what: &str| {
        let (found, text) = shown(path);
        assert!(found == mode && text.contains(&acl(mask)), "{what}: {found} {text}");
    };
    place.file("fs_config", "one 0 0 640\n");
    place.file("table", "/one f 640 0 0 - - - - -\n");
    place.file("recursive", "/a r 640 0 0 - - - - -\n");
    place.file("mtree", "one type=file mode=640\n");
    // The mode follows an ACL that is set, and the ACL a mode that is set.
    let set =
        format!("--xattr two:system.posix_acl_access={0} --xattr one:system.posix_acl_access={0}", acl(6));
    place.yes(&format!("build image --from tree {set}"));
    check(&place, "image");
    assert_shown("/one", "-rw-rw----", 6, "--xattr");
    place.yes("extract image --tar acls.tar");
    place.yes(&format!("build image --from tree {set} --mode one:640"));
    check(&place, "image");
    assert_shown("/one", "-rw-r-----", 4, "--xattr and --mode");
    for (path, options) in [
        ("/one", "--mode one:g-w"),
        ("/a/two", "--mode two:640"),
        ("/one", "--fs-config fs_config"),
        ("/one", "--device-table table"),
        ("/a/two", "--device-table recursive"),
        ("/one", "--mtree mtree"),
    ] {
        place.yes(&format!("build image --tar acls.tar {options}"));
        check(&place, "image");
        assert_shown(path, "-rw-r-----", 4, options);
    }
    // What sets both sets the mode last; without a change of the mode, all stays.
    place.yes("build image --tar acls.tar --mode one:u+r");
    assert_shown("/one", "-rw-rw----", 6, "no change");
    let text = format!("build other --from tree --xattr one:system.posix_acl_access={}00", acl(6));
    place.is(&text, 2, "/one: an ACL that makes no sense");
}

#[test]
fn the_ids_in_acls_are_mapped() {
    let place = place();
    let Some(setfacl) = tool("setfacl") else { return };
    let output =
        run_any(Command::new(setfacl).args(["-m", "u:1001:rw,g:1002:r"]).arg(place.path("tree/one")));
    if !output.status.success() {
        return casemate_testkit::skip("this folder's file system has no ACLs");
    }
    let own = |option: &str| place.sh(&format!("id {option}")).trim().to_owned();
    let (uid, gid) = (own("-u"), own("-g"));
    let maps = |users: &str, groups: &str| {
        format!("--from tree --uid-map 5000:{uid}:1 {users} --gid-map 6000:{gid}:1 {groups}")
    };
    let (users, groups) = ("--uid-map 7000:1000:2", "--gid-map 8000:1002:1");
    place.yes(&format!("build image {}", maps(users, groups)));
    check(&place, "image");
    let text = place.yes("getfattr image -n system.posix_acl_access -e hex /one");
    // 7001 and 8000.
    assert!(text.contains("02000600591b0000") && text.contains("08000400401f0000"), "{text}");
    place.is(
        &format!("build other {}", maps("", groups)),
        2,
        "tree/one: the user 1001 of its ACL is in none",
    );
    place.is(
        &format!("build other {}", maps(users, "")),
        2,
        "tree/one: the group 1002 of its ACL is in none",
    );
    place.is("build other --from tree --uid-map 0:123456:1", 2, "tree: the user ");
    assert!(!place.path("other").exists());
    place.yes(&format!("build image {} --no-xattrs", maps("", "")));
}

#[test]
fn numbers_that_have_no_room_are_refused() {
    let place = place();
    let room = "major numbers up to 4095 and minor numbers up to 1048575";
    for (option, text, said) in [
        ("device-table", "/q c 666 0 0 4096 5\n", &*format!("/q: device 4096,5: a node has room for {room}")),
        (
            "device-table",
            "/r b 600 0 0 8 1048575 0 1 2\n",
            &*format!("/r1: device 8,1048576: a node has room for {room}"),
        ),
        ("mtree", "q type=char device=linux,1,1048576 mode=600\n", "/q: device 1,1048576"),
        ("device-table", "/one f 77777 0 0\n", "line 1: mode 77777: permission bits are 7777 at most"),
        ("device-table", "/one f 100644 0 0\n", "mode 100644"),
        ("fs-config", "one 0 0 10755\n", "mode 10755"),
        ("mtree", "one type=file mode=100644\n", "mode 100644"),
    ] {
        place.file("description", text);
        place.is(&format!("build new.img --from tree --{option} description"), 2, said);
        assert!(!place.path("new.img").exists(), "{text}");
    }
    place.file("description", "/q c 7777 0 0 4095 1048575\n");
    place.yes("build new.img --from tree --device-table description");
    check(&place, "new.img");
    let text = place.yes("ls -l new.img /q");
    assert!(text.contains("4095, 1048575"), "{text}");
}

/// The mask of the ACL lends the group rights that the ACL does not give it: [`acl`] gives it none.
#[test]
fn a_group_gets_no_more_when_an_acl_is_left_out() {
    let place = place();
    let shown = |image: &str, path: &str| place.yes(&format!("ls -ld {image} {path}"))[..10].to_owned();
    let mode = |path: &str| fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o7777;
    place.yes(&format!("build image --from tree --xattr two:system.posix_acl_access={}", acl(6)));
    assert_eq!(shown("image", "/a/two"), "-rw-rw----");
    place.yes("extract image all --no-xattrs");
    place.yes("extract image one --path /a/two --no-xattrs");
    assert_eq!((mode("all/a/two"), mode("one"), mode("all/one")), (0o600, 0o600, 0o640));
    place.yes("extract image --tar plain.tar --no-xattrs");
    place.yes("extract image --tar acls.tar");
    for options in ["--tar plain.tar", "--tar acls.tar --no-xattrs", "--layer acls.tar --no-xattrs"] {
        place.yes(&format!("build made {options}"));
        assert_eq!(
            [shown("made", "/a/two"), shown("made", "/one")],
            ["-rw-------", "-rw-r-----"],
            "{options}"
        );
    }
    place.yes("build empty --size 4M");
    place.yes("put empty --tar acls.tar --no-xattrs /");
    assert_eq!(shown("empty", "/a/two"), "-rw-------");
    let Some(setfacl) = tool("setfacl") else { return };
    let mut setfacl = Command::new(setfacl);
    setfacl.args(["-m", "u:1001:rw,g::r,m::rw"]).args([place.path("tree/one"), place.path("tree/a")]);
    if !run_any(&mut setfacl).status.success() {
        return casemate_testkit::skip("this folder's file system has no ACLs");
    }
    place.yes("build made --from tree --no-xattrs");
    place.yes("build empty --size 4M");
    place.yes("put empty -r --no-xattrs tree /");
    place.yes("put empty --no-xattrs tree/one /");
    let made = [("made", "/one"), ("empty", "/tree/one"), ("empty", "/one")];
    assert_eq!(made.map(|(image, path)| shown(image, path)), ["-rw-r-----"; 3]);
    assert_eq!([shown("made", "/a"), shown("empty", "/tree/a")], ["drwxr--r-x"; 2]);
}

#[test]
fn one_file_is_restored_as_a_folder_is() {
    let place = place();
    let attributes = format!("--xattr two:system.posix_acl_access={} --xattr two:user.origin=7", acl(4));
    place.yes(&format!("build image --from tree --owner 1234:5678 {attributes}"));
    place.yes("extract image all");
    place.yes("extract image one --path /a/two");
    let listed = |path: &str| place.sh(&format!("getfattr -d -m - -e hex {path} | grep -v '^#'"));
    if tool("getfattr").is_some() {
        let text = listed("one");
        assert!(text.contains("user.origin=0x37") && text.contains(&acl(4)), "{text}");
        assert_eq!(text, listed("all/a/two"));
    }
    let metadata = |path: &str| fs::metadata(place.path(path)).unwrap();
    let facts = |path: &str| {
        let found = metadata(path);
        (found.mode(), found.uid(), found.gid(), found.mtime(), found.mtime_nsec())
    };
    assert_eq!(facts("one"), facts("all/a/two"));
    let uid = metadata("tree").uid();
    assert_eq!(metadata("one").uid(), if uid == 0 { 1234 } else { uid });
    place.yes("extract image mine --path /a/two --no-owners --no-xattrs");
    assert_eq!((metadata("mine").uid(), metadata("mine").mode() & 0o7777), (uid, 0o600));
    // What can't be restored is said, and the file is there.
    place.yes("build image --from tree --owner 1234:5678 --xattr two:security.capability=0x00");
    place.is("extract image part --path /a/two", 2, "/a/two: security.capability not restored");
    let text =
        format!("{CASEMATE} ext4 extract image part --path /a/two --overwrite --json 2>/dev/null || true");
    let text = place.sh(&text);
    assert!(text.contains("\"partial\":true") && text.contains("\"files\":1"), "{text}");
    assert_eq!(place.read("part"), b"2\n");
}

#[test]
fn default_acls_are_for_directories() {
    let place = place();
    let set = |path: &str| format!("--xattr {path}:system.posix_acl_default={}", acl(6));
    place.yes(&format!("build image --from tree {}", set("b")));
    check(&place, "image");
    place.is(&format!("build other --from tree {}", set("two")), 2, "only directories have one");
    place.is(&format!("build other --from tree {}00", set("b")), 2, "an ACL that makes no sense");
}

#[test]
fn ranges_of_ids_that_share_some_are_refused() {
    let place = place();
    for (maps, what) in [
        (
            "--uid-map 0:0:1000 --uid-map 0:2000:1",
            "the ranges 0:0:1000 and 0:2000:1 of users share ids of the image",
        ),
        (
            "--gid-map 5:0:10 --gid-map 50:9:1",
            "the ranges 5:0:10 and 50:9:1 of groups share ids of the source",
        ),
        ("--uid-map 4294967290:0:10", "ends behind the last id"),
    ] {
        place.is(&format!("build other --tar tree.tar {maps}"), 2, what);
    }
    place.yes("build image --tar tree.tar --uid-map 0:0:1000 --uid-map 1000:1000:4294966295");
}

/// Capabilities of the second revision count where the user 0 is root, as those of the third with this number do.
#[test]
fn the_root_of_capabilities_is_mapped() {
    let place = place();
    let second = "0100000200200000000000000000000000000000";
    place.yes(&format!("build image --from tree --owner 0:0 --xattr two:security.capability=0x{second}"));
    place.yes("extract image --tar caps.tar");
    for (map, value) in [
        ("0:0:5", second.to_owned()),
        ("100000:0:5", second.replacen("01000002", "01000003", 1) + "a0860100"),
    ] {
        place.yes(&format!("build mapped --tar caps.tar --uid-map {map}"));
        check(&place, "mapped");
        let text = place.yes("getfattr mapped -n security.capability -e hex /a/two");
        assert!(text.trim_end().ends_with(&format!("0x{value}")), "{map}: {text}");
    }
}
