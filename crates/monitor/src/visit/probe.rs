//! Whether an API server answers, and why not.

use std::error::Error as StdError;
use std::io;

use api::doc::ReachabilityFailure;
use http::StatusCode;
use kubelink::{Failure, LinkError};

use super::fetch::{FetchError, Fetcher};

/// Most failing checks that are named.
const CHECKS_MAX: usize = 20;

/// The result of asking an API server how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Probe {
    /// Status of `/healthz`; 0 if there was no response.
    pub(crate) code: u16,
    /// Status of `/healthz/ping`, which was asked because the first failed; 0 if there was no response.
    pub(crate) ping: Option<u16>,
    /// Names of the checks of `/readyz` that fail.
    pub(crate) failed_checks: Vec<String>,
    /// Why it is not healthy.
    pub(crate) failure: Option<(ReachabilityFailure, String)>,
}

impl Probe {
    /// Whether `/healthz` says that the server is healthy.
    pub(crate) fn is_healthy(&self) -> bool {
        self.failure.is_none()
    }

    /// The result when the whole visit was over before there was one.
    pub(crate) fn timed_out() -> Probe {
        let failure = (ReachabilityFailure::Timeout, "the API server did not respond in time".to_owned());
        Probe { code: 0, ping: Some(0), failed_checks: Vec::new(), failure: Some(failure) }
    }

    /// Whether the server is there, healthy or not: collectors may fail, but it is not out of reach.
    pub(crate) fn is_reachable(&self) -> bool {
        self.is_healthy() || self.ping == Some(200)
    }
}

/// Asks `/healthz`; if that fails with a response, also `/healthz/ping` and `/readyz`.
pub(crate) async fn probe(fetcher: &Fetcher) -> Probe {
    let mut probe = Probe { code: 0, ping: None, failed_checks: Vec::new(), failure: None };
    match fetcher.get("/healthz").await {
        Ok((status, body)) => {
            probe.code = status.as_u16();
            probe.failure = response_failure(status, &body);
        }
        Err(error) => probe.failure = Some((classify(&error), error.to_string())),
    }
    if probe.is_healthy() {
        return probe;
    }
    if probe.code == 0 {
        // Nothing is there; asking again would only take as long again.
        probe.ping = Some(0);
        return probe;
    }
    probe.ping = Some(match fetcher.get("/healthz/ping").await {
        Ok((status, body)) if response_failure(status, &body).is_none() => 200,
        Ok((StatusCode::OK, _)) | Err(_) => 0,
        Ok((status, _)) => status.as_u16(),
    });
    if let Ok((_, body)) = fetcher.get("/readyz?verbose").await {
        probe.failed_checks = failed_checks(&String::from_utf8_lossy(&body));
    }
    probe
}

/// Why a response to `/healthz` is not one of a healthy API server; it answers `ok`.
fn response_failure(status: StatusCode, body: &[u8]) -> Option<(ReachabilityFailure, String)> {
    match status {
        StatusCode::OK if body.trim_ascii() == b"ok" => None,
        StatusCode::OK => Some((ReachabilityFailure::Http, "what answers is not an API server".to_owned())),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some((
            ReachabilityFailure::Auth,
            format!("the API server rejected the credential ({})", status.as_u16()),
        )),
        status => Some((ReachabilityFailure::Http, format!("/healthz returned {}", status.as_u16()))),
    }
}

/// The names of failing checks in the verbose output, of which each is a line `[-]etcd failed: reason withheld`.
fn failed_checks(verbose: &str) -> Vec<String> {
    let failed = verbose.lines().filter_map(|line| line.strip_prefix("[-]")?.split_whitespace().next());
    failed.take(CHECKS_MAX).map(str::to_owned).collect()
}

/// The class of a failed request.
pub(crate) fn classify(error: &FetchError) -> ReachabilityFailure {
    match error {
        FetchError::Link(error) => classify_link(error),
        FetchError::Over => ReachabilityFailure::Timeout,
        FetchError::Status { status, .. }
            if matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) =>
        {
            ReachabilityFailure::Auth
        }
        FetchError::Status { .. }
        | FetchError::TooLarge { .. }
        | FetchError::TooMany { .. }
        | FetchError::Unreadable { .. } => ReachabilityFailure::Http,
    }
}

/// The class of a failed request of `kubelink`.
fn classify_link(error: &LinkError) -> ReachabilityFailure {
    match &error.failure {
        Failure::Timeout(_) | Failure::TimeLimit { .. } => ReachabilityFailure::Timeout,
        Failure::Tls { .. } => ReachabilityFailure::Tls,
        Failure::Unauthorized | Failure::Forbidden { .. } => ReachabilityFailure::Auth,
        Failure::ConnectionRefused(_) => ReachabilityFailure::Connect,
        Failure::Connection(cause) | Failure::Request(cause) => classify_transport(&**cause),
        Failure::NotFound { .. }
        | Failure::AlreadyExists { .. }
        | Failure::Conflict { .. }
        | Failure::FieldConflict { .. }
        | Failure::Gone { .. }
        | Failure::Invalid { .. }
        | Failure::TooManyRequests { .. }
        | Failure::Server { .. }
        | Failure::UnexpectedStatus { .. }
        | Failure::InvalidResponse(_)
        | Failure::UnknownKind { .. }
        | Failure::Precondition { .. } => ReachabilityFailure::Http,
    }
}

/// The class of an error of the transport, by its causes.
fn classify_transport(error: &(dyn StdError + 'static)) -> ReachabilityFailure {
    let mut cause = Some(error);
    while let Some(at) = cause {
        // hyper-util has no type for it; this is the message of its resolver.
        if at.to_string().starts_with("dns error") {
            return ReachabilityFailure::Dns;
        }
        if let Some(broken) = at.downcast_ref::<io::Error>() {
            if broken.kind() == io::ErrorKind::TimedOut {
                return ReachabilityFailure::Timeout;
            }
            if let Some(inner) = broken.get_ref() {
                cause = Some(inner);
                continue;
            }
        }
        cause = at.source();
    }
    ReachabilityFailure::Connect
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ok_from_an_api_server_is_healthy() {
        let check = |status, body: &[u8], expect| {
            let failure = response_failure(StatusCode::from_u16(status).unwrap(), body).map(|it| it.0);
            assert_eq!(failure, expect, "{status} {}", String::from_utf8_lossy(body));
        };
        check(200, b"ok", None);
        check(200, b"ok\n", None);
        check(200, b"<html><body>Sign in</body></html>", Some(ReachabilityFailure::Http));
        check(401, b"", Some(ReachabilityFailure::Auth));
        check(403, b"", Some(ReachabilityFailure::Auth));
        check(500, b"", Some(ReachabilityFailure::Http));
        check(302, b"", Some(ReachabilityFailure::Http));
    }

    #[test]
    fn failing_checks_are_named() {
        let verbose = "[+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok\n[-]poststarthook/x failed\nreadyz check failed";
        assert_eq!(failed_checks(verbose), ["etcd", "poststarthook/x"]);
        assert!(failed_checks("<html>").is_empty());
        assert_eq!(failed_checks(&"[-]x\n".repeat(1000)).len(), CHECKS_MAX);
    }

    #[test]
    fn errors_of_the_transport_have_a_class() {
        let timed_out = io::Error::other(io::Error::from(io::ErrorKind::TimedOut));
        assert_eq!(classify_transport(&timed_out), ReachabilityFailure::Timeout);
        assert_eq!(classify_transport(&io::Error::other("reset")), ReachabilityFailure::Connect);
        assert_eq!(
            classify_transport(&io::Error::other("dns error: no such host")),
            ReachabilityFailure::Dns
        );
    }
}
