//! Whether the loops and workers of a process make progress.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock;

/// The health of a process, for its liveness probe. An API server that is away is no reason to fail: a restart would not help. A loop
/// that no longer turns and a reconcile that does not return are. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<Activities>>);

#[derive(Debug, Default)]
struct Activities {
    next: u64,
    running: BTreeMap<u64, Activity>,
}

#[derive(Debug)]
struct Activity {
    name: String,
    since: Instant,
    limit: Duration,
}

/// Activities that hang.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Unhealthy {
    /// Each activity, and how long it has made no progress.
    pub hanging: Vec<(String, Duration)>,
}

impl fmt::Display for Unhealthy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, since)) in self.hanging.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{name} has made no progress for {} s", since.as_secs())?;
        }
        Ok(())
    }
}

impl Health {
    /// Fails while an activity makes no progress for longer than its limit.
    pub fn check(&self) -> Result<(), Unhealthy> {
        let now = Instant::now();
        let hanging = |activity: &Activity| {
            let since = now.saturating_duration_since(activity.since);
            (since > activity.limit).then(|| (activity.name.clone(), since))
        };
        let hanging: Vec<_> = lock(&self.0).running.values().filter_map(hanging).collect();
        if hanging.is_empty() { Ok(()) } else { Err(Unhealthy { hanging }) }
    }

    /// A loop that promises to call [`Heartbeat::beat`] more often than `limit`, until the heartbeat is dropped. Also a single piece of
    /// work that promises to end within `limit`.
    pub fn heartbeat(&self, name: &str, limit: Duration) -> Heartbeat {
        let mut activities = lock(&self.0);
        let id = activities.next;
        activities.next += 1;
        let activity = Activity { name: name.to_owned(), since: Instant::now(), limit };
        activities.running.insert(id, activity);
        Heartbeat { health: self.clone(), id }
    }
}

/// The sign of life of one activity.
#[derive(Debug)]
pub struct Heartbeat {
    health: Health,
    id: u64,
}

impl Heartbeat {
    /// Reports progress.
    pub fn beat(&self) {
        if let Some(activity) = lock(&self.health.0).running.get_mut(&self.id) {
            activity.since = Instant::now();
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        lock(&self.health.0).running.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_activity_that_makes_no_progress_fails_the_health_until_it_does() {
        let health = Health::default();
        let beat = health.heartbeat("watch of Node", Duration::from_secs(60));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(health.check(), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        let unhealthy = health.check().unwrap_err();
        assert_eq!(unhealthy.to_string(), "watch of Node has made no progress for 61 s");
        beat.beat();
        assert_eq!(health.check(), Ok(()));
        tokio::time::advance(Duration::from_secs(90)).await;
        drop(beat);
        assert_eq!(health.check(), Ok(()));
    }
}
