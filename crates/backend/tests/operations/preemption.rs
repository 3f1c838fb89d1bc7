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

use crate::site::{Site, eventually};

/// What the steps of the manifests do: they say that they began, wait for leave to end, and say that they have.
#[derive(Debug)]
struct Script {
    told: Mutex<Vec<String>>,
    leave: Semaphore,
}

impl Script {
    fn tell(&self, what: String) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn has_told(&self, what: &str) {
        eventually(what, async || self.told().iter().any(|it| it == what).then_some(())).await;
    }

    /// So many steps may come to their ends.
    fn let_end(&self, steps: usize) {
        self.leave.add_permits(steps);
    }
}

fn plan() -> Plan<Script> {
    let step = |name: &'static str| {
        Step::action(name, move |script: Arc<Script>, _| async move {
            script.tell(format!("{name} begins"));
            script.leave.acquire().await.unwrap().forget();
            script.tell(format!("{name} ends"));
            Ok(StepOutcome::default())
        })
    };
    // Between two and three no author of this plan would leave the cluster.
    Plan::new()
        .step(step("one"))
        .step(Step { safe_point: false, ..step("two") })
        .step(step("three"))
        .step(step("four"))
}

/// An actuator in this process, whose every manifest follows the script.
fn actuator(site: &Site, script: &Arc<Script>) -> (CancellationToken, JoinHandle<()>) {
    let deps = actuator::Deps {
        store: site.store.clone(),
        tasks: Arc::new(ScriptedTasks::new(script.clone(), |_| Ok(plan()))),
        clock: site.clock.clone(),
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

async fn ask(site: &Site, cluster: Uuid) -> Uuid {
    let asked = manifest(Uuid::now_v7(), cluster, Uuid::from_u128(1), site.clock.now());
    let id = asked.id;
    site.store.manifests().create(&[(asked, Vec::new())], &AuditContext::service("test")).await.unwrap();
    id
}

/// A cluster with a manifest in its second step, and who works on both.
struct Scene {
    site: Site,
    script: Arc<Script>,
    cluster: Uuid,
    running: Uuid,
    pending: Uuid,
}

impl Scene {
    async fn set() -> Scene {
        let site = Site::new().await;
        let script = Arc::new(Script { told: Mutex::default(), leave: Semaphore::new(0) });
        site.backend();
        actuator(&site, &script);
        let (cluster, made) = site.create("shared").await;
        site.succeeds(made).await;
        let running = ask(&site, cluster).await;
        let pending = ask(&site, cluster).await;
        script.let_end(1);
        script.has_told("two begins").await;
        Scene { site, script, cluster, running, pending }
    }

    async fn work(&self, id: Uuid) -> store::WorkView {
        self.site.store.work(id).await.unwrap().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_goes_ahead_of_a_manifest_at_its_next_safe_point_and_the_manifest_goes_on_behind_it() {
    let scene = Scene::set().await;
    let Scene { site, script, .. } = &scene;
    let updated = site.change(scene.cluster, Verb::Update, |_| ()).await;
    // Neither in a step nor between two and three is the cluster left.
    script.let_end(1);
    script.has_told("three begins").await;
    assert_eq!(scene.work(updated).await.state, WorkState::Pending, "nobody works beside the manifest");
    assert_eq!(scene.work(scene.running).await.state, WorkState::InProgress);
    script.let_end(1);
    site.succeeds(updated).await;
    let read = site.cluster(scene.cluster).await.unwrap().document;
    assert_eq!(read.provisioning_state, ProvisioningState::Succeeded);
    script.has_told("four begins").await;
    let began = scene.work(updated).await.started.unwrap();
    script.let_end(100);
    for manifest in [scene.running, scene.pending] {
        eventually("the manifest is done", async || {
            let work = scene.work(manifest).await;
            assert!(!work.state.is_terminal() || work.state == WorkState::Completed, "{work:?}");
            work.state.is_terminal().then_some(())
        })
        .await;
        assert_eq!(scene.work(manifest).await.attempt, 1, "to step aside costs no attempt");
    }
    let each = ["one", "two", "three", "four"];
    let once: Vec<String> =
        each.iter().flat_map(|step| [format!("{step} begins"), format!("{step} ends")]).collect();
    // The begun manifest went on behind the operation and before the fresh one, and no step of either was done again.
    assert_eq!(script.told(), [once.clone(), once].concat());
    let first = scene.work(scene.running).await;
    assert!(first.started.unwrap() < began && began < first.finished.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_goes_ahead_of_maintenance_and_withdraws_it() {
    let scene = Scene::set().await;
    let Scene { site, script, .. } = &scene;
    let removed = site.change(scene.cluster, Verb::Delete, |_| ()).await;
    script.let_end(2);
    site.succeeds(removed).await;
    assert!(site.cluster(scene.cluster).await.is_none());
    for manifest in [scene.running, scene.pending] {
        eventually("the manifest is withdrawn", async || {
            let work = scene.work(manifest).await;
            work.state.is_terminal().then_some(work)
        })
        .await;
        assert_eq!(scene.work(manifest).await.state, WorkState::Cancelled);
    }
    assert!(!script.told().contains(&"four begins".to_owned()), "{:?}", script.told());
}
