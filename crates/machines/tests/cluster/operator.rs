//! The operator on an API server of its own, from the payload to an upgrade.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::clock::{ManualClock, SystemClock};
use api::crd::machine::{Machine, MachineHealthCheck};
use controller::Observability;
use controller::testing::crash_at_every_write;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use machines::operator::{self, OperatorMetrics, OperatorSettings};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::audit::{Grant, unused};
use crate::openshift::{configure, objects};
use crate::payload::{NAMESPACE, apply_payload, client, client_of, installed, rules, scrape};
use crate::world::eventually;

const CONTROLLERS: &str = "machine-api-controllers";
const HANDLER: &str = "machine-api-termination-handler";

/// A cluster on Azure, and what its administrator does.
#[derive(Clone)]
struct Admin(Client);

impl Admin {
    fn namespaced<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.0.clone(), NAMESPACE)
    }

    /// A condition of the ClusterOperator: status, reason, message.
    async fn condition(&self, type_: &str) -> (String, String, String) {
        let status = self.status().await;
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.into_iter().find(|it| it["type"] == type_).unwrap_or_default();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    async fn status(&self) -> Value {
        let object = objects(&self.0, "ClusterOperator").get_opt("machine-api").await.unwrap();
        object.map(|it| it.data["status"].clone()).unwrap_or_default()
    }

    async fn is_available(&self, version: &str) -> bool {
        let (status, _, message) = self.condition("Available").await;
        let is_reported =
            self.status().await["versions"] == json!([{"name": "operator", "version": version}]);
        let expected = format!("Cluster Machine API Operator is available at operator: {version}");
        status == "True" && message == expected && is_reported
    }

    async fn available(&self, version: &str) {
        eventually("the operator is available", async || self.is_available(version).await).await;
    }

    async fn degraded(&self, message: &str) {
        let expected = ("True".to_owned(), "SyncingFailed".to_owned(), message.to_owned());
        let reached = async || self.condition("Degraded").await == expected;
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let wait = async {
            while !reached().await {
                ticks.tick().await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(30), wait).await.is_err() {
            panic!("expected {message:?}: {:#}", self.status().await);
        }
    }

    async fn set_images(&self, text: &str) {
        let patch = Patch::Merge(json!({"data": {"images.json": text}}));
        let images: Api<ConfigMap> = self.namespaced();
        images.patch("machine-api-operator-images", &PatchParams::default(), &patch).await.unwrap();
    }

    async fn image(&self) -> Option<String> {
        let deployment: Option<Deployment> = self.namespaced().get_opt(CONTROLLERS).await.unwrap();
        deployment?.spec.template.spec?.containers.pop()?.image
    }

    async fn patch_deployment(&self, patch: Value) {
        let deployments: Api<Deployment> = self.namespaced();
        deployments.patch(CONTROLLERS, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    }
}

/// Stands in for the controllers of Deployments and DaemonSets: what is rolled out runs at once and has been available for long, but
/// an image called `bad` cannot be pulled.
async fn run_kubernetes(admin: Admin) {
    let (deployments, sets, pods): (Api<Deployment>, Api<DaemonSet>, Api<Pod>) =
        (admin.namespaced(), admin.namespaced(), admin.namespaced());
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        for found in deployments.list(&ListParams::default()).await.map(|it| it.items).unwrap_or_default() {
            let (name, generation) = (found.metadata.name.clone().unwrap(), found.metadata.generation);
            let observed = found.status.as_ref().and_then(|it| it.observed_generation);
            if observed == generation {
                continue;
            }
            let image = found.spec.template.spec.unwrap().containers.pop().unwrap().image.unwrap();
            let is_bad = image.contains("bad");
            let conditions = json!([
                {"type": "Available", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Progressing", "status": if is_bad { "False" } else { "True" }}
            ]);
            let status = json!({"status": {
                "observedGeneration": generation, "replicas": 1, "updatedReplicas": if is_bad { 0 } else { 1 },
                "readyReplicas": 1, "availableReplicas": 1, "unavailableReplicas": if is_bad { Some(1) } else { None },
                "conditions": conditions
            }});
            let _ = pods.delete("bad", &DeleteParams::default().grace_period(0)).await;
            if is_bad {
                create_bad_pod(&pods, &image).await;
            }
            let _ = deployments.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await;
        }
        for found in sets.list(&ListParams::default()).await.map(|it| it.items).unwrap_or_default() {
            let (name, generation) = (found.metadata.name.unwrap(), found.metadata.generation);
            if found.status.and_then(|it| it.observed_generation) != generation {
                let status = json!({"status": {"observedGeneration": generation}});
                let _ = sets.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await;
            }
        }
    }
}

async fn create_bad_pod(pods: &Api<Pod>, image: &str) {
    let pod = json!({
        "metadata": {"name": "bad", "labels": {"api": "clusterapi", "k8s-app": "controller"}},
        "spec": {"serviceAccountName": CONTROLLERS, "containers": [{"name": "machine-controller", "image": image}]}
    });
    let _ = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await;
    let status = json!({"status": {"phase": "Pending", "containerStatuses": [{
        "name": "machine-controller", "image": image, "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ErrImagePull"}}
    }]}});
    let _ = pods.patch_status("bad", &PatchParams::default(), &Patch::Merge(status)).await;
}

fn settings(version: &str) -> OperatorSettings {
    OperatorSettings {
        poll: Duration::from_millis(100),
        ..OperatorSettings::new(NAMESPACE, "pod-1", version)
    }
}

/// Starts what a pod of the operator runs.
fn start(
    running: &mut JoinSet<()>,
    client: &Client,
    version: &str,
    clock: api::clock::SharedClock,
) -> CancellationToken {
    start_with(running, client, version, clock, OperatorMetrics::default())
}

fn start_with(
    running: &mut JoinSet<()>,
    client: &Client,
    version: &str,
    clock: api::clock::SharedClock,
    metrics: OperatorMetrics,
) -> CancellationToken {
    let (client, settings, shutdown) = (client.clone(), settings(version), CancellationToken::new());
    let token = shutdown.clone();
    running.spawn(async move {
        operator::run(client, settings, clock, Observability::default(), metrics, token).await.unwrap();
    });
    shutdown
}

/// The metrics are for those who may get `namespace/metrics`.
async fn metrics_are_for_those_who_may_read_them(admin: &Admin, account: &Client, metrics: OperatorMetrics) {
    let machine = json!({
        "metadata": {"name": "m", "labels": {"machine.openshift.io/cluster-api-cluster": "c"}}, "spec": {}
    });
    let machines: Api<Machine> = admin.namespaced();
    machines.create(&PostParams::default(), &serde_json::from_value(machine).unwrap()).await.unwrap();
    let phase = Patch::Merge(json!({"status": {"phase": "Running"}}));
    machines.patch_status("m", &PatchParams::default(), &phase).await.unwrap();
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "prometheus-k8s-machine-api-operator"},
        "subjects": [{"kind": "ServiceAccount", "name": HANDLER, "namespace": NAMESPACE}]
    });
    let bindings: Api<RoleBinding> = admin.namespaced();
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let render: machines::metrics_server::RenderMetrics = Arc::new(move || {
        let (mut registry, mut text) = (Registry::default(), String::new());
        metrics.register(&mut registry);
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    });
    let everybody = [None, Some("machine-api-operator"), Some(HANDLER)];
    eventually("the cache has the phase", async || render().unwrap().contains("phase=\"Running\"")).await;
    let responses = scrape(&admin.0, account, render, &everybody).await;
    let statuses: Vec<u16> = responses.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [401, 403, 200], "{responses:?}");
    for line in ["mapi_machine_items 1", "mapi_mao_collector_up{kind=\"mapi_machine_items\"} 1"] {
        assert!(responses[2].1.lines().any(|it| it == line), "{}", responses[2].1);
    }
}

async fn azure(admin: &Client) {
    let platform = json!({"infrastructureName": "c", "platformStatus": {"type": "Azure", "azure": {"cloudName": "AzurePublicCloud"}}});
    configure(admin, "Infrastructure", platform).await;
}

fn images(image: &str) -> String {
    json!({"machineAPIOperator": image, "clusterAPIControllerAzure": image}).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_payload_comes_up_heals_rests_and_upgrades_with_the_rights_of_the_operator() {
    let Some((log, cluster)) = installed() else { return };
    let admin = Admin(client(&cluster, |_| {}).await);
    azure(&admin.0).await;
    let account = client_of(&cluster, &admin.0, "machine-api-operator").await;
    let (mut running, clock) = (JoinSet::new(), Arc::new(SystemClock));
    running.spawn(run_kubernetes(admin.clone()));
    let metrics = OperatorMetrics::default();
    let first = start_with(&mut running, &account, "1", clock.clone(), metrics.clone());
    admin.available("1").await;
    assert_eq!(admin.condition("Upgradeable").await.0, "True");
    assert_eq!(admin.image().await.as_deref(), Some("image.invalid/shipshape:unreleased"));
    assert_eq!(admin.status().await["relatedObjects"].as_array().unwrap().len(), 8);

    edits_are_reverted(&admin).await;
    admin.available("1").await;
    metrics_are_for_those_who_may_read_them(&admin, &account, metrics).await;

    // Nothing but the lease is written at rest, nor for a change that changes nothing.
    let writes = log.writes(NAMESPACE, "machine-api-operator");
    for change in 0..3 {
        configure(&admin.0, "Proxy", json!({"noProxy": "", "change": change})).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(log.writes(NAMESPACE, "machine-api-operator"), writes);

    // The next release is applied over this one: another image, then another operator.
    let conditions = Arc::new(Mutex::new(Vec::new()));
    running.spawn(record_conditions(admin.clone(), conditions.clone()));
    apply_payload(&cluster);
    admin.set_images(&images("shipshape:2")).await;
    first.cancel();
    let second = start(&mut running, &account, "2", clock);
    admin.available("2").await;
    assert_eq!(admin.image().await.as_deref(), Some("shipshape:2"));
    second.cancel();
    let seen = conditions.lock().unwrap().clone();
    // Available and not degraded all the time, progressing once.
    let progress: Vec<bool> = seen.iter().map(|it: &[bool; 3]| it[1]).collect();
    let starts = progress.windows(2).filter(|it| !it[0] && it[1]).count();
    assert!(seen.iter().all(|it| it[0] && !it[2]) && starts <= 1, "{seen:?}");

    let requests = log.requests(NAMESPACE, "machine-api-operator");
    let forbidden: Vec<_> = requests.iter().filter(|it| it.code == 403).collect();
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    let unused = unused(&rules(&admin.0, "machine-api-operator").await, &requests);
    let unseen: BTreeSet<Grant> = [
        // Checked by the API server when an apply creates an object.
        Grant::new("apps", "deployments", "create"),
        Grant::new("apps", "daemonsets", "create"),
        Grant::new("machine.openshift.io", "machinehealthchecks", "create"),
        Grant::new("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "create"),
        Grant::new("admissionregistration.k8s.io", "validatingwebhookconfigurations", "create"),
        // An event that is repeated after a minute is patched.
        Grant::new("", "events", "patch"),
    ]
    .into();
    let unused: BTreeSet<Grant> = unused.difference(&unseen).cloned().collect();
    assert_eq!(unused, BTreeSet::new());
}

/// Edits and deletes everything that the operator keeps, and prints how long each repair took.
async fn edits_are_reverted(admin: &Admin) {
    let deployments: Api<Deployment> = admin.namespaced();
    let sets: Api<DaemonSet> = admin.namespaced();
    let checks: Api<MachineHealthCheck> = admin.namespaced();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(admin.0.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(admin.0.clone());
    let (params, delete) = (PatchParams::default(), DeleteParams::default());
    let within = async |what: &str, is_repaired: &dyn AsyncProbe| {
        let begun = Instant::now();
        eventually(what, async || is_repaired.holds().await).await;
        let took = begun.elapsed();
        println!("{what}: {} ms", took.as_millis());
        assert!(took < Duration::from_secs(2), "{what}: {took:?}");
    };
    let spec = async || {
        serde_json::to_value(deployments.get_opt(CONTROLLERS).await.unwrap().map(|it| it.spec)).unwrap()
    };
    let wanted = spec().await;
    admin.patch_deployment(json!({"spec": {"replicas": 3}})).await;
    within("a changed number of replicas is reverted", &async || spec().await == wanted).await;
    let container = json!({"name": "machine-controller", "env": [{"name": "DEBUG", "value": "1"}]});
    admin
        .patch_deployment(
            json!({"spec": {"template": {"spec": {"containers": [container], "hostNetwork": true}}}}),
        )
        .await;
    within("an added variable is removed", &async || spec().await == wanted).await;
    deployments.delete(CONTROLLERS, &delete).await.unwrap();
    within("a deleted Deployment comes back", &async || spec().await == wanted).await;
    sets.delete(HANDLER, &delete).await.unwrap();
    within("a deleted DaemonSet comes back", &async || sets.get_opt(HANDLER).await.unwrap().is_some()).await;
    let edit = Patch::Merge(json!({"spec": {"maxUnhealthy": "10%"}}));
    checks.patch(HANDLER, &params, &edit).await.unwrap();
    let max = json!("100%");
    within("an edited health check is reverted", &async || {
        let check = checks.get(HANDLER).await.unwrap();
        serde_json::to_value(check.spec.max_unhealthy).unwrap() == max
    })
    .await;
    checks.delete(HANDLER, &delete).await.unwrap();
    within("a deleted health check comes back", &async || checks.get_opt(HANDLER).await.unwrap().is_some())
        .await;
    mutating.delete("machine-api", &delete).await.unwrap();
    within("deleted webhooks come back", &async || mutating.get_opt("machine-api").await.unwrap().is_some())
        .await;
    let edit = Patch::Json::<()>(
        serde_json::from_value(
            json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]),
        )
        .unwrap(),
    );
    validating.patch("machine-api", &params, &edit).await.unwrap();
    within("an edited webhook is reverted", &async || {
        let found = validating.get("machine-api").await.unwrap();
        found.webhooks.unwrap()[0].failure_policy.as_deref() == Some("Ignore")
    })
    .await;
    let edit = Patch::Merge(json!({"status": {"relatedObjects": []}}));
    objects(&admin.0, "ClusterOperator").patch_status("machine-api", &params, &edit).await.unwrap();
    within("related objects come back", &async || {
        admin.status().await["relatedObjects"].as_array().is_some_and(|it| it.len() == 8)
    })
    .await;
    objects(&admin.0, "ClusterOperator").delete("machine-api", &delete).await.unwrap();
    within("a deleted ClusterOperator comes back", &async || !admin.status().await.is_null()).await;
}

/// A question about the cluster.
trait AsyncProbe {
    fn holds(&self) -> std::pin::Pin<Box<dyn Future<Output = bool> + '_>>;
}

impl<F: AsyncFn() -> bool> AsyncProbe for F {
    fn holds(&self) -> std::pin::Pin<Box<dyn Future<Output = bool> + '_>> {
        Box::pin(self())
    }
}

/// Records whether the ClusterOperator is available, progressing and degraded, as often as that changes.
async fn record_conditions(admin: Admin, seen: Arc<Mutex<Vec<[bool; 3]>>>) {
    loop {
        let mut now = [false; 3];
        let status = admin.status().await;
        for (at, type_) in ["Available", "Progressing", "Degraded"].into_iter().enumerate() {
            let all = status["conditions"].as_array().into_iter().flatten();
            now[at] = all.into_iter().any(|it| it["type"] == type_ && it["status"] == "True");
        }
        {
            let mut seen = seen.lock().unwrap();
            if seen.last() != Some(&now) {
                seen.push(now);
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_reported_with_object_and_field_and_ends_when_it_is_repaired() {
    let Some((_log, cluster)) = installed() else { return };
    let admin = Admin(client(&cluster, |_| {}).await);
    azure(&admin.0).await;
    let (mut running, clock) =
        (JoinSet::new(), ManualClock::at("2026-06-01T00:00:00Z".parse::<Timestamp>().unwrap()));
    running.spawn(run_kubernetes(admin.clone()));
    let first = start(&mut running, &admin.0, "1", clock.clone());
    admin.available("1").await;

    admin.set_images("{").await;
    let images_field = "ConfigMap openshift-machine-api/machine-api-operator-images: data[\"images.json\"]";
    let sentence =
        "is not a JSON object with names of images: EOF while parsing an object at line 1 column 1";
    admin.degraded(&format!("Failed to resync for operator: 1 because {images_field} {sentence}")).await;
    admin.set_images(&images("shipshape:1")).await;
    admin.available("1").await;

    configure(&admin.0, "Proxy", json!({"httpsProxy": "proxy:3128"})).await;
    admin.degraded(
        "Failed to resync for operator: 1 because Proxy cluster: status.httpsProxy \"proxy:3128\" is not a URL such as http://proxy.example:3128",
    )
    .await;
    configure(&admin.0, "Proxy", json!({"httpsProxy": "http://proxy:3128"})).await;
    eventually("it is not degraded", async || admin.condition("Degraded").await.0 == "False").await;
    let deployment: Deployment = admin.namespaced().get(CONTROLLERS).await.unwrap();
    let variables = deployment.spec.template.spec.unwrap().containers[0].env.clone().unwrap();
    assert_eq!(variables[0].value.as_deref(), Some("http://proxy:3128"));

    // A definition that is deleted, with its objects.
    let definitions: Api<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    > = Api::all(admin.0.clone());
    let name = "machinesets.machine.openshift.io";
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    admin.degraded(&format!(
        "Failed to resync for operator: 1 because CustomResourceDefinition {name}: status.conditions[Established] is not True"
    ))
    .await;
    apply_payload(&cluster);
    eventually("it is not degraded", async || admin.condition("Degraded").await.0 == "False").await;
    first.cancel();

    // An upgrade to an image that cannot be pulled is reported after twenty minutes.
    let second = start(&mut running, &admin.0, "2", clock.clone());
    admin.set_images(&images("bad:2")).await;
    eventually("the upgrade has begun", async || {
        let progressing = admin.condition("Progressing").await;
        progressing.2 == "Progressing towards operator: 2" && admin.image().await.as_deref() == Some("bad:2")
    })
    .await;
    clock.advance(SignedDuration::from_mins(19));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(admin.condition("Degraded").await.0, "False");
    clock.advance(SignedDuration::from_mins(2));
    admin.degraded(
        "Failed when progressing towards operator: 2 because deployment machine-api-controllers is not available: pod bad: container machine-controller cannot pull image bad:2 (ImagePullBackOff)",
    )
    .await;
    assert_eq!(admin.status().await["versions"][0]["version"], "1");
    admin.set_images(&images("shipshape:2")).await;
    admin.available("2").await;
    second.cancel();

    // A platform without controllers.
    configure(&admin.0, "Infrastructure", json!({"platformStatus": {"type": "None"}})).await;
    let third = start(&mut running, &admin.0, "3", clock);
    eventually("it reports the mode", async || {
        admin.condition("Available").await.2 == "Cluster Machine API Operator is in NoOp mode"
    })
    .await;
    third.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_machine_api_comes_up_whenever_the_operator_ends_at_a_write() {
    let Some((_log, cluster)) = installed() else { return };
    let admin = Admin(client(&cluster, |_| {}).await);
    azure(&admin.0).await;
    let mut running = JoinSet::new();
    running.spawn(run_kubernetes(admin.clone()));
    let prepare = async |_| {
        let delete = DeleteParams::background();
        let _ = admin.namespaced::<Deployment>().delete(CONTROLLERS, &delete).await;
        let _ = admin.namespaced::<DaemonSet>().delete(HANDLER, &delete).await;
        let _ = admin.namespaced::<MachineHealthCheck>().delete(HANDLER, &delete).await;
        let _ =
            Api::<MutatingWebhookConfiguration>::all(admin.0.clone()).delete("machine-api", &delete).await;
        let _ =
            Api::<ValidatingWebhookConfiguration>::all(admin.0.clone()).delete("machine-api", &delete).await;
        let _ = objects(&admin.0, "ClusterOperator").delete("machine-api", &delete).await;
    };
    let process = |client: Client, ()| async move {
        let settings = OperatorSettings { lease: None, ..settings("1") };
        let (clock, token) = (Arc::new(SystemClock), CancellationToken::new());
        operator::run(client, settings, clock, Observability::default(), OperatorMetrics::default(), token)
            .await
            .unwrap();
    };
    let settled = |()| {
        let admin = admin.clone();
        async move {
            let (mutating, validating): (
                Api<MutatingWebhookConfiguration>,
                Api<ValidatingWebhookConfiguration>,
            ) = (Api::all(admin.0.clone()), Api::all(admin.0.clone()));
            eventually("everything is there and reported", async || {
                admin.is_available("1").await
                    && admin.image().await.is_some()
                    && admin.namespaced::<DaemonSet>().get_opt(HANDLER).await.unwrap().is_some()
                    && admin.namespaced::<MachineHealthCheck>().get_opt(HANDLER).await.unwrap().is_some()
                    && mutating.get_opt("machine-api").await.unwrap().is_some()
                    && validating.get_opt("machine-api").await.unwrap().is_some()
            })
            .await;
        }
    };
    let writes = crash_at_every_write(&admin.0, prepare, process, settled).await;
    assert!(writes >= 8, "{writes} writes");
}
