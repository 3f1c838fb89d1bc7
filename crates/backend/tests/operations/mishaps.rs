//! Every mishap at every step of every plan, on the simulated cloud.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::clock::Clock as _;
use api::clock::{ManualClock, SystemClock};
use api::doc::{ProvisioningState, Verb};
use backend::{Context, Installer, Tempo, plan, trial};
use futures_util::future::BoxFuture;
use steps::engine::trial::{Mishap, Trial};
use store::{Keyring, Location, Options, Store};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::site::{SUBSCRIPTION, Site};

/// A step in so many is tried in a quick run; all of them in a long one.
const QUICK_EVERY: usize = 6;

#[expect(clippy::disallowed_methods, reason = "a test's switch, not a setting of the product")]
fn soak() -> bool {
    std::env::var_os("SHIPSHAPE_SOAK").is_some()
}

struct World {
    context: Arc<Context>,
    cluster: Uuid,
    name: String,
}

/// Tries one plan: `first` brings a fresh world to where the plan begins.
async fn stands(verb: Verb) {
    let site = Arc::new(Site::new().await);
    let (_stop, _backend) = site.backend();
    // The queue of the trial is its own: the site's backend brings worlds to where the plan begins and must not meet it.
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(SystemClock.now());
    let location = Location::Sqlite(directory.path().join("trial.db"));
    let store =
        Store::open(Options::new(location, Keyring::ephemeral().unwrap(), clock.clone())).await.unwrap();
    let world: Arc<Mutex<Option<World>>> = Arc::default();
    let count = Arc::new(AtomicUsize::new(0));
    let fresh = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (making, wanted, theirs) = (world.clone(), fresh.clone(), store.clone());
    let base = site.clone();
    let make = move || -> BoxFuture<'static, _> {
        let (world, fresh, store) = (making.clone(), wanted.clone(), theirs.clone());
        let (site, count) = (base.clone(), count.clone());
        Box::pin(async move {
            let mut world = world.lock().await;
            if fresh.swap(false, Ordering::SeqCst) {
                let nth = count.fetch_add(1, Ordering::SeqCst);
                *world = Some(begin(&site, &store, verb, nth).await);
            }
            let world = world.as_ref().unwrap();
            let cluster = store.clusters().get(world.cluster).await.unwrap().unwrap().document;
            (plan::of(verb, &cluster, Tempo::quick()), world.context.clone())
        })
    };
    let (seen, looking) = (world.clone(), site.clone());
    let done = move |_: Arc<Context>| -> BoxFuture<'static, Result<(), String>> {
        let (world, site) = (seen.clone(), looking.clone());
        Box::pin(async move {
            let world = world.lock().await;
            let world = world.as_ref().unwrap();
            let left = site.left_of(&world.name, world.cluster, SUBSCRIPTION).await;
            match verb {
                Verb::Delete if left.is_empty() => Ok(()),
                Verb::Delete => Err(format!("left behind: {left:?}")),
                _ if left.is_empty() => Err("nothing was made".to_owned()),
                _ => Ok(()),
            }
        })
    };
    let undone = |_: Arc<Context>| -> BoxFuture<'static, Result<(), String>> { Box::pin(async { Ok(()) }) };
    let trial = Trial { store, clock, make: Box::new(make), done: Box::new(done), undone: Box::new(undone) };
    let steps: Vec<String> = (trial.make)().await.0.steps.into_iter().map(|step| step.name).collect();
    for (nth, mishap) in Mishap::ALL.into_iter().enumerate() {
        for (index, step) in steps.iter().enumerate() {
            if !soak() && (index + nth) % QUICK_EVERY != 0 {
                continue;
            }
            fresh.store(true, Ordering::SeqCst);
            trial.one(step, mishap).await;
        }
    }
}

/// A cluster that is about to go through the plan, in the trial's own store.
async fn begin(site: &Site, store: &Store, verb: Verb, nth: usize) -> World {
    let name = format!("t{nth}");
    let by = store::By::service("trial");
    let (cluster, document) = match verb {
        Verb::Create => {
            let (cluster, secrets) =
                trial::bring(&site.cloud, SUBSCRIPTION, &name, site.clock.now()).await.unwrap();
            let id = Uuid::now_v7();
            let mut write = store::Transaction::new().create(id, &cluster, &by).unwrap();
            for (name, secret) in &secrets {
                write = write.put_secret(store.seal(id, name, secret.expose()).unwrap());
            }
            store.commit(write).await.unwrap();
            (id, cluster)
        }
        _ => {
            let (id, made) = site.create(&name).await;
            site.succeeds(made).await;
            let mut made = site.cluster(id).await.unwrap().document;
            made.provisioning_state = ProvisioningState::Updating;
            if let Some(provisioned) = &mut made.provisioned {
                provisioned.spec.network.managed_outbound_ips = Some(2);
            }
            let mut write = store::Transaction::new().create(id, &made, &by).unwrap();
            use api::doc::secrets::{CLIENT_SECRET, KUBECONFIG, REGISTRY_PASSWORD};
            for name in [CLIENT_SECRET, KUBECONFIG, REGISTRY_PASSWORD] {
                let secret = site.store.secret(id, name).await.unwrap().unwrap();
                write = write.put_secret(store.seal(id, name, secret.expose()).unwrap());
            }
            store.commit(write).await.unwrap();
            (id, made)
        }
    };
    drop(document);
    let mut life = site.life(cluster);
    life.store = store.clone();
    let limits = kubelink::LinksLimits::default();
    let allow = kubelink::kubeconfig::Allow::default();
    life.ways = Arc::new(steps::lifecycle::Ways::new(store.reader(), limits, allow, site.clock.clone()));
    let installer = Installer::Simulated(site.cloud.installer());
    let context = Arc::new(Context::new(life, installer, Tempo::quick(), "trial", 1));
    World { context, cluster, name }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_stands_every_mishap_at_every_step() {
    stands(Verb::Create).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_stands_every_mishap_at_every_step() {
    stands(Verb::Update).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_stands_every_mishap_at_every_step() {
    stands(Verb::Delete).await;
}
