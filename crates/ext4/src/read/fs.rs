//! An open file system: superblock, descriptors, inodes, and blocks with their checksums.

use std::fmt;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use casemate_blockdev::{BlockDevice, usize_of};
use casemate_primitives::crc32c::Crc32c;
use casemate_providers::Providers;

use crate::error::{Error, Place, Result, Structure};
use crate::format::csum::{self, Checksums, Subject};
use crate::format::group::GroupDescriptor;
use crate::format::inode::{FileType, GENERATION, Inode, InodeFlags};
use crate::format::layout::Layout;
use crate::format::superblock::Superblock;
use crate::read::encryption::{EncryptedInode, Encryption, no_keys};
use crate::read::journal::recovery::Recovery;
use crate::read::kept::KeptBlocks;
use crate::read::primary::{read_primary, read_superblock};
use crate::units::{Block, GroupNo, InodeNo};

/// How to open a file system.
#[derive(Clone)]
pub struct OpenOptions {
    /// The implementations that compute checksums.
    pub providers: Providers,
    /// Whether structures with a wrong checksum are refused, as the kernel does. On by default.
    pub verify_checksums: bool,
    /// Whether a journal that must be replayed is, in memory. On by default; without, the image is read as
    /// it lies there, which may be anything between two states.
    pub replay_journal: bool,
    /// Reader of names and contents of encrypted inodes.
    pub encryption: Option<Arc<dyn Encryption>>,
    /// Whether the device may end before the file system does: what lies behind its end fails when it is read. Off by
    /// default.
    pub cut_short: bool,
    /// The block of the copy of the superblock that is read by, with its copies of the descriptors; the primary one if
    /// `None`.
    pub superblock: Option<Block>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        let providers = Providers::default();
        OpenOptions {
            providers,
            verify_checksums: true,
            replay_journal: true,
            encryption: None,
            cut_short: false,
            superblock: None,
        }
    }
}

/// A file system on a device, open for reading by any number of threads. Cheap to clone.
#[derive(Clone)]
pub struct Ext4(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    device: Arc<dyn BlockDevice>,
    superblock: Superblock,
    layout: Layout,
    checksums: Checksums,
    verify: bool,
    /// The first blocks of descriptors, read when they are needed. Those of groups behind are read each time.
    descriptors: Vec<OnceLock<Box<[u8]>>>,
    /// Other metadata that was read, where nobody changes it meanwhile.
    kept: Option<Arc<KeptBlocks>>,
    recovery: Recovery,
    encryption: Option<Arc<dyn Encryption>>,
}

/// Bytes of descriptors that are kept: those of 32 TiB with blocks of 4096 bytes.
const MOST_DESCRIPTORS: u32 = 1 << 24;

impl Ext4 {
    /// The file system on a device that somebody changes, with nothing replayed: every look at metadata is one at the device.
    pub(crate) fn open_changing(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Ext4> {
        let fs = Ext4::described(device, options)?;
        if options.verify_checksums {
            fs.verify_superblock()?;
        }
        Ok(fs)
    }

    /// The file system that the superblock on the device describes, or the copy that the options name, with nothing replayed.
    pub(crate) fn described(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Ext4> {
        let superblock = match options.superblock {
            None => read_primary(&*device, Crc32c::new(options.providers.cpu()))?,
            Some(block) => read_copy(&*device, block)?,
        };
        Ext4::with_superblock(device, superblock, options)
    }

    /// The file system that `superblock` describes, with nothing replayed.
    pub(crate) fn with_superblock(
        device: Arc<dyn BlockDevice>,
        superblock: Superblock,
        options: &OpenOptions,
    ) -> Result<Ext4> {
        superblock.incompat.check_readable()?;
        let mut layout = Layout::new(&superblock)?;
        if options.superblock.is_some() {
            layout = layout.by_copies_of(superblock.group());
        }
        let needed = layout.blocks.checked_mul(u64::from(layout.block_size));
        let size = device.size();
        if needed.is_none_or(|needed| needed > size && !options.cut_short) {
            let text = format!(
                "{} blocks of {} bytes on a device of {size} bytes: it is cut off, and only what is here can be read",
                layout.blocks, layout.block_size
            );
            return Err(Place::of(Structure::Superblock).malformed(text));
        }
        let checksums = Checksums::new(Crc32c::new(options.providers.cpu()), &superblock)?;
        let kept = layout.descriptor_blocks().min(MOST_DESCRIPTORS / layout.block_size);
        Ok(Ext4(Arc::new(Inner {
            device,
            descriptors: (0..kept).map(|_| OnceLock::new()).collect(),
            superblock,
            layout,
            checksums,
            verify: options.verify_checksums,
            kept: None,
            recovery: Recovery::default(),
            encryption: options.encryption.clone(),
        })))
    }

    /// The file system, with a report on its journal.
    pub(crate) fn with_recovery(self, recovery: Recovery) -> Ext4 {
        self.with(|inner| inner.recovery = recovery)
    }

    /// The file system, some MiB of whose metadata are kept in memory: for one that nobody changes.
    pub(crate) fn keeping_blocks(self) -> Ext4 {
        let kept = KeptBlocks::new(self.layout().block_size);
        self.with(|inner| inner.kept = Some(Arc::new(kept)))
    }

    /// The file system, with another reader of names and contents of encrypted inodes.
    #[must_use]
    pub fn with_encryption(&self, encryption: Arc<dyn Encryption>) -> Ext4 {
        self.clone().with(|inner| inner.encryption = Some(encryption))
    }

    /// File system over a device with other states of its blocks; nothing that was read is kept.
    pub(crate) fn on_device(&self, device: Arc<dyn BlockDevice>) -> Ext4 {
        let inner = &*self.0;
        Ext4(Arc::new(Inner {
            device,
            superblock: inner.superblock.clone(),
            layout: inner.layout,
            checksums: inner.checksums,
            verify: inner.verify,
            descriptors: inner.descriptors.iter().map(|_| OnceLock::new()).collect(),
            kept: None,
            recovery: inner.recovery.clone(),
            encryption: inner.encryption.clone(),
        }))
    }

    fn with(self, change: impl FnOnce(&mut Inner)) -> Ext4 {
        let mut inner = Arc::unwrap_or_clone(self.0);
        change(&mut inner);
        Ext4(Arc::new(inner))
    }

    /// Bytes of the file system behind the end of the device.
    pub fn missing_bytes(&self) -> u64 {
        let needed = self.layout().blocks.saturating_mul(u64::from(self.layout().block_size));
        needed.saturating_sub(self.device().size())
    }

    /// Whether blocks lie on the device, not behind the end of one that is cut off.
    pub(crate) fn is_present(&self, block: Block, count: u64) -> bool {
        let end = self
            .layout()
            .offset(block)
            .saturating_add(count.saturating_mul(u64::from(self.layout().block_size)));
        end <= self.device().size()
    }

    /// Refuses a file of whose contents some lie behind the end of the device.
    pub(crate) fn require_present(&self, inode: &Inode) -> Result<()> {
        if self.missing_bytes() == 0 || inode.has(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        let size = self.device().size();
        self.mappings(inode, 0, |run| {
            let end = self
                .layout()
                .offset(run.physical)
                .saturating_add(run.len * u64::from(self.layout().block_size));
            match end > size && !run.unwritten {
                false => Ok(ControlFlow::Continue(())),
                true => {
                    let text =
                        format!("inode {}: some of it lies behind the end of the image", inode.number());
                    Err(Error::path(ErrorKind::UnexpectedEof, text))
                }
            }
        })
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.0.superblock
    }

    /// Sizes, counts and fixed places.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// The checksums that the file system carries.
    pub fn checksums(&self) -> &Checksums {
        &self.0.checksums
    }

    /// The report on the journal.
    pub fn recovery(&self) -> &Recovery {
        &self.0.recovery
    }

    /// The device, with the journal replayed over it.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.0.device
    }

    /// The reader of names and contents of encrypted inodes.
    pub(crate) fn encryption(&self) -> Option<&Arc<dyn Encryption>> {
        self.0.encryption.as_ref()
    }

    /// The root directory.
    pub fn root(&self) -> Result<Inode> {
        self.inode(InodeNo::ROOT)
    }

    /// The inode with this number.
    ///
    /// # Errors
    /// `Corrupt` when there is no such inode, it is not in use, or its checksum does
    /// not fit.
    pub fn inode(&self, number: InodeNo) -> Result<Inode> {
        let inode = self.any_inode(number)?;
        if inode.links() == 0 && !self.superblock().is_reserved(number) && number != InodeNo::ROOT {
            return Err(Place::inode(Structure::Inode, number).malformed("is not in use"));
        }
        Ok(inode)
    }

    /// The inode, which may have no names, as one in use until it is closed.
    ///
    /// # Errors
    /// `Corrupt` when there is no such inode, or its checksum does not fit.
    pub fn any_inode(&self, number: InodeNo) -> Result<Inode> {
        let place = Place::inode(Structure::Inode, number);
        let Some((group, index)) = self.layout().inode_position(number) else {
            return Err(place.malformed("there is no inode with this number"));
        };
        let table = self.with_descriptor(group, |descriptor| descriptor.inode_table())?;
        let table_place = Place::group(Structure::GroupDescriptor, group);
        self.check_blocks(table, self.layout().inode_table_blocks(), table_place)?;
        let offset = u64::from(index) * u64::from(self.layout().inode_size);
        self.within_block(self.layout().offset(table) + offset, self.layout().inode_size, |raw| {
            let context = csum::Context {
                inode: Some(number),
                generation: GENERATION.get(raw),
                ..csum::Context::default()
            };
            self.verify(Subject::Inode, &context, raw, place)?;
            Inode::from_bytes(number, raw)
        })
    }

    /// Calls `f` with a group's descriptor.
    ///
    /// # Errors
    /// `Corrupt` when the descriptor's checksum does not fit.
    pub(crate) fn with_descriptor<T>(
        &self,
        group: GroupNo,
        f: impl FnOnce(GroupDescriptor<'_>) -> T,
    ) -> Result<T> {
        let context = csum::Context { group, ..csum::Context::default() };
        let place = Place::group(Structure::GroupDescriptor, group);
        self.with_raw_descriptor(group, |raw| {
            self.verify(self.checksums().descriptor_subject(), &context, raw, place)?;
            Ok(f(GroupDescriptor::from_bytes(raw)?))
        })?
    }

    /// Calls `f` with the bytes of a group's descriptor, whatever its checksum.
    pub(crate) fn with_raw_descriptor<T>(&self, group: GroupNo, f: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let (index, at) = self.layout().descriptor_position(group);
        let size = self.layout().descriptor_len();
        let start = usize_of(at) * size;
        let slot = self.0.descriptors.get(usize_of(index));
        if let Some(block) = slot.and_then(OnceLock::get) {
            return Ok(f(&block[start..start + size]));
        }
        let number = self.layout().descriptor_block(index);
        self.check_blocks(number, 1, Place::of(Structure::Superblock))?;
        let block = self.read_block(number)?;
        let result = f(&block[start..start + size]);
        // Another thread may have been faster; its block is the same.
        let _ = slot.map(|slot| slot.set(block.into()));
        Ok(result)
    }

    /// Where a group's descriptor lies, in bytes.
    pub(crate) fn descriptor_offset(&self, group: GroupNo) -> u64 {
        let (index, at) = self.layout().descriptor_position(group);
        let within = u64::from(at) * u64::from(self.layout().descriptor_size);
        self.layout().offset(self.layout().descriptor_block(index)) + within
    }

    /// A block's bytes. `block` must lie in the file system.
    pub(crate) fn read_block(&self, block: Block) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.layout().block_len()];
        self.device().read_at(&mut bytes, self.layout().offset(block))?;
        Ok(bytes)
    }

    /// A block of metadata, which may be kept in memory. `block` must lie in the file system.
    pub(crate) fn metadata_block(&self, block: Block) -> Result<Arc<[u8]>> {
        match &self.0.kept {
            Some(kept) => kept.get_or_read(block, || self.read_block(block)),
            None => Ok(self.read_block(block)?.into()),
        }
    }

    /// Calls `f` with bytes of metadata that lie in one block.
    fn within_block<T>(&self, offset: u64, len: u32, f: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let (block, at) = Block::position_of(offset, self.layout().block_size.into());
        if self.0.kept.is_some()
            && let Ok(block) = self.metadata_block(block)
        {
            return f(&block[at..][..usize_of(len)]);
        }
        // Of a block that can't be read whole, these bytes may be there.
        let mut raw = vec![0; usize_of(len)];
        self.device().read_at(&mut raw, offset)?;
        f(&raw)
    }

    /// Checks a structure's checksum, unless this file system was opened without checks.
    pub(crate) fn verify(
        &self,
        subject: Subject,
        context: &csum::Context,
        bytes: &[u8],
        place: Place,
    ) -> Result<()> {
        if self.0.verify { self.checksums().verify(subject, context, bytes, place) } else { Ok(()) }
    }

    /// Whether checksums are checked while reading.
    pub(crate) fn verifies(&self) -> bool {
        self.0.verify
    }

    pub(crate) fn verify_superblock(&self) -> Result<()> {
        let place = Place::of(Structure::Superblock);
        let raw = &self.superblock().as_bytes()[..];
        self.checksums().verify(Subject::Superblock, &csum::Context::default(), raw, place)
    }

    /// Whether everything about an inode can be read: it is not encrypted, or its key is there.
    ///
    /// # Errors
    /// `Unsupported` when the key is missing;
    /// `Corrupt` when the context makes no sense.
    pub fn require_key(&self, inode: &Inode) -> Result<()> {
        match (self.encrypted(inode)?, self.encryption()) {
            (None, _) => Ok(()),
            (Some(encrypted), Some(encryption)) => encryption.require_key(&encrypted),
            (Some(_), None) => Err(no_keys(inode)),
        }
    }

    /// The facts of an inode that decryption needs; `None` if it is not encrypted.
    ///
    /// # Errors
    /// `Corrupt` when an encrypted inode has no context.
    pub fn encrypted(&self, inode: &Inode) -> Result<Option<EncryptedInode>> {
        let encrypts = matches!(inode.kind(), FileType::Regular | FileType::Directory | FileType::Symlink);
        if !encrypts || !inode.has(InodeFlags::ENCRYPT) {
            return Ok(None);
        }
        let context = self.encryption_context(inode)?;
        Ok(Some(self.encrypted_as(inode.number(), inode.kind(), inode.flags(), context)))
    }

    pub(crate) fn encrypted_as(
        &self,
        number: InodeNo,
        kind: FileType,
        flags: InodeFlags,
        context: Vec<u8>,
    ) -> EncryptedInode {
        EncryptedInode {
            number,
            kind,
            casefolded: flags.has(InodeFlags::CASEFOLD),
            context,
            uuid: self.superblock().uuid,
            block_size: self.layout().block_size,
        }
    }

    /// An encrypted inode with who reads it, if its key is there.
    pub(crate) fn unlocked(&self, inode: &Inode) -> Option<(EncryptedInode, &Arc<dyn Encryption>)> {
        let encryption = self.encryption()?;
        let encrypted = self.encrypted(inode).ok()??;
        encryption.require_key(&encrypted).ok()?;
        Some((encrypted, encryption))
    }
}

impl fmt::Debug for Ext4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ext4").field("layout", self.layout()).finish_non_exhaustive()
    }
}

/// The copy of the superblock in a block, whose size it tells itself.
pub(crate) fn read_copy(device: &dyn BlockDevice, block: Block) -> Result<Superblock> {
    let found = (10..=16).map(|log| 1u64 << log).find_map(|block_size| {
        let offset = block.checked_offset(block_size)?;
        let copy =
            read_superblock(device, offset).ok().filter(|copy| u64::from(copy.block_size) == block_size)?;
        let layout = Layout::new(&copy).ok()?;
        (layout.superblock_offset(copy.group()) == Some(offset)).then_some(copy)
    });
    let place = Place::of(Structure::BackupSuperblock).at(block);
    found.ok_or_else(|| place.malformed("there is no copy of a superblock there"))
}
