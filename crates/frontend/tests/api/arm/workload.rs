//! Clusters with managed identities, and versions without them.

use api::doc::{Identity, ProvisioningState};
use http::Method;
use serde_json::{Value, json};

use super::{NEW, OLD, SUBSCRIPTION, at, body, with};
use crate::fixture::{Reply, TestServer};

const HEADERS: [(&str, &str); 2] =
    [("x-ms-identity-url", "https://identity.example/x"), ("x-ms-home-tenant-id", "tenant-1")];

fn identity(name: &str) -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/Ids/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{name}"
    )
}

const OPERATORS: [&str; 8] = [
    "aro-operator",
    "cloud-controller-manager",
    "cloud-network-config",
    "disk-csi-driver",
    "file-csi-driver",
    "image-registry",
    "ingress",
    "machine-api",
];

fn workload(name: &str) -> Value {
    let platform: serde_json::Map<String, Value> = OPERATORS
        .iter()
        .map(|operator| ((*operator).to_owned(), json!({"resourceId": identity(operator)})))
        .collect();
    let mut sent = with(body(name), "/properties/servicePrincipalProfile", json!(null));
    sent["properties"]["platformWorkloadIdentityProfile"] = json!({"platformWorkloadIdentities": platform});
    sent["identity"] = json!({"type": "UserAssigned", "userAssignedIdentities": {identity(name): {}}});
    sent
}

async fn put(server: &TestServer, path: &str, sent: &Value) -> Reply {
    server.send(Method::PUT, path, &HEADERS, Some(sent.to_string().into())).await
}

#[tokio::test]
async fn a_cluster_with_managed_identities_is_managed_through_both_versions() {
    let server = TestServer::open().await;
    server.register().await;
    let made = put(&server, &at("one", NEW), &workload("one")).await.expect(201).json();
    assert!(made["properties"].get("servicePrincipalProfile").is_none());
    assert_eq!(made["identity"]["userAssignedIdentities"], json!({identity("one"): {}}));
    server.settle("one", ProvisioningState::Succeeded, None).await;
    let before = server.cluster("one").await;
    let Identity::Workload { identity_url, tenant_id, .. } =
        &before.provisioned.as_ref().unwrap().spec.identity
    else {
        panic!("{before:?}")
    };
    assert_eq!((identity_url.as_deref(), tenant_id.as_deref()), (Some(HEADERS[0].1), Some("tenant-1")));

    // An old client neither sees the identities nor removes them.
    let shown = server.get(&at("one", OLD)).await.expect(200).json();
    assert!(
        shown.get("identity").is_none()
            && shown["properties"].get("platformWorkloadIdentityProfile").is_none()
    );
    let old = with(
        with(body("one"), "/properties/servicePrincipalProfile", json!(null)),
        "/tags",
        json!({"by": "old"}),
    );
    put(&server, &at("one", OLD), &old).await.expect(200);
    let after = server.cluster("one").await;
    assert_eq!(after.provisioned.as_ref().unwrap().spec, before.provisioned.as_ref().unwrap().spec);
    assert_eq!(after.credential, before.credential);
    server.settle("one", ProvisioningState::Succeeded, None).await;
    let wrong = put(&server, &at("one", OLD), &body("one")).await.error();
    assert_eq!(
        wrong,
        (400, "PropertyChangeNotAllowed".to_owned(), "properties.servicePrincipalProfile".to_owned())
    );

    // A PATCH merges operators' identities; they may change, but not be removed.
    let other = json!({"properties": {"platformWorkloadIdentityProfile": {"platformWorkloadIdentities": {"ingress": {"resourceId": identity("else")}}}}});
    let patched = server.patch(&at("one", NEW), &other).await.expect(200).json();
    let platform = &patched["properties"]["platformWorkloadIdentityProfile"]["platformWorkloadIdentities"];
    assert_eq!(platform["ingress"]["resourceId"], identity("else"));
    assert_eq!(platform.as_object().unwrap().len(), OPERATORS.len());
    server.settle("one", ProvisioningState::Succeeded, None).await;
    let fewer = with(
        workload("one"),
        "/properties/platformWorkloadIdentityProfile/platformWorkloadIdentities/ingress",
        json!(null),
    );
    assert_eq!(put(&server, &at("one", NEW), &fewer).await.error().1, "PropertyChangeNotAllowed");
    let replaced = json!({"identity": {"userAssignedIdentities": {identity("two"): {}}}});
    let patched = server.patch(&at("one", NEW), &replaced).await.expect(200).json();
    assert_eq!(patched["identity"]["userAssignedIdentities"], json!({identity("two"): {}}));
    server.close().await;
}

#[tokio::test]
async fn resolved_members_of_managed_identities_are_read_only() {
    let server = TestServer::open().await;
    server.register().await;
    put(&server, &at("one", NEW), &workload("one")).await.expect(201);
    server.settle("one", ProvisioningState::Succeeded, None).await;
    let own = identity("one");
    let ingress = |member: &str| json!({"resourceId": identity("ingress"), member: "x"});
    let platform = "/properties/platformWorkloadIdentityProfile/platformWorkloadIdentities";
    let shown = "properties.platformWorkloadIdentityProfile.platformWorkloadIdentities[\"ingress\"]";
    for (pointer, value, target) in [
        ("/identity/principalId", json!("x"), "identity.principalId".to_owned()),
        ("/identity/tenantId", json!("x"), "identity.tenantId".to_owned()),
        (
            "/identity/userAssignedIdentities",
            json!({own.as_str(): {"clientId": "x"}}),
            format!("identity.userAssignedIdentities[\"{own}\"].clientId"),
        ),
        (
            "/identity/userAssignedIdentities",
            json!({own.as_str(): {"principalId": "x"}}),
            format!("identity.userAssignedIdentities[\"{own}\"].principalId"),
        ),
        (&format!("{platform}/ingress"), ingress("clientId"), format!("{shown}.clientId")),
        (&format!("{platform}/ingress"), ingress("objectId"), format!("{shown}.objectId")),
    ] {
        let reply = put(&server, &at("one", NEW), &with(workload("one"), pointer, value)).await;
        assert_eq!(reply.error(), (400, "PropertyChangeNotAllowed".to_owned(), target), "{pointer}");
    }
    put(&server, &at("one", NEW), &workload("one")).await.expect(200);
    server.close().await;
}

#[tokio::test]
async fn a_managed_identity_belongs_to_one_cluster() {
    let server = TestServer::open().await;
    server.register().await;
    put(&server, &at("one", NEW), &workload("one")).await.expect(201);
    let shouted = identity("one").to_uppercase().replace("/SUBSCRIPTIONS/", "/subscriptions/");
    for same in [identity("one"), shouted] {
        let taken = with(workload("two"), "/identity/userAssignedIdentities", json!({same: {}}));
        let reply = put(&server, &at("two", NEW), &taken).await;
        assert_eq!(reply.error(), (400, "DuplicateClientID".to_owned(), String::new()));
    }
    put(&server, &at("two", NEW), &workload("two")).await.expect(201);
    server.settle("two", ProvisioningState::Succeeded, None).await;
    let taken = json!({"identity": {"userAssignedIdentities": {identity("one"): {}}}});
    assert_eq!(server.patch(&at("two", NEW), &taken).await.error().1, "DuplicateClientID");
    server.close().await;
}

#[tokio::test]
async fn a_version_without_a_role_set_has_no_managed_identities() {
    let server = TestServer::open().await;
    server.register().await;
    let offered = json!({"properties": {"version": "4.21.0", "openShiftPullspec": "r", "installerPullspec": "i", "enabled": true, "default": false}});
    server.put("/admin/versions", &offered).await.expect(201);
    server.until_offered("4.21.0").await;
    let newer = |sent: Value| with(sent, "/properties/clusterProfile/version", json!("4.21.0"));
    let reply = put(&server, &at("one", NEW), &newer(workload("one"))).await;
    assert_eq!(reply.error(), (400, "InvalidParameter".to_owned(), String::new()));
    assert!(reply.text.contains("no role set"), "{}", reply.text);
    put(&server, &at("one", NEW), &newer(body("one"))).await.expect(201);
    server.close().await;
}

#[tokio::test]
async fn each_rule_for_managed_identities_has_its_error() {
    let server = TestServer::open().await;
    server.register().await;
    let platform = "/properties/platformWorkloadIdentityProfile/platformWorkloadIdentities";
    let principal = json!({"clientId": "33333333-3333-3333-3333-333333333333", "clientSecret": "s"});
    let ingress =
        "properties.platformWorkloadIdentityProfile.platformWorkloadIdentities[\"ingress\"].resourceId";
    for (sent, code, target) in [
        (
            with(body("x"), "/properties/servicePrincipalProfile", json!(null)),
            "InvalidParameter",
            "properties.servicePrincipalProfile",
        ),
        (
            with(workload("x"), "/properties/servicePrincipalProfile", principal),
            "InvalidParameter",
            "properties.servicePrincipalProfile",
        ),
        (with(workload("x"), "/identity", json!(null)), "InvalidParameter", "identity"),
        (
            with(workload("x"), "/properties/platformWorkloadIdentityProfile", json!(null)),
            "InvalidParameter",
            "identity",
        ),
        (with(workload("x"), "/identity/type", json!("SystemAssigned")), "InvalidParameter", "identity"),
        (with(workload("x"), "/identity/userAssignedIdentities", json!({})), "InvalidParameter", "identity"),
        (
            with(
                workload("x"),
                "/identity/userAssignedIdentities",
                json!({identity("a1"): {}, identity("b1"): {}}),
            ),
            "InvalidParameter",
            "identity",
        ),
        (
            with(workload("x"), "/identity/userAssignedIdentities", json!({"/nothing": {}})),
            "InvalidParameter",
            "identity",
        ),
        (
            with(workload("x"), platform, json!({})),
            "InvalidParameter",
            "properties.platformWorkloadIdentityProfile.platformWorkloadIdentities",
        ),
        (
            with(workload("x"), &format!("{platform}/ingress"), json!({"resourceId": "x"})),
            "InvalidParameter",
            ingress,
        ),
        (
            with(
                workload("x"),
                &format!("{platform}/machine-api"),
                json!({"resourceId": identity("INGRESS")}),
            ),
            "InvalidParameter",
            "properties.platformWorkloadIdentityProfile.platformWorkloadIdentities[\"machine-api\"].resourceId",
        ),
        (
            with(workload("x"), "/properties/platformWorkloadIdentityProfile/upgradeableTo", json!("soon")),
            "InvalidParameter",
            "properties.platformWorkloadIdentityProfile.UpgradeableTo[soon]",
        ),
        (
            with(workload("x"), "/properties/platformWorkloadIdentityProfile/upgradeableTo", json!("4.99.0")),
            "InvalidParameter",
            "",
        ),
        (
            with(workload("x"), &format!("{platform}/ingress"), json!(null)),
            "PlatformWorkloadIdentityMismatch",
            "properties.platformWorkloadIdentityProfile.platformWorkloadIdentities",
        ),
    ] {
        let reply = put(&server, &at("x", NEW), &sent).await;
        assert_eq!(reply.error(), (400, code.to_owned(), target.to_owned()), "{}", reply.text);
    }
    // Without the headers of the credentials' URL.
    let reply = server.put(&at("x", NEW), &workload("x")).await;
    assert_eq!(reply.error(), (400, "InvalidParameter".to_owned(), "identity".to_owned()));
    // An old version ignores these as unknown members.
    let reply = put(&server, &at("x", OLD), &workload("x")).await;
    assert_eq!(reply.error().2, "properties.servicePrincipalProfile");
    server.close().await;
}
