//! Paths and objects for cases.

use serde_json::{Value, json};

use crate::script::Script;

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/{ns}/pods";
pub(crate) const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";
pub(crate) const SERVICES: &str = "/api/v1/namespaces/{ns}/services";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/{ns}/deployments";
pub(crate) const BUDGETS: &str = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets";
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(crate) fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "colour": "red" } })
}

pub(crate) const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles";
pub(crate) const ROLE_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings";
pub(crate) const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
pub(crate) const CLUSTER_ROLE_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// A `Role` or `ClusterRole` with these rules.
pub(crate) fn role(kind: &str, name: &str, rules: Value) -> Value {
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name }, "rules": rules })
}

/// A binding of a role to a user; the kind of the binding is given, and that of the role.
pub(crate) fn binding(kind: &str, name: &str, role: (&str, &str), user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1 },
        "subjects": [{ "kind": "User", "name": user }]
    })
}

/// Gives a user of the case these rights in its namespace, and waits until they are in force.
pub(crate) async fn permit(s: &mut Script, user: &str, name: &str, rules: Value) {
    s.post(ROLES, role("Role", name, rules.clone())).only("/kind").await;
    s.post(ROLE_BINDINGS, binding("RoleBinding", name, ("Role", name), user)).only("/kind").await;
    for rule in rules.as_array().into_iter().flatten() {
        let resource = rule["resources"][0].as_str().unwrap_or_default();
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        s.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": user, "resourceAttributes": {
                "namespace": "{ns}", "verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": resource,
                "subresource": subresource, "name": rule["resourceNames"][0].as_str().unwrap_or_default()
            } }
        })).until("/status/allowed", true.into()).only("/kind").await;
    }
}

pub(crate) fn labelled(name: &str, labels: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "labels": labels } })
}

/// A pod without a scheduler, so that only the case changes it.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": "web" } },
        "spec": {
            "schedulerName": "nobody", "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "example.test/web:1" }]
        }
    })
}

pub(crate) fn template() -> Value {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": "example.test/web:1" }] }
    })
}

pub(crate) fn deployment(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template() }
    })
}

/// A CRD with a unique group and this schema.
pub(crate) fn crd(scope: &str, schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "ships.{id}.example.test" },
        "spec": {
            "group": "{id}.example.test", "scope": scope,
            "names": { "kind": "Ship", "plural": "ships", "singular": "ship", "shortNames": ["sh"] },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }]
        }
    })
}

pub(crate) const SHIPS: &str = "/apis/{id}.example.test/v1/namespaces/{ns}/ships";

pub(crate) fn ship(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "{id}.example.test/v1", "kind": "Ship", "metadata": { "name": name }, "spec": spec })
}

/// Creates the node of some pods: controllers delete pods of missing nodes.
pub(crate) async fn create_node(s: &mut Script) {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "somewhere-{id}" } });
    s.post(NODES, node).only("/kind").await;
}
