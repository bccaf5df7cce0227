//! Keys of encrypted files that come and go while a folder is mounted.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use casemate_testkit::{fixture, mke2fs, run_any, skip, tool};

use super::Folders;

const ENOKEY: Option<i32> = Some(126);

/// A folder with an image that has an encrypted folder.
pub fn encrypted() -> Option<Folders> {
    let (mke2fs, folders) = (tool("mke2fs")?, Folders::new()?);
    mke2fs::make(&mke2fs, "-t ext4 -O encrypt -I 256", &folders.path("root.img"), "16M");
    folders.file("key", (0..64).collect::<Vec<u8>>());
    folders.yes("ext4 mkdir root.img /secret");
    folders.yes("fscrypt set-policy root.img /secret --fscrypt-key key");
    folders.mount("--write root.img --fscrypt-key key", "own");
    folders.sh("mkdir own/secret/d; echo hidden > own/secret/d/file; ln -s d/file own/secret/link; echo plain > own/plain");
    folders.unmount("own");
    Some(folders)
}

/// A key that no folder has is told before the mount goes to the background.
#[test]
fn a_key_that_opens_nothing_is_told() {
    let Some(folders) = encrypted() else { return };
    folders.file("wrong", (1..65).collect::<Vec<u8>>());
    for options in ["", "--write"] {
        folders.is(
            &format!("mount {options} root.img own --fscrypt-key wrong"),
            0,
            "no key that was given fits",
        );
        folders.unmount("own");
        folders.mount(&format!("{options} root.img --fscrypt-key key"), "own");
        folders.unmount("own");
    }
}

#[test]
fn folders_lock_and_unlock() {
    let Some(folders) = encrypted() else { return };
    for options in ["", "--write"] {
        folders.mount(&format!("{options} --control socket root.img"), "own");
        for _ in 0..2 {
            let names = || folders.sh("ls own/secret own/secret/*");
            let locked = names();
            assert!(!locked.contains("file") && !folders.path("own/secret/d/file").exists(), "{locked}");
            assert_eq!(folders.yes("key status own"), "");
            let added = folders.yes("key add own --fscrypt-key key");
            assert!(added.contains("identifier ") && added.contains("descriptor "), "{added}");
            assert_eq!(folders.yes("key status own"), added);
            assert!(names().contains("file"));
            assert_eq!(folders.read("own/secret/d/file"), b"hidden\n");
            assert_eq!(fs::read_link(folders.path("own/secret/link")).unwrap().to_str(), Some("d/file"));
            assert_eq!(folders.read("own/secret/link"), b"hidden\n");
            if !options.is_empty() {
                folders.sh(
                    "echo more >> own/secret/d/file; sync own/secret/d/file; echo hidden > own/secret/d/file",
                );
            }
            let open = File::open(folders.path("own/secret/d/file")).unwrap();
            let id = added.lines().find_map(|line| line.strip_prefix("identifier ")).unwrap();
            folders.yes(&format!("key remove own {id}"));
            folders.is(&format!("key remove own {id}"), 2, "there is no key with identifier");
            // Nothing stays: neither names nor what the kernel had read, nor files that are open.
            assert_eq!(names(), locked);
            assert!(fs::read(folders.path("own/secret/d/file")).is_err());
            assert_eq!(open.read_at(&mut [0; 10], 0).unwrap_err().raw_os_error(), ENOKEY);
            let stored = fs::read_dir(folders.path("own/secret")).unwrap().next().unwrap().unwrap().path();
            if stored.is_dir() {
                let file = fs::read_dir(stored).unwrap().next().unwrap().unwrap().path();
                assert_eq!(File::open(file).unwrap_err().raw_os_error(), ENOKEY);
            }
            assert_eq!(folders.read("own/plain"), b"plain\n");
        }
        folders.yes("key add own --fscrypt-key key");
        folders.yes("key remove own --all");
        assert_eq!(folders.yes("key status own --json").trim(), r#"{"folder":"own","keys":[]}"#);
        folders.file("short", [1; 3]);
        folders.is("key add own --fscrypt-key short", 2, "short: ");
        folders.is("key add own", 2, "no key was given");
        folders.unmount("own");
        assert!(!folders.path("socket").exists());
        folders.yes("ext4 check root.img");
    }
    folders.mount("root.img", "own");
    folders.is("key status own", 2, "own: was mounted without a control socket");
    folders.is("key status .", 2, "nothing of casemate is mounted here");
    folders.unmount("own");
}

#[test]
fn a_control_socket_takes_the_place_of_a_dead_one_alone() {
    let Some(folders) = encrypted() else { return };
    folders.file("file", "precious");
    folders.sh("ln -s file link; mkfifo pipe; python3 -c 'import socket; socket.socket(1).bind(\"dead\")'");
    fs::create_dir_all(folders.path("own")).unwrap();
    let image = folders.read("root.img");
    for name in ["file", "link", "pipe", "root.img"] {
        let text = format!("{name}: exists and is not a socket");
        folders.is(&format!("mount --control {name} root.img own"), 2, &text);
        assert!(!folders.is_mounted("own"), "{name}");
    }
    assert_eq!((folders.read("file"), folders.read("root.img")), (b"precious".to_vec(), image));
    folders.mount("--control dead root.img", "own");
    folders.is("mount --control dead root.img own", 2, "");
    folders.unmount("own");
    assert!(!folders.path("dead").exists() && folders.path("link").exists());
}

#[test]
fn others_change_no_keys() {
    let Some(folders) = encrypted() else { return };
    if !is_root() {
        return skip("only root can be somebody else");
    }
    folders.mount("--control socket root.img --allow-other --fscrypt-key key", "own");
    folders.sh("chmod 777 . socket");
    let mut other = Command::new("setpriv");
    other.args([
        "--reuid=1234",
        "--regid=1234",
        "--clear-groups",
        super::CASEMATE,
        "key",
        "remove",
        "own",
        "--all",
    ]);
    let output = run_any(other.current_dir(folders.folder()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("only root and the user that mounted it"), "{said}");
    assert_eq!(folders.read("own/secret/d/file"), b"hidden\n");
    folders.unmount("own");
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0)
}

/// Of an image that the real fscrypt was used on: its policies and protectors are read where they are mounted.
#[test]
fn passphrases_open_folders() {
    let Some(folders) = Folders::new() else { return };
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fscrypt-tool");
    folders.file("disk.img", fixture(from.join("disk.img.xz")));
    fs::copy(from.join("login-protector"), folders.path("login-protector")).unwrap();
    let secrets = [("passphrase", "hunter2\n"), ("wide", "other-words"), ("login", "login-secret\n")];
    secrets.iter().for_each(|(name, secret)| drop(folders.file(name, secret)));
    folders.mount("--write --control socket disk.img", "own");
    assert!(!folders.path("own/wide/note").exists());
    folders.is("key add own --fscrypt-passphrase-file login", 2, "login: it does not open protector");
    assert_eq!(folders.yes("key status own"), "");
    for (name, more) in [("wide", ""), ("passphrase", ""), ("login", "--protector login-protector")] {
        let added = folders.yes(&format!("key add own --fscrypt-passphrase-file {name} {more}"));
        assert_eq!(folders.read(format!("own/{name}/note")), format!("in {name}\n").into_bytes());
        folders.sh(&format!("echo new > own/{name}/new; cat own/{name}/new"));
        assert_eq!(folders.yes("key status own"), added);
    }
    folders.yes("key remove own --all");
    assert!(!folders.path("own/wide/note").exists());
    folders.unmount("own");
    assert_eq!(folders.yes("ext4 cat disk.img /wide/new --fscrypt-passphrase-file wide"), "new\n");
    folders.yes("ext4 check disk.img");
}
