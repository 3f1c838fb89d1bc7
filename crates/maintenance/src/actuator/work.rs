//! One manifest in this actuator's hands, from its claim to the write of how it ended.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use api::doc::ResultCode;
use api::work::Ending;
use futures_util::FutureExt as _;
use jiff::Timestamp;
use steps::crew::Written;
use steps::engine::{
    ATTEMPTS_MAX, Control, Ended, Journal, Order, Refusal, StepError, WaitingCode, refuse, run,
};
use store::{ClaimedWork, CompletionOutcome, WorkSummary};
use tokio::time::Instant;
use uuid::Uuid;

use super::crew::{ACTOR, Crew};
use super::{Errand, Ready, Tasks, scout};

/// Works one manifest and writes how that ended.
pub(super) async fn one<T: Tasks>(
    crew: &Crew<T>,
    mut claimed: ClaimedWork,
    control: Control,
    facts: WorkSummary,
) {
    let running = crew.metrics.running();
    let begun = Instant::now();
    loop {
        let (task, ended) = walk(crew, &claimed, &control, &facts).await;
        match ended {
            Ended::Finished(completion) => {
                // While its end is written another may be at work in its place.
                drop(running);
                let (ending, code) = (completion.ending, completion.result.code.clone());
                let left_behind = completion.result.undo_failed.is_some();
                match crew.hands.write_end(&control, completion).await {
                    Some(CompletionOutcome::Done) => {
                        crew.metrics.ended(&task, ending, claimed.attempt, begun.elapsed());
                        if left_behind {
                            crew.metrics.undo_failed.inc();
                        }
                        after_end(crew, &facts, ending, code.as_ref(), begun.elapsed()).await;
                    }
                    Some(CompletionOutcome::Lost) | None => drop(crew.metrics.lost.inc()),
                }
            }
            Ended::HandedBack { yielding, why } => match crew.hands.hand_back(&control, &yielding).await {
                Written::Done => {
                    crew.metrics.handed_back(why);
                    if why == WaitingCode::Unreachable {
                        Box::pin(scout::unreachable(crew, &facts, &yielding)).await;
                    }
                }
                Written::Refused => {
                    // Somebody asked for its end before it was given back: it goes on, from what it would have left, to
                    // that end.
                    control.cancel.cancel();
                    claimed.checkpoint = yielding.checkpoint.map(|(_, data)| data);
                    continue;
                }
                Written::Lost => drop(crew.metrics.lost.inc()),
            },
            Ended::Lost => drop(crew.metrics.lost.inc()),
        }
        return;
    }
}

/// Walks the manifest's plan; the name of its task, and how that ended.
async fn walk<T: Tasks>(
    crew: &Crew<T>,
    claimed: &ClaimedWork,
    control: &Control,
    facts: &WorkSummary,
) -> (String, Ended) {
    let journal = Journal::read(claimed.checkpoint.as_ref());
    let unknown = || "unknown".to_owned();
    let refused = async |journal, refusal: Refusal| {
        // Put aside, as all that seldom happens: a run that goes well does not carry the room for it about.
        Box::pin(refuse(&crew.store, claimed, journal, control.clone(), crew.clock.clone(), ACTOR, &refusal))
            .await
    };
    let gone = |code: ResultCode, message: &str| Refusal::Withdrawn { code, message: message.to_owned() };
    let Some(manifest) = &facts.manifest else {
        // Nobody knows what it was to do; what it did may have to be put in order by hand.
        let refusal = match journal.has_begun() {
            true => Refusal::Error(StepError::terminal(ResultCode::MANIFEST_GONE, "the manifest is gone")),
            false => gone(ResultCode::MANIFEST_GONE, "the manifest is gone"),
        };
        return (unknown(), refused(journal, refusal).await);
    };
    let Some(cluster) = &facts.cluster else {
        return (unknown(), refused(journal, gone(ResultCode::CLUSTER_GONE, "the cluster is gone")).await);
    };
    if claimed.first && claimed.run_after > Timestamp::UNIX_EPOCH {
        crew.metrics.lag(claimed.claimed_at.duration_since(claimed.run_after));
    }
    let version = facts.health.as_ref().and_then(|it| it.details.version.as_deref());
    let errand =
        Errand { manifest, cluster: claimed.lease.lane, document: cluster, version, journal: &journal };
    let ready = AssertUnwindSafe(crew.tasks.ready(errand)).catch_unwind();
    let ready = tokio::select! {
        biased;
        () = control.lost.cancelled() => return (unknown(), Ended::Lost),
        ready = ready => ready,
    };
    let panicked = |_| Err(StepError::terminal(ResultCode::PANIC, "making the task's plan panicked"));
    let Ready { task, version, definition, plan, context } = match ready.unwrap_or_else(panicked) {
        Ok(ready) => ready,
        Err(error) => return (unknown(), refused(journal, Refusal::Error(error)).await),
    };
    let mut journal = journal;
    if journal.plan.is_none() && journal.done.is_empty() {
        journal.task_version = version;
        journal.plan = definition;
    }
    let order = Order {
        store: &crew.store,
        claimed,
        plan: &plan,
        context,
        journal,
        control: control.clone(),
        clock: crew.clock.clone(),
        actor: ACTOR,
        attempts_max: ATTEMPTS_MAX,
    };
    (task, run(order).await)
}

/// What an end teaches: how long its task takes, that it panics, that its cluster answers again.
async fn after_end<T: Tasks>(
    crew: &Crew<T>,
    facts: &WorkSummary,
    ending: Ending,
    code: Option<&ResultCode>,
    took: Duration,
) {
    let Some(manifest) = &facts.manifest else { return };
    match ending {
        Ending::Completed => crew.durations.note(manifest.task_id, took),
        Ending::Failed if code == Some(&ResultCode::PANIC) => Box::pin(crew.broken(manifest.task_id)).await,
        Ending::Failed | Ending::RetriesExceeded | Ending::Cancelled => {}
    }
    // However it ended, its steps may have met a cluster that answers again.
    let unreachable = facts.health.as_ref().is_some_and(|it| !it.reachable);
    if let Some(cluster) = facts.cluster.as_ref().filter(|_| unreachable) {
        Box::pin(scout::look(crew, manifest.cluster, cluster)).await;
    }
}

impl<T> Crew<T> {
    async fn broken(&self, task: Uuid) {
        self.breaker.panicked(&self.store, task, Instant::now()).await;
    }
}
