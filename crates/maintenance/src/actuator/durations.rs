//! Durations of tasks, for the plan: the last hundred of each task, in a small document.
//!
//! The first runs of a task are written soon, because the plan has no other estimate; later ones once a minute. The number of
//! writes follows the number of tasks, and no reader needs the history.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::doc::{Document as _, TASK_RUNS_MAX, TaskStats};
use store::{AuditContext, StoreError, Transaction};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::service::{Actuator, SERVICE};

/// Interval between two writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);
/// Delay between one of the first runs of a task and its write.
const FIRST_WRITE_DELAY: Duration = Duration::from_secs(1);
/// Number of runs of a task in this process that are written soon.
const FIRST_RUNS: u64 = 20;

/// Durations that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Durations {
    unwritten: Mutex<BTreeMap<Uuid, UnwrittenDurations>>,
    /// Notified by the first runs of a task.
    first_runs: Notify,
}

/// Unwritten durations of one task.
#[derive(Debug, Default)]
struct UnwrittenDurations {
    /// Latest durations.
    last: VecDeque<Duration>,
    /// Number of earlier durations that were dropped.
    forgotten: u64,
    /// Number of runs since the start of this process.
    runs: u64,
}

impl UnwrittenDurations {
    fn push(&mut self, took: Duration) {
        if self.last.len() == TASK_RUNS_MAX {
            self.last.pop_front();
            self.forgotten += 1;
        }
        self.last.push_back(took);
    }
}

impl Durations {
    /// Records the duration of a run.
    pub(super) fn record(&self, task: Uuid, took: Duration) {
        let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        let durations = unwritten.entry(task).or_default();
        durations.push(took);
        durations.runs += 1;
        if durations.runs <= FIRST_RUNS {
            self.first_runs.notify_one();
        }
    }

    /// Removes and returns the unwritten durations by task.
    fn take(&self) -> Vec<(Uuid, VecDeque<Duration>, u64)> {
        let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        let unwritten = unwritten.iter_mut().filter(|(_, it)| !it.last.is_empty());
        unwritten
            .map(|(task, it)| (*task, std::mem::take(&mut it.last), std::mem::take(&mut it.forgotten)))
            .collect()
    }

    /// Restores durations that could not be written, before those recorded since.
    fn restore(&self, task: Uuid, earlier: VecDeque<Duration>, forgotten: u64) {
        let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        let durations = unwritten.entry(task).or_default();
        let since = std::mem::replace(&mut durations.last, earlier);
        durations.forgotten += forgotten;
        for took in since {
            durations.push(took);
        }
    }
}

/// Writes durations: soon while a task is new, else at most once a minute; and at the end.
pub(super) async fn write_periodically<T>(actuator: Arc<Actuator<T>>, stopped: CancellationToken) {
    let due = async || {
        tokio::select! {
            () = sleep(WRITE_INTERVAL) => {}
            () = actuator.durations.first_runs.notified() => sleep(FIRST_WRITE_DELAY).await,
        }
    };
    loop {
        let is_last = stopped.run_until_cancelled(due()).await.is_none();
        for (task, durations, forgotten) in actuator.durations.take() {
            if let Err(error) = merge(&actuator, task, &durations, forgotten).await {
                tracing::debug!(task.id = %task, error = %error, "Cannot write the durations of task {task}; writing them later");
                actuator.durations.restore(task, durations, forgotten);
            }
        }
        if is_last {
            return;
        }
    }
}

async fn merge<T>(
    actuator: &Actuator<T>,
    task: Uuid,
    durations: &VecDeque<Duration>,
    forgotten: u64,
) -> Result<(), StoreError> {
    let audit = AuditContext::service(SERVICE);
    let stats = actuator.store.collection::<TaskStats>();
    let mut updated = TaskStats::of(task);
    let stored = stats.find(&updated.path()).await?;
    if let Some(stored) = &stored {
        updated = stored.document.clone();
    }
    updated.add_forgotten(forgotten);
    updated.add(durations.iter().copied());
    match stored {
        // An observation that is written all day: the audit log has only its creation.
        Some(stored) => actuator.store.commit(Transaction::new().observe(&stored, &updated)?).await.map(drop),
        None => stats.create(&updated, &audit).await.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwritten_durations_are_bounded_and_dropped_ones_are_counted() {
        let (durations, task) = (Durations::default(), Uuid::from_u128(1));
        for number in 0..250 {
            durations.record(task, Duration::from_secs(number));
        }
        let taken = durations.take();
        let (_, last, forgotten) = &taken[0];
        assert_eq!((last.len(), last.front(), *forgotten), (100, Some(&Duration::from_secs(150)), 150));
        assert!(durations.take().is_empty());
        durations.record(task, Duration::from_secs(999));
        for (task, last, forgotten) in taken {
            durations.restore(task, last, forgotten);
        }
        let (_, last, forgotten) = durations.take().remove(0);
        assert_eq!((last.len(), last.back(), forgotten), (100, Some(&Duration::from_secs(999)), 151));
    }
}
