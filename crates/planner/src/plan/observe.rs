//! The input of a plan.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use api::doc::{Cluster, ResultCode, Schedule, Subscription, TaskStats};
use api::health::HealthSample;
use api::queue::{Budget, WorkView};
use jiff::Timestamp;
use uuid::Uuid;

use crate::schedule::{Member, Rule};

/// The fleet, its rules and its work, as read.
#[derive(Debug, Clone, Default)]
pub struct PlanInput {
    /// All clusters, with their resource ids in original case.
    pub clusters: Vec<(Member, String)>,
    /// Unreachable clusters.
    pub unreachable: HashSet<Uuid>,
    /// Enabled and valid schedules.
    pub rules: Vec<Rule>,
    /// Pending and running work.
    pub live: Vec<WorkView>,
    /// Budgets.
    pub budgets: Vec<Budget>,
    /// Recent durations of tasks.
    pub stats: HashMap<Uuid, TaskStats>,
    /// Slots whose manifests have completed.
    pub settled: HashSet<Uuid>,
    /// Number of running actuators.
    pub actuators: usize,
}

/// Everything that is read from the store for a plan.
#[derive(Debug, Clone, Default)]
pub struct FleetRecords {
    /// Every subscription.
    pub subscriptions: Vec<Subscription>,
    /// Every cluster with its identity.
    pub clusters: Vec<(Uuid, Cluster)>,
    /// The last observation of each cluster that has one.
    pub health: Vec<HealthSample>,
    /// Every schedule, with the time of its last change.
    pub schedules: Vec<(Schedule, Timestamp)>,
    /// Observed durations of tasks.
    pub stats: Vec<TaskStats>,
    /// All work that is pending or running.
    pub live: Vec<WorkView>,
    /// Every budget.
    pub budgets: Vec<Budget>,
    /// Number of running actuators.
    pub actuators: usize,
}

impl PlanInput {
    /// Combines the records, without invalid and disabled schedules.
    pub fn new(records: FleetRecords) -> PlanInput {
        let FleetRecords { subscriptions, clusters, health, schedules, stats, live, budgets, actuators } =
            records;
        let states: HashMap<String, _> =
            subscriptions.into_iter().map(|it| (it.subscription_id.to_lowercase(), it.state)).collect();
        let versions: HashMap<Uuid, &str> =
            health.iter().filter_map(|it| Some((it.cluster, it.details.version.as_deref()?))).collect();
        let clusters = clusters.into_iter().map(|(uuid, cluster)| {
            let state = states.get(&cluster.subscription_id.to_lowercase()).copied();
            let member = Member::new(uuid, &cluster, state, versions.get(&uuid).copied());
            (member, cluster.id)
        });
        let rules = schedules.iter().filter_map(|(schedule, changed)| Rule::read(schedule, *changed).ok());
        PlanInput {
            clusters: clusters.collect(),
            unreachable: health.iter().filter(|it| !it.reachable).map(|it| it.cluster).collect(),
            rules: rules.filter(|rule| rule.enabled).collect(),
            live,
            budgets,
            stats: stats.into_iter().map(|it| (it.task, it)).collect(),
            settled: HashSet::new(),
            actuators,
        }
    }

    /// Manifests that schedules require up to `now + horizon` and that are not live. Each was either never created, or has
    /// finished and must not be planned again; [`PlanInput::settle`] takes the work that exists under these ids.
    pub fn unsettled(&self, now: Timestamp, horizon: Duration) -> Vec<Uuid> {
        super::model::unsettled_slots(self, now, super::end(now, horizon))
    }

    /// Records which of the unsettled manifests have finished. One that its schedule withdrew counts as never created.
    pub fn settle(&mut self, works: &[WorkView]) {
        self.settled.extend(works.iter().filter(|it| !is_superseded(it)).map(|it| it.id));
    }
}

/// Whether its schedule withdrew it, and would restore it.
fn is_superseded(work: &WorkView) -> bool {
    work.result.as_ref().is_some_and(|it| it.has_code(&ResultCode::SUPERSEDED))
}
