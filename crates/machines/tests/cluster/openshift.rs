//! The kinds of OpenShift that the payload has or reads, as definitions that accept every field.

use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::kube::TestCluster;

/// Group, version, kind, plural, whether it is in namespaces.
const KINDS: [(&str, &str, &str, &str, bool); 8] = [
    ("config.openshift.io", "v1", "ClusterOperator", "clusteroperators", false),
    ("config.openshift.io", "v1", "Infrastructure", "infrastructures", false),
    ("config.openshift.io", "v1", "Proxy", "proxies", false),
    ("config.openshift.io", "v1", "FeatureGate", "featuregates", false),
    ("cloudcredential.openshift.io", "v1", "CredentialsRequest", "credentialsrequests", true),
    ("security.openshift.io", "v1", "SecurityContextConstraints", "securitycontextconstraints", false),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules", true),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", true),
];

/// Defines the kinds.
pub(crate) fn define(cluster: &TestCluster) {
    let definitions = KINDS.map(|(group, version, kind, plural, is_namespaced)| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
                "names": {"kind": kind, "plural": plural},
                "versions": [{
                    "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
                }]
            }
        })
    });
    let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": definitions});
    std::fs::write(file.path(), list.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    crate::payload::kubectl(cluster, &["apply", "--server-side", "-f", path]);
    crate::payload::kubectl(cluster, &["create", "namespace", "openshift-cloud-credential-operator"]);
    crate::payload::kubectl(cluster, &["wait", "--for=condition=Established", "--timeout=60s", "-f", path]);
}

/// The objects of one of the kinds.
pub(crate) fn objects(client: &Client, kind: &str) -> Api<DynamicObject> {
    let (group, version, _, plural, _) = KINDS.into_iter().find(|it| it.2 == kind).unwrap();
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
}

/// Creates or changes the configuration of the cluster, with its status.
pub(crate) async fn configure(client: &Client, kind: &str, status: Value) {
    let api = objects(client, kind);
    if api.get_opt("cluster").await.unwrap().is_none() {
        let object = json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": "cluster"}, "spec": {}});
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status("cluster", &PatchParams::default(), &patch).await.unwrap();
}
