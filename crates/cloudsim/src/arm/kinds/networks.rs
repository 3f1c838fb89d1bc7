//! Virtual networks and their subnets. Subnets are rows of their own; a network shows them, and a PUT of a network may contain them.

use cloud::ResourceId;
use ipnet::{IpNet, Ipv6Net};
use serde_json::{Value, json};

use super::body::{
    Body, default, embedded, hide_private, invalid, items, keep, missing_reference, object, properties,
    reference, same, text,
};
use super::{allocation, rows};
use crate::arm::references::in_properties;
use crate::arm::{ArmResource, Behaviour};
use crate::call_context::CallContext;
use crate::cidr;
use crate::failure::Failure;
use crate::seed;

pub(super) const NETWORK: &str = "Microsoft.Network/virtualNetworks";
pub(super) const SUBNET: &str = "Microsoft.Network/virtualNetworks/subnets";

/// The private member that carries the subnets of a PUT until they are stored.
const SENT: &str = "$subnets";

/// The member with the peerings of a network.
const PEERINGS: &str = "virtualNetworkPeerings";

pub(super) struct VirtualNetworks;

impl Behaviour for VirtualNetworks {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        hide_private(body);
        keep(before, body, &["resourceGuid"]);
        let guid = seed::uuid(cx.seed, &["guid", &id.key()]).to_string();
        let properties = properties(body);
        default(properties, "resourceGuid", json!(guid));
        default(properties, "dhcpOptions", json!({ "dnsServers": [] }));
        default(properties, PEERINGS, json!([]));
        check_peerings(cx, id, before, properties)?;
        default(properties, "enableDdosProtection", json!(false));
        let space =
            object(properties, "addressSpace").get("addressPrefixes").and_then(Value::as_array).cloned();
        let prefixes: Vec<String> =
            space.unwrap_or_default().iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if prefixes.is_empty() {
            let message = format!("The address space of virtual network {id} has no address prefixes.");
            return Err(invalid("VirtualNetworkAddressSpaceIsEmpty", message));
        }
        let space = ranges(id, &prefixes)?;
        let sent = properties.remove("subnets").filter(|it| !it.is_null());
        let mut planned: Vec<(String, Body)> = Vec::new();
        match sent {
            Some(sent) => {
                for subnet in sent.as_array().into_iter().flatten() {
                    let name = text(subnet, "name").unwrap_or_default().to_owned();
                    if name.is_empty() || planned.iter().any(|(other, _)| same(other, &name)) {
                        let message = format!("Subnets of {id} need names of their own.");
                        return Err(invalid("InvalidRequestFormat", message));
                    }
                    let mut subnet_body = Body::new();
                    subnet_body.insert(
                        "properties".to_owned(),
                        subnet.get("properties").cloned().unwrap_or(json!({})),
                    );
                    let child = id.child("subnets", &name);
                    let had = rows::present(cx, &child)?;
                    fill_subnet(cx, &child, had.as_ref(), &mut subnet_body)?;
                    planned.push((name, subnet_body));
                }
                check_ranges(id, &space, planned.iter().map(|(name, body)| (name.as_str(), body)))?;
                body.insert(SENT.to_owned(), json!(planned));
            }
            None => {
                let present = rows::children(cx, id, SUBNET)?;
                check_ranges(id, &space, present.iter().map(|it| (it.id.name(), &it.body)))?;
            }
        }
        Ok(())
    }

    fn stored(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        let Some(sent) = resource.body.get(SENT) else { return Ok(()) };
        let sent: Vec<(String, Body)> = serde_json::from_value(sent.clone())?;
        for present in rows::children(cx, &resource.id, SUBNET)? {
            if !sent.iter().any(|(name, _)| same(name, present.id.name())) {
                rows::remove_unused(cx, &present, &Subnets)?;
            }
        }
        for (name, body) in sent {
            rows::write(cx, &resource.id.child("subnets", &name), SUBNET, body, resource)?;
        }
        let mut plain = resource.clone();
        plain.body.remove(SENT);
        rows::replace(cx, &plain)
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        hide_private(body);
        let mut subnets = Vec::new();
        for subnet in rows::children(cx, &resource.id, SUBNET)? {
            let mut shown = subnet.body.clone();
            let inner = expand.and_then(|it| it.split('/').nth(1));
            Subnets.show(cx, &subnet, inner, &mut shown)?;
            subnets.push(embedded(cx, &subnet, shown));
        }
        properties(body).insert("subnets".to_owned(), Value::Array(subnets));
        Ok(())
    }

    fn view(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        name: &str,
        query: &[(String, String)],
    ) -> Result<Option<Value>, Failure> {
        if !same(name, "checkIPAddressAvailability") {
            return Ok(None);
        }
        let asked = query.iter().find(|(name, _)| same(name, "ipAddress")).map(|(_, value)| value.as_str());
        allocation::availability(cx, &resource.id, asked.unwrap_or_default()).map(Some)
    }

    /// A peering does not keep the other network from being deleted, and stays without it.
    fn references(&self, id: &ResourceId, body: &Body) -> Vec<ResourceId> {
        let mut body = body.clone();
        properties(&mut body).remove(PEERINGS);
        in_properties(id, &body)
    }

    fn in_use(&self, resource: &ArmResource, user: &ResourceId) -> (String, String) {
        let message = format!("Virtual network {} is in use by {user} and cannot be deleted.", resource.id);
        ("InUseVirtualNetworkCannotBeDeleted".to_owned(), message)
    }
}

/// Requires that the network at the other side of each new peering exists.
fn check_peerings(
    cx: &CallContext<'_>,
    id: &ResourceId,
    before: Option<&ArmResource>,
    properties: &Body,
) -> Result<(), Failure> {
    let remotes = |peerings: Option<&Value>| -> Vec<ResourceId> {
        let all = peerings.and_then(Value::as_array).into_iter().flatten();
        let ids = all.filter_map(|it| it.pointer("/properties/remoteVirtualNetwork/id")?.as_str());
        ids.filter_map(|it| it.parse().ok()).collect()
    };
    let had = remotes(before.and_then(|it| it.property(PEERINGS)));
    for remote in remotes(properties.get(PEERINGS)) {
        if !had.contains(&remote) && rows::present(cx, &remote)?.is_none() {
            return Err(missing_reference(&remote, id));
        }
    }
    Ok(())
}

pub(super) struct Subnets;

impl Behaviour for Subnets {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        fill_subnet(cx, id, before, body)?;
        let Some(network_id) = id.parent() else { return Ok(()) };
        let Some(network) = rows::present(cx, &network_id)? else { return Ok(()) };
        let space: Vec<String> = network
            .property("addressSpace")
            .into_iter()
            .flat_map(|it| items(it, "addressPrefixes"))
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let siblings = rows::children(cx, &network_id, SUBNET)?;
        let others = siblings.iter().filter(|it| it.id != *id).map(|it| (it.id.name(), &it.body));
        check_ranges(&network_id, &ranges(&network_id, &space)?, others.chain([(id.name(), &*body)]))
    }

    fn stored(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        rows::touch_parent(cx, &resource.id)
    }

    fn deleted(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        rows::touch_parent(cx, &resource.id)
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        let expanded = expand.is_some_and(|it| same(it, "ipConfigurations"));
        let (mut configurations, mut endpoints) = (Vec::new(), Vec::new());
        for user in rows::users(cx, &resource.id)? {
            if same(&user.type_name, super::private_endpoints::PRIVATE_ENDPOINT) {
                endpoints.push(json!({ "id": user.id }));
            }
            for configuration in allocation::configurations(&user, &resource.id) {
                configurations.push(match expanded {
                    true => configuration.clone(),
                    false => json!({ "id": configuration.get("id") }),
                });
            }
        }
        let properties = properties(body);
        if !configurations.is_empty() {
            properties.insert("ipConfigurations".to_owned(), Value::Array(configurations));
        }
        if !endpoints.is_empty() {
            properties.insert("privateEndpoints".to_owned(), Value::Array(endpoints));
        }
        Ok(())
    }

    fn in_use(&self, resource: &ArmResource, user: &ResourceId) -> (String, String) {
        let name = resource.id.name();
        let message = format!(
            "Subnet {name} is in use by {user} and cannot be deleted. In order to delete the subnet, delete all the resources \
             within the subnet. See aka.ms/deletesubnet."
        );
        ("InUseSubnetCannotBeDeleted".to_owned(), message)
    }
}

/// Fills in a subnet, and checks what can be checked without its network.
fn fill_subnet(
    cx: &CallContext<'_>,
    id: &ResourceId,
    before: Option<&ArmResource>,
    body: &mut Body,
) -> Result<(), Failure> {
    // What follows from other resources is shown, never stored.
    keep(None, body, &["ipConfigurations", "privateEndpoints", "provisioningState", "purpose"]);
    let prefixes = prefixes(body);
    if prefixes.is_empty() {
        return Err(invalid("InvalidAddressPrefix", format!("Subnet {id} has no address prefix.")));
    }
    let ranges = ranges(id, &prefixes)?;
    if let Some(before) = before
        && self::ranges(id, &self::prefixes(&before.body))?.iter().any(|it| !ranges.contains(it))
        && let Some(user) = rows::users(cx, id)?.first()
    {
        let message =
            format!("Address prefix of subnet {id} is in use by {} and cannot be changed.", user.id);
        return Err(invalid("InUsePrefixCannotBeDeleted", message));
    }
    let properties = properties(body);
    for member in ["networkSecurityGroup", "routeTable", "natGateway"] {
        if properties.get(member).is_some_and(Value::is_null) {
            properties.remove(member);
        }
        if let Some(used) = reference(properties.get(member))
            && rows::present(cx, &used)?.is_none()
        {
            return Err(missing_reference(&used, id));
        }
    }
    for endpoint in properties.get_mut("serviceEndpoints").and_then(Value::as_array_mut).into_iter().flatten()
    {
        if let Value::Object(endpoint) = endpoint {
            default(endpoint, "locations", json!(["*"]));
            endpoint.insert("provisioningState".to_owned(), json!("Succeeded"));
        }
    }
    for delegation in properties.get_mut("delegations").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(delegation) = delegation {
            let name = delegation.get("name").and_then(Value::as_str).unwrap_or("0").to_owned();
            default(delegation, "id", json!(id.child("delegations", &name)));
            default(object(delegation, "properties"), "provisioningState", json!("Succeeded"));
        }
    }
    default(properties, "delegations", json!([]));
    default(properties, "privateEndpointNetworkPolicies", json!("Disabled"));
    default(properties, "privateLinkServiceNetworkPolicies", json!("Enabled"));
    Ok(())
}

/// The address prefixes of a subnet, in either spelling.
pub(super) fn prefixes(body: &Body) -> Vec<String> {
    let properties = body.get("properties").cloned().unwrap_or(Value::Null);
    let several: Vec<String> =
        items(&properties, "addressPrefixes").filter_map(Value::as_str).map(str::to_owned).collect();
    match text(&properties, "addressPrefix") {
        Some(one) if several.is_empty() => vec![one.to_owned()],
        _ => several,
    }
}

fn ranges(id: &ResourceId, prefixes: &[String]) -> Result<Vec<IpNet>, Failure> {
    let parse = |text: &String| -> Result<IpNet, Failure> {
        let parsed = match text.contains(':') {
            true => text.parse::<Ipv6Net>().map(IpNet::V6).map_err(|error| format!("'{text}': {error}")),
            false => cidr::parse(text).map(IpNet::V4),
        };
        parsed.map_err(|why| {
            let message =
                format!("The address prefix {text} in resource {id} has an invalid CIDR notation: {why}.");
            invalid("InvalidCIDRNotation", message)
        })
    };
    prefixes.iter().map(parse).collect()
}

/// Whether subnets lie in the address space of their network and apart from each other.
fn check_ranges<'a>(
    network: &ResourceId,
    space: &[IpNet],
    subnets: impl Iterator<Item = (&'a str, &'a Body)>,
) -> Result<(), Failure> {
    let mut known: Vec<(IpNet, &str)> = Vec::new();
    for (name, body) in subnets {
        for range in ranges(&network.child("subnets", name), &prefixes(body))? {
            if !space.iter().any(|it| it.contains(&range)) {
                let message =
                    format!("Subnet '{name}' is not valid in virtual network '{}'.", network.name());
                return Err(invalid("NetcfgInvalidSubnet", message));
            }
            if let Some((_, other)) = known.iter().find(|(it, _)| it.contains(&range) || range.contains(it)) {
                let message = format!(
                    "Subnet '{name}' is not valid because its IP address range overlaps with that of an existing subnet in \
                     virtual network '{}': '{other}'.",
                    network.name()
                );
                return Err(invalid("NetcfgSubnetRangesOverlap", message));
            }
            known.push((range, name));
        }
    }
    Ok(())
}
