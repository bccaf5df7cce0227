//! Loss of power while a file system is in use for writing: operations by inode, committed now and then. Whenever the power
//! fails, and whatever sectors are there of what was not flushed, the file system is as of the last commit or the one that
//! was being made; contents are those of then but where they were overwritten since.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use casemate_blockdev::{BlockDevice, MemoryDevice, Result};
use casemate_ext4::{
    Body, CheckOptions, Ext4, InodeNo, NewNode, OpenOptions, Presence, SetId, WriteOptions, Writer, check,
};
use casemate_providers::Work;
use casemate_testkit::{Rng, mke2fs, slow_tests, tempdir, tool};
use common::assert_sound;

const ROOT: InodeNo = InodeNo::ROOT;
const SECTOR: usize = 512;
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Events at a disk, in their order.
enum Event {
    Write(usize, Vec<u8>),
    Flush,
    /// The commit of this number is done: whoever asked for it was told so.
    Committed(usize),
}

struct Disk {
    bytes: MemoryDevice,
    events: Mutex<Vec<Event>>,
}

impl Disk {
    fn note(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

impl BlockDevice for Disk {
    fn below(&self) -> Option<&dyn BlockDevice> {
        None
    }

    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.bytes.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.note(Event::Write(offset as usize, buf.to_vec()));
        self.bytes.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.note(Event::Flush);
        Ok(())
    }
}

/// A file that has a name: its inode and how many names that has, its contents, and an attribute.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    links: u16,
    contents: Vec<u8>,
    attribute: Option<Vec<u8>>,
}

/// Names of the root directory, and their inodes.
#[derive(Clone, Debug, Default)]
struct Model {
    names: BTreeMap<String, InodeNo>,
    inodes: BTreeMap<InodeNo, Known>,
    /// Inodes without names that are in use.
    held: Vec<InodeNo>,
}

impl Model {
    fn unname(&mut self, name: &str) {
        let Some(number) = self.names.remove(name) else { return };
        let inode = self.inodes.get_mut(&number).unwrap();
        inode.links -= 1;
        if inode.links == 0 {
            self.held.push(number);
        }
    }
}

/// Does something with a writer and with a model of it.
fn step(rng: &mut Rng, writer: &mut Writer, model: &mut Model) {
    let name = NAMES[rng.below(8) as usize];
    let other = NAMES[rng.below(8) as usize];
    let held = !model.held.is_empty() && rng.below(4) == 0;
    let number = match held {
        true => Some(model.held[rng.below(model.held.len() as u64) as usize]),
        false => model.names.get(name).copied(),
    };
    let (at, len) = (rng.below(60_000), 1 + rng.below(20_000));
    let end = at + len;
    let Some(number) = number else {
        let made = writer.create_under(ROOT, name.as_bytes(), &NewNode::new(0o644), Body::File).unwrap();
        model.names.insert(name.to_owned(), made);
        model.inodes.insert(made, Known { links: 1, ..Known::default() });
        return;
    };
    let known = model.inodes.get_mut(&number).unwrap();
    let contents = &mut known.contents;
    let size = contents.len();
    match rng.below(13) {
        0..4 => {
            let bytes = rng.bytes(len as usize);
            assert_eq!(writer.write_at(number, at, &bytes, SetId::Stays).unwrap(), bytes.len());
            contents.resize(size.max(end as usize), 0);
            contents[at as usize..end as usize].copy_from_slice(&bytes);
        }
        4 => {
            writer.truncate_to(number, at).unwrap();
            contents.resize(at as usize, 0);
        }
        5 => {
            writer.punch_hole(number, at, end).unwrap();
            contents[(at as usize).min(size)..(end as usize).min(size)].fill(0);
        }
        6 => {
            let keep = rng.below(2) == 0;
            writer.zero_range(number, at, end, keep).unwrap();
            contents.resize(if keep { size } else { size.max(end as usize) }, 0);
            let size = contents.len();
            contents[(at as usize).min(size)..(end as usize).min(size)].fill(0);
        }
        7 => {
            let keep = rng.below(2) == 0;
            writer.allocate_range(number, at, end, keep).unwrap();
            contents.resize(if keep { size } else { size.max(end as usize) }, 0);
        }
        8 => {
            let len = rng.below(600) as usize;
            let value = rng.bytes(len);
            writer.set_xattr_of(number, b"user.a", Some(&value), Presence::Any, SetId::Stays).unwrap();
            known.attribute = Some(value);
        }
        _ if held => {
            writer.release(number).unwrap();
            model.held.retain(|known| *known != number);
            model.inodes.remove(&number);
        }
        9 => {
            assert_eq!(writer.remove_name(ROOT, name.as_bytes()).unwrap().is_some(), known.links == 1);
            model.unname(name);
        }
        10 if !model.names.contains_key(other) => {
            writer.link_inode(number, ROOT, other.as_bytes()).unwrap();
            known.links += 1;
            model.names.insert(other.to_owned(), number);
        }
        11 => {
            let (from, to) = ((ROOT, name.as_bytes()), (ROOT, other.as_bytes()));
            writer.rename_name(from, to, false).unwrap();
            if model.names.get(other) != Some(&number) {
                model.unname(other);
                model.names.remove(name);
                model.names.insert(other.to_owned(), number);
            }
        }
        _ => {
            let Some(second) = model.names.get(other).copied() else { return };
            writer.exchange_names((ROOT, name.as_bytes()), (ROOT, other.as_bytes())).unwrap();
            model.names.insert(name.to_owned(), second);
            model.names.insert(other.to_owned(), number);
        }
    }
}

/// Compares a file system with a model; `later` are the models since then, whose contents may be there where they differ.
fn compare(fs: &Ext4, model: &Model, later: &[Model]) -> std::result::Result<(), String> {
    let root = fs.root().unwrap();
    let names = fs.names(&root).map_err(|error| error.to_string())?;
    let found: Vec<_> = names.iter().filter(|name| name.bytes != b"lost+found").collect();
    if found.len() != model.names.len() {
        return Err(format!("{} names, and not {}", found.len(), model.names.len()));
    }
    for (found, (name, number)) in found.iter().zip(&model.names) {
        if (found.bytes, found.inode) != (name.as_bytes(), *number) {
            return Err(format!(
                "{} of inode {}, and not {name} of {number}",
                found.bytes.escape_ascii(),
                found.inode
            ));
        }
        let inode = fs.inode(*number).map_err(|error| error.to_string())?;
        let known = &model.inodes[number];
        let attribute = fs.xattrs(&inode).unwrap().into_iter().find(|xattr| xattr.name == b"user.a");
        if (inode.links(), inode.size() as usize) != (known.links, known.contents.len()) {
            return Err(format!("{name}: {} names, {} bytes", inode.links(), inode.size()));
        }
        if attribute.map(|xattr| xattr.value) != known.attribute {
            return Err(format!("{name}: another attribute"));
        }
        let mut contents = vec![0; known.contents.len()];
        fs.open_file(&inode).unwrap().read_at(&mut contents, 0).map_err(|error| error.to_string())?;
        let is_known = |at: usize, byte: u8| {
            let versions = later.iter().filter_map(|model| model.inodes.get(number)?.contents.get(at));
            known.contents[at] == byte || versions.into_iter().any(|version| *version == byte)
        };
        if let Some((at, byte)) = contents.iter().enumerate().find(|(at, byte)| !is_known(*at, **byte)) {
            return Err(format!("{name}: {byte:#x} at {at}, which nobody wrote there"));
        }
    }
    Ok(())
}

/// Runs operations, cuts the power while they run, and looks at what is left.
fn cut(seed: u64, options: &str, steps: usize, states: usize) {
    let Some(tool) = tool("mke2fs") else { return };
    let folder = tempdir().unwrap();
    let image = folder.path().join("image");
    mke2fs::make(&tool, options, &image, "12M");
    let base = std::fs::read(&image).unwrap();
    let disk = Arc::new(Disk { bytes: MemoryDevice::new(base.clone()), events: Mutex::default() });
    let mut rng = Rng::new(seed);
    // What there was after each step, and which of these are commits.
    let (mut models, mut commits) = (vec![Model::default()], vec![0]);
    let mut writer =
        Writer::open(disk.clone(), WriteOptions { seed: Some(seed), ..WriteOptions::default() }).unwrap();
    disk.note(Event::Committed(0));
    for number in 0..steps {
        let mut model = models[number].clone();
        step(&mut rng, &mut writer, &mut model);
        models.push(model);
        if rng.below(7) == 0 || number + 1 == steps {
            compare(writer.fs(), &models[number + 1], &[])
                .unwrap_or_else(|why| panic!("seed {seed}, step {number}: {why}"));
            commits.push(number + 1);
            writer.commit().unwrap();
            disk.note(Event::Committed(commits.len() - 1));
        }
    }
    drop(writer);
    let events = std::mem::take(&mut *disk.events.lock().unwrap());
    let mut moments: Vec<usize> = (0..states).map(|_| rng.below(events.len() as u64 + 1) as usize).collect();
    moments.sort_unstable();
    let (mut durable, mut pending, mut done, mut at) = (base, Vec::new(), 0, 0);
    for moment in moments {
        for event in &events[at..moment] {
            match event {
                Event::Write(offset, bytes) => pending.push((*offset, bytes)),
                Event::Flush => {
                    for (offset, bytes) in pending.drain(..) {
                        durable[offset..offset + bytes.len()].copy_from_slice(bytes);
                    }
                }
                Event::Committed(number) => done = *number,
            }
        }
        at = moment;
        let (mut left, kept) = (durable.clone(), rng.below(4));
        for (offset, bytes) in &pending {
            for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                if kept == 0 || kept > 1 && rng.below(2) == 0 {
                    let from = offset + number * SECTOR;
                    left[from..from + sector.len()].copy_from_slice(sector);
                }
            }
        }
        let what = format!("{options}, seed {seed}, cut at {moment} of {}", events.len());
        let left = Arc::new(MemoryDevice::new(left));
        drop(
            Writer::open(left.clone(), WriteOptions::default())
                .unwrap_or_else(|error| panic!("{what}: {error}")),
        );
        let report = check(left.clone(), &CheckOptions::default(), &Work::default()).unwrap();
        assert!(report.is_clean(), "{what}: {:?}", report.faults);
        let fs = Ext4::open(left.clone(), &OpenOptions::default()).unwrap();
        let is = |commit: usize| {
            let next = commits.get(commit + 2).map_or(models.len(), |next| next + 1);
            compare(&fs, &models[commits[commit]], &models[commits[commit]..next])
        };
        if let Err(why) = is(done) {
            let next = if done + 1 < commits.len() { is(done + 1) } else { Err("nothing more".to_owned()) };
            next.unwrap_or_else(|next| {
                panic!("{what}: not as of commit {done}: {why}; nor as of the next one: {next}")
            });
        }
        if rng.below(20) == 0 {
            let mut bytes = vec![0; left.size() as usize];
            left.read_at(&mut bytes, 0).unwrap();
            std::fs::write(&image, bytes).unwrap();
            assert_sound(&image, &what);
        }
    }
}

#[test]
fn a_cut_leaves_a_commit() {
    let kinds = [
        "-t ext4 -b 1024",
        "-t ext4 -b 4096",
        "-t ext4 -b 1024 -O inline_data -I 256",
        "-t ext4 -b 1024 -O bigalloc,orphan_file",
        "-t ext4 -b 1024 -O ^metadata_csum,64bit",
    ];
    let rounds = if slow_tests() { 200 } else { 2 };
    for seed in 0..rounds {
        kinds.iter().for_each(|kind| cut(seed, kind, 150, 120));
    }
}
