//! Permission bits with ACLs.

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
