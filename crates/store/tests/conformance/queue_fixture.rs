//! Work and holds, said briefly, for the tests of the queue.

use std::time::Duration;

use api::work::{Ending, WorkKind};
use jiff::Timestamp;
use serde_json::json;
use store::{ClaimedWork, Completion, CompletionOutcome, NewWork, Release, Store, WorkLease};
use tokio::time::Instant;
use uuid::Uuid;

/// Longer than anything takes that a test waits for, on a machine that does something else as well.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A manifest that may begin at once.
pub(crate) fn manifest(lane: Uuid) -> NewWork {
    NewWork::new(Uuid::now_v7(), lane, WorkKind::Manifest)
}

/// An operation that may begin at once.
pub(crate) fn operation(lane: Uuid) -> NewWork {
    NewWork::new(Uuid::now_v7(), lane, WorkKind::Operation)
}

/// What else can be asked of work.
pub(crate) trait Asked {
    /// Not before.
    fn after(self, at: Timestamp) -> NewWork;
    /// Never begun at or after.
    fn before(self, at: Timestamp) -> NewWork;
    /// Among equals.
    fn priority(self, priority: i32) -> NewWork;
    /// Counted by these budgets.
    fn counted(self, budgets: &[&str]) -> NewWork;
}

impl Asked for NewWork {
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

/// A moment that has passed for every clock; a larger number is later.
pub(crate) fn past(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// A moment that no test lives to see; a larger number is later.
pub(crate) fn future(second: u64) -> Timestamp {
    "2190-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + Duration::from_secs(second)
}

/// The end of work that went well.
pub(crate) fn done(lease: WorkLease) -> Completion {
    Completion::new(lease, Ending::Completed, json!({}))
}

/// Ends work that is held.
pub(crate) async fn finish(store: &Store, lease: WorkLease) {
    assert_eq!(store.complete(&[done(lease)]).await.unwrap(), [CompletionOutcome::Done]);
}

/// Gives work back for so long; the attempt counts.
pub(crate) async fn rest(store: &Store, lease: WorkLease, rest: Duration) {
    store.release(Release::new(lease, rest, true)).await.unwrap();
}

/// Claims as a process with `slots` free slots does: until they are taken or nothing more is due. A lane whose
/// budget is full, or whose head was late, takes a place in a claim and gives nothing.
pub(crate) async fn claim(store: &Store, kind: WorkKind, slots: usize) -> Vec<ClaimedWork> {
    let owner = Uuid::new_v4();
    let mut claimed = Vec::new();
    while claimed.len() < slots && store.until_due(kind).await.unwrap() == Some(Duration::ZERO) {
        claimed.extend(store.claim(kind, slots - claimed.len(), owner).await.unwrap());
    }
    claimed
}

/// The next piece of work of that kind.
pub(crate) async fn next(store: &Store, kind: WorkKind) -> Option<ClaimedWork> {
    claim(store, kind, 1).await.pop()
}

/// Claims and ends one piece of work after the other until none is due; their ids in that order.
pub(crate) async fn work_off(store: &Store, kind: WorkKind) -> Vec<Uuid> {
    let mut order = Vec::new();
    while let Some(claimed) = next(store, kind).await {
        order.push(claimed.lease.work);
        finish(store, claimed.lease).await;
    }
    order
}

/// Walks all lanes as the repair does; how many heads were wrong.
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

/// Walks all work as the slow sweep does; how much of it was too late.
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

/// Looks again and again until `look` finds something, at most for `deadline`.
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
