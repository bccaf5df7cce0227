//! What is printed about a hash area: veritysetup's lines, or JSON.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use casemate::verity::{Layout, hex};

/// A hash area for programs.
#[derive(Debug, Serialize)]
pub struct Json {
    uuid: Option<String>,
    hash_type: u32,
    data_blocks: u64,
    data_block_size: u32,
    hash_blocks: u64,
    hash_block_size: u32,
    hash_algorithm: String,
    salt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_hash: Option<String>,
    hash_offset: u64,
    hash_start_block: u64,
    hash_device_size: u64,
    levels: usize,
}

/// For programs.
pub fn json(layout: &Layout, root_hash: Option<&[u8]>) -> Json {
    let (parameters, geometry) = (layout.parameters(), layout.geometry());
    Json {
        uuid: layout.uuid().map(|uuid| uuid.to_string()),
        hash_type: parameters.hash_type.number(),
        data_blocks: geometry.data_blocks(),
        data_block_size: parameters.data_block_size.bytes(),
        hash_blocks: geometry.tree_blocks(),
        hash_block_size: parameters.hash_block_size.bytes(),
        hash_algorithm: parameters.algorithm().to_owned(),
        salt: hex::encode(parameters.salt.bytes()),
        root_hash: root_hash.map(hex::encode),
        hash_offset: layout.hash_offset(),
        hash_start_block: layout.hash_start_block(),
        hash_device_size: layout.hash_device_size(),
        levels: geometry.levels().len(),
    }
}

/// The lines of `veritysetup format` and `veritysetup dump`.
pub fn lines(hash_path: &Path, layout: &Layout, root_hash: Option<&[u8]>) -> String {
    let (parameters, geometry) = (layout.parameters(), layout.geometry());
    let mut text = format!("VERITY header information for {}\n", hash_path.display());
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "{name:<17}\t{value}").expect("writing to a string");
    };
    line("UUID:", &layout.uuid().map_or(String::new(), |uuid| uuid.to_string()));
    line("Hash type:", &parameters.hash_type.number());
    line("Data blocks:", &geometry.data_blocks());
    line("Data block size:", &parameters.data_block_size.bytes());
    line("Hash blocks:", &geometry.tree_blocks());
    line("Hash block size:", &parameters.hash_block_size.bytes());
    line("Hash algorithm:", &parameters.algorithm());
    line("Salt:", &parameters.salt);
    if let Some(root_hash) = root_hash {
        // One space fewer than the others have.
        writeln!(text, "Root hash:      \t{}", hex::encode(root_hash)).expect("writing to a string");
    }
    if layout.hash_offset() == 0 {
        writeln!(text, "Hash device size: \t{} [bytes]", layout.hash_device_size())
            .expect("writing to a string");
    }
    text
}
