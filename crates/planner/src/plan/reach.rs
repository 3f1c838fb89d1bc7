//! How far a plan can look: a plan of more runs than [`RUNS_MAX`] would take a server's memory, so that it ends earlier.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::{SignedDuration, Timestamp};

use super::PlanInput;

/// The most runs of schedules that a plan plays; each takes some 200 bytes while it is computed.
pub const RUNS_MAX: u64 = 1_000_000;

/// `to`, or the latest earlier time up to which the schedules want at most `runs_max` runs. One period is always within it.
pub(super) fn reach(
    seen: &PlanInput,
    now: Timestamp,
    to: Timestamp,
    runs_max: u64,
    is_cancelled: &dyn Fn() -> bool,
) -> Timestamp {
    let mut moments = Vec::new();
    let mut next = BinaryHeap::new();
    for rule in &seen.rules {
        let selected = seen.clusters.iter().filter(|(member, _)| rule.selects(member)).count() as u64;
        if selected == 0 || is_cancelled() {
            continue;
        }
        let mut after = rule.calendars.after(now);
        if let Some(at) = after.next().filter(|at| *at <= to) {
            next.push(Reverse((at, moments.len())));
            moments.push((after, selected));
        }
    }
    let (mut runs, mut first) = (0_u64, None);
    while let Some(Reverse((at, place))) = next.pop() {
        let (after, selected) = &mut moments[place];
        runs = runs.saturating_add(*selected);
        if (runs > runs_max && first.is_some_and(|first| first < at)) || is_cancelled() {
            return at.checked_sub(SignedDuration::from_micros(1)).unwrap_or(at);
        }
        first = first.or(Some(at));
        if let Some(at) = after.next().filter(|at| *at <= to) {
            next.push(Reverse((at, place)));
        }
    }
    to
}
