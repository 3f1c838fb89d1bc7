//! A customer's operation and maintenance on one cluster, each by its own service on one store: the operation waits for the
//! manifest's next safe point and no longer, and the manifest goes on behind it.

use std::sync::{Arc, Mutex, PoisonError};

use api::doc::{ProvisioningState, Verb};
use api::work::WorkState;
use maintenance::actuator;
use maintenance::fixture::{ScriptedTasks, manifest};
use steps::engine::{Plan, Step, StepOutcome};
use steps::worker::Timing;
use store::AuditContext;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::environment::{TestEnvironment, eventually};

/// Controls the steps of the manifests: each records its start, waits for permission to finish, and records its end.
#[derive(Debug)]
struct Script {
    events: Mutex<Vec<String>>,
    permits: Semaphore,
}

impl Script {
    fn record(&self, event: String) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    fn events(&self) -> Vec<String> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn has_recorded(&self, event: &str) {
        eventually(event, async || self.events().iter().any(|it| it == event).then_some(())).await;
    }

    /// Permits this number of steps to finish.
    fn permit(&self, steps: usize) {
        self.permits.add_permits(steps);
    }
}

fn plan() -> Plan<Script> {
    let step = |name: &'static str| {
        Step::action(name, move |script: Arc<Script>, _| async move {
            script.record(format!("{name} begins"));
            script.permits.acquire().await.unwrap().forget();
            script.record(format!("{name} ends"));
            Ok(StepOutcome::default())
        })
    };
    // There is no safe point between two and three.
    Plan::new()
        .step(step("one"))
        .step(Step { safe_point: false, ..step("two") })
        .step(step("three"))
        .step(step("four"))
}

/// An actuator in this process, whose every manifest follows the script.
fn actuator(environment: &TestEnvironment, script: &Arc<Script>) -> (CancellationToken, JoinHandle<()>) {
    let deps = actuator::Deps {
        store: environment.store.clone(),
        tasks: Arc::new(ScriptedTasks::new(script.clone(), |_| Ok(plan()))),
        clock: environment.clock.clone(),
        metrics: actuator::Metrics::default(),
        config: actuator::Config { slots: 4, timing: Timing::default() },
        owner: Uuid::new_v4(),
    };
    let stop = CancellationToken::new();
    let ending = stop.clone();
    #[expect(
        clippy::disallowed_methods,
        reason = "the handle is given to the test, and ends with its runtime"
    )]
    let running = tokio::spawn(async move { actuator::run(deps, ending).await.unwrap() });
    (stop, running)
}

async fn request(environment: &TestEnvironment, cluster: Uuid) -> Uuid {
    let manifest = manifest(Uuid::now_v7(), cluster, Uuid::from_u128(1), environment.clock.now());
    let id = manifest.id;
    environment
        .store
        .manifests()
        .create(&[(manifest, Vec::new())], &AuditContext::service("test"))
        .await
        .unwrap();
    id
}

/// A cluster with a running manifest in its second step and a pending one.
struct Scenario {
    environment: TestEnvironment,
    script: Arc<Script>,
    cluster: Uuid,
    running: Uuid,
    pending: Uuid,
}

impl Scenario {
    async fn start() -> Scenario {
        let environment = TestEnvironment::new().await;
        let script = Arc::new(Script { events: Mutex::default(), permits: Semaphore::new(0) });
        environment.backend();
        actuator(&environment, &script);
        let (cluster, operation) = environment.create("shared").await;
        environment.succeeds(operation).await;
        let running = request(&environment, cluster).await;
        let pending = request(&environment, cluster).await;
        script.permit(1);
        script.has_recorded("two begins").await;
        Scenario { environment, script, cluster, running, pending }
    }

    async fn work(&self, id: Uuid) -> store::WorkView {
        self.environment.store.work(id).await.unwrap().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_preempts_a_manifest_at_its_next_safe_point_and_the_manifest_continues_after_it() {
    let scenario = Scenario::start().await;
    let Scenario { environment, script, .. } = &scenario;
    let updated = environment.change(scenario.cluster, Verb::Update, |_| ()).await;
    // The manifest is preempted neither in a step nor between two and three.
    script.permit(1);
    script.has_recorded("three begins").await;
    assert_eq!(
        scenario.work(updated).await.state,
        WorkState::Pending,
        "no other work runs beside the manifest"
    );
    assert_eq!(scenario.work(scenario.running).await.state, WorkState::InProgress);
    script.permit(1);
    environment.succeeds(updated).await;
    let read = environment.cluster(scenario.cluster).await.unwrap().document;
    assert_eq!(read.provisioning_state, ProvisioningState::Succeeded);
    script.has_recorded("four begins").await;
    let began = scenario.work(updated).await.started.unwrap();
    script.permit(100);
    for manifest in [scenario.running, scenario.pending] {
        eventually("the manifest is done", async || {
            let work = scenario.work(manifest).await;
            assert!(!work.state.is_terminal() || work.state == WorkState::Completed, "{work:?}");
            work.state.is_terminal().then_some(())
        })
        .await;
        assert_eq!(scenario.work(manifest).await.attempt, 1, "a preemption costs no attempt");
    }
    let each = ["one", "two", "three", "four"];
    let once: Vec<String> =
        each.iter().flat_map(|step| [format!("{step} begins"), format!("{step} ends")]).collect();
    // The started manifest continued after the operation and before the pending one, and no step ran twice.
    assert_eq!(script.events(), [once.clone(), once].concat());
    let first = scenario.work(scenario.running).await;
    assert!(first.started.unwrap() < began && began < first.finished.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_preempts_maintenance_and_cancels_it() {
    let scenario = Scenario::start().await;
    let Scenario { environment, script, .. } = &scenario;
    let removed = environment.change(scenario.cluster, Verb::Delete, |_| ()).await;
    script.permit(2);
    environment.succeeds(removed).await;
    assert!(environment.cluster(scenario.cluster).await.is_none());
    for manifest in [scenario.running, scenario.pending] {
        eventually("the manifest is cancelled", async || {
            let work = scenario.work(manifest).await;
            work.state.is_terminal().then_some(work)
        })
        .await;
        assert_eq!(scenario.work(manifest).await.state, WorkState::Cancelled);
    }
    assert!(!script.events().contains(&"four begins".to_owned()), "{:?}", script.events());
}
