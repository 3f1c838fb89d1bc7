//! Real backends and actuators on PostgreSQL, killed with SIGKILL at random while clusters are created, updated, maintained and
//! deleted on a simulated cloud that injects faults. All delays have their real length.
//!
//! Meanwhile no cluster refers to a finished operation. At the end every cluster is Succeeded, Failed with an error that states why,
//! or deleted; its operation agrees with it; every manifest is finished; the cloud has the resources of the existing clusters and no
//! others, and none was created twice.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use api::clock::{Clock as _, SystemClock};
use api::doc::{Cluster, ProvisioningState, Subscription, SubscriptionState, Verb};
use api::install::InstallStage;
use api::work::WorkState;
use cloud::{Infrastructure as _, ResourceId, ResourceKind};
use cloudsim::{CloudFault, FaultRule, FaultTiming};
use maintenance::fixture::manifest;
use store::{AuditContext, Keyring, Options, Store};
use testkit::process::{ChildProcess, example_path};
use testkit::{postgres, prerequisites};
use tokio::time::Instant;
use uuid::{Uuid, uuid};

use crate::environment::{SUBSCRIPTION, TestEnvironment};

/// Short, so that work of killed processes is taken over soon; long enough that others renew it on a busy machine.
const LEASE: Duration = Duration::from_millis(4000);
const ROLES: [&str; 4] = ["backend", "backend", "actuator", "actuator"];
/// A subscription that is deleted while its clusters are being created.
const DELETED_SUBSCRIPTION: &str = "33333333-3333-3333-3333-333333333333";

pub(crate) const ROTATE_CERTIFICATES: Uuid = uuid!("9b741734-6505-447f-8510-85eb0ae561a2");
const CHECK_TOKEN: Uuid = uuid!("082978ce-3700-4972-835f-53d48658d291");
pub(crate) const RENEW_IDENTITY: Uuid = uuid!("7c3f8e2d-9a4b-4f1e-8c5d-2b6a9e7f3d1c");

#[expect(clippy::disallowed_methods, reason = "a test's switch, not a setting of the product")]
fn soak() -> bool {
    std::env::var_os("SHIPSHAPE_SOAK").is_some()
}

struct ProcessEnvironment {
    _database: postgres::TestDatabase,
    url: String,
    key_file: PathBuf,
    environment: TestEnvironment,
}

impl ProcessEnvironment {
    async fn new() -> Option<ProcessEnvironment> {
        let Some(server) = postgres::shared() else {
            prerequisites::skip(prerequisites::POSTGRESQL, "no PostgreSQL server was found");
            return None;
        };
        let database = server.database().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let key_file = directory.path().join("keys");
        let keyring = Keyring::read_or_create(&key_file).unwrap();
        let url = database.url().to_owned();
        let clock = Arc::new(SystemClock);
        let store = Store::open(Options::new(url.parse().unwrap(), keyring, clock.clone())).await.unwrap();
        let environment = TestEnvironment::with_store(store, Some(directory), clock).await;
        Some(ProcessEnvironment { _database: database, url, key_file, environment })
    }

    fn processes(&self) -> ServiceProcesses {
        let cloud = self.environment.cloud_file.display().to_string();
        let arguments = [self.url.clone(), self.key_file.display().to_string(), cloud];
        ServiceProcesses { arguments, kills: Arc::default() }
    }
}

/// Two backends and two actuators that are killed at random.
#[derive(Clone)]
struct ServiceProcesses {
    arguments: [String; 3],
    kills: Arc<[AtomicUsize; ROLES.len()]>,
}

impl ServiceProcesses {
    fn start(&self, role: &str) -> ChildProcess {
        let mut command = Command::new(example_path("service_process").unwrap());
        command.arg(role).args(&self.arguments).arg(LEASE.as_millis().to_string());
        ChildProcess::start(command).unwrap()
    }

    fn kills(&self) -> Vec<usize> {
        self.kills.iter().map(|it| it.load(Ordering::SeqCst)).collect()
    }

    /// Kills a process after one to four pauses, at most `kills_max` times, and starts another in its place, until `enough` is
    /// closed; returns the running processes. On a thread of its own, so that the test's own polling does not delay the kills.
    fn kill_at_random(
        self,
        kills_max: usize,
        pause: Duration,
        enough: Receiver<()>,
    ) -> JoinHandle<Vec<ChildProcess>> {
        std::thread::spawn(move || {
            let mut processes: Vec<ChildProcess> = ROLES.iter().map(|role| self.start(role)).collect();
            loop {
                // Process and time are random; the assertions hold for every choice.
                let chance = Uuid::new_v4().as_u128();
                let span = pause * u32::try_from(100 + chance % 300).unwrap() / 100;
                if enough.recv_timeout(span) != Err(RecvTimeoutError::Timeout) {
                    return processes;
                }
                if self.kills().iter().sum::<usize>() < kills_max {
                    let index = usize::try_from((chance >> 32) % 4).unwrap();
                    processes[index].kill9().unwrap();
                    processes[index] = self.start(ROLES[index]);
                    self.kills[index].fetch_add(1, Ordering::SeqCst);
                }
            }
        })
    }
}

/// An action on a created cluster.
#[derive(Debug, Clone, Copy)]
enum ScenarioAction {
    /// Update the number of outbound addresses.
    Update(u32),
    /// Request manifests, without waiting for them.
    Maintain(&'static [Uuid]),
    Delete,
}

/// One cluster, and the actions that are left.
struct Scenario {
    name: String,
    subscription: &'static str,
    id: Uuid,
    operation: Uuid,
    actions: Vec<ScenarioAction>,
    manifests: Vec<Uuid>,
}

impl Scenario {
    async fn start(environment: &TestEnvironment, index: usize) -> Scenario {
        use ScenarioAction::{Delete, Maintain, Update};
        const BOTH: &[Uuid] = &[ROTATE_CERTIFICATES, CHECK_TOKEN];
        let name = format!("c{index}");
        let kind = index % 6;
        let acts: &[ScenarioAction] = match kind {
            0 => &[Maintain(BOTH), Update(2), Maintain(BOTH)],
            1 => &[Maintain(BOTH), Update(3), Maintain(BOTH), Delete],
            2 => &[Delete],
            3 => &[Update(2), Maintain(BOTH), Delete],
            4 => &[],
            _ => &[Maintain(&[RENEW_IDENTITY, ROTATE_CERTIFICATES]), Update(2), Update(1)],
        };
        let subscription = if kind == 4 { DELETED_SUBSCRIPTION } else { SUBSCRIPTION };
        if kind == 2 {
            let stages = [
                InstallStage::ControlPlane,
                InstallStage::Bootstrap,
                InstallStage::Operators,
                InstallStage::Workers,
            ];
            environment.fail_installation(&name, stages[index / 6 % 4]).await;
        }
        let (id, operation) = match kind {
            5 => environment.create_workload(&name).await,
            _ => environment.create_as(subscription, &name, |_| ()).await,
        };
        let actions = acts.iter().rev().copied().collect();
        Scenario { name, subscription, id, operation, actions, manifests: Vec::new() }
    }

    /// Starts the next action once the operation is finished; returns whether all actions are done.
    async fn advance(&mut self, environment: &TestEnvironment) -> bool {
        loop {
            // The operation is read first: a cluster that is read later must not refer to it if it is finished.
            let operation =
                environment.store.operations().get(self.operation).await.unwrap().unwrap().document;
            let cluster = environment.cluster(self.id).await;
            let waits_for = cluster.as_ref().and_then(|it| it.document.operation);
            assert!(
                operation.end_time.is_none() || waits_for != Some(self.operation),
                "{}: {operation:?} is finished, and its cluster still refers to it",
                self.name
            );
            let Some(cluster) = cluster else { return true };
            if self.subscription == DELETED_SUBSCRIPTION || operation.end_time.is_none() {
                return false;
            }
            let failed = cluster.document.failed_provisioning_state;
            let act = match failed {
                // After a failed create or delete only a delete is possible.
                Some(ProvisioningState::Creating | ProvisioningState::Deleting) => {
                    self.actions.clear();
                    Some(ScenarioAction::Delete)
                }
                _ => self.actions.pop(),
            };
            match act {
                None => return true,
                Some(ScenarioAction::Delete) => {
                    self.operation = environment.change(self.id, Verb::Delete, |_| ()).await;
                }
                Some(ScenarioAction::Update(addresses)) => {
                    self.operation = environment
                        .change(self.id, Verb::Update, |wanted| {
                            let spec = &mut wanted.provisioned.as_mut().unwrap().spec;
                            spec.network.managed_outbound_ips = Some(addresses);
                        })
                        .await;
                }
                Some(ScenarioAction::Maintain(tasks)) => {
                    for task in tasks {
                        let requested = manifest(Uuid::now_v7(), self.id, *task, SystemClock.now());
                        self.manifests.push(requested.id);
                        environment
                            .store
                            .manifests()
                            .create(&[(requested, Vec::new())], &AuditContext::service("test"))
                            .await
                            .unwrap();
                    }
                }
            }
        }
    }
}

#[test]
fn clusters_reach_a_consistent_end_when_backends_and_actuators_are_killed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(ground) = ProcessEnvironment::new().await else { return };
        let count = if soak() { 100 } else { 12 };
        kill_at_random(&ground, count).await;
    });
}

async fn kill_at_random(ground: &ProcessEnvironment, count: usize) {
    let environment = &ground.environment;
    let mut all = Vec::new();
    for index in 0..count {
        all.push(Scenario::start(environment, index).await);
    }
    for rule in [
        FaultRule::new(CloudFault::ThrottledBriefly { after_millis: 20 }).share(0.01),
        FaultRule::new(CloudFault::Unavailable { when: FaultTiming::After }).share(0.01),
        FaultRule::new(CloudFault::Reset { when: FaultTiming::After }).share(0.005),
        FaultRule::new(CloudFault::HandshakeFails {}).share(0.03),
        FaultRule::new(CloudFault::Delayed { millis: 300, when: FaultTiming::Before }).share(0.005),
        FaultRule::new(CloudFault::DelayedVisibility { millis: 400 }).share(0.02),
    ] {
        environment.cloud.inject(rule).await.unwrap();
    }
    // A long run pauses longer, so that most work can finish within its five attempts.
    let (kills_max, pause) =
        if soak() { (count / 2, Duration::from_secs(2)) } else { (8, Duration::from_millis(500)) };
    let processes = ground.processes();
    let (keep_killing, enough) = channel();
    let killer = processes.clone().kill_at_random(kills_max, pause, enough);
    let begun = Instant::now();
    let limit = if soak() { Duration::from_secs(3600) } else { Duration::from_secs(300) };
    let mut is_deleted = false;
    loop {
        let mut over = 0;
        for life in &mut all {
            over += usize::from(life.advance(environment).await);
        }
        let manifests: Vec<Uuid> = all.iter().flat_map(|it| it.manifests.clone()).collect();
        let works = environment.store.works(manifests).await.unwrap();
        let maintained = works.iter().filter(|it| it.state.is_terminal()).count();
        if over == all.len() && maintained == works.len() {
            break;
        }
        assert!(
            begun.elapsed() < limit,
            "{over} of {} lives and {maintained} of {} manifests are over, {:?} kills",
            all.len(),
            works.len(),
            processes.kills()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
        if !is_deleted && begun.elapsed() > Duration::from_secs(3) {
            is_deleted = true;
            let subscription = Subscription {
                subscription_id: DELETED_SUBSCRIPTION.to_owned(),
                state: SubscriptionState::Deleted,
                tenant_id: None,
                registered_features: Vec::new(),
                body: serde_json::Value::Null,
            };
            environment
                .store
                .subscriptions()
                .put(&subscription, None, &AuditContext::service("test"))
                .await
                .unwrap();
        }
    }
    drop(keep_killing);
    let mut running = killer.join().unwrap();
    let kills = processes.kills();
    assert!(kills.iter().sum::<usize>() >= 4, "the work finished before enough kills: {kills:?}");
    environment.cloud.clear_faults().await.unwrap();
    for process in &mut running {
        process.close_input();
        assert!(process.wait(Duration::from_secs(40)).unwrap().success());
    }
    let mut living = Vec::new();
    for life in &all {
        if let Some(cluster) = verify(environment, life).await {
            living.push((life, cluster));
        }
    }
    let manifests: Vec<Uuid> = all.iter().flat_map(|it| it.manifests.clone()).collect();
    let works = environment.store.works(manifests).await.unwrap();
    let completed = works.iter().filter(|it| it.state == WorkState::Completed).count();
    assert!(completed >= works.len() / 2, "{completed} of {} manifests were completed", works.len());
    assert!(
        living.len() >= all.len() / 6,
        "{} of {} clusters live: the faults were too many",
        living.len(),
        all.len()
    );
    nothing_else_is_there(environment, &living).await;
    let broken: Vec<_> =
        environment.store.check().await.unwrap().into_iter().filter(|it| !it.faults.is_empty()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    println!(
        "{} of {} clusters live and {completed} of {} manifests are completed after {kills:?} kills in {:?}",
        living.len(),
        all.len(),
        works.len(),
        begun.elapsed()
    );
}

/// Returns the cluster, if it exists; panics if cluster, operation, manifests or resources are inconsistent.
async fn verify(environment: &TestEnvironment, life: &Scenario) -> Option<Cluster> {
    let Scenario { name, id, operation, manifests, .. } = life;
    for work in environment.store.works(manifests.clone()).await.unwrap() {
        assert!(work.state.is_terminal() && work.result.is_some(), "{name}: {work:?}");
        assert_ne!(work.state, WorkState::TimedOut, "{name}: {work:?}");
    }
    let billed =
        environment.store.billing().find(&format!("/billing/{id}")).await.unwrap().map(|it| it.document);
    let Some(cluster) = environment.cluster(*id).await else {
        if life.subscription != DELETED_SUBSCRIPTION {
            let ended = environment.store.operations().get(*operation).await.unwrap().unwrap().document;
            assert_eq!((ended.verb, ended.status), (Verb::Delete, ProvisioningState::Succeeded), "{name}");
        }
        let left = environment.remaining_resources(name, *id, life.subscription).await;
        assert!(left.is_empty(), "{name} is gone, and these are left: {left:?}");
        assert!(billed.is_none_or(|it| it.deletion_time.is_some()), "{name} is gone and still billed");
        return None;
    };
    let ended = environment.store.operations().get(*operation).await.unwrap().unwrap().document;
    assert!(ended.end_time.is_some(), "{name}: {ended:?}");
    let cluster = cluster.document;
    assert_eq!(cluster.provisioning_state, ended.status, "{name}: operation and cluster disagree");
    assert_eq!(cluster.operation, None, "{name}");
    assert!(billed.is_some_and(|it| it.deletion_time.is_none()), "{name} lives and is not billed");
    if ended.status == ProvisioningState::Failed {
        let error = ended.error.unwrap();
        assert!(!error.code.is_empty() && !error.message.is_empty(), "{name}");
        // Only work whose attempts were spent, mostly by kills, has nothing better to say.
        let work = environment.store.work(*operation).await.unwrap().unwrap();
        let is_worn_out = work.state == WorkState::RetriesExceeded;
        assert!(is_worn_out || error.code != "InternalServerError", "{name}: {error:?}: {:?}", work.result);
        assert_eq!(cluster.failed_provisioning_state, Some(ended.initial_status), "{name}");
        return Some(cluster);
    }
    assert_eq!(ended.error, None, "{name}");
    // Nothing was made twice: the machines are those that were asked for, under one prefix.
    let provisioned = cluster.provisioned.as_ref().unwrap();
    let infra_id = provisioned.record.infra_id.clone().unwrap();
    let group = ResourceId::group(SUBSCRIPTION, &format!("aro-{name}"));
    let held = environment.cloud.azure().list(&group).await.unwrap();
    let of = |kind: ResourceKind| held.iter().filter(move |it| it.properties.kind() == kind);
    assert_eq!(of(ResourceKind::Machine).count(), 6, "{name}");
    assert!(of(ResourceKind::Machine).all(|it| it.id.name().starts_with(&infra_id)), "{name}");
    assert_eq!(
        (of(ResourceKind::StorageAccount).count(), of(ResourceKind::LoadBalancer).count()),
        (2, 2),
        "{name}"
    );
    let wanted = provisioned.spec.network.managed_outbound_ips.map(|it| it as usize);
    assert_eq!(Some(provisioned.record.effective_outbound_ips.len()), wanted, "{name}");
    Some(cluster)
}

/// The cloud has what the living have, and nothing else.
async fn nothing_else_is_there(environment: &TestEnvironment, living: &[(&Scenario, Cluster)]) {
    let managed = |it: &str| it.starts_with("aro-");
    let mut expect: BTreeSet<String> = living.iter().map(|(life, _)| format!("aro-{}", life.name)).collect();
    for subscription in [SUBSCRIPTION, DELETED_SUBSCRIPTION] {
        for group in environment.cloud.azure().groups(subscription).await.unwrap() {
            let name = group.id.name().to_owned();
            assert!(!managed(&name) || expect.remove(&name), "group {name} of {subscription} is an orphan");
        }
    }
    assert!(expect.is_empty(), "{expect:?} are not there");
    let ids: BTreeSet<Uuid> = living.iter().map(|(life, _)| life.id).collect();
    let installed: Vec<Uuid> =
        environment.cloud.installations().await.unwrap().iter().map(|it| it.cluster).collect();
    assert_eq!(
        (installed.len(), installed.iter().copied().collect::<BTreeSet<_>>()),
        (ids.len(), ids.clone())
    );
    let tokens: BTreeSet<String> =
        environment.cloud.azure().tokens().await.unwrap().into_iter().map(|it| it.name).collect();
    let recorded: BTreeSet<String> = living
        .iter()
        .filter_map(|(_, it)| it.provisioned.as_ref()?.record.registry_token.as_ref())
        .map(|it| it.name.clone())
        .collect();
    assert_eq!(tokens, recorded, "tokens of the registry");
    for certificate in environment.cloud.azure().certificates().await.unwrap() {
        let owner = ids.iter().any(|id| certificate.name.contains(&id.to_string()));
        assert!(owner, "certificate {} is an orphan", certificate.name);
    }
}
