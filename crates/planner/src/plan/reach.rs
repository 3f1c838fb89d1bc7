//! Limits the end of a plan: with more than [`RUNS_MAX`] runs it would need too much memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::{SignedDuration, Timestamp};

use super::PlanInput;

/// Most runs of schedules in a plan; each takes about 200 bytes during the computation.
pub const RUNS_MAX: u64 = 1_000_000;

/// Returns `to`, or the latest earlier time up to which schedules have at most `runs_max` runs. At least one period is included.
pub(super) fn reach(
    input: &PlanInput,
    now: Timestamp,
    to: Timestamp,
    runs_max: u64,
    is_cancelled: &dyn Fn() -> bool,
) -> Timestamp {
    let mut calendars = Vec::new();
    let mut next = BinaryHeap::new();
    for rule in &input.rules {
        let selected = input.clusters.iter().filter(|(member, _)| rule.selects(member)).count() as u64;
        if selected == 0 || is_cancelled() {
            continue;
        }
        let mut after = rule.calendars.after(now);
        if let Some(at) = after.next().filter(|at| *at <= to) {
            next.push(Reverse((at, calendars.len())));
            calendars.push((after, selected));
        }
    }
    let (mut runs, mut first) = (0_u64, None);
    while let Some(Reverse((at, index))) = next.pop() {
        let (after, selected) = &mut calendars[index];
        runs = runs.saturating_add(*selected);
        if (runs > runs_max && first.is_some_and(|first| first < at)) || is_cancelled() {
            return at.checked_sub(SignedDuration::from_micros(1)).unwrap_or(at);
        }
        first = first.or(Some(at));
        if let Some(at) = after.next().filter(|at| *at <= to) {
            next.push(Reverse((at, index)));
        }
    }
    to
}
