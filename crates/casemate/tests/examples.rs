//! The programs in `examples/`, run as a reader of them would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use casemate_testkit::{Rng, run, skip, tempdir, tool};

/// Whether cargo has built the examples, as it does for all tests together, but not for one alone.
fn are_built() -> bool {
    let is_built = example("format").is_file();
    if !is_built {
        skip("the examples are not built: cargo build --examples");
    }
    is_built
}

fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // From target/debug/deps.
    test.parent().and_then(Path::parent).unwrap().join("examples").join(name)
}

fn output(name: &str, folder: &Path, line: &str) -> Output {
    Command::new(example(name)).args(line.split(' ')).current_dir(folder).output().unwrap()
}

fn yes(name: &str, folder: &Path, line: &str) -> String {
    let output = output(name, folder, line);
    assert!(output.status.success(), "{name} {line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_one_makes_another_checks() {
    if !are_built() {
        return;
    }
    let folder = tempdir().unwrap();
    let folder = folder.path();
    let data = Rng::new(1).bytes(1 << 20);
    std::fs::write(folder.join("data"), &data).unwrap();
    let root = yes("format", folder, "data hash").trim().to_owned();
    assert_eq!(yes("verify", folder, &format!("data hash {root}")), "");
    let mut damaged = data.clone();
    damaged[9 * 4096] ^= 1;
    std::fs::write(folder.join("data"), damaged).unwrap();
    let found = output("verify", folder, &format!("data hash {root}"));
    assert_eq!((found.status.code(), &found.stdout[..]), (Some(1), &b"data block 9\n"[..]));

    std::fs::write(folder.join("hello"), "hello").unwrap();
    let digest = yes("digest", folder, "hello");
    if let Some(fsverity) = tool("fsverity") {
        let expected = run(Command::new(fsverity).args(["digest", "hello"]).current_dir(folder));
        assert_eq!(digest, expected);
    }
    assert!(!output("format", folder, "data").status.success());
}

#[test]
fn a_tree_is_put_into_an_image_and_read_through_layers() {
    let (true, Some(mke2fs), Some(sfdisk)) = (are_built(), tool("mke2fs"), tool("sfdisk")) else { return };
    let folder = tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir_all(folder.join("tree/etc")).unwrap();
    std::fs::write(folder.join("tree/etc/os-release"), "ID=casemate\n").unwrap();
    run(Command::new(mke2fs).args(["-q", "-t", "ext4", "plain", "4M"]).current_dir(folder));
    assert_eq!(yes("put", folder, "plain tree/. /"), "1 files, 12 bytes\n");

    let key: Vec<u8> = (0..32).collect();
    std::fs::write(folder.join("key"), &key).unwrap();
    let script = format!(
        "truncate -s 8M disk; printf 'label: gpt\nstart=2048,size=8192\n' | {} -q disk",
        sfdisk.display()
    );
    run(Command::new("sh").args(["-ec", &script]).current_dir(folder));
    let mapping = casemate::crypt::MappingOptions::default()
        .with_key(&casemate::SecretSource::file(folder.join("key")), &casemate::Work::default())
        .unwrap();
    let disk = casemate::Image::open(folder.join("disk"), casemate::Access::Change).unwrap();
    let partition = disk.partition(1).unwrap().crypt(mapping).unwrap();
    partition.device().write_at(&std::fs::read(folder.join("plain")).unwrap(), 0).unwrap();
    drop(partition);
    assert_eq!(yes("read", folder, "disk 1 key /etc/os-release"), "ID=casemate\n");
    // Standard input is empty, so it ends at once.
    let served = yes("serve", folder, "plain overlay socket");
    assert!(served.starts_with("nbd+unix:///?socket=") && served.ends_with("0 requests\n"), "{served}");
}
