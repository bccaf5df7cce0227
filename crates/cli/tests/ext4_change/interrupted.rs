//! Commands that are killed, and changes that were left in the middle.

use std::fs;
use std::process::Command;

use casemate_testkit::{run_any, tool};

use crate::{CASEMATE, Place};

#[test]
fn killed_commands_lose_nothing_that_was_there() {
    let kills = if casemate_testkit::slow_tests() { 300 } else { 12 };
    for features in ["-b 4096", "-b 1024 -O ^has_journal"] {
        let Some(place) = Place::new(features) else { return };
        place.tree();
        for number in 0..400 {
            fs::write(place.path(&format!("tree/a/b/{number}")), vec![b'y'; number * 37 % 9000]).unwrap();
        }
        fs::write(place.path("keep"), "kept\n".repeat(3000)).unwrap();
        place.yes("put image keep /keep");
        let before = fs::read(place.path("image")).unwrap();
        let mut rng = casemate_testkit::Rng::new(4);
        for kill in 0..kills {
            fs::write(place.path("image"), &before).unwrap();
            let mut command = Command::new(CASEMATE);
            command.args(["ext4", "put", "-r", "image", "tree", "/", "--no-progress"]);
            let mut child = command.current_dir(place.folder.path()).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_micros(rng.below(150_000)));
            // SIGKILL, unless it has ended.
            let _ = child.kill();
            child.wait().unwrap();
            if features.contains("has_journal") || kill % 2 == 1 {
                place.yes("recover image");
            } else {
                let output = run_any(Command::new(&place.e2fsck).arg("-fp").arg(place.path("image")));
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(matches!(output.status.code(), Some(0 | 1)), "{features}: {text}");
            }
            place.assert_clean();
            assert_eq!(place.yes("cat image /keep"), "kept\n".repeat(3000));
            assert!(!place.path("image.casemate-redo").exists());
        }
    }
}

/// The CRC-32C that recovery files carry, bit by bit and not inverted.
fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let crc = bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    });
    crc.to_le_bytes()
}

#[test]
fn an_interrupted_change_is_read_as_complete_or_not_at_all() {
    const BLOCK: usize = 1024;
    const STATE: usize = 1024 + 0x3a;
    let Some(place) = Place::new("-b 1024 -O ^has_journal,^metadata_csum") else { return };
    place.tree();
    place.yes("mkdir image /old");
    let before = fs::read(place.path("image")).unwrap();
    place.yes("put -r image tree /new");
    place.yes("rm -r image /old");
    let after = fs::read(place.path("image")).unwrap();
    // Half of the blocks are written, and the file beside the image has all of them.
    let mut image = before;
    image[STATE] &= !1;
    let (mut records, mut count) = (Vec::new(), 0u64);
    for (block, new) in after.chunks_exact(BLOCK).enumerate() {
        let old = &mut image[block * BLOCK..][..BLOCK];
        if old == new {
            continue;
        }
        records.extend((block as u64).to_le_bytes());
        old.chunks_exact(512).for_each(|sector| records.extend(crc32c(sector)));
        records.extend_from_slice(new);
        count += 1;
        if count % 2 == 0 && block > 1 {
            old.copy_from_slice(new);
        }
    }
    let mut kept = [b"casemate redo 2\n", &image[1024 + 0x68..1024 + 0x78]].concat();
    kept.extend((BLOCK as u32).to_le_bytes());
    kept.extend(count.to_le_bytes());
    let sum = crc32c(&[&kept[..], &records].concat());
    kept.extend(sum);
    kept.extend(records);
    fs::write(place.path("image"), &image).unwrap();
    fs::write(place.path("image.casemate-redo"), &kept).unwrap();

    assert_eq!(place.yes("cat image /new/a/file"), "contents\n");
    // A symbolic link leads to the same image, and to what lies beside that.
    fs::create_dir(place.path("links")).unwrap();
    for (target, link) in [("image", "soft"), ("../soft", "links/soft")] {
        std::os::unix::fs::symlink(target, place.path(link)).unwrap();
    }
    for name in ["image", "soft", "links/soft"] {
        let output = place.ext4(&format!("ls {name} /"));
        assert!(String::from_utf8_lossy(&output.stderr).contains("is shown as complete"), "{name}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("old"), "{name}");
    }
    place.yes("check image");
    place.yes("extract image out");
    assert_eq!(fs::read(place.path("out/new/sparse")).unwrap(), fs::read(place.path("tree/sparse")).unwrap());
    // Served, it is whole for readers; whoever could write has to complete it first.
    let serve = |options: &[&str]| {
        let mut command = Command::new(CASEMATE);
        let script = "nbdcopy \"$uri\" served";
        run_any(
            command
                .arg("serve")
                .arg("image")
                .args(options)
                .args(["--exec", script])
                .current_dir(place.folder.path()),
        )
    };
    if tool("nbdcopy").is_some() {
        let output = serve(&["--read-only"]);
        assert!(
            output.status.success()
                && String::from_utf8_lossy(&output.stderr).contains("is shown as complete")
        );
        assert!(fs::read(place.path("served")).unwrap() == after);
    }
    let output = serve(&["--write"]);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("must be completed before others write"),
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(2));
    let output = place.ext4("info image --no-replay");
    assert!(String::from_utf8_lossy(&output.stderr).contains("was not left clean"));
    assert_eq!(fs::read(place.path("image")).unwrap(), image);
    // Its bytes are equal to those of a copy, and its files are not.
    fs::write(place.path("copy"), &image).unwrap();
    for files in ["", " --files"] {
        assert_eq!(place.ext4(&format!("diff image copy{files}")).status.code(), Some(1), "{files}");
    }
    // Nothing protects the bytes of half a change: what completes it would not fit them any more.
    fs::write(place.path("key"), (0..64).collect::<Vec<u8>>()).unwrap();
    for line in [
        "verity format image hashes",
        "luks reencrypt --encrypt image --luks-header apart --key-file key --batch-mode",
        "crypt encrypt --in-place image --key-file key --key-size 512",
        "crypt encrypt image hashes --key-file key --key-size 512",
        "crypt encrypt image - --key-file key --key-size 512",
        "luks format hashes --from image --key-file key",
        "luks format - --from image --key-file key",
    ] {
        let mut command = Command::new(CASEMATE);
        let output = run_any(command.args(line.split(' ')).current_dir(place.folder.path()));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains("must be completed before its bytes are encrypted or hashed"),
            "{line}: {said}"
        );
        assert_eq!(output.status.code(), Some(2));
        assert!(fs::read(place.path("image")).unwrap() == image && !place.path("hashes").exists());
    }
    assert!(!place.path("apart").exists());

    // One block is as nobody left it.
    let mut changed = image.clone();
    let bitmap =
        (2 * BLOCK..image.len()).step_by(BLOCK).find(|at| image[*at..][..BLOCK] != after[*at..][..BLOCK]);
    changed[bitmap.unwrap()] ^= 0x80;
    fs::write(place.path("image"), &changed).unwrap();
    for line in ["cat image /new/a/file", "extract image other", "check image", "check --fix-checksums image"]
    {
        place.no(line, 2, "was changed since; run e2fsck");
    }
    place.no("mkdir image /x", 2, "was changed since; run e2fsck");
    assert_eq!(fs::read(place.path("image")).unwrap(), changed);

    fs::write(place.path("image"), &image).unwrap();
    fs::rename(place.path("image.casemate-redo"), place.path("redo")).unwrap();
    assert_eq!(place.yes("cat image /new/a/file --recovery-file redo"), "contents\n");
    // A server finds it where it is said to be; without it, what it offers is said to be half of a change.
    let output = serve(&["--read-only", "--recovery-file", "redo"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is shown as complete"), "{output:?}");
    let output = serve(&["--read-only"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("was not left clean"), "{output:?}");
    // A disk with the file system in it shows nobody half of a change.
    let start = 1 << 20;
    fs::write(place.path("disk"), [vec![0; start], image.clone()].concat()).unwrap();
    fs::copy(place.path("redo"), place.path(&format!("disk.casemate-redo.{start}"))).unwrap();
    let serve = |line: &str| {
        let mut command = Command::new(CASEMATE);
        command.args(line.split(' ')).args(["--exec", "true"]).current_dir(place.folder.path());
        let output = run_any(&mut command);
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, said) = serve("serve --read-only disk");
    assert!(status == 2 && said.contains(&format!("at byte {start} was interrupted")), "{said}");
    let (status, said) = serve(&format!("serve --read-only --offset {start} disk"));
    assert!(status == 0 && said.contains("is shown as complete"), "{said}");
    place.yes(&format!("recover disk --offset {start}"));
    assert_eq!(serve("serve --read-only disk"), (0, String::new()));

    the_image_leads_to_the_recovery_file(&place, &image, &after);
    let output = place.ext4("recover image --recovery-file redo");
    assert!(String::from_utf8_lossy(&output.stderr).contains("completed a change that was interrupted"));
    assert_eq!(fs::read(place.path("image")).unwrap(), after);
    assert!(!place.path("redo").exists());
    place.assert_clean();
    assert_eq!(place.ext4("recover image").stderr, b"");
}

/// Every name of an image leads to the recovery file, which is `redo`.
fn the_image_leads_to_the_recovery_file(place: &Place, image: &[u8], after: &[u8]) {
    const NAME: &str = "user.casemate.recovery";
    let note = |file: &str, name: &str, path: &std::path::Path| {
        let path = path.as_os_str().as_encoded_bytes();
        rustix::fs::setxattr(place.path(file), name, path, rustix::fs::XattrFlags::empty()).is_ok()
    };
    fs::write(place.path("noted"), image).unwrap();
    if !note("noted", NAME, &place.path("redo")) {
        return casemate_testkit::skip("no extended attributes here");
    }
    fs::hard_link(place.path("noted"), place.path("hard")).unwrap();
    let start = 1 << 20;
    fs::write(place.path("part"), [vec![0; start], image.to_vec()].concat()).unwrap();
    assert!(note("part", &format!("{NAME}.{start}"), &place.path("redo")));
    let info = run_any(Command::new(CASEMATE).arg("info").arg(place.path("hard")));
    assert!(String::from_utf8_lossy(&info.stdout).contains("redo is its journal"), "{info:?}");
    for line in ["ls noted /", "ls hard /", &format!("ls part --offset {start} /")] {
        let output = place.ext4(line);
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("is shown as complete"),
            "{line}: {output:?}"
        );
    }
    let mut serve = Command::new(CASEMATE);
    serve.args(["serve", "--read-only", "part", "--exec", "true"]).current_dir(place.folder.path());
    let output = run_any(&mut serve);
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("at byte {start} was")), "{output:?}");
    // Loop devices lead there, too.
    let losetup = |options: &[&str]| {
        let output = run_any(Command::new(tool("losetup")?).args(["--find", "--show"]).args(options));
        let name = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        if name.is_empty() { None } else { Some(name) }
    };
    let (hard, part) = (place.path("hard"), place.path("part"));
    for options in [vec![hard.to_str().unwrap()], vec!["-o", "1048576", part.to_str().unwrap()]] {
        let Some(name) = losetup(&options) else { continue };
        let (read, changed) = (place.ext4(&format!("ls {name} /")), place.ext4(&format!("mkdir {name} /x")));
        run_any(Command::new("losetup").args(["-d", &name]));
        assert!(String::from_utf8_lossy(&read.stderr).contains("is shown as complete"), "{name}: {read:?}");
        let stderr = String::from_utf8_lossy(&changed.stderr);
        assert!(changed.status.code() == Some(2) && stderr.contains("name that as"), "{name}: {stderr}");
    }
    let output = place.ext4("recover hard");
    assert!(String::from_utf8_lossy(&output.stderr).contains("completed a change that was interrupted"));
    assert!(fs::read(place.path("noted")).unwrap() == after && place.path("redo").exists());
}
