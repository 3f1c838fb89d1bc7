//! What a test stands on: a store, a simulated cloud in this process, and backends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::clock::{Clock, SharedClock, SystemClock};
use api::doc::{Cluster, Operation, ProvisioningState, Verb};
use api::install::InstallStage;
use api::work::WorkState;
use backend::{Config, Deps, Metrics};
use cloud::{Infrastructure as _, ResourceId};
use cloudsim::{CloudFault, FaultRule, SimClient};
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

/// The subscription of those who do not say otherwise.
pub(crate) const SUBSCRIPTION: &str = "11111111-1111-1111-1111-111111111111";
/// Nothing in these tests takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(90);

/// A clock that goes as this machine's does, and leaps ahead when it is told to: a rest of half an hour is over at once.
#[derive(Debug, Default)]
pub(crate) struct LeapingClock(Mutex<SignedDuration>);

impl LeapingClock {
    pub(crate) fn leap(&self, span: SignedDuration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += span;
    }
}

impl Clock for LeapingClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().saturating_add(*self.0.lock().unwrap_or_else(PoisonError::into_inner)).unwrap()
    }
}

pub(crate) struct Site {
    _directory: Option<tempfile::TempDir>,
    pub(crate) store: Store,
    pub(crate) cloud: SimClient,
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) clock: SharedClock,
    ends: CancellationToken,
    served: Option<JoinHandle<()>>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.ends.cancel();
        if let Some(served) = self.served.take() {
            served.abort();
        }
    }
}

/// The simulated cloud, served until the site is gone.
async fn cloud(ends: &CancellationToken) -> (SimClient, String, String, JoinHandle<()>) {
    let service = cloudsim::Service::open(cloudsim::Options::default()).await.unwrap();
    let (client, url) = (service.client().unwrap(), service.url());
    let token = service.token().expose().clone();
    let shutdown = ends.clone();
    #[expect(
        clippy::disallowed_methods,
        reason = "the handle is kept, and its end is forced with that of the site"
    )]
    let served = tokio::spawn(async move { service.serve(shutdown).await.unwrap() });
    (client, url, token, served)
}

impl Site {
    /// On SQLite.
    pub(crate) async fn new() -> Site {
        Site::by(Arc::new(SystemClock)).await
    }

    /// On SQLite, by that clock. The cloud goes by this machine's.
    pub(crate) async fn by(clock: SharedClock) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(directory.path().join("store.db"));
        let options = Options::new(location, Keyring::ephemeral().unwrap(), clock.clone());
        Site::on(Store::open(options).await.unwrap(), Some(directory), clock).await
    }

    pub(crate) async fn on(store: Store, directory: Option<tempfile::TempDir>, clock: SharedClock) -> Site {
        let ends = CancellationToken::new();
        let (cloud, url, token, served) = cloud(&ends).await;
        customer::offer_roles(&store).await.unwrap();
        Site { _directory: directory, store, cloud, url, token, clock, ends, served: Some(served) }
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
            records: ClusterRecords { store: self.store.clone(), cluster, service: "trial" },
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
            release: "trial".to_owned(),
            seed: 1,
        }
    }

    /// A backend in this process, until the token is cancelled.
    pub(crate) fn backend(&self) -> (CancellationToken, JoinHandle<()>) {
        self.backend_of(self.deps())
    }

    /// The same, made of these.
    pub(crate) fn backend_of(&self, deps: Deps) -> (CancellationToken, JoinHandle<()>) {
        let shutdown = self.ends.child_token();
        let ends = shutdown.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "the handle is given to the test, and ends with its runtime"
        )]
        let running = tokio::spawn(async move { backend::run(deps, ends).await.unwrap() });
        (shutdown, running)
    }

    /// Lets backends that try each step once work until a piece of work has been attempted so often, leaping over every rest; how
    /// long it rested after each further attempt. Sooner when it came to its end before.
    pub(crate) async fn attempted(
        &self,
        work: Uuid,
        attempts: i32,
        clock: &LeapingClock,
    ) -> Vec<SignedDuration> {
        let mut rests = Vec::new();
        let before = self.store.work(work).await.unwrap().unwrap().attempt;
        loop {
            let mut deps = self.deps();
            deps.config.operation_timing.tries = 1;
            let (stop, backend) = self.backend_of(deps);
            let so_far = before + i32::try_from(rests.len()).unwrap();
            let seen = eventually("another attempt was made", async || {
                let seen = self.store.work(work).await.ok()??;
                let rests = seen.state == WorkState::Pending && seen.attempt > so_far;
                (rests || seen.state.is_terminal()).then_some(seen)
            })
            .await;
            stop.cancel();
            backend.await.unwrap();
            if seen.state.is_terminal() {
                return rests;
            }
            let rest = seen.due_at.duration_since(self.clock.now());
            rests.push(rest);
            clock.leap(rest);
            if seen.attempt >= attempts {
                return rests;
            }
        }
    }

    /// Asks for a cluster, changed by `edit` before it is written.
    pub(crate) async fn create_as(
        &self,
        subscription: &str,
        name: &str,
        edit: impl FnOnce(&mut Cluster),
    ) -> (Uuid, Uuid) {
        let (mut cluster, secrets) =
            customer::bring(&self.cloud, subscription, name, self.clock.now()).await.unwrap();
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

    /// Asks for a cluster that works as managed identities.
    pub(crate) async fn create_workload(&self, name: &str) -> (Uuid, Uuid) {
        let now = self.clock.now();
        let (cluster, secrets) =
            customer::bring_workload(&self.cloud, SUBSCRIPTION, name, now).await.unwrap();
        customer::create(&self.store, &cluster, &secrets, &*self.clock).await.unwrap()
    }

    pub(crate) async fn cluster(&self, id: Uuid) -> Option<VersionedDocument<Cluster>> {
        self.store.clusters().get(id).await.unwrap()
    }

    pub(crate) async fn change(&self, id: Uuid, verb: Verb, edit: impl FnOnce(&mut Cluster)) -> Uuid {
        let read = self.cluster(id).await.unwrap();
        customer::change(&self.store, &read, verb, &*self.clock, edit).await.unwrap()
    }

    /// Waits until an operation is at its end; as it is then.
    pub(crate) async fn ended(&self, operation: Uuid) -> Operation {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Ok(Some(found)) = self.store.operations().get(operation).await
                && found.document.end_time.is_some()
            {
                return found.document;
            }
            if tokio::time::Instant::now() > deadline {
                let work = self.store.work(operation).await.unwrap();
                panic!("operation {operation} does not end: {work:?}");
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    pub(crate) async fn succeeds(&self, operation: Uuid) {
        let ended = self.ended(operation).await;
        let work = self.store.work(operation).await.unwrap();
        assert_eq!(
            ended.status,
            ProvisioningState::Succeeded,
            "{:?}: {:?}",
            ended.error,
            work.and_then(|it| it.result)
        );
    }

    /// What the cloud still holds of a cluster of that name: in its own group, in the service's, in vault and registry.
    pub(crate) async fn left_of(&self, name: &str, id: Uuid, subscription: &str) -> Vec<String> {
        let mut left = Vec::new();
        let managed = ResourceId::group(subscription, &format!("aro-{name}"));
        left.extend(self.cloud.get(&managed).await.unwrap().map(|it| it.id.to_string()));
        let service = service();
        let holds = |it: &str| it.contains(&id.to_string()) || it.ends_with(&format!(".{name}"));
        let own = self.cloud.list(&service.group_id()).await.unwrap_or_default();
        left.extend(own.into_iter().map(|it| it.id.to_string()).filter(|it| holds(it)));
        let certificates = self.cloud.certificates().await.unwrap();
        left.extend(certificates.into_iter().map(|it| it.name).filter(|it| holds(it)));
        let tokens = self.cloud.tokens().await.unwrap();
        left.extend(tokens.into_iter().map(|it| it.name).filter(|it| holds(it)));
        let installations = self.cloud.installations().await.unwrap();
        left.extend(installations.into_iter().filter(|it| it.cluster == id).map(|it| it.sim));
        left
    }
}

/// Waits until something is so, and says what was waited for when it does not come.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("it did not come to pass that {what}"))
}
