//! Values that the cloud assigns: addresses, link ids, the ids of identities. Assigned values are kept.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use cloud::{Properties, ResourceId};

use super::{Stored, find};
use crate::call_context::CallContext;
use crate::cidr;
use crate::failure::{Failure, conflict, invalid, not_found};
use crate::identities;
use crate::{database, seed};

/// Public addresses come from the range reserved for benchmarks, so that none belongs to anybody.
const PUBLIC: u32 = 0xc612_0000; // 198.18.0.0/15
const PUBLIC_COUNT: u32 = 1 << 17;

/// The requested properties, completed by the values that the cloud has assigned before.
pub(crate) fn kept(before: Option<&Properties>, mut request: Properties) -> Properties {
    // The health of a machine is reported, never requested.
    if let Properties::LoadBalancer { backends, .. } = &mut request {
        backends.iter_mut().for_each(|it| it.healthy = false);
    }
    let Some(before) = before else { return request };
    match (&mut request, before) {
        (Properties::PublicIp { address }, Properties::PublicIp { address: had }) => keep(address, had),
        (
            Properties::LoadBalancer { frontends, backends, .. },
            Properties::LoadBalancer { frontends: had, backends: behind, .. },
        ) => {
            for frontend in frontends {
                let same = |it: &&cloud::LoadBalancerFrontend| {
                    it.name == frontend.name
                        && it.subnet == frontend.subnet
                        && it.public_ip == frontend.public_ip
                };
                if let Some(had) = had.iter().find(same) {
                    keep(&mut frontend.address, &had.address);
                }
            }
            if backends.is_empty() {
                backends.clone_from(behind);
            }
        }
        (
            Properties::PrivateEndpoint { address, link_id, .. },
            Properties::PrivateEndpoint { address: had, link_id: linked, .. },
        ) => {
            keep(address, had);
            keep(link_id, linked);
        }
        (Properties::Machine { address, .. }, Properties::Machine { address: had, .. }) => keep(address, had),
        (
            Properties::Identity { client_id, principal_id, tenant_id, .. },
            Properties::Identity { client_id: client, principal_id: principal, tenant_id: tenant, .. },
        ) => {
            keep(client_id, client);
            keep(principal_id, principal);
            keep(tenant_id, tenant);
        }
        _ => {}
    }
    request
}

fn keep(request: &mut Option<String>, had: &Option<String>) {
    if request.is_none() {
        request.clone_from(had);
    }
}

/// Assigns missing values.
pub(super) fn fill(
    cx: &CallContext<'_>,
    id: &ResourceId,
    properties: &mut Properties,
) -> Result<(), Failure> {
    match properties {
        Properties::PublicIp { address } if address.is_none() => {
            let number: u32 = database::record(cx.db, "meta", "public-addresses")?.unwrap_or(0);
            database::write(cx.db, "meta", "public-addresses", &number.wrapping_add(1))?;
            *address = Some(Ipv4Addr::from_bits(PUBLIC + number % PUBLIC_COUNT).to_string());
        }
        Properties::LoadBalancer { frontends, .. } => {
            let mut own = BTreeSet::new();
            for frontend in frontends {
                if let Some(public) = &frontend.public_ip {
                    let found = find(cx.db, &public.key())?;
                    let Some(Stored { properties: Properties::PublicIp { address }, .. }) = found else {
                        return Err(not_found(public));
                    };
                    frontend.address = address;
                } else if let Some(subnet) = &frontend.subnet {
                    let given = give(cx, id, subnet, frontend.address.as_deref(), &own)?;
                    own.insert(given);
                    frontend.address = Some(given.to_string());
                }
            }
        }
        Properties::PrivateEndpoint { subnet, address, link_id, .. } => {
            *address = Some(give(cx, id, subnet, address.as_deref(), &BTreeSet::new())?.to_string());
            if link_id.is_none() {
                *link_id = Some(free_link(cx)?);
            }
        }
        Properties::Machine { subnet, address, .. } => {
            *address = Some(give(cx, id, subnet, address.as_deref(), &BTreeSet::new())?.to_string());
        }
        Properties::Identity { client_id, principal_id, tenant_id, .. } => {
            let key = id.key();
            let drawn = |what: &str| Some(seed::uuid(cx.seed, &[what, &key]).to_string());
            *client_id = client_id.take().or_else(|| drawn("client"));
            *principal_id = principal_id.take().or_else(|| drawn("principal"));
            *tenant_id = tenant_id.take().or_else(|| Some(identities::tenant(cx.seed)));
        }
        _ => {}
    }
    Ok(())
}

/// The address of a resource in a subnet: the requested one, or the first free one.
fn give(
    cx: &CallContext<'_>,
    whom: &ResourceId,
    subnet: &ResourceId,
    asked: Option<&str>,
    own: &BTreeSet<Ipv4Addr>,
) -> Result<Ipv4Addr, Failure> {
    let Some(Stored { properties: Properties::Subnet { address_prefix, .. }, .. }) =
        find(cx.db, &subnet.key())?
    else {
        return Err(not_found(subnet));
    };
    let range = cidr::parse(&address_prefix).map_err(|why| invalid("InvalidAddressPrefixFormat", why))?;
    let mut taken = taken(cx, whom, subnet)?;
    taken.extend(own);
    match asked {
        Some(text) => {
            let asked: Ipv4Addr =
                text.parse().map_err(|_| invalid("InvalidAddress", format!("'{text}' is no address")))?;
            if !cidr::is_assignable(range, asked) {
                let why = format!("the address {asked} of {whom} cannot be given out in {range}");
                return Err(invalid("PrivateIPAddressNotInSubnet", why));
            }
            if taken.contains(&asked) {
                return Err(conflict(whom, format!("the address {asked} is taken in {subnet}")));
            }
            Ok(asked)
        }
        None => cidr::assignable(range).find(|it| !taken.contains(it)).ok_or_else(|| {
            let why = format!("{subnet} has no free address left in {range} for {whom}");
            invalid("SubnetIsFull", why)
        }),
    }
}

/// The addresses of other resources in a subnet.
fn taken(
    cx: &CallContext<'_>,
    whom: &ResourceId,
    subnet: &ResourceId,
) -> Result<BTreeSet<Ipv4Addr>, Failure> {
    let mut statement = cx.db.prepare_cached(
        "select doc from reference join resource on resource.key = reference.user
         where used = ? and user <> ?",
    )?;
    let docs = statement.query_map([subnet.key(), whom.key()], |row| row.get::<_, String>(0))?;
    let mut taken = BTreeSet::new();
    for doc in docs {
        let stored: Stored = serde_json::from_str(&doc?)?;
        let addresses: Vec<Option<String>> = match stored.properties {
            Properties::Machine { address, .. } | Properties::PrivateEndpoint { address, .. } => {
                vec![address]
            }
            Properties::LoadBalancer { frontends, .. } => frontends
                .into_iter()
                .filter(|it| it.subnet.as_ref() == Some(subnet))
                .map(|it| it.address)
                .collect(),
            _ => Vec::new(),
        };
        taken.extend(addresses.into_iter().flatten().filter_map(|it| it.parse::<Ipv4Addr>().ok()));
    }
    Ok(taken)
}

/// The smallest free link id: ids are reused after a delete, as the real ones are.
fn free_link(cx: &CallContext<'_>) -> Result<String, Failure> {
    let mut statement = cx
        .db
        .prepare_cached("select json_extract(doc, '$.shape.linkId') from resource where kind = 'endpoint'")?;
    let links = statement.query_map([], |row| row.get::<_, Option<String>>(0))?;
    let mut taken = BTreeSet::new();
    for link in links {
        taken.extend(link?.and_then(|it| it.parse::<u64>().ok()));
    }
    let first = 0x2000_0000_u64;
    Ok((first..).find(|it| !taken.contains(it)).unwrap_or(first).to_string())
}
