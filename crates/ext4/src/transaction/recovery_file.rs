//! Transactions of file systems without a journal, in a file beside the image.
//!
//! The file holds the new contents of all blocks that a transaction changes, the superblock's among them, and sums of
//! what they replace. It gets its name once it is whole and on stable storage. Then the image is marked "not clean",
//! the blocks are written, the superblock last, which says "clean" again, and the file is removed. So
//!
//! - beside an image that is clean the file means nothing: the change did not begin, or it is complete, or somebody
//!   else has repaired the image since;
//! - beside one that is not clean, each sector of these blocks must be as it was before or as it will be, or somebody
//!   else has changed the image since. Then nothing is written.
//!
//! Meanwhile the image has the file's path in an extended attribute. By that the file is found through hard links and loop
//! devices, and after the image was moved. A copy of the image may have the attribute too, so a file that was found by it is
//! read and never removed: beside the image whose change it keeps it means nothing as soon as that is complete. An image that has
//! taken the name of another one has no attribute: the file that it finds by its name may be that image's, and is renamed.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casemate_blockdev::{
    BlockDevice, FileDevice, Medium, OutputFile, is_same_file, sync_name, u32_of, u64_of, usize_of,
};
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Providers;

use crate::error::{Error, Result};
use crate::format::recovery_file::{self as format, HEADER, Header, SECTOR, Version};
use crate::format::superblock::{Superblock, primary_place};
use crate::read::journal::{Copy, Overlay};
use crate::read::primary::{is_whole, read_primary};
use crate::transaction::cache::Blocks;
use crate::units::Block;

/// Where a transaction is kept until the image has it.
#[derive(Clone, Debug)]
pub struct RecoveryFile {
    path: PathBuf,
    /// The image, which has the path in an attribute.
    image: Option<Medium>,
}

/// A recovery file that was found.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// Whether the image has led to it: its name does not.
    is_led_to: bool,
}

/// Meaning of a recovery file for an image.
enum Found {
    /// There is none.
    Nothing,
    /// The image is whole without it.
    Void,
    Pending(Pending),
}

/// A change that must be completed, and fits the image.
struct Pending {
    file: FileDevice,
    /// Whether the image has led to it.
    is_led_to: bool,
    block_size: usize,
    /// The blocks by their numbers, and where the file has them.
    blocks: BTreeMap<Block, u64>,
}

/// Text against a file of another kind that has the name.
const FOREIGN: &str = "is not a file of an interrupted change; move it away";

/// Outcome of a change that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// There was none.
    Nothing,
    /// It is complete now.
    Completed,
    /// Its records are gone: the file system was clean without it.
    Dropped,
    /// The file system is whole, and another image may need the records: their file was renamed, to its name and a number.
    SetAside,
}

impl RecoveryFile {
    /// The file of this name, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> RecoveryFile {
        RecoveryFile { path: path.into(), image: None }
    }

    /// Notes the path on the image, and looks where the image says.
    #[must_use]
    pub fn noted_on(self, image: Medium) -> RecoveryFile {
        RecoveryFile { image: Some(image), ..self }
    }

    /// Where it is, or will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `device` as it will be once the change that was interrupted is complete; `None` if there was none. Nothing is
    /// written.
    ///
    /// # Errors
    /// `Unsupported` when the file system is not clean and the file is damaged, belongs to another image, or
    /// to another state of this one.
    pub fn over(
        &self,
        device: &Arc<dyn BlockDevice>,
        providers: &Providers,
    ) -> Result<Option<Arc<dyn BlockDevice>>> {
        // What is no file system, or damaged, is for whoever opens it to say.
        let crc = Crc32c::new(providers.cpu());
        if read_primary(&**device, crc).map_or(true, |superblock| is_complete(&superblock, crc)) {
            return Ok(None);
        }
        let Found::Pending(pending) = self.find(&**device, crc)? else {
            return Ok(None);
        };
        let Pending { file, block_size, blocks, .. } = pending;
        let blocks = blocks.into_iter().map(|(block, offset)| (block, Copy { offset, escaped: false }));
        // A block has at most 64 KiB.
        let overlay = Overlay::new(device.clone(), Arc::new(file), u32_of(block_size), blocks.collect());
        Ok(Some(Arc::new(overlay)))
    }

    /// Completes the change that was interrupted, if there was one.
    ///
    /// # Errors
    /// As [`over`](RecoveryFile::over), and for a file of another image beside one that is clean. Nothing was written
    /// then.
    pub(crate) fn replay(&self, device: &dyn BlockDevice, crc: Crc32c) -> Result<Interrupted> {
        let pending = match self.find(device, crc)? {
            Found::Nothing => return Ok(Interrupted::Nothing),
            Found::Void => {
                let is_removed = self.clear()?;
                return Ok(if is_removed { Interrupted::Dropped } else { Interrupted::SetAside });
            }
            Found::Pending(pending) => pending,
        };
        let (superblock, _) = primary_place(pending.block_size);
        let mut bytes = vec![0; pending.block_size];
        for is_last in [false, true] {
            for (block, offset) in
                pending.blocks.iter().filter(|(block, _)| (**block == superblock) == is_last)
            {
                pending.file.read_at(&mut bytes, *offset)?;
                device.write_at(&bytes, block.offset(u64_of(pending.block_size)))?;
            }
            device.flush()?;
        }
        match pending.is_led_to {
            true => self.forget()?,
            false => drop(self.clear()?),
        }
        Ok(Interrupted::Completed)
    }

    /// Where the file is: under its name, or where the image says.
    fn place(&self) -> Result<Place> {
        let named = Place { path: self.path.clone(), is_led_to: false };
        match &self.image {
            Some(image) if !self.path.exists() => {
                let Some(path) = image.recovery_path()? else { return Ok(named) };
                // It may have been renamed for an image that has taken the name of this one.
                let renamed =
                    || (1..MOST_RENAMED).map(|number| numbered(&path, number)).find(|path| path.exists());
                let found = if path.exists() { None } else { renamed() };
                Ok(match found {
                    Some(path) => Place { path, is_led_to: true },
                    None if path == self.path => named,
                    None => Place { path, is_led_to: true },
                })
            }
            _ => Ok(named),
        }
    }

    /// Looks for a change that must be completed. All of the file is checked, and read block by block.
    fn find(&self, device: &dyn BlockDevice, crc: Crc32c) -> Result<Found> {
        let Place { path, is_led_to } = self.place()?;
        // The path comes from the image.
        let name = path.display().to_string().escape_debug().to_string();
        let refuse = |what: &str| Err(Error::unsupported(format!("{name}: {what}")));
        if is_led_to && is_complete(&read_primary(device, crc)?, crc) {
            return Ok(Found::Nothing);
        }
        let file = match FileDevice::open(&path) {
            Ok(file) => file,
            Err(error) if error.is_not_found() && is_led_to => {
                return refuse(
                    "keeps the rest of a change that was interrupted, and is not there any more. If it was moved, name it; \
                     otherwise run e2fsck on the image",
                );
            }
            Err(error) if error.is_not_found() => return Ok(Found::Nothing),
            Err(error) => return Err(error.at(name)),
        };
        let damaged = "is damaged; run e2fsck on the image, then nothing of this file is needed";
        let header = header_of(&file)?;
        match format::version(&header) {
            Version::This => {}
            Version::Another => {
                return refuse(
                    "is of another version of casemate; run e2fsck on the image, then remove this file",
                );
            }
            Version::None => return refuse(FOREIGN),
        }
        let Header { uuid, block_size, count, sum: expected_sum } = Header::from_bytes(&header);
        let superblock = read_primary(device, crc)?;
        if uuid != superblock.uuid && !gives_uuid(&file, superblock.uuid) {
            return refuse("belongs to another image; move it away");
        }
        if is_complete(&superblock, crc) {
            return Ok(Found::Void);
        }
        let is_fitting = block_size == superblock.block_size;
        let block_size = usize_of(superblock.block_size);
        let record = format::record_len(block_size);
        let expected = count.checked_mul(u64_of(record)).and_then(|len| len.checked_add(u64_of(HEADER)));
        if !is_fitting || expected != Some(file.size()) {
            return refuse(damaged);
        }
        // Not the file system's own end, which may be what changes.
        let end = Block::new(device.size() / u64_of(block_size));
        let (place, within) = primary_place(block_size);
        let mut sum = crc.update(!0, format::summed(&header));
        let mut blocks = BTreeMap::new();
        let mut changed = None;
        let (mut bytes, mut there) = (vec![0; record], vec![0; block_size]);
        for at in (u64_of(HEADER)..file.size()).step_by(record) {
            file.read_at(&mut bytes, at)?;
            sum = crc.update(sum, &bytes);
            let (block, old, new) = format::split(&bytes, block_size);
            let is_next = blocks.last_key_value().is_none_or(|(last, _)| *last < block);
            if !is_next || block >= end {
                return refuse(damaged);
            }
            blocks.insert(block, at + u64_of(format::contents_at(block_size)));
            device.read_at(&mut there, block.offset(u64_of(block_size)))?;
            if block == place {
                // As it is without a tear.
                there[within.clone()].copy_from_slice(superblock.as_bytes());
            }
            let mut sectors = there.chunks_exact(SECTOR).zip(new.chunks_exact(SECTOR)).zip(old);
            let fits = sectors.all(|((there, new), old)| there == new || crc.update(!0, there) == old);
            changed = changed.or((!fits).then_some(block));
        }
        if sum != expected_sum {
            return refuse(damaged);
        }
        if let Some(block) = changed {
            return refuse(&format!(
                "keeps a change that was interrupted, and block {block} of the image was changed since; run e2fsck on \
                 the image, then nothing of this file is needed"
            ));
        }
        Ok(Found::Pending(Pending { file, is_led_to, block_size, blocks }))
    }

    /// Keeps the blocks of a transaction; `old` is what they replace.
    pub(crate) fn store(
        &self,
        crc: Crc32c,
        uuid: &[u8; 16],
        size: usize,
        blocks: &Blocks<'_>,
        old: impl Fn(Block) -> Result<Vec<u8>>,
    ) -> Result<()> {
        let mut body = Vec::with_capacity(blocks.len() * format::record_len(size));
        for (block, bytes) in blocks {
            let old = old(*block)?;
            let sums = old.chunks_exact(SECTOR).map(|sector| crc.update(!0, sector));
            body.extend(format::record_bytes(*block, sums, bytes));
        }
        let header = Header { uuid: *uuid, block_size: u32_of(size), count: u64_of(blocks.len()), sum: 0 };
        let sum = crc.update(crc.update(!0, format::summed(&header.to_bytes())), &body);
        let header = Header { sum, ..header }.to_bytes();
        let output = OutputFile::create(&self.path)?;
        // The one of the transaction before is gone. A file that has the name since is somebody's.
        if self.path.exists()
            && let Version::None = format::version(&header_of(&FileDevice::open(&self.path)?)?)
        {
            return Err(Error::argument(format!("{}: {FOREIGN}", self.path.display())));
        }
        output.device().write_at(&header, 0)?;
        output.device().write_at(&body, u64_of(header.len()))?;
        if let Some(image) = &self.image {
            // File systems that keep changes of metadata in order have it on the disk when the file has its name there.
            image.set_recovery_path(&self.path)?;
        }
        output.commit(true)
    }

    /// Forgets the transaction, which the image has now. It may be gone already.
    pub(crate) fn remove(&self) -> Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        self.forget()?;
        sync_name(&self.path)
    }

    /// Removes the file that was found by its name, which the image does not need any more, or renames it if it may be another
    /// image's. Whether it was removed.
    fn clear(&self) -> Result<bool> {
        if self.is_own()? {
            return self.remove().map(|()| true);
        }
        let free = (1..MOST_RENAMED).map(|number| numbered(&self.path, number)).find(|path| !path.exists());
        std::fs::rename(&self.path, free.ok_or_else(|| std::io::Error::from(ErrorKind::AlreadyExists))?)?;
        sync_name(&self.path).map(|()| false)
    }

    /// Whether the file keeps a change of this image: its attribute says so. Where there are no attributes the name has to do.
    fn is_own(&self) -> Result<bool> {
        let Some(image) = &self.image else { return Ok(true) };
        if let Some(path) = image.recovery_path()? {
            return Ok(!path.exists() || is_same_file(&path, &self.path));
        }
        image.set_recovery_path(&self.path)?;
        let takes_attributes = image.recovery_path()?.is_some();
        image.remove_recovery_path()?;
        Ok(!takes_attributes)
    }

    fn forget(&self) -> Result<()> {
        self.image.as_ref().map_or(Ok(()), Medium::remove_recovery_path)
    }
}

/// The file's header; zeros if it is too short for one.
fn header_of(file: &FileDevice) -> Result<[u8; HEADER]> {
    let mut header = [0; HEADER];
    if file.size() >= u64_of(HEADER) {
        file.read_at(&mut header, 0)?;
    }
    Ok(header)
}

/// Numbers of files that were renamed.
const MOST_RENAMED: u32 = 1000;

/// The name that a file gets which may be another image's.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(format!(".{number}"));
    path.into()
}

/// Whether a file keeps a change that gives the file system another UUID, this one, which the image has already.
fn gives_uuid(file: &FileDevice, uuid: [u8; 16]) -> bool {
    let mut header = [0; HEADER];
    if file.read_at(&mut header, 0).is_err() {
        return false;
    }
    let block_size = usize_of(Header::from_bytes(&header).block_size);
    if !block_size.is_power_of_two() || !(1024..=65536).contains(&block_size) {
        return false;
    }
    // The superblock is in the first block, or in the second one: the file has its blocks in order.
    let record = format::record_len(block_size);
    (0..2).any(|index| {
        let mut bytes = vec![0; record];
        let at = u64_of(HEADER) + index * u64_of(record);
        if file.read_at(&mut bytes, at).is_err() {
            return false;
        }
        let (block, _, new) = format::split(&bytes, block_size);
        let (superblock, within) = primary_place(block_size);
        block == superblock
            && Superblock::from_bytes(&new[within]).is_ok_and(|superblock| superblock.uuid == uuid)
    })
}

/// Whether a superblock says that the image is whole without the file. One that was being written when the power
/// failed, as the last block of a change, does not.
fn is_complete(superblock: &Superblock, crc: Crc32c) -> bool {
    superblock.is_clean() && is_whole(superblock, crc)
}
