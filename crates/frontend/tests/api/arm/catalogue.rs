//! Versions, role sets, sizes and operations.

use serde_json::json;

use super::{NEW, OLD, SUBSCRIPTION};
use crate::fixture::TestServer;

fn version(version: &str, enabled: bool, default: bool) -> serde_json::Value {
    json!({"properties": {"version": version, "openShiftPullspec": "r", "installerPullspec": "i", "enabled": enabled, "default": default}})
}

fn offered(rest: &str, api_version: &str) -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/providers/Microsoft.RedHatOpenShift/locations/Local/{rest}?api-version={api_version}"
    )
}

#[tokio::test]
async fn versions_are_offered_in_order_with_one_default() {
    let server = TestServer::open().await;
    assert_eq!(server.get(&offered("openShiftVersions", NEW)).await.expect(200).json(), json!({"value": []}));
    for (number, enabled, default) in
        [("4.9.1", true, false), ("4.20.3", true, true), ("4.19.14", false, false), ("4.10.0", true, false)]
    {
        server.put("/admin/versions", &version(number, enabled, default)).await.expect(201);
    }
    let names = |value: &serde_json::Value| {
        value["value"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for api_version in [NEW, OLD] {
        let list = server.get(&offered("openShiftVersions", api_version)).await.expect(200).json();
        assert_eq!(names(&list), ["4.9.1", "4.10.0", "4.20.3"]);
    }
    let one = server.get(&offered("openShiftVersions/4.10.0", NEW)).await.expect(200).json();
    assert_eq!(one["properties"], json!({"version": "4.10.0"}));
    assert_eq!(one["type"], "Microsoft.RedHatOpenShift/locations/openShiftVersions");
    assert_eq!(server.get(&offered("openShiftVersions/4.19.14", NEW)).await.error().1, "ResourceNotFound");
    // A new default replaces the first.
    server.put("/admin/versions", &version("4.10.0", true, true)).await.expect(200);
    let all = server.get("/admin/versions").await.expect(200).json();
    let defaults: Vec<_> =
        all["value"].as_array().unwrap().iter().filter(|it| it["properties"]["default"] == true).collect();
    assert_eq!(defaults.len(), 1);
    assert_eq!(defaults[0]["properties"]["version"], "4.10.0");
    let put = async |sent: serde_json::Value| server.put("/admin/versions", &sent).await.error();
    assert_eq!(put(version("4.10.0", false, false)).await.2, "properties.enabled");
    assert_eq!(put(version("4.11.0", false, true)).await.2, "properties.enabled");
    assert_eq!(put(version("4.11", true, false)).await.2, "properties.version");
    for member in ["version", "openShiftPullspec", "installerPullspec"] {
        let mut sent = version("4.12.0", true, false);
        sent["properties"].as_object_mut().unwrap().remove(member);
        assert_eq!(put(sent).await, (400, "InvalidParameter".to_owned(), format!("properties.{member}")));
    }
    server.close().await;
}

#[tokio::test]
async fn versions_of_another_process_are_loaded() {
    let server = TestServer::open().await;
    let by = store::AuditContext::service("test");
    let wanted = api::doc::Version {
        version: "4.21.0".to_owned(),
        openshift_pullspec: "r".to_owned(),
        installer_pullspec: None,
        enabled: true,
        default: false,
    };
    server.store.versions().put(&wanted, None, &by).await.unwrap();
    server.until_offered("4.21.0").await;
    server.close().await;
}

#[tokio::test]
async fn role_sets_are_shown_in_versions_that_have_them() {
    let server = TestServer::open().await;
    assert!(frontend::seed_defaults(&server.store, &store::AuditContext::service("test")).await.unwrap());
    assert!(!frontend::seed_defaults(&server.store, &store::AuditContext::service("test")).await.unwrap());
    server.until_offered("4.20.3").await;
    let role = json!({"operatorName": "o", "roleDefinitionName": "n", "roleDefinitionId": "i", "serviceAccounts": ["a"], "secretLocation": {"namespace": "n", "name": "s"}});
    let set = |minor: &str| json!({"properties": {"openShiftVersion": minor, "platformWorkloadIdentityRoles": [role.clone()]}});
    server.put("/admin/platformworkloadidentityrolesets", &set("4.9")).await.expect(201);
    server.put("/admin/platformworkloadidentityrolesets", &set("4.9")).await.expect(200);
    let list = server.get(&offered("platformWorkloadIdentityRoleSets", NEW)).await.expect(200).json();
    let names: Vec<_> =
        list["value"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["4.9", "4.18", "4.19", "4.20"]);
    let one = server.get(&offered("platformWorkloadIdentityRoleSets/4.9", NEW)).await.expect(200).json();
    let shown = json!({"operatorName": "o", "roleDefinitionName": "n", "roleDefinitionId": "i"});
    assert_eq!(
        one["properties"],
        json!({"openShiftVersion": "4.9", "platformWorkloadIdentityRoles": [shown]})
    );
    assert_eq!(server.get(&offered("platformWorkloadIdentityRoleSets/4.8", NEW)).await.error().0, 404);
    assert_eq!(
        server.get(&offered("platformWorkloadIdentityRoleSets", OLD)).await.error().1,
        "InvalidResourceType"
    );
    let all = server.get("/admin/platformworkloadidentityrolesets").await.expect(200).json();
    assert_eq!(
        all["value"][0]["properties"]["platformWorkloadIdentityRoles"][0]["secretLocation"]["namespace"],
        "n"
    );
    let bad = json!({"properties": {"platformWorkloadIdentityRoles": [{"operatorName": "o", "roleDefinitionId": "i", "serviceAccounts": ["a"]}]}});
    let target = server.put("/admin/platformworkloadidentityrolesets", &bad).await.error().2;
    for path in
        ["properties.openShiftVersion", "Roles[0].roleDefinitionName", "Roles[0].secretLocation.namespace"]
    {
        assert!(target.contains(path), "{target}");
    }
    server.close().await;
}

#[tokio::test]
async fn operations_and_sizes_are_listed() {
    let server = TestServer::open().await;
    // Without a version.
    for query in ["", "?api-version=1999-01-01"] {
        let list = server
            .get(&format!("/providers/Microsoft.RedHatOpenShift/operations{query}"))
            .await
            .expect(200)
            .json();
        assert_eq!(list["value"].as_array().unwrap().len(), 11);
        assert_eq!(list["value"][3]["name"], "Microsoft.RedHatOpenShift/openShiftClusters/read");
        assert_eq!(list["value"][3]["origin"], "user,system");
    }
    let masters = server.get("/admin/supportedvmsizes?vmRole=master").await.expect(200).json();
    assert!(
        masters
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["vmSize"] == "Standard_D8s_v5" && it["coreCount"] == 8)
    );
    assert_eq!(server.get("/admin/supportedvmsizes?vmRole=cook").await.error().2, "vmRole");
    assert_eq!(server.get("/admin/supportedvmsizes").await.error().1, "InvalidParameter");
    server.close().await;
}

#[tokio::test]
async fn a_deployment_is_validated_and_nothing_is_stored() {
    let server = TestServer::open().await;
    server.register().await;
    let path = |version: &str| {
        format!(
            "/subscriptions/{SUBSCRIPTION}/resourceGroups/MyGroup/providers/Microsoft.RedHatOpenShift/deployments/d/preflight?api-version={version}"
        )
    };
    let item = |name: &str| {
        let mut item = super::body(name);
        item["name"] = json!(name);
        item["type"] = json!("microsoft.redhatopenshift/OPENSHIFTCLUSTERS");
        item["apiVersion"] = json!(NEW);
        item
    };
    let ask = async |sent: serde_json::Value| {
        let reply = server.send(http::Method::POST, &path(NEW), &[], Some(sent.to_string().into())).await;
        reply.expect(200).json()
    };
    let other = json!({"type": "Microsoft.Compute/disks", "apiVersion": "x"});
    assert_eq!(ask(json!({"resources": [other, item("one")]})).await, json!({"status": "Succeeded"}));
    let mut bad = item("one");
    bad["properties"]["workerProfiles"][0]["count"] = json!(1);
    let found = ask(json!({"resources": [bad]})).await;
    assert_eq!(found["status"], "Failed");
    assert_eq!(found["error"]["target"], "properties.workerProfiles['worker'].count");
    let mut unknown = item("one");
    unknown["properties"]["clusterProfile"]["version"] = json!("4.1.1");
    assert_eq!(
        ask(json!({"resources": [unknown]})).await["error"]["target"],
        "properties.clusterProfile.version"
    );
    for (name, value) in [
        ("apiVersion", json!("1999-01-01")),
        ("apiVersion", json!(7)),
        ("name", json!("a b")),
        ("properties", json!(7)),
    ] {
        let mut odd = item("one");
        odd[name] = value;
        assert_eq!(
            ask(json!({"resources": [odd]})).await["error"]["code"],
            "InvalidRequestContent",
            "{name}"
        );
    }
    for odd in [json!({}), json!({"resources": 7}), json!({"resources": [7]})] {
        assert_eq!(ask(odd).await["error"]["code"], "InvalidRequestContent");
    }
    server.put(&super::at("one", NEW), &super::body("one")).await.expect(201);
    assert_eq!(ask(json!({"resources": [item("one")]})).await["status"], "Succeeded");
    // For an existing cluster the errors are those of a PUT.
    for (pointer, value, target) in [
        ("/properties/clusterProfile/domain", json!("another"), "properties.clusterProfile.domain"),
        ("/properties/workerProfiles/0/count", json!(5), "properties.workerProfiles['worker'].count"),
        (
            "/properties/clusterProfile/pullSecret",
            json!("{\"auths\":{}}"),
            "properties.clusterProfile.pullSecret",
        ),
    ] {
        let found = ask(json!({"resources": [super::with(item("one"), pointer, value)]})).await;
        let message = format!("Changing property '{target}' is not allowed.");
        let error = json!({"code": "PropertyChangeNotAllowed", "message": message, "target": target});
        assert_eq!(found, json!({"status": "Failed", "error": error}));
    }
    assert!(server.store.clusters().find(&super::rid("two")).await.unwrap().is_none());
    let reply = server.send(http::Method::POST, &path("x"), &[], Some("{}".into())).await;
    assert_eq!(reply.error().1, "InvalidResourceType");
    server.close().await;
}

#[tokio::test]
async fn a_deployment_without_a_version_is_validated_with_the_default() {
    let server = TestServer::open().await;
    server.register().await;
    let named = |version: serde_json::Value, size: &str| {
        let sent = super::with(super::body("one"), "/properties/clusterProfile/version", version);
        super::with(sent, "/properties/masterProfile/vmSize", json!(size))
    };
    let looked_at = async |sent: &serde_json::Value| {
        let mut item = sent.clone();
        item["name"] = json!("one");
        item["type"] = json!("Microsoft.RedHatOpenShift/openShiftClusters");
        item["apiVersion"] = json!(NEW);
        let path = format!(
            "/subscriptions/{SUBSCRIPTION}/resourceGroups/MyGroup/providers/Microsoft.RedHatOpenShift/deployments/d/preflight?api-version={NEW}"
        );
        let sent = json!({"resources": [item]}).to_string();
        server.send(http::Method::POST, &path, &[], Some(sent.into())).await.expect(200).json()
    };
    for none in [json!(null), json!("")] {
        let found = looked_at(&named(none, "Standard_D8s_v6")).await;
        assert_eq!(found, json!({"status": "Succeeded"}));
    }
    // The size needs a newer version than this default.
    server.put("/admin/versions", &version("4.18.26", true, true)).await.expect(200);
    for none in [json!(null), json!("")] {
        let sent = named(none, "Standard_D8s_v6");
        let found = looked_at(&sent).await;
        let refused = server.put(&super::at("one", NEW), &sent).await;
        assert_eq!(refused.error().2, "properties.masterProfile.vmSize");
        assert_eq!(found, json!({"status": "Failed", "error": refused.json()["error"]}));
        assert_eq!(looked_at(&named(json!(""), "Standard_D8s_v5")).await["status"], "Succeeded");
    }
    server.close().await;
}
