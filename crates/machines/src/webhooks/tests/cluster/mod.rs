//! The webhooks behind a real kube-apiserver.

mod admission;
mod balancer;
mod rotation;

use std::sync::Arc;
use std::time::Duration;

use api::clock::SystemClock;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use testkit::kube::{PrivateTestCluster, TestClusterOptions};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::webhooks::{WebhookConfig, Webhooks, WebhooksError};

pub(super) const NAMESPACE: &str = "openshift-machine-api";

/// The longest wait for the effect of a change; the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// A cluster of one test with the kinds of the machine API.
pub(super) struct World {
    cluster: PrivateTestCluster,
    pub(super) client: Client,
}

/// None, with a message, if this machine has no cluster.
pub(super) async fn world() -> Option<World> {
    let Some(cluster) = testkit::kube::private(TestClusterOptions::default()) else {
        testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, testkit::kube::MISSING);
        return None;
    };
    let connection = controller::connect(Some(&cluster.kubeconfig_path()), None).await.unwrap();
    let world = World { cluster, client: connection.client };
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    for definition in api::crd::definitions() {
        world.define(definition).await;
    }
    Some(world)
}

impl World {
    /// Installs a custom resource and waits until it is served.
    async fn define(&self, definition: CustomResourceDefinition) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let name = definition.name_any();
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        until("the custom resource is served", async || {
            let found = definitions.get(&name).await.unwrap();
            let conditions = found.status.and_then(|it| it.conditions).unwrap_or_default();
            conditions.iter().any(|it| it.type_ == "Established" && it.status == "True")
        })
        .await;
    }

    /// Installs the kind `Infrastructure` and its object with this status.
    pub(super) async fn describe_platform(&self, status: Value) {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "metadata": {"name": "infrastructures.config.openshift.io"},
            "spec": {
                "group": "config.openshift.io", "scope": "Cluster",
                "names": {"kind": "Infrastructure", "plural": "infrastructures"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}
                }]
            }
        });
        self.define(serde_json::from_value(definition).unwrap()).await;
        let kind = GroupVersionKind::gvk("config.openshift.io", "v1", "Infrastructure");
        let resource = ApiResource::from_gvk(&kind);
        let objects: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let object = DynamicObject::new("cluster", &resource).data(json!({"status": status}));
        until("the platform is described", async || {
            objects.create(&PostParams::default(), &object).await.is_ok()
        })
        .await;
    }

    /// Binds webhooks for the API server of this machine.
    pub(super) async fn webhooks(&self, change: impl FnOnce(&mut WebhookConfig)) -> Webhooks {
        let mut config = WebhookConfig::on_loopback(NAMESPACE);
        config.check_interval = Duration::from_millis(200);
        change(&mut config);
        Webhooks::bind(self.client.clone(), Arc::new(SystemClock), config).await.unwrap()
    }

    /// Objects of a kind of the machine API.
    pub(super) fn objects(&self, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("machine.openshift.io", "v1beta1", kind);
        Api::namespaced_with(self.client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
    }

    /// The error of a creation that is not stored; none if it would be admitted.
    pub(super) async fn dry_run(&self, kind: &str, object: &Value) -> Option<String> {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let object = serde_json::from_value(object.clone()).unwrap();
        match self.objects(kind).create(&params, &object).await {
            Ok(_) => None,
            Err(kube::Error::Api(status)) => Some(status.message.clone()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Runs kubectl with an object on its standard input; returns its output and its errors.
    pub(super) fn kubectl(&self, arguments: &[&str], input: &Value) -> (String, String) {
        use std::io::Write as _;
        use std::process::Stdio;
        tokio::task::block_in_place(|| {
            let mut command = self.cluster.kubectl();
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (text(&output.stdout), text(&output.stderr))
        })
    }
}

/// Webhooks that run in the background of a test.
pub(super) struct RunningWebhooks {
    tasks: JoinSet<Result<(), WebhooksError>>,
    shutdown: CancellationToken,
}

impl RunningWebhooks {
    pub(super) fn start(all: impl IntoIterator<Item = Webhooks>) -> RunningWebhooks {
        let (mut tasks, shutdown) = (JoinSet::new(), CancellationToken::new());
        for webhooks in all {
            tasks.spawn(webhooks.run(shutdown.clone()));
        }
        RunningWebhooks { tasks, shutdown }
    }

    /// Ends them; none may have failed.
    pub(super) async fn stop(mut self) {
        self.shutdown.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap().unwrap();
        }
    }
}

/// Waits until a condition holds.
pub(super) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting)
        .await
        .unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}"));
}
