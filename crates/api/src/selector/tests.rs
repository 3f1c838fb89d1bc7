use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ClusterAttributes, Key, Selectors, VersionNumber};
use crate::doc::{Cluster, ProvisioningState, SubscriptionState};

fn cluster() -> Cluster {
    Cluster { subscription_id: "abc".to_owned(), name: "Web".to_owned(), location: "westeurope".to_owned(), labels: BTreeMap::from([("ring".to_owned(), "2".to_owned()), ("team".to_owned(), "payments".to_owned())]), imported: true, ..Cluster::new("/subscriptions/ABC/resourceGroups/Team-A/providers/Microsoft.RedHatOpenShift/openShiftClusters/Web".to_owned(), ProvisioningState::Succeeded, "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap()) }
}

fn attributes() -> ClusterAttributes {
    ClusterAttributes::of(&cluster(), Some(SubscriptionState::Warned), Some("v1.37.1"))
}

fn matches(selectors: Value) -> bool {
    let Value::Array(selectors) = selectors else { panic!("a list") };
    Selectors::parse(&selectors)
        .unwrap_or_else(|error| panic!("{}: {error}", error.place()))
        .matches(&attributes())
}

/// A cluster of ours, as its document is stored.
fn ours(domain: &str, managed: Option<&str>, identity: Value) -> Cluster {
    let mut provisioned = json!({
        "bucket": 77,
        "spec": {
            "domain": domain, "version": "4.17.3", "resourceGroupId": "/subscriptions/abc/resourcegroups/aro-web",
            "fips": "Disabled", "identity": identity,
            "network": {
                "podCidr": "10.128.0.0/14", "serviceCidr": "172.30.0.0/16", "outboundType": "UserDefinedRouting",
                "preconfiguredNsg": "Disabled",
            },
            "master": {"vmSize": "Standard_D8s_v3", "subnetId": "s", "encryptionAtHost": "Disabled"},
            "workers": [], "apiVisibility": "Private", "ingress": [],
        },
    });
    if let Some(managed) = managed {
        provisioned["managedDomain"] = managed.into();
    }
    let provisioned = Some(Box::new(serde_json::from_value(provisioned).unwrap()));
    Cluster { imported: false, provisioned, ..cluster() }
}

#[test]
fn how_a_cluster_of_ours_was_installed_is_known_and_of_an_imported_one_it_is_not() {
    let principal = json!({"kind": "servicePrincipal", "clientId": "c"});
    let of = |cluster: &Cluster| ClusterAttributes::of(cluster, None, Some("v1.30.4"));
    let seen = of(&ours("web", Some("web.clusters.shipshape.test"), principal.clone()));
    let expect = [
        ("bucketID", "77"),
        ("authenticationType", "ServicePrincipal"),
        ("architectureVersion", "1"),
        ("outboundType", "UserDefinedRouting"),
        ("APIServerVisibility", "Private"),
        ("isManagedDomain", "false"),
        ("version", "4.17.3"),
    ];
    for (key, value) in expect {
        assert_eq!(seen.get(key), Some(value), "{key}");
        if key != "version" {
            assert_eq!(of(&cluster()).get(key), None, "{key} of an imported cluster");
            let selector = json!({"key": key, "operator": "eq", "value": value});
            assert!(Selectors::parse(&[selector]).unwrap().matches(&seen), "{key}");
        }
    }
    let workload = json!({"kind": "workload", "resourceId": "r", "platform": {}});
    assert_eq!(of(&ours("web", None, workload)).get("authenticationType"), Some("WorkloadIdentity"));
    for (domain, managed, expect) in [
        ("web.clusters.shipshape.test", Some("web.clusters.shipshape.test"), "true"),
        ("web.westeurope.aroapp.io", None, "true"),
        ("web.aroapp.azure.us", None, "true"),
        ("web.customer.example", None, "false"),
        ("web", None, "false"),
    ] {
        assert_eq!(
            of(&ours(domain, managed, principal.clone())).get("isManagedDomain"),
            Some(expect),
            "{domain}"
        );
    }
}

#[test]
fn the_version_of_a_cluster_of_ours_is_the_one_that_runs_in_it() {
    let principal = json!({"kind": "servicePrincipal", "clientId": "c"});
    let mut cluster = ours("web", None, principal);
    if let Some(made) = &mut cluster.provisioned {
        made.record.running_version = Some("4.18.0".to_owned());
    }
    let seen = ClusterAttributes::of(&cluster, None, Some("v1.31.0"));
    let newer = json!({"key": "version", "operator": "gt", "value": "4.17.9"});
    assert!(Selectors::parse(&[newer]).unwrap().matches(&seen));
}

#[test]
fn the_attributes_of_a_cluster_are_a_flat_map_in_mimos_spelling() {
    let expect = json!({
        "resourceID": "/subscriptions/abc/resourcegroups/team-a/providers/microsoft.redhatopenshift/openshiftclusters/web",
        "subscriptionID": "abc",
        "subscriptionState": "Warned",
        "provisioningState": "Succeeded",
        "location": "westeurope",
        "name": "Web",
        "resourceGroup": "Team-A",
        "createdAt": "2026-03-01T12:00:00Z",
        "version": "v1.37.1",
        "label.ring": "2",
        "label.team": "payments",
    });
    assert_eq!(serde_json::to_value(attributes().as_map()).unwrap(), expect);
    let unknown = ClusterAttributes::of(&cluster(), None, None);
    assert_eq!((unknown.get("subscriptionState"), unknown.get("version")), (None, None));
}

#[test]
fn each_operator_does_what_it_says() {
    let check = |key: &str, operator: &str, given: Value, expect: bool| {
        let mut selector = json!({ "key": key, "operator": operator });
        match given {
            Value::Array(_) => selector["values"] = given.clone(),
            Value::Null => {}
            _ => selector["value"] = given.clone(),
        }
        assert_eq!(matches(json!([selector])), expect, "{key} {operator} {given}");
    };
    check("location", "eq", json!("westeurope"), true);
    check("location", "eq", json!("WestEurope"), false);
    check("location", "ne", json!("eastus"), true);
    check("location", "ne", json!("westeurope"), false);
    check("location", "in", json!(["eastus", "westeurope"]), true);
    check("location", "in", json!(["eastus"]), false);
    check("location", "notin", json!(["eastus"]), true);
    check("location", "notin", json!(["eastus", "westeurope"]), false);
    check("location", "prefix", json!("west"), true);
    check("location", "prefix", json!("east"), false);
    check("label.team", "exists", json!(null), true);
    check("label.owner", "exists", json!(null), false);
    check("version", "eq", json!("1.37.1"), true);
    check("version", "ge", json!("1.37"), true);
    check("version", "gt", json!("v1.37.1"), false);
    check("version", "lt", json!("1.100.0"), true);
    check("version", "le", json!("1.37.1-rc.1"), false);
    check("version", "prefix", json!("1.37."), true);
    check("createdAt", "lt", json!("2026-03-02"), true);
    check("createdAt", "ge", json!("2026-03-01T12:00:00Z"), true);
    check("createdAt", "gt", json!("2026-03-01T13:00:00+01:00"), false);
    check("createdAt", "eq", json!("2026-03-01T13:00:00+01:00"), true);
    check("label.ring", "lt", json!("10"), true); // as numbers, not as text
    check("label.ring", "gt", json!("2.5"), false);
    check("label.team", "gt", json!("1"), false); // no number
    check("subscriptionState", "eq", json!("Warned"), true);
    check("provisioningState", "in", json!(["Failed", "Succeeded"]), true);
    check("name", "eq", json!("Web"), true);
    check("resourceGroup", "eq", json!("Team-A"), true);
}

#[test]
fn an_absent_key_matches_only_what_excludes() {
    let check = |operator: &str, given: Value, expect: bool| {
        let mut selector = json!({ "key": "architectureVersion", "operator": operator });
        let member = if given.is_array() { "values" } else { "value" };
        selector[member] = given;
        assert_eq!(matches(json!([selector])), expect, "{operator}");
    };
    check("eq", json!("0"), false);
    check("in", json!(["0", "1"]), false);
    check("prefix", json!("0"), false);
    check("lt", json!("1"), false);
    check("ge", json!("0"), false);
    check("ne", json!("0"), true);
    check("notin", json!(["0", "1"]), true);
    check("exists", json!(null), false);
}

#[test]
fn all_must_match_and_groups_say_otherwise() {
    let yes = json!({ "key": "location", "operator": "eq", "value": "westeurope" });
    let no = json!({ "key": "location", "operator": "eq", "value": "eastus" });
    assert!(matches(json!([yes, yes])));
    assert!(!matches(json!([yes, no])));
    assert!(matches(json!([{ "any": [no, yes] }])));
    assert!(!matches(json!([{ "all": [no, yes] }])));
    assert!(matches(json!([{ "any": [no, { "all": [yes, { "any": [no, yes] }] }] }, yes])));
    assert!(!matches(json!([{ "any": [no, no] }])));
}

#[test]
fn refusals_name_their_place() {
    let check = |selectors: Value, place: &str, begins: &str| {
        let Value::Array(list) = &selectors else { panic!("a list") };
        let error = Selectors::parse(list).expect_err(&selectors.to_string());
        assert_eq!(error.place(), place, "{selectors}: {error}");
        assert!(error.to_string().starts_with(begins), "{selectors}: {error}");
    };
    let fine = json!({ "key": "location", "operator": "eq", "value": "x" });
    check(json!([]), "selectors", "there must be at least one selector");
    check(json!([fine, 3]), "selectors[1]", "a selector is an object");
    check(
        json!([fine, { "key": "regoin", "operator": "eq", "value": "x" }]),
        "selectors[1].key",
        "\"regoin\" is no key; keys are resourceID,",
    );
    check(
        json!([{ "key": "apiserverVisibility", "operator": "eq", "value": "Public" }]),
        "selectors[0].key",
        "\"apiserverVisibility\" is no key",
    );
    check(json!([{ "key": "label.", "operator": "exists" }]), "selectors[0].key", "\"label.\" is no key");
    check(
        json!([{ "key": "location", "operator": "like", "value": "x" }]),
        "selectors[0].operator",
        "\"like\" is no operator; operators are eq,",
    );
    check(
        json!([{ "key": "location", "operator": "eq" }]),
        "selectors[0].value",
        "the operator eq needs a value",
    );
    check(
        json!([{ "key": "location", "operator": "eq", "value": 3 }]),
        "selectors[0].value",
        "value must be a text",
    );
    check(
        json!([{ "key": "location", "operator": "eq", "value": "x", "values": ["y"] }]),
        "selectors[0].values",
        "the operator eq takes no values",
    );
    check(
        json!([{ "key": "location", "operator": "in", "value": "x" }]),
        "selectors[0].value",
        "the operator in takes no value",
    );
    check(
        json!([{ "key": "location", "operator": "notin", "values": [] }]),
        "selectors[0].values",
        "the operator notin needs at least one",
    );
    check(
        json!([{ "key": "location", "operator": "in", "values": ["x", 7] }]),
        "selectors[0].values[1]",
        "every value must be a text",
    );
    check(
        json!([{ "key": "location", "operator": "lt", "value": "x" }]),
        "selectors[0].operator",
        "location has no order; lt is for version,",
    );
    check(
        json!([{ "key": "version", "operator": "lt", "value": "new" }]),
        "selectors[0].value",
        "\"new\" is no version",
    );
    check(
        json!([{ "key": "createdAt", "operator": "lt", "value": "soon" }]),
        "selectors[0].value",
        "\"soon\" is no time",
    );
    check(
        json!([{ "key": "label.ring", "operator": "lt", "value": "two" }]),
        "selectors[0].value",
        "\"two\" is no number",
    );
    check(
        json!([{ "key": "architectureVersion", "operator": "eq", "value": "2" }]),
        "selectors[0].value",
        "\"2\" is no architectureVersion; accepted are \"0\" to \"1\"",
    );
    check(
        json!([{ "key": "provisioningState", "operator": "in", "values": ["Succeded"] }]),
        "selectors[0].values[0]",
        "\"Succeded\" is no provisioningState; accepted are Creating,",
    );
    check(
        json!([{ "key": "resourceID", "operator": "eq", "value": "/Subscriptions/x" }]),
        "selectors[0].value",
        "resourceID is kept in lower case",
    );
    check(
        json!([{ "key": "location", "operator": "eq", "vaule": "x" }]),
        "selectors[0].vaule",
        "a selector has the members",
    );
    check(
        json!([{ "any": [fine, { "all": [{ "key": "x", "operator": "eq", "value": "y" }] }] }]),
        "selectors[0].any[1].all[0].key",
        "\"x\" is no key",
    );
    check(json!([{ "any": [] }]), "selectors[0].any", "there must be at least one");
    check(
        json!([{ "any": [fine], "key": "location" }]),
        "selectors[0].any",
        "a selector with any has no other members",
    );
    let mut deep = fine.clone();
    for _ in 0..9 {
        deep = json!({ "all": [deep] });
    }
    assert!(Selectors::parse(&[deep]).unwrap_err().to_string().starts_with("groups may lie at most 8 deep"));
    assert!(
        Selectors::parse(&vec![fine; 201]).unwrap_err().to_string().starts_with("there are more than 200")
    );
}

#[test]
fn empty_members_that_mimos_clients_send_are_passed_over() {
    assert!(matches(json!([{ "key": "location", "operator": "eq", "value": "westeurope", "values": null }])));
    assert!(matches(json!([{ "key": "location", "operator": "in", "value": "", "values": ["westeurope"] }])));
}

#[test]
fn what_a_selection_depends_on_is_known() {
    let parse = |value: Value| Selectors::parse(&[value]).unwrap();
    let selectors = parse(json!({ "any": [{ "all": [{ "key": "version", "operator": "exists" }] }] }));
    assert!(selectors.uses(&Key::Version) && !selectors.uses(&Key::Location));
}

#[test]
fn versions_are_in_order() {
    let version = |text: &str| text.parse::<VersionNumber>().unwrap();
    let order =
        ["4", "4.1-alpha", "4.1-rc.2", "4.1-rc.10", "4.1-rc.10.1", "4.1", "v4.1.1+build.7", "4.2", "4.10.0"];
    for pair in order.windows(2) {
        assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
    }
    assert!(version("v4.1").cmp(&version("4.1.0+x")).is_eq());
    for nonsense in ["", "v", "4.", ".4", "4.1.2.3", "4.x", "4.1-", "four", "99999999999999999999999"] {
        assert!(nonsense.parse::<VersionNumber>().is_err(), "{nonsense:?}");
    }
}

proptest! {
    #[test]
    fn ne_is_never_what_eq_is(value in "[a-z]{0,3}", key in prop::sample::select(vec!["location", "name", "label.x", "label.team"])) {
        prop_assume!(!value.is_empty());
        let one = |operator: &str| matches(json!([{ "key": key, "operator": operator, "value": value }]));
        prop_assert_ne!(one("eq"), one("ne"));
        let many = |operator: &str| matches(json!([{ "key": key, "operator": operator, "values": [value] }]));
        prop_assert_eq!((one("eq"), one("ne")), (many("in"), many("notin")));
    }
}
