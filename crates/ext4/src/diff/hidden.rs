//! Inodes that no path leads to, in slots that differ: those that only the file system uses, and lost ones.

use super::Diff;
use super::bits::Bits;
use super::difference::{Difference, Side};
use super::owners::{Owners, is_used, used_slots};
use super::walk::Pass;
use crate::error::Result;
use crate::format::inode::Inode;
use crate::read::fs::Ext4;
use crate::units::InodeNo;

impl Diff<'_> {
    /// The inodes in slots that differ, and that no path leads to in one of the file systems at least.
    pub fn hidden(&self, owners: &[Owners; 2]) -> Bits {
        let mut hidden = Bits::default();
        for side in Side::BOTH {
            let layout = self.sides[side.index()].fs.layout();
            for number in owners[side.index()].changed_slots(layout) {
                if self.reached.iter().any(|reached| !reached.has(number.get().into())) {
                    hidden.insert(number.get().into());
                }
            }
        }
        hidden
    }

    /// Compares inodes that no path leads to.
    pub fn hidden_inodes(&mut self, hidden: &Bits, pass: Pass) -> Result<()> {
        let mut from = 0;
        while let Some(run) = hidden.next_run(from..u64::from(u32::MAX) + 1) {
            from = run.end;
            for number in run.filter_map(|number| InodeNo::new(u32::try_from(number).ok()?)) {
                self.hidden_inode(number, pass)?;
            }
        }
        Ok(())
    }

    fn hidden_inode(&mut self, number: InodeNo, pass: Pass) -> Result<()> {
        let path = format!("<{number}>").into_bytes();
        let mut inodes = [None, None];
        for side in Side::BOTH {
            if self.reached[side.index()].has(number.get().into()) {
                continue;
            }
            match in_use(&self.sides[side.index()].fs, number) {
                Ok(found) => inodes[side.index()] = found,
                Err(error) if pass == Pass::Files || error.is_interrupt() => self.skip(side, &path, error)?,
                Err(_) => {}
            }
        }
        let only =
            |side, inode: &Inode| Difference::Only { side, path: path.clone(), kind: inode.kind(), below: 0 };
        match inodes {
            [Some(a), Some(b)] => match pass {
                Pass::Files => self.files(&path, [&a, &b]),
                Pass::Storage => self.storage(&path, [&a, &b]),
            },
            [Some(inode), None] if pass == Pass::Files => self.tell(only(Side::A, &inode)),
            [None, Some(inode)] if pass == Pass::Files => self.tell(only(Side::B, &inode)),
            _ => Ok(()),
        }
    }
}

/// The inode with a number, if it is in use.
///
/// # Errors
/// `Corrupt` for one in use whose checksum does not fit.
fn in_use(fs: &Ext4, number: InodeNo) -> Result<Option<Inode>> {
    let layout = fs.layout();
    let Some((group, index)) = layout.inode_position(number) else { return Ok(None) };
    if index >= used_slots(fs, group)? {
        return Ok(None);
    }
    let table = fs.with_descriptor(group, |found| found.inode_table())?;
    if !layout.contains(table, layout.inode_table_blocks()) {
        return Ok(None);
    }
    let mut raw = vec![0; layout.inode_len()];
    fs.device().read_at(&mut raw, layout.offset(table) + u64::from(index) * u64::from(layout.inode_size))?;
    if is_used(fs, number, &raw) { fs.any_inode(number).map(Some) } else { Ok(None) }
}
