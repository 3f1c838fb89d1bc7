//! A cluster is created, read, replayed.

use api::doc::ProvisioningState;
use api::doc::secrets::{CLIENT_SECRET as CLIENT, PULL_SECRET as PULL};
use http::Method;
use serde_json::json;

use super::{CLIENT_SECRET, NEW, OLD, PULL_SECRET, SUBSCRIPTION, at, body, rid, with};
use crate::fixture::{TestServer, on_both};

#[tokio::test]
async fn a_cluster_is_created_with_its_operation_its_work_and_its_secrets() {
    on_both(|server| async move {
        server.register().await;
        let system = r#"{"createdBy":"jo@example","createdByType":"User","createdAt":"2026-11-16T10:00:00.1234567Z","lastModifiedBy":"jo@example"}"#;
        let headers = [
            ("referer", "https://management.example/subscriptions/x?api-version=2025-07-25&a=b%20c"),
            ("x-ms-arm-resource-system-data", system),
            ("x-ms-client-request-id", "mine-1"),
            ("x-ms-return-client-request-id", "True"),
        ];
        let made = server.send(Method::PUT, &at("One", NEW), &headers, Some(body("One").to_string().into())).await.expect(201);
        let operation = server.cluster("one").await.operation.unwrap();
        assert_eq!(
            made.header("azure-asyncoperation"),
            format!(
                "https://management.example/subscriptions/{SUBSCRIPTION}/providers/Microsoft.RedHatOpenShift/locations/local/operationsstatus/{operation}?api-version=2025-07-25&a=b%20c"
            )
        );
        assert_eq!(made.header("location"), "");
        assert_eq!(made.header("retry-after"), "10");
        assert_eq!(made.header("content-type"), "application/json");
        assert_eq!(made.header("x-ms-client-request-id"), "mine-1");
        assert!(!made.header("x-ms-request-id").is_empty() && !made.header("etag").is_empty());
        assert!(made.text.ends_with("}\n"));

        let form = made.json();
        assert_eq!((&form["id"], &form["name"]), (&json!(rid("One")), &json!("One")));
        assert_eq!(form["type"], "Microsoft.RedHatOpenShift/openShiftClusters");
        assert_eq!(form["tags"], json!({"team": "blue"}));
        assert_eq!(form["systemData"]["createdBy"], "jo@example");
        let properties = &form["properties"];
        assert_eq!(properties["provisioningState"], "Creating");
        assert_eq!(properties["networkProfile"]["outboundType"], "Loadbalancer");
        assert_eq!(properties["networkProfile"]["preconfiguredNSG"], "Disabled");
        assert_eq!(properties["networkProfile"]["loadBalancerProfile"], json!({"managedOutboundIps": {"count": 1}}));
        let group = format!("/subscriptions/{SUBSCRIPTION}/resourcegroups/managed-one");
        assert_eq!(properties["clusterProfile"]["resourceGroupId"], group);
        for secret in [CLIENT_SECRET, "hunter2", "aHVudGVyMg", "pullSecret", "clientSecret"] {
            assert!(!made.text.contains(secret), "{secret} in {}", made.text);
        }

        let read = server.store.clusters().find(&rid("one")).await.unwrap().unwrap();
        let sealed = |name: &'static str| server.store.secret(read.uuid, name);
        assert_eq!(sealed(CLIENT).await.unwrap().unwrap().expose(), CLIENT_SECRET.as_bytes());
        assert_eq!(sealed(PULL).await.unwrap().unwrap().expose(), PULL_SECRET.as_bytes());
        assert!(!format!("{:?}", read.document).contains("hunter2"));
        let work = server.store.work(operation).await.unwrap().unwrap();
        assert_eq!(work.lane, read.uuid);

        // The id is matched in any case and shown as it was written.
        let shown = server.get(&at("ONE", NEW).to_uppercase().replace("API-VERSION", "api-version")).await.expect(200);
        assert_eq!(shown.json()["id"], rid("One"));
        assert_eq!(shown.header("etag"), made.header("etag"));
        let old = server.get(&at("one", OLD)).await.expect(200).json();
        assert_eq!(old["properties"]["clusterProfile"]["version"], "4.20.3");
        server.close().await;
    })
    .await;
}

#[tokio::test]
async fn the_default_version_is_used_where_none_is_named() {
    let server = TestServer::open().await;
    server.register().await;
    let sent = with(body("one"), "/properties/clusterProfile/version", json!(null));
    let made = server.put(&at("one", NEW), &sent).await.expect(201).json();
    assert_eq!(made["properties"]["clusterProfile"]["version"], "4.20.3");
    server.close().await;
}

#[tokio::test]
async fn a_repeated_creation_is_rejected_while_it_runs_and_changes_nothing_afterwards() {
    on_both(|server| async move {
        server.register().await;
        server.put(&at("one", NEW), &body("one")).await.expect(201);
        assert_eq!(server.put(&at("one", NEW), &body("one")).await.error().1, "RequestNotAllowed");
        server.settle("one", ProvisioningState::Succeeded, None).await;
        let before = server.cluster("one").await;
        let again = server.put(&at("one", NEW), &body("one")).await.expect(200);
        assert_eq!(again.json()["properties"]["provisioningState"], "Updating");
        let after = server.cluster("one").await;
        assert_eq!(after.provisioned, before.provisioned);
        assert_eq!(after.last_provisioning_state, Some(ProvisioningState::Succeeded));
        server.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_creation_with_empty_defaults_can_be_repeated() {
    let server = TestServer::open().await;
    server.register().await;
    let mut sent = body("one");
    for (pointer, empty) in [
        ("/properties/clusterProfile/version", json!("")),
        ("/properties/networkProfile/outboundType", json!("")),
        ("/properties/networkProfile/preconfiguredNSG", json!("")),
        ("/properties/networkProfile/loadBalancerProfile", json!({})),
        ("/properties/provisioningState", json!("")),
        ("/id", json!("")),
    ] {
        sent = with(sent, pointer, empty);
    }
    let made = server.put(&at("one", NEW), &sent).await.expect(201).json();
    assert_eq!(made["properties"]["clusterProfile"]["version"], "4.20.3");
    server.settle("one", ProvisioningState::Succeeded, None).await;
    let before = server.cluster("one").await;
    for version in [NEW, OLD] {
        server.put(&at("one", version), &sent).await.expect(200);
        assert_eq!(server.cluster("one").await.provisioned, before.provisioned, "{version}");
        server.settle("one", ProvisioningState::Succeeded, None).await;
    }
    // In a PATCH an empty string is a different value.
    let emptied = json!({"properties": {"clusterProfile": {"version": ""}}});
    let error = server.patch(&at("one", NEW), &emptied).await.error();
    assert_eq!((error.0, error.2.as_str()), (400, "properties.clusterProfile.version"));
    server.close().await;
}

#[tokio::test]
async fn without_a_default_a_version_must_be_named() {
    let server = TestServer::open().await;
    let subscription = json!({"state": "Registered"});
    server.put(&format!("/subscriptions/{SUBSCRIPTION}?api-version=2.0"), &subscription).await.expect(201);
    let offered = json!({"properties": {"version": "4.20.3", "openShiftPullspec": "r", "installerPullspec": "i", "enabled": true, "default": false}});
    server.put("/admin/versions", &offered).await.expect(201);
    server.until_offered("4.20.3").await;
    for none in [json!(null), json!("")] {
        let sent = with(body("one"), "/properties/clusterProfile/version", none);
        let error = server.put(&at("one", NEW), &sent).await.error();
        assert_eq!(error, (500, "InternalServerError".to_owned(), String::new()));
    }
    server.put(&at("one", NEW), &body("one")).await.expect(201);
    server.close().await;
}

#[tokio::test]
async fn two_clusters_share_neither_identity_nor_managed_group() {
    on_both(|server| async move {
        server.register().await;
        server.put(&at("one", NEW), &body("one")).await.expect(201);
        let client = body("one")["properties"]["servicePrincipalProfile"]["clientId"].clone();
        let group = body("one")["properties"]["clusterProfile"]["resourceGroupId"].clone();
        let same_client = with(body("two"), "/properties/servicePrincipalProfile/clientId", client);
        let reply = server.put(&at("two", NEW), &same_client).await;
        assert_eq!(reply.error(), (400, "DuplicateClientID".to_owned(), String::new()));
        let same_both = with(same_client, "/properties/clusterProfile/resourceGroupId", group.clone());
        assert_eq!(server.put(&at("two", NEW), &same_both).await.error().1, "DuplicateClientID");
        let same_group = with(body("two"), "/properties/clusterProfile/resourceGroupId", group);
        assert_eq!(server.put(&at("two", NEW), &same_group).await.error().1, "DuplicateResourceGroup");
        let mut domains = vec![body("one")["properties"]["clusterProfile"]["domain"].clone()];
        domains.push(json!(format!("{}.clusters.shipshape.test", domains[0].as_str().unwrap())));
        for domain in domains {
            let same_name = with(body("two"), "/properties/clusterProfile/domain", domain);
            let reply = server.put(&at("two", NEW), &same_name).await;
            let target = "properties.clusterProfile.domain".to_owned();
            assert_eq!(reply.error(), (400, "DuplicateDomain".to_owned(), target));
        }
        // A domain that customers manage may be shared.
        for name in ["three", "four"] {
            let own =
                with(body(name), "/properties/clusterProfile/domain", json!("harbour.customer.example"));
            server.put(&at(name, NEW), &own).await.expect(201);
            let cluster = server.cluster(name).await;
            assert!(!cluster.provisioned.unwrap().is_domain_managed());
        }
        server.put(&at("two", NEW), &body("two")).await.expect(201);
        // Nor can one change to the other's identity later.
        server.settle("two", ProvisioningState::Succeeded, None).await;
        let patch = json!({"properties": {"servicePrincipalProfile": {"clientId": body("one")["properties"]["servicePrincipalProfile"]["clientId"]}}});
        let reply = server.patch(&at("two", NEW), &patch).await;
        assert_eq!(reply.error(), (400, "DuplicateClientID".to_owned(), String::new()));
        let taken = with(body("two"), "/properties/servicePrincipalProfile", patch["properties"]["servicePrincipalProfile"].clone());
        assert_eq!(server.put(&at("two", NEW), &taken).await.error().1, "DuplicateClientID");
        assert_eq!(server.cluster("two").await.provisioning_state, ProvisioningState::Succeeded);
        server.close().await;
    })
    .await;
}

#[tokio::test]
async fn etags_guard_writes() {
    let server = TestServer::open().await;
    server.register().await;
    let ask = async |method: Method, headers: &[(&str, &str)], sent: serde_json::Value| {
        server.send(method, &at("one", NEW), headers, Some(sent.to_string().into())).await
    };
    let reply = ask(Method::PUT, &[("if-match", "\"9\"")], body("one")).await;
    assert_eq!(reply.error().0, 412);
    let made = ask(Method::PUT, &[("if-none-match", "*")], body("one")).await.expect(201);
    assert_eq!(
        ask(Method::PUT, &[("if-none-match", "*")], body("one")).await.error().1,
        "PreconditionFailed"
    );
    server.settle("one", ProvisioningState::Succeeded, None).await;
    let stale = made.header("etag").to_owned();
    assert_eq!(ask(Method::PATCH, &[("if-match", &stale)], json!({})).await.error().0, 412);
    assert_eq!(
        server.send(Method::DELETE, &at("one", NEW), &[("if-match", &stale)], None).await.error().0,
        412
    );
    let fresh = server.get(&at("one", NEW)).await.header("etag").to_owned();
    ask(Method::PATCH, &[("if-match", &fresh)], json!({})).await.expect(200);
    server.close().await;
}

#[tokio::test]
async fn a_body_of_three_megabytes_and_one_of_another_type_are_rejected() {
    let server = TestServer::open().await;
    server.register().await;
    let long = with(body("one"), "/tags", json!({"long": "x".repeat(3 << 20)}));
    assert_eq!(server.put(&at("one", NEW), &long).await.error().1, "InvalidResource");
    let typed = [("content-type", "text/plain")];
    let reply = server.send(Method::PUT, &at("one", NEW), &typed, Some("{}".into())).await;
    assert_eq!(reply.error(), (415, "UnsupportedMediaType".to_owned(), String::new()));
    let charset = [("content-type", "application/json; charset=utf-8")];
    server
        .send(Method::PUT, &at("one", NEW), &charset, Some(body("one").to_string().into()))
        .await
        .expect(201);
    server.close().await;
}

#[tokio::test]
async fn the_client_request_id_is_stored_with_the_operation() {
    let server = TestServer::open().await;
    server.register().await;
    let named = async |name: &str, header: &str| {
        let headers = [("x-ms-client-request-id", header)];
        let sent = Some(body(name).to_string().into());
        let reply = server.send(Method::PUT, &at(name, NEW), &headers, sent).await.expect(201);
        assert_eq!(reply.header("x-ms-client-request-id"), "", "nobody asked for it");
        let id = server.cluster(name).await.operation.unwrap();
        server.store.operations().get(id).await.unwrap().unwrap().document.client_request_id
    };
    assert_eq!(named("one", "my-request 7").await.as_deref(), Some("my-request 7"));
    assert_eq!(named("two", &"x".repeat(101)).await, None, "a long one is none");
    server.close().await;
}

#[tokio::test]
async fn selectors_have_the_attributes_of_a_provisioned_cluster_and_need_its_subscription() {
    let server = TestServer::with_cluster("one", ProvisioningState::Succeeded).await;
    let path = format!("/admin{}/selectors?api-version=admin", rid("one"));
    let seen = server.get(&path).await.expect(200).json();
    let cluster = server.cluster("one").await;
    assert_eq!(seen["version"], cluster.installed_version().unwrap());
    let expect = [
        ("authenticationType", "ServicePrincipal"),
        ("architectureVersion", "1"),
        ("outboundType", "Loadbalancer"),
        ("APIServerVisibility", "Public"),
        ("isManagedDomain", "false"),
        ("subscriptionState", "Registered"),
    ];
    for (key, value) in expect {
        assert_eq!(seen[key], value, "{key}");
    }
    let bucket = cluster.provisioned.unwrap().bucket.to_string();
    assert_eq!(seen["bucketID"], bucket);
    let subscription = format!("/subscriptions/{SUBSCRIPTION}");
    let read = server.store.subscriptions().find(&subscription).await.unwrap().unwrap();
    server
        .store
        .collection::<api::doc::Subscription>()
        .delete(&read, &store::AuditContext::service("test"))
        .await
        .unwrap();
    let error = server.get(&path).await.error();
    assert_eq!((error.0, error.1.as_str()), (404, "ResourceNotFound"));
    server.close().await;
}
