//! A backend or an actuator that a test starts and kills, on the test's store and simulated cloud. It stops at the end of its input, so
//! that it never outlives a killed test.
//!
//! `service_process backend|actuator URL KEYFILE ENDPOINTS LEASE_MS`

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use api::clock::{SharedClock, SystemClock};
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

/// Dependencies of both services.
struct SharedDeps {
    store: Store,
    cloud: SimClient,
    clock: SharedClock,
    timing: Timing,
}

fn backend(shared: SharedDeps) -> Deps {
    let SharedDeps { store, cloud, clock, timing } = shared;
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
        // Few slots, so that two processes share the work and kills hit both.
        config: Config { slots: 8, timing, operation_timing: service::quick_timing() },
        owner: Uuid::new_v4(),
        release: "test".to_owned(),
        seed: 1,
    }
}

/// An actuator with the built-in tasks.
fn actuator(shared: SharedDeps) -> actuator::Deps<actuator::TaskCatalog> {
    let SharedDeps { store, cloud, clock, timing } = shared;
    let cloud = cloud.cloud();
    let provider =
        actuator::Provider { vault: cloud.vault, identities: cloud.identities, store: store.clone() };
    let connections = ClusterConnections::new(
        store.reader(),
        LinksLimits::default(),
        AllowedRisks::default(),
        clock.clone(),
    );
    let tasks = actuator::TaskCatalog::new(store.reader(), connections, clock.clone());
    actuator::Deps {
        store,
        tasks: Arc::new(tasks.with_provider(provider)),
        clock,
        metrics: actuator::Metrics::default(),
        config: actuator::Config { slots: 8, timing },
        owner: Uuid::new_v4(),
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, url, key_file, cloud, lease] = arguments.as_slice() else {
        bail!("usage: service_process backend|actuator URL KEYFILE ENDPOINTS LEASE_MS")
    };
    let clock: SharedClock = Arc::new(SystemClock);
    let keyring = Keyring::read(Path::new(key_file))?;
    let store = Store::open(Options::new(url.parse()?, keyring, clock.clone())).await?;
    let cloud = SimClient::open(Path::new(cloud))?;
    let lease = Duration::from_millis(lease.parse()?);
    let timing = Timing { lease, renewal: lease / 3, self_stop: lease * 2 / 3, take_over: lease / 8 };
    let shared = SharedDeps { store, cloud, clock, timing };
    println!("ready");
    let shutdown = CancellationToken::new();
    let input_closed = shutdown.clone();
    // The input ends when the test closes it, or is killed.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        input_closed.cancel();
    });
    match role.as_str() {
        "backend" => backend::run(backend(shared), shutdown).await?,
        "actuator" => actuator::run(actuator(shared), shutdown).await?,
        other => bail!("{other} is neither backend nor actuator"),
    }
    println!("released");
    Ok(())
}
