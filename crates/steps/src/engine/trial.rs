//! For tests: one trial through which every plan goes. Each step is run twice, interrupted, failed, cancelled and pre-empted
//! in turn, in a fresh world each time, and afterwards the world and the store must be as the plan promises.
//!
//! The store that is handed in goes by the trial's clock (SQLite with a [`ManualClock`]). With tokio's paused clock it must
//! write inline, for a paused clock leaps while another thread writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::admin::EntryEvent;
use api::clock::{Clock, ManualClock};
use api::work::{WorkKind, WorkState};
use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use store::{ClaimedWork, LEASE, NewWork, Store, StoreError, WorkView};
use tokio::sync::Notify;
use uuid::Uuid;

use super::{
    ATTEMPTS_MAX, Body, Control, Done, Ended, Journal, Look, Order, Plan, Step, StepContext, StepError,
    StepErrorKind, Undo, WaitingCode, run,
};

/// So many claims are more than any single mishap can cost.
const CLAIMS_MAX: usize = 20;

/// A clock that goes with tokio's, for tests in which that is paused: all timers and all times then tell the same story.
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

/// A plan and the world that it works on, made anew for each mishap.
pub type Making<C> = Box<dyn Fn() -> BoxFuture<'static, (Plan<C>, Arc<C>)> + Send + Sync>;
/// Looks whether a world is as it should be; says what is wrong with it.
pub type Check<C> = Box<dyn Fn(Arc<C>) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The trial of one plan.
pub struct Trial<C> {
    /// Where the work is kept.
    pub store: Store,
    /// The clock that the store goes by.
    pub clock: Arc<ManualClock>,
    /// Makes the plan and its world.
    pub make: Making<C>,
    /// What must be so after the plan came to its end.
    pub done: Check<C>,
    /// What must be so after it was undone.
    pub undone: Check<C>,
}

/// What befalls a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing.
    None,
    /// Its body runs twice.
    Twice,
    /// The process dies before it takes effect.
    CrashBefore,
    /// The process dies after it took effect and before that is remembered.
    CrashAfter,
    /// It fails once after it took effect, and may be tried again.
    Transient,
    /// It fails for good after it took effect.
    Terminal,
    /// It panics after it took effect.
    Panic,
    /// The cluster does not answer once.
    Unreachable,
    /// Somebody asks for the work's end while it runs.
    Cancel,
    /// A customer's operation arrives while it runs.
    Preempt,
    /// The process is shut down, and the step does not end in time.
    Halt,
}

impl Mishap {
    /// Every one of them.
    pub const ALL: [Mishap; 11] = [
        Mishap::None,
        Mishap::Twice,
        Mishap::CrashBefore,
        Mishap::CrashAfter,
        Mishap::Transient,
        Mishap::Terminal,
        Mishap::Panic,
        Mishap::Unreachable,
        Mishap::Cancel,
        Mishap::Preempt,
        Mishap::Halt,
    ];

    /// How work of that plan ends after it.
    fn ends<C>(self, plan: &Plan<C>) -> WorkState {
        let outlives_panics = plan.steps.iter().all(|it| it.on_panic != StepErrorKind::Terminal);
        match self {
            Mishap::Panic if outlives_panics => WorkState::Completed,
            Mishap::Terminal | Mishap::Panic => WorkState::Failed,
            Mishap::Cancel => WorkState::Cancelled,
            Mishap::None
            | Mishap::Twice
            | Mishap::CrashBefore
            | Mishap::CrashAfter
            | Mishap::Transient
            | Mishap::Unreachable
            | Mishap::Preempt
            | Mishap::Halt => WorkState::Completed,
        }
    }

    /// How many attempts that takes.
    fn attempts(self) -> i32 {
        match self {
            Mishap::CrashBefore | Mishap::CrashAfter | Mishap::Transient | Mishap::Panic => 2,
            _ => 1,
        }
    }
}

/// What was seen of a work in a trial.
#[derive(Debug)]
pub struct Account {
    /// How often each step's body came to its end.
    pub ran: BTreeMap<String, u32>,
    /// The undos that ran, in order.
    pub undone: Vec<String>,
    /// The work at its end.
    pub work: WorkView,
}

/// Which step (none: every one), and what befalls it.
#[derive(Clone)]
struct Fate {
    step: Option<String>,
    mishap: Mishap,
    /// How the work ends after it.
    ends: WorkState,
    /// What lies behind the work when it is first claimed.
    done: Vec<Done>,
    seen: Arc<Mutex<Seen>>,
    control: Control,
    crash: Arc<Notify>,
}

#[derive(Default)]
struct Seen {
    struck: BTreeSet<String>,
    begun: Vec<String>,
    ran: BTreeMap<String, u32>,
    undone: Vec<String>,
}

impl fmt::Debug for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at step {}", self.mishap, self.step.as_deref().unwrap_or("after step"))
    }
}

impl<C: Send + Sync + 'static> Trial<C> {
    /// Every mishap at every step.
    pub async fn all(&self) {
        let steps: Vec<String> = (self.make)().await.0.steps.into_iter().map(|step| step.name).collect();
        for mishap in Mishap::ALL {
            for step in &steps {
                self.one(step, mishap).await;
            }
        }
    }

    /// One mishap at one step; panics when the plan does not stand it.
    pub async fn one(&self, step: &str, mishap: Mishap) -> Account {
        self.meets(Some(step), mishap, Vec::new()).await
    }

    /// The same for work that has these steps behind it.
    pub async fn one_after(&self, done: Vec<Done>, step: &str, mishap: Mishap) -> Account {
        self.meets(Some(step), mishap, done).await
    }

    /// One mishap at every step, one after the other, on the way to the plan's end; for plans whose worlds are too costly to be
    /// made anew for each step. The mishap must be one that the work survives.
    pub async fn along(&self, mishap: Mishap) -> Account {
        self.meets(None, mishap, Vec::new()).await
    }

    async fn meets(&self, step: Option<&str>, mishap: Mishap, done: Vec<Done>) -> Account {
        let (plan, context) = (self.make)().await;
        let undoable: Vec<String> =
            plan.steps.iter().filter(|it| it.undo.is_some()).map(|it| it.name.clone()).collect();
        let mut fate = Fate {
            step: step.map(str::to_owned),
            mishap,
            ends: mishap.ends(&plan),
            done,
            seen: Arc::default(),
            control: Control::new(),
            crash: Arc::default(),
        };
        let survives = step.is_some() || fate.ends == WorkState::Completed;
        assert!(survives, "{mishap:?} ends the work at the first step");
        let id = Uuid::now_v7();
        let work = NewWork::new(id, Uuid::now_v7(), WorkKind::Manifest);
        self.store.enqueue(vec![work]).await.expect("the trial's store takes work");
        let work = self.to_its_end(plan, &context, &mut fate, id).await;
        let seen = std::mem::take(&mut *fate.seen());
        let account = Account { ran: seen.ran, undone: seen.undone, work };
        self.judge(&fate, &account, &undoable, &seen.begun, &context).await;
        account
    }

    /// Claims the work again and again until it is at its end, as actuators would.
    async fn to_its_end(&self, plan: Plan<C>, context: &Arc<C>, fate: &mut Fate, id: Uuid) -> WorkView {
        let mut plan = plan;
        let mut stale: Vec<ClaimedWork> = Vec::new();
        let steps = if fate.step.is_none() { plan.steps.len() } else { 0 };
        for _ in 0..CLAIMS_MAX + steps {
            let claimed = self.next_claim(id).await;
            fate.control = Control::new();
            let tried = afflicted(plan, fate);
            let mut journal = Journal::read(claimed.checkpoint.as_ref());
            if claimed.checkpoint.is_none() {
                journal.done.clone_from(&fate.done);
            }
            let order = Order {
                store: &self.store,
                claimed: &claimed,
                plan: &tried,
                context: context.clone(),
                journal,
                control: fate.control.clone(),
                clock: self.clock.clone(),
                actor: "service:trial",
                attempts_max: ATTEMPTS_MAX + i32::try_from(steps).unwrap_or(i32::MAX),
            };
            let ended = tokio::select! {
                ended = run(order) => Some(ended),
                () = fate.crash.notified() => None,
            };
            match ended {
                Some(Ended::Finished(completion)) => {
                    self.store.complete(&[completion]).await.expect("the end is written");
                }
                Some(Ended::HandedBack { yielding, .. }) => {
                    self.store.release(yielding).await.expect("the hand-back is written");
                }
                Some(Ended::Lost) => panic!("{fate:?}: the work was lost though nobody took it"),
                None => stale.push(claimed),
            }
            let work = self.store.work(id).await.expect("the store answers").expect("the work is known");
            if work.state.is_terminal() {
                for old in &stale {
                    let written = self.store.checkpoint(old.lease, "late", Value::Null).await;
                    let refused = matches!(written, Err(StoreError::LostLease { .. }));
                    assert!(refused, "{fate:?}: a stale fence wrote: {written:?}");
                }
                return work;
            }
            plan = (self.make)().await.0;
        }
        panic!("{fate:?}: the work did not end");
    }

    /// Lets time pass until the work can be claimed or taken over.
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
                assert_eq!(claimed.lease.work, id, "the trial has its store for itself");
                return claimed;
            }
            let due = self.store.until_due(WorkKind::Manifest).await.expect("the store answers");
            let pause = due.unwrap_or(LEASE) + Duration::from_secs(1);
            self.clock.advance(SignedDuration::try_from(pause).expect("a rest is not for ever"));
        }
        panic!("work {id} cannot be claimed");
    }

    async fn judge(
        &self,
        fate: &Fate,
        account: &Account,
        undoable: &[String],
        begun: &[String],
        context: &Arc<C>,
    ) {
        let work = &account.work;
        let ends = fate.ends;
        assert_eq!(work.state, ends, "{fate:?}: {:?}", work.result);
        let struck =
            i32::try_from(if fate.step.is_none() { account.ran.len() } else { 1 }).unwrap_or(i32::MAX);
        let attempts_max = 1 + (fate.mishap.attempts() - 1) * struck;
        assert!(work.attempt <= attempts_max, "{fate:?}: took {} attempts", work.attempt);
        for (step, ran) in &account.ran {
            let twice = fate.is_at(step)
                && matches!(
                    fate.mishap,
                    Mishap::Twice
                        | Mishap::CrashAfter
                        | Mishap::Transient
                        | Mishap::Panic
                        | Mishap::Halt
                        | Mishap::Unreachable
                );
            assert!(*ran <= 1 + u32::from(twice), "{fate:?}: step {step} ran {ran} times");
        }
        let log = self.store.entries(work.id, None, 1000).await.expect("the store answers");
        let events: Vec<EntryEvent> = log.iter().map(|(_, entry)| entry.event).collect();
        assert!(
            matches!(events.first(), Some(EntryEvent::Claimed | EntryEvent::TakenOver)),
            "{fate:?}: {events:?}"
        );
        assert_eq!(events.last(), Some(&EntryEvent::Finished), "{fate:?}: {events:?}");
        let check = if ends == WorkState::Completed {
            assert!(
                account.undone.is_empty(),
                "{fate:?}: undone though it came to its end: {:?}",
                account.undone
            );
            (self.done)(context.clone()).await
        } else {
            let mut expect: Vec<&String> = begun.iter().filter(|it| undoable.contains(it)).collect();
            expect.dedup();
            expect.reverse();
            let undone: Vec<&String> = account.undone.iter().collect();
            assert_eq!(undone, expect, "{fate:?}: what was begun is undone, the last first");
            (self.undone)(context.clone()).await
        };
        if let Err(wrong) = check {
            panic!("{fate:?}: {wrong}");
        }
    }
}

impl Fate {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_at(&self, step: &str) -> bool {
        self.step.as_deref().is_none_or(|it| it == step)
    }

    /// Whether the mishap strikes now; it strikes once at a step.
    fn strikes(&self, step: &str, mishaps: &[Mishap]) -> bool {
        let strikes = self.is_at(step) && mishaps.contains(&self.mishap);
        strikes && self.seen().struck.insert(step.to_owned())
    }

    /// What befalls a body before it takes effect.
    async fn before(&self, step: &str) -> Result<(), StepError> {
        self.seen().begun.push(step.to_owned());
        if self.strikes(step, &[Mishap::CrashBefore]) {
            self.crash.notify_one();
            std::future::pending::<()>().await;
        }
        if self.strikes(step, &[Mishap::Unreachable]) {
            return Err(StepError::new(
                StepErrorKind::Unreachable,
                "Unreachable",
                "the cluster does not answer",
            ));
        }
        Ok(())
    }

    /// What befalls a body after it took effect.
    async fn after(&self, cx: &StepContext) -> Result<(), StepError> {
        *self.seen().ran.entry(cx.step.clone()).or_default() += 1;
        let struck = |mishap| self.strikes(&cx.step, &[mishap]);
        if struck(Mishap::CrashAfter) {
            self.crash.notify_one();
            std::future::pending::<()>().await;
        }
        if struck(Mishap::Transient) {
            return Err(StepError::transient("Trial", "it may go away"));
        }
        if struck(Mishap::Terminal) {
            return Err(StepError::terminal("Trial", "it does not go away"));
        }
        if struck(Mishap::Panic) {
            panic!("the trial wants a panic");
        }
        if struck(Mishap::Cancel) {
            self.control.cancel.cancel();
            cx.stop.cancelled().await;
            return Err(StepError::transient("Stopped", "stopped as asked"));
        }
        if struck(Mishap::Preempt) {
            self.control.preempt.cancel();
        }
        if struck(Mishap::Halt) {
            self.control.shutdown.cancel();
            self.control.halt.cancel();
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// The plan, with the mishap in it and with everything seen.
fn afflicted<C: Send + Sync + 'static>(plan: Plan<C>, fate: &Fate) -> Plan<C> {
    let steps = plan.steps.into_iter().map(|step| afflicted_step(step, fate)).collect();
    Plan { steps, ..plan }
}

fn afflicted_step<C: Send + Sync + 'static>(step: Step<C>, fate: &Fate) -> Step<C> {
    let name = step.name.clone();
    let fated = fate.clone();
    let body = match step.body {
        Body::Action(body) => {
            let body = Arc::new(body);
            Body::Action(Box::new(move |context: Arc<C>, cx: StepContext| {
                let (fate, body) = (fated.clone(), body.clone());
                Box::pin(async move {
                    fate.before(&cx.step).await?;
                    if fate.strikes(&cx.step, &[Mishap::Twice]) {
                        body(context.clone(), cx.clone()).await?;
                        *fate.seen().ran.entry(cx.step.clone()).or_default() += 1;
                    }
                    let outcome = body(context, cx.clone()).await?;
                    fate.after(&cx).await?;
                    Ok(outcome)
                })
            }))
        }
        Body::Wait { every, look } => {
            let look = Arc::new(look);
            let look = move |context: Arc<C>, cx: StepContext| -> BoxFuture<'static, _> {
                let (fate, look) = (fated.clone(), look.clone());
                Box::pin(async move {
                    fate.before(&cx.step).await?;
                    if fate.strikes(&cx.step, &[Mishap::Twice]) {
                        look(context.clone(), cx.clone()).await?;
                    }
                    let seen = look(context, cx.clone()).await?;
                    if matches!(seen, Look::Done(_)) {
                        fate.after(&cx).await?;
                    }
                    Ok(seen)
                })
            };
            Body::Wait { every, look: Box::new(look) }
        }
    };
    let undo = step.undo.map(|undo| {
        let (fate, body) = (fate.clone(), Arc::new(undo.body));
        let watched = move |context, cx, memory| -> BoxFuture<'static, _> {
            let (fate, body, name) = (fate.clone(), body.clone(), name.clone());
            Box::pin(async move {
                let undone = body(context, cx, memory).await?;
                fate.seen().undone.push(name);
                Ok(undone)
            })
        };
        Undo { timeout: undo.timeout, body: Box::new(watched) }
    });
    Step { body, undo, ..step }
}

/// Why work that was handed back rests; for assertions.
pub fn rests_for(work: &WorkView) -> Option<WaitingCode> {
    Journal::read(work.checkpoint.as_ref()).waiting.map(|it| it.code)
}
