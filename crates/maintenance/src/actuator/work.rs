//! One manifest in this actuator's hands, from its claim to the write of how it ended.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use api::doc::{Cluster, Manifest};
use api::error::{Class, Classify as _};
use api::work::Ending;
use futures_util::FutureExt as _;
use jiff::Timestamp;
use steps::engine::{
    ATTEMPTS_MAX, Control, Ended, Journal, Order, Refusal, StepError, WaitingCode, refuse, run,
};
use store::{Claimed, Completion, Fate, HealthSample, Hold, StoreError, Yielding};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::crew::{ACTOR, Crew};
use super::ends::End;
use super::{Errand, Ready, Tasks, scout};

/// The first pause after a refused hand-back; it doubles.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after a refused hand-back.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What is known of a manifest when its run begins.
pub(super) struct Facts {
    pub(super) manifest: Option<Manifest>,
    pub(super) cluster: Option<Cluster>,
    pub(super) health: Option<HealthSample>,
}

/// Works one manifest and writes how that ended. The lane is let go whatever happens.
pub(super) async fn one<T: Tasks>(crew: Arc<Crew<T>>, mut claimed: Claimed, control: Control, facts: Facts) {
    let _held = Letting { crew: &crew, hold: claimed.hold };
    let _running = crew.metrics.running();
    let begun = Instant::now();
    loop {
        let (task, ended) = walk(&crew, &claimed, &control, &facts).await;
        match ended {
            Ended::Finished(completion) => {
                let (ending, code) = (completion.ending, code_of(&completion));
                match write_end(&crew, &control, completion).await {
                    Some(Fate::Done) => {
                        crew.metrics.ended(&task, ending, claimed.attempt, begun.elapsed());
                        after_end(&crew, &facts, ending, &code, begun.elapsed()).await;
                    }
                    Some(Fate::Lost) | None => drop(crew.metrics.lost.inc()),
                }
            }
            Ended::HandedBack { yielding, why } => match hand_back(&crew, &control, &yielding).await {
                Written::Done => {
                    crew.metrics.handed_back(why);
                    if why == WaitingCode::Unreachable {
                        scout::unreachable(&crew, &facts, &yielding).await;
                    }
                }
                Written::Refused => {
                    // Somebody asked for its end before it was given back: it goes on, from what it would have left, to
                    // that end.
                    control.cancel.cancel();
                    claimed.checkpoint = yielding.checkpoint.map(|(_, data)| data);
                    continue;
                }
                Written::Lost => drop(crew.metrics.lost.inc()),
            },
            Ended::Lost => drop(crew.metrics.lost.inc()),
        }
        return;
    }
}

/// What became of a hand-back.
enum Written {
    /// It is written.
    Done,
    /// Somebody has asked for the work's end meanwhile; nothing is written.
    Refused,
    /// The work is not ours any more.
    Lost,
}

/// Lets the lane go when the run is over, also when it is dropped.
struct Letting<'a, T> {
    crew: &'a Crew<T>,
    hold: Hold,
}

impl<T> Drop for Letting<'_, T> {
    fn drop(&mut self) {
        self.crew.holds.release([self.hold]);
    }
}

/// Walks the manifest's plan; the name of its task, and how that ended.
async fn walk<T: Tasks>(
    crew: &Crew<T>,
    claimed: &Claimed,
    control: &Control,
    facts: &Facts,
) -> (String, Ended) {
    let journal = Journal::read(claimed.checkpoint.as_ref());
    let unknown = || "unknown".to_owned();
    let refused = |journal, refusal: Refusal| {
        refuse(&crew.store, claimed, journal, crew.clock.clone(), ACTOR, &refusal)
    };
    let gone =
        |code: &str, message: &str| Refusal::Withdrawn { code: code.to_owned(), message: message.to_owned() };
    let Some(manifest) = &facts.manifest else {
        return (unknown(), refused(journal, gone("ManifestGone", "the manifest is gone")));
    };
    let Some(cluster) = &facts.cluster else {
        return (unknown(), refused(journal, gone("ClusterGone", "the cluster is gone")));
    };
    if claimed.first && claimed.run_after > Timestamp::UNIX_EPOCH {
        crew.metrics.lag(claimed.claimed_at.duration_since(claimed.run_after));
    }
    let version = facts.health.as_ref().and_then(|it| it.sample["version"].as_str());
    let errand =
        Errand { manifest, cluster: claimed.hold.lane, document: cluster, version, journal: &journal };
    let ready = AssertUnwindSafe(crew.tasks.ready(errand)).catch_unwind();
    let ready = tokio::select! {
        biased;
        () = control.lost.cancelled() => return (unknown(), Ended::Lost),
        ready = ready => ready,
    };
    let panicked = |_| Err(StepError::terminal("Panic", "making the task's plan panicked"));
    let Ready { task, version, definition, plan, context } = match ready.unwrap_or_else(panicked) {
        Ok(ready) => ready,
        // Nothing of it can be run, and nobody wants it any more.
        Err(_) if control.cancel.is_cancelled() => {
            return (unknown(), refused(journal, gone("Cancelled", "cancelled")));
        }
        Err(error) => return (unknown(), refused(journal, Refusal::Error(error))),
    };
    let mut journal = journal;
    if journal.step.is_none() && journal.done.is_empty() {
        journal.task_version = version;
        journal.plan = definition;
    }
    let order = Order {
        store: &crew.store,
        claimed,
        plan: &plan,
        context,
        journal,
        control: control.clone(),
        clock: crew.clock.clone(),
        actor: ACTOR,
        attempts_max: ATTEMPTS_MAX,
    };
    (task, run(order).await)
}

/// Hands the end to those who write them; what became of it, or none when it was lost before.
async fn write_end<T>(crew: &Crew<T>, control: &Control, completion: Completion) -> Option<Fate> {
    let (written, fate) = oneshot::channel();
    crew.ends.send(End { completion, written }).ok()?;
    tokio::select! {
        biased;
        fate = fate => fate.ok(),
        () = control.lost.cancelled() => None,
    }
}

/// Writes a hand-back, again and again while the store does not answer.
async fn hand_back<T>(crew: &Crew<T>, control: &Control, yielding: &Yielding) -> Written {
    let mut pause = PAUSE;
    loop {
        let written = tokio::select! {
            biased;
            () = control.lost.cancelled() => return Written::Lost,
            written = crew.store.hand_back(yielding.clone()) => written,
        };
        match written {
            Ok(()) => return Written::Done,
            Err(StoreError::WrongState { .. }) => return Written::Refused,
            Err(error) if error.class() == Class::Transient => {
                tracing::info!(work.id = %yielding.hold.work, error = %error, "A hand-back is said again");
            }
            Err(_) => return Written::Lost,
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn code_of(completion: &Completion) -> String {
    completion.result["code"].as_str().unwrap_or_default().to_owned()
}

/// What an end teaches: how long its task takes, that it panics, that its cluster answers again.
async fn after_end<T: Tasks>(crew: &Crew<T>, facts: &Facts, ending: Ending, code: &str, took: Duration) {
    let Some(manifest) = &facts.manifest else { return };
    match ending {
        Ending::Completed => {
            crew.durations.note(manifest.task_id, [took]);
            let unreachable = facts.health.as_ref().is_some_and(|it| !it.reachable);
            if let Some(cluster) = facts.cluster.as_ref().filter(|_| unreachable) {
                scout::look(crew, manifest.cluster, cluster).await;
            }
        }
        Ending::Failed if code == "Panic" => crew.broken(manifest.task_id).await,
        Ending::Failed | Ending::RetriesExceeded | Ending::Cancelled => {}
    }
}

impl<T> Crew<T> {
    async fn broken(&self, task: Uuid) {
        self.breaker.panicked(&self.store, task, Instant::now()).await;
    }
}
