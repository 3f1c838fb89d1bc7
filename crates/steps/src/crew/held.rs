//! The lanes that this process holds, and until when it may believe that it does.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::{LaneView, RenewedLease, WorkLease};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use crate::engine::Control;

/// The lanes that this process holds.
#[derive(Debug)]
pub(super) struct Holds {
    /// So many are at work at most.
    slots: usize,
    /// In order, so that a simulation can be replayed.
    lanes: Mutex<BTreeMap<Uuid, Held>>,
    /// Rung when there is room where there was none.
    pub(super) freed: Notify,
}

#[derive(Debug)]
struct Held {
    hold: WorkLease,
    control: Control,
    /// When the last successful claim or renewal was sent, by the monotonic clock.
    renewed: Instant,
    /// Whether its work is over, and only the end of it is to be written.
    leaving: bool,
}

impl Holds {
    pub(super) fn new(slots: usize) -> Holds {
        Holds { slots, lanes: Mutex::default(), freed: Notify::new() }
    }

    fn lanes(&self) -> MutexGuard<'_, BTreeMap<Uuid, Held>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane is ours since `asked`, when the claim was sent.
    pub(super) fn take(&self, hold: WorkLease, asked: Instant) -> Control {
        let control = Control::new();
        let held = Held { hold, control: control.clone(), renewed: asked, leaving: false };
        self.lanes().insert(hold.lane, held);
        control
    }

    /// The work in these lanes is over, and its end is about to be written: what takes its place may be claimed meanwhile. The
    /// lanes are held, and renewed, until that is done.
    pub(super) fn leave(&self, holds: impl IntoIterator<Item = WorkLease>) {
        self.change(|lanes| {
            for hold in holds {
                if let Some(held) = lanes.get_mut(&hold.lane).filter(|held| held.hold == hold) {
                    held.leaving = true;
                }
            }
        });
    }

    /// Lanes are let go, unless they were before or are held anew meanwhile.
    pub(super) fn release(&self, holds: impl IntoIterator<Item = WorkLease>) {
        self.change(|lanes| {
            for hold in holds {
                if lanes.get(&hold.lane).is_some_and(|held| held.hold == hold) {
                    lanes.remove(&hold.lane);
                }
            }
        });
    }

    /// One ring for all: what is claimed in their place is claimed together. While there was room before, whoever claims knew
    /// of it and is woken by the store.
    fn change(&self, by: impl FnOnce(&mut BTreeMap<Uuid, Held>)) {
        let mut lanes = self.lanes();
        let full = room(&lanes, self.slots) == 0;
        by(&mut lanes);
        let freed = full && room(&lanes, self.slots) > 0;
        drop(lanes);
        if freed {
            self.freed.notify_one();
        }
    }

    /// How many more may be started.
    pub(super) fn room(&self) -> usize {
        room(&self.lanes(), self.slots)
    }

    /// All lanes, with the fences that they are held under.
    pub(super) fn all(&self) -> Vec<(Uuid, i64)> {
        self.lanes().values().map(|held| (held.hold.lane, held.hold.fence)).collect()
    }

    /// Takes in the answer to a renewal of the lanes `asked`, sent at `sent`. What is not in the answer is lost; unless its end
    /// is being written, for then it may just have been let go, and whoever writes is told what became of it.
    pub(super) fn renewed(&self, asked: &[(Uuid, i64)], answer: &[RenewedLease], sent: Instant) -> usize {
        let answer: HashMap<Uuid, &RenewedLease> = answer.iter().map(|it| (it.lane, it)).collect();
        let mut lanes = self.lanes();
        let mut lost = 0;
        for (lane, fence) in asked {
            let Some(held) = lanes.get_mut(lane).filter(|held| held.hold.fence == *fence) else { continue };
            match answer.get(lane).filter(|it| it.fence == *fence) {
                Some(renewed) => {
                    held.renewed = held.renewed.max(sent);
                    held.control.hear(renewed.signals);
                }
                None if held.leaving => {}
                None => {
                    held.control.lost.cancel();
                    lost += 1;
                }
            }
        }
        lost
    }

    /// Takes in how lanes are: what their holders are asked, and that some are not ours any more.
    pub(super) fn seen(&self, views: &[LaneView]) {
        let lanes = self.lanes();
        for view in views {
            let Some(held) = lanes.get(&view.lane) else { continue };
            if view.fence == held.hold.fence && view.owner == Some(held.hold.owner) {
                held.control.hear(view.signals);
            } else if view.fence > held.hold.fence && !held.leaving {
                held.control.lost.cancel();
            }
        }
    }

    /// When the first of them will not have been renewed for too long.
    pub(super) fn late_at(&self, self_stop: Duration) -> Option<Instant> {
        let lanes = self.lanes();
        let held = lanes.values().filter(|held| !held.control.lost.is_cancelled());
        held.map(|held| held.renewed + self_stop).min()
    }

    /// Stops whatever was not renewed for too long: somebody else may soon have it.
    pub(super) fn stop_late(&self, now: Instant, self_stop: Duration) -> usize {
        let lanes = self.lanes();
        let late = lanes.values().filter(|held| now.duration_since(held.renewed) >= self_stop);
        let late = late.filter(|held| !held.control.lost.is_cancelled());
        late.map(|held| held.control.lost.cancel()).count()
    }

    /// Pulls a rein of every run.
    pub(super) fn pull(&self, rein: impl Fn(&Control)) {
        self.lanes().values().for_each(|held| rein(&held.control));
    }
}

/// How many more may be held when at most `slots` are at work. Those whose end is being written are not; but while the store
/// does not take their ends, no more than as many again are claimed.
fn room(lanes: &BTreeMap<Uuid, Held>, slots: usize) -> usize {
    let at_work = lanes.values().filter(|held| !held.leaving).count();
    slots.saturating_sub(at_work).min(slots.saturating_mul(2).saturating_sub(lanes.len()))
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
    fn what_a_renewal_does_not_answer_is_lost_and_what_it_asks_is_heard() {
        let holds = Holds::new(4);
        let now = Instant::now();
        let (one, two) = (holds.take(hold(1, 5), now), holds.take(hold(2, 7), now));
        let asked = holds.all();
        let new = holds.take(hold(3, 1), now);
        assert_eq!(holds.renewed(&asked, &[renewed(1, 5, true)], now), 1);
        assert!(one.cancel.is_cancelled() && !one.lost.is_cancelled());
        assert!(two.lost.is_cancelled());
        assert!(!new.lost.is_cancelled(), "what was claimed since was not asked for");
    }

    #[test]
    fn a_lane_that_was_let_go_and_claimed_anew_is_not_taken_for_the_old_one() {
        let holds = Holds::new(4);
        let now = Instant::now();
        holds.take(hold(1, 5), now);
        let asked = holds.all();
        let new = holds.take(hold(1, 6), now);
        assert_eq!(holds.renewed(&asked, &[], now), 0);
        holds.release([hold(1, 5)]);
        assert!(holds.all().len() == 1 && !new.lost.is_cancelled());
    }

    #[test]
    fn what_only_waits_for_its_end_to_be_written_makes_room_but_not_without_bound() {
        let holds = Holds::new(4);
        let now = Instant::now();
        let some = |lanes: std::ops::Range<u128>| lanes.map(|lane| hold(lane, 1));
        some(0..4).for_each(|it| drop(holds.take(it, now)));
        assert_eq!(holds.room(), 0);
        holds.leave([hold(0, 1), hold(1, 1), hold(2, 9)]);
        assert_eq!(holds.room(), 2, "another fence is another holding");
        assert_eq!(holds.all().len(), 4, "what leaves is renewed until it is gone");
        holds.leave(some(2..4));
        some(4..8).for_each(|it| drop(holds.take(it, now)));
        holds.leave(some(4..8));
        assert_eq!(holds.room(), 0, "as many again, and no more");
        holds.release(some(0..4));
        assert_eq!(holds.room(), 4);
    }

    #[test]
    fn what_leaves_is_not_lost_when_its_lane_is_found_let_go_and_still_stopped_when_it_is_late() {
        let holds = Holds::new(4);
        let now = Instant::now();
        let control = holds.take(hold(1, 5), now);
        let asked = holds.all();
        holds.leave([hold(1, 5)]);
        assert_eq!(holds.renewed(&asked, &[], now), 0);
        assert!(!control.lost.is_cancelled());
        assert_eq!(holds.stop_late(now + SELF_STOP, SELF_STOP), 1);
        assert!(control.lost.is_cancelled());
    }

    #[test]
    fn who_claims_is_rung_when_there_is_room_again_and_only_then() {
        let holds = Holds::new(1);
        let now = Instant::now();
        let rung = || holds.freed.notified().now_or_never().is_some();
        holds.take(hold(1, 1), now);
        holds.leave([hold(1, 1)]);
        assert!(rung(), "it makes room");
        holds.take(hold(2, 1), now);
        holds.leave([hold(2, 1)]);
        assert!(!rung(), "two ends wait to be written, and that is enough for one slot");
        holds.release([hold(1, 1)]);
        assert!(rung(), "one of them is");
        holds.release([hold(2, 1)]);
        assert!(!rung(), "there was room");
    }

    #[test]
    fn a_lane_that_is_claimed_anew_while_its_last_end_is_answered_is_at_work() {
        let holds = Holds::new(1);
        let now = Instant::now();
        holds.take(hold(1, 1), now);
        holds.leave([hold(1, 1)]);
        let new = holds.take(hold(1, 2), now);
        holds.release([hold(1, 1)]);
        assert_eq!((holds.room(), holds.all()), (0, vec![(Uuid::from_u128(1), 2)]));
        assert!(!new.lost.is_cancelled());
    }

    #[test]
    fn what_was_not_renewed_for_forty_seconds_is_stopped_once() {
        let holds = Holds::new(4);
        let now = Instant::now();
        let old = holds.take(hold(1, 1), now);
        let young = holds.take(hold(2, 1), now + Duration::from_secs(20));
        assert_eq!(holds.stop_late(now + Duration::from_secs(39), SELF_STOP), 0);
        assert_eq!(holds.stop_late(now + Duration::from_secs(40), SELF_STOP), 1);
        assert_eq!(holds.stop_late(now + Duration::from_secs(41), SELF_STOP), 0);
        assert!(old.lost.is_cancelled() && !young.lost.is_cancelled());
    }
}
