//! When the queue is looked at, and what is started.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::doc::{Cluster, Document as _, Manifest};
use api::work::WorkKind;
use serde::Deserialize as _;
use steps::engine::Control;
use store::{CLAIM_MAX, Claimed, HealthSample, SAFETY_POLL, StoreError, Topic};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Tasks;
use super::crew::Crew;
use super::work::{Facts, one};

/// After the store failed, the queue is looked at again soon.
const AGAIN: Duration = Duration::from_secs(1);
/// So long after a shutdown began, steps that have not come to an end are dropped.
const HALT_AFTER: Duration = Duration::from_secs(24);
/// So long after that, everything is.
const GIVE_UP_AFTER: Duration = Duration::from_secs(4);
/// So often a batch that was claimed is read, before its leases are left to run out.
const READS_MAX: u32 = 6;

/// Works manifests until it is told to stop, and then until all are handed back.
pub(super) async fn work<T: Tasks>(crew: &Arc<Crew<T>>, shutdown: &CancellationToken) {
    let timing = crew.config.timing;
    let mut runs: JoinSet<()> = JoinSet::new();
    let mut bell = crew.store.wakeups(Topic::Work(WorkKind::Manifest));
    let mut look_at = Instant::now();
    let mut take_over_at = Instant::now() + crew.pace.between(Duration::ZERO, timing.take_over);
    loop {
        let free = crew.free() > 0;
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = runs.join_next() => tell_panic(ended),
            () = sleep_until(take_over_at) => {
                take_over_at = Instant::now() + crew.pace.between(timing.take_over, timing.take_over * 2);
                take_over(crew, &mut runs).await;
            }
            () = crew.holds.freed.notified() => look_at = look(crew, &mut runs).await,
            () = bell.next(), if free => look_at = look(crew, &mut runs).await,
            () = sleep_until(look_at), if free => look_at = look(crew, &mut runs).await,
        }
    }
    hand_back(crew, runs).await;
}

/// Claims what is due, as long as there are slots; when to look again.
async fn look<T: Tasks>(crew: &Arc<Crew<T>>, runs: &mut JoinSet<()>) -> Instant {
    let lease = crew.config.timing.lease;
    loop {
        let wanted = crew.free().min(CLAIM_MAX);
        if wanted == 0 {
            return Instant::now() + SAFETY_POLL;
        }
        let asked = Instant::now();
        match crew.store.claim_for(WorkKind::Manifest, wanted, crew.owner, lease).await {
            Ok(claimed) => {
                let got = claimed.len();
                start(crew, runs, claimed, asked).await;
                if got == wanted {
                    continue;
                }
            }
            Err(error) => return after_failure(&error),
        }
        let poll = crew.pace.between(SAFETY_POLL.mul_f64(0.8), SAFETY_POLL);
        return match crew.store.until_due(WorkKind::Manifest).await {
            Ok(due) => Instant::now() + due.unwrap_or(poll).min(poll),
            Err(error) => after_failure(&error),
        };
    }
}

async fn take_over<T: Tasks>(crew: &Arc<Crew<T>>, runs: &mut JoinSet<()>) {
    let free = crew.free();
    if free == 0 {
        return;
    }
    let asked = Instant::now();
    match crew.store.take_over_for(WorkKind::Manifest, free, crew.owner, crew.config.timing.lease).await {
        Ok(taken) => {
            crew.metrics.taken_over.inc_by(taken.len() as u64);
            start(crew, runs, taken, asked).await;
        }
        Err(error) => drop(after_failure(&error)),
    }
}

fn after_failure(error: &StoreError) -> Instant {
    tracing::warn!(error = error as &dyn std::error::Error, "The queue was not looked at");
    Instant::now() + AGAIN
}

/// Starts what was claimed: all of it is read together, and each runs by itself.
async fn start<T: Tasks>(crew: &Arc<Crew<T>>, runs: &mut JoinSet<()>, claimed: Vec<Claimed>, asked: Instant) {
    if claimed.is_empty() {
        return;
    }
    // Held before anything is waited for, so that the heartbeat knows of them.
    let held: Vec<(Claimed, Control)> =
        claimed.into_iter().map(|it| (it.clone(), crew.holds.take(it.hold, asked))).collect();
    let mut pause = Duration::from_millis(50);
    for read in 1..=READS_MAX {
        match Batch::read(crew, &held).await {
            Ok(mut batch) => {
                for (claimed, control) in held {
                    let facts = batch.facts(&claimed);
                    runs.spawn(one(crew.clone(), claimed, control, facts));
                }
                return;
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "{} claimed manifests were not read",
                held.len()
            ),
        }
        if read < READS_MAX {
            sleep(pause).await;
            pause *= 2;
        }
    }
    // Nothing of them was begun; whoever takes them over has more luck.
    crew.holds.release(held.iter().map(|(claimed, _)| claimed.hold));
}

/// What a batch of claimed work is about, read together.
struct Batch {
    manifests: HashMap<Uuid, Manifest>,
    clusters: HashMap<Uuid, Cluster>,
    health: HashMap<Uuid, HealthSample>,
}

impl Batch {
    async fn read<T>(crew: &Crew<T>, held: &[(Claimed, Control)]) -> Result<Batch, StoreError> {
        let lanes: Vec<Uuid> = held.iter().map(|(claimed, _)| claimed.hold.lane).collect();
        let works = held.iter().map(|(claimed, _)| claimed.hold.work);
        let documents = crew.store.get_many(works.chain(lanes.iter().copied()).collect());
        let (documents, health) = tokio::try_join!(documents, crew.store.health(lanes))?;
        let mut batch = Batch {
            manifests: HashMap::new(),
            clusters: HashMap::new(),
            health: health.into_iter().map(|it| (it.cluster, it)).collect(),
        };
        for stored in documents {
            // A document that this release does not understand is as one that is not there; its reader says so.
            if stored.kind == Manifest::KIND {
                batch.manifests.extend(Manifest::deserialize(&stored.body).ok().map(|it| (stored.uuid, it)));
            } else if stored.kind == Cluster::KIND {
                batch.clusters.extend(Cluster::deserialize(&stored.body).ok().map(|it| (stored.uuid, it)));
            }
        }
        Ok(batch)
    }

    fn facts(&mut self, claimed: &Claimed) -> Facts {
        Facts {
            manifest: self.manifests.remove(&claimed.hold.work),
            cluster: self.clusters.remove(&claimed.hold.lane),
            health: self.health.remove(&claimed.hold.lane),
        }
    }
}

/// Asks every run to hand back at its next safe point, and drops those that do not come to one in time.
async fn hand_back<T>(crew: &Crew<T>, mut runs: JoinSet<()>) {
    crew.holds.pull(|control| control.shutdown.cancel());
    let halt_at = Instant::now() + HALT_AFTER;
    let give_up_at = halt_at + GIVE_UP_AFTER;
    let mut halted = false;
    loop {
        tokio::select! {
            biased;
            ended = runs.join_next() => match ended {
                Some(ended) => tell_panic(ended),
                None => return,
            },
            () = sleep_until(halt_at), if !halted => {
                halted = true;
                crew.holds.pull(|control| control.halt.cancel());
            }
            () = sleep_until(give_up_at) => {
                tracing::error!("{} manifests could not be handed back; their leases run out", runs.len());
                runs.shutdown().await;
                return;
            }
        }
    }
}

fn tell_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "A manifest's run ended in a panic outside its steps"
        );
    }
}
