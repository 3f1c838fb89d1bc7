//! The server as clients use it: over its port, with a kubeconfig, and after a restart.

#![expect(clippy::unwrap_used, reason = "all of this is a test")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use futures_util::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::api::{
    Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, Config};
use kubesim::faults::Fault;
use kubesim::{ClusterOptions, SimulatedCluster};
use serde_json::{Value, json};

mod controllers;
mod hostile;
#[path = "../conformance/webhook.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod webhook;

async fn cluster() -> SimulatedCluster {
    SimulatedCluster::start("test", ClusterOptions::default()).await.unwrap()
}

async fn cluster_in(directory: &Path) -> SimulatedCluster {
    let options = ClusterOptions {
        directory: Some(directory.to_owned()),
        clock: Arc::new(SystemClock),
        seed: 1,
        controllers: true,
    };
    SimulatedCluster::start("test", options).await.unwrap()
}

async fn connect(cluster: &SimulatedCluster) -> Client {
    connect_with(&cluster.kubeconfig()).await
}

async fn connect_with(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"value": value}})).unwrap()
}

/// Sends a request; returns the status code and the body.
async fn send(
    client: &Client,
    method: &str,
    path: &str,
    content_type: &str,
    body: impl Into<Vec<u8>>,
) -> (u16, Value) {
    let request = hyper::Request::builder().method(method).uri(path).header("Content-Type", content_type);
    let response = client.send(request.body(Body::from(body.into())).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

async fn get(client: &Client, path: &str) -> (u16, Value) {
    send(client, "GET", path, "application/json", "").await
}

#[tokio::test]
async fn network_and_in_process_clients_see_the_same_objects() {
    let cluster = cluster().await;
    let outside: Api<ConfigMap> = Api::default_namespaced(connect(&cluster).await);
    let inside: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let created = outside.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert_eq!(inside.get("a").await.unwrap(), created);
}

#[tokio::test]
async fn unauthenticated_requests_are_rejected() {
    let (cluster, other) = (cluster().await, cluster().await);
    let foreign = other.kubeconfig();
    let mut stolen = Kubeconfig::from_yaml(&cluster.kubeconfig()).unwrap();
    stolen.auth_infos = Kubeconfig::from_yaml(&foreign).unwrap().auth_infos;
    let mut nobody = stolen.clone();
    for user in &mut nobody.auth_infos {
        user.auth_info = Some(kube::config::AuthInfo::default());
    }
    for (kubeconfig, expect) in [(stolen, (401, "Unauthorized")), (nobody, (403, "Forbidden"))] {
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let (code, status) = get(&Client::try_from(config).unwrap(), "/api/v1/nodes").await;
        assert_eq!((code, status["reason"].as_str().unwrap()), expect);
    }
}

/// Gives the default ServiceAccount the right to read ConfigMaps.
async fn permit_default_account(client: &Client) {
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "default"}],
    });
    assert_eq!(send(client, "POST", path, "application/json", binding.to_string()).await.0, 201);
}

#[tokio::test]
async fn a_client_of_a_service_account_has_its_rights_while_it_exists() {
    let cluster = cluster().await;
    let account = cluster.client_for_service_account("default", "default");
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(get(&account, maps).await.0, 403);
    permit_default_account(&cluster.client()).await;
    assert_eq!(get(&account, maps).await.0, 200);
    assert_eq!(send(&account, "POST", maps, "application/json", "{}").await.0, 403);
    assert_eq!(get(&account, "/api/v1/namespaces/default/secrets").await.0, 403);
    let missing = cluster.client_for_service_account("default", "missing");
    assert_eq!(get(&missing, "/version").await.0, 401);
}

#[tokio::test]
async fn a_webhook_behind_a_service_is_at_the_address_in_its_annotation() {
    let cluster = cluster().await;
    let client = connect(&cluster).await;
    let server = webhook::server().await.client("/mark");
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]},
    });
    let services = "/api/v1/namespaces/default/services";
    assert_eq!(send(&client, "POST", services, "application/json", service.to_string()).await.0, 201);
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "hook"},
        "webhooks": [{
            "name": "mark.example.test", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "caBundle": server["caBundle"], "service": {"namespace": "default", "name": "hook", "path": "/mark"},
            },
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    assert_eq!(send(&client, "POST", path, "application/json", configuration.to_string()).await.0, 201);

    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).to_string();
    let (code, status) = send(&client, "POST", maps, "application/json", map.clone()).await;
    assert_eq!(code, 500);
    assert!(status["message"].as_str().unwrap().contains("sim.shipshape.dev/address"), "{status}");

    let url: hyper::Uri = server["url"].as_str().unwrap().parse().unwrap();
    let address = json!({"metadata": {"annotations": {"sim.shipshape.dev/address": url.authority().unwrap().as_str()}}});
    let service = format!("{services}/hook");
    let merge = "application/merge-patch+json";
    assert_eq!(send(&client, "PATCH", &service, merge, address.to_string()).await.0, 200);
    for name in ["a", "b"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string();
        let (code, created) = send(&client, "POST", maps, "application/json", map).await;
        assert_eq!((code, &created["metadata"]["annotations"]["marked"]), (201, &json!("yes")));
    }
}

#[tokio::test]
async fn every_cluster_has_the_default_roles_under_uids_of_its_own() {
    let (one, two) = (cluster().await, cluster().await);
    let mut found = Vec::new();
    for cluster in [&one, &two] {
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view";
        let (code, view) = get(&cluster.client(), path).await;
        assert_eq!(code, 200);
        assert!(view["rules"].as_array().unwrap().len() > 5, "{view}");
        found.push(view);
    }
    assert_ne!(found[0]["metadata"]["uid"], found[1]["metadata"]["uid"]);
    assert_eq!(found[0]["rules"], found[1]["rules"]);
}

#[tokio::test]
async fn a_token_is_valid_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let before = cluster_in(directory.path()).await;
    let kubeconfig = before.service_account_kubeconfig("default", "default", 3_600).unwrap();
    assert!(before.service_account_kubeconfig("default", "missing", 3_600).is_err());
    permit_default_account(&before.client()).await;
    before.stop().await;
    drop(before);

    let after = cluster_in(directory.path()).await;
    let account = connect_with(&kubeconfig).await;
    assert_eq!(get(&account, "/api/v1/namespaces/default/configmaps").await.0, 200);
    assert_eq!(get(&account, "/api/v1/namespaces/default/secrets").await.0, 403);
    drop(after);
}

#[tokio::test]
async fn a_restarted_cluster_continues_from_its_journal() {
    let directory = tempfile::tempdir().unwrap();
    let before = cluster_in(directory.path()).await;
    let (url, kubeconfig) = (before.url(), before.kubeconfig());
    let maps: Api<ConfigMap> = Api::default_namespaced(before.client());
    let kept = maps.create(&PostParams::default(), &config_map("kept", "1")).await.unwrap();
    maps.create(&PostParams::default(), &config_map("gone", "1")).await.unwrap();
    maps.delete("gone", &DeleteParams::default()).await.unwrap();
    before.stop().await;
    drop(before);

    let after = cluster_in(directory.path()).await;
    assert_eq!((after.url(), after.kubeconfig()), (url, kubeconfig.clone()));
    let maps: Api<ConfigMap> = Api::default_namespaced(connect_with(&kubeconfig).await);
    assert_eq!(maps.get("kept").await.unwrap(), kept);
    assert_eq!(maps.get_opt("gone").await.unwrap(), None);
    // Watches from before the restart have to list again.
    let old = kept.metadata.resource_version.unwrap();
    let mut events = maps.watch(&WatchParams::default(), &old).await.unwrap().boxed();
    let first = events.try_next().await.unwrap().unwrap();
    assert!(matches!(first, WatchEvent::Error(status) if status.code == 410));
}

#[tokio::test]
async fn a_watch_starts_with_existing_objects_and_gets_every_change_in_order() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(connect(&cluster).await);
    maps.create(&PostParams::default(), &config_map("old", "1")).await.unwrap();
    let path = "/api/v1/namespaces/default/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&fieldSelector=metadata.name%21%3Dkube-root-ca.crt";
    let request = hyper::Request::get(path).body(Vec::new()).unwrap();
    let mut lines = cluster.client().request_stream(request).await.unwrap().lines();
    let mut next =
        async || -> Value { serde_json::from_str(&lines.try_next().await.unwrap().unwrap()).unwrap() };
    let first = next().await;
    assert_eq!((&first["type"], &first["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("old")));
    let bookmark = next().await;
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    maps.patch("old", &PatchParams::default(), &Patch::Merge(json!({"data": {"value": "2"}}))).await.unwrap();
    maps.delete("old", &DeleteParams::default()).await.unwrap();
    assert_eq!(next().await["type"], "MODIFIED");
    assert_eq!(next().await["type"], "DELETED");
}

#[tokio::test]
async fn an_idle_watch_costs_nothing_and_expires() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let start = maps.create(&PostParams::default(), &config_map("a", "0")).await.unwrap();
    let from = start.metadata.resource_version.unwrap();
    let mut events = maps.watch(&WatchParams::default(), &from).await.unwrap().boxed();
    for value in 0..1_200 {
        let change = json!({"data": {"value": value.to_string()}});
        maps.patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }
    let first = events.try_next().await.unwrap().unwrap();
    assert!(matches!(first, WatchEvent::Error(status) if status.code == 410 && status.reason == "Expired"));
}

#[tokio::test]
async fn ten_thousand_objects_are_listed_at_once_and_in_pages() {
    let cluster = cluster().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    for number in 0..10_000 {
        maps.create(&PostParams::default(), &config_map(&format!("m{number:05}"), "1")).await.unwrap();
    }
    let outside: Api<ConfigMap> = Api::default_namespaced(connect(&cluster).await);
    assert_eq!(outside.list(&ListParams::default()).await.unwrap().items.len(), 10_001);
    let mut names = Vec::new();
    let mut params = ListParams::default().limit(999);
    loop {
        let page = outside.list(&params).await.unwrap();
        names.extend(page.items.into_iter().filter_map(|map| map.metadata.name));
        // Pages are a snapshot, so a change between pages is not visible.
        maps.delete(names.last().unwrap(), &DeleteParams::default()).await.unwrap();
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(names.len(), 10_001);
    assert!(names.is_sorted());
}

#[tokio::test]
async fn invalid_requests_get_a_clear_status() {
    let cluster = cluster().await;
    let client = connect(&cluster).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let large = format!("{{\"data\":\"{}\"}}", "x".repeat(4 << 20));
    for (method, path, content_type, body, expect) in [
        ("POST", maps, "application/json", "{".to_owned(), (400, "BadRequest")),
        ("POST", maps, "application/yaml", "a: [".to_owned(), (400, "BadRequest")),
        ("POST", maps, "application/json", large, (413, "RequestEntityTooLarge")),
        (
            "POST",
            maps,
            "application/vnd.kubernetes.protobuf",
            "k8s\0".to_owned(),
            (415, "UnsupportedMediaType"),
        ),
        ("POST", maps, "application/json", "[]".to_owned(), (400, "BadRequest")),
        ("GET", "/api/v1/pods?labelSelector=a%20in", "", String::new(), (400, "BadRequest")),
        ("GET", "/api/v1/pods?fieldSelector=nonsense", "", String::new(), (400, "BadRequest")),
        ("GET", "/api/v1/pods?continue=abc&limit=1", "", String::new(), (400, "BadRequest")),
        ("GET", "/api/v1/nothings", "", String::new(), (404, "NotFound")),
        ("PUT", maps, "application/json", "{}".to_owned(), (405, "MethodNotAllowed")),
    ] {
        let (code, status) = send(&client, method, path, content_type, body).await;
        assert_eq!(
            (code, status["reason"].as_str().unwrap_or_default()),
            expect,
            "{method} {path}: {status}"
        );
    }
}

/// Reports a node ready and its pods running, as a kubelet would.
async fn report_ready(client: &Client, node: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let created = serde_json::from_value(json!({"metadata": {"name": node}})).unwrap();
    nodes.create(&PostParams::default(), &created).await.unwrap();
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
}

async fn run_pods(client: &Client, count: usize) -> Vec<String> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut running = Vec::new();
    let mut events = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    while running.len() < count {
        let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = events.try_next().await.unwrap().unwrap()
        else {
            continue;
        };
        let name = pod.metadata.name.unwrap();
        if running.contains(&name) || pod.spec.unwrap().node_name.is_none() {
            continue;
        }
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        running.push(name);
    }
    running
}

fn deployment(replicas: i32) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]},
            },
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn a_deployment_gets_pods_that_a_budget_protects_and_garbage_collection_deletes() {
    let cluster = cluster().await;
    let client = connect(&cluster).await;
    report_ready(&client, "one").await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment(2)).await.unwrap();
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    });
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    assert_eq!(send(&client, "POST", path, "application/json", budget.to_string()).await.0, 201);
    let names = run_pods(&client, 2).await;
    let rolled_out =
        |found: Option<&Deployment>| found.and_then(|one| one.status.as_ref()?.available_replicas) == Some(2);
    await_condition(deployments.clone(), "web", rolled_out).await.unwrap();

    let refused = pods.evict(&names[0], &EvictParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!(status.code, 429);
    assert!(
        status.details.unwrap().causes[0].message.contains("needs 2 healthy pods"),
        "the budget is named"
    );

    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::background() };
    let uid = pods.get(&names[0]).await.unwrap().metadata.uid.unwrap();
    deployments.delete("web", &now).await.unwrap();
    // Garbage collection gives pods their grace period, which a kubelet would end.
    let ending = |pod: Option<&Pod>| pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
    await_condition(pods.clone(), &names[0], ending).await.unwrap();
    pods.delete(&names[0], &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
        .await
        .unwrap();
    await_condition(pods, &names[0], conditions::is_deleted(&uid)).await.unwrap();
}

#[tokio::test]
async fn a_namespace_is_deleted_with_its_contents() {
    let cluster = cluster().await;
    let client = connect(&cluster).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let created = serde_json::from_value(json!({"metadata": {"name": "short"}})).unwrap();
    let uid = namespaces.create(&PostParams::default(), &created).await.unwrap().metadata.uid.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "short");
    maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    namespaces.delete("short", &DeleteParams::default()).await.unwrap();
    await_condition(namespaces, "short", conditions::is_deleted(&uid)).await.unwrap();
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items, []);
}

#[tokio::test]
async fn faults_affect_one_cluster_until_they_are_cleared() {
    let (cluster, neighbour) = (cluster().await, cluster().await);
    let client = connect(&cluster).await;
    let faults = cluster.faults();
    faults.next_times(Fault::TooManyRequests { retry_after_seconds: 7 }, 1);
    let (code, status) = get(&client, "/api/v1/nodes").await;
    assert_eq!((code, &status["details"]["retryAfterSeconds"]), (429, &json!(7)));
    faults.next_times(Fault::InternalError, 1);
    assert_eq!(get(&client, "/api/v1/nodes").await.0, 500);
    for fault in [Fault::ConnectionReset, Fault::Unreachable] {
        faults.always(fault);
        let request = hyper::Request::get("/api/v1/nodes").body(Body::empty()).unwrap();
        assert!(client.send(request).await.is_err(), "{fault:?}");
        assert_eq!(get(&connect(&neighbour).await, "/api/v1/nodes").await.0, 200);
        faults.clear();
    }
    assert_eq!(get(&client, "/api/v1/nodes").await.0, 200);

    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut events = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    assert!(events.try_next().await.unwrap().is_some());
    faults.drop_watches();
    let end = tokio::time::timeout(Duration::from_secs(5), events.try_next()).await.unwrap();
    assert!(matches!(end, Ok(None) | Err(_)));
}
