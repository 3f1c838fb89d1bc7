//! The context of an operation's steps.

use std::sync::OnceLock;

use api::install::SharedInstaller;
use steps::lifecycle::Lifecycle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::OperationTiming;

/// The context of an operation's steps, created for each claim.
#[derive(Debug)]
pub struct Context {
    /// The cloud, the store, the connection to the cluster, the clock.
    pub life: Lifecycle,
    /// The installer.
    pub installer: SharedInstaller,
    /// Intervals and timeouts of waits.
    pub timing: OperationTiming,
    /// Release of this service.
    pub release: String,
    /// Seed of generated names, so that a simulation can be replayed.
    pub seed: u64,
    /// Time at which this worker first found permissions missing.
    denied_since: OnceLock<Instant>,
}

impl Context {
    /// Creates a context.
    pub fn new(
        life: Lifecycle,
        installer: SharedInstaller,
        timing: OperationTiming,
        release: &str,
        seed: u64,
    ) -> Context {
        Context { life, installer, timing, release: release.to_owned(), seed, denied_since: OnceLock::new() }
    }

    /// Whether missing permissions may still propagate: until the propagation timeout after they were first found missing.
    pub(crate) fn may_still_propagate(&self) -> bool {
        self.denied_since.get_or_init(Instant::now).elapsed() < self.timing.propagation_timeout
    }

    /// Lowercase letters and digits derived from cluster and purpose; every repetition returns the same.
    pub(crate) fn derive_suffix(&self, purpose: &str, length: usize) -> String {
        const LETTERS: &[u8; 31] = b"23456789abcdefghjkmnpqrstuvwxyz";
        let mut name = self.seed.to_be_bytes().to_vec();
        name.extend_from_slice(purpose.as_bytes());
        let bits = Uuid::new_v5(&self.life.cluster(), &name).as_u128();
        let digit = |at: u32| LETTERS[usize::try_from((bits >> (5 * at)) % 31).unwrap_or(0)];
        (0..u32::try_from(length.min(20)).unwrap_or(20)).map(|at| char::from(digit(at))).collect()
    }
}
