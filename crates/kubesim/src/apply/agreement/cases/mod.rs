//! The cases.

mod custom;
mod kinds;
mod ownership;
mod patches;

use serde_json::{Value, json};

use super::{Case, Kind, Step, Verb};

use custom::widget;
pub(super) use custom::{widget_definition, widget_schema};

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

pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name, kind, steps| cases.push(Case { name, kind, steps });
    ownership::ownership(&mut case);
    ownership::lists(&mut case);
    ownership::conflicts(&mut case);
    patches::patches(&mut case);
    custom::custom(&mut case);
    patches::defaults(&mut case);
    kinds::kinds(&mut case);
    cases
}

type Add<'a> = dyn FnMut(&'static str, Kind, Vec<Step>) + 'a;
