//! The task of one cluster: a visit every interval, until the cluster leaves this process.
//!
//! A cluster that hangs costs this task alone. After some failed visits in a row the cluster is visited less often; its series are
//! refreshed and its record is confirmed every interval all the same, because alerts depend on them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use api::clock::SharedClock;
use api::doc::CollectorError;
use api::health::{HealthSample, availability};
use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use kubelink::Link;
use steps::ClusterConnections;
use steps::engine::StepErrorKind;
use store::Reader;
use tokio::sync::{OnceCell, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::collect::{COLLECTORS, ClusterVersion, Collector, Findings, Visit};
use crate::config::{Config, Timing};
use crate::fleet::{Fleet, MonitoredCluster};
use crate::metrics::Metrics;
use crate::record::{self, LastFindings, Observation};
use crate::series::{ClusterLabels, Metric, STALE_INTERVALS, Series};
use crate::visit::{FetchError, Fetcher, Probe, probe};
use crate::writer::Outgoing;

const HEALTHZ: Metric =
    Metric { name: "apiserver_healthz_code", help: "Status of /healthz; 0 without a response" };
const PING: Metric = Metric {
    name: "apiserver_healthz_ping_code",
    help: "Status of /healthz/ping, asked when /healthz fails; 0 without a response",
};
const READYZ: Metric =
    Metric { name: "apiserver_readyz_failed", help: "1 for each failing check of /readyz" };
const REACHABILITY: Metric =
    Metric { name: "apiserver_reachability", help: "Whether and why the API server is not reached" };
const PROVISIONING: Metric =
    Metric { name: "cluster_provisioning", help: "Provisioning state of the cluster" };
const MAINTENANCE: Metric =
    Metric { name: "cluster_maintenance_pucm", help: "State of maintenance on the cluster" };
const AUTHENTICATION: Metric =
    Metric { name: "cluster_AuthenticationType", help: "How the cluster authenticates to the cloud" };
const AVAILABILITY: Metric = Metric {
    name: "cluster_availability_ratio",
    help: "Share of the last 30 days in which it was reachable",
};
const LAST_SUCCESS: Metric =
    Metric { name: "collector_last_success_timestamp", help: "When a collector succeeded last" };
const DURATION: Metric =
    Metric { name: "monitor_cluster_collector_duration", help: "Seconds that a collector took" };

/// Name of the series that come from no collector.
const OWN: &str = "visit";

/// Time over which availability is measured.
const AVAILABILITY_DAYS: i64 = 30;

/// Most transitions that are read for it.
const EVENTS_MAX: usize = 5_000;

/// What the workers of a process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) reader: Reader,
    pub(crate) connections: ClusterConnections,
    pub(crate) clock: SharedClock,
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    pub(crate) outgoing: Outgoing,
    pub(crate) fleet: watch::Receiver<Fleet>,
    /// The worker's id in the pool.
    pub(crate) observer: Uuid,
}

/// The state of one cluster's task.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    uuid: Uuid,
    spread: Duration,
    /// The connection of the last visit, for visits while the store is away.
    link: Option<Link>,
    /// The last sample.
    last: Option<Arc<HealthSample>>,
    failures: u32,
    visits: u32,
    labels: Arc<ClusterLabels>,
    kept: BTreeMap<&'static str, LastFindings>,
    /// Visit in which each collector succeeded last, and when.
    succeeded: BTreeMap<&'static str, (u32, Timestamp)>,
    /// Hour in which availability was measured last, and its value.
    measured: Option<(i64, f64)>,
}

/// The end of one collector's run.
type Outcome = (Collector, Duration, Result<Findings, CollectError>);

#[derive(Debug)]
enum CollectError {
    Failed(FetchError),
    Panicked,
}

impl Worker {
    /// The first visit is within `spread`.
    pub(crate) fn new(
        shared: Arc<Shared>,
        uuid: Uuid,
        last: Option<HealthSample>,
        spread: Duration,
    ) -> Worker {
        Worker {
            shared,
            uuid,
            spread,
            link: None,
            last: last.map(Arc::new),
            failures: 0,
            visits: 0,
            labels: Arc::default(),
            kept: BTreeMap::new(),
            succeeded: BTreeMap::new(),
            measured: None,
        }
    }

    /// Visits the cluster until `stopped`.
    pub(crate) async fn run(mut self, stopped: CancellationToken) {
        let first = Instant::now() + random_part(self.spread);
        stopped.run_until_cancelled(self.visit_forever(first)).await;
        self.shared.metrics.series.remove(self.uuid);
        self.shared.connections.forget(self.uuid);
    }

    async fn visit_forever(&mut self, first: Instant) {
        let mut due = first;
        let mut visit_at = first;
        loop {
            sleep_until(due).await;
            let fleet = self.shared.fleet.borrow().clone();
            if let Some(cluster) = fleet.clusters.get(&self.uuid).filter(|it| fleet.skip_reason(it).is_none())
            {
                if due >= visit_at {
                    let maintenance = fleet.maintenance.get(&self.uuid).copied();
                    self.cycle(cluster.clone(), maintenance).await;
                    visit_at = due + self.pause();
                } else {
                    self.repeat();
                }
            }
            // The pace stays, but visits that were missed are not made up for.
            due = (due + self.interval()).max(Instant::now());
        }
    }

    /// Time from one visit to the next.
    fn pause(&self) -> Duration {
        let Timing { failures, stretched, .. } = self.shared.config.timing;
        if self.failures >= failures { stretched.max(self.interval()) } else { self.interval() }
    }

    fn interval(&self) -> Duration {
        self.shared.config.interval.duration()
    }

    /// Without a visit: keeps the result of the last one.
    fn repeat(&self) {
        self.shared.metrics.series.refresh(self.uuid, OWN, self.interval());
        if let Some(last) = &self.last {
            self.shared.outgoing.confirmed(last.clone());
        }
    }

    async fn cycle(&mut self, cluster: Arc<MonitoredCluster>, maintenance: Option<Uuid>) {
        let shared = self.shared.clone();
        let _active = shared.metrics.visit();
        self.labels = labels(&cluster, maintenance);
        let Some(link) = self.link().await else { return };
        let started = Instant::now();
        let deadline = started + shared.config.timing.visit;
        let over = CancellationToken::new();
        let fetcher = Fetcher::new(link, over.clone());
        let found = match timeout_at(deadline, probe(&fetcher)).await {
            Ok(found) => found,
            Err(_) => {
                shared.metrics.timed_out();
                Probe::timed_out()
            }
        };
        self.visits = self.visits.wrapping_add(1);
        self.failures = if found.is_healthy() { 0 } else { self.failures.saturating_add(1) };
        let mut errors = Vec::new();
        if found.is_healthy() {
            let now = shared.clock.now();
            match timeout_at(deadline, ClusterVersion::read(&fetcher)).await.unwrap_or(Err(FetchError::Over))
            {
                Ok(cluster_version) => {
                    let cluster = cluster.clone();
                    let visit =
                        Visit { fetcher, cluster, now, maintenance, cluster_version, nodes: OnceCell::new() };
                    errors = self.collect(&visit, deadline, &over).await;
                }
                Err(error) => {
                    shared.metrics.failed("prefetch");
                    errors.push(record::collector_error("prefetch", &error.to_string()));
                }
            }
            if errors.is_empty() {
                shared.metrics.visited(started.elapsed());
            }
        }
        self.report(&cluster, maintenance, &found, errors).await;
    }

    /// The connection to the cluster; none if it has no usable kubeconfig. While the store is away it is that of the last visit.
    async fn link(&mut self) -> Option<Link> {
        let timing = &self.shared.config.timing;
        let opened = tokio::time::timeout(timing.request, self.shared.connections.link(self.uuid)).await;
        match opened {
            Ok(Ok(link)) => {
                self.link = Some(link.clone());
                Some(link)
            }
            Ok(Err(error)) => match error.kind() {
                // Without a kubeconfig, or with one that is not accepted, there is nothing to visit.
                StepErrorKind::Precondition | StepErrorKind::Terminal => {
                    self.link = None;
                    tracing::debug!(cluster.id = %self.uuid, "Cluster is not visited: {}", error.full_message());
                    None
                }
                StepErrorKind::Transient | StepErrorKind::Unreachable => self.link.clone(),
            },
            Err(_) => self.link.clone(),
        }
    }

    /// Runs the collectors that are due, some at a time, until the deadline. Those that do not end within the grace after it are
    /// aborted.
    async fn collect(
        &mut self,
        visit: &Visit,
        deadline: Instant,
        over: &CancellationToken,
    ) -> Vec<CollectorError> {
        let shared = self.shared.clone();
        let timing = &shared.config.timing;
        let is_openshift = visit.cluster_version.is_some();
        let slots = Semaphore::new(shared.config.collectors);
        let mut running: FuturesUnordered<_> = COLLECTORS
            .iter()
            .filter(|it| it.is_for(is_openshift) && self.is_due(it))
            .map(|collector| run(*collector, visit, &slots, over))
            .collect();
        let mut errors = Vec::new();
        let mut until = deadline;
        loop {
            match timeout_at(until, running.next()).await {
                Ok(Some(outcome)) => errors.extend(self.collected(outcome, visit)),
                Ok(None) => return errors,
                Err(_) if !over.is_cancelled() => {
                    shared.metrics.timed_out();
                    over.cancel();
                    until = deadline + timing.grace;
                }
                Err(_) => {
                    shared.metrics.forced();
                    return errors;
                }
            }
        }
    }

    /// Whether a collector is due in this visit. One that failed is due in the next.
    fn is_due(&self, collector: &Collector) -> bool {
        self.succeeded
            .get(collector.name)
            .is_none_or(|(visit, _)| self.visits.wrapping_sub(*visit) >= collector.every)
    }

    /// Takes over what a collector found; returns its error.
    fn collected(&mut self, (collector, took, outcome): Outcome, visit: &Visit) -> Option<CollectorError> {
        let metrics = &self.shared.metrics;
        let name = collector.name;
        match outcome {
            Ok(findings) => {
                let Findings { mut series, facts, causes, unreadable } = findings;
                series.push(Series::new(DURATION, took.as_secs_f64()).label("collector", name));
                let interval = self.interval() * collector.every;
                let above = metrics.series.replace(self.uuid, &self.labels, name, series, interval);
                metrics.dropped(name, above + unreadable);
                self.kept.insert(name, LastFindings { facts, causes });
                self.succeeded.insert(name, (self.visits, visit.now));
                None
            }
            Err(error) => {
                let message = match error {
                    CollectError::Failed(FetchError::Over) => {
                        metrics.unstarted(name);
                        FetchError::Over.to_string()
                    }
                    CollectError::Failed(error) => {
                        metrics.failed(name);
                        error.to_string()
                    }
                    CollectError::Panicked => {
                        metrics.panicked(name);
                        "it panicked".to_owned()
                    }
                };
                tracing::debug!(cluster.id = %self.uuid, "Collector {name} failed: {message}");
                // What it found before is not known any more after as long as its series would last.
                let last = self.succeeded.get(name).map(|(visit, _)| self.visits.wrapping_sub(*visit));
                if last.is_none_or(|age| age >= collector.every * STALE_INTERVALS) {
                    self.kept.remove(name);
                }
                Some(record::collector_error(name, &message))
            }
        }
    }

    /// Updates the series of the visit itself, and hands the record to the writer.
    async fn report(
        &mut self,
        cluster: &MonitoredCluster,
        maintenance: Option<Uuid>,
        found: &Probe,
        errors: Vec<CollectorError>,
    ) {
        let now = self.shared.clock.now();
        let observation = Observation {
            cluster: self.uuid,
            at: now,
            observer: self.shared.observer,
            maintenance,
            probe: found,
            kept: &self.kept,
            errors,
        };
        let sample = Arc::new(record::sample(self.last.as_deref(), observation));
        if self.last.as_ref().is_some_and(|last| record::is_same(last, &sample)) {
            self.shared.outgoing.confirmed(sample.clone());
        } else {
            self.shared.outgoing.changed(sample.clone());
        }
        self.last = Some(sample);
        self.measure(now).await;
        let series = self.own_series(cluster, maintenance, found);
        // Until the next visit, which may be stretched.
        let metrics = &self.shared.metrics;
        metrics.series.replace(self.uuid, &self.labels, OWN, series, self.interval());
    }

    fn own_series(
        &self,
        cluster: &MonitoredCluster,
        maintenance: Option<Uuid>,
        found: &Probe,
    ) -> Vec<Series> {
        let failure = found.failure.as_ref().map(|(failure, _)| *failure);
        let state = |state: Option<_>| state.map_or(String::new(), |it| format!("{it:?}"));
        let mut series = vec![
            Series::new(HEALTHZ, 1.0).label("code", found.code.to_string()),
            Series::new(REACHABILITY, 1.0).label("result", record::reachability_label(failure)),
            Series::new(PROVISIONING, 1.0)
                .label("provisioningState", state(Some(cluster.state)))
                .label("failedProvisioningState", state(cluster.failed_state)),
            Series::new(MAINTENANCE, 1.0)
                .label("state", if maintenance.is_some() { "planned" } else { "none" }),
        ];
        series.extend(found.ping.map(|code| Series::new(PING, 1.0).label("code", code.to_string())));
        let checks = found.failed_checks.iter().cloned();
        series.extend(checks.map(|check| Series::new(READYZ, 1.0).label("check", check)));
        if let Some(facts) = &cluster.provisioned {
            let kind = if facts.has_managed_identity { "managedIdentity" } else { "servicePrincipal" };
            series.push(Series::new(AUTHENTICATION, 1.0).label("type", kind));
        }
        series.extend(self.measured.map(|(_, share)| Series::new(AVAILABILITY, share)));
        series.extend(self.succeeded.iter().map(|(name, (_, at))| {
            Series::new(LAST_SUCCESS, at.as_second() as f64).label("collector", Cow::Borrowed(*name))
        }));
        series
    }

    /// Measures the availability, once an hour.
    async fn measure(&mut self, now: Timestamp) {
        let hour = now.as_second().div_euclid(3600);
        if self.measured.is_some_and(|(measured, _)| measured == hour) {
            return;
        }
        let from = now.saturating_sub(SignedDuration::from_hours(24 * AVAILABILITY_DAYS)).unwrap_or(now);
        let timing = &self.shared.config.timing;
        let read = self.shared.reader.health_events(vec![self.uuid], from, EVENTS_MAX);
        let Ok(Ok(events)) = tokio::time::timeout(timing.request, read).await else { return };
        let present = self.last.as_ref().is_none_or(|it| it.reachable);
        let share = availability(&events, from, now).unwrap_or(if present { 1.0 } else { 0.0 });
        self.measured = Some((hour, share));
    }
}

/// Runs one collector when a slot is free, unless the time is over before.
async fn run(collector: Collector, visit: &Visit, slots: &Semaphore, over: &CancellationToken) -> Outcome {
    let Some(Ok(_slot)) = over.run_until_cancelled(slots.acquire()).await else {
        return (collector, Duration::ZERO, Err(CollectError::Failed(FetchError::Over)));
    };
    let started = Instant::now();
    let outcome = match AssertUnwindSafe((collector.run)(visit)).catch_unwind().await {
        Ok(result) => result.map_err(CollectError::Failed),
        Err(_) => Err(CollectError::Panicked),
    };
    (collector, started.elapsed(), outcome)
}

/// The labels of all series of a cluster.
fn labels(cluster: &MonitoredCluster, maintenance: Option<Uuid>) -> Arc<ClusterLabels> {
    Arc::new(ClusterLabels(vec![
        ("resourceId", cluster.id.clone()),
        ("subscriptionId", cluster.subscription.clone()),
        ("resourceGroup", cluster.resource_group.clone()),
        ("resourceName", cluster.name.clone()),
        ("maintenance", maintenance.map_or_else(|| "none".to_owned(), |it| it.to_string())),
    ]))
}

/// A random part of a duration.
fn random_part(whole: Duration) -> Duration {
    let random = Uuid::new_v4().as_u128() as u32;
    whole.mul_f64(f64::from(random) / f64::from(u32::MAX))
}
