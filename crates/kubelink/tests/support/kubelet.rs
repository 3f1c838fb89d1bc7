//! Plays the kubelet of one node: pods that are there run and are ready, pods that shall go are gone.

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, ResourceExt};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinSet;

/// Works until it is dropped.
pub(crate) struct Kubelet(#[expect(dead_code, reason = "held so that its task ends with it")] JoinSet<()>);

impl Kubelet {
    pub(crate) fn of(client: Client, node: &str) -> Kubelet {
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

/// Errors are the next change's business: a kubelet goes on.
async fn tend(client: &Client, pod: &Pod) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
    let name = pod.name_any();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if pod.metadata.deletion_timestamp.is_some() {
        // Of this pod: news of it may come late, when another has its name.
        let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
        let at_once = DeleteParams { preconditions, ..DeleteParams::default().grace_period(0) };
        let _ = pods.delete(&name, &at_once).await;
    } else if phase == Some("Pending") {
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await;
    }
}
