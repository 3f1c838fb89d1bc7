//! The run of one manifest, from its claim to its completion.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use api::doc::ResultCode;
use api::work::Ending;
use futures_util::FutureExt as _;
use jiff::Timestamp;
use steps::engine::{
    ATTEMPTS_MAX, Journal, PlanError, RunOutcome, RunRequest, StepError, finish_without_plan, run,
};
use steps::worker::Attempt;
use store::{Completion, CompletionOutcome, WorkSummary};
use tokio::time::Instant;
use uuid::Uuid;

use super::crew::{ACTOR, Crew};
use super::{Assignment, PreparedTask, Tasks, reachability};

/// What is known of a manifest, and the name of its task once that is known.
#[derive(Debug)]
pub(super) struct ManifestFacts {
    pub(super) brief: WorkSummary,
    pub(super) task: String,
}

impl ManifestFacts {
    pub(super) fn new(brief: WorkSummary) -> ManifestFacts {
        ManifestFacts { brief, task: "unknown".to_owned() }
    }
}

/// Writes the completion of a manifest and counts it. Returns whether it is written.
pub(super) async fn complete<T: Tasks>(
    crew: &Crew<T>,
    attempt: &Attempt,
    facts: &ManifestFacts,
    completion: Completion,
) -> bool {
    let (ending, code) = (completion.ending, completion.result.code.clone());
    let is_undo_failed = completion.result.undo_failed.is_some();
    if crew.pool.complete(&attempt.control, completion).await != Some(CompletionOutcome::Done) {
        return false;
    }
    let took = attempt.started.elapsed();
    crew.metrics.ended(&facts.task, ending, attempt.claimed.attempt, took);
    if is_undo_failed {
        crew.metrics.undo_failed.inc();
    }
    after_end(crew, &facts.brief, ending, code.as_ref(), took).await;
    true
}

/// Runs the plan of a manifest from its last checkpoint.
pub(super) async fn run_plan<T: Tasks>(
    crew: &Crew<T>,
    attempt: &Attempt,
    facts: &mut ManifestFacts,
) -> RunOutcome {
    let _running = crew.metrics.running();
    let Attempt { claimed, control, .. } = attempt;
    let ManifestFacts { brief: facts, task: task_name } = facts;
    let journal = Journal::read(claimed.checkpoint.as_ref());
    let refused = async |journal, refusal: PlanError| {
        // Put aside, as all that seldom happens: a run that goes well does not carry the room for it about.
        Box::pin(finish_without_plan(
            &crew.store,
            claimed,
            journal,
            control.clone(),
            crew.clock.clone(),
            ACTOR,
            &refusal,
        ))
        .await
    };
    let gone = |code: ResultCode, message: &str| PlanError::Gone { code, message: message.to_owned() };
    let Some(manifest) = &facts.manifest else {
        // Nobody knows what it was to do; what it did may have to be put in order by hand.
        let refusal = match journal.has_begun() {
            true => PlanError::Step(StepError::terminal(ResultCode::MANIFEST_GONE, "the manifest is gone")),
            false => gone(ResultCode::MANIFEST_GONE, "the manifest is gone"),
        };
        return refused(journal, refusal).await;
    };
    let Some(cluster) = &facts.cluster else {
        return refused(journal, gone(ResultCode::CLUSTER_GONE, "the cluster is gone")).await;
    };
    if claimed.first && claimed.run_after > Timestamp::UNIX_EPOCH {
        crew.metrics.lag(claimed.claimed_at.duration_since(claimed.run_after));
    }
    let version = facts.health.as_ref().and_then(|it| it.details.version.as_deref());
    let assignment =
        Assignment { manifest, cluster: claimed.lease.lane, document: cluster, version, journal: &journal };
    let ready = AssertUnwindSafe(crew.tasks.ready(assignment)).catch_unwind();
    let ready = tokio::select! {
        biased;
        () = control.lost.cancelled() => return RunOutcome::LeaseLost,
        ready = ready => ready,
    };
    let panicked = |_| Err(StepError::terminal(ResultCode::PANIC, "making the task's plan panicked"));
    let PreparedTask { task, version, definition, plan, context } = match ready.unwrap_or_else(panicked) {
        Ok(ready) => ready,
        Err(error) => return refused(journal, PlanError::Step(error)).await,
    };
    *task_name = task;
    let mut journal = journal;
    if journal.plan.is_none() && journal.done.is_empty() {
        journal.task_version = version;
        journal.plan = definition;
    }
    let order = RunRequest {
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
    run(order).await
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
        Box::pin(reachability::look(crew, manifest.cluster, cluster)).await;
    }
}

impl<T> Crew<T> {
    async fn broken(&self, task: Uuid) {
        self.breaker.panicked(&self.store, task, Instant::now()).await;
    }
}
