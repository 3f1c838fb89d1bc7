//! When the queue is looked at, what is started, and when ends are written.

use std::sync::Arc;
use std::time::Duration;

use store::{CLAIM_MAX, ClaimedWork, PreparedCompletion, SAFETY_POLL, StoreError, Topic, WorkLease};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::ends::Ends;
use super::{Crew, Settings, Trade};
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
pub(super) async fn work<T: Trade>(trade: &Arc<T>, ends: Ends, shutdown: &CancellationToken) {
    let crew = trade.crew();
    let timing = crew.settings.timing;
    let mut bell = crew.store.notifications(Topic::Work(crew.settings.kind));
    let mut take_over_at = Instant::now() + crew.pace.between(Duration::ZERO, timing.take_over);
    let runs = JoinSet::new();
    let mut desk = Desk { trade, ends, runs, more: false, owes: false, look_at: Instant::now() };
    loop {
        let free = crew.free() > 0;
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = desk.runs.join_next() => tell_panic(crew, ended),
            () = sleep_until(take_over_at) => {
                take_over_at = Instant::now() + crew.pace.between(timing.take_over, timing.take_over * 2);
                desk.take_over().await;
            }
            () = desk.ends.next() => desk.turn(desk.more).await,
            () = crew.holds.freed.notified() => desk.turn(true).await,
            () = bell.next(), if free => desk.turn(true).await,
            () = sleep_until(desk.look_at), if free => desk.turn(true).await,
        }
    }
    desk.hand_back().await;
}

/// The one who goes to the store for all of them: writes what has ended and, in the same turn, claims what takes its place.
/// While that one is away others work and come to their ends.
struct Desk<'a, T> {
    trade: &'a Arc<T>,
    ends: Ends,
    /// What was claimed together runs together.
    runs: JoinSet<()>,
    /// Whether the last claim found as much as there was room for: there is more.
    more: bool,
    /// Whether there was no slot when it was time to look for lost crews: the next one is for their work.
    owes: bool,
    /// When to look again, whoever rings.
    look_at: Instant,
}

impl<T: Trade> Desk<'_, T> {
    /// Writes what has ended; claims what is due if asked to and if there are slots. One round: whoever asks for the end of all
    /// this is heard between two.
    async fn turn(&mut self, claims: bool) {
        let crew = self.trade.crew();
        let Settings { kind, owner, timing, .. } = crew.settings;
        self.ends.gather();
        let ends = self.ends.due();
        crew.holds.leave(ends.iter().map(PreparedCompletion::lease));
        let wanted = if claims && !self.owes { crew.free().min(CLAIM_MAX) } else { 0 };
        if ends.is_empty() && wanted == 0 && !self.owes {
            self.look_at = Instant::now() + SAFETY_POLL;
            return;
        }
        let asked = Instant::now();
        let turn = crew.store.complete_and_claim(ends, kind, wanted, owner, timing.lease).await;
        if !ends.is_empty() {
            let written = self.ends.answered(turn.completed);
            crew.holds.release(written.iter().map(|(hold, ..)| *hold));
            // Told by another: to wake so many takes time, in which the next turn can be taken.
            self.runs.spawn(async move {
                for (_, waiting, fate) in written {
                    // Whoever waited may be gone with a lost lease.
                    let _ = waiting.send(fate);
                }
            });
        }
        let found = match turn.claimed {
            Ok(claimed) => {
                let found = claimed.len();
                start(self.trade, &mut self.runs, claimed, asked);
                found
            }
            Err(error) => {
                self.look_at = after_failure(&error);
                return;
            }
        };
        if !claims {
            return;
        }
        if self.owes {
            self.take_over().await;
        }
        self.more = found == wanted;
        if self.more {
            self.look_at = Instant::now();
        } else {
            self.rest().await;
        }
    }

    /// Nothing more is due: looks when something will be.
    async fn rest(&mut self) {
        let crew = self.trade.crew();
        let poll = crew.pace.between(SAFETY_POLL.mul_f64(0.8), SAFETY_POLL);
        self.look_at = match crew.store.until_due(crew.settings.kind).await {
            Ok(due) => Instant::now() + due.unwrap_or(poll).min(poll),
            Err(error) => after_failure(&error),
        };
    }

    async fn take_over(&mut self) {
        let crew = self.trade.crew();
        let Settings { kind, owner, timing, .. } = crew.settings;
        let free = crew.free();
        self.owes = free == 0;
        if self.owes {
            return;
        }
        let asked = Instant::now();
        match crew.store.take_over_for(kind, free, owner, timing.lease).await {
            Ok(taken) => {
                self.trade.taken_over(taken.len() as u64);
                start(self.trade, &mut self.runs, taken, asked);
            }
            Err(error) => drop(after_failure(&error)),
        }
    }

    /// Asks every run to hand back at its next safe point, and drops those that do not come to one in time.
    async fn hand_back(mut self) {
        let crew = self.trade.crew();
        crew.holds.pull(|control| control.shutdown.cancel());
        let halt_at = Instant::now() + HALT_AFTER;
        let give_up_at = halt_at + GIVE_UP_AFTER;
        let mut halted = false;
        loop {
            tokio::select! {
                biased;
                ended = self.runs.join_next() => match ended {
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
                    self.runs.shutdown().await;
                    return;
                }
                // A store that does not answer is not waited for when it is time for something else.
                () = self.ends.next() => {
                    let until = if halted { give_up_at } else { halt_at };
                    drop(timeout_at(until, self.turn(false)).await);
                }
            }
        }
    }
}

fn after_failure(error: &StoreError) -> Instant {
    tracing::warn!(error = error as &dyn std::error::Error, "The queue was not looked at");
    Instant::now() + AGAIN
}

/// Starts what was claimed, apart from whoever claims: that one goes on with what is due next.
fn start<T: Trade>(trade: &Arc<T>, runs: &mut JoinSet<()>, claimed: Vec<ClaimedWork>, asked: Instant) {
    if claimed.is_empty() {
        return;
    }
    // Held before anything is waited for, so that the heartbeat knows of them.
    let holds = &trade.crew().holds;
    let controls = claimed.iter().map(|it| holds.take(it.lease, asked)).collect();
    runs.spawn(batch(trade.clone(), claimed, controls));
}

/// What was claimed together is read together; then each runs by itself.
async fn batch<T: Trade>(trade: Arc<T>, claimed: Vec<ClaimedWork>, controls: Vec<Control>) {
    let crew = trade.crew();
    let _held = Letting { crew, holds: claimed.iter().map(|it| it.lease).collect() };
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
async fn read<T: Trade>(trade: &T, claimed: &[ClaimedWork]) -> Option<Vec<T::Facts>> {
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
async fn one<T: Trade>(trade: Arc<T>, claimed: ClaimedWork, control: Control, facts: T::Facts) {
    let _held = Letting { crew: trade.crew(), holds: vec![claimed.lease] };
    // Put aside: a task that is spawned is moved about several times, with all that it may ever have to remember.
    Box::pin(trade.work(claimed, control, facts)).await;
}

/// Lets the lanes go that are still held when a run is over, also when it panics or is dropped.
struct Letting<'a> {
    crew: &'a Crew,
    holds: Vec<WorkLease>,
}

impl Drop for Letting<'_> {
    fn drop(&mut self) {
        self.crew.holds.release(self.holds.drain(..));
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
