//! UUIDs of new file systems: given, or made of what is in the files.
//!
//! Contents are read once, when they are copied. The UUID is known only then; it goes into the superblocks, which are written
//! last. Where checksums begin with the UUID (without the feature metadata_csum_seed), contents are read for it before.

use std::sync::atomic::{AtomicU32, Ordering};

use casemate_blockdev::{BlockDevice, u64_of, usize_of};
use casemate_primitives::Cpu;
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Work;

use crate::build::contents::Contents;
use crate::build::options::NewUuid;
use crate::build::plan::Plan;
use crate::build::tree::{Body, Tree};
use crate::error::Result;
use crate::format::features::{Incompat, RoCompat};

/// Bytes of contents that are read at once.
const CHUNK: usize = 128 << 10;

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

    /// Begins to add bytes of a file of `size` bytes, from a byte of it on. [`Sum::end`] adds them.
    pub fn begin(&self, index: usize, size: u64, at: u64) -> Sum<'_> {
        Sum { sums: self, index, size, at, register: 0 }
    }

    /// Adds all contents of a file, which are read for it. Those that are copied must be the same.
    ///
    /// # Errors
    /// Errors of the host and of the listener; `InvalidData` for contents that changed since they were first read.
    pub fn read(&self, index: usize, contents: &Contents, buffer: &mut [u8], work: &Work<'_>) -> Result<()> {
        let opened = contents.open()?;
        for range in contents.ranges() {
            let mut sum = self.begin(index, contents.size, range.start);
            while sum.at < range.end {
                let len = usize_of(range.end - sum.at).min(buffer.len());
                let piece = &mut buffer[..len];
                opened.read_at(piece, sum.at)?;
                sum.update(piece);
                work.events.advance(0)?;
            }
            sum.end();
        }
        self.compare(index, contents)
    }

    /// Compares contents that were told of whole with those that were read before.
    ///
    /// # Errors
    /// `Io` (`InvalidData`) if they are others.
    pub fn compare(&self, index: usize, contents: &Contents) -> Result<()> {
        match contents.reading.agrees(self.files[index].load(Ordering::Relaxed)) {
            true => Ok(()),
            false => Err(contents.changed()),
        }
    }

    fn values(&self) -> Vec<u32> {
        self.files.iter().map(|sum| sum.load(Ordering::Relaxed)).collect()
    }
}

/// Sum of bytes of a file that follow each other.
pub(crate) struct Sum<'a> {
    sums: &'a Sums,
    index: usize,
    size: u64,
    at: u64,
    register: u32,
}

impl Sum<'_> {
    /// The byte of the file that comes next.
    pub fn at(&self) -> u64 {
        self.at
    }

    pub fn update(&mut self, piece: &[u8]) {
        self.register = self.sums.crc.update(self.register, piece);
        self.at += u64_of(piece.len());
    }

    /// Adds the bytes to the file's sum.
    pub fn end(self) {
        let sum = self.sums.crc.combine(self.register, 0, self.size - self.at);
        self.sums.files[self.index].fetch_xor(sum, Ordering::Relaxed);
    }
}

impl Plan {
    /// The file system's UUID. Contents are read if it follows from them.
    ///
    /// # Errors
    /// Errors of the host about contents, and of the listener.
    pub fn uuid(&self, work: &Work<'_>) -> Result<[u8; 16]> {
        let identify = match &self.options.uuid {
            None => return Ok([0; 16]),
            Some(NewUuid::Given(uuid)) => return Ok(*uuid),
            Some(NewUuid::OfContents(identify)) => identify,
        };
        let sums = self.no_sums(work);
        let pieces = u64_of(self.order.len());
        work.pool.run(
            pieces,
            || vec![0; CHUNK],
            |buffer, piece| match &self.tree.entry(self.order[usize_of(piece)]).body {
                Body::File(contents) => sums.read(usize_of(piece), contents, buffer, work),
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
            Some(NewUuid::OfContents(_)) if !is_in_sums => Ok(None),
            _ => self.uuid(work).map(Some),
        }
    }

    /// The UUID of contents that were all told of, but for those that lie in inodes.
    pub(super) fn uuid_after(&self, sums: &Sums, work: &Work<'_>) -> Result<[u8; 16]> {
        let Some(NewUuid::OfContents(identify)) = &self.options.uuid else { return self.uuid(work) };
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

    /// Reads them once, piece by piece, for what follows from them. The file system is made of the same contents: if they have
    /// changed when they are copied, writing it fails.
    ///
    /// # Errors
    /// Errors of the host and of `each`; `InvalidData` for contents that changed since they were first read.
    pub fn read(&self, cpu: Cpu, buffer: &mut [u8], each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let opened = self.0.open()?;
        let crc = Crc32c::new(cpu);
        let (mut at, mut register) = (0, 0);
        while at < self.0.size {
            let len = usize_of(self.0.size - at).min(buffer.len());
            let piece = &mut buffer[..len];
            opened.read_at(piece, at)?;
            register = crc.update(register, piece);
            each(piece)?;
            at += u64_of(len);
        }
        match self.0.reading.agrees(register) {
            true => Ok(()),
            false => Err(self.0.changed()),
        }
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
