//! Those who work the queue: a crew claims lanes of one kind of work for its free slots, renews all of them together, stops
//! what could not be renewed before anybody else can have it, takes over from crews that were lost, and hands back what it
//! holds when it is told to end.
//!
//! It is woken by the store; polling is only the safety net. What the work consists of, and what is written at its end, is
//! the [`Trade`]'s: there are two, the actuator's manifests and the backend's operations.

mod claim;
mod ends;
mod held;
mod pace;
mod pulse;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::error::{Class, Classify as _};
use api::work::WorkKind;
use futures_util::future::BoxFuture;
use store::{
    ClaimedWork, Completion, CompletionOutcome, LEASE, PreparedCompletion, RENEWAL, Release, SELF_STOP,
    Store, StoreError,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::engine::Control;
pub use ends::Ends;
use ends::{Coming, refused};
use held::Holds;
use pace::Pace;

/// The first pause after a refused hand-back; it doubles.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after a refused hand-back.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long a crew holds what it claims, and what follows from that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a claim holds its lane without renewal.
    pub lease: Duration,
    /// How often it is renewed.
    pub renewal: Duration,
    /// So long after the last good renewal everything is stopped.
    pub self_stop: Duration,
    /// Between two looks for lost holders, at least; at most twice as long.
    pub take_over: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        // One look is one small read: work of a lost holder goes on within two seconds after its lease.
        Timing { lease: LEASE, renewal: RENEWAL, self_stop: SELF_STOP, take_over: Duration::from_secs(1) }
    }
}

/// What a crew does for its living.
pub trait Trade: Send + Sync + 'static {
    /// What is known of a piece of work when it begins.
    type Facts: Send + 'static;

    /// The crew itself.
    fn crew(&self) -> &Crew;

    /// Reads what was claimed together: one for each, in order.
    fn read(
        &self,
        claimed: &[ClaimedWork],
    ) -> impl Future<Output = Result<Vec<Self::Facts>, StoreError>> + Send;

    /// Works one and writes how that ended, by [`Crew::write_end`], [`Crew::hand_back`] or a transaction of its own. The lane
    /// is let go afterwards, whatever happens.
    fn work(
        &self,
        claimed: ClaimedWork,
        control: Control,
        facts: Self::Facts,
    ) -> impl Future<Output = ()> + Send;

    /// So many were taken over from lost crews.
    fn taken_over(&self, count: u64);

    /// The leases of so many were lost.
    fn lost(&self, count: u64);
}

/// What a crew is made of.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The kind of work.
    pub kind: WorkKind,
    /// What a piece of it is called, in the log; its plural ends with an s.
    pub noun: &'static str,
    /// The named lease by which others see that this crew is there.
    pub lease_name: String,
    /// How many pieces it works at once.
    pub slots: usize,
    /// How long it holds what it claims.
    pub timing: Timing,
    /// This process, to the store; fresh at every start.
    pub owner: Uuid,
}

/// Those who work the queue together: the slots of one process.
#[derive(Debug)]
pub struct Crew {
    /// Where the work is.
    pub store: Store,
    /// What it is made of.
    pub settings: Settings,
    holds: Holds,
    pace: Pace,
    ends: mpsc::UnboundedSender<Coming>,
}

/// A further part of a service that must outlive the last hand-back, with its name.
pub type Part = (&'static str, BoxFuture<'static, ()>);

/// A part of a crew ended unasked.
#[derive(Debug)]
pub struct EndedUnasked {
    /// Which.
    pub part: &'static str,
    /// The panic, if it was one.
    pub source: Option<tokio::task::JoinError>,
}

/// What became of a hand-back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is written.
    Done,
    /// Somebody has asked for the work's end meanwhile; nothing is written.
    Refused,
    /// The work is not ours any more.
    Lost,
}

/// Works the queue until it is told to stop; then hands back what it holds at the next safe point, within 30 s. `parts` end
/// by `over`, which is cancelled when all is handed back.
///
/// Dropping the future is as a crash: everything stops where it waits and the leases run out.
pub async fn serve<T: Trade>(
    trade: Arc<T>,
    ends: Ends,
    more: Vec<Part>,
    over: CancellationToken,
    shutdown: CancellationToken,
) -> Result<(), EndedUnasked> {
    let mut parts: JoinSet<&'static str> = JoinSet::new();
    parts.spawn(named("heartbeat", pulse::beat(trade.clone(), over.clone())));
    parts.spawn(named("self-stop", pulse::self_stop(trade.clone(), over.clone())));
    parts.spawn(named("signals", pulse::listen(trade.clone(), over.clone())));
    for (name, part) in more {
        parts.spawn(named(name, part));
    }
    let ended = tokio::select! {
        biased;
        () = claim::work(&trade, ends, &shutdown) => None,
        ended = parts.join_next() => ended,
    };
    match ended {
        None => {}
        Some(Ok(part)) => return Err(EndedUnasked { part, source: None }),
        Some(Err(error)) => return Err(EndedUnasked { part: "part", source: Some(error) }),
    }
    over.cancel();
    while parts.join_next().await.is_some() {}
    // Whoever asks whether this crew is there need not wait for the lease to run out.
    let crew = trade.crew();
    let _ = crew.store.release_lease(&crew.settings.lease_name, crew.settings.owner).await;
    Ok(())
}

async fn named(part: &'static str, body: impl Future<Output = ()>) -> &'static str {
    body.await;
    part
}

impl Crew {
    /// A crew that holds nothing yet, and the ends that it will write.
    pub fn new(store: Store, settings: Settings) -> (Crew, Ends) {
        // Unbounded, but never longer than twice the slots: each run waits for its own end to be written.
        let (ends, written) = mpsc::unbounded_channel();
        let (pace, holds) = (Pace::of(settings.owner), Holds::new(settings.slots));
        (Crew { store, settings, holds, pace, ends }, Ends::new(written))
    }

    /// This process, to the store.
    pub fn owner(&self) -> Uuid {
        self.settings.owner
    }

    /// How many more may be started.
    fn free(&self) -> usize {
        self.holds.room()
    }

    /// Hands the end to those who write them, together with others; what became of it, or none when it was lost before.
    pub async fn write_end(&self, control: &Control, completion: Completion) -> Option<CompletionOutcome> {
        let end = PreparedCompletion::new(&completion)
            .inspect_err(|error| refused(completion.lease, error))
            .ok()?;
        let (written, fate) = oneshot::channel();
        self.ends.send((end, written)).ok()?;
        tokio::select! {
            biased;
            fate = fate => fate.ok(),
            () = control.lost.cancelled() => None,
        }
    }

    /// Writes a hand-back, again and again while the store does not answer.
    pub async fn hand_back(&self, control: &Control, yielding: &Release) -> Written {
        let mut pause = PAUSE;
        loop {
            let written = tokio::select! {
                biased;
                () = control.lost.cancelled() => return Written::Lost,
                written = self.store.release(yielding.clone()) => written,
            };
            match written {
                Ok(()) => return Written::Done,
                Err(StoreError::WrongState { .. }) => return Written::Refused,
                Err(error) if error.class() == Class::Transient => {
                    tracing::info!(work.id = %yielding.lease.work, error = %error, "A hand-back is said again");
                }
                Err(_) => return Written::Lost,
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
