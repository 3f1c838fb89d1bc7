use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::state::{Next, State};
use super::{Action, Backoff, Finished, Queue, RetryRate};
use crate::key::ObjectKey;

const SECOND: Duration = Duration::from_secs(1);
const BACKOFF: Backoff = Backoff { base: SECOND, max: Duration::from_secs(10) };

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("ns", name)
}

fn taken(state: &mut State, now: Instant) -> Option<ObjectKey> {
    match state.take(now) {
        Next::Key(key) => Some(key),
        Next::Until(_) | Next::None => None,
    }
}

#[test]
fn a_key_is_queued_once_and_taken_in_order() {
    let (mut state, now) = (State::new(BACKOFF, None), Instant::now());
    assert!(state.add(key("a")));
    assert!(state.add(key("b")));
    assert!(!state.add(key("a")));
    assert_eq!(taken(&mut state, now), Some(key("a")));
    assert_eq!(taken(&mut state, now), Some(key("b")));
    assert_eq!(state.take(now), Next::None);
}

#[test]
fn a_key_in_progress_is_not_taken_again_but_afterwards_if_it_was_added_meanwhile() {
    let (mut state, now) = (State::new(BACKOFF, None), Instant::now());
    state.add(key("a"));
    assert_eq!(taken(&mut state, now), Some(key("a")));
    assert!(!state.add(key("a")));
    assert_eq!(state.take(now), Next::None);
    state.finish(&key("a"), Finished::Ok(Action::Done), now);
    assert_eq!(taken(&mut state, now), Some(key("a")));
    state.finish(&key("a"), Finished::Ok(Action::Done), now);
    assert_eq!(state.take(now), Next::None);
}

#[test]
fn a_key_that_is_added_again_and_again_does_not_hold_up_the_others() {
    let (mut state, now) = (State::new(BACKOFF, None), Instant::now());
    state.add(key("busy"));
    state.add(key("other"));
    assert_eq!(taken(&mut state, now), Some(key("busy")));
    state.add(key("busy"));
    state.finish(&key("busy"), Finished::Ok(Action::Done), now);
    assert_eq!(taken(&mut state, now), Some(key("other")));
}

#[test]
fn failures_double_the_delay_up_to_the_maximum_and_a_success_resets_it() {
    let (mut state, mut now) = (State::new(BACKOFF, None), Instant::now());
    state.add(key("a"));
    for seconds in [1, 2, 4, 8, 10, 10] {
        assert_eq!(taken(&mut state, now), Some(key("a")));
        state.finish(&key("a"), Finished::Failed, now);
        let due = now + SECOND * seconds;
        assert_eq!(state.take(now), Next::Until(due));
        assert_eq!(state.take(due - Duration::from_millis(1)), Next::Until(due));
        now = due;
    }
    assert_eq!(taken(&mut state, now), Some(key("a")));
    state.finish(&key("a"), Finished::Ok(Action::Done), now);
    state.add(key("a"));
    assert_eq!(taken(&mut state, now), Some(key("a")));
    state.finish(&key("a"), Finished::Failed, now);
    assert_eq!(state.take(now), Next::Until(now + SECOND));
}

#[test]
fn a_change_ends_a_delay_and_the_key_is_reconciled_once() {
    let (mut state, now) = (State::new(BACKOFF, None), Instant::now());
    state.add(key("a"));
    taken(&mut state, now);
    state.finish(&key("a"), Finished::Ok(Action::After(SECOND * 30)), now);
    assert_eq!(state.take(now), Next::Until(now + SECOND * 30));
    assert!(state.add(key("a")));
    assert_eq!(taken(&mut state, now), Some(key("a")));
    state.finish(&key("a"), Finished::Ok(Action::Done), now);
    assert_eq!(state.take(now + SECOND * 60), Next::None);
}

#[test]
fn a_change_during_a_failing_reconcile_waits_at_most_a_second() {
    let backoff = Backoff { base: SECOND * 100, max: SECOND * 1000 };
    let (mut state, now) = (State::new(backoff, None), Instant::now());
    state.add(key("a"));
    taken(&mut state, now);
    state.add(key("a"));
    state.finish(&key("a"), Finished::Failed, now);
    assert_eq!(state.take(now), Next::Until(now + SECOND));
}

#[test]
fn a_failing_reconcile_does_not_shorten_its_backoff_by_its_own_write() {
    let backoff = Backoff { base: SECOND * 100, max: SECOND * 1000 };
    let (mut state, now) = (State::new(backoff, None), Instant::now());
    state.add(key("a"));
    taken(&mut state, now);
    state.add_own(key("a"));
    state.finish(&key("a"), Finished::Failed, now);
    let due = now + SECOND * 100;
    assert_eq!(state.take(now), Next::Until(due));
    assert_eq!(taken(&mut state, due), Some(key("a")));
    // Another change counts, in whichever order they come.
    state.add(key("a"));
    state.add_own(key("a"));
    state.finish(&key("a"), Finished::Failed, due);
    assert_eq!(state.take(due), Next::Until(due + SECOND));
    // What it wrote is reconciled when it succeeds.
    assert_eq!(taken(&mut state, due + SECOND), Some(key("a")));
    state.add_own(key("a"));
    state.finish(&key("a"), Finished::Ok(Action::Done), due + SECOND);
    assert_eq!(taken(&mut state, due + SECOND), Some(key("a")));
}

#[tokio::test]
async fn the_queue_tells_a_reconciles_own_write_from_that_of_another() {
    let backoff = Backoff { base: SECOND * 100, max: SECOND * 1000 };
    let check = async |reconciled: &str, shared: bool, expect: Duration| {
        let queue = Arc::new(Queue::new(backoff, None));
        let other = if shared { queue.clone() } else { Arc::new(Queue::new(backoff, None)) };
        queue.add(key("a"));
        assert_eq!(queue.take(), Next::Key(key("a")));
        let before = Instant::now();
        other.reconcile(key(reconciled), async { queue.add(key("a")) }).await;
        queue.finish(&key("a"), Finished::Failed);
        let Next::Until(until) = queue.take() else { panic!("expected a delay") };
        let delay = until - before;
        assert!(delay >= expect && delay < expect + SECOND * 30, "{reconciled} {shared}: {delay:?}");
    };
    check("a", true, SECOND * 100).await;
    check("b", true, SECOND).await;
    check("a", false, SECOND).await;
}

#[test]
fn a_wait_between_failures_does_not_reset_the_delay() {
    let (mut state, mut now) = (State::new(BACKOFF, None), Instant::now());
    state.add(key("a"));
    for seconds in [1, 2, 4, 8, 10] {
        assert_eq!(taken(&mut state, now), Some(key("a")));
        state.finish(&key("a"), Finished::Ok(Action::Wait(SECOND * 15)), now);
        now += SECOND * 15;
        assert_eq!(taken(&mut state, now), Some(key("a")));
        state.finish(&key("a"), Finished::Failed, now);
        assert_eq!(state.take(now), Next::Until(now + SECOND * seconds));
        now += SECOND * seconds;
    }
}

#[test]
fn retries_of_all_keys_together_are_limited() {
    let backoff = Backoff { base: Duration::from_millis(1), max: SECOND };
    let rate = RetryRate { per_second: 10.0, burst: 2 };
    let (mut state, now) = (State::new(backoff, Some(rate)), Instant::now());
    let mut due = Vec::new();
    for name in ["a", "b", "c", "d"] {
        state.add(key(name));
        taken(&mut state, now);
        state.finish(&key(name), Finished::Failed, now);
    }
    let mut at = now;
    while let Next::Until(next) = state.take(at) {
        at = next;
        while taken(&mut state, at).is_some() {
            due.push((at - now).as_millis());
        }
    }
    assert_eq!(due, [1, 1, 100, 200]);
}

#[test]
fn a_delay_beyond_the_clock_does_not_panic() {
    let (mut state, now) = (State::new(BACKOFF, None), Instant::now());
    state.add(key("a"));
    taken(&mut state, now);
    state.finish(&key("a"), Finished::Ok(Action::After(Duration::MAX)), now);
    assert_eq!(state.take(now), Next::None);
    assert!(state.add(key("a")));
}

#[test]
fn the_largest_number_of_failures_has_the_longest_delay() {
    assert_eq!(BACKOFF.delay(u32::MAX), BACKOFF.max);
    assert_eq!(Backoff::default().delay(1), Duration::from_millis(5));
    assert_eq!(Backoff::default().delay(33), Duration::from_secs(1000));
}
