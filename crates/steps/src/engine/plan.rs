//! A plan: named steps in order. Each step makes one thing true and can be repeated at any time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::admin::Owner;
use api::clock::SharedClock;
use api::doc::StepName;
use futures_util::future::BoxFuture;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use store::WorkLease;
use tokio_util::sync::CancellationToken;

use super::{StepError, StepErrorKind};

/// Default timeout of a step.
pub const STEP_TIME: Duration = Duration::from_secs(10 * 60);
/// Default time limit of a plan.
pub const PLAN_TIME: Duration = Duration::from_secs(30 * 60);
/// Default interval between two polls of a condition.
pub const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Steps in order.
#[derive(Debug)]
pub struct Plan<C> {
    /// The steps. Names are unique and stable, since work is resumed by them.
    pub steps: Vec<Step<C>>,
    /// Time limit of one attempt.
    pub time_limit: Duration,
}

/// One step.
pub struct Step<C> {
    /// Unique in the plan.
    pub name: StepName,
    /// Timeout of all tries together.
    pub timeout: Duration,
    /// Retries within one attempt.
    pub retry: Retry,
    /// The action or the wait.
    pub body: Body<C>,
    /// Reverts the step when the plan does not complete.
    pub undo: Option<Undo<C>>,
    /// Whether the work may be released after the step (and during it, for a wait): for a customer's operation or a shutdown.
    pub safe_point: bool,
    /// The kind of error that a panic becomes. By default it is terminal, since a retry does not fix a bug; work that must run
    /// until it succeeds sets another kind.
    pub on_panic: StepErrorKind,
}

/// Retries of a step within one attempt of the work. Only transient errors are retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Most tries, including the first.
    pub attempts: u32,
    /// Delay before the second try; it doubles with each.
    pub backoff: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { attempts: 1, backoff: Duration::from_secs(1) }
    }
}

/// Makes something true.
pub type ActionBody<C> = Box<dyn Fn(Arc<C>, StepContext) -> Future<StepOutcome> + Send + Sync>;
/// Polls whether something is true.
pub type PollBody<C> = Box<dyn Fn(Arc<C>, StepContext) -> Future<PollStatus> + Send + Sync>;
/// Reverts what a step did.
pub type UndoBody<C> = Box<dyn Fn(Arc<C>, StepContext, Value) -> Future<Option<String>> + Send + Sync>;
type Future<T> = BoxFuture<'static, Result<T, StepError>>;

/// The body of a step. It is dropped at its timeout or when the work is cancelled; the undo then reverts what it did.
pub enum Body<C> {
    /// Makes something true.
    Action(ActionBody<C>),
    /// Waits for something to be true.
    Wait {
        /// Interval between two polls.
        interval: Duration,
        /// Polls the condition.
        poll: PollBody<C>,
    },
}

/// Reverts what a step did. It runs after a cancel, a terminal error and the last failed attempt, in the reverse order of the
/// steps, including the interrupted one. It may run twice.
pub struct Undo<C> {
    /// Timeout of all tries together.
    pub timeout: Duration,
    /// Receives [`StepOutcome::memory`] of the step, or null if the step did not complete. Returns what was undone as a
    /// sentence, or none if there was nothing to undo.
    pub body: UndoBody<C>,
}

/// Result of an action.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepOutcome {
    /// A sentence for the history and, for the last step, for the result.
    pub message: Option<String>,
    /// A log or other long text for the history; only its last 64 KiB are stored.
    pub log: Option<String>,
    /// Data for later steps and the undo, the form of a type of the step. Keep it small: it is part of every later
    /// checkpoint. Later steps read it with [`StepContext::memory_of`].
    pub memory: Value,
}

impl StepOutcome {
    /// An outcome with a message only.
    pub fn with_message(message: impl Into<String>) -> StepOutcome {
        StepOutcome { message: Some(message.into()), ..StepOutcome::default() }
    }

    /// Adds data for later steps and the undo.
    #[must_use]
    pub fn with_memory(self, memory: &impl Serialize) -> StepOutcome {
        let memory = serde_json::to_value(memory)
            .expect("a memory has text keys and no values that JSON does not have");
        StepOutcome { memory, ..self }
    }
}

/// Result of one poll.
#[derive(Debug, Clone, PartialEq)]
pub enum PollStatus {
    /// The condition is met.
    Done(StepOutcome),
    /// The condition is not met; says what is missing.
    Waiting(String),
    /// The condition is not met; names what is missing.
    Blocked(Report),
}

impl PollStatus {
    /// The outcome if the condition is met; otherwise a report of what is missing.
    pub fn waiting(self) -> Result<StepOutcome, Report> {
        match self {
            PollStatus::Done(outcome) => Ok(outcome),
            PollStatus::Waiting(message) => Err(message.into()),
            PollStatus::Blocked(report) => Err(report),
        }
    }
}

/// Progress of a running step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What is being done or waited for, as a sentence.
    pub message: String,
    /// What the step waits for, one by one.
    pub obstacles: Vec<Obstacle>,
}

impl From<String> for Report {
    fn from(message: String) -> Report {
        Report { message, obstacles: Vec::new() }
    }
}

/// One thing that a step waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// Kind and name: `PodDisruptionBudget shop/web`.
    pub what: String,
    /// What is missing: `allows no disruption`.
    pub message: String,
    /// Who can do something about it.
    pub owner: Owner,
}

/// What a step receives besides the context of its plan.
#[derive(Debug, Clone)]
pub struct StepContext {
    /// The lease on the work. Its id and fence are a key by which other services can recognise a repeated call.
    pub hold: WorkLease,
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// Attempts that failed with an error for the customer since a step last completed.
    pub customer_failures: u32,
    /// Name of the step.
    pub step: StepName,
    /// What earlier steps left, by their names.
    pub memory: Arc<serde_json::Map<String, Value>>,
    /// Reports progress.
    pub reporter: ProgressReporter,
    /// The clock.
    pub clock: SharedClock,
    /// Cancelled when the step should stop. The engine drops the step's future shortly after; a body that must clean up first
    /// watches this token.
    pub stop: CancellationToken,
}

impl StepContext {
    /// What an earlier step left; none if it left nothing, or something of another form.
    pub fn memory_of<T: DeserializeOwned>(&self, step: &str) -> Option<T> {
        T::deserialize(self.memory.get(step)?).ok()
    }
}

/// Receives the progress of a step. The latest report is shown; it need not be stored at once.
#[derive(Clone)]
pub struct ProgressReporter(Arc<dyn Fn(Report) + Send + Sync>);

impl ProgressReporter {
    /// Passes each report to `sink`, which must not block.
    pub fn new(sink: impl Fn(Report) + Send + Sync + 'static) -> ProgressReporter {
        ProgressReporter(Arc::new(sink))
    }

    /// Discards all reports.
    pub fn disabled() -> ProgressReporter {
        ProgressReporter::new(|_| {})
    }

    /// Reports a message.
    pub fn message(&self, sentence: impl Into<String>) {
        self.report(sentence.into().into());
    }

    /// Reports progress, with what is waited for.
    pub fn report(&self, report: Report) {
        (self.0)(report);
    }
}

impl fmt::Debug for ProgressReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgressReporter")
    }
}

impl<C> fmt::Debug for Step<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("name", &self.name)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl<C> Plan<C> {
    /// A plan without steps.
    pub fn new() -> Plan<C> {
        Plan { steps: Vec::new(), time_limit: PLAN_TIME }
    }

    /// Adds a step.
    #[must_use]
    pub fn step(mut self, step: Step<C>) -> Plan<C> {
        self.steps.push(step);
        self
    }
}

impl<C> Default for Plan<C> {
    fn default() -> Plan<C> {
        Plan::new()
    }
}

impl<C> Step<C> {
    /// A step that makes something true.
    pub fn action<F, Fut>(name: impl Into<StepName>, body: F) -> Step<C>
    where
        F: Fn(Arc<C>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: std::future::Future<Output = Result<StepOutcome, StepError>> + Send + 'static,
    {
        Step::new(name, Body::Action(Box::new(move |plan, step| Box::pin(body(plan, step)))))
    }

    /// A step that waits for something to be true.
    pub fn wait<F, Fut>(name: impl Into<StepName>, timeout: Duration, poll: F) -> Step<C>
    where
        F: Fn(Arc<C>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: std::future::Future<Output = Result<PollStatus, StepError>> + Send + 'static,
    {
        let poll = Box::new(move |plan, step| -> BoxFuture<'static, _> { Box::pin(poll(plan, step)) });
        Step { timeout, ..Step::new(name, Body::Wait { interval: POLL_INTERVAL, poll }) }
    }

    fn new(name: impl Into<StepName>, body: Body<C>) -> Step<C> {
        Step {
            name: name.into(),
            timeout: STEP_TIME,
            retry: Retry::default(),
            body,
            undo: None,
            safe_point: true,
            on_panic: StepErrorKind::Terminal,
        }
    }

    /// Adds the undo.
    #[must_use]
    pub fn undo<F, Fut>(mut self, body: F) -> Step<C>
    where
        F: Fn(Arc<C>, StepContext, Value) -> Fut + Send + Sync + 'static,
        Fut: std::future::Future<Output = Result<Option<String>, StepError>> + Send + 'static,
    {
        let body = Box::new(move |plan, step, memory| -> BoxFuture<'static, _> {
            Box::pin(body(plan, step, memory))
        });
        self.undo = Some(Undo { timeout: STEP_TIME, body });
        self
    }
}
