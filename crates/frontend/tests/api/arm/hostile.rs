//! Requests that nobody honest sends: each gets an answer in the envelope, none an error of ours.

use bytes::Bytes;
use http::Method;
use serde_json::json;

use super::{NEW, OLD, SUBSCRIPTION, at, body, rid, with};
use crate::fixture::House;

#[tokio::test]
async fn each_segment_of_a_path_has_its_refusal_before_the_body_is_looked_at() {
    let house = House::open().await;
    house.register().await;
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
            let reply = house.ask(method.clone(), &path, &[], long).await;
            assert_eq!(reply.refusal().1, code, "{method} {path}");
            assert_eq!(reply.status, 400);
        }
    }
    for path in [
        "/subscriptions",
        "/providers/x",
        "/subscriptions/",
        &format!("/subscriptions/{SUBSCRIPTION}/nothing"),
    ] {
        assert_eq!(house.get(path).await.refusal(), (404, "NotFound".to_owned(), String::new()), "{path}");
    }
    assert_eq!(house.post(&good).await.status, 405);
    house.close().await;
}

#[tokio::test]
async fn an_unknown_version_is_refused_on_every_route_that_has_one() {
    let house = House::open().await;
    house.register().await;
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
            let reply = house.ask(method.clone(), &format!("{path}{version}"), &[], sent).await;
            assert_eq!(reply.refusal().1, "InvalidResourceType", "{method} {path}{version}");
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
    house.close().await;
}

#[tokio::test]
async fn odd_bodies_and_odd_headers_are_answered_in_the_envelope() {
    let house = House::open().await;
    house.register().await;
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
        let reply = house.ask(Method::PUT, &at("one", NEW), &headers, Some(sent)).await;
        assert_eq!(
            (reply.status.as_u16(), reply.refusal().1.as_str()),
            (400, "InvalidRequestContent"),
            "{what}"
        );
    }
    // The bodies of actions may be anything, as long as they are JSON.
    let action = format!("{}/listCredentials?api-version={NEW}", rid("one"));
    let reply = house.ask(Method::POST, &action, &[], Some("{".into())).await;
    assert_eq!(reply.refusal().1, "InvalidRequestContent");
    let reply = house.ask(Method::POST, &action, &[], Some("[1]".into())).await;
    assert_eq!(reply.refusal().1, "ResourceNotFound");
    let reply = house.ask(Method::POST, &action, &[("content-type", "text/xml")], None).await;
    assert_eq!(reply.refusal().1, "UnsupportedMediaType");
    // Members that nobody knows are passed over.
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
        house.ask(Method::PUT, &at("one", NEW), &headers, Some(more.to_string().into())).await.expect(201);
    assert!(made.json().get("unheardOf").is_none());
    assert_eq!(made.header("x-ms-client-request-id"), "");
    assert!(made.header("azure-asyncoperation").starts_with(&house.url));
    assert_eq!(house.get(&at("one", OLD)).await.status, 200);
    house.close().await;
}

#[tokio::test]
async fn no_link_names_a_server_that_is_not_configured() {
    let house = House::guarded(|_, _| {}).await;
    house.register().await;
    house.put(&at("one", NEW), &body("one")).await.expect(201);
    house.settle("one", api::doc::ProvisioningState::Succeeded, None).await;
    let evil = format!("https://evil.example{}", at("one", NEW));
    let disguised = evil.replace("https://", "https://management.example@");
    for headers in [
        [("host", "evil.example"), ("referer", "")],
        [("host", "localhost"), ("referer", evil.as_str())],
        [("host", "evil.example:8443"), ("referer", disguised.as_str())],
    ] {
        let changed = with(body("one"), "/tags", json!({"seen": headers[0].1}));
        let body = Some(changed.to_string().into());
        let reply = house.ask(Method::PUT, &at("one", NEW), &headers, body).await.expect(200);
        let url = reply.header("azure-asyncoperation");
        assert!(!url.contains("evil") && url.starts_with("https://"), "{url}");
        house.settle("one", api::doc::ProvisioningState::Succeeded, None).await;
        let reply = house.ask(Method::GET, "/admin/clusters?limit=1", &headers, None).await.expect(200);
        assert!(!reply.text.contains("evil"), "{}", reply.text);
    }
    let deleted = house.ask(Method::DELETE, &at("one", NEW), &[("referer", &evil)], None).await.expect(202);
    for name in ["azure-asyncoperation", "location"] {
        assert!(deleted.header(name).starts_with(&house.url), "{}", deleted.header(name));
    }
    house.close().await;
}

#[tokio::test]
async fn a_lost_url_of_the_caller_is_the_configured_one() {
    let house =
        House::configured(|config| config.public_url = Some("https://management.example/".to_owned())).await;
    house.register().await;
    let made = house.put(&at("one", NEW), &body("one")).await.expect(201);
    let url = made.header("azure-asyncoperation");
    assert!(
        url.starts_with("https://management.example/subscriptions/")
            && url.ends_with("?api-version=2025-07-25"),
        "{url}"
    );
    // A caller's URL without a version gets ours, for it is polled verbatim.
    house.settle("one", api::doc::ProvisioningState::Succeeded, None).await;
    let headers = [("referer", "https://mockrefererhost/")];
    let reply = house.ask(Method::DELETE, &at("one", NEW), &headers, None).await.expect(202);
    for name in ["azure-asyncoperation", "location"] {
        let url = reply.header(name);
        assert!(
            url.starts_with("https://mockrefererhost/subscriptions/")
                && url.ends_with("?api-version=2025-07-25"),
            "{url}"
        );
    }
    house.close().await;
}

#[tokio::test]
async fn an_imported_cluster_is_shown_and_left_alone() {
    let house = House::open().await;
    house.register().await;
    house.furnish("one").await;
    let path = crate::fixture::rid("one");
    let shown = house.get(&format!("{path}?api-version={NEW}")).await.expect(200).json();
    assert_eq!(shown["properties"], json!({"provisioningState": "Succeeded"}));
    let told = json!({"state": "Registered"});
    house
        .put(&format!("/subscriptions/{}?api-version=2.0", crate::fixture::SUBSCRIPTION), &told)
        .await
        .expect(201);
    for reply in [
        house.put(&format!("{path}?api-version={NEW}"), &body("one")).await,
        house.patch(&format!("{path}?api-version={NEW}"), &json!({})).await,
        house.delete(&format!("{path}?api-version={NEW}")).await,
        house.post(&format!("{path}/listcredentials?api-version={NEW}")).await,
    ] {
        assert_eq!(reply.refusal().1, "RequestNotAllowed");
    }
    house.close().await;
}
