//! Checks of what e2fsck does not know: names, links and contexts of encrypted folders, and files with fs-verity. The images
//! are the kernels'; one bit of each place is another in turn, with the checksums of metadata made right again.

use std::path::Path;
use std::sync::Arc;

use casemate::blockdev::{BlockDevice, MemoryDevice};
use casemate::ext4::{Ext4, FileType, Finding, Inode, ReadOptions, encryption_info};
use casemate::fscrypt::{InodeInfo, LONGEST_NAME, NameCipher};
use casemate::signature::Certificate;
use casemate::{Image, Work};
use casemate_ext4::{
    CheckOptions, Entries, EntryFormat, InodeFlags, OpenOptions, Place, Structure, fix_checksums,
};
use casemate_testkit::fixture;

use crate::corpus::{IMAGES, load};
use crate::manifest::Manifest;

fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn faults(image: Vec<u8>, options: &ReadOptions) -> Vec<Finding> {
    let image = Image::over("image", Arc::new(MemoryDevice::new(image)));
    image.ext4_check(options, &Work::default()).unwrap().faults
}

/// Findings of a check with these options after one bit was changed.
fn flipped(image: &[u8], at: usize, bit: u8, options: &ReadOptions) -> Vec<Finding> {
    let mut image = image.to_vec();
    image[at] ^= 1 << bit;
    faults(image, options)
}

/// Findings of a check after one bit was changed and the checksums of metadata were set right.
fn found(image: &[u8], at: usize, bit: u8, options: &ReadOptions) -> Vec<Finding> {
    let mut image = image.to_vec();
    image[at] ^= 1 << bit;
    let device = Arc::new(MemoryDevice::new(image));
    fix_checksums(device.clone(), &CheckOptions::default(), &Work::default()).unwrap();
    faults(bytes_of(&*device), options)
}

fn assert_one(found: &[Finding], name: &str, what: &str) {
    let [fault] = found else { panic!("{what}: {found:?}") };
    assert_eq!(fault.kind().name(), name, "{what}: {fault}");
}

fn with_keys(manifest: &Manifest) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.keys = manifest.keys();
    options
}

/// All inodes that are encrypted.
fn encrypted(fs: &Ext4) -> Vec<Inode> {
    let (mut found, mut dirs) = (Vec::new(), vec![fs.root().unwrap()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs.read_dir(&dir).unwrap() {
            let inode = fs.inode(entry.inode).unwrap();
            found.extend(inode.has(InodeFlags::ENCRYPT).then(|| inode.clone()));
            dirs.extend(inode.is_dir().then_some(inode));
        }
    }
    found
}

/// Where an inode has these bytes: copies may lie in the journal.
fn place_in_inode(fs: &Ext4, image: &[u8], inode: &Inode, bytes: &[u8]) -> usize {
    let layout = fs.layout();
    let (group, index) = layout.inode_position(inode.number()).unwrap();
    let descriptor =
        layout.offset(layout.descriptor_block(0)) as usize + (group.get() * layout.descriptor_size) as usize;
    let table = u32::from_le_bytes(image[descriptor + 8..][..4].try_into().unwrap());
    let at = table as usize * layout.block_size as usize + (index * layout.inode_size) as usize;
    let raw = &image[at..at + layout.inode_size as usize];
    at + raw.windows(bytes.len()).position(|window| window == bytes).unwrap()
}

/// A bit of a ciphertext without which it can be seen that it decrypts to none: there is no more in it than a name.
fn telling_bit(names: &NameCipher, ciphertext: &[u8]) -> Option<(usize, u8)> {
    (0..ciphertext.len() * 8).map(|bit| (bit / 8, (bit % 8) as u8)).find(|(at, bit)| {
        let mut other = ciphertext.to_vec();
        other[*at] ^= 1 << bit;
        let name = names.decrypt(&other).unwrap();
        !name.is_empty() && names.encrypt(&name, LONGEST_NAME).unwrap() != other
    })
}

/// Cipher for an inode's names or target.
fn cipher(manifest: &Manifest, fs: &Ext4, inode: &Inode) -> NameCipher {
    let context = encryption_info(fs, inode).unwrap().unwrap().context;
    let superblock = fs.superblock();
    let (uuid, block_size) = (superblock.uuid, superblock.block_size);
    let key = manifest.ring().get(&context.policy.key).unwrap().clone();
    key.names(&InodeInfo { context, number: inode.number().get(), uuid, block_size }).unwrap()
}

#[test]
fn encrypted_names_and_links_are_checked_where_their_keys_are() {
    let (mut names, mut links) = (0, 0);
    for image in IMAGES {
        let manifest = load(image);
        let bytes = bytes_of(&*manifest.image);
        let options = with_keys(&manifest);
        for options in [&options, &ReadOptions::default()] {
            assert_eq!(faults(bytes.clone(), options), [], "{image}");
        }
        let fs = manifest.open(manifest.keys());
        let block_size = fs.layout().block_size as usize;
        for inode in encrypted(&fs) {
            let what = format!("{image}: inode {}", inode.number());
            match inode.kind() {
                // Of one block: hash trees tell by themselves that a name is another.
                FileType::Directory if inode.size() == block_size as u64 && names < 12 => {
                    let first =
                        fs.mapping_at(&inode, 0).unwrap().unwrap().physical.get() as usize * block_size;
                    let inodes = fs.superblock().inodes;
                    let with_hash = inode.has(InodeFlags::CASEFOLD);
                    let format = EntryFormat { with_type: true, with_hash, inodes };
                    let place = Place::inode(Structure::Directory, inode.number());
                    let entries = Entries::new(&bytes[first..first + block_size], format, place);
                    let names_of = cipher(&manifest, &fs, &inode);
                    let tells = entries.map(Result::unwrap).filter(|entry| entry.name.len() >= 16);
                    let tells = tells.filter_map(|entry| {
                        let (byte, bit) = telling_bit(&names_of, entry.name)?;
                        Some((first + entry.offset + 8 + byte, bit))
                    });
                    let Some((at, bit)) = { tells }.next() else { continue };
                    assert_one(&found(&bytes, at, bit, &options), "encrypted-name", &what);
                    assert_eq!(found(&bytes, at, bit, &ReadOptions::default()), [], "{what}");
                    names += 1;
                }
                FileType::Symlink if inode.size() < 60 && links < 6 => {
                    let stored = inode.block_area()[..inode.size() as usize].to_vec();
                    let tells = telling_bit(&cipher(&manifest, &fs, &inode), &stored[2..]);
                    let Some((byte, bit)) = tells else { continue };
                    let at = place_in_inode(&fs, &bytes, &inode, &stored) + 2 + byte;
                    assert_one(&found(&bytes, at, bit, &options), "encrypted-link", &what);
                    assert_eq!(found(&bytes, at, bit, &ReadOptions::default()), [], "{what}");
                    links += 1;
                }
                _ => {}
            }
        }
    }
    assert!(names >= 4 && links >= 3, "{names} names, {links} links");
}

#[test]
fn contexts_make_sense_and_are_those_of_their_folders() {
    let mut checked = 0;
    for image in ["v1-xts-cts-1k", "v2-adiantum-1k", "v2-lblk64-4k"] {
        let manifest = load(image);
        let bytes = bytes_of(&*manifest.image);
        let fs = manifest.open(manifest.keys());
        let file = encrypted(&fs).into_iter().find(|inode| inode.kind() == FileType::Regular).unwrap();
        let context = encryption_info(&fs, &file).unwrap().unwrap().context.to_bytes();
        let at = place_in_inode(&fs, &bytes, &file, &context);
        // The hash of the attribute may be missing in an inode: then only the value is another.
        let mut bytes = bytes;
        let head = [1, 9];
        let entry = (at.saturating_sub(200)..at).rev().find(|at| {
            bytes[*at..*at + 2] == head && bytes[*at + 8..*at + 12] == (context.len() as u32).to_le_bytes()
        });
        bytes[entry.unwrap() + 12..][..4].fill(0);
        let none = ReadOptions::default();
        for (byte, name) in [
            (0, "encryption"),
            // A key of another name, and flags that can't be.
            (context.len() - 20, "encryption-policy"),
            (3, "encryption"),
        ] {
            let bit = if byte == 3 { 7 } else { 2 };
            let what = format!("{image}: byte {byte}");
            assert_one(&found(&bytes, at + byte, bit, &none), name, &what);
            checked += 1;
        }
    }
    assert_eq!(checked, 9);
}

#[test]
fn files_with_fs_verity_match_their_trees() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut checked = [0; 4];
    for name in ["verity-1k", "verity-4k-qemu"] {
        let path = |end: &str| crates.join(format!("ext4/tests/fixtures/verity/{name}.{end}.xz"));
        let bytes = fixture(path("img"));
        let manifest: serde_json::Value = serde_json::from_slice(&fixture(path("json"))).unwrap();
        let mut all = ReadOptions::default();
        all.check_verity = true;
        let form = ReadOptions::default();
        for options in [&all, &form] {
            assert_eq!(faults(bytes.clone(), options), [], "{name}");
        }
        let fs = Ext4::open(Arc::new(MemoryDevice::new(bytes.clone())), &OpenOptions::default()).unwrap();
        let block = u64::from(fs.layout().block_size);
        let on_disk = |inode: &Inode, offset: u64| {
            let run = fs.mapping_at(inode, offset / block).unwrap();
            run.map(|run| {
                (fs.layout().offset(run.physical + (offset / block - run.logical)) + offset % block) as usize
            })
        };
        let files = manifest["files"].as_array().unwrap();
        // Sizes around those of blocks and of trees, then algorithms, salts and signatures.
        for file in files.iter().step_by(3) {
            let inode = fs.resolve(file["path"].as_str().unwrap().as_bytes(), false).unwrap();
            let what = format!("{name}: {}", file["path"]);
            let metadata = fs.verity(&inode).unwrap().unwrap();
            if let Some(at) = inode.size().checked_sub(1).and_then(|last| on_disk(&inode, last / 2)) {
                assert_one(&flipped(&bytes, at, 3, &all), "verity-contents", &what);
                assert_eq!(flipped(&bytes, at, 3, &form), [], "{what}");
                checked[0] += 1;
            }
            if file["dump_merkle_tree_size"].as_u64().unwrap() > 0 {
                // The last block is of the lowest level.
                for tree in [0, file["dump_merkle_tree_size"].as_u64().unwrap() - 1] {
                    let at = on_disk(&inode, metadata.tree_offset + tree).unwrap();
                    assert_one(&flipped(&bytes, at, 0, &all), "verity-tree", &what);
                }
                checked[1] += 1;
            }
            let at = on_disk(&inode, metadata.tree_offset + metadata.tree_room).unwrap();
            for (byte, options) in [(0, &all), (1, &form), (3, &form), (8, &form), (150, &all)] {
                assert_one(&flipped(&bytes, at + byte, 6, options), "verity-descriptor", &what);
            }
            if inode.size() > 0 {
                // Of the root hash.
                let root = flipped(&bytes, at + 16, 1, &all);
                assert!(matches!(&root[..], [one] if one.kind().name().starts_with("verity-")), "{root:?}");
            }
            checked[2] += 1;
        }
        // Each certificate is that of some files, and not of others.
        for key in ["rsa2048", "rsa4096", "ecp256"] {
            let signed = files.iter().filter(|file| file["signed_by"] == key).count();
            let cert = crates.join(format!("verity/tests/fixtures/fs-verity/keys/{key}.cert.pem"));
            if signed == 0 {
                continue;
            }
            let mut options = all.clone();
            options.certificate = Some(Certificate::from_bytes(&std::fs::read(cert).unwrap()).unwrap());
            let found = faults(bytes.clone(), &options);
            assert!(found.iter().all(|fault| fault.kind().name() == "verity-signature"), "{found:?}");
            assert_eq!(found.len(), files.len() - signed, "{name}: {key}");
            checked[3] += 1;
        }
    }
    assert!(checked[0] > 15 && checked[1] > 12 && checked[3] == 6, "{checked:?}");
}
