//! Records of public and private DNS zones, which spell their members differently, and the links of private zones.

use cloud::{Properties, ResourceId};
use serde_json::{Value, json};

use crate::json::{id_at, items, set, set_reference, text};

pub(super) fn apply_public(body: &mut Value, ttl: u32, addresses: &[String]) {
    apply(body, "TTL", "ARecords", ttl, addresses);
}

pub(super) fn apply_private(body: &mut Value, ttl: u32, addresses: &[String]) {
    apply(body, "ttl", "aRecords", ttl, addresses);
}

fn apply(body: &mut Value, ttl_member: &str, records_member: &str, ttl: u32, addresses: &[String]) {
    set(body, &["properties", ttl_member], json!(ttl));
    let records: Vec<Value> = addresses.iter().map(|it| json!({ "ipv4Address": it })).collect();
    set(body, &["properties", records_member], json!(records));
}

pub(super) fn public_record(body: &Value) -> Properties {
    let (ttl, addresses) = record(body, "TTL", "ARecords");
    Properties::DnsRecord { ttl, addresses }
}

pub(super) fn private_record(body: &Value) -> Properties {
    let (ttl, addresses) = record(body, "ttl", "aRecords");
    Properties::PrivateDnsRecord { ttl, addresses }
}

fn record(body: &Value, ttl_member: &str, records_member: &str) -> (u32, Vec<String>) {
    let ttl = body.pointer(&format!("/properties/{ttl_member}")).and_then(Value::as_u64).unwrap_or_default();
    let records = items(body, &format!("/properties/{records_member}")).iter();
    (ttl.try_into().unwrap_or(u32::MAX), records.map(|it| text(it, "/ipv4Address").to_owned()).collect())
}

pub(super) fn apply_link(body: &mut Value, network: &ResourceId, registration: bool) {
    set_reference(body, &["properties", "virtualNetwork"], Some(network.as_str()));
    set(body, &["properties", "registrationEnabled"], json!(registration));
}

pub(super) fn link(body: &Value) -> Option<Properties> {
    Some(Properties::PrivateDnsLink {
        network: id_at(body, "/properties/virtualNetwork/id")?,
        registration: body
            .pointer("/properties/registrationEnabled")
            .and_then(Value::as_bool)
            .unwrap_or_default(),
    })
}
