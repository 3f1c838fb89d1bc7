//! Reads objects of any kind by the name that a person would use. Reads only.

use kube::Api;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
pub use kube::discovery::Scope;

use crate::error::{Failure, LinkError};
use crate::link::Link;

/// Groups in which a kind without a group is searched, in this order.
const KNOWN: [&str; 18] = [
    "v1",
    "apps/v1",
    "batch/v1",
    "config.openshift.io/v1",
    "machine.openshift.io/v1beta1",
    "policy/v1",
    "autoscaling/v2",
    "networking.k8s.io/v1",
    "storage.k8s.io/v1",
    "rbac.authorization.k8s.io/v1",
    "certificates.k8s.io/v1",
    "coordination.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "admissionregistration.k8s.io/v1",
    "machineconfiguration.openshift.io/v1",
    "operator.openshift.io/v1",
    "shipshape.dev/v1alpha1",
];

/// One page of objects.
#[derive(Debug, Clone)]
pub struct ObjectPage {
    /// The objects.
    pub objects: Vec<DynamicObject>,
    /// Whether there are more.
    pub is_cut: bool,
}

/// The API resource of a kind that a person names: `Node`, `nodes`, or with its group, `Deployment.apps`.
pub async fn resolve_kind(link: &Link, word: &str) -> Result<(ApiResource, Scope), LinkError> {
    let (name, group) = word.split_once('.').unwrap_or((word, ""));
    let is_meant = |resource: &ApiResource| {
        resource.kind.eq_ignore_ascii_case(name) || resource.plural.eq_ignore_ascii_case(name)
    };
    let unknown = || {
        let (kind, api_version) = (name.to_owned(), if group.is_empty() { "any known group" } else { group });
        link.error("find", word, Failure::UnknownKind { api_version: api_version.to_owned(), kind })
    };
    if group.is_empty() {
        for api_version in KNOWN {
            let served = link.served(api_version).await?;
            if let Some((resource, capabilities)) =
                served.into_iter().find(|(resource, _)| is_meant(resource))
            {
                return Ok((resource, capabilities.scope));
            }
        }
        return Err(unknown());
    }
    let groups = kube::Discovery::new(link.client()).filter(&[group]).run().await;
    let groups = groups.map_err(|error| link.failed("discover", format!("kinds of {group}"), error))?;
    let served = groups.get(group).map(kube::discovery::ApiGroup::resources_by_stability).unwrap_or_default();
    let found = served.into_iter().find(|(resource, _)| is_meant(resource));
    found.map(|(resource, capabilities)| (resource, capabilities.scope)).ok_or_else(unknown)
}

/// At most `limit` objects of a kind, of one namespace or of all.
pub async fn list(
    link: &Link,
    resource: &ApiResource,
    namespace: Option<&str>,
    limit: u32,
) -> Result<ObjectPage, LinkError> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(link.client(), namespace, resource),
        None => Api::all_with(link.client(), resource),
    };
    let page = api.list(&ListParams::default().limit(limit)).await;
    let page = page.map_err(|error| link.failed("list", &resource.plural, error))?;
    let is_cut = page.metadata.continue_.is_some_and(|token| !token.is_empty());
    Ok(ObjectPage { objects: page.items, is_cut })
}
