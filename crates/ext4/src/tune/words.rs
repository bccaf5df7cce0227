//! Changes in tune2fs' words: `-o`, `-E`, `-e`.

use crate::error::{Error, Result};
use crate::number::percent_of;
use crate::tune::Tuning;

/// Default mount options by name: flags that are set, and flags that are cleared for that.
const MOUNT_OPTIONS: &[(&str, u32, u32)] = &[
    ("debug", 0x1, 0),
    ("bsdgroups", 0x2, 0),
    ("user_xattr", 0x4, 0),
    ("acl", 0x8, 0),
    ("uid16", 0x10, 0),
    ("journal_data", 0x20, JOURNAL_MODE),
    ("journal_data_ordered", 0x40, JOURNAL_MODE),
    ("journal_data_writeback", 0x60, JOURNAL_MODE),
    ("nobarrier", 0x100, 0),
    ("block_validity", 0x200, 0),
    ("discard", 0x400, 0),
    ("nodelalloc", 0x800, 0),
];

/// Bits of which one value is chosen.
const JOURNAL_MODE: u32 = 0x60;

/// Behaviours of the kernel on errors, which it counts from 1 on.
const ON_ERRORS: [&str; 3] = ["continue", "remount-ro", "panic"];

/// Mounts without a check at most: tune2fs' limit.
const MOST_MOUNTS: u16 = 16000;

/// Versions of the directory hash by name.
const HASHES: &[(&str, u8)] = &[("legacy", 0), ("half_md4", 1), ("tea", 2)];

/// Name of a version of the directory hash.
pub fn hash_name(version: u8) -> String {
    let known = HASHES.iter().find(|(_, known)| *known == version);
    known.map_or_else(|| format!("HASHALG_{version}"), |(name, _)| (*name).to_owned())
}

/// Names of default mount options, the mode of the journal first; a flag without a name is MNTOPT and its number.
pub fn mount_option_names(flags: u32) -> Vec<String> {
    let name = |flags: u32| {
        MOUNT_OPTIONS.iter().find(|(_, set, _)| *set == flags).map(|(name, ..)| (*name).to_owned())
    };
    let bits = (0..u32::BITS).filter(|bit| flags & !JOURNAL_MODE & 1 << bit != 0);
    let others = bits.map(|bit| name(1 << bit).unwrap_or_else(|| format!("MNTOPT_{bit}")));
    name(flags & JOURNAL_MODE).into_iter().chain(others).collect()
}

impl Tuning {
    /// Takes default mount options (`-o`): names with commas, those with `^` in front are cleared.
    ///
    /// # Errors
    /// `Argument` for names that are none.
    pub fn change_mount_options(&mut self, list: &str) -> Result<()> {
        for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
            let (name, is_set) = word.strip_prefix('^').map_or((word, true), |name| (name, false));
            let Some((_, set, group)) = MOUNT_OPTIONS.iter().find(|(known, ..)| *known == name) else {
                let names: Vec<&str> = MOUNT_OPTIONS.iter().map(|(name, ..)| *name).collect();
                let text = format!("'{name}' is not a default mount option; there are {}", names.join(", "));
                return Err(Error::argument(text));
            };
            let (flags, cleared) = &mut self.mount_options;
            *cleared |= group | set;
            *flags &= !(group | set);
            if is_set {
                *flags |= set;
            }
        }
        Ok(())
    }

    /// Takes the behaviour of the kernel on errors (`-e`): `continue`, `remount-ro` or `panic`.
    ///
    /// # Errors
    /// `Argument` for other words.
    pub fn set_on_errors(&mut self, action: &str) -> Result<()> {
        let Some(number) = (1..).zip(ON_ERRORS).find_map(|(number, name)| (name == action).then_some(number))
        else {
            let names = ON_ERRORS.join(", ");
            return Err(Error::argument(format!(
                "'{action}' is not a behaviour on errors; there are {names}"
            )));
        };
        self.on_errors = Some(number);
        Ok(())
    }

    /// Takes the number of mounts after which the file system is checked (`-c`); 0 and -1 stand for never.
    ///
    /// # Errors
    /// `Argument` for other negative numbers, and for more than 16000.
    pub fn set_most_mounts(&mut self, count: i32) -> Result<()> {
        self.most_mounts = Some(match count {
            -1 | 0 => u16::MAX,
            _ => u16::try_from(count).ok().filter(|count| *count <= MOST_MOUNTS).ok_or_else(|| {
                Error::argument(format!("{count} mounts without a check: at most {MOST_MOUNTS}"))
            })?,
        });
        Ok(())
    }

    /// Takes the percentage of `blocks`, all blocks of the file system, that only root may use (`-m`): 0 to 50.
    ///
    /// # Errors
    /// `Argument` for another percentage.
    pub fn set_reserved_percent(&mut self, percent: f64, blocks: u64) -> Result<()> {
        if !(0.0..=50.0).contains(&percent) {
            return Err(Error::argument(format!("{percent} percent of reserved blocks: 0 to 50")));
        }
        self.reserved_blocks = Some(percent_of(percent, blocks));
        Ok(())
    }

    /// Takes extended options (`-E`), a list with commas: stride, stripe_width, hash_alg, mount_opts, test_fs, ^test_fs and
    /// force_fsck.
    ///
    /// # Errors
    /// `Argument` for words that are none, and values that make no sense.
    pub fn set_extended(&mut self, list: &str) -> Result<()> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let wrong = || Error::argument(format!("extended option {word}: the value makes no sense"));
            match name {
                "stride" => self.stride = Some(value.parse().map_err(|_| wrong())?),
                "stripe_width" | "stripe-width" => {
                    self.stripe_width = Some(value.parse().map_err(|_| wrong())?);
                }
                "hash_alg" => {
                    let known = HASHES.iter().find(|(known, _)| *known == value);
                    self.hash_version = Some(known.ok_or_else(wrong)?.1);
                }
                "mount_opts" => self.mount_options_text = Some(value.as_bytes().to_vec()),
                "test_fs" => self.for_tests = Some(true),
                "^test_fs" => self.for_tests = Some(false),
                "force_fsck" => self.force_check = true,
                _ => {
                    return Err(Error::argument(format!(
                        "extended option {name}: not known, or not done here"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Takes the options of a new journal (`-J`): `size=` in MiB.
    ///
    /// # Errors
    /// `Argument` for words that are none; `Unsupported` for a journal elsewhere.
    pub fn set_journal(&mut self, list: &str) -> Result<()> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if name != "size" {
                let text = format!(
                    "journal option {name}: the journal lies where there is room, in the file system"
                );
                return Err(Error::unsupported(text));
            }
            let size = value.parse::<u64>().ok().and_then(|size| size.checked_mul(1 << 20));
            let size = size
                .ok_or_else(|| Error::argument(format!("journal option {word}: a size in MiB is needed")))?;
            self.journal_size = Some(size);
        }
        self.features.change("has_journal")
    }
}
