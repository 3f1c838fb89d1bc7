//! Requests are returned as they were sent, and a version removes no member that it does not have.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    ApiVersion, ExternalCluster, FieldErrorCode, ValidationContext, apply_draft, check_unchanged, patched,
    replaced, validate,
};
use crate::doc::{Cluster, ProvisioningState, Record};

const SUBSCRIPTION: &str = "11111111-1111-1111-1111-11111111aaaa";

fn path() -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.RedHatOpenShift/openShiftClusters/one"
    )
}

fn blank() -> Cluster {
    Cluster {
        subscription_id: SUBSCRIPTION.to_owned(),
        name: "one".to_owned(),
        location: String::new(),
        ..Cluster::new(path(), ProvisioningState::Succeeded, jiff::Timestamp::UNIX_EPOCH)
    }
}

fn context<'a>(locations: &'a [String], path: &'a str, stored: Option<&'a Cluster>) -> ValidationContext<'a> {
    ValidationContext { path, locations, zone: None, small_workers: false, stored }
}

fn identity(name: &str) -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/ids/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{name}"
    )
}

/// Bodies that every rule accepts.
fn bodies() -> impl Strategy<Value = Value> {
    let switch = || prop_oneof![Just("Enabled"), Just("Disabled")];
    let network = (any::<bool>(), switch(), proptest::option::of(1_i64..=20));
    let pools = (2_i64..=50, 128_i64..4096, switch(), switch(), any::<bool>());
    let tags = proptest::option::of(proptest::collection::btree_map("[a-z]{1,5}", "[a-z]{0,5}", 1..4));
    ("[a-z][a-z0-9]{1,10}", switch(), any::<bool>(), network, pools, tags).prop_map(
        |(domain, fips, is_workload, (is_private, nsg, ips), (count, disk, master, worker, has_set), tags)| {
            let subnet = |name: &str| {
                format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/Net/providers/Microsoft.Network/virtualNetworks/V1/subnets/{name}")
            };
            let set = has_set.then(|| {
                format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/Net/providers/Microsoft.Compute/diskEncryptionSets/Set")
            });
            let visibility = if is_private { "Private" } else { "Public" };
            let mut body = json!({
                "location": "local",
                "properties": {
                    "clusterProfile": {
                        "domain": domain, "version": "4.20.3", "fipsValidatedModules": fips,
                        "resourceGroupId": format!("/subscriptions/{SUBSCRIPTION}/resourcegroups/managed"),
                    },
                    "networkProfile": {"podCidr": "10.128.0.0/14", "serviceCidr": "172.30.0.0/16", "preconfiguredNSG": nsg},
                    "masterProfile": {"vmSize": "Standard_D8s_v5", "subnetId": subnet("master"), "encryptionAtHost": master},
                    "workerProfiles": [{"name": "worker", "vmSize": "Standard_D4s_v5", "diskSizeGB": disk, "count": count,
                        "subnetId": subnet("worker"), "encryptionAtHost": worker}],
                    "apiserverProfile": {"visibility": visibility},
                    "ingressProfiles": [{"name": "default", "visibility": visibility}],
                },
            });
            let properties = &mut body["properties"];
            if is_private && ips.is_none() {
                properties["networkProfile"]["outboundType"] = json!("UserDefinedRouting");
            } else {
                properties["networkProfile"]["outboundType"] = json!("Loadbalancer");
                properties["networkProfile"]["loadBalancerProfile"] = json!({"managedOutboundIps": {"count": ips.unwrap_or(1)}});
            }
            if let Some(set) = set {
                properties["masterProfile"]["diskEncryptionSetId"] = json!(set);
                properties["workerProfiles"][0]["diskEncryptionSetId"] = json!(set);
            }
            if is_workload {
                properties["platformWorkloadIdentityProfile"] =
                    json!({"upgradeableTo": "4.21.0", "platformWorkloadIdentities": {"a": {"resourceId": identity("a")}}});
                body["identity"] = json!({"type": "UserAssigned", "userAssignedIdentities": {identity("c"): {}}});
            } else {
                properties["servicePrincipalProfile"] =
                    json!({"clientId": "33333333-3333-3333-3333-333333333333", "clientSecret": "hunter2"});
            }
            if let Some(tags) = tags {
                body["tags"] = json!(tags);
            }
            body
        },
    )
}

/// Members that a creation may give as null or as an empty text: their parents, and their names.
const BLANKS: [(&str, &str); 7] = [
    ("", "id"),
    ("", "type"),
    ("/properties", "provisioningState"),
    ("/properties/clusterProfile", "version"),
    ("/properties/clusterProfile", "pullSecret"),
    ("/properties/networkProfile", "outboundType"),
    ("/properties/networkProfile", "preconfiguredNSG"),
];

fn made(body: &Value) -> Cluster {
    let locations = ["local".to_owned()];
    let external = ApiVersion::V2025_07_25.read(body.clone()).unwrap();
    validate(&external.draft(), &context(&locations, &path(), None)).unwrap();
    let mut cluster = blank();
    apply_draft(&external.draft(), &mut cluster);
    cluster
}

/// A body without members that are never in responses.
fn said(body: &Value) -> Value {
    let mut said = body.clone();
    if let Some(Value::Object(principal)) = said.pointer_mut("/properties/servicePrincipalProfile") {
        principal.remove("clientSecret");
    }
    said["id"] = json!(path());
    said["name"] = json!("one");
    said["type"] = json!("Microsoft.RedHatOpenShift/openShiftClusters");
    said["properties"]["provisioningState"] = json!("Succeeded");
    said
}

proptest! {
    #[test]
    fn what_is_said_comes_back(body in bodies()) {
        let cluster = made(&body);
        prop_assert_eq!(ApiVersion::V2025_07_25.show(&cluster).value(), said(&body));
        let shown = format!("{cluster:?}");
        prop_assert!(!shown.contains("hunter2"));
        let external = ApiVersion::V2025_07_25.read(body).unwrap();
        let shown = format!("{external:?}");
        prop_assert!(!shown.contains("hunter2"));
    }

    #[test]
    fn the_same_body_again_is_no_change_in_any_version(body in bodies(), running in proptest::option::of(Just("4.20.9"))) {
        let mut cluster = made(&body);
        let provisioned = cluster.provisioned.as_mut().unwrap();
        provisioned.record = Record { running_version: running.map(str::to_owned), api_url: Some("https://a".to_owned()), ..Record::default() };
        for version in ApiVersion::ALL {
            // The client sends back what it read, in part, in whole, or as an empty patch.
            let shown = version.show(&cluster).stripped().value();
            for (proposed, is_patch) in [(shown.clone(), false), (shown, true), (json!({}), true)] {
                let merged = if is_patch {
                    patched(version.show(&cluster).stripped().value(), &proposed)
                } else {
                    replaced(version.skeleton(&cluster, &proposed), &proposed)
                };
                let external = version.read(merged).unwrap();
                let locations = ["local".to_owned()];
                validate(&external.draft(), &context(&locations, &path(), Some(&cluster))).unwrap();
                check_unchanged(&version.show(&cluster).value(), &external.value()).unwrap();
                let mut after = cluster.clone();
                apply_draft(&external.draft(), &mut after);
                // The running version is in responses, and clients send it back.
                after.provisioned.as_mut().unwrap().spec.version = "4.20.3".to_owned();
                prop_assert_eq!(&after, &cluster);
            }
        }
    }

    #[test]
    fn a_creation_that_leaves_defaults_empty_can_be_sent_again(body in bodies(), blanks in proptest::collection::vec(any::<Option<bool>>(), BLANKS.len())) {
        let mut sent = body;
        for ((parent, name), blank) in BLANKS.into_iter().zip(blanks) {
            let Some(Value::Object(members)) = sent.pointer_mut(parent) else { continue };
            match blank {
                Some(true) => drop(members.insert(name.to_owned(), json!(""))),
                Some(false) => drop(members.insert(name.to_owned(), Value::Null)),
                None => {}
            }
        }
        // The server fills in the default version.
        let mut first = sent.clone();
        first["properties"]["clusterProfile"]["version"] = json!("4.20.3");
        let cluster = made(&first);
        for version in ApiVersion::ALL {
            let external = version.read(replaced(version.skeleton(&cluster, &sent), &sent)).unwrap();
            let locations = ["local".to_owned()];
            validate(&external.draft(), &context(&locations, &path(), Some(&cluster))).unwrap();
            check_unchanged(&version.show(&cluster).value(), &external.value()).unwrap();
            let mut after = cluster.clone();
            apply_draft(&external.draft(), &mut after);
            prop_assert_eq!(&after, &cluster);
        }
    }

    #[test]
    fn no_json_makes_the_readers_panic(pointer in "(/[a-zA-Z0]{1,12}){1,4}", text in ".{0,20}", number: i64) {
        for value in [json!(text), json!(number), json!([]), json!({"a": null}), Value::Null] {
            let mut body = json!({});
            let mut place = &mut body;
            for name in pointer.split('/').skip(1) {
                place = &mut place[name];
            }
            *place = value;
            for version in ApiVersion::ALL {
                let Ok(external) = version.read(body.clone()) else { continue };
                let locations = ["local".to_owned()];
                let _ = validate(&external.draft(), &context(&locations, &path(), None));
                let _ = check_unchanged(&external.value(), &body);
            }
        }
    }
}

#[test]
fn an_old_version_shows_less_and_wipes_nothing() {
    let body = json!({
        "location": "local",
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {identity("c"): {}}},
        "properties": {
            "clusterProfile": {"domain": "ab", "version": "4.20.3", "fipsValidatedModules": "Disabled",
                "resourceGroupId": format!("/subscriptions/{SUBSCRIPTION}/resourcegroups/managed")},
            "platformWorkloadIdentityProfile": {"platformWorkloadIdentities": {"a": {"resourceId": identity("a")}}},
            "networkProfile": {"podCidr": "10.128.0.0/14", "serviceCidr": "172.30.0.0/16"},
        },
    });
    let external = ApiVersion::V2025_07_25.read(body).unwrap();
    let mut cluster = blank();
    apply_draft(&external.draft(), &mut cluster);
    let ExternalCluster::V2023_11_22(old) = ApiVersion::V2023_11_22.show(&cluster) else { panic!() };
    let mut after = cluster.clone();
    apply_draft(&old.draft(), &mut after);
    assert_eq!(after, cluster);
    let text = serde_json::to_string(&old).unwrap();
    assert!(
        !text.contains("identity") && !text.contains("WorkloadIdentity") && !text.contains("oidcIssuer"),
        "{text}"
    );
}

#[test]
fn a_list_is_no_object() {
    let check = |body: Value, target: &str| {
        for version in ApiVersion::ALL {
            let wrong = version.read(body.clone()).unwrap_err();
            assert_eq!(wrong.code, FieldErrorCode::InvalidRequestContent, "{body}");
            assert_eq!(wrong.target, target, "{body}");
            assert!(!wrong.message.contains("hunter2"), "{}", wrong.message);
        }
    };
    check(json!({"properties": []}), "properties");
    check(json!({"systemData": ["me", "User"]}), "systemData");
    for profile in [
        "clusterProfile",
        "consoleProfile",
        "servicePrincipalProfile",
        "networkProfile",
        "masterProfile",
        "apiserverProfile",
    ] {
        for list in [json!([]), json!(["hunter2"])] {
            check(json!({"properties": {profile: list}}), &format!("properties.{profile}"));
        }
    }
    for profiles in ["workerProfiles", "workerProfilesStatus", "ingressProfiles"] {
        let body = json!({"properties": {profiles: [{"name": "a"}, ["b"]]}});
        check(body, &format!("properties.{profiles}[1]"));
    }
    let balancer = "properties.networkProfile.loadBalancerProfile";
    for (profile, target) in [
        (json!([]), balancer.to_owned()),
        (json!({"managedOutboundIps": [3]}), format!("{balancer}.managedOutboundIps")),
        (json!({"effectiveOutboundIps": [["/ip"]]}), format!("{balancer}.effectiveOutboundIps[0]")),
    ] {
        check(json!({"properties": {"networkProfile": {"loadBalancerProfile": profile}}}), &target);
    }
    let newest = |body: Value| ApiVersion::V2025_07_25.read(body).unwrap_err().target;
    assert_eq!(newest(json!({"identity": []})), "identity");
    let assigned = json!({"identity": {"userAssignedIdentities": {"/i": ["c"]}}});
    assert_eq!(newest(assigned), "identity.userAssignedIdentities./i");
    let platform = "platformWorkloadIdentityProfile";
    assert_eq!(newest(json!({"properties": {platform: []}})), format!("properties.{platform}"));
    let identities = json!({"properties": {platform: {"platformWorkloadIdentities": {"a": ["/i"]}}}});
    assert_eq!(newest(identities), format!("properties.{platform}.platformWorkloadIdentities.a"));
}
