//! For tests: the harness through which every plan goes. Each step is repeated, interrupted, failed, cancelled and pre-empted in
//! turn, in a fresh world each time, and afterwards the world and the store must be in the promised state.
//!
//! The store must use the harness's clock (SQLite with a [`ManualClock`]). With tokio's paused clock it must write inline, since
//! a paused clock advances while another thread writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::admin::EntryEvent;
use api::clock::{Clock, ManualClock};
use api::doc::StepName;
use api::work::{WorkKind, WorkState};
use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use store::{ClaimedWork, LEASE, NewWork, Store, StoreError, WorkView};
use tokio::sync::Notify;
use uuid::Uuid;

use super::{
    ATTEMPTS_MAX, Body, CompletedStep, Journal, Plan, PollStatus, RunControl, RunOutcome, RunRequest, Step,
    StepContext, StepError, StepErrorKind, Undo, WaitingCode, run,
};

/// More claims than any single fault can cause.
const CLAIMS_MAX: usize = 20;

/// A clock that follows tokio's, for tests that pause it: all timers and timestamps then agree.
#[derive(Debug, Clone, Copy)]
pub struct VirtualClock {
    start: Timestamp,
    origin: tokio::time::Instant,
}

impl VirtualClock {
    /// A clock that shows `start` now.
    pub fn from(start: Timestamp) -> VirtualClock {
        VirtualClock { start, origin: tokio::time::Instant::now() }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.origin.elapsed()).unwrap_or(SignedDuration::MAX);
        self.start.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }
}

/// Makes a plan and the world that it works on, fresh for each fault.
pub type PlanFactory<C> = Box<dyn Fn() -> BoxFuture<'static, (Plan<C>, Arc<C>)> + Send + Sync>;
/// Checks a world; the error says what is wrong with it.
pub type Check<C> = Box<dyn Fn(Arc<C>) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The harness for one plan.
pub struct FaultHarness<C> {
    /// Stores the work.
    pub store: Store,
    /// The clock of the store.
    pub clock: Arc<ManualClock>,
    /// Makes the plan and its world.
    pub make: PlanFactory<C>,
    /// Checks the world after the plan completed.
    pub done: Check<C>,
    /// Checks the world after the plan was undone.
    pub undone: Check<C>,
}

/// A fault injected at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepFault {
    /// No fault.
    None,
    /// The body runs twice.
    Twice,
    /// The process is killed before the step takes effect.
    CrashBefore,
    /// The process is killed after the step took effect and before its checkpoint.
    CrashAfter,
    /// The step fails once after it took effect, with a transient error.
    Transient,
    /// The step fails after it took effect, with a terminal error.
    Terminal,
    /// The step panics after it took effect.
    Panic,
    /// The cluster is unreachable once.
    Unreachable,
    /// A cancel is requested while the step runs.
    Cancel,
    /// A customer's operation arrives while the step runs.
    Preempt,
    /// The process is shut down, and the step does not finish in time.
    Halt,
}

impl StepFault {
    /// All faults.
    pub const ALL: [StepFault; 11] = [
        StepFault::None,
        StepFault::Twice,
        StepFault::CrashBefore,
        StepFault::CrashAfter,
        StepFault::Transient,
        StepFault::Terminal,
        StepFault::Panic,
        StepFault::Unreachable,
        StepFault::Cancel,
        StepFault::Preempt,
        StepFault::Halt,
    ];

    /// The final state of work of that plan after the fault.
    fn ends<C>(self, plan: &Plan<C>) -> WorkState {
        let outlives_panics = plan.steps.iter().all(|it| it.on_panic != StepErrorKind::Terminal);
        match self {
            StepFault::Panic if outlives_panics => WorkState::Completed,
            StepFault::Terminal | StepFault::Panic => WorkState::Failed,
            StepFault::Cancel => WorkState::Cancelled,
            StepFault::None
            | StepFault::Twice
            | StepFault::CrashBefore
            | StepFault::CrashAfter
            | StepFault::Transient
            | StepFault::Unreachable
            | StepFault::Preempt
            | StepFault::Halt => WorkState::Completed,
        }
    }

    /// The number of attempts that the work takes.
    fn attempts(self) -> i32 {
        match self {
            StepFault::CrashBefore | StepFault::CrashAfter | StepFault::Transient | StepFault::Panic => 2,
            _ => 1,
        }
    }
}

/// What was observed of a work.
#[derive(Debug)]
pub struct RunRecord {
    /// How often each step's body completed.
    pub ran: BTreeMap<StepName, u32>,
    /// The undos that ran, in order.
    pub undone: Vec<StepName>,
    /// The finished work.
    pub work: WorkView,
}

/// An injected fault and its step (none: every step).
#[derive(Clone)]
struct FaultInjection {
    step: Option<StepName>,
    fault: StepFault,
    /// The final state of the work.
    ends: WorkState,
    /// The steps that are completed when the work is first claimed.
    done: Vec<CompletedStep>,
    seen: Arc<Mutex<Observations>>,
    control: RunControl,
    crash: Arc<Notify>,
}

#[derive(Default)]
struct Observations {
    struck: BTreeSet<StepName>,
    begun: Vec<StepName>,
    ran: BTreeMap<StepName, u32>,
    undone: Vec<StepName>,
}

impl fmt::Debug for FaultInjection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at step {}", self.fault, self.step.as_deref().unwrap_or("after step"))
    }
}

impl<C: Send + Sync + 'static> FaultHarness<C> {
    /// Injects every fault at every step.
    pub async fn run_all(&self) {
        let steps: Vec<StepName> = (self.make)().await.0.steps.into_iter().map(|step| step.name).collect();
        for fault in StepFault::ALL {
            for step in &steps {
                self.run_one(step, fault).await;
            }
        }
    }

    /// Injects one fault at one step; panics if the plan does not handle it.
    pub async fn run_one(&self, step: &str, fault: StepFault) -> RunRecord {
        self.run(Some(step), fault, Vec::new()).await
    }

    /// The same for work whose steps `done` are completed.
    pub async fn run_one_after(&self, done: Vec<CompletedStep>, step: &str, fault: StepFault) -> RunRecord {
        self.run(Some(step), fault, done).await
    }

    /// Injects one fault at every step, one after the other, within one run; for plans whose worlds are too costly to make for each
    /// step. The work must survive the fault.
    pub async fn run_along(&self, fault: StepFault) -> RunRecord {
        self.run(None, fault, Vec::new()).await
    }

    async fn run(&self, step: Option<&str>, fault: StepFault, done: Vec<CompletedStep>) -> RunRecord {
        let (plan, context) = (self.make)().await;
        let undoable: Vec<StepName> =
            plan.steps.iter().filter(|it| it.undo.is_some()).map(|it| it.name.clone()).collect();
        let mut injection = FaultInjection {
            step: step.map(StepName::from),
            fault,
            ends: fault.ends(&plan),
            done,
            seen: Arc::default(),
            control: RunControl::new(),
            crash: Arc::default(),
        };
        let survives = step.is_some() || injection.ends == WorkState::Completed;
        assert!(survives, "{fault:?} finishes the work at the first step");
        let id = Uuid::now_v7();
        let work = NewWork::new(id, Uuid::now_v7(), WorkKind::Manifest);
        self.store.enqueue(vec![work]).await.expect("the store accepts work");
        let work = self.run_to_completion(plan, &context, &mut injection, id).await;
        let seen = std::mem::take(&mut *injection.seen());
        let record = RunRecord { ran: seen.ran, undone: seen.undone, work };
        self.check(&injection, &record, &undoable, &seen.begun, &context).await;
        record
    }

    /// Claims the work repeatedly until it has finished, as actuators would.
    async fn run_to_completion(
        &self,
        plan: Plan<C>,
        context: &Arc<C>,
        injection: &mut FaultInjection,
        id: Uuid,
    ) -> WorkView {
        let mut plan = plan;
        let mut stale: Vec<ClaimedWork> = Vec::new();
        let steps = if injection.step.is_none() { plan.steps.len() } else { 0 };
        for _ in 0..CLAIMS_MAX + steps {
            let claimed = self.next_claim(id).await;
            injection.control = RunControl::new();
            let tried = with_fault(plan, injection);
            let mut journal = Journal::read(claimed.checkpoint.as_ref());
            if claimed.checkpoint.is_none() {
                journal.done.clone_from(&injection.done);
            }
            let order = RunRequest {
                store: &self.store,
                claimed: &claimed,
                plan: &tried,
                context: context.clone(),
                journal,
                control: injection.control.clone(),
                clock: self.clock.clone(),
                actor: "service:trial",
                attempts_max: ATTEMPTS_MAX + i32::try_from(steps).unwrap_or(i32::MAX),
            };
            let ended = tokio::select! {
                ended = run(order) => Some(ended),
                () = injection.crash.notified() => None,
            };
            match ended {
                Some(RunOutcome::Finished(completion)) => {
                    self.store.complete(&[completion]).await.expect("the completion is written");
                }
                Some(RunOutcome::Released { yielding, .. }) => {
                    self.store.release(yielding).await.expect("the release is written");
                }
                Some(RunOutcome::LeaseLost) => {
                    panic!("{injection:?}: the lease was lost though nobody took it")
                }
                None => stale.push(claimed),
            }
            let work = self.store.work(id).await.expect("the store answers").expect("the work exists");
            if work.state.is_terminal() {
                for old in &stale {
                    let written = self.store.checkpoint(old.lease, "late", Value::Null).await;
                    let refused = matches!(written, Err(StoreError::LostLease { .. }));
                    assert!(refused, "{injection:?}: a stale fence wrote: {written:?}");
                }
                return work;
            }
            plan = (self.make)().await.0;
        }
        panic!("{injection:?}: the work did not finish");
    }

    /// Advances the clock until the work can be claimed or taken over.
    async fn next_claim(&self, id: Uuid) -> ClaimedWork {
        let owner = Uuid::now_v7();
        for _ in 0..2 {
            let mut claimed =
                self.store.claim(WorkKind::Manifest, 1, owner).await.expect("the store answers");
            if claimed.is_empty() {
                claimed =
                    self.store.take_over(WorkKind::Manifest, 1, owner).await.expect("the store answers");
            }
            if let Some(claimed) = claimed.pop() {
                assert_eq!(claimed.lease.work, id, "the harness has a store of its own");
                return claimed;
            }
            let due = self.store.until_due(WorkKind::Manifest).await.expect("the store answers");
            let pause = due.unwrap_or(LEASE) + Duration::from_secs(1);
            self.clock.advance(SignedDuration::try_from(pause).expect("a delay is finite"));
        }
        panic!("work {id} cannot be claimed");
    }

    async fn check(
        &self,
        injection: &FaultInjection,
        record: &RunRecord,
        undoable: &[StepName],
        begun: &[StepName],
        context: &Arc<C>,
    ) {
        let work = &record.work;
        let ends = injection.ends;
        assert_eq!(work.state, ends, "{injection:?}: {:?}", work.result);
        let struck =
            i32::try_from(if injection.step.is_none() { record.ran.len() } else { 1 }).unwrap_or(i32::MAX);
        let attempts_max = 1 + (injection.fault.attempts() - 1) * struck;
        assert!(work.attempt <= attempts_max, "{injection:?}: took {} attempts", work.attempt);
        for (step, ran) in &record.ran {
            let twice = injection.is_at(step)
                && matches!(
                    injection.fault,
                    StepFault::Twice
                        | StepFault::CrashAfter
                        | StepFault::Transient
                        | StepFault::Panic
                        | StepFault::Halt
                        | StepFault::Unreachable
                );
            assert!(*ran <= 1 + u32::from(twice), "{injection:?}: step {step} ran {ran} times");
        }
        let log = self.store.entries(work.id, None, 1000).await.expect("the store answers");
        let events: Vec<EntryEvent> = log.into_iter().map(|(_, entry)| entry.event).collect();
        assert!(
            matches!(events.first(), Some(EntryEvent::Claimed | EntryEvent::TakenOver)),
            "{injection:?}: {events:?}"
        );
        assert_eq!(events.last(), Some(&EntryEvent::Finished), "{injection:?}: {events:?}");
        let check = if ends == WorkState::Completed {
            assert!(
                record.undone.is_empty(),
                "{injection:?}: undone though it completed: {:?}",
                record.undone
            );
            (self.done)(context.clone()).await
        } else {
            let mut expect: Vec<&StepName> = begun.iter().filter(|it| undoable.contains(it)).collect();
            expect.dedup();
            expect.reverse();
            let undone: Vec<&StepName> = record.undone.iter().collect();
            assert_eq!(undone, expect, "{injection:?}: started steps are undone, the last first");
            (self.undone)(context.clone()).await
        };
        if let Err(wrong) = check {
            panic!("{injection:?}: {wrong}");
        }
    }
}

impl FaultInjection {
    fn seen(&self) -> MutexGuard<'_, Observations> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_at(&self, step: &str) -> bool {
        self.step.as_deref().is_none_or(|it| it == step)
    }

    /// Whether the fault is injected now; it is injected once at a step.
    fn injects(&self, step: &str, faults: &[StepFault]) -> bool {
        let injects = self.is_at(step) && faults.contains(&self.fault);
        injects && self.seen().struck.insert(step.into())
    }

    /// Injects faults before a body takes effect.
    async fn before(&self, step: &str) -> Result<(), StepError> {
        self.seen().begun.push(step.into());
        if self.injects(step, &[StepFault::CrashBefore]) {
            self.crash.notify_one();
            std::future::pending::<()>().await;
        }
        if self.injects(step, &[StepFault::Unreachable]) {
            return Err(StepError::new(
                StepErrorKind::Unreachable,
                "Unreachable",
                "the cluster does not answer",
            ));
        }
        Ok(())
    }

    /// Injects faults after a body took effect.
    async fn after(&self, cx: &StepContext) -> Result<(), StepError> {
        *self.seen().ran.entry(cx.step.clone()).or_default() += 1;
        let injected = |fault| self.injects(&cx.step, &[fault]);
        if injected(StepFault::CrashAfter) {
            self.crash.notify_one();
            std::future::pending::<()>().await;
        }
        if injected(StepFault::Transient) {
            return Err(StepError::transient("FaultHarness", "injected transient error"));
        }
        if injected(StepFault::Terminal) {
            return Err(StepError::terminal("FaultHarness", "injected terminal error"));
        }
        if injected(StepFault::Panic) {
            panic!("injected panic");
        }
        if injected(StepFault::Cancel) {
            self.control.cancel.cancel();
            cx.stop.cancelled().await;
            return Err(StepError::transient("Stopped", "stopped by the cancel"));
        }
        if injected(StepFault::Preempt) {
            self.control.preempt.cancel();
        }
        if injected(StepFault::Halt) {
            self.control.shutdown.cancel();
            self.control.halt.cancel();
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// The plan with the fault injected and all runs observed.
fn with_fault<C: Send + Sync + 'static>(plan: Plan<C>, injection: &FaultInjection) -> Plan<C> {
    let steps = plan.steps.into_iter().map(|step| step_with_fault(step, injection)).collect();
    Plan { steps, ..plan }
}

fn step_with_fault<C: Send + Sync + 'static>(step: Step<C>, injection: &FaultInjection) -> Step<C> {
    let name = step.name.clone();
    let injected = injection.clone();
    let body = match step.body {
        Body::Action(body) => {
            let body = Arc::new(body);
            Body::Action(Box::new(move |context: Arc<C>, cx: StepContext| {
                let (injection, body) = (injected.clone(), body.clone());
                Box::pin(async move {
                    injection.before(&cx.step).await?;
                    if injection.injects(&cx.step, &[StepFault::Twice]) {
                        body(context.clone(), cx.clone()).await?;
                        *injection.seen().ran.entry(cx.step.clone()).or_default() += 1;
                    }
                    let outcome = body(context, cx.clone()).await?;
                    injection.after(&cx).await?;
                    Ok(outcome)
                })
            }))
        }
        Body::Wait { interval, poll } => {
            let poll = Arc::new(poll);
            let poll = move |context: Arc<C>, cx: StepContext| -> BoxFuture<'static, _> {
                let (injection, poll) = (injected.clone(), poll.clone());
                Box::pin(async move {
                    injection.before(&cx.step).await?;
                    if injection.injects(&cx.step, &[StepFault::Twice]) {
                        poll(context.clone(), cx.clone()).await?;
                    }
                    let seen = poll(context, cx.clone()).await?;
                    if matches!(seen, PollStatus::Done(_)) {
                        injection.after(&cx).await?;
                    }
                    Ok(seen)
                })
            };
            Body::Wait { interval, poll: Box::new(poll) }
        }
    };
    let undo = step.undo.map(|undo| {
        let (injection, body) = (injection.clone(), Arc::new(undo.body));
        let watched = move |context, cx, memory| -> BoxFuture<'static, _> {
            let (injection, body, name) = (injection.clone(), body.clone(), name.clone());
            Box::pin(async move {
                let undone = body(context, cx, memory).await?;
                injection.seen().undone.push(name);
                Ok(undone)
            })
        };
        Undo { timeout: undo.timeout, body: Box::new(watched) }
    });
    Step { body, undo, ..step }
}

/// Why released work waits; for assertions.
pub fn waiting_code(work: &WorkView) -> Option<WaitingCode> {
    Journal::read(work.checkpoint.as_ref()).waiting.map(|it| it.code)
}
