//! From what was read to the world that is played.

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

/// How long a customer's operation is taken to last; nobody can know.
const OPERATION_TIME: Duration = Duration::from_secs(30 * 60);
/// What an actuator runs at once, unless it is told otherwise.
const SLOTS: usize = 20;

/// The world, and what its numbers stand for.
#[derive(Debug)]
pub(super) struct PlanModel {
    pub(super) world: FleetModel,
    /// The resource ids of the lanes.
    pub(super) clusters: Vec<String>,
    /// The budgets' names and limits.
    pub(super) budgets: Vec<(String, u32)>,
    /// What the pieces' tags stand for.
    pub(super) sources: Vec<Source>,
    /// How often each schedule fires.
    pub(super) recurrences: HashMap<String, Recurrence>,
}

/// What pieces are made from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Source {
    pub(super) schedule: Option<String>,
    pub(super) task: Uuid,
    /// Whether the manifest is there already.
    pub(super) is_there: bool,
    pub(super) is_operation: bool,
    /// How long one of them takes.
    pub(super) duration: PlanDuration,
}

impl Source {
    /// How long the simulation takes one of them to last.
    fn length(&self) -> Micros {
        let length = if self.is_operation { OPERATION_TIME } else { self.duration.p95.duration() };
        Micros::try_from(length.as_micros()).unwrap_or(Micros::MAX)
    }
}

impl PlanModel {
    /// The source of a run.
    pub(super) fn source(&self, placed: &PlannedRun) -> &Source {
        &self.sources[placed.piece.tag as usize]
    }

    /// The world from `now` to `to`; of no use to anybody when `is_cancelled` is true.
    pub(super) fn new(
        seen: &PlanInput,
        catalogue: &Catalogue,
        now: Timestamp,
        to: Timestamp,
        is_cancelled: &dyn Fn() -> bool,
    ) -> PlanModel {
        let mut builder = Builder::new(seen, catalogue);
        let live: HashSet<Uuid> = seen.live.iter().map(|it| it.id).collect();
        for work in &seen.live {
            builder.add_work(work, now);
        }
        for rule in &seen.rules {
            builder.add_rule(rule, &live, now, to, is_cancelled);
        }
        builder.model
    }
}

/// Wanted slots that would be there if they were not at their end: those of the periods whose manifests are made already.
pub(super) fn doubtful(seen: &PlanInput, now: Timestamp, to: Timestamp) -> Vec<Uuid> {
    let live: HashSet<Uuid> = seen.live.iter().map(|it| it.id).collect();
    let mut found = Vec::new();
    for rule in &seen.rules {
        let mut near = rule.horizon(now);
        near.periods.retain(|it| it.at <= to);
        for (member, _) in &seen.clusters {
            let slots = rule.desired_slots(&near, member).into_iter();
            found.extend(slots.filter(|it| it.create && !live.contains(&it.id)).map(|it| it.id));
        }
    }
    found
}

struct Builder<'a> {
    seen: &'a PlanInput,
    catalogue: &'a Catalogue,
    lanes: HashMap<Uuid, usize>,
    keys: HashMap<&'a str, u16>,
    tags: HashMap<(Option<String>, Uuid, bool, bool), u32>,
    model: PlanModel,
}

impl<'a> Builder<'a> {
    fn new(seen: &'a PlanInput, catalogue: &'a Catalogue) -> Builder<'a> {
        let lanes = seen.clusters.iter().map(|(member, _)| Lane {
            id: member.uuid,
            unreachable: seen.unreachable.contains(&member.uuid),
            ..Lane::default()
        });
        let world = FleetModel {
            lanes: lanes.collect(),
            budgets: seen.budgets.iter().map(|it| it.limit).collect(),
            slots: SLOTS * seen.actuators.max(1),
        };
        Builder {
            seen,
            catalogue,
            lanes: seen
                .clusters
                .iter()
                .enumerate()
                .map(|(place, (member, _))| (member.uuid, place))
                .collect(),
            keys: seen.budgets.iter().zip(0_u16..).map(|(it, place)| (it.key.as_str(), place)).collect(),
            tags: HashMap::new(),
            model: PlanModel {
                world,
                clusters: seen.clusters.iter().map(|(_, id)| id.clone()).collect(),
                budgets: seen.budgets.iter().map(|it| (catalogue.budget_name(&it.key), it.limit)).collect(),
                sources: Vec::new(),
                recurrences: HashMap::new(),
            },
        }
    }

    /// Work that is there.
    fn add_work(&mut self, work: &WorkView, now: Timestamp) {
        let Some(place) = self.lanes.get(&work.lane).copied() else { return };
        let is_operation = work.kind == WorkKind::Operation;
        // The budgets of a manifest name its task.
        let task = work.budgets.iter().find_map(|key| key.strip_prefix("task/")?.parse().ok());
        let tag = self.tag(work.origin.clone(), task.unwrap_or_default(), true, is_operation);
        let duration = self.model.sources[tag as usize].length();
        let keys = self.keys_of(work.budgets.iter().map(String::as_str));
        let limit =
            task.and_then(|it| self.catalogue.get(it)).map_or(PLAN_TIME, crate::task::Definition::time_limit);
        let lane = &mut self.model.world.lanes[place];
        if work.state == WorkState::InProgress {
            let end = end_of_running(work, duration, limit, now);
            lane.running = Some(Running { end, keys, is_operation });
            return;
        }
        lane.queue.push(QueuedRun {
            id: work.id,
            // As the engine leaves it: what is parked before its first step has a checkpoint, and has not begun.
            rank: match is_operation {
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

    /// What a rule will want, as far as it is not there.
    fn add_rule(
        &mut self,
        rule: &'a Rule,
        live: &HashSet<Uuid>,
        now: Timestamp,
        to: Timestamp,
        is_cancelled: &dyn Fn() -> bool,
    ) {
        let seen = self.seen;
        // The periods of a calendar that selects nothing may be without number.
        if !seen.clusters.iter().any(|(member, _)| rule.selects(member)) {
            return;
        }
        let horizon = up_to(rule, rule.horizon(now), to);
        let calendars = rule.calendars.iter().map(ToString::to_string).collect();
        let every = interval(horizon.periods.iter().map(|it| it.at.as_second()));
        self.model.recurrences.insert(rule.id.clone(), Recurrence { every, calendars });
        let tag = self.tag(Some(rule.id.clone()), rule.task, false, false);
        let duration = self.model.sources[tag as usize].length();
        for (place, (member, _)) in seen.clusters.iter().enumerate() {
            if is_cancelled() {
                return;
            }
            let slots = rule.desired_slots(&horizon, member);
            if slots.is_empty() {
                continue;
            }
            let budgets = member.budgets(rule.task);
            let keys = self.keys_of(budgets.iter().map(String::as_str));
            for slot in slots {
                let is_there = live.contains(&slot.id) || seen.settled.contains(&slot.id);
                if !slot.create || is_there || slot.run_after > to {
                    continue;
                }
                self.model.world.lanes[place].queue.push(QueuedRun {
                    id: slot.id,
                    rank: RunPhase::Fresh,
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

    fn keys_of<'b>(&self, names: impl Iterator<Item = &'b str>) -> BudgetKeys {
        let known = names.filter_map(|name| Some((*self.keys.get(name)?, holds_lane(name))));
        known.fold(BudgetKeys::default(), |keys, (key, holds_lane)| match holds_lane {
            true => keys.with(key),
            false => keys.with_own(key),
        })
    }

    fn tag(&mut self, schedule: Option<String>, task: Uuid, is_there: bool, is_operation: bool) -> u32 {
        let key = (schedule, task, is_there, is_operation);
        if let Some(tag) = self.tags.get(&key) {
            return *tag;
        }
        let expected = self.catalogue.get(task).map(crate::task::Definition::expected);
        let duration = estimate(self.seen.stats.get(&task), expected);
        let source = Source { schedule: key.0.clone(), task, is_there, is_operation, duration };
        let tag = u32::try_from(self.model.sources.len()).unwrap_or(u32::MAX);
        self.model.sources.push(source);
        self.tags.insert(key, tag);
        tag
    }
}

/// When work that runs will have ended. What takes longer than usual is held up by something: until the step that it is in has to
/// end, nobody can say more.
fn end_of_running(work: &WorkView, usual: Micros, limit: Duration, now: Timestamp) -> Micros {
    let begun = work.started.unwrap_or(now).as_microsecond();
    let usually = begun.saturating_add(usual);
    if usually > now.as_microsecond() {
        return usually;
    }
    let by_step = Journal::read(work.checkpoint.as_ref()).step.and_then(|step| step.deadline);
    let limit = Micros::try_from(limit.as_micros()).unwrap_or(Micros::MAX);
    let latest = by_step.map_or(begun.saturating_add(limit), Timestamp::as_microsecond);
    latest.max(now.as_microsecond())
}

/// The periods that count now, and all that follow until `to`: the scheduler will make them in time.
fn up_to(rule: &Rule, near: Horizon, to: Timestamp) -> Horizon {
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
