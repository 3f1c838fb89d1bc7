//! Writes health records in batches: samples that changed, and the time of those that did not.
//!
//! While the database is away the newest sample of each cluster waits, so what waits is bounded by the number of clusters, and
//! afterwards it is written in blocks.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use api::clock::SharedClock;
use store::{HealthSample, HealthWriter, StoreError};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::Timing;
use crate::metrics::Metrics;

/// What waits to be written; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outgoing(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    changed: HashMap<Uuid, Arc<HealthSample>>,
    /// Samples that are as they were; written only if somebody else wrote another meanwhile.
    confirmed: HashMap<Uuid, Arc<HealthSample>>,
}

impl Outgoing {
    /// A sample that differs from the one before.
    pub(crate) fn changed(&self, sample: Arc<HealthSample>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.confirmed.remove(&sample.cluster);
        waiting.changed.insert(sample.cluster, sample);
    }

    /// A sample that is as the one before.
    pub(crate) fn confirmed(&self, sample: Arc<HealthSample>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.changed.contains_key(&sample.cluster) {
            waiting.confirmed.insert(sample.cluster, sample);
        }
    }

    fn take(&self) -> Waiting {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts back what could not be written, unless something newer waits by now.
    fn put_back(&self, failed: Waiting) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (cluster, sample) in failed.changed {
            waiting.confirmed.remove(&cluster);
            waiting.changed.entry(cluster).or_insert(sample);
        }
        for (cluster, sample) in failed.confirmed {
            if !waiting.changed.contains_key(&cluster) {
                waiting.confirmed.entry(cluster).or_insert(sample);
            }
        }
    }

    fn len(&self) -> usize {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.changed.len() + waiting.confirmed.len()
    }
}

/// Writes what waits until shutdown, and once more then.
pub(crate) async fn write(
    writer: HealthWriter,
    observer: Uuid,
    outgoing: Outgoing,
    clock: SharedClock,
    timing: Timing,
    metrics: Metrics,
    shutdown: CancellationToken,
) {
    let mut is_failing = false;
    loop {
        let is_last = shutdown.run_until_cancelled(tokio::time::sleep(timing.flush)).await.is_none();
        let waiting = outgoing.take();
        if !waiting.changed.is_empty() || !waiting.confirmed.is_empty() {
            let started = Instant::now();
            match timeout(timing.lease, flush(&writer, observer, &waiting)).await {
                Ok(Ok(())) => {
                    metrics.wrote(waiting.changed.len(), waiting.confirmed.len(), clock.now());
                    if std::mem::take(&mut is_failing) {
                        tracing::info!("Health records can be written again");
                    }
                }
                result => {
                    metrics.write_failed();
                    outgoing.put_back(waiting);
                    if !std::mem::replace(&mut is_failing, true) {
                        let cause = match result {
                            Ok(Err(error)) => error.to_string(),
                            _ => format!("no response within {} s", started.elapsed().as_secs()),
                        };
                        tracing::warn!("Health records cannot be written and wait: {cause}");
                    }
                }
            }
        }
        metrics.unwritten(outgoing.len());
        if is_last {
            return;
        }
    }
}

async fn flush(writer: &HealthWriter, observer: Uuid, waiting: &Waiting) -> Result<(), StoreError> {
    let mut samples: Vec<HealthSample> = waiting.changed.values().map(|it| HealthSample::clone(it)).collect();
    if !waiting.confirmed.is_empty() {
        let same = waiting.confirmed.values().map(|it| (it.cluster, it.reachable)).collect();
        let confirmed: HashSet<Uuid> = writer.confirm(observer, same).await?.into_iter().collect();
        let others = waiting.confirmed.values().filter(|it| !confirmed.contains(&it.cluster));
        samples.extend(others.map(|it| HealthSample::clone(it)));
    }
    if samples.is_empty() { Ok(()) } else { writer.put(samples).await }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(cluster: u128, version: &str) -> Arc<HealthSample> {
        let now = jiff::Timestamp::UNIX_EPOCH;
        let details = json!({"version": version}).into();
        Arc::new(HealthSample {
            cluster: Uuid::from_u128(cluster),
            at: now,
            reachable: true,
            since: now,
            details,
        })
    }

    #[test]
    fn of_each_cluster_the_newest_sample_waits() {
        let outgoing = Outgoing::default();
        outgoing.confirmed(sample(1, "0"));
        outgoing.changed(sample(1, "a"));
        outgoing.confirmed(sample(1, "a"));
        outgoing.confirmed(sample(2, "d"));
        assert_eq!(outgoing.len(), 2);
        let failed = outgoing.take();
        outgoing.changed(sample(1, "b"));
        outgoing.changed(sample(3, "c"));
        outgoing.put_back(failed);
        let waiting = outgoing.take();
        let mut versions: Vec<_> =
            waiting.changed.values().filter_map(|it| it.details.version.clone()).collect();
        versions.sort();
        assert_eq!(versions, ["b", "c"]);
        assert_eq!(waiting.confirmed.keys().collect::<Vec<_>>(), [&Uuid::from_u128(2)]);
    }
}
