//! The plans of operations, and the bodies of their steps, one module for each subject.
//!
//! A step makes one thing true and can be run again at any moment; its name is the reference's. A wait says what it waits
//! for. Nothing here retries by itself or writes without the fence.

pub(crate) mod base;
mod create;
mod delete;
mod endurance;
pub(crate) mod identities;
pub(crate) mod inside;
pub(crate) mod installation;
pub(crate) mod names;
pub(crate) mod network;
pub(crate) mod offerings;
pub(crate) mod prepare;
pub(crate) mod ranges;
mod reach;
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

use crate::{Context, OperationTiming};

pub use create::create;
pub use delete::delete;
pub use subscription::remove_subscription;
pub use update::{Affected, update};

/// How long one attempt of an operation may take as a whole: longer than all that it waits for.
pub const OPERATION_TIME: Duration = Duration::from_secs(6 * 60 * 60);

/// The plan of an operation on a cluster.
pub fn of(verb: Verb, cluster: &Cluster, timing: OperationTiming) -> Plan<Context> {
    match verb {
        Verb::Create => create(is_workload(cluster), timing),
        Verb::Update | Verb::AdminUpdate => update(&Affected::of(cluster), timing),
        Verb::Delete => delete(is_workload(cluster), timing),
    }
}

/// Whether a cluster works as managed identities.
pub(crate) fn is_workload(cluster: &Cluster) -> bool {
    let identity = cluster.provisioned.as_ref().map(|it| &it.spec.identity);
    matches!(identity, Some(Identity::Workload { .. }))
}

/// Collects the steps of a plan, all at one timing.
pub(crate) struct Drafting {
    timing: OperationTiming,
    /// Whether the steps go on whatever happens.
    enduring: bool,
    steps: Vec<Step<Context>>,
}

impl Drafting {
    pub(crate) fn at(timing: OperationTiming) -> Drafting {
        Drafting { timing, enduring: false, steps: Vec::new() }
    }

    /// The same, for steps that go on until they are done: see [`endurance`].
    pub(crate) fn enduring(self) -> Drafting {
        Drafting { enduring: true, ..self }
    }

    /// A step that makes something true at once.
    pub(crate) fn action<F, Fut>(mut self, name: StepName, body: F) -> Drafting
    where
        F: Fn(Arc<Context>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<StepOutcome, StepError>> + Send + 'static,
    {
        let step = match self.enduring {
            true => Step::action(name, endurance::of(body)),
            false => Step::action(name, reach::of(body)),
        };
        self.push(step);
        self
    }

    /// A step that asks for something and waits for it, so many minutes at most.
    pub(crate) fn until<F, Fut>(self, name: StepName, minutes: u64, look: F) -> Drafting
    where
        F: Fn(Arc<Context>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<PollStatus, StepError>> + Send + 'static,
    {
        let every = self.timing.poll_interval;
        self.every(name, minutes, every, look)
    }

    /// The same, looking at another pace.
    pub(crate) fn every<F, Fut>(mut self, name: StepName, minutes: u64, pace: Duration, look: F) -> Drafting
    where
        F: Fn(Arc<Context>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<PollStatus, StepError>> + Send + 'static,
    {
        let limit = Duration::from_secs(60 * minutes);
        let mut step = match self.enduring {
            true => Step::wait(name, limit, endurance::of(look)),
            false => Step::wait(name, limit, reach::of(look)),
        };
        if let Body::Wait { interval, .. } = &mut step.body {
            *interval = pace;
        }
        self.push(step);
        self
    }

    fn push(&mut self, step: Step<Context>) {
        let on_panic = if self.enduring { StepErrorKind::Transient } else { step.on_panic };
        self.steps.push(Step { retry: self.timing.retry(), on_panic, ..step });
    }

    /// Further steps, if that is so.
    pub(crate) fn when(self, so: bool, more: impl FnOnce(Drafting) -> Drafting) -> Drafting {
        if so { more(self) } else { self }
    }

    pub(crate) fn plan(self) -> Plan<Context> {
        Plan { steps: self.steps, time_limit: OPERATION_TIME }
    }
}

/// Nothing to say.
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
        let affected = Affected::everything();
        let plans = [
            create(false, timing),
            create(true, timing),
            update(&affected, timing),
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
