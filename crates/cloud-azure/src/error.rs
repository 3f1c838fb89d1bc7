//! Errors of Azure's services, read from whatever came back: JSON of several shapes, XML, HTML of a proxy, nothing.
//!
//! The libraries parse error bodies as borrowed text and give up on escapes, so bodies are parsed here. The code decides the class;
//! the text is for people, shortened and without anything that looks like a credential.

use std::time::Duration;

use api::error::{Class, Classify as _};
use cloud::{CloudError, ResourceFailure};
use serde_json::Value;

use crate::redact::redact;

/// Longest text of a message that is kept.
const MESSAGE_CHARS_MAX: usize = 1000;

/// A response that is no success, as far as it could be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServiceError {
    /// The HTTP status; 0 for the failure of an operation.
    pub(crate) status: u16,
    /// The code, empty when the body has none.
    pub(crate) code: String,
    pub(crate) message: String,
    /// The codes of details and of inner errors.
    pub(crate) details: Vec<String>,
    /// The policy that forbids the request.
    pub(crate) policy: Option<String>,
    /// How long the service asks to wait.
    pub(crate) retry_after: Option<Duration>,
    /// The id under which the service knows the request.
    pub(crate) request_id: Option<String>,
}

/// The call that failed, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallName<'a> {
    /// The verb, such as `PUT`.
    pub(crate) method: &'a str,
    /// The subject, such as a resource id.
    pub(crate) subject: &'a str,
    /// The principal that made the call.
    pub(crate) principal: &'a str,
}

impl ServiceError {
    /// Reads a body. Never fails: what cannot be read becomes a message that says so.
    pub(crate) fn parse(status: u16, body: &[u8]) -> ServiceError {
        let mut error = ServiceError { status, ..ServiceError::default() };
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => error.read(&value),
            Err(_) => error.message = describe_body(body),
        }
        if error.code.is_empty() {
            error.code = text_between(body, "<Code>", "</Code>");
        }
        error.code = shorten(&error.code, 100);
        error.message = shorten(&redact(&error.message), MESSAGE_CHARS_MAX);
        error
    }

    /// Reads an error object: that of an envelope, or of a failed operation.
    pub(crate) fn from_value(value: &Value) -> ServiceError {
        let mut error = ServiceError::default();
        error.read(value);
        error.code = shorten(&error.code, 100);
        error.message = shorten(&redact(&error.message), MESSAGE_CHARS_MAX);
        error
    }

    fn read(&mut self, value: &Value) {
        let error = match value.get("error") {
            Some(inner @ Value::Object(_)) => inner,
            _ => value,
        };
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        self.code = text(error, "code");
        self.message = text(error, "message");
        if self.code.is_empty() {
            // The form of Entra ID and of the registry.
            self.code = text(value, "error");
        }
        if self.message.is_empty() {
            self.message = text(value, "error_description");
        }
        let mut inner = error.get("innererror");
        while let Some(value) = inner {
            self.details.push(text(value, "code"));
            inner = if self.details.len() < 8 { value.get("innererror") } else { None };
        }
        for detail in error.get("details").and_then(Value::as_array).into_iter().flatten().take(16) {
            self.details.push(text(detail, "code"));
            if self.message.is_empty() {
                self.message = text(detail, "message");
            }
        }
        self.details.retain(|it| !it.is_empty());
        for info in error.get("additionalInfo").and_then(Value::as_array).into_iter().flatten().take(16) {
            let info = info.get("info").unwrap_or(info);
            let name = ["policyAssignmentDisplayName", "policyAssignmentName", "policyDefinitionName"]
                .into_iter()
                .map(|member| text(info, member))
                .find(|it| !it.is_empty());
            self.policy = self.policy.take().or(name);
        }
    }

    /// Whether the code or one of the details' codes is among these.
    pub(crate) fn has_code(&self, codes: &[&str]) -> bool {
        let is = |code: &str| codes.iter().any(|it| it.eq_ignore_ascii_case(code));
        is(&self.code) || self.details.iter().any(|it| is(it))
    }

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

    /// The error of a call, classed by code and status.
    pub(crate) fn into_cloud_error(self, call: CallName<'_>) -> CloudError {
        let what = call.subject.to_owned();
        let why =
            if self.message.is_empty() { format!("status {}", self.status) } else { self.message.clone() };
        let code = if self.code.is_empty() { format!("Http{}", self.status) } else { self.code.clone() };
        let after = self.retry_after;
        if self.has_code(BUSY) {
            return CloudError::Busy { what, code, why, after };
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
            return CloudError::Locked { what, action: action(call.method).to_owned() };
        }
        if self.has_code(&["SubscriptionNotFound", "InvalidSubscriptionId"]) {
            return CloudError::Invalid {
                code,
                why: format!("{why} Check the subscription's id and that the principal may read it."),
            };
        }
        let request = self.request_id.as_deref().map(|id| format!(", request id {id}")).unwrap_or_default();
        match self.status {
            401 => CloudError::Credential { who: call.principal.to_owned(), why: format!("{code}: {why}") },
            403 => denied(call, &code, &self.message),
            404 => CloudError::NotFound { what },
            408 | 500..=599 => CloudError::Unavailable {
                what: format!("{} {what} ({} {code}{request}): {why}", call.method, self.status),
                source: None,
            },
            409 if after.is_some() || self.asks_to_retry() => CloudError::Busy { what, code, why, after },
            409 if self.has_code(REJECTED) => CloudError::Invalid { code, why },
            409 => CloudError::Conflict { what, why: format!("{code}: {why}") },
            412 => CloudError::PreconditionFailed { what },
            429 => CloudError::Throttled { after },
            0 | 400..=499 => CloudError::Invalid { code, why },
            status => CloudError::UnexpectedResponse {
                what: format!("{} {what} ({status} {code}{request}): {why}", call.method),
                source: None,
            },
        }
    }

    /// The failure of a resource.
    pub(crate) fn into_failure(self) -> ResourceFailure {
        // The detail names the cause where the code says only that something failed.
        let general = [
            "",
            "OperationFailed",
            "DeploymentFailed",
            "ResourceOperationFailure",
            "ResourceDeploymentFailure",
        ];
        let code = match self.details.into_iter().next() {
            Some(detail) if general.contains(&self.code.as_str()) => detail,
            _ => self.code,
        };
        let code = if code.is_empty() { "Failed".to_owned() } else { code };
        ResourceFailure { code, message: self.message }
    }
}

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

fn action(method: &str) -> &'static str {
    match method {
        "DELETE" => "deletion",
        _ => "changes",
    }
}

/// The error of a missing right, with the action and scope that the message names.
fn denied(call: CallName<'_>, code: &str, message: &str) -> CloudError {
    let quoted = |after: &str| {
        let rest = &message[message.find(after)? + after.len()..];
        let rest = rest.trim_start().strip_prefix('\'')?;
        rest.split('\'').next().filter(|it| !it.is_empty()).map(str::to_owned)
    };
    let who = quoted("The client").unwrap_or_else(|| call.principal.to_owned());
    let action = quoted("perform action").unwrap_or_else(|| call.method.to_owned());
    let what = quoted("over scope").unwrap_or_else(|| call.subject.to_owned());
    CloudError::Denied { who, action: format!("{action} ({code})"), what }
}

/// The id in a message that is not that of the subject: the resource that uses it.
fn user_of(message: &str, subject: &str) -> String {
    let ids = message.split(|it: char| it.is_whitespace() || "'\",;()[]".contains(it));
    let ids = ids.map(|it| it.trim_end_matches('.')).filter(|it| it.starts_with("/subscriptions/"));
    let other = ids.filter(|it| {
        let (id, subject) = (it.to_lowercase(), subject.to_lowercase());
        // The address of a part of the subject is not that of a user.
        !id.starts_with(&subject) && !subject.starts_with(&id)
    });
    other.map(owner).next().unwrap_or_else(|| "another resource".to_owned())
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
    let quota = if quota.eq_ignore_ascii_case("Total Regional Cores") { "cores" } else { quota };
    Some(CloudError::Quota { quota: shorten(quota, 80), limit, used, wanted })
}

/// What a body that is no JSON seems to be.
fn describe_body(body: &[u8]) -> String {
    let start = String::from_utf8_lossy(&body[..body.len().min(4096)]);
    let start = start.trim_start();
    if start.is_empty() {
        return "the response has no body".to_owned();
    }
    let message = text_between(body, "<Message>", "</Message>");
    if !message.is_empty() {
        return message;
    }
    let lower = start.to_lowercase();
    if lower.starts_with("<!doctype") || lower.starts_with("<html") || lower.contains("<html") {
        let title = text_between(body, "<title>", "</title>");
        let title =
            if title.is_empty() { String::new() } else { format!(" titled '{}'", shorten(&title, 100)) };
        return format!(
            "the response is an HTML page{title}, perhaps of a proxy; check the address and the proxy"
        );
    }
    format!("the response is neither JSON nor XML and has {} bytes; check the address", body.len())
}

fn text_between(body: &[u8], open: &str, close: &str) -> String {
    let start = String::from_utf8_lossy(&body[..body.len().min(4096)]);
    let between = start.find(open).and_then(|at| {
        let rest = &start[at + open.len()..];
        rest.find(close).map(|end| rest[..end].trim().to_owned())
    });
    between.unwrap_or_default()
}

/// A text of one line and of at most so many characters.
pub(crate) fn shorten(text: &str, chars_max: usize) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    let line = line.join(" ");
    match line.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

/// Whether repeating an idempotent call at once may help.
pub(crate) fn is_worth_repeating(error: &CloudError) -> bool {
    matches!(error, CloudError::Unavailable { .. }) && error.class() == Class::Transient
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkSecurityGroups/n";

    fn error(status: u16, body: &str) -> CloudError {
        let call = CallName { method: "PUT", subject: ID, principal: "app" };
        ServiceError::parse(status, body.as_bytes()).into_cloud_error(call)
    }

    fn coded(status: u16, code: &str, message: &str) -> CloudError {
        error(status, &serde_json::json!({"error": {"code": code, "message": message}}).to_string())
    }

    #[test]
    fn codes_decide_the_class() {
        let busy =
            ["AnotherOperationInProgress", "RetryableError", "InvalidResourceReference", "PrincipalNotFound"];
        for (code, status) in busy.into_iter().zip([409, 429, 400, 400]) {
            assert!(matches!(coded(status, code, "m"), CloudError::Busy { .. }), "{code}");
        }
        assert!(matches!(coded(409, "Odd", "Please retry later."), CloudError::Busy { .. }));
        assert!(matches!(coded(409, "StorageAccountAlreadyTaken", "m"), CloudError::Conflict { .. }));
        assert!(matches!(coded(409, "ScopeLocked", "m"), CloudError::Locked { .. }));
        assert!(
            matches!(coded(409, "SkuNotAvailable", "m"), CloudError::Invalid { code, .. } if code == "SkuNotAvailable")
        );
        assert!(matches!(coded(400, "NicReservedForAnotherVm", "m"), CloudError::InUse { .. }));
        assert!(matches!(coded(412, "PreconditionFailed", "m"), CloudError::PreconditionFailed { .. }));
        assert!(matches!(coded(429, "TooManyRequests", "m"), CloudError::Throttled { .. }));
        assert!(matches!(
            coded(409, "OperationNotAllowed", "The VM is deallocated."),
            CloudError::Conflict { .. }
        ));
    }

    #[test]
    fn a_quota_has_its_numbers() {
        let text = "Operation could not be completed as it results in exceeding approved Total Regional Cores quota. \
                    Additional details - Location: westeurope, Current Limit: 10, Current Usage: 8, Additional Required: 44, \
                    (Minimum) New Limit Required: 52.";
        let CloudError::Quota { quota, limit, used, wanted } = coded(409, "OperationNotAllowed", text) else {
            panic!("no quota")
        };
        assert_eq!((quota.as_str(), limit, used, wanted), ("cores", 10, 8, 44));
        assert!(
            matches!(coded(409, "QuotaExceeded", "Too many cores."), CloudError::Invalid { code, .. } if code == "QuotaExceeded")
        );
    }

    #[test]
    fn the_user_of_a_resource_is_found_in_the_message() {
        let nic = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/x";
        let text = format!(
            "Network security group {ID} cannot be deleted because it is in use by {nic}/ipConfigurations/pip-v4."
        );
        let CloudError::InUse { by, .. } = coded(400, "InUseNetworkSecurityGroupCannotBeDeleted", &text)
        else {
            panic!("not in use")
        };
        assert_eq!(by, nic);
    }

    #[test]
    fn a_missing_right_names_principal_action_and_scope() {
        let text = "The client 'app-1' with object id 'o' does not have authorization to perform action \
                    'Microsoft.Network/virtualNetworks/read' over scope '/subscriptions/s' or the scope is invalid.";
        let shown = coded(403, "AuthorizationFailed", text).to_string();
        assert_eq!(
            shown,
            "app-1 may not Microsoft.Network/virtualNetworks/read (AuthorizationFailed) on /subscriptions/s"
        );
    }

    #[test]
    fn a_policy_is_named() {
        let body = r#"{"error":{"code":"RequestDisallowedByPolicy","message":"Resource was disallowed.\r\n","additionalInfo":
            [{"type":"PolicyViolation","info":{"policyAssignmentName":"tags-needed"}}]}}"#;
        let shown = error(403, body).to_string();
        assert!(
            shown.contains("forbidden by the policy tags-needed: RequestDisallowedByPolicy: Resource was"),
            "{shown}"
        );
    }

    #[test]
    fn bodies_that_are_no_json_are_described() {
        let page = "<!DOCTYPE html><html><head><title>Sign in to Contoso proxy</title></head></html>";
        let shown = error(502, page).to_string();
        assert!(
            shown.contains("titled 'Sign in to Contoso proxy'") && shown.contains("check the address"),
            "{shown}"
        );
        assert!(error(503, "").to_string().contains("no body"));
        assert!(error(500, "{\"error\":{\"code\":\"Trunc").to_string().contains("neither JSON nor XML"));
        let xml =
            "<?xml version=\"1.0\"?><Error><Code>BlobNotFound</Code><Message>No blob.</Message></Error>";
        assert_eq!(ServiceError::parse(404, xml.as_bytes()).code, "BlobNotFound");
    }

    proptest! {
        #[test]
        fn any_body_gives_one_short_sentence(status in 0u16..700, body in proptest::collection::vec(any::<u8>(), 0..600)) {
            let error = ServiceError::parse(status, &body).into_cloud_error(CallName { method: "GET", subject: ID, principal: "app" });
            let shown = error.to_string();
            prop_assert!(shown.chars().count() < 1500 && !shown.contains('\n'));
        }

        #[test]
        fn no_message_carries_a_credential(secret in "[A-Za-z0-9_-]{24,80}", before in "[ -~]{0,40}", status in 400u16..600) {
            for text in [
                format!("{before} Authorization: Bearer {secret}"),
                format!("{before} client_secret={secret}&x=y"),
                format!("{before} https://a.b/c?sig={secret}&se=1"),
                format!("{before} \"access_token\": \"{secret}\""),
                format!("{before} eyJ{secret}.eyJ{secret}.{secret}"),
            ] {
                let body = serde_json::json!({"error": {"code": "Odd", "message": text}}).to_string();
                let error = ServiceError::parse(status, body.as_bytes());
                prop_assert!(!error.message.contains(&secret), "{}", error.message);
            }
        }
    }
}
