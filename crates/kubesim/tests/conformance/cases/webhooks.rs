//! Admission webhooks.

use serde_json::{Value, json};

use super::fixtures::{CONFIG_MAPS, PODS, SHIPS, config_map, crd, pod, ship};
use crate::script::{Exchange, Script, cases};
use crate::webhook;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

fn plural(kind: &str) -> String {
    format!("{CONFIGURATIONS}/{}webhookconfigurations", kind.to_lowercase())
}

/// A webhook for ConfigMaps in the namespace of the case.
async fn hook(name: &str, path: &str, change: Value) -> Value {
    let mut hook = json!({
        "name": format!("{name}.example.test"), "clientConfig": webhook::server().await.client(path),
        "rules": [{ "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }],
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "{ns}" } },
        "sideEffects": "None", "admissionReviewVersions": ["v1"]
    });
    for (field, value) in change.as_object().into_iter().flatten() {
        hook[field] = value.clone();
    }
    hook
}

/// Registers webhooks, and waits until the server calls them.
async fn register(s: &mut Script, kind: &str, mut hooks: Vec<Value>) {
    let probe = json!({ "objectSelector": { "matchLabels": { "probe": "true" } } });
    hooks.push(hook("probe", if kind == "Mutating" { "/mark" } else { "/deny" }, probe).await);
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": { "name": "w-{id}" }, "webhooks": hooks
    });
    s.post(&plural(kind), configuration).only("/kind").await;
    let mut object = config_map("probe");
    object["metadata"]["labels"] = json!({ "probe": "true" });
    let path = format!("{CONFIG_MAPS}?dryRun=All");
    let request = s.post(&path, object).only("/kind");
    match kind {
        "Mutating" => drop(request.until("/metadata/annotations/marked", "yes".into()).await),
        _ => drop(request.until("/code", 403.into()).expect(403).await),
    }
}

async fn end(s: &mut Script, kind: &str) {
    s.delete(&format!("{}/w-{{id}}", plural(kind))).only("/status").await;
}

/// Compares what the webhook at `/record` was sent since the last time.
async fn compare_reviews(s: &mut Script) {
    let namespace = s.names.expand("{ns}");
    let mut reviews = webhook::server().await.take(&namespace);
    for review in &mut reviews {
        // The credential of the administrator.
        review["request"]["userInfo"].as_object_mut().map(|user| user.remove("extra"));
    }
    let mut body = Value::Array(reviews);
    s.names.value(&mut body);
    s.note(Exchange {
        request: "what the webhook was sent".to_owned(),
        status: 200,
        headers: Vec::new(),
        body,
    });
}

cases! { "webhooks";
    async fn a_webhook_changes_an_object(s) {
        let other = json!({ "rules": [{ "operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["*/*"] }] });
        let hooks = vec![hook("mark", "/mark", json!({})).await, hook("other", "/deny", other).await];
        register(s, "Mutating", hooks).await;
        s.post(CONFIG_MAPS, config_map("a")).await;
        let path = "/api/v1/namespaces/{ns}/configmaps/a";
        s.merge(path, json!({ "metadata": { "annotations": { "marked": "no" } } })).only("/metadata/annotations").await;
        s.put(path, config_map("a")).only("/metadata/annotations").await;
        s.apply("/api/v1/namespaces/{ns}/configmaps/b?fieldManager=me", config_map("b")).expect(201).only("/metadata/annotations").await;
        s.post(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("c")).only("/metadata/annotations").await;
        s.delete(path).only("/status").await;
        end(s, "Mutating").await;
    }

    async fn a_webhook_refuses_an_object(s) {
        let by = |label: &str| json!({ "objectSelector": { "matchLabels": { "case": label } } });
        let mut hooks = Vec::new();
        for name in ["deny", "deny-silently", "deny-reason", "warn", "warn-and-deny"] {
            hooks.push(hook(name, &format!("/{name}"), by(name)).await);
        }
        register(s, "Validating", hooks).await;
        for (name, code) in [("deny", 403), ("deny-silently", 400), ("deny-reason", 400), ("warn", 201), ("warn-and-deny", 400)] {
            let mut object = config_map(name);
            object["metadata"]["labels"] = json!({ "case": name });
            s.post(CONFIG_MAPS, object).expect(code).without("/metadata/managedFields").await;
        }
        s.post(CONFIG_MAPS, config_map("other")).only("/kind").await;
        let path = "/api/v1/namespaces/{ns}/configmaps/other";
        s.merge(path, json!({ "metadata": { "labels": { "case": "deny" } } })).expect(403).await;
        s.get(path).only("/metadata/labels").await;
        end(s, "Validating").await;
    }

    async fn a_webhook_refuses_a_deletion(s) {
        let rules = json!({ "rules": [{ "operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"] }],
            "objectSelector": { "matchLabels": { "keep": "yes" } } });
        let probe = hook("deny", "/deny", rules).await;
        register(s, "Validating", vec![probe]).await;
        let mut kept = config_map("kept");
        kept["metadata"]["labels"] = json!({ "keep": "yes" });
        s.post(CONFIG_MAPS, kept).only("/kind").await;
        s.post(CONFIG_MAPS, config_map("other")).only("/kind").await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/kept").expect(403).await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/other").only("/status").await;
        s.delete(&format!("{CONFIG_MAPS}?labelSelector=keep%3Dyes")).expect(403).await;
        s.get("/api/v1/namespaces/{ns}/configmaps/kept").only("/kind").await;
        end(s, "Validating").await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/kept").until("/status", "Success".into()).only("/status").await;
    }

    async fn a_broken_webhook_fails_the_request_unless_it_is_ignored(s) {
        let by = |label: &str, policy: &str| json!({ "objectSelector": { "matchLabels": { "case": label } }, "failurePolicy": policy, "timeoutSeconds": 1 });
        let mut hooks = Vec::new();
        let mutating = ["slow", "wrong-uid", "patch-without-type", "bad-patch", "empty", "500", "refused", "unknown-authority"];
        for name in mutating {
            hooks.push(hook(name, &format!("/{name}"), by(name, "Fail")).await);
            hooks.push(hook(&format!("ignored-{name}"), &format!("/{name}"), by(&format!("ignored-{name}"), "Ignore")).await);
        }
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for hook in &mut hooks {
            let name = hook["name"].as_str().unwrap().to_owned();
            if name.contains("refused") {
                hook["clientConfig"]["url"] = json!(format!("https://{closed}/refused"));
            } else if name.contains("unknown-authority") {
                hook["clientConfig"]["caBundle"] = json!(OTHER_AUTHORITY);
            }
        }
        s.alias(&closed.to_string(), "<closed>");
        register(s, "Mutating", hooks).await;
        for name in mutating {
            let mut object = config_map(name);
            object["metadata"]["labels"] = json!({ "case": name });
            let request = s.post(CONFIG_MAPS, object).expect(500);
            // The texts of its decoder are those of the real server's language.
            if name == "bad-patch" { request.only("/reason").await; } else { request.await; }
            if name == "bad-patch" { continue; }
            let mut object = config_map(&format!("ignored-{name}"));
            object["metadata"]["labels"] = json!({ "case": format!("ignored-{name}") });
            s.post(CONFIG_MAPS, object).only("/kind").await;
        }
        end(s, "Mutating").await;
    }

    async fn what_a_webhook_is_sent(s) {
        let rules = json!({ "rules": [
            { "operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "pods", "pods/status"] }
        ] });
        register(s, "Validating", vec![hook("record", "/record", rules).await]).await;
        compare_probe(s).await;
        s.post(&format!("{CONFIG_MAPS}?fieldManager=me"), config_map("a")).only("/kind").await;
        compare_reviews(s).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a?fieldManager=me", json!({ "data": { "x": "1" } })).only("/kind").await;
        compare_reviews(s).await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/a").only("/status").await;
        compare_reviews(s).await;
        s.post(PODS, pod("a")).only("/kind").await;
        webhook::server().await.take(&s.names.expand("{ns}"));
        s.merge("/api/v1/namespaces/{ns}/pods/a/status?dryRun=All&fieldManager=me", json!({ "status": { "phase": "Running" } })).by("u-{id}")
            .header("impersonate-group", "system:masters").only("/kind").await;
        let namespace = s.names.expand("{ns}");
        let sent = webhook::server().await.take(&namespace);
        let parts = sent.iter().map(|one| json!([
            one["request"]["operation"], one["request"]["subResource"], one["request"]["dryRun"], one["request"]["userInfo"],
            one["request"]["requestSubResource"], one["request"]["options"], one["request"]["name"]
        ]));
        let mut body = Value::Array(parts.collect());
        s.names.value(&mut body);
        s.note(Exchange { request: "what the webhook was sent".to_owned(), status: 200, headers: Vec::new(), body });
        end(s, "Validating").await;
    }

    async fn a_webhook_is_called_again_after_a_change(s) {
        let hooks = vec![
            hook("count", "/count", json!({ "reinvocationPolicy": "IfNeeded" })).await,
            hook("mark", "/mark", json!({ "objectSelector": { "matchLabels": { "mark": "yes" } } })).await,
        ];
        register(s, "Mutating", hooks).await;
        s.post(CONFIG_MAPS, config_map("a")).only("/metadata/annotations").await;
        let mut object = config_map("b");
        object["metadata"]["labels"] = json!({ "mark": "yes" });
        s.post(CONFIG_MAPS, object).only("/metadata/annotations").await;
        end(s, "Mutating").await;
    }

    async fn a_generated_name_is_stable(s) {
        register(s, "Validating", vec![hook("record", "/record", json!({})).await]).await;
        compare_probe(s).await;
        let mut object = config_map("");
        object["metadata"] = json!({ "generateName": "drawn-" });
        let created = s.post(CONFIG_MAPS, object).only("/kind").await;
        let sent = webhook::server().await.take(&s.names.expand("{ns}"));
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0]["request"]["object"]["metadata"]["uid"], created["metadata"]["uid"]);
        assert_eq!(sent[0]["request"]["name"], created["metadata"]["name"]);
        end(s, "Validating").await;
    }

    async fn another_version_of_a_kind_is_converted_for_a_webhook(s) {
        let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let mut definition = crd("Namespaced", open.clone());
        definition["spec"]["versions"] = json!([
            { "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": open } },
            { "name": "v2", "served": true, "storage": false, "schema": { "openAPIV3Schema": open } }
        ]);
        s.post(super::fixtures::CRDS, definition).only("/kind").await;
        s.get(SHIPS).until("/kind", "ShipList".into()).only("/kind").await;
        let rules = |policy: &str| json!({ "matchPolicy": policy, "rules": [
            { "operations": ["CREATE"], "apiGroups": ["{id}.example.test"], "apiVersions": ["v1"], "resources": ["ships"], "scope": "Namespaced" }
        ] });
        let hooks = vec![
            hook("record", "/record", rules("Equivalent")).await,
            hook("exact", "/deny", rules("Exact")).await,
            hook("cluster", "/deny", json!({ "rules": [
                { "operations": ["*"], "apiGroups": ["{id}.example.test"], "apiVersions": ["*"], "resources": ["ships"], "scope": "Cluster" }
            ] })).await,
        ];
        register(s, "Validating", hooks).await;
        let path = "/apis/{id}.example.test/v2/namespaces/{ns}/ships";
        let mut object = ship("a", json!({}));
        object["apiVersion"] = json!("{id}.example.test/v2");
        s.post(path, object).without("/metadata/managedFields").await;
        let sent = webhook::server().await.take(&s.names.expand("{ns}"));
        let parts = sent.iter().map(|one| json!([
            one["request"]["kind"], one["request"]["requestKind"], one["request"]["resource"], one["request"]["requestResource"],
            one["request"]["object"]["apiVersion"]
        ]));
        let mut body = Value::Array(parts.collect());
        s.names.value(&mut body);
        s.note(Exchange { request: "what the webhook was sent".to_owned(), status: 200, headers: Vec::new(), body });
        s.post(SHIPS, ship("b", json!({}))).expect(403).await;
        end(s, "Validating").await;
        s.delete(&format!("{}/ships.{{id}}.example.test", super::fixtures::CRDS)).only("/kind").await;
    }

    async fn a_configuration_has_defaults(s) {
        for kind in ["Mutating", "Validating"] {
            let configuration = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"), "metadata": { "name": "w-{id}" },
                "webhooks": [{
                    "name": "a.example.test", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                    "clientConfig": { "service": { "namespace": "none", "name": "none" } },
                    "rules": [{ "operations": ["CREATE"], "apiGroups": ["none.example.test"], "apiVersions": ["v1"], "resources": ["things"] }]
                }]
            });
            s.post(&plural(kind), configuration).await;
            s.get(&format!("{}/w-{{id}}", plural(kind))).table().await;
            s.merge(&format!("{}/w-{{id}}", plural(kind)), json!({ "webhooks": [] })).only("/metadata/generation").only("/webhooks").await;
            end(s, kind).await;
        }
    }

    async fn invalid_configurations(s) {
        let valid = json!({
            "name": "a.example.test", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": { "url": "https://127.0.0.1/x" },
            "rules": [{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["things"] }]
        });
        for change in [
            json!({ "name": "a" }),
            json!({ "sideEffects": "Some" }),
            json!({ "sideEffects": null }),
            json!({ "admissionReviewVersions": [] }),
            json!({ "admissionReviewVersions": ["v7"] }),
            json!({ "timeoutSeconds": 31 }),
            json!({ "failurePolicy": "Maybe" }),
            json!({ "matchPolicy": "Maybe" }),
            json!({ "clientConfig": {} }),
            json!({ "clientConfig": { "url": "http://127.0.0.1/x" } }),
            json!({ "clientConfig": { "url": "https://127.0.0.1/x?y=1" } }),
            json!({ "clientConfig": { "service": { "name": "", "namespace": "a" } } }),
            json!({ "rules": [{ "operations": [], "apiGroups": [], "apiVersions": [], "resources": [] }] }),
            json!({ "rules": [{ "operations": ["*", "CREATE"], "apiGroups": ["*", "a"], "apiVersions": ["v1"], "resources": ["things"] }] }),
            json!({ "rules": [{ "operations": ["EAT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["things"], "scope": "Wide" }] }),
        ] {
            let mut webhook = valid.clone();
            for (field, value) in change.as_object().into_iter().flatten() {
                webhook[field] = value.clone();
            }
            s.post(&plural("Validating"), json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": { "name": "w-{id}" },
                "webhooks": [webhook]
            })).expect(422).await;
        }
    }
}

/// Forgets what was sent while the server was waited for.
async fn compare_probe(s: &mut Script) {
    webhook::server().await.take(&s.names.expand("{ns}"));
}

/// A certificate that has not signed that of the webhook.
const OTHER_AUTHORITY: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJiekNDQVJXZ0F3SUJBZ0lVUEJHNXZxZ2MvM0taTlNtaWhDV2E2dldiRzJFd0NnWUlLb1pJemowRUF3SXcKRFRFTE1Ba0dBMVVFQXd3Q1kyRXdIaGNOTWpZeE1URTRNakF5TURBeFdoY05Nall4TWpFNE1qQXlNREF4V2pBTgpNUXN3Q1FZRFZRUUREQUpqWVRCWk1CTUdCeXFHU000OUFnRUdDQ3FHU000OUF3RUhBMElBQkpkaWRJYWFUa2VUCnpzb25VNmZueXJIa291MngvMWVKNHNHVkZ1WmJ5S2JGVGE4ajFZQzNNN1o3M0ZyT1JIaHFjOCt5MmlIaGFPYWwKb0dvdEhLREpHUkdqVXpCUk1CMEdBMVVkRGdRV0JCUjFhZEFSa0FvK3RlSmZ6UUoybzVYbWxIRVkzVEFmQmdOVgpIU01FR0RBV2dCUjFhZEFSa0FvK3RlSmZ6UUoybzVYbWxIRVkzVEFQQmdOVkhSTUJBZjhFQlRBREFRSC9NQW9HCkNDcUdTTTQ5QkFNQ0EwZ0FNRVVDSUhNL1NsaWdxRGREK2l3amxhQzNUWG9XUHhnNmg0NUlCOENaMEV1UzUwWFgKQWlFQXVNU1dhY2o0YlFIMTJVUVdCUmxHN05rSlpLVXNuUnVVNU9ueThEWnFlWlk9Ci0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";
