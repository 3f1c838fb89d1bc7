//! A backend or an actuator that a test starts and kills, on a store and a simulated cloud that the test holds. It ends when its
//! input does, so it never outlives a test that was itself killed.
//!
//! `hands backend|actuator URL KEYFILE CLOUD TOKEN LEASE_MS`

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use api::clock::{SharedClock, SystemClock};
use api::secret::Secret;
use backend::{Config, Deps, Metrics};
use cloudsim::SimClient;
use kubelink::LinksLimits;
use kubelink::kubeconfig::AllowedRisks;
use maintenance::actuator;
use steps::ClusterConnections;
use steps::worker::Timing;
use store::{Keyring, Options, Store};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

#[path = "../tests/operations/service.rs"]
mod service;

/// What both are made of.
struct Ground {
    store: Store,
    cloud: SimClient,
    clock: SharedClock,
    timing: Timing,
}

fn backend(ground: Ground) -> Deps {
    let Ground { store, cloud, clock, timing } = ground;
    Deps {
        connections: Arc::new(ClusterConnections::new(
            store.reader(),
            LinksLimits::default(),
            AllowedRisks::default(),
            clock.clone(),
        )),
        store,
        installer: Arc::new(cloud.installer()),
        cloud: cloud.cloud(),
        service: Arc::new(service::service()),
        clock,
        metrics: Metrics::default(),
        // Two of them work on what there is, so that both are met by a kill.
        config: Config { slots: 8, timing, operation_timing: service::quick_timing() },
        owner: Uuid::new_v4(),
        release: "trial".to_owned(),
        seed: 1,
    }
}

/// With the catalogue of the product.
fn actuator(ground: Ground) -> actuator::Deps<actuator::TaskCatalog> {
    let Ground { store, cloud, clock, timing } = ground;
    let cloud = Arc::new(cloud);
    let provider = actuator::Provider { vault: cloud.clone(), identities: cloud, store: store.clone() };
    let connections = ClusterConnections::new(
        store.reader(),
        LinksLimits::default(),
        AllowedRisks::default(),
        clock.clone(),
    );
    let fleet = actuator::TaskCatalog::new(store.reader(), connections, clock.clone());
    actuator::Deps {
        store,
        tasks: Arc::new(fleet.with_provider(provider)),
        clock,
        metrics: actuator::Metrics::default(),
        config: actuator::Config { slots: 8, timing },
        owner: Uuid::new_v4(),
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, url, key_file, cloud, token, lease] = arguments.as_slice() else {
        bail!("usage: hands backend|actuator URL KEYFILE CLOUD TOKEN LEASE_MS")
    };
    let clock: SharedClock = Arc::new(SystemClock);
    let keyring = Keyring::read(Path::new(key_file))?;
    let store = Store::open(Options::new(url.parse()?, keyring, clock.clone())).await?;
    let cloud = SimClient::new(cloud, Secret::new(token.clone()))?;
    let lease = Duration::from_millis(lease.parse()?);
    let timing = Timing { lease, renewal: lease / 3, self_stop: lease * 2 / 3, take_over: lease / 8 };
    let ground = Ground { store, cloud, clock, timing };
    println!("ready");
    let over = CancellationToken::new();
    let ends = over.clone();
    // The input ends when the test closes it, or is gone.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ends.cancel();
    });
    match role.as_str() {
        "backend" => backend::run(backend(ground), over).await?,
        "actuator" => actuator::run(actuator(ground), over).await?,
        other => bail!("{other} is neither backend nor actuator"),
    }
    println!("handed back");
    Ok(())
}
