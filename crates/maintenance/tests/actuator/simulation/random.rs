//! Numbers that follow from a seed (SplitMix64).

use std::sync::Mutex;
use std::time::Duration;

use uuid::Uuid;

#[derive(Debug)]
pub(super) struct Random(Mutex<u64>);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(Mutex::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(0x1234_5678)))
    }

    pub(super) fn next(&self) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = *state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// From 0 to `end`, without it.
    pub(super) fn below(&self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Whether something of that share of a thousand happens.
    pub(super) fn happens(&self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub(super) fn millis(&self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }

    pub(super) fn uuid(&self) -> Uuid {
        Uuid::from_u64_pair(self.next(), self.next())
    }
}
