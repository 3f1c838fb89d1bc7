//! Roles of DaemonSets: one run for each matching node, with the node's name and the metadata of its machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

const LABEL: &str = "machine.openshift.io/interruptible-instance";

/// The metadata of all machines.
#[derive(Debug, Default)]
struct Metadata {
    /// How often the role on each node has read it.
    reads: Mutex<BTreeMap<String, u32>>,
    interrupted: Mutex<BTreeSet<String>>,
}

impl Metadata {
    async fn serve(self: &Arc<Self>) -> (String, JoinSet<()>) {
        let routes = Router::new()
            .route("/machines/{node}/computeMetadata/v1/instance/preempted", get(preempted))
            .with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        (address, serving)
    }

    fn reads(&self) -> BTreeMap<String, u32> {
        self.reads.lock().unwrap().clone()
    }

    fn readers(&self) -> Vec<String> {
        self.reads().into_keys().collect()
    }
}

async fn preempted(Path(node): Path<String>, State(metadata): State<Arc<Metadata>>) -> &'static str {
    *metadata.reads.lock().unwrap().entry(node.clone()).or_default() += 1;
    if metadata.interrupted.lock().unwrap().contains(&node) { "TRUE" } else { "FALSE" }
}

impl TestCluster {
    fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client())
    }

    fn daemon_sets(&self) -> Api<DaemonSet> {
        Api::namespaced(self.cluster.client(), "default")
    }

    async fn is_terminating(&self, node: &str) -> bool {
        let conditions = self.nodes().get(node).await.unwrap().status.unwrap().conditions.unwrap_or_default();
        conditions.iter().any(|it| it.type_ == "Terminating" && it.status == "True")
    }

    async fn create_handler_account(&self) {
        let group = "rbac.authorization.k8s.io";
        let metadata = json!({ "name": "handler" });
        for object in [
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "handler", "namespace": "default" } }),
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": metadata,
                "rules": [
                    { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] },
                    { "apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"] }
                ]
            }),
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
                "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "handler" },
                "subjects": [{ "kind": "ServiceAccount", "name": "handler", "namespace": "default" }]
            }),
        ] {
            self.create(&object).await;
        }
    }
}

fn handlers(selector: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "handler", "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": { "app": "handler" } },
            "template": {
                "metadata": { "labels": { "app": "handler" } },
                "spec": {
                    "serviceAccountName": "handler", "nodeSelector": selector,
                    "containers": [{
                        "name": "main", "image": "registry.example/shipshape:1", "command": ["shipshape"],
                        "args": ["termination-handler", "--cloud-provider=gcp", "--poll-interval-seconds=1"],
                        "env": [{ "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }]
                    }]
                }
            }
        }
    })
}

#[tokio::test]
async fn a_daemon_set_runs_its_role_once_on_each_matching_node() {
    let metadata = Arc::new(Metadata::default());
    let (address, _serving) = metadata.serve().await;
    let node = |name: &str, labels: &[(&str, &str)]| NodeTemplate {
        name: name.to_owned(),
        labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        pods: 50,
    };
    let nodes = vec![node("spot-1", &[(LABEL, "")]), node("spot-2", &[(LABEL, "")]), node("regular", &[])];
    let test = TestCluster::with_nodes(nodes, &address).await;
    test.create_handler_account().await;
    test.create(&handlers(&json!({ LABEL: "" }))).await;
    eventually("the roles of both nodes read the metadata of their machines", async || {
        (metadata.readers() == ["spot-1", "spot-2"]).then_some(())
    })
    .await;

    metadata.interrupted.lock().unwrap().insert("spot-2".to_owned());
    eventually("the node of the interrupted machine is terminating", async || {
        test.is_terminating("spot-2").await.then_some(())
    })
    .await;
    assert!(!test.is_terminating("spot-1").await, "its machine is not interrupted");
    let label = json!({ "metadata": { "labels": { LABEL: "" } } });
    test.nodes().patch("regular", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    eventually("a node that matches later gets its role", async || {
        metadata.reads().contains_key("regular").then_some(())
    })
    .await;

    test.daemon_sets().delete("handler", &Default::default()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(test.cluster.client(), "default");
    eventually("the pods are gone", async || {
        pods.list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
    let before = metadata.reads();
    test.create(&handlers(&json!({ "kubernetes.io/hostname": "regular" }))).await;
    eventually("the role of the new set has read the metadata twice", async || {
        (metadata.reads()["regular"] >= before["regular"] + 2).then_some(())
    })
    .await;
    for node in ["spot-1", "spot-2"] {
        assert_eq!(metadata.reads()[node], before[node], "the role on {node} has ended");
    }
}
