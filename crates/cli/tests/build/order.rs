//! Orders of sources and descriptions: those of the command line.

use crate::{check, place};

#[test]
fn sources_of_all_kinds_are_taken_in_the_order_given() {
    let place = place();
    place.sh(
        "mkdir -p A B C/d; echo base >A/conf; echo override >B/conf; echo kept >C/d/kept; touch C/.wh.conf
         for one in A B C; do tar -C $one -cf $one.tar .; done",
    );
    let found = |options: &str| {
        place.yes(&format!("build image {options}"));
        check(&place, "image");
        place.yes("ls image /")
    };
    for (first, second) in
        [("--from A", "--from B"), ("--tar A.tar", "--from B"), ("--layer A.tar", "--from B")]
            .into_iter()
            .chain([
                ("--layer A.tar", "--tar B.tar"),
                ("--from A", "--tar B.tar"),
                ("--tar A.tar", "--layer B.tar"),
            ])
    {
        for (options, text) in
            [(format!("{first} {second}"), "override\n"), (format!("{second} {first}"), "base\n")]
        {
            found(&options);
            assert_eq!(place.yes("cat image /conf"), text, "{options}");
        }
    }
    // A whiteout is about the sources before its layer, whatever they are.
    for (options, is_there) in [
        ("--from A --layer C.tar", false),
        ("--tar A.tar --layer C.tar --tar C.tar", false),
        ("--layer C.tar --from A", true),
        ("--from A --layer C.tar --from B", true),
        ("--layer C.tar --tar A.tar", true),
    ] {
        let names = found(options);
        assert_eq!(names.contains("conf") && !names.contains(".wh.conf"), is_there, "{options}: {names}");
        assert!(names.contains('d'), "{options}: {names}");
    }
    place.is("build other --tar - --layer -", 2, "can't be two of the");
}

#[test]
fn descriptions_of_all_formats_are_applied_in_the_order_given() {
    let place = place();
    place.file("fs_config", "one 0 0 640\n");
    place.file("table", "/one f 600 0 0 - - - - -\n");
    place.file("mtree", "one type=file mode=644\n");
    for (options, mode) in [
        ("--fs-config fs_config --device-table table --mtree mtree", "-rw-r--r--"),
        ("--mtree mtree --device-table table --fs-config fs_config", "-rw-r-----"),
        ("--mtree mtree --fs-config fs_config --device-table table", "-rw-------"),
    ] {
        place.yes(&format!("build image --from tree {options}"));
        assert!(place.yes("ls -l image /one").starts_with(mode), "{options}");
    }
}

#[test]
fn a_hard_link_of_a_layer_takes_the_place_of_a_lower_directory() {
    let place = place();
    place.sh("mkdir -p low/x/y up; echo 1 >low/x/y/f; echo 2 >up/a; ln up/a up/x
         tar -C low -cf low.tar .; tar -C up -cf up.tar a x");
    place.yes("build image --layer low.tar --layer up.tar");
    check(&place, "image");
    assert_eq!(place.yes("cat image /x"), "2\n");
    place.is("build other --tar low.tar --tar up.tar", 2, "a directory has the name of a file");
}
