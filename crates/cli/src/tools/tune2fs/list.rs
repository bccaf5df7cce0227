//! The parameters of a file system as `tune2fs -l` prints them. Times are in UTC, where tune2fs has the local time.

use std::fmt::Write as _;
use std::fs;

use casemate::blockdev::usize_of;
use casemate::ext4::{
    Compat, FoundError, Incompat, RoCompat, Superblock, SuperblockDetails, hash_name, mount_option_names,
    uuid_text,
};

use crate::calendar::calendar;
use crate::streams::visible;

/// Width of a key with its colon.
const KEY: usize = 25;

const OS: [&str; 5] = ["Linux", "Hurd", "Masix", "FreeBSD", "Lites"];

/// Flags of a superblock by name.
const FLAGS: [(u32, &str); 3] =
    [(0x1, "signed_directory_hash "), (0x2, "unsigned_directory_hash "), (0x4, "test_filesystem ")];

/// Lines of keys and values.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, key: &str, value: impl ToString) {
        let (key, value) = (format!("{key}:"), value.to_string());
        writeln!(self.0, "{key:<KEY$} {}", visible(&value)).expect("writing to a string");
    }

    /// Adds a number that is not zero.
    fn add_some(&mut self, key: &str, number: impl Into<u64>) {
        let number = number.into();
        if number != 0 {
            self.add(key, number);
        }
    }
}

/// Text of all parameters.
pub fn text(superblock: &Superblock) -> String {
    let details = superblock.details();
    let mut lines = Lines::default();
    add_names(&mut lines, superblock, &details);
    add_numbers(&mut lines, superblock, &details);
    add_times(&mut lines, superblock, &details);
    add_inodes(&mut lines, superblock, &details);
    lines.add_some("FS Error count", details.errors);
    for (error, name) in [(&details.first_error, "First"), (&details.last_error, "Last")] {
        if let Some(error) = error {
            add_error(&mut lines, name, error);
        }
    }
    add_rest(&mut lines, superblock, &details);
    lines.0
}

fn or(text: String, none: &str) -> String {
    if text.is_empty() { none.to_owned() } else { text }
}

/// Text of a UUID, or of its absence.
fn uuid(uuid: &[u8; 16]) -> String {
    if *uuid == [0; 16] { "<none>".to_owned() } else { uuid_text(uuid) }
}

fn add_names(lines: &mut Lines, superblock: &Superblock, details: &SuperblockDetails) {
    lines.add("Filesystem volume name", or(superblock.label(), "<none>"));
    lines.add("Last mounted on", or(superblock.last_mounted(), "<not available>"));
    lines.add("Filesystem UUID", uuid(&superblock.uuid));
    lines.add("Filesystem magic number", "0xEF53");
    let kind = match details.revision {
        0 => " (original)",
        1 => " (dynamic)",
        _ => "",
    };
    lines.add("Filesystem revision #", format!("{}{kind}", details.revision));
    let features = format!("{} {} {}", superblock.compat, superblock.incompat, superblock.ro_compat);
    let features = features.split_whitespace().collect::<Vec<_>>().join(" ");
    lines.add("Filesystem features", or(features, "(none)"));
    if details.flags != 0 {
        let set = FLAGS.iter().filter(|(flag, _)| details.flags & flag != 0);
        lines.add("Filesystem flags", or(set.map(|(_, name)| *name).collect(), "(none)"));
    }
    let options = mount_option_names(superblock.mount_options()).join(" ");
    lines.add("Default mount options", or(options, "(none)"));
    if !details.mount_options_text.is_empty() {
        lines.add("Mount options", &details.mount_options_text);
    }
    let is = if superblock.state() & 1 != 0 { "clean" } else { "not clean" };
    let errors = if superblock.state() & 2 != 0 { " with errors" } else { "" };
    lines.add("Filesystem state", format!("{is}{errors}"));
    let action = match superblock.on_errors() {
        1 => "Continue",
        2 => "Remount read-only",
        3 => "Panic",
        _ => "Unknown (continue)",
    };
    lines.add("Errors behavior", action);
    let os = usize::try_from(details.creator).ok().and_then(|number| OS.get(number));
    lines.add("Filesystem OS type", os.unwrap_or(&"(unknown os)"));
}

fn add_numbers(lines: &mut Lines, superblock: &Superblock, details: &SuperblockDetails) {
    let has_clusters = superblock.ro_compat.has(RoCompat::BIGALLOC);
    lines.add("Inode count", superblock.inodes);
    lines.add("Block count", superblock.blocks);
    lines.add("Reserved block count", superblock.blocks_reserved);
    lines.add_some("Overhead clusters", details.overhead_clusters);
    lines.add("Free blocks", superblock.blocks_free);
    lines.add("Free inodes", superblock.inodes_free);
    lines.add("First block", superblock.first_data_block);
    lines.add("Block size", superblock.block_size);
    lines.add(if has_clusters { "Cluster size" } else { "Fragment size" }, superblock.cluster_size);
    if superblock.incompat.has(Incompat::BITS64) {
        lines.add("Group descriptor size", superblock.descriptor_size);
    }
    lines.add_some("Reserved GDT blocks", details.reserved_descriptor_blocks);
    lines.add("Blocks per group", superblock.blocks_per_group);
    let per_group = if has_clusters { "Clusters per group" } else { "Fragments per group" };
    lines.add(per_group, superblock.clusters_per_group);
    lines.add("Inodes per group", superblock.inodes_per_group);
    let bytes = u64::from(superblock.inodes_per_group) * u64::from(superblock.inode_size);
    lines.add("Inode blocks per group", bytes.div_ceil(u64::from(superblock.block_size).max(1)));
    lines.add_some("First meta block group", superblock.first_meta_bg);
    lines.add_some("RAID stride", details.stride);
    lines.add_some("RAID stripe width", details.stripe_width);
    if let Some(groups) = details.groups_per_flex {
        lines.add("Flex block group size", groups);
    }
}

fn add_times(lines: &mut Lines, superblock: &Superblock, details: &SuperblockDetails) {
    let [made, mounted, written] = superblock.times();
    if made != 0 {
        lines.add("Filesystem created", time(made));
    }
    lines.add("Last mount time", if mounted == 0 { "n/a".to_owned() } else { time(mounted) });
    lines.add("Last write time", time(written));
    let [mounts, most] = superblock.mounts();
    lines.add("Mount count", mounts);
    // As many as one likes is -1 in the field of 16 bits.
    lines.add("Maximum mount count", most.cast_signed());
    let (checked, seconds) = superblock.checked();
    lines.add("Last checked", time(checked));
    lines.add("Check interval", format!("{seconds} ({})", interval(seconds)));
    if seconds != 0 {
        lines.add("Next check after", time(checked.saturating_add(seconds.into())));
    }
    if details.kib_written != 0 {
        lines.add("Lifetime writes", size(details.kib_written));
    }
}

fn add_inodes(lines: &mut Lines, superblock: &Superblock, details: &SuperblockDetails) {
    let [uid, gid] = superblock.reserved_owner();
    for (key, kind, id, file) in
        [("Reserved blocks uid", "user", uid, USERS), ("Reserved blocks gid", "group", gid, GROUPS)]
    {
        lines.add(key, format!("{id} ({kind} {})", owner(id, file)));
    }
    if details.revision > 0 {
        lines.add("First inode", superblock.first_inode);
        lines.0 += &format!("Inode size:\t{:>13}\n", superblock.inode_size);
        lines.add_some("Required extra isize", details.extra_fields[0]);
        lines.add_some("Desired extra isize", details.extra_fields[1]);
    }
    if details.journal_uuid != [0; 16] {
        lines.add("Journal UUID", uuid(&details.journal_uuid));
    }
    if let Some(inode) = superblock.journal_inode {
        lines.add("Journal inode", inode);
    }
    if details.journal_device != 0 {
        lines.add("Journal device", format!("0x{:04x}", details.journal_device));
    }
    if let Some(inode) = details.first_orphan {
        lines.add("First orphan inode", inode);
    }
    if superblock.compat.has(Compat::DIR_INDEX) || superblock.hash.seed != [0; 4] {
        lines.add("Default directory hash", hash_name(superblock.hash.version));
        let mut seed = [0; 16];
        for (bytes, word) in seed.chunks_exact_mut(4).zip(superblock.hash.seed) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        lines.add("Directory Hash Seed", uuid(&seed));
    }
    match details.journal_copy {
        0 => {}
        1 => lines.add("Journal backup", "inode blocks"),
        other => lines.add("Journal backup", format!("type {other}")),
    }
    if superblock.compat.has(Compat::SPARSE_SUPER2) {
        let groups =
            superblock.backup_groups.map(|group| group.get()).into_iter().filter(|group| *group != 0);
        lines.add("Backup block groups", or(groups.map(|group| format!("{group} ")).collect(), "none "));
    }
}

fn add_error(lines: &mut Lines, name: &str, error: &FoundError) {
    lines.add(&format!("{name} error time"), time(error.time.into()));
    lines.add(&format!("{name} error function"), &error.function);
    lines.add(&format!("{name} error line #"), error.line);
    lines.add_some(&format!("{name} error inode #"), error.inode);
    lines.add_some(&format!("{name} error block #"), error.block);
}

fn add_rest(lines: &mut Lines, superblock: &Superblock, details: &SuperblockDetails) {
    if superblock.incompat.has(Incompat::MMP) {
        lines.add("MMP block number", superblock.mmp_block.map_or(0, |block| block.get()));
        lines.add("MMP update interval", details.mmp_interval);
    }
    for (name, inode) in ["User", "Group", "Project"].iter().zip(superblock.quota_inodes) {
        if let Some(inode) = inode {
            lines.add(&format!("{name} quota inode"), inode);
        }
    }
    if superblock.ro_compat.has(RoCompat::METADATA_CSUM) {
        lines.add("Checksum type", if superblock.checksum_type() == 1 { "crc32c" } else { "unknown" });
        lines.add("Checksum", format!("0x{:08x}", details.checksum));
    }
    if let Some(seed) = superblock.checksum_seed {
        lines.add("Checksum seed", format!("0x{seed:08x}"));
    }
    if superblock.incompat.has(Incompat::CASEFOLD) {
        lines.add("Character encoding", if superblock.encoding.0 == 1 { "utf8-12.1" } else { "unknown" });
    }
    if let (inode, true) = (superblock.orphan_file, superblock.compat.has(Compat::ORPHAN_FILE)) {
        lines.add("Orphan file inode", inode.map_or(0, |inode| inode.get()));
    }
}

/// Files with the names of users and groups.
pub const USERS: &str = "/etc/passwd";
pub const GROUPS: &str = "/etc/group";

/// Number of a user or a group by its name in a file of this system; `None` for one that the superblock has no room for, too.
pub fn id_of(name: &str, file: &str) -> Option<u16> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let mut words = line.split(':');
        words.next().filter(|found| *found == name && !name.is_empty())?;
        words.nth(1)?.parse().ok()
    })
}

/// Name of a user or a group of this system.
fn owner(id: u16, file: &str) -> String {
    let id = id.to_string();
    let text = fs::read_to_string(file).unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let mut words = line.split(':');
        words.next().filter(|_| words.nth(1) == Some(&id))
    });
    name.unwrap_or(if id == "0" { "root" } else { "unknown" }).to_owned()
}

/// Time in seconds since 1970 as `ctime` of C has it.
pub fn time(seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day, hour, minute, second) = calendar(seconds);
    // The first of January 1970 was a Thursday.
    let week_day = DAYS[usize_of(seconds.div_euclid(86_400).rem_euclid(7).unsigned_abs())];
    let month = MONTHS[usize_of(month.unsigned_abs()) - 1];
    format!("{week_day} {month} {day:2} {hour:02}:{minute:02}:{second:02} {year}")
}

/// Months of 30 days, weeks, days and the rest as a time of day.
fn interval(seconds: u32) -> String {
    const UNITS: [(&str, u32); 3] = [("month", 2_592_000), ("week", 604_800), ("day", 86_400)];
    let (mut parts, mut rest) = (Vec::new(), seconds);
    for (name, unit) in UNITS {
        let count = rest / unit;
        rest %= unit;
        match count {
            0 => {}
            1 => parts.push(format!("1 {name}")),
            _ => parts.push(format!("{count} {name}s")),
        }
    }
    if rest > 0 {
        parts.push(format!("{}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60));
    }
    or(parts.join(", "), "<none>")
}

/// Number of KiB in a unit in which it has up to four digits.
fn size(kib: u64) -> String {
    let (mut number, mut unit) = (kib, 0);
    while number >= 8192 && unit < 3 {
        unit += 1;
        number = (kib >> (10 * unit)) + (kib >> (10 * unit - 1) & 1);
    }
    format!("{number} {}", ["kB", "MB", "GB", "TB"][unit])
}
