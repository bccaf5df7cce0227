//! Decisions: the rules applied to what is left when nothing follows from the rest of the file system any more.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::{CheckReport, Doubts, Finding, FindingKind, Fix};
use crate::error::{Result, Structure};
use crate::repair::copies::Owners;
use crate::repair::directory::Unsound;
use crate::repair::obstacles::rank;
use crate::repair::{Approve, Repair, Rule, rule};
use crate::units::InodeNo;

impl Repair {
    /// Applies the first rule that there are findings for, and those behind it that don't depend on what it changes; nothing to
    /// findings that were mended just now. Whether there were some.
    pub(super) fn decide(
        &mut self,
        report: &CheckReport,
        mended: &[&Finding],
        approve: &mut Approve<'_>,
    ) -> Result<bool> {
        if self.is_stuck {
            return Ok(false);
        }
        let unindexed = self.take_unindexed(report);
        let mended: BTreeSet<&Finding> = mended.iter().copied().collect();
        let can_settle = mended.is_empty() && self.can_settle(report);
        let mut rules: BTreeMap<Rule, BTreeMap<FindingKind, Vec<&Finding>>> = BTreeMap::new();
        for finding in report.faults.iter().chain(&report.notes) {
            let Some(rule) = rule(finding).filter(|_| !mended.contains(finding)) else { continue };
            if self.decided.contains(&(rule, finding.clone())) || self.must_wait(rule, finding) {
                continue;
            }
            if rule == Rule::Copy && !self.decided.contains(&(Rule::Cut, finding.clone())) {
                let kinds = rules.entry(Rule::Cut).or_default();
                kinds.entry(finding.kind()).or_default().push(finding);
            }
            if rule != Rule::Settle || can_settle {
                rules.entry(rule).or_default().entry(finding.kind()).or_default().push(finding);
            }
        }
        let fixes: BTreeMap<&Finding, Fix> =
            report.fixes().iter().map(|(finding, fix)| (finding, *fix)).collect();
        self.renewed.clear();
        self.recounted.clear();
        self.renamed.clear();
        // Rules of this look, and what is not known any more since they were applied.
        let mut applied: Vec<Rule> = Vec::new();
        let mut touched: BTreeSet<InodeNo> =
            mended.iter().filter_map(|finding| finding.place().inode).collect();
        let mut doubts = Doubts::NONE;
        for (rule, kinds) in rules {
            if !rule.goes_behind(&applied) || report.is_full() && !applied.is_empty() {
                break;
            }
            let mut next = Vec::new();
            for (kind, findings) in kinds {
                let is_known = |finding: &&&Finding| {
                    let is_touched = finding.place().inode.is_some_and(|inode| touched.contains(&inode));
                    rule.is_alone() || !is_touched && !doubts.has(rule.needs(kind))
                };
                let known: Vec<&Finding> = findings.iter().filter(is_known).copied().collect();
                if !known.is_empty() && self.is_approved(kind, &findings, approve)? {
                    next.extend(known);
                }
            }
            if next.is_empty() {
                continue;
            }
            touched.extend(next.iter().filter_map(|finding| finding.place().inode));
            doubts = next.iter().fold(doubts, |doubts, finding| doubts | finding.kind().doubts());
            applied.push(rule);
            self.apply_to(rule, next, &fixes, report)?;
            if self.is_other {
                break;
            }
        }
        for number in &unindexed {
            if self.files.space().transaction().is_large() {
                self.files.commit()?;
            }
            self.restore_index(*number)?;
        }
        Ok(!applied.is_empty() || !unindexed.is_empty())
    }

    /// Applies a rule to findings.
    fn apply_to(
        &mut self,
        rule: Rule,
        mut findings: Vec<&Finding>,
        fixes: &BTreeMap<&Finding, Fix>,
        report: &CheckReport,
    ) -> Result<()> {
        // Inodes come in the order of their numbers.
        findings.sort_by_key(|finding| (finding.place().inode, rank_in_rule(finding)));
        if rule == Rule::Place {
            self.begin_places()?;
        }
        if matches!(rule, Rule::Cut | Rule::Copy) {
            self.owners = Owners::of(&findings, self.files.fs(), &self.metadata()?);
        }
        if rule == Rule::Copy {
            self.sort_claims(&mut findings)?;
        }
        self.unsound = Unsound::of(&findings);
        let before = self.mended.len();
        for finding in findings {
            if self.files.space().transaction().is_large() {
                self.files.commit()?;
            }
            let fix = fixes.get(finding).copied();
            self.attempt(finding, |repair| repair.apply(rule, finding, fix, report))?;
            self.decided.insert((rule, finding.clone()));
        }
        if rule == Rule::Place {
            self.fill_bitmaps(report)?;
        }
        let is_of_opening = matches!(rule, Rule::Place | Rule::Feature | Rule::Own);
        self.is_other |= self.may_open && is_of_opening && self.mended.len() > before;
        // What was freed can be used from now on, and nothing is read past what was decided.
        self.files.commit()
    }

    /// Whether what is marked as in use and was not found may be taken for free: no block has two owners, and all structures
    /// were found.
    fn can_settle(&self, report: &CheckReport) -> bool {
        !report
            .faults
            .iter()
            .any(|finding| finding.kind().hides_structures() || finding.kind() == FindingKind::ClaimedTwice)
    }

    fn apply(
        &mut self,
        rule: Rule,
        finding: &Finding,
        fix: Option<Fix>,
        report: &CheckReport,
    ) -> Result<bool> {
        if let Some(inode) = finding.place().inode
            && !matches!(rule, Rule::Mark | Rule::Settle)
            // Findings of an inode that holds a value are mended one by one.
            && finding.place().structure != Structure::XattrInode
            && !self.renewed.insert((rule, inode))
        {
            // With the finding before. What gave nothing up waits for the rule behind.
            return Ok(rule != Rule::Cut);
        }
        match rule {
            Rule::Mark => {
                // Counts become those of the bitmaps as they are by now.
                self.recounted.extend(finding.place().group.map(|group| (finding.kind(), group)));
                self.mend(finding, fix)
            }
            Rule::Settle => self.settle(finding, fix),
            Rule::Place => self.renew_places(finding, report),
            Rule::Feature => self.renew_feature(finding),
            Rule::Root => self.renew_root(),
            Rule::Own => self.renew_own(finding),
            Rule::Inode => self.renew_inode(finding),
            Rule::Cut => self.give_up(finding),
            Rule::Copy => self.copy_shared(finding),
            Rule::Directory => self.renew_directory(finding),
            Rule::Unloop => self.unloop(finding),
            Rule::Free => self.free_value(finding),
        }
    }
}

impl Repair {
    /// Mends as if nothing else were damaged.
    fn settle(&mut self, finding: &Finding, fix: Option<Fix>) -> Result<bool> {
        let is_deleted = matches!(finding.kind(), FindingKind::DeletionTime | FindingKind::LostOrphan);
        if let Some(number) = finding.place().inode.filter(|_| is_deleted)
            && self.files.inodes().get_unlinked(number).is_err()
        {
            // It is none, and has no name.
            return self.clear_inode(number);
        }
        if finding.kind() == FindingKind::EntryKind {
            return self.entry_kind(finding, true);
        }
        let is_descriptor = finding.kind() == FindingKind::Checksum
            && finding.place().structure == Structure::GroupDescriptor;
        match (finding.place().group, fix) {
            (Some(group), Some(fix)) if is_descriptor => self.descriptor(group, fix, true),
            _ => self.mend(finding, fix),
        }
    }
}

/// Findings of one inode, or of none, in the order in which they are mended.
fn rank_in_rule(finding: &Finding) -> (Option<u32>, FindingKind) {
    (rank(finding), finding.kind())
}
