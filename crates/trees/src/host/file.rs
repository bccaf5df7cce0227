//! Files of the host whose contents are read while others may change them.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;

use casemate_blockdev::{BlockDevice, Code, FileDevice};

use super::shorter;
use crate::Result;

/// A regular file of the host, with the size that it had when it was looked at. That it became shorter is told when it is read.
#[derive(Debug)]
pub struct HostFile {
    pub(super) file: FileDevice,
    pub(super) path: PathBuf,
    pub(super) size: u64,
    /// Whether the file has holes: only then the host is asked for them.
    pub(super) sparse: bool,
}

impl BlockDevice for HostFile {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.file)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(buf, offset).map_err(|error| match error.code() {
            Code::CutOff => shorter(&self.path),
            _ => error.at(self.path.display()),
        })
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>> {
        if self.sparse {
            return self.file.next_data(offset);
        }
        Ok((offset < self.size).then_some(offset..self.size))
    }
}
