//! The class of an error, by its code: what the caller may do about it.

use cloud::{CloudError, ResourceFailure};

use super::{CallName, ServiceError, shorten};

/// Another operation runs, or what is referred to is not ready or not visible yet: trying again helps.
const BUSY: &[&str] = &[
    "AnotherOperationInProgress",
    "RetryableError",
    "ReferencedResourceNotProvisioned",
    "CanceledAndSupersededDueToAnotherOperation",
    "ConflictingConcurrentWriteNotAllowed",
    "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity",
    "ResourceGroupBeingDeleted",
    "InvalidResourceReference",
    "PrincipalNotFound",
    "ObjectIsBeingDeleted",
    "ObjectIsBeingRecovered",
    "StorageAccountIsNotProvisioned",
    "OperationPreempted",
];

/// Another resource holds this one.
const IN_USE: &[&str] = &[
    "InUseSubnetCannotBeDeleted",
    "InUseNetworkSecurityGroupCannotBeDeleted",
    "InUseRouteTableCannotBeDeleted",
    "InUsePrivateEndpointConnectionsCannotBeDeleted",
    "NicInUse",
    "PublicIPAddressCannotBeDeleted",
    "InUsePublicIpAddressCannotBeDeleted",
    "CannotDeleteLoadBalancerWithPrivateLinkService",
    "InUseLoadBalancerCannotBeDeleted",
    "PrivateLinkServiceWithPrivateEndpointConnectionsCannotBeDeleted",
    "CannotDeleteResource",
    "DiskInUse",
    "OperationNotAllowedOnDiskInUse",
];

/// Conflicts in name, requests that cannot succeed in fact.
const REJECTED: &[&str] = &[
    "MissingSubscriptionRegistration",
    "SkuNotAvailable",
    "NotAvailableForSubscription",
    "ZonalAllocationFailed",
    "AllocationFailed",
    "OverconstrainedAllocationRequest",
    "OverconstrainedZonalAllocationRequest",
];

/// Codes that say only that something failed; the detail names the cause.
const GENERAL: &[&str] =
    &["", "OperationFailed", "DeploymentFailed", "ResourceOperationFailure", "ResourceDeploymentFailure"];

impl ServiceError {
    fn asks_to_retry(&self) -> bool {
        let message = self.message.to_lowercase();
        ["retry later", "try again later", "please retry", "retry the operation", "retry after"]
            .iter()
            .any(|it| message.contains(it))
    }

    fn is_quota(&self) -> bool {
        if self.has_code(&["QuotaExceeded", "PublicIPCountLimitReached"]) {
            return true;
        }
        let message = self.message.to_lowercase();
        let words = ["quota", "cores", "limit"];
        self.has_code(&["OperationNotAllowed"]) && words.iter().any(|it| message.contains(it))
    }

    /// The code and the message, for errors that operators read: with the ids of the request.
    fn full_text(&self, code: &str, why: &str) -> String {
        match self.correlation.describe() {
            Some(ids) => format!("{code}: {why} ({ids})"),
            None => format!("{code}: {why}"),
        }
    }

    /// The note about a call that failed: status, code, message and ids.
    fn note(&self, code: &str, why: &str) -> String {
        let why = why.trim_end_matches('.');
        let ids = self.correlation.describe().map(|it| format!("; {it}")).unwrap_or_default();
        format!("{} {code}: {why}{ids}", self.status)
    }

    /// The error of a call, classed by code and status.
    pub(crate) fn into_cloud_error(self, call: CallName<'_>) -> CloudError {
        let what = call.subject.to_owned();
        let why =
            if self.message.is_empty() { format!("status {}", self.status) } else { self.message.clone() };
        let code = if self.code.is_empty() { format!("Http{}", self.status) } else { self.code.clone() };
        let after = self.retry_after;
        if self.has_code(BUSY) {
            return self.busy(call, code, &why);
        }
        if self.has_code(IN_USE) {
            let by = user_of(&self.message, call.subject);
            return CloudError::InUse { what, by };
        }
        if self.has_code(&["NicReservedForAnotherVm"]) {
            return CloudError::InUse {
                what,
                by: "a machine that was deleted less than 180 s ago".to_owned(),
            };
        }
        if self.is_quota() {
            return quota_error(&self.message).unwrap_or(CloudError::Invalid {
                code: "QuotaExceeded".to_owned(),
                why: format!("{code}: {why}"),
            });
        }
        if self.has_code(&["RequestDisallowedByPolicy"]) {
            let policy = self.policy.unwrap_or_else(|| "of the subscription".to_owned());
            return CloudError::Policy { what, policy, why: format!("RequestDisallowedByPolicy: {why}") };
        }
        if self.has_code(&["ScopeLocked"]) {
            let action = if call.method == "DELETE" { "deletion" } else { "changes" };
            return CloudError::Locked { what, action: action.to_owned() };
        }
        if self.has_code(&["SubscriptionNotFound", "InvalidSubscriptionId"]) {
            let why = why.trim_end_matches('.');
            let why =
                format!("{code}: {why}; check the subscription's id and that {} may read it", call.principal);
            return CloudError::Invalid { code, why };
        }
        for (name, setting) in [
            ("InvalidAuthenticationTokenTenant", "tenant_id"),
            ("InvalidAuthenticationTokenAudience", "scope"),
        ] {
            if self.has_code(&[name]) {
                return CloudError::Configuration {
                    setting: setting.to_owned(),
                    why: self.full_text(&code, &why),
                };
            }
        }
        let is_transient = matches!(self.status, 408 | 429 | 500..=599);
        if self.is_foreign && !is_transient && self.status != 0 {
            let what = call.with_note(&self.note(&code, &why));
            return CloudError::UnexpectedResponse { what, source: None };
        }
        match self.status {
            // A token that was renewed just before: the clocks of the services differ.
            401 if self.has_code(&["ExpiredAuthenticationToken"]) => {
                CloudError::Unavailable { what: call.with_note(&self.note(&code, &why)), source: None }
            }
            401 => {
                let why = self.full_text(&code, &why);
                CloudError::Credential { who: call.principal.to_owned(), why }
            }
            403 => denied(call, &code, &self.message),
            404 => CloudError::NotFound { what: missing(&self, call) },
            // A service that names a time is not asked again at once.
            503 if after.is_some() => self.busy(call, code, &why),
            408 | 500..=599 => {
                CloudError::Unavailable { what: call.with_note(&self.note(&code, &why)), source: None }
            }
            409 if after.is_some() || self.asks_to_retry() => self.busy(call, code, &why),
            409 if self.has_code(REJECTED) => CloudError::Invalid { code, why },
            409 => CloudError::Conflict { what, why: self.full_text(&code, &why) },
            412 => CloudError::PreconditionFailed { what },
            429 => CloudError::Throttled { after },
            0 | 400..=499 => CloudError::Invalid { code, why },
            _ => {
                CloudError::UnexpectedResponse { what: call.with_note(&self.note(&code, &why)), source: None }
            }
        }
    }

    fn busy(&self, call: CallName<'_>, code: String, why: &str) -> CloudError {
        let why = match self.correlation.describe() {
            Some(ids) => format!("{why} ({ids})"),
            None => why.to_owned(),
        };
        CloudError::Busy { what: call.subject.to_owned(), code, why, after: self.retry_after }
    }

    /// The failure of a resource.
    pub(crate) fn into_failure(self) -> ResourceFailure {
        let code = match self.details.into_iter().next() {
            Some(detail) if GENERAL.contains(&self.code.as_str()) => detail,
            _ => self.code,
        };
        let code = if code.is_empty() { "Failed".to_owned() } else { code };
        let message = match self.message.as_str() {
            "" => format!("the operation failed with {code}, and Azure gives no reason"),
            message => message.to_owned(),
        };
        ResourceFailure { code, message }
    }
}

/// What is missing when a call finds nothing: a write needs more than its subject.
fn missing(error: &ServiceError, call: CallName<'_>) -> String {
    let segments: Vec<&str> = call.subject.split('/').collect();
    if error.has_code(&["ResourceGroupNotFound"]) && segments.len() > 5 {
        return segments[..5].join("/");
    }
    if error.has_code(&["ParentResourceNotFound"]) && segments.len() > 10 {
        return segments[..segments.len() - 2].join("/");
    }
    let other = if call.method == "PUT" { other_id(&error.message, call.subject) } else { None };
    other.unwrap_or_else(|| call.subject.to_owned())
}

/// The text in quotes that follows some words.
fn quoted(message: &str, words: &str) -> Option<String> {
    let rest = &message[message.find(words)? + words.len()..];
    let rest = rest.trim_start().strip_prefix('\'')?;
    rest.split('\'').next().filter(|it| !it.is_empty()).map(str::to_owned)
}

/// The error of a missing right, with the action and scope that the message names.
fn denied(call: CallName<'_>, code: &str, message: &str) -> CloudError {
    // A linked scope lacks another right than the one that the call itself needs, and the message names both.
    let action = quoted(message, "action(s)").or_else(|| quoted(message, "perform action"));
    let action = action.or_else(|| quoted(message, "Action:")).unwrap_or_else(|| call.method.to_owned());
    let scope = quoted(message, "linked scope(s)").or_else(|| quoted(message, "over scope"));
    CloudError::Denied {
        who: quoted(message, "The client").unwrap_or_else(|| call.principal.to_owned()),
        action: format!("{action} ({code})"),
        what: scope.unwrap_or_else(|| call.subject.to_owned()),
    }
}

/// The resource that uses the subject, by the id in a message.
fn user_of(message: &str, subject: &str) -> String {
    other_id(message, subject).unwrap_or_else(|| "another resource".to_owned())
}

/// The resource in a message that is neither the subject nor a part of it.
fn other_id(message: &str, subject: &str) -> Option<String> {
    let ids = message.split(|it: char| it.is_whitespace() || "'\",;()[]".contains(it));
    let mut ids = ids.map(|it| it.trim_end_matches('.')).filter(|it| it.starts_with("/subscriptions/"));
    let subject = subject.to_lowercase();
    let other = ids.find(|it| {
        let id = it.to_lowercase();
        !id.starts_with(&subject) && !subject.starts_with(&id)
    });
    other.map(owner)
}

/// The resource of which an id names a part, such as an IP configuration.
fn owner(id: &str) -> String {
    let segments: Vec<&str> = id.split('/').collect();
    if segments.len() > 9 && !segments[9].eq_ignore_ascii_case("subnets") {
        segments[..9].join("/")
    } else {
        id.to_owned()
    }
}

/// Reads `Current Limit: 10, Current Usage: 8, Additional Required: 44` of a message.
fn quota_error(message: &str) -> Option<CloudError> {
    let number = |after: &str| {
        let rest = &message[message.find(after)? + after.len()..];
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    };
    let (limit, used, wanted) =
        (number("Current Limit:")?, number("Current Usage:")?, number("Additional Required:")?);
    let quota = message
        .find("exceeding approved ")
        .map(|at| &message[at + "exceeding approved ".len()..])
        .and_then(|it| it.split(" quota").next())
        .unwrap_or("of the subscription");
    // The names of the public text and of the usages differ; the one that callers know is used.
    let quota = match quota {
        "Total Regional Cores" => "cores",
        "Virtual Machines" => "virtualMachines",
        family => family.strip_suffix(" Cores").unwrap_or(family),
    };
    Some(CloudError::Quota { quota: shorten(quota, 80), limit, used, wanted })
}
