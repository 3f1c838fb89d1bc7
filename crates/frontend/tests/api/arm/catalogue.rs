//! Versions, role sets, sizes, and what may be allowed to somebody.

use serde_json::json;

use super::{NEW, OLD, SUBSCRIPTION};
use crate::fixture::House;

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
    let house = House::open().await;
    assert_eq!(house.get(&offered("openShiftVersions", NEW)).await.expect(200).json(), json!({"value": []}));
    for (number, enabled, default) in
        [("4.9.1", true, false), ("4.20.3", true, true), ("4.19.14", false, false), ("4.10.0", true, false)]
    {
        house.put("/admin/versions", &version(number, enabled, default)).await.expect(201);
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
        let list = house.get(&offered("openShiftVersions", api_version)).await.expect(200).json();
        assert_eq!(names(&list), ["4.9.1", "4.10.0", "4.20.3"]);
    }
    let one = house.get(&offered("openShiftVersions/4.10.0", NEW)).await.expect(200).json();
    assert_eq!(one["properties"], json!({"version": "4.10.0"}));
    assert_eq!(one["type"], "Microsoft.RedHatOpenShift/locations/openShiftVersions");
    assert_eq!(house.get(&offered("openShiftVersions/4.19.14", NEW)).await.refusal().1, "ResourceNotFound");
    // Another default takes it from the first.
    house.put("/admin/versions", &version("4.10.0", true, true)).await.expect(200);
    let all = house.get("/admin/versions").await.expect(200).json();
    let defaults: Vec<_> =
        all["value"].as_array().unwrap().iter().filter(|it| it["properties"]["default"] == true).collect();
    assert_eq!(defaults.len(), 1);
    assert_eq!(defaults[0]["properties"]["version"], "4.10.0");
    let put = async |sent: serde_json::Value| house.put("/admin/versions", &sent).await.refusal();
    assert_eq!(put(version("4.10.0", false, false)).await.2, "properties.enabled");
    assert_eq!(put(version("4.11.0", false, true)).await.2, "properties.enabled");
    assert_eq!(put(version("4.11", true, false)).await.2, "properties.version");
    for member in ["version", "openShiftPullspec", "installerPullspec"] {
        let mut sent = version("4.12.0", true, false);
        sent["properties"].as_object_mut().unwrap().remove(member);
        assert_eq!(put(sent).await, (400, "InvalidParameter".to_owned(), format!("properties.{member}")));
    }
    house.close().await;
}

#[tokio::test]
async fn what_another_process_offers_is_heard_of() {
    let house = House::open().await;
    let by = store::AuditContext::service("test");
    let wanted = api::doc::Version {
        version: "4.21.0".to_owned(),
        openshift_pullspec: "r".to_owned(),
        installer_pullspec: None,
        enabled: true,
        default: false,
    };
    house.store.versions().put(&wanted, None, &by).await.unwrap();
    house.until_offered("4.21.0").await;
    house.close().await;
}

#[tokio::test]
async fn role_sets_are_offered_to_versions_that_know_them() {
    let house = House::open().await;
    assert!(frontend::seed_defaults(&house.store, &store::AuditContext::service("test")).await.unwrap());
    assert!(!frontend::seed_defaults(&house.store, &store::AuditContext::service("test")).await.unwrap());
    house.until_offered("4.20.3").await;
    let role = json!({"operatorName": "o", "roleDefinitionName": "n", "roleDefinitionId": "i", "serviceAccounts": ["a"], "secretLocation": {"namespace": "n", "name": "s"}});
    let set = |minor: &str| json!({"properties": {"openShiftVersion": minor, "platformWorkloadIdentityRoles": [role.clone()]}});
    house.put("/admin/platformworkloadidentityrolesets", &set("4.9")).await.expect(201);
    house.put("/admin/platformworkloadidentityrolesets", &set("4.9")).await.expect(200);
    let list = house.get(&offered("platformWorkloadIdentityRoleSets", NEW)).await.expect(200).json();
    let names: Vec<_> =
        list["value"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["4.9", "4.18", "4.19", "4.20"]);
    let one = house.get(&offered("platformWorkloadIdentityRoleSets/4.9", NEW)).await.expect(200).json();
    let shown = json!({"operatorName": "o", "roleDefinitionName": "n", "roleDefinitionId": "i"});
    assert_eq!(
        one["properties"],
        json!({"openShiftVersion": "4.9", "platformWorkloadIdentityRoles": [shown]})
    );
    assert_eq!(house.get(&offered("platformWorkloadIdentityRoleSets/4.8", NEW)).await.refusal().0, 404);
    assert_eq!(
        house.get(&offered("platformWorkloadIdentityRoleSets", OLD)).await.refusal().1,
        "InvalidResourceType"
    );
    let all = house.get("/admin/platformworkloadidentityrolesets").await.expect(200).json();
    assert_eq!(
        all["value"][0]["properties"]["platformWorkloadIdentityRoles"][0]["secretLocation"]["namespace"],
        "n"
    );
    let bad = json!({"properties": {"platformWorkloadIdentityRoles": [{"operatorName": "o", "roleDefinitionId": "i", "serviceAccounts": ["a"]}]}});
    let target = house.put("/admin/platformworkloadidentityrolesets", &bad).await.refusal().2;
    for path in
        ["properties.openShiftVersion", "Roles[0].roleDefinitionName", "Roles[0].secretLocation.namespace"]
    {
        assert!(target.contains(path), "{target}");
    }
    house.close().await;
}

#[tokio::test]
async fn operations_and_sizes_are_listed() {
    let house = House::open().await;
    // No version is asked for.
    for query in ["", "?api-version=1999-01-01"] {
        let list = house
            .get(&format!("/providers/Microsoft.RedHatOpenShift/operations{query}"))
            .await
            .expect(200)
            .json();
        assert_eq!(list["value"].as_array().unwrap().len(), 11);
        assert_eq!(list["value"][3]["name"], "Microsoft.RedHatOpenShift/openShiftClusters/read");
        assert_eq!(list["value"][3]["origin"], "user,system");
    }
    let masters = house.get("/admin/supportedvmsizes?vmRole=master").await.expect(200).json();
    assert!(
        masters
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["vmSize"] == "Standard_D8s_v5" && it["coreCount"] == 8)
    );
    assert_eq!(house.get("/admin/supportedvmsizes?vmRole=cook").await.refusal().2, "vmRole");
    assert_eq!(house.get("/admin/supportedvmsizes").await.refusal().1, "InvalidParameter");
    house.close().await;
}

#[tokio::test]
async fn a_deployment_is_looked_at_and_nothing_is_stored() {
    let house = House::open().await;
    house.register().await;
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
        let reply = house.ask(http::Method::POST, &path(NEW), &[], Some(sent.to_string().into())).await;
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
    house.put(&super::at("one", NEW), &super::body("one")).await.expect(201);
    assert_eq!(ask(json!({"resources": [item("one")]})).await["status"], "Succeeded");
    // Of a cluster that is there it tells what the PUT would tell.
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
    assert!(house.store.clusters().find(&super::rid("two")).await.unwrap().is_none());
    let reply = house.ask(http::Method::POST, &path("x"), &[], Some("{}".into())).await;
    assert_eq!(reply.refusal().1, "InvalidResourceType");
    house.close().await;
}

#[tokio::test]
async fn a_deployment_that_names_no_version_is_looked_at_with_the_default() {
    let house = House::open().await;
    house.register().await;
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
        house.ask(http::Method::POST, &path, &[], Some(sent.into())).await.expect(200).json()
    };
    for none in [json!(null), json!("")] {
        let found = looked_at(&named(none, "Standard_D8s_v6")).await;
        assert_eq!(found, json!({"status": "Succeeded"}));
    }
    // The size asks for more than this default.
    house.put("/admin/versions", &version("4.18.26", true, true)).await.expect(200);
    for none in [json!(null), json!("")] {
        let sent = named(none, "Standard_D8s_v6");
        let found = looked_at(&sent).await;
        let refused = house.put(&super::at("one", NEW), &sent).await;
        assert_eq!(refused.refusal().2, "properties.masterProfile.vmSize");
        assert_eq!(found, json!({"status": "Failed", "error": refused.json()["error"]}));
        assert_eq!(looked_at(&named(json!(""), "Standard_D8s_v5")).await["status"], "Succeeded");
    }
    house.close().await;
}
