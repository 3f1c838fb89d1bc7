//! A task that panics again and again is stopped for the whole fleet: its budget is set to 0, where an operator finds it,
//! with the reason in the audit log, and lifts it again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use store::{AuditContext, Store};
use tokio::time::Instant;
use uuid::Uuid;

use super::crew::SERVICE;

/// So many panics
const PANICS_MAX: usize = 3;
/// within this time stop a task.
const WITHIN: Duration = Duration::from_secs(60 * 60);

/// The panics of each task, as this process saw them.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    panics: Mutex<HashMap<Uuid, Vec<Instant>>>,
}

impl Breaker {
    /// A task panicked; stops it if it did so too often.
    pub(super) async fn panicked(&self, store: &Store, task: Uuid, now: Instant) {
        if !self.count(task, now) {
            return;
        }
        let key = format!("task/{task}");
        let reason = format!("task {task} panicked {PANICS_MAX} times within an hour");
        tracing::error!(task.id = %task, "{reason}: no more of it are started; PUT /admin/maintenancebudgets lifts that");
        let by = AuditContext { reason, ..AuditContext::service(SERVICE) };
        let entry = by.entry("budget.set", &key, None, Some(&Value::from(0)));
        if let Err(error) = store.set_budget(&key, Some(0), Some(entry)).await {
            tracing::error!(task.id = %task, error = &error as &dyn std::error::Error, "Task {task} could not be stopped");
        }
    }

    /// Whether this panic is one too many.
    fn count(&self, task: Uuid, now: Instant) -> bool {
        let mut panics = self.panics.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = panics.entry(task).or_default();
        seen.retain(|at| now.duration_since(*at) < WITHIN);
        seen.push(now);
        let too_many = seen.len() >= PANICS_MAX;
        if too_many {
            // Whoever lifts the stop gives the task a fresh start.
            seen.clear();
        }
        too_many
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_panic_within_an_hour_is_one_too_many() {
        let (breaker, task, start) = (Breaker::default(), Uuid::from_u128(1), Instant::now());
        let minute = |count: u64| start + Duration::from_secs(60 * count);
        assert!(!breaker.count(task, minute(0)));
        assert!(!breaker.count(Uuid::from_u128(2), minute(1)));
        assert!(!breaker.count(task, minute(30)));
        assert!(!breaker.count(task, minute(61)), "the first is an hour ago");
        assert!(breaker.count(task, minute(62)));
        assert!(!breaker.count(task, minute(63)), "a fresh start");
    }
}
