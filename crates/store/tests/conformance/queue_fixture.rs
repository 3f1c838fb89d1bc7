//! Short forms for work and leases, for the tests of the queue.

use std::time::Duration;

use api::work::{Ending, WorkKind};
use jiff::Timestamp;
use serde_json::json;
use store::{ClaimedWork, Completion, CompletionOutcome, NewWork, Release, Store, WorkLease};
use tokio::time::Instant;
use uuid::Uuid;

/// Longer than any wait of a test, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A manifest that may start at once.
pub(crate) fn manifest(lane: Uuid) -> NewWork {
    NewWork::new(Uuid::now_v7(), lane, WorkKind::Manifest)
}

/// An operation that may start at once.
pub(crate) fn operation(lane: Uuid) -> NewWork {
    NewWork::new(Uuid::now_v7(), lane, WorkKind::Operation)
}

/// Further properties of work.
pub(crate) trait WorkProperties {
    /// Earliest start.
    fn after(self, at: Timestamp) -> NewWork;
    /// Latest start, exclusive.
    fn before(self, at: Timestamp) -> NewWork;
    /// Priority.
    fn priority(self, priority: i32) -> NewWork;
    /// Budgets.
    fn counted(self, budgets: &[&str]) -> NewWork;
}

impl WorkProperties for NewWork {
    fn after(self, at: Timestamp) -> NewWork {
        NewWork { run_after: Some(at), ..self }
    }

    fn before(self, at: Timestamp) -> NewWork {
        NewWork { run_before: Some(at), ..self }
    }

    fn priority(self, priority: i32) -> NewWork {
        NewWork { priority, ..self }
    }

    fn counted(self, budgets: &[&str]) -> NewWork {
        NewWork { budgets: budgets.iter().map(|&key| key.to_owned()).collect(), ..self }
    }
}

/// A moment in the past for every clock; a larger number is later.
pub(crate) fn past(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// A moment in the far future; a larger number is later.
pub(crate) fn future(second: u64) -> Timestamp {
    "2190-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + Duration::from_secs(second)
}

/// A successful completion.
pub(crate) fn done(lease: WorkLease) -> Completion {
    Completion::new(lease, Ending::Completed, json!({}))
}

/// Completes claimed work.
pub(crate) async fn finish(store: &Store, lease: WorkLease) {
    assert_eq!(store.complete(&[done(lease)]).await.unwrap(), [CompletionOutcome::Done]);
}

/// Releases work for that long; the attempt counts.
pub(crate) async fn rest(store: &Store, lease: WorkLease, rest: Duration) {
    store.release(Release::new(lease, rest, true)).await.unwrap();
}

/// Claims as a process with `slots` free slots does: until they are taken or nothing more is due. A lane whose budget
/// is full, or whose head was late, takes a place in a claim and returns nothing.
pub(crate) async fn claim(store: &Store, kind: WorkKind, slots: usize) -> Vec<ClaimedWork> {
    let owner = Uuid::new_v4();
    let mut claimed = Vec::new();
    while claimed.len() < slots && store.until_due(kind).await.unwrap() == Some(Duration::ZERO) {
        claimed.extend(store.claim(kind, slots - claimed.len(), owner).await.unwrap());
    }
    claimed
}

/// Next piece of work of that kind.
pub(crate) async fn next(store: &Store, kind: WorkKind) -> Option<ClaimedWork> {
    claim(store, kind, 1).await.pop()
}

/// Claims and completes one piece of work after the other until none is due; returns their ids in that order.
pub(crate) async fn complete_all(store: &Store, kind: WorkKind) -> Vec<Uuid> {
    let mut order = Vec::new();
    while let Some(claimed) = next(store, kind).await {
        order.push(claimed.lease.work);
        finish(store, claimed.lease).await;
    }
    order
}

/// Repairs all lanes; returns how many heads were wrong.
pub(crate) async fn repaired(store: &Store) -> usize {
    let (mut changed, mut after) = (0, None);
    loop {
        let walk = store.repair(after, 500).await.unwrap();
        changed += walk.changed;
        match walk.next {
            Some(next) => after = Some(next),
            None => return changed,
        }
    }
}

/// Sweeps all work; returns how much of it was late.
pub(crate) async fn expired(store: &Store) -> usize {
    let (mut changed, mut after) = (0, None);
    loop {
        let walk = store.expire(after, 500).await.unwrap();
        changed += walk.changed;
        match walk.next {
            Some(next) => after = Some(next),
            None => return changed,
        }
    }
}

/// Polls until `look` returns a value, at most for `deadline`.
pub(crate) async fn eventually<T>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < deadline, "waited {deadline:?} in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
