//! Statistics of a server, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use casemate::image::LayerStatistics;
use casemate::nbd::Statistics;

/// One JSON object of an export.
pub fn value(name: &str, export: &Statistics, layers: &[LayerStatistics], clients: usize) -> Value {
    let layer = |layer: &LayerStatistics| match layer {
        LayerStatistics::Crypt(crypt, driver) => json!({
            "kind": "crypt",
            "driver": driver,
            "calls": crypt.calls,
            "batched_units": crypt.batched_units,
            "single_units": crypt.single_units,
            "bytes": crypt.bytes,
            "cipher_seconds": crypt.cipher_time.as_secs_f64(),
        }),
        LayerStatistics::Verity(verity) => json!({
            "kind": "verity",
            "batched_blocks": verity.batched_blocks,
            "single_blocks": verity.single_blocks,
            "bad_blocks": verity.bad_blocks,
            "hash_blocks": verity.hash_blocks,
            "kept_hash_blocks": verity.kept_hash_blocks,
            "hash_seconds": verity.hash_time.as_secs_f64(),
        }),
        LayerStatistics::Integrity(wrong) => json!({"kind": "integrity", "wrong_blocks": wrong}),
        LayerStatistics::Overlay(blocks) => json!({"kind": "overlay", "blocks": blocks}),
    };
    json!({
        "export_name": name,
        "clients": clients,
        "connections": export.connections,
        "reads": export.reads,
        "read_bytes": export.read_bytes,
        "writes": export.writes,
        "written_bytes": export.written_bytes,
        "flushes": export.flushes,
        "trims": export.trims,
        "zeroes": export.zeroes,
        "statuses": export.statuses,
        "caches": export.caches,
        "errors": export.errors,
        "layers": layers.iter().map(layer).collect::<Vec<_>>(),
    })
}

/// A line for the export, which has a name if there are several, and one for each device of the image.
pub fn text(name: Option<&str>, export: &Statistics, layers: &[LayerStatistics], clients: usize) -> String {
    let Statistics {
        connections,
        reads,
        read_bytes,
        writes,
        written_bytes,
        flushes,
        trims,
        zeroes,
        statuses,
        caches,
        errors,
    } = export;
    let mut text = name.map_or_else(String::new, |name| format!("{name}: "));
    text += &format!(
        "{clients} clients now, {connections} in all: {reads} reads ({read_bytes} bytes), {writes} writes \
         ({written_bytes} bytes), {flushes} flushes, {trims} trims, {zeroes} zeroes, {statuses} block statuses, \
         {caches} read ahead, {errors} errors\n"
    );
    for layer in layers {
        let written = match layer {
            LayerStatistics::Crypt(crypt, driver) => writeln!(
                text,
                "crypt ({driver}): {} calls, {} sectors in batches, {} alone, {} bytes in {:?}",
                crypt.calls, crypt.batched_units, crypt.single_units, crypt.bytes, crypt.cipher_time
            ),
            LayerStatistics::Verity(verity) => writeln!(
                text,
                "verity: {} blocks in batches, {} alone, {} bad, in {:?}; {} hash blocks read, {} kept",
                verity.batched_blocks,
                verity.single_blocks,
                verity.bad_blocks,
                verity.hash_time,
                verity.hash_blocks,
                verity.kept_hash_blocks
            ),
            LayerStatistics::Integrity(wrong) => writeln!(text, "integrity: {wrong} blocks with a wrong tag"),
            LayerStatistics::Overlay(blocks) => writeln!(text, "overlay: {blocks} blocks"),
        };
        written.expect("writing to a string");
    }
    text
}
