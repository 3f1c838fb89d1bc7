//! Stops a task that panics repeatedly in the whole fleet: sets its budget to 0, with the reason in the audit log, until an
//! operator raises it again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use store::{AuditContext, Store};
use tokio::time::Instant;
use uuid::Uuid;

use super::service::SERVICE;

/// Number of panics within [`PANIC_WINDOW`] that stops a task.
const PANICS_MAX: usize = 3;
const PANIC_WINDOW: Duration = Duration::from_secs(60 * 60);

/// Recent panics of each task in this process.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    panics: Mutex<HashMap<Uuid, Vec<Instant>>>,
}

impl Breaker {
    /// Records a panic, and stops the task if there were too many.
    pub(super) async fn record_panic(&self, store: &Store, task: Uuid, now: Instant) {
        if !self.count(task, now) {
            return;
        }
        let key = format!("task/{task}");
        let reason = format!("task {task} panicked {PANICS_MAX} times within an hour");
        tracing::error!(task.id = %task, "{reason}; its budget is now 0, PUT /admin/maintenancebudgets/{key} restores it");
        let audit = AuditContext { reason, ..AuditContext::service(SERVICE) };
        let entry = audit.entry("budget.set", &key, None, Some(&Value::from(0)));
        if let Err(error) = store.set_budget(&key, Some(0), Some(entry)).await {
            tracing::error!(task.id = %task, error = &error as &dyn std::error::Error, "Cannot set the budget of task {task} to 0");
        }
    }

    /// Counts a panic; returns whether it reaches the limit.
    fn count(&self, task: Uuid, now: Instant) -> bool {
        let mut panics = self.panics.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = panics.entry(task).or_default();
        recent.retain(|at| now.duration_since(*at) < PANIC_WINDOW);
        recent.push(now);
        let too_many = recent.len() >= PANICS_MAX;
        if too_many {
            // Counting starts anew once an operator restores the budget.
            recent.clear();
        }
        too_many
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_panic_within_an_hour_reaches_the_limit() {
        let (breaker, task, start) = (Breaker::default(), Uuid::from_u128(1), Instant::now());
        let minute = |count: u64| start + Duration::from_secs(60 * count);
        assert!(!breaker.count(task, minute(0)));
        assert!(!breaker.count(Uuid::from_u128(2), minute(1)));
        assert!(!breaker.count(task, minute(30)));
        assert!(!breaker.count(task, minute(61)), "the first is an hour ago");
        assert!(breaker.count(task, minute(62)));
        assert!(!breaker.count(task, minute(63)), "counting starts anew");
    }
}
