//! Private addresses: what interfaces, frontends and link services get in a subnet. Assigned addresses are kept.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use cloud::ResourceId;
use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::body::{default, invalid, items, missing_reference, properties, reference, same, text};
use super::rows;
use crate::call_context::CallContext;
use crate::cidr;
use crate::failure::Failure;

/// The members that hold configurations with private addresses.
const MEMBERS: [&str; 2] = ["ipConfigurations", "frontendIPConfigurations"];

/// The number of free addresses that are offered in place of one that is not.
const OFFERED_ADDRESSES: usize = 5;

/// Assigns addresses to the parts of one resource.
pub(super) struct Allocation<'a> {
    cx: &'a CallContext<'a>,
    user: &'a ResourceId,
    /// Addresses that other parts of the same resource got.
    own: BTreeSet<Ipv4Addr>,
}

impl<'a> Allocation<'a> {
    pub(super) fn new(cx: &'a CallContext<'a>, user: &'a ResourceId) -> Allocation<'a> {
        Allocation { cx, user, own: BTreeSet::new() }
    }

    /// Fills in the private address of a configuration in a subnet; `before` is the same configuration as it was.
    pub(super) fn fill(&mut self, configuration: &mut Value, before: Option<&Value>) -> Result<(), Failure> {
        let Value::Object(body) = configuration else {
            return Err(invalid(
                "InvalidRequestFormat",
                format!("A configuration of {} is no object.", self.user),
            ));
        };
        let properties = properties(body);
        let Some(subnet) = reference(properties.get("subnet")) else { return Ok(()) };
        default(properties, "privateIPAllocationMethod", json!("Dynamic"));
        default(properties, "privateIPAddressVersion", json!("IPv4"));
        let is_static = properties
            .get("privateIPAllocationMethod")
            .and_then(Value::as_str)
            .is_some_and(|it| same(it, "Static"));
        let kept = before
            .and_then(|it| it.get("properties"))
            .filter(|it| reference(it.get("subnet")).as_ref() == Some(&subnet))
            .and_then(|it| text(it, "privateIPAddress"));
        let asked = match is_static {
            true => properties.get("privateIPAddress").and_then(Value::as_str).or(kept),
            false => kept,
        };
        let address = self.assign(&subnet, asked)?;
        properties.insert("privateIPAddress".to_owned(), json!(address.to_string()));
        Ok(())
    }

    fn assign(&mut self, subnet: &ResourceId, asked: Option<&str>) -> Result<Ipv4Addr, Failure> {
        let found = rows::present(self.cx, subnet)?.ok_or_else(|| missing_reference(subnet, self.user))?;
        let ranges: Vec<Ipv4Net> =
            super::networks::prefixes(&found.body).iter().filter_map(|it| cidr::parse(it).ok()).collect();
        let mut taken = taken(self.cx, subnet, self.user)?;
        taken.extend(&self.own);
        let address = match asked {
            Some(asked) => self.check(subnet, asked, &ranges, &taken)?,
            None => {
                let mut free =
                    ranges.iter().flat_map(|it| cidr::assignable(*it)).filter(|it| !taken.contains(it));
                free.next().ok_or_else(|| {
                    let message = format!(
                        "Subnet {subnet} with address prefix {ranges:?} does not have enough capacity for 1 IP addresses."
                    );
                    invalid("SubnetIsFull", message)
                })?
            }
        };
        self.own.insert(address);
        Ok(address)
    }

    fn check(
        &self,
        subnet: &ResourceId,
        asked: &str,
        ranges: &[Ipv4Net],
        taken: &BTreeSet<Ipv4Addr>,
    ) -> Result<Ipv4Addr, Failure> {
        let Ok(address) = asked.parse::<Ipv4Addr>() else {
            return Err(invalid("InvalidIPAddressFormat", format!("'{asked}' is not an IPv4 address.")));
        };
        let Some(range) = ranges.iter().find(|it| it.contains(&address)) else {
            let message = format!(
                "Private static IP address {address} does not belong to the range of subnet {subnet}."
            );
            return Err(invalid("PrivateIPAddressNotInSubnet", message));
        };
        if !cidr::is_assignable(*range, address) {
            let message =
                format!("Private static IP address {address} is reserved by Azure in subnet {subnet}.");
            return Err(invalid("PrivateIPAddressInReservedRange", message));
        }
        if taken.contains(&address) {
            let message =
                format!("Private IP address {address} is already allocated to another resource in {subnet}.");
            return Err(invalid("PrivateIPAddressIsAllocated", message));
        }
        Ok(address)
    }
}

/// The addresses of other resources in a subnet.
fn taken(
    cx: &CallContext<'_>,
    subnet: &ResourceId,
    user: &ResourceId,
) -> Result<BTreeSet<Ipv4Addr>, Failure> {
    let mut taken = BTreeSet::new();
    for other in rows::users(cx, subnet)?.iter().filter(|it| it.id != *user) {
        for configuration in configurations(other, subnet) {
            let address = configuration.get("properties").and_then(|it| text(it, "privateIPAddress"));
            taken.extend(address.and_then(|it| it.parse::<Ipv4Addr>().ok()));
        }
    }
    Ok(taken)
}

/// Whether an address of a network is free, and otherwise some that are free in the same subnet.
pub(super) fn availability(
    cx: &CallContext<'_>,
    network: &ResourceId,
    asked: &str,
) -> Result<Value, Failure> {
    let Ok(address) = asked.parse::<Ipv4Addr>() else {
        return Err(invalid("InvalidIPAddressFormat", format!("'{asked}' is not an IPv4 address.")));
    };
    for subnet in rows::children(cx, network, super::networks::SUBNET)? {
        let prefixes = super::networks::prefixes(&subnet.body);
        let ranges = prefixes.iter().filter_map(|it| cidr::parse(it).ok());
        let Some(range) = ranges.into_iter().find(|it| it.contains(&address)) else { continue };
        let taken = taken(cx, &subnet.id, network)?;
        if cidr::is_assignable(range, address) && !taken.contains(&address) {
            return Ok(json!({ "available": true }));
        }
        let free = cidr::assignable(range).filter(|it| !taken.contains(it)).take(OFFERED_ADDRESSES);
        let offered: Vec<String> = free.map(|it| it.to_string()).collect();
        return Ok(json!({ "available": false, "availableIPAddresses": offered }));
    }
    let message = format!("The address {address} belongs to no subnet of virtual network {network}.");
    Err(invalid("PrivateIPAddressNotInAnySubnet", message))
}

/// The configurations of a resource that are in a subnet.
pub(super) fn configurations<'a>(
    resource: &'a crate::arm::ArmResource,
    subnet: &'a ResourceId,
) -> impl Iterator<Item = &'a Value> {
    let properties = resource.body.get("properties");
    MEMBERS
        .iter()
        .flat_map(move |member| properties.into_iter().flat_map(move |it| items(it, member)))
        .filter(move |it| {
            reference(it.get("properties").and_then(|it| it.get("subnet"))).as_ref() == Some(subnet)
        })
}
