//! A plan: named steps in order, each of which makes one thing true and can be run again at any moment.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::admin::Owner;
use api::clock::SharedClock;
use futures_util::future::BoxFuture;
use serde_json::Value;
use store::WorkLease;
use tokio_util::sync::CancellationToken;

use super::{StepError, StepErrorKind};

/// How long a step may take when nobody said otherwise.
pub const STEP_TIME: Duration = Duration::from_secs(10 * 60);
/// How long a plan may take when nobody said otherwise.
pub const PLAN_TIME: Duration = Duration::from_secs(30 * 60);
/// How often a condition is looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Steps in order.
#[derive(Debug)]
pub struct Plan<C> {
    /// What is done; names are unique and stable, for they are how work is resumed.
    pub steps: Vec<Step<C>>,
    /// How long one attempt may take as a whole.
    pub time_limit: Duration,
}

/// One step.
pub struct Step<C> {
    /// Its name, unique in the plan.
    pub name: String,
    /// How long it may take, all its tries together.
    pub timeout: Duration,
    /// How often it is tried within one attempt.
    pub retry: Retry,
    /// What it does.
    pub body: Body<C>,
    /// What takes back what it did, for when the plan does not come to its end.
    pub undo: Option<Undo<C>>,
    /// Whether the work may be handed back after it (and, for a wait, during it): for a customer's operation or a shutdown.
    pub safe_point: bool,
    /// What a panic in it means. A bug does not go away by trying again, so that it ends the work; work that must not end
    /// before it is done says otherwise.
    pub on_panic: StepErrorKind,
}

/// How often a step is tried within one attempt of the work. Only transient errors are tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// So often at most, the first time included.
    pub attempts: u32,
    /// The pause before the second; it doubles each time.
    pub backoff: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { attempts: 1, backoff: Duration::from_secs(1) }
    }
}

/// Makes something true.
pub type ActionBody<C> = Box<dyn Fn(Arc<C>, StepContext) -> Future<Outcome> + Send + Sync>;
/// Looks whether something is true.
pub type LookBody<C> = Box<dyn Fn(Arc<C>, StepContext) -> Future<Look> + Send + Sync>;
/// Takes back what a step did.
pub type UndoBody<C> = Box<dyn Fn(Arc<C>, StepContext, Value) -> Future<Option<String>> + Send + Sync>;
type Future<T> = BoxFuture<'static, Result<T, StepError>>;

/// What a step does. It is dropped when it takes too long or the work is cancelled; its undo then takes back what it did.
pub enum Body<C> {
    /// Makes something true.
    Action(ActionBody<C>),
    /// Waits for something to be true.
    Wait {
        /// How often it looks.
        every: Duration,
        /// Looks.
        look: LookBody<C>,
    },
}

/// Takes back what a step did. Runs after a cancel, a terminal failure and the last failed attempt, in the reverse order of
/// the steps, also for the step that was in hand; may run twice.
pub struct Undo<C> {
    /// How long it may take.
    pub timeout: Duration,
    /// Is given what the step left in [`Outcome::memory`], or null when it did not come to its end. The sentence says what
    /// was taken back; none when there was nothing to take back.
    pub body: UndoBody<C>,
}

/// What an action leaves.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// In a sentence, for the history and (of the last step) the result.
    pub message: Option<String>,
    /// A log or other long text for the history; cut at 64 KiB from its end.
    pub log: Option<String>,
    /// What later steps and the undo may need; small, for it is part of every later checkpoint. Later steps find it by the
    /// step's name in [`StepContext::memory`].
    pub memory: Value,
}

impl Outcome {
    /// Done, in a sentence.
    pub fn said(message: impl Into<String>) -> Outcome {
        Outcome { message: Some(message.into()), ..Outcome::default() }
    }
}

/// What a wait sees.
#[derive(Debug, Clone, PartialEq)]
pub enum Look {
    /// It is so.
    Done(Outcome),
    /// Not yet; what is waited for, in a sentence.
    Waiting(String),
    /// Not yet; what is waited for, with names.
    Held(Report),
}

impl Look {
    /// What is waited for; the outcome when it is done.
    pub fn waiting(self) -> Result<Outcome, Report> {
        match self {
            Look::Done(outcome) => Ok(outcome),
            Look::Waiting(message) => Err(message.into()),
            Look::Held(report) => Err(report),
        }
    }
}

/// What a step reports while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What is being done or waited for, in a sentence.
    pub message: String,
    /// What is waited for, one by one.
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
    /// Its kind and name: `PodDisruptionBudget shop/web`.
    pub what: String,
    /// What is missing: `allows no disruption`.
    pub message: String,
    /// Who can do something about it.
    pub owner: Owner,
}

/// What every step is given beside the context of its plan.
#[derive(Debug, Clone)]
pub struct StepContext {
    /// The right to the work; its id and fence are the key under which the world may notice a repeated call.
    pub hold: WorkLease,
    /// Which attempt of the work this is, from 1.
    pub attempt: i32,
    /// So many attempts before this one failed for something that a customer is told of, since a step last came to its end.
    pub theirs: u32,
    /// The step's name.
    pub step: String,
    /// What earlier steps left, by their names.
    pub memory: Arc<serde_json::Map<String, Value>>,
    /// Tells what is being done or waited for.
    pub teller: Teller,
    /// The clock.
    pub clock: SharedClock,
    /// Cancelled when the step should end. The engine drops the step's future shortly after; a body that has something to put
    /// in order first looks at this.
    pub stop: CancellationToken,
}

/// Takes what a step reports of what it does or waits for. The latest is shown; it need not be stored at once.
#[derive(Clone)]
pub struct Teller(Arc<dyn Fn(Report) + Send + Sync>);

impl Teller {
    /// Hands each report to `sink`, which must not block.
    pub fn new(sink: impl Fn(Report) + Send + Sync + 'static) -> Teller {
        Teller(Arc::new(sink))
    }

    /// Tells nobody.
    pub fn silent() -> Teller {
        Teller::new(|_| {})
    }

    /// Says what is so now.
    pub fn say(&self, sentence: impl Into<String>) {
        self.report(sentence.into().into());
    }

    /// Reports what is so now, with what is waited for.
    pub fn report(&self, report: Report) {
        (self.0)(report);
    }
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
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
    /// No steps yet.
    pub fn new() -> Plan<C> {
        Plan { steps: Vec::new(), time_limit: PLAN_TIME }
    }

    /// With one more step.
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
    pub fn action<F, Fut>(name: impl Into<String>, body: F) -> Step<C>
    where
        F: Fn(Arc<C>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: std::future::Future<Output = Result<Outcome, StepError>> + Send + 'static,
    {
        Step::of(name, Body::Action(Box::new(move |plan, step| Box::pin(body(plan, step)))))
    }

    /// A step that waits for something to be true.
    pub fn wait<F, Fut>(name: impl Into<String>, timeout: Duration, look: F) -> Step<C>
    where
        F: Fn(Arc<C>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: std::future::Future<Output = Result<Look, StepError>> + Send + 'static,
    {
        let look = Box::new(move |plan, step| -> BoxFuture<'static, _> { Box::pin(look(plan, step)) });
        Step { timeout, ..Step::of(name, Body::Wait { every: LOOK_EVERY, look }) }
    }

    fn of(name: impl Into<String>, body: Body<C>) -> Step<C> {
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

    /// With what takes it back.
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
