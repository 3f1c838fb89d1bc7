//! Schedules: stored, shown, previewed, deleted, rejected.

use api::doc::Manifest;
use http::Method;
use serde_json::{Value, json};
use store::AuditContext;
use uuid::Uuid;

use crate::fixture::{TASK, TestServer, manifest, on_both, rid};

const SCHEDULES: &str = "/admin/maintenanceschedules?api-version=admin";

fn schedule_path(id: &str) -> String {
    format!("/admin/maintenanceschedules/{id}?api-version=admin")
}

/// A schedule with some members changed; null removes one.
fn schedule(changes: Value) -> Value {
    let mut body = json!({
        "id": "nightly", "state": "Enabled", "maintenanceTaskID": TASK, "schedule": "*-*-* 02:00",
        "lookForwardCount": 2, "scheduleAcross": "1h",
        "selectors": [{"key": "subscriptionState", "operator": "notin", "values": ["Suspended"]}],
    });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(body.as_object_mut().unwrap().remove(name)),
            value => body[name] = value.clone(),
        }
    }
    body
}

#[tokio::test]
async fn a_schedule_is_stored_listed_changed_and_deleted() {
    on_both(|server| async move {
        server.prepare("one").await;
        let made = server.put(SCHEDULES, &schedule(json!({"reason": "every night"}))).await.expect(201);
        let shown = server.get(&schedule_path("Nightly")).await.expect(200);
        assert_eq!((shown.json(), shown.header("etag")), (made.json(), made.header("etag")));
        assert!(made.json().get("reason").is_none());
        assert_eq!(made.json()["schedule"], "*-*-* 02:00");
        // A repetition changes nothing.
        let same = server.put(SCHEDULES, &schedule(json!({}))).await.expect(200);
        assert_eq!(same.header("etag"), made.header("etag"));
        let changed = server.put(SCHEDULES, &schedule(json!({"state": "Disabled"}))).await.expect(200);
        assert_ne!(changed.header("etag"), made.header("etag"));
        let stale = server
            .send(
                Method::PUT,
                SCHEDULES,
                &[("if-match", made.header("etag"))],
                Some(schedule(json!({})).to_string().into()),
            )
            .await;
        assert_eq!(stale.error().1, "PreconditionFailed");
        // A schedule without an id gets a new one.
        let other = server.put(SCHEDULES, &schedule(json!({"id": null}))).await.expect(201).json();
        assert!(Uuid::try_parse(other["id"].as_str().unwrap()).is_ok());
        let page = server.get(&format!("{SCHEDULES}&limit=1")).await.expect(200).json();
        let next = page["nextLink"].as_str().unwrap().strip_prefix(&server.url).unwrap().to_owned();
        let rest = server.get(&next).await.expect(200).json();
        let mut ids = vec![page["value"][0]["id"].clone(), rest["value"][0]["id"].clone()];
        ids.sort_by_key(Value::to_string);
        let mut expect = vec![json!("nightly"), other["id"].clone()];
        expect.sort_by_key(Value::to_string);
        assert_eq!(ids, expect);

        assert_eq!(server.delete(&schedule_path("nightly")).await.expect(200).json(), json!({}));
        for reply in
            [server.delete(&schedule_path("nightly")).await, server.get(&schedule_path("nightly")).await]
        {
            assert_eq!(reply.error().1, "NotFound");
        }
        server.close().await;
    })
    .await;
}

#[tokio::test]
async fn durations_come_back_exactly_as_they_were_given() {
    on_both(|server| async move {
        server.prepare("one").await;
        let mut etags = Vec::new();
        for across in ["24h", "1d", "24h0m0s", "1440m", "86400s"] {
            let sent = schedule(json!({"scheduleAcross": across, "startWithin": "90m"}));
            let put = server.put(SCHEDULES, &sent).await;
            let again = server.put(SCHEDULES, &sent).await.expect(200);
            assert_eq!(put.header("etag"), again.header("etag"), "the same again changes nothing");
            for shown in
                [put.json(), again.json(), server.get(&schedule_path("nightly")).await.expect(200).json()]
            {
                assert_eq!(
                    (&shown["scheduleAcross"], &shown["startWithin"]),
                    (&json!(across), &json!("90m"))
                );
            }
            etags.push(again.header("etag").to_owned());
        }
        etags.dedup();
        assert_eq!(etags.len(), 5, "another spelling is stored");
        let plain = server.put(SCHEDULES, &schedule(json!({"id": "plain", "scheduleAcross": null}))).await;
        let shown = plain.expect(201).json();
        assert_eq!((&shown["scheduleAcross"], &shown["startWithin"]), (&json!("0s"), &json!("1h")));
        server.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_calendar_without_a_future_time_is_rejected_and_a_stored_one_can_be_disabled() {
    on_both(|server| async move {
        server.prepare("one").await;
        let preview = "/admin/maintenanceschedules/preview?api-version=admin";
        for state in ["Enabled", "Disabled"] {
            let sent = schedule(json!({"schedule": "2025-*-* 00:00", "state": state}));
            let put = server.put(SCHEDULES, &sent).await;
            let shown = server.send(Method::POST, preview, &[], Some(sent.to_string().into())).await;
            for reply in [put, shown] {
                let expect = (400, "InvalidParameter".to_owned(), "schedule".to_owned());
                assert_eq!(reply.error(), expect, "{state}");
                let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
                assert!(message.contains("\"2025-*-* 00:00\", which never fires after "), "{message}");
            }
        }
        assert_eq!(server.get(&schedule_path("nightly")).await.error().0, 404, "nothing was stored");
        // As an earlier release stored it.
        server.put(SCHEDULES, &schedule(json!({}))).await.expect(201);
        let read = server.store.schedules().find("/maintenanceschedules/nightly").await.unwrap().unwrap();
        let spent = api::doc::Schedule {
            calendars: vec!["2025-*-* 00:00".to_owned()],
            schedule_across: "1d".to_owned(),
            ..read.document.clone()
        };
        server.store.schedules().update(&read, &spent, &AuditContext::service("earlier")).await.unwrap();
        let shown = server.get(&schedule_path("nightly")).await.expect(200).json();
        assert_eq!((&shown["schedule"], &shown["scheduleAcross"]), (&json!("2025-*-* 00:00"), &json!("1d")));
        let enabled = schedule(json!({"schedule": "2025-*-* 00:00"}));
        assert_eq!(server.put(SCHEDULES, &enabled).await.error().2, "schedule");
        let disabled = schedule(json!({"schedule": "2025-*-* 00:00", "state": "Disabled"}));
        assert_eq!(server.put(SCHEDULES, &disabled).await.expect(200).json()["state"], "Disabled");
        server.close().await;
    })
    .await;
}

#[tokio::test]
async fn deleting_a_schedule_cancels_its_pending_manifests_unless_they_are_kept() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let cluster = server.store.clusters().find(&rid("one")).await.unwrap().unwrap();
    let now = api::clock::Clock::now(&api::clock::SystemClock);
    for (pending, state) in [("cancel", "Cancelled"), ("keep", "Pending")] {
        server.put(SCHEDULES, &schedule(json!({}))).await.expect(201);
        let planned = Manifest {
            id: Uuid::now_v7(),
            cluster: cluster.uuid,
            cluster_path: rid("one").to_lowercase(),
            task_id: TASK.parse().unwrap(),
            created_by_schedule: Some("nightly".to_owned()),
            priority: 0,
            run_after: now + jiff::SignedDuration::from_hours(1),
            run_before: now + jiff::SignedDuration::from_hours(2),
            parameters: serde_json::Map::new(),
            created_by: "service:scheduler".to_owned(),
            status_text: String::new(),
        };
        let made = [(planned.clone(), Vec::new())];
        server.store.manifests().create(&made, &AuditContext::service("scheduler")).await.unwrap();
        assert_eq!(
            server.delete(&format!("{}&pending=maybe", schedule_path("nightly"))).await.error().2,
            "pending"
        );
        server.delete(&format!("{}&pending={pending}", schedule_path("nightly"))).await.expect(200);
        let shown = server.get(&manifest("one", &planned.id.to_string())).await.expect(200).json();
        assert_eq!(shown["state"], state);
    }
    server.close().await;
}

#[tokio::test]
async fn a_preview_shows_the_manifests_and_stores_nothing() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    server.prepare("two").await;
    let place = server.store.feed_end().await.unwrap();
    let path =
        "/admin/maintenanceschedules/preview?api-version=admin&count=3&clusters=1&now=2030-01-01T00:00:00Z";
    let body = Some(schedule(json!({"state": null, "id": null, "scheduleAcross": "0s"})).to_string().into());
    let shown = server.send(Method::POST, path, &[], body).await.expect(200).json();
    assert_eq!(
        shown["periods"],
        json!(["2030-01-01T02:00:00Z", "2030-01-02T02:00:00Z", "2030-01-03T02:00:00Z"])
    );
    assert_eq!((shown["matched"].as_u64(), shown["of"].as_u64()), (Some(2), Some(2)));
    assert_eq!(shown["clusters"].as_array().unwrap().len(), 1);
    assert_eq!(shown["clusters"][0]["runAfter"].as_array().unwrap().len(), 3);
    for (query, target) in
        [("count=0", "count"), ("count=x", "count"), ("clusters=100000", "clusters"), ("now=noon", "now")]
    {
        let path = format!("/admin/maintenanceschedules/preview?api-version=admin&{query}");
        let body = Some(schedule(json!({})).to_string().into());
        let found = server.send(Method::POST, &path, &[], body).await.error();
        assert_eq!(found, (400, "InvalidParameter".to_owned(), target.to_owned()));
    }
    assert_eq!(server.store.feed_end().await.unwrap(), place);
    server.close().await;
}

#[tokio::test]
async fn an_invalid_schedule_is_rejected_with_its_member() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let place = server.store.feed_end().await.unwrap();
    let mut wrong = Vec::new();
    let cases = [
        (json!({"maintenanceTaskID": "9b741734-6505-447f-8510-85eb0ae561ff"}), "maintenanceTaskID"),
        (json!({"maintenanceTaskID": null}), "maintenanceTaskID"),
        (json!({"state": null}), "state"),
        (json!({"state": "enabled?"}), "state"),
        (json!({"schedule": null}), "schedule"),
        (json!({"schedule": "every day"}), "schedule"),
        (json!({"schedule": "*-2-30 00:00"}), "schedule"),
        (json!({"schedule": "2020-*-* 00:00"}), "schedule"),
        (json!({"schedule": "2025-*-* 00:00", "state": "Disabled"}), "schedule"),
        (json!({"schedule": null, "calendars": ["*-*-* 02:00", "2025-*-* 00:00"]}), "calendars[1]"),
        (json!({"schedule": "*-*-* *:*"}), "schedule"),
        (json!({"scheduleAcross": "-1h"}), "scheduleAcross"),
        (json!({"scheduleAcross": "25h"}), "scheduleAcross"),
        (json!({"scheduleAcross": "long"}), "scheduleAcross"),
        (json!({"lookForwardCount": -1}), "lookForwardCount"),
        (json!({"timeZone": "Mars/Olympus"}), "timeZone"),
        (json!({"missedPolicy": "weep"}), "missedPolicy"),
        (json!({"spreadBy": "luck"}), "spreadBy"),
        (json!({"startWithin": "-5m"}), "startWithin"),
        (json!({"priority": 1e20}), "priority"),
        (json!({"selectors": []}), "selectors"),
        (json!({"selectors": [{"key": "colour", "operator": "eq", "value": "x"}]}), "selectors[0].key"),
        (json!({"selectors": [{"key": "name", "operator": "like", "value": "x"}]}), "selectors[0].operator"),
        (json!({"selectors": [{"key": "name", "operator": "eq", "values": ["x"]}]}), "selectors[0].values"),
        (json!({"parameters": {"wide": 1}}), "parameters.wide"),
        (json!({"id": "Up/Down"}), "id"),
        (json!({"id": "x".repeat(500)}), "id"),
        (json!({"unknown": 1}), "unknown"),
    ];
    for (changes, target) in cases {
        let reply = server.put(SCHEDULES, &schedule(changes.clone())).await;
        if reply.error() != (400, "InvalidParameter".to_owned(), target.to_owned()) {
            wrong.push(format!("{changes}: expected {target}, found {}", reply.text));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(server.store.feed_end().await.unwrap(), place, "something was stored");

    server.put(SCHEDULES, &schedule(json!({}))).await.expect(201);
    let other = planner::task::Catalogue::builtin().list()[0].id();
    let task = json!({"maintenanceTaskID": other, "parameters": {}});
    let error = server.put(SCHEDULES, &schedule(task)).await.error();
    assert!(error.1 == "PropertyChangeNotAllowed" || error.2.starts_with("parameters"), "{error:?}");
    // A task that an enabled schedule uses is not deleted.
    let path = format!("/admin/maintenancetasks/{TASK}?api-version=admin");
    assert_eq!(server.delete(&path).await.error().1, "Conflict");
    server.put(SCHEDULES, &schedule(json!({"state": "Disabled"}))).await.expect(200);
    server.delete(&path).await.expect(200);
    server.close().await;
}
