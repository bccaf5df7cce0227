//! `casemate ext4 tune`.

use std::ffi::OsString;

use casemate::Error;
use casemate::blockdev::os::OsStringExt;
use casemate::ext4::{Superblock, Tuning, new_uuid};

use super::change::ChangeArgs;
use super::touch;
use crate::answer::Answer;
use crate::context::Context;
use crate::size::bytes;

/// Behaviours of the kernel when it finds an error.
const ERRORS: [&str; 3] = ["continue", "remount-ro", "panic"];

/// Change parameters of a file system: label, UUID, features and others.
///
/// All of them change at once or not at all. Another UUID makes all checksums other ones, unless the file system has the
/// feature metadata_csum_seed: all are computed anew. `ext4 info` prints parameters.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  casemate ext4 tune root.img -L system -U random\n  \
    casemate ext4 tune root.img -O verity,^has_journal\n  casemate ext4 tune root.img -m 1 -c 0 -i 0")]
pub struct Args {
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    parameters: Parameters,
}

/// Parameters, by the letters that tune2fs has for them.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Parameters")]
pub struct Parameters {
    /// The label: at most 16 bytes.
    #[arg(short = 'L', long, value_name = "LABEL")]
    pub label: Option<OsString>,
    /// The UUID, or random, time or clear.
    #[arg(short = 'U', long, value_name = "UUID")]
    pub uuid: Option<String>,
    /// Percent of the blocks that only root may use: at most 50.
    #[arg(short = 'm', long, value_name = "PERCENT", conflicts_with = "reserved_blocks")]
    pub reserved_percent: Option<f64>,
    /// Number of blocks that only root may use.
    #[arg(short = 'r', long, value_name = "BLOCKS")]
    pub reserved_blocks: Option<u64>,
    /// The user that may use them, too.
    #[arg(short = 'u', long, value_name = "UID", value_parser = id)]
    pub reserved_user: Option<u16>,
    /// The group that may use them, too.
    #[arg(short = 'g', long, value_name = "GID", value_parser = id)]
    pub reserved_group: Option<u16>,
    /// Features to add, or with a ^ to remove.
    #[arg(short = 'O', long, value_name = "LIST")]
    pub features: Vec<String>,
    /// Add a journal, as -O has_journal does.
    #[arg(short = 'j', long)]
    pub add_journal: bool,
    /// Options of a new journal: size, in MiB.
    #[arg(short = 'J', long, value_name = "LIST")]
    pub journal_options: Vec<String>,
    /// Bytes of a new journal.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    pub journal_size: Option<u64>,
    /// Default mount options to set, or with a ^ to clear: acl, user_xattr, discard and others.
    #[arg(short = 'o', long, value_name = "LIST")]
    pub mount_options: Vec<String>,
    /// Extended options: stride, stripe_width, hash_alg, mount_opts, test_fs, force_fsck, with commas.
    #[arg(short = 'E', long, value_name = "LIST")]
    pub extended: Vec<String>,
    /// Behaviour of the kernel on errors: continue, remount-ro or panic.
    #[arg(short = 'e', long = "errors", value_name = "ACTION", value_parser = ERRORS)]
    pub on_errors: Option<String>,
    /// Number of mounts after which the file system is checked; 0 or -1 for never.
    #[arg(short = 'c', long, value_name = "N", allow_negative_numbers = true)]
    pub max_mounts: Option<i32>,
    /// Number of mounts since the last check.
    #[arg(short = 'C', long, value_name = "N")]
    pub mounts: Option<u16>,
    /// Time after which the file system is checked: a number of days, or with d, w or m of days, weeks or months of 30
    /// days; 0 for never.
    #[arg(short = 'i', long, value_name = "TIME", value_parser = interval)]
    pub check_interval: Option<u32>,
    /// When the file system was checked last: now, a date such as 2020-01-31, with a time of day in UTC such as
    /// 2020-01-31T23:59:59, or seconds since 1970 behind an @.
    #[arg(short = 'T', long, value_name = "DATE", value_parser = moment)]
    pub last_check: Option<Moment>,
    /// Where the file system was mounted last: at most 64 bytes.
    #[arg(short = 'M', long, value_name = "PATH")]
    pub last_mounted: Option<OsString>,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        if self.parameters.is_empty() {
            let text =
                "nothing to change: give --label, --uuid, --features or another parameter; --help lists them";
            return Err(Error::argument(text));
        }
        self.change.change(context, |writer| {
            let tuning = self.parameters.tuning(writer.fs().superblock(), writer.time().seconds)?;
            self.change.place(writer.tune(&tuning))
        })
    }
}

impl Parameters {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        let Parameters { features, mount_options, extended, journal_options, .. } = self;
        let is_given = self.label.is_some()
            || self.uuid.is_some()
            || self.reserved_percent.is_some()
            || self.reserved_blocks.is_some()
            || self.reserved_user.is_some()
            || self.reserved_group.is_some()
            || self.add_journal
            || self.journal_size.is_some()
            || self.on_errors.is_some()
            || self.max_mounts.is_some()
            || self.mounts.is_some()
            || self.check_interval.is_some()
            || self.last_check.is_some()
            || self.last_mounted.is_some();
        let lists = [features, mount_options, extended, journal_options];
        !is_given && lists.iter().all(|list| list.is_empty())
    }

    /// Changes of a file system's parameters; `now` is in seconds since 1970.
    pub fn tuning(&self, superblock: &Superblock, now: i64) -> Result<Tuning, Error> {
        let mut tuning = Tuning::default();
        tuning.label = self.label.clone().map(OsString::into_vec);
        tuning.uuid = self.uuid.as_deref().map(new_uuid).transpose()?;
        tuning.set_reserved(self.reserved_blocks, self.reserved_percent, superblock.blocks)?;
        tuning.reserved_user = self.reserved_user;
        tuning.reserved_group = self.reserved_group;
        self.features.iter().try_for_each(|list| tuning.features.change(list))?;
        if self.add_journal || self.journal_size.is_some() {
            tuning.features.change("has_journal")?;
        }
        self.journal_options.iter().try_for_each(|list| tuning.set_journal(list))?;
        tuning.journal_size = self.journal_size.or(tuning.journal_size);
        self.mount_options.iter().try_for_each(|list| tuning.change_mount_options(list))?;
        self.extended.iter().try_for_each(|list| tuning.set_extended(list))?;
        self.on_errors.iter().try_for_each(|action| tuning.set_on_errors(action))?;
        self.max_mounts.map_or(Ok(()), |count| tuning.set_most_mounts(count))?;
        tuning.mounts = self.mounts;
        tuning.check_interval = self.check_interval;
        tuning.checked = self.last_check.map(|Moment(seconds)| seconds.unwrap_or(now));
        tuning.last_mounted = self.last_mounted.clone().map(OsString::into_vec);
        Ok(tuning)
    }
}

/// The number of a user or a group that the superblock has room for.
fn id(text: &str) -> Result<u16, String> {
    match text {
        "root" => Ok(0),
        _ => text
            .parse()
            .map_err(|_| "give a number up to 65535: but for root, an image has no names".to_owned()),
    }
}

/// A time in seconds since 1970, or now if `None`.
#[derive(Clone, Copy, Debug)]
pub struct Moment(pub Option<i64>);

fn moment(text: &str) -> Result<Moment, String> {
    if text == "now" {
        return Ok(Moment(None));
    }
    touch::date(text).map(|time| Moment(Some(time.seconds)))
}

/// Seconds of a number of days, weeks or months.
pub fn interval(text: &str) -> Result<u32, String> {
    const DAY: u32 = 24 * 60 * 60;
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let factor = match unit {
        "" | "d" => DAY,
        "s" => 1,
        "w" => 7 * DAY,
        "m" => 30 * DAY,
        _ => return Err("a number of days, or with d, w or m of days, weeks or months".to_owned()),
    };
    let number: u32 = text[..text.len() - unit.len()].parse().map_err(|_| "no number of days".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "more than 136 years".to_owned())
}
