//! UUIDs of new file systems: given, or made of what is in the files.
//!
//! Contents are read once, when they are copied. The UUID is known only then; it goes into the superblocks, which are written
//! last. Where checksums begin with the UUID (without the feature metadata_csum_seed), contents are read for it before.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;

use crate::build::contents::Contents;
use crate::build::plan::Plan;
use crate::build::tree::{Body, Tree};
use crate::error::Result;
use crate::format::features::{Incompat, RoCompat};

/// Bytes of contents that are read at once.
const CHUNK: usize = 1 << 20;

/// UUID of a new file system.
#[derive(Clone, Debug)]
pub enum NewUuid {
    /// These bytes.
    Given([u8; 16]),
    /// A UUID that follows from contents, and from whatever else the function knows.
    OfContents(Arc<dyn Identify>),
}

/// Function that makes a UUID of the contents of files.
pub trait Identify: fmt::Debug + Send + Sync {
    /// The UUID, of the CRC-32C of each file in the order of inodes; it is 0 for whatever has no contents.
    fn uuid(&self, sums: &[u32]) -> [u8; 16];
}

impl From<[u8; 16]> for NewUuid {
    fn from(uuid: [u8; 16]) -> NewUuid {
        NewUuid::Given(uuid)
    }
}

/// CRC-32C of the contents of files, which threads tell of piece by piece in any order.
///
/// The register begins as 0, so that zeros at the beginning, holes among them, change nothing, and the registers of pieces
/// with zeros in the place of all the rest add up.
pub(crate) struct Sums {
    crc: Crc32c,
    files: Vec<AtomicU32>,
}

impl Sums {
    pub fn new(crc: Crc32c, files: usize) -> Sums {
        Sums { crc, files: (0..files).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Adds a piece of a file of `size` bytes, which begins at a byte of it.
    pub fn add(&self, index: usize, size: u64, at: u64, piece: &[u8]) {
        let behind = size - at - piece.len() as u64;
        let sum = self.crc.combine(self.crc.update(0, piece), 0, behind);
        self.files[index].fetch_xor(sum, Ordering::Relaxed);
    }

    /// Adds contents that are read for it.
    ///
    /// # Errors
    /// What the host says; whatever the listener says.
    pub fn read(&self, index: usize, contents: &Contents, buffer: &mut [u8], work: &Work<'_>) -> Result<()> {
        let opened = contents.open()?;
        for range in contents.ranges() {
            let mut at = range.start;
            while at < range.end {
                // OK to truncate: at most the buffer's length.
                let len = (range.end - at).min(buffer.len() as u64) as usize;
                let piece = &mut buffer[..len];
                casemate_blockdev::BlockDevice::read_at(&opened, piece, at)?;
                self.add(index, contents.size, at, piece);
                at += len as u64;
                work.events.advance(0)?;
            }
        }
        Ok(())
    }

    fn values(&self) -> Vec<u32> {
        self.files.iter().map(|sum| sum.load(Ordering::Relaxed)).collect()
    }
}

impl Plan {
    /// The file system's UUID. Contents are read if it follows from them.
    ///
    /// # Errors
    /// What the host says of contents; whatever the listener says.
    pub fn uuid(&self, work: &Work<'_>) -> Result<[u8; 16]> {
        let identify = match &self.options.uuid {
            NewUuid::Given(uuid) => return Ok(*uuid),
            NewUuid::OfContents(identify) => identify,
        };
        let sums = self.no_sums(work);
        let pieces = self.order.len() as u64;
        work.pool.run(
            pieces,
            || vec![0; CHUNK],
            |buffer, piece| match &self.tree.entry(self.order[piece as usize]).body {
                Body::File(contents) => sums.read(piece as usize, contents, buffer, work),
                _ => Ok(()),
            },
        )?;
        Ok(identify.uuid(&sums.values()))
    }

    /// The UUID, if it must be known before anything is written.
    pub(super) fn uuid_before(&self, work: &Work<'_>) -> Result<Option<[u8; 16]>> {
        let features = &self.geometry.features;
        let has_sums = features.ro_compat.has(RoCompat::METADATA_CSUM);
        let is_in_sums = match has_sums {
            true => !features.incompat.has(Incompat::CSUM_SEED),
            false => features.ro_compat.has(RoCompat::GDT_CSUM),
        };
        match &self.options.uuid {
            NewUuid::OfContents(_) if !is_in_sums => Ok(None),
            _ => self.uuid(work).map(Some),
        }
    }

    /// The UUID of contents that were all told of, but for those that lie in inodes.
    pub(super) fn uuid_after(&self, sums: &Sums, work: &Work<'_>) -> Result<[u8; 16]> {
        let NewUuid::OfContents(identify) = &self.options.uuid else { return self.uuid(work) };
        let in_inodes = self.shapes.files.iter().enumerate().filter(|(_, shape)| shape.inline.is_some());
        let mut buffer = vec![0; 4096];
        for (index, _) in in_inodes {
            if let Body::File(contents) = &self.tree.entry(self.order[index]).body {
                sums.read(index, contents, &mut buffer, work)?;
            }
        }
        Ok(identify.uuid(&sums.values()))
    }

    pub(super) fn no_sums(&self, work: &Work<'_>) -> Sums {
        Sums::new(Crc32c::new(work.providers.cpu()), self.order.len())
    }
}

/// Contents of a regular file of a tree, to be read.
#[derive(Clone, Copy, Debug)]
pub struct TreeFile<'a>(&'a Contents);

impl TreeFile<'_> {
    /// Their length in bytes.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Opens them.
    ///
    /// # Errors
    /// What the host says, and that it is another file by now.
    pub fn open(&self) -> Result<impl casemate_blockdev::BlockDevice + use<>> {
        self.0.open()
    }
}

impl Tree {
    /// The contents of all regular files below a directory, in the order of their paths; a file with several names comes
    /// several times.
    pub fn files_below(&self, directory: &[u8]) -> Vec<TreeFile<'_>> {
        let mut open: Vec<u32> = self.lookup(directory).into_iter().collect();
        let mut found = Vec::new();
        while let Some(number) = open.pop() {
            match &self.entry(number).body {
                Body::Directory(names) => open.extend(names.values().rev()),
                Body::File(contents) => found.push(TreeFile(contents)),
                _ => {}
            }
        }
        found
    }

    /// Makes times that are later than this one be this one, as `tar --clamp-mtime` does.
    pub fn clamp_times(&mut self, latest: crate::format::inode::Time) {
        for number in self.numbers() {
            let node = &mut self.entry_mut(number).node;
            node.modified = node.modified.min(latest);
        }
    }
}
