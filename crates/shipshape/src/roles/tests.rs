//! Roles in pods of a simulated cluster.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kubesim::ClusterOptions;
use kubesim::kubelet::{KubeletOptions, Kubelets, NodeTemplate};
use serde_json::{Value, json};

use super::*;

mod daemon_sets;

const NAMESPACE: &str = "openshift-machine-api";
const CONTROLLERS: &str = "machine-api-controllers";
const OPERATOR: &str = "machine-api-operator";
/// Far longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster whose kubelets run roles.
struct TestCluster {
    cluster: Arc<SimulatedCluster>,
    roles: Arc<SimulatedRoles>,
    nodes: Vec<NodeTemplate>,
    kubelets: Option<Kubelets>,
}

impl TestCluster {
    /// A cluster with one node of the control plane, in a cloud that nobody serves.
    async fn start() -> TestCluster {
        let labels = vec![("node-role.kubernetes.io/master".to_owned(), String::new())];
        let node = NodeTemplate { name: "master-0".to_owned(), labels, pods: 50 };
        TestCluster::with_nodes(vec![node], "http://127.0.0.1:1").await
    }

    async fn with_nodes(nodes: Vec<NodeTemplate>, metadata: &str) -> TestCluster {
        let cluster = SimulatedCluster::start("roles", ClusterOptions::default()).await.unwrap();
        let instances = AzureInstances::new(InstanceSettings::of_cloud("").unwrap()).unwrap();
        let roles = Arc::new(SimulatedRoles::default());
        roles.cloud.set(RoleCloud { instances, metadata: metadata.to_owned(), pace: 0.001 }).unwrap();
        let mut test = TestCluster { cluster: Arc::new(cluster), roles, nodes, kubelets: None };
        test.start_kubelets();
        test
    }

    fn start_kubelets(&mut self) {
        let options = KubeletOptions {
            nodes: self.nodes.clone(),
            delay_factor: 0.0,
            runtime: Some((self.roles.clone().runtimes())(&self.cluster)),
            ..KubeletOptions::default()
        };
        self.kubelets = Some(Kubelets::with_options(&self.cluster, options));
    }

    async fn create(&self, object: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let version = text(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &text(&object["kind"])));
        let client = self.cluster.client();
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let object = serde_json::from_value(object.clone()).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// Creates what is of kinds that every cluster has. There is no Infrastructure that names a platform.
    async fn create_payload(&self) {
        for manifest in payload().unwrap().iter() {
            let mut manifest = manifest.clone();
            if manifest["kind"] == "Deployment" {
                let args = &mut manifest["spec"]["template"]["spec"]["containers"][0]["args"];
                args.as_array_mut().unwrap().push(json!("--platform=Azure"));
            }
            // Groups that simulated clusters do not serve, or only those that the installer makes.
            let unserved = [
                "cloudcredential.openshift.io",
                "config.openshift.io",
                "monitoring.coreos.com",
                "networking.k8s.io",
                "security.openshift.io",
            ];
            let version = manifest["apiVersion"].as_str().unwrap();
            if !unserved.iter().any(|group| version.starts_with(group)) {
                self.create(&manifest).await;
            }
        }
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.cluster.client(), NAMESPACE)
    }

    async fn scale(&self, replicas: u32) {
        let patch = json!({ "spec": { "replicas": replicas } });
        let patch = Patch::Merge(&patch);
        self.deployments().patch(CONTROLLERS, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The pods that hold a lease of the controllers; a lease that is free is held by "".
    async fn holders(&self) -> Vec<String> {
        let leases: Api<Lease> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let leases = leases.list(&ListParams::default()).await.unwrap();
        let holder = |it: Lease| it.spec.and_then(|it| it.holder_identity).unwrap_or_default();
        let of_controllers = leases.into_iter().filter(|it| it.metadata.name.as_deref() != Some(OPERATOR));
        of_controllers.map(|it| holder(it).split('_').next().unwrap().to_owned()).collect()
    }

    /// The pods of the controllers.
    async fn pods(&self) -> Vec<Pod> {
        let pods = Api::<Pod>::namespaced(self.cluster.client(), NAMESPACE);
        pods.list(&ListParams::default().labels("k8s-app=controller")).await.unwrap().items
    }

    /// Stops the operator, which would revert what a test changes.
    async fn stop_operator(&self) {
        self.deployments().delete(OPERATOR, &Default::default()).await.unwrap();
        let pods = Api::<Pod>::namespaced(self.cluster.client(), NAMESPACE);
        eventually("the operator is gone", async || {
            let params = ListParams::default().labels("k8s-app=machine-api-operator");
            pods.list(&params).await.unwrap().items.is_empty().then_some(())
        })
        .await;
    }

    /// Waits until all five leases are held by one pod, and returns its name.
    async fn led(&self) -> String {
        eventually("a pod holds all leases", async || {
            let mut holders = self.holders().await;
            let count = holders.len();
            holders.dedup();
            (count == 5 && holders.len() == 1 && !holders[0].is_empty()).then(|| holders.remove(0))
        })
        .await
    }

    async fn released(&self) {
        eventually("all leases are free", async || {
            self.holders().await.iter().all(String::is_empty).then_some(())
        })
        .await;
    }
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let seen = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.unwrap_or_else(|_| panic!("in time: {what}"))
}

fn deployment(arguments: &[&str]) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "role", "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": { "app": "role" } },
            "template": {
                "metadata": { "labels": { "app": "role" } },
                "spec": { "containers": [{ "name": "main", "image": "registry.example/shipshape:1", "args": arguments }] }
            }
        }
    })
}

#[tokio::test]
async fn the_payload_runs_the_controllers_until_their_deployments_are_deleted() {
    let test = TestCluster::start().await;
    test.create_payload().await;
    let first = test.led().await;
    assert!(first.starts_with(CONTROLLERS), "{first}");
    // The operator repairs and replaces what it has rolled out.
    test.scale(0).await;
    eventually("the number of replicas is reverted", async || {
        (test.deployments().get(CONTROLLERS).await.unwrap().spec.replicas == Some(1)).then_some(())
    })
    .await;
    let first = test.led().await;
    test.deployments().delete(CONTROLLERS, &Default::default()).await.unwrap();
    eventually("a pod of another Deployment leads", async || (test.led().await != first).then_some(())).await;
    test.stop_operator().await;
    let first = test.led().await;
    let services: Api<Service> = Api::namespaced(test.cluster.client(), NAMESPACE);
    let annotations =
        services.get("machine-api-operator-webhook").await.unwrap().metadata.annotations.unwrap();
    assert!(annotations["sim.shipshape.dev/address"].starts_with("127.0.0.1:"), "{annotations:?}");

    test.scale(0).await;
    test.released().await;
    assert_eq!(test.pods().await, []);
    test.scale(1).await;
    assert_ne!(test.led().await, first);
    test.deployments().delete(CONTROLLERS, &Default::default()).await.unwrap();
    test.released().await;
}

#[tokio::test]
async fn replicas_run_at_once_and_one_of_them_leads() {
    let test = TestCluster::start().await;
    test.create_payload().await;
    let leader = test.led().await;
    test.stop_operator().await;
    test.scale(2).await;
    eventually("two pods log that they are up", async || {
        let logs = test.pods().await.into_iter().filter_map(|it| it.metadata.uid);
        let up = logs.filter(|uid| test.cluster.logs().read(uid, "machine-controller").contains("are up"));
        (up.count() == 2).then_some(())
    })
    .await;
    assert_eq!(test.led().await, leader);
    Api::<Pod>::namespaced(test.cluster.client(), NAMESPACE)
        .delete(&leader, &Default::default())
        .await
        .unwrap();
    eventually("the other one leads", async || (test.led().await != leader).then_some(())).await;
}

#[tokio::test]
async fn a_pod_that_starts_again_does_not_wait_for_its_own_leases() {
    let mut test = TestCluster::start().await;
    test.create_payload().await;
    let leader = test.led().await;
    // As a process that was killed: nothing is released.
    test.kubelets = None;
    assert_eq!(test.led().await, leader);
    let before = test.holders_with_ids().await;
    test.start_kubelets();
    eventually("the same pod has taken its leases anew", async || {
        let now = test.holders_with_ids().await;
        now.iter().all(|it| it.starts_with(&leader) && !before.contains(it)).then_some(())
    })
    .await;
}

impl TestCluster {
    async fn holders_with_ids(&self) -> Vec<String> {
        let leases: Api<Lease> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let leases = leases.list(&ListParams::default()).await.unwrap();
        let of_controllers = leases.into_iter().filter(|it| it.metadata.name.as_deref() != Some(OPERATOR));
        of_controllers.map(|it| it.spec.and_then(|it| it.holder_identity).unwrap_or_default()).collect()
    }
}

#[tokio::test]
async fn a_command_that_is_no_role_restarts_with_backoff_and_says_why_in_its_log() {
    let test = TestCluster::start().await;
    test.create(&deployment(&["cluster", "list"])).await;
    let pods: Api<Pod> = Api::namespaced(test.cluster.client(), "default");
    let pod = eventually("the pod waits for its restart", async || {
        let pod = pods.list(&ListParams::default()).await.unwrap().items.pop()?;
        let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?.clone();
        let waiting = container.state?.waiting?.reason? == "CrashLoopBackOff";
        (waiting && container.restart_count > 0 && !container.ready).then_some(pod)
    })
    .await;
    let log = test.cluster.logs().read(pod.metadata.uid.as_deref().unwrap(), "main");
    assert!(
        log.contains(
            "this command does not run in a simulated pod; expected one of: shipshape machines controllers, shipshape machines operator"
        ),
        "{log}"
    );
}

#[tokio::test]
async fn a_role_has_the_rights_of_its_service_account_and_no_others() {
    let test = TestCluster::start().await;
    test.create_payload().await;
    let account = |name: &str, namespace: &str| {
        let container = Container {
            namespace: namespace.to_owned(),
            service_account: name.to_owned(),
            node: "worker-1".to_owned(),
            env: vec![("NODE_NAME".to_owned(), "worker-1".to_owned())],
            ..Container::default()
        };
        let log = kubesim::kubelet::ContainerLog::discarding();
        SimulatedPod::new(container, test.cluster.clone(), test.roles.clone(), log, CancellationToken::new())
    };
    let status = async |pod: &SimulatedPod, namespace: &str| {
        let secrets: Api<Secret> = Api::namespaced(pod.client(), namespace);
        match secrets.list(&ListParams::default()).await {
            Ok(_) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("{error}"),
        }
    };
    let controllers = account(CONTROLLERS, NAMESPACE);
    assert_eq!(status(&controllers, NAMESPACE).await, 200);
    assert_eq!(status(&controllers, "kube-system").await, 403);
    assert_eq!(status(&account("", NAMESPACE), NAMESPACE).await, 403);
    assert_eq!((controllers.node(), controllers.variable("NODE_NAME")), ("worker-1", Some("worker-1")));
    assert_eq!(controllers.metadata_service().unwrap(), "http://127.0.0.1:1/machines/worker-1");
}
