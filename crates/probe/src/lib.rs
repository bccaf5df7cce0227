//! Contents of a disk or file by its beginning: signatures of file systems, partition tables, encryption and archives.
//!
//! [`device`] reads the beginning, [`known`] looks at bytes, and [`look`] goes as far down as it can: into partitions, to
//! what superblocks say, and to hash areas behind file systems. Nothing here is a check: a signature says what something
//! claims to be, and no signature is a hint that the key was wrong that it was decrypted with. [`scan`] searches all of a device for
//! what its tables do not lead to any more.
//!
//! ```
//! use std::sync::Arc;
//!
//! use casemate_blockdev::{Medium, MemoryDevice};
//! use casemate_probe::{EXT, look};
//!
//! # let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../ext4/tests/fixtures/1k-64bit.img.xz");
//! # let image = casemate_testkit::fixture(fixture);
//! let found = look(&Medium::over("disk.img", Arc::new(MemoryDevice::new(image))))?;
//! assert_eq!(found.what, Some(EXT));
//! assert_eq!(found.fact("state"), Some("clean"));
//! # Ok::<(), casemate_probe::Error>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod content;
mod describe;
mod guess;
mod scan;
mod signed;
mod tags;

use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::journal;
use casemate_blockdev::signatures::{EROFS, SQUASHFS, ZEROS};
use casemate_blockdev::{
    BlockDevice, Medium, PartitionTable, Window, backup_fault, backup_gpt, is_same_file, partition_table,
    type_name, u64_of, usize_of,
};
use casemate_ext4::{OpenOptions, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, copy_to_read_by};
use casemate_luks::luks2;
use casemate_providers::Providers;

use self::content::content;
pub use self::content::{Content, Look};
pub use self::guess::guess;
pub use self::scan::{Copy, Scan, Volume, scan};
pub use self::signed::{ROOT_HASH, SIGNATURE, VERITY_SIG};
pub use self::tags::Tag;
pub use casemate_blockdev::signatures::{
    EXT, EXT_JOURNAL, GPT, HEAD, Held, IN_PLACE_JOURNAL, INTEGRITY, LUKS, LUKS_REENCRYPTED, LUKS_SECOND, MBR,
    OVERLAY, QCOW2, RECOVERY_FILE, SPARSE, UNDO_FILE, VERITY, beginning, device, held, known, note_noise,
};
pub use casemate_blockdev::{Error, ErrorKind};

/// A structure that was found at a place, as it describes itself.
#[derive(Clone, Debug)]
pub struct Found {
    /// The first byte, counted from where the search began.
    pub start: u64,
    /// Bytes that are there.
    pub len: u64,
    /// Bytes that it had before it was cut off, if it was.
    pub full: Option<u64>,
    /// The number of the partition that this is.
    pub partition: Option<u32>,
    /// Its name; `None` if nothing known was found.
    pub what: Option<&'static str>,
    /// The bytes, if nothing known was found.
    pub content: Option<Content>,
    /// The block of the superblock backup that this is told by: there is no primary superblock.
    pub superblock: Option<u64>,
    /// Fields of its superblock, header or table: names and values.
    pub facts: Vec<(&'static str, String)>,
    /// How much of a file system can be read.
    pub readable: Readable,
    /// Bytes in use, of a file system.
    pub used: Option<u64>,
    /// Damage that was seen, without a full check.
    pub damage: Vec<String>,
    /// Structures of what lay here before, which nothing reads any more.
    pub stale: Vec<Stale>,
    /// The reencryption of a LUKS2 volume that goes on, or was interrupted.
    pub reencryption: Option<Progress>,
    /// Structures inside it, or behind it in the same place.
    pub inside: Vec<Found>,
}

/// How much of a file system can be read, as far as was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readable {
    /// It opens, and its root directory can be read.
    #[default]
    Names,
    /// It opens if its journal is left out, which can't be replayed.
    WithoutJournal,
    /// Its root directory can't be read: files are reached by their inodes alone, if its journal is left out where that has damage, too.
    Inodes {
        /// Whether the journal has to be left out.
        without_journal: bool,
    },
    /// It does not open.
    Nothing,
}

/// A structure that was left behind by what lay here before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The first byte, counted from where the search began.
    pub start: u64,
    /// Its name.
    pub what: &'static str,
    /// UUID of the volume or table that it is of; empty if it has none.
    pub uuid: String,
}

/// How far a reencryption is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Kind of work: `encrypt`, `decrypt` or `reencrypt`, in the format's words.
    pub mode: &'static str,
    /// The way it goes: `forward` or `backward`.
    pub direction: &'static str,
    /// Bytes that are done, and bytes of all data; `None` if the metadata do not tell it.
    pub bytes: Option<(u64, u64)>,
}

/// Probes a device: its partitions, file systems, headers and hash areas.
///
/// # Errors
/// Errors of reading. Damage is not an error, but is in [`Found::damage`].
pub fn look(medium: &Medium) -> Result<Found, Error> {
    let device = medium.device();
    let found = look_at(&device, 0, device.size(), None, 2, &mut { MOST_PLACES });
    let mut found = found.map_err(|error| error.at(medium.name()))?;
    found.look_beside(medium);
    Ok(found)
}

/// Probes a part of a device, `depth` levels deep, in `left` places at most.
fn look_at(
    device: &Arc<dyn BlockDevice>,
    start: u64,
    len: u64,
    partition: Option<u32>,
    depth: u32,
    left: &mut u32,
) -> Result<Found, Error> {
    *left = left.saturating_sub(1);
    let part: Arc<dyn BlockDevice> = Arc::new(Window::new(Arc::clone(device), start, len)?);
    // At most HEAD.
    let mut head = vec![0; usize_of(len.min(u64_of(HEAD)))];
    part.read_at(&mut head, 0)?;
    let what = known(&head).filter(|what| *what != ZEROS);
    let mut found = Found::new(start, len, partition, what);
    match what {
        Some(GPT | MBR) if depth > 0 => match partition_table(&*part) {
            Ok(table) => {
                found.what = Some(if table.is_gpt { GPT } else { MBR });
                if table.is_backup {
                    found.damage.push(
                        "the primary GPT is damaged; the partitions are those of the backup GPT".to_owned(),
                    );
                }
                found.say("table id", &table.id);
                found.look_at_table(&*part, &table);
                found.look_into(device, &table, depth, left)?;
            }
            Err(error) => found.damage.push(error.text().into_owned()),
        },
        Some(EXT) => {
            found.describe_ext(&part, head.get(usize_of(SUPERBLOCK_OFFSET)..).unwrap_or_default(), None)
        }
        Some(EXT_JOURNAL) => found.describe_journal(&head),
        Some(VERITY) => found.describe_verity(&part, 0),
        Some(LUKS) => found.describe_luks(&part, &head),
        Some(INTEGRITY) => found.describe_integrity(&head),
        Some(what) => found.describe(what, &head),
        None if found.describe_signed(&head, len <= u64_of(HEAD)) => {}
        None => found.look_for_backups(device, &part, depth, left)?,
    }
    if let Some(end) = found.end().filter(|_| depth > 0) {
        found.look_behind(&part, end)?;
    }
    found.look_for_stale(&*part);
    Ok(found)
}

impl Found {
    fn new(start: u64, len: u64, partition: Option<u32>, what: Option<&'static str>) -> Found {
        Found {
            start,
            len,
            full: None,
            partition,
            what,
            content: None,
            superblock: None,
            facts: Vec::new(),
            readable: Readable::default(),
            used: None,
            damage: Vec::new(),
            stale: Vec::new(),
            reencryption: None,
            inside: Vec::new(),
        }
    }

    /// Compares the disk with what its table says of it: the end, and the backup there.
    fn look_at_table(&mut self, part: &dyn BlockDevice, table: &PartitionTable) {
        self.damage.extend(table.damage.clone());
        let Some(size) = table.disk_size.filter(|_| !table.is_backup) else { return };
        if size > self.len {
            self.full = Some(size);
            self.damage.push(format!("{}; the backup GPT is not there", cut_off(size, self.len)));
            return;
        }
        let place = size.saturating_sub(512);
        match backup_fault(part, table) {
            Ok(None) if size < self.len => {
                self.say("backup gpt", format!("at byte {place}, {} bytes before the end", self.len - size));
            }
            Ok(None) => {}
            Ok(Some(fault)) => self.damage.push(format!("the backup GPT, at byte {place}, {fault}")),
            Err(error) => self.damage.push(format!("the backup GPT, at byte {place}: {}", error.text())),
        }
    }

    /// Looks into the partitions of a table.
    fn look_into(
        &mut self,
        device: &Arc<dyn BlockDevice>,
        table: &PartitionTable,
        depth: u32,
        left: &mut u32,
    ) -> Result<(), Error> {
        for entry in &table.partitions {
            if *left == 0 {
                self.damage.push(format!("more than {MOST_PLACES} places: the rest was not looked at"));
                break;
            }
            // The image may be cut off.
            let there = self.len.saturating_sub(entry.start).min(entry.len);
            let (start, number) = (self.start.saturating_add(entry.start), Some(entry.number));
            let inner = look_at(device, start.min(device.size()), there, number, depth - 1, left);
            // A part that can't be read keeps nobody from the others.
            let mut inner = inner.unwrap_or_else(|error| {
                let mut unreadable = Found::new(start, there, number, None);
                unreadable.damage.push(error.text().into_owned());
                unreadable
            });
            inner.start = start;
            let cut = cut_off(entry.len, there);
            // The file system in it may have said so.
            if there < entry.len {
                inner.full = Some(entry.len);
                if !inner.damage.contains(&cut) {
                    inner.damage.push(cut);
                }
            }
            let facts = std::mem::take(&mut inner.facts);
            inner.say("name", &entry.name);
            inner.say("type", &entry.kind);
            inner.say("type name", type_name(&entry.kind).unwrap_or_default());
            inner.say("partition uuid", table.partition_id(entry));
            inner.facts.extend(facts);
            self.inside.push(inner);
        }
        Ok(())
    }

    /// Looks for what formats keep twice, where nothing known is at the beginning; and at the bytes, if there is none.
    fn look_for_backups(
        &mut self,
        device: &Arc<dyn BlockDevice>,
        part: &Arc<dyn BlockDevice>,
        depth: u32,
        left: &mut u32,
    ) -> Result<(), Error> {
        let backup = match depth {
            0 => None,
            _ => backup_gpt(&**part).unwrap_or_else(|error| {
                self.damage.push(format!("the end, where a backup GPT may be: {}", error.text()));
                None
            }),
        };
        if let Some(table) = backup {
            self.what = Some(GPT);
            self.damage.push(
                "there is no table at the beginning; the partitions are those of the backup GPT at the end"
                    .to_owned(),
            );
            self.say("table id", &table.id);
            return self.look_into(device, &table, depth, left);
        }
        if let Some(block) = copy_to_read_by(&**part, &OpenOptions::default())
            && let Some((offset, raw)) = superblock_backup(&**part, block)
        {
            (self.what, self.superblock) = (Some(EXT), Some(block));
            self.damage.push(format!(
                "there is no primary superblock; this is from the superblock backup in block {block}, at byte {offset}"
            ));
            self.describe_ext(part, &raw, Some(block));
            return Ok(());
        }
        if luks2::Header::read(&**part, &Providers::default()).is_ok() {
            self.what = Some(LUKS);
            self.describe_luks(part, &[]);
            return Ok(());
        }
        let (content, unreadable) = content(&**part);
        self.content = Some(content);
        if unreadable > 0 {
            self.damage.push(format!("{unreadable} bytes of those that were looked at can't be read"));
        }
        Ok(())
    }

    /// Looks for what formats keep twice, of something that lay here before what begins here now.
    fn look_for_stale(&mut self, part: &dyn BlockDevice) {
        if !matches!(self.what, None | Some(LUKS))
            && let Ok(header) = luks2::Header::read(part, &Providers::default())
            && let Some(at) = luks_secondary(part)
        {
            let (start, uuid) = (self.start.saturating_add(at), clean(&header.uuid));
            self.stale.push(Stale { start, what: "a LUKS2 secondary header", uuid });
        }
        if !matches!(self.what, None | Some(GPT | MBR))
            && let Ok(Some(table)) = backup_gpt(part)
        {
            let start = self.start.saturating_add(part.size().saturating_sub(512));
            self.stale.push(Stale { start, what: "a backup GPT", uuid: table.id });
        }
    }

    /// Looks for files beside the image that tell of changes which were interrupted.
    fn look_beside(&mut self, medium: &Medium) {
        // Where the mark is damaged, the image can't be opened by others, who tell why.
        let mark = medium.mark().ok().flatten();
        self.damage.extend(mark.iter().map(|mark| clean(&mark.text())));
        for (suffix, what) in [
            (journal::SUFFIX, "an encryption or decryption in place was interrupted, or goes on"),
            (".casemate-redo", "a change of the file system was interrupted, or goes on"),
        ] {
            let is_told = |path: &Path| {
                mark.as_ref().is_some_and(|mark| is_same_file(path, &mark.journal))
                    || journal::is_finished(path)
            };
            if let Some(path) = medium.beside(suffix).filter(|path| path.exists() && !is_told(path)) {
                self.damage.push(format!("{what}: {} is its journal", clean(&path.display().to_string())));
            }
        }
        let beside = medium.beside(".casemate-redo");
        let led_to = medium.recovery_path().ok().flatten().filter(|path| path.exists());
        if let Some(path) = led_to.filter(|path| beside.is_none_or(|beside| !is_same_file(path, &beside))) {
            let path = clean(&path.display().to_string());
            self.damage.push(format!(
                "a change of the file system was interrupted, or goes on: {path} is its journal"
            ));
        }
    }

    /// A fact that the superblock says.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(key, _)| *key == name).map(|(_, value)| &**value)
    }

    /// Notes a fact. What an image says is shown on terminals: it has no control characters and no line ends, which could
    /// pass for words of ours.
    fn say(&mut self, name: &'static str, value: impl ToString) {
        let value = clean(&value.to_string());
        if !value.is_empty() {
            self.facts.push((name, value));
        }
    }

    /// Notes the size in bytes, and damage if a part of it is cut off.
    fn say_size(&mut self, size: u64) {
        self.say("bytes", size);
        if size > self.len {
            self.full = Some(size);
            self.damage.push(cut_off(size, self.len));
        }
    }

    /// Bytes of a file system that says its size.
    fn file_system_size(&self) -> Option<u64> {
        let is_file_system = matches!(self.what, Some(EXT | SQUASHFS | EROFS));
        self.fact("bytes").filter(|_| is_file_system)?.parse().ok()
    }

    /// Where a file system that says its size ends, if something may lie behind it.
    fn end(&self) -> Option<u64> {
        let end = self.file_system_size()?.checked_next_multiple_of(4096)?;
        (end < self.len).then_some(end)
    }

    /// Looks for a hash area behind a file system in the same place.
    fn look_behind(&mut self, part: &Arc<dyn BlockDevice>, end: u64) -> Result<(), Error> {
        let mut head = [0; 512];
        if self.len - end < u64_of(head.len()) {
            return Ok(());
        }
        part.read_at(&mut head, end)?;
        if known(&head) == Some(VERITY) {
            let mut area = Found::new(self.start + end, self.len - end, None, Some(VERITY));
            area.describe_verity(part, end);
            self.inside.push(area);
        }
        Ok(())
    }
}

/// A superblock backup, and the byte that it begins at.
fn superblock_backup(device: &dyn BlockDevice, block: u64) -> Option<(u64, [u8; SUPERBLOCK_SIZE])> {
    let mut raw = [0; SUPERBLOCK_SIZE];
    (10..=16).find_map(|log_block_size| {
        let offset = block.checked_mul(1 << log_block_size)?;
        device.read_at(&mut raw, offset).ok()?;
        let superblock = Superblock::from_bytes(&raw).ok()?;
        (superblock.block_size == 1 << log_block_size).then_some((offset, raw))
    })
}

/// Text of an image without control characters, which could pass for words of ours or steer a terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn cut_off(bytes: u64, here: u64) -> String {
    format!("cut off: {here} of {bytes} bytes are left")
}

/// The byte that the secondary header of a LUKS2 volume lies at, if its magic is there.
fn luks_secondary(part: &dyn BlockDevice) -> Option<u64> {
    let mut head = [0; 264];
    (14..=22).map(|power| 1u64 << power).find(|at| {
        part.read_at(&mut head, *at).is_ok()
            && head.starts_with(b"SKUL\xba\xbe\0\x02")
            && head[256..] == at.to_be_bytes()
    })
}

/// Places that are looked at: tables can name one file system, with its journal, thousands of times.
const MOST_PLACES: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_blockdev::MemoryDevice;

    /// A table whose chain of logical partitions names one place again and again, with another such table there.
    fn nested_tables() -> Vec<u8> {
        let record = |entries: &[(u8, u32, u32)]| {
            let mut sector = [0; 512];
            for (slot, (kind, start, sectors)) in entries.iter().enumerate() {
                let at = 446 + 16 * slot;
                sector[at + 4] = *kind;
                sector[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
                sector[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
            }
            sector[510..].copy_from_slice(&[0x55, 0xaa]);
            sector
        };
        let mut disk = vec![0; 100 * 512];
        for (at, len) in [(0, 100), (3, 40)] {
            disk[at * 512..][..512].copy_from_slice(&record(&[(0x05, 2, len - 2)]));
            disk[(at + 2) * 512..][..512].copy_from_slice(&record(&[(0x83, 1, 40), (0x05, 0, len - 2)]));
        }
        disk
    }

    fn places(found: &Found) -> usize {
        1 + found.inside.iter().map(places).sum::<usize>()
    }

    #[test]
    fn tables_in_tables_end() {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(nested_tables()));
        let found = look_at(&device, 0, device.size(), None, 2, &mut { MOST_PLACES }).unwrap();
        assert!((100..=MOST_PLACES as usize).contains(&places(&found)), "{}", places(&found));
        let damage: Vec<_> = found.inside.iter().chain([&found]).flat_map(|found| &found.damage).collect();
        assert!(damage.iter().any(|text| text.contains("256 places")), "{damage:?}");
        assert!(found.inside.iter().any(|part| part.inside.len() > 50));
    }
}
