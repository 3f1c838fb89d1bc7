//! Changes that make the pending manifests of a schedule on a cluster equal to its slots.

use api::doc::ResultCode;
use api::queue::WorkView;
use api::work::WorkState;
use jiff::Timestamp;
use uuid::Uuid;

use super::Slot;

/// Status of a manifest of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestStatus {
    /// Pending and never started.
    Fresh(Window),
    /// Withdrawn by its schedule; restored when the schedule requires it again.
    Superseded,
    /// Started, completed, or cancelled by a person: the schedule neither creates nor withdraws it any more.
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

/// Attributes of a fresh manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Earliest start; the epoch if a person expedited it.
    pub run_after: Timestamp,
    /// End of the start window.
    pub run_before: Timestamp,
    /// Priority.
    pub priority: i32,
    /// Hash of the parameters.
    pub parameters: u64,
}

/// Changes to write. Withdrawals go first: a changed slot is in both lists, withdrawn with its old attributes and restored with
/// the new ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Manifests to create or restore.
    pub create: Vec<Slot>,
    /// Manifests to withdraw.
    pub withdraw: Vec<Uuid>,
}

impl Changes {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.create.is_empty() && self.withdraw.is_empty()
    }
}

/// Compares the manifests of a schedule on a cluster with its slots there.
pub fn decide(statuses: &[(Uuid, ManifestStatus)], desired: &[Slot], now: Timestamp) -> Changes {
    let mut changes = Changes::default();
    for slot in desired {
        match statuses.iter().find(|(id, _)| *id == slot.id).map(|(_, status)| status) {
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
    for (id, status) in statuses {
        // A manifest whose start window has passed times out by itself.
        if let ManifestStatus::Fresh(window) = status
            && window.run_before > now
            && !desired.iter().any(|slot| slot.id == *id)
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
