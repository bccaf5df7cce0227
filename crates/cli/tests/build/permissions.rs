//! Permission bits with ACLs, owners in attributes, and numbers that nodes have no room for.

use std::process::Command;

use casemate_testkit::{run_any, tool};

use crate::{check, place};

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
    // The mode follows an ACL that is set.
    let set =
        format!("--xattr two:system.posix_acl_access={0} --xattr one:system.posix_acl_access={0}", acl(6));
    place.yes(&format!("build image --from tree {set}"));
    check(&place, "image");
    assert_shown("/one", "-rw-rw----", 6, "--xattr");
    place.yes("extract image --tar acls.tar");
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
        return;
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
