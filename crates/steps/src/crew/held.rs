//! The lanes that this process holds, and until when it may believe that it does.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::{Hold, LaneView, Renewed};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use crate::engine::Control;

/// The lanes that this process holds.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// In order, so that a simulation can be replayed.
    lanes: Mutex<BTreeMap<Uuid, Held>>,
    /// Rung when a lane is let go.
    pub(super) freed: Notify,
}

#[derive(Debug)]
struct Held {
    hold: Hold,
    control: Control,
    /// When the last successful claim or renewal was sent, by the monotonic clock.
    renewed: Instant,
}

impl Holds {
    fn lanes(&self) -> MutexGuard<'_, BTreeMap<Uuid, Held>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane is ours since `asked`, when the claim was sent.
    pub(super) fn take(&self, hold: Hold, asked: Instant) -> Control {
        let control = Control::new();
        self.lanes().insert(hold.lane, Held { hold, control: control.clone(), renewed: asked });
        control
    }

    /// Lanes are let go, unless they were before or are held anew meanwhile. One ring for all: what is claimed in their place
    /// is claimed together.
    pub(super) fn release(&self, holds: impl IntoIterator<Item = Hold>) {
        let mut lanes = self.lanes();
        let before = lanes.len();
        for hold in holds {
            if lanes.get(&hold.lane).is_some_and(|held| held.hold == hold) {
                lanes.remove(&hold.lane);
            }
        }
        let freed = lanes.len() < before;
        drop(lanes);
        if freed {
            self.freed.notify_one();
        }
    }

    pub(super) fn count(&self) -> usize {
        self.lanes().len()
    }

    /// All lanes, with the fences that they are held under.
    pub(super) fn all(&self) -> Vec<(Uuid, i64)> {
        self.lanes().values().map(|held| (held.hold.lane, held.hold.fence)).collect()
    }

    /// Takes in the answer to a renewal of the lanes `asked`, sent at `sent`. What is not in the answer is lost.
    pub(super) fn renewed(&self, asked: &[(Uuid, i64)], answer: &[Renewed], sent: Instant) -> usize {
        let answer: HashMap<Uuid, &Renewed> = answer.iter().map(|it| (it.lane, it)).collect();
        let mut lanes = self.lanes();
        let mut lost = 0;
        for (lane, fence) in asked {
            let Some(held) = lanes.get_mut(lane).filter(|held| held.hold.fence == *fence) else { continue };
            match answer.get(lane).filter(|it| it.fence == *fence) {
                Some(renewed) => {
                    held.renewed = held.renewed.max(sent);
                    held.control.hear(renewed.signals);
                }
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
            } else if view.fence > held.hold.fence {
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

#[cfg(test)]
mod tests {
    use store::{SELF_STOP, Signals};

    use super::*;

    fn hold(lane: u128, fence: i64) -> Hold {
        Hold { work: Uuid::from_u128(9), lane: Uuid::from_u128(lane), owner: Uuid::from_u128(1), fence }
    }

    fn renewed(lane: u128, fence: i64, cancel: bool) -> Renewed {
        Renewed { lane: Uuid::from_u128(lane), fence, signals: Signals { preempt: false, cancel } }
    }

    #[test]
    fn what_a_renewal_does_not_answer_is_lost_and_what_it_asks_is_heard() {
        let holds = Holds::default();
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
        let holds = Holds::default();
        let now = Instant::now();
        holds.take(hold(1, 5), now);
        let asked = holds.all();
        let new = holds.take(hold(1, 6), now);
        assert_eq!(holds.renewed(&asked, &[], now), 0);
        holds.release([hold(1, 5)]);
        assert!(holds.count() == 1 && !new.lost.is_cancelled());
    }

    #[test]
    fn what_was_not_renewed_for_forty_seconds_is_stopped_once() {
        let holds = Holds::default();
        let now = Instant::now();
        let old = holds.take(hold(1, 1), now);
        let young = holds.take(hold(2, 1), now + Duration::from_secs(20));
        assert_eq!(holds.stop_late(now + Duration::from_secs(39), SELF_STOP), 0);
        assert_eq!(holds.stop_late(now + Duration::from_secs(40), SELF_STOP), 1);
        assert_eq!(holds.stop_late(now + Duration::from_secs(41), SELF_STOP), 0);
        assert!(old.lost.is_cancelled() && !young.lost.is_cancelled());
    }
}
