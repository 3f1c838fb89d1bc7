//! What the cloud fills in: addresses, link ids, the ids of identities. What was filled in once is kept.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use cloud::{ResourceId, Shape};

use super::{Stored, find};
use crate::cidr::Cidr;
use crate::failure::{Failure, conflict, invalid, not_found};
use crate::people;
use crate::room::Room;
use crate::{database, seed};

/// Public addresses come out of the range that is kept for benchmarks, so that none is anybody's.
const PUBLIC: u32 = 0xc612_0000; // 198.18.0.0/15
const PUBLIC_COUNT: u32 = 1 << 17;

/// The wish, with what the cloud filled in before where the wish is silent.
pub(crate) fn kept(before: Option<&Shape>, mut wish: Shape) -> Shape {
    // Whether a machine answers is never wished for.
    if let Shape::LoadBalancer { backends, .. } = &mut wish {
        backends.iter_mut().for_each(|it| it.healthy = false);
    }
    let Some(before) = before else { return wish };
    match (&mut wish, before) {
        (Shape::PublicIp { address }, Shape::PublicIp { address: had }) => keep(address, had),
        (
            Shape::LoadBalancer { frontends, backends, .. },
            Shape::LoadBalancer { frontends: had, backends: behind, .. },
        ) => {
            for frontend in frontends {
                let same = |it: &&cloud::Frontend| {
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
            Shape::PrivateEndpoint { address, link_id, .. },
            Shape::PrivateEndpoint { address: had, link_id: linked, .. },
        ) => {
            keep(address, had);
            keep(link_id, linked);
        }
        (Shape::Machine { address, .. }, Shape::Machine { address: had, .. }) => keep(address, had),
        (
            Shape::Identity { client_id, principal_id, tenant_id, .. },
            Shape::Identity { client_id: client, principal_id: principal, tenant_id: tenant, .. },
        ) => {
            keep(client_id, client);
            keep(principal_id, principal);
            keep(tenant_id, tenant);
        }
        _ => {}
    }
    wish
}

fn keep(wish: &mut Option<String>, had: &Option<String>) {
    if wish.is_none() {
        wish.clone_from(had);
    }
}

/// Fills in what is missing.
pub(super) fn fill(room: &Room<'_>, id: &ResourceId, shape: &mut Shape) -> Result<(), Failure> {
    match shape {
        Shape::PublicIp { address } if address.is_none() => {
            let number: u32 = database::record(room.db, "meta", "public-addresses")?.unwrap_or(0);
            database::keep(room.db, "meta", "public-addresses", &number.wrapping_add(1))?;
            *address = Some(Ipv4Addr::from_bits(PUBLIC + number % PUBLIC_COUNT).to_string());
        }
        Shape::LoadBalancer { frontends, .. } => {
            let mut own = BTreeSet::new();
            for frontend in frontends {
                if let Some(public) = &frontend.public_ip {
                    let found = find(room.db, &public.key())?;
                    let Some(Stored { shape: Shape::PublicIp { address }, .. }) = found else {
                        return Err(not_found(public));
                    };
                    frontend.address = address;
                } else if let Some(subnet) = &frontend.subnet {
                    let given = give(room, id, subnet, frontend.address.as_deref(), &own)?;
                    own.insert(given);
                    frontend.address = Some(given.to_string());
                }
            }
        }
        Shape::PrivateEndpoint { subnet, address, link_id, .. } => {
            *address = Some(give(room, id, subnet, address.as_deref(), &BTreeSet::new())?.to_string());
            if link_id.is_none() {
                *link_id = Some(free_link(room)?);
            }
        }
        Shape::Machine { subnet, address, .. } => {
            *address = Some(give(room, id, subnet, address.as_deref(), &BTreeSet::new())?.to_string());
        }
        Shape::Identity { client_id, principal_id, tenant_id, .. } => {
            let key = id.key();
            let drawn = |what: &str| Some(seed::uuid(room.seed, &[what, &key]).to_string());
            *client_id = client_id.take().or_else(|| drawn("client"));
            *principal_id = principal_id.take().or_else(|| drawn("principal"));
            *tenant_id = tenant_id.take().or_else(|| Some(people::tenant(room.seed)));
        }
        _ => {}
    }
    Ok(())
}

/// The address that somebody has in a subnet: the one that is asked for, or the first that is free.
fn give(
    room: &Room<'_>,
    whom: &ResourceId,
    subnet: &ResourceId,
    asked: Option<&str>,
    own: &BTreeSet<Ipv4Addr>,
) -> Result<Ipv4Addr, Failure> {
    let Some(Stored { shape: Shape::Subnet { address_prefix, .. }, .. }) = find(room.db, &subnet.key())?
    else {
        return Err(not_found(subnet));
    };
    let range: Cidr =
        address_prefix.parse().map_err(|why: String| invalid("InvalidAddressPrefixFormat", why))?;
    let mut taken = taken(room, whom, subnet)?;
    taken.extend(own);
    match asked {
        Some(text) => {
            let asked: Ipv4Addr =
                text.parse().map_err(|_| invalid("InvalidAddress", format!("'{text}' is no address")))?;
            if !range.may_give(asked) {
                let why = format!("the address {asked} of {whom} cannot be given out in {range}");
                return Err(invalid("PrivateIPAddressNotInSubnet", why));
            }
            if taken.contains(&asked) {
                return Err(conflict(whom, format!("the address {asked} is taken in {subnet}")));
            }
            Ok(asked)
        }
        None => range.usable().find(|it| !taken.contains(it)).ok_or_else(|| {
            let why = format!("{subnet} has no free address left in {range} for {whom}");
            invalid("SubnetIsFull", why)
        }),
    }
}

/// The addresses that others have in a subnet.
fn taken(room: &Room<'_>, whom: &ResourceId, subnet: &ResourceId) -> Result<BTreeSet<Ipv4Addr>, Failure> {
    let mut statement = room.db.prepare_cached(
        "select doc from reference join resource on resource.key = reference.user
         where used = ? and user <> ?",
    )?;
    let docs = statement.query_map([subnet.key(), whom.key()], |row| row.get::<_, String>(0))?;
    let mut taken = BTreeSet::new();
    for doc in docs {
        let stored: Stored = serde_json::from_str(&doc?)?;
        let addresses: Vec<Option<String>> = match stored.shape {
            Shape::Machine { address, .. } | Shape::PrivateEndpoint { address, .. } => vec![address],
            Shape::LoadBalancer { frontends, .. } => frontends
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

/// The smallest link id that no endpoint has: ids are used again after a delete, as the real ones are.
fn free_link(room: &Room<'_>) -> Result<String, Failure> {
    let mut statement = room
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
