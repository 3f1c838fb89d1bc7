//! Calls of the provider, limited in time, and the times of resyncs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use api::crd::machine::Machine;
use cloud::InstanceError;

/// The result of a call of the provider, or an error if it takes too long.
pub(super) async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, InstanceError>>,
) -> Result<T, InstanceError> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
        Err(InstanceError::Unavailable(format!("the provider did not answer within {} s", limit.as_secs())))
    })
}

/// The time until a Machine at rest is looked at again: about `resync`, at a time of its own, so that not all are asked for at once.
pub(super) fn spread(resync: Duration, machine: &Machine) -> Duration {
    let mut hasher = DefaultHasher::new();
    machine.metadata.uid.hash(&mut hasher);
    let share = u32::try_from(hasher.finish() % 1000).unwrap_or_default();
    resync.mul_f64(0.8 + 0.4 * f64::from(share) / 1000.0)
}
