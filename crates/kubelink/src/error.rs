//! Errors of requests to a cluster, and whether a retry can help.
//!
//! Every error names the cluster, the verb, its target and the failure, in one sentence. The class is chosen here, from the
//! response of the API server and the errors of the transport, and nowhere else.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::error::{Class, Classify};
use kube::core::Status;
use kube::runtime::watcher;

use crate::bounded::ResponseTimeout;

/// A verb that failed on a cluster.
#[derive(Debug, thiserror::Error)]
#[error("cluster {cluster}: could not {verb} {target}: {failure}")]
pub struct LinkError {
    /// The cluster, as the link was named.
    pub cluster: Arc<str>,
    /// The verb, as it continues "could not": `drain`, `read`, `apply`.
    pub verb: &'static str,
    /// The target of the verb: `node worker-1`, `Deployment web/frontend`.
    pub target: String,
    /// The failure.
    pub failure: Failure,
}

impl LinkError {
    /// The delay that the API server asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.failure {
            Failure::TooManyRequests { retry_after, .. } | Failure::Server { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }

    /// Whether the target does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self.failure, Failure::NotFound { .. })
    }
}

impl Classify for LinkError {
    fn class(&self) -> Class {
        self.failure.class()
    }
}

/// The failure of a request, or of the verb that made it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nothing listens at the API server's address.
    #[error("the API server refuses connections")]
    ConnectionRefused(#[source] Box<dyn StdError + Send + Sync>),
    /// The connection could not be opened, or was lost.
    #[error("the connection to the API server failed")]
    Connection(#[source] Box<dyn StdError + Send + Sync>),
    /// The response did not arrive in time.
    #[error("the API server did not respond within {}", format_duration(*.0))]
    Timeout(Duration),
    /// TLS failed, usually because of a certificate.
    #[error("TLS with the API server failed: {why}")]
    Tls {
        /// The error of rustls.
        why: String,
    },
    /// 401.
    #[error("the API server rejected the credential (401)")]
    Unauthorized,
    /// 403.
    #[error("the API server denied the request (403): {message}")]
    Forbidden {
        /// The API server's message.
        message: String,
    },
    /// 404.
    #[error("not found (404): {message}")]
    NotFound {
        /// The API server's message.
        message: String,
    },
    /// 409 because an object of that name exists.
    #[error("already exists (409): {message}")]
    AlreadyExists {
        /// The API server's message.
        message: String,
    },
    /// 409 because the object changed since it was read.
    #[error("changed by someone else (409): {message}")]
    Conflict {
        /// The API server's message.
        message: String,
    },
    /// 409 of a server-side apply: another manager owns fields.
    #[error("another manager owns fields (409): {message}")]
    FieldConflict {
        /// The API server's message, which names the managers and fields.
        message: String,
    },
    /// 410.
    #[error("the requested version is gone (410): {message}")]
    Gone {
        /// The API server's message.
        message: String,
    },
    /// 422, and 400 for a request that the server cannot parse.
    #[error("the API server rejected it as invalid ({code}): {message}")]
    Invalid {
        /// The status code.
        code: u16,
        /// The API server's message, which names the fields.
        message: String,
    },
    /// 429.
    #[error("the API server throttled the request (429): {message}")]
    TooManyRequests {
        /// The delay that the API server asked for.
        retry_after: Option<Duration>,
        /// The API server's message.
        message: String,
    },
    /// 5xx.
    #[error("the API server failed ({code}): {message}")]
    Server {
        /// The status code.
        code: u16,
        /// The delay that the API server asked for.
        retry_after: Option<Duration>,
        /// The API server's message.
        message: String,
    },
    /// Any other status code.
    #[error("the API server responded with {code}: {message}")]
    UnexpectedStatus {
        /// The status code.
        code: u16,
        /// The API server's message.
        message: String,
    },
    /// The response is not one of Kubernetes.
    #[error("the response could not be parsed")]
    InvalidResponse(#[source] Box<dyn StdError + Send + Sync>),
    /// The cluster does not serve such a kind.
    #[error("the cluster does not serve {kind} of {api_version}")]
    UnknownKind {
        /// Group and version.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// The request or the client could not be built; a bug on the client's side.
    #[error("the request could not be built")]
    Request(#[source] Box<dyn StdError + Send + Sync>),
    /// The time limit of the verb passed.
    #[error("after {} it still waits for {waiting_for}", format_duration(*.after))]
    TimeLimit {
        /// The limit.
        after: Duration,
        /// What was missing at the end.
        waiting_for: String,
    },
    /// The state of the cluster does not allow the verb.
    #[error("{why}")]
    Precondition {
        /// Why, and what would be accepted.
        why: String,
    },
}

/// Beginnings of messages with code 500 that are about the object and not about the server.
const NOT_OF_THE_SCHEMA: [&str; 2] = ["failed to create typed patch object", "failed to convert new object"];

impl Failure {
    /// Whether a retry can help.
    pub fn class(&self) -> Class {
        match self {
            Failure::ConnectionRefused(_)
            | Failure::Connection(_)
            | Failure::Timeout(_)
            | Failure::Conflict { .. }
            | Failure::Gone { .. }
            | Failure::TooManyRequests { .. }
            | Failure::Server { .. }
            | Failure::InvalidResponse(_)
            | Failure::TimeLimit { .. } => Class::Transient,
            Failure::Tls { .. }
            | Failure::Unauthorized
            | Failure::Forbidden { .. }
            | Failure::NotFound { .. }
            | Failure::AlreadyExists { .. }
            | Failure::FieldConflict { .. }
            | Failure::Invalid { .. }
            | Failure::UnexpectedStatus { .. }
            | Failure::UnknownKind { .. }
            | Failure::Request(_)
            | Failure::Precondition { .. } => Class::Terminal,
        }
    }

    pub(crate) fn from_kube(error: kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) => Failure::from_status(*status),
            kube::Error::Service(error) => transport(error),
            kube::Error::HyperError(error) => transport(Box::new(error)),
            kube::Error::ReadEvents(error) => transport(Box::new(error)),
            kube::Error::SerdeError(error) => Failure::InvalidResponse(Box::new(error)),
            kube::Error::FromUtf8(error) => Failure::InvalidResponse(Box::new(error)),
            kube::Error::RustlsTls(error) => Failure::Tls { why: error.to_string() },
            kube::Error::Discovery(error) => Failure::InvalidResponse(Box::new(error)),
            other => Failure::Request(Box::new(other)),
        }
    }

    pub(crate) fn from_watch(error: watcher::Error) -> Failure {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => Failure::from_kube(error),
            watcher::Error::WatchError(status) => Failure::from_status(*status),
            watcher::Error::NoResourceVersion => {
                Failure::InvalidResponse(Box::new(watcher::Error::NoResourceVersion))
            }
        }
    }

    pub(crate) fn from_status(status: Status) -> Failure {
        let field_conflict = status
            .details
            .as_ref()
            .is_some_and(|details| details.causes.iter().any(|cause| cause.reason == "FieldManagerConflict"));
        let retry_after = status
            .details
            .as_ref()
            .and_then(|details| (details.retry_after_seconds > 0).then_some(details.retry_after_seconds))
            .map(|seconds| Duration::from_secs(seconds.into()));
        let Status { code, message, reason, .. } = status;
        match code {
            400 | 413 | 415 | 422 => Failure::Invalid { code, message },
            401 => Failure::Unauthorized,
            403 => Failure::Forbidden { message },
            404 => Failure::NotFound { message },
            409 if field_conflict => Failure::FieldConflict { message },
            409 if reason == "AlreadyExists" => Failure::AlreadyExists { message },
            409 => Failure::Conflict { message },
            410 => Failure::Gone { message },
            429 => Failure::TooManyRequests { retry_after, message },
            // The API server's response to an object that does not match the schema of its kind.
            500 if NOT_OF_THE_SCHEMA.iter().any(|words| message.starts_with(words)) => {
                Failure::Invalid { code, message }
            }
            code if code >= 500 => Failure::Server { code, retry_after, message },
            code => Failure::UnexpectedStatus { code, message },
        }
    }
}

/// Finds the root cause of a failed request.
fn transport(error: Box<dyn StdError + Send + Sync>) -> Failure {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&*error);
    while let Some(at) = cause {
        if let Some(slow) = at.downcast_ref::<ResponseTimeout>() {
            return Failure::Timeout(slow.0);
        }
        if let Some(tls) = at.downcast_ref::<rustls::Error>() {
            return Failure::Tls { why: tls.to_string() };
        }
        if let Some(broken) = at.downcast_ref::<io::Error>() {
            if broken.kind() == io::ErrorKind::ConnectionRefused {
                return Failure::ConnectionRefused(error);
            }
            // An `io::Error` that wraps another error hides it from `source`.
            if let Some(inner) = broken.get_ref() {
                cause = Some(inner);
                continue;
            }
        }
        cause = at.source();
    }
    Failure::Connection(error)
}

/// A duration for people: `90 s`, `1.5 s`, `250 ms`.
pub(crate) fn format_duration(span: Duration) -> String {
    if span.subsec_millis() == 0 {
        format!("{} s", span.as_secs())
    } else if span < Duration::from_secs(1) {
        format!("{} ms", span.as_millis())
    } else {
        format!("{:.1} s", span.as_secs_f64())
    }
}

/// The error with its sources, each after a colon, for errors that are logged and not returned.
pub fn error_chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(at) = cause {
        let further = at.to_string();
        if !text.ends_with(&further) {
            text.push_str(": ");
            text.push_str(&further);
        }
        cause = at.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: u16, reason: &str, expect: Class) {
        let status = Status::failure("because", reason).with_code(code);
        let failure = Failure::from_status(status);
        assert_eq!(failure.class(), expect, "{code} {reason}: {failure}");
    }

    #[test]
    fn every_status_code_has_its_class() {
        check(401, "Unauthorized", Class::Terminal);
        check(403, "Forbidden", Class::Terminal);
        check(404, "NotFound", Class::Terminal);
        check(409, "Conflict", Class::Transient);
        check(409, "AlreadyExists", Class::Terminal);
        check(410, "Expired", Class::Transient);
        check(422, "Invalid", Class::Terminal);
        check(429, "TooManyRequests", Class::Transient);
        check(500, "InternalError", Class::Transient);
        check(503, "ServiceUnavailable", Class::Transient);
        check(504, "Timeout", Class::Transient);
        check(405, "MethodNotAllowed", Class::Terminal);
    }

    #[test]
    fn a_schema_error_is_not_a_failure_of_the_server() {
        let words = "failed to create typed patch object (x/b; /v1, Kind=ConfigMap): .daata: field not declared in schema";
        let failure = Failure::from_status(Status::failure(words, "").with_code(500));
        assert_eq!(failure.class(), Class::Terminal, "{failure}");
    }

    #[test]
    fn a_lost_connection_is_transient_and_an_invalid_certificate_is_not() {
        let refused = transport(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused)));
        assert!(matches!(refused, Failure::ConnectionRefused(_)), "{refused:?}");
        assert_eq!(refused.class(), Class::Transient);
        let wrapped =
            io::Error::other(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer));
        let untrusted = transport(Box::new(wrapped));
        assert_eq!(untrusted.class(), Class::Terminal);
        assert!(untrusted.to_string().contains("UnknownIssuer"), "{untrusted}");
        let slow = transport(Box::new(ResponseTimeout(Duration::from_secs(3))));
        assert_eq!(slow.to_string(), "the API server did not respond within 3 s");
    }

    #[test]
    fn an_error_reads_as_a_sentence() {
        let error = LinkError {
            cluster: "c1".into(),
            verb: "cordon",
            target: "node worker-1".into(),
            failure: Failure::Unauthorized,
        };
        let said = "cluster c1: could not cordon node worker-1: the API server rejected the credential (401)";
        assert_eq!(error.to_string(), said);
    }
}
