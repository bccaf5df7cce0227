//! Hash areas with random parameters, byte for byte against `veritysetup`.

use std::fs;
use std::process::Command;

use casemate_blockdev::{FileDevice, Uuid};
use casemate_providers::Work;
use casemate_testkit::{Rng, run, run_any, slow_tests, tempdir, tool};
use casemate_verity::dm::{self, BlockSize, HashType, Layout, Parameters, Salt};
use casemate_verity::hex;

/// Algorithms that veritysetup has where its OpenSSL has them.
const ALGORITHMS: &[&str] = &[
    "sha256",
    "sha256",
    "sha512",
    "sha1",
    "sha224",
    "sha384",
    "sha3-256",
    "sha3-512",
    "blake2b-512",
    "blake2s-256",
    "ripemd160",
    "whirlpool",
    "sm3",
];

#[test]
fn random_parameters_give_the_same_bytes() {
    let Some(veritysetup) = tool("veritysetup") else { return };
    let folder = tempdir().unwrap();
    let (data_path, hash_path) = (folder.path().join("data"), folder.path().join("hash"));
    let own_path = folder.path().join("own");
    let rounds = if slow_tests() { 1500 } else { 80 };
    let mut compared = 0;
    let mut refused = Vec::new();
    for seed in 0..rounds {
        let mut rng = Rng::new(seed);
        let mut pick = |choices: &[u64]| choices[rng.below(choices.len() as u64) as usize];
        let algorithm = ALGORITHMS[pick(&(0..ALGORITHMS.len() as u64).collect::<Vec<_>>()) as usize];
        let hash_type = pick(&[0, 1, 1, 1]);
        let data_block_size = pick(&[512, 1024, 4096, 4096, 4096, 16_384, 65_536]);
        let hash_block_size = pick(&[512, 1024, 4096, 4096, 4096, 8192]);
        let salt_len = pick(&[0, 1, 16, 31, 32, 32, 64, 100, 256]);
        let superblock = pick(&[0, 1, 1]) == 1;
        let hash_offset = pick(&[0, 0, 0, 512, 4096, 5120, 1 << 20]);
        // More blocks than one hash block holds, often; and the ends of a level.
        let most = pick(&[2, 9, 129, 300, (3 << 20) / data_block_size]).max(1);
        let blocks = 1 + rng.below(most);
        let part = rng.below(data_block_size);
        let data = rng.bytes((blocks * data_block_size + part) as usize);
        let said = if rng.below(3) == 0 { Some(1 + rng.below(blocks)) } else { None };

        let mut parameters = Parameters::new(algorithm).unwrap();
        parameters.hash_type = HashType::numbered(hash_type).unwrap();
        parameters.data_block_size = BlockSize::new(data_block_size).unwrap();
        parameters.hash_block_size = BlockSize::new(hash_block_size).unwrap();
        parameters.salt = Salt::new(rng.bytes(salt_len as usize)).unwrap();
        let mut uuid = [0; 16];
        rng.fill(&mut uuid);
        let uuid = Uuid::v4(uuid);
        let what = format!(
            "seed {seed}: {algorithm} type {hash_type} {data_block_size}/{hash_block_size}, salt of {salt_len}, \
             {blocks} blocks, {said:?} said, offset {hash_offset}, superblock {superblock}"
        );

        fs::write(&data_path, &data).unwrap();
        let _ = fs::remove_file(&hash_path);
        let mut command = Command::new(&veritysetup);
        command.arg("format").args([&data_path, &hash_path]).arg(format!("--hash={algorithm}"));
        command.arg(format!("--format={hash_type}")).arg(format!("--salt={}", parameters.salt));
        command.arg(format!("--data-block-size={data_block_size}"));
        command.arg(format!("--hash-block-size={hash_block_size}"));
        command.arg(format!("--hash-offset={hash_offset}")).arg(format!("--uuid={uuid}"));
        command.args(said.map(|blocks| format!("--data-blocks={blocks}")));
        command.args((!superblock).then_some("--no-superblock"));
        let output = run_any(&mut command);
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            // It can't write a superblock behind the end of a file that it has just made, if no tree follows.
            let no_tree = error.contains("Error during update of verity header") && hash_offset > 0;
            assert!(error.contains("not supported") || no_tree, "{what}: {error}");
            refused.push(algorithm);
            continue;
        }
        let printed = String::from_utf8(output.stdout).unwrap();
        let expected_root = printed.lines().find_map(|line| line.strip_prefix("Root hash:")).unwrap().trim();

        let layout =
            Layout::new(parameters, said.unwrap_or(blocks), hash_offset, superblock.then_some(uuid)).unwrap();
        fs::File::create(&own_path).unwrap();
        let device = FileDevice::open_writable(&own_path).unwrap();
        let data_device = FileDevice::open(&data_path).unwrap();
        let root_hash = dm::format(&layout, &data_device, &device, &Work::default()).unwrap();
        assert_eq!(hex::encode(&root_hash), expected_root, "{what}");
        let (found, expected) = (fs::read(&own_path).unwrap(), fs::read(&hash_path).unwrap());
        assert_eq!(found.len(), expected.len(), "{what}: another size");
        assert!(found == expected, "{what}: the hash area differs");

        let hash_device = FileDevice::open(&hash_path).unwrap();
        let mut report = |finding| panic!("{what}: {finding:?}");
        let summary =
            dm::verify(&layout, &data_device, &hash_device, &root_hash, &Work::default(), &mut report)
                .unwrap();
        assert!(summary.is_clean(), "{what}");
        compared += 1;
    }
    eprintln!("compared {compared} of {rounds}; veritysetup has not {refused:?}");
    assert!(compared > rounds / 2, "{compared} of {rounds}");
}

/// A tree that casemate writes and another that veritysetup verifies are the same thing.
#[test]
fn veritysetup_verifies_what_was_written() {
    let Some(veritysetup) = tool("veritysetup") else { return };
    let folder = tempdir().unwrap();
    let (data_path, hash_path) = (folder.path().join("data"), folder.path().join("hash"));
    fs::write(&data_path, Rng::new(1).bytes(1000 * 4096)).unwrap();
    fs::File::create(&hash_path).unwrap();
    let mut parameters = Parameters::new("sha256").unwrap();
    parameters.salt = Salt::random().unwrap();
    let layout = Layout::new(parameters, 1000, 0, Some(Uuid::random().unwrap())).unwrap();
    let data = FileDevice::open(&data_path).unwrap();
    let hash = FileDevice::open_writable(&hash_path).unwrap();
    let root_hash = dm::format(&layout, &data, &hash, &Work::default()).unwrap();
    run(Command::new(veritysetup).arg("verify").args([&data_path, &hash_path]).arg(hex::encode(&root_hash)));
}
