//! Devices that are read or written from one byte to the next, as streams are.

use std::io::{self, Read, Write};
use std::ops::Range;

use crate::device::BlockDevice;
use crate::number::{u64_of, usize_of};

/// Bytes of a device, one after the other. Behind the last one nothing is read, and nothing can be written.
pub struct Sequential<'a> {
    device: &'a dyn BlockDevice,
    left: Range<u64>,
}

impl<'a> Sequential<'a> {
    /// These bytes, as far as the device has them.
    pub fn new(device: &'a dyn BlockDevice, bytes: Range<u64>) -> Sequential<'a> {
        let end = bytes.end.min(device.size());
        Sequential { device, left: bytes.start.min(end)..end }
    }

    /// Moves on by as many bytes of a buffer as are left; returns where they begin, and how many they are.
    fn take(&mut self, wanted: usize) -> (u64, usize) {
        let at = self.left.start;
        let len = usize_of((self.left.end - at).min(u64_of(wanted)));
        self.left.start += u64_of(len);
        (at, len)
    }
}

impl Read for Sequential<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (at, len) = self.take(buf.len());
        self.device.read_at(&mut buf[..len], at)?;
        Ok(len)
    }
}

impl Write for Sequential<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let (at, len) = self.take(buf.len());
        if len == 0 && !buf.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("the data do not end before byte {at}"),
            ));
        }
        self.device.write_at(&buf[..len], at)?;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn bytes_come_and_go_in_their_order() {
        let device = MemoryDevice::new((0..100).collect());
        let mut read = Vec::new();
        Sequential::new(&device, 90..200).read_to_end(&mut read).unwrap();
        assert_eq!(read, (90..100).collect::<Vec<u8>>());
        let mut some = Sequential::new(&device, 10..14);
        some.write_all(&[1, 2, 3]).unwrap();
        assert_eq!(some.write_all(&[4, 5]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let mut bytes = [0; 6];
        device.read_at(&mut bytes, 9).unwrap();
        assert_eq!(bytes, [9, 1, 2, 3, 4, 14]);
        assert_eq!(Sequential::new(&device, 200..300).read(&mut bytes).unwrap(), 0);
    }
}
