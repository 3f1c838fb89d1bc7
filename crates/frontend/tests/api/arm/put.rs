//! A cluster is created, read, replayed.

use api::doc::ProvisioningState;
use api::doc::secrets::{CLIENT_SECRET as CLIENT, PULL_SECRET as PULL};
use http::Method;
use serde_json::json;

use super::{CLIENT_SECRET, NEW, OLD, PULL_SECRET, SUBSCRIPTION, at, body, rid, with};
use crate::fixture::{House, on_both};

#[tokio::test]
async fn a_cluster_is_created_with_its_operation_its_work_and_its_secrets() {
    on_both(|house| async move {
        house.register().await;
        let system = r#"{"createdBy":"jo@example","createdByType":"User","createdAt":"2026-11-16T10:00:00.1234567Z","lastModifiedBy":"jo@example"}"#;
        let headers = [
            ("referer", "https://management.example/subscriptions/x?api-version=2025-07-25&a=b%20c"),
            ("x-ms-arm-resource-system-data", system),
            ("x-ms-client-request-id", "mine-1"),
            ("x-ms-return-client-request-id", "True"),
        ];
        let made = house.ask(Method::PUT, &at("One", NEW), &headers, Some(body("One").to_string().into())).await.expect(201);
        let operation = house.cluster("one").await.operation.unwrap();
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

        let read = house.store.clusters().find(&rid("one")).await.unwrap().unwrap();
        let sealed = |name: &'static str| house.store.secret(read.uuid, name);
        assert_eq!(sealed(CLIENT).await.unwrap().unwrap().expose(), CLIENT_SECRET.as_bytes());
        assert_eq!(sealed(PULL).await.unwrap().unwrap().expose(), PULL_SECRET.as_bytes());
        assert!(!format!("{:?}", read.document).contains("hunter2"));
        let work = house.store.work(operation).await.unwrap().unwrap();
        assert_eq!(work.lane, read.uuid);

        // The id is found in any case and shown as it was spelled.
        let shown = house.get(&at("ONE", NEW).to_uppercase().replace("API-VERSION", "api-version")).await.expect(200);
        assert_eq!(shown.json()["id"], rid("One"));
        assert_eq!(shown.header("etag"), made.header("etag"));
        let old = house.get(&at("one", OLD)).await.expect(200).json();
        assert_eq!(old["properties"]["clusterProfile"]["version"], "4.20.3");
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn the_default_version_is_taken_where_none_is_named() {
    let house = House::open().await;
    house.register().await;
    let sent = with(body("one"), "/properties/clusterProfile/version", json!(null));
    let made = house.put(&at("one", NEW), &sent).await.expect(201).json();
    assert_eq!(made["properties"]["clusterProfile"]["version"], "4.20.3");
    house.close().await;
}

#[tokio::test]
async fn a_replayed_creation_is_refused_while_it_runs_and_changes_nothing_afterwards() {
    on_both(|house| async move {
        house.register().await;
        house.put(&at("one", NEW), &body("one")).await.expect(201);
        assert_eq!(house.put(&at("one", NEW), &body("one")).await.refusal().1, "RequestNotAllowed");
        house.settle("one", ProvisioningState::Succeeded, None).await;
        let before = house.cluster("one").await;
        let again = house.put(&at("one", NEW), &body("one")).await.expect(200);
        assert_eq!(again.json()["properties"]["provisioningState"], "Updating");
        let after = house.cluster("one").await;
        assert_eq!(after.provisioned, before.provisioned);
        assert_eq!(after.last_provisioning_state, Some(ProvisioningState::Succeeded));
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_creation_that_leaves_its_defaults_empty_is_replayed_like_any_other() {
    let house = House::open().await;
    house.register().await;
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
    let made = house.put(&at("one", NEW), &sent).await.expect(201).json();
    assert_eq!(made["properties"]["clusterProfile"]["version"], "4.20.3");
    house.settle("one", ProvisioningState::Succeeded, None).await;
    let before = house.cluster("one").await;
    for version in [NEW, OLD] {
        house.put(&at("one", version), &sent).await.expect(200);
        assert_eq!(house.cluster("one").await.provisioned, before.provisioned, "{version}");
        house.settle("one", ProvisioningState::Succeeded, None).await;
    }
    // In a patch an empty text is a text, and another one.
    let emptied = json!({"properties": {"clusterProfile": {"version": ""}}});
    let refusal = house.patch(&at("one", NEW), &emptied).await.refusal();
    assert_eq!((refusal.0, refusal.2.as_str()), (400, "properties.clusterProfile.version"));
    house.close().await;
}

#[tokio::test]
async fn without_a_default_a_version_must_be_named() {
    let house = House::open().await;
    let told = json!({"state": "Registered"});
    house.put(&format!("/subscriptions/{SUBSCRIPTION}?api-version=2.0"), &told).await.expect(201);
    let offered = json!({"properties": {"version": "4.20.3", "openShiftPullspec": "r", "installerPullspec": "i", "enabled": true, "default": false}});
    house.put("/admin/versions", &offered).await.expect(201);
    house.until_offered("4.20.3").await;
    for none in [json!(null), json!("")] {
        let sent = with(body("one"), "/properties/clusterProfile/version", none);
        let refusal = house.put(&at("one", NEW), &sent).await.refusal();
        assert_eq!(refusal, (500, "InternalServerError".to_owned(), String::new()));
    }
    house.put(&at("one", NEW), &body("one")).await.expect(201);
    house.close().await;
}

#[tokio::test]
async fn two_clusters_share_neither_identity_nor_managed_group() {
    on_both(|house| async move {
        house.register().await;
        house.put(&at("one", NEW), &body("one")).await.expect(201);
        let client = body("one")["properties"]["servicePrincipalProfile"]["clientId"].clone();
        let group = body("one")["properties"]["clusterProfile"]["resourceGroupId"].clone();
        let same_client = with(body("two"), "/properties/servicePrincipalProfile/clientId", client);
        let reply = house.put(&at("two", NEW), &same_client).await;
        assert_eq!(reply.refusal(), (400, "DuplicateClientID".to_owned(), String::new()));
        let same_both = with(same_client, "/properties/clusterProfile/resourceGroupId", group.clone());
        assert_eq!(house.put(&at("two", NEW), &same_both).await.refusal().1, "DuplicateClientID");
        let same_group = with(body("two"), "/properties/clusterProfile/resourceGroupId", group);
        assert_eq!(house.put(&at("two", NEW), &same_group).await.refusal().1, "DuplicateResourceGroup");
        let mut domains = vec![body("one")["properties"]["clusterProfile"]["domain"].clone()];
        domains.push(json!(format!("{}.clusters.shipshape.test", domains[0].as_str().unwrap())));
        for domain in domains {
            let same_name = with(body("two"), "/properties/clusterProfile/domain", domain);
            let reply = house.put(&at("two", NEW), &same_name).await;
            let target = "properties.clusterProfile.domain".to_owned();
            assert_eq!(reply.refusal(), (400, "DuplicateDomain".to_owned(), target));
        }
        // A name that their customers keep is theirs to share.
        for name in ["three", "four"] {
            let own =
                with(body(name), "/properties/clusterProfile/domain", json!("harbour.customer.example"));
            house.put(&at(name, NEW), &own).await.expect(201);
            let cluster = house.cluster(name).await;
            assert!(!cluster.provisioned.unwrap().is_domain_managed());
        }
        house.put(&at("two", NEW), &body("two")).await.expect(201);
        // Nor does one take the other's identity later.
        house.settle("two", ProvisioningState::Succeeded, None).await;
        let patch = json!({"properties": {"servicePrincipalProfile": {"clientId": body("one")["properties"]["servicePrincipalProfile"]["clientId"]}}});
        let reply = house.patch(&at("two", NEW), &patch).await;
        assert_eq!(reply.refusal(), (400, "DuplicateClientID".to_owned(), String::new()));
        let taken = with(body("two"), "/properties/servicePrincipalProfile", patch["properties"]["servicePrincipalProfile"].clone());
        assert_eq!(house.put(&at("two", NEW), &taken).await.refusal().1, "DuplicateClientID");
        assert_eq!(house.cluster("two").await.provisioning_state, ProvisioningState::Succeeded);
        house.close().await;
    })
    .await;
}

#[tokio::test]
async fn versions_of_a_document_guard_writes() {
    let house = House::open().await;
    house.register().await;
    let ask = async |method: Method, headers: &[(&str, &str)], sent: serde_json::Value| {
        house.ask(method, &at("one", NEW), headers, Some(sent.to_string().into())).await
    };
    let reply = ask(Method::PUT, &[("if-match", "\"9\"")], body("one")).await;
    assert_eq!(reply.refusal().0, 412);
    let made = ask(Method::PUT, &[("if-none-match", "*")], body("one")).await.expect(201);
    assert_eq!(
        ask(Method::PUT, &[("if-none-match", "*")], body("one")).await.refusal().1,
        "PreconditionFailed"
    );
    house.settle("one", ProvisioningState::Succeeded, None).await;
    let stale = made.header("etag").to_owned();
    assert_eq!(ask(Method::PATCH, &[("if-match", &stale)], json!({})).await.refusal().0, 412);
    assert_eq!(
        house.ask(Method::DELETE, &at("one", NEW), &[("if-match", &stale)], None).await.refusal().0,
        412
    );
    let fresh = house.get(&at("one", NEW)).await.header("etag").to_owned();
    ask(Method::PATCH, &[("if-match", &fresh)], json!({})).await.expect(200);
    house.close().await;
}

#[tokio::test]
async fn a_body_of_three_megabytes_and_one_of_another_type_are_refused() {
    let house = House::open().await;
    house.register().await;
    let long = with(body("one"), "/tags", json!({"long": "x".repeat(3 << 20)}));
    assert_eq!(house.put(&at("one", NEW), &long).await.refusal().1, "InvalidResource");
    let typed = [("content-type", "text/plain")];
    let reply = house.ask(Method::PUT, &at("one", NEW), &typed, Some("{}".into())).await;
    assert_eq!(reply.refusal(), (415, "UnsupportedMediaType".to_owned(), String::new()));
    let charset = [("content-type", "application/json; charset=utf-8")];
    house.ask(Method::PUT, &at("one", NEW), &charset, Some(body("one").to_string().into())).await.expect(201);
    house.close().await;
}

#[tokio::test]
async fn what_a_caller_named_its_request_is_kept_with_the_operation() {
    let house = House::open().await;
    house.register().await;
    let named = async |name: &str, header: &str| {
        let headers = [("x-ms-client-request-id", header)];
        let sent = Some(body(name).to_string().into());
        let reply = house.ask(Method::PUT, &at(name, NEW), &headers, sent).await.expect(201);
        assert_eq!(reply.header("x-ms-client-request-id"), "", "nobody asked for it");
        let id = house.cluster(name).await.operation.unwrap();
        house.store.operations().get(id).await.unwrap().unwrap().document.client_request_id
    };
    assert_eq!(named("one", "my-request 7").await.as_deref(), Some("my-request 7"));
    assert_eq!(named("two", &"x".repeat(101)).await, None, "a long one is none");
    house.close().await;
}

#[tokio::test]
async fn selectors_see_how_a_cluster_of_ours_was_installed_and_need_its_subscription() {
    let house = House::with_cluster("one", ProvisioningState::Succeeded).await;
    let path = format!("/admin{}/selectors?api-version=admin", rid("one"));
    let seen = house.get(&path).await.expect(200).json();
    let cluster = house.cluster("one").await;
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
    let read = house.store.subscriptions().find(&subscription).await.unwrap().unwrap();
    house
        .store
        .collection::<api::doc::Subscription>()
        .delete(&read, &store::AuditContext::service("test"))
        .await
        .unwrap();
    let refusal = house.get(&path).await.refusal();
    assert_eq!((refusal.0, refusal.1.as_str()), (404, "ResourceNotFound"));
    house.close().await;
}
