//! What went wrong on a cluster, and whether trying again can help.
//!
//! Every failure of a verb says which cluster, which verb, on what, and what happened, in one sentence. The class is
//! chosen here, where the answer of an API server and the errors of the transport are understood, and nowhere else.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::error::{Class, Classify};
use kube::core::Status;
use kube::runtime::watcher;

use crate::bounded::TooSlow;

/// A verb that failed on a cluster.
#[derive(Debug, thiserror::Error)]
#[error("cluster {cluster}: could not {verb} {target}: {failure}")]
pub struct LinkError {
    /// The cluster, as the link was named.
    pub cluster: Arc<str>,
    /// What was tried, as it continues "could not": `drain`, `read`, `apply`.
    pub verb: &'static str,
    /// What it was tried on: `node worker-1`, `Deployment web/frontend`.
    pub target: String,
    /// What happened.
    pub failure: Failure,
}

impl LinkError {
    /// What happened, if the API server asked for a pause: how long.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.failure {
            Failure::TooManyRequests { retry_after, .. } | Failure::Server { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }

    /// Whether the thing asked for is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self.failure, Failure::NotFound { .. })
    }
}

impl Classify for LinkError {
    fn class(&self) -> Class {
        self.failure.class()
    }
}

/// What happened to a request, or to the verb that made it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nothing listens at the API server's address.
    #[error("the API server refuses connections")]
    Refused(#[source] Box<dyn StdError + Send + Sync>),
    /// The connection could not be made, or broke.
    #[error("the connection to the API server failed")]
    Connection(#[source] Box<dyn StdError + Send + Sync>),
    /// No answer came in time.
    #[error("the API server gave no answer within {}", spell(*.0))]
    NoAnswer(Duration),
    /// The certificates of the two sides do not fit each other.
    #[error("TLS with the API server failed: {why}")]
    Untrusted {
        /// What rustls found.
        why: String,
    },
    /// 401.
    #[error("the API server does not accept our credential (401)")]
    Unauthorized,
    /// 403.
    #[error("the API server forbids it (403): {message}")]
    Forbidden {
        /// The server's words.
        message: String,
    },
    /// 404.
    #[error("it is not there (404): {message}")]
    NotFound {
        /// The server's words.
        message: String,
    },
    /// 409 because something by that name exists.
    #[error("it exists already (409): {message}")]
    AlreadyExists {
        /// The server's words.
        message: String,
    },
    /// 409 because it changed since it was read.
    #[error("it changed meanwhile (409): {message}")]
    Conflict {
        /// The server's words.
        message: String,
    },
    /// 409 of a server-side apply: fields belong to another manager.
    #[error("fields of it belong to another manager (409): {message}")]
    FieldConflict {
        /// The server's words, which name the managers and fields.
        message: String,
    },
    /// 410.
    #[error("the version asked for is no longer kept (410): {message}")]
    Gone {
        /// The server's words.
        message: String,
    },
    /// 422, and 400 for what the server cannot read.
    #[error("the API server finds it invalid ({code}): {message}")]
    Invalid {
        /// The status code.
        code: u16,
        /// The server's words, which name the fields.
        message: String,
    },
    /// 429.
    #[error("the API server asks us to slow down (429): {message}")]
    TooManyRequests {
        /// How long it asks us to wait.
        retry_after: Option<Duration>,
        /// The server's words.
        message: String,
    },
    /// 5xx.
    #[error("the API server failed ({code}): {message}")]
    Server {
        /// The status code.
        code: u16,
        /// How long it asks us to wait.
        retry_after: Option<Duration>,
        /// The server's words.
        message: String,
    },
    /// Any other status code.
    #[error("the API server answered {code}: {message}")]
    Answer {
        /// The status code.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// The answer is not what Kubernetes answers.
    #[error("the answer could not be read")]
    Unreadable(#[source] Box<dyn StdError + Send + Sync>),
    /// The cluster does not serve such a kind.
    #[error("the cluster does not serve {kind} of {api_version}")]
    UnknownKind {
        /// Group and version.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// The request or the client could not be built; a mistake on our side of the wire.
    #[error("the request could not be made")]
    Request(#[source] Box<dyn StdError + Send + Sync>),
    /// The verb's own time limit passed.
    #[error("after {} it still waits for {waiting_for}", spell(*.after))]
    TimeLimit {
        /// The limit.
        after: Duration,
        /// What was missing at the end.
        waiting_for: String,
    },
    /// The world is such that going on would be wrong.
    #[error("{why}")]
    Refusal {
        /// Why, and what would be accepted.
        why: String,
    },
}

/// How a message of code 500 begins that is about the object and not about the server.
const NOT_OF_THE_SCHEMA: [&str; 2] = ["failed to create typed patch object", "failed to convert new object"];

impl Failure {
    /// Whether trying again can help.
    pub fn class(&self) -> Class {
        match self {
            Failure::Refused(_)
            | Failure::Connection(_)
            | Failure::NoAnswer(_)
            | Failure::Conflict { .. }
            | Failure::Gone { .. }
            | Failure::TooManyRequests { .. }
            | Failure::Server { .. }
            | Failure::Unreadable(_)
            | Failure::TimeLimit { .. } => Class::Transient,
            Failure::Untrusted { .. }
            | Failure::Unauthorized
            | Failure::Forbidden { .. }
            | Failure::NotFound { .. }
            | Failure::AlreadyExists { .. }
            | Failure::FieldConflict { .. }
            | Failure::Invalid { .. }
            | Failure::Answer { .. }
            | Failure::UnknownKind { .. }
            | Failure::Request(_)
            | Failure::Refusal { .. } => Class::Terminal,
        }
    }

    pub(crate) fn of(error: kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) => Failure::of_status(*status),
            kube::Error::Service(error) => transport(error),
            kube::Error::HyperError(error) => transport(Box::new(error)),
            kube::Error::ReadEvents(error) => transport(Box::new(error)),
            kube::Error::SerdeError(error) => Failure::Unreadable(Box::new(error)),
            kube::Error::FromUtf8(error) => Failure::Unreadable(Box::new(error)),
            kube::Error::RustlsTls(error) => Failure::Untrusted { why: error.to_string() },
            kube::Error::Discovery(error) => Failure::Unreadable(Box::new(error)),
            other => Failure::Request(Box::new(other)),
        }
    }

    pub(crate) fn of_watch(error: watcher::Error) -> Failure {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => Failure::of(error),
            watcher::Error::WatchError(status) => Failure::of_status(*status),
            watcher::Error::NoResourceVersion => {
                Failure::Unreadable(Box::new(watcher::Error::NoResourceVersion))
            }
        }
    }

    pub(crate) fn of_status(status: Status) -> Failure {
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
            // How an API server says that what is applied does not fit the schema of its kind.
            500 if NOT_OF_THE_SCHEMA.iter().any(|words| message.starts_with(words)) => {
                Failure::Invalid { code, message }
            }
            code if code >= 500 => Failure::Server { code, retry_after, message },
            code => Failure::Answer { code, message },
        }
    }
}

/// Finds what lies at the bottom of a broken request.
fn transport(error: Box<dyn StdError + Send + Sync>) -> Failure {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&*error);
    while let Some(at) = cause {
        if let Some(slow) = at.downcast_ref::<TooSlow>() {
            return Failure::NoAnswer(slow.0);
        }
        if let Some(tls) = at.downcast_ref::<rustls::Error>() {
            return Failure::Untrusted { why: tls.to_string() };
        }
        if let Some(broken) = at.downcast_ref::<io::Error>() {
            if broken.kind() == io::ErrorKind::ConnectionRefused {
                return Failure::Refused(error);
            }
            // An `io::Error` made of another error hides it from `source`.
            if let Some(inner) = broken.get_ref() {
                cause = Some(inner);
                continue;
            }
        }
        cause = at.source();
    }
    Failure::Connection(error)
}

/// A duration as people say it: `90s`, `1.5s`, `250ms`.
pub(crate) fn spell(span: Duration) -> String {
    if span.subsec_millis() == 0 {
        format!("{} s", span.as_secs())
    } else if span < Duration::from_secs(1) {
        format!("{} ms", span.as_millis())
    } else {
        format!("{:.1} s", span.as_secs_f64())
    }
}

/// The error with its causes, each after a colon: how a failure that will not be returned is told.
pub fn chain(error: &dyn StdError) -> String {
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
        let failure = Failure::of_status(status);
        assert_eq!(failure.class(), expect, "{code} {reason}: {failure}");
    }

    #[test]
    fn every_answer_has_its_class() {
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
    fn an_object_that_does_not_fit_is_not_the_servers_failure() {
        let words = "failed to create typed patch object (x/b; /v1, Kind=ConfigMap): .daata: field not declared in schema";
        let failure = Failure::of_status(Status::failure(words, "").with_code(500));
        assert_eq!(failure.class(), Class::Terminal, "{failure}");
    }

    #[test]
    fn a_lost_connection_is_transient_and_a_wrong_certificate_is_not() {
        let refused = transport(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused)));
        assert!(matches!(refused, Failure::Refused(_)), "{refused:?}");
        assert_eq!(refused.class(), Class::Transient);
        let wrapped =
            io::Error::other(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer));
        let untrusted = transport(Box::new(wrapped));
        assert_eq!(untrusted.class(), Class::Terminal);
        assert!(untrusted.to_string().contains("UnknownIssuer"), "{untrusted}");
        let slow = transport(Box::new(TooSlow(Duration::from_secs(3))));
        assert_eq!(slow.to_string(), "the API server gave no answer within 3 s");
    }

    #[test]
    fn an_error_reads_as_a_sentence() {
        let error = LinkError {
            cluster: "c1".into(),
            verb: "cordon",
            target: "node worker-1".into(),
            failure: Failure::Unauthorized,
        };
        let said =
            "cluster c1: could not cordon node worker-1: the API server does not accept our credential (401)";
        assert_eq!(error.to_string(), said);
    }
}
