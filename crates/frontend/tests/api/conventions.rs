//! Conventions of the resource manager: error envelope, ids, versions, paths in any case, limits of bodies.

use bytes::Bytes;
use http::Method;
use serde_json::json;

use crate::fixture::{TestServer, admin, kubeconfig, rid};

#[tokio::test]
async fn a_cluster_is_imported_shown_labelled_listed_and_forgotten() {
    let server = TestServer::open().await;
    let path = format!("{}/import", admin("One"));
    let body =
        json!({"kubeconfig": kubeconfig(), "location": "West", "labels": {"ring": "0"}, "reason": "trial"});
    let made = server.put(&path, &body).await.expect(201);
    assert_eq!(made.json()["id"], rid("One"));
    assert_eq!(made.json()["location"], "west");
    assert_eq!(made.json()["properties"]["apiServer"], "https://127.0.0.1:6443/");
    assert!(made.text.contains("\n    \"id\""), "four spaces: {}", made.text);
    server.put(&path, &body).await.expect(200);

    let shown = server.get(&format!("{}?api-version=admin", rid("one").to_uppercase())).await.expect(200);
    assert_eq!(shown.json()["name"], "One");
    assert_eq!(shown.header("content-type"), "application/json");
    let labels = server.put(&format!("{}/labels", admin("ONE")), &json!({"ring": "1"})).await.expect(200);
    assert_eq!(labels.json()["properties"]["labels"], json!({"ring": "1"}));
    let selectors = server.get(&format!("{}/selectors?api-version=admin", admin("one"))).await.expect(200);
    assert_eq!(selectors.json()["label.ring"], "1");
    assert_eq!(selectors.text.lines().count(), 1, "compact: {}", selectors.text);

    let list = server.get("/admin/providers/Microsoft.RedHatOpenShift/OpenShiftClusters").await.expect(200);
    assert_eq!(list.json()["value"].as_array().unwrap().len(), 1);
    assert_eq!(list.json()["nextLink"], "");
    let overview = server.get("/admin/clusters?name=one").await.expect(200);
    assert_eq!(overview.json()[0]["resourceGroup"], "imported");
    assert_eq!(server.get("/admin/clusters?name=other").await.expect(200).json(), json!([]));

    assert_eq!(server.delete(&path).await.expect(200).json(), json!({}));
    assert_eq!(server.delete(&path).await.error().1, "ResourceNotFound");
    server.close().await;
}

#[tokio::test]
async fn a_secret_is_never_returned() {
    let server = TestServer::open().await;
    let path = format!("{}/import", admin("one"));
    let body = json!({"kubeconfig": kubeconfig()});
    let made = server.put(&path, &body).await.expect(201);
    let shown = server.get(&admin("one")).await.expect(200);
    for reply in [made, shown] {
        assert!(!reply.text.contains("secret") && !reply.text.contains("current-context"), "{}", reply.text);
    }
    server.close().await;
}

#[tokio::test]
async fn every_response_has_its_ids() {
    let server = TestServer::open().await;
    let id = "0192d0e0-0000-7000-8000-000000000001";
    let headers = [
        ("x-ms-correlation-request-id", id),
        ("x-ms-client-request-id", "mine"),
        ("x-ms-return-client-request-id", "TRUE"),
    ];
    let reply = server.send(Method::GET, "/admin/clusters", &headers, None).await;
    assert_eq!(reply.header("x-ms-correlation-request-id"), id);
    assert_eq!(reply.header("x-ms-client-request-id"), "mine");
    assert_eq!(reply.header("x-ms-request-id").len(), 36);
    let lost = server.get("/nowhere").await;
    assert_eq!(lost.header("x-ms-request-id").len(), 36);
    assert_ne!(lost.header("x-ms-request-id"), reply.header("x-ms-request-id"));

    // The client's id is recorded with the change.
    let path = format!("{}/import", admin("one"));
    let body = Bytes::from(json!({"kubeconfig": kubeconfig(), "reason": "why"}).to_string());
    server.send(Method::PUT, &path, &headers, Some(body)).await.expect(201);
    let rows = server.store.audit_list(store::AuditQuery { limit: 10, ..Default::default() }).await.unwrap();
    let entry = &rows.iter().find(|row| row.record.entry.action == "cluster.create").unwrap().record.entry;
    assert_eq!((entry.correlation_id.unwrap().to_string().as_str(), entry.reason.as_str()), (id, "why"));
    server.close().await;
}

#[tokio::test]
async fn unknown_resources_and_methods_are_errors_in_the_envelope() {
    let server = TestServer::open().await;
    let check = async |method: Method, path: &str, status: u16, code: &str| {
        let reply = server.send(method.clone(), path, &[], None).await;
        let found = reply.error();
        assert_eq!((found.0, found.1.as_str()), (status, code), "{method} {path}");
    };
    check(Method::GET, "/", 404, "NotFound").await;
    check(Method::GET, "/admin/nothing", 404, "NotFound").await;
    check(Method::DELETE, "/admin/clusters", 405, "MethodNotAllowed").await;
    check(
        Method::GET,
        &admin("x").replace("Microsoft.RedHatOpenShift", "Microsoft.Compute"),
        400,
        "InvalidResourceNamespace",
    )
    .await;
    check(Method::GET, &admin("x").replace("openShiftClusters", "disks"), 400, "InvalidResourceType").await;
    check(Method::GET, &admin("x").replace("00000000-0", "x"), 400, "InvalidSubscriptionID").await;
    check(Method::GET, &admin("a%20b"), 400, "ResourceNotFound").await;
    check(Method::GET, &admin("%2e%2e"), 400, "ResourceNotFound").await;
    check(Method::GET, &rid("x"), 400, "InvalidResourceType").await;
    check(Method::GET, &format!("{}?api-version=2025-07-26", rid("x")), 400, "InvalidResourceType").await;
    check(Method::GET, &format!("{}?api-version=2025-07-25", rid("x")), 404, "ResourceNotFound").await;
    check(Method::GET, &admin("x"), 404, "ResourceNotFound").await;
    check(Method::GET, "/admin/clusters?api-version=1", 400, "InvalidApiVersionParameter").await;
    check(Method::GET, "/admin/maintenancebudgets", 400, "InvalidApiVersionParameter").await;
    check(Method::GET, "/admin/maintenancebudgets?api-version=2025-07-25", 400, "InvalidApiVersionParameter")
        .await;
    check(Method::GET, "/admin/clusters?name=%ff", 400, "InvalidParameter").await;
    server.close().await;
}

#[tokio::test]
async fn a_body_is_limited_typed_and_parsed_strictly() {
    let server = TestServer::open().await;
    let path = format!("{}/labels", admin("one"));
    let check = async |headers: &[(&str, &str)], body: Bytes, status: u16, code: &str| {
        let found = server.send(Method::PUT, &path, headers, Some(body)).await.error();
        assert_eq!((found.0, found.1.as_str()), (status, code));
    };
    let long = Bytes::from(format!("{{\"a\":\"{}\"}}", "x".repeat(10_000_000)));
    check(&[], long, 400, "InvalidResource").await;
    check(&[("content-type", "text/plain")], Bytes::from("{}"), 415, "UnsupportedMediaType").await;
    check(&[("content-type", "application/yaml")], Bytes::from("{}"), 415, "UnsupportedMediaType").await;
    check(&[("content-type", "application/json; charset=utf-8")], Bytes::from("{}"), 404, "ResourceNotFound")
        .await;
    for body in ["null", "", "[]", "{", "{\"a\":\"1\",\"a\":\"2\"}"] {
        check(&[], Bytes::from(body), 400, "InvalidRequestContent").await;
    }
    check(&[], Bytes::from_static(b"{\"a\":\"\xff\"}"), 400, "InvalidRequestContent").await;
    check(&[], Bytes::from("{\"a\":1}"), 400, "InvalidParameter").await;
    server.close().await;
}

#[tokio::test]
async fn a_stale_version_changes_nothing() {
    let server = TestServer::open().await;
    let import = format!("{}/import", admin("one"));
    let labels = format!("{}/labels", admin("one"));
    let first = server.put(&import, &json!({"kubeconfig": kubeconfig()})).await.expect(201);
    let etag = first.header("etag").to_owned();
    let with = async |path: &str, etag: &str, body: serde_json::Value| {
        let body = Bytes::from(body.to_string());
        server.send(Method::PUT, path, &[("if-match", etag)], Some(body)).await
    };
    let second = with(&labels, &etag, json!({"a": "1"})).await.expect(200);
    assert_ne!(second.header("etag"), etag);
    assert_eq!(with(&labels, &etag, json!({"a": "2"})).await.error().1, "PreconditionFailed");
    assert_eq!(with(&labels, "nonsense", json!({"a": "2"})).await.error().0, 412);
    assert_eq!(with(&import, &etag, json!({"kubeconfig": kubeconfig()})).await.error().0, 412);
    let stale = server.send(Method::DELETE, &import, &[("if-match", &etag)], None).await;
    assert_eq!(stale.error(), (412, "PreconditionFailed".to_owned(), "If-Match".to_owned()));
    let shown = server.get(&admin("one")).await.expect(200);
    assert_eq!(shown.json()["properties"]["labels"], json!({"a": "1"}));
    with(&import, shown.header("etag"), json!({"kubeconfig": kubeconfig()})).await.expect(200);
    with(&labels, "*", json!({})).await.expect(200);
    let only_new = server
        .send(
            Method::PUT,
            &import,
            &[("if-none-match", "*")],
            Some(json!({"kubeconfig": kubeconfig()}).to_string().into()),
        )
        .await;
    assert_eq!(only_new.error().0, 412);
    server.close().await;
}

#[tokio::test]
async fn budgets_are_set_shown_and_removed() {
    let server = TestServer::open().await;
    let path = "/admin/maintenancebudgets/Region%2FWest?api-version=admin";
    let set = server.put(path, &json!({"limit": 0, "reason": "stop"})).await.expect(200);
    assert_eq!(set.json(), json!({"key": "region/west", "limit": 0, "used": 0, "parked": 0}));
    let same = server.get("/admin/maintenancebudgets/region/west?api-version=admin").await.expect(200);
    assert_eq!(same.json()["limit"], 0);
    server.put("/admin/maintenancebudgets/fleet?api-version=admin", &json!({"limit": 5})).await.expect(200);
    let page = server.get("/admin/maintenancebudgets?api-version=admin&limit=1").await.expect(200).json();
    assert_eq!(page["value"][0]["key"], "fleet");
    let next = page["nextLink"].as_str().unwrap().strip_prefix(&server.url).unwrap().to_owned();
    let last = server.get(&next).await.expect(200).json();
    assert_eq!(
        (last["value"][0]["key"].as_str(), last["nextLink"].as_str()),
        (Some("region/west"), Some(""))
    );
    server.put(path, &json!({"limit": null})).await.expect(200);
    assert_eq!(server.get(path).await.expect(200).json()["limit"], json!(null));

    let check = async |path: &str, body: serde_json::Value, target: &str| {
        let found = server.put(path, &body).await.error();
        assert_eq!(found, (400, "InvalidParameter".to_owned(), target.to_owned()), "{path} {body}");
    };
    check(path, json!({}), "limit").await;
    check(path, json!({"limit": -1}), "limit").await;
    check(path, json!({"limit": 4_294_967_295_u32}), "limit").await;
    check(path, json!({"limit": 1, "limti": 2}), "limti").await;
    check("/admin/maintenancebudgets/flet?api-version=admin", json!({"limit": 1}), "key").await;
    check("/admin/maintenancebudgets/task%2Fx?api-version=admin", json!({"limit": 1}), "key").await;
    server.close().await;
}
