//! One operation in this backend's hands, from its claim to the write of how it ended.

use std::time::Duration;

use api::doc::{Cluster, Operation, ResultCode, Verb};
use api::error::{Class, Classify as _};
use api::work::Ending;
use steps::crew::Written;
use steps::engine::{
    ATTEMPTS_MAX, Control, Ended, Journal, Order, Plan, Refusal, StepError, StepErrorKind, refuse, run,
};
use store::{AuditContext, ClaimedWork, ClusterOutcome, Completion, CompletionOutcome, StoreError};
use tokio::time::{Instant, sleep};

use crate::ending::{close, result_type};
use crate::installer::verb_word;
use crate::service::{Backend, SERVICE};
use crate::{Context, plan, qos};

/// Who works, as an entry's actor.
const ACTOR: &str = "service:backend";
/// What is never given up: a removal, because nobody wants to keep what was to be removed (its steps say when a customer must
/// make way first), and a subscription's, because nobody would ask again.
const FOR_EVER: i32 = i32::MAX;
/// The first pause before an end is said again; it doubles.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(5);

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

/// Works one operation and writes how that ended.
pub(crate) async fn one(backend: &Backend, mut claimed: ClaimedWork, control: Control, facts: Facts) {
    let metrics = &backend.deps.metrics;
    let _running = metrics.running();
    let begun = Instant::now();
    loop {
        match walk(backend, &claimed, &control, &facts).await {
            Ended::Finished(completion) => {
                let ending = completion.ending;
                match finish(backend, &control, &facts, completion).await {
                    Some(ended) => {
                        let took = ended.as_ref().and_then(|it| {
                            Duration::try_from(it.end_time?.duration_since(it.start_time)).ok()
                        });
                        let outcome = match (&ended, ending) {
                            (Some(operation), _) => result_type(operation.error.as_ref()),
                            (None, Ending::Completed) => "Success",
                            (None, _) => "ServerError",
                        };
                        let took = took.unwrap_or(begun.elapsed());
                        metrics.ended(facts.verb(), outcome, claimed.attempt, took);
                        if let Some(operation) = ended {
                            qos::tell(&operation, claimed.attempt, begun.elapsed());
                        }
                    }
                    None => drop(metrics.lost.inc()),
                }
            }
            Ended::HandedBack { yielding, why } => match backend.hands.hand_back(&control, &yielding).await {
                Written::Done => metrics.handed_back(why),
                Written::Refused => {
                    // Somebody asked for its end before it was given back: it goes on to that end.
                    control.cancel.cancel();
                    claimed.checkpoint = yielding.checkpoint.map(|(_, data)| data);
                    continue;
                }
                Written::Lost => drop(metrics.lost.inc()),
            },
            Ended::Lost => drop(metrics.lost.inc()),
        }
        return;
    }
}

/// Walks the plan of a piece of work.
async fn walk(backend: &Backend, claimed: &ClaimedWork, control: &Control, facts: &Facts) -> Ended {
    let journal = Journal::read(claimed.checkpoint.as_ref());
    let deps = &backend.deps;
    let refused = async |journal: Journal, refusal: Refusal| {
        let (store, clock) = (&deps.store, deps.clock.clone());
        refuse(store, claimed, journal, control.clone(), clock, ACTOR, &refusal).await
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
            return refused(journal, Refusal::Withdrawn { code, message }).await;
        }
        Facts::Unreadable { why } => {
            let error = StepError::new(StepErrorKind::Precondition, "Unreadable", why.clone());
            return refused(journal, Refusal::Unreadable(error)).await;
        }
    };
    let order = Order {
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
    control: &Control,
    facts: &Facts,
    completion: Completion,
) -> Option<Option<Operation>> {
    let Facts::Cluster { operation, .. } = facts else {
        return match backend.hands.write_end(control, completion).await? {
            CompletionOutcome::Done => Some(None),
            CompletionOutcome::Lost => None,
        };
    };
    let mut pause = PAUSE;
    loop {
        let written = tokio::select! {
            biased;
            () = control.lost.cancelled() => return None,
            written = write(backend, operation, &completion) => written,
        };
        match written {
            Ok(ended) => return Some(Some(ended)),
            // Labels and the like are changed by others at any time; the end is said of what is there now.
            Err(StoreError::Changed { .. }) => {}
            Err(error) if error.class() == Class::Transient => {
                tracing::info!(operation.id = %operation.id, error = %error, "The end of an operation is said again");
            }
            Err(StoreError::LostLease { .. }) => return None,
            Err(error) => {
                // The lease runs out, and another tries.
                tracing::error!(
                    operation.id = %operation.id,
                    error = &error as &dyn std::error::Error,
                    "The end of operation {} was refused",
                    operation.id
                );
                return None;
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
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
