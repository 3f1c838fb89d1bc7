//! The fleet in memory, and what follows from it. Nothing here reads a clock or a store.

use std::collections::{HashMap, HashSet};

use api::doc::{Cluster, Schedule, SubscriptionState};
use api::selector::Key;
use jiff::Timestamp;
use planner::schedule::{Changes, Known, Member, Rule, Slot, decide};
use uuid::Uuid;

use super::desk::{Desk, Dirty, Standing};

/// All clusters and schedules, what the schedules have made, and what has changed since the last pass.
#[derive(Debug, Default)]
pub struct Fleet {
    seats: HashMap<Uuid, Seat>,
    /// Subscriptions by the uuid of their document, and their states.
    subscriptions: HashMap<Uuid, String>,
    states: HashMap<String, SubscriptionState>,
    /// Schedules by their id.
    pub(super) desks: HashMap<String, Desk>,
    /// Ids of schedules by the uuid of their document.
    schedules: HashMap<Uuid, String>,
    /// Whose a manifest is: schedule and cluster.
    owners: HashMap<Uuid, (String, Uuid)>,
    /// Clusters that have changed.
    changed: HashSet<Uuid>,
    /// Schedules that are gone and whose manifests were let go.
    kept: HashSet<String>,
}

/// A cluster and all that is known of it.
#[derive(Debug)]
struct Seat {
    cluster: Cluster,
    version: Option<String>,
    member: Member,
}

/// What a pass has to write. Withdrawals go first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// To be withdrawn: the schedule, the cluster, the manifest.
    pub withdraw: Vec<(String, Uuid, Uuid)>,
    /// To be made or brought back: the schedule, the cluster, the slot; the soonest first.
    pub create: Vec<(String, Uuid, Slot)>,
}

impl Fleet {
    /// How many clusters there are.
    pub fn clusters(&self) -> usize {
        self.seats.len()
    }

    /// How many schedules there are.
    pub fn schedules(&self) -> usize {
        self.schedules.len()
    }

    /// A cluster is as this; one that is as before changes nothing.
    pub fn put_cluster(&mut self, uuid: Uuid, cluster: Cluster) {
        let version = self.seats.get(&uuid).and_then(|seat| seat.version.clone());
        self.seat(uuid, cluster, version);
    }

    /// A cluster is no longer there.
    pub fn drop_cluster(&mut self, uuid: Uuid) {
        if self.seats.remove(&uuid).is_some() {
            self.changed.insert(uuid);
        }
    }

    /// The version that was last seen in a cluster.
    pub fn put_version(&mut self, uuid: Uuid, version: Option<String>) {
        let Some(seat) = self.seats.get(&uuid).filter(|seat| seat.version != version) else { return };
        self.seat(uuid, seat.cluster.clone(), version);
    }

    /// A subscription is in this state, or (with none) no longer known.
    pub fn put_subscription(&mut self, uuid: Uuid, subscription: Option<(String, SubscriptionState)>) {
        let before = self.subscriptions.remove(&uuid);
        if let Some(id) = &before {
            self.states.remove(id);
        }
        let now = subscription.map(|(id, state)| (id.to_lowercase(), state));
        if let Some((id, state)) = &now {
            self.subscriptions.insert(uuid, id.clone());
            self.states.insert(id.clone(), *state);
        }
        let ids: Vec<String> = before.into_iter().chain(now.map(|(id, _)| id)).collect();
        let concerned: Vec<Uuid> = self
            .seats
            .iter()
            .filter(|(_, seat)| ids.contains(&seat.member.subscription))
            .map(|(uuid, _)| *uuid)
            .collect();
        for uuid in concerned {
            if let Some(seat) = self.seats.get(&uuid) {
                self.seat(uuid, seat.cluster.clone(), seat.version.clone());
            }
        }
    }

    fn seat(&mut self, uuid: Uuid, cluster: Cluster, version: Option<String>) {
        let state = self.states.get(&cluster.subscription_id.to_lowercase()).copied();
        let member = Member::of(uuid, &cluster, state, version.as_deref());
        if self.seats.get(&uuid).is_none_or(|seat| seat.member != member) {
            self.changed.insert(uuid);
        }
        self.seats.insert(uuid, Seat { cluster, version, member });
    }

    /// A schedule is as this since `since`.
    pub fn put_schedule(&mut self, uuid: Uuid, schedule: &Schedule, since: Timestamp) {
        self.schedules.insert(uuid, schedule.id.clone());
        self.kept.remove(&schedule.id);
        let desk = self.desks.entry(schedule.id.clone()).or_default();
        let standing = match Rule::read(schedule, since) {
            Ok(rule) => Standing::Live(Box::new(rule)),
            Err(refusal) => Standing::Broken(format!("{}: {}", refusal.target, refusal.message)),
        };
        if let (Standing::Live(old), Standing::Live(new)) = (&desk.standing, &standing)
            && old == new
        {
            return;
        }
        (desk.standing, desk.horizon, desk.dirty) = (standing, None, Dirty::All);
    }

    /// A schedule whose document cannot be read.
    pub(super) fn put_broken_schedule(&mut self, uuid: Uuid, id: &str, why: String) {
        self.schedules.insert(uuid, id.to_owned());
        let desk = self.desks.entry(id.to_owned()).or_default();
        (desk.standing, desk.horizon, desk.dirty) = (Standing::Broken(why), None, Dirty::All);
    }

    /// A schedule is no longer there; its id, if it was.
    pub fn drop_schedule(&mut self, uuid: Uuid) -> Option<String> {
        let id = self.schedules.remove(&uuid)?;
        if let Some(desk) = self.desks.get_mut(&id) {
            (desk.standing, desk.horizon, desk.dirty) = (Standing::Gone, None, Dirty::All);
        }
        Some(id)
    }

    /// Forgets what a schedule that is gone has made: it stays as it is.
    pub(super) fn let_go(&mut self, id: &str) {
        if self.desks.get(id).is_some_and(|desk| matches!(desk.standing, Standing::Gone)) {
            self.desks.remove(id);
            self.kept.insert(id.to_owned());
            self.owners.retain(|_, (owner, _)| owner != id);
        }
    }

    /// The ids of schedules that are not there but have made something.
    pub(super) fn gone(&self) -> Vec<String> {
        let gone = self.desks.iter().filter(|(_, desk)| matches!(desk.standing, Standing::Gone));
        gone.map(|(id, _)| id.clone()).collect()
    }

    /// What is known of a manifest that a schedule has made.
    pub fn learn(&mut self, schedule: &str, cluster: Uuid, manifest: Uuid, known: Known) {
        if self.kept.contains(schedule) {
            return;
        }
        let desk = self
            .desks
            .entry(schedule.to_owned())
            .or_insert_with(|| Desk { dirty: Dirty::All, ..Desk::default() });
        if desk.known(cluster, manifest) == Some(known) {
            return;
        }
        desk.learn(cluster, manifest, known);
        // What is taken is nobody's business any more; all else may want a decision.
        if known != Known::Taken {
            desk.dirty.add(cluster);
        }
        self.owners.insert(manifest, (schedule.to_owned(), cluster));
    }

    /// Decides a schedule once more for a cluster.
    pub(super) fn mark(&mut self, schedule: &str, cluster: Uuid) {
        if let Some(desk) = self.desks.get_mut(schedule) {
            desk.dirty.add(cluster);
        }
    }

    /// What is known of a manifest; none when it is none of a schedule's, or is forgotten.
    pub(super) fn known(&self, manifest: Uuid) -> Option<Known> {
        let (schedule, cluster) = self.owners.get(&manifest)?;
        self.desks.get(schedule)?.known(*cluster, manifest)
    }

    /// The schedule and the cluster of a manifest.
    pub(super) fn owner(&self, manifest: Uuid) -> Option<(String, Uuid)> {
        self.owners.get(&manifest).cloned()
    }

    /// When the next period of any schedule begins.
    pub fn boundary(&self) -> Option<Timestamp> {
        self.desks.values().filter_map(|desk| desk.horizon.as_ref()?.boundary).min()
    }

    /// Whether any schedule asks for the clusters' versions, which the feed does not tell.
    pub(super) fn asks_for_versions(&self) -> bool {
        self.desks.values().any(|desk| match &desk.standing {
            Standing::Live(rule) => rule.selectors.uses(&Key::Version),
            Standing::Broken(_) | Standing::Gone => false,
        })
    }

    /// All clusters.
    pub(super) fn cluster_ids(&self) -> Vec<Uuid> {
        self.seats.keys().copied().collect()
    }

    /// The manifest of a slot and the budgets that count it; none when cluster or schedule have gone.
    pub(super) fn manifest(
        &self,
        schedule: &str,
        cluster: Uuid,
        slot: &Slot,
    ) -> Option<(api::doc::Manifest, Vec<String>)> {
        match &self.desks.get(schedule)?.standing {
            Standing::Live(rule) => Some(rule.manifest(slot, &self.seats.get(&cluster)?.member)),
            Standing::Broken(_) | Standing::Gone => None,
        }
    }

    /// Brings all periods up to `now`. To be called before what follows.
    pub fn roll(&mut self, now: Timestamp) {
        for desk in self.desks.values_mut() {
            desk.roll(now);
        }
    }

    /// Manifests of open periods of which nothing is known: whether they are there must be looked up, because they are
    /// not made but, once withdrawn, come back.
    pub fn unknown(&self) -> Vec<(String, Uuid, Uuid)> {
        let mut unknown = Vec::new();
        for (id, desk) in &self.desks {
            let Some(horizon) = &desk.horizon else { continue };
            if horizon.periods.iter().all(|period| period.at > horizon.now) {
                continue;
            }
            for cluster in self.dirty_of(desk) {
                let kept = self.wanted(desk, cluster).into_iter().filter(|slot| !slot.made);
                let kept = kept.filter(|slot| desk.known(cluster, slot.id).is_none());
                unknown.extend(kept.map(|slot| (id.clone(), cluster, slot.id)));
            }
        }
        unknown
    }

    /// What must be written now, for all that has changed since [`Fleet::clean`]. It stays so until it is done and
    /// learnt.
    pub fn plan(&mut self) -> Plan {
        let mut plan = Plan::default();
        let mut desks = std::mem::take(&mut self.desks);
        for (id, desk) in &mut desks {
            if matches!(desk.standing, Standing::Broken(_)) {
                continue;
            }
            for cluster in self.dirty_of(desk) {
                let selected = match (&desk.standing, self.seats.get(&cluster)) {
                    (Standing::Live(rule), Some(seat)) => rule.selects(&seat.member),
                    _ => false,
                };
                match selected {
                    true => desk.matched.insert(cluster),
                    false => desk.matched.remove(&cluster),
                };
                let wanted = self.wanted(desk, cluster);
                for forgotten in desk.tidy(cluster, &wanted) {
                    self.owners.remove(&forgotten);
                }
                let known = desk.shelves.get(&cluster).map_or(&[][..], Vec::as_slice);
                let Changes { create, withdraw } = decide(known, &wanted, now_of(desk));
                plan.withdraw.extend(withdraw.into_iter().map(|manifest| (id.clone(), cluster, manifest)));
                plan.create.extend(create.into_iter().map(|slot| (id.clone(), cluster, slot)));
            }
        }
        self.desks = desks;
        plan.create.sort_by_key(|(_, _, slot)| slot.run_after);
        plan
    }

    /// Everything that followed from what had changed is done.
    pub fn clean(&mut self) {
        self.changed.clear();
        for desk in self.desks.values_mut() {
            desk.dirty = Dirty::default();
        }
        self.desks.retain(|_, desk| !(matches!(desk.standing, Standing::Gone) && desk.shelves.is_empty()));
    }

    /// Whether nothing has changed.
    pub fn is_clean(&self) -> bool {
        self.changed.is_empty() && self.desks.values().all(|desk| desk.dirty.is_empty())
    }

    /// The clusters for which a schedule must be decided anew: those that are there, and those for which it has made
    /// something.
    fn dirty_of(&self, desk: &Desk) -> Vec<Uuid> {
        let concerned = |cluster: &Uuid| {
            self.seats.contains_key(cluster)
                || desk.shelves.contains_key(cluster)
                || desk.matched.contains(cluster)
        };
        match &desk.dirty {
            Dirty::All => {
                let gone = desk
                    .shelves
                    .keys()
                    .chain(&desk.matched)
                    .filter(|cluster| !self.seats.contains_key(cluster));
                let gone: HashSet<Uuid> = gone.copied().collect();
                self.seats.keys().copied().chain(gone).collect()
            }
            Dirty::Some(clusters) => {
                let also = self.changed.iter().filter(|cluster| !clusters.contains(cluster));
                clusters.iter().chain(also).filter(|cluster| concerned(cluster)).copied().collect()
            }
        }
    }

    fn wanted(&self, desk: &Desk, cluster: Uuid) -> Vec<Slot> {
        match (&desk.standing, &desk.horizon, self.seats.get(&cluster)) {
            (Standing::Live(rule), Some(horizon), Some(seat)) => rule.wanted(horizon, &seat.member),
            _ => Vec::new(),
        }
    }
}

/// The instant at which a schedule's periods were looked at; of one that is gone, none is too late to be withdrawn.
fn now_of(desk: &Desk) -> Timestamp {
    desk.horizon.as_ref().map_or(Timestamp::MIN, |horizon| horizon.now)
}
