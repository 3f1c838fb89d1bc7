//! What an error of AWS means for a Machine. Codes decide, never texts.

use std::error::Error;
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use cloud::InstanceError;

/// Wait before a call that AWS throttles, or that has to wait for the instance.
pub(crate) const BUSY_WAIT: Duration = Duration::from_secs(20);
/// Longest message of AWS that is reported. What follows are encoded details.
const MESSAGE_CHARS_MAX: usize = 600;
/// What follows is different with every response.
const ENCODED: &str = "Encoded authorization failure message";

/// Codes of throttling.
const THROTTLED: &[&str] = &[
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "TooManyRequestsException",
    "EC2ThrottledException",
    "BandwidthLimitExceeded",
    "PriorRequestNotComplete",
    "SlowDown",
];

/// Codes of credentials that AWS does not accept.
const CREDENTIALS: &[&str] = &[
    "AuthFailure",
    "Blocked",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "OptInRequired",
    "PendingVerification",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
];

/// Codes of missing permissions.
const DENIED: &[&str] = &["AccessDenied", "AccessDeniedException", "UnauthorizedOperation"];

/// Codes of subjects that AWS does not show everywhere yet, or that are not as far yet.
const NOT_YET: &[&str] = &[
    "IncorrectInstanceState",
    "IncorrectState",
    "InvalidInstance",
    "InvalidInstanceID.NotFound",
    "InvalidState",
    "InvalidTarget",
];

/// Codes of failures within AWS.
const INTERNAL: &[&str] =
    &["InternalError", "InternalFailure", "ServiceUnavailable", "ServiceUnavailableException", "Unavailable"];

/// The beginnings of codes that say that the request itself is wrong.
const INVALID: &[&str] =
    &["Invalid", "Malformed", "Missing", "Unknown", "Unsupported", "VPCIdNotSpecified", "TagLimitExceeded"];

/// The member of the providerSpec that a code is about, by the beginning of the code.
const MEMBERS: &[(&str, &str)] = &[
    ("InvalidAMIID", "ami.id"),
    ("InvalidAvailabilityZone", "placement.availabilityZone"),
    ("InvalidBlockDeviceMapping", "blockDevices"),
    ("InvalidCapacityReservation", "capacityReservationId"),
    ("InvalidGroup", "securityGroups"),
    ("InvalidHost", "placement.host"),
    ("InvalidInstanceType", "instanceType"),
    ("InvalidKMSKey", "blockDevices"),
    ("InvalidKeyPair", "keyName"),
    ("InvalidPlacementGroup", "placementGroupName"),
    ("InvalidSecurityGroup", "securityGroups"),
    ("InvalidSubnet", "subnet"),
    ("InvalidTag", "tags"),
    ("InvalidUserData", "userDataSecret"),
    ("InvalidZone", "placement.availabilityZone"),
    ("MaxSpotInstanceCountExceeded", "spotMarketOptions"),
    ("SpotMaxPriceTooLow", "spotMarketOptions.maxPrice"),
    ("TagLimitExceeded", "tags"),
    ("Unsupported", "instanceType"),
];

/// The call of the provider that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Find,
    Create,
    Update,
    Delete,
}

/// AWS did not carry out a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallError {
    /// The action, such as `RunInstances`.
    call: &'static str,
    failure: Failure,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Failure {
    /// AWS responded with an error.
    Rejected { status: u16, code: String, message: String },
    /// The response has no form that is known, such as a page of HTML.
    Unreadable { status: u16 },
    /// There was no response.
    NoResponse(&'static str),
    /// There is no credential to send a request with.
    NoCredential(String),
}

impl CallError {
    /// The error of the SDK for an action.
    pub(crate) fn of<E>(call: &'static str, error: SdkError<E, HttpResponse>) -> CallError
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let failure = match &error {
            SdkError::ServiceError(context) => {
                let status = context.raw().status().as_u16();
                match context.err().code().filter(|it| is_code(it)) {
                    Some(code) => Failure::Rejected {
                        status,
                        code: code.to_owned(),
                        message: message(context.err().message().unwrap_or_default()),
                    },
                    None => Failure::Unreadable { status },
                }
            }
            SdkError::ResponseError(context) => {
                Failure::Unreadable { status: context.raw().status().as_u16() }
            }
            SdkError::TimeoutError(_) => Failure::NoResponse("no response in time"),
            _ => match credentials_error(&error) {
                Some(error) => Failure::NoCredential(error.to_string()),
                None => Failure::NoResponse("no connection, or it broke"),
            },
        };
        CallError { call, failure }
    }

    /// An answer without what every answer to the call has.
    pub(crate) fn incomplete(call: &'static str) -> CallError {
        CallError { call, failure: Failure::Unreadable { status: 200 } }
    }

    /// Whether AWS responded with one of these codes.
    pub(crate) fn is(&self, codes: &[&str]) -> bool {
        matches!(&self.failure, Failure::Rejected { code, .. } if codes.contains(&code.as_str()))
    }

    /// The error for a Machine.
    pub(crate) fn for_machine(self, verb: Verb) -> InstanceError {
        let call = self.call;
        let (status, code, message) = match self.failure {
            Failure::NoResponse(why) => {
                return InstanceError::Unavailable(format!("AWS did not respond to {call}: {why}"));
            }
            Failure::Unreadable { status } => {
                let why =
                    format!("the response of AWS to {call} cannot be understood (HTTP status {status})");
                return InstanceError::Unavailable(why);
            }
            Failure::NoCredential(why) => {
                let why = format!("there is no credential for {call}: {why}; check credentialsSecret");
                return InstanceError::Unavailable(why);
            }
            Failure::Rejected { status, code, message } => (status, code, message),
        };
        let is_in = |codes: &[&str]| codes.contains(&code.as_str());
        let said = if message.is_empty() { code.clone() } else { format!("{code}: {message}") };
        if is_in(THROTTLED) {
            InstanceError::RequeueAfter(BUSY_WAIT, format!("AWS throttles {call} ({code})"))
        } else if is_in(CREDENTIALS) {
            InstanceError::Unavailable(format!(
                "AWS does not accept the credential for {call} ({said}); check credentialsSecret"
            ))
        } else if is_in(INTERNAL) || status >= 500 {
            InstanceError::Unavailable(format!("AWS failed at {call} ({said})"))
        } else if is_in(NOT_YET) {
            InstanceError::RequeueAfter(BUSY_WAIT, format!("{call} has to wait ({said})"))
        } else if is_in(DENIED) {
            failed(verb, format!("the credential has no permission for {call} ({said})"))
        } else if code == "IdempotentParameterMismatch" {
            failed(
                verb,
                format!(
                    "AWS has accepted an earlier {call} for this Machine with other parameters, and its instance is not visible yet; if \
                     this remains, delete the Machine ({said})"
                ),
            )
        } else {
            let member = MEMBERS.iter().find(|(start, _)| code.starts_with(start));
            let hint = member.map(|(_, it)| format!("; check providerSpec.value.{it}")).unwrap_or_default();
            let why = format!("AWS rejected {call} with {said}{hint}");
            let is_invalid = INVALID.iter().any(|it| code.starts_with(it));
            match verb {
                Verb::Create if is_invalid => InstanceError::InvalidConfiguration(why),
                verb => failed(verb, why),
            }
        }
    }
}

/// A failure that is repeated.
pub(crate) fn failed(verb: Verb, message: String) -> InstanceError {
    match verb {
        Verb::Find => InstanceError::Unavailable(message),
        Verb::Create => InstanceError::Create(message),
        Verb::Update => InstanceError::Update(message),
        Verb::Delete => InstanceError::Delete(message),
    }
}

/// The providerSpec is wrong at a member.
pub(crate) fn invalid(why: impl std::fmt::Display) -> InstanceError {
    InstanceError::InvalidConfiguration(format!("providerSpec.value.{why}"))
}

/// Whether a text is a code, and no accident of a page that is no XML of AWS.
fn is_code(code: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-');
    !code.is_empty() && code.len() <= 100 && code.chars().all(is_part)
}

/// A message of AWS in one line that is the same for every repetition.
fn message(full: &str) -> String {
    let text = full.split(ENCODED).next().unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    text.trim_end_matches('.').chars().take(MESSAGE_CHARS_MAX).collect()
}

/// The failure to get a credential, if that is the cause.
fn credentials_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a CredentialsError> {
    let mut cause = Some(error);
    // The chain comes from other crates, so it is not followed without end.
    for _ in 0..16 {
        let current = cause?;
        if let Some(found) = current.downcast_ref::<CredentialsError>() {
            return Some(found);
        }
        cause = current.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(status: u16, code: &str) -> CallError {
        let failure = Failure::Rejected { status, code: code.to_owned(), message: "no".to_owned() };
        CallError { call: "RunInstances", failure }
    }

    #[test]
    fn only_a_request_that_can_never_succeed_is_invalid() {
        use InstanceError as E;
        let create = |code: &str| rejected(400, code).for_machine(Verb::Create);
        for code in ["InvalidAMIID.NotFound", "MissingParameter", "Unsupported", "InvalidParameterValue"] {
            assert!(matches!(create(code), E::InvalidConfiguration(_)), "{code}");
        }
        for code in ["InsufficientInstanceCapacity", "VcpuLimitExceeded", "SpotMaxPriceTooLow"] {
            assert!(matches!(create(code), E::Create(_)), "{code}");
        }
        for code in DENIED {
            assert!(matches!(create(code), E::Create(_)), "{code}");
        }
        for code in THROTTLED.iter().chain(NOT_YET) {
            assert!(matches!(create(code), E::RequeueAfter(..)), "{code}");
        }
        for code in CREDENTIALS.iter().chain(INTERNAL) {
            assert!(matches!(create(code), E::Unavailable(_)), "{code}");
        }
        assert!(matches!(rejected(503, "InvalidX").for_machine(Verb::Create), E::Unavailable(_)));
        assert!(matches!(rejected(400, "InvalidX").for_machine(Verb::Delete), E::Delete(_)));
        assert!(matches!(rejected(400, "InvalidX").for_machine(Verb::Find), E::Unavailable(_)));
    }

    #[test]
    fn an_error_names_the_call_the_code_and_the_member() {
        let text = |code: &str| rejected(400, code).for_machine(Verb::Create).to_string();
        assert_eq!(
            text("InvalidAMIID.NotFound"),
            "AWS rejected RunInstances with InvalidAMIID.NotFound: no; check providerSpec.value.ami.id"
        );
        assert_eq!(text("RequestLimitExceeded"), "AWS throttles RunInstances (RequestLimitExceeded)");
        let none = CallError { call: "RunInstances", failure: Failure::Unreadable { status: 500 } };
        assert_eq!(
            none.for_machine(Verb::Create).to_string(),
            "the response of AWS to RunInstances cannot be understood (HTTP status 500)"
        );
    }

    #[test]
    fn a_message_is_one_line_and_the_same_for_every_repetition() {
        let full = "You are not authorized\n to do it. Encoded authorization failure message: 4Fj0";
        assert_eq!(message(full), "You are not authorized to do it");
        assert!(is_code("InvalidAMIID.NotFound") && !is_code("<html>") && !is_code(""));
    }
}
