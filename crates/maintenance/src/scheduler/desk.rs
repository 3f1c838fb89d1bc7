//! One schedule in memory: its rule, the periods that count, and what it has made.

use std::collections::{HashMap, HashSet};

use api::admin::ScheduleStatus;
use jiff::Timestamp;
use planner::schedule::{Horizon, Known, Rule, Slot};
use uuid::Uuid;

/// A schedule, whether it is there or only what it has made.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) standing: Standing,
    pub(super) horizon: Option<Horizon>,
    /// What is known of its manifests, by cluster.
    pub(super) shelves: HashMap<Uuid, Vec<(Uuid, Known)>>,
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
pub(super) enum Standing {
    /// It is there.
    Live(Box<Rule>),
    /// It is there but cannot be read; what it has made is left alone until somebody mends it.
    Broken(String),
    /// It is not there: whatever it has made is no longer wanted.
    #[default]
    Gone,
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

impl Desk {
    /// Brings the periods that count up to date; when they are others now, all is to be decided anew.
    pub(super) fn roll(&mut self, now: Timestamp) {
        let Standing::Live(rule) = &self.standing else { return };
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
    pub(super) fn known(&self, cluster: Uuid, manifest: Uuid) -> Option<Known> {
        self.shelves.get(&cluster)?.iter().find(|(id, _)| *id == manifest).map(|(_, known)| *known)
    }

    pub(super) fn learn(&mut self, cluster: Uuid, manifest: Uuid, known: Known) {
        let shelf = self.shelves.entry(cluster).or_default();
        match shelf.iter_mut().find(|(id, _)| *id == manifest) {
            Some((_, old)) => *old = known,
            None => shelf.push((manifest, known)),
        }
    }

    /// Forgets what need not be known any more: what is neither waiting nor wanted. Which manifests these are.
    pub(super) fn tidy(&mut self, cluster: Uuid, wanted: &[Slot]) -> Vec<Uuid> {
        let Some(shelf) = self.shelves.get_mut(&cluster) else { return Vec::new() };
        let mut forgotten = Vec::new();
        shelf.retain(|(id, known)| {
            let stays = matches!(known, Known::Fresh(_)) || wanted.iter().any(|slot| slot.id == *id);
            if !stays {
                forgotten.push(*id);
            }
            stays
        });
        if shelf.is_empty() {
            self.shelves.remove(&cluster);
        }
        forgotten
    }
}
