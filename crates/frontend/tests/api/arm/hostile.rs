//! Malicious requests: each gets a response in the error envelope, none a server error.

use bytes::Bytes;
use http::Method;
use serde_json::json;

use super::{NEW, OLD, SUBSCRIPTION, at, body, rid, with};
use crate::fixture::TestServer;

#[tokio::test]
async fn each_segment_of_a_path_is_validated_before_the_body() {
    let server = TestServer::open().await;
    server.register().await;
    let good = at("one", NEW);
    let in_subscription =
        |rest: &str| format!("/subscriptions/{SUBSCRIPTION}/providers/{rest}?api-version={NEW}");
    for (path, code) in [
        (good.replace(SUBSCRIPTION, "nobody"), "InvalidSubscriptionID"),
        (good.replace(SUBSCRIPTION, &SUBSCRIPTION.replace('-', "")), "InvalidSubscriptionID"),
        (good.replace("MyGroup", "a%20b"), "ResourceGroupNotFound"),
        (good.replace("MyGroup", "a."), "ResourceGroupNotFound"),
        (good.replace("Microsoft.RedHatOpenShift", "Microsoft.Compute"), "InvalidResourceNamespace"),
        (good.replace("openShiftClusters", "virtualMachines"), "InvalidResourceType"),
        (good.replace("/one?", "/a%2Fb?"), "ResourceNotFound"),
        (good.replace("/one?", "/%ff?"), "ResourceNotFound"),
        (good.replace("/one?", &format!("/{}?", "n".repeat(91))), "ResourceNotFound"),
        (in_subscription("Microsoft.Compute/openShiftClusters"), "InvalidResourceNamespace"),
        (in_subscription("Microsoft.RedHatOpenShift/locations/mars/openShiftVersions"), "InvalidLocation"),
        (
            in_subscription("Microsoft.RedHatOpenShift/locations/local/operationsStatus/7"),
            "InvalidOperationID",
        ),
    ] {
        for method in [Method::GET, Method::PUT] {
            let long = (method == Method::PUT).then(|| Bytes::from("x".repeat(2 << 20)));
            let reply = server.send(method.clone(), &path, &[], long).await;
            assert_eq!(reply.error().1, code, "{method} {path}");
            assert_eq!(reply.status, 400);
        }
    }
    for path in [
        "/subscriptions",
        "/providers/x",
        "/subscriptions/",
        &format!("/subscriptions/{SUBSCRIPTION}/nothing"),
    ] {
        assert_eq!(server.get(path).await.error(), (404, "NotFound".to_owned(), String::new()), "{path}");
    }
    assert_eq!(server.post(&good).await.status, 405);
    server.close().await;
}

#[tokio::test]
async fn an_unknown_version_is_rejected_on_every_route_that_has_one() {
    let server = TestServer::open().await;
    server.register().await;
    let locations =
        format!("/subscriptions/{SUBSCRIPTION}/providers/Microsoft.RedHatOpenShift/locations/local");
    let operation = "22222222-2222-2222-2222-222222222222";
    for version in [
        "",
        "?api-version=",
        "?api-version=2025-07-26",
        "?api-version=2025-07-25&api-version=2025-07-25",
        "?api-version=2.0",
    ] {
        let ask = async |method: Method, path: String| {
            let sent = (method != Method::GET && method != Method::DELETE).then(|| Bytes::from("{}"));
            let reply = server.send(method.clone(), &format!("{path}{version}"), &[], sent).await;
            assert_eq!(reply.error().1, "InvalidResourceType", "{method} {path}{version}");
        };
        for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE] {
            ask(method, rid("one")).await;
        }
        ask(Method::GET, rid("").trim_end_matches('/').to_owned()).await;
        ask(Method::POST, format!("{}/listCredentials", rid("one"))).await;
        ask(Method::POST, format!("{}/listAdminCredentials", rid("one"))).await;
        ask(Method::GET, format!("{locations}/operationsStatus/{operation}")).await;
        ask(Method::GET, format!("{locations}/operationResults/{operation}")).await;
        ask(Method::GET, format!("{locations}/openShiftVersions")).await;
        ask(Method::GET, format!("{locations}/platformWorkloadIdentityRoleSets")).await;
    }
    server.close().await;
}

#[tokio::test]
async fn invalid_bodies_and_headers_are_errors_in_the_envelope() {
    let server = TestServer::open().await;
    server.register().await;
    let text = body("one").to_string();
    for (what, sent) in [
        ("nothing", Bytes::new()),
        ("null", Bytes::from("null")),
        ("a list", Bytes::from("[]")),
        ("half", Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2])),
        ("not UTF-8", Bytes::from(&b"{\"location\":\"\xff\"}"[..])),
        (
            "a member twice",
            Bytes::from(text.replacen("\"location\"", "\"location\":\"west\",\"location\"", 1)),
        ),
        ("deep", Bytes::from("{\"a\":".repeat(10_000))),
        ("something behind", Bytes::from(format!("{text} x"))),
    ] {
        let headers = [("content-type", "application/json")];
        let reply = server.send(Method::PUT, &at("one", NEW), &headers, Some(sent)).await;
        assert_eq!(
            (reply.status.as_u16(), reply.error().1.as_str()),
            (400, "InvalidRequestContent"),
            "{what}"
        );
    }
    // The body of an action may be any JSON.
    let action = format!("{}/listCredentials?api-version={NEW}", rid("one"));
    let reply = server.send(Method::POST, &action, &[], Some("{".into())).await;
    assert_eq!(reply.error().1, "InvalidRequestContent");
    let reply = server.send(Method::POST, &action, &[], Some("[1]".into())).await;
    assert_eq!(reply.error().1, "ResourceNotFound");
    let reply = server.send(Method::POST, &action, &[("content-type", "text/xml")], None).await;
    assert_eq!(reply.error().1, "UnsupportedMediaType");
    // Unknown members are ignored.
    let mut more = body("one");
    more["unheardOf"] = json!({"a": [1]});
    more["properties"]["clusterProfile"]["later"] = json!(true);
    let headers: Vec<(&str, String)> = vec![
        ("referer", "not a url at all \\".to_owned()),
        ("x-ms-arm-resource-system-data", "[[[[".to_owned()),
        ("x-ms-client-request-id", "x".repeat(5000)),
        ("x-ms-return-client-request-id", "true".to_owned()),
        ("x-ms-correlation-request-id", "' or 1=1".to_owned()),
        ("x-ms-client-principal-name", "\u{1}".replace('\u{1}', "\t;drop")),
        ("if-none-match", "\"\",,".to_owned()),
        ("accept", "text/html".to_owned()),
    ];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let made =
        server.send(Method::PUT, &at("one", NEW), &headers, Some(more.to_string().into())).await.expect(201);
    assert!(made.json().get("unheardOf").is_none());
    assert_eq!(made.header("x-ms-client-request-id"), "");
    assert!(made.header("azure-asyncoperation").starts_with(&server.url));
    assert_eq!(server.get(&at("one", OLD)).await.status, 200);
    server.close().await;
}

#[tokio::test]
async fn no_link_names_a_server_that_is_not_configured() {
    let server = TestServer::guarded(|_, _| {}).await;
    server.register().await;
    server.put(&at("one", NEW), &body("one")).await.expect(201);
    server.settle("one", api::doc::ProvisioningState::Succeeded, None).await;
    let evil = format!("https://evil.example{}", at("one", NEW));
    let disguised = evil.replace("https://", "https://management.example@");
    for headers in [
        [("host", "evil.example"), ("referer", "")],
        [("host", "localhost"), ("referer", evil.as_str())],
        [("host", "evil.example:8443"), ("referer", disguised.as_str())],
    ] {
        let changed = with(body("one"), "/tags", json!({"seen": headers[0].1}));
        let body = Some(changed.to_string().into());
        let reply = server.send(Method::PUT, &at("one", NEW), &headers, body).await.expect(200);
        let url = reply.header("azure-asyncoperation");
        assert!(!url.contains("evil") && url.starts_with("https://"), "{url}");
        server.settle("one", api::doc::ProvisioningState::Succeeded, None).await;
        let reply = server.send(Method::GET, "/admin/clusters?limit=1", &headers, None).await.expect(200);
        assert!(!reply.text.contains("evil"), "{}", reply.text);
    }
    let deleted = server.send(Method::DELETE, &at("one", NEW), &[("referer", &evil)], None).await.expect(202);
    for name in ["azure-asyncoperation", "location"] {
        assert!(deleted.header(name).starts_with(&server.url), "{}", deleted.header(name));
    }
    server.close().await;
}

#[tokio::test]
async fn without_the_callers_url_the_configured_one_is_used() {
    let server =
        TestServer::configured(|config| config.public_url = Some("https://management.example/".to_owned()))
            .await;
    server.register().await;
    let made = server.put(&at("one", NEW), &body("one")).await.expect(201);
    let url = made.header("azure-asyncoperation");
    assert!(
        url.starts_with("https://management.example/subscriptions/")
            && url.ends_with("?api-version=2025-07-25"),
        "{url}"
    );
    // The version is added to a caller's URL without one, because it is polled verbatim.
    server.settle("one", api::doc::ProvisioningState::Succeeded, None).await;
    let headers = [("referer", "https://mockrefererhost/")];
    let reply = server.send(Method::DELETE, &at("one", NEW), &headers, None).await.expect(202);
    for name in ["azure-asyncoperation", "location"] {
        let url = reply.header(name);
        assert!(
            url.starts_with("https://mockrefererhost/subscriptions/")
                && url.ends_with("?api-version=2025-07-25"),
            "{url}"
        );
    }
    server.close().await;
}

#[tokio::test]
async fn an_imported_cluster_is_shown_and_cannot_be_changed() {
    let server = TestServer::open().await;
    server.register().await;
    server.prepare("one").await;
    let path = crate::fixture::rid("one");
    let shown = server.get(&format!("{path}?api-version={NEW}")).await.expect(200).json();
    assert_eq!(shown["properties"], json!({"provisioningState": "Succeeded"}));
    let subscription = json!({"state": "Registered"});
    server
        .put(&format!("/subscriptions/{}?api-version=2.0", crate::fixture::SUBSCRIPTION), &subscription)
        .await
        .expect(201);
    for reply in [
        server.put(&format!("{path}?api-version={NEW}"), &body("one")).await,
        server.patch(&format!("{path}?api-version={NEW}"), &json!({})).await,
        server.delete(&format!("{path}?api-version={NEW}")).await,
        server.post(&format!("{path}/listcredentials?api-version={NEW}")).await,
    ] {
        assert_eq!(reply.error().1, "RequestNotAllowed");
    }
    server.close().await;
}
