//! Discovery.

use crate::script::cases;

/// The groups that kubesim serves.
const GROUPS: [&str; 9] = [
    "/api/v1",
    "/apis/apps/v1",
    "/apis/batch/v1",
    "/apis/policy/v1",
    "/apis/rbac.authorization.k8s.io/v1",
    "/apis/coordination.k8s.io/v1",
    "/apis/certificates.k8s.io/v1",
    "/apis/apiextensions.k8s.io/v1",
    "/apis/authorization.k8s.io/v1",
];

/// Compares all fields of the resources that kubesim serves, which are a part of those of the real server.
async fn compare_resources(s: &mut crate::script::Script, path: &str) {
    const OURS: [&str; 40] = [
        "namespaces",
        "namespaces/finalize",
        "namespaces/status",
        "nodes",
        "nodes/status",
        "pods",
        "pods/binding",
        "pods/eviction",
        "pods/log",
        "pods/status",
        "secrets",
        "configmaps",
        "services",
        "services/status",
        "serviceaccounts",
        "events",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "replicasets",
        "replicasets/scale",
        "replicasets/status",
        "daemonsets",
        "daemonsets/status",
        "statefulsets",
        "statefulsets/scale",
        "statefulsets/status",
        "controllerrevisions",
        "jobs",
        "jobs/status",
        "cronjobs",
        "cronjobs/status",
        "poddisruptionbudgets",
        "poddisruptionbudgets/status",
        "leases",
        "certificatesigningrequests",
        "customresourcedefinitions",
        "roles",
    ];
    let list = s.get(path).only("/groupVersion").only("/kind").only("/apiVersion").await;
    let mut body: Vec<serde_json::Value> = list["resources"].as_array().cloned().unwrap_or_default();
    body.retain(|it| OURS.contains(&it["name"].as_str().unwrap_or_default()));
    for resource in &mut body {
        resource.as_object_mut().unwrap().remove("storageVersionHash");
    }
    body.sort_by_key(|it| it["name"].as_str().unwrap_or_default().to_owned());
    s.note(crate::script::Exchange {
        request: format!("our part of {path}"),
        status: 200,
        headers: Vec::new(),
        body: body.into(),
    });
}

cases! { "discovery";
    async fn the_versions_of_the_core_api(s) {
        s.get("/api").only("/kind").only("/versions").await;
    }

    async fn the_resources_of_each_group(s) {
        for path in GROUPS {
            compare_resources(s, path).await;
        }
    }

    async fn a_group_by_its_name(s) {
        s.get("/apis/apps").await;
        s.get("/apis/policy").await;
        s.get("/apis/none.example.test").expect(404).await;
    }

    async fn the_list_of_groups(s) {
        let list = s.get("/apis").only("/kind").only("/apiVersion").await;
        let names: Vec<&str> = list["groups"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
        for name in ["apps", "batch", "policy", "rbac.authorization.k8s.io", "coordination.k8s.io", "events.k8s.io", "certificates.k8s.io", "apiextensions.k8s.io"] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
    }

    async fn the_aggregated_form(s) {
        for path in ["/api", "/apis"] {
            let list = s.get(path).accept("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").only("/kind").only("/apiVersion").await;
            let apps = list["items"].as_array().unwrap().iter().find(|it| it["metadata"]["name"] == "apps" || path == "/api").unwrap();
            let mut resources = apps["versions"][0]["resources"].as_array().cloned().unwrap();
            resources.retain(|it| ["deployments", "daemonsets", "pods", "configmaps", "nodes"].contains(&it["resource"].as_str().unwrap()));
            resources.sort_by_key(|it| it["resource"].as_str().unwrap().to_owned());
            for resource in &mut resources {
                // Subresources of running pods, which kubesim does not serve.
                let subresources = resource.get_mut("subresources").and_then(serde_json::Value::as_array_mut);
                if let Some(subresources) = subresources {
                    subresources.retain(|it| ["status", "scale", "eviction", "binding", "log"].contains(&it["subresource"].as_str().unwrap()));
                }
            }
            s.note(crate::script::Exchange { request: format!("our part of {path}, aggregated"), status: 200, headers: Vec::new(), body: resources.into() });
        }
    }

    async fn the_open_api_v2_document(s) {
        s.get("/openapi/v2").only("/swagger").await;
        s.get("/openapi/v2").accept("application/json").only("/swagger")
            .only("/definitions/io.k8s.api.apps.v1.DeploymentSpec/properties/template/$ref")
            .only("/definitions/io.k8s.api.apps.v1.DeploymentSpec/properties/replicas/type")
            .only("/definitions/io.k8s.api.apps.v1.DeploymentSpec/required")
            .only("/definitions/io.k8s.api.core.v1.PodSpec/properties/containers/items/$ref")
            .only("/definitions/io.k8s.apimachinery.pkg.util.intstr.IntOrString/type")
            .only("/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity/type")
            .await;
        for media in ["application/com.github.proto-openapi.spec.v2.v1.0+protobuf", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"] {
            s.get("/openapi/v2").accept(media).only("/swagger").await;
        }
        s.get("/openapi/v2").accept("application/xml").expect(406).only("/none").await;
    }

    async fn the_version(s) {
        s.get("/version").only("/major").only("/minor").only("/gitVersion").await;
    }

    async fn the_health(s) {
        for path in ["/healthz", "/livez", "/readyz"] {
            s.get(path).await;
        }
    }

    async fn an_unknown_path_is_not_found(s) {
        s.get("/nowhere").expect(404).without("/paths").await;
        s.get("/apis/none.example.test/v1/things").expect(404).await;
        s.get("/api/v1/things").expect(404).await;
        s.get("/apis/apps/v9/deployments").expect(404).await;
    }
}
