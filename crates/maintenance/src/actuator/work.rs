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

use super::service::{ACTOR, Actuator};
use super::{Assignment, PreparedTask, Tasks, reachability};

/// Documents of a manifest, and the name of its task once it is resolved.
#[derive(Debug)]
pub(super) struct ManifestFacts {
    pub(super) summary: WorkSummary,
    pub(super) task: String,
}

impl ManifestFacts {
    pub(super) fn new(summary: WorkSummary) -> ManifestFacts {
        ManifestFacts { summary, task: "unknown".to_owned() }
    }
}

/// Writes and counts the completion of a manifest. Returns whether it was written.
pub(super) async fn complete<T: Tasks>(
    actuator: &Actuator<T>,
    attempt: &Attempt,
    facts: &ManifestFacts,
    completion: Completion,
) -> bool {
    let (ending, code) = (completion.ending, completion.result.code.clone());
    let is_undo_failed = completion.result.undo_failed.is_some();
    if actuator.pool.complete(&attempt.control, completion).await != Some(CompletionOutcome::Done) {
        return false;
    }
    let took = attempt.started.elapsed();
    actuator.metrics.completed(&facts.task, ending, attempt.claimed.attempt, took);
    if is_undo_failed {
        actuator.metrics.undo_failed.inc();
    }
    after_completion(actuator, &facts.summary, ending, code.as_ref(), took).await;
    true
}

/// Runs the plan of a manifest from its last checkpoint.
pub(super) async fn run_plan<T: Tasks>(
    actuator: &Actuator<T>,
    attempt: &Attempt,
    facts: &mut ManifestFacts,
) -> RunOutcome {
    let _running = actuator.metrics.running();
    let Attempt { claimed, control, .. } = attempt;
    let ManifestFacts { summary: facts, task: task_name } = facts;
    let journal = Journal::read(claimed.checkpoint.as_ref());
    let fail = async |journal, error: PlanError| {
        // Boxed, like all rare paths, so that its state does not enlarge the future of a usual run.
        Box::pin(finish_without_plan(
            &actuator.store,
            claimed,
            journal,
            control.clone(),
            actuator.clock.clone(),
            ACTOR,
            &error,
        ))
        .await
    };
    let missing = |code: ResultCode, message: &str| PlanError::Gone { code, message: message.to_owned() };
    let Some(manifest) = &facts.manifest else {
        // Without its document a started manifest can be neither continued nor undone; it may need manual repair.
        let error = match journal.has_begun() {
            true => {
                PlanError::Step(StepError::terminal(ResultCode::MANIFEST_GONE, "the manifest was deleted"))
            }
            false => missing(ResultCode::MANIFEST_GONE, "the manifest was deleted"),
        };
        return fail(journal, error).await;
    };
    let Some(cluster) = &facts.cluster else {
        return fail(journal, missing(ResultCode::CLUSTER_GONE, "the cluster was deleted")).await;
    };
    if claimed.first && claimed.run_after > Timestamp::UNIX_EPOCH {
        actuator.metrics.lag(claimed.claimed_at.duration_since(claimed.run_after));
    }
    let health = facts.health.as_ref();
    let assignment =
        Assignment { manifest, cluster: claimed.lease.lane, document: cluster, health, journal: &journal };
    let prepare = AssertUnwindSafe(actuator.tasks.prepare(assignment)).catch_unwind();
    let prepared = tokio::select! {
        biased;
        () = control.lost.cancelled() => return RunOutcome::LeaseLost,
        prepared = prepare => prepared,
    };
    let panicked = |_| Err(StepError::terminal(ResultCode::PANIC, "building the plan of the task panicked"));
    let PreparedTask { task, version, definition, plan, context } = match prepared.unwrap_or_else(panicked) {
        Ok(prepared) => prepared,
        Err(error) => return fail(journal, PlanError::Step(error)).await,
    };
    *task_name = task;
    let mut journal = journal;
    if journal.plan.is_none() && journal.done.is_empty() {
        journal.task_version = version;
        journal.plan = definition;
    }
    let request = RunRequest {
        store: &actuator.store,
        claimed,
        plan: &plan,
        context,
        journal,
        control: control.clone(),
        clock: actuator.clock.clone(),
        actor: ACTOR,
        attempts_max: ATTEMPTS_MAX,
    };
    run(request).await
}

/// Records what a completion shows: the duration of its task, a panic, a cluster that may be reachable again.
async fn after_completion<T: Tasks>(
    actuator: &Actuator<T>,
    facts: &WorkSummary,
    ending: Ending,
    code: Option<&ResultCode>,
    took: Duration,
) {
    let Some(manifest) = &facts.manifest else { return };
    match ending {
        Ending::Completed => actuator.durations.record(manifest.task_id, took),
        Ending::Failed if code == Some(&ResultCode::PANIC) => {
            Box::pin(actuator.record_panic(manifest.task_id)).await;
        }
        Ending::Failed | Ending::RetriesExceeded | Ending::Cancelled => {}
    }
    // Whatever the outcome, its steps may have reached a cluster that was unreachable.
    let unreachable = facts.health.as_ref().is_some_and(|it| !it.reachable);
    if let Some(cluster) = facts.cluster.as_ref().filter(|_| unreachable) {
        Box::pin(reachability::probe(actuator, manifest.cluster, cluster)).await;
    }
}

impl<T> Actuator<T> {
    async fn record_panic(&self, task: Uuid) {
        self.breaker.record_panic(&self.store, task, Instant::now()).await;
    }
}
