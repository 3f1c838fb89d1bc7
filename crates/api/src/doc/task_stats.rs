//! How long a task took lately; by this the plan knows how long it will take.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Document;

/// So many past runs are remembered.
const RUNS_MAX: usize = 100;
/// Fewer runs than this say nothing yet.
const RUNS_MIN: usize = 5;

/// The lengths of a task's last runs that came to a good end, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStats {
    /// The task.
    pub task: Uuid,
    /// In milliseconds.
    #[serde(default)]
    pub durations_ms: Vec<u64>,
}

impl TaskStats {
    /// Nothing is known yet.
    pub fn of(task: Uuid) -> TaskStats {
        TaskStats { task, durations_ms: Vec::new() }
    }

    /// Remembers further runs; the oldest ones are forgotten.
    pub fn add(&mut self, durations: impl IntoIterator<Item = Duration>) {
        let millis = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
        self.durations_ms.extend(durations.into_iter().map(millis));
        let surplus = self.durations_ms.len().saturating_sub(RUNS_MAX);
        self.durations_ms.drain(..surplus);
    }

    /// 95 of 100 runs were not longer; none while too few are known.
    pub fn usual(&self) -> Option<Duration> {
        if self.durations_ms.len() < RUNS_MIN {
            return None;
        }
        let mut sorted = self.durations_ms.clone();
        sorted.sort_unstable();
        let place = (sorted.len() * 95).div_ceil(100) - 1;
        sorted.get(place).map(|millis| Duration::from_millis(*millis))
    }
}

impl Document for TaskStats {
    const KIND: &'static str = "taskstats";

    fn path(&self) -> String {
        format!("/taskstats/{}", self.task)
    }

    fn scope(&self) -> String {
        "/".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations: impl IntoIterator<Item = u64>) -> TaskStats {
        let mut stats = TaskStats::of(Uuid::nil());
        stats.add(durations.into_iter().map(Duration::from_secs));
        stats
    }

    #[test]
    fn nineteen_of_twenty_runs_are_not_longer_than_the_usual_length() {
        assert_eq!(of(1..=20).usual(), Some(Duration::from_secs(19)));
        assert_eq!(of([7; 5]).usual(), Some(Duration::from_secs(7)));
    }

    #[test]
    fn few_runs_say_nothing_and_old_ones_are_forgotten() {
        assert_eq!(of([9; 4]).usual(), None);
        assert_eq!(of([1000; 50].into_iter().chain([1; 100])).usual(), Some(Duration::from_secs(1)));
    }
}
