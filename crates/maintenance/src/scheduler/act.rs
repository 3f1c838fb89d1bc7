//! One pass: what has changed is decided, the differences are written, and what came of it is learnt.

use std::collections::HashMap;

use api::doc::{Manifest, WorkResult};
use planner::schedule::{ManifestStatus, Slot, Window};
use store::{AuditContext, EnsureOutcome, PAGE_MAX};
use uuid::Uuid;

use super::{Error, ManifestChanges, Scheduler};

/// So many manifests are written before the next look at whether we are still wanted.
const BLOCK: usize = 500;

/// A slot that is to be made, with the manifest that it becomes.
type Making = (String, Uuid, Slot, (Manifest, Vec<String>));

impl Scheduler {
    /// Makes the pending manifests be the wanted ones, as far as anything has changed. How much it wrote.
    pub(crate) async fn pass(&mut self) -> Result<(usize, usize), Error> {
        let begin = tokio::time::Instant::now();
        self.fleet.roll(self.deps.clock.now());
        if self.fleet.is_clean() {
            return Ok((0, 0));
        }
        self.look_up_unknown().await?;
        let ManifestChanges { withdraw, create } = self.fleet.plan();
        let cancelled = self.withdraw(withdraw).await?;
        let created = self.create(create).await?;
        self.tell().await?;
        self.fleet.clean();
        for (schedule, cluster) in std::mem::take(&mut self.again) {
            self.fleet.mark(&schedule, cluster);
        }
        self.deps.metrics.passed(&self.fleet, begin.elapsed());
        if created + cancelled > 0 {
            tracing::info!("A pass of the scheduler made {created} manifests and withdrew {cancelled}");
        }
        Ok((created, cancelled))
    }

    /// What became of manifests of open periods that we know nothing of.
    async fn look_up_unknown(&mut self) -> Result<(), Error> {
        let unknown = self.fleet.unknown();
        for block in unknown.chunks(PAGE_MAX) {
            let ids = block.iter().map(|(_, _, manifest)| *manifest).collect();
            let found = self.deps.store.works(ids).await?;
            self.learn(found).await?;
            for (schedule, cluster, manifest) in block {
                // Over, or never made, and not to be made any more.
                if self.fleet.known(*manifest).is_none() {
                    self.fleet.learn(schedule, *cluster, *manifest, ManifestStatus::Closed);
                }
            }
        }
        Ok(())
    }

    async fn withdraw(&mut self, withdraw: Vec<(String, Uuid, Uuid)>) -> Result<usize, Error> {
        let mut count = 0;
        for block in withdraw.chunks(BLOCK) {
            let ids: Vec<Uuid> = block.iter().map(|(_, _, manifest)| *manifest).collect();
            let gone = self.deps.store.manifests().withdraw(&ids, WorkResult::superseded(), &by()).await?;
            for (schedule, cluster, manifest) in block {
                // What was no longer pending has begun or ended meanwhile.
                let known =
                    if gone.contains(manifest) { ManifestStatus::Superseded } else { ManifestStatus::Closed };
                self.fleet.learn(schedule, *cluster, *manifest, known);
                if let Some(record) = self
                    .fleet
                    .schedules_by_id
                    .get_mut(schedule)
                    .filter(|_| known == ManifestStatus::Superseded)
                {
                    record.cancelled += 1;
                }
            }
            count += gone.len();
            self.deps.metrics.wrote(0, gone.len());
        }
        Ok(count)
    }

    async fn create(&mut self, create: Vec<(String, Uuid, Slot)>) -> Result<usize, Error> {
        let mut count = 0;
        for block in create.chunks(BLOCK) {
            let making: Vec<Making> = block
                .iter()
                .filter_map(|(schedule, cluster, slot)| {
                    let manifest = self.fleet.manifest(schedule, *cluster, slot)?;
                    Some((schedule.clone(), *cluster, *slot, manifest))
                })
                .collect();
            count += self.create_block(making).await?;
        }
        Ok(count)
    }

    async fn create_block(&mut self, making: Vec<Making>) -> Result<usize, Error> {
        let manifests: Vec<(Manifest, Vec<String>)> = making.iter().map(|(_, _, _, it)| it.clone()).collect();
        let ensured = self.deps.store.manifests().ensure(&manifests, &by()).await?;
        let (mut count, mut existed) = (0, HashMap::new());
        for ((schedule, cluster, slot, _), ensured) in making.into_iter().zip(ensured) {
            match ensured {
                EnsureOutcome::Created | EnsureOutcome::Revived => {
                    count += 1;
                    let known = ManifestStatus::Fresh(Window {
                        run_after: slot.run_after,
                        run_before: slot.run_before,
                        priority: slot.priority,
                        parameters: slot.parameters,
                    });
                    self.fleet.learn(&schedule, cluster, slot.id, known);
                    if let Some(record) = self.fleet.schedules_by_id.get_mut(&schedule) {
                        record.created += 1;
                    }
                }
                EnsureOutcome::Existed => {
                    existed.insert(slot.id, (schedule, cluster));
                }
            }
        }
        self.deps.metrics.wrote(count, 0);
        self.learn_of_existing(existed).await?;
        Ok(count)
    }

    /// Another scheduler made them, or they have begun or ended; in any case they are not ours to make.
    async fn learn_of_existing(&mut self, existed: HashMap<Uuid, (String, Uuid)>) -> Result<(), Error> {
        if existed.is_empty() {
            return Ok(());
        }
        let found = self.deps.store.works(existed.keys().copied().collect()).await?;
        self.learn(found).await?;
        for (manifest, (schedule, cluster)) in existed {
            match self.fleet.known(manifest) {
                None => self.fleet.learn(&schedule, cluster, manifest, ManifestStatus::Closed),
                // Withdrawn in this very moment, by another scheduler or at the end of the schedule.
                Some(ManifestStatus::Superseded) => self.again.push((schedule, cluster)),
                Some(ManifestStatus::Fresh(_) | ManifestStatus::Closed) => {}
            }
        }
        Ok(())
    }
}

/// In whose name the scheduler writes.
pub(super) fn by() -> AuditContext {
    AuditContext::service("scheduler")
}
