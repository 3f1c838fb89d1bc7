//! Roles: what they permit, and who may grant them.

use serde_json::json;

use super::fixtures::{
    CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CONFIG_MAPS, PODS, ROLE_BINDINGS, ROLES, binding, config_map,
    permit, pod, role,
};
use crate::script::cases;

cases! { "rbac";
    async fn a_role_permits_its_verbs_in_its_namespace(s) {
        s.get(CONFIG_MAPS).by("u-{id}").expect(403).await;
        permit(s, "u-{id}", "reader", json!([
            { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"] },
            { "apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"] }
        ])).await;
        s.post(CONFIG_MAPS, config_map("a")).by("u-{id}").only("/kind").await;
        s.get("/api/v1/namespaces/{ns}/configmaps/a").by("u-{id}").only("/kind").await;
        s.get("/api/v1/namespaces/default/configmaps/a").by("u-{id}").expect(403).await;
        s.get("/api/v1/configmaps").by("u-{id}").expect(403).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?watch=true").by("u-{id}").expect(403).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "data": { "x": "1" } })).by("u-{id}").expect(403).await;
        s.put("/api/v1/namespaces/{ns}/configmaps/a", config_map("a")).by("u-{id}").expect(403).await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/a").by("u-{id}").expect(403).await;
        s.delete(CONFIG_MAPS).by("u-{id}").expect(403).await;
        s.get("/api/v1/namespaces/{ns}/pods/a").by("u-{id}").expect(403).await;
        s.get("/api/v1/namespaces/{ns}/pods/a/log").by("u-{id}").expect(404).await;
        s.post("/api/v1/namespaces/{ns}/pods/a/eviction", json!({})).by("u-{id}").expect(403).await;
        s.get("/apis/apps/v1/namespaces/{ns}/deployments").by("u-{id}").expect(403).await;
    }

    async fn names_limit_a_role_to_single_objects(s) {
        permit(s, "u-{id}", "one", json!([
            { "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get", "list", "watch"] }
        ])).await;
        s.post(CONFIG_MAPS, config_map("a")).only("/kind").await;
        s.get("/api/v1/namespaces/{ns}/configmaps/a").by("u-{id}").only("/kind").await;
        s.get("/api/v1/namespaces/{ns}/configmaps/b").by("u-{id}").expect(403).await;
        s.get(CONFIG_MAPS).by("u-{id}").expect(403).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?fieldSelector=metadata.name%3Da").by("u-{id}").only("/items/0/metadata/name").await;
        s.get("/api/v1/namespaces/{ns}/configmaps?fieldSelector=metadata.name%3Db").by("u-{id}").expect(403).await;
    }

    async fn a_cluster_role_permits_paths_and_all_namespaces(s) {
        s.post(CLUSTER_ROLES, role("ClusterRole", "r-{id}", json!([
            { "nonResourceURLs": ["/metrics-{id}", "/debug-{id}/*"], "verbs": ["get"] },
            { "apiGroups": [""], "resources": ["nodes"], "verbs": ["list"] }
        ]))).without("/metadata/managedFields").await;
        s.post(CLUSTER_ROLE_BINDINGS, binding("ClusterRoleBinding", "r-{id}", ("ClusterRole", "r-{id}"), "u-{id}")).await;
        s.get("/metrics-{id}").by("u-{id}").until("", "404 page not found\n".into()).expect(404).only("/kind").await;
        s.get("/debug-{id}/x").by("u-{id}").expect(404).only("/kind").await;
        s.get("/debug-{id}").by("u-{id}").expect(403).await;
        s.get("/api/v1/nodes").by("u-{id}").only("/kind").await;
        s.get("/api/v1/nodes/x").by("u-{id}").expect(403).await;
        s.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/r-{id}").only("/kind").await;
        s.delete("/apis/rbac.authorization.k8s.io/v1/clusterroles/r-{id}").only("/kind").await;
    }

    async fn a_deleted_binding_permits_nothing(s) {
        permit(s, "u-{id}", "reader", json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] }])).await;
        s.get(PODS).by("u-{id}").only("/kind").await;
        s.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings/reader").only("/kind").await;
        s.get(PODS).by("u-{id}").until("/code", 403.into()).expect(403).await;
    }

    async fn a_binding_to_a_missing_role_is_named(s) {
        s.post(ROLE_BINDINGS, binding("RoleBinding", "b", ("Role", "missing"), "u-{id}")).only("/kind").await;
        let why = "pods is forbidden: User \"u-{id}\" cannot list resource \"pods\" in API group \"\" in the namespace \"{ns}\": rbac: RBAC: role.rbac.authorization.k8s.io \"missing\" not found";
        let why = s.names.expand(why);
        s.get(PODS).by("u-{id}").until("/message", why.into()).expect(403).await;
    }

    async fn the_default_roles_exist(s) {
        for name in ["cluster-admin", "system:basic-user", "system:discovery", "system:public-info-viewer", "system:node-bootstrapper"] {
            s.get(&format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}")).await;
        }
        for name in ["admin", "edit", "view"] {
            s.get(&format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}")).without("/metadata/managedFields").await;
        }
        s.get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:public-info-viewer").await;
        s.get("/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public/rolebindings").await;
        s.get("/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles").await;
    }

    async fn a_role_is_aggregated(s) {
        let labelled = |name: &str, rules| {
            let mut object = role("ClusterRole", name, rules);
            object["metadata"]["labels"] = json!({ "part-of-{id}": "true" });
            object
        };
        s.post(CLUSTER_ROLES, labelled("one-{id}", json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]))).only("/kind").await;
        let mut whole = role("ClusterRole", "whole-{id}", json!([]));
        whole["aggregationRule"] = json!({ "clusterRoleSelectors": [{ "matchLabels": { "part-of-{id}": "true" } }] });
        s.post(CLUSTER_ROLES, whole).only("/kind").await;
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/whole-{id}";
        s.get(path).until("/rules/0/resources/0", "pods".into()).without("/metadata/managedFields").await;
        s.post(CLUSTER_ROLES, labelled("two-{id}", json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] }]))).only("/kind").await;
        s.get(path).until("/rules/1/resources/0", "nodes".into()).only("/rules").await;
        for name in ["one", "two", "whole"] {
            s.delete(&format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}-{{id}}")).only("/kind").await;
        }
    }

    async fn nobody_grants_what_he_does_not_hold(s) {
        permit(s, "u-{id}", "granter", json!([
            { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["create", "update", "patch", "get"] },
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }
        ])).await;
        s.post(ROLES, role("Role", "small", json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]))).by("u-{id}").only("/kind").await;
        s.post(ROLES, role("Role", "large", json!([
            { "apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "delete"] },
            { "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a"], "verbs": ["get"] }
        ]))).by("u-{id}").expect(403).await;
        s.merge("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles/small", json!({ "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] }))
            .by("u-{id}").expect(403).await;
        s.merge("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles/small", json!({ "metadata": { "labels": { "a": "b" } } })).by("u-{id}").only("/kind").await;
        s.post(ROLE_BINDINGS, binding("RoleBinding", "small", ("Role", "small"), "other")).by("u-{id}").only("/kind").await;
        s.post(ROLE_BINDINGS, binding("RoleBinding", "large", ("ClusterRole", "system:node-bootstrapper"), "other")).by("u-{id}").expect(403).await;
        s.post(ROLE_BINDINGS, binding("RoleBinding", "none", ("Role", "missing"), "other")).by("u-{id}").expect(404).await;
        s.put("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles/other", role("Role", "other", json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] }])))
            .by("u-{id}").expect(403).await;
        s.get("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles/large").expect(404).await;
    }

    async fn bind_and_escalate_permit_to_grant(s) {
        permit(s, "u-{id}", "granter", json!([
            { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["escalate", "create"] },
            { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": ["create"] },
            { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["view"], "verbs": ["bind"] }
        ])).await;
        s.post(ROLES, role("Role", "all", json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]))).by("u-{id}").only("/kind").await;
        s.post(ROLE_BINDINGS, binding("RoleBinding", "view", ("ClusterRole", "view"), "other")).by("u-{id}").only("/kind").await;
        s.post(ROLE_BINDINGS, binding("RoleBinding", "all", ("Role", "all"), "other")).by("u-{id}").expect(403).await;
    }

    async fn an_update_that_creates_needs_the_permission_to_create(s) {
        permit(s, "u-{id}", "updater", json!([
            { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["update", "patch"] },
            { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"] }
        ])).await;
        s.put("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/a", json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "a" }, "spec": {}
        })).by("u-{id}").expect(403).await;
        s.apply("/api/v1/namespaces/{ns}/configmaps/a?fieldManager=me", json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }
        })).by("u-{id}").expect(403).await;
    }

    async fn a_role_reference_is_immutable(s) {
        s.post(ROLE_BINDINGS, binding("RoleBinding", "b", ("Role", "a"), "u-{id}")).only("/kind").await;
        s.merge("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings/b", json!({ "roleRef": { "name": "other" } })).expect(422).await;
        s.merge("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings/b", json!({ "subjects": [{ "kind": "Group", "name": "g" }] }))
            .only("/subjects").await;
    }

    async fn invalid_roles_and_bindings(s) {
        s.post(ROLES, role("Role", "a", json!([
            { "verbs": ["get"] }, { "verbs": [], "apiGroups": [""], "resources": ["pods"] }, { "verbs": ["get"], "nonResourceURLs": ["/x"] }
        ]))).expect(422).await;
        let mut object = role("ClusterRole", "a-{id}", json!([{ "verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["a"] }]));
        object["aggregationRule"] = json!({ "clusterRoleSelectors": [] });
        s.post(CLUSTER_ROLES, object).expect(422).await;
        let mut object = binding("RoleBinding", "a", ("Thing", "x"), "");
        object["subjects"] = json!([
            { "kind": "User", "name": "" }, { "kind": "User", "name": "u", "apiGroup": "other" }, { "kind": "ServiceAccount", "name": "A" },
            { "kind": "Thing", "name": "x" }
        ]);
        s.post(ROLE_BINDINGS, object).expect(422).await;
        let mut object = binding("ClusterRoleBinding", "a-{id}", ("Role", "x"), "u");
        object["subjects"] = json!([{ "kind": "ServiceAccount", "name": "a" }]);
        s.post(CLUSTER_ROLE_BINDINGS, object).expect(422).await;
    }

    async fn who_approves_a_signing_request_may_do_so_for_its_signer(s) {
        s.post(CLUSTER_ROLES, role("ClusterRole", "c-{id}", json!([
            { "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/approval"], "verbs": ["update"] },
            { "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.test/*"], "verbs": ["approve"] }
        ]))).only("/kind").await;
        s.post(CLUSTER_ROLE_BINDINGS, binding("ClusterRoleBinding", "c-{id}", ("ClusterRole", "c-{id}"), "u-{id}")).only("/kind").await;
        for (name, signer, code) in [("one", "example.test/things", 200), ("two", "example.com/things", 403)] {
            let request = s.post("/apis/certificates.k8s.io/v1/certificatesigningrequests", json!({
                "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": format!("{name}-{{id}}") },
                "spec": { "request": SIGNING_REQUEST, "signerName": signer, "usages": ["client auth"] }
            })).without("/spec/extra").without("/metadata/managedFields").await;
            let mut approved = request.clone();
            approved["status"] = json!({ "conditions": [{ "type": "Approved", "status": "True", "reason": "Fine", "message": "fine" }] });
            let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}-{{id}}");
            s.put(&format!("{path}/approval"), approved).by("u-{id}").until("/code", if code == 200 { serde_json::Value::Null } else { code.into() })
                .expect(code).only("/message").only("/reason").only("/details").await;
            s.delete(&path).only("/kind").await;
        }
        s.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/c-{id}").only("/kind").await;
        s.delete("/apis/rbac.authorization.k8s.io/v1/clusterroles/c-{id}").only("/kind").await;
    }

    async fn a_pod_of_another_user_is_forbidden_before_it_is_missing(s) {
        s.post(PODS, pod("a")).by("u-{id}").expect(403).await;
        s.get("/api/v1/namespaces/{ns}/things/a").by("u-{id}").expect(403).await;
        s.get("/api/v1/namespaces/{ns}/pods/a/colour").by("u-{id}").expect(403).await;
    }
}

/// A valid signing request, as the server checks it.
const SIGNING_REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlITU1IUUNBUUF3RWpFUU1BNEdBMVVFQXd3SGMyOXRaVzl1WlRCWk1CTUdCeXFHU000OUFnRUdDQ3FHU000OQpBd0VIQTBJQUJKUjV1NlN3ZHFqMGVJRDgzelVGanNDYzNyMjBjckI2UVNvdlAxV0REK09LVDVaMWZQQjV2RDUyCmxCQk1OL29pNDRDcEJkT3JjQmpEYjZubnBxSGxGZlNnQURBS0JnZ3Foa2pPUFFRREFnTklBREJGQWlCZGYrc0gKOVlEck90bnlRczVmLzlURkZKWGQ2bEp2Mk1oTjg2ZUJtM0ZiTGdJaEFKcGxuNDhDVFZzODdhUlBOWkpFUkZrRwpNUGNzN3RNZ3ZrOVd4dkZyTUZ6OQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";
