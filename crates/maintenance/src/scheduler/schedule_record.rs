//! One schedule in memory: its rule, its current periods and its manifests.

use std::collections::{HashMap, HashSet};

use api::admin::ScheduleStatus;
use jiff::Timestamp;
use planner::schedule::{Horizon, ManifestStatus, Rule, Slot};
use uuid::Uuid;

/// Schedule, or the manifests of a deleted one.
#[derive(Debug, Default)]
pub(super) struct ScheduleRecord {
    pub(super) rule_state: RuleState,
    pub(super) horizon: Option<Horizon>,
    /// Statuses of its manifests, by cluster.
    pub(super) manifests: HashMap<Uuid, Vec<(Uuid, ManifestStatus)>>,
    /// Clusters that it selects.
    pub(super) matched: HashSet<Uuid>,
    pub(super) dirty: Dirty,
    /// Status that was last written.
    pub(super) published: Option<ScheduleStatus>,
    /// Manifests created in the current pass.
    pub(super) created: u64,
    /// Manifests withdrawn in the current pass.
    pub(super) cancelled: u64,
}

/// Rule of a schedule, if it has one.
#[derive(Debug, Default)]
pub(super) enum RuleState {
    /// The schedule exists.
    Valid(Box<Rule>),
    /// The schedule exists but is invalid; its manifests are unchanged until it is corrected.
    Invalid(String),
    /// The schedule does not exist: its pending manifests are withdrawn.
    #[default]
    Deleted,
}

/// Clusters to decide again.
#[derive(Debug)]
pub(super) enum Dirty {
    /// All clusters.
    All,
    /// These clusters.
    Some(HashSet<Uuid>),
}

impl Default for Dirty {
    fn default() -> Dirty {
        Dirty::Some(HashSet::new())
    }
}

impl Dirty {
    pub(super) fn add(&mut self, cluster: Uuid) {
        if let Dirty::Some(clusters) = self {
            clusters.insert(cluster);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Dirty::Some(clusters) if clusters.is_empty())
    }
}

impl ScheduleRecord {
    /// Advances the periods to `now`; if they change, all clusters are dirty.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let RuleState::Valid(rule) = &self.rule_state else { return };
        if let Some(horizon) = &mut self.horizon
            && horizon.boundary.is_none_or(|at| at > now)
            && horizon.now <= now
        {
            horizon.now = now;
            return;
        }
        let mut horizon = rule.horizon(now);
        if !rule.enabled {
            horizon.boundary = None; // a disabled schedule starts no period
        }
        self.horizon = Some(horizon);
        self.dirty = Dirty::All;
    }

    /// Cached status of a manifest.
    pub(super) fn status(&self, cluster: Uuid, manifest: Uuid) -> Option<ManifestStatus> {
        self.manifests.get(&cluster)?.iter().find(|(id, _)| *id == manifest).map(|(_, status)| *status)
    }

    pub(super) fn set_status(&mut self, cluster: Uuid, manifest: Uuid, status: ManifestStatus) {
        let statuses = self.manifests.entry(cluster).or_default();
        match statuses.iter_mut().find(|(id, _)| *id == manifest) {
            Some((_, old)) => *old = status,
            None => statuses.push((manifest, status)),
        }
    }

    /// Removes the statuses of manifests that are neither pending nor desired; returns those manifests.
    pub(super) fn forget_obsolete(&mut self, cluster: Uuid, desired: &[Slot]) -> Vec<Uuid> {
        let Some(statuses) = self.manifests.get_mut(&cluster) else { return Vec::new() };
        let mut forgotten = Vec::new();
        statuses.retain(|(id, status)| {
            let stays =
                matches!(status, ManifestStatus::Fresh(_)) || desired.iter().any(|slot| slot.id == *id);
            if !stays {
                forgotten.push(*id);
            }
            stays
        });
        if statuses.is_empty() {
            self.manifests.remove(&cluster);
        }
        forgotten
    }
}
