//! Groups runs into entries, so that the size of a response follows the number of schedules, not of runs.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use api::admin::{PlanEntry, PlanGrouping, PlanOutcome, PlanRun};
use api::duration::TimeSpan;
use uuid::Uuid;

use super::model::{PlanModel, Source};
use super::simulate::{Micros, PlannedRun, WaitCause};
use super::{reason, time};

/// Number of runs that an entry lists; grouping by run returns all.
pub(super) const FIRST_MAX: usize = 5;

/// Runs of one entry.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// First runs, by start.
    first: Vec<&'a PlannedRun>,
    runs: u64,
    misses: u64,
    end: Micros,
    lanes: HashSet<u32>,
    /// Number of runs by whether they start and what they waited for.
    causes: Vec<((bool, WaitCause), u64)>,
}

/// Key that the runs of an entry share.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Schedule(&'a str, Uuid),
    Cluster(&'a str, Uuid, u32),
}

/// Groups runs, ordered by their first starts.
pub(super) fn groups<'a>(
    model: &'a PlanModel,
    planned: impl Iterator<Item = &'a PlannedRun>,
    grouping: PlanGrouping,
) -> Vec<Group<'a>> {
    let mut found: Vec<Group<'a>> = Vec::new();
    let mut indexes: HashMap<Key<'a>, usize> = HashMap::new();
    for run in planned {
        let source = model.source(run);
        let key = match (grouping, &source.schedule) {
            (PlanGrouping::Run, _) | (_, None) => None,
            (PlanGrouping::Schedule, Some(schedule)) => Some(Key::Schedule(schedule, source.task)),
            (PlanGrouping::Cluster, Some(schedule)) => Some(Key::Cluster(schedule, source.task, run.lane)),
        };
        let index = match key {
            None => found.len(),
            Some(key) => *indexes.entry(key).or_insert(found.len()),
        };
        if index == found.len() {
            found.push(Group::new());
        }
        found[index].add(run);
    }
    found
}

impl<'a> Group<'a> {
    fn new() -> Group<'a> {
        Group {
            first: Vec::new(),
            runs: 0,
            misses: 0,
            end: Micros::MIN,
            lanes: HashSet::new(),
            causes: Vec::new(),
        }
    }

    fn add(&mut self, planned: &'a PlannedRun) {
        if self.first.len() < FIRST_MAX {
            self.first.push(planned);
        }
        self.runs += 1;
        self.misses += u64::from(!planned.runs);
        self.end = self.end.max(planned.end);
        self.lanes.insert(planned.lane);
        let cause = (planned.runs, planned.cause);
        match self.causes.iter_mut().find(|(it, _)| *it == cause) {
            Some((_, count)) => *count += 1,
            None => self.causes.push((cause, 1)),
        }
    }

    /// Converts the group to an entry of the plan.
    pub(super) fn entry(&self, model: &PlanModel) -> Option<PlanEntry> {
        let planned = *self.first.first()?;
        let source: &Source = model.source(planned);
        let recurrence = source.schedule.as_deref().and_then(|it| model.recurrences.get(it));
        let is_one = self.runs == 1;
        Some(PlanEntry {
            cluster: (self.lanes.len() == 1).then(|| model.clusters[planned.lane as usize].clone()),
            clusters: self.lanes.len() as u64,
            schedule: source.schedule.clone(),
            task: source.task,
            manifest: (is_one && source.exists).then_some(planned.run.id),
            run_after: planned.run.due.div_euclid(1_000_000),
            start: time(planned.start),
            end: time(self.end),
            runs: self.runs,
            misses: self.misses,
            every: recurrence.and_then(|it| it.every).map(TimeSpan::new),
            calendars: recurrence.map(|it| it.calendars.clone()).unwrap_or_default(),
            duration: source.duration.clone(),
            outcome: if self.misses == 0 { PlanOutcome::Runs } else { PlanOutcome::Misses },
            reason: self.reason(model),
            first: match is_one {
                true => Vec::new(),
                false => self.first.iter().map(|it| run(model, it)).collect(),
            },
        })
    }

    /// Most frequent cause of the missed runs; without missed runs, a cause that at least half of the runs have.
    fn reason(&self, model: &PlanModel) -> Option<String> {
        let most = |runs: bool| {
            let causes = self.causes.iter().filter(move |((it, _), _)| *it == runs);
            causes.max_by_key(|(_, count)| *count)
        };
        let missed = most(false);
        let ((runs, cause), _) = missed.or_else(|| most(true).filter(|(_, count)| count * 2 >= self.runs))?;
        reason(model, *runs, *cause)
    }
}

fn run(model: &PlanModel, planned: &PlannedRun) -> PlanRun {
    PlanRun {
        cluster: model.clusters[planned.lane as usize].clone(),
        manifest: model.source(planned).exists.then_some(planned.run.id),
        start: time(planned.start),
        end: time(planned.end),
        outcome: if planned.runs { PlanOutcome::Runs } else { PlanOutcome::Misses },
        reason: reason(model, planned.runs, planned.cause),
    }
}

/// Recurrence of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Recurrence {
    /// Interval between periods, if constant.
    pub(super) every: Option<Duration>,
    pub(super) calendars: Vec<String>,
}

/// Interval between these times, if it is constant apart from clock changes.
pub(super) fn interval(seconds: impl Iterator<Item = i64>) -> Option<Duration> {
    const CLOCK_CHANGE: i64 = 3600;
    let times: Vec<i64> = seconds.collect();
    let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut sorted = gaps.clone();
    sorted.sort_unstable();
    let usual = *sorted.get(sorted.len() / 2)?;
    let is_usual =
        |gap: &i64| *gap == usual || (usual > 12 * CLOCK_CHANGE && (gap - usual).abs() <= CLOCK_CHANGE);
    gaps.iter().all(is_usual).then(|| u64::try_from(usual).ok().map(Duration::from_secs)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_constant_apart_from_clock_changes() {
        let check = |moments: &[i64], expect: Option<u64>| {
            assert_eq!(interval(moments.iter().copied()), expect.map(Duration::from_secs), "{moments:?}");
        };
        check(&[0, 300, 600, 900], Some(300));
        check(&[0, 86_400, 169_200, 255_600], Some(86_400));
        check(&[0, 86_400, 345_600], None);
        check(&[0, 300, 900], None);
        check(&[0], None);
        check(&[], None);
    }
}
