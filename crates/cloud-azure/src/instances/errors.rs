//! What an error of Azure means for a Machine.

use std::time::Duration;

use cloud::{CloudError, InstanceError};

use crate::headers::without_ids;

/// Wait before a call that others prevent or that is throttled, when Azure names none.
const BUSY_WAIT: Duration = Duration::from_secs(20);
/// Wait before the deletion of what is still held, such as an interface that Azure reserves for 180 s.
const IN_USE_WAIT: Duration = Duration::from_secs(30);
/// Bounds of what Azure may ask to wait.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Codes of requests that are valid and that Azure cannot satisfy now: capacity comes back, and quotas are raised.
const TEMPORARY: &[&str] = &[
    "AllocationFailed",
    "ZonalAllocationFailed",
    "OverconstrainedAllocationRequest",
    "OverconstrainedZonalAllocationRequest",
    "QuotaExceeded",
    "MissingSubscriptionRegistration",
    "SubscriptionNotFound",
    "InvalidSubscriptionId",
];

/// The call of the provider that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Find,
    Create,
    Update,
    Delete,
}

/// The error of a call. Only a creation can be invalid for good: Azure rejected the request itself, not its moment.
pub(super) fn instance_error(error: CloudError, verb: Verb) -> InstanceError {
    let wait =
        |after: Option<Duration>, default: Duration| after.unwrap_or(default).clamp(WAIT_MIN, WAIT_MAX);
    let full = error.to_string();
    let text = without_ids(&full);
    if text != full {
        tracing::warn!("A call about an instance failed: {full}");
    }
    match &error {
        CloudError::Throttled { after } | CloudError::Busy { after, .. } => {
            InstanceError::RequeueAfter(wait(*after, BUSY_WAIT), text)
        }
        CloudError::InUse { .. } => InstanceError::RequeueAfter(IN_USE_WAIT, text),
        CloudError::PreconditionFailed { .. } => InstanceError::RequeueAfter(WAIT_MIN, text),
        CloudError::Unavailable { .. }
        | CloudError::UnexpectedResponse { .. }
        | CloudError::Credential { .. }
        | CloudError::Configuration { .. } => InstanceError::Unavailable(text),
        CloudError::Invalid { code, .. }
            if verb == Verb::Create && !TEMPORARY.iter().any(|it| code.eq_ignore_ascii_case(it)) =>
        {
            InstanceError::InvalidConfiguration(format!("Azure rejected the machine with {code}: {text}"))
        }
        CloudError::Policy { .. } if verb == Verb::Create => InstanceError::InvalidConfiguration(text),
        CloudError::Invalid { code, .. } => failed(verb, format!("{code}: {text}")),
        CloudError::NotFound { .. }
        | CloudError::Conflict { .. }
        | CloudError::Denied { .. }
        | CloudError::Policy { .. }
        | CloudError::Quota { .. }
        | CloudError::Locked { .. } => failed(verb, text),
    }
}

/// A failure that is repeated.
pub(super) fn failed(verb: Verb, message: String) -> InstanceError {
    match verb {
        Verb::Find => InstanceError::Unavailable(message),
        Verb::Create => InstanceError::Create(message),
        Verb::Update => InstanceError::Update(message),
        Verb::Delete => InstanceError::Delete(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(code: &str) -> CloudError {
        CloudError::Invalid { code: code.to_owned(), why: "no".to_owned() }
    }

    #[test]
    fn only_a_creation_that_can_never_succeed_is_invalid() {
        use InstanceError as E;
        let create = |error| instance_error(error, Verb::Create);
        assert!(matches!(create(invalid("InvalidParameter")), E::InvalidConfiguration(_)));
        assert!(matches!(create(invalid("SkuNotAvailable")), E::InvalidConfiguration(_)));
        for code in TEMPORARY {
            assert!(matches!(create(invalid(code)), E::Create(_)), "{code}");
        }
        let quota = CloudError::Quota { quota: "cores".to_owned(), limit: 1, used: 1, wanted: 4 };
        assert!(matches!(create(quota), E::Create(_)));
        assert!(matches!(instance_error(invalid("InvalidParameter"), Verb::Delete), E::Delete(_)));
        assert!(matches!(instance_error(invalid("InvalidParameter"), Verb::Find), E::Unavailable(_)));
    }

    #[test]
    fn a_wrong_region_is_invalid_and_named() {
        let why = "The provided location 'atlantis' is not available for resource type 'Microsoft.Network/networkInterfaces'.";
        let code = "LocationNotAvailableForResourceType".to_owned();
        let error = instance_error(CloudError::Invalid { code, why: why.to_owned() }, Verb::Create);
        assert!(matches!(&error, InstanceError::InvalidConfiguration(text) if text.contains(why)), "{error}");
    }

    #[test]
    fn waits_are_those_of_azure_within_bounds() {
        let check = |after: Option<u64>, expect: u64| {
            let error = CloudError::Throttled { after: after.map(Duration::from_secs) };
            let error = instance_error(error, Verb::Find);
            assert_eq!(error.requeue_after(), Some(Duration::from_secs(expect)));
        };
        check(None, 20);
        check(Some(0), 1);
        check(Some(7), 7);
        check(Some(86_400), 300);
    }

    #[test]
    fn the_text_is_the_same_for_every_repetition() {
        let text = |id: &str| {
            let ids = format!("request id {id}, correlation id k{id}");
            let all = [
                CloudError::Credential { who: "app".to_owned(), why: format!("Odd: m. ({ids})") },
                CloudError::Unavailable { what: format!("GET /x (500 Odd: m; {ids})"), source: None },
                CloudError::UnexpectedResponse { what: format!("GET /x (600 Odd: m; {ids})"), source: None },
                CloudError::Conflict { what: "/x".to_owned(), why: format!("Odd: m. ({ids})") },
            ];
            all.map(|it| instance_error(it, Verb::Create))
        };
        assert_eq!(text("1"), text("2"));
    }

    #[test]
    fn a_rejected_credential_says_nothing_about_the_machine() {
        let error = CloudError::Credential { who: "app".to_owned(), why: "expired".to_owned() };
        assert!(matches!(instance_error(error, Verb::Create), InstanceError::Unavailable(_)));
    }
}
