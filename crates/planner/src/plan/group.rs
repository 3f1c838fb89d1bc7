//! Runs put together into entries, so that the answer is as long as the fleet has schedules, not as it has runs.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use api::admin::{PlanEntry, PlanGrouping, PlanOutcome, PlanRun};
use api::duration::TimeSpan;
use uuid::Uuid;

use super::model::{PlanModel, Source};
use super::simulate::{Micros, PlannedRun, WaitCause};
use super::{reason, time};

/// So many runs of an entry are told one by one; the others are there when each run is asked for.
pub(super) const FIRST_MAX: usize = 5;

/// Runs of one entry.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// The first of them, by their starts.
    first: Vec<&'a PlannedRun>,
    runs: u64,
    misses: u64,
    end: Micros,
    lanes: HashSet<u32>,
    /// What runs waited for, with whether they began, and how many did.
    held: Vec<((bool, WaitCause), u64)>,
}

/// What runs must have in common to be one entry.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Schedule(&'a str, Uuid),
    Cluster(&'a str, Uuid, u32),
}

/// The entries of these runs, in the order of their first starts.
pub(super) fn groups<'a>(
    model: &'a PlanModel,
    placed: impl Iterator<Item = &'a PlannedRun>,
    grouping: PlanGrouping,
) -> Vec<Group<'a>> {
    let mut found: Vec<Group<'a>> = Vec::new();
    let mut places: HashMap<Key<'a>, usize> = HashMap::new();
    for one in placed {
        let source = model.source(one);
        let key = match (grouping, &source.schedule) {
            (PlanGrouping::Run, _) | (_, None) => None,
            (PlanGrouping::Schedule, Some(schedule)) => Some(Key::Schedule(schedule, source.task)),
            (PlanGrouping::Cluster, Some(schedule)) => Some(Key::Cluster(schedule, source.task, one.lane)),
        };
        let place = match key {
            None => found.len(),
            Some(key) => *places.entry(key).or_insert(found.len()),
        };
        if place == found.len() {
            found.push(Group::new());
        }
        found[place].add(one);
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
            held: Vec::new(),
        }
    }

    fn add(&mut self, placed: &'a PlannedRun) {
        if self.first.len() < FIRST_MAX {
            self.first.push(placed);
        }
        self.runs += 1;
        self.misses += u64::from(!placed.runs);
        self.end = self.end.max(placed.end);
        self.lanes.insert(placed.lane);
        let held = (placed.runs, placed.held);
        match self.held.iter_mut().find(|(known, _)| *known == held) {
            Some((_, count)) => *count += 1,
            None => self.held.push((held, 1)),
        }
    }

    /// As it is told.
    pub(super) fn entry(&self, model: &PlanModel) -> Option<PlanEntry> {
        let placed = *self.first.first()?;
        let source: &Source = model.source(placed);
        let recurrence = source.schedule.as_deref().and_then(|it| model.recurrences.get(it));
        let is_one = self.runs == 1;
        Some(PlanEntry {
            cluster: (self.lanes.len() == 1).then(|| model.clusters[placed.lane as usize].clone()),
            clusters: self.lanes.len() as u64,
            schedule: source.schedule.clone(),
            task: source.task,
            manifest: (is_one && source.is_there).then_some(placed.piece.id),
            run_after: placed.piece.due.div_euclid(1_000_000),
            start: time(placed.start),
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

    /// What most of those waited for that do not begin in time. Where all do, what at least half of them wait for.
    fn reason(&self, model: &PlanModel) -> Option<String> {
        let most = |runs: bool| {
            let held = self.held.iter().filter(move |((it, _), _)| *it == runs);
            held.max_by_key(|(_, count)| *count)
        };
        let late = most(false);
        let ((runs, held), _) = late.or_else(|| most(true).filter(|(_, count)| count * 2 >= self.runs))?;
        reason(model, *runs, *held)
    }
}

fn run(model: &PlanModel, placed: &PlannedRun) -> PlanRun {
    PlanRun {
        cluster: model.clusters[placed.lane as usize].clone(),
        manifest: model.source(placed).is_there.then_some(placed.piece.id),
        start: time(placed.start),
        end: time(placed.end),
        outcome: if placed.runs { PlanOutcome::Runs } else { PlanOutcome::Misses },
        reason: reason(model, placed.runs, placed.held),
    }
}

/// How often a schedule fires.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Recurrence {
    /// The time between two periods, where it is always the same.
    pub(super) every: Option<Duration>,
    pub(super) calendars: Vec<String>,
}

/// The time between these moments, if it is always the same. Clocks that are changed twice a year do not count.
pub(super) fn interval(seconds: impl Iterator<Item = i64>) -> Option<Duration> {
    const CLOCK_CHANGE: i64 = 3600;
    let moments: Vec<i64> = seconds.collect();
    let gaps: Vec<i64> = moments.windows(2).map(|pair| pair[1] - pair[0]).collect();
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
    fn an_interval_is_one_that_is_always_the_same_but_for_the_clocks() {
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
