//! Patches of all kinds, and what the server makes of what it is sent.

use serde_json::{Value, json};

use super::super::{Kind, Verb};
use super::{Add, create, deployment, merge, step, strategic, with};

pub(super) fn patches(case: &mut Add<'_>) {
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

pub(super) fn defaults(case: &mut Add<'_>) {
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
    let container = |resources: Value| {
        let container = json!({ "name": "a", "image": "b:2", "resources": resources });
        with(deployment(), "/spec/template/spec/containers", json!([container]))
    };
    case(
        "quantities",
        Kind::Deployment,
        vec![
            create(container(json!({
                "limits": { "cpu": 1.5, "memory": "1024Mi", "a.b/c": "1e3" },
                "requests": { "cpu": "0.1", "memory": "1000k", "a.b/c": "1000" },
            }))),
            merge(json!({ "spec": { "template": { "spec": { "nodeSelector": {}, "tolerations": [] } } } })),
            merge(
                json!({ "spec": { "template": { "metadata": { "creationTimestamp": "2024-01-01T01:02:03+02:00" } } } }),
            ),
        ],
    );
    case("bad quantities", Kind::Deployment, vec![create(container(json!({ "limits": { "cpu": "much" } })))]);
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
