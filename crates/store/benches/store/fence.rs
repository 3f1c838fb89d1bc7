//! A killed holder: its work continues elsewhere soon, and its late writes are rejected.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::ensure;
use api::work::{Ending, WorkKind};
use serde_json::json;
use store::{
    AuditContext, CLAIM_MAX, ClaimedWork, Completion, CompletionOutcome, LEASE, NewWork, Release, Store,
    StoreError, TAKE_OVER_MAX, Transaction,
};
use uuid::Uuid;

use crate::environment::{Machine, Note, PATIENCE, Place, TestEnvironment};
use crate::slices::Plan;
use crate::table::Row;

/// Short, to keep the run short.
const SHORT_LEASE: Duration = Duration::from_secs(3);
/// Interval at which a service looks for work of lost holders.
const LOOK: Duration = Duration::from_secs(1);
/// Allowance of the goal beyond the lease.
const GRACE: Duration = Duration::from_secs(2);
const HOLDERS: usize = 7;
const STALE_WRITES: usize = 1000;

pub(crate) async fn fences(machine: &Machine, place: Place, _plan: Plan) -> anyhow::Result<Vec<Row>> {
    let env = TestEnvironment::new(machine, place, &[]).await?;
    let engine = place.name();
    let taken = resumed(&env, place).await?;
    let accepted = stale_writes(&env.store).await?;
    let faults = env.faults().await?;
    env.store.close().await;
    Ok(vec![
        Row::within(
            format!("{engine}: a killed holder's work resumes / lease"),
            taken,
            SHORT_LEASE,
            SHORT_LEASE + GRACE,
        ),
        Row::none_of(format!("{engine}: stale-fence writes accepted"), accepted, STALE_WRITES),
        Row::none_of(format!("{engine}: promises broken after that (store check)"), faults, STALE_WRITES),
    ])
}

/// Longest time from a holder's last activity until another has its work.
async fn resumed(env: &TestEnvironment, place: Place) -> anyhow::Result<Duration> {
    let lanes: Vec<NewWork> =
        (0..HOLDERS).map(|_| NewWork::new(Uuid::now_v7(), Uuid::new_v4(), WorkKind::Manifest)).collect();
    env.store.enqueue(lanes).await?;
    let mut last_seen = HashMap::new();
    for _ in 0..HOLDERS {
        let holder = match place {
            Place::Sqlite => env.store.clone(),
            Place::Postgres => env.another(1).await?,
        };
        let claimed = holder.claim_for(WorkKind::Manifest, 1, Uuid::new_v4(), SHORT_LEASE).await?;
        ensure!(claimed.len() == 1, "a holder found nothing to hold");
        last_seen.insert(claimed[0].lease.work, Instant::now());
        holder.checkpoint(claimed[0].lease, "half", json!({ "done": 1 })).await?;
        // Killed: nothing is released, nothing is closed.
        drop(holder);
        tokio::time::sleep(LOOK / 3).await;
    }
    let (me, started, mut longest) = (Uuid::new_v4(), Instant::now(), Duration::ZERO);
    while !last_seen.is_empty() {
        ensure!(started.elapsed() < PATIENCE, "work of lost holders was never taken over");
        for taken in env.store.take_over(WorkKind::Manifest, TAKE_OVER_MAX, me).await? {
            ensure!(
                taken.step.as_deref() == Some("half") && taken.taken_over,
                "it goes on behind its checkpoint"
            );
            if let Some(seen) = last_seen.remove(&taken.lease.work) {
                longest = longest.max(seen.elapsed());
            }
            let done = Completion::new(taken.lease, Ending::Completed, json!({}));
            ensure!(
                env.store.complete(&[done]).await? == [CompletionOutcome::Done],
                "its new holder could not end it"
            );
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(longest)
}

/// Number of accepted writes of holders that lost their leases.
async fn stale_writes(store: &Store) -> anyhow::Result<usize> {
    let work = |_| NewWork::new(Uuid::now_v7(), Uuid::new_v4(), WorkKind::Manifest);
    store.enqueue((0..STALE_WRITES).map(work).collect()).await?;
    let (old, new) = (Uuid::new_v4(), Uuid::new_v4());
    let mut lost: Vec<ClaimedWork> = Vec::new();
    while lost.len() < STALE_WRITES {
        let claimed = store.claim_for(WorkKind::Manifest, CLAIM_MAX, old, Duration::ZERO).await?;
        ensure!(!claimed.is_empty(), "only {} were claimed", lost.len());
        lost.extend(claimed);
    }
    let mut taken = 0;
    while taken < STALE_WRITES {
        let some = store.take_over_for(WorkKind::Manifest, TAKE_OVER_MAX, new, LEASE).await?;
        ensure!(!some.is_empty(), "only {taken} were taken over");
        taken += some.len();
    }
    let mut accepted = 0;
    for (number, ClaimedWork { lease, .. }) in lost.into_iter().enumerate() {
        let outcome = match number % 4 {
            0 => store.checkpoint(lease, "late", json!({})).await.map(drop),
            1 => {
                let completion = Completion::new(lease, Ending::Completed, json!({}));
                match store.complete(&[completion]).await?.as_slice() {
                    [CompletionOutcome::Lost] => continue,
                    _ => Ok(()),
                }
            }
            2 => store.release(Release::new(lease, Duration::ZERO, true)).await,
            _ => {
                let context = AuditContext::service("bench");
                let guarded =
                    Transaction::new().guard(lease).create(Uuid::now_v7(), &Note::new(number), &context)?;
                store.commit(guarded).await.map(drop)
            }
        };
        match outcome {
            Ok(()) => accepted += 1,
            Err(StoreError::LostLease { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(accepted)
}
