//! The kinds of steps that a task may use, by the names in their `uses`.
//!
//! Each kind makes a verb of kubelink a step: it can be repeated at any time, reports what it waits for, and has an undo where
//! that is natural. A step is read once when its task is stored ([`check_step`]) and once when a plan is made ([`build_step`]),
//! by the same code.
//!
//! | `uses` | while it runs | undone by |
//! |---|---|---|
//! | `pause` | a wait | |
//! | `assert` | an action | |
//! | `kubernetes/apply`, `/patch`, `/delete` | an action | |
//! | `kubernetes/wait`, `/restart` | a wait | |
//! | `kubernetes/job` | a wait | stopping a running Job |
//! | `node/cordon`, `node/uncordon` | an action | cordon: uncordoning what this run cordoned |
//! | `node/drain` | a wait | uncordoning what this run cordoned |
//!
//! A wait can be released at any time, for a customer's operation or a shutdown; an action finishes first.

mod apply;
mod assert;
mod delete;
mod drain;
mod failure;
mod job;
mod labels;
mod nodes;
mod patch;
mod pause;
mod place;
mod prune;
mod restart;
mod step;
mod step_kind;
mod wait;
mod with;

pub use drain::{DrainResult, DrainSettings, drain_node};
pub use failure::still_waiting;
pub(crate) use failure::waiting;
pub use labels::check_selector;
pub use step::{UNDO_MAX, build_step, check_step, step_name};
pub use step_kind::StepKind;

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::cluster::ClusterContext;
use crate::engine::{PollStatus, StepContext, StepError};
use crate::problem::Problem;
use with::{ReadStage, With};

/// Rejects text that cannot be the name of an object, or would change the path of a request.
pub fn check_name(name: &str) -> Result<String, String> {
    kubelink::names::check_name(name).map(|()| name.to_owned())
}

/// A kind of step with its parameters.
#[derive(Debug)]
enum Kind {
    Pause(pause::Pause),
    Assert(assert::Assert),
    Apply(Box<apply::Apply>),
    Patch(Box<patch::Patch>),
    Delete(delete::Delete),
    Wait(Box<wait::Wait>),
    Restart(restart::Restart),
    Job(Box<job::Job>),
    Cordon(nodes::Nodes),
    Uncordon(nodes::Nodes),
    Drain(drain::Drain),
}

/// Time limits of one poll.
#[derive(Debug, Clone, Copy)]
struct PollLimits {
    /// When the step started.
    began: Instant,
    /// Time limit of this poll.
    limit: Duration,
}

impl Kind {
    fn read(
        uses: &str,
        place: &str,
        members: &Map<String, Value>,
        parameters: &Map<String, Value>,
        stage: ReadStage,
    ) -> Result<Kind, Problem> {
        let step_kind: StepKind =
            uses.parse().map_err(|message: String| Problem::at(format!("{place}.uses"), message))?;
        let inside = format!("{place}.with");
        let mut with = With::new(&inside, members, stage);
        let kind = match step_kind {
            StepKind::Pause => Kind::Pause(pause::Pause::read(&mut with)?),
            StepKind::Assert => Kind::Assert(assert::Assert::read(&mut with, parameters)?),
            StepKind::Apply => Kind::Apply(Box::new(apply::Apply::read(&mut with)?)),
            StepKind::Patch => Kind::Patch(Box::new(patch::Patch::read(&mut with)?)),
            StepKind::Delete => Kind::Delete(delete::Delete::read(&mut with)?),
            StepKind::Wait => Kind::Wait(Box::new(wait::Wait::read(&mut with, parameters)?)),
            StepKind::Restart => Kind::Restart(restart::Restart::read(&mut with)?),
            StepKind::Job => Kind::Job(Box::new(job::Job::read(&mut with)?)),
            StepKind::Cordon => Kind::Cordon(nodes::Nodes::read(&mut with)?),
            StepKind::Uncordon => Kind::Uncordon(nodes::Nodes::read(&mut with)?),
            StepKind::Drain => Kind::Drain(drain::Drain::read(&mut with)?),
        };
        with.finish()?;
        Ok(kind)
    }

    /// Runs the action, or polls the wait.
    async fn poll(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
        limits: PollLimits,
    ) -> Result<PollStatus, StepError> {
        match self {
            Kind::Pause(it) => it.poll(limits).await,
            Kind::Assert(it) => it.poll(cx).await,
            Kind::Apply(it) => it.poll(cx, step).await,
            Kind::Patch(it) => it.poll(cx).await,
            Kind::Delete(it) => it.poll(cx, step, limits.limit).await,
            Kind::Wait(it) => it.poll(cx, step, limits.limit).await,
            Kind::Restart(it) => it.poll(cx, step, limits.limit).await,
            Kind::Job(it) => it.poll(cx, step, limits.limit).await,
            Kind::Cordon(it) => it.cordon(cx, step).await,
            Kind::Uncordon(it) => it.uncordon(cx, step).await,
            Kind::Drain(it) => it.poll(cx, step, limits).await,
        }
    }

    /// Time limit of one poll of a wait, after which the cluster is contacted again, so that an unreachable one is noticed; `None`
    /// for actions.
    fn slice(&self) -> Option<Duration> {
        match self {
            Kind::Pause(_) | Kind::Wait(_) | Kind::Restart(_) | Kind::Job(_) => Some(Duration::from_secs(20)),
            Kind::Drain(_) => Some(Duration::from_secs(30)),
            Kind::Assert(_)
            | Kind::Apply(_)
            | Kind::Patch(_)
            | Kind::Delete(_)
            | Kind::Cordon(_)
            | Kind::Uncordon(_) => None,
        }
    }

    fn has_undo(&self) -> bool {
        matches!(self, Kind::Job(_) | Kind::Cordon(_) | Kind::Drain(_))
    }

    /// Undoes the step; returns what was undone, or none if there was nothing to undo.
    async fn undo(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
        memory: &Value,
    ) -> Result<Option<String>, StepError> {
        match self {
            Kind::Job(it) => it.undo(cx, step, memory).await,
            Kind::Cordon(it) => it.undo(cx, step, memory).await,
            Kind::Drain(it) => it.undo(cx, step, memory).await,
            _ => Ok(None),
        }
    }
}
