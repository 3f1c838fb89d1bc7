//! When the queue is looked at, and what is started.

use std::sync::Arc;
use std::time::Duration;

use store::{CLAIM_MAX, Claimed, Hold, SAFETY_POLL, StoreError, Topic};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Crew, Trade};
use crate::engine::Control;

/// After the store failed, the queue is looked at again soon.
const AGAIN: Duration = Duration::from_secs(1);
/// So long after a shutdown began, steps that have not come to an end are dropped.
const HALT_AFTER: Duration = Duration::from_secs(24);
/// So long after that, everything is.
const GIVE_UP_AFTER: Duration = Duration::from_secs(4);
/// So often a batch that was claimed is read, before its leases are left to run out.
const READS_MAX: u32 = 6;

/// Works until it is told to stop, and then until all are handed back.
pub(super) async fn work<T: Trade>(trade: &Arc<T>, shutdown: &CancellationToken) {
    let crew = trade.crew();
    let timing = crew.settings.timing;
    let mut runs: JoinSet<()> = JoinSet::new();
    let mut bell = crew.store.wakeups(Topic::Work(crew.settings.kind));
    let mut look_at = Instant::now();
    let mut take_over_at = Instant::now() + crew.pace.between(Duration::ZERO, timing.take_over);
    loop {
        let free = crew.free() > 0;
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = runs.join_next() => tell_panic(crew, ended),
            () = sleep_until(take_over_at) => {
                take_over_at = Instant::now() + crew.pace.between(timing.take_over, timing.take_over * 2);
                take_over(trade, &mut runs).await;
            }
            () = crew.holds.freed.notified() => look_at = look(trade, &mut runs).await,
            () = bell.next(), if free => look_at = look(trade, &mut runs).await,
            () = sleep_until(look_at), if free => look_at = look(trade, &mut runs).await,
        }
    }
    hand_back(crew, runs).await;
}

/// Claims what is due, as long as there are slots; when to look again.
async fn look<T: Trade>(trade: &Arc<T>, runs: &mut JoinSet<()>) -> Instant {
    let crew = trade.crew();
    let lease = crew.settings.timing.lease;
    loop {
        let wanted = crew.free().min(CLAIM_MAX);
        if wanted == 0 {
            return Instant::now() + SAFETY_POLL;
        }
        let asked = Instant::now();
        match crew.store.claim_for(crew.settings.kind, wanted, crew.settings.owner, lease).await {
            Ok(claimed) => {
                let got = claimed.len();
                start(trade, runs, claimed, asked);
                if got == wanted {
                    continue;
                }
            }
            Err(error) => return after_failure(&error),
        }
        let poll = crew.pace.between(SAFETY_POLL.mul_f64(0.8), SAFETY_POLL);
        return match crew.store.until_due(crew.settings.kind).await {
            Ok(due) => Instant::now() + due.unwrap_or(poll).min(poll),
            Err(error) => after_failure(&error),
        };
    }
}

async fn take_over<T: Trade>(trade: &Arc<T>, runs: &mut JoinSet<()>) {
    let crew = trade.crew();
    let free = crew.free();
    if free == 0 {
        return;
    }
    let asked = Instant::now();
    match crew
        .store
        .take_over_for(crew.settings.kind, free, crew.settings.owner, crew.settings.timing.lease)
        .await
    {
        Ok(taken) => {
            trade.taken_over(taken.len() as u64);
            start(trade, runs, taken, asked);
        }
        Err(error) => drop(after_failure(&error)),
    }
}

fn after_failure(error: &StoreError) -> Instant {
    tracing::warn!(error = error as &dyn std::error::Error, "The queue was not looked at");
    Instant::now() + AGAIN
}

/// Starts what was claimed, apart from whoever claims: that one goes on with what is due next.
fn start<T: Trade>(trade: &Arc<T>, runs: &mut JoinSet<()>, claimed: Vec<Claimed>, asked: Instant) {
    if claimed.is_empty() {
        return;
    }
    // Held before anything is waited for, so that the heartbeat knows of them.
    let holds = &trade.crew().holds;
    let controls = claimed.iter().map(|it| holds.take(it.hold, asked)).collect();
    runs.spawn(batch(trade.clone(), claimed, controls));
}

/// What was claimed together is read together; then each runs by itself.
async fn batch<T: Trade>(trade: Arc<T>, claimed: Vec<Claimed>, controls: Vec<Control>) {
    let crew = trade.crew();
    let _held = Letting { crew, holds: claimed.iter().map(|it| it.hold).collect() };
    // Otherwise nothing of them was begun, and whoever takes them over has more luck.
    let Some(facts) = read(&*trade, &claimed).await else { return };
    let mut runs = JoinSet::new();
    for ((claimed, control), facts) in claimed.into_iter().zip(controls).zip(facts) {
        runs.spawn(one(trade.clone(), claimed, control, facts));
    }
    while let Some(ended) = runs.join_next().await {
        tell_panic(crew, ended);
    }
}

/// Reads what was claimed together; none when the store did not answer again and again.
async fn read<T: Trade>(trade: &T, claimed: &[Claimed]) -> Option<Vec<T::Facts>> {
    let mut pause = Duration::from_millis(50);
    for read in 1..=READS_MAX {
        match trade.read(claimed).await {
            Ok(facts) => return Some(facts),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "{} claimed {}s were not read",
                claimed.len(),
                trade.crew().settings.noun
            ),
        }
        if read < READS_MAX {
            sleep(pause).await;
            pause *= 2;
        }
    }
    None
}

/// Works one; the lane is let go whatever happens.
async fn one<T: Trade>(trade: Arc<T>, claimed: Claimed, control: Control, facts: T::Facts) {
    let _held = Letting { crew: trade.crew(), holds: vec![claimed.hold] };
    // Put aside: a task that is spawned is moved about several times, with all that it may ever have to remember.
    Box::pin(trade.work(claimed, control, facts)).await;
}

/// Lets the lanes go that are still held when a run is over, also when it panics or is dropped.
struct Letting<'a> {
    crew: &'a Crew,
    holds: Vec<Hold>,
}

impl Drop for Letting<'_> {
    fn drop(&mut self) {
        self.crew.holds.release(self.holds.drain(..));
    }
}

/// Asks every run to hand back at its next safe point, and drops those that do not come to one in time.
async fn hand_back(crew: &Crew, mut runs: JoinSet<()>) {
    crew.holds.pull(|control| control.shutdown.cancel());
    let halt_at = Instant::now() + HALT_AFTER;
    let give_up_at = halt_at + GIVE_UP_AFTER;
    let mut halted = false;
    loop {
        tokio::select! {
            biased;
            ended = runs.join_next() => match ended {
                Some(ended) => tell_panic(crew, ended),
                None => return,
            },
            () = sleep_until(halt_at), if !halted => {
                halted = true;
                crew.holds.pull(|control| control.halt.cancel());
            }
            () = sleep_until(give_up_at) => {
                tracing::error!(
                    "{} {}s could not be handed back; their leases run out",
                    crew.holds.all().len(),
                    crew.settings.noun
                );
                runs.shutdown().await;
                return;
            }
        }
    }
}

fn tell_panic(crew: &Crew, ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "A {}'s run ended in a panic outside its steps",
            crew.settings.noun
        );
    }
}
