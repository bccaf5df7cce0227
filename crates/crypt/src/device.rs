//! The mapping as a block device over a block device.

use std::io;

use casemate_blockdev::BlockDevice;

use crate::{Error, SectorCipher};

/// How much is encrypted at once on the way to the device below.
const CHUNK: usize = 256 * 1024;

/// A device whose contents are encrypted on the device below.
///
/// Reads and writes may begin and end anywhere; sectors that a write covers only in part are read, changed and
/// written back, so writers to parts of one sector must take turns.
#[derive(Debug)]
pub struct CryptDevice<D> {
    inner: D,
    cipher: SectorCipher,
    size: u64,
}

impl<D: BlockDevice> CryptDevice<D> {
    /// The whole of `inner`, decrypted by `cipher`. For an offset, give a window of the device below.
    ///
    /// # Errors
    /// `Argument` if `inner` is no multiple of the sector size.
    pub fn new(inner: D, cipher: SectorCipher) -> Result<CryptDevice<D>, Error> {
        let size = inner.size();
        if !size.is_multiple_of(cipher.sector_size() as u64) {
            let text = format!("{size} bytes are no multiple of the sector size {}", cipher.sector_size());
            return Err(Error::Argument(text));
        }
        Ok(CryptDevice { inner, cipher, size })
    }

    /// The cipher, for its name and its state.
    pub fn cipher(&self) -> &SectorCipher {
        &self.cipher
    }

    fn sector_size(&self) -> u64 {
        self.cipher.sector_size() as u64
    }

    /// The whole sector around `offset`, decrypted.
    fn sector_at(&self, offset: u64) -> io::Result<(u64, Vec<u8>)> {
        let start = offset - offset % self.sector_size();
        let mut sector = vec![0; self.cipher.sector_size()];
        self.inner.read_at(&mut sector, start)?;
        self.cipher.decrypt(start / 512, &mut sector).map_err(io::Error::other)?;
        Ok((start, sector))
    }

    fn check(&self, len: usize, offset: u64) -> io::Result<()> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.size) {
            let text = format!("{len} bytes at {offset} pass the end of the device at {}", self.size);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        Ok(())
    }

    /// How many of the first bytes at `offset` lie in a sector that is not covered whole.
    fn head(&self, len: usize, offset: u64) -> usize {
        let into = offset % self.sector_size();
        let to_end = self.sector_size() - into;
        if into == 0 && len as u64 >= self.sector_size() { 0 } else { len.min(to_end as usize) }
    }
}

impl<D: BlockDevice> BlockDevice for CryptDevice<D> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        self.check(buf.len(), offset)?;
        while !buf.is_empty() {
            let head = self.head(buf.len(), offset);
            let len = if head > 0 { head } else { buf.len() - buf.len() % self.cipher.sector_size() };
            let (now, later) = buf.split_at_mut(len);
            if head > 0 {
                let (start, sector) = self.sector_at(offset)?;
                now.copy_from_slice(&sector[(offset - start) as usize..][..len]);
            } else {
                self.inner.read_at(now, offset)?;
                self.cipher.decrypt(offset / 512, now).map_err(io::Error::other)?;
            }
            buf = later;
            offset += len as u64;
        }
        Ok(())
    }

    fn write_at(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        self.check(buf.len(), offset)?;
        while !buf.is_empty() {
            let head = self.head(buf.len(), offset);
            let (start, mut data, len) = if head > 0 {
                let (start, mut sector) = self.sector_at(offset)?;
                sector[(offset - start) as usize..][..head].copy_from_slice(&buf[..head]);
                (start, sector, head)
            } else {
                let len = (buf.len() - buf.len() % self.cipher.sector_size()).min(CHUNK);
                (offset, buf[..len].to_vec(), len)
            };
            self.cipher.encrypt(start / 512, &mut data).map_err(io::Error::other)?;
            self.inner.write_at(&data, start)?;
            buf = &buf[len..];
            offset += len as u64;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::MemoryDevice;
    use casemate_primitives::Cpu;
    use casemate_providers::{Policy, Registry};
    use casemate_testkit::Rng;

    use super::*;
    use crate::Params;

    fn key() -> [u8; 64] {
        std::array::from_fn(|i| i as u8)
    }

    #[test]
    fn reads_and_writes_anywhere_agree_with_plain_memory() {
        let registry = Registry::new(Cpu::detect());
        for sector_size in [512, 4096] {
            let params = Params { sector_size, ..Params::new("aes-xts-plain64".parse().unwrap()) };
            let cipher = || SectorCipher::new(&params, &key(), &registry, &Policy::default()).unwrap();
            let size = 1 << 20;
            let mut model = vec![0; size];
            cipher().decrypt(0, &mut model).unwrap();
            let below = MemoryDevice::new(vec![0; size]);
            let device = CryptDevice::new(&below, cipher()).unwrap();
            let mut rng = Rng::new(sector_size as u64);
            for step in 0..500 {
                let offset = rng.below(size as u64) as usize;
                let most = if step % 10 == 0 { size } else { 9000 };
                let len = rng.below(1 + (size - offset).min(most) as u64) as usize;
                if rng.below(2) == 0 {
                    let data = rng.bytes(len);
                    device.write_at(&data, offset as u64).unwrap();
                    model[offset..offset + len].copy_from_slice(&data);
                } else {
                    let mut data = vec![0; len];
                    device.read_at(&mut data, offset as u64).unwrap();
                    assert!(data == model[offset..offset + len], "step {step}: {len} bytes at {offset}");
                }
            }
            assert!(device.read_at(&mut [0; 2], size as u64 - 1).is_err());
            assert!(device.write_at(&[0; 2], u64::MAX).is_err());
            cipher().encrypt(0, &mut model).unwrap();
            assert!(below.into_bytes() == model, "what lies below is the model's ciphertext");
        }
    }

    #[test]
    fn part_sectors_are_refused() {
        let params = Params { sector_size: 4096, ..Params::new("aes-xts-plain64".parse().unwrap()) };
        let registry = Registry::new(Cpu::detect());
        let cipher = SectorCipher::new(&params, &key(), &registry, &Policy::default()).unwrap();
        let error = CryptDevice::new(MemoryDevice::new(vec![0; 4097]), cipher).unwrap_err();
        assert_eq!(error.to_string(), "4097 bytes are no multiple of the sector size 4096");
    }
}
