#![no_main]
//! A whole ext4 image, damaged, with checksums that fit the damage: everything is done with it that users do.
//!
//! The first byte chooses an image of `fuzz/seeds`, the second how it is opened; the rest are edits.

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use casemate_blockdev::{BlockDevice, Pool};
use casemate_ext4::{
    CheckOptions, Contents, Error, Ext4, ExtractOptions, Inode, NewNode, OpenOptions, PutOptions, RecoveryFile, Result,
    SeenDirectories, WriteOptions, Writer, check, extract_to_tar, fix_checksums,
};
use casemate_fuzz::images;
use casemate_providers::Work;

/// Bytes of contents that are read at most: a few blocks can claim to be any number of files.
const CONTENTS: u64 = 8 << 20;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [image, how, edits @ ..] = bytes else { return };
    let seeds = images();
    let device: Arc<dyn BlockDevice> = Arc::new(seeds[usize::from(*image) % seeds.len()].edited(edits));
    let work = Work { pool: Pool::new(NonZeroUsize::new(1)), ..Work::default() };
    let options = OpenOptions {
        verify_checksums: how & 1 == 0,
        replay_journal: how & 2 == 0,
        ..OpenOptions::default()
    };
    let checking = CheckOptions { open: options.clone(), ..CheckOptions::default() };
    let _ = fix_checksums(device.clone(), &checking, &work);
    let _ = check(device.clone(), &checking, &work);
    if let Ok(fs) = Ext4::open(device.clone(), &options) {
        read(&fs, &work);
        if how & 4 == 0 {
            let _ = change(device, options, *how, &work);
        }
    }
});

/// `info`, `ls -R`, `cat`, `extract` to nowhere.
fn read(fs: &Ext4, work: &Work<'_>) {
    let Ok(root) = fs.root() else { return };
    let contents = Limited { left: AtomicU64::new(CONTENTS) };
    let mut seen = SeenDirectories::new();
    let mut directories = vec![(Vec::new(), root.clone())];
    while let Some((path, directory)) = directories.pop() {
        if seen.enter(fs, &path, &directory).is_err() {
            continue;
        }
        for entry in fs.read_dir(&directory).unwrap_or_default() {
            let _ = fs.lookup_indexed(&directory, &entry.name);
            let Ok(inode) = fs.inode(entry.inode) else { continue };
            let _ = (fs.xattrs(&inode), fs.encrypted(&inode), fs.verity(&inode), fs.symlink_target(&inode));
            if inode.is_dir() {
                directories.push(([&path[..], &entry.name, b"/"].concat(), inode));
            } else if let Ok(file) = contents.open(fs, &inode) {
                let mut buffer = [0; 4096];
                for at in [0, file.size() / 2, file.size().saturating_sub(4096)] {
                    let len = (file.size() - at).min(4096) as usize;
                    let _ = file.read_at(&mut buffer[..len], at);
                }
            }
        }
    }
    let options = ExtractOptions {
        owners: false,
        xattrs: true,
        overwrite: false,
        selection: None,
        kept: &[],
        contents: &contents,
    };
    let _ = extract_to_tar(fs, &root, &mut io::sink(), &options, work);
}

/// A few changes and their commit.
fn change(device: Arc<dyn BlockDevice>, open: OpenOptions, how: u8, work: &Work<'_>) -> Result<()> {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let recovery = Some(RecoveryFile::new(folder.path().join("redo")));
    let reading = open.clone();
    let options = WriteOptions { open, seed: Some(1), recovery, ..WriteOptions::default() };
    let mut writer = Writer::open(device.clone(), options)?;
    let node = NewNode::default();
    let mut put = PutOptions::default();
    put.owner = Some((0, 0));
    let names = writer.fs().root().and_then(|root| writer.fs().read_dir(&root)).unwrap_or_default();
    let mut paths = names.iter().map(|entry| [b"/", &entry.name[..]].concat()).filter(|path| path.len() > 3);
    let path = paths.nth(usize::from(how >> 6)).unwrap_or_else(|| b"/pieces".to_vec());
    let _ = writer.make_directory(b"/folder/new/deeper", &node, true);
    let _ = writer.make_symlink(b"/folder/many/link", &[b'x'; 300], &node);
    let _ = writer.make_file(&[&path[..], b"/file"].concat(), &node);
    let _ = writer.allocate_file(b"/pieces", 100_000);
    let _ = match how >> 3 & 7 {
        0 => writer.truncate(&path, 5000),
        1 => writer.remove_tree(&path),
        2 => writer.rename(&path, b"/folder/many/renamed"),
        3 => writer.link(&path, b"/folder/second"),
        4 => writer.set_xattr(&path, b"user.new", Some(&[7; 500]), true),
        5 => writer.set_mode(&path, 0o700),
        6 => writer.put_contents(&mut &[5; 9000][..], Path::new("/dev/null"), &path, &put, work).map(|_| ()),
        _ => writer.remove(&path),
    };
    writer.commit()?;
    drop(writer);
    Ext4::open(device, &reading).expect("a file system that was committed opens");
    Ok(())
}

/// Contents up to a sum.
struct Limited {
    left: AtomicU64,
}

impl Contents for Limited {
    fn open(&self, fs: &Ext4, inode: &Inode) -> Result<Box<dyn BlockDevice>> {
        let file = fs.open_file(inode)?;
        let (mut at, mut data) = (0, 4096);
        while let Some(range) = file.next_data(at)? {
            data += range.end - range.start;
            at = range.end;
        }
        let left = |left: u64| left.checked_sub(data);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
            Ok(_) => Ok(Box::new(file)),
            Err(_) => Err(Error::unsupported("too much")),
        }
    }
}
