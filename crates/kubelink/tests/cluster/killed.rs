//! Verbs whose process is killed with SIGKILL: before and after each request, and at random moments. Another process continues
//! them.

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams, ResourceExt};
use kubelink::ProgressSink;
use kubelink::apply::PART_OF;
use kubelink::cordon::cordoned_by;
use kubelink::wait::{ObjectSelection, WaitStatus, wait};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use testkit::process::{ChildProcess, example_path};

use crate::drain::{LIMIT, is_cordoned, pods_on};
use crate::support::{Kubelet, World, world, world_of};

const SOON: Duration = Duration::from_secs(60);
const HOLDER: Option<&str> = Some("manifest-1");

/// Starts verbs on one cluster, each in a process of its own.
struct VerbRunner {
    kubeconfig: NamedTempFile,
    namespace: String,
}

/// The state of a process when it was killed.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Held,
    Done { requests: usize, outcome: String },
}

impl VerbRunner {
    fn new(kubeconfig: &str, world: &World) -> VerbRunner {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(kubeconfig.as_bytes()).unwrap();
        VerbRunner { kubeconfig: file, namespace: world.namespace.clone() }
    }

    fn start(&self, hold: &str, verb: &[&str]) -> ChildProcess {
        let mut command = Command::new(example_path("verb").unwrap());
        command.arg(self.kubeconfig.path()).args([&self.namespace, hold]).args(verb);
        ChildProcess::start(command).unwrap()
    }

    /// Runs a verb until it returns: the number of its requests, and its outcome.
    async fn run(&self, verb: &[&str]) -> (usize, String) {
        match self.end(self.start("never", verb)).await {
            End::Done { requests, outcome } => (requests, outcome),
            End::Held => panic!("{verb:?} was held though nobody asked for it"),
        }
    }

    /// Runs a verb until it is held, or is done because it needed fewer requests this time; then kills it.
    async fn kill_at(&self, hold: &str, verb: &[&str]) -> End {
        self.end(self.start(hold, verb)).await
    }

    async fn end(&self, mut child: ChildProcess) -> End {
        tokio::task::spawn_blocking(move || {
            let line = child.line(SOON).unwrap();
            child.kill9().unwrap();
            match line.split_whitespace().collect::<Vec<_>>().as_slice() {
                ["held", _] => End::Held,
                ["done", requests, outcome @ ..] => {
                    End::Done { requests: requests.parse().unwrap(), outcome: outcome.join(" ") }
                }
                _ => panic!("{line}"),
            }
        })
        .await
        .unwrap()
    }
}

/// The shared real cluster.
fn runner(prefix: &str) -> Option<(World, VerbRunner)> {
    let world = world(prefix)?;
    let runner = VerbRunner::new(testkit::kube::shared()?.kubeconfig(), &world);
    Some((world, runner))
}

/// Before and after each of `requests`.
fn holds(requests: usize) -> impl Iterator<Item = String> {
    (1..=requests).flat_map(|number| [format!("before:{number}"), format!("after:{number}")])
}

/// Draws moments in milliseconds; assertion messages contain the seed.
fn moments(seed: u64, count: usize, most: u64) -> Vec<Duration> {
    let mut state = seed;
    let draw = |_| {
        // Steele, Lea and Flood's splitmix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Duration::from_millis((z ^ (z >> 31)) % most)
    };
    (0..count).map(draw).collect()
}

async fn fill(world: &World, node: &str, owner: &Value) {
    for index in 0..3 {
        world.pod(node, &format!("web-{index}"), Some(owner)).await;
    }
}

/// After a kill, a cordon has its record, which the next process can find.
async fn assert_on_record(world: &World, node: &str, when: &str) {
    let (cordoned, holder) = is_cordoned(world, node).await;
    assert_eq!(holder.as_deref(), HOLDER.filter(|_| cordoned), "{when}: a cordon without a record");
    let found = cordoned_by(&world.link, "manifest-1").await.unwrap();
    assert_eq!(found.iter().any(|it| it == node), cordoned, "{when}");
}

/// A second process finishes the drain, and a third removes the cordon.
async fn finish_drain(world: &World, runner: &VerbRunner, node: &str, when: &str) {
    runner.run(&["drain", node]).await;
    assert!(pods_on(world, node).await.is_empty(), "{when}");
    assert_eq!(is_cordoned(world, node).await, (true, HOLDER.map(str::to_owned)), "{when}");
    runner.run(&["uncordon", node]).await;
    assert_eq!(is_cordoned(world, node).await, (false, None), "{when}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_killed_at_any_request_is_finished_by_another_process() {
    let Some((world, runner)) = runner("kill-drain") else { return };
    let node = world.node("a").await;
    let owner = world.owner().await;
    let _kubelet = Kubelet::start(world.client(), &node);
    fill(&world, &node, &owner).await;
    let (whole, _) = runner.run(&["drain", &node]).await;
    runner.run(&["uncordon", &node]).await;
    assert!(whole >= 7, "a list, a watch, two of the node, three evictions: {whole}");
    for hold in holds(whole) {
        fill(&world, &node, &owner).await;
        runner.kill_at(&hold, &["drain", &node]).await;
        assert_on_record(&world, &node, &hold).await;
        finish_drain(&world, &runner, &node, &hold).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_killed_at_any_moment_is_finished_by_another_process() {
    let Some((world, runner)) = runner("kill-moment") else { return };
    let node = world.node("a").await;
    let owner = world.owner().await;
    let _kubelet = Kubelet::start(world.client(), &node);
    // From the start of the process to a little after its end.
    let begun = Instant::now();
    fill(&world, &node, &owner).await;
    runner.run(&["drain", &node]).await;
    let whole = u64::try_from(begun.elapsed().as_millis()).unwrap();
    runner.run(&["uncordon", &node]).await;
    for moment in moments(0x5eed, 12, whole + whole / 4 + 1) {
        fill(&world, &node, &owner).await;
        let mut child = runner.start("never", &["drain", &node]);
        tokio::time::sleep(moment).await;
        child.kill9().unwrap();
        let when = format!("killed {moment:?} after its start");
        assert_on_record(&world, &node, &when).await;
        finish_drain(&world, &runner, &node, &when).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_killed_during_faults_is_finished_when_they_are_over() {
    use kubesim::faults::Fault;

    let sim = kubesim::SimulatedCluster::start("sim", kubesim::ClusterOptions::default()).await.unwrap();
    let world = world_of(&sim);
    let runner = VerbRunner::new(&sim.kubeconfig(), &world);
    let node = world.node("a").await;
    let owner = world.owner().await;
    let _kubelet = Kubelet::start(world.client(), &node);
    let faults = [
        Fault::Latency(Duration::from_millis(50)),
        Fault::TooManyRequests { retry_after_seconds: 1 },
        Fault::InternalError,
        Fault::ConnectionReset,
    ];
    for (index, moment) in moments(0xfa17, 12, 400).into_iter().enumerate() {
        fill(&world, &node, &owner).await;
        let fault = faults[index % faults.len()];
        sim.faults().on_path(fault, "/eviction", Some(4));
        sim.faults().on_path(fault, "/nodes/", Some(1));
        let mut child = runner.start("never", &["drain", &node]);
        tokio::time::sleep(moment).await;
        sim.faults().drop_watches();
        child.kill9().unwrap();
        sim.faults().clear();
        let when = format!("{fault:?}, killed {moment:?} after its start");
        assert_on_record(&world, &node, &when).await;
        finish_drain(&world, &runner, &node, &when).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_killed_at_any_request_is_complete_or_absent() {
    let Some((world, runner)) = runner("kill-cordon") else { return };
    let node = world.node("a").await;
    let (cordoning, _) = runner.run(&["cordon", &node]).await;
    let (uncordoning, _) = runner.run(&["uncordon", &node]).await;
    for hold in holds(cordoning) {
        runner.kill_at(&hold, &["cordon", &node]).await;
        assert_on_record(&world, &node, &hold).await;
        runner.run(&["cordon", &node]).await;
        assert_eq!(is_cordoned(&world, &node).await, (true, HOLDER.map(str::to_owned)), "{hold}");
        runner.run(&["uncordon", &node]).await;
    }
    for hold in holds(uncordoning) {
        runner.run(&["cordon", &node]).await;
        runner.kill_at(&hold, &["uncordon", &node]).await;
        assert_on_record(&world, &node, &hold).await;
        runner.run(&["uncordon", &node]).await;
        assert_eq!(is_cordoned(&world, &node).await, (false, None), "{hold}");
    }
}

fn documents(objects: &[(&str, &str)]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    for (name, value) in objects {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}});
        writeln!(file, "---\n{map}").unwrap();
    }
    file
}

async fn members(world: &World) -> Vec<(String, String)> {
    let found = world.api::<ConfigMap>().list(&ListParams::default().labels(PART_OF)).await.unwrap();
    let value =
        |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("key").cloned()).unwrap_or_default();
    found.items.iter().map(|map| (map.name_any(), value(map))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_killed_at_any_request_reports_no_success_and_is_finished_by_another_process() {
    let Some((world, runner)) = runner("kill-apply") else { return };
    let old = documents(&[("a", "1"), ("gone-1", "1"), ("gone-2", "1")]);
    let new = documents(&[("a", "2"), ("b", "2")]);
    let none = documents(&[]);
    let verb = |file: &NamedTempFile| ["apply".into(), "set".into(), file.path().display().to_string()];
    let run = async |file: &NamedTempFile| {
        let [apply, set, path] = verb(file);
        runner.run(&[&apply, &set, &path]).await.0
    };
    let expect = [("a".to_owned(), "2".to_owned()), ("b".to_owned(), "2".to_owned())];
    run(&old).await;
    let whole = run(&new).await;
    assert!(whole > 8, "{whole}");
    for hold in holds(whole) {
        run(&old).await;
        let [apply, set, path] = verb(&new);
        let end = runner.kill_at(&hold, &[&apply, &set, &path]).await;
        if let End::Done { .. } = end {
            assert_eq!(members(&world).await, expect, "{hold}: it reported a success that was none");
        }
        run(&new).await;
        assert_eq!(members(&world).await, expect, "{hold}");
    }
    run(&none).await;
    assert_eq!(members(&world).await, [], "nothing is left that no set names");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_killed_at_any_request_happens_once() {
    let Some((world, runner)) = runner("kill-restart") else { return };
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "w"}},
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "example.invalid/c"}]}}}});
    let _: Deployment = world.create(world.api(), deployment).await;
    let generation = async || {
        let seen: Deployment = world.api().get("web").await.unwrap();
        seen.metadata.generation.unwrap()
    };
    let (whole, _) = runner.run(&["restart", "web", "run-0"]).await;
    for (index, hold) in holds(whole).enumerate() {
        let before = generation().await;
        let run = format!("run-{}", index + 1);
        runner.kill_at(&hold, &["restart", "web", &run]).await;
        runner.run(&["restart", "web", &run]).await;
        assert_eq!(generation().await, before + 1, "{hold}: one run, one restart");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_killed_at_any_request_runs_once() {
    let Some((world, runner)) = runner("kill-job") else { return };
    if !testkit::kube::shared().unwrap().has_controllers() {
        return testkit::prerequisites::skip(
            testkit::prerequisites::KUBERNETES_CONTROLLERS,
            "nobody makes pods of jobs",
        );
    }
    let node = world.node("a").await;
    let jobs = async || world.api::<Job>().list(&ListParams::default()).await.unwrap().items;
    // Its requests until it waits: the creation, a list and a watch; later reads have no effect.
    for (index, hold) in holds(3).enumerate() {
        let run = format!("run-{index}");
        let verb = ["job", run.as_str(), node.as_str()];
        assert_eq!(runner.kill_at(&hold, &verb).await, End::Held, "{hold}");
        let made = jobs().await.len();
        assert!(made == index || made == index + 1, "{hold}: {made} jobs");
        let second = runner.start("never", &verb);
        let which = ObjectSelection::Labelled("batch.kubernetes.io/job-name".to_owned());
        let judge = |pods: &[&Pod]| {
            let fresh =
                pods.iter().find(|pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Pending"));
            match fresh {
                Some(pod) => WaitStatus::Done(pod.name_any()),
                None => WaitStatus::Waiting("its pod".to_owned()),
            }
        };
        let silent = ProgressSink::disabled();
        let pod = wait(&world.link, world.api(), &which, "the pod", LIMIT, &silent, judge).await.unwrap();
        let done = json!({"status": {"phase": "Succeeded"}});
        world.api::<Pod>().patch_status(&pod, &PatchParams::default(), &Patch::Merge(done)).await.unwrap();
        let End::Done { outcome, .. } = runner.end(second).await else { panic!("{hold}") };
        assert!(outcome.ends_with("Ok(())"), "{hold}: {outcome}");
        assert_eq!(jobs().await.len(), index + 1, "{hold}: one run, one job");
    }
    let pods = world.api::<Pod>().list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(pods, 6, "and one pod of each");
}
