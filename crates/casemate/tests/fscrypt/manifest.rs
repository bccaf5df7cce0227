//! An image and what a kernel said of it, with the key and without; and the comparison with what we say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use casemate::blockdev::{BlockDevice, MemoryDevice};
use casemate::ext4::{Ext4, FileType, Inode, InodeFlags, InodeNo, ReadOptions, encryption_info};
use casemate::fscrypt::{Context, InodeInfo, KeyId, Keyring, LONGEST_NAME, MasterKey, NoKeyName, Purpose};
use casemate::{Image, Keys, Providers, SecretSource, SecretVec, Work};
use casemate_ext4::{DirHash, OpenOptions, casefold};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub struct Manifest {
    pub name: String,
    pub image: Arc<dyn BlockDevice>,
    pub value: Value,
}

impl Manifest {
    pub fn new(name: &str, image: Vec<u8>, value: Value) -> Manifest {
        Manifest { name: name.to_owned(), image: Arc::new(MemoryDevice::new(image)), value }
    }

    /// Everything that there is to compare.
    pub fn check(&self) {
        self.with_keys();
        self.without_keys();
        self.other_direction();
    }

    pub fn ring(&self) -> Arc<Keyring> {
        let mut ring = Keyring::new(Providers::default());
        for key in list(&self.value["keys"]) {
            let ids = ring.add(SecretVec::new(bytes(text(key, "key_hex")))).unwrap();
            for kind in ["identifier", "descriptor"] {
                if let Some(id) = key[kind].as_str() {
                    assert!(ids.contains(&KeyId::from_hex(id).unwrap()), "{}: {ids:?}", self.name);
                }
            }
        }
        Arc::new(ring)
    }

    pub fn keys(&self) -> Keys {
        let add = |keys: Keys, key| {
            keys.with_raw(&SecretSource::memory(SecretVec::new(bytes(text(key, "key_hex"))))).unwrap()
        };
        list(&self.value["keys"]).fold(Keys::default(), add)
    }

    pub fn open(&self, keys: Keys) -> Ext4 {
        let mut options = ReadOptions::default();
        options.keys = keys;
        let opened = Image::over("image", Arc::clone(&self.image)).ext4(&options, &Work::default());
        opened.unwrap_or_else(|error| panic!("{}: {error}", self.name)).inodes().clone()
    }

    /// Names, contents, link targets, nonces, as the kernel had them with the keys.
    fn with_keys(&self) {
        let fs = self.open(self.keys());
        let mut found = walk(&fs);
        let mut encrypted = 0;
        for entry in self.entries() {
            let path = entry_path(entry);
            let place = self.place(&path);
            let inode = found.remove(&path).unwrap_or_else(|| panic!("{place} is missing"));
            assert_eq!(u64::from(inode.number().get()), entry["inode"].as_u64().unwrap(), "{place}");
            assert_eq!(fs.resolve(&path, false).unwrap().number(), inode.number(), "{place}");
            match inode.kind() {
                FileType::Regular => {
                    let contents = contents(&fs, &inode);
                    assert_eq!(contents.len() as u64, entry["size"].as_u64().unwrap(), "{place}");
                    assert_eq!(hex(&Sha256::digest(&contents)), text(entry, "sha256"), "{place}");
                }
                FileType::Symlink => {
                    assert_eq!(fs.symlink_target(&inode).unwrap(), field(entry, "target"), "{place}");
                }
                _ => {}
            }
            if let Some(nonce) = entry["nonce"].as_str() {
                let info = encryption_info(&fs, &inode).unwrap().unwrap();
                assert!(info.readable, "{place}");
                assert_eq!(hex(&info.context.nonce), nonce, "{place}");
                encrypted += 1;
            }
        }
        found.retain(|path, _| path != b"lost+found");
        assert!(found.is_empty(), "{}: not in the manifest: {:?}", self.name, found.keys());
        assert!(encrypted > 20, "{}: {encrypted} encrypted files", self.name);
    }

    /// The names and targets that the kernel showed without the keys, and that nothing can be read.
    fn without_keys(&self) {
        let fs = self.open(Keys::default());
        let found = walk(&fs);
        // What the kernel showed of each directory: names of hard links in any order.
        let mut shown: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for (path, _) in found.iter().filter(|(path, _)| *path != b"lost+found") {
            let (folder, name) = split(path);
            shown.entry(folder).or_default().insert(name);
        }
        let mut paths = HashMap::from([(Vec::new(), Vec::new())]);
        let mut entries: Vec<_> = self.entries().map(|entry| (entry_path(entry), entry)).collect();
        entries.sort_by_key(|(path, _)| path.len());
        for (path, entry) in entries {
            let place = self.place(&path);
            let (folder, _) = split(&path);
            let folder: Vec<u8> = HashMap::get(&paths, &folder).cloned().unwrap_or_else(|| panic!("{place}"));
            let names = shown.get_mut(&folder).unwrap_or_else(|| panic!("{place}: nothing in its directory"));
            let candidates: Vec<&str> = match entry["nokey_name"].as_str() {
                Some(name) => vec![name],
                None => list(&entry["nokey_names_one_of"]).map(|name| name.as_str().unwrap()).collect(),
            };
            let name = candidates.iter().find(|name| names.remove(name.as_bytes()));
            let name = name.unwrap_or_else(|| panic!("{place}: {candidates:?} are not in {names:?}"));
            let path = join(&folder, name.as_bytes());
            let inode = fs.resolve(&path, false).unwrap();
            assert_eq!(u64::from(inode.number().get()), entry["inode"].as_u64().unwrap(), "{place}");
            if let Some(target) = entry["nokey_target"].as_str() {
                assert_eq!(fs.symlink_target(&inode).unwrap(), target.as_bytes(), "{place}");
            }
            if entry["nonce"].is_string() {
                let info = encryption_info(&fs, &inode).unwrap().unwrap();
                assert!(!info.readable, "{place}");
                if inode.kind() == FileType::Regular {
                    let error = fs.open_file(&inode).map(|_| ()).unwrap_err().to_string();
                    let id = info.context.policy.key;
                    assert!(error.contains(&format!("{} {id}", id.kind())), "{place}: {error}");
                }
            }
            paths.insert(entry_path(entry), path);
        }
        shown.retain(|_, names| !names.is_empty());
        assert!(shown.is_empty(), "{}: not shown by the kernel: {shown:?}", self.name);
    }

    /// Encrypts everything anew, and compares it with what the kernel stored: names, hashes of casefolded names,
    /// targets, contents.
    fn other_direction(&self) {
        let (ring, fs) = (self.ring(), self.open(self.keys()));
        let stored = casemate_ext4::Ext4::open(Arc::clone(&self.image), &OpenOptions::default()).unwrap();
        let mut counts = [0; 4];
        for (path, inode) in walk(&fs) {
            let Some((key, info)) = keyed(&fs, &inode, &ring) else { continue };
            let place = self.place(&path);
            match inode.kind() {
                FileType::Directory => {
                    let names = key.names(&info).unwrap();
                    let raw: HashMap<InodeNo, Vec<Vec<u8>>> = stored
                        .read_dir(&inode)
                        .unwrap()
                        .into_iter()
                        .fold(HashMap::new(), |mut map, entry| {
                            map.entry(entry.inode).or_insert_with(Vec::new).push(entry.name);
                            map
                        });
                    for entry in fs.read_dir(&inode).unwrap() {
                        let ciphertext = names.encrypt(&entry.name, LONGEST_NAME).unwrap();
                        assert!(raw[&entry.inode].contains(&ciphertext), "{place}: {:?}", entry.name);
                        counts[0] += 1;
                    }
                    if inode.has(InodeFlags::CASEFOLD) {
                        counts[1] += self.hashes(&fs, &inode, &key, &info);
                    }
                }
                FileType::Symlink => {
                    let target = fs.symlink_target(&inode).unwrap();
                    let own = key.names(&info).unwrap().encrypt_symlink(&target, info.block_size).unwrap();
                    assert_eq!(own, stored.symlink_target(&inode).unwrap(), "{place}");
                    counts[2] += 1;
                }
                _ => counts[3] += blocks(&fs, &inode, &key, &info, &place),
            }
        }
        assert!(counts[0] > 20 && counts[3] > 20, "{}: {counts:?}", self.name);
        let casefolded = list(&self.value["policies"]).any(|policy| policy["casefold"] == true);
        assert_eq!(casefolded, counts[1] > 0, "{}: {counts:?}", self.name);
    }

    /// The hashes that a casefolded directory keeps beside its names, which names without the key begin with.
    fn hashes(&self, fs: &Ext4, dir: &Inode, key: &MasterKey, info: &InodeInfo) -> usize {
        let providers = Providers::default();
        let hasher = key.dir_hash_key(info).unwrap();
        let own: BTreeSet<[u32; 2]> = fs
            .read_dir(dir)
            .unwrap()
            .iter()
            .map(|entry| {
                let folded = casefold(&entry.name).map_or(entry.name.clone(), String::into_bytes);
                let DirHash { major, minor } = DirHash::from_keyed(hasher.hash(&folded));
                [major, minor]
            })
            .collect();
        let shown: BTreeSet<[u32; 2]> = self
            .open(Keys::default())
            .read_dir(dir)
            .unwrap()
            .iter()
            .map(|entry| NoKeyName::from_text(&providers, &entry.name).unwrap().hash)
            .collect();
        assert_eq!(own, shown, "{}: inode {}", self.name, dir.number());
        own.len()
    }

    fn entries(&self) -> impl Iterator<Item = &Value> {
        list(&self.value["entries"])
    }

    fn place(&self, path: &[u8]) -> String {
        format!("{}: /{}", self.name, String::from_utf8_lossy(path))
    }
}

/// Compares every block that lies on the disk with what we encrypt. Returns how many there are.
fn blocks(fs: &Ext4, inode: &Inode, key: &MasterKey, info: &InodeInfo, place: &str) -> usize {
    let block = u64::from(info.block_size);
    let plain = contents(fs, inode);
    let cipher = key.contents(info).unwrap();
    let per_block = block / cipher.data_unit_size() as u64;
    let mut count = 0;
    fs.mappings(inode, 0, |run| {
        // What is allocated behind the end was never written.
        let end = run.end().min((plain.len() as u64).div_ceil(block));
        for logical in run.logical..end.max(run.logical) {
            if run.unwritten {
                continue;
            }
            let at = (logical * block) as usize;
            let mut own = plain[at..plain.len().min(at + block as usize)].to_vec();
            own.resize(block as usize, 0);
            cipher.encrypt(logical * per_block, &mut own).unwrap();
            let mut stored = vec![0; block as usize];
            fs.device()
                .read_at(&mut stored, fs.layout().offset(run.physical + (logical - run.logical)))
                .unwrap();
            assert!(own == stored, "{place}: block {logical}");
            count += 1;
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    count
}

/// The key of an encrypted inode, and what its keys depend on.
fn keyed(fs: &Ext4, inode: &Inode, ring: &Keyring) -> Option<(Arc<MasterKey>, InodeInfo)> {
    let encrypted = fs.encrypted(inode).unwrap()?;
    let context = Context::from_bytes(&encrypted.context).unwrap();
    assert_eq!(context.to_bytes(), encrypted.context);
    let key = ring.get(&context.policy.key).unwrap();
    assert_eq!(key.derive(Purpose::KeyIdentifier, &[], 16).expose(), key.identifier());
    let (number, uuid, block_size) = (encrypted.number.get(), encrypted.uuid, encrypted.block_size);
    Some((Arc::clone(key), InodeInfo { context, number, uuid, block_size }))
}

pub fn contents(fs: &Ext4, inode: &Inode) -> Vec<u8> {
    let file = fs.open_file(inode).unwrap_or_else(|error| panic!("inode {}: {error}", inode.number()));
    let mut contents = vec![0; file.size() as usize];
    file.read_at(&mut contents, 0).unwrap();
    contents
}

fn walk(fs: &Ext4) -> BTreeMap<Vec<u8>, Inode> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(Vec::new(), fs.root().unwrap())];
    while let Some((path, dir)) = folders.pop() {
        let entries = fs.read_dir(&dir);
        for entry in entries.unwrap_or_else(|error| panic!("/{}: {error}", String::from_utf8_lossy(&path))) {
            let path = join(&path, &entry.name);
            let inode = fs.inode(entry.inode).unwrap();
            if inode.is_dir() {
                folders.push((path.clone(), inode.clone()));
            }
            found.insert(path, inode);
        }
    }
    found
}

fn entry_path(entry: &Value) -> Vec<u8> {
    field(entry, "path")
}

/// A string, or bytes in hexadecimal where it is not UTF-8.
fn field(entry: &Value, name: &str) -> Vec<u8> {
    match entry[&format!("{name}_hex")].as_str() {
        Some(digits) => bytes(digits),
        None => text(entry, name).as_bytes().to_vec(),
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn split(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (path[..at].to_vec(), path[at + 1..].to_vec()),
        None => (Vec::new(), path.to_vec()),
    }
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect()
}
