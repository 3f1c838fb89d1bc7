//! Virtual networks, subnets, security groups, routes, addresses and interfaces.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cloud::{CloudError, Properties, ResourceId, SecurityRule};
use serde_json::{Value, json};

use crate::json::{id_at, items, optional_text, retain, set, set_reference, text, texts, upsert};

/// Rules of a security group that this service owns; all others are the customer's or the cluster's and stay.
const OWN_RULES: &[&str] = &["apiserver_in"];

/// A network is created and never changed: a put would replace the customer's subnets.
pub(super) fn apply_network(
    body: &mut Value,
    id: &ResourceId,
    address_space: &[String],
    is_new: bool,
) -> Result<(), CloudError> {
    if is_new {
        set(body, &["properties", "addressSpace", "addressPrefixes"], json!(address_space));
        return Ok(());
    }
    let present = texts(body, "/properties/addressSpace/addressPrefixes");
    if address_space.iter().all(|it| present.contains(it)) {
        return Ok(());
    }
    let why =
        format!("it has the address space {}, and an existing network is not changed", present.join(", "));
    Err(CloudError::Conflict { what: id.to_string(), why })
}

pub(super) fn network(body: &Value) -> Properties {
    Properties::VirtualNetwork { address_space: texts(body, "/properties/addressSpace/addressPrefixes") }
}

/// A subnet is the customer's. Its security group is set and taken away; a route table, a NAT gateway and service endpoints that others
/// have added stay, because nothing here ever takes them away.
pub(super) fn apply_subnet(body: &mut Value, subnet: &Properties) {
    let Properties::Subnet {
        address_prefix,
        security_group,
        route_table,
        nat_gateway,
        service_endpoints,
        private_link_policies,
    } = subnet
    else {
        return;
    };
    if !texts(body, "/properties/addressPrefixes").contains(address_prefix) {
        set(body, &["properties", "addressPrefix"], json!(address_prefix));
        set(body, &["properties", "addressPrefixes"], Value::Null);
    }
    let security_group = security_group.as_ref().map(ResourceId::as_str);
    set_reference(body, &["properties", "networkSecurityGroup"], security_group);
    for (member, id) in [("routeTable", route_table), ("natGateway", nat_gateway)] {
        if let Some(id) = id {
            set_reference(body, &["properties", member], Some(id.as_str()));
        }
    }
    for name in service_endpoints {
        let mut all = items(body, "/properties/serviceEndpoints").to_vec();
        let present = all.iter().position(|it| text(it, "/service").eq_ignore_ascii_case(name));
        let wanted = json!({ "service": name, "locations": ["*"] });
        match present {
            Some(at) if is_ready_endpoint(&all[at]) => continue,
            // One that has failed is requested again.
            Some(at) => all[at] = wanted,
            None => all.push(wanted),
        }
        set(body, &["properties", "serviceEndpoints"], Value::Array(all));
    }
    let policies = if *private_link_policies { "Enabled" } else { "Disabled" };
    // Absent means enabled.
    let present = text(body, "/properties/privateLinkServiceNetworkPolicies");
    let holds = present.eq_ignore_ascii_case(policies) || (present.is_empty() && *private_link_policies);
    if !holds {
        set(body, &["properties", "privateLinkServiceNetworkPolicies"], json!(policies));
    }
}

fn is_ready_endpoint(endpoint: &Value) -> bool {
    let state = text(endpoint, "/provisioningState");
    state.is_empty() || state.eq_ignore_ascii_case("Succeeded") || state.eq_ignore_ascii_case("Updating")
}

pub(super) fn subnet(body: &Value) -> Properties {
    let prefix = optional_text(body, "/properties/addressPrefix");
    let prefixes = texts(body, "/properties/addressPrefixes");
    let endpoints = items(body, "/properties/serviceEndpoints").iter().filter(|it| is_ready_endpoint(it));
    Properties::Subnet {
        address_prefix: prefix.or_else(|| prefixes.into_iter().next()).unwrap_or_default(),
        security_group: id_at(body, "/properties/networkSecurityGroup/id"),
        route_table: id_at(body, "/properties/routeTable/id"),
        nat_gateway: id_at(body, "/properties/natGateway/id"),
        service_endpoints: endpoints.map(|it| text(it, "/service").to_owned()).collect(),
        private_link_policies: !text(body, "/properties/privateLinkServiceNetworkPolicies")
            .eq_ignore_ascii_case("Disabled"),
    }
}

pub(super) fn apply_security_group(body: &mut Value, rules: &[SecurityRule]) {
    let is_wanted = |name: &str| rules.iter().any(|it| it.name.eq_ignore_ascii_case(name));
    retain(body, "/properties/securityRules", |it| {
        let name = text(it, "/name");
        is_wanted(name) || !OWN_RULES.contains(&name)
    });
    for rule in rules {
        upsert(body, &["properties", "securityRules"], &rule.name, |it| {
            let access = if rule.allow { "Allow" } else { "Deny" };
            for (member, value) in [
                ("protocol", json!("Tcp")),
                ("sourcePortRange", json!("*")),
                ("destinationPortRange", json!(rule.port.to_string())),
                ("sourceAddressPrefix", json!(rule.source)),
                ("destinationAddressPrefix", json!("*")),
                ("access", json!(access)),
                ("priority", json!(rule.priority)),
                ("direction", json!("Inbound")),
            ] {
                set(it, &["properties", member], value);
            }
        });
    }
}

pub(super) fn security_group(body: &Value) -> Properties {
    let rule = |it: &Value| {
        Some(SecurityRule {
            name: text(it, "/name").to_owned(),
            priority: it.pointer("/properties/priority")?.as_u64()?.try_into().ok()?,
            allow: text(it, "/properties/access").eq_ignore_ascii_case("Allow"),
            source: text(it, "/properties/sourceAddressPrefix").to_owned(),
            port: text(it, "/properties/destinationPortRange").parse().unwrap_or(0),
        })
    };
    let mut rules: Vec<SecurityRule> =
        items(body, "/properties/securityRules").iter().filter_map(rule).collect();
    rules.sort_by_key(|it| it.priority);
    Properties::SecurityGroup { rules }
}

pub(super) fn apply_route_table(body: &mut Value, routes: &BTreeMap<String, String>) {
    retain(body, "/properties/routes", |it| routes.contains_key(text(it, "/properties/addressPrefix")));
    for (range, hop) in routes {
        let names = items(body, "/properties/routes").iter();
        let mut present = names.filter(|it| text(it, "/properties/addressPrefix") == range);
        let name = present
            .next()
            .map_or_else(|| range.replace(['.', '/', ':'], "-"), |it| text(it, "/name").to_owned());
        upsert(body, &["properties", "routes"], &name, |it| {
            set(it, &["properties", "addressPrefix"], json!(range));
            let is_address = hop.parse::<IpAddr>().is_ok();
            let kind = if is_address { "VirtualAppliance" } else { hop.as_str() };
            set(it, &["properties", "nextHopType"], json!(kind));
            set(it, &["properties", "nextHopIpAddress"], if is_address { json!(hop) } else { Value::Null });
        });
    }
}

pub(super) fn route_table(body: &Value) -> Properties {
    let route = |it: &Value| {
        let hop = optional_text(it, "/properties/nextHopIpAddress")
            .unwrap_or_else(|| text(it, "/properties/nextHopType").to_owned());
        (text(it, "/properties/addressPrefix").to_owned(), hop)
    };
    Properties::RouteTable { routes: items(body, "/properties/routes").iter().map(route).collect() }
}

pub(super) fn apply_standard(body: &mut Value, is_new: bool) {
    if is_new {
        set(body, &["sku", "name"], json!("Standard"));
        set(body, &["properties"], json!({}));
    }
}

pub(super) fn apply_public_ip(body: &mut Value, is_new: bool) {
    // Zones and allocation of an address cannot change.
    if is_new {
        set(body, &["sku", "name"], json!("Standard"));
        set(body, &["properties", "publicIPAllocationMethod"], json!("Static"));
    }
}

pub(super) fn apply_interface(body: &mut Value, subnet: &ResourceId, pools: &[String]) {
    let present = items(body, "/properties/ipConfigurations").first();
    let name = present.map_or_else(|| "pipConfig".to_owned(), |it| text(it, "/name").to_owned());
    upsert(body, &["properties", "ipConfigurations"], &name, |it| {
        set_reference(it, &["properties", "subnet"], Some(subnet.as_str()));
        let present = items(it, "/properties/loadBalancerBackendAddressPools");
        let has = |id: &String| present.iter().any(|it| text(it, "/id").eq_ignore_ascii_case(id));
        // Pools that the cluster has joined by itself stay.
        let mut all = present.to_vec();
        all.extend(pools.iter().filter(|id| !has(id)).map(|id| json!({ "id": id })));
        if !all.is_empty() {
            set(it, &["properties", "loadBalancerBackendAddressPools"], Value::Array(all));
        }
        if it.pointer("/properties/primary").is_none() {
            set(it, &["properties", "primary"], json!(true));
        }
    });
}

pub(super) fn interface(body: &Value) -> Option<Properties> {
    let first = items(body, "/properties/ipConfigurations").first()?;
    let pools = items(first, "/properties/loadBalancerBackendAddressPools").iter();
    Some(Properties::NetworkInterface {
        subnet: id_at(first, "/properties/subnet/id")?,
        pools: pools.map(|it| text(it, "/id").to_owned()).collect(),
        address: optional_text(first, "/properties/privateIPAddress"),
        machine: id_at(body, "/properties/virtualMachine/id"),
    })
}
