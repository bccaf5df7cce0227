//! Options of a new file system.

use casemate::Error;
use casemate::ext4::{BuildOptions, uuid_of};

use crate::cmd::ext4::chmod::parse_octal;
use crate::cmd::ext4::chown::parse_both;
use crate::size::bytes;

/// Options of the file system, as mke2fs has them.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "File system")]
pub struct FormatArgs {
    /// The type: ext2, ext3 or ext4.
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ext4")]
    kind: String,
    /// Bytes of a block.
    #[arg(short, long, value_name = "BYTES", default_value = "4096", value_parser = bytes::<u32>)]
    block_size: u32,
    /// Bytes of a cluster (with -O bigalloc).
    #[arg(short = 'C', long, value_name = "BYTES", value_parser = bytes::<u32>)]
    cluster_size: Option<u32>,
    /// Blocks of a group.
    #[arg(short = 'g', long, value_name = "N")]
    blocks_per_group: Option<u32>,
    /// Groups whose metadata lie together.
    #[arg(short = 'G', long, value_name = "N", default_value = "16")]
    groups_per_flex: u32,
    /// Bytes for each inode.
    #[arg(short = 'i', long, value_name = "BYTES", default_value = "16384", value_parser = bytes::<u64>)]
    inode_ratio: u64,
    /// Bytes of an inode.
    #[arg(short = 'I', long, value_name = "BYTES", default_value = "256", value_parser = bytes::<u32>)]
    inode_size: u32,
    /// Inodes in all [default: by the ratio, and as many as are needed].
    #[arg(short = 'N', long, value_name = "N")]
    inodes: Option<u32>,
    /// Features to add, or with a ^ to take away.
    #[arg(short = 'O', long, value_name = "LIST")]
    features: Vec<String>,
    /// Extended options, as mke2fs has them: stride, stripe_width, resize, packed_meta_blocks, num_backup_sb,
    /// orphan_file_size, encoding and others, with commas.
    #[arg(short = 'E', long, value_name = "LIST")]
    extended: Vec<String>,
    /// Bytes of the journal.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>)]
    journal_size: Option<u64>,
    /// Percent of the blocks that only root may use.
    #[arg(short = 'm', long, value_name = "PERCENT", default_value = "0")]
    reserved_percent: f64,
    /// The label.
    #[arg(short = 'L', long, value_name = "LABEL")]
    label: Option<String>,
    /// The UUID.
    #[arg(short = 'U', long, value_name = "UUID")]
    uuid: Option<String>,
    /// What names are hashed with.
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
    pub fn options(&self, (uuid, hash_seed): ([u8; 16], [u8; 16])) -> Result<BuildOptions, Error> {
        let given = |text: &Option<String>, other| match text {
            Some(text) => uuid_of(text).ok_or_else(|| Error::argument(format!("'{text}' is no UUID"))),
            None => Ok(other),
        };
        let mut options = BuildOptions::new(given(&self.uuid, uuid)?, given(&self.hash_seed, hash_seed)?);
        options.set_type(&self.kind)?;
        self.features.iter().try_for_each(|list| options.features.change(list))?;
        options.block_size = self.block_size;
        options.cluster_size = self.cluster_size;
        options.blocks_per_group = self.blocks_per_group;
        options.groups_per_flex = self.groups_per_flex;
        options.inode_ratio = self.inode_ratio;
        options.inode_size = self.inode_size;
        options.inodes = self.inodes;
        options.journal_size = self.journal_size;
        options.reserved_percent = self.reserved_percent;
        self.extended.iter().try_for_each(|list| options.set_extended(list))?;
        options.label = self.label.as_deref().unwrap_or_default().as_bytes().to_vec();
        options.root_owner = self.root_owner.or(options.root_owner);
        options.root_mode = self.root_mode.or(options.root_mode);
        Ok(options)
    }
}
