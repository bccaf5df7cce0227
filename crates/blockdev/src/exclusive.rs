//! Files and block devices that one program changes at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::file::FileDevice;

impl FileDevice {
    /// Opens an existing file or block device for changes, and keeps others from doing the same while it is open:
    /// files are locked (flock), block devices are opened as the kernel's own users of them are (`O_EXCL`).
    ///
    /// # Errors
    /// `ResourceBusy` when another program has the lock, the kernel uses the device (it is mounted, say), or a
    /// loop device stands on the file.
    pub fn open_exclusive(path: impl AsRef<Path>) -> io::Result<FileDevice> {
        let path = path.as_ref();
        let busy = |what: &str| Err(io::Error::new(ErrorKind::ResourceBusy, what.to_owned()));
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if fs::metadata(path)?.file_type().is_block_device() {
            options.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        let file = match options.open(path) {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                return busy("the device is mounted or in use");
            }
            result => result?,
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return busy("another program is changing it"),
            result => result?,
        }
        if let Some(name) = loop_device(&file)? {
            return busy(&format!("/dev/{name} stands on it; unmount and detach that first"));
        }
        FileDevice::from_file(file)
    }
}

/// The loop device that stands on a file, if there is one.
fn loop_device(file: &File) -> io::Result<Option<String>> {
    let metadata = file.metadata()?;
    // Where there is no sysfs there is no loop device that we could see.
    let Ok(devices) = fs::read_dir("/sys/block") else { return Ok(None) };
    for device in devices.flatten() {
        let name = device.file_name().to_string_lossy().into_owned();
        if !name.starts_with("loop") {
            continue;
        }
        let Ok(backing) = fs::read_to_string(device.path().join("loop/backing_file")) else { continue };
        let same = fs::metadata(backing.trim_end_matches('\n'))
            .is_ok_and(|other| (other.dev(), other.ino()) == (metadata.dev(), metadata.ino()));
        if same {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let first = FileDevice::open_exclusive(file.path()).unwrap();
        let error = FileDevice::open_exclusive(file.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        assert!(FileDevice::open(file.path()).is_ok());
        drop(first);
        FileDevice::open_exclusive(file.path()).unwrap();
    }
}
