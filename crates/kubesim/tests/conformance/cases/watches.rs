//! Watches: which events they get, in which order and from which version on.

use serde_json::{Value, json};

use super::fixtures::{CONFIG_MAPS, PODS, config_map, labelled, pod};
use crate::script::{Script, cases};

/// The current version of the config maps.
async fn version(s: &mut Script) -> String {
    let list = s.get(CONFIG_MAPS).only("/kind").await;
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

cases! { "watches";
    async fn events_are_in_the_order_of_changes(s) {
        let from = version(s).await;
        s.alias(&from, "{from}");
        let mut watch = s.watch("/api/v1/namespaces/{ns}/configmaps?watch=true&resourceVersion={from}&labelSelector=mine").await;
        s.post(CONFIG_MAPS, labelled("a", json!({ "mine": "1" }))).only("/kind").await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "data": { "x": "1" } })).only("/kind").await;
        s.post(CONFIG_MAPS, labelled("b", json!({ "mine": "1" }))).only("/kind").await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/a").only("/kind").await;
        let events = s.events(&mut watch, 4).await;
        assert_eq!(kinds(&events), ["ADDED", "MODIFIED", "ADDED", "DELETED"]);
    }

    async fn a_watch_without_version_starts_with_existing_objects(s) {
        s.post(CONFIG_MAPS, labelled("a", json!({ "mine": "1" }))).only("/kind").await;
        s.post(CONFIG_MAPS, labelled("b", json!({ "mine": "1" }))).only("/kind").await;
        let mut watch = s.watch("/api/v1/namespaces/{ns}/configmaps?watch=true&labelSelector=mine").await;
        s.events(&mut watch, 2).await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/b").only("/kind").await;
        s.events(&mut watch, 1).await;
    }

    async fn a_watch_from_an_event_continues_after_it(s) {
        let from = version(s).await;
        s.alias(&from, "{from}");
        for name in ["a", "b", "c"] {
            s.post(CONFIG_MAPS, labelled(name, json!({ "mine": "1" }))).only("/kind").await;
        }
        let mut watch = s.watch("/api/v1/namespaces/{ns}/configmaps?watch=true&resourceVersion={from}&labelSelector=mine").await;
        let events = s.events(&mut watch, 2).await;
        let after = events[1]["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        s.alias(&after, "{after}");
        let mut again = s.watch("/api/v1/namespaces/{ns}/configmaps?watch=true&resourceVersion={after}&labelSelector=mine").await;
        s.events(&mut again, 1).await;
    }

    async fn an_object_that_no_longer_matches_is_reported_as_deleted(s) {
        let from = version(s).await;
        s.alias(&from, "{from}");
        let mut watch = s.watch("/api/v1/namespaces/{ns}/configmaps?watch=true&resourceVersion={from}&labelSelector=colour%3Dred").await;
        s.post(CONFIG_MAPS, labelled("a", json!({ "colour": "blue" }))).only("/kind").await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "metadata": { "labels": { "colour": "red" } } })).only("/kind").await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "metadata": { "labels": { "colour": "blue" } } })).only("/kind").await;
        let events = s.events(&mut watch, 2).await;
        assert_eq!(kinds(&events), ["ADDED", "DELETED"]);
    }

    async fn one_object_can_be_watched(s) {
        s.post(CONFIG_MAPS, config_map("a")).only("/kind").await;
        let mut watch = s.watch("/api/v1/namespaces/{ns}/configmaps?watch=true&fieldSelector=metadata.name%3Da").await;
        s.events(&mut watch, 1).await;
        s.post(CONFIG_MAPS, config_map("b")).only("/kind").await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "data": { "x": "1" } })).only("/kind").await;
        s.events(&mut watch, 1).await;
    }

    async fn a_write_without_changes_causes_no_event(s) {
        s.post(CONFIG_MAPS, config_map("a")).only("/kind").await;
        let mut watch = s.watch("/api/v1/namespaces/{ns}/configmaps?watch=true&fieldSelector=metadata.name%3Da").await;
        s.events(&mut watch, 1).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "data": { "colour": "red" } })).only("/kind").await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "data": { "colour": "blue" } })).only("/kind").await;
        let events = s.events(&mut watch, 1).await;
        assert_eq!(events[0]["object"]["data"]["colour"], "blue");
    }

    async fn initial_events_end_with_a_bookmark(s) {
        s.post(CONFIG_MAPS, labelled("a", json!({ "mine": "1" }))).only("/kind").await;
        s.post(CONFIG_MAPS, labelled("b", json!({ "mine": "1" }))).only("/kind").await;
        let mut watch = s.watch("/api/v1/namespaces/{ns}/configmaps?watch=true&labelSelector=mine&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan").await;
        let events = s.events(&mut watch, 3).await;
        assert_eq!(kinds(&events), ["ADDED", "ADDED", "BOOKMARK"]);
        s.post(CONFIG_MAPS, labelled("c", json!({ "mine": "1" }))).only("/kind").await;
        s.events(&mut watch, 1).await;
    }

    async fn initial_events_require_bookmarks_and_a_version_match(s) {
        s.get("/api/v1/namespaces/{ns}/configmaps?watch=true&sendInitialEvents=true").expect(422).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan").expect(422).await;
    }

    async fn a_watch_ends_after_its_timeout(s) {
        let from = version(s).await;
        s.alias(&from, "{from}");
        let mut watch = s.watch("/api/v1/namespaces/{ns}/configmaps?watch=true&resourceVersion={from}&timeoutSeconds=1&labelSelector=mine").await;
        assert!(watch.ends().await, "the watch went on");
    }

    async fn a_watch_requires_a_valid_version(s) {
        s.get("/api/v1/namespaces/{ns}/configmaps?watch=true&resourceVersion=tomorrow").expect(500).await;
    }

    async fn a_table_can_be_watched(s) {
        s.post(CONFIG_MAPS, config_map("a")).only("/kind").await;
        // Without a version the watch starts with the existing objects, which do not change.
        s.get("/api/v1/namespaces/{ns}/configmaps?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Da").table()
            .without("/object/rows/0/object/metadata/managedFields").await;
    }

    async fn the_pods_of_all_namespaces_can_be_watched(s) {
        let list = s.get("/api/v1/pods?labelSelector=app%3D{id}").only("/kind").await;
        let from = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        s.alias(&from, "{from}");
        let mut watch = s.watch("/api/v1/pods?watch=true&labelSelector=app%3D{id}&resourceVersion={from}").await;
        let mut thing = pod("a");
        thing["metadata"]["labels"] = json!({ "app": "{id}" });
        s.post(PODS, thing).only("/kind").await;
        s.delete("/api/v1/namespaces/{ns}/pods/a?gracePeriodSeconds=0").only("/kind").await;
        let events = s.events(&mut watch, 3).await;
        assert_eq!(kinds(&events), ["ADDED", "MODIFIED", "DELETED"]);
    }

    async fn a_watch_can_be_requested_by_path(s) {
        s.post(CONFIG_MAPS, labelled("a", json!({ "mine": "1" }))).only("/kind").await;
        let mut watch = s.watch("/api/v1/watch/namespaces/{ns}/configmaps/a").await;
        s.events(&mut watch, 1).await;
    }
}
