//! How long tasks take, for the plan: the last hundred durations of each, in a small document.
//!
//! The first runs of a task are written soon, because the plan knows nothing else of it; later ones once a minute. So what is
//! written follows the number of tasks, and nobody ever reads the history for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::doc::{Document as _, TASK_RUNS_MAX, TaskStats};
use store::{AuditContext, StoreError, Transaction};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::crew::{Crew, SERVICE};

/// Between two writes.
const EVERY: Duration = Duration::from_secs(60);
/// Between the first runs of a task and their write.
const SOON: Duration = Duration::from_secs(1);
/// So many runs of a task, as this process counts them, are written soon.
const FIRST_RUNS: u64 = 20;

/// Durations that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Durations {
    fresh: Mutex<BTreeMap<Uuid, Fresh>>,
    /// Rung by the first runs of a task.
    first: Notify,
}

/// What is known of a task.
#[derive(Debug, Default)]
struct Fresh {
    /// The last ones that are not written.
    last: VecDeque<Duration>,
    /// So many earlier ones are not written either, and forgotten.
    forgotten: u64,
    /// So many runs were noted since this process began.
    noted: u64,
}

impl Fresh {
    fn push(&mut self, took: Duration) {
        if self.last.len() == TASK_RUNS_MAX {
            self.last.pop_front();
            self.forgotten += 1;
        }
        self.last.push_back(took);
    }
}

impl Durations {
    /// A run of that task took so long.
    pub(super) fn note(&self, task: Uuid, took: Duration) {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = fresh.entry(task).or_default();
        fresh.push(took);
        fresh.noted += 1;
        if fresh.noted <= FIRST_RUNS {
            self.first.notify_one();
        }
    }

    /// What was not written, by task.
    fn take(&self) -> Vec<(Uuid, VecDeque<Duration>, u64)> {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        let unwritten = fresh.iter_mut().filter(|(_, it)| !it.last.is_empty());
        unwritten
            .map(|(task, it)| (*task, std::mem::take(&mut it.last), std::mem::take(&mut it.forgotten)))
            .collect()
    }

    /// Puts back what could not be written, before what was noted since.
    fn put_back(&self, task: Uuid, durations: VecDeque<Duration>, forgotten: u64) {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = fresh.entry(task).or_default();
        let since = std::mem::replace(&mut fresh.last, durations);
        fresh.forgotten += forgotten;
        for took in since {
            fresh.push(took);
        }
    }
}

/// Writes what was noted: soon while a task is new, else at most once a minute; and at the end.
pub(super) async fn keep<T>(crew: Arc<Crew<T>>, over: CancellationToken) {
    let due = async || {
        tokio::select! {
            () = sleep(EVERY) => {}
            () = crew.durations.first.notified() => sleep(SOON).await,
        }
    };
    loop {
        let ended = over.run_until_cancelled(due()).await.is_none();
        for (task, durations, forgotten) in crew.durations.take() {
            if let Err(error) = merge(&crew, task, &durations, forgotten).await {
                tracing::debug!(task.id = %task, error = %error, "How long task {task} takes is written later");
                crew.durations.put_back(task, durations, forgotten);
            }
        }
        if ended {
            return;
        }
    }
}

async fn merge<T>(
    crew: &Crew<T>,
    task: Uuid,
    durations: &VecDeque<Duration>,
    forgotten: u64,
) -> Result<(), StoreError> {
    let by = AuditContext::service(SERVICE);
    let stats = crew.store.collection::<TaskStats>();
    let mut wanted = TaskStats::of(task);
    let read = stats.find(&wanted.path()).await?;
    if let Some(read) = &read {
        wanted = read.document.clone();
    }
    wanted.add_forgotten(forgotten);
    wanted.add(durations.iter().copied());
    match read {
        // Nobody decided it, and it is written all day: the audit log has only its beginning.
        Some(read) => crew.store.commit(Transaction::new().observe(&read, &wanted)?).await.map(drop),
        None => stats.create(&wanted, &by).await.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_written_is_bounded_and_counted() {
        let (durations, task) = (Durations::default(), Uuid::from_u128(1));
        for number in 0..250 {
            durations.note(task, Duration::from_secs(number));
        }
        let taken = durations.take();
        let (_, last, forgotten) = &taken[0];
        assert_eq!((last.len(), last.front(), *forgotten), (100, Some(&Duration::from_secs(150)), 150));
        assert!(durations.take().is_empty());
        durations.note(task, Duration::from_secs(999));
        for (task, last, forgotten) in taken {
            durations.put_back(task, last, forgotten);
        }
        let (_, last, forgotten) = durations.take().remove(0);
        assert_eq!((last.len(), last.back(), forgotten), (100, Some(&Duration::from_secs(999)), 151));
    }
}
