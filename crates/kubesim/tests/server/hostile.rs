//! Hostile requests: each gets a response with a clear Status on a connection that stays open, and other clients are
//! not affected. `SHIPSHAPE_SOAK=1` sends for longer.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use kube::client::Body;
use kube::runtime::wait::await_condition;
use kubesim::SimulatedCluster;
use serde_json::{Map, Value, json};

use crate::{cluster, connect, deployment, get, send};

#[expect(clippy::disallowed_methods, reason = "a test's switch, not a setting of the product")]
fn soak_duration() -> Duration {
    match std::env::var_os("SHIPSHAPE_SOAK") {
        Some(_) => Duration::from_secs(45),
        None => Duration::from_secs(4),
    }
}

/// Not a valid signing request, but it has the form of one.
const REQUEST: &str =
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJSQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";

#[tokio::test]
async fn bodies_of_the_wrong_type_are_rejected_everywhere() {
    let cluster = cluster().await;
    let client = connect(&cluster).await;
    let default = "/api/v1/namespaces/default";
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({
        "metadata": {"name": "csr"},
        "spec": {"request": REQUEST, "signerName": "example.test/signer", "usages": ["client auth"]},
    });
    for (path, made) in [
        (requests.to_owned(), request),
        (
            format!("{default}/pods"),
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments".to_owned(),
            serde_json::to_value(deployment(1)).unwrap(),
        ),
    ] {
        let (code, answer) = send(&client, "POST", &path, "application/json", made.to_string()).await;
        assert_eq!(code, 201, "{answer}");
    }
    let approval = format!("{requests}/csr/approval");
    let scale = "/apis/apps/v1/namespaces/default/deployments/web/scale";
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let deep = |open: &str, close: &str| open.repeat(20_000) + &close.repeat(20_000);
    let aliases: String = (1..40).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}]\n", n - 1)).collect();
    let yaml = "application/yaml";
    let json = "application/json";
    for (method, path, form, body) in [
        ("PUT", approval.as_str(), json, "[]".to_owned()),
        ("PUT", &approval, json, "\"text\"".to_owned()),
        ("PUT", &approval, json, r#"{"status": "text"}"#.to_owned()),
        ("PUT", &approval, json, r#"{"status": {"conditions": ["text"]}}"#.to_owned()),
        ("PUT", &approval, json, r#"{"status": {"conditions": {"type": "text"}}}"#.to_owned()),
        ("PUT", scale, json, "[]".to_owned()),
        ("PUT", scale, json, r#"{"spec": {"replicas": "many"}}"#.to_owned()),
        ("PUT", scale, json, r#"{"spec": 7}"#.to_owned()),
        ("PUT", scale, json, r#"{"spec": {"replicas": 99999999999}}"#.to_owned()),
        ("POST", review, json, "[]".to_owned()),
        ("POST", review, json, r#"{"metadata": "text"}"#.to_owned()),
        ("POST", review, json, r#"{"spec": ["text"]}"#.to_owned()),
        ("PUT", "/api/v1/namespaces/default/finalize", json, r#"{"spec": {"finalizers": [7]}}"#.to_owned()),
        ("POST", "/api/v1/namespaces/default/pods/p/binding", json, "[]".to_owned()),
        (
            "POST",
            "/api/v1/namespaces/default/pods/p/eviction",
            json,
            r#"{"deleteOptions": "now"}"#.to_owned(),
        ),
        ("POST", "/api/v1/namespaces", json, deep("[", "]")),
        ("POST", "/api/v1/namespaces", json, deep("{\"a\":", "}")),
        ("POST", "/api/v1/namespaces", yaml, deep("[", "]")),
        ("POST", "/api/v1/namespaces", yaml, format!("a0: &a0 [x, x]\n{aliases}")),
        ("POST", "/api/v1/namespaces", yaml, "\u{0}: \u{feff}".to_owned()),
    ] {
        let start = Instant::now();
        let (code, status) = send(&client, method, path, form, body.clone()).await;
        let shown = &body[..body.len().min(60)];
        assert!((400..500).contains(&code), "{method} {path} {shown}: {code} {status}");
        assert_eq!(status["kind"], "Status", "{method} {path} {shown}: {status}");
        assert!(start.elapsed() < Duration::from_secs(5), "{method} {path} {shown}: {:?}", start.elapsed());
    }
    assert_eq!(get(&client, scale).await.1["spec"]["replicas"], 1, "nothing of it was taken for a number");
}

#[tokio::test]
async fn huge_numbers_are_rejected_or_limited() {
    let cluster = cluster().await;
    let client = connect(&cluster).await;
    for query in ["timeoutSeconds=9223372036854775807&watch=1", "timeoutSeconds=99999999999&watch=1"] {
        let request = hyper::Request::get(format!("/api/v1/pods?{query}")).body(Body::empty()).unwrap();
        let response = client.send(request).await.unwrap();
        assert_eq!(response.status(), 200, "{query}");
    }
    for (query, expect) in [
        ("timeoutSeconds=99999999999999999999&watch=1", 400),
        ("limit=99999999999999999999", 400),
        ("limit=-9223372036854775808", 200),
        ("limit=9223372036854775807", 200),
        ("resourceVersion=99999999999999999999", 400),
        ("resourceVersion=18446744073709551615", 504),
    ] {
        let (code, status) = get(&client, &format!("/api/v1/pods?{query}")).await;
        assert_eq!(code, expect, "{query}: {status}");
    }
}

#[tokio::test]
async fn invalid_selectors_and_tokens_get_a_response() {
    let cluster = cluster().await;
    let client = connect(&cluster).await;
    let long = "a".repeat(20_000);
    let many = (0..2_000).map(|n| format!("k{n}%3Dv")).collect::<Vec<_>>().join(",");
    let nested = "(".repeat(5_000);
    for (query, expect) in [
        (format!("labelSelector={long}"), 400),
        (format!("labelSelector=a+in+{nested}"), 400),
        (format!("labelSelector={many}"), 200),
        ("labelSelector=%00%01%ff".to_owned(), 400),
        ("labelSelector=a+in+(b,,c),!!d".to_owned(), 400),
        ("labelSelector=,,,".to_owned(), 400),
        ("fieldSelector=metadata.name%3D%3D%3D".to_owned(), 400),
        (format!("fieldSelector={long}%3Db"), 400),
        ("fieldSelector=%5C%5C%5C".to_owned(), 400),
        (format!("continue={long}&limit=1"), 400),
        ("continue=e30&limit=1".to_owned(), 400),
        ("continue=%ff%fe&limit=1".to_owned(), 400),
    ] {
        let (code, status) = get(&client, &format!("/api/v1/configmaps?{query}")).await;
        assert_eq!(code, expect, "{}: {status}", &query[..query.len().min(60)]);
        let kind = if expect == 200 { "ConfigMapList" } else { "Status" };
        assert_eq!(status["kind"], kind, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mutated_requests_get_a_response_and_do_not_affect_other_clients() {
    let (cluster, neighbour) = (cluster().await, cluster().await);
    let seed = 0x5eed;
    let before = memory_mib();
    let end = Instant::now() + soak_duration();
    let hostile = (0..4).map(|number| send_until(&cluster, seed + number, end));
    let beside = async {
        let client = connect(&neighbour).await;
        let mut slowest = Duration::ZERO;
        while Instant::now() < end {
            let start = Instant::now();
            assert_eq!(get(&client, "/api/v1/nodes").await.0, 200);
            slowest = slowest.max(start.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        slowest
    };
    let (sent, slowest) = tokio::join!(futures_util::future::join_all(hostile), beside);
    let sent: usize = sent.into_iter().sum();
    println!("{sent} mutated requests were answered, the neighbour at the slowest in {slowest:?}");
    assert!(sent > 100, "{sent} is not many");
    assert!(slowest < Duration::from_secs(2), "the neighbour had to wait {slowest:?}");
    let grown = memory_mib().saturating_sub(before);
    assert!(grown < 512, "it grew by {grown} MiB");

    // The controllers continue, whatever was stored.
    let client = connect(&cluster).await;
    let made: Value = json!({"metadata": {"name": "after"}});
    let (code, answer) =
        send(&client, "POST", "/api/v1/namespaces", "application/json", made.to_string()).await;
    assert_eq!(code, 201, "{answer}");
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "after");
    let furnished = |account: Option<&k8s_openapi::api::core::v1::ServiceAccount>| account.is_some();
    await_condition(Api::namespaced(client.clone(), "after"), "default", furnished).await.unwrap();
    deployments.create(&PostParams::default(), &deployment(2)).await.unwrap();
    let counted = |found: Option<&Deployment>| found.and_then(|one| one.status.as_ref()?.replicas) == Some(2);
    let working = await_condition(deployments, "web", counted);
    tokio::time::timeout(Duration::from_secs(30), working)
        .await
        .expect("the controllers stand still")
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "after");
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 2);
}

/// Sends mutated requests one after the other and returns their number. The seed and the number identify a request
/// that failed.
async fn send_until(cluster: &SimulatedCluster, seed: u64, end: Instant) -> usize {
    let client = connect(cluster).await;
    let mut random = Random(seed);
    let seeds = corpus();
    let mut sent = 0;
    while Instant::now() < end {
        let (path, body) = random.pick(&seeds);
        let (method, path, form, body) = random.request(path, body);
        let shown = format!(
            "seed {seed}, request {sent}: {method} {path} {form} {}",
            String::from_utf8_lossy(&body[..body.len().min(2_000)])
        );
        let request = hyper::Request::builder().method(method).uri(&path).header("Content-Type", form);
        let Ok(request) = request.body(Body::from(body)) else { continue };
        let response = tokio::time::timeout(Duration::from_secs(20), client.send(request)).await;
        let response = response.unwrap_or_else(|_| panic!("no answer: {shown}"));
        let response = response.unwrap_or_else(|error| panic!("{error}: {shown}"));
        let code = response.status().as_u16();
        sent += 1;
        // A watch does not end by itself.
        if code == 200 && (path.contains("watch=") || path.contains("follow=")) {
            continue;
        }
        let bytes =
            response.into_body().collect_bytes().await.unwrap_or_else(|error| panic!("{error}: {shown}"));
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("the simulator has a fault"), "{text}: {shown}");
        if code >= 400 && !text.starts_with("404 page not found") {
            let status: Value = serde_json::from_str(&text).unwrap_or_default();
            assert_eq!(status["kind"], "Status", "{code} {text}: {shown}");
            assert!(status["message"].as_str().is_some_and(|message| !message.is_empty()), "{text}: {shown}");
        }
    }
    sent
}

/// Valid requests: a path and a body.
fn corpus() -> Vec<(&'static str, Value)> {
    let pod = json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}],
        "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}}}], "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "a", "operator": "Exists"}], "nodeSelector": {"a": "b"}});
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": pod});
    let selector = json!({"matchLabels": {"app": "x"}});
    let meta = |name: &str| {
        json!({"name": name, "labels": {"app": "x"}, "annotations": {"a": "b"}, "finalizers": ["example.test/f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "u"}]})
    };
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "minimum": 0, "default": 1}, "names": {"type": "array", "items": {"type": "string", "pattern": "^a+$"}},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}});
    vec![
        (
            "/api/v1/namespaces/default/configmaps/m",
            json!({"metadata": meta("m"), "data": {"a": "b"}, "binaryData": {"c": "ZA=="}}),
        ),
        (
            "/api/v1/namespaces/default/secrets/s",
            json!({"metadata": meta("s"), "type": "Opaque", "stringData": {"a": "b"}, "data": {"c": "ZA=="}}),
        ),
        (
            "/api/v1/namespaces/default/pods/p",
            json!({"metadata": meta("p"), "spec": pod, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        ),
        (
            "/api/v1/namespaces/default/services/w",
            json!({"metadata": meta("w"), "spec": {"type": "NodePort", "selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": "http"}]}}),
        ),
        ("/api/v1/namespaces/default/serviceaccounts/a", json!({"metadata": meta("a")})),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims/c",
            json!({"metadata": meta("c"), "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        (
            "/api/v1/namespaces/default/events/e",
            json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "R"}),
        ),
        (
            "/api/v1/namespaces/other",
            json!({"metadata": {"name": "other"}, "spec": {"finalizers": ["kubernetes"]}}),
        ),
        (
            "/api/v1/nodes/n",
            json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "NoExecute"}], "unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": "3"}}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments/d",
            json!({"metadata": meta("d"), "spec": {"replicas": 2, "selector": selector, "template": template, "strategy": rolling}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/replicasets/r",
            json!({"metadata": meta("r"), "spec": {"replicas": 1, "selector": selector, "template": template}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/daemonsets/ds",
            json!({"metadata": meta("ds"), "spec": {"selector": selector, "template": template, "updateStrategy": rolling}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/statefulsets/ss",
            json!({"metadata": meta("ss"), "spec": {"serviceName": "w", "replicas": 1, "selector": selector, "template": template,
            "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}}),
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs/j",
            json!({"metadata": meta("j"), "spec": {"completions": 1, "parallelism": 1, "backoffLimit": 1, "activeDeadlineSeconds": 100,
            "ttlSecondsAfterFinished": 10, "template": {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b",
            json!({"metadata": meta("b"), "spec": {"minAvailable": "50%", "selector": selector}}),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n",
            json!({"metadata": {"name": "n"}, "spec": {"holderIdentity": "n", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"}}),
        ),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests/q",
            json!({"metadata": {"name": "q"}, "spec": {"request": REQUEST, "signerName": "example.test/signer", "usages": ["client auth"]},
            "status": {"conditions": [{"type": "Approved", "status": "True", "reason": "R"}]}}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/cr",
            json!({"metadata": {"name": "cr"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
        (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ships.example.test",
            json!({"metadata": {"name": "ships.example.test"}, "spec": {"group": "example.test", "scope": "Namespaced",
            "names": {"kind": "Ship", "plural": "ships", "singular": "ship", "listKind": "ShipList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]}]}}),
        ),
        (
            "/apis/example.test/v1/namespaces/default/ships/swan",
            json!({"apiVersion": "example.test/v1", "kind": "Ship", "metadata": meta("swan"), "spec": {"size": 2, "names": ["aa"], "any": {"x": [1]}}}),
        ),
    ]
}

/// A seeded random generator: splitmix64 of Steele, Lea and Flood.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    fn request(&mut self, path: &str, body: &Value) -> (&'static str, String, &'static str, Vec<u8>) {
        const FORMS: [&str; 8] = [
            "application/json",
            "application/yaml",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/json-patch+json",
            "application/apply-patch+yaml",
            "application/vnd.kubernetes.protobuf",
            "text/nonsense",
        ];
        const PARTS: [&str; 8] =
            ["", "/status", "/scale", "/eviction", "/binding", "/approval", "/finalize", "/nonsense"];
        const QUERIES: [&str; 12] = [
            "",
            "?fieldValidation=Strict",
            "?dryRun=All",
            "?fieldManager=m&force=true",
            "?watch=1&timeoutSeconds=1",
            "?limit=1&continue=e30",
            "?labelSelector=a+in+(b)&fieldSelector=metadata.name%3Dp",
            "?resourceVersion=1&resourceVersionMatch=Exact",
            "?gracePeriodSeconds=-1&propagationPolicy=Orphan",
            "?propagationPolicy=Nonsense",
            "?fieldValidation=Nonsense",
            "?dryRun=Nonsense",
        ];
        let method = *self.pick(&["POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "GET"]);
        // Objects are created in the collection.
        let collection = path.rsplit_once('/').map_or(path, |(collection, _)| collection);
        let path = if method == "POST" && !self.one_in(4) { collection } else { path };
        let part = if self.one_in(3) { *self.pick(&PARTS) } else { "" };
        let query = if self.one_in(2) { *self.pick(&QUERIES) } else { "" };
        let form = match method {
            "PATCH" => *self.pick(&FORMS[2..6]),
            _ if self.one_in(6) => *self.pick(&FORMS),
            _ => FORMS[0],
        };
        let mut body = body.clone();
        if form == "application/json-patch+json" {
            body = self.operations(&body);
        }
        if path.contains("/namespaces/default/") || !self.one_in(3) {
            for _ in 0..self.below(4) {
                self.mutate(&mut body);
            }
        }
        let mut bytes = body.to_string().into_bytes();
        if form == "application/vnd.kubernetes.protobuf" {
            bytes.splice(0..0, b"k8s\0".iter().copied());
        }
        for _ in 0..if self.one_in(5) { self.below(6) } else { 0 } {
            self.damage(&mut bytes);
        }
        (method, format!("{path}{part}{query}"), form, bytes)
    }

    /// A JSON patch that writes parts of the body to random paths.
    fn operations(&mut self, body: &Value) -> Value {
        let operations = (0..self.below(5)).map(|_| {
            let path = *self.pick(&[
                "",
                "/metadata",
                "/metadata/labels/x",
                "/spec",
                "/spec/replicas",
                "/status",
                "/data/-",
                "/kind",
                "nonsense",
            ]);
            let from = *self.pick(&["", "/metadata", "/spec", "/metadata/name"]);
            let name = *self.pick(&["add", "remove", "replace", "move", "copy", "test", "nonsense"]);
            let value = if self.one_in(2) { self.odd() } else { body["spec"].clone() };
            json!({"op": name, "path": path, "from": from, "value": value})
        });
        operations.collect()
    }

    /// Changes one part of a value.
    fn mutate(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) if !fields.is_empty() && !self.one_in(5) => {
                let names: Vec<String> = fields.keys().cloned().collect();
                let name = self.pick(&names).clone();
                match self.below(12) {
                    0 => drop(fields.remove(&name)),
                    1 => drop(fields.insert("unknown".to_owned(), self.odd())),
                    2 => drop(fields.insert(name, self.odd())),
                    _ => fields.get_mut(&name).into_iter().for_each(|inner| self.mutate(inner)),
                }
            }
            Value::Array(items) if !items.is_empty() && !self.one_in(5) => {
                let index = self.below(items.len());
                match self.below(6) {
                    0 => drop(items.remove(index)),
                    1 => items.push(items[index].clone()),
                    _ => self.mutate(&mut items[index]),
                }
            }
            other => *other = self.odd(),
        }
    }

    fn odd(&mut self) -> Value {
        match self.below(18) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(-1),
            3 => json!(i64::MAX),
            4 => json!(i64::MIN),
            5 => json!(u64::MAX),
            6 => json!(1e300),
            7 => json!(0.5),
            8 => json!(""),
            9 => json!("text"),
            10 => json!("x".repeat(1 + self.below(3_000))),
            11 => json!("ä\u{0}\n\"\\/../%"),
            12 => json!([]),
            13 => json!({}),
            14 => json!([[], {}, null, "x"]),
            15 => json!({"a": {"b": {"c": ["d"]}}}),
            16 => json!("101%"),
            _ => Value::Object(Map::from_iter([("".to_owned(), json!(["kubernetes", 7]))])),
        }
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len().max(1));
        let byte = u8::try_from(self.below(256)).unwrap();
        match self.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), byte),
            2 => bytes.iter_mut().skip(at).take(1).for_each(|one| *one = byte),
            _ => bytes.extend_from_within(at.min(bytes.len())..),
        }
    }
}

/// The memory of this process.
fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}
