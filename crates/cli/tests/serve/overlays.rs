//! Overlays, and their commits.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use casemate_testkit::nbd::WRITE_ZEROES;
use casemate_testkit::{Rng, run, run_any, tool};

use crate::{CASEMATE, CRYPT, Folder, SIZE};

#[test]
fn an_overlay_keeps_changes_and_the_image_stays() {
    let folder = Folder::new();
    let before = folder.read("image");
    let options = format!("--verity tree {} image --overlay changes", folder.root);
    let running = folder.start(&options);
    let mut client = running.client();
    client.write(5000, &[7; 10_000], 0).unwrap();
    client.ask(WRITE_ZEROES, 0, 100_000, 50_000, &[]).unwrap();
    assert_eq!(running.end(), 0);
    let mut model = before.clone();
    model[5000..15_000].fill(7);
    model[100_000..150_000].fill(0);
    let running = folder.start(&options);
    assert!(running.client().read(0, SIZE as u32).unwrap() == model);
    // One server at a time, and only with the image that it was made over.
    let (status, _, stderr) = folder.with(&options, "true");
    assert_eq!((status, stderr.contains("in use by another process")), (2, true), "{stderr}");
    drop(running);
    fs::remove_file(folder.path().join("sock")).unwrap();
    let (status, _, stderr) = folder.with("enc --overlay changes", "true");
    assert_eq!((status, stderr.contains("belongs to another image")), (2, true), "{stderr}");
    assert!(folder.read("image") == before);
}

#[test]
fn an_overlay_stays_with_what_its_image_holds() {
    let folder = Folder::new();
    folder.expect("image --overlay changes", "true");
    let made = folder.read("changes");
    fs::copy(folder.path().join("image"), folder.path().join("copy")).unwrap();
    folder.expect("copy --overlay changes", "true");
    let verified = format!("--verity tree {} image --overlay changes", folder.root);
    for options in ["enc --overlay changes", &format!("{CRYPT} image --overlay changes"), &verified] {
        let (status, _, stderr) = folder.with(options, "true");
        assert_eq!((status, stderr.contains("belongs to another image")), (2, true), "{options}: {stderr}");
    }
    let mut changed = folder.read("copy");
    changed[SIZE - 1] ^= 1;
    fs::write(folder.path().join("copy"), changed).unwrap();
    let (status, _, stderr) = folder.with("copy --overlay changes", "true");
    assert_eq!((status, stderr.contains("this one was changed since")), (2, true), "{stderr}");
    let (status, _, stderr) = folder.with("image --overlay key", "true");
    assert_eq!((status, stderr.contains("too short for an overlay")), (2, true), "{stderr}");
    assert!(folder.read("changes") == made);
}

/// The root hash says what is below, and not what lies above it, and where.
#[test]
fn an_overlay_over_a_verity_device_stays_with_what_lies_above() {
    let folder = Folder::new();
    fs::write(folder.path().join("key2"), Rng::new(9).bytes(64)).unwrap();
    let verity = format!("image,verity,root-hash={},hash-device=tree", folder.root);
    let crypt = |key: &str| format!("{verity},crypt=aes-xts-plain64,key-size=512,key-file={key}");
    let window = |offset: &str| format!("{verity},offset={offset},size=1M");
    let with = |spec: &str| folder.with(&format!("--overlay changes {spec}"), "true");
    for (made, others) in [
        (verity.clone(), [crypt("key"), format!("{verity},offset=0,size=2M"), window("1M")]),
        (window("1M"), [window("2M"), verity.clone(), format!("{verity},offset=1M")]),
        (crypt("key"), [crypt("key2"), verity.clone(), format!("{},offset=4096", crypt("key"))]),
    ] {
        let _ = fs::remove_file(folder.path().join("changes"));
        for _ in 0..2 {
            assert_eq!(with(&made).0, 0, "{made}");
        }
        for other in others {
            let (status, _, stderr) = with(&other);
            let is_said = stderr.contains("belongs to another image")
                || stderr.contains("the overlay is of a device of");
            assert_eq!((status, is_said), (2, true), "{made}, {other}: {stderr}");
        }
    }
}

/// Zeros of whole blocks behind all that the overlay's file has so far.
#[test]
fn an_overlay_keeps_zeros_behind_its_end() {
    let folder = Folder::new();
    let before = folder.read("image");
    let running = folder.start("image --overlay changes");
    let mut client = running.client();
    client.write(0, &[7; 65536], 0).unwrap();
    client.ask(WRITE_ZEROES, 0, 3 << 20, 65536, &[]).unwrap();
    client.flush().unwrap();
    let mut model = before.clone();
    model[..65536].fill(7);
    model[3 << 20..(3 << 20) + 65536].fill(0);
    assert!(client.read(0, SIZE as u32).unwrap() == model);
    assert_eq!(running.end(), 0);
    let end = fs::metadata(folder.path().join("changes")).unwrap().len();
    assert!(end < SIZE as u64, "the file ends before its last block: {end}");
    folder.casemate("overlay commit changes image");
    assert!(folder.read("image") == model);
}

/// An overlay has what clients wrote, so it is for nobody who may not read the image, and for its owner alone if that was
/// decrypted.
#[test]
fn an_overlay_is_for_no_more_people_than_its_image() {
    let folder = Folder::new();
    let at = |name: &str| folder.path().join(name);
    for (mode, layers, expected) in
        [(0o600, "image", 0o600), (0o640, "image", 0o640), (0o644, &*format!("{CRYPT} enc"), 0o600)]
    {
        for name in ["image", "enc"] {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let _ = fs::remove_file(at("changes"));
        let line = format!("umask 022; {CASEMATE} serve {layers} --overlay changes --exec true");
        run(Command::new("sh").args(["-c", &line]).current_dir(folder.path()));
        let found = fs::metadata(at("changes")).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, expected, "{mode:o} {layers}");
    }
}

/// A commit that stopped in the middle leaves a mark on the image: nobody takes for an image what is half of two.
#[test]
fn a_commit_that_stopped_is_known_by_the_image() {
    let folder = Folder::new();
    let running = folder.start("image --overlay changes");
    let mut client = running.client();
    client.write(0, &[7; 65536], 0).unwrap();
    client.write(3 << 20, &[8; 65536], 0).unwrap();
    assert_eq!(running.end(), 0);
    let mut model = folder.read("image");
    model[..65536].fill(7);
    model[3 << 20..(3 << 20) + 65536].fill(8);
    half_a_commit(&folder, "changes");
    let half = folder.read("image");
    assert!(half[..65536] == model[..65536] && half != model);
    let overlay = fs::canonicalize(folder.path().join("changes")).unwrap();
    for line in [
        "serve image --exec true",
        "serve image --overlay changes --exec true",
        "crypt encrypt image new --key-file key",
    ] {
        let refused = run_any(&mut folder.command(line));
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{line}: {stderr}");
        for part in
            ["the commit of an overlay was interrupted", overlay.to_str().unwrap(), "casemate overlay commit"]
        {
            assert!(stderr.contains(part), "{line}: {stderr}");
        }
    }
    let told = run_any(&mut folder.command("info image"));
    assert!(String::from_utf8(told.stdout).unwrap().contains("the commit of an overlay was interrupted"));
    // Another overlay is not the rest of it.
    fs::copy(folder.path().join("image"), folder.path().join("copy")).unwrap();
    folder.with("copy --overlay other", "true");
    let other = run_any(&mut folder.command("overlay commit other image"));
    let stderr = String::from_utf8(other.stderr).unwrap();
    assert_eq!(other.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("this is not the overlay of the work that was begun on it"), "{stderr}");
    assert!(folder.read("image") == half);
    folder.casemate("overlay commit changes image --dry-run");
    assert!(folder.read("image") == half);
    folder.casemate("overlay commit changes image");
    assert!(folder.read("image") == model);
    folder.expect("image", "true");
}

/// Commit that the system stops before it writes behind 2 MiB of the image.
fn half_a_commit(folder: &Folder, overlay: &str) {
    let line = format!("ulimit -f 4096; {CASEMATE} overlay commit {overlay} image");
    let stopped = run_any(Command::new("dash").args(["-c", &line]).current_dir(folder.path()));
    let stderr = String::from_utf8(stopped.stderr).unwrap();
    assert!(stopped.status.code() == Some(2) && stderr.contains("image: File too large"), "{stderr}");
}

/// Overlays of one image look alike where their blocks are no samples: a mark belongs to one of them.
#[test]
fn the_commit_of_another_overlay_completes_nothing() {
    let folder = Folder::new();
    folder.expect("image --overlay empty", "true");
    let write = |overlay: &str| {
        let running = folder.start(&format!("image --overlay {overlay}"));
        let mut client = running.client();
        client.write((1 << 20) + 4096, &[7; 4096], 0).unwrap();
        client.write((3 << 20) + 4096, &[8; 4096], 0).unwrap();
        assert_eq!(running.end(), 0);
    };
    write("changes");
    write("others");
    half_a_commit(&folder, "changes");
    let half = folder.read("image");
    for line in ["overlay commit empty image", "overlay commit others image --trust-image"] {
        let refused = run_any(&mut folder.command(line));
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains("this is not the overlay of the work that was begun on it"), "{stderr}");
    }
    assert!(folder.read("image") == half);
    // The overlay may have moved, and another program may have changed what is a sample.
    let mut changed = folder.read("image");
    changed[100] ^= 1;
    fs::write(folder.path().join("image"), changed).unwrap();
    fs::rename(folder.path().join("changes"), folder.path().join("moved")).unwrap();
    folder.casemate("overlay commit moved image");
    assert!(folder.read("image")[(3 << 20) + 4096..][..4096] == [8; 4096]);
    folder.expect("image", "true");
}

/// All files with the data have the mark, and the commit opens them once more.
#[test]
fn a_commit_to_data_apart_from_their_tags_is_completed() {
    let folder = Folder::new();
    let at = |name: &str| folder.path().join(name);
    folder.casemate("integrity format volume --size 8M --from image");
    let (mut volume, image) = (folder.read("volume"), folder.read("image"));
    let start = volume.windows(4096).position(|bytes| bytes == &image[..4096]).unwrap();
    // Where no tags lie between them the data are on a device of their own.
    volume[9] = 0;
    let sectors = u64::from_le_bytes(volume[16..24].try_into().unwrap()) as usize;
    fs::write(at("data"), &volume[start..start + sectors * 512]).unwrap();
    fs::write(at("image"), &volume[..start]).unwrap();
    let spec = "image,integrity=crc32c,data-device=data";
    let running = folder.start(&format!("{spec} --overlay changes"));
    let mut client = running.client();
    client.write(1 << 20, &[7; 4096], 0).unwrap();
    client.write(3 << 20, &[8; 4096], 0).unwrap();
    assert_eq!(running.end(), 0);
    let line = format!("ulimit -f 4096; {CASEMATE} overlay commit changes {spec}");
    let stopped = run_any(Command::new("dash").args(["-c", &line]).current_dir(folder.path()));
    assert_eq!(stopped.status.code(), Some(2), "{stopped:?}");
    for name in ["image", "data"] {
        let refused = run_any(&mut folder.command(&format!("serve {name} --exec true")));
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert!(stderr.contains("the commit of an overlay was interrupted"), "{name}: {stderr}");
    }
    folder.casemate(&format!("overlay commit changes {spec}"));
    assert!(folder.read("data")[3 << 20..][..4096] == [8; 4096]);
    folder.expect("data", "true");
    folder.expect(spec, "true");
}

/// A mark that a commit had not removed yet goes with the same command, whatever another program has done since.
#[test]
fn a_mark_that_alone_is_left_is_removed() {
    let Some(strace) = tool("strace") else { return };
    let folder = Folder::new();
    let running = folder.start("image --overlay changes");
    running.client().write(0, &[7; 65536], 0).unwrap();
    assert_eq!(running.end(), 0);
    let mut killed = Command::new(strace);
    killed.args([
        "-f",
        "-o",
        "/dev/null",
        "-e",
        "inject=fremovexattr:signal=KILL:when=1",
        "-e",
        "trace=fremovexattr",
    ]);
    killed.args([CASEMATE, "overlay", "commit", "changes", "image"]).current_dir(folder.path());
    assert!(!run_any(&mut killed).status.success());
    let mut image = folder.read("image");
    assert!(image[..65536] == [7; 65536]);
    image[100] = 9;
    fs::write(folder.path().join("image"), &image).unwrap();
    folder.casemate("overlay commit changes image");
    assert!(folder.read("image") == image);
    folder.expect("image --overlay changes", "true");
}

/// The journal, the undo file and the overlay of an image are nothing that a new file may replace unasked.
#[test]
fn an_overlay_is_a_known_kind() {
    let folder = Folder::new();
    folder.expect("image --overlay changes", "true");
    let before = folder.read("changes");
    for line in [
        "verity format image changes",
        "rescue image changes",
        "crypt encrypt image changes --key-file key --key-size 512",
        "fsverity digest --out-merkle-tree changes image",
    ] {
        let refused = run_any(&mut folder.command(line));
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains("a casemate overlay"), "{line}: {stderr}");
    }
    assert!(folder.read("changes") == before);
    assert!(folder.casemate("info changes").contains("a casemate overlay"));
}
