//! Events as people see them.

use std::sync::Arc;

use api::clock::SystemClock;
use controller::{EventRecorder, Observability};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{soon, world};

#[tokio::test]
async fn repeated_events_are_one_event_with_a_count_that_kubectl_describe_shows() {
    let Some(world) = world("events").await else { return };
    let object = world.create(json!({"name": "web"})).await;
    let (recorder, writer) = EventRecorder::new(
        world.client.clone(),
        "sample",
        "pod-1",
        Arc::new(SystemClock),
        Observability::default(),
    );
    for _ in 0..5 {
        recorder.warning(&object, "FailedCreate", "quota exceeded");
    }
    recorder.normal(&object, "Created", "child a was created");
    drop(recorder);
    soon("the events", writer.run(CancellationToken::new())).await;

    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let found = events.list(&ListParams::default().fields("involvedObject.name=web")).await.unwrap();
    let mut found: Vec<_> =
        found.items.iter().map(|it| (it.reason.as_deref().unwrap(), it.count.unwrap())).collect();
    found.sort_unstable();
    assert_eq!(found, [("Created", 1), ("FailedCreate", 5)]);

    let describe =
        world.cluster.kubectl().args(["describe", "configmap", "web", "-n", &world.namespace]).output();
    let text = String::from_utf8(describe.unwrap().stdout).unwrap();
    let line = text.lines().find(|line| line.contains("FailedCreate")).unwrap_or_else(|| panic!("{text}"));
    for part in ["Warning", "x5 over", "sample", "quota exceeded"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[tokio::test]
async fn events_of_an_object_without_a_namespace_are_in_the_default_one() {
    let Some(world) = world("node-events").await else { return };
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = serde_json::from_value(json!({"metadata": {"name": world.namespace}})).unwrap();
    let node = nodes.create(&PostParams::default(), &node).await.unwrap();
    let (recorder, writer) = EventRecorder::new(
        world.client.clone(),
        "sample",
        "pod-1",
        Arc::new(SystemClock),
        Observability::default(),
    );
    recorder.normal(&node, "Deleted", format!("Node {:?} drained", world.namespace));
    drop(recorder);
    soon("the event", writer.run(CancellationToken::new())).await;
    let describe = world.cluster.kubectl().args(["describe", "node", &world.namespace]).output().unwrap();
    let text = String::from_utf8(describe.stdout).unwrap();
    assert!(text.lines().any(|line| line.contains("Deleted") && line.contains("drained")), "{text}");
}
