//! Faults of one cluster's API server, which can be added and removed while it runs.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use crate::status::StatusError;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Every response takes this much longer.
    Latency(Duration),
    /// 429 with `Retry-After`.
    TooManyRequests {
        /// Seconds after which the client may retry.
        retry_after_seconds: u32,
    },
    /// 500.
    InternalError,
    /// The connection is reset instead of a response.
    ConnectionReset,
    /// The server is unreachable: connections are refused or closed at once.
    Unreachable,
}

/// A fault and the requests that it applies to.
#[derive(Debug, Clone)]
struct Rule {
    fault: Fault,
    path: Option<String>,
    left: Option<u32>,
}

/// The faults of one cluster.
#[derive(Debug)]
pub struct Faults {
    rules: Mutex<Vec<Rule>>,
    dropped: watch::Sender<u64>,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults { rules: Mutex::default(), dropped: watch::Sender::new(0) }
    }
}

/// The faults of one request.
#[derive(Debug)]
pub(crate) struct RequestFaults {
    pub(crate) latency: Option<Duration>,
    pub(crate) action: FaultAction,
}

/// What happens to a request.
#[derive(Debug)]
pub(crate) enum FaultAction {
    Proceed,
    Respond(StatusError),
    Reset,
}

impl Faults {
    /// Applies a fault to every request from now on.
    pub fn always(&self, fault: Fault) {
        self.rules().push(Rule { fault, path: None, left: None });
    }

    /// Applies a fault to the next `times` requests.
    pub fn next_times(&self, fault: Fault, times: u32) {
        self.rules().push(Rule { fault, path: None, left: Some(times) });
    }

    /// Applies a fault to the next `times` requests whose path contains `path`, or to all of them.
    pub fn on_path(&self, fault: Fault, path: &str, times: Option<u32>) {
        self.rules().push(Rule { fault, path: Some(path.to_owned()), left: times });
    }

    /// Ends every open watch.
    pub fn drop_watches(&self) {
        self.dropped.send_modify(|count| *count += 1);
    }

    /// Removes all faults.
    pub fn clear(&self) {
        self.rules().clear();
    }

    /// The faults that are currently active.
    pub fn active(&self) -> Vec<Fault> {
        self.rules().iter().map(|rule| rule.fault).collect()
    }

    /// Whether no fault is active.
    pub(crate) fn is_clear(&self) -> bool {
        self.rules().is_empty()
    }

    /// Whether the server is unreachable.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.rules().iter().any(|rule| rule.fault == Fault::Unreachable)
    }

    /// Notifies when watches are dropped.
    pub(crate) fn dropped(&self) -> watch::Receiver<u64> {
        self.dropped.subscribe()
    }

    /// The faults of the next request; a counted fault is used up by it.
    pub(crate) fn take(&self, path: &str) -> RequestFaults {
        let mut rules = self.rules();
        let mut found = RequestFaults { latency: None, action: FaultAction::Proceed };
        for rule in rules.iter_mut() {
            if rule.path.as_ref().is_some_and(|wanted| !path.contains(wanted.as_str()))
                || rule.left == Some(0)
            {
                continue;
            }
            let spent = match rule.fault {
                Fault::Latency(latency) => {
                    found.latency = Some(found.latency.unwrap_or_default() + latency);
                    true
                }
                fault if matches!(found.action, FaultAction::Proceed) => {
                    found.action = action(fault);
                    true
                }
                _ => false,
            };
            if spent {
                rule.left = rule.left.map(|left| left.saturating_sub(1));
            }
        }
        rules.retain(|rule| rule.left != Some(0));
        found
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn action(fault: Fault) -> FaultAction {
    match fault {
        Fault::Latency(_) => FaultAction::Proceed,
        Fault::TooManyRequests { retry_after_seconds } => {
            let message = "too many requests, please try again later.";
            let mut failure = StatusError::new(429, "TooManyRequests", message);
            failure.details = json!({"retryAfterSeconds": retry_after_seconds});
            failure.retry_after = Some(retry_after_seconds);
            FaultAction::Respond(failure)
        }
        Fault::InternalError => FaultAction::Respond(StatusError::internal("injected fault")),
        Fault::ConnectionReset | Fault::Unreachable => FaultAction::Reset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_fault_is_used_up_by_matching_requests() {
        let faults = Faults::default();
        faults.on_path(Fault::InternalError, "/pods", Some(1));
        assert!(matches!(faults.take("/api/v1/nodes").action, FaultAction::Proceed));
        assert!(matches!(faults.take("/api/v1/pods").action, FaultAction::Respond(_)));
        assert!(matches!(faults.take("/api/v1/pods").action, FaultAction::Proceed));
        assert!(faults.active().is_empty());
    }

    #[test]
    fn latency_adds_up_and_does_not_hide_other_faults() {
        let faults = Faults::default();
        faults.always(Fault::Latency(Duration::from_millis(2)));
        faults.always(Fault::Latency(Duration::from_millis(3)));
        faults.next_times(Fault::ConnectionReset, 1);
        let found = faults.take("/");
        assert_eq!(found.latency, Some(Duration::from_millis(5)));
        assert!(matches!(found.action, FaultAction::Reset));
    }
}
