//! Findings of checks, and repairs of ext4 file systems.

use std::path::PathBuf;

use casemate::ext4::{CheckReport, Finding, FindingKind, RepairDepth, RepairHow, WriteOptions};
use casemate::{Error, ErrorKind, Image};
use pyo3::prelude::*;

use crate::error::{raise, raised};
use crate::work::{Effort, changing};

/// A finding of a check: level, kind, place and what it is.
pub type Found = (&'static str, &'static str, String, String);

/// Faults that were fixed, findings that are left, faults of these that are unsure, how many faults are not listed, and inodes of
/// files with other contents with the change.
pub type Repaired = (Vec<Found>, Vec<Found>, Vec<Found>, u64, Vec<(u32, &'static str)>);

fn rows(level: &'static str, findings: &[Finding]) -> Vec<Found> {
    let row = |finding: &Finding| {
        (level, finding.kind().name(), finding.place().to_string(), finding.problem().to_string())
    };
    findings.iter().map(row).collect()
}

/// The findings of a check, faults first.
pub fn found(report: &CheckReport) -> Vec<Found> {
    let mut found = rows("fault", &report.faults);
    found.append(&mut rows("note", &report.notes));
    found
}

/// Repairs a file system to a depth, with an undo file if one is named. `approve` is asked before findings of a kind are fixed.
pub fn repair(
    py: Python<'_>,
    image: &Image,
    options: &WriteOptions,
    (depth, undo): (&str, Option<PathBuf>),
    approve: Option<Py<PyAny>>,
    effort: Effort,
) -> PyResult<Repaired> {
    let mut how = RepairHow::default();
    how.depth = match depth {
        "safe" => RepairDepth::Safe,
        "all" => RepairDepth::All,
        _ => return Err(raise(Error::argument(format!("depth '{depth}': 'safe' or 'all'")))),
    };
    how.undo = undo;
    let report = changing(py, effort, |work| {
        let mut ask = |kind: FindingKind, findings: &[Finding]| {
            let Some(approve) = &approve else { return Ok(true) };
            let answer =
                Python::attach(|py| approve.call1(py, (kind.name(), rows("fault", findings)))?.is_truthy(py));
            answer.map_err(|exception| raised(ErrorKind::Interrupted, exception))
        };
        image.ext4_repair(options, &how, &mut ask, work)
    })?;
    let left = found(&report.report);
    let (fixed, withheld) = (rows("fault", &report.mended), rows("fault", &report.withheld));
    let altered = report.altered.iter().map(|file| (file.inode.get(), file.how.name())).collect();
    Ok((fixed, left, withheld, report.report.faults_left_out, altered))
}
