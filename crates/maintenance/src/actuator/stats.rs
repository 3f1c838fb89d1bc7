//! How long tasks take, for the plan: the last hundred durations of each, in a small document.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::doc::{Document as _, TaskStats};
use store::{By, StoreError};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::crew::{Crew, SERVICE};

/// Between two writes.
const EVERY: Duration = Duration::from_secs(60);

/// Durations that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Durations {
    fresh: Mutex<BTreeMap<Uuid, Vec<Duration>>>,
}

impl Durations {
    /// Runs of that task took so long.
    pub(super) fn note(&self, task: Uuid, took: impl IntoIterator<Item = Duration>) {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        fresh.entry(task).or_default().extend(took);
    }

    fn take(&self) -> BTreeMap<Uuid, Vec<Duration>> {
        std::mem::take(&mut *self.fresh.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Writes what was noted, at most once a minute and at the end.
pub(super) async fn keep<T>(crew: Arc<Crew<T>>, over: CancellationToken) {
    loop {
        let ended = over.run_until_cancelled(sleep(EVERY)).await.is_none();
        for (task, durations) in crew.durations.take() {
            if let Err(error) = merge(&crew, task, &durations).await {
                tracing::debug!(task.id = %task, error = %error, "How long task {task} takes is written later");
                crew.durations.note(task, durations);
            }
        }
        if ended {
            return;
        }
    }
}

async fn merge<T>(crew: &Crew<T>, task: Uuid, durations: &[Duration]) -> Result<(), StoreError> {
    let by = By::service(SERVICE);
    let stats = crew.store.collection::<TaskStats>();
    let mut wanted = TaskStats::of(task);
    let read = stats.find(&wanted.path()).await?;
    if let Some(read) = &read {
        wanted = read.document.clone();
    }
    wanted.add(durations.iter().copied());
    match read {
        Some(read) => stats.update(&read, &wanted, &by).await.map(drop),
        None => stats.create(&wanted, &by).await.map(drop),
    }
}
