//! Drains a node by the eviction API.
//!
//! One list and one watch track the pods; each pod costs one eviction request per attempt and nothing else. Pods that must not be
//! evicted are rejected before anything is evicted. A repeated drain, by this process or by another after a crash, continues with
//! the remaining pods. A cancelled drain uncordons what it cordoned; a dropped or killed one leaves the record on the node (see
//! [`crate::cordon`]), by which the next process finishes or undoes it.

mod blockers;
mod decide;
mod run;

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use api::error::{Class, Classify};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use blockers::Blocker;

use crate::cordon::{CordonResult, Holder, UncordonResult, cordon, uncordon};
use crate::error::LinkError;
use crate::link::Link;
use crate::progress::ProgressSink;
use run::{End, Run};

/// Longest time until a cancelled drain returns, uncordoned or not.
const UNCORDON_WITHIN: Duration = Duration::from_millis(4500);

/// What to do with pods that have data in an emptyDir.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyDirPolicy {
    /// Fail, naming them.
    Refuse,
    /// Evict them; the data is lost.
    Delete,
}

/// What to do with pods that no controller would recreate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmanagedPolicy {
    /// Fail, naming them.
    Refuse,
    /// Evict them; they are lost.
    Delete,
}

/// When a drain is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainGoal {
    /// When the pods are gone.
    Gone,
    /// When all evictions are granted; the pods may still be terminating.
    Granted,
}

/// Options of a drain.
#[derive(Debug, Clone)]
pub struct DrainOptions {
    /// Holder of the cordon.
    pub holder: Holder,
    /// Time limit.
    pub time_limit: Duration,
    /// What to do with pods that have an emptyDir.
    pub empty_dir: EmptyDirPolicy,
    /// What to do with pods without a controller.
    pub unmanaged: UnmanagedPolicy,
    /// Grace period instead of each pod's own.
    pub grace: Option<Duration>,
    /// Do not wait for pods that have been terminating for longer: on a node that does not respond nobody confirms their end.
    pub skip_terminating_after: Option<Duration>,
    /// When it is done.
    pub until: DrainGoal,
}

impl DrainOptions {
    /// Safe options: fails if something would be lost, keeps each pod's grace period, and waits until the pods are gone.
    pub fn new(holder: Holder, time_limit: Duration) -> DrainOptions {
        let (empty_dir, unmanaged) = (EmptyDirPolicy::Refuse, UnmanagedPolicy::Refuse);
        DrainOptions {
            holder,
            time_limit,
            empty_dir,
            unmanaged,
            grace: None,
            skip_terminating_after: None,
            until: DrainGoal::Gone,
        }
    }
}

/// Result of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSummary {
    /// Who cordoned the node.
    pub cordon: CordonResult,
    /// The pods that this call evicted, as `namespace/name`.
    pub evicted: Vec<String>,
    /// The pods that remain: those of DaemonSets, and mirrors of static ones.
    pub left: Vec<String>,
}

/// State of the cordon after a cancelled drain.
#[derive(Debug)]
pub enum CordonState {
    /// The node had not been cordoned yet.
    NotCordoned,
    /// The node is schedulable again.
    Uncordoned,
    /// Someone else set it, and it stays.
    HeldByOther,
    /// It could not be removed in time; the record is on the node.
    Remaining(Box<LinkError>),
}

impl fmt::Display for CordonState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CordonState::NotCordoned => f.write_str("the node had not been cordoned yet"),
            CordonState::Uncordoned => f.write_str("the node is schedulable again"),
            CordonState::HeldByOther => {
                f.write_str("the node was cordoned by someone else and stays cordoned")
            }
            CordonState::Remaining(_) => {
                f.write_str("the node could not be uncordoned in time; the record of its cordon remains")
            }
        }
    }
}

/// Why a node is not drained.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// Some pods would lose something. They were found before the cordon and the first eviction, unless they appeared later.
    #[error("node {node} is not drained: {}", refusal(empty_dir, unmanaged))]
    Refused {
        /// The node.
        node: String,
        /// Pods that have data in an emptyDir.
        empty_dir: Vec<String>,
        /// Pods that no controller would recreate.
        unmanaged: Vec<String>,
    },
    /// The time limit passed. The node stays cordoned, with its record; a repeated drain continues.
    #[error("node {node} is not empty after {}: {}", crate::error::format_duration(*.after), stall(blockers))]
    Stalled {
        /// The node.
        node: String,
        /// The limit.
        after: Duration,
        /// What blocks the remaining pods, by reason.
        blockers: Vec<Blocker>,
    },
    /// It was cancelled.
    #[error("the drain of node {node} was cancelled; {cordon}")]
    Cancelled {
        /// The node.
        node: String,
        /// State of the cordon.
        cordon: CordonState,
        /// The pods that had been evicted by then.
        evicted: Vec<String>,
    },
    /// A request failed with a terminal error, or the first one failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl Classify for DrainError {
    fn class(&self) -> Class {
        match self {
            DrainError::Refused { .. } | DrainError::Cancelled { .. } => Class::Terminal,
            DrainError::Stalled { .. } => Class::Transient,
            DrainError::Link(error) => error.class(),
        }
    }
}

fn refusal(empty_dir: &[String], unmanaged: &[String]) -> String {
    let mut reasons = Vec::new();
    if !unmanaged.is_empty() {
        reasons.push(format!(
            "no controller would recreate {} (allow it with force)",
            blockers::list(unmanaged)
        ));
    }
    if !empty_dir.is_empty() {
        reasons.push(format!(
            "{} would lose an emptyDir (allow it with deleteEmptyDir)",
            blockers::list(empty_dir)
        ));
    }
    reasons.join("; ")
}

fn stall(blockers: &[Blocker]) -> String {
    blockers.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Drains `node`. Returns when it is drained, when the time limit has passed, or within five seconds of `cancel`.
pub async fn drain(
    link: &Link,
    node: &str,
    options: &DrainOptions,
    progress: &ProgressSink,
    cancel: &CancellationToken,
) -> Result<DrainSummary, DrainError> {
    let deadline = Instant::now() + options.time_limit;
    let mut run = Run::new(link, node, options, progress);
    let cancelled = |cordon, evicted| Err(DrainError::Cancelled { node: node.to_owned(), cordon, evicted });
    let rejected = tokio::select! {
        biased;
        () = cancel.cancelled() => return cancelled(CordonState::NotCordoned, Vec::new()),
        rejected = run.observe(deadline) => rejected?,
    };
    if let Some((empty_dir, unmanaged)) = rejected {
        return Err(DrainError::Refused { node: node.to_owned(), empty_dir, unmanaged });
    }
    // A pending cordon is awaited and not dropped, since it could otherwise arrive after the uncordon.
    let mut cordoning = pin!(cordon(link, node, &options.holder));
    let cordon = tokio::select! {
        biased;
        () = cancel.cancelled() => {
            let undone = undo(link, node, options, progress, async { drop(cordoning.await) }).await;
            return cancelled(undone, Vec::new());
        }
        cordoned = &mut cordoning => cordoned?,
    };
    let end = tokio::select! {
        biased;
        () = cancel.cancelled() => {
            let evicted = run.evicted();
            drop(run);
            return cancelled(undo(link, node, options, progress, async {}).await, evicted);
        }
        end = run.evict_all(deadline) => end?,
    };
    match end {
        End::Empty { left } => {
            progress.say(format!("node {node}"), "is drained");
            Ok(DrainSummary { cordon, evicted: run.evicted(), left })
        }
        End::Stalled { blockers } => {
            Err(DrainError::Stalled { node: node.to_owned(), after: options.time_limit, blockers })
        }
        End::Refused { empty_dir, unmanaged } => {
            Err(DrainError::Refused { node: node.to_owned(), empty_dir, unmanaged })
        }
    }
}

/// Removes the cordon after `first` has finished, within its time. The API server decides by the record whether this holder set
/// it.
async fn undo(
    link: &Link,
    node: &str,
    options: &DrainOptions,
    progress: &ProgressSink,
    first: impl Future<Output = ()>,
) -> CordonState {
    progress.say(format!("node {node}"), "cancelled, uncordoning");
    let undone = async {
        first.await;
        uncordon(link, node, &options.holder.id).await
    };
    match tokio::time::timeout(UNCORDON_WITHIN, undone).await {
        Ok(Ok(UncordonResult::Now | UncordonResult::Before)) => CordonState::Uncordoned,
        Ok(Ok(UncordonResult::ByOther(_))) => CordonState::HeldByOther,
        Ok(Err(error)) => CordonState::Remaining(Box::new(error)),
        Err(_) => {
            let failure = crate::error::Failure::Timeout(UNCORDON_WITHIN);
            CordonState::Remaining(Box::new(link.error("uncordon", format!("node {node}"), failure)))
        }
    }
}
