//! Events, in the core group and in `events.k8s.io`.

use serde_json::{Value, json};

use crate::script::cases;

const CORE: &str = "/api/v1/namespaces/{ns}/events";
const NEW: &str = "/apis/events.k8s.io/v1/namespaces/{ns}/events";

fn core_event(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": name },
        "involvedObject": { "kind": "ConfigMap", "namespace": "{ns}", "name": "a" }, "reason": "Tested", "message": "It was tested.",
        "type": "Normal", "source": { "component": "test" }, "count": 2,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"
    })
}

fn new_event(name: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": name },
        "regarding": { "kind": "ConfigMap", "namespace": "{ns}", "name": "a" }, "reason": "Tested", "note": "It was tested.",
        "type": "Warning", "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.test/tester",
        "reportingInstance": "tester-1", "action": "Testing"
    })
}

cases! { "events";
    async fn both_groups_have_the_same_events(s) {
        s.post(CORE, core_event("a")).await;
        s.post(NEW, new_event("b")).await;
        for name in ["a", "b"] {
            for events in [CORE, NEW] {
                s.get(&format!("{events}/{name}")).await;
            }
        }
        s.get(CORE).await;
        s.get(NEW).await;
        s.get(NEW).table().without("/rows/*/object/metadata/managedFields").await;
        s.delete(&format!("{NEW}/a")).await;
        s.get(&format!("{CORE}/a")).expect(404).await;
        s.get(&format!("{NEW}/a")).expect(404).await;
    }

    async fn events_are_watched_in_the_form_of_the_group(s) {
        let mut watch = s.watch("/apis/events.k8s.io/v1/namespaces/{ns}/events?watch=true").await;
        s.post(CORE, core_event("a")).only("/kind").await;
        s.delete(&format!("{CORE}/a")).only("/status").await;
        s.events(&mut watch, 2).await;
    }

    async fn events_are_selected_by_the_fields_of_the_group(s) {
        s.post(CORE, core_event("a")).only("/kind").await;
        s.post(NEW, new_event("b")).only("/kind").await;
        s.get(&format!("{NEW}?fieldSelector=regarding.name%3Da,type%3DWarning")).only("/items/0/metadata/name").only("/items/1").await;
        s.get(&format!("{NEW}?fieldSelector=reportingController%3Dexample.test%2Ftester")).only("/items/0/metadata/name").only("/items/1").await;
        s.get(&format!("{CORE}?fieldSelector=source%3Dtest")).only("/items/0/metadata/name").only("/items/1").await;
        s.get(&format!("{CORE}?fieldSelector=source%3Dexample.test%2Ftester")).only("/items/0/metadata/name").only("/items/1").await;
        s.get(&format!("{NEW}?fieldSelector=involvedObject.name%3Da")).expect(400).await;
    }

    async fn an_event_of_the_new_group_is_changed(s) {
        s.post(NEW, new_event("a")).only("/kind").await;
        s.merge(&format!("{NEW}/a"), json!({ "series": { "count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z" } })).await;
        s.merge(&format!("{NEW}/a?dryRun=All"), json!({ "metadata": { "labels": { "colour": "red" } } })).await;
        s.merge(&format!("{NEW}/a"), json!({ "note": "Something else." })).expect(422).await;
        s.merge(&format!("{CORE}/a"), json!({ "message": "Something else." })).only("/message").await;
        s.get(&format!("{NEW}/a")).only("/note").await;
        s.put(&format!("{NEW}/c"), new_event("c")).expect(201).only("/metadata/name").await;
        s.post(&format!("{NEW}?dryRun=All"), new_event("d")).await;
    }

    async fn an_invalid_event_is_rejected(s) {
        for (field, value) in [
            ("reportingController", json!("")), ("reportingInstance", json!("")), ("action", json!("")), ("reason", json!("")),
            ("type", json!("Other")), ("note", json!("x".repeat(1025))), ("series", json!({ "count": 1, "lastObservedTime": "2026-01-01T00:00:01.000000Z" })),
            ("deprecatedCount", json!(1)), ("deprecatedSource", json!({ "component": "test" })), ("eventTime", Value::Null),
            ("regarding", json!({ "kind": "ConfigMap", "name": "a" })),
        ] {
            let mut event = new_event("a");
            event[field] = value;
            s.post(NEW, event).expect(422).await;
        }
        let mut elsewhere = core_event("a");
        elsewhere["involvedObject"]["namespace"] = "default".into();
        s.post(CORE, elsewhere).expect(422).await;
    }

    async fn the_group_is_discovered(s) {
        s.get("/apis/events.k8s.io").await;
        s.get("/apis/events.k8s.io/v1").without("/resources/0/storageVersionHash").await;
    }
}
