//! What must be written so that the pending manifests of a schedule on a cluster are the wanted ones.

use api::doc::ResultCode;
use api::queue::WorkView;
use api::work::WorkState;
use jiff::Timestamp;
use uuid::Uuid;

use super::Slot;

/// What is known of a manifest that a schedule has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestStatus {
    /// It waits and was never begun.
    Fresh(Window),
    /// Its schedule withdrew it; it comes back when it is wanted again.
    Superseded,
    /// It has begun or ended, or a person cancelled it: it is no longer the schedule's to make or to withdraw.
    Closed,
}

impl ManifestStatus {
    /// Classifies the work of a manifest whose parameters have this hash.
    pub fn from_work(work: &WorkView, parameters: u64) -> ManifestStatus {
        let superseded = || work.result.as_ref().is_some_and(|it| it.has_code(&ResultCode::SUPERSEDED));
        match work.state {
            WorkState::Pending if work.is_fresh() => ManifestStatus::Fresh(Window {
                run_after: work.run_after,
                run_before: work.run_before.unwrap_or(Timestamp::MAX),
                priority: work.priority,
                parameters,
            }),
            WorkState::Cancelled if superseded() => ManifestStatus::Superseded,
            _ => ManifestStatus::Closed,
        }
    }
}

/// What a fresh manifest was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Not before; the epoch when a person made it the next of its cluster.
    pub run_after: Timestamp,
    /// Not begun at or after.
    pub run_before: Timestamp,
    /// The priority.
    pub priority: i32,
    /// By which its parameters are told from others.
    pub parameters: u64,
}

/// What must be written. The withdrawals go first: a slot may be in both, withdrawn as it was and brought back as it is
/// wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// To be made, or brought back.
    pub create: Vec<Slot>,
    /// To be withdrawn.
    pub withdraw: Vec<Uuid>,
}

impl Changes {
    /// Whether all is as it should be.
    pub fn is_empty(&self) -> bool {
        self.create.is_empty() && self.withdraw.is_empty()
    }
}

/// Compares what is known of a schedule's manifests on a cluster with the slots that it wants there.
pub fn decide(known: &[(Uuid, ManifestStatus)], wanted: &[Slot], now: Timestamp) -> Changes {
    let mut changes = Changes::default();
    for slot in wanted {
        match known.iter().find(|(id, _)| *id == slot.id).map(|(_, known)| known) {
            None if slot.create => changes.create.push(*slot),
            None | Some(ManifestStatus::Closed) => {}
            Some(ManifestStatus::Superseded) => changes.create.push(*slot),
            Some(ManifestStatus::Fresh(window)) if fits(window, slot) => {}
            Some(ManifestStatus::Fresh(_)) => {
                changes.withdraw.push(slot.id);
                changes.create.push(*slot);
            }
        }
    }
    for (id, known) in known {
        // One whose time to begin has passed is left to time out, which is the truth about it.
        if let ManifestStatus::Fresh(window) = known
            && window.run_before > now
            && !wanted.iter().any(|slot| slot.id == *id)
        {
            changes.withdraw.push(*id);
        }
    }
    changes
}

fn fits(window: &Window, slot: &Slot) -> bool {
    let expedited = window.run_after <= Timestamp::UNIX_EPOCH;
    (expedited || window.run_after == slot.run_after)
        && window.run_before == slot.run_before
        && window.priority == slot.priority
        && window.parameters == slot.parameters
}
