//! Parameters of a file system that is there, changed: label, UUID, features and others that mke2fs gives it.
//!
//! [`Writer::tune`] makes all of a [`Tuning`] one commit. Most of that is the superblock with its copies. Another UUID is
//! the seed of all checksums, so all of them are computed anew; the features has_journal and orphan_file bring files or
//! take them away.

mod features;
mod journal;
mod seed;
mod words;

use crate::check::require_sound;
use crate::edit::Writer;
use crate::error::{Error, Result};
use crate::format::csum::Checksums;
use crate::format::features::Compat;
use crate::format::superblock::{Superblock, SuperblockMut};

pub use features::FeatureChange;
pub use words::{hash_name, mount_option_names};

/// The last second since 1970 that a superblock has room for: times in it have 40 bits.
const LAST_TIME: i64 = (1 << 40) - 1;

/// Changes of a file system's parameters; what is `None` stays as it is.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Tuning {
    /// The label, of at most 16 bytes.
    pub label: Option<Vec<u8>>,
    /// The UUID.
    pub uuid: Option<[u8; 16]>,
    /// Blocks that only root and the owners below may use: at most half of all.
    pub reserved_blocks: Option<u64>,
    /// The user that may use reserved blocks.
    pub reserved_user: Option<u16>,
    /// The group that may use reserved blocks.
    pub reserved_group: Option<u16>,
    /// Flags of default mount options that are set, and those that are cleared.
    pub mount_options: (u32, u32),
    /// Default mount options as text, of at most 63 bytes.
    pub mount_options_text: Option<Vec<u8>>,
    /// How often the file system may be mounted without a check; at 0 or 65535 as often as one likes.
    pub most_mounts: Option<u16>,
    /// How often it was mounted since the last check.
    pub mounts: Option<u16>,
    /// Seconds for which a check is enough; 0 for ever.
    pub check_interval: Option<u32>,
    /// When it was checked last, in seconds since 1970: from 0 to 2^40 - 1.
    pub checked: Option<i64>,
    /// Behaviour of the kernel on errors: 1 continue, 2 read-only, 3 panic.
    pub on_errors: Option<u16>,
    /// Where it was mounted last, at most 64 bytes.
    pub last_mounted: Option<Vec<u8>>,
    /// The version of the hash of new directories.
    pub hash_version: Option<u8>,
    /// Blocks of a RAID's stride.
    pub stride: Option<u16>,
    /// Blocks of all stripes of a RAID.
    pub stripe_width: Option<u32>,
    /// Whether the file system is for tests of file system code.
    pub for_tests: Option<bool>,
    /// Marks the file system as one in which errors were found, so that the next check is a whole one.
    pub force_check: bool,
    /// Features that come and go.
    pub features: FeatureChange,
    /// Bytes of a new journal; the usual size if `None`.
    pub journal_size: Option<u64>,
}

impl Writer {
    /// Changes parameters of the file system, all at once with the next commit.
    ///
    /// # Errors
    /// `Argument` for values that no file system can have; `Unsupported` for features that can't come or go, and where the
    /// UUID can't change, by name; `Corrupt` for a superblock with faults, which would be written over its copies. Nothing is
    /// changed then.
    pub fn tune(&mut self, tuning: &Tuning) -> Result<()> {
        require_sound(self.fs())?;
        let superblock = self.fs().superblock().clone();
        tuning.check(&superblock)?;
        let features = tuning.features.of(&superblock)?;
        let old = *self.fs().checksums();
        let mut raw = *superblock.as_bytes();
        tuning.apply(&mut SuperblockMut { raw: &mut raw }, &superblock);
        features.apply(&mut SuperblockMut { raw: &mut raw }, seed(&old, &superblock.uuid));
        let new = Checksums::new(old.crc32c(), &Superblock::from_bytes(&raw)?)?;
        let is_resealed = !old.agree_with(&new);
        if is_resealed {
            seed::check(&superblock)?;
        }
        if is_resealed || features.removes_journal() {
            // A journal can't be replayed by checksums that are the old ones here and the new ones there, nor bring about
            // its own end.
            if !self.has_recovery() {
                let text = match is_resealed {
                    true => {
                        "another seed of all checksums needs a recovery file; with the feature metadata_csum_seed the UUID changes alone"
                    }
                    false => "the end of the journal needs a recovery file",
                };
                return Err(Error::unsupported(text));
            }
            self.leave_journal()?;
        }
        self.operation(|files| {
            features.bring_files(files, tuning.journal_size)?;
            files.inodes().transaction().edit_superblock(|superblock| {
                let before = Superblock::from_bytes(superblock.raw)?;
                tuning.apply(superblock, &before);
                features.apply(superblock, seed(&old, &before.uuid));
                Ok(())
            })?;
            let space = files.inodes().space_mut();
            if is_resealed {
                seed::reseal(space, &new)?;
            }
            let layout = *space.fs().layout();
            layout.copy_groups().try_for_each(|group| space.copy_superblock(group))
        })
    }
}

impl Tuning {
    /// Sets how many blocks only root may use: a number of blocks, or a share of all `blocks` of the file system in percent.
    ///
    /// # Errors
    /// `Argument` for both; errors of [`Tuning::set_reserved_percent`].
    pub fn set_reserved(&mut self, count: Option<u64>, percent: Option<f64>, blocks: u64) -> Result<()> {
        match (count, percent) {
            (Some(_), Some(_)) => {
                Err(Error::argument("reserved blocks as a number or in percent, not as both"))
            }
            (None, Some(percent)) => self.set_reserved_percent(percent, blocks),
            (count, None) => {
                self.reserved_blocks = count;
                Ok(())
            }
        }
    }

    /// Refuses what no file system can have.
    fn check(&self, superblock: &Superblock) -> Result<()> {
        let most = |name: &str, text: &Option<Vec<u8>>, most: usize| match text {
            Some(text) if text.len() > most => {
                Err(Error::argument(format!("{name} of {} bytes: at most {most}", text.len())))
            }
            Some(text) if text.contains(&0) => Err(Error::argument(format!("{name} has no NUL"))),
            _ => Ok(()),
        };
        most("a label", &self.label, 16)?;
        most("a folder where it was mounted last", &self.last_mounted, 64)?;
        most("mount options", &self.mount_options_text, 63)?;
        if let Some(blocks) = self.reserved_blocks.filter(|blocks| *blocks > superblock.blocks / 2) {
            let most = superblock.blocks / 2;
            return Err(Error::argument(format!("{blocks} reserved blocks: at most half of all, {most}")));
        }
        if let Some(seconds) = self.checked.filter(|seconds| !(0..=LAST_TIME).contains(seconds)) {
            let text = format!(
                "{seconds} seconds since 1970 as the time of the last check: a superblock has times from 0 to {LAST_TIME}, the year 36812"
            );
            return Err(Error::argument(text));
        }
        if self.uuid.is_some_and(|uuid| uuid != superblock.uuid)
            && superblock.compat.has(Compat::STABLE_INODES)
        {
            let text =
                "the UUID can't change with the feature stable_inodes: encrypted files may depend on it";
            return Err(Error::unsupported(text));
        }
        Ok(())
    }

    /// Sets fields of a superblock, which `before` was read from.
    fn apply(&self, superblock: &mut SuperblockMut<'_>, before: &Superblock) {
        if let Some(label) = &self.label {
            superblock.set_label(label);
        }
        if let Some(uuid) = &self.uuid {
            superblock.set_uuid(uuid);
        }
        if let Some(blocks) = self.reserved_blocks {
            superblock.set_reserved_blocks(blocks);
        }
        if let Some(uid) = self.reserved_user {
            superblock.set_reserved_user(uid);
        }
        if let Some(gid) = self.reserved_group {
            superblock.set_reserved_group(gid);
        }
        let (set, cleared) = self.mount_options;
        if (set, cleared) != (0, 0) {
            superblock.set_mount_options(before.mount_options() & !cleared | set);
        }
        if let Some(text) = &self.mount_options_text {
            superblock.set_extended_mount_options(text);
        }
        if let Some(mounts) = self.most_mounts {
            superblock.set_most_mounts(mounts);
        }
        if let Some(mounts) = self.mounts {
            superblock.set_mounts(mounts);
        }
        if let Some(seconds) = self.check_interval {
            superblock.set_check_interval(seconds);
        }
        if let Some(seconds) = self.checked {
            superblock.set_checked(seconds);
        }
        if let Some(action) = self.on_errors {
            superblock.set_on_errors(action);
        }
        if let Some(path) = &self.last_mounted {
            superblock.set_last_mounted(path);
        }
        if let Some(version) = self.hash_version {
            superblock.set_hash_version(version);
        }
        if let Some(blocks) = self.stride {
            superblock.set_stride(blocks);
        }
        if let Some(blocks) = self.stripe_width {
            superblock.set_stripe_width(blocks);
        }
        if let Some(is_for_tests) = self.for_tests {
            superblock.set_for_tests(is_for_tests);
        }
        if self.force_check {
            superblock.set_errors_found();
        }
    }
}

/// The seed that checksums have by a UUID.
fn seed(sums: &Checksums, uuid: &[u8; 16]) -> u32 {
    sums.crc32c().update(!0, uuid)
}
