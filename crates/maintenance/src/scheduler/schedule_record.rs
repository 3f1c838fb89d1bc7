//! One schedule in memory: its rule, the periods that count, and what it has made.

use std::collections::{HashMap, HashSet};

use api::admin::ScheduleStatus;
use jiff::Timestamp;
use planner::schedule::{Horizon, ManifestStatus, Rule, Slot};
use uuid::Uuid;

/// A schedule, whether it is there or only what it has made.
#[derive(Debug, Default)]
pub(super) struct ScheduleRecord {
    pub(super) rule_state: RuleState,
    pub(super) horizon: Option<Horizon>,
    /// What is known of its manifests, by cluster.
    pub(super) manifests: HashMap<Uuid, Vec<(Uuid, ManifestStatus)>>,
    /// The clusters that it is for.
    pub(super) matched: HashSet<Uuid>,
    pub(super) dirty: Dirty,
    /// What was last told of it.
    pub(super) told: Option<ScheduleStatus>,
    /// What the present pass did.
    pub(super) created: u64,
    pub(super) cancelled: u64,
}

/// What there is of a schedule.
#[derive(Debug, Default)]
pub(super) enum RuleState {
    /// It is there.
    Valid(Box<Rule>),
    /// It is there but cannot be read; what it has made is left alone until somebody mends it.
    Invalid(String),
    /// It is not there: whatever it has made is no longer wanted.
    #[default]
    Deleted,
}

/// What must be decided anew.
#[derive(Debug)]
pub(super) enum Dirty {
    /// Everything.
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
    /// Brings the periods that count up to date; when they are others now, all is to be decided anew.
    pub(super) fn roll(&mut self, now: Timestamp) {
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
            horizon.boundary = None; // nothing begins
        }
        self.horizon = Some(horizon);
        self.dirty = Dirty::All;
    }

    /// What is known of one manifest.
    pub(super) fn known(&self, cluster: Uuid, manifest: Uuid) -> Option<ManifestStatus> {
        self.manifests.get(&cluster)?.iter().find(|(id, _)| *id == manifest).map(|(_, known)| *known)
    }

    pub(super) fn learn(&mut self, cluster: Uuid, manifest: Uuid, status: ManifestStatus) {
        let known = self.manifests.entry(cluster).or_default();
        match known.iter_mut().find(|(id, _)| *id == manifest) {
            Some((_, old)) => *old = status,
            None => known.push((manifest, status)),
        }
    }

    /// Forgets what need not be known any more: what is neither waiting nor wanted. Which manifests these are.
    pub(super) fn tidy(&mut self, cluster: Uuid, wanted: &[Slot]) -> Vec<Uuid> {
        let Some(known) = self.manifests.get_mut(&cluster) else { return Vec::new() };
        let mut forgotten = Vec::new();
        known.retain(|(id, known)| {
            let stays = matches!(known, ManifestStatus::Fresh(_)) || wanted.iter().any(|slot| slot.id == *id);
            if !stays {
                forgotten.push(*id);
            }
            stays
        });
        if known.is_empty() {
            self.manifests.remove(&cluster);
        }
        forgotten
    }
}
