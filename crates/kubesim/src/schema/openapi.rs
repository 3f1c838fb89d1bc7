//! The OpenAPI v3 documents of a server, as far as kubectl reads them: the parameters of PATCH, the merging of lists,
//! and what `kubectl explain` prints about the kinds of CRDs.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::fields;

use super::builtin::{OBJECT_META, components};

/// A resource of one group and version, for the document.
#[derive(Debug, Clone, Copy)]
pub struct ResourceDoc<'a> {
    /// The name in paths: `deployments`.
    pub plural: &'a str,
    /// The kind: `Deployment`.
    pub kind: &'a str,
    /// Whether its objects have a namespace.
    pub is_namespaced: bool,
    /// Its subresources: `status`, `scale`.
    pub subresources: &'a [&'a str],
    /// The `openAPIV3Schema` of a CRD; `None` for built-in kinds.
    pub crd_schema: Option<&'a Value>,
}

/// The index at `/openapi/v3`: for each group and version (`("apps", "v1")`) the digest of its document, by which
/// clients cache it.
pub fn open_api_v3_index<'a>(documents: impl IntoIterator<Item = ((&'a str, &'a str), &'a str)>) -> Value {
    let mut paths = Map::new();
    for ((group, version), digest) in documents {
        let path = root_path(group, version);
        let path = path.trim_start_matches('/');
        let url = format!("/openapi/v3/{path}?hash={digest}");
        paths.insert(path.to_owned(), json!({ "serverRelativeURL": url }));
    }
    json!({ "paths": paths })
}

/// The document of a group and version: `/openapi/v3/apis/apps/v1`.
pub fn open_api_v3(group: &str, version: &str, resources: &[ResourceDoc<'_>]) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    let mut needed = BTreeSet::new();
    for resource in resources {
        let name = match resource.crd_schema {
            Some(schema) => {
                let name = crd_component(group, version, resource.kind);
                schemas.insert(name.clone(), crd_schema(group, version, resource.kind, schema));
                needed.insert(OBJECT_META.to_owned());
                Some(name)
            }
            None => built_in_component(group, version, resource.kind).map(str::to_owned),
        };
        add_paths(&mut paths, group, version, resource, name.as_deref());
        needed.extend(name);
    }
    let mut waiting: Vec<String> = needed.into_iter().collect();
    while let Some(name) = waiting.pop() {
        let is_known = schemas.contains_key(&name);
        let Some(schema) = components().get(&name).filter(|_| !is_known) else { continue };
        let schema = published(schema);
        references(&schema, &mut waiting);
        schemas.insert(name, schema);
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": "unversioned" },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

fn root_path(group: &str, version: &str) -> String {
    match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    }
}

fn add_paths(
    paths: &mut Map<String, Value>,
    group: &str,
    version: &str,
    resource: &ResourceDoc<'_>,
    component: Option<&str>,
) {
    let root = root_path(group, version);
    let place = if resource.is_namespaced { "/namespaces/{namespace}" } else { "" };
    let base = format!("{root}{place}/{}", resource.plural);
    let kind = json!({ "group": group, "version": version, "kind": resource.kind });
    let is_built_in = resource.crd_schema.is_none();
    let body = component.map(|name| json!({ "$ref": format!("#/components/schemas/{name}") }));
    let responses = json!({ "200": { "description": "OK" } });
    let operation = |action: &str, parameters: &[&str], body: Option<Value>| {
        let parameters: Vec<Value> = parameters.iter().map(|name| query_parameter(name)).collect();
        let mut operation = json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
            "parameters": parameters,
            "responses": responses,
        });
        if let Some(body) = body {
            operation["requestBody"] = body;
        }
        operation
    };
    const WRITE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
    const PATCH: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "force"];
    const LIST: [&str; 6] =
        ["allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "watch"];
    let written =
        body.clone().map(|schema| json!({ "content": { "application/json": { "schema": schema } } }));
    let mut patches =
        vec!["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
    if is_built_in {
        patches.push("application/strategic-merge-patch+json");
    }
    let patch_content: Map<String, Value> =
        patches.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    let patched = Some(json!({ "content": patch_content }));
    paths.insert(
        base.clone(),
        json!({
            "get": operation("list", &LIST, None),
            "post": operation("post", &WRITE, written.clone()),
            "delete": operation("deletecollection", &LIST, None),
        }),
    );
    let one = |patched: Option<Value>, written: Option<Value>| {
        json!({
            "get": operation("get", &[], None),
            "put": operation("put", &WRITE, written),
            "patch": operation("patch", &PATCH, patched),
        })
    };
    let mut whole = one(patched.clone(), written.clone());
    whole["delete"] = operation("delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"], None);
    paths.insert(format!("{base}/{{name}}"), whole);
    for subresource in resource.subresources.iter().filter(|name| **name == "status") {
        paths.insert(format!("{base}/{{name}}/{subresource}"), one(patched.clone(), written.clone()));
    }
}

fn query_parameter(name: &str) -> Value {
    let kind = match name {
        "force" | "watch" | "allowWatchBookmarks" => "boolean",
        "limit" | "gracePeriodSeconds" => "integer",
        _ => "string",
    };
    json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } })
}

fn built_in_component(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    let needed = json!({ "group": group, "version": version, "kind": kind });
    let is_it = |schema: &Value| {
        let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
        kinds.is_some_and(|kinds| kinds.contains(&needed))
    };
    components().iter().find(|(_, schema)| is_it(schema)).map(|(name, _)| name.as_str())
}

/// `example.com`, `v1`, `Widget` is `com.example.v1.Widget`.
fn crd_component(group: &str, version: &str, kind: &str) -> String {
    let group: Vec<&str> = group.rsplit('.').collect();
    format!("{}.{version}.{kind}", group.join("."))
}

fn crd_schema(group: &str, version: &str, kind: &str, schema: &Value) -> Value {
    let mut schema = schema.clone();
    if !schema.is_object() {
        schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    }
    schema["x-kubernetes-group-version-kind"] = json!([{ "group": group, "version": version, "kind": kind }]);
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    fields::set(
        &mut schema,
        &["properties", "apiVersion"],
        json!({ "type": "string", "description": API_VERSION }),
    );
    fields::set(&mut schema, &["properties", "kind"], json!({ "type": "string", "description": KIND }));
    fields::set(
        &mut schema,
        &["properties", "metadata"],
        json!({
            "allOf": [{ "$ref": format!("#/components/schemas/{OBJECT_META}") }],
            "description": METADATA,
        }),
    );
    schema
}

/// Descriptions of the three fields of every object, for `kubectl explain`.
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should \
convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer \
this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: \
https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// A schema without our own extensions.
fn published(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let public = map.iter().filter(|(name, _)| !name.starts_with("x-go-"));
            Value::Object(public.map(|(name, value)| (name.clone(), published(value))).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(published).collect()),
        other => other.clone(),
    }
}

fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            for (name, value) in map {
                match value.as_str().and_then(|text| text.strip_prefix("#/components/schemas/")) {
                    Some(reference) if name == "$ref" => found.push(reference.to_owned()),
                    _ => references(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}
