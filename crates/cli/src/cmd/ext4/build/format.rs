//! Options of a new file system.

use std::ffi::OsString;

use serde_json::{Value, json};

use casemate::Error;
use casemate::blockdev::os::OsStringExt;
use casemate::ext4::{BuildOptions, Geometry, NewUuid, uuid_of, uuid_text};

use crate::cmd::ext4::chmod::parse_octal;
use crate::cmd::ext4::chown::parse_both;
use crate::size::bytes;

/// Behaviours of the kernel when it finds an error.
const ERRORS: [&str; 3] = ["continue", "remount-ro", "panic"];

/// Options of the file system, as mke2fs has them.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "File system")]
pub struct FormatArgs {
    /// The type: ext2, ext3 or ext4.
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ext4")]
    kind: String,
    /// Take block size and inode ratio from usage types of mke2fs.conf: small, news, largefile and others, with commas.
    #[arg(short = 'T', long, value_name = "LIST")]
    usage: Option<String>,
    /// Size of a block in bytes [default: 4096].
    #[arg(short, long, value_name = "BYTES", value_parser = bytes::<u32>)]
    block_size: Option<u32>,
    /// Size of a cluster in bytes (with -O bigalloc).
    #[arg(short = 'C', long, value_name = "BYTES", value_parser = bytes::<u32>)]
    cluster_size: Option<u32>,
    /// Number of blocks in a group.
    #[arg(short = 'g', long, value_name = "N")]
    blocks_per_group: Option<u32>,
    /// Number of groups whose metadata lie together.
    #[arg(short = 'G', long, value_name = "N", default_value = "16")]
    groups_per_flex: u32,
    /// Make one inode for every N bytes of the file system [default: 16384].
    #[arg(short = 'i', long, value_name = "BYTES", value_parser = bytes::<u64>)]
    inode_ratio: Option<u64>,
    /// Size of an inode in bytes.
    #[arg(short = 'I', long, value_name = "BYTES", default_value = "256", value_parser = bytes::<u32>)]
    inode_size: u32,
    /// Number of inodes [default: by the ratio, and at least as many as the tree needs].
    #[arg(short = 'N', long, value_name = "N")]
    inodes: Option<u32>,
    /// Features to add, with commas; a ^ before a name removes that feature.
    #[arg(short = 'O', long, value_name = "LIST")]
    features: Vec<String>,
    /// Extended options, as mke2fs has them: stride, stripe_width, resize, packed_meta_blocks, num_backup_sb,
    /// orphan_file_size, encoding and others, with commas.
    #[arg(short = 'E', long, value_name = "LIST")]
    extended: Vec<String>,
    /// Options of the journal, as mke2fs has them: size, fast_commit_size, in MiB.
    #[arg(short = 'J', long = "journal-options", value_name = "LIST")]
    journal: Vec<String>,
    /// Size of the journal in bytes.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    journal_size: Option<u64>,
    /// Behaviour of the kernel on errors: continue, remount-ro or panic.
    #[arg(short = 'e', long = "errors", value_name = "ACTION", default_value = "continue", value_parser = ERRORS)]
    on_errors: String,
    /// Percent of the blocks that only root may use.
    #[arg(short = 'm', long, value_name = "PERCENT", default_value = "0")]
    reserved_percent: f64,
    /// The label (volume name), at most 16 bytes.
    #[arg(short = 'L', long, value_name = "LABEL")]
    label: Option<String>,
    /// Path where the file system was mounted last, as its superblock records it.
    #[arg(short = 'M', long, value_name = "PATH")]
    last_mounted: Option<OsString>,
    /// The UUID.
    #[arg(short = 'U', long, value_name = "UUID")]
    uuid: Option<String>,
    /// Seed of the directory hash.
    #[arg(long, value_name = "UUID")]
    hash_seed: Option<String>,
    /// The owner and group of the root directory [default: the source's].
    #[arg(long, value_name = "UID:GID", value_parser = parse_both)]
    root_owner: Option<(u32, u32)>,
    /// The mode of the root directory, octal [default: the source's].
    #[arg(long, value_name = "MODE", value_parser = parse_octal)]
    root_mode: Option<u16>,
}

impl FormatArgs {
    pub fn options(&self) -> Result<BuildOptions, Error> {
        let given = |text: &Option<String>| match text {
            Some(text) => {
                uuid_of(text).map(Some).ok_or_else(|| Error::argument(format!("'{text}' is not a UUID")))
            }
            None => Ok(None),
        };
        let mut options = BuildOptions::default();
        options.uuid = given(&self.uuid)?.map(NewUuid::from);
        options.hash_seed = given(&self.hash_seed)?;
        options.set_type(&self.kind)?;
        self.features.iter().try_for_each(|list| options.features.change(list))?;
        if let Some(list) = &self.usage {
            options.set_usage(list)?;
        }
        options.block_size = self.block_size.unwrap_or(options.block_size);
        options.cluster_size = self.cluster_size;
        options.blocks_per_group = self.blocks_per_group;
        options.groups_per_flex = self.groups_per_flex;
        options.inode_ratio = self.inode_ratio.unwrap_or(options.inode_ratio);
        options.inode_size = self.inode_size;
        options.inodes = self.inodes;
        self.journal.iter().try_for_each(|list| options.set_journal(list))?;
        options.journal_size = self.journal_size.or(options.journal_size);
        // The kernel counts them from 1 on.
        let action = (1..).zip(ERRORS).find(|(_, action)| *action == self.on_errors);
        options.on_errors = action.map_or(1, |(number, _)| number);
        options.last_mounted = self.last_mounted.clone().unwrap_or_default().into_vec();
        options.reserved_percent = self.reserved_percent;
        self.extended.iter().try_for_each(|list| options.set_extended(list))?;
        options.label = self.label.as_deref().unwrap_or_default().as_bytes().to_vec();
        options.root_owner = self.root_owner.or(options.root_owner);
        options.root_mode = self.root_mode.or(options.root_mode);
        Ok(options)
    }
}

/// All that was chosen for a file system of so many bytes, and the options that choose it again, with `more` behind them.
pub fn config(
    options: &BuildOptions,
    uuid: &[u8; 16],
    geometry: &Geometry,
    size: u64,
    more: Vec<String>,
) -> Value {
    let features = geometry.features.to_string().replace(' ', ",");
    let (uuid, hash_seed) = (uuid_text(uuid), uuid_text(&options.hash_seed.unwrap_or_default()));
    let errors = ERRORS[usize::from(options.on_errors).clamp(1, 3) - 1];
    let block_size = u64::from(geometry.block_size);
    let fast_commits = u64::from(geometry.fast_commit_blocks) * block_size;
    let journal = u64::from(geometry.journal_blocks) * block_size - fast_commits;
    let orphan_file = u64::from(geometry.orphan_blocks) * block_size;
    let mut again = Vec::new();
    let mut add = |name: &str, value: String| again.extend([name.to_owned(), value]);
    add("--size", size.to_string());
    add("-O", format!("none,{features}"));
    add("-b", block_size.to_string());
    add("-I", geometry.inode_size.to_string());
    add("-N", geometry.inodes().to_string());
    add("-G", geometry.groups_per_flex.to_string());
    if let Some(blocks) = options.blocks_per_group {
        add("-g", blocks.to_string());
    }
    if geometry.cluster_blocks > 1 {
        add("-C", (u64::from(geometry.cluster_blocks) * block_size).to_string());
    }
    add("-m", options.reserved_percent.to_string());
    add("-e", errors.to_owned());
    if journal > 0 {
        add("--journal-size", journal.to_string());
    }
    if let Some(bytes) = options.fast_commit_size {
        add("-J", format!("fast_commit_size={}", bytes >> 20));
    }
    if !options.label.is_empty() {
        add("-L", String::from_utf8_lossy(&options.label).into_owned());
    }
    if !options.last_mounted.is_empty() {
        add("-M", String::from_utf8_lossy(&options.last_mounted).into_owned());
    }
    if let Some((uid, gid)) = options.root_owner {
        add("--root-owner", format!("{uid}:{gid}"));
    }
    if let Some(mode) = options.root_mode {
        add("--root-mode", format!("{mode:o}"));
    }
    add("-U", uuid.clone());
    add("--hash-seed", hash_seed.clone());
    let extended = [
        ("stride", u64::from(options.stride)),
        ("stripe_width", options.stripe_width.into()),
        ("packed_meta_blocks", options.packed_meta_blocks.into()),
        ("orphan_file_size", orphan_file),
        ("resize", options.resize.unwrap_or(0)),
    ];
    if options.backup_superblocks != 2 {
        add("-E", format!("num_backup_sb={}", options.backup_superblocks));
    }
    if options.encoding.1 & 1 != 0 {
        add("-E", "encoding_flags=strict".to_owned());
    }
    for (name, value) in extended.iter().filter(|(_, value)| *value > 0) {
        add("-E", format!("{name}={value}"));
    }
    again.extend(more);
    json!({
        "size": size,
        "features": features.split(',').collect::<Vec<_>>(),
        "block_size": block_size,
        "cluster_size": u64::from(geometry.cluster_blocks) * block_size,
        "blocks": geometry.blocks,
        "blocks_per_group": geometry.blocks_per_group,
        "groups": geometry.groups,
        "groups_per_flex": geometry.groups_per_flex,
        "inodes": geometry.inodes(),
        "inodes_per_group": geometry.inodes_per_group,
        "inode_size": geometry.inode_size,
        "descriptor_size": geometry.descriptor_size,
        "reserved_descriptor_blocks": geometry.reserved_descriptor_blocks,
        "reserved_blocks": geometry.reserved_blocks,
        "journal_blocks": geometry.journal_blocks,
        "fast_commit_blocks": geometry.fast_commit_blocks,
        "orphan_blocks": geometry.orphan_blocks,
        "superblocks": geometry.backups().collect::<Vec<_>>(),
        "label": String::from_utf8_lossy(&options.label),
        "uuid": uuid,
        "hash_seed": hash_seed,
        "errors": errors,
        "source_date_epoch": options.time.map(|time| time.seconds),
        "options": again,
    })
}
