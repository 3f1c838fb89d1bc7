//! Real backends on PostgreSQL, killed with -9 at random while clusters are made, changed and removed on a simulated cloud that
//! itself fails now and then. Then: every cluster is Succeeded, Failed with an error that says why, or gone; its operation
//! agrees with it; nothing of what is gone is left in the cloud, and nothing was made twice.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use api::doc::{ProvisioningState, Verb};
use cloud::sim::{FaultRule, Moment, Trouble};
use cloud::{Cloud as _, Kind, ResourceId};
use store::{Keyring, Options, Store};
use testbed::process::{Child, example_path};
use testbed::{parts, postgres};
use tokio::time::Instant;
use uuid::Uuid;

use crate::site::{SUBSCRIPTION, Site};

/// Short, so that the dead are followed soon.
const LEASE: Duration = Duration::from_millis(1500);
const HANDS: usize = 2;

#[expect(clippy::disallowed_methods, reason = "a test's switch, not a setting of the product")]
fn soak() -> bool {
    std::env::var_os("SHIPSHAPE_SOAK").is_some()
}

struct Ground {
    _database: postgres::Database,
    url: String,
    key_file: PathBuf,
    site: Site,
}

impl Ground {
    async fn new() -> Option<Ground> {
        let Some(server) = postgres::shared() else {
            parts::skip(parts::POSTGRESQL, "no PostgreSQL server was found");
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

    fn hands(&self) -> Child {
        let mut command = Command::new(example_path("hands").unwrap());
        command.arg(&self.url).arg(&self.key_file).arg(&self.site.url).arg(&self.site.token);
        command.arg(LEASE.as_millis().to_string());
        Child::start(command).unwrap()
    }
}

#[test]
fn clusters_come_to_a_truthful_end_when_backends_are_killed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(ground) = Ground::new().await else { return };
        let count = if soak() { 100 } else { 12 };
        kill_at_random(&ground, count).await;
    });
}

async fn kill_at_random(ground: &Ground, count: usize) {
    let site = &ground.site;
    let mut all: Vec<(String, Uuid, Uuid)> = Vec::new();
    for index in 0..count {
        let name = format!("c{index}");
        let (id, operation) = site.create(&name).await;
        all.push((name, id, operation));
    }
    for rule in [
        FaultRule::of(Trouble::Throttled { after_seconds: 0 }).share(0.01),
        FaultRule::of(Trouble::Unavailable { when: Moment::After }).share(0.01),
    ] {
        site.cloud.inject(rule).await.unwrap();
    }
    let mut hands: Vec<Child> = (0..HANDS).map(|_| ground.hands()).collect();
    let begun = Instant::now();
    let limit = if soak() { Duration::from_secs(1800) } else { Duration::from_secs(240) };
    let mut kills = 0_usize;
    // Made; then every second one is changed; then every third one is removed.
    for turn in [Verb::Create, Verb::Update, Verb::Delete] {
        loop {
            let waiting: Vec<Uuid> = all.iter().map(|it| it.2).collect();
            let works = site.store.works(waiting).await.unwrap();
            let ended = works.iter().filter(|work| work.state.is_terminal()).count();
            if ended == all.len() {
                break;
            }
            assert!(begun.elapsed() < limit, "{ended} of {} ended in {turn:?}, {kills} kills", all.len());
            // Which one, and when, is left to chance; what follows holds for every choice.
            let chance = Uuid::new_v4().as_u128();
            tokio::time::sleep(Duration::from_millis(400 + u64::try_from(chance % 1200).unwrap())).await;
            // What rests after a failed attempt is made due, so that the test need not wait for it.
            for work in works.iter().filter(|work| !work.state.is_terminal()) {
                site.store.commit(store::Transaction::new().expedite(work.id)).await.ok();
            }
            if kills < 6 || soak() && ended < all.len() * 4 / 5 {
                let hand = &mut hands[usize::try_from((chance >> 32) % 2).unwrap()];
                hand.kill9().unwrap();
                *hand = ground.hands();
                kills += 1;
            }
        }
        for (index, (_, id, operation)) in all.iter_mut().enumerate() {
            let Some(read) = site.cluster(*id).await else { continue };
            let state = read.document.provisioning_state;
            match turn {
                Verb::Create if index % 2 == 0 && state == ProvisioningState::Succeeded => {
                    *operation = site
                        .change(*id, Verb::Update, |wanted| {
                            let spec = &mut wanted.provisioned.as_mut().unwrap().spec;
                            spec.network.managed_outbound_ips = Some(2);
                        })
                        .await;
                }
                Verb::Update if index % 3 == 0 => {
                    *operation = site.change(*id, Verb::Delete, |_| ()).await;
                }
                _ => {}
            }
        }
    }
    assert!(kills >= 3, "the work was over before anything could happen");
    site.cloud.clear_faults().await.unwrap();
    for hand in &mut hands {
        hand.close_input();
        assert!(hand.wait(Duration::from_secs(40)).unwrap().success());
    }
    let mut made = 0;
    for (name, id, operation) in &all {
        made += usize::from(judge(site, name, *id, *operation).await);
    }
    assert!(made >= all.len() / 3, "{made} of {} clusters were made: the faults were too many", all.len());
}

/// Whether the cluster is there and well; panics when anything about it is not as it should be.
async fn judge(site: &Site, name: &str, id: Uuid, operation: Uuid) -> bool {
    let ended = site.store.operations().get(operation).await.unwrap().unwrap().document;
    assert!(ended.end_time.is_some(), "{name}: {ended:?}");
    let Some(cluster) = site.cluster(id).await else {
        assert_eq!((ended.verb, ended.status), (Verb::Delete, ProvisioningState::Succeeded), "{name}");
        let left = site.left_of(name, id, SUBSCRIPTION).await;
        assert!(left.is_empty(), "{name} is gone, and these are left: {left:?}");
        return false;
    };
    let cluster = cluster.document;
    assert_eq!(cluster.provisioning_state, ended.status, "{name}: operation and cluster disagree");
    assert_eq!(cluster.operation, None, "{name}");
    if ended.status == ProvisioningState::Failed {
        let error = ended.error.unwrap();
        assert!(!error.code.is_empty() && !error.message.is_empty(), "{name}");
        assert_eq!(cluster.failed_provisioning_state, Some(ended.initial_status), "{name}");
        return false;
    }
    assert_eq!(ended.error, None, "{name}");
    // Nothing was made twice: the machines are those that were asked for, under one prefix.
    let infra_id = cluster.provisioned.as_ref().unwrap().record.infra_id.clone().unwrap();
    let group = ResourceId::group(SUBSCRIPTION, &format!("aro-{name}"));
    let held = site.cloud.list(&group).await.unwrap();
    let of = |kind: Kind| held.iter().filter(move |it| it.shape.kind() == kind);
    assert_eq!(of(Kind::Machine).count(), 6, "{name}");
    assert!(of(Kind::Machine).all(|it| it.id.name().starts_with(&infra_id)), "{name}");
    assert_eq!((of(Kind::StorageAccount).count(), of(Kind::LoadBalancer).count()), (2, 2), "{name}");
    true
}
