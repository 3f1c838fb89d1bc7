//! Private endpoints, and the private link services that they connect to.

use cloud::{LinkConnection, Properties, ResourceId};
use serde_json::{Value, json};

use crate::json::{id_at, items, optional_text, set, set_reference, text, upsert};

pub(super) fn apply_endpoint(body: &mut Value, id: &ResourceId, subnet: &ResourceId, target: &ResourceId) {
    set_reference(body, &["properties", "subnet"], Some(subnet.as_str()));
    let name = format!("{}-connection", id.name());
    let lists = ["manualPrivateLinkServiceConnections", "privateLinkServiceConnections"];
    let is_there = |list: &str| {
        let connections = items(body, &format!("/properties/{list}")).iter();
        let mut targets = connections.map(|it| text(it, "/properties/privateLinkServiceId"));
        targets.any(|it| it.eq_ignore_ascii_case(target.as_str()))
    };
    if lists.iter().any(|it| is_there(it)) {
        return;
    }
    upsert(body, &["properties", lists[0]], &name, |it| {
        set(it, &["properties", "privateLinkServiceId"], json!(target));
    });
}

pub(super) fn endpoint(body: &Value) -> Option<Properties> {
    let connections =
        ["/properties/manualPrivateLinkServiceConnections", "/properties/privateLinkServiceConnections"];
    let connection = connections.into_iter().flat_map(|it| items(body, it)).next()?;
    let interface = items(body, "/properties/networkInterfaces").first();
    let configuration = interface.and_then(|it| items(it, "/properties/ipConfigurations").first());
    Some(Properties::PrivateEndpoint {
        subnet: id_at(body, "/properties/subnet/id")?,
        target: id_at(connection, "/properties/privateLinkServiceId")?,
        address: configuration.and_then(|it| optional_text(it, "/properties/privateIPAddress")),
        link_id: None,
    })
}

pub(super) fn apply_service(
    body: &mut Value,
    id: &ResourceId,
    frontends: &[String],
    subnet: &ResourceId,
    subscriptions: &[String],
) {
    let present = items(body, "/properties/loadBalancerFrontendIpConfigurations");
    let is_same = present.len() == frontends.len()
        && present.iter().zip(frontends).all(|(it, id)| text(it, "/id").eq_ignore_ascii_case(id));
    if !is_same {
        let references: Vec<Value> = frontends.iter().map(|it| json!({ "id": it })).collect();
        set(body, &["properties", "loadBalancerFrontendIpConfigurations"], json!(references));
    }
    let present = items(body, "/properties/ipConfigurations").first();
    let name = present.map_or_else(|| format!("{}-nic", id.name()), |it| text(it, "/name").to_owned());
    upsert(body, &["properties", "ipConfigurations"], &name, |it| {
        set_reference(it, &["properties", "subnet"], Some(subnet.as_str()));
    });
    set(body, &["properties", "visibility", "subscriptions"], json!(subscriptions));
    set(body, &["properties", "autoApproval", "subscriptions"], json!(subscriptions));
}

pub(super) fn service(body: &Value) -> Option<Properties> {
    let frontends = items(body, "/properties/loadBalancerFrontendIpConfigurations").iter();
    let first = items(body, "/properties/ipConfigurations").first()?;
    Some(Properties::PrivateLinkService {
        frontends: frontends.map(|it| text(it, "/id").to_owned()).collect(),
        subnet: id_at(first, "/properties/subnet/id")?,
        subscriptions: crate::json::texts(body, "/properties/visibility/subscriptions"),
        alias: optional_text(body, "/properties/alias"),
        connections: link_connections(body),
    })
}

/// The connections of a link service.
pub(crate) fn link_connections(body: &Value) -> Vec<LinkConnection> {
    let connections = items(body, "/properties/privateEndpointConnections").iter();
    let connection = |it: &Value| LinkConnection {
        name: text(it, "/name").to_owned(),
        endpoint: text(it, "/properties/privateEndpoint/id").to_owned(),
        link_id: text(it, "/properties/linkIdentifier").to_owned(),
        approved: text(it, "/properties/privateLinkServiceConnectionState/status")
            .eq_ignore_ascii_case("Approved"),
    };
    connections.map(connection).collect()
}

/// The connection of an endpoint, with its body.
pub(crate) fn connection_of<'a>(service: &'a Value, endpoint: &ResourceId) -> Option<&'a Value> {
    let mut connections = items(service, "/properties/privateEndpointConnections").iter();
    connections.find(|it| text(it, "/properties/privateEndpoint/id").eq_ignore_ascii_case(endpoint.as_str()))
}
