//! Builds a step of the engine from a step of a task.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::admin::{StepForm, UndoForm};
use api::doc::{ResultCode, StepName};
use api::duration::{DurationText, TimeSpan};
use backon::{BackoffBuilder as _, ExponentialBuilder};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::with::ReadStage;
use super::{Kind, PollLimits};
use crate::cluster::ClusterContext;
use crate::engine::{
    Body, PollStatus, Retry, STEP_TIME, Step, StepContext, StepError, StepErrorKind, StepOutcome,
};
use crate::problem::Problem;
use crate::template::{self, TemplateNames, TemplateValues, is_whole_template};

/// Most steps in the undo of one step.
pub const UNDO_MAX: usize = 10;
/// Interval between two polls of a kind that has waited by itself.
const POLL_AGAIN: Duration = Duration::from_millis(10);
/// Longest timeout of a step.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const ATTEMPTS_MAX: u32 = 20;
const BACKOFF_MAX: Duration = Duration::from_secs(60 * 60);

/// The name of a step: its own, or that of its kind.
pub fn step_name(form: &StepForm) -> StepName {
    if form.name.is_empty() { form.uses.replace('/', "-").into() } else { form.name.as_str().into() }
}

/// Rejects a step that could not run with any parameters.
pub fn check_step(form: &StepForm, place: &str, names: &TemplateNames) -> Result<(), Problem> {
    read(form, place, ReadStage::Stored, |with, place| {
        template::check(with, place, names)?;
        Ok(with.clone())
    })?;
    for (at, undo) in undo_of(form, place)? {
        if undo.undo.is_some() {
            return Err(Problem::at(format!("{at}.undo"), "an undo cannot have an undo itself"));
        }
        check_step(undo, &at, names)?;
    }
    Ok(())
}

/// Builds a step whose members are all known.
pub fn build_step(
    form: &StepForm,
    place: &str,
    given: TemplateValues<'_>,
) -> Result<Step<ClusterContext>, Problem> {
    let built = build(form, place, given)?;
    let mut undo = Vec::new();
    for (at, form) in undo_of(form, place)? {
        undo.push(build(form, &at, given)?);
    }
    Ok(assemble(step_name(form), built, undo))
}

/// A kind with its timeout and retries.
#[derive(Debug)]
struct Built {
    kind: Kind,
    timeout: Duration,
    retry: Retry,
}

fn build(form: &StepForm, place: &str, given: TemplateValues<'_>) -> Result<Built, Problem> {
    let bounds = bounds(form, place)?;
    let kind = read_with(form, place, ReadStage::Planned, given.parameters, |with, place| {
        template::fill(with, place, given)
    })?;
    let timeout = timeout(form, place, &kind)?;
    Ok(Built { kind, timeout, retry: bounds })
}

fn read(
    form: &StepForm,
    place: &str,
    stage: ReadStage,
    prepare: impl FnOnce(&Value, &str) -> Result<Value, Problem>,
) -> Result<(), Problem> {
    bounds(form, place)?;
    let kind = read_with(form, place, stage, &Map::new(), prepare)?;
    timeout(form, place, &kind).map(drop)
}

fn read_with(
    form: &StepForm,
    place: &str,
    stage: ReadStage,
    parameters: &Map<String, Value>,
    prepare: impl FnOnce(&Value, &str) -> Result<Value, Problem>,
) -> Result<Kind, Problem> {
    let inside = format!("{place}.with");
    let with = match &form.with {
        Value::Null => Value::Object(Map::new()),
        with => with.clone(),
    };
    let with = prepare(&parsed(with, &form.uses, &inside)?, &inside)?;
    let Value::Object(members) = &with else {
        return Err(Problem::at(inside, "an object is expected"));
    };
    Kind::read(&form.uses, place, members, parameters, stage)
}

/// Parses members that are written as YAML text before templates are filled in, so that a value can never become YAML.
fn parsed(mut with: Value, uses: &str, inside: &str) -> Result<Value, Problem> {
    let name = match uses {
        "kubernetes/apply" => "manifests",
        "kubernetes/job" => "manifest",
        _ => return Ok(with),
    };
    let Some(Value::String(text)) = with.get(name) else { return Ok(with) };
    if is_whole_template(text) {
        return Ok(with);
    }
    let place = format!("{inside}.{name}");
    // The message of the parser quotes the text, which may contain a Secret: only the position is reported.
    let values: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        let at = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
        Problem::at(&place, format!("it is not YAML{}", at.unwrap_or_default()))
    })?;
    with[name] = match uses {
        "kubernetes/apply" => Value::Array(values),
        _ => match <[Value; 1]>::try_from(values) {
            Ok([value]) => value,
            Err(_) => return Err(Problem::at(place, "one Job is expected")),
        },
    };
    Ok(with)
}

/// The steps of the undo, with their places.
fn undo_of<'a>(form: &'a StepForm, place: &str) -> Result<Vec<(String, &'a StepForm)>, Problem> {
    match &form.undo {
        None => Ok(Vec::new()),
        Some(UndoForm::One(one)) => Ok(vec![(format!("{place}.undo"), one)]),
        Some(UndoForm::Many(many)) if many.len() > UNDO_MAX => {
            let message = format!("the undo has {} steps; at most {UNDO_MAX} are allowed", many.len());
            Err(Problem::at(format!("{place}.undo"), message))
        }
        Some(UndoForm::Many(many)) => {
            Ok(many.iter().enumerate().map(|(index, it)| (format!("{place}.undo[{index}]"), it)).collect())
        }
    }
}

fn bounds(form: &StepForm, place: &str) -> Result<Retry, Problem> {
    let Some(retry) = &form.retry else { return Ok(Retry::default()) };
    if retry.attempts == 0 || retry.attempts > ATTEMPTS_MAX {
        let message = format!("{} attempts are not between 1 and {ATTEMPTS_MAX}", retry.attempts);
        return Err(Problem::at(format!("{place}.retry.attempts"), message));
    }
    let backoff = retry.backoff.as_ref().map_or(Retry::default().backoff, DurationText::duration);
    if backoff > BACKOFF_MAX {
        return Err(Problem::at(format!("{place}.retry.backoff"), "the backoff may be at most 1h"));
    }
    Ok(Retry { attempts: retry.attempts, backoff })
}

/// The timeout of a step. By default a pause takes as long as it lasts.
fn timeout(form: &StepForm, place: &str, kind: &Kind) -> Result<Duration, Problem> {
    let place = format!("{place}.timeout");
    let paused = match kind {
        Kind::Pause(pause) => Some(pause.duration),
        _ => None,
    };
    let Some(timeout) = form.timeout.as_ref().map(DurationText::duration) else {
        return Ok(paused.map_or(STEP_TIME, |paused| STEP_TIME.max(paused + Duration::from_secs(60))));
    };
    if timeout.is_zero() || timeout > TIMEOUT_MAX {
        return Err(Problem::at(place, "the timeout must be more than 0s and at most 24h"));
    }
    if paused.is_some_and(|paused| paused >= timeout) {
        return Err(Problem::at(place, "the pause is longer than this timeout"));
    }
    Ok(timeout)
}

/// Assembles a step of the engine.
fn assemble(name: StepName, built: Built, undo: Vec<Built>) -> Step<ClusterContext> {
    let Built { kind, timeout, retry } = built;
    let kind = Arc::new(kind);
    let clock = Arc::new(Stopwatch { timeout, began: Mutex::new(None) });
    let mut step = match kind.slice() {
        None => {
            let kind = kind.clone();
            Step::action(name, move |cx: Arc<ClusterContext>, step: StepContext| {
                let kind = kind.clone();
                async move { run_to_completion(&kind, &cx, &step, timeout).await }
            })
        }
        Some(slice) => {
            let kind = kind.clone();
            Step::wait(name, timeout, move |cx: Arc<ClusterContext>, step: StepContext| {
                let (kind, clock) = (kind.clone(), clock.clone());
                async move { clock.poll(&kind, &cx, &step, slice).await }
            })
        }
    };
    if let Body::Wait { interval, .. } = &mut step.body {
        *interval = POLL_AGAIN;
    }
    (step.timeout, step.retry) = (timeout, retry);
    if !kind.has_undo() && undo.is_empty() {
        return step;
    }
    let own = if kind.has_undo() { STEP_TIME } else { Duration::ZERO };
    let undo_timeout = undo.iter().map(|it| it.timeout).sum::<Duration>() + own;
    let undo = Arc::new(undo);
    let mut step = step.undo(move |cx: Arc<ClusterContext>, step: StepContext, memory: Value| {
        let (kind, undo) = (kind.clone(), undo.clone());
        async move { run_undo(&kind, &undo, &cx, &step, &memory).await }
    });
    if let Some(undo) = &mut step.undo {
        undo.timeout = undo_timeout;
    }
    step
}

/// A little less than the engine's timeout, so that the step itself reports what was missing.
fn within(timeout: Duration) -> Duration {
    timeout - (timeout / 20).min(Duration::from_secs(1))
}

/// Polls until done. For actions, which are done at the first poll, and for the steps of an undo.
async fn run_to_completion(
    kind: &Kind,
    cx: &ClusterContext,
    step: &StepContext,
    timeout: Duration,
) -> Result<StepOutcome, StepError> {
    let clock = Stopwatch { timeout, began: Mutex::new(None) };
    loop {
        match clock.poll(kind, cx, step, timeout).await?.waiting() {
            Ok(outcome) => return Ok(outcome),
            Err(report) => step.reporter.report(report),
        }
        tokio::time::sleep(POLL_AGAIN).await;
    }
}

/// Runs the undo of the kind, then the steps of the task's undo.
async fn run_undo(
    kind: &Kind,
    undo: &[Built],
    cx: &ClusterContext,
    step: &StepContext,
    memory: &Value,
) -> Result<Option<String>, StepError> {
    let mut messages: Vec<String> = kind.undo(cx, step, memory).await?.into_iter().collect();
    for (index, it) in undo.iter().enumerate() {
        // A Job or a restart of the undo is not that of the step.
        let step = StepContext { step: format!("{}-undo-{index}", step.step).into(), ..step.clone() };
        let backoff = ExponentialBuilder::default()
            .with_min_delay(it.retry.backoff)
            .without_max_delay()
            .with_max_times(it.retry.attempts.saturating_sub(1) as usize);
        let mut delays = backoff.build();
        let outcome = loop {
            match run_to_completion(&it.kind, cx, &step, it.timeout).await {
                Err(error) if error.kind() == StepErrorKind::Transient => match delays.next() {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => return Err(error),
                },
                result => break result?,
            }
        };
        messages.extend(outcome.message);
    }
    Ok((!messages.is_empty()).then(|| messages.join("; ")))
}

/// Measures the time since a step started, so that its polls end in time. It is reset when the step ends.
#[derive(Debug)]
struct Stopwatch {
    timeout: Duration,
    began: Mutex<Option<Instant>>,
}

impl Stopwatch {
    async fn poll(
        &self,
        kind: &Kind,
        cx: &ClusterContext,
        step: &StepContext,
        slice: Duration,
    ) -> Result<PollStatus, StepError> {
        let began = *self.began().get_or_insert_with(Instant::now);
        let deadline = began + within(self.timeout);
        let left = deadline.saturating_duration_since(Instant::now());
        let turn = PollLimits { began, limit: slice.min(left) };
        match kind.poll(cx, step, turn).await.map(PollStatus::waiting) {
            Ok(Err(report)) if Instant::now() < deadline => Ok(PollStatus::Blocked(report)),
            Ok(Err(report)) => {
                self.began().take();
                let timeout = TimeSpan::new(self.timeout);
                let message = format!("it did not finish within {timeout}: {}", report.message);
                Err(StepError::transient(ResultCode::TIME_LIMIT, message))
            }
            Ok(Ok(outcome)) => {
                self.began().take();
                Ok(PollStatus::Done(outcome))
            }
            Err(error) => {
                self.began().take();
                Err(error)
            }
        }
    }

    fn began(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.began.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
