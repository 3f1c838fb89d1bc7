//! Poll intervals with jitter, so that many processes do not poll at the same moment. The jitter is derived from the process's
//! own id, so that a simulation can be replayed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uuid::Uuid;

/// Draws durations from a range.
#[derive(Debug)]
pub(super) struct PollInterval {
    state: AtomicU64,
}

impl PollInterval {
    pub(super) fn from_owner(owner: Uuid) -> PollInterval {
        let (high, low) = owner.as_u64_pair();
        PollInterval { state: AtomicU64::new(high ^ low.rotate_left(32)) }
    }

    /// A duration from `least` to `most`.
    pub(super) fn between(&self, least: Duration, most: Duration) -> Duration {
        // SplitMix64: a good spread from a counter, without a lock.
        let mut bits = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let share = f64::from(((bits ^ (bits >> 31)) >> 40) as u32) / f64::from(1_u32 << 24);
        least + most.saturating_sub(least).mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_interval_stays_within_its_bounds_and_varies(owner: u128) {
            let interval = PollInterval::from_owner(Uuid::from_u128(owner));
            let (least, most) = (Duration::from_secs(5), Duration::from_secs(10));
            let spans: Vec<Duration> = (0..20).map(|_| interval.between(least, most)).collect();
            prop_assert!(spans.iter().all(|span| (least..=most).contains(span)));
            prop_assert!(spans.iter().max() > spans.iter().min());
        }
    }
}
