//! Facts that superblocks and headers tell of themselves.

use std::sync::Arc;

use casemate_blockdev::signatures::{BTRFS, EROFS, SQUASHFS, SWAP, XFS};
use casemate_blockdev::{BlockDevice, Uuid, usize_of};
use casemate_ext4::{Block, Ext4, ExternalJournal, OpenOptions, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use casemate_luks::Header;
use casemate_luks::luks2::Metadata;
use casemate_luks::luks2::reencrypt::{Mode, State};
use casemate_primitives::hex;
use casemate_providers::Providers;
use casemate_verity::dm;

use super::{Found, INTEGRITY, Progress, QCOW2, Readable, SPARSE, clean};
use crate::{Error, Superblock};

/// Entries of a root directory that are looked at.
const MOST_ENTRIES: usize = 1000;

impl Found {
    pub(super) fn describe_verity(&mut self, part: &Arc<dyn BlockDevice>, offset: u64) {
        match layout_at(&**part, offset) {
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

    pub(super) fn describe_integrity(&mut self, head: &[u8]) {
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

    pub(super) fn describe_luks(&mut self, part: &Arc<dyn BlockDevice>, head: &[u8]) {
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

    /// Describes an external journal by what it has of a superblock.
    pub(super) fn describe_journal(&mut self, head: &[u8]) {
        let raw = head.get(usize_of(SUPERBLOCK_OFFSET)..).unwrap_or_default();
        let Some(journal) = ExternalJournal::from_superblock(raw) else {
            self.damage.push("the superblock is not one that could be read".to_owned());
            return;
        };
        self.say("label", journal.label);
        self.say("uuid", Uuid::from_bytes(journal.uuid).to_string());
        self.say("block size", journal.block_size);
        self.say_size(journal.blocks.saturating_mul(journal.block_size.into()));
    }

    /// Describes a file system by its superblock, the primary one or the backup in a block.
    pub(super) fn describe_ext(
        &mut self,
        part: &Arc<dyn BlockDevice>,
        superblock: &[u8],
        block: Option<u64>,
    ) {
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
        let superblock = block.map(Block::new);
        let options = OpenOptions { cut_short: true, superblock, ..OpenOptions::default() };
        let (opened, without_journal) = match Ext4::open(Arc::clone(part), &options) {
            Err(error) => {
                self.damage.push(error.text().into_owned());
                let options = OpenOptions { replay_journal: false, ..options };
                (Ext4::open(Arc::clone(part), &options), true)
            }
            opened => (opened, false),
        };
        let Ok(fs) = opened else {
            self.readable = Readable::Nothing;
            return;
        };
        if without_journal {
            self.readable = Readable::WithoutJournal;
        }
        let root = fs.resolve(b"/", true).and_then(|root| fs.read_dir(&root)).unwrap_or_else(|error| {
            self.damage.push(error.text().into_owned());
            self.readable = Readable::Inodes { without_journal };
            Vec::new()
        });
        let entries = root.into_iter().take(MOST_ENTRIES);
        let encrypted = entries.filter(|entry| {
            let inode = fs.inode(entry.inode);
            has("encrypt") && inode.is_ok_and(|inode| fs.encrypted(&inode).is_ok_and(|e| e.is_some()))
        });
        // Names at the top are never encrypted themselves.
        let names: Vec<String> =
            encrypted.map(|entry| format!("/{}", String::from_utf8_lossy(&entry.name))).collect();
        self.say("encrypted", names.join(" "));
    }

    /// Notes facts in headers of formats that nothing here reads further.
    pub(super) fn describe(&mut self, what: &'static str, head: &[u8]) {
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
                self.say(
                    "encryption",
                    ["", "AES", "LUKS"].get(usize_of(number(32, 4, true))).unwrap_or(&"?"),
                );
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

/// The number of a FAT volume as it is written.
fn serial(number: u64) -> String {
    format!("{:04X}-{:04X}", number >> 16 & 0xffff, number & 0xffff)
}

fn uuid_of(head: &[u8], at: usize) -> String {
    let bytes = head.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| Uuid::from_bytes(*bytes).to_string()).unwrap_or_default()
}

/// The layout that dm-verity's superblock at byte `offset` of a device says.
fn layout_at(device: &dyn BlockDevice, offset: u64) -> Result<dm::Layout, Error> {
    let mut bytes = [0; dm::SUPERBLOCK_SIZE];
    device.read_at(&mut bytes, offset)?;
    dm::Layout::from_superblock(dm::Superblock::from_bytes(&bytes)?, offset)
}
