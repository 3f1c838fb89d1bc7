//! Runs every built-in task through the fault harness of the engine: each step twice, interrupted, failed, cancelled, preempted.

use futures_util::future::BoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use kubelink::Link;
use kubelink::rollout::RESTARTED_BY;
use maintenance::tasks::cycle_nodes::CYCLED_BY;
use planner::task::Catalogue;
use serde_json::{Value, json};

use crate::secrets::pair;
use crate::sim::{FaultRun, WorldCheck};

pub(crate) const SHOP: &str = include_str!("../../../../examples/objects/shop.yaml");

fn fault_run(name: &str, parameters: Value, objects: &str, done: WorldCheck, undone: WorldCheck) -> FaultRun {
    let task = Catalogue::builtin().find(name).unwrap().clone();
    FaultRun { task, parameters, objects: objects.to_owned(), done, undone, ours: false, machines: false }
}

/// Check of a task without effects.
pub(crate) fn nothing(_: Link, _: String) -> BoxFuture<'static, Result<(), String>> {
    Box::pin(async { Ok(()) })
}

pub(crate) fn is(truth: bool, otherwise: impl Into<String>) -> Result<(), String> {
    if truth { Ok(()) } else { Err(otherwise.into()) }
}

pub(crate) fn web_was_restarted(link: Link, _: String) -> BoxFuture<'static, Result<(), String>> {
    Box::pin(async move {
        let web = Api::<Deployment>::namespaced(link.client(), "shop").get("web").await.unwrap();
        let marks = web.spec.template.metadata.unwrap_or_default().annotations.unwrap_or_default();
        is(marks.contains_key(RESTARTED_BY), "web was not restarted")
    })
}

async fn nodes(link: &Link) -> Vec<Node> {
    Api::<Node>::all(link.client()).list(&ListParams::default()).await.unwrap().items
}

pub(crate) fn no_node_is_cordoned(link: Link, _: String) -> BoxFuture<'static, Result<(), String>> {
    Box::pin(async move {
        let nodes = nodes(&link).await;
        let cordoned =
            nodes.iter().find(|node| node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)));
        is(cordoned.is_none(), format!("a node is cordoned: {:?}", cordoned.map(ResourceExt::name_any)))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_health_survives_every_fault() {
    fault_run("cluster-health", json!({}), SHOP, nothing, nothing).all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn approve_node_csrs_survives_every_fault() {
    fault_run("approve-node-csrs", json!({}), "", nothing, nothing).all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_workload_survives_every_fault() {
    let parameters = json!({"kind": "Deployment", "namespace": "shop", "name": "web"});
    fault_run("restart-workload", parameters, SHOP, web_was_restarted, nothing).all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cycle_nodes_survives_every_fault() {
    let done: WorldCheck = |link, step| {
        Box::pin(async move {
            no_node_is_cordoned(link.clone(), step).await?;
            let marks: Vec<Option<String>> =
                nodes(&link).await.iter().map(|node| node.annotations().get(CYCLED_BY).cloned()).collect();
            is(
                marks.iter().all(|mark| mark.is_some() && *mark == marks[0]),
                format!("not all were cycled: {marks:?}"),
            )
        })
    };
    let parameters = json!({"selector": "node-role.kubernetes.io/worker"});
    fault_run("cycle-nodes", parameters, SHOP, done, no_node_is_cordoned).all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_manifests_survives_every_fault() {
    let done: WorldCheck = |link, _| {
        Box::pin(async move {
            let maps: Api<ConfigMap> = Api::default_namespaced(link.client());
            let left = maps.list(&ListParams::default().labels("set=x")).await.unwrap().items;
            let names: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
            is(names == ["new"], format!("{names:?}"))
        })
    };
    let map = |name: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  labels: {{set: x}}\n")
    };
    let parameters = json!({"manifests": map("new"), "prune": "set=x"});
    fault_run("apply-manifests", parameters, &map("old"), done, nothing).all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_job_survives_every_fault_and_runs_once() {
    let done: WorldCheck = |link, _| {
        Box::pin(async move {
            let jobs: Api<Job> = Api::default_namespaced(link.client());
            let ran = jobs.list(&ListParams::default()).await.unwrap().items;
            is(ran.len() == 1, format!("{} jobs ran", ran.len()))
        })
    };
    fault_run("run-job", json!({"namespace": "default", "image": "example.invalid/job"}), "", done, nothing)
        .all()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rotate_tls_secret_survives_every_fault_and_puts_the_previous_certificate_back() {
    async fn state(link: &Link) -> (String, bool) {
        let secrets: Api<Secret> = Api::default_namespaced(link.client());
        let text = async |name: &str| {
            let data = secrets.get(name).await.unwrap().data.unwrap_or_default();
            String::from_utf8(data["tls.crt"].0.clone()).unwrap()
        };
        let (web, new) = (text("web").await, text("incoming").await);
        let which = if web == new { "new" } else { "old" };
        (which.to_owned(), secrets.get_opt("web-before-rotation").await.unwrap().is_some())
    }
    let done: WorldCheck = |link, _| {
        Box::pin(async move {
            let found = state(&link).await;
            is(found == ("new".to_owned(), false), format!("{found:?}"))
        })
    };
    let undone: WorldCheck = |link, step| {
        Box::pin(async move {
            let found = state(&link).await;
            // Once what was kept is forgotten there is no way back, and nothing left to do.
            let expect = if step == "forget-previous" { "new" } else { "old" };
            is(found == (expect.to_owned(), false), format!("{found:?}"))
        })
    };
    let secret = |name: &str| {
        let (certificate, key) = pair("web.example");
        let data = json!({"tls.crt": certificate, "tls.key": key});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls", "stringData": data})
    };
    let objects = format!("{}\n---\n{}\n---\n{SHOP}", secret("web"), secret("incoming"));
    let parameters = json!({"source": {"namespace": "default", "name": "incoming"}, "target": {"namespace": "default", "name": "web"},
        "restart": [{"kind": "Deployment", "namespace": "shop", "name": "web"}]});
    fault_run("rotate-tls-secret", parameters, &objects, done, undone).all().await;
}
