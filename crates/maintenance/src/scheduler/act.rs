//! One pass: decides what changed, writes the differences and updates the cache.

use std::collections::HashMap;

use api::doc::{Manifest, WorkResult};
use planner::schedule::{ManifestStatus, Slot, Window};
use store::{AuditContext, EnsureOutcome, PAGE_MAX};
use uuid::Uuid;

use super::{Error, ManifestChanges, Scheduler};

/// Manifests per transaction; the pass can be cancelled between two transactions.
const BATCH: usize = 500;

/// Schedule, cluster and slot of a manifest to create, with the manifest and its budgets.
type NewManifest = (String, Uuid, Slot, (Manifest, Vec<String>));

impl Scheduler {
    /// Reconciles the pending manifests with the schedules. Returns the numbers of created and withdrawn manifests.
    pub(crate) async fn pass(&mut self) -> Result<(usize, usize), Error> {
        let started = tokio::time::Instant::now();
        self.fleet.advance(self.deps.clock.now());
        if self.fleet.is_clean() {
            return Ok((0, 0));
        }
        self.look_up_unknown().await?;
        let ManifestChanges { withdraw, create } = self.fleet.changes();
        let cancelled = self.withdraw(withdraw).await?;
        let created = self.create(create).await?;
        self.publish_status().await?;
        self.fleet.clear_changes();
        for (schedule, cluster) in std::mem::take(&mut self.retry) {
            self.fleet.mark_dirty(&schedule, cluster);
        }
        self.deps.metrics.pass_completed(&self.fleet, started.elapsed());
        if created + cancelled > 0 {
            tracing::info!("Scheduler created {created} and withdrew {cancelled} manifests");
        }
        Ok((created, cancelled))
    }

    /// Reads the status of manifests of open periods that are not cached.
    async fn look_up_unknown(&mut self) -> Result<(), Error> {
        let unknown = self.fleet.unknown_manifests();
        for block in unknown.chunks(PAGE_MAX) {
            let ids = block.iter().map(|(_, _, manifest)| *manifest).collect();
            let found = self.deps.store.works(ids).await?;
            self.update_statuses(found).await?;
            for (schedule, cluster, manifest) in block {
                // Completed, or never created; the slot of an open period is not created any more.
                if self.fleet.status(*manifest).is_none() {
                    self.fleet.set_status(schedule, *cluster, *manifest, ManifestStatus::Closed);
                }
            }
        }
        Ok(())
    }

    async fn withdraw(&mut self, withdraw: Vec<(String, Uuid, Uuid)>) -> Result<usize, Error> {
        let mut count = 0;
        for block in withdraw.chunks(BATCH) {
            let ids: Vec<Uuid> = block.iter().map(|(_, _, manifest)| *manifest).collect();
            let withdrawn = self
                .deps
                .store
                .manifests()
                .withdraw(&ids, WorkResult::superseded(), &audit_context())
                .await?;
            for (schedule, cluster, manifest) in block {
                // A manifest that was no longer pending has started or completed meanwhile.
                let status = if withdrawn.contains(manifest) {
                    ManifestStatus::Superseded
                } else {
                    ManifestStatus::Closed
                };
                self.fleet.set_status(schedule, *cluster, *manifest, status);
                if let Some(record) = self
                    .fleet
                    .schedules_by_id
                    .get_mut(schedule)
                    .filter(|_| status == ManifestStatus::Superseded)
                {
                    record.cancelled += 1;
                }
            }
            count += withdrawn.len();
            self.deps.metrics.changed(0, withdrawn.len());
        }
        Ok(count)
    }

    async fn create(&mut self, create: Vec<(String, Uuid, Slot)>) -> Result<usize, Error> {
        let mut count = 0;
        for block in create.chunks(BATCH) {
            let new_manifests: Vec<NewManifest> = block
                .iter()
                .filter_map(|(schedule, cluster, slot)| {
                    let manifest = self.fleet.manifest(schedule, *cluster, slot)?;
                    Some((schedule.clone(), *cluster, *slot, manifest))
                })
                .collect();
            count += self.create_block(new_manifests).await?;
        }
        Ok(count)
    }

    async fn create_block(&mut self, new_manifests: Vec<NewManifest>) -> Result<usize, Error> {
        let manifests: Vec<(Manifest, Vec<String>)> =
            new_manifests.iter().map(|(_, _, _, it)| it.clone()).collect();
        let ensured = self.deps.store.manifests().ensure(&manifests, &audit_context()).await?;
        let (mut count, mut existed) = (0, HashMap::new());
        for ((schedule, cluster, slot, _), ensured) in new_manifests.into_iter().zip(ensured) {
            match ensured {
                EnsureOutcome::Created | EnsureOutcome::Revived => {
                    count += 1;
                    let status = ManifestStatus::Fresh(Window {
                        run_after: slot.run_after,
                        run_before: slot.run_before,
                        priority: slot.priority,
                        parameters: slot.parameters,
                    });
                    self.fleet.set_status(&schedule, cluster, slot.id, status);
                    if let Some(record) = self.fleet.schedules_by_id.get_mut(&schedule) {
                        record.created += 1;
                    }
                }
                EnsureOutcome::Existed => {
                    existed.insert(slot.id, (schedule, cluster));
                }
            }
        }
        self.deps.metrics.changed(count, 0);
        self.update_existing(existed).await?;
        Ok(count)
    }

    /// Caches the status of manifests that existed: created by another scheduler, started or completed.
    async fn update_existing(&mut self, existed: HashMap<Uuid, (String, Uuid)>) -> Result<(), Error> {
        if existed.is_empty() {
            return Ok(());
        }
        let found = self.deps.store.works(existed.keys().copied().collect()).await?;
        self.update_statuses(found).await?;
        for (manifest, (schedule, cluster)) in existed {
            match self.fleet.status(manifest) {
                None => self.fleet.set_status(&schedule, cluster, manifest, ManifestStatus::Closed),
                // Withdrawn concurrently, by another scheduler or by the deletion of the schedule.
                Some(ManifestStatus::Superseded) => self.retry.push((schedule, cluster)),
                Some(ManifestStatus::Fresh(_) | ManifestStatus::Closed) => {}
            }
        }
        Ok(())
    }
}

/// Audit context of the scheduler.
pub(super) fn audit_context() -> AuditContext {
    AuditContext::service("scheduler")
}
