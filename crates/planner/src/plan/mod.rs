//! The plan: which manifests will run where and when.
//!
//! The caller reads [`FleetRecords`] from the store; [`compute`] builds a model from them, simulates it ([`mod@simulate`]) and
//! returns the requested page. The plan uses the scheduler's function for the manifests of a schedule, and the order of the
//! queue. A caller that no longer needs the plan can cancel the computation at any time.

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

/// Filters and page of a requested plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanRequest {
    /// Horizon of the plan.
    pub horizon: Duration,
    /// Only this cluster, by resource id, ignoring case.
    pub cluster: Option<String>,
    /// Only this schedule.
    pub schedule: Option<String>,
    /// Only this task.
    pub task: Option<Uuid>,
    /// Only runs that start in their window, or only those that miss it.
    pub outcome: Option<PlanOutcome>,
    /// Grouping of runs into entries.
    pub grouping: PlanGrouping,
    /// Number of entries to skip.
    pub skip: usize,
    /// Most entries of the page.
    pub limit: usize,
}

/// Page of the plan, and the `skip` of the next page.
pub type PlanPage = (PlanForm, Option<usize>);

/// Computes a page of the plan; none if `is_cancelled` became true first.
pub fn compute(
    input: &PlanInput,
    catalogue: &Catalogue,
    request: &PlanRequest,
    now: Timestamp,
    is_cancelled: &dyn Fn() -> bool,
) -> Option<PlanPage> {
    compute_within(input, catalogue, request, now, is_cancelled, RUNS_MAX)
}

fn compute_within(
    input: &PlanInput,
    catalogue: &Catalogue,
    request: &PlanRequest,
    now: Timestamp,
    is_cancelled: &dyn Fn() -> bool,
    runs_max: u64,
) -> Option<PlanPage> {
    let requested_to = end(now, request.horizon);
    let to = reach(input, now, requested_to, runs_max, is_cancelled);
    let mut model = PlanModel::new(input, catalogue, now, to, is_cancelled);
    let fleet = std::mem::take(&mut model.fleet);
    let planned = simulate_unless(fleet, now.as_microsecond(), to.as_microsecond(), is_cancelled)?;
    let cluster = request.cluster.as_ref().map(|it| it.to_lowercase());
    let lanes: Vec<bool> = match &cluster {
        None => vec![true; model.clusters.len()],
        Some(cluster) => model.clusters.iter().map(|it| *cluster == it.to_lowercase()).collect(),
    };
    let is_requested = |it: &&PlannedRun| {
        let source = model.source(it);
        !source.is_operation
            && lanes[it.lane as usize]
            && request.schedule.as_ref().is_none_or(|it| source.schedule.as_ref() == Some(it))
            && request.task.is_none_or(|it| source.task == it)
            && request.outcome.is_none_or(|outcome| (outcome == PlanOutcome::Runs) == it.runs)
    };
    let (mut runs, mut misses) = (0, 0);
    for run in planned.iter().filter(is_requested) {
        runs += 1;
        misses += u64::from(!run.runs);
    }
    let last = request.skip.saturating_add(request.limit);
    let (entries, total) = match request.grouping {
        // A group for each run would take more memory than the runs themselves.
        PlanGrouping::Run => {
            let page = planned.iter().filter(is_requested).skip(request.skip).take(request.limit);
            let entries = groups(&model, page, PlanGrouping::Run);
            (entries.iter().filter_map(|it| it.entry(&model)).collect(), runs)
        }
        grouping => {
            let all = groups(&model, planned.iter().filter(is_requested), grouping);
            let page = all.iter().skip(request.skip).take(request.limit);
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
        "The plan ends at {to} instead of {requested_to}: it has at most {runs_max} runs of schedules."
    );
    PlanTruncation { requested_to, runs_max, message }
}

/// Why a run starts late, or not at all.
fn reason(model: &PlanModel, runs: bool, cause: WaitCause) -> Option<String> {
    let text = match cause {
        WaitCause::Nothing => None,
        WaitCause::Lane => Some("other work of the cluster runs first".to_owned()),
        WaitCause::Unreachable => Some("the cluster is unreachable".to_owned()),
        WaitCause::Budget(key) => {
            let (key, limit) = &model.budgets[usize::from(key)];
            Some(format!("budget {key} allows {limit} concurrent runs"))
        }
        WaitCause::Slots => Some("all slots of the actuators are in use".to_owned()),
    };
    match runs {
        true => text,
        false => text.or(Some("its window closes before it can start".to_owned())),
    }
}

fn time(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

fn end(now: Timestamp, horizon: Duration) -> Timestamp {
    let span = SignedDuration::try_from(horizon).unwrap_or(SignedDuration::MAX);
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}
