//! `casemate ext4 info`.

use std::fmt::Write as _;

use serde_json::json;

use casemate::Error;
use casemate::ext4::{InodeNo, Time, uuid_text};

use super::entry::{long_time, time_value};
use super::image::ImageArgs;
use crate::answer::Answer;
use crate::context::Context;
use crate::streams::visible;

/// Describe a file system: sizes, features, free space.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
    \x20 casemate ext4 info root.img\n\
    \x20 casemate ext4 info disk.img -P 1 --json")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,
}

impl Args {
    pub fn run(self, context: &Context) -> Result<Answer, Error> {
        let fs = self.image.open(context)?;
        let fs = fs.inodes();
        let (superblock, layout) = (fs.superblock(), fs.layout());
        let [created, mounted, written] = superblock.times();
        let features = format!("{} {} {}", superblock.compat, superblock.incompat, superblock.ro_compat);
        let features: Vec<&str> = features.split_whitespace().collect();
        let state = match superblock.state() {
            state if state & 2 != 0 => "with errors",
            state if state & 1 != 0 => "clean",
            _ => "not clean",
        };
        let time = |seconds| time_value(Time { seconds, nanoseconds: 0 });
        if context.json() {
            context.print_json(&json!({
                "label": superblock.label(),
                "uuid": uuid_text(&superblock.uuid),
                "last_mounted_on": superblock.last_mounted(),
                "features": features,
                "state": state,
                "needs_recovery": superblock.needs_recovery(),
                "replayed_transactions": fs.recovery().transactions,
                "replayed_fast_commits": fs.recovery().fast_commits,
                "journal_cut": fs.recovery().cut_text(),
                "block_size": layout.block_size,
                "cluster_size": layout.block_size * layout.cluster_blocks,
                "blocks": superblock.blocks,
                "blocks_free": superblock.blocks_free,
                "blocks_reserved": superblock.blocks_reserved,
                "inodes": superblock.inodes,
                "inodes_free": superblock.inodes_free,
                "inode_size": layout.inode_size,
                "groups": layout.groups,
                "blocks_per_group": layout.blocks_per_group,
                "inodes_per_group": layout.inodes_per_group,
                "journal_inode": superblock.journal_inode.map_or(0, InodeNo::get),
                "created": time(created),
                "mounted": time(mounted),
                "written": time(written),
            }))?;
            return Ok(Answer::Yes);
        }
        let mut text = String::new();
        let mut line = |key: &str, value: String| {
            // A label with a line end is no line of ours, in a pipe neither.
            writeln!(text, "{:<22} {}", format!("{key}:"), visible(&value)).expect("writing to a string");
        };
        line("label", superblock.label());
        line("uuid", uuid_text(&superblock.uuid));
        line("last mounted on", superblock.last_mounted());
        line("features", features.join(" "));
        line("state", state.to_owned());
        if superblock.needs_recovery() {
            let recovery = fs.recovery();
            let (transactions, blocks) = (recovery.transactions, recovery.blocks);
            let mut text = format!("{transactions} transactions ({blocks} blocks)");
            if recovery.fast_commits > 0 {
                text += &format!(" and {} fast commits", recovery.fast_commits);
            }
            line("journal", format!("{text} replayed in memory"));
            if let Some(cut) = recovery.cut_text() {
                line("journal cut", cut);
            }
        }
        line("block size", layout.block_size.to_string());
        if layout.cluster_blocks > 1 {
            line("cluster size", (layout.block_size * layout.cluster_blocks).to_string());
        }
        line("blocks", format!("{} ({} free)", superblock.blocks, superblock.blocks_free));
        line("reserved blocks", superblock.blocks_reserved.to_string());
        line("inodes", format!("{} ({} free)", superblock.inodes, superblock.inodes_free));
        line("journal inode", superblock.journal_inode.map_or(0, InodeNo::get).to_string());
        line("inode size", layout.inode_size.to_string());
        line("groups", layout.groups.to_string());
        line("blocks per group", layout.blocks_per_group.to_string());
        line("inodes per group", layout.inodes_per_group.to_string());
        for (key, seconds) in [("created", created), ("last mounted", mounted), ("last written", written)] {
            if seconds != 0 {
                line(key, long_time(Time { seconds, nanoseconds: 0 }));
            }
        }
        context.print(text)?;
        Ok(Answer::Yes)
    }
}
