//! Who owns what, and who may change it.

use serde_json::{Value, json};

use super::super::{Kind, Verb};
use super::{Add, apply, create, deployment, force, merge, on_status, step, widget, with, without};

pub(super) fn ownership(case: &mut Add<'_>) {
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

pub(super) fn lists(case: &mut Add<'_>) {
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

pub(super) fn conflicts(case: &mut Add<'_>) {
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
