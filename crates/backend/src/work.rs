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

use crate::ending::{close, result_type};
use crate::installer::verb_word;
use crate::service::{Backend, SERVICE};
use crate::{Context, plan, qos};

/// Who works, as an entry's actor.
const ACTOR: &str = "service:backend";
/// What is never given up: a removal, because nobody wants to keep what was to be removed (its steps say when a customer must
/// make way first), and a subscription's, because nobody would ask again.
const FOR_EVER: i32 = i32::MAX;
/// What is known of a piece of work when it begins.
#[derive(Debug)]
pub(crate) enum Facts {
    /// An operation on a cluster.
    Cluster {
        /// What was asked.
        operation: Box<Operation>,
        /// The cluster.
        cluster: Box<Cluster>,
    },
    /// A subscription whose clusters go.
    Subscription,
    /// What it was for is gone.
    Gone {
        /// What was asked, if that is known.
        operation: Option<Box<Operation>>,
    },
    /// What it is about is there, and this release does not understand it.
    Unreadable {
        /// In a sentence.
        why: String,
    },
}

impl Facts {
    fn verb(&self) -> &'static str {
        match self {
            Facts::Cluster { operation, .. } => verb_word(operation.verb),
            Facts::Gone { operation: Some(operation) } => verb_word(operation.verb),
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
    backend.deps.metrics.ended(facts.verb(), outcome, tries, took);
    if let Some(operation) = finished {
        qos::tell(&operation, tries, attempt.started.elapsed());
    }
    true
}

/// Runs the plan of claimed work from its last checkpoint.
pub(crate) async fn run_plan(backend: &Backend, attempt: &Attempt, facts: &Facts) -> RunOutcome {
    let _running = backend.deps.metrics.running();
    let Attempt { claimed, control, .. } = attempt;
    let journal = Journal::read(claimed.checkpoint.as_ref());
    let deps = &backend.deps;
    let refused = async |journal: Journal, refusal: PlanError| {
        let (store, clock) = (&deps.store, deps.clock.clone());
        finish_without_plan(store, claimed, journal, control.clone(), clock, ACTOR, &refusal).await
    };
    let timing = deps.config.operation_timing;
    let (plan, attempts_max): (Plan<Context>, i32) = match facts {
        Facts::Cluster { operation, cluster } => {
            let attempts_max = match operation.verb {
                Verb::Delete => FOR_EVER,
                Verb::Create | Verb::Update | Verb::AdminUpdate => ATTEMPTS_MAX,
            };
            (plan::of(operation.verb, cluster, timing), attempts_max)
        }
        Facts::Subscription => (plan::remove_subscription(timing), FOR_EVER),
        Facts::Gone { .. } => {
            let (code, message) = (ResultCode::CLUSTER_GONE, "the cluster is gone".to_owned());
            return refused(journal, PlanError::Gone { code, message }).await;
        }
        Facts::Unreadable { why } => {
            let error = StepError::new(StepErrorKind::Precondition, "Unreadable", why.clone());
            return refused(journal, PlanError::Unsupported(error)).await;
        }
    };
    let order = RunRequest {
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
    run(order).await
}

/// Writes an end. The operation as it ended, for work that has one; nothing at all when the work was lost.
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

/// Operation, cluster and work end together, under the fence.
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
    let closed = close(
        &read.document,
        &cluster.document,
        completion.ending,
        &completion.result,
        now,
        &backend.deps.release,
    );
    let end = match &closed.cluster {
        Some(after) => ClusterOutcome::Updated(&cluster, after),
        None => ClusterOutcome::Deleted(&cluster),
    };
    store.operations().finish(&read, &closed.operation, end, completion.clone(), &by).await?;
    if closed.operation.error.is_some() {
        // The customer is told less than this; it is for who looks after the service.
        tracing::warn!(
            operation.id = %operation.id,
            cluster.id = %operation.cluster,
            result = %completion.result.to_json(),
            "Operation {} of {} failed",
            operation.id,
            operation.cluster_path
        );
    }
    Ok(closed.operation)
}
