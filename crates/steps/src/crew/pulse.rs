//! The heartbeat of everything that is held, and the signals that reach it.

use std::sync::Arc;
use std::time::Duration;

use store::Topic;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::Trade;

/// After a failed renewal the next one follows after this part of the usual time: there are only 40 s in all.
const RENEWAL_AGAIN: u32 = 10;
/// A renewal that takes longer than this is given up and said again.
const RENEWAL_TIME: Duration = Duration::from_secs(10);
/// Wake-ups that come closer together than this are served by one look.
const LISTEN_GAP: Duration = Duration::from_millis(10);

/// Renews the leases on all lanes together, and the one that says that this crew is there.
pub(super) async fn beat<T: Trade>(trade: Arc<T>, over: CancellationToken) {
    let crew = trade.crew();
    let timing = crew.settings.timing;
    loop {
        let asked = crew.holds.all();
        let sent = Instant::now();
        let lanes = asked.iter().map(|(lane, _)| *lane).collect();
        let renewal = async {
            // The lanes first: work hangs on them.
            let renewed = crew.store.renew_for(crew.settings.owner, lanes, timing.lease).await?;
            let lost = crew.holds.renewed(&asked, &renewed, sent);
            crew.store
                .take_lease(&crew.settings.lease_name, crew.settings.owner, timing.lease)
                .await
                .map(|_| lost)
        };
        let next = match timeout(RENEWAL_TIME, renewal).await {
            Ok(Ok(lost)) => {
                trade.lost(lost as u64);
                timing.renewal
            }
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "The leases were not renewed");
                timing.renewal / RENEWAL_AGAIN
            }
            Err(_) => {
                tracing::warn!("The leases were not renewed: the store gives no answer");
                timing.renewal / RENEWAL_AGAIN
            }
        };
        if over.run_until_cancelled(sleep(next)).await.is_none() {
            return;
        }
    }
}

/// Stops what could not be renewed, before its lease runs out.
pub(super) async fn self_stop<T: Trade>(trade: Arc<T>, over: CancellationToken) {
    let crew = trade.crew();
    let timing = crew.settings.timing;
    loop {
        // What is claimed meanwhile has more time than this.
        let soon = Instant::now() + timing.renewal;
        let next = crew.holds.late_at(timing.self_stop).map_or(soon, |at| at.min(soon));
        if over.run_until_cancelled(sleep_until(next)).await.is_none() {
            return;
        }
        let stopped = crew.holds.stop_late(Instant::now(), timing.self_stop);
        if stopped > 0 {
            trade.lost(stopped as u64);
            tracing::error!(
                "{stopped} {}s were stopped: their leases could not be renewed",
                crew.settings.noun
            );
        }
    }
}

/// Carries what the store asks of holders to them at once; a checkpoint or a renewal would tell them later.
pub(super) async fn listen<T: Trade>(trade: Arc<T>, over: CancellationToken) {
    let crew = trade.crew();
    let mut bell = crew.store.notifications(Topic::Work(crew.settings.kind));
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
