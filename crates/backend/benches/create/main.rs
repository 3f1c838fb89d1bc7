//! The goal of a create: on an emulator without latency, the plan takes at most 1.3 times as long as the bare calls to the cloud in their
//! necessary order, independent ones at the same time.
//!
//! Measured is the plan as it runs in production, up to the request of the installation, whose time is that of others: its steps on a
//! store in SQLite, a checkpoint after each, and Azure's client. The bare calls are plain requests without any of this.
//!
//! A missed goal is printed, and the run still ends well: speed depends on the machine.

mod bare;
#[path = "../../tests/operations/customer.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod customer;
#[path = "../../tests/operations/service.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod service;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use api::admin::EntryEvent;
use api::clock::{SharedClock, SystemClock};
use api::doc::{Cluster, secrets};
use api::work::{Ending, WorkKind};
use backend::{Context, OperationTiming, plan};
use bare::{BareClient, PreparedCluster};
use cloud::Infrastructure as _;
use cloudsim::SimClient;
use kubelink::LinksLimits;
use kubelink::kubeconfig::AllowedRisks;
use steps::ClusterConnections;
use steps::engine::{Journal, RunControl, RunOutcome, RunRequest, run};
use steps::lifecycle::{ClusterRecords, Lifecycle};
use store::{Keyring, Location, NewWork, Options, Secrets, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const GOAL: f64 = 1.3;
/// Creates of each kind that are measured, alternating, so that a busy machine slows both; before them one that only warms up.
const ROUNDS: usize = 11;
const SUBSCRIPTION: &str = "11111111-1111-1111-1111-111111111111";
/// The step that hands the cluster to the installer.
const INSTALLER_STEP: &str = "run-installer";
/// Steps that are listed as the slowest.
const SLOWEST: usize = 6;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // The arguments of `cargo bench` are ignored.
    let directory = tempfile::tempdir()?;
    let emulator =
        cloudsim::Options { directory: Some(directory.path().join("cloud")), ..cloudsim::Options::default() };
    let emulator = cloudsim::Service::open(emulator).await?;
    let (client, endpoints) = (emulator.client()?, emulator.endpoints());
    let shutdown = CancellationToken::new();
    let mut serving = JoinSet::new();
    serving.spawn(emulator.serve(shutdown.clone()));

    let clock: SharedClock = Arc::new(SystemClock);
    let location = Location::Sqlite(directory.path().join("store.db"));
    let store = Store::open(Options::new(location, Keyring::ephemeral()?, clock.clone())).await?;
    let site = Site { client, store, clock };
    for request in service::service().zone_puts(&service::service().domain_in(service::LOCATION)) {
        site.client.azure().put(request).await?;
    }
    for request in service::service().network() {
        site.client.azure().put(request).await?;
    }
    let bare = BareClient::new(endpoints).await?;
    let (mut plans, mut bares, mut steps) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut calls = 0;
    for round in 0..=ROUNDS {
        let planned = site.plan(&format!("p{round}"), &mut steps).await?;
        let prepared = site.prepared(&format!("b{round}")).await?;
        bare.take_sent();
        let begun = Instant::now();
        bare.create(&prepared).await?;
        let bare_took = begun.elapsed();
        calls = bare.take_sent();
        if round == 0 {
            steps.clear();
            continue;
        }
        plans.push(planned);
        bares.push(bare_took);
    }
    report(&mut plans, &mut bares, calls, steps);
    shutdown.cancel();
    while let Some(result) = serving.join_next().await {
        result??;
    }
    Ok(())
}

fn report(
    plans: &mut [Duration],
    bares: &mut [Duration],
    calls: usize,
    steps: BTreeMap<String, Vec<Duration>>,
) {
    let (plan, bare) = (median(plans), median(bares));
    let ratio = plan.as_secs_f64() / bare.as_secs_f64();
    let verdict = if ratio <= GOAL { "pass" } else { "MISS" };
    println!("{:<44} {:>8.1} ms", "create plan up to the installation", millis(plan));
    println!("{:<44} {:>8.1} ms", format!("the {calls} bare calls, in parallel"), millis(bare));
    println!("{:<44} {ratio:>8.2}      goal at most {GOAL:.1}   {verdict}", "ratio");
    let mut steps: Vec<(String, Duration)> =
        steps.into_iter().map(|(name, mut took)| (name, median(&mut took))).collect();
    steps.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
    for (name, took) in steps.iter().take(SLOWEST) {
        println!("  step {name:<37} {:>8.1} ms", millis(*took));
    }
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

fn median(spans: &mut [Duration]) -> Duration {
    spans.sort_unstable();
    spans.get(spans.len() / 2).copied().unwrap_or_default()
}

struct Site {
    client: SimClient,
    store: Store,
    clock: SharedClock,
}

impl Site {
    async fn customer(&self, name: &str) -> anyhow::Result<(Cluster, Secrets)> {
        Ok(customer::prepare(&self.client, SUBSCRIPTION, name, self.clock.now()).await?)
    }

    /// What the bare calls need to know of a cluster.
    async fn prepared(&self, name: &str) -> anyhow::Result<PreparedCluster> {
        let (cluster, brought) = self.customer(name).await?;
        let spec = cluster.provisioned.context("a provisioned cluster")?.spec;
        let secret = brought.get(secrets::CLIENT_SECRET).context("a secret")?.expose().clone();
        Ok(PreparedCluster {
            name: name.to_owned(),
            subscription: SUBSCRIPTION.to_owned(),
            master: spec.master.subnet_id.parse()?,
            worker: spec.workers.first().context("workers")?.subnet_id.parse()?,
            client_id: cluster.credential.context("a principal")?,
            secret: String::from_utf8(secret)?,
        })
    }

    /// Runs the plan of a create up to the installation; the durations of its steps are added to `steps`.
    async fn plan(
        &self,
        name: &str,
        steps: &mut BTreeMap<String, Vec<Duration>>,
    ) -> anyhow::Result<Duration> {
        let (cluster, brought) = self.customer(name).await?;
        let id = Uuid::now_v7();
        let mut write =
            store::Transaction::new().create(id, &cluster, &store::AuditContext::service("bench"))?;
        for (name, secret) in &brought {
            write = write.put_secret(self.store.seal(id, name, secret.expose())?);
        }
        self.store.commit(write).await?;
        let work = Uuid::now_v7();
        self.store.enqueue(vec![NewWork::new(work, id, WorkKind::Manifest)]).await?;
        let claimed = self.store.claim(WorkKind::Manifest, 1, Uuid::now_v7()).await?;
        let claimed = claimed.first().context("the work is claimed")?;

        let instant = Duration::from_millis(1);
        let timing = OperationTiming {
            retry_delay: instant,
            propagation_interval: instant,
            ..OperationTiming::with_poll_interval(instant)
        };
        let mut plan = plan::create(false, timing);
        let installer = plan.steps.iter().position(|it| it.name.as_str() == INSTALLER_STEP);
        plan.steps.truncate(installer.context("the plan has an installer")?);
        let (limits, allow) = (LinksLimits::default(), AllowedRisks::default());
        let connections = ClusterConnections::new(self.store.reader(), limits, allow, self.clock.clone());
        let life = Lifecycle {
            cloud: self.client.cloud(),
            records: ClusterRecords { store: self.store.clone(), cluster: id, service: "bench" },
            connections: Arc::new(connections),
            clock: self.clock.clone(),
            service: Arc::new(service::service()),
        };
        let context = Context::new(life, Arc::new(self.client.installer()), timing, "bench", 1);
        let request = RunRequest {
            store: &self.store,
            claimed,
            plan: &plan,
            context: Arc::new(context),
            journal: Journal::read(None),
            control: RunControl::new(),
            clock: self.clock.clone(),
            actor: "service:bench",
            attempts_max: 1,
        };
        let begun = Instant::now();
        let ended = run(request).await;
        let took = begun.elapsed();
        match ended {
            RunOutcome::Finished(completion) if completion.ending == Ending::Completed => {
                self.store.complete(&[completion]).await?;
            }
            ended => anyhow::bail!("the plan did not complete: {ended:?}"),
        }
        for (_, entry) in self.store.entries(work, None, 1000).await? {
            if let (EntryEvent::StepFinished, Some(step), Some(millis)) =
                (entry.event, entry.step, entry.duration_ms)
            {
                steps.entry(step.to_string()).or_default().push(Duration::from_millis(millis));
            }
        }
        Ok(took)
    }
}
