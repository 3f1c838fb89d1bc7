//! The actions that the states of a subscription and of a cluster allow, as tables.

use api::doc::{Cluster, ProvisioningState, Subscription, SubscriptionState};
use http::StatusCode;
use store::VersionedDocument;

use super::ArmState;
use crate::wire::{ApiError, Code};

/// An action on a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterAction {
    /// PUT or PATCH.
    Write,
    /// DELETE.
    Delete,
    /// The credentials.
    Credentials,
}

/// Whether a subscription in this state allows the action; none is a subscription that was never registered.
pub(super) fn subscription_allows(state: Option<SubscriptionState>, action: ClusterAction) -> bool {
    use SubscriptionState as S;
    match (state, action) {
        (Some(S::Registered), _) | (Some(S::Warned | S::Suspended), ClusterAction::Delete) => true,
        (Some(S::Warned | S::Suspended), ClusterAction::Write | ClusterAction::Credentials)
        | (None | Some(S::Unregistered | S::Deleted), _) => false,
    }
}

/// Checks that the subscription allows the action, and returns it.
pub(super) async fn check_subscription(
    state: &ArmState,
    subscription: &str,
    action: ClusterAction,
) -> Result<VersionedDocument<Subscription>, ApiError> {
    let path = format!("/subscriptions/{}", subscription.to_ascii_lowercase());
    let found = state.store.subscriptions().find(&path).await?;
    let state = found.as_ref().map(|it| it.document.state);
    if let Some(read) = found.filter(|_| subscription_allows(state, action)) {
        return Ok(read);
    }
    let name = state.map_or_else(|| "Unregistered".to_owned(), |state| format!("{state:?}"));
    let message = format!("Request is not allowed in subscription in state '{name}'.");
    Err(ApiError::new(StatusCode::BAD_REQUEST, Code::InvalidSubscriptionState, message))
}

/// Whether a cluster in this state allows the action.
pub(super) fn state_allows(
    state: ProvisioningState,
    failed: Option<ProvisioningState>,
    action: ClusterAction,
) -> bool {
    use ProvisioningState as S;
    let never_ran = matches!(failed, Some(S::Creating | S::Deleting));
    match (state, action) {
        (S::Succeeded, _) | (S::Failed, ClusterAction::Delete) => true,
        (S::Failed, ClusterAction::Write | ClusterAction::Credentials) => !never_ran,
        (S::Updating | S::AdminUpdating, ClusterAction::Credentials) => true,
        (S::Creating | S::Deleting | S::Updating | S::AdminUpdating, _) => false,
    }
}

/// Checks that the cluster's state allows the action.
pub(super) fn check_state(cluster: &Cluster, action: ClusterAction) -> Result<(), ApiError> {
    let rejected =
        |message: String| Err(ApiError::new(StatusCode::BAD_REQUEST, Code::RequestNotAllowed, message));
    if cluster.imported || cluster.provisioned.is_none() {
        return rejected(
            "Request is not allowed: the cluster was imported; this service did not create it.".to_owned(),
        );
    }
    if state_allows(cluster.provisioning_state, cluster.failed_provisioning_state, action) {
        return Ok(());
    }
    match (cluster.provisioning_state, cluster.failed_provisioning_state) {
        (ProvisioningState::Failed, Some(failed)) => rejected(format!(
            "Request is not allowed on cluster whose {} failed. Delete the cluster.",
            if failed == ProvisioningState::Creating { "creation" } else { "deletion" }
        )),
        (state, _) => rejected(format!("Request is not allowed in provisioningState '{state:?}'.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_allows_what_the_table_says() {
        use SubscriptionState as S;
        let check = |state: Option<S>, expect: [bool; 3]| {
            let found = [ClusterAction::Write, ClusterAction::Delete, ClusterAction::Credentials]
                .map(|action| subscription_allows(state, action));
            assert_eq!(found, expect, "{state:?}");
        };
        check(None, [false, false, false]);
        check(Some(S::Registered), [true, true, true]);
        check(Some(S::Unregistered), [false, false, false]);
        check(Some(S::Warned), [false, true, false]);
        check(Some(S::Suspended), [false, true, false]);
        check(Some(S::Deleted), [false, false, false]);
    }

    #[test]
    fn a_state_allows_what_the_table_says() {
        use ProvisioningState as S;
        let check = |state: S, failed: Option<S>, expect: [bool; 3]| {
            let found = [ClusterAction::Write, ClusterAction::Delete, ClusterAction::Credentials]
                .map(|action| state_allows(state, failed, action));
            assert_eq!(found, expect, "{state:?} {failed:?}");
        };
        check(S::Creating, None, [false, false, false]);
        check(S::Updating, None, [false, false, true]);
        check(S::AdminUpdating, None, [false, false, true]);
        check(S::Deleting, None, [false, false, false]);
        check(S::Failed, Some(S::Creating), [false, true, false]);
        check(S::Failed, Some(S::Deleting), [false, true, false]);
        check(S::Failed, Some(S::Updating), [true, true, true]);
        check(S::Failed, Some(S::AdminUpdating), [true, true, true]);
        check(S::Failed, None, [true, true, true]);
        check(S::Succeeded, None, [true, true, true]);
        // The state of an earlier failure does not matter after a success.
        check(S::Succeeded, Some(S::Creating), [true, true, true]);
        check(S::Updating, Some(S::Creating), [false, false, true]);
    }
}
