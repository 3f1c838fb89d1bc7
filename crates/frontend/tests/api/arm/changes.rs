//! Mutable and immutable members, and the semantics of PATCH.

use api::doc::ProvisioningState;
use api::doc::secrets::CLIENT_SECRET as CLIENT;
use serde_json::{Value, json};

use super::{CLIENT_SECRET, NEW, OLD, SUBSCRIPTION, at, body, rid, with};
use crate::fixture::TestServer;

async fn settled(name: &str) -> TestServer {
    TestServer::with_cluster(name, ProvisioningState::Succeeded).await
}

fn subnet(name: &str) -> Value {
    json!(format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/Net/providers/Microsoft.Network/virtualNetworks/Vnet/subnets/{name}"
    ))
}

/// The error for an immutable member.
fn unchangeable(target: &str) -> (u16, String, String) {
    (400, "PropertyChangeNotAllowed".to_owned(), target.to_owned())
}

#[tokio::test]
async fn a_change_of_an_immutable_member_is_rejected_with_its_path() {
    let server = settled("one").await;
    for (pointer, value, target) in [
        ("/location", json!("west"), "location"),
        ("/properties/provisioningState", json!("Failed"), "properties.provisioningState"),
        ("/properties/clusterProfile/domain", json!("other"), "properties.clusterProfile.domain"),
        ("/properties/clusterProfile/version", json!("4.19.14"), "properties.clusterProfile.version"),
        (
            "/properties/clusterProfile/pullSecret",
            json!("{\"auths\":{}}"),
            "properties.clusterProfile.pullSecret",
        ),
        (
            "/properties/clusterProfile/fipsValidatedModules",
            json!("Enabled"),
            "properties.clusterProfile.fipsValidatedModules",
        ),
        ("/properties/networkProfile/podCidr", json!("10.64.0.0/14"), "properties.networkProfile.podCidr"),
        (
            "/properties/clusterProfile/resourceGroupId",
            json!(format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/Another")),
            "properties.clusterProfile.resourceGroupId",
        ),
        (
            "/properties/networkProfile/serviceCidr",
            json!("172.31.0.0/16"),
            "properties.networkProfile.serviceCidr",
        ),
        (
            "/properties/networkProfile/preconfiguredNSG",
            json!("Enabled"),
            "properties.networkProfile.preconfiguredNSG",
        ),
        ("/properties/masterProfile/subnetId", subnet("another"), "properties.masterProfile.subnetId"),
        (
            "/properties/masterProfile/encryptionAtHost",
            json!("Enabled"),
            "properties.masterProfile.encryptionAtHost",
        ),
        ("/properties/masterProfile/vmSize", json!("Standard_D16s_v5"), "properties.masterProfile.vmSize"),
        ("/properties/workerProfiles/0/count", json!(4), "properties.workerProfiles['worker'].count"),
        (
            "/properties/workerProfiles/0/vmSize",
            json!("Standard_D8s_v5"),
            "properties.workerProfiles['worker'].vmSize",
        ),
        (
            "/properties/workerProfiles/0/diskSizeGB",
            json!(256),
            "properties.workerProfiles['worker'].diskSizeGB",
        ),
        (
            "/properties/workerProfiles/0/subnetId",
            subnet("another"),
            "properties.workerProfiles['worker'].subnetId",
        ),
        (
            "/properties/workerProfiles/0/encryptionAtHost",
            json!("Enabled"),
            "properties.workerProfiles['worker'].encryptionAtHost",
        ),
        ("/properties/workerProfiles", json!([]), "properties.workerProfiles"),
        (
            "/properties/ingressProfiles/0/visibility",
            json!("Private"),
            "properties.ingressProfiles['default'].visibility",
        ),
        (
            "/properties/apiserverProfile/visibility",
            json!("Private"),
            "properties.apiserverProfile.visibility",
        ),
        ("/properties/apiserverProfile/url", json!("https://a.example"), "properties.apiserverProfile.url"),
        ("/properties/apiserverProfile/ip", json!("10.0.0.1"), "properties.apiserverProfile.ip"),
        ("/properties/ingressProfiles/0/ip", json!("10.0.0.1"), "properties.ingressProfiles['default'].ip"),
        ("/properties/consoleProfile", json!({"url": "https://c.example"}), "properties.consoleProfile.url"),
        ("/properties/workerProfilesStatus", json!([{"name": "x"}]), "properties.workerProfilesStatus"),
        ("/systemData", json!({"createdBy": "me"}), "systemData"),
        (
            "/properties/networkProfile/loadBalancerProfile",
            json!({"effectiveOutboundIps": [{"id": "/ip"}]}),
            "properties.networkProfile.loadBalancerProfile.effectiveOutboundIps",
        ),
    ] {
        for version in [NEW, OLD] {
            let reply = server.put(&at("one", version), &with(body("one"), pointer, value.clone())).await;
            assert_eq!(reply.error(), unchangeable(target), "{version} {pointer} = {value}");
            assert_eq!(
                reply.json()["error"]["message"],
                format!("Changing property '{target}' is not allowed.")
            );
        }
    }
    // The keys of all disks change together, otherwise validation rejects them.
    let set = json!(format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/Net/providers/Microsoft.Compute/diskEncryptionSets/d"
    ));
    let keyed = with(body("one"), "/properties/masterProfile/diskEncryptionSetId", set.clone());
    let keyed = with(keyed, "/properties/workerProfiles/0/diskEncryptionSetId", set);
    for version in [NEW, OLD] {
        let expect = unchangeable("properties.masterProfile.diskEncryptionSetId");
        assert_eq!(server.put(&at("one", version), &keyed).await.error(), expect);
    }
    // Only the newest version has the issuer; the old one ignores it as an unknown member.
    let issued = with(body("one"), "/properties/clusterProfile/oidcIssuer", json!("https://issuer.example"));
    let expect = unchangeable("properties.clusterProfile.oidcIssuer");
    assert_eq!(server.put(&at("one", NEW), &issued).await.error(), expect);
    assert_eq!(server.cluster("one").await.provisioning_state, ProvisioningState::Succeeded);
    server.put(&at("one", OLD), &issued).await.expect(200);
    server.close().await;
}

#[tokio::test]
async fn the_outbound_type_of_a_cluster_is_immutable() {
    let server = TestServer::open().await;
    server.register().await;
    let private = |name: &str, outbound: Value| {
        let sent = with(body(name), "/properties/apiserverProfile/visibility", json!("Private"));
        let sent = with(sent, "/properties/ingressProfiles/0/visibility", json!("Private"));
        with(sent, "/properties/networkProfile/outboundType", outbound)
    };
    for (name, from, to) in
        [("one", "Loadbalancer", "UserDefinedRouting"), ("two", "UserDefinedRouting", "Loadbalancer")]
    {
        server.put(&at(name, NEW), &private(name, json!(from))).await.expect(201);
        server.settle(name, ProvisioningState::Succeeded, None).await;
        for version in [NEW, OLD] {
            let reply = server.put(&at(name, version), &private(name, json!(to))).await;
            let expect = unchangeable("properties.networkProfile.outboundType");
            assert_eq!(reply.error(), expect, "{version} {from} to {to}");
        }
        server.put(&at(name, NEW), &private(name, json!(""))).await.expect(200);
    }
    server.close().await;
}

#[tokio::test]
async fn values_accepted_before_a_rule_existed_are_accepted_again() {
    let server = settled("one").await;
    let read = server.store.clusters().find(&rid("one")).await.unwrap().unwrap();
    let mut older = read.document.clone();
    let spec = &mut older.provisioned.as_mut().unwrap().spec;
    spec.domain = "1st.customer.example".to_owned();
    spec.network.pod_cidr = "100.64.0.0/16".to_owned();
    spec.network.service_cidr = "100.88.0.0/16".to_owned();
    server.store.clusters().update(&read, &older, &store::AuditContext::service("test")).await.unwrap();
    let sent = with(body("one"), "/properties/clusterProfile/domain", json!("1st.customer.example"));
    let sent = with(sent, "/properties/networkProfile/podCidr", json!("100.64.0.0/16"));
    let sent = with(sent, "/properties/networkProfile/serviceCidr", json!("100.88.0.0/16"));
    for version in [NEW, OLD] {
        server.put(&at("one", version), &sent).await.expect(200);
        server.settle("one", ProvisioningState::Succeeded, None).await;
    }
    // Values that were never valid are still rejected.
    for (pointer, value) in [
        ("/properties/clusterProfile/domain", json!("-a.customer.example")),
        ("/properties/networkProfile/podCidr", json!("100.64.0.0/19")),
    ] {
        let reply = server.put(&at("one", NEW), &with(sent.clone(), pointer, value)).await;
        assert_eq!(reply.error().1, "InvalidParameter", "{pointer}");
    }
    server.close().await;
}

#[tokio::test]
async fn mutable_members_change_and_a_read_document_can_be_sent_back() {
    let server = settled("one").await;
    let shown = server.get(&at("one", NEW)).await.expect(200).json();
    server.put(&at("one", NEW), &shown).await.expect(200);
    server.settle("one", ProvisioningState::Succeeded, None).await;
    let more = with(
        body("one"),
        "/properties/networkProfile/loadBalancerProfile",
        json!({"managedOutboundIps": {"count": 3}}),
    );
    let more = with(more, "/tags", json!({"none": null, "a": "b"}));
    let more = with(
        more,
        "/properties/servicePrincipalProfile",
        json!({"clientId": "33333333-3333-3333-3333-333333333333"}),
    );
    let changed = server.put(&at("one", NEW), &more).await.expect(200).json();
    assert_eq!(
        changed["properties"]["networkProfile"]["loadBalancerProfile"]["managedOutboundIps"]["count"],
        3
    );
    assert_eq!(changed["tags"], json!({"none": "", "a": "b"}));
    assert_eq!(changed["properties"]["provisioningState"], "Updating");
    // An omitted secret is unchanged.
    let read = server.store.clusters().find(&rid("one")).await.unwrap().unwrap();
    assert_eq!(
        server.store.secret(read.uuid, CLIENT).await.unwrap().unwrap().expose(),
        CLIENT_SECRET.as_bytes()
    );
    server.settle("one", ProvisioningState::Succeeded, None).await;
    // Omitted members with defaults are unchanged by a PUT; tags are removed.
    let bare = with(more, "/tags", json!(null));
    let bare = with(bare, "/properties/networkProfile/loadBalancerProfile", json!(null));
    let kept = server.put(&at("one", NEW), &bare).await.expect(200).json();
    assert_eq!(kept["properties"]["networkProfile"]["loadBalancerProfile"]["managedOutboundIps"]["count"], 3);
    assert!(kept.get("tags").is_none());
    server.close().await;
}

#[tokio::test]
async fn a_patch_merges_objects_replaces_tags_and_keeps_secrets() {
    let server = settled("one").await;
    let patch = async |sent: Value, tags: Value| {
        let reply = server.patch(&at("one", NEW), &sent).await.expect(200);
        assert!(!reply.header("azure-asyncoperation").is_empty());
        assert_eq!(reply.json().get("tags").cloned().unwrap_or_default(), tags, "{sent}");
        server.settle("one", ProvisioningState::Succeeded, None).await;
    };
    patch(json!({}), json!({"team": "blue"})).await;
    patch(json!({"tags": {"a": "b"}}), json!({"a": "b"})).await;
    patch(
        json!({"properties": {"servicePrincipalProfile": {"clientSecret": "another-one"}}}),
        json!({"a": "b"}),
    )
    .await;
    patch(json!({"tags": {}}), Value::Null).await;
    patch(json!({"tags": {"c": "d"}}), json!({"c": "d"})).await;
    patch(json!({"tags": null}), Value::Null).await;
    let read = server.store.clusters().find(&rid("one")).await.unwrap().unwrap();
    assert_eq!(server.store.secret(read.uuid, CLIENT).await.unwrap().unwrap().expose(), b"another-one");
    let listed = json!({"properties": {"servicePrincipalProfile": ["33333333-3333-3333-3333-333333333333", "a-third"]}});
    let refused = server.patch(&at("one", NEW), &listed).await.error();
    let target = "properties.servicePrincipalProfile".to_owned();
    assert_eq!(refused, (400, "InvalidRequestContent".to_owned(), target));
    assert_eq!(server.store.secret(read.uuid, CLIENT).await.unwrap().unwrap().expose(), b"another-one");
    let refused =
        server.patch(&at("one", NEW), &json!({"properties": {"workerProfiles": [{"count": 9}]}})).await;
    assert_eq!(refused.status, 400);
    let refused =
        server.patch(&at("one", NEW), &json!({"properties": {"networkProfile": {"podCidr": null}}})).await;
    assert_eq!(refused.error().2, "properties.networkProfile.podCidr");
    let absent = server.patch(&at("two", NEW), &json!({})).await;
    assert_eq!(absent.error(), (404, "ResourceNotFound".to_owned(), String::new()));
    let admin = server.patch(&at("one", "admin"), &json!({})).await;
    assert_eq!(admin.error().1, "RequestNotAllowed");
    server.close().await;
}

#[tokio::test]
async fn system_data_of_a_request_updates_the_stored_system_data() {
    let server = settled("one").await;
    let update = async |system: &str| {
        let headers = [("x-ms-arm-resource-system-data", system)];
        let reply =
            server.send(http::Method::PATCH, &at("one", NEW), &headers, Some("{}".into())).await.expect(200);
        server.settle("one", ProvisioningState::Succeeded, None).await;
        reply.json()["systemData"].clone()
    };
    update(r#"{"createdBy":"jo","createdByType":"User"}"#).await;
    let later =
        update(r#"{"createdBy":"","lastModifiedBy":"al","lastModifiedAt":"2026-01-02T03:04:05Z"}"#).await;
    assert_eq!(
        later,
        json!({"createdBy": "jo", "createdByType": "User", "lastModifiedBy": "al", "lastModifiedAt": "2026-01-02T03:04:05Z"})
    );
    // Invalid system data is ignored.
    for odd in ["{nonsense", r#"["me","User"]"#, "[]", "7"] {
        assert_eq!(update(odd).await, later, "{odd}");
    }
    server.close().await;
}
