//! Digests, trees, descriptors and signatures that `fsverity` 1.5 and real kernels made.

use std::path::{Path, PathBuf};

use serde_json::Value;

use casemate_blockdev::MemoryDevice;
use casemate_providers::{Providers, Work};
use casemate_testkit::fixture;
use casemate_verity::fs::{Algorithm, Describer, Descriptor, FileDigest, Parameters};
use casemate_verity::signature::{Certificate, DigestAlgorithm, Signature, SigningKey, sign};
use casemate_verity::tree::TreeDevice;

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fs-verity").join(name)
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&fixture(corpus(name))).unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..][..2], 16).unwrap()).collect()
}

fn parameters(vector: &Value) -> Parameters {
    let algorithm = Algorithm::named(vector["hash_alg"].as_str().unwrap()).unwrap();
    let block_size = vector["block_size"].as_u64().unwrap() as u32;
    Parameters::new(algorithm, block_size, &unhex(vector["salt_hex"].as_str().unwrap())).unwrap()
}

#[test]
fn digests_trees_and_descriptors_are_those_of_fsverity() {
    let vectors = json("digests.json.xz");
    let vectors = vectors["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 48);
    let mut trees = 0;
    for vector in vectors {
        let data = MemoryDevice::new(fixture(corpus(vector["content"].as_str().unwrap())));
        let work = Work::default();
        let describer = Describer::new(parameters(vector), &work).unwrap();
        let size = vector["size"].as_u64().unwrap();
        let geometry = describer.parameters().geometry(size).unwrap();
        assert_eq!(geometry.tree_size(), vector["tree_size"].as_u64().unwrap(), "{vector}");
        let tree = MemoryDevice::new(vec![0; geometry.tree_size() as usize]);
        let descriptor =
            describer.describe_as(&geometry, &data, &TreeDevice::new(&geometry, &tree, 0)).unwrap();
        assert_eq!(
            descriptor.digest(&Providers::default()).unwrap().to_string(),
            vector["digest"].as_str().unwrap(),
            "{vector}"
        );
        let bytes = unhex(vector["descriptor_hex"].as_str().unwrap());
        assert_eq!(descriptor.to_bytes()[..], bytes, "{vector}");
        assert_eq!(Descriptor::from_bytes(&bytes).unwrap(), descriptor, "{vector}");
        let tree = tree.into_bytes();
        let sha256 = FileDigest::new(
            Algorithm::Sha256,
            DigestAlgorithm::Sha256.digest(&tree, &Providers::default()).unwrap(),
        )
        .hex();
        assert_eq!(sha256, vector["tree_sha256"].as_str().unwrap(), "{vector}");
        let name = format!(
            "trees/{}-{}-{}-{}.tree",
            vector["file"].as_str().unwrap(),
            vector["hash_alg"].as_str().unwrap(),
            vector["block_size"],
            vector["salt_hex"].as_str().unwrap().len() / 2
        );
        if corpus(&name).exists() {
            trees += 1;
            assert!(tree == fixture(corpus(&name)), "{name}");
        }
        let mut stream = &fixture(corpus(vector["content"].as_str().unwrap()))[..];
        assert_eq!(describer.describe_stream(&mut stream, &()).unwrap(), descriptor, "{vector}");
    }
    assert_eq!(trees, 20);
}

#[test]
fn signatures_are_those_of_fsverity() {
    let signatures = json("signatures.json");
    let signatures = signatures["signatures"].as_array().unwrap();
    assert_eq!(signatures.len(), 8);
    for recorded in signatures {
        let key = recorded["key"].as_str().unwrap();
        let certificate = Certificate::from_bytes(&fixture(corpus(&format!("keys/{key}.cert.pem")))).unwrap();
        let key = SigningKey::from_pem(&fixture(corpus(&format!("keys/{key}.key.pem")))).unwrap();
        let digest: FileDigest = recorded["digest"].as_str().unwrap().parse().unwrap();
        let message = digest.bytes_to_sign();
        assert_eq!(message, unhex(recorded["signed_message_hex"].as_str().unwrap()), "{recorded}");
        let theirs = fixture(corpus(recorded["sig_file"].as_str().unwrap()));
        let algorithm = DigestAlgorithm::named(recorded["hash_alg"].as_str().unwrap()).unwrap();
        assert!(
            sign(&message, &key, &certificate, algorithm, &Providers::default()).unwrap() == theirs,
            "{recorded}"
        );
        Signature::from_bytes(&theirs)
            .unwrap()
            .verify(&message, &certificate, &Providers::default())
            .unwrap();
    }
}

/// Signatures that kernels accepted when verity was enabled, and gave back: every one is right for its own
/// digest and certificate, and for nothing else.
#[test]
fn signatures_accepted_by_kernels_verify() {
    let keys = ["ecp256", "rsa2048", "rsa4096"];
    let certificates = keys.map(|key| {
        let pem = Certificate::from_bytes(&fixture(corpus(&format!("keys/{key}.cert.pem")))).unwrap();
        let der = Certificate::from_bytes(&fixture(corpus(&format!("keys/{key}.cert.der")))).unwrap();
        assert_eq!(pem.der(), der.der());
        pem
    });
    let mut seen = 0;
    for image in ["verity-1k", "verity-4k-qemu"] {
        let manifest = json(&format!("{image}.json.xz"));
        for file in manifest["files"].as_array().unwrap() {
            let Some(key) = file["signed_by"].as_str() else { continue };
            let bytes = fixture(corpus(file["dump_signature_file"].as_str().unwrap()));
            let signature = Signature::from_bytes(&bytes).unwrap();
            let digest: FileDigest = file["measure"].as_str().unwrap().parse().unwrap();
            let message = digest.bytes_to_sign();
            for (name, certificate) in keys.iter().zip(&certificates) {
                let right = signature.verify(&message, certificate, &Providers::default());
                assert_eq!(right.is_ok(), *name == key, "{image} {file} {name}: {right:?}");
            }
            let certificate = &certificates[keys.iter().position(|name| *name == key).unwrap()];
            for bit in 0..8 * message.len() {
                let mut other = message.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(signature.verify(&other, certificate, &Providers::default()).is_err(), "bit {bit}");
            }
            let descriptor = unhex(file["dump_descriptor_hex"].as_str().unwrap());
            assert_eq!(
                Descriptor::from_bytes(&descriptor).unwrap().digest(&Providers::default()).unwrap(),
                digest,
                "{file}"
            );
            seen += 1;
        }
    }
    assert_eq!(seen, 12);
}

/// Damage that was done to an ext4 image, and what the kernel then refused to read: in units of 4096 bytes, where
/// the kernel's block may be smaller and its unit of reading larger.
#[test]
fn damage_is_found_where_kernels_found_it() {
    let data = fixture(corpus("files/size528384.xz"));
    let tree_at = data.len().next_multiple_of(65536);
    let mut cases = 0;
    for image in ["verity-1k", "verity-4k-qemu"] {
        let manifest = json(&format!("{image}.json.xz"));
        let files = manifest["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["path"] == "size528384").unwrap();
        let work = Work::default();
        let describer = Describer::new(parameters(file), &work).unwrap();
        let geometry = describer.parameters().geometry(data.len() as u64).unwrap();
        let good = MemoryDevice::new(vec![0; geometry.tree_size() as usize]);
        let device = MemoryDevice::new(data.clone());
        let sink = TreeDevice::new(&geometry, &good, 0);
        let descriptor = describer.describe_as(&geometry, &device, &sink).unwrap();
        assert_eq!(
            descriptor.digest(&Providers::default()).unwrap().to_string(),
            file["measure"].as_str().unwrap(),
            "{image}"
        );
        let good = good.into_bytes();
        let block_size = describer.parameters().block_size();
        let descriptor_at = (tree_at + good.len()).next_multiple_of(block_size);
        for damage in manifest["damage"].as_array().unwrap() {
            cases += 1;
            let at = damage["logical_byte"].as_u64().unwrap() as usize;
            let xor = damage["xor"].as_u64().unwrap() as u8;
            let (mut data, mut tree, mut bytes) = (data.clone(), good.clone(), descriptor.to_bytes());
            match at {
                _ if at < data.len() => data[at] ^= xor,
                _ if at < tree_at + tree.len() => tree[at - tree_at] ^= xor,
                _ => bytes[at - descriptor_at] ^= xor,
            }
            let Ok(damaged) = Descriptor::from_bytes(&bytes) else {
                assert!(at >= descriptor_at, "{damage}");
                continue;
            };
            // Another salt than the tree was made with: nothing below the root hash is right.
            let work = Work::default();
            let describer = Describer::new(damaged.parameters().clone(), &work).unwrap();
            let blocks = data.len().div_ceil(block_size) as u64;
            let (data, tree) = (MemoryDevice::new(data), MemoryDevice::new(tree));
            let summary = describer.check(&data, &tree, damaged.root_hash(), &mut |_| Ok(())).unwrap();
            let refused = (0..blocks)
                .filter(|block| summary.bad_data.contains(*block) || summary.unverified.contains(*block));
            let mut refused: Vec<u64> = refused.map(|block| block * block_size as u64 / 4096).collect();
            refused.dedup();
            let kernel: Option<Vec<u64>> = damage["unreadable_4096_blocks"]
                .as_array()
                .map(|blocks| blocks.iter().map(|block| block.as_u64().unwrap()).collect());
            let kernel = kernel.unwrap_or_else(|| panic!("{image} {damage}"));
            if at < tree_at && kernel.len() > 1 {
                // This kernel reads many blocks at once, and gives none of them if one is bad.
                assert!(refused.len() == 1 && kernel.contains(&refused[0]), "{image} {damage}: {refused:?}");
            } else {
                assert_eq!(refused, kernel, "{image} {damage}");
            }
        }
    }
    assert_eq!(cases, 18);
}
