//! The mapping's device: plaintext above, ciphertext on the device below.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use casemate_blockdev::target::holds_data;
use casemate_blockdev::{BlockDevice, u64_of, usize_of};
use casemate_providers::Direction;

use crate::{Error, Result, SectorCipher};

/// Bytes that are encrypted at once on their way to the device below.
const CHUNK: usize = 256 * 1024;

/// A device whose contents are encrypted on the device below.
///
/// Reads and writes may begin and end anywhere, from any thread. Sectors that a write covers only in part are read,
/// changed and written back while nobody else reads or writes: a sector has one ciphertext, which is never seen half
/// changed by those who asked for its other bytes.
///
/// Holes below are not zeros here, so everything is data.
#[derive(Debug)]
pub struct CryptDevice<D> {
    inner: D,
    cipher: SectorCipher,
    size: u64,
    allow_discards: bool,
    /// Held alone while a part of a sector is changed, together by everybody else.
    changing: RwLock<()>,
    counters: Counters,
}

/// Counters of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CryptStatistics {
    /// Calls of the cipher.
    pub calls: u64,
    /// Sectors that went through the cipher together with others.
    pub batched_units: u64,
    /// Sectors that went through the cipher alone.
    pub single_units: u64,
    /// Bytes that went through the cipher.
    pub bytes: u64,
    /// Time spent in the cipher, all threads together.
    pub cipher_time: Duration,
}

#[derive(Debug, Default)]
struct Counters {
    calls: AtomicU64,
    batched_units: AtomicU64,
    single_units: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl<D: BlockDevice> CryptDevice<D> {
    /// The device `inner` as `cipher` decrypts it, from its first sector on. For an offset, give a window of it.
    ///
    /// # Errors
    /// `Argument` if `inner` is not a multiple of the sector size.
    pub fn new(inner: D, cipher: SectorCipher) -> Result<CryptDevice<D>, Error> {
        let size = inner.size();
        if !size.is_multiple_of(u64_of(cipher.sector_size())) {
            let text = format!("{size} bytes are not a multiple of the sector size {}", cipher.sector_size());
            return Err(Error::argument(text));
        }
        let (changing, counters) = (RwLock::default(), Counters::default());
        Ok(CryptDevice { inner, cipher, size, allow_discards: false, changing, counters })
    }

    /// Passes discards down, as dm-crypt's `allow_discards` does. The device below then shows which sectors
    /// are in use.
    pub fn allowing_discards(mut self) -> CryptDevice<D> {
        self.allow_discards = true;
        self
    }

    /// The mapping's cipher, for its name and its state.
    pub fn cipher(&self) -> &SectorCipher {
        &self.cipher
    }

    /// The mapping's counters so far.
    pub fn statistics(&self) -> CryptStatistics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CryptStatistics {
            calls: get(&self.counters.calls),
            batched_units: get(&self.counters.batched_units),
            single_units: get(&self.counters.single_units),
            bytes: get(&self.counters.bytes),
            cipher_time: Duration::from_nanos(get(&self.counters.nanoseconds)),
        }
    }

    fn sector_size(&self) -> u64 {
        u64_of(self.cipher.sector_size())
    }

    fn run(&self, direction: Direction, offset: u64, data: &mut [u8]) -> Result<()> {
        let start = Instant::now();
        self.cipher.run(direction, offset / 512, data)?;
        let add = |counter: &AtomicU64, count| counter.fetch_add(count, Ordering::Relaxed);
        let units = u64_of(data.len()) / self.sector_size();
        if units > 1 && self.cipher.batches_sectors() {
            add(&self.counters.calls, 1);
            add(&self.counters.batched_units, units);
        } else {
            add(&self.counters.calls, units);
            add(&self.counters.single_units, units);
        }
        add(&self.counters.bytes, u64_of(data.len()));
        add(&self.counters.nanoseconds, u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        Ok(())
    }

    /// The whole sector around `offset`, decrypted.
    fn sector_at(&self, offset: u64) -> Result<(u64, Vec<u8>)> {
        let start = offset - offset % self.sector_size();
        let mut sector = vec![0; self.cipher.sector_size()];
        self.inner.read_at(&mut sector, start)?;
        self.run(Direction::Decrypt, start, &mut sector)?;
        Ok((start, sector))
    }

    /// Encrypts and writes whole sectors.
    fn write_whole(&self, data: &mut [u8], offset: u64) -> Result<()> {
        self.run(Direction::Encrypt, offset, data)?;
        let _together = self.changing.read().unwrap_or_else(PoisonError::into_inner);
        self.inner.write_from(data, offset)
    }

    /// Writes a part of one sector.
    fn write_part(&self, part: &[u8], offset: u64) -> Result<()> {
        let _alone = self.changing.write().unwrap_or_else(PoisonError::into_inner);
        let (start, mut sector) = self.sector_at(offset)?;
        sector[usize_of(offset - start)..][..part.len()].copy_from_slice(part);
        self.run(Direction::Encrypt, start, &mut sector)?;
        self.inner.write_from(&mut sector, start)
    }

    fn check(&self, len: u64, offset: u64) -> Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.size) {
            let text = format!("{len} bytes at {offset} pass the end of the device at {}", self.size);
            return Err(Error::path(io::ErrorKind::UnexpectedEof, text));
        }
        Ok(())
    }

    /// The next piece at `offset`: how many bytes, and whether they are whole sectors.
    fn piece(&self, len: usize, offset: u64) -> (usize, bool) {
        let into = offset % self.sector_size();
        if into == 0 && u64_of(len) >= self.sector_size() {
            (len - len % self.cipher.sector_size(), true)
        } else {
            (len.min(usize_of(self.sector_size() - into)), false)
        }
    }
}

impl<D: BlockDevice> BlockDevice for CryptDevice<D> {
    fn below(&self) -> Option<&dyn BlockDevice> {
        Some(&self.inner)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn is_unwritten(&self) -> Result<bool> {
        Ok(!holds_data(&self.inner, 0..self.inner.size())?)
    }

    fn read_at(&self, mut buf: &mut [u8], mut offset: u64) -> Result<()> {
        self.check(u64_of(buf.len()), offset)?;
        while !buf.is_empty() {
            let (len, whole) = self.piece(buf.len(), offset);
            let (now, later) = buf.split_at_mut(len);
            let together = self.changing.read().unwrap_or_else(PoisonError::into_inner);
            if whole {
                self.inner.read_at(now, offset)?;
                drop(together);
                self.run(Direction::Decrypt, offset, now)?;
            } else {
                let (start, sector) = self.sector_at(offset)?;
                now.copy_from_slice(&sector[usize_of(offset - start)..][..len]);
            }
            buf = later;
            offset += u64_of(len);
        }
        Ok(())
    }

    fn write_at(&self, mut buf: &[u8], mut offset: u64) -> Result<()> {
        self.check(u64_of(buf.len()), offset)?;
        while !buf.is_empty() {
            let (len, whole) = self.piece(buf.len(), offset);
            let len = if whole { len.min(CHUNK) } else { len };
            match whole {
                true => self.write_whole(&mut buf[..len].to_vec(), offset)?,
                false => self.write_part(&buf[..len], offset)?,
            }
            buf = &buf[len..];
            offset += u64_of(len);
        }
        Ok(())
    }

    fn write_from(&self, mut buf: &mut [u8], mut offset: u64) -> Result<()> {
        self.check(u64_of(buf.len()), offset)?;
        while !buf.is_empty() {
            let (len, whole) = self.piece(buf.len(), offset);
            let (now, later) = buf.split_at_mut(len);
            match whole {
                true => self.write_whole(now, offset)?,
                false => self.write_part(now, offset)?,
            }
            buf = later;
            offset += u64_of(len);
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check(len, offset)?;
        let start = offset.next_multiple_of(self.sector_size());
        let end = (offset + len) / self.sector_size() * self.sector_size();
        if self.allow_discards && start < end { self.inner.discard(start, end - start) } else { Ok(()) }
    }

    fn can_discard(&self) -> bool {
        self.allow_discards && self.inner.can_discard()
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn forget_cached(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.forget_cached(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use casemate_blockdev::MemoryDevice;
    use casemate_providers::Providers;
    use casemate_testkit::Rng;

    use super::*;
    use crate::Params;

    fn key() -> [u8; 64] {
        std::array::from_fn(|i| i as u8)
    }

    #[test]
    fn reads_and_writes_anywhere_agree_with_plain_memory() {
        let providers = Providers::default();
        for sector_size in [512, 4096] {
            let params = Params { sector_size, ..Params::new("aes-xts-plain64".parse().unwrap()) };
            let cipher = || SectorCipher::new(&params, &key(), &providers).unwrap();
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
                    match step % 3 {
                        0 => device.write_at(&data, offset as u64).unwrap(),
                        _ => device.write_from(&mut data.clone(), offset as u64).unwrap(),
                    }
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

    /// Threads change their own bytes of the same sectors while another reads; a wide-block cipher makes noise of a
    /// whole sector if one is seen half changed.
    #[test]
    fn parts_of_a_sector_can_be_written_at_once() {
        let params =
            Params { sector_size: 4096, ..Params::new("xchacha12,aes-adiantum-plain64".parse().unwrap()) };
        let providers = Providers::default();
        let cipher = SectorCipher::new(&params, &key()[..32], &providers).unwrap();
        let device = CryptDevice::new(MemoryDevice::new(vec![0; 1 << 16]), cipher).unwrap();
        device.write_at(&[9; 1 << 16], 0).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let device = &device;
                scope.spawn(move || {
                    for round in 0..8 {
                        for part in (usize::from(thread)..64).step_by(5) {
                            device.write_at(&[thread + round; 1024], part as u64 * 1024).unwrap();
                        }
                    }
                });
            }
            for _ in 0..50 {
                let mut untouched = [0; 1024];
                device.read_at(&mut untouched, 4 * 1024).unwrap();
                assert!(untouched == [9; 1024]);
            }
        });
        for part in 0..64 {
            let mut found = [0; 1024];
            device.read_at(&mut found, part * 1024).unwrap();
            let thread = part % 5;
            assert!(found == [if thread < 4 { thread as u8 + 7 } else { 9 }; 1024], "part {part}");
        }
        let statistics = device.statistics();
        assert_eq!(statistics.bytes, (statistics.batched_units + statistics.single_units) * 4096);
    }

    #[test]
    fn discards_are_passed_down_only_where_that_is_allowed() {
        #[derive(Default)]
        struct Below(std::sync::Mutex<Vec<(u64, u64)>>);
        impl BlockDevice for Below {
            fn below(&self) -> Option<&dyn BlockDevice> {
                None
            }
            fn size(&self) -> u64 {
                1 << 16
            }
            fn read_at(&self, _: &mut [u8], _: u64) -> Result<()> {
                Ok(())
            }
            fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
                Ok(())
            }
            fn discard(&self, offset: u64, len: u64) -> Result<()> {
                self.0.lock().unwrap().push((offset, len));
                Ok(())
            }
            fn can_discard(&self) -> bool {
                true
            }
            fn flush(&self) -> Result<()> {
                Ok(())
            }
        }
        let below = Below::default();
        let params = Params { sector_size: 4096, ..Params::new("aes-xts-plain64".parse().unwrap()) };
        let providers = Providers::default();
        let cipher = || SectorCipher::new(&params, &key(), &providers).unwrap();
        let device = CryptDevice::new(&below, cipher()).unwrap();
        device.discard(0, 8192).unwrap();
        assert!(!device.can_discard());
        let device = CryptDevice::new(&below, cipher()).unwrap().allowing_discards();
        device.discard(100, 8192).unwrap();
        device.discard(100, 4096).unwrap();
        assert!(device.can_discard() && device.discard(1 << 16, 1).is_err());
        assert_eq!(below.0.into_inner().unwrap(), [(4096, 4096)]);
    }

    #[test]
    fn part_sectors_are_refused() {
        let params = Params { sector_size: 4096, ..Params::new("aes-xts-plain64".parse().unwrap()) };
        let providers = Providers::default();
        let cipher = SectorCipher::new(&params, &key(), &providers).unwrap();
        let error = CryptDevice::new(MemoryDevice::new(vec![0; 4097]), cipher).unwrap_err();
        assert_eq!(error.to_string(), "4097 bytes are not a multiple of the sector size 4096");
    }
}
