//! What the steps of an operation are given.

use std::sync::OnceLock;

use api::install::SharedInstaller;
use steps::lifecycle::Lifecycle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::OperationTiming;

/// What the steps of an operation are given, made anew for each claim.
#[derive(Debug)]
pub struct Context {
    /// The cloud, the store, the way to the cluster, the clock.
    pub life: Lifecycle,
    /// Who installs.
    pub installer: SharedInstaller,
    /// How long is waited for what others do.
    pub timing: OperationTiming,
    /// Which release of this service works.
    pub release: String,
    /// Names that are drawn follow from this and the cluster, so that a world can be replayed.
    pub seed: u64,
    /// Since when rights have been seen to be missing, by this holder.
    denied_since: OnceLock<Instant>,
}

impl Context {
    /// A context.
    pub fn new(
        life: Lifecycle,
        installer: SharedInstaller,
        timing: OperationTiming,
        release: &str,
        seed: u64,
    ) -> Context {
        Context { life, installer, timing, release: release.to_owned(), seed, denied_since: OnceLock::new() }
    }

    /// Whether rights that are missing may still be on their way: the first time they are seen to be missing, and for a while
    /// after it.
    pub(crate) fn may_still_spread(&self) -> bool {
        self.denied_since.get_or_init(Instant::now).elapsed() < self.timing.propagation_timeout
    }

    /// Small letters and digits that belong to this cluster and purpose: the same for every repetition.
    pub(crate) fn draw(&self, purpose: &str, length: usize) -> String {
        const LETTERS: &[u8; 31] = b"23456789abcdefghjkmnpqrstuvwxyz";
        let mut name = self.seed.to_be_bytes().to_vec();
        name.extend_from_slice(purpose.as_bytes());
        let bits = Uuid::new_v5(&self.life.cluster(), &name).as_u128();
        let digit = |at: u32| LETTERS[usize::try_from((bits >> (5 * at)) % 31).unwrap_or(0)];
        (0..u32::try_from(length.min(20)).unwrap_or(20)).map(|at| char::from(digit(at))).collect()
    }
}
