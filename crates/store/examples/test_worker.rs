//! A worker process that a test drives and kills: it opens a store, executes each line of its input, and responds in
//! lines. It exits when its input ends, so it never outlives a test that was itself killed.
//!
//! `test_worker URL KEYFILE` prints `ready`, and then responds to
//! - `claim KIND LEASE_MS` with `held WORK LANE OWNER FENCE ATTEMPT STEP` or `none`; `take KIND LEASE_MS` likewise,
//!   for work of lost holders;
//! - `checkpoint STEP` with `saved` or `lost`;
//! - `complete` with `completing` before it is sent and `completed` or `lost` after;
//! - `work DIRECTORY CLAIMERS LEASE_MS` with `working`; from then on it works by itself (see [`Claimers`]);
//! - `stop` with `stopped`, when all its work has finished; then it exits.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use api::clock::SystemClock;
use api::work::{Ending, WorkKind};
use serde_json::json;
use store::{
    ClaimedWork, Completion, CompletionOutcome, Keyring, Options, Release, Store, StoreError, WorkLease,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(key_file)) = (arguments.next(), arguments.next()) else {
        bail!("usage: test_worker URL KEYFILE")
    };
    let keyring = Keyring::read(Path::new(&key_file))?;
    let store = Store::open(Options::new(url.parse()?, keyring, Arc::new(SystemClock))).await?;
    say("ready");
    let mut orders = orders();
    let mut worker = Worker { store, owner: Uuid::new_v4(), lease: None };
    let mut worker_process: Option<Claimers> = None;
    while let Some(order) = orders.recv().await {
        let words: Vec<&str> = order.split_whitespace().collect();
        match words.as_slice() {
            ["claim", kind, lease] => worker.claim(kind, lease, false).await?,
            ["take", kind, lease] => worker.claim(kind, lease, true).await?,
            ["checkpoint", step] => worker.checkpoint(step).await?,
            ["complete"] => worker.complete().await?,
            ["work", directory, claimers, lease] => {
                let lease = Duration::from_millis(lease.parse()?);
                worker_process =
                    Some(Claimers::start(worker.store.clone(), directory.into(), claimers.parse()?, lease));
                say("working");
            }
            ["stop"] => {
                if let Some(worker_process) = worker_process.take() {
                    worker_process.stop().await?;
                }
                say("stopped");
                return Ok(());
            }
            _ => bail!("{order:?} is no order"),
        }
    }
    Ok(())
}

fn say(line: &str) {
    // The reader is gone: the input ends as well, and with it this process.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Lines of the standard input.
fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Executes one command at a time.
struct Worker {
    store: Store,
    owner: Uuid,
    lease: Option<WorkLease>,
}

impl Worker {
    async fn claim(&mut self, kind: &str, lease_ms: &str, lost: bool) -> anyhow::Result<()> {
        let (kind, lease): (WorkKind, _) = (kind.parse()?, Duration::from_millis(lease_ms.parse()?));
        let claimed = match lost {
            true => self.store.take_over_for(kind, 1, self.owner, lease).await?,
            false => self.store.claim_for(kind, 1, self.owner, lease).await?,
        };
        let Some(ClaimedWork { lease, attempt, step, .. }) = claimed.into_iter().next() else {
            say("none");
            return Ok(());
        };
        self.lease = Some(lease);
        let WorkLease { work, lane, owner, fence } = lease;
        say(&format!("held {work} {lane} {owner} {fence} {attempt} {}", step.as_deref().unwrap_or("-")));
        Ok(())
    }

    async fn checkpoint(&mut self, step: &str) -> anyhow::Result<()> {
        match self
            .store
            .checkpoint(self.lease.context("nothing is held")?, step, json!({ "after": step }))
            .await
        {
            Ok(_) => say("saved"),
            Err(StoreError::LostLease { .. }) => say("lost"),
            Err(other) => return Err(other.into()),
        }
        Ok(())
    }

    async fn complete(&mut self) -> anyhow::Result<()> {
        let lease = self.lease.context("nothing is held")?;
        say("completing");
        match self.store.complete(&[Completion::new(lease, Ending::Completed, json!({}))]).await?.as_slice() {
            [CompletionOutcome::Done] => say("completed"),
            _ => say("lost"),
        }
        Ok(())
    }
}

/// Several claimers of both kinds that take due work and work of lost holders, in steps, until they are stopped.
///
/// Files outside the store witness what they do. In the directory each lane has a file, locked by the process that
/// works on the lane: the lock ends with the process. A claimer that finds it locked prints `double`. Completed work
/// is written to `done` there, one line each.
struct Claimers {
    queue_fixture: Arc<Hands>,
    tasks: JoinSet<anyhow::Result<()>>,
}

struct Hands {
    store: Store,
    owner: Uuid,
    lease: Duration,
    directory: PathBuf,
    /// Leases of this process, and the time of their last confirmation.
    held: Mutex<HashMap<Uuid, Instant>>,
    stopping: AtomicBool,
}

impl Claimers {
    fn start(store: Store, directory: PathBuf, claimers: usize, lease: Duration) -> Claimers {
        let queue_fixture = Arc::new(Hands {
            store,
            owner: Uuid::new_v4(),
            lease,
            directory,
            held: Mutex::default(),
            stopping: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        for n in 0..claimers {
            let (queue_fixture, kind) = (queue_fixture.clone(), WorkKind::ALL[n % 2]);
            tasks.spawn(async move { queue_fixture.claimer(kind).await });
        }
        let renewing = queue_fixture.clone();
        tasks.spawn(async move { renewing.renew().await });
        Claimers { queue_fixture, tasks }
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        self.queue_fixture.stopping.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        Ok(())
    }
}

impl Hands {
    async fn claimer(&self, kind: WorkKind) -> anyhow::Result<()> {
        while !self.stopping.load(Ordering::SeqCst) {
            let began = Instant::now();
            let mut claimed = self.store.claim_for(kind, 4, self.owner, self.lease).await?;
            claimed.extend(self.store.take_over_for(kind, 4, self.owner, self.lease).await?);
            for it in &claimed {
                self.held().insert(it.lease.lane, began);
            }
            if claimed.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            for it in claimed {
                self.carry_out(&it).await?;
                self.held().remove(&it.lease.lane);
            }
        }
        Ok(())
    }

    /// Two steps, then completion; a manifest yields when it is signalled.
    async fn carry_out(&self, claimed: &ClaimedWork) -> anyhow::Result<()> {
        let lease = claimed.lease;
        let witness = File::create(self.directory.join(lease.lane.to_string()))?;
        if !self.is_sure(lease.lane) {
            return Ok(());
        }
        if witness.try_lock().is_err() {
            say(&format!("double {}", lease.lane));
        }
        let done = match claimed.step.as_deref() {
            Some("two") => 2,
            Some(_) => 1,
            None => 0,
        };
        for step in ["one", "two"].into_iter().skip(done) {
            tokio::task::yield_now().await;
            match self.store.checkpoint(lease, step, json!({ "after": step })).await {
                Ok(signals) if signals.preempt => {
                    witness.unlock()?;
                    let release = Release::new(lease, Duration::ZERO, false);
                    return match self.store.release(release).await {
                        Ok(()) | Err(StoreError::LostLease { .. }) => Ok(()),
                        Err(other) => Err(other.into()),
                    };
                }
                Ok(_) => {}
                Err(StoreError::LostLease { .. }) => return Ok(()),
                Err(other) => return Err(other.into()),
            }
        }
        // Unlocked before the completion: afterwards the lane belongs to another.
        witness.unlock()?;
        let ended = self.store.complete(&[Completion::new(lease, Ending::Completed, json!({}))]).await?;
        if ended == [CompletionOutcome::Done] {
            let mut log = File::options().create(true).append(true).open(self.directory.join("done"))?;
            log.write_all(format!("{}\n", lease.work).as_bytes())?;
        }
        Ok(())
    }

    /// Renews all leases, four times within each lease duration.
    async fn renew(&self) -> anyhow::Result<()> {
        while !(self.stopping.load(Ordering::SeqCst) && self.held().is_empty()) {
            tokio::time::sleep(self.lease / 4).await;
            let began = Instant::now();
            let lanes: Vec<Uuid> = self.held().keys().copied().collect();
            for renewed in self.store.renew_for(self.owner, lanes, self.lease).await? {
                if let Some(sure) = self.held().get_mut(&renewed.lane) {
                    *sure = began;
                }
            }
        }
        Ok(())
    }

    /// Whether enough of the lease is left to start work.
    fn is_sure(&self, lane: Uuid) -> bool {
        self.held().get(&lane).is_some_and(|sure| sure.elapsed() < self.lease * 2 / 3)
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, Instant>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
