//! Validation of requests: ids, address ranges, references.

use std::net::IpAddr;

use api::cidr::overlap;
use cloud::{LoadBalancerBackend, Properties, ResourceId, ResourceKind};
use ipnet::Ipv4Net;
use rusqlite::OptionalExtension as _;

use super::{Stored, find, group_of, of_group, references_of, usable};
use crate::call_context::CallContext;
use crate::cidr;
use crate::failure::{Failure, conflict, invalid, not_found};

/// The destination of a default route.
const EVERYWHERE: &str = "0.0.0.0/0";

/// Checks that the id is one of the resource kind.
pub(super) fn check_id(id: &ResourceId, kind: ResourceKind) -> Result<(), Failure> {
    let segments: Vec<&str> = id.as_str().split('/').collect();
    let found = segments.get(6).map(|namespace| {
        let types: Vec<&str> = segments[7..].iter().step_by(2).copied().collect();
        (*namespace, types.join("/"))
    });
    let fits = match (kind.provider(), &found) {
        (None, None) => true,
        (Some((namespace, kind)), Some((found_namespace, found_kind))) => {
            namespace.eq_ignore_ascii_case(found_namespace) && kind.eq_ignore_ascii_case(found_kind)
        }
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let expected = match kind.provider() {
        Some((namespace, kind)) => format!("one of {namespace}/{kind}"),
        None => "one of a resource group".to_owned(),
    };
    Err(invalid("InvalidResourceType", format!("{id} does not fit what is put there; expected {expected}")))
}

/// Validates the requested properties against the present resources.
pub(super) fn check(
    cx: &CallContext<'_>,
    id: &ResourceId,
    location: &str,
    before: Option<&Properties>,
    properties: &Properties,
) -> Result<(), Failure> {
    if location.is_empty() {
        return Err(invalid("LocationRequired", format!("{id} has no location")));
    }
    for used in references_of(properties) {
        usable(cx, used)?.ok_or_else(|| not_found(used))?;
    }
    match properties {
        Properties::ResourceGroup { managed_by } => match before {
            Some(Properties::ResourceGroup { managed_by: present }) if present != managed_by => {
                let by = present.as_deref().unwrap_or("nobody");
                Err(conflict(id, format!("it is managed by {by}, and that does not change")))
            }
            _ => Ok(()),
        },
        Properties::VirtualNetwork { address_space } => check_network(cx, id, address_space),
        Properties::Subnet { address_prefix, security_group, route_table, nat_gateway, .. } => {
            for (used, kind) in [
                (security_group, ResourceKind::SecurityGroup),
                (route_table, ResourceKind::RouteTable),
                (nat_gateway, ResourceKind::NatGateway),
            ] {
                if let Some(used) = used {
                    expect_kind(cx, used, kind)?;
                }
            }
            check_subnet(cx, id, address_prefix)
        }
        Properties::SecurityGroup { rules } => {
            let mut priorities: Vec<u32> = rules.iter().map(|it| it.priority).collect();
            priorities.sort_unstable();
            match priorities.windows(2).find(|it| it[0] == it[1]) {
                Some(twice) => {
                    let why = format!("{id} has two rules of priority {}; each needs its own", twice[0]);
                    Err(invalid("SecurityRuleConflict", why))
                }
                None => Ok(()),
            }
        }
        Properties::RouteTable { routes } => {
            routes.keys().filter(|it| *it != EVERYWHERE).try_for_each(|it| range(it).map(drop))
        }
        Properties::LoadBalancer { frontends, backends, outbound } => {
            for frontend in frontends {
                if frontend.public_ip.is_some() == frontend.subnet.is_some() {
                    let why = format!(
                        "the front end {} of {id} needs either a public address or a subnet",
                        frontend.name
                    );
                    return Err(invalid("InvalidFrontend", why));
                }
                if let Some(subnet) = &frontend.subnet {
                    expect_kind(cx, subnet, ResourceKind::Subnet)?;
                }
            }
            for address in frontends.iter().filter_map(|it| it.public_ip.as_ref()).chain(outbound) {
                expect_kind(cx, address, ResourceKind::PublicIp)?;
            }
            // Those that have joined may have gone since.
            let joined: &[LoadBalancerBackend] = match before {
                Some(Properties::LoadBalancer { backends, .. }) => backends,
                _ => &[],
            };
            for backend in backends.iter().filter(|it| !joined.contains(it)) {
                expect_kind(cx, &backend.machine, ResourceKind::Machine)?;
            }
            Ok(())
        }
        Properties::DnsRecord { ttl, addresses } => {
            if *ttl == 0 || addresses.is_empty() {
                let why =
                    format!("{id} has ttl {ttl} and {} addresses; both must be at least 1", addresses.len());
                return Err(invalid("InvalidRecord", why));
            }
            match addresses.iter().find(|it| it.parse::<IpAddr>().is_err()) {
                Some(wrong) => Err(invalid("InvalidRecord", format!("'{wrong}' in {id} is no address"))),
                None => Ok(()),
            }
        }
        Properties::StorageAccount { .. } => check_storage_name(cx, id),
        Properties::PrivateEndpoint { subnet, .. } => {
            expect_kind(cx, subnet, ResourceKind::Subnet)?;
            match before {
                Some(Properties::PrivateEndpoint { subnet: present, target: led, .. })
                    if references_of(properties) != [present, led] =>
                {
                    Err(conflict(id, "an endpoint cannot be moved; delete it first"))
                }
                _ => Ok(()),
            }
        }
        Properties::Machine { subnet, zone, .. } => {
            expect_kind(cx, subnet, ResourceKind::Subnet)?;
            match before {
                Some(Properties::Machine { subnet: present, zone: its_zone, .. })
                    if present != subnet || its_zone != zone =>
                {
                    Err(conflict(id, "a machine cannot be moved to another subnet or zone; delete it first"))
                }
                _ => Ok(()),
            }
        }
        Properties::PublicIp { .. }
        | Properties::NatGateway {}
        | Properties::DnsZone {}
        | Properties::Disk { .. }
        | Properties::DiskEncryptionSet {}
        | Properties::PrivateLinkService { .. }
        | Properties::NetworkInterface { .. }
        | Properties::PrivateDnsZone {}
        | Properties::PrivateDnsRecord { .. }
        | Properties::PrivateDnsLink { .. }
        | Properties::Lock { .. }
        | Properties::Identity { .. } => Ok(()),
    }
}

fn expect_kind(cx: &CallContext<'_>, id: &ResourceId, kind: ResourceKind) -> Result<Stored, Failure> {
    let found = usable(cx, id)?.ok_or_else(|| not_found(id))?;
    if found.properties.kind() == kind {
        return Ok(found);
    }
    let expected = kind.provider().map_or_else(String::new, |(_, kind)| kind.to_owned());
    Err(invalid("InvalidResourceReference", format!("{id} is none of {expected}")))
}

fn range(text: &str) -> Result<Ipv4Net, Failure> {
    cidr::parse(text).map_err(|why| invalid("InvalidAddressPrefixFormat", why))
}

/// The subnets of a network.
fn subnets(cx: &CallContext<'_>, network: &ResourceId) -> Result<Vec<(ResourceId, Ipv4Net)>, Failure> {
    let inside = format!("{}/subnets/", network.key());
    let held = of_group(cx.db, &group_of(network).key())?;
    held.into_iter()
        .filter(|it| it.id.key().starts_with(&inside))
        .filter_map(|it| match &it.properties {
            Properties::Subnet { address_prefix, .. } => Some((it.id.clone(), address_prefix.clone())),
            _ => None,
        })
        .map(|(id, prefix)| Ok((id, range(&prefix)?)))
        .collect()
}

fn check_network(cx: &CallContext<'_>, id: &ResourceId, space: &[String]) -> Result<(), Failure> {
    if space.is_empty() {
        return Err(invalid("AddressSpaceRequired", format!("{id} has no range of addresses")));
    }
    let space: Vec<Ipv4Net> = space.iter().map(|it| range(it)).collect::<Result<_, _>>()?;
    for (number, one) in space.iter().enumerate() {
        if let Some(other) = space[..number].iter().find(|it| overlap(it, one)) {
            return Err(invalid("OverlappingAddressSpace", format!("{one} and {other} of {id} overlap")));
        }
    }
    for (subnet, prefix) in subnets(cx, id)? {
        if !space.iter().any(|it| it.contains(&prefix)) {
            return Err(super::in_use(id, format!("{subnet}, whose range {prefix} would not be in it")));
        }
    }
    Ok(())
}

fn check_subnet(cx: &CallContext<'_>, id: &ResourceId, prefix: &str) -> Result<(), Failure> {
    let wanted = range(prefix)?;
    let network = id.parent().ok_or_else(|| not_found(id))?;
    let Some(Stored { properties: Properties::VirtualNetwork { address_space }, .. }) =
        find(cx.db, &network.key())?
    else {
        return Err(not_found(&network));
    };
    let mut space = Vec::new();
    for text in &address_space {
        space.push(range(text)?);
    }
    if !space.iter().any(|it| it.contains(&wanted)) {
        let why = format!("the range {wanted} of {id} is not within {}", address_space.join(", "));
        return Err(invalid("NetcfgInvalidSubnet", why));
    }
    for (other, its) in subnets(cx, &network)? {
        if other != *id && overlap(&its, &wanted) {
            let why = format!("the range {wanted} of {id} overlaps with {its} of {other}");
            return Err(invalid("NetcfgSubnetRangesOverlap", why));
        }
    }
    let Some(Stored { properties: Properties::Subnet { address_prefix, .. }, .. }) = find(cx.db, &id.key())?
    else {
        return Ok(());
    };
    // Assigned addresses stay valid, so a range in use cannot change.
    if range(&address_prefix)? != wanted && is_used(cx, id)? {
        return Err(super::in_use(id, "those who have an address in it"));
    }
    Ok(())
}

fn is_used(cx: &CallContext<'_>, id: &ResourceId) -> Result<bool, Failure> {
    let mut statement = cx.db.prepare_cached("select 1 from reference where used = ?")?;
    Ok(statement.exists([id.key()])?)
}

/// Names of storage accounts are DNS names, so they are unique in the cloud.
fn check_storage_name(cx: &CallContext<'_>, id: &ResourceId) -> Result<(), Failure> {
    let name = id.name();
    let sound = (3..=24).contains(&name.len())
        && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
    if !sound {
        let why = format!(
            "'{name}' is no name of a storage account; expected 3 to 24 lower-case letters and digits"
        );
        return Err(invalid("AccountNameInvalid", why));
    }
    let other: Option<String> = cx
        .db
        .prepare_cached(
            "select key from resource where kind = 'storage' and key <> ? and key like '%/' || ?",
        )?
        .query_row([id.key(), name.to_owned()], |row| row.get(0))
        .optional()?;
    match other {
        Some(_) => Err(conflict(id, "the name is taken by another storage account of this cloud")),
        None => Ok(()),
    }
}
