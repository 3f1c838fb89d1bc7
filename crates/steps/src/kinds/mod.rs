//! The kinds of steps that a task may use, by the names in their `uses`.
//!
//! Each kind is a verb of kubelink made into a step: it may be tried again at any moment, says what it waits for, and takes
//! back what it did where that is natural. A step is read once when its task is stored ([`check_step`]) and once when a plan
//! is made ([`build_step`]), by the same code.
//!
//! | `uses` | while it runs | taken back by |
//! |---|---|---|
//! | `pause` | a wait | |
//! | `assert` | an action | |
//! | `kubernetes/apply`, `/patch`, `/delete` | an action | |
//! | `kubernetes/wait`, `/restart` | a wait | |
//! | `kubernetes/job` | a wait | stopping a Job that is under way |
//! | `node/cordon`, `node/uncordon` | an action | cordon: uncordoning what this run cordoned |
//! | `node/drain` | a wait | uncordoning what this run cordoned |
//!
//! A wait can be handed back to the store while it lasts, for a customer's operation or a shutdown; an action ends first.

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
mod wait;
mod with;

pub use drain::{DrainWays, Emptied, empty_node};
pub use failure::still_waiting;
pub(crate) use failure::waiting;
pub use labels::check_selector;
pub use step::{UNDO_MAX, build_step, check_step, step_name};

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::cluster::ClusterContext;
use crate::engine::{Look, StepContext, StepError};
use crate::problem::Problem;
use with::{Stage, With};

/// Refuses what cannot be the name of an object, or would lead a request elsewhere.
pub fn check_name(name: &str) -> Result<String, String> {
    kubelink::names::check_name(name).map(|()| name.to_owned())
}

/// The names of all kinds.
pub const KINDS: [&str; 11] = [
    "pause",
    "assert",
    "kubernetes/apply",
    "kubernetes/patch",
    "kubernetes/delete",
    "kubernetes/wait",
    "kubernetes/restart",
    "kubernetes/job",
    "node/cordon",
    "node/uncordon",
    "node/drain",
];

/// A step's work, with what it was given.
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

/// The bounds of one look.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// When the step began.
    began: Instant,
    /// How long this look may take.
    limit: Duration,
}

impl Kind {
    fn read(
        uses: &str,
        place: &str,
        members: &Map<String, Value>,
        parameters: &Map<String, Value>,
        stage: Stage,
    ) -> Result<Kind, Problem> {
        let inside = format!("{place}.with");
        let mut with = With::new(&inside, members, stage);
        let kind = match uses {
            "pause" => Kind::Pause(pause::Pause::read(&mut with)?),
            "assert" => Kind::Assert(assert::Assert::read(&mut with, parameters)?),
            "kubernetes/apply" => Kind::Apply(Box::new(apply::Apply::read(&mut with)?)),
            "kubernetes/patch" => Kind::Patch(Box::new(patch::Patch::read(&mut with)?)),
            "kubernetes/delete" => Kind::Delete(delete::Delete::read(&mut with)?),
            "kubernetes/wait" => Kind::Wait(Box::new(wait::Wait::read(&mut with, parameters)?)),
            "kubernetes/restart" => Kind::Restart(restart::Restart::read(&mut with)?),
            "kubernetes/job" => Kind::Job(Box::new(job::Job::read(&mut with)?)),
            "node/cordon" => Kind::Cordon(nodes::Nodes::read(&mut with)?),
            "node/uncordon" => Kind::Uncordon(nodes::Nodes::read(&mut with)?),
            "node/drain" => Kind::Drain(drain::Drain::read(&mut with)?),
            _ => {
                let message = format!("{uses:?} is not a kind of step; there are {}", KINDS.join(", "));
                return Err(Problem::at(format!("{place}.uses"), message));
            }
        };
        with.finish()?;
        Ok(kind)
    }

    /// Does it, or looks how far it has come.
    async fn look(&self, cx: &ClusterContext, step: &StepContext, turn: Turn) -> Result<Look, StepError> {
        match self {
            Kind::Pause(it) => it.look(turn).await,
            Kind::Assert(it) => it.look(cx).await,
            Kind::Apply(it) => it.look(cx, step).await,
            Kind::Patch(it) => it.look(cx).await,
            Kind::Delete(it) => it.look(cx, step, turn.limit).await,
            Kind::Wait(it) => it.look(cx, step, turn.limit).await,
            Kind::Restart(it) => it.look(cx, step, turn.limit).await,
            Kind::Job(it) => it.look(cx, step, turn.limit).await,
            Kind::Cordon(it) => it.cordon(cx, step).await,
            Kind::Uncordon(it) => it.uncordon(cx, step).await,
            Kind::Drain(it) => it.look(cx, step, turn).await,
        }
    }

    /// How long one look of a wait may take, after which the cluster is asked anew, so that one that no longer answers is
    /// noticed; `None` for actions.
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

    fn has_take_back(&self) -> bool {
        matches!(self, Kind::Job(_) | Kind::Cordon(_) | Kind::Drain(_))
    }

    /// Takes back what it did; says what, or nothing if there was nothing.
    async fn take_back(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
        memory: &Value,
    ) -> Result<Option<String>, StepError> {
        match self {
            Kind::Job(it) => it.take_back(cx, step, memory).await,
            Kind::Cordon(it) => it.take_back(cx, step, memory).await,
            Kind::Drain(it) => it.take_back(cx, step, memory).await,
            _ => Ok(None),
        }
    }
}
