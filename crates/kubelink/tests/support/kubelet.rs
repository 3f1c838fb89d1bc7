//! A stand-in for the kubelet of one node: makes pods ready, and removes terminating ones.

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, ResourceExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinSet;

/// Runs until it is dropped.
pub(crate) struct Kubelet(#[expect(dead_code, reason = "held so that its task ends with it")] JoinSet<()>);

impl Kubelet {
    pub(crate) fn start(client: Client, node: &str) -> Kubelet {
        let mut tasks = JoinSet::new();
        let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        tasks.spawn(async move {
            let pods: Api<Pod> = Api::all(client.clone());
            let changes = watcher(pods, config).default_backoff().applied_objects();
            let mut changes = std::pin::pin!(changes);
            while let Some(change) = changes.next().await {
                if let Ok(pod) = change {
                    tend(&client, &pod).await;
                }
            }
        });
        Kubelet(tasks)
    }
}

/// Errors are ignored: the next change is handled again.
async fn tend(client: &Client, pod: &Pod) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
    let name = pod.name_any();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if pod.metadata.deletion_timestamp.is_some() {
        // By uid: the event may be late, when another pod has its name.
        let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
        let at_once = DeleteParams { preconditions, ..DeleteParams::default().grace_period(0) };
        let _ = pods.delete(&name, &at_once).await;
    } else if phase == Some("Pending") {
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await;
    }
}
