//! Images that this machine's kernel fills with encrypted files.

use std::path::Path;
use std::process::Command;

use casemate_testkit::{Rng, TempDir, run, run_any, skip, slow_tests, tempdir, tool};
use serde_json::{Value, json};

use crate::manifest::{Manifest, hex};

/// Options of mke2fs, whether inode numbers are stable there, and the names in one directory of each policy.
const SYSTEMS: [(&str, bool, u32); 6] = [
    ("-b 4096 -O encrypt", false, 300),
    ("-b 1024 -O encrypt,stable_inodes", true, 1500),
    // Contexts lie in blocks of their own.
    ("-b 2048 -I 128 -O encrypt", false, 100),
    // With a journal, some kernels hang in writing back inline data.
    ("-b 4096 -I 512 -O encrypt,inline_data,stable_inodes,^has_journal", true, 100),
    ("-b 1024 -O encrypt,^extent,^64bit", false, 100),
    ("-b 4096 -C 65536 -O encrypt,bigalloc", false, 100),
];

#[test]
fn what_this_kernel_encrypts() {
    let (Some(mke2fs), Some(python)) = (tool("mke2fs"), tool("python3")) else { return };
    for (number, (options, stable, many)) in SYSTEMS.into_iter().enumerate() {
        let folder = tempdir().unwrap();
        let many = if slow_tests() { 20 * many } else { many };
        let image = make(&mke2fs, &folder, options, "64M");
        let work = work(number as u64, options, stable, many);
        let Some(manifest) = fill(&python, &folder, &image, &work) else { return };
        assert!(manifest["policies"].as_array().unwrap().len() >= 4, "{options}: {manifest}");
        Manifest::new(options, std::fs::read(&image).unwrap(), manifest).check();
    }
}

pub fn make(mke2fs: &Path, folder: &TempDir, options: &str, size: &str) -> std::path::PathBuf {
    let image = folder.path().join("image");
    let mut command = Command::new(mke2fs);
    run(command
        .args(["-q", "-F", "-t", "ext4", "-N", "16384"])
        .args(options.split(' '))
        .arg(&image)
        .arg(size));
    image
}

/// Has the kernel fill the image. `None` after a skip.
pub fn fill(python: &Path, folder: &TempDir, image: &Path, work: &Value) -> Option<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fscrypt/make.py");
    let top = folder.path().join("top");
    std::fs::create_dir(&top).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "slave"]).arg(python).arg(script);
    let output = run_any(command.arg(image).arg(&top).arg(work.to_string()));
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Some(serde_json::from_slice(&output.stdout).unwrap()),
        Some(77 | 1) if !said.contains("Traceback") => {
            skip(&format!("fscrypt mount: {}", said.trim()));
            None
        }
        _ => panic!("{work}: {said}"),
    }
}

/// Three keys, and policies of every kind that the file system takes.
fn work(seed: u64, options: &str, stable: bool, many: u32) -> Value {
    let mut rng = Rng::new(0xf5c + seed);
    let keys = [(2, 64), (2, 32), (1, 64)];
    let keys: Vec<_> = keys
        .iter()
        .map(|(version, len)| json!({"version": version, "key_hex": hex(&rng.bytes(*len))}))
        .collect();
    let xts = |dir: &str, key: u32, padding: u32| json!({"dir": dir, "key": key, "padding": padding, "contents": "aes-256-xts", "filenames": "aes-256-cts"});
    let mut policies = vec![
        xts("p4", 0, 4),
        // A folder of one key within a plain folder beside one of another key.
        xts("nested/p8", 1, 8),
        xts("nested/p16", 0, 16),
        xts("old", 2, 32),
    ];
    let mut with = |dir: &str, name: &str, value: Value| {
        let mut policy = xts(dir, 0, 32);
        policy[name] = value;
        policies.push(policy);
    };
    if stable {
        with("l64", "flag", "IV_INO_LBLK_64".into());
        with("l32", "flag", "IV_INO_LBLK_32".into());
    } else if !options.contains("1024") {
        with("u512", "data_unit_size", 512.into());
        with("u1024", "data_unit_size", 1024.into());
    }
    for (dir, contents, filenames) in [
        ("cbc", "aes-128-cbc", "aes-128-cts"),
        ("adiantum", "adiantum", "adiantum"),
        ("hctr2", "aes-256-xts", "aes-256-hctr2"),
    ] {
        // Not every kernel has these.
        policies.push(json!({
            "dir": dir, "key": 0, "padding": 16, "contents": contents, "filenames": filenames
        }));
    }
    json!({"keys": keys, "policies": policies, "many": many})
}
