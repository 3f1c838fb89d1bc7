//! Faults of one cluster's API server, turned on and off while it runs.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use crate::status::StatusError;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Every answer takes this much longer.
    Latency(Duration),
    /// 429 with `Retry-After`.
    TooManyRequests {
        /// After how many seconds the caller may try again.
        retry_after_seconds: u32,
    },
    /// 500.
    InternalError,
    /// The connection breaks instead of an answer.
    ConnectionReset,
    /// Nobody answers: connections are refused or broken as soon as they are made.
    Unreachable,
}

/// A fault with its bounds.
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

/// What happens to one request.
#[derive(Debug)]
pub(crate) struct RequestFaults {
    pub(crate) latency: Option<Duration>,
    pub(crate) action: FaultAction,
}

/// What happens instead of an answer.
#[derive(Debug)]
pub(crate) enum FaultAction {
    Proceed,
    Respond(StatusError),
    Reset,
}

impl Faults {
    /// From now on every request meets this fault.
    pub fn always(&self, fault: Fault) {
        self.rules().push(Rule { fault, path: None, left: None });
    }

    /// The next `times` requests meet this fault.
    pub fn next_times(&self, fault: Fault, times: u32) {
        self.rules().push(Rule { fault, path: None, left: Some(times) });
    }

    /// The next `times` requests whose path contains `path` meet this fault.
    pub fn on_path(&self, fault: Fault, path: &str, times: Option<u32>) {
        self.rules().push(Rule { fault, path: Some(path.to_owned()), left: times });
    }

    /// Every watch that is open now ends.
    pub fn drop_watches(&self) {
        self.dropped.send_modify(|count| *count += 1);
    }

    /// No faults any longer.
    pub fn clear(&self) {
        self.rules().clear();
    }

    /// The faults that are on now.
    pub fn active(&self) -> Vec<Fault> {
        self.rules().iter().map(|rule| rule.fault).collect()
    }

    /// Whether nothing goes wrong now.
    pub(crate) fn is_clear(&self) -> bool {
        self.rules().is_empty()
    }

    /// Whether nobody answers.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.rules().iter().any(|rule| rule.fault == Fault::Unreachable)
    }

    /// Tells when watches are dropped.
    pub(crate) fn dropped(&self) -> watch::Receiver<u64> {
        self.dropped.subscribe()
    }

    /// What happens to the next request, which spends one of the counted faults.
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
        Fault::InternalError => FaultAction::Respond(StatusError::internal("a fault was asked for")),
        Fault::ConnectionReset | Fault::Unreachable => FaultAction::Reset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_fault_is_spent_by_the_requests_it_meets() {
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
