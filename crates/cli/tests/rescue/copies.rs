//! Copies of images that can be read in part: what is lost is zeros, and is told.

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};

use casemate_testkit::{Place, Rng, run_any, status, stderr, stdout, tool};

use crate::{CASEMATE, own, says};

/// Compares a copy with what should be in it: what is lost is zeros and is told in JSON, in the map and on standard error; all else is
/// right. Returns the ranges that are lost.
#[track_caller]
fn rescued(place: &Place, line: &str, plain: &[u8]) -> Vec<(u64, u64)> {
    let output = place.own(&format!("{line} --map copy.map --overwrite --json"));
    assert_eq!(status(&output), 1, "{line}: {}", stderr(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let pair = |range: &serde_json::Value| (range[0].as_u64().unwrap(), range[1].as_u64().unwrap());
    let lost: Vec<(u64, u64)> = told["lost"].as_array().unwrap().iter().map(pair).collect();
    assert_eq!(told["unread_journal"], false);
    assert_eq!(told["lost_bytes"], lost.iter().map(|(start, end)| end - start).sum::<u64>());
    let copy = place.read("copy");
    assert!(copy.len() >= plain.len() && told["bytes"] == copy.len(), "{told}");
    for (at, (is, was)) in copy.iter().zip(plain).enumerate() {
        let is_lost = lost.iter().any(|(start, end)| (*start..*end).contains(&(at as u64)));
        assert_eq!(*is, if is_lost { 0 } else { *was }, "{line}: byte {at}");
    }
    let map = String::from_utf8(place.read("copy.map")).unwrap();
    for (start, end) in &lost {
        let line = format!("0x{start:08X}  0x{:08X}  -", end - start);
        assert!(map.lines().any(|one| one == line), "{line}: {map}");
        let said = format!("{}", start / 512);
        assert!(stderr(&output).contains(&said), "{said}: {}", stderr(&output));
    }
    lost
}

/// Reading goes on behind what is damaged, and only that is zeros.
#[test]
fn a_copy_goes_on_behind_wrong_tags_and_digests() {
    let place = Place::new(CASEMATE);
    let plain = Rng::new(8).bytes(3 << 20);
    place.file("plain", &plain);
    place.file("key", "secret");
    own(
        &place,
        "luks format vault --from plain --integrity hmac-sha256 --sector-size 4096 --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000",
    );
    own(&place, "integrity format volume --size 6M --from plain -I sha256 --sector-size 1024");
    own(&place, "verity format plain hash --root-hash-file root");
    fs::set_permissions(place.path("vault"), fs::Permissions::from_mode(0o644)).unwrap();
    // The data lie near the end of what holds them.
    for (name, line, granule) in [
        ("vault", "luks extract --keep-going vault copy --key-file key", 4096),
        ("volume", "integrity extract --keep-going volume copy -I sha256", 1024),
        ("vault", "rescue vault copy --luks --key-file key", 4096),
        ("plain", "rescue plain copy --dm-verity hash @root", 4096),
    ] {
        let whole = place.own(&line.replace(" copy", " whole"));
        assert_eq!(status(&whole), 0, "{line}: {}", stderr(&whole));
        if name == "vault" {
            let mode = fs::metadata(place.path("whole")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{line}: plain data are nobody else's");
        }
        let expected = place.read("whole");
        assert_eq!(&expected[..plain.len()], plain);
        let bytes = place.read(name);
        // In the middle of what is written of the data.
        let (at, behind) = match name {
            "plain" => (1 << 20, 100_000),
            "vault" => (bytes.len() - (5 << 19), 100_000),
            _ => (5 << 19, 300_000),
        };
        place.flip(name, at, 1);
        place.flip(name, at + behind, 0x80);
        let lost = rescued(&place, line, &expected);
        assert!((1..=2).contains(&lost.len()), "{line}: {lost:?}");
        assert!(lost.iter().all(|(start, end)| end - start == granule), "{line}: {lost:?}");
        let strict = place.own(&line.replace(" --keep-going", "").replace(" copy", " strict"));
        assert!(
            status(&strict) == if line.starts_with("rescue") { 1 } else { 2 },
            "{line}: {}",
            stderr(&strict)
        );
        place.file(name, &bytes);
    }
    // Tags that were still to be computed excuse a wrong one, and call nothing finished.
    let bytes = place.read("volume");
    let mut changed = bytes.clone();
    changed[24] |= 2;
    let at = changed.windows(512).position(|window| window == &plain[51200..51712]).unwrap();
    changed[at..at + 512].fill(b'X');
    place.file("volume", &changed);
    for line in [
        "integrity extract --keep-going volume unsure -I sha256 --map unsure.map",
        "rescue volume,integrity=sha256 unsure --map unsure.map",
    ] {
        let output = place.own(line);
        says(&output, 1, "sectors 100 to 101: copied and not checked");
        let map = String::from_utf8(place.read("unsure.map")).unwrap();
        assert!(map.contains("0x0000C800  0x00000400  -"), "{line}: {map}");
        assert_eq!(place.read("unsure")[51200..51712], [b'X'; 512]);
        fs::remove_file(place.path("unsure.map")).unwrap();
    }
    place.file("volume", &bytes);
    // A forged number of data blocks cuts nothing off in silence.
    let mut fewer = place.read("hash");
    assert_eq!(fewer[72..80], 768u64.to_le_bytes());
    fewer[72..80].copy_from_slice(&767u64.to_le_bytes());
    place.file("fewer", &fewer);
    for line in ["rescue plain cut --dm-verity fewer @root", "ext4 check plain --dm-verity fewer @root"] {
        says(&place.own(line), 2, "over more data blocks than the 767");
    }
    says(&place.own("luks extract vault copy --key-file key --map x"), 2, "--keep-going");
    says(&place.own("rescue vault none --map ./none"), 2, "would replace");
    says(&place.own("rescue plain copy --map plain"), 2, "would replace");
}

/// A map replaces an older map, and no other file: not one that is there, and not one that comes while the copy is made.
#[test]
fn a_map_replaces_a_map_alone() {
    let place = Place::new(CASEMATE);
    place.file("disk", Rng::new(3).bytes(4 << 20));
    let random = Rng::new(4).bytes(5000);
    for other in [&b"PRECIOUS"[..], b"# not a map\n", &random] {
        place.file("map", other);
        says(&place.own("rescue disk copy --map map"), 2, "a map replaces only another map");
        assert!(place.read("map") == other && place.names() == ["disk", "map"]);
    }
    for old in [&b""[..], b"0 + 1\n0 4096 -\n"] {
        place.file("map", old);
        says(&place.own("rescue disk copy --map map --overwrite"), 0, "");
        assert!(place.read("map").ends_with(b"0x00000000  0x00400000  +\n"));
    }
    fs::remove_file(place.path("map")).unwrap();
    // The copy is on its way as soon as the pipe opens, and more than the pipe takes.
    place.sh("mkfifo copied");
    let line = ["rescue", "disk", "copied", "--map", "map"];
    let mut rescue = Command::new(CASEMATE);
    let rescue = rescue.args(line).current_dir(place.folder()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = fs::File::open(place.path("copied")).unwrap();
    place.file("map", "0 + 1\n0 4096 -\n");
    let mut copy = Vec::new();
    pipe.read_to_end(&mut copy).unwrap();
    says(&rescue.wait_with_output().unwrap(), 2, "a file of this name was made meanwhile");
    assert!(copy == place.read("disk") && place.read("map") == b"0 + 1\n0 4096 -\n");
    assert_eq!(place.names(), ["copied", "copy", "disk", "map"]);
    // A map may go to a pipe itself, which is opened when the copy is there.
    place.sh("mkfifo told");
    let line = ["rescue", "disk", "copied", "--map", "told"];
    let mut rescue = Command::new(CASEMATE).args(line).current_dir(place.folder()).spawn().unwrap();
    for (name, end) in [("copied", &copy[copy.len() - 8..]), ("told", b"  +\n")] {
        assert!(place.read(name).ends_with(end), "{name}");
    }
    assert!(rescue.wait().unwrap().success());
}

/// A map says which sectors of its copy are wrong: an old one would say it of another copy.
#[test]
fn a_copy_and_its_map_are_replaced_together() {
    let Some(strace) = tool("strace") else { return };
    let place = Place::new(CASEMATE);
    place.file("disk", Rng::new(3).bytes(1 << 20));
    place.yes("rescue disk copy --map map");
    let (copy, map) = (place.read("copy"), place.read("map"));
    place.file("disk", Rng::new(4).bytes(2 << 20));
    for when in [1, 2] {
        let inject = format!("inject=rename,renameat,renameat2:error=EIO:when={when}");
        let mut command = Command::new(&strace);
        command.args(["-f", "-qq", "-o", "trace", "-e", "trace=rename,renameat,renameat2", "-e", &inject]);
        command.args([CASEMATE, "rescue", "disk", "copy", "--map", "map", "--threads", "1"]);
        let output = run_any(command.current_dir(place.folder()));
        says(&output, 2, "Input/output error");
        assert!(place.read("copy") == copy && place.read("map") == map, "{when}");
    }
    place.yes("rescue disk copy --map map");
    assert!(place.read("copy") == place.read("disk"));
}

/// Parts that a map of ddrescue does not call finished are not read, and are lost through a mapping in whole sectors.
#[test]
fn what_a_map_calls_unread_is_no_zeros() {
    let place = Place::new(CASEMATE);
    let plain = Rng::new(8).bytes(1 << 20);
    place.file("plain", &plain);
    place.file("key", "secret");
    own(&place, "luks format vault --from plain --key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000");
    let dump: serde_json::Value = serde_json::from_str(&own(&place, "luks dump --json vault")).unwrap();
    let offset: u64 = dump["metadata"]["segments"]["0"]["offset"].as_str().unwrap().parse().unwrap();
    let size = place.read("vault").len() as u64;
    let blocks = [(offset + 5000, 100, '-'), (offset + 20_480, 512, '*'), (size - 1000, 500, '?')];
    let mut map = "# a comment\n0x0 + 1\n".to_owned();
    let mut at = 0;
    for (start, len, status) in blocks {
        map += &format!("{at:#x} {:#x} +\n{start:#x} {len:#x} {status}\n", start - at);
        at = start + len;
    }
    // The map ends before the image: nobody asked for the rest.
    place.file("map", &map);
    // ddrescue leaves zeros there.
    let image = OpenOptions::new().write(true).open(place.path("vault")).unwrap();
    image.write_all_at(&[0; 100], offset + 5000).unwrap();
    let lost = rescued(&place, "luks extract --keep-going vault copy --key-file key --image-map map", &plain);
    let data = size - offset;
    let tail = (data - 1000) / 512 * 512;
    assert_eq!(lost, [(4608, 5120), (20_480, 20_992), (tail, data)]);
    let lost = rescued(&place, "rescue vault copy --image-map map", &place.read("vault"));
    assert_eq!(lost.len(), 3);
    assert_eq!(lost[1], (offset + 20_480, offset + 20_992));
    // What was cut off since, or lies behind the end of what ddrescue wrote, is no less lost.
    let cut = size - 10_000;
    place.file("vault", &place.read("vault")[..cut as usize]);
    for tail in ["+", "-"] {
        place.file("map", format!("0 + 1\n0 {cut} +\n{cut} 10000 {tail}\n"));
        let output =
            place.own("luks extract --keep-going vault copy --key-file key --image-map map --overwrite");
        says(&output, 1, "10000 bytes are missing at the end: the map has them");
        assert_eq!(place.read("copy").len() as u64, data);
        let lost = rescued(&place, "rescue vault copy --image-map map", &place.read("vault"));
        assert_eq!((lost, place.read("copy").len() as u64), (vec![(cut / 512 * 512, size)], size));
    }
    // Where the header was not read there is nothing to open.
    place.file("map", "0 + 1\n0 4096 ?\n4096 100 +\n");
    says(
        &place.own("luks extract --keep-going vault copy2 --key-file key --image-map map"),
        2,
        "were not read",
    );
    place.file("map", "hello");
    says(&place.own("rescue vault copy2 --image-map map"), 2, "map: rescue map: line 1");
}

/// A drive that fails is read as far as it can be.
#[test]
fn a_drive_with_bad_sectors_is_copied() {
    let Some(cc) = tool("cc") else { return };
    let place = Place::new(CASEMATE);
    let plain = Rng::new(8).bytes(3 << 20);
    place.file("drive", &plain);
    // Reads of this file fail where they touch two sectors.
    place.file(
        "shim.c",
        r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
static int bad(int fd, size_t n, off_t o) {
    struct stat s;
    if (fstat(fd, &s) || s.st_size != 3 << 20) return 0;
    return (o < 70144 && o + (off_t)n > 69632) || (o < 3145728 && o + (off_t)n > 3145216);
}
ssize_t pread64(int fd, void *b, size_t n, off_t o) {
    static ssize_t (*next)(int, void *, size_t, off_t);
    if (!next) next = dlsym(RTLD_NEXT, "pread64");
    if (bad(fd, n, o)) { errno = EIO; return -1; }
    return next(fd, b, n, o);
}
ssize_t pread(int fd, void *b, size_t n, off_t o) { return pread64(fd, b, n, o); }
"#,
    );
    place.sh(&format!("{} -shared -fPIC -o shim.so shim.c -ldl", cc.display()));
    let failing = |line: &str| {
        let mut command = place.command();
        command.args(line.split_whitespace()).env("LD_PRELOAD", place.path("shim.so"));
        casemate_testkit::run_any(&mut command)
    };
    let output = failing("rescue drive copy --map copy.map --json");
    assert_eq!(status(&output), 1, "{}", stderr(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["lost"], serde_json::json!([[69_632, 70_144], [3_145_216, 3_145_728]]));
    let mut expected = plain.clone();
    expected[69_632..70_144].fill(0);
    expected[3_145_216..].fill(0);
    assert!(place.read("copy") == expected);
    // A search passes over them, and says so.
    let output = failing("info --scan drive");
    assert_eq!(status(&output), 2);
    assert!(stdout(&output).contains("can't be read: bytes 69632 to 73727"), "{}", stdout(&output));
}
