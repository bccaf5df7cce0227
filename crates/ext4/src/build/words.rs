//! Options of new file systems in mke2fs's words: `-t`, `-T`, `-E` and `-J`.

use casemate_blockdev::Uuid;

use crate::build::options::{BuildOptions, Features};
use crate::error::{Error, Result};

/// Usages (`-T`): name, bytes of a block if it sets them, and bytes for each inode. As mke2fs.conf of e2fsprogs 1.47.4.
const USAGES: [(&str, Option<u32>, u64); 9] = [
    ("floppy", Some(1024), 8192),
    ("small", Some(1024), 4096),
    ("default", Some(4096), 16384),
    ("big", Some(4096), 32768),
    ("huge", Some(4096), 65536),
    ("news", None, 4096),
    ("largefile", Some(4096), 1 << 20),
    ("largefile4", Some(4096), 4 << 20),
    ("hurd", Some(4096), 16384),
];

/// Words of `-E` that change nothing here: zeros are written where they are needed, and nothing is discarded.
const WITHOUT_EFFECT: [&str; 7] = [
    "discard",
    "nodiscard",
    "lazy_itable_init",
    "lazy_journal_init",
    "assume_storage_prezeroed",
    "no_copy_xattrs",
    "offset",
];

impl BuildOptions {
    /// Takes the features of a type of file system (`-t`): ext2, ext3 or ext4.
    ///
    /// # Errors
    /// `Argument` for other names.
    pub fn set_type(&mut self, name: &str) -> Result<()> {
        self.features = Features::of_type(name)?;
        Ok(())
    }

    /// Takes block size and inode ratio of usages (`-T`), a list with commas.
    ///
    /// # Errors
    /// `Argument` for what is no usage.
    pub fn set_usage(&mut self, list: &str) -> Result<()> {
        for word in list.split(',') {
            let Some((_, block, ratio)) = USAGES.iter().find(|(name, ..)| *name == word) else {
                let names: Vec<&str> = USAGES.iter().map(|(name, ..)| *name).collect();
                return Err(Error::argument(format!(
                    "'{word}' is not a usage; there are {}",
                    names.join(", ")
                )));
            };
            self.block_size = block.unwrap_or(self.block_size);
            self.inode_ratio = *ratio;
        }
        Ok(())
    }

    /// The usage that mke2fs takes for a file system of so many bytes.
    pub fn usage_of(size: u64) -> &'static str {
        match size >> 20 {
            0..3 => "floppy",
            3..512 => "small",
            512..0x40_0000 => "default",
            0x40_0000..0x100_0000 => "big",
            _ => "huge",
        }
    }

    /// Takes extended options (`-E`), a list with commas.
    ///
    /// # Errors
    /// `Argument` for words that are none, and values that make no sense.
    pub fn set_extended(&mut self, list: &str) -> Result<()> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let (name, value) =
                word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let wrong = || Error::argument(format!("extended option {word}: the value makes no sense"));
            let number = || value.and_then(|value| value.parse::<u64>().ok()).ok_or_else(wrong);
            let small = || number().and_then(|number| u32::try_from(number).map_err(|_| wrong()));
            match name {
                "stride" => self.stride = u16::try_from(number()?).map_err(|_| wrong())?,
                "stripe_width" | "stripe-width" => self.stripe_width = small()?,
                "resize" => self.resize = Some(number()?),
                "packed_meta_blocks" => self.packed_meta_blocks = value != Some("0"),
                "num_backup_sb" => {
                    self.backup_superblocks =
                        u8::try_from(number()?).ok().filter(|n| *n <= 2).ok_or_else(wrong)?;
                }
                "orphan_file_size" => self.orphan_file_size = Some(number()?),
                "root_owner" => {
                    let (uid, gid) = value.unwrap_or("0:0").split_once(':').ok_or_else(wrong)?;
                    let both = uid.parse().ok().zip(gid.parse().ok());
                    self.root_owner = Some(both.ok_or_else(wrong)?);
                }
                "root_perms" => {
                    let mode = value.and_then(|value| u16::from_str_radix(value, 8).ok());
                    self.root_mode = Some(mode.filter(|mode| *mode <= 0o7777).ok_or_else(wrong)?);
                }
                "quotatype" => {
                    let mut types = [false; 3];
                    for name in value.ok_or_else(wrong)?.split(':') {
                        let kind = ["usrquota", "grpquota", "prjquota"].iter().position(|kind| *kind == name);
                        types[kind.ok_or_else(wrong)?] = true;
                    }
                    self.quota_types = Some(types);
                }
                "mmp_update_interval" => {
                    self.mmp_interval =
                        u16::try_from(number()?).ok().filter(|n| *n <= 300).ok_or_else(wrong)?;
                }
                "hash_seed" => self.hash_seed = Some(value.and_then(uuid).ok_or_else(wrong)?),
                "encoding" => match value {
                    Some("utf8" | "utf8-12.1") => self.features.change("casefold")?,
                    _ => return Err(wrong()),
                },
                "encoding_flags" => match value {
                    Some("strict") => self.encoding.1 |= 1,
                    Some("nostrict") => self.encoding.1 &= !1,
                    _ => return Err(wrong()),
                },
                // The other one knows no features.
                "revision" if value == Some("1") => {}
                _ if WITHOUT_EFFECT.contains(&name) => {}
                _ => {
                    return Err(Error::argument(format!(
                        "extended option {name}: not known, or not done here"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Takes options of the journal (`-J`), a list with commas. Sizes are in MiB.
    ///
    /// # Errors
    /// `Argument` for words that are none; `Unsupported` for a journal elsewhere.
    pub fn set_journal(&mut self, list: &str) -> Result<()> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let size = value.parse::<u64>().ok().and_then(|size| size.checked_mul(1 << 20));
            let size = size
                .ok_or_else(|| Error::argument(format!("journal option {word}: a size in MiB is needed")));
            match name {
                "size" => self.journal_size = Some(size?),
                "fast_commit_size" => self.fast_commit_size = Some(size?),
                _ => {
                    let text = format!(
                        "journal option {name}: the journal lies where there is room, in the file system"
                    );
                    return Err(Error::unsupported(text));
                }
            }
        }
        self.features.change("has_journal")
    }
}

/// The bytes of a UUID as it is written.
pub fn uuid(text: &str) -> Option<[u8; 16]> {
    Uuid::from_text(text).ok().map(|uuid| uuid.bytes())
}
