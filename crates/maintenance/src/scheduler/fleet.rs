//! The fleet in memory, and what follows from it. Nothing here reads a clock or a store.

use std::collections::{HashMap, HashSet};

use api::doc::{Cluster, Schedule, SubscriptionState};
use api::selector::Key;
use jiff::Timestamp;
use planner::schedule::{Changes, ManifestStatus, Member, Rule, Slot, decide};
use uuid::Uuid;

use super::schedule_record::{Dirty, RuleState, ScheduleRecord};

/// All clusters and schedules, what the schedules have made, and what has changed since the last pass.
#[derive(Debug, Default)]
pub struct Fleet {
    seats: HashMap<Uuid, Seat>,
    /// Subscriptions by the uuid of their document, and their states.
    subscriptions: HashMap<Uuid, String>,
    states: HashMap<String, SubscriptionState>,
    /// Schedules by their id.
    pub(super) schedules_by_id: HashMap<String, ScheduleRecord>,
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
pub struct ManifestChanges {
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
        let member = Member::new(uuid, &cluster, state, version.as_deref());
        if self.seats.get(&uuid).is_none_or(|seat| seat.member != member) {
            self.changed.insert(uuid);
        }
        self.seats.insert(uuid, Seat { cluster, version, member });
    }

    /// A schedule is as this since `since`.
    pub fn put_schedule(&mut self, uuid: Uuid, schedule: &Schedule, since: Timestamp) {
        self.schedules.insert(uuid, schedule.id.clone());
        self.kept.remove(&schedule.id);
        let record = self.schedules_by_id.entry(schedule.id.clone()).or_default();
        let rule_state = match Rule::read(schedule, since) {
            Ok(rule) => RuleState::Valid(Box::new(rule)),
            Err(refusal) => RuleState::Invalid(format!("{}: {}", refusal.target, refusal.message)),
        };
        if let (RuleState::Valid(old), RuleState::Valid(new)) = (&record.rule_state, &rule_state)
            && old == new
        {
            return;
        }
        (record.rule_state, record.horizon, record.dirty) = (rule_state, None, Dirty::All);
    }

    /// A schedule whose document cannot be read.
    pub(super) fn put_broken_schedule(&mut self, uuid: Uuid, id: &str, why: String) {
        self.schedules.insert(uuid, id.to_owned());
        let record = self.schedules_by_id.entry(id.to_owned()).or_default();
        (record.rule_state, record.horizon, record.dirty) = (RuleState::Invalid(why), None, Dirty::All);
    }

    /// A schedule is no longer there; its id, if it was.
    pub fn drop_schedule(&mut self, uuid: Uuid) -> Option<String> {
        let id = self.schedules.remove(&uuid)?;
        if let Some(record) = self.schedules_by_id.get_mut(&id) {
            (record.rule_state, record.horizon, record.dirty) = (RuleState::Deleted, None, Dirty::All);
        }
        Some(id)
    }

    /// Forgets what a schedule that is gone has made: it stays as it is.
    pub(super) fn let_go(&mut self, id: &str) {
        if self.schedules_by_id.get(id).is_some_and(|record| matches!(record.rule_state, RuleState::Deleted))
        {
            self.schedules_by_id.remove(id);
            self.kept.insert(id.to_owned());
            self.owners.retain(|_, (owner, _)| owner != id);
        }
    }

    /// The ids of schedules that are not there but have made something.
    pub(super) fn gone(&self) -> Vec<String> {
        let gone =
            self.schedules_by_id.iter().filter(|(_, record)| matches!(record.rule_state, RuleState::Deleted));
        gone.map(|(id, _)| id.clone()).collect()
    }

    /// What is known of a manifest that a schedule has made.
    pub fn learn(&mut self, schedule: &str, cluster: Uuid, manifest: Uuid, known: ManifestStatus) {
        if self.kept.contains(schedule) {
            return;
        }
        let record = self
            .schedules_by_id
            .entry(schedule.to_owned())
            .or_insert_with(|| ScheduleRecord { dirty: Dirty::All, ..ScheduleRecord::default() });
        if record.known(cluster, manifest) == Some(known) {
            return;
        }
        record.learn(cluster, manifest, known);
        // What is taken is nobody's business any more; all else may want a decision.
        if known != ManifestStatus::Closed {
            record.dirty.add(cluster);
        }
        self.owners.insert(manifest, (schedule.to_owned(), cluster));
    }

    /// Decides a schedule once more for a cluster.
    pub(super) fn mark(&mut self, schedule: &str, cluster: Uuid) {
        if let Some(record) = self.schedules_by_id.get_mut(schedule) {
            record.dirty.add(cluster);
        }
    }

    /// What is known of a manifest; none when it is none of a schedule's, or is forgotten.
    pub(super) fn known(&self, manifest: Uuid) -> Option<ManifestStatus> {
        let (schedule, cluster) = self.owners.get(&manifest)?;
        self.schedules_by_id.get(schedule)?.known(*cluster, manifest)
    }

    /// The schedule and the cluster of a manifest.
    pub(super) fn owner(&self, manifest: Uuid) -> Option<(String, Uuid)> {
        self.owners.get(&manifest).cloned()
    }

    /// When the next period of any schedule begins.
    pub fn boundary(&self) -> Option<Timestamp> {
        self.schedules_by_id.values().filter_map(|record| record.horizon.as_ref()?.boundary).min()
    }

    /// Whether any schedule asks for the clusters' versions, which the feed does not tell.
    pub(super) fn asks_for_versions(&self) -> bool {
        self.schedules_by_id.values().any(|record| match &record.rule_state {
            RuleState::Valid(rule) => rule.selectors.uses(&Key::Version),
            RuleState::Invalid(_) | RuleState::Deleted => false,
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
        match &self.schedules_by_id.get(schedule)?.rule_state {
            RuleState::Valid(rule) => Some(rule.manifest(slot, &self.seats.get(&cluster)?.member)),
            RuleState::Invalid(_) | RuleState::Deleted => None,
        }
    }

    /// Brings all periods up to `now`. To be called before what follows.
    pub fn roll(&mut self, now: Timestamp) {
        for record in self.schedules_by_id.values_mut() {
            record.roll(now);
        }
    }

    /// Manifests of open periods of which nothing is known: whether they are there must be looked up, because they are
    /// not made but, once withdrawn, come back.
    pub fn unknown(&self) -> Vec<(String, Uuid, Uuid)> {
        let mut unknown = Vec::new();
        for (id, record) in &self.schedules_by_id {
            let Some(horizon) = &record.horizon else { continue };
            if horizon.periods.iter().all(|period| period.at > horizon.now) {
                continue;
            }
            for cluster in self.dirty_of(record) {
                let kept = self.wanted(record, cluster).into_iter().filter(|slot| !slot.create);
                let kept = kept.filter(|slot| record.known(cluster, slot.id).is_none());
                unknown.extend(kept.map(|slot| (id.clone(), cluster, slot.id)));
            }
        }
        unknown
    }

    /// What must be written now, for all that has changed since [`Fleet::clean`]. It stays so until it is done and
    /// learnt.
    pub fn plan(&mut self) -> ManifestChanges {
        let mut plan = ManifestChanges::default();
        let mut schedules_by_id = std::mem::take(&mut self.schedules_by_id);
        for (id, record) in &mut schedules_by_id {
            if matches!(record.rule_state, RuleState::Invalid(_)) {
                continue;
            }
            for cluster in self.dirty_of(record) {
                let selected = match (&record.rule_state, self.seats.get(&cluster)) {
                    (RuleState::Valid(rule), Some(seat)) => rule.selects(&seat.member),
                    _ => false,
                };
                match selected {
                    true => record.matched.insert(cluster),
                    false => record.matched.remove(&cluster),
                };
                let wanted = self.wanted(record, cluster);
                for forgotten in record.tidy(cluster, &wanted) {
                    self.owners.remove(&forgotten);
                }
                let known = record.manifests.get(&cluster).map_or(&[][..], Vec::as_slice);
                let Changes { create, withdraw } = decide(known, &wanted, now_of(record));
                plan.withdraw.extend(withdraw.into_iter().map(|manifest| (id.clone(), cluster, manifest)));
                plan.create.extend(create.into_iter().map(|slot| (id.clone(), cluster, slot)));
            }
        }
        self.schedules_by_id = schedules_by_id;
        plan.create.sort_by_key(|(_, _, slot)| slot.run_after);
        plan
    }

    /// Everything that followed from what had changed is done.
    pub fn clean(&mut self) {
        self.changed.clear();
        for record in self.schedules_by_id.values_mut() {
            record.dirty = Dirty::default();
        }
        self.schedules_by_id.retain(|_, record| {
            !(matches!(record.rule_state, RuleState::Deleted) && record.manifests.is_empty())
        });
    }

    /// Whether nothing has changed.
    pub fn is_clean(&self) -> bool {
        self.changed.is_empty() && self.schedules_by_id.values().all(|record| record.dirty.is_empty())
    }

    /// The clusters for which a schedule must be decided anew: those that are there, and those for which it has made
    /// something.
    fn dirty_of(&self, record: &ScheduleRecord) -> Vec<Uuid> {
        let concerned = |cluster: &Uuid| {
            self.seats.contains_key(cluster)
                || record.manifests.contains_key(cluster)
                || record.matched.contains(cluster)
        };
        match &record.dirty {
            Dirty::All => {
                let gone = record
                    .manifests
                    .keys()
                    .chain(&record.matched)
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

    fn wanted(&self, record: &ScheduleRecord, cluster: Uuid) -> Vec<Slot> {
        match (&record.rule_state, &record.horizon, self.seats.get(&cluster)) {
            (RuleState::Valid(rule), Some(horizon), Some(seat)) => rule.wanted(horizon, &seat.member),
            _ => Vec::new(),
        }
    }
}

/// The instant at which a schedule's periods were looked at; of one that is gone, none is too late to be withdrawn.
fn now_of(record: &ScheduleRecord) -> Timestamp {
    record.horizon.as_ref().map_or(Timestamp::MIN, |horizon| horizon.now)
}
