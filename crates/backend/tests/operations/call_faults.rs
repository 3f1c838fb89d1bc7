//! A kill at every call to the cloud, before its effect and after it: in the plans of operations, and in the tasks of provisioned clusters.
//!
//! A call is known by its verb and subject, since calls of a step are concurrent and arrive in any order: each run of a step is killed at
//! one that was not struck yet, until there is none, or at most [`KILLS_PER_STEP_MAX`] times.
//!
//! The call hangs in the emulator, and the run is dropped there, with its connections. A killed process has forgotten which operations it
//! started, so each run has a new client; it starts from the checkpoint, once the lease of the last one has expired.

use std::sync::Arc;
use std::time::Duration;

use api::clock::{Clock as _, ManualClock, SystemClock};
use api::doc::{Cluster, Verb, secrets};
use api::work::{WorkKind, WorkState};
use backend::{Context, plan};
use cloud::{Registry as _, Vault as _};
use cloudsim::{CloudFault, FaultTiming, SimClient};
use jiff::SignedDuration;
use kubelink::LinksLimits;
use kubelink::kubeconfig::AllowedRisks;
use maintenance::actuator::{Assignment, Provider, TaskCatalog, Tasks as _};
use maintenance::fixture::manifest;
use steps::ClusterConnections;
use steps::engine::{Journal, Plan, RunControl, RunOutcome, RunRequest, run};
use store::{
    AuditContext, ClaimedWork, DesiredState, Keyring, LEASE, Location, NewWork, Options, Store, Transaction,
    WorkView,
};
use uuid::Uuid;

use crate::chaos::{RENEW_IDENTITY, ROTATE_CERTIFICATES};
use crate::customer;
use crate::environment::{SUBSCRIPTION, TestEnvironment};
use crate::step_faults::{IdentityKind, World, begin, immediate_timing, verify};

/// Kills within one step; a step that polls makes calls without end.
const KILLS_PER_STEP_MAX: u32 = 40;
/// How long a call hangs: longer than any test.
const HANG: Duration = Duration::from_secs(3600);
/// Claims that find nothing, one after the other.
const IDLE_CLAIMS_MAX: usize = 10;

pub(crate) struct CallFaultTest {
    pub(crate) environment: TestEnvironment,
    /// A queue of the test's own, as in the tests of faults at steps.
    pub(crate) store: Store,
    clock: Arc<ManualClock>,
    _directory: tempfile::TempDir,
}

impl CallFaultTest {
    pub(crate) async fn new() -> CallFaultTest {
        let environment = TestEnvironment::new().await;
        let directory = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(SystemClock.now());
        let location = Location::Sqlite(directory.path().join("test.db"));
        let options = Options::new(location, Keyring::ephemeral().unwrap(), clock.clone());
        let store = Store::open(options).await.unwrap();
        customer::write_role_sets(&store).await.unwrap();
        CallFaultTest { environment, store, clock, _directory: directory }
    }

    pub(crate) async fn cluster(&self, world: &World) -> Cluster {
        self.store.clusters().get(world.cluster).await.unwrap().unwrap().document
    }

    /// The password of the registry token that is recorded for a cluster.
    async fn registry_password(&self, cluster: Uuid) -> Option<(String, String)> {
        let document = self.store.clusters().get(cluster).await.unwrap()?.document;
        let token = document.provisioned?.record.registry_token?;
        let password = self.store.secret(cluster, secrets::REGISTRY_PASSWORD).await.unwrap()?;
        Some((token.name, String::from_utf8(password.expose().clone()).unwrap()))
    }

    /// Replaces the cluster's password by a second one, with which the registry has no further, and which is due for rotation.
    async fn let_registry_password_be_due(&self, cluster: Uuid) {
        let read = self.store.clusters().get(cluster).await.unwrap().unwrap();
        let mut document = read.document.clone();
        let token = document.provisioned.as_mut().unwrap().record.registry_token.as_mut().unwrap();
        let issued = self.environment.cloud.azure().issue_password(&token.name, token.issued).await.unwrap();
        (token.issued, token.expires) = (issued.token.issued, issued.token.issued);
        let password = issued.password.expose().as_bytes();
        let sealed = self.store.seal(cluster, secrets::REGISTRY_PASSWORD, password).unwrap();
        let by = AuditContext::service("trial");
        let write = Transaction::new().update(&read, &document, DesiredState::Unchanged, &by).unwrap();
        self.store.commit(write.put_secret(sealed)).await.unwrap();
    }

    /// A client that has made no call yet.
    fn client(&self) -> SimClient {
        self.environment.cloud.reconnected().unwrap()
    }

    fn connections(&self) -> ClusterConnections {
        let (limits, allow) = (LinksLimits::default(), AllowedRisks::default());
        ClusterConnections::new(self.store.reader(), limits, allow, self.environment.clock.clone())
    }

    /// The context of the steps of a process that has just started.
    pub(crate) fn context(&self, cluster: Uuid) -> Arc<Context> {
        let client = self.client();
        let mut life = self.environment.life(cluster);
        life.records.store = self.store.clone();
        life.connections = Arc::new(self.connections());
        life.cloud = client.cloud();
        Arc::new(Context::new(life, Arc::new(client.installer()), immediate_timing(), "trial", 1))
    }

    async fn claim(&self) -> ClaimedWork {
        let owner = Uuid::now_v7();
        for _ in 0..IDLE_CLAIMS_MAX {
            let mut claimed = self.store.claim(WorkKind::Manifest, 1, owner).await.unwrap();
            if claimed.is_empty() {
                claimed = self.store.take_over(WorkKind::Manifest, 1, owner).await.unwrap();
            }
            if let Some(claimed) = claimed.pop() {
                return claimed;
            }
            let due = self.store.until_due(WorkKind::Manifest).await.unwrap().unwrap_or(LEASE);
            self.clock.advance(SignedDuration::try_from(due + Duration::from_secs(1)).unwrap());
        }
        panic!("the work cannot be claimed")
    }

    /// Runs work to its end, killed at every call of each step in turn if a moment is given, with `check` after each kill. Returns the
    /// number of kills.
    pub(crate) async fn run<C: Send + Sync + 'static>(
        &self,
        when: Option<FaultTiming>,
        check: impl AsyncFn(),
        prepare: impl AsyncFn(&Journal) -> (Plan<C>, Arc<C>),
    ) -> (u32, WorkView) {
        let id = Uuid::now_v7();
        self.store.enqueue(vec![NewWork::new(id, Uuid::now_v7(), WorkKind::Manifest)]).await.unwrap();
        let millis = u64::try_from(HANG.as_millis()).unwrap();
        let hang = when.map(|when| CloudFault::Delayed { millis, when });
        let (mut kills, mut kills_of_step, mut done) = (0, 0, 0);
        loop {
            let claimed = self.claim().await;
            let journal = Journal::read(claimed.checkpoint.as_ref());
            if journal.done.len() != done {
                (done, kills_of_step) = (journal.done.len(), 0);
                self.environment.faults.forget_struck_calls();
            }
            let (plan, context) = prepare(&journal).await;
            let kill = hang.clone().filter(|_| kills_of_step < KILLS_PER_STEP_MAX);
            let may_kill = kill.is_some();
            if let Some(hang) = kill {
                self.environment.faults.strike_new_call(hang);
            }
            let request = RunRequest {
                store: &self.store,
                claimed: &claimed,
                plan: &plan,
                context,
                journal,
                control: RunControl::new(),
                clock: self.clock.clone(),
                actor: "service:trial",
                attempts_max: if when.is_some() { i32::MAX } else { 1 },
            };
            let ended = tokio::select! {
                ended = run(request) => Some(ended),
                () = self.is_struck(), if may_kill => None,
            };
            if may_kill {
                self.environment.faults.clear();
            }
            match ended {
                None => {
                    (kills, kills_of_step) = (kills + 1, kills_of_step + 1);
                    check().await;
                }
                Some(RunOutcome::Finished(completion)) => {
                    self.store.complete(&[completion]).await.unwrap();
                }
                Some(RunOutcome::Released { yielding, .. }) => self.store.release(yielding).await.unwrap(),
                Some(RunOutcome::LeaseLost) => panic!("the lease was lost though nobody took it"),
            }
            let work = self.store.work(id).await.unwrap().unwrap();
            if work.state.is_terminal() {
                return (kills, work);
            }
        }
    }

    /// Waits until a call hangs.
    async fn is_struck(&self) {
        while self.environment.faults.awaits_new_call() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Kills the plan of an operation at every call.
async fn survives(verb: Verb, form: IdentityKind, when: FaultTiming, kills_min: u32) {
    let test = CallFaultTest::new().await;
    let world = begin(&test.environment, &test.store, verb, form, 0).await;
    if verb == Verb::Update {
        test.let_registry_password_be_due(world.cluster).await;
    }
    let before = test.registry_password(world.cluster).await;
    let accepts =
        |(token, password): &(String, String)| test.environment.registry.accepts(token, password).unwrap();
    let check = async || {
        if verb == Verb::Delete {
            return;
        }
        let recorded = test.registry_password(world.cluster).await;
        assert!(recorded.as_ref().is_none_or(accepts), "the recorded registry password was replaced");
        // The cluster uses it until its pull secret is configured.
        assert!(before.as_ref().is_none_or(accepts), "the cluster's registry password was replaced");
    };
    let prepare = async |_: &Journal| {
        let cluster = test.cluster(&world).await;
        (plan::for_verb(verb, &cluster, immediate_timing()), test.context(world.cluster))
    };
    let (kills, work) = test.run(Some(when), &check, prepare).await;
    assert_eq!(work.state, WorkState::Completed, "{:?}", work.result);
    assert!(kills >= kills_min, "only {kills} calls were struck");
    match verb {
        Verb::Delete => {
            let left = test.environment.remaining_resources(&world.name, world.cluster, SUBSCRIPTION).await;
            assert_eq!(left, Vec::<String>::new());
        }
        Verb::Create | Verb::Update | Verb::AdminUpdate => {
            verify(&test.environment, &world, verb).await.unwrap();
            let recorded = test.registry_password(world.cluster).await;
            assert!(recorded.as_ref().is_some_and(accepts), "the recorded registry password is not accepted");
            assert_ne!(recorded, before, "the registry password was not rotated");
            check().await;
        }
    }
}

/// Kills a task on a provisioned cluster at every call.
async fn task_survives(task: Uuid, form: IdentityKind, when: FaultTiming) {
    let test = CallFaultTest::new().await;
    let world = begin(&test.environment, &test.store, Verb::Update, form, 0).await;
    let vault = test.environment.cloud.azure();
    let renewed = vault.renew_certificate(&format!("{}-apiserver", world.cluster), None).await.unwrap();
    let requested = manifest(Uuid::now_v7(), world.cluster, task, test.clock.now());
    let prepare = async |journal: &Journal| {
        let cloud = test.client().cloud();
        let provider =
            Provider { vault: cloud.vault, identities: cloud.identities, store: test.store.clone() };
        let tasks = TaskCatalog::new(test.store.reader(), test.connections(), test.clock.clone());
        let document = test.cluster(&world).await;
        let assignment = Assignment {
            manifest: &requested,
            cluster: world.cluster,
            document: &document,
            health: None,
            journal,
        };
        let prepared = tasks.with_provider(provider).prepare(assignment).await.unwrap();
        (prepared.plan, prepared.context)
    };
    let (kills, work) = test.run(Some(when), async || {}, prepare).await;
    assert_eq!(work.state, WorkState::Completed, "{:?}", work.result);
    assert!(kills >= 2, "only {kills} calls were struck");
    let record = test.cluster(&world).await.provisioned.unwrap().record;
    if task == ROTATE_CERTIFICATES {
        assert_eq!(record.api_certificate_expires, renewed.not_after);
    } else {
        assert!(record.identity_certificate_expires.is_some());
    }
}

/// Both moments of a kill, in tests of their own, so that they run beside each other.
macro_rules! call_fault_tests {
    ($($module:ident: $test:ident($($argument:expr),*) $(, $kills_min:literal)?;)*) => {
        $(mod $module {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn survives_a_kill_before_the_effect_of_every_call() {
                $test($($argument,)* FaultTiming::Before $(, $kills_min)?).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn survives_a_kill_after_the_effect_of_every_call() {
                $test($($argument,)* FaultTiming::After $(, $kills_min)?).await;
            }
        })*
    };
}

call_fault_tests! {
    a_create: survives(Verb::Create, IdentityKind::Principal), 100;
    a_create_with_identities: survives(Verb::Create, IdentityKind::Workload), 100;
    an_update: survives(Verb::Update, IdentityKind::Workload), 50;
    a_delete: survives(Verb::Delete, IdentityKind::Workload), 50;
    rotate_certificates: task_survives(ROTATE_CERTIFICATES, IdentityKind::Principal);
    renew_identity_certificate: task_survives(RENEW_IDENTITY, IdentityKind::Workload);
}
