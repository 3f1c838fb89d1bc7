//! Machines that boot into the cluster that their user data names.

use api::install::Installer as _;
use cloud::{InstanceProvider as _, Machines as _};
use cloudsim::settings::{ScheduledEvent, Setting};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use super::{InstanceEnvironment, user_data};
use crate::environment::eventually;
use crate::installing::client;

/// A cluster that is up, with a client of its administrator.
pub(super) async fn installed() -> (InstanceEnvironment, kube::Client) {
    let environment = InstanceEnvironment::new().await;
    environment.emulator.installed(&environment.install).await;
    let credentials =
        environment.emulator.cloud.installer().credentials(environment.install.cluster).await.unwrap();
    let client = client(credentials.kubeconfig.expose()).await;
    (environment, client)
}

async fn requests(client: &kube::Client) -> Vec<CertificateSigningRequest> {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    requests.list(&ListParams::default()).await.unwrap().items
}

/// The request of a signer that waits for approval.
pub(super) async fn pending(client: &kube::Client, signer: &str) -> CertificateSigningRequest {
    eventually(&format!("a request for {signer}"), async || {
        requests(client).await.into_iter().find(|it| {
            it.spec.signer_name == signer && it.status.as_ref().is_none_or(|it| it.conditions.is_none())
        })
    })
    .await
}

pub(super) async fn approve(client: &kube::Client, request: &CertificateSigningRequest) {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let condition = json!({ "type": "Approved", "status": "True", "reason": "Test", "message": "" });
    let patch = json!({ "status": { "conditions": [condition] } });
    let name = request.metadata.name.as_deref().unwrap();
    requests.patch_approval(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

pub(super) async fn node(client: &kube::Client, name: &str) -> Option<Node> {
    Api::<Node>::all(client.clone()).get_opt(name).await.unwrap()
}

pub(super) async fn is_ready(client: &kube::Client, name: &str, expected: bool) {
    eventually(&format!("node {name} is ready: {expected}"), async || {
        let status = node(client, name).await?.status?;
        let ready = status.conditions?.into_iter().find(|it| it.type_ == "Ready")?;
        ((ready.status == "True") == expected).then_some(())
    })
    .await;
}

pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

#[tokio::test]
async fn a_machine_joins_when_its_request_is_approved_and_follows_its_instance() {
    let (environment, client) = installed().await;
    let request = environment.machine("one-worker-new");
    let instance = environment.created(&request).await;

    let bootstrap = pending(&client, CLIENT).await;
    assert_eq!(
        bootstrap.spec.username.as_deref(),
        Some("system:serviceaccount:openshift-machine-config-operator:node-bootstrapper")
    );
    assert!(node(&client, "one-worker-new").await.is_none(), "nobody has approved it");
    approve(&client, &bootstrap).await;
    is_ready(&client, "one-worker-new", true).await;

    let found = node(&client, "one-worker-new").await.unwrap();
    assert_eq!(found.spec.unwrap().provider_id, Some(instance.provider_id.clone()));
    let addresses = found.status.unwrap().addresses.unwrap();
    let internal = addresses.iter().find(|it| it.type_ == "InternalIP").unwrap();
    assert!(instance.addresses.iter().any(|it| it.address == internal.address), "{internal:?} {instance:?}");

    let serving = pending(&client, SERVING).await;
    assert_eq!(serving.spec.username.as_deref(), Some("system:node:one-worker-new"));
    approve(&client, &serving).await;

    // Impaired and well again.
    let id = environment.install.group.sibling("Microsoft.Compute", "virtualMachines", "one-worker-new");
    let cloud = &environment.emulator.cloud;
    cloud.arrange(Setting::Impair { machine: id.clone(), impaired: true }).await.unwrap();
    is_ready(&client, "one-worker-new", false).await;
    assert_eq!(environment.provider.find(&request).await.unwrap().unwrap().state, "Running");
    cloud.arrange(Setting::Impair { machine: id.clone(), impaired: false }).await.unwrap();
    is_ready(&client, "one-worker-new", true).await;

    // Stopped and started.
    cloud.azure().stop_machine(&id).await.unwrap();
    is_ready(&client, "one-worker-new", false).await;
    cloud.azure().start_machine(&id).await.unwrap();
    is_ready(&client, "one-worker-new", true).await;

    // Taken back by the cloud.
    let event = ScheduledEvent {
        machine: "one-worker-new".to_owned(),
        id: "e".to_owned(),
        event_type: "Preempt".to_owned(),
        status: Some("Scheduled".to_owned()),
        not_before: None,
        description: String::new(),
        duration_seconds: -1,
    };
    cloud.arrange(Setting::ScheduledEvent(event)).await.unwrap();
    is_ready(&client, "one-worker-new", false).await;
    assert_eq!(environment.provider.find(&request).await.unwrap().unwrap().state, "Deallocated");

    // The node outlives its machine, until somebody deletes it, and does not come back.
    environment.deleted_with_all_parts(&request).await;
    assert!(node(&client, "one-worker-new").await.is_some());
    Api::<Node>::all(client.clone()).delete("one-worker-new", &DeleteParams::default()).await.unwrap();
    let other = environment.machine("one-worker-other");
    environment.created(&other).await;
    pending(&client, CLIENT).await;
    assert!(node(&client, "one-worker-new").await.is_none());
}

#[tokio::test]
async fn a_machine_whose_user_data_names_another_cluster_joins_none() {
    let (environment, client) = installed().await;
    let mut stranger = environment.machine("one-worker-stranger");
    stranger.user_data = Some(api::secret::Secret::new(user_data("two.example.test").into_bytes()));
    environment.created(&stranger).await;
    let member = environment.machine("one-worker-member");
    environment.created(&member).await;
    // The member's request is there, so the stranger's would be.
    pending(&client, CLIENT).await;
    assert_eq!(requests(&client).await.len(), 1);
}
