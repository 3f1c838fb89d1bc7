//! Public DNS zones and their record sets. Members of record sets are spelled with capitals, as the service does.

use std::net::{Ipv4Addr, Ipv6Addr};

use cloud::ResourceId;
use serde_json::{Value, json};

use super::body::{Body, default, invalid, items, keep, properties, required, text};
use super::rows;
use crate::arm::{ArmResource, Behaviour, store, type_of};
use crate::call_context::CallContext;
use crate::failure::Failure;

/// The types of record sets in public zones.
pub(super) const RECORD_TYPES: [&str; 4] = [
    "Microsoft.Network/dnsZones/A",
    "Microsoft.Network/dnsZones/AAAA",
    "Microsoft.Network/dnsZones/CNAME",
    "Microsoft.Network/dnsZones/TXT",
];

pub(super) struct Zones;

impl Behaviour for Zones {
    fn prepare(
        &self,
        _cx: &CallContext<'_>,
        _id: &ResourceId,
        _before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(None, body, &["numberOfRecordSets", "nameServers"]);
        let properties = properties(body);
        default(properties, "zoneType", json!("Public"));
        default(properties, "maxNumberOfRecordSets", json!(10_000));
        Ok(())
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        // Each zone has the records SOA and NS besides its own.
        let count = store::below(cx.db, &resource.id)?.len() + 2;
        let servers = ["com", "net", "org", "info"].map(|end| format!("ns1-01.azure-dns.{end}."));
        let properties = properties(body);
        properties.insert("numberOfRecordSets".to_owned(), json!(count));
        properties.insert("nameServers".to_owned(), json!(servers));
        Ok(())
    }
}

pub(super) struct Records;

impl Behaviour for Records {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        _before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep(None, body, &["fqdn"]);
        check_record(id, properties(body), "TTL", "ARecords", "AAAARecords")?;
        check_alias(cx, id)
    }

    fn show(
        &self,
        _cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        show_name(resource, body);
        Ok(())
    }
}

/// Adds the full name of a record set.
pub(super) fn show_name(resource: &ArmResource, body: &mut Body) {
    let zone = resource.id.parent().map_or_else(String::new, |it| it.name().to_owned());
    let name = match resource.id.name() {
        "@" => format!("{zone}."),
        name => format!("{name}.{zone}."),
    };
    properties(body).insert("fqdn".to_owned(), json!(name));
}

/// Checks the time to live and the addresses of a record set.
pub(super) fn check_record(
    id: &ResourceId,
    properties: &Body,
    ttl: &str,
    addresses: &str,
    addresses_v6: &str,
) -> Result<(), Failure> {
    match properties.get(ttl).map(Value::as_u64) {
        Some(Some(seconds)) if seconds <= 2_147_483_647 => {}
        None => return Err(required(ttl, id)),
        Some(_) => {
            return Err(invalid("BadRequest", format!("The TTL of the record set {id} is no valid number.")));
        }
    }
    let all = Value::Object(properties.clone());
    for address in items(&all, addresses).map(|it| text(it, "ipv4Address").unwrap_or_default()) {
        if address.parse::<Ipv4Addr>().is_err() {
            return Err(invalid(
                "BadRequest",
                format!("'{address}' in the record set {id} is not an IPv4 address."),
            ));
        }
    }
    for address in items(&all, addresses_v6).map(|it| text(it, "ipv6Address").unwrap_or_default()) {
        if address.parse::<Ipv6Addr>().is_err() {
            return Err(invalid(
                "BadRequest",
                format!("'{address}' in the record set {id} is not an IPv6 address."),
            ));
        }
    }
    Ok(())
}

/// A name with a CNAME has no other record set.
pub(super) fn check_alias(cx: &CallContext<'_>, id: &ResourceId) -> Result<(), Failure> {
    let Some(zone) = id.parent() else { return Ok(()) };
    let is_alias = |id: &ResourceId| type_of(id).is_some_and(|it| it.to_lowercase().ends_with("/cname"));
    for kind in ["A", "AAAA", "CNAME", "TXT"] {
        let other = zone.child(kind, id.name());
        if other != *id && (is_alias(id) || is_alias(&other)) && rows::present(cx, &other)?.is_some() {
            let message = format!(
                "The record set {id} cannot be created because {other} exists: a CNAME cannot be beside other record sets of \
                 its name."
            );
            return Err(invalid("BadRequest", message));
        }
    }
    Ok(())
}
