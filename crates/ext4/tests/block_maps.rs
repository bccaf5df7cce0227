//! Files without extents: maps of block numbers of every depth, made, cut and removed.

mod common;

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casemate_blockdev::{BlockDevice, FileDevice};
use casemate_ext4::{Ext4, InodeFlags, NewNode, OpenOptions, PutOptions, RecoveryFile, WriteOptions, Writer};
use casemate_providers::Work;
use casemate_testkit::{TempDir, run, tempdir, tool};
use common::assert_sound;
use common::kernel::on_mounted;

struct Image {
    folder: TempDir,
    what: String,
}

impl Image {
    fn new(options: &str, size: &str) -> Option<Image> {
        let mke2fs = tool("mke2fs")?;
        let image = Image { folder: tempdir().unwrap(), what: options.to_owned() };
        run(Command::new(mke2fs).args(["-q", "-F"]).args(options.split(' ')).arg(image.path()).arg(size));
        Some(image)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    fn writer(&self) -> Writer {
        let device = Arc::new(FileDevice::open_writable(self.path()).unwrap());
        let recovery = Some(RecoveryFile::new(self.folder.path().join("image.redo")));
        Writer::open(device, WriteOptions { recovery, seed: Some(2), ..WriteOptions::default() }).unwrap()
    }

    fn reader(&self) -> Ext4 {
        let device = Arc::new(FileDevice::open(self.path()).unwrap());
        Ext4::open(device, &OpenOptions::default()).unwrap()
    }

    fn free(&self) -> u64 {
        self.reader().superblock().blocks_free
    }

    fn assert_clean(&self) {
        assert_sound(&self.path(), &self.what);
    }

    /// Blocks at `marks` hold what [`marked`] says, those behind them zeros, as far as the file goes.
    fn assert_marked(&self, path: &str, block: u64, marks: &BTreeSet<u64>) {
        let fs = self.reader();
        let file = fs.open_file(&fs.resolve(path.as_bytes(), true).unwrap()).unwrap();
        for at in marks.iter().flat_map(|mark| [*mark, mark + 1]) {
            let len = file.size().saturating_sub(at * block).min(block);
            let mut bytes = vec![7; len as usize];
            file.read_at(&mut bytes, (at * block).min(file.size())).unwrap();
            let expected = if marks.contains(&at) { marked(at, block) } else { vec![0; block as usize] };
            assert!(bytes == expected[..len as usize], "{}: block {at}", self.what);
        }
    }
}

/// Contents of a block of the file.
fn marked(at: u64, block: u64) -> Vec<u8> {
    vec![(at % 251) as u8 + 1; block as usize]
}

const PUT: PutOptions = {
    let mut put = PutOptions::new();
    put.owner = Some((0, 0));
    put.xattrs = false;
    put
};

/// A sparse file with contents where levels of the map begin and end; returns those blocks.
fn make_sparse(path: &Path, block: u64) -> BTreeSet<u64> {
    let per = block / 4;
    let (single, double, triple) = (12, 12 + per, 12 + per + per * per);
    let marks = [
        0,
        5,
        single - 1,
        single,
        single + 1,
        double - 1,
        double,
        double + 2,
        double + per - 1,
        double + per,
        triple - 1,
        triple,
        triple + per * per - 1,
        triple + per * per,
        triple + per * per + per + 3,
    ];
    let marks = BTreeSet::from(marks);
    let file = std::fs::File::create(path).unwrap();
    for at in &marks {
        file.write_all_at(&marked(*at, block), at * block).unwrap();
    }
    file.set_len((marks.last().unwrap() + 1) * block).unwrap();
    marks
}

#[test]
fn maps_of_every_depth_grow_and_shrink() {
    for (options, size, block) in
        [("-t ext2 -b 1024", "8M", 1024), ("-t ext3 -b 2048", "16M", 2048), ("-t ext2 -b 4096", "8M", 4096)]
    {
        let Some(image) = Image::new(options, size) else { return };
        let before = image.free();
        let mut marks = make_sparse(&image.source(), block);
        let mut writer = image.writer();
        writer.put(&image.source(), b"/deep", &PUT, &Work::default()).unwrap();
        writer.commit().unwrap();
        image.assert_clean();
        image.assert_marked("/deep", block, &marks);
        if block == 1024 {
            let Some(found) = on_mounted(&image.path(), "ro", "cksum < deep") else { return };
            let expected = run(Command::new("cksum").stdin(std::fs::File::open(image.source()).unwrap()));
            assert_eq!(found.trim(), expected.trim());
        }
        // Block by block away, and what lies around.
        while let Some(last) = marks.pop_last() {
            writer.truncate(b"/deep", last * block + 5).unwrap();
            writer.commit().unwrap();
            image.assert_clean();
            writer.truncate(b"/deep", last * block).unwrap();
            writer.commit().unwrap();
            image.assert_clean();
            image.assert_marked("/deep", block, &marks);
        }
        assert_eq!(image.free(), before, "{options}: all blocks are given back");
        // Allocated without extents means written with zeros; block 0 gets its old contents' place, maybe.
        let size = (12 + block / 4 + 5) * block - 7;
        writer.allocate_file(b"/deep", size).unwrap();
        writer.commit().unwrap();
        image.assert_clean();
        let fs = image.reader();
        let inode = fs.resolve(b"/deep", true).unwrap();
        assert!(inode.sectors(block as u32) * 512 >= size, "{options}");
        let mut bytes = vec![1; size as usize];
        fs.open_file(&inode).unwrap().read_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0), "{options}");
        writer.remove(b"/deep").unwrap();
        writer.commit().unwrap();
        image.assert_clean();
        assert_eq!(image.free(), before, "{options}");
    }
}

#[test]
fn the_kernel_goes_on_with_maps_made_here() {
    let Some(image) = Image::new("-t ext3 -b 1024", "32M") else { return };
    let mut writer = image.writer();
    let node = NewNode::new(0o755);
    writer.make_directory(b"/many", &node, false).unwrap();
    for number in 0..700 {
        writer.make_file(format!("/many/{number}-{}", "n".repeat(90)).as_bytes(), &node).unwrap();
    }
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i / 3) as u8).collect();
    std::fs::write(image.source(), &bytes).unwrap();
    for name in ["/gone", "/cut", "/grown"] {
        writer.put(&image.source(), name.as_bytes(), &PUT, &Work::default()).unwrap();
    }
    writer.commit().unwrap();
    drop(writer);
    image.assert_clean();
    let script = "rm gone; truncate -s 300000 cut; cat cut >> grown; rm many/1*; touch many/new; \
                  ls many | wc -l; cksum < grown";
    let Some(found) = on_mounted(&image.path(), "rw", script) else { return };
    image.assert_clean();
    std::fs::write(image.source(), [&bytes[..], &bytes[..300_000]].concat()).unwrap();
    let expected = run(Command::new("cksum").stdin(std::fs::File::open(image.source()).unwrap()));
    // 700 names but for 1, 10 to 19, 100 to 199, and a new one.
    assert_eq!(found.split_once('\n').unwrap(), ("590", &expected[..]));
}

#[test]
fn old_maps_live_on_beside_extents() {
    let Some(image) = Image::new("-t ext3 -b 1024", "16M") else { return };
    let Some(tune2fs) = tool("tune2fs") else { return };
    let mut writer = image.writer();
    let before = image.free();
    let node = NewNode::new(0o755);
    std::fs::write(image.source(), vec![b'x'; 400_000]).unwrap();
    writer.make_directory(b"/dir", &node, false).unwrap();
    for name in ["/dir/removed", "/dir/replaced", "/dir/cut", "/dir/grown"] {
        writer.put(&image.source(), name.as_bytes(), &PUT, &Work::default()).unwrap();
    }
    writer.make_symlink(b"/dir/link", &[b't'; 300], &node).unwrap();
    writer.commit().unwrap();
    drop(writer);
    run(Command::new(tune2fs).args(["-O", "extent"]).arg(image.path()));
    let mut writer = image.writer();
    writer.remove(b"/dir/removed").unwrap();
    writer.remove(b"/dir/link").unwrap();
    writer.put(&image.source(), b"/dir/replaced", &PUT, &Work::default()).unwrap();
    writer.truncate(b"/dir/cut", 100_000).unwrap();
    writer.allocate_file(b"/dir/grown", 800_000).unwrap();
    for number in 0..60 {
        writer.make_file(format!("/dir/{number}-{}", "n".repeat(90)).as_bytes(), &node).unwrap();
    }
    writer.commit().unwrap();
    image.assert_clean();
    let fs = image.reader();
    let has_extents = |path: &str| {
        let inode = fs.resolve(path.as_bytes(), true).unwrap();
        (inode.has(InodeFlags::EXTENTS), inode.size())
    };
    assert_eq!(has_extents("/dir/replaced"), (true, 400_000));
    assert_eq!(has_extents("/dir/cut"), (false, 100_000));
    assert_eq!(has_extents("/dir/grown"), (false, 800_000));
    assert!(!has_extents("/dir").0);
    writer.remove_tree(b"/dir").unwrap();
    writer.commit().unwrap();
    image.assert_clean();
    assert_eq!(image.free(), before);
}
