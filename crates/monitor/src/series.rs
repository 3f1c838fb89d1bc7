//! Series of clusters: what the collectors found, as gauges with labels, until it is stale.
//!
//! Names are those of the metrics with `_` for dots; the wiring adds the prefix. A series disappears three intervals after it was
//! last refreshed. Labels hold no free text, and each collector at most [`SERIES_MAX`] series of a cluster, because one hostile
//! cluster must not fill the metrics system.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;
use uuid::Uuid;

/// Most series that one collector may have of one cluster.
pub(crate) const SERIES_MAX: usize = 2_000;

/// Most bytes of a label's value: a name in Kubernetes has at most 253.
const LABEL_MAX: usize = 253;

/// Intervals after which a series that was not refreshed disappears.
pub(crate) const STALE_INTERVALS: u32 = 3;

/// A metric of clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
}

/// Names and values of a series' own labels.
type Labels = Vec<(&'static str, Cow<'static, str>)>;

/// One value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) metric: Metric,
    pub(crate) labels: Labels,
    pub(crate) value: f64,
}

impl Series {
    /// A series without labels of its own.
    pub(crate) fn new(metric: Metric, value: f64) -> Series {
        Series { metric, labels: Vec::new(), value }
    }

    /// Adds a label. Its value is cut and loses control characters: it may come from a hostile cluster.
    #[must_use]
    pub(crate) fn label(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Series {
        self.labels.push((name, bounded(value.into())));
        self
    }
}

fn bounded(value: Cow<'static, str>) -> Cow<'static, str> {
    if value.len() <= LABEL_MAX && !value.contains(char::is_control) {
        return value;
    }
    let mut text = String::new();
    for character in value.chars().filter(|it| !it.is_control()) {
        if text.len() + character.len_utf8() > LABEL_MAX {
            break;
        }
        text.push(character);
    }
    Cow::Owned(text)
}

/// Labels that all series of a cluster have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ClusterLabels(pub(crate) Vec<(&'static str, String)>);

/// The series of all clusters of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeriesTable(Arc<Mutex<HashMap<Uuid, ClusterSeries>>>);

#[derive(Debug, Default)]
struct ClusterSeries {
    labels: Arc<ClusterLabels>,
    by_collector: BTreeMap<&'static str, CollectorSeries>,
}

#[derive(Debug)]
struct CollectorSeries {
    series: Vec<Series>,
    stale_at: Instant,
}

/// A series with the labels of its cluster.
type LabelledSeries<'a> = (&'a ClusterLabels, &'a Series);

impl SeriesTable {
    /// Replaces the series of a collector. Two series with the same labels are one, of which the last counts; what is above the
    /// limit is left out. Returns how many were.
    pub(crate) fn replace(
        &self,
        cluster: Uuid,
        labels: &Arc<ClusterLabels>,
        collector: &'static str,
        series: Vec<Series>,
        interval: Duration,
    ) -> usize {
        let mut unique: HashMap<(&'static str, Labels), Series> =
            HashMap::with_capacity(series.len().min(SERIES_MAX));
        let mut dropped = 0;
        for one in series {
            let key = (one.metric.name, one.labels.clone());
            if unique.len() >= SERIES_MAX && !unique.contains_key(&key) {
                dropped += 1;
            } else {
                unique.insert(key, one);
            }
        }
        let series = unique.into_values().collect();
        let stale_at = Instant::now() + interval * STALE_INTERVALS;
        let mut all = self.lock();
        let kept = all.entry(cluster).or_default();
        kept.labels = labels.clone();
        kept.by_collector.insert(collector, CollectorSeries { series, stale_at });
        dropped
    }

    /// Keeps the present series of a collector for another three intervals.
    pub(crate) fn refresh(&self, cluster: Uuid, collector: &'static str, interval: Duration) {
        let mut all = self.lock();
        if let Some(kept) = all.get_mut(&cluster).and_then(|it| it.by_collector.get_mut(collector)) {
            kept.stale_at = Instant::now() + interval * STALE_INTERVALS;
        }
    }

    /// Removes the series of a cluster that this process no longer visits.
    pub(crate) fn remove(&self, cluster: Uuid) {
        self.lock().remove(&cluster);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, ClusterSeries>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All series that are not stale, as `name{label="value",...} value`, sorted.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> Vec<String> {
        let now = Instant::now();
        let mut lines = Vec::new();
        for cluster in self.lock().values() {
            for one in cluster.by_collector.values().filter(|it| it.stale_at > now).flat_map(|it| &it.series)
            {
                let labels: Vec<String> =
                    one.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
                lines.push(format!("{}{{{}}} {}", one.metric.name, labels.join(","), one.value));
            }
        }
        lines.sort();
        lines
    }
}

impl Collector for SeriesTable {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let now = Instant::now();
        let mut all = self.lock();
        for cluster in all.values_mut() {
            cluster.by_collector.retain(|_, it| it.stale_at > now);
        }
        // A family is written in one piece.
        let mut families: BTreeMap<&str, (Metric, Vec<LabelledSeries<'_>>)> = BTreeMap::new();
        for cluster in all.values() {
            for one in cluster.by_collector.values().flat_map(|it| &it.series) {
                let family = families.entry(one.metric.name).or_insert((one.metric, Vec::new()));
                family.1.push((&cluster.labels, one));
            }
        }
        for (metric, rows) in families.into_values() {
            let mut family = encoder.encode_descriptor(metric.name, metric.help, None, MetricType::Gauge)?;
            for (cluster, one) in rows {
                let labels: Vec<(&str, &str)> = cluster
                    .0
                    .iter()
                    .map(|(name, value)| (*name, value.as_str()))
                    .chain(one.labels.iter().map(|(name, value)| (*name, value.as_ref())))
                    .collect();
                ConstGauge::new(one.value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    const METRIC: Metric = Metric { name: "node_count", help: "Nodes" };

    fn exposition(table: &SeriesTable) -> String {
        let mut registry = Registry::with_prefix("shipshape");
        let scoped = registry.sub_registry_with_label((Cow::Borrowed("scope"), Cow::Borrowed("cluster")));
        scoped.register_collector(Box::new(table.clone()));
        let mut out = String::new();
        text::encode(&mut out, &registry).unwrap();
        out
    }

    #[tokio::test(start_paused = true)]
    async fn series_disappear_three_intervals_after_their_last_refresh() {
        let (table, cluster) = (SeriesTable::default(), Uuid::from_u128(1));
        let labels = Arc::new(ClusterLabels(vec![("resourceName", "davit".to_owned())]));
        let minute = Duration::from_secs(60);
        table.replace(
            cluster,
            &labels,
            "nodes",
            vec![Series::new(METRIC, 3.0).label("role", "worker")],
            minute,
        );
        let line = "shipshape_node_count{scope=\"cluster\",resourceName=\"davit\",role=\"worker\"} 3.0\n";
        assert!(exposition(&table).contains(line), "{}", exposition(&table));
        tokio::time::advance(minute * 2).await;
        table.refresh(cluster, "nodes", minute);
        tokio::time::advance(minute * 3 - Duration::from_secs(1)).await;
        assert!(exposition(&table).contains(line));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!exposition(&table).contains("node_count"));
        // What was stale does not come back.
        table.refresh(cluster, "nodes", minute);
        assert!(table.lines().is_empty());
    }

    #[tokio::test]
    async fn labels_and_numbers_of_series_are_bounded() {
        let (table, cluster) = (SeriesTable::default(), Uuid::from_u128(1));
        let named = |number: usize| Series::new(METRIC, 1.0).label("name", format!("n{number}"));
        let dropped = table.replace(
            cluster,
            &Arc::default(),
            "x",
            (0..SERIES_MAX + 7).map(named).collect(),
            Duration::from_secs(1),
        );
        assert_eq!((dropped, table.lines().len()), (7, SERIES_MAX));
        let twice = vec![named(1), Series { value: 2.0, ..named(1) }];
        table.replace(cluster, &Arc::default(), "x", twice, Duration::from_secs(1));
        assert_eq!(table.lines(), ["node_count{name=\"n1\"} 2"]);
        let hostile = Series::new(METRIC, 1.0).label("name", format!("a\nb\u{0}{}", "é".repeat(500)));
        let value = &hostile.labels[0].1;
        assert!(value.starts_with("abéé") && value.len() <= LABEL_MAX && !value.contains('\n'));
        table.remove(cluster);
        assert!(table.lines().is_empty());
    }
}
