//! Error correction: parity beside veritysetup's, and repair of what a kernel repaired.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::Value;

use casemate_blockdev::{BlockDevice, FileDevice, MemoryDevice, Pool, Uuid};
use casemate_primitives::Cpu;
use casemate_providers::{Providers, Work};
use casemate_testkit::{Rng, fixture, run, tempdir, tool};
use casemate_verity::dm::fec::{FecDevices, FecLayout, check, encode, repair};
use casemate_verity::dm::{BlockSize, Layout, Parameters, Salt, Superblock, format, verify};
use casemate_verity::tree::{Block, Fault, VerifiedDevice};

fn work(threads: usize) -> Work<'static> {
    Work { pool: Pool::new(NonZeroUsize::new(threads)), ..Work::default() }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..][..2], 16).unwrap()).collect()
}

/// A device that `veritysetup` made, with its parity.
struct Example {
    name: &'static str,
    json: Value,
    layout: Layout,
    fec: FecLayout,
    root_hash: Vec<u8>,
    data: Vec<u8>,
    hash: Vec<u8>,
    parity: Vec<u8>,
}

impl Example {
    fn all() -> [Example; 2] {
        ["fec-24", "fec-bs-1024-1024"].map(Example::load)
    }

    fn load(name: &'static str) -> Example {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dm-fec");
        let file = |suffix: &str| fixture(folder.join(format!("{name}.{suffix}")));
        let json: Value = serde_json::from_slice(&file("json")).unwrap();
        let (data, hash, parity) = (file("data.xz"), file("hash.xz"), file("fec.xz"));
        let superblock = Superblock::from_bytes(hash.first_chunk().unwrap()).unwrap();
        let layout = Layout::from_superblock(superblock, 0).unwrap();
        let roots = json["fec_roots"].as_u64().unwrap() as u32;
        let fec = FecLayout::new(&layout, roots, hash.len() as u64).unwrap();
        let root_hash = unhex(json["root_hash"].as_str().unwrap());
        Example { name, json, layout, fec, root_hash, data, hash, parity }
    }
}

#[test]
fn the_parity_is_veritysetups() {
    for example in Example::all() {
        let (data, hash) = (MemoryDevice::new(example.data), MemoryDevice::new(example.hash));
        for cpu in [Cpu::detect(), Cpu::portable()] {
            for threads in [1, 2, 5] {
                let parity = MemoryDevice::new(vec![0xee; 777 + example.parity.len()]);
                let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 777 };
                let work = Work { providers: Providers::new(cpu), ..work(threads) };
                encode(&example.fec, &devices, &work).unwrap();
                assert!(check(&example.fec, &devices, &work).unwrap().is_empty(), "{}", example.name);
                assert!(parity.into_bytes()[777..] == example.parity, "{}, {threads} threads", example.name);
            }
        }
    }
}

#[test]
fn check_names_the_round() {
    let example = Example::load("fec-bs-1024-1024");
    assert_eq!(example.fec.rounds(), 2);
    let mut data = example.data.clone();
    data[1024 * 33 + 5] ^= 1;
    let (data, hash) = (MemoryDevice::new(data), MemoryDevice::new(example.hash));
    let parity = MemoryDevice::new(example.parity);
    let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
    let rounds = |devices| {
        let wrong = check(&example.fec, devices, &work(2)).unwrap();
        wrong.wrong.iter().flatten().collect::<Vec<_>>()
    };
    assert_eq!(rounds(&devices), [1]); // block 33 of 2 rounds
    parity.write_at(&[0; 3], 100).unwrap();
    assert_eq!(rounds(&devices), [0, 1]);
}

#[test]
fn what_the_kernel_repaired_is_repaired() {
    for example in Example::all() {
        let cases = example.json["damaged"].as_array().unwrap();
        assert_eq!(cases.len(), 7, "{}", example.name);
        for case in cases {
            let what = format!("{}: {}", example.name, case["what"]);
            let (mut data, mut hash) = (example.data.clone(), example.hash.clone());
            for flip in case["flips"].as_array().unwrap() {
                let file = if flip["file"] == "data" { &mut data } else { &mut hash };
                let number = |name: &str| flip[name].as_u64().unwrap() as usize;
                for byte in &mut file[number("offset")..][..number("count")] {
                    *byte ^= number("xor") as u8;
                }
            }
            let (data, hash) = (MemoryDevice::new(data), MemoryDevice::new(hash));
            let parity = MemoryDevice::new(example.parity.clone());
            let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
            let repaired =
                repair(&example.layout, &example.fec, &devices, &example.root_hash, &work(2)).unwrap();
            let unreadable = case["kernel_unreadable_blocks"].as_array().unwrap();
            // Whatever the kernel could read is right; it reads pages, so next to a lost block others are lost.
            for block in repaired.left.bad_data.iter().flatten() {
                assert!(unreadable.contains(&block.into()), "{what}: block {block} is lost");
            }
            assert_eq!(repaired.left.is_clean(), unreadable.is_empty(), "{what}: {:?}", repaired.left);
            assert!(!repaired.left.is_clean() || !repaired.data.is_empty(), "{what}");
            let data = data.into_bytes();
            let size = example.fec.block_size() as usize;
            for (block, (found, good)) in data.chunks(size).zip(example.data.chunks(size)).enumerate() {
                let lost = repaired.left.bad_data.contains(block as u64);
                assert_eq!(found == good, !lost, "{what}: block {block}");
            }
            assert!(hash.into_bytes() == example.hash, "{what}: the hash device");
        }
    }
}

/// A device of random data with everything on devices in memory.
struct Made {
    layout: Layout,
    root_hash: Vec<u8>,
    data: Vec<u8>,
    hash: Vec<u8>,
}

impl Made {
    /// `spare` bytes follow the tree on the hash device.
    fn new(blocks: u64, block_size: u64, superblock: bool, spare: usize) -> Made {
        let mut parameters = Parameters::new("sha256").unwrap();
        parameters.data_block_size = BlockSize::new(block_size).unwrap();
        parameters.hash_block_size = parameters.data_block_size;
        parameters.salt = Salt::new(vec![7; 5]).unwrap();
        let uuid = superblock.then(|| Uuid::from_bytes([9; 16]));
        let layout = Layout::new(parameters, blocks, 0, uuid).unwrap();
        let mut rng = Rng::new(blocks);
        let data = rng.bytes((blocks * block_size) as usize);
        let mut hash = vec![0; layout.hash_device_size() as usize];
        hash.extend(rng.bytes(spare));
        let hash = MemoryDevice::new(hash);
        let root_hash = format(&layout, &MemoryDevice::new(data.clone()), &hash, &work(2)).unwrap();
        Made { layout, root_hash, data, hash: hash.into_bytes() }
    }

    fn fec(&self, roots: u32) -> FecLayout {
        FecLayout::new(&self.layout, roots, self.hash.len() as u64).unwrap()
    }

    fn parity(&self, fec: &FecLayout) -> Vec<u8> {
        let (data, hash) = (MemoryDevice::new(self.data.clone()), MemoryDevice::new(self.hash.clone()));
        let parity = MemoryDevice::new(vec![0; fec.parity_size() as usize]);
        let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
        encode(fec, &devices, &work(2)).unwrap();
        parity.into_bytes()
    }
}

#[test]
fn as_many_blocks_as_roots_come_back_in_every_round() {
    // (blocks, block size, roots): one round; many; a tree without levels; two levels above the leaves.
    for (blocks, block_size, roots) in
        [(100, 4096, 24), (3000, 512, 24), (3000, 512, 2), (1, 512, 3), (700, 1024, 7)]
    {
        let what = format!("{blocks} blocks of {block_size}, {roots} roots");
        let made = Made::new(blocks, block_size, true, 3 * block_size as usize);
        let fec = made.fec(roots);
        let parity = made.parity(&fec);
        let (mut data, mut hash) = (made.data.clone(), made.hash.clone());
        let tree_blocks = made.layout.geometry().tree_blocks();
        let mut rng = Rng::new(1);
        let mut lost_hash_blocks = 0;
        for round in 0..fec.rounds() {
            // The blocks of the round that a digest covers. In round 0 hash blocks, and with the upper ones
            // of them the tree's knowledge of what is bad: there half of the roots are used. In other rounds
            // data blocks.
            let end = if round == 0 { blocks + tree_blocks } else { blocks };
            let mut covered: Vec<u64> = (round..end).step_by(fec.rounds() as usize).collect();
            for i in 0..covered.len() {
                let j = i as u64 + rng.below((covered.len() - i) as u64);
                covered.swap(i, j as usize);
            }
            if round == 0 {
                covered.sort_unstable_by_key(|block| u64::MAX - block);
                covered.truncate(roots as usize / 2);
            }
            for block in covered.into_iter().take(roots as usize) {
                let (file, place) = match block.checked_sub(blocks) {
                    None => (&mut data, block * block_size),
                    Some(in_tree) => {
                        lost_hash_blocks += 1;
                        (&mut hash, made.layout.tree_offset() + in_tree * block_size)
                    }
                };
                rng.fill(&mut file[place as usize..][..block_size as usize]);
            }
        }
        let (data, hash) = (MemoryDevice::new(data), MemoryDevice::new(hash));
        let parity = MemoryDevice::new(parity);
        let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
        let repaired = repair(&made.layout, &fec, &devices, &made.root_hash, &work(3)).unwrap();
        assert!(repaired.left.is_clean() && repaired.left.unverified.is_empty(), "{what}: {repaired:?}");
        assert_eq!(repaired.hash_blocks, lost_hash_blocks, "{what}");
        assert!(data.into_bytes() == made.data && hash.into_bytes() == made.hash, "{what}");
    }
}

#[test]
fn small_damage_in_many_blocks_needs_no_erasures() {
    // Every block of the device has one wrong byte, but no two that share a codeword have it in the same.
    let made = Made::new(200, 4096, true, 0);
    let fec = made.fec(2);
    let parity = made.parity(&fec);
    let mut data = made.data.clone();
    for block in 0..200 {
        data[block * 4096 + 11 * block] ^= 0x40;
    }
    let (data, hash) = (MemoryDevice::new(data), MemoryDevice::new(made.hash.clone()));
    let parity = MemoryDevice::new(parity);
    let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
    let repaired = repair(&made.layout, &fec, &devices, &made.root_hash, &work(1)).unwrap();
    assert!(repaired.left.is_clean() && data.into_bytes() == made.data);
    assert_eq!(repaired.data.count(), 200);
}

#[test]
fn nothing_wrong_is_ever_written() {
    // Beyond what the code can do the damage stays as it is, also with a wrong parity or root hash.
    let made = Made::new(300, 512, true, 0);
    let fec = made.fec(2);
    let good_parity = made.parity(&fec);
    let mut many = made.data.clone();
    Rng::new(5).fill(&mut many[..40 * 512]);
    let mut few = made.data.clone();
    few[1000] ^= 1;
    let wrong_parity = Rng::new(6).bytes(good_parity.len());
    let wrong_root = vec![0; 32];
    for (damaged, parity, root_hash) in [
        (&many, &good_parity, &made.root_hash),
        (&few, &wrong_parity, &made.root_hash),
        (&few, &good_parity, &wrong_root),
    ] {
        let (data, hash) = (MemoryDevice::new(damaged.clone()), MemoryDevice::new(made.hash.clone()));
        let parity = MemoryDevice::new(parity.clone());
        let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
        let repaired = repair(&made.layout, &fec, &devices, root_hash, &work(2)).unwrap();
        assert!(!repaired.left.is_clean() && repaired.data.is_empty() && repaired.hash_blocks == 0);
        assert!(data.into_bytes() == *damaged && hash.into_bytes() == made.hash);
    }
}

#[test]
fn devices_that_are_too_short_are_refused() {
    let made = Made::new(300, 512, true, 0);
    let fec = made.fec(2);
    let parity = made.parity(&fec);
    let cut = |bytes: &[u8]| MemoryDevice::new(bytes[..bytes.len() - 1].to_vec());
    let whole = |bytes: &[u8]| MemoryDevice::new(bytes.to_vec());
    for (data, hash, parity) in [
        (cut(&made.data), whole(&made.hash), whole(&parity)),
        (whole(&made.data), cut(&made.hash), whole(&parity)),
        (whole(&made.data), whole(&made.hash), cut(&parity)),
    ] {
        let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
        check(&fec, &devices, &work(1)).unwrap_err();
        repair(&made.layout, &fec, &devices, &made.root_hash, &work(1)).unwrap_err();
    }
}

/// `veritysetup` with these arguments; its root hash.
fn veritysetup(program: &Path, arguments: &[String]) -> String {
    let output = run(Command::new(program).args(arguments));
    let root = output.lines().find_map(|line| line.strip_prefix("Root hash:"));
    root.unwrap_or_default().trim().to_owned()
}

#[test]
fn veritysetup_agrees_on_parity_of_any_shape() {
    let Some(program) = tool("veritysetup") else { return };
    let folder = tempdir().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    // (blocks, block size, roots, superblock, bytes in the hash device before)
    for (blocks, block_size, roots, superblock, before) in [
        (1, 4096, 2, true, 0),
        (1, 4096, 2, false, 0),
        (2, 512, 24, true, 0),
        (230, 4096, 24, true, 0),
        (253, 1024, 2, false, 0),
        (300, 4096, 10, true, 100_000), // not whole blocks
        (300, 512, 3, true, 20_480),
        (1111, 512, 23, false, 40_000),
        (2500, 512, 2, true, 0),
    ] {
        let what =
            format!("{blocks} blocks of {block_size}, {roots} roots, superblock {superblock}, {before}");
        let mut rng = Rng::new(blocks);
        std::fs::write(path("data"), rng.bytes((blocks * block_size) as usize)).unwrap();
        std::fs::write(path("hash"), rng.bytes(before)).unwrap();
        std::fs::write(path("fec"), []).unwrap();
        let mut arguments: Vec<String> = ["format", "--salt=0707070707"].map(str::to_owned).to_vec();
        arguments.push(
            if superblock { "--uuid=09090909-0909-0909-0909-090909090909" } else { "--no-superblock" }.into(),
        );
        arguments.push(format!("--data-block-size={block_size}"));
        arguments.push(format!("--hash-block-size={block_size}"));
        arguments.push(format!("--fec-roots={roots}"));
        arguments.push(format!("--fec-device={}", text("fec")));
        arguments.extend([text("data"), text("hash")]);
        veritysetup(&program, &arguments);

        let made = Made::new(blocks, block_size, superblock, 0);
        let hash = std::fs::read(path("hash")).unwrap();
        let (start, end) = (made.layout.tree_offset() as usize, made.hash.len());
        assert!(hash[start..end] == made.hash[start..], "{what}: the tree");
        let fec = FecLayout::new(&made.layout, roots, hash.len() as u64).unwrap();
        let parity = MemoryDevice::new(vec![0; fec.parity_size() as usize]);
        let devices = FecDevices {
            data: &FileDevice::open(path("data")).unwrap(),
            hash: &FileDevice::open(path("hash")).unwrap(),
            parity: &parity,
            parity_offset: 0,
        };
        encode(&fec, &devices, &work(2)).unwrap();
        assert!(parity.into_bytes() == std::fs::read(path("fec")).unwrap(), "{what}: the parity");
    }
}

#[test]
fn veritysetup_agrees_on_one_file_for_everything() {
    let Some(program) = tool("veritysetup") else { return };
    let folder = tempdir().unwrap();
    let path = folder.path().join("image");
    let name = path.to_str().unwrap().to_owned();
    let data_size = 300 * 4096;
    for (roots, fec_offset) in [(2, data_size + 65_536), (24, data_size + 65_536 + 512)] {
        let mut image = Rng::new(300).bytes(data_size);
        image.extend(Rng::new(2).bytes(fec_offset - data_size));
        std::fs::write(&path, &image).unwrap();
        let mut arguments = vec!["format".to_owned(), "--salt=0707070707".to_owned()];
        arguments.push("--uuid=09090909-0909-0909-0909-090909090909".to_owned());
        arguments.push("--data-blocks=300".to_owned());
        arguments.push(format!("--hash-offset={data_size}"));
        arguments.push(format!("--fec-roots={roots}"));
        arguments.push(format!("--fec-offset={fec_offset}"));
        arguments.extend([format!("--fec-device={name}"), name.clone(), name.clone()]);
        let root_hash = unhex(&veritysetup(&program, &arguments));

        let expected = std::fs::read(&path).unwrap();
        let mut parameters = Parameters::new("sha256").unwrap();
        parameters.salt = Salt::new(vec![7; 5]).unwrap();
        let uuid = Some(Uuid::from_bytes([9; 16]));
        let layout = Layout::new(parameters, 300, data_size as u64, uuid).unwrap();
        let fec = FecLayout::new(&layout, roots, fec_offset as u64).unwrap();
        image.resize(fec_offset + fec.parity_size() as usize, 0);
        let device = MemoryDevice::new(image);
        assert_eq!(format(&layout, &device, &device, &work(2)).unwrap(), root_hash, "{roots} roots");
        let devices =
            FecDevices { data: &device, hash: &device, parity: &device, parity_offset: fec_offset as u64 };
        encode(&fec, &devices, &work(2)).unwrap();
        assert!(device.into_bytes() == expected, "{roots} roots");
    }
}

/// Forgets what is written.
struct Forgetful(MemoryDevice);

impl BlockDevice for Forgetful {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.0)
    }
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate_blockdev::Result<()> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, _buf: &[u8], _offset: u64) -> casemate_blockdev::Result<()> {
        Ok(())
    }
    fn flush(&self) -> casemate_blockdev::Result<()> {
        Ok(())
    }
}

#[test]
fn repair_ends_on_a_device_that_forgets() {
    let made = Made::new(300, 512, true, 0);
    let fec = made.fec(2);
    let parity = MemoryDevice::new(made.parity(&fec));
    let mut damaged = made.data.clone();
    damaged[0] ^= 1;
    let (data, hash) = (Forgetful(MemoryDevice::new(damaged)), MemoryDevice::new(made.hash.clone()));
    let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
    let repaired = repair(&made.layout, &fec, &devices, &made.root_hash, &work(1)).unwrap();
    assert_eq!((repaired.data.count(), repaired.left.bad_data.count()), (1, 1));
}

/// A device with sectors that can't be read until they are written, and of which some take no writes.
struct Worn {
    inner: MemoryDevice,
    unreadable: Mutex<BTreeSet<u64>>,
    unwritable: BTreeSet<u64>,
}

impl Worn {
    fn new(bytes: &[u8], unreadable: &[u64], unwritable: &[u64]) -> Worn {
        Worn {
            inner: MemoryDevice::new(bytes.to_vec()),
            unreadable: Mutex::new(unreadable.iter().chain(unwritable).copied().collect()),
            unwritable: unwritable.iter().copied().collect(),
        }
    }

    fn sectors(buf: &[u8], offset: u64) -> std::ops::Range<u64> {
        offset / 512..(offset + buf.len() as u64).div_ceil(512)
    }
}

fn io_error() -> casemate_blockdev::Error {
    std::io::Error::from_raw_os_error(5).into()
}

impl BlockDevice for Worn {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.inner)
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> casemate_blockdev::Result<()> {
        match self.unreadable.lock().unwrap().range(Worn::sectors(buf, offset)).next() {
            Some(_) => Err(io_error()),
            None => self.inner.read_at(buf, offset),
        }
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> casemate_blockdev::Result<()> {
        let sectors = Worn::sectors(buf, offset);
        if self.unwritable.range(sectors.clone()).next().is_some() {
            return Err(io_error());
        }
        self.unreadable.lock().unwrap().retain(|sector| !sectors.contains(sector));
        self.inner.write_at(buf, offset)
    }
    fn flush(&self) -> casemate_blockdev::Result<()> {
        Ok(())
    }
}

#[test]
fn sectors_that_can_not_be_read_come_back() {
    let made = Made::new(3000, 512, true, 0);
    let fec = made.fec(4);
    let good_parity = made.parity(&fec);
    let (rounds, tree) = (fec.rounds(), made.layout.tree_offset() / 512);
    // Data blocks 40 and, of its round, that behind it, with wrong bytes in two more; hash blocks of the lowest level; and of the parity of
    // another round all.
    let mut damaged = made.data.clone();
    for block in [40 + 2 * rounds, 41] {
        damaged[block as usize * 512 + 7] ^= 1;
    }
    let hash_block = tree + made.layout.geometry().levels()[0].first_block + 3;
    let parity_sector = 6 * 4;
    let (data, hash) =
        (Worn::new(&damaged, &[40, 40 + rounds], &[]), Worn::new(&made.hash, &[hash_block], &[]));
    let parity = Worn::new(&good_parity, &[parity_sector], &[]);
    let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
    let mut found = Vec::new();
    let summary = verify(&made.layout, &data, &hash, &made.root_hash, &work(2), &mut |finding| {
        if let Fault::Unreadable { trusted, .. } = finding.fault {
            found.push((finding.block, trusted));
        }
        Ok(())
    });
    let summary = summary.unwrap();
    let unreadable = [
        (Block::Hash { level: 0, index: 3 }, true),
        (Block::Data(40), true),
        (Block::Data(40 + rounds), false),
    ];
    assert_eq!(found, unreadable);
    assert!(summary.is_wrong() && !summary.is_clean());
    assert_eq!((summary.unreadable_data.count(), summary.unreadable_hash_blocks), (2, 1));
    assert_eq!((summary.bad_data.count(), summary.bad_hash_blocks), (2, 0));
    assert_eq!(summary.unverified.iter().flatten().collect::<Vec<_>>(), (48..64).collect::<Vec<_>>());

    // A reader is told which one it is.
    let says = |data: &Worn, hash: &Worn, block: u64, count: usize| {
        let salted = made.layout.parameters().salted_hash(&Providers::default()).unwrap();
        let geometry = made.layout.geometry().clone();
        let tree_offset = made.layout.tree_offset();
        let device = VerifiedDevice::new(geometry, salted, data, hash, tree_offset, &made.root_hash);
        let error = device.read_at(&mut vec![0; count * 512], block * 512).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5));
        error.text().into_owned()
    };
    assert!(says(&data, &hash, 30, 15).starts_with("data block 40 can't be read: "));
    assert!(says(&data, &hash, 50, 1).starts_with("hash block 3 of level 0 can't be read: "));

    let repaired = repair(&made.layout, &fec, &devices, &made.root_hash, &work(2)).unwrap();
    assert!(repaired.left.is_clean(), "{repaired:?}");
    assert_eq!((repaired.data.count(), repaired.hash_blocks), (4, 1));
    assert!(data.inner.into_bytes() == made.data && hash.inner.into_bytes() == made.hash);

    // The parity of that round can't be read; it is written again.
    let (data, hash) = (MemoryDevice::new(made.data.clone()), MemoryDevice::new(made.hash.clone()));
    let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
    parity.inner.write_at(&[0; 3], 100).unwrap();
    let found = check(&fec, &devices, &work(2)).unwrap();
    assert_eq!(found.wrong.iter().flatten().collect::<Vec<_>>(), [0]);
    assert_eq!(found.unreadable.iter().flatten().collect::<Vec<_>>(), [6]);
    encode(&fec, &devices, &work(2)).unwrap();
    assert!(check(&fec, &devices, &work(2)).unwrap().is_empty());
}

#[test]
fn what_can_not_be_written_is_left_and_the_rest_restored() {
    let made = Made::new(3000, 512, true, 0);
    let fec = made.fec(2);
    let good_parity = made.parity(&fec);
    let mut damaged = made.data.clone();
    damaged[50 * 512] ^= 1;
    let data = Worn::new(&damaged, &[], &[9]);
    let hash = MemoryDevice::new(made.hash.clone());
    // Parity of the round of block 70 lacks a part that its wrong byte is in; that of block 71 another part.
    let parity = Worn::new(&good_parity, &[(70 % fec.rounds()) * 2, (71 % fec.rounds()) * 2 + 1], &[]);
    data.inner.write_at(&[damaged[70 * 512] ^ 1], 70 * 512).unwrap();
    data.inner.write_at(&[damaged[71 * 512] ^ 1], 71 * 512).unwrap();
    let devices = FecDevices { data: &data, hash: &hash, parity: &parity, parity_offset: 0 };
    let repaired = repair(&made.layout, &fec, &devices, &made.root_hash, &work(2)).unwrap();
    assert_eq!(repaired.data.iter().flatten().collect::<Vec<_>>(), [50, 71]);
    assert_eq!(repaired.left.unreadable_data.iter().flatten().collect::<Vec<_>>(), [9]);
    assert_eq!(repaired.left.bad_data.iter().flatten().collect::<Vec<_>>(), [70]);
}

#[test]
fn other_errors_end_the_work() {
    struct Gone;
    impl BlockDevice for Gone {
        fn below(&self) -> Option<&dyn BlockDevice> {
            None
        }
        fn size(&self) -> u64 {
            u64::MAX
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> casemate_blockdev::Result<()> {
            Err(std::io::ErrorKind::ConnectionReset.into())
        }
        fn write_at(&self, _: &[u8], _: u64) -> casemate_blockdev::Result<()> {
            Ok(())
        }
        fn flush(&self) -> casemate_blockdev::Result<()> {
            Ok(())
        }
    }
    let made = Made::new(300, 512, true, 0);
    let hash = MemoryDevice::new(made.hash.clone());
    let error = verify(&made.layout, &Gone, &hash, &made.root_hash, &work(2), &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.io_kind(), Some(std::io::ErrorKind::ConnectionReset));
}
