//! The plan that removes the clusters of a deleted subscription in any state: running operations are cancelled, idle clusters are
//! deleted.

use std::sync::Arc;

use api::doc::{Cluster, Operation, ProvisioningState, Subscription, SubscriptionState, Verb};
use steps::engine::{Plan, Step, StepContext, StepError, StepErrorKind, StepOutcome};
use steps::lifecycle::store_failed;
use store::{AuditContext, ListOptions, PAGE_MAX, Secrets, StoreError, VersionedDocument};
use uuid::Uuid;

use super::{OPERATION_TIME, step_names};
use crate::{Context, OperationTiming};

/// Reason in the audit log and in the log of cancelled operations.
const REASON: &str = "its subscription is deleted";

/// The plan that removes the clusters of a subscription.
///
/// While clusters are left it releases its work and polls again later, so that it occupies no slot that their removals need.
pub fn remove_subscription(timing: OperationTiming) -> Plan<Context> {
    let step = Step::action(step_names::DELETE_CLUSTERS, remove_clusters);
    // Nobody could request the removal again, so that not even a panic ends it.
    let on_panic = StepErrorKind::Transient;
    Plan { steps: vec![Step { retry: timing.retry(), on_panic, ..step }], time_limit: OPERATION_TIME }
}

async fn remove_clusters(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    let subscription =
        cx.life.records.store.subscriptions().get(cx.life.cluster()).await.map_err(store_failed)?;
    let Some(subscription) = subscription else {
        return Ok(StepOutcome::with_message("the subscription is gone"));
    };
    if subscription.document.state != SubscriptionState::Deleted {
        return Ok(StepOutcome::with_message("the subscription is not deleted"));
    }
    let mut left = 0;
    let mut from = None;
    loop {
        let scope = Some(scope(&subscription.document));
        let selection = ListOptions { scope, from, limit: PAGE_MAX, ..ListOptions::default() };
        let page = cx.life.records.store.clusters().list(selection).await.map_err(store_failed)?;
        for cluster in &page.items {
            left += 1;
            remove(&cx, cluster).await?;
        }
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    match left {
        0 => Ok(StepOutcome::with_message("no clusters are left")),
        1 => Err(wait(&cx, "one cluster is left")),
        many => Err(wait(&cx, &format!("{many} clusters are left"))),
    }
}

fn wait(cx: &Context, what: &str) -> StepError {
    StepError::new(StepErrorKind::Precondition, "ClustersLeft", what)
        .with_retry_after(Some(cx.timing.removal_interval))
}

fn scope(subscription: &Subscription) -> String {
    format!("/subscriptions/{}", subscription.subscription_id.to_lowercase())
}

/// The next action on a cluster of a deleted subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextAction {
    /// Start its removal.
    Delete,
    /// Delete the document only: the service does not own an imported cluster.
    Forget,
    /// Request the cancellation of the running operation.
    Cancel(Uuid),
    /// Wait for the running operation.
    Wait,
}

fn next_action(cluster: &Cluster) -> NextAction {
    match (cluster.provisioning_state, cluster.operation) {
        _ if cluster.imported => NextAction::Forget,
        (ProvisioningState::Succeeded | ProvisioningState::Failed, _) => NextAction::Delete,
        (ProvisioningState::Deleting, _) => NextAction::Wait,
        (_, Some(operation)) => NextAction::Cancel(operation),
        (_, None) => NextAction::Wait,
    }
}

async fn remove(cx: &Context, read: &VersionedDocument<Cluster>) -> Result<(), StepError> {
    let by = AuditContext { reason: REASON.to_owned(), ..cx.life.records.author() };
    let store = &cx.life.records.store;
    let now = cx.life.clock.now();
    let done = match next_action(&read.document) {
        NextAction::Wait => Ok(()),
        NextAction::Forget => store.clusters().forget(read, &by).await,
        NextAction::Cancel(operation) => store.operations().request_cancel(operation, now, &by).await,
        NextAction::Delete => {
            let operation = Operation {
                id: Uuid::now_v7(),
                cluster: read.uuid,
                cluster_path: api::doc::Document::path(&read.document),
                verb: Verb::Delete,
                initial_status: ProvisioningState::Deleting,
                status: ProvisioningState::Deleting,
                start_time: now,
                end_time: None,
                error: None,
                snapshot: None,
                correlation_id: None,
                client_request_id: None,
            };
            let wanted = Cluster {
                provisioning_state: ProvisioningState::Deleting,
                last_provisioning_state: Some(read.document.provisioning_state),
                operation: Some(operation.id),
                ..read.document.clone()
            };
            store.clusters().start_update(read, &wanted, &operation, &Secrets::new(), &by).await.map(drop)
        }
    };
    match done {
        // The cluster was changed concurrently; the next poll reads its new state.
        Ok(())
        | Err(StoreError::Changed { .. } | StoreError::Gone { .. } | StoreError::WrongState { .. }) => Ok(()),
        Err(error) => Err(store_failed(error)),
    }
}
