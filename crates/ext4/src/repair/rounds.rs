//! Rounds of a repair: a check, and what is mended of its findings, until nothing is left.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use casemate_blockdev::ErrorKind;
use casemate_providers::Work;

use crate::check::{CheckOptions, CheckReport, Finding, FindingKind, Fix, check};
use crate::edit::create::is_not_found;
use crate::edit::too_large::TooLarge;
use crate::error::{Corrupt, Counted, Problem, Result};
use crate::format::group::Bitmap;
use crate::read::journal::Journal;
use crate::read::mapping::Mapping;
use crate::repair::obstacles::{DESCRIPTORS, Obstacles, rank};
use crate::repair::{Approve, Depth, MOST_ROUNDS, MOST_ROUNDS_OF_ALL, Repair};

impl Repair {
    /// Goes on until a check finds nothing that can be mended. What it finds then.
    pub(super) fn rounds(
        &mut self,
        options: &CheckOptions,
        approve: &mut Approve<'_>,
        work: &Work<'_>,
    ) -> Result<CheckReport> {
        let mut rounds = 0;
        loop {
            let now = self.files.now();
            self.space().commit_counts(now)?;
            let report = check(Arc::clone(self.files.fs().device()), options, work)?;
            self.look(&report)?;
            let next = self.next(&report, approve)?;
            rounds += 1;
            let most = if self.depth == Depth::All { MOST_ROUNDS_OF_ALL } else { MOST_ROUNDS };
            if rounds > most {
                return Ok(report);
            }
            if next.is_empty() {
                match self.depth == Depth::All && self.decide(&report, &[], approve)? {
                    true if !self.is_other => continue,
                    _ => return Ok(report),
                }
            }
            let fixes: BTreeMap<&Finding, Fix> =
                report.fixes().iter().map(|(finding, fix)| (finding, *fix)).collect();
            self.recounted.clear();
            self.renamed.clear();
            self.copied.clear();
            for finding in &next {
                // Later ones follow from earlier ones, never the other way round.
                if self.files.space().transaction().is_large() {
                    self.files.commit()?;
                }
                self.try_to_mend(finding, fixes.get(finding).copied())?;
            }
            self.copy_other_descriptors(&report)?;
            self.keep_totals(&report)?;
            if self.files.space().transaction().is_large() {
                self.files.commit()?;
            }
            let moves_places = next.iter().any(|finding| rank(finding) == Some(DESCRIPTORS));
            if self.depth == Depth::All && !moves_places {
                self.decide(&report, &next, approve)?;
            }
            if self.is_other {
                return Ok(report);
            }
        }
    }

    /// Sets the superblock's totals to the sums that they were before groups were counted anew.
    fn keep_totals(&mut self, report: &CheckReport) -> Result<()> {
        for (which, kind, counted) in [
            (Bitmap::Blocks, FindingKind::FreeBlocks, Counted::FreeBlocks),
            (Bitmap::Inodes, FindingKind::FreeInodes, Counted::FreeInodes),
        ] {
            let is_other = self.recounted.iter().any(|(other, _)| *other == kind);
            let was_wrong = report.faults.iter().chain(&report.notes).any(|finding| {
                finding.kind() == FindingKind::FreeTotal
                    && matches!(finding.problem(), Problem::Number { what, .. } if *what == counted)
            });
            if is_other && !was_wrong {
                self.space().correct_total(which)?;
            }
        }
        Ok(())
    }

    /// The findings that are to be mended, in the order in which they are.
    fn next<'a>(&mut self, report: &'a CheckReport, approve: &mut Approve<'_>) -> Result<Vec<&'a Finding>> {
        let mut kinds: BTreeMap<(u32, FindingKind), Vec<&Finding>> = BTreeMap::new();
        for finding in report.faults.iter().chain(&report.notes) {
            let Some(rank) = rank(finding) else { continue };
            if self.obstacles.allow(finding) && !self.left.contains(finding) {
                kinds.entry((rank, finding.kind())).or_default().push(finding);
            }
        }
        let mut next = Vec::new();
        for ((_, kind), findings) in kinds {
            if self.is_approved(kind, &findings, approve)? {
                next.extend(findings);
            }
        }
        Ok(next)
    }

    /// Whether findings of a kind are to be mended. Each kind is asked for once.
    pub(super) fn is_approved(
        &mut self,
        kind: FindingKind,
        findings: &[&Finding],
        approve: &mut Approve<'_>,
    ) -> Result<bool> {
        if let Some(answer) = self.answers.get(&kind) {
            return Ok(*answer);
        }
        let list: Vec<Finding> = findings.iter().map(|finding| (*finding).clone()).collect();
        let answer = approve(kind, &list)?;
        self.answers.insert(kind, answer);
        Ok(answer)
    }

    /// Looks at what stands against mending.
    fn look(&mut self, report: &CheckReport) -> Result<()> {
        self.look_at_claims(report);
        let stays = |finding: &Finding| {
            self.left.contains(finding) || self.answers.get(&finding.kind()) == Some(&false)
        };
        self.metadata = OnceCell::new();
        self.obstacles = Obstacles::of(report, self.files.fs().superblock(), stays);
        self.miscounted = report
            .faults
            .iter()
            .filter(|finding| matches!(finding.kind(), FindingKind::FreeBlocks | FindingKind::FreeInodes))
            .filter_map(|finding| Some((finding.kind(), finding.place().group?)))
            .collect();
        let is_mislinked = |finding: &&Finding| finding.kind() == FindingKind::LinkCount;
        self.mislinked =
            report.faults.iter().filter(is_mislinked).filter_map(|finding| finding.place().inode).collect();
        let journal = self.files.fs().superblock().journal_inode;
        let is_unsound = journal.is_some_and(|journal| self.obstacles.is_unsound(journal));
        if !is_unsound && !self.journal_meets_metadata()? {
            return Ok(());
        }
        // What is written to its blocks could be written to those of somebody else.
        self.files.inodes().transaction().leave_journal(self.recovery.clone())
    }

    /// Whether the journal has blocks of the file system's own structures: the list of findings may have no room for that.
    fn journal_meets_metadata(&self) -> Result<bool> {
        let Ok(Some((runs, _))) = Journal::locate(self.files.fs()) else { return Ok(false) };
        let metadata = self.metadata()?;
        let meets = |run: &Mapping| {
            let at = metadata.partition_point(|own| own.end() <= run.physical);
            metadata.get(at).is_some_and(|own| own.first < run.physical + run.len)
        };
        Ok(runs.iter().any(meets))
    }

    fn try_to_mend(&mut self, finding: &Finding, fix: Option<Fix>) -> Result<()> {
        let is_other = finding.place().inode.is_some_and(|inode| self.renamed.contains(&inode));
        if finding.kind() == FindingKind::LinkCount && is_other {
            // Names were counted before.
            return Ok(());
        }
        self.attempt(finding, |repair| repair.mend(finding, fix))?;
        // Of some a check goes on to tell until they are committed.
        self.left.insert(finding.clone());
        Ok(())
    }

    /// Mends a finding as a step of its own, which is taken back if that is not possible.
    pub(super) fn attempt(
        &mut self,
        finding: &Finding,
        mend: impl FnOnce(&mut Repair) -> Result<bool>,
    ) -> Result<()> {
        if self.step(mend)? {
            self.mended.push(finding.clone());
        }
        Ok(())
    }

    /// Takes a step, which is taken back if it is not possible. Whether it was.
    pub(super) fn step(&mut self, step: impl FnOnce(&mut Repair) -> Result<bool>) -> Result<bool> {
        let mark = self.files.begin();
        let altered = self.altered.len();
        let result = step(self).and_then(|done| self.files.end().map(|()| done));
        match result {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            // What it leads to is damaged as well, has no room, or can't be changed here.
            Err(error)
                if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
                    || Corrupt::of(&error).is_some()
                    || TooLarge::is(&error)
                    || error.io_kind() == Some(std::io::ErrorKind::StorageFull)
                    || is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
        self.altered.truncate(altered);
        self.files.roll_back(mark);
        Ok(false)
    }
}
