//! Tasks: the catalogue, and tasks that are defined as data.

use http::Method;
use serde_json::json;

use crate::fixture::{TASK, TestServer, task};

fn path(task: &str) -> String {
    format!("/admin/maintenancetasks/{task}?api-version=admin")
}

#[tokio::test]
async fn a_task_is_stored_shown_versioned_and_deleted() {
    let server = TestServer::open().await;
    let made = server.put(&path(TASK), &task()).await.expect(201);
    assert_eq!((made.json()["version"].as_u64(), made.json()["source"].as_str()), (Some(1), Some("data")));
    // A repetition creates no new version.
    assert_eq!(server.put(&path(TASK), &task()).await.expect(200).json()["version"], 1);
    let mut other = task();
    other["title"] = "Waits".into();
    other["reason"] = "shorter".into();
    let changed = server.put(&path(TASK), &other).await.expect(200);
    assert_eq!(changed.json()["version"], 2);
    assert!(changed.json().get("reason").is_none());
    let by_name = server.get(&path("Wait-A-Moment")).await.expect(200);
    assert_eq!(by_name.json(), changed.json());
    assert_eq!(by_name.header("etag"), changed.header("etag"));

    let yaml = "name: from-yaml\ntitle: From YAML\nsteps:\n- uses: pause\n  with: {duration: 1s}\n";
    let id = "7f1d0a52-7a53-4a6b-9a0e-3a4f7a3b2c12";
    let headers = [("content-type", "application/yaml")];
    server.send(Method::PUT, &path(id), &headers, Some(yaml.into())).await.expect(201);
    let list = server.get("/admin/maintenancetasks?api-version=admin").await.expect(200).json();
    let names: Vec<_> =
        list["value"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(
        names.contains(&"from-yaml") && names.contains(&"wait-a-moment") && names.is_sorted(),
        "{names:?}"
    );
    assert!(list["value"].as_array().unwrap().iter().any(|it| it["source"] == "builtin"));

    assert_eq!(server.delete(&path(TASK)).await.expect(200).json(), json!({}));
    assert_eq!(server.delete(&path(TASK)).await.error().0, 404);
    assert_eq!(server.get(&path(TASK)).await.error().0, 404);
    server.close().await;
}

#[tokio::test]
async fn durations_of_a_task_come_back_exactly_as_they_were_given() {
    let server = TestServer::open().await;
    let step = json!({
        "name": "rest", "uses": "pause", "with": {"duration": "0060s"}, "timeout": "90m",
        "retry": {"attempts": 2, "backoff": "60s"},
        "undo": {"uses": "pause", "with": {"duration": "1s"}, "timeout": "120s"},
    });
    let sent = json!({"name": "rest", "title": "Rest", "timeLimit": "24h", "steps": [step]});
    let made = server.put(&path(TASK), &sent).await.expect(201).json();
    for shown in [&made, &server.get(&path(TASK)).await.expect(200).json()] {
        assert_eq!((&shown["timeLimit"], &shown["steps"]), (&sent["timeLimit"], &sent["steps"]));
    }
    let mut days = sent.clone();
    days["timeLimit"] = "1d".into();
    assert_eq!(server.put(&path(TASK), &days).await.expect(200).json()["timeLimit"], "1d");
    let unlimited =
        json!({"name": "rest", "title": "Rest", "steps": [{"uses": "pause", "with": {"duration": "1s"}}]});
    assert_eq!(server.put(&path(TASK), &unlimited).await.expect(200).json()["timeLimit"], "30m");
    server.close().await;
}

#[tokio::test]
async fn a_task_in_use_and_a_built_in_one_are_not_deleted() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let id = server.request_task("one", json!({})).await;
    let error = server.delete(&path(TASK)).await;
    assert_eq!(error.error().1, "Conflict");
    assert!(error.text.contains(&id.to_string()), "{}", error.text);
    server.post(&crate::fixture::manifest("one", &format!("{id}/cancel"))).await.expect(200);
    server.delete(&path(TASK)).await.expect(200);

    let builtin = planner::task::Catalogue::builtin();
    let first = builtin.list()[0];
    let mut named = task();
    for (method, body) in [(Method::PUT, Some(task())), (Method::DELETE, None)] {
        let body = body.map(|body| body.to_string().into());
        let found = server.send(method, &path(&first.id().to_string()), &[], body).await.error();
        assert_eq!(found, (400, "PropertyChangeNotAllowed".to_owned(), "id".to_owned()));
    }
    named["name"] = first.name().into();
    assert_eq!(server.put(&path(TASK), &named).await.error().2, "name");
    server.put(&path(TASK), &task()).await.expect(201);
    let other = "7f1d0a52-7a53-4a6b-9a0e-3a4f7a3b2c12";
    assert_eq!(
        server.put(&path(other), &task()).await.error(),
        (409, "Conflict".to_owned(), "name".to_owned())
    );
    server.close().await;
}

/// Each of these would block or crash the process, or redirect a request, if it were accepted.
#[tokio::test]
async fn a_harmful_task_is_rejected_with_its_member() {
    let server = TestServer::open().await;
    let refused = async |step: serde_json::Value, parameters: serde_json::Value| {
        let mut harmful = task();
        harmful["steps"] = json!([step]);
        harmful["parameters"] = parameters;
        let answer = server.put(&path(TASK), &harmful).await;
        assert_eq!(answer.error().1, "InvalidParameter", "{}", answer.text);
        (answer.error().0, answer.error().2, answer.text.clone())
    };
    let pause = json!({"uses": "pause", "with": {"duration": "1s"}});
    let mut parts = serde_json::Map::new();
    for level in 0..19 {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        parts.insert(format!("l{level}"), json!({"anyOf": [next, next]}));
    }
    parts.insert("l19".to_owned(), json!({"type": "integer"}));
    let schema = json!({"type": "object", "$defs": parts, "properties": {"p": {"$ref": "#/$defs/l0"}}});
    let (status, place, text) = refused(pause, schema).await;
    assert_eq!((status, place.as_str()), (400, "parameters"));
    assert!(text.contains("refer to each other so often"), "{text}");

    let assert = json!({"uses": "assert", "with": {"that": "!'a'.matches('\\\\pL{100}')"}});
    let (status, place, text) = refused(assert, json!({"type": "object"})).await;
    assert_eq!((status, place.as_str()), (400, "steps[0].with.that"));
    assert!(text.contains("a pattern that is too large"), "{text}");

    let with = json!({"apiVersion": "../x", "kind": "Pod", "namespace": "a", "name": "b"});
    let delete = json!({"uses": "kubernetes/delete", "with": with});
    let (status, place, _) = refused(delete, json!({"type": "object"})).await;
    assert_eq!((status, place.as_str()), (400, "steps[0].with.apiVersion"));
    assert_eq!(server.get(&path(TASK)).await.error().0, 404, "nothing was stored");
    server.close().await;
}
