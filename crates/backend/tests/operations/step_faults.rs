//! Every fault at every step of every plan, on the simulated cloud, for both kinds of identity.
//!
//! Faults that the work survives are injected at every step of one run. Faults that end the work are injected at each step in turn,
//! and the plan is restarted on the resources that the last failure left, so that it also handles partial results. After a failure
//! it restarts from its first step; after a panic or a cancellation it continues from its checkpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use api::clock::{Clock as _, ManualClock, SystemClock};
use api::doc::{Identity, ProvisioningState, StepName, Verb, secrets};
use backend::{Context, OperationTiming, plan};
use cloud::{Infrastructure as _, Properties, ResourceId, ResourceKind};
use futures_util::future::BoxFuture;
use steps::engine::Journal;
use steps::engine::fault_harness::{FaultHarness, StepFault};
use store::{Keyring, Location, Options, Store};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::customer;
use crate::environment::{SUBSCRIPTION, TestEnvironment};
use crate::service::{quick_timing, service};

/// Faults that all work survives; a removal survives a panic too.
const SURVIVED: [StepFault; 8] = [
    StepFault::None,
    StepFault::Twice,
    StepFault::CrashBefore,
    StepFault::CrashAfter,
    StepFault::Transient,
    StepFault::Unreachable,
    StepFault::Preempt,
    StepFault::Halt,
];

/// Timing for a cloud that completes everything at once.
pub(crate) fn immediate_timing() -> OperationTiming {
    let instant = Duration::from_millis(3);
    OperationTiming {
        poll_interval: instant,
        retry_delay: instant,
        propagation_interval: instant,
        // A crash costs a minute of the test's clock.
        install_timeout: Duration::from_secs(24 * 3600),
        ..quick_timing()
    }
}

/// Where a plan restarts after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restart {
    FromFirstStep,
    FromCheckpoint,
}

/// Kind of identity of the clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdentityKind {
    Principal,
    Workload,
}

pub(crate) struct World {
    context: Arc<Context>,
    pub(crate) cluster: Uuid,
    pub(crate) name: String,
}

/// The fault test of one plan.
struct FaultTest {
    harness: FaultHarness<Context>,
    /// Whether the next plan starts on a new cluster.
    fresh: Arc<AtomicBool>,
    _directory: tempfile::TempDir,
}

impl FaultTest {
    async fn new(verb: Verb, form: IdentityKind) -> FaultTest {
        let environment = Arc::new(TestEnvironment::new().await);
        // The test has a queue of its own: the environment's backend prepares clusters and must not claim the work under test.
        let directory = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(SystemClock.now());
        let location = Location::Sqlite(directory.path().join("test.db"));
        let store =
            Store::open(Options::new(location, Keyring::ephemeral().unwrap(), clock.clone())).await.unwrap();
        customer::write_role_sets(&store).await.unwrap();
        let world: Arc<Mutex<Option<World>>> = Arc::default();
        let count = Arc::new(AtomicUsize::new(0));
        let fresh = Arc::new(AtomicBool::new(true));
        let (making, wanted, theirs) = (world.clone(), fresh.clone(), store.clone());
        let base = environment.clone();
        let make = move || -> BoxFuture<'static, _> {
            let (world, fresh, store) = (making.clone(), wanted.clone(), theirs.clone());
            let (environment, count) = (base.clone(), count.clone());
            Box::pin(async move {
                let mut world = world.lock().await;
                if fresh.swap(false, Ordering::SeqCst) {
                    match &*world {
                        // An updated cluster can be updated again.
                        Some(world) if verb == Verb::Update => turn(&store, world).await,
                        _ => {
                            let nth = count.fetch_add(1, Ordering::SeqCst);
                            *world = Some(begin(&environment, &store, verb, form, nth).await);
                        }
                    }
                }
                let world = world.as_ref().unwrap();
                let cluster = store.clusters().get(world.cluster).await.unwrap().unwrap().document;
                (plan::for_verb(verb, &cluster, immediate_timing()), world.context.clone())
            })
        };
        let done = move |_: Arc<Context>| -> BoxFuture<'static, Result<(), String>> {
            let (world, environment) = (world.clone(), environment.clone());
            Box::pin(async move {
                let world = world.lock().await;
                let world = world.as_ref().unwrap();
                match verb {
                    Verb::Delete => {
                        let left =
                            environment.remaining_resources(&world.name, world.cluster, SUBSCRIPTION).await;
                        if left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:?}")) }
                    }
                    Verb::Create | Verb::Update | Verb::AdminUpdate => {
                        verify(&environment, world, verb).await
                    }
                }
            })
        };
        let undone =
            |_: Arc<Context>| -> BoxFuture<'static, Result<(), String>> { Box::pin(async { Ok(()) }) };
        let (make, done, undone) = (Box::new(make), Box::new(done), Box::new(undone));
        FaultTest { harness: FaultHarness { store, clock, make, done, undone }, fresh, _directory: directory }
    }

    /// Injects each fault at every step of a run that completes.
    async fn survives(self, faults: &[StepFault]) {
        for fault in faults {
            self.fresh.store(true, Ordering::SeqCst);
            let account = self.harness.run_along(*fault).await;
            assert!(account.ran.len() > 10, "{fault:?}: {:?}", account.ran.keys());
        }
    }

    /// Injects the fault at each step in turn; each run restarts from the checkpoint or from the first step.
    async fn fails_at_each_step(self, fault: StepFault, restart: Restart) {
        let steps: Vec<StepName> =
            (self.harness.make)().await.0.steps.into_iter().map(|step| step.name).collect();
        let mut done = Vec::new();
        for step in &steps {
            let planned = (self.harness.make)().await.0;
            if !planned.steps.iter().any(|it| it.name == *step) {
                // Earlier runs made this step unnecessary.
                self.fresh.store(true, Ordering::SeqCst);
                done.clear();
            }
            let account = self.harness.run_one_after(done, step, fault).await;
            done = match restart {
                Restart::FromFirstStep => Vec::new(),
                Restart::FromCheckpoint => Journal::read(account.work.checkpoint.as_ref()).done,
            };
        }
    }
}

/// Verifies that a cluster has all of its resources, each once.
pub(crate) async fn verify(environment: &TestEnvironment, world: &World, verb: Verb) -> Result<(), String> {
    let store = &world.context.life.records.store;
    let cluster = store.clusters().get(world.cluster).await.unwrap().unwrap().document;
    let provisioned = cluster.provisioned.unwrap();
    let (spec, record) = (&provisioned.spec, &provisioned.record);
    let infra_id = record.infra_id.clone().ok_or("it has no infra id")?;
    let same = |what: &str, is: String, expect: String| {
        if is == expect { Ok(()) } else { Err(format!("{what}: {is}, expected {expect}")) }
    };
    let managed = ResourceId::group(SUBSCRIPTION, &format!("aro-{}", world.name));
    let held = environment.cloud.azure().list(&managed).await.unwrap();
    let named = |kind: ResourceKind| {
        let mut names: Vec<String> = held
            .iter()
            .filter(|it| it.properties.kind() == kind)
            .map(|it| it.id.name().replace(&infra_id, "ID"))
            .collect();
        names.sort();
        names
    };
    let machines = named(ResourceKind::Machine);
    same("machines", machines.len().to_string(), "5".to_owned())?;
    let foreign = machines.iter().find(|it| !it.starts_with("ID-") || it.contains("bootstrap"));
    same("machines that should not be", format!("{foreign:?}"), "None".to_owned())?;
    same("disks", named(ResourceKind::Disk).len().to_string(), "5".to_owned())?;
    same("load balancers", named(ResourceKind::LoadBalancer).join(" "), "ID ID-internal".to_owned())?;
    same("security groups", named(ResourceKind::SecurityGroup).join(" "), "ID-nsg".to_owned())?;
    same("storage accounts", named(ResourceKind::StorageAccount).len().to_string(), "2".to_owned())?;
    let subnets = spec.workers.iter().map(|it| &it.subnet_id).chain([&spec.master.subnet_id]);
    let mut subnets: Vec<String> = subnets.map(|it| it.to_lowercase()).collect();
    subnets.sort();
    for resource in &held {
        match &resource.properties {
            Properties::StorageAccount { allowed_subnets, .. } => {
                let mut allowed: Vec<String> = allowed_subnets.iter().map(ResourceId::key).collect();
                allowed.sort();
                same("subnets with access", format!("{allowed:?}"), format!("{subnets:?}"))?;
            }
            Properties::LoadBalancer { frontends, .. } if resource.id.name().ends_with("-internal") => {
                let mut ports = frontends[0].ports.clone();
                ports.sort_unstable();
                same("internal ports", format!("{ports:?}"), "[2200, 2201, 2202, 6443, 22623]".to_owned())?;
            }
            _ => {}
        }
    }
    // The outbound addresses are the desired ones, the load balancer uses them, and they are recorded.
    let wanted = spec.network.managed_outbound_ips.unwrap_or(1);
    let further: Vec<String> = (2..=wanted).map(|nth| format!("ID-outbound-pip-v4-{nth}")).collect();
    let addresses = ["ID-default-v4".to_owned()].into_iter().chain(further).chain(["ID-pip-v4".to_owned()]);
    same("addresses", named(ResourceKind::PublicIp).join(" "), addresses.collect::<Vec<_>>().join(" "))?;
    let outbound = held.iter().find_map(|it| match &it.properties {
        Properties::LoadBalancer { outbound, .. } if it.id.name() == infra_id => Some(outbound.len()),
        _ => None,
    });
    let recorded = Some(record.effective_outbound_ips.len());
    same("outbound", format!("{:?}", (outbound, recorded)), format!("{:?}", (Some(wanted), Some(wanted))))?;
    let own = environment.cloud.azure().list(&service().group_id()).await.unwrap();
    let leads = |name: String| own.iter().filter(|it| it.id.name() == name).count();
    let names = (leads(format!("api.{}", world.name)), leads(format!("*.apps.{}", world.name)));
    same("names", format!("{names:?}"), "(1, 1)".to_owned())?;
    let endpoints = own
        .iter()
        .filter(|it| it.properties.kind() == ResourceKind::PrivateEndpoint)
        .filter(|it| it.id.name().contains(&world.cluster.to_string()))
        .count();
    same("private endpoints", endpoints.to_string(), "1".to_owned())?;
    let certificates = environment.cloud.azure().certificates().await.unwrap();
    let ours = certificates.iter().filter(|it| it.name.starts_with(&world.cluster.to_string())).count();
    same("certificates", ours.to_string(), "2".to_owned())?;
    let token = record.registry_token.as_ref().map(|it| it.name.clone());
    let tokens = environment.cloud.azure().tokens().await.unwrap();
    let tokens = tokens.iter().filter(|it| Some(&it.name) == token.as_ref()).count();
    same("tokens", tokens.to_string(), "1".to_owned())?;
    let issuers = environment.cloud.cloud().issuers.unwrap();
    let cluster = world.cluster.to_string();
    let uses_issuer = matches!(spec.identity, Identity::Workload { .. });
    // A cluster that is updated was created under another id.
    if verb == Verb::Create {
        let published = issuers.is_published(&cluster).await.map_err(|error| error.to_string())?;
        same("published issuer", published.to_string(), uses_issuer.to_string())?;
        let expected = uses_issuer.then(|| issuers.issuer(&cluster));
        same("issuer", format!("{:?}", record.oidc_issuer), format!("{expected:?}"))?;
    }
    let pools: u32 = record.workers.iter().map(|it| it.count).sum();
    same("workers that were seen", pools.to_string(), "2".to_owned())?;
    if verb == Verb::Create {
        for name in [
            secrets::KUBECONFIG,
            secrets::CUSTOMER_KUBECONFIG,
            secrets::KUBEADMIN_PASSWORD,
            secrets::SSH_KEY,
            secrets::REGISTRY_PASSWORD,
        ] {
            let sealed = store.secret(world.cluster, name).await.unwrap().is_some();
            same(name, sealed.to_string(), "true".to_owned())?;
        }
        let billed = store.billing().find(&format!("/billing/{}", world.cluster)).await.unwrap();
        let open = billed.map(|it| it.document.deletion_time.is_none());
        same("an open billing record", format!("{open:?}"), "Some(true)".to_owned())?;
    }
    Ok(())
}

/// A cluster that is about to go through the plan, in the trial's own store.
pub(crate) async fn begin(
    environment: &TestEnvironment,
    store: &Store,
    verb: Verb,
    form: IdentityKind,
    nth: usize,
) -> World {
    let name = format!("t{nth}");
    let by = store::AuditContext::service("trial");
    let now = environment.clock.now();
    let (mut document, brought) = match form {
        IdentityKind::Principal => {
            customer::prepare(&environment.cloud, SUBSCRIPTION, &name, now).await.unwrap()
        }
        IdentityKind::Workload => {
            customer::prepare_workload(&environment.cloud, SUBSCRIPTION, &name, now).await.unwrap()
        }
    };
    // Smaller than any that customers may have: fewer machines, the same steps.
    document.provisioned.as_mut().unwrap().spec.workers[0].count = 2;
    let mut id = Uuid::now_v7();
    let mut sealed: Vec<(&str, Vec<u8>)> =
        brought.iter().map(|(name, secret)| (*name, secret.expose().clone())).collect();
    if verb != Verb::Create {
        let mut deps = environment.deps();
        deps.config.operation_timing = immediate_timing();
        let (stop, backend) = environment.backend_with(deps);
        let (made, operation) =
            customer::create(&environment.store, &document, &brought, &*environment.clock).await.unwrap();
        environment.succeeds(operation).await;
        stop.cancel();
        backend.await.unwrap();
        (id, document) = (made, environment.cluster(made).await.unwrap().document);
        document.provisioning_state = ProvisioningState::Updating;
        document.provisioned.as_mut().unwrap().spec.network.managed_outbound_ips = Some(2);
        for name in [secrets::KUBECONFIG, secrets::REGISTRY_PASSWORD] {
            let secret = environment.store.secret(id, name).await.unwrap().unwrap();
            sealed.push((name, secret.expose().clone()));
        }
    }
    let is_workload =
        matches!(document.provisioned.as_ref().unwrap().spec.identity, Identity::Workload { .. });
    assert_eq!(is_workload, form == IdentityKind::Workload);
    let mut write = store::Transaction::new().create(id, &document, &by).unwrap();
    for (name, secret) in &sealed {
        write = write.put_secret(store.seal(id, name, secret).unwrap());
    }
    store.commit(write).await.unwrap();
    let mut life = environment.life(id);
    life.records.store = store.clone();
    let limits = kubelink::LinksLimits::default();
    let allow = kubelink::kubeconfig::AllowedRisks::default();
    life.connections =
        Arc::new(steps::ClusterConnections::new(store.reader(), limits, allow, environment.clock.clone()));
    let installer = Arc::new(environment.cloud.installer());
    let context = Arc::new(Context::new(life, installer, immediate_timing(), "trial", 1));
    World { context, cluster: id, name }
}

/// Asks for another number of addresses than a cluster has.
async fn turn(store: &Store, world: &World) {
    let read = store.clusters().get(world.cluster).await.unwrap().unwrap();
    let mut wanted = read.document.clone();
    let provisioned = wanted.provisioned.as_mut().unwrap();
    let has = provisioned.record.effective_outbound_ips.len();
    provisioned.spec.network.managed_outbound_ips = Some(if has == 2 { 1 } else { 2 });
    let by = store::AuditContext::service("trial");
    let write = store::Transaction::new().update(&read, &wanted, store::DesiredState::Changed, &by).unwrap();
    store.commit(write).await.unwrap();
}

/// A module of trials for each plan, so that they run beside each other.
macro_rules! fault_tests {
    ($($module:ident: $verb:ident $form:ident;)*) => {
        $(mod $module {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn survives_crashes() {
                FaultTest::new(Verb::$verb, IdentityKind::$form).await.survives(&SURVIVED[..4]).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn survives_interruptions() {
                FaultTest::new(Verb::$verb, IdentityKind::$form).await.survives(&SURVIVED[4..]).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn can_be_restarted_after_a_failure_at_each_step() {
                FaultTest::new(Verb::$verb, IdentityKind::$form).await.fails_at_each_step(StepFault::Terminal, Restart::FromFirstStep).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn continues_after_a_panic_at_each_step() {
                let test = FaultTest::new(Verb::$verb, IdentityKind::$form).await;
                match Verb::$verb {
                    // A removal is retried by itself.
                    Verb::Delete => test.survives(&[StepFault::Panic]).await,
                    _ => test.fails_at_each_step(StepFault::Panic, Restart::FromCheckpoint).await,
                }
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn continues_after_a_cancellation_at_each_step() {
                FaultTest::new(Verb::$verb, IdentityKind::$form).await.fails_at_each_step(StepFault::Cancel, Restart::FromCheckpoint).await;
            }
        })*
    };
}

fault_tests! {
    a_create: Create Principal;
    a_create_with_identities: Create Workload;
    an_update: Update Principal;
    an_update_with_identities: Update Workload;
    a_delete: Delete Principal;
    a_delete_with_identities: Delete Workload;
}
