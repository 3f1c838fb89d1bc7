//! What will run where and when over the coming time, by the rules that will run it.
//!
//! The caller reads [`FleetRecords`] from the store; [`compute`] builds a world from them, simulates it ([`mod@simulate`]) and
//! returns the page that was requested. The same function that the scheduler uses says what a schedule will want, and work
//! runs in the order of the queue. A caller that no longer needs the plan can cancel the computation at any time.

mod estimate;
mod group;
mod model;
mod observe;
mod reach;
pub mod simulate;

#[cfg(test)]
mod compute_tests;
#[cfg(test)]
mod tests;

use std::time::Duration;

use api::admin::{PlanForm, PlanGrouping, PlanOutcome, PlanTruncation};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

pub use estimate::{MEASURED_FROM, blend, estimate};
pub use observe::{FleetRecords, PlanInput};
pub use reach::RUNS_MAX;

use crate::task::Catalogue;
use group::groups;
use model::PlanModel;
use reach::reach;
use simulate::{PlannedRun, WaitCause, simulate_unless};

/// What is asked of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanRequest {
    /// How far ahead.
    pub horizon: Duration,
    /// Only this cluster, by its resource id in any spelling.
    pub cluster: Option<String>,
    /// Only this schedule.
    pub schedule: Option<String>,
    /// Only this task.
    pub task: Option<Uuid>,
    /// Only runs that begin in time, or only those that do not.
    pub outcome: Option<PlanOutcome>,
    /// How runs are put together into entries.
    pub grouping: PlanGrouping,
    /// So many entries are passed over.
    pub skip: usize,
    /// So many entries are told.
    pub limit: usize,
}

/// A page of the plan, and where the next one begins.
pub type PlanPage = (PlanForm, Option<usize>);

/// The plan that follows from what was seen; none when `is_cancelled` was true before it was computed.
pub fn compute(
    seen: &PlanInput,
    catalogue: &Catalogue,
    question: &PlanRequest,
    now: Timestamp,
    is_cancelled: &dyn Fn() -> bool,
) -> Option<PlanPage> {
    compute_within(seen, catalogue, question, now, is_cancelled, RUNS_MAX)
}

fn compute_within(
    seen: &PlanInput,
    catalogue: &Catalogue,
    question: &PlanRequest,
    now: Timestamp,
    is_cancelled: &dyn Fn() -> bool,
    runs_max: u64,
) -> Option<PlanPage> {
    let requested_to = end(now, question.horizon);
    let to = reach(seen, now, requested_to, runs_max, is_cancelled);
    let mut model = PlanModel::new(seen, catalogue, now, to, is_cancelled);
    let world = std::mem::take(&mut model.world);
    let placed = simulate_unless(world, now.as_microsecond(), to.as_microsecond(), is_cancelled)?;
    let wanted = question.cluster.as_ref().map(|it| it.to_lowercase());
    let lanes: Vec<bool> = match &wanted {
        None => vec![true; model.clusters.len()],
        Some(wanted) => model.clusters.iter().map(|it| *wanted == it.to_lowercase()).collect(),
    };
    let asked_for = |it: &&PlannedRun| {
        let source = model.source(it);
        !source.is_operation
            && lanes[it.lane as usize]
            && question.schedule.as_ref().is_none_or(|it| source.schedule.as_ref() == Some(it))
            && question.task.is_none_or(|it| source.task == it)
            && question.outcome.is_none_or(|outcome| (outcome == PlanOutcome::Runs) == it.runs)
    };
    let (mut runs, mut misses) = (0, 0);
    for one in placed.iter().filter(asked_for) {
        runs += 1;
        misses += u64::from(!one.runs);
    }
    let last = question.skip.saturating_add(question.limit);
    let (entries, total) = match question.grouping {
        // A group for each run would take more memory than the runs themselves.
        PlanGrouping::Run => {
            let page = placed.iter().filter(asked_for).skip(question.skip).take(question.limit);
            let alone = groups(&model, page, PlanGrouping::Run);
            (alone.iter().filter_map(|it| it.entry(&model)).collect(), runs)
        }
        grouping => {
            let all = groups(&model, placed.iter().filter(asked_for), grouping);
            let page = all.iter().skip(question.skip).take(question.limit);
            (page.filter_map(|it| it.entry(&model)).collect(), all.len() as u64)
        }
    };
    let form = PlanForm {
        from: now,
        to,
        generated_at: now,
        runs,
        misses,
        total,
        truncated: (to < requested_to).then(|| truncation(to, requested_to, runs_max)),
        entries,
        next_link: String::new(),
    };
    (!is_cancelled()).then_some((form, (total > last as u64).then_some(last)))
}

fn truncation(to: Timestamp, requested_to: Timestamp, runs_max: u64) -> PlanTruncation {
    let message = format!(
        "The plan ends at {to} instead of {requested_to}: it holds at most {runs_max} runs of schedules."
    );
    PlanTruncation { requested_to, runs_max, message }
}

/// Why a run begins late, or not at all.
fn reason(model: &PlanModel, runs: bool, held: WaitCause) -> Option<String> {
    let held = match held {
        WaitCause::Nothing => None,
        WaitCause::Lane => Some("other work of the cluster goes first".to_owned()),
        WaitCause::Unreachable => Some("the cluster does not answer".to_owned()),
        WaitCause::Budget(key) => {
            let (key, limit) = &model.budgets[usize::from(key)];
            Some(format!("budget {key} lets {limit} run at once"))
        }
        WaitCause::Slots => Some("all slots of the actuators are taken".to_owned()),
    };
    match runs {
        true => held,
        false => held.or(Some("its window closes before it can begin".to_owned())),
    }
}

fn time(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

fn end(now: Timestamp, horizon: Duration) -> Timestamp {
    let span = SignedDuration::try_from(horizon).unwrap_or(SignedDuration::MAX);
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}
