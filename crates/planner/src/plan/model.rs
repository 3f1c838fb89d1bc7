//! Builds the model of the simulation from the records of the fleet.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use api::admin::PlanDuration;
use api::doc::MissedPolicy;
use api::queue::{WorkView, holds_lane};
use api::work::{WorkKind, WorkState};
use jiff::Timestamp;
use steps::engine::{Journal, PLAN_TIME};
use uuid::Uuid;

use super::group::{Recurrence, interval};
use super::simulate::{BudgetKeys, FleetModel, Lane, Micros, PlannedRun, QueuedRun, RunPhase, Running};
use super::{PlanInput, estimate};
use crate::schedule::{Creation, Horizon, Period, Rule};
use crate::task::Catalogue;

/// Assumed duration of an operation, which cannot be estimated.
const OPERATION_TIME: Duration = Duration::from_secs(30 * 60);
/// Default number of slots of an actuator.
const SLOTS: usize = 20;

/// Model of the fleet, with the names of its indexes.
#[derive(Debug)]
pub(super) struct PlanModel {
    pub(super) fleet: FleetModel,
    /// Resource ids by lane.
    pub(super) clusters: Vec<String>,
    /// Names and limits of the budgets.
    pub(super) budgets: Vec<(String, u32)>,
    /// Sources by the tag of a run.
    pub(super) sources: Vec<Source>,
    /// Recurrence by schedule.
    pub(super) recurrences: HashMap<String, Recurrence>,
}

/// Schedule and task of runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Source {
    pub(super) schedule: Option<String>,
    pub(super) task: Uuid,
    /// Whether the manifest exists.
    pub(super) exists: bool,
    pub(super) is_operation: bool,
    /// Estimated duration of a run.
    pub(super) duration: PlanDuration,
}

impl Source {
    /// Duration of a run in the simulation.
    fn simulated_duration(&self) -> Micros {
        let duration = if self.is_operation { OPERATION_TIME } else { self.duration.p95.duration() };
        Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
    }
}

impl PlanModel {
    /// Source of a run.
    pub(super) fn source(&self, planned: &PlannedRun) -> &Source {
        &self.sources[planned.run.tag as usize]
    }

    /// Builds the model from `now` to `to`; incomplete if `is_cancelled` becomes true.
    pub(super) fn new(
        input: &PlanInput,
        catalogue: &Catalogue,
        now: Timestamp,
        to: Timestamp,
        is_cancelled: &dyn Fn() -> bool,
    ) -> PlanModel {
        let mut builder = Builder::new(input, catalogue);
        let live: HashSet<Uuid> = input.live.iter().map(|it| it.id).collect();
        for work in &input.live {
            builder.add_work(work, now);
        }
        for rule in &input.rules {
            builder.add_rule(rule, &live, now, to, is_cancelled);
        }
        builder.model
    }
}

/// Slots that have no live manifest although their period should have one: never created, or completed.
pub(super) fn unsettled_slots(input: &PlanInput, now: Timestamp, to: Timestamp) -> Vec<Uuid> {
    let live: HashSet<Uuid> = input.live.iter().map(|it| it.id).collect();
    let mut found = Vec::new();
    for rule in &input.rules {
        let mut near = rule.horizon(now);
        near.periods.retain(|it| it.at <= to);
        for (member, _) in &input.clusters {
            let slots = rule.desired_slots(&near, member).into_iter();
            found.extend(slots.filter(|it| it.create && !live.contains(&it.id)).map(|it| it.id));
        }
    }
    found
}

struct Builder<'a> {
    input: &'a PlanInput,
    catalogue: &'a Catalogue,
    lanes: HashMap<Uuid, usize>,
    keys: HashMap<&'a str, u16>,
    tags: HashMap<(Option<String>, Uuid, bool, bool), u32>,
    model: PlanModel,
}

impl<'a> Builder<'a> {
    fn new(input: &'a PlanInput, catalogue: &'a Catalogue) -> Builder<'a> {
        let lanes = input.clusters.iter().map(|(member, _)| Lane {
            id: member.uuid,
            unreachable: input.unreachable.contains(&member.uuid),
            ..Lane::default()
        });
        let fleet = FleetModel {
            lanes: lanes.collect(),
            budgets: input.budgets.iter().map(|it| it.limit).collect(),
            slots: SLOTS * input.actuators.max(1),
        };
        Builder {
            input,
            catalogue,
            lanes: input
                .clusters
                .iter()
                .enumerate()
                .map(|(place, (member, _))| (member.uuid, place))
                .collect(),
            keys: input.budgets.iter().zip(0_u16..).map(|(it, place)| (it.key.as_str(), place)).collect(),
            tags: HashMap::new(),
            model: PlanModel {
                fleet,
                clusters: input.clusters.iter().map(|(_, id)| id.clone()).collect(),
                budgets: input.budgets.iter().map(|it| (catalogue.budget_name(&it.key), it.limit)).collect(),
                sources: Vec::new(),
                recurrences: HashMap::new(),
            },
        }
    }

    /// Adds existing work.
    fn add_work(&mut self, work: &WorkView, now: Timestamp) {
        let Some(lane_index) = self.lanes.get(&work.lane).copied() else { return };
        let is_operation = work.kind == WorkKind::Operation;
        // The task is known from the budget keys.
        let task = work.budgets.iter().find_map(|key| key.strip_prefix("task/")?.parse().ok());
        let tag = self.tag(work.origin.clone(), task.unwrap_or_default(), true, is_operation);
        let duration = self.model.sources[tag as usize].simulated_duration();
        let keys = self.budget_keys(work.budgets.iter().map(String::as_str));
        let limit =
            task.and_then(|it| self.catalogue.get(it)).map_or(PLAN_TIME, crate::task::Definition::time_limit);
        let lane = &mut self.model.fleet.lanes[lane_index];
        if work.state == WorkState::InProgress {
            let end = expected_end(work, duration, limit, now);
            lane.running = Some(Running { end, keys, is_operation });
            return;
        }
        lane.queue.push(QueuedRun {
            id: work.id,
            // Work that was released before its first step has a checkpoint, but has not started.
            phase: match is_operation {
                true => RunPhase::Operation,
                false if work.ending => RunPhase::Ending,
                false if Journal::read(work.checkpoint.as_ref()).has_begun() => RunPhase::Started,
                false => RunPhase::Fresh,
            },
            due: work.due_at.as_microsecond(),
            before: work.run_before.map_or(Micros::MAX, Timestamp::as_microsecond),
            priority: work.priority,
            duration,
            keys,
            tag,
        });
    }

    /// Adds the future manifests of a rule.
    fn add_rule(
        &mut self,
        rule: &'a Rule,
        live: &HashSet<Uuid>,
        now: Timestamp,
        to: Timestamp,
        is_cancelled: &dyn Fn() -> bool,
    ) {
        let input = self.input;
        // Without a selected cluster the periods need not be computed, and may be very many.
        if !input.clusters.iter().any(|(member, _)| rule.selects(member)) {
            return;
        }
        let horizon = extend_horizon(rule, rule.horizon(now), to);
        let calendars = rule.calendars.iter().map(ToString::to_string).collect();
        let every = interval(horizon.periods.iter().map(|it| it.at.as_second()));
        self.model.recurrences.insert(rule.id.clone(), Recurrence { every, calendars });
        let tag = self.tag(Some(rule.id.clone()), rule.task, false, false);
        let duration = self.model.sources[tag as usize].simulated_duration();
        for (place, (member, _)) in input.clusters.iter().enumerate() {
            if is_cancelled() {
                return;
            }
            let slots = rule.desired_slots(&horizon, member);
            if slots.is_empty() {
                continue;
            }
            let budgets = member.budgets(rule.task);
            let keys = self.budget_keys(budgets.iter().map(String::as_str));
            for slot in slots {
                let exists = live.contains(&slot.id) || input.settled.contains(&slot.id);
                if !slot.create || exists || slot.run_after > to {
                    continue;
                }
                self.model.fleet.lanes[place].queue.push(QueuedRun {
                    id: slot.id,
                    phase: RunPhase::Fresh,
                    due: slot.run_after.as_microsecond(),
                    before: slot.run_before.as_microsecond(),
                    priority: slot.priority,
                    duration,
                    keys,
                    tag,
                });
            }
        }
    }

    fn budget_keys<'b>(&self, names: impl Iterator<Item = &'b str>) -> BudgetKeys {
        let keys = names.filter_map(|name| Some((*self.keys.get(name)?, holds_lane(name))));
        keys.fold(BudgetKeys::default(), |keys, (key, holds_lane)| match holds_lane {
            true => keys.with(key),
            false => keys.with_own(key),
        })
    }

    fn tag(&mut self, schedule: Option<String>, task: Uuid, exists: bool, is_operation: bool) -> u32 {
        let key = (schedule, task, exists, is_operation);
        if let Some(tag) = self.tags.get(&key) {
            return *tag;
        }
        let expected = self.catalogue.get(task).map(crate::task::Definition::expected);
        let duration = estimate(self.input.stats.get(&task), expected);
        let source = Source { schedule: key.0.clone(), task, exists, is_operation, duration };
        let tag = u32::try_from(self.model.sources.len()).unwrap_or(u32::MAX);
        self.model.sources.push(source);
        self.tags.insert(key, tag);
        tag
    }
}

/// Expected end of running work. Work that takes longer than usual is assumed to end at the deadline of its current step.
fn expected_end(work: &WorkView, usual: Micros, limit: Duration, now: Timestamp) -> Micros {
    let started = work.started.unwrap_or(now).as_microsecond();
    let usual_end = started.saturating_add(usual);
    if usual_end > now.as_microsecond() {
        return usual_end;
    }
    let by_step = Journal::read(work.checkpoint.as_ref()).step.and_then(|step| step.deadline);
    let limit = Micros::try_from(limit.as_micros()).unwrap_or(Micros::MAX);
    let latest = by_step.map_or(started.saturating_add(limit), Timestamp::as_microsecond);
    latest.max(now.as_microsecond())
}

/// Extends a horizon by all periods until `to`, which the scheduler will create in time.
fn extend_horizon(rule: &Rule, near: Horizon, to: Timestamp) -> Horizon {
    let last = near.periods.last().map_or(near.now, |it| it.at).max(near.now);
    let mut horizon = near;
    let makes_up = rule.missed == MissedPolicy::RunOnce;
    for at in rule.calendars.after(last).take_while(|at| *at <= to) {
        let until = if makes_up { rule.calendars.next_after(at) } else { None };
        horizon.periods.push(Period { at, until, creation: Creation::Always });
    }
    horizon.periods.retain(|it| it.at <= to);
    horizon
}
