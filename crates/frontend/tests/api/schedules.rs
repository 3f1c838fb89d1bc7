//! Schedules: stored, shown, previewed, deleted, refused.

use api::doc::Manifest;
use http::Method;
use serde_json::{Value, json};
use store::AuditContext;
use uuid::Uuid;

use crate::fixture::{House, TASK, manifest, on_both, rid};

const SCHEDULES: &str = "/admin/maintenanceschedules?api-version=admin";

fn one(id: &str) -> String {
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
    on_both(|house| async move {
        house.furnish("one").await;
        let made = house.put(SCHEDULES, &schedule(json!({"reason": "every night"}))).await.expect(201);
        let shown = house.get(&one("Nightly")).await.expect(200);
        assert_eq!((shown.json(), shown.header("etag")), (made.json(), made.header("etag")));
        assert!(made.json().get("reason").is_none());
        assert_eq!(made.json()["schedule"], "*-*-* 02:00");
        // The same again changes nothing.
        let same = house.put(SCHEDULES, &schedule(json!({}))).await.expect(200);
        assert_eq!(same.header("etag"), made.header("etag"));
        let changed = house.put(SCHEDULES, &schedule(json!({"state": "Disabled"}))).await.expect(200);
        assert_ne!(changed.header("etag"), made.header("etag"));
        let stale = house
            .ask(
                Method::PUT,
                SCHEDULES,
                &[("if-match", made.header("etag"))],
                Some(schedule(json!({})).to_string().into()),
            )
            .await;
        assert_eq!(stale.refusal().1, "PreconditionFailed");
        // One without id gets a new one.
        let other = house.put(SCHEDULES, &schedule(json!({"id": null}))).await.expect(201).json();
        assert!(Uuid::try_parse(other["id"].as_str().unwrap()).is_ok());
        let page = house.get(&format!("{SCHEDULES}&limit=1")).await.expect(200).json();
        let next = page["nextLink"].as_str().unwrap().strip_prefix(&house.url).unwrap().to_owned();
        let rest = house.get(&next).await.expect(200).json();
        let mut ids = vec![page["value"][0]["id"].clone(), rest["value"][0]["id"].clone()];
        ids.sort_by_key(Value::to_string);
        let mut expect = vec![json!("nightly"), other["id"].clone()];
        expect.sort_by_key(Value::to_string);
        assert_eq!(ids, expect);

        assert_eq!(house.delete(&one("nightly")).await.expect(200).json(), json!({}));
        for reply in [house.delete(&one("nightly")).await, house.get(&one("nightly")).await] {
            assert_eq!(reply.refusal().1, "NotFound");
        }
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn durations_come_back_exactly_as_they_were_given() {
    on_both(|house| async move {
        house.furnish("one").await;
        let mut etags = Vec::new();
        for across in ["24h", "1d", "24h0m0s", "1440m", "86400s"] {
            let sent = schedule(json!({"scheduleAcross": across, "startWithin": "90m"}));
            let put = house.put(SCHEDULES, &sent).await;
            let again = house.put(SCHEDULES, &sent).await.expect(200);
            assert_eq!(put.header("etag"), again.header("etag"), "the same again changes nothing");
            for shown in [put.json(), again.json(), house.get(&one("nightly")).await.expect(200).json()] {
                assert_eq!(
                    (&shown["scheduleAcross"], &shown["startWithin"]),
                    (&json!(across), &json!("90m"))
                );
            }
            etags.push(again.header("etag").to_owned());
        }
        etags.dedup();
        assert_eq!(etags.len(), 5, "another spelling is stored");
        let plain = house.put(SCHEDULES, &schedule(json!({"id": "plain", "scheduleAcross": null}))).await;
        let shown = plain.expect(201).json();
        assert_eq!((&shown["scheduleAcross"], &shown["startWithin"]), (&json!("0s"), &json!("1h")));
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_calendar_that_never_fires_again_is_refused_and_a_stored_one_can_be_disabled() {
    on_both(|house| async move {
        house.furnish("one").await;
        let preview = "/admin/maintenanceschedules/preview?api-version=admin";
        for state in ["Enabled", "Disabled"] {
            let sent = schedule(json!({"schedule": "2025-*-* 00:00", "state": state}));
            let put = house.put(SCHEDULES, &sent).await;
            let shown = house.ask(Method::POST, preview, &[], Some(sent.to_string().into())).await;
            for reply in [put, shown] {
                let expect = (400, "InvalidParameter".to_owned(), "schedule".to_owned());
                assert_eq!(reply.refusal(), expect, "{state}");
                let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
                assert!(message.contains("\"2025-*-* 00:00\", which never fires after "), "{message}");
            }
        }
        assert_eq!(house.get(&one("nightly")).await.refusal().0, 404, "nothing was stored");
        // As an earlier release has stored it.
        house.put(SCHEDULES, &schedule(json!({}))).await.expect(201);
        let read = house.store.schedules().find("/maintenanceschedules/nightly").await.unwrap().unwrap();
        let spent = api::doc::Schedule {
            calendars: vec!["2025-*-* 00:00".to_owned()],
            schedule_across: "1d".to_owned(),
            ..read.document.clone()
        };
        house.store.schedules().update(&read, &spent, &AuditContext::service("earlier")).await.unwrap();
        let shown = house.get(&one("nightly")).await.expect(200).json();
        assert_eq!((&shown["schedule"], &shown["scheduleAcross"]), (&json!("2025-*-* 00:00"), &json!("1d")));
        let enabled = schedule(json!({"schedule": "2025-*-* 00:00"}));
        assert_eq!(house.put(SCHEDULES, &enabled).await.refusal().2, "schedule");
        let disabled = schedule(json!({"schedule": "2025-*-* 00:00", "state": "Disabled"}));
        assert_eq!(house.put(SCHEDULES, &disabled).await.expect(200).json()["state"], "Disabled");
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_deleted_schedules_waiting_work_goes_with_it_unless_it_is_kept() {
    let house = House::open().await;
    house.furnish("one").await;
    let cluster = house.store.clusters().find(&rid("one")).await.unwrap().unwrap();
    let now = api::clock::Clock::now(&api::clock::SystemClock);
    for (pending, state) in [("cancel", "Cancelled"), ("keep", "Pending")] {
        house.put(SCHEDULES, &schedule(json!({}))).await.expect(201);
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
        house.store.manifests().create(&made, &AuditContext::service("scheduler")).await.unwrap();
        assert_eq!(house.delete(&format!("{}&pending=maybe", one("nightly"))).await.refusal().2, "pending");
        house.delete(&format!("{}&pending={pending}", one("nightly"))).await.expect(200);
        let shown = house.get(&manifest("one", &planned.id.to_string())).await.expect(200).json();
        assert_eq!(shown["state"], state);
    }
    house.close().await;
}

#[tokio::test]
async fn a_preview_shows_what_would_be_made_and_stores_nothing() {
    let house = House::open().await;
    house.furnish("one").await;
    house.furnish("two").await;
    let place = house.store.feed_end().await.unwrap();
    let path =
        "/admin/maintenanceschedules/preview?api-version=admin&count=3&clusters=1&now=2030-01-01T00:00:00Z";
    let body = Some(schedule(json!({"state": null, "id": null, "scheduleAcross": "0s"})).to_string().into());
    let shown = house.ask(Method::POST, path, &[], body).await.expect(200).json();
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
        let found = house.ask(Method::POST, &path, &[], body).await.refusal();
        assert_eq!(found, (400, "InvalidParameter".to_owned(), target.to_owned()));
    }
    assert_eq!(house.store.feed_end().await.unwrap(), place);
    house.close().await;
}

#[tokio::test]
async fn a_schedule_that_nobody_can_have_meant_is_refused_by_its_member() {
    let house = House::open().await;
    house.furnish("one").await;
    let place = house.store.feed_end().await.unwrap();
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
        let reply = house.put(SCHEDULES, &schedule(changes.clone())).await;
        if reply.refusal() != (400, "InvalidParameter".to_owned(), target.to_owned()) {
            wrong.push(format!("{changes}: expected {target}, found {}", reply.text));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(house.store.feed_end().await.unwrap(), place, "something was stored");

    house.put(SCHEDULES, &schedule(json!({}))).await.expect(201);
    let other = planner::task::Catalogue::builtin().list()[0].id();
    let task = json!({"maintenanceTaskID": other, "parameters": {}});
    let refusal = house.put(SCHEDULES, &schedule(task)).await.refusal();
    assert!(refusal.1 == "PropertyChangeNotAllowed" || refusal.2.starts_with("parameters"), "{refusal:?}");
    // A task that an enabled schedule uses is not deleted.
    let path = format!("/admin/maintenancetasks/{TASK}?api-version=admin");
    assert_eq!(house.delete(&path).await.refusal().1, "Conflict");
    house.put(SCHEDULES, &schedule(json!({"state": "Disabled"}))).await.expect(200);
    house.delete(&path).await.expect(200);
    house.close().await;
}
