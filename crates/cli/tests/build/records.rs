//! Records of tar streams that tell attributes in other ways than by the kernel's names: ACLs as text, labels, flags.

use casemate_testkit::{Place, run, skip, stderr, tool};

use super::{CASEMATE, check};

/// Permission bits of the members of [`stream`].
const MODE: &str = "0000660";

/// A record as it is stored, with its length.
fn record((key, value): (&str, &[u8])) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let len = (rest..).find(|len| *len == rest + len.to_string().len()).unwrap();
    [format!("{len} {key}=").as_bytes(), value, b"\n"].concat()
}

/// A header, and contents behind it.
fn header(name: &str, kind: u8, owner: u32, body: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    let mut text = |at: usize, value: &str| header[at..at + value.len()].copy_from_slice(value.as_bytes());
    text(0, name);
    text(100, MODE);
    text(108, &format!("{owner:07o}"));
    text(116, "0000000");
    text(124, &format!("{:011o}", body.len()));
    text(136, "00000000000");
    text(148, "        ");
    text(257, "ustar\u{0}00");
    header[156] = kind;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header.extend(body);
    header.resize(header.len().next_multiple_of(512), 0);
    header
}

/// A stream of one file `f` with these records.
fn stream(records: &[(&str, &[u8])]) -> Vec<u8> {
    let body: Vec<u8> = records.iter().flat_map(|one| record(*one)).collect();
    [header("x", b'x', 0, &body), header("f", b'0', 0, b"secret\n"), vec![0; 1024]].concat()
}

/// An ACL as attribute: tags, permissions and numbers.
fn acl(entries: &[(u16, u16, u32)]) -> String {
    hex(&acl_bytes(entries))
}

fn acl_bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        value.extend(id.to_le_bytes());
    }
    value
}

fn hex(value: &[u8]) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect()
}

const NONE: u32 = u32::MAX;

/// The mode of `f` and its attributes, as `build` and `put` take them from a stream: both must agree.
fn taken(place: &Place, stream: &[u8]) -> (String, String) {
    place.file("t.tar", stream);
    place.yes("build put.img --size 4M");
    place.yes("build new.img --tar t.tar");
    place.yes("put --tar t.tar put.img /");
    let [one, two] = ["new.img", "put.img"].map(|image| {
        let stat: serde_json::Value =
            serde_json::from_str(&place.yes(&format!("stat --json {image} /f"))).unwrap();
        (stat["mode"].to_string(), place.yes(&format!("getfattr -d {image} /f --encoding=hex")))
    });
    check(place, "new.img");
    assert_eq!(one, two);
    std::fs::remove_file(place.path("put.img")).unwrap();
    std::fs::remove_file(place.path("new.img")).unwrap();
    one
}

#[test]
fn acls_as_text_are_taken() {
    let place = Place::under(CASEMATE, "ext4");
    let wanted = acl(&[
        (1, 6, NONE),
        (2, 4, 7),
        (2, 6, 1000),
        (4, 0, NONE),
        (8, 5, 5),
        (0x10, 6, NONE),
        (0x20, 0, NONE),
    ]);
    for text in [
        // GNU tar's, star's and libarchive's, which do not agree on the order.
        "user::rw-\nuser:7:r--\nuser:1000:rw-\ngroup::---\ngroup:5:r-x\t#effective:r--\nmask::rw-\nother::---\n",
        "user::rw-,user:daemon:r--:7,user:lena:rw-:1000,group::---,group:tty:r-x:5,mask::rw-,other::---",
        "user::rw-,group::---,other::---,user:lena:rw-:1000,user:7:r,group:tty:rx:5,mask:rw-",
        "# a remark, and more\nu::rw-\nu:1000:rw-\nu:7:r--\ng::---\ng:5:r-x\nm::rw-\no::---",
    ] {
        let (mode, attributes) = taken(&place, &stream(&[("SCHILY.acl.access", text.as_bytes())]));
        assert!(attributes.contains(&format!("system.posix_acl_access=0x{wanted}")), "{text}: {attributes}");
        assert!(mode.contains("660"), "{text}: {mode}");
    }
    // libarchive's modes have the group's own rights where the kernel has the mask's.
    let text = "user::rw-,group::---,mask::r--,other::---,user:1:rw-:1";
    let (mode, _) = taken(&place, &stream(&[("SCHILY.acl.access", text.as_bytes())]));
    assert!(mode.contains("640"), "{mode}");
    // One that says no more than the mode does is none; what it says counts.
    let text = "user::rw-\ngroup::---\nother::---\n";
    let (mode, attributes) = taken(&place, &stream(&[("SCHILY.acl.access", text.as_bytes())]));
    assert!(mode.contains("600") && !attributes.contains("acl"), "{mode} {attributes}");
    // The attribute counts more.
    let entries = [(1, 6, NONE), (2, 6, 7), (4, 0, NONE), (0x10, 6, NONE), (0x20, 0, NONE)];
    let binary = acl_bytes(&entries);
    let records: [(&str, &[u8]); 2] =
        [("SCHILY.acl.access", text.as_bytes()), ("SCHILY.xattr.system.posix_acl_access", &binary)];
    let (_, attributes) = taken(&place, &stream(&records));
    assert!(attributes.contains(&format!("system.posix_acl_access=0x{}", acl(&entries))), "{attributes}");
}

#[test]
fn acls_that_cannot_be_taken_are_refused() {
    let place = Place::under(CASEMATE, "ext4");
    place.yes("build put.img --size 4M");
    for (text, said) in [
        (
            "user::rw-\nuser:lena:rw-\ngroup::---\nmask::rw-\nother::---\n",
            "f: SCHILY.acl.access: 'user:lena:rw-'",
        ),
        (
            "user::rw-,group::---,group:staff:r--,mask::rw-,other::---",
            "f: SCHILY.acl.access: 'group:staff:r--'",
        ),
        ("user::rw-\nuser:4294967295:rw-\ngroup::---\nmask::rw-\nother::---", "'user:4294967295:rw-'"),
        ("user::rw-\nuser:1:rw-\ngroup::---\nother::---", "mask"),
        ("user::rw-\nother::---", "group"),
        ("user::rw-\nuser::r--\ngroup::---\nother::---", "twice"),
        ("user::rwz\ngroup::---\nother::---", "'user::rwz'"),
        ("user\ngroup::---\nother::---", "'user'"),
        ("mask::rw-:1:2\n", "'mask::rw-:1:2'"),
    ] {
        place.file("t.tar", stream(&[("SCHILY.acl.access", text.as_bytes())]));
        for line in ["build new.img --tar t.tar", "put --tar t.tar put.img /"] {
            let output = place.is(line, 2, said);
            assert!(stderr(&output).contains("f: "), "{}", stderr(&output));
            place.yes(&format!(
                "{line} --no-xattrs{}",
                if line.starts_with("put") { " --dry-run" } else { "" }
            ));
        }
        std::fs::remove_file(place.path("new.img")).unwrap();
    }
}

#[test]
fn default_acls_labels_and_attributes_of_libarchive_are_taken() {
    let place = Place::under(CASEMATE, "ext4");
    let (_, attributes) = taken(
        &place,
        &stream(&[
            ("RHT.security.selinux", b"a_u:b_r:c_t:s0"),
            ("LIBARCHIVE.xattr.user.a%2541%3Db", b"AQID/w"),
            ("LIBARCHIVE.xattr.user.padded", b"AQIDBA=="),
            ("LIBARCHIVE.xattr.user.both", b"AQID"),
            ("SCHILY.xattr.user.both", b"\x07"),
        ]),
    );
    for wanted in [
        format!("security.selinux=0x{}", hex(b"a_u:b_r:c_t:s0\0")),
        "user.a%41=b=0x010203ff".to_owned(),
        "user.padded=0x01020304".to_owned(),
        "user.both=0x07".to_owned(),
    ] {
        // How a "=" in a name is printed is another matter.
        let plain = attributes.replace("\\075", "=").replace("%3D", "=").replace("%25", "%");
        assert!(plain.contains(&wanted), "{wanted}: {attributes}");
    }
    place.file("t.tar", stream(&[("LIBARCHIVE.xattr.user.a", b"A*")]));
    place.is("build new.img --tar t.tar", 2, "f: LIBARCHIVE.xattr.user.a");

    let body = record(("SCHILY.acl.default", b"user::rwx,group::r-x,other::---"));
    place.file("d.tar", [header("x", b'x', 0, &body), header("d/", b'5', 0, b""), vec![0; 1024]].concat());
    place.yes("build new.img --tar d.tar");
    let wanted = acl(&[(1, 7, NONE), (4, 5, NONE), (0x20, 0, NONE)]);
    let attributes = place.yes("getfattr -d new.img /d --encoding=hex");
    assert!(attributes.contains(&format!("system.posix_acl_default=0x{wanted}")), "{attributes}");
}

#[test]
fn records_that_no_file_can_keep_are_told() {
    let place = Place::under(CASEMATE, "ext4");
    place.file("t.tar", stream(&[("SCHILY.fflags", b"schg"), ("SCHILY.acl.ace", b"owner@:rwx::allow")]));
    place.yes("build put.img --size 4M");
    for line in ["build new.img --tar t.tar", "put --tar t.tar put.img /"] {
        let said = stderr(&place.is(line, 0, "SCHILY.fflags"));
        assert!(said.lines().count() == 2 && said.contains("SCHILY.acl.ace"), "{said}");
    }
}

#[test]
fn owners_that_nobody_is_are_refused() {
    let place = Place::under(CASEMATE, "ext4");
    place.yes("build put.img --size 4M");
    for key in ["uid", "gid"] {
        place.file("t.tar", stream(&[(key, b"4294967295")]));
        for line in ["build new.img --tar t.tar", "put --tar t.tar put.img /"] {
            let said = stderr(&place.is(line, 2, "4294967295: not the number of a"));
            assert!(said.contains("f: "), "{said}");
        }
        place.yes("build new.img --tar t.tar --owner 0:0");
        std::fs::remove_file(place.path("new.img")).unwrap();
    }
    place.sh("mkdir tree; touch tree/f");
    for (name, option, text) in [
        ("m", "mtree", "#mtree\n./f type=file uid=4294967295\n"),
        ("t", "device-table", "/f f 644 4294967295 0 - - - - -\n"),
    ] {
        place.file(name, text);
        place.is(&format!("build new.img --from tree --{option} {name}"), 2, "4294967295");
    }
}

/// GNU tar and libarchive restore the ACLs of a tree that was copied into a stream.
#[test]
fn other_programs_restore_acls() {
    let place = Place::under(CASEMATE, "ext4");
    let [Some(tar), Some(_)] = [tool("tar"), tool("setfacl")] else { return };
    if !casemate_is_root() {
        return skip("ACLs of a tree with other owners: only root");
    }
    let made = "mkdir -p tree/d; echo 1 >tree/f; chmod 600 tree/f
                setfacl -m u:54321:rw,g:65432:r,g::---,m::rw tree/f && setfacl -d -m u:54321:rwx tree/d && echo yes";
    if place.sh(&format!("({made}) 2>/dev/null || true")) != "yes\n" {
        return skip("the host's file system has no ACLs");
    }
    place.yes("build new.img --from tree");
    place.yes("extract new.img --tar=x.tar");
    let all = |folder: &str| {
        place.sh(&format!("cd {folder}; getfacl -np --omit-header . f d; stat -c '%n %a' f d"))
    };
    let wanted = all("tree");
    assert!(wanted.contains("user:54321:rw-") && wanted.contains("default:user:54321:rwx"), "{wanted}");
    for (number, options) in
        ["--acls", "--xattrs --acls", "--xattrs --xattrs-include=* --acls", "--xattrs --xattrs-include=*"]
            .iter()
            .enumerate()
    {
        let folder = format!("o{number}");
        std::fs::create_dir(place.path(&folder)).unwrap();
        let said = std::process::Command::new(&tar)
            .args(["-xpf", "x.tar", "-C", &folder])
            .args(options.split(' '))
            .current_dir(place.folder())
            .output()
            .unwrap();
        assert!(said.status.success() && said.stderr.is_empty(), "{options}: {}", stderr(&said));
        assert_eq!(all(&folder), wanted, "{options}");
    }
    if let Some(bsdtar) = tool("bsdtar") {
        std::fs::create_dir(place.path("b")).unwrap();
        run(std::process::Command::new(bsdtar)
            .args(["-xpf", "x.tar", "-C", "b", "--acls"])
            .current_dir(place.folder()));
        assert_eq!(all("b"), wanted);
    }
    // What they write comes back, too; GNU tar names users that the host has, and this one it has not.
    let programs = ["tar --acls -C tree -cf back.tar .", "bsdtar --acls -C tree -cf back.tar ."];
    for program in programs.iter().filter(|program| tool(program.split(' ').next().unwrap()).is_some()) {
        place.sh(program);
        place.yes("build back.img --tar back.tar");
        place.yes("extract back.img back");
        assert_eq!(all("back"), wanted, "{program}");
        place.sh("rm -r back back.img");
    }
}

fn casemate_is_root() -> bool {
    casemate::blockdev::os::is_root()
}
