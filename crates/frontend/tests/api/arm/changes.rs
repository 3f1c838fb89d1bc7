//! What may change, and how a PATCH is meant.

use api::doc::ProvisioningState;
use api::doc::secrets::CLIENT_SECRET as CLIENT;
use serde_json::{Value, json};

use super::{CLIENT_SECRET, NEW, OLD, SUBSCRIPTION, at, body, rid, with};
use crate::fixture::House;

async fn settled(name: &str) -> House {
    House::with_cluster(name, ProvisioningState::Succeeded).await
}

fn subnet(name: &str) -> Value {
    json!(format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/Net/providers/Microsoft.Network/virtualNetworks/Vnet/subnets/{name}"
    ))
}

/// The refusal of a change.
fn unchangeable(target: &str) -> (u16, String, String) {
    (400, "PropertyChangeNotAllowed".to_owned(), target.to_owned())
}

#[tokio::test]
async fn what_is_immutable_is_refused_by_its_path() {
    let house = settled("one").await;
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
            let reply = house.put(&at("one", version), &with(body("one"), pointer, value.clone())).await;
            assert_eq!(reply.refusal(), unchangeable(target), "{version} {pointer} = {value}");
            assert_eq!(
                reply.json()["error"]["message"],
                format!("Changing property '{target}' is not allowed.")
            );
        }
    }
    // The keys of all disks change together, or a rule for values refuses them.
    let set = json!(format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/Net/providers/Microsoft.Compute/diskEncryptionSets/d"
    ));
    let keyed = with(body("one"), "/properties/masterProfile/diskEncryptionSetId", set.clone());
    let keyed = with(keyed, "/properties/workerProfiles/0/diskEncryptionSetId", set);
    for version in [NEW, OLD] {
        let expect = unchangeable("properties.masterProfile.diskEncryptionSetId");
        assert_eq!(house.put(&at("one", version), &keyed).await.refusal(), expect);
    }
    // Only the newest version knows the issuer; to the old one it is a member like any that it has never heard of.
    let issued = with(body("one"), "/properties/clusterProfile/oidcIssuer", json!("https://issuer.example"));
    let expect = unchangeable("properties.clusterProfile.oidcIssuer");
    assert_eq!(house.put(&at("one", NEW), &issued).await.refusal(), expect);
    assert_eq!(house.cluster("one").await.provisioning_state, ProvisioningState::Succeeded);
    house.put(&at("one", OLD), &issued).await.expect(200);
    house.close().await;
}

#[tokio::test]
async fn the_way_out_of_a_cluster_stays_as_it_was() {
    let house = House::open().await;
    house.register().await;
    let private = |name: &str, outbound: Value| {
        let sent = with(body(name), "/properties/apiserverProfile/visibility", json!("Private"));
        let sent = with(sent, "/properties/ingressProfiles/0/visibility", json!("Private"));
        with(sent, "/properties/networkProfile/outboundType", outbound)
    };
    for (name, from, to) in
        [("one", "Loadbalancer", "UserDefinedRouting"), ("two", "UserDefinedRouting", "Loadbalancer")]
    {
        house.put(&at(name, NEW), &private(name, json!(from))).await.expect(201);
        house.settle(name, ProvisioningState::Succeeded, None).await;
        for version in [NEW, OLD] {
            let reply = house.put(&at(name, version), &private(name, json!(to))).await;
            let expect = unchangeable("properties.networkProfile.outboundType");
            assert_eq!(reply.refusal(), expect, "{version} {from} to {to}");
        }
        house.put(&at(name, NEW), &private(name, json!(""))).await.expect(200);
    }
    house.close().await;
}

#[tokio::test]
async fn what_was_accepted_before_a_rule_came_is_accepted_again() {
    let house = settled("one").await;
    let read = house.store.clusters().find(&rid("one")).await.unwrap().unwrap();
    let mut older = read.document.clone();
    let spec = &mut older.provisioned.as_mut().unwrap().spec;
    spec.domain = "1st.customer.example".to_owned();
    spec.network.pod_cidr = "100.64.0.0/16".to_owned();
    spec.network.service_cidr = "100.88.0.0/16".to_owned();
    house.store.clusters().update(&read, &older, &store::AuditContext::service("test")).await.unwrap();
    let sent = with(body("one"), "/properties/clusterProfile/domain", json!("1st.customer.example"));
    let sent = with(sent, "/properties/networkProfile/podCidr", json!("100.64.0.0/16"));
    let sent = with(sent, "/properties/networkProfile/serviceCidr", json!("100.88.0.0/16"));
    for version in [NEW, OLD] {
        house.put(&at("one", version), &sent).await.expect(200);
        house.settle("one", ProvisioningState::Succeeded, None).await;
    }
    // What was never right is still refused.
    for (pointer, value) in [
        ("/properties/clusterProfile/domain", json!("-a.customer.example")),
        ("/properties/networkProfile/podCidr", json!("100.64.0.0/19")),
    ] {
        let reply = house.put(&at("one", NEW), &with(sent.clone(), pointer, value)).await;
        assert_eq!(reply.refusal().1, "InvalidParameter", "{pointer}");
    }
    house.close().await;
}

#[tokio::test]
async fn what_is_mutable_changes_and_what_was_read_may_be_sent_back() {
    let house = settled("one").await;
    let shown = house.get(&at("one", NEW)).await.expect(200).json();
    house.put(&at("one", NEW), &shown).await.expect(200);
    house.settle("one", ProvisioningState::Succeeded, None).await;
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
    let changed = house.put(&at("one", NEW), &more).await.expect(200).json();
    assert_eq!(
        changed["properties"]["networkProfile"]["loadBalancerProfile"]["managedOutboundIps"]["count"],
        3
    );
    assert_eq!(changed["tags"], json!({"none": "", "a": "b"}));
    assert_eq!(changed["properties"]["provisioningState"], "Updating");
    // A secret that is not sent is kept.
    let read = house.store.clusters().find(&rid("one")).await.unwrap().unwrap();
    assert_eq!(
        house.store.secret(read.uuid, CLIENT).await.unwrap().unwrap().expose(),
        CLIENT_SECRET.as_bytes()
    );
    house.settle("one", ProvisioningState::Succeeded, None).await;
    // What a PUT leaves out of the defaulted members is kept; tags are not.
    let bare = with(more, "/tags", json!(null));
    let bare = with(bare, "/properties/networkProfile/loadBalancerProfile", json!(null));
    let kept = house.put(&at("one", NEW), &bare).await.expect(200).json();
    assert_eq!(kept["properties"]["networkProfile"]["loadBalancerProfile"]["managedOutboundIps"]["count"], 3);
    assert!(kept.get("tags").is_none());
    house.close().await;
}

#[tokio::test]
async fn a_patch_merges_objects_replaces_tags_and_keeps_secrets() {
    let house = settled("one").await;
    let patch = async |sent: Value, tags: Value| {
        let reply = house.patch(&at("one", NEW), &sent).await.expect(200);
        assert!(!reply.header("azure-asyncoperation").is_empty());
        assert_eq!(reply.json().get("tags").cloned().unwrap_or_default(), tags, "{sent}");
        house.settle("one", ProvisioningState::Succeeded, None).await;
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
    let read = house.store.clusters().find(&rid("one")).await.unwrap().unwrap();
    assert_eq!(house.store.secret(read.uuid, CLIENT).await.unwrap().unwrap().expose(), b"another-one");
    let listed = json!({"properties": {"servicePrincipalProfile": ["33333333-3333-3333-3333-333333333333", "a-third"]}});
    let refused = house.patch(&at("one", NEW), &listed).await.refusal();
    let target = "properties.servicePrincipalProfile".to_owned();
    assert_eq!(refused, (400, "InvalidRequestContent".to_owned(), target));
    assert_eq!(house.store.secret(read.uuid, CLIENT).await.unwrap().unwrap().expose(), b"another-one");
    let refused =
        house.patch(&at("one", NEW), &json!({"properties": {"workerProfiles": [{"count": 9}]}})).await;
    assert_eq!(refused.status, 400);
    let refused =
        house.patch(&at("one", NEW), &json!({"properties": {"networkProfile": {"podCidr": null}}})).await;
    assert_eq!(refused.refusal().2, "properties.networkProfile.podCidr");
    let absent = house.patch(&at("two", NEW), &json!({})).await;
    assert_eq!(absent.refusal(), (404, "ResourceNotFound".to_owned(), String::new()));
    let admin = house.patch(&at("one", "admin"), &json!({})).await;
    assert_eq!(admin.refusal().1, "RequestNotAllowed");
    house.close().await;
}

#[tokio::test]
async fn who_changed_it_is_laid_over_who_is_known() {
    let house = settled("one").await;
    let told = async |system: &str| {
        let headers = [("x-ms-arm-resource-system-data", system)];
        let reply =
            house.ask(http::Method::PATCH, &at("one", NEW), &headers, Some("{}".into())).await.expect(200);
        house.settle("one", ProvisioningState::Succeeded, None).await;
        reply.json()["systemData"].clone()
    };
    told(r#"{"createdBy":"jo","createdByType":"User"}"#).await;
    let later =
        told(r#"{"createdBy":"","lastModifiedBy":"al","lastModifiedAt":"2026-01-02T03:04:05Z"}"#).await;
    assert_eq!(
        later,
        json!({"createdBy": "jo", "createdByType": "User", "lastModifiedBy": "al", "lastModifiedAt": "2026-01-02T03:04:05Z"})
    );
    // What cannot be read is passed over.
    for odd in ["{nonsense", r#"["me","User"]"#, "[]", "7"] {
        assert_eq!(told(odd).await, later, "{odd}");
    }
    house.close().await;
}
