//! The cases.

use serde_json::{Value, json};

use super::{Case, Kind, Step, Verb};

fn step(verb: Verb, manager: &'static str, body: Value) -> Step {
    Step { verb, manager, subresource: None, body }
}

fn create(body: Value) -> Step {
    step(Verb::Create, "creator", body)
}

fn apply(manager: &'static str, body: Value) -> Step {
    step(Verb::Apply, manager, body)
}

fn force(manager: &'static str, body: Value) -> Step {
    step(Verb::Force, manager, body)
}

fn merge(body: Value) -> Step {
    step(Verb::Merge, "patcher", body)
}

fn strategic(body: Value) -> Step {
    step(Verb::Strategic, "patcher", body)
}

fn on_status(step: Step) -> Step {
    Step { subresource: Some("status"), ..step }
}

fn deployment() -> Value {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [
                    { "name": "web", "image": "web:1", "ports": [{ "containerPort": 80 }] },
                    { "name": "side", "image": "side", "env": [{ "name": "A", "value": "1" }] },
                ] },
            },
        },
    })
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).expect("a place in the fixture") = value;
    object
}

fn without(mut object: Value, parent: &str, name: &str) -> Value {
    object.pointer_mut(parent).and_then(Value::as_object_mut).expect("a place in the fixture").remove(name);
    object
}

/// The schema of a kind made for these cases.
pub(super) fn widget_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["color"],
                "properties": {
                    "color": { "type": "string", "enum": ["red", "blue"] },
                    "size": { "type": "integer", "default": 3, "minimum": 1, "maximum": 10 },
                    "ratio": { "type": "number", "exclusiveMinimum": true, "minimum": 0, "multipleOf": 0.5 },
                    "name": { "type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5 },
                    "at": { "type": "string", "format": "date-time" },
                    "address": { "type": "string", "format": "ipv4" },
                    "port": { "x-kubernetes-int-or-string": true },
                    "gone": { "type": "string", "nullable": true },
                    "tags": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set", "maxItems": 3 },
                    "steps": { "type": "array", "items": { "type": "string" }, "minItems": 1 },
                    "labels": { "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 2 },
                    "whole": { "type": "object", "x-kubernetes-map-type": "atomic", "properties": { "a": { "type": "string" }, "b": { "type": "string" } } },
                    "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "known": { "type": "integer", "default": 1 } } },
                    "choice": {
                        "type": "object",
                        "properties": { "a": { "type": "string" }, "b": { "type": "string" } },
                        "oneOf": [{ "required": ["a"] }, { "required": ["b"] }],
                    },
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name", "kind"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": { "type": "string" },
                                "kind": { "type": "string", "default": "plain" },
                                "weight": { "type": "integer" },
                            },
                        },
                    },
                },
            },
            "status": { "type": "object", "properties": { "phase": { "type": "string" }, "count": { "type": "integer" } } },
        },
    })
}

pub(super) fn widget_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.agreement.shipshape.dev" },
        "spec": {
            "group": "agreement.shipshape.dev",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": widget_schema() },
            }],
        },
    })
}

fn widget(spec: Value) -> Value {
    let mut spec = spec;
    if let Value::Object(map) = &mut spec {
        map.entry("color").or_insert(json!("red"));
    }
    json!({ "spec": spec })
}

pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name, kind, steps| cases.push(Case { name, kind, steps });
    ownership(&mut case);
    lists(&mut case);
    conflicts(&mut case);
    patches(&mut case);
    custom(&mut case);
    defaults(&mut case);
    cases
}

type Add<'a> = dyn FnMut(&'static str, Kind, Vec<Step>) + 'a;

fn ownership(case: &mut Add<'_>) {
    let d = Kind::Deployment;
    let c = Kind::ConfigMap;
    case("create is owned", d, vec![create(deployment())]);
    case("apply creates", d, vec![apply("a", deployment())]);
    case("apply again changes nothing", d, vec![apply("a", deployment()), apply("a", deployment())]);
    case(
        "removed field goes",
        d,
        vec![
            apply("a", with(deployment(), "/metadata/labels", json!({ "app": "web", "extra": "1" }))),
            apply("a", deployment()),
        ],
    );
    case(
        "removed field with a default comes back",
        d,
        vec![apply("a", deployment()), apply("a", without(deployment(), "/spec", "replicas"))],
    );
    case(
        "removed list item goes",
        d,
        vec![
            apply("a", deployment()),
            apply(
                "a",
                with(
                    deployment(),
                    "/spec/template/spec/containers",
                    json!([{ "name": "web", "image": "web:1" }]),
                ),
            ),
        ],
    );
    case(
        "shared fields stay when one gives up",
        c,
        vec![
            apply("a", json!({ "data": { "x": "1", "y": "2" } })),
            apply("b", json!({ "data": { "x": "1" } })),
            apply("a", json!({ "data": { "y": "2" } })),
            apply("b", json!({ "data": {} })),
        ],
    );
    case(
        "an updater keeps what the applier drops",
        c,
        vec![
            apply("a", json!({ "data": { "x": "1" } })),
            merge(json!({ "data": { "x": "2", "z": "3" } })),
            force("a", json!({ "data": { "y": "4" } })),
        ],
    );
    case(
        "update takes ownership",
        c,
        vec![
            apply("a", json!({ "data": { "x": "1", "y": "1" } })),
            merge(json!({ "data": { "x": "2" } })),
            merge(json!({ "data": { "y": null } })),
        ],
    );
    case(
        "put replaces",
        c,
        vec![
            create(json!({ "data": { "x": "1", "y": "1" } })),
            step(Verb::Put, "putter", json!({ "data": { "y": "2", "z": "3" } })),
        ],
    );
    case(
        "update of nothing keeps everything",
        c,
        vec![create(json!({ "data": { "x": "1" } })), merge(json!({ "data": { "x": "1" } }))],
    );
    case(
        "reset of managed fields",
        c,
        vec![
            create(json!({ "data": { "x": "1" } })),
            merge(json!({ "metadata": { "managedFields": [{}] } })),
            merge(json!({ "data": { "y": "1" } })),
            apply("a", json!({ "data": { "z": "1" } })),
            apply("a", json!({ "data": {} })),
        ],
    );
    case(
        "empty list resets managed fields",
        c,
        vec![
            create(json!({ "data": { "x": "1" } })),
            merge(json!({ "metadata": { "managedFields": [] } })),
            force("a", json!({ "data": { "x": "2" } })),
        ],
    );
    case(
        "status is owned apart",
        d,
        vec![
            create(deployment()),
            on_status(merge(
                json!({ "status": { "replicas": 1, "observedGeneration": 1 }, "spec": { "replicas": 7 } }),
            )),
            on_status(apply("st", json!({ "status": { "readyReplicas": 1 } }))),
        ],
    );
    case(
        "annotations and finalizers",
        c,
        vec![
            apply("a", json!({ "metadata": { "annotations": { "k": "v" }, "finalizers": ["x.y/z"] } })),
            apply("b", json!({ "metadata": { "annotations": { "l": "v" }, "finalizers": ["q.y/z"] } })),
            apply("a", json!({ "metadata": { "annotations": {} } })),
            apply("b", json!({})),
        ],
    );
    case(
        "owner references merge by uid",
        c,
        vec![
            apply(
                "a",
                json!({ "metadata": { "ownerReferences": [
            { "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "1" }] } }),
            ),
            apply(
                "b",
                json!({ "metadata": { "ownerReferences": [
            { "apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "2" }] } }),
            ),
            apply("a", json!({})),
        ],
    );
    case("more than ten updaters", c, {
        let managers = ["m00", "m01", "m02", "m03", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11"];
        let mut steps = vec![create(json!({ "data": { "x": "1" } }))];
        steps.extend(managers.map(|name| step(Verb::Merge, name, json!({ "data": { name: "1" } }))));
        steps
    });
}

fn lists(case: &mut Add<'_>) {
    let d = Kind::Deployment;
    let containers = |list: Value| with(deployment(), "/spec/template/spec/containers", list);
    case(
        "two managers of one list",
        d,
        vec![
            apply("a", deployment()),
            apply(
                "b",
                json!({ "spec": { "template": { "spec": { "containers": [{ "name": "more", "image": "m" }] } } } }),
            ),
            apply("a", containers(json!([{ "name": "side", "image": "side" }]))),
        ],
    );
    case(
        "order of merged items",
        d,
        vec![
            apply(
                "a",
                containers(
                    json!([{ "name": "a", "image": "1" }, { "name": "b", "image": "1" }, { "name": "c", "image": "1" }]),
                ),
            ),
            force(
                "b",
                json!({ "spec": { "template": { "spec": { "containers": [
            { "name": "c", "image": "1" }, { "name": "n", "image": "1" }, { "name": "a", "image": "1" }] } } } }),
            ),
        ],
    );
    case(
        "duplicates in an apply",
        d,
        vec![apply("a", containers(json!([{ "name": "a", "image": "1" }, { "name": "a", "image": "1" }])))],
    );
    case("item without its key", d, vec![apply("a", containers(json!([{ "image": "1" }])))]);
    case(
        "ports by two keys",
        d,
        vec![
            apply(
                "a",
                containers(
                    json!([{ "name": "a", "image": "1", "ports": [{ "containerPort": 80 }, { "containerPort": 80, "protocol": "UDP" }] }]),
                ),
            ),
            apply(
                "a",
                containers(
                    json!([{ "name": "a", "image": "1", "ports": [{ "containerPort": 80, "protocol": "UDP" }] }]),
                ),
            ),
        ],
    );
    case(
        "atomic lists are replaced",
        d,
        vec![
            apply("a", containers(json!([{ "name": "a", "image": "1", "args": ["x", "y"] }]))),
            force(
                "b",
                json!({ "spec": { "template": { "spec": { "containers": [{ "name": "a", "args": ["z"] }] } } } }),
            ),
        ],
    );
    case(
        "selectors are atomic",
        d,
        vec![
            apply("a", deployment()),
            apply("b", json!({ "spec": { "selector": { "matchLabels": { "app": "web" } } } })),
        ],
    );
    case(
        "services by port and protocol",
        Kind::Service,
        vec![
            apply(
                "a",
                json!({ "spec": { "ports": [{ "name": "x", "port": 80 }, { "name": "y", "port": 81, "protocol": "UDP" }] } }),
            ),
            apply("b", json!({ "spec": { "ports": [{ "name": "z", "port": 82 }] } })),
            apply("a", json!({ "spec": { "ports": [{ "name": "x", "port": 80, "targetPort": "http" }] } })),
        ],
    );
}

fn conflicts(case: &mut Add<'_>) {
    let d = Kind::Deployment;
    let replicas = |count: u32| json!({ "spec": { "replicas": count } });
    case(
        "one conflict",
        d,
        vec![
            apply("a", deployment()),
            apply("b", replicas(5)),
            force("b", replicas(5)),
            apply("a", deployment()),
        ],
    );
    case(
        "conflict with an updater",
        d,
        vec![create(deployment()), apply("b", replicas(5)), apply("b", replicas(2))],
    );
    case(
        "several conflicts",
        d,
        vec![
            apply("a", deployment()),
            merge(json!({ "metadata": { "labels": { "app": "x" } } })),
            apply(
                "b",
                json!({
                    "metadata": { "labels": { "app": "y" } },
                    "spec": { "replicas": 9, "template": { "spec": { "containers": [{ "name": "web", "image": "web:2" }] } } },
                }),
            ),
        ],
    );
    case(
        "conflict over a whole map",
        Kind::Widget,
        vec![
            apply("a", widget(json!({ "whole": { "a": "1" } }))),
            apply("b", widget(json!({ "whole": { "b": "1" } }))),
            force("b", widget(json!({ "whole": { "b": "1" } }))),
        ],
    );
    let last = |body: Value| body.to_string();
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "kubectl-takes-over-its-own" }, "data": { "x": "1", "y": "1" } });
    let annotated = json!({
        "metadata": { "annotations": { "kubectl.kubernetes.io/last-applied-configuration": last(body.clone()) } },
        "data": { "x": "1", "y": "1" },
    });
    case(
        "kubectl takes over its own",
        Kind::ConfigMap,
        vec![
            step(Verb::Create, "kubectl-client-side-apply", annotated),
            apply("other", json!({ "data": { "x": "2" } })),
            apply("kubectl", json!({ "data": { "x": "2", "y": "3" } })),
            merge(json!({ "data": { "y": "4" } })),
            apply("kubectl", json!({ "data": { "x": "2", "y": "5" } })),
        ],
    );
    case(
        "managed fields in an apply",
        Kind::ConfigMap,
        vec![apply("a", json!({ "metadata": { "managedFields": [{ "manager": "x" }] } }))],
    );
    case("unknown field in an apply", d, vec![apply("a", json!({ "spec": { "foo": 1, "replicas": 1 } }))]);
    case(
        "wrong types in an apply",
        d,
        vec![
            apply("a", json!({ "spec": { "replicas": "1" } })),
            apply("a", json!({ "spec": { "template": [] } })),
            apply("a", json!({ "spec": { "template": { "spec": { "containers": {} } } } })),
            apply("a", json!({ "spec": { "paused": "yes" } })),
            apply("a", json!({ "metadata": { "labels": { "a": 1 } } })),
        ],
    );
}

fn patches(case: &mut Add<'_>) {
    let d = Kind::Deployment;
    let in_pod = |spec: Value| json!({ "spec": { "template": { "spec": spec } } });
    case(
        "strategic patch merges containers",
        d,
        vec![
            create(deployment()),
            strategic(in_pod(
                json!({ "containers": [{ "name": "side", "image": "side:2" }, { "name": "new", "image": "n" }] }),
            )),
            strategic(in_pod(json!({ "containers": [{ "name": "web", "$patch": "delete" }] }))),
            strategic(in_pod(
                json!({ "containers": [{ "$patch": "replace" }, { "name": "only", "image": "o" }] }),
            )),
        ],
    );
    case(
        "strategic patch keeps an order",
        d,
        vec![
            create(deployment()),
            strategic(in_pod(json!({
                "$setElementOrder/containers": [{ "name": "side" }, { "name": "new" }, { "name": "web" }],
                "containers": [{ "name": "new", "image": "n" }],
            }))),
            strategic(in_pod(
                json!({ "$setElementOrder/containers": [{ "name": "web" }], "containers": [{ "name": "side", "image": "x" }] }),
            )),
            strategic(in_pod(json!({ "$setElementOrder/containers": "web" }))),
        ],
    );
    case(
        "strategic patch of a map",
        d,
        vec![
            create(deployment()),
            strategic(json!({ "metadata": { "labels": { "app": null, "b": "c", "n": null } } })),
            strategic(json!({ "metadata": { "labels": { "$patch": "replace", "z": "1" } } })),
            strategic(json!({ "metadata": { "labels": { "$patch": "delete" } } })),
            strategic(json!({ "metadata": { "labels": { "$patch": "paint" } } })),
        ],
    );
    case(
        "retain keys",
        d,
        vec![
            create(deployment()),
            strategic(json!({ "spec": { "strategy": { "$retainKeys": ["type"], "type": "Recreate" } } })),
            strategic(json!({ "spec": { "strategy": { "$retainKeys": ["type"], "rollingUpdate": {} } } })),
            strategic(json!({ "spec": { "strategy": { "$retainKeys": "type" } } })),
        ],
    );
    case(
        "primitive lists",
        Kind::ConfigMap,
        vec![
            create(json!({ "metadata": { "finalizers": ["a.b/c", "d.e/f", "g.h/i"] } })),
            strategic(json!({ "metadata": { "finalizers": ["x.y/z", "d.e/f"] } })),
            strategic(json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["d.e/f"] } })),
            strategic(
                json!({ "metadata": { "$setElementOrder/finalizers": ["g.h/i", "new.x/y", "a.b/c"], "finalizers": ["new.x/y"] } }),
            ),
            merge(json!({ "metadata": { "finalizers": null } })),
        ],
    );
    case(
        "list item without merge key",
        d,
        vec![create(deployment()), strategic(in_pod(json!({ "containers": [{ "image": "x" }] })))],
    );
    let json_patch = |body: Value| step(Verb::Json, "patcher", body);
    case(
        "json patch",
        d,
        vec![
            create(deployment()),
            json_patch(
                json!([{ "op": "replace", "path": "/spec/replicas", "value": 4 }, { "op": "add", "path": "/metadata/labels/x~1y", "value": "z" }]),
            ),
            json_patch(json!([{ "op": "test", "path": "/spec/replicas", "value": 3 }])),
            json_patch(json!([{ "op": "remove", "path": "/spec/nothing" }])),
            json_patch(json!([{ "op": "replace", "path": "/spec/nothing/here", "value": 1 }])),
            json_patch(json!([{ "op": "add", "path": "/spec/template/spec/containers/7", "value": {} }])),
            json_patch(json!([{ "op": "paint", "path": "/spec" }])),
            json_patch(json!({ "op": "remove" })),
            json_patch(
                json!([{ "op": "copy", "from": "/metadata/labels/app", "path": "/metadata/labels/b" }, { "op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/c" }]),
            ),
        ],
    );
    case(
        "merge patch that is none",
        Kind::ConfigMap,
        vec![create(json!({})), merge(json!(["x"])), merge(json!("x"))],
    );
    case(
        "zero values vanish",
        d,
        vec![
            create(deployment()),
            merge(
                json!({ "spec": { "paused": false, "minReadySeconds": 0, "replicas": 0 }, "metadata": { "annotations": {} } }),
            ),
        ],
    );
    case(
        "wrong types in a patch",
        d,
        vec![
            create(deployment()),
            merge(json!({ "spec": { "replicas": "three" } })),
            merge(json!({ "spec": { "paused": 1 } })),
            merge(json!({ "spec": { "template": "x" } })),
            merge(json!({ "metadata": { "labels": { "a": 1 } } })),
            merge(json!({ "spec": { "replicas": 1.5 } })),
            strategic(json!({ "spec": { "replicas": "three" } })),
        ],
    );
}

fn custom(case: &mut Add<'_>) {
    let w = Kind::Widget;
    case(
        "a custom object is defaulted and pruned",
        w,
        vec![create(
            json!({ "spec": { "color": "red", "unknown": 1, "gone": null, "free": { "any": { "x": null } }, "parts": [{ "name": "a" }] }, "extra": true }),
        )],
    );
    case(
        "custom values are checked",
        w,
        vec![
            create(widget(json!({ "size": 0 }))),
            create(widget(json!({ "size": 11 }))),
            create(widget(json!({ "size": "x" }))),
            create(widget(json!({ "color": "green" }))),
            create(json!({ "spec": {} })),
            create(widget(json!({ "ratio": 0 }))),
            create(widget(json!({ "ratio": 0.7 }))),
            create(widget(json!({ "name": "a" }))),
            create(widget(json!({ "name": "UPPER" }))),
            create(widget(json!({ "name": "abcdefg" }))),
            create(widget(json!({ "at": "yesterday" }))),
            create(widget(json!({ "address": "1.2.3.4.5" }))),
            create(widget(json!({ "port": true }))),
            create(widget(json!({ "tags": ["a", "b", "a"] }))),
            create(widget(json!({ "tags": ["a", "b", "c", "d"] }))),
            create(widget(json!({ "steps": [] }))),
            create(widget(json!({ "labels": { "a": 1 } }))),
            create(widget(json!({ "labels": { "a": "1", "b": "2", "c": "3" } }))),
            create(widget(json!({ "choice": {} }))),
            create(widget(json!({ "choice": { "a": "1", "b": "2" } }))),
            create(widget(json!({ "parts": [{ "name": "a" }, { "name": "a", "kind": "plain" }] }))),
            create(widget(json!({ "parts": [{ "weight": 1 }] }))),
            create(widget(json!({ "steps": "x", "size": null, "tags": [1] }))),
            create(json!({ "spec": "x" })),
        ],
    );
    case(
        "custom lists merge by keys",
        w,
        vec![
            apply(
                "a",
                widget(json!({ "parts": [{ "name": "a" }, { "name": "b", "weight": 1 }], "tags": ["x"] })),
            ),
            apply(
                "b",
                widget(
                    json!({ "parts": [{ "name": "a", "kind": "plain", "weight": 2 }, { "name": "a", "kind": "other" }], "tags": ["y"] }),
                ),
            ),
            apply("a", widget(json!({ "parts": [{ "name": "b" }] }))),
            apply("b", widget(json!({}))),
        ],
    );
    case(
        "free fields are owned one by one",
        w,
        vec![
            apply("a", widget(json!({ "free": { "x": { "y": 1, "list": [1, 2] } } }))),
            apply("b", widget(json!({ "free": { "x": { "z": 1 } } }))),
            apply("a", widget(json!({ "free": { "x": { "list": [3] } } }))),
        ],
    );
    case(
        "custom status",
        w,
        vec![
            create(json!({ "spec": { "color": "red" }, "status": { "phase": "ignored" } })),
            on_status(merge(json!({ "status": { "phase": "Ready" }, "spec": { "color": "blue" } }))),
            on_status(apply("st", json!({ "status": { "count": 1 } }))),
            merge(json!({ "status": { "phase": "x" } })),
        ],
    );
    case(
        "custom create is owned",
        w,
        vec![
            create(widget(
                json!({ "labels": { "a": "b" }, "parts": [{ "name": "a" }], "tags": ["t"], "whole": { "a": "1" }, "free": { "q": {} } }),
            )),
            merge(json!({ "spec": { "labels": { "c": "d" }, "size": 5 } })),
        ],
    );
}

fn defaults(case: &mut Add<'_>) {
    case(
        "statefulset",
        Kind::StatefulSet,
        vec![create(json!({ "spec": {
        "serviceName": "x",
        "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": {
            "containers": [{ "name": "a", "image": "x@sha256:0123", "resources": { "limits": { "cpu": "1", "memory": "1Gi" } }, "livenessProbe": { "tcpSocket": { "port": 1 } } }],
            "volumes": [{ "name": "h", "hostPath": { "path": "/x" } }, { "name": "e" }],
        } },
        "volumeClaimTemplates": [{ "metadata": { "name": "d" }, "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }],
    } }))],
    );
    case(
        "secret",
        Kind::Secret,
        vec![create(json!({ "stringData": { "a": "b" }, "data": { "c": "ZA==" } }))],
    );
    case(
        "service",
        Kind::Service,
        vec![create(
            json!({ "spec": { "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30123 }], "sessionAffinity": "ClientIP" } }),
        )],
    );
    case(
        "null and empty fields",
        Kind::Deployment,
        vec![create(with(
            deployment(),
            "/spec/template/spec/containers",
            json!([
        { "name": "a", "image": "b:2", "command": [], "env": null, "resources": {}, "securityContext": {}, "workingDir": "" }]),
        ))],
    );
    case(
        "required fields",
        Kind::Deployment,
        vec![
            create(json!({ "spec": {} })),
            create(with(deployment(), "/spec/template/spec/containers/0", json!({ "image": "x" }))),
            create(with(
                deployment(),
                "/spec/template/spec/containers/0",
                json!({ "name": "x", "image": "x", "imagePullPolicy": "Now" }),
            )),
        ],
    );
    case(
        "wrong types in a create",
        Kind::Pod,
        vec![
            create(json!({ "spec": { "containers": [{ "name": 1 }] } })),
            create(json!({ "spec": { "containers": "x" } })),
            create(json!({ "spec": { "containers": [{ "ports": [{ "containerPort": "80" }] }] } })),
            create(json!({ "spec": { "hostNetwork": "yes" } })),
        ],
    );
}
