//! Places that new things are made on: looked at before anything in them is lost.
//!
//! [`Target`] is the only way to get a medium that a new volume, file system or copy is written to, and it is made by looking
//! at what is there. Whether that may be lost is asked of a [`Consent`]: [`refuse`], [`overwrite`], or a function that asks a
//! person. An ordinary file that replaces another looks in the same way at what was there.
//!
//! - Nothing, zeros and holes are free.
//! - A regular file is replaced without a question if it holds nothing known, or a file system or an archive of the kind that
//!   is made: another run of the same command. So is a hash area of dm-verity, wherever it lies, by another one.
//! - Everything else is asked for: volumes, members of arrays, partition tables and other file systems; on block devices, in
//!   partitions and in parts of files whatever is not zeros, wherever it lies ([`holds_data`]).
//! - A part of a file or device belongs to what begins before it, zeros too, unless a partition begins with it
//!   ([`Medium::enclosing`]).

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::ops::{Deref, Range};
use std::path::Path;

use crate::os::FileTypeExt;
use crate::signatures::{self, Held};
use crate::{Access, AtFile, BlockDevice, Error, FileDevice, Medium, u64_of, usize_of};

/// A medium, or an image that is one, that something new is made on. What it held was looked at, and may be lost.
#[derive(Clone, Debug)]
pub struct Target<M = Medium>(M);

/// Contents that would be lost.
#[derive(Clone, Debug)]
pub struct Loss {
    name: String,
    what: Cow<'static, str>,
}

/// Decision whether contents may be lost: an error says that they may not.
pub type Consent<'a> = &'a dyn Fn(&Loss) -> Result<(), Error>;

/// Kind of what is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// Contents that [`signatures`] know by this name.
    Known(&'static str),
    /// Data without a signature: ciphertext, parity.
    Data,
}

/// Consent that is never given.
///
/// # Errors
/// `Argument`: what would be lost, and where.
pub fn refuse(loss: &Loss) -> Result<(), Error> {
    Err(Error::argument(loss.to_string()))
}

/// Consent that is always given.
///
/// # Errors
/// None.
pub fn overwrite(_: &Loss) -> Result<(), Error> {
    Ok(())
}

impl Made {
    /// The kind of a copy of a device.
    ///
    /// # Errors
    /// `Io`.
    pub fn copy_of(device: &dyn BlockDevice) -> Result<Made, Error> {
        Ok(signatures::device(device)?.map_or(Made::Data, Made::Known))
    }
}

impl<M: AsRef<Medium>> Target<M> {
    /// An image that is written in place: a device, a partition, a part of a file, a whole file that stays the same file.
    ///
    /// # Errors
    /// `Io`; errors of the consent.
    pub fn on(image: M, made: Made, consent: Consent<'_>) -> Result<Target<M>, Error> {
        look_in_place(image.as_ref(), made, consent)?;
        Ok(Target(image))
    }

    /// The image.
    pub fn into_image(self) -> M {
        self.0
    }
}

impl<M: AsRef<Medium> + From<Medium>> Target<M> {
    /// A file that takes the place of a regular file when it is whole, or a block device, which is written in place.
    ///
    /// # Errors
    /// Errors of [`Medium::replace`] and [`Medium::open`]; errors of the consent.
    pub fn anew(path: impl AsRef<Path>, made: Made, consent: Consent<'_>) -> Result<Target<M>, Error> {
        let path = path.as_ref();
        let image = match is_block_device(path) {
            true => Medium::open(path, Access::Change)?,
            false => Medium::replace(path)?,
        };
        look_at_path(path, Some(made), consent)?;
        Ok(Target(image.into()))
    }

    /// A file that its owner alone can read, or a block device: see [`Target::anew`].
    ///
    /// # Errors
    /// Errors of [`Target::anew`].
    pub fn anew_private(
        path: impl AsRef<Path>,
        made: Made,
        consent: Consent<'_>,
    ) -> Result<Target<M>, Error> {
        let path = path.as_ref();
        let image = match is_block_device(path) {
            true => Medium::open(path, Access::Change)?,
            false => {
                let medium = Medium::replace(path)?;
                medium.narrow(0o600);
                medium
            }
        };
        look_at_path(path, Some(made), consent)?;
        Ok(Target(image.into()))
    }

    /// A file or a block device that is written in place, or a new file where there is none ([`Medium::create`]).
    ///
    /// # Errors
    /// Errors of [`Medium::create`]; errors of the consent.
    pub fn create(path: impl AsRef<Path>, made: Made, consent: Consent<'_>) -> Result<Target<M>, Error> {
        let image = Medium::create(path)?;
        match image.is_new() {
            true => Ok(Target(image.into())),
            false => Target::on(image.into(), made, consent),
        }
    }
}

/// A target is read and changed as what it was made of.
impl<M> Deref for Target<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.0
    }
}

impl<M: AsRef<Medium>> AsRef<Medium> for Target<M> {
    fn as_ref(&self) -> &Medium {
        self.0.as_ref()
    }
}

impl Loss {
    /// A loss of what a place contains, such as "a LUKS header".
    pub fn new(name: impl Into<String>, what: impl Into<Cow<'static, str>>) -> Loss {
        Loss { name: name.into(), what: what.into() }
    }

    /// The place that would lose something.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The contents that would be lost, such as "a LUKS header".
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: contains {}, which would be lost", self.name, self.what)
    }
}

/// Looks at what a path leads to, which is going to be replaced if it is a regular file.
///
/// # Errors
/// `Io`; errors of the consent.
pub fn look_at_path(path: &Path, made: Option<Made>, consent: Consent<'_>) -> Result<(), Error> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    let is_file = metadata.is_file();
    if !is_file && !metadata.file_type().is_block_device() {
        // A pipe, a terminal, /dev/null: nothing is kept there.
        return Ok(());
    }
    let device = FileDevice::open(path).at(path.display())?;
    // An ordinary file on a device has no more to do with what is there than on any other.
    let is_replaced = is_file || made.is_none();
    let name = path.display().to_string();
    match is_replaced {
        true => look(&name, &device, made.unwrap_or(Made::Data), true, consent),
        false => look_at_all(&name, &device, made.unwrap_or(Made::Data), consent),
    }
}

/// Whether a path leads to a block device.
pub fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Contents without a signature.
pub const UNKNOWN: &str = "data of no known kind";

/// Asks for consent if some of these bytes of a device are there and are not zeros.
///
/// # Errors
/// `Io`; whatever the consent says.
pub fn look_at_bytes(
    name: &str,
    device: &dyn BlockDevice,
    bytes: Range<u64>,
    consent: Consent<'_>,
) -> Result<(), Error> {
    match search(device, bytes, u64::MAX).at(name)? {
        Search::Data => consent(&Loss::new(name, UNKNOWN)),
        Search::Zeros | Search::Stopped(_) => Ok(()),
    }
}

/// Whether some of these bytes of a device are not zeros. The first GiB that is stored is read, holes not counted; of what lies
/// behind it 4096 places of 64 KiB, the last bytes among them: disks of terabytes are looked at, too.
///
/// # Errors
/// `Io`.
pub fn holds_data(device: &dyn BlockDevice, bytes: Range<u64>) -> Result<bool, Error> {
    let end = bytes.end.min(device.size());
    let from = match search(device, bytes, READ_WHOLE)? {
        Search::Data => return Ok(true),
        Search::Zeros => return Ok(false),
        Search::Stopped(at) => at,
    };
    let step = ((end - from) / PLACES).max(PLACE);
    let last = end.saturating_sub(PLACE).max(from);
    let places =
        (0..PLACES).map_while(|nth| from.checked_add(nth.checked_mul(step)?)).take_while(|at| *at < last);
    for at in places.chain([last]) {
        if matches!(search(device, at..end.min(at.saturating_add(PLACE)), u64::MAX)?, Search::Data) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Bytes of zeros that are read one after the other before places are picked.
const READ_WHOLE: u64 = 1 << 30;
/// Places that are picked, and the bytes of each.
const PLACES: u64 = 4096;
const PLACE: u64 = 64 << 10;

/// Result of a search for bytes that are not zeros.
enum Search {
    Data,
    Zeros,
    /// As many zeros as were to be read, up to this byte.
    Stopped(u64),
}

/// Reads bytes of a device until one is not zero, or `most` were read.
fn search(device: &dyn BlockDevice, bytes: Range<u64>, most: u64) -> Result<Search, Error> {
    let mut buffer = Vec::new();
    let end = bytes.end.min(device.size());
    let (mut at, mut read) = (bytes.start, 0_u64);
    while at < end {
        if read >= most {
            return Ok(Search::Stopped(at));
        }
        let Some(data) = device.next_data(at)? else { break };
        let data = data.start.max(at)..data.end.min(end);
        if data.is_empty() {
            break;
        }
        buffer.resize(usize_of((data.end - data.start).min(1 << 20)), 0);
        device.read_at(&mut buffer, data.start)?;
        if buffer.iter().any(|byte| *byte != 0) {
            return Ok(Search::Data);
        }
        read += u64_of(buffer.len());
        at = data.start + u64_of(buffer.len());
    }
    Ok(Search::Zeros)
}

/// Looks at a medium that is written in place: at what it is a part of, and at all of it.
///
/// # Errors
/// `Io`; errors of the consent.
pub fn look_in_place(medium: &Medium, made: Made, consent: Consent<'_>) -> Result<(), Error> {
    let mut around = medium.enclosing(0..medium.top().size())?;
    // Bytes that nobody wrote under a cipher may be zeros of what lies below.
    if around.is_none() && medium.top().is_unwritten().at(medium.name())? {
        around = medium.enclosing_layer()?;
    }
    match around {
        Some(contents) => consent(&Loss::new(medium.name(), contents.what)),
        None => look_at_all(medium.name(), medium.top(), made, consent),
    }
}

/// Looks at a device that is written in place: at what it is ([`look`]), and at all of it where its beginning is empty.
fn look_at_all(name: &str, device: &dyn BlockDevice, made: Made, consent: Consent<'_>) -> Result<(), Error> {
    let is_empty = matches!(signatures::held(device).at(name)?, Held::Nothing);
    if is_empty && holds_data(device, 0..device.size()).at(name)? {
        return consent(&Loss::new(name, UNKNOWN));
    }
    look(name, device, made, false, consent)
}

/// Contents that begin at a device's first byte.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// Their name, as of [`signatures`].
    pub what: &'static str,
    /// Their end, where they say it and it is possible.
    pub end: Option<u64>,
}

impl Beginning {
    /// Whether they hold a byte behind their first, as far as they say. Contents that do not say where they end may reach
    /// anywhere, unless they are an archive.
    pub fn reaches(&self, at: u64) -> bool {
        at > 0 && self.end.map_or_else(|| !signatures::is_archive(self.what), |end| at < end)
    }
}

/// Contents that begin at a device's first byte, if they are known: not zeros, and not a hash area.
///
/// # Errors
/// `Io`.
pub fn beginning(device: &dyn BlockDevice) -> Result<Option<Beginning>, Error> {
    let what = signatures::device(device)?;
    let Some(what) = what.filter(|what| ![signatures::VERITY, signatures::ZEROS].contains(what)) else {
        return Ok(None);
    };
    let end = file_system_size(device, what)?.filter(|size| *size <= device.size());
    Ok(Some(Beginning { what, end }))
}

/// The one look: asks for consent if a device, which is a regular file that is replaced as a whole or not, holds what must
/// not be lost without it.
///
/// # Errors
/// `Io`; errors of the consent.
pub fn look(
    name: &str,
    device: &dyn BlockDevice,
    made: Made,
    is_replaced: bool,
    consent: Consent<'_>,
) -> Result<(), Error> {
    let what = match signatures::held(device).at(name)? {
        Held::Nothing => return Ok(()),
        Held::Unknown if is_replaced || device.is_unwritten().at(name)? => return Ok(()),
        Held::Unknown => UNKNOWN,
        Held::Known(what) if made == Made::Known(what) => match what {
            signatures::VERITY => return Ok(()),
            _ if is_replaced && signatures::is_made_again(what) => return Ok(()),
            _ => what,
        },
        Held::Known(what) => what,
    };
    consent(&Loss::new(name, what))
}

/// Bytes of a file system of a kind that says its size.
///
/// Sources: file systems that the mkfs programs make; the layouts of superblocks that Microsoft (FAT, exFAT) and the Linux kernel (ext4,
/// XFS, btrfs, EROFS, squashfs, NTFS) document.
fn file_system_size(device: &dyn BlockDevice, what: &str) -> Result<Option<u64>, Error> {
    // At most as far as the superblock of btrfs.
    let mut head = vec![0; usize_of(device.size().min(u64_of(signatures::HEAD)))];
    device.read_at(&mut head, 0)?;
    // A size that is less than a superblock needs is wrong, and the right one is not known.
    Ok(size_said(&head, what).filter(|size| *size >= SMALLEST_FILE_SYSTEM))
}

/// Bytes of the smallest file system: squashfs and EROFS fill blocks of this size.
pub const SMALLEST_FILE_SYSTEM: u64 = 4096;

fn size_said(head: &[u8], what: &str) -> Option<u64> {
    let number = |at: usize, len: usize| {
        let bytes = head.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)))
    };
    // The first byte is the highest.
    let big = |at: usize, len: usize| {
        Some(head.get(at..at + len)?.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)))
    };
    let power = |number: u64| 1_u64.checked_shl(u32::try_from(number).ok()?);
    match what {
        signatures::EXT | signatures::EXT_JOURNAL => {
            let has_high_half = number(1024 + 0x60, 4)? & 0x80 != 0;
            let high = if has_high_half { number(1024 + 0x150, 4)? } else { 0 };
            // A signature of ext has a size of blocks below 2^17.
            power(number(1024 + 24, 4)?.checked_add(10)?)?.checked_mul(high << 32 | number(1024 + 4, 4)?)
        }
        signatures::SQUASHFS => number(40, 8),
        signatures::FAT => {
            let sectors = number(19, 2).filter(|sectors| *sectors > 0).or_else(|| number(32, 4))?;
            number(11, 2)?.checked_mul(sectors)
        }
        // The copy of the first sector lies behind the sectors that are counted.
        signatures::NTFS => number(11, 2)?.checked_mul(number(0x28, 8)?.checked_add(1)?),
        signatures::EXFAT => power(number(108, 1)?)?.checked_mul(number(72, 8)?),
        signatures::XFS => big(4, 4)?.checked_mul(big(8, 8)?),
        // Of this device, one of perhaps several.
        signatures::BTRFS => number((64 << 10) + 0xd1, 8),
        // Told in both orders of bytes.
        signatures::ISO => {
            let blocks = number(0x8000 + 80, 4).filter(|blocks| big(0x8000 + 84, 4) == Some(*blocks))?;
            number(0x8000 + 128, 2)?.checked_mul(blocks)
        }
        signatures::F2FS => power(number(1024 + 16, 4)?)?.checked_mul(number(1024 + 36, 8)?),
        // In pages, the last of which is named. The signature is at the first one's end.
        signatures::SWAP => {
            let is_page = |size: &usize| head.get(size - 10..*size).is_some_and(|end| end == b"SWAPSPACE2");
            let page = [4096, 8192, 16384, 32768, 65536].into_iter().find(is_page)?;
            (number(1024 + 4, 4)? + 1).checked_mul(u64_of(page))
        }
        signatures::EROFS => power(number(1024 + 12, 1)?)?.checked_mul(number(1024 + 36, 4)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::MemoryDevice;

    fn medium(bytes: Vec<u8>) -> Medium {
        Medium::over("disk", Arc::new(MemoryDevice::new(bytes)))
    }

    fn refused(medium: Medium) -> Option<String> {
        Target::on(medium, Made::Data, &refuse).err().map(|error| error.to_string())
    }

    #[test]
    fn zeros_hide_no_data_behind_them() {
        for at in [0, 4096, (1 << 20) - 1, 1 << 20, 2 << 20, (3 << 20) - 1] {
            let mut bytes = vec![0; 3 << 20];
            bytes[at] = 1;
            let said = refused(medium(bytes)).unwrap();
            assert!(said.contains("data of no known kind, which would be lost"), "{at}: {said}");
        }
        assert_eq!(refused(medium(vec![0; 3 << 20])), None);
    }

    /// Terabytes of zeros with some bytes that are not.
    struct Wide {
        size: u64,
        data: Range<u64>,
    }

    impl BlockDevice for Wide {
        fn below(&self) -> Option<&dyn BlockDevice> {
            None
        }

        fn size(&self) -> u64 {
            self.size
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> crate::Result<()> {
            buffer.fill(0);
            let end = offset + u64_of(buffer.len());
            let (from, to) = (self.data.start.max(offset), self.data.end.min(end));
            if from < to {
                buffer[usize_of(from - offset)..usize_of(to - offset)].fill(1);
            }
            Ok(())
        }

        fn write_at(&self, _: &[u8], _: u64) -> crate::Result<()> {
            unreachable!("nothing is written")
        }

        fn flush(&self) -> crate::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn disks_of_terabytes_are_looked_at_in_many_places() {
        let size = 4 << 40;
        let holds = |data: Range<u64>| holds_data(&Wide { size, data }, 0..size).unwrap();
        assert!(holds((1 << 30) - 1..1 << 30) && holds(size - 1..size));
        // As much as a four-thousandth of the disk, wherever it lies.
        let part = size / 4096 + (64 << 10);
        for at in [1 << 30, 77 << 30, (2 << 40) + 12345, size - part] {
            assert!(holds(at..at + part), "{at}");
        }
        assert!(!holds(0..0));
    }

    #[test]
    fn file_systems_say_their_size() {
        let said = |what, fields: &[(usize, &[u8])]| {
            let mut head = vec![0; signatures::HEAD];
            fields.iter().for_each(|(at, bytes)| head[*at..at + bytes.len()].copy_from_slice(bytes));
            size_said(&head, what)
        };
        let fat: [(usize, &[u8]); 2] = [(11, &[0, 2]), (19, &[0, 8])];
        assert_eq!(said(signatures::FAT, &fat), Some(512 * 2048));
        assert_eq!(said(signatures::FAT, &[fat[0], (32, &[0, 0, 1, 0])]), Some(512 << 16));
        assert_eq!(said(signatures::NTFS, &[fat[0], (0x28, &[255, 1])]), Some(512 * 512));
        assert_eq!(said(signatures::EXFAT, &[(108, &[9]), (72, &[0, 1])]), Some(512 * 256));
        assert_eq!(said(signatures::EXFAT, &[(108, &[200]), (72, &[0, 1])]), None);
        assert_eq!(said(signatures::SWAP, &[(1028, &[7]), (4086, b"SWAPSPACE2")]), Some(8 * 4096));
        assert_eq!(said(signatures::VERITY, &[]), None);
        let iso = |blocks: &[u8]| said(signatures::ISO, &[(0x8000 + 80, blocks), (0x8000 + 128, &[0, 8])]);
        assert_eq!(iso(&[3, 1, 0, 0, 0, 0, 1, 3]), Some(2048 * 259));
        // Both orders of bytes say one number.
        assert_eq!(iso(&[3, 1, 0, 0, 0, 0, 1, 4]), None);
        for what in [signatures::EXT, signatures::XFS, signatures::BTRFS, signatures::NTFS, signatures::EROFS]
        {
            assert_eq!(
                size_said(&[255; signatures::HEAD], what).filter(|size| *size < 1 << 40),
                None,
                "{what}"
            );
            assert_eq!(size_said(&[0; 512], what).filter(|size| *size > 0), None, "{what}");
        }
    }

    #[test]
    fn a_size_that_can_not_be_is_none() {
        let mut bytes = vec![0; 1 << 20];
        bytes[..4].copy_from_slice(b"hsqs");
        bytes[28..30].copy_from_slice(&4_u16.to_le_bytes());
        for (told, end) in
            [(8192_u64, Some(8192)), (4096, Some(4096)), (4095, None), (0, None), (2 << 20, None)]
        {
            bytes[40..48].copy_from_slice(&told.to_le_bytes());
            let found = beginning(&MemoryDevice::new(bytes.clone())).unwrap().unwrap();
            assert_eq!((found.what, found.end), (signatures::SQUASHFS, end), "{told}");
        }
        // A UDF file system has more than the ISO 9660 file system on the same blocks.
        bytes.fill(0);
        bytes[32_769..32_774].copy_from_slice(b"CD001");
        bytes[34_817..34_822].copy_from_slice(b"CD001");
        bytes[36_865..36_870].copy_from_slice(b"BEA01");
        bytes[0x8000 + 80..][..8].copy_from_slice(&[100, 0, 0, 0, 0, 0, 0, 100]);
        bytes[0x8000 + 128..][..2].copy_from_slice(&[0, 8]);
        let found = beginning(&MemoryDevice::new(bytes)).unwrap().unwrap();
        assert_eq!((found.what, found.end), ("a UDF file system", None));
    }

    #[test]
    fn zeros_of_what_begins_before_a_window_are_not_free() {
        let mut squashfs = vec![0; 4 << 20];
        squashfs[..4].copy_from_slice(b"hsqs");
        squashfs[28..30].copy_from_slice(&4_u16.to_le_bytes());
        squashfs[40..48].copy_from_slice(&(2_u64 << 20).to_le_bytes());
        let window = |bytes: &[u8], from, len| refused(medium(bytes.to_vec()).window(from, len).unwrap());
        assert!(window(&squashfs, 1 << 20, None).unwrap().contains("a squashfs file system"));
        // Where it says that it ends nothing of it is.
        assert_eq!(window(&squashfs, 2 << 20, None), None);
        // A window of a window.
        let inner = medium(squashfs.clone()).window(1 << 20, Some(2 << 20)).unwrap();
        assert!(refused(inner.clone().window(512, None).unwrap()).is_some());
        assert_eq!(refused(inner.window(1 << 20, None).unwrap()), None);

        // A disk whose one partition goes from 1 MiB to 2 MiB.
        let mut disk = vec![0; 4 << 20];
        disk[450] = 0x83;
        disk[454..458].copy_from_slice(&2048_u32.to_le_bytes());
        disk[458..462].copy_from_slice(&2048_u32.to_le_bytes());
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(window(&disk, 1 << 20, Some(1 << 20)), None);
        for (from, len) in [((1 << 20) + 512, Some(512)), (512 << 10, None)] {
            assert!(window(&disk, from, len).unwrap().contains("partition 1"), "{from}");
        }
        assert_eq!(window(&disk, 3 << 20, None), None);
        let partition = medium(disk).partition(1).unwrap();
        assert_eq!(refused(partition.window(4096, None).unwrap()), None);
    }
}
