//! Clusters that can't be used yet.

use std::collections::HashMap;

use crate::units::GroupNo;

/// Clusters that were freed since the last commit. The state on the device still uses them, so nothing may be
/// written to them yet.
#[derive(Debug, Default)]
pub(super) struct Pins {
    /// Group, first cluster in it, count; in the order in which they were freed.
    list: Vec<(GroupNo, u64, u64)>,
    /// Pins by group, as positions in the list.
    groups: HashMap<GroupNo, Vec<usize>>,
    clusters: u64,
}

impl Pins {
    /// A point to which [`roll_back`](Pins::roll_back) can go.
    pub fn mark(&self) -> usize {
        self.list.len()
    }

    pub fn roll_back(&mut self, mark: usize) {
        for (group, _, count) in self.list.drain(mark..).rev() {
            self.clusters -= count;
            if let Some(positions) = self.groups.get_mut(&group) {
                positions.pop();
            }
        }
    }

    pub fn clear(&mut self) {
        *self = Pins::default();
    }

    /// How many clusters are pinned.
    pub fn clusters(&self) -> u64 {
        self.clusters
    }

    pub fn add(&mut self, group: GroupNo, first: u64, count: u64) {
        self.groups.entry(group).or_default().push(self.list.len());
        self.list.push((group, first, count));
        self.clusters += count;
    }

    pub fn of(&self, group: GroupNo) -> impl Iterator<Item = (u64, u64)> {
        let positions = self.groups.get(&group).into_iter().flatten();
        positions.map(|position| (self.list[*position].1, self.list[*position].2))
    }
}
