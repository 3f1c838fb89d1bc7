//! Drain: empties a node by the eviction API.
//!
//! One list and one watch tell which pods are there; each pod costs one eviction call per attempt and nothing else. What is
//! refused is refused before anything is evicted. A drain that is repeated, by this process or by another after a crash,
//! goes on with what is left. Cancelled, it uncordons what it cordoned; dropped or killed, it leaves the record on the node
//! (see [`crate::cordon`]), by which whoever takes over finishes or undoes it.

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

use crate::cordon::{Cordoned, Holder, Uncordoned, cordon, uncordon};
use crate::error::LinkError;
use crate::link::Link;
use crate::progress::Progress;
use run::{End, Run};

/// A cancelled drain has answered after this time, uncordoned or not.
const UNCORDON_WITHIN: Duration = Duration::from_millis(4500);

/// What to do with pods that keep data in an emptyDir.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyDir {
    /// Refuse to drain, naming them.
    Refuse,
    /// Evict them; the data is lost.
    Delete,
}

/// What to do with pods that no controller would start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmanaged {
    /// Refuse to drain, naming them.
    Refuse,
    /// Evict them; they are gone for good.
    Delete,
}

/// When a drain is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// When the pods are gone.
    Gone,
    /// When all evictions are granted; the pods may still be ending.
    Granted,
}

/// How to drain.
#[derive(Debug, Clone)]
pub struct DrainOptions {
    /// Whose drain it is.
    pub holder: Holder,
    /// How long it may take.
    pub time_limit: Duration,
    /// Pods with an emptyDir.
    pub empty_dir: EmptyDir,
    /// Pods without a controller.
    pub unmanaged: Unmanaged,
    /// A grace period instead of each pod's own.
    pub grace: Option<Duration>,
    /// When it is done.
    pub until: Until,
}

impl DrainOptions {
    /// The careful way: refuses what would lose something, keeps each pod's grace, and waits until the pods are gone.
    pub fn new(holder: Holder, time_limit: Duration) -> DrainOptions {
        let (empty_dir, unmanaged) = (EmptyDir::Refuse, Unmanaged::Refuse);
        DrainOptions { holder, time_limit, empty_dir, unmanaged, grace: None, until: Until::Gone }
    }
}

/// What a drain did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drained {
    /// Whose cordon is on the node.
    pub cordon: Cordoned,
    /// The pods that this call evicted, as `namespace/name`.
    pub evicted: Vec<String>,
    /// The pods that stay: of DaemonSets, and mirrors of static ones.
    pub left: Vec<String>,
}

/// What became of the cordon of a drain that was cancelled.
#[derive(Debug)]
pub enum CordonLeft {
    /// It had not been made yet.
    NeverMade,
    /// The node takes pods again.
    Undone,
    /// It was not ours, and stays.
    NotOurs,
    /// It could not be undone in time; the record is on the node.
    Standing(Box<LinkError>),
}

impl fmt::Display for CordonLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CordonLeft::NeverMade => f.write_str("the node had not been cordoned yet"),
            CordonLeft::Undone => f.write_str("the node takes pods again"),
            CordonLeft::NotOurs => f.write_str("the node was cordoned by someone else and stays so"),
            CordonLeft::Standing(_) => {
                f.write_str("the node could not be uncordoned in time and bears our record")
            }
        }
    }
}

/// Why a drain did not empty the node.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// Some pods would lose something. They were found before anything was cordoned or evicted, unless they came later.
    #[error("node {node} is not drained: {}", refusal(empty_dir, unmanaged))]
    Refused {
        /// The node.
        node: String,
        /// Pods that keep data in an emptyDir.
        empty_dir: Vec<String>,
        /// Pods that no controller would start again.
        unmanaged: Vec<String>,
    },
    /// The time limit passed. The node stays cordoned, with its record; a repeat goes on.
    #[error("node {node} is not empty after {}: {}", crate::error::spell(*.after), stall(blockers))]
    Stalled {
        /// The node.
        node: String,
        /// The limit.
        after: Duration,
        /// What holds the pods that remain, by reason.
        blockers: Vec<Blocker>,
    },
    /// It was cancelled.
    #[error("the drain of node {node} was cancelled; {cordon}")]
    Cancelled {
        /// The node.
        node: String,
        /// What became of the cordon.
        cordon: CordonLeft,
        /// The pods that had been evicted by then.
        evicted: Vec<String>,
    },
    /// A request failed in a way that a repeat by itself does not mend, or the first one failed.
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
            "no controller would start {} again (allow it with force)",
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

/// Empties `node`. Ends when it is empty, when the time limit has passed, or within five seconds of `cancel`.
pub async fn drain(
    link: &Link,
    node: &str,
    options: &DrainOptions,
    progress: &Progress,
    cancel: &CancellationToken,
) -> Result<Drained, DrainError> {
    let deadline = Instant::now() + options.time_limit;
    let mut run = Run::new(link, node, options, progress);
    let cancelled = |cordon, evicted| Err(DrainError::Cancelled { node: node.to_owned(), cordon, evicted });
    let refused = tokio::select! {
        biased;
        () = cancel.cancelled() => return cancelled(CordonLeft::NeverMade, Vec::new()),
        refused = run.observe(deadline) => refused?,
    };
    if let Some((empty_dir, unmanaged)) = refused {
        return Err(DrainError::Refused { node: node.to_owned(), empty_dir, unmanaged });
    }
    // A cordon that is under way is not dropped but awaited, or it could arrive after it was undone.
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
            Ok(Drained { cordon, evicted: run.evicted(), left })
        }
        End::Stalled { blockers } => {
            Err(DrainError::Stalled { node: node.to_owned(), after: options.time_limit, blockers })
        }
        End::Refused { empty_dir, unmanaged } => {
            Err(DrainError::Refused { node: node.to_owned(), empty_dir, unmanaged })
        }
    }
}

/// Takes our cordon back once `first` is over, whatever the API server does, within its time. The server decides by the
/// record whether it is ours.
async fn undo(
    link: &Link,
    node: &str,
    options: &DrainOptions,
    progress: &Progress,
    first: impl Future<Output = ()>,
) -> CordonLeft {
    progress.say(format!("node {node}"), "cancelled, uncordoning");
    let undone = async {
        first.await;
        uncordon(link, node, &options.holder.id).await
    };
    match tokio::time::timeout(UNCORDON_WITHIN, undone).await {
        Ok(Ok(Uncordoned::Now | Uncordoned::Before)) => CordonLeft::Undone,
        Ok(Ok(Uncordoned::ByOther(_))) => CordonLeft::NotOurs,
        Ok(Err(error)) => CordonLeft::Standing(Box::new(error)),
        Err(_) => {
            let failure = crate::error::Failure::NoAnswer(UNCORDON_WITHIN);
            CordonLeft::Standing(Box::new(link.error("uncordon", format!("node {node}"), failure)))
        }
    }
}
