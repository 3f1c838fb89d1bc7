//! What each built-in task does to a real cluster, and what it refuses.

use std::time::Duration;

use api::work::WorkState;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kubelink::Link;
use planner::task::{Catalogue, check_parameters};
use serde_json::{Value, json};

use crate::environment::{TestRun, eventually, map, real, run_builtin};

pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: kube::Resource + Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// A Deployment whose pods are all available, on the nodes of one pool.
pub(crate) async fn deployment(link: &Link, namespace: &str, name: &str, replicas: i32, pool: &str) {
    let api: Api<Deployment> = Api::namespaced(link.client(), namespace);
    let object = json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"nodeSelector": {"pool": pool}, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "example.invalid/c"}]}}}});
    create(&api, object).await;
    eventually("the deployment is available", async || {
        let status = api.get(name).await.unwrap().status.unwrap_or_default();
        (status.available_replicas == Some(replicas)).then_some(())
    })
    .await;
}

async fn pods(link: &Link, namespace: &str) -> Vec<Pod> {
    Api::<Pod>::namespaced(link.client(), namespace).list(&ListParams::default()).await.unwrap().items
}

async fn node(link: &Link, name: &str) -> Node {
    Api::<Node>::all(link.client()).get(name).await.unwrap()
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_health_names_every_trouble_and_changes_nothing() {
    let Some(real) = real() else { return };
    let link = real.link();
    real.nodes_are_ready(&link).await;
    let well = run_builtin("cluster-health", &json!({}), &link).await;
    assert_eq!(well.state, WorkState::Completed, "{}", well.message());
    assert_eq!(well.message(), "the cluster is healthy");

    let nodes: Api<Node> = Api::all(link.client());
    create(&nodes, json!({"metadata": {"name": "never-ready"}})).await;
    let ill = run_builtin("cluster-health", &json!({}), &link).await;
    nodes.delete("never-ready", &DeleteParams::default()).await.unwrap();
    assert_eq!((ill.state, ill.code().as_str()), (WorkState::Failed, "Unhealthy"));
    let message = ill.message();
    assert!(message.contains("node never-ready is not ready"), "{message}");
    assert!(ill.messages().contains("the first certificate expires at"), "{}", ill.messages());
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_workload_replaces_the_pods_and_refuses_what_is_not_there_or_paused() {
    let Some(real) = real() else { return };
    let (link, namespace) = (real.link(), real.cluster.namespace("restart").unwrap());
    deployment(&link, &namespace, "web", 2, "host").await;
    let names = |pods: Vec<Pod>| pods.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    let before = names(pods(&link, &namespace).await);
    let parameters = json!({"kind": "Deployment", "namespace": namespace, "name": "web"});
    let end = run_builtin("restart-workload", &parameters, &link).await;
    assert_eq!(end.state, WorkState::Completed, "{}", end.message());
    let after = names(pods(&link, &namespace).await);
    assert!(after.iter().filter(|name| !before.contains(name)).count() >= 2, "{before:?} {after:?}");

    let absent = json!({"kind": "Deployment", "namespace": namespace, "name": "wbe"});
    let end = run_builtin("restart-workload", &absent, &link).await;
    assert_eq!((end.state, end.code().as_str()), (WorkState::Failed, "NotFound"));
    let paused = json!({"spec": {"paused": true}});
    let api: Api<Deployment> = Api::namespaced(link.client(), &namespace);
    api.patch("web", &PatchParams::default(), &Patch::Merge(paused)).await.unwrap();
    let end = run_builtin("restart-workload", &parameters, &link).await;
    assert!(end.state == WorkState::Failed && end.message().contains("it is paused"), "{}", end.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn cycle_nodes_empties_each_node_of_a_pool_in_turn_and_leaves_the_cordons_of_others() {
    let Some(real) = real() else { return };
    let (link, namespace) = (real.link(), real.cluster.namespace("cycle").unwrap());
    real.nodes_are_ready(&link).await;
    deployment(&link, &namespace, "web", 4, "cycle").await;
    let before: Vec<String> = pods(&link, &namespace).await.iter().map(ResourceExt::name_any).collect();
    // A person has cordoned the second node.
    let nodes: Api<Node> = Api::all(link.client());
    nodes.cordon("cycle-2").await.unwrap();
    let end =
        run_builtin("cycle-nodes", &json!({"selector": "pool=cycle", "nodeTimeout": "2m"}), &link).await;
    assert_eq!(end.state, WorkState::Completed, "{}", end.messages());
    assert_eq!(end.message(), "2 nodes cycled: cycle-1, cycle-2");
    assert!(
        !is_cordoned(&node(&link, "cycle-1").await),
        "the node that the task cordoned is schedulable again"
    );
    assert!(is_cordoned(&node(&link, "cycle-2").await), "the person's cordon stands");
    nodes.uncordon("cycle-2").await.unwrap();
    let after = pods(&link, &namespace).await;
    let left = after
        .iter()
        .filter(|pod| before.contains(&pod.name_any()) && pod.metadata.deletion_timestamp.is_none());
    assert_eq!(left.count(), 0, "every pod was evicted once");

    let end = run_builtin("cycle-nodes", &json!({"selector": "pool=none"}), &link).await;
    assert_eq!((end.state, end.code().as_str()), (WorkState::Failed, "NoNodes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_a_budget_blocks_says_so_and_ends_within_five_seconds_of_a_cancel() {
    let Some(real) = real() else { return };
    let (link, namespace) = (real.link(), real.cluster.namespace("held").unwrap());
    real.nodes_are_ready(&link).await;
    deployment(&link, &namespace, "web", 1, "held").await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(link.client(), &namespace);
    create(&budgets, json!({"metadata": {"name": "keep"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}})).await;
    eventually("the budget is known", async || {
        budgets.get("keep").await.unwrap().status.filter(|status| status.observed_generation == Some(1))
    })
    .await;
    let test = TestRun::new().await;
    let catalogue = Catalogue::builtin();
    let parameters = json!({"node": "held-1"});
    let work = test.run(catalogue.find("cycle-nodes").unwrap(), &parameters, &link);
    let cancel = async {
        eventually("the history shows what holds the drain", async || {
            let work = test.store.work(test.work).await.unwrap().unwrap();
            let step = steps::engine::Journal::read(work.checkpoint.as_ref()).step?;
            Some(step.message).filter(|it| it.contains("PodDisruptionBudget") && it.contains("keep"))
        })
        .await;
        assert!(is_cordoned(&node(&link, "held-1").await));
        test.control.cancel.cancel();
        std::time::Instant::now()
    };
    let (end, asked) = tokio::join!(work, cancel);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(end.state, WorkState::Cancelled);
    assert!(!is_cordoned(&node(&link, "held-1").await));

    // A pod that nothing would start again is refused before anything is cordoned.
    let api: Api<Pod> = Api::namespaced(link.client(), &namespace);
    create(&api, json!({"metadata": {"name": "alone"}, "spec": {"nodeName": "held-1", "containers": [{"name": "c", "image": "example.invalid/c"}]}})).await;
    let end = run_builtin("cycle-nodes", &parameters, &link).await;
    assert_eq!((end.state, end.code().as_str()), (WorkState::Failed, "DrainRefused"));
    assert!(end.message().contains("allow it with force"), "{}", end.message());
    assert!(!is_cordoned(&node(&link, "held-1").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_manifests_makes_changes_and_prunes_and_refuses_as_a_whole() {
    let Some(real) = real() else { return };
    let (link, namespace) = (real.link(), real.cluster.namespace("apply").unwrap());
    let map_of = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"set": namespace}}, "data": {"a": "1"}})
    };
    let prune = format!("set={namespace}");
    let api: Api<ConfigMap> = Api::namespaced(link.client(), &namespace);
    // A person's object with the same label is not ours to prune.
    create(&api, json!({"metadata": {"name": "theirs", "labels": {"set": namespace}}})).await;
    let end = run_builtin(
        "apply-manifests",
        &json!({"manifests": [map_of("a"), map_of("b")], "prune": prune}),
        &link,
    )
    .await;
    assert_eq!(
        (end.state, end.message().as_str()),
        (WorkState::Completed, "2 created"),
        "{}",
        end.messages()
    );
    let yaml = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: {namespace}\n  labels: {{set: {namespace}}}\ndata: {{a: '2'}}\n"
    );
    let end = run_builtin("apply-manifests", &json!({"manifests": yaml, "prune": prune}), &link).await;
    assert_eq!(end.message(), "1 configured, 1 pruned", "{}", end.messages());
    let left: Vec<String> = api
        .list(&ListParams::default().labels(&prune))
        .await
        .unwrap()
        .items
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(left, ["a", "theirs"]);
    assert_eq!(api.get("a").await.unwrap().data.unwrap()["a"], "2");

    let bad = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": namespace}, "dta": {}});
    let end = run_builtin("apply-manifests", &json!({"manifests": [map_of("d"), bad]}), &link).await;
    assert_eq!(end.state, WorkState::Failed, "{}", end.message());
    assert!(end.message().starts_with("nothing was applied"), "{}", end.message());
    assert!(api.get_opt("d").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn run_job_waits_for_the_end_and_fails_with_the_job() {
    let Some(real) = real() else { return };
    let (link, namespace) = (real.link(), real.cluster.namespace("job").unwrap());
    real.nodes_are_ready(&link).await;
    let parameters = json!({"namespace": namespace, "image": "example.invalid/job", "command": ["run"], "env": {"LEVEL": "deep"}});
    let end = run_builtin("run-job", &parameters, &link).await;
    assert_eq!(end.state, WorkState::Completed, "{}", end.messages());
    let jobs: Api<Job> = Api::namespaced(link.client(), &namespace);
    let all = jobs.list(&ListParams::default()).await.unwrap().items;
    let pod = all[0].spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    let variable = &pod.containers[0].env.as_ref().unwrap()[0];
    assert_eq!((all.len(), variable.name.as_str(), variable.value.as_deref()), (1, "LEVEL", Some("deep")));

    let template = json!({"metadata": {"annotations": {"sim.shipshape.dev/outcome": "fail"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.invalid/job"}]}});
    let manifest = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": namespace},
        "spec": {"backoffLimit": 0, "template": template}});
    let end = run_builtin("run-job", &json!({"manifest": manifest}), &link).await;
    assert_eq!((end.state, end.code().as_str()), (WorkState::Failed, "JobFailed"), "{}", end.messages());
    assert!(end.message().contains("BackoffLimitExceeded"), "{}", end.message());

    let task = Catalogue::builtin();
    let task = task.find("run-job").unwrap();
    let refused = |value: Value| check_parameters(task, &map(&value)).unwrap_err().to_string();
    assert!(
        refused(json!({"namespace": "x"})).contains("image is required"),
        "{}",
        refused(json!({"namespace": "x"}))
    );
    assert!(
        refused(json!({"imgae": "x"}))
            .starts_with("parameters.imgae: unknown parameter imgae; task run-job takes")
    );
    assert!(refused(json!({"namespace": 5, "image": "x"})).starts_with("parameters.namespace: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn approve_node_csrs_approves_a_nodes_own_request_and_leaves_a_strangers() {
    let Some(real) = real() else { return };
    let link = real.link();
    real.nodes_are_ready(&link).await;
    let name = "host-1";
    let role = json!({"metadata": {"name": "asks"}, "rules": [{"apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests"], "verbs": ["create"]}]});
    create::<ClusterRole>(&Api::all(link.client()), role).await;
    let binding = json!({"metadata": {"name": "asks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "asks"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("system:node:{name}")}]});
    create::<ClusterRoleBinding>(&Api::all(link.client()), binding).await;
    let parsed = kube::config::Kubeconfig::from_yaml(real.cluster.kubeconfig()).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(parsed, &Default::default()).await.unwrap();
    config.auth_info.impersonate = Some(format!("system:node:{name}"));
    config.auth_info.impersonate_groups = Some(vec!["system:nodes".into(), "system:authenticated".into()]);
    let as_node = kube::Client::try_from(config).unwrap();
    for (request, dns) in [("good", name), ("bad", "api.example")] {
        let mut params = rcgen::CertificateParams::new(vec![dns.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("system:node:{name}"));
        let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let object = json!({"metadata": {"name": request}, "spec": {"signerName": "kubernetes.io/kubelet-serving",
            "request": k8s_openapi::ByteString(pem.into_bytes()), "usages": ["digital signature", "server auth"]}});
        // The right to ask is known to the API server a moment after it was given.
        eventually("the node may ask", async || {
            let api: Api<CertificateSigningRequest> = Api::all(as_node.clone());
            api.create(&PostParams::default(), &serde_json::from_value(object.clone()).unwrap()).await.ok()
        })
        .await;
    }
    let end = run_builtin("approve-node-csrs", &json!({}), &link).await;
    assert_eq!(end.state, WorkState::Completed);
    assert!(end.messages().contains("good approved"), "{}", end.messages());
    assert!(
        end.messages().contains("bad left: DNS name api.example is not one of node host-1"),
        "{}",
        end.messages()
    );
    let requests: Api<CertificateSigningRequest> = Api::all(link.client());
    let conditions = async |name: &str| {
        requests.get(name).await.unwrap().status.and_then(|it| it.conditions).unwrap_or_default()
    };
    assert_eq!(conditions("good").await[0].type_, "Approved");
    assert!(conditions("bad").await.is_empty());
}
