//! Copies of what can be read of damaged devices.
//!
//! [`Image::rescue`] copies what the topmost device shows, and goes on behind what can't be read: sectors that give errors, blocks
//! whose tag or digest is wrong. Zeros stand in their place, and [`Rescued`] says where. [`Image::without_unread`] lets areas count as
//! unreadable that a GNU ddrescue map does not call read.

use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::{AtFile, BlockDevice, Buffer, DamageMap, Unread, name_all, u64_of, usize_of};
use casemate_providers::Work;

pub use casemate_blockdev::{LARGEST_MAP, RescueMap, Salvage};

use crate::image::Layer;
use crate::target::{Consent, Made};
use crate::{Error, Image, Output};

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// A copy, and what it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescued {
    /// Bytes of the copy.
    pub bytes: u64,
    /// Ranges that could not be read, in order and apart: they are zeros.
    pub lost: Vec<Range<u64>>,
    /// Ranges that were copied and could not be checked, in order and apart: the tags of dm-integrity do not fit, and were still to
    /// be computed. Where other layers lie above it is not known which bytes these are: then it is all.
    pub unchecked: Vec<Range<u64>>,
    /// Whether a journal of dm-integrity could not be read: blocks in it may be newer than those of the copy, anywhere.
    pub has_unread_journal: bool,
}

impl Rescued {
    /// Whether the copy is all that the device has, as far as is known.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.unchecked.is_empty() && !self.has_unread_journal
    }

    /// Bytes that could not be read.
    pub fn lost_bytes(&self) -> u64 {
        self.lost.iter().map(|range| range.end - range.start).sum()
    }

    /// Bytes that were copied and could not be checked.
    pub fn unchecked_bytes(&self) -> u64 {
        self.unchecked.iter().map(|range| range.end - range.start).sum()
    }

    /// The map of the copy, for GNU ddrescue: what could not be checked is bad there, too.
    pub fn map(&self) -> RescueMap {
        let mut bad = DamageMap::default();
        self.lost.iter().chain(&self.unchecked).for_each(|range| bad.add(range.clone()));
        RescueMap::of_lost(self.bytes, &bad.ranges())
    }
}

impl Image {
    /// The image, of which what a map does not call read can't be read. The map is of the whole file or block device. Nor can what is
    /// missing be read: the end of a partition that passes the end of the file ([`Image::partition_so_far`]), and areas that the map
    /// has behind it, whatever it calls them.
    #[must_use]
    pub fn without_unread(self, map: Option<&RescueMap>) -> Image {
        let (device, start) = (self.device(), self.start());
        let there = device.size();
        let size = match self.as_ref().missing() {
            Some(missing) => there.saturating_add(missing),
            None => map.map_or(0, |map| map.end().saturating_sub(start)).max(there),
        };
        let end = start.saturating_add(there);
        let unread = map.map(|map| map.unread(end)).unwrap_or_default().into_iter();
        let ranges = unread.filter(|range| range.end > start);
        let ranges: Vec<_> =
            ranges.map(|range| range.start.saturating_sub(start)..range.end - start).collect();
        if ranges.is_empty() && size == there {
            return self;
        }
        let medium = self.as_ref().clone().shown_as(Arc::new(Unread::new(device, ranges, size)));
        self.with_medium(medium)
    }

    /// The topmost device, whose damage reads as zeros, and is remembered.
    pub fn salvage(&self) -> Salvage<Arc<dyn BlockDevice>> {
        let granule = match self.topmost() {
            Some(Layer::Integrity(device) | Layer::Protected(device)) => device.superblock().block_size(),
            Some(Layer::Verity(device)) => device.data_block_size(),
            _ => 512,
        };
        Salvage::new(self.device(), granule)
    }

    /// Copies what can be read of the topmost device to a file or block device; a new file gets its name at the end. It must be
    /// none of `others`. When the copy is complete, `beside` writes a file that belongs to it, such as a map, which gets its name just
    /// before the copy does.
    ///
    /// # Errors
    /// Anything but damage; whatever the consent says if the target holds something; `Io` of the target; whatever `beside` says.
    pub fn rescue(
        &self,
        target: &Path,
        others: &[&Path],
        consent: Consent<'_>,
        work: &Work<'_>,
        beside: impl FnOnce(&Rescued) -> Result<Option<Output>, Error>,
    ) -> Result<Rescued, Error> {
        self.remember_unknown();
        let source = self.salvage();
        let made = Made::copy_of(&source).at(self.name())?;
        let output = Output::create_anew(target, others, Some(made), consent)?;
        output.narrow(self.copy_mode());
        let Some(to) = output.device() else {
            let mut output = output;
            copy(&source, self.name(), (&target.display().to_string(), &mut output), work)?;
            // Its reader waits for the end.
            output.commit()?;
            let rescued = self.rescued(&source);
            name_all(beside(&rescued)?.into_iter().collect(), &[])?;
            return Ok(rescued);
        };
        let size = source.size();
        work.pool.run(size.div_ceil(PIECE), Buffer::default, |buffer: &mut Buffer, piece| {
            let offset = piece * PIECE;
            // At most a MiB.
            buffer.resize(usize_of(PIECE.min(size - offset)));
            source.read_at(buffer, offset).at(self.name())?;
            to.write_at(buffer, offset).at(target.display())?;
            work.events.advance(u64_of(buffer.len()))
        })?;
        let rescued = self.rescued(&source);
        name_all(beside(&rescued)?.into_iter().chain([output]).collect(), &[])?;
        Ok(rescued)
    }

    /// Copies what can be read of the topmost device to a stream, which comes with its name for errors.
    ///
    /// # Errors
    /// Errors of [`Image::rescue`].
    pub fn rescue_stream(&self, to: (&str, &mut dyn Write), work: &Work<'_>) -> Result<Rescued, Error> {
        self.remember_unknown();
        let source = self.salvage();
        copy(&source, self.name(), to, work)?;
        Ok(self.rescued(&source))
    }

    fn remember_unknown(&self) {
        for layer in self.layers() {
            if let Layer::Integrity(device) | Layer::Protected(device) = layer {
                device.remember_unknown();
            }
        }
    }

    #[expect(clippy::single_range_in_vec_init, reason = "a list of ranges that has one")]
    fn rescued(&self, source: &Salvage<Arc<dyn BlockDevice>>) -> Rescued {
        let (bytes, lost) = (source.size(), source.lost());
        let mut unchecked = Vec::new();
        for (above, layer) in self.layers().iter().rev().enumerate() {
            let (Layer::Integrity(device) | Layer::Protected(device)) = layer else { continue };
            match device.unknown() {
                unknown if above == 0 => unchecked = unknown,
                unknown if unknown.is_empty() || bytes == 0 => {}
                _ => unchecked = vec![0..bytes],
            }
        }
        Rescued { bytes, lost, unchecked, has_unread_journal: self.has_unread_journal() }
    }
}

/// Copies a device to a stream.
fn copy(
    source: &dyn BlockDevice,
    name: &str,
    (to_name, to): (&str, &mut dyn Write),
    work: &Work<'_>,
) -> Result<(), Error> {
    let mut buffer = Buffer::default();
    let size = source.size();
    let mut offset = 0;
    while offset < size {
        // At most a MiB.
        buffer.resize(usize_of(PIECE.min(size - offset)));
        source.read_at(&mut buffer, offset).at(name)?;
        to.write_all(&buffer).map_err(|error| Error::io(to_name, error))?;
        work.events.advance(u64_of(buffer.len()))?;
        offset += u64_of(buffer.len());
    }
    Ok(())
}
