//! The leases that this process holds on lanes, and how long it may rely on them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::{LaneView, RenewedLease, WorkLease};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use crate::engine::RunControl;

/// The leases that this process holds, by lane.
#[derive(Debug)]
pub(super) struct HeldLeases {
    /// The most works that run at the same time.
    slots: usize,
    /// Ordered, so that a simulation can be replayed.
    lanes: Mutex<BTreeMap<Uuid, HeldLease>>,
    /// Notified when a slot becomes free after none was.
    pub(super) freed: Notify,
}

#[derive(Debug)]
struct HeldLease {
    hold: WorkLease,
    control: RunControl,
    /// When the last successful claim or renewal was sent (monotonic).
    renewed: Instant,
    /// Whether the work has finished and only its completion is to be written.
    completing: bool,
}

impl HeldLeases {
    pub(super) fn new(slots: usize) -> HeldLeases {
        HeldLeases { slots, lanes: Mutex::default(), freed: Notify::new() }
    }

    fn lanes(&self) -> MutexGuard<'_, BTreeMap<Uuid, HeldLease>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a lease that was claimed by a request sent at `sent`.
    pub(super) fn add(&self, hold: WorkLease, sent: Instant) -> RunControl {
        let control = RunControl::new();
        let held = HeldLease { hold, control: control.clone(), renewed: sent, completing: false };
        self.lanes().insert(hold.lane, held);
        control
    }

    /// Marks work as finished, with its completion about to be written: other work may be claimed for its slot. The lease is
    /// held and renewed until the completion is written.
    pub(super) fn mark_completing(&self, holds: impl IntoIterator<Item = WorkLease>) {
        self.change(|lanes| {
            for hold in holds {
                if let Some(held) = lanes.get_mut(&hold.lane).filter(|held| held.hold == hold) {
                    held.completing = true;
                }
            }
        });
    }

    /// Forgets leases, unless they are gone already or the lane is held under a newer fence.
    pub(super) fn release(&self, holds: impl IntoIterator<Item = WorkLease>) {
        self.change(|lanes| {
            for hold in holds {
                if lanes.get(&hold.lane).is_some_and(|held| held.hold == hold) {
                    lanes.remove(&hold.lane);
                }
            }
        });
    }

    /// Notifies once for the whole change, so that the slots are filled by one claim. If slots were free before, the claim loop
    /// is waiting for the store's notification already.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<Uuid, HeldLease>)) {
        let mut lanes = self.lanes();
        let was_full = free_slots(&lanes, self.slots) == 0;
        change(&mut lanes);
        let freed = was_full && free_slots(&lanes, self.slots) > 0;
        drop(lanes);
        if freed {
            self.freed.notify_one();
        }
    }

    /// How many more works may be started.
    pub(super) fn free_slots(&self) -> usize {
        free_slots(&self.lanes(), self.slots)
    }

    /// All held lanes with their fences.
    pub(super) fn all(&self) -> Vec<(Uuid, i64)> {
        self.lanes().values().map(|held| (held.hold.lane, held.hold.fence)).collect()
    }

    /// Applies the response to a renewal of the lanes `requested`, sent at `sent`, and returns the number of lost leases. A lane
    /// that is not in the response is lost, unless its completion is being written: then it may just have been released, and
    /// the result of that write decides.
    pub(super) fn apply_renewal(
        &self,
        requested: &[(Uuid, i64)],
        response: &[RenewedLease],
        sent: Instant,
    ) -> usize {
        let response: HashMap<Uuid, &RenewedLease> = response.iter().map(|it| (it.lane, it)).collect();
        let mut lanes = self.lanes();
        let mut lost = 0;
        for (lane, fence) in requested {
            let Some(held) = lanes.get_mut(lane).filter(|held| held.hold.fence == *fence) else { continue };
            match response.get(lane).filter(|it| it.fence == *fence) {
                Some(renewed) => {
                    held.renewed = held.renewed.max(sent);
                    held.control.apply_signals(renewed.signals);
                }
                None if held.completing => {}
                None => {
                    held.control.lost.cancel();
                    lost += 1;
                }
            }
        }
        lost
    }

    /// Applies the state of lanes as read from the store: signals for the runs, and lanes that another process holds.
    pub(super) fn apply_views(&self, views: &[LaneView]) {
        let lanes = self.lanes();
        for view in views {
            let Some(held) = lanes.get(&view.lane) else { continue };
            if view.fence == held.hold.fence && view.owner == Some(held.hold.owner) {
                held.control.apply_signals(view.signals);
            } else if view.fence > held.hold.fence && !held.completing {
                held.control.lost.cancel();
            }
        }
    }

    /// When the first lease reaches its self-stop time.
    pub(super) fn self_stop_at(&self, self_stop: Duration) -> Option<Instant> {
        let lanes = self.lanes();
        let held = lanes.values().filter(|held| !held.control.lost.is_cancelled());
        held.map(|held| held.renewed + self_stop).min()
    }

    /// Stops the runs whose lease was not renewed for `self_stop`, since another process may claim them soon. Returns how many.
    pub(super) fn stop_overdue(&self, now: Instant, self_stop: Duration) -> usize {
        let lanes = self.lanes();
        let overdue = lanes.values().filter(|held| now.duration_since(held.renewed) >= self_stop);
        let overdue = overdue.filter(|held| !held.control.lost.is_cancelled());
        overdue.map(|held| held.control.lost.cancel()).count()
    }

    /// Sends a signal to every run.
    pub(super) fn signal(&self, signal: impl Fn(&RunControl)) {
        self.lanes().values().for_each(|held| signal(&held.control));
    }
}

/// How many more works may be started. Work whose completion is being written occupies no slot; but while the store does not
/// accept completions, at most twice as many leases as slots are held.
fn free_slots(lanes: &BTreeMap<Uuid, HeldLease>, slots: usize) -> usize {
    let running = lanes.values().filter(|held| !held.completing).count();
    slots.saturating_sub(running).min(slots.saturating_mul(2).saturating_sub(lanes.len()))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use store::{SELF_STOP, Signals};

    use super::*;

    fn hold(lane: u128, fence: i64) -> WorkLease {
        WorkLease { work: Uuid::from_u128(9), lane: Uuid::from_u128(lane), owner: Uuid::from_u128(1), fence }
    }

    fn renewed(lane: u128, fence: i64, cancel: bool) -> RenewedLease {
        RenewedLease { lane: Uuid::from_u128(lane), fence, signals: Signals { preempt: false, cancel } }
    }

    #[test]
    fn a_lease_missing_in_the_renewal_is_lost_and_signals_reach_the_run() {
        let leases = HeldLeases::new(4);
        let now = Instant::now();
        let (one, two) = (leases.add(hold(1, 5), now), leases.add(hold(2, 7), now));
        let requested = leases.all();
        let new = leases.add(hold(3, 1), now);
        assert_eq!(leases.apply_renewal(&requested, &[renewed(1, 5, true)], now), 1);
        assert!(one.cancel.is_cancelled() && !one.lost.is_cancelled());
        assert!(two.lost.is_cancelled());
        assert!(!new.lost.is_cancelled(), "a lease claimed since was not part of the request");
    }

    #[test]
    fn a_lane_claimed_again_is_not_mistaken_for_the_old_lease() {
        let leases = HeldLeases::new(4);
        let now = Instant::now();
        leases.add(hold(1, 5), now);
        let requested = leases.all();
        let new = leases.add(hold(1, 6), now);
        assert_eq!(leases.apply_renewal(&requested, &[], now), 0);
        leases.release([hold(1, 5)]);
        assert!(leases.all().len() == 1 && !new.lost.is_cancelled());
    }

    #[test]
    fn work_that_waits_for_its_completion_frees_its_slot_within_a_bound() {
        let leases = HeldLeases::new(4);
        let now = Instant::now();
        let some = |lanes: std::ops::Range<u128>| lanes.map(|lane| hold(lane, 1));
        some(0..4).for_each(|it| drop(leases.add(it, now)));
        assert_eq!(leases.free_slots(), 0);
        leases.mark_completing([hold(0, 1), hold(1, 1), hold(2, 9)]);
        assert_eq!(leases.free_slots(), 2, "another fence is another lease");
        assert_eq!(leases.all().len(), 4, "a completing lease is renewed until it is released");
        leases.mark_completing(some(2..4));
        some(4..8).for_each(|it| drop(leases.add(it, now)));
        leases.mark_completing(some(4..8));
        assert_eq!(leases.free_slots(), 0, "at most twice as many leases as slots");
        leases.release(some(0..4));
        assert_eq!(leases.free_slots(), 4);
    }

    #[test]
    fn a_completing_lease_is_not_lost_when_released_but_still_stops_when_overdue() {
        let leases = HeldLeases::new(4);
        let now = Instant::now();
        let control = leases.add(hold(1, 5), now);
        let requested = leases.all();
        leases.mark_completing([hold(1, 5)]);
        assert_eq!(leases.apply_renewal(&requested, &[], now), 0);
        assert!(!control.lost.is_cancelled());
        assert_eq!(leases.stop_overdue(now + SELF_STOP, SELF_STOP), 1);
        assert!(control.lost.is_cancelled());
    }

    #[test]
    fn the_claim_loop_is_notified_only_when_a_slot_becomes_free() {
        let leases = HeldLeases::new(1);
        let now = Instant::now();
        let notified = || leases.freed.notified().now_or_never().is_some();
        leases.add(hold(1, 1), now);
        leases.mark_completing([hold(1, 1)]);
        assert!(notified(), "its slot is free");
        leases.add(hold(2, 1), now);
        leases.mark_completing([hold(2, 1)]);
        assert!(!notified(), "two completions wait, the most for one slot");
        leases.release([hold(1, 1)]);
        assert!(notified(), "one of them is written");
        leases.release([hold(2, 1)]);
        assert!(!notified(), "a slot was free before");
    }

    #[test]
    fn a_lane_claimed_again_while_its_last_completion_returns_is_running() {
        let leases = HeldLeases::new(1);
        let now = Instant::now();
        leases.add(hold(1, 1), now);
        leases.mark_completing([hold(1, 1)]);
        let new = leases.add(hold(1, 2), now);
        leases.release([hold(1, 1)]);
        assert_eq!((leases.free_slots(), leases.all()), (0, vec![(Uuid::from_u128(1), 2)]));
        assert!(!new.lost.is_cancelled());
    }

    #[test]
    fn a_run_not_renewed_for_forty_seconds_is_stopped_once() {
        let leases = HeldLeases::new(4);
        let now = Instant::now();
        let old = leases.add(hold(1, 1), now);
        let young = leases.add(hold(2, 1), now + Duration::from_secs(20));
        assert_eq!(leases.stop_overdue(now + Duration::from_secs(39), SELF_STOP), 0);
        assert_eq!(leases.stop_overdue(now + Duration::from_secs(40), SELF_STOP), 1);
        assert_eq!(leases.stop_overdue(now + Duration::from_secs(41), SELF_STOP), 0);
        assert!(old.lost.is_cancelled() && !young.lost.is_cancelled());
    }
}
