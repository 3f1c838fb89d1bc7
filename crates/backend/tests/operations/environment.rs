//! Environment of a test: a store, a simulated cloud in this process, and backends.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::clock::{Clock, SharedClock, SystemClock};
use api::doc::{Cluster, Operation, ProvisioningState, Verb};
use api::install::InstallStage;
use api::work::WorkState;
use backend::{Config, Deps, Metrics};
use cloud::{Infrastructure as _, ResourceId};
use cloudsim::{CloudFault, FaultRule, Faults, ImageRegistry, SimClient};
use jiff::{SignedDuration, Timestamp};
use kubelink::LinksLimits;
use kubelink::kubeconfig::AllowedRisks;
use steps::ClusterConnections;
use steps::lifecycle::{ClusterRecords, Lifecycle};
use steps::worker::Timing;
use store::{Keyring, Location, Options, Store, VersionedDocument};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::customer;
use crate::service::{quick_timing, service};

/// The default subscription.
pub(crate) const SUBSCRIPTION: &str = "11111111-1111-1111-1111-111111111111";
/// Timeout of waits, also on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The system's clock with an offset that tests advance, so that a delay of half an hour elapses at once.
#[derive(Debug, Default)]
pub(crate) struct AdvancingClock(Mutex<SignedDuration>);

impl AdvancingClock {
    pub(crate) fn advance(&self, span: SignedDuration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += span;
    }
}

impl Clock for AdvancingClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().saturating_add(*self.0.lock().unwrap_or_else(PoisonError::into_inner)).unwrap()
    }
}

pub(crate) struct TestEnvironment {
    directory: Option<tempfile::TempDir>,
    pub(crate) store: Store,
    pub(crate) cloud: SimClient,
    /// The fault rules of the cloud.
    pub(crate) faults: Faults,
    /// The registry, as a cluster sees it.
    pub(crate) registry: ImageRegistry,
    /// The file of the cloud's endpoints, for processes.
    pub(crate) cloud_file: PathBuf,
    pub(crate) clock: SharedClock,
    ends: CancellationToken,
    served: Option<JoinHandle<()>>,
}

impl Drop for TestEnvironment {
    fn drop(&mut self) {
        self.ends.cancel();
        if let Some(served) = self.served.take() {
            served.abort();
        }
    }
}

/// The simulated cloud, served until the environment is dropped.
async fn cloud(ends: &CancellationToken) -> (SimClient, Faults, ImageRegistry, PathBuf, JoinHandle<()>) {
    let service = cloudsim::Service::open(cloudsim::Options::default()).await.unwrap();
    let (client, faults, file) = (service.client().unwrap(), service.faults(), service.endpoints_file());
    let registry = service.registry();
    let shutdown = ends.clone();
    #[expect(clippy::disallowed_methods, reason = "the handle is kept, and aborted with the environment")]
    let served = tokio::spawn(async move { service.serve(shutdown).await.unwrap() });
    (client, faults, registry, file, served)
}

impl TestEnvironment {
    /// On SQLite.
    pub(crate) async fn new() -> TestEnvironment {
        TestEnvironment::with_clock(Arc::new(SystemClock)).await
    }

    /// On SQLite, with this clock. The cloud uses the system's clock.
    pub(crate) async fn with_clock(clock: SharedClock) -> TestEnvironment {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(directory.path().join("store.db"));
        let options = Options::new(location, Keyring::ephemeral().unwrap(), clock.clone());
        TestEnvironment::with_store(Store::open(options).await.unwrap(), Some(directory), clock).await
    }

    pub(crate) async fn with_store(
        store: Store,
        directory: Option<tempfile::TempDir>,
        clock: SharedClock,
    ) -> TestEnvironment {
        let ends = CancellationToken::new();
        let (cloud, faults, registry, cloud_file, served) = cloud(&ends).await;
        customer::write_role_sets(&store).await.unwrap();
        let served = Some(served);
        TestEnvironment { directory, store, cloud, faults, registry, cloud_file, clock, ends, served }
    }

    /// The content of all files of the store on SQLite.
    pub(crate) fn stored_bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.directory.as_ref().unwrap().path()).unwrap();
        files.flat_map(|it| std::fs::read(it.unwrap().path()).unwrap()).collect()
    }

    pub(crate) fn connections(&self) -> Arc<ClusterConnections> {
        let limits = LinksLimits::default();
        Arc::new(ClusterConnections::new(
            self.store.reader(),
            limits,
            AllowedRisks::default(),
            self.clock.clone(),
        ))
    }

    pub(crate) fn life(&self, cluster: Uuid) -> Lifecycle {
        Lifecycle {
            cloud: self.cloud.cloud(),
            records: ClusterRecords { store: self.store.clone(), cluster, service: "test" },
            connections: self.connections(),
            clock: self.clock.clone(),
            service: Arc::new(service()),
        }
    }

    pub(crate) fn deps(&self) -> Deps {
        let lease = Duration::from_secs(5);
        let timing = Timing { lease, renewal: lease / 5, self_stop: lease * 2 / 3, take_over: lease / 10 };
        Deps {
            store: self.store.clone(),
            cloud: self.cloud.cloud(),
            installer: Arc::new(self.cloud.installer()),
            service: Arc::new(service()),
            connections: self.connections(),
            clock: self.clock.clone(),
            metrics: Metrics::default(),
            config: Config { slots: 20, timing, operation_timing: quick_timing() },
            owner: Uuid::new_v4(),
            release: "test".to_owned(),
            seed: 1,
        }
    }

    /// A backend in this process, until the token is cancelled.
    pub(crate) fn backend(&self) -> (CancellationToken, JoinHandle<()>) {
        self.backend_with(self.deps())
    }

    /// A backend with these dependencies.
    pub(crate) fn backend_with(&self, deps: Deps) -> (CancellationToken, JoinHandle<()>) {
        let shutdown = self.ends.child_token();
        let ends = shutdown.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "the handle is given to the test, and ends with its runtime"
        )]
        let running = tokio::spawn(async move { backend::run(deps, ends).await.unwrap() });
        (shutdown, running)
    }

    /// Runs backends that try each step once until the work has had this number of attempts or is finished, and advances the clock
    /// over every retry delay. Returns the delay after each attempt.
    pub(crate) async fn run_attempts(
        &self,
        work: Uuid,
        attempts: i32,
        clock: &AdvancingClock,
    ) -> Vec<SignedDuration> {
        let mut delays = Vec::new();
        let before = self.store.work(work).await.unwrap().unwrap().attempt;
        loop {
            let mut deps = self.deps();
            deps.config.operation_timing.tries = 1;
            let (stop, backend) = self.backend_with(deps);
            let so_far = before + i32::try_from(delays.len()).unwrap();
            let seen = eventually("another attempt was made", async || {
                let seen = self.store.work(work).await.ok()??;
                let is_waiting = seen.state == WorkState::Pending && seen.attempt > so_far;
                (is_waiting || seen.state.is_terminal()).then_some(seen)
            })
            .await;
            stop.cancel();
            backend.await.unwrap();
            if seen.state.is_terminal() {
                return delays;
            }
            let delay = seen.due_at.duration_since(self.clock.now());
            delays.push(delay);
            clock.advance(delay);
            if seen.attempt >= attempts {
                return delays;
            }
        }
    }

    /// Requests a cluster, changed by `edit` before it is written.
    pub(crate) async fn create_as(
        &self,
        subscription: &str,
        name: &str,
        edit: impl FnOnce(&mut Cluster),
    ) -> (Uuid, Uuid) {
        let (mut cluster, secrets) =
            customer::prepare(&self.cloud, subscription, name, self.clock.now()).await.unwrap();
        edit(&mut cluster);
        customer::create(&self.store, &cluster, &secrets, &*self.clock).await.unwrap()
    }

    /// Makes the installation of the cluster of that name fail at a stage.
    pub(crate) async fn fail_installation(&self, name: &str, stage: InstallStage) {
        // The space ends the name: the subject of the call is the name and the id of the cluster.
        let rule = FaultRule::new(CloudFault::InstallFails { stage }).about(&format!("{name} "));
        self.cloud.inject(rule).await.unwrap();
    }

    pub(crate) async fn create(&self, name: &str) -> (Uuid, Uuid) {
        self.create_as(SUBSCRIPTION, name, |_| ()).await
    }

    /// Requests a cluster with managed identities.
    pub(crate) async fn create_workload(&self, name: &str) -> (Uuid, Uuid) {
        let now = self.clock.now();
        let (cluster, secrets) =
            customer::prepare_workload(&self.cloud, SUBSCRIPTION, name, now).await.unwrap();
        customer::create(&self.store, &cluster, &secrets, &*self.clock).await.unwrap()
    }

    pub(crate) async fn cluster(&self, id: Uuid) -> Option<VersionedDocument<Cluster>> {
        self.store.clusters().get(id).await.unwrap()
    }

    pub(crate) async fn change(&self, id: Uuid, verb: Verb, edit: impl FnOnce(&mut Cluster)) -> Uuid {
        let read = self.cluster(id).await.unwrap();
        customer::change(&self.store, &read, verb, &*self.clock, edit).await.unwrap()
    }

    /// Waits until an operation is finished.
    pub(crate) async fn finished(&self, operation: Uuid) -> Operation {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            if let Ok(Some(found)) = self.store.operations().get(operation).await
                && found.document.end_time.is_some()
            {
                return found.document;
            }
            if tokio::time::Instant::now() > deadline {
                let work = self.store.work(operation).await.unwrap();
                let entries = self.store.entries(operation, None, 1000).await.unwrap();
                let messages: Vec<_> = entries.iter().filter_map(|(_, it)| it.message.as_ref()).collect();
                panic!("operation {operation} does not finish: {messages:#?} {work:?}");
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    pub(crate) async fn succeeds(&self, operation: Uuid) {
        let finished = self.finished(operation).await;
        let work = self.store.work(operation).await.unwrap();
        assert_eq!(
            finished.status,
            ProvisioningState::Succeeded,
            "{:?}: {:?}",
            finished.error,
            work.and_then(|it| it.result)
        );
    }

    /// Resources of a cluster that remain in the cloud: in its own group, in the service's, in vault and registry.
    pub(crate) async fn remaining_resources(&self, name: &str, id: Uuid, subscription: &str) -> Vec<String> {
        let mut left = Vec::new();
        let managed = ResourceId::group(subscription, &format!("aro-{name}"));
        left.extend(self.cloud.azure().get(&managed).await.unwrap().map(|it| it.id.to_string()));
        let service = service();
        let holds = |it: &str| it.contains(&id.to_string()) || it.ends_with(&format!(".{name}"));
        let own = self.cloud.azure().list(&service.group_id()).await.unwrap_or_default();
        left.extend(own.into_iter().map(|it| it.id.to_string()).filter(|it| holds(it)));
        let certificates = self.cloud.azure().certificates().await.unwrap();
        left.extend(certificates.into_iter().map(|it| it.name).filter(|it| holds(it)));
        let tokens = self.cloud.azure().tokens().await.unwrap();
        left.extend(tokens.into_iter().map(|it| it.name).filter(|it| holds(it)));
        let installations = self.cloud.installations().await.unwrap();
        left.extend(installations.into_iter().filter(|it| it.cluster == id).map(|it| it.sim));
        let issuers = self.cloud.cloud().issuers.unwrap();
        left.extend(
            issuers.is_published(&id.to_string()).await.unwrap().then(|| issuers.issuer(&id.to_string())),
        );
        left
    }
}

/// Polls until `poll` returns a value; panics with the description after the timeout.
pub(crate) async fn eventually<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let waited = tokio::time::timeout(TIMEOUT, async {
        loop {
            if let Some(seen) = poll().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("timed out waiting until {what}"))
}
