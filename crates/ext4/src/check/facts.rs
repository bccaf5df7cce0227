//! Facts of each inode: its kind, the number of names that it claims, and the number of names that were found.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use casemate_blockdev::usize_of;

use crate::format::layout::Layout;
use crate::number::u8_of;
use crate::units::InodeNo;

/// Inodes of a chunk, which is there from the first one in use on.
const CHUNK: u32 = 1 << 13;

/// One inode: sixteen bytes.
#[derive(Default)]
pub(crate) struct Record {
    /// Flags and the stored number of links.
    facts: AtomicU32,
    /// Names that lead to it, or attributes that have the value that it holds.
    names: AtomicU32,
    /// The directory that holds a directory's name.
    parent: AtomicU32,
    /// The number of an encrypted inode's policy, or how many attributes have the value that an inode holds.
    extra: AtomicU32,
}

/// Facts of an inode: a kind as directories have it, from 1 on, in the lowest bits; flags; links in the upper half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fact(pub u32);

impl Fact {
    const KIND: u32 = 0xf;
    /// It is in use.
    pub const USED: u32 = 0x10;
    /// It holds an attribute's value.
    pub const VALUE: u32 = 0x20;
    pub const ENCRYPTED: u32 = 0x40;
    /// It waits to be deleted, or was in a place that is never looked at.
    pub const ORPHAN: u32 = 0x80;
    /// A directory with a hash tree.
    pub const INDEXED: u32 = 0x800;
    /// A walk towards the root has passed it; it leads there.
    pub const PASSED: u32 = 0x100;
    pub const REACHED: u32 = 0x200;
    /// A file with fs-verity.
    pub const VERITY: u32 = 0x1000;
    /// It belongs to the file system itself, and to no directory.
    pub const INTERNAL: u32 = 0x400;

    pub fn new(kind: u8, flags: u32, links: u16) -> Fact {
        Fact(u32::from(kind) | flags | u32::from(links) << 16)
    }

    /// As directories have it; 0 for none.
    pub fn kind(self) -> u8 {
        u8_of(self.0 & Fact::KIND)
    }

    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    pub fn links(self) -> u32 {
        self.0 >> 16
    }
}

impl Record {
    #[inline]
    pub fn fact(&self) -> Fact {
        Fact(self.facts.load(Ordering::Relaxed))
    }

    /// Counts a name.
    #[inline]
    pub fn add_name(&self) {
        self.names.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of its policy, or 0.
    #[inline]
    pub fn policy(&self) -> u32 {
        self.extra.load(Ordering::Relaxed)
    }

    /// Notes where a directory is. False if it is somewhere already.
    pub fn set_parent(&self, parent: InodeNo) -> bool {
        self.parent.compare_exchange(0, parent.get(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// All inodes.
pub(crate) struct Facts {
    inodes: u32,
    chunks: Vec<OnceLock<Box<[Record]>>>,
}

impl Facts {
    pub fn new(layout: &Layout) -> Facts {
        let chunks = layout.inodes.div_ceil(CHUNK);
        Facts { inodes: layout.inodes, chunks: (0..chunks).map(|_| OnceLock::new()).collect() }
    }

    /// Notes an inode, which must be one that there is.
    pub fn set(&self, inode: InodeNo, fact: Fact) {
        self.made(inode).facts.store(fact.0, Ordering::Relaxed);
    }

    /// Notes the policy of an inode that there is.
    pub fn set_policy(&self, inode: InodeNo, policy: u32) {
        self.made(inode).extra.store(policy, Ordering::Relaxed);
    }

    /// Counts an attribute that has its value in an inode that there is.
    pub fn add_reference(&self, inode: InodeNo) {
        self.made(inode).extra.fetch_add(1, Ordering::Relaxed);
    }

    /// Attributes that have their values in an inode.
    pub fn references(&self, inode: InodeNo) -> u32 {
        self.record(inode).map_or(0, |record| record.extra.load(Ordering::Relaxed))
    }

    fn made(&self, inode: InodeNo) -> &Record {
        let new = || (0..CHUNK).map(|_| Record::default()).collect();
        let index = inode.index();
        &self.chunks[usize_of(index / CHUNK)].get_or_init(new)[usize_of(index % CHUNK)]
    }

    pub fn get(&self, inode: InodeNo) -> Fact {
        self.record(inode).map_or(Fact(0), |record| Fact(record.facts.load(Ordering::Relaxed)))
    }

    pub fn add_flag(&self, inode: InodeNo, flag: u32) {
        if let Some(record) = self.record(inode) {
            record.facts.fetch_or(flag, Ordering::Relaxed);
        }
    }

    pub fn names(&self, inode: InodeNo) -> u32 {
        self.record(inode).map_or(0, |record| record.names.load(Ordering::Relaxed))
    }

    /// The directory that a directory is in.
    pub fn parent(&self, inode: InodeNo) -> Option<InodeNo> {
        InodeNo::new(self.record(inode)?.parent.load(Ordering::Relaxed))
    }

    /// Calls `f` with each inode in use of a range, and how many names it has.
    pub fn each(&self, first: InodeNo, count: u32, mut f: impl FnMut(InodeNo, Fact, u32)) {
        let mut index = first.index();
        let end = index.saturating_add(count).min(self.inodes);
        while index < end {
            let stop = end.min((index / CHUNK + 1).saturating_mul(CHUNK));
            if let Some(chunk) = self.chunks[usize_of(index / CHUNK)].get() {
                let records = &chunk[usize_of(index % CHUNK)..];
                for (index, record) in (index..stop).zip(records) {
                    let fact = Fact(record.facts.load(Ordering::Relaxed));
                    if let Some(inode) = InodeNo::at_index(index).filter(|_| fact.has(Fact::USED)) {
                        f(inode, fact, record.names.load(Ordering::Relaxed));
                    }
                }
            }
            index = stop;
        }
    }

    /// The facts of an inode, if it can be in use.
    #[inline]
    pub fn record(&self, inode: InodeNo) -> Option<&Record> {
        let index = inode.index();
        Some(&self.chunks.get(usize_of(index / CHUNK))?.get()?[usize_of(index % CHUNK)])
    }
}
