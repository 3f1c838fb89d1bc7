//! Renewal of the held leases, and delivery of signals from the store to the runs.

use std::sync::Arc;
use std::time::Duration;

use store::Topic;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::WorkHandler;

/// Divisor of the renewal interval after a failed renewal: runs stop 40 s after the last success.
const RETRY_DIVISOR: u32 = 10;
/// Timeout of one renewal.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Notifications within this time are served by one read.
const DEBOUNCE: Duration = Duration::from_millis(10);

/// Renews the leases on all lanes together, and the lease that shows that this process is alive.
pub(super) async fn renew<H: WorkHandler>(handler: Arc<H>, over: CancellationToken) {
    let pool = handler.pool();
    let timing = pool.settings.timing;
    loop {
        let requested = pool.leases.all();
        let sent = Instant::now();
        let lanes = requested.iter().map(|(lane, _)| *lane).collect();
        let renewal = async {
            // The lanes first: runs depend on them.
            let renewed = pool.store.renew_for(pool.settings.owner, lanes, timing.lease).await?;
            let lost = pool.leases.apply_renewal(&requested, &renewed, sent);
            pool.store
                .take_lease(&pool.settings.lease_name, pool.settings.owner, timing.lease)
                .await
                .map(|_| lost)
        };
        let next = match timeout(RENEWAL_TIMEOUT, renewal).await {
            Ok(Ok(lost)) => {
                handler.lost(lost as u64);
                timing.renewal
            }
            Ok(Err(error)) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Renewing the leases failed; retrying"
                );
                timing.renewal / RETRY_DIVISOR
            }
            Err(_) => {
                tracing::warn!("Renewing the leases timed out; retrying");
                timing.renewal / RETRY_DIVISOR
            }
        };
        if over.run_until_cancelled(sleep(next)).await.is_none() {
            return;
        }
    }
}

/// Stops runs whose lease could not be renewed, before the lease expires.
pub(super) async fn self_stop<H: WorkHandler>(handler: Arc<H>, over: CancellationToken) {
    let pool = handler.pool();
    let timing = pool.settings.timing;
    loop {
        // A lease that is claimed meanwhile expires later than this.
        let soon = Instant::now() + timing.renewal;
        let next = pool.leases.self_stop_at(timing.self_stop).map_or(soon, |at| at.min(soon));
        if over.run_until_cancelled(sleep_until(next)).await.is_none() {
            return;
        }
        let stopped = pool.leases.stop_overdue(Instant::now(), timing.self_stop);
        if stopped > 0 {
            handler.lost(stopped as u64);
            tracing::error!("Stopped {stopped} {}s: their leases could not be renewed", pool.settings.noun);
        }
    }
}

/// Delivers signals of the store (cancel, pre-emption) to the runs at once; checkpoints and renewals deliver them later.
pub(super) async fn listen<H: WorkHandler>(handler: Arc<H>, over: CancellationToken) {
    let pool = handler.pool();
    let mut notifications = pool.store.notifications(Topic::Work(pool.settings.kind));
    while over.run_until_cancelled(notifications.next()).await.is_some() {
        let lanes: Vec<_> = pool.leases.all().into_iter().map(|(lane, _)| lane).collect();
        if !lanes.is_empty() {
            match pool.store.lanes(lanes).await {
                Ok(views) => pool.leases.apply_views(&views),
                // The next renewal delivers them.
                Err(error) => tracing::debug!(error = %error, "Reading lane signals failed"),
            }
        }
        if over.run_until_cancelled(sleep(DEBOUNCE)).await.is_none() {
            return;
        }
    }
}
