//! The event stream: new events, continuation after an event, and relist when too many were missed.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::fixture::{TASK, TestServer, admin, manifest, on_both};

/// One open stream.
struct Stream {
    body: Incoming,
    text: String,
}

/// One event.
#[derive(Debug, Default, Clone)]
struct Event {
    id: String,
    event: String,
    data: String,
    comment: bool,
}

impl Event {
    fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

impl Stream {
    async fn open(server: &TestServer, query: &str, last: Option<&str>) -> Stream {
        let mut request = Request::builder().uri(format!("{}/admin/events{query}", server.url));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let response = server.http.request(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream { body: response.into_body(), text: String::new() }
    }

    /// The next event or comment; `None` at the end.
    async fn any(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let mut event = Event::default();
                for line in block.lines() {
                    match line.split_once(':') {
                        Some(("id", value)) => event.id = value.trim().to_owned(),
                        Some(("event", value)) => event.event = value.trim().to_owned(),
                        Some(("data", value)) => event.data = value.trim().to_owned(),
                        _ => event.comment = true,
                    }
                }
                self.text = rest.to_owned();
                return Some(event);
            }
            let frame = tokio::time::timeout(Duration::from_secs(30), self.body.frame()).await.unwrap()?;
            let bytes = frame.ok()?.into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// The next event, without comments.
    async fn next(&mut self) -> Option<Event> {
        loop {
            match self.any().await {
                Some(event) if event.data.is_empty() => {}
                other => return other,
            }
        }
    }
}

#[tokio::test]
async fn changes_are_streamed_and_continued_after_the_last_event() {
    on_both(follow).await;
}

async fn follow(server: TestServer) {
    let mut all = Stream::open(&server, "", None).await;
    let first = all.any().await.unwrap();
    assert!(first.comment && !first.id.is_empty(), "it says at once that it listens: {first:?}");
    server.prepare("one").await;
    let cluster = all.next().await.unwrap();
    assert_eq!((cluster.event.as_str(), cluster.json()["name"].as_str()), ("cluster", Some("one")));
    let task = all.next().await.unwrap();
    assert_eq!((task.event.as_str(), task.json()["id"].as_str()), ("task", Some(TASK)));

    let mut manifests = Stream::open(&server, "?topics=manifests", Some(&cluster.id)).await;
    let id = server.request_task("one", json!({})).await;
    let made = manifests.next().await.unwrap();
    assert_eq!(
        (made.event.as_str(), made.json()["id"].as_str()),
        ("manifest", Some(id.to_string().as_str()))
    );
    assert!(made.json()["clusterResourceID"].is_string());
    assert_eq!(made.json()["state"], "Pending");
    server.post(&manifest("one", &format!("{id}/cancel"))).await.expect(200);
    assert_eq!(manifests.next().await.unwrap().json()["state"], "Cancelled");
    server.delete(&manifest("one", &id.to_string())).await.expect(200);
    assert_eq!(manifests.next().await.unwrap().json(), json!({"id": id, "deleted": true}));

    // A client that reconnects with the id of an event misses nothing and gets no event twice.
    let mut again = Stream::open(&server, "?topics=manifests,clusters", Some(&cluster.id)).await;
    let last = again.next().await.unwrap();
    assert_eq!((last.event.as_str(), last.json()["deleted"].as_bool()), ("manifest", Some(true)));
    server.put(&format!("{}/labels", admin("one")), &json!({"a": "b"})).await.expect(200);
    assert_eq!(again.next().await.unwrap().json()["properties"]["labels"], json!({"a": "b"}));
    server.delete(&format!("{}/import", admin("one"))).await.expect(200);
    let forgotten = json!({"id": crate::fixture::rid("one").to_lowercase(), "deleted": true});
    assert_eq!(again.next().await.unwrap().json(), forgotten);
    let mut tasks = Stream::open(&server, "?topics=tasks", None).await;
    tasks.any().await.unwrap();
    server.delete(&format!("/admin/maintenancetasks/{TASK}?api-version=admin")).await.expect(200);
    assert_eq!(tasks.next().await.unwrap().json(), json!({"id": TASK, "deleted": true}));
    server.close().await;
}

#[tokio::test]
async fn a_status_change_is_an_event_of_the_schedule() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let mut stream = Stream::open(&server, "?topics=schedules", None).await;
    stream.any().await.unwrap();
    let body = json!({
        "id": "nightly", "state": "Enabled", "maintenanceTaskID": TASK, "schedule": "*-*-* 02:00",
        "selectors": [{"key": "name", "operator": "eq", "value": "one"}],
    });
    let path = "/admin/maintenanceschedules?api-version=admin";
    server.put(path, &body).await.expect(201);
    let made = stream.next().await.unwrap();
    assert_eq!((made.event.as_str(), made.json()["id"].as_str()), ("schedule", Some("nightly")));
    let status = api::admin::ScheduleStatus { matched: 1, ..Default::default() };
    let outlook = api::doc::ScheduleOutlook { schedule: "nightly".to_owned(), status, keep_pending: false };
    let by = store::AuditContext::service("scheduler");
    server.store.collection::<api::doc::ScheduleOutlook>().create(&outlook, &by).await.unwrap();
    let planned = stream.next().await.unwrap();
    assert_eq!((planned.event.as_str(), planned.json()["status"]["matched"].as_u64()), ("schedule", Some(1)));
    let shown = server.get("/admin/maintenanceschedules/nightly?api-version=admin").await.expect(200).json();
    assert_eq!(shown["status"]["matched"], 1);
    let listed = server.get(path).await.expect(200).json();
    assert_eq!(listed["value"][0], shown);
    server.delete("/admin/maintenanceschedules/nightly?api-version=admin").await.expect(200);
    let gone = stream.next().await.unwrap();
    assert_eq!(gone.json(), json!({"id": "nightly", "deleted": true}));
    server.close().await;
}

#[tokio::test]
async fn a_position_that_is_too_old_causes_a_relist() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let mut stream = Stream::open(&server, "?topics=clusters", Some("0-0-0")).await;
    let relist = stream.next().await.unwrap();
    assert_eq!(relist.event, "relist");
    server.put(&format!("{}/labels", admin("one")), &json!({"a": "b"})).await.expect(200);
    assert_eq!(stream.next().await.unwrap().event, "cluster");
    let mut resumed = Stream::open(&server, "?topics=clusters", Some(&relist.id)).await;
    assert_eq!(resumed.next().await.unwrap().event, "cluster");

    for (query, header, target) in
        [("?topics=clouds", None, "topics"), ("?topics=,", None, "topics"), ("", Some("x"), "Last-Event-ID")]
    {
        let headers: Vec<_> = header.into_iter().map(|value| ("last-event-id", value)).collect();
        let reply = server.send(Method::GET, &format!("/admin/events{query}"), &headers, None).await;
        assert_eq!(reply.error(), (400, "InvalidParameter".to_owned(), target.to_owned()));
    }
    server.close().await;
}

#[tokio::test]
async fn a_shutdown_ends_open_streams() {
    let server = TestServer::open().await;
    let mut stream = Stream::open(&server, "", None).await;
    stream.any().await.unwrap();
    let ended = async { while stream.any().await.is_some() {} };
    tokio::join!(server.close(), ended);
}
