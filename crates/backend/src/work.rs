//! The run of one operation, from its claim to its completion.

use std::time::Duration;

use api::doc::{Cluster, Operation, ResultCode, Verb};
use api::error::{Class, Classify as _};
use api::work::Ending;
use backon::BackoffBuilder as _;
use steps::engine::{
    ATTEMPTS_MAX, Journal, Plan, PlanError, RunControl, RunOutcome, RunRequest, StepError, StepErrorKind,
    finish_without_plan, run,
};
use steps::store_backoff;
use steps::worker::Attempt;
use store::{AuditContext, ClusterOutcome, Completion, CompletionOutcome, StoreError};
use tokio::time::sleep;

use crate::completion::{finish_operation, result_type};
use crate::installer::verb_name;
use crate::service::{Backend, SERVICE};
use crate::{Context, plan, qos};

/// Actor of the entries of an operation.
const ACTOR: &str = "service:backend";
/// Attempts of removals: those of a cluster fail only if the customer blocks them (see `plan::error_policy`), and those of a
/// subscription never, because nobody could request them again.
const ATTEMPTS_UNLIMITED: i32 = i32::MAX;

/// The documents of claimed work.
#[derive(Debug)]
pub(crate) enum Facts {
    /// An operation on a cluster.
    Cluster {
        /// The operation.
        operation: Box<Operation>,
        /// The cluster.
        cluster: Box<Cluster>,
    },
    /// The removal of a subscription's clusters.
    Subscription,
    /// The cluster no longer exists.
    Gone {
        /// The operation, if it still exists.
        operation: Option<Box<Operation>>,
    },
    /// A document exists that this release cannot read.
    Unreadable {
        /// Why it cannot be read.
        message: String,
    },
}

impl Facts {
    fn verb(&self) -> &'static str {
        match self {
            Facts::Cluster { operation, .. } => verb_name(operation.verb),
            Facts::Gone { operation: Some(operation) } => verb_name(operation.verb),
            Facts::Subscription => "RemoveSubscription",
            Facts::Gone { operation: None } | Facts::Unreadable { .. } => "Unknown",
        }
    }
}

/// Writes the completion of work, counts it and logs its quality of service. Returns whether it is written.
pub(crate) async fn complete(
    backend: &Backend,
    attempt: &Attempt,
    facts: &Facts,
    completion: Completion,
) -> bool {
    let ending = completion.ending;
    let Some(finished) = finish(backend, &attempt.control, facts, completion).await else { return false };
    let took = finished
        .as_ref()
        .and_then(|it| Duration::try_from(it.end_time?.duration_since(it.start_time)).ok())
        .unwrap_or(attempt.started.elapsed());
    let outcome = match (&finished, ending) {
        (Some(operation), _) => result_type(operation.error.as_ref()),
        (None, Ending::Completed) => "Success",
        (None, _) => "ServerError",
    };
    let tries = attempt.claimed.attempt;
    backend.deps.metrics.finished(facts.verb(), outcome, tries, took);
    if let Some(operation) = finished {
        qos::log_operation(&operation, tries, attempt.started.elapsed());
    }
    true
}

/// Runs the plan of claimed work from its last checkpoint.
pub(crate) async fn run_plan(backend: &Backend, attempt: &Attempt, facts: &Facts) -> RunOutcome {
    let _running = backend.deps.metrics.running();
    let Attempt { claimed, control, .. } = attempt;
    let journal = Journal::read(claimed.checkpoint.as_ref());
    let deps = &backend.deps;
    let finish_early = async |journal: Journal, error: PlanError| {
        let (store, clock) = (&deps.store, deps.clock.clone());
        finish_without_plan(store, claimed, journal, control.clone(), clock, ACTOR, &error).await
    };
    let timing = deps.config.operation_timing;
    let (plan, attempts_max): (Plan<Context>, i32) = match facts {
        Facts::Cluster { operation, cluster } => {
            let attempts_max = match operation.verb {
                Verb::Delete => ATTEMPTS_UNLIMITED,
                Verb::Create | Verb::Update | Verb::AdminUpdate => ATTEMPTS_MAX,
            };
            (plan::for_verb(operation.verb, cluster, timing), attempts_max)
        }
        Facts::Subscription => (plan::remove_subscription(timing), ATTEMPTS_UNLIMITED),
        Facts::Gone { .. } => {
            let (code, message) = (ResultCode::CLUSTER_GONE, "the cluster no longer exists".to_owned());
            return finish_early(journal, PlanError::Gone { code, message }).await;
        }
        Facts::Unreadable { message } => {
            let error = StepError::new(StepErrorKind::Precondition, "Unreadable", message.clone());
            return finish_early(journal, PlanError::Unsupported(error)).await;
        }
    };
    let request = RunRequest {
        store: &deps.store,
        claimed,
        plan: &plan,
        context: std::sync::Arc::new(backend.context(claimed.lease.lane)),
        journal,
        control: control.clone(),
        clock: deps.clock.clone(),
        actor: ACTOR,
        attempts_max,
    };
    run(request).await
}

/// Writes the completion of work. Returns the finished operation, if the work has one; `None` if the lease was lost.
async fn finish(
    backend: &Backend,
    control: &RunControl,
    facts: &Facts,
    completion: Completion,
) -> Option<Option<Operation>> {
    let Facts::Cluster { operation, .. } = facts else {
        return match backend.pool.complete(control, completion).await? {
            CompletionOutcome::Done => Some(None),
            CompletionOutcome::Lost => None,
        };
    };
    let mut delays = store_backoff().build();
    loop {
        match control.lost.run_until_cancelled(write(backend, operation, &completion)).await? {
            Ok(finished) => return Some(Some(finished)),
            // Others change labels and the like at any time; the completion is written to the document as it is then.
            Err(StoreError::Changed { .. }) => {}
            Err(error) if error.class() == Class::Transient => {
                tracing::info!(
                    operation.id = %operation.id,
                    error = %error,
                    "Writing the completion of operation {} failed; retrying",
                    operation.id
                );
            }
            Err(StoreError::LostLease { .. }) => return None,
            Err(error) => {
                // The lease expires, and another process retries.
                tracing::error!(
                    operation.id = %operation.id,
                    error = &error as &dyn std::error::Error,
                    "The store rejected the completion of operation {}",
                    operation.id
                );
                return None;
            }
        }
        sleep(delays.next().unwrap_or_default()).await;
    }
}

/// Writes operation, cluster and completed work in one transaction under the fence.
async fn write(
    backend: &Backend,
    operation: &Operation,
    completion: &Completion,
) -> Result<Operation, StoreError> {
    let store = &backend.deps.store;
    let by = AuditContext { correlation_id: operation.correlation_id, ..AuditContext::service(SERVICE) };
    let read = store.operations().get(operation.id).await?;
    let read = read.ok_or(StoreError::Gone { uuid: operation.id })?;
    let cluster = store.clusters().get(operation.cluster).await?;
    let cluster = cluster.ok_or(StoreError::Gone { uuid: operation.cluster })?;
    let now = backend.deps.clock.now();
    let finished = finish_operation(
        &read.document,
        &cluster.document,
        completion.ending,
        &completion.result,
        now,
        &backend.deps.release,
    );
    let outcome = match &finished.cluster {
        Some(after) => ClusterOutcome::Updated(&cluster, after),
        None => ClusterOutcome::Deleted(&cluster),
    };
    store.operations().finish(&read, &finished.operation, outcome, completion.clone(), &by).await?;
    if finished.operation.error.is_some() {
        // The log has more details than the customer's error.
        tracing::warn!(
            operation.id = %operation.id,
            cluster.id = %operation.cluster,
            result = %completion.result.to_json(),
            "Operation {} of {} failed",
            operation.id,
            operation.cluster_path
        );
    }
    Ok(finished.operation)
}
