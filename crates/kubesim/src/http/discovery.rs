//! Discovery: the groups, versions and resources, both per group and aggregated.

use hyper::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use super::Body;
use super::handle::{json_body, value};
use super::negotiate::{self, Discovery};
use crate::kinds::{Kind, Subresource};
use crate::registry::Registry;
use crate::status::{ApiResult, StatusError};

/// The media type of the aggregated form.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api`.
pub(super) fn core(kinds: &Registry, headers: &HeaderMap, address: String) -> ApiResult<Response<Body>> {
    if negotiate::discovery(headers)? == Discovery::Aggregated {
        return Ok(aggregated(kinds, &|group| group.is_empty()));
    }
    let versions = json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    });
    Ok(value(StatusCode::OK, &versions))
}

/// `/apis`.
pub(super) fn groups(kinds: &Registry, headers: &HeaderMap) -> ApiResult<Response<Body>> {
    if negotiate::discovery(headers)? == Discovery::Aggregated {
        return Ok(aggregated(kinds, &|group| !group.is_empty()));
    }
    let groups: Vec<Value> = kinds
        .groups()
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| describe_group(group, versions))
        .collect();
    Ok(value(StatusCode::OK, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})))
}

fn describe_group(group: &str, versions: &[&str]) -> Value {
    let described: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "versions": described, "preferredVersion": described.first()})
}

/// `/apis/apps`.
pub(super) fn group(kinds: &Registry, group: &str) -> ApiResult<Response<Body>> {
    let groups = kinds.groups();
    let Some((name, versions)) = groups.iter().find(|(name, _)| *name == group) else {
        return Ok(super::handle::text(StatusCode::NOT_FOUND, "404 page not found\n"));
    };
    let mut document = describe_group(name, versions);
    document["kind"] = json!("APIGroup");
    document["apiVersion"] = json!("v1");
    Ok(value(StatusCode::OK, &document))
}

/// `/apis/apps/v1` and `/api/v1`.
pub(super) fn resources(kinds: &Registry, group: &str, version: &str) -> ApiResult<Response<Body>> {
    let mut resources: Vec<Value> = Vec::new();
    for kind in kinds.all().filter(|kind| kind.group() == group && kind.version() == version) {
        resources.push(describe(kind));
        resources
            .extend(kind.subresources().iter().map(|subresource| describe_subresource(kind, subresource)));
    }
    if resources.is_empty() {
        return Err(StatusError::no_such_resource());
    }
    resources.sort_by(|one, other| one["name"].as_str().cmp(&other["name"].as_str()));
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Ok(value(StatusCode::OK, &list))
}

fn describe(kind: &Kind) -> Value {
    let mut resource = json!({
        "name": kind.plural(), "singularName": kind.singular(), "namespaced": kind.is_namespaced(),
        "kind": kind.kind(), "verbs": legacy_verbs(kind),
    });
    if !kind.short_names().is_empty() {
        resource["shortNames"] = json!(kind.short_names());
    }
    if !kind.categories().is_empty() {
        resource["categories"] = json!(kind.categories());
    }
    if kind.verbs().contains(&"list") {
        resource["storageVersionHash"] = json!(storage_hash(kind));
    }
    resource
}

/// Custom resources list their verbs in another order than built-in ones, as in the real server.
fn legacy_verbs(kind: &Kind) -> Vec<&'static str> {
    if kind.custom().is_some() {
        return vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    }
    kind.verbs().to_vec()
}

fn storage_hash(kind: &Kind) -> String {
    use base64::Engine;
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(format!("{}/{}/{}", kind.group(), kind.version(), kind.kind()));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

fn describe_subresource(kind: &Kind, subresource: &Subresource) -> Value {
    let mut resource = json!({
        "name": format!("{}/{}", kind.plural(), subresource.name), "singularName": "",
        "namespaced": kind.is_namespaced(), "kind": kind.kind(), "verbs": subresource.verbs,
    });
    if let Some((group, version, sent)) = subresource.sends {
        resource["kind"] = json!(sent);
        if group != kind.group() {
            resource["group"] = json!(group);
            resource["version"] = json!(version);
        }
    }
    resource
}

fn aggregated(kinds: &Registry, wanted: &dyn Fn(&str) -> bool) -> Response<Body> {
    let items: Vec<Value> = kinds
        .groups()
        .iter()
        .filter(|(group, _)| wanted(group))
        .map(|(group, versions)| {
            let versions: Vec<Value> =
                versions.iter().map(|version| aggregated_version(kinds, group, version)).collect();
            let mut metadata = json!({"creationTimestamp": null});
            if !group.is_empty() {
                metadata["name"] = json!(group);
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let mut response = json_body(StatusCode::OK, Body::whole(list.to_string()));
    let media = hyper::header::HeaderValue::from_static(AGGREGATED);
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, media);
    response
}

fn aggregated_version(kinds: &Registry, group: &str, version: &str) -> Value {
    let mut resources: Vec<&std::sync::Arc<Kind>> =
        kinds.all().filter(|kind| kind.group() == group && kind.version() == version).collect();
    resources.sort_by_key(|kind| kind.plural().to_owned());
    let resources: Vec<Value> = resources.into_iter().map(|kind| aggregated_resource(kind)).collect();
    json!({"version": version, "freshness": "Current", "resources": resources})
}

fn aggregated_resource(kind: &Kind) -> Value {
    let own =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    // Only custom resources repeat the group and the version of their list.
    let (group, version) = if kind.custom().is_some() { (kind.group(), kind.version()) } else { ("", "") };
    let mut resource = json!({
        "resource": kind.plural(), "responseKind": own(group, version, kind.kind()),
        "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular(), "verbs": kind.verbs(),
    });
    if !kind.short_names().is_empty() {
        resource["shortNames"] = json!(kind.short_names());
    }
    if !kind.categories().is_empty() {
        resource["categories"] = json!(kind.categories());
    }
    let parts: Vec<Value> = kind
        .subresources()
        .iter()
        .map(|subresource| {
            let (group, version, sent) = match subresource.sends {
                Some((other, version, sent)) if other != kind.group() => (other, version, sent),
                Some((_, _, sent)) => (group, version, sent),
                None => (group, version, kind.kind()),
            };
            json!({"subresource": subresource.name, "responseKind": own(group, version, sent), "verbs": subresource.verbs})
        })
        .collect();
    if !parts.is_empty() {
        resource["subresources"] = json!(parts);
    }
    resource
}
