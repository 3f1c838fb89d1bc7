//! Fixtures: a world of marks, a store in a file, a virtual clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::admin::{Entry, EntryEvent};
use api::clock::SharedClock;
use api::work::WorkKind;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::{
    ClaimedWork, Completion, FaultInjector, FaultPoint, Keyring, Location, NewWork, Options, Release, Store,
    StoreError, WorkView, WriteMode,
};
use uuid::Uuid;

use crate::engine::fault_harness::VirtualClock;
use crate::engine::{
    ATTEMPTS_MAX, Journal, Plan, PlanError, RunControl, RunOutcome, RunRequest, Step, StepError, StepOutcome,
    finish_without_plan, run,
};

/// The marks that steps leave, in order.
#[derive(Debug, Default)]
pub(super) struct World {
    marks: Mutex<Vec<String>>,
}

impl World {
    pub(super) fn mark(&self, what: &str) {
        self.marks.lock().unwrap().push(what.to_owned());
    }

    /// Removes a mark; returns whether it existed.
    pub(super) fn unmark(&self, what: &str) -> bool {
        let mut marks = self.marks.lock().unwrap();
        let before = marks.len();
        marks.retain(|it| it != what);
        marks.len() < before
    }

    pub(super) fn marks(&self) -> Vec<String> {
        self.marks.lock().unwrap().clone()
    }
}

/// A step that sets a mark, and whose undo removes it.
pub(super) fn mark(name: &'static str) -> Step<World> {
    Step::action(name, move |world: Arc<World>, _| async move {
        world.mark(name);
        Ok(StepOutcome {
            memory: json!({ "left": name }),
            ..StepOutcome::with_message(format!("{name} is marked"))
        })
    })
    .undo(move |world, _, _| async move { Ok(world.unmark(name).then(|| format!("{name} was taken away"))) })
}

/// A step that fails with an error of `error`.
pub(super) fn failing(
    name: &'static str,
    error: impl Fn() -> StepError + Send + Sync + 'static,
) -> Step<World> {
    Step::action(name, move |_, _| {
        let error = error();
        async move { Err(error) }
    })
}

/// A step that never returns.
pub(super) fn endless(name: &'static str) -> Step<World> {
    Step::action(name, |_, _| std::future::pending::<Result<StepOutcome, StepError>>())
}

pub(super) fn plan(steps: impl IntoIterator<Item = Step<World>>) -> Plan<World> {
    steps.into_iter().fold(Plan::new(), Plan::step)
}

pub(super) struct TestRun {
    pub(super) store: Store,
    pub(super) clock: SharedClock,
    pub(super) world: Arc<World>,
    pub(super) control: RunControl,
    pub(super) id: Uuid,
    /// While set, no read succeeds.
    pub(super) unreadable: Arc<AtomicBool>,
    _directory: tempfile::TempDir,
}

impl TestRun {
    /// A store with one manifest. Call it under a paused clock.
    pub(super) async fn new() -> TestRun {
        TestRun::with(false).await
    }

    /// The same, with a store whose reads can be made to fail.
    pub(super) async fn unreadable() -> TestRun {
        TestRun::with(true).await
    }

    async fn with(can_be_unreadable: bool) -> TestRun {
        let directory = tempfile::tempdir().unwrap();
        let clock: SharedClock = Arc::new(VirtualClock::from(Timestamp::UNIX_EPOCH));
        let location = Location::Sqlite(directory.path().join("store.db"));
        let options = Options::new(location, Keyring::ephemeral().unwrap(), clock.clone());
        let unreadable = Arc::new(AtomicBool::new(false));
        let muted = unreadable.clone();
        let disturbance = FaultInjector::new(move |moment| {
            match moment == FaultPoint::Read && muted.load(Ordering::SeqCst) {
                true => Err(StoreError::Unavailable { what: "muted".to_owned(), source: None }),
                false => Ok(()),
            }
        });
        let options = Options {
            write_mode: WriteMode::Inline,
            fault_injector: can_be_unreadable.then_some(disturbance),
            ..options
        };
        let store = Store::open(options).await.unwrap();
        let id = Uuid::now_v7();
        store.enqueue(vec![NewWork::new(id, Uuid::now_v7(), WorkKind::Manifest)]).await.unwrap();
        TestRun {
            store,
            clock,
            world: Arc::default(),
            control: RunControl::new(),
            id,
            unreadable,
            _directory: directory,
        }
    }

    pub(super) async fn claim(&self) -> ClaimedWork {
        let mut claimed = self.store.claim(WorkKind::Manifest, 1, Uuid::now_v7()).await.unwrap();
        claimed.pop().expect("the work can be claimed")
    }

    /// Lets the lease expire and takes the work over.
    pub(super) async fn take_over(&self) -> ClaimedWork {
        tokio::time::sleep(store::LEASE + Duration::from_secs(1)).await;
        let mut taken = self.store.take_over(WorkKind::Manifest, 1, Uuid::now_v7()).await.unwrap();
        taken.pop().expect("the work was lost")
    }

    /// Runs the plan for a lease holder, without writing the outcome.
    pub(super) async fn run(&self, claimed: &ClaimedWork, plan: &Plan<World>) -> RunOutcome {
        let order = RunRequest {
            store: &self.store,
            claimed,
            plan,
            context: self.world.clone(),
            journal: Journal::read(claimed.checkpoint.as_ref()),
            control: self.control.clone(),
            clock: self.clock.clone(),
            actor: "service:test",
            attempts_max: ATTEMPTS_MAX,
        };
        run(order).await
    }

    /// Finishes claimed work without a plan, and writes the outcome.
    pub(super) async fn finish_without_plan(&self, claimed: &ClaimedWork, error: StepError) -> RunOutcome {
        let journal = Journal::read(claimed.checkpoint.as_ref());
        let (control, clock) = (self.control.clone(), self.clock.clone());
        let refusal = PlanError::Step(error);
        let ended =
            finish_without_plan(&self.store, claimed, journal, control, clock, "service:test", &refusal)
                .await;
        self.write(ended.clone()).await;
        ended
    }

    /// Claims the work, runs the plan and writes the outcome.
    pub(super) async fn attempt(&self, plan: &Plan<World>) -> RunOutcome {
        let claimed = self.claim().await;
        let ended = self.run(&claimed, plan).await;
        self.write(ended.clone()).await;
        ended
    }

    pub(super) async fn write(&self, ended: RunOutcome) {
        match ended {
            RunOutcome::Finished(completion) => drop(self.store.complete(&[completion]).await.unwrap()),
            RunOutcome::Released { yielding, .. } => self.store.release(yielding).await.unwrap(),
            RunOutcome::LeaseLost => {}
        }
    }

    pub(super) async fn work(&self) -> WorkView {
        self.store.work(self.id).await.unwrap().unwrap()
    }

    pub(super) async fn journal(&self) -> Journal {
        Journal::read(self.work().await.checkpoint.as_ref())
    }

    pub(super) async fn log(&self) -> Vec<Entry> {
        let log = self.store.entries(self.id, None, 1000).await.unwrap();
        log.into_iter().map(|(_, entry)| entry).collect()
    }

    pub(super) async fn events(&self) -> Vec<EntryEvent> {
        self.log().await.into_iter().map(|entry| entry.event).collect()
    }
}

pub(super) fn finished(ended: RunOutcome) -> Completion {
    match ended {
        RunOutcome::Finished(completion) => completion,
        other => panic!("{other:?}"),
    }
}

pub(super) fn released(ended: RunOutcome) -> Release {
    match ended {
        RunOutcome::Released { yielding, .. } => yielding,
        other => panic!("{other:?}"),
    }
}

pub(super) fn texts(value: &Value) -> Vec<&str> {
    value.as_array().map(|list| list.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}
