//! Sends the same requests to the real API server and to these libraries and compares the results.
//!
//! A case is a kind and a list of steps on one object. After each step the objects (or the errors) are compared,
//! without times, uids and versions. The cases avoid what the server adds around the libraries (admission,
//! allocation).

mod cases;
mod crds;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use testkit::kube::{self as cluster, TestCluster, TestClusterOptions};
use testkit::prerequisites;

use crate::schema::{self, Schema, Schemas};
use crate::{apply, patch};

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ConfigMap,
    CronJob,
    Deployment,
    DisruptionBudget,
    EndpointSlice,
    Event,
    Lease,
    Pod,
    ReplicaSet,
    Role,
    RoleBinding,
    Secret,
    Service,
    ServiceAccount,
    StatefulSet,
    VolumeClaim,
    Widget,
}

pub(super) struct Step {
    pub(super) verb: Verb,
    pub(super) manager: &'static str,
    pub(super) subresource: Option<&'static str>,
    pub(super) body: Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    Put,
    Apply,
    Force,
    Json,
    Merge,
    Strategic,
}

type ApiResult = Result<Value, Value>;

impl Kind {
    fn resource(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Kind::ConfigMap => ("", "v1", "ConfigMap", "configmaps"),
            Kind::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Kind::CronJob => ("batch", "v1", "CronJob", "cronjobs"),
            Kind::DisruptionBudget => ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
            Kind::EndpointSlice => ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
            Kind::Event => ("", "v1", "Event", "events"),
            Kind::Lease => ("coordination.k8s.io", "v1", "Lease", "leases"),
            Kind::ReplicaSet => ("apps", "v1", "ReplicaSet", "replicasets"),
            Kind::Role => ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
            Kind::RoleBinding => ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
            Kind::ServiceAccount => ("", "v1", "ServiceAccount", "serviceaccounts"),
            Kind::VolumeClaim => ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Kind::Pod => ("", "v1", "Pod", "pods"),
            Kind::Secret => ("", "v1", "Secret", "secrets"),
            Kind::Service => ("", "v1", "Service", "services"),
            Kind::StatefulSet => ("apps", "v1", "StatefulSet", "statefulsets"),
            Kind::Widget => ("agreement.shipshape.dev", "v1", "Widget", "widgets"),
        }
    }

    fn schema(self) -> Schema {
        let (group, version, kind, _) = self.resource();
        match self {
            Kind::Widget => {
                schema::parse_crd(&cases::widget_schema()).expect("a structural schema").with_status()
            }
            _ => Schemas::builtin().find(group, version, kind).expect("a built-in kind"),
        }
    }

    fn path(self, namespace: &str) -> String {
        let (group, version, _, plural) = self.resource();
        match group {
            "" => format!("/api/{version}/namespaces/{namespace}/{plural}"),
            _ => format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}"),
        }
    }
}

#[tokio::test]
async fn apply_patches_and_updates_agree_with_the_real_server() {
    // Without controllers, which would change the objects between the steps.
    let Some(cluster) = cluster::private(TestClusterOptions::default()) else {
        return prerequisites::skip(prerequisites::KUBERNETES, cluster::MISSING);
    };
    let namespace = cluster.namespace("agreement").unwrap();
    let client = client(&cluster).await;
    ensure_widgets(&client, &namespace).await;
    let cases = cases::all();
    let count = cases.len();
    let mut differences = Vec::new();
    for case in cases {
        differences.extend(run(&client, &namespace, case).await);
    }
    println!("{count} cases compared with the real API server, {} differ", differences.len());
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

async fn client(cluster: &TestCluster) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(cluster.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn run(client: &Client, namespace: &str, case: Case) -> Vec<String> {
    let name = case.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-").to_lowercase();
    let schema = case.kind.schema();
    let mut stored: Option<Value> = None;
    let mut differences = Vec::new();
    for (number, step) in case.steps.into_iter().enumerate() {
        let mut body: Value =
            serde_json::from_str(&step.body.to_string().replace("NAMESPACE", namespace)).unwrap();
        if let (Verb::Create | Verb::Put | Verb::Apply | Verb::Force, Value::Object(object)) =
            (step.verb, &mut body)
        {
            let (group, version, kind, _) = case.kind.resource();
            let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            object.entry("apiVersion").or_insert(Value::from(version));
            object.entry("kind").or_insert(Value::from(kind));
            object.entry("metadata").or_insert(json!({}))["name"] = Value::from(name.as_str());
        }
        let real = real(client, namespace, case.kind, &name, &step, &body).await;
        let now = Timestamp::from_second(1_000_000 + number as i64).unwrap();
        let simulated = simulated(stored.as_ref(), &schema, &step, &body, now);
        if let Ok(object) = &simulated {
            stored = Some(object.clone());
        }
        let (real, simulated) = (normalized(real, namespace), normalized(simulated, namespace));
        if real != simulated {
            let difference = difference(&comparable(&real), &comparable(&simulated), "");
            differences.push(format!("case '{}', step {number}:\n{}", case.name, difference.join("\n")));
        }
    }
    differences
}

async fn real(
    client: &Client,
    namespace: &str,
    kind: Kind,
    name: &str,
    step: &Step,
    body: &Value,
) -> ApiResult {
    let base = kind.path(namespace);
    let manager = format!("fieldManager={}", step.manager);
    let subresource = step.subresource.map(|name| format!("/{name}")).unwrap_or_default();
    let one = format!("{base}/{name}{subresource}?{manager}");
    let (method, path, content) = match step.verb {
        Verb::Create => ("POST", format!("{base}?{manager}"), "application/json"),
        Verb::Put => ("PUT", one, "application/json"),
        Verb::Apply => ("PATCH", one, "application/apply-patch+yaml"),
        Verb::Force => ("PATCH", format!("{one}&force=true"), "application/apply-patch+yaml"),
        Verb::Json => ("PATCH", one, "application/json-patch+json"),
        Verb::Merge => ("PATCH", one, "application/merge-patch+json"),
        Verb::Strategic => ("PATCH", one, "application/strategic-merge-patch+json"),
    };
    request(client, method, &path, content, body).await
}

async fn request(client: &Client, method: &str, path: &str, content: &str, body: &Value) -> ApiResult {
    let request = hyper::Request::builder().method(method).uri(path).header("Content-Type", content);
    let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
    let response = client.send(request).await.unwrap();
    let is_success = response.status().is_success();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    // Until a kind is served, the response is a line of text instead of a Status.
    let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    if is_success { Ok(value) } else { Err(value) }
}

/// A minimal server around these libraries.
fn simulated(
    before: Option<&Value>,
    schema: &Schema,
    step: &Step,
    body: &Value,
    now: Timestamp,
) -> ApiResult {
    let schema_ref = Some(schema);
    let patched = match step.verb {
        Verb::Create => Ok(body.clone()),
        Verb::Put => Ok(body.clone()),
        Verb::Apply | Verb::Force => {
            let force = step.verb == Verb::Force;
            let mut object = apply::apply(before, body, step.manager, force, step.subresource, schema_ref, now)
                .map_err(|error| {
                    let causes = match &error {
                        apply::ApplyError::Conflict(conflicts) => {
                            let cause = |conflict: &apply::Conflict| json!({"field": conflict.field, "message": conflict.message, "reason": "FieldManagerConflict"});
                            conflicts.iter().map(cause).collect()
                        }
                        _ => Vec::new(),
                    };
                    status(error.code(), error.reason(), &error.to_string(), causes)
                })?;
            finish(before, &mut object, schema, step)?;
            return Ok(object);
        }
        Verb::Json => patch::json(before.unwrap_or(&Value::Null), body),
        Verb::Merge => patch::merge(before.unwrap_or(&Value::Null), body),
        Verb::Strategic => patch::strategic(before.unwrap_or(&Value::Null), body, schema),
    };
    let mut object =
        patched.map_err(|error| status(error.code(), error.reason(), &error.to_string(), Vec::new()))?;
    finish(before, &mut object, schema, step)?;
    apply::track_update(before, &mut object, step.manager, step.subresource, schema_ref, now);
    Ok(object)
}

fn finish(before: Option<&Value>, object: &mut Value, schema: &Schema, step: &Step) -> Result<(), Value> {
    schema.check_types(object).map_err(|error| match step.verb {
        Verb::Create | Verb::Put => status(400, "BadRequest", &error.message, Vec::new()),
        Verb::Strategic => invalid(&[patch::undecodable_strategic(&step.body, &error)]),
        _ => invalid(&[patch::undecodable(object, &error)]),
    })?;
    schema.prune(object);
    schema.default(object);
    let old = |name: &str| before.and_then(|before| before.get(name)).cloned();
    let fields = object.pointer("/metadata/managedFields").cloned();
    let mut keep = |name: &str, value: Option<Value>| {
        if let Value::Object(map) = &mut *object {
            match value {
                Some(value) => map.insert(name.to_owned(), value),
                None => map.remove(name),
            };
        }
    };
    match step.subresource {
        Some("status") => {
            keep("spec", old("spec"));
            let mut metadata = old("metadata").unwrap_or_else(|| json!({}));
            metadata["managedFields"] = fields.unwrap_or(Value::Null);
            keep("metadata", Some(metadata));
        }
        _ if schema.resets_status() => {
            let mut empty = json!({});
            schema.default(&mut empty);
            keep("status", old("status").or(empty.get("status").cloned()));
        }
        _ => {}
    }
    let errors = schema.validate(object);
    if errors.is_empty() {
        return Ok(());
    }
    Err(invalid(&errors))
}

fn invalid(errors: &[schema::FieldError]) -> Value {
    let cause = |error: &schema::FieldError| {
        // The objects in the messages differ in uids and times.
        let message = match error.field.as_str() {
            "patch" => error.message.rsplit("\": ").next().unwrap_or_default(),
            _ => error.message.as_str(),
        };
        json!({ "field": error.field, "message": message, "reason": error.reason.as_str() })
    };
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let text = match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    status(422, "Invalid", &text, errors.iter().map(cause).collect())
}

fn status(code: u16, reason: &str, message: &str, causes: Vec<Value>) -> Value {
    let reason = if reason.is_empty() { Value::Null } else { Value::from(reason) };
    json!({ "code": code, "reason": reason, "message": message, "details": { "causes": causes } })
}

fn normalized(result: ApiResult, namespace: &str) -> ApiResult {
    match result {
        Ok(mut object) => {
            let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
            if let Some(metadata) = metadata {
                for name in ["uid", "resourceVersion", "creationTimestamp", "generation", "namespace"] {
                    metadata.remove(name);
                }
                // Added by admission to persistent volume claims.
                if metadata.get("finalizers") == Some(&json!(["kubernetes.io/pvc-protection"])) {
                    metadata.remove("finalizers");
                }
                let entries = metadata.get_mut("managedFields").and_then(Value::as_array_mut);
                // Entries are ordered by the second of their time, and a test may cross a second.
                if let Some(entries) = entries {
                    for entry in entries.iter_mut().filter(|entry| entry.get("time").is_some()) {
                        entry["time"] = Value::from("some time");
                    }
                    entries.sort_by_key(|entry| {
                        (entry["operation"].to_string(), entry["manager"].to_string(), entry.to_string())
                    });
                }
            }
            for (list, name) in [
                ("spec", "clusterIP"),
                ("spec", "clusterIPs"),
                ("spec", "ipFamilies"),
                ("spec", "ipFamilyPolicy"),
            ] {
                if let Some(map) = object.get_mut(list).and_then(Value::as_object_mut) {
                    map.remove(name);
                }
            }
            Ok(object)
        }
        Err(status) => {
            let message =
                status["message"].as_str().unwrap_or_default().replace(&format!("{namespace}/"), "/");
            let mut causes: Vec<Value> = status["details"]["causes"].as_array().cloned().unwrap_or_default();
            for cause in causes.iter_mut().filter(|cause| cause["field"] == "patch") {
                let message = cause["message"].as_str().unwrap_or_default();
                cause["message"] = Value::from(message.rsplit("\": ").next().unwrap_or_default());
            }
            causes.sort_by_key(ToString::to_string);
            // The real server reports several errors in random order.
            let shows_object = causes.iter().any(|cause| cause["field"] == "patch");
            let message = match causes.len() {
                0 | 1 if !shows_object => {
                    message.rsplit(" is invalid: ").next().unwrap_or_default().to_owned()
                }
                _ => String::new(),
            };
            let message = match message.split_once(" cannot be handled as a ") {
                Some((_, rest)) => rest.split_once(": ").map_or(rest, |(_, why)| why).to_owned(),
                None => message,
            };
            let message =
                message.split_once(": json: ").map_or(message.clone(), |(_, rest)| format!("json: {rest}"));
            Err(
                json!({ "code": status["code"], "reason": status["reason"], "message": message, "causes": causes }),
            )
        }
    }
}

fn comparable(result: &ApiResult) -> Value {
    match result {
        Ok(value) => value.clone(),
        Err(value) => json!({ "error": value }),
    }
}

/// One line for each place where two values differ.
fn difference(real: &Value, simulated: &Value, path: &str) -> Vec<String> {
    match (real, simulated) {
        _ if real == simulated => Vec::new(),
        (Value::Object(left), Value::Object(right)) => {
            let names: BTreeMap<&String, ()> =
                left.keys().chain(right.keys()).map(|name| (name, ())).collect();
            let one = |name: &&String| {
                let missing = Value::from("(missing)");
                let (left, right) =
                    (left.get(*name).unwrap_or(&missing), right.get(*name).unwrap_or(&missing));
                difference(left, right, &format!("{path}/{name}"))
            };
            names.keys().flat_map(one).collect()
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let pairs = left.iter().zip(right).enumerate();
            pairs
                .flat_map(|(index, (left, right))| difference(left, right, &format!("{path}/{index}")))
                .collect()
        }
        _ => vec![format!("  {path}: real {real}, simulated {simulated}")],
    }
}

async fn ensure_widgets(client: &Client, namespace: &str) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let _ = request(client, "POST", definitions, "application/json", &cases::widget_definition()).await;
    let path = Kind::Widget.path(namespace);
    let is_served = async {
        while request(client, "GET", &path, "application/json", &Value::Null).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), is_served).await.expect("the server serves widgets");
}
