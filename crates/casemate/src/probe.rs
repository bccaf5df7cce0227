//! Contents of a disk or file by its beginning: signatures of file systems, partition tables, encryption and archives.
//!
//! [`device`] reads the beginning, [`known`] looks at bytes, and [`look`] goes as far down as it can: into partitions, to
//! what superblocks say, and to hash areas behind file systems. Nothing here is a check: a signature says what something
//! claims to be, and no signature is a hint that the key was wrong that it was decrypted with.

mod scan;
mod tags;

use std::path::Path;
use std::sync::Arc;

use casemate_blockdev::signatures::{BTRFS, EROFS, SQUASHFS, SWAP, XFS, ZEROS};
use casemate_blockdev::{
    BlockDevice, PartitionTable, Uuid, Window, backup_gpt, is_same_file, partition_table, samples, type_name,
};
use casemate_ext4::{OpenOptions, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, copy_to_read_by};
use casemate_luks::Header;
use casemate_luks::luks2::reencrypt::{Mode, State};
use casemate_luks::luks2::{self, Metadata};
use casemate_providers::{Providers, Work};

pub use self::scan::{Copy, Scan, Volume, scan};
pub use self::tags::Tag;
use crate::ext4::{ReadOptions, Superblock};
use crate::{Error, Image, hex};
pub use casemate_blockdev::signatures::{
    EXT, GPT, HEAD, Held, INTEGRITY, LUKS, LUKS_REENCRYPTED, LUKS_SECOND, MBR, QCOW2, SPARSE, VERITY,
    beginning, device, held, known, note_noise,
};

/// A structure that was found at a place, as it describes itself.
#[derive(Clone, Debug)]
pub struct Found {
    /// The first byte, counted from where the search began.
    pub start: u64,
    /// Bytes that are there.
    pub len: u64,
    /// The number of the partition that this is.
    pub partition: Option<u32>,
    /// Its name; `None` if nothing known was found.
    pub what: Option<&'static str>,
    /// The bytes, if nothing known was found.
    pub content: Option<Content>,
    /// The block of the superblock backup that this is told by: there is no primary superblock.
    pub superblock: Option<u64>,
    /// Whether partitions are found by a table that no other command looks at.
    pub is_backup_table: bool,
    /// Fields of its superblock, header or table: names and values.
    pub facts: Vec<(&'static str, String)>,
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

/// Bytes of no known format, as far as they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// How many bytes were read: the beginning, and samples of the rest.
    pub read: u64,
    /// How these bytes look.
    pub look: Look,
}

/// How bytes look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// There are none.
    Empty,
    /// All are zero.
    Zeros,
    /// All values are about as frequent, as in what is encrypted or compressed.
    Random,
    /// None of these.
    Other,
}

/// Probes an image: its partitions, file systems, headers and hash areas.
///
/// # Errors
/// Errors of reading. Damage is not an error, but is in [`Found::damage`].
pub fn look(image: &Image) -> Result<Found, Error> {
    let device = image.device();
    let found = look_at(&device, 0, device.size(), None, 2, &mut { MOST_PLACES });
    let mut found = found.map_err(|error| error.at(image.name()))?;
    found.look_beside(image);
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
    // OK to cast: at most HEAD.
    let mut head = vec![0; len.min(HEAD as u64) as usize];
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
                found.look_into(device, &table, depth, left)?;
            }
            Err(error) => found.damage.push(error.text().into_owned()),
        },
        Some(EXT) => {
            found.describe_ext(&part, head.get(SUPERBLOCK_OFFSET as usize..).unwrap_or_default(), None)
        }
        Some(VERITY) => found.describe_verity(&part, 0),
        Some(LUKS) => found.describe_luks(&part, &head),
        Some(INTEGRITY) => found.describe_integrity(&head),
        Some(what) => found.describe(what, &head),
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
            partition,
            what,
            content: None,
            superblock: None,
            is_backup_table: false,
            facts: Vec::new(),
            used: None,
            damage: Vec::new(),
            stale: Vec::new(),
            reencryption: None,
            inside: Vec::new(),
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
            if there < entry.len && !inner.damage.contains(&cut) {
                inner.damage.push(cut);
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
            (self.what, self.is_backup_table) = (Some(GPT), true);
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
    fn look_beside(&mut self, image: &Image) {
        // Where the mark is damaged, the image can't be opened by others, who tell why.
        let mark = image.mark().ok().flatten();
        self.damage.extend(mark.iter().map(|mark| clean(&mark.text())));
        for (suffix, what) in [
            (".casemate-journal", "an encryption or decryption in place was interrupted, or goes on"),
            (".casemate-redo", "a change of the file system was interrupted, or goes on"),
        ] {
            let is_told = |path: &Path| mark.as_ref().is_some_and(|mark| is_same_file(path, &mark.journal));
            if let Some(path) = image.beside(suffix).filter(|path| path.exists() && !is_told(path)) {
                self.damage.push(format!("{what}: {} is its journal", clean(&path.display().to_string())));
            }
        }
        let beside = image.beside(".casemate-redo");
        let led_to = image.recovery_path().ok().flatten().filter(|path| path.exists());
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
        if self.len - end < head.len() as u64 {
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

    fn describe_verity(&mut self, part: &Arc<dyn BlockDevice>, offset: u64) {
        match Image::over("", Arc::clone(part)).verity_superblock(offset) {
            Ok(layout) => {
                let parameters = layout.parameters();
                self.say("hash", parameters.algorithm());
                self.say("uuid", layout.uuid().map(|uuid| uuid.to_string()).unwrap_or_default());
                self.say("data blocks", layout.geometry().data_blocks());
                self.say("data block size", parameters.data_block_size.bytes());
                self.say("salt", hex::encode(parameters.salt.bytes()));
                self.say("hash area offset", offset);
                self.say_size(layout.hash_device_size().saturating_sub(offset));
            }
            Err(error) => self.damage.push(error.text().into_owned()),
        }
    }

    fn describe_integrity(&mut self, head: &[u8]) {
        match casemate_integrity::Superblock::from_bytes(head) {
            Ok(superblock) => {
                self.say("version", superblock.version);
                self.say("data sectors", superblock.provided_data_sectors);
                self.say("block size", superblock.block_size());
                self.say("tag size", superblock.tag_size);
                self.say("flags", superblock.flags.names().collect::<Vec<_>>().join(" "));
            }
            Err(error) => self.damage.push(error.text().into_owned()),
        }
    }

    fn describe_luks(&mut self, part: &Arc<dyn BlockDevice>, head: &[u8]) {
        let version = head.get(6..8).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        match Header::read(&**part, &Providers::default()) {
            Ok(Header::Luks1(header)) => {
                self.say("version", 1);
                self.say("uuid", &header.uuid);
                self.say("cipher", header.encryption());
                self.say("key bits", u64::from(header.key_bytes) * 8);
                self.say("data offset", u64::from(header.payload_offset) * 512);
            }
            Ok(Header::Luks2(header)) => {
                self.say("version", 2);
                self.say("uuid", &header.uuid);
                self.say("label", &header.label);
                if let Some(segment) = header.metadata.segments().first() {
                    self.say("cipher", &segment.encryption);
                    self.say("sector size", segment.sector_size);
                    self.say("data offset", segment.offset);
                }
                self.say("requires", header.metadata.requirements().join(" "));
                for (copy, which) in header.copies().iter().zip(["primary", "secondary"]) {
                    if !copy.reason().is_empty() {
                        self.damage.push(format!("the {which} header: {}", clean(copy.reason())));
                    }
                }
                self.describe_reencryption(&header.metadata, part.size());
            }
            Err(error) => {
                self.say("version", version);
                self.damage.push(error.text().into_owned());
            }
        }
    }

    /// Notes how far a reencryption is that goes on or was interrupted.
    fn describe_reencryption(&mut self, metadata: &Metadata, size: u64) {
        let course = match metadata.reencryption() {
            Ok(Some(course)) => course,
            Ok(None) => return,
            Err(error) => return self.damage.push(clean(&error.text())),
        };
        let bytes = course.parts(size).ok().map(|parts| {
            let bytes = |state: Option<State>| -> u64 {
                let parts = parts.iter().filter(|part| state.is_none_or(|state| part.state == state));
                parts.map(|part| part.range.end - part.range.start).sum()
            };
            (bytes(Some(State::New)), bytes(None))
        });
        let done = bytes.map(|(done, all)| {
            format!(", {done} of {all} bytes are done ({}%)", u128::from(done) * 100 / u128::from(all.max(1)))
        });
        let (mode, direction) = (course.mode.name(), course.direction.name());
        self.reencryption = Some(Progress { mode, direction, bytes });
        let what = match course.mode {
            Mode::Encrypt => "encryption",
            Mode::Decrypt => "decryption",
            Mode::Reencrypt => "reencryption",
        };
        self.say("under way", format!("{what}{}, {direction}", done.unwrap_or_default()));
    }

    /// Describes a file system by its superblock, the primary one or the backup in a block.
    fn describe_ext(&mut self, part: &Arc<dyn BlockDevice>, superblock: &[u8], block: Option<u64>) {
        let raw = superblock.first_chunk::<SUPERBLOCK_SIZE>();
        let Some(Ok(superblock)) = raw.map(|raw| Superblock::from_bytes(raw)) else {
            self.damage.push("the superblock is not one that could be read".to_owned());
            return;
        };
        let features = format!("{} {} {}", superblock.compat, superblock.incompat, superblock.ro_compat);
        let has = |name: &str| features.split_whitespace().any(|feature| feature == name);
        let version = match (has("extent"), has("has_journal")) {
            (true, _) => "ext4",
            (false, true) => "ext3",
            (false, false) => "ext2",
        };
        self.say("version", version);
        self.say("label", superblock.label());
        self.say("uuid", Uuid::from_bytes(superblock.uuid).to_string());
        self.say("last mounted on", superblock.last_mounted());
        self.say("block size", superblock.block_size);
        self.say_size(superblock.blocks.saturating_mul(superblock.block_size.into()));
        let used = superblock.blocks.saturating_sub(superblock.blocks_free);
        self.used = Some(used.saturating_mul(superblock.block_size.into()));
        let state = match (superblock.state() & 2 != 0, superblock.needs_recovery(), superblock.is_clean()) {
            (true, ..) => "with errors",
            (_, true, _) => "not closed: its journal must be replayed",
            (.., true) => "clean",
            _ => "not closed",
        };
        self.say("state", state);
        let protection = [
            ("encrypt", "encrypted directories"),
            ("verity", "files with fs-verity"),
            ("metadata_csum", "metadata checksums"),
            ("casefold", "names without regard to case"),
        ];
        let protection: Vec<&str> =
            protection.iter().filter(|(name, _)| has(name)).map(|(_, what)| *what).collect();
        self.say("features", protection.join(", "));
        let options = ReadOptions { superblock: block, ..ReadOptions::default() };
        match Image::over("", Arc::clone(part)).ext4(&options, &Work::default()) {
            Ok(fs) => {
                let root = fs.read_dir("/").unwrap_or_else(|error| {
                    self.damage.push(error.text().into_owned());
                    Vec::new()
                });
                let entries = root.into_iter().take(MOST_ENTRIES);
                let fs = fs.inodes();
                let encrypted = entries.filter(|entry| {
                    let inode = fs.inode(entry.inode);
                    has("encrypt") && inode.is_ok_and(|inode| fs.encrypted(&inode).is_ok_and(|e| e.is_some()))
                });
                // Names at the top are never encrypted themselves.
                let names: Vec<String> =
                    encrypted.map(|entry| format!("/{}", String::from_utf8_lossy(&entry.name))).collect();
                self.say("encrypted", names.join(" "));
            }
            Err(error) => self.damage.push(error.text().into_owned()),
        }
    }

    /// Notes facts in headers of formats that nothing here reads further.
    fn describe(&mut self, what: &'static str, head: &[u8]) {
        let text = |at: usize, len: usize| {
            let bytes = head.get(at..at + len).unwrap_or_default();
            let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let number = |at: usize, len: usize, big: bool| {
            let bytes = head.get(at..at + len).unwrap_or_default();
            let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
            if big { bytes.iter().fold(0, push) } else { bytes.iter().rev().fold(0, push) }
        };
        match what {
            QCOW2 => {
                self.say("version", number(4, 4, true));
                self.say("disk bytes", number(24, 8, true));
                self.say("encryption", ["", "AES", "LUKS"].get(number(32, 4, true) as usize).unwrap_or(&"?"));
            }
            SPARSE => self.say("disk bytes", number(12, 4, false).saturating_mul(number(16, 4, false))),
            XFS => {
                self.say("label", text(108, 12));
                self.say("uuid", uuid_of(head, 32));
                self.say_size(number(4, 4, true).saturating_mul(number(8, 8, true)));
            }
            BTRFS => {
                self.say("label", text(65_536 + 0x12b, 256));
                self.say("uuid", uuid_of(head, 65_536 + 0x20));
                self.say_size(number(65_536 + 0x70, 8, false));
                self.used = Some(number(65_536 + 0x78, 8, false));
            }
            SQUASHFS => self.say_size(number(40, 8, false)),
            EROFS => {
                self.say("label", text(1024 + 64, 16));
                self.say("uuid", uuid_of(head, 1024 + 48));
                let shift = number(1024 + 12, 1, false).min(16);
                self.say_size(number(1024 + 36, 4, false) << shift);
            }
            "a FAT file system" => {
                let at = if head.get(82..87) == Some(b"FAT32") { 67 } else { 39 };
                self.say("uuid", serial(number(at, 4, false)));
            }
            "an exFAT file system" => self.say("uuid", serial(number(100, 4, false))),
            "an NTFS file system" => self.say("uuid", format!("{:016X}", number(72, 8, false))),
            "an LVM physical volume" => {
                let label = (0..4).map(|sector| sector * 512).find(|at| text(*at, 8) == "LABELONE");
                let uuid: Vec<char> = text(label.unwrap_or(0) + 32, 32).chars().collect();
                let mut parts = uuid.as_slice();
                let lens = [6, 4, 4, 4, 4, 4, 6].into_iter();
                let parts = lens.map_while(|len| parts.split_off(..len)).map(|part| part.iter().collect());
                self.say("uuid", parts.collect::<Vec<String>>().join("-"));
            }
            "a member of an MD array" => {
                let at = if head.starts_with(&[0xfc, 0x4e, 0x2b, 0xa9]) { 0 } else { 4096 };
                self.say("uuid", uuid_of(head, at + 16));
                self.say("label", text(at + 32, 32));
            }
            SWAP => {
                self.say("label", text(1024 + 28, 16));
                self.say("uuid", uuid_of(head, 1024 + 12));
            }
            INTEGRITY => {
                self.say("version", number(8, 1, false));
                self.say("tag bytes", number(10, 2, false));
                self.say("data bytes", number(16, 8, false).saturating_mul(512));
            }
            _ => {}
        }
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

/// Look of bytes of no known format, and how many could not be read.
fn content(device: &dyn BlockDevice) -> (Content, u64) {
    // Of blocks that are not zero: a sparse file may have been encrypted without its holes.
    let (mut counts, mut counted, mut read, mut unreadable) = ([0_u64; 256], 0, 0, 0);
    let mut buffer = Vec::new();
    for range in samples(device.size()) {
        // OK to cast: at most a MiB.
        buffer.resize((range.end - range.start) as usize, 0);
        if device.read_at(&mut buffer, range.start).is_err() {
            unreadable += buffer.len() as u64;
            continue;
        }
        read += buffer.len() as u64;
        for block in buffer.chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0)) {
            counted += block.len() as u64;
            block.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        }
    }
    let look = match (read, counted) {
        (0, _) if unreadable == 0 => Look::Empty,
        (0, _) => Look::Other,
        (_, 0) => Look::Zeros,
        _ if is_even(&counts, counted) => Look::Random,
        _ => Look::Other,
    };
    (Content { read, look }, unreadable)
}

/// Whether all values are about as frequent. The sum below is 255 on average for random bytes, and 255 +- 23 in two of three
/// cases; texts and programs have more than ten times as much.
fn is_even(counts: &[u64; 256], bytes: u64) -> bool {
    const LEAST: u64 = 4096;
    let expected = bytes as f64 / 256.0;
    let squares = counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected);
    bytes >= LEAST && squares.sum::<f64>() < 400.0
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

/// The number of a FAT volume as it is written.
fn serial(number: u64) -> String {
    format!("{:04X}-{:04X}", number >> 16 & 0xffff, number & 0xffff)
}

fn uuid_of(head: &[u8], at: usize) -> String {
    let bytes = head.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| Uuid::from_bytes(*bytes).to_string()).unwrap_or_default()
}

/// Places that are looked at: tables can name one file system, with its journal, thousands of times.
const MOST_PLACES: u32 = 256;

/// Entries of a root directory that are looked at.
const MOST_ENTRIES: usize = 1000;

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
