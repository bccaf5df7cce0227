//! Extended attributes: entries in the inode and in blocks that inodes share, and inodes that hold values.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use casemate_blockdev::{BlockDevice, ErrorKind, u64_of, usize_of};

use crate::check::blocks::Walked;
use crate::check::facts::Fact;
use crate::check::findings::{Finding, FindingKind};
use crate::check::worker::{Purpose, Worker, XattrUse};
use crate::error::{Corrupt, Place, Problem, Result, Structure};
use crate::format::csum::{Context, Subject};
use crate::format::inode::InodeFlags;
use crate::format::raw_inode::RawInode;
use crate::format::xattr::{
    self, ENCRYPTION, IN_BLOCK, INLINE_DATA, LARGEST_VALUE, RawXattr, SYSTEM, block_header, name_hash,
    raw_entries, value_hash, word_hash,
};
use crate::units::{Block, GroupNo, InodeNo};

/// Bytes of fscrypt's contexts, by version, and how many of them are the policy: the rest is a nonce.
const CONTEXTS: [(u8, usize); 2] = [(1, 28), (2, 40)];
const NONCE: usize = 16;

/// Facts from an inode's attributes that the rest of the check needs.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    /// True if the inode has a block of attributes.
    pub has_block: bool,
    /// Bytes of contents that follow the first ones in the inode.
    pub inline_data: Option<u32>,
    /// Identity of the encryption context's policy; `Err` with the fault of an invalid context.
    pub policy: Option<std::result::Result<u64, Cow<'static, str>>>,
    /// Clusters and inodes of values that lie in inodes of their own.
    pub values: (u64, u64),
}

impl Worker<'_, '_> {
    pub fn attributes(&mut self, inode: RawInode<'_>, place: Place) -> Result<Attributes> {
        let mut found = Attributes::default();
        if let Some(base) = xattr::in_inode(inode.xattr_area()) {
            let place = Place::inode(Structure::Xattr, inode.number);
            self.entries(inode, base, 0, place, &mut found)?;
        }
        if let Some(block) = inode.xattr_block(self.check.has.bits64) {
            self.xattr_block(inode, block, place, &mut found)?;
        }
        Ok(found)
    }

    fn xattr_block(
        &mut self,
        inode: RawInode<'_>,
        block: Block,
        place: Place,
        found: &mut Attributes,
    ) -> Result<()> {
        let check = self.check;
        let layout = check.fs.layout();
        if !check.has.xattrs || block < layout.group_start(GroupNo::PRIMARY) || block >= layout.end() {
            // Nobody looks for those of the file system's own inodes.
            if !check.facts.get(inode.number).has(Fact::INTERNAL) {
                self.say(FindingKind::XattrBlock, place, format!("its attributes lie at block {block}"));
            }
            return Ok(());
        }
        found.has_block = true;
        // The first inode that leads to a block has it checked; for others it is a number.
        let is_first = {
            let mut lists = check.lists();
            let known = lists.xattr_blocks.entry(block);
            let is_first = matches!(known, std::collections::hash_map::Entry::Vacant(_));
            let known = known.or_default();
            if self.purpose == Purpose::Check {
                known.found += 1;
            }
            is_first
        };
        let is_check = self.purpose == Purpose::Check;
        if !is_check || is_first {
            let cluster = u64::from(layout.cluster_blocks);
            self.own(inode.number, block.cluster(cluster).first_block(cluster), cluster);
        }
        if !is_check {
            return Ok(());
        }
        // Policies and charges are each inode's own; whoever comes while the first one reads waits for nothing.
        let needs = inode.has(InodeFlags::ENCRYPT) || check.has.quota || inode.has(InodeFlags::INLINE_DATA);
        if !is_first && !needs {
            return Ok(());
        }
        if !check.fs.is_present(block, 1) {
            return Ok(());
        }
        let bytes = check.fs.read_block(block)?;
        let place = Place::of(Structure::XattrBlock).at(block);
        let (is_one, stored, blocks) = block_header(&bytes);
        let mut own = Attributes::default();
        if is_first {
            check.lists().xattr_blocks.entry(block).or_default().stored = if is_one { stored } else { 0 };
            if !is_one || blocks != 1 {
                self.say(FindingKind::XattrBlock, place, "is not a block of attributes");
                return Ok(());
            }
            let context = Context { block, ..Context::default() };
            self.verify(place, layout.offset(block), &bytes, Subject::XattrBlock, context);
            self.entries(inode, &bytes, IN_BLOCK, place, &mut own)?;
        } else if is_one {
            let purpose = std::mem::replace(&mut self.purpose, Purpose::Collect);
            let result = self.entries(inode, &bytes, IN_BLOCK, place, &mut own);
            self.purpose = purpose;
            result?;
        }
        found.inline_data = found.inline_data.or(own.inline_data);
        found.policy = found.policy.take().or(own.policy);
        found.values = (found.values.0 + own.values.0, found.values.1 + own.values.1);
        Ok(())
    }

    /// Checks entries that begin at `at` of what their values' offsets count from.
    fn entries(
        &mut self,
        inode: RawInode<'_>,
        base: &[u8],
        at: usize,
        place: Place,
        found: &mut Attributes,
    ) -> Result<()> {
        let in_block = at > 0;
        // In an inode nobody asks where no bytes are, unless the file system needs one of its attributes.
        let needs_attributes = inode.has(InodeFlags::INLINE_DATA) || inode.has(InodeFlags::ENCRYPT);
        let is_strict = in_block || needs_attributes;
        let mut regions = std::mem::take(&mut self.regions);
        regions.clear();
        let mut holders = Vec::new();
        let end = raw_entries(base, at, |entry| {
            let is_policy = (entry.index, entry.name) == (ENCRYPTION, b"c");
            if in_block && entry.index == 0 {
                self.say(FindingKind::Xattr, place, "an attribute without a prefix");
            }
            if let Some(value_inode) = entry.value_inode {
                // e2fsck finds none of the attributes then, and without them there are no contents.
                if entry.value_offset != 0 && needs_attributes {
                    let name = entry.name.escape_ascii();
                    let at = entry.value_offset;
                    let text =
                        format!("the value of \"{name}\" lies in an inode of its own, and at byte {at} here");
                    self.say(FindingKind::Xattr, place, text);
                }
                holders.push((entry.name.to_vec(), value_inode, entry.value_size, entry.hash));
                return;
            }
            if (entry.index, entry.name) == (SYSTEM, INLINE_DATA) {
                found.inline_data = Some(entry.value_size);
            }
            let value = self.value_of(base, &entry, is_strict, place, &mut regions);
            let Some(value) = value else { return };
            if is_policy {
                found.policy = Some(self.context(inode, value));
            }
            // In an inode a hash may be missing.
            if in_block || entry.hash != 0 {
                // Of the value as it lies there, with what fills it up to whole words.
                let whole = match value.len().next_multiple_of(4) {
                    0 => value,
                    len => &base[entry.value_offset..][..len],
                };
                let hash = |signed| value_hash(name_hash(entry.name, signed), whole);
                if hash(false) != entry.hash && hash(true) != entry.hash {
                    let name = entry.name.escape_ascii();
                    self.say(
                        FindingKind::XattrHash,
                        place,
                        format!("the hash of the attribute \"{name}\" is wrong"),
                    );
                }
            }
        });
        match end {
            None => self.say(FindingKind::Xattr, place, "an attribute passes the end"),
            Some(end) => {
                regions.push((0, end + 4));
                regions.sort_unstable();
                if regions.windows(2).any(|pair| pair[1].0 < pair[0].1) {
                    self.say(FindingKind::Xattr, place, "values overlap each other or the entries");
                }
            }
        }
        self.regions = regions;
        for (name, number, size, hash) in holders {
            self.holder(inode, place, &name, number, size, hash, found)?;
        }
        Ok(())
    }

    /// The value of an entry, where it is, and its place among the others.
    fn value_of<'v>(
        &self,
        base: &'v [u8],
        entry: &RawXattr<'_>,
        is_strict: bool,
        place: Place,
        regions: &mut Vec<(usize, usize)>,
    ) -> Option<&'v [u8]> {
        let size = usize_of(entry.value_size);
        if size == 0 && (!is_strict || entry.value_offset <= base.len()) {
            return Some(&[]);
        }
        let rounded = size.checked_next_multiple_of(4)?;
        let end = entry.value_offset.checked_add(rounded).filter(|end| *end <= base.len());
        let Some(end) = end else {
            let name = entry.name.escape_ascii();
            let text =
                format!("the value of \"{name}\", {size} bytes at {}, passes the end", entry.value_offset);
            self.say(FindingKind::Xattr, place, text);
            return None;
        };
        regions.push((entry.value_offset, end));
        Some(&base[entry.value_offset..entry.value_offset + size])
    }

    /// The inode that holds a value.
    #[expect(clippy::too_many_arguments, reason = "the parts of an entry")]
    fn holder(
        &mut self,
        inode: RawInode<'_>,
        place: Place,
        name: &[u8],
        number: InodeNo,
        size: u32,
        hash: u32,
        found: &mut Attributes,
    ) -> Result<()> {
        let check = self.check;
        let layout = check.fs.layout();
        let cluster = u64::from(layout.block_size) * u64::from(layout.cluster_blocks);
        let wrong = |text: String| self.say(FindingKind::XattrInode, place, text);
        if check.fs.superblock().is_reserved(number) || number.get() > layout.inodes {
            wrong(format!("a value lies in inode {number}"));
            return Ok(());
        }
        let Some(raw) = check.inode_bytes(self.groups, number)? else {
            wrong(format!("a value lies in inode {number}, which can't be found"));
            return Ok(());
        };
        let holder = RawInode { number, raw: &raw };
        let (stored, _) = holder.value();
        let expected = |signed| word_hash(name_hash(name, signed), stored);
        if [expected(false), expected(true)].contains(&hash) {
            found.values.0 += u64::from(size).div_ceil(cluster);
            found.values.1 += 1;
            check.has_value_inode.fetch_or(holder.has(InodeFlags::EA_INODE), Ordering::Relaxed);
        } else if !is_lustre_value(holder, inode) {
            match holder.has(InodeFlags::EA_INODE) {
                true => self.say(
                    FindingKind::XattrHash,
                    place,
                    format!("the hash of the attribute \"{}\" is wrong", name.escape_ascii()),
                ),
                false => wrong(format!("a value lies in inode {number}, which holds none")),
            }
            return Ok(());
        }
        if !holder.has(InodeFlags::EA_INODE) || holder.links() == 0 {
            wrong(format!("a value lies in inode {number}, which does not say that it holds one"));
        } else if holder.size() != u64::from(size) {
            wrong(format!("a value of {size} bytes lies in inode {number} of {}", holder.size()));
        }
        if self.purpose == Purpose::Check && holder.has(InodeFlags::EA_INODE) {
            check.facts.add_reference(number);
            self.never_used(number, "inodes that were never used hold values of attributes");
        }
        Ok(())
    }

    /// An inode that holds a value: its contents against their hash.
    pub fn value(&mut self, inode: RawInode<'_>, walked: &Walked) -> Result<()> {
        let check = self.check;
        let (hash, users) = inode.value();
        // Those of the old kind have two equal times in its place.
        self.lists.values.push((inode.number, Some(users).filter(|users| users >> 32 != u64::from(hash))));
        let place = Place::inode(Structure::XattrInode, inode.number);
        let size = inode.size().min(LARGEST_VALUE.into());
        let block_size = u64::from(check.fs.layout().block_size);
        if !walked.is_sound || !check.may_read(size.div_ceil(block_size)) {
            return Ok(());
        }
        let Ok(owned) = inode.to_inode() else { return Ok(()) };
        if check.fs.require_present(&owned).is_err() {
            return Ok(());
        }
        let Ok(contents) = check.fs.open_stored(&owned) else { return Ok(()) };
        let contents = contents.with_size(size);
        self.counts.add(Structure::XattrInode, 1);
        let mut crc = None;
        let mut buffer = vec![0; 1 << 16];
        let mut at = 0;
        while at < contents.size() {
            let len = usize_of(contents.size() - at).min(buffer.len());
            contents.read_at(&mut buffer[..len], at)?;
            crc = Some(check.fs.checksums().update(crc, &buffer[..len]));
            at += u64_of(len);
        }
        let expected = check.fs.checksums().update(crc, &[]);
        if expected != hash && !self.has_lustre_owner(inode)? {
            let problem = Problem::Checksum { expected, found: hash };
            check.findings.add(Finding::new(FindingKind::Checksum, place, problem), None);
        }
        Ok(())
    }

    /// Whether the inode is a value of the old kind, which points back to its owner and has no hash.
    fn has_lustre_owner(&self, inode: RawInode<'_>) -> Result<bool> {
        let Some(number) = InodeNo::new(inode.modified()) else { return Ok(false) };
        let Some(raw) = self.check.inode_bytes(self.groups, number)? else { return Ok(false) };
        let owner = RawInode { number, raw: &raw };
        Ok(is_lustre_value(inode, owner) && !owner.has(InodeFlags::EA_INODE))
    }

    /// The identity of the policy of a context, if that is valid.
    fn context(&self, inode: RawInode<'_>, context: &[u8]) -> std::result::Result<u64, Cow<'static, str>> {
        let policy = policy_id(context).ok_or("makes no sense")?;
        let fs = self.check.fs;
        let known =
            fs.encryption().filter(|_| inode.has(InodeFlags::ENCRYPT) && self.purpose == Purpose::Check);
        if let (Some(encryption), Some(kind)) = (known, inode.kind()) {
            let encrypted = fs.encrypted_as(inode.number, kind, inode.flags(), context.to_vec());
            // Without the key or the mode the rest can't be said.
            if let Err(error) = encryption.require_key(&encrypted)
                && error.kind() == ErrorKind::Corrupt
            {
                let text = Corrupt::of(&error).map(|corrupt| corrupt.problem().to_string());
                return Err(text.unwrap_or_else(|| error.to_string()).into());
            }
        }
        Ok(policy)
    }

    /// The context of an encrypted inode.
    pub fn policy(&mut self, inode: RawInode<'_>, attributes: &Attributes, place: Place) {
        let place = Place { structure: Structure::EncryptionContext, ..place };
        match &attributes.policy {
            // What holds a value is in no directory.
            Some(Ok(_)) if inode.has(InodeFlags::EA_INODE) => {}
            Some(Ok(policy)) => self.check.facts.set_policy(inode.number, self.check.policy(*policy)),
            Some(Err(text)) => self.say(FindingKind::Encryption, place, text.clone()),
            None => self.say(FindingKind::Encryption, place, "is missing"),
        }
    }
}

/// Counts the users of a block of attributes, against what it says.
pub(crate) fn users(place: Place, of: &XattrUse) -> Option<Finding> {
    let (found, expected) = (u64::from(of.stored), u64::from(of.found));
    let problem = Problem::Number { what: "inodes with this block".into(), expected, found };
    (found != expected).then(|| Finding::new(FindingKind::XattrReferences, place, problem))
}

fn is_lustre_value(holder: RawInode<'_>, owner: RawInode<'_>) -> bool {
    let back = holder.modified();
    back == owner.number.get() && holder.generation() == owner.generation() && back != 0
}

/// The identity of the policy of a context: 64 bits of it, mixed.
fn policy_id(context: &[u8]) -> Option<u64> {
    let version = *context.first()?;
    let (_, len) = CONTEXTS.iter().find(|(known, _)| *known == version)?;
    let policy = (context.len() == *len).then(|| &context[..len - NONCE])?;
    Some(
        policy.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        }),
    )
}
