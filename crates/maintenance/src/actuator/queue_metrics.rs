//! Metrics of the queue and the budgets.

use std::sync::Arc;
use std::time::Duration;

use api::work::WorkKind;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::service::Actuator;

/// Interval between two reads: about the scrape interval of metrics.
const INTERVAL: Duration = Duration::from_secs(15);

/// Updates the metrics periodically.
pub(super) async fn watch<T>(actuator: Arc<Actuator<T>>, stopped: CancellationToken) {
    loop {
        if let (Ok(queue), Ok(budgets)) =
            (actuator.store.queue(WorkKind::Manifest).await, actuator.store.budgets().await)
        {
            actuator.metrics.queue(&queue, actuator.clock.now());
            actuator.metrics.budgets(&budgets);
        }
        if stopped.run_until_cancelled(sleep(INTERVAL)).await.is_none() {
            return;
        }
    }
}
