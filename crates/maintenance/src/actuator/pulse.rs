//! The heartbeat of everything that is held, and the signals that reach it.

use std::sync::Arc;
use std::time::Duration;

use api::work::WorkKind;
use store::{LEASE, RENEWAL, Topic};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::crew::Crew;

/// After a failed renewal the next one follows soon: there are only 40 s in all.
const RENEWAL_AGAIN: Duration = Duration::from_secs(2);
/// A renewal that takes longer than this is given up and said again.
const RENEWAL_TIME: Duration = Duration::from_secs(10);
/// How exactly the self-stop is kept.
const SELF_STOP_TICK: Duration = Duration::from_millis(500);
/// Wake-ups that come closer together than this are served by one look.
const LISTEN_GAP: Duration = Duration::from_millis(10);

/// Renews the leases on all lanes together, and the one that says that this actuator is there.
pub(super) async fn beat<T>(crew: Arc<Crew<T>>, over: CancellationToken) {
    loop {
        let asked = crew.holds.all();
        let sent = Instant::now();
        let lanes = asked.iter().map(|(lane, _)| *lane).collect();
        let name = crew.lease_name();
        let renewal = async {
            // The lanes first: work hangs on them.
            let renewed = crew.store.renew(crew.owner, lanes).await?;
            let lost = crew.holds.renewed(&asked, &renewed, sent);
            crew.store.take_lease(&name, crew.owner, LEASE).await.map(|_| lost)
        };
        let next = match timeout(RENEWAL_TIME, renewal).await {
            Ok(Ok(lost)) => {
                crew.metrics.lost.inc_by(lost as u64);
                RENEWAL
            }
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "The leases were not renewed");
                RENEWAL_AGAIN
            }
            Err(_) => {
                tracing::warn!("The leases were not renewed: the store gives no answer");
                RENEWAL_AGAIN
            }
        };
        if over.run_until_cancelled(sleep(next)).await.is_none() {
            return;
        }
    }
}

/// Stops what could not be renewed, before its lease runs out.
pub(super) async fn self_stop<T>(crew: Arc<Crew<T>>, over: CancellationToken) {
    while over.run_until_cancelled(sleep(SELF_STOP_TICK)).await.is_some() {
        let stopped = crew.holds.stop_late(Instant::now());
        if stopped > 0 {
            crew.metrics.lost.inc_by(stopped as u64);
            tracing::error!("{stopped} manifests were stopped: their leases could not be renewed");
        }
    }
}

/// Carries what the store asks of holders to them at once; a checkpoint or a renewal would tell them later.
pub(super) async fn listen<T>(crew: Arc<Crew<T>>, over: CancellationToken) {
    let mut bell = crew.store.wakeups(Topic::Work(WorkKind::Manifest));
    while over.run_until_cancelled(bell.next()).await.is_some() {
        let lanes: Vec<_> = crew.holds.all().into_iter().map(|(lane, _)| lane).collect();
        if !lanes.is_empty() {
            match crew.store.lanes(lanes).await {
                Ok(views) => crew.holds.seen(&views),
                // The heartbeat asks again.
                Err(error) => tracing::debug!(error = %error, "The lanes were not read"),
            }
        }
        if over.run_until_cancelled(sleep(LISTEN_GAP)).await.is_none() {
            return;
        }
    }
}
