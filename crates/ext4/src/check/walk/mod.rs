//! The walk over all structures of a file system.
//!
//! Structures are found the way the file system finds them: groups from the superblock, inodes from their tables, blocks
//! from inodes. It goes on after damage: what lies below a damaged structure is left out, and nothing else. Whatever
//! leads where, no more blocks are read than there are.

mod groups;
mod inodes;

use std::sync::atomic::{AtomicU64, Ordering};

use casemate_blockdev::BlockDevice;
use casemate_providers::Work;

use crate::check::visit::{Item, Visitor};
use crate::error::{Corrupt, Place, Result, Structure};
use crate::format::csum::Context;
use crate::format::journal_superblock::JOURNAL_SUPERBLOCK_SIZE;
use crate::format::mmp::{MMP_SIZE, MmpBlock};
use crate::format::superblock::SUPERBLOCK_OFFSET;
use crate::read::fs::{Ext4, read_superblock};
use crate::read::journal::Journal;

/// Visits everything behind the superblock and the journal, on all threads. The listener hears of bytes of inode tables.
pub(crate) fn walk<V: Visitor>(
    fs: &Ext4,
    work: &Work<'_>,
    visitor: impl Fn() -> V + Sync + Copy,
) -> Result<()> {
    let mut first = visitor();
    if first.wants(Structure::BackupSuperblock) {
        superblock_copies(fs, &mut first)?;
    }
    if first.wants(Structure::BackupGroupDescriptor) {
        groups::descriptor_copies(fs, work, visitor)?;
    }
    let wants_inodes = first.wants(Structure::Inode);
    let budget = Budget(AtomicU64::new(fs.layout().blocks));
    // First descriptors and bitmaps, which are few; then the tables in pieces that all workers share.
    for some in groups::all(fs) {
        let found = groups::groups(fs, work, visitor, some)?;
        if wants_inodes {
            inodes::tables(fs, work, visitor, &found, &budget)?;
        }
    }
    if first.wants(Structure::MmpBlock) {
        mmp(fs, &mut first)?;
    }
    Ok(())
}

/// Visits the superblock of the journal. Whether there is one that can be believed.
pub(crate) fn journal(fs: &Ext4, visitor: &mut impl Visitor) -> Result<bool> {
    let (runs, first) = match Journal::locate(fs) {
        Ok(None) => return Ok(false),
        Ok(Some(found)) => found,
        // The inode will be found damaged again when its table is visited.
        Err(error) if Corrupt::of(&error).is_some_and(|it| it.place().structure == Structure::Inode) => {
            return Ok(false);
        }
        Err(error) => return visitor.damage(error).map(|()| false),
    };
    visitor.structure(&Item {
        place: Place::of(Structure::JournalSuperblock),
        // OK to index: a journal that was located has a first run.
        offset: fs.layout().offset(runs[0].physical),
        bytes: &first[..JOURNAL_SUPERBLOCK_SIZE],
        context: Context::default(),
    })
}

fn superblock_copies(fs: &Ext4, visitor: &mut impl Visitor) -> Result<()> {
    for group in fs.layout().copy_groups() {
        let place = Place::group(Structure::BackupSuperblock, group);
        // OK to fall back: the group is one of those with a copy.
        let offset = fs.layout().superblock_offset(group).unwrap_or(SUPERBLOCK_OFFSET);
        match read_superblock(&**fs.device(), offset) {
            Ok(copy) => {
                let bytes = &copy.as_bytes()[..];
                visitor.structure(&Item { place, offset, bytes, context: Context::default() })?;
            }
            Err(error) => match Corrupt::of(&error) {
                Some(corrupt) => visitor.damage(place.malformed(corrupt.problem().to_string()))?,
                None => return Err(error),
            },
        }
    }
    Ok(())
}

/// The block of multi-mount protection.
fn mmp(fs: &Ext4, visitor: &mut impl Visitor) -> Result<()> {
    let Some(block) = fs.superblock().mmp_block else { return Ok(()) };
    let place = Place::of(Structure::MmpBlock).at(block);
    if let Err(error) = fs.check_blocks(block, 1, Place::of(Structure::Superblock)) {
        return visitor.damage(error);
    }
    let mut bytes = [0; MMP_SIZE];
    let offset = fs.layout().offset(block);
    fs.device().read_at(&mut bytes, offset)?;
    if let Err(error) = MmpBlock::from_bytes(&bytes, place) {
        return visitor.damage(error);
    }
    visitor.structure(&Item { place, offset, bytes: &bytes, context: Context::default() }).map(|_| ())
}

/// The blocks that all inodes together may still lead to. Each block belongs to one inode, so honest ones never
/// need more than there are; hostile ones would keep a walk busy for days.
struct Budget(AtomicU64);

impl Budget {
    fn take(&self, blocks: u64) -> Result<()> {
        let left = |left: u64| left.checked_sub(blocks);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
            Ok(_) => Ok(()),
            // The same words whichever inode it was: one fault, however many workers meet it.
            Err(_) => Err(Place::of(Structure::Inode).malformed(
                "all inodes together lead to more blocks than the file system has; the rest is not checked",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;
    use std::sync::{Arc, Mutex};

    use casemate_blockdev::FileDevice;
    use casemate_testkit::{run, tempdir, tool};

    use super::*;
    use crate::check::visit::BitmapItem;
    use crate::error::Error;
    use crate::format::inode::Inode;
    use crate::read::file::FileReader;
    use crate::read::fs::OpenOptions;

    /// Believes everything, and notes which block each structure lies in.
    #[derive(Clone, Copy)]
    struct Recorder<'a>(&'a Mutex<BTreeSet<(Structure, u64)>>);

    impl Visitor for Recorder<'_> {
        fn wants(&self, _structure: Structure) -> bool {
            true
        }

        fn structure(&mut self, item: &Item<'_>) -> Result<bool> {
            let place = item.place.block.unwrap_or(item.offset);
            self.0.lock().unwrap().insert((item.place.structure, place));
            Ok(true)
        }

        fn bitmap(&mut self, item: &BitmapItem<'_>) -> Result<bool> {
            self.0.lock().unwrap().insert((item.place.structure, item.place.block.unwrap()));
            Ok(true)
        }

        fn value(&mut self, inode: &Inode, _contents: &FileReader) -> Result<()> {
            self.0.lock().unwrap().insert((Structure::XattrInode, inode.number().into()));
            Ok(())
        }

        fn damage(&mut self, error: Error) -> Result<()> {
            panic!("{error}")
        }
    }

    /// Block numbers behind what debugfs prints in brackets: `(IND):12`, `(0-3):20-23`.
    fn blocks(stat: &str, what: impl Fn(&str) -> bool) -> Vec<u64> {
        let listed =
            stat.split_once("BLOCKS:").or_else(|| stat.split_once("EXTENTS:")).map_or("", |(_, list)| list);
        let parts =
            listed.split([',', '\n', ' ']).filter_map(|part| part.strip_prefix('(')?.split_once("):"));
        let range = |list: &str| {
            let (first, last) = list.split_once('-').unwrap_or((list, list));
            first.parse().unwrap()..=last.parse::<u64>().unwrap()
        };
        parts.filter(|(name, _)| what(name)).flat_map(|(_, list)| range(list)).collect()
    }

    #[test]
    fn every_block_that_debugfs_knows_of_is_visited() {
        let (Some(mke2fs), Some(debugfs)) = (tool("mke2fs"), tool("debugfs")) else { return };
        for (maps, structure) in
            [("^extent,^64bit", Structure::IndirectBlock), ("extent", Structure::ExtentBlock)]
        {
            let folder = tempdir().unwrap();
            let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
            std::fs::create_dir(&tree).unwrap();
            // 800 KiB with a hole behind every page, in blocks of 1 KiB: numbers on two levels, or 100 extents.
            let pages: Vec<u8> = (0..200u8).flat_map(|page| [page % 2; 4096]).collect();
            std::fs::write(tree.join("holes"), pages).unwrap();
            let features = format!("{maps},quota,mmp,has_journal,orphan_file,ea_inode,metadata_csum");
            let mut make = Command::new(&mke2fs);
            make.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-I", "256", "-O", &features, "-d"]);
            run(make.arg(&tree).arg(&image).arg("16M"));
            let script = "ea_set /holes user.block %X%\nea_set /holes user.value %Y%\n";
            let script = script.replace("%X%", &"x".repeat(500)).replace("%Y%", &"y".repeat(5000));
            std::fs::write(folder.path().join("script"), script).unwrap();
            run(Command::new(&debugfs).arg("-w").arg("-f").arg(folder.path().join("script")).arg(&image));

            let seen = Mutex::default();
            let recorder = Recorder(&seen);
            let device = Arc::new(FileDevice::open(&image).unwrap());
            let fs = Ext4::open(device, &OpenOptions::default()).unwrap();
            assert!(journal(&fs, &mut { recorder }).unwrap());
            walk(&fs, &Work::default(), || recorder).unwrap();
            let seen = seen.into_inner().unwrap();
            let of = |wanted: &[Structure]| -> BTreeSet<u64> {
                seen.iter()
                    .filter(|(structure, _)| wanted.contains(structure))
                    .map(|(_, place)| *place)
                    .collect()
            };

            let stat =
                |path: &str| run(Command::new(&debugfs).args(["-R", &format!("stat {path}")]).arg(&image));
            let holes = stat("/holes");
            let map: BTreeSet<u64> =
                blocks(&holes, |name| name.contains("IND") || name.contains("ETB")).into_iter().collect();
            assert!(!map.is_empty() && map.is_subset(&of(&[structure])), "{maps}: {holes}");
            let data = |name: &str| name.starts_with(|c: char| c.is_ascii_digit());
            for (structure, path) in [
                (Structure::QuotaFile, "<3>"),
                (Structure::QuotaFile, "<4>"),
                (Structure::DirectoryBlock, "/"),
                (Structure::DirectoryBlock, "/lost+found"),
                (Structure::OrphanBlock, "<12>"),
            ] {
                let expected: BTreeSet<u64> = blocks(&stat(path), data).into_iter().collect();
                assert!(!expected.is_empty() && expected.is_subset(&of(&[structure])), "{maps}: {path}");
            }
            let acl =
                holes.split("File ACL: ").nth(1).and_then(|text| text.split_whitespace().next()).unwrap();
            assert_eq!(of(&[Structure::XattrBlock]), BTreeSet::from([acl.parse().unwrap()]), "{maps}");
            assert_eq!(of(&[Structure::XattrInode]).len(), 1, "{maps}");
            assert_eq!(of(&[Structure::MmpBlock, Structure::JournalSuperblock]).len(), 2, "{maps}");
            let groups = fs.layout().groups as usize;
            assert_eq!(of(&[Structure::GroupDescriptor]).len(), groups, "{maps}");
            // No inode of the second group was ever used.
            assert_eq!(of(&[Structure::BlockBitmap, Structure::InodeBitmap]).len(), groups + 1, "{maps}");
            assert_eq!(of(&[Structure::BackupSuperblock]).len(), fs.layout().copy_groups().count(), "{maps}");
            assert!(!of(&[Structure::BackupGroupDescriptor]).is_empty(), "{maps}");
        }
    }
}
