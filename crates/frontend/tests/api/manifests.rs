//! Manifests in the form of MIMO, and the additions to it.

use std::time::Duration;

use api::doc::{Cluster, Manifest};
use api::work::{Ending, WorkKind};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use store::{AuditContext, Completion, Release};
use uuid::Uuid;

use crate::fixture::{TASK, TestServer, admin, manifest, manifests, on_both, rid};

fn now() -> Timestamp {
    api::clock::Clock::now(&api::clock::SystemClock)
}

#[tokio::test]
async fn a_manifest_has_the_form_of_mimo() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let body = json!({
        "maintenanceTaskID": TASK, "priority": -3, "parameters": {"long": "3s"}, "reason": "trial",
        "statusText": "until Friday",
        // Members that only the server sets are ignored.
        "id": Uuid::nil(), "state": "Completed", "createdBySchedule": "y", "clusterResourceID": "z",
    });
    let before = now().as_second();
    let made = server.put(&manifests("One"), &body).await.expect(201).json();
    let id: Uuid = made["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(id.get_version_num(), 7);
    assert_eq!(
        (made["state"].as_str(), made["statusText"].as_str()),
        (Some("Pending"), Some("until Friday"))
    );
    assert_eq!((made["createdBySchedule"].as_str(), made["priority"].as_i64()), (Some(""), Some(-3)));
    assert!(made.get("clusterResourceID").is_none());
    let run_after = made["runAfter"].as_i64().unwrap();
    assert!((before..=now().as_second()).contains(&run_after));
    assert_eq!(made["runBefore"].as_i64().unwrap() - run_after, 7 * 24 * 60 * 60);
    let ours = [
        "phase",
        "reason",
        "attempt",
        "maxAttempts",
        "createdAt",
        "createdBy",
        "taskName",
        "taskVersion",
        "parameters",
    ];
    assert!(ours.iter().all(|name| made.get(name).is_some()), "{made}");
    assert_eq!((made["phase"].as_str(), made["taskName"].as_str()), (Some("queued"), Some("wait-a-moment")));

    assert_eq!(server.get(&manifest("one", &id.to_string())).await.expect(200).json(), made);
    assert_eq!(server.get(&manifest("ONE", &id.to_string().to_uppercase())).await.expect(200).json(), made);
    let list = server.get(&manifests("one")).await.expect(200).json();
    assert_eq!(list, json!({"value": [made], "nextLink": ""}));
    let queued = server.get("/admin/maintenancemanifests/queued?api-version=admin").await.expect(200).json();
    assert_eq!(queued["value"][0]["clusterResourceID"], rid("one").to_lowercase());

    let history = server.get(&manifest("one", &format!("{id}/history"))).await.expect(200).json();
    assert_eq!(history["value"][0]["event"], "created");
    assert_eq!(history["value"][0]["message"], "trial");
    assert!(history["value"][0]["correlationId"].is_string());
    server.close().await;
}

#[tokio::test]
async fn a_dry_run_returns_the_manifest_and_stores_nothing() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let place = server.store.feed_end().await.unwrap();
    let path = format!("{}&dryRun=true", manifests("one"));
    let shown = server.put(&path, &json!({"maintenanceTaskID": TASK})).await.expect(200).json();
    assert_eq!((shown["state"].as_str(), shown["phase"].as_str()), (Some("Pending"), Some("queued")));
    let refused = server.put(&path, &json!({"maintenanceTaskID": TASK, "parameters": {"long": "x"}})).await;
    assert_eq!(refused.error().2, "parameters.long");
    assert_eq!(server.store.feed_end().await.unwrap(), place);
    server.close().await;
}

#[tokio::test]
async fn missing_resources_are_not_found() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    server.prepare("two").await;
    let id = server.request_task("one", json!({})).await;
    let check = async |method: Method, path: &str, message: &str| {
        let reply = server.send(method.clone(), path, &[], None).await;
        assert_eq!(reply.error(), (404, "NotFound".to_owned(), String::new()), "{method} {path}");
        assert_eq!(reply.json()["error"]["message"], message, "{method} {path}");
    };
    check(Method::GET, &manifests("three"), "cluster not found").await;
    for other in [Uuid::nil().to_string(), "nonsense".to_owned(), format!("%7b{id}%7d"), "%00".to_owned()] {
        check(Method::GET, &manifest("one", &other), "manifest not found").await;
        check(Method::DELETE, &manifest("one", &other), "manifest not found").await;
    }
    let path = id.to_string();
    check(Method::GET, &manifest("two", &path), "manifest not found").await;
    check(Method::DELETE, &manifest("two", &path), "manifest not found").await;
    check(Method::POST, &manifest("two", &format!("{path}/cancel")), "manifest not found").await;
    check(Method::POST, &manifest("three", &format!("{path}/cancel")), "cluster not found").await;

    // A cluster that is being deleted accepts no new manifests, but its manifests can be deleted.
    let read = server.store.clusters().find(&rid("one")).await.unwrap().unwrap();
    let leaving =
        Cluster { provisioning_state: api::doc::ProvisioningState::Deleting, ..read.document.clone() };
    server.store.clusters().update(&read, &leaving, &AuditContext::service("test")).await.unwrap();
    check(Method::GET, &manifests("one"), "cluster being deleted").await;
    check(Method::GET, &manifest("one", &path), "cluster being deleted").await;
    let refused = server.put(&manifests("one"), &json!({"maintenanceTaskID": TASK})).await;
    assert_eq!(refused.error().1, "NotFound");
    assert_eq!(server.delete(&manifest("one", &path)).await.expect(200).json(), json!({}));
    check(Method::DELETE, &manifest("one", &path), "manifest not found").await;
    server.close().await;
}

#[tokio::test]
async fn a_manifest_of_any_cluster_is_found_by_its_id_or_a_prefix_of_it() {
    on_both(|server| async move {
        server.prepare("one").await;
        server.prepare("two").await;
        let any = |id: &str| format!("/admin/maintenancemanifests/{id}?api-version=admin");
        // An id begins with its time, of which the first eight characters change about once a minute.
        let (first, second, common) = loop {
            let first = server.request_task("one", json!({})).await.to_string();
            let second = server.request_task("two", json!({})).await.to_string();
            let common = first.bytes().zip(second.bytes()).take_while(|(one, other)| one == other).count();
            if common >= 8 {
                break (first, second, common);
            }
        };
        for (id, cluster) in [(&first, "one"), (&second, "two")] {
            let mut expect = server.get(&manifest(cluster, id)).await.expect(200).json();
            expect["clusterResourceID"] = rid(cluster).to_lowercase().into();
            for asked in [id.clone(), id.to_uppercase(), id[..common + 1].to_owned()] {
                assert_eq!(server.get(&any(&asked)).await.expect(200).json(), expect, "{asked}");
            }
        }
        let several = server.get(&any(&first[..common])).await;
        assert_eq!(several.error(), (400, "InvalidParameter".to_owned(), "manifestId".to_owned()));
        let nil = Uuid::nil().to_string();
        for other in [
            &nil,
            &first[..7],
            "nonsense",
            "%7b",
            "%00%00%00%00%00%00%00%00",
            "--------",
            "%25%25%25%25%25%25%25%25",
        ] {
            let reply = server.get(&any(other)).await;
            assert_eq!(reply.error(), (404, "NotFound".to_owned(), String::new()), "{other}");
        }
        let unversioned = server.get(&format!("/admin/maintenancemanifests/{first}")).await;
        assert_eq!(unversioned.error().1, "InvalidApiVersionParameter");
        server.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_manifest_is_cancelled_in_each_state_as_in_mimo_and_a_running_one_on_request() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let cancel = async |id: Uuid| {
        let body = Some(json!({"reason": "not now"}).to_string().into());
        server.send(Method::POST, &manifest("one", &format!("{id}/cancel")), &[], body).await
    };
    let refused = async |id: Uuid, state: &str| {
        let reply = cancel(id).await;
        assert_eq!(reply.error(), (406, "PropertyChangeNotAllowed".to_owned(), String::new()));
        assert_eq!(reply.json()["error"]["message"], format!("cannot cancel task in state {state}"));
        let expedite = server.post(&manifest("one", &format!("{id}/expedite"))).await;
        assert_eq!(expedite.error().0, 406);
    };
    let waiting = server.request_task("one", json!({"runAfter": now().as_second() + 3600})).await;
    let next = server.post(&manifest("one", &format!("{waiting}/expedite"))).await.expect(200).json();
    assert_eq!(next["runAfter"], 0);
    let ended = cancel(waiting).await.expect(200).json();
    assert_eq!((ended["state"].as_str(), ended["phase"].as_str()), (Some("Cancelled"), Some("finished")));
    refused(waiting, "Cancelled").await;

    let endings = [
        (Ending::Completed, "Completed"),
        (Ending::Failed, "Failed"),
        (Ending::RetriesExceeded, "RetriesExceeded"),
        (Ending::Cancelled, "Cancelled"),
    ];
    for (ending, state) in endings {
        let id = server.request_task("one", json!({})).await;
        let owner = Uuid::now_v7();
        let claimed = server.store.claim(WorkKind::Manifest, 1, owner).await.unwrap().pop().unwrap();
        assert_eq!(claimed.lease.work, id);
        assert_eq!(server.get(&manifest("one", &id.to_string())).await.json()["phase"], "running");
        assert_eq!(server.delete(&manifest("one", &id.to_string())).await.error().0, 409);
        let forget = server.delete(&format!("{}/import", admin("one"))).await;
        assert_eq!(forget.error().1, "Conflict");
        let asked = cancel(id).await.expect(202).json();
        assert_eq!(
            (asked["state"].as_str(), asked["phase"].as_str()),
            (Some("InProgress"), Some("cancelling"))
        );
        let result = json!({"code": "Done", "message": format!("it ended as {state}")});
        server.store.complete(&[Completion::new(claimed.lease, ending, result)]).await.unwrap();
        refused(id, state).await;
        let shown = server.get(&manifest("one", &id.to_string())).await.expect(200).json();
        assert_eq!(shown["statusText"], format!("it ended as {state}"));
        assert_eq!((shown["state"].as_str(), shown["reason"].as_str()), (Some(state), Some("Done")));
        assert!(shown["startedAt"].is_string() && shown["finishedAt"].is_string());
    }
    server.close().await;
}

#[tokio::test]
async fn a_started_manifest_is_not_deleted_nor_its_cluster_forgotten_before_it_is_finished() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let id = server.request_task("one", json!({})).await;
    let held = server.store.claim(WorkKind::Manifest, 1, Uuid::now_v7()).await.unwrap()[0].lease;
    let rest = Release::new(held, Duration::from_secs(3600), true);
    let rest = Release { started: true, checkpoint: Some(("half".to_owned(), json!({}))), ..rest };
    server.store.release(rest).await.unwrap();
    let deleted = server.delete(&manifest("one", &id.to_string())).await;
    assert_eq!((deleted.error().0, deleted.error().1), (409, "Conflict".to_owned()));
    let expect = "The manifest has begun; cancel it and wait for its end before it is deleted.";
    assert_eq!(deleted.json()["error"]["message"], expect);
    let forget = server.delete(&format!("{}/import", admin("one"))).await;
    assert_eq!(forget.error().0, 409);
    let expect = format!("Work {id} has begun on the cluster; cancel it or wait for its end.");
    assert_eq!(forget.json()["error"]["message"], expect);
    assert_eq!(server.get(&manifest("one", &id.to_string())).await.expect(200).json()["state"], "Pending");

    // It is claimed to undo its steps; afterwards both can be deleted.
    server.post(&manifest("one", &format!("{id}/cancel"))).await.expect(202);
    let held = server.store.claim(WorkKind::Manifest, 1, Uuid::now_v7()).await.unwrap()[0].lease;
    let undone = Completion::new(held, Ending::Cancelled, json!({"code": "Cancelled", "message": "undone"}));
    server.store.complete(&[undone]).await.unwrap();
    server.delete(&manifest("one", &id.to_string())).await.expect(200);
    server.delete(&format!("{}/import", admin("one"))).await.expect(200);
    server.close().await;
}

#[tokio::test]
async fn a_schedules_later_manifests_are_cancelled_together() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let cluster = server.store.clusters().find(&rid("one")).await.unwrap().unwrap();
    let planned = |hours: i64, schedule: &str| Manifest {
        id: Uuid::now_v7(),
        cluster: cluster.uuid,
        cluster_path: rid("one").to_lowercase(),
        task_id: TASK.parse().unwrap(),
        created_by_schedule: Some(schedule.to_owned()),
        priority: 0,
        run_after: now() + SignedDuration::from_hours(hours),
        run_before: now() + SignedDuration::from_hours(hours + 48),
        parameters: serde_json::Map::new(),
        created_by: "service:scheduler".to_owned(),
        status_text: String::new(),
    };
    let made: Vec<_> =
        [planned(-1, "weekly"), planned(1, "weekly"), planned(2, "weekly"), planned(1, "other")].into();
    let all: Vec<_> = made.iter().map(|it| (it.clone(), Vec::new())).collect();
    server.store.manifests().create(&all, &AuditContext::service("scheduler")).await.unwrap();
    let path = "/admin/maintenancemanifests/cancel?api-version=admin";
    assert_eq!(
        server.post(path).await.error(),
        (400, "InvalidParameter".to_owned(), "scheduleID".to_owned())
    );
    let done = server.post(&format!("{path}&scheduleID=Weekly&reason=holidays")).await.expect(200);
    assert_eq!(done.json(), json!({"cancelled": 2, "errors": 0}));
    let mut states = Vec::new();
    for manifest_ in &made {
        states.push(server.get(&manifest("one", &manifest_.id.to_string())).await.json()["state"].clone());
    }
    assert_eq!(states, ["Pending", "Cancelled", "Cancelled", "Pending"]);
    assert_eq!(server.post(&format!("{path}&scheduleID=weekly")).await.json()["cancelled"], 0);
    server.close().await;
}

#[tokio::test]
async fn the_plan_and_the_reasons_include_waiting_manifests() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let later = now().as_second() + 3600;
    let id = server.request_task("one", json!({"runAfter": later})).await;
    let why = server.get(&manifest("one", &format!("{id}/why"))).await.expect(200).json();
    assert_eq!(
        (why["manifest"].as_str(), why["verdict"].as_str()),
        (Some(id.to_string().as_str()), Some("blocked"))
    );
    let codes: Vec<_> =
        why["blockers"].as_array().unwrap().iter().map(|it| it["code"].as_str().unwrap()).collect();
    assert!(codes.contains(&"NotDue") && codes.contains(&"NoActuator"), "{codes:?}");
    let nobody = server.get(&manifest("one", &format!("{}/why", Uuid::now_v7()))).await;
    assert_eq!(nobody.error().1, "NotFound");

    let path = "/admin/maintenanceplan?api-version=admin";
    let plan = server.get(path).await.expect(200).json();
    assert_eq!(plan["entries"][0]["manifest"], id.to_string());
    assert_eq!(plan["entries"][0]["runAfter"], later);
    let second = server.request_task("one", json!({"runAfter": later + 10})).await;
    let first = server.get(&format!("{path}&limit=1")).await.expect(200).json();
    let next = first["nextLink"].as_str().unwrap().strip_prefix(&server.url).unwrap().to_owned();
    let rest = server.get(&next).await.expect(200).json();
    assert_eq!(rest["entries"][0]["manifest"], second.to_string());
    assert_eq!(rest["generatedAt"], first["generatedAt"]);
    let none = server.get(&format!("{path}&cluster={}", rid("two"))).await.expect(200).json();
    assert_eq!(none["entries"], json!([]));
    assert_eq!(server.get(&format!("{path}&horizon=1m")).await.expect(200).json()["entries"], json!([]));
    let named =
        server.get(&format!("{path}&task=wait-a-moment&cluster={}", rid("ONE"))).await.expect(200).json();
    assert_eq!(named["entries"].as_array().unwrap().len(), 2);
    assert_eq!(
        (named["runs"].as_u64(), named["total"].as_u64(), named["misses"].as_u64()),
        (Some(2), Some(2), Some(0))
    );
    let duration = &named["entries"][0]["duration"];
    assert_eq!(
        (duration["runs"].as_u64(), duration["confidence"].as_str()),
        (Some(0), Some("assumed")),
        "{named:#}"
    );
    let second_only = server.get(&format!("{path}&skip=1&groupBy=run")).await.expect(200).json();
    assert_eq!(second_only["entries"][0]["manifest"], second.to_string());
    assert_eq!(server.get(&format!("{path}&outcome=misses")).await.expect(200).json()["entries"], json!([]));
    for (query, target) in [
        ("groupBy=colour", "groupBy"),
        ("outcome=late", "outcome"),
        ("skip=-1", "skip"),
        ("horizon=0s", "horizon"),
        ("horizon=soon", "horizon"),
        ("horizon=100000d", "horizon"),
        ("cluster=one", "cluster"),
        ("task=nothing", "task"),
        ("limit=0", "limit"),
        ("$skipToken=1-x", "$skipToken"),
    ] {
        let found = server.get(&format!("{path}&{query}")).await.error();
        assert_eq!(found, (400, "InvalidParameter".to_owned(), target.to_owned()), "{query}");
    }
    server.close().await;
}

/// The ids on each page of a list.
async fn pages(server: &TestServer, path: &str) -> Vec<Vec<String>> {
    let (mut pages, mut path) = (Vec::new(), path.to_owned());
    loop {
        let page = server.get(&path).await.expect(200).json();
        let id = |item: &Value| item["id"].as_str().unwrap().to_owned();
        pages.push(page["value"].as_array().unwrap().iter().map(id).collect());
        match page["nextLink"].as_str().unwrap() {
            "" => return pages,
            next => path = next.strip_prefix(&server.url).unwrap().to_owned(),
        }
    }
}

#[tokio::test]
async fn lists_come_in_pages_without_gap_or_repetition() {
    on_both(|server| async move {
        for name in ["one", "two"] {
            server.prepare(name).await;
        }
        let mut ids = Vec::new();
        for number in 0..7 {
            let more = json!({"runAfter": now().as_second() + 1000 * number});
            ids.push(server.request_task(if number < 5 { "one" } else { "two" }, more).await.to_string());
        }
        let of_one = pages(&server, &format!("{}&limit=2", manifests("one"))).await;
        assert!(of_one.iter().all(|page| page.len() <= 2), "{of_one:?}");
        assert_eq!(of_one.concat(), ids[..5]);
        let queued = "/admin/maintenancemanifests/queued?api-version=admin";
        assert_eq!(pages(&server, &format!("{queued}&limit=3")).await.concat(), ids);
        assert_eq!(pages(&server, queued).await.len(), 1);
        // A running manifest is no longer queued.
        let claimed = server.store.claim(WorkKind::Manifest, 1, Uuid::now_v7()).await.unwrap();
        let left: Vec<String> =
            ids.iter().filter(|id| **id != claimed[0].lease.work.to_string()).cloned().collect();
        assert_eq!(pages(&server, &format!("{queued}&limit=1")).await.concat(), left);
        // The list of all manifests has it, each with its cluster.
        let all = "/admin/maintenancemanifests?api-version=admin";
        assert_eq!(pages(&server, &format!("{all}&limit=3")).await.concat(), ids);
        let listed = server.get(all).await.expect(200).json();
        let clusters: Vec<&str> = listed["value"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["clusterResourceID"].as_str().unwrap())
            .collect();
        let (one, two) = (rid("one").to_lowercase(), rid("two").to_lowercase());
        assert_eq!(clusters, [&one, &one, &one, &one, &one, &two, &two]);
        let clusters = "/admin/providers/microsoft.redhatopenshift/openshiftclusters?limit=1";
        assert_eq!(pages(&server, clusters).await.concat(), [rid("one"), rid("two")]);
        let history = server.get(&manifest("one", &format!("{}/history", ids[0]))).await.expect(200).json();
        assert_eq!(history["value"].as_array().unwrap().len(), 1);

        // The link uses the caller's URL only if a proxy reports it.
        let referer = format!("https://proxy.example{}&limit=2", manifests("ONE"));
        let path = format!("{}&limit=2", manifests("One"));
        let reply = server.send(Method::GET, &path, &[("referer", &referer)], None).await;
        assert!(reply.json()["nextLink"].as_str().unwrap().starts_with("https://proxy.example/admin/"));
        let reply = server.send(Method::GET, &path, &[("referer", "https://evil.example/x")], None).await;
        assert!(reply.json()["nextLink"].as_str().unwrap().starts_with(&server.url));
        // Nor a host that is not configured, even with the same path.
        let foreign = referer.replace("proxy.example", "evil.example");
        let reply = server.send(Method::GET, &path, &[("referer", &foreign)], None).await;
        assert!(reply.json()["nextLink"].as_str().unwrap().starts_with(&server.url), "{}", reply.text);
        server.close().await;
    })
    .await;
}

#[tokio::test]
async fn of_two_changes_of_the_same_version_one_is_rejected() {
    on_both(|server| async move {
        server.prepare("one").await;
        let labels = format!("{}/labels", admin("one"));
        let task = format!("/admin/maintenancetasks/{TASK}?api-version=admin");
        for round in 0..10 {
            let etag = server.get(&admin("one")).await.header("etag").to_owned();
            let write = |value: String| {
                let (server, labels, etag) = (&server, &labels, &etag);
                async move {
                    let body = json!({"round": value}).to_string().into();
                    server.send(Method::PUT, labels, &[("if-match", etag)], Some(body)).await.status.as_u16()
                }
            };
            let (a, b) = tokio::join!(write(format!("{round}-a")), write(format!("{round}-b")));
            let mut both = [a, b];
            both.sort_unstable();
            assert_eq!(both, [200, 412]);
        }
        // Without a precondition both succeed, one after the other.
        let (a, b) = (json!({"a": "1"}), json!({"b": "1"}));
        let (a, b) = tokio::join!(server.put(&labels, &a), server.put(&labels, &b));
        assert_eq!((a.status.as_u16(), b.status.as_u16()), (200, 200));
        let etag = server.get(&task).await.expect(200).header("etag").to_owned();
        let mut changed = crate::fixture::task();
        changed["title"] = "Another".into();
        let put = async |etag: &str, body: &Value| {
            server.send(Method::PUT, &task, &[("if-match", etag)], Some(body.to_string().into())).await
        };
        assert_eq!(put(&etag, &changed).await.expect(200).json()["version"], 2);
        changed["title"] = "A third".into();
        assert_eq!(put(&etag, &changed).await.error().1, "PreconditionFailed");
        server.close().await;
    })
    .await;
}
