//! How the queue stands, for the metrics.

use std::sync::Arc;
use std::time::Duration;

use api::work::WorkKind;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::crew::Crew;

/// Between two looks: about as often as somebody reads the metrics.
const EVERY: Duration = Duration::from_secs(15);

/// Looks at the queue and the budgets again and again.
pub(super) async fn watch<T>(crew: Arc<Crew<T>>, over: CancellationToken) {
    loop {
        if let (Ok(queue), Ok(budgets)) =
            (crew.store.queue(WorkKind::Manifest).await, crew.store.budgets().await)
        {
            crew.metrics.queue(&queue, crew.clock.now());
            crew.metrics.budgets(&budgets);
        }
        if over.run_until_cancelled(sleep(EVERY)).await.is_none() {
            return;
        }
    }
}
