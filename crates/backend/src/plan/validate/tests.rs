use cloud::SecurityRule;

use super::*;

fn principal(claims: &[&str], roles: &[&str]) -> Principal {
    let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
    Principal {
        client_id: "c".to_owned(),
        object_id: "o".to_owned(),
        tenant_id: "t".to_owned(),
        claims: texts(claims),
        directory_roles: texts(roles),
    }
}

#[test]
fn a_principal_needs_one_of_three_claims_and_must_not_own_applications() {
    let code = |claims: &[&str], roles: &[&str]| check_principal(&principal(claims, roles)).map(|it| it.code);
    for claim in ["altsecid", "oid", "puid"] {
        assert_eq!(code(&[claim], &[]), None);
    }
    assert_eq!(code(&["name"], &[]), Some("InvalidServicePrincipalClaims"));
    assert_eq!(
        code(&["oid"], &["Application.ReadWrite.OwnedBy"]),
        Some("InvalidServicePrincipalCredentials")
    );
}

fn subnet(prefix: &str, group: Option<&str>, state: ResourceState) -> (ResourceId, Resource) {
    let network = ResourceId::group("s", "g").sibling("Microsoft.Network", "virtualNetworks", "v");
    let id = network.child("subnets", "a");
    let group = group.map(|name| network.sibling("Microsoft.Network", "networkSecurityGroups", name));
    let properties = Properties::Subnet {
        address_prefix: prefix.to_owned(),
        security_group: group,
        route_table: None,
        nat_gateway: None,
        service_endpoints: Vec::new(),
        private_link_policies: false,
    };
    let resource =
        Resource { id: id.clone(), location: "here".to_owned(), tags: [].into(), properties, state };
    (id, resource)
}

fn spec(own_groups: Switch) -> Spec {
    use api::doc::{MasterPool, NetworkSpec, Visibility};
    Spec {
        domain: "d".to_owned(),
        version: "4.17.3".to_owned(),
        resource_group_id: "/subscriptions/s/resourceGroups/m".to_owned(),
        fips: Switch::Disabled,
        identity: Identity::ServicePrincipal { client_id: "c".to_owned() },
        network: NetworkSpec {
            pod_cidr: "10.128.0.0/14".to_owned(),
            service_cidr: "172.30.0.0/16".to_owned(),
            outbound_type: OutboundType::Loadbalancer,
            preconfigured_nsg: own_groups,
            managed_outbound_ips: None,
        },
        master: MasterPool {
            vm_size: "x".to_owned(),
            subnet_id: String::new(),
            encryption_at_host: Switch::Disabled,
            disk_encryption_set_id: None,
        },
        workers: Vec::new(),
        api_visibility: Visibility::Public,
        ingress: Vec::new(),
    }
}

#[test]
fn an_operators_identity_lets_in_nobody_but_this_cluster() {
    let id = ResourceId::group("s", "g").sibling("Microsoft.ManagedIdentity", "userAssignedIdentities", "i");
    let identity = |names: &[&str]| {
        let federated = names.iter().map(|it| ((*it).to_owned(), "subject".to_owned())).collect();
        let properties =
            Properties::Identity { client_id: None, principal_id: None, tenant_id: None, federated };
        Resource {
            id: id.clone(),
            location: String::new(),
            tags: [].into(),
            properties,
            state: ResourceState::Succeeded,
        }
    };
    let code = |names: &[&str]| {
        check_federation(&identity(names), "image-registry", "https://oidc/us", "t").map(|it| it.code)
    };
    assert_eq!(code(&[]), None);
    assert_eq!(code(&["https://oidc/us|image-registry"]), None);
    let foreign = Some("PlatformWorkloadIdentityContainsInvalidCredential");
    assert_eq!(code(&["https://oidc/us|image-registry", "https://oidc/them|image-registry"]), foreign);
    assert_eq!(code(&["https://oidc/us2|image-registry"]), foreign);
}

#[test]
fn a_subnet_must_be_large_apart_settled_and_guarded_as_was_said() {
    let own = ResourceId::group("s", "g").sibling("Microsoft.Network", "networkSecurityGroups", "own");
    let invalid = |prefix: &str, group: Option<&str>, state: ResourceState, own_groups: Switch| {
        let (id, resource) = subnet(prefix, group, state);
        check_subnet(&id, &resource, &spec(own_groups), Some(&own)).unwrap_or_default()
    };
    use Switch::{Disabled, Enabled};
    assert_eq!(invalid("10.0.0.0/27", None, ResourceState::Succeeded, Disabled), "");
    assert_eq!(invalid("10.0.0.0/23", Some("own"), ResourceState::Succeeded, Disabled), "");
    assert_eq!(invalid("10.0.0.0/23", Some("theirs"), ResourceState::Succeeded, Enabled), "");
    assert!(invalid("10.0.0.0/28", None, ResourceState::Succeeded, Disabled).contains("/27 or larger"));
    assert!(invalid("10.129.0.0/24", None, ResourceState::Succeeded, Disabled).contains("pod range"));
    assert!(invalid("172.30.9.0/24", None, ResourceState::Succeeded, Disabled).contains("service range"));
    assert!(invalid("10.0.0.0/23", None, ResourceState::Creating, Disabled).contains("Succeeded"));
    assert!(
        invalid("10.0.0.0/23", Some("theirs"), ResourceState::Succeeded, Disabled).contains("must not have")
    );
    assert!(invalid("10.0.0.0/23", None, ResourceState::Succeeded, Enabled).contains("must have"));
    let rules: Vec<SecurityRule> = Vec::new();
    let (id, mut odd) = subnet("10.0.0.0/23", None, ResourceState::Succeeded);
    odd.properties = Properties::SecurityGroup { rules };
    assert!(check_subnet(&id, &odd, &spec(Disabled), None).is_some());
}
