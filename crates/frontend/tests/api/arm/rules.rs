//! Every validation rule, from one table: the value and its error.

use serde_json::{Value, json};

use super::{NEW, OLD, SUBSCRIPTION, at, body, with};
use crate::fixture::TestServer;

const PARAMETER: &str = "InvalidParameter";

/// JSON pointer, invalid value, error code, error target.
type Rule = (&'static str, Value, &'static str, &'static str);

fn group(name: &str) -> String {
    format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/{name}")
}

fn subnet(network: &str, name: &str) -> Value {
    json!(format!("{}/providers/Microsoft.Network/virtualNetworks/{network}/subnets/{name}", group("Net")))
}

fn disks(name: &str) -> Value {
    json!(format!("{}/providers/Microsoft.Compute/diskEncryptionSets/{name}", group("Net")))
}

const OTHER: &str = "22222222-2222-2222-2222-222222222222";

/// Rules of a creation in every version.
fn rules() -> Vec<Rule> {
    const PROFILE: &str = "properties.clusterProfile";
    const NETWORK: &str = "properties.networkProfile";
    const BALANCER: &str = "properties.networkProfile.loadBalancerProfile";
    let mut rules: Vec<Rule> = vec![
        ("/id", json!("/subscriptions/x"), "MismatchingResourceID", "id"),
        ("/name", json!("other"), "MismatchingResourceName", "name"),
        ("/type", json!("Microsoft.Compute/virtualMachines"), "MismatchingResourceType", "type"),
        ("/location", json!(null), PARAMETER, "location"),
        ("/location", json!("mars"), PARAMETER, "location"),
        ("/tags", json!({ "a": "x".repeat(200_000), "b": "x".repeat(80_000) }), PARAMETER, "tags"),
        ("/tags", json!({ "a": "\u{1}".repeat(50_000) }), PARAMETER, "tags"),
        ("/properties", json!(null), PARAMETER, "properties"),
        ("/properties/provisioningState", json!("Sleeping"), PARAMETER, "properties.provisioningState"),
        ("/properties/clusterProfile", json!(null), PARAMETER, PROFILE),
        (
            "/properties/clusterProfile/pullSecret",
            json!("x"),
            PARAMETER,
            "properties.clusterProfile.pullSecret",
        ),
        (
            "/properties/clusterProfile/pullSecret",
            json!("{\"auths\":[]}"),
            PARAMETER,
            "properties.clusterProfile.pullSecret",
        ),
        ("/properties/clusterProfile/domain", json!(null), PARAMETER, "properties.clusterProfile.domain"),
        ("/properties/clusterProfile/version", json!("4.20"), PARAMETER, "properties.clusterProfile.version"),
        (
            "/properties/clusterProfile/version",
            json!("4.99.1"),
            PARAMETER,
            "properties.clusterProfile.version",
        ),
        (
            "/properties/clusterProfile/resourceGroupId",
            json!(null),
            PARAMETER,
            "properties.clusterProfile.resourceGroupId",
        ),
        (
            "/properties/clusterProfile/resourceGroupId",
            json!("mine"),
            PARAMETER,
            "properties.clusterProfile.resourceGroupId",
        ),
        (
            "/properties/clusterProfile/resourceGroupId",
            json!(format!("/subscriptions/{OTHER}/resourceGroups/mine")),
            PARAMETER,
            "properties.clusterProfile.resourceGroupId",
        ),
        (
            "/properties/clusterProfile/resourceGroupId",
            json!(group("MYGROUP")),
            PARAMETER,
            "properties.clusterProfile.resourceGroupId",
        ),
        (
            "/properties/clusterProfile/fipsValidatedModules",
            json!(null),
            PARAMETER,
            "properties.clusterProfile.fipsValidatedModules",
        ),
        (
            "/properties/clusterProfile/fipsValidatedModules",
            json!("On"),
            PARAMETER,
            "properties.clusterProfile.fipsValidatedModules",
        ),
        ("/properties/consoleProfile", json!({"url": "nowhere"}), PARAMETER, "properties.consoleProfile.url"),
        ("/properties/servicePrincipalProfile", json!(null), PARAMETER, "properties.servicePrincipalProfile"),
        (
            "/properties/servicePrincipalProfile/clientId",
            json!("me"),
            PARAMETER,
            "properties.servicePrincipalProfile.clientId",
        ),
        (
            "/properties/servicePrincipalProfile/clientId",
            json!(null),
            PARAMETER,
            "properties.servicePrincipalProfile.clientId",
        ),
        (
            "/properties/servicePrincipalProfile/clientSecret",
            json!(null),
            PARAMETER,
            "properties.servicePrincipalProfile.clientSecret",
        ),
        (
            "/properties/servicePrincipalProfile/clientSecret",
            json!(""),
            PARAMETER,
            "properties.servicePrincipalProfile.clientSecret",
        ),
        ("/properties/networkProfile", json!(null), PARAMETER, NETWORK),
        (
            "/properties/networkProfile/outboundType",
            json!("LoadBalancer"),
            PARAMETER,
            "properties.networkProfile.outboundType",
        ),
        (
            "/properties/networkProfile/outboundType",
            json!("UserDefinedRouting"),
            PARAMETER,
            "properties.networkProfile.outboundType",
        ),
        (
            "/properties/networkProfile/preconfiguredNSG",
            json!("Maybe"),
            PARAMETER,
            "properties.networkProfile.preconfiguredNSG",
        ),
        (
            "/properties/networkProfile/loadBalancerProfile",
            json!({"effectiveOutboundIps": [{"id": "/ip"}]}),
            PARAMETER,
            "properties.networkProfile.loadBalancerProfile.effectiveOutboundIps",
        ),
        ("/properties/masterProfile", json!(null), PARAMETER, "properties.masterProfile"),
        ("/properties/masterProfile/vmSize", json!(null), PARAMETER, "properties.masterProfile.vmSize"),
        (
            "/properties/masterProfile/vmSize",
            json!("Standard_D4s_v5"),
            PARAMETER,
            "properties.masterProfile.vmSize",
        ),
        ("/properties/masterProfile/vmSize", json!("Huge"), PARAMETER, "properties.masterProfile.vmSize"),
        ("/properties/masterProfile/subnetId", json!(null), PARAMETER, "properties.masterProfile.subnetId"),
        (
            "/properties/masterProfile/subnetId",
            json!("/subnets/x"),
            PARAMETER,
            "properties.masterProfile.subnetId",
        ),
        (
            "/properties/masterProfile/subnetId",
            json!(subnet("Vnet", "m1").as_str().unwrap().replace(SUBSCRIPTION, OTHER)),
            PARAMETER,
            "properties.masterProfile.subnetId",
        ),
        (
            "/properties/masterProfile/encryptionAtHost",
            json!(null),
            PARAMETER,
            "properties.masterProfile.encryptionAtHost",
        ),
        (
            "/properties/masterProfile/encryptionAtHost",
            json!("Yes"),
            PARAMETER,
            "properties.masterProfile.encryptionAtHost",
        ),
        (
            "/properties/masterProfile/diskEncryptionSetId",
            json!("x"),
            PARAMETER,
            "properties.masterProfile.diskEncryptionSetId",
        ),
        (
            "/properties/masterProfile/diskEncryptionSetId",
            json!(disks("d").as_str().unwrap().replace(SUBSCRIPTION, OTHER)),
            PARAMETER,
            "properties.masterProfile.diskEncryptionSetId",
        ),
        ("/properties/workerProfiles", json!(null), PARAMETER, "properties.workerProfiles"),
        ("/properties/workerProfiles", json!([]), PARAMETER, "properties.workerProfiles"),
        ("/properties/workerProfiles", json!([{}, {}]), PARAMETER, "properties.workerProfiles"),
        (
            "/properties/workerProfiles/0/name",
            json!("helper"),
            PARAMETER,
            "properties.workerProfiles['helper'].name",
        ),
        ("/properties/workerProfiles/0/name", json!(null), PARAMETER, "properties.workerProfiles[''].name"),
        (
            "/properties/workerProfiles/0/vmSize",
            json!("Standard_D2s_v5"),
            PARAMETER,
            "properties.workerProfiles['worker'].vmSize",
        ),
        (
            "/properties/workerProfiles/0/vmSize",
            json!(null),
            PARAMETER,
            "properties.workerProfiles['worker'].vmSize",
        ),
        (
            "/properties/workerProfiles/0/diskSizeGB",
            json!(127),
            PARAMETER,
            "properties.workerProfiles['worker'].diskSizeGB",
        ),
        (
            "/properties/workerProfiles/0/diskSizeGB",
            json!(null),
            PARAMETER,
            "properties.workerProfiles['worker'].diskSizeGB",
        ),
        (
            "/properties/workerProfiles/0/count",
            json!(1),
            PARAMETER,
            "properties.workerProfiles['worker'].count",
        ),
        (
            "/properties/workerProfiles/0/count",
            json!(51),
            PARAMETER,
            "properties.workerProfiles['worker'].count",
        ),
        (
            "/properties/workerProfiles/0/count",
            json!(null),
            PARAMETER,
            "properties.workerProfiles['worker'].count",
        ),
        (
            "/properties/workerProfiles/0/subnetId",
            json!(null),
            PARAMETER,
            "properties.workerProfiles['worker'].subnetId",
        ),
        (
            "/properties/workerProfiles/0/subnetId",
            json!("x"),
            PARAMETER,
            "properties.workerProfiles['worker'].subnetId",
        ),
        (
            "/properties/workerProfiles/0/subnetId",
            subnet("Other", "worker"),
            PARAMETER,
            "properties.workerProfiles['worker'].subnetId",
        ),
        (
            "/properties/workerProfiles/0/subnetId",
            subnet("VNET", "MASTER"),
            PARAMETER,
            "properties.workerProfiles['worker'].subnetId",
        ),
        (
            "/properties/workerProfiles/0/encryptionAtHost",
            json!(null),
            PARAMETER,
            "properties.workerProfiles['worker'].encryptionAtHost",
        ),
        (
            "/properties/workerProfiles/0/encryptionAtHost",
            json!("?"),
            PARAMETER,
            "properties.workerProfiles['worker'].encryptionAtHost",
        ),
        (
            "/properties/workerProfiles/0/diskEncryptionSetId",
            json!("x"),
            PARAMETER,
            "properties.workerProfiles['worker'].diskEncryptionSetId",
        ),
        (
            "/properties/workerProfiles/0/diskEncryptionSetId",
            disks("d"),
            PARAMETER,
            "properties.workerProfiles['worker'].diskEncryptionSetId",
        ),
        (
            "/properties/workerProfilesStatus",
            json!([{"name": "a"}]),
            PARAMETER,
            "properties.workerProfilesStatus",
        ),
        ("/properties/apiserverProfile", json!(null), PARAMETER, "properties.apiserverProfile"),
        (
            "/properties/apiserverProfile/visibility",
            json!(null),
            PARAMETER,
            "properties.apiserverProfile.visibility",
        ),
        (
            "/properties/apiserverProfile/visibility",
            json!("Hidden"),
            PARAMETER,
            "properties.apiserverProfile.visibility",
        ),
        ("/properties/apiserverProfile/url", json!("api"), PARAMETER, "properties.apiserverProfile.url"),
        ("/properties/apiserverProfile/ip", json!("::1"), PARAMETER, "properties.apiserverProfile.ip"),
        ("/properties/ingressProfiles", json!(null), PARAMETER, "properties.ingressProfiles"),
        ("/properties/ingressProfiles", json!([]), PARAMETER, "properties.ingressProfiles"),
        (
            "/properties/ingressProfiles/0/name",
            json!("side"),
            PARAMETER,
            "properties.ingressProfiles['side'].name",
        ),
        (
            "/properties/ingressProfiles/0/visibility",
            json!(""),
            PARAMETER,
            "properties.ingressProfiles['default'].visibility",
        ),
        (
            "/properties/ingressProfiles/0/ip",
            json!("x"),
            PARAMETER,
            "properties.ingressProfiles['default'].ip",
        ),
        // A value of another type is invalid content.
        ("/location", json!(7), "InvalidRequestContent", "location"),
        (
            "/properties/workerProfiles/0/count",
            json!("3"),
            "InvalidRequestContent",
            "properties.workerProfiles[0].count",
        ),
        ("/tags", json!({"a": 1}), "InvalidRequestContent", "tags.a"),
        ("/tags", json!([]), "InvalidRequestContent", "tags"),
        ("/properties", json!([]), "InvalidRequestContent", "properties"),
        ("/properties/clusterProfile", json!([]), "InvalidRequestContent", PROFILE),
        (
            "/properties/servicePrincipalProfile",
            json!(["33333333-3333-3333-3333-333333333333", "12345"]),
            "InvalidRequestContent",
            "properties.servicePrincipalProfile",
        ),
        (
            "/properties/apiserverProfile",
            json!(["Public"]),
            "InvalidRequestContent",
            "properties.apiserverProfile",
        ),
        (
            "/properties/workerProfiles/0",
            json!(["worker", "Standard_D4s_v5"]),
            "InvalidRequestContent",
            "properties.workerProfiles[0]",
        ),
        (
            "/properties/servicePrincipalProfile/clientSecret",
            json!(12345),
            "InvalidRequestContent",
            "properties.servicePrincipalProfile.clientSecret",
        ),
    ];
    for domain in ["a", "1a", "-a", "a-", "A.b", "ab..c", "ab.-c", "ab.", "ab_c"] {
        rules.push((
            "/properties/clusterProfile/domain",
            json!(domain),
            PARAMETER,
            "properties.clusterProfile.domain",
        ));
    }
    for count in [0, 21] {
        let profile = json!({"managedOutboundIps": {"count": count}});
        let target = "properties.networkProfile.loadBalancerProfile.managedOutboundIps.count";
        rules.push(("/properties/networkProfile/loadBalancerProfile", profile, PARAMETER, target));
    }
    for (pointer, longest, target) in [
        ("/properties/networkProfile/podCidr", 18, "properties.networkProfile.podCidr"),
        ("/properties/networkProfile/serviceCidr", 22, "properties.networkProfile.serviceCidr"),
    ] {
        rules.push((pointer, json!(null), PARAMETER, target));
        rules.push((pointer, json!("10.0.0.0"), PARAMETER, target));
        rules.push((pointer, json!("fd00::/48"), PARAMETER, target));
        rules.push((pointer, json!(format!("10.0.0.0/{}", longest + 1)), PARAMETER, target));
        rules.push((pointer, json!("10.0.0.1/16"), "InvalidNetworkAddress", target));
        for taken in ["100.64.0.0/16", "169.254.0.0/16", "100.88.128.0/17", "0.0.0.0/0"] {
            rules.push((pointer, json!(taken), "InvalidCIDRRange", NETWORK));
        }
    }
    assert!(
        rules.iter().all(|(_, _, _, target)| !target.starts_with(BALANCER) || target.len() > BALANCER.len())
    );
    rules
}

#[tokio::test]
async fn every_rule_has_its_code_and_target_in_each_version() {
    let server = TestServer::open().await;
    server.register().await;
    for version in [NEW, OLD] {
        for (pointer, value, code, target) in rules() {
            let sent = with(body("ruled"), pointer, value.clone());
            let reply = server.put(&at("ruled", version), &sent).await;
            let expect = (400, code.to_owned(), target.to_owned());
            assert_eq!(reply.error(), expect, "{version} {pointer} = {value}: {}", reply.text);
            assert!(
                !reply.text.contains(super::CLIENT_SECRET) && !reply.text.contains("12345"),
                "{}",
                reply.text
            );
        }
    }
    // The workers' keys differ from those of the control plane, but the wrong subscription is reported first.
    let keyed = with(body("ruled"), "/properties/masterProfile/diskEncryptionSetId", disks("d"));
    let foreign = json!(disks("d").as_str().unwrap().replace(SUBSCRIPTION, OTHER));
    let keyed = with(keyed, "/properties/workerProfiles/0/diskEncryptionSetId", foreign);
    let reply = server.put(&at("ruled", NEW), &keyed).await;
    assert_eq!(reply.error().2, "properties.workerProfiles['worker'].diskEncryptionSetId");
    assert!(reply.text.contains("the cluster's own subscription"), "{}", reply.text);
    // User-defined routing needs a private API server and a private ingress.
    for pointer in ["/properties/apiserverProfile/visibility", "/properties/ingressProfiles/0/visibility"] {
        let half = with(body("ruled"), pointer, json!("Private"));
        let half = with(half, "/properties/networkProfile/outboundType", json!("UserDefinedRouting"));
        let expect = (400, PARAMETER.to_owned(), "properties.networkProfile.outboundType".to_owned());
        assert_eq!(server.put(&at("ruled", NEW), &half).await.error(), expect, "{pointer}");
    }
    // User-defined routing and a load balancer profile exclude each other, even if everything is private.
    let private = with(body("ruled"), "/properties/apiserverProfile/visibility", json!("Private"));
    let private = with(private, "/properties/ingressProfiles/0/visibility", json!("Private"));
    let routed = with(private, "/properties/networkProfile/outboundType", json!("UserDefinedRouting"));
    let both = with(routed.clone(), "/properties/networkProfile/loadBalancerProfile", json!({}));
    let error = server.put(&at("ruled", NEW), &both).await.error();
    assert_eq!(error.2, "properties.networkProfile.loadBalancerProfile");
    assert!(
        server.store.clusters().find(&super::rid("ruled")).await.unwrap().is_none(),
        "nothing was stored"
    );
    // Valid values are accepted.
    let made = server.put(&at("ruled", NEW), &routed).await.expect(201).json();
    assert_eq!(made["properties"]["networkProfile"]["outboundType"], "UserDefinedRouting");
    assert!(made["properties"]["networkProfile"].get("loadBalancerProfile").is_none());
    server.close().await;
}

#[tokio::test]
async fn sizes_need_a_version_and_small_ones_can_be_required() {
    let server = TestServer::open().await;
    server.register().await;
    let sized = with(body("sized"), "/properties/masterProfile/vmSize", json!("Standard_D8s_v6"));
    let old = with(sized.clone(), "/properties/clusterProfile/version", json!("4.18.26"));
    let reply = server.put(&at("sized", NEW), &old).await;
    assert_eq!(reply.error().2, "properties.masterProfile.vmSize");
    assert!(reply.text.contains("for version"), "{}", reply.text);
    server.put(&at("sized", NEW), &sized).await.expect(201);
    server.close().await;

    let small = TestServer::configured(|config| config.small_workers = true).await;
    small.register().await;
    let error = small.put(&at("small", NEW), &body("small")).await.error();
    assert_eq!(error.2, "properties.workerProfiles['worker'].vmSize");
    let fits = with(body("small"), "/properties/workerProfiles/0/vmSize", json!("Standard_D2s_v5"));
    small.put(&at("small", NEW), &fits).await.expect(201);
    small.close().await;
}

#[tokio::test]
async fn a_name_in_the_services_own_zone_is_one_label_of_its_location() {
    let server = TestServer::configured(|config| config.zone = Some("clusters.example".to_owned())).await;
    server.register().await;
    for (domain, expect) in [
        ("harbour.clusters.example", false),
        ("harbour.west.clusters.example", false),
        ("a.harbour.local.clusters.example", false),
        ("harbour.example", true),
        ("harbour.local.clusters.example", true),
    ] {
        let name = domain.replace('.', "-");
        let sent = with(body(&name), "/properties/clusterProfile/domain", json!(domain));
        let reply = server.put(&at(&name, NEW), &sent).await;
        if expect {
            reply.expect(201);
        } else {
            assert_eq!(reply.error().2, "properties.clusterProfile.domain", "{domain}");
        }
    }
    server.close().await;
}
