//! Pruning after an apply: deletes objects that carry the selector's labels, were applied by Shipshape, and are not in the list.
//!
//! Shipshape applied an object if the API server lists it as a field manager, as kubectl uses its own annotation. Objects that a
//! person labelled by hand, and objects that a controller made from a template with the same labels, are left alone.
//! Namespaces, volumes and claims are never pruned, since their contents cannot be restored.

use std::collections::BTreeSet;

use kube::api::{ListParams, PartialObjectMeta};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};
use kubelink::apply::ApplyReport;
use kubelink::delete::{DeleteOptions, delete};
use kubelink::link::FIELD_MANAGER;
use kubelink::{Failure, Target};

use crate::cluster::ClusterContext;
use crate::engine::{StepContext, StepError};

/// Kinds to list besides those that are applied.
const KINDS: [(&str, &str); 17] = [
    ("v1", "ConfigMap"),
    ("v1", "Pod"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "CronJob"),
    ("batch/v1", "Job"),
    ("networking.k8s.io/v1", "Ingress"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
];

/// Kinds that are never pruned.
const KEPT: [&str; 4] =
    ["Namespace", "PersistentVolume", "PersistentVolumeClaim", "CustomResourceDefinition"];

/// Page size of a list.
const PAGE: u32 = 500;

/// Deletes what is no longer wanted, and returns it.
pub(super) async fn prune(
    cx: &ClusterContext,
    step: &StepContext,
    selector: &str,
    applied: &ApplyReport,
) -> Result<Vec<Target>, StepError> {
    let wanted: BTreeSet<Key> = applied.objects.iter().map(|(target, _)| key(target)).collect();
    let progress = cx.progress(step);
    let mut gone = Vec::new();
    for resource in resources(cx, applied).await? {
        for found in carriers(cx, &resource, selector).await? {
            let target =
                Target { resource: resource.clone(), namespace: found.namespace(), name: found.name_any() };
            if wanted.contains(&key(&target)) || !is_ours(&found) {
                continue;
            }
            let options = DeleteOptions { uid: found.uid(), wait: None, ..DeleteOptions::default() };
            delete(&cx.link, &target, &options, &progress).await?;
            gone.push(target);
        }
    }
    Ok(gone)
}

type Key = (String, String, String, String);

fn key(target: &Target) -> Key {
    let namespace = target.namespace.clone().unwrap_or_default();
    (target.resource.group.clone(), target.resource.kind.clone(), namespace, target.name.clone())
}

/// The kinds to list, each once.
async fn resources(cx: &ClusterContext, applied: &ApplyReport) -> Result<Vec<ApiResource>, StepError> {
    let mut found: Vec<ApiResource> = Vec::new();
    let is_there = |found: &[ApiResource], resource: &ApiResource| {
        found.iter().any(|it| it.group == resource.group && it.kind == resource.kind)
    };
    for (target, _) in &applied.objects {
        if !is_there(&found, &target.resource) {
            found.push(target.resource.clone());
        }
    }
    for (api_version, kind) in KINDS {
        match cx.link.resolve(api_version, kind).await {
            Ok((resource, _)) if !is_there(&found, &resource) => found.push(resource),
            Ok(_) => {}
            Err(error) if matches!(error.failure, Failure::UnknownKind { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    found.retain(|resource| !KEPT.contains(&resource.kind.as_str()));
    Ok(found)
}

async fn carriers(
    cx: &ClusterContext,
    resource: &ApiResource,
    selector: &str,
) -> Result<Vec<PartialObjectMeta<DynamicObject>>, StepError> {
    let api: Api<DynamicObject> = Api::all_with(cx.link.client(), resource);
    let mut params = ListParams::default().labels(selector).limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = api.list_metadata(&params).await;
        let page = page
            .map_err(|error| cx.link.failed("list", format!("{} with {selector}", resource.kind), error))?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Whether Shipshape applied the object and no controller owns it.
fn is_ours(found: &PartialObjectMeta<DynamicObject>) -> bool {
    let applied = found
        .managed_fields()
        .iter()
        .any(|it| it.manager.as_deref() == Some(FIELD_MANAGER) && it.operation.as_deref() == Some("Apply"));
    applied && found.owner_references().is_empty() && found.metadata.deletion_timestamp.is_none()
}
