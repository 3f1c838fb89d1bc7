//! For tests: ends "the process" at every single write in turn, and checks that the next one completes the work.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;
use tokio::time::timeout;

mod crash;

pub use crash::{CrashPoint, Effect};

/// Longest time of one run; only a test that fails waits for it.
const RUN_MAX: Duration = Duration::from_secs(60);

/// Which end of a process a world is prepared for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// The write at which the process ends, from 1.
    pub at_write: usize,
    /// Whether the write has its effect.
    pub effect: Effect,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match self.effect {
            Effect::NotSent => "before it is sent",
            Effect::ResponseLost => "after its effect, without its response",
        };
        write!(f, "the process ends at write {}, {effect}", self.at_write)
    }
}

/// Runs a process again and again, ending it at its first write, then at its second and so on, once before the write is sent and once
/// after its effect with the response lost. Each time a second process must reach the state that `settled` waits for. Returns the number
/// of writes of an undisturbed run.
///
/// - `prepare` makes a fresh world: a namespace with what the process works on.
/// - `process` runs until it is dropped, with a client whose writes are counted. Everything it starts must end when it is dropped.
/// - `settled` returns when the state is reached, and panics if it is wrong. It should watch, not sleep.
///
/// Leases, events, reviews and dry runs are no writes here: they carry no state that a next process needs.
///
/// # Panics
/// If a process ends by itself, or the state is not reached within a minute.
pub async fn crash_at_every_write<W, P, R>(
    client: &Client,
    prepare: impl AsyncFn(Crash) -> W,
    process: impl Fn(Client, W) -> P,
    settled: impl Fn(W) -> R,
) -> usize
where
    W: Clone,
    P: Future<Output = ()> + Send + 'static,
    R: Future<Output = ()>,
{
    let mut at_write = 1;
    loop {
        for effect in [Effect::NotSent, Effect::ResponseLost] {
            let crash = Crash { at_write, effect };
            let world = prepare(crash).await;
            let point = CrashPoint::at(at_write, effect);
            let run = process(point.client(client), world.clone());
            if run_until(run, point.reached(), settled(world.clone()), &crash.to_string()).await
                == End::Settled
            {
                return at_write - 1;
            }
            let never = std::future::pending();
            let after = format!("{crash}; after that");
            run_until(process(client.clone(), world.clone()), never, settled(world), &after).await;
        }
        at_write += 1;
    }
}

/// Ends each process after the effect of its first write, with the response lost, and starts the next one, until one needs no write to
/// reach the state. Returns the number of writes.
///
/// # Panics
/// As [`crash_at_every_write`], and if more than `writes_max` processes were needed.
pub async fn crash_after_each_write<W, P, R>(
    client: &Client,
    world: W,
    process: impl Fn(Client, W) -> P,
    settled: impl Fn(W) -> R,
    writes_max: usize,
) -> usize
where
    W: Clone,
    P: Future<Output = ()> + Send + 'static,
    R: Future<Output = ()>,
{
    for writes in 0..=writes_max {
        let point = CrashPoint::at(1, Effect::ResponseLost);
        let run = process(point.client(client), world.clone());
        let name = format!("process {} ends after its first write", writes + 1);
        if run_until(run, point.reached(), settled(world.clone()), &name).await == End::Settled {
            return writes;
        }
    }
    panic!("{writes_max} processes with one write each did not reach the state");
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Crashed,
    Settled,
}

/// Runs a process until its end is reached or the state is; then aborts it and waits until nothing of it runs.
async fn run_until(
    process: impl Future<Output = ()> + Send + 'static,
    crashed: impl Future<Output = ()>,
    settled: impl Future<Output = ()>,
    name: &str,
) -> End {
    let mut running = JoinSet::new();
    running.spawn(process);
    let end = async {
        tokio::select! {
            biased;
            () = crashed => End::Crashed,
            ended = running.join_next() => match ended {
                Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => panic!("{name}: the process ended by itself"),
            },
            () = settled => End::Settled,
        }
    };
    let Ok(end) = timeout(RUN_MAX, end).await else {
        panic!("{name}: the state was not reached within {RUN_MAX:?}");
    };
    running.shutdown().await;
    end
}
