//! The claim loop: when the queue is polled, what is started, and when completions are written.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use store::{CLAIM_MAX, ClaimedWork, PreparedCompletion, SAFETY_POLL, StoreError, Topic, WorkLease};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::completions::CompletionQueue;
use super::run::run_claimed;
use super::{Settings, WorkHandler, WorkerPool};
use crate::engine::RunControl;

/// Delay of the next poll after the store failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Time after the start of a shutdown at which steps that are still running are dropped.
const HALT_AFTER: Duration = Duration::from_secs(24);
/// Time after the halt at which the pool gives up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(4);
/// How often the facts of a claimed batch are read before its leases are left to expire.
const READS_MAX: usize = 6;

/// Claims and runs work until `shutdown`, and then until everything is released.
pub(super) async fn run<H: WorkHandler>(
    handler: &Arc<H>,
    completions: CompletionQueue,
    shutdown: &CancellationToken,
) {
    let pool = handler.pool();
    let timing = pool.settings.timing;
    let mut notifications = pool.store.notifications(Topic::Work(pool.settings.kind));
    let mut take_over_at = Instant::now() + pool.poll_interval.between(Duration::ZERO, timing.take_over);
    let runs = JoinSet::new();
    let mut claims = ClaimLoop {
        handler,
        completions,
        runs,
        has_more: false,
        owes_take_over: false,
        poll_at: Instant::now(),
    };
    loop {
        let has_slots = pool.free_slots() > 0;
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(joined) = claims.runs.join_next() => log_panic(pool, joined),
            () = sleep_until(take_over_at) => {
                let interval = pool.poll_interval.between(timing.take_over, timing.take_over * 2);
                take_over_at = Instant::now() + interval;
                claims.take_over().await;
            }
            () = claims.completions.next() => claims.turn(claims.has_more).await,
            () = pool.leases.freed.notified() => claims.turn(true).await,
            () = notifications.next(), if has_slots => claims.turn(true).await,
            () = sleep_until(claims.poll_at), if has_slots => claims.turn(true).await,
        }
    }
    claims.release_all().await;
}

/// Calls the store for all workers: writes their completions and, in the same call, claims work for the slots that become
/// free. Meanwhile the workers go on.
struct ClaimLoop<'a, H> {
    handler: &'a Arc<H>,
    completions: CompletionQueue,
    /// One task for each batch that was claimed together.
    runs: JoinSet<()>,
    /// Whether the last claim found as much as there were slots: there may be more.
    has_more: bool,
    /// Whether no slot was free at the last take-over: the next free slot is for work of lost processes.
    owes_take_over: bool,
    /// When the queue is polled next if no notification arrives.
    poll_at: Instant,
}

impl<H: WorkHandler> ClaimLoop<'_, H> {
    /// Writes pending completions; claims due work if `claims` is set and slots are free. This is one round only, so that a
    /// shutdown is noticed between two.
    async fn turn(&mut self, claims: bool) {
        let pool = self.handler.pool();
        let Settings { kind, owner, timing, .. } = pool.settings;
        self.completions.gather();
        let due = self.completions.due();
        pool.leases.mark_completing(due.iter().map(PreparedCompletion::lease));
        let wanted = if claims && !self.owes_take_over { pool.free_slots().min(CLAIM_MAX) } else { 0 };
        if due.is_empty() && wanted == 0 && !self.owes_take_over {
            self.poll_at = Instant::now() + SAFETY_POLL;
            return;
        }
        let sent = Instant::now();
        let turn = pool.store.complete_and_claim(due, kind, wanted, owner, timing.lease).await;
        if !due.is_empty() {
            let written = self.completions.apply(turn.completed);
            pool.leases.release(written.iter().map(|(hold, ..)| *hold));
            // In a task of its own: waking many runs takes time, in which the next round can start.
            self.runs.spawn(async move {
                for (_, waiting, outcome) in written {
                    // The run may have been dropped with a lost lease.
                    let _ = waiting.send(outcome);
                }
            });
        }
        let found = match turn.claimed {
            Ok(claimed) => {
                let found = claimed.len();
                start(self.handler, &mut self.runs, claimed, sent);
                found
            }
            Err(error) => {
                self.poll_at = after_failure(&error);
                return;
            }
        };
        if !claims {
            return;
        }
        if self.owes_take_over {
            self.take_over().await;
        }
        self.has_more = found == wanted;
        if self.has_more {
            self.poll_at = Instant::now();
        } else {
            self.schedule_poll().await;
        }
    }

    /// Sets the time of the next poll: when the next work is due, within the safety poll.
    async fn schedule_poll(&mut self) {
        let pool = self.handler.pool();
        let poll = pool.poll_interval.between(SAFETY_POLL.mul_f64(0.8), SAFETY_POLL);
        self.poll_at = match pool.store.until_due(pool.settings.kind).await {
            Ok(due) => Instant::now() + due.unwrap_or(poll).min(poll),
            Err(error) => after_failure(&error),
        };
    }

    /// Takes over work whose lease expired, as far as slots are free.
    async fn take_over(&mut self) {
        let pool = self.handler.pool();
        let Settings { kind, owner, timing, .. } = pool.settings;
        let free = pool.free_slots();
        self.owes_take_over = free == 0;
        if self.owes_take_over {
            return;
        }
        let sent = Instant::now();
        match pool.store.take_over_for(kind, free, owner, timing.lease).await {
            Ok(taken) => {
                self.handler.taken_over(taken.len() as u64);
                start(self.handler, &mut self.runs, taken, sent);
            }
            Err(error) => drop(after_failure(&error)),
        }
    }

    /// Asks every run to release its work at the next safe point, and drops the runs that do not reach one in time.
    async fn release_all(mut self) {
        let pool = self.handler.pool();
        pool.leases.signal(|control| control.shutdown.cancel());
        let halt_at = Instant::now() + HALT_AFTER;
        let give_up_at = halt_at + GIVE_UP_AFTER;
        let mut halted = false;
        loop {
            tokio::select! {
                biased;
                joined = self.runs.join_next() => match joined {
                    Some(joined) => log_panic(pool, joined),
                    None => return,
                },
                () = sleep_until(halt_at), if !halted => {
                    halted = true;
                    pool.leases.signal(|control| control.halt.cancel());
                }
                () = sleep_until(give_up_at) => {
                    tracing::error!(
                        "{} {}s were not released before the process exits; their leases expire",
                        pool.leases.all().len(),
                        pool.settings.noun
                    );
                    self.runs.shutdown().await;
                    return;
                }
                // A store that does not answer must not delay the halt.
                () = self.completions.next() => {
                    let until = if halted { give_up_at } else { halt_at };
                    drop(timeout_at(until, self.turn(false)).await);
                }
            }
        }
    }
}

fn after_failure(error: &StoreError) -> Instant {
    tracing::warn!(error = error as &dyn std::error::Error, "Polling the work queue failed; retrying");
    Instant::now() + RETRY_DELAY
}

/// Starts claimed work in a task of its own, so that the claim loop can go on.
fn start<H: WorkHandler>(handler: &Arc<H>, runs: &mut JoinSet<()>, claimed: Vec<ClaimedWork>, sent: Instant) {
    if claimed.is_empty() {
        return;
    }
    // Registered before the first await, so that the heartbeat renews these leases.
    let leases = &handler.pool().leases;
    let controls = claimed.iter().map(|it| leases.add(it.lease, sent)).collect();
    runs.spawn(run_batch(handler.clone(), claimed, controls));
}

/// Reads the facts of work that was claimed together, then runs each in a task of its own.
async fn run_batch<H: WorkHandler>(handler: Arc<H>, claimed: Vec<ClaimedWork>, controls: Vec<RunControl>) {
    let pool = handler.pool();
    let _guard = ReleaseGuard { pool, holds: claimed.iter().map(|it| it.lease).collect() };
    // Without facts nothing has started; the process that takes the work over reads them again.
    let Some(facts) = read(&*handler, &claimed).await else { return };
    let mut runs = JoinSet::new();
    for ((claimed, control), facts) in claimed.into_iter().zip(controls).zip(facts) {
        runs.spawn(run_one(handler.clone(), claimed, control, facts));
    }
    while let Some(joined) = runs.join_next().await {
        log_panic(pool, joined);
    }
}

/// Reads the facts of claimed work; none after the last failed read.
async fn read<H: WorkHandler>(handler: &H, claimed: &[ClaimedWork]) -> Option<Vec<H::Facts>> {
    let backoff = ExponentialBuilder::default().with_min_delay(Duration::from_millis(50));
    let mut delays = backoff.with_max_times(READS_MAX - 1).build();
    loop {
        match handler.read(claimed).await {
            Ok(facts) => return Some(facts),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "Reading {} claimed {}s failed",
                claimed.len(),
                handler.pool().settings.noun
            ),
        }
        sleep(delays.next()?).await;
    }
}

/// Runs one work; its lane is released whatever happens.
async fn run_one<H: WorkHandler>(
    handler: Arc<H>,
    claimed: ClaimedWork,
    control: RunControl,
    facts: H::Facts,
) {
    let _guard = ReleaseGuard { pool: handler.pool(), holds: vec![claimed.lease] };
    // Boxed: a spawned future is moved several times, with all the state that it may ever need.
    Box::pin(run_claimed(&*handler, claimed, control, facts)).await;
}

/// Releases lanes that are still held when a run returns, panics or is dropped.
struct ReleaseGuard<'a> {
    pool: &'a WorkerPool,
    holds: Vec<WorkLease>,
}

impl Drop for ReleaseGuard<'_> {
    fn drop(&mut self) {
        self.pool.leases.release(self.holds.drain(..));
    }
}

fn log_panic(pool: &WorkerPool, joined: Result<(), tokio::task::JoinError>) {
    if let Err(error) = joined {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "The run of a {} panicked outside its steps",
            pool.settings.noun
        );
    }
}
