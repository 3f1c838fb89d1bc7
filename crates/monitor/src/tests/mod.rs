//! The whole monitor on simulated clusters and both engines of the store.

#![expect(clippy::disallowed_methods, reason = "these tests wait for what they spawn, or abort it")]

mod outage;
mod real;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use api::doc::{Cluster, ProvisioningState, ReachabilityFailure};
use api::duration::TimeSpan;
use api::health::{HealthFacet, HealthSample, HealthStatus};
use api::secret::Secret;
use kubelink::AllowedRisks;
use kubesim::faults::Fault;
use kubesim::{ClusterOptions, SimulatedCluster};
use store::{AuditContext, Keyring, Location, Options, Store};
use testkit::{postgres, prerequisites};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::{Config, Timing};
use crate::metrics::Metrics;
use crate::service::{Deps, Status, run};

const DEADLINE: Duration = Duration::from_secs(60);

/// Intervals as short as a test can bear; the ratios are those of the real ones.
fn config() -> Config {
    let timing = Timing {
        refresh: Duration::from_millis(200),
        lease: Duration::from_millis(1500),
        visit: Duration::from_secs(3),
        grace: Duration::from_millis(500),
        stretched: Duration::from_secs(2),
        failures: 3,
        flush: Duration::from_millis(50),
        connect: Duration::from_secs(1),
        request: Duration::from_secs(2),
        poll: Duration::from_millis(200),
    };
    Config { interval: TimeSpan::new(Duration::from_millis(500)), collectors: 5, timing }
}

/// One running monitor.
struct Monitor {
    metrics: Metrics,
    status: Status,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), crate::Error>>,
}

impl Monitor {
    fn start(store: &Store) -> Monitor {
        Monitor::start_with(store, config())
    }

    fn start_with(store: &Store, config: Config) -> Monitor {
        let (metrics, status, shutdown) = (Metrics::default(), Status::default(), CancellationToken::new());
        let deps = Deps {
            reader: store.reader(),
            health: store.health_writer(),
            registry: store.worker_registry("monitor"),
            allow_kubeconfig: AllowedRisks::default(),
            clock: Arc::new(SystemClock),
            metrics: metrics.clone(),
            config,
            status: status.clone(),
        };
        let task = tokio::spawn(run(deps, shutdown.clone()));
        Monitor { metrics, status, shutdown, task }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// Ends it as a crash does: nothing is released.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    fn lines(&self, start: &str) -> Vec<String> {
        self.metrics.series.lines().into_iter().filter(|it| it.starts_with(start)).collect()
    }
}

struct Fixture {
    store: Store,
    _directory: tempfile::TempDir,
}

async fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let location = Location::Sqlite(directory.path().join("store.db"));
    let options = Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
    Fixture { store: Store::open(options).await.unwrap(), _directory: directory }
}

fn context() -> AuditContext {
    AuditContext::service("test")
}

async fn import(store: &Store, name: &str, kubeconfig: &str) -> Uuid {
    let id = format!("/subscriptions/s/resourcegroups/imported/providers/p/clusters/{name}");
    let document = Cluster {
        imported: true,
        ..Cluster::new(id, ProvisioningState::Succeeded, jiff::Timestamp::UNIX_EPOCH)
    };
    let secret = Secret::new(kubeconfig.as_bytes().to_vec());
    store.clusters().import(&document, &secret, &context()).await.unwrap().0
}

async fn simulated(name: &str) -> SimulatedCluster {
    SimulatedCluster::start(name, ClusterOptions::default()).await.unwrap()
}

async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn health(store: &Store, cluster: Uuid) -> Option<HealthSample> {
    store.health(vec![cluster]).await.unwrap().pop()
}

async fn status_is(store: &Store, cluster: Uuid, status: HealthStatus) -> HealthSample {
    eventually(&format!("it is {status}"), async || {
        health(store, cluster).await.filter(|it| it.status() == status)
    })
    .await
}

fn failure(sample: &HealthSample) -> Option<ReachabilityFailure> {
    sample.details.observed.as_ref().and_then(|it| it.failure)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_visited_and_its_health_recorded_until_it_is_deleted() {
    let Fixture { store, _directory } = &fixture().await;
    let sim = simulated("davit").await;
    let cluster = import(store, "davit", &sim.kubeconfig()).await;
    let monitor = Monitor::start(store);
    let sample = status_is(store, cluster, HealthStatus::Healthy).await;
    assert!(sample.details.version.is_some());
    let observed = sample.details.observed.unwrap();
    assert!(observed.certificate_days.is_some() && observed.collector_errors.is_empty(), "{observed:?}");
    assert_eq!(monitor.lines("apiserver_healthz_code"), ["apiserver_healthz_code{code=\"200\"} 1"]);
    assert_eq!(monitor.lines("apiserver_reachability"), ["apiserver_reachability{result=\"ok\"} 1"]);
    assert_eq!(monitor.status.obstacle(), None);

    // A cluster that does not change is confirmed: newer, and no further transition.
    let first = sample.at;
    eventually("it is confirmed", async || health(store, cluster).await.filter(|it| it.at > first)).await;
    let events = store.health_events(vec![cluster], jiff::Timestamp::UNIX_EPOCH, 100).await.unwrap();
    let statuses = events.iter().filter(|it| it.facet == HealthFacet::Status.as_str()).count();
    assert_eq!(statuses, 1, "{events:?}");

    // A document that is deleted right after it was created stops its worker too.
    let read = store.documents::<Cluster>().get(cluster).await.unwrap().unwrap();
    store.clusters().forget(&read, &context()).await.unwrap();
    eventually("its series are gone", async || monitor.metrics.series.lines().is_empty().then_some(())).await;
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_cluster_is_classified_and_the_others_are_visited_on_time() {
    let Fixture { store, _directory } = &fixture().await;
    let (well, tarpit, gone) = (simulated("well").await, simulated("tarpit").await, simulated("gone").await);
    let good = import(store, "well", &well.kubeconfig()).await;
    let slow = import(store, "tarpit", &tarpit.kubeconfig()).await;
    let dead = import(store, "gone", &gone.kubeconfig()).await;
    let unknown = gone.kubeconfig().replace("https://127.0.0.1", "https://no-such-host.invalid");
    let nameless = import(store, "nameless", &unknown).await;
    let untrusted = import(store, "untrusted", &well.kubeconfig().replace(&well.url(), &tarpit.url())).await;
    tarpit.faults().on_path(Fault::Latency(Duration::from_secs(60)), "/healthz", None);
    gone.stop().await;
    let monitor = Monitor::start(store);
    for (cluster, expect) in [
        (slow, ReachabilityFailure::Timeout),
        (dead, ReachabilityFailure::Connect),
        (nameless, ReachabilityFailure::Dns),
        (untrusted, ReachabilityFailure::Tls),
    ] {
        let sample = status_is(store, cluster, HealthStatus::Unreachable).await;
        assert_eq!(failure(&sample), Some(expect), "{sample:?}");
    }
    assert!(monitor.lines("apiserver_healthz_ping_code").iter().all(|it| it.contains("code=\"0\"")));
    assert_eq!(monitor.lines("apiserver_healthz_code").len(), 5);
    // The healthy one is visited meanwhile, every half second.
    let sample = status_is(store, good, HealthStatus::Healthy).await;
    let start = Instant::now();
    eventually("three more visits", async || {
        health(store, good).await.filter(|it| it.at.duration_since(sample.at).as_millis() >= 1500)
    })
    .await;
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());

    // A cluster that comes back is seen at the next visit.
    tarpit.faults().clear();
    let sample = status_is(store, slow, HealthStatus::Healthy).await;
    assert_eq!(sample.details.message, None);
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_check_behind_a_server_that_answers_is_degraded_and_not_unreachable() {
    let Fixture { store, _directory } = &fixture().await;
    let sim = simulated("davit").await;
    let cluster = import(store, "davit", &sim.kubeconfig()).await;
    let monitor = Monitor::start(store);
    status_is(store, cluster, HealthStatus::Healthy).await;
    // Each cycle asks /healthz first; the path of the ping contains it and must answer.
    let faults = tokio::spawn({
        let sim = Arc::new(sim);
        async move {
            loop {
                sim.faults().clear();
                sim.faults().on_path(Fault::InternalError, "/healthz", Some(1));
                sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let sample = status_is(store, cluster, HealthStatus::Degraded).await;
    let causes = sample.details.observed.unwrap().causes;
    assert!(causes[0].message.starts_with("/healthz returned 500"), "{causes:?}");
    faults.abort();
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_kubeconfig_is_used_at_the_next_visit() {
    let Fixture { store, _directory } = &fixture().await;
    let (one, other) = (simulated("one").await, simulated("other").await);
    let cluster = import(store, "davit", &one.kubeconfig()).await;
    let monitor = Monitor::start(store);
    status_is(store, cluster, HealthStatus::Healthy).await;
    one.stop().await;
    status_is(store, cluster, HealthStatus::Unreachable).await;
    assert_eq!(import(store, "davit", &other.kubeconfig()).await, cluster);
    status_is(store, cluster, HealthStatus::Healthy).await;
    monitor.stop().await;
}

/// Two or three monitors on one PostgreSQL: one is killed, and its clusters are served again within lease and refresh.
#[tokio::test(flavor = "multi_thread")]
async fn the_clusters_of_a_killed_monitor_are_served_again_within_its_lease_and_a_refresh() {
    let Some(server) = postgres::shared() else {
        return prerequisites::skip(prerequisites::POSTGRESQL, "no PostgreSQL server was found");
    };
    let database = server.database().unwrap();
    let location: Location = database.url().parse().unwrap();
    let options = Options::new(location, Keyring::ephemeral().unwrap(), Arc::new(SystemClock));
    let store = Store::open(options.clone()).await.unwrap();
    let sim = simulated("fleet").await;
    let mut clusters = Vec::new();
    for number in 0..24 {
        clusters.push(import(&store, &format!("c{number}"), &sim.kubeconfig()).await);
    }
    let mut monitors = Vec::new();
    for _ in 0..3 {
        monitors.push(Monitor::start(&Store::open(options.clone()).await.unwrap()));
    }
    let observers = async || {
        let samples = store.health(clusters.clone()).await.unwrap();
        let observers: Vec<Uuid> =
            samples.iter().filter_map(|it| it.details.observed.as_ref()?.observer).collect();
        (observers.len() == clusters.len()).then_some(observers)
    };
    let spread = eventually("all clusters are observed, by three monitors", async || {
        let observers = observers().await?;
        let distinct: std::collections::BTreeSet<Uuid> = observers.iter().copied().collect();
        (distinct.len() == 3).then_some(observers)
    })
    .await;
    let served = |monitor: &Monitor| monitor.lines("apiserver_healthz_code").len();
    eventually("every cluster has one owner", async || {
        (monitors.iter().map(served).sum::<usize>() == clusters.len()).then_some(())
    })
    .await;
    assert!(spread.len() == clusters.len());

    let timing = config().timing;
    monitors.pop().unwrap().kill().await;
    let killed = Instant::now();
    eventually("every cluster is served again", async || {
        (monitors.iter().map(served).sum::<usize>() == clusters.len()).then_some(())
    })
    .await;
    // Lease and refresh, the refresh of the others, one interval to visit, and what a busy machine takes.
    let limit = timing.lease + timing.refresh * 2 + config().interval.duration() + Duration::from_secs(5);
    assert!(killed.elapsed() < limit, "{:?}", killed.elapsed());
    // One that is stopped leaves at once.
    monitors.pop().unwrap().stop().await;
    eventually("the last one has all", async || (served(&monitors[0]) == clusters.len()).then_some(())).await;
    monitors.pop().unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_stalls_ends_with_the_visit_and_the_next_visit_is_on_time() {
    let Fixture { store, _directory } = &fixture().await;
    let sim = simulated("davit").await;
    let cluster = import(store, "davit", &sim.kubeconfig()).await;
    sim.faults().on_path(Fault::Latency(Duration::from_secs(60)), "/nodes", None);
    // A response may take longer than a whole visit.
    let timing =
        Timing { request: Duration::from_secs(30), visit: Duration::from_secs(1), ..config().timing };
    let monitor = Monitor::start_with(store, Config { timing, ..config() });
    let stalled = eventually("the collector of nodes is cut", async || {
        let observed = health(store, cluster).await?.details.observed?;
        let is_cut = observed.collector_errors.iter().any(|it| it.collector == "nodes");
        is_cut.then_some(observed.collector_errors)
    })
    .await;
    assert!(stalled.iter().all(|it| it.message == "the time of the visit was over"), "{stalled:?}");
    // The others have not waited for it.
    assert_eq!(monitor.lines("pod_").len(), 0);
    assert_eq!(monitor.lines("drain_risk_").len(), 2);
    let mut registry = prometheus_client::registry::Registry::default();
    monitor.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(!text.contains("main_timedout_total 0") && text.contains("main_forcedcleanup_total 0"), "{text}");

    sim.faults().clear();
    let sample = status_is(store, cluster, HealthStatus::Healthy).await;
    eventually("everything is observed", async || {
        let observed = health(store, cluster).await?.details.observed?;
        (observed.collector_errors.is_empty() && observed.certificate_days.is_some()).then_some(())
    })
    .await;
    assert!(sample.reachable);
    monitor.stop().await;
}
