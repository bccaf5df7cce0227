//! Texts on a hash area: veritysetup's lines, or JSON.

use std::fmt::{Display, Write};

use serde::Serialize;

use casemate::verity::{FecLayout, Formatted, Layout, PartitionUuids, hex, partition_uuids};

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
    #[serde(skip_serializing_if = "Option::is_none")]
    data_partition_uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_partition_uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fec: Option<FecJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
}

/// Parity for programs.
#[derive(Debug, Serialize)]
pub struct FecJson {
    roots: u32,
    /// Blocks that are covered: `fec_blocks` of the table line.
    covered_blocks: u64,
    parity_blocks: u64,
}

/// JSON of a new hash area.
pub fn formatted_json(formatted: &Formatted, dry_run: bool) -> Json {
    let uuids = partition_uuids(&formatted.root_hash).ok();
    Json {
        data_partition_uuid: uuids.map(|uuids| uuids.data.to_string()),
        hash_partition_uuid: uuids.map(|uuids| uuids.hash.to_string()),
        fec: formatted.fec.as_ref().map(fec_json),
        dry_run: Some(dry_run),
        ..json(&formatted.layout, Some(&formatted.root_hash))
    }
}

/// Parity for programs.
pub fn fec_json(fec: &FecLayout) -> FecJson {
    FecJson { roots: fec.roots(), covered_blocks: fec.blocks(), parity_blocks: fec.parity_blocks() }
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
        data_partition_uuid: None,
        hash_partition_uuid: None,
        fec: None,
        dry_run: None,
    }
}

/// The lines of `veritysetup format`.
pub fn formatted_lines(hash: &dyn Display, fec_offset: u64, formatted: &Formatted) -> String {
    let on_hash_device = formatted.fec_on_hash_device;
    let mut text = head(hash, &formatted.layout, formatted.fec.as_ref());
    // One space fewer than the others have.
    push(&mut text, "Root hash:      ", &hex::encode(&formatted.root_hash));
    let size = formatted.layout.hash_device_size();
    let parity = formatted.fec.as_ref().map_or(0, FecLayout::parity_size);
    if formatted.layout.hash_offset() == 0 {
        let size = if on_hash_device { size + parity } else { size };
        push(&mut text, "Hash device size: ", &format_args!("{size} [bytes]"));
    }
    if formatted.fec.is_some() && fec_offset == 0 && !on_hash_device {
        push(&mut text, "FEC device size: ", &format_args!("{parity} [bytes]"));
    }
    text
}

/// Lines of the UUIDs by which systemd finds data and hash partition; none for a root hash that is too short.
pub fn partition_lines(root_hash: &[u8]) -> String {
    partition_uuids(root_hash).map_or(String::new(), |PartitionUuids { data, hash }| {
        format!("Data partition UUID:\t{data}\nHash partition UUID:\t{hash}\n")
    })
}

/// The lines of `veritysetup dump`.
pub fn lines(hash: &dyn Display, layout: &Layout) -> String {
    let mut text = head(hash, layout, None);
    if layout.hash_offset() == 0 {
        push(&mut text, "Hash device size: ", &format_args!("{} [bytes]", layout.hash_device_size()));
    }
    text
}

fn head(hash: &dyn Display, layout: &Layout, fec: Option<&FecLayout>) -> String {
    let (parameters, geometry) = (layout.parameters(), layout.geometry());
    let mut text = format!("VERITY header information for {}\n", hash);
    let mut line = |name: &str, value: &dyn Display| push(&mut text, &format!("{name:<17}"), value);
    line("UUID:", &layout.uuid().map_or(String::new(), |uuid| uuid.to_string()));
    line("Hash type:", &parameters.hash_type.number());
    line("Data blocks:", &geometry.data_blocks());
    line("Data block size:", &parameters.data_block_size.bytes());
    line("Hash blocks:", &geometry.tree_blocks());
    line("Hash block size:", &parameters.hash_block_size.bytes());
    line("Hash algorithm:", &parameters.algorithm());
    // These two have one space fewer than the others.
    if let Some(fec) = fec {
        push(&mut text, "FEC RS roots:   ", &fec.roots());
        push(&mut text, "FEC blocks:     ", &fec.parity_blocks());
    }
    push(&mut text, "Salt:            ", &parameters.salt);
    text
}

fn push(text: &mut String, name: &str, value: &dyn Display) {
    writeln!(text, "{name}\t{value}").expect("writing to a string");
}
