//! fs-verity under fscrypt: tree and descriptor are encrypted as one with the contents, the digest is over plaintext.
//!
//! The kernel encrypts a file that already has everything behind its end; the inode's size and flag, which only a
//! kernel with fs-verity sets, are set by debugfs.

use std::process::Command;
use std::sync::Arc;

use casemate::blockdev::{BlockDevice, MemoryDevice};
use casemate::ext4::{ReadOptions, VerityPolicy, open_file, verity_info};
use casemate::{Image, Keys, Providers, Work};
use casemate_testkit::{Rng, run, tempdir, tool};
use casemate_verity::fs::{Describer, Parameters};
use casemate_verity::tree::TreeDevice;
use serde_json::json;

use crate::kernel::{fill, make};
use crate::manifest::{Manifest, contents};

const SIZE: usize = 300_001;

/// EXT4_EXTENTS_FL, EXT4_ENCRYPT_FL and EXT4_VERITY_FL.
const FLAGS: u32 = 0x8_0000 | 0x800 | 0x10_0000;

#[test]
fn a_file_with_a_tree_in_an_encrypted_folder() {
    let (Some(mke2fs), Some(python)) = (tool("mke2fs"), tool("python3")) else { return };
    let Some(debugfs) = tool("debugfs") else { return };
    let folder = tempdir().unwrap();
    let data = Rng::new(9).bytes(SIZE);
    let parameters = Parameters::default();
    let geometry = parameters.geometry(SIZE as u64).unwrap();
    let tree = MemoryDevice::new(vec![0; geometry.tree_size() as usize]);
    let sink = TreeDevice::new(&geometry, &tree, 0);
    let descriptor = Describer::new(parameters, &Work::default())
        .unwrap()
        .describe_as(&geometry, &MemoryDevice::new(data.clone()), &sink)
        .unwrap();
    let mut whole = data.clone();
    whole.resize(SIZE.next_multiple_of(1 << 16), 0);
    let mut stored_tree = vec![0; tree.size() as usize];
    tree.read_at(&mut stored_tree, 0).unwrap();
    whole.extend(stored_tree);
    whole.resize(whole.len().next_multiple_of(4096), 0);
    let on_disk = descriptor.to_disk(&[]).unwrap();
    whole.extend(&on_disk);
    whole.resize(whole.len().next_multiple_of(4096) - 4, 0);
    whole.extend((on_disk.len() as u32).to_le_bytes());
    std::fs::write(folder.path().join("whole"), &whole).unwrap();

    let image = make(&mke2fs, &folder, "-b 4096 -O encrypt,^has_journal", "32M");
    let work = json!({
        "keys": [{"version": 2, "key_hex": "5a".repeat(64)}],
        "policies": [{
            "dir": "enc", "key": 0, "padding": 32, "contents": "aes-256-xts", "filenames": "aes-256-cts"
        }],
        "many": 1,
        "copy": [[folder.path().join("whole").to_str().unwrap(), "enc/whole"]],
    });
    let Some(value) = fill(&python, &folder, &image, &work) else { return };
    let path: String = "enc/whole".bytes().map(|byte| format!("{byte:02x}")).collect();
    let entries = value["entries"].as_array().unwrap();
    let inode = entries.iter().find(|entry| entry["path_hex"] == path.as_str()).unwrap()["inode"].clone();
    for request in [
        format!("set_inode_field <{inode}> size {SIZE}"),
        format!("set_inode_field <{inode}> flags {FLAGS:#x}"),
        "feature verity".to_owned(),
    ] {
        run(Command::new(&debugfs).args(["-w", "-R", &request]).arg(&image));
    }

    let bytes = std::fs::read(&image).unwrap();
    let manifest = Manifest::new("verity", bytes.clone(), value.clone());
    let fs = manifest.open(manifest.keys());
    let file = fs.resolve(b"enc/whole", false).unwrap();
    assert_eq!(contents(&fs, &file), data);
    let info = verity_info(&fs, &file).unwrap().unwrap();
    let providers = Providers::default();
    assert_eq!(info.digest(&providers).unwrap(), descriptor.digest(&providers).unwrap());
    let checked = open_file(&fs, &file, VerityPolicy::Require, &Providers::default()).unwrap();
    let mut read = vec![0; SIZE];
    checked.read_at(&mut read, 0).unwrap();
    assert_eq!(read, data);

    // A changed byte of ciphertext is found by the tree, which is over what it decrypts to.
    let first = fs.mapping_at(&file, 5).unwrap().unwrap().physical.get() * 4096;
    let mut damaged = bytes;
    damaged[first as usize + 77] ^= 1;
    let manifest = Manifest::new("damaged", damaged, value);
    let fs = manifest.open(manifest.keys());
    let checked: Arc<dyn BlockDevice> =
        open_file(&fs, &file, VerityPolicy::Require, &Providers::default()).unwrap().into();
    assert!(checked.read_at(&mut read[..4096], 5 * 4096).is_err());
    checked.read_at(&mut read[..4096], 6 * 4096).unwrap();
    let check = |options: &ReadOptions| {
        let image = Image::over("image", Arc::clone(&manifest.image));
        let report = image.ext4_check(options, &Work::default()).unwrap();
        report.faults.iter().chain(&report.notes).map(|found| found.kind().name()).collect::<Vec<_>>()
    };
    let mut options = ReadOptions::default();
    options.check_verity = true;
    assert_eq!(check(&options), ["verity-locked"]);
    // What is demanded of all files is not shown by one that can't be read.
    options.verity = VerityPolicy::Require;
    assert_eq!(check(&options)[0], "verity-missing");
    options.verity = VerityPolicy::Check;
    options.keys = manifest.keys();
    assert_eq!(check(&options), ["verity-contents"]);
    // Without the key nothing of this can be said.
    let locked = manifest.open(Keys::default());
    assert!(verity_info(&locked, &file).unwrap_err().to_string().contains("needs the key"));
}
