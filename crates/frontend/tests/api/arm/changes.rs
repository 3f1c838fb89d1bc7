//! What may change, and how a PATCH is meant.

use api::doc::ProvisioningState;
use api::doc::secrets::CLIENT_SECRET as CLIENT;
use serde_json::{Value, json};

use super::{CLIENT_SECRET, NEW, OLD, at, body, rid, with};
use crate::fixture::House;

async fn settled(name: &str) -> House {
    House::with_cluster(name, ProvisioningState::Succeeded).await
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
            "/properties/networkProfile/preconfiguredNSG",
            json!("Enabled"),
            "properties.networkProfile.preconfiguredNSG",
        ),
        ("/properties/masterProfile/vmSize", json!("Standard_D16s_v5"), "properties.masterProfile.vmSize"),
        ("/properties/workerProfiles/0/count", json!(4), "properties.workerProfiles['worker'].count"),
        (
            "/properties/workerProfiles/0/vmSize",
            json!("Standard_D8s_v5"),
            "properties.workerProfiles['worker'].vmSize",
        ),
        ("/properties/workerProfiles", json!([]), "properties.workerProfiles"),
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
            let expect = (400, "PropertyChangeNotAllowed".to_owned(), target.to_owned());
            assert_eq!(reply.refusal(), expect, "{version} {pointer} = {value}");
            assert_eq!(
                reply.json()["error"]["message"],
                format!("Changing property '{target}' is not allowed.")
            );
        }
    }
    assert_eq!(house.cluster("one").await.provisioning_state, ProvisioningState::Succeeded);
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
    assert_eq!(told("{nonsense").await, later);
    house.close().await;
}
