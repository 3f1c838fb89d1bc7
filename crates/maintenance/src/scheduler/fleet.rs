//! The fleet in memory, and the changes that it requires. Nothing here reads a clock or a store.

use std::collections::{HashMap, HashSet};

use api::doc::{Cluster, Schedule, SubscriptionState};
use api::selector::Key;
use jiff::Timestamp;
use planner::schedule::{Changes, ManifestStatus, Member, Rule, Slot, decide};
use uuid::Uuid;

use super::schedule_record::{Dirty, RuleState, ScheduleRecord};

/// All clusters, schedules and their manifests, and what has changed since the last pass.
#[derive(Debug, Default)]
pub struct Fleet {
    clusters: HashMap<Uuid, FleetCluster>,
    /// Subscriptions by the uuid of their document, and their states.
    subscriptions: HashMap<Uuid, String>,
    states: HashMap<String, SubscriptionState>,
    /// Schedules by their id.
    pub(super) schedules_by_id: HashMap<String, ScheduleRecord>,
    /// Ids of schedules by the uuid of their document.
    schedules: HashMap<Uuid, String>,
    /// Schedule and cluster of each manifest.
    owners: HashMap<Uuid, (String, Uuid)>,
    /// Changed clusters.
    changed: HashSet<Uuid>,
    /// Deleted schedules whose manifests were kept.
    detached: HashSet<String>,
}

/// Cluster with its version and selector attributes.
#[derive(Debug)]
struct FleetCluster {
    cluster: Cluster,
    version: Option<String>,
    member: Member,
}

/// Changes that a pass writes. Withdrawals go first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManifestChanges {
    /// Manifests to withdraw: schedule, cluster, manifest.
    pub withdraw: Vec<(String, Uuid, Uuid)>,
    /// Manifests to create or restore: schedule, cluster, slot; ordered by time.
    pub create: Vec<(String, Uuid, Slot)>,
}

impl Fleet {
    /// Number of clusters.
    pub fn cluster_count(&self) -> usize {
        self.clusters.len()
    }

    /// Number of schedules.
    pub fn schedule_count(&self) -> usize {
        self.schedules.len()
    }

    /// Adds or replaces a cluster; an equal one changes nothing.
    pub fn put_cluster(&mut self, uuid: Uuid, cluster: Cluster) {
        let version = self.clusters.get(&uuid).and_then(|entry| entry.version.clone());
        self.insert_cluster(uuid, cluster, version);
    }

    /// Removes a cluster.
    pub fn remove_cluster(&mut self, uuid: Uuid) {
        if self.clusters.remove(&uuid).is_some() {
            self.changed.insert(uuid);
        }
    }

    /// Sets the last observed version of a cluster.
    pub fn put_version(&mut self, uuid: Uuid, version: Option<String>) {
        let Some(entry) = self.clusters.get(&uuid).filter(|entry| entry.version != version) else { return };
        self.insert_cluster(uuid, entry.cluster.clone(), version);
    }

    /// Sets the state of a subscription, or (with none) removes it.
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
        let affected: Vec<Uuid> = self
            .clusters
            .iter()
            .filter(|(_, entry)| ids.contains(&entry.member.subscription))
            .map(|(uuid, _)| *uuid)
            .collect();
        for uuid in affected {
            if let Some(entry) = self.clusters.get(&uuid) {
                self.insert_cluster(uuid, entry.cluster.clone(), entry.version.clone());
            }
        }
    }

    fn insert_cluster(&mut self, uuid: Uuid, cluster: Cluster, version: Option<String>) {
        let state = self.states.get(&cluster.subscription_id.to_lowercase()).copied();
        let member = Member::new(uuid, &cluster, state, version.as_deref());
        if self.clusters.get(&uuid).is_none_or(|entry| entry.member != member) {
            self.changed.insert(uuid);
        }
        self.clusters.insert(uuid, FleetCluster { cluster, version, member });
    }

    /// Adds or replaces a schedule that was last changed at `since`.
    pub fn put_schedule(&mut self, uuid: Uuid, schedule: &Schedule, since: Timestamp) {
        self.schedules.insert(uuid, schedule.id.clone());
        self.detached.remove(&schedule.id);
        let record = self.schedules_by_id.entry(schedule.id.clone()).or_default();
        let rule_state = match Rule::read(schedule, since) {
            Ok(rule) => RuleState::Valid(Box::new(rule)),
            Err(error) => RuleState::Invalid(format!("{}: {}", error.target, error.message)),
        };
        if let (RuleState::Valid(old), RuleState::Valid(new)) = (&record.rule_state, &rule_state)
            && old == new
        {
            return;
        }
        (record.rule_state, record.horizon, record.dirty) = (rule_state, None, Dirty::All);
    }

    /// Records a schedule whose document cannot be parsed.
    pub(super) fn put_invalid_schedule(&mut self, uuid: Uuid, id: &str, error: String) {
        self.schedules.insert(uuid, id.to_owned());
        let record = self.schedules_by_id.entry(id.to_owned()).or_default();
        (record.rule_state, record.horizon, record.dirty) = (RuleState::Invalid(error), None, Dirty::All);
    }

    /// Removes a schedule; returns its id.
    pub fn remove_schedule(&mut self, uuid: Uuid) -> Option<String> {
        let id = self.schedules.remove(&uuid)?;
        if let Some(record) = self.schedules_by_id.get_mut(&id) {
            (record.rule_state, record.horizon, record.dirty) = (RuleState::Deleted, None, Dirty::All);
        }
        Some(id)
    }

    /// Removes the manifests of a deleted schedule from the cache, so that they stay as they are.
    pub(super) fn detach(&mut self, id: &str) {
        if self.schedules_by_id.get(id).is_some_and(|record| matches!(record.rule_state, RuleState::Deleted))
        {
            self.schedules_by_id.remove(id);
            self.detached.insert(id.to_owned());
            self.owners.retain(|_, (owner, _)| owner != id);
        }
    }

    /// Ids of deleted schedules with manifests.
    pub(super) fn deleted_schedules(&self) -> Vec<String> {
        let deleted =
            self.schedules_by_id.iter().filter(|(_, record)| matches!(record.rule_state, RuleState::Deleted));
        deleted.map(|(id, _)| id.clone()).collect()
    }

    /// Sets the status of a manifest of a schedule.
    pub fn set_status(&mut self, schedule: &str, cluster: Uuid, manifest: Uuid, status: ManifestStatus) {
        if self.detached.contains(schedule) {
            return;
        }
        let record = self
            .schedules_by_id
            .entry(schedule.to_owned())
            .or_insert_with(|| ScheduleRecord { dirty: Dirty::All, ..ScheduleRecord::default() });
        if record.status(cluster, manifest) == Some(status) {
            return;
        }
        record.set_status(cluster, manifest, status);
        // A closed manifest needs no decision any more.
        if status != ManifestStatus::Closed {
            record.dirty.add(cluster);
        }
        self.owners.insert(manifest, (schedule.to_owned(), cluster));
    }

    /// Marks a schedule and cluster to be decided again.
    pub(super) fn mark_dirty(&mut self, schedule: &str, cluster: Uuid) {
        if let Some(record) = self.schedules_by_id.get_mut(schedule) {
            record.dirty.add(cluster);
        }
    }

    /// Cached status of a manifest; none if it has no schedule or is not cached.
    pub(super) fn status(&self, manifest: Uuid) -> Option<ManifestStatus> {
        let (schedule, cluster) = self.owners.get(&manifest)?;
        self.schedules_by_id.get(schedule)?.status(*cluster, manifest)
    }

    /// Schedule and cluster of a manifest.
    pub(super) fn owner(&self, manifest: Uuid) -> Option<(String, Uuid)> {
        self.owners.get(&manifest).cloned()
    }

    /// Start of the next period of any schedule.
    pub fn next_period(&self) -> Option<Timestamp> {
        self.schedules_by_id.values().filter_map(|record| record.horizon.as_ref()?.boundary).min()
    }

    /// Whether any schedule selects by version, which the feed does not report.
    pub(super) fn selects_by_version(&self) -> bool {
        self.schedules_by_id.values().any(|record| match &record.rule_state {
            RuleState::Valid(rule) => rule.selectors.uses(&Key::Version),
            RuleState::Invalid(_) | RuleState::Deleted => false,
        })
    }

    /// Uuids of all clusters.
    pub(super) fn cluster_ids(&self) -> Vec<Uuid> {
        self.clusters.keys().copied().collect()
    }

    /// Manifest of a slot with its budgets; none if the cluster or the schedule was deleted.
    pub(super) fn manifest(
        &self,
        schedule: &str,
        cluster: Uuid,
        slot: &Slot,
    ) -> Option<(api::doc::Manifest, Vec<String>)> {
        match &self.schedules_by_id.get(schedule)?.rule_state {
            RuleState::Valid(rule) => Some(rule.manifest(slot, &self.clusters.get(&cluster)?.member)),
            RuleState::Invalid(_) | RuleState::Deleted => None,
        }
    }

    /// Advances all periods to `now`. Must precede [`Fleet::unknown_manifests`] and [`Fleet::changes`].
    pub fn advance(&mut self, now: Timestamp) {
        for record in self.schedules_by_id.values_mut() {
            record.advance(now);
        }
    }

    /// Manifests of open periods without a cached status. It must be read, because such manifests are not created but, once
    /// withdrawn, are restored.
    pub fn unknown_manifests(&self) -> Vec<(String, Uuid, Uuid)> {
        let mut unknown = Vec::new();
        for (id, record) in &self.schedules_by_id {
            let Some(horizon) = &record.horizon else { continue };
            if horizon.periods.iter().all(|period| period.at > horizon.now) {
                continue;
            }
            for cluster in self.dirty_clusters(record) {
                let open = self.desired_slots(record, cluster).into_iter().filter(|slot| !slot.create);
                let open = open.filter(|slot| record.status(cluster, slot.id).is_none());
                unknown.extend(open.map(|slot| (id.clone(), cluster, slot.id)));
            }
        }
        unknown
    }

    /// Changes to write for everything that changed since [`Fleet::clear_changes`]. The result stays the same until the
    /// statuses are updated.
    pub fn changes(&mut self) -> ManifestChanges {
        let mut changes = ManifestChanges::default();
        let mut schedules_by_id = std::mem::take(&mut self.schedules_by_id);
        for (id, record) in &mut schedules_by_id {
            if matches!(record.rule_state, RuleState::Invalid(_)) {
                continue;
            }
            for cluster in self.dirty_clusters(record) {
                let selected = match (&record.rule_state, self.clusters.get(&cluster)) {
                    (RuleState::Valid(rule), Some(entry)) => rule.selects(&entry.member),
                    _ => false,
                };
                match selected {
                    true => record.matched.insert(cluster),
                    false => record.matched.remove(&cluster),
                };
                let desired = self.desired_slots(record, cluster);
                for forgotten in record.forget_obsolete(cluster, &desired) {
                    self.owners.remove(&forgotten);
                }
                let cached = record.manifests.get(&cluster).map_or(&[][..], Vec::as_slice);
                let Changes { create, withdraw } = decide(cached, &desired, horizon_now(record));
                changes.withdraw.extend(withdraw.into_iter().map(|manifest| (id.clone(), cluster, manifest)));
                changes.create.extend(create.into_iter().map(|slot| (id.clone(), cluster, slot)));
            }
        }
        self.schedules_by_id = schedules_by_id;
        changes.create.sort_by_key(|(_, _, slot)| slot.run_after);
        changes
    }

    /// Marks all changes as done.
    pub fn clear_changes(&mut self) {
        self.changed.clear();
        for record in self.schedules_by_id.values_mut() {
            record.dirty = Dirty::default();
        }
        self.schedules_by_id.retain(|_, record| {
            !(matches!(record.rule_state, RuleState::Deleted) && record.manifests.is_empty())
        });
    }

    /// Whether there are no changes.
    pub fn is_clean(&self) -> bool {
        self.changed.is_empty() && self.schedules_by_id.values().all(|record| record.dirty.is_empty())
    }

    /// Clusters for which a schedule must be decided: existing ones, and deleted ones with manifests of it.
    fn dirty_clusters(&self, record: &ScheduleRecord) -> Vec<Uuid> {
        let is_relevant = |cluster: &Uuid| {
            self.clusters.contains_key(cluster)
                || record.manifests.contains_key(cluster)
                || record.matched.contains(cluster)
        };
        match &record.dirty {
            Dirty::All => {
                let deleted = record
                    .manifests
                    .keys()
                    .chain(&record.matched)
                    .filter(|cluster| !self.clusters.contains_key(cluster));
                let deleted: HashSet<Uuid> = deleted.copied().collect();
                self.clusters.keys().copied().chain(deleted).collect()
            }
            Dirty::Some(clusters) => {
                let also = self.changed.iter().filter(|cluster| !clusters.contains(cluster));
                clusters.iter().chain(also).filter(|cluster| is_relevant(cluster)).copied().collect()
            }
        }
    }

    fn desired_slots(&self, record: &ScheduleRecord, cluster: Uuid) -> Vec<Slot> {
        match (&record.rule_state, &record.horizon, self.clusters.get(&cluster)) {
            (RuleState::Valid(rule), Some(horizon), Some(entry)) => {
                rule.desired_slots(horizon, &entry.member)
            }
            _ => Vec::new(),
        }
    }
}

/// Time of a schedule's horizon; of a deleted schedule the minimum, so that no manifest is too late to be withdrawn.
fn horizon_now(record: &ScheduleRecord) -> Timestamp {
    record.horizon.as_ref().map_or(Timestamp::MIN, |horizon| horizon.now)
}
