//! Where the contents of files come from that are still to be copied.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use casemate_blockdev::{BlockDevice, u64_of};
use casemate_trees::host::Unread;

use crate::error::{Error, Result};
use crate::number::within;

/// Contents of a regular file.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    /// Their length in bytes.
    pub size: u64,
    /// Byte ranges that are no holes: in order, within the size. Everything if `None`.
    pub ranges: Option<Vec<Range<u64>>>,
    pub from: Source,
    pub reading: FirstReading,
}

/// Sum of contents that were read before they are copied, because something that is written follows from them. What is
/// copied has the same sum, or is refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstReading(Arc<OnceLock<u32>>);

impl FirstReading {
    /// Whether these contents are the same as those that were read first, which they may be.
    pub fn agrees(&self, sum: u32) -> bool {
        *self.0.get_or_init(|| sum) == sum
    }

    /// Whether anybody has read the contents.
    pub fn was_made(&self) -> bool {
        self.0.get().is_some()
    }
}

/// Where bytes lie.
#[derive(Clone)]
pub(crate) enum Source {
    /// A file of the host.
    Host(Unread),
    /// The ranges that are no holes, one after the other from this byte of a device on.
    Within(Arc<dyn BlockDevice>, u64),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Host(file) => file.fmt(f),
            Source::Within(_, at) => write!(f, "byte {at} of a device"),
        }
    }
}

impl Contents {
    /// Ranges that are no holes.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let whole = Some(0..self.size).filter(|whole| self.ranges.is_none() && !whole.is_empty());
        whole.into_iter().chain(self.ranges.iter().flatten().cloned())
    }

    /// The contents, to be read.
    ///
    /// # Errors
    /// Errors of the host; `InvalidData` if the file changed.
    pub fn open(&self) -> Result<Opened> {
        let device: Arc<dyn BlockDevice> = match &self.from {
            Source::Host(file) => Arc::new(file.open(self.size)?),
            Source::Within(device, _) => Arc::clone(device),
        };
        Ok(Opened { contents: self.clone(), device })
    }

    /// The error for contents that are others than when they were read first.
    pub fn changed(&self) -> Error {
        match &self.from {
            Source::Host(file) => file.changed(),
            Source::Within(_, at) => {
                let text = format!(
                    "the file of a tar archive whose contents begin at byte {at} changed while it was copied"
                );
                Error::path(std::io::ErrorKind::InvalidData, text)
            }
        }
    }
}

/// Contents of a file that are read.
pub(crate) struct Opened {
    contents: Contents,
    device: Arc<dyn BlockDevice>,
}

impl BlockDevice for Opened {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&*self.device)
    }

    fn size(&self) -> u64 {
        self.contents.size
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let Source::Within(_, mut at) = self.contents.from else {
            return self.device.read_at(buf, offset);
        };
        buf.fill(0);
        let end = offset + u64_of(buf.len());
        for range in self.contents.ranges() {
            let (from, to) = (range.start.max(offset), range.end.min(end));
            if from < to {
                let part = &mut buf[within(from..to, offset)];
                self.device.read_at(part, at + (from - range.start))?;
            }
            at += range.end - range.start;
        }
        Ok(())
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
