//! Durations of a task's recent runs, from which the plan estimates the next ones.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Document;

/// Maximum number of runs that are remembered.
pub const RUNS_MAX: usize = 100;

/// Durations of a task's last successful runs, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStats {
    /// The task.
    pub task: Uuid,
    /// Durations in milliseconds.
    #[serde(default)]
    pub durations_ms: Vec<u64>,
    /// Total number of observed runs; 0 in documents of releases that did not count them.
    #[serde(default)]
    runs: u64,
}

impl TaskStats {
    /// Statistics without any run.
    pub fn of(task: Uuid) -> TaskStats {
        TaskStats { task, durations_ms: Vec::new(), runs: 0 }
    }

    /// Add runs and drop the oldest ones beyond the maximum.
    pub fn add(&mut self, durations: impl IntoIterator<Item = Duration>) {
        self.runs = self.runs();
        let before = self.durations_ms.len();
        let millis = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
        self.durations_ms.extend(durations.into_iter().map(millis));
        self.runs = self.runs.saturating_add((self.durations_ms.len() - before) as u64);
        let surplus = self.durations_ms.len().saturating_sub(RUNS_MAX);
        self.durations_ms.drain(..surplus);
    }

    /// Count runs whose durations were dropped in favour of later ones.
    pub fn add_forgotten(&mut self, runs: u64) {
        self.runs = self.runs().saturating_add(runs);
    }

    /// Total number of observed runs.
    pub fn runs(&self) -> u64 {
        self.runs.max(self.durations_ms.len() as u64)
    }

    /// Percentile of the remembered durations; none when there are no runs.
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut sorted = self.durations_ms.clone();
        sorted.sort_unstable();
        let place = (sorted.len() * percent.min(100)).div_ceil(100).saturating_sub(1);
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
    fn nineteen_of_twenty_runs_are_not_longer_than_the_95th_percentile() {
        assert_eq!(of(1..=20).percentile(95), Some(Duration::from_secs(19)));
        assert_eq!(of(1..=20).percentile(50), Some(Duration::from_secs(10)));
    }

    #[test]
    fn the_first_run_counts_and_old_ones_are_forgotten_but_counted() {
        assert_eq!(of([]).percentile(95), None);
        assert_eq!(of([9]).percentile(95), Some(Duration::from_secs(9)));
        let many = of([1000; 50].into_iter().chain([1; 100]));
        assert_eq!((many.percentile(100), many.runs()), (Some(Duration::from_secs(1)), 150));
    }

    #[test]
    fn runs_of_a_document_that_did_not_count_them_are_those_that_it_remembers() {
        let stored = serde_json::json!({"task": Uuid::nil(), "durationsMs": [1, 2, 3]});
        let mut stats: TaskStats = serde_json::from_value(stored).unwrap();
        assert_eq!(stats.runs(), 3);
        stats.add([Duration::from_secs(1)]);
        stats.add_forgotten(6);
        assert_eq!(stats.runs(), 10);
    }
}
