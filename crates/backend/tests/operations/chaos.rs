//! Real backends and actuators on PostgreSQL, killed with -9 at random while clusters are made, changed, maintained and removed
//! on a simulated cloud that itself fails now and then. All rests are as long as they are.
//!
//! Meanwhile an operation that has ended is never the one that its cluster still waits for. At the end every cluster is
//! Succeeded, Failed with an error that says why, or gone; its operation agrees with it; every manifest is at its end; the cloud
//! holds what the living have and nothing else, and nothing was made twice.

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

use crate::site::{SUBSCRIPTION, Site};

/// Short, so that the dead are followed soon; long enough that the living renew it on a busy machine.
const LEASE: Duration = Duration::from_millis(4000);
const ROLES: [&str; 4] = ["backend", "backend", "actuator", "actuator"];
/// Its clusters are taken along when it is deleted, in the middle of being made.
const DOOMED: &str = "33333333-3333-3333-3333-333333333333";

const ROTATE_CERTIFICATES: Uuid = uuid!("9b741734-6505-447f-8510-85eb0ae561a2");
const CHECK_TOKEN: Uuid = uuid!("082978ce-3700-4972-835f-53d48658d291");
const RENEW_IDENTITY: Uuid = uuid!("7c3f8e2d-9a4b-4f1e-8c5d-2b6a9e7f3d1c");

#[expect(clippy::disallowed_methods, reason = "a test's switch, not a setting of the product")]
fn soak() -> bool {
    std::env::var_os("SHIPSHAPE_SOAK").is_some()
}

struct Ground {
    _database: postgres::TestDatabase,
    url: String,
    key_file: PathBuf,
    site: Site,
}

impl Ground {
    async fn new() -> Option<Ground> {
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
        let site = Site::on(store, Some(directory), clock).await;
        Some(Ground { _database: database, url, key_file, site })
    }

    fn crew(&self) -> Crew {
        let Site { url, token, .. } = &self.site;
        let arguments = [&self.url, &self.key_file.display().to_string(), url, token].map(String::clone);
        Crew { arguments, kills: Arc::default() }
    }
}

/// Two backends and two actuators, and whoever kills them.
#[derive(Clone)]
struct Crew {
    arguments: [String; 4],
    kills: Arc<[AtomicUsize; ROLES.len()]>,
}

impl Crew {
    fn hands(&self, role: &str) -> ChildProcess {
        let mut command = Command::new(example_path("hands").unwrap());
        command.arg(role).args(&self.arguments).arg(LEASE.as_millis().to_string());
        ChildProcess::start(command).unwrap()
    }

    fn kills(&self) -> Vec<usize> {
        self.kills.iter().map(|it| it.load(Ordering::SeqCst)).collect()
    }

    /// Kills one of them after one to four pauses, so often at most, and starts another in its place, until it is enough;
    /// those that are there then. On a thread of its own: what the test itself looks at meanwhile keeps nobody alive.
    fn haunted(
        self,
        kills_max: usize,
        pause: Duration,
        enough: Receiver<()>,
    ) -> JoinHandle<Vec<ChildProcess>> {
        std::thread::spawn(move || {
            let mut hands: Vec<ChildProcess> = ROLES.iter().map(|role| self.hands(role)).collect();
            loop {
                // Which one, and when, is left to chance; what follows holds for every choice.
                let chance = Uuid::new_v4().as_u128();
                let span = pause * u32::try_from(100 + chance % 300).unwrap() / 100;
                if enough.recv_timeout(span) != Err(RecvTimeoutError::Timeout) {
                    return hands;
                }
                if self.kills().iter().sum::<usize>() < kills_max {
                    let which = usize::try_from((chance >> 32) % 4).unwrap();
                    hands[which].kill9().unwrap();
                    hands[which] = self.hands(ROLES[which]);
                    self.kills[which].fetch_add(1, Ordering::SeqCst);
                }
            }
        })
    }
}

/// What befalls a cluster after it was made.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Its customer wants another number of addresses.
    Update(u32),
    /// Tasks are to be done on it; nobody waits for them.
    Maintain(&'static [Uuid]),
    Delete,
}

/// One cluster's life: what it is, and what is still to come.
struct Life {
    name: String,
    subscription: &'static str,
    id: Uuid,
    operation: Uuid,
    to_come: Vec<Act>,
    manifests: Vec<Uuid>,
}

impl Life {
    async fn begin(site: &Site, index: usize) -> Life {
        use Act::{Delete, Maintain, Update};
        const BOTH: &[Uuid] = &[ROTATE_CERTIFICATES, CHECK_TOKEN];
        let name = format!("c{index}");
        let kind = index % 6;
        let acts: &[Act] = match kind {
            0 => &[Maintain(BOTH), Update(2), Maintain(BOTH)],
            1 => &[Maintain(BOTH), Update(3), Maintain(BOTH), Delete],
            2 => &[Delete],
            3 => &[Update(2), Maintain(BOTH), Delete],
            4 => &[],
            _ => &[Maintain(&[RENEW_IDENTITY, ROTATE_CERTIFICATES]), Update(2), Update(1)],
        };
        let subscription = if kind == 4 { DOOMED } else { SUBSCRIPTION };
        if kind == 2 {
            let stages = [
                InstallStage::ControlPlane,
                InstallStage::Bootstrap,
                InstallStage::Operators,
                InstallStage::Workers,
            ];
            site.fail_installation(&name, stages[index / 6 % 4]).await;
        }
        let (id, operation) = match kind {
            5 => site.create_workload(&name).await,
            _ => site.create_as(subscription, &name, |_| ()).await,
        };
        let to_come = acts.iter().rev().copied().collect();
        Life { name, subscription, id, operation, to_come, manifests: Vec::new() }
    }

    /// Goes on as far as its operation lets it; whether all is over.
    async fn go_on(&mut self, site: &Site) -> bool {
        loop {
            // The operation first: what has ended by now is not waited for by a cluster that is read later.
            let operation = site.store.operations().get(self.operation).await.unwrap().unwrap().document;
            let cluster = site.cluster(self.id).await;
            let waits_for = cluster.as_ref().and_then(|it| it.document.operation);
            assert!(
                operation.end_time.is_none() || waits_for != Some(self.operation),
                "{}: {operation:?} has ended, and its cluster waits for it",
                self.name
            );
            let Some(cluster) = cluster else { return true };
            if self.subscription == DOOMED || operation.end_time.is_none() {
                return false;
            }
            let failed = cluster.document.failed_provisioning_state;
            let act = match failed {
                // What was not made, or not removed, can only be removed.
                Some(ProvisioningState::Creating | ProvisioningState::Deleting) => {
                    self.to_come.clear();
                    Some(Act::Delete)
                }
                _ => self.to_come.pop(),
            };
            match act {
                None => return true,
                Some(Act::Delete) => self.operation = site.change(self.id, Verb::Delete, |_| ()).await,
                Some(Act::Update(addresses)) => {
                    self.operation = site
                        .change(self.id, Verb::Update, |wanted| {
                            let spec = &mut wanted.provisioned.as_mut().unwrap().spec;
                            spec.network.managed_outbound_ips = Some(addresses);
                        })
                        .await;
                }
                Some(Act::Maintain(tasks)) => {
                    for task in tasks {
                        let asked = manifest(Uuid::now_v7(), self.id, *task, SystemClock.now());
                        self.manifests.push(asked.id);
                        site.store
                            .manifests()
                            .create(&[(asked, Vec::new())], &AuditContext::service("test"))
                            .await
                            .unwrap();
                    }
                }
            }
        }
    }
}

#[test]
fn clusters_come_to_a_truthful_end_when_backends_and_actuators_are_killed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(ground) = Ground::new().await else { return };
        let count = if soak() { 100 } else { 12 };
        kill_at_random(&ground, count).await;
    });
}

async fn kill_at_random(ground: &Ground, count: usize) {
    let site = &ground.site;
    let mut all = Vec::new();
    for index in 0..count {
        all.push(Life::begin(site, index).await);
    }
    for rule in [
        FaultRule::new(CloudFault::Throttled { after_seconds: 0 }).share(0.01),
        FaultRule::new(CloudFault::Unavailable { when: FaultTiming::After }).share(0.01),
        FaultRule::new(CloudFault::Reset { when: FaultTiming::After }).share(0.005),
        FaultRule::new(CloudFault::Delayed { millis: 300, when: FaultTiming::Before }).share(0.005),
        FaultRule::new(CloudFault::DelayedVisibility { millis: 400 }).share(0.02),
    ] {
        site.cloud.inject(rule).await.unwrap();
    }
    // A long run takes its time, so that most of what is begun can come to its end within its five attempts.
    let (kills_max, pause) =
        if soak() { (count / 2, Duration::from_secs(2)) } else { (8, Duration::from_millis(500)) };
    let crew = ground.crew();
    let (go_on, enough) = channel();
    let haunted = crew.clone().haunted(kills_max, pause, enough);
    let begun = Instant::now();
    let limit = if soak() { Duration::from_secs(3600) } else { Duration::from_secs(300) };
    let mut doomed = false;
    loop {
        let mut over = 0;
        for life in &mut all {
            over += usize::from(life.go_on(site).await);
        }
        let manifests: Vec<Uuid> = all.iter().flat_map(|it| it.manifests.clone()).collect();
        let works = site.store.works(manifests).await.unwrap();
        let maintained = works.iter().filter(|it| it.state.is_terminal()).count();
        if over == all.len() && maintained == works.len() {
            break;
        }
        assert!(
            begun.elapsed() < limit,
            "{over} of {} lives and {maintained} of {} manifests are over, {:?} kills",
            all.len(),
            works.len(),
            crew.kills()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
        if !doomed && begun.elapsed() > Duration::from_secs(3) {
            doomed = true;
            let subscription = Subscription {
                subscription_id: DOOMED.to_owned(),
                state: SubscriptionState::Deleted,
                tenant_id: None,
                registered_features: Vec::new(),
                body: serde_json::Value::Null,
            };
            site.store
                .subscriptions()
                .put(&subscription, None, &AuditContext::service("test"))
                .await
                .unwrap();
        }
    }
    drop(go_on);
    let mut hands = haunted.join().unwrap();
    let kills = crew.kills();
    assert!(kills.iter().sum::<usize>() >= 4, "the work was over before anything could happen: {kills:?}");
    site.cloud.clear_faults().await.unwrap();
    for hand in &mut hands {
        hand.close_input();
        assert!(hand.wait(Duration::from_secs(40)).unwrap().success());
    }
    let mut living = Vec::new();
    for life in &all {
        if let Some(cluster) = judge(site, life).await {
            living.push((life, cluster));
        }
    }
    let manifests: Vec<Uuid> = all.iter().flat_map(|it| it.manifests.clone()).collect();
    let works = site.store.works(manifests).await.unwrap();
    let completed = works.iter().filter(|it| it.state == WorkState::Completed).count();
    assert!(completed >= works.len() / 2, "{completed} of {} manifests were completed", works.len());
    assert!(
        living.len() >= all.len() / 6,
        "{} of {} clusters live: the faults were too many",
        living.len(),
        all.len()
    );
    nothing_else_is_there(site, &living).await;
    let broken: Vec<_> =
        site.store.check().await.unwrap().into_iter().filter(|it| !it.faults.is_empty()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    println!(
        "{} of {} clusters live and {completed} of {} manifests are completed after {kills:?} kills in {:?}",
        living.len(),
        all.len(),
        works.len(),
        begun.elapsed()
    );
}

/// The cluster, if it is there; panics when anything about it is not as it should be.
async fn judge(site: &Site, life: &Life) -> Option<Cluster> {
    let Life { name, id, operation, manifests, .. } = life;
    for work in site.store.works(manifests.clone()).await.unwrap() {
        assert!(work.state.is_terminal() && work.result.is_some(), "{name}: {work:?}");
        assert_ne!(work.state, WorkState::TimedOut, "{name}: {work:?}");
    }
    let billed = site.store.billing().find(&format!("/billing/{id}")).await.unwrap().map(|it| it.document);
    let Some(cluster) = site.cluster(*id).await else {
        if life.subscription != DOOMED {
            let ended = site.store.operations().get(*operation).await.unwrap().unwrap().document;
            assert_eq!((ended.verb, ended.status), (Verb::Delete, ProvisioningState::Succeeded), "{name}");
        }
        let left = site.left_of(name, *id, life.subscription).await;
        assert!(left.is_empty(), "{name} is gone, and these are left: {left:?}");
        assert!(billed.is_none_or(|it| it.deletion_time.is_some()), "{name} is gone and still billed");
        return None;
    };
    let ended = site.store.operations().get(*operation).await.unwrap().unwrap().document;
    assert!(ended.end_time.is_some(), "{name}: {ended:?}");
    let cluster = cluster.document;
    assert_eq!(cluster.provisioning_state, ended.status, "{name}: operation and cluster disagree");
    assert_eq!(cluster.operation, None, "{name}");
    assert!(billed.is_some_and(|it| it.deletion_time.is_none()), "{name} lives and is not billed");
    if ended.status == ProvisioningState::Failed {
        let error = ended.error.unwrap();
        assert!(!error.code.is_empty() && !error.message.is_empty(), "{name}");
        // Only work whose attempts were spent, mostly by kills, has nothing better to say.
        let work = site.store.work(*operation).await.unwrap().unwrap();
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
    let held = site.cloud.list(&group).await.unwrap();
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
async fn nothing_else_is_there(site: &Site, living: &[(&Life, Cluster)]) {
    let managed = |it: &str| it.starts_with("aro-");
    let mut expect: BTreeSet<String> = living.iter().map(|(life, _)| format!("aro-{}", life.name)).collect();
    for subscription in [SUBSCRIPTION, DOOMED] {
        for group in site.cloud.groups(subscription).await.unwrap() {
            let name = group.id.name().to_owned();
            assert!(!managed(&name) || expect.remove(&name), "group {name} of {subscription} is an orphan");
        }
    }
    assert!(expect.is_empty(), "{expect:?} are not there");
    let ids: BTreeSet<Uuid> = living.iter().map(|(life, _)| life.id).collect();
    let installed: Vec<Uuid> =
        site.cloud.installations().await.unwrap().iter().map(|it| it.cluster).collect();
    assert_eq!(
        (installed.len(), installed.iter().copied().collect::<BTreeSet<_>>()),
        (ids.len(), ids.clone())
    );
    let tokens: BTreeSet<String> = site.cloud.tokens().await.unwrap().into_iter().map(|it| it.name).collect();
    let recorded: BTreeSet<String> = living
        .iter()
        .filter_map(|(_, it)| it.provisioned.as_ref()?.record.registry_token.as_ref())
        .map(|it| it.name.clone())
        .collect();
    assert_eq!(tokens, recorded, "tokens of the registry");
    for certificate in site.cloud.certificates().await.unwrap() {
        let owner = ids.iter().any(|id| certificate.name.contains(&id.to_string()));
        assert!(owner, "certificate {} is an orphan", certificate.name);
    }
}
