//! The payload on an API server of its own: applied in order, and the controllers at work with nothing but its roles.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use controller::Observability;
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use machines::metrics_server::{MetricsConfig, MetricsServer};
use machines::{Metrics, Settings, webhooks};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::json;
use testkit::kube::{PrivateTestCluster, TestCluster};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::audit::{AuditLog, Grant, unused};
use crate::world::{World, eventually};

pub(crate) const NAMESPACE: &str = "openshift-machine-api";

/// The Secret of the webhooks' certificate authority.
const AUTHORITY: &str = "machine-api-webhooks-authority";

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/machine-api")
}

/// The files of the payload in the order of their names.
fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    files.sort();
    files
}

/// Runs kubectl; its output.
pub(crate) fn kubectl(cluster: &TestCluster, arguments: &[&str]) -> String {
    let output = cluster.kubectl().args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "kubectl {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Applies every file of the payload as a person does; what kubectl says about each object.
pub(crate) fn apply_payload(cluster: &TestCluster) -> Vec<String> {
    let apply = |file: PathBuf| {
        kubectl(cluster, &["apply", "--server-side", "--force-conflicts", "-f", file.to_str().unwrap()])
    };
    files()
        .into_iter()
        .map(apply)
        .flat_map(|said| said.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// A client with the rights of a service account of the payload.
pub(crate) async fn client_of(cluster: &TestCluster, admin: &Client, account: &str) -> Client {
    let auth = AuthInfo { token: Some(token_of(admin, account).await.into()), ..AuthInfo::default() };
    client(cluster, |info| *info = auth).await
}

/// A token of a service account.
async fn token_of(admin: &Client, account: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), NAMESPACE);
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
    let token = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
    token.status.unwrap().token.unwrap()
}

/// A client of the administrator in another's name.
async fn client_as(cluster: &TestCluster, user: &str, groups: &[&str]) -> Client {
    client(cluster, |info| {
        info.impersonate = Some(user.to_owned());
        info.impersonate_groups = Some(groups.iter().map(|it| (*it).to_owned()).collect());
    })
    .await
}

pub(crate) async fn client(cluster: &TestCluster, change: impl FnOnce(&mut AuthInfo)) -> Client {
    let mut kubeconfig = Kubeconfig::from_yaml(cluster.kubeconfig()).unwrap();
    change(kubeconfig.auth_infos[0].auth_info.as_mut().unwrap());
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// The rules of a Role and a ClusterRole of the same name.
pub(crate) async fn rules(admin: &Client, name: &str) -> Vec<k8s_openapi::api::rbac::v1::PolicyRule> {
    let role: Api<Role> = Api::namespaced(admin.clone(), NAMESPACE);
    let cluster_role: Api<ClusterRole> = Api::all(admin.clone());
    let (role, cluster_role) = (role.get(name).await.unwrap(), cluster_role.get(name).await.unwrap());
    role.rules.into_iter().chain(cluster_role.rules).flatten().collect()
}

/// Starts what a pod of `machine-api-controllers` runs, as its service account.
fn start_controllers(
    running: &mut JoinSet<()>,
    world: &World,
    client: &Client,
    shutdown: &CancellationToken,
) {
    let (clock, shutdown) = (Arc::new(SystemClock), shutdown.clone());
    let settings =
        Settings { resync: Duration::from_secs(2), ..Settings::new(NAMESPACE, "pod-1", "scripted") };
    let (client_of_webhooks, cloud) = (client.clone(), world.cloud.clone());
    let client = client.clone();
    let (token, clock_of_webhooks) = (shutdown.clone(), clock.clone());
    running.spawn(async move {
        let ended = machines::run(
            client,
            cloud,
            settings,
            clock,
            Observability::default(),
            Metrics::default(),
            shutdown,
        );
        ended.await.unwrap();
    });
    running.spawn(async move {
        let mut config = webhooks::WebhookConfig::on_loopback(NAMESPACE);
        config.check_interval = Duration::from_millis(200);
        webhooks::run(client_of_webhooks, clock_of_webhooks, config, token).await.unwrap();
    });
}

/// A pod of a Node, and a budget that forbids its eviction until it is released.
async fn run_pod(admin: &Client, namespace: &str, node: &str) {
    let labels = json!({"app": "web"});
    let pods: Api<Pod> = Api::namespaced(admin.clone(), namespace);
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "0", "controller": true});
    let pod = json!({
        "metadata": {"name": "web", "labels": labels, "ownerReferences": [owner]},
        "spec": {"nodeName": node, "containers": [{"name": "web", "image": "web"}], "terminationGracePeriodSeconds": 0}
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status("web", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(admin.clone(), namespace);
    let budget = json!({
        "metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}
    });
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
}

/// Requests the serving certificate of a node as `client`'s user.
async fn request_serving_certificate(client: &Client, name: &str, node: &str) {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.subject_alt_names = vec![SanType::DnsName(node.try_into().unwrap())];
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let request = json!({
        "metadata": {"name": name},
        "spec": {
            "signerName": "kubernetes.io/kubelet-serving", "request": ByteString(pem.into_bytes()), "usages": ["digital signature", "server auth"]
        }
    });
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    requests.create(&PostParams::default(), &serde_json::from_value(request).unwrap()).await.unwrap();
}

async fn is_approved(admin: &Client, name: &str) -> bool {
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let status = requests.get(name).await.unwrap().status.unwrap_or_default();
    status.conditions.unwrap_or_default().iter().any(|it| it.type_ == "Approved")
}

/// Scrapes an endpoint for metrics that the account behind `client` serves, once as each account; the statuses, and the metrics.
pub(crate) async fn scrape(
    admin: &Client,
    client: &Client,
    render: machines::metrics_server::RenderMetrics,
    tokens: &[Option<&str>],
) -> Vec<(u16, String)> {
    let listen = "127.0.0.1:0".parse().unwrap();
    let config = MetricsConfig { listen, namespace: NAMESPACE.to_owned(), certificate: None };
    let clock: api::clock::SharedClock = Arc::new(SystemClock);
    let server = MetricsServer::bind(config, client.clone(), &clock, render).await.unwrap();
    let (address, mut running) = (server.address(), JoinSet::new());
    running.spawn(server.serve(CancellationToken::new()));
    let mut responses = Vec::new();
    for account in tokens {
        let token = match account {
            None => None,
            Some(account) => Some(token_of(admin, account).await),
        };
        responses.push(get_metrics(address, token.as_deref()).await);
    }
    responses
}

/// A request over TLS to a server with any certificate.
async fn get_metrics(address: std::net::SocketAddr, token: Option<&str>) -> (u16, String) {
    let mut command = tokio::process::Command::new("curl");
    command.args(["-sk", "--max-time", "30", "-w", "\n%{http_code}"]);
    if let Some(token) = token {
        command.args(["-H", &format!("Authorization: Bearer {token}")]);
    }
    let output = command.arg(format!("https://{address}/metrics")).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

async fn grant_certificate_requests(admin: &Client) {
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    let role = json!({"metadata": {"name": "nodes"}, "rules": [{
        "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"]
    }]});
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(admin.clone());
    let binding = json!({
        "metadata": {"name": "nodes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nodes"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"}]
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
}

/// A cluster with the payload, if this machine can run one.
pub(crate) fn installed() -> Option<(AuditLog, PrivateTestCluster)> {
    let (log, options) = AuditLog::new();
    // It is on in OpenShift.
    let options = options.api_server_flag("--enable-admission-plugins=OwnerReferencesPermissionEnforcement");
    let Some(cluster) = testkit::kube::private(options) else {
        testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, testkit::kube::MISSING);
        return None;
    };
    crate::openshift::define(&cluster);
    apply_payload(&cluster);
    Some((log, cluster))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controllers_need_each_right_of_their_roles_and_no_other() {
    let Some((log, cluster)) = installed() else { return };
    let again: BTreeSet<String> = apply_payload(&cluster).into_iter().collect();
    assert!(again.iter().all(|line| line.ends_with(" serverside-applied")), "{again:?}");
    let admin = client(&cluster, |_| {}).await;
    grant_certificate_requests(&admin).await;
    let account = client_of(&cluster, &admin, "machine-api-controllers").await;
    let world = World::in_namespace(admin.clone(), account.clone(), NAMESPACE);
    let (mut running, shutdown) = (JoinSet::new(), CancellationToken::new());
    start_controllers(&mut running, &world, &account, &shutdown);

    // A set whose Machine names Secrets, with an adopted Machine, a link, requests for certificates, a health check.
    let adopted = json!({
        "metadata": {"name": "adopted", "labels": {"set": NAMESPACE, "machine.openshift.io/cluster-api-cluster": "c"}},
        "spec": {"providerSpec": {"value": {"size": "small"}}}
    });
    world.machines().create(&PostParams::default(), &serde_json::from_value(adopted).unwrap()).await.unwrap();
    world.create_set(2, json!({"size": "small", "userDataSecret": {"name": "absent"}})).await;
    world.running(2).await;
    let check = json!({
        "metadata": {"name": "check"},
        "spec": {"selector": {}, "unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "0s"}]}
    });
    world.checks().create(&PostParams::default(), &serde_json::from_value(check).unwrap()).await.unwrap();
    let node = world.list().await[0].name_any();
    let user = format!("system:node:{node}");
    let kubelet = client_as(&cluster, &user, &["system:nodes", "system:authenticated"]).await;
    request_serving_certificate(&kubelet, "serving", &node).await;
    eventually("the certificate of the node is approved", async || is_approved(&admin, "serving").await)
        .await;
    // A drain that a budget blocks first, of a Node that becomes unhealthy.
    let web = cluster.namespace("web").unwrap();
    run_pod(&admin, &web, &node).await;
    world.set_ready(&node, "False", "2026-01-01T00:00:00Z").await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(admin.clone(), &web);
    eventually("the drain is blocked", async || {
        let requests = log.requests(NAMESPACE, "machine-api-controllers");
        requests.iter().any(|it| it.resource == "poddisruptionbudgets")
    })
    .await;
    let status = Patch::Merge(json!({"status": {
        "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1, "observedGeneration": 1
    }}));
    budgets.patch_status("web", &PatchParams::default(), &status).await.unwrap();
    eventually("the unhealthy Machine is replaced", async || {
        world.machines().get_opt(&node).await.unwrap().is_none()
    })
    .await;
    world.running(2).await;
    // The authority of the webhooks is lost and gets a successor.
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), NAMESPACE);
    secrets.delete(AUTHORITY, &DeleteParams::default()).await.unwrap();
    eventually("the authority has a successor that is published", async || {
        let found = secrets.get_opt(AUTHORITY).await.unwrap().and_then(|it| it.data);
        found.is_some_and(|it| it.contains_key("next-published"))
    })
    .await;
    let none = Arc::new(|| Ok(String::new()));
    assert_eq!(scrape(&admin, &account, none, &[Some("machine-api-controllers")]).await[0].0, 403);
    shutdown.cancel();
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    let leases: Api<Lease> = Api::namespaced(admin.clone(), NAMESPACE);
    for lease in leases.list(&ListParams::default()).await.unwrap() {
        let holder = lease.spec.unwrap().holder_identity.unwrap_or_default();
        assert_eq!(holder, "", "a lease that was not released delays the next process by two minutes");
    }

    let requests = log.requests(NAMESPACE, "machine-api-controllers");
    let forbidden: Vec<_> = requests.iter().filter(|it| it.code == 403).collect();
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    let unused = unused(&rules(&admin, "machine-api-controllers").await, &requests);
    let unseen: BTreeSet<Grant> = [
        // The API server itself checks these when it admits another request.
        Grant::new("machine.openshift.io", "machinesets/finalizers", "update"),
        Grant::new("certificates.k8s.io", "signers", "approve"),
        Grant::new("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "create"),
        Grant::new("admissionregistration.k8s.io", "validatingwebhookconfigurations", "create"),
        // An event that is repeated after a minute is patched.
        Grant::new("", "events", "patch"),
    ]
    .into();
    let unused: BTreeSet<Grant> = unused.difference(&unseen).cloned().collect();
    assert_eq!(unused, BTreeSet::new());
}
