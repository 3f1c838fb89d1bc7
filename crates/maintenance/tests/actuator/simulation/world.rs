//! What steps do to clusters, watched: who is at work where, and what may not be.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use api::work::WorkState;
use steps::engine::{Journal, StepContext};
use store::{Store, WorkLease};
use tokio::time::Instant;
use uuid::Uuid;

/// What happens on the clusters.
#[derive(Debug)]
pub(super) struct World {
    pub(super) store: OnceLock<Store>,
    /// How many manifests may run at once.
    pub(super) fleet_limit: Mutex<Option<usize>>,
    /// How many manifests each actuator may work at once.
    pub(super) slots: Mutex<BTreeMap<Uuid, usize>>,
    start: Instant,
    seen: Mutex<Observations>,
}

#[derive(Debug, Default)]
pub(super) struct Observations {
    /// Who is at work in each lane: a token, the right to it, and whether it is a manifest.
    at_work: BTreeMap<Uuid, BTreeMap<u64, (WorkLease, bool)>>,
    next: u64,
    /// How often each step was begun under each fence.
    pub(super) begun: BTreeMap<(Uuid, String), BTreeMap<i64, u32>>,
    /// How often each step failed on purpose.
    failed: BTreeMap<(Uuid, String), u32>,
    /// The undos that came to their end.
    pub(super) undone: BTreeMap<(Uuid, String), u32>,
    pub(super) holds: Vec<WorkLease>,
    pub(super) wrong: Vec<String>,
    pub(super) log: Vec<String>,
}

impl World {
    pub(super) fn new() -> Arc<World> {
        Arc::new(World {
            store: OnceLock::new(),
            fleet_limit: Mutex::new(None),
            slots: Mutex::default(),
            start: Instant::now(),
            seen: Mutex::default(),
        })
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Observations> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn log(&self, line: String) {
        let at = self.start.elapsed().as_millis();
        self.seen().log.push(format!("{at:>8} {line}"));
    }

    pub(super) fn wrong(&self, what: String) {
        self.log(format!("WRONG {what}"));
        self.seen().wrong.push(what);
    }

    /// A step of a manifest begins to work on its cluster.
    pub(super) async fn enter(self: &Arc<World>, cx: &StepContext, undo: bool) -> AtWork {
        let work = match self.store.get() {
            Some(store) => store.work(cx.hold.work).await.ok().flatten(),
            None => None,
        };
        let hold = cx.hold;
        if let Some(work) = work.filter(|work| work.fence == hold.fence) {
            let journal = Journal::read(work.checkpoint.as_ref());
            if work.state != WorkState::InProgress {
                self.wrong(format!("{} is begun though it is {}", hold.work, work.state));
            }
            if !undo && (journal.is_done(&cx.step) || journal.is_undoing()) {
                self.wrong(format!("step {} of {} is begun though it is done or undone", cx.step, hold.work));
            }
        }
        let verb = if undo { "undo" } else { "begin" };
        self.log(format!("{verb} {} of {} under {}", cx.step, hold.work, hold.fence));
        if !undo {
            let mut seen = self.seen();
            seen.holds.push(hold);
            let times = seen
                .begun
                .entry((hold.work, cx.step.to_string()))
                .or_default()
                .entry(hold.fence)
                .or_default();
            *times += 1;
        }
        // An undo ignores a full budget.
        self.at_work(hold, !undo)
    }

    /// Somebody begins to work on a cluster.
    pub(super) fn at_work(self: &Arc<World>, hold: WorkLease, manifest: bool) -> AtWork {
        let WorkLease { work, lane, owner, fence } = hold;
        let mut seen = self.seen();
        let token = seen.next;
        seen.next += 1;
        let here = seen.at_work.entry(lane).or_default();
        here.insert(token, (hold, manifest));
        let others: Vec<_> = here.values().filter(|it| it.0 != hold).copied().collect();
        let busy = seen.at_work.values().filter(|here| here.values().any(|it| it.1)).count();
        let of_one = |here: &&BTreeMap<u64, (WorkLease, bool)>| here.values().any(|it| it.0.owner == owner);
        let at_once = seen.at_work.values().filter(of_one).count();
        drop(seen);
        if let Some(slots) = self.slots.lock().unwrap().get(&owner).filter(|slots| at_once > **slots) {
            self.wrong(format!("actuator {owner} works {at_once} at once; it has {slots} slots"));
        }
        if !others.is_empty() {
            self.wrong(format!("{work} under {fence} works on {lane} while {others:?} do"));
        }
        let limit = *self.fleet_limit.lock().unwrap();
        if manifest && limit.is_some_and(|limit| busy > limit) {
            self.wrong(format!("{busy} clusters are worked on at once; the limit is {limit:?}"));
        }
        AtWork { world: self.clone(), lane, token }
    }

    /// Whether a step that fails its first `times` times fails now.
    pub(super) fn fails(&self, cx: &StepContext, times: u32) -> bool {
        let mut seen = self.seen();
        let failed = seen.failed.entry((cx.hold.work, cx.step.to_string())).or_default();
        *failed += 1;
        *failed <= times
    }

    /// Whether an undo that fails its first `times` times fails now.
    pub(super) fn undo_fails(&self, cx: &StepContext, times: u32) -> bool {
        let mut seen = self.seen();
        let failed = seen.failed.entry((cx.hold.work, format!("undo {}", cx.step))).or_default();
        *failed += 1;
        *failed <= times
    }

    pub(super) fn undone(&self, cx: &StepContext) {
        *self.seen().undone.entry((cx.hold.work, cx.step.to_string())).or_default() += 1;
    }
}

/// Somebody at work on a cluster; over when it is dropped.
pub(super) struct AtWork {
    world: Arc<World>,
    lane: Uuid,
    token: u64,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut seen = self.world.seen();
        if let Some(here) = seen.at_work.get_mut(&self.lane) {
            here.remove(&self.token);
        }
    }
}
