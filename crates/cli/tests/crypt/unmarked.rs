//! Images without a mark beside the journal of work in place: copies, and those whose work has come to its end.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use casemate::blockdev::samples;
use casemate_testkit::{TempDir, run, skip, stderr, tool};

use super::{failure, folder, half_encrypted, has_attributes, with_key};

const MIB: usize = 1 << 20;

/// Runs a command that is killed at a call of the system, counted from 1. Whether it was.
fn killed(folder: &Path, strace: &Path, calls: &str, when: usize, line: &str) -> bool {
    let mut command = Command::new(strace);
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
    command.args(["-e", &format!("inject={calls}:signal=KILL:when={when}"), env!("CARGO_BIN_EXE_casemate")]);
    let output = command.args(line.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success() || output.status.code().is_none(), "{}", stderr(&output));
    !output.status.success()
}

fn casemate(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_casemate"));
    command.current_dir(folder).args(line.split(' ')).stdin(Stdio::null()).output().unwrap()
}

/// Sectors that no sample tells of, one in each MiB but the first.
fn untold(size: usize) -> Vec<usize> {
    let told: Vec<_> = samples(size as u64).collect();
    let is_told = |at: usize| told.iter().any(|range| range.contains(&(at as u64)));
    (MIB..size).step_by(MIB).map(|from| (from..).step_by(4096).find(|at| !is_told(*at)).unwrap()).collect()
}

fn write(path: &Path, places: &[usize]) {
    let mut file = fs::File::options().write(true).open(path).unwrap();
    for at in places {
        file.seek(SeekFrom::Start(*at as u64)).unwrap();
        file.write_all(&[7; 512]).unwrap();
    }
}

/// A folder with 4 MiB of data, and what they become.
fn with_cipher() -> (TempDir, Vec<u8>) {
    let folder = folder(4 * MIB);
    run(&mut with_key(folder.path(), &["encrypt", "plain", "cipher"]));
    let cipher = fs::read(folder.path().join("cipher")).unwrap();
    (folder, cipher)
}

const ENCRYPT: &str = "crypt encrypt --in-place image --key-file key --key-size 512 --hotzone-size 1M";

/// Work is stopped at each of its flushes. What opens is whole, also in a copy without a mark, and what is written to it then is there
/// when the work has gone on.
#[test]
fn work_that_goes_on_takes_back_nothing() {
    let Some(strace) = tool("strace") else { return };
    let (folder, cipher) = with_cipher();
    let plain = fs::read(folder.path().join("plain")).unwrap();
    let copies = folder.path().join("copies");
    let written = untold(plain.len());
    let (mut refused, mut whole) = (0, [0; 2]);
    for when in 1.. {
        for name in ["image", "image.casemate-journal"] {
            let _ = fs::remove_file(folder.path().join(name));
        }
        fs::copy(folder.path().join("plain"), folder.path().join("image")).unwrap();
        if !killed(folder.path(), &strace, "fdatasync,fsync", when, ENCRYPT) {
            break;
        }
        let _ = fs::remove_dir_all(&copies);
        fs::create_dir(&copies).unwrap();
        fs::copy(folder.path().join("key"), copies.join("key")).unwrap();
        let mut has_journal = false;
        for name in ["image", "image.casemate-journal"] {
            // Contents alone, as plain copies have.
            let Ok(bytes) = fs::read(folder.path().join(name)) else { continue };
            fs::write(copies.join(name), bytes).unwrap();
            has_journal |= name != "image";
        }
        for place in [folder.path(), &copies] {
            let image = place.join("image");
            let opened = casemate(place, "crypt decrypt image,offset=0 - --key-file key --key-size 512");
            let before = fs::read(&image).unwrap();
            if opened.status.success() {
                let ends = [&plain, &cipher].iter().position(|end| **end == before);
                whole[ends.unwrap_or_else(|| panic!("{when}: half encrypted, and opened"))] += 1;
                write(&image, &written);
            } else {
                assert_eq!(opened.status.code(), Some(2), "{when}: {}", stderr(&opened));
                assert!(opened.stdout.is_empty() && stderr(&opened).contains("casemate-journal"));
                refused += 1;
            }
            let is = fs::read(&image).unwrap();
            if !has_journal {
                continue;
            }
            let resumed = casemate(place, &format!("{ENCRYPT} --resume"));
            assert!(resumed.status.success(), "{when}: {}", stderr(&resumed));
            assert!(!place.join("image.casemate-journal").exists());
            let after = fs::read(&image).unwrap();
            let mut expected = if opened.status.success() { is } else { cipher.clone() };
            if opened.status.success() && before == plain {
                fs::write(place.join("written"), &expected).unwrap();
                let line = "crypt encrypt written expected --overwrite --key-file key --key-size 512";
                assert!(casemate(place, line).status.success());
                expected = fs::read(place.join("expected")).unwrap();
            }
            assert!(after == expected, "{when}, {}: something was taken back", place.display());
        }
    }
    assert!(refused > 10 && whole[0] > 1 && whole[1] > 1, "{refused} {whole:?}");
}

/// The journal of finished work is in nobody's way, and nothing of it is written.
#[test]
fn what_finished_work_leaves_behind_is_only_removed() {
    let Some(strace) = tool("strace") else { return };
    let (folder, cipher) = with_cipher();
    let at = |name: &str| folder.path().join(name);
    let journal = at("image.casemate-journal");
    for how in ["resumed", "begun anew"] {
        let _ = fs::remove_file(at("image"));
        fs::copy(at("plain"), at("image")).unwrap();
        assert!(killed(folder.path(), &strace, "unlink,unlinkat", 1, ENCRYPT));
        assert!(journal.exists() && fs::read(at("image")).unwrap() == cipher);
        let told = casemate(folder.path(), "info image");
        let text = String::from_utf8(told.stdout).unwrap();
        assert!(text.contains("looks random") && !text.contains("casemate-journal"), "{text}");
        let written = untold(cipher.len());
        write(&at("image"), &written);
        let mut expected = fs::read(at("image")).unwrap();
        // What was there before the work is not called encrypted.
        fs::write(at("image"), fs::read(at("plain")).unwrap()).unwrap();
        let before = casemate(folder.path(), &format!("{ENCRYPT} --resume"));
        assert!(
            before.status.code() == Some(2) && stderr(&before).contains("put back"),
            "{}",
            stderr(&before)
        );
        fs::write(at("image"), &expected).unwrap();
        let decrypt = ENCRYPT.replace("encrypt", "decrypt");
        let other = casemate(folder.path(), &format!("{decrypt} --resume"));
        assert!(other.status.code() == Some(2) && stderr(&other).contains("belongs to an encryption"));
        // The command that was killed at its end does not do all of it once more.
        let again = casemate(folder.path(), ENCRYPT);
        assert!(again.status.code() == Some(2) && stderr(&again).contains("this was done before"));
        assert!(fs::read(at("image")).unwrap() == expected && journal.exists());
        let line = match how {
            "resumed" => format!("{ENCRYPT} --resume"),
            _ => {
                run(&mut with_key(folder.path(), &["decrypt", "image", "expected", "--overwrite"]));
                expected = fs::read(at("expected")).unwrap();
                decrypt
            }
        };
        let tried = casemate(folder.path(), &format!("{line} -n"));
        assert!(tried.status.success() && journal.exists(), "{}", stderr(&tried));
        let done = casemate(folder.path(), &line);
        assert!(done.status.success() && !journal.exists(), "{}", stderr(&done));
        assert_eq!(stderr(&done).contains("was finished before"), how == "resumed", "{}", stderr(&done));
        assert!(fs::read(at("image")).unwrap() == expected, "{how}");
    }
}

/// The journal of finished work says of no other image that it is done: not of an older one, of which other things are in the backup.
#[test]
fn finished_work_is_told_of_its_own_image_alone() {
    let Some(strace) = tool("strace") else { return };
    let (folder, cipher) = with_cipher();
    let at = |name: &str| folder.path().join(name);
    let plain = fs::read(at("plain")).unwrap();
    for (direction, before, after) in [("encrypt", &plain, &cipher), ("decrypt", &cipher, &plain)] {
        let line = ENCRYPT.replace("encrypt", direction);
        let _ = fs::remove_file(at("image"));
        fs::write(at("image"), before).unwrap();
        assert!(killed(folder.path(), &strace, "unlink,unlinkat", 1, &line));
        let journal = fs::read(at("image.casemate-journal")).unwrap();
        let mut older = before.clone();
        for start in [0, MIB + 4096] {
            older[start..start + 65_536].fill(7);
        }
        let half = [&after[..2 * MIB], &before[2 * MIB..]].concat();
        for (name, other) in [("older", older), ("zeros", vec![0; after.len()]), ("half", half)] {
            fs::write(at("image"), &other).unwrap();
            for more in ["", " -n", " --json"] {
                let resumed = casemate(folder.path(), &format!("{line} --resume{more}"));
                let text = stderr(&resumed);
                assert_eq!(resumed.status.code(), Some(2), "{direction} {name}: {text}");
                assert!(
                    resumed.stdout.is_empty() && text.contains("The work was finished"),
                    "{name}: {text}"
                );
                assert!(
                    text.contains("remove the journal") && !text.contains(&format!("{direction}ed\n")),
                    "{name}: {text}"
                );
                assert!(fs::read(at("image")).unwrap() == other, "{direction} {name}");
                assert!(fs::read(at("image.casemate-journal")).unwrap() == journal, "{direction} {name}");
            }
        }
        // Its owner has written to more than half of it.
        let mut written = after.clone();
        written[MIB..].fill(7);
        fs::write(at("image"), &written).unwrap();
        let resumed = casemate(folder.path(), &format!("{line} --resume"));
        assert!(resumed.status.success(), "{}", stderr(&resumed));
        assert!(fs::read(at("image")).unwrap() == written && !at("image.casemate-journal").exists());
    }
}

/// A journal that says nothing of an end, as earlier versions left it, takes back nothing either.
#[test]
fn a_hot_zone_that_was_written_to_is_not_overwritten() {
    let Some(strace) = tool("strace") else { return };
    let (folder, cipher) = with_cipher();
    let at = |name: &str| folder.path().join(name);
    // The last flush after which the journal does not say that the work is finished.
    let is_whole = || fs::read(at("image")).unwrap() == cipher;
    let is_refused = || !casemate(folder.path(), "crypt decrypt image - --key-file key").status.success();
    for when in 1.. {
        for name in ["image", "image.casemate-journal"] {
            let _ = fs::remove_file(at(name));
        }
        fs::copy(at("plain"), at("image")).unwrap();
        assert!(killed(folder.path(), &strace, "fdatasync,fsync", when, ENCRYPT));
        if is_whole() && is_refused() {
            break;
        }
    }
    // Without its mark, as a copy.
    let whole = fs::read(at("image")).unwrap();
    fs::remove_file(at("image")).unwrap();
    fs::write(at("image"), &whole).unwrap();
    let last = untold(cipher.len()).pop().unwrap();
    write(&at("image"), &[last]);
    let written = fs::read(at("image")).unwrap();
    let refused = casemate(folder.path(), &format!("{ENCRYPT} --resume"));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("come to the end of its image"), "{}", stderr(&refused));
    assert!(fs::read(at("image")).unwrap() == written);
    fs::write(at("image"), &whole).unwrap();
    let resumed = casemate(folder.path(), &format!("{ENCRYPT} --resume"));
    assert!(resumed.status.success() && is_whole(), "{}", stderr(&resumed));
}

/// A copy of a half encrypted image, with its journal beside it, is known by that.
#[test]
fn a_half_encrypted_copy_is_known_by_the_journal_beside_it() {
    let (folder, cipher) = with_cipher();
    half_encrypted(folder.path());
    let at = |name: &str| folder.path().join("copy").join(name);
    fs::create_dir_all(at("run")).unwrap();
    for name in ["image", "image.casemate-journal", "key", "plain"] {
        fs::write(at(name), fs::read(folder.path().join(name)).unwrap()).unwrap();
    }
    symlink("../image", at("run/soft")).unwrap();
    let half = fs::read(at("image")).unwrap();
    for name in ["image", "run/soft"] {
        for line in [
            "crypt decrypt IMAGE out --key-file key --key-size 512",
            "crypt decrypt IMAGE - --key-file key --key-size 512",
            "crypt decrypt IMAGE,offset=1M out --key-file key --key-size 512",
            "crypt encrypt plain IMAGE --key-file key --key-size 512 --overwrite",
            "crypt encrypt --in-place IMAGE --key-file key --key-size 512 --journal another",
            "crypt encrypt --in-place IMAGE --key-file key --key-size 512 -n",
            "serve -w IMAGE --exec true",
            "serve -w IMAGE,crypt=aes-xts-plain64,key-file=key,key-size=512 --exec true",
            "serve plain --exec true --log IMAGE",
            "ext4 ls IMAGE /",
            "ext4 mkdir IMAGE /new",
            "luks dump IMAGE",
            "verity format plain IMAGE",
            "verity format IMAGE tree",
            "info plain --html IMAGE",
            "fsverity digest plain --out-merkle-tree IMAGE",
        ] {
            let output = casemate(&at(""), &line.replace("IMAGE", name));
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{line}: {text}");
            assert!(text.contains("an encryption in place was interrupted"), "{line}: {text}");
            assert!(text.contains("image.casemate-journal is its journal"), "{line}: {text}");
            assert!(fs::read(at("image")).unwrap() == half, "{line}");
            assert!(!at("out").exists() && !at("tree").exists() && !at("another").exists(), "{line}");
        }
        let mut stream = with_key(&at(""), &["decrypt", "-", "out"]);
        let stream = stream.stdin(fs::File::open(at(name)).unwrap()).output().unwrap();
        assert!(stream.status.code() == Some(2) && !at("out").exists(), "{}", stderr(&stream));
        let told = casemate(&at(""), &format!("info {name}"));
        let text = String::from_utf8(told.stdout).unwrap();
        assert!(text.matches("casemate-journal").count() == 1, "{text}");
    }
    // No mark is spoken of where there is none.
    let other = casemate(&at(""), &format!("{ENCRYPT} --resume --journal other"));
    let text = stderr(&other);
    assert!(other.status.code() == Some(2) && text.contains("other: no journal, and "), "{text}");
    assert!(text.contains("image.casemate-journal beside image") && !text.contains("mark"), "{text}");
    run(&mut with_key(&at(""), &["encrypt", "--in-place", "--resume", "run/soft"]));
    assert!(fs::read(at("image")).unwrap() == cipher && !at("image.casemate-journal").exists());
    // Other files of that name say nothing.
    fs::write(at("image.casemate-journal"), "").unwrap();
    run(&mut with_key(&at(""), &["decrypt", "image", "out"]));
    fs::remove_file(at("image.casemate-journal")).unwrap();
    fs::create_dir(at("image.casemate-journal")).unwrap();
    run(&mut with_key(&at(""), &["decrypt", "image", "out", "--overwrite"]));
}

/// Work on a part has a journal of its own name: the part is known by that, and the others are not.
#[test]
fn a_half_encrypted_part_of_a_copy_is_known_by_the_journal_beside_it() {
    let Some(strace) = tool("strace") else { return };
    let (folder, _) = with_cipher();
    let at = |name: &str| folder.path().join(name);
    fs::copy(at("plain"), at("image")).unwrap();
    let part = |start: &str| {
        let line = ENCRYPT.replace("image", &format!("image,offset={start},size=1M"));
        line.replace("hotzone-size 1M", "hotzone-size 64K")
    };
    let line = format!("{} --overwrite", part("2M"));
    assert!(killed(folder.path(), &strace, "fdatasync", 9, &line));
    let (half, journal) = (fs::read(at("image")).unwrap(), PathBuf::from("image.casemate-journal.2097152"));
    assert!(folder.path().join(&journal).exists());
    fs::remove_file(at("image")).unwrap();
    fs::write(at("image"), &half).unwrap();
    let read = |start: &str| {
        casemate(
            folder.path(),
            &format!("crypt decrypt image,offset={start},size=1M - --key-file key --key-size 512"),
        )
    };
    let refused = read("2M");
    assert!(refused.status.code() == Some(2) && refused.stdout.is_empty(), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("casemate-journal.2097152 is its journal"), "{}", stderr(&refused));
    assert!(read("1M").status.success() && read("3M").status.success());
    let resumed = casemate(folder.path(), &format!("{} --resume", part("2M")));
    assert!(resumed.status.success() && read("2M").status.success(), "{}", stderr(&resumed));
}

/// An error tells of the commit, which alone completes what was begun.
#[test]
fn the_commit_of_an_overlay_is_not_resumed_as_an_encryption() {
    let folder = folder(MIB);
    if !has_attributes(folder.path()) {
        return skip("this folder's file system has no extended attributes");
    }
    let at = |name: &str| folder.path().join(name);
    fs::write(at("changes"), "").unwrap();
    let mark = format!("commit {} {}", "ab".repeat(32), at("changes").display());
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(at("plain"), "user.casemate.unfinished", mark.as_bytes(), flags).unwrap();
    let (status, text) =
        failure(&mut with_key(folder.path(), &["encrypt", "--in-place", "--resume", "plain"]), b"");
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("the commit of an overlay was interrupted"), "{text}");
    assert!(text.contains("changes is the overlay") && !text.contains("journal"), "{text}");
}
