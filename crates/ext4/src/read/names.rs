//! The names of a directory, sorted, in little memory.

use std::ops::ControlFlow;
use std::sync::Arc;

use casemate_blockdev::usize_of;

use crate::error::{Place, Result, Structure};
use crate::format::inode::{FileType, Inode};
use crate::read::dir::DirEntry;
use crate::read::fs::Ext4;
use crate::units::InodeNo;

/// The names in a directory without "." and "..", in the order of their bytes.
///
/// They take less than three times the bytes of the directory's blocks: an image may have millions.
#[derive(Clone, Debug, Default)]
pub struct Names {
    slots: Vec<Slot>,
    /// All names, one behind the other.
    bytes: Arc<Vec<u8>>,
    /// How often "." and ".." are there.
    dots: [usize; 2],
}

/// Names that every directory has once.
const DOTS: [&[u8]; 2] = [b".", b".."];

/// A name among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// The inode that the name stands for.
    pub inode: InodeNo,
    /// Its kind, where entries tell (feature `filetype`).
    pub kind: Option<FileType>,
    /// The name, decrypted if the directory is encrypted and somebody can.
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    inode: InodeNo,
    /// Where the name begins.
    start: u32,
    len: u16,
    kind: Option<FileType>,
}

impl Slot {
    fn name(self, bytes: &[u8]) -> Name<'_> {
        let start = usize_of(self.start);
        let bytes = &bytes[start..start + usize::from(self.len)];
        Name { inode: self.inode, kind: self.kind, bytes }
    }
}

impl Ext4 {
    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// `Corrupt` when a block is damaged.
    pub fn names(&self, dir: &Inode) -> Result<Names> {
        let place = Place::inode(Structure::Directory, dir.number());
        let (mut slots, mut bytes, mut dots) = (Vec::new(), Vec::new(), [0; 2]);
        self.for_each_entry(dir, |DirEntry { inode, kind, name }| {
            if let Some(at) = DOTS.iter().position(|dots| *dots == name) {
                dots[at] += 1;
            } else {
                let (Ok(start), Ok(len)) = (u32::try_from(bytes.len()), u16::try_from(name.len())) else {
                    return Err(place.malformed("names of more than 4 GiB"));
                };
                slots.push(Slot { inode, start, len, kind });
                bytes.extend(name);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        // Equal names stay in the order of the disk.
        slots.sort_unstable_by_key(|slot| (slot.name(&bytes).bytes, slot.start));
        Ok(Names { slots, bytes: Arc::new(bytes), dots })
    }
}

impl Names {
    /// Keeps the names that `f` wants.
    pub fn retain(&mut self, mut f: impl FnMut(Name<'_>) -> bool) {
        self.slots.retain(|slot| f(slot.name(&self.bytes)));
    }

    /// Refuses a second "." or "..": it leads to a file, and is none of these names.
    ///
    /// # Errors
    /// `Corrupt`; the names are those of `dir`.
    pub fn check_dots(&self, dir: &Inode) -> Result<()> {
        let place = Place::inode(Structure::Directory, dir.number());
        self.repeated_dots().next().map_or(Ok(()), |(name, times)| {
            let name = name.escape_ascii();
            Err(place.malformed(format!(
                "has the name {name} {times} times: what a second one leads to is left out"
            )))
        })
    }

    fn repeated_dots(&self) -> impl Iterator<Item = (&'static [u8], usize)> + use<> {
        DOTS.into_iter().zip(self.dots).filter(|(_, times)| *times > 1)
    }

    /// Drops names that are there several times, and tells `f` of each how often that is: also of "." and "..".
    pub(crate) fn drop_repeated(&mut self, mut f: impl FnMut(&[u8], usize)) {
        self.repeated_dots().for_each(|(name, times)| f(name, times));
        let names = self.slots.chunk_by(|a, b| a.name(&self.bytes).bytes == b.name(&self.bytes).bytes);
        let repeated = names.filter(|same| same.len() > 1);
        let repeated: Vec<_> = repeated.map(|same| (same[0].name(&self.bytes).bytes, same.len())).collect();
        repeated.iter().for_each(|(name, times)| f(name, *times));
        let is_repeated = |name| repeated.binary_search_by_key(&name, |(name, _)| *name).is_ok();
        self.slots.retain(|slot| !is_repeated(slot.name(&self.bytes).bytes));
    }

    /// The names that `f` wants, and the others.
    pub(crate) fn partition(self, mut f: impl FnMut(Name<'_>) -> bool) -> (Names, Names) {
        let Names { slots, bytes, dots } = self;
        let (wanted, others) = slots.into_iter().partition(|slot| f(slot.name(&bytes)));
        (Names { slots: wanted, bytes: bytes.clone(), dots }, Names { slots: others, bytes, dots })
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The name at this place of the order.
    pub fn get(&self, index: usize) -> Option<Name<'_>> {
        Some(self.slots.get(index)?.name(&self.bytes))
    }

    /// All names.
    pub fn iter(&self) -> impl Iterator<Item = Name<'_>> + Clone {
        self.slots.iter().map(|slot| slot.name(&self.bytes))
    }
}

/// Names as a walk takes them, one after the other.
#[derive(Clone, Debug)]
pub struct IntoNames {
    names: Names,
    next: usize,
}

impl IntoIterator for Names {
    type Item = DirEntry;
    type IntoIter = IntoNames;

    fn into_iter(self) -> IntoNames {
        IntoNames { names: self, next: 0 }
    }
}

impl Iterator for IntoNames {
    type Item = DirEntry;

    fn next(&mut self) -> Option<DirEntry> {
        let Name { inode, kind, bytes } = self.names.get(self.next)?;
        self.next += 1;
        Some(DirEntry { inode, kind, name: bytes.to_vec() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.names.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for IntoNames {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_names_are_dropped() {
        let bytes = b"aabbbcdd".to_vec();
        let inode = |start| InodeNo::FIRST.plus(start);
        let slot = |start| Slot { inode: inode(start), start, len: 1, kind: None };
        let mut names = Names { slots: (0..8).map(slot).collect(), bytes: Arc::new(bytes), dots: [1, 2] };
        let mut told = Vec::new();
        names.drop_repeated(|name, times| told.push((name.to_vec(), times)));
        assert_eq!(told, [(b"..".to_vec(), 2), (b"a".to_vec(), 2), (b"b".to_vec(), 3), (b"d".to_vec(), 2)]);
        assert_eq!(
            names.into_iter().map(|entry| (entry.name, entry.inode)).collect::<Vec<_>>(),
            [(b"c".to_vec(), inode(5))]
        );
    }
}
