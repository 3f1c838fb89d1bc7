//! The plans of operations, and the bodies of their steps, one module for each subject.
//!
//! A step ensures one fact and can be repeated at any time; its name is that of the reference. A wait reports what it waits for.
//! No body retries by itself or writes without the fence.

pub(crate) mod base;
mod create;
mod delete;
mod error_policy;
pub(crate) mod identities;
pub(crate) mod in_cluster;
pub(crate) mod installation;
pub(crate) mod issuer;
pub(crate) mod names;
pub(crate) mod network;
pub(crate) mod offerings;
pub(crate) mod prepare;
pub(crate) mod step_names;
mod subscription;
pub(crate) mod teardown;
mod update;
pub(crate) mod validate;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::doc::{Cluster, Identity, StepName, Verb};
use steps::engine::{Body, Plan, PollStatus, Step, StepContext, StepError, StepErrorKind, StepOutcome};

use self::error_policy::ErrorPolicy;
use crate::{Context, OperationTiming};

pub use create::create;
pub use delete::delete;
pub use subscription::remove_subscription;
pub use update::{UpdateScope, update};

/// Time limit of one attempt of an operation: longer than the limits of its waits together.
pub const OPERATION_TIME: Duration = Duration::from_secs(6 * 60 * 60);

/// The plan of an operation on a cluster.
pub fn for_verb(verb: Verb, cluster: &Cluster, timing: OperationTiming) -> Plan<Context> {
    match verb {
        Verb::Create => create(is_workload(cluster), timing),
        Verb::Update | Verb::AdminUpdate => update(&UpdateScope::from_cluster(cluster), timing),
        Verb::Delete => delete(is_workload(cluster), timing),
    }
}

/// Whether a cluster uses managed identities.
pub(crate) fn is_workload(cluster: &Cluster) -> bool {
    let identity = cluster.provisioned.as_ref().map(|it| &it.spec.identity);
    matches!(identity, Some(Identity::Workload { .. }))
}

/// Builds a plan whose steps share a timing and an error policy.
pub(crate) struct PlanBuilder {
    timing: OperationTiming,
    policy: ErrorPolicy,
    steps: Vec<Step<Context>>,
}

impl PlanBuilder {
    pub(crate) fn new(timing: OperationTiming) -> PlanBuilder {
        PlanBuilder { timing, policy: ErrorPolicy::Bounded, steps: Vec::new() }
    }

    /// Retries the steps until they succeed: see [`ErrorPolicy::Persistent`].
    pub(crate) fn persistent(self) -> PlanBuilder {
        PlanBuilder { policy: ErrorPolicy::Persistent, ..self }
    }

    /// Adds a step that runs once.
    pub(crate) fn action<F, Fut>(mut self, name: StepName, body: F) -> PlanBuilder
    where
        F: Fn(Arc<Context>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<StepOutcome, StepError>> + Send + 'static,
    {
        let step = Step::action(name, self.policy.apply(body));
        self.push(step);
        self
    }

    /// Adds a step that is polled until it is done, for at most `minutes`.
    pub(crate) fn wait<F, Fut>(self, name: StepName, minutes: u64, poll: F) -> PlanBuilder
    where
        F: Fn(Arc<Context>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<PollStatus, StepError>> + Send + 'static,
    {
        let interval = self.timing.poll_interval;
        self.wait_with_interval(name, minutes, interval, poll)
    }

    /// Adds a step that is polled at another interval than that of the timing.
    pub(crate) fn wait_with_interval<F, Fut>(
        mut self,
        name: StepName,
        minutes: u64,
        poll_interval: Duration,
        poll: F,
    ) -> PlanBuilder
    where
        F: Fn(Arc<Context>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<PollStatus, StepError>> + Send + 'static,
    {
        let limit = Duration::from_secs(60 * minutes);
        let mut step = Step::wait(name, limit, self.policy.apply(poll));
        if let Body::Wait { interval, .. } = &mut step.body {
            *interval = poll_interval;
        }
        self.push(step);
        self
    }

    fn push(&mut self, step: Step<Context>) {
        let on_panic = match self.policy {
            ErrorPolicy::Persistent => StepErrorKind::Transient,
            ErrorPolicy::Bounded => step.on_panic,
        };
        self.steps.push(Step { retry: self.timing.retry(), on_panic, ..step });
    }

    /// Adds steps if the condition is true.
    pub(crate) fn when(self, condition: bool, add: impl FnOnce(PlanBuilder) -> PlanBuilder) -> PlanBuilder {
        if condition { add(self) } else { self }
    }

    pub(crate) fn build(self) -> Plan<Context> {
        Plan { steps: self.steps, time_limit: OPERATION_TIME }
    }
}

/// The outcome of a step that has no message.
pub(crate) fn done() -> Result<StepOutcome, StepError> {
    Ok(StepOutcome::default())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_of_steps_are_unique_and_in_kebab_case() {
        let timing = OperationTiming::default();
        let scope = UpdateScope::everything();
        let plans = [
            create(false, timing),
            create(true, timing),
            update(&scope, timing),
            delete(false, timing),
            delete(true, timing),
        ];
        for plan in plans {
            let names: Vec<&str> = plan.steps.iter().map(|step| step.name.as_str()).collect();
            let unique: HashSet<&str> = names.iter().copied().collect();
            assert_eq!(names.len(), unique.len(), "{names:?}");
            for name in names {
                assert!(
                    name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-'),
                    "{name}"
                );
            }
        }
    }
}
